/**
 * Lists of long files, which are not read line by line: the shown members, and those that may differ.
 *
 * @module-tag system
 */

import { join } from "node:path";
import { expect, test } from "vitest";
import { makeClaudeSkim } from "../../../src/modules/foreign/read/claude/claude.ts";
import { randomClaudeSession } from "../../support/foreign/claude.ts";
import { CODEX_SESSION, randomCodexSession } from "../../support/foreign/codex.ts";
import { GEMINI_SESSION, randomGeminiSession } from "../../support/foreign/gemini.ts";
import { put, serveLibrary } from "../../support/lifecycle.ts";
import { Random } from "../../support/random.ts";
import { temporaryPlace } from "../../support/server.ts";

const CHATS = ".gemini/tmp/project/chats";
const LONG = [
  ["claude", ".claude/projects/-home-me/7d5c2a10-0a5b-4c64-9c1a-3f1f6f0d8e11.jsonl", randomClaudeSession],
  ["codex", `.codex/sessions/2026/09/14/rollout-2026-09-14T08-00-00-${CODEX_SESSION}.jsonl`, randomCodexSession],
  ["gemini", `${CHATS}/session-2026-08-21T09-00-${GEMINI_SESSION.slice(0, 8)}.jsonl`, randomGeminiSession],
] as const;

/** Share of the messages that may be missing: these sessions of Gemini CLI's are written anew at every third turn. */
const OFF = { claude: 0.01, codex: 0.01, gemini: 0.2 };

test.each(LONG)(
  "%s: title, first message and times are right, and the count of messages nearly",
  async (agent, path, make) => {
    const place = temporaryPlace();
    const { lines } = make(new Random(5), 100);
    const file = put(join(place.home, path), `${lines.join("\n")}\n`);
    const server = serveLibrary(place);
    const { sessions } = await server.result("list_sessions", { agents: [agent] });
    await server.result("switch_session", { sessionPath: file });
    const { sessionName } = await server.result("get_state");
    const imported = await server.result("import_session", { path: file });
    const { sessions: ours } = await server.result("list_sessions", {});
    const exact = ours.find(({ sessionPath }: { sessionPath: string }) => sessionPath === imported.sessionPath);
    const [listed] = sessions;
    for (const name of ["firstMessage", "modified", "created", "cwd", "sessionId"])
      expect(listed[name]).toEqual(exact[name]);
    expect(listed.name ?? null).toBe(sessionName ?? null);
    expect(Math.abs(listed.messageCount - exact.messageCount) / exact.messageCount).toBeLessThan(OFF[agent]);
  },
);

const base = { parentUuid: "a", isSidechain: false, cwd: "/x", sessionId: "s", version: "2", uuid: "u" };
const message = { role: "assistant", id: "msg_1", content: [{ type: "text", text: "x" }] };
const data = { message: { type: "assistant", message, uuid: "n" }, normalizedMessages: [], type: "agent_progress" };

test.each<[number | undefined, object | string]>([
  [0, { ...base, type: "progress", data }],
  [0, { ...base, data, type: "progress" }],
  [0, { type: "progress", ...base, data }],
  [1, { ...base, message, type: "assistant" }],
  [1, { ...base, type: "user", message: { content: "Hello", role: "user" } }],
  [1, { message: { content: 'Hello "{', role: "user" }, ...base, type: "user" }],
  [undefined, { ...base, type: "user", isSidechain: true, message }],
  // A member outside of the first bytes has to be read.
  [undefined, { ...base, data: { ...data, long: "x".repeat(5000) }, type: "progress" }],
  [undefined, '{"type":7,"message":{}}'],
  [undefined, 'no JSON "message":{'],
])("%s messages: Claude Code's records of progress are none, in whatever order their members are", (count, record) => {
  expect(makeClaudeSkim()(Buffer.from(typeof record === "string" ? record : JSON.stringify(record)))).toBe(count);
});
