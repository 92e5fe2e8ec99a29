/**
 * CRC-32C (Castagnoli), of bytes anywhere, and three times as fast of bytes in the memory of a WebAssembly module
 * (crc32c.wat), 3.5 GB/s: for passes over all frames of a container.
 */

import { CHUNK } from "../log/lines.ts";
import { MODULE } from "./crc32c-module.ts";

const POLYNOMIAL = 0x82f63b78;
/** Values in a table. */
const VALUES = 256;
/** Eight tables, to process eight bytes at a time. They take 1 ms to make, and only V2 stores need them. */
let tables: Uint32Array | undefined;

/** Fills tables with the effect of a byte on the checksum with 0, 1, 2 and so on bytes after it. */
function fillTables(into: Uint32Array): Uint32Array {
  for (let n = 0; n < VALUES; n++) {
    let crc = n;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ POLYNOMIAL : crc >>> 1;
    into[n] = crc;
  }
  for (let n = VALUES; n < into.length; n++) {
    const before = into[n - VALUES];
    into[n] = (before >>> 8) ^ into[before & 0xff];
  }
  return into;
}

/** Returns the CRC-32C of `b[start, end)`. */
export function crc32c(b: Uint8Array, start = 0, end = b.length): number {
  tables ??= fillTables(new Uint32Array(8 * VALUES));
  const t = tables;
  let crc = -1;
  let i = start;
  for (; i + 8 <= end; i += 8) {
    const low = crc ^ (b[i] | (b[i + 1] << 8) | (b[i + 2] << 16) | (b[i + 3] << 24));
    crc =
      t[1792 + (low & 0xff)] ^
      t[1536 + ((low >>> 8) & 0xff)] ^
      t[1280 + ((low >>> 16) & 0xff)] ^
      t[1024 + (low >>> 24)] ^
      t[768 + b[i + 4]] ^
      t[512 + b[i + 5]] ^
      t[256 + b[i + 6]] ^
      t[b[i + 7]];
  }
  for (; i < end; i++) crc = (crc >>> 8) ^ t[(crc ^ b[i]) & 0xff];
  return ~crc >>> 0;
}

const DIGITS = Array.from({ length: 256 }, (_, n) => n.toString(16).toUpperCase().padStart(2, "0"));

/** Returns a CRC as eight upper-case hex digits. */
export function formatCrc(crc: number): string {
  return DIGITS[crc >>> 24] + DIGITS[(crc >>> 16) & 0xff] + DIGITS[(crc >>> 8) & 0xff] + DIGITS[crc & 0xff];
}

/** Memory, with the checksums of its content. */
export interface SummedMemory {
  readonly bytes: Buffer;
  /** Returns the CRC-32C of `bytes[start, end)`. */
  readonly crc: (start: number, end: number) => number;
}

/** Returns memory of any length. */
export function makePlainMemory(length: number): SummedMemory {
  const bytes = Buffer.allocUnsafe(length);
  return { bytes, crc: (start, end) => crc32c(bytes, start, end) };
}

type SumExports = { readonly memory: WebAssembly.Memory; readonly crc: (at: number, end: number) => number };

/** Position of the bytes in the module's memory: after sixteen tables. */
const PLACE = 16 * VALUES * 4;

/** Returns memory of a chunk in a module of its own, made in 0.5 ms; where there is no WebAssembly, plain memory. */
export function makeFastMemory(): SummedMemory {
  try {
    const { Module, Instance } = WebAssembly;
    const { exports } = new Instance(new Module(Buffer.from(MODULE, "base64")));
    const { memory, crc } = exports as SumExports;
    fillTables(new Uint32Array(memory.buffer, 0, PLACE / 4));
    return {
      bytes: Buffer.from(memory.buffer, PLACE, CHUNK),
      crc: (start, end) => crc(PLACE + start, PLACE + end) >>> 0,
    };
  } catch {
    return makePlainMemory(CHUNK);
  }
}
