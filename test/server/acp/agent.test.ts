/** An agent behind the conversation with an editor, as its contract has it. */

import { expect, test, vi } from "vitest";
import type { AgentBehind, AgentSession, Telling } from "../../../src/server/acp/agent.ts";
import { editorHere } from "../../support/acp.ts";
import type { Json } from "../../support/server.ts";

/** An agent that asks, tells what it was answered, and waits for its end if it is told to. */
class Echo implements AgentBehind {
  readonly promptCapabilities = { image: true, audio: false, embeddedContext: false };
  readonly done: Json[] = [];
  /** Resolves when a turn has begun that waits. */
  readonly begun: Promise<void>;
  private begin: () => void = () => {};
  private readonly ends = new Map<string, (reply: Json) => void>();

  constructor() {
    this.begun = new Promise((resolve) => {
      this.begin = resolve;
    });
  }

  async settings(): Promise<Json> {
    return { modes: { currentModeId: "ask", availableModes: [{ id: "ask", name: "Ask" }] } };
  }

  async prompt({ sessionId }: AgentSession, prompt: readonly Json[], telling: Telling): Promise<Json> {
    const { text } = prompt[0];
    if (text === "wait") {
      this.begin();
      return new Promise((resolve) => this.ends.set(sessionId, resolve));
    }
    if (text === "fail") throw new Error("internal to the agent");
    const toolCall = { toolCallId: "1", title: "think" };
    const options = [{ optionId: "yes", name: "Yes", kind: "allow_once" }];
    const { outcome } = (await telling.ask("session/request_permission", { toolCall, options })) as Json;
    const content = { type: "text", text: `${text}: ${outcome.optionId}` };
    await telling.update({ sessionUpdate: "agent_message_chunk", content });
    return { stopReason: "end_turn" };
  }

  cancel(sessionId: string): void {
    this.ends.get(sessionId)?.({ stopReason: "cancelled" });
  }

  async setMode(_: AgentSession, modeId: string): Promise<Json> {
    this.done.push(modeId);
    return {};
  }

  async setConfigOption(_: AgentSession, configId: string, value: unknown): Promise<Json> {
    this.done.push([configId, value]);
    return { configOptions: [] };
  }

  async close(sessionId: string): Promise<void> {
    this.done.push("closed");
    this.cancel(sessionId);
  }
}

const say = (text: string): Json[] => [{ type: "text", text }];

test("a turn asks the client, tells it, and ends", async () => {
  const agent = new Echo();
  const editor = await editorHere([], { agent });
  expect(editor.agent.agentCapabilities.promptCapabilities.image).toBe(true);
  const { cwd } = editor.server.place;
  const { sessionId, modes } = await editor.result("session/new", { cwd, mcpServers: [] });
  expect(modes.currentModeId).toBe("ask");
  const turn = editor.ask("session/prompt", { sessionId, prompt: say("Hello") });
  const asked = await editor.next();
  expect(asked).toMatchObject({ method: "session/request_permission", params: { sessionId } });
  editor.server.send({ jsonrpc: "2.0", id: asked.id, result: { outcome: { outcome: "selected", optionId: "yes" } } });
  expect(await editor.until(({ content }) => content)).toMatchObject({ content: { text: "Hello: yes" } });
  expect(await editor.reply(turn)).toMatchObject({ result: { stopReason: "end_turn" } });
  await editor.result("session/set_mode", { sessionId, modeId: "ask" });
  await editor.result("session/set_config_option", { sessionId, configId: "model", value: "x" });
  expect(agent.done).toEqual(["ask", ["model", "x"]]);
});

test("a turn is cancelled, and there is one at a time; other requests are answered meanwhile", async () => {
  const agent = new Echo();
  const editor = await editorHere([], { agent });
  const { cwd } = editor.server.place;
  const { sessionId } = await editor.result("session/new", { cwd, mcpServers: [] });
  const turn = editor.ask("session/prompt", { sessionId, prompt: say("wait") });
  expect((await editor.failure("session/prompt", { sessionId, prompt: say("wait") })).code).toBe(-32600);
  expect((await editor.result("session/status", { sessionId })).status).toBe("open");
  editor.notify("session/cancel", { sessionId });
  expect(await editor.reply(turn)).toMatchObject({ result: { stopReason: "cancelled" } });
  vi.spyOn(process.stderr, "write").mockReturnValue(true);
  // A fault of the agent is told as ours is, without what is internal.
  const error = await editor.failure("session/prompt", { sessionId, prompt: say("fail") });
  expect(error).toMatchObject({ code: -32603, message: expect.not.stringContaining("internal to the agent") });
});

test("a client that refuses, closes or goes leaves no turn behind", async () => {
  const agent = new Echo();
  const editor = await editorHere([], { agent });
  const { cwd } = editor.server.place;
  const { sessionId } = await editor.result("session/new", { cwd, mcpServers: [] });
  const refused = editor.ask("session/prompt", { sessionId, prompt: say("Hello") });
  const asked = await editor.next();
  editor.server.send({ jsonrpc: "2.0", id: asked.id, error: { code: -32000, message: "Not now." } });
  expect((await editor.reply(refused)).error.message).toBe("Not now.");
  const closed = editor.ask("session/prompt", { sessionId, prompt: say("wait") });
  await agent.begun;
  await editor.result("session/close", { sessionId });
  expect(await editor.reply(closed)).toMatchObject({ result: { stopReason: "cancelled" } });
  const other = await editor.result("session/new", { cwd, mcpServers: [] });
  editor.ask("session/prompt", { sessionId: other.sessionId, prompt: say("Hello") });
  expect((await editor.next()).method).toBe("session/request_permission");
  // This one has not begun when the input ends.
  const late = await editor.result("session/new", { cwd, mcpServers: [] });
  editor.ask("session/prompt", { sessionId: late.sessionId, prompt: say("wait") });
  const { messages, status } = await editor.server.finish();
  expect(status).toBe(0);
  // Whether the last one had begun, nobody knows.
  const ends = messages.map(({ result, error }) => error?.code ?? result.stopReason);
  expect(ends).toEqual([-32800, expect.toBeOneOf([-32800, "cancelled"])]);
});
