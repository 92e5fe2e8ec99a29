/** Messages that Pi cannot read: they are found, and mended; and entries without a message are told of. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { append, restarted } from "../support/asking.ts";
import { serveLines } from "../support/cases.ts";
import type { HereServer, Json } from "../support/server.ts";
import { acrossTiers, SYSTEM } from "../support/tiers.ts";

const COST = '"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.5}';
const WHOLE = `"api":"x-api","provider":"x","model":"y","usage":{"input":1.0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":1,${COST}},"stopReason":"stop","timestamp":5`;
const LONG = "\\u0043 and ".repeat(96_000);

/** Each entry's message, and what is said of it: what it lacks, that it is none, or nothing. */
const MESSAGES: [id: string, message: string | undefined, said: string | null][] = [
  ["text", '{"role":"user","content":"a"}', null],
  ["whole", `{"role":"assistant","content":[ ],${WHOLE}}`, null],
  ["mute", '{"role":"user"}', "content"],
  ["no-usage", '{"role":"assistant","content":[{"type":"text","text":"\\u0041"}],"more":1E2}', "usage"],
  ["no-cost", '{"role":"assistant","content":[],"usage":{"totalTokens":12.0}}', "usage.cost"],
  ["string", '{"role":"assistant","content":"\\u0042"}', "content"],
  ["result", '{"role":"toolResult","toolCallId":"1","content":"c"}', "content"],
  ["old", '{"role":"hookMessage","content":"d"}', null],
  // Of a long entry only the members are read.
  ["long", `{"role":"user","content":"${LONG}"}`, null],
  ["long-string", `{"role":"assistant","content":"${LONG}",${WHOLE}}`, "content"],
  ["null", "null", "none"],
  ["list", "[]", "none"],
  ["missing", undefined, "none"],
  ["last", '{"role":"user","content":"e"}', null],
];
const LINES = MESSAGES.map(([id, message], index) => {
  const parent = index === 0 ? "null" : `"${MESSAGES[index - 1][0]}"`;
  const body = message === undefined ? "" : `,"message":${message}`;
  return `{"type":"message","id":"${id}","parentId":${parent},"timestamp":"2026-01-24T16:22:30.000Z"${body}}`;
});
const told = (kind: string, entryId: string, what: string): Json => ({
  kind,
  entryId,
  reason: expect.stringContaining(what),
});
const INCOMPLETE = MESSAGES.flatMap(([id, , said]) =>
  said === null || said === "none" ? [] : [told("incomplete_message", id, `no ${said} `)],
);
const NONE = MESSAGES.flatMap(([id, , said]) => (said === "none" ? [told("no_message", id, "no message")] : []));

acrossTiers(describe, ["jsonl", "v2"])("in the store %s", (store) => {
  async function opened(): Promise<{ server: HereServer; file: string }> {
    const { server } = serveLines(LINES, { args: ["--events", "none"] });
    if (store === "v2") await server.result("migrate_session", { dryRun: false });
    return { server, file: (await server.result("get_state")).sessionFile };
  }

  /** The bytes of all entries. */
  function bytesIn(file: string): string {
    const folder = join(file, "segments");
    const files = store === "jsonl" ? [file] : readdirSync(folder).map((name) => join(folder, name));
    return files.map((path) => readFileSync(path, "utf8")).join("");
  }

  test("repair_session puts in what is lacking, and nothing else changes", SYSTEM, async () => {
    const { server, file } = await opened();
    const before = bytesIn(file);
    const { damage, ok, invariants } = await server.result("verify_session");
    expect([damage, ok]).toMatchObject([[...INCOMPLETE, ...NONE], true]);
    expect(invariants).toMatchObject({ messagesComplete: false, linesReadable: true });
    const dry = await server.result("repair_session", { dryRun: true });
    expect(dry).toMatchObject({ repaired: INCOMPLETE, backupPath: null });
    expect(bytesIn(file)).toBe(before);

    const { repaired, backupPath, entryCount } = await server.result("repair_session", { danglingToolCalls: false });
    expect(repaired).toMatchObject(INCOMPLETE);
    expect([entryCount, bytesIn(backupPath)]).toEqual([LINES.length, before]);
    const after = bytesIn(file);
    for (const [index, [, , said]] of MESSAGES.entries())
      if (said === null || said === "none") expect(after).toContain(LINES[index]);
    expect(after).toContain('"content":[{"type":"text","text":"\\u0041"}],"more":1E2,"api":"x-api","provider":"x"');
    expect(after).toContain('"usage":{"totalTokens":12.0,"input":0,');
    expect(after).toContain('"content":[{"type":"text","text":"\\u0042"}],');
    expect(after).toContain('"toolCallId":"1","content":[{"type":"text","text":"c"}]}');
    const { messages } = await server.result("get_messages");
    for (const { role, usage, stopReason, timestamp } of messages.slice(3, 6) as Json[]) {
      expect([role, stopReason, timestamp]).toEqual(["assistant", "stop", Date.UTC(2026, 0, 24, 16, 22, 30)]);
      expect(usage.cost).toEqual({ input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 });
    }
    expect((await server.result("verify_session")).damage).toMatchObject(NONE);
    expect(await server.result("repair_session")).toMatchObject({ repaired: [], backupPath: null });
    await append(server, { type: "custom", customType: "x" });
    const again = await restarted(server);
    expect((await again.result("get_state")).entryCount).toBe(LINES.length + 1);
    expect((await again.result("verify_session")).damage).toMatchObject(NONE);
  });

  test("a session that can only be read stays as it is", async () => {
    const { server, file } = await opened();
    const reader = await restarted(server, ["--read-only"]);
    const before = bytesIn(file);
    expect(await reader.failure("repair_session")).toMatchObject({ data: { name: "read_only" } });
    expect(bytesIn(file)).toBe(before);
  });

  test("verify_session tells of each, and get_context leaves out what has no message, and says why", async () => {
    const { server } = await opened();
    expect((await server.result("verify_session")).damage).toMatchObject([...INCOMPLETE, ...NONE]);
    const { explain, entryIds, messages } = await server.result("get_context", { explain: true });
    const none = NONE.map(({ entryId }) => entryId);
    expect(entryIds).toEqual(MESSAGES.map(([id]) => id).filter((id) => !none.includes(id)));
    expect(messages).toHaveLength(entryIds.length);
    for (const { entryId, reason, in: isIn } of explain)
      expect([entryId, isIn, reason]).toEqual([entryId, !none.includes(entryId), isIn ? "shown" : "no_message"]);
    expect((await server.result("get_state")).messageCount).toBe(entryIds.length);
  });
});
