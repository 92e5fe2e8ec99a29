/** The mistakes that people make who write a host, and the sentence that each gets. */

import { describe, expect, test } from "vitest";
import { user } from "../support/drafts.ts";
import { call, type Framing, frame, type Json, serveHere } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

const QUIET = ["--no-session", "--events", "none"];
const ASK = '{"jsonrpc":"2.0","id":1,"method":"get_state"}';

/** Returns the first reply to bytes that begin a conversation. */
async function replyTo(text: string | Buffer, framing: Framing = "lines", args: string[] = []): Promise<Json> {
  const server = serveHere([...QUIET, ...args], { framing });
  server.write(text);
  return server.next();
}

/** The bytes of a request, in a line. */
const asked = (method: string, params?: Json, id = 1): string => frame("lines", call(id, method, params));

const AS_OF_MODELS = asked("append", { entries: [{ role: "user", content: "x" }] });
const OF_PI = frame("lines", { id: 1, type: "get_state" });
const PRETTY = JSON.stringify(JSON.parse(ASK), null, 2);
const LINE = `${ASK}\nContent-Length: 2\r\n\r\n{}`;

/** A first message that is right for hosts and for editors. */
const FIRST = /such as \{"jsonrpc":"2\.0","id":1,"method":"initialize","params":\{"protocolVersion":1\}\}/;

/** The input in lines; the code, the sentence and the options. */
type Mistake = [mistake: string, sent: string | Buffer, code: number, sentence: RegExp, args?: string[]];

const IN_LINES: readonly Mistake[] = [
  ["a pretty-printed message", `${PRETTY}\n`, -32700, /ends too early.*one message per line/],
  ["the rest of one", '  "method": "get_state"\n', -32700, /several lines.*one message per line/],
  ["single quotes", "{'jsonrpc':'2.0','id':1,'method':'get_state'}\n", -32700, /double quotes/],
  ["members without quotes", "{jsonrpc: '2.0'}\n", -32700, /double quotes/],
  ["a comma at the end", '{"id":1,"method":"get_state",}\n', -32700, /comma with nothing after it/],
  ["a header where lines are asked for", "Content-Length: 5\n", -32700, /--framing headers/, ["--framing", "lines"]],
  ["another case and shape of a name", asked("getState"), -32601, /Did you mean get_state\?/],
  ["a name with a typing error", asked("get_mesages"), -32601, /Did you mean get_messages\?/],
  ["a name with a prefix", asked("session/fork"), -32601, /Did you mean fork\?/],
  ["a name that is like no other", asked("tools/call"), -32601, /rpc\.discover lists/],
  ["an entry as model APIs have messages", AS_OF_MODELS, -32602, /\{"type":"message","message":\{"role":"user"/],
  ...[
    ["append", "add_message", "send_message", "save"],
    ["new_session", "create_session", "session_new", "session/new"],
    ["switch_session", "session/load"],
    ["get_messages", "history", "getHistory", "messages"],
    ["list_sessions", "sessions"],
    ["branch", "checkout"],
    ["get_state", "status"],
  ].flatMap(([meant, ...words]) =>
    words.map(
      (word): Mistake => [`another word, ${word}`, asked(word), -32601, new RegExp(`Did you mean ${meant}\\?`)],
    ),
  ),
  ["a bare word", "get_state\n", -32700, FIRST],
  ["words", "hello there\n", -32700, FIRST],
  ["words of an editor", "hello there\n", -32700, FIRST, ["--dialect", "acp"]],
  ["Python's values", '{"id":1,"method":"x","params":None}\n', -32700, /null, true and false.*json\.dumps/],
  ["Python's True", '{"a":[True]}\n', -32700, /null, true and false/],
  ["two messages on one line", `${ASK}${ASK}\n`, -32700, /another one follows it.*one message per line/],
  ["HTTP", "POST /rpc HTTP/1.1\r\nHost: x\r\n\r\n", -32700, /HTTP.*stdin and stdout/],
  ["a browser", "GET / HTTP/1.1\r\n\r\n", -32700, /HTTP.*stdin and stdout/],
  ["UTF-16", Buffer.from(`${ASK}\n`, "utf16le"), -32700, /UTF-16.*UTF-8/],
  ["UTF-16 with its mark", Buffer.from(`\ufeff${ASK}\n`, "utf16le"), -32700, /UTF-16.*UTF-8/],
  ["UTF-16, big end first", Buffer.from(`${ASK}\n`, "utf16le").swap16(), -32700, /UTF-16.*UTF-8/],
  ["a cancellation with an id", asked("$/cancelRequest", { id: 4 }, 5), -32601, /is a notification: .*params\.id/],
  ["a message of Pi's dialect", OF_PI, -32600, /speaks JSON-RPC.*--dialect pi/, ["--dialect", "jsonrpc"]],
  ["no jsonrpc member", frame("lines", { id: 1, method: "get_state" }), -32600, /"2\.0"/],
];

const IN_HEADERS: readonly Mistake[] = [
  ["a line where headers are asked for", LINE, -32700, /<bytes>.*--framing lines/, ["--framing", "headers"]],
  ["a length in characters", 'Content-Length: 23\r\n\r\n{"method":"x","_":"éé"}', -32700, /bytes, not characters/],
  ["two messages in one frame", frame("headers", `${ASK} ${ASK}`), -32700, /another one follows it.*Content-Length/],
];

describe("a mistake gets a sentence that says what to send", () => {
  const getsIt =
    (framing: Framing) =>
    async (_mistake: string, sent: string | Buffer, code: number, sentence: RegExp, args?: string[]) => {
      const { error } = await replyTo(sent, framing, args);
      expect(error).toMatchObject({ code, message: expect.stringMatching(sentence) });
    };

  test.each(IN_LINES)("%s", getsIt("lines"));
  test.each(IN_HEADERS)("%s, in headers", getsIt("headers"));

  acrossTiers(test, [1 << 18, 1 << 20])("a hint takes bounded work, whatever is sent, of %i bytes", async (most) => {
    const server = serveHere(QUIET);
    for (const text of [",", ", ", "[", "{", '"', "None", ": ", "x"])
      server.write(`[${text.repeat(most / text.length)}!\n`);
    for (const { error } of await server.take(8)) expect(error.code).toBe(-32700);
  });

  test("what is sent is not in it", async () => {
    expect((await replyTo('{"secret": "hunter2"\n')).error.message).not.toContain("hunter2");
  });

  test("an unknown command of Pi's dialect names the nearest, too", async () => {
    const reply = await serveHere(["--mode", "rpc", "--no-session"]).command("getForkMessages");
    expect(reply).toMatchObject({ success: false, code: "unknown_command" });
    expect(reply.error).toMatch(/Did you mean get_fork_messages\?/);
  });
});

test("initialize takes what hosts of language servers send, and not what an agent's client sends", async () => {
  const server = serveHere([...QUIET, "--dialect", "jsonrpc"]);
  const workspaceFolders = [{ uri: "file:///x", name: "x" }];
  const folders = { rootPath: "/x", rootUri: null, workspaceFolders };
  const params = { processId: 1, clientInfo: { name: "editor" }, locale: "en", trace: "off", ...folders };
  const failure = await server.failure("initialize", { protocolVersion: 1, clientCapabilities: {} });
  expect(failure.data.issues).toMatchObject([{ path: "clientCapabilities" }]);
  expect(await server.result("initialize", { ...params, capabilities: { textDocument: {} } })).toHaveProperty(
    "serverInfo",
  );
});

test("initialize names the events and hooks that it does not know, takes the others, and ignores none that there is", async () => {
  const server = serveHere(["--no-session"]);
  const names = ["session_before_frok", "session_before_switch", "toString"];
  const hooksOf = names.map((name, n) => ({ name, ...(n === 1 ? { on_timeout: "continue" } : {}) }));
  const wanted = { events: ["session_append", "session_appended"], hooks: hooksOf, hook: hooksOf };
  const { ignored, capabilities } = await server.result("initialize", { capabilities: wanted });
  expect(ignored).toEqual([
    { path: "capabilities.hook", name: "hook" },
    { path: "capabilities.hooks.1.on_timeout", name: "on_timeout" },
    { path: "capabilities.events.1", name: "session_appended" },
    { path: "capabilities.hooks.0.name", name: "session_before_frok" },
    { path: "capabilities.hooks.2.name", name: "toString" },
  ]);
  server.ask("n", "new_session");
  expect(await server.next()).toMatchObject({ method: "session_before_switch" });
  const { events, hooks } = capabilities;
  const all = { capabilities: { events, hooks: hooks.map((name: string) => ({ name })) } };
  expect(await serveHere(QUIET).result("initialize", all)).not.toHaveProperty("ignored");
});

test("a change is answered whole, whatever the host takes, because it is done", async () => {
  const server = serveHere(QUIET);
  await server.result("initialize", { maxReplyBytes: 1024 });
  const { entryIds } = await server.result("append", { entries: Array.from({ length: 300 }, () => user("x")) });
  expect(entryIds).toHaveLength(300);
  expect((await server.failure("get_context")).data.name).toBe("message_too_large");
});

test("initialize is answered whole, whatever the host takes; others name the command", async () => {
  const server = serveHere(QUIET);
  expect(await server.result("initialize", { maxReplyBytes: 1024 })).toHaveProperty("capabilities");
  const { data, message } = await server.failure("rpc.discover");
  expect(data.name).toBe("message_too_large");
  expect(message).toMatch(/The reply to rpc\.discover .*1024.*initialize/);
  await server.result("append", { entries: [user("x".repeat(2000))] });
  expect((await server.failure("get_messages")).message).toMatch(/reply to get_messages.*limit and cursor/);
  const batch = serveHere(QUIET);
  batch.send([call(1, "initialize", { maxReplyBytes: 1024 }), call(2, "get_last_assistant_text")]);
  expect(await batch.next()).toMatchObject([{ result: { capabilities: {} } }, { result: { text: null } }]);
});

test("params that are null are none: nil of several languages is sent so", async () => {
  const server = serveHere(QUIET);
  expect(await server.result("get_state", null as never)).toHaveProperty("leafId");
  expect((await server.failure("fork", null as never)).data.issues).toMatchObject([{ path: "entryId" }]);
});
