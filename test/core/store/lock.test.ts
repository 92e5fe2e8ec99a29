/** One writer for each file: the lock is the holder's until it lets go or dies. */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { realDisk } from "../../../src/core/store/disk.ts";
import {
  type FileKey,
  fileLocks,
  isLock,
  type Lock,
  type LockOptions,
  makeLocks,
} from "../../../src/core/store/lock.ts";
import type { Holder } from "../../../src/core/store/store.ts";

let folder: string;
/** No file of this machine; its locks are nobody else's business. */
let file: FileKey;
const taken: Lock[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "pi-session-"));
  file = { device: process.pid, inode: 900_000_000 + Math.floor(performance.now() * 1000) };
});
afterEach(() => {
  for (const lock of taken.splice(0)) lock.release();
  rmSync(folder, { recursive: true });
});

const options = (client: string): LockOptions => ({
  disk: realDisk,
  stateFolder: folder,
  client,
  now: () => "2026-01-24T16:22:26.831Z",
});

function held(outcome: Lock | Holder): Lock {
  if (!isLock(outcome)) throw new Error(`held by ${outcome.client}`);
  taken.push(outcome);
  return outcome;
}

describe.each([
  ["of this system", makeLocks],
  ["in files", fileLocks],
])("locks %s", (_, make) => {
  test("belong to one, and the other is told to whom", () => {
    const [one, two] = [make(options("one")), make(options("two"))];
    const lock = held(one.take(file));
    const holder = { client: "one", pid: process.pid, since: "2026-01-24T16:22:26.831Z" };
    expect(two.take(file)).toEqual(holder);
    expect(two.holder(file)).toEqual(holder);
    lock.release();
    expect(two.holder(file)).toBeNull();
    held(two.take(file));
    expect(one.take(file)).toMatchObject({ client: "two" });
  });

  test("of different files do not meet", () => {
    const locks = make(options("one"));
    held(locks.take(file));
    held(locks.take({ ...file, inode: file.inode + 1 }));
    held(locks.take({ ...file, device: file.device + 1 }));
  });

  test("leave nothing behind when they are released", () => {
    held(make(options("one")).take(file)).release();
    expect(readdirSync(join(folder, "locks"))).toEqual([]);
  });
});

describe("the lock of a holder that died", () => {
  function holding(script: string): Promise<ChildProcess> {
    const child = spawn(process.execPath, ["-e", script], { stdio: ["ignore", "pipe", "inherit"] });
    return new Promise((resolve) => child.stdout.once("data", () => resolve(child)));
  }

  test.runIf(process.platform === "linux")("is free at once on Linux", async () => {
    const name = `\\0pi-session-server/${process.getuid?.() ?? 0}/${file.device}:${file.inode}`;
    const child = await holding(`require("node:net").createServer().listen("${name}", () => console.log("held"))`);
    const locks = makeLocks(options("one"));
    expect(isLock(locks.take(file))).toBe(false);
    const gone = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await gone;
    held(locks.take(file));
  });

  test("in a file is taken over, for its process is gone or is another one", () => {
    const locks = fileLocks(options("one"));
    const dead = spawnSync(process.execPath, ["-e", "console.log(process.pid)"], { encoding: "utf8" });
    const lock = held(locks.take(file));
    const path = join(folder, "locks", readdirSync(join(folder, "locks"))[0]);
    const mine = JSON.parse(readText(path)) as { started: string };
    lock.release();
    for (const stale of [
      { pid: Number(dead.stdout) },
      ...(mine.started === "" ? [] : [{ started: "another boot 1" }]),
    ]) {
      writeFileSync(path, JSON.stringify({ ...mine, ...stale }));
      expect(locks.holder(file)).toBeNull();
      held(locks.take(file)).release();
    }
  });

  test("in a file of another host, or one that nobody can read, is held", () => {
    const locks = fileLocks(options("one"));
    held(locks.take(file)).release();
    const path = join(folder, "locks", `${file.device}-${file.inode}.lock`);
    const other = { client: "far", pid: 1, since: "then", host: "another-host", started: "" };
    for (const content of [JSON.stringify(other), "", "{", "null", "5", "[]"]) {
      writeFileSync(path, content);
      expect(isLock(locks.take(file)), content).toBe(false);
    }
    expect(readText(path)).toBe("[]");
  });
});

function readText(path: string): string {
  const fd = realDisk.openRead(path);
  try {
    const bytes = Buffer.alloc(4096);
    return bytes.subarray(0, realDisk.read(fd, bytes, 0, bytes.length, 0)).toString();
  } finally {
    realDisk.close(fd);
  }
}
