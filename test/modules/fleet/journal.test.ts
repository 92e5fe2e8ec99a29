/** Lines that are written while the fleet is away and work goes on. Ordinary tests, over a fleet in memory. */

import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { toBytes } from "../../../src/core/json/json.ts";
import type { Log } from "../../../src/core/ports/store.ts";
import { BackgroundUploader } from "../../../src/modules/fleet/replica/uploads.ts";
import { headerText, id, SESSION } from "../../support/lines.ts";
import { type LockTable, locksOf } from "../../support/locks.ts";
import { beginning, textsOf } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { failed, line, lines, Machine, written } from "./support/machine.ts";
import { lineOf, Scene, testScenes } from "./support/scene.ts";
import { journaled, placeOf } from "./support/unsent-lines.ts";

/** Lets everything run that waits for nothing but its turn. */
async function turns(count = 60): Promise<void> {
  for (let n = 0; n < count; n++) await Promise.resolve();
}

acrossTiers(describe, ["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  testScenes(kind, journaled, {
    "it is acknowledged as local, nobody waits twice, and the fleet has it in order when it is back": `
      writes 0; is replicated; cut; writes 1; is local; durable 2; marks; asks; writes 2 3; asked look; fleet 0
      heals; finds; fleet 0 1 2 3; writes 4; is replicated; copy 0 1 2 3 4; fleet 0 1 2 3 4; notes 0`,
    "it is given to the fleet when nothing is written any more, and an idle session has no one wait":
      "cut; writes 0 1; unlocks; heals; follows; fleet 0 1",
    "it is given to the fleet without another write although the fleet still thinks that this process has it":
      "writes 0; cut; writes 1; heals; follows; fleet 0 1; is replicated",
    // The machine finds out by one of its sessions, and the epoch of this one is unchanged.
    "it is given without another write, too, where another session has found that the database is away":
      "writes 0; cut; outage; writes 1; is local; fleet 0; heals; follows; is replicated; fleet 0 1",
    "it is given without another write, too, where the append failed at first": `
      writes 0; cut; writes 5<0; loses append before; follows; is local; heals; follows; finds; is replicated
      fleet 0 5<0; writes 6<5; fleet 0 5<0 6<5`,
    // Others wrote meanwhile: these lines are fetched first.
    "it is given without another write, too, where a fetch failed at first": `
      writes 0; cut; writes 5<0; elsewhere 0 : 1; leaves; loses lines before; follows; is local; heals; follows; finds
      is replicated; fleet 0 1 5<0 @1; writes 6<5; fleet 0 1 5<0 @1 6<5`,
    // It is killed: nothing is closed. Its lease runs out.
    "the next process that opens the session gives it, though it does not journal": `
      writes 0; cut; writes 1 2; again asks; fleet 0 1 2; again writes 3; again copy 0 1 2 3; fleet 0 1 2 3`,
    "the next process that opens the session gives it, as it journals": `
      writes 0; cut; writes 1 2; again begins alone; again asks; fleet 0 1 2; again writes 3; again copy 0 1 2 3
      fleet 0 1 2 3`,
    // The next opening is where the other machine is. Facts that others need stay known.
    "where another machine wrote meanwhile, both are there: a branch, at its parent, byte for byte, and it is told": `
      writes 0 1; cut; writes 7<1 8<7; elsewhere 0 1 : 2 3; heals; finds; fleet 0 1 2 3 7<1 8<7 @3
      copy 0 1 2 3 7<1 8<7 @3; told diverged:8; is replicated; writes 4; notes 1`,
    "a server that is killed between the branch and the fleet tells of it in its next life": `
      writes 0; cut; writes 7<0; elsewhere 0 : 1; loses append before; finds; fleet 0 1
      again asks; again told diverged; fleet 0 1 7<0 @1`,
    // The database is found in the background, and then is written to.
    "new lines of one who does not know yet that others wrote are refused, and what was acknowledged stays": `
      writes 0; cut; writes 7<0; elsewhere 0 : 1; heals; asks; waits; writes 8<7 !content_modified?
      copy 0 7<0; aside 8<7; finds; writes 2; fleet 0 1 7<0 @1 2`,
    "a holder that lives is waited for: new lines are refused, those acknowledged are given when it lets go": `
      writes 0; cut; writes 1; two takes 0; heals; finds; refuses session_locked; is local; copy 0 1
      two closes; follows; is replicated; locked by nobody; fleet 0 1; writes 2; fleet 0 1 2`,
    "a commit whose answer is lost, and then the fleet is away: it is there once":
      "writes 0; loses append after before; writes 1; is local; heals; finds; writes 2; fleet 0 1 2",
    "a commit that comes late, and then the fleet is away: it is there once":
      "writes 0; loses append late before; writes 1; is local; heals; finds; writes 2; fleet 0 1 2",
    "what is acknowledged after another process gave the rest, and ended the note, becomes a branch": `
      writes 0; cut; writes 1; again asks; again closes; waits; fleet 0 1; writes 7<1; is local; elsewhere 0 1 : 2
      heals; finds; fleet 0 1 2 7<1 @2; told diverged; aside`,
    "what another process gave to the fleet is there without another write, where that ended": `
      writes 0; cut; writes 1; again asks; again closes; waits; heals; follows; is primary; notes 0; fleet 0 1`,
    "what another process gave to the fleet is there without another write, where that lives": `
      writes 0; cut; writes 1; again asks; again closes; waits; again robs; heals; follows; is primary; notes 0
      fleet 0 1`,
    "a note that is removed under a living server changes nothing about what that has acknowledged": `
      writes 0; cut; writes 7<0; elsewhere 0 : 1; unnoted; elsewhere 0 1 : 2; heals; finds
      fleet 0 1 2 7<0 @2; told diverged; aside`,
    // The branch is made, and nothing of it is sent.
    "a note that is removed under a living server changes nothing about its branch": `
      writes 0; cut; writes 7<0; elsewhere 0 : 1; loses append before; finds; cut; unnoted; elsewhere 0 1 : 2; heals
      finds; fleet 0 1 2 7<0 @1 @2; told diverged; aside`,
    "two machines begin a session with the same id while the fleet is away of one: both conversations are there": `
      cut; writes 7< 8<7; two writes 0 1; two closes; heals; finds; fleet 0 1 7< 8<7 @1; told diverged`,
    "a session that was deleted meanwhile stays here with what was acknowledged, and is not written to": `
      writes 0; cut; writes 1; deleted; heals; finds; refuses session_not_found; is local; copy 0 1
      restored; asks; writes 2; fleet 0 1 2`,
  });
  testScenes(
    kind,
    {},
    {
      "without it, nothing is acknowledged while the fleet is away": "writes 0; cut; writes 1 !storage_failed; copy 0",
    },
  );

  test.each(["take", "append", "lines"])(
    "what the database does not do for one session is no outage (%s)",
    async (failing) => {
      const reason = "invalid page in block 7";
      const { one, log } = await new Scene(kind, journaled).play(
        "writes 0",
        ...(failing === "lines" ? ["elsewhere 0 : 1; leaves"] : []),
        ...(failing === "take" ? ["unlocks"] : []),
      );
      const { fleet } = one;
      const { take, append } = fleet;
      const away = async () => ({ kind: "away", reason }) as const;
      if (failing === "take") fleet.take = away;
      if (failing === "append") fleet.append = away;
      if (failing === "lines")
        // biome-ignore lint/correctness/useYield: it fails at once.
        fleet.lines = async function* () {
          throw new Failure("storage_failed", `The fleet's database cannot be read (${reason}).`, { fleet: true });
        };
      const again = one.store.open(one.file);
      log.close();
      await again.replica?.ready();
      const wrote = (async () => {
        again.append([toBytes(lineOf("7<0"))]);
        await again.commit();
      })();
      const failure = failed("storage_failed", { retryable: true, message: expect.stringContaining(reason) });
      const error = await wrote.then(
        () => expect.unreachable(),
        (thrown) => thrown,
      );
      expect(error).toEqual(failure);
      expect(error.message).not.toContain("cannot be reached");
      expect([one.outage?.lasts, one.journal.all(), textsOf(again)]).toEqual([false, [], [line(0)]]);
      Object.assign(fleet, { take, append });
      const another = SESSION.replace(/.$/, (last) => (last === "0" ? "1" : "0"));
      const other = one.store.create(beginning(headerText({ id: another }), `/root/sessions/${another}.${kind}`));
      await written(other, 0);
      expect(other.replica?.status.durability).toBe("replicated");
    },
  );

  test("a database of which nothing comes back is waited for by the clock, which starts with what is asked for", async () => {
    const patience = async (tries: number, since: number): Promise<boolean> =>
      tries === 0 || scene.clock - since < 1000;
    const scene = new Scene(kind, { ...journaled, elapsed: () => scene.clock, patience });
    await scene.play("writes 0; later 1000000");
    scene.one.fails((name) => {
      if (name !== "look") scene.clock += 5000;
      return name === "append" ? "late" : "before";
    });
    await scene.play("writes 1; is local");
    expect(scene.clock).toBe(1_010_000);
  });

  test("a line of another process of this machine is not taken for acknowledged before that one has kept it", async () => {
    const table: LockTable = new Map();
    const scene = await new Scene(kind, { locks: locksOf("one", table) }).play("writes 0; cut; marks");
    const { one, log } = scene;
    let goOn = (): void => {};
    const waiting = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    one.fleet.turns = () => waiting;
    log.append(lines(1));
    const commit = log.commit();
    const locks = locksOf("the other", table);
    const other = new Machine(kind, scene.table, "other", { ...journaled, disk: one.disk, locks });
    other.fails(() => "before");
    other.outage?.begin();
    const seen = other.store.open(other.file);
    await expect(seen.replica?.confirm()).rejects.toEqual(failed("session_locked"));
    goOn();
    await expect(commit).rejects.toEqual(failed("storage_failed"));
    seen.close();
    const left = other.store.open(other.file);
    expect([textsOf(left), other.journal.all()]).toEqual([[line(0)], []]);
  });

  test("a push that is cut at any call leaves each line once, whoever goes on", async () => {
    for (const fault of ["before", "after", "late"] as const)
      for (let at = 0; at < 4; at++) {
        const scene = await new Scene(kind, journaled).play("writes 0; cut; writes 1; again begins alone");
        scene.actor("again").machine.fleet.faultAt = (call) => (call === at ? fault : call > at ? "before" : undefined);
        await scene.play("again asks; again writes 2; last asks; last writes 3; fleet 0 1 2 3; last copy 0 1 2 3");
      }
  });

  test("a database that comes back for one statement changes nothing about what was acknowledged", async () => {
    for (let answered = 1; answered < 6; answered++) {
      const scene = await new Scene(kind, journaled).play("writes 0; cut; writes 1");
      const first = scene.one.fleet.calls.length;
      scene.one.fleet.faultAt = (call) => (call < first + answered ? undefined : "before");
      await scene.play("finds; writes 2; heals; finds; writes 3; fleet 0 1 2 3");
    }
  });

  test("an id that both machines gave gets another in the branch, and so do those who name it", async () => {
    const scene = new Scene(kind, journaled);
    await scene.play("writes 0; cut; writes 1<0 8<1; elsewhere 0 : 1; heals; finds");
    const [first, theirs, renamed, after] = scene.table.linesOf(SESSION).map((text) => JSON.parse(text));
    expect([first.id, theirs.id, theirs.message.content]).toEqual([id(0), id(1), "say a0000001"]);
    expect(renamed).toMatchObject({ parentId: id(0), message: { content: "on one 1" } });
    expect(renamed.id).not.toBe(id(1));
    expect(after).toMatchObject({ id: id(8), parentId: renamed.id });
  });

  test.each([
    ["has a name on the medium", "storage_failed", "syncFolder", "EIO"],
    ["could be made", "storage_full", "makeFolder", "ENOSPC"],
  ] as const)("nothing is acknowledged before the journal's folder %s", async (_, name, operation, code) => {
    const scene = await new Scene(kind, journaled).play("writes 0; cut");
    const { disk } = scene.one;
    const plain = disk[operation] as (path: string) => unknown;
    const asked: string[] = [];
    Object.assign(disk, {
      [operation](path: string) {
        const isMeant = operation === "syncFolder" ? path === "/root/state" : path.includes("fleet-journal");
        if (isMeant && asked.push(path) === 1) throw Object.assign(new Error("test"), { code });
        return plain.call(disk, path);
      },
    });
    await scene.play(`writes 1 !${name}; copy 0; is replicated; writes 1; is local`);
    expect(asked.length).toBeGreaterThan(1);
  });
});

describe.each(["jsonl", "v2"] as const)(
  "what a server gives beside everything else, of sessions it has left, as %s",
  (kind) => {
    /** A machine whose server has left a session with an entry that the fleet has not, and what gives it. */
    async function left(options = {}) {
      const scene = await new Scene(kind, { isJournaled: true }).play("writes 0; cut; writes 1; closes");
      const { one, table } = scene;
      const elapsed = (): number => scene.clock;
      const upload = new BackgroundUploader(placeOf(one), { elapsed, followedEvery: 100, ...options });
      // It has been there for a while.
      scene.clock = 500;
      /** Uploads the pending lines, while these copies are open. */
      const given = async (open: () => Log[] = () => [], milliseconds = 0, count?: number): Promise<void> => {
        scene.clock += milliseconds;
        upload.renew(open);
        await turns(count);
      };
      /** Another copy on this machine, which has the first entry, or is the one that is moved. */
      const openOther = async (isMoved = false): Promise<Machine> => {
        const { disk, journal } = one;
        const other = new Machine(kind, table, "one", { isJournaled: true, disk, journal, folder: "/root/other" });
        if (isMoved) disk.rename(one.file, other.file);
        else await other.put(["0"].map(lineOf));
        return other;
      };
      return { scene, one, given, openOther };
    }

    test("a session that was left is given when the fleet is back, unless it is open", async () => {
      const { scene, given } = await left();
      await given();
      await scene.play("fleet 0; heals; marks");
      const { log } = scene;
      await given(() => [log], 500);
      await scene.play("asked; closes");
      await given(undefined, 1000);
      // It has no holder.
      await scene.play("fleet 0 1; notes 0; holder nobody");
    });

    test("a copy that is open for reading only holds up nothing, whichever copy owes it", async () => {
      const { scene, one, given, openOther } = await left();
      const other = await openOther();
      await scene.play("heals; leaves");
      const readers = [one.store.open(one.file, true), other.store.open(other.file, true)];
      expect(readers.map(({ readOnly }) => readOnly?.name)).toEqual(["read_only", "read_only"]);
      for (let minutes = 0; minutes < 60; minutes++) await given(() => readers, 60_000);
      [scene.actor("one").opened] = readers;
      await scene.play("fleet 0 1; notes 0; looks; copy 0 1; told");
    });

    test("another copy of the session that is open has nobody wait for what this one owes, unless it is written to", async () => {
      const { scene, given, openOther } = await left();
      const other = await openOther();
      await scene.play("heals; leaves");
      const open = other.store.open(other.file);
      open.lock.acquire();
      await given(() => [open]);
      await scene.play("fleet 0");
      open.lock.release();
      await given(() => [open], 1500);
      scene.actor("one").opened = open;
      // It takes in what came, and goes on after it.
      await scene.play("fleet 0 1; asks; writes 2; fleet 0 1 2; copy 0 1 2");
    });

    test("a copy that is open gives what is noted for a file that is gone", async () => {
      const { scene, given, openOther } = await left();
      const other = await openOther(true);
      await scene.play("heals; marks");
      const open = other.store.open(other.file);
      await given(() => [open]);
      await scene.play("asked");
    });

    test("where others wrote, the branch is made, and whoever opens the session next is told of it", async () => {
      const { scene, given } = await left();
      await scene.play("elsewhere 0 : 7<0; heals");
      await given(undefined, 0, 200);
      await scene.play("fleet 0 7<0 1 @7; follows; told diverged; closes; asks; told");
    });

    test("whoever writes to the session while it is given waits for that, and is not refused", async () => {
      const { scene, one, given } = await left();
      await scene.play("heals");
      let go = (): void => {};
      const gate = new Promise<void>((resolve) => {
        go = resolve;
      });
      one.fleet.turns = () => gate;
      await given();
      // The same process, with another way to the fleet.
      const { disk, journal } = one;
      const log = new Machine(kind, scene.table, "one", { disk, journal }).store.open(one.file);
      let isReady = false;
      const ready = log.replica?.ready()?.then(() => {
        isReady = true;
      });
      await turns();
      expect(isReady).toBe(false);
      go();
      await ready;
      await written(log, 2);
      scene.actor("one").opened = log;
      await scene.play("fleet 0 1 2; copy 0 1 2");
    });

    test("what is refused is tried less and less often, and at once after the fleet was away", async () => {
      const outage = { lasts: false };
      const { scene, one, given } = await left({ outage });
      await scene.play("heals", ({ row }) => Object.assign(row, { isDeleted: true }));
      const tries = async (milliseconds: number): Promise<number> => {
        one.fleet.calls.length = 0;
        for (let n = 0; n < milliseconds; n += 500) await given(undefined, n === 0 ? 0 : 500);
        scene.clock += 500;
        return one.fleet.calls.filter((name) => name === "take").length;
      };
      expect(await tries(60_000)).toBeGreaterThan(3);
      expect(await tries(600_000)).toBeLessThan(12);
      outage.lasts = true;
      await given();
      outage.lasts = false;
      await scene.play("restored");
      expect(await tries(500)).toBe(1);
      await scene.play("fleet 0 1");
    });
  },
);
