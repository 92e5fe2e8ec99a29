/** Tool calls that a session ended in: named by diagnostics, answered by repair_session (reliability case C12). */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { assistant, toolResult, user } from "../support/drafts.ts";
import { sessionText } from "../support/example.ts";
import { type HereServer, type Json, serveHere, temporaryPlace } from "../support/server.ts";
import { calls, pairingFaults } from "../support/turns.ts";

/** A server that opened a file with these entries, one after the other. */
function opened(entries: Json[], args: string[] = []): { server: HereServer; file: string } {
  const place = temporaryPlace();
  const file = join(place.home, "session.jsonl");
  const chain = entries.map((entry, index) => ({
    ...entry,
    id: idOf(index),
    parentId: index === 0 ? null : idOf(index - 1),
  }));
  writeFileSync(file, sessionText({ id: "s1", cwd: place.cwd }, chain));
  return { server: serveHere(["--session", file, ...args], { place }), file };
}

const idOf = (index: number): string => (0xa0000000 + index).toString(16);

const named = async (server: HereServer): Promise<Json[]> => (await server.result("get_state")).diagnostics;

test("calls at the end of the path that have no result are named", async () => {
  const { server } = opened([user("a"), calls("b", "1", "2", "3"), toolResult("2", "c"), user("still there?")]);
  const found = await named(server);
  expect(found.map(({ kind, entryId, toolCallId }) => ({ kind, entryId, toolCallId }))).toEqual([
    { kind: "dangling_tool_call", entryId: idOf(1), toolCallId: "1" },
    { kind: "dangling_tool_call", entryId: idOf(1), toolCallId: "3" },
  ]);
  expect(found[0].reason).toMatch(/repair_session/);
});

test("a session that just ended in the middle of a turn is not damaged", async () => {
  const { server } = opened([user("a"), calls("b", "1")]);
  expect(await server.result("verify_session")).toMatchObject({ ok: true, damage: [] });
});

test.each([
  ["everything is answered", [user("a"), calls("b", "1"), toolResult("1", "c")]],
  ["the conversation went on", [user("a"), calls("b", "1"), user("c"), assistant("d")]],
  ["there is no answer at all", [user("a")]],
  ["there is nothing", []],
])("none when %s", async (_, entries) => {
  const { server } = opened(entries);
  expect(await named(server)).toEqual([]);
});

test("none on another branch, and none that a compaction has cut away", async () => {
  const { server } = opened([user("a"), calls("b", "1")]);
  await server.result("branch", { entryId: idOf(0) });
  expect(await named(server)).toEqual([]);
  await server.result("branch", { entryId: idOf(1) });
  expect(await named(server)).toHaveLength(1);
  await server.result("compact_append", { summary: "s", firstKeptEntryId: null, tokensBefore: 1 });
  expect(await named(server)).toEqual([]);
});

test("a call that this host has just appended is still at work", async () => {
  const { server } = opened([user("a")]);
  await server.result("append", { entries: [calls("b", "1")] });
  expect(await named(server)).toEqual([]);
  expect((await server.result("repair_session")).answered).toEqual([]);
});

test("repair_session appends one error result for each, once", async () => {
  const { server, file } = opened([user("a"), calls("b", "1", "2", "3"), toolResult("2", "c")]);
  const dry = await server.result("repair_session", { dryRun: true });
  expect(dry.answered.map(({ toolCallId, resultId }: Json) => [toolCallId, resultId])).toEqual([
    ["1", null],
    ["3", null],
  ]);
  const bytes = readFileSync(file, "utf8");
  expect((await server.result("repair_session", { danglingToolCalls: false })).answered).toEqual([]);
  expect(readFileSync(file, "utf8")).toBe(bytes);

  const { answered, backupPath, entryCount } = await server.result("repair_session");
  expect({ backupPath, entryCount }).toEqual({ backupPath: null, entryCount: 5 });
  const { messages } = await server.result("get_messages");
  expect(messages.slice(3)).toEqual(
    ["1", "3"].map((toolCallId) =>
      expect.objectContaining({ role: "toolResult", toolCallId, toolName: "read", isError: true }),
    ),
  );
  expect(pairingFaults(messages)).toEqual([]);
  expect(answered.map(({ resultId }: Json) => resultId)).toEqual(
    (await server.result("get_context")).entryIds.slice(3),
  );
  expect(await named(server)).toEqual([]);
  expect(await server.result("repair_session")).toMatchObject({ answered: [], entryCount: 5 });
});

test("calls without ids are answered too", async () => {
  const { server } = opened([user("a"), calls("b", "", ""), toolResult("", "c")]);
  expect((await server.result("repair_session")).answered).toHaveLength(1);
  expect((await server.result("repair_session")).answered).toHaveLength(0);
  expect(pairingFaults((await server.result("get_messages")).messages)).toEqual([]);
});

test("a read-only session is only looked at", async () => {
  const { server } = opened([user("a"), calls("b", "1")], ["--read-only"]);
  expect(await named(server)).toHaveLength(1);
  expect((await server.request("repair_session")).result?.answered ?? []).toEqual([]);
  expect(await named(server)).toHaveLength(1);
});
