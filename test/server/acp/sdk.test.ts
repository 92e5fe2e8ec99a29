/**
 * The client of the protocol's own package drives the built program. It checks every message that it is sent, too.
 *
 * @module-tag system
 */

import { Readable, Writable } from "node:stream";
import * as stable from "@agentclientprotocol/sdk";
import * as unstable from "@agentclientprotocol/sdk/unstable";
import { expect, test } from "vitest";
import { assistant, toolCall, toolResult, user } from "../../support/drafts.ts";
import { type Json, type Place, serveHere, spawnServer, temporaryPlace } from "../../support/server.ts";

/** A server at whose output the package's client reads itself, with a session of a conversation. */
async function begun(): Promise<{ place: Place; id: string; output: WritableStream; input: ReadableStream }> {
  const place = temporaryPlace();
  const maker = serveHere([], { place });
  await maker.result("append", {
    entries: [user("Name a colour."), toolCall("1"), toolResult("1", "blue"), assistant("Blue.")],
  });
  const { sessionId: id } = await maker.result("get_state");
  await maker.finish();
  const server = spawnServer(["--dialect", "acp"], "lines", place);
  server.output.removeAllListeners("data");
  const input = Readable.toWeb(server.output) as unknown as ReadableStream;
  return { place, id, output: Writable.toWeb(server.input), input };
}

const { PROTOCOL_VERSION: protocolVersion } = stable;
const BEGIN = { protocolVersion, clientCapabilities: {}, clientInfo: { name: "sdk", version: "1" } };

test("the stable client", async () => {
  const { place, id, output, input } = await begun();
  const kinds: string[] = [];
  const { session } = stable.methods.agent;
  const app = stable
    .client({ name: "test" })
    .onNotification("session/update", ({ params }) => void kinds.push(params.update.sessionUpdate));
  await app.connectWith(stable.ndJsonStream(output, input), async (agent) => {
    const { agentCapabilities }: Json = await agent.request("initialize", BEGIN);
    expect(agentCapabilities?.loadSession).toBe(true);
    const made = await agent.request(session.new, { cwd: place.cwd, mcpServers: [] });
    const { sessions } = await agent.request(session.list, { cwd: place.cwd });
    expect(sessions.map(({ sessionId }) => sessionId)).toEqual([id]);
    await agent.request(session.load, { sessionId: id, cwd: place.cwd, mcpServers: [] });
    const shown = "user_message_chunk tool_call tool_call_update agent_message_chunk";
    expect(kinds.filter((kind) => !/_info_|^usage/.test(kind)).join(" ")).toBe(shown);
    const prompt = [{ type: "text" as const, text: "Another." }];
    await expect(agent.request(session.prompt, { sessionId: made.sessionId, prompt })).rejects.toThrow(/runs no model/);
    await agent.notify(session.cancel, { sessionId: id });
    await agent.request(session.close, { sessionId: id });
    await agent.request(session.resume, { sessionId: id, cwd: place.cwd });
    for (let times = 0; times < 2; times++) await agent.request(session.delete, { sessionId: id });
    expect((await agent.request(session.list, {})).sessions).toEqual([]);
    const loading = agent.request(session.load, { sessionId: id, cwd: place.cwd, mcpServers: [] });
    await expect(loading).rejects.toMatchObject({ code: -32002 });
  });
});

test("the client of what is not stable yet", async () => {
  const { place, id, output, input } = await begun();
  const updates: Json[] = [];
  const { session } = unstable.methods.agent;
  const app = unstable
    .client({ name: "test" })
    .onNotification("session/update", ({ params }) => void updates.push(params));
  await app.connectWith(unstable.ndJsonStream(output, input), async (agent) => {
    const { agentCapabilities }: Json = await agent.request("initialize", BEGIN);
    const offered = { fork: {}, archive: {}, status: {}, title: {} };
    expect(agentCapabilities?.sessionCapabilities).toMatchObject(offered);
    expect(await agent.request(session.status, { sessionId: id })).toMatchObject({ status: "saved" });
    const named = await agent.request(session.setTitle, { sessionId: id, title: "Colours" });
    expect(named).toMatchObject({ title: "Colours" });
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
