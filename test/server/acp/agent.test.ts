/** An agent behind the conversation with an editor that fails, or whose client leaves, as its contract has it. */

import { expect, test, vi } from "vitest";
import type { AgentBehind, AgentSession, Telling } from "../../../src/server/acp/agent.ts";
import { editorHere } from "../../support/acp.ts";
import type { Json } from "../../support/server.ts";

/** An agent that fails, waits for its end, or asks, as its prompt says. */
class Echo implements AgentBehind {
  readonly promptCapabilities = { image: true, audio: false, embeddedContext: false };
  readonly done: Json[] = [];
  private readonly ends = new Map<string, (reply: Json) => void>();

  async settings(): Promise<Json> {
    return {};
  }

  async prompt({ sessionId }: AgentSession, [{ text }]: readonly Json[], telling: Telling): Promise<Json> {
    if (text === "fail") throw new Error("internal to the agent");
    if (text === "wait") return new Promise((resolve) => this.ends.set(sessionId, resolve));
    const toolCall = { toolCallId: "1", title: "think" };
    return telling.ask("session/request_permission", { toolCall, options: [] });
  }

  cancel(sessionId: string): void {
    this.ends.get(sessionId)?.({ stopReason: "cancelled" });
  }

  async setMode(_: AgentSession, modeId: string): Promise<Json> {
    this.done.push(modeId);
    return {};
  }

  async setConfigOption(_: AgentSession, configId: string, value: unknown): Promise<Json> {
    this.done.push(`${configId} ${value}`);
    return { configOptions: [] };
  }

  async close(sessionId: string): Promise<void> {
    this.cancel(sessionId);
  }
}

test("a fault of the agent is told as ours is, a refusal of the client as it was, and settings go to the agent", async () => {
  const agent = new Echo();
  const editor = await editorHere([], { agent });
  const { sessionId } = await editor.make();
  vi.spyOn(process.stderr, "write").mockReturnValue(true);
  const { error } = await editor.turn(sessionId, "fail");
  expect(error).toMatchObject({ code: -32603, message: expect.not.stringContaining("internal to the agent") });
  const refused = editor.begins(sessionId, "ask");
  const { id } = await editor.question();
  editor.server.send({ jsonrpc: "2.0", id, error: { code: -32000, message: "Not now." } });
  expect((await editor.reply(refused)).error.message).toBe("Not now.");
  await editor.result("session/set_mode", { sessionId, modeId: "ask" });
  await editor.result("session/set_config_option", { sessionId, configId: "model", value: "x" });
  expect(agent.done).toEqual(["ask", "model x"]);
});

test("a client that goes leaves no turn behind, whether it has begun or not; others are answered meanwhile", async () => {
  const editor = await editorHere([], { agent: new Echo() });
  const [one, two] = [await editor.make(), await editor.make()];
  editor.begins(one.sessionId, "ask");
  await editor.question();
  expect((await editor.result("session/status", { sessionId: one.sessionId })).status).toBe("open");
  editor.begins(two.sessionId, "wait");
  const { messages, status } = await editor.server.finish();
  expect(status).toBe(0);
  // Whether the last one had begun, nobody knows.
  const ends = messages.map(({ result, error }) => error?.code ?? result.stopReason);
  expect(ends).toEqual([-32800, expect.toBeOneOf([-32800, "cancelled"])]);
});
