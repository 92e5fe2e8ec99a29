/** Reports at the end of a run the skipped tests and why, the repeated ones, and those too long for their tier. */

import type { Reporter, TestCase, TestModule, TestSuite } from "vitest/node";
import type { Tier } from "./tiers.ts";

/** Milliseconds that a test of a tier may take on a machine that does nothing else. */
const LONGEST: Readonly<Record<Tier, number>> = { unit: 200, system: 3000, sweep: Number.POSITIVE_INFINITY };

/** Returns what the nearest suite says that its tests lack. */
function missingFor(test: TestCase): string | undefined {
  let at: TestCase | TestSuite | TestModule = test;
  while (at.type !== "module") {
    const { missing } = at.meta();
    if (missing !== undefined) return missing;
    at = at.parent;
  }
  return undefined;
}

function list(title: string, lines: readonly string[]): void {
  if (lines.length > 0) console.log([`${title}: ${lines.length}`, ...lines].join("\n  "));
}

export default class Report implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const skipped = new Map<string, number>();
    const slow: string[] = [];
    const retried: string[] = [];
    for (const module of modules) {
      const tier = module.project.name as Tier;
      for (const test of module.children.allTests()) {
        if (test.result().state === "skipped") {
          const why = missingFor(test);
          if (why !== undefined) skipped.set(why, (skipped.get(why) ?? 0) + 1);
        }
        const { duration = 0, retryCount = 0 } = test.diagnostic() ?? {};
        if (retryCount > 0) retried.push(`${module.relativeModuleId} > ${test.fullName}`);
        if (duration > LONGEST[tier])
          slow.push(`${Math.round(duration)} ms: ${module.relativeModuleId} > ${test.fullName}`);
      }
    }
    for (const [why, count] of [...skipped].sort())
      console.log(`SKIPPED: ${count} ${count === 1 ? "test needs" : "tests need"} ${why}`);
    list("TRIED AGAIN", retried);
    list(
      "TOO SLOW for their tier",
      slow.sort((a, b) => Number.parseInt(b, 10) - Number.parseInt(a, 10)),
    );
  }
}
