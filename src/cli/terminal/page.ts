/** The place that a verb's lines are printed to: its width, and whether it shows colours. */

import { styleText } from "node:util";
import type { Variables } from "../../storage/fs/paths.ts";

/** Columns of a terminal that does not know them, and of drawings in a file or a pipe. */
const USUAL_WIDTH = 80;

/** Returns the columns of a drawing that has to end somewhere, in an output of any width. */
export function getDrawnWidth({ width }: Pick<OutputStyle, "width">): number {
  return Number.isFinite(width) ? width : USUAL_WIDTH;
}

export interface OutputStyle {
  /** Columns; infinite for a file or a pipe, unless `COLUMNS` gives them: a program searches whole titles. */
  readonly width: number;
  readonly paint: Paint;
  /** Milliseconds since 1970. */
  readonly now: number;
  /** The user's home folder, which is shown as `~`; empty when it is not known. */
  readonly home: string;
  /** True if the output is a terminal, where a person reads it right away. */
  readonly isTerminal: boolean;
  /** True if lines are read one by one, as by a screen reader: no drawing, and a fact a line. */
  readonly isPlain?: boolean;
}

export type Colour = "plain" | "bold" | "dim" | "red" | "green" | "yellow" | "blue" | "magenta" | "cyan" | "inverse";

/** A function that puts a text into a colour, or leaves it as it is. */
type Paint = (colour: Colour, text: string) => string;

export const plain: Paint = (_colour, text) => text;

export const coloured: Paint = (colour, text) =>
  colour === "plain" || text === "" ? text : styleText(colour, text, { validateStream: false });

/** Returns whether to print colours: FORCE_COLOR counts before NO_COLOR, as in Node, and both before the terminal. */
function wantsColours(variables: Variables, isTerminal: boolean): boolean {
  const { FORCE_COLOR, NO_COLOR, TERM } = variables;
  if (FORCE_COLOR !== undefined) return FORCE_COLOR !== "0" && FORCE_COLOR !== "false";
  return isTerminal && TERM !== "dumb" && (NO_COLOR === undefined || NO_COLOR === "");
}

/** Returns the page for a terminal of so many columns, or for output that is not a terminal (undefined). */
export function makeOutputStyle(
  variables: Variables,
  columns: number | undefined,
  now: number,
  wantsPlain = false,
): OutputStyle {
  const isTerminal = columns !== undefined;
  const fromVariable = Number(/^\d{1,4}$/.exec(variables.COLUMNS ?? "")?.[0] ?? 0);
  return {
    // A terminal that does not know its size reports 0.
    width: Math.max(20, columns || fromVariable || (isTerminal ? USUAL_WIDTH : Number.POSITIVE_INFINITY)),
    paint: !wantsPlain && wantsColours(variables, isTerminal) ? coloured : plain,
    now,
    home: variables.HOME ?? "",
    isTerminal,
    isPlain: wantsPlain || (isTerminal && variables.TERM === "dumb"),
  };
}
