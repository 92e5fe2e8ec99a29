/** Two fleets on one state folder: what is owed to one of them is not the other's, and is lost to neither. */

import { describe, expect, test } from "vitest";
import type { NotedFleet } from "../../../src/core/ports/fleet.ts";
import type { LifeCycle } from "../../../src/core/ports/lifecycle.ts";
import { type CarePlace, FleetKeeping } from "../../../src/storage/fleet/care.ts";
import { BackgroundGiving, giveAll, owedIn } from "../../../src/storage/fleet/giving.ts";
import { fleetLifeCycle, type LifeCyclePlace } from "../../../src/storage/fleet/life-cycle.ts";
import { FaultDisk } from "../../support/disk.ts";
import { FleetTable, journalOn } from "../../support/fleet.ts";
import { followed, found, line, Machine, type MachineKind, written } from "../../support/fleet-machine.ts";
import { entryText, id, SESSION } from "../../support/lines.ts";
import { healed, inFleet, journaled, mine, notesOn, owing, placeOf } from "../../support/owing.ts";
import { textsOf } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";

const address = (name: string, tenant = ""): string =>
  `postgres://me@${name}/agents${tenant === "" ? "" : `?tenant=${tenant}`}`;
const fleetOf = (name: string, tenant = ""): NotedFleet => ({
  ...{ address: address(name, tenant), tenant, store: `store of ${name}` },
});
const machineOf = (
  kind: MachineKind,
  fleet: NotedFleet,
  table: FleetTable,
  disk: FaultDisk,
  isJournaled = true,
): Machine => {
  const options = { isJournaled, disk, journal: journalOn(disk, fleet), heldBytes: 1 << 20 };
  const machine = new Machine(kind, table, fleet.address, options);
  machine.fleet.leasesEnd = true;
  return machine;
};

/** The life cycle of a machine whose own only notes the paths in `done`. */
function lifeCycleOf({ fleet, journal, file, store }: Machine, done: string[]): LifeCycle {
  const move = async (from: string) => ({ deleted: done.push(from) });
  const own = { delete: move, archive: move, relocate: move, locate: () => file } as unknown as LifeCycle;
  return fleetLifeCycle(own, {
    ...{ fleet, journal, open: store.open, idAt: () => SESSION, isArchived: () => false },
    keeper: { keep: async () => true },
  } as unknown as LifeCyclePlace);
}

acrossTiers(describe, ["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  /** A disk, and the machine of the first fleet, which owes an entry. */
  const owingOne = async (table = new FleetTable()): Promise<{ disk: FaultDisk; one: Machine }> => {
    const disk = new FaultDisk();
    const one = machineOf(kind, fleetOf("a"), table, disk);
    const log = one.create();
    await written(log, 0);
    await owing(one, log, line(1));
    log.close();
    return { disk, one };
  };

  test.each([
    ["another database", fleetOf("b")],
    ["another tenant", fleetOf("a", "acme")],
  ])("what is owed to one is neither given to %s nor forgotten there", async (_, theirs) => {
    const { disk, one } = await owingOne();
    const two = machineOf(kind, theirs, new FleetTable(), disk);
    expect(owedIn(placeOf(two))).toEqual([]);
    const giving = new BackgroundGiving(placeOf(two), { elapsed: () => 1e6, followedEvery: 0 });
    giving.renew(() => []);
    const opened = two.store.open(two.file);
    await followed(opened);
    expect([two.fleet.calls.includes("take"), inFleet(two)]).toEqual([false, []]);
    const [named, ...more] = await giveAll(placeOf(two));
    expect([named, more]).toEqual([
      {
        sessionId: SESSION,
        sessionPath: one.file,
        outcome: "refused",
        message: expect.stringContaining(address("a")),
      },
      [],
    ]);
    await written(opened, 2);
    expect(inFleet(two)).toEqual([0, 1, 2].map(line));
    opened.close();
    expect(notesOn(disk)).toHaveLength(1);
    // Not even where the others' part is acknowledged alone there and given.
    healed(one);
    expect(await giveAll(placeOf(one))).toEqual([{ sessionId: SESSION, sessionPath: one.file, outcome: "given" }]);
    expect([inFleet(one), notesOn(disk)]).toEqual([[0, 1, 2].map(line), []]);
  });

  test("a session that owes to two of them has a note for each, and each goes with its own", async () => {
    const { disk, one } = await owingOne();
    const two = machineOf(kind, fleetOf("b"), new FleetTable(), disk);
    const opened = two.store.open(two.file);
    await owing(two, opened, line(2));
    opened.close();
    expect(notesOn(disk)).toHaveLength(2);
    for (const [n, machine] of [two, one].entries()) {
      healed(machine);
      const outcomes = (await giveAll(placeOf(machine))).map(({ outcome }) => outcome);
      expect(outcomes).toEqual(n === 0 ? ["given", "refused"] : ["given"]);
      expect(inFleet(machine)).toEqual([0, 1, 2].map(line));
      expect(notesOn(disk)).toHaveLength(1 - n);
    }
  });

  test.each([
    ["that names none, as of an older program", undefined],
    ["of the same store under another address", { ...fleetOf("elsewhere"), store: "store of a" }],
    ["of the same address, whose store was adopted since", { ...fleetOf("a"), store: "the one before" }],
    ["of the same address, whose store nobody had met", { address: address("a"), tenant: "" }],
  ])("a note %s is its own, and goes", async (_, noted) => {
    const disk = new FaultDisk();
    const table = new FleetTable();
    const before = new Machine(kind, table, "before", { ...journaled, disk, journal: journalOn(disk, noted) });
    const log = before.create();
    await written(log, 0);
    await owing(before, log, line(1));
    log.close();
    const one = machineOf(kind, fleetOf("a"), table, disk);
    // It goes on owing, under its own name.
    const opened = one.store.open(one.file);
    one.fleet.faultAt = () => "before";
    await opened.ready?.();
    await written(opened, 2);
    opened.close();
    healed(one);
    expect(await giveAll(placeOf(one))).toEqual([expect.objectContaining({ outcome: "given" })]);
    expect([inFleet(one), notesOn(disk)]).toEqual([[0, 1, 2].map(line), []]);
  });

  describe("where others wrote to the session in the second of them", () => {
    /** A machine that owes an entry to one fleet, and uses another by now, whose session goes on otherwise. */
    const owingElsewhere = async (isJournaled: boolean, ...theirs: string[]) => {
      const disk = new FaultDisk();
      const one = machineOf(kind, fleetOf("a"), new FleetTable(), disk);
      const log = one.create();
      await written(log, 0);
      await owing(one, log, mine(7, 0));
      log.close();
      const two = machineOf(kind, fleetOf("b"), new FleetTable(), disk, isJournaled);
      const other = new Machine(kind, two.fleet.table, "other");
      await other.put([line(0), ...theirs]);
      const given = other.store.open(other.file);
      await given.confirm?.();
      given.close();
      two.fleet.table.leave();
      return { disk, one, two };
    };

    test.each([true, false])(
      "what is owed to the first becomes a branch, and comes there (goes on alone: %s)",
      async (isJournaled) => {
        const { disk, one, two } = await owingElsewhere(isJournaled, line(1));
        const opened = two.store.open(two.file);
        await followed(opened);
        const now = await found(opened);
        expect(two.aside).toEqual([]);
        expect(textsOf(now).slice(0, 3)).toEqual([line(0), line(1), mine(7, 0)]);
        expect(now.damage.filter(({ kind }) => kind === "diverged")).toHaveLength(1);
        await written(now, 8);
        expect(inFleet(two)).toEqual(textsOf(now));
        now.close();
        healed(one);
        expect(await giveAll(placeOf(one))).toEqual([expect.objectContaining({ outcome: "given" })]);
        expect(inFleet(one)).toEqual(expect.arrayContaining([line(0), mine(7, 0)]));
        expect(owedIn(placeOf(one)).concat(one.journal.ofOthers())).toEqual([]);
        expect(notesOn(disk).length).toBeLessThanOrEqual(1);
      },
    );

    test("what is owed to the first stays where a branch cannot be put after so much of others", async () => {
      const long = (n: number): string =>
        entryText("custom", id(n), id(n - 1), { customType: "long", data: "x".repeat(120_000) });
      const { one, two } = await owingElsewhere(true, ...[1, 2, 3, 4, 5, 6, 7, 8, 9].map(long));
      const opened = two.store.open(two.file);
      await followed(opened);
      const now = await found(opened);
      expect([two.aside, textsOf(now)]).toEqual([[], [line(0), mine(7, 0)]]);
      now.close();
      healed(one);
      expect(await giveAll(placeOf(one))).toEqual([expect.objectContaining({ outcome: "given" })]);
      expect(inFleet(one)).toEqual([line(0), mine(7, 0)]);
    });

    const OPERATIONS = {
      "deletes it": (own, file) => own.delete(file, false),
      "deletes it for good": (own, file) => own.delete(file, true),
      "archives it": (own, file) => own.archive(file),
      "relocates it": (own, file) => own.relocate(file, "/elsewhere"),
    } satisfies Record<string, (own: LifeCycle, file: string) => unknown>;

    test.each(Object.keys(OPERATIONS) as (keyof typeof OPERATIONS)[])(
      "nobody %s before that is given",
      async (name) => {
        const { disk, two } = await owingElsewhere(true);
        const done: string[] = [];
        const { fleet, file } = two;
        const lifeCycle = lifeCycleOf(two, done);
        const run = async () => OPERATIONS[name](lifeCycle, file);
        const refused = { name: "storage_failed", retryable: false };
        const message = expect.stringContaining(address("a"));
        await expect(run()).rejects.toMatchObject({ ...refused, message });
        const [note] = notesOn(disk);
        const bytes = disk.content(note) as Uint8Array;
        disk.put(note, bytes.subarray(1));
        await expect(run()).rejects.toMatchObject({ ...refused, message: expect.stringContaining(note) });
        expect([done, fleet.calls.includes("take")]).toEqual([[], false]);
      },
    );
  });

  describe("which are one store, as is known when it is asked", () => {
    /** A machine that owes an entry, and a server for another address of the same store, which no process has met there. */
    const elsewhere = async () => {
      const table = new FleetTable();
      const { disk } = await owingOne(table);
      const own: { -readonly [K in keyof NotedFleet]: NotedFleet[K] } = { address: address("another"), tenant: "" };
      const two = machineOf(kind, own, table, disk);
      const meets = (name: "take" | "look"): void => {
        const ask = two.fleet[name].bind(two.fleet) as (...given: unknown[]) => Promise<never>;
        two.fleet[name] = async (...given: unknown[]) => {
          const answer = await ask(...given);
          own.store = "store of a";
          return answer;
        };
      };
      return { disk, two, meets };
    };

    test("what is owed is given by the writer who learns that when it takes the session", async () => {
      const { disk, two, meets } = await elsewhere();
      meets("take");
      const opened = two.store.open(two.file);
      await opened.ready?.();
      expect([inFleet(two), notesOn(disk)]).toEqual([[0, 1].map(line), []]);
      expect(opened.durability).toBe("replicated");
      opened.close();
    });

    test("fleet push gives it, and asks before it looks what is owed", async () => {
      const { disk, two, meets } = await elsewhere();
      meets("look");
      const { fleet, journal } = two;
      const pushing = new FleetKeeping({ ...placeOf(two), fleet, options: { journal } } as unknown as CarePlace);
      expect(await pushing.push()).toEqual([{ sessionId: SESSION, sessionPath: two.file, outcome: "given" }]);
      expect([inFleet(two), notesOn(disk)]).toEqual([[0, 1].map(line), []]);
    });

    test("it is given before the session is deleted", async () => {
      const { disk, two, meets } = await elsewhere();
      meets("look");
      const done: string[] = [];
      await lifeCycleOf(two, done).delete(two.file, false);
      expect([inFleet(two), notesOn(disk), done]).toEqual([[0, 1].map(line), [], [two.file]]);
    });

    test("fleet push names what is owed where the database is away", async () => {
      const { two } = await elsewhere();
      two.fleet.faultAt = () => "before";
      const { fleet, journal } = two;
      const pushing = new FleetKeeping({ ...placeOf(two), fleet, options: { journal } } as unknown as CarePlace);
      expect(await pushing.push()).toEqual([expect.objectContaining({ outcome: "refused" })]);
    });
  });
});
