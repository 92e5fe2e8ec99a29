/** A session in another working directory: the bytes of its cwd change, and nothing else. */

import { appendFileSync, linkSync, mkdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { toFolderName } from "../../src/storage/fs/paths.ts";
import { nameOf } from "../support/asking.ts";
import {
  CWD,
  type Library,
  library,
  listed,
  one,
  put,
  putSession,
  read,
  rootOf,
  sessionId,
} from "../support/lifecycle.ts";
import { chain, userText } from "../support/lines.ts";
import { meddleWith } from "../support/meddling.ts";
import { type HereServer, type Json, serveHere, temporaryFolder } from "../support/server.ts";
import { makeIn, type Stored } from "../support/stored-sessions.ts";

let NEW: string;

beforeEach(() => {
  NEW = join(temporaryFolder(), "other place");
  for (const n of ["", ".2"]) mkdirSync(`${NEW}${n}`);
});

/** A server, and a file of this content in a folder of the session folders. */
function withFile(folder: string, name: string, content: string): Library {
  const all = library(0);
  return { ...all, file: put(join(rootOf(all.place), folder, name), content) };
}

const relocate = (server: HereServer, sessionPath: string, cwd = NEW): Promise<Json> =>
  server.result("relocate_session", { sessionPath, cwd });

test("only the cwd's bytes change, and the old file is kept where the reply says", async () => {
  // Odd spacing, numbers and members are bytes like any others.
  const header = `{ "type" : "session","version":3, "x":1.0e400 ,"id":"${sessionId(1)}","cwd" : "/home/me/project" ,"y":[1,\t2]}`;
  const content = `${header}\r\n${chain(3).join("\n")}`;
  const { place, server, file, contents } = withFile("--home-me-project--", "odd.jsonl", content);
  const blob = join(".blobs", "0".repeat(64));
  put(`${file}${blob}`, "media");
  put(`${file}.v1.bak`, "backup");
  const { mode } = statSync(file);
  const result = await server.result("relocate_session", { ...one, cwd: NEW });
  const movedTo = join(rootOf(place), toFolderName(NEW), "odd.jsonl");
  const keptAt = `${movedTo}.relocated.bak`;
  expect(result).toMatchObject({ ...one, sessionPath: file, movedTo, keptAt });
  expect(contents()).toEqual({
    [movedTo]: content.replace('"/home/me/project"', JSON.stringify(NEW)),
    [keptAt]: content,
    [`${movedTo}${blob}`]: "media",
    [`${movedTo}.v1.bak`]: "backup",
  });
  expect(statSync(movedTo).mode).toBe(mode);
  expect([await listed(server, { cwd: NEW }), await listed(server, { cwd: CWD })]).toEqual([[sessionId(1)], []]);
});

test.each([
  ["without a cwd gets one", '{"type":"session","id":"none"}', '{"type":"session","cwd":~,"id":"none"}'],
  ["of version 1 stays one", '{"type":"session","id":"v1","cwd":"/v1"}', '{"type":"session","id":"v1","cwd":~}'],
])("a header %s", async (_what, before, after) => {
  const { server, file } = withFile("--v1--", "v1.jsonl", `${before}\n${chain(1)[0]}\n`);
  const { movedTo } = await relocate(server, file);
  expect(read(movedTo)).toBe(`${after.replace("~", JSON.stringify(NEW))}\n${chain(1)[0]}\n`);
});

test("a damaged header is not written anew", async () => {
  const { server, file, contents } = withFile("--x--", "x.jsonl", `{"type":"sess\n${chain(2).join("\n")}\n`);
  const before = contents();
  expect(await nameOf(server, "relocate_session", { sessionPath: file, cwd: NEW })).toBe("corrupt");
  expect(contents()).toEqual(before);
});

test("a session that gets a name gets it in the folder of its directory, whatever its id says", async () => {
  const line = '{"type":"session","id":"/../../out"}';
  const { place, server, file } = withFile("--x--", "session.log", `${line}\n${chain(1)[0]}\n`);
  expect((await relocate(server, file)).movedTo).toBe(join(rootOf(place), toFolderName(NEW), "__out.jsonl"));
});

test("in a flat folder the session stays in its place", async () => {
  const flat = join(temporaryFolder(), "flat");
  const { server, file } = library(1, ["--session-dir", flat], undefined, { folder: flat });
  const before = read(file);
  for (const n of ["", ".2"]) {
    const cwd = `${NEW}${n}`;
    expect(await relocate(server, file, cwd)).toMatchObject({ movedTo: file, keptAt: `${file}.relocated.bak${n}` });
    expect(await listed(server, { cwd })).toEqual([sessionId(1)]);
  }
  expect(read(`${file}.relocated.bak`)).toBe(before);
  const again = { sessionPath: file, cwd: `${NEW}.2` };
  expect(await nameOf(server, "relocate_session", again)).toBe("already_exists");
});

test("overwrites nothing", async () => {
  const { place, server, file, contents } = library();
  const path = putSession(place, 2, { cwd: NEW, name: basename(file) });
  const before = contents();
  const { data } = await server.failure("relocate_session", { sessionPath: file, cwd: NEW });
  expect(data).toMatchObject({ name: "already_exists", path });
  expect(contents()).toEqual(before);
});

describe.each(["jsonl", "v2"])("a session on %s", (store) => {
  const make = (): Promise<Stored> => makeIn(store);

  /** The file that has the header. */
  const headerOf = (path: string): string => (store === "v2" ? join(path, "header.jsonl") : path);

  test("is relocated any number of times, there and back, each time with what it was before", async () => {
    const { file, id, place, server, contents } = await make();
    const kept: string[] = [];
    let from = file;
    for (const cwd of [NEW, `${NEW}.2`, place.cwd, NEW, place.cwd, `${NEW}.2`]) {
      kept.push(read(headerOf(from)));
      const { sessionPath, movedTo, keptAt } = await server.result("relocate_session", { sessionId: id, cwd });
      expect([sessionPath, movedTo]).toEqual([from, join(rootOf(place), toFolderName(cwd), basename(file))]);
      expect([read(keptAt), await listed(server)]).toEqual([kept.at(-1), [id]]);
      from = movedTo;
    }
    const there = Object.entries(contents());
    // Every one of them is there still, and all are next to the session.
    const backups = there.filter(([path]) => path.includes(".relocated.bak"));
    expect(backups.map(([, content]) => content).sort()).toEqual(kept.sort());
    expect(there.every(([path]) => path.startsWith(dirname(from)))).toBe(true);
    expect((await server.result("verify_session", { sessionPath: from })).ok).toBe(true);
    await server.result("switch_session", { sessionPath: from });
    const { messages } = await server.result("get_messages");
    expect(messages.map(({ content }: Json) => content)).toEqual(["one", "two"]);
  });

  test("is not relocated to a folder that is not there, unless that is said, nor where no process can be", async () => {
    const { file: sessionPath, id, place, server, contents } = await make();
    const before = contents();
    writeFileSync(join(place.home, "file"), "");
    const missing = ["projcet", "file", "file/below"].map((name) => join(place.home, name));
    for (const cwd of [...missing, "relative", "/with\0a NUL"]) {
      const params = { sessionPath, cwd, allowMissing: !missing.includes(cwd) };
      const { data, message } = await server.failure("relocate_session", params);
      expect([data.name, data.issues[0].path]).toEqual(["invalid_params", "cwd"]);
      if (missing.includes(cwd)) expect(message).toContain(cwd);
      if (missing.includes(cwd)) expect(message).toContain("allowMissing");
    }
    expect(contents()).toEqual(before);
    const cwd = "/on/another/machine";
    await server.result("relocate_session", { sessionPath, cwd: `${cwd}/`, allowMissing: true });
    expect(await listed(server, { cwd })).toEqual([id]);
  });

  test("is not touched when its folder has another name by a link", async () => {
    const { file, id, place, server } = await make();
    symlinkSync(dirname(file), join(rootOf(place), "link"));
    const params = { sessionPath: join(rootOf(place), "link", basename(file)), cwd: place.cwd };
    expect(await nameOf(server, "relocate_session", params)).toBe("already_exists");
    expect(await server.result("switch_session", { sessionPath: file })).toMatchObject({ sessionId: id });
  });
});

describe("where the disk refuses after the header was replaced", () => {
  const refused = (): Error => Object.assign(new Error("refused"), { code: "EIO" });

  test.each([
    ["the folder cannot be synced", "syncFolder"],
    ["what came late cannot be copied", "write"],
  ] as const)("what another program wrote since stays, where %s", async (_why, operation) => {
    const { file, place } = library();
    const before = read(file);
    const [late, theirs] = [userText("b0000000", null, "late"), userText("b0000001", null, "theirs")];
    let stage: "before" | "replaced" | "failed" = "before";
    const fail = (): void => {
      if (stage !== "replaced") return;
      stage = "failed";
      appendFileSync(file, `${theirs}\n`);
      throw refused();
    };
    const link = (path: string): void => {
      if (path === file) appendFileSync(path, `${late}\n`);
    };
    const rename = (_path: string, name: string): void => {
      if (name === file && stage === "before") stage = "replaced";
    };
    const disk = meddleWith({ [operation]: fail }, { link, rename });
    const server = serveHere(["--no-session", "--events", "none"], { place, disk });
    const { message, data } = await server.failure("relocate_session", { ...one, cwd: NEW });
    expect([stage, message]).toEqual(["failed", expect.stringContaining(data.keptAt)]);
    expect(message).not.toContain("Nothing was changed");
    expect([read(file), read(data.keptAt)]).toEqual([expect.stringContaining(theirs), `${before}${late}\n`]);
    const { movedTo } = await server.result("relocate_session", { ...one, cwd: NEW });
    expect(read(movedTo)).toContain(theirs);
  });

  test("the session is as it was where the folder cannot be synced and nobody wrote", async () => {
    const { file, place, contents } = library();
    const before = contents();
    let isReplaced = false;
    const syncFolder = (): void => {
      if (!isReplaced) return;
      isReplaced = false;
      throw refused();
    };
    const disk = meddleWith({ syncFolder }, { rename: (_path, name) => (isReplaced = name === file) });
    const server = serveHere(["--no-session", "--events", "none"], { place, disk });
    expect(await nameOf(server, "relocate_session", { ...one, cwd: NEW })).toBe("storage_failed");
    expect(contents()).toEqual(before);
  });
});

test("a confined server does not tell which folders there are elsewhere", async () => {
  const { server, files } = library(2, ["--confine"]);
  for (const [n, cwd] of [NEW, `${NEW}.missing`].entries())
    expect(await relocate(server, files[n], cwd)).toMatchObject({ sessionPath: files[n] });
});

test("a second name that a move which was cut off left goes with the same request, by id or path", async () => {
  const { server, files } = library(3);
  for (const [n, by] of (["sessionId", "old", "new"] as const).entries()) {
    const { movedTo } = await relocate(server, files[n]);
    linkSync(movedTo, files[n]);
    const name = sessionId(n + 1);
    const which = by === "sessionId" ? { sessionId: name } : { sessionPath: by === "old" ? files[n] : movedTo };
    const other = await nameOf(server, "relocate_session", { ...which, cwd: `${NEW}.2` });
    expect(other).toMatch(/already_exists|ambiguous_id/);
    expect(await server.result("relocate_session", { ...which, cwd: NEW })).toMatchObject({ movedTo });
    expect(await listed(server, { query: name })).toEqual([name]);
  }
});
