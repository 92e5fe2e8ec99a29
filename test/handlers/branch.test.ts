/** Moving the leaf inside a session: the target, the written entries, and the next opening. */

import { describe, expect, test } from "vitest";
import { append, conversation } from "../support/asking.ts";
import { assistant, user } from "../support/drafts.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";

/** A session a-b-c-d of user and assistant messages in turn, with a custom message m after it. */
async function session(): Promise<HereServer> {
  const server = serveHere(["--events", "none"]);
  await append(
    server,
    user("first", { id: "a" }),
    assistant("answer", { id: "b" }),
    user("second", { id: "c" }),
    assistant("another", { id: "d" }),
    { type: "custom_message", id: "m", customType: "x", content: "injected", display: true },
  );
  return server;
}

/** The texts of the messages at the leaf. */
async function texts(server: HereServer): Promise<string> {
  const { messages } = await server.result("get_messages");
  return messages.map(({ content, summary }: Json) => content?.[0]?.text ?? content ?? summary).join(", ");
}

const since = async (server: HereServer, entry: string): Promise<Json[]> =>
  (await server.result("get_entries", { since: entry })).entries;

test.each<[string, object, object]>([
  ["at an assistant message", { entryId: "b" }, { leafId: "b" }],
  ["at a user message, said in words", { entryId: "c", position: "at" }, { leafId: "c" }],
  ["before a user message", { entryId: "c", position: "before" }, { leafId: "b", text: "second" }],
  ["before the first message", { entryId: "a", position: "before" }, { leafId: null, text: "first" }],
  ["before a custom message", { entryId: "m", position: "before" }, { leafId: "d", text: "injected" }],
  ["before an assistant message", { entryId: "d", position: "before" }, { leafId: "c" }],
  ["before all entries", { entryId: null }, { leafId: null }],
  ["to where it is", { entryId: "m" }, { leafId: "m", unchanged: true }],
  ["to the entry by the name that prepare_branch_summary has", { targetId: "b" }, { leafId: "b" }],
])("the leaf goes %s, and what is appended next continues there", async (_what, params, result) => {
  const server = await session();
  const moved = await server.result("branch", params);
  expect(moved).toEqual({ cancelled: false, durable: true, ...result });
  expect(await server.result("get_state")).toMatchObject({ leafId: moved.leafId, entryCount: 5 });
  await append(server, user("next", { id: "next" }));
  expect(await since(server, "m")).toMatchObject([{ id: "next", parentId: moved.leafId }]);
  expect((await server.result("get_state")).branchCount).toBe(moved.leafId === "m" || moved.leafId === null ? 0 : 1);
});

describe("a summary", () => {
  test("is written at the new place, about the place that is left, and takes the label", async () => {
    const server = await session();
    const params = { entryId: "b", label: "left", summary: { summary: "We tried.", fromHook: true } };
    const { summaryEntryId, ...result } = await server.result("branch", params);
    const entries = await since(server, "m");
    expect(entries).toMatchObject([
      { type: "branch_summary", id: summaryEntryId, parentId: "b", fromId: "m", summary: "We tried.", fromHook: true },
      { type: "label", parentId: summaryEntryId, targetId: summaryEntryId, label: "left" },
    ]);
    expect(result).toEqual({ cancelled: false, durable: true, leafId: entries[1].id });
    expect(await texts(server)).toBe("first, answer, We tried.");
  });

  test("before the first entry is about root's branch", async () => {
    const server = await session();
    const { summaryEntryId, leafId } = await server.result("branch", { entryId: null, summary: { summary: "All." } });
    expect(leafId).toBe(summaryEntryId);
    expect(await since(server, "m")).toMatchObject([{ parentId: null, fromId: "m" }]);
    await server.result("branch", { entryId: null });
    await server.result("branch", { entryId: "a", summary: { summary: "Nothing yet." } });
    expect(await since(server, leafId)).toMatchObject([{ parentId: "a", fromId: "root" }]);
  });
});

test("a label without a summary goes to the entry that becomes the leaf", async () => {
  const server = await session();
  const { leafId } = await server.result("branch", { entryId: "b", label: "here" });
  expect(await since(server, "m")).toMatchObject([{ type: "label", id: leafId, parentId: "b", targetId: "b" }]);
  const { nodes } = await server.result("get_tree");
  expect(nodes.find(({ id }: Json) => id === "b").label).toBe("here");
});

test("prepare_branch_summary takes the entry by the name that branch has", async () => {
  const { server, ids } = await conversation(user("a"), user("b"));
  const prepared = await server.result("prepare_branch_summary", { entryId: ids[0] });
  expect(prepared).toEqual(await server.result("prepare_branch_summary", { targetId: ids[0] }));
});
