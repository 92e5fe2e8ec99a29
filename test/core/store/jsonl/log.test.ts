/** Sessions as JSONL files keep the contract, on the disk and on the disk that the fault tests use. */

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Disk, realDisk } from "../../../../src/core/store/disk.ts";
import { jsonlStore } from "../../../../src/core/store/jsonl/log.ts";
import { FaultDisk } from "../../../support/disk.ts";
import { testEnv } from "../../../support/env.ts";
import { type LockTable, locksOf, locksOfOther } from "../../../support/locks.ts";
import { type Files, type Harness, keepsTheContract } from "../contract.ts";

function harnessOn(disk: Disk, root: string, more: Partial<Files>, close: () => void): Harness {
  const folder = join(root, "sessions");
  const table: LockTable = new Map();
  const process = (client: string, readOnly = false, locks = locksOf(client, table)) =>
    jsonlStore({
      disk,
      env: testEnv(),
      locks,
      quarantine: join(root, "quarantine"),
      cwd: root,
      durability: "sync",
      readOnly,
      fileFor: (header) => join(folder, `${header.id}.jsonl`),
    });
  const other: Files["other"] = (options = {}) =>
    process("the other process", options.readOnly, locksOfOther(table, options));
  return { store: process("this process"), files: { disk, folder, other, ...more }, close };
}

keepsTheContract("jsonl", () => {
  const root = mkdtempSync(join(tmpdir(), "pi-session-"));
  mkdirSync(join(root, "sessions"));
  const makeFifo = process.platform === "win32" ? undefined : (path: string) => void execFileSync("mkfifo", [path]);
  return harnessOn(realDisk, root, { makeFifo }, () => rmSync(root, { recursive: true }));
});

keepsTheContract("jsonl on a disk in memory", () => {
  const disk = new FaultDisk();
  disk.makeFolder("/root/sessions");
  return harnessOn(disk, "/root", { faults: disk }, () => {});
});
