/** Archiving: out of the agents' sight, in ours, and back. */

import { existsSync, mkdirSync, readdirSync, readlinkSync, renameSync, symlinkSync, unlinkSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { expect, test } from "vitest";
import { archiveFolder, folderName } from "../../src/storage/fs/paths.ts";
import { catalogOn, withoutSqlite } from "../support/catalog.ts";
import {
  CWD,
  contentsOf,
  listed,
  put,
  putSession,
  read,
  rootOf,
  serveLibrary,
  sessionId,
} from "../support/lifecycle.ts";
import { chain, id } from "../support/lines.ts";
import { type Json, type Place, serveHere, temporaryFolder, temporaryPlace } from "../support/server.ts";

/** What an agent that looks for sessions in the root at any depth can find. */
function seenByAgents(place: Place): string[] {
  return readdirSync(rootOf(place), { recursive: true })
    .map(String)
    .filter((name) => /\.(jsonl|sqlite)$/.test(name));
}

test("an archived session is seen by lists that ask for it alone, and comes back as it was", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  put(join(`${file}.blobs`, "0".repeat(64)), "media");
  put(`${file}.v2.bak`, "backup");
  putSession(place, 2);
  const before = contentsOf(rootOf(place));
  const server = serveLibrary(place);
  expect(await listed(server)).toEqual([sessionId(1), sessionId(2)]);
  const archived = await server.result("archive_session", { sessionId: sessionId(1) });
  expect(archived).toEqual({
    operationId: expect.any(String),
    sessionId: sessionId(1),
    sessionPath: file,
    movedTo: join(archiveFolder({ root: rootOf(place), state: place.state }), folderName(CWD), basename(file)),
  });
  expect(seenByAgents(place).length).toBe(1);
  expect(Object.keys(contentsOf(rootOf(place))).length).toBe(1);
  expect([await listed(server), await listed(server, { archived: true })]).toEqual([[sessionId(2)], [sessionId(1)]]);
  expect((await server.result("list_sessions", { archived: true })).sessions[0].sessionPath).toBe(archived.movedTo);
  expect(read(archived.movedTo)).toBe(before[file]);
  const back = await server.result("unarchive_session", { sessionId: sessionId(1) });
  expect(back).toEqual({
    operationId: expect.any(String),
    sessionId: sessionId(1),
    sessionPath: archived.movedTo,
    movedTo: file,
  });
  expect(contentsOf(rootOf(place))).toEqual(before);
  expect([await listed(server), await listed(server, { archived: true })]).toEqual([[sessionId(1), sessionId(2)], []]);
});

test("links among what belongs to a session go with it, and what they lead to stays", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const elsewhere = join(place.home, "elsewhere");
  put(elsewhere, "kept elsewhere");
  const names = [".v2.bak", join(".blobs", "0".repeat(64)), join(".blobs", "broken")];
  mkdirSync(`${file}.blobs`);
  for (const [i, name] of names.entries()) symlinkSync(i < 2 ? elsewhere : `${elsewhere}-missing`, `${file}${name}`);
  const targets = (session: string): string[] => names.map((name) => readlinkSync(`${session}${name}`));
  const before = targets(file);
  const server = serveLibrary(place);
  const { movedTo } = await server.result("archive_session", { sessionId: sessionId(1) });
  expect(targets(movedTo)).toEqual(before);
  expect(readdirSync(dirname(file))).toEqual([]);
  await server.result("unarchive_session", { sessionId: sessionId(1) });
  expect(targets(file)).toEqual(before);
  expect(read(elsewhere)).toBe("kept elsewhere");
});

test("in a flat folder, too, and after a restart", async () => {
  const place = temporaryPlace();
  const flat = join(place.home, "flat");
  const file = putSession(place, 1, { folder: flat });
  const first = serveLibrary(place, ["--session-dir", flat]);
  const { movedTo } = await first.result("archive_session", { sessionPath: file });
  await first.finish();
  const server = serveLibrary(place, ["--session-dir", flat]);
  expect([await listed(server), await listed(server, { archived: true })]).toEqual([[], [sessionId(1)]]);
  expect((await server.result("unarchive_session", { sessionPath: movedTo })).movedTo).toBe(file);
});

test("sessions of another root are archived elsewhere", async () => {
  const place = temporaryPlace();
  const flat = join(place.home, "flat");
  putSession(place, 1, { folder: flat });
  await serveLibrary(place, ["--session-dir", flat]).result("archive_session", { sessionId: sessionId(1) });
  expect(await listed(serveLibrary(place), { archived: true })).toEqual([]);
});

test("an archived session can be read, found and written to, and its forks still know it", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1, { name: "parent.jsonl" });
  putSession(place, 2, { header: { parentSession: file } });
  const server = serveLibrary(place);
  const { movedTo } = await server.result("archive_session", { sessionPath: file });
  const { hits } = await server.result("search_sessions", { query: "say" });
  expect(hits.map(({ sessionPath }: Json) => sessionPath)).toContain(movedTo);
  const { root, nodes } = await server.result("get_session_family", { sessionId: sessionId(2) });
  expect([root, nodes.length]).toEqual([sessionId(1), 2]);
  await server.result("switch_session", { sessionPath: movedTo });
  const { entryId } = await server.result("set_session_name", { name: "still here" });
  expect(read(movedTo)).toContain(entryId);
});

test("nothing is overwritten, and nothing but a listed session is archived", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const outside = putSession(place, 2, { folder: temporaryFolder() });
  const server = serveLibrary(place);
  const { movedTo } = await server.result("archive_session", { sessionPath: file });
  putSession(place, 1, { lines: chain(5) });
  const [old, present] = [read(movedTo), read(file)];
  for (const [command, params] of [
    ["archive_session", { sessionPath: file }],
    ["unarchive_session", { sessionPath: movedTo }],
  ] as const)
    expect([command, (await server.failure(command, params)).data.name]).toEqual([command, "already_exists"]);
  expect([read(movedTo), read(file)]).toEqual([old, present]);
  expect((await server.failure("archive_session", { sessionId: sessionId(1) })).data.name).toBe("ambiguous_id");
  for (const [command, sessionPath] of [
    ["archive_session", outside],
    ["archive_session", movedTo],
    ["unarchive_session", outside],
    ["unarchive_session", file],
  ] as const)
    expect([command, (await server.failure(command, { sessionPath })).data.name]).toEqual([
      command,
      "path_outside_root",
    ]);
  expect(existsSync(outside)).toBe(true);
});

test("a place of the leaf that only we keep goes along", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const holder = serveHere(["--session", file, "--events", "none"], { place });
  await holder.result("branch", { entryId: id(0) });
  const copy = read(file);
  await holder.finish();
  // As if it had died before it left its marker.
  put(file, copy);
  const first = serveHere(["--session", file, "--events", "none"], { place });
  await first.result("branch", { entryId: id(1) });
  first.stop();
  const server = serveLibrary(place);
  await first.done;
  const { movedTo } = await server.result("archive_session", { sessionPath: file });
  expect((await server.result("open_session", { sessionPath: movedTo })).leafId).toBe(id(1));
});

test("a list that watches folders sees sessions come to the archive and leave it", async () => {
  const place = temporaryPlace();
  const files = [putSession(place, 1), putSession(place, 2, { cwd: "/another" })];
  const server = serveLibrary(place);
  const catalog = catalogOn({ root: rootOf(place), state: place.state }, { ...withoutSqlite, watchFrom: 1 });
  const archivedIds = async (): Promise<string[]> =>
    (await catalog.list({ archived: true })).found.map(({ id }) => id).sort();
  expect(await archivedIds()).toEqual([]);
  for (const [index, sessionPath] of files.entries()) {
    await server.result("archive_session", { sessionPath });
    expect(await archivedIds()).toEqual([sessionId(1), sessionId(2)].slice(0, index + 1));
  }
  await server.result("unarchive_session", { sessionId: sessionId(1) });
  expect([await archivedIds(), (await catalog.list({})).total]).toEqual([[sessionId(2)], 1]);
});

test("an archived session that was deleted, or moved, by hand is where it is", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const other = putSession(place, 2);
  const server = serveLibrary(place);
  for (const sessionPath of [file, other]) await server.result("archive_session", { sessionPath });
  const [one, two] = (await server.result("list_sessions", { archived: true, sort: "created" })).sessions.map(
    ({ sessionPath }: Json) => sessionPath,
  );
  unlinkSync(one);
  renameSync(two, join(dirname(file), basename(two)));
  expect(await listed(server, { archived: true })).toEqual([]);
  expect((await listed(server)).length).toBe(1);
});
