/** Work on all rows of a catalog, in slices between which other requests are answered. */

import { pause } from "../fs/chunked-io.ts";
import { readClock } from "../fs/clock.ts";

/** Milliseconds of work without a pause. */
export const SLICE = 8;
/** Items between two looks at the clock. */
const LOOK_AFTER = 16;
/** Items that are sorted without a pause, which takes 2 to 5 ms. */
const SORTED_AT_ONCE = 8192;

export async function visitInSlices<T>(items: Iterable<T>, visit: (item: T) => void): Promise<void> {
  let since = readClock();
  let count = 0;
  for (const item of items) {
    visit(item);
    if (++count % LOOK_AFTER !== 0 || readClock() - since < SLICE) continue;
    await pause();
    since = readClock();
  }
}

/** Returns the items that fit, in their order. */
export async function filterInSlices<T>(items: Iterable<T>, fits: (item: T) => boolean): Promise<T[]> {
  const found: T[] = [];
  await visitInSlices(items, (item) => {
    if (fits(item)) found.push(item);
  });
  return found;
}

/** Returns the items in order: parts of them are sorted, and then merged by twos. */
export async function sortInSlices<T>(items: readonly T[], compare: (a: T, b: T) => number): Promise<T[]> {
  let parts: T[][] = [];
  for (let at = 0; at < items.length; at += SORTED_AT_ONCE) {
    if (at > 0) await pause();
    parts.push(items.slice(at, at + SORTED_AT_ONCE).sort(compare));
  }
  while (parts.length > 1) {
    const merged: T[][] = [];
    for (let i = 0; i < parts.length; i += 2)
      merged.push(i + 1 < parts.length ? await mergedInSlices(parts[i], parts[i + 1], compare) : parts[i]);
    parts = merged;
  }
  return parts[0] ?? [];
}

async function mergedInSlices<T>(first: T[], second: T[], compare: (a: T, b: T) => number): Promise<T[]> {
  const merged: T[] = [];
  let at = 0;
  await visitInSlices(first, (item) => {
    while (at < second.length && compare(second[at], item) < 0) merged.push(second[at++]);
    merged.push(item);
  });
  for (; at < second.length; at++) merged.push(second[at]);
  return merged;
}
