/** Working copies of a fleet's sessions keep the contract of logs. Others are programs that know nothing of the fleet. */

import { describe } from "vitest";
import { copying, fleetStore } from "../../../src/storage/fleet/store.ts";
import type { FileLogOptions } from "../../../src/storage/log/write-state.ts";
import { FaultDisk } from "../../support/disk.ts";
import { fleetOptions, MemoryFleet } from "../../support/fleet.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { keepsTheContract } from "../contract.ts";
import { harnessOn as jsonlOn } from "../jsonl/harness.ts";
import { harnessOn as containersOn } from "../v2/harness.ts";

const BACKENDS = { jsonl: jsonlOn, v2: containersOn };

acrossTiers(describe, ["jsonl", "v2"] as const)("working copies as %s", (kind) =>
  keepsTheContract(`a fleet over ${kind}`, () => {
    const disk = new FaultDisk();
    disk.makeFolder("/root/sessions");
    const fleet = new MemoryFleet();
    const ours = <T extends FileLogOptions>(options: T): T => copying(options, fleetOptions(fleet));
    const harness = BACKENDS[kind](disk, "/root", { faults: disk }, () => fleet.table.check(), ours);
    return { ...harness, store: fleetStore(harness.store), isCopied: true };
  }),
);
