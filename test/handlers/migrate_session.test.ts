/** Migrating, rolling back, checkpoints and the full audit over the wire, of the session that is open and of others. */

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { segmentFile } from "../../src/storage/fs/container-paths.ts";
import { user } from "../support/drafts.ts";
import { examplePlace, ID_OF_CURRENT } from "../support/example.ts";
import { putSession, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { chain, entryText, id } from "../support/lines.ts";
import { serveHere, temporaryPlace } from "../support/server.ts";

function world() {
  const { place, session } = examplePlace();
  const server = serveHere(["--session", session, "--events", "none"], { place });
  const folder = dirname(session);
  const container = join(folder, `${ID_OF_CURRENT}.v2`);
  return { server, place, session, container, other: join(folder, "old.jsonl") };
}

describe("over the wire", () => {
  test("the open session is migrated, goes on in the container, and comes back", async () => {
    const { server, session, container } = world();
    const before = readFileSync(session, "utf8");
    const entries = (await server.result("get_entries")).entries;
    await server.result("branch", { entryId: "c3d4e5f6" });
    expect(await server.result("migrate_session", { dryRun: true })).toMatchObject({
      dryRun: true,
      obstacles: [],
      sessionPath: container,
    });
    expect(existsSync(container)).toBe(false);
    const moved = await server.result("migrate_session", { correlationId: "corr-0001" });
    expect(moved).toMatchObject({ state: "MIGRATED", sessionPath: container, correlationId: "corr-0001" });
    expect(await server.result("get_state")).toMatchObject({ sessionFile: container, store: "v2", leafId: "c3d4e5f6" });
    expect(await server.result("migration_status")).toMatchObject({ active: "native_v2", phase: "completed" });
    const { entryIds } = await server.result("append", { entries: [user("more")] });
    expect(await server.result("verify_session")).toMatchObject({
      ok: true,
      damage: [],
      invariants: { "INV-001": true, "INV-007": true, linesReadable: true },
    });
    expect(await server.result("create_checkpoint")).toMatchObject({ headEntryId: entryIds[0] });
    const back = await server.result("rollback_migration", { reason: "a test" });
    expect(back).toMatchObject({ state: "ROLLED_BACK", sessionPath: session });
    expect(readFileSync(session, "utf8").startsWith(before)).toBe(true);
    expect(await server.result("get_state")).toMatchObject({
      sessionFile: session,
      store: "jsonl",
      leafId: entryIds[0],
    });
    await server.result("append", { entries: [user("and more")] });
    const now = (await server.result("get_entries")).entries;
    expect(now.slice(0, entries.length)).toEqual(entries);
    expect(await server.result("migration_status")).toMatchObject({
      active: "jsonl_v3",
      state: "ROLLED_BACK",
      reason: "a test",
      interrupted: false,
    });
    expect(existsSync(container)).toBe(false);
  });

  test("a session that is not open is migrated and found under its old path and its id", async () => {
    const { server, other } = world();
    const { sessionPath, sessionId } = await server.result("migrate_session", { sessionPath: other });
    expect(existsSync(other)).toBe(false);
    for (const where of [{ sessionPath: other }, { sessionPath }, { sessionId }])
      expect(await server.result("switch_session", where)).toMatchObject({ sessionId, sessionFile: sessionPath });
    expect((await server.result("get_state")).sessionFile).toBe(sessionPath);
  });

  test("an open session that was migrated is meant by the name of the file that it was", async () => {
    const { server, session, container } = world();
    const text = readFileSync(session, "utf8");
    await server.result("migrate_session");
    await server.result("append", { entries: [user("more")] });
    expect(await server.result("migrate_session", { sessionPath: session })).toMatchObject({ sessionPath: container });
    expect((await server.result("migrate_session", { sessionPath: session, dryRun: true })).obstacles).toMatchObject([
      { kind: "already_migrated" },
    ]);
    await server.result("append", { entries: [user("and more")] });
    const back = await server.result("rollback_migration", { sessionPath: session });
    expect(back).toMatchObject({ state: "ROLLED_BACK", sessionPath: session });
    expect((await server.result("get_state")).sessionFile).toBe(session);
    await server.result("append", { entries: [user("and still more")] });
    expect(readFileSync(session, "utf8").split("\n").length).toBe(text.split("\n").length + 3);
    // And the other way round: the name of the container that it was.
    expect(await server.result("migrate_session", { sessionPath: container })).toMatchObject({ state: "MIGRATED" });
    expect((await server.result("get_state")).sessionFile).toBe(container);
  });

  test("a session that is not open keeps its leaf, there and back", async () => {
    const place = temporaryPlace();
    const file = putSession(place, 1);
    const first = serveHere(["--session", file, "--events", "none"], { place });
    await first.result("branch", { entryId: id(0) });
    first.stop();
    await first.done;
    const server = serveLibrary(place);
    const { sessionPath } = await server.result("migrate_session", { sessionPath: file });
    expect((await server.result("open_session", { sessionPath })).leafId).toBe(id(0));
    await server.result("close_session", { sessionId: sessionId(1) });
    await server.result("rollback_migration", { sessionPath });
    expect((await server.result("open_session", { sessionPath: file })).leafId).toBe(id(0));
  });

  test("the leaf that a header names is the leaf, there and back, until entries are appended", async () => {
    const place = temporaryPlace();
    const file = putSession(place, 1);
    const text = readFileSync(file, "utf8");
    const [header] = text.split("\n");
    writeFileSync(file, text.replace(header, `${header.slice(0, -1)},"leafId":"${id(0)}"}`));
    const server = serveLibrary(place);
    const leafOf = async (path: string): Promise<string> => {
      const { leafId } = await server.result("open_session", { sessionPath: path });
      await server.result("close_session", { sessionId: sessionId(1) });
      return leafId;
    };
    const { sessionPath } = await server.result("migrate_session", { sessionPath: file });
    expect(await leafOf(sessionPath)).toBe(id(0));
    await server.result("open_session", { sessionPath });
    const { leafId } = await server.result("append", { sessionId: sessionId(1), entries: [user("later")] });
    await server.result("close_session", { sessionId: sessionId(1) });
    await server.result("rollback_migration", { sessionPath });
    expect(await leafOf(file)).toBe(leafId);
  });

  test("a session whose lines end with CR LF and are indented comes back with what was appended", async () => {
    const place = temporaryPlace();
    const file = putSession(place, 1);
    const lines = readFileSync(file, "utf8").trimEnd().split("\n");
    const text = lines.map((line, i) => `${i > 0 ? "  " : ""}${line}\r\n`).join("");
    writeFileSync(file, text);
    const server = serveLibrary(place);
    const { sessionPath } = await server.result("migrate_session", { sessionPath: file });
    await server.result("open_session", { sessionPath });
    await server.result("append", { sessionId: sessionId(1), entries: [user("later")] });
    await server.result("close_session", { sessionId: sessionId(1) });
    expect(await server.result("rollback_migration", { sessionPath })).toMatchObject({ state: "ROLLED_BACK" });
    expect(readFileSync(file, "utf8").startsWith(text)).toBe(true);
  });

  test("what cannot be migrated is named, in a dry run and in earnest", async () => {
    const { server, other } = world();
    const text = readFileSync(other, "utf8");
    writeFileSync(other, `${text}${text.trimEnd().split("\n")[1].replace("Hello", "Other")}\n`);
    const dry = await server.result("migrate_session", { sessionPath: other, dryRun: true });
    expect(dry.obstacles).toMatchObject([{ kind: "duplicate_id" }]);
    const error = await server.failure("migrate_session", { sessionPath: other });
    expect(error).toMatchObject({ code: -32803, data: { name: "migration_failed", retryable: false } });
    expect(error.data.obstacles).toMatchObject([{ kind: "duplicate_id" }]);
  });

  test("verify_session tells of a frame that was changed", async () => {
    const { server, other } = world();
    const { sessionPath } = await server.result("migrate_session", { sessionPath: other });
    const file = segmentFile(sessionPath, 1);
    writeFileSync(file, readFileSync(file, "latin1").replace("Hello", "HELLO"), "latin1");
    const verdict = await server.result("verify_session", { sessionPath });
    expect(verdict.ok).toBe(false);
    expect(verdict.invariants).toMatchObject({ "INV-005": false, "INV-002": true });
    expect(verdict.damage.length).toBeGreaterThan(0);
  });

  test("a session in a file has no checkpoints, and nothing to roll back", async () => {
    const { server } = world();
    expect((await server.failure("create_checkpoint")).data.name).toBe("unsupported_command");
    expect((await server.failure("rollback_migration")).data.name).toBe("migration_failed");
    expect((await server.result("migrate_session", { to: "jsonl", dryRun: true })).obstacles).toMatchObject([
      { kind: "not_migrated" },
    ]);
  });
});

test("a result whose parent is its call is named as what a container cannot have", async () => {
  const place = temporaryPlace();
  const message = { role: "toolResult", toolCallId: "call-1", toolName: "ls", content: [], isError: false };
  const sessionPath = putSession(place, 1, {
    lines: [...chain(2), entryText("message", id(2), "call-1", { message })],
  });
  const server = serveLibrary(place);
  const { obstacles } = await server.result("migrate_session", { sessionPath, dryRun: true });
  expect(obstacles).toMatchObject([{ kind: "parent_is_call", entryId: id(2) }]);
  const { message: sentence } = await server.failure("migrate_session", { sessionPath });
  expect(sentence).toMatch(/its parent is a tool call/);
});
