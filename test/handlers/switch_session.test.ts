import { linkSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { append } from "../support/asking.ts";
import { linesIn } from "../support/cases.ts";
import { user } from "../support/drafts.ts";
import { sessionText } from "../support/example.ts";
import { type HereServer, type Json, serveHere, temporaryPlace } from "../support/server.ts";

/** A server with one session on disk, and another file next to it. */
async function twoSessions(): Promise<{ server: HereServer; current: Json; other: string }> {
  const place = temporaryPlace();
  const other = join(place.cwd, "other.jsonl");
  writeFileSync(other, sessionText({ id: "other", cwd: place.cwd }, [user("x", { id: "x", parentId: null })]));
  const server = serveHere(["--events", "none"], { place });
  await append(server, user("a", { id: "a" }));
  return { server, current: await server.result("get_state"), other };
}

test("by an absolute path, by relative ones, and back by id; bytes and times are as they were", async () => {
  const { server, current, other } = await twoSessions();
  const { sessionId, sessionFile } = current;
  const look = (): unknown => [sessionFile, other].map((file) => [readFileSync(file, "utf8"), statSync(file).mtimeMs]);
  const before = look();
  for (const sessionPath of [other, "other.jsonl", "../project/other.jsonl"]) {
    const result = await server.result("switch_session", { sessionPath });
    expect(result).toMatchObject({ cancelled: false, sessionId: "other", leafId: "x" });
    expect(await server.result("get_state")).toMatchObject({ sessionId: "other", entryCount: 1 });
    await server.result("get_tree", { format: "nested" });
    const back = await server.result("switch_session", { sessionId });
    expect(back).toEqual({ cancelled: false, sessionId, sessionFile, leafId: "a" });
    await server.result("get_messages");
  }
  await server.finish();
  expect(look()).toEqual(before);
});

test("by the unambiguous beginning of an id", async () => {
  const { server, current } = await twoSessions();
  for (const newSessionId of ["abcdef-1", "abcdef-2"]) {
    await server.result("new_session", { newSessionId });
    await append(server, user(newSessionId));
  }
  expect((await server.result("switch_session", { sessionId: "abcdef-1" })).sessionId).toBe("abcdef-1");
  expect(await server.failure("switch_session", { sessionId: "abcdef" })).toMatchObject({
    code: -32803,
    message: "Several session ids begin with this: abcdef-1, abcdef-2. Give more of it.",
    data: { name: "ambiguous_id", sessionId: "abcdef" },
  });
  expect((await server.result("get_state")).sessionId).toBe("abcdef-1");
  const { sessionId } = current;
  expect((await server.result("switch_session", { sessionId: sessionId.slice(0, -1) })).sessionId).toBe(sessionId);
});

test("to the session that is current keeps it, by whatever name", async () => {
  const { server, current } = await twoSessions();
  const { sessionFile, sessionId } = current;
  symlinkSync(sessionFile, join(server.place.cwd, "link.jsonl"));
  linkSync(sessionFile, join(server.place.cwd, "hard.jsonl"));
  const names = [sessionFile, "link.jsonl", "hard.jsonl"].map((sessionPath) => ({ sessionPath }));
  for (const params of [{ sessionId }, ...names]) {
    expect(await server.result("switch_session", params)).toMatchObject({ sessionId, leafId: expect.any(String) });
    await append(server, user("more"));
  }
  expect((await server.result("get_state")).entryCount).toBe(5);
  expect(linesIn(sessionFile)).toHaveLength(6);
});

test("to one that another process writes to, of another directory, opens it for reading, and leaves no trace there", async () => {
  const { place } = (await twoSessions()).server;
  const file = join(place.cwd, "held.jsonl");
  const lines = [user("x", { id: "x", parentId: null }), user("y", { id: "y", parentId: "x" })];
  writeFileSync(file, sessionText({ id: "held", cwd: "/elsewhere" }, lines));
  // No server joins another: the tests are about the lock.
  const serve = (...args: string[]) => serveHere(["--events", "none", "--attach", "off", ...args], { place });
  const [holder, server] = [serve("--session", file), serve("--session", "other.jsonl")];
  await append(holder, user("z", { id: "z" }));
  const before = readFileSync(file, "utf8");
  await server.result("switch_session", { sessionPath: file });
  const state = { readOnly: true, lockedBy: { pid: process.pid }, cwd: "/elsewhere" };
  expect(await server.result("get_state")).toMatchObject(state);
  expect(await server.result("branch", { entryId: "x" })).toMatchObject({ leafId: "x", durable: false });
  await server.result("switch_session", { sessionPath: "other.jsonl" });
  expect([(await holder.result("get_state")).leafId, readFileSync(file, "utf8")]).toEqual(["z", before]);
});
