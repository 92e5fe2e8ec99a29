/** Moves of a whole session take all of it along and nothing else; every way back brings every byte back. */

import { existsSync, mkdirSync, readdirSync, readlinkSync, renameSync, symlinkSync, unlinkSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { getArchiveFolder, toFolderName } from "../../src/storage/fs/paths.ts";
import { nameOf } from "../support/asking.ts";
import { catalogOn, withoutSqlite } from "../support/catalog.ts";
import { library, listed, one, put, putSession, read, rootOf, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { chain } from "../support/lines.ts";
import { type HereServer, type Json, temporaryFolder, temporaryPlace } from "../support/server.ts";
import { makeContainer, migrateTwice, putWholeSession, readTexts, type Stored } from "../support/stored-sessions.ts";
import { SWEEP } from "../support/tiers.ts";

/** A session file and a neighbour, each with all that can belong to one. */
async function makeWholeFile(): Promise<Stored> {
  const all = library(0);
  const [source] = [1, 2].map((n) => putWholeSession(all.place, n));
  return { ...all, file: source, id: sessionId(1), source };
}

/** The sessions that lists have, and those that they have of the archive. */
const listBoth = async (server: HereServer): Promise<string[][]> => [
  await listed(server),
  await listed(server, { archived: true }),
];

for (const [kind, make, tier] of [
  ["a session file", makeWholeFile, {}],
  ["a container born as one", makeContainer, {}],
  ["a container that was migrated", migrateTwice, SWEEP],
] as const)
  describe(kind, tier, () => {
    test.each([
      ["delete", "restore_session"],
      ["archive", "unarchive_session"],
      ["delete", "undo"],
      ["archive", "undo"],
      ["relocate", "undo"],
    ])("goes whole with %s, and comes back byte for byte with %s", async (operation, back) => {
      const { place, server, file, id, contents } = await make();
      const [before, lists, texts] = [contents(), await listBoth(server), await readTexts(server, file)];
      const isOther = (path: string): boolean => path.includes(sessionId(2));
      const others = Object.fromEntries(Object.entries(before).filter(([path]) => isOther(path)));
      const trash = join(place.state, "trash");
      const cwd = operation === "relocate" ? { cwd: "/new/place", allowMissing: true } : {};
      const { movedTo, ...moved } = await server.result(`${operation}_session`, { sessionId: id, ...cwd });
      expect(moved).toMatchObject({ sessionId: id, sessionPath: file });
      const goals = {
        delete: () => join(trash, readdirSync(trash)[0]),
        archive: () => join(getArchiveFolder({ root: rootOf(place), state: place.state }), basename(dirname(file))),
        relocate: () => join(rootOf(place), toFolderName("/new/place")),
      };
      expect(movedTo).toBe(join(goals[operation as keyof typeof goals](), basename(file)));
      const rest = lists[0].filter((one) => one !== id);
      const seen = { delete: [rest, []], archive: [rest, [id]], relocate: lists }[operation];
      expect(await listBoth(server)).toEqual(seen);
      expect(await readTexts(server, movedTo)).toEqual(texts);
      if (operation === "delete") expect(moved.trash).toBe("own");
      if (operation !== "relocate") expect(contents()).toEqual(others);
      const { sessions } = await server.result("list_sessions", { archived: operation === "archive" });
      if (operation !== "delete") expect(sessions.map(({ sessionPath }: Json) => sessionPath)).toContain(movedTo);
      const after = Object.keys(contents());
      for (const method of back === "undo" ? ["undo", "redo", "undo"] : [back]) {
        const named = method.endsWith("_session") ? { sessionId: id } : {};
        const reply = await server.result(method, named);
        const done = `${operation[0].toUpperCase()}${operation.slice(1)}d "${texts[0]}"`;
        if (back !== "undo") expect(reply).toMatchObject({ sessionPath: movedTo, movedTo: file });
        else expect([reply.kind, reply.text]).toEqual([operation, expect.stringContaining(`: ${done}`)]);
        if (method === "undo") expect([reply.sessionPath, reply.text.startsWith("Took back")]).toEqual([file, true]);
        if (method === "redo") expect(Object.keys(contents())).toEqual(after);
        else expect([contents(), await listBoth(server)]).toEqual([before, lists]);
      }
      expect(existsSync(trash) ? readdirSync(trash) : []).toEqual([]);
    });

    test("goes whole when it is deleted for good, and nothing else does", async () => {
      const { place, server, file, id, contents } = await make();
      put(join(dirname(file), `${basename(file)}x`), "not ours");
      const isOther = ([path]: [string, string]): boolean => path.includes(sessionId(2)) || path === `${file}x`;
      const others = Object.fromEntries(Object.entries(contents()).filter(isOther));
      const deleted = await server.result("delete_session", { sessionId: id, permanent: true });
      const about = { operationId: expect.any(String), sessionId: id, sessionPath: file };
      expect(deleted).toEqual({ ...about, trash: "none" });
      expect([contents(), existsSync(join(place.state, "trash"))]).toEqual([others, false]);
      expect(await nameOf(server, "restore_session", { sessionId: id })).toBe("session_not_found");
    });
  });

test("links among what belongs to a session go with it, and what they lead to stays", async () => {
  const { place, server, file } = library();
  const elsewhere = put(join(place.home, "elsewhere"), "kept elsewhere");
  const names = [".v2.bak", join(".blobs", "0".repeat(64)), join(".blobs", "broken")];
  mkdirSync(`${file}.blobs`);
  for (const [i, name] of names.entries()) symlinkSync(i < 2 ? elsewhere : `${elsewhere}-missing`, `${file}${name}`);
  const targets = (session: string): string[] => names.map((name) => readlinkSync(`${session}${name}`));
  const before = targets(file);
  const { movedTo } = await server.result("archive_session", one);
  expect([targets(movedTo), readdirSync(dirname(file))]).toEqual([before, []]);
  await server.result("unarchive_session", one);
  expect([targets(file), read(elsewhere)]).toEqual([before, "kept elsewhere"]);
});

test("in a flat folder, too, and after a restart; sessions of another root are archived elsewhere", async () => {
  const place = temporaryPlace();
  const flat = join(place.home, "flat");
  const file = putSession(place, 1, { folder: flat });
  const first = serveLibrary(place, ["--session-dir", flat]);
  const { movedTo } = await first.result("archive_session", { sessionPath: file });
  await first.finish();
  const server = serveLibrary(place, ["--session-dir", flat]);
  expect([await listBoth(server), await listBoth(serveLibrary(place))]).toEqual([
    [[], [sessionId(1)]],
    [[], []],
  ]);
  expect((await server.result("unarchive_session", { sessionPath: movedTo })).movedTo).toBe(file);
});

test("an archived session can be read, found and written to, and its forks still know it", async () => {
  const { place, server, file } = library(1, [], undefined, { name: "parent.jsonl" });
  putSession(place, 2, { header: { parentSession: file } });
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
  const { place, server, file } = library();
  const outside = putSession(place, 2, { folder: temporaryFolder() });
  const { movedTo } = await server.result("archive_session", { sessionPath: file });
  putSession(place, 1, { lines: chain(5) });
  const look = (): string[] => [movedTo, file, outside].map(read);
  const before = look();
  for (const [command, params, name] of [
    ["archive_session", { sessionPath: file }, "already_exists"],
    ["unarchive_session", { sessionPath: movedTo }, "already_exists"],
    ["archive_session", one, "ambiguous_id"],
    ["archive_session", { sessionPath: outside }, "path_outside_root"],
    ["archive_session", { sessionPath: movedTo }, "path_outside_root"],
    ["unarchive_session", { sessionPath: outside }, "path_outside_root"],
    ["unarchive_session", { sessionPath: file }, "path_outside_root"],
  ] as const)
    expect([command, params, await nameOf(server, command, params)]).toEqual([command, params, name]);
  expect(look()).toEqual(before);
});

test("a list that watches folders sees sessions come to the archive and leave it", async () => {
  const { place, server, file } = library();
  const files = [file, putSession(place, 2, { cwd: "/another" })];
  const catalog = catalogOn({ root: rootOf(place), state: place.state }, { ...withoutSqlite, watchFrom: 1 });
  const archivedIds = async (): Promise<string[]> =>
    (await catalog.list({ archived: true })).found.map(({ id }) => id).sort();
  expect(await archivedIds()).toEqual([]);
  for (const [index, sessionPath] of files.entries()) {
    await server.result("archive_session", { sessionPath });
    expect(await archivedIds()).toEqual([sessionId(1), sessionId(2)].slice(0, index + 1));
  }
  await server.result("unarchive_session", one);
  expect([await archivedIds(), (await catalog.list({})).total]).toEqual([[sessionId(2)], 1]);
});

test("an archived session that was deleted, or moved, by hand is where it is", async () => {
  const { server, file, files } = library(2);
  const moved: string[] = [];
  for (const sessionPath of files) moved.push((await server.result("archive_session", { sessionPath })).movedTo);
  expect(existsSync(file)).toBe(false);
  unlinkSync(moved[0]);
  renameSync(moved[1], join(dirname(file), basename(moved[1])));
  expect(await listBoth(server)).toEqual([[sessionId(2)], []]);
});
