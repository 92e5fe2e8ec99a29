/**
 * A first look at entry lines, 16 bytes at a time: a WebAssembly module, for JavaScript has no instructions for that, and
 * is slow until it was compiled. To answer 25 MB of entries takes a process that has just been started 62 ms of processor
 * time with this look, and 105 ms without. Whatever is unusual in a line is left to the reader of bodies.
 */

import { DIGITS, ESCAPES, makeModule, ROOM } from "./fast-path-module.ts";
import { ESCAPE, HEX } from "./json.ts";

/** Bytes that can be looked at together. */
export const LOOKED_AT = ROOM;

export interface FirstLook {
  /** What can be looked at. Nothing stays in it. */
  readonly bytes: Uint8Array;
  /**
   * Of a line `bytes[start, end)` that is JSON without white space and whose head is not ambiguous: where its message
   * begins, counted from `start`, if it is the last member; else 0. -1 for any other line: it takes a closer look.
   */
  readonly read: (start: number, end: number) => number;
}

/** What is used of the standard's interface. */
interface Machine {
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (
    module: object,
  ) => { readonly exports: { readonly m: { readonly buffer: ArrayBuffer }; readonly r: FirstLook["read"] } };
}

let made: FirstLook | null | undefined;

/** Made when it is first asked for, in 1 ms; null on a machine that does not have it. */
export function firstLook(): FirstLook | null {
  if (made !== undefined) return made;
  try {
    const { Module, Instance } = (globalThis as unknown as { WebAssembly: Machine }).WebAssembly;
    const { m, r } = new Instance(new Module(makeModule())).exports;
    const memory = new Uint8Array(m.buffer);
    memory.set(ESCAPE, ESCAPES);
    memory.set(HEX, DIGITS);
    made = { bytes: memory.subarray(0, ROOM), read: r };
  } catch {
    made = null;
  }
  return made;
}
