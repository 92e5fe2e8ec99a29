/** The writes to a session file that are not durable yet. They are cut off only if checksums prove that they are ours. */

import { crc32 } from "node:zlib";
import type { SessionFile } from "./session-file.ts";

interface Written {
  readonly start: number;
  readonly length: number;
  readonly lines: number;
  readonly crc: number;
}

export class PendingWrites {
  private readonly file: SessionFile;
  private writes: Written[] = [];

  constructor(file: SessionFile) {
    this.file = file;
  }

  /** Number of lines that they hold. */
  get lines(): number {
    return this.writes.reduce((sum, { lines }) => sum + lines, 0);
  }

  add(start: number, bytes: Uint8Array, lines: number): void {
    this.writes.push({ start, length: bytes.length, lines, crc: crc32(bytes) });
  }

  /** Forgets the writes that begin before an offset. */
  forgetBefore(offset: number): void {
    if (this.writes.length > 0) this.writes = this.writes.filter(({ start }) => start >= offset);
  }

  clear(): void {
    this.writes = [];
  }

  /** Whether the file has them as we wrote them, and ends at `size`. */
  areOurs(size: number): boolean {
    try {
      if (this.file.info().size !== size) return false;
      return this.writes.every(({ start, length, crc }) => {
        const bytes = Buffer.allocUnsafe(length);
        this.file.read(bytes, start);
        return crc32(bytes) === crc;
      });
    } catch {
      return false;
    }
  }
}
