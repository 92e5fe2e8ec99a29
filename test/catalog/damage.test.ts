/** The catalog's file may be spoiled, gone, newer or closed to us: the list is that of the session files all the same. */

import * as fs from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { findSqlite, type OpenDatabase } from "../../src/storage/fs/sqlite.ts";
import {
  allHits,
  catalogOn,
  fingerprints,
  type Library,
  later,
  listed,
  places,
  putRandomSession,
  readHits,
  readList,
  temporaryLibrary,
  withLibrary,
} from "../support/catalog.ts";
import { user } from "../support/drafts.ts";
import { put, putSession, sessionId } from "../support/lifecycle.ts";
import { needs, SQLITE } from "../support/needs.ts";
import { serveHere, temporaryPlace } from "../support/server.ts";
import { SWEEP, SYSTEM } from "../support/tiers.ts";
import { runHere } from "../support/verbs.ts";

const sqlite = findSqlite();

const SOME = { sessions: 25, ...needs(SQLITE) };
const FEW = { sessions: 8, ...needs(SQLITE) };

function moment(n: number): string {
  return new Date(Date.UTC(2026, 0, 1 + n)).toISOString();
}

function databases({ state }: Library): string[] {
  const folder = join(state, "catalog");
  return fs.existsSync(folder) ? fs.readdirSync(folder).map((name) => join(folder, name)) : [];
}

/** The database itself, without what SQLite has next to it. */
function mainOf(library: Library): string {
  return databases(library).find((name) => name.endsWith(".sqlite")) as string;
}

async function isRight(library: Library, search = true): Promise<void> {
  const before = fingerprints(library.root);
  const catalog = catalogOn(library);
  for (let n = 0; n < 2; n++) {
    expect(await listed(catalog)).toEqual(readList(library.root));
    if (search) expect(places(await allHits(catalog, { query: "token" }))).toEqual(readHits(library.root, ["token"]));
  }
  expect(fingerprints(library.root)).toEqual(before);
  catalog.close();
}

test(
  "whatever texts a session has, a row that it kept says what the file says, and scripts can read it",
  needs(SQLITE),
  async () => {
    const library = temporaryLibrary();
    const odd = ["plain", "two\nlines\r", "\u0000b\ud800", 'a "quote" \\', "\u2028 😀 é", "'; DROP"];
    const files = odd.map((text, n) => {
      const lines = [
        { type: "session", version: 3, id: `i${n}${text}`, timestamp: `t${text}`, cwd: `/c${text}` },
        { type: "session_info", id: "1", parentId: null, timestamp: moment(n), name: `n${text}` },
        { type: "message", id: `m${text}`, parentId: "1", message: { role: "user", content: `first${text}` } },
        { type: "message", id: "4", parentId: `m${text}`, message: { role: "user", content: "x\u0000needle thread" } },
      ];
      // The last line may be whole without its end.
      const end = n % 2 === 0 ? "" : "\n";
      return put(
        join(library.root, "--odd--", `${n}.jsonl`),
        lines.map((line) => JSON.stringify(line)).join("\n") + end,
      );
    });
    // Read by one process, by the next from what that kept, and by one without a catalog.
    for (const [n, options] of [{}, {}, { sqlite: () => undefined }].entries()) {
      let opened = 0;
      const openRead = (path: string): number => {
        opened += path.startsWith(library.root) ? 1 : 0;
        return realDisk.openRead(path);
      };
      const disk = Object.assign(Object.create(realDisk), { openRead });
      const catalog = catalogOn(library, { disk, env: later, ...options });
      const list = await listed(catalog);
      expect([opened > 0, list.length]).toEqual([n !== 1, odd.length]);
      for (const [at, text] of odd.entries()) {
        const row = {
          id: `i${at}${text}`,
          cwd: `/c${text}`,
          name: `n${text}`.trim(),
          firstMessage: `first${text}`.trim(),
        };
        expect(list).toContainEqual(expect.objectContaining(row));
      }
      const found = async (query: string): Promise<string[]> => places(await allHits(catalog, { query }));
      expect(await found("eedle rea")).toEqual(files.map((file) => `${file} 4`));
      expect(await found("first")).toEqual(files.map((file, at) => `${file} m${odd[at]}`));
      catalog.close();
      // None was given up as damaged.
      expect(databases(library).filter((name) => name.endsWith(".sqlite"))).toEqual([mainOf(library)]);
      expect(databases(library)[0]).not.toMatch(/\.1\.sqlite/);
    }
    const db = sqlite!(mainOf(library));
    const names = ["id", "cwd", "timestamp", "name"];
    const texts = db
      .prepare(`SELECT ${names.map((name) => `hex(${name}) AS ${name}`)} FROM sessions WHERE path = ?`)
      .get(files[2]);
    const stored = ["i2", "/c", "t", "n"].map((text) => Buffer.from(`${text} b\ufffd`).toString("hex").toUpperCase());
    expect(names.map((name) => (texts as Record<string, unknown>)[name])).toEqual(stored);
    db.close();
  },
);

withLibrary("its files and folder are for their owner only, and nothing else is written", SOME, async (library) => {
  const catalog = catalogOn(library);
  await listed(catalog);
  await allHits(catalog, { query: "token" });
  expect(fs.statSync(join(library.state, "catalog")).mode & 0o777).toBe(0o700);
  expect(databases(library).length).toBeGreaterThan(0);
  for (const path of databases(library)) expect(fs.statSync(path).mode & 0o777, path).toBe(0o600);
});

withLibrary("it has the columns of pi_agent_rust's index as a view", SOME, async (library) => {
  const catalog = catalogOn(library);
  const list = await listed(catalog);
  const out = join(library.state, "index.sqlite");
  await catalog.exportIndex(out);
  catalog.close();
  const names = ["path", "id", "cwd", "timestamp", "message_count", "last_modified_ms", "size_bytes", "name"];
  const wanted = list.map(({ path, id, messageCount, name }) => {
    const { mtimeMs, size } = fs.statSync(path);
    // The time of the file, not that of the last message.
    return [path, id, messageCount, Math.floor(mtimeMs), size, name];
  });
  const byPath = (rows: unknown[][]): unknown[][] => rows.sort(([a], [b]) => (String(a) < String(b) ? -1 : 1));
  for (const path of [mainOf(library), out]) {
    const rows = rowsOf(path);
    expect(Object.keys(rows[0])).toEqual(names);
    const reported = names.filter((name) => name !== "cwd" && name !== "timestamp");
    expect(byPath(rows.map((row) => reported.map((name) => row[name])))).toEqual(byPath(wanted));
  }
});

function rowsOf(path: string): Record<string, unknown>[] {
  const db = sqlite!(path);
  try {
    return db.prepare("SELECT * FROM sessions ORDER BY path").all() as Record<string, unknown>[];
  } finally {
    db.close();
  }
}

describe("the verb index", () => {
  function ready() {
    const place = temporaryPlace();
    const index = (file: string) => runHere(place, ["index", "--out", file, "--json"]);
    return { place, put: (n: number) => putSession(place, n), index };
  }

  test("writes that table, and writes it anew when it is there", needs(SQLITE), async () => {
    const { place, put, index } = ready();
    const out = join(place.cwd, "index.sqlite");
    for (const [n, to] of ["index.sqlite", out, join(place.home, "link.sqlite")].entries()) {
      put(n + 1);
      if (n === 2) fs.symlinkSync(out, to);
      const { status, stderr, stdout } = await index(to);
      expect([status, stderr]).toEqual([0, ""]);
      expect(JSON.parse(stdout)).toEqual({ path: n === 0 ? out : to, sessionCount: n + 1 });
      expect(rowsOf(out).map(({ id }) => id)).toEqual(Array.from({ length: n + 1 }, (_, i) => sessionId(i + 1)));
      if (n === 0) fs.chmodSync(out, 0o640);
    }
    expect(fs.lstatSync(join(place.home, "link.sqlite")).isSymbolicLink()).toBe(true);
    expect(fs.statSync(out).mode & 0o777).toBe(0o640);
    expect(fs.readdirSync(place.cwd)).toEqual(["index.sqlite"]);
    const server = serveHere(["--store", "v2", "--events", "none"], { place });
    await server.result("append", { entries: [user("x")] });
    const { sessionFile } = await server.result("get_state");
    await index(out);
    const segments = join(sessionFile, "segments");
    const newest = Math.max(...fs.readdirSync(segments).map((name) => fs.statSync(join(segments, name)).mtimeMs));
    expect(rowsOf(out).find(({ path }) => path === sessionFile)).toMatchObject({
      last_modified_ms: expect.toSatisfy((time: number) => time >= Math.floor(newest) && time <= Date.now()),
    });
  });

  test(
    "takes an index of pi_agent_rust, with columns of others, and leaves no times of its scan",
    needs(SQLITE),
    async () => {
      const { place, put, index } = ready();
      put(1);
      const out = join(place.cwd, "session-index.sqlite");
      const db = sqlite!(out);
      db.exec(`PRAGMA journal_mode = WAL;
    CREATE TABLE sessions(path TEXT PRIMARY KEY, id TEXT NOT NULL, cwd TEXT NOT NULL, timestamp TEXT NOT NULL,
      message_count INTEGER NOT NULL, last_modified_ms INTEGER NOT NULL, size_bytes INTEGER NOT NULL, name TEXT);
    CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
    ALTER TABLE sessions ADD COLUMN modified_ms INTEGER NOT NULL DEFAULT 0;
    INSERT INTO meta VALUES ('last_sync_epoch_ms', '1');
    INSERT INTO sessions VALUES ('/gone.jsonl', 'gone', '/', '', 0, 0, 0, NULL, 0)`);
      const before = fs.readFileSync(out);
      const held = await index(out);
      // Another program has it open: it is not touched.
      expect([held.status, JSON.parse(held.stdout).error.data.name]).toEqual([1, "session_locked"]);
      expect(fs.readFileSync(out)).toEqual(before);
      db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
      db.close();
      for (const ending of ["-wal", "-shm"]) fs.rmSync(`${out}${ending}`, { force: true });
      expect((await index(out)).status).toBe(0);
      expect(rowsOf(out).map(({ id }) => id)).toEqual([sessionId(1)]);
      const after = sqlite!(out);
      expect(after.prepare("SELECT * FROM meta").all()).toEqual([]);
      after.close();
    },
  );

  test("leaves every other file alone, and says what to do", needs(SQLITE), async () => {
    const { place, put, index } = ready();
    const session = put(1);
    const other = join(place.cwd, "other.sqlite");
    const db = sqlite!(other);
    db.exec("CREATE TABLE sessions(path TEXT); CREATE TABLE meta(key TEXT); CREATE TABLE mine(x)");
    db.close();
    const [text, empty, folder] = ["notes.txt", "empty.sqlite", "folder"].map((name) => join(place.cwd, name));
    fs.writeFileSync(text, "mine");
    fs.writeFileSync(empty, "");
    fs.mkdirSync(folder);
    const contentOf = (file: string) => (file === folder ? fs.readdirSync(file) : fs.readFileSync(file));
    for (const file of [session, other, text, empty, folder]) {
      const before = contentOf(file);
      const { status, stdout } = await index(file);
      expect([file, status, JSON.parse(stdout).error.data.name]).toEqual([file, 1, "already_exists"]);
      expect(contentOf(file)).toEqual(before);
    }
    expect(fs.readdirSync(place.cwd).sort()).toEqual(["empty.sqlite", "folder", "notes.txt", "other.sqlite"]);
    expect((await runHere(place, ["index"])).status).toBe(2);
  });
});

const CHANGED = { ...SYSTEM, ...needs(SQLITE) };
withLibrary(
  "bytes of it are changed at random, while it is closed and while it is open",
  { sessions: 40, ...CHANGED },
  async (library, random) => {
    await isRight(library);
    const open = catalogOn(library);
    await listed(open);
    for (let round = 0; round < 6; round++) {
      for (const path of databases(library)) {
        const bytes = fs.readFileSync(path);
        if (bytes.length === 0 || path.endsWith("-shm")) continue;
        for (let n = 1 + random.int(40); n > 0; n--) bytes[random.int(bytes.length)] = random.int(256);
        fs.writeFileSync(path, random.chance(0.2) ? bytes.subarray(0, random.int(bytes.length)) : bytes);
      }
      // Missing texts in a damaged index may stay unnoticed; missing sessions in the list may not.
      await isRight(library, false);
      expect(await listed(open)).toEqual(readList(library.root));
    }
  },
);

withLibrary("it is removed, or a folder stands in its place, while it is open and closed", FEW, async (library) => {
  const open = catalogOn(library);
  await listed(open);
  for (const path of databases(library)) fs.rmSync(path);
  expect(await listed(open)).toEqual(readList(library.root));
  await isRight(library);
  expect(databases(library).length).toBeGreaterThan(0);
  fs.rmSync(library.state, { recursive: true });
  expect(await listed(open)).toEqual(readList(library.root));
  await isRight(library);
  open.close();
  fs.rmSync(library.state, { recursive: true });
  fs.writeFileSync(library.state, "no folder");
  await isRight(library);
});

withLibrary(
  "it is locked by another program, or of a newer version, which stays",
  { ...FEW, ...SYSTEM },
  async (library, random) => {
    await isRight(library);
    const path = mainOf(library);
    const db = sqlite!(path);
    db.exec("BEGIN EXCLUSIVE");
    putRandomSession(random, join(library.root, "--home-me-1--"), "/home/me/1");
    await isRight(library);
    db.exec("ROLLBACK");
    await isRight(library);
    db.exec("DROP VIEW sessions; DROP TABLE files; CREATE TABLE theirs(a); PRAGMA user_version = 1000");
    for (let n = 0; n < 2; n++) await isRight(library);
    expect(db.prepare("SELECT count(*) AS count FROM theirs").get()).toEqual({ count: 0 });
    expect(db.prepare("PRAGMA user_version").get()).toEqual({ user_version: 1000 });
    db.close();
    // One of our own was made next to it.
    expect(databases(library).filter((name) => name.endsWith(".sqlite"))).toHaveLength(2);
  },
);

/** Errors of SQLite. */
const CODES = [1, 5, 8, 10, 11, 13, 14, 26, 267, 522];

for (const [most, tier] of [
  [25, SYSTEM],
  [9, SWEEP],
] as const)
  withLibrary(
    `every operation on it fails in turn (at most each ${most}th)`,
    { sessions: 6, ...tier, ...needs(SQLITE) },
    async (library, random) => {
      let failed = 1;
      for (let k = 0; failed > 0; k += 1 + random.int(most)) {
        failed = 0;
        let calls = 0;
        const fails = <T extends object>(real: T): T =>
          new Proxy(real, {
            get: (target, name) => {
              const value = Reflect.get(target, name);
              if (typeof value !== "function") return value;
              if (name === "close") return value.bind(target);
              return (...values: unknown[]) => {
                if (calls++ === k) {
                  failed++;
                  throw Object.assign(new Error("no"), { code: "ERR_SQLITE_ERROR", errcode: random.pick(CODES) });
                }
                const result = value.apply(target, values);
                return name === "prepare" ? fails(result) : result;
              };
            },
          });
        const state = join(library.state, String(k));
        const catalog = catalogOn({ ...library, state }, { sqlite: () => (path) => fails(sqlite!(path)) });
        expect(await listed(catalog), `operation ${k}`).toEqual(readList(library.root));
        const hits = await allHits(catalog, { query: "token" });
        expect(places(hits), `operation ${k}`).toEqual(readHits(library.root, ["token"]));
        catalog.close();
      }
    },
  );

const OPENED = "a file that is opened while another call still writes to the one before stays, and is used";
withLibrary(OPENED, SOME, async (library, random) => {
  let seen: Promise<unknown> | undefined;
  let isNext = false;
  let closed = 0;
  const opens: OpenDatabase = (path) => {
    const real = sqlite!(path);
    const exec = (sql: string): void => {
      real.exec(sql);
      if (sql !== "BEGIN IMMEDIATE" || !isNext) return;
      isNext = false;
      for (const database of databases(library)) fs.rmSync(database);
      seen = catalog.glance("/home/me/0", 5);
    };
    const close = (): void => {
      closed++;
      real.close();
    };
    return { exec, prepare: (sql) => real.prepare(sql), close };
  };
  const catalog = catalogOn(library, { sqlite: () => opens });
  await listed(catalog);
  putRandomSession(random, join(library.root, "--home-me-0--"), "/home/me/0");
  isNext = true;
  expect(await listed(catalog)).toEqual(readList(library.root));
  expect(await seen).toHaveLength(5);
  expect([closed, databases(library).length > 0]).toEqual([1, true]);
  expect(await listed(catalog)).toEqual(readList(library.root));
  expect(closed).toBe(1);
});
