/** Forking and cloning: what the new session holds, and that the old one is left as it is. */

import { existsSync, statSync } from "node:fs";
import { expect, test } from "vitest";
import { append, conversation } from "../support/asking.ts";
import { linesIn } from "../support/cases.ts";
import { assistant, user } from "../support/drafts.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";

const PARTS = [
  { type: "text", text: "second, " },
  { type: "image", data: "", mimeType: "image/png" },
  { type: "text", text: "in parts" },
];

/** A session on disk: a-b-c-d. */
async function fourEntries(): Promise<HereServer> {
  const server = serveHere(["--events", "none"]);
  await append(
    server,
    user("first", { id: "a" }),
    assistant("answer", { id: "b" }),
    { type: "message", id: "c", message: { role: "user", content: PARTS } },
    assistant("another", { id: "d" }),
  );
  return server;
}

/** The entries of a session file. */
const entriesIn = (file: string): Json[] =>
  linesIn(file)
    .slice(1)
    .map((line) => JSON.parse(line));

test("before a user message names its text in one, its source, and a file for its owner only", async () => {
  const server = await fourEntries();
  const { sessionId: oldId, sessionFile: parentSession } = await server.result("get_state");
  const { sessionId, sessionFile, ...rest } = await server.result("fork", { entryId: "c" });
  expect(rest).toEqual({ text: "second, in parts", cancelled: false });
  expect([sessionFile.includes(sessionId), sessionId === oldId]).toEqual([true, false]);
  expect(statSync(sessionFile).mode & 0o777).toBe(0o600);
  const state = { sessionId, sessionFile, parentSession, leafId: "b", entryCount: 2, persisted: true };
  expect(await server.result("get_state")).toMatchObject(state);
});

test("before the first message makes a session without entries, which exists, as a clone of one does", async () => {
  const server = await fourEntries();
  const fork = await server.result("fork", { entryId: "a" });
  for (const { sessionFile } of [fork, await server.result("clone")]) {
    expect(entriesIn(sessionFile)).toEqual([]);
    const empty = { sessionFile: expect.any(String), leafId: null, entryCount: 0, messageCount: 0, persisted: true };
    expect(await server.result("get_state")).toMatchObject(empty);
  }
  expect([fork.text, await append(server, user("again", { id: "z" }))]).toEqual(["first", ["z"]]);
  expect(entriesIn((await server.result("get_state")).sessionFile)).toHaveLength(1);
});

test("in memory stays in memory, with what the model saw at the place", async () => {
  const { server, ids } = await conversation(user("a"), assistant("b"), user("c"));
  await server.result("compact_append", { summary: "So far.", firstKeptEntryId: ids[1], tokensBefore: 10 });
  const [entryId] = await append(server, user("e"));
  const seen = await server.result("get_messages");
  expect(await server.result("fork", { entryId, position: "at" })).toMatchObject({ sessionFile: null });
  expect(await server.result("get_messages")).toEqual(seen);
  expect(await server.result("get_state")).toMatchObject({ store: "memory", leafId: entryId });
});

test("of a session that is not on disk yet names no parent", async () => {
  const server = serveHere(["--events", "none"]);
  await server.result("set_session_name", { name: "unsaved" });
  const before = await server.result("get_state");
  expect(before.persisted).toBe(false);
  const clone = await server.result("clone");
  expect(existsSync(before.sessionFile)).toBe(false);
  expect(JSON.parse(linesIn(clone.sessionFile)[0])).not.toHaveProperty("parentSession");
  expect((await server.result("get_state")).sessionName).toBe("unsaved");
});

test("a clone can be repeated in the same millisecond", async () => {
  const server = await fourEntries();
  server.send(...[1, 2, 3, 4, 5].map((id) => ({ jsonrpc: "2.0", id, method: "clone" })));
  const files = new Set((await server.take(5)).map(({ result }) => result.sessionFile));
  expect(files.size).toBe(5);
  for (const file of files) expect(linesIn(file)).toHaveLength(5);
});
