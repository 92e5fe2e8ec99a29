/** When the machine code that a process made is kept for the next one. */

import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { codeIn, keepAsItGrows } from "../../src/cli/kept-code.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { temporaryPlace } from "../support/server.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const SECOND = 1000;
const bytes = (length: number): Uint8Array => new Uint8Array(length).fill(length);

/** A process whose code has `length` bytes when it is made. */
function processWith(file: string, length: number): { length: number } {
  const made = { length };
  keepAsItGrows(realDisk, file, codeIn(realDisk, file) !== undefined, () => bytes(made.length));
  return made;
}

const keptIn = (file: string): number => codeIn(realDisk, file)?.length ?? 0;

test("what is asked long after the start is kept, too, and what was forgotten since takes nothing away", () => {
  const file = join(temporaryPlace().home, "cache", "a.code");
  const made = processWith(file, 1000);
  expect(keptIn(file)).toBe(0);
  vi.advanceTimersByTime(3 * SECOND);
  expect(keptIn(file)).toBe(1000);
  made.length = 1500;
  vi.advanceTimersByTime(60 * SECOND);
  expect(keptIn(file)).toBe(1500);
  made.length = 1200;
  vi.advanceTimersByTime(3600 * SECOND);
  expect(keptIn(file)).toBe(1500);
  processWith(file, 2000);
  vi.advanceTimersByTime(3 * SECOND);
  expect(keptIn(file)).toBe(2000);
});

test("a process that knows less than another stored meanwhile leaves that", () => {
  const file = join(temporaryPlace().home, "cache", "a.code");
  processWith(file, 1000);
  vi.advanceTimersByTime(3 * SECOND);
  const made = processWith(file, 1000);
  processWith(file, 3000);
  vi.advanceTimersByTime(3 * SECOND);
  made.length = 2000;
  vi.advanceTimersByTime(3600 * SECOND);
  expect(keptIn(file)).toBe(3000);
});

test("a process looks a few times and not for ever", () => {
  const file = join(temporaryPlace().home, "cache", "a.code");
  const make = vi.fn(() => bytes(1000));
  keepAsItGrows(realDisk, file, false, make);
  vi.advanceTimersByTime(24 * 3600 * SECOND);
  expect(make.mock.calls.length).toBeLessThan(5);
  expect(vi.getTimerCount()).toBe(0);
});
