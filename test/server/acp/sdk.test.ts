/**
 * The client of the protocol's own package drives the built program. It checks every message that it is sent, too.
 *
 * @module-tag system
 */

import { Readable, Writable } from "node:stream";
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

const { PROTOCOL_VERSION: protocolVersion } = unstable;
const BEGIN = { protocolVersion, clientCapabilities: {}, clientInfo: { name: "sdk", version: "1" } };

test("the client of the package has all that is offered", async () => {
  const { place, id, output, input } = await begun();
  const kinds: string[] = [];
  const { session } = unstable.methods.agent;
  const app = unstable
    .client({ name: "test" })
    .onNotification("session/update", ({ params }) => void kinds.push(params.update.sessionUpdate));
  await app.connectWith(unstable.ndJsonStream(output, input), async (agent) => {
    const { agentCapabilities }: Json = await agent.request("initialize", BEGIN);
    const sessionCapabilities = { fork: {}, archive: {}, status: {}, title: {} };
    expect(agentCapabilities).toMatchObject({ loadSession: true, sessionCapabilities });
    const made = await agent.request(session.new, { cwd: place.cwd, mcpServers: [] });
    const listed = async (params = {}): Promise<Json[]> =>
      ((await agent.request(session.list, params)) as Json).sessions;
    expect((await listed({ cwd: place.cwd })).map(({ sessionId }) => sessionId)).toEqual([id]);
    expect(await agent.request(session.status, { sessionId: id })).toMatchObject({ status: "saved" });
    const loaded = { sessionId: id, cwd: place.cwd, mcpServers: [] };
    await agent.request(session.load, loaded);
    const shown = "user_message_chunk tool_call tool_call_update agent_message_chunk";
    expect(kinds.filter((kind) => !/_info_|^usage/.test(kind)).join(" ")).toBe(shown);
    const prompt = [{ type: "text" as const, text: "Another." }];
    await expect(agent.request(session.prompt, { sessionId: made.sessionId, prompt })).rejects.toThrow(/runs no model/);
    const { sessionId: forked } = await agent.request(session.fork, { sessionId: id, cwd: place.cwd });
    await agent.request(session.archive, { sessionId: id });
    expect(await listed({ archived: "only" })).toMatchObject([{ sessionId: id, archived: true }]);
    await agent.notify(session.cancel, { sessionId: forked });
    await agent.request(session.close, { sessionId: forked });
    await agent.request(session.resume, { sessionId: forked, cwd: place.cwd });
    for (const sessionId of [id, id, forked]) await agent.request(session.delete, { sessionId });
    expect(await listed()).toEqual([]);
    await expect(agent.request(session.load, loaded)).rejects.toMatchObject({ code: -32002 });
  });
});
