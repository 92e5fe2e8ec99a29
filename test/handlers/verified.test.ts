/** What verify, doctor and repair say of one session agrees: verify fails on what repair mends, and on nothing else. */

import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { put, putSession, serveLibrary } from "../support/lifecycle.ts";
import { chain, entryText, fileText, headerText, id, userText } from "../support/lines.ts";
import { type HereServer, type Json, temporaryPlace } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

const LAST = id(2);
const NEW = "d0000001";

/** Remarks: the entries are whole, and what the model sees of them is as they say. */
const REMARKS: Record<string, readonly string[]> = {
  ambiguous_leaf: [userText(NEW, id(0), "x"), entryText("label", "d0000002", LAST, { targetId: id(0), label: "L" })],
  no_parent: [
    `{"type":"message","id":"${NEW}","timestamp":"2026-01-24T16:22:30.000Z","message":{"role":"user","content":"x","timestamp":1}}`,
  ],
  invalid_boundary: [
    entryText("compaction", NEW, LAST, { summary: "s", tokensBefore: 1, firstKeptEntryId: "nowhere" }),
  ],
  no_message: [entryText("message", NEW, LAST, { message: null })],
};

/** Damage that a file of lines can have. */
const DAMAGE: Record<string, readonly string[]> = {
  missing_parent: [userText(NEW, "eeeeeeee", "x")],
  duplicate_id: [userText(NEW, id(0), "a branch"), userText(id(0), NEW, "x")],
  missing_id: [userText(NEW, LAST, "x").replace(`"id":"${NEW}",`, "")],
  cycle: [userText(NEW, "d0000002", "x"), userText("d0000002", NEW, "x")],
  extra_header: [headerText()],
  bad_line: ['{"type":"mess', userText(NEW, LAST, "x")],
};

async function looked(server: HereServer, sessionPath: string): Promise<Json> {
  const { damage, ok } = await server.result("verify_session", { sessionPath });
  const all = await server.result("verify_sessions");
  const health = await server.result("get_health");
  expect([all.ok, health.ok], JSON.stringify(damage)).toEqual([ok, ok]);
  return { kinds: damage.map(({ kind }: Json) => kind), ok };
}

acrossTiers(describe, ["jsonl", "v2"] as const)("a session of %s", (store) => {
  test.each(Object.keys(REMARKS))("with %s is sound, which verify remarks", async (kind) => {
    const place = temporaryPlace();
    const server = serveLibrary(place);
    const file = putSession(place, 1, { cwd: place.cwd, lines: [...chain(3), ...REMARKS[kind]] });
    const sessionPath =
      store === "v2" ? (await server.result("migrate_session", { sessionPath: file })).sessionPath : file;
    expect(await looked(server, sessionPath)).toEqual({ kinds: [kind], ok: true });
    expect((await server.result("list_sessions")).sessions[0].isDamaged).toBeUndefined();
    await server.result("switch_session", { sessionPath });
    expect((await server.result("repair_session")).repaired).toEqual([]);
  });
});

test.each([
  ["a parent that comes later", [userText(NEW, "d0000002", "x"), userText("d0000002", LAST, "y")]],
  ["branches", [userText(NEW, id(0), "x"), userText("d0000002", id(1), "y"), userText("d0000003", NEW, "z")]],
  [
    "the id of zeros",
    [userText("00000000", LAST, "x"), userText(NEW, id(0), "y"), userText("d0000002", "00000000", "z")],
  ],
])("a file with %s is sound, and has no mark", async (_, lines) => {
  const place = temporaryPlace();
  const server = serveLibrary(place);
  const sessionPath = putSession(place, 1, { cwd: place.cwd, lines: [...chain(3), ...lines] });
  expect((await looked(server, sessionPath)).ok).toBe(true);
  expect((await server.result("list_sessions")).sessions[0].isDamaged).toBeUndefined();
});

test.each(Object.keys(DAMAGE))("a file with %s is damaged until repair mends it", async (kind) => {
  const place = temporaryPlace();
  const server = serveLibrary(place);
  const sessionPath = putSession(place, 1, { cwd: place.cwd });
  put(sessionPath, fileText(readFileSync(sessionPath, "utf8").trimEnd(), ...DAMAGE[kind]));
  expect(await looked(server, sessionPath)).toEqual({ kinds: [kind], ok: false });
  expect((await server.result("list_sessions")).sessions[0].isDamaged).toBe(true);
  await server.result("switch_session", { sessionPath });
  await server.result("repair_session");
  expect(await looked(server, sessionPath)).toEqual({ kinds: [], ok: true });
  expect((await server.result("list_sessions")).sessions[0].isDamaged).toBeUndefined();
});

describe("a container", () => {
  const lastRow = (container: string): void => {
    const index = join(container, "index", "offsets.jsonl");
    writeFileSync(index, readFileSync(index, "latin1").replace(/[^\n]*\n$/, ""), "latin1");
  };

  test.each([
    ["the rows of its last frames", lastRow],
    ["its manifest", (container: string) => rmSync(join(container, "manifest.json"))],
  ])("is sound without %s, which the next append writes", async (_, lose) => {
    const place = temporaryPlace();
    const server = serveLibrary(place);
    const file = putSession(place, 1, { cwd: place.cwd });
    const { sessionPath } = await server.result("migrate_session", { sessionPath: file });
    lose(sessionPath);
    expect(await looked(server, sessionPath)).toEqual({ kinds: [], ok: true });
    await server.result("switch_session", { sessionPath });
    expect((await server.result("repair_session")).repaired).toEqual([]);
    await server.result("append", { entries: [{ type: "message", message: { role: "user", content: "more" } }] });
    await server.finish();
    const again = serveLibrary(place);
    const { ok, invariants } = await again.result("verify_session", { sessionPath });
    expect([ok, invariants["INV-006"]]).toEqual([true, true]);
  });
});
