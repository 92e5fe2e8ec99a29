/** Moving the leaf inside a session: where it goes, what is written for it, and that it is found again. */

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { assistant, user } from "../support/drafts.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";

/** A session a-b-c-d of user and assistant messages in turn, with a custom message m after it. */
async function session(): Promise<HereServer> {
  const server = serveHere(["--events", "none"]);
  await server.result("append", {
    entries: [
      user("first", { id: "a" }),
      assistant("answer", { id: "b" }),
      user("second", { id: "c" }),
      assistant("another", { id: "d" }),
      { type: "custom_message", id: "m", customType: "x", content: "injected", display: true },
    ],
  });
  return server;
}

/** The texts of the messages at the leaf. */
async function texts(server: HereServer): Promise<string[]> {
  const { messages } = await server.result("get_messages");
  return messages.map(({ content, summary }: Json) => content?.[0]?.text ?? content ?? summary);
}

test.each<[string, object, object]>([
  ["at an assistant message", { entryId: "b" }, { leafId: "b" }],
  ["at a user message", { entryId: "c" }, { leafId: "c" }],
  ["at, said in words", { entryId: "c", position: "at" }, { leafId: "c" }],
  [
    "before a user message: its parent, and its text",
    { entryId: "c", position: "before" },
    { leafId: "b", text: "second" },
  ],
  [
    "before the first message: before all entries",
    { entryId: "a", position: "before" },
    { leafId: null, text: "first" },
  ],
  [
    "before a custom message: its parent, and its text",
    { entryId: "m", position: "before" },
    { leafId: "d", text: "injected" },
  ],
  ["before an assistant message: its parent", { entryId: "d", position: "before" }, { leafId: "c" }],
  ["before all entries", { entryId: null }, { leafId: null }],
  ["to where it is", { entryId: "m" }, { leafId: "m" }],
])("the leaf goes %s", async (_what, params, result) => {
  const server = await session();
  const moved = await server.result("branch", params);
  expect(moved).toEqual({ cancelled: false, durable: true, ...result });
  expect(await server.result("get_state")).toMatchObject({ leafId: moved.leafId, entryCount: 5 });
  // What is appended next continues there.
  await server.result("append", { entries: [user("next", { id: "next" })] });
  expect((await server.result("get_entries", { since: "m" })).entries).toMatchObject([
    { id: "next", parentId: moved.leafId },
  ]);
  expect((await server.result("get_state")).branchCount).toBe(moved.leafId === "m" || moved.leafId === null ? 0 : 1);
});

test("an entry that is not there is refused, and the leaf stays", async () => {
  const server = await session();
  expect(await server.failure("branch", { entryId: "nope" })).toMatchObject({
    code: -32002,
    data: { name: "entry_not_found" },
  });
  expect((await server.result("get_state")).leafId).toBe("m");
});

describe("a summary", () => {
  test("is written at the new place, about the place that is left", async () => {
    const server = await session();
    server.send(
      '{"jsonrpc":"2.0","id":"raw","method":"branch","params":{"entryId":"b","label":"left","summary":{"summary":"We tried.","details":{"n":1.0,"big":9007199254740993},"fromHook":true}}}',
    );
    const { result } = await server.reply("raw");
    expect(result).toMatchObject({ cancelled: false, durable: true, summaryEntryId: expect.any(String) });
    const { entries } = await server.result("get_entries", { since: "m" });
    expect(entries).toMatchObject([
      {
        type: "branch_summary",
        id: result.summaryEntryId,
        parentId: "b",
        fromId: "m",
        summary: "We tried.",
        fromHook: true,
      },
      { type: "label", parentId: result.summaryEntryId, targetId: result.summaryEntryId, label: "left" },
    ]);
    expect(result.leafId).toBe(entries[1].id);
    const { sessionFile } = await server.result("get_state");
    expect(readFileSync(sessionFile, "utf8")).toContain('"details":{"n":1.0,"big":9007199254740993}');
    expect(await texts(server)).toEqual(["first", "answer", "We tried."]);
  });

  test("before the first entry is about root's branch", async () => {
    const server = await session();
    const { summaryEntryId, leafId } = await server.result("branch", {
      entryId: null,
      summary: { summary: "All of it." },
    });
    expect(leafId).toBe(summaryEntryId);
    expect((await server.result("get_entries", { since: "m" })).entries).toMatchObject([
      { parentId: null, fromId: "m" },
    ]);
    await server.result("branch", { entryId: null });
    await server.result("branch", { entryId: "a", summary: { summary: "Nothing yet." } });
    expect((await server.result("get_entries", { since: leafId })).entries).toMatchObject([
      { parentId: "a", fromId: "root" },
    ]);
  });

  test.each([{ summary: "" }, {}, "text", null])("that says nothing is refused: %j", async (summary) => {
    const server = await session();
    expect(await server.failure("branch", { entryId: "a", summary })).toMatchObject({ code: -32602 });
    expect(await server.result("get_state")).toMatchObject({ leafId: "m", entryCount: 5 });
  });
});

describe("a label", () => {
  test("without a summary goes to the entry that becomes the leaf", async () => {
    const server = await session();
    const { leafId } = await server.result("branch", { entryId: "b", label: "here" });
    expect((await server.result("get_entries", { since: "m" })).entries).toMatchObject([
      { type: "label", id: leafId, parentId: "b", targetId: "b", label: "here" },
    ]);
    const { nodes } = await server.result("get_tree");
    expect(nodes.find(({ id }: Json) => id === "b").label).toBe("here");
  });

  test("before the first entry has nothing to go to", async () => {
    const server = await session();
    expect(await server.failure("branch", { entryId: null, label: "x" })).toMatchObject({
      code: -32602,
      data: { issues: [{ path: "label" }] },
    });
    expect((await server.result("get_state")).leafId).toBe("m");
  });
});

describe("without anything appended", () => {
  test.each(["b", "d", null])(
    "the session file is as it was, and a later start finds the leaf: %s",
    async (entryId) => {
      const server = await session();
      const { sessionFile } = await server.result("get_state");
      const before = readFileSync(sessionFile, "utf8");
      await server.result("branch", { entryId });
      expect(readFileSync(sessionFile, "utf8")).toBe(before);
      const seen = await texts(server);
      expect((await server.finish()).status).toBe(0);
      const after = readFileSync(sessionFile, "utf8");
      expect(after.startsWith(before)).toBe(true);
      expect(after.slice(before.length).split("\n").length).toBeLessThanOrEqual(2);
      for (let start = 0; start < 3; start++) {
        const later = serveHere(["--session", sessionFile, "--events", "none"], { place: server.place });
        expect(await later.result("get_state")).toMatchObject({ leafId: entryId, entryCount: 5, branchCount: 0 });
        expect(await texts(later)).toEqual(seen);
        expect((await later.result("get_tree")).nodes).toHaveLength(5);
        expect((await later.result("get_entries")).entries).toHaveLength(5);
        await later.finish();
        expect(readFileSync(sessionFile, "utf8"), "a look changes nothing").toBe(after);
      }
    },
  );

  test("a server that dies finds the leaf too", async () => {
    const server = await session();
    const { sessionFile } = await server.result("get_state");
    await server.result("branch", { entryId: "b" });
    // Another server looks while the first has not ended.
    const other = serveHere(["--session", sessionFile, "--events", "none"], { place: server.place });
    expect((await other.result("get_state")).leafId).toBe("b");
  });
});

test("a session that is open for reading only moves in memory, and says so", async () => {
  const writer = await session();
  const { sessionFile } = await writer.result("get_state");
  await writer.finish();
  const before = readFileSync(sessionFile, "utf8");
  const reader = serveHere(["--session", sessionFile, "--read-only", "--events", "none"], { place: writer.place });
  expect(await reader.result("branch", { entryId: "b" })).toEqual({ cancelled: false, leafId: "b", durable: false });
  expect(await texts(reader)).toEqual(["first", "answer"]);
  expect(await reader.failure("branch", { entryId: "a", label: "x" })).toMatchObject({ data: { name: "read_only" } });
  await reader.finish();
  expect(readFileSync(sessionFile, "utf8")).toBe(before);
});

test("a label or a name that is written elsewhere later does not move the conversation", async () => {
  const server = await session();
  const { sessionFile } = await server.result("get_state");
  await server.result("branch", { entryId: "b" });
  await server.result("set_label", { entryId: "d", label: "elsewhere" });
  const { leafId } = await server.result("get_state");
  await server.finish();
  const later = serveHere(["--session", sessionFile, "--events", "none"], { place: server.place });
  expect((await later.result("get_state")).leafId).toBe(leafId);
  expect(await texts(later)).toEqual(["first", "answer"]);
});

test("the entry goes by the name that prepare_branch_summary has, and there by that of branch", async () => {
  const server = serveHere(["--events", "none"]);
  const { entryIds } = await server.result("append", { entries: [user("a"), user("b")] });
  const prepared = await server.result("prepare_branch_summary", { entryId: entryIds[0] });
  expect(prepared).toEqual(await server.result("prepare_branch_summary", { targetId: entryIds[0] }));
  expect(await server.result("branch", { targetId: entryIds[0] })).toMatchObject({ leafId: entryIds[0] });
  expect(await server.result("branch", { targetId: null })).toMatchObject({ leafId: null });
});
