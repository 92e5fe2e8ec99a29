/** Open sessions whose files get other names, other numbers on the disk or other contents: each stays the one that it is. */

import {
  copyFileSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { expect, test, vi } from "vitest";
import { OpenRoom } from "../../src/server/dispatch/open-room.ts";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { user } from "../support/drafts.ts";
import { type HereServer, type Json, serveHere, stopTimers } from "../support/server.ts";

/** Milliseconds after which a server looks at what it has open. */
const LOOKS_EVERY = 500;

const idOf = (n: number): string => `01991f6e-aaaa-7000-8000-${String(n).padStart(12, "0")}`;

/** Puts a session there that this server has not made. Returns its path. */
function put(server: HereServer, n: number, version = 3): string {
  const { cwd } = server.place;
  const path = join(cwd, `${n}.jsonl`);
  const timestamp = "2026-01-24T16:22:26.831Z";
  const header = { type: "session", version, id: idOf(n), timestamp, cwd };
  const message = { role: "user", content: `of ${n}`, timestamp: 1 };
  const entry = { type: "message", id: `aaaa000${n}`, parentId: null, timestamp, message };
  writeFileSync(path, `${JSON.stringify(header)}\n${JSON.stringify(entry)}\n`);
  return path;
}

/** Opens sessions one after the other. The last one is not the current one either. */
async function opened(server: HereServer, ...paths: string[]): Promise<void> {
  for (const sessionPath of paths) await server.result("open_session", { sessionPath });
}

/** Returns the same file by the name that it has through a link to its folder. */
function otherName(path: string): string {
  const folder = `${dirname(path)} by another name`;
  symlinkSync(dirname(path), folder);
  return join(folder, basename(path));
}

/** Puts one file in the place of another, as programs do that save. */
function replace(path: string, content: string): void {
  writeFileSync(`${path}.tmp`, content);
  renameSync(`${path}.tmp`, path);
}

async function filesOf(server: HereServer, sessionId: string): Promise<string[]> {
  const { sessions } = await server.result("list_open_sessions");
  return sessions.filter((one: Json) => one.sessionId === sessionId).map(({ sessionFile }: Json) => sessionFile);
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

test("one that was written anew, as its first change does with an older version, is found by each of its names", async () => {
  const server = serveHere();
  const [first, second] = [put(server, 1, 2), put(server, 2)];
  await opened(server, first, second);
  await server.result("append", { sessionId: idOf(1), entries: [user("more")] });
  const sessionPath = otherName(first);
  await server.result("set_session_name", { sessionPath, name: "by its other name" });
  await server.result("open_session", { sessionPath });
  expect(await filesOf(server, idOf(1))).toEqual([first]);
  await server.result("append", { sessionId: idOf(1), entries: [user("again")] });
  await server.result("close_session", { sessionId: idOf(1) });
  await server.result("delete_session", { sessionPath: first });
});

test("one that was written anew is another one than its original, which is kept", async () => {
  const server = serveHere();
  const [first, second] = [put(server, 1, 2), put(server, 2)];
  await opened(server, first, second);
  await server.result("append", { sessionId: idOf(1), entries: [user("more")] });
  const { cwd } = server.place;
  const original = join(cwd, "original.jsonl");
  renameSync(join(cwd, readdirSync(cwd).find((name) => name.endsWith(".bak")) as string), original);
  await server.result("set_session_name", { sessionPath: original, name: "the original" });
  expect(readFileSync(first, "utf8")).not.toContain("the original");
  expect(readFileSync(original, "utf8")).toContain("the original");
});

test("one that another program has replaced just now is found by each of its names", async () => {
  const server = serveHere();
  const [first, second] = [put(server, 1), put(server, 2)];
  await opened(server, first, second);
  replace(first, readFileSync(first, "utf8"));
  await opened(server, otherName(first));
  expect(await filesOf(server, idOf(1))).toEqual([first]);
});

test("one that was closed to make room, and deleted, is not the one that has its number on the disk now", async () => {
  stopTimers();
  const { disk, give } = reusing();
  const server = serveHere([], { disk, room: new OpenRoom(1, () => ({ bytes: 0, handles: 0 })) });
  const paths = [1, 2, 3].map((n) => put(server, n));
  await opened(server, ...paths);
  vi.advanceTimersByTime(LOOKS_EVERY);
  await vi.waitUntil(async () => (await filesOf(server, idOf(1))).length === 0);
  const { ino } = statSync(paths[0]);
  rmSync(paths[0]);
  const next = put(server, 4);
  give(next, ino);
  await server.result("delete_session", { sessionPath: next });
});

test("a container that was deleted while it was open is not the one that has its number on the disk now", async () => {
  const { disk, give } = reusing();
  const server = serveHere(["--store", "v2"], { disk });
  const made: { sessionId: string; sessionFile: string }[] = [];
  for (let n = 0; n < 4; n++) {
    await server.result("new_session");
    await server.result("append", { entries: [user(`of ${n}`)] });
    made.push(await server.result("get_state"));
  }
  await opened(server, made[0].sessionFile, made[1].sessionFile);
  const { ino } = statSync(made[0].sessionFile);
  rmSync(made[0].sessionFile, { recursive: true });
  give(made[2].sessionFile, ino);
  const there = await server.result("open_session", { sessionPath: made[2].sessionFile });
  expect(there.sessionId).toBe(made[2].sessionId);
});

test("a write to one that got another id is durable when it is acknowledged", async () => {
  let syncs = 0;
  const counted = <T>(sync: (fd: number) => T) => {
    return (fd: number): T => {
      syncs++;
      return sync(fd);
    };
  };
  const disk = { ...realDisk, sync: counted(realDisk.sync), syncNow: counted(realDisk.syncNow) };
  const server = serveHere([], { disk });
  const path = put(server, 1);
  await opened(server, path);
  await server.result("append", { sessionId: idOf(1), entries: [user("more")] });
  replace(path, readFileSync(path, "utf8").replaceAll(idOf(1), idOf(7)));
  await vi.waitUntil(async () => (await filesOf(server, idOf(7))).length > 0, { timeout: 30_000 });
  for (const name of ["one", "two"]) {
    const before = syncs;
    await server.result("set_session_name", { sessionPath: path, name });
    expect(syncs, name).toBeGreaterThan(before);
  }
});

test("one whose file became a copy of another does not take that one's place", async () => {
  stopTimers();
  const server = serveHere();
  const [first, second] = [put(server, 1), put(server, 2)];
  await opened(server, first, second);
  copyFileSync(second, `${first}.tmp`);
  renameSync(`${first}.tmp`, first);
  vi.advanceTimersByTime(LOOKS_EVERY);
  await server.request("get_state", { sessionId: idOf(1) });
  await server.result("append", { sessionId: idOf(2), entries: [user("for the second")] });
  expect(readFileSync(second, "utf8")).toContain("for the second");
  expect(readFileSync(first, "utf8")).not.toContain("for the second");
});
