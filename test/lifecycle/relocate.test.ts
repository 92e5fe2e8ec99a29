/** A session in another working directory: the bytes of its cwd change, and nothing else. */

import { existsSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { expect, test } from "vitest";
import { folderName } from "../../src/core/store/paths.ts";
import { contentsOf, listed, put, putSession, read, rootOf, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { chain, id } from "../support/lines.ts";
import { serveHere, temporaryPlace } from "../support/server.ts";

const NEW = "/home/me/other place";

test("only the cwd's bytes change, and the old file is kept where the reply says", async () => {
  const place = temporaryPlace();
  // Odd spacing, numbers and members are bytes like any others.
  const header = `{ "type" : "session","version":3, "x":1.0e400 ,"id":"${sessionId(1)}","cwd" : "/home/me/project" ,"y":[1,\t2]}`;
  const file = put(join(rootOf(place), "--home-me-project--", "odd.jsonl"), `${header}\r\n${chain(3).join("\n")}`);
  put(join(`${file}.blobs`, "0".repeat(64)), "media");
  put(`${file}.v1.bak`, "backup");
  const before = read(file);
  const { mode } = statSync(file);
  const server = serveLibrary(place);
  const result = await server.result("relocate_session", { sessionId: sessionId(1), cwd: NEW });
  const movedTo = join(rootOf(place), folderName(NEW), "odd.jsonl");
  const keptAt = `${movedTo}.relocated.bak`;
  expect(result).toEqual({ sessionId: sessionId(1), sessionPath: file, movedTo, keptAt });
  expect(read(movedTo)).toBe(before.replace('"/home/me/project"', JSON.stringify(NEW)));
  expect(statSync(movedTo).mode).toBe(mode);
  expect(read(keptAt)).toBe(before);
  expect(Object.keys(contentsOf(rootOf(place))).sort()).toEqual(
    [join(`${movedTo}.blobs`, "0".repeat(64)), `${movedTo}.v1.bak`, keptAt, movedTo].sort(),
  );
  expect(await listed(server, { cwd: NEW })).toEqual([sessionId(1)]);
  expect(await listed(server, { cwd: "/home/me/project" })).toEqual([]);
});

test("a header without a cwd gets one", async () => {
  const place = temporaryPlace();
  const file = put(join(rootOf(place), "----", "none.jsonl"), `{"type":"session","id":"none"}\n${chain(1)[0]}\n`);
  const { movedTo } = await serveLibrary(place).result("relocate_session", { sessionPath: file, cwd: NEW });
  expect(read(movedTo)).toBe(`{"type":"session","cwd":${JSON.stringify(NEW)},"id":"none"}\n${chain(1)[0]}\n`);
});

test("in a flat folder the session stays in its place", async () => {
  const place = temporaryPlace();
  const flat = join(place.home, "flat");
  const file = putSession(place, 1, { folder: flat });
  const before = read(file);
  const server = serveLibrary(place, ["--session-dir", flat]);
  for (const n of ["", ".2"]) {
    const result = await server.result("relocate_session", { sessionPath: file, cwd: `${NEW}${n}` });
    expect(result).toMatchObject({ movedTo: file, keptAt: `${file}.relocated.bak${n}` });
    expect(await listed(server, { cwd: `${NEW}${n}` })).toEqual([sessionId(1)]);
  }
  expect(read(`${file}.relocated.bak`)).toBe(before);
  expect((await server.failure("relocate_session", { sessionPath: file, cwd: `${NEW}.2` })).data.name).toBe(
    "already_exists",
  );
});

test("what was forked from it still knows it, by the id or by the name of its file", async () => {
  const place = temporaryPlace();
  const parents = [putSession(place, 1), putSession(place, 2, { name: "plain.jsonl" })];
  const server = serveLibrary(place);
  for (const [index, parentSession] of parents.entries()) {
    putSession(place, 3 + index, { header: { parentSession } });
    await server.result("relocate_session", { sessionPath: parentSession, cwd: NEW });
    const family = await server.result("get_session_family", { sessionId: sessionId(3 + index) });
    expect(family).toMatchObject({ root: sessionId(1 + index), nodes: [{}, { forkedAtEntryId: id(2) }] });
  }
});

test("the leaf stays where it was, and the session goes on there", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const first = serveHere(["--session", file, "--events", "none"], { place });
  await first.result("branch", { entryId: id(1) });
  const lines = read(file);
  await first.finish();
  put(file, lines);
  const second = serveHere(["--session", file, "--events", "none"], { place });
  await second.result("branch", { entryId: id(1) });
  second.stop();
  await second.done;
  const server = serveLibrary(place);
  const { movedTo } = await server.result("relocate_session", { sessionPath: file, cwd: NEW });
  const switched = await server.result("switch_session", { sessionPath: movedTo });
  expect(switched).toMatchObject({ sessionId: sessionId(1), leafId: id(1) });
  expect((await server.result("get_state")).cwd).toBe(NEW);
});

test("overwrites nothing", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const other = putSession(place, 2, { cwd: NEW, name: basename(file) });
  const before = contentsOf(rootOf(place));
  const server = serveLibrary(place);
  expect((await server.failure("relocate_session", { sessionPath: file, cwd: NEW })).data).toMatchObject({
    name: "already_exists",
    path: other,
  });
  expect(contentsOf(rootOf(place))).toEqual(before);
});

test("a session of version 1 stays one", async () => {
  const place = temporaryPlace();
  const lines = ['{"type":"message","message":{"role":"user","content":"old"}}'];
  const file = put(
    join(rootOf(place), "--v1--", "v1.jsonl"),
    `{"type":"session","id":"v1","cwd":"/v1"}\n${lines[0]}\n`,
  );
  const { movedTo } = await serveLibrary(place).result("relocate_session", { sessionPath: file, cwd: NEW });
  expect(read(movedTo)).toBe(`{"type":"session","id":"v1","cwd":${JSON.stringify(NEW)}}\n${lines[0]}\n`);
});

test("a damaged header is not written anew", async () => {
  const place = temporaryPlace();
  const file = put(join(rootOf(place), "--x--", "x.jsonl"), `{"type":"sess\n${chain(2).join("\n")}\n`);
  const server = serveLibrary(place);
  const before = contentsOf(rootOf(place));
  expect((await server.failure("relocate_session", { sessionPath: file, cwd: NEW })).data.name).toBe("corrupt");
  expect(contentsOf(rootOf(place))).toEqual(before);
});

test("a deleted one goes with what it was before", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const server = serveLibrary(place);
  const { movedTo, keptAt } = await server.result("relocate_session", { sessionPath: file, cwd: NEW });
  const trashed = await server.result("delete_session", { sessionPath: movedTo });
  expect([existsSync(keptAt), existsSync(join(dirname(trashed.movedTo), basename(keptAt)))]).toEqual([false, true]);
});
