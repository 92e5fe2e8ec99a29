/** The mistakes that people make who write a host, and the sentence that each gets. */

import { describe, expect, test } from "vitest";
import { user } from "../support/drafts.ts";
import { type Framing, frame, type Json, serveHere } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

const ASK = '{"jsonrpc":"2.0","id":1,"method":"get_state"}';

/** Returns the first reply to bytes that begin a conversation. */
async function replyTo(text: string | Buffer, framing: Framing = "lines", args: string[] = []): Promise<Json> {
  const server = serveHere(["--no-session", "--events", "none", ...args], { framing });
  server.write(text);
  return server.next();
}

const MISTAKES: readonly [
  mistake: string,
  sent: string | Buffer,
  framing: Framing,
  code: number,
  sentence: RegExp,
  args?: string[],
][] = [
  [
    "a pretty-printed message",
    `${JSON.stringify(JSON.parse(ASK), null, 2)}\n`,
    "lines",
    -32700,
    /ends too early.*one message per line/,
  ],
  ["the rest of one", '  "method": "get_state"\n', "lines", -32700, /several lines.*one message per line/],
  ["single quotes", "{'jsonrpc':'2.0','id':1,'method':'get_state'}\n", "lines", -32700, /double quotes/],
  ["members without quotes", "{jsonrpc: '2.0'}\n", "lines", -32700, /double quotes/],
  [
    "a comma at the end",
    '{"jsonrpc":"2.0","id":1,"method":"get_state",}\n',
    "lines",
    -32700,
    /comma with nothing after it/,
  ],
  [
    "a header where lines are asked for",
    "Content-Length: 5\n",
    "lines",
    -32700,
    /--framing headers/,
    ["--framing", "lines"],
  ],
  [
    "a line where headers are asked for",
    `${ASK}\nContent-Length: 2\r\n\r\n{}`,
    "headers",
    -32700,
    /Content-Length: <bytes>.*--framing lines/,
    ["--framing", "headers"],
  ],
  [
    "a length in characters",
    'Content-Length: 55\r\n\r\n{"jsonrpc":"2.0","id":1,"method":"get_state","_":"éééé"}',
    "headers",
    -32700,
    /bytes, not characters/,
  ],
  [
    "another case and shape of a name",
    frame("lines", { jsonrpc: "2.0", id: 1, method: "getState" }),
    "lines",
    -32601,
    /Did you mean get_state\?/,
  ],
  [
    "a name with a typing error",
    frame("lines", { jsonrpc: "2.0", id: 1, method: "get_mesages" }),
    "lines",
    -32601,
    /Did you mean get_messages\?/,
  ],
  [
    "a name with a prefix",
    frame("lines", { jsonrpc: "2.0", id: 1, method: "session/fork" }),
    "lines",
    -32601,
    /Did you mean fork\?/,
  ],
  [
    "a name that is like no other",
    frame("lines", { jsonrpc: "2.0", id: 1, method: "tools/call" }),
    "lines",
    -32601,
    /rpc\.discover lists/,
  ],
  [
    "an entry as model APIs have messages",
    frame("lines", { jsonrpc: "2.0", id: 1, method: "append", params: { entries: [{ role: "user", content: "x" }] } }),
    "lines",
    -32602,
    /\{"type":"message","message":\{"role":"user"/,
  ],
  ...[
    ["add_message", "append"],
    ["send_message", "append"],
    ["save", "append"],
    ["create_session", "new_session"],
    ["session_new", "new_session"],
    ["session/new", "new_session"],
    ["session/load", "switch_session"],
    ["history", "get_messages"],
    ["getHistory", "get_messages"],
    ["messages", "get_messages"],
    ["sessions", "list_sessions"],
    ["checkout", "branch"],
    ["status", "get_state"],
  ].map(([method, meant]): (typeof MISTAKES)[number] => [
    `another word, ${method}`,
    frame("lines", { jsonrpc: "2.0", id: 1, method }),
    "lines",
    -32601,
    new RegExp(`Did you mean ${meant}\\?`),
  ]),
  ["a bare word", "get_state\n", "lines", -32700, /\{"jsonrpc":"2\.0","id":1,"method":"get_state"\}/],
  ["words", "hello there\n", "lines", -32700, /\{"jsonrpc":"2\.0","id":1,"method":"get_state"\}/],
  [
    "Python's values",
    '{"jsonrpc":"2.0","id":1,"method":"get_state","params":None}\n',
    "lines",
    -32700,
    /null, true and false.*json\.dumps/,
  ],
  ["Python's True", '{"a":[True]}\n', "lines", -32700, /null, true and false/],
  ["two messages on one line", `${ASK}${ASK}\n`, "lines", -32700, /another one follows it.*one message per line/],
  [
    "two messages in one frame",
    frame("headers", `${ASK} ${ASK}`),
    "headers",
    -32700,
    /another one follows it.*Content-Length/,
  ],
  ["HTTP", "POST /rpc HTTP/1.1\r\nHost: x\r\n\r\n", "lines", -32700, /HTTP.*stdin and stdout/],
  ["a browser", "GET / HTTP/1.1\r\n\r\n", "lines", -32700, /HTTP.*stdin and stdout/],
  ["UTF-16", Buffer.from(`${ASK}\n`, "utf16le"), "lines", -32700, /UTF-16.*UTF-8/],
  ["UTF-16 with its mark", Buffer.from(`\ufeff${ASK}\n`, "utf16le"), "lines", -32700, /UTF-16.*UTF-8/],
  ["UTF-16, big end first", Buffer.from(`${ASK}\n`, "utf16le").swap16(), "lines", -32700, /UTF-16.*UTF-8/],
  [
    "a cancellation with an id",
    frame("lines", { jsonrpc: "2.0", id: 5, method: "$/cancelRequest", params: { id: 4 } }),
    "lines",
    -32601,
    /\$\/cancelRequest is a notification: .*no id of its own.*params\.id/,
  ],
  [
    "a message of Pi's dialect",
    frame("lines", { id: 1, type: "get_state" }),
    "lines",
    -32600,
    /speaks JSON-RPC.*first message.*--dialect pi/,
    ["--dialect", "jsonrpc"],
  ],
  ["no jsonrpc member", frame("lines", { id: 1, method: "get_state" }), "lines", -32600, /"2\.0"/],
];

describe("a mistake gets a sentence that says what to send", () => {
  test.each(MISTAKES)("%s", async (_mistake, sent, framing, code, sentence, args) => {
    const { error } = await replyTo(sent, framing, args);
    expect(error.code).toBe(code);
    expect(error.message).toMatch(sentence);
  });

  test("the same in a conversation, and after a message of the other dialect", async () => {
    const server = serveHere(["--no-session", "--events", "none"]);
    server.send(
      { jsonrpc: "2.0", id: 1, method: "get_state" },
      { type: "get_state", id: 2 },
      { id: 3, method: "get_state" },
    );
    const [, other, incomplete] = await server.take(3);
    expect(other).toMatchObject({ id: 2, error: { code: -32600, message: expect.stringMatching(/speaks JSON-RPC/) } });
    expect(incomplete.error.message).toMatch(/"2\.0"/);
    const pi = serveHere(["--no-session", "--events", "none"]);
    pi.send({ type: "get_state", id: "1" }, { jsonrpc: "2.0", id: "2", method: "get_state" });
    const [, refused] = await pi.take(2);
    expect(refused).toMatchObject({ id: "2", success: false, code: "invalid_request" });
    expect(refused.error).toMatch(/speaks Pi's dialect.*first message.*--dialect jsonrpc/);
  });

  acrossTiers(test, [1 << 18, 1 << 20])("a hint takes bounded work, whatever is sent, of %i bytes", async (most) => {
    const server = serveHere(["--no-session", "--events", "none"]);
    for (const text of [",", ", ", "[", "{", '"', "None", ": ", "x"])
      server.write(`[${text.repeat(most / text.length)}!\n`);
    for (const { error } of await server.take(8)) expect(error.code).toBe(-32700);
  });

  test("what is sent is not in it, and the next message is answered", async () => {
    const server = serveHere(["--no-session", "--events", "none"], { framing: "lines" });
    server.write('{"secret": "hunter2"\n');
    expect((await server.next()).error.message).not.toContain("hunter2");
    server.write(`${ASK}\n`);
    expect((await server.next()).result).toHaveProperty("leafId");
  });

  test("an unknown command of Pi's dialect names the nearest, too", async () => {
    const server = serveHere(["--mode", "rpc", "--no-session"]);
    server.write('{"id":"1","type":"getForkMessages"}\n');
    expect(await server.next()).toMatchObject({
      success: false,
      code: "unknown_command",
      error: /Did you mean get_fork_messages\?/,
    });
  });
});

test("initialize takes what hosts of language servers send, and not what an agent's client sends", async () => {
  const server = serveHere(["--no-session", "--events", "none", "--dialect", "jsonrpc"]);
  const params = {
    processId: 1,
    clientInfo: { name: "editor" },
    locale: "en",
    rootPath: "/x",
    rootUri: null,
    trace: "off",
    workspaceFolders: [{ uri: "file:///x", name: "x" }],
    capabilities: { textDocument: {} },
  };
  const failure = await server.failure("initialize", { protocolVersion: 1, clientCapabilities: {} });
  expect(failure.data.issues).toMatchObject([{ path: "clientCapabilities" }]);
  expect(await server.result("initialize", params)).toHaveProperty("serverInfo");
});

test("initialize tells which events and hooks it does not know, and takes the others", async () => {
  const server = serveHere(["--no-session"]);
  const { ignored } = await server.result("initialize", {
    capabilities: {
      events: ["session_append", "session_appended"],
      hooks: [{ name: "session_before_frok" }, { name: "session_before_switch" }, { name: "toString" }],
    },
  });
  expect(ignored).toEqual([
    { path: "capabilities.events.1", name: "session_appended" },
    { path: "capabilities.hooks.0.name", name: "session_before_frok" },
    { path: "capabilities.hooks.2.name", name: "toString" },
  ]);
  server.send({ jsonrpc: "2.0", id: "n", method: "new_session" });
  expect(await server.next()).toMatchObject({ method: "session_before_switch" });
});

test("initialize ignores nothing of a host that names what there is", async () => {
  const server = serveHere(["--no-session", "--events", "none"]);
  const { capabilities } = await server.result("initialize", {
    capabilities: { events: ["session_tree"], hooks: [{ name: "session_before_tree" }] },
  });
  const again = serveHere(["--no-session", "--events", "none"]);
  const { events, hooks } = capabilities;
  const all = { capabilities: { events, hooks: hooks.map((name: string) => ({ name })) } };
  expect(await again.result("initialize", all)).not.toHaveProperty("ignored");
});

test("initialize is answered whole, whatever the host takes; others name the command", async () => {
  const server = serveHere(["--no-session", "--events", "none"]);
  expect(await server.result("initialize", { maxReplyBytes: 1024 })).toHaveProperty("capabilities");
  const { data, message } = await server.failure("rpc.discover");
  expect(data.name).toBe("message_too_large");
  expect(message).toMatch(/The reply to rpc\.discover .*1024.*initialize/);
  await server.result("append", { entries: [user("x".repeat(2000))] });
  expect((await server.failure("get_messages")).message).toMatch(/reply to get_messages.*limit and cursor/);
  const batch = serveHere(["--no-session", "--events", "none"]);
  batch.send([
    { jsonrpc: "2.0", id: 1, method: "initialize", params: { maxReplyBytes: 1024 } },
    { jsonrpc: "2.0", id: 2, method: "get_last_assistant_text" },
  ]);
  const [first, second] = await batch.next();
  expect([Object.keys(first.result), second.result]).toEqual([
    expect.arrayContaining(["capabilities"]),
    { text: null },
  ]);
});

test("params that are null are none: nil of several languages is sent so", async () => {
  const server = serveHere(["--no-session", "--events", "none"]);
  expect(await server.result("get_state", null as never)).toHaveProperty("leafId");
  expect((await server.failure("fork", null as never)).data.issues).toMatchObject([{ path: "entryId" }]);
});
