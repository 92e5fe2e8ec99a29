/** Work on all rows in slices has the same result as at once, and lets other work go on. */

import { expect, test } from "vitest";
import { filterInSlices, sortInSlices, visitInSlices } from "../../src/storage/catalog/slices.ts";
import { forSeedsAsync } from "../support/random.ts";

test("sorting keeps equal items in their order, however many there are", async () => {
  await forSeedsAsync(6, async (random) => {
    const items = Array.from({ length: random.pick([0, 1, 8192, 8193, 20_000]) }, (_, nth) => {
      return { key: random.int(500), nth };
    });
    const compare = (a: { key: number }, b: { key: number }): number => a.key - b.key;
    expect(await sortInSlices(items, compare)).toEqual([...items].sort(compare));
  });
});

test("what takes long pauses, and what is added meanwhile is visited", async () => {
  let turns = 0;
  const timer = setInterval(() => turns++, 1);
  const numbers = new Set([1]);
  let sum = 0;
  await visitInSlices(numbers, (number) => {
    sum += number;
    if (number < 50) numbers.add(number + 1);
    for (const from = performance.now(); performance.now() - from < 1; );
  });
  clearInterval(timer);
  expect(sum).toBe(1275);
  expect(turns).toBeGreaterThan(0);
  expect(await filterInSlices(numbers, (number) => number % 10 === 0)).toEqual([10, 20, 30, 40, 50]);
});
