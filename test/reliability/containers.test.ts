/** Whatever happens to the bytes of a container's files, the entries that it did not touch are there (long in soak). */

import { describe, expect, test } from "vitest";
import { DAMAGES, damaged } from "../support/corruption.ts";
import { checkDamagedContainer, containerSample, lastRecords, partsIn } from "../support/corruption-v2.ts";
import { forSeedsAsync } from "../support/random.ts";
import { acrossTiers } from "../support/tiers.ts";

describe.each(DAMAGES)("%s", (kind) => {
  acrossTiers(test, [4, 1])(
    "in the last three records of any file costs what it touches (in steps of %i)",
    async (steps) => {
      let count = 0;
      await forSeedsAsync(1, async (random) => {
        const sample = await containerSample(random, 5 + random.int(8));
        for (const path of partsIn(sample)) {
          const bytes = Buffer.from(sample.disk.content(path) as Uint8Array);
          const step = steps * (path.endsWith(".seg") ? 300 : 900);
          for (let at = lastRecords(bytes, 3); at < bytes.length; at += 1 + random.int(step), count++)
            await checkDamagedContainer(sample, path, damaged(bytes, kind, at, random));
        }
      });
      expect(count).toBeGreaterThan(steps === 1 ? 8 : 4);
    },
  );
});
