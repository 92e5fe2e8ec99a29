/** What a host is told of a commit where disk and fleet fail together: a sentence about it is true, whatever failed. */

import { describe, expect, test } from "vitest";
import type { Failure } from "../../../src/core/failure.ts";
import type { Log } from "../../../src/core/ports/store.ts";
import type { FleetFault } from "../../support/fleet.ts";
import { line, Machine, written } from "../../support/fleet-machine.ts";
import { id, SESSION } from "../../support/lines.ts";
import { textsOf } from "../../support/sessions.ts";

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

describe.each(["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  test.each([true, false])(
    "a commit is told as it is, at whichever operation the disk fails (journal: %s)",
    async (isJournaled) => {
      for (const fault of [undefined, "before", "after", "late"] as const)
        for (const errno of ["EIO", "ENOSPC"])
          for (let at = 1; ; at++) {
            const failing = (disk: Machine["disk"]): { readonly isFull: boolean; empty(): void } => {
              disk.set({ kind: "fail", at, errno });
              return {
                get isFull() {
                  return disk.struck;
                },
                empty: () => disk.set(undefined),
              };
            };
            if (!(await commitsOnce(kind, isJournaled, fault, failing))) break;
          }
    },
  );

  test.each([true, false])(
    "a commit is told as it is, whenever the disk is full from then on (journal: %s)",
    async (isJournaled) => {
      for (const fault of [undefined, "before", "after", "late"] as const)
        for (let room = 0; ; room++)
          if (!(await commitsOnce(kind, isJournaled, fault, (disk) => fillAfter(disk, room)))) break;
    },
  );
});
