/** Where a compaction may begin to keep (reliability cases C1 to C3). */

import { expect, test } from "vitest";
import { assistant, toolResult, user } from "../support/drafts.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";
import { calls } from "../support/turns.ts";

async function serverWith(...entries: Json[]): Promise<{ server: HereServer; ids: string[] }> {
  const server = serveHere(["--no-session"]);
  const { entryIds } = await server.result("append", { entries });
  return { server, ids: entryIds };
}

const deps = (firstKeptEntryId: string | null): Json => ({ summary: "s", firstKeptEntryId, tokensBefore: 1 });

/** The nearest entries to keep from instead, by their indexes; undefined when the boundary is taken. */
async function refusal(server: HereServer, ids: string[], index: number): Promise<number[] | undefined> {
  const { error } = await server.request("compact_append", deps(ids[index]));
  if (!error) return undefined;
  expect(error.data).toMatchObject({ name: "invalid_boundary", entryId: ids[index] });
  for (const id of error.data.nearest) expect(error.message).toContain(id);
  return error.data.nearest.map((id: string) => ids.indexOf(id));
}

test("between a call and its result, or inside a parallel batch, is no boundary", async () => {
  const { server, ids } = await serverWith(
    user("a"),
    calls("b", "1", "2"),
    toolResult("1", "c"),
    { type: "custom", customType: "inside" },
    toolResult("2", "d"),
    assistant("e"),
  );
  expect(await refusal(server, ids, 2)).toEqual([1, 5]);
  expect(await refusal(server, ids, 3)).toEqual([1, 5]);
  expect(await refusal(server, ids, 4)).toEqual([1, 5]);
  for (const index of [0, 1, 5]) {
    const fresh = await serverWith(user("a"), calls("b", "1", "2"), toolResult("1", "c"), toolResult("2", "d"));
    expect(await refusal(fresh.server, fresh.ids, Math.min(index, 1))).toBeUndefined();
  }
});

test("a message that interrupts a batch is no boundary before the last result", async () => {
  const { server, ids } = await serverWith(
    user("a"),
    calls("b", "1", "2"),
    toolResult("1", "c"),
    user("hurry"),
    toolResult("2", "d"),
    user("e"),
  );
  expect(await refusal(server, ids, 3)).toEqual([1, 5]);
  expect(await refusal(server, ids, 5)).toBeUndefined();
});

test("with the results at the end, only the call itself is near", async () => {
  const { server, ids } = await serverWith(user("a"), calls("b", "1"), toolResult("1", "c"));
  expect(await refusal(server, ids, 2)).toEqual([1]);
});

test("an interrupted call whose result came behind a compaction still belongs to it", async () => {
  const { server, ids } = await serverWith(user("a"), calls("b", "1"));
  await server.result("compact_append", deps(ids[1]));
  const { entryIds } = await server.result("append", { entries: [toolResult("1", "c"), user("d")] });
  const { error } = await server.request("compact_append", deps(entryIds[0]));
  expect(error.data.name).toBe("invalid_boundary");
  expect(error.data.nearest[1]).toBe(entryIds[1]);
});

test("a result whose call is nowhere, or was cut away before, separates nothing", async () => {
  const { server, ids } = await serverWith(
    user("a"),
    toolResult("1", "nobody's"),
    assistant("b"),
    toolResult("2", "c"),
  );
  expect(await refusal(server, ids, 1)).toBeUndefined();
  expect(await refusal(server, ids, 3)).toBeUndefined();
});

test("an entry of another branch, and one that does not exist, are no boundary", async () => {
  const { server, ids } = await serverWith(user("a"), assistant("b"));
  await server.result("branch", { entryId: ids[0] });
  await server.result("append", { entries: [assistant("c")] });
  expect(await refusal(server, ids, 1)).toEqual([]);
  expect((await server.failure("compact_append", deps("none"))).data.name).toBe("invalid_boundary");
});

test("null keeps nothing", async () => {
  const { server } = await serverWith(user("a"), assistant("b"));
  const { entryId, firstKeptEntryId } = await server.result("compact_append", deps(null));
  expect(firstKeptEntryId).toBe(entryId);
  const { messages } = await server.result("get_messages");
  expect(messages.map(({ role }: Json) => role)).toEqual(["compactionSummary"]);
});

test.each([
  [{ summary: "" }, "summary"],
  [{ summary: " \n" }, "summary"],
  [{ tokensBefore: -1 }, "tokensBefore"],
  [{ tokensBefore: undefined }, "tokensBefore"],
])("refused: %j", async (wrong, path) => {
  const { server, ids } = await serverWith(user("a"));
  const { code, data } = await server.failure("compact_append", { ...deps(ids[0]), ...wrong });
  expect({ code, path: data.issues[0].path }).toEqual({ code: -32602, path });
});

test("of two that race for the same leaf, one wins", async () => {
  const { server, ids } = await serverWith(user("a"), user("b"));
  const { leafId } = await server.result("get_state");
  const params = { ...deps(ids[1]), expectedLeafId: leafId };
  server.send(...["one", "two"].map((id) => ({ jsonrpc: "2.0", id, method: "compact_append", params })));
  const first = await server.reply("one");
  const second = await server.reply("two");
  expect(first.result).toBeDefined();
  expect(second.error.data.name).toBe("content_modified");
});
