/** An agent behind an editor: its steps in a turn are sent at once, and are the session's afterwards. */

import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { Editor, editorHere, editorWith, entryIdsOf, ours, textOf, type Update } from "../../support/acp.ts";
import { acpLike, ownAgent, piLike } from "../../support/agents.ts";
import { HERE } from "../../support/agents-here.ts";
import { type HereOptions, type Json, spawnServer, temporaryPlace } from "../../support/server.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";

const PI = ["--agent", piLike()];
const acp = (...flags: string[]): string[] => ["--agent", acpLike(...flags), "--agent-protocol", "acp"];

/** Agents of both protocols; that of the editor's own keeps no session. */
const AGENTS = [
  ["of Pi", PI],
  ["of the protocol", acp()],
] as const;

const LONG = "chunks 100000 every 5";

/** An editor with a new session, and an agent behind. */
async function talk(args: readonly string[] = PI, options: HereOptions = {}, skills: object = {}) {
  const editor = await editorHere([...args], { agentLaunch: HERE, ...options }, skills);
  const made = await editor.make();
  const { sessionId }: { sessionId: string } = made;
  /** Has a turn. Returns its result. */
  const turn = async (text: string): Promise<Json> => (await editor.turn(sessionId, text)).result;
  return {
    ...{ editor, sessionId, made, turn },
    /** Has a turn. Returns what the agent has said in it. */
    async said(text: string) {
      editor.take(sessionId);
      expect((await turn(text)).stopReason).toBe("end_turn");
      return textOf(editor.take(sessionId));
    },
    /** Begins a turn that lasts. */
    async begin(text = LONG) {
      const asked = editor.begins(sessionId, text);
      await editor.heard("1 ");
      return asked;
    },
  };
}

/** The last state of each call, all of its updates put together. */
function callsIn(updates: readonly Update[]): Json[] {
  const calls = new Map<string, object>();
  for (const { sessionUpdate, _meta, ...rest } of updates)
    if (sessionUpdate.startsWith("tool_call")) calls.set(rest.toolCallId, { ...calls.get(rest.toolCallId), ...rest });
  return [...calls.values()];
}

const lastOf = (updates: readonly Update[], kind: string): Update | undefined =>
  updates.findLast(({ sessionUpdate }) => sessionUpdate === kind);

describe.each(AGENTS)("a turn with an agent %s", (whose, args) => {
  test("is cancelled, closed or left by its client, and what was seen of it is there", async () => {
    const { editor, sessionId, turn, begin } = await talk(args);
    const { place } = editor.server;
    // Also before the agent has heard of it.
    const early = editor.begins(sessionId, "never");
    editor.cancel(sessionId);
    expect(await editor.end(early)).toBe("cancelled");
    const cancelled = await begin();
    const { message } = await editor.failure("session/set_title", { sessionId, title: "x" });
    expect(message).toContain("Cancel its turn");
    editor.cancel(sessionId);
    expect(await editor.end(cancelled)).toBe("cancelled");
    expect((await turn("again")).stopReason).toBe("end_turn");
    const closed = await begin();
    await editor.result("session/close", { sessionId });
    expect(await editor.end(closed)).toBe("cancelled");
    await editor.load(sessionId);
    await begin();
    expect((await editor.server.finish()).status).toBe(0);
    const { updates } = await (await editorHere([], { place })).load(sessionId);
    const ends = updates.flatMap((update) => ours(update)?.stopReason ?? []);
    expect(ends.filter((end) => end === "aborted")).toHaveLength(3);
    expect(ends.at(-1)).toBe("aborted");
    expect(textOf(updates)).toContain("You said: again");
  });

  test("whose agent dies fails, leaves what was seen, and is followed by one of an agent that was started again", async () => {
    const { editor, sessionId, turn } = await talk(args);
    await turn("one");
    editor.take(sessionId);
    const sentence = await editor.failedTurn(sessionId, "chunks 5 die after 3");
    expect(sentence).toMatch(/^The agent was ended by SIGKILL.* The next prompt starts it again\.$/);
    expect(textOf(editor.take(sessionId))).toBe("0 1 2 ");
    expect(textOf((await editor.load(sessionId)).updates)).toMatch(
      /^You said: one0 1 2 The agent was ended by SIGKILL/,
    );
    expect((await turn("two")).stopReason).toBe("end_turn");
    expect(await editor.spoken(sessionId)).toBe("onechunks 5 die after 3two");
  });

  test("whose agent cannot be started, or says nothing, hangs nobody", SYSTEM, async () => {
    const place = temporaryPlace();
    const mute = whose === "of Pi" ? piLike("--mute") : ownAgent(place, "void line");
    for (const [agent, sentence] of [
      ["/no/such/agent", /could not be started \(ENOENT\)/],
      // On a slow machine, Pi is given up while it is asked for its state.
      [mute, /did not answer \w+ for 200 ms and was ended|within 200 ms/],
    ] as const) {
      const options = ["--agent", agent, ...args.slice(2), "--agent-timeout", "200"];
      // It lives long enough after it was given up for the report of the first reason.
      const { editor, sessionId, made } = await talk(options, { place, agentLaunch: whose === "of Pi" ? {} : HERE });
      expect(made.configOptions).toBeUndefined();
      expect(await editor.failedTurn(sessionId, "one")).toMatch(sentence);
      if (whose !== "of Pi") expect((await editor.result("session/list", {})).sessions).toEqual([]);
      await editor.server.finish();
    }
  });

  acrossTiers(test, [1000, 8000])("waits for a client that does not read (%i)", async (count) => {
    const { editor, sessionId, begin } = await talk(args);
    const asked = await begin(`chunks ${count}`);
    editor.server.stall();
    for (let turns = 0; turns < 100; turns++) await new Promise(setImmediate);
    editor.server.resume();
    await editor.reply(asked);
    expect(textOf(editor.take(sessionId))).toBe(Array.from({ length: count }, (_, i) => `${i} `).join(""));
  });
});

describe("a turn of Pi's", () => {
  test("is shown while it lasts: thoughts, text, calls with their results and changes; and ends with its usage", async () => {
    const { editor, sessionId, turn } = await talk();
    expect(await turn("think tools 1 edit hello")).toEqual({
      stopReason: "end_turn",
      usage: { inputTokens: 30, outputTokens: 2, cachedReadTokens: 0, cachedWriteTokens: 0, totalTokens: 32 },
    });
    const live = editor.take(sessionId);
    const kinds = live.map(({ sessionUpdate }) => sessionUpdate);
    const call = "tool_call tool_call_update tool_call_update tool_call_update";
    expect(kinds.filter((kind) => !/^session_info|^usage|_commands_/.test(kind)).join(" ")).toBe(
      `${call} ${call} agent_thought_chunk agent_message_chunk agent_message_chunk`,
    );
    expect(textOf(live, "agent_thought_chunk")).toBe("Let me think.");
    expect(textOf(live)).toBe("You said: think tools 1 edit hello");
    expect(lastOf(live, "usage_update")).toBeDefined();
    const [edit, read] = callsIn(live);
    const path = `${editor.server.place.cwd}/a.txt`;
    const done = { kind: "edit", status: "completed", locations: [{ path }], rawOutput: { diff: "-old\n+new" } };
    expect(edit).toMatchObject(done);
    expect(edit.content[0]).toEqual({ type: "diff", path, oldText: "old", newText: "new" });
    expect(read).toMatchObject({ kind: "read", status: "completed", rawInput: { path: "file-1" } });
    // A later load shows the same, and each entry came once by its id.
    const ids = live.flatMap((update) => ours(update)?.entryId ?? []);
    const { updates } = await editor.load(sessionId);
    expect([ids, callsIn(live), textOf(live)]).toEqual([entryIdsOf(updates), callsIn(updates), textOf(updates)]);
    expect(textOf(updates, "user_message_chunk")).toBe("think tools 1 edit hello");
  });

  test("with pictures, links and files of the editor begins with a message of Pi's", async () => {
    const { editor, sessionId } = await talk();
    const image = { type: "image", data: "aGk=", mimeType: "image/png" };
    const prompt = [
      { type: "text", text: "see " },
      { type: "resource_link", name: "a b.txt", uri: "file:///home/a%20b.txt" },
      { type: "text", text: " and " },
      { type: "resource", resource: { uri: "file:///c.txt", text: "three" } },
      image,
    ];
    await editor.result("session/prompt", { sessionId, prompt });
    const { updates } = await editor.load(sessionId);
    const chunks = updates.filter(({ sessionUpdate }) => sessionUpdate === "user_message_chunk");
    const text = 'see /home/a b.txt and /c.txt\n\n<file path="/c.txt">\nthree\n</file>';
    expect(chunks.map(({ content }) => content)).toEqual([{ type: "text", text }, image]);
    const audio = [{ type: "audio", data: "", mimeType: "audio/wav" }];
    expect((await editor.failure("session/prompt", { sessionId, prompt: audio })).message).toContain("not audio");
    expect((await editor.failure("session/prompt", { sessionId, prompt: [] })).message).toContain("empty");
  });

  test("that fails in the model is an error, in its words; one that begins nothing ends", async () => {
    const { editor, sessionId, turn } = await talk();
    expect(await editor.failedTurn(sessionId, "fail")).toBe("The model failed: The model is tired.");
    expect(await turn("/greet")).toEqual({ stopReason: "end_turn" });
    expect((await turn("on")).stopReason).toBe("end_turn");
  });

  test("that the agent hangs in is cancelled all the same", async () => {
    const { editor, sessionId } = await talk([...PI, "--agent-timeout", "100"]);
    const hung = editor.begins(sessionId, "chunks 5 hang after 3");
    await editor.heard("2 ");
    editor.cancel(sessionId);
    expect(await editor.end(hung)).toBe("cancelled");
  });

  test("has a session whose neighbours have turns of their own, and that can be copied and then written to", async () => {
    const { editor, sessionId, turn, begin } = await talk();
    const other = await editor.make();
    const long = await begin();
    expect((await editor.turn(other.sessionId, "beside")).result.stopReason).toBe("end_turn");
    // A copy ends no turn.
    await editor.fork(sessionId);
    await editor.until((update) => update.sessionUpdate === "agent_message_chunk");
    editor.cancel(sessionId);
    expect(await editor.end(long)).toBe("cancelled");
    await editor.result("session/set_title", { sessionId, title: "Mine" });
    await turn("after the title");
    expect(textOf((await editor.load(sessionId)).updates)).toMatch(/after the title$/);
  });

  test("goes on where the client stands: after a branch, in a fork, and in a session that was resumed", async () => {
    const { editor, sessionId, turn } = await talk();
    await turn("one");
    const entryId = entryIdsOf(editor.take(sessionId)).at(-1) as string;
    await turn("two");
    await editor.branch(sessionId, entryId);
    await turn("three");
    const fork = await editor.fork(sessionId);
    await editor.turn(fork.sessionId, "four");
    expect(await editor.spoken(sessionId)).toBe("onethree");
    expect(await editor.spoken(fork.sessionId)).toBe("onethreefour");
    await editor.result("session/close", { sessionId });
    await editor.result("session/resume", { sessionId, cwd: editor.server.place.cwd, mcpServers: [] });
    editor.take(sessionId);
    await turn("five tools 1");
    expect(callsIn(editor.take(sessionId))).toHaveLength(1);
    expect(await editor.spoken(sessionId)).toBe("onethreefive tools 1");
  });
});

test("the models and thinking levels of Pi are options and modes, and it writes what is chosen", async () => {
  const { editor, sessionId, made, turn } = await talk();
  expect(made.modes).toBeUndefined();
  expect(made.configOptions).toMatchObject([{ id: "model", category: "model", currentValue: "example/scripted-1" }]);
  const models = made.configOptions[0].options.map(({ value }: Json) => value);
  expect(models).toEqual(["example/scripted-1", "example/scripted-2"]);
  const commands = await editor.until(({ sessionUpdate }) => sessionUpdate === "available_commands_update");
  expect(commands.availableCommands[0].name).toBe("greet");
  const set = (configId: string, value: string): Promise<Json> =>
    editor.request("session/set_config_option", { sessionId, configId, value });
  expect((await set("model", "example/scripted-2")).result.configOptions).toMatchObject([
    { id: "model", currentValue: "example/scripted-2" },
    { id: "thought_level", category: "thought_level", currentValue: "off" },
  ]);
  await set("thought_level", "high");
  expect(lastOf(editor.take(sessionId), "current_mode_update")).toMatchObject({ currentModeId: "high" });
  await editor.result("session/set_mode", { sessionId, modeId: "low" });
  expect(lastOf(editor.take(sessionId), "config_option_update")?.configOptions[1].currentValue).toBe("low");
  await turn("hello");
  expect((await editor.load(sessionId)).result.modes).toMatchObject({ currentModeId: "low" });
  for (const wrong of ["model none", "thought_level max", "speed x"]) {
    const [configId, value] = wrong.split(" ");
    expect((await set(configId, value)).error?.code, wrong).toBe(-32602);
  }
});

describe("what extensions of Pi ask", () => {
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
      expect(await editor.end(asked)).toBe("end_turn");
      expect(textOf(editor.take(sessionId))).toBe(said);
    }
    // A canceller needs no answer.
    const asked = editor.begins(sessionId, "ask");
    await editor.question();
    editor.cancel(sessionId);
    expect(await editor.end(asked)).toBe("cancelled");
  });

  test("for a text is a form, where the editor has these", async () => {
    const { editor, sessionId } = await talk(PI, {}, { elicitation: { form: {} } });
    const asked = editor.begins(sessionId, "write");
    editor.server.answer((await editor.question()).id, { action: "accept", content: { value: "Ada" } });
    await editor.reply(asked);
    expect(textOf(editor.take(sessionId))).toBe("You said: Ada write");
    expect(await (await talk()).said("write")).toMatch(/^Name\?.*this editor cannot.*You said: nothing write$/s);
  });

  test("without end is answered for the person, who sees some of it", SYSTEM, async () => {
    const place = temporaryPlace();
    const agent = ownAgent(
      place,
      `if (type === "extension_ui_response") { if (++globalThis.refused === 200) say({ type: "agent_settled" }); return; }
      const data = type === "get_available_models" ? { models: [] } : { commands: [] };
      say({ id, type: "response", command: type, success: true, data });
      if (type !== "prompt") return;
      globalThis.refused = 0;
      say({ type: "agent_start" });
      for (let i = 0; i < 500; i++)
        say({ type: "extension_ui_request", id: "q" + i, method: "confirm", title: "Really?", message: "x" });`,
    );
    const { editor, turn } = await talk(["--agent", agent], { place });
    expect((await turn("one")).stopReason).toBe("end_turn");
    await editor.server.finish();
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
  const { editor, sessionId, turn } = await talk(["--agent", agent], { place });
  expect(await turn("hello")).toEqual({ stopReason: "max_tokens" });
  expect(textOf(editor.take(sessionId))).toBe("Old.");
  // A command of an extension begins no turn, and it does not say so.
  expect((await turn("nothing")).stopReason).toBe("end_turn");
});

test("a session in a container cannot be prompted in; the refusal says how it can", async () => {
  const { id, editor } = await editorWith({ store: "v2", args: PI });
  await editor.load(id);
  expect(await editor.failedTurn(id, "two")).toContain("pi-session-server rollback <session>");
});

acrossTiers(test, ["jsonl", "v2"])("a turn recorded in %s is shown live, and again by a load", async (store) => {
  const { editor, sessionId, made } = await talk([...acp("--commands"), "--store", store]);
  const { agentCapabilities } = editor.agent;
  expect(agentCapabilities).toMatchObject({ loadSession: true, promptCapabilities: { image: true } });
  // Clients find the agent's own extensions here.
  expect(Object.keys(agentCapabilities._meta)).toEqual(["pid", "pi-session-server"]);
  expect([made.modes.currentModeId, ours(made).fidelity]).toEqual(["ask", "native"]);
  await editor.until(({ sessionUpdate }) => sessionUpdate === "available_commands_update");
  const asked = editor.begins(sessionId, "ask think tools 1");
  const question = await editor.question();
  expect(question.params.sessionId).toBe(sessionId);
  editor.choose(question, "yes");
  expect(await editor.end(asked)).toBe("end_turn");
  const live = editor.take(sessionId);
  const { updates } = await editor.load(sessionId);
  expect(textOf(updates, "user_message_chunk")).toBe("ask think tools 1");
  const [now, before] = [updates, live].map((of) => ({
    texts: ["agent_message_chunk", "agent_thought_chunk"].map((kind) => textOf(of, kind)),
    calls: new Set(of.flatMap(({ toolCallId }) => toolCallId ?? [])),
    entries: entryIdsOf(of),
  }));
  expect(now).toEqual(before);
  await editor.result("session/set_mode", { sessionId, modeId: "code" });
  expect(editor.take(sessionId).at(-1)).toMatchObject({ currentModeId: "code" });
  const { sessions } = await editor.result("session/list", { cwd: editor.server.place.cwd });
  expect(sessions.map((session: Json) => session.sessionId)).toEqual([sessionId]);
});

test("a turn has the prompt, thoughts, answers, calls with their results, permissions and plans as entries", async () => {
  const { editor, sessionId } = await talk(acp());
  const text = { type: "text", text: "ask think tools 1" };
  const prompt = [text, { type: "resource_link", name: "a", uri: "file:///a" }];
  const asked = editor.ask("session/prompt", { sessionId, prompt });
  editor.choose(await editor.question(), "yes");
  expect(await editor.end(asked)).toBe("end_turn");
  const { entries } = await editor.result("_pi-session-server/entries", { sessionId });
  const kinds = entries.map(({ message, customType }: Json) => message?.role ?? customType).join(" ");
  expect(kinds).toBe("acp user assistant acp_permission toolResult assistant acp_updates");
  const [, said, call, , result, answer] = entries.map(({ message }: Json) => message);
  expect(said.content).toEqual([text, { type: "text", text: " [a](file:///a)", acp: prompt[1] }]);
  expect(call).toMatchObject({ stopReason: "toolUse", provider: "scripted" });
  const shown = { title: "Read file-1", name: "read", kind: "read" };
  expect(call.content).toEqual([
    { type: "thinking", thinking: "Let me think." },
    { type: "text", text: "Reading 1. " },
    { type: "toolCall", id: result.toolCallId, name: "read", arguments: { path: "file-1" }, acp: shown },
  ]);
  expect(result).toMatchObject({ toolName: "read", isError: false, content: [{ type: "text", text: "file 1" }] });
  const content = [{ type: "text", text: "You said: ask think tools 1" }];
  expect(answer).toMatchObject({ content, stopReason: "stop", usage: { input: 10, output: 2 } });
});

test("an agent that can only make sessions gets the conversation in words, once, and the client hears of it", async () => {
  const { editor: first, sessionId, said, turn } = await talk(acp());
  const { place } = first.server;
  await turn("one");
  const entryId = entryIdsOf(first.take(sessionId)).at(-1) as string;
  await turn("two");
  expect(await said("recall")).toBe("one | two | recall");
  const fork = await first.fork(sessionId);
  expect(ours(fork).fidelity).toBe("seeded");
  for (const isFirst of [true, false]) {
    await first.turn(fork.sessionId, "recall");
    const words = isFirst ? /^This conversation.*User: one.*User: two.*recall$/s : /^This conversation.* \| recall$/s;
    expect(textOf(first.take(fork.sessionId))).toMatch(words);
  }
  await first.branch(sessionId, entryId);
  expect(ours(await turn("recall")).fidelity).toBe("seeded");
  expect(textOf(first.take(sessionId))).toMatch(/User: one(?!.*two)/s);
  // One that has died, too.
  await turn("chunks 9 die after 3");
  expect(await said("recall")).toMatch(/User: one.*recall$/s);
  await first.server.finish();
  const next = await editorHere(acp(), { place, agentLaunch: HERE });
  const { updates, result } = await next.load(sessionId);
  expect(textOf(updates, "user_message_chunk")).toBe("onerecallchunks 9 die after 3recall");
  expect(ours(result).fidelity).toBe("seeded");
  await next.turn(sessionId, "recall");
  expect(textOf(next.take(sessionId))).toMatch(/User: one.*recall$/s);
  // The words are the agent's alone.
  expect(await next.spoken(sessionId)).toBe("onerecallchunks 9 die after 3recallrecall");
});

test.each(["--loads", "--resumes"])("an agent that can do it itself goes on with its own session: %s", async (can) => {
  const place = temporaryPlace();
  const args = acp(can, "--forks", "--keep", join(place.home, "kept.json"));
  const { editor: first, sessionId, said, turn } = await talk(args, { place });
  await turn("one");
  const fork = await first.fork(sessionId);
  expect(ours(fork).fidelity).toBe("native");
  await first.turn(fork.sessionId, "recall");
  expect(textOf(first.take(fork.sessionId))).toBe("one | recall");
  await turn("die after 1 chunks 2");
  expect(await said("recall")).toMatch(/^one \| die after 1 chunks 2 \| recall$/);
  await first.server.finish();
  const next = await editorHere(args, { place, agentLaunch: HERE });
  const { updates, result } = await next.load(sessionId);
  expect(ours(result).fidelity).toBe("native");
  // The past is ours, sent once.
  expect(textOf(updates, "user_message_chunk")).toBe("onedie after 1 chunks 2recall");
  await next.turn(sessionId, "recall");
  expect(textOf(next.take(sessionId))).toMatch(/^one \| .*recall \| recall$/);
});

test("after SIGKILL of the server the prompt is there, and what was finished", SYSTEM, async () => {
  const place = temporaryPlace();
  const server = spawnServer(["--dialect", "acp", ...acp()], "lines", place);
  const editor = await new Editor(server).begin();
  const { sessionId } = await editor.make();
  await editor.turn(sessionId, "one");
  editor.begins(sessionId, `tools 1 ${LONG}`);
  await editor.heard("1 ");
  server.process.kill("SIGKILL");
  await server.exit;
  const { updates } = await (await editorHere([], { place })).load(sessionId);
  expect(textOf(updates, "user_message_chunk")).toBe(`onetools 1 ${LONG}`);
  expect(textOf(updates)).toBe("You said: oneReading 1. ");
  expect(updates.findLast(({ toolCallId }) => toolCallId)).toMatchObject({ status: "completed" });
});
