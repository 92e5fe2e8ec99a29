/** A session in another working directory: the bytes of its cwd change, and nothing else. */

import { appendFileSync, existsSync, linkSync, mkdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { folderName } from "../../src/storage/fs/paths.ts";
import { user } from "../support/drafts.ts";
import { contentsOf, listed, put, putSession, read, rootOf, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { chain, id, userText } from "../support/lines.ts";
import { type Json, serveHere, temporaryFolder, temporaryPlace } from "../support/server.ts";

let NEW: string;

beforeEach(() => {
  NEW = join(temporaryFolder(), "other place");
  for (const n of ["", ".2"]) mkdirSync(`${NEW}${n}`);
});

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

test("a session that gets a name gets it in the folder of its directory, whatever its id says", async () => {
  const place = temporaryPlace();
  const file = put(
    join(rootOf(place), "--x--", "session.log"),
    `{"type":"session","id":"/../../out"}\n${chain(1)[0]}\n`,
  );
  const { movedTo } = await serveLibrary(place).result("relocate_session", { sessionPath: file, cwd: NEW });
  expect(movedTo).toBe(join(rootOf(place), folderName(NEW), "__out.jsonl"));
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

describe.each(["jsonl", "v2"])("a session on %s", (store) => {
  async function make(): Promise<{ file: string; id: string; place: ReturnType<typeof temporaryPlace> }> {
    const place = temporaryPlace();
    const server = serveHere(["--store", store, "--events", "none"], { place });
    await server.result("append", { entries: [user("one"), user("two")] });
    const { sessionFile: file, sessionId } = await server.result("get_state");
    await server.finish();
    return { file, id: sessionId, place };
  }

  test("is relocated any number of times, there and back, each time with what it was before", async () => {
    const { file, id, place } = await make();
    const server = serveHere(["--no-session", "--events", "none"], { place });
    const folders = [NEW, `${NEW}.2`, place.cwd, NEW, place.cwd, `${NEW}.2`];
    const kept: string[] = [];
    let from = file;
    for (const cwd of folders) {
      const before = read(headerOf(from));
      const { sessionPath, movedTo, keptAt } = await server.result("relocate_session", { sessionId: id, cwd });
      expect([sessionPath, movedTo]).toEqual([from, join(rootOf(place), folderName(cwd), basename(file))]);
      expect(read(keptAt)).toBe(before);
      expect(await listed(server)).toEqual([id]);
      kept.push(before);
      from = movedTo;
    }
    const there = Object.entries(contentsOf(rootOf(place)));
    // Every one of them is there still, and all are beside the session.
    const backups = there.filter(([path]) => path.includes(".relocated.bak"));
    expect(backups.map(([, content]) => content).sort()).toEqual(kept.sort());
    expect(there.every(([path]) => path.startsWith(dirname(from)))).toBe(true);
    expect((await server.result("verify_session", { sessionPath: from })).ok).toBe(true);
    await server.result("switch_session", { sessionPath: from });
    const { messages } = await server.result("get_messages");
    expect(messages.map(({ content }: Json) => content)).toEqual(["one", "two"]);
  });

  test("is not relocated to a folder that is not there, unless that is said", async () => {
    const { file, id, place } = await make();
    const server = serveHere(["--no-session", "--events", "none"], { place });
    const before = contentsOf(rootOf(place));
    writeFileSync(join(place.home, "file"), "");
    for (const cwd of [join(place.home, "projcet"), join(place.home, "file"), join(place.home, "file", "below")]) {
      const { data, message } = await server.failure("relocate_session", { sessionPath: file, cwd });
      expect([data.name, data.issues[0].path]).toEqual(["invalid_params", "cwd"]);
      expect(message).toContain(cwd);
      expect(message).toContain("allowMissing");
    }
    expect(contentsOf(rootOf(place))).toEqual(before);
    const cwd = "/on/another/machine";
    await server.result("relocate_session", { sessionPath: file, cwd: `${cwd}/`, allowMissing: true });
    expect(await listed(server, { cwd })).toEqual([id]);
  });

  test("is not touched when its folder has another name by a link", async () => {
    const { file, id, place } = await make();
    symlinkSync(dirname(file), join(rootOf(place), "link"));
    const sessionPath = join(rootOf(place), "link", basename(file));
    const server = serveHere(["--no-session", "--events", "none"], { place });
    const params = { sessionPath, cwd: place.cwd };
    expect((await server.failure("relocate_session", params)).data.name).toBe("already_exists");
    const { sessionId } = await server.result("switch_session", { sessionPath: file });
    expect(sessionId).toBe(id);
  });

  // In a container, no entry is in the file that is replaced.
  test.runIf(store === "jsonl").each([
    ["the folder cannot be synced", "syncFolder"],
    ["what came late cannot be copied", "write"],
  ] as const)("keeps what another program wrote since its header was replaced, where %s", async (_why, operation) => {
    const { file, id, place } = await make();
    const rewritten = headerOf(file);
    const before = read(rewritten);
    const [late, theirs] = [userText("b0000000", null, "late"), userText("b0000001", null, "theirs")];
    let stage: "before" | "replaced" | "failed" = "before";
    const fail = (): void => {
      if (stage !== "replaced") return;
      stage = "failed";
      appendFileSync(rewritten, `${theirs}\n`);
      throw Object.assign(new Error("refused"), { code: "EIO" });
    };
    const disk: Disk = {
      ...realDisk,
      link(path, name) {
        realDisk.link(path, name);
        if (path === rewritten) appendFileSync(path, `${late}\n`);
      },
      rename(path, name) {
        realDisk.rename(path, name);
        if (name === rewritten && stage === "before") stage = "replaced";
      },
      async syncFolder(path) {
        if (operation === "syncFolder") fail();
        return realDisk.syncFolder(path);
      },
      write(fd, bytes) {
        if (operation === "write") fail();
        return realDisk.write(fd, bytes);
      },
    };
    const server = serveHere(["--no-session", "--events", "none"], { place, disk });
    const { message, data } = await server.failure("relocate_session", { sessionId: id, cwd: NEW });
    expect([stage, message]).toEqual(["failed", expect.stringContaining(data.keptAt)]);
    expect(message).not.toContain("Nothing was changed");
    expect(read(rewritten)).toContain(theirs);
    expect(read(data.keptAt)).toBe(`${before}${late}\n`);
    const { movedTo } = await server.result("relocate_session", { sessionId: id, cwd: NEW });
    expect(read(headerOf(movedTo))).toContain(theirs);
  });

  test.runIf(store === "jsonl")("is as it was where the folder cannot be synced and nobody wrote", async () => {
    const { file, id, place } = await make();
    const before = contentsOf(rootOf(place));
    let isReplaced = false;
    const disk: Disk = {
      ...realDisk,
      rename(path, name) {
        realDisk.rename(path, name);
        isReplaced = name === headerOf(file);
      },
      async syncFolder(path) {
        if (!isReplaced) return realDisk.syncFolder(path);
        isReplaced = false;
        throw Object.assign(new Error("refused"), { code: "EIO" });
      },
    };
    const server = serveHere(["--no-session", "--events", "none"], { place, disk });
    expect((await server.failure("relocate_session", { sessionId: id, cwd: NEW })).data.name).toBe("storage_failed");
    expect(contentsOf(rootOf(place))).toEqual(before);
  });

  /** The file that has the header. */
  function headerOf(path: string): string {
    return store === "v2" ? join(path, "header.jsonl") : path;
  }
});

test("a confined server does not tell which folders there are elsewhere", async () => {
  const place = temporaryPlace();
  const server = serveLibrary(place, ["--confine"]);
  for (const [n, cwd] of [NEW, `${NEW}.missing`].entries())
    await server.result("relocate_session", { sessionPath: putSession(place, n + 1), cwd });
});

test("a second name that a move which was cut off left goes with the same request, by id or path", async () => {
  const place = temporaryPlace();
  const server = serveLibrary(place);
  for (const [n, by] of (["sessionId", "old", "new"] as const).entries()) {
    const file = putSession(place, n + 1);
    const { movedTo } = await server.result("relocate_session", { sessionPath: file, cwd: NEW });
    linkSync(movedTo, file);
    const which = by === "sessionId" ? { sessionId: sessionId(n + 1) } : { sessionPath: by === "old" ? file : movedTo };
    const other = { ...which, cwd: `${NEW}.2` };
    expect((await server.failure("relocate_session", other)).data.name).toMatch(/already_exists|ambiguous_id/);
    expect(await server.result("relocate_session", { ...which, cwd: NEW })).toMatchObject({ movedTo });
    expect(await listed(server, { query: sessionId(n + 1) })).toEqual([sessionId(n + 1)]);
  }
});

test.each(["relative", "/with\0a NUL"])("a session gets no directory %j, which no process can be in", async (cwd) => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const before = contentsOf(rootOf(place));
  const { data } = await serveLibrary(place).failure("relocate_session", {
    sessionPath: file,
    cwd,
    allowMissing: true,
  });
  expect(data).toMatchObject({ name: "invalid_params", issues: [{ path: "cwd" }] });
  expect(contentsOf(rootOf(place))).toEqual(before);
});
