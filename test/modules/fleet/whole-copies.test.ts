/** Operations on whole sessions of a fleet in memory, whose copies are long, or have moved meanwhile. */

import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import type { SessionDisposition } from "../../../src/core/ports/fleet-admin-queries.ts";
import type { LifeCycle, Where } from "../../../src/core/ports/lifecycle.ts";
import type { Operation } from "../../../src/core/ports/operations.ts";
import { type LifeCyclePlace, makeFleetLifeCycle } from "../../../src/modules/fleet/admin/life-cycle.ts";
import { entryText, id, SESSION } from "../../support/lines.ts";
import { range } from "../../support/random.ts";
import { textsOf } from "../../support/sessions.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";
import { Machine, type MachineKind, written } from "./support/machine.ts";

/** The path that the session has left. */
const BEFORE = "/root/sessions/before.jsonl";

/** The operations of a machine, and the requests of its fleet and its disk. */
function lifeCycleOf({ file, store, fleet, journal }: Machine, locate: (where: Where) => string = () => file) {
  const kept: SessionDisposition[] = [];
  const moved: string[] = [];
  const move = async (from: string) => {
    moved.push(from);
    return { sessionId: SESSION, sessionPath: from, movedTo: from, keptAt: null, operationId: "one" };
  };
  const own = {
    locate,
    relocate: move,
    archive: move,
    unarchive: move,
    delete: move,
    takeBack: () => move(file),
    trash: () => [],
  };
  const place = {
    ...{ fleet, journal, open: store.open, isArchived: () => false },
    isInPlace: () => true,
    bringTo: async (at: string) => at,
    adminQueries: { keep: async (...given: [string, number, SessionDisposition]) => kept.push(given[2]) > 0 },
    idAt: (at: string) => (at === file ? SESSION : undefined),
  };
  const lifeCycle = makeFleetLifeCycle(own as unknown as LifeCycle, place as unknown as LifeCyclePlace);
  return { kept, moved, lifeCycle };
}

const long = (n: number, text: string): string =>
  entryText("custom", id(n), n === 0 ? null : id(n - 1), { customType: "long", data: text.repeat(600_000) });
const SAME = [0, 1, 2].map((n) => long(n, "a"));

/** A session of 1.8 MB in the fleet, and another machine with a file of it. */
async function differing(kind: MachineKind, texts: readonly string[]): Promise<Machine> {
  const one = new Machine(kind);
  await one.put(SAME);
  const log = one.store.open(one.file);
  await log.replica?.confirm();
  log.close();
  return second(kind, one, texts);
}

async function second(kind: MachineKind, { fleet }: Machine, texts: readonly string[], name = "two"): Promise<Machine> {
  const two = new Machine(kind, fleet.table, name);
  two.fleet.leasesEnd = true;
  await two.put(texts);
  return two;
}

const OPERATIONS: Readonly<Record<string, (lifeCycle: LifeCycle, file: string) => Promise<unknown>>> = {
  relocate: (lifeCycle, file) => lifeCycle.relocate(file, "/elsewhere"),
  archive: (lifeCycle, file) => lifeCycle.archive(file),
  unarchive: (lifeCycle, file) => lifeCycle.unarchive(file),
  delete: (lifeCycle, file) => lifeCycle.delete(file, true),
};

async function takeBack(lifeCycle: LifeCycle, from: string, to = from): Promise<unknown> {
  const step = { do: "relocate", from, to, cwd: "/elsewhere", header: "", keptAt: null };
  const operation = { sessionId: SESSION, step } as unknown as Operation;
  return lifeCycle.takeBack(operation, { kind: "undo", of: "one", text: "" });
}

acrossTiers(describe, ["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  describe.each([
    ["relocated", OPERATIONS.relocate],
    ["taken back", takeBack],
  ])("that is %s", SYSTEM, (_, run) => {
    test.each([3, 2])(
      "another session's long file (of %i lines) is so by itself, and the fleet is told nothing",
      async (count) => {
        const texts = range(0, count).map((n) => long(n, "b"));
        const machine = await differing(kind, texts);
        const { lifeCycle, kept, moved } = lifeCycleOf(machine);
        await run(lifeCycle, machine.file);
        expect([kept, moved, textsOf(machine.store.open(machine.file))]).toEqual([[], [machine.file], texts]);
        // It has no holder.
        expect(machine.fleet.table.rows.get(SESSION)?.holder).toBe(null);
      },
    );

    test("a long copy with lines that the fleet never got gives way before it is so for all", async () => {
      const machine = await differing(kind, [SAME[0], SAME[1], long(2, "b")]);
      const { lifeCycle, kept } = lifeCycleOf(machine);
      await run(lifeCycle, machine.file);
      expect(kept).toMatchObject([{ as: "changed" }]);
      expect([textsOf(machine.store.open(machine.file)), machine.quarantined]).toEqual([SAME, [long(2, "b")]]);
    });
  });

  test("a relocation that was cut off before the file moved is taken back for all", async () => {
    const machine = await differing(kind, SAME);
    const { lifeCycle, kept } = lifeCycleOf(machine);
    await takeBack(lifeCycle, machine.file, "/root/sessions/after.jsonl");
    expect(kept).toMatchObject([{ as: "changed" }]);
    expect(machine.fleet.calls).toContain("take");
  });

  test.each(Object.entries(OPERATIONS))(
    "a session that another process has moved since it was found is taken where it is now (%s)",
    async (_, run) => {
      const machine = await differing(kind, SAME);
      const { lifeCycle, kept, moved } = lifeCycleOf(machine);
      await run(lifeCycle, BEFORE);
      expect([moved, kept.length]).toEqual([[machine.file], 1]);
      expect(machine.fleet.calls).toContain("take");
      // Another machine that writes to it is in the way.
      const other = await second(kind, machine, SAME, "three");
      const log = other.store.open(other.file);
      await log.replica?.ready();
      await written(log, 3);
      machine.fleet.leasesEnd = false;
      await expect(run(lifeCycle, BEFORE)).rejects.toMatchObject({ name: "session_locked" });
      expect(moved).toHaveLength(1);
    },
  );

  test("one that is gone from its path, and is nowhere else, is not found", async () => {
    const { lifeCycle, moved } = lifeCycleOf(new Machine(kind), () => {
      throw new Failure("session_not_found");
    });
    for (const run of Object.values(OPERATIONS))
      await expect((async () => run(lifeCycle, BEFORE))()).rejects.toMatchObject({ name: "session_not_found" });
    expect(moved).toEqual([]);
  });
});
