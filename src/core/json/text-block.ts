/** JSON text that is written as bytes, into blocks that are handed on when they are full. */

import { replaceHalves } from "./halves.ts";
import { toBytes } from "./json.ts";

const BLOCK = 1 << 18;
/** Size of the first block, because many replies are short. */
const FIRST_BLOCK = 1 << 13;
const HEX_DIGITS = toBytes("0123456789abcdef");

export class TextBlock {
  bytes: Uint8Array = new Uint8Array(FIRST_BLOCK);
  length = 0;

  /** Returns the written text, and begins a new block. */
  take(): Uint8Array {
    const taken = this.bytes.subarray(0, this.length);
    this.bytes = new Uint8Array(BLOCK);
    this.length = 0;
    return taken;
  }

  /** True if the block is nearly full. */
  get isFull(): boolean {
    return this.length > this.bytes.length - (this.bytes.length >> 3);
  }

  /** Sees to it that so many bytes can be written. */
  expect(count: number): void {
    if (this.length + count <= this.bytes.length) return;
    const wider = new Uint8Array(Math.max(this.bytes.length * 2, this.length + count));
    wider.set(this.bytes.subarray(0, this.length));
    this.bytes = wider;
  }

  byte(value: number): void {
    this.expect(1);
    this.bytes[this.length++] = value;
  }

  copy(b: Uint8Array, start: number, end: number): void {
    this.expect(end - start);
    const { bytes } = this;
    let { length } = this;
    // Copying short texts by a call takes longer.
    if (end - start > 64) {
      bytes.set(b.subarray(start, end), length);
      length += end - start;
    } else for (let i = start; i < end; i++) bytes[length++] = b[i];
    this.length = length;
  }

  all(b: Uint8Array): void {
    this.copy(b, 0, b.length);
  }

  json(value: unknown): void {
    this.all(toBytes(replaceHalves(JSON.stringify(value))));
  }

  /** Writes a number as eight hex digits. */
  hex(packed: number): void {
    this.expect(8);
    for (let shift = 28; shift >= 0; shift -= 4) this.bytes[this.length++] = HEX_DIGITS[(packed >>> shift) & 15];
  }

  /** Writes a whole number that is not negative. */
  number(value: number): void {
    this.expect(16);
    if (value > 9) this.number(Math.floor(value / 10));
    this.bytes[this.length++] = 0x30 + (value % 10);
  }
}
