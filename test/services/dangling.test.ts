/** Tool calls that a session ended in: named by diagnostics, answered by repair_session (reliability case C12). */

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { append } from "../support/asking.ts";
import { serveContent } from "../support/cases.ts";
import { assistant, toolResult, user } from "../support/drafts.ts";
import { sessionText } from "../support/example.ts";
import { id } from "../support/lines.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";
import { calls, pairingFaults } from "../support/turns.ts";

/** A server that opened a file with these entries, one after the other. */
function opened(...entries: Json[]): { server: HereServer; file: string } {
  const chain = entries.map((entry, n) => ({ ...entry, id: id(n), parentId: n === 0 ? null : id(n - 1) }));
  return serveContent(sessionText({ id: "s1", cwd: "/" }, chain));
}

const named = async (server: HereServer): Promise<Json[]> => (await server.result("get_state")).diagnostics;
const answeredBy = async (server: HereServer, params: object = {}): Promise<Json[]> =>
  (await server.result("repair_session", params)).answered;

test("calls at the end of the path that have no result are named, and are no damage", async () => {
  const { server } = opened(user("a"), calls("b", "1", "2", "3"), toolResult("2", "c"), user("still there?"));
  const found = await named(server);
  expect(found).toMatchObject(
    ["1", "3"].map((toolCallId) => ({ kind: "dangling_tool_call", entryId: id(1), toolCallId })),
  );
  expect([found.length, found[0].reason]).toEqual([2, expect.stringMatching(/repair_session/)]);
  expect(await server.result("verify_session")).toMatchObject({ ok: true, damage: [] });
});

test.each([
  ["everything is answered", [user("a"), calls("b", "1"), toolResult("1", "c")]],
  ["the conversation went on", [user("a"), calls("b", "1"), user("c"), assistant("d")]],
  ["there is no answer at all", [user("a")]],
  ["there is nothing", []],
])("none when %s", async (_, entries) => {
  expect(await named(opened(...entries).server)).toEqual([]);
});

test("none on another branch, none that a compaction has cut away, none that this host has just appended", async () => {
  const { server } = opened(user("a"), calls("b", "1"));
  for (const [entryId, count] of [
    [id(0), 0],
    [id(1), 1],
  ]) {
    await server.result("branch", { entryId });
    expect(await named(server)).toHaveLength(count as number);
  }
  await server.result("compact_append", { summary: "s", firstKeptEntryId: null, tokensBefore: 1 });
  expect(await named(server)).toEqual([]);
  await append(server, calls("b", "1"));
  expect([await named(server), await answeredBy(server)]).toEqual([[], []]);
});

test("repair_session appends one error result for each, once", async () => {
  const { server, file } = opened(user("a"), calls("b", "1", "2", "3"), toolResult("2", "c"));
  const bytes = readFileSync(file, "utf8");
  const dry = await answeredBy(server, { dryRun: true });
  expect(dry.map(({ toolCallId, resultId }) => [toolCallId, resultId])).toEqual([
    ["1", null],
    ["3", null],
  ]);
  expect(await answeredBy(server, { danglingToolCalls: false })).toEqual([]);
  expect(readFileSync(file, "utf8")).toBe(bytes);

  const { answered, backupPath, entryCount } = await server.result("repair_session");
  expect([backupPath, entryCount]).toEqual([null, 5]);
  const { messages } = await server.result("get_messages");
  const result = { role: "toolResult", toolName: "read", isError: true };
  expect(messages.slice(3)).toMatchObject(["1", "3"].map((toolCallId) => ({ ...result, toolCallId })));
  expect([messages.length, pairingFaults(messages)]).toEqual([5, []]);
  const { entryIds } = await server.result("get_context");
  expect(answered.map(({ resultId }: Json) => resultId)).toEqual(entryIds.slice(3));
  expect(await named(server)).toEqual([]);
  expect(await server.result("repair_session")).toMatchObject({ answered: [], entryCount: 5 });
});

test("calls without ids are answered too", async () => {
  const { server } = opened(user("a"), calls("b", "", ""), toolResult("", "c"));
  expect([(await answeredBy(server)).length, (await answeredBy(server)).length]).toEqual([1, 0]);
  expect(pairingFaults((await server.result("get_messages")).messages)).toEqual([]);
});

test("a read-only session is only looked at", async () => {
  const { server, file } = opened(user("a"), calls("b", "1"));
  await server.finish();
  const reader = serveHere(["--session", file, "--read-only"], { place: server.place });
  expect(await named(reader)).toHaveLength(1);
  const { result, error } = await reader.request("repair_session");
  expect(result?.answered ?? error.data.name).toEqual(result ? [] : "read_only");
  expect(await named(reader)).toHaveLength(1);
});
