/** Verbs run in this process, with a terminal that is not one. */

import { runVerb, type Terminal } from "../../src/cli/run-verb.ts";
import { findVerb } from "../../src/cli/table.ts";
import type { Verb } from "../../src/cli/verb.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { testEnv } from "./env.ts";
import { countingEnv, type Place } from "./server.ts";

export interface Run {
  stdout: string;
  stderr: string;
  status: number;
}

export interface RunOptions {
  readonly terminal?: Partial<Terminal>;
  /** Called with what is printed; returns whether anybody reads. */
  readonly printed?: (text: string) => boolean;
  readonly variables?: Readonly<Record<string, string>>;
  /** Milliseconds since 1970, or a clock; by default one that ticks once per look. */
  readonly now?: number | (() => number);
  /** Whether hashes are real ones: those of other agents' sessions have to tell these apart. */
  readonly hashes?: boolean;
}

export function runHere(place: Place, [verb, ...args]: readonly string[], options?: RunOptions): Promise<Run> {
  return runVerbHere(place, findVerb(verb) as Verb, args, options);
}

/** Runs a verb, which need not be in the table. */
export async function runVerbHere(
  place: Place,
  verb: Verb,
  args: readonly string[],
  { terminal, printed, variables, now, hashes }: RunOptions = {},
): Promise<Run> {
  let stdout = "";
  let stderr = "";
  const env = hashes ? { ...countingEnv(), sha256: testEnv().sha256 } : countingEnv();
  const status = await runVerb(verb, args, {
    env: now === undefined ? env : { ...env, now: typeof now === "number" ? () => now : now },
    disk: realDisk,
    variables: { ...place.variables, ...variables },
    cwd: place.cwd,
    version: "0.0.0-test",
    printError: (sentence) => {
      stderr += `pi-session-server: ${sentence}\n`;
    },
    settingsFile: () => undefined,
    print: async (text) => {
      stdout += text;
      return printed?.(text) ?? true;
    },
    terminal: {
      columns: undefined,
      errorColumns: undefined,
      write: (text) => {
        stderr += text;
      },
      openScreen: () => undefined,
      answer: async () => undefined,
      readInput: async () => "",
      onInterrupt: () => () => {},
      start: async () => 0,
      ...terminal,
    },
  });
  return { stdout, stderr, status };
}
