/** stats over all sessions: its table, its chart and its spreadsheet, on pages of any width. */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { widthOf } from "../../../src/cli/terminal/text.ts";
import { folderName } from "../../../src/storage/fs/paths.ts";
import { sessionText } from "../../support/example.ts";
import { type Json, type Place, temporaryPlace } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { type RunOptions, runHere } from "../../support/verbs.ts";

interface Spent {
  readonly id: string;
  readonly cwd?: string;
  readonly name?: string;
  readonly spent: readonly (readonly [time: string, cost: number | undefined, model?: string])[];
}

function put(place: Place, { id, cwd = "/home/me/app", name, spent }: Spent): void {
  const folder = join(place.home, ".pi/agent/sessions", folderName(cwd));
  mkdirSync(folder, { recursive: true });
  const entries: Json[] = spent.map(([time, total, model = "sonnet"], n) => ({
    type: "message",
    id: `0000000${n}`,
    parentId: null,
    message: {
      role: "assistant",
      provider: "anthropic",
      model,
      usage: { input: 1000 * (n + 1), output: 1, cacheRead: 9, cacheWrite: 0, cost: { total } },
      timestamp: Date.parse(time),
    },
  }));
  if (name !== undefined) entries.push({ type: "session_info", id: "name", parentId: null, name });
  writeFileSync(join(folder, `2026-01-24T16-22-26-831Z_${id}.jsonl`), sessionText({ id, cwd }, entries));
}

const NASTY = '\u001b[2J\u202e=cmd|"/c calc",\r\n한국어 이름';

/** Times without a zone are those of the machine, wherever the test runs. */
function filled(): Place {
  const place = temporaryPlace();
  put(place, {
    id: "one",
    spent: [
      ["2026-01-24T10:00", 1.5],
      ["2026-01-26T23:59", 0.25],
    ],
  });
  const spent = [["2026-01-24T12:00", 10, "opus"] as const, ["2026-01-24T12:00", undefined, "llama"] as const];
  put(place, { id: "two", cwd: "/home/me/=other", name: NASTY, spent });
  return place;
}

async function printed(place: Place, args: readonly string[], options?: RunOptions): Promise<string> {
  const { stdout, stderr, status } = await runHere(place, ["stats", ...args], options);
  expect([stderr, status]).toEqual(["", 0]);
  return stdout;
}

const wide = { variables: { COLUMNS: "120" } };

test("is a table by day, the latest first, with totals and what they leave out", async () => {
  expect((await printed(filled(), [], wide)).split("\n")).toEqual([
    "DAY         MSGS  INPUT  OUTPUT  CACHE READ  TOKENS    COST",
    "2026-01-26     1  2,000       1           9   2,010   $0.25",
    "2026-01-24     3  4,000       3          27   4,030  $11.50",
    "total          4  6,000       4          36   6,040  $11.75",
    "The cost of 1 message is not known and counts as $0: anthropic/llama (1).",
    "",
  ]);
});

test("is by model, project and session, from one day to the beginning of another", async () => {
  const place = filled();
  const [head, ...rows] = (await printed(place, ["--by", "project, model"], wide)).split("\n");
  expect(head).toMatch(/^PROJECT +MODEL +MSGS/);
  expect(rows[0]).toMatch(/^\/home\/me\/=other +anthropic\/opus +1 .+\$10\.00$/);
  expect(await printed(place, ["--by", "session", "--limit", "1"], wide)).toMatch(
    /^SESSION +ID +MSGS.*\n.*한국어.* +two +2 .*\$10\.00\ntotal .*\$11\.75\n1 more row: --all shows them\.\n/,
  );
  const of = async (...args: string[]): Promise<number> =>
    JSON.parse(await printed(place, [...args, "--json"])).totals.cost;
  expect(await of("--until", "2026-01-25")).toBe(11.5);
  expect(await of("--since", "2026-01-25")).toBe(0.25);
  expect(await of("--since", "2026-01-24T11:00", "--until", "2026-01-25")).toBe(10);
  expect(await of("--cwd", "/home/me/app")).toBe(1.75);
  expect(await printed(place, ["--since", "2027-01-01"])).toBe("Nothing was spent in these sessions.\n");
});

acrossTiers(test, [40, 20, 80, 200, 400])(
  "fits a page of %i columns, and prints nothing that a terminal obeys",
  async (columns) => {
    const place = filled();
    put(place, { id: "x".repeat(60), cwd: "/w".repeat(60), name: "很长".repeat(60), spent: [["2026-01-01", 1e14]] });
    for (const how of [[], ["--chart"], ["--chart", "--plain"], ["--by", "day,model,project,session"]]) {
      const out = await printed(place, how, { terminal: { columns }, variables: { NO_COLOR: "1" } });
      const lines = out.trimEnd().split("\n");
      expect(lines.length).toBeGreaterThan(4);
      for (const line of lines) {
        expect(widthOf(line), line).toBeLessThanOrEqual(columns);
        expect(line).not.toMatch(/[\p{Cc}\u202e]/u);
      }
      if (columns >= 40) expect(lines.join("\n")).toMatch(/total .*\$100,000,000,000,011\.75/);
    }
  },
);

test.each([40, 80])(
  "what one session holds fits %i columns, and programs get the path on one line",
  async (columns) => {
    const place = temporaryPlace();
    put(place, { id: "one", cwd: "/a-long-way/to".repeat(8), spent: [["2026-01-24T10:00", 1.5]] });
    const out = await printed(place, ["one"], { terminal: { columns }, variables: { NO_COLOR: "1" } });
    for (const line of out.split("\n")) expect(widthOf(line), line).toBeLessThanOrEqual(columns);
    expect(out).toMatch(/^from the session it .* 0 +\$0\.0000$/m);
    const piped = await printed(place, ["one"], { variables: { COLUMNS: String(columns) } });
    expect(piped).toMatch(/^File {5}\/.*_one\.jsonl$/m);
  },
);

describe("--chart", () => {
  test("has a bar for each day, also for those without usage", async () => {
    const chart = async (...args: string[]): Promise<string[]> =>
      (await printed(filled(), ["--chart", ...args], { variables: { COLUMNS: "60" } })).split("\n").slice(0, 5);
    const full = 60 - "2026-01-24  ".length - "  $11.50".length;
    expect(await chart()).toEqual([
      "COST BY DAY",
      `2026-01-26  ${"▉".padEnd(full)}   $0.25`,
      `2026-01-25  ${"".padEnd(full)}   $0.00`,
      `2026-01-24  ${"█".repeat(full)}  $11.50`,
      "total $11.75",
    ]);
    expect((await chart("--plain"))[1]).toBe(`2026-01-26  ${"#".padEnd(full)}   $0.25`);
  });

  test("is of tokens where nothing has a cost, and coloured for terminals that want it", async () => {
    const place = temporaryPlace();
    put(place, { id: "one", spent: [["2026-01-24T10:00", undefined]] });
    const terminal = { columns: 60 };
    const out = await printed(place, ["--chart"], { terminal });
    expect(out).toContain("TOKENS BY DAY");
    expect(out).toContain("\u001b[36m█");
    for (const [args, variables] of [
      [["--plain"], {}],
      [[], { NO_COLOR: "1" }],
    ] as const)
      expect(await printed(place, ["--chart", ...args], { terminal, variables })).not.toContain("\u001b");
  });
});

test("--csv is for spreadsheets, in which no text becomes a formula", async () => {
  const place = filled();
  const out = await printed(place, ["--by", "session,project", "--csv"]);
  const numbers = "messages,input_tokens,output_tokens,cache_read_tokens,cache_write_tokens,tokens,cost";
  const more = "inherited_tokens,inherited_cost,messages_without_cost";
  const [head, row] = out.split("\r\n");
  expect(head).toBe(`session,name,path,project,${numbers},${more}`);
  expect(row.startsWith('two,"\u001b[2J\u202e=cmd|""/c calc"",')).toBe(true);
  expect(out).toContain("/home/me/=other,2,3000,2,18,0,3020,10.000000,0,0.000000,1\r\n");
  put(place, { id: "three", cwd: "=1+1", name: "@SUM(A1)", spent: [["2026-01-24T10:00", 1]] });
  const unsafe = await printed(place, ["--by", "project,session", "--csv", "--limit", "3"]);
  expect(unsafe).toMatch(/\r\n'=1\+1,three,'@SUM\(A1\),/);
  const onTerminal = await printed(place, ["--by", "session", "--csv"], { terminal: { columns: 80 } });
  expect(onTerminal.replaceAll("\r\n", "")).not.toMatch(/[\p{Cc}\u202e]/u);
});

test("a terminal gets fifty rows, anything else all of them", async () => {
  const place = temporaryPlace();
  const spent = Array.from({ length: 60 }, (_, n) => [new Date(2026, 0, 1 + n, 12).toISOString(), 1] as const);
  put(place, { id: "one", spent });
  const terminal = { columns: 80 };
  expect(await printed(place, [], { terminal, variables: { NO_COLOR: "1" } })).toContain(
    "\n10 more rows: --all shows them.\n",
  );
  expect((await printed(place, ["--all"], { terminal })).split("\n")).toHaveLength(63);
  expect((await printed(place, [])).split("\n")).toHaveLength(63);
  expect((await printed(place, ["--csv"], { terminal })).split("\r\n")).toHaveLength(62);
});

test.each([
  [["--by", "week"], "--by takes day, model, project, session"],
  [["--by", ""], "--by takes"],
  [["--since", "soon"], "--since takes a time"],
  [["--limit", "0"], "--limit takes"],
  [["one", "--by", "day"], "--by is about all sessions"],
  [["one", "--csv"], "--csv is about all sessions"],
  [["one", "two"], "Usage"],
])("%j is a wrong command line", async (args, sentence) => {
  const { stdout, stderr, status } = await runHere(filled(), ["stats", ...args]);
  expect([stdout, status]).toEqual(["", 2]);
  expect(stderr).toContain(sentence);
});
