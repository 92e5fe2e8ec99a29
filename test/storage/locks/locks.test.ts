/** One writer for each file: the lock is the holder's until it lets go or dies. */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Holder } from "../../../src/core/ports/lock.ts";
import { type Disk, realDisk } from "../../../src/storage/fs/disk.ts";
import { getProcessStart, isSameProcess } from "../../../src/storage/fs/processes.ts";
import {
  type FileKey,
  isLock,
  type Lock,
  type LockOptions,
  type Locks,
  makeFileLocks,
  makeLocks,
  shareLocks,
} from "../../../src/storage/locks/locks.ts";
import { runWithLocks } from "../../support/lock-contention.ts";
import { LINUX, needs } from "../../support/needs.ts";
import { SYSTEM } from "../../support/tiers.ts";
import { diskError, refusing } from "../other-writers.ts";

let folder: string;
/** No file of this machine; its locks are no other process's business. */
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

const options = (client: string, disk: Disk = realDisk, stateFolder = folder): LockOptions => ({
  disk,
  stateFolder,
  client,
  now: () => "2026-01-24T16:22:26.831Z",
});

const textAt = (path: string) => readFileSync(path, "utf8");

/** No process has it: pids end at 2^22. */
const DEAD = 2 ** 22 + 1;

/** Returns the pid of a process that has ended. */
function deadPid(): number {
  return Number(spawnSync("/bin/sh", ["-c", "echo $$"], { encoding: "utf8" }).stdout);
}

function held(outcome: Lock | Holder): Lock {
  if (!isLock(outcome)) throw new Error(`held by ${outcome.client}`);
  taken.push(outcome);
  return outcome;
}

describe.each([
  ["of this system", makeLocks],
  ["in files", makeFileLocks],
])("locks %s", (_, make) => {
  test("belong to one, and the other is told to whom", () => {
    const [one, two] = [make(options("one")), make(options("two"))];
    const lock = held(one.acquire(file));
    const holder = { client: "one", pid: process.pid, since: "2026-01-24T16:22:26.831Z" };
    expect(two.acquire(file)).toEqual(holder);
    expect(two.holder(file)).toEqual(holder);
    lock.release();
    expect(two.holder(file)).toBeNull();
    held(two.acquire(file));
    expect(one.acquire(file)).toMatchObject({ client: "two" });
  });

  test("of different files do not meet", () => {
    const locks = make(options("one"));
    held(locks.acquire(file));
    held(locks.acquire({ ...file, inode: file.inode + 1 }));
    held(locks.acquire({ ...file, device: file.device + 1 }));
  });

  test("leave nothing behind when they are released", () => {
    held(make(options("one")).acquire(file)).release();
    expect(readdirSync(join(folder, "locks"))).toEqual([]);
  });

  test("keep out a server with another state folder, and tell it who is there", () => {
    const other = join(folder, "other");
    const lock = held(make(options("one")).acquire(file));
    expect(make(options("two", realDisk, other)).acquire(file)).toMatchObject({ client: "one", pid: process.pid });
    expect(make(options("two", realDisk, other)).holder(file)).toMatchObject({ client: "one" });
    lock.release();
    held(make(options("two", realDisk, other)).acquire(file));
  });

  test("are released once, whatever is done twice", () => {
    const [one, two] = [make(options("one")), make(options("two"))];
    const first = held(one.acquire(file));
    first.release();
    const second = held(two.acquire(file));
    first.release();
    expect(one.acquire(file)).toMatchObject({ client: "two" });
    second.release();
    held(one.acquire(file)).release();
  });
});

describe("locks that several logs share", () => {
  const shared = (): { locks: Locks; isFree: () => boolean } => {
    const locks = shareLocks(makeLocks(options("one")));
    return { locks, isFree: () => makeLocks(options("two")).holder(file) === null };
  };

  test("are held until the last of them lets go, once each", () => {
    const { locks, isFree } = shared();
    const [a, b] = [held(locks.acquire(file)), held(locks.acquire(file))];
    expect(locks.holder(file)).toBeNull();
    a.release();
    a.release();
    expect(isFree()).toBe(false);
    b.release();
    expect(isFree()).toBe(true);
    const c = held(locks.acquire(file));
    b.release();
    expect(isFree()).toBe(false);
    c.release();
    expect(isFree()).toBe(true);
  });

  test("are free again when letting go fails", () => {
    let taken = 0;
    const failing: Locks = {
      acquire: () => ({
        release() {
          taken++;
          throw new Error("not now");
        },
      }),
      holder: () => null,
    };
    const locks = shareLocks(failing);
    const [a, b] = [locks.acquire(file) as Lock, locks.acquire(file) as Lock];
    a.release();
    expect(() => b.release()).toThrow("not now");
    const c = locks.acquire(file) as Lock;
    expect(() => c.release()).toThrow("not now");
    expect(taken).toBe(2);
  });
});

describe("the socket of a lock", needs(LINUX), () => {
  const socketsOf = (): string[] =>
    readFileSync("/proc/net/unix", "latin1")
      .split("\n")
      .filter((line) => line.includes(`${file.device}:${file.inode}`))
      .map((line) => line.slice(line.indexOf("@")));

  test("has a name that is as long as can be, for versions of Node fill shorter ones up or not, and no user in it", () => {
    held(makeLocks(options("one")).acquire(file));
    expect(socketsOf()).toEqual([`@pi-session-server/${file.device}:${file.inode}/`.padEnd(108, "/")]);
  });

  test("closes what strangers connect to it", async () => {
    held(makeLocks(options("one")).acquire(file));
    const stranger = connect(`\0pi-session-server/${file.device}:${file.inode}/`.padEnd(108, "/"));
    stranger.resume();
    await once(stranger, "close");
  });

  test("is not taken by who only looks", () => {
    let taken: Lock | undefined;
    const looking: Disk = {
      ...realDisk,
      openRead(path) {
        taken ??= held(makeLocks(options("taker")).acquire(file));
        return realDisk.openRead(path);
      },
    };
    expect(makeLocks(options("looker", looking)).holder(file)).toMatchObject({ client: "taker" });
    expect(taken).toBeDefined();
  });

  test("is got at every try while another process looks all the time", SYSTEM, async () => {
    const path = join(folder, "session");
    writeFileSync(path, "");
    const look = `process.stdout.write("looking");
      process.stdin.on("end", () => process.exit()).resume();
      const look = () => { for (let n = 0; n < 50; n++) locks.holder(file); setImmediate(look); };
      look();`;
    const child = runWithLocks(path, look);
    await once(child.stdout as NodeJS.ReadableStream, "data");
    const locks = makeLocks(options("taker"));
    for (let n = 0; n < 500; n++) held(locks.acquire(realDisk.info(path))).release();
    child.stdin?.end();
    await once(child, "exit");
  });

  test("that is held while no more files can be opened is a failure and nobody's lock", () => {
    held(makeLocks(options("one")).acquire(file));
    const locks = makeLocks(options("two", { ...realDisk, openRead: refusing("EMFILE") }));
    for (const look of [locks.acquire, locks.holder])
      expect(() => look(file)).toThrow(expect.objectContaining({ name: "storage_failed", retryable: true }));
  });

  test("is found without the kernel's list, too", () => {
    const blind: Disk = {
      ...realDisk,
      openRead(path) {
        if (path === "/proc/net/unix") throw diskError("ENOENT");
        return realDisk.openRead(path);
      },
    };
    const locks = makeLocks(options("two", blind));
    expect(locks.holder(file)).toBeNull();
    const lock = held(makeLocks(options("one")).acquire(file));
    expect(locks.holder(file)).toMatchObject({ client: "one" });
    expect(locks.acquire(file)).toMatchObject({ client: "one" });
    lock.release();
    held(locks.acquire(file));
  });
});

describe("the note of a holder", needs(LINUX), () => {
  const noteIn = (stateFolder: string): string => join(stateFolder, "locks", `${file.device}-${file.inode}.json`);

  test("is not believed when its process is gone or is another one", () => {
    held(makeLocks(options("one")).acquire(file));
    const note = JSON.parse(textAt(noteIn(folder)));
    const other = makeLocks(options("two", realDisk, folder));
    const dead = { ...note, client: "dead", pid: DEAD };
    const reused = { ...note, client: "reused", started: "another boot 1" };
    for (const wrong of [dead, reused]) {
      writeFileSync(noteIn(folder), JSON.stringify(wrong));
      expect(other.acquire(file)).toMatchObject({ client: "one" });
      expect(other.holder(file)).toMatchObject({ client: "one" });
    }
  });

  test("of the present holder counts, wherever it could be written", () => {
    const lock = held(makeLocks(options("gone")).acquire(file));
    const stale = { ...JSON.parse(textAt(noteIn(folder))), pid: DEAD };
    lock.release();
    writeFileSync(noteIn(folder), JSON.stringify(stale));
    const readOnly: Disk = {
      ...realDisk,
      create(path) {
        if (path.startsWith(folder)) throw diskError("EROFS");
        return realDisk.create(path);
      },
    };
    held(makeLocks(options("elsewhere", readOnly)).acquire(file));
    expect(makeLocks(options("two")).acquire(file)).toMatchObject({ client: "elsewhere" });
  });
});

test("a note of a size that no holder writes is not read", needs(LINUX), () => {
  const note = join(folder, ".pi-session-1.holder");
  writeFileSync(note, "{");
  truncateSync(note, 50_000_000);
  let most = 0;
  const disk: Disk = {
    ...realDisk,
    read(fd, into, offset, length, position) {
      most = Math.max(most, length);
      return realDisk.read(fd, into, offset, length, position);
    },
  };
  const locks = makeLocks(options("one", disk));
  const lock = held(locks.acquire(file, { path: join(folder, ".pi-session-1.lock") }));
  expect(lock.previousHolderDied).toBe(true);
  lock.release();
  expect(most).toBeLessThan(1_000_000);
  expect(existsSync(note)).toBe(false);
});

describe("a process", SYSTEM, () => {
  const platforms = ["linux", "darwin"].filter((platform) =>
    platform === "linux" ? existsSync("/proc/self/stat") : existsSync("/bin/ps"),
  );

  test.each(platforms)("is known by its start, as %s tells it", (platform) => {
    const started = getProcessStart(realDisk, process.pid, platform) as string;
    expect(started).not.toBe("");
    expect(getProcessStart(realDisk, process.pid, platform)).toBe(started);
    expect(isSameProcess(realDisk, process.pid, started, platform)).toBe(true);
    expect(isSameProcess(realDisk, process.pid, "", platform)).toBe(true);
    expect(isSameProcess(realDisk, process.pid, "ps 1000000000", platform)).toBe(false);
    expect(isSameProcess(realDisk, deadPid(), started, platform)).toBe(false);
    for (const none of [0, -1, 1.5, "1", null, undefined])
      expect(isSameProcess(realDisk, none, started, platform)).toBe(false);
  });

  test.each(platforms)("that has ended and was not collected is gone, as %s tells it", async (platform) => {
    // The shell's child ends at once, and what the shell becomes never asks for it.
    const parent = spawn("/bin/sh", ["-c", "true & echo $!; exec sleep 60"], { stdio: ["ignore", "pipe", "ignore"] });
    const pid = Number(String((await once(parent.stdout, "data"))[0]));
    try {
      while (isSameProcess(realDisk, pid, "", platform)) await new Promise((resolve) => setImmediate(resolve));
    } finally {
      parent.kill("SIGKILL");
    }
  });
});

describe("the lock of a holder that died", SYSTEM, () => {
  function holding(script: string): Promise<ChildProcess> {
    const child = spawn(process.execPath, ["-e", script], { stdio: ["ignore", "pipe", "inherit"] });
    return new Promise((resolve) => child.stdout.once("data", () => resolve(child)));
  }

  test("is free at once on Linux", needs(LINUX), async () => {
    const name = `\\0pi-session-server/${file.device}:${file.inode}/`;
    const child = await holding(
      `require("node:net").createServer().listen("${name}".padEnd(108, "/"), () => console.log("held"))`,
    );
    const locks = makeLocks(options("one"));
    expect(isLock(locks.acquire(file))).toBe(false);
    const gone = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await gone;
    held(locks.acquire(file));
  });

  test("in a file is taken over, for its process is gone or is another one", () => {
    const locks = makeFileLocks(options("one"));
    const lock = held(locks.acquire(file));
    const path = join(folder, "locks", readdirSync(join(folder, "locks"))[0]);
    const mine = JSON.parse(textAt(path)) as { started: string };
    lock.release();
    for (const stale of [{ pid: DEAD }, ...(mine.started === "" ? [] : [{ started: "another boot 1" }])]) {
      writeFileSync(path, JSON.stringify({ ...mine, ...stale }));
      expect(locks.holder(file)).toBeNull();
      held(locks.acquire(file)).release();
    }
  });

  test("in a file of another host, or one that nobody can read, is held", () => {
    const locks = makeFileLocks(options("one"));
    held(locks.acquire(file)).release();
    const path = join(folder, "locks", `${file.device}-${file.inode}.lock`);
    const other = { client: "far", pid: 1, since: "then", host: "another-host", started: "" };
    for (const content of [JSON.stringify(other), "", "{", "null", "5", "[]"]) {
      writeFileSync(path, content);
      expect(isLock(locks.acquire(file)), content).toBe(false);
    }
    expect(textAt(path)).toBe("[]");
  });
});
