/** The streams of this process as verbs use them. */

import { createInterface } from "node:readline";
import { Duplex } from "node:stream";
import { isatty, ReadStream, WriteStream } from "node:tty";
import { realDisk } from "../../storage/fs/disk.ts";
import type { VerbWorld } from "../run-verb.ts";
import { startPager } from "./pager.ts";
import { runProgram } from "./programs.ts";
import { openScreen, type Screen } from "./screen.ts";
import { writeStandardOutput } from "./standard-output.ts";

export interface RealTerminal extends Pick<VerbWorld, "print" | "terminal"> {
  /** The sentence for the person if the disk has not taken all that was printed. */
  readonly refusal: string | undefined;
}

export function getRealTerminal(): RealTerminal {
  const { stdin, stdout, stderr } = process;
  let refusal: string | undefined;
  // The reader of our output may stop before the end, as `head` does; writers learn of that through their callbacks.
  for (const stream of [stdout, stderr]) stream.on("error", () => {});
  const print = async (text: string): Promise<boolean> => {
    // Pipes and terminals, which are sockets to Node, fail only if their reader has gone.
    if (stdout instanceof Duplex) return new Promise((resolve) => stdout.write(text, (error) => resolve(!error)));
    refusal ??= writeStandardOutput(realDisk, Buffer.from(text));
    return refusal === undefined;
  };
  return {
    print,
    get refusal() {
      return refusal;
    },
    terminal: {
      columns: stdout.isTTY ? (stdout.columns ?? 0) : undefined,
      rows: stdout.isTTY ? stdout.rows : undefined,
      startPager: () => startPager(process.env, print),
      async readInput() {
        const pieces: Buffer[] = [];
        for await (const piece of stdin) pieces.push(piece);
        return Buffer.concat(pieces).toString("utf8");
      },
      onInterrupt(act) {
        process.on("SIGINT", act);
        return () => void process.off("SIGINT", act);
      },
      start: runProgram,
      errorColumns: stderr.isTTY ? (stderr.columns ?? 0) : undefined,
      write: (text) => void stderr.write(text),
      openScreen: () =>
        stdin.isTTY && stderr.isTTY
          ? // A shell that waits for what we print could not bring us back.
            openScreen(stdin, stderr, stdout.isTTY ? { stop: stopAll } : {})
          : controllingTerminal(),
      async answer(question) {
        if (!stdin.isTTY) return undefined;
        const lines = createInterface({ input: stdin, output: stderr });
        const line = await new Promise<string>((resolve) => {
          lines.question(question, resolve);
          lines.once("close", () => resolve(""));
        });
        lines.close();
        return line;
      },
    },
  };
}

/** Stops this process and all that the shell started with it. */
function stopAll(): void {
  process.kill(0, "SIGTSTP");
}

/** Takes over the terminal that this process belongs to, whatever its streams are; returns undefined without one. */
function controllingTerminal(): Screen | undefined {
  const open = (): number => realDisk.openAppend("/dev/tty");
  try {
    const input = open();
    if (!isatty(input)) return undefined;
    // A stream that we open learns its size only once, when it is made.
    const size = (): { rows: number; columns: number } => {
      const { rows, columns } = new WriteStream(open()).destroy();
      return { rows, columns };
    };
    return openScreen(new ReadStream(input), new WriteStream(open()), { size });
  } catch {
    return undefined;
  }
}
