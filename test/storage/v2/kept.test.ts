/**
 * What is kept of a container in the state folder saves time and nothing else: opened with it, a session is what the
 * container says.
 */

import { expect, test } from "vitest";
import { bytesOf } from "../../../src/core/json/json.ts";
import { indexFile, indexSnapshotFile, segmentFile } from "../../../src/storage/fs/container-paths.ts";
import { snapshotCache } from "../../../src/storage/log/snapshot-cache.ts";
import { FaultDisk } from "../../support/disk.ts";
import { assistantText, entryText, headerText, id, userText } from "../../support/lines.ts";
import { outcome } from "../../support/outcome.ts";
import { forSeedsAsync, isEvery, type Random } from "../../support/random.ts";
import { beginning, FOLDER, STATE } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { CONTAINER, containerWith, cutFile, v2On } from "../../support/v2.ts";

function randomLines(random: Random, from: number, count: number): string[] {
  return Array.from({ length: count }, (_, i) => {
    const n = from + i;
    const parent = n === 0 ? null : id(random.chance(0.8) ? n - 1 : random.int(n));
    return random.pick([
      () => userText(id(n), parent),
      () => assistantText(id(n), parent, "x".repeat(random.int(200))),
      () => entryText("label", id(n), parent, { targetId: id(random.int(n + 1)), label: "keep" }),
      () => entryText("compaction", id(n), parent, { summary: "so far", firstKeptEntryId: id(n), tokensBefore: 9 }),
      () => entryText("thinking_level_change", id(n), parent, { thinkingLevel: "high" }),
    ])();
  });
}

const opened = (disk: FaultDisk, withKept: boolean): unknown =>
  outcome(() => v2On(disk, withKept ? { snapshots: snapshotCache(disk, STATE, 1) } : {}).open(CONTAINER));

const keptFiles = (disk: FaultDisk): string[] => disk.paths().filter((path) => path.startsWith(`${STATE}/spines/`));

function flip(random: Random, disk: FaultDisk, path: string): void {
  const bytes = Uint8Array.from(disk.content(path) as Uint8Array);
  bytes[random.int(bytes.length)] ^= 1 << random.int(8);
  const fd = disk.openAppend(path);
  disk.truncate(fd, 0);
  disk.write(fd, bytes);
  disk.close(fd);
}

acrossTiers(test, [5, 16])(
  "a container is what it says, whatever happened to it or to what is kept of it (%i)",
  async (count) => {
    let kept = 0;
    await forSeedsAsync(count, async (random) => {
      const entries = 1 + random.int(30);
      const disk = await containerWith(randomLines(random, 0, entries), {
        segmentBytes: 4096,
        checkpointEvery: { entries: 7, bytes: 1 << 20 },
      });
      const before = opened(disk, false);
      expect(opened(disk, true)).toEqual(before);
      kept += keptFiles(disk).length;
      const happened = random.pick([
        () => "nothing",
        () => {
          const log = v2On(disk).open(CONTAINER);
          log.append(randomLines(random, entries, 1 + random.int(9)).map((line) => bytesOf(line)));
          log.close();
          return "more entries by a program that keeps nothing";
        },
        () => {
          for (const path of keptFiles(disk)) flip(random, disk, path);
          return "a bit of what is kept";
        },
        () => {
          flip(random, disk, segmentFile(CONTAINER, 1));
          return "a bit of the first segment";
        },
        () => {
          cutFile(disk, indexFile(CONTAINER), random.int(entries));
          return "an index that was cut";
        },
        () => {
          disk.remove(indexSnapshotFile(CONTAINER));
          return "no spine of its own";
        },
      ])();
      const plain = opened(disk, false);
      expect(opened(disk, true), happened).toEqual(plain);
      expect(opened(disk, true), happened).toEqual(plain);
    });
    expect(kept).toBeGreaterThan(0.75 * count);
  },
);

test("a container of any number of ids that are not eight hex digits opens by its snapshot", async () => {
  const odd = (n: number): string => `message ${n}`;
  // Above some 120,000, a list of them can no longer be given to a function as its arguments.
  const count = isEvery() ? 150_000 : 1500;
  const lines = Array.from({ length: count }, (_, n) => userText(odd(n), n === 0 ? null : odd(n - 1)));
  const disk = new FaultDisk();
  disk.makeFolder(FOLDER);
  const made = await v2On(disk).publish(beginning(headerText(), CONTAINER), [bytesOf(`${lines.join("\n")}\n`)]);
  made.close();
  expect(disk.content(indexSnapshotFile(CONTAINER))).toBeDefined();
  const log = v2On(disk).open(CONTAINER);
  expect([log.nodes.count, log.nodes.id(count - 1), log.damage]).toEqual([count, odd(count - 1), []]);
  log.close();
});

test("a container that was only opened is not written to", async () => {
  await forSeedsAsync(1, async (random) => {
    const disk = await containerWith(randomLines(random, 0, 20));
    const stored = (): string[] =>
      disk
        .paths()
        .map((path) =>
          path.startsWith(STATE) ? "" : `${path} ${Buffer.from(disk.content(path) ?? []).toString("hex")}`,
        );
    const before = stored().filter((text) => text !== "");
    opened(disk, true);
    expect(keptFiles(disk)).toHaveLength(1);
    expect(stored().filter((text) => text !== "")).toEqual(before);
  });
});

test("what is kept of a container that is closed is written when nobody waits for it, and is what it was then", async () => {
  await forSeedsAsync(4, async (random) => {
    const disk = await containerWith(randomLines(random, 0, 5));
    const plain = opened(disk, false);
    const held: (() => void)[] = [];
    const snapshots = snapshotCache(disk, STATE, 1, (work) => held.push(work));
    v2On(disk, { snapshots }).open(CONTAINER).close();
    expect([keptFiles(disk), held.length]).toEqual([[], 1]);
    // Another process adds entries meanwhile.
    const isGrown = random.chance(0.5);
    if (isGrown) {
      const log = v2On(disk).open(CONTAINER);
      log.append(randomLines(random, 5, 3).map((line) => bytesOf(line)));
      log.close();
    }
    for (const work of held.splice(0)) work();
    expect(keptFiles(disk)).toHaveLength(1);
    expect(opened(disk, true)).toEqual(isGrown ? opened(disk, false) : plain);
  });
});
