/** JSON-RPC 2.0 on the wire: the examples of its specification, ids, params, batches. */

import { describe, expect, test } from "vitest";
import { user } from "../../support/drafts.ts";
import { type Framing, type Json, serveHere, serveInput } from "../../support/server.ts";

const FRAMINGS: Framing[] = ["lines", "headers"];

/** Replies in any order that the specification allows, by id and what they say. */
function told(reply: Json): Json {
  if (Array.isArray(reply)) return reply.map(told).sort((a, b) => String(a).localeCompare(String(b)));
  expect(reply.jsonrpc).toBe("2.0");
  expect(Object.keys(reply).sort()).toEqual(
    "error" in reply ? ["error", "id", "jsonrpc"] : ["id", "jsonrpc", "result"],
  );
  return `${JSON.stringify(reply.id)}: ${reply.error ? reply.error.code : "result"}`;
}

describe.each(FRAMINGS)("the specification's examples, section 7, in %s", (framing) => {
  const examples: [name: string, sent: string, answer: Json][] = [
    ["rpc call", '{"jsonrpc": "2.0", "method": "get_state", "id": 1}', "1: result"],
    [
      "rpc call with named parameters",
      '{"jsonrpc": "2.0", "method": "get_entries", "params": {"limit": 23}, "id": 3}',
      "3: result",
    ],
    [
      "the members in another order",
      '{"id": 4, "params": {"limit": 23}, "method": "get_entries", "jsonrpc": "2.0"}',
      "4: result",
    ],
    [
      "rpc call with positional parameters",
      '{"jsonrpc": "2.0", "method": "get_entries", "params": [42, 23], "id": 2}',
      "2: -32602",
    ],
    ["a notification", '{"jsonrpc": "2.0", "method": "set_label", "params": [1,2,3,4,5]}', undefined],
    ["a notification of a method there is not", '{"jsonrpc": "2.0", "method": "foobar"}', undefined],
    ["rpc call of a method there is not", '{"jsonrpc": "2.0", "method": "foobar", "id": "1"}', '"1": -32601'],
    ["rpc call with invalid JSON", '{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]', "null: -32700"],
    ["rpc call with an invalid request object", '{"jsonrpc": "2.0", "method": 1, "params": "bar"}', "null: -32600"],
    [
      "a batch of invalid JSON",
      '[{"jsonrpc": "2.0", "method": "get_state", "params": {"a": 1}, "id": "1"}, {"jsonrpc": "2.0", "method"]',
      "null: -32700",
    ],
    ["an empty batch", "[]", "null: -32600"],
    ["an invalid batch that is not empty", "[1]", ["null: -32600"]],
    ["an invalid batch", "[1,2,3]", ["null: -32600", "null: -32600", "null: -32600"]],
    [
      "a batch",
      JSON.stringify([
        { jsonrpc: "2.0", method: "get_entries", params: { limit: 1 }, id: "1" },
        { jsonrpc: "2.0", method: "set_session_name", params: { name: "hello" } },
        { jsonrpc: "2.0", method: "get_tree", params: { limit: 4 }, id: "2" },
        { foo: "boo" },
        { jsonrpc: "2.0", method: "foo.get", params: { name: "myself" }, id: "5" },
        { jsonrpc: "2.0", method: "get_state", id: "9" },
      ]),
      ['"1": result', '"2": result', '"5": -32601', '"9": result', "null: -32600"],
    ],
    [
      "a batch of notifications",
      JSON.stringify([
        { jsonrpc: "2.0", method: "get_state", params: {} },
        { jsonrpc: "2.0", method: "get_entries", params: { limit: 7 } },
      ]),
      undefined,
    ],
  ];

  test("get the specified kinds of answers", async () => {
    const server = serveHere(["--no-session", "--events", "none"], { framing });
    for (const [name, sent, answer] of examples) {
      // A request behind it shows where the answer ends, and that there is none where none belongs.
      server.send(sent, { jsonrpc: "2.0", id: name, method: "get_last_assistant_text" });
      const answers: Json[] = [];
      for (let next = await server.next(); next.id !== name; next = await server.next()) answers.push(told(next));
      expect(answers, name).toEqual(answer === undefined ? [] : [answer]);
    }
    // The notification inside the batch took effect.
    expect((await server.result("get_state")).sessionName).toBe("hello");
    expect(await server.finish()).toEqual({ messages: [], status: 0 });
    expect(server.said).toEqual([]);
  });

  test.each(examples)("%s, as the first and only message", async (_name, sent, answer) => {
    const server = serveHere(["--no-session", "--events", "none"], { framing });
    server.send(sent);
    const { messages, status } = await server.finish();
    expect(messages.map(told)).toEqual(answer === undefined ? [] : [answer]);
    expect(status).toBe(0);
  });
});

describe("ids", () => {
  test.each([
    '"x"',
    '""',
    '"5"',
    '"\\u2028\\ud800\\n\\""',
    "5",
    "0",
    "-7",
    "1.5",
    "1e2",
    "9007199254740991",
    "9007199254740993",
    "-9007199254740993",
    "12345678901234567890.5",
    "1e400",
    "null",
  ])("come back as they are: %s", async (id) => {
    const server = serveHere(["--no-session", "--events", "none"]);
    const chunks: Buffer[] = [];
    server.output.on("data", (chunk: Buffer) => chunks.push(chunk));
    for (const method of ["get_state", "nope"]) {
      chunks.length = 0;
      server.send(`{"jsonrpc":"2.0","method":"${method}","id" : ${id}}`);
      expect((await server.next()).jsonrpc).toBe("2.0");
      const [, echoed] =
        /^\{"jsonrpc":"2.0","id":(.*),"(?:result|error)":\{/.exec(Buffer.concat(chunks).toString()) ?? [];
      if (Number.isSafeInteger(JSON.parse(id)) || id.startsWith('"')) expect(JSON.parse(echoed)).toBe(JSON.parse(id));
      else expect(echoed).toBe(id);
    }
  });

  test.each(["{}", '{"a":1}', "[]", "[1]", "true", "false"])("that are none are refused: %s", async (id) => {
    const server = serveHere(["--no-session", "--events", "none"]);
    server.send(`{"jsonrpc":"2.0","id":${id},"method":"set_session_name","params":{"name":"x"}}`);
    const reply = await server.next();
    expect(reply).toMatchObject({ id: null, error: { code: -32600 } });
    expect((await server.result("get_state")).sessionName).toBeNull();
  });

  test('are compared with their type: 5 and "5" are in flight together', async () => {
    const server = serveHere(["--events", "none"]);
    server.send(
      { jsonrpc: "2.0", id: 5, method: "append", params: { entries: [user("number", { id: "n" })] } },
      { jsonrpc: "2.0", id: "5", method: "append", params: { entries: [user("string", { id: "s" })] } },
    );
    expect(await server.take(2)).toMatchObject([
      { id: 5, result: { leafId: "n" } },
      { id: "5", result: { leafId: "s" } },
    ]);
  });

  test("that belong to a request in flight are refused, and that request runs once", async () => {
    const server = serveHere(["--events", "none"]);
    const append = (id: string): Json => ({
      jsonrpc: "2.0",
      id: 7,
      method: "append",
      params: { entries: [user("x", { id })] },
    });
    server.send(append("first"), append("second"), { jsonrpc: "2.0", id: 8, method: "get_state" });
    expect(await server.take(3)).toMatchObject([
      { id: 7, result: { entryIds: ["first"] } },
      { id: 7, error: { code: -32600, data: { name: "invalid_request" } } },
      { id: 8, result: { entryCount: 1, leafId: "first" } },
    ]);
    server.send(append("third"));
    expect(await server.next()).toMatchObject({ id: 7, result: { entryIds: ["third"] } });
  });

  test("that come twice in one batch are refused the second time", async () => {
    const server = serveHere(["--no-session", "--events", "none"]);
    const append = { jsonrpc: "2.0", id: 1, method: "append", params: { entries: [user("x")] } };
    server.send([append, append, { ...append, id: null }, { ...append, id: null }]);
    const codes = (await server.next()).map(({ id, error }: Json) => [id, error?.code]);
    expect(codes).toHaveLength(4);
    expect(codes).toEqual(
      expect.arrayContaining([
        [1, undefined],
        [1, -32600],
        [null, undefined],
      ]),
    );
    expect((await server.result("get_state")).entryCount).toBe(3);
  });

  test("may be used again once the reply is out", async () => {
    const server = serveHere(["--no-session", "--events", "none"]);
    const request = { jsonrpc: "2.0", id: 1, method: "get_state" };
    server.send(request, request);
    expect(await server.take(2)).toMatchObject([{ result: { entryCount: 0 } }, { result: { entryCount: 0 } }]);
  });
});

describe("requests that are none", () => {
  test.each<[string, unknown, unknown]>([
    ["no version", { id: 1, method: "get_state" }, 1],
    ["an older version", { jsonrpc: "1.0", id: 1, method: "get_state" }, 1],
    ["a version that is a number", { jsonrpc: 2.0, id: "a", method: "get_state" }, "a"],
    ["no method", { jsonrpc: "2.0", id: 1 }, 1],
    ["a method that is null", { jsonrpc: "2.0", id: 1, method: null }, 1],
    ["a method that is an object", { jsonrpc: "2.0", id: 1, method: { name: "get_state" } }, 1],
    ["params that are a string", { jsonrpc: "2.0", id: 1, method: "get_state", params: "x" }, 1],
    ["params that are a number", { jsonrpc: "2.0", id: 1, method: "get_state", params: 5 }, 1],
    ["an invalid notification", { jsonrpc: "2.0", method: 5 }, null],
    ["null", null, null],
    ["a number", 5, null],
    ["a string", '"get_state"', null],
    ["an object without anything", {}, null],
  ])("are refused with -32600: %s", async (_what, message, id) => {
    const server = serveHere(["--no-session", "--events", "none", "--dialect", "jsonrpc"]);
    server.send(message === null ? "null" : message);
    expect(await server.next()).toMatchObject({
      jsonrpc: "2.0",
      id,
      error: { code: -32600, data: { name: "invalid_request" } },
    });
    expect((await server.result("get_state")).entryCount).toBe(0);
  });

  test("are told apart from responses, which get no answer", async () => {
    const server = serveHere(["--no-session", "--events", "none"]);
    server.send(
      { jsonrpc: "2.0", id: 1, result: null },
      { jsonrpc: "2.0", id: 2, error: { code: 1, message: "no" } },
      [{ jsonrpc: "2.0", id: 3, result: {} }],
      { jsonrpc: "2.0", id: 4, method: "get_state" },
    );
    expect((await server.next()).id).toBe(4);
  });

  test("are answered -32601 when the method is unknown, whatever the params", async () => {
    const server = serveHere(["--no-session", "--events", "none"]);
    for (const params of [undefined, {}, [1], { a: 1 }])
      expect(await server.failure("no_such_command", params)).toMatchObject({
        code: -32601,
        data: { name: "method_not_found", retryable: false },
      });
    for (const method of ["", "constructor", "__proto__", "toString", "GET_STATE", "get-state", "x".repeat(100_000)])
      expect(await server.failure(method)).toMatchObject({ code: -32601 });
  });

  test("may be notifications of any kind, which change nothing and get no answer", async () => {
    const server = serveHere(["--no-session", "--events", "none"]);
    server.send(
      { jsonrpc: "2.0", method: "$/setTrace", params: { value: "off" } },
      { jsonrpc: "2.0", method: "no_such_command" },
      { jsonrpc: "2.0", method: "append", params: { entries: [] } },
      { jsonrpc: "2.0", method: "append", params: { entries: [user("x")], nope: 1 } },
      { jsonrpc: "2.0", method: "set_label", params: { entryId: "nope", label: "x" } },
      { jsonrpc: "2.0", id: 1, method: "get_state" },
    );
    expect(await server.next()).toMatchObject({ id: 1, result: { entryCount: 0 } });
  });

  test("may be notifications of commands, which run", async () => {
    const server = serveHere(["--events", "none"]);
    server.send({ jsonrpc: "2.0", method: "append", params: { entries: [user("x", { id: "a" })] } });
    expect(await server.result("get_state")).toMatchObject({ entryCount: 1, leafId: "a" });
  });
});

describe("text that is no message", () => {
  test.each<[string, string | Buffer]>([
    ["a log line", "server started on port 3000\n"],
    ["half an object", '{"jsonrpc":"2.0",\n'],
    ["two objects on a line", '{"a":1}{"b":2}\n'],
    ["a lone quote", '"\n'],
    ["NaN", "NaN\n"],
    ["an invalid byte", Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d, 0x0a])],
    ["an encoded surrogate", Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22, 0x0a])],
    ["a character cut short", Buffer.from([0x22, 0xe2, 0x82, 0x22, 0x0a])],
    ["a NUL", "\0\n"],
    ["UTF-16", Buffer.from('{"a":1}\n', "utf16le")],
  ])("is answered with -32700, and the next request with its reply: %s", async (_what, bytes) => {
    const server = serveHere(["--no-session", "--events", "none"]);
    server.write(bytes);
    server.send("", { jsonrpc: "2.0", id: 1, method: "get_state" });
    const replies: Json[] = [];
    do replies.push(await server.next());
    while (replies.at(-1).id !== 1);
    expect(replies.at(-1).result.entryCount).toBe(0);
    expect(replies.length).toBeGreaterThan(1);
    for (const reply of replies.slice(0, -1))
      expect(reply).toMatchObject({ jsonrpc: "2.0", id: null, error: { code: -32700, data: { name: "parse_error" } } });
  });

  test.each<[string, string]>([
    ["arrays", `${"[".repeat(100_000)}${"]".repeat(100_000)}`],
    ["arrays in a batch", `[1,${"[".repeat(100_000)}${"]".repeat(100_000)}]`],
    ["objects", `${'{"a":'.repeat(100_000)}1${"}".repeat(100_000)}`],
    ["an id", `{"jsonrpc":"2.0","method":"get_state","id":${"[".repeat(100_000)}${"]".repeat(100_000)}}`],
    [
      "params",
      `{"jsonrpc":"2.0","method":"get_state","id":1,"params":{"x":${"[".repeat(100_000)}${"]".repeat(100_000)}}}`,
    ],
    ["an unknown member", `{"jsonrpc":"2.0","method":"nope","id":1,"x":${"[".repeat(100_000)}${"]".repeat(100_000)}}`],
  ])("may be as deep as it likes: %s", async (_what, message) => {
    const server = serveHere(["--no-session", "--events", "none"]);
    server.send(message, { jsonrpc: "2.0", id: "after", method: "get_state" });
    const reply = await server.next();
    expect((Array.isArray(reply) ? reply[0] : reply).error.code).toBeLessThanOrEqual(-32600);
    expect((await server.next()).id).toBe("after");
  });

  test("of a deep entry is stored and answered as it is", async () => {
    const server = serveHere(["--no-session", "--events", "none"]);
    const deep = `${"[".repeat(50_000)}${"]".repeat(50_000)}`;
    server.send(
      `{"jsonrpc":"2.0","id":1,"method":"append","params":{"entries":[{"type":"custom","customType":"x","data":${deep}}]}}`,
    );
    expect((await server.next()).result.entryIds).toHaveLength(1);
    expect((await server.result("get_entries")).entries).toHaveLength(1);
  });
});

describe("params", () => {
  test.each<[string, string, unknown, string[]]>([
    ["positional", "append", [[user("x")]], [""]],
    ["positional and empty", "get_state", [], [""]],
    ["missing", "append", undefined, ["entries"]],
    ["missing inside", "append", { entries: [{ message: {} }] }, ["entries.0.type"]],
    ["missing in the second entry", "append", { entries: [user("x"), { type: "message" }] }, ["entries.1.message"]],
    ["of a wrong type", "append", { entries: "x" }, ["entries"]],
    ["null where none is allowed", "set_session_name", { name: null }, ["name"]],
    ["unknown", "append", { entries: [user("x")], nope: 1 }, ["nope"]],
    ["several unknown", "get_state", { a: 1, b: 2 }, ["a", "b"]],
    ["unknown and wrong", "set_label", { entryId: 5, label: "x", lable: "x" }, ["entryId", "lable"]],
    ["not one of those allowed", "get_tree", { format: "deep" }, ["format"]],
    ["out of range", "get_entries", { limit: 0 }, ["limit"]],
    ["a fraction", "get_entries", { limit: 1.5 }, ["limit"]],
    ["no entries", "append", { entries: [] }, ["entries"]],
    ["_meta of a wrong type", "get_state", { _meta: 5 }, ["_meta"]],
  ])("are refused with -32602 and their path, and nothing is changed: %s", async (_what, method, params, paths) => {
    const server = serveHere(["--no-session", "--events", "none"]);
    await server.result("append", { entries: [user("before", { id: "before" })] });
    const error = await server.failure(method, params);
    expect(error).toMatchObject({ code: -32602, data: { name: "invalid_params", retryable: false } });
    expect(error.data.issues.map(({ path }: Json) => path).sort()).toEqual(paths);
    for (const issue of error.data.issues) expect(issue.message).toMatch(/\w/);
    expect(await server.result("get_state")).toMatchObject({ entryCount: 1, leafId: "before" });
  });

  test("may always carry _meta, with anything in it", async () => {
    const server = serveHere(["--no-session", "--events", "none"]);
    const _meta = { progressToken: 1, trace: { a: [1] } };
    expect((await server.result("get_state", { _meta })).entryCount).toBe(0);
    expect((await server.result("append", { entries: [user("x")], _meta })).entryIds).toHaveLength(1);
    expect((await server.result("get_entries")).entries[0]).not.toHaveProperty("_meta");
  });

  test("may be named as members that every object has", async () => {
    const server = serveHere(["--no-session", "--events", "none"]);
    server.send('{"jsonrpc":"2.0","id":1,"method":"get_state","params":{"__proto__":{"limit":1},"constructor":1}}');
    expect(await server.next()).toMatchObject({ id: 1, error: { code: -32602 } });
    expect(({} as Json).limit).toBeUndefined();
  });
});

describe("messages over the limit", () => {
  const big = (id: string, size: number): string =>
    `{"jsonrpc":"2.0","id":${id},"method":"append","params":{"entries":[{"type":"custom","customType":"${"x".repeat(size)}"}]}}`;

  test.each(FRAMINGS)("are answered with their id and the stream goes on, in %s", async (framing) => {
    const server = serveHere(["--no-session", "--events", "none", "--max-message-bytes", "5000"], { framing });
    const fits = big("1", 5000 - big("1", 0).length);
    expect(fits).toHaveLength(5000);
    server.send(fits, big("2", 5001 - big("2", 0).length), big('"three"', 100_000), {
      jsonrpc: "2.0",
      id: 4,
      method: "get_state",
    });
    const error = { code: -32803, data: { name: "message_too_large", limit: 5000 } };
    expect(await server.take(4)).toMatchObject([
      { id: 1, result: {} },
      { id: 2, error: { ...error, data: { ...error.data, size: 5001 } } },
      { id: "three", error },
      { id: 4, result: { entryCount: 1 } },
    ]);
  });

  test("are answered with a null id where that comes late", async () => {
    const server = serveHere(["--no-session", "--events", "none", "--max-message-bytes", "5000"]);
    server.send(`{"jsonrpc":"2.0","method":"append","params":{"x":"${"x".repeat(6000)}"},"id":9}`);
    expect(await server.next()).toMatchObject({
      id: null,
      error: { code: -32803, data: { name: "message_too_large" } },
    });
  });
});

test("every reply is one frame of its own, byte for byte", async () => {
  const requests = [1, 2, 3].map((id) => JSON.stringify({ jsonrpc: "2.0", id, method: "get_last_assistant_text" }));
  const lines = await serveInput(requests.map((text) => `${text}\n`).join(""), ["--no-session", "--events", "none"]);
  const replies = [1, 2, 3].map((id) => `{"jsonrpc":"2.0","id":${id},"result":{"text":null}}`);
  expect(lines).toEqual({ stdout: replies.map((text) => `${text}\n`).join(""), stderr: "", status: 0 });
  const headers = await serveInput(requests.map((text) => `Content-Length: ${text.length}\r\n\r\n${text}`).join(""), [
    "--no-session",
    "--events",
    "none",
  ]);
  expect(headers).toEqual({
    stdout: replies.map((text) => `Content-Length: ${text.length}\r\n\r\n${text}`).join(""),
    stderr: "",
    status: 0,
  });
});
