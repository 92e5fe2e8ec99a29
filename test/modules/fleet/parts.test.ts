/** Commits that are sent in parts: all or nothing for everybody, whatever ends in the middle of one. */

import { describe, expect, test, vi } from "vitest";
import type { Failure } from "../../../src/core/failure.ts";
import { toBytes } from "../../../src/core/json/json.ts";
import type { FleetReplica } from "../../../src/modules/fleet/replica/fleet-replica.ts";
import { finishFacts } from "../../../src/modules/fleet/replica/late-facts.ts";
import type { FileLog } from "../../../src/storage/log/file-log.ts";
import { makeMemoryStore } from "../../../src/storage/memory.ts";
import { id, SESSION, userText } from "../../support/lines.ts";
import { range } from "../../support/random.ts";
import { textsOf } from "../../support/sessions.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";
import { failed, found, line, lines, Machine, type MachineKind, written } from "./support/machine.ts";
import { type FleetFault, type FleetTable, MemoryFleet } from "./support/table-fleet.ts";

/** Two lines of about 150 bytes. */
const PART = { partBytes: 350 };
const FIRST = [0, 1];
const BIG = range(2, 9);
const FAULTS: readonly FleetFault[] = ["before", "after", "late"];

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

/** Fails unless the fleet is as it should be when the facts of all lines were added. */
async function requireSound(table: FleetTable): Promise<void> {
  const row = table.rows.get(SESSION);
  if (row && row.indexed !== row.end.entries)
    await finishFacts({ fleet: new MemoryFleet(table, "sweep"), memory: makeMemoryStore() }, { id: SESSION, ...row });
  expect(row?.indexed).toBe(row?.end.entries);
  table.check();
}

/** One long commit with a fault at the call of that number, and the commit after it. Returns whether there was such a call. */
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
  const inFleet = (): string[] => fleet.table.linesOf(SESSION);
  const counts = watch(fleet.table, 0, before.length, all.length);
  let calls = 0;
  fleet.faultAt = () => {
    const call = calls++;
    if (call === at) return fault;
    return isGone && call > at ? "before" : undefined;
  };
  const since = fleet.calls.length;
  const failure = await written(log, ...more).catch((error: Failure) => error);
  const isStruck = calls > at;
  const what = `${fault} at ${fleet.calls[since + at]}: ${failure?.name}`;
  if (failure) expect(["storage_failed", "outcome_unknown"], what).toContain(failure.name);
  if (failure?.name === "storage_failed") expect(failure.message).toContain("Nothing was changed");
  if (failure?.name !== "outcome_unknown") expect(inFleet(), what).toEqual(failure ? before.map(line) : all);
  fleet.faultAt = () => undefined;
  const now = await found(log);
  // A host repeats an append with an unknown outcome, unless it finds its entry.
  if (now.nodes.position(id(more[0])) < 0) await written(now, ...more);
  expect([inFleet(), textsOf(now)], what).toEqual([all, all]);
  counts.push(all.length + 1);
  await written(now, all.length);
  expect(inFleet(), what).toEqual([...all, line(all.length)]);
  await requireSound(fleet.table);
  now.close();
  return isStruck;
}

acrossTiers(describe, ["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  /** A machine whose session has its first lines. */
  const begun = async (options: object = {}) => {
    const one = new Machine(kind, undefined, "one", { ...PART, ...options });
    const log = one.create() as FileLog;
    await written(log, ...FIRST);
    return { one, log, fleet: one.fleet, inFleet: () => one.fleet.table.linesOf(SESSION) };
  };

  describe.each([
    ["of a session that is there", FIRST],
    ["of a new session", []],
  ] as const)("a long commit %s", (_, before) => {
    acrossTiers(test, kind === "jsonl" ? [13, 1] : [1])(
      "is there as a whole or not at all, whatever call fails (each of %i)",
      async (ofMany) => {
        let first = 0;
        for (const fault of FAULTS)
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
      const { log, fleet } = await begun();
      const copy = log.replica as FleetReplica;
      let calls = 0;
      const fault = what === "added by others" ? "before" : what;
      fleet.faultAt = (_, name) => (name === "addFacts" && calls++ === 0 ? fault : undefined);
      await written(log, ...BIG);
      await copy.factsAdded();
      expect(calls).toBe(1);
      if (what === "added by others") await requireSound(fleet.table);
      const since = fleet.calls.length;
      for (const n of range(9, 15)) {
        await log.replica?.ready();
        await written(log, n);
        await copy.factsAdded();
      }
      const row = fleet.table.rows.get(SESSION);
      expect([row?.indexed, row?.end.entries]).toEqual([15, 15]);
      // It is taken once more, and not with each commit.
      expect(fleet.calls.slice(since).filter((name) => name === "take")).toHaveLength(1);
      fleet.table.check();
    },
  );

  test("of one that is sent again after a part without an answer, the parts that are there stay", async () => {
    const { log, fleet } = await begun({ tries: 3 });
    const sent = vi.spyOn(fleet, "keepPart");
    let parts = 0;
    fleet.faultAt = (_, name) => (name === "keepPart" && ++parts === 3 ? "after" : undefined);
    await written(log, ...BIG);
    expect(sent.mock.calls.map(([part]) => part.from.entries)).toEqual([2, 4, 6, 6, 8]);
    expect(new Set(sent.mock.calls.map(([part]) => part.place)).size).toBe(1);
  });

  describe.each([
    ["a line", [10]],
    ["a long commit", range(10, 15)],
  ])("where others wrote %s", (_, theirNumbers) =>
    test.each([
      ["its second part", "keepPart", 2],
      ["the last statement", "append", 1],
    ] as const)("a writer that wakes before %s shows nothing of it, and keeps its lines", async (_, name, nth) => {
      const { one, log, fleet, inFleet } = await begun();
      const two = new Machine(kind, fleet.table, "two", PART);
      two.fleet.leasesEnd = true;
      await two.put(FIRST.map(line));
      const other = two.store.open(two.file);
      const commits = async (texts: readonly string[]): Promise<void> => {
        other.append(texts.map((text) => toBytes(text)));
        await other.commit();
      };
      const chain = (parent: number, ns: readonly number[]): string[] =>
        ns.map((n, at) => userText(id(n), id(ns[at - 1] ?? parent)));
      const theirs = chain(1, theirNumbers);
      let calls = 0;
      const own = fleet[name].bind(fleet) as (...given: unknown[]) => Promise<never>;
      fleet[name] = async (...given: unknown[]) => {
        if (++calls === nth) {
          await other.replica?.ready();
          await commits(theirs);
        }
        return own(...given);
      };
      await expect(written(log, ...BIG)).rejects.toEqual(failed("session_locked"));
      const now = [...FIRST.map(line), ...theirs];
      expect([inFleet(), one.quarantined]).toEqual([now, BIG.map(line)]);
      expect(textsOf(log).slice(0, 2)).toEqual(FIRST.map(line));
      // Later entries of others, in parts or not, are complete.
      const more = chain(10, range(20, 26));
      await commits(more.slice(0, 5));
      await commits(more.slice(5));
      expect([inFleet(), textsOf(other)]).toEqual([
        [...now, ...more],
        [...now, ...more],
      ]);
      await requireSound(fleet.table);
    }),
  );

  test.each([1, 2, 3, 4, 5])(
    "a process that ends at call %i leaves a session without any part, and the next one gives what its copy has",
    async (ends) => {
      const { one, log, fleet, inFleet } = await begun();
      let calls = 0;
      const over = new Promise<void>((resolve) => {
        // From then on it does nothing more.
        fleet.turns = () => {
          if (++calls < ends) return Promise.resolve();
          resolve();
          return new Promise(() => {});
        };
      });
      log.append(lines(...BIG));
      log.commit().catch(() => {});
      await over;
      expect(inFleet()).toEqual(FIRST.map(line));
      const again = new Machine(kind, fleet.table, "one again", { ...PART, disk: one.disk });
      again.fleet.leasesEnd = true;
      const next = await found(again.store.open(one.file));
      const here = textsOf(next).length;
      expect([FIRST.length, FIRST.length + BIG.length]).toContain(here);
      await written(next, 9);
      const all = [...FIRST, ...(here > FIRST.length ? BIG : []), 9].map(line);
      expect([inFleet(), textsOf(next)]).toEqual([all, all]);
      await requireSound(fleet.table);
    },
  );

  acrossTiers(test, [5, 1])(
    "what was acknowledged while the fleet was away, and is long, is given as a whole, whatever call fails (each of %i)",
    async (ofMany) => {
      for (const [n, fault] of FAULTS.entries())
        for (let at = n % ofMany, isStruck = true; isStruck; at += ofMany) {
          const { one, log, fleet, inFleet } = await begun({ isJournaled: true });
          fleet.faultAt = () => "before";
          await written(log, ...BIG);
          expect(log.replica?.status.durability).toBe("local");
          const all = [...FIRST, ...BIG, 9].map(line);
          watch(fleet.table, FIRST.length, all.length - 1, all.length);
          let calls = 0;
          fleet.faultAt = () => (calls++ === at ? fault : undefined);
          let now = await found(log);
          isStruck = calls > at;
          fleet.faultAt = () => undefined;
          now = await found(now);
          await written(now, 9);
          now = await found(now);
          expect([inFleet(), textsOf(now)]).toEqual([all, all]);
          expect([one.quarantined, one.journal.of(SESSION, one.file)?.from ?? null]).toEqual([[], null]);
          await requireSound(fleet.table);
          now.close();
        }
    },
  );

  test("one of many parts that is refused at its end is begun anew, and comes to its end", SYSTEM, async () => {
    const { log, fleet, inFleet } = await begun();
    const append = fleet.append.bind(fleet);
    let statements = 0;
    fleet.append = async (batch) => (++statements <= 3 ? { kind: "refused" } : append(batch));
    const all = range(0, 60);
    await written(log, ...all.slice(FIRST.length));
    expect([inFleet(), statements]).toEqual([all.map(line), 4]);
    expect(fleet.calls.filter((name) => name === "keepPart").length).toBeGreaterThan(80);
    // A host gets a failure when other writers are faster each time.
    fleet.append = async () => ({ kind: "refused" });
    await expect(written(log, ...range(60, 120))).rejects.toEqual(failed("storage_failed"));
  });
});
