/**
 * Clients of packages, unmodified, drive the built program: vscode-jsonrpc, and that of the Agent Client Protocol, which checks
 * every message that it is sent.
 *
 * @module-tag system
 */

import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as unstable from "@agentclientprotocol/sdk/unstable";
import { expect, onTestFinished, test } from "vitest";
import {
  createMessageConnection,
  type MessageConnection,
  ResponseError,
  StreamMessageReader,
  StreamMessageWriter,
} from "vscode-jsonrpc/node";
import { PROGRAM } from "../support/build.ts";
import { assistant, toolCall, toolResult, user } from "../support/drafts.ts";
import {
  type Json,
  type Place,
  programEnvironment,
  serveHere,
  spawnServer,
  temporaryPlace,
} from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

function editor(args: string[]): { connection: MessageConnection; exit: Promise<number | null> } {
  const place = temporaryPlace();
  const options = { cwd: place.cwd, env: programEnvironment(place) };
  const child = spawn(process.execPath, [PROGRAM, ...args], { ...options, stdio: ["pipe", "pipe", "inherit"] });
  const [reader, writer] = [new StreamMessageReader(child.stdout), new StreamMessageWriter(child.stdin)];
  const connection = createMessageConnection(reader, writer);
  onTestFinished(() => {
    connection.dispose();
    child.kill("SIGKILL");
  });
  return { connection, exit: new Promise((resolve) => child.on("exit", resolve)) };
}

const OPTIONS = ["", "--stdio", "--framing headers --dialect jsonrpc"];

acrossTiers(test, OPTIONS)("an editor's connection drives a server with %j", async (args) => {
  const { connection, exit } = editor(args === "" ? [] : args.split(" "));
  const appended = new Promise<Json>((resolve) => connection.onNotification("session_append", resolve));
  connection.listen();
  const { capabilities } = await connection.sendRequest<Json>("initialize", { clientInfo: { name: "editor" } });
  expect(capabilities.commands).toContain("get_state");
  await connection.sendNotification("initialized", {});
  const ids = Array.from({ length: 100 }, (_, i) => `n${i}`);
  const replies = await Promise.all(
    ids.map((id) => connection.sendRequest<Json>("append", { entries: [user(`é 😀 ${id}`, { id })] })),
  );
  expect(replies.map(({ leafId }) => leafId)).toEqual(ids);
  expect(await appended).toMatchObject({ entryIds: ["n0"], origin: "self" });
  expect(await connection.sendRequest<Json>("get_state")).toMatchObject({ entryCount: 100, leafId: "n99" });
  const failure = await connection.sendRequest("fork", { entryId: "nope" }).catch((error) => error);
  expect(failure).toBeInstanceOf(ResponseError);
  expect(failure).toMatchObject({ code: -32002, data: { name: "entry_not_found", retryable: false } });
  await expect(connection.sendRequest("shutdown")).resolves.toBeNull();
  await connection.sendNotification("exit");
  expect(await exit).toBe(0);
});

/** A server with a session of a conversation; the package's client reads its output itself. */
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

test("the client of the package has all that is offered", async () => {
  const { place, id, output, input } = await begun();
  const kinds: string[] = [];
  const { session } = unstable.methods.agent;
  const app = unstable
    .client({ name: "test" })
    .onNotification("session/update", ({ params }) => void kinds.push(params.update.sessionUpdate));
  await app.connectWith(unstable.ndJsonStream(output, input), async (agent) => {
    const clientInfo = { name: "sdk", version: "1" };
    const beginning = { protocolVersion: unstable.PROTOCOL_VERSION, clientCapabilities: {}, clientInfo };
    const { agentCapabilities }: Json = await agent.request("initialize", beginning);
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
