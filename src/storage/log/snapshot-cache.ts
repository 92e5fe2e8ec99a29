/**
 * The index snapshot of a session as bytes: its nodes, and the columns and facts that a backend keeps for its entries.
 * The format is independent of the session format; JSONL files and containers both use it. The bytes are read back
 * directly into typed arrays, so that a million entries (45 MB) load in about 50 ms, where a scan of their lines takes
 * 700. A snapshot is derived: a file that is damaged, truncated, or of another version or byte order reads as null, and
 * the caller scans the session instead. Columns with long runs, such as those of values that are inherited along a
 * path, are stored as runs.
 *
 * Layout: `PISPINE2`, the length of the directory and the CRC-32 of all that follows (each 32 bits, little-endian);
 * the directory, a JSON text; the columns in the order of the directory, each padded to 8 bytes.
 *
 * The cache keeps those of large sessions in our state folder. Each is named by the device and inode of its session
 * file, and is used only after the caller has compared its facts with that file. When there are too many, the oldest go.
 */

import { join } from "node:path";
import { crc32 } from "node:zlib";
import { parse, toBytes } from "../../core/json/json.ts";
import { COUNTERS, type Nodes, type NodesImage, type NodesRest, ROLES } from "../../core/tree/nodes.ts";
import { type Disk, type FileInfo, readAll, removeQuietly, writeAll } from "../fs/disk.ts";
import { putInPlaceNow, useFile } from "../fs/files.ts";

export type SnapshotColumn = Uint8Array | Uint16Array | Uint32Array | Int32Array | Float64Array;

/** Data that a backend keeps in addition to the nodes. */
interface SnapshotExtras {
  /** Columns by name, of any length; usually one value for each entry. */
  readonly columns: Readonly<Record<string, SnapshotColumn>>;
  /** A small JSON value. */
  readonly facts: unknown;
}

interface ColumnFacts {
  readonly name: string;
  readonly kind: keyof typeof KINDS;
  /** Elements stored in the file. */
  readonly stored: number;
  /** Elements of a column that is stored as runs: their values here, and their ends in a column before it. */
  readonly length?: number;
}

interface Directory {
  readonly littleEndian: boolean;
  readonly roles: readonly string[];
  readonly facts: unknown;
  /** The columns in the order of the file. */
  readonly columns: readonly ColumnFacts[];
}

/** The facts of an index snapshot. */
interface IndexFacts {
  readonly count: number;
  readonly rest: NodesRest;
  readonly facts: unknown;
}

const KINDS = { Uint8Array, Uint16Array, Uint32Array, Int32Array, Float64Array };
const MAGIC = toBytes("PISPINE2");
const PREFIX = 16;
const ALIGNMENT = 8;
const LITTLE_ENDIAN = new Uint8Array(Uint32Array.of(1).buffer)[0] === 1;
/** Spare elements of a column that is read, so that the next append does not copy all columns. */
const SPARE = 4096;
/** Bytes of one read. */
const PIECE = 1 << 18;
/** Minimum average length of runs for a column to be stored as runs. */
const WORTH = 64;
/** Prefixes of names: of ends of runs, of columns of the tree, of a backend's. Columns of the nodes have none. */
const ENDS = "<";
const TREES = "^";
const BACKENDS = ".";
const NODE_COLUMNS = ["ids", "parents", "types", "roles", "flags", "table"] as const;

/** Writes an index snapshot to an open file. Returns the number of bytes written. Throws errno errors. */
export function writeIndexSnapshot(disk: Disk, fd: number, nodes: Nodes, { columns, facts }: SnapshotExtras): number {
  const { count, rest, counterColumns, ...image } = nodes.image();
  const own = NODE_COLUMNS.map((name): [string, SnapshotColumn] => [name, image[name]]);
  const others = [...signed(TREES, counterColumns ?? {}), ...signed(BACKENDS, columns)];
  const all = Object.fromEntries([...own, ...others]);
  let written = 0;
  for (const piece of encodeColumns({ columns: all, facts: { count, rest, facts } satisfies IndexFacts })) {
    writeAll(disk, fd, piece);
    written += piece.length;
  }
  return written;
}

/**
 * Reads the index snapshot at `from` in an open file into the empty `nodes`. Returns null, and leaves the nodes
 * unchanged, when there is no complete snapshot of this version; never throws. `wanted` may refuse the snapshot by its
 * facts before the columns are read.
 */
export function readIndexSnapshot(
  disk: Disk,
  fd: number,
  nodes: Nodes,
  from = 0,
  wanted: (facts: unknown) => boolean = () => true,
): SnapshotExtras | null {
  const found = readColumns(disk, fd, from, SPARE, (facts) => wanted((facts as IndexFacts).facts));
  if (found === null) return null;
  const { count, rest, facts } = found.facts as IndexFacts;
  const ofTree = unsigned(TREES, found.columns);
  const counterColumns = COUNTERS.every((name) => name in ofTree) ? ofTree : null;
  if (!nodes.adopt({ ...found.columns, count, rest, counterColumns } as NodesImage)) return null;
  return { columns: unsigned(BACKENDS, found.columns), facts };
}

/** Returns columns and facts as the bytes of a file, in pieces. */
export function encodeColumns({ columns, facts }: SnapshotExtras): Uint8Array[] {
  const stored = Object.entries(columns).flatMap(([name, column]) => inRuns(name, column) ?? [asStored(name, column)]);
  const about = stored.map(({ facts }) => facts);
  const directory: Directory = { littleEndian: LITTLE_ENDIAN, roles: ROLES, facts, columns: about };
  const text = toBytes(JSON.stringify(directory));
  const bytes = stored.map(
    ({ column: { buffer, byteOffset, byteLength } }) => new Uint8Array(buffer, byteOffset, byteLength),
  );
  const pieces = [text, ...bytes].flatMap((piece) => [piece, new Uint8Array(padded(piece.length) - piece.length)]);
  let crc = 0;
  for (const piece of pieces) crc = crc32(piece, crc);
  const prefix = new Uint8Array(PREFIX);
  prefix.set(MAGIC);
  const numbers = new DataView(prefix.buffer);
  numbers.setUint32(8, text.length, true);
  numbers.setUint32(12, crc, true);
  return [prefix, ...pieces];
}

/**
 * Reads the columns and facts at `from` in an open file, and where they end. Each column gets `spare` elements more.
 * Returns null if they are not complete, or of another version, or `wanted` refuses the facts; never throws.
 */
export function readColumns(
  disk: Disk,
  fd: number,
  from: number,
  spare: number,
  wanted: (facts: unknown) => boolean,
): (SnapshotExtras & { readonly end: number }) | null {
  try {
    const { size } = disk.infoOf(fd);
    const prefix = new Uint8Array(PREFIX);
    readAll(disk, fd, prefix, from);
    if (MAGIC.some((byte, at) => prefix[at] !== byte)) return null;
    const numbers = new DataView(prefix.buffer);
    const directoryLength = numbers.getUint32(8, true);
    let at = from + PREFIX;
    if (directoryLength > size - at) return null;
    const text = new Uint8Array(padded(directoryLength));
    readAll(disk, fd, text, at);
    at += text.length;
    const { littleEndian, roles, facts, columns } = parse(text, 0, directoryLength) as Directory;
    if (littleEndian !== LITTLE_ENDIAN || roles.join() !== ROLES.join()) return null;
    if (!wanted(facts)) return null;
    let crc = crc32(text);
    const read: Record<string, SnapshotColumn> = {};
    for (const { name, kind, stored } of columns) {
      const length = padded(stored * KINDS[kind].BYTES_PER_ELEMENT);
      if (!(length >= 0 && length <= size - at)) return null;
      const column = emptyColumn(name, kind, stored, spare);
      crc = readSummed(disk, fd, new Uint8Array(column.buffer, 0, length), at, crc);
      at += length;
      read[name] = column;
    }
    if (crc !== numbers.getUint32(12, true)) return null;
    for (const column of columns) spread(read, column, spare);
    return { columns: read, facts, end: at };
  } catch {
    // The snapshot is missing or truncated, or its directory is not JSON.
    return null;
  }
}

/** Reads in pieces that are still in the cache when their CRC is computed: a fifth faster than whole columns. */
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
  readonly column: SnapshotColumn;
}

function asStored(name: string, column: SnapshotColumn): Stored {
  const kind = column.constructor.name as keyof typeof KINDS;
  return { facts: { name, kind, stored: column.length }, column };
}

/** Returns the ends of a column's runs, and their values, if that is much shorter; otherwise undefined. */
function inRuns(name: string, column: SnapshotColumn): [Stored, Stored] | undefined {
  const { length } = column;
  const ends: number[] = [];
  for (let at = 1; at <= length; at++)
    if (at === length || column[at] !== column[at - 1]) {
      if (ends.push(at) * WORTH > length) return undefined;
    }
  const values = asStored(name, column.slice(0, ends.length));
  for (const [run, end] of ends.entries()) values.column[run] = column[end - 1];
  return [asStored(ENDS + name, Uint32Array.from(ends)), { ...values, facts: { ...values.facts, length } }];
}

/** Returns a column with room for its padding and spare elements; the table, which does not grow there, needs neither. */
function emptyColumn(name: string, kind: keyof typeof KINDS, length: number, spare: number): SnapshotColumn {
  return new KINDS[kind](name === "table" ? length : length + Math.max(spare, ALIGNMENT));
}

/** Restores a column that was stored as runs. */
function spread(
  read: Record<string, SnapshotColumn>,
  { name, kind, stored, length }: ColumnFacts,
  spare: number,
): void {
  const { [ENDS + name]: ends, [name]: values } = read;
  if (length === undefined || !ends || !values) return;
  const column = emptyColumn(name, kind, length, spare);
  // The column is all zeros already, and memory that is never touched costs nothing.
  for (let run = 0, from = 0; run < stored; from = ends[run++])
    if (values[run] !== 0) column.fill(values[run], from, ends[run]);
  read[name] = column;
}

function signed(sign: string, columns: Readonly<Record<string, SnapshotColumn>>): [string, SnapshotColumn][] {
  return Object.entries(columns).map(([name, column]) => [sign + name, column]);
}

function unsigned(sign: string, columns: Readonly<Record<string, SnapshotColumn>>): Record<string, SnapshotColumn> {
  const own = Object.entries(columns).filter(([name]) => name.startsWith(sign));
  return Object.fromEntries(own.map(([name, column]) => [name.slice(sign.length), column]));
}

function padded(size: number): number {
  return Math.ceil(size / ALIGNMENT) * ALIGNMENT;
}

export interface SnapshotCache {
  /** Bytes below which a session gets no snapshot. */
  readonly minBytes: number;
  /** Fills the empty `nodes` from the snapshot of a file. Returns null if it is missing or its facts do not hold. */
  load(info: FileInfo, nodes: Nodes, holds: (facts: unknown) => boolean): SnapshotExtras | null;
  /**
   * Saves a snapshot of a file. Best effort: errors are ignored. With `isLast`, the nodes and columns do not change any
   * more, so that a server may write them after its reply: 45 MB for a million entries take 90 ms.
   */
  store(info: FileInfo, nodes: Nodes, extras: SnapshotExtras, isLast?: boolean): void;
  /** Writes the postponed snapshot. */
  settle(): void;
}

/** Bytes below which a session gets no snapshot: its lines are read in a few milliseconds. */
const MIN_BYTES = 4 << 20;
const MAX_FILES = 64;

/** `later` runs work when no caller waits; without it, nothing is postponed. */
export function makeSnapshotCache(
  disk: Disk,
  stateFolder: string,
  minBytes: number = MIN_BYTES,
  later?: (work: () => void) => void,
): SnapshotCache {
  /** The snapshot that was put off. */
  let waiting: { readonly path: string; readonly write: () => void } | undefined;
  const settle = (): void => {
    const put = waiting;
    waiting = undefined;
    put?.write();
  };
  const folder = join(stateFolder, "spines");
  const fileOf = ({ device, inode }: FileInfo): string => join(folder, `${device}-${inode}.spine`);

  return {
    minBytes,

    settle,

    load(info, nodes, holds) {
      if (waiting?.path === fileOf(info)) settle();
      try {
        return useFile(disk, disk.openRead(fileOf(info)), (fd) => readIndexSnapshot(disk, fd, nodes, 0, holds));
      } catch {
        return null;
      }
    },

    store(info, nodes, extras, isLast = false) {
      // Only one is postponed at a time: it holds a whole session in memory.
      settle();
      if (!later || !isLast) {
        write(info, nodes, extras);
        return;
      }
      waiting = { path: fileOf(info), write: () => write(info, nodes, extras) };
      later(settle);
    },
  };

  function write(info: FileInfo, nodes: Nodes, extras: SnapshotExtras): void {
    try {
      disk.makeFolder(folder);
      const fill = (fd: number): unknown => writeIndexSnapshot(disk, fd, nodes, extras);
      putInPlaceNow(disk, fileOf(info), fill, { replace: true, sync: false });
      dropOldest();
    } catch {
      // The next opening scans the session.
    }
  }

  function dropOldest(): void {
    const files = disk.names(folder).map((name) => join(folder, name));
    if (files.length <= MAX_FILES) return;
    const byAge = files
      .map((file) => ({ file, modified: disk.info(file).modified }))
      .sort((a, b) => a.modified - b.modified);
    for (const { file } of byAge.slice(0, files.length - MAX_FILES)) removeQuietly(disk, file);
  }
}
