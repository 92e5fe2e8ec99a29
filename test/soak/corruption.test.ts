/** Every kind of damage at every byte of the last four records, and at many random places. */

import { checkDamaged, DAMAGES, type DamageKind, damaged, sample } from "../support/corruption.ts";
import {
  type ContainerSample,
  checkDamagedContainer,
  checkDamagedDisk,
  containerSample,
  lastRecords,
  partsIn,
} from "../support/corruption-v2.ts";
import type { Random } from "../support/random.ts";
import { soak } from "../support/soak.ts";

/** Returns how many damaged files it made. */
async function ofFile(random: Random, kind: DamageKind): Promise<number> {
  let count = 0;
  const last = sample(random, 5 + random.int(12));
  for (let at = last.starts[last.starts.length - 4]; at < last.bytes.length; at++, count++)
    await checkDamaged(last, damaged(last.bytes, kind, at, random));
  for (let n = 0; n < 300; n++, count++) {
    const file = sample(random, 5 + random.int(random.chance(0.2) ? 300 : 30));
    await checkDamaged(file, damaged(file.bytes, kind, random.int(file.bytes.length), random));
  }
  return count;
}

/** A segment and what tells of its frames, damaged together; or the segment twice. */
async function ofSegmentAndIndex(whole: ContainerSample, random: Random): Promise<void> {
  const disk = whole.disk.after();
  const files = partsIn(whole).filter((path) => /\.seg$|offsets\.jsonl$|snapshot\.bin$/.test(path));
  const paths = [random.pick(files.filter((path) => path.endsWith(".seg"))), random.pick(files)];
  for (const path of paths) {
    const bytes = Buffer.from(disk.content(path) ?? "");
    if (!path.endsWith(".seg") && random.chance(0.3)) disk.remove(path);
    else disk.put(path, damaged(bytes, random.pick(DAMAGES), random.int(bytes.length), random));
  }
  await checkDamagedDisk(whole, disk, paths);
}

/** Returns how many damaged containers it made, each file of a container in turn. */
async function ofContainer(random: Random, kind: DamageKind): Promise<number> {
  let count = 0;
  const whole = await containerSample(random, 5 + random.int(8));
  for (const path of partsIn(whole)) {
    const bytes = Buffer.from(whole.disk.content(path) as Uint8Array);
    // What the last records are made of is much the same; the segments have every byte, the rest some.
    const step = path.endsWith(".seg") ? 1 : 13;
    for (let at = lastRecords(bytes, 2); at < bytes.length; at += step, count++)
      await checkDamagedContainer(whole, path, damaged(bytes, kind, at, random));
    for (let n = 0; n < 20 && bytes.length > 0; n++, count++)
      await checkDamagedContainer(whole, path, damaged(bytes, kind, random.int(bytes.length), random));
  }
  for (let n = 0; n < 60; n++, count++) await ofSegmentAndIndex(whole, random);
  return count;
}

soak("corruption", async (random, number) => {
  const kind = DAMAGES[(number >> 1) % DAMAGES.length];
  const damagedFiles = number % 2 === 0 ? await ofFile(random, kind) : 0;
  const damagedContainers = number % 2 === 1 ? await ofContainer(random, kind) : 0;
  return { damaged: damagedFiles + damagedContainers, damagedContainers };
});
