/** An agent of the Agent Client Protocol behind the server: lines pass unchanged, and its answers are recorded. */

import { describe, expect, test } from "vitest";
import { acpLike, lives, ownAcpAgent, until } from "../../support/agents.ts";
import { HERE } from "../../support/agents-here.ts";
import { user } from "../../support/drafts.ts";
import { type Json, type Place, serveHere, spawnServer, temporaryPlace, type Wire } from "../../support/server.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";

const STORES = ["jsonl", "v2"] as const;

function ask(server: Wire, id: number, method: string, params: object): Promise<Json> {
  server.ask(id, method, params);
  return until(server, (message) => message.id === id && !("method" in message));
}

const argsOf = (agent: string, store = "jsonl"): string[] => [
  ...["--agent", agent, "--agent-protocol", "acp", "--store", store],
];

/** An editor of a server, with a session of its agent's. */
async function editorAt<Server extends Wire & { place: Place }>(server: Server) {
  const { result } = await ask(server, 1, "initialize", { protocolVersion: 1, clientCapabilities: {} });
  const made = await ask(server, 2, "session/new", { cwd: server.place.cwd, mcpServers: [] });
  const { sessionId }: { sessionId: string } = made.result;
  return { server, sessionId, pid: result.agentCapabilities._meta.pid as number };
}

/** An editor at a server in this process, as its agent is. */
const editorOn = (place: Place, store: string, ...flags: string[]) =>
  editorAt(serveHere(argsOf(acpLike(...flags), store), { place, agentLaunch: HERE }));

const text = (message: string): Json[] => [{ type: "text", text: message }];

/** Has a turn. Returns its reply. */
const turn = (server: Wire, sessionId: string, words: string): Promise<Json> =>
  ask(server, 9, "session/prompt", { sessionId, prompt: text(words) });

/** Begins a turn that lasts. */
async function begin(server: Wire, sessionId: string, words: string): Promise<void> {
  server.ask(4, "session/prompt", { sessionId, prompt: text(words) });
  await until(server, ({ params }) => params?.update?.content?.text === "1 ");
}

const rolesOf = (messages: Json[]): string => messages.map((message) => message.role ?? message).join(" ");

/** Returns the texts of the messages. */
const saidIn = (messages: Json[]): string[] => messages.flatMap(({ content }) => content?.[0].text ?? content ?? []);

/** The messages that were recorded, and the types of everything else. */
async function recorded(place: Place, sessionId: string): Promise<Json[]> {
  const reader = serveHere(["--session", sessionId], { place });
  const { entries } = await reader.result("get_entries");
  const { damage } = await reader.result("verify_session");
  // A frame that was not committed when its writer was killed is whole, and found without the index.
  expect(damage.filter(({ salvaged }: Json) => !salvaged)).toEqual([]);
  await reader.finish();
  return entries.map((entry: Json) => entry.message ?? entry.customType);
}

acrossTiers(describe, STORES)("a session recorded in %s", (store) => {
  test("has its turns: the prompt, thoughts, answers, calls with their results, permissions and plans", async () => {
    const place = temporaryPlace();
    const { server, sessionId } = await editorOn(place, store);
    const link = { type: "resource_link", name: "a", uri: "file:///a" };
    server.ask(3, "session/prompt", { sessionId, prompt: [...text("ask think tools 1"), link] });
    const question = await until(server, ({ method }) => method === "session/request_permission");
    server.answer(question.id, { outcome: { outcome: "selected", optionId: "yes" } });
    const { result } = await until(server, ({ id }) => id === 3);
    expect(result.stopReason).toBe("end_turn");
    // The agent answers requests that the server does not know.
    expect((await ask(server, 4, "session/unheard_of", {})).error.code).toBe(-32601);
    expect((await server.finish()).status).toBe(0);

    const messages = await recorded(place, sessionId);
    expect(rolesOf(messages)).toBe("acp user acp_prompt acp_permission assistant toolResult assistant acp_updates");
    const [, user, , , call, toolResult, answer] = messages;
    expect(user.content.map(({ text }: Json) => text)).toEqual(["ask think tools 1", "[a](file:///a)"]);
    expect(call).toMatchObject({ stopReason: "toolUse", provider: "scripted" });
    expect(call.content).toEqual([
      { type: "thinking", thinking: "Let me think." },
      { type: "text", text: "Reading 1. " },
      { type: "toolCall", id: toolResult.toolCallId, name: "read", arguments: { path: "file-1" } },
    ]);
    expect(toolResult).toMatchObject({ toolName: "read", isError: false, content: text("file 1") });
    expect(answer).toMatchObject({
      content: text("You said: ask think tools 1"),
      stopReason: "stop",
      usage: { input: 10, output: 2 },
    });
  });

  test("has what was seen of a turn whose agent died, and the editor gets an error for each request", async () => {
    const place = temporaryPlace();
    const { server, sessionId } = await editorOn(place, store);
    await turn(server, sessionId, "one");
    const { error } = await turn(server, sessionId, "chunks 9 die after 3");
    expect(error.message).toContain("The agent was ended by SIGKILL");
    expect(await server.done).toBe(1);
    const messages = await recorded(place, sessionId);
    expect(messages.at(-1)).toMatchObject({ role: "assistant", content: text("0 1 2 "), stopReason: "error" });
    expect(messages.filter(({ role }) => role === "user")).toHaveLength(2);
  });

  test.each([
    ["after SIGKILL of the server: the prompt before the agent hears it, and what was finished", "SIGKILL"],
    ["at the end of its editor: the turn is marked as aborted", 0],
  ])("is left %s", SYSTEM, async (_what, end) => {
    const place = temporaryPlace();
    const { server, sessionId, pid } = await editorAt(spawnServer(argsOf(acpLike(), store), "lines", place));
    await turn(server, sessionId, "one");
    await begin(server, sessionId, "tools 1 chunks 100000 every 20");
    if (end === 0) server.end();
    else server.process.kill("SIGKILL");
    expect(await server.exit).toBe(end);
    if (end === 0) expect(lives(pid)).toBe(false);
    while (lives(pid)) await new Promise((resolve) => setTimeout(resolve, 2));
    const messages = await recorded(place, sessionId);
    const begun = "acp user assistant acp_updates user assistant toolResult";
    expect(rolesOf(messages).slice(0, begun.length)).toBe(begun);
    if (end === 0) expect(messages.at(-1)).toMatchObject({ role: "assistant", stopReason: "aborted" });
    else expect(rolesOf(messages)).toBe(begun);
  });
});

test("a session that is loaded goes on where it was recorded, and is recorded with its past where it was not", async () => {
  const place = temporaryPlace();
  const { server: first, sessionId } = await editorOn(place, "jsonl");
  await turn(first, sessionId, "one");
  await first.finish();
  const { server } = await editorOn(place, "jsonl", "--loads");
  const unknown = "5b8f1f0e-0000-4000-8000-000000000000";
  for (const id of [sessionId, unknown]) {
    const loaded = await ask(server, 3, "session/load", { sessionId: id, cwd: place.cwd, mcpServers: [] });
    expect(loaded.result).toEqual({});
    await turn(server, id, "two");
  }
  await server.finish();
  expect(saidIn(await recorded(place, sessionId))).toEqual(["one", "You said: one", "two", "You said: two"]);
  expect(saidIn(await recorded(place, unknown))).toEqual(["the past", "as I know it", "two", "You said: two"]);
});

acrossTiers(test, STORES)("one of %s that is closed is let go; a copy has its past", async (store) => {
  const place = temporaryPlace();
  const ids = ["5b8f1f0e-0000-4000-8000-000000000001", "5b8f1f0e-0000-4000-8000-000000000002"];
  const agent = ownAcpAgent(
    place,
    `if (method === "session/fork") return say({ id, result: { sessionId: "${ids[1]}" } });
    if (method === "session/prompt") chunk(sessionId, "heard " + params.prompt[0].text);
    say({ id, result: { stopReason: "end_turn" } });`,
    {},
    `return say({ id, result: { sessionId: "${ids[0]}" } });`,
  );
  const server = serveHere(argsOf(agent, store), { place, agentLaunch: HERE });
  await ask(server, 1, "initialize", { protocolVersion: 1, clientCapabilities: {} });
  const [sessionId, copy] = ids;
  await ask(server, 2, "session/new", { cwd: place.cwd, mcpServers: [] });
  await turn(server, sessionId, "one");
  await ask(server, 3, "session/fork", { sessionId, cwd: place.cwd, mcpServers: [] });
  await turn(server, copy, "two");
  await ask(server, 4, "session/close", { sessionId });
  // Another server can write there now.
  const other = serveHere(["--session", sessionId], { place });
  await other.result("append", { entries: [user("mine")] });
  await other.finish();
  await turn(server, sessionId, "three");
  await server.finish();
  expect(saidIn(await recorded(place, sessionId))).toEqual([
    "one",
    "heard one",
    expect.stringContaining(""),
    "three",
    "heard three",
  ]);
  expect(saidIn(await recorded(place, copy))).toEqual(["one", "heard one", "two", "heard two"]);
});

test("every byte of both sides goes on as it came, in its order", SYSTEM, async () => {
  const place = temporaryPlace();
  const echo = `'${process.execPath}' -e 'process.stdin.pipe(process.stdout)'`;
  const server = serveHere(argsOf(echo), { place });
  const lines = [
    '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"none","n":1e400,"n":[1.50],"s":"\u2028 \\u00e9"}}',
    '  { "z" : {} , "jsonrpc":"2.0" }\r',
    '[{"jsonrpc":"2.0","id":1}]',
    `{"big":"${"x".repeat(3 << 20)}"}`,
  ];
  let raw = "";
  const sent = `${lines[0]}\n${lines[1]}\n${lines[3]}\n`;
  const come = new Promise<void>((resolve) =>
    server.output.on("data", (chunk: Buffer) => {
      raw += chunk.toString("utf8");
      if (raw.length >= sent.length) resolve();
    }),
  );
  for (const line of lines) server.write(`${line}\n`);
  await come;
  expect(raw === sent).toBe(true);
  await server.finish();
});

acrossTiers(test, [2000, 60_000])("a host that does not read stops the agent, and misses none of %i", async (count) => {
  const place = temporaryPlace();
  const { server, sessionId } = await editorOn(place, "jsonl");
  server.stall();
  server.ask(3, "session/prompt", { sessionId, prompt: text(`chunks ${count}`) });
  for (let turns = 0; turns < 100; turns++) await new Promise(setImmediate);
  server.resume();
  await until(server, ({ id }) => id === 3);
  const pieces = server.events.flatMap(({ params }) => params?.update?.content?.text ?? []);
  expect(pieces).toEqual(Array.from({ length: count }, (_, i) => `${i} `));
  await server.finish();
  const answer = (await recorded(place, sessionId)).find(({ role }) => role === "assistant");
  expect(answer.content[0].text).toBe(pieces.join(""));
});
