/**
 * The sums of the long runs: results are listed, and written at their place in the note.
 *
 * @module-tag system
 */

import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { temporaryFolder } from "./support/server.ts";

const RUNNER = fileURLToPath(new URL("../scripts/soak.js", import.meta.url));

function runner(folder: string, ...args: string[]): string {
  const all = [RUNNER, "--commit", "abcdef1", "--figures", join(folder, "figures.json"), ...args];
  return execFileSync(process.execPath, all, { encoding: "utf8" });
}

function figures(folder: string, suite: string, made: Record<string, number>, failed: number[] = []): void {
  const failures = failed.map((unit) => ({ unit, message: "x" }));
  const progress = { units: 7, seconds: 90, figures: made, failures, nodes: ["v20.1.0"], date: "2026-01-24" };
  writeFileSync(join(folder, "figures.json"), JSON.stringify({ abcdef1: { [suite]: progress }, "0000000": {} }));
}

test("every suite is listed with its goal, its test exists, and what failed is named", () => {
  const folder = temporaryFolder();
  figures(folder, "meeting", { acknowledged: 130, lost: 2 }, [3]);
  const lines = runner(folder, "--list").trimEnd().split("\n");
  expect(lines).toContain("meeting          130 of 20000 acknowledged, failed: units 3");
  expect(lines).toContain("sigkill          0 of 10100 kills");
  for (const line of lines) {
    const file = new URL(`soak/${line.split(" ")[0]}.test.ts`, import.meta.url);
    expect(readFileSync(file, "utf8")).toMatch(new RegExp(`(?:soak|storm)\\("${line.split(" ")[0]}"`));
  }
});

test("a report takes the place of the one before, and nothing else is changed", () => {
  const folder = temporaryFolder();
  figures(folder, "meeting", { acknowledged: 20_010, lost: 0, withNamespaces: 9000 });
  const note = join(folder, "note.md");
  writeFileSync(note, "before\n<!-- soak -->\nold\n<!-- /soak -->\nafter $1 $& text\n");
  runner(folder, "--report", "--into", note);
  const text = readFileSync(note, "utf8");
  runner(folder, "--report", "--into", note);
  expect(readFileSync(note, "utf8")).toBe(text);
  expect(text).toMatch(
    /^before\n<!-- soak -->\nAt commit abcdef1, 2026-01-24 to 2026-01-24, Node v20\.1\.0\. Not run: /,
  );
  expect(text).toContain(
    "| meeting | 20,010 of 20,000 acknowledged | 0 lost, 9,000 with namespaces | 1 to 7 | 2 min | none |\n<!-- /soak -->\nafter $1 $& text\n",
  );
});
