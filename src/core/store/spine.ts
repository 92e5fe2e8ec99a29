/**
 * The spine of a session as bytes: its nodes, and beside them whatever columns and facts a backend keeps of each entry.
 * Independent of any session format: JSONL's side index and V2's index are both made of this. What is written is read
 * back into typed arrays as it stands, one read for each column, so that a million entries (33 MB) are there in some
 * 40 ms where a scan of their lines takes a second. It is derived and no record of anything: a file that is damaged,
 * cut, or of another version or byte order reads as null, and whoever asked works it out anew.
 *
 * Layout: `PISPINE1`, the length of the directory and the CRC-32 of all that follows (each 32 bits, little-endian);
 * the directory, a JSON text; the columns in the order in which the directory names them, each padded to 8 bytes.
 */

import { crc32 } from "node:zlib";
import { bytesOf, parse } from "../json.ts";
import { type Nodes, type NodesImage, type NodesRest, ROLES } from "../nodes.ts";
import { type Disk, readAll, writeAll } from "./disk.ts";

export type SpineColumn = Uint8Array | Uint16Array | Uint32Array | Int32Array | Float64Array;

/** What a backend keeps beside the nodes. */
export interface SpineExtras {
  /** By name; one value for each entry, or as many as the backend likes. */
  readonly columns: Readonly<Record<string, SpineColumn>>;
  /** Small, and JSON. */
  readonly facts: unknown;
}

interface Directory {
  readonly littleEndian: boolean;
  readonly roles: readonly string[];
  readonly count: number;
  readonly rest: NodesRest;
  readonly facts: unknown;
  /** Name, element type and number of elements. */
  readonly columns: readonly (readonly [name: string, kind: keyof typeof KINDS, length: number])[];
}

const KINDS = { Uint8Array, Uint16Array, Uint32Array, Int32Array, Float64Array };
const MAGIC = bytesOf("PISPINE1");
const PREFIX = 16;
const ALIGNMENT = 8;
const LITTLE_ENDIAN = new Uint8Array(Uint32Array.of(1).buffer)[0] === 1;
/** Room for entries that are appended next, so that the first of them does not copy all columns. */
const ROOM = 4096;
/** Columns of the nodes themselves; a backend's own stand behind a dot. */
const NODE_COLUMNS = ["ids", "parents", "types", "roles", "flags", "table"] as const;

/** Writes a spine to an open file; answers how many bytes it took. Throws errno errors. */
export function writeSpine(disk: Disk, fd: number, nodes: Nodes, extras: SpineExtras): number {
  const image = nodes.image();
  const columns: [string, SpineColumn][] = [
    ...NODE_COLUMNS.map((name): [string, SpineColumn] => [name, image[name]]),
    ...Object.entries(extras.columns).map(([name, column]): [string, SpineColumn] => [`.${name}`, column]),
  ];
  const directory: Directory = {
    littleEndian: LITTLE_ENDIAN,
    roles: ROLES,
    count: image.count,
    rest: image.rest,
    facts: extras.facts,
    columns: columns.map(([name, column]) => [name, column.constructor.name as keyof typeof KINDS, column.length]),
  };
  const text = bytesOf(JSON.stringify(directory));
  const pieces = [text, ...columns.map(([, column]) => bytesIn(column))].flatMap((piece) => [piece, padding(piece)]);
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
    for (const [name, kind, length] of directory.columns) {
      const make = KINDS[kind];
      const size = length * make.BYTES_PER_ELEMENT;
      if (!(size >= 0 && padded(size) <= end - at)) return null;
      const roomy = new make(name === "table" ? length : length + ROOM);
      const bytes = new Uint8Array(roomy.buffer, 0, size);
      readAll(disk, fd, bytes, at);
      crc = crc32(bytes, crc);
      const pad = new Uint8Array(padded(size) - size);
      readAll(disk, fd, pad, at + size);
      crc = crc32(pad, crc);
      at += padded(size);
      read.set(name, roomy);
    }
    if (crc !== numbers.getUint32(12, true)) return null;
    const { count, rest } = directory;
    const own = Object.fromEntries(NODE_COLUMNS.map((name) => [name, read.get(name)]));
    if (!nodes.adopt({ count, rest, ...own } as NodesImage)) return null;
    const extras = [...read].filter(([name]) => name.startsWith("."));
    return {
      columns: Object.fromEntries(extras.map(([name, column]) => [name.slice(1), column])),
      facts: directory.facts,
    };
  } catch {
    // Not there, cut off, or not JSON where the directory should be.
    return null;
  }
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
