/** What a host is told of a commit where disk and fleet fail together: a sentence about it is true, whatever failed. */

import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { LEAF_MARKER } from "../../../src/core/format/head.ts";
import { bytesOf } from "../../../src/core/json/json.ts";
import type { FleetFault } from "../../support/fleet.ts";
import { failed, followed, found, line, Machine, second, written } from "../../support/fleet-machine.ts";
import { id, SESSION, userText } from "../../support/lines.ts";
import { isEvery } from "../../support/random.ts";
import { textsOf } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";

const FAULTS = [undefined, "before", "after", "late"] as const;
const UNCHANGED = "Nothing was changed";

/** Has room on the disk for so many changes, and for no more. */
function fillAfter(disk: Machine["disk"], room: number): { readonly isFull: boolean; empty(): void } {
  let left = room;
  let isOver = false;
  for (const name of ["write", "create", "makeFolder", "sync", "syncFolder"] as const) {
    const change = disk[name].bind(disk) as (...given: unknown[]) => unknown;
    Object.assign(disk, {
      [name]: (...given: unknown[]) => {
        if (!isOver && left-- <= 0) throw Object.assign(new Error("test: full"), { code: "ENOSPC" });
        return change(...given);
      },
    });
  }
  return {
    get isFull() {
      return left < 0;
    },
    empty() {
      isOver = true;
    },
  };
}

/** One commit at which the fleet fails as told, and then is away, and the disk fails. Returns whether the disk did. */
async function commitsOnce(
  kind: "jsonl" | "v2",
  isJournaled: boolean,
  fault: FleetFault | undefined,
  failing: (disk: Machine["disk"]) => { readonly isFull: boolean; empty(): void },
): Promise<boolean> {
  const machine = new Machine(kind, undefined, "one", { isJournaled });
  const { fleet, disk } = machine;
  const log = machine.create();
  await written(log, 0);
  fleet.faultAt = (_, name) => (name === "append" || fault === undefined ? fault : "before");
  const faulty = failing(disk);
  let told: Failure | undefined;
  try {
    await written(log, 1);
  } catch (error) {
    told = error as Failure;
  }
  const struck = faulty.isFull;
  faulty.empty();
  const isSaidUnchanged = told?.message.includes(UNCHANGED) === true;
  const what = `${told?.name}: ${told?.message}`;
  if (told) expect(["outcome_unknown", "storage_full", "storage_failed"], what).toContain(told.name);
  if (told?.name === "outcome_unknown") expect(isSaidUnchanged, what).toBe(false);
  else if (told) expect(fleet.table.linesOf(SESSION), what).toEqual([line(0)]);
  fleet.faultAt = () => undefined;
  const now = await found(log);
  if (isSaidUnchanged || !told) expect(fleet.table.linesOf(SESSION), what).toEqual([0, ...(told ? [] : [1])].map(line));
  // A host repeats what it does not know, unless it finds it.
  await written(now, ...(now.nodes.position(id(1)) < 0 ? [1, 2] : [2]));
  expect([fleet.table.linesOf(SESSION), textsOf(now)], what).toEqual([[0, 1, 2].map(line), [0, 1, 2].map(line)]);
  fleet.table.check();
  return struck;
}

/** A conflict that is settled while the disk fails. Returns whether it did. */
async function settlesOnce(
  kind: "jsonl" | "v2",
  failing: (disk: Machine["disk"]) => { readonly isFull: boolean; empty(): void },
): Promise<boolean> {
  const machine = new Machine(kind, undefined, "one", { isJournaled: true });
  const { fleet, disk } = machine;
  const mine = userText(id(7), id(0), "written alone");
  const log = machine.create();
  await written(log, 0);
  fleet.faultAt = () => "before";
  log.append([bytesOf(mine)]);
  await log.commit();
  const { other } = await second(kind, machine, [line(0)]);
  await written(other, 1, 2);
  other.close();
  fleet.faultAt = () => undefined;
  const faulty = failing(disk);
  let now = log;
  try {
    now = await found(log);
  } catch (error) {
    expect(error).toBeInstanceOf(Failure);
  }
  const struck = faulty.isFull;
  faulty.empty();
  // The next process finds whatever was left.
  const again = new Machine(kind, fleet.table, "one again", { disk });
  again.fleet.leasesEnd = true;
  if (struck && now === log) log.close();
  const last = await found(again.store.open(machine.file));
  await written(last, 3);
  const texts = fleet.table.linesOf(SESSION).filter((text) => !text.includes(LEAF_MARKER));
  expect([texts.sort(), machine.aside, again.aside]).toEqual([[0, 1, 2, 3].map(line).concat(mine).sort(), [], []]);
  expect(textsOf(last)).toEqual(fleet.table.linesOf(SESSION));
  fleet.table.check();
  return struck;
}

/** Has one operation of a disk fail. */
function failingAt(at: number, errno: string) {
  return (disk: Machine["disk"]): { readonly isFull: boolean; empty(): void } => {
    disk.set({ kind: "fail", at, errno });
    return {
      get isFull() {
        return disk.struck;
      },
      empty: () => disk.set(undefined),
    };
  };
}

acrossTiers(describe, ["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  let sweeps = 0;
  /** Goes through all operations, or each of so many, from another one on each time. */
  const sweep = async (fails: (at: number) => Promise<boolean>, ofMany: number): Promise<void> => {
    const step = isEvery() ? 1 : ofMany;
    for (let at = sweeps++ % step; await fails(at); at += step);
  };
  /** Containers ask the disk for so much that all of it takes seconds. */
  const strides = (few: number, container: number): number[] => (kind === "jsonl" ? [few, 1] : [container]);

  const mine = (n: number, parent: number | null): string =>
    userText(id(n), parent === null ? null : id(parent), `on one ${n}`);

  test.each([
    ["an answer is lost", "after", false],
    ["an append comes late", "late", false],
    ["the disk refuses", undefined, false],
    ["the disk refuses where work goes on alone", undefined, true],
  ] as const)(
    "a first append of which nobody knows is found, or made anew with other ids: %s",
    async (_, fault, isJournaled) => {
      for (const held of [[], [0, 1]])
        for (const finds of ["a write", "a look"]) {
          const machine = new Machine(kind, undefined, "one", { isJournaled });
          const { fleet, disk } = machine;
          const log = machine.create();
          if (held.length > 0)
            log.append(
              held.map((n) => bytesOf(line(n))),
              { defer: true },
            );
          const parent = held.at(-1) ?? null;
          fleet.faultAt = (_call, name) => (name === "append" ? fault : undefined);
          const { sync, syncFolder } = disk;
          const refuse = (): Promise<void> => Promise.reject(Object.assign(new Error("test"), { code: "EIO" }));
          if (!fault) Object.assign(disk, { sync: refuse, syncFolder: refuse });
          log.append([bytesOf(mine(5, parent))]);
          await expect(log.commit()).rejects.toEqual(failed("outcome_unknown"));
          expect(log.nodes.count).toBe(held.length);
          Object.assign(disk, { sync, syncFolder });
          // As long as nobody can be asked, nothing else takes its place.
          fleet.faultAt = () => "before";
          if (!isJournaled) {
            await log.ready?.();
            for (const defer of [true, false])
              expect(() => log.append([bytesOf(mine(8, parent))], { defer })).toThrow(failed("storage_failed"));
          }
          fleet.faultAt = () => undefined;
          await (finds === "a write" ? log.ready?.() : followed(log));
          log.refresh();
          // A host that does not find its entry sends it again, and it gets another id.
          if (log.nodes.position(id(5)) < 0) log.append([bytesOf(mine(6, parent))]);
          await log.commit();
          const first = log.nodes.position(id(5)) < 0 ? 6 : 5;
          log.append([bytesOf(mine(7, first))]);
          await log.commit();
          const all = [...held.map(line), mine(first, parent), mine(7, first)];
          expect([textsOf(log), fleet.table.linesOf(SESSION), machine.aside]).toEqual([all, all, []]);
          if (fault !== "late") expect(first).toBe(5);
          fleet.table.check();
          log.close();
          const next = machine.store.open(machine.file);
          expect(textsOf(next)).toEqual(all);
          next.close();
        }
    },
  );

  // A container that another program writes to is not continued at all.
  test.runIf(kind === "jsonl").each(["is away", "is another's"] as const)(
    "lines that stay, because a program without the fleet wrote after them, are not said to be undone (the fleet %s)",
    async (what) => {
      const machine = new Machine(kind);
      const { fleet } = machine;
      const log = machine.create();
      await written(log, 0);
      const two = new Machine(kind, fleet.table, "two");
      await two.put([line(0)]);
      const other = two.store.open(two.file);
      if (what === "is away") fleet.faultAt = () => "before";
      else {
        two.fleet.leasesEnd = true;
        await other.ready?.();
      }
      log.append([bytesOf(line(1))]);
      const commit = log.commit();
      const theirs = machine.plain.open(machine.file);
      theirs.append([bytesOf(mine(9, 1))]);
      theirs.close();
      log.refresh();
      const told = await commit.catch((error: unknown) => error);
      expect(told).toEqual(failed("outcome_unknown", { retryable: true }));
      expect((told as Failure).message).not.toContain(UNCHANGED);
      fleet.faultAt = () => undefined;
      other.close();
      await log.ready?.();
      await log.confirm?.();
      const all = [line(0), line(1), mine(9, 1)];
      expect([textsOf(log), fleet.table.linesOf(SESSION)]).toEqual([all, all]);
      fleet.table.check();
    },
  );

  acrossTiers(test, strides(41, 17))(
    "a conflict is settled once, at whichever operation the disk fails (each of %i)",
    async (ofMany) => {
      for (const errno of ["EIO", "ENOSPC"]) await sweep((at) => settlesOnce(kind, failingAt(at + 1, errno)), ofMany);
      await sweep((room) => settlesOnce(kind, (disk) => fillAfter(disk, room)), ofMany);
    },
  );

  describe.each([true, false])("with a journal: %s", (isJournaled) => {
    acrossTiers(test, strides(11, 3))(
      "a commit is told as it is, at whichever operation the disk fails (each of %i)",
      async (ofMany) => {
        for (const fault of FAULTS)
          for (const errno of ["EIO", "ENOSPC"])
            await sweep((at) => commitsOnce(kind, isJournaled, fault, failingAt(at + 1, errno)), ofMany);
      },
    );

    acrossTiers(test, strides(3, 3))(
      "a commit is told as it is, whenever the disk is full from then on (each of %i)",
      async (ofMany) => {
        for (const fault of FAULTS)
          await sweep((room) => commitsOnce(kind, isJournaled, fault, (disk) => fillAfter(disk, room)), ofMany);
      },
    );
  });
});
