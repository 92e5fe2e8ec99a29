/** Pi's own line dialect: what its clients send and rely on. */

import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { describe, expect, test } from "vitest";
import { assistant, user } from "../../support/drafts.ts";
import { type Json, kinds, serveHere, serveInput } from "../../support/server.ts";

const QUIET = ["--no-session", "--events", "none", "--dialect", "pi"];
const RPC = ["--mode", "rpc", "--no-session"];

describe("a reply", () => {
  test("carries id, type, command, success and data, in Pi's order, and the id with its JSON type", async () => {
    const ids = ["5", '"5"', '"tab:12"', '"é\\n\\""', "0", "-1", '""', "1.5", "9007199254740993", "null", '{"a":[1]}'];
    const input = ids.map((id) => `{"type":"get_last_assistant_text","id":${id}}\n`).join("");
    const lines = (await serveInput(input, QUIET)).stdout.split("\n");
    const rest = '"type":"response","command":"get_last_assistant_text","success":true,"data":{"text":null}}';
    for (const [n, id] of ids.entries()) {
      expect(lines[n].endsWith(`,${rest}`)).toBe(true);
      const echoed = lines[n].slice('{"id":'.length, -rest.length - 1);
      if (id.startsWith('"')) expect(JSON.parse(echoed)).toBe(JSON.parse(id));
      else expect(echoed).toBe(id);
    }
  });

  test("carries no data when there is none, and no id when the command has none", async () => {
    const server = serveHere(QUIET);
    server.send({ type: "get_last_assistant_text" }, { type: "no_such_command" }, { id: 1, type: "shutdown" });
    const error = expect.stringContaining("no_such_command");
    expect(await server.take(3)).toEqual([
      { type: "response", command: "get_last_assistant_text", success: true, data: { text: null } },
      { type: "response", command: "no_such_command", success: false, error, code: "unknown_command" },
      { id: 1, type: "response", command: "shutdown", success: true },
    ]);
  });

  test("about a failure says what it is and what to do", async () => {
    const server = serveHere(QUIET);
    expect(await server.command("fork", { entryId: "nope" })).toEqual({
      ...{ id: "req:1", type: "response", command: "fork", success: false },
      error: expect.stringMatching(/^Entry not found: nope\. \w/),
      ...{ code: "entry_not_found", data: { entryId: "nope" } },
    });
    const issues = [{ path: "entries.0.message" }];
    const refused = await server.command("append", { entries: [{ type: "message" }] });
    expect(refused).toMatchObject({ success: false, code: "invalid_params", data: { issues } });
  });

  test("belongs to each of several commands with the same id", async () => {
    const server = serveHere(["--events", "none", "--dialect", "pi"]);
    const append = (id: string) => ({ id: 1, type: "append", entries: [user("x", { id })] });
    server.send(append("a"), append("b"), { id: 1, type: "get_state" });
    const datas = [{ entryIds: ["a"] }, { entryIds: ["b"] }, { entryCount: 2 }];
    expect(await server.take(3)).toMatchObject(datas.map((data) => ({ id: 1, data })));
  });
});

test("an entry is stored without the envelope of its command", async () => {
  const server = serveHere(QUIET);
  const entry = { type: "custom", id: "own", customType: "x", data: { type: "t", id: 7 } };
  const envelope = { streamingBehavior: "steer", jsonrpc: "2.0", method: "x", params: { a: 1 }, _meta: {} };
  await server.command("append", { ...envelope, entries: [entry] });
  const { data } = await server.command("get_entries");
  expect(data.entries).toEqual([{ ...entry, parentId: null, timestamp: expect.any(String) }]);
});

describe("what is no command", () => {
  test.each<[string, object]>([
    ['{"type":"get_state"', { command: "parse", code: "parse_error" }],
    ["null", { command: "parse", code: "invalid_request" }],
    ['[{"type":"get_state"}]', { command: "parse", code: "invalid_request" }],
    ['"get_state"', { command: "parse", code: "invalid_request" }],
    ["{}", { code: "invalid_request" }],
    ['{"id":{}}', { id: {}, code: "invalid_request" }],
    ['{"id":"a","type":5}', { id: "a", code: "invalid_request" }],
    ['{"type":["get_state"],"id":[]}', { id: [], code: "invalid_request" }],
    ['{"jsonrpc":"2.0","id":3,"method":"get_state"}', { id: 3, code: "invalid_request" }],
  ])("is answered with the id that it has, or none: %s", async (payload, reply) => {
    const server = serveHere(QUIET);
    server.send(payload);
    const answer = await server.next();
    expect(answer).toMatchObject({ type: "response", success: false, error: expect.stringMatching(/\w/), ...reply });
    expect("id" in answer).toBe("id" in reply);
    expect((await server.command("get_state")).success).toBe(true);
  });

  test("may be as deep as it likes", async () => {
    const deep = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
    const server = serveHere(QUIET);
    server.send(`{"type":"no_such_command","x":${deep}}`, deep, `{"type":"get_state","x":${deep}}`);
    const codes = (await server.take(3)).map(({ success, code }) => code ?? success);
    expect(codes).toEqual(["unknown_command", "invalid_request", true]);
    server.write(`{"type":"get_last_assistant_text","id":${deep}}\n`);
    expect((await server.next()).data).toEqual({ text: null });
  });

  test("because it is too large is answered with its id where that comes early", async () => {
    const server = serveHere([...QUIET, "--max-message-bytes", "2000"]);
    const x = "x".repeat(2000);
    server.send(
      `{"id":"big","type":"append","x":"${x}"}`,
      `{"type":"append","id":007,"x":"${x}"}`,
      `{"type":"append","id":"\\x","x":"${x}"}`,
      { id: 1, type: "get_state" },
    );
    const refused = { command: "parse", success: false, code: "message_too_large", data: { limit: 2000 } };
    const replies = await server.take(4);
    expect(replies).toMatchObject([{ ...refused, id: "big" }, refused, refused, { id: 1, success: true }]);
    expect(replies.map((reply) => "id" in reply)).toEqual([true, false, false, true]);
  });
});

test("an alias is answered by itself", async () => {
  const params = { summary: "So far.", firstKeptEntryId: null, tokensBefore: 100 };
  const reply = await serveHere(QUIET).command("compact-append", params);
  expect(reply).toMatchObject({ command: "compact-append", success: true });
});

test("events are flat, with their name as type and without id", async () => {
  const server = serveHere(["--dialect", "pi"]);
  server.send({ id: 1, type: "append", entries: [user("x", { id: "a" })] });
  const [start, , append] = await server.take(3);
  const { sessionId } = start;
  const sessionFile = expect.stringMatching(/\.jsonl$/);
  expect(start).toEqual({ type: "session_start", sessionId, leafId: null, seq: 1, reason: "startup", sessionFile });
  expect(append).toEqual({ type: "session_append", sessionId, leafId: "a", seq: 2, entryIds: ["a"], origin: "self" });
});

describe("--mode rpc", () => {
  test("takes whatever its clients say, and makes the folder of a session whose path it reports, and no file", async () => {
    const asClientsDo = "--no-themes --no-skills -ne --approve --no-such-flag --thinking high".split(" ");
    const server = serveHere(["--mode", "rpc", ...asClientsDo]);
    for (const [type, params] of [
      ["append", { entries: [user("x"), assistant("y")] }],
      ["clone"],
      ["new_session"],
    ] as const)
      expect(await server.command(type, params)).toMatchObject({ success: true });
    const { sessionFile } = (await server.command("get_state")).data;
    expect([existsSync(dirname(sessionFile)), existsSync(sessionFile)]).toEqual([true, false]);
    expect([await server.finish(), server.events, server.said]).toEqual([{ messages: [], status: 0 }, [], []]);
  });

  test("answers in Pi's dialect also what is still at work when the input ends", async () => {
    const server = serveHere(RPC);
    const requests = [
      { id: "1", type: "append", entries: [user("x")] },
      { id: "2", type: "clone" },
      { id: "3", type: "get_state" },
    ];
    server.input.end(requests.map((one) => `${JSON.stringify(one)}\n`).join(""));
    const { messages, status } = await server.finish();
    expect([messages.map(({ id, type }) => [id, type]), status]).toEqual([
      ["1", "2", "3"].map((id) => [id, "response"]),
      0,
    ]);
  });

  test("sends the events that are asked for", async () => {
    const server = serveHere([...RPC, "--events", "session_append"]);
    server.send({ id: 1, type: "append", entries: [user("x")] }, { id: 2, type: "set_session_name", name: "n" });
    expect(kinds(await server.take(4))).toEqual(["#1", "session_append", "#2", "session_append"]);
  });

  test.each([
    ["malformed JSON", "not json", { command: "parse", success: false }],
    ["a byte order mark", '\ufeff{"id":1,"type":"get_state"}', { id: 1, success: true }],
    ["JSON-RPC", '{"jsonrpc":"2.0","id":1,"method":"get_state"}', { id: 1, success: false }],
  ])("is Pi's dialect from the first line on: %s", async (_, line, reply) => {
    const server = serveHere(RPC);
    server.write(`${line}\n`);
    expect(await server.next()).toMatchObject({ type: "response", ...reply });
  });
});

describe("models", () => {
  const NOBODY = { id: "unknown", name: "unknown", api: "unknown", provider: "unknown", reasoning: false };

  test("where none is named, the state has the one that Pi has then, and there are none to choose from", async () => {
    const server = serveHere(QUIET);
    const said = { entries: [user("a"), { type: "message", message: { role: "assistant" } }] };
    for (const type of ["get_state", "append"]) {
      await server.command(type, type === "append" ? said : {});
      // Clients end at a window of 0.
      const model = { ...NOBODY, contextWindow: expect.any(Number) };
      expect((await server.command("get_state")).data.model).toMatchObject(model);
      expect((await server.command("get_available_models")).data).toEqual({ models: [] });
    }
  });

  test("to choose from are those that the session names, the one in force first", async () => {
    const server = serveHere(["--events", "none", "--dialect", "pi", "--provider", "google", "--model", "gemini-3"]);
    await server.command("set_model", { provider: "openai", modelId: "gpt-5" });
    await server.command("set_model", { provider: "google", modelId: "gemini-3" });
    await server.command("append", { entries: [assistant("a")] });
    const { model } = (await server.command("get_state")).data;
    const { models } = (await server.command("get_available_models")).data;
    expect(models.map(({ id }: Json) => id)).toEqual(["claude-sonnet-4-5", "gemini-3", "gpt-5"]);
    expect(models[0]).toEqual(model);
    expect(model).toMatchObject({ name: "claude-sonnet-4-5", contextWindow: 200_000 });
    expect((await server.command("get_session_stats")).data.contextUsage).toMatchObject({ contextWindow: 200_000 });
  });
});
