/** Sessions as Session Store V2 containers for the suite of the contract. */

import { join } from "node:path";
import { toBytes } from "../../../src/core/json/json.ts";
import { getPointerFile, headerFile, indexFile, segmentFile } from "../../../src/storage/fs/container-paths.ts";
import type { Disk } from "../../../src/storage/fs/disk.ts";
import { removeTree } from "../../../src/storage/fs/staging.ts";
import { makeSnapshotCache } from "../../../src/storage/log/snapshot-cache.ts";
import type { Durability } from "../../../src/storage/log/write-state.ts";
import { makeSegmentedStore, type SegmentedStoreOptions } from "../../../src/storage/v2/store.ts";
import { testEnv } from "../../support/env.ts";
import { type LockTable, locksOf, locksOfOther } from "../../support/locks.ts";
import { beginning } from "../../support/sessions.ts";
import { cutFile, storedText } from "../../support/v2.ts";
import type { Files, Harness, Layout } from "../contract.ts";

/** `ours` makes the options of our own process; others are as they are. */
export function harnessOn(
  disk: Disk,
  root: string,
  more: Partial<Files>,
  close: () => void,
  ours: (options: SegmentedStoreOptions) => SegmentedStoreOptions = (options) => options,
): Harness {
  const folder = join(root, "sessions");
  const table: LockTable = new Map();
  const optionsOf = (
    client: string,
    readOnly = false,
    durability: Durability = "sync",
    locks = locksOf(client, table),
  ): SegmentedStoreOptions => ({
    disk,
    env: testEnv(),
    locks,
    quarantine: join(root, "quarantine"),
    durability,
    readOnly,
    containerFor: (header) => join(folder, `${header.id}.v2`),
    // Small, so that the suite comes to segments that follow each other and to checkpoints.
    segmentBytes: 12 << 20,
    checkpointEvery: { entries: 5, bytes: 1 << 20 },
    snapshots: more.faults && makeSnapshotCache(disk, join(root, "state"), 1),
  });
  const process = (...given: Parameters<typeof optionsOf>) => makeSegmentedStore(optionsOf(...given));
  const other: Files["other"] = (options = {}) =>
    process("the other process", options.readOnly, "sync", locksOfOther(table, options));
  const stranger = process("a stranger", false, "os");
  const layout: Layout = {
    ending: ".v2",
    names: ["session.store.json", "session.v2"],
    kind: "folder",
    mode: 0o700,
    // Syncs of frames and rows, and of a checkpoint and its manifest.
    syncs: 4,
    textAt: (path) => storedText(disk, path),
    put(path, header, lines) {
      const log = stranger.create(beginning(header, path));
      log.append(lines.map((line) => toBytes(line)));
      log.close();
    },
    addMore(path, lines) {
      const log = stranger.open(path);
      log.append(lines.map((line) => toBytes(line)));
      log.close();
    },
    cut(path, count) {
      cutFile(disk, segmentFile(path, 1), count);
      cutFile(disk, indexFile(path), count);
    },
    remove(path) {
      // Under another name: open files stay open.
      disk.remove(getPointerFile(path));
      disk.remove(headerFile(path));
      removeTree(disk, path);
    },
  };
  return {
    store: makeSegmentedStore(ours(optionsOf("this process"))),
    files: { disk, folder, other, layout, ...more },
    close,
  };
}
