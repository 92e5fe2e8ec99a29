/**
 * The pages of an SQLite database as they are after its last transaction, read without SQLite: another program's file
 * is only read, no lock is taken, and no file is made, as SQLite makes the index of a log (`-shm`) even for readers.
 * Format: https://sqlite.org/fileformat2.html.
 *
 * Two more files count. `-wal` has pages that are newer, up to its last commit. `-journal` has the older pages of a
 * transaction that did not end. Both are laid over the file.
 */

import { areSameBytes, toBytes } from "../../../core/json/json.ts";
import { closeQuietly, type Disk, type FileInfo } from "../../../storage/fs/disk.ts";
import { readAt, readBeginning, readIfFile, readIfThere } from "../../../storage/fs/files.ts";
import { isSameStamp, isYoung, readDiskClock } from "../../../storage/fs/stamps.ts";

const MAGIC = toBytes("SQLite format 3\0");
const HEADER = 100;
const WAL_HEADER = 32;
const FRAME_HEADER = 24;
/** The first four bytes of a log; the last bit is the byte order of its checksums. */
const WAL_MAGIC = 0x377f0682;
const JOURNAL_MAGIC = Uint8Array.of(0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7);
/** Pages that are kept after they were read: those at the top of trees are asked for again and again. */
const KEPT = 512;

export type TextEncoding = "utf-8" | "utf-16le" | "utf-16be";

/** Returns whether a file begins as a database of SQLite does. Throws errno errors. */
export function hasDatabaseHeader(disk: Disk, file: string): boolean {
  const bytes = readIfFile(() => readBeginning(disk, file, MAGIC.length));
  return bytes !== null && areSameBytes(bytes, MAGIC);
}

/** The place of a page that replaces the one in the database's own file. */
interface Laid {
  readonly fd: number;
  readonly at: number;
}

export class DatabasePages {
  private readonly disk: Disk;
  private readonly fd: number;
  /** The open log or journal. */
  private changes: number | undefined;
  private readonly laid = new Map<number, Laid>();
  private readonly kept = new Map<number, Buffer>();
  private readonly begun: FileInfo;
  private changesHeader: Buffer | null = null;
  pageSize = 0;
  /** Bytes of a page that are used. */
  usable = 0;
  count = 0;
  encoding: TextEncoding = "utf-8";

  /** Throws errno errors. */
  constructor(disk: Disk, file: string) {
    this.disk = disk;
    this.fd = disk.openRead(file);
    try {
      this.begun = disk.infoOf(this.fd);
      const header = readIfThere(disk, this.fd, 0, HEADER);
      if (!header || !areSameBytes(header.subarray(0, MAGIC.length), MAGIC)) return;
      this.pageSize = pageSizeIn(header);
      if (this.pageSize === 0) return;
      this.count = Math.floor(this.begun.size / this.pageSize);
      if (!this.lay(`${file}-wal`, (fd) => this.layLog(fd))) this.lay(`${file}-journal`, (fd) => this.layJournal(fd));
      this.readHeader();
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** True if it is a database at all. */
  get isReadable(): boolean {
    return this.pageSize > 0 && this.usable > 0;
  }

  /** Returns a clause about the damage to the file as a whole; undefined without damage. Its trees may be damaged. */
  get fault(): string | undefined {
    if (this.pageSize === 0) return "its header is not one of SQLite's";
    const first = this.page(1);
    if (!first) return "it ends within its first page";
    // The header counts the pages, unless the program that wrote last was too old to do so.
    const counted = first.readUInt32BE(24) === first.readUInt32BE(92) ? first.readUInt32BE(28) : 0;
    const last = Math.max(counted, this.count);
    return this.page(last) ? undefined : `it ends before page ${last}, its last one`;
  }

  /** Returns a page, counted from 1; null if it cannot be read. */
  page(number: number): Buffer | null {
    if (!(number >= 1 && number <= this.count)) return null;
    const known = this.kept.get(number);
    if (known) return known;
    const { fd, at } = this.laid.get(number) ?? { fd: this.fd, at: (number - 1) * this.pageSize };
    const page = readIfThere(this.disk, fd, at, this.pageSize);
    if (!page) return null;
    if (this.kept.size >= KEPT) this.kept.clear();
    this.kept.set(number, page);
    return page;
  }

  /** Returns whether the files are unchanged since they were opened, so that all pages are of one transaction. */
  isStill(): boolean {
    const { disk, changes, begun } = this;
    const now = disk.infoOf(this.fd);
    if (!isSameStamp(now, begun) || isYoung(now, readDiskClock(disk))) return false;
    if (changes === undefined) return true;
    const first = readIfThere(disk, changes, 0, WAL_HEADER);
    return first !== null && this.changesHeader !== null && areSameBytes(first, this.changesHeader);
  }

  close(): void {
    closeQuietly(this.disk, this.fd);
    if (this.changes !== undefined) closeQuietly(this.disk, this.changes);
    this.changes = undefined;
  }

  private readHeader(): void {
    const first = this.page(1);
    if (!first) return;
    this.usable = this.pageSize - first[20];
    const encodings: readonly TextEncoding[] = ["utf-8", "utf-8", "utf-16le", "utf-16be"];
    this.encoding = encodings[first.readUInt32BE(56)] ?? "utf-8";
  }

  /** Lays the pages of a log or journal over the database's. Returns whether the file exists and is not empty. */
  private lay(file: string, use: (fd: number) => void): boolean {
    const fd = readIfFile(() => this.disk.openRead(file));
    if (fd === null) return false;
    this.changes = fd;
    const { kind, size } = this.disk.infoOf(fd);
    if (kind === "file" && size >= WAL_HEADER) {
      this.changesHeader = readIfThere(this.disk, fd, 0, WAL_HEADER);
      use(fd);
      return true;
    }
    closeQuietly(this.disk, fd);
    this.changes = undefined;
    return false;
  }

  /** Reads a log as far as its transactions are whole. */
  private layLog(fd: number): void {
    const { disk, pageSize } = this;
    const header = this.changesHeader;
    if (!header || (header.readUInt32BE(0) & ~1) >>> 0 !== WAL_MAGIC || header.readUInt32BE(8) !== pageSize) return;
    const isBig = (header[3] & 1) === 1;
    const sum = new LogChecksum(isBig);
    sum.add(header, 24);
    if (!sum.isAt(header, 24)) return;
    const { size } = disk.infoOf(fd);
    const pending = new Map<number, Laid>();
    for (let at = WAL_HEADER; at + FRAME_HEADER + pageSize <= size; at += FRAME_HEADER + pageSize) {
      const frame = readIfThere(disk, fd, at, FRAME_HEADER + pageSize);
      if (!frame || !areSameBytes(frame.subarray(8, 16), header.subarray(16, 24))) break;
      sum.add(frame, 8);
      sum.add(frame.subarray(FRAME_HEADER), pageSize);
      if (!sum.isAt(frame, 16)) break;
      pending.set(frame.readUInt32BE(0), { fd, at: at + FRAME_HEADER });
      const pages = frame.readUInt32BE(4);
      if (pages === 0) continue;
      for (const [number, laid] of pending) this.laid.set(number, laid);
      pending.clear();
      this.count = pages;
    }
  }

  /** Reads the older pages of a transaction that did not end. */
  private layJournal(fd: number): void {
    const { disk, pageSize } = this;
    const { size } = disk.infoOf(fd);
    for (let at = 0; at + 28 <= size; ) {
      const header = readAt(disk, fd, at, 28);
      if (!areSameBytes(header.subarray(0, 8), JOURNAL_MAGIC) || header.readUInt32BE(24) !== pageSize) return;
      const nonce = header.readUInt32BE(12);
      const sector = header.readUInt32BE(20);
      if (sector < 28 || sector > 1 << 16) return;
      if (at === 0) this.count = header.readUInt32BE(16);
      const stored = header.readUInt32BE(8);
      const record = 4 + pageSize + 4;
      at += sector;
      const records = stored === 0xffffffff ? Math.floor((size - at) / record) : stored;
      for (let n = 0; n < records; n++, at += record) {
        const bytes = readIfThere(disk, fd, at, record);
        if (!bytes || bytes.readUInt32BE(4 + pageSize) !== journalChecksum(bytes.subarray(4, -4), nonce)) return;
        const number = bytes.readUInt32BE(0);
        if (!this.laid.has(number)) this.laid.set(number, { fd, at: at + 4 });
      }
      at = Math.ceil(at / sector) * sector;
    }
  }
}

/** Returns the bytes of a page by a database's header; 0 for a size that no database has. */
function pageSizeIn(header: Buffer): number {
  const stored = header.readUInt16BE(16);
  const size = stored === 1 ? 1 << 16 : stored;
  return size >= 512 && (size & (size - 1)) === 0 ? size : 0;
}

/** The running checksum of a log. */
class LogChecksum {
  private readonly isBig: boolean;
  private a = 0;
  private b = 0;

  constructor(isBig: boolean) {
    this.isBig = isBig;
  }

  add(bytes: Buffer, length: number): void {
    const view = new DataView(bytes.buffer, bytes.byteOffset, length);
    let { a, b } = this;
    for (let i = 0; i + 8 <= length; i += 8) {
      a = (a + view.getUint32(i, !this.isBig) + b) >>> 0;
      b = (b + view.getUint32(i + 4, !this.isBig) + a) >>> 0;
    }
    this.a = a;
    this.b = b;
  }

  /** Returns whether the checksum that is written at a place is this one. */
  isAt(bytes: Buffer, at: number): boolean {
    return bytes.readUInt32BE(at) === this.a && bytes.readUInt32BE(at + 4) === this.b;
  }
}

function journalChecksum(page: Buffer, nonce: number): number {
  let sum = nonce;
  for (let i = page.length - 200; i > 0; i -= 200) sum = (sum + page[i]) >>> 0;
  return sum;
}
