/** Moves keep links that lead nowhere, and leftovers go to the trash and come back. */

import { existsSync, mkdirSync, readdirSync, readlinkSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { expect, test } from "vitest";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { move, requireWayFree } from "../../../src/storage/lifecycle/move.ts";
import { noLocks } from "../../../src/storage/locks/locks.ts";
import { makeStores } from "../../../src/storage/stores.ts";
import { encodePointer } from "../../../src/storage/v2/documents.ts";
import { newPointer } from "../../../src/storage/v2/pointer.ts";
import { testEnv } from "../../support/env.ts";
import { contentsOf, put, putSession, read, rootOf, serveLibrary, sessionId } from "../../support/lifecycle.ts";
import { type Json, type Place, temporaryFolder, temporaryPlace } from "../../support/server.ts";

test("a link that leads nowhere keeps its path, whatever is moved there", async () => {
  const folder = temporaryFolder();
  const taken = join(folder, "taken");
  symlinkSync(join(folder, "nowhere"), taken);
  symlinkSync(join(folder, "elsewhere"), join(folder, "link"));
  writeFileSync(join(folder, "file"), "content");
  mkdirSync(join(folder, "folder"));
  for (const name of ["link", "file", "folder"]) {
    const from = join(folder, name);
    await expect(move(realDisk, from, taken), name).rejects.toMatchObject({ code: expect.stringMatching(/^E/) });
    await expect(requireWayFree(realDisk, [[from, taken]]), name).rejects.toMatchObject({ name: "already_exists" });
    expect([name, existsSync(from) || name === "link", readlinkSync(taken)]).toEqual([
      name,
      true,
      join(folder, "nowhere"),
    ]);
  }
  expect(readlinkSync(join(folder, "link"))).toBe(join(folder, "elsewhere"));
  await move(realDisk, join(folder, "link"), join(folder, "free"));
  expect(readlinkSync(join(folder, "free"))).toBe(join(folder, "elsewhere"));
});

test("a session is not archived over a link that leads nowhere", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const server = serveLibrary(place);
  const { movedTo } = await server.result("archive_session", { sessionId: sessionId(1) });
  await server.result("undo");
  symlinkSync("/nowhere/at/all", movedTo);
  const { data } = await server.failure("archive_session", { sessionPath: file });
  expect([data.name, data.path, readlinkSync(movedTo)]).toEqual(["already_exists", movedTo, "/nowhere/at/all"]);
  expect(existsSync(file)).toBe(true);
});

test.each([
  ["a.jsonl.v1.bak", true],
  ["a.jsonl.damaged.bak.12", true],
  ["a.jsonl.repaired.bak", true],
  ["a.jsonl.relocated.bak", true],
  ["a.jsonl.migrated", true],
  ["01.v2.rolled-back.3", true],
  ["a.jsonl", false],
  ["a.v2", false],
  ["a.bak", false],
  ["a.jsonl.blobs", false],
])("%s is left over: %s", async (name, isOne) => {
  const place = temporaryPlace();
  const path = put(join(dirname(putSession(place, 1)), name), "content");
  const found = await lifeCycleIn(place).leftovers.list({});
  expect(found.map((leftover) => leftover.path)).toEqual(isOne ? [path] : []);
});

/** Moved to the trash, unless it may be the only copy of something. */
const MOVED = { permanent: false, force: false };

function lifeCycleIn(place: Place) {
  return makeStores({
    disk: realDisk,
    env: testEnv(),
    paths: { root: rootOf(place), state: place.state },
    locks: noLocks,
    durability: "os",
    cwd: place.cwd,
    kind: "jsonl",
  }).lifeCycle;
}

test("leftovers go to the trash together, and undo brings all of them back", async () => {
  const place = temporaryPlace();
  const files = [putSession(place, 1), putSession(place, 2, { cwd: "/elsewhere" })];
  const leftovers = files.flatMap((file) => [put(`${file}.v1.bak`, `of ${file}`), put(`${file}.migrated`, "x")]);
  const container = join(dirname(files[0]), `${sessionId(1)}.v2.rolled-back`);
  put(join(container, "segments", "1.seg"), "frames");
  leftovers.push(container);
  const back = { ...newPointer("0".repeat(64), sessionId(1)), active: "jsonl_v3", phase: "rollback" } as const;
  const pointer = join(dirname(files[0]), `${sessionId(1)}.store.json`);
  files.push(put(pointer, encodePointer({ ...back, source: basename(files[0]) })));
  const before = contentsOf(rootOf(place));
  const { itemPath } = await lifeCycleIn(place).leftovers.prune({ paths: leftovers }, MOVED);
  expect(Object.keys(contentsOf(rootOf(place))).sort()).toEqual([...files].sort());
  const server = serveLibrary(place);
  const { items } = await server.result("list_trash");
  expect(items).toMatchObject([{ itemPath, sessionId: null, name: null, messageCount: null, fileCount: 5 }]);
  expect((await server.failure("restore_session", { sessionPath: itemPath })).data.name).toBe("session_not_found");
  const [{ kind, text }] = (await server.result("list_operations")).operations as Json[];
  expect([kind, text]).toEqual(["prune", "Moved 5 leftover files to the trash."]);
  // Something else has come to one of the paths: then all of it stays where it is.
  put(leftovers[1], "another");
  expect((await server.failure("undo")).data).toMatchObject({ name: "ground_moved", path: leftovers[1] });
  expect(readdirSync(itemPath as string)).toHaveLength(6);
  put(leftovers[1], "x");
  await server.result("undo");
  expect(contentsOf(rootOf(place))).toEqual(before);
  await server.result("redo");
  expect(Object.keys(contentsOf(rootOf(place))).sort()).toEqual([...files].sort());
  await server.result("undo");
  expect(contentsOf(rootOf(place))).toEqual(before);
  expect(readdirSync(join(place.state, "trash"))).toEqual([]);
});

test("nothing but leftovers is pruned, and then nothing at all", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const backup = put(`${file}.v1.bak`, "backup");
  const prune = (...paths: string[]) => lifeCycleIn(place).leftovers.prune({ paths }, MOVED);
  await expect(prune(backup, file)).rejects.toMatchObject({ name: "not_a_session", details: { path: file } });
  await expect(prune(backup, `${file}.v2.bak`)).rejects.toMatchObject({ name: "session_not_found" });
  expect(await prune()).toMatchObject({ operationId: null, removed: [], kept: [] });
  expect(read(backup)).toBe("backup");
  expect((await serveLibrary(place).result("list_operations")).operations).toEqual([]);
});
