/**
 * The index snapshot of a session as bytes: its nodes, and the columns and facts that a backend keeps for its entries.
 * Containers, and the caches of other agents' sessions, use it. The bytes are read back directly into typed arrays. A
 * snapshot is derived: a file that is damaged, truncated, or of another version or byte order reads as null, and the
 * caller reads the session instead.
 *
 * Layout: `PISPINE2`, the length of the directory and the CRC-32 of all that follows (each 32 bits, little-endian);
 * the directory, a JSON text; the columns in the order of the directory, each padded to 8 bytes.
 */

import { crc32 } from "node:zlib";
import { parse, toBytes } from "../../core/json/json.ts";
import { type Nodes, type NodesImage, type NodesRest, ROLES } from "../../core/tree/nodes.ts";
import { type Disk, readAll, writeAll } from "../fs/disk.ts";

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
  readonly length: number;
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
/** Prefix of the names of a backend's columns. Columns of the nodes have none. */
const BACKENDS = ".";
const NODE_COLUMNS = ["ids", "parents", "types", "roles", "flags", "table"] as const;

/** Writes an index snapshot to an open file. Returns the number of bytes written. Throws errno errors. */
export function writeIndexSnapshot(disk: Disk, fd: number, nodes: Nodes, { columns, facts }: SnapshotExtras): number {
  const { count, rest, ...image } = nodes.image();
  const own = NODE_COLUMNS.map((name): [string, SnapshotColumn] => [name, image[name]]);
  const others = Object.entries(columns).map(([name, column]): [string, SnapshotColumn] => [BACKENDS + name, column]);
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
  if (!nodes.adopt({ ...found.columns, count, rest } as unknown as NodesImage)) return null;
  const own = Object.entries(found.columns).filter(([name]) => name.startsWith(BACKENDS));
  return { columns: Object.fromEntries(own.map(([name, column]) => [name.slice(BACKENDS.length), column])), facts };
}

/** Returns columns and facts as the bytes of a file, in pieces. */
export function encodeColumns({ columns, facts }: SnapshotExtras): Uint8Array[] {
  const about = Object.entries(columns).map(([name, column]): ColumnFacts => {
    return { name, kind: column.constructor.name as keyof typeof KINDS, length: column.length };
  });
  const directory: Directory = { littleEndian: LITTLE_ENDIAN, roles: ROLES, facts, columns: about };
  const text = toBytes(JSON.stringify(directory));
  const bytes = Object.values(columns).map(
    ({ buffer, byteOffset, byteLength }) => new Uint8Array(buffer, byteOffset, byteLength),
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
    for (const { name, kind, length } of columns) {
      const bytes = padded(length * KINDS[kind].BYTES_PER_ELEMENT);
      if (!(bytes >= 0 && bytes <= size - at)) return null;
      // The table does not grow there, and needs no room for padding and spare elements.
      const column = new KINDS[kind](name === "table" ? length : length + Math.max(spare, ALIGNMENT));
      crc = readSummed(disk, fd, new Uint8Array(column.buffer, 0, bytes), at, crc);
      at += bytes;
      read[name] = column;
    }
    if (crc !== numbers.getUint32(12, true)) return null;
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

function padded(size: number): number {
  return Math.ceil(size / ALIGNMENT) * ALIGNMENT;
}
