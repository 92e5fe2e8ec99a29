/** Forking and cloning: what the new session holds, and that the old one is left as it is. */

import { existsSync, readFileSync, statSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { assistant, toolCall, toolResult, user } from "../support/drafts.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";

/** A session on disk with two branches: a-b-c-d, and e beside c. */
async function branched(): Promise<{ server: HereServer; file: string }> {
  const server = serveHere(["--events", "none"]);
  await server.result("append", {
    entries: [
      user("first", { id: "a" }),
      assistant("answer", { id: "b" }),
      {
        type: "message",
        id: "c",
        message: {
          role: "user",
          content: [
            { type: "text", text: "second, " },
            { type: "image", data: "", mimeType: "image/png" },
            { type: "text", text: "in parts" },
          ],
        },
      },
      assistant("another", { id: "d" }),
    ],
  });
  await server.result("append", { entries: [user("beside", { id: "e", parentId: "b" })] });
  await server.result("branch", { entryId: "d" });
  return { server, file: (await server.result("get_state")).sessionFile };
}

function lines(file: string): string[] {
  return readFileSync(file, "utf8").trimEnd().split("\n");
}

describe("fork", () => {
  test("before a user message takes the path to its parent, byte for byte, and answers its text", async () => {
    const { server, file } = await branched();
    const before = readFileSync(file, "utf8");
    const { mtimeMs } = statSync(file);
    const { sessionId: oldId } = await server.result("get_state");
    const fork = await server.result("fork", { entryId: "c" });
    expect(fork).toEqual({
      text: "second, in parts",
      cancelled: false,
      sessionId: expect.any(String),
      sessionFile: expect.stringContaining(fork.sessionId),
    });
    expect(fork.sessionId).not.toBe(oldId);
    const [header, ...entries] = lines(fork.sessionFile);
    expect(JSON.parse(header)).toMatchObject({
      type: "session",
      version: 3,
      id: fork.sessionId,
      cwd: server.place.cwd,
      parentSession: file,
    });
    expect(entries).toEqual(lines(file).slice(1, 3));
    expect(await server.result("get_state")).toMatchObject({
      sessionId: fork.sessionId,
      sessionFile: fork.sessionFile,
      parentSession: file,
      leafId: "b",
      entryCount: 2,
      persisted: true,
    });
    // The navigation that preceded the fork is in the file; else it is as it was.
    expect(readFileSync(file, "utf8").startsWith(before)).toBe(true);
    if (readFileSync(file, "utf8") === before) expect(statSync(file).mtimeMs).toBe(mtimeMs);
    expect(statSync(fork.sessionFile).mode & 0o777).toBe(0o600);
  });

  test("before the first message makes a session without entries, which exists", async () => {
    const { server } = await branched();
    const fork = await server.result("fork", { entryId: "a" });
    expect(fork.text).toBe("first");
    expect(lines(fork.sessionFile)).toHaveLength(1);
    expect(await server.result("get_state")).toMatchObject({ leafId: null, entryCount: 0, messageCount: 0 });
    expect((await server.result("append", { entries: [user("again", { id: "z" })] })).leafId).toBe("z");
    expect(lines(fork.sessionFile)).toHaveLength(2);
  });

  test.each(["a", "b", "d", "e"])("at any entry takes the path to it: %s", async (entryId) => {
    const { server, file } = await branched();
    const source = lines(file);
    const fork = await server.result("fork", { entryId, position: "at" });
    expect(fork.text).toBe("");
    const paths: Record<string, number[]> = { a: [1], b: [1, 2], d: [1, 2, 3, 4], e: [1, 2, 5] };
    expect(lines(fork.sessionFile).slice(1)).toEqual(paths[entryId].map((line) => source[line]));
    expect((await server.result("get_state")).leafId).toBe(entryId);
  });

  test.each<[string, object, Json]>([
    ["an assistant message", { entryId: "b" }, { code: -32803, data: { name: "not_a_user_message", entryId: "b" } }],
    ["an unknown entry", { entryId: "nope" }, { code: -32002, data: { name: "entry_not_found", entryId: "nope" } }],
    ["an unknown entry, at", { entryId: "nope", position: "at" }, { code: -32002, data: { name: "entry_not_found" } }],
    ["no entry", {}, { code: -32602, data: { issues: [{ path: "entryId" }] } }],
  ])("is refused before %s, and the session stays", async (_what, params, error) => {
    const { server, file } = await branched();
    const before = readFileSync(file, "utf8");
    expect(await server.failure("fork", params)).toMatchObject(error);
    expect(await server.result("get_state")).toMatchObject({ sessionFile: file, leafId: "d" });
    expect(readFileSync(file, "utf8")).toBe(before);
  });

  test("makes the labels of what it takes again at the end, and leaves the others", async () => {
    const { server } = await branched();
    await server.result("set_label", { entryId: "a", label: "kept" });
    await server.result("set_label", { entryId: "b", label: "changed" });
    await server.result("set_label", { entryId: "b", label: "changed again" });
    await server.result("set_label", { entryId: "d", label: "left" });
    await server.result("append", { entries: [user("after labels", { id: "f" }), assistant("x", { id: "g" })] });
    const fork = await server.result("fork", { entryId: "f", position: "at" });
    const entries = lines(fork.sessionFile)
      .slice(1)
      .map((line) => JSON.parse(line));
    expect(entries.slice(0, 5).map(({ id, parentId }) => [id, parentId])).toEqual([
      ["a", null],
      ["b", "a"],
      ["c", "b"],
      ["d", "c"],
      ["f", "d"],
    ]);
    expect(entries.slice(5).map(({ type, targetId, label }) => [type, targetId, label])).toEqual([
      ["label", "a", "kept"],
      ["label", "b", "changed again"],
      ["label", "d", "left"],
    ]);
    const { nodes } = await server.result("get_tree");
    expect(nodes.map(({ id, label }: Json) => [id, label]).slice(0, 5)).toEqual([
      ["a", "kept"],
      ["b", "changed again"],
      ["c", undefined],
      ["d", "left"],
      ["f", undefined],
    ]);
    const again = await server.result("fork", { entryId: "c" });
    expect(
      lines(again.sessionFile)
        .slice(1)
        .map((line) => JSON.parse(line).label),
    ).toEqual([undefined, undefined, "kept", "changed again"]);
  });

  test("keeps what the model saw at the place", async () => {
    const server = serveHere(["--events", "none"]);
    await server.result("append", {
      entries: [
        user("a"),
        toolCall("call-1"),
        toolResult("call-1", "text"),
        assistant("b", { id: "kept" }),
        user("c", { id: "c" }),
      ],
    });
    await server.result("compact_append", { summary: "So far.", firstKeptEntryId: "kept", tokensBefore: 10 });
    await server.result("append", { entries: [assistant("d"), user("e", { id: "e" })] });
    const seen = await server.result("get_messages");
    await server.result("fork", { entryId: "e", position: "at" });
    expect(await server.result("get_messages")).toEqual(seen);
  });

  test("of a session that is not on disk yet names no parent", async () => {
    const server = serveHere(["--events", "none"]);
    await server.result("set_session_name", { name: "unsaved" });
    const before = await server.result("get_state");
    expect(before.persisted).toBe(false);
    const clone = await server.result("clone");
    expect(existsSync(before.sessionFile)).toBe(false);
    expect(JSON.parse(lines(clone.sessionFile)[0])).not.toHaveProperty("parentSession");
    expect((await server.result("get_state")).sessionName).toBe("unsaved");
  });

  test("in memory stays in memory", async () => {
    const server = serveHere(["--no-session", "--events", "none"]);
    await server.result("append", { entries: [user("a", { id: "a" }), assistant("b", { id: "b" })] });
    const first = await server.result("get_state");
    expect(await server.result("fork", { entryId: "a", position: "at" })).toMatchObject({ sessionFile: null });
    expect(await server.result("get_state")).toMatchObject({ leafId: "a", entryCount: 1, store: "memory" });
    expect((await server.result("get_state")).sessionId).not.toBe(first.sessionId);
  });

  test("of a fork names the fork", async () => {
    const { server } = await branched();
    const first = await server.result("fork", { entryId: "d", position: "at" });
    const second = await server.result("fork", { entryId: "c" });
    expect(JSON.parse(lines(second.sessionFile)[0]).parentSession).toBe(first.sessionFile);
  });
});

describe("clone", () => {
  test("takes the whole current path and no other", async () => {
    const { server, file } = await branched();
    const source = lines(file);
    const clone = await server.result("clone");
    expect(clone).toEqual({ cancelled: false, sessionId: expect.any(String), sessionFile: expect.any(String) });
    expect(lines(clone.sessionFile).slice(1)).toEqual(source.slice(1, 5));
    expect(await server.result("get_state")).toMatchObject({ sessionId: clone.sessionId, leafId: "d", entryCount: 4 });
  });

  test("of an empty session exists", async () => {
    const server = serveHere(["--events", "none"]);
    const clone = await server.result("clone");
    expect(lines(clone.sessionFile)).toHaveLength(1);
    expect(await server.result("get_state")).toMatchObject({ entryCount: 0, leafId: null, persisted: true });
  });

  test("can be repeated in the same millisecond", async () => {
    const { server } = await branched();
    const files = new Set<string>();
    server.send(...[1, 2, 3, 4, 5].map((id) => ({ jsonrpc: "2.0", id, method: "clone" })));
    for (const { result } of await server.take(5)) files.add(result.sessionFile);
    expect(files.size).toBe(5);
    for (const file of files) expect(lines(file)).toHaveLength(5);
  });

  test("goes on by itself: neither session sees what is appended to the other", async () => {
    const { server, file } = await branched();
    const clone = await server.result("clone");
    await server.result("append", { entries: [user("to the clone", { id: "z" })] });
    await server.result("switch_session", { sessionPath: file });
    expect((await server.result("get_entries")).entries.map(({ id }: Json) => id)).toEqual(["a", "b", "c", "d", "e"]);
    expect((await server.failure("get_entries", { since: "z" })).data.name).toBe("entry_not_found");
    expect(lines(clone.sessionFile)).toHaveLength(6);
  });
});
