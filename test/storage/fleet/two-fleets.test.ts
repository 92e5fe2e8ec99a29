/** Two fleets on one state folder: what is owed to one of them is not the other's, and is lost to neither. */

import { describe, expect, test } from "vitest";
import type { NotedFleet } from "../../../src/core/ports/fleet.ts";
import type { LifeCycle } from "../../../src/core/ports/lifecycle.ts";
import { type CarePlace, FleetKeeping } from "../../../src/storage/fleet/care.ts";
import { BackgroundGiving, giveAll, owedIn } from "../../../src/storage/fleet/giving.ts";
import { fleetLifeCycle, type LifeCyclePlace } from "../../../src/storage/fleet/life-cycle.ts";
import { FaultDisk } from "../../support/disk.ts";
import { FleetTable, journalOn } from "../../support/fleet.ts";
import { followed, found, line, Machine, written } from "../../support/fleet-machine.ts";
import { entryText, id, SESSION } from "../../support/lines.ts";
import { textsOf } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { healed, inFleet, journaled, mine, notesOn, owing, placeOf } from "../../support/unsent-lines.ts";

const address = (name: string, tenant = ""): string =>
  `postgres://me@${name}/agents${tenant === "" ? "" : `?tenant=${tenant}`}`;
const fleetOf = (name: string, tenant = ""): NotedFleet => ({
  ...{ address: address(name, tenant), tenant, store: `store of ${name}` },
});
const ALL = [0, 1, 2].map(line);
const GIVEN = [expect.objectContaining({ outcome: "given" })];

/** The life cycle of a machine whose own only notes the paths in `done`. */
function lifeCycleOf({ fleet, journal, file, store }: Machine, done: string[]): LifeCycle {
  const move = async (from: string) => ({ deleted: done.push(from) });
  const own = { delete: move, archive: move, relocate: move, locate: () => file } as unknown as LifeCycle;
  return fleetLifeCycle(own, {
    ...{ fleet, journal, open: store.open, idAt: () => SESSION, isArchived: () => false },
    keeper: { keep: async () => true },
  } as unknown as LifeCyclePlace);
}

const pushed = (machine: Machine) => {
  const { fleet, journal } = machine;
  const rowsOf = async (): Promise<object[]> => [{ id: SESSION, state: "there", ...fleet.table.rows.get(SESSION) }];
  const place = { ...placeOf(machine), fleet, keeper: { rowsOf }, options: { journal } };
  return new FleetKeeping(place as unknown as CarePlace).push();
};

acrossTiers(describe, ["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  const machineOf = (fleet: NotedFleet, disk: FaultDisk, table = new FleetTable(), isJournaled = true): Machine => {
    const options = { isJournaled, disk, journal: journalOn(disk, fleet), heldBytes: 1 << 20 };
    const machine = new Machine(kind, table, fleet.address, options);
    machine.fleet.leasesEnd = true;
    return machine;
  };
  /** The machine of a first fleet, which owes an entry. */
  const owingOne = async (owed = line(1), one = machineOf(fleetOf("a"), new FaultDisk())): Promise<Machine> => {
    const log = one.create();
    await written(log, 0);
    await owing(one, log, owed);
    log.close();
    return one;
  };

  test.each([
    ["another database", fleetOf("b")],
    ["another tenant", fleetOf("a", "acme")],
  ])("what is owed to one is neither given to %s nor forgotten there", async (_, theirs) => {
    const one = await owingOne();
    const two = machineOf(theirs, one.disk);
    expect(owedIn(placeOf(two))).toEqual([]);
    const giving = new BackgroundGiving(placeOf(two), { elapsed: () => 1e6, followedEvery: 0 });
    giving.renew(() => []);
    const opened = two.store.open(two.file);
    await followed(opened);
    expect([two.fleet.calls.includes("take"), inFleet(two)]).toEqual([false, []]);
    const about = { sessionId: SESSION, sessionPath: one.file };
    const message = expect.stringContaining(address("a"));
    expect(await giveAll(placeOf(two))).toEqual([{ ...about, outcome: "refused", message }]);
    await written(opened, 2);
    expect(inFleet(two)).toEqual(ALL);
    opened.close();
    expect(notesOn(one.disk)).toHaveLength(1);
    // Not even where the others' part is acknowledged alone there and given.
    healed(one);
    expect(await giveAll(placeOf(one))).toEqual([{ ...about, outcome: "given" }]);
    expect([inFleet(one), notesOn(one.disk)]).toEqual([ALL, []]);
  });

  test("a session that owes to two of them has a note for each, and each goes with its own", async () => {
    const one = await owingOne();
    const two = machineOf(fleetOf("b"), one.disk);
    const opened = two.store.open(two.file);
    await owing(two, opened, line(2));
    opened.close();
    for (const [n, machine] of [two, one].entries()) {
      expect(notesOn(one.disk)).toHaveLength(2 - n);
      healed(machine);
      const outcomes = (await giveAll(placeOf(machine))).map(({ outcome }) => outcome);
      expect([outcomes, inFleet(machine)]).toEqual([n === 0 ? ["given", "refused"] : ["given"], ALL]);
    }
    expect(notesOn(one.disk)).toEqual([]);
  });

  test.each([
    ["that names none, as of an older program", undefined],
    ["of the same store under another address", { ...fleetOf("elsewhere"), store: "store of a" }],
    ["of the same address, where another store is used since", { ...fleetOf("a"), store: "the one before" }],
    ["of the same address, whose store nobody had met", { address: address("a"), tenant: "" }],
  ])("a note %s is its own, and goes", async (_, noted) => {
    const disk = new FaultDisk();
    const table = new FleetTable();
    const options = { ...journaled, disk, journal: journalOn(disk, noted) };
    await owingOne(line(1), new Machine(kind, table, "before", options));
    const one = machineOf(fleetOf("a"), disk, table);
    // It goes on owing, under its own name.
    const opened = one.store.open(one.file);
    one.fleet.faultAt = () => "before";
    await opened.ready?.();
    await written(opened, 2);
    opened.close();
    healed(one);
    expect(await giveAll(placeOf(one))).toEqual(GIVEN);
    expect([inFleet(one), notesOn(disk)]).toEqual([ALL, []]);
  });

  describe("where others wrote to the session in the second of them", () => {
    /** A machine that owes an entry to one fleet, and uses another by now, whose session goes on otherwise. */
    const owingElsewhere = async (isJournaled: boolean, ...theirs: string[]) => {
      const one = await owingOne(mine(7, 0));
      const two = machineOf(fleetOf("b"), one.disk, new FleetTable(), isJournaled);
      const other = new Machine(kind, two.fleet.table, "other");
      await other.put([line(0), ...theirs]);
      const given = other.store.open(other.file);
      await given.confirm?.();
      given.close();
      two.fleet.table.leave();
      const opened = async () => {
        const log = two.store.open(two.file);
        await followed(log);
        return found(log);
      };
      return { one, two, opened };
    };

    test.each([true, false])(
      "what is owed to the first becomes a branch, and comes there (goes on alone: %s)",
      async (isJournaled) => {
        const { one, two, opened } = await owingElsewhere(isJournaled, line(1));
        const now = await opened();
        expect([two.aside, textsOf(now).slice(0, 3)]).toEqual([[], [line(0), line(1), mine(7, 0)]]);
        expect(now.damage.filter(({ kind }) => kind === "diverged")).toHaveLength(1);
        await written(now, 8);
        expect(inFleet(two)).toEqual(textsOf(now));
        now.close();
        healed(one);
        expect(await giveAll(placeOf(one))).toEqual(GIVEN);
        expect(inFleet(one)).toEqual(expect.arrayContaining([line(0), mine(7, 0)]));
        expect(owedIn(placeOf(one)).concat(one.journal.ofOthers())).toEqual([]);
        expect(notesOn(one.disk).length).toBeLessThanOrEqual(1);
      },
    );

    test("what is owed to the first is given to it also where others wrote too much to put a branch after", async () => {
      const long = (n: number): string =>
        entryText("custom", id(n), id(n - 1), { customType: "long", data: "x".repeat(120_000) });
      const { one, two, opened } = await owingElsewhere(true, ...[1, 2, 3, 4, 5, 6, 7, 8, 9].map(long));
      const now = await opened();
      expect([two.aside, textsOf(now).length]).toEqual([[mine(7, 0)], 10]);
      now.close();
      healed(one);
      expect(await giveAll(placeOf(one))).toMatchObject([{ sessionId: SESSION, outcome: "branched" }]);
      expect(inFleet(one).filter((text) => text.includes("on one 7"))).toHaveLength(1);
    });

    test.each<[string, (own: LifeCycle, file: string) => unknown]>([
      ["deletes it", (own, file) => own.delete(file, false)],
      ["deletes it for good", (own, file) => own.delete(file, true)],
      ["archives it", (own, file) => own.archive(file)],
      ["relocates it", (own, file) => own.relocate(file, "/elsewhere")],
    ])("nobody %s before that is given", async (_, operate) => {
      const { two } = await owingElsewhere(true);
      const { disk, fleet, file } = two;
      const done: string[] = [];
      const run = async () => operate(lifeCycleOf(two, done), file);
      const refused = (what: string) => ({
        ...{ name: "storage_failed", retryable: false, message: expect.stringContaining(what) },
      });
      await expect(run()).rejects.toMatchObject(refused(address("a")));
      const [note] = notesOn(disk);
      disk.put(note, (disk.content(note) as Uint8Array).subarray(1));
      await expect(run()).rejects.toMatchObject(refused(note));
      expect([done, fleet.calls.includes("take")]).toEqual([[], false]);
    });
  });

  describe("which are one store, as is known when it is asked", () => {
    /** A server for another address of the same store, which no process has met there until such a call. */
    const elsewhere = async (name?: "take" | "look"): Promise<Machine> => {
      const { disk, fleet } = await owingOne();
      const own: { -readonly [K in keyof NotedFleet]: NotedFleet[K] } = { address: address("another"), tenant: "" };
      const two = machineOf(own, disk, fleet.table);
      if (!name) return two;
      const ask = two.fleet[name].bind(two.fleet) as (...given: unknown[]) => Promise<never>;
      two.fleet[name] = async (...given: unknown[]) => {
        const answer = await ask(...given);
        own.store = "store of a";
        return answer;
      };
      return two;
    };
    const isGiven = (two: Machine): void => expect([inFleet(two), notesOn(two.disk)]).toEqual([[0, 1].map(line), []]);

    test("what is owed is given by the writer who learns that when it takes the session", async () => {
      const two = await elsewhere("take");
      const opened = two.store.open(two.file);
      await opened.ready?.();
      isGiven(two);
      expect(opened.durability).toBe("replicated");
    });

    test("fleet push gives it, and asks before it looks what is owed", async () => {
      const two = await elsewhere("look");
      expect(await pushed(two)).toEqual([{ sessionId: SESSION, sessionPath: two.file, outcome: "given" }]);
      isGiven(two);
    });

    test("it is given before the session is deleted", async () => {
      const two = await elsewhere("look");
      const done: string[] = [];
      await lifeCycleOf(two, done).delete(two.file, false);
      isGiven(two);
      expect(done).toEqual([two.file]);
    });

    test("fleet push names what is owed where the database is away", async () => {
      const two = await elsewhere();
      two.fleet.faultAt = () => "before";
      expect(await pushed(two)).toEqual([expect.objectContaining({ outcome: "refused" })]);
    });
  });
});
