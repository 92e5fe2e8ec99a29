/**
 * The tiers of the suite (CONTRIBUTING.md). A file is of the tier `unit` unless it has a comment with `@module-tag system`
 * or `@module-tag sweep`; a suite or test in it can be of another one.
 */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { SuiteAPI, TestAPI } from "vitest";

export const TIERS = ["unit", "system", "sweep"] as const;

export type Tier = (typeof TIERS)[number];

/** Options of a suite or test that runs in process. */
export const UNIT = { tags: ["unit"] };

/** Options of a suite or test that needs a process, a database or a browser. */
export const SYSTEM = { tags: ["system"] };

/** Options of a suite or test that repeats a rule somewhere else, or takes long. */
export const SWEEP = { tags: ["sweep"] };

/** Describes a suite, or a test, for each case: the first in the tier of its file, the others in the sweep. */
export function acrossTiers<Case>(declare: Pick<SuiteAPI | TestAPI, "each">, cases: readonly Case[]) {
  return (title: string, run: (given: Case) => unknown): void => {
    for (const [n, given] of cases.entries()) declare.each([given])(title, n === 0 ? {} : SWEEP, run as never);
  };
}

/** Returns the tier that tags name: the sweep if any does, else the last, as a test's own come after those of its file. */
export function tierOf(tags: readonly string[] = []): Tier {
  if (tags.includes("sweep")) return "sweep";
  return TIERS.find((tier) => tier === tags.findLast((tag) => TIERS.includes(tag as Tier))) ?? "unit";
}

/** Returns the tiers that a test file has tests of, by what its text names. */
export function tiersIn(text: string): Tier[] {
  const own = tierOf([/@module-tag (\w+)/.exec(text)?.[1] ?? ""]);
  const named = { unit: /\bUNIT\b/, system: /\bSYSTEM\b/, sweep: /\bSWEEP\b|\bacrossTiers[<(]/ };
  return TIERS.filter((tier) => tier === own || named[tier].test(text));
}

/** Returns the test files with tests of a tier. */
export function filesOf(tier: Tier, root: string): string[] {
  const files = readdirSync(join(root, "test"), { recursive: true, encoding: "utf8" })
    .map((name) => join("test", name).replaceAll("\\", "/"))
    .filter((name) => name.endsWith(".test.ts") && !name.startsWith("test/soak/"));
  return files.filter((name) => tiersIn(readFileSync(join(root, name), "utf8")).includes(tier)).sort();
}
