/** Every kind of damage at every byte of the last records, and at many random places. */

import { DAMAGES, damageFiles } from "../support/corruption.ts";
import { damageContainers } from "../support/corruption-v2.ts";
import { soak } from "../support/soak.ts";

soak("corruption", async (random, number) => {
  const kind = DAMAGES[(number >> 1) % DAMAGES.length];
  if (number % 2 === 0) return { damaged: await damageFiles(random, kind, 1, 300), damagedContainers: 0 };
  // What the last records are made of is much the same; the segments have every byte, the rest some.
  const extent = { records: 2, step: (isSegment: boolean) => (isSegment ? 1 : 13), more: 20, pairs: 60 };
  const damagedContainers = await damageContainers(random, kind, extent);
  return { damaged: damagedContainers, damagedContainers };
});
