/** stats over all sessions: its table, its chart and its spreadsheet. */

import { beforeEach, expect, test } from "vitest";
import { entryText } from "../../support/lines.ts";
import { range } from "../../support/random.ts";
import { type Place, temporaryPlace } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { expectTame, playVerbs, type RunOptions, runHere, stored } from "../../support/verbs.ts";

/** Puts a session with answers, each given as its time, its cost and its model. */
function put(place: Place, id: string, answers: readonly string[], cwd = "/home/me/app", name?: string): void {
  const lines = answers.map((answer, n) => {
    const [time, total, model = "sonnet"] = answer.split(" ");
    const cost = { total: total === "unknown" ? undefined : Number(total) };
    const usage = { input: 1000 * (n + 1), output: 1, cacheRead: 9, cacheWrite: 0, cost };
    const message = { role: "assistant", provider: "anthropic", model, usage, timestamp: Date.parse(time) };
    return entryText("message", `0000000${n}`, null, { message });
  });
  if (name !== undefined) lines.push(entryText("session_info", "name", null, { name }));
  stored(place, id, lines, { cwd });
}

const NASTY = '\u001b[2J\u202e=cmd|"/c calc",\r\n한국어 이름';

let place: Place;
beforeEach(() => {
  place = temporaryPlace();
  // Times without a zone are those of the machine, wherever the test runs.
  put(place, "one", ["2026-01-24T10:00 1.5", "2026-01-26T23:59 0.25"]);
  put(place, "two", ["2026-01-24T12:00 10 opus", "2026-01-24T12:00 unknown llama"], "/home/me/=other", NASTY);
});

const NOW = Date.parse("2026-02-01T00:00:00.000Z");

const say = (columns: number) => playVerbs(place, {}, { now: NOW, variables: { COLUMNS: String(columns) } });

async function printed(args: string, options?: RunOptions): Promise<string> {
  const { stdout, stderr, status } = await runHere(place, ["stats", ...args.split(" ").filter(Boolean)], options);
  expect([stderr, status]).toEqual(["", 0]);
  return stdout;
}

test("sums months, the latest first, also with weeks and for a spreadsheet", async () => {
  put(place, "three", ["2025-12-31T23:59 1", "2025-12-01T00:00 2"]);
  await say(80)(`
    $ stats --by month
    MONTH {...}
    2026-01 {...} $11.75
    2025-12 {...} $3.00
    total {....}
    $ stats --by month,week --json | rows[].month
    ["2026-01","2026-01","2025-12","2025-12"]
    $ stats --by month --csv
    + ^2025-12,2,`);
});

test("is a table by day, the latest first, or by model, project and session, from one day to another", async () => {
  await say(120)(`
    $ stats
    DAY         ANSWERS  INPUT  OUTPUT  CACHE READ  TOKENS    COST
    2026-01-26        1  2,000       1           9   2,010   $0.25
    2026-01-24        3  4,000       3          27   4,030  $11.50
    total             4  6,000       4          36   6,040  $11.75
    The cost of 1 message is not known and counts as $0: anthropic/llama (1).
    Only Pi's sessions count; list --agents --sort cost has those of other agents.
    $ stats --by week
    WEEK OF     ANSWERS {...}
    2026-01-26        1 {...}
    2026-01-19        3 {...}
    total {....}
    $ stats --by week,day --json | rows[].week
    ["2026-01-26","2026-01-19"]
    $ stats --by 'project, model'
    PROJECT {...} MODEL {...} ANSWERS {...}
    /home/me/=other {...} anthropic/opus {...} 1 {...}$10.00
    {....}
    $ stats --by session --limit 1
    SESSION {...} ID {...} ANSWERS{...}
    {...}한국어{...} two {...} 2 {...}$10.00
    total {...}$11.75
    1 more row: --all shows them.
    {....}
    $ stats --until 2026-01-25 --json | totals.cost
    11.5
    $ stats --since 2026-01-25 --json | totals.cost
    0.25
    $ stats --since 2026-01-24T11:00 --until 2026-01-25 --json | totals.cost
    10
    $ stats --cwd /home/me/app --json | totals.cost
    1.75
    $ stats --since 2026-01-30
    Nothing was spent in these sessions.
    {...}`);
});

test("a cost that is not known is no $0.00: of a model, of a session and in a list", async () => {
  put(place, "three", ["2026-01-24T12:00 unknown llama"]);
  await say(120)(`
    $ stats --by model
    + ^anthropic/llama .* unknown$
    $ stats three
    + ^cost +unknown +unknown$
    + ^made here +1,010 +unknown$
    + ^from the session it was forked from +0 +\\$0\\.0000$
    $ list --sort cost
    + \\$10\\.00 
    + \\$1\\.75 +\\(nothing
    + 1 +unknown +\\(nothing
    $ list --sort cost --json | sessions[].cost
    [10,1.75,null]`);
});

acrossTiers(test, [40, 20, 80, 200, 400])("fits %i columns, and does nothing to a terminal", async (columns) => {
  put(place, "x".repeat(60), ["2026-01-01 1e14"], "/w".repeat(60), "很长".repeat(60));
  const options = { terminal: { columns }, variables: { NO_COLOR: "1" } };
  for (const how of ["", "--chart", "--chart --plain", "--by day,model,project,session"]) {
    // Screen readers get lines in full.
    const width = how.includes("--plain") ? undefined : columns;
    const text = expectTame((await printed(how, options)).trimEnd(), width, how);
    expect(text.split("\n").length).toBeGreaterThan(4);
    expect(text.replace(/\s+/g, " ")).toMatch(/ list --agents --sort cost has those of other agents\.$/);
    if (columns >= 40) expect(text).toMatch(/total .*\$100,000,000,000,011\.75/);
  }
});

test.each([40, 80])(
  "what one session holds fits %i columns, and programs get the path on one line",
  async (columns) => {
    put(place, "long", ["2026-01-24T10:00 1.5"], "/a-long-way/to".repeat(8));
    const out = await printed("long", { terminal: { columns }, variables: { NO_COLOR: "1" } });
    expect(expectTame(out, columns)).toMatch(/^from the session it .* 0 +\$0\.0000$/m);
    const piped = await printed("long", { variables: { COLUMNS: String(columns) } });
    expect(piped).toMatch(/^File {5}\/.*_long\.jsonl$/m);
  },
);

test("--chart has a bar for each day, also for those without usage; of tokens where nothing has a cost", async () => {
  const full = 60 - "2026-01-24  ".length - "  $11.50".length;
  await say(60)(`
    $ stats --chart
    COST BY DAY
    2026-01-26  ${"▉".padEnd(full)}   $0.25
    2026-01-25  ${"".padEnd(full)}   $0.00
    2026-01-24  ${"█".repeat(full)}  $11.50
    total $11.75
    {...}
    $ stats --chart --plain
    COST BY DAY
    2026-01-26  ${"#".padEnd(full)}   $0.25
    {...}`);
  place = temporaryPlace();
  put(place, "one", ["2026-01-24T10:00 unknown"]);
  const terminal = { columns: 60 };
  expect(await printed("--chart", { terminal })).toMatch(/TOKENS BY DAY(?:.|\n)*\[36m█/);
  expect(await printed("--chart --plain", { terminal })).not.toContain("\u001b");
  expect(await printed("--chart", { terminal, variables: { NO_COLOR: "1" } })).not.toContain("\u001b");
});

test("--csv is for spreadsheets, in which no text becomes a formula", async () => {
  const out = await printed("--by session,project --csv");
  const numbers = "messages,input_tokens,output_tokens,cache_read_tokens,cache_write_tokens,tokens,cost";
  const [head, row] = out.split("\r\n");
  expect(head).toBe(`session,name,path,project,${numbers},inherited_tokens,inherited_cost,messages_without_cost`);
  expect(row.startsWith('two,"\u001b[2J\u202e=cmd|""/c calc"",')).toBe(true);
  expect(out).toContain("/home/me/=other,2,3000,2,18,0,3020,10.000000,0,0.000000,1\r\n");
  put(place, "three", ["2026-01-24T10:00 1"], "=1+1", "@SUM(A1)");
  expect(await printed("--by project,session --csv --limit 3")).toMatch(/\r\n'=1\+1,three,'@SUM\(A1\),/);
  expectTame(await printed("--by session --csv", { terminal: { columns: 80 } }));
});

test("a terminal gets fifty rows, anything else all of them", async () => {
  place = temporaryPlace();
  const days = range(1, 61).map((n) => new Date(2026, 0, n, 12).toISOString());
  put(
    place,
    "one",
    days.map((day) => `${day} 1`),
  );
  const options = { terminal: { columns: 80 }, variables: { NO_COLOR: "1" } };
  expect(await printed("", options)).toContain("\n10 more rows: --all shows them.\n");
  expect((await printed("--all", options)).split("\n")).toHaveLength(64);
  expect((await printed("")).split("\n")).toHaveLength(64);
  expect((await printed("--csv", options)).split("\r\n")).toHaveLength(62);
});
