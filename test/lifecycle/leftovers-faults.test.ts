/**
 * Leftovers on their way to the trash, over a disk that fails or dies at its operations: each is in its place or in the
 * trash, never lost, and their sessions are as they were. Asked for again, the rest goes.
 */

import { describe, expect, test } from "vitest";
import { Failure } from "../../src/core/failure.ts";
import type { LifeCycle } from "../../src/core/ports/lifecycle.ts";
import type { Stores } from "../../src/core/ports/stores.ts";
import type { StoragePaths } from "../../src/storage/fs/paths.ts";
import { noLocks } from "../../src/storage/locks/locks.ts";
import { makeStores } from "../../src/storage/stores.ts";
import {
  CONTAINER as CUT_CONTAINER,
  FILE as CUT_FILE,
  FOLDER as CUT_FOLDER,
  cutOffs,
  WAYS,
} from "../support/cut-off.ts";
import { FaultDisk, faultPoints } from "../support/disk.ts";
import { testEnv } from "../support/env.ts";
import { sessionId } from "../support/lifecycle.ts";
import { chain, fileBytes, headerText } from "../support/lines.ts";
import { share } from "../support/random.ts";
import { beginning } from "../support/sessions.ts";
import { acrossTiers, SWEEP, SYSTEM } from "../support/tiers.ts";

const FOLDER = "/sessions/--home-me-project--";
const FILE = `${FOLDER}/2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl`;
const CONTAINER = `${FOLDER}/${sessionId(5)}.v2`;

/** What is left over; the last is a container of two files. */
const LEFT = [
  `${FILE}.v1.bak`,
  `${FILE}.damaged.bak`,
  `${CONTAINER}.damaged.bak/header.jsonl`,
  `${CONTAINER}.damaged.bak/segments/0000000000000001.seg`,
];

const ROOT: StoragePaths = { root: "/sessions", state: "/state" };

function storesOn(disk: FaultDisk, seed: number, paths = ROOT): Stores {
  return makeStores({
    disk,
    env: testEnv(seed),
    paths,
    locks: noLocks,
    durability: "sync",
    cwd: "/",
    kind: "v2",
  });
}

const lifeOn = (disk: FaultDisk, seed: number): LifeCycle => storesOn(disk, seed).lifeCycle;

async function prepared(): Promise<FaultDisk> {
  const disk = new FaultDisk();
  disk.put(FILE, fileBytes(headerText({ id: sessionId(1) }), ...chain(3)));
  const { forNew } = storesOn(disk, 8);
  (await forNew.publish(beginning(headerText({ id: sessionId(5) })), [fileBytes(...chain(3))])).close();
  for (const path of LEFT) disk.put(path, fileBytes(`content of ${path}`));
  return disk.after();
}

const prune = (disk: FaultDisk, permanent = false): Promise<unknown> =>
  lifeOn(disk, 7).leftovers.prune({}, { permanent, force: false });

async function attempted(run: () => Promise<unknown>): Promise<void> {
  try {
    await run();
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
  }
}

const textAt = (disk: FaultDisk, path: string): string => Buffer.from(disk.content(path) ?? []).toString("latin1");

/** Each leftover has its name or one in the trash, and what is no leftover is as it was. */
function checkKept(before: FaultDisk, disk: FaultDisk, what: string): void {
  for (const path of LEFT) {
    const text = textAt(before, path);
    const places = disk.paths().filter((other) => textAt(disk, other) === text);
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

for (const given of [4, 12])
  test.each([given])(
    "whatever fails on the way, and wherever it dies, nothing is lost (at %i places)",
    given === 4 ? SYSTEM : SWEEP,
    async (places) => {
      const before = await prepared();
      const whole = before.after();
      whole.record();
      await prune(whole);
      expect(leftIn(whole)).toEqual([]);
      checkKept(before, whole, "done");
      for (const at of share(faultPoints("fail", whole), places)) {
        const disk = before.after();
        disk.set({ kind: "fail", at, errno: at % 2 === 0 ? "EIO" : "ENOSPC" });
        await attempted(() => prune(disk));
        disk.set(undefined);
        checkKept(before, disk, `fails at ${at}`);
        expect(disk.openCount, `fails at ${at}: ${whole.operations[at - 1]} ${whole.places?.[at - 1]}`).toBe(0);
        await prune(disk);
        checkKept(before, disk, `fails at ${at}, again`);
        expect(leftIn(disk), `fails at ${at}, again`).toEqual([]);
      }
      const seen = new Set<string>();
      for (const at of share(faultPoints("die", whole), places / 4)) {
        const disk = before.after();
        disk.set({ kind: "die", at });
        await attempted(() => prune(disk));
        for (const { disk: next, cut } of disk.remains(seen)) {
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
  const before = await prepared();
  const whole = before.after();
  whole.record();
  await prune(whole, true);
  expect(leftIn(whole)).toEqual([]);
  for (const at of share(faultPoints("fail", whole), 12)) {
    const disk = before.after();
    disk.set({ kind: "fail", at, errno: "EIO" });
    await attempted(() => prune(disk, true));
    disk.set(undefined);
    checkSessions(before, disk, `fails at ${at}`);
    await prune(disk, true);
    expect(leftIn(disk), `fails at ${at}, again`).toEqual([]);
  }
});

test("an item of the trash is there as a whole or not at all, wherever its removal dies", async () => {
  const begun = await prepared();
  const before = begun.after();
  await prune(before);
  const whole = before.after();
  whole.record();
  await lifeOn(whole, 9).emptyTrash();
  expect(whole.paths().filter((path) => path.startsWith("/state/trash/"))).toEqual([]);
  for (const at of faultPoints("die", whole)) {
    const disk = before.after();
    disk.set({ kind: "die", at });
    await attempted(() => lifeOn(disk, 9).emptyTrash());
    const next = disk.after();
    const life = lifeOn(next, 10);
    for (const { files } of life.trash()) {
      expect(files?.length).toBe(3);
      checkKept(begun, next, `dies at ${at}`);
    }
    await life.emptyTrash();
    expect(
      next.paths().filter((path) => path.startsWith("/state/trash/")),
      `dies at ${at}`,
    ).toEqual([]);
  }
});

acrossTiers(describe, WAYS)("$name that was cut off", (way) => {
  test("is completed with every entry, though all leftovers were removed before, even for good", SYSTEM, async () => {
    for (const { disk, at } of await cutOffs(way)) {
      const stores = storesOn(disk, 11, { flat: CUT_FOLDER, state: "/state" });
      await stores.lifeCycle.leftovers.prune({}, { permanent: true, force: true });
      const path = [CUT_FILE, CUT_CONTAINER].find((one) => stores.holds(one)) as string;
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
