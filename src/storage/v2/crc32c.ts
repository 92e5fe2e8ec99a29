/** CRC-32C (Castagnoli), which Node does not have. */

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
