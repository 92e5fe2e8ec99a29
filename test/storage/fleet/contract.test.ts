/** Working copies of a fleet's sessions keep the contract of logs. Others are programs that know nothing of the fleet. */

import { copying, fleetStore } from "../../../src/storage/fleet/store.ts";
import type { FileLogOptions } from "../../../src/storage/log/write-state.ts";
import { FaultDisk } from "../../support/disk.ts";
import { fleetOptions, MemoryFleet } from "../../support/fleet.ts";
import { keepsTheContract } from "../contract.ts";
import { harnessOn as jsonlOn } from "../jsonl/harness.ts";
import { harnessOn as containersOn } from "../v2/harness.ts";

for (const [name, harnessOn] of [
  ["jsonl", jsonlOn],
  ["v2", containersOn],
] as const)
  keepsTheContract(`a fleet over ${name}`, () => {
    const disk = new FaultDisk();
    disk.makeFolder("/root/sessions");
    const fleet = new MemoryFleet();
    const ours = <T extends FileLogOptions>(options: T): T => copying(options, fleetOptions(fleet));
    const harness = harnessOn(disk, "/root", { faults: disk }, () => fleet.table.check(), ours);
    return { ...harness, store: fleetStore(harness.store), isCopied: true };
  });
