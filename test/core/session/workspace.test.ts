/** The folder of new sessions, and the choice of the latest session: as both Pis have it, on both stores. */

import { mkdirSync, readdirSync, utimesSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { toFolderName } from "../../../src/storage/fs/paths.ts";
import { assistant, user } from "../../support/drafts.ts";
import { rootOf } from "../../support/lifecycle.ts";
import { type HereServer, type Json, type Place, serveHere, temporaryPlace } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";

const STORES = ["jsonl", "v2"] as const;
const ID = "01991f6e-1f1d-7c3e-b0a4-0242ac120001";

let place: Place;

beforeEach(() => {
  place = temporaryPlace();
});

function serving(args: string[]): HereServer {
  return serveHere(["--events", "none", ...args], { place });
}

/** Says two turns; the ids of the entries are a, b, c and d. */
async function talk(server: HereServer): Promise<void> {
  await server.result("append", { entries: [user("1", { id: "a" }), assistant("2", { id: "b" })] });
  await server.result("append", { entries: [user("3", { id: "c" }), assistant("4", { id: "d" })] });
}

/** Makes a session of two turns there. */
async function make(file: string): Promise<string> {
  mkdirSync(dirname(file), { recursive: true });
  const there = serving(["--session", file, "--session-id", ID]);
  await talk(there);
  await there.finish();
  return file;
}

/** Commands that make a new session of the current one. */
const WAYS: readonly (readonly [method: string, params: object])[] = [
  ["fork", { entryId: "c" }],
  ["fork", { entryId: "a" }],
  ["clone", {}],
  ["new_session", {}],
];

/** Returns the folder in which each of them puts the new session, which exists. */
async function foldersOf(server: HereServer, file: string): Promise<string[]> {
  const folders: string[] = [];
  for (const [method, params] of WAYS) {
    await server.result("switch_session", { sessionPath: file });
    const { sessionFile, sessionId } = await server.result(method, params);
    if (method === "new_session") await server.result("append", { entries: [user("x")] });
    expect(readdirSync(dirname(sessionFile)), method).toContain(basename(sessionFile));
    expect(sessionFile, method).toContain(sessionId);
    folders.push(dirname(sessionFile));
  }
  return folders;
}

acrossTiers(describe, STORES)("on %s, what comes of a session", (store) => {
  const ending = store === "v2" ? "v2" : "jsonl";
  const name = `${ID}.${ending}`;
  const outside = (): string => join(place.home, "elsewhere", name);
  const inRoot = (folder: string) => (): string => join(rootOf(place), folder, name);
  const getParent = (): string => dirname(outside());
  const flat = (): string => join(place.home, "flat");
  const standard = (): string => join(rootOf(place), toFolderName(place.cwd));

  test.each<[string, () => string, () => string, () => string[]]>([
    ["outside the session folders lies beside it", outside, getParent, () => []],
    ["in the session folders lies in that of its working directory", inRoot("odd"), standard, () => []],
    ["lies in the flat folder that was named", outside, flat, () => ["--session-dir", flat()]],
    ["lies where a confined server may write", outside, getParent, () => ["--confine", "--allow-path", getParent()]],
    ["lies in the folder to which a server is confined", inRoot("link"), standard, () => ["--confine"]],
  ])("%s", async (_, source, folder, args) => {
    const file = await make(source());
    const server = serving(["--store", store, ...args(), "--session", file]);
    expect(new Set(await foldersOf(server, file))).toEqual(new Set([folder()]));
  });

  test("is in a file or container as new sessions are, of one of those too", async () => {
    const file = await make(outside());
    for (const own of ["jsonl", "v2"]) {
      const server = serving(["--store", own, "--session", file]);
      for (const entryId of ["e", "f"]) {
        const { sessionFile } = await server.result("clone");
        expect([dirname(sessionFile), sessionFile.endsWith(`.${own}`)]).toEqual([dirname(file), true]);
        await server.result("append", { entries: [user("5", { id: entryId })] });
      }
      await server.finish();
    }
  });

  test("of an archived session lies in the folder of its working directory", async () => {
    const file = await make(inRoot("odd")());
    const server = serving(["--store", store]);
    const { movedTo } = await server.result("archive_session", { sessionPath: file });
    expect(movedTo.startsWith(place.state)).toBe(true);
    expect(new Set(await foldersOf(server, movedTo))).toEqual(new Set([standard()]));
  });

  test("lies where another directory's sessions do when that is named", async () => {
    const server = serving(["--store", store, "--session", await make(outside())]);
    const { sessionFile } = await server.result("new_session", { cwd: "/home/me/other" });
    expect(dirname(sessionFile)).toBe(join(rootOf(place), toFolderName("/home/me/other")));
  });

  test("at the start of the server lies where the server's sessions do", async () => {
    const file = await make(outside());
    const server = serving(["--store", store, "--fork", file]);
    expect(dirname((await server.result("get_state")).sessionFile)).toBe(standard());
  });
});

acrossTiers(describe, STORES)("on %s, --continue opens", (store) => {
  async function continued(): Promise<Json> {
    const server = serving(["--store", store, "--continue"]);
    const state = await server.result("get_state");
    await server.finish();
    return state;
  }

  test("a fork that was just made at an earlier message, the old session being left where it was moved to", async () => {
    const server = serving(["--store", store]);
    await talk(server);
    // A position that the file does not show is written into it when the session is left.
    await server.result("branch", { entryId: "b" });
    const { sessionId } = await server.result("fork", { entryId: "c" });
    await server.finish();
    expect(await continued()).toMatchObject({ sessionId, leafId: "b" });
  });

  test("a fork of one session, another being the current one that is left", async () => {
    const server = serving(["--store", store]);
    await server.result("append", { entries: [user("1", { id: "a" })] });
    const { sessionId: source } = await server.result("get_state");
    await server.result("new_session");
    await server.result("append", { entries: [user("x", { id: "x" }), assistant("y", { id: "y" })] });
    await server.result("branch", { entryId: "x" });
    await server.result("open_session", { sessionId: source });
    const { sessionId } = await server.result("clone", { sessionId: source });
    await server.finish();
    expect(await continued()).toMatchObject({ sessionId, leafId: "a" });
  });

  test("the session that was changed last, not the one in which something was said last", async () => {
    const server = serving(["--store", store]);
    const said = (timestamp: string): Json => ({ ...user("x"), timestamp });
    await server.result("append", { entries: [said("2030-01-01T00:00:00.000Z")] });
    const { sessionId: first, sessionFile } = await server.result("get_state");
    await server.result("new_session");
    await server.result("append", { entries: [said("2020-01-01T00:00:00.000Z")] });
    const { sessionId: second } = await server.result("get_state");
    await server.finish();
    const listing = serving(["--store", store]);
    const { sessions } = await listing.result("list_sessions", { cwd: place.cwd });
    expect(sessions.map((one: Json) => one.sessionId)).toEqual([first, second]);
    expect((await continued()).sessionId).toBe(second);
    await listing.result("switch_session", { sessionPath: sessionFile });
    await listing.result("set_label", { entryId: (await listing.result("get_state")).leafId, label: "changed" });
    await listing.finish();
    later(sessionFile);
    expect((await continued()).sessionId).toBe(first);
  });

  /** Moves the times of a session's files on, past the tick of the file system's clock. */
  function later(file: string): void {
    const time = new Date(Date.now() + 1000);
    const files =
      store === "v2" ? readdirSync(join(file, "segments")).map((name) => join(file, "segments", name)) : [file];
    for (const one of files) utimesSync(one, time, time);
  }

  test("no session for having been opened and closed", async () => {
    const server = serving(["--store", store]);
    const files: string[] = [];
    for (const text of ["1", "2"]) {
      await server.result("append", { entries: [user(text)] });
      files.push((await server.result("get_state")).sessionFile);
      await server.result("new_session");
    }
    await server.finish();
    later(files[1]);
    const look = serving(["--store", store, "--session", files[0]]);
    await look.result("get_messages");
    await look.finish();
    expect((await continued()).sessionFile).toBe(files[1]);
  });
});
