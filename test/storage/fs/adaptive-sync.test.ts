/** Where the medium is waited for, by a clock of the test. */

import { expect, test } from "vitest";
import { quickSync } from "../../../src/storage/fs/adaptive-sync.ts";

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Syncs that take so many milliseconds each; answers the ways they went. */
async function waysOf(...durations: (number | Error)[]): Promise<string[]> {
  let clock = 0;
  let next = 0;
  const ways: string[] = [];
  const go = (way: string): void => {
    ways.push(way);
    const duration = durations[next++];
    if (duration instanceof Error) throw duration;
    clock += duration;
  };
  const { sync } = quickSync({
    atOnce: () => go("at once"),
    inBackground: async () => go("beside"),
    now: () => clock,
  });
  for (const duration of durations) {
    if (duration instanceof Error) await expect(sync(3)).rejects.toBe(duration);
    else await sync(3);
  }
  return ways;
}

test("a medium is waited for at once when it was quick the last time", async () => {
  expect(await waysOf(0.2, 0.2, 0.2)).toEqual(["beside", "at once", "at once"]);
});

test("a slow medium holds nothing up, and one that becomes slow does so once", async () => {
  expect(await waysOf(8, 8)).toEqual(["beside", "beside"]);
  expect(await waysOf(0.1, 30, 30, 0.1, 0.1)).toEqual(["beside", "at once", "beside", "beside", "at once"]);
});

test("a sync that fails says so either way, and the next one is made beside", async () => {
  const failure = new Error("EIO");
  expect(await waysOf(failure, 0.1, failure, 0.1)).toEqual(["beside", "beside", "at once", "beside"]);
});

test("while one is under way the next goes beside, too", async () => {
  const ways: string[] = [];
  const ends: (() => void)[] = [];
  const { sync } = quickSync({
    atOnce: () => ways.push("at once"),
    inBackground: () => {
      ways.push("beside");
      return new Promise((resolve) => ends.push(resolve));
    },
    now: () => 0,
  });
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
  const ways: string[] = [];
  let clock = 0;
  const { sync, syncNow } = quickSync({
    atOnce: () => ways.push("at once"),
    inBackground: async () => {
      ways.push("beside");
      clock += 8;
    },
    now: () => clock,
  });
  syncNow(3);
  await sync(3);
  expect(ways).toEqual(["at once", "at once"]);
});

test("many that are asked for together go beside, at the same time, and one or two are waited for at once", async () => {
  const ways: string[] = [];
  const { sync } = quickSync({
    atOnce: () => ways.push("at once"),
    inBackground: async () => {
      ways.push("begun");
      await undefined;
      ways.push("ended");
    },
    now: () => 0,
  });
  await sync(3);
  for (const count of [2, 3, 1]) {
    ways.length = 0;
    await Promise.all(Array.from({ length: count }, (_, fd) => sync(fd)));
    expect(ways).toEqual(
      count < 3 ? Array(count).fill("at once") : ["begun", "begun", "begun", "ended", "ended", "ended"],
    );
  }
});

test("what is to go beside does, however quick the medium was, and says nothing about the next one", async () => {
  const ways: string[] = [];
  const { sync } = quickSync({
    atOnce: () => ways.push("at once"),
    inBackground: async () => {
      ways.push("beside");
    },
    now: () => 0,
  });
  for (const beside of [false, false]) await sync(3, beside);
  const large = sync(3, true);
  // It begins at once: whoever writes on in the same turn does so beside it.
  expect(ways).toHaveLength(3);
  await large;
  await sync(3);
  expect(ways).toEqual(["beside", "at once", "beside", "at once"]);
});
