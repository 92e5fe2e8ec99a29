/** The columns of a list of sessions, which `list` prints and `browse` shows. */

import type { OutputStyle } from "./terminal/page.ts";
import { cutFront, cutTo, pad } from "./terminal/text.ts";

/** Something for each column. */
interface ForColumns<T> {
  readonly age: T;
  readonly count: T;
  readonly amount: T;
  readonly title: T;
  readonly cwd: T;
  readonly id: T;
}

/** Widths of the columns; 0 leaves one out. */
export type SessionColumns = ForColumns<number>;

/** Spaces between two columns. */
const GAP = 2;
export const AGE = 4;
/** Columns of a title next to an id, at least. */
const LEAST_TITLE = 4;
/** Columns of a directory at least. */
export const CWD = 9;
export const TITLE_HEAD = "NAME OR FIRST MESSAGE";

/**
 * Returns the widths that fit a page, of those that are wanted. On a narrow page, all but the title and the id are left out
 * in turn: every verb takes the id.
 */
export function fitColumns(wanted: SessionColumns, width: number): SessionColumns {
  // An id that is cut off may be that of another session, too: it is shown as a whole, or not at all.
  const id = width - wanted.id - GAP < LEAST_TITLE ? 0 : wanted.id;
  let title = width - (id === 0 ? 0 : id + GAP);
  const take = (columns: number, least = columns): number => {
    if (columns === 0 || title - least - GAP < wanted.title) return 0;
    title -= columns + GAP;
    return columns;
  };
  const [age, count, amount] = [take(wanted.age), take(wanted.count), take(wanted.amount)];
  const cwd = wanted.cwd === 0 ? 0 : take(Math.max(CWD, Math.min(wanted.cwd, Math.floor(title * 0.35))), CWD);
  return { age, count, amount, title: Math.max(1, title), cwd, id };
}

/** Returns a line of the list. The title has its width already, because its parts have colours of their own. */
export function formatSessionLine(
  widths: SessionColumns,
  cells: ForColumns<string>,
  paint: OutputStyle["paint"],
): string {
  const { age, count, amount, cwd, id } = widths;
  const line = [
    paint("dim", pad(cells.age, age, "right")),
    pad(cells.count, count, "right"),
    pad(cells.amount, amount, "right"),
    cells.title,
    paint("dim", pad(cutFront(cells.cwd, cwd), cwd)),
    id === 0 ? "" : paint("cyan", cutTo(cells.id, id)),
  ];
  return line.filter((text) => text !== "").join(" ".repeat(GAP));
}

export function formatListHead(widths: SessionColumns, age: string, amount: string, width: number): string {
  const title = pad(TITLE_HEAD, widths.title);
  const heads = { age, count: "MSGS", amount, title, cwd: "DIRECTORY", id: "ID" };
  return cutTo(formatSessionLine(widths, heads, (_colour, text) => text).trimEnd(), width);
}
