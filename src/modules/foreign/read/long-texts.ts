/**
 * Writes a value with texts of many megabytes as JSON, a slice of them at a time: made at once, the JSON of such a text
 * takes its size three times over, in addition to the text and the line.
 */

/** Characters from which on a text is written in slices, and characters of a slice. */
const LONG = 1 << 20;
const SLICE = 1 << 16;

/** Returns whether a value contains a text that is written in slices. */
export function hasLongText(value: unknown): boolean {
  if (typeof value === "string") return value.length >= LONG;
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return false;
  return Object.values(value).some(hasLongText);
}

/** Returns the JSON of an object with members, as JSON.stringify has them, after others: `{"a":1`. */
export function toLongJson(begun: string, members: object): Uint8Array {
  const long: string[] = [];
  const text = JSON.stringify(members, (_name, member: unknown) => {
    if (typeof member !== "string" || member.length < LONG) return member;
    long.push(member);
    return MARK;
  });
  const parts = `${begun},${text.slice(1)}`.split(JSON.stringify(MARK));
  // Another text is the mark.
  if (parts.length !== long.length + 1) return Buffer.from(`${begun},${JSON.stringify(members).slice(1)}`);
  let size = 2 * long.length;
  for (const part of parts) size += Buffer.byteLength(part);
  for (const one of long) for (const slice of slicesOf(one)) size += Buffer.byteLength(slice);
  const bytes = Buffer.allocUnsafeSlow(size);
  let at = 0;
  for (const [i, part] of parts.entries()) {
    at += bytes.write(part, at);
    if (i === long.length) break;
    at += bytes.write('"', at);
    for (const slice of slicesOf(long[i])) at += bytes.write(slice, at);
    at += bytes.write('"', at);
  }
  return bytes;
}

/** A short text in place of a long one. */
const MARK = "\u0000long text\u0000";

/** Yields the JSON of a text, without quotes. */
function* slicesOf(text: string): Generator<string> {
  for (let from = 0; from < text.length; ) {
    let to = Math.min(from + SLICE, text.length);
    // No pair is cut in two.
    if (to < text.length && (text.charCodeAt(to - 1) & 0xfc00) === 0xd800) to--;
    yield JSON.stringify(text.slice(from, to)).slice(1, -1);
    from = to;
  }
}
