/** Every kind of damage at every byte of the last four records, and at many random places (acceptance 3, long form). */

import { describe, test } from "vitest";
import { checkDamaged, DAMAGES, damaged, sample } from "../support/corruption.ts";
import { forSeedsAsync } from "../support/random.ts";

describe.each(DAMAGES)("%s", (kind) => {
  test("at every byte of the last four records costs what it touches", async () => {
    let count = 0;
    await forSeedsAsync(10, async (random) => {
      const file = sample(random, 5 + random.int(12));
      for (let at = file.starts[file.starts.length - 4]; at < file.bytes.length; at++, count++)
        await checkDamaged(file, damaged(file.bytes, kind, at, random));
    });
    console.info(`${kind}: ${count} damaged files`);
  });

  test("anywhere costs what it touches", async () => {
    await forSeedsAsync(3000, async (random) => {
      const file = sample(random, 5 + random.int(random.chance(0.2) ? 300 : 30));
      await checkDamaged(file, damaged(file.bytes, kind, random.int(file.bytes.length), random));
    });
  });
});
