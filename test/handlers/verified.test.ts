/** Verify, doctor and repair agree about a session; entries that Pi cannot read are found and repaired. */

import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { append, restarted } from "../support/asking.ts";
import { fileOf, serveLines } from "../support/cases.ts";
import { user } from "../support/drafts.ts";
import { sessionText } from "../support/example.ts";
import { put, putSession, serveLibrary } from "../support/lifecycle.ts";
import { entryText, fileText, headerText, id, SESSION, userText } from "../support/lines.ts";
import { type HereServer, type Json, temporaryPlace } from "../support/server.ts";
import { acrossTiers, SWEEP, SYSTEM } from "../support/tiers.ts";

const LAST = id(2);
const NEW = "d0000001";
const NEXT = "d0000002";
const MORE = "d0000003";
const ZEROS = "00000000";
const BOUNDARY = { summary: "s", tokensBefore: 1, firstKeptEntryId: "no" };

/** More lines of a session, and the reports about them: damage is repaired by a repair, and remarks are not. */
const CASES: Record<string, [lines: readonly string[], isDamage: boolean]> = {
  ambiguous_leaf: [[userText(NEW, id(0), "x"), entryText("label", NEXT, LAST, { targetId: id(0), label: "L" })], false],
  no_parent: [[userText(NEW, null, "x").replace('"parentId":null,', "")], false],
  invalid_boundary: [[entryText("compaction", NEW, LAST, BOUNDARY)], false],
  no_message: [[entryText("message", NEW, LAST, { message: null })], false],
  missing_parent: [[userText(NEW, "eeeeeeee", "x")], true],
  duplicate_id: [[userText(NEW, id(0), "a branch"), userText(id(0), NEW, "x")], true],
  missing_id: [[userText(NEW, LAST, "x").replace(`"id":"${NEW}",`, "")], true],
  cycle: [[userText(NEW, NEXT, "x"), userText(NEXT, NEW, "x")], true],
  extra_header: [[headerText()], true],
  bad_line: [['{"type":"mess', userText(NEW, LAST, "x")], true],
  "nothing, of a parent that comes later": [[userText(NEW, NEXT, "x"), userText(NEXT, LAST, "y")], false],
  "nothing, of branches": [[userText(NEW, id(0), "x"), userText(NEXT, id(1), "y"), userText(MORE, NEW, "z")], false],
  "nothing, of the id of zeros": [
    [userText(ZEROS, LAST, "x"), userText(NEW, id(0), "y"), userText(NEXT, ZEROS, "z")],
    false,
  ],
};

/** A server, and a session with more lines than three. */
function withLines(more: readonly string[] = []): { server: HereServer; sessionPath: string } {
  const place = temporaryPlace();
  const sessionPath = putSession(place, 1, { cwd: place.cwd });
  put(sessionPath, fileText(readFileSync(sessionPath, "utf8").trimEnd(), ...more));
  return { server: serveLibrary(place), sessionPath };
}

async function looked(server: HereServer, sessionPath: string): Promise<Json> {
  const { damage, ok } = await server.result("verify_session", { sessionPath });
  const all = await server.result("verify_sessions");
  const health = await server.result("get_health");
  expect([all.ok, health.ok], JSON.stringify(damage)).toEqual([ok, ok]);
  expect((await server.result("list_sessions")).sessions[0].isDamaged ?? false).toBe(!ok);
  return { kinds: damage.map(({ kind }: Json) => kind), ok };
}

const STORED = Object.entries(CASES).map(([kind, [lines, isDamage]]) => ({ kind, lines, isDamage, store: "jsonl" }));
const REMARKS = STORED.filter(({ kind, isDamage }) => !isDamage && !kind.startsWith("nothing"));

for (const [cases, tier] of [
  [STORED, {}],
  [REMARKS.map((remark) => ({ ...remark, store: "v2" })), SWEEP],
] as const)
  test.each(cases)(
    "all say $kind of a session of $store, which a repair mends if it is damage",
    tier,
    async (given) => {
      const { kind, lines, isDamage, store } = given;
      const { server, sessionPath: file } = withLines(lines);
      const { sessionPath } =
        store === "v2" ? await server.result("migrate_session", { sessionPath: file }) : { sessionPath: file };
      const found = await looked(server, sessionPath);
      expect(found.ok).toBe(!isDamage);
      if (!kind.startsWith("nothing")) expect(found.kinds).toEqual([kind]);
      await server.result("switch_session", { sessionPath });
      const { repaired } = await server.result("repair_session");
      if (isDamage) expect(await looked(server, sessionPath)).toEqual({ kinds: [], ok: true });
      else expect(repaired).toEqual([]);
    },
  );

test.each([
  ["the rows of its last frames", "index/offsets.jsonl"],
  ["its manifest", "manifest.json"],
])("a container is sound without %s, which the next append writes", async (_, name) => {
  const { server, sessionPath: file } = withLines();
  const { sessionPath } = await server.result("migrate_session", { sessionPath: file });
  const path = join(sessionPath, name);
  if (name === "manifest.json") rmSync(path);
  else writeFileSync(path, readFileSync(path, "latin1").replace(/[^\n]*\n$/, ""), "latin1");
  expect(await looked(server, sessionPath)).toEqual({ kinds: [], ok: true });
  await server.result("switch_session", { sessionPath });
  expect((await server.result("repair_session")).repaired).toEqual([]);
  await append(server, user("more"));
  await server.finish();
  const { ok, invariants } = await serveLibrary(server.place).result("verify_session", { sessionPath });
  expect([ok, invariants["INV-006"]]).toEqual([true, true]);
});

describe("what Pi's reader takes as it is", () => {
  test("a parent that is the session's own id is the root, and an obstacle to a migration", async () => {
    const place = temporaryPlace();
    const entries = [user("Hello", { id: "a1", parentId: SESSION }), user("Two", { id: "a2", parentId: "a1" })];
    const file = fileOf(place, sessionText({ id: SESSION, cwd: place.cwd }, entries));
    const server = serveLibrary(place);
    await server.result("switch_session", { sessionPath: file });
    expect((await server.result("get_messages")).messages).toHaveLength(2);
    expect(await server.result("verify_session")).toMatchObject({ ok: true, damage: [] });
    expect((await server.result("get_entries")).entries[0].parentId).toBe(SESSION);
    const { obstacles } = await server.result("migrate_session", { dryRun: true });
    expect(obstacles).toMatchObject([{ kind: "missing_parent", entryId: "a1" }]);
  });

  test("an answer without usage is noted, and is no damage; verifying all names it apart", async () => {
    const { server, sessionPath } = withLines([
      entryText("message", NEW, LAST, { message: { role: "assistant", content: [] } }),
    ]);
    const { ok, damage, invariants } = await server.result("verify_session", { sessionPath });
    expect([ok, invariants.messagesComplete]).toEqual([true, false]);
    expect(damage).toMatchObject([{ kind: "incomplete_message", entryId: NEW }]);
    const all = await server.result("verify_sessions");
    expect(all).toMatchObject({ total: 1, ok: true, damaged: [], incomplete: [{ sessionPath, damageCount: 1 }] });
  });
});

const COST = '"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.5}';
const WHOLE = `"api":"x-api","provider":"x","model":"y","usage":{"input":1.0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":1,${COST}},"stopReason":"stop","timestamp":5`;
const LONG = "\\u0043 and ".repeat(96_000);

/** Each entry's message, and its report: the missing members, an invalid message, or nothing. */
const MESSAGES: [id: string, message: string | undefined, said: string | null][] = [
  ["text", '{"role":"user","content":"a"}', null],
  ["whole", `{"role":"assistant","content":[ ],${WHOLE}}`, null],
  ["mute", '{"role":"user"}', "content"],
  ["no-usage", '{"role":"assistant","content":[{"type":"text","text":"\\u0041"}],"more":1E2}', "usage"],
  ["no-cost", '{"role":"assistant","content":[],"usage":{"totalTokens":12.0}}', "usage.cost"],
  ["string", '{"role":"assistant","content":"\\u0042"}', "content"],
  ["result", '{"role":"toolResult","toolCallId":"1","content":"c"}', "content"],
  ["old", '{"role":"hookMessage","content":"d"}', null],
  // A long entry is only read for its members.
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
const toFault = (kind: string, entryId: string, what: string): Json => ({
  kind,
  entryId,
  reason: expect.stringContaining(what),
});
const INCOMPLETE = MESSAGES.flatMap(([id, , said]) =>
  said === null || said === "none" ? [] : [toFault("incomplete_message", id, `no ${said} `)],
);
const NONE = MESSAGES.flatMap(([id, , said]) => (said === "none" ? [toFault("no_message", id, "no message")] : []));

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
