/** What is left over beside sessions: found, judged by its session, moved to the trash and back, removed for good. */

import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { CWD, contentsOf, putSession, rootOf, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { chain } from "../support/lines.ts";
import { type HereServer, type Json, temporaryPlace } from "../support/server.ts";

interface Beside {
  readonly server: HereServer;
  /** Path of the session now. */
  readonly session: string;
  readonly folder: string;
}

/** A session with what a repair and a migration leave beside it; in V2, its file is left over too. */
async function withLeftovers(store: "jsonl" | "v2", args: string[] = []): Promise<Beside> {
  const place = temporaryPlace();
  const file = putSession(place, 1, { cwd: place.cwd });
  const server = serveLibrary(place, args);
  let session = file;
  if (store === "v2") {
    const moved = await server.result("migrate_session", { sessionPath: file, dryRun: false });
    session = moved.sessionPath;
  }
  writeFileSync(`${file}.v2.bak`, "an old version");
  writeFileSync(`${session}.damaged.bak`, "a damaged one");
  return { server, session, folder: dirname(file) };
}

async function list(server: HereServer, params: object = {}): Promise<Json[]> {
  return (await server.result("list_leftovers", params)).leftovers;
}

const names = (leftovers: readonly Json[]): string[] => leftovers.map(({ path }) => basename(path)).sort();

describe.each(["jsonl", "v2"] as const)("beside a session of %s", (store) => {
  test("it is listed with its session and its consequence, and nothing is changed", async () => {
    const { server, session, folder } = await withLeftovers(store);
    const before = contentsOf(folder);
    const found = await list(server);
    expect(found.map(({ kind }) => kind).sort()).toEqual(["backup", "backup", ...(store === "v2" ? ["migrated"] : [])]);
    for (const one of found) expect(one).toMatchObject({ sessionPath: session, keptBecause: null, isNeeded: false });
    const damaged = found.find(({ path }) => path.endsWith(".damaged.bak"));
    expect(damaged.consequence).toBe("Without it, the repair cannot be undone.");
    expect(contentsOf(folder)).toEqual(before);
  });

  test("it goes to the trash as one operation, and undo brings it back byte for byte", async () => {
    const { server, session, folder } = await withLeftovers(store);
    const before = contentsOf(folder);
    const wanted = names(await list(server));
    const { operationId, itemPath, removed, kept } = await server.result("prune_leftovers");
    expect([names(removed), kept]).toEqual([wanted, []]);
    expect(readdirSync(folder).filter((name) => wanted.includes(name))).toEqual([]);
    expect(await list(server)).toEqual([]);
    const [item] = (await server.result("list_trash")).items;
    expect(item).toMatchObject({ itemPath, sessionId: null, fileCount: wanted.length });
    expect((await server.result("verify_session", { sessionPath: session })).ok).toBe(true);
    const undone = await server.result("undo");
    expect(undone).toMatchObject({ operationId, kind: "prune" });
    expect(contentsOf(folder)).toEqual(before);
    expect((await server.result("list_trash")).total).toBe(0);
    expect(names((await server.result("prune_leftovers")).removed)).toEqual(wanted);
  });

  test("with a damaged session it stays, unless that is forced; other sessions' goes", async () => {
    const { server, session, folder } = await withLeftovers(store);
    const other = putSession({ home: dirname(folder), state: "", cwd: "", variables: {} }, 2, { folder });
    writeFileSync(`${other}.v1.bak`, "other");
    const body = store === "v2" ? join(session, "segments", "0000000000000001.seg") : session;
    const bytes = readFileSync(body);
    bytes.fill(0, bytes.length - 60, bytes.length - 20);
    writeFileSync(body, bytes);
    const { removed, kept } = await server.result("prune_leftovers");
    expect(names(removed)).toEqual([basename(`${other}.v1.bak`)]);
    expect(kept.length).toBe(store === "v2" ? 3 : 2);
    for (const { keptBecause, isNeeded } of kept)
      expect([keptBecause, isNeeded]).toEqual([expect.stringMatching(/^its session is damaged/), false]);
    const paths = [kept[0].path];
    expect((await server.result("prune_leftovers", { paths })).removed).toEqual([]);
    expect(names((await server.result("prune_leftovers", { paths, force: true })).removed)).toEqual([
      basename(paths[0]),
    ]);
  });

  test("of a session in use it stays, even forced, and the others go", async () => {
    const { server, session, folder } = await withLeftovers(store);
    const other = putSession({ home: dirname(folder), state: "", cwd: "", variables: {} }, 2, { folder });
    writeFileSync(`${other}.v1.bak`, "other");
    await server.result("open_session", { sessionPath: session });
    await server.result("append", {
      sessionId: sessionId(1),
      entries: [{ type: "message", message: { role: "user", content: "more" } }],
    });
    const { removed, kept } = await server.result("prune_leftovers", { force: true });
    expect(names(removed)).toEqual([basename(`${other}.v1.bak`)]);
    expect(kept.length).toBe(store === "v2" ? 3 : 2);
    for (const { keptBecause, isNeeded } of kept)
      expect([keptBecause, isNeeded]).toEqual([expect.stringMatching(/is writing to this session/), true]);
  });

  test("removed for good, it cannot be undone, and the record says so", async () => {
    const { server, folder } = await withLeftovers(store);
    const count = (await list(server)).length;
    const { operationId, itemPath, removed } = await server.result("prune_leftovers", { permanent: true });
    expect([removed.length, itemPath]).toEqual([count, null]);
    expect(readdirSync(folder).filter((name) => /bak|migrated/.test(name))).toEqual([]);
    const [operation] = (await server.result("list_operations")).operations;
    expect(operation).toMatchObject({ operationId, kind: "prune", canUndo: false });
    expect(operation.reason).toMatch(/removed for good/);
    expect((await server.failure("undo", { operationId })).data.name).toBe("cannot_undo");
  });
});

test("read-only, nothing goes", async () => {
  const { server, folder } = await withLeftovers("jsonl", ["--read-only"]);
  const before = contentsOf(folder);
  expect((await list(server)).length).toBe(2);
  for (const params of [{}, { permanent: true, force: true }])
    expect((await server.failure("prune_leftovers", params)).data.name).toBe("read_only");
  expect((await server.failure("empty_trash")).data.name).toBe("read_only");
  expect(contentsOf(folder)).toEqual(before);
});

test("without its original, a migrated session is read and written on, and rolled back to a new file", async () => {
  const { server, session } = await withLeftovers("v2");
  await server.result("prune_leftovers", { kinds: ["migrated"], permanent: true });
  const { entries } = await server
    .result("switch_session", { sessionPath: session })
    .then(() => server.result("get_entries"));
  await server.result("new_session");
  const back = await server.result("rollback_migration", { sessionPath: session });
  expect(back).toMatchObject({ rebuilt: true, entryCount: entries.length });
  expect(readFileSync(back.sessionPath, "utf8").trim().split("\n").length).toBe(entries.length + 1);
  // The container that was rolled back is left over now.
  const [container] = await list(server, { kinds: ["rolled_back"] });
  expect(container).toMatchObject({ sessionPath: back.sessionPath, keptBecause: null });
  const before = contentsOf(container.path);
  await server.result("prune_leftovers", { paths: [container.path] });
  expect(existsSync(container.path)).toBe(false);
  await server.result("undo");
  expect(contentsOf(container.path)).toEqual(before);
});

test("only what we leave is left over: other names, links, folders of others, what is being written", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1, { cwd: CWD });
  const folder = dirname(file);
  for (const name of ["notes.migrated", "x.bak", "x.jsonl.bak", "y.jsonl.v.bak", ".x.jsonl.v1.bak"])
    writeFileSync(join(folder, name), "mine");
  symlinkSync(file, `${file}.v1.bak`);
  writeFileSync(join(folder, `.${basename(file)}.${process.pid}-123.tmp`), "on its way");
  const server = serveLibrary(place);
  const found = await list(server);
  expect(found).toMatchObject([
    { kind: "temporary", isNeeded: true, keptBecause: "a process may still be writing it" },
  ]);
  expect((await server.result("prune_leftovers", { force: true })).removed).toEqual([]);
  for (const path of [`${file}.v1.bak`, join(folder, "x.bak"), file])
    expect((await server.failure("prune_leftovers", { paths: [path] })).data.name, path).toBe("not_a_session");
  const missing = await server.failure("prune_leftovers", { paths: [join(folder, "nothing.jsonl.v1.bak")] });
  expect(missing.data.name).toBe("session_not_found");
  expect(readdirSync(folder).length).toBe(8);
});

test("the only copy of a session stays, and one whose names act on terminals is moved as it is", async () => {
  const place = temporaryPlace();
  const folder = join(rootOf(place), "--odd--");
  mkdirSync(folder, { recursive: true });
  const lone = join(folder, "a\u001b[2Jb\nc.jsonl.v1.bak");
  writeFileSync(lone, "the only copy");
  const server = serveLibrary(place);
  const { removed, kept } = await server.result("prune_leftovers");
  expect([removed, names(kept)]).toEqual([[], [basename(lone)]]);
  expect(kept[0].keptBecause).toMatch(/only copy/);
  expect((await server.result("prune_leftovers", { paths: [lone], force: true })).removed.length).toBe(1);
  await server.result("undo");
  expect(readFileSync(lone, "utf8")).toBe("the only copy");
});

test("only those of one session, or of a kind, or that are old enough", async () => {
  const { server, session, folder } = await withLeftovers("v2");
  const other = putSession({ home: dirname(folder), state: "", cwd: "", variables: {} }, 2, { folder });
  writeFileSync(`${other}.v1.bak`, "other");
  expect(names(await list(server, { sessionPath: other }))).toEqual([basename(`${other}.v1.bak`)]);
  expect((await list(server, { sessionPath: session })).length).toBe(3);
  expect((await list(server, { kinds: ["migrated"] })).length).toBe(1);
  expect(await list(server, { before: "2020-01-01T00:00:00Z" })).toEqual([]);
  expect((await list(server, { before: "2999-01-01T00:00:00Z" })).length).toBe(4);
  expect((await server.failure("list_leftovers", { before: "soon" })).code).toBe(-32602);
});

test("confined, what lies elsewhere cannot be named", async () => {
  const place = temporaryPlace();
  putSession(place, 1, { cwd: place.cwd });
  const outside = join(place.home, "elsewhere");
  mkdirSync(outside);
  writeFileSync(join(outside, "x.jsonl.v1.bak"), "not yours");
  const server = serveLibrary(place, ["--confine"]);
  const refusal = await server.failure("prune_leftovers", { paths: [join(outside, "x.jsonl.v1.bak")], force: true });
  expect(refusal.data.name).toBe("path_outside_root");
  expect(existsSync(join(outside, "x.jsonl.v1.bak"))).toBe(true);
});

test("the trash is emptied of what is old, for good", async () => {
  const place = temporaryPlace();
  const files = [1, 2].map((n) => putSession(place, n, { cwd: CWD, lines: chain(2) }));
  const server = serveLibrary(place);
  for (const sessionPath of files) await server.result("delete_session", { sessionPath });
  const { items } = await server.result("list_trash");
  expect(items.length).toBe(2);
  const newest = items[0].deletedAt;
  const would = await server.result("empty_trash", { before: newest, dryRun: true });
  expect(would.items).toMatchObject([{ itemPath: items[1].itemPath }]);
  expect((await server.result("list_trash")).total).toBe(2);
  const { operationId, items: gone } = await server.result("empty_trash", { before: newest });
  expect(gone.map(({ itemPath }: Json) => itemPath)).toEqual([items[1].itemPath]);
  expect(existsSync(items[1].itemPath)).toBe(false);
  expect(readdirSync(dirname(items[0].itemPath))).toEqual([basename(items[0].itemPath)]);
  expect((await server.failure("undo", { operationId })).data.name).toBe("cannot_undo");
  const failure = await server.failure("undo", { sessionPath: files[0] });
  expect(failure.data.name).toBe("ground_moved");
  expect((await server.result("restore_session", { sessionId: sessionId(2) })).movedTo).toBe(files[1]);
});

test("a session that grew since is judged as it is now", async () => {
  const { server, session } = await withLeftovers("jsonl");
  appendFileSync(session, '{"type":"message","id":"half');
  expect((await server.result("prune_leftovers")).removed).toEqual([]);
});
