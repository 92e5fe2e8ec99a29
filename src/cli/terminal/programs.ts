/**
 * Starts the agent of the person who asked for it, on the terminal that we have. Of the command line only this file
 * and `pager.ts` start programs there: an agent needs the streams, the keys and the signals as they are, and gets them from nowhere else.
 */

import { constants } from "node:os";
import { isatty } from "node:tty";
import type { Variables } from "../../storage/fs/paths.ts";

/** A program to start, with everything that it gets besides the terminal. */
export interface Launch {
  /** An absolute path. */
  readonly program: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly variables: Variables;
}

/** Signals that the terminal sends to us and to the program alike; without a terminal, only this process gets them. */
const FROM_KEYS = ["SIGINT", "SIGQUIT"] as const;
const PASSED_ON = ["SIGTERM", "SIGHUP"] as const;
/** Added to the number of the signal that a program died of, as shells do. */
const DIED = 128;

/** Runs a program until it ends and returns its exit status. Rejects with an errno error where it cannot start. */
export function runProgram({ program, args, cwd, variables }: Launch): Promise<number> {
  // Loaded only when it is needed.
  const { spawn } = process.getBuiltinModule("node:child_process");
  return new Promise((resolve, reject) => {
    const heard = [...(isatty(0) ? [] : FROM_KEYS), ...PASSED_ON];
    const passOn = (signal: NodeJS.Signals): void => {
      if (heard.includes(signal as (typeof heard)[number])) child.kill(signal);
    };
    const signals = [...FROM_KEYS, ...PASSED_ON];
    // Before the program runs: one that comes right after its first word would end us and leave it alone.
    for (const signal of signals) process.on(signal, passOn);
    const child = spawn(program, [...args], { cwd, env: { ...variables, PWD: cwd }, stdio: "inherit" });
    const end = (): void => {
      for (const signal of signals) process.off(signal, passOn);
    };
    child.once("error", (error) => {
      end();
      reject(error);
    });
    child.once("exit", (status, signal) => {
      end();
      resolve(status ?? DIED + (signal === null ? 0 : constants.signals[signal]));
    });
  });
}
