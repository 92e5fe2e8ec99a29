/** Reads the index: adds the entries that its rows name, from the heads of their frames. */

import { isMissing, isNoFile } from "../../core/errno.ts";
import { HEAD_BYTES } from "../../core/format/node-reader.ts";
import { indexFile } from "../fs/container-paths.ts";
import { type Disk, isCutOff, openFile } from "../fs/disk.ts";
import { readAt, useFile } from "../fs/files.ts";
import { scanLines } from "../log/lines.ts";
import type { Container } from "./container.ts";
import { crc32c } from "./crc32c.ts";
import type { RowMark, StoreEnd } from "./extents.ts";
import { decodeFrame, decodeHead, decodeRow, FRAME_HEAD_BYTES, type IndexRow, Malformed } from "./frame.ts";
import { addDamaged, addFrame, isBound, requireBound } from "./frame-entries.ts";
import { isOf } from "./salvage.ts";
import { getScratchBuffer, type Segment } from "./segments.ts";

/** Length up to which a frame is read together with later ones when its head is read. */
const SHORT_FRAME = 8 << 10;
const WINDOW = 256 << 10;

/** The rows of the index after the part that fits the segments. */
export interface Rest {
  readonly rows: readonly IndexRow[];
  /** True if all of these rows could be read. */
  readonly isIntact: boolean;
  /** Highest entry number in any row. */
  readonly promised: number;
}

/** The last accepted row, and the state before it. */
interface LastAccepted {
  readonly row: IndexRow;
  readonly nodeCount: number;
  readonly aliases: number;
  readonly damageCount: number;
  readonly end: StoreEnd;
}

/** The result of reading rows of the index. */
interface AcceptedRows {
  /** Reason why the row after the last accepted one was refused; null when none was. */
  readonly fault: string | null;
  readonly rest: Rest;
  /** Size of the index in bytes. */
  readonly size: number;
  /** True if rows of entries that were known before are exactly those that the index still lacked. */
  readonly known: boolean;
  readonly before: LastAccepted | null;
}

/** Returns the mark of the row that ends at byte `end` of the index. */
export function readRowMark(disk: Disk, fd: number, end: number, length: number): RowMark {
  return { length, crc: crc32c(readAt(disk, fd, end - length, length)) };
}

/** One reading of the index, for the segments that there are. */
export class IndexRows {
  private readonly container: Container;
  private readonly sizes: ReadonlyMap<number, number>;
  private window: { segmentSeq: number; start: number; bytes: Buffer } | null = null;

  constructor(container: Container, segments: readonly Segment[]) {
    this.container = container;
    this.sizes = new Map(segments.map(({ seq, size }) => [seq, size]));
  }

  /**
   * Reads the rows after the known part, and the heads of their frames, until one does not fit. If the bytes after the last
   * of these frames differ from the index, the frame itself must be whole, because its head does not contain its end.
   * `forgetRecalled` forgets everything that came from an index snapshot.
   */
  read(live: boolean, forgetRecalled: (() => void) | null): Rest {
    const { disk, folder, end } = this.container;
    let fd: number;
    try {
      fd = openFile(disk, indexFile(folder));
    } catch (error) {
      if (!isMissing(error) && !isNoFile(error)) throw error;
      end.indexFault = isMissing(error) ? "it is missing" : "it is not a file";
      return { rows: [], isIntact: false, promised: 0 };
    }
    return useFile(disk, fd, () => {
      let taken = this.addRows(fd);
      if ((taken.fault !== null || this.isMoreThere()) && !this.isLastWhole()) {
        if (forgetRecalled && !taken.before) {
          forgetRecalled();
          taken = this.addRows(fd);
        }
        if (taken.before && !this.isLastWhole()) taken = this.returnLast(taken.before, taken);
      }
      const { fault, rest, size } = taken;
      end.indexFault = fault;
      if (fault === null && end.indexEnd < size && !live) end.indexFault = "its last row was cut off";
      return { ...rest, isIntact: rest.isIntact && end.indexFault === fault };
    });
  }

  /** Returns whether segments hold bytes after the last known frame. */
  private isMoreThere(): boolean {
    const { segmentSeq, segmentSize } = this.container.end.tail;
    return [...this.sizes].some(([seq, size]) => size > (seq === segmentSeq ? segmentSize : 0) && seq >= segmentSeq);
  }

  /** Returns whether the last known frame is at its recorded place, with every byte. */
  private isLastWhole(): boolean {
    const { entries, extents } = this.container;
    const last = entries.nodes.count - 1;
    try {
      return last < 0 || this.container.crcAt(last) === extents.crcs.values[last];
    } catch (error) {
      if (isCutOff(error)) return false;
      throw error;
    }
  }

  /** Undoes the last accepted row, so that it is the first one that was refused. */
  private returnLast(before: LastAccepted, taken: AcceptedRows): AcceptedRows {
    const { row, nodeCount, aliases, damageCount, end: endBefore } = before;
    const { entries, end } = this.container;
    entries.forgetFrom(nodeCount);
    entries.damage.length = damageCount;
    entries.nodes.aliases = aliases;
    end.batch = end.batch.filter(({ position }) => position < nodeCount);
    end.goTo(endBefore);
    const fault = `of the row at byte ${end.indexEnd}, its frame is damaged`;
    return { ...taken, fault, rest: { ...taken.rest, rows: [row, ...taken.rest.rows] } };
  }

  /** Adds the entries of the rows after the known ones, as far as the byte `past` of the index. */
  addRows(fd: number, past?: number): AcceptedRows {
    const { disk, end, entries } = this.container;
    const rows: IndexRow[] = [];
    let fault: string | null = null;
    let promised = 0;
    let known = true;
    let isIntact = true;
    /** Lengths of the last row that was accepted, and of the one before it. */
    let length = 0;
    let lengthBefore = 0;
    let before: LastAccepted | null = null;
    const { lastRow } = end;
    const line = (_number: number, _start: number, b: Uint8Array, at: number, to: number): void => {
      let row: IndexRow | undefined;
      try {
        row = decodeRow(b, at, to);
        promised = Math.max(promised, row.entrySeq);
        if (fault !== null) {
          rows.push(row);
          return;
        }
        if (row.entrySeq > end.tail.entrySeq) {
          const { tail, indexEnd } = end;
          const { count: nodeCount, aliases } = entries.nodes;
          const damageCount = entries.damage.length;
          this.addRow(row);
          before = { row, nodeCount, aliases, damageCount, end: { tail, indexEnd, lastRow } };
        } else if (!this.isKnown(row)) {
          known = false;
          throw new Malformed(`entry ${row.entrySeq} has its row before`);
        }
        end.indexEnd += to - at + 1;
        lengthBefore = length;
        length = to - at + 1;
      } catch (error) {
        if (!(error instanceof Malformed)) throw error;
        fault ??= `of the row at byte ${end.indexEnd}, ${error.message}`;
        if (row) rows.push(row);
        else isIntact = false;
      }
    };
    const long = (): void => {
      fault ??= `a row at byte ${end.indexEnd} is too long`;
      isIntact = false;
    };
    const { size } = scanLines(disk, fd, end.indexEnd, HEAD_BYTES, { line, long }, getScratchBuffer(), past);
    const rowBefore = (at: number, length: number): RowMark =>
      length === 0 ? lastRow : readRowMark(disk, fd, at, length);
    end.lastRow = rowBefore(end.indexEnd, length);
    const last = before as LastAccepted | null;
    if (last) before = { ...last, end: { ...last.end, lastRow: rowBefore(last.end.indexEnd, lengthBefore) } };
    return { fault, size, known, rest: { rows, isIntact, promised }, before };
  }

  /** Returns whether a row is the next one that the index still lacked. If so, it is removed from the waiting rows. */
  private isKnown(row: IndexRow): boolean {
    const { end, extents } = this.container;
    const waiting = end.rows.length;
    const position = row.entrySeq - 1;
    const isNext = waiting > 0 && row.entrySeq === end.tail.entrySeq - waiting + 1;
    if (!isNext || extents.crcs.values[position] !== Number.parseInt(row.crc32c, 16)) return false;
    end.rows.shift();
    return true;
  }

  /** Adds the entry of a row if it follows the tail and its frame is within the segment; else throws Malformed. */
  private addRow(row: IndexRow): void {
    const { sizes } = this;
    const { tail } = this.container.end;
    if (row.entrySeq !== tail.entrySeq + 1)
      throw new Malformed(`entry ${tail.entrySeq + 1} was due, not ${row.entrySeq}`);
    const isNew = row.segmentSeq !== tail.segmentSeq;
    const due = isNew ? { frameSeq: 1, byteOffset: 0 } : { frameSeq: tail.frameSeq + 1, byteOffset: tail.segmentSize };
    if (isNew && row.segmentSeq !== tail.segmentSeq + 1)
      throw new Malformed(`segment ${row.segmentSeq} does not follow ${tail.segmentSeq}`);
    if (isNew && tail.segmentSeq > 0 && sizes.get(tail.segmentSeq) !== tail.segmentSize)
      throw new Malformed(`there are more frames in segment ${tail.segmentSeq}`);
    if (row.frameSeq !== due.frameSeq || row.byteOffset !== due.byteOffset)
      throw new Malformed(`frame ${due.frameSeq} at byte ${due.byteOffset} was due`);
    const size = sizes.get(row.segmentSeq) ?? 0;
    if (row.byteOffset + row.byteLength > size)
      throw new Malformed(`the frame would end after the ${size} bytes of segment ${row.segmentSeq}`);
    this.addIndexed(row);
  }

  /** Adds the entry of a row from the head of its frame, or from all of it if need be. Throws {@link Malformed}. */
  private addIndexed(row: IndexRow): void {
    const { container } = this;
    const { entries } = container;
    const { segmentSeq, byteOffset, byteLength } = row;
    const crc = Number.parseInt(row.crc32c, 16);
    const head = this.headAt(row);
    const usual = decodeHead(head, 0, head.length);
    if (usual !== null && usual.payloadEnd === byteLength - 2) {
      const enough = head.length >= Math.min(usual.payloadStart + HEAD_BYTES, usual.payloadEnd);
      const end = Math.min(head.length, usual.payloadEnd);
      const { payloadStart, payloadEnd } = usual;
      const isRead =
        enough &&
        (entries.heads.readFast(head, payloadStart, end, end === payloadEnd) ||
          entries.heads.readEnds(head, payloadStart, end, end === payloadEnd));
      if (isRead && isOf(usual, row) && isBound(entries, usual)) {
        addFrame(container, usual, byteOffset, byteLength, 0, crc);
        return;
      }
    }
    const bytes = container.reader.bytes(segmentSeq, byteOffset, byteLength);
    if (crc32c(bytes) !== crc) {
      // A damaged frame must end with its only line feed. Else bytes were inserted or removed, and later frames have moved,
      // too.
      if (bytes.indexOf(0x0a) !== bytes.length - 1) throw new Malformed("its frame is damaged");
      addDamaged(container, row, bytes, usual);
      return;
    }
    if (bytes[bytes.length - 1] !== 0x0a) throw new Malformed("its frame does not end with a line feed");
    const frame = decodeFrame(bytes, 0, bytes.length - 1, false);
    if (!isOf(frame, row)) throw new Malformed("its frame says something else");
    requireBound(entries, bytes, frame);
    addFrame(container, frame, byteOffset, byteLength, 0, crc);
  }

  /** Returns the frame of a row, or as much of its beginning as was read. */
  private headAt({ segmentSeq, byteOffset: start, byteLength: length }: IndexRow): Buffer {
    const wanted = Math.min(length, FRAME_HEAD_BYTES);
    const { window } = this;
    if (window?.segmentSeq === segmentSeq && start >= window.start) {
      const at = start - window.start;
      if (at + wanted <= window.bytes.length)
        return window.bytes.subarray(at, Math.min(at + length, window.bytes.length));
    }
    const fd = this.container.segments.fd(segmentSeq);
    const bytes = Buffer.allocUnsafe(length <= SHORT_FRAME ? WINDOW : wanted);
    let filled = 0;
    while (filled < bytes.length) {
      const count = this.container.disk.read(fd, bytes, filled, bytes.length - filled, start + filled);
      if (count <= 0) break;
      filled += count;
    }
    this.window = { segmentSeq, start, bytes: bytes.subarray(0, filled) };
    return this.window.bytes.subarray(0, Math.min(length, filled));
  }
}
