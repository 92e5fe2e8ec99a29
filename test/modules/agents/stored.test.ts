/** What an agent of the protocol says in a turn: a load shows the same as the turn did, and the session has it whole. */

import { describe, expect, test } from "vitest";
import { editorHere, ours, textOf, type Update } from "../../support/acp.ts";
import { ownAcpAgent } from "../../support/agents.ts";
import { HERE } from "../../support/agents-here.ts";
import { type Json, serveHere, temporaryPlace } from "../../support/server.ts";

/** A step of the agent: an update, a question to the person, or the reply to the prompt. */
type Step = Json;

const said = (text: string, more: object = {}): Step => ({
  ...{ sessionUpdate: "agent_message_chunk", content: { type: "text", text } },
  ...more,
});
const shows = (content: object): Step => ({ sessionUpdate: "agent_message_chunk", content });
const thinks = (content: object): Step => ({ sessionUpdate: "agent_thought_chunk", content });
const calls = (toolCallId: string, more: object = {}): Step => ({
  ...{ sessionUpdate: "tool_call", toolCallId, title: `Call ${toolCallId}` },
  ...more,
});
const updates = (toolCallId: string, more: object): Step => ({
  ...{ sessionUpdate: "tool_call_update", toolCallId },
  ...more,
});
const done = (toolCallId: string): Step => {
  const content = { type: "text", text: `res ${toolCallId}` };
  return updates(toolCallId, { status: "completed", content: [{ type: "content", content }] });
};
const plan = (content: string): Step => ({
  sessionUpdate: "plan",
  entries: [{ content, priority: "low", status: "pending" }],
});
const usage = (used: number): Step => ({ sessionUpdate: "usage_update", used, size: 200_000 });
const ask = (toolCallId: string): Step => ({ ask: { toolCallId } });
const reply = (stopReason: string, more: object = {}): Step => ({ reply: { stopReason, ...more } });

const image = (data: string): object => ({ type: "image", data, mimeType: "image/png" });
const link = { type: "resource_link", name: "a b.py", uri: "file:///work/a%20b.py", size: 7 };
const sound = { type: "audio", data: "QUJD", mimeType: "audio/wav" };
const text = { type: "resource", resource: { uri: "file:///c.txt", text: "words" } };
const blob = { type: "resource", resource: { uri: "file:///d", blob: "QUJD", mimeType: "application/x" } };

/** An editor with a session, and an agent that takes the steps in the first block of a prompt. */
async function behind() {
  const place = temporaryPlace();
  const agent = ownAcpAgent(
    place,
    `if (id === "own") return answered();
      if (method !== "session/prompt") return id !== undefined && say({ id, result: {} });
      for (const step of JSON.parse(params.prompt[0].text)) {
        if (step.reply) say({ id, result: step.reply });
        else if (!step.ask) tell(sessionId, step);
        else {
          const heard = new Promise((resolve) => { globalThis.answered = resolve; });
          say({ id: "own", method: "session/request_permission", params: { sessionId, toolCall: step.ask, options: [] } });
          await heard;
        }
      }`,
  );
  const editor = await editorHere(["--agent", agent, "--agent-protocol", "acp"], { place, agentLaunch: HERE });
  const { sessionId }: { sessionId: string } = await editor.make();
  const begins = (steps: readonly Step[], ...more: object[]): number =>
    editor.ask("session/prompt", { sessionId, prompt: [{ type: "text", text: JSON.stringify(steps) }, ...more] });
  return {
    ...{ editor, sessionId, place, begins },
    /** Has a turn. Returns the updates, also those after the reply. */
    async turn(steps: readonly Step[], ...more: object[]) {
      const asked = begins(steps, ...more);
      for (const _ of steps.filter((step) => step.ask))
        editor.server.answer((await editor.question()).id, { outcome: { outcome: "cancelled" } });
      expect((await editor.reply(asked)).error).toBeUndefined();
      // The agent's messages come in order, so that those after its reply are here, too.
      await editor.result("session/set_mode", { sessionId, modeId: "x" });
      return editor.take(sessionId);
    },
    async load() {
      return (await editor.load(sessionId)).updates;
    },
    async entries(): Promise<Json[]> {
      return (await editor.result("_pi-session-server/entries", { sessionId })).entries;
    },
  };
}

/** What a person sees in the end: texts, other content, calls with all that is known of them, the last plan and usage. */
function seen(updates: readonly Update[]): Json[] {
  const items: Json[] = [];
  const last = new Map<string, Json>();
  for (const { sessionUpdate, _meta, messageId, ...rest } of updates) {
    const before = items.at(-1);
    const { "pi-session-server": _, ...theirs } = _meta ?? {};
    if (/_chunk$/.test(sessionUpdate)) {
      const { content } = rest;
      if (content.type === "text" && before?.sessionUpdate === sessionUpdate && before?.content.type === "text")
        before.content.text += content.text;
      else items.push({ sessionUpdate, content: { ...content } });
    } else if (sessionUpdate.startsWith("tool_call")) {
      const known = items.find(({ toolCallId }) => toolCallId === rest.toolCallId);
      const call = { ...rest, ...(_meta && Object.keys(theirs).length > 0 ? { _meta: theirs } : {}) };
      if (known) Object.assign(known, call);
      else items.push(call);
    } else if (sessionUpdate === "plan" || sessionUpdate === "usage_update") last.set(sessionUpdate, rest);
  }
  return [...items, ...last.entries()];
}

const isAgents = ({ sessionUpdate }: Json): boolean => sessionUpdate !== "user_message_chunk";
const running = { status: "in_progress" };
const diff = { type: "diff", path: "/w/f.py", oldText: "a", newText: "b" };

describe("a load shows the same as the turn did", () => {
  test.each<[string, Step[]]>([
    [
      "pictures, links and sounds in an answer and in thoughts",
      [
        ...[said("first "), shows(image("QUFB")), said("second "), shows(image("QkJC")), shows(link), said("third")],
        ...[shows(sound), shows(blob), shows(text), thinks(link), thinks({ type: "text", text: "hm" })],
      ],
    ],
    ["calls at the same time", [calls("p1"), updates("p1", running), calls("p2"), done("p1"), done("p2")]],
    [
      "calls at the same time, with words between them, of which the last one ends first",
      [
        ...[
          said("a"),
          calls("p1", running),
          said("b"),
          calls("p2", running),
          said("c"),
          thinks({ type: "text", text: "d" }),
        ],
        ...[done("p2"), said("e"), calls("p3"), done("p3"), said("f"), done("p1"), said("g"), calls("p4"), done("p4")],
      ],
    ],
    ["words after a permission", [said("a"), calls("p1"), ask("p1"), said("b"), done("p1"), said("c")]],
    [
      "calls as the agent gave them",
      [
        calls("p1", {
          title: "Edit the config",
          kind: "edit",
          locations: [{ path: "/w/f.py", line: 3 }],
          content: [diff],
        }),
        updates("p1", { status: "completed", rawOutput: { ok: true }, _meta: { own: 1 } }),
        calls("p2", { title: "A", rawInput: "words", content: [{ type: "content", content: link }] }),
        updates("p2", { title: "B", status: "failed" }),
        calls("p3", { name: "TodoWrite", rawInput: { todos: [{ content: "x" }] }, kind: "think", _meta: { own: 2 } }),
        done("p3"),
      ],
    ],
    ["more about a call that has ended", [calls("p1"), done("p1"), said("a"), updates("p1", { title: "After" })]],
    ["plans and usage", [plan("LP"), usage(1234), said("a"), plan("next")]],
    [
      "all that comes after the reply",
      [
        calls("p1"),
        done("p1"),
        reply("end_turn"),
        plan("late"),
        usage(777),
        updates("p1", { title: "Late" }),
        said("late"),
      ],
    ],
    [
      "a character in two chunks",
      [said("x\ud83d"), said("\ude00y"), thinks({ type: "text", text: "\ud83d" }), said("z")],
    ],
  ])("%s", async (_, steps) => {
    const { turn, load } = await behind();
    const all = steps.some((step) => step.reply) ? steps : [...steps, reply("end_turn")];
    const live = seen(await turn(all));
    expect(live.filter(({ status }) => status === "failed").map(({ title }) => title ?? "")).toEqual(
      steps.some(({ status }) => status === "failed") ? ["B"] : [],
    );
    expect(JSON.stringify(live)).not.toContain(steps[0].content?.text === "x\ud83d" ? "x\ufffd" : "no_result");
    expect(seen(await load()).filter(isAgents)).toEqual(live);
    // Nothing of it is told again.
    expect(seen((await turn([said("bye"), reply("end_turn")])).filter(isAgents))).toEqual([
      { sessionUpdate: "agent_message_chunk", content: { type: "text", text: "bye" } },
    ]);
  });

  test("the parts of a prompt, and the title of a session without a name", async () => {
    const { editor, turn, load, sessionId } = await behind();
    const parts = [link, text, image("QUFB"), sound, blob];
    await turn([reply("end_turn")], ...parts);
    const updates = await load();
    const prompt = updates.filter(({ sessionUpdate }) => sessionUpdate === "user_message_chunk");
    expect(prompt.map(({ content }) => content).slice(1)).toEqual(parts);
    const [{ title }] = (await editor.result("session/list", {})).sessions;
    expect(title).toContain('"}}] [a b.py](file:///work/a%20b.py) file:///c.txt: words');
    expect(updates.filter((update) => ours(update)?.leafId).map((update) => update.title)).toEqual([title]);
    await editor.result("session/set_title", { sessionId, title: "Named" });
    expect((await load()).findLast((update) => update.title)?.title).toBe("Named");
  });

  test("a turn that is still running", async () => {
    const { editor, begins, load, sessionId } = await behind();
    const steps = [
      said("one "),
      calls("p1"),
      done("p1"),
      said("two "),
      ask("p1"),
      calls("p2", running),
      said("three "),
      calls("p3"),
    ];
    const asked = begins([...steps, done("p3"), plan("LP"), ask("p2"), said("four "), done("p2"), reply("end_turn")]);
    for (const words of ["one two ", "one two three "]) {
      const { id } = await editor.question();
      const loaded = await load();
      expect(textOf(loaded)).toBe(words);
      editor.take(sessionId);
      editor.updates.push(...loaded.map((update) => ({ sessionId, update })));
      editor.server.answer(id, { outcome: { outcome: "cancelled" } });
    }
    await editor.reply(asked);
    const live = seen(editor.take(sessionId));
    expect(live.filter(({ toolCallId }) => toolCallId).map(({ status }) => status)).toEqual(Array(3).fill("completed"));
    expect(seen(await load())).toEqual(live);
  });
});

describe("the session has of a turn", () => {
  test("each call with its result, for every reader", async () => {
    const { editor, turn, place } = await behind();
    const steps = [calls("p1", running), said("b"), calls("p2", running), done("p2"), said("c"), done("p1"), said("d")];
    await turn([...steps, reply("end_turn")]);
    const { sessionPath } = ours((await editor.result("session/list", {})).sessions[0]);
    await editor.server.finish();
    const server = serveHere(["--session", sessionPath], { place });
    const { messages } = await server.result("get_context", { strict: true });
    const ids = messages.flatMap(({ role, toolCallId, content }: Json) =>
      role === "toolResult"
        ? [`= ${toolCallId}`]
        : content.flatMap(({ type, id }: Json) => (type === "toolCall" ? [id] : [])),
    );
    expect(ids).toEqual(["p1", "= p1", "p2", "= p2"]);
  });

  test("two messages as two", async () => {
    const { turn, entries } = await behind();
    const [m1, m2] = ["m1", "m2"].map((messageId) => ({ messageId }));
    await turn([said("First ", m1), said("one.", m1), said("Second.", m2), reply("end_turn")]);
    const answers = (await entries()).flatMap(({ message }) =>
      message?.role === "assistant" ? [message.content] : [],
    );
    expect(answers).toEqual(["First one.", "Second."].map((words) => [{ type: "text", text: words }]));
  });

  test("permissions after what came before them, also those that the editor could not ask for", async () => {
    const { editor, begins, entries } = await behind();
    const asked = begins([said("May I?"), calls("p1"), ask("p1"), ask("p1"), done("p1"), reply("end_turn")]);
    editor.server.answer((await editor.question()).id, { outcome: { outcome: "cancelled" } });
    const error = { code: -32603, message: "no window" };
    editor.server.send({ jsonrpc: "2.0", id: (await editor.question()).id, error });
    await editor.reply(asked);
    const stored = await entries();
    const kinds = stored.map(({ message, customType }) => message?.role ?? customType);
    expect(kinds).toEqual(["acp", "user", "assistant", "acp_permission", "acp_permission", "toolResult"]);
    const answers = stored.filter(({ customType }) => customType === "acp_permission").map(({ data }) => data);
    expect(answers[0].result).toEqual({ outcome: { outcome: "cancelled" } });
    expect(answers[1]).toMatchObject({ error, request: { toolCall: { toolCallId: "p1" } } });
  });

  test("its end, as the agent named it", async () => {
    const { turn, entries } = await behind();
    const counts = { inputTokens: 3, outputTokens: 2, totalTokens: 9, thoughtTokens: 4 };
    await turn([said("a"), reply("max_turn_requests", { usage: counts })]);
    await turn([reply("refusal")]);
    await turn([said("b"), reply("end_turn")]);
    const answers = (await entries()).flatMap(({ message }) => (message?.role === "assistant" ? [message] : []));
    expect(answers.map(({ stopReason, acp }) => [stopReason, acp])).toEqual([
      ["stop", { stopReason: "max_turn_requests" }],
      ["stop", { stopReason: "refusal" }],
      ["stop", undefined],
    ]);
    expect(answers[0].usage).toMatchObject({ totalTokens: 9, thoughtTokens: 4 });
  });
});
