/** Files that Pi's reader takes as they are: what they lack is noted, and none of them is damaged. */

import { join } from "node:path";
import { expect, test } from "vitest";
import { wholeOmpSession } from "../support/foreign/omp.ts";
import { put, serveLibrary } from "../support/lifecycle.ts";
import { temporaryPlace } from "../support/server.ts";

const ID = "5f0c8a52-4f1a-4a3c-9d1e-0123456789ab";
const AT = "2026-01-01T00:00:00.000Z";

function fileOf(cwd: string, ...entries: object[]): string {
  const header = { type: "session", version: 3, id: ID, timestamp: AT, cwd };
  return `${[header, ...entries].map((line) => JSON.stringify(line)).join("\n")}\n`;
}

const said = (id: string, parentId: string | null, message: object): object => ({
  type: "message",
  id,
  parentId,
  timestamp: AT,
  message: { timestamp: 1, ...message },
});

test("a parent that is the session's own id is the root, and an obstacle to a migration", async () => {
  const place = temporaryPlace();
  const first = said("a1", ID, { role: "user", content: "Hello" });
  const file = put(
    join(place.cwd, "x.jsonl"),
    fileOf(place.cwd, first, said("a2", "a1", { role: "user", content: "Two" })),
  );
  const server = serveLibrary(place);
  await server.result("switch_session", { sessionPath: file });
  expect((await server.result("get_messages")).messages).toHaveLength(2);
  expect(await server.result("verify_session")).toMatchObject({ ok: true, damage: [] });
  expect((await server.result("get_entries")).entries[0].parentId).toBe(ID);
  const { obstacles } = await server.result("migrate_session", { dryRun: true });
  expect(obstacles).toMatchObject([{ kind: "missing_parent", entryId: "a1" }]);
});

test("an answer without usage is noted, and is no damage; verifying all names it apart", async () => {
  const place = temporaryPlace();
  const server = serveLibrary(place);
  const { sessionFile } = await server.result("get_state");
  const answer = said("a1", null, { role: "assistant", content: [] });
  const file = put(join(sessionFile, "..", "x.jsonl"), fileOf(place.cwd, answer));
  const { ok, damage, invariants } = await server.result("verify_session", { sessionPath: file });
  expect([ok, invariants.messagesComplete]).toEqual([true, false]);
  expect(damage).toMatchObject([{ kind: "incomplete_message", entryId: "a1" }]);
  const all = await server.result("verify_sessions");
  expect(all).toMatchObject({ total: 1, ok: true, damaged: [], incomplete: [{ sessionPath: file, damageCount: 1 }] });
});

test("Pi's needs are none of another agent's file", async () => {
  const place = temporaryPlace();
  const w = wholeOmpSession();
  w.add("message", { message: { role: "assistant", content: [] } });
  const file = put(join(place.cwd, "omp.jsonl"), w.text);
  expect(await serveLibrary(place).result("verify_session", { sessionPath: file })).toMatchObject({
    ok: true,
    damage: [],
  });
});
