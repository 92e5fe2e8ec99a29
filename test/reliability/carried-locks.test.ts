/** The lock that the session carries: it excludes processes that share nothing but the session's folder. */

import { once } from "node:events";
import { existsSync, linkSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { pointerFile, segmentFile } from "../../src/storage/fs/container-paths.ts";
import { type Disk, type FileInfo, realDisk } from "../../src/storage/fs/disk.ts";
import { findSqlite, type OpenDatabase } from "../../src/storage/fs/sqlite.ts";
import { Flock } from "../../src/storage/locks/flock.ts";
import { lockNextTo } from "../../src/storage/locks/lock-paths.ts";
import { isLock, type LockOptions, makeLocks } from "../../src/storage/locks/locks.ts";
import { SqliteLock } from "../../src/storage/locks/sqlite-lock.ts";
import { user } from "../support/drafts.ts";
import {
  type Elsewhere,
  isLockedInKernel,
  lockFiles,
  NETWORK_NAMESPACES,
  PID_NAMESPACES,
  spawnElsewhere,
} from "../support/elsewhere.ts";
import { LINUX, need, needs, SQLITE } from "../support/needs.ts";
import { forSeedsAsync } from "../support/random.ts";
import {
  type HereServer,
  type Json,
  type Place,
  type SpawnedServer,
  serveHere,
  temporaryFolder,
  temporaryPlace,
} from "../support/server.ts";
import { runWithLocks, takings } from "../support/takings.ts";
import { acrossTiers, SWEEP, SYSTEM } from "../support/tiers.ts";

/** Another version of Node, to be mixed with this one. */
const OTHER_NODE = process.env.PI_TEST_OTHER_NODE;
const ANOTHER_NODE = need(
  "another version of Node",
  "set PI_TEST_OTHER_NODE to the path of its program",
  () => OTHER_NODE !== undefined,
);

const HOUR = 3_600_000;
const ENTRIES = { entries: [user("mine")] };

function folderOf(place: Place): string {
  const folder = join(place.home, "sessions");
  mkdirSync(folder, { recursive: true });
  return folder;
}

/** A session that a server in this process writes to. */
async function written(
  store: string,
  more: readonly string[] = [],
): Promise<{ server: ReturnType<typeof serveHere>; file: string; place: Place }> {
  const place = temporaryPlace();
  const args = ["--store", store, "--session-dir", folderOf(place), "--events", "none", ...more];
  const server = serveHere(args, { place });
  await server.result("append", ENTRIES);
  return { server, file: (await server.result("get_state")).sessionFile, place };
}

/** Another user's folders, as another container has them, and the session at the same path. */
function stranger(options: Elsewhere = {}): Elsewhere {
  return { apart: "network", place: temporaryPlace(), ...options };
}

/** Opens the session there, and joins nobody: what keeps it out is the lock. */
function openElsewhere(file: string, options: Elsewhere): SpawnedServer {
  return spawnElsewhere(["--session", file, "--attach", "off"], options);
}

async function refusal(file: string, options: Elsewhere): Promise<Json> {
  const server = openElsewhere(file, options);
  const { lockedBy } = await server.result("get_state");
  const { data, message } = await server.failure("append", ENTRIES);
  server.process.kill("SIGKILL");
  await server.exit;
  return { name: data.name, holder: data.holder, lockedBy, message };
}

const refused = { name: "session_locked", holder: { client: expect.stringContaining("pi-session-server") } };

test.each(["jsonl", "v2"])(
  "a %s session is written without starting a process where there is SQLite",
  async (store) => {
    const start = vi.spyOn(process.getBuiltinModule("node:child_process"), "spawnSync");
    const { server } = await written(store);
    expect((await server.result("get_state")).lock).toBe("sqlite");
    expect(start).not.toHaveBeenCalled();
  },
);

const IN_NAMESPACES = { ...SYSTEM, ...needs(NETWORK_NAMESPACES, SQLITE) };

describe("between namespaces,", IN_NAMESPACES, () => {
  acrossTiers(describe, ["jsonl", "v2"])("the lock that a %s session carries", (store) => {
    test("keeps out a server in another network namespace, tells it who is there, and is gone afterwards", async () => {
      const { server, file } = await written(store);
      expect((await server.result("get_state")).lock).toBe("sqlite");
      expect(lockFiles(file)).toHaveLength(2);
      const { holder, lockedBy, message, ...rest } = await refusal(file, stranger());
      expect({ ...rest, holder }).toMatchObject(refused);
      expect(holder).toMatchObject({ pid: process.pid, since: expect.stringMatching(/^\d{4}-/) });
      expect(lockedBy).toEqual(holder);
      expect(message).toContain(`process ${process.pid}`);
      expect((await server.result("append", ENTRIES)).leafId).toBeTruthy();
      await server.finish();
      expect(lockFiles(file)).toEqual([]);
      const second = openElsewhere(file, stranger());
      expect((await second.result("append", ENTRIES)).leafId).toBeTruthy();
      await second.finish();
      expect(lockFiles(file)).toEqual([]);
    });

    test("keeps out one in another pid namespace, too", needs(PID_NAMESPACES), async () => {
      const { server, file } = await written(store);
      const other = stranger({ apart: "network and pids" });
      const { holder, lockedBy, ...rest } = await refusal(file, other);
      expect({ ...rest, holder }).toMatchObject(refused);
      expect(lockedBy).toEqual(holder);
      await server.finish();
      const inner = openElsewhere(file, other);
      await inner.result("append", ENTRIES);
      // From outside as well.
      expect(await refusal(file, stranger())).toMatchObject(refused);
      inner.process.kill("SIGKILL");
      await inner.exit;
    });

    test("is free when its holder was killed, and nothing of it stays behind whoever has it next", async () => {
      const { server, file } = await written(store);
      await server.finish();
      const holder = openElsewhere(file, stranger());
      await holder.result("append", ENTRIES);
      holder.process.kill("SIGKILL");
      await holder.exit;
      expect(lockFiles(file)).toHaveLength(2);
      const next = openElsewhere(file, stranger());
      // What a dead one left is no holder.
      expect(await next.result("get_state")).toMatchObject({ readOnly: false });
      expect((await next.result("append", ENTRIES)).leafId).toBeTruthy();
      await next.finish();
      expect(lockFiles(file)).toEqual([]);
    });

    test("excludes when the session is renamed or has another name meanwhile", async () => {
      const { server, file } = await written(store);
      const moved =
        store === "v2" ? join(dirname(file), "elsewhere", basename(file)) : join(dirname(file), "other.jsonl");
      if (store === "v2") {
        mkdirSync(dirname(moved));
        renameSync(pointerFile(file), pointerFile(moved));
      } else {
        const linked = join(dirname(file), "linked.jsonl");
        linkSync(file, linked);
        expect(await refusal(linked, stranger())).toMatchObject(refused);
      }
      renameSync(file, moved);
      expect(await refusal(moved, stranger())).toMatchObject(refused);
      await server.finish();
      expect(lockFiles(moved)).toEqual([]);
    });

    test("stays that of the session when a repair puts a new one in its place", async () => {
      const { server, file, place } = await written(store);
      await server.result("append", { entries: [user("spoiled", { id: "spoiled" }), user("last", { id: "last" })] });
      await server.finish();
      const stored = store === "v2" ? segmentFile(file, 1) : file;
      writeFileSync(stored, readFileSync(stored, "utf8").replace('"spoiled"}', '"spoiled" '));
      const second = serveHere(["--session", file, "--events", "none"], { place });
      await second.result("get_messages");
      const { backupPath } = await second.result("repair_session");
      expect(existsSync(backupPath)).toBe(true);
      await second.result("append", ENTRIES);
      expect((await second.result("get_state")).lock).toBe("sqlite");
      expect(await refusal(file, stranger())).toMatchObject(refused);
      if (store === "v2") expect(lockFiles(backupPath)).toEqual([]);
      await second.finish();
      expect(lockFiles(file)).toEqual([]);
    });

    describe("whose file somebody removed", () => {
      /** A session that is written, and where nothing happens by itself any more. */
      async function withoutFile(): Promise<Awaited<ReturnType<typeof written>>> {
        vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
        onTestFinished(() => void vi.useRealTimers());
        const made = await written(store, ["--attach", "off"]);
        for (const path of lockFiles(made.file)) rmSync(path);
        return made;
      }

      test.each([
        ["writes", (server: HereServer) => server.result("append", ENTRIES)],
        ["looks at its sessions", () => vi.advanceTimersByTime(1000)],
      ])("keeps others out again as soon as its holder %s", async (_, look) => {
        const { server, file } = await withoutFile();
        await look(server);
        expect(lockFiles(file)).toHaveLength(2);
        expect(await refusal(file, stranger())).toMatchObject(refused);
        await server.finish();
        expect(lockFiles(file)).toEqual([]);
      });

      test("is that of another who took it meanwhile, beside whom nobody writes", async () => {
        const { server, file } = await withoutFile();
        const other = openElsewhere(file, stranger());
        await other.result("append", { entries: [user("theirs")] });
        const { data } = await server.failure("append", ENTRIES);
        expect(data).toMatchObject({ name: "session_locked", holder: { pid: other.process.pid } });
        expect((await server.result("get_state")).lockedBy).toEqual(data.holder);
        await server.finish();
        expect(lockFiles(file)).toHaveLength(2);
        expect(await refusal(file, stranger())).toMatchObject(refused);
        expect((await other.result("get_entries")).entries).toHaveLength(2);
        await other.finish();
        expect(lockFiles(file)).toEqual([]);
      });
    });

    test("is not made by who only reads, also while another one has it", async () => {
      const { server, file } = await written(store);
      const held = lockFiles(file);
      const reader = openElsewhere(file, stranger());
      expect((await reader.result("get_entries")).entries).toHaveLength(1);
      expect(lockFiles(file)).toEqual(held);
      await server.finish();
      for (const method of ["get_entries", "get_state", "verify_session"]) await reader.result(method);
      expect(lockFiles(file)).toEqual([]);
    });

    test("is one of flock where there is no SQLite, and none where there is neither", async () => {
      const { server, file } = await written(store);
      const poor = stranger({ without: ["sqlite"] });
      // One with SQLite and one without exclude each other.
      expect(await refusal(file, poor)).toMatchObject(refused);
      await server.finish();
      const first = openElsewhere(file, poor);
      await first.result("append", ENTRIES);
      expect((await first.result("get_state")).lock).toBe("flock");
      expect(await refusal(file, stranger({ without: ["sqlite"] }))).toMatchObject(refused);
      expect(await refusal(file, stranger())).toMatchObject(refused);
      await first.finish();
      expect(lockFiles(file)).toEqual([]);
      const bare = openElsewhere(file, stranger({ without: ["sqlite", "flock"] }));
      await bare.result("append", ENTRIES);
      expect((await bare.result("get_state")).lock).toBe("socket");
      expect(lockFiles(file).filter((path) => path.endsWith(".lock"))).toEqual([]);
      await bare.finish();
      expect(lockFiles(file)).toEqual([]);
    });

    test("excludes between versions of Node", needs(ANOTHER_NODE), async () => {
      const { server, file } = await written(store);
      expect(await refusal(file, stranger({ node: OTHER_NODE }))).toMatchObject(refused);
      await server.finish();
      const other = openElsewhere(file, stranger({ node: OTHER_NODE }));
      await other.result("append", ENTRIES);
      expect((await other.result("get_state")).lock).toBe("sqlite");
      expect(await refusal(file, stranger())).toMatchObject(refused);
    });
  });
});

describe.each(["jsonl", "v2"])("the lock file of a %s session", needs(LINUX, SQLITE), (store) => {
  test("is opened by nothing but the lock, whatever is done to the session while it is held", async () => {
    const place = temporaryPlace();
    const opened: string[] = [];
    const watching = (path: string): string => {
      if (path.endsWith(".lock")) opened.push(path);
      return path;
    };
    /** A disk on which the state folder is another file system. */
    const apartFrom = (from: string, to: string): void => {
      if (from.startsWith(place.state) !== to.startsWith(place.state))
        throw Object.assign(new Error("another file system"), { code: "EXDEV" });
    };
    const disk: Disk = {
      ...realDisk,
      openRead: (path) => realDisk.openRead(watching(path)),
      openAppend: (path) => realDisk.openAppend(watching(path)),
      link(from, to) {
        apartFrom(from, to);
        realDisk.link(watching(from), to);
      },
      rename(from, to) {
        apartFrom(from, to);
        realDisk.rename(from, to);
      },
    };
    const args = ["--store", store, "--session-dir", folderOf(place), "--events", "none"];
    const server = serveHere(args, { place, disk });
    await server.result("append", { entries: [user("one", { id: "one" }), user("two", { id: "two" })] });
    const { sessionFile, sessionId } = await server.result("get_state");
    const lock = lockFiles(sessionFile).find((path) => path.endsWith(".lock")) as string;
    expect(isLockedInKernel(lock)).toBe(true);
    const out = (name: string): string => join(place.home, name);
    const calls: [string, Json][] = [
      ["export_session", { outputPath: out("a.html"), format: "html" }],
      ["verify_session", {}],
      ["get_messages", {}],
      ["list_sessions", {}],
      ["search_sessions", { query: "one" }],
      ["set_label", { entryId: "one", label: "x" }],
      ["append", ENTRIES],
    ];
    for (const [method, params] of calls) {
      await server.result(method, params);
      expect(isLockedInKernel(lock), method).toBe(true);
    }
    // Another session becomes the current one: from here on the first is closed, or moved while it is held.
    await server.result("clone");
    await server.result("close_session", { sessionId }).catch(() => {});
    const moved = await server.result("archive_session", { sessionId });
    expect(existsSync(moved.movedTo)).toBe(true);
    expect(lockFiles(moved.movedTo)).toEqual([]);
    const back = await server.result("unarchive_session", { sessionId });
    expect(lockFiles(back.movedTo)).toEqual([]);
    await server.result("delete_session", { sessionId });
    await server.result("restore_session", { sessionId });
    if (store === "jsonl") {
      const { sessionPath } = await server.result("migrate_session", { sessionPath: sessionFile });
      await server.result("rollback_migration", { sessionPath });
    }
    await server.finish();
    expect(opened).toEqual([]);
    expect(readdirSync(folderOf(place)).filter((name) => /\.(?:lock|holder)$/.test(name))).toEqual([]);
  });
});

const IN_MANY = { ...SWEEP, ...needs(PID_NAMESPACES, SQLITE) };

describe("of many processes in different namespaces", IN_MANY, () => {
  test("one at a time has the lock, also when they are killed (long form in soak)", async () => {
    await forSeedsAsync(1, async (random) => {
      // When a process is killed is up to the machine, so a round may have none.
      let killed = 0;
      for (let round = 0; round < 5 && killed === 0; round++) {
        const { taken, kills } = await takings(random, 25, [process.execPath]);
        expect(taken).toBeGreaterThanOrEqual(25);
        killed = kills;
      }
      expect(killed).toBeGreaterThan(0);
    });
  });

  test("whoever takes the lock gets it at every try while others look all the time", async () => {
    const folder = temporaryFolder();
    const path = join(folder, "session.jsonl");
    writeFileSync(path, "");
    const file = realDisk.info(path);
    const place = lockNextTo(realDisk, path, file.inode);
    const lookers = (["network", "network and pids"] as const).map((kind) =>
      runWithLocks(
        path,
        `process.stdout.write("looking");
        process.stdin.on("end", () => process.exit()).resume();
        const look = () => { for (let n = 0; n < 50; n++) locks.holder(file, place); setImmediate(look); };
        look();`,
        kind,
      ),
    );
    for (const { stdout } of lookers) await once(stdout as NodeJS.ReadableStream, "data");
    const locks = makeLocks({ disk: realDisk, stateFolder: folder, client: "taker", now: () => "" });
    const outcomes: boolean[] = [];
    for (let n = 0; n < 100; n++) {
      // What a dead holder left is looked at more closely.
      if (n % 2 === 0) writeFileSync(place.path, "");
      const lock = locks.acquire(file, place);
      outcomes.push(isLock(lock) && lock.kind === "sqlite");
      if (isLock(lock)) lock.release();
    }
    for (const looker of lookers) {
      looker.stdin?.end();
      await once(looker, "close");
    }
    expect(outcomes).not.toContain(false);
  });
});

describe("a lock of flock", needs(LINUX), () => {
  test("is that of an open file, whichever process has it", () => {
    const path = join(temporaryFolder(), "lock");
    writeFileSync(path, "");
    const flock = new Flock(realDisk);
    const [one, two] = [realDisk.openAppend(path), realDisk.openAppend(path)];
    const info = { ...realDisk.infoOf(one), changed: 0 };
    expect(flock.lock(path, one, info, false)).toBeTypeOf("function");
    expect(flock.lock(path, two, info, false)).toBe("held");
    realDisk.close(one);
    expect(flock.lock(path, two, info, false)).toBeTypeOf("function");
    realDisk.close(two);
  });

  test("waits for who has just made the file, by the clock that stamps it", () => {
    const path = join(temporaryFolder(), "lock");
    writeFileSync(path, "");
    const fd = realDisk.openAppend(path);
    const flock = new Flock({ ...realDisk, clock: () => Date.now() + HOUR });
    const info = realDisk.infoOf(fd);
    expect(flock.lock(path, fd, { ...info, changed: Date.now() + HOUR }, false)).toBe("held");
    expect(flock.lock(path, fd, info, false)).toBeTypeOf("function");
    realDisk.close(fd);
  });
});

describe("a lock file that a dead holder left", needs(LINUX, SQLITE), () => {
  /** Takes the lock with SQLite as whoever makes the file does, and leaves the file. */
  function left(): { path: string; open: () => [number, FileInfo] } {
    const path = join(temporaryFolder(), "lock");
    const fd = realDisk.create(path);
    const lock = sqlite().lock(path, fd, realDisk.infoOf(fd), true);
    expect(lock).toBeTypeOf("function");
    (lock as () => void)();
    const open = (): [number, FileInfo] => {
      const opened = realDisk.openAppend(path);
      // Nobody waits for whoever has just made the file.
      return [opened, { ...realDisk.infoOf(opened), changed: 0 }];
    };
    return { path, open };
  }

  const sqlite = (disk: Disk = realDisk): SqliteLock => new SqliteLock(findSqlite() as OpenDatabase, disk);

  test("is taken with SQLite without a look at the kernel's list, which waits for all processors", () => {
    const { path, open } = left();
    const read: string[] = [];
    const openRead: Disk["openRead"] = (at, plain) => {
      read.push(at);
      return realDisk.openRead(at, plain);
    };
    const lock = sqlite({ ...realDisk, openRead }).lock(path, ...open(), false);
    expect(lock).toBeTypeOf("function");
    expect(read).toEqual([]);
    (lock as () => void)();
  });

  test("is not taken with SQLite while another has it by flock, nor the other way round", () => {
    const { path, open } = left();
    const flock = new Flock(realDisk);
    const [first, info] = open();
    expect(flock.lock(path, first, info, false)).toBeTypeOf("function");
    expect(sqlite().lock(path, ...open(), false)).toBe("held");
    realDisk.close(first);
    const lock = sqlite().lock(path, ...open(), false);
    expect(lock).toBeTypeOf("function");
    const [second] = open();
    expect(flock.lock(path, second, info, false)).toBe("held");
    realDisk.close(second);
    (lock as () => void)();
    // It stays so for whoever comes after a holder of either kind.
    const [third] = open();
    expect(flock.lock(path, third, info, false)).toBeTypeOf("function");
    expect(sqlite().lock(path, ...open(), false)).toBe("held");
    realDisk.close(third);
  });

  test("is not locked by flock where that cannot be noted on it", () => {
    const { path, open } = left();
    const flock = new Flock({ ...realDisk, truncate() {} });
    expect(flock.lock(path, ...open(), false)).toBeNull();
  });
});

describe("who takes a lock that a file carries", needs(LINUX, SQLITE), () => {
  const options = (client: string, disk: Disk = realDisk): LockOptions => ({
    disk,
    stateFolder: temporaryFolder(),
    client,
    now: () => "2026-01-24T16:22:26.831Z",
  });

  function session(): { folder: string; file: { device: number; inode: number }; place: { path: string } } {
    const folder = temporaryFolder();
    writeFileSync(join(folder, "session.jsonl"), "");
    const file = realDisk.info(join(folder, "session.jsonl"));
    return { folder, file, place: { path: join(folder, `.pi-session-${file.inode}.lock`) } };
  }

  test("learns whether the one before died with it", () => {
    const { file, place, folder } = session();
    const locks = makeLocks(options("one"));
    const first = locks.acquire(file, place);
    if (!isLock(first)) throw new Error("nobody has it");
    expect(first).toMatchObject({ kind: "sqlite", previousHolderDied: false });
    const note = readdirSync(folder).find((name) => name.endsWith(".holder")) as string;
    const left = realDisk.openRead(join(folder, note));
    const bytes = Buffer.alloc(1000);
    const text = bytes.subarray(0, realDisk.read(left, bytes, 0, 1000, 0));
    realDisk.close(left);
    first.release();
    expect(readdirSync(folder)).toEqual(["session.jsonl"]);
    for (const content of [text, Buffer.alloc(0)]) {
      writeFileSync(join(folder, note), content);
      writeFileSync(place.path, "");
      const next = locks.acquire(file, place);
      if (!isLock(next)) throw new Error("nobody has it");
      expect(next.previousHolderDied).toBe(true);
      next.release();
      expect(readdirSync(folder)).toEqual(["session.jsonl"]);
    }
    // A note about another file came with a copy of a container.
    writeFileSync(join(folder, note), JSON.stringify({ ...JSON.parse(String(text)), inode: file.inode + 1 }));
    const other = locks.acquire(file, place);
    expect(isLock(other) && other.previousHolderDied).toBe(false);
    if (isLock(other)) other.release();
  });

  test("has what can be had where the file cannot be made, or is none of ours", () => {
    const { file, place, folder } = session();
    const refusing: Disk = {
      ...realDisk,
      create(path) {
        if (path.startsWith(folder)) throw Object.assign(new Error("read-only"), { code: "EROFS" });
        return realDisk.create(path);
      },
    };
    const taken = makeLocks(options("one", refusing)).acquire(file, place);
    expect(taken).toMatchObject({ kind: "socket" });
    if (isLock(taken)) taken.release();
    writeFileSync(place.path, "somebody's");
    const locks = makeLocks(options("one"));
    const again = locks.acquire(file, place);
    expect(again).toMatchObject({ kind: "socket" });
    if (isLock(again)) again.release();
    expect(readdirSync(folder)).toContain(basename(place.path));
  });

  test("waits for another user who has just made the file, by the clock that stamps it", () => {
    const { file, place } = session();
    writeFileSync(place.path, "");
    const strange: Disk = {
      ...realDisk,
      openAppend(path) {
        if (path === place.path) throw Object.assign(new Error("another user's"), { code: "EACCES" });
        return realDisk.openAppend(path);
      },
    };
    const outcome = (later: number) =>
      makeLocks(options("one", { ...strange, clock: () => Date.now() + later })).acquire(file, place);
    expect(isLock(outcome(0))).toBe(false);
    const taken = outcome(HOUR);
    expect(taken).toMatchObject({ kind: "socket" });
    if (isLock(taken)) taken.release();
  });

  test("gets the lock of the file that has the name, whoever removed or made which before", () => {
    for (const [what, at] of [
      ["create", "before"],
      ["create", "after"],
      ["openAppend", "before"],
      ["infoOf", "before"],
    ] as const) {
      const { file, place, folder } = session();
      if (what === "openAppend") writeFileSync(place.path, "");
      let done = false;
      const swap = (): void => {
        if (done) return;
        done = true;
        // Somebody took it and let go: what had the name is gone, or another file has it.
        if (existsSync(place.path)) realDisk.remove(place.path);
        if (what !== "openAppend") writeFileSync(place.path, "");
      };
      const disk: Disk = {
        ...realDisk,
        [what]: (...args: unknown[]) => {
          if (at === "before") swap();
          const result = (realDisk[what] as (...all: unknown[]) => unknown)(...args);
          if (at === "after") swap();
          return result;
        },
      };
      const locks = makeLocks(options("one", disk));
      const lock = locks.acquire(file, place);
      if (!isLock(lock)) throw new Error(`${what}: nobody has it`);
      expect(lock.kind, what).toBe("sqlite");
      expect(isLockedInKernel(place.path), what).toBe(true);
      lock.release();
      expect(readdirSync(folder), what).toEqual(["session.jsonl"]);
    }
  });
});
