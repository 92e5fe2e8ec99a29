/** The fleet for which lines are pending, the uploads that count, and reports where an upload is impossible. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { concat, toBytes } from "../../../src/core/json/json.ts";
import type { FleetOutcome, NotedFleet } from "../../../src/core/ports/fleet.ts";
import type { LifeCycle } from "../../../src/core/ports/lifecycle.ts";
import type { Log } from "../../../src/core/ports/store.ts";
import { type AdminPlace, FleetAdminService } from "../../../src/modules/fleet/admin/admin.ts";
import { type LifeCyclePlace, makeFleetLifeCycle } from "../../../src/modules/fleet/admin/life-cycle.ts";
import { openKnownStore, readNotedFleet } from "../../../src/modules/fleet/postgres/identity.ts";
import type { AcknowledgedEnd } from "../../../src/modules/fleet/replica/acknowledged-ends.ts";
import { Outage } from "../../../src/modules/fleet/replica/outage.ts";
import { BackgroundUploader, listPendingUploads } from "../../../src/modules/fleet/replica/uploads.ts";
import { segmentFile } from "../../../src/storage/fs/container-paths.ts";
import type { FileLog } from "../../../src/storage/log/file-log.ts";
import { FaultDisk, POWER_CUTS } from "../../support/disk.ts";
import { user } from "../../support/drafts.ts";
import { entryText, id, SESSION, userText } from "../../support/lines.ts";
import { HereLives } from "../../support/proof.ts";
import { textsOf } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { failed, followed, found, line, Machine, second, written } from "./support/machine.ts";
import { Scene, testScenes, uploadAll } from "./support/scene.ts";
import { FleetTable, fleetOptions, journalOn, MemoryFleet } from "./support/table-fleet.ts";
import { healed, inFleet, journaled, leavePending, mine, notesOn, placeOf } from "./support/unsent-lines.ts";

const eio = (): Error => Object.assign(new Error("EIO: test"), { code: "EIO" });
const fails = (): never => {
  throw eio();
};
const ALL = [0, 1].map(line);

/** A machine with the second line of its session pending, whose process is gone. */
const UNSENT = "writes 0; cut; writes 1; closes; leaves";
/** Another copy of the session on that machine, without the first one's pending line. */
const TWO = `${UNSENT}; two begins alone elsewhere; two has 0`;
/** Another process opens the session. */
const OPENED = "last begins alone; last finds; last follows";

acrossTiers(describe, ["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  /** A machine with the second line of its session pending, and the log. */
  const leaveOne = async (options: object = {}, ...pending: string[]) => {
    const one = new Machine(kind, undefined, "one", { ...journaled, ...options });
    const log = one.create();
    await written(log, 0);
    await leavePending(one, log, ...(pending.length > 0 ? pending : [line(1)]));
    return { one, log };
  };
  /** The same, left by its process. */
  const leaveUnsent = async (...unsent: string[]): Promise<Machine> => {
    const { one, log } = await leaveOne({}, ...unsent);
    log.close();
    one.fleet.table.leave();
    return one;
  };
  /** Another process of a machine, whose fleet is there and whose leases have run out. */
  const openOther = ({ fleet, disk }: Machine, options: object = {}): Machine => {
    const next = new Machine(kind, fleet.table, "beside", { ...journaled, disk, ...options });
    next.fleet.leasesEnd = true;
    return next;
  };
  /** Has a server try to give in the background, for a time. */
  const given = async (machine: Machine, milliseconds: number, step: number, followedEvery = 100): Promise<void> => {
    const clock = { now: 0 };
    const upload = new BackgroundUploader(placeOf(machine), { elapsed: () => clock.now, followedEvery });
    for (; clock.now < milliseconds; clock.now += step) {
      upload.renew(() => []);
      await machine.journal.uploading.get(SESSION);
      await Promise.resolve();
    }
  };

  testScenes(kind, journaled, {
    "what a repeated key confirms is on the medium, where the session owes something, and the fleet is away, too": `
      ${UNSENT}; appendsUnsynced 2; beside begins alone; beside cut; beside copy 0 1 2; beside confirms
      next begins alone after a loss; next asks; next copy 0 1 2; fleet 0 1 2`,
    "what a repeated key confirms is on the medium, where the session owes something, too": `
      ${UNSENT}; appendsUnsynced 2; beside begins alone; beside copy 0 1 2; beside confirms
      next begins alone after a loss; next asks; next copy 0 1 2; fleet 0 1 2`,
    "what one copy owes is not forgotten because another has nothing to give, and is given from where it is": `
      ${TWO}; two asks; two follows; two confirms; notes 1; two writes 7<0; two is replicated; two closes; notes 1
      fleet 0 7<0; two pushes branched:one; fleet 0 7<0 1 @7; two owed 0`,
    "each of two copies may owe something, and gives its own": `
      ${TWO}; two cut; two writes 7<0; notes 2; two is local; two closes; again begins alone
      again pushes ${kind === "jsonl" ? "given:two branched:one; fleet 0 7<0 1 @7" : "given:one branched:two; fleet 0 1 7<0 @1"}
      again owed 0`,
    "where the file of a note is gone, another copy that is there gives what it owed": `${TWO}; gone; two asks; notes 0; fleet 0 1`,
    "it is given in order though the file lost it, and a second process adds to it with a copy that lacks it": `
      ${UNSENT}; reverts 0; second begins alone; second cut; second writes 7<0; second closes; reverts 0; ${OPENED}
      fleet 0 1 7<0; last copy 0 1 7<0; notes 0; last aside`,
    "it is a branch where others have written, though the file lost it": `
      ${UNSENT}; two takes 0; two writes 8<0; two closes; reverts 0; ${OPENED}; fleet 0 8<0 1 @8; last told diverged:1`,
    "what was acknowledged counts where its line was edited or damaged in the file, and the other line is kept aside": `
      ${UNSENT}; reverts 0 1<0; ${OPENED}; fleet 0 1; last copy 0 1; last aside 1<0; notes 0`,
    "nor is a line of either kind doubled where others have written, too": `
      writes 0 1; cut; writes 2; closes; leaves; two takes 0 1; two writes 8<1; two closes; reverts 0 1<0 2<1
      ${OPENED}; fleet 0 1 8<1 2 @8; last aside 1<0 2<1; last told diverged:2`,
    "it is kept from the end of the copy on, also where more was acknowledged before a backup of the file": `
      writes 0 1 2; closes; leaves; reverts 0; again begins alone; again cut; again writes 7<0; again closes; reverts 0
      ${OPENED}; fleet 0 1 2 7<0 @2`,
  });

  test("it stays owed where a commit takes the session without having looked for what the copy lacks", async () => {
    const scene = await new Scene(kind, journaled).play(`${UNSENT}; reverts 0; again begins alone; again outage`);
    await scene.play("again appends 7<0");
    // The database is back before the commit.
    Object.assign(scene.actor("again").machine.outage as object, { isOn: false });
    await scene.play("again commits; fleet 0 7<0; again finds; fleet 0 7<0 1 @7");
  });

  test("what another process acknowledges until the lock is there becomes a branch, and is not kept aside", async () => {
    const scene = await new Scene(kind, journaled).play(`writes 0; closes; looks; elsewhere 0 : 1; leaves
      beside begins alone; beside cut; beside writes 7<0; beside closes`);
    const { log } = scene;
    const { disk } = scene.one;
    // Its note comes when the reader has read the journal, and before it has the lock.
    const [note] = notesOn(disk);
    const bytes = disk.content(note) as Uint8Array;
    disk.remove(note);
    const { lock } = log;
    const { acquire } = lock;
    lock.acquire = () => {
      disk.put(note, bytes);
      lock.acquire = acquire;
      return acquire();
    };
    await scene.play("follows; finds; aside; fleet 0 1 7<0 @1; copy 0 1 7<0 @1");
  });

  test("a session is deleted when all of its copies have given what they owe, and not before", async () => {
    const scene = await new Scene(kind, journaled).play(TWO);
    const { fleet, journal, file, store } = scene.actor("two").machine;
    const had: string[][] = [];
    const own = { delete: async () => had.push(scene.table.linesOf(SESSION)), locate: () => file, trash: () => [] };
    const cycle = makeFleetLifeCycle(
      own as unknown as LifeCycle,
      {
        ...{ fleet, journal, open: store.open, idAt: () => SESSION, isArchived: () => false },
        adminQueries: { keep: async () => true },
      } as unknown as LifeCyclePlace,
    );
    await scene.play("two cut");
    const refused = {
      name: "storage_failed",
      retryable: true,
      message: expect.stringContaining("This machine alone has"),
    };
    await expect(cycle.delete(file, true)).rejects.toMatchObject(refused);
    await scene.play("notes 1; two heals");
    expect(had).toEqual([]);
    await cycle.delete(file, true);
    expect(had).toEqual([ALL]);
    await scene.play("notes 0");
  });

  describe("is kept apart from the file of the session", () => {
    const opened = async (one: Machine, options: object = {}): Promise<Log> => {
      const again = openOther(one, options);
      const log = await found(again.store.open(again.file));
      await followed(log);
      return log;
    };

    test("it is not given again where the host repeated it under its key on another machine", async () => {
      const keyed = (n: number): string =>
        mine(n, 0).replace(/}$/, `,"_batch":{"session":"${SESSION}","key":"k","index":0,"count":1}}`);
      const one = await leaveUnsent(keyed(1));
      const { other } = await second(kind, one, [line(0)]);
      other.append([toBytes(keyed(8))]);
      await other.commit();
      other.close();
      await opened(one);
      expect([inFleet(one), notesOn(one.disk)]).toEqual([[line(0), keyed(8)], []]);
      await one.revert([line(0)]);
      await opened(one);
      expect(inFleet(one)).toEqual([line(0), keyed(8)]);
    });

    test("nor is any of a batch whose entries have ids of the host's choice in part", async () => {
      const request = (first: string, last: string, at: number): string[] =>
        [
          [first, id(0)],
          ["mine-2", first],
          [last, "mine-2"],
        ].map(([entryId, parentId], index) => {
          const _batch = { session: SESSION, key: "k", index, count: 3 };
          const timestamp = `2026-02-01T00:00:0${at}.000Z`;
          return JSON.stringify({ ...JSON.parse(userText(entryId, parentId, `part ${index}`)), timestamp, _batch });
        });
      const one = await leaveUnsent(...request("aaaaaaa1", "aaaaaaa3", 1));
      const { other } = await second(kind, one, [line(0)]);
      const again = request("bbbbbbb1", "bbbbbbb3", 2);
      other.append(again.map(toBytes));
      await other.commit();
      other.close();
      await opened(one);
      expect([inFleet(one), notesOn(one.disk)]).toEqual([[line(0), ...again], []]);
    });

    test("another program that writes a line anew with other spaces doubles nothing", async () => {
      const one = await leaveUnsent();
      const spaced = (n: number): string => line(n).replace('"type":', '"type": ');
      await one.revert([spaced(0), spaced(1)]);
      await opened(one);
      const texts = inFleet(one).map((text) => JSON.parse(text).message?.content);
      for (const n of [0, 1]) expect(texts.filter((text) => text === `say ${id(n)}`)).toHaveLength(1);
    });

    test("a kept line that is damaged holds up no other, and a debt that ended leaves none for the next", async () => {
      const one = await leaveUnsent();
      const file = one.disk.paths().find((path) => path.endsWith(".lines")) as string;
      const bytes = Uint8Array.from(one.disk.content(file) as Uint8Array);
      one.disk.put(file, bytes.fill(0, 0, 20));
      await opened(one);
      expect(inFleet(one)).toEqual(ALL);
      // A process was killed after it had removed the note.
      one.disk.put(file, toBytes(`${mine(9, 0)}\n`));
      one.fleet.table.leave();
      await one.addPlainly([mine(7, 1)]);
      const { other } = await second(kind, one, ALL);
      other.append([toBytes(mine(8, 1))]);
      await other.commit();
      other.close();
      await opened(one);
      expect(inFleet(one)).toContain(mine(7, 1));
      expect(inFleet(one)).not.toContain(mine(9, 0));
    });

    test("a disk that refuses it at any step has nothing acknowledged that is not kept", async () => {
      for (let at = 0; ; at++) {
        const one = new Machine(kind, undefined, "one", journaled);
        const log = one.create();
        await written(log, 0);
        one.fleet.faultAt = () => "before";
        one.disk.set({ kind: "fail", at: at + 1, errno: "EIO" });
        const sent: string[] = [];
        for (const n of [1, 2])
          try {
            log.append([toBytes(mine(n, 0))]);
            await log.commit();
            sent.push(mine(n, 0));
          } catch (error) {
            if ((error as Failure).name !== "storage_failed") sent.push("unknown");
          }
        const isDone = !one.disk.struck;
        one.disk.set(undefined);
        try {
          log.close();
        } catch {
          // The disk refused that, too.
        }
        one.fleet.table.leave();
        // Acknowledged lines survive a loss of power and, in addition, the loss of the file.
        const left = openOther(one, { disk: one.disk.after(POWER_CUTS[0]) });
        await left.revert([line(0)]);
        await opened(left);
        const there = inFleet(one).filter((text) => !text.includes("leaf"));
        if (!sent.includes("unknown")) expect(there, `step ${at}`).toEqual([line(0), ...sent]);
        else expect(there, `step ${at}`).toEqual(expect.arrayContaining(sent.filter((text) => text !== "unknown")));
        if (isDone) break;
      }
    });
  });

  const NOTE = { sessionId: SESSION, sessionPath: "", since: "", from: null, conflicts: [] as unknown[] };

  test.each([
    "{",
    JSON.stringify({ ...NOTE, sessionId: "" }),
    JSON.stringify({ ...NOTE, fleet: null }),
    JSON.stringify({ ...NOTE, conflicts: [null] }),
    "refused",
  ])("a note that cannot be read is told as such, and no other waits for it: %s", async (text) => {
    const one = await leaveUnsent();
    const bad = join("/root/state/fleet-journal", `${"0".repeat(32)}.json`);
    one.disk.put(bad, toBytes(text));
    const openRead = one.disk.openRead.bind(one.disk);
    one.disk.openRead = (path) => (path === bad && text === "refused" ? fails() : openRead(path));
    expect(
      listPendingUploads(placeOf(one))
        .map(({ sessionId }) => sessionId)
        .sort(),
    ).toEqual(["", SESSION]);
    const again = openOther(one);
    const pushed = await uploadAll(placeOf(again));
    const outcomes = pushed.map(({ sessionPath, outcome }) => [sessionPath, outcome]);
    expect([outcomes, inFleet(one)]).toEqual([
      [
        [one.file, "given"],
        [bad, "refused"],
      ],
      ALL,
    ]);
    expect(pushed[1].message).toMatch(/cannot be read \((?:it is damaged|EIO: test)\).*Open the sessions.*remove/);
    // Nothing is tried with it.
    const { length } = again.fleet.calls;
    await given(again, 1, 1, 0);
    expect(again.fleet.calls).toHaveLength(length);
  });

  test("a journal whose folder the disk does not list is told, too", () => {
    const one = new Machine(kind);
    for (const name of ["names", "list"] as const) if (one.disk[name as "names"]) one.disk[name as "names"] = fails;
    const note = { sessionPath: "/root/state/fleet-journal", unreadable: "EIO: test" };
    expect(listPendingUploads(placeOf(one))).toEqual([expect.objectContaining(note)]);
  });

  test("a copy that nobody may write to takes the session from nobody, and says why it gives nothing", async () => {
    const one = await leaveUnsent();
    const damaged = kind === "v2" ? segmentFile(one.file, 1) : one.file;
    const whole = one.disk.content(damaged) as Uint8Array;
    const [from, to] = kind === "v2" ? ["say a0000001", "xay a0000001"] : ['"version":3', '"version":9'];
    const text = Buffer.from(whole).toString("latin1");
    expect(text).toContain(from);
    one.disk.put(damaged, Buffer.from(text.replace(from, to), "latin1"));
    const again = openOther(one);
    const reading = again.store.open(again.file);
    expect(reading.readOnly).not.toBe(null);
    await followed(reading);
    const refused = { outcome: "refused", message: reading.readOnly?.message };
    expect(await uploadAll(placeOf(again))).toEqual([expect.objectContaining(refused)]);
    reading.close();
    await given(again, 600_000, 500);
    expect(again.fleet.calls).not.toContain("take");
    expect(inFleet(one)).toEqual([line(0)]);
    // When it is whole again, it uploads its pending lines.
    one.disk.put(damaged, whole);
    expect(await uploadAll(placeOf(again))).toEqual([expect.objectContaining({ outcome: "given" })]);
    expect([inFleet(one), notesOn(one.disk)]).toEqual([ALL, []]);
  });

  describe("what the database refuses for good, while the session is open", () => {
    /** A session with a pending entry that the database does not take, and the number of requests. */
    const refusing = async (lost = 0) => {
      const clock = { now: 0 };
      const one = new Machine(kind, undefined, "one", { ...journaled, elapsed: () => clock.now });
      const { fleet } = one;
      if (lost > 0) fleet.table.past = [];
      const log = one.create();
      await written(log, 0);
      if (lost > 0) await written(log, 1);
      else await leavePending(one, log, line(1));
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
      return { one, log, unfit, tries, heal: () => Object.assign(fleet, { append }) };
    };

    acrossTiers(test, [
      { lost: 0, seconds: 60, most: 5 },
      { lost: 0, seconds: 600, most: 14 },
      { lost: 1, seconds: 600, most: 14 },
    ])(
      "is tried less and less often, and comes there when it is taken (lost: $lost, for $seconds s)",
      async ({ lost, seconds, most }) => {
        const { one, tries, heal } = await refusing(lost);
        // The first question reveals the promotion.
        expect(await tries(4000)).toBe(1);
        expect(await tries(1000 * seconds)).toBeLessThanOrEqual(most);
        heal();
        await tries(62_000);
        expect([inFleet(one), notesOn(one.disk)]).toEqual([ALL, []]);
        one.fleet.table.check();
      },
    );

    test("is tried at once where something has changed, or somebody gives all, and whoever asks is told why", async () => {
      const { one, log, tries, unfit } = await refusing();
      await tries(200_000);
      // Another server.
      one.fleet.table.promote(0);
      expect([await tries(2000), await tries(2000)]).toEqual([1, 0]);
      // The same after an outage.
      one.fleet.faultAt = () => "before";
      one.outage?.begin();
      await tries(2000);
      healed(one);
      expect(await tries(4000)).toBe(1);
      const push = openOther(one);
      push.fleet.append = unfit;
      const refused = { outcome: "refused", message: expect.stringContaining("a value") };
      expect(await uploadAll(placeOf(push))).toEqual([expect.objectContaining(refused)]);
      await expect(written(await found(log), 2)).rejects.toEqual(failed("storage_failed", { retryable: false }));
    });
  });

  test("what is still owed although nothing failed is not put down to the database", async () => {
    const one = await leaveUnsent();
    const again = openOther(one);
    const remove = one.disk.remove.bind(one.disk);
    one.disk.remove = (path) => (path.includes("fleet-journal") ? fails() : remove(path));
    const [{ outcome, message }] = await uploadAll(placeOf(again));
    expect([outcome, inFleet(one)]).toEqual(["refused", ALL]);
    expect(message).toMatch(/^(?!.*away).*note.*Push again/);
  });

  test("a branch that came to nothing is noted once, when it is made", async () => {
    const { one, log: queued } = await leaveOne({}, mine(7, 0));
    const log = queued as FileLog;
    const { other } = await second(kind, one, [line(0)]);
    await written(other, 1);
    other.close();
    const replaceFrom = log.replaceFrom.bind(log);
    let tries = 0;
    log.replaceFrom = (...args) => {
      if (tries++ === 0) throw new Failure("storage_failed");
      return replaceFrom(...args);
    };
    healed(one);
    const conflicts = () => one.journal.of(SESSION, one.file)?.conflicts.length;
    for (let n = 1; n <= 2; n++) {
      for (let turns = 0; turns < 10 && tries < n; turns++) await log.replica?.ready();
      expect([tries, conflicts()]).toEqual([n, 1]);
    }
    const { damage } = await found(log);
    expect([damage.filter(({ kind }) => kind === "diverged").length, conflicts()]).toEqual([1, 1]);
  });

  describe("with long lines of others", () => {
    const held = { heldBytes: 1 << 20 };
    const LONG = [1, 2, 3, 4, 5, 6, 7, 8, 9].map((n) =>
      entryText("custom", id(n), id(n - 1), { customType: "long", data: "x".repeat(120_000) }),
    );
    const longWritten = async (log: Log): Promise<void> => {
      for (const text of LONG) {
        log.append([toBytes(text)]);
        await log.commit();
      }
    };
    const idsOf = (texts: readonly string[]): string[] => texts.map((text) => JSON.parse(text).id as string);

    test("what was acknowledged alone is given, however long the lines are that both have", async () => {
      const one = new Machine(kind, undefined, "one", { ...journaled, ...held });
      const log = one.create();
      await written(log, 0);
      await longWritten(log);
      await leavePending(one, log, mine(70, 9));
      one.fleet.table.leave();
      const { other } = await second(kind, one, [line(0), ...LONG]);
      await written(other, 10);
      other.close();
      healed(one);
      await found(log);
      expect(idsOf(inFleet(one)).slice(9, 12)).toEqual([id(9), id(10), id(70)]);
      expect(notesOn(one.disk)).toHaveLength(1);
      one.fleet.table.check();
    });

    /** A machine with a line of its own, and more of others' than a branch can be put after. */
    const behindOthers = async (isReported: boolean) => {
      const one = new Machine(kind, undefined, "one", { isJournaled: isReported, ...held });
      let log = one.create();
      await written(log, 0);
      if (isReported) await leavePending(one, log, mine(70, 0));
      else {
        log.close();
        await one.addPlainly([mine(70, 0)]);
      }
      const { other } = await second(kind, one, [line(0)]);
      await longWritten(other);
      other.close();
      healed(one);
      if (!isReported) log = one.store.open(one.file);
      return { one, log: await found(log) };
    };

    test("a log that replaces one that is open has all that was acknowledged", async () => {
      const one = new Machine(kind, undefined, "one", { ...journaled, ...held });
      const log = one.create();
      await written(log, 0);
      await leavePending(one, log, mine(70, 0));
      const { other } = await second(kind, one, [line(0)]);
      await longWritten(other);
      other.close();
      healed(one);
      for (let n = 0; n < 8 && log.refresh().kind !== "replaced"; n++) await log.replica?.ready();
      const next = log.reopen();
      expect(idsOf(textsOf(next)).slice(0, 11)).toEqual([id(0), ...idsOf(LONG), id(70)]);
    });

    test("what was acknowledged becomes a branch after so much, which comes in pieces", async () => {
      const { one, log } = await behindOthers(true);
      await followed(log);
      expect(idsOf(inFleet(one)).slice(0, 11)).toEqual([id(0), ...idsOf(LONG), id(70)]);
      expect([textsOf(log), one.quarantined, log.replica?.status.durability]).toEqual([inFleet(one), [], "replicated"]);
      expect(log.damage).toMatchObject([{ kind: "diverged", entryId: id(70) }]);
      one.fleet.table.check();
    });

    test("what nobody was told of gives way to so much", async () => {
      const { one, log } = await behindOthers(false);
      expect([idsOf(textsOf(log)), one.quarantined]).toEqual([idsOf(inFleet(one)), [mine(70, 0)]]);
      await written(log, 10);
      one.fleet.table.check();
    });
  });
});

test("a fleet is told by its address, its tenant, and the store that this machine has met there", async () => {
  const disk = new FaultDisk();
  const address = "postgres://me@db/agents?tenant=acme";
  const fleet = readNotedFleet(disk, "/root/state", address);
  expect(fleet).toMatchObject({ address, tenant: "acme", store: undefined });
  await openKnownStore(disk, "/root/state", address).note({ store: "met later" });
  expect(fleet.store).toBe("met later");
});

test("the notes of a server name the fleet that it uses", async () => {
  const shown = "postgres://me@db/agents?tenant=acme";
  const fleet = new MemoryFleet();
  const outage = new Outage(fleet, 0, () => 0);
  const connection = { ...fleetOptions(fleet), shown, outage };
  const lives = new HereLives({ seed: 1, fleet: connection });
  const wire = await lives.start();
  await wire.result("append", { entries: [user("one")] });
  fleet.faultAt = () => "before";
  expect(await wire.result("append", { entries: [user("alone")] })).toMatchObject({ durability: "local" });
  const { home } = lives.place;
  const notes = readdirSync(home, { recursive: true, encoding: "utf8" }).filter((path) =>
    /journal\/.*json$/.test(path),
  );
  const fleets = notes.map((path) => JSON.parse(readFileSync(join(home, path), "utf8")).fleet);
  expect(fleets).toEqual([{ address: shown, tenant: "acme" }]);
});

const address = (name: string, tenant = ""): string =>
  `postgres://me@${name}/agents${tenant === "" ? "" : `?tenant=${tenant}`}`;
const fleetOf = (name: string, tenant = ""): NotedFleet => ({
  ...{ address: address(name, tenant), tenant, store: `store of ${name}` },
});
const THREE = [0, 1, 2].map(line);
const GIVEN = [expect.objectContaining({ outcome: "given" })];

/** The life cycle of a machine whose own only notes the paths in `done`. */
function lifeCycleOf({ fleet, journal, file, store }: Machine, done: string[]): LifeCycle {
  const move = async (from: string) => ({ deleted: done.push(from) });
  const own = {
    delete: move,
    archive: move,
    relocate: move,
    locate: () => file,
    trash: () => [],
  } as unknown as LifeCycle;
  return makeFleetLifeCycle(own, {
    ...{ fleet, journal, open: store.open, idAt: () => SESSION, isArchived: () => false },
    adminQueries: { keep: async () => true },
  } as unknown as LifeCyclePlace);
}

const adminOf = (machine: Machine): FleetAdminService => {
  const { fleet, journal, plain } = machine;
  const rowsOf = async (): Promise<object[]> => [{ state: "there", ...(await fleet.look(SESSION)) }];
  const local = { list: async () => ({ found: [] }) };
  const place = { ...placeOf(machine), fleet, adminQueries: { rowsOf }, local, open: plain.open, options: { journal } };
  return new FleetAdminService(place as unknown as AdminPlace);
};
const pushed = (machine: Machine) => adminOf(machine).push();

acrossTiers(describe, ["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  const machineOf = (fleet: NotedFleet, disk: FaultDisk, table = new FleetTable(), isJournaled = true): Machine => {
    const options = { isJournaled, disk, journal: journalOn(disk, fleet), heldBytes: 1 << 20 };
    const machine = new Machine(kind, table, fleet.address, options);
    machine.fleet.leasesEnd = true;
    return machine;
  };
  /** The machine of a first fleet, with a pending entry. */
  const leaveFirst = async (queued = line(1), one = machineOf(fleetOf("a"), new FaultDisk())): Promise<Machine> => {
    const log = one.create();
    await written(log, 0);
    await leavePending(one, log, queued);
    log.close();
    return one;
  };

  test.each([
    ["the next commit", true],
    ["a look at the health", true],
    ["its end", true],
    ["its end, also where there was none before", false],
  ])("what is acknowledged without a record is told once, counted, and recorded with %s", async (when, hasRecord) => {
    const disk = new FaultDisk();
    const told: string[] = [];
    const journal = journalOn(disk, undefined, (sentence) => told.push(sentence));
    const one = new Machine(kind, undefined, "one", { disk, journal });
    const { openAppend, create } = disk;
    const refuses = (path: string): boolean => path.includes("fleet-ends");
    const full = (): void => {
      disk.openAppend = (path) => (refuses(path) ? fails() : openAppend.call(disk, path));
      disk.create = (path) => (refuses(path) ? fails() : create.call(disk, path));
    };
    /** The ends that another process finds. */
    const recorded = (): number[] =>
      journalOn(disk)
        .ends.endsOf(SESSION)
        .map(({ end }) => end.entries);
    const log = one.create();
    if (!hasRecord) full();
    await written(log, 0);
    full();
    await written(log, 1);
    await written(log, 2);
    expect(told).toEqual([expect.stringContaining(SESSION)]);
    expect([journal.ends.unrecorded, recorded(), journal.ends.of(SESSION)?.end.entries]).toEqual([
      1,
      hasRecord ? [1] : [],
      3,
    ]);
    // The disk took a part of a line.
    for (const path of disk.paths().filter(refuses))
      disk.put(path, concat([disk.content(path) ?? new Uint8Array(), toBytes("{")]));
    Object.assign(disk, { openAppend, create });
    if (when === "the next commit") await written(log, 3);
    if (when === "a look at the health") expect(journal.ends.unrecorded).toBe(0);
    else log.close();
    expect(recorded()).toEqual([...(when === "the next commit" ? [4] : []), 3, 2, 1]);
    expect(told).toHaveLength(1);
  });

  test("fleet push waits once for machines that live, and names each session once", async () => {
    const one = await leaveFirst();
    healed(one);
    // An acknowledged end shows another session with entries, which the second pass uploads.
    const end = { entries: 9, bytes: 9, chain: "0".repeat(64) };
    one.journal.ends.note({ sessionId: "another", sessionPath: one.file, end, durability: "primary", had: 9 });
    await second(kind, one, [line(0)]);
    one.fleet.leasesEnd = false;
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const began = Date.now();
    const pushing = pushed(one).then((sessions) => ({ sessions, took: Date.now() - began }));
    await vi.advanceTimersByTimeAsync(120_000);
    const { sessions, took } = await pushing;
    const refused = { outcome: "refused", isHeld: true };
    expect(sessions).toMatchObject([
      { sessionId: SESSION, ...refused },
      { sessionId: "another", ...refused },
    ]);
    expect(took).toBeLessThan(40_000);
  });

  test("fleet push hides no failure of this machine behind a session that the fleet refuses", async () => {
    const one = await leaveFirst();
    healed(one);
    one.fleet.append = async () => ({ kind: "unfit", reason: "a value" });
    one.fleet.look = async () => null;
    const admin = adminOf(one);
    one.journal.ends.all = () => {
      throw eio();
    };
    await expect(admin.push()).rejects.toThrow("EIO");
  });

  test("the number of lost entries is unknown where the lines of the database cannot be read", async () => {
    const one = machineOf(fleetOf("a"), new FaultDisk());
    const log = one.create();
    await written(log, 0);
    await written(log, 1);
    log.close();
    one.fails((name) => (name === "lines" ? "before" : undefined));
    const { end, ...acknowledged } = one.journal.ends.of(SESSION) as AcknowledgedEnd;
    one.journal.ends.note({ ...acknowledged, end: { ...end, chain: "0".repeat(64) } });
    expect(await adminOf(one).listLosses()).toMatchObject([{ sessionId: SESSION, entries: null }]);
  });

  test("fleet push says what is lost, and where its record is, also after the session was written to", async () => {
    const one = machineOf(fleetOf("a"), new FaultDisk());
    const log = one.create();
    await written(log, 0);
    const { end, ...acknowledged } = one.journal.ends.of(SESSION) as AcknowledgedEnd;
    const nowhere = "0".repeat(64);
    const lost = { entries: 1, isLeast: false, commits: [{ entries: 1, last: nowhere }] };
    one.journal.ends.keepLoss(
      { ...acknowledged, end: { ...end, chain: nowhere }, last: nowhere, content: nowhere },
      lost,
    );
    await written(log, 1);
    log.close();
    const message = expect.stringMatching(/has 1 of the entries that were acknowledged .*; remove \S+\.lost\.jsonl/);
    expect(await pushed(one)).toMatchObject([{ sessionId: SESSION, outcome: "refused", message }]);
  });

  test.each([
    ["another database", fleetOf("b")],
    ["another tenant", fleetOf("a", "acme")],
  ])("what is owed to one is neither given to %s nor forgotten there", async (_, theirs) => {
    const one = await leaveFirst();
    const two = machineOf(theirs, one.disk);
    expect(listPendingUploads(placeOf(two))).toEqual([]);
    const uploader = new BackgroundUploader(placeOf(two), { elapsed: () => 1e6, followedEvery: 0 });
    uploader.renew(() => []);
    const opened = two.store.open(two.file);
    await followed(opened);
    expect([two.fleet.calls.includes("take"), inFleet(two)]).toEqual([false, []]);
    const about = { sessionId: SESSION, sessionPath: one.file };
    const message = expect.stringContaining(address("a"));
    expect(await uploadAll(placeOf(two))).toEqual([{ ...about, outcome: "refused", message }]);
    // Nor is the session written to there, whose entries would be mixed with those of the first.
    await expect(written(opened, 2)).rejects.toEqual(failed("storage_failed", { retryable: false, message }));
    opened.close();
    expect([inFleet(two), two.quarantined, notesOn(one.disk).length]).toEqual([[], [], 1]);
    healed(one);
    expect(await uploadAll(placeOf(one))).toEqual([{ ...about, outcome: "given" }]);
    expect([inFleet(one), notesOn(one.disk)]).toEqual([ALL, []]);
    const later = two.store.open(two.file);
    await followed(later);
    await written(later, 2);
    expect(inFleet(two)).toEqual(THREE);
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
    await leaveFirst(line(1), new Machine(kind, table, "before", options));
    const one = machineOf(fleetOf("a"), disk, table);
    // The entry stays pending, under its own name.
    const opened = one.store.open(one.file);
    one.fleet.faultAt = () => "before";
    await opened.replica?.ready();
    await written(opened, 2);
    opened.close();
    healed(one);
    expect(await uploadAll(placeOf(one))).toEqual(GIVEN);
    expect([inFleet(one), notesOn(disk)]).toEqual([THREE, []]);
  });

  describe("where others wrote to the session in the second of them", () => {
    /** A machine with a pending entry for one fleet that uses another by now, whose session goes on otherwise. */
    const leaveElsewhere = async (isJournaled: boolean, ...theirs: string[]) => {
      const one = await leaveFirst(mine(7, 0));
      const two = machineOf(fleetOf("b"), one.disk, new FleetTable(), isJournaled);
      const other = new Machine(kind, two.fleet.table, "other");
      await other.put([line(0), ...theirs]);
      const given = other.store.open(other.file);
      await given.replica?.confirm();
      given.close();
      two.fleet.table.leave();
      const opened = async () => {
        const log = two.store.open(two.file);
        await followed(log);
        return found(log);
      };
      return { one, two, opened };
    };

    test("the copy stays as it is, and is not written to, until what is owed to the first is given", async () => {
      const { one, two, opened } = await leaveElsewhere(true, line(1));
      const log = await opened();
      const refused = failed("storage_failed", { message: expect.stringContaining(address("a")) });
      await expect(written(log, 8)).rejects.toEqual(refused);
      expect([textsOf(log), log.damage, two.quarantined]).toEqual([[line(0), mine(7, 0)], [], []]);
      expect([inFleet(two), two.fleet.table.rows.get(SESSION)?.holder]).toEqual([ALL, null]);
      log.close();
      healed(one);
      expect(await uploadAll(placeOf(one))).toEqual(GIVEN);
      expect([inFleet(one), notesOn(one.disk)]).toEqual([[line(0), mine(7, 0)], []]);
    });

    test.each<[string, (own: LifeCycle, file: string) => unknown]>([
      ["deletes it", (own, file) => own.delete(file, false)],
      ["deletes it for good", (own, file) => own.delete(file, true)],
      ["archives it", (own, file) => own.archive(file)],
      ["relocates it", (own, file) => own.relocate(file, "/elsewhere")],
    ])("nobody %s before that is given", async (_, operate) => {
      const { two } = await leaveElsewhere(true);
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
      const { disk, fleet } = await leaveFirst();
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
      await opened.replica?.ready();
      isGiven(two);
      expect(opened.replica?.status.durability).toBe("replicated");
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
