/** Sessions as Session Store V2 containers keep the contract, on the disk and on the disk that the fault tests use. The contract has a test in SWEEP. */

import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { FaultDisk } from "../../support/disk.ts";
import { keepsTheContract } from "../contract.ts";
import { harnessOn } from "./harness.ts";

keepsTheContract("v2", () => {
  const root = mkdtempSync(join(tmpdir(), "pi-session-"));
  mkdirSync(join(root, "sessions"));
  return harnessOn(realDisk, root, {}, () => rmSync(root, { recursive: true }));
});

keepsTheContract("v2 on a disk in memory", () => {
  const disk = new FaultDisk();
  disk.makeFolder("/root/sessions");
  return harnessOn(disk, "/root", { faults: disk }, () => {});
});
