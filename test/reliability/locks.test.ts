/** Locks in files, where the system has nothing better: what two that look at the same moment do. */

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { Failure } from "../../src/core/failure.ts";
import { toBytes } from "../../src/core/json/json.ts";
import type { Holder } from "../../src/core/ports/lock.ts";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { makeJsonlStore } from "../../src/storage/jsonl/store.ts";
import { isLock, type Lock, type Locks, makeFileLocks } from "../../src/storage/locks/locks.ts";
import { FaultDisk } from "../support/disk.ts";
import { wrapped } from "../support/disturbed.ts";
import { testEnv } from "../support/env.ts";
import { id, userText } from "../support/lines.ts";
import { temporaryFolder } from "../support/server.ts";
import { beginning, QUARANTINE } from "../support/sessions.ts";
import { SYSTEM } from "../support/tiers.ts";

const KEY = { device: 3, inode: 33 };
const NAME = "3-33.lock";

/** No power is cut here. */
const quickDisk: Disk = { ...realDisk, syncNow: () => {} };

function locksIn(stateFolder: string, client: string, disk: Disk = quickDisk): Locks {
  return makeFileLocks({ disk, stateFolder, client, now: () => "2026-01-24T16:22:26.831Z" });
}

function held(outcome: Lock | Holder): Lock {
  if (!isLock(outcome)) throw new Error(`held by ${outcome.client}`);
  return outcome;
}

const namesIn = (folder: string): string[] => readdirSync(join(folder, "locks"));

/** A folder with the lock of a process that is gone. */
function staleFolder(): string {
  const folder = temporaryFolder();
  const lock = held(locksIn(folder, "gone").acquire(KEY));
  const path = join(folder, "locks", NAME);
  const content = JSON.parse(readFileSync(path, "utf8"));
  lock.release();
  writeFileSync(path, JSON.stringify({ ...content, pid: 2 ** 22 + 1 }));
  return folder;
}

/** Expects that one got the lock, and that nothing of it stays when it lets go. */
function requireOneOf(outcomes: (Lock | Holder)[], folder: string, where: string): void {
  const winners = outcomes.filter(isLock);
  expect(winners, where).toHaveLength(1);
  winners[0].release();
  expect(namesIn(folder), where).toEqual([]);
}

/** Every operation of the slow one in turn, with what the others do right before each. */
function slowDown(before: (step: number) => void): { disk: Disk; steps: () => number } {
  let step = 0;
  const names = ["openRead", "read", "create", "write", "link", "rename", "remove", "names", "info"];
  const disk = wrapped(quickDisk, (operate, name) => {
    if (names.includes(name)) before(step++);
    return operate();
  });
  return { disk, steps: () => step };
}

test("of three that find the lock of a dead process, one gets it, whoever comes between which steps", SYSTEM, () => {
  let steps = 0;
  for (let first = 0; first === 0 || first < steps; first++)
    for (let second = first; second === first || second < steps; second += 1 + (first % 4)) {
      const folder = staleFolder();
      const taken: (Lock | Holder)[] = [];
      const come = (client: string): void => void taken.push(locksIn(folder, client).acquire(KEY));
      const slow = slowDown((step) => {
        if (step === first) come("second");
        if (step === second) come("third");
      });
      taken.push(locksIn(folder, "first", slow.disk).acquire(KEY));
      steps = Math.max(steps, slow.steps());
      // The last one learns that another has it.
      expect(isLock(locksIn(folder, "fourth").acquire(KEY))).toBe(false);
      requireOneOf(taken, folder, `at ${first} and ${second} of ${steps}`);
    }
  expect(steps).toBeGreaterThan(10);
});

test("who died while it removed a stale lock is in nobody's way", () => {
  const folder = staleFolder();
  const lock = readFileSync(join(folder, "locks", NAME), "utf8");
  writeFileSync(join(folder, "locks", `${NAME}.4194305-1-1.claim`), lock);
  held(locksIn(folder, "next").acquire(KEY)).release();
  expect(namesIn(folder)).toEqual([]);
});

test("a lock that could only be kept elsewhere is found there", () => {
  const folder = temporaryFolder();
  const refuse = (path: string): string[] => {
    if (path.startsWith(folder)) throw Object.assign(new Error("read-only"), { code: "EROFS" });
    return realDisk.makeFolder(path);
  };
  const elsewhere = held(locksIn(folder, "elsewhere", { ...realDisk, makeFolder: refuse }).acquire(KEY));
  const here = locksIn(folder, "here");
  expect(here.acquire(KEY)).toMatchObject({ client: "elsewhere" });
  elsewhere.release();
  held(here.acquire(KEY)).release();
});

test("where no lock can be kept, the first append leaves no file behind", () => {
  const disk = new FaultDisk();
  const locks: Locks = {
    acquire() {
      throw new Failure("read_only");
    },
    holder: () => null,
  };
  const store = makeJsonlStore({
    disk,
    env: testEnv(),
    locks,
    quarantine: QUARANTINE,
    durability: "sync",
    fileFor: () => "/sessions/new.jsonl",
  });
  const log = store.create(beginning());
  expect(() => log.append([toBytes(userText(id(0), null))])).toThrow(Failure);
  expect([log.persisted, log.nodes.count, disk.paths(), disk.openCount]).toEqual([false, 0, [], 0]);
});

test("a lock that was lost is not another's to release", () => {
  const folder = temporaryFolder();
  const mine = held(locksIn(folder, "mine").acquire(KEY));
  const path = join(folder, "locks", NAME);
  const theirs = JSON.stringify({ ...JSON.parse(readFileSync(path, "utf8")), client: "theirs" });
  writeFileSync(path, theirs);
  mine.release();
  expect(readFileSync(path, "utf8")).toBe(theirs);
});
