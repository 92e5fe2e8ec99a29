/** The conformance kit as the command line uses it; it is loaded when the verb runs. */

import { abandonRuns, type ConformanceOptions, type ConformanceResult, runRules } from "./run.ts";

export { COMBINATIONS, type Combination } from "./combination.ts";
export type { Theme } from "./rule.ts";
export { THEMES } from "./rules.ts";
export { CannotStart, type ConformanceOptions, type ConformanceResult } from "./run.ts";

/** Signals that end this process, and the number that its exit status has for each. */
const SIGNALS = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 } as const;

/** Checks rules against a command. A signal to this process ends the servers and removes the files first. */
export async function runCommand(options: ConformanceOptions): Promise<ConformanceResult> {
  const endings = Object.entries(SIGNALS).map(([signal, number]) => {
    const end = (): void => {
      abandonRuns();
      process.exit(128 + number);
    };
    process.on(signal, end);
    return () => process.off(signal, end);
  });
  process.on("exit", abandonRuns);
  try {
    return await runRules(options);
  } finally {
    process.off("exit", abandonRuns);
    for (const off of endings) off();
  }
}
