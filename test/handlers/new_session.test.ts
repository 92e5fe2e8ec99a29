/** New sessions: nothing on disk before there is something to keep. */

import { existsSync } from "node:fs";
import { basename, dirname } from "node:path";
import { expect, test } from "vitest";
import { linesIn } from "../support/cases.ts";
import { user } from "../support/drafts.ts";
import { type Json, serveHere } from "../support/server.ts";

const lines = (file: string): Json[] => linesIn(file).map((line) => JSON.parse(line));

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
  const server = serveHere("--events none --provider anthropic --model claude-sonnet-4-5 --thinking high".split(" "));
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
  const types = ["message", "model_change", "session_info", "thinking_level_change", "thinking_level_change"];
  expect(entries.map(({ type }) => type).sort()).toEqual(types);
  expect(entries.at(-1).id).toBe("x");
  expect(entries.map(({ parentId }) => parentId)).toEqual([null, ...entries.slice(0, -1).map(({ id }) => id)]);
});

test("what set it up is gone when nothing followed", async () => {
  const server = serveHere(["--events", "none", "--name", "never"]);
  const { sessionFile } = await server.result("get_state");
  await server.finish();
  expect(existsSync(sessionFile)).toBe(false);
});

test("its params go into its header", async () => {
  const server = serveHere(["--events", "none"]);
  const about = { parentSession: "/elsewhere/old.jsonl", cwd: "/some/project" };
  const { sessionFile, sessionId } = await server.result("new_session", { ...about, newSessionId: "my.own_id-1" });
  expect([sessionId, basename(dirname(sessionFile))]).toEqual(["my.own_id-1", "--some-project--"]);
  await server.result("append", { entries: [user("x")] });
  expect(lines(sessionFile)[0]).toMatchObject({ id: "my.own_id-1", ...about });
  expect(await server.result("get_state")).toMatchObject(about);
});
