/** Text for terminals: made inert, measured in columns, cut to fit. */

import { NOTHING_SAID } from "../../core/search/listing.ts";
import { makeWordsPattern } from "../../core/search/query.ts";
import { formatMoney } from "../../page/amounts.ts";
import type { Colour, OutputStyle } from "./page.ts";

export { formatCount as count, formatMoney, formatSize, formatSpan, group } from "../../page/amounts.ts";

/**
 * Returns a line for a terminal: a template whose values are escaped, whatever a session or a file has put into them.
 * Painted texts are joined instead.
 */
export function show(template: TemplateStringsArray, ...values: readonly unknown[]): string {
  return String.raw({ raw: template }, ...values.map(escapeControls));
}

/** Makes text inert for a terminal: control characters, and marks that change the direction of text, become escapes. */
function escapeControls(text: unknown): string {
  return String(text).replace(
    // biome-ignore lint/suspicious/noControlCharactersInRegex: matches the control characters
    /[\u0000-\u001f\u007f-\u009f\u061c\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Returns output for a terminal: of what acts on it, line ends, tabs and colours stay, even where a verb escapes nothing. */
export function escapeUnpainted(output: string): string {
  return output.replace(
    // biome-ignore lint/suspicious/noControlCharactersInRegex: matches the control characters
    /\u001b\[[\d;]*m|\r\n|[^\P{Cc}\t\n]|[\u061c\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu,
    (found) => (found.length > 1 ? found : escapeControls(found)),
  );
}

/** Returns a path as its reader needs it: inert for a terminal, unchanged for a program. */
export function toRawPath(path: string, isTerminal: boolean): string {
  return isTerminal ? escapeControls(path) : path;
}

/** Returns an inert text on one line; white space becomes one space. */
export function escapeLine(text: unknown): string {
  return escapeControls(String(text).replace(/\s+/g, " ").trim());
}

/** Returns the lines of a text, each inert. Tabs become spaces up to the next multiple of eight columns. */
export function escapeLines(text: unknown): string[] {
  return String(text)
    .split(/\r\n|\n|\r/)
    .map((line) => escapeControls(untabbed(line)));
}

function untabbed(line: string): string {
  const [first, ...rest] = line.split("\t");
  return rest.reduce((text, part) => `${text}${" ".repeat(8 - (getWidth(text) % 8))}${part}`, first);
}

/** Returns what tokens cost, or `unknown` where all of them count as 0, as for models whose price Pi does not know. */
export function formatCost(tokens: number, cost: number, digits: number, unknown = "unknown"): string {
  return cost === 0 && tokens > 0 ? unknown : formatMoney(cost, digits);
}

/** Returns milliseconds as the largest unit that fits, in four columns at most. */
export function formatAge(milliseconds: number): string {
  const minutes = Math.floor(milliseconds / 60_000);
  if (minutes < 1) return "now";
  const days = Math.floor(minutes / 1440);
  if (minutes < 60) return `${minutes}m`;
  if (days < 1) return `${Math.floor(minutes / 60)}h`;
  if (days < 14) return `${days}d`;
  if (days < 60) return `${Math.floor(days / 7)}w`;
  if (days < 730) return `${Math.floor(days / 30.44)}mo`;
  return `${Math.min(999, Math.floor(days / 365.25))}y`;
}

/** Returns a moment to the minute, as local clocks show it; an empty text if it is none. */
export function formatClock(moment: unknown): string {
  const time = typeof moment === "number" || typeof moment === "string" ? new Date(moment) : undefined;
  if (time === undefined || Number.isNaN(time.getTime())) return "";
  const two = (value: number): string => String(value).padStart(2, "0");
  const day = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  return `${day} ${two(time.getHours())}:${two(time.getMinutes())}`;
}

/** Characters that take two columns (Unicode's East Asian Width W and F), without emoji. */
const WIDE = new RegExp(
  "[\\u1100-\\u115f\\u2329\\u232a\\u2e80-\\u303e\\u3041-\\u4dbf\\u4e00-\\ua4cf\\ua960-\\ua97f\\uac00-\\ud7a3" +
    "\\uf900-\\ufaff\\ufe10-\\ufe19\\ufe30-\\ufe6f\\uff00-\\uff60\\uffe0-\\uffe6\\u{16fe0}-\\u{18d08}" +
    "\\u{1aff0}-\\u{1b2fb}\\u{1f200}-\\u{1f265}\\u{20000}-\\u{3fffd}]",
  "u",
);

const PLAIN = /^[\u0020-\u007e]*$/;
const EMOJI = /\p{Emoji_Presentation}|\p{Extended_Pictographic}\ufe0f|^[#*0-9]\ufe0f?\u20e3|\p{Regional_Indicator}{2}/u;
/** Symbols without a column of their own. Further letters of a Korean syllable share the column of the first. */
const NO_WIDTH = /[\p{Mn}\p{Me}\p{Cf}\u1160-\u11ff\ud7b0-\ud7ff]/u;
let segmenter: Intl.Segmenter | undefined;

/** Cuts a text into what a reader sees as characters. The first cut loads tables, which takes 5 ms. */
function charactersOf(text: string): Intl.Segments {
  segmenter ??= new Intl.Segmenter("en", { granularity: "grapheme" });
  return segmenter.segment(text);
}

/** Returns the columns that an inert text takes. */
export function getWidth(text: string): number {
  if (PLAIN.test(text)) return text.length;
  let width = 0;
  for (const { segment } of charactersOf(text)) width += characterWidth(segment);
  return width;
}

/** Returns the columns of what a reader sees as one character. */
function characterWidth(character: string): number {
  if (EMOJI.test(character)) return 2;
  let width = 0;
  for (const symbol of character) {
    // Terminals show a soft hyphen.
    if (symbol !== "\u00ad" && NO_WIDTH.test(symbol)) continue;
    width += WIDE.test(symbol) ? 2 : 1;
  }
  return width;
}

/** Most characters for one column; more are marks upon marks, which are unreadable. */
const MAX_COLUMN = 16;

/** Returns the beginning of an inert text that fits, with an ellipsis if that is not all of it. */
export function cutTo(text: string, width: number): string {
  if (PLAIN.test(text)) return text.length <= width ? text : width < 1 ? "" : `${text.slice(0, width - 1)}…`;
  const most = text.slice(0, (width + 1) * MAX_COLUMN);
  let used = 0;
  let end = 0;
  // The place of the ellipsis, if the text turns out to be too long.
  let cut = 0;
  for (const { segment, index } of charactersOf(most)) {
    used += characterWidth(segment);
    if (used > width) return width < 1 ? "" : `${text.slice(0, cut)}…`;
    end = index + segment.length;
    if (used < width) cut = end;
  }
  return end === text.length ? text : width < 1 ? "" : `${text.slice(0, cut)}…`;
}

/** Returns the end of an inert text that fits, with an ellipsis if that is not all of it. */
export function cutFront(text: string, width: number): string {
  if (getWidth(text) <= width) return text;
  if (width < 1) return "";
  const parts = Array.from(charactersOf(text.slice(-(width + 1) * MAX_COLUMN)), ({ segment }) => segment);
  let used = 1;
  let from = parts.length;
  while (from > 0 && used + characterWidth(parts[from - 1]) <= width) used += characterWidth(parts[--from]);
  return `…${parts.slice(from).join("")}`;
}

/** Returns the beginning and the end of an inert text that fits: of names of models, the end is what differs. */
export function cutMiddle(text: string, width: number): string {
  if (getWidth(text) <= width) return text;
  const end = cutFront(text, (width + 1) >> 1).slice(1);
  return width < 1 ? "" : `${cutTo(text, width - getWidth(end))}${end}`;
}

export function pad(text: string, width: number, align: "left" | "right" = "left"): string {
  return fill(cutTo(text, width), width, align);
}

/** Does the same without cutting. */
export function fill(text: string, width: number, align: "left" | "right" = "left"): string {
  const space = " ".repeat(Math.max(0, width - getWidth(text)));
  return align === "left" ? `${text}${space}` : `${space}${text}`;
}

/**
 * Wraps an inert line into as many lines as it takes, between words where possible. With `keepsPaths`, a longer word without
 * wide characters stays whole, as does a path: a person copies it from the terminal.
 */
export function wrap(line: string, width: number, keepsPaths = false): string[] {
  if (getWidth(line) <= width) return [line];
  const lines: string[] = [];
  let text = "";
  let used = 0;
  const end = (): void => {
    lines.push(text.trimEnd());
    text = "";
    used = 0;
  };
  for (const word of line.split(/(?<=\s)(?=\S)/)) {
    const wanted = getWidth(word.trimEnd());
    if (used > 0 && used + wanted > width) end();
    if (wanted <= width || (keepsPaths && (PLAIN.test(word) || word.includes("/")))) {
      text += word;
      used += getWidth(word);
      continue;
    }
    for (const { segment } of charactersOf(word)) {
      const own = characterWidth(segment);
      if (used > 0 && used + own > width) end();
      text += segment;
      used += own;
    }
  }
  if (text !== "") lines.push(text.trimEnd());
  return lines;
}

/** Returns an inert path, with the user's home folder as `~`. */
export function shortenPath(path: string, home: string): string {
  const own = home.length > 1 && (path === home || path.startsWith(`${home}/`));
  return escapeControls(own ? `~${path.slice(home.length)}` : path);
}

/** Returns the name or the first message of a session in quotation marks. */
export function quoteTitle(
  { name, firstMessage }: { readonly name: string | null; readonly firstMessage: string | null },
  width: number,
  otherwise = NOTHING_SAID,
): string {
  return `"${cutTo(escapeLine(name || firstMessage || otherwise), width)}"`;
}

/** Characters of an id that distinguish sessions begun in different seconds. */
const ID = 13;

/** Returns the beginning of a session's id, which every verb takes. */
export function shortenId(sessionId: string): string {
  return escapeControls(sessionId.slice(0, ID));
}

/** Returns the end of a backup's name, which names its kind; the rest is the name of the original. */
export function formatBackupName(path: string): string {
  return escapeControls(/\.[a-z0-9]+\.bak(?:\.\d+)?$/.exec(path)?.[0] ?? path);
}

/** Returns the lines of an inert text behind so many columns: only where a person's terminal has an edge, it is wrapped. */
export function wrapOn({ width, isTerminal, isPlain }: OutputStyle, text: string, columns = 0): string[] {
  return isTerminal && !isPlain ? wrap(text, Math.max(12, width - columns), true) : [text];
}

/**
 * Returns a line in as many lines as it takes, each with the spaces before it. A line that begins with a path stays whole. A
 * line that is too long keeps its colour, if it has one, and loses several.
 */
export function wrapLine(line: string, width: number): string[] {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: removes the colours
  const bare = line.replace(/\u001b\[[\d;]*m/g, "");
  if (getWidth(bare) <= width || /^\s*'?~?\//.test(bare)) return [line];
  const indent = " ".repeat(Math.min(bare.length - bare.trimStart().length, width >> 1));
  // biome-ignore lint/suspicious/noControlCharactersInRegex: finds the colours
  const [, begin = "", end = ""] = /^\s*((?:\u001b\[[\d;]*m)+)[^\u001b]*((?:\u001b\[[\d;]*m)+)$/.exec(line) ?? [];
  return wrap(bare.trimStart(), width - indent.length, true).map((part) => `${begin}${indent}${part}${end}`);
}

/** Returns the words of a query, each alone: a line may end between two that quotation marks hold together. */
export function parseSearchWords(query: string): string[] {
  return query.replaceAll('"', " ").split(/\s+/).filter(Boolean);
}

/** Returns an inert line with the words of a query highlighted where they appear in the same spelling, in any case. */
export function highlightWords(
  line: string,
  query: string,
  { paint }: Pick<OutputStyle, "paint">,
  base: Colour = "plain",
): string {
  const words = parseSearchWords(query);
  if (words.length === 0) return paint(base, line);
  const parts = line.split(makeWordsPattern(words));
  // Every second part is one of the words.
  return parts.map((part, i) => paint(i % 2 === 1 ? "yellow" : base, part)).join("");
}
