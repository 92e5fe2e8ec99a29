/** The medium is awaited by a clock of the test. */

import { expect, test } from "vitest";
import { makeAdaptiveSync } from "../../../src/storage/fs/adaptive-sync.ts";

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Syncs whose n-th takes so many milliseconds, or fails, and their ways; the test ends those in the background. */
function medium(durations: readonly (number | Error)[] = [], isHeld = false) {
  let clock = 0;
  let next = 0;
  const ways: string[] = [];
  const ends: (() => void)[] = [];
  const go = (way: string): void => {
    ways.push(way);
    const duration = durations[next++] ?? 0;
    if (duration instanceof Error) throw duration;
    clock += duration;
  };
  const inBackground = async (): Promise<void> => {
    go("beside");
    if (isHeld) await new Promise<void>((resolve) => ends.push(resolve));
  };
  return { ...makeAdaptiveSync({ atOnce: () => go("at once"), inBackground, now: () => clock }), ways, ends };
}

const EIO = new Error("EIO");

test.each<[string, (number | Error)[], string]>([
  ["that was quick the last time is waited for at once", [0.2, 0.2, 0.2], "beside, at once, at once"],
  ["that is slow holds nothing up", [8, 8], "beside, beside"],
  ["that becomes slow does so once", [0.1, 30, 30, 0.1, 0.1], "beside, at once, beside, beside, at once"],
  ["that fails says so either way, and is next asked beside", [EIO, 0.1, EIO, 0.1], "beside, beside, at once, beside"],
])("a medium %s", async (_, durations, wanted) => {
  const { sync, ways } = medium(durations);
  for (const duration of durations) {
    if (duration instanceof Error) await expect(sync(3)).rejects.toBe(duration);
    else await sync(3);
  }
  expect(ways.join(", ")).toBe(wanted);
});

test("while one is under way the next goes beside, too", async () => {
  const { sync, ways, ends } = medium([], true);
  const first = sync(3);
  await turn();
  const both = [first, sync(4)];
  await turn();
  for (const end of ends) end();
  await Promise.all(both);
  await sync(3);
  expect(ways).toEqual(["beside", "beside", "at once"]);
});

test("one that had to block tells how quick the medium is, too", async () => {
  const { sync, syncNow, ways } = medium();
  syncNow(3);
  await sync(3);
  expect(ways).toEqual(["at once", "at once"]);
});

test.each([1, 2, 3])("of %i that are asked for together, more than two go beside, at the same time", async (count) => {
  const { sync, ways, ends } = medium([], true);
  const first = sync(3);
  await turn();
  ends.splice(0)[0]();
  await first;
  ways.length = 0;
  const all = Promise.all(Array.from({ length: count }, (_, fd) => sync(fd)));
  await turn();
  expect(ways).toEqual(Array(count).fill(count < 3 ? "at once" : "beside"));
  for (const end of ends) end();
  await all;
});

test("what is to go beside does, however quick the medium was, and says nothing about the next one", async () => {
  const { sync, ways } = medium();
  for (const isOther of [false, false]) await sync(3, isOther);
  const large = sync(3, true);
  // It begins at once: a writer that goes on in the same turn does so next to it.
  expect(ways).toHaveLength(3);
  await large;
  await sync(3);
  expect(ways).toEqual(["beside", "at once", "beside", "at once"]);
});
