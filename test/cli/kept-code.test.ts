/** When the machine code that a process made is kept for the next one. */

import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { readCode, saveCodeAsItGrows } from "../../src/cli/code-cache.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { temporaryPlace } from "../support/server.ts";

let file: string;
beforeEach(() => {
  vi.useFakeTimers();
  file = join(temporaryPlace().home, "cache", "a.code");
});
afterEach(() => void vi.useRealTimers());

const SECOND = 1000;
const bytes = (length: number): Uint8Array => new Uint8Array(length).fill(length);

/** A process whose code has `length` bytes when it is made. */
function processWith(length: number): { length: number } {
  const made = { length };
  saveCodeAsItGrows(realDisk, file, readCode(realDisk, file) !== undefined, () => bytes(made.length));
  return made;
}

const kept = (): number => readCode(realDisk, file)?.length ?? 0;

test("what is asked long after the start is kept, too, and what was forgotten since takes nothing away", () => {
  const made = processWith(1000);
  expect(kept()).toBe(0);
  vi.advanceTimersByTime(3 * SECOND);
  expect(kept()).toBe(1000);
  made.length = 1500;
  vi.advanceTimersByTime(60 * SECOND);
  expect(kept()).toBe(1500);
  made.length = 1200;
  vi.advanceTimersByTime(3600 * SECOND);
  expect(kept()).toBe(1500);
  processWith(2000);
  vi.advanceTimersByTime(3 * SECOND);
  expect(kept()).toBe(2000);
});

test("a process that knows less than another stored meanwhile leaves that", () => {
  processWith(1000);
  vi.advanceTimersByTime(3 * SECOND);
  const made = processWith(1000);
  processWith(3000);
  vi.advanceTimersByTime(3 * SECOND);
  made.length = 2000;
  vi.advanceTimersByTime(3600 * SECOND);
  expect(kept()).toBe(3000);
});

test("a process looks a few times and not for ever", () => {
  const make = vi.fn(() => bytes(1000));
  saveCodeAsItGrows(realDisk, file, false, make);
  vi.advanceTimersByTime(24 * 3600 * SECOND);
  expect(make.mock.calls.length).toBeLessThan(5);
  expect(vi.getTimerCount()).toBe(0);
});
