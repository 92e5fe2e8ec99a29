/** An agent of the Agent Client Protocol behind our own conversation with an editor: what it lacks of sessions, it gets. */

import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { Editor, editorHere, entryIdsOf, ours, textOf } from "../../support/acp.ts";
import { acpLike, ownAgent, piLike } from "../../support/agents.ts";
import { HERE } from "../../support/agents-here.ts";
import { type Json, type Place, spawnServer, temporaryPlace } from "../../support/server.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";

const editorOf = (place: Place, flags: string[] = [], more: string[] = []): Promise<Editor> =>
  editorHere(["--agent", acpLike(...flags), "--agent-protocol", "acp", ...more], { place, agentLaunch: HERE });

/** What the agent knows of a session, as it says itself. */
async function recalled(editor: Editor, sessionId: string): Promise<string> {
  editor.take(sessionId);
  const { result, error } = await editor.turn(sessionId, "recall");
  expect([result?.stopReason, error]).toEqual(["end_turn", undefined]);
  return textOf(editor.take(sessionId));
}

acrossTiers(test, ["jsonl", "v2"])(
  "a turn recorded in %s is told as the agent tells it, and shown again by a load, with its ids",
  async (store) => {
    const place = temporaryPlace();
    const editor = await editorOf(place, ["--commands"], ["--store", store]);
    expect(editor.agent.agentCapabilities).toMatchObject({ loadSession: true, promptCapabilities: { image: true } });
    const made = await editor.make();
    const { sessionId } = made;
    expect([made.modes.currentModeId, ours(made).fidelity]).toEqual(["ask", "native"]);
    await editor.until(({ sessionUpdate }) => sessionUpdate === "available_commands_update");
    const asked = editor.begins(sessionId, "ask think tools 1");
    const question = await editor.question();
    expect(question.params.sessionId).toBe(sessionId);
    editor.choose(question, "yes");
    expect((await editor.reply(asked)).result).toMatchObject({ stopReason: "end_turn" });
    const live = editor.take(sessionId);
    const { updates } = await editor.load(sessionId, place.cwd);
    expect(textOf(updates, "user_message_chunk")).toBe("ask think tools 1");
    for (const kind of ["agent_message_chunk", "agent_thought_chunk"])
      expect(textOf(updates, kind)).toBe(textOf(live, kind));
    const [now, before] = [updates, live].map((of) => new Set(of.flatMap(({ toolCallId }) => toolCallId ?? [])));
    expect(now).toEqual(before);
    expect(entryIdsOf(updates)).toEqual(entryIdsOf(live));
    await editor.result("session/set_mode", { sessionId, modeId: "code" });
    expect(editor.take(sessionId).at(-1)).toMatchObject({ currentModeId: "code" });
    const { sessions } = await editor.result("session/list", { cwd: place.cwd });
    expect(sessions.map((session: Json) => session.sessionId)).toEqual([sessionId]);
  },
);

describe("an agent that can only make sessions", () => {
  test("gets the conversation in words when one is loaded, forked, or left for another branch; and the client is told", async () => {
    const place = temporaryPlace();
    const first = await editorOf(place);
    const { sessionId } = await first.make();
    await first.turn(sessionId, "one");
    const entryId = ours(first.take(sessionId).findLast((update) => ours(update)?.entryId))?.entryId;
    await first.turn(sessionId, "two");
    expect(await recalled(first, sessionId)).toBe("one | two | recall");
    const fork = await first.result("session/fork", { sessionId, cwd: place.cwd, mcpServers: [] });
    expect(ours(fork).fidelity).toBe("seeded");
    expect(await recalled(first, fork.sessionId)).toMatch(/^This conversation.*User: one.*User: two.*recall$/s);
    // Only the first prompt says it.
    expect(await recalled(first, fork.sessionId)).toMatch(/^This conversation.* \| recall$/s);
    await first.result("_pi-session-server/branch", { sessionId, entryId });
    const branched = await first.turn(sessionId, "recall");
    expect(ours(branched.result).fidelity).toBe("seeded");
    expect(textOf(first.take(sessionId))).toMatch(/User: one(?!.*two)/s);
    await first.server.finish();
    const next = await editorOf(place);
    const { updates, result } = await next.load(sessionId, place.cwd);
    expect(textOf(updates, "user_message_chunk")).toBe("onerecall");
    expect(ours(result).fidelity).toBe("seeded");
    expect(await recalled(next, sessionId)).toMatch(/User: one.*recall$/s);
    // The words are the agent's alone.
    const { updates: again } = await next.load(sessionId, place.cwd);
    expect(textOf(again, "user_message_chunk")).toBe("onerecallrecall");
  });

  test("is started again by the prompt after its death, which is told", async () => {
    const place = temporaryPlace();
    const editor = await editorOf(place);
    const { sessionId } = await editor.make();
    await editor.turn(sessionId, "one");
    const { error } = await editor.turn(sessionId, "chunks 9 die after 3");
    expect(error.message).toMatch(/^The agent was ended by SIGKILL.*starts it again\.$/);
    const { updates } = await editor.load(sessionId, place.cwd);
    expect(textOf(updates)).toMatch(/^You said: one0 1 2 The agent was ended by SIGKILL/);
    expect(await recalled(editor, sessionId)).toMatch(/User: one.*recall$/s);
  });
});

describe("an agent that can do it itself", () => {
  test.each([["--loads"], ["--resumes"]])("goes on with its own session: %s", async (can) => {
    const place = temporaryPlace();
    const flags = [can, "--forks", "--keep", join(place.home, "kept.json")];
    const first = await editorOf(place, flags);
    const { sessionId } = await first.make();
    await first.turn(sessionId, "one");
    const fork = await first.result("session/fork", { sessionId, cwd: place.cwd, mcpServers: [] });
    expect(ours(fork).fidelity).toBe("native");
    expect(await recalled(first, fork.sessionId)).toBe("one | recall");
    await first.turn(sessionId, "die after 1 chunks 2");
    first.take(sessionId);
    expect(await recalled(first, sessionId)).toMatch(/^one \| die after 1 chunks 2 \| recall$/);
    await first.server.finish();
    const next = await editorOf(place, flags);
    const { updates, result } = await next.load(sessionId, place.cwd);
    expect(ours(result).fidelity).toBe("native");
    // The past is ours, told once.
    expect(textOf(updates, "user_message_chunk")).toBe("onedie after 1 chunks 2recall");
    expect(await recalled(next, sessionId)).toMatch(/^one \| .*recall \| recall$/);
  });
});

test("a turn is cancelled, closed or left by its client, and what was seen of it is there", async () => {
  const place = temporaryPlace();
  const editor = await editorOf(place);
  const { sessionId } = await editor.make();
  const begin = async (): Promise<number> => {
    const asked = editor.begins(sessionId, "chunks 100000 every 20");
    await editor.heard("1 ");
    return asked;
  };
  const cancelled = await begin();
  expect((await editor.failure("session/set_title", { sessionId, title: "x" })).message).toContain("Cancel its turn");
  editor.notify("session/cancel", { sessionId });
  expect((await editor.reply(cancelled)).result.stopReason).toBe("cancelled");
  const closed = await begin();
  await editor.result("session/close", { sessionId });
  expect((await editor.reply(closed)).result.stopReason).toBe("cancelled");
  await editor.load(sessionId, place.cwd);
  await begin();
  expect((await editor.server.finish()).status).toBe(0);
  const reader = await editorHere([], { place });
  const { updates } = await reader.load(sessionId, place.cwd);
  const ends = updates.flatMap((update) => ours(update)?.stopReason ?? []);
  expect(ends).toEqual(["aborted", "aborted", "aborted"]);
});

test(
  "an agent that cannot be started, or answers nothing, hangs nobody, and the history is there",
  SYSTEM,
  async () => {
    const place = temporaryPlace();
    for (const [agent, sentence] of [
      ["/no/such/agent", "could not be started (ENOENT)"],
      [ownAgent(place, "void line"), "did not answer initialize for 100 ms and was ended"],
    ]) {
      const args = ["--agent", agent, "--agent-protocol", "acp", "--agent-timeout", "100"];
      const editor = await editorHere(args, { place, agentLaunch: HERE });
      const { sessionId } = await editor.make();
      expect((await editor.turn(sessionId, "one")).error.message).toContain(sentence);
      expect((await editor.result("session/list", {})).sessions).toEqual([]);
      await editor.server.finish();
    }
  },
);

test(
  "the prompt is there before the agent hears it, and what was finished, after SIGKILL of the server",
  SYSTEM,
  async () => {
    const place = temporaryPlace();
    const args = ["--dialect", "acp", "--agent", acpLike(), "--agent-protocol", "acp"];
    const server = spawnServer(args, "lines", place);
    const editor = await new Editor(server).begin();
    const { sessionId } = await editor.make();
    await editor.turn(sessionId, "one");
    editor.begins(sessionId, "tools 1 chunks 100000 every 20");
    await editor.heard("1 ");
    server.process.kill("SIGKILL");
    await server.exit;
    const reader = await editorHere([], { place });
    const { updates } = await reader.load(sessionId, place.cwd);
    expect(textOf(updates, "user_message_chunk")).toBe("onetools 1 chunks 100000 every 20");
    expect(textOf(updates)).toBe("You said: oneReading 1. ");
    expect(updates.findLast(({ toolCallId }) => toolCallId)).toMatchObject({ status: "completed" });
  },
);

const PI = ["--agent", piLike()];
const ACP = ["--agent", acpLike(), "--agent-protocol", "acp"];
const ANSWERS = [
  { whose: "of the protocol", args: ACP, count: 1000 },
  { whose: "of the protocol", args: ACP, count: 8000 },
  { whose: "of Pi", args: PI, count: 8000 },
];

acrossTiers(test, ANSWERS)(
  "a client that does not read stops an agent $whose, and misses nothing of $count",
  async ({ args, count }) => {
    const editor = await editorHere(args, { agentLaunch: HERE });
    const { sessionId } = await editor.make();
    const asked = editor.begins(sessionId, `chunks ${count}`);
    await editor.heard("1 ");
    editor.server.stall();
    for (let turns = 0; turns < 100; turns++) await new Promise(setImmediate);
    editor.server.resume();
    await editor.reply(asked);
    expect(textOf(editor.take(sessionId))).toBe(Array.from({ length: count }, (_, i) => `${i} `).join(""));
  },
);
