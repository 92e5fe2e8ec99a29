/** Operations on whole sessions of a fleet in memory, whose copies are long, or have moved meanwhile. */

import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import type { FleetKeeper, Kept } from "../../../src/core/ports/fleet-keeper.ts";
import type { LifeCycle, Where } from "../../../src/core/ports/lifecycle.ts";
import type { Operation } from "../../../src/core/ports/operations.ts";
import { fleetLifeCycle } from "../../../src/storage/fleet/life-cycle.ts";
import { Machine, type MachineKind, written } from "../../support/fleet-machine.ts";
import { entryText, id, SESSION } from "../../support/lines.ts";
import { textsOf } from "../../support/sessions.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";

/** The operations of a machine, and what its fleet and its disk were told to do. */
function lifeCycleOf(machine: Machine, locate: (where: Where) => string = () => machine.file) {
  const kept: Kept[] = [];
  const moved: string[] = [];
  const { file, store, fleet, journal } = machine;
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
    async takeBack() {
      moved.push(file);
      return { operationId: "back", sessionPath: file };
    },
  } as unknown as LifeCycle;
  const keeper = {
    async keep(_: string, __: number, as: Kept) {
      kept.push(as);
      return true;
    },
  } as unknown as FleetKeeper;
  const place = {
    ...{ fleet, journal, keeper },
    idAt: (at: string) => (at === file ? SESSION : undefined),
    open: store.open,
    idsIn: () => [SESSION],
    isArchived: () => false,
    arrive: async () => {},
  };
  return { kept, moved, lifeCycle: fleetLifeCycle(own, place) };
}

const long = (n: number, text: string): string =>
  entryText("custom", id(n), n === 0 ? null : id(n - 1), { customType: "long", data: text.repeat(600_000) });

/** A session of 1.8 MB in the fleet, and another machine with its file. */
async function differing(kind: MachineKind, texts: readonly string[]): Promise<Machine> {
  const one = new Machine(kind);
  await one.put([0, 1, 2].map((n) => long(n, "a")));
  const log = one.store.open(one.file);
  await log.confirm?.();
  log.close();
  const two = new Machine(kind, one.fleet.table, "two");
  two.fleet.leasesEnd = true;
  await two.put(texts);
  return two;
}

acrossTiers(describe, ["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  const relocated = (machine: Machine) => {
    const { lifeCycle, ...told } = lifeCycleOf(machine);
    return { ...told, run: () => lifeCycle.relocate(machine.file, "/elsewhere") };
  };
  const takenBack = (machine: Machine, to = machine.file) => {
    const { lifeCycle, ...told } = lifeCycleOf(machine);
    const step = { do: "relocate", from: machine.file, to, cwd: "/elsewhere", header: "", keptAt: null };
    const operation = { sessionId: SESSION, step } as unknown as Operation;
    return { ...told, run: () => lifeCycle.takeBack(operation, { kind: "undo", of: "one", text: "" }) };
  };

  test.each([
    ["relocated", relocated],
    ["taken back", takenBack],
  ])("another session's long file is %s by itself, and the fleet is told nothing", SYSTEM, async (_, of) => {
    const texts = [0, 1, 2].map((n) => long(n, "b"));
    const machine = await differing(kind, texts);
    const { run, kept, moved } = of(machine);
    await run();
    expect([kept, moved]).toEqual([[], [machine.file]]);
    const log = machine.store.open(machine.file);
    expect(textsOf(log)).toEqual(texts);
    log.close();
    // Nobody has it.
    expect(machine.fleet.table.rows.get(SESSION)?.holder).toBe(null);
  });

  test.each([
    ["relocated", relocated],
    ["taken back", takenBack],
  ])("a long copy with lines that the fleet never got gives way before it is %s for all", SYSTEM, async (_, of) => {
    const machine = await differing(kind, [long(0, "a"), long(1, "a"), long(2, "b")]);
    const { run, kept } = of(machine);
    await run();
    expect(kept).toMatchObject([{ as: "changed" }]);
    const log = machine.store.open(machine.file);
    expect([textsOf(log), machine.aside]).toEqual([machine.fleet.table.linesOf(SESSION), [long(2, "b")]]);
    log.close();
  });

  test("a relocation that was cut off before the file moved is taken back for all", async () => {
    const machine = await differing(
      kind,
      [0, 1, 2].map((n) => long(n, "a")),
    );
    const { run, kept } = takenBack(machine, "/root/sessions/after.jsonl");
    await run();
    expect(kept).toMatchObject([{ as: "changed" }]);
    expect(machine.fleet.calls).toContain("take");
  });

  const OPERATIONS = {
    relocate: (lifeCycle: LifeCycle, file: string) => lifeCycle.relocate(file, "/elsewhere"),
    archive: (lifeCycle: LifeCycle, file: string) => lifeCycle.archive(file),
    unarchive: (lifeCycle: LifeCycle, file: string) => lifeCycle.unarchive(file),
    delete: (lifeCycle: LifeCycle, file: string) => lifeCycle.delete(file, true),
  };

  test.each(Object.keys(OPERATIONS) as (keyof typeof OPERATIONS)[])(
    "a session that another process has moved since it was found is taken where it is now (%s)",
    async (name) => {
      const machine = await differing(
        kind,
        [0, 1, 2].map((n) => long(n, "a")),
      );
      const { lifeCycle, kept, moved } = lifeCycleOf(machine);
      await OPERATIONS[name](lifeCycle, "/root/sessions/before.jsonl");
      expect([moved, kept.length]).toEqual([[machine.file], 1]);
      expect(machine.fleet.calls).toContain("take");
      // Another machine that writes to it is in the way.
      const other = new Machine(kind, machine.fleet.table, "three");
      other.fleet.leasesEnd = true;
      await other.put([0, 1, 2].map((n) => long(n, "a")));
      const log = other.store.open(other.file);
      await log.ready?.();
      await written(log, 3);
      machine.fleet.leasesEnd = false;
      const again = OPERATIONS[name](lifeCycle, "/root/sessions/before.jsonl");
      await expect(again).rejects.toMatchObject({ name: "session_locked" });
      expect(moved).toHaveLength(1);
      log.close();
    },
  );

  test("one that is gone from its path, and is nowhere else, is not found", async () => {
    const machine = await differing(
      kind,
      [0, 1, 2].map((n) => long(n, "a")),
    );
    const { lifeCycle, moved } = lifeCycleOf(machine, () => {
      throw new Failure("session_not_found");
    });
    for (const run of Object.values(OPERATIONS))
      await expect((async () => run(lifeCycle, "/root/sessions/before.jsonl"))()).rejects.toMatchObject({
        name: "session_not_found",
      });
    expect(moved).toEqual([]);
  });
});
