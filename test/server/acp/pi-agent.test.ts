/** Pi behind an editor: what it does in a turn is told while it does it, and is the session's afterwards. */

import { describe, expect, test } from "vitest";
import { type Editor, editorHere, editorWith, entryIdsOf, ours, textOf, type Update } from "../../support/acp.ts";
import { ownAgent, piLike } from "../../support/agents.ts";
import { HERE } from "../../support/agents-here.ts";
import { type HereOptions, type Json, type Place, temporaryPlace } from "../../support/server.ts";
import { SYSTEM } from "../../support/tiers.ts";

interface Talk {
  readonly editor: Editor;
  readonly sessionId: string;
  readonly made: Json;
  turn(text: string): Promise<Json>;
}

/** An editor with a new session, and an agent behind. */
async function talk(
  agent = piLike(),
  skills: object = {},
  more: string[] = [],
  place?: Place,
  agentLaunch: HereOptions["agentLaunch"] = HERE,
): Promise<Talk> {
  const editor = await editorHere(["--agent", agent, ...more], { place, agentLaunch }, skills);
  const made = await editor.make();
  const { sessionId } = made;
  const turn = (text: string): Promise<Json> => editor.turn(sessionId, text);
  return { editor, sessionId, made, turn };
}

const kindsOf = (updates: readonly Update[]): string[] =>
  updates.map(({ sessionUpdate }) => sessionUpdate).filter((kind) => !/^session_info|^usage|_commands_/.test(kind));

/** The last state of each call, all of its updates put together. */
function callsIn(updates: readonly Update[]): Json[] {
  const calls = new Map<string, object>();
  for (const { sessionUpdate, _meta, ...rest } of updates)
    if (sessionUpdate.startsWith("tool_call")) calls.set(rest.toolCallId, { ...calls.get(rest.toolCallId), ...rest });
  return [...calls.values()];
}

test("an agent that asks without end is answered for the person, who sees some of it", SYSTEM, async () => {
  const place = temporaryPlace();
  const agent = ownAgent(
    place,
    `const { data } = { data: type === "get_available_models" ? { models: [] } : { commands: [] } };
    if (type === "extension_ui_response") { if (++globalThis.refused === 200) say({ type: "agent_settled" }); return; }
    say({ id, type: "response", command: type, success: true, data });
    if (type !== "prompt") return;
    globalThis.refused = 0;
    say({ type: "agent_start" });
    for (let i = 0; i < 500; i++)
      say({ type: "extension_ui_request", id: "q" + i, method: "confirm", title: "Really?", message: "x" });`,
  );
  const { editor, turn } = await talk(agent, {}, [], place);
  expect((await turn("one")).result.stopReason).toBe("end_turn");
  await editor.server.finish();
});

describe("a turn", () => {
  test("is told while it lasts: thoughts, text, calls with their results and changes; and ends with its usage", async () => {
    const { editor, sessionId, turn } = await talk();
    const { result } = await turn("think tools 1 edit hello");
    expect(result).toEqual({
      stopReason: "end_turn",
      usage: { inputTokens: 30, outputTokens: 2, cachedReadTokens: 0, cachedWriteTokens: 0, totalTokens: 32 },
    });
    const live = editor.take(sessionId);
    const call = ["tool_call", "tool_call_update", "tool_call_update", "tool_call_update"];
    const chunks = ["agent_thought_chunk", "agent_message_chunk", "agent_message_chunk"];
    expect(kindsOf(live)).toEqual([...call, ...call, ...chunks]);
    expect(textOf(live, "agent_thought_chunk")).toBe("Let me think.");
    expect(textOf(live)).toBe("You said: think tools 1 edit hello");
    expect(live.findLast(({ sessionUpdate }) => sessionUpdate === "usage_update")).toBeDefined();
    const [edit, read] = callsIn(live);
    const path = `${editor.server.place.cwd}/a.txt`;
    const done = { kind: "edit", status: "completed", locations: [{ path }], rawOutput: { diff: "-old\n+new" } };
    expect(edit).toMatchObject(done);
    expect(edit.content[0]).toEqual({ type: "diff", path, oldText: "old", newText: "new" });
    expect(read).toMatchObject({ kind: "read", status: "completed", rawInput: { path: "file-1" } });
    // A later load shows the same, and each entry was told of once by its id.
    const told = live.flatMap((update) => ours(update)?.entryId ?? []);
    const { updates } = await editor.load(sessionId);
    expect(told).toEqual(entryIdsOf(updates));
    expect(callsIn(updates)).toEqual(callsIn(live));
    expect(textOf(updates)).toBe(textOf(live));
    expect(textOf(updates, "user_message_chunk")).toBe("think tools 1 edit hello");
  });

  test("of pictures, links and files of the editor is a message of Pi's", async () => {
    const { editor, sessionId } = await talk();
    const prompt = [
      { type: "text", text: "see " },
      { type: "resource_link", name: "a b.txt", uri: "file:///home/a%20b.txt" },
      { type: "text", text: " and " },
      { type: "resource", resource: { uri: "file:///c.txt", text: "three" } },
      { type: "image", data: "aGk=", mimeType: "image/png" },
    ];
    await editor.result("session/prompt", { sessionId, prompt });
    const { updates } = await editor.load(sessionId);
    const told = updates.filter(({ sessionUpdate }) => sessionUpdate === "user_message_chunk");
    expect(told.map(({ content }) => content)).toEqual([
      { type: "text", text: 'see /home/a b.txt and /c.txt\n\n<file path="/c.txt">\nthree\n</file>' },
      { type: "image", data: "aGk=", mimeType: "image/png" },
    ]);
    const audio = [{ type: "audio", data: "", mimeType: "audio/wav" }];
    expect((await editor.failure("session/prompt", { sessionId, prompt: audio })).message).toContain("not audio");
    expect((await editor.failure("session/prompt", { sessionId, prompt: [] })).message).toContain("empty");
  });

  test("that the client cancels ends as cancelled, also before the agent has heard of it", async () => {
    const { editor, sessionId, turn } = await talk();
    const early = editor.begins(sessionId, "never");
    editor.notify("session/cancel", { sessionId });
    expect((await editor.reply(early)).result).toMatchObject({ stopReason: "cancelled" });
    const asked = editor.begins(sessionId, "chunks 100000 every 20");
    await editor.until((update) => update.sessionUpdate === "agent_message_chunk");
    editor.notify("session/cancel", { sessionId });
    expect((await editor.reply(asked)).result.stopReason).toBe("cancelled");
    expect((await turn("again")).result.stopReason).toBe("end_turn");
    const { updates } = await editor.load(sessionId);
    expect(textOf(updates)).toMatch(/You said: again$/);
  });

  test("that fails in the model is an error, in its words; one that begins nothing ends", async () => {
    const { turn } = await talk();
    expect((await turn("fail")).error.message).toBe("The model failed: The model is tired.");
    expect((await turn("/greet")).result).toEqual({ stopReason: "end_turn" });
    expect((await turn("on")).result.stopReason).toBe("end_turn");
  });

  test("has a session that nobody else writes to, and whose neighbours have turns of their own", async () => {
    const { editor, sessionId } = await talk();
    const { cwd } = editor.server.place;
    const other = await editor.result("session/new", { cwd, mcpServers: [] });
    const long = editor.begins(sessionId, "chunks 100000 every 20");
    await editor.until((update) => update.sessionUpdate === "agent_message_chunk");
    const { message } = await editor.failure("session/set_title", { sessionId, title: "Mine" });
    expect(message).toContain("Cancel its turn");
    const beside = await editor.turn(other.sessionId, "beside");
    expect(beside.result.stopReason).toBe("end_turn");
    // A copy ends no turn.
    await editor.result("session/fork", { sessionId, cwd, mcpServers: [] });
    await editor.until((update) => update.sessionUpdate === "agent_message_chunk");
    editor.notify("session/cancel", { sessionId });
    expect((await editor.reply(long)).result.stopReason).toBe("cancelled");
    await editor.result("session/set_title", { sessionId, title: "Mine" });
    await editor.turn(sessionId, "after the title");
    const { updates } = await editor.load(sessionId, cwd);
    expect(textOf(updates)).toMatch(/after the title$/);
  });

  test("goes on where the client stands: after a branch, in a fork, and in a session that was resumed", async () => {
    const { editor, sessionId, turn } = await talk();
    const { cwd } = editor.server.place;
    await turn("one");
    const first = editor.take(sessionId).findLast((update) => ours(update)?.entryId);
    const entryId = ours(first)?.entryId;
    await turn("two");
    await editor.result("_pi-session-server/branch", { sessionId, entryId });
    await turn("three");
    const fork = await editor.result("session/fork", { sessionId, cwd, mcpServers: [] });
    await editor.turn(fork.sessionId, "four");
    const spoken = async (id: string): Promise<string> =>
      textOf((await editor.load(id, cwd)).updates, "user_message_chunk");
    expect(await spoken(sessionId)).toBe("onethree");
    expect(await spoken(fork.sessionId)).toBe("onethreefour");
    await editor.result("session/close", { sessionId });
    await editor.result("session/resume", { sessionId, cwd, mcpServers: [] });
    editor.take(sessionId);
    await editor.turn(sessionId, "five tools 1");
    expect(callsIn(editor.take(sessionId))).toHaveLength(1);
    expect(await spoken(sessionId)).toBe("onethreefive tools 1");
  });
});

describe("modes and options", () => {
  test("are the models and thinking levels of the agent, which writes what is chosen", async () => {
    const { editor, sessionId, made } = await talk();
    const { cwd } = editor.server.place;
    expect(made.modes).toBeUndefined();
    expect(made.configOptions).toMatchObject([{ id: "model", category: "model", currentValue: "example/scripted-1" }]);
    const models = made.configOptions[0].options.map(({ value }: Json) => value);
    expect(models).toEqual(["example/scripted-1", "example/scripted-2"]);
    const commands = await editor.until(({ sessionUpdate }) => sessionUpdate === "available_commands_update");
    expect(commands.availableCommands[0].name).toBe("greet");
    const set = (configId: string, value: string): Promise<Json> =>
      editor.result("session/set_config_option", { sessionId, configId, value });
    const { configOptions } = await set("model", "example/scripted-2");
    expect(configOptions).toMatchObject([
      { id: "model", currentValue: "example/scripted-2" },
      { id: "thought_level", category: "thought_level", currentValue: "off" },
    ]);
    await set("thought_level", "high");
    const mode = editor.take(sessionId).findLast(({ sessionUpdate }) => sessionUpdate === "current_mode_update");
    expect(mode).toMatchObject({ currentModeId: "high" });
    await editor.result("session/set_mode", { sessionId, modeId: "low" });
    const told = editor.take(sessionId).findLast(({ sessionUpdate }) => sessionUpdate === "config_option_update");
    expect(told?.configOptions[1].currentValue).toBe("low");
    await editor.turn(sessionId, "hello");
    const { result } = await editor.load(sessionId, cwd);
    expect(result.modes).toMatchObject({ currentModeId: "low" });
    for (const [configId, value] of [
      ["model", "none"],
      ["thought_level", "max"],
      ["speed", "x"],
    ])
      expect((await editor.failure("session/set_config_option", { sessionId, configId, value })).code).toBe(-32602);
  });
});

describe("what extensions of the agent ask", () => {
  test("is a permission, whose answer goes to the agent", async () => {
    const { editor, sessionId } = await talk();
    for (const [text, optionId, said] of [
      ["ask", "0", "You said: ask"],
      ["choose", "1", "You said: No, that one choose"],
    ]) {
      const asked = editor.begins(sessionId, text);
      const question = await editor.question();
      expect(question.params.options.map(({ kind }: Json) => kind)).toEqual(["allow_once", "reject_once"]);
      editor.choose(question, optionId);
      expect((await editor.reply(asked)).result.stopReason).toBe("end_turn");
      expect(textOf(editor.take(sessionId))).toBe(said);
    }
    // Whoever cancels need not answer.
    const asked = editor.begins(sessionId, "ask");
    await editor.question();
    editor.notify("session/cancel", { sessionId });
    expect((await editor.reply(asked)).result.stopReason).toBe("cancelled");
  });

  test("for a text is a form, where the editor has these", async () => {
    const { editor, sessionId } = await talk(piLike(), { elicitation: { form: {} } });
    const asked = editor.begins(sessionId, "write");
    const question = await editor.question();
    editor.server.answer(question.id, { action: "accept", content: { value: "Ada" } });
    await editor.reply(asked);
    expect(textOf(editor.take(sessionId))).toBe("You said: Ada write");
    const plain = await talk();
    await plain.turn("write");
    const told = textOf(plain.editor.take(plain.sessionId));
    expect(told).toMatch(/^Name\?.*this editor cannot.*You said: nothing write$/s);
  });
});

describe("an agent that ends", () => {
  test("in the middle of an answer fails the request, leaves what was seen, and is started by the next prompt", async () => {
    const { editor, sessionId, turn } = await talk();
    await turn("one");
    editor.take(sessionId);
    const { error } = await turn("chunks 5 die after 3");
    expect(error.message).toMatch(/^The agent was ended by SIGKILL.* The next prompt starts it again\.$/);
    const live = editor.take(sessionId);
    expect(textOf(live)).toBe("0 1 2 ");
    expect((await turn("two")).result.stopReason).toBe("end_turn");
    const { updates } = await editor.load(sessionId);
    expect(textOf(updates, "user_message_chunk")).toBe("onechunks 5 die after 3two");
    expect(textOf(updates)).toMatch(/^You said: one0 1 2 The agent was ended by SIGKILL.*You said: two$/s);
  });

  test("or cannot be started, or says nothing, hangs nobody", SYSTEM, async () => {
    // It lives long enough after it was given up for the first reason to be told.
    const patient = (agent: string, ...more: string[]): Promise<Talk> => talk(agent, {}, more, undefined, {});
    const missing = await patient("/no/such/agent");
    expect(missing.made.configOptions).toBeUndefined();
    expect((await missing.turn("one")).error.message).toContain("could not be started (ENOENT)");
    const mute = await patient(piLike("--mute"), "--agent-timeout", "200");
    expect((await mute.turn("one")).error.message).toContain("within 200 ms");
    const { editor, sessionId } = await talk(piLike(), {}, ["--agent-timeout", "300"]);
    const hung = editor.begins(sessionId, "chunks 5 hang after 3");
    await editor.heard("2 ");
    editor.notify("session/cancel", { sessionId });
    expect((await editor.reply(hung)).result.stopReason).toBe("cancelled");
  });

  test("with its client leaves the turn marked as ended, and no process", async () => {
    const place = temporaryPlace();
    const { editor, sessionId } = await talk(piLike(), {}, [], place);
    editor.begins(sessionId, "chunks 100000 every 20");
    await editor.until((update) => update.sessionUpdate === "agent_message_chunk");
    const { status } = await editor.server.finish();
    expect(status).toBe(0);
    const reader = await editorHere([], { place });
    const { updates } = await reader.load(sessionId, place.cwd);
    const last = updates.findLast((update) => ours(update)?.stopReason);
    expect(ours(last)?.stopReason).toBe("aborted");
  });
});

test("an old agent that never says that it has settled, and tells whole answers, ends its turns", SYSTEM, async () => {
  const place = temporaryPlace();
  const agent = ownAgent(
    place,
    `const reply = (data) => say({ id, type: "response", command: type, success: true, data });
     if (type === "get_state") reply({ isStreaming: false });
     // It refuses what it does not know without an id.
     else if (type !== "prompt") say({ type: "response", command: type, success: false, error: "Unknown command: " + type });
     else {
       reply();
       const message = { role: "assistant", content: [{ type: "text", text: "Old." }], timestamp: 1, stopReason: "length" };
       if (!line.includes("nothing"))
         for (const event of [{ type: "agent_start" }, { type: "message_start", message: { ...message, content: [] } },
           { type: "message_update", message, assistantMessageEvent: { type: "text_delta", contentIndex: 0, delta: "Ol" } },
           { type: "message_end", message }, { type: "agent_end", messages: [message] }]) say(event);
     }`,
  );
  const { editor, sessionId, turn } = await talk(agent, {}, [], place);
  expect((await turn("hello")).result).toEqual({ stopReason: "max_tokens" });
  expect(textOf(editor.take(sessionId))).toBe("Old.");
  // A command of an extension begins no turn, and it does not say so.
  expect((await turn("nothing")).result.stopReason).toBe("end_turn");
});

test("a session in a container cannot be prompted in; the refusal says how it can", async () => {
  const { id, editor } = await editorWith({ store: "v2", args: ["--agent", piLike()] });
  await editor.load(id);
  expect((await editor.turn(id, "two")).error.message).toContain("pi-session-server rollback <session>");
});
