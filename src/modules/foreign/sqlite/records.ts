/** Rows and index entries of SQLite's tables, as far as they are asked for. */

import type { TextEncoding } from "./pages.ts";

/** A cell of a tree's page: the places of its record's bytes. */
export interface Cell {
  /** The row's number; 0 in an index. */
  readonly rowid: number;
  /** The bytes of the record that are in the page. */
  readonly local: Uint8Array;
  /** Bytes of the whole record. */
  readonly size: number;
  /** The first page that has the rest; 0 without one. */
  readonly more: number;
}

/** A number that is written in one to nine bytes, and the place after it. */
export class Varints {
  private readonly bytes: Uint8Array;
  at: number;

  constructor(bytes: Uint8Array, at: number) {
    this.bytes = bytes;
    this.at = at;
  }

  /** Returns the next one; NaN past the end. Beyond 2^53, the nearest number. */
  next(): number {
    let value = 0;
    for (let n = 0; n < 8; n++) {
      const byte = this.bytes[this.at++];
      if (byte === undefined) return Number.NaN;
      value = value * 128 + (byte & 0x7f);
      if (byte < 0x80) return value;
    }
    const last = this.bytes[this.at++];
    if (last === undefined) return Number.NaN;
    value = value * 256 + last;
    return value >= 2 ** 63 ? value - 2 ** 64 : value;
  }
}

/** Returns the bytes that a value of this type has; -1 for a type that there is not. */
function bytesOfType(type: number): number {
  if (type >= 12) return Math.floor((type - 12) / 2);
  return [0, 1, 2, 3, 4, 6, 8, 8, 0, 0, -1, -1][type] ?? -1;
}

export type StoredValue = null | number | string | Uint8Array;

/** The values of a record. Bytes beyond its page are read on demand. */
export class RecordValues {
  private readonly whole: () => Uint8Array | null;
  private readonly types: number[] = [];
  private readonly starts: number[] = [];
  private bytes: Uint8Array;
  private readonly decoder: TextDecoder;
  private isWhole: boolean;

  /** `whole` returns all bytes of the record; null if they cannot be read. */
  constructor({ local, size }: Cell, whole: () => Uint8Array | null, encoding: TextEncoding) {
    this.whole = whole;
    this.bytes = local;
    this.isWhole = local.length >= size;
    this.decoder = decoders[encoding];
    const heads = new Varints(local, 0);
    const length = heads.next();
    if (!(length <= size)) return;
    // The types of a row with hundreds of columns may go on beyond the page.
    if (length > local.length && !this.complete()) return;
    const types = this.isWhole ? new Varints(this.bytes, heads.at) : heads;
    for (let at = length; types.at < length; ) {
      const type = types.next();
      const bytes = bytesOfType(type);
      if (!(bytes >= 0) || types.at > length) return;
      this.types.push(type);
      this.starts.push(at);
      at += bytes;
    }
  }

  get count(): number {
    return this.types.length;
  }

  number(n: number): number | undefined {
    const type = this.types[n];
    if (type === 8) return 0;
    if (type === 9) return 1;
    if (type === undefined || type < 1 || type > 7) return undefined;
    const bytes = this.slice(n);
    if (!bytes) return undefined;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    if (type === 7) return view.getFloat64(0);
    if (type === 6) return Number(view.getBigInt64(0));
    let value = view.getInt8(0);
    for (let i = 1; i < bytes.length; i++) value = value * 256 + bytes[i];
    return value;
  }

  isText(n: number): boolean {
    return this.types[n] >= 13 && this.types[n] % 2 === 1;
  }

  /** Returns the bytes of a text as UTF-8, or of a blob; undefined for anything else, and for unreadable bytes. */
  slice(n: number): Uint8Array | undefined {
    const start = this.starts[n];
    if (start === undefined) return undefined;
    const end = start + bytesOfType(this.types[n]);
    if (end > this.bytes.length && !this.complete()) return undefined;
    return end <= this.bytes.length ? this.bytes.subarray(start, end) : undefined;
  }

  /** Returns a text; undefined for anything else. */
  text(n: number): string | undefined {
    const bytes = this.isText(n) ? this.slice(n) : undefined;
    return bytes && this.decoder.decode(bytes);
  }

  value(n: number): StoredValue {
    if (this.isText(n)) return this.text(n) ?? null;
    return this.number(n) ?? (this.types[n] >= 12 ? (this.slice(n) ?? null) : null);
  }

  private complete(): boolean {
    if (this.isWhole) return false;
    const all = this.whole();
    this.isWhole = true;
    if (all) this.bytes = all;
    return all !== null;
  }
}

const decoders: Readonly<Record<TextEncoding, TextDecoder>> = {
  "utf-8": new TextDecoder(),
  "utf-16le": new TextDecoder("utf-16le"),
  "utf-16be": new TextDecoder("utf-16be"),
};
