/** To whom something is owed, who may say that it counts, and what is told where it cannot be given. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { bytesOf } from "../../../src/core/json/json.ts";
import type { FleetOutcome } from "../../../src/core/ports/fleet.ts";
import type { LifeCycle } from "../../../src/core/ports/lifecycle.ts";
import type { Log } from "../../../src/core/ports/store.ts";
import { BackgroundGiving, giveAll, owedIn } from "../../../src/storage/fleet/giving.ts";
import { fleetAt, notedStore } from "../../../src/storage/fleet/identity.ts";
import { fleetLifeCycle, type LifeCyclePlace } from "../../../src/storage/fleet/life-cycle.ts";
import { Outage } from "../../../src/storage/fleet/outage.ts";
import { segmentFile } from "../../../src/storage/fs/container-paths.ts";
import type { FileLog } from "../../../src/storage/log/file-log.ts";
import { FaultDisk, POWER_CUTS } from "../../support/disk.ts";
import { user } from "../../support/drafts.ts";
import { fleetOptions, MemoryFleet } from "../../support/fleet.ts";
import { failed, followed, found, line, lines, Machine, second, written } from "../../support/fleet-machine.ts";
import { entryText, id, SESSION } from "../../support/lines.ts";
import { type LockTable, locksOf } from "../../support/locks.ts";
import { healed, inFleet, journaled, mine, notesOn, owing, placeOf } from "../../support/owing.ts";
import { HereLives } from "../../support/proof.ts";
import { textsOf } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";

const noteOn = (disk: FaultDisk): string => notesOn(disk)[0] as string;
const eio = (): Error => Object.assign(new Error("EIO: test"), { code: "EIO" });

acrossTiers(describe, ["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  test("a repeated key is not confirmed while another process writes, where the session owes something, too", async () => {
    const table: LockTable = new Map();
    const one = new Machine(kind, undefined, "one", { ...journaled, locks: locksOf("one", table) });
    const log = one.create();
    await written(log, 0);
    await owing(one, log, line(1));
    let goOn = (): void => {};
    const waiting = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    const sync = one.disk.sync.bind(one.disk);
    one.disk.sync = async () => {
      await waiting;
      throw eio();
    };
    log.append(lines(2));
    const commit = log.commit();
    const locks = locksOf("the other", table);
    const other = new Machine(kind, one.fleet.table, "other", { ...journaled, disk: one.disk, locks });
    other.fleet.faultAt = () => "before";
    const seen = other.store.open(other.file);
    await expect(seen.confirm?.()).rejects.toEqual(failed("session_locked"));
    goOn();
    await expect(commit).rejects.toEqual(failed("storage_failed"));
    one.disk.sync = sync;
    log.close();
    // What was acknowledged is confirmed when nobody is in the way.
    seen.close();
    const left = other.store.open(other.file);
    await left.confirm?.();
    expect([textsOf(left), left.durability]).toEqual([[0, 1].map(line), "local"]);
  });

  test.each(["away", "there"] as const)(
    "what a repeated key confirms is on the medium, where the session owes something, too (the fleet is %s)",
    async (fleet) => {
      const one = new Machine(kind, undefined, "one", journaled);
      const log = one.create();
      await written(log, 0);
      await owing(one, log, line(1));
      log.close();
      // One that dies before it syncs.
      one.plain.open(one.file).append(lines(2));
      const again = new Machine(kind, one.fleet.table, "again", { ...journaled, disk: one.disk });
      if (fleet === "away") again.fleet.faultAt = () => "before";
      const opened = again.store.open(again.file);
      expect(textsOf(opened)).toEqual([0, 1, 2].map(line));
      await opened.confirm?.();
      const disk = one.disk.after(POWER_CUTS[0]);
      const later = new Machine(kind, one.fleet.table, "later", { ...journaled, disk });
      later.fleet.leasesEnd = true;
      const left = later.store.open(later.file);
      expect(textsOf(left)).toEqual([0, 1, 2].map(line));
      await left.ready?.();
      expect(inFleet(one)).toEqual([0, 1, 2].map(line));
    },
  );

  test("what another process acknowledges until the lock is there becomes a branch, and is not kept aside", async () => {
    const one = new Machine(kind, undefined, "one", journaled);
    const first = one.create();
    await written(first, 0);
    first.close();
    const { two, other } = await second(kind, one, [line(0)]);
    const reading = one.store.open(one.file);
    await written(other, 1);
    other.close();
    two.fleet.table.leave();
    const beside = new Machine(kind, one.fleet.table, "beside", { ...journaled, disk: one.disk });
    const alone = beside.store.open(beside.file);
    await owing(beside, alone, mine(7, 0));
    alone.close();
    // Its note comes when the reader has read the journal, and before it has the lock.
    const note = noteOn(one.disk);
    const bytes = one.disk.content(note) as Uint8Array;
    one.disk.remove(note);
    const acquire = reading.acquireLock.bind(reading);
    reading.acquireLock = () => {
      one.disk.put(note, bytes);
      reading.acquireLock = acquire;
      return acquire();
    };
    await followed(reading);
    const now = await found(reading);
    expect(one.aside).toEqual([]);
    expect(inFleet(one).slice(0, 3)).toEqual([line(0), line(1), mine(7, 0)]);
    expect(textsOf(now)).toEqual(inFleet(one));
  });

  describe("and another copy of the session in another folder", () => {
    /** A machine whose first copy owes an entry and is closed, and a process with a second copy, which lacks it. */
    const withTwo = async (): Promise<{ one: Machine; beside: Machine }> => {
      const one = new Machine(kind, undefined, "one", journaled);
      const log = one.create();
      await written(log, 0);
      await owing(one, log, line(1));
      log.close();
      one.fleet.table.leave();
      const beside = new Machine(kind, one.fleet.table, "beside", {
        ...journaled,
        disk: one.disk,
        folder: "/root/other",
      });
      beside.fleet.leasesEnd = true;
      await beside.put([line(0)]);
      return { one, beside };
    };

    test("what one owes is not forgotten because the other has nothing to give, and is given from where it is", async () => {
      const { one, beside } = await withTwo();
      const seen = beside.store.open(beside.file);
      await seen.ready?.();
      await followed(seen);
      await seen.confirm?.();
      expect(notesOn(one.disk)).toHaveLength(1);
      seen.append([bytesOf(mine(7, 0))]);
      await seen.commit();
      expect(seen.durability).toBe("replicated");
      seen.close();
      expect([notesOn(one.disk).length, inFleet(one)]).toEqual([1, [line(0), mine(7, 0)]]);
      // Lists have the other one.
      expect(await giveAll(placeOf(beside))).toEqual([
        { sessionId: SESSION, sessionPath: one.file, outcome: "branched" },
      ]);
      expect(inFleet(one).slice(0, 3)).toEqual([line(0), mine(7, 0), line(1)]);
      expect(owedIn(placeOf(beside))).toEqual([]);
      one.fleet.table.check();
    });

    test("each may owe something, and each gives its own", async () => {
      const { one, beside } = await withTwo();
      const seen = beside.store.open(beside.file);
      await owing(beside, seen, mine(7, 0));
      expect([notesOn(one.disk).length, seen.durability]).toEqual([2, "local"]);
      seen.close();
      healed(beside);
      const again = new Machine(kind, one.fleet.table, "again", { ...journaled, disk: one.disk });
      again.fleet.leasesEnd = true;
      expect((await giveAll(placeOf(again))).map(({ sessionPath, outcome }) => [sessionPath, outcome]).sort()).toEqual(
        [
          [beside.file, expect.stringMatching(/given|branched/)],
          [one.file, expect.stringMatching(/given|branched/)],
        ].sort(),
      );
      expect(inFleet(one)).toEqual(expect.arrayContaining([line(0), line(1), mine(7, 0)]));
      expect(owedIn(placeOf(again))).toEqual([]);
    });

    test("where the file of a note is gone, the note is of the copy that is there", async () => {
      const { one, beside } = await withTwo();
      one.disk.rename(one.file, `${one.file}.away`);
      const seen = beside.store.open(beside.file);
      await seen.ready?.();
      expect(notesOn(one.disk)).toEqual([]);
      expect(inFleet(one)).toEqual([line(0)]);
    });

    test("a session is deleted when all of its copies have given what they owe", async () => {
      const { one, beside } = await withTwo();
      const { fleet, journal, file, store } = beside;
      const given: string[][] = [];
      const own = { delete: async () => given.push(inFleet(one)), locate: () => file } as unknown as LifeCycle;
      const cycle = fleetLifeCycle(own, {
        ...{ fleet, journal, open: store.open, idAt: () => SESSION, isArchived: () => false },
        keeper: { keep: async () => true },
      } as unknown as LifeCyclePlace);
      await cycle.delete(file, true);
      expect([given, notesOn(one.disk)]).toEqual([[[0, 1].map(line)], []]);
    });
  });

  test("a note that cannot be read is told as such, and no other waits for it", async () => {
    const known = { sessionId: SESSION, sessionPath: "", since: "", from: null, conflicts: [] };
    const damages = [
      { ...known, sessionId: "" },
      { ...known, fleet: null },
      { ...known, conflicts: [null] },
    ];
    for (const fault of ["{", ...damages.map((one) => JSON.stringify(one)), "refused"]) {
      const one = new Machine(kind, undefined, "one", journaled);
      const log = one.create();
      await written(log, 0);
      await owing(one, log, line(1));
      log.close();
      const bad = join("/root/state/fleet-journal", `${"0".repeat(32)}.json`);
      one.disk.put(bad, bytesOf(fault));
      if (fault === "refused") {
        const openRead = one.disk.openRead.bind(one.disk);
        one.disk.openRead = (path) => {
          if (path === bad) throw eio();
          return openRead(path);
        };
      }
      healed(one);
      expect(
        owedIn(placeOf(one))
          .map(({ sessionId }) => sessionId)
          .sort(),
      ).toEqual(["", SESSION]);
      const again = new Machine(kind, one.fleet.table, "again", { ...journaled, disk: one.disk });
      again.fleet.leasesEnd = true;
      const pushed = await giveAll(placeOf(again));
      expect(pushed.map(({ sessionPath, outcome }) => [sessionPath, outcome])).toEqual([
        [one.file, "given"],
        [bad, "refused"],
      ]);
      expect(pushed[1].message).toMatch(/cannot be read \((?:it is damaged|EIO: test)\).*Open the sessions.*remove/);
      expect(inFleet(one)).toEqual([0, 1].map(line));
      // Nothing is tried with it.
      const { length } = again.fleet.calls;
      const giving = new BackgroundGiving(placeOf(again), { elapsed: () => 1e6, followedEvery: 0 });
      giving.renew(() => []);
      await Promise.resolve();
      expect(again.fleet.calls).toHaveLength(length);
    }
  });

  test("a journal whose folder the disk does not list is told, too", () => {
    const one = new Machine(kind);
    for (const name of ["names", "list"] as const)
      if (one.disk[name as "names"])
        one.disk[name as "names"] = () => {
          throw eio();
        };
    expect(owedIn(placeOf(one))).toEqual([
      expect.objectContaining({ sessionPath: "/root/state/fleet-journal", unreadable: "EIO: test" }),
    ]);
  });

  test("a copy that nobody may write to takes the session from nobody, and says why it gives nothing", async () => {
    const one = new Machine(kind, undefined, "one", journaled);
    const log = one.create();
    await written(log, 0);
    await owing(one, log, line(1));
    log.close();
    const damaged = kind === "v2" ? segmentFile(one.file, 1) : one.file;
    const whole = one.disk.content(damaged) as Uint8Array;
    const [from, to] = kind === "v2" ? ["say a0000001", "xay a0000001"] : ['"version":3', '"version":9'];
    const text = Buffer.from(whole).toString("latin1");
    expect(text).toContain(from);
    one.disk.put(damaged, Buffer.from(text.replace(from, to), "latin1"));
    healed(one);
    one.fleet.table.leave();
    const again = new Machine(kind, one.fleet.table, "again", { ...journaled, disk: one.disk });
    const reading = again.store.open(again.file);
    expect(reading.readOnly).not.toBe(null);
    await followed(reading);
    const [{ outcome, message }] = await giveAll(placeOf(again));
    expect([outcome, message]).toEqual(["refused", reading.readOnly?.message]);
    reading.close();
    const clock = { now: 0 };
    const giving = new BackgroundGiving(placeOf(again), { elapsed: () => clock.now, followedEvery: 100 });
    for (; clock.now < 600_000; clock.now += 500) {
      giving.renew(() => []);
      await Promise.resolve();
    }
    expect(again.fleet.calls).not.toContain("take");
    expect(inFleet(one)).toEqual([line(0)]);
    // When it is whole again, it gives what it owes.
    one.disk.put(damaged, whole);
    expect(await giveAll(placeOf(again))).toEqual([expect.objectContaining({ outcome: "given" })]);
    expect([inFleet(one), notesOn(one.disk)]).toEqual([[0, 1].map(line), []]);
  });

  describe("what the database refuses for good, while the session is open", () => {
    /** A session that owes an entry which the database does not take, and how often it is asked to. */
    const refusing = async (lost = 0) => {
      const clock = { now: 0 };
      const one = new Machine(kind, undefined, "one", { ...journaled, elapsed: () => clock.now });
      const { fleet } = one;
      if (lost > 0) fleet.table.past = [];
      const log = one.create();
      await written(log, 0);
      if (lost > 0) await written(log, 1);
      else await owing(one, log, line(1));
      healed(one);
      const { append } = fleet;
      let appends = 0;
      const unfit = async (): Promise<FleetOutcome> => {
        appends++;
        return { kind: "unfit", reason: "a value" };
      };
      fleet.append = unfit;
      fleet.table.promote(lost);
      const tries = async (milliseconds: number): Promise<number> => {
        const before = appends;
        for (const end = clock.now + milliseconds; clock.now < end; clock.now += 2000) await followed(log);
        return appends - before;
      };
      const heal = () => {
        fleet.append = append;
      };
      return { one, log, unfit, tries, heal };
    };

    acrossTiers(test, [
      { lost: 0, seconds: 60, most: 5 },
      { lost: 0, seconds: 600, most: 14 },
      { lost: 1, seconds: 600, most: 14 },
    ])(
      "is tried less and less often, and comes there when it is taken (lost: $lost, for $seconds s)",
      async ({ lost, seconds, most }) => {
        const { one, tries, heal } = await refusing(lost);
        // That it was promoted is known with the first question.
        expect(await tries(4000)).toBe(1);
        expect(await tries(1000 * seconds)).toBeLessThanOrEqual(most);
        heal();
        await tries(62_000);
        expect([inFleet(one), notesOn(one.disk)]).toEqual([[0, 1].map(line), []]);
        one.fleet.table.check();
      },
    );

    test("is tried at once where something has changed", async () => {
      const { one, log, tries } = await refusing();
      await tries(200_000);
      // Another server.
      one.fleet.table.promote(0);
      expect(await tries(2000)).toBe(1);
      expect(await tries(2000)).toBe(0);
      // The same after an outage.
      one.fleet.faultAt = () => "before";
      one.outage?.begin();
      await tries(2000);
      healed(one);
      expect(await tries(4000)).toBe(1);
      // Whoever writes is told the reason.
      await expect(written(await found(log), 2)).rejects.toEqual(failed("storage_failed", { retryable: false }));
    });

    test("is tried by who gives all, who is told why", async () => {
      const { one, tries, unfit } = await refusing();
      await tries(200_000);
      const push = new Machine(kind, one.fleet.table, "push", { ...journaled, disk: one.disk });
      push.fleet.leasesEnd = true;
      push.fleet.append = unfit;
      const [{ outcome, message }] = await giveAll(placeOf(push));
      expect([outcome, message]).toEqual(["refused", expect.stringContaining("a value")]);
    });
  });

  test("what is still owed although nothing failed is not put down to the database", async () => {
    const one = new Machine(kind, undefined, "one", journaled);
    const log = one.create();
    await written(log, 0);
    await owing(one, log, line(1));
    log.close();
    healed(one);
    const again = new Machine(kind, one.fleet.table, "again", { ...journaled, disk: one.disk });
    again.fleet.leasesEnd = true;
    const remove = one.disk.remove.bind(one.disk);
    one.disk.remove = (path) => {
      if (path.includes("fleet-journal")) throw eio();
      remove(path);
    };
    const [{ outcome, message }] = await giveAll(placeOf(again));
    expect([outcome, inFleet(one)]).toEqual(["refused", [0, 1].map(line)]);
    expect(message).not.toMatch(/away/);
    expect(message).toMatch(/note.*Push again/);
  });

  test("a branch that came to nothing is noted once, when it is made", async () => {
    const one = new Machine(kind, undefined, "one", journaled);
    const log = one.create() as FileLog;
    await written(log, 0);
    await owing(one, log, mine(7, 0));
    const { other } = await second(kind, one, [line(0)]);
    await written(other, 1);
    other.close();
    const replaceFrom = log.replaceFrom.bind(log);
    let tries = 0;
    log.replaceFrom = (...given) => {
      if (tries++ === 0) throw new Failure("storage_failed");
      return replaceFrom(...given);
    };
    healed(one);
    for (let n = 1; n <= 2; n++) {
      for (let turns = 0; turns < 10 && tries < n; turns++) await log.ready?.();
      expect([tries, one.journal.of(SESSION, one.file)?.conflicts.length]).toEqual([n, 1]);
    }
    const now = await found(log);
    expect(now.damage.filter(({ kind }) => kind === "diverged")).toHaveLength(1);
    expect(one.journal.of(SESSION, one.file)?.conflicts).toHaveLength(1);
  });

  describe("with long lines of others", () => {
    const held = { heldBytes: 1 << 20 };
    const long = (n: number): string =>
      entryText("custom", id(n), id(n - 1), { customType: "long", data: "x".repeat(120_000) });
    const longWritten = async (log: Log, from: number, past: number): Promise<void> => {
      for (let n = from; n < past; n++) {
        log.append([bytesOf(long(n))]);
        await log.commit();
      }
    };
    const idsOf = (texts: readonly string[]): string[] => texts.map((text) => JSON.parse(text).id as string);

    test("what was acknowledged alone is given, however long the lines are that both have", async () => {
      const one = new Machine(kind, undefined, "one", { ...journaled, ...held });
      const log = one.create();
      await written(log, 0);
      await longWritten(log, 1, 10);
      await owing(one, log, mine(70, 9));
      one.fleet.table.leave();
      const two = new Machine(kind, one.fleet.table, "two");
      const texts = [line(0), ...[1, 2, 3, 4, 5, 6, 7, 8, 9].map(long)];
      await two.put(texts);
      const other = two.store.open(two.file);
      await other.ready?.();
      await written(other, 10);
      other.close();
      healed(one);
      await found(log);
      expect(idsOf(inFleet(one)).slice(9, 12)).toEqual([id(9), id(10), id(70)]);
      expect(notesOn(one.disk)).toHaveLength(1);
      one.fleet.table.check();
    });

    test.each([true, false])(
      "of others more than a branch can be put after are told as such, and what nobody was told of gives way (acknowledged: %s)",
      async (isTold) => {
        const one = new Machine(kind, undefined, "one", { isJournaled: isTold, ...held });
        let log = one.create();
        await written(log, 0);
        if (isTold) await owing(one, log, mine(70, 0));
        else {
          log.close();
          await one.addPlainly([mine(70, 0)]);
        }
        const { other } = await second(kind, one, [line(0)]);
        await longWritten(other, 1, 10);
        other.close();
        healed(one);
        if (!isTold) log = one.store.open(one.file);
        log = await found(log);
        if (isTold) {
          const message = expect.stringMatching(
            /wrote 1 MB .*Nothing was changed\. clone continues what was written here/,
          );
          expect(() => log.append(lines(71))).toThrow(failed("read_only", { message }));
          expect([textsOf(log), log.durability]).toEqual([[line(0), mine(70, 0)], "local"]);
          // It is found out once, and takes the session from nobody then; a server tries it again once an hour.
          const first = one.fleet.calls.length;
          await followed(log);
          expect(one.fleet.calls.slice(first)).not.toContain("take");
          log.close();
          const clock = { now: 0 };
          const giving = new BackgroundGiving(placeOf(one), { elapsed: () => clock.now, followedEvery: 2000 });
          const before = one.fleet.calls.filter((name) => name === "take").length;
          for (; clock.now < 4 * 3_600_000; clock.now += 60_000) {
            giving.renew(() => []);
            await one.journal.giving.get(SESSION);
          }
          expect(one.fleet.calls.filter((name) => name === "take").length - before).toBeLessThan(20);
        } else {
          expect([idsOf(textsOf(log)), one.aside]).toEqual([idsOf(inFleet(one)), [mine(70, 0)]]);
          await written(log, 10);
        }
        one.fleet.table.check();
      },
    );
  });
});

test("a fleet is told by its address, its tenant, and the store that this machine has met there", async () => {
  const disk = new FaultDisk();
  const fleet = fleetAt(disk, "/root/state", "postgres://me@db/agents?tenant=acme");
  expect(fleet).toMatchObject({ address: "postgres://me@db/agents?tenant=acme", tenant: "acme", store: undefined });
  await notedStore(disk, "/root/state", "postgres://me@db/agents?tenant=acme").note("met later");
  expect(fleet.store).toBe("met later");
});

test("the notes of a server name the fleet that it uses", async () => {
  const shown = "postgres://me@db/agents?tenant=acme";
  const fleet = new MemoryFleet();
  const lives = new HereLives({
    seed: 1,
    fleet: { ...fleetOptions(fleet), shown, outage: new Outage(fleet, 0, () => 0) },
  });
  const wire = await lives.start();
  await wire.result("append", { entries: [user("one")] });
  fleet.faultAt = () => "before";
  expect(await wire.result("append", { entries: [user("alone")] })).toMatchObject({ durability: "local" });
  const notes = filesBelow(lives.place.home).filter((path) => path.includes("fleet-journal/"));
  expect(notes.map((path) => JSON.parse(readFileSync(path, "utf8")).fleet)).toEqual([
    { address: shown, tenant: "acme" },
  ]);
});

function filesBelow(folder: string): string[] {
  return readdirSync(folder, { recursive: true }).map((name) => join(folder, String(name)));
}
