/** Migrating, rolling back, checkpoints and the full audit over the wire, of the session that is open and of others. */

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { append } from "../support/asking.ts";
import { user } from "../support/drafts.ts";
import { examplePlace, ID_OF_CURRENT } from "../support/example.ts";
import { contentsOf, putSession, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { chain, entryText, id } from "../support/lines.ts";
import { type HereServer, type Json, type Place, serveHere, temporaryPlace } from "../support/server.ts";

function world() {
  const { place, session } = examplePlace();
  const server = serveHere(["--session", session, "--events", "none"], { place });
  const folder = dirname(session);
  return { server, session, container: join(folder, `${ID_OF_CURRENT}.v2`), other: join(folder, "old.jsonl") };
}

/** A session that is not open, with a header and lines that `change` makes of its own. */
function closed(change: (text: string) => string = (text) => text): { place: Place; file: string; server: HereServer } {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  writeFileSync(file, change(readFileSync(file, "utf8")));
  return { place, file, server: serveLibrary(place) };
}

/** Returns the files in the folder of a session, without the lock of an open session. */
function listFiles(session: string): [path: string, content: string][] {
  return Object.entries(contentsOf(dirname(session))).filter(([path]) => !path.includes("/.pi-session-"));
}

/** Opens a session for a moment, and answers its leaf before and after something was appended. */
async function visit(server: HereServer, sessionPath: string, ...entries: Json[]): Promise<string[]> {
  const { leafId } = await server.result("open_session", { sessionPath });
  const about = { sessionId: sessionId(1) };
  const after = entries.length === 0 ? { leafId } : await server.result("append", { ...about, entries });
  await server.result("close_session", about);
  return [leafId, after.leafId];
}

test("the open session is migrated, goes on in the container, and comes back", async () => {
  const { server, session, container } = world();
  const before = readFileSync(session, "utf8");
  const entries = (await server.result("get_entries")).entries;
  await server.result("branch", { entryId: "c3d4e5f6" });
  const files = listFiles(session);
  const dry = await server.result("migrate_session", { dryRun: true });
  expect(dry).toMatchObject({ dryRun: true, obstacles: [], sessionPath: container });
  expect(listFiles(session)).toEqual(files);
  const moved = await server.result("migrate_session", { correlationId: "corr-0001" });
  expect(moved).toMatchObject({ state: "MIGRATED", sessionPath: container, correlationId: "corr-0001" });
  expect(await server.result("get_state")).toMatchObject({ sessionFile: container, store: "v2", leafId: "c3d4e5f6" });
  expect(await server.result("migration_status")).toMatchObject({ active: "native_v2", phase: "completed" });
  const [entryId] = await append(server, user("more"));
  const invariants = { "INV-001": true, "INV-007": true, linesReadable: true };
  expect(await server.result("verify_session")).toMatchObject({ ok: true, damage: [], invariants });
  expect(await server.result("create_checkpoint")).toMatchObject({ headEntryId: entryId });
  const back = await server.result("rollback_migration", { reason: "a test" });
  expect(back).toMatchObject({ state: "ROLLED_BACK", sessionPath: session });
  expect(readFileSync(session, "utf8").startsWith(before)).toBe(true);
  expect(await server.result("get_state")).toMatchObject({ sessionFile: session, store: "jsonl", leafId: entryId });
  await append(server, user("and more"));
  expect((await server.result("get_entries")).entries.slice(0, entries.length)).toEqual(entries);
  const status = { active: "jsonl_v3", state: "ROLLED_BACK", reason: "a test", interrupted: false };
  expect(await server.result("migration_status")).toMatchObject(status);
  expect(existsSync(container)).toBe(false);
});

test("an open session that was migrated is meant by the name of the file that it was", async () => {
  const { server, session, container } = world();
  const count = readFileSync(session, "utf8").split("\n").length;
  await server.result("migrate_session");
  await append(server, user("more"));
  expect(await server.result("migrate_session", { sessionPath: session })).toMatchObject({ sessionPath: container });
  const { obstacles } = await server.result("migrate_session", { sessionPath: session, dryRun: true });
  expect(obstacles).toMatchObject([{ kind: "already_migrated" }]);
  await append(server, user("and more"));
  const back = await server.result("rollback_migration", { sessionPath: session });
  expect(back).toMatchObject({ state: "ROLLED_BACK", sessionPath: session });
  expect((await server.result("get_state")).sessionFile).toBe(session);
  await append(server, user("and still more"));
  expect(readFileSync(session, "utf8").split("\n").length).toBe(count + 3);
  // And the other way round: the name of the container that it was.
  expect(await server.result("migrate_session", { sessionPath: container })).toMatchObject({ state: "MIGRATED" });
  expect((await server.result("get_state")).sessionFile).toBe(container);
});

test("the leaf that a header names is the leaf, there and back, until entries are appended", async () => {
  const { file, server } = closed((text) => text.replace("}\n", `,"leafId":"${id(0)}"}\n`));
  const { sessionPath } = await server.result("migrate_session", { sessionPath: file });
  const [before, leafId] = await visit(server, sessionPath, user("later"));
  expect(before).toBe(id(0));
  await server.result("rollback_migration", { sessionPath });
  expect((await visit(server, file))[0]).toBe(leafId);
});

test("a session whose lines end with CR LF and are indented comes back with what was appended", async () => {
  const { file, server } = closed((text) => text.replaceAll("\n", "\r\n").replaceAll("\n{", "\n  {"));
  const text = readFileSync(file, "utf8");
  const { sessionPath } = await server.result("migrate_session", { sessionPath: file });
  await visit(server, sessionPath, user("later"));
  expect(await server.result("rollback_migration", { sessionPath })).toMatchObject({ state: "ROLLED_BACK" });
  expect(readFileSync(file, "utf8").startsWith(text)).toBe(true);
});

test("what cannot be migrated is named, in a dry run and in earnest", async () => {
  const { server, other } = world();
  const backwards = await server.result("migrate_session", { to: "jsonl", dryRun: true });
  expect(backwards.obstacles).toMatchObject([{ kind: "not_migrated" }]);
  const text = readFileSync(other, "utf8");
  writeFileSync(other, `${text}${text.trimEnd().split("\n")[1].replace("Hello", "Other")}\n`);
  const dry = await server.result("migrate_session", { sessionPath: other, dryRun: true });
  const obstacles = [{ kind: "duplicate_id" }];
  expect(dry).toMatchObject({ obstacles });
  const error = await server.failure("migrate_session", { sessionPath: other });
  expect(error).toMatchObject({ code: -32803, data: { name: "migration_failed", retryable: false, obstacles } });
});

test("a result whose parent is its call is named as what a container cannot have", async () => {
  const place = temporaryPlace();
  const message = { role: "toolResult", toolCallId: "call-1", toolName: "ls", content: [], isError: false };
  const lines = [...chain(2), entryText("message", id(2), "call-1", { message })];
  const sessionPath = putSession(place, 1, { lines });
  const server = serveLibrary(place);
  const { obstacles } = await server.result("migrate_session", { sessionPath, dryRun: true });
  expect(obstacles).toMatchObject([{ kind: "parent_is_call", entryId: id(2) }]);
  expect((await server.failure("migrate_session", { sessionPath })).message).toMatch(/its parent is a tool call/);
});
