/** One host at the other end: its dialect, its first messages, and its failure to read. */

import { readFileSync } from "node:fs";
import type { PassThrough } from "node:stream";
import { afterEach, describe, expect, test, vi } from "vitest";
import get_state from "../../src/handlers/get_state.ts";
import { findCommand } from "../../src/handlers/shared/find.ts";
import { jsonrpcDialect } from "../../src/server/connection/jsonrpc.ts";
import { user } from "../support/drafts.ts";
import { gatedDisk } from "../support/gated-disk.ts";
import { range } from "../support/random.ts";
import { call, type Framing, frame, type Json, kinds, serveHere } from "../support/server.ts";
import { SYSTEM } from "../support/tiers.ts";

const RPC = (id: number, method = "get_state", params?: Json): Json => call(id, method, params);
const PI = (id: number, type = "get_state"): Json => ({ id, type });
const QUIET = ["--no-session", "--events", "none"];

describe.each<Framing>(["lines", "headers"])("the dialect, in %s", (framing) => {
  test.each<[string, Json, string]>([
    ["a request without version", { id: 1, method: "get_state" }, "jsonrpc"],
    ["a version alone", { jsonrpc: "2.0", id: 1 }, "jsonrpc"],
    ["a request with a type", { ...RPC(1), type: "get_state" }, "jsonrpc"],
    ["a method with a type", { id: 1, method: "x", type: "get_state" }, "jsonrpc"],
    ["a batch", [RPC(1)], "jsonrpc"],
    ["a batch that only begins badly", [1, RPC(1)], "jsonrpc"],
    ["a notification", { jsonrpc: "2.0", method: "get_state" }, "jsonrpc"],
    ["a command without id", { type: "get_state" }, "pi"],
    ["a command that is unknown", PI(1, "prompt"), "pi"],
  ])("is that of the first message: %s", async (_what, first, dialect) => {
    const server = serveHere(["--no-session", "--events", "session_append"], { framing });
    server.send(first, dialect === "pi" ? PI(2) : RPC(2));
    const reply = await server.reply(2);
    expect("jsonrpc" in reply ? "jsonrpc" : reply.type === "response" && "pi").toBe(dialect);
  });

  test("is not decided by what is of none, which gets errors of JSON-RPC", async () => {
    const noObjects = ["5", "null", '"get_state"', "[]", "[1,2,3]", "[[]]", '[{"type":"get_state"}]'];
    const payloads = ["not json", '{"type":"get_state"', ...noObjects, "{}", '{"id":1}', '{"type":null,"id":3}'];
    const server = serveHere(["--no-session"], { framing });
    server.send(...payloads);
    for (const error of (await server.take(payloads.length)).flat())
      expect(error).toMatchObject({ jsonrpc: "2.0", error: { code: expect.any(Number) } });
    server.send(PI(9));
    expect(kinds(await server.take(2))).toEqual(["session_start", "#9"]);
  });

  test("once decided stays", async () => {
    const began = async (of: typeof RPC | typeof PI, other: typeof RPC | typeof PI): Promise<Json[]> => {
      const server = serveHere(QUIET, { framing });
      server.send(of(1), other(2), "not json", of(3));
      return server.take(4);
    };
    const invalid = { id: 2, error: { code: -32600 } };
    expect(await began(RPC, PI)).toMatchObject([
      ...[{ id: 1, result: {} }, invalid, { id: null, error: { code: -32700 } }, { id: 3, result: {} }],
    ]);
    const reply = { type: "response", success: false };
    expect(await began(PI, RPC)).toMatchObject([
      ...[
        { id: 1, success: true },
        { ...reply, id: 2 },
        { ...reply, command: "parse" },
        { id: 3, success: true },
      ],
    ]);
  });
});

// V8 of Node 24 and 26 takes such a name for one with a backslash that an object like it had in its place before.
const ESCAPED = String.raw`"\u006dethod":"get_state","jsonrpc":"2.0"`;
test.each([
  ["jsonrpc", "x-method", String.raw`"\\u006d":1,"jsonrpc":"2.0"`, ESCAPED],
  ["pi", "x-type", String.raw`"\\u00":1`, String.raw`"\u0074ype":"get_state"`],
  ["pi", "x-params", String.raw`"\\u00":1,"type":"get_state"`, String.raw`"\u006eame":"A","type":"set_session_name"`],
])("names written with escapes are what they say, in the dialect %s, after %s", async (dialect, name, before, then) => {
  const server = serveHere([...QUIET, "--dialect", dialect]);
  server.send(`{"${name}":1,${before},"id":1}`, `{"${name}":1,${then},"id":2}`);
  const reply = dialect === "pi" ? { success: true } : { result: { leafId: null } };
  expect((await server.take(2)).at(-1)).toMatchObject({ id: 2, ...reply });
});

describe("session_start", () => {
  test("goes out at once when framing and dialect are given", async () => {
    for (const given of ["lines pi", "lines jsonrpc", "headers jsonrpc"]) {
      const [framing, dialect] = given.split(" ") as [Framing, string];
      const server = serveHere(["--no-session", "--framing", framing, "--dialect", dialect], { framing });
      expect(kinds([await server.next()])).toEqual(["session_start"]);
      server.send(dialect === "pi" ? PI(1) : RPC(1));
      expect(kinds([await server.next()])).toEqual(["#1"]);
    }
  });

  test("comes before the first reply, an error too, and after that to initialize, which nothing precedes", async () => {
    const others = [RPC(1), RPC(1, "nope"), [RPC(1)], [RPC(1, "nope")], PI(1), PI(1, "nope")];
    for (const first of [...others, RPC(1, "initialize"), [RPC(1, "initialize")], PI(1, "initialize")]) {
      const server = serveHere(["--no-session"]);
      server.send(first);
      const replies = await server.take(2);
      if (!others.includes(first)) replies.reverse();
      expect(replies[0].seq ?? replies[0].params.seq).toBe(1);
      expect(kinds(replies), JSON.stringify(first)).toEqual(["session_start", Array.isArray(first) ? "[#1]" : "#1"]);
    }
  });

  test("tells of the session as it was before the first command", async () => {
    const server = serveHere([]);
    server.send(RPC(1, "append", { entries: [user("x")] }));
    const [start, , append] = await server.take(3);
    expect(start.params).toMatchObject({ reason: "startup", leafId: null, seq: 1 });
    expect(append.params.sessionId).toBe(start.params.sessionId);
  });
});

describe("a reader that stalls", () => {
  test("is not sent more than a few megabytes, and no more is taken from it", async () => {
    const server = serveHere(QUIET);
    await server.result("append", { entries: [user("x".repeat(1 << 20))] });
    server.stall();
    const count = 14;
    // Each in a chunk of its own, so that the rest stays in the stream.
    for (let i = 0; i < count; i++) server.ask(1000 + i, "get_entries");
    await vi.waitFor(() => expect((server.input as PassThrough).isPaused()).toBe(true));
    expect(server.output.readableLength + (server.output as Json).writableLength).toBeLessThan(12 << 20);
    // It gets everything in order although the input is over.
    server.end();
    server.resume();
    expect((await server.rest()).map(({ id }) => id)).toEqual(range(1000, 1000 + count));
    expect(await server.done).toBe(0);
  });

  test("is not sent more either of what waited for the disk", SYSTEM, async () => {
    const { disk, waits } = gatedDisk();
    const server = serveHere(["--events", "none"], { disk });
    server.stall();
    const entries = [user("x".repeat(1 << 20), { id: "big" })];
    server.send(RPC(1, "append", { entries }), ...range(2, 16).map((id) => RPC(id, "get_entries")));
    (await waits()).pass();
    await vi.waitFor(() => expect(server.output.readableLength).toBeGreaterThan(0));
    expect((server.output as PassThrough).writableLength).toBeLessThan(12 << 20);
    server.resume();
    expect((await server.take(15)).map(({ id }) => id)).toEqual(range(1, 16));
  });
});

describe("a bug of ours", () => {
  afterEach(() => void vi.restoreAllMocks());

  test("in a command is told by a reference, its stack goes to stderr, and serving goes on", async () => {
    const stderr = vi.spyOn(process.stderr, "write").mockReturnValue(true);
    vi.spyOn(get_state, "run").mockImplementationOnce(() => {
      throw new TypeError("secret detail");
    });
    const server = serveHere(["--no-session"]);
    const error = await server.failure("get_state");
    expect(error).toEqual({
      code: -32603,
      message: expect.stringContaining(error.data.reference),
      data: { name: "internal_error", retryable: false, reference: expect.stringMatching(/\w/) },
    });
    expect(JSON.stringify(error)).not.toContain("secret");
    expect(stderr.mock.calls.flat().join("")).toMatch(
      new RegExp(`${error.data.reference}: TypeError: secret detail\\n +at`),
    );
    expect((await server.result("get_state")).entryCount).toBe(0);
  });

  test.each([
    ["the shape of Pi's reply", () => vi.spyOn(get_state as Required<typeof get_state>, "pi"), PI(1), PI(2)],
    ["reading a message", () => vi.spyOn(jsonrpcDialect, "decode"), RPC(1), RPC(2)],
  ])("in %s is told the same way", async (_what, spyOn, first, second) => {
    vi.spyOn(process.stderr, "write").mockReturnValue(true);
    spyOn().mockImplementationOnce(() => {
      throw new TypeError("secret detail");
    });
    const server = serveHere(QUIET);
    server.send(first, second);
    const [sent, next] = await server.take(2);
    const data = { reference: expect.stringMatching(/\w/) };
    const inJsonRpc = { id: null, error: { code: -32603, data: { name: "internal_error", ...data } } };
    expect(sent).toMatchObject("jsonrpc" in sent ? inJsonRpc : { id: 1, success: false, code: "internal_error", data });
    expect(next).toMatchObject({ id: 2, ...("jsonrpc" in next ? { result: {} } : { success: true }) });
  });
});

test("after it was stopped nothing more is taken, and a message that has begun is no mistake of the host", async () => {
  for (const next of [
    RPC(1, "append", { entries: [user("y")] }),
    '{"jsonrpc":"2.0","id":7,"method":"append","params":',
  ]) {
    const server = serveHere(["--events", "none"]);
    await server.result("append", { entries: [user("x")] });
    if (typeof next === "string") server.write(next);
    server.stop();
    if (typeof next !== "string") server.send(next);
    expect(await server.done).toBe(0);
    expect(await server.rest()).toEqual([]);
  }
});

describe("at the end of the input", () => {
  test("the status is 1 when a reply found the output closed, and 0 when all were sent before", async () => {
    for (const [more, status] of [
      [[RPC(1, "append", { entries: [user("y")] })], 1],
      [[], 0],
    ] as const) {
      const server = serveHere(["--events", "none"]);
      await server.result("append", { entries: [user("x")] });
      server.output.destroy();
      if (more.length > 0) server.send(...more);
      server.end();
      expect(await server.done).toBe(status);
    }
  });

  const READS = "verify_session search_sessions list_sessions get_usage verify_sessions export_session".split(" ");
  const PARAMS: Json = { search_sessions: { query: "x" }, export_session: { format: "jsonl" } };
  const ask = (id: number, method: string): Json => RPC(id, method, PARAMS[method] ?? {});

  test("long reads are answered as long as somebody hears it", async () => {
    const server = serveHere(["--events", "none"], { isHeard: () => true });
    server.input.end(frame("lines", ask(0, "verify_sessions")));
    expect(await server.rest()).toMatchObject([{ id: 0, result: {} }]);
    expect(await server.done).toBe(0);
  });

  test.each(READS)("%s is given up when nobody does, and what writes is done", async (method) => {
    const server = serveHere(["--events", "none"], { isHeard: () => false });
    await server.result("append", { entries: [user("x")] });
    const { sessionFile } = await server.result("get_state");
    const endless = vi
      .spyOn(findCommand(method) as NonNullable<ReturnType<typeof findCommand>>, "run")
      .mockReturnValueOnce(new Promise(() => {}));
    server.send(ask(1, method), ask(2, method), RPC(3, "append", { entries: [user("kept")] }));
    const { messages, status } = await server.finish();
    const failed = { error: { data: { name: "shutting_down" } } };
    expect(messages.sort((a, b) => a.id - b.id)).toMatchObject([failed, failed, { id: 3, result: {} }]);
    expect([status, endless.mock.calls.length]).toEqual([1, 1]);
    expect(readFileSync(sessionFile, "utf8")).toContain("kept");
  });
});
