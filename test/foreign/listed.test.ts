/** Sessions of other agents in lists and searches: where these agents keep them, and only for who asks. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { ClaudeWriter, said, wholeClaudeSession } from "../support/foreign/claude.ts";
import { CODEX_SESSION, wholeCodexSession } from "../support/foreign/codex.ts";
import { put, putSession, serveLibrary } from "../support/lifecycle.ts";
import { LINUX, needs } from "../support/needs.ts";
import { type Json, type Place, temporaryPlace } from "../support/server.ts";
import { SYSTEM } from "../support/tiers.ts";

/** Puts a session where Claude Code would, and one of its subagents. */
function putClaude(place: Place, id: string, question: string): string {
  const folder = join(place.home, ".claude", "projects", "-home-me-project");
  const w = new ClaudeWriter();
  w.sessionId = id;
  w.human(question);
  w.answer([said("It is on the second shelf.")]);
  const agent = new ClaudeWriter();
  Object.assign(agent, { sessionId: id, isSidechain: true, agentId: "a0123456789abcdef" });
  agent.human("Look at the shelves");
  agent.answer([said("The second one has marmalade.")]);
  put(join(folder, id, "subagents", "agent-a0123456789abcdef.jsonl"), agent.text);
  put(join(folder, id, "tool-results", "x.txt"), "spilled");
  put(join(folder, "notes.jsonl"), '{"neither":"session"}\n');
  return put(join(folder, `${id}.jsonl`), w.text);
}

const ONE = "11111111-2222-4333-8444-555555555555";

test("only who names agents gets their sessions, in one list with ours", async () => {
  const place = temporaryPlace();
  const ours = putSession(place, 1);
  const file = putClaude(place, ONE, "Where is the jam?");
  const server = serveLibrary(place);
  const pathsOf = ({ sessions }: Json): string[] => sessions.map(({ sessionPath }: Json) => sessionPath);
  expect(pathsOf(await server.result("list_sessions"))).toEqual([ours]);
  const all = await server.result("list_sessions", { agents: "all" });
  const subagent = join(dirname(file), ONE, "subagents", "agent-a0123456789abcdef.jsonl");
  expect(pathsOf(all).sort()).toEqual([file, ours, subagent].sort());
  const row = all.sessions.find(({ sessionPath }: Json) => sessionPath === file);
  expect(row).toMatchObject({ agent: "claude", store: "foreign", firstMessage: "Where is the jam?", messageCount: 2 });
  const below = all.sessions.find(({ sessionPath }: Json) => sessionPath === subagent);
  expect(below).toMatchObject({ parentSession: file, forkedFrom: { sessionId: row.sessionId } });
  expect(pathsOf(await server.result("list_sessions", { agents: ["claude"], limit: 1 }))).toHaveLength(1);
  const paged: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await server.result("list_sessions", { agents: "all", limit: 1, cursor });
    paged.push(...pathsOf(page));
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  expect(paged).toEqual(pathsOf(all));
  expect(pathsOf(await server.result("list_sessions"))).toEqual([ours]);
  const { message } = await server.failure("list_sessions", { agents: ["nobody"] });
  expect(message).toContain("claude");
});

test("one search finds what was said to any agent, page by page", SYSTEM, async () => {
  const place = temporaryPlace();
  putSession(place, 1);
  putClaude(place, ONE, "Where is the marmalade?");
  const file = putClaude(place, ONE.replace("1111", "2222"), "And the honey, or marmalade?");
  const server = serveLibrary(place);
  expect((await server.result("search_sessions", { query: "marmalade" })).hits).toEqual([]);
  const found = await server.result("search_sessions", { query: "marmalade", agents: "all" });
  expect(found.hits.map(({ agent }: Json) => agent)).toEqual(["claude", "claude", "claude", "claude"]);
  const hits: Json[] = [];
  let cursor: string | undefined;
  do {
    const page = await server.result("search_sessions", { query: "marmalade", agents: "all", limit: 1, cursor });
    hits.push(...page.hits);
    cursor = page.nextCursor;
  } while (cursor !== undefined && hits.length < 10);
  expect(hits).toEqual(found.hits);
  appendFileSync(file, `${wholeClaudeSession().lines.join("\n").replaceAll("List the files", "More marmalade")}\n`);
  const more = await server.result("search_sessions", { query: "marmalade", agents: ["claude"] });
  expect(more.hits).toHaveLength(5);
  const [hit] = more.hits;
  await server.result("switch_session", { sessionPath: hit.sessionPath });
  expect((await server.result("get_entry", { entryId: hit.entryId })).entry.id).toBe(hit.entryId);
});

test("links in agents' folders lead nowhere, and what is no session is passed over", async () => {
  const place = temporaryPlace();
  const outside = put(join(place.home, "outside", "secret.jsonl"), wholeClaudeSession().text);
  const folder = join(place.home, ".claude", "projects", "-x");
  mkdirSync(folder, { recursive: true });
  symlinkSync(outside, join(folder, "link.jsonl"));
  symlinkSync(dirname(folder), join(folder, "circle"));
  writeFileSync(join(folder, "empty.jsonl"), "");
  writeFileSync(join(folder, "garbage.jsonl"), Buffer.from([0, 255, 10, 1]));
  const server = serveLibrary(place);
  expect((await server.result("list_sessions", { agents: "all" })).sessions).toEqual([]);
});

test("a session that its agent has open now is marked as held", async () => {
  const place = temporaryPlace();
  const file = putClaude(place, ONE, "Where is the jam?");
  const other = putClaude(place, ONE.replace("1111", "2222"), "And the honey?");
  const notes = join(place.home, ".claude", "sessions");
  put(join(notes, `${process.pid}.json`), JSON.stringify({ pid: process.pid, sessionId: ONE, status: "busy" }));
  put(join(notes, "1.json"), '{"pid":4194304,"sessionId":"22221111-2222-4333-8444-555555555555"}');
  put(join(notes, "2.json"), '{"pid":');
  const { sessions } = await serveLibrary(place).result("list_sessions", { agents: ["claude"], holders: true });
  const held = sessions.filter(({ lockedBy }: Json) => lockedBy !== undefined);
  expect(held.map(({ sessionPath }: Json) => sessionPath).sort()).toEqual([
    file,
    join(dirname(file), ONE, "subagents", "agent-a0123456789abcdef.jsonl"),
  ]);
  expect(held[0].lockedBy).toMatchObject({ client: "claude", pid: process.pid });
  expect(sessions.map(({ sessionPath }: Json) => sessionPath)).toContain(other);
});

test("a session that a process has open is marked, for agents without notes", {
  ...SYSTEM,
  ...needs(LINUX),
}, async () => {
  const place = temporaryPlace();
  const folder = join(place.home, ".codex/sessions/2026/09/14");
  const files = ["a", "b"].map((last) => {
    const own = `${CODEX_SESSION.slice(0, -1)}${last}`;
    const text = wholeCodexSession().text.replaceAll(CODEX_SESSION, own);
    return put(join(folder, `rollout-2026-09-14T08-00-00-${own}.jsonl`), text);
  });
  const writer = spawn("sh", ["-c", 'exec 3<"$1"; echo ready; exec sleep 600', "sh", files[1]], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  onTestFinished(() => void writer.kill("SIGKILL"));
  await once(writer.stdout, "data");
  const { sessions } = await serveLibrary(place).result("list_sessions", { agents: ["codex"], holders: true });
  const held = sessions.filter(({ lockedBy }: Json) => lockedBy !== undefined);
  expect(held.map(({ sessionPath }: Json) => sessionPath)).toEqual([files[1]]);
  expect(held[0].lockedBy).toMatchObject({ client: "codex", pid: writer.pid });
});
