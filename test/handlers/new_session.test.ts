/** New sessions: nothing on disk before there is something to keep. */

import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { user } from "../support/drafts.ts";
import { sessionText } from "../support/example.ts";
import { type Json, serveHere, temporaryPlace } from "../support/server.ts";

function lines(file: string): Json[] {
  return readFileSync(file, "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
}

test("its path and id are known from the start, its file comes with the first entry", async () => {
  const server = serveHere(["--events", "none"]);
  const before = await server.result("get_state");
  const fresh = await server.result("new_session");
  expect(fresh).toEqual({ cancelled: false, sessionId: expect.any(String), sessionFile: expect.any(String) });
  expect(fresh.sessionId).not.toBe(before.sessionId);
  const { cancelled: _, ...named } = fresh;
  expect(await server.result("get_state")).toMatchObject({ ...named, persisted: false, entryCount: 0, leafId: null });
  expect(basename(fresh.sessionFile)).toMatch(
    new RegExp(`^\\d{4}-\\d\\d-\\d\\dT\\d\\d-\\d\\d-\\d\\d-\\d{3}Z_${fresh.sessionId}\\.jsonl$`),
  );
  expect(existsSync(dirname(fresh.sessionFile))).toBe(false);
  await server.result("append", { entries: [user("x", { id: "x" })] });
  expect(lines(fresh.sessionFile)).toMatchObject([
    { type: "session", version: 3, id: fresh.sessionId, cwd: server.place.cwd },
    { type: "message", id: "x", parentId: null },
  ]);
  expect((await server.result("get_state")).persisted).toBe(true);
  await server.finish();
  expect(existsSync(before.sessionFile)).toBe(false);
});

test("what sets it up waits for the first entry that is conversation, and comes before it", async () => {
  const server = serveHere([
    "--events",
    "none",
    "--provider",
    "anthropic",
    "--model",
    "claude-sonnet-4-5",
    "--thinking",
    "high",
  ]);
  const { sessionFile } = await server.result("new_session", { name: "two\nlines" });
  await server.result("append", { entries: [{ type: "thinking_level_change", thinkingLevel: "low" }] });
  expect(await server.result("get_state")).toMatchObject({
    persisted: false,
    sessionName: "two lines",
    model: { provider: "anthropic", id: "claude-sonnet-4-5" },
    thinkingLevel: "low",
    entryCount: 4,
    messageCount: 0,
  });
  expect(existsSync(sessionFile)).toBe(false);
  await server.result("append", { entries: [user("x", { id: "x" })] });
  const [, ...entries] = lines(sessionFile);
  expect(entries.map(({ type }) => type).sort()).toEqual(
    ["message", "model_change", "session_info", "thinking_level_change", "thinking_level_change"].sort(),
  );
  expect(entries.at(-1).id).toBe("x");
  expect(entries.map(({ parentId }) => parentId)).toEqual([null, ...entries.slice(0, -1).map(({ id }) => id)]);
});

test("what set it up is gone when nothing followed", async () => {
  const server = serveHere(["--events", "none", "--name", "never"]);
  const { sessionFile } = await server.result("get_state");
  await server.finish();
  expect(existsSync(sessionFile)).toBe(false);
});

describe("its params", () => {
  test("go into its header", async () => {
    const server = serveHere(["--events", "none"]);
    const { sessionFile, sessionId } = await server.result("new_session", {
      parentSession: "/elsewhere/old.jsonl",
      cwd: "/some/project",
      newSessionId: "my.own_id-1",
    });
    expect(sessionId).toBe("my.own_id-1");
    expect(basename(dirname(sessionFile))).toBe("--some-project--");
    await server.result("append", { entries: [user("x")] });
    expect(lines(sessionFile)[0]).toMatchObject({
      id: "my.own_id-1",
      cwd: "/some/project",
      parentSession: "/elsewhere/old.jsonl",
    });
    expect(await server.result("get_state")).toMatchObject({
      cwd: "/some/project",
      parentSession: "/elsewhere/old.jsonl",
    });
  });

  test.each(["", ".", "a/b", "../x", "-a", "a-", "a b", "é", "x".repeat(200), "con:1", "a\0b"])(
    "may not hold an id that is none, and the session stays: %j",
    async (newSessionId) => {
      const server = serveHere(["--events", "none"]);
      const { sessionId } = await server.result("get_state");
      expect(await server.failure("new_session", { newSessionId })).toMatchObject({
        code: -32803,
        data: { name: "invalid_id" },
      });
      expect((await server.result("get_state")).sessionId).toBe(sessionId);
    },
  );
});

describe("the command line", () => {
  test("names the first session", async () => {
    const server = serveHere(["--session-id", "mine", "--name", "My session", "--events", "none"]);
    expect(await server.result("get_state")).toMatchObject({
      sessionId: "mine",
      sessionName: "My session",
      persisted: false,
    });
  });

  test("names a path that does not exist yet", async () => {
    const place = temporaryPlace();
    const file = join(place.cwd, "sub", "new.jsonl");
    const server = serveHere(["--session", file, "--events", "none"], { place });
    expect(await server.result("get_state")).toMatchObject({ sessionFile: file, persisted: false });
    expect(existsSync(dirname(file))).toBe(false);
    await server.result("append", { entries: [user("x")] });
    expect(lines(file)).toHaveLength(2);
  });

  test("names one flat folder for sessions", async () => {
    const place = temporaryPlace();
    const folder = join(place.home, "flat");
    const server = serveHere(["--session-dir", folder, "--events", "none"], { place });
    await server.result("append", { entries: [user("x")] });
    const { sessionId } = await server.result("get_state");
    expect(readdirSync(folder).filter((name) => !name.startsWith("."))).toEqual([expect.stringContaining(sessionId)]);
  });

  test("goes on with the latest session of the directory, and of no other", async () => {
    const place = temporaryPlace();
    const first = serveHere(["--events", "none"], { place });
    await first.result("append", { entries: [user("x", { id: "x" })] });
    const { sessionId, sessionFile } = await first.result("get_state");
    await first.finish();
    // Folder names collide, the header tells whose it is.
    writeFileSync(join(dirname(sessionFile), "zzz.jsonl"), sessionText({ id: "other", cwd: "/elsewhere" }, []));
    const next = serveHere(["--continue", "--events", "none"], { place });
    expect(await next.result("get_state")).toMatchObject({ sessionId, leafId: "x" });
    const none = serveHere(["-c", "--events", "none"]);
    expect(await none.result("get_state")).toMatchObject({ persisted: false, entryCount: 0 });
  });

  test("starts in a fork", async () => {
    const place = temporaryPlace();
    const first = serveHere(["--events", "none"], { place });
    await first.result("append", { entries: [user("x", { id: "x" })] });
    const { sessionId, sessionFile } = await first.result("get_state");
    await first.finish();
    for (const named of [sessionFile, sessionId]) {
      const fork = serveHere(["--fork", named, "--events", "none"], { place });
      const state = await fork.result("get_state");
      expect(state).toMatchObject({ parentSession: sessionFile, leafId: "x", entryCount: 1, persisted: true });
      expect(state.sessionId).not.toBe(sessionId);
      await fork.finish();
    }
  });

  test("keeps everything in memory", async () => {
    const place = temporaryPlace();
    const server = serveHere(["--no-session", "--events", "none"], { place });
    await server.result("append", { entries: [user("x", { id: "x" })] });
    await server.result("branch", { entryId: null });
    await server.result("new_session");
    await server.result("append", { entries: [user("y")] });
    await server.finish();
    expect(readdirSync(place.home)).toEqual(["project"]);
    expect(readdirSync(place.cwd)).toEqual([]);
  });
});
