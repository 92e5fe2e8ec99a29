/** What becomes of commits where calls of the fleet fail, and of copies that are not what the fleet has. */

import { describe, expect, test, vi } from "vitest";
import { bytesOf, textOf } from "../../../src/core/json/json.ts";
import type { Log } from "../../../src/core/ports/store.ts";
import { type FleetFault, MemoryFleet } from "../../support/fleet.ts";
import {
  failed,
  followed,
  found,
  line,
  lines,
  Machine,
  type MachineKind,
  second,
  written,
} from "../../support/fleet-machine.ts";
import { id, SESSION, userText } from "../../support/lines.ts";
import { beginning, textsOf } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";

/** What a host has been told of a line. */
type Told = "acknowledged" | "refused" | "unknown";

/** Has lines written as a host does that looks before it tries again. Returns what it was told each time. */
async function persist(log: Log, { table }: MemoryFleet, ns: readonly number[]): Promise<Told[]> {
  const told: Told[] = [];
  for (let tries = 0; tries < 5; tries++) {
    await log.ready?.();
    log.refresh();
    if (ns.every((n) => log.nodes.position(id(n)) >= 0)) return told;
    expect(ns.some((n) => log.nodes.position(id(n)) >= 0)).toBe(false);
    try {
      await written(log, ...ns);
      return [...told, "acknowledged"];
    } catch (error) {
      expect(["outcome_unknown", "storage_failed"]).toContain((error as Error).name);
      told.push((error as Error).name === "outcome_unknown" ? "unknown" : "refused");
      // What was refused is not there.
      const there = table.linesOf(SESSION);
      if (told.at(-1) === "refused") expect(there.filter((text) => ns.map(line).includes(text))).toEqual([]);
    }
  }
  throw new Error("it never came to an end");
}

/** A session's life, in which call number `at` goes wrong. Returns how many calls there were. */
async function live(kind: MachineKind, at: number, fault: FleetFault, tries: number): Promise<number> {
  const machine = new Machine(kind, undefined, undefined, { tries });
  const { fleet } = machine;
  fleet.faultAt = (call) => (call === at ? fault : undefined);
  const log = machine.create();
  for (const ns of [[0], [1, 2], [3]]) {
    const there = fleet.table.linesOf(SESSION);
    const told = await persist(log, fleet, ns);
    // Whoever asks often enough is told the truth.
    if (tries > 0) expect(told).toEqual(["acknowledged"]);
    expect(fleet.table.linesOf(SESSION)).toEqual([...there, ...ns.map(line)]);
    if (ns[0] === 1) log.unlock();
  }
  await Promise.resolve();
  expect(textsOf(log)).toEqual([0, 1, 2, 3].map(line));
  log.close();
  // What is on the disk is the same, and the fleet sees that.
  const again = machine.store.open(machine.file);
  await persist(again, fleet, [4]);
  expect(textsOf(again)).toEqual([0, 1, 2, 3, 4].map(line));
  expect(fleet.table.linesOf(SESSION)).toEqual([0, 1, 2, 3, 4].map(line));
  again.close();
  fleet.table.check();
  return fleet.calls.length;
}

/** Returns what brings the session back to how the fleet has it now, when nobody had it. */
function remembered({ table }: MemoryFleet): () => void {
  const row = table.rows.get(SESSION);
  if (!row) throw new Error("the session is missing");
  const before = { ...row, holder: null, lines: [...row.lines], epochs: [...row.epochs], facts: [...row.facts] };
  return () => void Object.assign(row, before);
}

acrossTiers(describe, ["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  test("a commit is given to the fleet while the disk keeps it, and is durable when both have it", async () => {
    const one = new Machine(kind);
    const log = one.create();
    await written(log, 0);
    const { disk, fleet } = one;
    let given = (): void => {};
    const arrived = new Promise<void>((resolve) => (given = resolve));
    fleet.turns = async () => given();
    const sync = disk.sync.bind(disk);
    const syncs: unknown[] = [];
    disk.sync = async (fd, beside) => {
      await arrived;
      syncs.push([log.durableCount, beside === true]);
      await sync(fd);
    };
    await written(log, 1);
    // On this thread the disk would hold up what is to be sent. Rows of the index come when the fleet has answered.
    expect(syncs).toEqual(
      kind === "jsonl"
        ? [[1, true]]
        : [
            [1, true],
            [1, false],
          ],
    );
    expect([log.durableCount, log.nodes.count]).toEqual([2, 2]);
    fleet.table.check();
  });

  test("a commit that goes on without the fleet is acknowledged when the disk has it, and not if the disk refuses", async () => {
    const one = new Machine(kind, undefined, "one", { isJournaled: true });
    const log = one.create();
    await written(log, 0);
    const { disk, fleet } = one;
    const sync = disk.sync.bind(disk);
    // Once while the fleet is found to be away, and once when that is known.
    for (const text of ["found", "known"]) {
      fleet.faultAt = () => "before";
      disk.sync = () => Promise.reject(Object.assign(new Error("test"), { code: "EIO" }));
      await log.ready?.();
      log.append([bytesOf(userText(id(50), id(0), text))]);
      await expect(log.commit(), text).rejects.toEqual(failed("storage_failed"));
      expect([log.durableCount, log.nodes.count, log.durability], text).toEqual([1, 1, "replicated"]);
    }
    disk.sync = sync;
    await written(log, 1);
    expect([log.durableCount, log.durability]).toEqual([2, "local"]);
  });

  test("a session that was silent is taken again, but for one whose lease the fleet has just renewed", async () => {
    let clock = 0;
    const one = new Machine(kind, undefined, "one", { elapsed: () => clock });
    const log = one.create();
    await written(log, 0);
    const takings = (): number => one.fleet.calls.filter((name) => name === "take").length;
    const first = takings();
    one.fleet.renewed = 10;
    clock = 5000;
    await log.ready?.();
    await written(log, 1);
    expect(takings()).toBe(first);
    one.fleet.renewed = 5000;
    clock = 10_000;
    await log.ready?.();
    await written(log, 2);
    expect(takings()).toBe(first + 1);
    one.fleet.table.check();
  });

  test.each(["before", "after", "late"] as const)(
    "every call fails before and after its effect, or arrives late: each line is there once, whatever was told (%s)",
    async (fault) => {
      const calls = await live(kind, -1, "before", 0);
      expect(calls).toBeGreaterThan(8);
      for (const tries of [0, 2]) for (let at = 0; at < calls; at++) await live(kind, at, fault, tries);
    },
  );

  test("a commit whose answer is lost, and that cannot be asked about, is unknown, and comes back as another's", async () => {
    const machine = new Machine(kind);
    const log = machine.create();
    await written(log, 0);
    machine.fleet.faultAt = (_, name) => (name === "append" ? "after" : "before");
    log.append(lines(1));
    await expect(log.commit()).rejects.toEqual(failed("outcome_unknown", { retryable: true }));
    expect([textsOf(log), log.durableCount]).toEqual([[line(0)], 1]);
    // As long as nobody can say what became of it, nothing is written.
    await log.ready?.();
    expect(() => log.append(lines(2))).toThrow(failed("storage_failed"));
    machine.fleet.faultAt = () => undefined;
    await log.ready?.();
    expect(textsOf(log)).toEqual([0, 1].map(line));
    await written(log, 2);
    expect(machine.fleet.table.linesOf(SESSION)).toEqual([0, 1, 2].map(line));
  });

  test("a commit that the fleet never heard of fails as if the disk had refused", async () => {
    const machine = new Machine(kind);
    machine.fleet.faultAt = () => "before";
    const log = machine.create();
    log.append(lines(0));
    await expect(log.commit()).rejects.toEqual(failed("storage_failed", { retryable: true }));
    expect([textsOf(log), log.persisted]).toEqual([[], false]);
    machine.fleet.faultAt = () => undefined;
    await written(log, 0);
    expect(machine.fleet.table.linesOf(SESSION)).toEqual([line(0)]);
  });

  test.each(["nothing", "taking"] as const)(
    "a commit that is refused stays away, however late it arrives; a fleet that raises no epoch is found out (breaks %s)",
    async (breaks) => {
      const machine = new Machine(kind, undefined, "one", { tries: 1 });
      const log = machine.create();
      await written(log, 0);
      machine.fleet.breaks = breaks;
      const first = machine.fleet.calls.length;
      // The taking is answered, and after it nothing.
      machine.fleet.faultAt = (call) => (["late", undefined, "before", "before"] as const)[call - first];
      log.append(lines(1));
      await expect(log.commit()).rejects.toEqual(failed("storage_failed"));
      expect(machine.fleet.table.linesOf(SESSION).includes(line(1))).toBe(breaks === "taking");
    },
  );

  test("a server that was stopped while another took over is refused, and its lines are kept aside", async () => {
    const one = new Machine(kind);
    const log = one.create();
    await written(log, 0);
    const two = new Machine(kind, one.fleet.table, "two");
    await two.put([line(0)]);
    const other = two.store.open(two.file);
    await other.ready?.();
    expect(() => other.append(lines(1))).toThrow(failed("session_locked"));
    expect(other.lockedBy).toMatchObject({ client: "one", host: "host of one" });
    two.fleet.leasesEnd = true;
    await other.ready?.();
    await written(other, 1);
    log.append([bytesOf(userText(id(7), id(0)))]);
    await expect(log.commit()).rejects.toEqual(
      failed("session_locked", { details: { holder: two.fleet.holder.shown, keptAt: `/aside/${SESSION}` } }),
    );
    expect(one.aside).toEqual([userText(id(7), id(0))]);
    expect([textsOf(log), one.fleet.table.linesOf(SESSION)]).toEqual([[line(0)], [0, 1].map(line)]);
    other.close();
    await log.ready?.();
    await written(log, 2);
    expect(textsOf(log)).toEqual([0, 1, 2].map(line));
    one.fleet.table.check();
  });

  test("what waits behind a commit that is refused is kept aside with it", async () => {
    const one = new Machine(kind);
    const log = one.create();
    await written(log, 0);
    const { two, other } = await second(kind, one, [line(0)]);
    const outcomes: Promise<unknown>[] = [];
    for (const n of [1, 2]) {
      log.append(lines(n));
      outcomes.push(log.commit().catch((error) => error));
    }
    const kept = { holder: two.fleet.holder.shown, keptAt: `/aside/${SESSION}` };
    for (const outcome of await Promise.all(outcomes))
      expect(outcome).toEqual(failed("session_locked", { details: kept }));
    expect(one.aside).toEqual([1, 2].map(line));
    expect(textsOf(log)).toEqual([line(0)]);
    other.close();
  });

  test("a copy with a line that the fleet never got shows what the fleet has instead, though that is no more", async () => {
    const one = new Machine(kind);
    const first = one.create();
    await written(first, 0);
    first.close();
    // A server died after its disk had the line, and before the database.
    await one.addPlainly([userText(id(8), id(0))]);
    const two = new Machine(kind, one.fleet.table, "two");
    await two.put([line(0)]);
    one.fleet.table.leave();
    const other = two.store.open(two.file);
    await written(other, 1);
    other.close();
    one.fleet.table.leave();
    const again = new Machine(kind, one.fleet.table, "again", { disk: one.disk });
    const log = again.store.open(again.file);
    await followed(log);
    expect(log.refresh().kind).toBe("replaced");
    const now = log.reopen();
    expect(textsOf(now)).toEqual([0, 1].map(line));
    expect(again.aside).toEqual([userText(id(8), id(0))]);
    const asked = again.fleet.calls.length;
    await followed(now);
    // That both have the same is found out once, and without a fetch.
    expect(new Set(again.fleet.calls.slice(asked))).toEqual(new Set(["look"]));
    for (const one of [log, now]) one.close();
  });

  test("a copy of another session under the same id is compared once, and then left alone", async () => {
    const one = new Machine(kind);
    const log = one.create();
    await written(log, 0, 1);
    log.close();
    one.fleet.table.leave();
    const two = new Machine(kind, one.fleet.table, "two");
    await two.put([userText(id(7), null), userText(id(8), id(7))]);
    const other = two.store.open(two.file);
    let copied = 0;
    const copy = other.copy.bind(other);
    other.copy = (...given) => {
      copied++;
      return copy(...given);
    };
    await followed(other);
    const [fetched, compared] = [two.fleet.calls.filter((name) => name === "lines").length, copied];
    await followed(other);
    expect([two.fleet.calls.filter((name) => name === "lines").length, copied]).toEqual([fetched, compared]);
    expect(compared).toBeGreaterThan(0);
    // Others go on with it: then it is looked at again.
    const first = one.store.open(one.file);
    await written(first, 2);
    first.close();
    await followed(other);
    expect(copied).toBeGreaterThan(compared);
    // Nobody of this machine is kept from it.
    const beside = two.other.open(two.file);
    expect(beside.acquireLock()).toBe(true);
    for (const one of [beside, other]) one.close();
  });

  test("a key is repeated while the fleet is away, though somebody else had the session before", async () => {
    const one = new Machine(kind, undefined, "one", { isJournaled: true });
    const log = one.create();
    await written(log, 0);
    log.unlock();
    const two = new Machine(kind, one.fleet.table, "two");
    await two.put([line(0)]);
    const other = two.store.open(two.file);
    await other.ready?.();
    await log.ready?.();
    expect(() => log.append(lines(1))).toThrow(failed("session_locked"));
    one.outage?.begin();
    one.fleet.faultAt = () => "before";
    await one.addPlainly([line(1)]);
    log.refresh();
    await log.confirm?.();
    expect([log.durability, textsOf(log)]).toEqual(["local", [0, 1].map(line)]);
    for (const one of [log, other]) one.close();
  });

  test.each([
    [false, "what others wrote is fetched"],
    [true, "what others wrote is fetched"],
    [true, "its branch is noted"],
  ])(
    "what a program without the fleet writes while a copy gives way stays in the session or is kept (alone %s, while %s)",
    async (isJournaled, when) => {
      const one = new Machine(kind, undefined, "one", { isJournaled });
      const log = one.create();
      await written(log, 0);
      const write = (n: number, parent: number): Promise<void> => one.addPlainly([userText(id(n), id(parent))]);
      if (isJournaled) {
        one.fleet.faultAt = () => "before";
        log.append([bytesOf(userText(id(5), id(0)))]);
        await log.commit();
      } else await write(5, 0);
      log.unlock();
      const { other } = await second(kind, one, [line(0)]);
      await written(other, 1, 2);
      other.close();
      one.fleet.table.leave();
      one.fleet.faultAt = () => undefined;
      let hasWritten = false;
      const meanwhile = async (): Promise<void> => {
        if (hasWritten) return;
        hasWritten = true;
        await write(6, 5);
      };
      const { diverged } = one.journal;
      if (when === "its branch is noted")
        one.journal.diverged = async (...given) => {
          await diverged.apply(one.journal, given);
          await meanwhile();
        };
      else
        one.fleet.turns = async () => {
          if (one.fleet.calls.at(-1) === "lines") await meanwhile();
        };
      const now = await found(await found(log));
      expect(hasWritten).toBe(true);
      for (const n of [5, 6])
        expect([...textsOf(now), ...one.aside], `line ${n}`).toContainEqual(expect.stringContaining(id(n)));
      expect(textsOf(now)).toEqual(expect.arrayContaining([0, 1, 2].map(line)));
      // Of the branch that came to nothing nobody is told.
      expect(now.damage.filter((one) => one.kind === "diverged")).toHaveLength(isJournaled ? 1 : 0);
      now.close();
    },
  );

  test("a commit that is refused from the start is not told as unknown, also by one who has just opened the session", async () => {
    const one = new Machine(kind);
    const log = one.create();
    await written(log, 0);
    const two = new Machine(kind, one.fleet.table, "two");
    await two.put([line(0)]);
    const other = two.store.open(two.file);
    other.append(lines(1));
    await expect(other.commit()).rejects.toEqual(failed("session_locked"));
    expect([textsOf(other), one.fleet.table.linesOf(SESSION)]).toEqual([[line(0)], [line(0)]]);
  });

  test("a server whose lease ran out goes on where nobody else wrote", async () => {
    const one = new Machine(kind);
    const log = one.create();
    await written(log, 0);
    const two = new MemoryFleet(one.fleet.table, "two");
    two.leasesEnd = true;
    const taking = await two.take(SESSION);
    await two.release(SESSION, taking.kind === "taken" ? taking.epoch : -1);
    await written(log, 1);
    expect(one.fleet.table.linesOf(SESSION)).toEqual([0, 1].map(line));
  });

  test("an acknowledged line of a writer that was then fenced is acknowledged, with what others wrote after it", async () => {
    const one = new Machine(kind, undefined, "one", { patience: async () => true });
    const two = new Machine(kind, one.fleet.table, "two");
    const log = one.create();
    await written(log, 0);
    // The answer is lost, and before it is asked for another machine takes over and writes.
    one.fleet.faultAt = (_, name) => (name === "append" ? "after" : undefined);
    const asked = one.fleet.take.bind(one.fleet);
    one.fleet.take = async (...given) => {
      await two.put([0, 1].map(line));
      two.fleet.leasesEnd = true;
      const other = two.store.open(two.file);
      await other.ready?.();
      await written(other, 2);
      one.fleet.take = asked;
      return asked(...given);
    };
    await written(log, 1);
    expect(one.fleet.table.linesOf(SESSION)).toEqual([0, 1, 2].map(line));
    expect(textsOf(log)).toEqual([0, 1].map(line));
  });

  test("lines that a dead server had not given to the fleet are given with the next commit", async () => {
    const one = new Machine(kind);
    const log = one.create();
    await written(log, 0);
    log.close();
    await one.addPlainly([line(1)]);
    const again = one.store.open(one.file);
    await again.ready?.();
    await written(again, 2);
    expect(one.fleet.table.linesOf(SESSION)).toEqual([0, 1, 2].map(line));
  });

  test("a copy gives back what a database has lost that went back in time", async () => {
    const one = new Machine(kind);
    const log = one.create();
    await written(log, 0);
    const goBack = remembered(one.fleet);
    await written(log, 1);
    goBack();
    await written(log, 2);
    expect(one.fleet.table.linesOf(SESSION)).toEqual([0, 1, 2].map(line));
  });

  test("a copy that is open gives back what an older state of the database lacks, without another write", async () => {
    const one = new Machine(kind);
    const log = one.create();
    await written(log, 0);
    const goBack = remembered(one.fleet);
    await written(log, 1);
    log.unlock();
    goBack();
    await followed(log);
    expect(one.fleet.table.linesOf(SESSION)).toEqual([0, 1].map(line));
  });

  test.each(["others write", "an older state is restored"] as const)(
    "who had a session and was not heard of for long finds out without a write that %s",
    async (what) => {
      let clock = 0;
      const one = new Machine(kind, undefined, "one", { elapsed: () => clock });
      const log = one.create();
      await written(log, 0);
      const goBack = remembered(one.fleet);
      await written(log, 1);
      const two = new Machine(kind, one.fleet.table, "two");
      two.fleet.leasesEnd = true;
      await two.put([0, 1].map(line));
      // As long as it is sure that it has the session, nothing is asked.
      const first = one.fleet.calls.length;
      await followed(log);
      expect(one.fleet.calls.slice(first)).toEqual([]);
      if (what === "others write") {
        const other = two.store.open(two.file);
        await other.ready?.();
        await written(other, 2);
        other.close();
      } else goBack();
      clock = 5000;
      await followed(log);
      log.refresh();
      const all = (what === "others write" ? [0, 1, 2] : [0, 1]).map(line);
      expect([textsOf(log), one.fleet.table.linesOf(SESSION)]).toEqual([all, all]);
      await written(log, all.length);
      expect(one.fleet.table.linesOf(SESSION)).toEqual([...all, line(all.length)]);
      one.fleet.table.check();
    },
  );

  test("lines of a dead server that the fleet never got give way to what others wrote, and are kept", async () => {
    const one = new Machine(kind);
    const log = one.create();
    await written(log, 0, 1);
    log.close();
    const two = new Machine(kind, one.fleet.table, "two");
    const never = userText(id(8), id(0), "never acknowledged");
    await two.put([line(0), never]);
    const other = two.store.open(two.file);
    await other.ready?.();
    expect(other.refresh()).toEqual({ kind: "replaced" });
    const next = other.reopen();
    other.close();
    expect(textsOf(next)).toEqual([0, 1].map(line));
    await written(next, 2);
    expect(one.fleet.table.linesOf(SESSION)).toEqual([0, 1, 2].map(line));
    const backup = two.disk.paths().filter((path) => path.startsWith(`${two.file}.damaged.bak`));
    const kept = backup.map((path) => textOf(two.disk.content(path) ?? new Uint8Array(0))).join("");
    expect(kept).toContain("never acknowledged");
  });

  test.each(["writes to it", "has its lock"] as const)(
    "what only this machine has is not confirmed while another process %s, which may take it back",
    async (does) => {
      const one = new Machine(kind);
      const log = one.create();
      await written(log, 0);
      log.close();
      if (does === "has its lock") one.fleet.table.rows.clear();
      const other = one.other.open(one.file);
      if (does === "has its lock") other.acquireLock();
      else other.append(lines(1));
      const asked = one.store.open(one.file);
      asked.refresh();
      // Of a container, only what is in its index is read beside a writer.
      if (asked.nodes.count > one.fleet.table.linesOf(SESSION).length)
        await expect(asked.confirm?.()).rejects.toEqual(failed("session_locked"));
      other.rollBack();
      other.close();
      const now = asked.refresh().kind === "replaced" ? asked.reopen() : asked;
      await now.confirm?.();
      expect([textsOf(now), one.fleet.table.linesOf(SESSION)]).toEqual([[line(0)], [line(0)]]);
      one.fleet.table.check();
    },
  );

  test("who was refused, because another machine writes, shows what that writes, and no longer than it does that it does", async () => {
    const one = new Machine(kind);
    const log = one.create();
    await written(log, 0);
    log.close();
    const two = new Machine(kind, one.fleet.table, "two");
    await two.put([line(0)]);
    const other = two.store.open(two.file);
    await other.ready?.();
    await written(other, 1);
    const reading = one.store.open(one.file);
    await reading.ready?.();
    expect(() => reading.append(lines(1))).toThrow(failed("session_locked"));
    await written(other, 2);
    await followed(reading);
    reading.refresh();
    expect([textsOf(reading), reading.lockedBy?.client]).toEqual([[0, 1, 2].map(line), "two"]);
    other.close();
    await followed(reading);
    expect(reading.lockedBy).toBe(null);
    await written(reading, 3);
    expect(one.fleet.table.linesOf(SESSION)).toEqual([0, 1, 2, 3].map(line));
    one.fleet.table.check();
  });

  test.each(["deleted", "another session's"] as const)(
    "what a copy is refused for stays so while it is followed, and nothing is fetched for it (%s)",
    async (what) => {
      const one = new Machine(kind);
      const log = one.create();
      await written(log, 0, 1);
      log.close();
      const two = new Machine(kind, one.fleet.table, "two");
      await two.put([what === "deleted" ? line(0) : userText(id(0), null, "something else")]);
      const other = two.store.open(two.file);
      const row = one.fleet.table.rows.get(SESSION);
      if (row) row.isDeleted = what === "deleted";
      await other.ready?.();
      const name = what === "deleted" ? "session_not_found" : "read_only";
      expect(() => other.append(lines(1))).toThrow(failed(name));
      const first = two.fleet.calls.length;
      await followed(other);
      expect(new Set(two.fleet.calls.slice(first))).toEqual(new Set(["look"]));
      expect(() => other.append(lines(1))).toThrow(failed(name));
    },
  );

  test("a copy of another session with the same id is not written to, and what the fleet has stays", async () => {
    const one = new Machine(kind);
    const log = one.create();
    await written(log, 0, 1);
    log.close();
    const two = new Machine(kind, one.fleet.table, "two");
    await two.put([userText(id(0), null, "something else"), line(1)]);
    const other = two.store.open(two.file);
    await other.ready?.();
    expect(() => other.append(lines(2))).toThrow(failed("read_only"));
    expect(one.fleet.table.linesOf(SESSION)).toEqual([0, 1].map(line));
    expect(textsOf(other)).toHaveLength(2);
  });

  describe("a commit that is sent in parts", () => {
    const big = (n: number): string => userText(id(n), n === 0 ? null : id(n - 1), `${n} ${"x".repeat(9000)}`);
    const all = [0, 1, 2, 3, 4].map(big);
    test.each([
      ["before", 1],
      ["before", 3],
      ["after", 3],
      ["late", 3],
      ["after", 1],
      ["late", 0],
    ] as const)(
      "is there as a whole, with the facts of each line once, whatever fails (%s call %i)",
      async (fault, at) => {
        const machine = new Machine(kind, undefined, "one", { tries: 2, partBytes: 20_000 });
        const { fleet } = machine;
        let calls = 0;
        fleet.faultAt = (_, name) => (["keepPart", "append"].includes(name) && calls++ === at ? fault : undefined);
        const parts = vi.spyOn(fleet, "keepPart");
        const batches = vi.spyOn(fleet, "append");
        const log = machine.create();
        log.append(all.map((text) => bytesOf(text)));
        await log.commit();
        expect(fleet.table.linesOf(SESSION).map((text) => text.length)).toEqual(all.map(({ length }) => length));
        expect(fleet.table.linesOf(SESSION)).toEqual(all);
        expect(new Set(parts.mock.calls.map(([part]) => part.from.entries))).toEqual(new Set([0, 2, 4]));
        // What lists show is right at once, and what is found comes behind.
        const shown = { counts: { messages: 5, modified: expect.any(Number), isPlain: true }, areBehind: true };
        const description = expect.objectContaining({ firstMessage: expect.any(String) });
        for (const [{ facts }] of batches.mock.calls) expect(facts).toMatchObject({ ...shown, description });
        const row = fleet.table.rows.get(SESSION);
        await vi.waitFor(() => expect(row?.indexed).toBe(5), { timeout: 20_000 });
        await written(log, 5);
        expect(row?.indexed).toBe(6);
        log.close();
        fleet.table.check();
      },
    );
  });

  test("facts that were left behind are added by who takes the session next, each once", async () => {
    const one = new Machine(kind, undefined, "one", { long: 0 });
    one.fleet.faultAt = (_, name) => (name === "addFacts" ? "before" : undefined);
    const log = one.create();
    await written(log, 0, 1);
    await written(log, 2);
    log.close();
    const row = one.fleet.table.rows.get(SESSION);
    expect(row).toMatchObject({ indexed: 0, end: { entries: 3 } });
    const two = new Machine(kind, one.fleet.table, "two", {});
    await two.put([0, 1, 2].map(line));
    const other = two.store.open(two.file);
    await other.ready?.();
    await written(other, 3);
    await vi.waitFor(() => expect(row?.indexed).toBe(4), { timeout: 20_000 });
    await written(other, 4);
    expect(row?.facts.at(-1)).toEqual([4, 5]);
    one.fleet.table.check();
    other.close();
  });

  test("a session of many parts that only this machine has is given with its next entry", async () => {
    const one = new Machine(kind, undefined, "one", { partBytes: 20_000 });
    // Two of them are more than is sent together.
    const long = Array.from({ length: 24 }, (_, n) => userText(id(n), n === 0 ? null : id(n - 1), "x".repeat(11_000)));
    await one.put(long);
    const log = one.store.open(one.file);
    await log.ready?.();
    await written(log, 24);
    expect(one.fleet.table.linesOf(SESSION)).toHaveLength(25);
    log.close();
    one.fleet.table.check();
  });

  test.each([
    ["whose parent is missing", [userText(id(5), id(99))], ["missing_parent"]],
    ["whose parent comes after it", [userText(id(5), id(6)), userText(id(6), id(0))], []],
    ["that are each other's parent", [userText(id(5), id(6)), userText(id(6), id(5))], ["cycle"]],
  ] as const)("lines that others have are taken as they are, also those %s", async (_, texts, told) => {
    const one = new Machine("jsonl");
    const log = one.create();
    await written(log, 0);
    log.close();
    const two = new Machine(kind, one.fleet.table, "two");
    await two.put([line(0)]);
    const copy = two.store.open(two.file);
    await followed(copy);
    // A program without the fleet wrote them.
    await one.addPlainly(texts);
    const giving = one.store.open(one.file);
    await giving.confirm?.();
    giving.close();
    expect(one.fleet.table.linesOf(SESSION)).toEqual([line(0), ...texts]);
    await followed(copy);
    for (let at = copy.nodes.count - 1, steps = 0; at >= 0; at = copy.nodes.parent(at)) expect(steps++).toBeLessThan(5);
    await copy.ready?.();
    await written(copy, 1);
    copy.close();
    for (const log of [copy, two.store.open(two.file)]) {
      expect(log.damage.map(({ kind }) => kind)).toEqual(expect.arrayContaining([...told]));
      expect(log.readOnly).toBe(null);
    }
    expect(one.fleet.table.linesOf(SESSION)).toEqual([line(0), ...texts, line(1)]);
    expect(textsOf(two.store.open(two.file))).toEqual([line(0), ...texts, line(1)]);
    one.fleet.table.check();
  });

  test("a session that is published is there as a whole, or not at all", async () => {
    const content = [bytesOf(`${[0, 1, 2].map(line).join("\n")}\n`)];
    for (const fault of ["before", "after"] as const) {
      const one = new Machine(kind, undefined, "one", {});
      one.fleet.faultAt = (call) => (call >= 1 ? fault : undefined);
      const name = fault === "before" ? "storage_failed" : "outcome_unknown";
      await expect(one.store.publish(beginning(undefined, one.file), content)).rejects.toEqual(failed(name));
      one.fleet.faultAt = () => undefined;
      // Of which nobody knows, it stays where who asks again looks for it.
      const isGone = fault === "before";
      const log = isGone ? await one.store.publish(beginning(undefined, one.file), content) : one.store.open(one.file);
      await log.confirm?.();
      expect(one.fleet.table.linesOf(SESSION)).toEqual([0, 1, 2].map(line));
      await written(log, 3);
      expect(one.fleet.table.linesOf(SESSION).map((text) => textOf(bytesOf(text)))).toEqual([0, 1, 2, 3].map(line));
    }
  });
});
