/** A terminal that is taken over as a whole, and restored at the end. */

import { StringDecoder } from "node:string_decoder";
import type { ReadStream, WriteStream } from "node:tty";
import { type Key, keysAtRest, keysIn } from "./keys.ts";

export interface Screen {
  readonly rows: number;
  readonly columns: number;
  /** Calls back from now on. `gone` is called when the terminal was closed, or a signal asks for the end. */
  listen(ears: { key(key: Key): void; resized(): void; gone(): void }): void;
  /** Shows these lines and nothing else. */
  draw(lines: readonly string[]): void;
  /** Restores the terminal. */
  close(): void;
}

/** Milliseconds in which the rest of a sequence may follow an escape character. */
const ESCAPE_WAIT = 50;

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"] as const;

/** Size that is assumed for a terminal that does not report its own. */
const USUAL = { rows: 24, columns: 80 };

/** Size of a terminal; 0 for what it does not report. */
type Size = Readonly<Record<"rows" | "columns", number>>;

/** Takes over a terminal. `size` measures it, for an `output` that does not notice when its size changes. */
export function openScreen(input: ReadStream, output: WriteStream, size?: () => Size): Screen {
  const decoder = new StringDecoder("utf8");
  let unread = "";
  let waiting: NodeJS.Timeout | undefined;
  let isOpen = true;
  let known: Size | undefined = size?.();
  let unlisten = (): void => {};
  // The alternate screen, no cursor, no wrapping of long lines.
  const enter = (): void => {
    input.setRawMode(true);
    output.write("\u001b[?1049h\u001b[?25l\u001b[?7l");
  };
  const close = (): void => {
    if (!isOpen) return;
    isOpen = false;
    clearTimeout(waiting);
    process.off("exit", close);
    unlisten();
    output.write("\u001b[?7h\u001b[?25h\u001b[?1049l");
    if (!input.destroyed) input.setRawMode(false);
    input.pause();
  };
  enter();
  // However this process ends, the terminal is restored.
  process.once("exit", close);
  return {
    get rows() {
      return (known ?? output).rows || USUAL.rows;
    },
    get columns() {
      return (known ?? output).columns || USUAL.columns;
    },
    listen({ key, resized, gone }) {
      const receive = (chunk: Buffer): void => {
        clearTimeout(waiting);
        const { keys, rest } = keysIn(unread + decoder.write(chunk));
        unread = rest;
        for (const one of keys) if (isOpen) key(one);
        if (rest === "" || !isOpen) return;
        waiting = setTimeout(() => {
          unread = "";
          for (const one of keysAtRest(rest)) if (isOpen) key(one);
        }, ESCAPE_WAIT);
      };
      const refreshSize = (): void => {
        known = size?.();
        resized();
      };
      // While we were stopped, the shell had the terminal.
      const resume = (): void => {
        enter();
        refreshSize();
      };
      input.on("data", receive).on("end", gone).on("error", gone).on("close", gone);
      output.on("resize", resized).on("error", gone);
      process.on("SIGCONT", resume).on("SIGWINCH", refreshSize);
      for (const signal of SIGNALS) process.on(signal, gone);
      unlisten = () => {
        input.off("data", receive).off("end", gone).off("close", gone);
        output.off("resize", resized);
        process.off("SIGCONT", resume).off("SIGWINCH", refreshSize);
        for (const signal of SIGNALS) process.off(signal, gone);
      };
      input.resume();
    },
    draw(lines) {
      if (isOpen) output.write(`\u001b[H${lines.map((line) => `\u001b[K${line}`).join("\r\n")}\u001b[J`);
    },
    close,
  };
}
