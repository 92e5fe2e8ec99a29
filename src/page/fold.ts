/** Long stretches: their first or last lines, and the rest behind one click. */

import { formatCount, formatSize } from "./amounts.ts";
import { escapeHtml } from "./escape.ts";

/** Lines that are shown without folding, and those that a fold shows of them. */
const OPEN_LINES = 15;
const SHOWN_LINES = 5;

/** Characters in a line of the page, about. */
const WIDTH = 110;

/** Returns how many lines a text takes on the page, about, counted no further than needed. */
function linesOf(text: string): number {
  let lines = 0;
  for (let from = 0; from <= text.length; lines++) {
    const end = text.indexOf("\n", from);
    const to = end < 0 ? text.length : end;
    lines += Math.floor(Math.max(0, to - from - 1) / WIDTH);
    if (end < 0) return lines + (to > from ? 1 : 0);
    from = to + 1;
  }
  return lines;
}

/** Returns whether a text is folded where it is output. */
export function isLongText(text: string): boolean {
  return linesOf(text) > OPEN_LINES;
}

/** Returns how long a text is: `16 lines, 118 B`. */
export function describeLength(text: string): string {
  return `${formatCount(countLines(text), "line")}, ${formatSize(text.length)}`;
}

/** Returns a block of lines, folded if it is long. `text` is its plain text, `html` its drawing. */
export function renderLines(text: string, html: string, style: string, shows: "first" | "last" = "first"): string {
  if (text.trim() === "") return "";
  const block = `<pre class="${style}">${html}</pre>`;
  if (!isLongText(text)) return block;
  const some = someLines(text, shows).map((line) => (line.length > WIDTH * 2 ? `${line.slice(0, WIDTH * 2)}…` : line));
  const part = `<span class="peek" aria-hidden="true">${escapeHtml(some.join("\n"))}</span>`;
  const length = `<span class="len">${describeLength(text)}</span>`;
  const inside = shows === "first" ? part + length : length + part;
  return `<details class="long"><summary>${inside}</summary>${block}</details>`;
}

/** Returns the first or the last lines, without an array of all. */
function someLines(text: string, shows: "first" | "last"): string[] {
  const lines: string[] = [];
  if (shows === "first") {
    for (let from = 0; lines.length < SHOWN_LINES && from <= text.length; ) {
      const end = text.indexOf("\n", from);
      lines.push(text.slice(from, end < 0 ? text.length : end));
      if (end < 0) break;
      from = end + 1;
    }
    return lines;
  }
  let end = text.endsWith("\n") ? text.length - 1 : text.length;
  while (lines.length < SHOWN_LINES && end >= 0) {
    const before = end === 0 ? -1 : text.lastIndexOf("\n", end - 1);
    lines.unshift(text.slice(before + 1, end));
    end = before;
  }
  return lines;
}

function countLines(text: string): number {
  let lines = 1;
  for (let at = text.indexOf("\n"); at >= 0 && at < text.length - 1; at = text.indexOf("\n", at + 1)) lines++;
  return lines;
}

/** Returns a fold that opens by its title. */
export function renderFold(style: string, title: string, inside: string): string {
  return `<details class="${style}"><summary>${title}</summary>${inside}</details>`;
}
