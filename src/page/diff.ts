/** Changes of files: lines taken away and added, coloured and with their signs. */

import { escapeHtml } from "./escape.ts";

export interface DiffLine {
  readonly sign: " " | "+" | "-" | "@";
  readonly text: string;
}

/** Pairs of lines that are compared at most; beyond it everything is taken away and added. */
const MOST_PAIRS = 250_000;

/** Unchanged lines that are shown around a change. */
const AROUND = 3;

/** Characters of a text that is drawn as a change at most. */
const MOST = 1_000_000;

function linesIn(text: string): string[] {
  if (text === "") return [];
  const lines = text.replace(/\r\n/g, "\n").split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/** Returns the lines of both texts, those that they share once. */
export function computeDiff(before: string, after: string): DiffLine[] {
  const from = linesIn(before);
  const to = linesIn(after);
  let start = 0;
  while (start < from.length && start < to.length && from[start] === to[start]) start++;
  let end = 0;
  while (end < from.length - start && end < to.length - start && from.at(-1 - end) === to.at(-1 - end)) end++;
  const line =
    (sign: DiffLine["sign"]) =>
    (text: string): DiffLine => ({ sign, text });
  const inner = middle(from.slice(start, from.length - end), to.slice(start, to.length - end));
  const tail = from.slice(from.length - end);
  return [...from.slice(0, start).map(line(" ")), ...inner, ...tail.map(line(" "))];
}

/** Returns the lines between what both begin and end with, by their longest common subsequence. */
function middle(from: readonly string[], to: readonly string[]): DiffLine[] {
  const lines: DiffLine[] = [];
  const width = to.length + 1;
  const isSmall = from.length * to.length <= MOST_PAIRS;
  const longest = new Uint32Array(isSmall ? (from.length + 1) * width : 0);
  if (isSmall)
    for (let i = from.length - 1; i >= 0; i--)
      for (let j = to.length - 1; j >= 0; j--)
        longest[i * width + j] =
          from[i] === to[j]
            ? longest[(i + 1) * width + j + 1] + 1
            : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
  let i = 0;
  let j = 0;
  while (i < from.length || j < to.length) {
    if (isSmall && i < from.length && j < to.length && from[i] === to[j]) {
      lines.push({ sign: " ", text: from[i++] });
      j++;
    } else if (
      i < from.length &&
      (j >= to.length || !isSmall || longest[(i + 1) * width + j] >= longest[i * width + j + 1])
    )
      lines.push({ sign: "-", text: from[i++] });
    else lines.push({ sign: "+", text: to[j++] });
  }
  return lines;
}

/** Returns the lines of a diff from another program: unified, or with numbers after the signs. */
export function parseDiff(text: string): DiffLine[] {
  return linesIn(text).map((line, at, lines) => {
    // The names of a file are a pair; any other line that begins so has signs of its own.
    const isName = line.startsWith("--- ")
      ? lines[at + 1]?.startsWith("+++ ")
      : line.startsWith("+++ ") && lines[at - 1]?.startsWith("--- ");
    if (isName || /^(?:@@|diff |index )/.test(line)) return { sign: "@", text: line };
    const sign = line[0];
    return sign === "+" || sign === "-" ? { sign, text: line.slice(1) } : { sign: " ", text: line.replace(/^ /, "") };
  });
}

/** Returns whether texts are short enough to be drawn as changes. */
export function isDrawable(...texts: readonly string[]): boolean {
  return texts.every((text) => text.length <= MOST);
}

/** Returns whether output is a diff, as git prints it. */
export function isDiff(text: string): boolean {
  return text.length <= MOST && /^(?:diff --git |--- \S.*\n\+\+\+ )/.test(text);
}

/** Shows stretches that are no longer than the line that would stand for them. */
function showShort(isNear: Uint8Array): void {
  for (let from = isNear.indexOf(0); from >= 0; ) {
    const next = isNear.indexOf(1, from);
    const end = next < 0 ? isNear.length : next;
    if (end - from <= 2) isNear.fill(1, from, end);
    from = next < 0 ? -1 : isNear.indexOf(0, end);
  }
}

const STYLES = { " ": "ctx", "+": "add", "-": "del", "@": "hunk" } as const;

/** Returns the lines as HTML; long stretches without changes are left out and counted. */
export function renderDiff(lines: readonly DiffLine[]): string {
  const isNear = new Uint8Array(lines.length);
  for (const [index, { sign }] of lines.entries())
    if (sign !== " ") isNear.fill(1, Math.max(0, index - AROUND), index + AROUND + 1);
  showShort(isNear);
  let html = "";
  let skipped = 0;
  const skip = (): void => {
    if (skipped > 0) html += `<span class="hunk">⋯ ${skipped} unchanged</span>`;
    skipped = 0;
  };
  for (const [index, { sign, text }] of lines.entries()) {
    if (isNear[index] === 0) {
      skipped++;
      continue;
    }
    skip();
    html += `<span class="${STYLES[sign]}">${sign === "@" ? "" : sign}${escapeHtml(text)}\n</span>`;
  }
  skip();
  return html;
}
