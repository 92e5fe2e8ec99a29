/** The bench runs, on small sessions, and fits its report; the speed does not matter here. */

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";
import type { Json } from "./support/server.ts";
import { SWEEP } from "./support/tiers.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const home = mkdtempSync(join(tmpdir(), "pi-session-"));
afterAll(() => rmSync(home, { recursive: true }));

function run(script: string, ...args: string[]): string {
  return execFileSync(process.execPath, [join(root, "bench", script), ...args], {
    cwd: root,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
}

const V2_ROWS = [
  ...["lean", "realistic"].flatMap((shape) =>
    ["V2, migration", "V2, bytes on the disk per payload byte", "resume, V2", "durable append, V2"].map(
      (what) => `${what}, 1000 entries, ${shape}`,
    ),
  ),
  "V2, durable append, 1000 entries to 1001",
];

test.each([
  ["get_messages, ", ["get_messages, 1 MB"]],
  ["V2", V2_ROWS],
])("rows are measured, next to what the machine does: %s", SWEEP, (part, names) => {
  const { rows }: Json = JSON.parse(run("run.js", "--quick", "--json", "--rows", part));
  expect(rows.map(({ what }: Json) => what)).toEqual(names);
  for (const { ours, against } of rows) expect(Math.min(ours.median, against?.median ?? 1)).toBeGreaterThan(0);
});

test("the growth of commands is measured and fitted", SWEEP, async () => {
  const { sizes, rows }: Json = JSON.parse(run("run.js", "--quick", "--json", "--growth"));
  expect(rows.map(({ command }: Json) => command)).toEqual(
    expect.arrayContaining(["get_state", "append", "get_tree, limit 100", "fork", "switch_session"]),
  );
  for (const { milliseconds } of rows) expect(milliseconds).toHaveLength(sizes.length);
  const { fitExponent } = await import("../bench/scaling.js" as string);
  expect(fitExponent([10, 100, 1000], [3, 3, 3])).toBeCloseTo(0);
  expect(fitExponent([10, 100, 1000], [3, 300, 30_000])).toBeCloseTo(2);
});

test("what is large, what is many and what is cold is measured", SWEEP, () => {
  const small = ["--gigabytes", "0.002", "--line", "0.002", "--open", "2", "--entries", "100", "--rounds", "1"];
  const text = run("scale.js", "--parts", "session,line,open,cold", ...small, "--home", home);
  const rows = text.split("\n").filter((line) => line.startsWith("| "));
  const wanted = [
    "a session of 0.00",
    "- its first context",
    "a line of 0.00",
    "- sent whole",
    "2 sessions of",
    "spawn to",
  ];
  for (const what of wanted) expect(rows.some((row) => row.startsWith(`| ${what}`))).toBe(true);
  for (const row of rows.slice(1)) expect(row.split("|")[2]).toMatch(/^ \d+(\.\d+)? (ms|MB|k\/s) *$/);
});

const { README_ROWS, getPlace, findFigures, withFigures, withReadmeFigures }: Json = await import(
  "../bench/figures.js" as string
);
const documentText = readFileSync(join(root, "docs/figures.md"), "utf8");
const readmeText = readFileSync(join(root, "README.md"), "utf8");

test("the README's figures are six of those of docs/figures.md, of one run", () => {
  const { how, rows } = findFigures(readmeText, "figures");
  const place = getPlace(/^Node (v[\d.]+),/.exec(how)?.[1] ?? "");
  expect(README_ROWS).toHaveLength(6);
  expect(rows).toHaveLength(6);
  expect(withReadmeFigures(readmeText, documentText, place)).toBe(readmeText);
  const other = readmeText.replace(rows[0][1], "1 ms");
  expect(other).not.toBe(readmeText);
  expect(withReadmeFigures(other, documentText, place)).toBe(readmeText);
});

test("a document takes new figures between its markers, and nothing else of it is changed", () => {
  const figures = findFigures(documentText, "figures of Node 20");
  expect(withFigures(documentText, "figures of Node 20", figures)).toBe(documentText);
  const changed = withFigures(documentText, "figures of Node 20", { ...figures, how: "Node $& v1" });
  expect(changed).toBe(documentText.replace(figures.how, () => "Node $& v1"));
  expect(() => withFigures("no table", "figures", figures)).toThrow("<!-- figures -->");
  const rows = figures.rows.filter(([what]: string[]) => what !== "spawn to first reply");
  const fewer = withFigures(documentText, "figures of Node 20", { ...figures, rows });
  expect(() => withReadmeFigures(readmeText, fewer, "figures of Node 20")).toThrow("spawn to first reply");
});

test("saved results are written into both documents, and into none when a row is missing", SWEEP, () => {
  const folder = mkdtempSync(join(home, "documents-"));
  mkdirSync(join(folder, "docs"));
  const document = join(folder, "docs/figures.md");
  const readme = join(folder, "README.md");
  const saved = join(folder, "results.json");
  writeFileSync(document, documentText);
  writeFileSync(readme, readmeText);
  const ours = { median: 12.34, low: 1, high: 20, runs: 3 };
  const results = {
    ...{ node: "v24.1.0", processors: 2, load: 0.5, runs: 3 },
    rows: ["more", ...README_ROWS].map((what, n) => ({
      what,
      unit: "ms",
      ours: { ...ours, median: ours.median + n },
      against: { what: "echo", median: 10 },
      pis: { "Pi 1": n === 0 ? undefined : { median: 100 } },
    })),
  };
  const write = (more: object, ...args: string[]): string => {
    writeFileSync(saved, JSON.stringify({ ...results, ...more }));
    return run("run.js", "--from", saved, "--into", folder, ...args);
  };

  expect(write({}, "--figures")).toContain("| more ");
  const made = findFigures(readFileSync(document, "utf8"), "figures of Node 24");
  expect(made.how).toBe("Node v24.1.0, 2 processors, load 0.5 before, median of 3 (lowest-highest)");
  expect(made.head).toEqual(["what", "ours", "goal", "against", "ratio", "Pi 1", "ratio"]);
  expect(made.rows[0]).toEqual(["more", "12.3 ms (1.00-20.0)", "", "echo 10.0 ms", "1.23", "", ""]);
  expect(made.rows[1].slice(1)).toEqual(["13.3 ms (1.00-20.0)", "", "echo 10.0 ms", "1.33", "100 ms", "0.13"]);
  expect(readFileSync(readme, "utf8")).toBe(readmeText);

  write({}, "--readme");
  // A reader there compares with Pi; goals and bare programs are in the other document.
  const withoutGoals = (cells: string[]): string[] => cells.filter((_, at) => at < 2 || at > 4);
  const [head, rows] = [withoutGoals(made.head), made.rows.slice(1).map(withoutGoals)];
  expect(findFigures(readFileSync(readme, "utf8"), "figures")).toEqual({ ...made, head, rows, lost: [] });
  const written = readFileSync(document, "utf8");
  expect(() => write({ rows: results.rows.slice(2) }, "--readme")).toThrow();
  expect(readFileSync(document, "utf8")).toBe(written);
});

test("an agent behind the server is measured beside that agent alone", SWEEP, () => {
  const rows = run("client-latency.js", "--runs", "1", "--chunks", "20")
    .split("\n")
    .filter((line) => line.startsWith("| "));
  const faces = rows.slice(1).map((row) => row.split("|")[1].trim());
  const around = ["the agent alone", "behind a process that only passes bytes on"];
  expect(faces).toEqual([
    ...[...around, "`--mode rpc`", "`--dialect acp`"].map((face) => `Pi's dialect: ${face}`),
    ...[...around, "`--dialect acp`"].map((face) => `the Agent Client Protocol: ${face}`),
  ]);
});

test("sessions for it are the same bytes everywhere", SWEEP, () => {
  const hashes = ["realistic", "giant", "custom", "wide", "broken"].map((shape) => {
    const file = join(home, shape);
    run("generate.js", shape, shape === "giant" ? "1" : "100", file);
    // The working directory stands in the header.
    const entries = readFileSync(file, "utf8").replace(/^.*\n/, "");
    return createHash("sha256").update(entries).digest("hex").slice(0, 16);
  });
  expect(hashes.join(" ")).toBe("2e636d1f8e26da80 6772f214864bd216 28955cfa64fcb7f7 a9984a23432c4a5c 6d67d5bdd18fdb29");
});
