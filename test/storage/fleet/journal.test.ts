/** What is written while the fleet is away and work goes on without it. Ordinary tests, over a fleet in memory. */

import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { LEAF_MARKER } from "../../../src/core/format/head.ts";
import { bytesOf } from "../../../src/core/json/json.ts";
import type { Log } from "../../../src/core/ports/store.ts";
import { FleetTable, MemoryFleet } from "../../support/fleet.ts";
import { failed, followed, found, line, lines, Machine, second, written } from "../../support/fleet-machine.ts";
import { headerText, id, SESSION, userText } from "../../support/lines.ts";
import { type LockTable, locksOf } from "../../support/locks.ts";
import { beginning, textsOf } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";

const journaled = { isJournaled: true } as const;

function cut({ fleet }: Machine): void {
  fleet.faultAt = () => "before";
}

/** Brings the fleet back to a machine. */
function healed({ fleet }: Machine, log: Log): Promise<Log> {
  fleet.faultAt = () => undefined;
  return found(log);
}

const told = (log: Log): string[] => log.damage.map(({ kind }) => kind);
const mine = (n: number, parent: number | null): string =>
  userText(id(n), parent === null ? null : id(parent), `on one ${n}`);

/** The lines of the fleet, a leaf marker as the id at which it is. */
function inFleet({ fleet }: Machine): (string | { readonly leaf: string | null })[] {
  return fleet.table.linesOf(SESSION).map((text) => {
    const { customType, parentId } = JSON.parse(text) as { customType?: string; parentId: string | null };
    return customType === LEAF_MARKER ? { leaf: parentId } : text;
  });
}

acrossTiers(describe, ["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  test("it is acknowledged as local, nobody waits twice, and the fleet has it in order when it is back", async () => {
    const one = new Machine(kind, undefined, "one", journaled);
    const log = one.create();
    await written(log, 0);
    expect(log.durability).toBe("replicated");
    cut(one);
    await written(log, 1);
    expect([log.durability, log.durableCount]).toEqual(["local", 2]);
    const asked = one.fleet.calls.filter((name) => name !== "look").length;
    await log.ready?.();
    await written(log, 2, 3);
    expect(one.fleet.calls.filter((name) => name !== "look")).toHaveLength(asked);
    expect(inFleet(one)).toEqual([line(0)]);
    await healed(one, log);
    expect(inFleet(one)).toEqual([0, 1, 2, 3].map(line));
    await written(log, 4);
    expect([log.durability, textsOf(log)]).toEqual(["replicated", [0, 1, 2, 3, 4].map(line)]);
    expect(one.disk.paths().filter((path) => path.includes("fleet-journal/"))).toEqual([]);
    one.fleet.table.check();
  });

  test.each(["take", "append", "lines"])(
    "what the database does not do for one session is no outage: that write fails, and another session goes on (%s)",
    async (failing) => {
      const one = new Machine(kind, undefined, "one", journaled);
      const log = one.create();
      await written(log, 0);
      if (failing === "lines") {
        const { two, other } = await second(kind, one, [line(0)]);
        await written(other, 1);
        other.close();
        two.fleet.table.leave();
      }
      if (failing === "take") log.unlock();
      const reason = "invalid page in block 7";
      const { fleet } = one;
      const { take, append } = fleet;
      if (failing === "take") fleet.take = async () => ({ kind: "away", reason });
      if (failing === "append") fleet.append = async () => ({ kind: "away", reason });
      if (failing === "lines")
        // biome-ignore lint/correctness/useYield: it fails at once.
        fleet.lines = async function* () {
          throw new Failure("storage_failed", `The fleet's database cannot be read (${reason}). Try again.`, {
            fleet: true,
          });
        };
      const again = one.store.open(one.file);
      log.close();
      await again.ready?.();
      const told = failed("storage_failed", { retryable: true, message: expect.stringContaining(reason) });
      const wrote = async (): Promise<void> => {
        again.append([bytesOf(mine(7, 0))]);
        await again.commit();
      };
      const error: Failure = await wrote().then(
        () => expect.unreachable(),
        (thrown) => thrown,
      );
      expect(error).toEqual(told);
      expect(error.message).not.toContain("cannot be reached");
      expect([one.outage?.lasts, one.journal.all(), textsOf(again)]).toEqual([false, [], [line(0)]]);
      Object.assign(fleet, { take, append });
      const another = SESSION.replace(/.$/, (last) => (last === "0" ? "1" : "0"));
      const other = one.store.create(beginning(headerText({ id: another }), `/root/sessions/${another}.${kind}`));
      await written(other, 0);
      expect(other.durability).toBe("replicated");
    },
  );

  test("a database of which nothing comes back is waited for by the clock", async () => {
    let clock = 0;
    const patience = async (tries: number, since: number): Promise<boolean> => tries === 0 || clock - since < 1000;
    const one = new Machine(kind, undefined, "one", { ...journaled, elapsed: () => clock, patience });
    const log = one.create();
    await written(log, 0);
    // The clock starts with what is asked for, whenever others had to wait.
    clock = 1e6;
    one.fleet.faultAt = (_, name) => {
      if (name !== "look") clock += 5000;
      return name === "append" ? "late" : "before";
    };
    await written(log, 1);
    expect([log.durability, clock]).toEqual(["local", 1_010_000]);
  });

  test("it is given to the fleet when nothing is written any more, and an idle session has no one wait", async () => {
    const one = new Machine(kind, undefined, "one", journaled);
    const log = one.create();
    cut(one);
    await written(log, 0, 1);
    log.unlock();
    one.fleet.faultAt = () => undefined;
    await followed(log);
    expect(inFleet(one)).toEqual([0, 1].map(line));
  });

  test("it is given to the fleet without another write although the fleet still thinks that this process has it", async () => {
    const one = new Machine(kind, undefined, "one", journaled);
    const log = one.create();
    await written(log, 0);
    cut(one);
    await written(log, 1);
    one.fleet.faultAt = () => undefined;
    await followed(log);
    expect(inFleet(one)).toEqual([0, 1].map(line));
    expect(log.durability).toBe("replicated");
  });

  test("it is given without another write, too, where another session has found that the database is away", async () => {
    const one = new Machine(kind, undefined, "one", journaled);
    const log = one.create();
    await written(log, 0);
    cut(one);
    // The machine of all sessions finds out by one of them, and the epoch of this one is what it was.
    one.outage?.begin();
    await written(log, 1);
    expect([log.durability, inFleet(one)]).toEqual(["local", [line(0)]]);
    one.fleet.faultAt = () => undefined;
    await followed(log);
    expect([log.durability, inFleet(one)]).toEqual(["replicated", [0, 1].map(line)]);
  });

  test.each(["append", "lines"])(
    "it is given without another write, too, where that failed at first (%s)",
    async (failing) => {
      const one = new Machine(kind, undefined, "one", journaled);
      const log = one.create();
      await written(log, 0);
      cut(one);
      log.append([bytesOf(mine(5, 0))]);
      await log.commit();
      // Others wrote meanwhile: these lines are fetched first.
      if (failing === "lines") {
        const { two, other } = await second(kind, one, [line(0)]);
        await written(other, 1);
        other.close();
        two.fleet.table.leave();
      }
      one.fleet.faultAt = (_, name) => (name === failing ? "before" : undefined);
      await followed(log);
      expect(log.durability).toBe("local");
      one.fleet.faultAt = () => undefined;
      await followed(log);
      const now = await found(log);
      expect(now.durability).toBe("replicated");
      expect(inFleet(one)).toEqual(expect.arrayContaining([line(0), mine(5, 0)]));
      // Nothing stands against what is written next.
      now.append([bytesOf(userText(id(6), id(5)))]);
      await now.commit();
      one.fleet.table.check();
    },
  );

  test("a line of another process of this machine is not taken for acknowledged before that one has kept it", async () => {
    const table: LockTable = new Map();
    const one = new Machine(kind, undefined, "one", { locks: locksOf("one", table) });
    const log = one.create();
    await written(log, 0);
    one.fleet.faultAt = () => "before";
    let goOn = (): void => {};
    const waiting = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    one.fleet.turns = () => waiting;
    log.append(lines(1));
    const commit = log.commit();
    const other = new Machine(kind, one.fleet.table, "other", {
      ...journaled,
      disk: one.disk,
      locks: locksOf("the other", table),
    });
    cut(other);
    other.outage?.begin();
    const seen = other.store.open(other.file);
    await expect(seen.confirm?.()).rejects.toEqual(failed("session_locked"));
    goOn();
    await expect(commit).rejects.toEqual(failed("storage_failed"));
    seen.close();
    const left = other.store.open(other.file);
    expect([textsOf(left), other.journal.all()]).toEqual([[line(0)], []]);
  });

  test.each([true, false])(
    "the next process that opens the session gives it, whether it journals (%s)",
    async (next) => {
      const one = new Machine(kind, undefined, "one", journaled);
      const log = one.create();
      await written(log, 0);
      cut(one);
      await written(log, 1, 2);
      // Killed: nothing is closed. Its lease runs out.
      const again = new Machine(kind, one.fleet.table, "one again", { isJournaled: next, disk: one.disk });
      again.fleet.leasesEnd = true;
      const opened = again.store.open(one.file);
      await opened.ready?.();
      expect(inFleet(one)).toEqual([0, 1, 2].map(line));
      await written(opened, 3);
      expect([textsOf(opened), inFleet(one)]).toEqual([[0, 1, 2, 3].map(line), [0, 1, 2, 3].map(line)]);
    },
  );

  test("a push that is cut at any call leaves each line once, whoever goes on", async () => {
    for (const fault of ["before", "after", "late"] as const)
      for (let at = 0; at < 4; at++) {
        const one = new Machine(kind, undefined, "one", journaled);
        const log = one.create();
        await written(log, 0);
        cut(one);
        await written(log, 1);
        const again = new Machine(kind, one.fleet.table, "one again", { ...journaled, disk: one.disk });
        again.fleet.leasesEnd = true;
        again.fleet.faultAt = (call) => (call === at ? fault : call > at ? "before" : undefined);
        const opened = again.store.open(one.file);
        await opened.ready?.();
        await written(opened, 2);
        const last = new Machine(kind, one.fleet.table, "the last", { disk: one.disk });
        last.fleet.leasesEnd = true;
        const end = last.store.open(one.file);
        await end.ready?.();
        await written(end, 3);
        expect(inFleet(one), `${fault} ${at}`).toEqual([0, 1, 2, 3].map(line));
        expect(textsOf(end)).toEqual([0, 1, 2, 3].map(line));
        one.fleet.table.check();
      }
  });

  test("where another machine wrote meanwhile, both are there: a branch, at its parent, byte for byte, and it is told", async () => {
    const one = new Machine(kind, undefined, "one", journaled);
    let log = one.create();
    await written(log, 0, 1);
    cut(one);
    log.append([bytesOf(mine(7, 1)), bytesOf(mine(8, 7))]);
    await log.commit();
    const { other } = await second(kind, one, [0, 1].map(line));
    await written(other, 2, 3);
    other.close();
    log = await healed(one, log);
    const all = [0, 1, 2, 3].map(line).concat(mine(7, 1), mine(8, 7));
    // Whoever opens it is where the other machine is.
    expect(inFleet(one)).toEqual([...all, { leaf: id(3) }]);
    expect(textsOf(log).slice(0, -1)).toEqual(all);
    expect([told(log), log.damage[0].entryId]).toEqual([["diverged"], id(8)]);
    expect(log.durability).toBe("replicated");
    await written(log, 4);
    one.fleet.table.check();
    // What others have to know stays known.
    expect(one.disk.paths().filter((path) => path.includes("fleet-journal/"))).toHaveLength(1);
  });

  test("a server that is killed between the branch and the fleet tells of it in its next life", async () => {
    const one = new Machine(kind, undefined, "one", journaled);
    const log = one.create();
    await written(log, 0);
    cut(one);
    log.append([bytesOf(mine(7, 0))]);
    await log.commit();
    const { other } = await second(kind, one, [line(0)]);
    await written(other, 1);
    other.close();
    // The branch is made, and nothing of it is sent.
    one.fleet.faultAt = (_, name) => (name === "append" ? "before" : undefined);
    await found(log);
    expect(inFleet(one)).toEqual([0, 1].map(line));
    const again = new Machine(kind, one.fleet.table, "one again", { disk: one.disk });
    again.fleet.leasesEnd = true;
    const opened = again.store.open(one.file);
    await opened.ready?.();
    expect(told(opened)).toEqual(["diverged"]);
    expect(inFleet(one)).toEqual([line(0), line(1), mine(7, 0), { leaf: id(1) }]);
  });

  test("new lines of one who does not know yet that others wrote are refused, and what was acknowledged stays", async () => {
    const one = new Machine(kind, undefined, "one", journaled);
    let log = one.create();
    await written(log, 0);
    cut(one);
    log.append([bytesOf(mine(7, 0))]);
    await log.commit();
    const { other } = await second(kind, one, [line(0)]);
    await written(other, 1);
    other.close();
    // The database is found in the background, and then is written to.
    one.fleet.faultAt = () => undefined;
    await log.ready?.();
    for (let n = 0; n < 5; n++) await Promise.resolve();
    log.append([bytesOf(mine(8, 7))]);
    await expect(log.commit()).rejects.toEqual(failed("content_modified", { retryable: true }));
    expect([textsOf(log), one.aside]).toEqual([[line(0), mine(7, 0)], [mine(8, 7)]]);
    log = await found(log);
    await written(log, 2);
    expect(inFleet(one)).toEqual([line(0), line(1), mine(7, 0), { leaf: id(1) }, line(2)]);
  });

  test("a holder that lives is waited for: new lines are refused, those acknowledged are given when it lets go", async () => {
    const one = new Machine(kind, undefined, "one", journaled);
    const log = one.create();
    await written(log, 0);
    cut(one);
    await written(log, 1);
    const { two, other } = await second(kind, one, [line(0)]);
    await healed(one, log);
    expect(() => log.append(lines(2))).toThrow(failed("session_locked"));
    expect([log.durability, textsOf(log)]).toEqual(["local", [0, 1].map(line)]);
    other.close();
    await two.fleet.close();
    await followed(log);
    expect([log.durability, log.lockedBy, inFleet(one)]).toEqual(["replicated", null, [0, 1].map(line)]);
    await written(log, 2);
    expect(inFleet(one)).toEqual([0, 1, 2].map(line));
  });

  test("a database that comes back for one statement changes nothing about what was acknowledged", async () => {
    for (let answered = 1; answered < 6; answered++) {
      const one = new Machine(kind, undefined, "one", journaled);
      const log = one.create();
      await written(log, 0);
      cut(one);
      await written(log, 1);
      const first = one.fleet.calls.length;
      one.fleet.faultAt = (call) => (call < first + answered ? undefined : "before");
      await found(log);
      await written(log, 2);
      await healed(one, log);
      await written(log, 3);
      expect(inFleet(one), `${answered}`).toEqual([0, 1, 2, 3].map(line));
    }
  });

  test("a commit of which nobody knows, and then the fleet is away: it is there once", async () => {
    for (const fault of ["after", "late"] as const) {
      const one = new Machine(kind, undefined, "one", journaled);
      const log = one.create();
      await written(log, 0);
      one.fleet.faultAt = (_, name) => (name === "append" ? fault : "before");
      await written(log, 1);
      expect(log.durability).toBe("local");
      await healed(one, log);
      await written(log, 2);
      expect(inFleet(one)).toEqual([0, 1, 2].map(line));
    }
  });

  /** Another process of the same machine gives the fleet what the journal names, and ends. */
  async function pushedByAnother(one: Machine): Promise<void> {
    const again = new Machine(kind, one.fleet.table, "push", { disk: one.disk });
    again.fleet.leasesEnd = true;
    const opened = again.store.open(one.file);
    await opened.follow?.();
    await opened.ready?.();
    opened.close();
    await Promise.resolve();
  }

  test("what is acknowledged after another process ended the note is acknowledged: it becomes a branch", async () => {
    const one = new Machine(kind, undefined, "one", journaled);
    let log = one.create();
    await written(log, 0);
    cut(one);
    await written(log, 1);
    await pushedByAnother(one);
    expect(inFleet(one)).toEqual([0, 1].map(line));
    log.append([bytesOf(mine(7, 1))]);
    await log.commit();
    expect(log.durability).toBe("local");
    const { other } = await second(kind, one, [0, 1].map(line));
    await written(other, 2);
    other.close();
    log = await healed(one, log);
    expect(inFleet(one)).toEqual([0, 1, 2].map(line).concat(mine(7, 1), { leaf: id(2) } as never));
    expect([told(log), one.aside]).toEqual([["diverged"], []]);
  });

  test.each(["lives", "ended"] as const)(
    "what another process gave to the fleet is there without another write, whether that process %s",
    async (life) => {
      const one = new Machine(kind, undefined, "one", journaled);
      const log = one.create();
      await written(log, 0);
      cut(one);
      await written(log, 1);
      await pushedByAnother(one);
      if (life === "lives") await new MemoryFleet(one.fleet.table, "push").take(SESSION);
      one.fleet.faultAt = () => undefined;
      await followed(log);
      expect(["primary", "replicated"]).toContain(log.durability);
      expect(one.disk.paths().filter((path) => path.includes("fleet-journal/"))).toEqual([]);
    },
  );

  test.each(["acknowledged", "a branch"] as const)(
    "a note that is removed under a living server changes nothing about what that has acknowledged (%s)",
    async (moment) => {
      const one = new Machine(kind, undefined, "one", journaled);
      let log = one.create();
      await written(log, 0);
      cut(one);
      log.append([bytesOf(mine(7, 0))]);
      await log.commit();
      const { other } = await second(kind, one, [line(0)]);
      await written(other, 1);
      other.close();
      if (moment === "a branch") {
        // It is made, and nothing of it is sent.
        one.fleet.faultAt = (_, name) => (name === "append" ? "before" : undefined);
        log = await found(log);
        cut(one);
      }
      one.disk.remove(one.disk.paths().find((path) => path.includes("fleet-journal/")) as string);
      const { other: later } = await second(kind, one, [0, 1].map(line));
      await written(later, 2);
      later.close();
      log = await healed(one, log);
      const there = inFleet(one);
      expect(there.filter((one) => typeof one === "string")).toEqual([line(0), line(1), line(2), mine(7, 0)]);
      expect(there.at(-1)).toEqual({ leaf: id(2) });
      expect([told(log), one.aside]).toEqual([["diverged"], []]);
    },
  );

  test("two machines begin a session with the same id while the fleet is away of one: both conversations are there", async () => {
    const one = new Machine(kind, undefined, "one", journaled);
    let log = one.create();
    cut(one);
    log.append([bytesOf(mine(7, null)), bytesOf(mine(8, 7))]);
    await log.commit();
    const two = new Machine(kind, one.fleet.table, "two");
    const other = two.create();
    await written(other, 0, 1);
    other.close();
    log = await healed(one, log);
    expect(inFleet(one)).toEqual([line(0), line(1), mine(7, null), mine(8, 7), { leaf: id(1) }]);
    expect(told(log)).toEqual(["diverged"]);
  });

  test("an id that both machines gave gets another in the branch, and so do those who name it", async () => {
    const one = new Machine(kind, undefined, "one", journaled);
    let log = one.create();
    await written(log, 0);
    cut(one);
    log.append([bytesOf(mine(1, 0)), bytesOf(mine(8, 1))]);
    await log.commit();
    const { other } = await second(kind, one, [line(0)]);
    await written(other, 1);
    other.close();
    log = await healed(one, log);
    const [first, theirs, renamed, after] = inFleet(one).map((text) =>
      typeof text === "string" ? JSON.parse(text) : text,
    );
    expect([first.id, theirs.id, theirs.message.content]).toEqual([id(0), id(1), "say a0000001"]);
    expect(renamed).toMatchObject({ parentId: id(0), message: { content: "on one 1" } });
    expect(renamed.id).not.toBe(id(1));
    expect(after).toMatchObject({ id: id(8), parentId: renamed.id });
    one.fleet.table.check();
  });

  test("a session that was deleted meanwhile stays here with what was acknowledged, and is not written to", async () => {
    const one = new Machine(kind, undefined, "one", journaled);
    const log = one.create();
    await written(log, 0);
    cut(one);
    await written(log, 1);
    const row = one.fleet.table.rows.get(SESSION);
    if (row) row.isDeleted = true;
    await healed(one, log);
    expect(() => log.append(lines(2))).toThrow(failed("session_not_found"));
    expect([log.durability, textsOf(log)]).toEqual(["local", [0, 1].map(line)]);
    if (row) row.isDeleted = false;
    await log.ready?.();
    await written(log, 2);
    expect(inFleet(one)).toEqual([0, 1, 2].map(line));
  });

  test("what is acknowledged has a journal whose folder has a name on the medium", async () => {
    const one = new Machine(kind, undefined, "one", journaled);
    const log = one.create();
    await written(log, 0);
    const sync = one.disk.syncFolder.bind(one.disk);
    let asked = 0;
    one.disk.syncFolder = async (folder) => {
      if (folder === "/root/state" && ++asked === 1) throw Object.assign(new Error("test"), { code: "EIO" });
      return sync(folder);
    };
    cut(one);
    log.append(lines(1));
    await expect(log.commit()).rejects.toEqual(failed("storage_failed"));
    await written(log, 1);
    expect([log.durability, asked]).toEqual(["local", 2]);
  });

  test("nothing is acknowledged that the journal cannot note", async () => {
    const one = new Machine(kind, undefined, "one", journaled);
    const log = one.create();
    await written(log, 0);
    cut(one);
    const { makeFolder } = one.disk;
    one.disk.makeFolder = (path) => {
      if (path.includes("fleet-journal")) throw Object.assign(new Error("full"), { code: "ENOSPC" });
      return makeFolder.call(one.disk, path);
    };
    log.append(lines(1));
    await expect(log.commit()).rejects.toEqual(failed("storage_full"));
    expect([textsOf(log), log.durability]).toEqual([[line(0)], "replicated"]);
    one.disk.makeFolder = makeFolder;
    await written(log, 1);
    expect(log.durability).toBe("local");
  });

  test("without it, nothing is acknowledged while the fleet is away", async () => {
    const one = new Machine(kind, new FleetTable(), "one");
    const log = one.create();
    await written(log, 0);
    cut(one);
    log.append(lines(1));
    await expect(log.commit()).rejects.toEqual(failed("storage_failed"));
    expect(textsOf(log)).toEqual([line(0)]);
  });
});
