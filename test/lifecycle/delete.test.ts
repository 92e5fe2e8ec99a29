/** Deleting and restoring: the refusals, the restored files, and the places of files then. */

import { chmodSync, existsSync, mkdirSync, readdirSync, symlinkSync, unlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { nameOf } from "../support/asking.ts";
import { call } from "../support/cases.ts";
import { contentsOf, library, listed, one, put, putSession, read, rootOf, sessionId } from "../support/lifecycle.ts";
import { chain, id } from "../support/lines.ts";
import { type Place, serveHere, temporaryFolder, temporaryPlace } from "../support/server.ts";
import { putWholeSession } from "../support/stored-sessions.ts";

const trashOf = ({ state }: Place): string => join(state, "trash");

describe("delete_session", () => {
  test("refuses an id that two files have, and takes either by its path", async () => {
    const { server, file } = library();
    const copy = put(file.replace(".jsonl", ".sync-conflict-20260124.jsonl"), read(file));
    const container = put(join(dirname(file), `${sessionId(1)}.v2`, "manifest.json"), "of the first");
    const { data } = await server.failure("delete_session", one);
    expect(data).toMatchObject({ name: "ambiguous_id", matches: 2 });
    await server.result("delete_session", { sessionPath: copy });
    // The container may be that of the other.
    expect([existsSync(file), existsSync(container)]).toEqual([true, true]);
  });

  test("refuses what is open here, beside or as the current one, and takes it once it is closed", async () => {
    const { place, files, contents } = library(2);
    const server = serveHere(["--session", files[0], "--events", "none"], { place });
    await server.result("open_session", { sessionPath: files[1] });
    const before = contents();
    for (const [n, sessionPath] of files.entries())
      for (const [command, more] of [
        ["delete_session", {}],
        ["archive_session", {}],
        ["relocate_session", { cwd: "/new/place", allowMissing: true }],
      ] as const) {
        const { data } = await server.failure(command, { sessionPath, ...more });
        expect(data).toMatchObject({ name: "session_locked", sessionId: sessionId(n + 1) });
      }
    expect(contents()).toEqual(before);
    // In one write: the order is kept.
    const [closing, deleting] = [{ sessionId: sessionId(2) }, { sessionPath: files[1] }];
    server.send(call("c", "close_session", closing), call("d", "delete_session", deleting));
    expect((await server.reply("d")).result.trash).toBe("own");
  });

  test("takes a damaged session, one of a newer version, and one that a link leads to; each comes back", async () => {
    const { place, server } = library(0);
    const damaged = putSession(place, 1, { lines: [...chain(2), "}{"] });
    const newer = putSession(place, 2, { header: { version: 99 } });
    const headless = put(join(dirname(damaged), "headless.jsonl"), `{"type":"sess\n${chain(2).join("\n")}\n`);
    const real = putSession(place, 3, { folder: temporaryFolder(), name: "real.jsonl" });
    const link = join(dirname(damaged), "link.jsonl");
    symlinkSync(real, link);
    const before = await listed(server);
    for (const sessionPath of [damaged, newer, headless, link]) {
      const path = sessionPath === link ? real : sessionPath;
      const content = read(path);
      const { movedTo, sessionPath: deleted } = await server.result("delete_session", { sessionPath });
      expect([deleted, existsSync(path), read(movedTo)]).toEqual([path, false, content]);
      await server.result("restore_session", { sessionPath: path });
      expect([read(path), await listed(server)]).toEqual([content, before]);
    }
  });
});

test("an empty file goes to the trash and comes back as often as asked, and is no session there", async () => {
  const { place, server } = library(0);
  const file = put(join(rootOf(place), "--home-me-project--", `2026-01-24T16-22-26-831Z_${sessionId(1)}.jsonl`), "");
  const { trash, movedTo, operationId } = await server.result("delete_session", { sessionPath: file });
  expect([trash, existsSync(file), read(movedTo)]).toEqual(["own", false, ""]);
  expect((await server.result("list_trash")).items).toMatchObject([
    { sessionId: null, sessionPath: file, fileCount: 1 },
  ]);
  expect(await nameOf(server, "restore_session", one)).toBe("session_not_found");
  for (const _ of [1, 2]) {
    await server.result("undo", { operationId });
    expect([existsSync(file), (await server.result("list_trash")).items]).toEqual([true, []]);
    await server.result("redo");
    expect(existsSync(file)).toBe(false);
  }
  await server.result("undo", { operationId });
  await server.result("delete_session", { sessionPath: file, permanent: true });
  expect([existsSync(file), (await server.result("list_trash")).items]).toEqual([false, []]);
});

test("an empty file without the name of a session stays", async () => {
  const { place, server } = library(0);
  const other = put(join(rootOf(place), "notes.txt"), "");
  expect(await nameOf(server, "delete_session", { sessionPath: other })).toBe("not_a_session");
  expect(existsSync(other)).toBe(true);
});

test.each([
  ["delete_session", {}],
  ["archive_session", {}],
  ["relocate_session", { cwd: "/new/place", allowMissing: true }],
])("%s takes a leaf along that only our state folder has", async (method, more) => {
  const { place, server, file: sessionPath } = library();
  const first = serveHere(["--session", sessionPath, "--events", "none"], { place });
  await first.result("branch", { entryId: id(0) });
  const leaves = (): string[] => readdirSync(join(place.state, "leaves"));
  const [record, lines] = [join(place.state, "leaves", leaves()[0]), read(sessionPath)];
  const recorded = read(record);
  expect(await nameOf(server, method, { sessionPath, ...more })).toBe("session_locked");
  await first.finish();
  // As if it had died before it wrote the place into the file.
  put(sessionPath, lines);
  put(record, recorded);
  const { movedTo } = await server.result(method, { sessionPath, ...more });
  if (method === "delete_session") {
    expect(leaves()).toEqual([]);
    await server.result("restore_session", { sessionPath });
    expect(read(sessionPath)).toBe(lines);
  }
  const path = method === "delete_session" ? sessionPath : movedTo;
  expect((await server.result("open_session", { sessionPath: path })).leafId).toBe(id(0));
});

describe("restore_session", () => {
  test("overwrites nothing, and gives back what was deleted last", async () => {
    const { place, server, file } = library(1, [], undefined, { lines: chain(1) });
    const older = await server.result("delete_session", { sessionPath: file });
    putSession(place, 1, { lines: chain(2) });
    const newer = await server.result("delete_session", { sessionPath: file });
    expect(newer.movedTo).not.toBe(older.movedTo);
    putSession(place, 1, { lines: chain(3) });
    const third = read(file);
    for (const params of [one, { sessionPath: file }, { sessionPath: older.movedTo }]) {
      const { data } = await server.failure("restore_session", params);
      expect(data).toMatchObject({ name: "already_exists", path: file });
    }
    expect(read(file)).toBe(third);
    unlinkSync(file);
    expect((await server.result("restore_session", one)).sessionPath).toBe(newer.movedTo);
    unlinkSync(file);
    expect((await server.result("restore_session", { sessionPath: older.movedTo })).movedTo).toBe(file);
    expect(read(file).trim().split("\n").length).toBe(2);
  });

  test("makes the folder again that is gone, and is refused a name that something of another has taken", async () => {
    const { place, server } = library(0);
    const file = putWholeSession(place);
    const before = contentsOf(rootOf(place));
    const { movedTo } = await server.result("delete_session", { sessionPath: file });
    const item = contentsOf(dirname(movedTo));
    const path = put(`${file}.v1.bak`, "of somebody else");
    const { data } = await server.failure("restore_session", { sessionPath: file });
    expect(data).toMatchObject({ name: "already_exists", path });
    expect([contentsOf(dirname(movedTo)), read(path)]).toEqual([item, "of somebody else"]);
    unlinkSync(path);
    await server.result("restore_session", { sessionPath: file });
    expect(contentsOf(rootOf(place))).toEqual(before);
  });

  test("knows nothing in the trash that is not a deleted session", async () => {
    const { place, server } = library(0);
    put(join(trashOf(place), "note.txt"), "x");
    put(join(trashOf(place), "a", "record.json"), "not JSON");
    const record = { sessionId: "lost", path: "/x/lost.jsonl", deletedAt: "now" };
    put(join(trashOf(place), "b", "record.json"), JSON.stringify(record));
    for (const sessionId of ["lost", "../../etc"])
      expect(await nameOf(server, "restore_session", { sessionId })).toBe("session_not_found");
  });
});

/** The effect of a `trash` on the PATH (`$TRASH`: the desktop's), the session's owner then, and if it is known. */
test.each([
  ["takes it", 'mv "$@" "$TRASH"/', "desktop", true],
  ["takes it to another place, which is not named", 'mkdir "$TRASH/deep"; mv "$@" "$TRASH/deep"/', "desktop", false],
  ["fails, so that our own trash takes it", "exit 1", "own", true],
  ["takes only the session, so that ours takes the rest", 'mv "$1" "$TRASH"/; exit 1', "desktop", true],
])("a trash command that %s leaves nothing behind and loses nothing", async (_what, script, trash, isKnown) => {
  const plain = temporaryPlace();
  const bin = join(plain.home, "bin");
  const desktop = join(plain.home, ".local", "share", "Trash", "files");
  mkdirSync(bin);
  mkdirSync(desktop, { recursive: true });
  writeFileSync(join(bin, "trash"), `#!/bin/sh\nTRASH='${desktop}'\n${script}\n`);
  chmodSync(join(bin, "trash"), 0o755);
  const place = { ...plain, variables: { ...plain.variables, PATH: `${bin}:/usr/bin:/bin` } };
  const { server, contents } = library(0, [], place);
  const file = putWholeSession(place);
  const before = contents();
  const { movedTo, ...deleted } = await server.result("delete_session", { sessionPath: file });
  expect(deleted).toEqual({ operationId: expect.any(String), ...one, sessionPath: file, trash });
  expect(movedTo === undefined).toBe(!isKnown);
  if (isKnown) expect(read(movedTo)).toBe(before[file]);
  if (trash === "desktop" && isKnown) expect(movedTo).toBe(join(desktop, basename(file)));
  expect(contents()).toEqual({});
  const ours = existsSync(trashOf(place)) ? contentsOf(trashOf(place)) : {};
  const records = Object.keys(ours).filter((path) => basename(path) === "record.json");
  for (const path of records) {
    expect(JSON.parse(ours[path]).path).toContain(dirname(file));
    delete ours[path];
  }
  expect([...Object.values(contentsOf(desktop)), ...Object.values(ours)].sort()).toEqual(Object.values(before).sort());
  if (script.includes("$@"))
    expect((await server.failure("restore_session", { sessionPath: file })).message).toMatch(/desktop/);
});
