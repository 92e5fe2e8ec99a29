/**
 * Whatever happens to the bytes of a session file, the records that it did not touch are there (short form; every
 * byte in soak).
 */

import { describe, test } from "vitest";
import { checkDamaged, DAMAGES, damaged, sample } from "../support/corruption.ts";
import { forSeedsAsync } from "../support/random.ts";

describe.each(DAMAGES)("%s", (kind) => {
  test("in the last four records costs what it touches", async () => {
    await forSeedsAsync(6, async (random) => {
      const file = sample(random, 5 + random.int(12));
      const from = file.starts[file.starts.length - 4];
      for (let at = from; at < file.bytes.length; at += 1 + random.int(12))
        await checkDamaged(file, damaged(file.bytes, kind, at, random));
    });
  });

  test("anywhere costs what it touches", async () => {
    await forSeedsAsync(60, async (random) => {
      const file = sample(random, 5 + random.int(random.chance(0.2) ? 200 : 20));
      const at = random.int(file.bytes.length);
      await checkDamaged(file, damaged(file.bytes, kind, at, random));
    });
  });
});
