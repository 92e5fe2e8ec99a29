/** Halves of surrogate pairs, which JSON may have as escapes: readers in other languages refuse a text that has one. */

/** Escapes that follow each other, as long as a whole pair takes; an escaped backslash is looked past. */
const ESCAPES = /\\(?:\\|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2})/g;
const MAYBE_HALF = /\\u[dD][89a-fA-F]/;
/** Characters of the escape of a half. */
const HALF = 6;
const REPLACEMENT = "\\ufffd";

/** Returns JSON text with U+FFFD in the place of each half. */
export function replaceHalves(text: string): string {
  if (!MAYBE_HALF.test(text)) return text;
  return text.replace(ESCAPES, (found) => (found.length === HALF ? REPLACEMENT : found));
}

/** Does the same for JSON text in bytes, and returns these bytes if nothing has to be replaced. */
export function replaceHalvesInBytes(bytes: Uint8Array): Uint8Array {
  const given = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  let copy: Buffer | undefined;
  for (let at = given.indexOf("\\u"); at >= 0; at = given.indexOf("\\u", at)) {
    const isHalf = isSurrogate(given, at) && !isEscaped(given, at);
    if (isHalf && isFirst(given, at) && isSurrogate(given, at + HALF) && !isFirst(given, at + HALF)) at += HALF;
    else if (isHalf) {
      copy ??= Buffer.from(given);
      copy.write(REPLACEMENT, at);
    }
    at += isHalf ? HALF : 2;
  }
  return copy ?? bytes;
}

/** Returns whether JSON text may have an escape of a surrogate. */
export function mayHoldSurrogate(bytes: Uint8Array): boolean {
  const { indexOf } = Buffer.prototype;
  return indexOf.call(bytes, "\\ud") >= 0 || indexOf.call(bytes, "\\uD") >= 0;
}

/** Returns whether an escape of a surrogate is at a position: `\\ud8` to `\\udf`. */
function isSurrogate(b: Uint8Array, at: number): boolean {
  return b[at] === 0x5c && b[at + 1] === 0x75 && (b[at + 2] | 0x20) === 0x64 && b[at + 3] >= 0x38;
}

function isFirst(b: Uint8Array, at: number): boolean {
  return (b[at + 3] | 0x20) < 0x63;
}

/** Returns whether the backslash at a position belongs to the one before it. */
function isEscaped(b: Uint8Array, at: number): boolean {
  let before = at;
  while (before > 0 && b[before - 1] === 0x5c) before--;
  return (at - before) % 2 === 1;
}
