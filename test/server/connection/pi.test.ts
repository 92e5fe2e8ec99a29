/** Pi's own line dialect: what its clients send and rely on. */

import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { describe, expect, test } from "vitest";
import { assistant, user } from "../../support/drafts.ts";
import { type Json, kinds, serveHere, serveInput, temporaryPlace } from "../../support/server.ts";

const QUIET = ["--no-session", "--events", "none", "--dialect", "pi"];

describe("a reply", () => {
  test("carries id, type, command, success and data, in Pi's order", async () => {
    const { stdout } = await serveInput('{"id":"req_1","type":"get_last_assistant_text"}\n', QUIET);
    expect(stdout).toBe(
      '{"id":"req_1","type":"response","command":"get_last_assistant_text","success":true,"data":{"text":null}}\n',
    );
  });

  test("carries no data when there is none", async () => {
    const server = serveHere(QUIET);
    server.send({ id: 1, type: "shutdown" });
    expect(await server.next()).toEqual({ id: 1, type: "response", command: "shutdown", success: true });
  });

  test("to a command without id has none either, and is sent", async () => {
    const server = serveHere(QUIET);
    server.send({ type: "get_last_assistant_text" }, { type: "no_such_command" });
    expect(await server.take(2)).toEqual([
      { type: "response", command: "get_last_assistant_text", success: true, data: { text: null } },
      {
        type: "response",
        command: "no_such_command",
        success: false,
        error: expect.stringContaining("no_such_command"),
        code: "unknown_command",
      },
    ]);
  });

  test("about a failure says what it is and what to do", async () => {
    const server = serveHere(QUIET);
    expect(await server.command("fork", { entryId: "nope" })).toEqual({
      id: "req:1",
      type: "response",
      command: "fork",
      success: false,
      error: expect.stringMatching(/^Entry not found: nope\. \w/),
      code: "entry_not_found",
      data: { entryId: "nope" },
    });
    expect(await server.command("append", { entries: [{ type: "message" }] })).toMatchObject({
      success: false,
      code: "invalid_params",
      data: { issues: [{ path: "entries.0.message" }] },
    });
    expect((await server.command("get_state")).data.entryCount).toBe(0);
  });

  test("gives the id back with its JSON type", async () => {
    const ids = ["5", '"5"', '"tab:12"', '"é\\n\\""', "0", "-1", '""', "1.5", "9007199254740993", "null", '{"a":[1]}'];
    const input = ids.map((id) => `{"type":"get_last_assistant_text","id":${id}}\n`).join("");
    const lines = (await serveInput(input, QUIET)).stdout.split("\n");
    for (const [n, id] of ids.entries()) {
      const [, echoed] =
        /^\{"id":(.*),"type":"response","command":"get_last_assistant_text","success":true/.exec(lines[n]) ?? [];
      if (id.startsWith('"')) expect(JSON.parse(echoed)).toBe(JSON.parse(id));
      else expect(echoed).toBe(id);
    }
  });

  test("belongs to each of several commands with the same id", async () => {
    const server = serveHere(["--events", "none", "--dialect", "pi"]);
    const append = (id: string) => ({ id: 1, type: "append", entries: [user("x", { id })] });
    server.send(append("a"), append("b"), { id: 1, type: "get_state" });
    expect(await server.take(3)).toMatchObject([
      { id: 1, data: { entryIds: ["a"] } },
      { id: 1, data: { entryIds: ["b"] } },
      { id: 1, data: { entryCount: 2 } },
    ]);
  });
});

test("members that a command does not know are ignored", async () => {
  const server = serveHere(QUIET);
  const more = { streamingBehavior: "steer", jsonrpc: "2.0", method: "x", params: { a: 1 }, _meta: {}, nope: null };
  expect(await server.command("append", { ...more, entries: [user("x")] })).toMatchObject({ success: true });
  expect((await server.command("get_state", more)).data.entryCount).toBe(1);
});

test("an entry is stored without the envelope of its command", async () => {
  const server = serveHere(QUIET);
  await server.command("append", {
    entries: [{ type: "custom", customType: "x", id: "own", data: { type: "t", id: 7 } }],
  });
  const { data } = await server.command("get_entries");
  expect(data.entries).toEqual([
    {
      type: "custom",
      id: "own",
      parentId: null,
      timestamp: expect.any(String),
      customType: "x",
      data: { type: "t", id: 7 },
    },
  ]);
});

describe("what is no command", () => {
  test.each<[string, object]>([
    ["not json", { command: "parse", code: "parse_error" }],
    ['{"type":"get_state"', { command: "parse", code: "parse_error" }],
    ["null", { command: "parse", code: "invalid_request" }],
    ["[]", { command: "parse", code: "invalid_request" }],
    ['[{"type":"get_state"}]', { command: "parse", code: "invalid_request" }],
    ["5", { command: "parse", code: "invalid_request" }],
    ['"get_state"', { command: "parse", code: "invalid_request" }],
    ["true", { command: "parse", code: "invalid_request" }],
  ])("is answered without id: %s", async (payload, reply) => {
    const server = serveHere(QUIET);
    server.send(payload);
    const answer = await server.next();
    expect(answer).toMatchObject({ type: "response", success: false, error: expect.stringMatching(/\w/), ...reply });
    expect(answer).not.toHaveProperty("id");
    expect((await server.command("get_state")).success).toBe(true);
  });

  test.each<[string, object]>([
    ["{}", {}],
    ['{"id":7}', { id: 7 }],
    ['{"id":{}}', { id: {} }],
    ['{"id":"a","type":5}', { id: "a" }],
    ['{"type":null}', {}],
    ['{"type":["get_state"],"id":[]}', { id: [] }],
    ['{"jsonrpc":"2.0","id":3,"method":"get_state"}', { id: 3 }],
  ])("is answered with the id it has: %s", async (payload, reply) => {
    const server = serveHere(QUIET);
    server.send(payload);
    const answer = await server.next();
    expect(answer).toMatchObject({ type: "response", success: false, code: "invalid_request", ...reply });
    if (!("id" in reply)) expect(answer).not.toHaveProperty("id");
    expect((await server.command("get_state")).success).toBe(true);
  });

  test.each(["no_such_command", "", "__proto__", "constructor", "get_state ", "x".repeat(100_000)])(
    "is answered by its name when that is unknown: %.20s",
    async (type) => {
      const server = serveHere(QUIET);
      expect(await server.command(type)).toMatchObject({ command: type, success: false, code: "unknown_command" });
    },
  );

  test("may be as deep as it likes", async () => {
    const deep = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
    const server = serveHere(QUIET);
    server.send(`{"type":"no_such_command","x":${deep}}`, deep, `{"type":"get_state","x":${deep}}`);
    expect((await server.take(3)).map(({ success, code }) => code ?? success)).toEqual([
      "unknown_command",
      "invalid_request",
      true,
    ]);
    server.write(`{"type":"get_last_assistant_text","id":${deep}}\n`);
    expect((await server.next()).data).toEqual({ text: null });
  });

  test("because it is too large is answered with its id where that comes early", async () => {
    const server = serveHere([...QUIET, "--max-message-bytes", "2000"]);
    server.send(
      `{"id":"big","type":"append","x":"${"x".repeat(2000)}"}`,
      `{"type":"append","id":007,"x":"${"x".repeat(2000)}"}`,
      `{"type":"append","id":"\\x","x":"${"x".repeat(2000)}"}`,
      { id: 1, type: "get_state" },
    );
    const refused = { type: "response", command: "parse", success: false, code: "message_too_large" };
    const [early, wrongNumber, wrongString, next] = await server.take(4);
    expect(early).toMatchObject({ ...refused, id: "big", data: { limit: 2000 } });
    for (const reply of [wrongNumber, wrongString]) {
      expect(reply).toMatchObject(refused);
      expect(reply).not.toHaveProperty("id");
    }
    expect(next).toMatchObject({ id: 1, success: true });
  });
});

describe("compact_append", () => {
  test.each(["compact_append", "compact-append"])("answers as %s in both dialects", async (name) => {
    const params = { summary: "So far.", firstKeptEntryId: null, tokensBefore: 100 };
    const inPi = serveHere(QUIET);
    expect(await inPi.command(name, params)).toMatchObject({
      command: name,
      success: true,
      data: { firstKeptEntryId: expect.any(String) },
    });
    const inJsonRpc = serveHere(["--no-session"]);
    expect(await inJsonRpc.result(name, params)).toMatchObject({ firstKeptEntryId: expect.any(String) });
    expect((await inJsonRpc.result("initialize")).capabilities.commands).toContain(name);
  });
});

describe("events", () => {
  test("are flat, with their name as type and without id", async () => {
    const server = serveHere(["--dialect", "pi"]);
    server.send({ id: 1, type: "append", entries: [user("x", { id: "a" })] });
    const [start, , append] = await server.take(3);
    expect(start).toEqual({
      type: "session_start",
      sessionId: expect.any(String),
      leafId: null,
      seq: 1,
      reason: "startup",
      sessionFile: expect.stringMatching(/\.jsonl$/),
    });
    expect(append).toEqual({
      type: "session_append",
      sessionId: start.sessionId,
      leafId: "a",
      seq: 2,
      entryIds: ["a"],
      origin: "self",
    });
  });

  test("carry stored entries as they are", async () => {
    const server = serveHere(QUIET.with(2, "session_compact"));
    server.send({ type: "compact_append", summary: "So far.", firstKeptEntryId: null, tokensBefore: 1.0 });
    const [, event] = await server.take(2);
    expect(event).toMatchObject({
      type: "session_compact",
      compactionEntry: { type: "compaction", summary: "So far." },
      fromExtension: false,
    });
  });
});

describe("--mode rpc", () => {
  /** As Pi's clients start it; most of it means nothing here. */
  const AS_CLIENTS_DO = [
    "--mode",
    "rpc",
    "--no-themes",
    "--no-skills",
    "-ne",
    "--approve",
    "--no-such-flag",
    "--thinking",
    "high",
  ];

  test("sends no events, and nothing before it is asked", async () => {
    const server = serveHere(AS_CLIENTS_DO);
    server.send(
      { id: "1", type: "get_state" },
      { id: "2", type: "append", entries: [user("x"), assistant("y")] },
      { id: "3", type: "set_session_name", name: "n" },
      { id: "4", type: "clone" },
      { id: "5", type: "branch", entryId: null },
      { id: "6", type: "new_session" },
      { id: "7", type: "get_state" },
    );
    const { messages, status } = await server.finish();
    expect(kinds(messages)).toEqual(["#1", "#2", "#3", "#4", "#5", "#6", "#7"]);
    expect(messages.map(({ success }) => success)).not.toContain(false);
    expect(messages[3].data.cancelled).toBe(false);
    expect({ status, said: server.said }).toEqual({ status: 0, said: [] });
  });

  test("sends the events that are asked for", async () => {
    const server = serveHere(["--mode", "rpc", "--no-session", "--events", "session_append"]);
    server.send({ id: 1, type: "append", entries: [user("x")] }, { id: 2, type: "set_session_name", name: "n" });
    expect(kinds(await server.take(4))).toEqual(["#1", "session_append", "#2", "session_append"]);
  });

  test("answers malformed JSON as Pi does, the first line too", async () => {
    const server = serveHere(["--mode", "rpc", "--no-session"]);
    server.write("not json\n");
    expect(await server.next()).toMatchObject({ type: "response", command: "parse", success: false });
  });

  test("takes a byte order mark before the first line", async () => {
    const server = serveHere(["--mode", "rpc", "--no-session"]);
    server.write('\ufeff{"id":1,"type":"get_state"}\n');
    expect(await server.next()).toMatchObject({ id: 1, success: true });
  });

  test("makes the folder of a session whose path it reports, and no file", async () => {
    const place = temporaryPlace();
    const server = serveHere(["--mode", "rpc"], { place });
    const { data } = await server.command("get_state");
    expect(existsSync(dirname(data.sessionFile))).toBe(true);
    expect(existsSync(data.sessionFile)).toBe(false);
  });

  test("is only ever Pi's dialect", async () => {
    const server = serveHere(["--mode", "rpc", "--no-session"]);
    server.send({ jsonrpc: "2.0", id: 1, method: "get_state" });
    expect(await server.next()).toMatchObject({ id: 1, type: "response", success: false });
  });
});

describe("models", () => {
  const NOBODY = { id: "unknown", name: "unknown", api: "unknown", provider: "unknown", reasoning: false };

  test("where none is named, the state has the one that Pi has then, and there are none to choose from", async () => {
    const server = serveHere(QUIET);
    expect((await server.command("get_state")).data.model).toMatchObject({
      ...NOBODY,
      // Clients end at a window of 0.
      contextWindow: expect.any(Number),
    });
    expect((await server.command("get_available_models")).data).toEqual({ models: [] });
    await server.command("append", { entries: [user("a"), { type: "message", message: { role: "assistant" } }] });
    expect((await server.command("get_state")).data.model).toMatchObject(NOBODY);
    expect((await server.command("get_available_models")).data).toEqual({ models: [] });
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
