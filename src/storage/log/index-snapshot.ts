/**
 * The spine of a session as bytes: its nodes, and beside them whatever columns and facts a backend keeps of each entry.
 * Independent of any session format: what is kept of JSONL files and of containers is made of this. What is written is
 * read back into typed arrays as it stands, so that a million entries (45 MB) are there in some 50 ms where a scan of
 * their lines takes 700. It is derived and no record of anything: a file that is damaged, cut, or of another version or
 * byte order reads as null, and whoever asked works it out anew. Columns of long runs, as those that tell what is
 * inherited along a path, are kept as runs.
 *
 * Layout: `PISPINE2`, the length of the directory and the CRC-32 of all that follows (each 32 bits, little-endian);
 * the directory, a JSON text; the columns in the order in which the directory names them, each padded to 8 bytes.
 */

import { crc32 } from "node:zlib";
import { bytesOf, parse } from "../../core/json/json.ts";
import { FIGURES, type Nodes, type NodesImage, type NodesRest, ROLES } from "../../core/tree/nodes.ts";
import { type Disk, readAll, writeAll } from "../fs/disk.ts";

export type SpineColumn = Uint8Array | Uint16Array | Uint32Array | Int32Array | Float64Array;

/** What a backend keeps beside the nodes. */
export interface SpineExtras {
  /** By name; one value for each entry, or as many as the backend likes. */
  readonly columns: Readonly<Record<string, SpineColumn>>;
  /** Small, and JSON. */
  readonly facts: unknown;
}

interface ColumnFacts {
  readonly name: string;
  readonly kind: keyof typeof KINDS;
  /** Elements that stand here. */
  readonly stored: number;
  /** Elements of a column that stands here as runs: each one's value, and in a column before it where each ends. */
  readonly length?: number;
}

interface Directory {
  readonly littleEndian: boolean;
  readonly roles: readonly string[];
  readonly count: number;
  readonly rest: NodesRest;
  readonly facts: unknown;
  /** In the order in which they stand. */
  readonly columns: readonly ColumnFacts[];
}

const KINDS = { Uint8Array, Uint16Array, Uint32Array, Int32Array, Float64Array };
const MAGIC = bytesOf("PISPINE2");
const PREFIX = 16;
const ALIGNMENT = 8;
const LITTLE_ENDIAN = new Uint8Array(Uint32Array.of(1).buffer)[0] === 1;
/** Room for entries that are appended next, so that the first of them does not copy all columns. */
const ROOM = 4096;
/** Bytes of one read. */
const PIECE = 1 << 18;
/** Elements that a run must stand for on the average, so that a column is kept as runs. */
const WORTH = 64;
/** Columns of the nodes themselves; ends of runs, and columns of their tree and of a backend, stand behind a sign. */
const ENDS = "<";
const TREES = "^";
const BACKENDS = ".";
const NODE_COLUMNS = ["ids", "parents", "types", "roles", "flags", "table"] as const;

/** Writes a spine to an open file; answers how many bytes it took. Throws errno errors. */
export function writeSpine(disk: Disk, fd: number, nodes: Nodes, extras: SpineExtras): number {
  const image = nodes.image();
  const columns = [
    ...NODE_COLUMNS.map((name): [string, SpineColumn] => [name, image[name]]),
    ...signed(TREES, image.figures ?? {}),
    ...signed(BACKENDS, extras.columns),
  ].flatMap(([name, column]) => inRuns(name, column) ?? [asItStands(name, column)]);
  const directory: Directory = {
    littleEndian: LITTLE_ENDIAN,
    roles: ROLES,
    count: image.count,
    rest: image.rest,
    facts: extras.facts,
    columns: columns.map(({ facts }) => facts),
  };
  const text = bytesOf(JSON.stringify(directory));
  const pieces = [text, ...columns.map(({ column }) => bytesIn(column))].flatMap((piece) => [piece, padding(piece)]);
  let crc = 0;
  for (const piece of pieces) crc = crc32(piece, crc);
  const prefix = new Uint8Array(PREFIX);
  prefix.set(MAGIC);
  const numbers = new DataView(prefix.buffer);
  numbers.setUint32(8, text.length, true);
  numbers.setUint32(12, crc, true);
  let written = 0;
  for (const piece of [prefix, ...pieces]) {
    writeAll(disk, fd, piece);
    written += piece.length;
  }
  return written;
}

/**
 * Reads a spine that begins at `from` in an open file and makes it what `nodes`, which are empty, hold. Null, and the
 * nodes as they were, when what stands there is not a whole spine of this version; nothing is thrown.
 * `wanted` may refuse by the facts before the columns are read.
 */
export function readSpine(
  disk: Disk,
  fd: number,
  nodes: Nodes,
  from = 0,
  wanted: (facts: unknown) => boolean = () => true,
): SpineExtras | null {
  try {
    const end = disk.infoOf(fd).size;
    const prefix = new Uint8Array(PREFIX);
    readAll(disk, fd, prefix, from);
    if (MAGIC.some((byte, at) => prefix[at] !== byte)) return null;
    const numbers = new DataView(prefix.buffer);
    const directoryLength = numbers.getUint32(8, true);
    let at = from + PREFIX;
    if (directoryLength > end - at) return null;
    const text = new Uint8Array(padded(directoryLength));
    readAll(disk, fd, text, at);
    at += text.length;
    const directory = parse(text, 0, directoryLength) as Directory;
    if (directory.littleEndian !== LITTLE_ENDIAN || directory.roles.join() !== ROLES.join()) return null;
    if (!wanted(directory.facts)) return null;
    let crc = crc32(text);
    const read = new Map<string, SpineColumn>();
    for (const { name, kind, stored } of directory.columns) {
      const size = padded(stored * KINDS[kind].BYTES_PER_ELEMENT);
      if (!(size >= 0 && size <= end - at)) return null;
      const column = emptyColumn(name, kind, stored);
      crc = readSummed(disk, fd, new Uint8Array(column.buffer, 0, size), at, crc);
      at += size;
      read.set(name, column);
    }
    if (crc !== numbers.getUint32(12, true)) return null;
    for (const facts of directory.columns) spread(read, facts);
    const { count, rest } = directory;
    const own = Object.fromEntries(NODE_COLUMNS.map((name) => [name, read.get(name)]));
    const ofTree = unsigned(TREES, read);
    const figures = FIGURES.every((name) => name in ofTree) ? ofTree : null;
    if (!nodes.adopt({ count, rest, figures, ...own } as NodesImage)) return null;
    return { columns: unsigned(BACKENDS, read), facts: directory.facts };
  } catch {
    // Not there, cut off, or not JSON where the directory should be.
    return null;
  }
}

/** Reads in pieces that are still in the cache when they are summed, which takes a fifth less than one for a column. */
function readSummed(disk: Disk, fd: number, bytes: Uint8Array, from: number, before: number): number {
  let crc = before;
  for (let at = 0; at < bytes.length; at += PIECE) {
    const piece = bytes.subarray(at, at + PIECE);
    readAll(disk, fd, piece, from + at);
    crc = crc32(piece, crc);
  }
  return crc;
}

interface Stored {
  readonly facts: ColumnFacts;
  readonly column: SpineColumn;
}

function asItStands(name: string, column: SpineColumn): Stored {
  const kind = column.constructor.name as keyof typeof KINDS;
  return { facts: { name, kind, stored: column.length }, column };
}

/** Where the runs of a column end, and their values, where that is much shorter; else undefined. */
function inRuns(name: string, column: SpineColumn): [Stored, Stored] | undefined {
  const { length } = column;
  const ends: number[] = [];
  for (let at = 1; at <= length; at++)
    if (at === length || column[at] !== column[at - 1]) {
      if (ends.push(at) * WORTH > length) return undefined;
    }
  const values = asItStands(name, column.slice(0, ends.length));
  for (const [run, end] of ends.entries()) values.column[run] = column[end - 1];
  return [asItStands(ENDS + name, Uint32Array.from(ends)), { ...values, facts: { ...values.facts, length } }];
}

/** The table is as long as it is; it does not grow at its end. */
function emptyColumn(name: string, kind: keyof typeof KINDS, length: number): SpineColumn {
  return new KINDS[kind](name === "table" ? length : length + ROOM);
}

/** Makes a column that was read as runs what it was. */
function spread(read: Map<string, SpineColumn>, { name, kind, stored, length }: ColumnFacts): void {
  const ends = read.get(ENDS + name);
  const values = read.get(name);
  if (length === undefined || !ends || !values) return;
  const column = emptyColumn(name, kind, length);
  // It is all zeros now, and memory that nobody touches costs nothing.
  for (let run = 0, from = 0; run < stored; from = ends[run++])
    if (values[run] !== 0) column.fill(values[run], from, ends[run]);
  read.set(name, column);
}

function signed(sign: string, columns: Readonly<Record<string, SpineColumn>>): [string, SpineColumn][] {
  return Object.entries(columns).map(([name, column]) => [sign + name, column]);
}

function unsigned(sign: string, columns: ReadonlyMap<string, SpineColumn>): Record<string, SpineColumn> {
  const own = [...columns].filter(([name]) => name.startsWith(sign));
  return Object.fromEntries(own.map(([name, column]) => [name.slice(sign.length), column]));
}

function bytesIn(column: SpineColumn): Uint8Array {
  return new Uint8Array(column.buffer, column.byteOffset, column.byteLength);
}

function padded(size: number): number {
  return Math.ceil(size / ALIGNMENT) * ALIGNMENT;
}

function padding(piece: Uint8Array): Uint8Array {
  return new Uint8Array(padded(piece.length) - piece.length);
}
