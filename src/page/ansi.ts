/**
 * Output of programs with its colours. Those of 256 and of 16 million become the nearest of the 16 that the page has for
 * light and for dark, so that all can be read on both; whatever moves the cursor or sets a title is left out.
 */

import { escapeHtml } from "./escape.ts";

// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences begin with one
const SEQUENCE = /\u001b(?:\[([0-9;:<=>?]*)[ -/]*([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[ -/]*[0-Z\\^-~])/g;

/** Characters of an output whose escape sequences are read at most; in longer ones they are shown. */
const MOST = 1_000_000;

interface Look {
  front: number;
  back: number;
  readonly marks: Set<string>;
}

/** Codes that set a mark, and those that take marks away. */
const SETS: Readonly<Record<number, string>> = { 1: "bo", 2: "di", 3: "it", 4: "un", 7: "in", 9: "st" };
const CLEARS: Readonly<Record<number, readonly string[]>> = {
  22: ["bo", "di"],
  23: ["it"],
  24: ["un"],
  27: ["in"],
  29: ["st"],
};

/** Returns output as HTML. A lone carriage return, as progress bars use it, begins a line: nothing is written over. */
export function renderAnsi(text: string): string {
  if (text.length > MOST) return escapeHtml(text);
  const lines = text.includes("\r") ? text.replace(/\r+\n/g, "\n").replace(/\r(?=[^\n])/g, "\n") : text;
  if (!lines.includes("\u001b")) return escapeHtml(lines);
  const look: Look = { front: -1, back: -1, marks: new Set() };
  let html = "";
  let at = 0;
  for (const found of lines.matchAll(SEQUENCE)) {
    html += dressed(lines.slice(at, found.index), look);
    at = found.index + found[0].length;
    if (found[2] === "m") apply(look, found[1]);
  }
  return html + dressed(lines.slice(at), look);
}

/** Returns output without its escape sequences, for previews. */
export function stripAnsi(text: string): string {
  return text.length > MOST ? text : text.replace(SEQUENCE, "");
}

function dressed(text: string, { front, back, marks }: Look): string {
  if (text === "") return "";
  const classes = [...(front < 0 ? [] : [`f${front}`]), ...(back < 0 ? [] : [`b${back}`]), ...marks];
  const html = escapeHtml(text);
  return classes.length === 0 ? html : `<span class="${classes.join(" ")}">${html}</span>`;
}

function apply(look: Look, parameters: string): void {
  const codes = parameters.split(/[;:]/).map(Number);
  for (let index = 0; index < codes.length; index++) {
    const code = codes[index];
    if (code === 38 || code === 48) {
      const isIndexed = codes[index + 1] === 5;
      const colour = isIndexed
        ? nearestOf256(codes[index + 2])
        : nearest(codes[index + 2], codes[index + 3], codes[index + 4]);
      index += isIndexed ? 2 : 4;
      if (code === 38) look.front = colour;
      else look.back = colour;
    } else applyCode(look, code);
  }
}

function applyCode(look: Look, code: number): void {
  if (code === 0) {
    look.front = -1;
    look.back = -1;
    look.marks.clear();
  } else if (code in SETS) look.marks.add(SETS[code]);
  else if (code in CLEARS) for (const mark of CLEARS[code]) look.marks.delete(mark);
  else if (code === 39) look.front = -1;
  else if (code === 49) look.back = -1;
  else if (code >= 30 && code < 38) look.front = code - 30;
  else if (code >= 40 && code < 48) look.back = code - 40;
  else if (code >= 90 && code < 98) look.front = code - 82;
  else if (code >= 100 && code < 108) look.back = code - 92;
}

function nearestOf256(index: number): number {
  if (index < 16) return index;
  if (index >= 232) {
    const grey = 8 + (index - 232) * 10;
    return nearest(grey, grey, grey);
  }
  const level = (step: number): number => (step === 0 ? 0 : 55 + step * 40);
  const cube = index - 16;
  return nearest(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6));
}

/** Returns which of the 16 is meant: the bits of red, green and blue, and whether it is bright. */
function nearest(red: number, green: number, blue: number): number {
  const most = Math.max(red, green, blue);
  if (!(most <= 255)) return -1;
  if (most - Math.min(red, green, blue) < 40) return most < 48 ? 0 : most < 144 ? 8 : most < 224 ? 7 : 15;
  const bit = (part: number, value: number): number => (part > most * 0.6 ? value : 0);
  return (bit(red, 1) | bit(green, 2) | bit(blue, 4)) + (most > 220 ? 8 : 0);
}
