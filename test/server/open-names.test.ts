/** Open sessions whose files get other names, other numbers on the disk or other contents: each stays the one that it is. */

import { cpSync, readdirSync, readFileSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { OpenRoom } from "../../src/server/dispatch/open-room.ts";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { user } from "../support/drafts.ts";
import { put } from "../support/lifecycle.ts";
import { fileText, headerText, userText } from "../support/lines.ts";
import { filesOf, makeSessions, openSessions } from "../support/made-sessions.ts";
import { LOOKS_EVERY } from "../support/open-sessions.ts";
import { otherName } from "../support/other-programs.ts";
import { type HereServer, serveHere, stopTimers } from "../support/server.ts";
import { acrossTiers, SYSTEM } from "../support/tiers.ts";

const STORES = ["jsonl", "v2"] as const;

const idOf = (n: number): string => `01991f6e-aaaa-7000-8000-${String(n).padStart(12, "0")}`;

/** Puts a session there that this server has not made. Returns its path. */
function putSession(server: HereServer, n: number, version = 3): string {
  const { cwd } = server.place;
  const header = headerText({ version, id: idOf(n), cwd });
  return put(join(cwd, `${n}.jsonl`), fileText(header, userText(`aaaa000${n}`, null, `of ${n}`)));
}

/** Makes sessions of a store, of which the first two are open beside the current one, which is the last. */
async function withSessions(store: string, count: number, disk: Disk = realDisk) {
  const server = serveHere(["--store", store], { disk });
  const made = await makeSessions(server, count);
  await openSessions(server, made[0].sessionFile, made[1].sessionFile);
  return { server, made };
}

/** Puts a copy of a file or folder in the place of another, or of itself. */
function takePlace(from: string, path: string): void {
  cpSync(from, `${path}.tmp`, { recursive: true });
  rmSync(path, { recursive: true });
  renameSync(`${path}.tmp`, path);
}

/** Returns the files of a session. */
function filesIn(path: string): string[] {
  if (statSync(path).isFile()) return [path];
  return readdirSync(path, { recursive: true, encoding: "utf8" })
    .map((name) => join(path, name))
    .filter((file) => statSync(file).isFile());
}

/** Has the server look at its files until so many sessions with an id are open. */
async function openAfterALook(server: HereServer, sessionId: string, count = 1): Promise<void> {
  vi.advanceTimersByTime(LOOKS_EVERY);
  await vi.waitUntil(async () => (await filesOf(server, sessionId)).length === count);
}

/** A disk on which a path has the number of what is gone, which the system gives to the next that is made. */
function reusing(): { disk: Disk; give: (path: string, inode: number) => void } {
  const given = new Map<string, number>();
  const info: Disk["info"] = (path, plain) => {
    const found = realDisk.info(path, plain);
    return { ...found, inode: given.get(path) ?? found.inode };
  };
  return { disk: { ...realDisk, info }, give: (path, inode) => given.set(path, inode) };
}

test("one that was written anew, as its first change does with an older version, is not its original, which is kept", async () => {
  const server = serveHere();
  const { cwd } = server.place;
  const [first, second] = [putSession(server, 1, 2), putSession(server, 2)];
  await openSessions(server, first, second);
  await server.result("append", { sessionId: idOf(1), entries: [user("more")] });
  const original = join(cwd, "original.jsonl");
  renameSync(join(cwd, readdirSync(cwd).find((name) => name.endsWith(".bak")) as string), original);
  await server.result("set_session_name", { sessionPath: original, name: "the original" });
  expect(readFileSync(first, "utf8")).not.toContain("the original");
  expect(readFileSync(original, "utf8")).toContain("the original");
  // It is found by each of its names.
  const sessionPath = otherName(first);
  await server.result("set_session_name", { sessionPath, name: "by its other name" });
  await server.result("open_session", { sessionPath });
  expect(await filesOf(server, idOf(1))).toEqual([first]);
  await server.result("append", { sessionId: idOf(1), entries: [user("again")] });
  await server.result("close_session", { sessionId: idOf(1) });
  await server.result("delete_session", { sessionPath: first });
});

acrossTiers(test, STORES)("one on %s that was replaced just now is found by each name", async (store) => {
  const { server, made } = await withSessions(store, 3);
  const [{ sessionFile, sessionId }] = made;
  takePlace(sessionFile, sessionFile);
  await openSessions(server, otherName(sessionFile));
  expect(await filesOf(server, sessionId)).toEqual([sessionFile]);
});

test("one that was closed to make room, and deleted, is not the one that has its number on the disk now", async () => {
  stopTimers();
  const { disk, give } = reusing();
  const server = serveHere([], { disk, room: new OpenRoom(1, () => ({ bytes: 0, handles: 0 })) });
  const paths = [1, 2, 3].map((n) => putSession(server, n));
  await openSessions(server, ...paths);
  await openAfterALook(server, idOf(1), 0);
  const { ino } = statSync(paths[0]);
  rmSync(paths[0]);
  const next = putSession(server, 4);
  give(next, ino);
  await server.result("delete_session", { sessionPath: next });
});

acrossTiers(test, STORES)("one on %s that was deleted is not the one with its number now", async (store) => {
  const { disk, give } = reusing();
  const { server, made } = await withSessions(store, 4, disk);
  const { ino } = statSync(made[0].sessionFile);
  rmSync(made[0].sessionFile, { recursive: true });
  give(made[2].sessionFile, ino);
  const there = await server.result("open_session", { sessionPath: made[2].sessionFile });
  expect(there.sessionId).toBe(made[2].sessionId);
});

test("a write to one that got another id is durable when it is acknowledged", SYSTEM, async () => {
  let syncs = 0;
  const counted =
    <T>(sync: (fd: number) => T) =>
    (fd: number): T => {
      syncs++;
      return sync(fd);
    };
  const disk = { ...realDisk, sync: counted(realDisk.sync), syncNow: counted(realDisk.syncNow) };
  const server = serveHere([], { disk });
  const path = putSession(server, 1);
  await openSessions(server, path);
  await server.result("append", { sessionId: idOf(1), entries: [user("more")] });
  writeFileSync(`${path}.tmp`, readFileSync(path, "utf8").replaceAll(idOf(1), idOf(7)));
  renameSync(`${path}.tmp`, path);
  await vi.waitUntil(async () => (await filesOf(server, idOf(7))).length > 0, { timeout: 30_000 });
  for (const name of ["one", "two"]) {
    const before = syncs;
    await server.result("set_session_name", { sessionPath: path, name });
    expect(syncs, name).toBeGreaterThan(before);
  }
});

acrossTiers(test, STORES)("one on %s that became a copy of another is not taken for that one", async (store) => {
  stopTimers();
  const { server, made } = await withSessions(store, 3);
  const [first, second] = made;
  takePlace(second.sessionFile, first.sessionFile);
  vi.advanceTimersByTime(LOOKS_EVERY);
  await server.request("get_state", { sessionId: first.sessionId });
  await server.result("append", { sessionId: second.sessionId, entries: [user("for the second")] });
  const has = (path: string): boolean =>
    filesIn(path).some((file) => readFileSync(file, "utf8").includes("for the second"));
  expect([has(first.sessionFile), has(second.sessionFile)]).toEqual([false, true]);
});

/** Puts another session, that is not open, in the place of the first, which is. Returns its id and the path that it has now. */
async function withAnotherInPlace(store: string) {
  stopTimers();
  const { server, made } = await withSessions(store, 4);
  const [{ sessionFile }, , { sessionId, sessionFile: from }] = made;
  takePlace(from, sessionFile);
  rmSync(from, { recursive: true });
  return { server, sessionId, sessionFile };
}

acrossTiers(test, STORES)("one on %s in another's place is closed for good, and opened again", async (store) => {
  const { server, sessionId, sessionFile } = await withAnotherInPlace(store);
  await openAfterALook(server, sessionId);
  expect(await server.result("open_session", { sessionPath: sessionFile })).toMatchObject({ sessionId });
  await server.result("close_session", { sessionId });
  expect(await filesOf(server, sessionId)).toEqual([]);
  expect(await server.result("open_session", { sessionPath: sessionFile })).toMatchObject({ sessionId });
  await server.result("append", { sessionId, entries: [user("more")] });
  await server.result("switch_session", { sessionPath: sessionFile });
  expect((await server.result("append", { entries: [user("and more")] })).entryIds).toHaveLength(1);
});

acrossTiers(test, STORES)("two on %s with one id are open by their paths until both are closed", async (store) => {
  stopTimers();
  const { server, made } = await withSessions(store, 3);
  const [first, second] = made;
  const { sessionId } = second;
  takePlace(second.sessionFile, first.sessionFile);
  await openAfterALook(server, sessionId, 2);
  const paths = [first.sessionFile, second.sessionFile];
  for (const sessionPath of [...paths, ...paths]) {
    await openSessions(server, sessionPath);
    expect((await filesOf(server, sessionId)).sort()).toEqual([...paths].sort());
    // The one that was opened last has the id.
    await server.result("append", { sessionId, entries: [user("for this one")] });
    expect((await server.result("get_state", { sessionId })).sessionFile).toBe(sessionPath);
  }
  for (const left of [1, 0]) {
    await server.result("close_session", { sessionId });
    expect(await filesOf(server, sessionId)).toHaveLength(left);
  }
});

test.each([
  ["v2", otherName],
  ["jsonl", (path: string) => `${path}.link.jsonl`],
] as const)("one on %s that another has taken the place of just now is found by each name", async (store, nameOf) => {
  const { server, sessionId, sessionFile } = await withAnotherInPlace(store);
  if (store === "jsonl") symlinkSync(sessionFile, nameOf(sessionFile));
  await openSessions(server, nameOf(sessionFile));
  await openAfterALook(server, sessionId);
  expect(await filesOf(server, sessionId)).toEqual([sessionFile]);
  await server.result("append", { sessionId, entries: [user("more")] });
});
