/** JSON-RPC 2.0 on the wire, beyond what the conformance kit asks of every server. */

import { describe, expect, test } from "vitest";
import { user } from "../../support/drafts.ts";
import { call, type Json, serveHere, serveInput } from "../../support/server.ts";

const QUIET = ["--no-session", "--events", "none"];
const deep = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;

test("an id that is in use is refused, in a batch too, but null is none; it is free again once its reply is out", async () => {
  const server = serveHere(QUIET);
  const append = (id: Json): Json => call(id, "append", { entries: [user("x")] });
  for (const count of [3, 6]) {
    server.send([append(1), append(1), append(null), append(null)]);
    const codes = (await server.next()).map(({ id, error }: Json) => `${id} ${error?.code}`);
    expect(codes.sort()).toEqual(["1 -32600", "1 undefined", "null undefined", "null undefined"]);
    expect((await server.result("get_state")).entryCount).toBe(count);
  }
});

test("the digits of an id come back as they are", async () => {
  for (const id of ["1e2", "-9007199254740993", "12345678901234567890.5", "1e400"]) {
    const { stdout } = await serveInput(`{"jsonrpc":"2.0","method":"get_state","id" : ${id}}\n`, QUIET);
    expect(stdout).toContain(`{"jsonrpc":"2.0","id":${id === "1e2" ? 100 : id},"result":`);
  }
});

test("requests that are none are refused with -32600 and their id, where they have one", async () => {
  const server = serveHere([...QUIET, "--dialect", "jsonrpc"]);
  for (const [message, id] of [
    ['{"id":1,"method":"get_state"}', 1],
    ['{"jsonrpc":2.0,"id":"a","method":"get_state"}', "a"],
    ['{"jsonrpc":"2.0","id":1,"method":{"name":"get_state"}}', 1],
    ['{"jsonrpc":"2.0","id":1,"method":"get_state","params":"x"}', 1],
    ['{"jsonrpc":"2.0","method":5}', null],
    ['{"jsonrpc":"2.0","id":{},"method":"get_state"}', null],
    ["{}", null],
  ] as const) {
    server.send(message);
    const error = { code: -32600, data: { name: "invalid_request" } };
    expect(await server.next(), message).toMatchObject({ jsonrpc: "2.0", id, error });
  }
});

test("responses to nothing get no answer", async () => {
  const server = serveHere(QUIET);
  const error = { code: 1, message: "no" };
  const answers = [{ result: null }, { error }, { result: {} }].map((of, id) => ({ jsonrpc: "2.0", id, ...of }));
  server.send(...answers, [answers[2]], call(4, "get_state"));
  expect((await server.next()).id).toBe(4);
});

test.each(["lines", "headers"] as const)("1,000 requests are answered in order, in %s", async (framing) => {
  const server = serveHere(QUIET, { framing });
  const ids = Array.from({ length: 1000 }, (_, id) => id);
  server.send(...ids.map((id) => call(id, "get_last_assistant_text")));
  expect((await server.take(1000)).map(({ id }) => id)).toEqual(ids);
});

describe("text that is no message", () => {
  test.each([
    ["an invalid byte", Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d, 0x0a])],
    ["an encoded surrogate", Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22, 0x0a])],
    ["a character cut short", Buffer.from([0x22, 0xe2, 0x82, 0x22, 0x0a])],
    ["a line of a log", "server started on port 3000\n"],
    ["a NUL", "\0\n"],
  ])("is answered with -32700, and the next request with its reply: %s", async (_what, bytes) => {
    const server = serveHere(QUIET);
    server.write(bytes);
    server.ask(1, "get_state");
    const [refused, reply] = await server.take(2);
    expect(refused).toMatchObject({ jsonrpc: "2.0", id: null, error: { code: -32700, data: { name: "parse_error" } } });
    expect(reply).toMatchObject({ id: 1, result: { entryCount: 0 } });
  });

  test.each([
    ["arrays in a batch", `[1,${deep}]`],
    ["objects", `${'{"a":'.repeat(100_000)}1${"}".repeat(100_000)}`],
    ["an id", `{"jsonrpc":"2.0","method":"get_state","id":${deep}}`],
    ["params", `{"jsonrpc":"2.0","method":"get_state","id":1,"params":{"x":${deep}}}`],
    ["an unknown member", `{"jsonrpc":"2.0","method":"nope","id":1,"x":${deep}}`],
  ])("may be as deep as it likes: %s", async (_what, message) => {
    const server = serveHere(QUIET);
    server.send(message, call("after", "get_state"));
    const [reply, after] = await server.take(2);
    expect([reply].flat()[0].error.code).toBeLessThanOrEqual(-32600);
    expect(after.id).toBe("after");
  });
});

test("params are refused with -32602 and their paths, also by names that every object has, and nothing is changed", async () => {
  const server = serveHere(QUIET);
  for (const [method, params, paths] of [
    ["append", { entries: [user("x"), { type: "message" }] }, ["entries.1.message"]],
    ["set_label", { entryId: 5, label: "x", lable: "x" }, ["entryId", "lable"]],
    ["get_entries", { limit: 1.5 }, ["limit"]],
    ["get_state", { _meta: 5 }, ["_meta"]],
    ["get_state", JSON.parse('{"__proto__":{"limit":1},"constructor":1}'), ["__proto__", "constructor"]],
  ] as const) {
    const { code, data } = await server.failure(method, params);
    const issues = data.issues.map(({ path }: Json) => path).sort();
    expect([code, data.name, issues]).toEqual([-32602, "invalid_params", paths]);
  }
  expect(({} as Json).limit).toBeUndefined();
  expect((await server.result("get_state")).entryCount).toBe(0);
});

test.each(["lines", "headers"] as const)("a message over the limit has its early id, in %s", async (framing) => {
  const big = (id: string, size: number, before = `"id":${id},`, after = ""): string =>
    `{"jsonrpc":"2.0",${before}"method":"append","params":{"entries":[{"type":"custom","customType":"${"x".repeat(size)}"}]}${after}}`;
  const server = serveHere([...QUIET, "--max-message-bytes", "5000"], { framing });
  const fits = big("1", 5000 - big("1", 0).length);
  expect(fits).toHaveLength(5000);
  const late = big("", 6000, "", ',"id":9');
  server.send(fits, big("2", 5001 - big("2", 0).length), big('"three"', 100_000), late, call(4, "get_state"));
  const error = { code: -32803, data: { name: "message_too_large", limit: 5000 } };
  expect(await server.take(5)).toMatchObject([
    { id: 1, result: {} },
    { id: 2, error: { ...error, data: { ...error.data, size: 5001 } } },
    { id: "three", error },
    { id: null, error },
    { id: 4, result: { entryCount: 1 } },
  ]);
});
