/**
 * Leftovers on their way to the trash, over a disk that fails or dies at its operations: each is in its place or in the
 * trash, never lost, and their sessions are as they were. Asked for again, the rest goes.
 */

import { describe, expect, test } from "vitest";
import type { LifeCycle } from "../../src/core/ports/lifecycle.ts";
import { CONTAINER, cutOffs, FILE, FOLDER, WAYS } from "../support/cut-off.ts";
import { FaultDisk, faultPoints } from "../support/disk.ts";
import { sessionId } from "../support/lifecycle.ts";
import { outcome, putContainer, storesOn, textAt } from "../support/lifecycle-faults.ts";
import { chain, fileBytes, headerText } from "../support/lines.ts";
import { share } from "../support/random.ts";
import { acrossTiers, SWEEP, SYSTEM } from "../support/tiers.ts";

const SESSIONS = "/sessions/--home-me-project--";
const SESSION = `${SESSIONS}/2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl`;
const DAMAGED = `${SESSIONS}/${sessionId(5)}.v2.damaged.bak`;

/** Leftovers; the last is a container of two files. */
const LEFT = [
  `${SESSION}.v1.bak`,
  `${SESSION}.damaged.bak`,
  `${DAMAGED}/header.jsonl`,
  `${DAMAGED}/segments/0000000000000001.seg`,
];

const lifeOn = (disk: FaultDisk, seed = 7): LifeCycle => storesOn(disk, undefined, "v2", seed).lifeCycle;

async function prepared(): Promise<FaultDisk> {
  const disk = new FaultDisk();
  disk.put(SESSION, fileBytes(headerText({ id: sessionId(1) }), ...chain(3)));
  await putContainer(disk);
  for (const path of LEFT) disk.put(path, fileBytes(`content of ${path}`));
  return disk.after();
}

const prune = (disk: FaultDisk, permanent = false): Promise<unknown> =>
  lifeOn(disk).leftovers.prune({}, { permanent, force: false });

/** Expects that each leftover has its name or one in the trash, and that all other files are unchanged. */
function checkKept(before: FaultDisk, disk: FaultDisk, what: string): void {
  for (const path of LEFT) {
    const places = disk.paths().filter((other) => textAt(disk, other) === textAt(before, path));
    const isKept = places.some((other) => other === path || other.startsWith("/state/trash/"));
    expect(isKept, `${what}: ${path}, which is at ${places.join(", ") || "no place"}`).toBe(true);
  }
  checkSessions(before, disk, what);
}

function checkSessions(before: FaultDisk, disk: FaultDisk, what: string): void {
  for (const path of before.paths())
    if (path.startsWith("/sessions/") && !LEFT.includes(path))
      expect(textAt(disk, path), what).toBe(textAt(before, path));
}

const leftIn = (disk: FaultDisk): string[] => disk.paths().filter((path) => LEFT.includes(path));
const trashIn = (disk: FaultDisk): string[] => disk.paths().filter((path) => path.startsWith("/state/trash/"));

/** Lets some operations of a pruning fail, and asks for it again; `check` gets each disk after each time. */
async function failingAt(places: number, isForGood: boolean, check: typeof checkKept): Promise<FaultDisk> {
  const before = await prepared();
  const whole = before.after();
  whole.record();
  await prune(whole, isForGood);
  expect(leftIn(whole)).toEqual([]);
  check(before, whole, "done");
  for (const at of share(faultPoints("fail", whole), places)) {
    const disk = before.after();
    disk.set({ kind: "fail", at, errno: at % 2 === 0 ? "EIO" : "ENOSPC" });
    await outcome(() => prune(disk, isForGood));
    disk.set(undefined);
    check(before, disk, `fails at ${at}`);
    expect(disk.openCount, `fails at ${at}: ${whole.operations[at - 1]} ${whole.places?.[at - 1]}`).toBe(0);
    await prune(disk, isForGood);
    check(before, disk, `fails at ${at}, again`);
    expect(leftIn(disk), `fails at ${at}, again`).toEqual([]);
  }
  return whole;
}

for (const given of [4, 12])
  test.each([given])(
    "whatever fails on the way, and wherever it dies, nothing is lost (at %i places)",
    given === 4 ? SYSTEM : SWEEP,
    async (places) => {
      const whole = await failingAt(places, false, checkKept);
      const before = await prepared();
      const seen = new Set<string>();
      for (const at of share(faultPoints("die", whole), places / 4)) {
        const disk = before.after();
        disk.set({ kind: "die", at });
        await outcome(() => prune(disk));
        for (const { disk: next, cut } of disk.crashes(seen)) {
          const what = `dies at ${at}, ${JSON.stringify(cut)}`;
          checkKept(before, next, what);
          await prune(next);
          checkKept(before, next, `${what}, again`);
          expect(leftIn(next), what).toEqual([]);
        }
      }
    },
  );

test("removed for good, only leftovers go, whatever fails", async () => {
  await failingAt(12, true, checkSessions);
});

test("an item of the trash is there as a whole or not at all, wherever its removal dies", async () => {
  const begun = await prepared();
  const before = begun.after();
  await prune(before);
  const whole = before.after();
  whole.record();
  await lifeOn(whole, 9).emptyTrash();
  expect(trashIn(whole)).toEqual([]);
  for (const at of faultPoints("die", whole)) {
    const disk = before.after();
    disk.set({ kind: "die", at });
    await outcome(() => lifeOn(disk, 9).emptyTrash());
    const next = disk.after();
    const life = lifeOn(next, 10);
    for (const { files } of life.trash()) {
      expect(files?.length).toBe(3);
      checkKept(begun, next, `dies at ${at}`);
    }
    await life.emptyTrash();
    expect(trashIn(next), `dies at ${at}`).toEqual([]);
  }
});

acrossTiers(describe, WAYS)("$name that was cut off", (way) => {
  test("is completed with every entry, though all leftovers were removed before, even for good", SYSTEM, async () => {
    for (const { disk, at } of await cutOffs(way)) {
      const stores = storesOn(disk, { flat: FOLDER, state: "/state" }, "v2", 11);
      await stores.lifeCycle.leftovers.prune({}, { permanent: true, force: true });
      const path = [FILE, CONTAINER].find((one) => stores.holds(one)) as string;
      const { interrupted, state } = stores.migrations.status(path);
      if (interrupted && state === "MIGRATION_STAGING") await stores.migrations.migrate(path, {});
      else if (interrupted) await stores.migrations.rollBack(path, {});
      const log = stores.open(stores.migrations.currentPathOf(path));
      const ids = Array.from({ length: log.nodes.count }, (_, p) => log.nodes.id(p));
      expect([ids, log.readOnly], at).toEqual([way.ids, null]);
      log.close();
    }
  });
});
