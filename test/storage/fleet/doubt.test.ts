/** What a host is told of a commit where disk and fleet fail together: a sentence about it is true, whatever failed. */

import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { LEAF_MARKER } from "../../../src/core/format/head.ts";
import { bytesOf } from "../../../src/core/json/json.ts";
import type { FaultDisk } from "../../support/disk.ts";
import type { FleetFault } from "../../support/fleet.ts";
import { failed, line, written } from "../../support/fleet-machine.ts";
import { lineOf, Scene } from "../../support/fleet-scene.ts";
import { id, SESSION } from "../../support/lines.ts";
import { isEvery } from "../../support/random.ts";
import { textsOf } from "../../support/sessions.ts";
import { acrossTiers } from "../../support/tiers.ts";

const FAULTS = [undefined, "before", "after", "late"] as const;
const UNCHANGED = "Nothing was changed";

/** Has a disk fail. Returns what ends that, and says whether it did fail. */
type Failing = (disk: FaultDisk) => () => boolean;

/** There is room for so many changes, and for no more. */
const fullAfter =
  (room: number): Failing =>
  (disk) => {
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
    return () => {
      isOver = true;
      return left < 0;
    };
  };

/** One operation fails. */
const failingAt =
  (at: number, errno: string): Failing =>
  (disk) => {
    disk.set({ kind: "fail", at, errno });
    return () => {
      const { struck } = disk;
      disk.set(undefined);
      return struck;
    };
  };

/** One commit at which the fleet fails as told, and then is away, and the disk fails. Returns whether the disk did. */
async function commitsOnce(
  kind: "jsonl" | "v2",
  isJournaled: boolean,
  fault: FleetFault | undefined,
  failing: Failing,
): Promise<boolean> {
  const scene = await new Scene(kind, { isJournaled }).play("writes 0");
  scene.one.fails((name) => (name === "append" || fault === undefined ? fault : "before"));
  const end = failing(scene.one.disk);
  const told: Failure | undefined = await written(scene.log, 1).then(
    () => undefined,
    (error) => error,
  );
  const struck = end();
  const fleet = (): string[] => scene.table.linesOf(SESSION);
  const isSaidUnchanged = told?.message.includes(UNCHANGED) === true;
  const what = `${told?.name}: ${told?.message}`;
  if (told) expect(["outcome_unknown", "storage_full", "storage_failed"], what).toContain(told.name);
  if (told?.name === "outcome_unknown") expect(isSaidUnchanged, what).toBe(false);
  else if (told) expect(fleet(), what).toEqual([line(0)]);
  await scene.play("heals; finds");
  if (isSaidUnchanged || !told) expect(fleet(), what).toEqual([0, ...(told ? [] : [1])].map(line));
  // A host repeats what it does not know, unless it finds it.
  await written(scene.log, ...(scene.log.nodes.position(id(1)) < 0 ? [1, 2] : [2]));
  expect([fleet(), textsOf(scene.log)], what).toEqual([[0, 1, 2].map(line), [0, 1, 2].map(line)]);
  scene.table.check();
  return struck;
}

/** A conflict that is settled while the disk fails. Returns whether it did. */
async function settlesOnce(kind: "jsonl" | "v2", failing: Failing): Promise<boolean> {
  const scene = await new Scene(kind, { isJournaled: true }).play(
    "writes 0; cut; writes 7<0; elsewhere 0 : 1 2; heals",
  );
  const end = failing(scene.one.disk);
  const { log } = scene;
  const told = await scene.play("finds").catch((error: unknown) => error);
  if (told !== scene) expect(told).toBeInstanceOf(Failure);
  const struck = end();
  if (struck && scene.log === log) log.close();
  // The next process finds whatever was left.
  await scene.play("again finds; again writes 3; aside; again aside");
  const texts = scene.table.linesOf(SESSION);
  const isLine = (text: string): boolean => !text.includes(LEAF_MARKER);
  expect(texts.filter(isLine).sort()).toEqual(["0", "1", "2", "3", "7<0"].map(lineOf).sort());
  expect(textsOf(scene.actor("again").log)).toEqual(texts);
  return struck;
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

  test.each([
    ["an answer is lost", "after", false],
    ["an append comes late", "late", false],
    ["the disk refuses", undefined, false],
    ["the disk refuses where work goes on alone", undefined, true],
  ] as const)("a first append of which nobody knows is found, or made anew: %s", async (_, fault, isJournaled) => {
    for (const held of [[], ["0", "1"]])
      for (const finds of ["asks", "follows"]) {
        const scene = new Scene(kind, { isJournaled });
        const { disk } = scene.one;
        const { log } = scene;
        const append = (word: string, defer = false): void => log.append([bytesOf(lineOf(word))], { defer });
        for (const word of held) append(word, true);
        const parent = held.at(-1) ?? "";
        scene.one.fails((name) => (name === "append" ? fault : undefined));
        const { sync, syncFolder } = disk;
        const refuse = (): Promise<void> => Promise.reject(Object.assign(new Error("test"), { code: "EIO" }));
        if (!fault) Object.assign(disk, { sync: refuse, syncFolder: refuse });
        await scene.play(`writes 5<${parent} !outcome_unknown`);
        expect(log.nodes.count).toBe(held.length);
        Object.assign(disk, { sync, syncFolder });
        // As long as nobody can be asked, nothing else takes its place.
        await scene.play("cut");
        if (!isJournaled) {
          await log.ready?.();
          for (const defer of [true, false])
            expect(() => append(`8<${parent}`, defer)).toThrow(failed("storage_failed"));
        }
        await scene.play(`heals; ${finds}; looks`);
        // A host that does not find its entry sends it again, and it gets another id.
        if (log.nodes.position(id(5)) < 0) append(`6<${parent}`);
        await log.commit();
        const first = log.nodes.position(id(5)) < 0 ? 6 : 5;
        if (fault !== "late") expect(first).toBe(5);
        const all = `${held.join(" ")} ${first}<${parent} 7<${first}`;
        await scene.play(`writes 7<${first}; copy ${all}; fleet ${all}; aside; closes; copy ${all}; closes`);
      }
  });

  // A container that another program writes to is not continued at all.
  test.runIf(kind === "jsonl").each(["away", "lost"])(
    "lines that stay are not said to be undone (%s)",
    async (what) => {
      const scene = await new Scene(kind).play("writes 0", what === "away" ? "cut" : "two takes 0", "appends 1");
      const commit = scene.log.commit();
      const theirs = scene.one.plain.open(scene.one.file);
      theirs.append([bytesOf(lineOf("9<1"))]);
      theirs.close();
      scene.log.refresh();
      const told = await commit.catch((error: unknown) => error);
      expect(told).toEqual(failed("outcome_unknown", { retryable: true }));
      expect((told as Failure).message).not.toContain(UNCHANGED);
      await scene.play("heals; two closes; asks; confirms; copy 0 1 9<1; fleet 0 1 9<1");
    },
  );

  acrossTiers(test, strides(41, 17))("a conflict is settled once (each of %i)", async (ofMany) => {
    for (const errno of ["EIO", "ENOSPC"]) await sweep((at) => settlesOnce(kind, failingAt(at + 1, errno)), ofMany);
    await sweep((room) => settlesOnce(kind, fullAfter(room)), ofMany);
  });

  describe.each([true, false])("with a journal: %s", (isJournaled) => {
    const told = async (ofMany: number, ways: readonly ((at: number) => Failing)[]): Promise<void> => {
      for (const fault of FAULTS)
        for (const way of ways) await sweep((at) => commitsOnce(kind, isJournaled, fault, way(at)), ofMany);
    };

    acrossTiers(test, strides(11, 3))(
      "a commit is told as it is, at whichever operation the disk fails (each of %i)",
      (ofMany) =>
        told(
          ofMany,
          ["EIO", "ENOSPC"].map((errno) => (at) => failingAt(at + 1, errno)),
        ),
    );

    acrossTiers(test, strides(3, 3))(
      "a commit is told as it is, whenever the disk is full from then on (each of %i)",
      (ofMany) => told(ofMany, [fullAfter]),
    );
  });
});
