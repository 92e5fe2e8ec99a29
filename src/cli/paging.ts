/** Prints lines: on a terminal, more of them than it has rows go to the person's pager. */

import { getWidth } from "./terminal/text.ts";

/** Approximate characters of a piece of printed lines. */
const PIECE = 1 << 16;
/** Rows of a terminal that reports no size. */
const USUAL_ROWS = 24;

type Printing = (text: string) => Promise<boolean>;

interface PagerLike {
  write: Printing;
  end(): Promise<void>;
}

interface Paging {
  readonly print: Printing;
  /** Rows and columns of the terminal. */
  readonly rows: number;
  readonly columns: number;
  /** Starts the pager; returns undefined if there is none. */
  start(): PagerLike | undefined;
}

/** Prints lines in pieces, until the reader of the output has gone. A text is printed as it is. */
export async function printLines(lines: Iterable<string>, print: Printing): Promise<void> {
  if (typeof lines === "string") {
    await print(lines);
    return;
  }
  for (const piece of piecesOf(lines)) if (!(await print(piece))) return;
}

/** Prints lines, through a pager if they do not fit the terminal. */
export async function printPaged(lines: Iterable<string>, { print, rows, columns, start }: Paging): Promise<void> {
  if (typeof lines === "string") return printLines(lines, print);
  const iterator = lines[Symbol.iterator]();
  const first: string[] = [];
  // The prompt of the shell takes a row, too.
  let room = (rows || USUAL_ROWS) - 1;
  for (let next = iterator.next(); !next.done; next = iterator.next()) {
    first.push(next.value);
    room -= rowsOf(next.value, columns);
    if (room < 0) break;
  }
  const pager = room < 0 ? start() : undefined;
  await printLines(chained(first, iterator), pager?.write ?? print);
  await pager?.end();
}

function* chained(first: readonly string[], rest: Iterator<string>): Generator<string> {
  yield* first;
  for (let next = rest.next(); !next.done; next = rest.next()) yield next.value;
}

function* piecesOf(lines: Iterable<string>): Generator<string> {
  let piece = "";
  for (const line of lines) {
    piece += `${line}\n`;
    if (piece.length < PIECE) continue;
    yield piece;
    piece = "";
  }
  if (piece !== "") yield piece;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: colours take no columns
const COLOUR = /\u001b\[[\d;]*m/g;

function rowsOf(line: string, columns: number): number {
  return Math.max(1, Math.ceil(getWidth(line.replace(COLOUR, "")) / Math.max(1, columns || 80)));
}
