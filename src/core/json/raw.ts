/** JSON text that is passed on as it was read, next to plain values in one result. */

import { replaceHalves } from "./halves.ts";
import { concat, parse, toBytes } from "./json.ts";

/** A member of a result whose text exists already; it is requested, in pieces, when the reply is written. */
export class Raw {
  readonly pieces: () => Iterable<Uint8Array>;

  constructor(pieces: () => Iterable<Uint8Array>) {
    this.pieces = pieces;
  }

  static of(bytes: Uint8Array): Raw {
    return new Raw(() => [bytes]);
  }

  /** Returns an array of the given texts. */
  static array(items: () => Iterable<Uint8Array>): Raw {
    return new Raw(() => gatherPieces(listed(items())));
  }

  bytes(): Uint8Array {
    return concat([...this.pieces()]);
  }

  /** Returns the value: JSON.stringify of a small result with a Raw (as an event) is right, if not verbatim. */
  toJSON(): unknown {
    return parse(this.bytes());
  }
}

function* listed(items: Iterable<Uint8Array>): Generator<Uint8Array> {
  let before = OPEN;
  for (const item of items) {
    yield before;
    yield item;
    before = COMMA;
  }
  yield before === OPEN ? EMPTY : CLOSE;
}

/** Sizes of a block of gathered pieces, and of the first one, because many replies are short. */
const BLOCK = 1 << 18;
const FIRST_BLOCK = 1 << 13;

/**
 * Yields the same bytes copied into blocks: sending a piece costs more than copying its bytes (25 MB in 10,000 entries
 * take 62 ms this way, and 75 ms one by one). No character is cut in two.
 */
export function* gatherPieces(pieces: Iterable<Uint8Array>): Generator<Uint8Array> {
  let block = new Uint8Array(FIRST_BLOCK);
  let filled = 0;
  for (const piece of pieces)
    for (let at = 0; at < piece.length; ) {
      const past = at + block.length - filled;
      const cut = past < piece.length ? characterStart(piece, at, past) : piece.length;
      block.set(at === 0 && cut === piece.length ? piece : piece.subarray(at, cut), filled);
      filled += cut - at;
      at = cut;
      if (at === piece.length) break;
      yield block.subarray(0, filled);
      block = new Uint8Array(BLOCK);
      filled = 0;
    }
  if (filled > 0) yield block.subarray(0, filled);
}

/** Returns the last start of a character up to `end`, in UTF-8 text. */
function characterStart(text: Uint8Array, start: number, end: number): number {
  let at = end;
  while (at > start && end - at < 3 && (text[at] & 0xc0) === 0x80) at--;
  return at;
}

const OPEN = toBytes("[");
const COMMA = toBytes(",");
const CLOSE = toBytes("]");
const EMPTY = toBytes("[]");

/**
 * Yields the JSON text of a result as strings and bytes; only its direct members may be {@link Raw}. All text except
 * bytes that are passed on as they were read has no half of a surrogate pair.
 */
export function* toTextPieces(result: unknown): Generator<string | Uint8Array> {
  if (result instanceof Raw) yield* result.pieces();
  else if (!holdsRaw(result)) yield toPlainText(result);
  else {
    let text = "{";
    let comma = "";
    for (const [name, value] of Object.entries(result as object)) {
      if (value === undefined) continue;
      text += `${comma}${JSON.stringify(name)}:`;
      comma = ",";
      if (value instanceof Raw) {
        yield text;
        yield* value.pieces();
        text = "";
      } else text += replaceHalves(JSON.stringify(value));
    }
    yield `${text}}`;
  }
}

/** Texts of results that are sent again as long as nothing changes. */
const lastingTexts = new WeakMap<object, string>();

/** Returns the same result, which must not change any more: its text is made once, however often it is sent. */
export function makeLasting<T extends object>(result: T): T {
  if (!lastingTexts.has(result)) lastingTexts.set(result, replaceHalves(JSON.stringify(result)));
  return result;
}

/** Returns the JSON text of a value that neither is nor contains a {@link Raw}. */
export function toPlainText(value: unknown): string {
  const known = typeof value === "object" && value !== null ? lastingTexts.get(value) : undefined;
  return known ?? replaceHalves(JSON.stringify(value ?? null));
}

export function holdsRaw(result: unknown): boolean {
  if (typeof result !== "object" || result === null) return false;
  if (result instanceof Raw) return true;
  for (const name in result) if ((result as Record<string, unknown>)[name] instanceof Raw) return true;
  return false;
}
