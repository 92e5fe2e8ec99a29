/** Commits that are sent in parts: all or nothing for everybody, whatever ends in the middle of one. */

import { describe, expect, test, vi } from "vitest";
import type { Failure } from "../../../src/core/failure.ts";
import { bytesOf } from "../../../src/core/json/json.ts";
import type { FleetCopy } from "../../../src/storage/fleet/copy.ts";
import { finishFacts } from "../../../src/storage/fleet/late-facts.ts";
import type { FileLog } from "../../../src/storage/log/file-log.ts";
import { memoryStore } from "../../../src/storage/memory.ts";
import { type FleetFault, type FleetTable, MemoryFleet } from "../../support/fleet.ts";
import { failed, found, line, lines, Machine, type MachineKind, written } from "../../support/fleet-machine.ts";
import { id, SESSION, userText } from "../../support/lines.ts";
import { range } from "../../support/random.ts";
import { textsOf } from "../../support/sessions.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";

/** Two lines of about 150 bytes. */
const PART = { partBytes: 350 };
const FIRST = [0, 1];
const BIG = range(2, 9);

/** Fails whenever a number of lines is seen that is not one of those that it returns. */
function watch(table: FleetTable, ...counts: number[]): number[] {
  const changed = table.changed.bind(table);
  table.changed = () => {
    const { isThere, end } = table.rows.get(SESSION) ?? { isThere: false, end: { entries: 0 } };
    expect(counts).toContain(isThere ? end.entries : 0);
    changed();
  };
  return counts;
}

/** Returns lines with these numbers, each of which continues the one before, and the first another one. */
function chain(parent: number, ns: readonly number[]): string[] {
  return ns.map((n, at) => userText(id(n), id(ns[at - 1] ?? parent)));
}

async function factsFinished(table: FleetTable): Promise<void> {
  const row = table.rows.get(SESSION);
  if (!row || row.indexed === row.end.entries) return;
  await finishFacts({ fleet: new MemoryFleet(table, "sweep"), memory: memoryStore() }, { id: SESSION, ...row });
  expect(row.indexed).toBe(row.end.entries);
}

/** One long commit, at whose call of that number something fails, and the commit after it. Returns whether there was such a call. */
async function commitsOnce(
  kind: MachineKind,
  before: readonly number[],
  { fault, at, tries, isGone }: { fault: FleetFault; at: number; tries: number; isGone: boolean },
): Promise<boolean> {
  const machine = new Machine(kind, undefined, "one", { ...PART, tries });
  const { fleet } = machine;
  const log = machine.create();
  if (before.length > 0) await written(log, ...before);
  const more = range(before.length, before.length + BIG.length);
  const all = [...before, ...more].map(line);
  const counts = watch(fleet.table, 0, before.length, all.length);
  let calls = 0;
  fleet.faultAt = () => {
    const call = calls++;
    return call === at || (isGone && call > at) ? (call > at ? "before" : fault) : undefined;
  };
  let told: Failure | undefined;
  const since = fleet.calls.length;
  try {
    await written(log, ...more);
  } catch (error) {
    told = error as Failure;
  }
  const isStruck = calls > at;
  const what = `${fault} at ${fleet.calls[since + at]}: ${told?.name}`;
  if (told) expect(["storage_failed", "outcome_unknown"], what).toContain(told.name);
  if (told?.name === "storage_failed") {
    expect(told.message).toContain("Nothing was changed");
    expect(fleet.table.linesOf(SESSION), what).toEqual(before.map(line));
  }
  if (!told) expect(fleet.table.linesOf(SESSION), what).toEqual(all);
  fleet.faultAt = () => undefined;
  const now = await found(log);
  // A host repeats what it does not know, unless it finds it.
  if (now.nodes.position(id(more[0])) < 0) await written(now, ...more);
  expect([fleet.table.linesOf(SESSION), textsOf(now)], what).toEqual([all, all]);
  counts.push(all.length + 1);
  await written(now, all.length);
  expect(fleet.table.linesOf(SESSION), what).toEqual([...all, line(all.length)]);
  await factsFinished(fleet.table);
  fleet.table.check();
  now.close();
  return isStruck;
}

acrossTiers(describe, ["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  describe.each([
    ["of a session that is there", FIRST],
    ["of a new session", []],
  ] as const)("a long commit %s", (_, before) => {
    acrossTiers(test, kind === "jsonl" ? [13, 1] : [1])(
      "is there as a whole or not at all, whatever call fails (each of %i)",
      async (ofMany) => {
        let first = 0;
        for (const fault of ["before", "after", "late"] as const)
          for (const isGone of [false, true])
            for (const tries of [0, 3])
              for (
                let at = first++ % ofMany;
                await commitsOnce(kind, before, { fault, at, tries, isGone });
                at += ofMany
              );
      },
    );
  });

  test.each(["after", "late", "added by others"] as const)(
    "words and usage behind one come with later commits, where the answer to some of them is lost (%s)",
    async (what) => {
      const machine = new Machine(kind, undefined, "one", PART);
      const { fleet } = machine;
      const log = machine.create() as FileLog;
      const copy = log.outside as FleetCopy;
      await written(log, ...FIRST);
      let calls = 0;
      const fault = what === "added by others" ? "before" : what;
      fleet.faultAt = (_, name) => (name === "addFacts" && calls++ === 0 ? fault : undefined);
      await written(log, ...BIG);
      await copy.factsAdded();
      expect(calls).toBe(1);
      if (what === "added by others") await factsFinished(fleet.table);
      const row = fleet.table.rows.get(SESSION);
      let takings = 0;
      for (const n of range(9, 15)) {
        const since = fleet.calls.length;
        await log.ready?.();
        await written(log, n);
        await copy.factsAdded();
        takings += fleet.calls.slice(since).filter((name) => name === "take").length;
      }
      expect([row?.indexed, row?.end.entries]).toEqual([15, 15]);
      // It is taken once more, and not with each commit.
      expect(takings).toBe(1);
      fleet.table.check();
    },
  );

  test("of one that is sent again after a part without an answer, the parts that are there stay", async () => {
    const machine = new Machine(kind, undefined, "one", { ...PART, tries: 3 });
    const log = machine.create();
    await written(log, ...FIRST);
    const sent = vi.spyOn(machine.fleet, "keepPart");
    let parts = 0;
    machine.fleet.faultAt = (_, name) => (name === "keepPart" && ++parts === 3 ? "after" : undefined);
    await written(log, ...BIG);
    expect(sent.mock.calls.map(([part]) => part.from.entries)).toEqual([2, 4, 6, 6, 8]);
    expect(new Set(sent.mock.calls.map(([part]) => part.place)).size).toBe(1);
  });

  test("a writer that wakes in the middle of one, after others wrote, shows nothing of it, and keeps its lines", async () => {
    for (const isBig of [false, true])
      for (const stopped of ["keepPart", "append"]) {
        const one = new Machine(kind, undefined, "one", PART);
        const log = one.create();
        await written(log, ...FIRST);
        const two = new Machine(kind, one.fleet.table, "two", PART);
        two.fleet.leasesEnd = true;
        await two.put(FIRST.map(line));
        const other = two.store.open(two.file);
        // It is stopped at its second part, or before the last statement.
        let isStopped = false;
        let parts = 0;
        const append = one.fleet.append.bind(one.fleet);
        const keepPart = one.fleet.keepPart.bind(one.fleet);
        const theirs = chain(1, isBig ? range(10, 15) : [10]);
        const stop = async (): Promise<void> => {
          if (isStopped) return;
          isStopped = true;
          await other.ready?.();
          other.append(theirs.map((text) => bytesOf(text)));
          await other.commit();
        };
        one.fleet.keepPart = async (part, sent) => {
          if (stopped === "keepPart" && ++parts === 2) await stop();
          return keepPart(part, sent);
        };
        one.fleet.append = async (batch) => {
          await stop();
          return append(batch);
        };
        await expect(written(log, ...BIG)).rejects.toEqual(failed("session_locked"));
        const now = [...FIRST.map(line), ...theirs];
        expect(one.fleet.table.linesOf(SESSION)).toEqual(now);
        expect(one.aside).toEqual(BIG.map(line));
        expect(textsOf(log).slice(0, 2)).toEqual(FIRST.map(line));
        // What others write after it, in parts or not, is what they wrote.
        const more = chain(10, range(20, 26));
        for (const texts of [more.slice(0, 5), more.slice(5)]) {
          other.append(texts.map((text) => bytesOf(text)));
          await other.commit();
        }
        const all = [...now, ...more];
        expect([one.fleet.table.linesOf(SESSION), textsOf(other)]).toEqual([all, all]);
        other.close();
        await factsFinished(one.fleet.table);
        one.fleet.table.check();
      }
  });

  test("a process that ends between two parts leaves a session without any, and the next one gives what its copy has", async () => {
    for (const ends of [1, 2, 3, 4, 5]) {
      const one = new Machine(kind, undefined, "one", PART);
      const log = one.create();
      await written(log, ...FIRST);
      let calls = 0;
      let isOver: () => void = () => {};
      const over = new Promise<void>((resolve) => {
        isOver = resolve;
      });
      // From then on it does nothing more.
      one.fleet.turns = () => {
        if (++calls < ends) return Promise.resolve();
        isOver();
        return new Promise(() => {});
      };
      log.append(lines(...BIG));
      log.commit().catch(() => {});
      await over;
      expect(one.fleet.table.linesOf(SESSION)).toEqual(FIRST.map(line));
      const again = new Machine(kind, one.fleet.table, "one again", { ...PART, disk: one.disk });
      again.fleet.leasesEnd = true;
      const next = await found(again.store.open(one.file));
      const here = textsOf(next).length;
      expect([FIRST.length, FIRST.length + BIG.length]).toContain(here);
      await written(next, 9);
      const all = [...FIRST, ...(here > FIRST.length ? BIG : []), 9].map(line);
      expect([one.fleet.table.linesOf(SESSION), textsOf(next)]).toEqual([all, all]);
      await factsFinished(one.fleet.table);
      one.fleet.table.check();
    }
  });

  acrossTiers(test, [5, 1])(
    "what was acknowledged while the fleet was away, and is long, is given as a whole, whatever call fails (each of %i)",
    async (ofMany) => {
      for (const [n, fault] of (["before", "after", "late"] as const).entries())
        for (let at = n % ofMany, isStruck = true; isStruck; at += ofMany) {
          const machine = new Machine(kind, undefined, "one", { ...PART, isJournaled: true });
          const { fleet, journal } = machine;
          const log = machine.create();
          await written(log, ...FIRST);
          fleet.faultAt = () => "before";
          await written(log, ...BIG);
          expect(log.durability).toBe("local");
          const all = [...FIRST, ...BIG].map(line);
          watch(fleet.table, FIRST.length, all.length, all.length + 1);
          let calls = 0;
          fleet.faultAt = () => (calls++ === at ? fault : undefined);
          let now = await found(log);
          isStruck = calls > at;
          fleet.faultAt = () => undefined;
          now = await found(now);
          await written(now, 9);
          now = await found(now);
          expect([fleet.table.linesOf(SESSION), textsOf(now)]).toEqual([
            [...all, line(9)],
            [...all, line(9)],
          ]);
          expect([machine.aside, journal.of(SESSION, machine.file)?.from ?? null]).toEqual([[], null]);
          await factsFinished(fleet.table);
          fleet.table.check();
          now.close();
        }
    },
  );

  test("one of many parts that is refused at its end is begun anew, and comes to its end", SYSTEM, async () => {
    const machine = new Machine(kind, undefined, "one", PART);
    const { fleet } = machine;
    const log = machine.create();
    await written(log, ...FIRST);
    const append = fleet.append.bind(fleet);
    let refusals = 3;
    let statements = 0;
    fleet.append = async (batch) => {
      statements++;
      return refusals-- > 0 ? { kind: "refused" } : append(batch);
    };
    const all = range(0, 60);
    await written(log, ...all.slice(FIRST.length));
    expect(fleet.table.linesOf(SESSION)).toEqual(all.map(line));
    expect(statements).toBe(4);
    expect(fleet.calls.filter((name) => name === "keepPart").length).toBeGreaterThan(80);
    // Others who are faster each time are told.
    fleet.append = async () => ({ kind: "refused" });
    await expect(written(log, ...range(60, 120))).rejects.toEqual(failed("storage_failed"));
  });
});
