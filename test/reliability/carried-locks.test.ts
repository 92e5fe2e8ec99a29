/** The lock that the session carries: it excludes processes that share nothing but the session's folder. */

import { once } from "node:events";
import { existsSync, linkSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { getPointerFile, segmentFile } from "../../src/storage/fs/container-paths.ts";
import { type Disk, type FileInfo, realDisk } from "../../src/storage/fs/disk.ts";
import { findSqlite, type OpenDatabase } from "../../src/storage/fs/sqlite.ts";
import { Flock } from "../../src/storage/locks/flock.ts";
import { locateLock } from "../../src/storage/locks/lock-paths.ts";
import { isLock, type Lock, makeLocks } from "../../src/storage/locks/locks.ts";
import { SqliteLock } from "../../src/storage/locks/sqlite-lock.ts";
import { wrapped } from "../support/disturbed.ts";
import { user } from "../support/drafts.ts";
import { runWithLocks, takings } from "../support/lock-contention.ts";
import {
  type Elsewhere,
  isLockedInKernel,
  lockFiles,
  NETWORK_NAMESPACES,
  PID_NAMESPACES,
  spawnElsewhere,
} from "../support/namespaces.ts";
import { LINUX, need, needs, SQLITE } from "../support/needs.ts";
import { forSeedsAsync } from "../support/random.ts";
import {
  type HereServer,
  type Json,
  type SpawnedServer,
  serveHere,
  temporaryFolder,
  temporaryPlace,
} from "../support/server.ts";
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

/** A session that a server in this process writes to. */
async function written(store: string, more: readonly string[] = [], disk: Disk = realDisk, place = temporaryPlace()) {
  const folder = join(place.home, "sessions");
  mkdirSync(folder);
  const args = ["--store", store, "--session-dir", folder, "--events", "none", ...more];
  const server = serveHere(args, { place, disk });
  await server.result("append", ENTRIES);
  const { sessionFile: file, sessionId } = await server.result("get_state");
  return { server, file: file as string, sessionId: sessionId as string, place, folder };
}

/**
 * Opens the session at the same path with another user's folders, as another container has them, and without joining:
 * only the lock keeps it out.
 */
function openElsewhere(file: string, options: Elsewhere = {}): SpawnedServer {
  const stranger: Elsewhere = { apart: "network", place: temporaryPlace(), ...options };
  return spawnElsewhere(["--session", file, "--attach", "off"], stranger);
}

/** Another one writes to the session, which holds it from then on. */
async function heldElsewhere(file: string, options: Elsewhere = {}): Promise<SpawnedServer> {
  const server = openElsewhere(file, options);
  expect((await server.result("append", ENTRIES)).leafId).toBeTruthy();
  return server;
}

async function kill(server: SpawnedServer): Promise<void> {
  server.process.kill("SIGKILL");
  await server.exit;
}

/** Expects that another one may not write. Returns its failure. */
async function requireRefused(file: string, options: Elsewhere = {}): Promise<Json> {
  const server = openElsewhere(file, options);
  const { lockedBy } = await server.result("get_state");
  const { data, message } = await server.failure("append", ENTRIES);
  await kill(server);
  expect(data).toMatchObject({
    name: "session_locked",
    holder: { client: expect.stringContaining("pi-session-server") },
  });
  return { holder: data.holder, lockedBy, message };
}

/** Ends in order, and leaves no lock. */
async function leave(server: HereServer | SpawnedServer, file: string): Promise<void> {
  await server.finish();
  expect(lockFiles(file)).toEqual([]);
}

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
      expect(lockFiles(file)).toHaveLength(2);
      const { holder, lockedBy, message } = await requireRefused(file);
      expect(holder).toMatchObject({ pid: process.pid, since: expect.stringMatching(/^\d{4}-/) });
      expect(lockedBy).toEqual(holder);
      expect(message).toContain(`process ${process.pid}`);
      expect((await server.result("append", ENTRIES)).leafId).toBeTruthy();
      await leave(server, file);
      await leave(await heldElsewhere(file), file);
    });

    test("keeps out one in another pid namespace, too", needs(PID_NAMESPACES), async () => {
      const { server, file } = await written(store);
      const other = { apart: "network and pids", place: temporaryPlace() } as const;
      const { holder, lockedBy } = await requireRefused(file, other);
      expect(lockedBy).toEqual(holder);
      await server.finish();
      const inner = await heldElsewhere(file, other);
      // From outside as well.
      await requireRefused(file);
      await kill(inner);
    });

    test("is free when its holder was killed, and nothing of it stays behind whoever has it next", async () => {
      const { server, file } = await written(store);
      await server.finish();
      await kill(await heldElsewhere(file));
      expect(lockFiles(file)).toHaveLength(2);
      const next = openElsewhere(file);
      // The rest of a dead holder does not count.
      expect(await next.result("get_state")).toMatchObject({ readOnly: false });
      expect((await next.result("append", ENTRIES)).leafId).toBeTruthy();
      await leave(next, file);
    });

    test("excludes when the session is renamed or has another name meanwhile", async () => {
      const { server, file } = await written(store);
      const moved = join(dirname(file), store === "v2" ? `elsewhere/${basename(file)}` : "other.jsonl");
      if (store === "v2") {
        mkdirSync(dirname(moved));
        renameSync(getPointerFile(file), getPointerFile(moved));
      } else {
        const linked = join(dirname(file), "linked.jsonl");
        linkSync(file, linked);
        await requireRefused(linked);
      }
      renameSync(file, moved);
      await requireRefused(moved);
      await leave(server, moved);
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
      await requireRefused(file);
      if (store === "v2") expect(lockFiles(backupPath)).toEqual([]);
      await leave(second, file);
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
        await requireRefused(file);
        await leave(server, file);
      });

      test("is that of another who took it meanwhile, beside whom nobody writes", async () => {
        const { server, file } = await withoutFile();
        const other = await heldElsewhere(file);
        const { data } = await server.failure("append", ENTRIES);
        expect(data).toMatchObject({ name: "session_locked", holder: { pid: other.process.pid } });
        expect((await server.result("get_state")).lockedBy).toEqual(data.holder);
        await server.finish();
        expect(lockFiles(file)).toHaveLength(2);
        await requireRefused(file);
        expect((await other.result("get_entries")).entries).toHaveLength(2);
        await leave(other, file);
      });
    });

    test("is not made by who only reads, also while another one has it", async () => {
      const { server, file } = await written(store);
      const held = lockFiles(file);
      const reader = openElsewhere(file);
      expect((await reader.result("get_entries")).entries).toHaveLength(1);
      expect(lockFiles(file)).toEqual(held);
      await server.finish();
      for (const method of ["get_entries", "get_state", "verify_session"]) await reader.result(method);
      expect(lockFiles(file)).toEqual([]);
    });

    test("is one of flock where there is no SQLite, and none where there is neither", async () => {
      const { server, file } = await written(store);
      const poor = { without: ["sqlite"] } as const;
      // One with SQLite and one without exclude each other.
      await requireRefused(file, poor);
      await server.finish();
      const first = await heldElsewhere(file, poor);
      expect((await first.result("get_state")).lock).toBe("flock");
      for (const other of [poor, {}]) await requireRefused(file, other);
      await leave(first, file);
      const bare = await heldElsewhere(file, { without: ["sqlite", "flock"] });
      expect((await bare.result("get_state")).lock).toBe("socket");
      expect(lockFiles(file).filter((path) => path.endsWith(".lock"))).toEqual([]);
      await leave(bare, file);
    });

    test("excludes between versions of Node", needs(ANOTHER_NODE), async () => {
      const { server, file } = await written(store);
      await requireRefused(file, { node: OTHER_NODE });
      await server.finish();
      const other = await heldElsewhere(file, { node: OTHER_NODE });
      expect((await other.result("get_state")).lock).toBe("sqlite");
      await requireRefused(file);
    });
  });
});

describe.each(["jsonl", "v2"])("the lock file of a %s session", needs(LINUX, SQLITE), (store) => {
  test("is opened by nothing but the lock, whatever is done to the session while it is held", async () => {
    const place = temporaryPlace();
    const opened: string[] = [];
    const disk = wrapped(realDisk, (operate, name, [from, to]) => {
      const isState = (path: unknown): boolean => String(path).startsWith(place.state);
      // The state folder is another file system.
      if (["link", "rename"].includes(name) && isState(from) !== isState(to))
        throw Object.assign(new Error("another file system"), { code: "EXDEV" });
      if (["openRead", "openAppend", "link"].includes(name) && /\.lock$/.test(String(from))) opened.push(String(from));
      return operate();
    });
    const { server, file, sessionId, folder } = await written(store, [], disk, place);
    await server.result("append", { entries: [user("one", { id: "one" }), user("two", { id: "two" })] });
    const lock = lockFiles(file).find((path) => path.endsWith(".lock")) as string;
    expect(isLockedInKernel(lock)).toBe(true);
    const calls: [string, Json][] = [
      ["export_session", { outputPath: join(place.home, "a.html"), format: "html" }],
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
    for (const method of ["archive_session", "unarchive_session"]) {
      const { movedTo } = await server.result(method, { sessionId });
      expect(existsSync(movedTo)).toBe(true);
      expect(lockFiles(movedTo)).toEqual([]);
    }
    await server.result("delete_session", { sessionId });
    await server.result("restore_session", { sessionId });
    if (store === "jsonl") {
      const { sessionPath } = await server.result("migrate_session", { sessionPath: file });
      await server.result("rollback_migration", { sessionPath });
    }
    await server.finish();
    expect(opened).toEqual([]);
    expect(readdirSync(folder).filter((name) => /\.(?:lock|holder)$/.test(name))).toEqual([]);
  });
});

/** An empty session, and the locks of a client for it. */
function emptySession(client = "one") {
  const folder = temporaryFolder();
  const path = join(folder, "session.jsonl");
  writeFileSync(path, "");
  const file = realDisk.info(path);
  const place = locateLock(realDisk, path, file.inode);
  const locksOn = (disk: Disk) =>
    makeLocks({ disk, stateFolder: temporaryFolder(), client, now: () => "2026-01-24T16:22:26.831Z" });
  /** Takes the lock, and lets go. Returns what there was. */
  const takeOn = (disk: Disk, whileHeld: (lock: Lock) => void = () => {}): Lock => {
    const lock = locksOn(disk).acquire(file, place);
    if (!isLock(lock)) throw new Error(`held by ${lock.client}`);
    whileHeld(lock);
    lock.release();
    return lock;
  };
  return { folder, path, file, place, locksOn, takeOn };
}

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
    const { path, place, takeOn } = emptySession("taker");
    const look = `process.stdout.write("looking");
      process.stdin.on("end", () => process.exit()).resume();
      const look = () => { for (let n = 0; n < 50; n++) locks.holder(file, place); setImmediate(look); };
      look();`;
    const lookers = (["network", "network and pids"] as const).map((kind) => runWithLocks(path, look, kind));
    for (const { stdout } of lookers) await once(stdout as NodeJS.ReadableStream, "data");
    for (let n = 0; n < 100; n++) {
      // The rest of a dead holder is looked at more closely.
      if (n % 2 === 0) writeFileSync(place.path, "");
      expect(takeOn(realDisk).kind).toBe("sqlite");
    }
    for (const looker of lookers) {
      looker.stdin?.end();
      await once(looker, "close");
    }
  });
});

/** A file, and its opening for a lock; no waiting for a new file's maker. */
function lockFile() {
  const path = join(temporaryFolder(), "lock");
  writeFileSync(path, "");
  const open = (): [number, FileInfo] => {
    const fd = realDisk.openAppend(path);
    return [fd, { ...realDisk.infoOf(fd), changed: 0 }];
  };
  return { path, open };
}

describe("a lock of flock", needs(LINUX), () => {
  test("is that of an open file, whichever process has it", () => {
    const { path, open } = lockFile();
    const flock = new Flock(realDisk);
    const [one, two] = [open(), open()];
    expect(flock.lock(path, ...one, false)).toBeTypeOf("function");
    expect(flock.lock(path, ...two, false)).toBe("held");
    realDisk.close(one[0]);
    expect(flock.lock(path, ...two, false)).toBeTypeOf("function");
    realDisk.close(two[0]);
  });

  test("waits for who has just made the file, by the clock that stamps it", () => {
    const { path, open } = lockFile();
    const [fd] = open();
    const flock = new Flock({ ...realDisk, clock: () => Date.now() + HOUR });
    const info = realDisk.infoOf(fd);
    expect(flock.lock(path, fd, { ...info, changed: Date.now() + HOUR }, false)).toBe("held");
    expect(flock.lock(path, fd, info, false)).toBeTypeOf("function");
    realDisk.close(fd);
  });
});

describe("a lock file that a dead holder left", needs(LINUX, SQLITE), () => {
  const sqlite = (disk: Disk = realDisk): SqliteLock => new SqliteLock(findSqlite() as OpenDatabase, disk);

  /** Takes the lock with SQLite as the file's maker does, and leaves the file. */
  function left(): ReturnType<typeof lockFile> {
    const file = lockFile();
    rmSync(file.path);
    const fd = realDisk.create(file.path);
    (sqlite().lock(file.path, fd, realDisk.infoOf(fd), true) as () => void)();
    return file;
  }

  test("is taken with SQLite without a look at the kernel's list, which waits for all processors", () => {
    const { path, open } = left();
    const openRead = vi.fn(realDisk.openRead);
    (sqlite({ ...realDisk, openRead }).lock(path, ...open(), false) as () => void)();
    expect(openRead).not.toHaveBeenCalled();
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
    // It stays so after a holder of either kind.
    const [third] = open();
    expect(flock.lock(path, third, info, false)).toBeTypeOf("function");
    expect(sqlite().lock(path, ...open(), false)).toBe("held");
    realDisk.close(third);
  });

  test("is not locked by flock where that cannot be noted on it", () => {
    const { path, open } = left();
    expect(new Flock({ ...realDisk, truncate() {} }).lock(path, ...open(), false)).toBeNull();
  });
});

describe("who takes a lock that a file carries", needs(LINUX, SQLITE), () => {
  /** A disk whose operation refuses a path. */
  const refusing = (operation: "create" | "openAppend", start: string, code: string, more: object = {}): Disk =>
    wrapped({ ...realDisk, ...more }, (operate, name, [path]) => {
      if (name === operation && String(path).startsWith(start)) throw Object.assign(new Error("refused"), { code });
      return operate();
    });

  test("learns whether the one before died with it", () => {
    const { file, place, folder, takeOn } = emptySession();
    let [note, text] = ["", ""];
    const first = takeOn(realDisk, () => {
      note = join(folder, readdirSync(folder).find((name) => name.endsWith(".holder")) as string);
      text = readFileSync(note, "utf8");
    });
    expect(first).toMatchObject({ kind: "sqlite", previousHolderDied: false });
    expect(readdirSync(folder)).toEqual(["session.jsonl"]);
    for (const content of [text, ""]) {
      writeFileSync(note, content);
      writeFileSync(place.path, "");
      expect(takeOn(realDisk).previousHolderDied).toBe(true);
      expect(readdirSync(folder)).toEqual(["session.jsonl"]);
    }
    // A note about another file came with a copy of a container.
    writeFileSync(note, JSON.stringify({ ...JSON.parse(text), inode: file.inode + 1 }));
    expect(takeOn(realDisk).previousHolderDied).toBe(false);
  });

  test("has what can be had where the file cannot be made, or is none of ours", () => {
    const { place, folder, takeOn } = emptySession();
    expect(takeOn(refusing("create", folder, "EROFS")).kind).toBe("socket");
    writeFileSync(place.path, "somebody's");
    expect(takeOn(realDisk).kind).toBe("socket");
    expect(readdirSync(folder)).toContain(basename(place.path));
  });

  test("waits for another user who has just made the file, by the clock that stamps it", () => {
    const { file, place, locksOn, takeOn } = emptySession();
    writeFileSync(place.path, "");
    const at = (later: number) => refusing("openAppend", place.path, "EACCES", { clock: () => Date.now() + later });
    expect(isLock(locksOn(at(0)).acquire(file, place))).toBe(false);
    expect(takeOn(at(HOUR)).kind).toBe("socket");
  });

  test.each([
    ["create", "before"],
    ["create", "after"],
    ["openAppend", "before"],
    ["infoOf", "before"],
  ] as const)("gets the lock of the file that has the name, whoever changed that at %s, %s it", (what, at) => {
    const { place, folder, takeOn } = emptySession();
    if (what === "openAppend") writeFileSync(place.path, "");
    let isDone = false;
    const swap = (): void => {
      if (isDone) return;
      isDone = true;
      // A holder took it and let go: the file with the name is gone, or is another one.
      if (existsSync(place.path)) realDisk.remove(place.path);
      if (what !== "openAppend") writeFileSync(place.path, "");
    };
    const disk = wrapped(realDisk, (operate, name) => {
      if (name === what && at === "before") swap();
      const result = operate();
      if (name === what && at === "after") swap();
      return result;
    });
    const lock = takeOn(disk, () => expect(isLockedInKernel(place.path)).toBe(true));
    expect(lock.kind).toBe("sqlite");
    expect(readdirSync(folder)).toEqual(["session.jsonl"]);
  });
});
