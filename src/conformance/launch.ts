/** A server under test as a process: started, killed with all that it has started, and cleaned up after. */

import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";

/** The end of a server. */
export interface Ending {
  readonly status: number | null;
  readonly signal: string | null;
  /** Why it could not be started at all. */
  readonly refused?: string;
}

/** A server that was started. */
export interface Launched {
  readonly input: Writable;
  readonly output: Readable;
  /** Resolves when it has ended and its output was read. */
  readonly ended: Promise<Ending>;
  /** Returns the end of its stderr. */
  complaints(): string;
  /** Sends a signal to the process, and to none that it has started. */
  signal(name: "SIGTERM"): void;
  /** Ends it at once, and all that it has started. */
  kill(): void;
}

/** The directory and the environment of a server. */
interface LaunchPlace {
  readonly cwd: string;
  readonly variables: Readonly<Record<string, string | undefined>>;
}

/** A function that starts a command. */
export type Launcher = (command: readonly string[], place: LaunchPlace) => Launched;

/** Bytes of stderr that are kept. */
const COMPLAINTS = 8192;
/** Milliseconds for the output of a server to end after the server has. */
const AFTER_END = 500;
const IS_WINDOWS = process.platform === "win32";

/** Starts a command in a process group of its own, so that it can be killed with its children. */
export const launch: Launcher = ([program, ...args], { cwd, variables }) => {
  const child = spawn(program, args, {
    cwd,
    env: variables as NodeJS.ProcessEnv,
    stdio: ["pipe", "pipe", "pipe"],
    detached: !IS_WINDOWS,
    windowsHide: true,
  });
  let complaints = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    complaints = (complaints + text).slice(-COMPLAINTS);
  });
  // Writing to a dead server fails; the wait for a reply reports the end.
  for (const stream of [child.stdin, child.stdout, child.stderr]) stream.on("error", () => {});
  let isGone = false;
  const ended = endingOf(child).finally(() => {
    isGone = true;
  });
  return {
    input: child.stdin,
    output: child.stdout,
    ended,
    complaints: () => complaints,
    signal: (name) => void child.kill(name),
    // Once it is gone, its id may be that of another process.
    kill: () => (isGone ? undefined : killGroup(child)),
  };
};

/** Resolves when a process has ended and its output was read; then nothing of its group is left. */
function endingOf(child: ChildProcessWithoutNullStreams): Promise<Ending> {
  return new Promise((resolve) => {
    child.on("error", (error) => {
      if (child.pid === undefined) resolve({ status: null, signal: null, refused: error.message });
    });
    child.on("exit", (status, signal) => {
      // A child that the server left behind may hold the streams open; it is ended, then they are closed from here.
      let timer = setTimeout(() => {
        killGroup(child);
        timer = setTimeout(() => {
          for (const stream of [child.stdin, child.stdout, child.stderr]) stream.destroy();
        }, AFTER_END);
      }, AFTER_END);
      child.on("close", () => {
        clearTimeout(timer);
        killGroup(child);
        resolve({ status, signal });
      });
    });
  });
}

/** Kills a process and those of its group. Does nothing when none is left. */
function killGroup(child: ChildProcessWithoutNullStreams): void {
  if (child.pid === undefined) return;
  // The process itself may have gone to another group.
  child.kill("SIGKILL");
  if (IS_WINDOWS) return;
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {
    // All of them have ended.
  }
}
