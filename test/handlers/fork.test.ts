/** Forking and cloning: what the new session holds, and that the old one is left as it is. */

import { existsSync, readFileSync, statSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { append, conversation, idsOf, nameOf } from "../support/asking.ts";
import { linesIn } from "../support/cases.ts";
import { assistant, user } from "../support/drafts.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";

const PARTS = [
  { type: "text", text: "second, " },
  { type: "image", data: "", mimeType: "image/png" },
  { type: "text", text: "in parts" },
];

/** A session on disk with two branches: a-b-c-d, and e beside c. */
async function branched(): Promise<{ server: HereServer; file: string }> {
  const server = serveHere(["--events", "none"]);
  await append(
    server,
    user("first", { id: "a" }),
    assistant("answer", { id: "b" }),
    { type: "message", id: "c", message: { role: "user", content: PARTS } },
    assistant("another", { id: "d" }),
    user("beside", { id: "e", parentId: "b" }),
  );
  await server.result("branch", { entryId: "d" });
  return { server, file: (await server.result("get_state")).sessionFile };
}

/** The entries of a session file. */
const entriesIn = (file: string): Json[] =>
  linesIn(file)
    .slice(1)
    .map((line) => JSON.parse(line));

test("before a user message takes the path to its parent, byte for byte, and answers its text", async () => {
  const { server, file } = await branched();
  const before = readFileSync(file, "utf8");
  const { mtimeMs } = statSync(file);
  const { sessionId: oldId } = await server.result("get_state");
  const fork = await server.result("fork", { entryId: "c" });
  const { sessionId, sessionFile } = fork;
  expect(fork).toEqual({ text: "second, in parts", cancelled: false, sessionId, sessionFile });
  expect([sessionFile.includes(sessionId), sessionId === oldId]).toEqual([true, false]);
  const [header, ...entries] = linesIn(sessionFile);
  const about = { id: sessionId, cwd: server.place.cwd, parentSession: file };
  expect(JSON.parse(header)).toMatchObject({ type: "session", version: 3, ...about });
  expect(entries).toEqual(linesIn(file).slice(1, 3));
  const state = { sessionId, sessionFile, parentSession: file, leafId: "b", entryCount: 2, persisted: true };
  expect(await server.result("get_state")).toMatchObject(state);
  // The navigation that preceded the fork is in the file; else it is as it was.
  expect(readFileSync(file, "utf8").startsWith(before)).toBe(true);
  if (readFileSync(file, "utf8") === before) expect(statSync(file).mtimeMs).toBe(mtimeMs);
  expect(statSync(sessionFile).mode & 0o777).toBe(0o600);
  const second = await server.result("fork", { entryId: "a" });
  expect(JSON.parse(linesIn(second.sessionFile)[0]).parentSession).toBe(sessionFile);
});

test("before the first message makes a session without entries, which exists, as a clone of one does", async () => {
  const { server } = await branched();
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

describe("clone", () => {
  test("takes the whole current path and no other, and goes on by itself", async () => {
    const { server, file } = await branched();
    const source = linesIn(file);
    const { sessionId, sessionFile, ...rest } = await server.result("clone");
    expect(rest).toEqual({ cancelled: false });
    expect(linesIn(sessionFile).slice(1)).toEqual(source.slice(1, 5));
    expect(await server.result("get_state")).toMatchObject({ sessionId, leafId: "d", entryCount: 4 });
    await append(server, user("to the clone", { id: "z" }));
    await server.result("switch_session", { sessionPath: file });
    expect(idsOf((await server.result("get_entries")).entries)).toEqual(["a", "b", "c", "d", "e"]);
    expect(await nameOf(server, "get_entries", { since: "z" })).toBe("entry_not_found");
    expect(entriesIn(sessionFile)).toHaveLength(5);
  });

  test("can be repeated in the same millisecond", async () => {
    const { server } = await branched();
    server.send(...[1, 2, 3, 4, 5].map((id) => ({ jsonrpc: "2.0", id, method: "clone" })));
    const files = new Set((await server.take(5)).map(({ result }) => result.sessionFile));
    expect(files.size).toBe(5);
    for (const file of files) expect(linesIn(file)).toHaveLength(5);
  });
});
