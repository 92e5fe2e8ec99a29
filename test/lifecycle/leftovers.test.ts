/** Leftovers next to sessions: found, judged by its session, moved to the trash and back, removed for good. */

import {
  appendFileSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { encodePointer } from "../../src/storage/v2/documents.ts";
import { makePointer } from "../../src/storage/v2/pointer.ts";
import { nameOf } from "../support/asking.ts";
import { user } from "../support/drafts.ts";
import { contentsOf, library, one, put, putSession, read, rootOf, sessionId } from "../support/lifecycle.ts";
import type { HereServer, Json } from "../support/server.ts";

interface Sibling {
  readonly server: HereServer;
  /** Path of the session now. */
  readonly session: string;
  readonly folder: string;
  /** A leftover of another session. */
  readonly other: string;
}

/** A session with what a repair and a migration leave next to it; in V2, its file is left over too. */
async function withLeftovers(store: "jsonl" | "v2", args: string[] = [], isAlone = true): Promise<Sibling> {
  const { place, server, file } = library(1, args);
  const migrated = store === "v2" ? await server.result("migrate_session", { sessionPath: file }) : {};
  const session = migrated.sessionPath ?? file;
  writeFileSync(`${file}.v2.bak`, "an old version");
  writeFileSync(`${session}.damaged.bak`, "a damaged one");
  const other = isAlone ? "" : put(`${putSession(place, 2)}.v1.bak`, "other");
  return { server, session, folder: dirname(file), other };
}

async function list(server: HereServer, params: object = {}): Promise<Json[]> {
  return (await server.result("list_leftovers", params)).leftovers;
}

const prune = (server: HereServer, params: object = {}): Promise<Json> => server.result("prune_leftovers", params);
const names = (leftovers: readonly Json[]): string[] => leftovers.map(({ path }) => basename(path)).sort();

describe.each(["jsonl", "v2"] as const)("beside a session of %s", (store) => {
  const count = store === "v2" ? 3 : 2;

  test("it is listed with its consequence, goes to the trash as one operation, and comes back byte for byte", async () => {
    const { server, session: sessionPath, folder } = await withLeftovers(store);
    const before = contentsOf(folder);
    const found = await list(server);
    const kinds = ["backup", "backup", ...(store === "v2" ? ["migrated"] : [])];
    expect(found.map(({ kind }) => kind).sort()).toEqual(kinds);
    for (const one of found) expect(one).toMatchObject({ sessionPath, keptBecause: null, isNeeded: false });
    const { consequence } = found.find(({ path }) => path.endsWith(".damaged.bak"));
    expect(consequence).toBe("Without it, the repair cannot be undone.");
    expect(contentsOf(folder)).toEqual(before);

    const wanted = names(found);
    const { operationId, itemPath, removed, kept } = await prune(server);
    expect([names(removed), kept, await list(server)]).toEqual([wanted, [], []]);
    expect(readdirSync(folder).filter((name) => wanted.includes(name))).toEqual([]);
    const [item] = (await server.result("list_trash")).items;
    expect(item).toMatchObject({ itemPath, sessionId: null, fileCount: wanted.length });
    expect((await server.result("verify_session", { sessionPath })).ok).toBe(true);
    expect(await server.result("undo")).toMatchObject({ operationId, kind: "prune" });
    expect(contentsOf(folder)).toEqual(before);
    expect((await server.result("list_trash")).total).toBe(0);
    expect(names((await prune(server)).removed)).toEqual(wanted);
  });

  test("with a damaged session it stays, unless that is forced; other sessions' goes", async () => {
    const { server, session, other } = await withLeftovers(store, [], false);
    const body = store === "v2" ? join(session, "segments", "0000000000000001.seg") : session;
    const bytes = readFileSync(body);
    bytes.fill(0, bytes.length - 60, bytes.length - 20);
    writeFileSync(body, bytes);
    const { removed, kept } = await prune(server);
    expect([names(removed), kept.length]).toEqual([[basename(other)], count]);
    for (const { keptBecause, isNeeded } of kept)
      expect([keptBecause, isNeeded]).toEqual([expect.stringMatching(/^its session is damaged/), false]);
    const paths = [kept[0].path];
    expect((await prune(server, { paths })).removed).toEqual([]);
    expect(names((await prune(server, { paths, force: true })).removed)).toEqual(names(kept.slice(0, 1)));
  });

  test("of a session in use it stays, even forced, and the others go", async () => {
    const { server, session, other } = await withLeftovers(store, [], false);
    await server.result("open_session", { sessionPath: session });
    await server.result("append", { ...one, entries: [user("more")] });
    const { removed, kept } = await prune(server, { force: true });
    expect([names(removed), kept.length]).toEqual([[basename(other)], count]);
    for (const { keptBecause, isNeeded } of kept)
      expect([keptBecause, isNeeded]).toEqual([expect.stringMatching(/is writing to this session/), true]);
  });

  test("removed for good, it cannot be undone, and the record says so", async () => {
    const { server, folder } = await withLeftovers(store);
    const { operationId, itemPath, removed } = await prune(server, { permanent: true });
    expect([removed.length, itemPath]).toEqual([count, null]);
    expect(readdirSync(folder).filter((name) => /bak|migrated/.test(name))).toEqual([]);
    const [operation] = (await server.result("list_operations")).operations;
    const reason = expect.stringMatching(/removed for good/);
    expect(operation).toMatchObject({ operationId, kind: "prune", canUndo: false, reason });
    expect(await nameOf(server, "undo", { operationId })).toBe("cannot_undo");
  });
});

test("what is left over is known by its name", async () => {
  const { server, file } = library();
  const left = [
    ...["a.jsonl.v1.bak", "a.jsonl.damaged.bak.12", "a.jsonl.repaired.bak", "a.jsonl.relocated.bak"],
    ...["a.jsonl.migrated", "01.v2.rolled-back.3"],
  ];
  const others = [
    ...["a.jsonl", "a.v2", "x.bak", "x.jsonl.bak", "y.jsonl.v.bak", ".x.jsonl.v1.bak", "notes.migrated"],
    "a.jsonl.blobs",
  ];
  for (const name of [...left, ...others]) put(join(dirname(file), name), "content");
  expect(names(await list(server))).toEqual(left.sort());
});

test("only what we leave is left over, and where anything else is named nothing goes", async () => {
  const { server, file } = library();
  const folder = dirname(file);
  const backup = put(`${file}.v2.bak`, "backup");
  symlinkSync(file, `${file}.v1.bak`);
  const temporary = join(folder, `.${basename(file)}.${process.pid}-123.tmp`);
  writeFileSync(temporary, "on its way");
  const found = await list(server, { kinds: ["temporary"] });
  const why = { isNeeded: true, keptBecause: "a process may still be writing it" };
  expect(found).toMatchObject([{ kind: "temporary", path: temporary, ...why }]);
  expect((await prune(server, { kinds: ["temporary"], force: true })).removed).toEqual([]);
  for (const [path, name] of [
    [`${file}.v1.bak`, "not_a_session"],
    [put(join(folder, "x.bak"), "mine"), "not_a_session"],
    [file, "not_a_session"],
    [join(folder, "nothing.jsonl.v1.bak"), "session_not_found"],
  ])
    expect(await nameOf(server, "prune_leftovers", { paths: [backup, path] }), path).toBe(name);
  expect(await prune(server, { kinds: ["rolled_back"] })).toMatchObject({ operationId: null, removed: [], kept: [] });
  expect([read(backup), (await server.result("list_operations")).operations]).toEqual(["backup", []]);
});

test("those of several sessions go together, and come back together or not at all", async () => {
  const { place, server, file, contents } = library();
  const files = [file, putSession(place, 2, { cwd: "/elsewhere" })];
  const paths = files.flatMap((path) => [put(`${path}.v1.bak`, `of ${path}`), put(`${path}.migrated`, "x")]);
  const container = join(dirname(file), `${sessionId(1)}.v2.rolled-back`);
  put(join(container, "segments", "1.seg"), "frames");
  const back = { ...makePointer("0".repeat(64), sessionId(1)), active: "jsonl_v3", phase: "rollback" } as const;
  const pointer = encodePointer({ ...back, source: basename(file) });
  files.push(put(join(dirname(file), `${sessionId(1)}.store.json`), pointer));
  const before = contents();
  const { itemPath } = await prune(server, { paths: [...paths, container] });
  expect(Object.keys(contents()).sort()).toEqual([...files].sort());
  const { items } = await server.result("list_trash");
  expect(items).toMatchObject([{ itemPath, sessionId: null, name: null, messageCount: null, fileCount: 5 }]);
  expect(await nameOf(server, "restore_session", { sessionPath: itemPath })).toBe("session_not_found");
  const [{ kind, text }] = (await server.result("list_operations")).operations as Json[];
  expect([kind, text]).toEqual(["prune", "Moved 5 leftover files to the trash."]);
  // Something else has come to one of the paths: then all of it stays where it is.
  put(paths[1], "another");
  expect((await server.failure("undo")).data).toMatchObject({ name: "ground_moved", path: paths[1] });
  expect(readdirSync(itemPath)).toHaveLength(6);
  put(paths[1], "x");
  for (const method of ["undo", "redo", "undo"]) {
    await server.result(method);
    if (method === "undo") expect(contents()).toEqual(before);
    else expect(Object.keys(contents()).sort()).toEqual([...files].sort());
  }
  expect(readdirSync(join(place.state, "trash"))).toEqual([]);
});

test("the only copy of a session stays, and one whose names act on terminals is moved as it is", async () => {
  const { place, server } = library(0);
  const lone = put(join(rootOf(place), "--odd--", "a\u001b[2Jb\nc.jsonl.v1.bak"), "the only copy");
  const { removed, kept } = await prune(server);
  expect([removed, names(kept), kept[0].keptBecause]).toEqual([
    [],
    [basename(lone)],
    expect.stringMatching(/only copy/),
  ]);
  expect((await prune(server, { paths: [lone], force: true })).removed.length).toBe(1);
  await server.result("undo");
  expect(read(lone)).toBe("the only copy");
});

test("of a session whose rollback was interrupted it stays, even forced", async () => {
  const { server, session, folder } = await withLeftovers("v2");
  const [migrated] = (await list(server, { kinds: ["migrated"] })).map(({ path }) => path);
  // As a rollback leaves it that dies after the file has its name again, and before the pointer says so.
  copyFileSync(migrated, migrated.replace(/\.migrated$/, ""));
  const pointer = session.replace(/\.v2$/, ".store.json");
  writeFileSync(pointer, read(pointer).replace('"completed"', '"rollback"'));
  const before = contentsOf(folder);
  const because = { isNeeded: true, keptBecause: expect.stringMatching(/^its migration or rollback was interrupted/) };
  const wanted = { kinds: ["migrated"] };
  expect(await list(server, wanted)).toMatchObject([{ path: migrated, ...because }]);
  for (const force of [false, true])
    expect(await prune(server, { ...wanted, force })).toMatchObject({
      removed: [],
      kept: [{ path: migrated, ...because }],
    });
  expect(contentsOf(folder)).toEqual(before);
});

test("beside archived sessions it is listed, too", async () => {
  const { server, session: sessionPath } = await withLeftovers("jsonl");
  const { movedTo } = await server.result("archive_session", { sessionPath });
  const backup = put(`${movedTo}.v1.bak`, "an old version");
  const found = await list(server);
  expect(found).toContainEqual(expect.objectContaining({ path: backup, sessionPath: movedTo }));
});

test("only those of one session, or of a kind, or that are named, or that are old enough", async () => {
  const { server, session: sessionPath, other } = await withLeftovers("v2", [], false);
  for (const [params, count] of [
    [{ sessionPath: other.replace(".v1.bak", "") }, 1],
    [{ sessionPath }, 3],
    [{ kinds: ["migrated"] }, 1],
    [{ paths: [other] }, 1],
    [{ before: "2020-01-01T00:00:00Z" }, 0],
    [{ before: "2999-01-01T00:00:00Z" }, 4],
  ] as const)
    expect([params, (await list(server, params)).length]).toEqual([params, count]);
});

test("confined, what lies elsewhere cannot be named", async () => {
  const { place, server } = library(1, ["--confine"]);
  mkdirSync(join(place.home, "elsewhere"));
  const path = put(join(place.home, "elsewhere", "x.jsonl.v1.bak"), "not yours");
  expect(await nameOf(server, "prune_leftovers", { paths: [path], force: true })).toBe("path_outside_root");
  expect(existsSync(path)).toBe(true);
});

test("the trash is emptied of what is old, for good", async () => {
  const { server, files } = library(2);
  for (const sessionPath of files) await server.result("delete_session", { sessionPath });
  const [newer, older] = (await server.result("list_trash")).items;
  const before = newer.deletedAt;
  const would = await server.result("empty_trash", { before, dryRun: true });
  expect(would.items).toMatchObject([{ itemPath: older.itemPath }]);
  expect((await server.result("list_trash")).total).toBe(2);
  const { operationId, items: gone } = await server.result("empty_trash", { before });
  expect([gone.length, gone[0].itemPath, existsSync(older.itemPath)]).toEqual([1, older.itemPath, false]);
  expect(readdirSync(dirname(newer.itemPath))).toEqual([basename(newer.itemPath)]);
  expect(await nameOf(server, "undo", { operationId })).toBe("cannot_undo");
  expect(await nameOf(server, "undo", { sessionPath: files[0] })).toBe("ground_moved");
  expect((await server.result("restore_session", { sessionId: sessionId(2) })).movedTo).toBe(files[1]);
});

test("a session that grew since is judged as it is now", async () => {
  const { server, session } = await withLeftovers("jsonl");
  appendFileSync(session, '{"type":"message","id":"half');
  expect((await prune(server)).removed).toEqual([]);
});
