/** Sessions of other agents in lists and searches: where these agents keep them, and only for who asks. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { getAgentPlaces, listFiles } from "../../../src/modules/foreign/files/places.ts";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { ClaudeWriter, wholeClaudeSession } from "../../support/foreign/claude.ts";
import { CLINE_SESSION, ClineWriter } from "../../support/foreign/cline.ts";
import { CODEX_SESSION, wholeCodexSession } from "../../support/foreign/codex.ts";
import { COPILOT_SESSION, CopilotWriter } from "../../support/foreign/copilot.ts";
import { FORMATS } from "../../support/foreign/formats.ts";
import { GEMINI_SESSION, GeminiWriter } from "../../support/foreign/gemini.ts";
import { put, putSession, serveLibrary } from "../../support/lifecycle.ts";
import { LINUX, needs } from "../../support/needs.ts";
import { everyPage } from "../../support/searching.ts";
import { type Json, type Place, temporaryFolder, temporaryPlace } from "../../support/server.ts";
import { SYSTEM } from "../../support/tiers.ts";

const [ONE, TWO] = ["11111111-2222-4333-8444-555555555555", "22221111-2222-4333-8444-555555555555"];

/** Puts a session where Claude Code would, and one of its subagents. */
function putClaude(place: Place, id: string, question: string): { file: string; subagent: string } {
  const folder = join(place.home, ".claude", "projects", "-home-me-project");
  const talk = (about: object, asked: string, answer: string): string => {
    const w = Object.assign(new ClaudeWriter(), { sessionId: id, ...about });
    w.ask(asked);
    w.reply(answer);
    return w.text;
  };
  const below = { isSidechain: true, agentId: "a0123456789abcdef" };
  const branch = talk(below, "Look at the shelves", "The second one has marmalade.");
  put(join(folder, id, "tool-results", "x.txt"), "spilled");
  put(join(folder, "notes.jsonl"), '{"neither":"session"}\n');
  const subagent = put(join(folder, id, "subagents", "agent-a0123456789abcdef.jsonl"), branch);
  return { file: put(join(folder, `${id}.jsonl`), talk({}, question, "It is on the second shelf.")), subagent };
}

const pathsOf = (rows: Json[]): string[] => rows.map(({ sessionPath }) => sessionPath);
const heldOf = (rows: Json[]): Json[] => rows.filter(({ lockedBy }) => lockedBy !== undefined);

/** Puts a file of every format where its agent would. */
function putAll(place: Place): Map<string, string> {
  return new Map(FORMATS.map(({ format, path, text }) => [format, put(join(place.home, path), text)]));
}

test("all are listed in one list, and each agent's alone; searches find what was said there", SYSTEM, async () => {
  const place = temporaryPlace();
  const files = putAll(place);
  const server = serveLibrary(place);
  const installed = (agents: readonly string[]): string[] =>
    FORMATS.filter(({ agent, isExport }) => !isExport && agents.includes(agent))
      .map(({ format }) => files.get(format) as string)
      .sort();
  const agents = [...new Set(FORMATS.map(({ agent }) => agent))];
  const { sessions } = await server.result("list_sessions", { agents: "all", limit: 100 });
  expect(pathsOf(sessions).sort()).toEqual(installed(agents));
  for (const agent of agents) {
    const own = await server.result("list_sessions", { agents: [agent] });
    expect(pathsOf(own.sessions).sort()).toEqual(installed([agent]));
  }
  for (const { sessionPath, firstMessage, agent } of sessions) {
    const [query] = /\p{L}{3,}/u.exec(firstMessage) ?? [];
    const { hits } = await server.result("search_sessions", { query, agents: [agent], limit: 200 });
    expect(pathsOf(hits)).toContain(sessionPath);
  }
});

test("only who names agents gets their sessions, in one list with ours", async () => {
  const place = temporaryPlace();
  const ours = putSession(place, 1);
  const { file, subagent } = putClaude(place, ONE, "Where is the jam?");
  const server = serveLibrary(place);
  const list = async (params: object = {}): Promise<Json[]> => (await server.result("list_sessions", params)).sessions;
  expect(pathsOf(await list())).toEqual([ours]);
  const all = await list({ agents: "all" });
  expect(pathsOf(all).sort()).toEqual([file, ours, subagent].sort());
  const row = all.find(({ sessionPath }) => sessionPath === file) as Json;
  expect(row).toMatchObject({ agent: "claude", store: "foreign", firstMessage: "Where is the jam?", messageCount: 2 });
  const below = all.find(({ sessionPath }) => sessionPath === subagent);
  expect(below).toMatchObject({ parentSession: file, forkedFrom: { sessionId: row.sessionId } });
  expect(await list({ agents: ["claude"], limit: 1 })).toHaveLength(1);
  const paged = await everyPage(server, "list_sessions", { agents: "all", limit: 1 }, "sessions");
  expect(pathsOf(paged)).toEqual(pathsOf(all));
  expect(pathsOf(await list())).toEqual([ours]);
  expect((await server.failure("list_sessions", { agents: ["nobody"] })).message).toContain("claude");
});

test("one search finds what was said to any agent, page by page", SYSTEM, async () => {
  const place = temporaryPlace();
  putSession(place, 1);
  putClaude(place, ONE, "Where is the marmalade?");
  const { file } = putClaude(place, TWO, "And the honey, or marmalade?");
  const server = serveLibrary(place);
  const find = async (params: object = {}): Promise<Json[]> =>
    (await server.result("search_sessions", { query: "marmalade", ...params })).hits;
  expect(await find()).toEqual([]);
  const found = await find({ agents: "all" });
  expect(found.map(({ agent }) => agent)).toEqual(["claude", "claude", "claude", "claude"]);
  const request = { query: "marmalade", agents: "all", limit: 1 };
  expect(await everyPage(server, "search_sessions", request, "hits")).toEqual(found);
  appendFileSync(file, `${wholeClaudeSession().lines.join("\n").replaceAll("List the files", "More marmalade")}\n`);
  const more = await find({ agents: ["claude"] });
  expect(more).toHaveLength(5);
  const [{ sessionPath, entryId }] = more;
  await server.result("switch_session", { sessionPath });
  expect((await server.result("get_entry", { entryId })).entry.id).toBe(entryId);
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
  expect((await serveLibrary(place).result("list_sessions", { agents: "all" })).sessions).toEqual([]);
});

test("a session that its agent has open now is marked as held", async () => {
  const place = temporaryPlace();
  const { file, subagent } = putClaude(place, ONE, "Where is the jam?");
  const { file: other } = putClaude(place, TWO, "And the honey?");
  const notes = join(place.home, ".claude", "sessions");
  put(join(notes, `${process.pid}.json`), JSON.stringify({ pid: process.pid, sessionId: ONE, status: "busy" }));
  put(join(notes, "1.json"), `{"pid":4194304,"sessionId":"${TWO}"}`);
  put(join(notes, "2.json"), '{"pid":');
  const { sessions } = await serveLibrary(place).result("list_sessions", { agents: ["claude"], holders: true });
  const held = heldOf(sessions);
  expect(pathsOf(held).sort()).toEqual([file, subagent]);
  expect(held[0].lockedBy).toMatchObject({ client: "claude", pid: process.pid });
  expect(pathsOf(sessions)).toContain(other);
});

const MARKED = { ...SYSTEM, ...needs(LINUX) };
test("a session that a process has open is marked, for agents without notes", MARKED, async () => {
  const place = temporaryPlace();
  const folder = join(place.home, ".codex/sessions/2026/09/14");
  const [, file] = ["a", "b"].map((last) => {
    const own = `${CODEX_SESSION.slice(0, -1)}${last}`;
    const text = wholeCodexSession().text.replaceAll(CODEX_SESSION, own);
    return put(join(folder, `rollout-2026-09-14T08-00-00-${own}.jsonl`), text);
  });
  const script = 'exec 3<"$1"; echo ready; exec sleep 600';
  const writer = spawn("sh", ["-c", script, "sh", file], { stdio: ["ignore", "pipe", "ignore"] });
  onTestFinished(() => void writer.kill("SIGKILL"));
  await once(writer.stdout, "data");
  const { sessions } = await serveLibrary(place).result("list_sessions", { agents: ["codex"], holders: true });
  const held = heldOf(sessions);
  expect(pathsOf(held)).toEqual([file]);
  expect(held[0].lockedBy).toMatchObject({ client: "codex", pid: writer.pid });
});

test("a session that another one began names that one's file", async () => {
  const place = temporaryPlace();
  const files = putAll(place);
  const own = "aaaaaaaa-0000-4000-8000-000000000001";
  const gemini = new GeminiWriter({ kind: "subagent", sessionId: own });
  const cline = new ClineWriter("contract");
  cline.facts = { ...cline.facts, agent: "subagent", sessionId: `${CLINE_SESSION}__agent_1` };
  const copilot = new CopilotWriter();
  copilot.start({ sessionId: "other", detachedFromSpawningParentSessionId: COPILOT_SESSION });
  const made = [
    ["gemini", `.gemini/tmp/project/chats/${GEMINI_SESSION}/${own}.jsonl`, gemini],
    ["cline contract", `.cline/data/sessions/${CLINE_SESSION}/agent_1.messages.json`, cline],
    ["copilot", ".copilot/session-state/other.jsonl", copilot],
  ] as const;
  for (const [, path, w] of made) {
    w.ask("A task");
    put(join(place.home, path), w.text);
  }
  const { sessions } = await serveLibrary(place).result("list_sessions", { agents: "all", limit: 100 });
  for (const [format, path] of made) {
    const row = sessions.find(({ sessionPath }: Json) => sessionPath === join(place.home, path));
    expect([files.get(format), files.get(`${format} document`)]).toContain(row?.parentSession);
  }
});

test("a log of Copilot's without its beginning is the session that its folder names", async () => {
  const place = temporaryPlace();
  const server = serveLibrary(place);
  const idOf = async (path: string, hasStart: boolean): Promise<string> => {
    const w = new CopilotWriter();
    if (hasStart) w.start();
    w.ask("Where is it?");
    await server.result("switch_session", { sessionPath: put(join(place.home, path), w.text) });
    return (await server.result("get_state")).sessionId;
  };
  const id = await idOf(`one/${COPILOT_SESSION}/events.jsonl`, true);
  expect(await idOf(`two/${COPILOT_SESSION}/events.jsonl`, false)).toBe(id);
  expect(await idOf(`three/${COPILOT_SESSION}.jsonl`, false)).toBe(id);
  expect(await idOf("four/other/events.jsonl", false)).not.toBe(id);
});

test("folders are where the agents' own variables say; what is shown of a task counts without its messages only", () => {
  const home = temporaryFolder();
  const other = (name: string): string => join(home, "other", name);
  const found = (variables: Record<string, string>): string[] =>
    [...listFiles(realDisk, getAgentPlaces({ HOME: home, ...variables }))].sort();
  const variables = {
    CLAUDE_CONFIG_DIR: other("claude"),
    CODEX_HOME: other("codex"),
    COPILOT_HOME: other("copilot"),
    GEMINI_CLI_HOME: other("gemini"),
    CLINE_DATA_DIR: other("cline"),
    XDG_CONFIG_HOME: other("config"),
    XDG_DATA_HOME: other("data"),
  };
  const task = "config/VSCodium/User/globalStorage/kilocode.kilo-code/tasks/1784094124598/ui_messages.json";
  const there = [
    "claude/projects/-x/a.jsonl",
    "codex/sessions/2026/09/14/b.jsonl",
    "copilot/session-state/c/events.jsonl",
    "gemini/.gemini/tmp/x/chats/d.jsonl",
    "cline/sessions/e/e.messages.json",
    "cline/tasks/1784094124598/api_conversation_history.json",
    ...(process.platform === "win32" ? [] : ["data/goose/sessions/20250914_080000.jsonl"]),
    ...(process.platform === "linux" ? [task] : []),
  ].map((path) => put(other(path), ""));
  const others = ["gemini/.gemini/tmp/x/logs.json", "gemini/.gemini/tmp/x/tool-outputs/y.json"];
  for (const path of [...others, "cline/tasks/1784094124598/ui_messages.json", "cline/sessions/e/e.json"])
    put(other(path), "");
  expect(found(variables)).toEqual(there.sort());
  expect(found({})).toEqual([]);
  const own = put(other("own/f/f.messages.json"), "");
  expect(found({ CLINE_SESSION_DATA_DIR: other("own"), CLINE_DIR: other("nowhere") })).toEqual([own]);
});
