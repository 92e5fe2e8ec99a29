/** A session of every agent where that agent keeps it: found, read, searched and taken along. */

import { join } from "node:path";
import { expect, test } from "vitest";
import { agentPlaces, filesIn } from "../../src/storage/foreign/places.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { foreignSession, requireSound, requireSum } from "../support/foreign/checks.ts";
import { CLINE_SESSION, ClineWriter } from "../support/foreign/cline.ts";
import { COPILOT_SESSION, CopilotWriter } from "../support/foreign/copilot.ts";
import { FORMATS } from "../support/foreign/formats.ts";
import { GEMINI_SESSION, GeminiWriter } from "../support/foreign/gemini.ts";
import { contentsOf, put, serveLibrary } from "../support/lifecycle.ts";
import { type Json, type Place, temporaryFolder, temporaryPlace } from "../support/server.ts";
import { SYSTEM } from "../support/tiers.ts";

const INSTALLED = FORMATS.filter(({ isExport }) => !isExport);

function putAll(place: Place): Map<string, string> {
  return new Map(FORMATS.map(({ format, path, text }) => [format, put(join(place.home, path), text)]));
}

function pathsOf({ sessions }: Json): string[] {
  return sessions.map(({ sessionPath }: Json) => sessionPath);
}

test("all are listed in one list, and each agent's alone; searches find what was said there", SYSTEM, async () => {
  const place = temporaryPlace();
  const files = putAll(place);
  const server = serveLibrary(place);
  const all = await server.result("list_sessions", { agents: "all", limit: 100 });
  expect(pathsOf(all).sort()).toEqual(INSTALLED.map(({ format }) => files.get(format) as string).sort());
  for (const agent of new Set(FORMATS.map((one) => one.agent))) {
    const own = INSTALLED.filter((one) => one.agent === agent).map(({ format }) => files.get(format) as string);
    expect(pathsOf(await server.result("list_sessions", { agents: [agent] })).sort()).toEqual(own.sort());
  }
  for (const { sessionPath, firstMessage, agent } of all.sessions) {
    const [query] = /\p{L}{3,}/u.exec(firstMessage) ?? [];
    const { hits } = await server.result("search_sessions", { query, agents: [agent], limit: 200 });
    expect(hits.map((hit: Json) => hit.sessionPath)).toContain(sessionPath);
  }
});

test.each(FORMATS.map((one) => [one.format, one] as const))(
  "%s: it opens for reading, is verified, and an import has its report",
  async (_, one) => {
    const place = temporaryPlace();
    const file = put(join(place.home, one.path), one.text);
    const before = contentsOf(join(place.home, one.path.split("/")[0]));
    const server = serveLibrary(place);
    await server.result("switch_session", { sessionPath: file });
    const state = await server.result("get_state");
    expect(state).toMatchObject({ sessionFile: file, store: "foreign", readOnly: true });
    const { messages } = await server.result("get_context", { strict: true });
    expect(messages.length).toBeGreaterThan(1);
    const { fidelity } = await server.result("verify_session");
    requireSum(fidelity);
    const imported = await server.result("import_session", { path: file });
    expect(imported).toMatchObject({ outcome: "new", sessionId: state.sessionId, fidelity });
    expect(fidelity.agent).toBe(one.agent);
    expect(await server.result("import_session", { path: file })).toMatchObject({ outcome: "known" });
    await server.result("switch_session", { sessionPath: imported.sessionPath });
    expect((await server.result("get_context", { strict: true })).messages).toEqual(messages);
    expect(contentsOf(join(place.home, one.path.split("/")[0]))).toEqual(before);
  },
);

test.each(FORMATS.map((one) => [one.format, one] as const))(
  "%s: a picture without data is none for the model, whatever its type says",
  (_, { path, text }) => {
    const emptied = text.replaceAll(/AAAA|BBBB|iVBORw0KGgo=/g, "");
    for (const damaged of [emptied, text.replaceAll("image/png", ""), emptied.replaceAll("image/png", "")]) {
      const session = foreignSession(Buffer.from(damaged), `/home/me/${path}`);
      requireSound(session);
      session.close();
    }
  },
);

test("a session that another one began names that one's file", async () => {
  const place = temporaryPlace();
  const files = putAll(place);
  const made = new Map<string, string>();
  const gemini = new GeminiWriter({ kind: "subagent", sessionId: "aaaaaaaa-0000-4000-8000-000000000001" });
  gemini.user("A task");
  gemini.gemini("Done.");
  const chats = join(place.home, ".gemini/tmp/project/chats");
  made.set("gemini", put(join(chats, GEMINI_SESSION, "aaaaaaaa-0000-4000-8000-000000000001.jsonl"), gemini.text));
  const cline = new ClineWriter("contract");
  cline.facts = { ...cline.facts, agent: "subagent", sessionId: `${CLINE_SESSION}__agent_1` };
  cline.user("A task");
  const sessions = join(place.home, ".cline/data/sessions");
  made.set("cline contract", put(join(sessions, CLINE_SESSION, "agent_1.messages.json"), cline.text));
  const copilot = new CopilotWriter();
  copilot.start({ sessionId: "other", detachedFromSpawningParentSessionId: COPILOT_SESSION });
  copilot.user("A task");
  made.set("copilot", put(join(place.home, ".copilot/session-state/other.jsonl"), copilot.text));
  const list = await serveLibrary(place).result("list_sessions", { agents: "all", limit: 100 });
  for (const [format, file] of made) {
    const row = list.sessions.find(({ sessionPath }: Json) => sessionPath === file);
    const parents = [files.get(format), files.get(`${format} document`)];
    expect([format, parents.includes(row?.parentSession)]).toEqual([format, true]);
  }
});

test("a log of Copilot's without its beginning is the session that its folder names", async () => {
  const place = temporaryPlace();
  const log = (path: string, hasStart: boolean): string => {
    const w = new CopilotWriter();
    if (hasStart) w.start();
    w.user("Where is it?");
    return put(join(place.home, path), w.text);
  };
  log(`one/${COPILOT_SESSION}/events.jsonl`, true);
  log(`two/${COPILOT_SESSION}/events.jsonl`, false);
  log(`three/${COPILOT_SESSION}.jsonl`, false);
  log("four/other/events.jsonl", false);
  const server = serveLibrary(place);
  const ids: string[] = [];
  for (const path of [`one/${COPILOT_SESSION}/events`, `two/${COPILOT_SESSION}/events`, `three/${COPILOT_SESSION}`]) {
    await server.result("switch_session", { sessionPath: join(place.home, `${path}.jsonl`) });
    ids.push((await server.result("get_state")).sessionId);
  }
  expect(new Set(ids).size).toBe(1);
  await server.result("switch_session", { sessionPath: join(place.home, "four/other/events.jsonl") });
  expect(ids).not.toContain((await server.result("get_state")).sessionId);
});

test("folders are where the agents' own variables say; what is shown of a task counts without its messages only", () => {
  const home = temporaryFolder();
  const other = (name: string): string => join(home, "other", name);
  const found = (variables: Record<string, string>): string[] => [
    ...filesIn(realDisk, agentPlaces({ HOME: home, ...variables })),
  ];
  const task = other("config/VSCodium/User/globalStorage/kilocode.kilo-code/tasks/1784094124598");
  const variables = {
    CLAUDE_CONFIG_DIR: other("claude"),
    CODEX_HOME: other("codex"),
    COPILOT_HOME: other("copilot"),
    GEMINI_CLI_HOME: other("gemini"),
    CLINE_DATA_DIR: other("cline"),
    XDG_CONFIG_HOME: other("config"),
    XDG_DATA_HOME: other("data"),
  };
  const there = [
    put(other("claude/projects/-x/a.jsonl"), ""),
    put(other("codex/sessions/2026/09/14/b.jsonl"), ""),
    put(other("copilot/session-state/c/events.jsonl"), ""),
    put(other("gemini/.gemini/tmp/x/chats/d.jsonl"), ""),
    put(other("cline/sessions/e/e.messages.json"), ""),
    put(other("cline/tasks/1784094124598/api_conversation_history.json"), ""),
    ...(process.platform === "win32" ? [] : [put(other("data/goose/sessions/20250914_080000.jsonl"), "")]),
    ...(process.platform === "linux" ? [put(join(task, "ui_messages.json"), "")] : []),
  ];
  put(other("gemini/.gemini/tmp/x/logs.json"), "");
  put(other("gemini/.gemini/tmp/x/tool-outputs/y.json"), "");
  put(other("cline/tasks/1784094124598/ui_messages.json"), "");
  put(other("cline/sessions/e/e.json"), "");
  expect(found(variables).sort()).toEqual(there.sort());
  expect(found({})).toEqual([]);
  const own = put(other("own/f/f.messages.json"), "");
  expect(found({ CLINE_SESSION_DATA_DIR: other("own"), CLINE_DIR: other("nowhere") })).toEqual([own]);
});
