/** Previews of texts, written from the bytes of a JSON string to those of another. */

import { readStringBeginning } from "../json/json.ts";
import type { TextBlock } from "../json/text-block.ts";
import { toPreview } from "./message.ts";

/** Characters of a preview, and of the text that it is made of. */
const LIMIT = 100;
const LOOKED_AT = 4 * LIMIT;
const ELLIPSIS = [0xe2, 0x80, 0xa6];
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const SPACE = 0x20;

/** Table of bytes after a backslash: 1 for white space, 2 for an escape to copy, 0 for one not handled here. */
const ESCAPED = Uint8Array.from({ length: 256 }, (_, c) => {
  const character = String.fromCharCode(c);
  return "ntrf".includes(character) ? 1 : 'b"\\'.includes(character) ? 2 : 0;
});

/** Writes the preview of the string `b[start, end)`, quotes included, as the JSON text of a string. */
export function writePreview(out: TextBlock, b: Uint8Array, start: number, end: number): void {
  const begun = out.length;
  out.expect(2 * LIMIT + 8);
  out.byte(QUOTE);
  if (writePlain(out, b, start + 1, end - 1)) {
    out.byte(QUOTE);
    return;
  }
  out.length = begun;
  out.json(toPreview(readStringBeginning(b, start, end, LOOKED_AT), LIMIT));
}

/** Writes the preview of ASCII with the usual escapes; returns false for any other text. */
function writePlain(out: TextBlock, b: Uint8Array, start: number, end: number): boolean {
  const { bytes } = out;
  let to = out.length;
  let written = 0;
  let cutAt = to;
  let isSpaced = false;
  let i = start;
  for (let seen = 0; seen < LOOKED_AT && i < end; seen++) {
    const c = b[i++];
    const escaped = c === BACKSLASH ? b[i++] : 0;
    const kind = escaped === 0 ? 0 : ESCAPED[escaped];
    if (c >= 0x80 || (escaped !== 0 && kind === 0)) return false;
    if (c === SPACE || kind === 1) {
      isSpaced = written > 0;
      continue;
    }
    if (isSpaced) {
      isSpaced = false;
      bytes[to++] = SPACE;
      if (++written === LIMIT - 1) cutAt = to;
    }
    bytes[to++] = c;
    if (escaped !== 0) bytes[to++] = escaped;
    if (++written === LIMIT - 1) cutAt = to;
    if (written <= LIMIT) continue;
    bytes.set(ELLIPSIS, cutAt);
    to = cutAt + ELLIPSIS.length;
    break;
  }
  out.length = to;
  return true;
}
