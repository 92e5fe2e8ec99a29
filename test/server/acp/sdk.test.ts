/**
 * The client of the protocol's own package drives the built program. It checks every message that it is sent, too.
 *
 * @module-tag system
 *
 * @module-tag system
 */

import { Readable, Writable } from "node:stream";
import * as stable from "@agentclientprotocol/sdk";
import * as unstable from "@agentclientprotocol/sdk/unstable";
import { expect, test } from "vitest";
import { assistant, toolCall, toolResult, user } from "../../support/drafts.ts";
import { type Json, type Place, serveHere, spawnServer, temporaryPlace } from "../../support/server.ts";

const TALK = [user("Name a colour."), toolCall("1"), toolResult("1", "blue"), assistant("Blue.")];

async function madeIn(place: Place): Promise<string> {
  const server = serveHere([], { place });
  await server.result("append", { entries: TALK });
  const { sessionId } = await server.result("get_state");
  await server.finish();
  return sessionId;
}

/** The streams of a server that the package's client reads itself. */
function streamsOf(place: Place): { output: WritableStream<Uint8Array>; input: ReadableStream<Uint8Array> } {
  const server = spawnServer(["--dialect", "acp"], "lines", place);
  server.output.removeAllListeners("data");
  const input = Readable.toWeb(server.output) as unknown as ReadableStream<Uint8Array>;
  return { output: Writable.toWeb(server.input), input };
}

const BEGIN = {
  protocolVersion: stable.PROTOCOL_VERSION,
  clientCapabilities: {},
  clientInfo: { name: "sdk", version: "1" },
};

test("the stable client", async () => {
  const place = temporaryPlace();
  const id = await madeIn(place);
  const { output, input } = streamsOf(place);
  const updates: Json[] = [];
  const { session } = stable.methods.agent;
  const app = stable
    .client({ name: "test" })
    .onNotification("session/update", ({ params }) => void updates.push(params));
  await app.connectWith(stable.ndJsonStream(output, input), async (agent) => {
    const begun: Json = await agent.request("initialize", BEGIN);
    expect(begun.agentCapabilities?.loadSession).toBe(true);
    const made = await agent.request(session.new, { cwd: place.cwd, mcpServers: [] });
    const { sessions } = await agent.request(session.list, { cwd: place.cwd });
    expect(sessions.map(({ sessionId }) => sessionId)).toEqual([id]);
    await agent.request(session.load, { sessionId: id, cwd: place.cwd, mcpServers: [] });
    const kinds = updates.map(({ update }) => update.sessionUpdate);
    expect(kinds.filter((kind) => !/_info_/.test(kind))).toEqual([
      "user_message_chunk",
      "tool_call",
      "tool_call_update",
      "agent_message_chunk",
      ...kinds.filter((kind) => kind === "usage_update"),
    ]);
    const prompt = [{ type: "text" as const, text: "Another." }];
    await expect(agent.request(session.prompt, { sessionId: made.sessionId, prompt })).rejects.toThrow(/runs no model/);
    await agent.notify(session.cancel, { sessionId: id });
    await agent.request(session.close, { sessionId: id });
    await agent.request(session.resume, { sessionId: id, cwd: place.cwd });
    await agent.request(session.delete, { sessionId: id });
    await agent.request(session.delete, { sessionId: id });
    expect((await agent.request(session.list, {})).sessions).toEqual([]);
    await expect(agent.request(session.load, { sessionId: id, cwd: place.cwd, mcpServers: [] })).rejects.toMatchObject({
      code: -32002,
    });
  });
});

test("the client of what is not stable yet", async () => {
  const place = temporaryPlace();
  const id = await madeIn(place);
  const { output, input } = streamsOf(place);
  const updates: Json[] = [];
  const { session } = unstable.methods.agent;
  const app = unstable
    .client({ name: "test" })
    .onNotification("session/update", ({ params }) => void updates.push(params));
  await app.connectWith(unstable.ndJsonStream(output, input), async (agent) => {
    const begun: Json = await agent.request("initialize", BEGIN);
    expect(begun.agentCapabilities?.sessionCapabilities).toMatchObject({
      fork: {},
      archive: {},
      status: {},
      title: {},
    });
    expect(await agent.request(session.status, { sessionId: id })).toMatchObject({ status: "saved" });
    expect(await agent.request(session.setTitle, { sessionId: id, title: "Colours" })).toMatchObject({
      title: "Colours",
    });
    const forked = await agent.request(session.fork, { sessionId: id, cwd: place.cwd });
    await agent.request(session.load, { sessionId: forked.sessionId, cwd: place.cwd, mcpServers: [] });
    expect(updates.filter(({ update }) => update.messageId !== undefined)).toHaveLength(2);
    await agent.request(session.archive, { sessionId: id });
    const { sessions } = await agent.request(session.list, { archived: "only" });
    expect(sessions).toMatchObject([{ sessionId: id, title: "Colours", archived: true }]);
    await agent.request(session.unarchive, { sessionId: id });
    expect((await agent.request(session.list, {})).sessions).toHaveLength(2);
  });
});
