/** A terminal that is taken over as a whole, and restored at the end. */

import { StringDecoder } from "node:string_decoder";
import type { ReadStream, WriteStream } from "node:tty";
import { flushKeys, type Key, parseKeys } from "./keys.ts";
import { escapeUnpainted } from "./text.ts";

export interface Screen {
  readonly rows: number;
  readonly columns: number;
  /** Calls back from now on. `gone` is called when the terminal was closed, or a signal asks for the end. */
  listen(ears: { key(key: Key): void; resized(): void; gone(): void }): void;
  /** Shows these lines and nothing else. */
  draw(lines: readonly string[]): void;
  /** Puts a text on the clipboard, where the terminal lets programs do so (OSC 52). */
  copy(text: string): void;
  /** Restores the terminal. */
  close(): void;
}

/** Milliseconds for the rest of a sequence to follow an escape character. */
const ESCAPE_WAIT = 50;

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"] as const;

/** Size that is assumed for a terminal that does not report its own. */
const USUAL = { rows: 24, columns: 80 };

/** Size of a terminal; 0 for what it does not report. */
type Size = Readonly<Record<"rows" | "columns", number>>;

interface ScreenOptions {
  /** Measures the terminal, for an output that does not notice when its size changes. */
  readonly size?: () => Size;
  /** Stops this process and those that were started with it, as Ctrl+Z does; missing if no shell could continue it. */
  readonly stop?: () => void;
}

export function openScreen(input: ReadStream, output: WriteStream, { size, stop }: ScreenOptions = {}): Screen {
  const decoder = new StringDecoder("utf8");
  let unread = "";
  let waiting: NodeJS.Timeout | undefined;
  let isOpen = true;
  let known: Size | undefined = size?.();
  let unlisten = (): void => {};
  /** The lines on the screen; those that stay as they are are not written again. */
  let drawn: readonly string[] = [];
  // The alternate screen, no cursor, no wrapping of long lines.
  const enter = (): void => {
    drawn = [];
    input.setRawMode(true);
    output.write("\u001b[?1049h\u001b[?25l\u001b[?7l");
  };
  const restore = (): void => {
    output.write("\u001b[?7h\u001b[?25h\u001b[?1049l");
    if (!input.destroyed) input.setRawMode(false);
  };
  const close = (): void => {
    if (!isOpen) return;
    isOpen = false;
    clearTimeout(waiting);
    process.off("exit", close);
    unlisten();
    restore();
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
      const take = (one: Key): void => {
        if (one.name === "ctrl+l") redraw();
        else if (one.name !== "ctrl+z") key(one);
        else if (stop) {
          restore();
          stop();
        }
      };
      const redraw = (): void => {
        drawn = [];
        resized();
      };
      const receive = (chunk: Buffer): void => {
        clearTimeout(waiting);
        const { keys, rest } = parseKeys(unread + decoder.write(chunk));
        unread = rest;
        for (const one of keys) if (isOpen) take(one);
        if (rest === "" || !isOpen) return;
        waiting = setTimeout(() => {
          unread = "";
          for (const one of flushKeys(rest)) if (isOpen) take(one);
        }, ESCAPE_WAIT);
      };
      const refreshSize = (): void => {
        known = size?.();
        redraw();
      };
      // While we were stopped, the shell had the terminal.
      const resume = (): void => {
        enter();
        refreshSize();
      };
      input.on("data", receive).on("end", gone).on("error", gone).on("close", gone);
      output.on("resize", redraw).on("error", gone);
      process.on("SIGCONT", resume).on("SIGWINCH", refreshSize);
      for (const signal of SIGNALS) process.on(signal, gone);
      unlisten = () => {
        input.off("data", receive).off("end", gone).off("close", gone);
        output.off("resize", redraw);
        process.off("SIGCONT", resume).off("SIGWINCH", refreshSize);
        for (const signal of SIGNALS) process.off(signal, gone);
      };
      input.resume();
    },
    draw(unescaped) {
      if (!isOpen) return;
      const lines = unescaped.map(escapeUnpainted);
      const changed = lines.map((line, i) => (line === drawn[i] ? "" : `\u001b[${i + 1};1H\u001b[K${line}`));
      // The lines below, and those above the first lines.
      const rest =
        drawn.length === lines.length ? "" : `\u001b[${lines.length};1H\u001b[J${lines[lines.length - 1] ?? ""}`;
      if (drawn.length === 0) output.write("\u001b[H\u001b[2J");
      output.write(`${changed.join("")}${drawn.length === 0 ? "" : rest}`);
      drawn = lines;
    },
    copy(text) {
      if (isOpen) output.write(`\u001b]52;c;${Buffer.from(text).toString("base64")}\u0007`);
    },
    close,
  };
}
