/** The tiers of test files and of the tests in them. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { filesOf, TIERS, tierOf, tiersIn } from "./support/tiers.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

test.each([
  [[], "unit"],
  [["system"], "system"],
  [["system", "unit"], "unit"],
  [["unit", "system"], "system"],
  [["sweep", "system"], "sweep"],
  [["something else"], "unit"],
])("the tags %j mean one tier", (tags, tier) => expect(tierOf(tags)).toBe(tier));

// Here the letters of a marker stand apart, because this file is read for its own tier, too.
test.each([
  ["test('x', () => {})", ["unit"]],
  ["/** @module-t ag system */", ["system"]],
  ["/** @module-t ag sweep */ UN IT", ["unit", "sweep"]],
  ["test('x', SYS TEM, run); test('y', SWE EP, run)", ["unit", "system", "sweep"]],
  ["across Tiers(test, [1, 2])", ["unit", "sweep"]],
])("the text of a file names its tiers (%s)", (text, tiers) => {
  expect(tiersIn(text.replace(/(?<=t|UN|SYS|SWE|across) (?=ag|IT|TEM|EP|Tiers)/g, ""))).toEqual(tiers);
});

test("a tier runs each file whose text names it, and no file of the soak", () => {
  for (const tier of TIERS) {
    const files = filesOf(tier, ROOT);
    expect(files.length).toBeGreaterThan(0);
    expect(files.filter((file) => file.startsWith("test/soak/"))).toEqual([]);
    for (const file of files) expect(tiersIn(readFileSync(join(ROOT, file), "utf8")), file).toContain(tier);
  }
});
