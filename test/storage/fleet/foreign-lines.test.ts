/** Lines that other programs write to a working copy: they come to the fleet soon, from who is the writer here. */

import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { textOf } from "../../../src/core/json/json.ts";
import type { Log } from "../../../src/core/ports/store.ts";
import { MemoryFleet } from "../../support/fleet.ts";
import { failed, followed, line, lines, Machine, type MachineKind, written } from "../../support/fleet-machine.ts";
import { SESSION } from "../../support/lines.ts";
import { beginning } from "../../support/sessions.ts";

const KINDS: readonly MachineKind[] = ["jsonl", "v2"];
/** Containers have no writers that know no lock. */
const FILES: readonly MachineKind[] = ["jsonl"];

const there = (machine: Machine): string[] => machine.fleet.table.linesOf(SESSION);

/** Another program writes, and this process sees it. */
async function foreign(machine: Machine, log: Log, ...ns: number[]): Promise<void> {
  await machine.addPlainly(ns.map(line));
  log.refresh();
}

describe.each(FILES)("what another program writes (%s)", (kind) => {
  test("comes to the fleet while this process has the session, though nobody writes here", async () => {
    const one = new Machine(kind);
    const log = one.create();
    await written(log, 0);
    await foreign(one, log, 1, 2);
    await followed(log);
    expect(there(one)).toEqual([0, 1, 2].map(line));
    // It is not given twice, and nothing is asked when there is nothing new.
    const calls = one.fleet.calls.length;
    await followed(log);
    expect(one.fleet.calls).toHaveLength(calls);
    one.fleet.table.check();
  });

  test("begins the session in the fleet, where it never was", async () => {
    const one = new Machine(kind);
    await one.put([line(0)]);
    const log = one.store.open(one.file);
    log.acquireLock();
    await foreign(one, log, 1);
    await followed(log);
    expect(there(one)).toEqual([0, 1].map(line));
  });

  test("comes from who had the session before the first entry was there", async () => {
    const one = new Machine(kind);
    one.plain.create(beginning(undefined, one.file)).append([]);
    const log = one.store.open(one.file);
    await log.ready?.();
    expect(one.fleet.table.rows.get(SESSION)?.holder?.id).toBe("one");
    expect(await one.fleet.look(SESSION)).toBe(null);
    const two = new MemoryFleet(one.fleet.table, "two");
    expect((await two.take(SESSION)).kind).toBe("held");
    await foreign(one, log, 0);
    await followed(log);
    expect(there(one)).toEqual([line(0)]);
  });

  test("has nobody wait where the fleet is away", async () => {
    let waits = 0;
    const patience = async (): Promise<boolean> => ++waits < 100;
    const one = new Machine(kind, undefined, "one", { patience });
    const log = one.create();
    await written(log, 0);
    one.fleet.faultAt = () => "before";
    await foreign(one, log, 1);
    await followed(log);
    expect(waits).toBe(0);
  });

  test("stays here while this process only reads: it takes the session from nobody", async () => {
    const one = new Machine(kind);
    await written(one.create(), 0);
    one.fleet.table.leave();
    const reader = new Machine(kind, one.fleet.table, "two", { disk: one.disk });
    const log = reader.store.open(reader.file);
    await foreign(reader, log, 1);
    await followed(log);
    expect(there(one)).toEqual([line(0)]);
    expect(one.fleet.table.rows.get(SESSION)?.holder).toBe(null);
  });

  test("stays here while another machine has the session, and comes when that has let go of it", async () => {
    const one = new Machine(kind);
    const log = one.create();
    await written(log, 0);
    const { table } = one.fleet;
    const two = new MemoryFleet(table, "two");
    two.leasesEnd = true;
    await two.take(SESSION);
    one.fleet.renewed = Number.POSITIVE_INFINITY;
    await foreign(one, log, 1);
    await followed(log);
    expect(there(one)).toEqual([line(0)]);
    expect(table.rows.get(SESSION)?.holder?.id).toBe("two");
    table.leave();
    await followed(log);
    expect(there(one)).toEqual([0, 1].map(line));
  });

  test.each([false, true])(
    "is noted where the fleet is away, and given when it is back (alone: %s)",
    async (isAlone) => {
      const one = new Machine(kind, undefined, "one", { isJournaled: isAlone });
      const log = one.create();
      await written(log, 0);
      one.fleet.faultAt = () => "before";
      await foreign(one, log, 1);
      await log.give?.();
      expect(one.journal.of(SESSION, log.file as string)?.from?.entries).toBe(1);
      one.fleet.faultAt = () => undefined;
      for (let n = 0; n < 3; n++) await followed(log);
      expect(there(one)).toEqual([0, 1].map(line));
      expect(one.journal.of(SESSION, log.file as string)?.from ?? null).toBe(null);
    },
  );

  test.each([false, true])(
    "is not owed where the fleet was never seen to have what it continues (alone: %s)",
    async (isAlone) => {
      const one = new Machine(kind, undefined, "one", { isJournaled: isAlone });
      await one.put([line(0)]);
      one.fleet.faultAt = () => "before";
      const log = one.store.open(one.file);
      await log.ready?.();
      if (isAlone) log.acquireLock();
      if (isAlone) await followed(log);
      await log.give?.();
      expect(one.journal.of(SESSION, log.file as string)?.from ?? null).toBe(null);
      if (!isAlone) await expect(log.confirm?.()).rejects.toEqual(failed("storage_failed"));
    },
  );

  test("keeps nobody from leaving, though its file is gone and the fleet away", async () => {
    const one = new Machine(kind);
    const log = one.create();
    await written(log, 0);
    one.fleet.faultAt = () => "before";
    await foreign(one, log, 1);
    one.disk.remove(one.file);
    await expect(Promise.resolve(log.give?.())).resolves.toBeUndefined();
  });

  test("is not given again and again where the fleet refuses it for good", async () => {
    const one = new Machine(kind);
    const log = one.create();
    await written(log, 0);
    const { append } = one.fleet;
    let appends = 0;
    one.fleet.append = async () => {
      appends++;
      return { kind: "unfit", reason: "a value", isOfValue: false };
    };
    await foreign(one, log, 1);
    for (let n = 0; n < 10; n++) await followed(log);
    expect(appends).toBeGreaterThan(0);
    expect(appends).toBeLessThan(4);
    one.fleet.append = append;
    await foreign(one, log, 2);
    await followed(log);
    expect(there(one)).toEqual([0, 1, 2].map(line));
  });

  /** Ways in which it cannot be given for a while: each returns what ends that. */
  const hindrances: readonly [string, (one: Machine) => () => void][] = [
    [
      "another machine has deleted the session",
      ({ fleet }) => {
        const row = fleet.table.rows.get(SESSION);
        if (!row) throw new Error("the session is missing");
        Object.assign(row, { isDeleted: true, holder: null, epoch: row.epoch + 1 });
        return () => Object.assign(row, { isDeleted: false });
      },
    ],
    [
      "the database takes nothing from this role",
      ({ fleet }) => {
        const { append } = fleet;
        fleet.append = async () => ({ kind: "unfit", reason: "permission denied", isOfValue: false });
        return () => (fleet.append = append);
      },
    ],
    [
      "the journal cannot be read",
      ({ journal }) => {
        const { of } = journal;
        journal.of = () => {
          throw new Failure("storage_failed", "EACCES", {}, { retryable: false });
        };
        return () => (journal.of = of);
      },
    ],
  ];

  test.each(hindrances)("is given when the session is left, though for a while %s", async (_, begin) => {
    const one = new Machine(kind);
    const log = one.create();
    await written(log, 0);
    const end = begin(one);
    await foreign(one, log, 1);
    for (let n = 0; n < 5; n++) await followed(log);
    expect(there(one)).toEqual([line(0)]);
    end();
    await log.give?.();
    expect(there(one)).toEqual([0, 1].map(line));
    one.fleet.table.check();
  });

  test("is owed where the fleet was away from the beginning, as what was told here", async () => {
    const one = new Machine(kind, undefined, "one", { isJournaled: true });
    const log = one.create();
    await written(log, 0);
    log.close();
    await Promise.resolve();
    one.fleet.faultAt = () => "before";
    const again = one.store.open(one.file);
    await again.ready?.();
    again.acquireLock();
    await foreign(one, again, 1);
    await followed(again);
    expect(again.durability).toBe("local");
    expect(one.journal.of(SESSION, again.file as string)?.from).not.toBeFalsy();
  });

  test("is given once, whichever call of that fails (each in turn)", async () => {
    for (const fault of ["before", "after", "late"] as const)
      for (let at = 0; at < 6; at++) {
        const one = new Machine(kind);
        one.fleet.leasesEnd = true;
        const log = one.create();
        await written(log, 0);
        const from = one.fleet.calls.length;
        one.fleet.faultAt = (call) => (call === from + at ? fault : undefined);
        await foreign(one, log, 1, 2);
        for (let n = 0; n < 3; n++) await followed(log);
        expect(there(one), `${fault} ${at}`).toEqual([0, 1, 2].map(line));
        one.fleet.table.check();
      }
  });
});

describe.each(KINDS)("a new session with the id of one that is there (%s)", (kind) => {
  test("cannot be begun, however often, and nobody is kept from the one that is there", async () => {
    const one = new Machine(kind);
    const log = one.create();
    await written(log, 0);
    log.close();
    await Promise.resolve();
    const two = new Machine(kind, one.fleet.table, "two");
    const other = two.create();
    for (let tries = 0; tries < 2; tries++) {
      await expect(written(other, 5)).rejects.toEqual(failed("already_exists"));
      other.rollBack();
      expect(one.fleet.table.rows.get(SESSION)?.holder).toBe(null);
      expect(two.aside).toEqual([]);
      expect(two.disk.names("/root/sessions")).toEqual([]);
    }
    expect(there(one)).toEqual([line(0)]);
    // Nor while another machine has it.
    const again = one.store.open(one.file);
    await again.ready?.();
    await written(again, 1);
    await expect(written(other, 5)).rejects.toEqual(failed("already_exists"));
    expect(one.fleet.table.rows.get(SESSION)?.holder?.id).toBe("one");
    expect(there(one)).toEqual([0, 1].map(line));
  });

  test("cannot be published", async () => {
    const one = new Machine(kind);
    await written(one.create(), 0);
    one.fleet.table.leave();
    const two = new Machine(kind, one.fleet.table, "two");
    const content = lines(5).map((bytes) => Buffer.from(`${textOf(bytes)}\n`));
    const { header, headerLine } = one.store.open(one.file);
    const published = two.store.publish({ header, headerLine, file: two.file }, content);
    await expect(published).rejects.toEqual(failed("already_exists"));
    expect(one.fleet.table.rows.get(SESSION)?.holder).toBe(null);
    expect(two.disk.names("/root/sessions")).toEqual([]);
  });
});
