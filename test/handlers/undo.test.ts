/** Undo and redo over the wire: each kind of operation, several as one, the refusals, and the reports. */

import { appendFileSync, existsSync, readdirSync, realpathSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { append, nameOf } from "../support/asking.ts";
import { user } from "../support/drafts.ts";
import {
  CWD,
  contentsOf,
  type Library,
  library,
  listed,
  one,
  put,
  putDamaged,
  putSession,
  read,
  serveLibrary,
  sessionId,
} from "../support/lifecycle.ts";
import { chain, fileText, headerText, id, userText } from "../support/lines.ts";
import { type HereServer, type Json, serveHere, temporaryFolder, temporaryPlace } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";
import { runHere } from "../support/verbs.ts";

const two = { sessionId: sessionId(2) };

async function operations(server: HereServer, params: object = {}): Promise<Json[]> {
  return (await server.result("list_operations", params)).operations;
}

const kindsOf = async (server: HereServer, params: object = {}): Promise<string[]> =>
  (await operations(server, params)).map(({ kind }) => kind);

acrossTiers(describe, ["jsonl", "v2"] as const)("in a session of %s", (store) => {
  async function open(): Promise<{ server: HereServer; ids: string[] }> {
    const server = serveHere(["--store", store]);
    await server.result("initialize", {});
    return { server, ids: await append(server, user("one"), user("two"), user("three")) };
  }

  test("each change has a text, and the host hears of its undo as of any change", async () => {
    const { server, ids } = await open();
    await server.result("branch", { entryId: ids[0], label: "there" });
    await server.result("set_session_name", { name: "first" });
    expect((await operations(server)).map(({ text }) => text)).toEqual([
      'Named the session "first".',
      expect.stringMatching(new RegExp(`^Moved the leaf from ${ids[2]} to `)),
    ]);
    await server.result("get_state");
    server.events.length = 0;
    for (const method of ["undo", "undo", "get_state"]) await server.result(method);
    const seen = server.events.map(({ method, params }) => [method, params.name ?? params.newLeafId ?? params.origin]);
    expect(seen).toEqual([
      ["session_append", "self"],
      ["session_info_changed", undefined],
      ["session_tree", expect.any(String)],
      ["session_append", "self"],
      ["session_tree", ids[2]],
    ]);
  });

  test("names and labels that append sets are one operation, and its other entries stay", async () => {
    const { server, ids } = await open();
    const label = (targetId: string, label: string): Json => ({ type: "label", targetId, label });
    const name = (name: string | null): Json => ({ type: "session_info", name });
    await append(server, label(ids[0], "a"));
    const [, , leafId] = await append(server, name("n"), label(ids[0], "b"), user("stays", { id: "stays" }));
    expect((await operations(server)).map(({ kind, text }) => [kind, text])).toEqual([
      ["label", 'Named the session "n". And 1 more.'],
      ["label", `Labelled ${ids[0]} "a".`],
    ]);
    server.events.length = 0;
    await server.result("undo");
    const labelOf = async (): Promise<unknown> => {
      const { nodes } = await server.result("get_tree", { format: "flat" });
      return nodes.find(({ id }: Json) => id === ids[0]).label;
    };
    expect(await labelOf()).toBe("a");
    expect(await server.result("get_state")).toMatchObject({ leafId, sessionName: null });
    await server.result("redo");
    expect([await labelOf(), (await server.result("get_state")).sessionName]).toEqual(["b", "n"]);
    await append(server, name(null));
    expect(await operations(server, { limit: 1 })).toMatchObject([
      { kind: "rename", text: 'Cleared the name of the session, which was "n".' },
    ]);
    const names = server.events.flatMap(({ method, params }) =>
      method === "session_info_changed" ? [params.name] : [],
    );
    expect(names).toEqual([null, "n", null]);
  });

  test.each(["fork", "clone"])("%s with a name is one operation, and one undo takes both back", async (method) => {
    const { server, ids } = await open();
    const { sessionId: original } = await server.result("get_state");
    const before = await kindsOf(server);
    const params = method === "fork" ? { entryId: ids[1], position: "at" } : {};
    const made = await server.result(method, { ...params, name: "a\ncopy" });
    const { sessionName, entryCount } = await server.result("get_state");
    expect([sessionName, entryCount]).toEqual(["a copy", method === "fork" ? 3 : 4]);
    expect(await kindsOf(server)).toEqual(["fork", ...before]);
    await server.result("switch_session", { sessionId: original });
    await server.result("undo");
    expect(existsSync(made.sessionFile)).toBe(false);
    expect((await server.failure(method, { ...params, name: " \n" })).code).toBe(-32602);
  });

  test("what went on since is not taken back, and said", async () => {
    const { server, ids } = await open();
    await server.result("branch", { entryId: ids[0] });
    const [leafId] = await append(server, user("on"));
    const { data, message } = await server.failure("undo");
    expect(data).toMatchObject({ name: "ground_moved", leafId });
    expect(message).toContain(`The leaf is ${leafId} now.`);
    expect((await server.result("get_state")).leafId).toBe(leafId);
    await server.result("set_session_name", { name: "first" });
    const [{ operationId }] = await operations(server);
    await server.result("set_session_name", { name: "second" });
    expect((await server.failure("undo", { operationId })).message).toContain('The name is "second" now.');
    await server.result("set_label", { entryId: ids[0], label: "a" });
    const [labelled] = await operations(server);
    await server.result("set_label", { entryId: ids[0], label: "b" });
    const refused = await server.failure("undo", { operationId: labelled.operationId.slice(0, 4) });
    expect(refused.data).toMatchObject({ name: "ground_moved", label: "b" });
  });

  test("an operation that was named goes alone, and an undo of an undo is a redo", async () => {
    const { server, ids } = await open();
    await server.result("set_session_name", { name: "first" });
    const [{ operationId }] = await operations(server);
    await server.result("set_label", { entryId: ids[0], label: "a" });
    await append(server, user("on"));
    const { leafId } = await server.result("get_state");
    const { newOperationId } = await server.result("undo", { operationId });
    expect(await server.result("get_state")).toMatchObject({ sessionName: null, leafId });
    expect(await nameOf(server, "undo", { operationId })).toBe("cannot_undo");
    const again = await server.result("undo", { operationId: newOperationId });
    expect(again).toMatchObject({ kind: "rename", operationId });
    expect((await server.result("get_state")).sessionName).toBe("first");
    const rows = (await operations(server)).map((row) => `${row.kind} ${row.canUndo}`);
    expect(rows).toEqual(["redo true", "undo false", "label true", "rename true"]);
  });
});

describe("whole sessions", () => {
  test("a relocated session that went on comes back with what was added", async () => {
    const { server, file } = library();
    const before = read(file);
    const { movedTo } = await server.result("relocate_session", { ...one, cwd: "/elsewhere", allowMissing: true });
    await server.result("open_session", { sessionPath: movedTo });
    await server.result("append", { ...one, entries: [user("more")] });
    expect(await nameOf(server, "undo")).toBe("session_locked");
    await server.result("close_session", one);
    await server.result("undo");
    expect([read(file).startsWith(before), read(file)]).toEqual([true, expect.stringContaining("more")]);
    // The original is the beginning of the file, and the other one has nothing else but a directory that is recorded.
    expect(readdirSync(dirname(file))).toEqual([basename(file)]);
  });

  test("a relocation is not taken back over another one", async () => {
    const { server, file } = library();
    await server.result("relocate_session", { ...one, cwd: "/elsewhere", allowMissing: true });
    put(file, fileText(headerText({ id: sessionId(7), cwd: CWD }), ...chain(1)));
    expect((await server.failure("undo")).data).toMatchObject({ name: "ground_moved", path: file });
    rmSync(file);
    await server.result("undo");
    expect(await listed(server)).toEqual([sessionId(1)]);
  });

  test("where something else is now, or nothing, it is said, and nothing is changed", async () => {
    const { place, server, file } = library();
    const { movedTo } = await server.result("archive_session", one);
    const [{ operationId }] = await operations(server);
    renameSync(movedTo, `${movedTo}.aside`);
    expect((await server.failure("undo", { operationId })).data).toMatchObject({ name: "ground_moved", path: movedTo });
    const other = fileText(headerText({ id: sessionId(8) }), ...chain(1));
    put(movedTo, other);
    expect((await server.failure("undo", { operationId })).message).toContain("is another session now");
    // Nor is it taken for done because something is where the session was.
    rmSync(movedTo);
    put(file, other);
    expect(await nameOf(server, "undo", { operationId })).toBe("ground_moved");
    expect((await operations(server)).map(({ kind, undoneBy }) => [kind, undoneBy])).toEqual([["archive", undefined]]);
    renameSync(`${movedTo}.aside`, movedTo);
    rmSync(file);
    await server.result("undo", { operationId });
    await server.result("delete_session", one);
    rmSync(join(place.state, "trash"), { recursive: true });
    expect((await server.failure("undo")).message).toContain("The trash does not have it any more.");
    expect(existsSync(file)).toBe(false);
  });

  test("what cannot be taken back says so in the list, and nothing older is taken back in its place", async () => {
    const { server } = library(2);
    await server.result("archive_session", two);
    await server.result("delete_session", { ...one, permanent: true });
    const [gone] = await operations(server);
    expect(gone).toMatchObject({ kind: "delete", canUndo: false, reason: expect.stringContaining("deleted for good") });
    const { operationId } = gone;
    expect(await nameOf(server, "undo", { operationId })).toBe("cannot_undo");
    const { message, data } = await server.failure("undo");
    expect(data).toMatchObject({ name: "cannot_undo", operationId, next: two });
    expect(message).toContain(`The newest that can be undone is ${data.next.operationId}: Archived `);
    expect((await server.result("undo", { operationId: data.next.operationId })).kind).toBe("archive");
  });

  test("what the trash does not have any more cannot be taken back, and no failure advises it", async () => {
    const { server } = library(2);
    await server.result("archive_session", two);
    await server.result("delete_session", one);
    expect((await operations(server)).map(({ canUndo }) => canUndo)).toEqual([true, true]);
    await server.result("empty_trash");
    const rows = (await operations(server)).map(({ kind, canUndo, reason }) => [kind, canUndo, reason]);
    expect(rows[1]).toEqual(["delete", false, "The trash does not have it any more."]);
    const { data } = await server.failure("undo");
    expect(data).toMatchObject({ name: "cannot_undo", next: two });
    expect((await server.result("undo", { operationId: data.next.operationId })).kind).toBe("archive");
  });

  test.each(["for good", "to a trash that was emptied"])(
    "the operations of a session that was deleted %s are neither offered nor advised, and the others are",
    async (how) => {
      const { server, files } = library(2);
      await server.result("set_session_name", { sessionPath: files[0], name: "gone" });
      for (const method of ["delete_session", "restore_session", "delete_session", "undo", "archive_session"])
        await server.result(method, one);
      await server.result("set_session_name", { sessionPath: files[1], name: "kept" });
      expect((await operations(server, one)).filter(({ canUndo }) => canUndo).map(({ kind }) => kind)).toContain(
        "rename",
      );
      await server.result("delete_session", { ...one, permanent: how === "for good" });
      await server.result("empty_trash");
      const offered = (await operations(server)).filter(({ canUndo }) => canUndo);
      expect(offered.map(({ sessionId }) => sessionId)).toEqual([two.sessionId]);
      const { data, message } = await server.failure("undo", one);
      expect(data.next).toBeUndefined();
      expect(message.includes("Nothing else of this session can be undone.")).toBe(how === "for good");
      for (const { operationId } of await operations(server, one)) {
        const { next } = (await server.failure("undo", { ...one, operationId })).data;
        expect(next, operationId).toBeUndefined();
      }
      expect((await server.failure("undo")).data.next).toMatchObject(two);
    },
  );

  test("what cannot be taken back any more names the next older one, so that undo gets further back", async () => {
    const { server, files } = library(3);
    await server.result("set_session_name", { sessionPath: files[2], name: "kept" });
    await server.result("set_session_name", { sessionPath: files[0], name: "gone" });
    for (const where of [two, one]) {
      const { movedTo } = await server.result("archive_session", where);
      renameSync(movedTo, `${movedTo}.aside`);
    }
    const { data, message } = await server.failure("undo");
    expect(data).toMatchObject({ name: "ground_moved", next: two });
    expect(message).toContain(`The next older operation is ${data.next.operationId}: Archived `);
    // The name of a session that is nowhere has no way back either.
    const { next } = (await server.failure("undo", { operationId: data.next.operationId })).data;
    expect(next.sessionPath).toBe(files[2]);
    expect((await server.result("undo", { operationId: next.operationId })).kind).toBe("rename");
  });

  test("a restoration of what was there already is not taken back, nor a deletion of it", async () => {
    const { server, file } = library();
    const bytes = read(file);
    await server.result("delete_session", one);
    put(file, bytes);
    const [{ operationId }] = await operations(server);
    expect((await server.failure("undo", { operationId })).data).toMatchObject({ name: "ground_moved", path: file });
    await server.result("restore_session", one);
    expect((await operations(server))[0]).toMatchObject({ kind: "restore", canUndo: false });
    expect((await server.failure("undo")).message).toContain("Nothing else can be undone.");
    expect(read(file)).toBe(bytes);
  });

  test("an import goes to the trash; one that continued a session stays, and says so", async () => {
    const { place, server } = library(0);
    const header = headerText({ id: sessionId(5) });
    const path = put(join(place.cwd, "in.jsonl"), fileText(header, ...chain(2)));
    await server.result("import_session", { path });
    await server.result("undo");
    expect([await listed(server), (await server.result("redo")).kind]).toEqual([[], "import"]);
    put(path, fileText(header, ...chain(4)));
    expect((await server.result("import_session", { path })).outcome).toBe("continued");
    const [continued, { operationId }] = await operations(server);
    expect(continued).toMatchObject({ kind: "import", canUndo: false, reason: expect.any(String) });
    // The import that made it is known by its redo, and the session went on since.
    expect(await nameOf(server, "undo", { operationId })).toBe("ground_moved");
  });

  test("what a program without our lock adds while a repair is taken back stays in the session", async () => {
    const place = temporaryPlace();
    const added = `${userText("d0000000", "c0000000", "added")}\n`;
    const disk: Disk = Object.create(realDisk);
    const server = serveHere(["--events", "none"], { place, disk });
    const { file } = await putDamaged(server, place, "jsonl");
    disk.link = (from, to) => {
      realDisk.link(from, to);
      if (to.includes(".repaired.bak")) appendFileSync(file, added);
    };
    await server.result("open_session", { sessionPath: file });
    await server.result("repair_session", one);
    await server.result("close_session", one);
    const repaired = read(file);
    expect(await nameOf(server, "undo")).toBe("ground_moved");
    expect(read(file)).toBe(repaired + added);
    expect(readdirSync(dirname(file)).filter((name) => name.includes(".repaired."))).toEqual([]);
  });

  test("whether a change under way happened is said by the process that makes it, whatever others found meanwhile", async () => {
    const { place, server: other, file } = library();
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
    expect(await nameOf(server, "undo")).toBe("operation_not_found");
    expect(conclusions, "without the lock nothing is recorded").toBe(1);
    expect(await server.result("undo")).toMatchObject({ operationId, kind: "archive" });
    expect(existsSync(file)).toBe(true);
  });

  acrossTiers(test, ["jsonl", "v2"] as const)(
    "a repair stays while a name is in it that came since (%s)",
    async (store) => {
      const { place, server } = library(0);
      const { sessionPath } = await putDamaged(server, place, store);
      await server.result("open_session", { sessionPath });
      // A container that lost entries is not written to.
      if (store === "jsonl") await server.result("set_session_name", { ...one, name: "before it" });
      await server.result("repair_session", one);
      await server.result("undo");
      expect((await server.result("get_entries", one)).entries.length).toBeGreaterThan(0);
      await server.result("redo");
      expect((await server.result("repair_session", { ...one, dryRun: true })).repaired).toEqual([]);
      await server.result("set_session_name", { sessionPath, name: "mended" });
      const { operationId } = (await operations(server)).find(({ kind }) => kind === "repair");
      expect(await nameOf(server, "undo", { operationId })).toBe("ground_moved");
      for (const kind of ["rename", "repair"]) expect((await server.result("undo")).kind).toBe(kind);
    },
  );

  test("one that was migrated, then relocated, goes back to a file of its new directory, and again", async () => {
    const { server, file } = library();
    await server.result("migrate_session", { sessionPath: file });
    const { movedTo } = await server.result("relocate_session", { ...one, cwd: "/new/place", allowMissing: true });
    const header = read(join(movedTo, "header.jsonl"));
    const { sessionPath } = await server.result("rollback_migration", { sessionPath: movedTo });
    const textIn = (cwd: string): string => fileText(headerText({ id: sessionId(1), cwd }), ...chain(3));
    expect(read(sessionPath)).toBe(textIn("/new/place"));
    expect((await server.result("list_sessions", { cwd: "/new/place" })).sessions[0].sessionPath).toBe(sessionPath);
    await server.result("undo");
    expect(read(join(movedTo, "header.jsonl"))).toBe(header);
    await server.result("undo");
    await server.result("undo");
    expect([read(file), await listed(server)]).toEqual([textIn(CWD), [sessionId(1)]]);
  });

  test("a rollback of what was never migrated is no operation, and undo migrates nothing", async () => {
    const { server, file } = library();
    expect(await nameOf(server, "rollback_migration", { sessionPath: file })).toBe("migration_failed");
    expect([await operations(server), await nameOf(server, "undo")]).toEqual([[], "operation_not_found"]);
    for (let n = 0; n < 2; n++) await server.result("migrate_session", { sessionPath: file });
    expect(await kindsOf(server)).toEqual(["migrate"]);
  });
});

describe("who may", () => {
  test("with --confine nothing of other folders is listed, taken back or told", async () => {
    const { place, server: free, file } = library();
    const outside = putSession(place, 2, { folder: temporaryFolder(), name: "outside.jsonl" });
    await free.result("delete_session", { sessionPath: outside });
    await free.result("set_session_name", { sessionPath: file, name: "a" });
    const [, { operationId }] = await operations(free);
    await free.finish();
    const confined = serveLibrary(place, ["--confine"]);
    expect([await kindsOf(confined), (await confined.result("list_trash")).items]).toEqual([["rename"], []]);
    expect(await nameOf(confined, "undo", { operationId })).toBe("operation_not_found");
    expect((await confined.result("undo")).kind).toBe("rename");
    expect(await nameOf(confined, "undo")).toBe("operation_not_found");
    expect(await nameOf(confined, "restore_session", { sessionId: sessionId(2).slice(0, 8) })).toBe(
      "session_not_found",
    );
  });

  test("records and items that were forged move nothing that is no session and not left over of one", async () => {
    const { place, server, files } = library(2);
    const [file, other] = files;
    const key = put(join(place.home, "key"), "secret");
    const item = join(place.state, "trash", "item");
    const record = { sessionId: "", path: `${place.home}/start`, deletedAt: "2026-01-24T16:22:26.831Z" };
    put(join(item, "record.json"), JSON.stringify({ ...record, files: [record.path] }));
    put(join(item, "1-start"), "planted");
    const steps = [
      { do: "swap", path: file, inode: 1, other },
      { do: "swap", path: file, inode: 1, other: key },
      { do: "unprune", files: [key] },
      { do: "unprune", files: [file] },
      { do: "prune", files: [record.path], item },
      { do: "trash", from: file, item: place.home },
    ];
    const about = {
      at: record.deletedAt,
      kind: "repair",
      stage: "done",
      name: null,
      text: "x",
      state: realpathSync(place.state),
    };
    const lines = steps.map((step, n) => {
      const forged = { id: `${n}fffffffffff`, ...about, sessionId: sessionId(1), sessionPath: file, step };
      return `\n${JSON.stringify(forged)}\n`;
    });
    put(join(place.state, "operations", "1.jsonl"), `${lines.join("")}{"id":\n[1]\n{"id":"a","step":{"do":"move"}}\n`);
    const look = (): [string, string][] =>
      Object.entries(contentsOf(place.home)).filter(([path]) => !path.includes("operations"));
    const before = look();
    for (const n of steps.keys()) expect(await nameOf(server, "undo", { operationId: `${n}fff` })).toBe("ground_moved");
    expect(look()).toEqual(before);
  });

  test("a session in memory has no operations", async () => {
    const server = serveHere(["--no-session", "--events", "none"]);
    const [entryId] = await append(server, user("one"), user("two"));
    await server.result("branch", { entryId });
    await server.result("set_label", { entryId, label: "a" });
    expect(await operations(server)).toEqual([]);
    expect(existsSync(join(server.place.state, "operations"))).toBe(false);
  });
});

test("a name or a label that was changed in the file by hand stays", async () => {
  const { server, file } = library();
  for (const change of ["set_session_name", "set_label"]) {
    const long = "x".repeat(300);
    await server.result("open_session", { sessionPath: file });
    for (const text of ["before", `hand ${long}`])
      await server.result(
        change,
        change === "set_label" ? { ...one, entryId: id(0), label: text } : { ...one, name: text },
      );
    await server.result("close_session", one);
    const edited = read(file).replaceAll("hand x", "mine x");
    put(file, edited);
    const { data, message } = await server.failure("undo");
    expect([data.name, message]).toEqual([
      "ground_moved",
      expect.stringContaining(change === "set_label" ? "label" : "name"),
    ]);
    expect(message).toContain("mine xx");
    expect(read(file)).toBe(edited);
    put(file, edited.replaceAll("mine x", "hand x"));
    for (const method of ["undo", "redo", "undo"]) await server.result(method);
    expect(read(file).slice(edited.length)).toContain('"before"');
  }
});

describe("the list", () => {
  test("comes in pages, by session wherever it lies, by time, and by beginnings of ids", async () => {
    const { server, file } = library(2);
    await server.result("set_session_name", { sessionPath: file, name: "\u001b[2J named" });
    const { movedTo } = await server.result("archive_session", one);
    await server.result("archive_session", two);
    const all = await operations(server);
    expect(all.map(({ kind }) => kind)).toEqual(["archive", "archive", "rename"]);
    const first = await server.result("list_operations", { limit: 2 });
    const second = await server.result("list_operations", { limit: 2, cursor: first.nextCursor });
    expect([[...first.operations, ...second.operations], second.nextCursor]).toEqual([all, undefined]);
    for (const sessionPath of [file, movedTo])
      expect(await kindsOf(server, { sessionPath })).toEqual(["archive", "rename"]);
    expect(await operations(server, two)).toEqual([all[0]]);
    const { data } = await server.failure("list_operations", { sessionId: sessionId(2).slice(0, 8) });
    expect(data).toMatchObject({ name: "ambiguous_id", matches: 2 });
    expect(await operations(server, { since: all[0].at })).toEqual([all[0]]);
    expect(await nameOf(server, "list_operations", { cursor: "nothing" })).toBe("cursor_expired");
    expect(await nameOf(server, "undo", { operationId: "zzzz" })).toBe("operation_not_found");
    // An operation of a session is undone where it lies now.
    const { sessionPath } = await server.result("undo", { operationId: all[2].operationId });
    expect(sessionPath).toBe(movedTo);
    const { sessions } = await server.result("list_sessions", { archived: true });
    expect(sessions.map(({ name }: Json) => name)).toEqual([null, null]);
    await server.result("undo", { sessionPath: file });
    expect(await listed(server)).toEqual([sessionId(1)]);
  });
});

describe("the trash", () => {
  test("is listed with names, sizes and ages, and gives back by a short id", async () => {
    const { place, server } = library(0);
    const [file] = [1, 2].map((n) => putSession(place, n, { header: { id: `${n}bcdef01-same` }, name: `${n}.jsonl` }));
    await server.result("set_session_name", { sessionPath: file, name: "of the first" });
    for (const n of [1, 2]) await server.result("delete_session", { sessionId: `${n}bcdef01-same` });
    const { items, total, totalBytes, desktopTrash } = await server.result("list_trash");
    expect(items.map(({ name, messageCount, sessionId: of }: Json) => [of, name, messageCount])).toEqual([
      ["2bcdef01-same", null, 3],
      ["1bcdef01-same", "of the first", 3],
    ]);
    expect([total, totalBytes, desktopTrash]).toEqual([2, items[0].sizeBytes + items[1].sizeBytes, false]);
    expect(await nameOf(server, "restore_session", { sessionId: "1bc" })).toBe("ambiguous_id");
    expect((await server.result("restore_session", { sessionId: "1bcd" })).movedTo).toBe(file);
    const page = await server.result("list_trash", { limit: 1 });
    expect([page.items.length, page.nextCursor]).toEqual([1, undefined]);
  });
});

test("a session that is archived while an idle host has it open comes back, also after a write there failed", async () => {
  const { place, server, file } = library();
  const idle = serveLibrary(place, ["--session", file]);
  await idle.result("get_messages");
  await server.result("archive_session", one);
  expect(await nameOf(idle, "append", { entries: [user("nowhere")] })).toBe("storage_failed");
  await server.result("undo");
  expect(await append(idle, user("here again"))).toHaveLength(1);
});

describe("undo takes back the last command and no older one", () => {
  async function named(): Promise<{ server: HereServer; file: string }> {
    const { server, file } = library();
    await server.result("open_session", { sessionPath: file });
    await server.result("set_session_name", { ...one, name: "kept" });
    return { server, file };
  }

  test.each(["fork", "clone"])("which is a %s: the copy goes to the trash, and comes again", async (method) => {
    const { server, file } = await named();
    const { sessionFile } = await server.result(method, { ...one, entryId: method === "fork" ? id(2) : undefined });
    const [forked] = await operations(server);
    expect(forked).toMatchObject({ kind: "fork", sessionPath: sessionFile, text: 'Forked "kept".', canUndo: true });
    const { message, data } = await server.failure("undo");
    expect(data).toMatchObject({ name: "session_locked", operationId: forked.operationId, sessionPath: sessionFile });
    expect(message).toContain(`${forked.operationId}: Forked "kept". The session is open`);
    expect([data.parentSession, message]).toEqual([file, expect.stringContaining("switch_session")]);
    await server.result("switch_session", { sessionPath: data.parentSession });
    expect(await server.result("undo")).toMatchObject({ kind: "fork", sessionPath: sessionFile });
    expect([existsSync(sessionFile), (await server.result("get_state")).sessionName]).toEqual([false, "kept"]);
    await server.result("redo");
    appendFileSync(sessionFile, `${userText(id(8), null)}\n`);
    expect((await server.failure("undo")).data).toMatchObject({ name: "ground_moved", added: 1 });
    expect(existsSync(sessionFile)).toBe(true);
  });

  test("which is a merge: the leaf goes back to where it was", async () => {
    const { server } = await named();
    const { leafId: from } = await server.result("get_state", one);
    await server.result("branch", { ...one, entryId: id(0) });
    const { leafId } = await server.result("append", { ...one, entries: [user("otherwise")] });
    await server.result("merge_branch", { ...one, from, summary: "what it found" });
    expect((await operations(server))[0]).toMatchObject({ kind: "merge", canUndo: true });
    expect((await server.result("undo", one)).kind).toBe("merge");
    expect(await server.result("get_state", one)).toMatchObject({ leafId, sessionName: "kept" });
  });

  test("but not a fork that failed", async () => {
    const { server } = await named();
    await server.failure("fork", { ...one, entryId: "nowhere" });
    expect((await server.result("undo")).kind).toBe("rename");
  });

  test.each(["archive_session", "delete_session"])(
    "which a person took back by hand: it stays in the list with the reason, and nothing older goes (%s)",
    async (method) => {
      const { server } = await named();
      const file = putSession(server.place, 2);
      const { movedTo } = await server.result(method, { sessionPath: file });
      const [{ operationId }] = await operations(server);
      renameSync(movedTo, file);
      for (let n = 0; n < 2; n++) {
        const { data, message } = await server.failure("undo");
        expect(data).toMatchObject({ name: "ground_moved", operationId, next: one });
        expect(message).toContain("It was taken back already, by other means.");
      }
      const [row, { canUndo }] = await operations(server);
      expect(row).toMatchObject({ operationId, canUndo: false, reason: "It was taken back already, by other means." });
      expect([canUndo, (await server.result("get_state", one)).sessionName]).toEqual([true, "kept"]);
      expect((await server.result("undo", one)).kind).toBe("rename");
    },
  );

  test("which is in a file that was put back as it was before: nothing older goes", async () => {
    const { server, file } = library(2);
    await server.result("archive_session", two);
    const before = read(file);
    await server.result("set_session_name", { sessionPath: file, name: "newest" });
    put(file, before);
    expect((await server.failure("undo")).data).toMatchObject({ name: "ground_moved", next: two });
    expect(await listed(server)).toEqual([sessionId(1)]);
  });

  test("which is a fork that somebody removed: it is named, and nothing older is taken back", async () => {
    const { server, file } = await named();
    const { sessionFile: path } = await server.result("clone", one);
    await server.result("switch_session", { sessionPath: file });
    rmSync(path);
    for (let n = 0; n < 2; n++)
      expect((await server.failure("undo")).data).toMatchObject({ name: "ground_moved", path });
    expect((await server.result("get_state", one)).sessionName).toBe("kept");
    expect((await server.result("undo", one)).kind).toBe("rename");
  });
});

const IDS = [1, 2, 3].map((n) => sessionId(n));

/** A place with three sessions, the second in a container where that is wanted, and a server. */
async function three(store: "jsonl" | "v2" = "jsonl"): Promise<Library & { there: () => boolean[] }> {
  const all = library(3);
  if (store === "v2") expect((await runHere(all.place, ["migrate", all.files[1], "--apply"])).status).toBe(0);
  return { ...all, server: serveLibrary(all.place), there: () => all.files.map((file) => existsSync(file)) };
}

/** Does the same to all sessions, as one operation. */
async function together(server: HereServer, method: string): Promise<Json[]> {
  const results: Json[] = [];
  for (const id of IDS) results.push(await server.result(method, { sessionId: id, group: results[0]?.operationId }));
  return results;
}

const grouped = async (server: HereServer): Promise<Json[]> =>
  (await server.result("list_operations", { grouped: true })).operations;

test.each([
  ["archive_session", "jsonl"],
  ["archive_session", "v2"],
  ["delete_session", "jsonl"],
  ["delete_session", "v2"],
] as const)("one undo takes all of it back, and one redo does it again (%s, %s)", async (method, store) => {
  const { server, contents } = await three(store);
  const before = contents();
  const [{ operationId }] = await together(server, method);
  const [row, ...rest] = await grouped(server);
  const words = method === "archive_session" ? "Archived 3 sessions." : "Deleted 3 sessions.";
  expect(row).toMatchObject({ operationId, text: words, size: 3, undone: 0, canUndo: true });
  expect(rest.every(({ kind }) => kind === "migrate")).toBe(true);
  const after = Object.keys(contents());

  const undone = await server.result("undo");
  expect([undone.text, undone.also.length, undone.refused]).toEqual([`Took back: ${words}`, 2, undefined]);
  expect(contents()).toEqual(before);
  const redone = await server.result("redo");
  expect([redone.text, redone.also.length]).toEqual([`Did again: ${words}`, 2]);
  expect(Object.keys(contents())).toEqual(after);
  // By the id of the first, all of it again; and the redo of that by the id that the undo got.
  const again = await server.result("undo", { operationId });
  expect([again.also.length, contents()]).toEqual([2, before]);
  expect((await server.result("redo", { operationId: again.newOperationId })).also).toHaveLength(2);
});

test("what has changed since is left as it is, and named; the rest is taken back", async () => {
  const { place, server, files, there } = await three();
  await together(server, "archive_session");
  put(files[1], "something else\n");
  const { text, refused } = await server.result("undo");
  expect(text).toBe("Took back 2 of 3: Archived 3 sessions.");
  const failure = { name: "ground_moved", message: expect.stringContaining(files[1]) };
  expect(refused).toEqual([expect.objectContaining({ sessionId: IDS[1], failure })]);
  expect(there()).toEqual([true, true, true]);
  const [, row] = await grouped(server);
  expect([row.size, row.undone, row.canUndo]).toEqual([3, 2, true]);
  // The next undo is about the one that is left, and refuses as it would for it alone.
  expect(await nameOf(server, "undo")).toBe("ground_moved");
  expect((await runHere(place, ["operations"])).stdout).toContain("(2 undone) Archived 3 sessions.");
});

test("one of them is taken back by its own id, and by its session", async () => {
  const { server, there } = await three();
  const [, { operationId }] = await together(server, "archive_session");
  for (const [params, expected] of [
    [{ operationId }, [false, true, false]],
    [{ sessionId: IDS[2] }, [false, true, true]],
    [{}, [true, true, true]],
  ]) {
    expect((await server.result("undo", params)).also).toBeUndefined();
    expect(there()).toEqual(expected);
  }
});

test("one that somebody brought back by other means is named, and so are all", async () => {
  const { server, there } = await three();
  for (const back of [1, 3]) {
    const moved = await together(server, "archive_session");
    for (const { movedTo, sessionPath } of moved.slice(0, back)) renameSync(movedTo, sessionPath);
    if (back === 1) expect(await server.result("undo")).toMatchObject({ also: [{}], refused: [one] });
    else expect((await server.failure("undo")).data).toMatchObject({ name: "ground_moved", refused: [{}, {}, {}] });
    expect(there()).toEqual([true, true, true]);
  }
});

acrossTiers(test, ["jsonl", "v2"] as const)("what was continued since it was seen is not moved (%s)", async (store) => {
  const { place, server, files } = await three(store);
  const rows = (await server.result("list_sessions")).sessions;
  const seen = Object.fromEntries(
    rows.map(({ sessionId: id, modified, messageCount }: Json) => [id, { modified, messageCount }]),
  );
  const other = serveHere(["--no-session", "--events", "none"], { place });
  await other.result("open_session", { sessionId: IDS[1] });
  await other.result("append", { sessionId: IDS[1], entries: [user("one more")] });
  await other.finish();
  appendFileSync(files[0], `${userText("cafe0001", "a0000002", "one more")}\n`);
  for (const method of ["archive_session", "delete_session"])
    for (const id of [IDS[0], IDS[1]])
      expect(await nameOf(server, method, { sessionId: id, expected: seen[id] })).toBe("content_modified");
  expect((await grouped(server)).filter(({ kind }) => kind !== "migrate")).toEqual([]);
  await server.result("archive_session", { sessionId: IDS[2], expected: seen[IDS[2]] });
  expect(existsSync(files[2])).toBe(false);
});
