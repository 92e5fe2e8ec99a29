/** Working copies of a fleet's sessions keep the contract of logs. Others are programs that know nothing of the fleet. */

import { describe } from "vitest";
import type { Fleet } from "../../../src/core/ports/fleet.ts";
import { makeFleetStore, withReplica } from "../../../src/modules/fleet/store.ts";
import type { FileLogOptions } from "../../../src/storage/log/write-state.ts";
import { keepsTheContract } from "../../storage/contract.ts";
import { FaultDisk } from "../../support/disk.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { acrossTiers, SWEEP } from "../../support/tiers.ts";
import { BACKENDS, type MachineKind } from "./support/machine.ts";
import { PGBOUNCER } from "./support/pooler.ts";
import { sqlFleet } from "./support/sql-fleet.ts";
import { fleetSuite } from "./support/sql-machines.ts";
import { fleetOptions, MemoryFleet } from "./support/table-fleet.ts";

const KINDS = ["jsonl", "v2"] as const;

/** Declares the contract for copies of a fleet, which has none before the tests begin. */
function keepsIt(kind: MachineKind, fleetOf: () => Fleet | undefined): void {
  keepsTheContract(`a fleet over ${kind}`, () => {
    const disk = new FaultDisk();
    disk.makeFolder("/root/sessions");
    const fleet = fleetOf();
    const ours = <T extends FileLogOptions>(options: T): T =>
      fleet ? withReplica(options, fleetOptions(fleet)) : options;
    const end = () => (fleet instanceof MemoryFleet ? fleet.table.check() : void fleet?.close());
    const harness = BACKENDS[kind](disk, "/root", { faults: disk }, end, ours);
    return { ...harness, store: makeFleetStore(harness.store), isCopied: true };
  });
}

acrossTiers(describe, KINDS)("working copies as %s", (kind) => keepsIt(kind, () => new MemoryFleet()));

describe("behind a pooler", { ...SWEEP, ...needs(POSTGRESQL, PGBOUNCER) }, () => {
  const suite = fleetSuite(undefined, { isPooled: true, keepsRows: true });
  let made = 0;
  for (const kind of KINDS)
    keepsIt(kind, () => suite.pooler && sqlFleet(`${suite.url}&tenant=test ${made++}`, "fleet").fleet);
});
