/** JSON texts with white space, escapes and odd numbers in them, and texts that are nearly JSON. */

import type { Random } from "./random.ts";

export interface JsonText {
  readonly text: string;
  readonly value: unknown;
}

/** The style of a text. */
export interface Style {
  /** Returns what stands between two tokens. */
  readonly space: (random: Random) => string;
  /** Returns the names of members at a depth, as JSON. A few members have any other text as their name. */
  readonly names: (depth: number) => readonly string[];
}

const PLAIN = ["a", "text", "é漢😀", "\u2028", "}],:", "blob:sha256:0"];
const ESCAPED = ["\\n", '\\"', "\\\\", "\\/", "\\u0041", "\\uD83D", "\\ud83d\\ude00"];
const NUMBERS = ["0", "-0", "1.0", "1e400", "-1.5E-7", "9007199254740993", "0.1", "1e+2", "12"];

function randomString(random: Random): string {
  const piece = (): string =>
    random.chance(0.3) ? random.pick(ESCAPED) : random.pick(PLAIN).repeat(random.pick([1, 1, 2, 5, 17, 40]));
  return `"${Array.from({ length: random.int(4) }, piece).join("")}"`;
}

/** Returns a text of a kind: 0 and 1 a string, 2 a word, 3 a number, 4 an array, 5 and 6 an object. */
export function randomJson(random: Random, style: Style, depth = 0, kind = random.int(depth > 4 ? 4 : 7)): JsonText {
  if (kind < 4) {
    const text = kind < 2 ? randomString(random) : random.pick(kind === 2 ? ["true", "false", "null"] : NUMBERS);
    return { text, value: JSON.parse(text) };
  }
  const values: unknown[] = [];
  // JSON.parse may misread the names of an object (see the tests of `parse`).
  const object = {};
  const space = (): string => style.space(random);
  const parts = Array.from({ length: random.int(5) }, () => {
    const { text, value } = randomJson(random, style, depth + 1);
    const spaced = `${space()}${text}${space()}`;
    values.push(value);
    if (kind === 4) return spaced;
    const name = random.chance(0.05) ? randomString(random) : random.pick(style.names(depth));
    Object.defineProperty(object, JSON.parse(name), { value, enumerable: true, writable: true, configurable: true });
    return `${space()}${name}${space()}:${spaced}`;
  });
  const inside = parts.length === 0 ? space() : parts.join(",");
  return kind === 4 ? { text: `[${inside}]`, value: values } : { text: `{${inside}}`, value: object };
}

/** Returns the text with a character changed, taken out, put in or moved. */
export function mutated(random: Random, text: string): string {
  const characters = [...text];
  const at = random.int(characters.length + 1);
  const odd = ["\u0000", "\u001f", "\u007f", "tru", "null", "\\u12"];
  const other = random.pick([...'{}[]",:\\ \n0123456789.-+eEtfnu/', ...odd]);
  const moved = characters[random.int(characters.length)] ?? "";
  characters.splice(at, random.int(3), ...random.pick([[], [other], [other], [moved]]));
  return characters.join("");
}

export function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
