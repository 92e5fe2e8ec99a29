/** What a host is told of a commit where disk and fleet fail together: a sentence about it is true, whatever failed. */

import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { LEAF_MARKER } from "../../../src/core/format/head.ts";
import { bytesOf } from "../../../src/core/json/json.ts";
import type { Log } from "../../../src/core/ports/store.ts";
import type { FleetFault } from "../../support/fleet.ts";
import { line, Machine, written } from "../../support/fleet-machine.ts";
import { id, SESSION, userText } from "../../support/lines.ts";
import { isEvery } from "../../support/random.ts";
import { textsOf } from "../../support/sessions.ts";

const FAULTS = [undefined, "before", "after", "late"] as const;
const UNCHANGED = "Nothing was changed";

/** Has a machine find out what became of its session, and returns the log in its place. */
async function settled(log: Log): Promise<Log> {
  let now = log;
  for (let n = 0; n < 8; n++) {
    await now.ready?.();
    if (now.refresh().kind === "replaced") {
      const next = now.reopen();
      now.close();
      now = next;
    }
    await Promise.resolve();
  }
  return now;
}

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
  const now = await settled(log);
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
  const two = new Machine(kind, fleet.table, "two");
  two.fleet.leasesEnd = true;
  await two.put([line(0)]);
  const other = two.store.open(two.file);
  await other.ready?.();
  await written(other, 1, 2);
  other.close();
  fleet.faultAt = () => undefined;
  const faulty = failing(disk);
  let now = log;
  try {
    now = await settled(log);
  } catch (error) {
    expect(error).toBeInstanceOf(Failure);
  }
  const struck = faulty.isFull;
  faulty.empty();
  // The next process finds whatever was left.
  const again = new Machine(kind, fleet.table, "one again", { disk });
  again.fleet.leasesEnd = true;
  if (struck && now === log) log.close();
  const last = await settled(again.store.open(machine.file));
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

describe.each(["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  let sweeps = 0;
  // Containers ask the disk for so much that all of it takes seconds: some of it, from another operation on each time.
  const sweep = async (fails: (at: number) => Promise<boolean>, ofMany = 3): Promise<void> => {
    const step = isEvery() || kind === "jsonl" ? 1 : ofMany;
    for (let at = sweeps++ % step; await fails(at); at += step);
  };

  test("a conflict is settled once, at whichever operation the disk fails", async () => {
    for (const errno of ["EIO", "ENOSPC"]) for (let at = 1; await settlesOnce(kind, failingAt(at, errno)); at++);
    for (let room = 0; await settlesOnce(kind, (disk) => fillAfter(disk, room)); room++);
  });

  test.each([true, false])(
    "a commit is told as it is, at whichever operation the disk fails (journal: %s)",
    async (isJournaled) => {
      for (const fault of FAULTS)
        for (const errno of ["EIO", "ENOSPC"])
          await sweep((at) => commitsOnce(kind, isJournaled, fault, failingAt(at + 1, errno)));
    },
  );

  test.each([true, false])(
    "a commit is told as it is, whenever the disk is full from then on (journal: %s)",
    async (isJournaled) => {
      for (const fault of FAULTS)
        await sweep((room) => commitsOnce(kind, isJournaled, fault, (disk) => fillAfter(disk, room)));
    },
  );
});
