/** Sessions as JSONL files for the suite of the contract. */

import { join } from "node:path";
import type { Disk } from "../../../src/storage/fs/disk.ts";
import type { JsonlOptions } from "../../../src/storage/jsonl/log.ts";
import { makeJsonlStore } from "../../../src/storage/jsonl/store.ts";
import { testEnv } from "../../support/env.ts";
import { type LockTable, locksOf, locksOfOther } from "../../support/locks.ts";
import type { Files, Harness } from "../contract.ts";

/** `ours` makes the options of our own process; others are as they are. */
export function harnessOn(
  disk: Disk,
  root: string,
  more: Partial<Files>,
  close: () => void,
  ours: (options: JsonlOptions) => JsonlOptions = (options) => options,
): Harness {
  const folder = join(root, "sessions");
  const table: LockTable = new Map();
  const optionsOf = (client: string, readOnly = false, locks = locksOf(client, table)): JsonlOptions => ({
    disk,
    env: testEnv(),
    locks,
    quarantine: join(root, "quarantine"),
    durability: "sync",
    readOnly,
    fileFor: (header) => join(folder, `${header.id}.jsonl`),
  });
  const other: Files["other"] = (options = {}) =>
    makeJsonlStore(optionsOf("the other process", options.readOnly, locksOfOther(table, options)));
  return { store: makeJsonlStore(ours(optionsOf("this process"))), files: { disk, folder, other, ...more }, close };
}
