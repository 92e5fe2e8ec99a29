/** The conformance kit in tests: its programs and its options. */

import { PassThrough } from "node:stream";
import { parseArguments } from "../../src/cli/options.ts";
import { COMBINATIONS, type Combination } from "../../src/conformance/combination.ts";
import type { Launcher } from "../../src/conformance/launch.ts";
import type { Theme } from "../../src/conformance/rule.ts";
import { THEMES } from "../../src/conformance/rules.ts";
import { type ConformanceOptions, type ConformanceResult, runRules } from "../../src/conformance/run.ts";
import { serve } from "../../src/server/main.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { realEnv } from "../../src/storage/system-env.ts";
import { KEPT_CODE, PROGRAM } from "./build.ts";
import { type FaultName, faultyStreams } from "./faults.ts";

/** The command of the built program. */
export const OWN = [process.execPath, PROGRAM];

/** Rules that kill a server, which one in this process survives. */
export const OF_PROCESSES = ["kill-acknowledged", "kill-in-stream", "repeat-after-kill", "leaf-after-kill"];

/** Runs rules, all by default, in all combinations by default. */
export function runKit(options: Partial<ConformanceOptions> = {}): Promise<ConformanceResult> {
  const variables = { PATH: process.env.PATH, XDG_CACHE_HOME: KEPT_CODE };
  return runRules({
    command: OWN,
    themes: THEMES,
    combinations: COMBINATIONS,
    timeout: 10_000,
    limit: 300_000,
    cwd: process.cwd(),
    variables,
    ...options,
  });
}

/** Runs rules against a server in this process, with a fault if one is named. */
export function runHere(options: Partial<ConformanceOptions> = {}, fault?: FaultName): Promise<ConformanceResult> {
  const themes = without(options.themes ?? THEMES, OF_PROCESSES);
  return runKit({ ...options, themes, command: ["here"], launcher: launcherHere(fault) });
}

/** Returns the names of the rules that have a verdict. */
export function rulesThat(verdict: "passed" | "failed" | "skipped", { combinations }: ConformanceResult): string[] {
  return combinations.flatMap(({ results }) =>
    results.filter((result) => result.verdict === verdict).map(({ rule }) => rule),
  );
}

/** Returns the evidence of the rules that failed, for the message of a test. */
export function evidenceOf({ combinations }: ConformanceResult): string {
  const evidence = combinations.flatMap(({ framing, dialect, results }) => {
    const failed = results.filter(({ verdict }) => verdict === "failed");
    return failed.map(({ rule, ...seen }) => [`${framing}, ${dialect}: ${rule}`, seen.sent, seen.expected, seen.came]);
  });
  return evidence.map((lines) => lines.join("\n  ")).join("\n");
}

export function combinationOf(framing: Combination["framing"], dialect: Combination["dialect"]): Combination {
  return COMBINATIONS.find((one) => one.framing === framing && one.dialect === dialect) as Combination;
}

/** Returns themes with only the rules of these names, or of the themes of these names. */
export function only(...names: readonly string[]): Theme[] {
  return THEMES.map(({ name, rules }) => ({
    name,
    rules: rules.filter((rule) => names.includes(name) || names.includes(rule.name)),
  }));
}

/** Returns themes without the rules of these names. */
export function without(themes: readonly Theme[], names: readonly string[]): Theme[] {
  return themes.map(({ name, rules }) => ({ name, rules: rules.filter((rule) => !names.includes(rule.name)) }));
}

/** Starts servers in this process. */
function launcherHere(fault?: FaultName): Launcher {
  return ([, ...args], { cwd, variables }) => {
    const input = new PassThrough();
    const output = new PassThrough();
    const streams = fault === undefined ? { input, output } : faultyStreams(fault, input, output);
    let complaints = "";
    const service = serve(parseArguments(args), {
      ...streams,
      env: realEnv,
      disk: realDisk,
      variables: variables as Record<string, string>,
      cwd,
      version: "0.0.0-test",
      printError: (sentence) => {
        complaints += `${sentence}\n`;
      },
      settingsFile: () => undefined,
    });
    return {
      input,
      output,
      ended: service.done.then((status) => ({ status, signal: null })),
      complaints: () => complaints,
      signal: () => service.stop(),
      kill() {
        output.resume();
        service.stop();
      },
    };
  };
}
