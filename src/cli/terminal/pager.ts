/**
 * Shows long output in the person's pager. It starts that program because no program of ours could be the one that its
 * user chose, with its keys; it is started only for more lines than the terminal has, and none of them is lost without it.
 */

import type { ChildProcess } from "node:child_process";
import type { Writable } from "node:stream";
import type { Variables } from "../../storage/fs/paths.ts";

export interface Pager {
  /** Resolves to false if the reader has gone. */
  write(text: string): Promise<boolean>;
  /** Resolves when the person has left the pager. */
  end(): Promise<void>;
}

/** Exit statuses of a shell that could not start the program. */
const NOT_STARTED = [126, 127];
/** Characters that a program can be given without reading them; until then it may not have started. */
const UNREAD = 1 << 18;

/** Returns the pager of `PAGER`, or less; undefined if the person wants none. `print` is for text that it cannot show. */
export function startPager(
  variables: Variables,
  print: (text: string) => Promise<boolean>,
  own = "less",
): Pager | undefined {
  const { PAGER } = variables;
  if (PAGER !== undefined && /^\s*(cat)?\s*$/.test(PAGER)) return undefined;
  const { spawn } = process.getBuiltinModule("node:child_process");
  const child = spawn(PAGER ?? own, PAGER === undefined ? ["-R"] : [], {
    shell: PAGER !== undefined,
    stdio: ["pipe", "inherit", "inherit"],
    // -F ends it when all fits, -R shows colours, -X leaves the text on the screen.
    env: { ...variables, LESS: variables.LESS ?? "FRX" },
  });
  return pagerOf(child, child.stdin as Writable, print);
}

function pagerOf(child: ChildProcess, input: Writable, print: (text: string) => Promise<boolean>): Pager {
  let kept = "";
  let isRead = false;
  let isDirect = false;
  // Ctrl+C is a key of the pager; we end when it does.
  const ignore = (): void => {};
  process.on("SIGINT", ignore);
  input.on("error", () => {});
  const ended = new Promise<boolean>((resolve) => {
    child.once("error", () => resolve(false));
    child.once("close", (status) => resolve(isRead || !NOT_STARTED.includes(status ?? 0)));
  });
  /** Prints what a program that did not start was given. Resolves to whether more is to come. */
  const printInstead = async (): Promise<boolean> => {
    if (await ended) return false;
    isDirect = true;
    const text = kept;
    kept = "";
    return print(text);
  };
  return {
    async write(text) {
      if (isDirect) return print(text);
      if (!isRead) kept += text;
      const failed = await new Promise<boolean>((resolve) => {
        input.write(text, (error) => resolve(Boolean(error)));
      });
      if (failed) return printInstead();
      if (kept.length > UNREAD) {
        isRead = true;
        kept = "";
      }
      return true;
    },
    async end() {
      input.end();
      if (!isDirect) await printInstead();
      process.off("SIGINT", ignore);
    },
  };
}
