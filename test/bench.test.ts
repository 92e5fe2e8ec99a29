/** The bench runs, on small sessions, and fits what it says; how fast anything is, is no matter here. */

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";

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

interface Row {
  readonly what: string;
  readonly ours: { readonly median: number };
  readonly against: { readonly median: number };
}

test("a row is measured against what the machine does", () => {
  const { rows } = JSON.parse(run("run.js", "--quick", "--json", "--rows", "get_messages")) as { rows: Row[] };
  expect(rows.map(({ what }) => what)).toEqual(["get_messages, 1 MB"]);
  for (const { ours, against } of rows) {
    expect(ours.median).toBeGreaterThan(0);
    expect(against.median).toBeGreaterThan(0);
  }
});

test("the growth of commands is measured and fitted", async () => {
  const { sizes, rows } = JSON.parse(run("run.js", "--quick", "--json", "--growth")) as {
    sizes: number[];
    rows: { command: string; milliseconds: number[] }[];
  };
  expect(rows.map(({ command }) => command)).toEqual(
    expect.arrayContaining(["get_state", "append", "get_tree, limit 100", "fork", "switch_session"]),
  );
  for (const { milliseconds } of rows) expect(milliseconds).toHaveLength(sizes.length);
  const { exponent } = (await import("../bench/growth.js" as string)) as {
    exponent(sizes: number[], times: number[]): number;
  };
  expect(exponent([10, 100, 1000], [2, 20, 200])).toBeCloseTo(1);
  expect(exponent([10, 100, 1000], [3, 300, 30_000])).toBeCloseTo(2);
  expect(exponent([10, 100, 1000], [3, 3, 3])).toBeCloseTo(0);
});

test("the README's table takes the new figures of its rows, and no others", async () => {
  const { withFigures } = (await import("../bench/measure.js" as string)) as {
    withFigures(text: string, how: string, head: string[], rows: string[][]): string;
  };
  const readme = readFileSync(join(root, "README.md"), "utf8");
  const [, inside] = /<!-- figures -->\n\n([\s\S]*?)\n\n<!-- \/figures -->/.exec(readme) ?? [];
  const [how, , ...lines] = inside.split("\n");
  const [head, , ...rows] = lines
    .map((line) => line.split("|").slice(1, -1))
    .map((row) => row.map((cell) => cell.trim()));
  const more = [["measured too", ...rows[0].slice(1)], ...rows];
  expect(withFigures(readme, how, head, more)).toBe(readme);
  expect(
    withFigures(
      readme,
      "Node $& v1",
      head,
      [["spawn to first reply", "1 ms"]].concat(rows.slice(1)).map((row) => head.map((_, n) => row[n] ?? "")),
    ),
  ).toMatch(/<!-- figures -->\n\nNode \$& v1\n\n\| what .*\n\|-.*\n\| spawn to first reply +\| 1 ms /);
  expect(() => withFigures(readme, how, head, rows.slice(1))).toThrow("spawn to first reply");
  expect(() => withFigures("no table", how, head, rows)).toThrow("<!-- figures -->");
});

test("sessions for it are the same bytes everywhere", () => {
  const hashes = ["realistic", "giant", "custom", "wide", "broken"].map((shape) => {
    const file = join(home, shape);
    run("generate.js", shape, shape === "giant" ? "1" : "100", file);
    // The working directory stands in the header.
    const entries = readFileSync(file, "utf8").replace(/^.*\n/, "");
    return createHash("sha256").update(entries).digest("hex").slice(0, 16);
  });
  expect(hashes).toMatchInlineSnapshot(`
    [
      "2e636d1f8e26da80",
      "6772f214864bd216",
      "28955cfa64fcb7f7",
      "a9984a23432c4a5c",
      "6d67d5bdd18fdb29",
    ]
  `);
});
