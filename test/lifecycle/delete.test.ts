/** Deleting and restoring: what goes along, what is refused, and where things lie then. */

import { chmodSync, existsSync, mkdirSync, readdirSync, symlinkSync, unlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { encodePointer } from "../../src/storage/v2/documents.ts";
import { newPointer } from "../../src/storage/v2/pointer.ts";
import { nameOf } from "../support/asking.ts";
import { call } from "../support/cases.ts";
import {
  contentsOf,
  type Library,
  library,
  listed,
  one,
  put,
  putSession,
  read,
  rootOf,
  serveLibrary,
  sessionId,
} from "../support/lifecycle.ts";
import { chain, id } from "../support/lines.ts";
import { type Place, serveHere, temporaryFolder, temporaryPlace } from "../support/server.ts";

/** A session with all that can belong to one. */
function wholeSession(place: Place, n = 1): string {
  const file = putSession(place, n);
  const beside = (name: string): string => join(dirname(file), `${sessionId(n)}${name}`);
  for (const path of [
    ...[".v1.bak", ".damaged.bak", ".damaged.bak.2", `.blobs/${"0".repeat(64)}`, ".migrated"].map((end) => file + end),
    ...[".v2/manifest.json", ".v2/segments/0000000000000001.seg", ".v2.staging/migrations/ledger.jsonl"].map(beside),
    ...[".v2.rolled-back/manifest.json", ".v2.rolled-back.2/manifest.json"].map(beside),
  ])
    put(path, `content of ${basename(path)} ${n}`);
  const back = { ...newPointer("0".repeat(64), sessionId(n)), active: "jsonl_v3", phase: "rollback" } as const;
  put(beside(".store.json"), encodePointer({ ...back, source: basename(file) }));
  return file;
}

/** A whole session, and a neighbour with the same. */
function whole(): Library {
  const all = library(0);
  return { ...all, file: wholeSession(all.place), files: [wholeSession(all.place, 2)] };
}

const trashOf = ({ state }: Place): string => join(state, "trash");

describe("delete_session", () => {
  test("moves a session with all that belongs to it to our trash, and restore_session brings it back", async () => {
    const { place, server, file, contents } = whole();
    const before = contents();
    const { movedTo, ...deleted } = await server.result("delete_session", { sessionPath: file });
    expect(deleted).toEqual({ operationId: expect.any(String), ...one, sessionPath: file, trash: "own" });
    expect(movedTo).toBe(join(trashOf(place), readdirSync(trashOf(place))[0], basename(file)));
    expect(read(movedTo)).toBe(before[file]);
    const others = Object.entries(before).filter(([path]) => !path.includes(sessionId(1)));
    expect(contents()).toEqual(Object.fromEntries(others));
    expect(await listed(server)).toEqual([sessionId(2)]);
    expect(await server.result("restore_session", one)).toEqual({ ...one, sessionPath: movedTo, movedTo: file });
    expect([contents(), readdirSync(trashOf(place))]).toEqual([before, []]);
    expect(await listed(server)).toEqual([sessionId(1), sessionId(2)]);
  });

  test("permanently unlinks all of it and nothing else", async () => {
    const { place, server, file, contents } = whole();
    put(`${file}x`, "not ours");
    const others = Object.entries(contents()).filter(([path]) => !path.includes(sessionId(1)) || path === `${file}x`);
    const deleted = await server.result("delete_session", { ...one, permanent: true });
    expect(deleted).toEqual({ operationId: expect.any(String), ...one, sessionPath: file, trash: "none" });
    expect([contents(), existsSync(trashOf(place))]).toEqual([Object.fromEntries(others), false]);
    expect(await nameOf(server, "restore_session", one)).toBe("session_not_found");
  });

  test("takes an id only whole", async () => {
    const { server, file, contents } = library();
    const before = contents();
    for (const [name, ...wrong] of [
      ["ambiguous_id", sessionId(1).slice(0, -1), sessionId(1).slice(0, 8), "0"],
      ["invalid_id", "*", "../x", "%2e", "con ", `${sessionId(1)}*`, "a".repeat(300)],
      ["session_not_found", "unknown"],
    ])
      for (const which of wrong) expect(await nameOf(server, "delete_session", { sessionId: which }), which).toBe(name);
    for (const params of [{ ...one, sessionPath: file }, {}])
      expect((await server.failure("delete_session", params)).code).toBe(-32602);
    expect(contents()).toEqual(before);
  });

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
      for (const command of ["delete_session", "archive_session"]) {
        const { data } = await server.failure(command, { sessionPath });
        expect(data).toMatchObject({ name: "session_locked", sessionId: sessionId(n + 1) });
      }
    expect(contents()).toEqual(before);
    // In one write: the order is kept.
    server.send(
      call("c", "close_session", { sessionId: sessionId(2) }),
      call("d", "delete_session", { sessionPath: files[1] }),
    );
    expect((await server.reply("d")).result.trash).toBe("own");
  });

  test("refuses what another process writes to, and names it", async () => {
    const { place, server, file: sessionPath, contents } = library();
    const holding = serveHere(["--session", sessionPath, "--events", "none"], { place });
    await holding.result("set_session_name", { name: "held" });
    const before = contents();
    const holder = { client: "pi-session-server 0.0.0-test", pid: process.pid };
    for (const [command, more] of [
      ["delete_session", {}],
      ["delete_session", { permanent: true }],
      ["archive_session", {}],
      ["relocate_session", { cwd: "/elsewhere" }],
    ] as const) {
      const { data } = await server.failure(command, { sessionPath, ...more });
      expect([command, data]).toMatchObject([command, { name: "session_locked", holder }]);
    }
    expect(contents()).toEqual(before);
    await holding.finish();
    expect((await server.result("delete_session", { sessionPath })).trash).toBe("own");
  });

  test("touches nothing that is no session", async () => {
    const { place, server } = library(0);
    put(join(place.cwd, "notes.jsonl"), '{"type":"message"}\nnotes\n');
    put(join(place.cwd, "empty.jsonl"), "");
    mkdirSync(join(place.cwd, "folder.jsonl"));
    const before = contentsOf(place.cwd);
    for (const name of ["notes.jsonl", "empty.jsonl", "folder.jsonl", ""])
      expect(await nameOf(server, "delete_session", { sessionPath: join(place.cwd, name) })).toBe("not_a_session");
    const none = { sessionPath: join(place.cwd, "none.jsonl") };
    expect([await nameOf(server, "delete_session", none), contentsOf(place.cwd)]).toEqual([
      "session_not_found",
      before,
    ]);
  });

  test("deletes a damaged session and one of a newer version", async () => {
    const { place, server } = library(0);
    const damaged = putSession(place, 1, { lines: [...chain(2), "}{"] });
    const newer = putSession(place, 2, { header: { version: 99 } });
    const headless = put(join(dirname(damaged), "headless.jsonl"), `{"type":"sess\n${chain(2).join("\n")}\n`);
    for (const sessionPath of [damaged, newer, headless]) {
      const content = read(sessionPath);
      const { movedTo } = await server.result("delete_session", { sessionPath });
      expect(read(movedTo)).toBe(content);
      await server.result("restore_session", { sessionPath });
      expect(read(sessionPath)).toBe(content);
    }
  });

  test("with --read-only nothing is deleted, moved or named", async () => {
    const { server, file: sessionPath } = library(1, ["--read-only"]);
    for (const [command, params] of [
      ["delete_session", {}],
      ["archive_session", {}],
      ["relocate_session", { cwd: "/x" }],
      ["restore_session", {}],
      ["set_session_name", { name: "x" }],
    ] as const)
      expect([command, await nameOf(server, command, { sessionPath, ...params })]).toEqual([command, "read_only"]);
    expect(await nameOf(server, "import_session", { path: sessionPath })).toBe("read_only");
  });

  test("stays in its folders under --confine, links followed", async () => {
    const { place, server, file: inside } = library(1, ["--confine"]);
    const outside = putSession(place, 2, { folder: temporaryFolder(), name: "outside.jsonl" });
    const link = join(dirname(inside), "link.jsonl");
    symlinkSync(outside, link);
    for (const sessionPath of [outside, link, `${dirname(inside)}/../../../../../outside.jsonl`])
      expect(await nameOf(server, "delete_session", { sessionPath })).toBe("path_outside_root");
    expect(existsSync(outside)).toBe(true);
    expect((await server.result("delete_session", { sessionPath: inside })).trash).toBe("own");
  });

  test("follows a link to the session, which is what is deleted and comes back", async () => {
    const { place, server } = library(0);
    const real = putSession(place, 1, { folder: temporaryFolder(), name: "real.jsonl" });
    const link = join(rootOf(place), "--home-me-project--", "link.jsonl");
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(real, link);
    expect(await listed(server)).toEqual([sessionId(1)]);
    expect((await server.result("delete_session", { sessionPath: link })).sessionPath).toBe(real);
    expect([existsSync(real), await listed(server)]).toEqual([false, []]);
    await server.result("restore_session", { sessionPath: real });
    expect(await listed(server)).toEqual([sessionId(1)]);
  });

  test("a session whose file was deleted by hand is gone", async () => {
    const place = temporaryPlace();
    const file = wholeSession(place);
    const server = serveLibrary(place);
    const seen = async (): Promise<number[]> => {
      const { hits } = await server.result("search_sessions", { query: "say" });
      return [(await listed(server)).length, hits.length];
    };
    expect(await seen()).toEqual([1, 3]);
    unlinkSync(file);
    expect(await seen()).toEqual([0, 0]);
    for (const command of ["delete_session", "restore_session", "switch_session", "open_session"])
      expect(await nameOf(server, command, one)).toBe("session_not_found");
    await server.finish();
    expect(await listed(serveLibrary(place))).toEqual([]);
  });

  test("forgets a position of the leaf, and a restored session has it again", async () => {
    const { place, server, file: sessionPath } = library();
    const first = serveHere(["--session", sessionPath, "--events", "none"], { place });
    await first.result("branch", { entryId: id(0) });
    const leaves = (): string[] => readdirSync(join(place.state, "leaves"));
    const [record, lines] = [join(place.state, "leaves", leaves()[0]), read(sessionPath)];
    const recorded = read(record);
    expect(await nameOf(server, "delete_session", { sessionPath })).toBe("session_locked");
    await first.finish();
    // As if it had died before it wrote the place into the file.
    put(sessionPath, lines);
    put(record, recorded);
    await server.result("delete_session", { sessionPath });
    expect(leaves()).toEqual([]);
    await server.result("restore_session", { sessionPath });
    expect(read(sessionPath)).toBe(lines);
    expect((await server.result("open_session", { sessionPath })).leafId).toBe(id(0));
  });
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
    const place = temporaryPlace();
    const file = wholeSession(place);
    const before = contentsOf(rootOf(place));
    const server = serveLibrary(place);
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

describe("with a trash command", () => {
  /** A `trash` on the PATH that does as its script says; `$TRASH` is the desktop's trash. */
  function withTrash(script: string): Library & { trash: string; before: Record<string, string> } {
    const plain = temporaryPlace();
    const bin = join(plain.home, "bin");
    const trash = join(plain.home, ".local", "share", "Trash", "files");
    mkdirSync(bin);
    mkdirSync(trash, { recursive: true });
    writeFileSync(join(bin, "trash"), `#!/bin/sh\nTRASH='${trash}'\n${script}\n`);
    chmodSync(join(bin, "trash"), 0o755);
    const place = { ...plain, variables: { ...plain.variables, PATH: `${bin}:/usr/bin:/bin` } };
    const file = wholeSession(place);
    return { ...library(0, [], place), file, trash, before: contentsOf(rootOf(place)) };
  }
  const told = (sessionPath: string): object => ({
    operationId: expect.any(String),
    ...one,
    sessionPath,
    trash: "desktop",
  });

  test("that takes it, and where it lies is told", async () => {
    const { trash, file, server, before, contents } = withTrash('mv "$@" "$TRASH"/');
    const movedTo = join(trash, basename(file));
    expect(await server.result("delete_session", { sessionPath: file })).toEqual({ ...told(file), movedTo });
    expect(Object.values(contentsOf(trash)).sort()).toEqual(Object.values(before).sort());
    expect(contents()).toEqual({});
    expect((await server.failure("restore_session", { sessionPath: file })).message).toMatch(/desktop/);
  });

  test("elsewhere, where it lies is not told", async () => {
    const { server, file } = withTrash('mkdir "$TRASH/deep"; mv "$@" "$TRASH/deep"/');
    expect(await server.result("delete_session", { sessionPath: file })).toEqual(told(file));
  });

  test("that fails, our own trash takes it", async () => {
    const { file, server, before, contents } = withTrash("exit 1");
    const { trash, movedTo } = await server.result("delete_session", { sessionPath: file });
    expect([trash, contents()]).toEqual(["own", {}]);
    const { [join(dirname(movedTo), "record.json")]: record, ...files } = contentsOf(dirname(movedTo));
    expect(JSON.parse(record).path).toBe(file);
    expect(Object.values(files).sort()).toEqual(Object.values(before).sort());
  });

  test("that takes only the session, nothing of it stays behind", async () => {
    const { place, trash, file, server, before, contents } = withTrash('mv "$1" "$TRASH"/; exit 1');
    const movedTo = join(trash, basename(file));
    expect(await server.result("delete_session", { sessionPath: file })).toMatchObject({ trash: "desktop", movedTo });
    expect(contents()).toEqual({});
    const kept = [...Object.values(contentsOf(trash)), ...Object.values(contentsOf(trashOf(place)))];
    expect(kept).toEqual(expect.arrayContaining(Object.values(before)));
  });
});
