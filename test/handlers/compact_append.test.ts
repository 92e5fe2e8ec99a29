/** Appending a compaction: what the model sees then, and where one may not begin to keep (reliability cases C1 to C3). */

import { describe, expect, test } from "vitest";
import { append, conversation } from "../support/asking.ts";
import { assistant, toolResult, user } from "../support/drafts.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";
import { calls } from "../support/turns.ts";

/** u1 c1 r1 i h r2 a1 u2 c2 r3, where c1 calls two tools, i and h come between their results, and c2 calls one; and x next to u2. */
async function session(): Promise<HereServer> {
  const server = serveHere(["--events", "none"]);
  await append(
    server,
    user("one", { id: "u1" }),
    { ...calls("", "1", "2"), id: "c1" },
    toolResult("1", "x", { id: "r1" }),
    { type: "custom", customType: "inside", id: "i" },
    user("hurry", { id: "h" }),
    toolResult("2", "y", { id: "r2" }),
    assistant("done", { id: "a1" }),
    user("beside", { id: "x" }),
    user("two", { id: "u2", parentId: "a1" }),
    { ...calls("", "3"), id: "c2" },
    toolResult("3", "z", { id: "r3" }),
  );
  return server;
}

const compaction = (firstKeptEntryId: string | null, more: object = {}): Json => ({
  summary: "So far.",
  firstKeptEntryId,
  tokensBefore: 1234,
  ...more,
});

async function seen(server: HereServer): Promise<string> {
  const { messages } = await server.result("get_messages");
  const short = ({ role, summary, toolCallId, content }: Json): string =>
    summary
      ? `[${summary}]`
      : toolCallId
        ? `r${toolCallId}`
        : typeof content === "string"
          ? content
          : (content[0].text ?? role);
  return messages.map(short).join(" ");
}

test.each<[string | null, string]>([
  ["u1", " one assistant r1 hurry r2 done two assistant r3"],
  ["a1", " done two assistant r3"],
  [null, ""],
])("what is kept from %s on follows the summary", async (firstKept, kept) => {
  const server = await session();
  const { entryId, ...result } = await server.result("compact_append", compaction(firstKept));
  expect(result).toEqual({ leafId: entryId, firstKeptEntryId: firstKept ?? entryId });
  expect(await seen(server)).toBe(`[So far.]${kept}`);
  await append(server, user("on we go"));
  expect(await seen(server)).toBe(`[So far.]${kept} on we go`);
  const messageCount = kept.split(" ").length + 1;
  expect(await server.result("get_state")).toMatchObject({ entryCount: 13, messageCount });
});

describe("a boundary is refused, with the nearest that would do,", () => {
  test.each<[string, string, string[]]>([
    ["between a call and its result, behind which nothing comes", "r3", ["c2"]],
    ["between a call and the first of its results", "r1", ["c1", "a1"]],
    ["at what says nothing between them", "i", ["c1", "a1"]],
    ["at a message that interrupts them", "h", ["c1", "a1"]],
  ])("%s", async (_what, entryId, nearest) => {
    const server = await session();
    const error = await server.failure("compact_append", compaction(entryId));
    expect(error).toMatchObject({ code: -32803, data: { name: "invalid_boundary", entryId, nearest } });
    for (const id of nearest) expect(error.message).toContain(id);
    expect(await server.result("get_state")).toMatchObject({ entryCount: 11, leafId: "r3" });
    for (const id of nearest) {
      await server.result("branch", { entryId: "r3" });
      expect((await server.result("compact_append", compaction(id))).firstKeptEntryId).toBe(id);
    }
  });

  test("at a result that came behind a compaction which kept its call", async () => {
    const { server, ids } = await conversation(user("a"), calls("b", "1"));
    await server.result("compact_append", compaction(ids[1]));
    const [result, next] = await append(server, toolResult("1", "c"), user("d"));
    const { data } = await server.failure("compact_append", compaction(result));
    expect([data.name, data.nearest[1]]).toEqual(["invalid_boundary", next]);
  });
});

test("of two that race, the one with the stale leaf fails", async () => {
  const server = await session();
  const params = compaction("u2", { expectedLeafId: "r3" });
  server.send(...[1, 2].map((id) => ({ jsonrpc: "2.0", id, method: "compact_append", params })));
  const [first, second] = await server.take(2);
  expect(second.error).toMatchObject({ code: -32801, data: { name: "content_modified", leafId: first.result.leafId } });
  expect((await server.result("get_state")).entryCount).toBe(12);
});
