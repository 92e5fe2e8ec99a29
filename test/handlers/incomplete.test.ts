/** Messages that Pi cannot read: they are found, and mended; and entries without a message are told of. */

import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type HereServer, type Json, serveHere, temporaryPlace } from "../support/server.ts";
import { acrossTiers, SYSTEM } from "../support/tiers.ts";

const HEADER =
  '{"type":"session","version":3,"id":"01991f6e-1f1d-7c3e-b0a4-0242ac120002","timestamp":"2026-01-24T16:22:26.831Z","cwd":"/p"}';
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
  ["number", "5", "none"],
  ["list", "[]", "none"],
  ["missing", undefined, "none"],
  ["last", '{"role":"user","content":"e"}', null],
];
const LINES = MESSAGES.map(([id, message], index) => {
  const parent = index === 0 ? "null" : `"${MESSAGES[index - 1][0]}"`;
  const body = message === undefined ? "" : `,"message":${message}`;
  return `{"type":"message","id":"${id}","parentId":${parent},"timestamp":"2026-01-24T16:22:30.000Z"${body}}`;
});
const TOLD = MESSAGES.filter(([, , said]) => said !== null).map(([entryId, , said]) =>
  said === "none"
    ? { kind: "no_message", entryId, reason: expect.stringContaining("no message") }
    : { kind: "incomplete_message", entryId, reason: expect.stringContaining(`no ${said} `) },
);

acrossTiers(describe, ["jsonl", "v2"])("in the store %s", (store) => {
  async function opened(...args: string[]): Promise<HereServer> {
    const place = temporaryPlace();
    const file = join(place.cwd, "session.jsonl");
    writeFileSync(file, `${[HEADER, ...LINES].join("\n")}\n`);
    const server = serveHere(["--session", file, "--events", "none", ...args], { place });
    if (store === "v2") await server.result("migrate_session", { dryRun: false });
    return server;
  }

  async function fileOf(server: HereServer): Promise<string> {
    return (await server.result("get_state")).sessionFile;
  }

  /** The bytes of all entries. */
  function bytesIn(file: string): string {
    if (store === "jsonl") return readFileSync(file, "utf8");
    const segments = join(file, "segments");
    return readdirSync(segments)
      .map((name) => readFileSync(join(segments, name), "utf8"))
      .join("");
  }

  test("verify_session tells of each", async () => {
    const server = await opened();
    const { damage, ok, invariants } = await server.result("verify_session");
    expect(damage).toMatchObject(TOLD);
    expect(ok).toBe(true);
    expect(invariants).toMatchObject({ messagesComplete: false, linesReadable: true });
  });

  test("repair_session puts in what is lacking, and nothing else changes", SYSTEM, async () => {
    const server = await opened();
    const file = await fileOf(server);
    const before = bytesIn(file);
    const repairs = TOLD.filter(({ kind }) => kind === "incomplete_message");
    expect(await server.result("repair_session", { dryRun: true })).toMatchObject({
      repaired: repairs,
      backupPath: null,
    });
    expect(bytesIn(file)).toBe(before);

    const { repaired, backupPath, entryCount } = await server.result("repair_session", { danglingToolCalls: false });
    expect(repaired).toMatchObject(repairs);
    expect(entryCount).toBe(LINES.length);
    expect(bytesIn(backupPath)).toBe(before);
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

    const { damage } = await server.result("verify_session");
    expect(damage).toMatchObject(TOLD.filter(({ kind }) => kind === "no_message"));
    expect(await server.result("repair_session")).toMatchObject({ repaired: [], backupPath: null });
    await server.result("append", { entries: [{ type: "custom", customType: "x" }] });
    const again = serveHere(["--session", file, "--events", "none"], { place: server.place });
    await server.finish();
    expect((await again.result("get_state")).entryCount).toBe(LINES.length + 1);
    expect((await again.result("verify_session")).damage).toMatchObject(damage);
  });

  test("a session that can only be read stays as it is", async () => {
    const writer = await opened();
    const file = await fileOf(writer);
    await writer.finish();
    const before = bytesIn(file);
    const server = serveHere(["--session", file, "--read-only", "--events", "none"], { place: writer.place });
    expect(await server.failure("repair_session")).toMatchObject({ data: { name: "read_only" } });
    expect(bytesIn(file)).toBe(before);
    expect(existsSync(file)).toBe(true);
  });

  test("get_context leaves out what has no message, and says why", async () => {
    const server = await opened();
    const { explain, entryIds, messages } = await server.result("get_context", { explain: true });
    const none = MESSAGES.filter(([, , said]) => said === "none").map(([id]) => id);
    expect(entryIds).toEqual(MESSAGES.map(([id]) => id).filter((id) => !none.includes(id)));
    expect(messages).toHaveLength(entryIds.length);
    for (const { entryId, reason, in: isIn } of explain)
      expect([entryId, isIn, reason]).toEqual([entryId, !none.includes(entryId), isIn ? "shown" : "no_message"]);
    expect((await server.result("get_state")).messageCount).toBe(entryIds.length);
  });
});
