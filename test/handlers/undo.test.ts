/** Undo and redo over the wire: each kind of operation, what refuses, and what is said. */

import { appendFileSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { failingDisk } from "../support/failing.ts";
import {
  CWD,
  contentsOf,
  listed,
  put,
  putDamaged,
  putSession,
  read,
  rootOf,
  serveLibrary,
  sessionId,
} from "../support/lifecycle.ts";
import { chain, fileText, headerText, id, userText } from "../support/lines.ts";
import {
  type HereServer,
  type Json,
  type Place,
  serveHere,
  temporaryFolder,
  temporaryPlace,
} from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

const one = { sessionId: sessionId(1) };

async function operations(server: HereServer, params: object = {}): Promise<Json[]> {
  return (await server.result("list_operations", params)).operations;
}

function user(content: string): Json {
  return { type: "message", message: { role: "user", content } };
}

acrossTiers(describe, ["jsonl", "v2"] as const)("in a session of %s", (store) => {
  async function open(): Promise<{ server: HereServer; ids: string[] }> {
    const server = serveHere(["--store", store]);
    await server.result("initialize", {});
    const { entryIds } = await server.result("append", { entries: ["one", "two", "three"].map(user) });
    return { server, ids: entryIds };
  }

  test("the leaf, the name and labels go back one by one, and come again", async () => {
    const { server, ids } = await open();
    const state = async (): Promise<Json> => {
      const { leafId, sessionName } = await server.result("get_state");
      const { nodes } = await server.result("get_tree", {});
      return { leafId, sessionName, labels: nodes.flatMap((node: Json) => (node.label ? [node.id, node.label] : [])) };
    };
    const states = [await state()];
    for (const [method, params] of [
      ["branch", { entryId: ids[0] }],
      ["set_session_name", { name: "first" }],
      ["set_label", { entryId: ids[1], label: "here" }],
      ["branch", { entryId: null }],
      ["set_session_name", { name: "second" }],
      ["set_label", { entryId: ids[1] }],
    ] as const) {
      await server.result(method, params);
      states.push(await state());
    }
    expect(states[3].labels).toEqual([ids[1], "here"]);
    expect((await operations(server)).map(({ kind, text }) => [kind, text])).toEqual([
      ["label", `Cleared the label "here" of ${ids[1]}.`],
      ["rename", 'Named the session "second", which was "first".'],
      ["branch", expect.stringMatching(/^Moved the leaf from \w+ to before the first entry\.$/)],
      ["label", `Labelled ${ids[1]} "here".`],
      ["rename", 'Named the session "first".'],
      ["branch", `Moved the leaf from ${ids[2]} to ${ids[0]}.`],
    ]);
    for (const wanted of states.slice(0, -1).reverse()) {
      await server.result("undo");
      expect(await state()).toEqual(wanted);
    }
    expect((await server.failure("undo")).data.name).toBe("operation_not_found");
    for (const wanted of states.slice(1)) {
      await server.result("redo");
      expect(await state()).toEqual(wanted);
    }
    expect((await server.failure("redo")).data.name).toBe("operation_not_found");
  });

  test("the host hears of it as of any change", async () => {
    const { server, ids } = await open();
    await server.result("branch", { entryId: ids[0], label: "there" });
    await server.result("set_session_name", { name: "first" });
    await server.result("get_state");
    server.events.length = 0;
    await server.result("undo");
    await server.result("undo");
    await server.result("get_state");
    const told = server.events.map(({ method, params }) => [method, params.name ?? params.newLeafId ?? params.origin]);
    expect(told).toEqual([
      ["session_append", "self"],
      ["session_info_changed", undefined],
      ["session_tree", expect.any(String)],
      ["session_append", "self"],
      ["session_tree", ids[2]],
    ]);
  });

  test("requests that come in one write are taken in their order", async () => {
    const { server, ids } = await open();
    const call = (number: number, method: string, params: object = {}): Json => ({
      jsonrpc: "2.0",
      id: `r${number}`,
      method,
      params,
    });
    server.send(
      call(1, "branch", { entryId: ids[0] }),
      call(2, "branch", { entryId: ids[1] }),
      call(3, "undo"),
      call(4, "undo"),
      call(5, "redo"),
      call(6, "get_state"),
    );
    for (let n = 1; n < 6; n++) expect((await server.reply(`r${n}`)).error).toBeUndefined();
    expect((await server.reply("r6")).result.leafId).toBe(ids[0]);
  });

  test("what went on since is not taken back, and said", async () => {
    const { server, ids } = await open();
    await server.result("branch", { entryId: ids[0] });
    const { entryIds } = await server.result("append", { entries: [user("on")] });
    const error = await server.failure("undo");
    expect(error.data).toMatchObject({ name: "ground_moved", leafId: entryIds[0] });
    expect(error.message).toContain(`The leaf is ${entryIds[0]} now.`);
    expect((await server.result("get_state")).leafId).toBe(entryIds[0]);
    await server.result("set_session_name", { name: "first" });
    const [{ operationId }] = await operations(server);
    await server.result("set_session_name", { name: "second" });
    expect((await server.failure("undo", { operationId })).message).toContain('The name is "second" now.');
    await server.result("set_label", { entryId: ids[0], label: "a" });
    const [labelled] = await operations(server);
    await server.result("set_label", { entryId: ids[0], label: "b" });
    const refused = await server.failure("undo", { operationId: labelled.operationId.slice(0, 4) });
    expect([refused.data.name, refused.data.label]).toEqual(["ground_moved", "b"]);
  });

  test("an operation that was named goes alone, and an undo of an undo is a redo", async () => {
    const { server, ids } = await open();
    await server.result("set_session_name", { name: "first" });
    const [named] = await operations(server);
    await server.result("set_label", { entryId: ids[0], label: "a" });
    await server.result("append", { entries: [user("on")] });
    const { leafId } = await server.result("get_state");
    const { newOperationId } = await server.result("undo", { operationId: named.operationId });
    expect(await server.result("get_state")).toMatchObject({ sessionName: null, leafId });
    expect((await server.failure("undo", { operationId: named.operationId })).data.name).toBe("cannot_undo");
    const { kind, operationId } = await server.result("undo", { operationId: newOperationId });
    expect([kind, operationId]).toEqual(["rename", named.operationId]);
    expect((await server.result("get_state")).sessionName).toBe("first");
    expect((await operations(server)).map((row) => [row.kind, row.canUndo])).toEqual([
      ["redo", true],
      ["undo", false],
      ["label", true],
      ["rename", true],
    ]);
  });

  test("a change that could not be made durable is no operation", async () => {
    const place = temporaryPlace();
    let fails = false;
    const { disk } = failingDisk((_count, name) => (fails && name === "sync" ? "EIO" : undefined));
    const server = serveHere(["--store", store, "--events", "none"], { place, disk });
    const { entryIds } = await server.result("append", { entries: [user("one"), user("two")] });
    fails = true;
    expect((await server.failure("set_label", { entryId: entryIds[0], label: "lost" })).data.name).toBe(
      "storage_failed",
    );
    fails = false;
    expect(await operations(server)).toEqual([]);
    expect((await server.failure("undo")).data.name).toBe("operation_not_found");
  });
});

/** A server without a session, and the files that lie in the session folders. */
function library(place = temporaryPlace(), args: string[] = []): { place: Place; server: HereServer } {
  return { place, server: serveLibrary(place, args) };
}

describe("whole sessions", () => {
  test.each(["archive_session", "delete_session", "relocate_session"] as const)(
    "what was moved comes back byte for byte, with nothing beside it (%s)",
    async (method) => {
      const { place, server } = library();
      const file = putSession(place, 1);
      put(`${file}.v1.bak`, "a backup");
      mkdirSync(join(place.home, "new"));
      const before = contentsOf(rootOf(place));
      const params = method === "relocate_session" ? { ...one, cwd: join(place.home, "new") } : one;
      const { movedTo } = await server.result(method, params);
      const { kind, sessionPath, text } = await server.result("undo");
      expect([kind, sessionPath]).toEqual([method.replace("_session", ""), file]);
      expect(text).toMatch(/^Took back: (Archived|Deleted|Relocated) "say a0000000"/);
      expect([method, contentsOf(rootOf(place))]).toEqual([method, before]);
      await server.result("redo");
      expect(existsSync(file)).toBe(false);
      if (method !== "delete_session") expect(existsSync(movedTo)).toBe(true);
      await server.result("undo");
      expect([method, contentsOf(rootOf(place))]).toEqual([method, before]);
      const trash = join(place.state, "trash");
      expect(existsSync(trash) ? readdirSync(trash) : []).toEqual([]);
    },
  );

  test("a relocated session that went on comes back with what was added", async () => {
    const { place, server } = library();
    const file = putSession(place, 1);
    const before = read(file);
    const { movedTo } = await server.result("relocate_session", { ...one, cwd: "/elsewhere", allowMissing: true });
    await server.result("open_session", { sessionPath: movedTo });
    await server.result("append", { ...one, entries: [user("more")] });
    expect((await server.failure("undo")).data.name).toBe("session_locked");
    await server.result("close_session", one);
    await server.result("undo");
    expect(read(file).startsWith(before)).toBe(true);
    expect(read(file)).toContain("more");
    // The original is the beginning of the file, and the other one has nothing else but a directory that is recorded.
    expect(readdirSync(dirname(file))).toEqual([basename(file)]);
  });

  test("a relocation is not taken back over another one", async () => {
    const { server } = library(temporaryPlace());
    const place = server.place;
    const file = putSession(place, 1);
    await server.result("relocate_session", { ...one, cwd: "/elsewhere", allowMissing: true });
    put(file, fileText(headerText({ id: sessionId(7), cwd: CWD }), ...chain(1)));
    const error = await server.failure("undo");
    expect([error.data.name, error.data.path]).toEqual(["ground_moved", file]);
    rmSync(file);
    await server.result("undo");
    expect(await listed(server)).toEqual([sessionId(1)]);
  });

  test("where something else is now, or nothing, it is said, and nothing is changed", async () => {
    const { place, server } = library();
    const file = putSession(place, 1);
    const { movedTo } = await server.result("archive_session", one);
    const [{ operationId }] = await operations(server);
    renameSync(movedTo, `${movedTo}.aside`);
    expect((await server.failure("undo", { operationId })).data).toMatchObject({ name: "ground_moved", path: movedTo });
    put(movedTo, fileText(headerText({ id: sessionId(8) }), ...chain(1)));
    expect((await server.failure("undo", { operationId })).message).toContain("is another session now");
    rmSync(movedTo);
    renameSync(`${movedTo}.aside`, movedTo);
    await server.result("undo", { operationId });
    await server.result("delete_session", one);
    rmSync(join(place.state, "trash"), { recursive: true });
    expect((await server.failure("undo")).message).toContain("The trash does not have it any more.");
    expect(existsSync(file)).toBe(false);
  });

  test("what cannot be taken back says so in the list, and nothing older is taken back in its place", async () => {
    const { place, server } = library();
    putSession(place, 1);
    putSession(place, 2);
    await server.result("archive_session", { sessionId: sessionId(2) });
    await server.result("delete_session", { ...one, permanent: true });
    const [gone] = await operations(server);
    expect(gone).toMatchObject({ kind: "delete", canUndo: false, reason: expect.stringContaining("deleted for good") });
    expect((await server.failure("undo", { operationId: gone.operationId })).data.name).toBe("cannot_undo");
    const { message, data } = await server.failure("undo");
    expect(data).toMatchObject({
      name: "cannot_undo",
      operationId: gone.operationId,
      next: { sessionId: sessionId(2) },
    });
    expect(message).toContain(`The newest that can be undone is ${data.next.operationId}: Archived `);
    expect((await server.result("undo", { operationId: data.next.operationId })).kind).toBe("archive");
  });

  test("a restoration of what was there already is not taken back, nor a deletion of it", async () => {
    const { place, server } = library();
    const file = putSession(place, 1);
    const bytes = read(file);
    await server.result("delete_session", one);
    put(file, bytes);
    const [{ operationId }] = await operations(server);
    expect((await server.failure("undo", { operationId })).data).toMatchObject({ name: "ground_moved", path: file });
    await server.result("restore_session", one);
    const [restored] = await operations(server);
    expect([restored.kind, restored.canUndo]).toEqual(["restore", false]);
    expect((await server.failure("undo")).message).toContain("Nothing else can be undone.");
    expect(read(file)).toBe(bytes);
  });

  test("an import goes to the trash; one that continued a session stays, and says so", async () => {
    const { place, server } = library();
    const outside = put(join(place.cwd, "in.jsonl"), fileText(headerText({ id: sessionId(5) }), ...chain(2)));
    await server.result("import_session", { path: outside });
    await server.result("undo");
    expect(await listed(server)).toEqual([]);
    await server.result("redo");
    expect(await listed(server)).toEqual([sessionId(5)]);
    put(outside, fileText(headerText({ id: sessionId(5) }), ...chain(4)));
    expect((await server.result("import_session", { path: outside })).outcome).toBe("continued");
    const [continued, imported] = await operations(server);
    expect([continued.kind, continued.canUndo, continued.reason]).toEqual(["import", false, expect.any(String)]);
    // The import that made it is known by its redo, and the session went on since.
    expect((await server.failure("undo", { operationId: imported.operationId })).data.name).toBe("ground_moved");
  });

  test("what a program without our lock adds while a repair is taken back stays in the session", async () => {
    const place = temporaryPlace();
    const file = putSession(place, 1, { lines: [...chain(3), userText("c0000000", id(2), "x")] });
    put(file, read(file).replace('"say a0000001"', '"say a000'));
    const added = `${userText("d0000000", "c0000000", "added")}\n`;
    const disk: Disk = Object.create(realDisk);
    disk.link = (from, to) => {
      realDisk.link(from, to);
      if (to.includes(".repaired.bak")) appendFileSync(file, added);
    };
    const server = serveHere(["--events", "none"], { place, disk });
    await server.result("open_session", { sessionPath: file });
    await server.result("repair_session", one);
    await server.result("close_session", one);
    const repaired = read(file);
    expect((await server.failure("undo")).data.name).toBe("ground_moved");
    expect(read(file)).toBe(repaired + added);
    expect(readdirSync(dirname(file)).filter((name) => name.includes(".repaired."))).toEqual([]);
  });

  test("whether a change under way happened is said by the process that makes it, whatever others found meanwhile", async () => {
    const place = temporaryPlace();
    const file = putSession(place, 1);
    const other = serveLibrary(place);
    const { movedTo } = await other.result("archive_session", one);
    const log = join(place.state, "operations", "1.jsonl");
    const [begun, done] = read(log).split("\n").filter(Boolean);
    // The other process has begun, and goes on while this one records that nothing has happened.
    renameSync(movedTo, file);
    writeFileSync(log, `\n${begun}\n`);
    const { id: operationId } = JSON.parse(begun);
    const disk: Disk = Object.create(realDisk);
    let conclusions = 0;
    disk.write = (fd, bytes, ...rest) => {
      if (Buffer.from(bytes).includes(operationId) && conclusions++ === 0) {
        renameSync(file, movedTo);
        appendFileSync(log, `\n${done}\n`);
      }
      return realDisk.write(fd, bytes, ...rest);
    };
    const server = serveHere(["--events", "none"], { place, disk });
    expect((await server.failure("undo")).data.name).toBe("operation_not_found");
    expect(conclusions, "without the lock nothing is recorded").toBe(1);
    expect(await server.result("undo")).toMatchObject({ operationId, kind: "archive" });
    expect(existsSync(file)).toBe(true);
  });

  acrossTiers(test, ["jsonl", "v2"] as const)("a repair is taken back to the damaged bytes (%s)", async (store) => {
    const { place, server } = library();
    const { file, sessionPath } = await putDamaged(server, place, store);
    const damaged = contentsOf(dirname(file));
    const parts = (path: string): boolean =>
      /\.jsonl$|\.seg$/.test(path) && !path.includes(".bak") && !path.includes("index");
    await server.result("open_session", { sessionPath });
    const { backupPath } = await server.result("repair_session", one);
    expect(backupPath).not.toBeNull();
    await server.result("undo");
    for (const [path, bytes] of Object.entries(damaged))
      if (parts(path)) {
        const isSame = path.includes("ledger") ? read(path).startsWith(bytes) : read(path) === bytes;
        expect(isSame, path).toBe(true);
      }
    expect((await server.result("get_entries", one)).entries.length).toBeGreaterThan(0);
    await server.result("redo");
    expect((await server.result("repair_session", { ...one, dryRun: true })).repaired).toEqual([]);
    // Named since: the name would be lost with the file that has it.
    await server.result("set_session_name", { sessionPath, name: "mended" });
    const repair = (await operations(server)).find(({ kind }) => kind === "repair");
    expect((await server.failure("undo", { operationId: repair.operationId })).data.name).toBe("ground_moved");
    await server.result("undo");
    await server.result("undo");
    await server.result("close_session", one);
  });
});

test("a session that was migrated, then relocated, goes back to a file of its new directory, and again", async () => {
  const { place, server } = library();
  const file = putSession(place, 1);
  await server.result("migrate_session", { sessionPath: file });
  const { movedTo } = await server.result("relocate_session", { ...one, cwd: "/new/place", allowMissing: true });
  const header = read(join(movedTo, "header.jsonl"));
  const { sessionPath } = await server.result("rollback_migration", { sessionPath: movedTo });
  expect(read(sessionPath)).toBe(fileText(headerText({ id: sessionId(1), cwd: "/new/place" }), ...chain(3)));
  expect((await server.result("list_sessions", { cwd: "/new/place" })).sessions[0].sessionPath).toBe(sessionPath);
  await server.result("undo");
  expect(read(join(movedTo, "header.jsonl"))).toBe(header);
  await server.result("undo");
  await server.result("undo");
  expect(read(file)).toBe(fileText(headerText({ id: sessionId(1), cwd: CWD }), ...chain(3)));
  expect(await listed(server)).toEqual([sessionId(1)]);
});

describe("who may", () => {
  test("with --read-only the list is read, nothing is taken back, and nothing is written", async () => {
    const { place, server } = library();
    putSession(place, 1);
    await server.result("archive_session", one);
    await server.finish();
    const before = contentsOf(place.home);
    const reader = serveLibrary(place, ["--read-only", "--no-session"]);
    expect((await operations(reader)).map(({ kind }) => kind)).toEqual(["archive"]);
    for (const method of ["undo", "redo"]) expect((await reader.failure(method)).data.name).toBe("read_only");
    await reader.finish();
    const left = contentsOf(place.home);
    for (const path of Object.keys(before).filter((name) => !name.includes("catalog")))
      expect([path, left[path]]).toEqual([path, before[path]]);
  });

  test("with --confine nothing of other folders is listed, taken back or told", async () => {
    const place = temporaryPlace();
    const outside = putSession(place, 1, { folder: temporaryFolder(), name: "outside.jsonl" });
    putSession(place, 2);
    const free = serveLibrary(place);
    await free.result("delete_session", { sessionPath: outside });
    await free.result("set_session_name", {
      sessionPath: (await free.result("list_sessions")).sessions[0].sessionPath,
      name: "a",
    });
    const [, deleted] = await operations(free);
    await free.finish();
    const confined = serveLibrary(place, ["--confine"]);
    expect((await operations(confined)).map(({ kind }) => kind)).toEqual(["rename"]);
    expect((await confined.result("list_trash")).items).toEqual([]);
    expect((await confined.failure("undo", { operationId: deleted.operationId })).data.name).toBe(
      "operation_not_found",
    );
    expect((await confined.result("undo")).kind).toBe("rename");
    expect((await confined.failure("undo")).data.name).toBe("operation_not_found");
    expect((await confined.failure("restore_session", { sessionId: sessionId(1).slice(0, 8) })).data.name).toBe(
      "session_not_found",
    );
  });

  test("a session that another process writes to is refused, and one that was forged does nothing", async () => {
    const place = temporaryPlace();
    const file = putSession(place, 1);
    const holder = serveHere(["--session", file, "--events", "none"], { place });
    await holder.result("set_session_name", { name: "held" });
    const server = serveLibrary(place);
    const { data } = await server.failure("undo");
    expect(data).toMatchObject({ name: "session_locked", holder: { pid: process.pid } });
    await holder.finish();
    const log = join(place.state, "operations", "1.jsonl");
    const forged = {
      ...{ id: "ffffffffffff", at: "2026-01-24T16:22:26.831Z", kind: "archive", stage: "done", name: null, text: "x" },
      ...{ sessionId: sessionId(1), sessionPath: file, step: { do: "trash", from: file, item: place.home } },
    };
    writeFileSync(log, `${read(log)}\n${JSON.stringify(forged)}\n{"id":\n[1]\n{"id":"a","step":{"do":"move"}}\n`);
    expect((await server.failure("undo", { operationId: "ffff" })).data.name).toBe("ground_moved");
    // By itself it counts as taken back: the session is where it would come to.
    expect((await server.result("undo")).kind).toBe("rename");
    expect((await listed(server)).length).toBe(1);
  });

  test("a session in memory has no operations", async () => {
    const server = serveHere(["--no-session", "--events", "none"]);
    const { entryIds } = await server.result("append", { entries: [user("one"), user("two")] });
    await server.result("branch", { entryId: entryIds[0] });
    await server.result("set_label", { entryId: entryIds[0], label: "a" });
    expect(await operations(server)).toEqual([]);
    expect(existsSync(join(server.place.state, "operations"))).toBe(false);
  });
});

describe("the list", () => {
  test("comes in pages, by session wherever it lies, by time, and by beginnings of ids", async () => {
    const { place, server } = library();
    const file = putSession(place, 1);
    putSession(place, 2);
    await server.result("set_session_name", { sessionPath: file, name: "\u001b[2J named" });
    const { movedTo } = await server.result("archive_session", one);
    await server.result("archive_session", { sessionId: sessionId(2) });
    const all = await operations(server);
    expect(all.map(({ kind }) => kind)).toEqual(["archive", "archive", "rename"]);
    const first = await server.result("list_operations", { limit: 2 });
    const second = await server.result("list_operations", { limit: 2, cursor: first.nextCursor });
    expect([...first.operations, ...second.operations]).toEqual(all);
    expect(second.nextCursor).toBeUndefined();
    for (const sessionPath of [file, movedTo])
      expect((await operations(server, { sessionPath })).map(({ kind }) => kind)).toEqual(["archive", "rename"]);
    expect(await operations(server, { sessionId: sessionId(2) })).toEqual([all[0]]);
    expect((await server.failure("list_operations", { sessionId: sessionId(2).slice(0, 8) })).data).toMatchObject({
      name: "ambiguous_id",
      matches: 2,
    });
    expect(await operations(server, { since: all[0].at })).toEqual([all[0]]);
    expect((await server.failure("list_operations", { cursor: "nothing" })).data.name).toBe("cursor_expired");
    expect((await server.failure("undo", { operationId: "zzzz" })).data.name).toBe("operation_not_found");
    await server.result("undo", { sessionPath: file });
    expect(await listed(server)).toEqual([sessionId(1)]);
  });

  test("an operation of a session is undone where it lies now", async () => {
    const { place, server } = library();
    const file = putSession(place, 1);
    await server.result("set_session_name", { sessionPath: file, name: "first" });
    const [{ operationId }] = await operations(server);
    const { movedTo } = await server.result("archive_session", one);
    expect((await server.result("undo", { operationId })).sessionPath).toBe(movedTo);
    expect((await server.result("list_sessions", { archived: true })).sessions[0].name).toBe(null);
  });
});

describe("the trash", () => {
  test("is listed with names, sizes and ages, and gives back by a short id", async () => {
    const { place, server } = library();
    for (const n of [1, 2]) putSession(place, n, { header: { id: `${n}bcdef01-same` }, name: `${n}.jsonl` });
    const file = (await server.result("list_sessions")).sessions.map(({ sessionPath }: Json) => sessionPath).sort()[0];
    await server.result("set_session_name", { sessionPath: file, name: "of the first" });
    for (const n of [1, 2]) await server.result("delete_session", { sessionId: `${n}bcdef01-same` });
    const { items, total, totalBytes, desktopTrash } = await server.result("list_trash");
    expect(items.map(({ name, messageCount, sessionId: of }: Json) => [of, name, messageCount])).toEqual([
      ["2bcdef01-same", null, 3],
      ["1bcdef01-same", "of the first", 3],
    ]);
    expect([total, totalBytes, desktopTrash]).toEqual([2, items[0].sizeBytes + items[1].sizeBytes, false]);
    expect((await server.failure("restore_session", { sessionId: "1bc" })).data.name).toBe("ambiguous_id");
    expect((await server.result("restore_session", { sessionId: "1bcd" })).movedTo).toBe(file);
    const page = await server.result("list_trash", { limit: 1 });
    expect([page.items.length, page.nextCursor]).toEqual([1, undefined]);
  });

  test("several that begin so are listed with their names, and the newest of one session counts", async () => {
    const { place, server } = library();
    for (const n of [1, 2]) putSession(place, n);
    const [{ sessionPath }] = (await server.result("list_sessions")).sessions;
    await server.result("set_session_name", { sessionPath, name: "the named one" });
    for (const n of [1, 2]) await server.result("delete_session", { sessionId: sessionId(n) });
    const error = await server.failure("restore_session", { sessionId: sessionId(1).slice(0, 8) });
    expect([error.data.name, error.data.matches]).toEqual(["ambiguous_id", 2]);
    expect(error.message).toContain(sessionId(1));
    expect(error.message).toContain(sessionId(2));
    expect(error.message).toContain('"the named one"');
  });
});

describe("undo takes back the last command and no older one", () => {
  async function named(): Promise<{ server: HereServer; file: string }> {
    const place = temporaryPlace();
    const server = serveLibrary(place);
    const file = putSession(place, 1);
    await server.result("open_session", { sessionPath: file });
    await server.result("set_session_name", { ...one, name: "kept" });
    return { server, file };
  }

  test.each(["fork", "clone"])("which is a %s: the copy goes to the trash, and comes again", async (method) => {
    const { server, file } = await named();
    const entryId = method === "fork" ? id(2) : undefined;
    const { sessionFile } = await server.result(method, { ...one, entryId });
    const [forked] = await operations(server);
    expect(forked).toMatchObject({ kind: "fork", sessionPath: sessionFile, text: 'Forked "kept".', canUndo: true });
    expect((await server.failure("undo")).data).toMatchObject({ name: "session_locked", sessionPath: sessionFile });
    await server.result("switch_session", { sessionPath: file });
    expect(await server.result("undo")).toMatchObject({ kind: "fork", sessionPath: sessionFile });
    expect(existsSync(sessionFile)).toBe(false);
    expect((await server.result("get_state")).sessionName).toBe("kept");
    await server.result("redo");
    writeFileSync(sessionFile, `${read(sessionFile)}${userText(id(8), null)}\n`);
    expect((await server.failure("undo")).data).toMatchObject({ name: "ground_moved", added: 1 });
    expect(existsSync(sessionFile)).toBe(true);
  });

  test("which is a merge: the leaf goes back to where it was", async () => {
    const { server } = await named();
    const { leafId } = await server.result("get_state", one);
    await server.result("branch", { ...one, entryId: id(0) });
    await server.result("append", { ...one, entries: [user("otherwise")] });
    const before = (await server.result("get_state", one)).leafId;
    await server.result("merge_branch", { ...one, from: leafId, summary: "what it found" });
    expect((await operations(server))[0]).toMatchObject({ kind: "merge", canUndo: true });
    expect((await server.result("undo", one)).kind).toBe("merge");
    expect(await server.result("get_state", one)).toMatchObject({ leafId: before, sessionName: "kept" });
  });

  test("but not a fork that failed", async () => {
    const { server } = await named();
    await server.failure("fork", { ...one, entryId: "nowhere" });
    expect((await server.result("undo")).kind).toBe("rename");
  });

  test("which is a fork that somebody removed: it is named, and nothing older is taken back", async () => {
    const { server, file } = await named();
    const { sessionFile } = await server.result("clone", one);
    await server.result("switch_session", { sessionPath: file });
    rmSync(sessionFile);
    for (let n = 0; n < 2; n++)
      expect((await server.failure("undo")).data).toMatchObject({ name: "ground_moved", path: sessionFile });
    expect((await server.result("get_state", one)).sessionName).toBe("kept");
    expect((await server.result("undo", one)).kind).toBe("rename");
  });

  test("also where one that somebody took back by other means stands between, and the session is not current", async () => {
    const { server } = await named();
    const file = putSession(server.place, 2);
    const { movedTo } = await server.result("archive_session", { sessionPath: file });
    renameSync(movedTo, file);
    expect(await server.result("undo")).toMatchObject({ kind: "rename" });
  });
});
