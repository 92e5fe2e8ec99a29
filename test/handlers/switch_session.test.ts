/** Making another session the current one; on a failure the old one stays. */

import { execFileSync } from "node:child_process";
import { linkSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { user } from "../support/drafts.ts";
import { sessionText } from "../support/example.ts";
import { type HereServer, type Json, serveHere, temporaryPlace } from "../support/server.ts";

/** A server with one session on disk, and another file beside it. */
async function twoSessions(): Promise<{ server: HereServer; current: Json; other: string }> {
  const place = temporaryPlace();
  const other = join(place.cwd, "other.jsonl");
  writeFileSync(other, sessionText({ id: "other", cwd: place.cwd }, [user("x", { id: "x", parentId: null })]));
  const server = serveHere(["--events", "none"], { place });
  await server.result("append", { entries: [user("a", { id: "a" })] });
  return { server, current: await server.result("get_state"), other };
}

test("by an absolute path, by a relative one, and back by id", async () => {
  const { server, current, other } = await twoSessions();
  for (const sessionPath of [other, "other.jsonl", "./other.jsonl", "../project/other.jsonl"]) {
    const result = await server.result("switch_session", { sessionPath });
    expect(result).toMatchObject({ cancelled: false, sessionId: "other", leafId: "x" });
    expect(await server.result("get_state")).toMatchObject({ sessionId: "other", entryCount: 1 });
    const back = await server.result("switch_session", { sessionId: current.sessionId });
    expect(back).toEqual({
      cancelled: false,
      sessionId: current.sessionId,
      sessionFile: current.sessionFile,
      leafId: "a",
    });
  }
});

test("by the unambiguous beginning of an id", async () => {
  const { server, current } = await twoSessions();
  for (const newSessionId of ["abcdef-1", "abcdef-2"]) {
    await server.result("new_session", { newSessionId });
    await server.result("append", { entries: [user(newSessionId)] });
  }
  expect((await server.result("switch_session", { sessionId: "abcdef-1" })).sessionId).toBe("abcdef-1");
  expect(await server.failure("switch_session", { sessionId: "abcdef" })).toMatchObject({
    code: -32803,
    message: "Several session ids begin with this: abcdef-1, abcdef-2. Give more of it.",
    data: { name: "ambiguous_id", sessionId: "abcdef" },
  });
  expect((await server.result("get_state")).sessionId).toBe("abcdef-1");
  expect((await server.result("switch_session", { sessionId: current.sessionId.slice(0, -1) })).sessionId).toBe(
    current.sessionId,
  );
});

describe("on a failure the old session stays, and nothing is touched", () => {
  test.each<[string, Json, (cwd: string) => void, Json]>([
    [
      "a path where nothing is",
      { sessionPath: "nope.jsonl" },
      () => {},
      { code: -32002, data: { name: "session_not_found" } },
    ],
    [
      "a path through a file",
      { sessionPath: "other.jsonl/x" },
      () => {},
      { code: -32002, data: { name: "session_not_found" } },
    ],
    [
      "an id that no session has",
      { sessionId: "nope" },
      () => {},
      { code: -32002, data: { name: "session_not_found" } },
    ],
    ["an id that is none", { sessionId: "../x" }, () => {}, { code: -32803, data: { name: "invalid_id" } }],
    [
      "a folder",
      { sessionPath: "bad" },
      (cwd) => mkdirSync(join(cwd, "bad")),
      { code: -32803, data: { name: "not_a_session" } },
    ],
    [
      "a FIFO",
      { sessionPath: "bad" },
      (cwd) => execFileSync("mkfifo", [join(cwd, "bad")]),
      { code: -32803, data: { name: "not_a_session" } },
    ],
    ["a device", { sessionPath: "/dev/zero" }, () => {}, { code: -32803, data: { name: "not_a_session" } }],
    [
      "a link to itself",
      { sessionPath: "bad" },
      (cwd) => symlinkSync("bad", join(cwd, "bad")),
      { code: -32803, data: { name: "storage_failed" } },
    ],
    [
      "an empty file",
      { sessionPath: "bad" },
      (cwd) => writeFileSync(join(cwd, "bad"), ""),
      { code: -32803, data: { name: "not_a_session" } },
    ],
    [
      "white space",
      { sessionPath: "bad" },
      (cwd) => writeFileSync(join(cwd, "bad"), "\n \n"),
      { code: -32803, data: { name: "not_a_session" } },
    ],
    [
      "text",
      { sessionPath: "bad" },
      (cwd) => writeFileSync(join(cwd, "bad"), "secret word\n"),
      { code: -32803, data: { name: "not_a_session" } },
    ],
    [
      "other JSON",
      { sessionPath: "bad" },
      (cwd) => writeFileSync(join(cwd, "bad"), '{"secret":"word"}\n'),
      { code: -32803, data: { name: "not_a_session" } },
    ],
    [
      "bytes",
      { sessionPath: "bad" },
      (cwd) => writeFileSync(join(cwd, "bad"), Buffer.from([0x1f, 0x8b, 0, 0xff])),
      { code: -32803, data: { name: "not_a_session" } },
    ],
    ["neither path nor id", {}, () => {}, { code: -32602 }],
    ["path and id", { sessionPath: "other.jsonl", sessionId: "other" }, () => {}, { code: -32602 }],
    ["an empty path", { sessionPath: "" }, () => {}, { code: -32602 }],
    ["a path with a NUL", { sessionPath: "a\0b" }, () => {}, { code: expect.any(Number) }],
  ])("%s", async (_what, params, prepare, expected) => {
    const { server, current } = await twoSessions();
    prepare(server.place.cwd);
    const before = readFileSync(current.sessionFile, "utf8");
    const error = await server.failure("switch_session", params);
    expect(error).toMatchObject(expected);
    expect(error.code).not.toBe(-32603);
    expect(JSON.stringify(error)).not.toMatch(/secret/);
    expect(await server.result("get_state")).toEqual(current);
    expect(readFileSync(current.sessionFile, "utf8")).toBe(before);
    expect((await server.result("append", { entries: [user("b", { id: "b" })] })).leafId).toBe("b");
  });
});

test("a look changes nothing: bytes and times are as they were", async () => {
  const { server, current, other } = await twoSessions();
  const files = [current.sessionFile, other];
  const before = files.map((file) => [readFileSync(file, "utf8"), statSync(file).mtimeMs]);
  for (const sessionPath of [other, current.sessionFile, other]) {
    await server.result("switch_session", { sessionPath });
    await server.result("get_messages");
    await server.result("get_tree", { format: "nested" });
  }
  await server.finish();
  expect(files.map((file) => [readFileSync(file, "utf8"), statSync(file).mtimeMs])).toEqual(before);
});

test("to the session that is current keeps it, by whatever name", async () => {
  const { server, current } = await twoSessions();
  const { sessionFile, sessionId } = current;
  symlinkSync(sessionFile, join(server.place.cwd, "link.jsonl"));
  linkSync(sessionFile, join(server.place.cwd, "hard.jsonl"));
  for (const params of [
    { sessionId },
    { sessionPath: sessionFile },
    { sessionPath: "link.jsonl" },
    { sessionPath: "hard.jsonl" },
  ]) {
    expect(await server.result("switch_session", params)).toMatchObject({ sessionId, leafId: expect.any(String) });
    await server.result("append", { entries: [user("more")] });
  }
  expect((await server.result("get_state")).entryCount).toBe(5);
  expect(readFileSync(sessionFile, "utf8").trimEnd().split("\n")).toHaveLength(6);
});

test("commands behind it act on the new session, those before on the old", async () => {
  const { server, current, other } = await twoSessions();
  const append = (id: number): Json => ({
    jsonrpc: "2.0",
    id,
    method: "append",
    params: { entries: [user(`${id}`, { id: `n${id}` })] },
  });
  server.send(
    append(1),
    { jsonrpc: "2.0", id: 2, method: "switch_session", params: { sessionPath: other } },
    append(3),
    { jsonrpc: "2.0", id: 4, method: "get_state" },
    { jsonrpc: "2.0", id: 5, method: "switch_session", params: { sessionPath: current.sessionFile } },
    { jsonrpc: "2.0", id: 6, method: "get_state" },
  );
  const replies = await server.take(6);
  expect(replies.map(({ id }) => id)).toEqual([1, 2, 3, 4, 5, 6]);
  expect(replies[3].result).toMatchObject({ sessionId: "other", leafId: "n3", entryCount: 2 });
  expect(replies[5].result).toMatchObject({ sessionId: current.sessionId, leafId: "n1", entryCount: 2 });
});

test("a session of version 1 opens as it is, and its first entry makes it version 3 beside the original", async () => {
  const place = temporaryPlace();
  const file = join(place.cwd, "v1.jsonl");
  const text = [
    {
      type: "session",
      id: "old",
      timestamp: "2025-01-01T00:00:00.000Z",
      cwd: place.cwd,
      provider: "anthropic",
      modelId: "claude",
      thinkingLevel: "low",
    },
    { type: "message", timestamp: "2025-01-01T00:00:01.000Z", message: { role: "user", content: "Hello" } },
    {
      type: "message",
      timestamp: "2025-01-01T00:00:02.000Z",
      message: { role: "assistant", content: [{ type: "text", text: "Hi" }] },
    },
  ]
    .map((line) => `${JSON.stringify(line)}\n`)
    .join("");
  writeFileSync(file, text);
  const server = serveHere(["--events", "none"], { place });
  await server.result("switch_session", { sessionPath: file });
  expect(await server.result("get_state")).toMatchObject({
    entryCount: 2,
    messageCount: 2,
    thinkingLevel: "low",
    branchCount: 0,
  });
  expect((await server.result("get_last_assistant_text")).text).toBe("Hi");
  expect(readFileSync(file, "utf8")).toBe(text);
  await server.result("append", { entries: [user("more", { id: "more" })] });
  expect(readFileSync(`${file}.v1.bak`, "utf8")).toBe(text);
  const lines = readFileSync(file, "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(lines.map(({ type, version, parentId }) => [type, version ?? parentId])).toEqual([
    ["session", 3],
    ["message", null],
    ["message", lines[1].id],
    ["message", lines[2].id],
  ]);
});
