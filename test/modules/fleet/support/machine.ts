/** Machines with working copies of one session, over a fleet in memory. */

import { expect } from "vitest";
import { toBytes } from "../../../../src/core/json/json.ts";
import type { Log, Store } from "../../../../src/core/ports/store.ts";
import type { Journal } from "../../../../src/modules/fleet/replica/journal.ts";
import type { FleetOptions } from "../../../../src/modules/fleet/replica/options.ts";
import { Outage } from "../../../../src/modules/fleet/replica/outage.ts";
import { makeFleetStore, withReplica } from "../../../../src/modules/fleet/store.ts";
import type { Locks } from "../../../../src/storage/locks/locks.ts";
import type { FileLogOptions } from "../../../../src/storage/log/write-state.ts";
import { harnessOn as jsonlOn } from "../../../storage/jsonl/harness.ts";
import { harnessOn as containersOn } from "../../../storage/v2/harness.ts";
import { FaultDisk } from "../../../support/disk.ts";
import { id, SESSION, userText } from "../../../support/lines.ts";
import { beginning } from "../../../support/sessions.ts";
import { type FleetFault, FleetTable, fleetOptions, journalOn, MemoryFleet } from "./table-fleet.ts";

export const BACKENDS = { jsonl: jsonlOn, v2: containersOn };

export type MachineOptions = Partial<Omit<FleetOptions, "disk">> & {
  /** Number of times the fleet is asked again. */
  readonly tries?: number;
  /** True if it goes on while the fleet is away. */
  readonly isJournaled?: boolean;
  /** The disk of a machine whose process is gone, or has another one next to it. */
  readonly disk?: FaultDisk;
  /** The folder of its copy. */
  readonly folder?: string;
  /** Those of two processes of one machine. */
  readonly locks?: Locks;
};

export type MachineKind = keyof typeof BACKENDS;

/** A machine: a disk, and a way to the fleet. */
export class Machine {
  readonly disk: FaultDisk;
  readonly fleet: MemoryFleet;
  readonly quarantined: string[] = [];
  readonly journal: Journal;
  readonly outage: Outage | undefined;
  readonly store: Store;
  /** Programs that know nothing of the fleet. */
  readonly plain: Store;
  /** Another process of this machine, which keeps to the locks. */
  readonly other: Store;
  readonly file: string;

  constructor(
    kind: MachineKind,
    table = new FleetTable(),
    name = "one",
    { isJournaled = false, disk = new FaultDisk(), folder = "/root/sessions", locks, ...more }: MachineOptions = {},
  ) {
    this.disk = disk;
    this.fleet = new MemoryFleet(table, name);
    this.disk.makeFolder(folder);
    this.file = `${folder}/${SESSION}.${kind}`;
    this.journal = more.journal ?? journalOn(disk);
    this.outage = isJournaled ? new Outage(this.fleet, 0, () => 0) : undefined;
    const { journal, outage } = this;
    const ours = <T extends FileLogOptions>(options: T): T =>
      withReplica(
        { ...options, ...(locks ? { locks } : {}) },
        fleetOptions(this.fleet, { quarantined: this.quarantined, journal, outage, ...more }),
      );
    const { store, files } = BACKENDS[kind](this.disk, "/root", { faults: this.disk }, () => {}, ours);
    this.store = makeFleetStore(store);
    this.plain = files?.other({ ignoresLocks: true }) as Store;
    this.other = files?.other() as Store;
  }

  /** Sets the faults of later calls of the fleet. */
  fails(how: (name: string) => FleetFault | undefined): void {
    this.fleet.faultAt = (_, name) => how(name);
  }

  create(): Log {
    return this.store.create(beginning(undefined, this.file));
  }

  /** Puts lines there as if they had been copied from another machine. */
  put(lines: readonly string[]): Promise<void> {
    return this.addPlainly(lines, this.plain.create(beginning(undefined, this.file)));
  }

  /** Puts the copy back to lines that it had, as a disk does that lost the others. */
  revert(had: readonly string[]): Promise<void> {
    const { disk, file } = this;
    if (disk.paths().some((path) => path.startsWith(`${file}/`) || path === file))
      disk.rename(file, `${file}.${disk.paths().length}.away`);
    for (const path of disk.paths()) if (path.endsWith(".store.json")) disk.remove(path);
    return this.put(had);
  }

  /** Adds lines as a program does that knows nothing of the fleet, or as a server that died before it gave them. */
  async addPlainly(lines: readonly string[], log = this.plain.open(this.file)): Promise<void> {
    log.append(lines.map((line) => toBytes(line)));
    await log.commit();
    log.close();
  }
}

/** A second machine with the same copy. Leases have run out for it. */
export async function second(
  kind: MachineKind,
  one: Machine,
  had: readonly string[],
): Promise<{ two: Machine; other: Log }> {
  const two = new Machine(kind, one.fleet.table, "two");
  two.fleet.leasesEnd = true;
  await two.put(had);
  const other = two.store.open(two.file);
  await other.replica?.ready();
  return { two, other };
}

export const line = (n: number): string => userText(id(n), n === 0 ? null : id(n - 1));
export const lines = (...ns: number[]): Uint8Array[] => ns.map((n) => toBytes(line(n)));
export const written = async (log: Log, ...ns: number[]): Promise<void> => {
  log.append(lines(...ns));
  await log.commit();
};
export const failed = (name: string, more: object = {}) => expect.objectContaining({ name, ...more });

/**
 * Lets a machine that writes nothing find out: answers to background requests are known a moment later. The next write
 * reports a failure of these.
 */
export async function followed(log: Log): Promise<void> {
  for (let turns = 0; turns < 50; turns++) {
    await log.replica?.follow()?.catch(() => {});
    await Promise.resolve();
  }
}

/** Lets a machine find out, as far as calls arrive, what became of its session. Returns the log in its place now. */
export async function found(log: Log): Promise<Log> {
  let now = log;
  for (let n = 0; n < 8; n++) {
    await now.replica?.ready();
    if (now.refresh().kind === "replaced") {
      const next = now.reopen();
      now.close();
      now = next;
    }
    await Promise.resolve();
  }
  return now;
}
