/** What verify, doctor and repair say of one session agrees: verify fails on what repair mends, and on nothing else. */

import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { append } from "../support/asking.ts";
import { fileOf } from "../support/cases.ts";
import { user } from "../support/drafts.ts";
import { sessionText } from "../support/example.ts";
import { wholeOmpSession } from "../support/foreign/omp.ts";
import { put, putSession, serveLibrary } from "../support/lifecycle.ts";
import { entryText, fileText, headerText, id, SESSION, userText } from "../support/lines.ts";
import { type HereServer, type Json, temporaryPlace } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

const LAST = id(2);
const NEW = "d0000001";
const NEXT = "d0000002";

/** Remarks: the entries are whole, and what the model sees of them is as they say. */
const REMARKS: Record<string, readonly string[]> = {
  ambiguous_leaf: [userText(NEW, id(0), "x"), entryText("label", NEXT, LAST, { targetId: id(0), label: "L" })],
  no_parent: [userText(NEW, null, "x").replace('"parentId":null,', "")],
  invalid_boundary: [entryText("compaction", NEW, LAST, { summary: "s", tokensBefore: 1, firstKeptEntryId: "no" })],
  no_message: [entryText("message", NEW, LAST, { message: null })],
};

/** Lines at which nobody has anything to remark. */
const SOUND: Record<string, readonly string[]> = {
  "a parent that comes later": [userText(NEW, NEXT, "x"), userText(NEXT, LAST, "y")],
  branches: [userText(NEW, id(0), "x"), userText(NEXT, id(1), "y"), userText("d0000003", NEW, "z")],
  "the id of zeros": [userText("00000000", LAST, "x"), userText(NEW, id(0), "y"), userText(NEXT, "00000000", "z")],
};

/** Damage that a file of lines can have. */
const DAMAGE: Record<string, readonly string[]> = {
  missing_parent: [userText(NEW, "eeeeeeee", "x")],
  duplicate_id: [userText(NEW, id(0), "a branch"), userText(id(0), NEW, "x")],
  missing_id: [userText(NEW, LAST, "x").replace(`"id":"${NEW}",`, "")],
  cycle: [userText(NEW, NEXT, "x"), userText(NEXT, NEW, "x")],
  extra_header: [headerText()],
  bad_line: ['{"type":"mess', userText(NEW, LAST, "x")],
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

acrossTiers(describe, ["jsonl", "v2"] as const)("a session of %s", (store) => {
  test.each(Object.keys(REMARKS))("with %s is sound, which verify remarks", async (kind) => {
    const { server, sessionPath: file } = withLines(REMARKS[kind]);
    const isFile = store === "jsonl";
    const { sessionPath } = isFile
      ? { sessionPath: file }
      : await server.result("migrate_session", { sessionPath: file });
    expect(await looked(server, sessionPath)).toEqual({ kinds: [kind], ok: true });
    await server.result("switch_session", { sessionPath });
    expect((await server.result("repair_session")).repaired).toEqual([]);
  });
});

test.each(Object.keys(SOUND))("a file with %s is sound, and has no mark", async (what) => {
  const { server, sessionPath } = withLines(SOUND[what]);
  expect((await looked(server, sessionPath)).ok).toBe(true);
});

test.each(Object.keys(DAMAGE))("a file with %s is damaged until repair mends it", async (kind) => {
  const { server, sessionPath } = withLines(DAMAGE[kind]);
  expect(await looked(server, sessionPath)).toEqual({ kinds: [kind], ok: false });
  await server.result("switch_session", { sessionPath });
  await server.result("repair_session");
  expect(await looked(server, sessionPath)).toEqual({ kinds: [], ok: true });
});

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

  test("Pi's needs are none of another agent's file", async () => {
    const place = temporaryPlace();
    const w = wholeOmpSession();
    w.add("message", { message: { role: "assistant", content: [] } });
    const sessionPath = put(join(place.cwd, "omp.jsonl"), w.text);
    const verified = await serveLibrary(place).result("verify_session", { sessionPath });
    expect(verified).toMatchObject({ ok: true, damage: [] });
  });
});
