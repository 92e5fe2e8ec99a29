/**
 * The index snapshot of a container: what opening it learns of its frames, in a compact file, so that not every row and
 * frame need be read again. The file is derived: it is used only as far as it fits the index, and a container opens
 * without it too. It grows by one block with every checkpoint: a fixed head, columns of the entries as they are in
 * memory, and their exceptions as JSON.
 */

import { crc32 } from "node:zlib";
import { bytesOf, parse } from "../../core/json/json.ts";
import type { Nodes } from "../../core/tree/nodes.ts";
import type { Extents, StoreEnd, Tail } from "./extents.ts";

const MAGIC = bytesOf("PSSpine2");
/**
 * Bytes of the fixed head: magic, length of the block, checksum of all after it, number of entries, length of the JSON
 * text.
 */
const FIXED = 24;
/** Bytes of one entry in all columns; the four-byte columns come first, so that each is aligned. */
const ENTRY = 4 * 6 + 2 + 1 + 1;

/** The part of a container that an index snapshot covers. */
export interface Coverage {
  /** Number of entries covered. */
  readonly count: number;
  readonly tail: Tail;
  /** Bytes of the index that hold their rows. */
  readonly indexEnd: number;
  /** Length and checksum of the last of those rows, to compare a block with the index. */
  readonly rowLength: number;
  readonly rowCrc: number;
}

/** Returns the coverage of all entries before an end. */
export function coverageOf({ tail, indexEnd, lastRow }: StoreEnd): Coverage {
  return { count: tail.entrySeq, tail, indexEnd, rowLength: lastRow.length, rowCrc: lastRow.crc };
}

interface Details extends Coverage {
  readonly from: number;
  /** Names of types by their codes. */
  readonly types: readonly string[];
  /** Ids that are not eight hex digits, by position. */
  readonly odd: readonly (readonly [number, string])[];
  /** Positions of entries whose parents come after them. */
  readonly forward: readonly number[];
  /** Positions of the first frames of segments. */
  readonly firsts: readonly number[];
}

/**
 * Encodes a block for the entries from `from` to the reach's count. Every parent must be there and no id taken twice:
 * other sessions get no index snapshot.
 */
export function encodeBlock(nodes: Nodes, extents: Extents, from: number, covered: Coverage): Uint8Array {
  const { count } = covered;
  const n = count - from;
  const { ids, parents, types, roles, flags, rest } = nodes.image();
  const { lengths, payloadStarts, payloadLengths, crcs } = extents.columns(count);
  const within = (position: number): boolean => position >= from && position < count;
  const firsts: number[] = [];
  for (let p = from; p < count; p++) if (extents.starts.values[p] === 0) firsts.push(p);
  const odd = rest.oddPositions
    .map((position, i) => [position, rest.oddIds[i]] as const)
    .filter(([position]) => within(position));
  const forward = rest.forward.filter(within);
  const text = bytesOf(JSON.stringify({ ...covered, from, types: rest.types, odd, forward, firsts } satisfies Details));
  const bytes = Buffer.alloc(FIXED + padded(n * ENTRY + text.length));
  bytes.set(MAGIC);
  bytes.writeUInt32LE(bytes.length, 8);
  bytes.writeUInt32LE(n, 16);
  bytes.writeUInt32LE(text.length, 20);
  let at = FIXED;
  for (const column of [ids, parents, lengths, payloadStarts, payloadLengths, crcs, types, roles, flags]) {
    const slice = column.subarray(from, count);
    bytes.set(new Uint8Array(slice.buffer, slice.byteOffset, slice.byteLength), at);
    at += slice.byteLength;
  }
  bytes.set(text, at);
  bytes.writeUInt32LE(crc32(bytes.subarray(16)), 12);
  return bytes;
}

/** Rounds up to a multiple of 8, so that the columns of every block are aligned. */
function padded(length: number): number {
  return (length + 7) & ~7;
}

/** A whole block of an index snapshot. */
interface SnapshotBlock {
  readonly details: Details;
  /** Start of the block in the file. */
  readonly start: number;
  readonly end: number;
}

/** Returns the blocks of a snapshot file, up to the first that is torn, damaged or does not continue the one before. */
export function readBlocks(file: Buffer): SnapshotBlock[] {
  const blocks: SnapshotBlock[] = [];
  let count = 0;
  for (let start = 0; start + FIXED <= file.length; ) {
    if (MAGIC.some((byte, i) => file[start + i] !== byte)) break;
    const end = start + file.readUInt32LE(start + 8);
    if (end > file.length || end < start + FIXED) break;
    if (crc32(file.subarray(start + 16, end)) !== file.readUInt32LE(start + 12)) break;
    const n = file.readUInt32LE(start + 16);
    const text = start + FIXED + n * ENTRY;
    const textEnd = text + file.readUInt32LE(start + 20);
    if (textEnd > end) break;
    let details: Details;
    try {
      details = parse(file, text, textEnd) as Details;
    } catch {
      break;
    }
    if (details.from !== count || details.count !== count + n) break;
    count += n;
    blocks.push({ details, start, end });
    start = end;
  }
  return blocks;
}

/**
 * Fills empty nodes and places from the blocks of a file. Returns false when the blocks were made with other known
 * types.
 */
export function loadBlocks(file: Buffer, blocks: readonly SnapshotBlock[], nodes: Nodes, extents: Extents): boolean {
  const last = blocks[blocks.length - 1].details;
  const { count } = last;
  // Room for what comes next, so that the first append need not copy the columns.
  const room = count + Math.max(1024, count >> 4);
  const numbers = Array.from({ length: 6 }, () => new Uint32Array(room));
  const [ids, segments, lengths, payloadStarts, payloadLengths, crcs] = numbers;
  const [parents, starts] = [new Int32Array(room), new Float64Array(room)];
  const [types, roles, flags] = [new Uint16Array(room), new Uint8Array(room), new Uint8Array(room)];
  const columns = [ids, parents, lengths, payloadStarts, payloadLengths, crcs, types, roles, flags];
  const odd: (readonly [number, string])[] = [];
  const forward: number[] = [];
  const firsts: number[] = [];
  for (const { details, start } of blocks) {
    const n = details.count - details.from;
    let at = start + FIXED;
    for (const column of columns) {
      const size = n * column.BYTES_PER_ELEMENT;
      new Uint8Array(column.buffer, details.from * column.BYTES_PER_ELEMENT, size).set(file.subarray(at, at + size));
      at += size;
    }
    odd.push(...details.odd);
    forward.push(...details.forward);
    firsts.push(...details.firsts);
  }
  const table = new Uint32Array(0);
  const ofIds = { oddPositions: odd.map(([position]) => position), oddIds: odd.map(([, id]) => id) };
  const none = { aliases: 0, losses: 0, tabled: 0, awaited: [], missingParent: [], bridged: [] };
  const rest = { ...none, ...ofIds, types: last.types, forward };
  if (!nodes.adopt({ count, ids, parents, types, roles, flags, table, counterColumns: null, rest })) return false;
  let from = 0;
  for (const [segmentSeq, end] of [...firsts, count].entries()) {
    segments.fill(segmentSeq, from, end);
    let at = 0;
    for (let p = from; p < end; p++) {
      starts[p] = at;
      at += lengths[p];
    }
    from = end;
  }
  extents.load({ segments, starts, lengths, payloadStarts, payloadLengths, crcs });
  return true;
}
