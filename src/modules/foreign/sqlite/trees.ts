/**
 * The trees of tables and indexes in an SQLite database. Reading continues past damage: a page that does not belong to
 * the tree is reported, and the other rows are read.
 */

import type { DatabasePages } from "./pages.ts";
import { type Cell, RecordValues, Varints } from "./records.ts";

const INDEX_INTERIOR = 2;
const TABLE_INTERIOR = 5;
const INDEX_LEAF = 10;
const TABLE_LEAF = 13;
/** Levels of a tree; SQLite's own limit is 20. */
const DEEPEST = 30;

const LARGEST_RECORD = 1_000_000_000;

/** Reports a page that cannot be read as the expected kind. */
type Fault = (page: number, reason: string) => void;

/** A page of a tree: its cells are read when they are asked for. */
interface TreePage {
  readonly number: number;
  readonly bytes: Buffer;
  readonly type: number;
  readonly cells: number;
  /** Start of the array of its cells. */
  readonly places: number;
  /** The child after the last cell, in an interior page. */
  readonly last: number;
}

export class Trees {
  private readonly pages: DatabasePages;
  private readonly fault: Fault;

  constructor(pages: DatabasePages, fault: Fault) {
    this.pages = pages;
    this.fault = fault;
  }

  values(cell: Cell): RecordValues {
    return new RecordValues(cell, () => this.whole(cell), this.pages.encoding);
  }

  /** Yields the rows of a table in the order of their numbers. */
  *rows(root: number): Generator<Cell> {
    const seen = new Set<number>();
    const open: [page: number, depth: number][] = [[root, 0]];
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      const [number, depth] = next;
      const page = this.open(number, depth, seen, TABLE_INTERIOR, TABLE_LEAF);
      if (!page) continue;
      if (page.type === TABLE_INTERIOR) {
        for (const child of this.children(page).reverse()) open.push([child, depth + 1]);
        continue;
      }
      for (let n = 0; n < page.cells; n++) {
        const cell = this.cellOf(page, n);
        if (cell) yield cell;
      }
    }
  }

  /** Returns the row with a number; undefined if it does not exist. */
  row(root: number, rowid: number): Cell | undefined {
    let number = root;
    for (let depth = 0; ; depth++) {
      const page = this.open(number, depth, undefined, TABLE_INTERIOR, TABLE_LEAF);
      if (!page) return undefined;
      const n = this.firstFrom(page, rowid);
      if (page.type === TABLE_INTERIOR) {
        number = n < page.cells ? page.bytes.readUInt32BE(this.place(page, n)) : page.last;
        continue;
      }
      const cell = n < page.cells ? this.cellOf(page, n) : undefined;
      return cell?.rowid === rowid ? cell : undefined;
    }
  }

  /** Yields the numbers of the rows with `key` as the first value of an index, in the order of the index. */
  *find(root: number, key: Uint8Array): Generator<number> {
    const seen = new Set<number>();
    // The remaining work, the next at the end: a page, or an entry that is between two of them.
    const open: ([page: number, depth: number] | Cell)[] = [[root, 0]];
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      if (!Array.isArray(next)) {
        yield this.rowOf(next);
        continue;
      }
      const [number, depth] = next;
      const page = this.open(number, depth, seen, INDEX_INTERIOR, INDEX_LEAF);
      if (!page) continue;
      open.push(...this.stepsIn(page, depth, key).reverse());
    }
  }

  /** Returns the entries of a page with a key, and the pages below it that may have some, in order. */
  private stepsIn(page: TreePage, depth: number, key: Uint8Array): ([page: number, depth: number] | Cell)[] {
    const isInterior = page.type === INDEX_INTERIOR;
    const steps: ([page: number, depth: number] | Cell)[] = [];
    for (let n = this.firstWith(page, key); n <= page.cells; n++) {
      const cell = n < page.cells ? this.cellOf(page, n) : undefined;
      if (isInterior) {
        const child = n < page.cells ? this.childAt(page, n) : page.last;
        if (child !== undefined) steps.push([child, depth + 1]);
      }
      if (!cell || this.compare(cell, key) !== 0) {
        if (cell || n === page.cells) break;
        continue;
      }
      steps.push(cell);
    }
    return steps;
  }

  /** Returns the first entry of an index's page that is not before a key. */
  private firstWith(page: TreePage, key: Uint8Array): number {
    let from = 0;
    let to = page.cells;
    while (from < to) {
      const middle = (from + to) >> 1;
      const cell = this.cellOf(page, middle);
      if (cell && this.compare(cell, key) < 0) from = middle + 1;
      else to = middle;
    }
    return from;
  }

  /** Compares the first value of an entry with a text: values of other types come before it, except blobs. */
  private compare(cell: Cell, key: Uint8Array): number {
    const values = this.values(cell);
    const bytes = values.isText(0) ? values.slice(0) : undefined;
    if (bytes) return Buffer.compare(bytes, key);
    return values.value(0) instanceof Uint8Array ? 1 : -1;
  }

  private rowOf(cell: Cell): number {
    const values = this.values(cell);
    return values.number(values.count - 1) ?? Number.NaN;
  }

  /** Returns the first cell of a table's page whose number is not below `rowid`. */
  private firstFrom(page: TreePage, rowid: number): number {
    let from = 0;
    let to = page.cells;
    const skipped = page.type === TABLE_INTERIOR ? 4 : 0;
    while (from < to) {
      const middle = (from + to) >> 1;
      const numbers = new Varints(page.bytes, this.place(page, middle) + skipped);
      if (skipped === 0) numbers.next();
      if (numbers.next() < rowid) from = middle + 1;
      else to = middle;
    }
    return from;
  }

  private open(
    number: number,
    depth: number,
    seen: Set<number> | undefined,
    interior: number,
    leaf: number,
  ): TreePage | undefined {
    const bytes = this.pages.page(number);
    if (!bytes) return this.report(number, "it is not there");
    if (seen?.has(number) || depth > DEEPEST) return this.report(number, "it is there twice in one tree");
    seen?.add(number);
    const at = number === 1 ? 100 : 0;
    const type = bytes[at];
    if (type !== interior && type !== leaf) return this.report(number, "it is no page of a table's");
    const isInterior = type === interior;
    const places = at + (isInterior ? 12 : 8);
    const stored = bytes.readUInt16BE(at + 3);
    const most = Math.floor((this.pages.usable - places) / 2);
    if (stored > most) this.fault(number, "it counts more rows than it has room for");
    return {
      number,
      bytes,
      type,
      cells: Math.min(stored, most),
      places,
      last: isInterior ? bytes.readUInt32BE(at + 8) : 0,
    };
  }

  private report(number: number, reason: string): undefined {
    this.fault(number, reason);
    return undefined;
  }

  private place({ bytes, places }: TreePage, n: number): number {
    return Math.min(bytes.readUInt16BE(places + 2 * n), bytes.length - 4);
  }

  private childAt(page: TreePage, n: number): number | undefined {
    return page.bytes.readUInt32BE(this.place(page, n));
  }

  private children(page: TreePage): number[] {
    const found = Array.from({ length: page.cells }, (_, n) => page.bytes.readUInt32BE(this.place(page, n)));
    return [...found, page.last];
  }

  private cellOf(page: TreePage, n: number): Cell | undefined {
    const { bytes, type, number } = page;
    const { usable } = this.pages;
    const numbers = new Varints(bytes, this.place(page, n) + (type === INDEX_INTERIOR ? 4 : 0));
    const size = numbers.next();
    const rowid = type === TABLE_LEAF ? numbers.next() : 0;
    // No record is larger than the database, or than SQLite lets one be.
    if (!(size >= 0 && size <= Math.min(this.pages.count * usable, LARGEST_RECORD)))
      return this.report(number, "one of its rows has no length");
    const most = type === TABLE_LEAF ? usable - 35 : Math.floor(((usable - 12) * 64) / 255) - 23;
    const least = Math.floor(((usable - 12) * 32) / 255) - 23;
    const spilled = least + ((size - least) % (usable - 4));
    const here = size <= most ? size : spilled <= most ? spilled : least;
    const end = numbers.at + here;
    if (end + (here < size ? 4 : 0) > bytes.length) return this.report(number, "one of its rows goes on beyond it");
    return {
      rowid,
      local: bytes.subarray(numbers.at, end),
      size,
      more: here < size ? bytes.readUInt32BE(end) : 0,
    };
  }

  /** Returns all bytes of a record; null if a page of it cannot be read. */
  private whole({ local, size, more }: Cell): Uint8Array | null {
    if (local.length >= size) return local;
    const bytes = new Uint8Array(size);
    bytes.set(local);
    const { usable } = this.pages;
    let at = local.length;
    for (let next = more; at < size; ) {
      const page = this.pages.page(next);
      if (!page) {
        this.fault(next, "the rest of a row should be there");
        return null;
      }
      const piece = page.subarray(4, Math.min(usable, 4 + size - at));
      bytes.set(piece, at);
      at += piece.length;
      next = page.readUInt32BE(0);
    }
    return bytes;
  }
}
