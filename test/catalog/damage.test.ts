/** The catalog's file may be spoiled, gone, newer or closed to us: the list is that of the session files all the same. */

import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { findSqlite } from "../../src/core/store/sqlite.ts";
import {
  allHits,
  catalogOn,
  fingerprints,
  type Library,
  listed,
  places,
  randomSession,
  readHits,
  readList,
  temporaryLibrary,
} from "../support/catalog.ts";
import { forSeedsAsync, type Random } from "../support/random.ts";
import { runProgram, temporaryPlace } from "../support/server.ts";

const sqlite = findSqlite();

function fill(random: Random, count = 25): Library {
  const library = temporaryLibrary();
  for (let n = 0; n < count; n++) {
    const folder = join(library.root, `--home-me-${n % 3}--`);
    mkdirSync(folder, { recursive: true });
    const session = randomSession(random, `/home/me/${n % 3}`);
    writeFileSync(join(folder, `2026-01-24T16-22-26-831Z_${session.id}.jsonl`), session.text);
  }
  return library;
}

function databases({ state }: Library): string[] {
  const folder = join(state, "catalog");
  return existsSync(folder) ? readdirSync(folder).map((name) => join(folder, name)) : [];
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

test("SQLite is there for these tests", () => expect(sqlite).toBeDefined());

test("its files and folder are for their owner only, and nothing else is written", async () => {
  await forSeedsAsync(1, async (random) => {
    const library = fill(random);
    const catalog = catalogOn(library);
    await listed(catalog);
    await allHits(catalog, { query: "token" });
    expect(statSync(join(library.state, "catalog")).mode & 0o777).toBe(0o700);
    expect(databases(library).length).toBeGreaterThan(0);
    for (const path of databases(library)) expect(statSync(path).mode & 0o777, path).toBe(0o600);
  });
});

test("it has the columns of pi_agent_rust's index as a view", async () => {
  await forSeedsAsync(1, async (random) => {
    const library = fill(random);
    const catalog = catalogOn(library);
    const list = await listed(catalog);
    const out = join(library.state, "index.sqlite");
    await catalog.exportIndex(out);
    await expect(catalog.exportIndex(out)).rejects.toMatchObject({ name: "already_exists" });
    catalog.close();
    for (const path of [databases(library).find((name) => name.endsWith(".sqlite")) as string, out]) {
      const db = sqlite!(path);
      const rows = db.prepare("SELECT * FROM sessions ORDER BY last_modified_ms DESC").all() as Record<
        string,
        unknown
      >[];
      db.close();
      expect(Object.keys(rows[0])).toEqual(
        "path id cwd timestamp message_count last_modified_ms size_bytes name".split(" "),
      );
      expect(
        rows.map(({ path, id, message_count, name }) => ({ path, id, messageCount: message_count, name })),
      ).toEqual(list.map(({ path, id, messageCount, name }) => ({ path, id, messageCount, name })));
    }
  });
});

test("the verb index writes that table, and never over a file", async () => {
  const place = temporaryPlace();
  const folder = join(place.home, ".pi/agent/sessions/--p--");
  mkdirSync(folder, { recursive: true });
  await forSeedsAsync(1, async (random) => {
    for (let n = 0; n < 3; n++) {
      const { id, text } = randomSession(random, "/p");
      writeFileSync(join(folder, `2026_${id}.jsonl`), text);
    }
    const out = join(place.cwd, "index.sqlite");
    const [first, again, without] = [
      await runProgram("", ["index", "--out", "index.sqlite", "--json"], place),
      await runProgram("", ["index", "--out", out], place),
      await runProgram("", ["index"], place),
    ];
    expect([first.status, first.stderr]).toEqual([0, ""]);
    expect(JSON.parse(first.stdout)).toEqual({ path: out, sessionCount: 3 });
    expect([again.status, again.stdout, without.status]).toEqual([1, "", 2]);
    const db = sqlite!(out);
    expect(db.prepare("SELECT count(*) AS count FROM sessions").get()).toEqual({ count: 3 });
    db.close();
  });
});

test("bytes of it are changed at random, while it is closed and while it is open", async () => {
  await forSeedsAsync(12, async (random) => {
    const library = fill(random, 40);
    await isRight(library);
    const open = catalogOn(library);
    await listed(open);
    for (let round = 0; round < 3; round++) {
      for (const path of databases(library)) {
        const bytes = readFileSync(path);
        if (bytes.length === 0 || path.endsWith("-shm")) continue;
        for (let n = 1 + random.int(40); n > 0; n--) bytes[random.int(bytes.length)] = random.int(256);
        if (random.chance(0.2)) writeFileSync(path, bytes.subarray(0, random.int(bytes.length)));
        else writeFileSync(path, bytes);
      }
      // What is missing in a damaged index of texts may stay unnoticed; the list may not.
      await isRight(library, false);
      expect(await listed(open)).toEqual(readList(library.root));
    }
  });
});

test("bytes of it are changed at random while nobody has it open: searches find everything as well", async () => {
  await forSeedsAsync(6, async (random) => {
    const library = fill(random);
    await isRight(library);
    for (let round = 0; round < 3; round++) {
      const [path] = databases(library).filter((name) => name.endsWith(".sqlite"));
      const bytes = readFileSync(path);
      for (let n = 1 + random.int(40); n > 0; n--) bytes[random.int(bytes.length)] ^= 1 + random.int(255);
      writeFileSync(path, bytes);
      await isRight(library);
    }
  });
});

test("text that SQLite does not keep as it is does no harm", async () => {
  const library = temporaryLibrary();
  const folder = join(library.root, "--odd--");
  mkdirSync(folder, { recursive: true });
  const odd = "a\u0000b\ud800";
  const lines = [
    { type: "session", version: 3, id: `i${odd}`, timestamp: `2026-01-01${odd}`, cwd: `/c${odd}` },
    { type: "session_info", id: "1", parentId: null, timestamp: "2026-01-01T00:00:00Z", name: `n${odd}` },
    { type: "message", id: `m${odd}`, parentId: "1", message: { role: "user", content: `first${odd}` } },
    { type: "message", id: "4", parentId: `m${odd}`, message: { role: "user", content: "x\u0000needle thread" } },
  ];
  const file = join(folder, "odd.jsonl");
  writeFileSync(file, `${lines.map((line) => JSON.stringify(line)).join("\n")}\n`);
  for (let n = 0; n < 2; n++) {
    const catalog = catalogOn(library);
    expect(await listed(catalog)).toMatchObject([
      { id: `i${odd}`, cwd: `/c${odd}`, name: `n${odd}`, firstMessage: `first${odd}` },
    ]);
    expect(places(await allHits(catalog, { query: "eedle rea" }))).toEqual([`${file} 4`]);
    expect(places(await allHits(catalog, { query: "first" }))).toEqual([`${file} m${odd}`]);
    catalog.close();
    // None was given up as damaged.
    expect(databases(library).filter((name) => name.endsWith(".sqlite"))).toHaveLength(1);
    expect(databases(library)[0]).not.toMatch(/\.1\.sqlite/);
  }
});

test("it is removed, or a folder stands in its place", async () => {
  await forSeedsAsync(2, async (random) => {
    const library = fill(random);
    const open = catalogOn(library);
    await listed(open);
    for (const path of databases(library)) rmSync(path);
    expect(await listed(open)).toEqual(readList(library.root));
    await isRight(library);
    expect(databases(library).length).toBeGreaterThan(0);
    rmSync(library.state, { recursive: true });
    expect(await listed(open)).toEqual(readList(library.root));
    await isRight(library);
    open.close();
    rmSync(library.state, { recursive: true });
    writeFileSync(library.state, "no folder");
    await isRight(library);
  });
});

test("it is of a newer version: that stays, and one of our own is made beside it", async () => {
  await forSeedsAsync(1, async (random) => {
    const library = fill(random);
    await isRight(library);
    const [path] = databases(library).filter((name) => name.endsWith(".sqlite"));
    const db = sqlite!(path);
    db.exec("DROP VIEW sessions; DROP TABLE files; CREATE TABLE theirs(a); PRAGMA user_version = 2");
    db.close();
    await isRight(library);
    await isRight(library);
    const again = sqlite!(path);
    expect(again.prepare("SELECT count(*) AS count FROM theirs").get()).toEqual({ count: 0 });
    expect(again.prepare("PRAGMA user_version").get()).toEqual({ user_version: 2 });
    again.close();
    expect(databases(library).filter((name) => name.endsWith(".sqlite"))).toHaveLength(2);
  });
});

test("it is locked by another program for all the time", async () => {
  await forSeedsAsync(1, async (random) => {
    const library = fill(random);
    await isRight(library);
    const [path] = databases(library).filter((name) => name.endsWith(".sqlite"));
    const db = sqlite!(path);
    db.exec("BEGIN EXCLUSIVE");
    const session = randomSession(random, "/home/me/1");
    writeFileSync(join(library.root, "--home-me-1--", `2026_${session.id}.jsonl`), session.text);
    await isRight(library);
    db.exec("ROLLBACK");
    db.close();
    await isRight(library);
  });
});

test("every operation on it fails in turn", async () => {
  await forSeedsAsync(1, async (random) => {
    const library = fill(random, 6);
    let failed = 1;
    for (let k = 0; failed > 0; k += 1 + random.int(6)) {
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
                throw Object.assign(new Error("no"), { errcode: random.pick([1, 5, 8, 10, 11, 13, 14, 26, 267, 522]) });
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
  });
});
