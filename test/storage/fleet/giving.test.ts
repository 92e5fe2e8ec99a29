/** What a server gives to its fleet beside everything else: entries that only its machine has, of sessions it has left. */

import { describe, expect, test } from "vitest";
import { bytesOf } from "../../../src/core/json/json.ts";
import type { Log } from "../../../src/core/ports/store.ts";
import { BackgroundGiving } from "../../../src/storage/fleet/giving.ts";
import type { Journal } from "../../../src/storage/fleet/journal.ts";
import { line, Machine, type MachineKind, written } from "../../support/fleet-machine.ts";
import { id, SESSION, userText } from "../../support/lines.ts";
import { textsOf } from "../../support/sessions.ts";

/** A machine whose server has left a session with an entry that the fleet has not, and what gives it. */
async function left(kind: MachineKind): Promise<{
  machine: Machine;
  giving: BackgroundGiving;
  journal: Journal;
  clock: { now: number };
}> {
  const machine = new Machine(kind, undefined, "one", { isJournaled: true });
  const { journal } = machine;
  const log = machine.create();
  await written(log, 0);
  machine.fleet.faultAt = () => "before";
  await written(log, 1);
  log.close();
  const clock = { now: 0 };
  const giving = new BackgroundGiving(
    { journal, openCopy: machine.store.open, find: () => machine.file },
    { elapsed: () => clock.now, followedEvery: 100 },
  );
  // It has been there for a while.
  clock.now = 500;
  return { machine, giving, journal, clock };
}

/** Lets everything run that waits for nothing but its turn. */
async function turns(count = 60): Promise<void> {
  for (let n = 0; n < count; n++) await Promise.resolve();
}

const nobody = (): Log[] => [];
const inFleet = ({ fleet }: Machine): string[] => fleet.table.linesOf(SESSION);

describe.each(["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  test("a session that was left is given when the fleet is back, unless it is open", async () => {
    const { machine, giving, clock } = await left(kind);
    giving.renew(nobody);
    await turns();
    expect(inFleet(machine)).toEqual([line(0)]);
    machine.fleet.faultAt = () => undefined;
    clock.now = 1000;
    const { length } = machine.fleet.calls;
    const opened = machine.store.open(machine.file);
    giving.renew(() => [opened]);
    await turns();
    expect(machine.fleet.calls).toHaveLength(length);
    opened.close();
    clock.now = 2000;
    giving.renew(nobody);
    await turns();
    expect(inFleet(machine)).toEqual([0, 1].map(line));
    expect(machine.disk.paths().filter((path) => path.includes("fleet-journal/"))).toEqual([]);
    // Nobody has it.
    expect(machine.fleet.table.rows.get(SESSION)?.holder).toBe(null);
  });

  test("a copy that is open for reading only holds up nothing, whichever copy owes it", async () => {
    const { machine, giving, clock } = await left(kind);
    const { disk, journal, fleet } = machine;
    fleet.faultAt = () => undefined;
    fleet.table.leave();
    const folder = "/root/other";
    const beside = new Machine(kind, fleet.table, "one", { isJournaled: true, disk, journal, folder });
    await beside.put([line(0)]);
    const readers = [machine.store.open(machine.file, true), beside.store.open(beside.file, true)];
    expect(readers.map(({ readOnly }) => readOnly?.name)).toEqual(["read_only", "read_only"]);
    for (const end = clock.now + 3_600_000; clock.now < end; clock.now += 60_000) {
      giving.renew(() => readers);
      await turns();
    }
    expect(inFleet(machine)).toEqual([0, 1].map(line));
    expect(disk.paths().filter((path) => path.includes("fleet-journal/"))).toEqual([]);
    readers[0].refresh();
    expect([textsOf(readers[0]), readers[0].damage]).toEqual([[0, 1].map(line), []]);
    fleet.table.check();
  });

  test("another copy of the session that is open has nobody wait for what this one owes, unless it is written to", async () => {
    const { machine, giving, clock } = await left(kind);
    const { disk, journal, fleet } = machine;
    fleet.faultAt = () => undefined;
    fleet.table.leave();
    const folder = "/root/other";
    const beside = new Machine(kind, fleet.table, "one", { isJournaled: true, disk, journal, folder });
    await beside.put([line(0)]);
    const open = beside.store.open(beside.file);
    open.acquireLock();
    giving.renew(() => [open]);
    await turns();
    expect(inFleet(machine)).toEqual([line(0)]);
    open.unlock();
    clock.now = 2000;
    giving.renew(() => [open]);
    await turns();
    expect(inFleet(machine)).toEqual([0, 1].map(line));
    // It takes in what came, and goes on after it.
    await open.ready?.();
    await written(open, 2);
    expect([inFleet(machine), textsOf(open)]).toEqual([[0, 1, 2].map(line), [0, 1, 2].map(line)]);
    fleet.table.check();
  });

  test("a copy that is open gives what is noted for a file that is gone", async () => {
    const { machine, giving } = await left(kind);
    const { disk, fleet } = machine;
    fleet.faultAt = () => undefined;
    const folder = "/root/other";
    const beside = new Machine(kind, fleet.table, "one", { isJournaled: true, disk, journal: machine.journal, folder });
    disk.rename(machine.file, beside.file);
    const open = beside.store.open(beside.file);
    const { length } = fleet.calls;
    giving.renew(() => [open]);
    await turns();
    expect(fleet.calls).toHaveLength(length);
  });

  test("where others wrote, the branch is made, and whoever opens the session next is told of it", async () => {
    const { machine, giving } = await left(kind);
    const two = new Machine(kind, machine.fleet.table, "two");
    two.fleet.leasesEnd = true;
    await two.put([line(0)]);
    const other = two.store.open(two.file);
    other.append([bytesOf(userText(id(7), id(0)))]);
    await other.commit();
    other.close();
    machine.fleet.faultAt = () => undefined;
    giving.renew(nobody);
    await turns(200);
    expect(inFleet(machine).slice(0, 3)).toEqual([line(0), userText(id(7), id(0)), line(1)]);
    const opened = machine.store.open(machine.file);
    for (let n = 0; n < 5; n++) {
      await opened.follow?.();
      await turns();
    }
    expect(opened.damage.map(({ kind }) => kind)).toEqual(["diverged"]);
    opened.close();
    const again = machine.store.open(machine.file);
    await again.ready?.();
    expect(again.damage).toEqual([]);
  });

  test("whoever writes to the session while it is given waits for that, and is not refused", async () => {
    const { machine, giving } = await left(kind);
    const { fleet } = machine;
    fleet.faultAt = () => undefined;
    let go = (): void => {};
    const gate = new Promise<void>((resolve) => {
      go = resolve;
    });
    fleet.turns = () => gate;
    giving.renew(nobody);
    await turns();
    // The same process, with another way to the fleet.
    const { disk, journal } = machine;
    const log = new Machine(kind, fleet.table, "one", { disk, journal }).store.open(machine.file);
    let isReady = false;
    const ready = log.ready?.()?.then(() => {
      isReady = true;
    });
    await turns();
    expect(isReady).toBe(false);
    go();
    await ready;
    await written(log, 2);
    expect([inFleet(machine), textsOf(log)]).toEqual([[0, 1, 2].map(line), [0, 1, 2].map(line)]);
    fleet.table.check();
  });

  test("what is refused is tried less and less often, and at once after the fleet was away", async () => {
    const { machine, clock, journal } = await left(kind);
    const { fleet } = machine;
    fleet.faultAt = () => undefined;
    let isAway = false;
    const outage = {
      get lasts() {
        return isAway;
      },
    } as never;
    const giving = new BackgroundGiving(
      { journal, openCopy: machine.store.open, find: () => machine.file },
      { elapsed: () => clock.now, followedEvery: 100, outage },
    );
    const row = fleet.table.rows.get(SESSION);
    if (row) row.isDeleted = true;
    const tries = async (milliseconds: number): Promise<number> => {
      const before = fleet.calls.filter((name) => name === "take").length;
      for (const end = clock.now + milliseconds; clock.now < end; clock.now += 500) {
        giving.renew(nobody);
        await turns();
      }
      return fleet.calls.filter((name) => name === "take").length - before;
    };
    expect(await tries(60_000)).toBeGreaterThan(3);
    expect(await tries(600_000)).toBeLessThan(12);
    isAway = true;
    giving.renew(nobody);
    isAway = false;
    if (row) row.isDeleted = false;
    expect(await tries(500)).toBe(1);
    expect(inFleet(machine)).toEqual([0, 1].map(line));
  });
});
