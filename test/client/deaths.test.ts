/** The order of deaths, answers and handlers, with servers that do what the test says. */

import { PassThrough } from "node:stream";
import { afterEach, expect, onTestFinished, test, vi } from "vitest";
import { MessageStream } from "../../src/client/message-stream.ts";
import { user } from "../support/drafts.ts";
import { type Script, ScriptedServer, STATE, scriptedClient, settled } from "../support/scripted.ts";
import { stopTimers } from "../support/server.ts";

afterEach(() => void vi.useRealTimers());

/** Takes the errors that handlers throw out of the hands of the runner. */
function catchUncaught(): Error[] {
  const caught: Error[] = [];
  const before = process.listeners("uncaughtException");
  process.removeAllListeners("uncaughtException");
  process.on("uncaughtException", (error) => caught.push(error));
  onTestFinished(() => {
    process.removeAllListeners("uncaughtException");
    for (const listener of before) process.on("uncaughtException", listener);
  });
  return caught;
}

/** Throws an error of a handler. */
function fails(of: string): () => never {
  return () => {
    throw new Error(of);
  };
}

/** Returns a script that refuses everything with a failure. */
const refusing =
  (code: number, name: string): Script =>
  ({ id }, itself) => {
    itself.say({ id, error: { code, message: name, data: { name } } });
    return undefined;
  };

const answering: Script = ({ method }) => {
  if (method === "get_state") return STATE;
  return method === "initialize" ? undefined : {};
};

test("a handler that throws harms neither the connection nor what comes after", async () => {
  const caught = catchUncaught();
  const first = new ScriptedServer();
  const client = await scriptedClient([first, new ScriptedServer(answering)]);
  const heard: unknown[] = [];
  client.on("session_tree", fails("of an event"));
  client.on("session_tree", ({ seq }) => heard.push(seq));
  client.onRestart(fails("of a restart"));
  client.onRestart(({ reason }) => heard.push(reason));
  const asked = client.request("list_sessions", {}, { onProgress: fails("of progress") });
  const progress = { method: "$/progress", params: { token: 2, value: { done: 1, total: 2 } } };
  first.say({ method: "session_tree", params: { seq: 1 } }, progress, { method: "session_tree", params: { seq: 2 } });
  first.say({ id: 2, result: {} });
  await asked;
  await settled();
  first.die();
  await settled();
  expect(await client.request("get_state")).toEqual(STATE);
  expect(heard).toEqual([1, 2, "It died."]);
  const messages = caught.map(({ message }) => message).sort();
  expect(messages).toEqual(["of a restart", "of an event", "of an event", "of progress"]);
});

test("params that are no JSON fail their own request, and no other", async () => {
  const server = new ScriptedServer(answering);
  const client = await scriptedClient([server]);
  const circle: Record<string, unknown> = {};
  circle.self = circle;
  const refused = [
    client.request("repair_session", { _meta: { circle } }),
    client.request("append", { entries: [{ type: "custom", customType: "x", data: circle }] }),
  ];
  const after = client.request("append", { entries: [user("x")] });
  for (const request of refused) await expect(request).rejects.toThrow(/circular/i);
  expect(await after).toEqual({});
});

test("what is sent again is what was asked, whatever the caller did to the params since", async () => {
  const first = new ScriptedServer();
  const second = new ScriptedServer(answering);
  const client = await scriptedClient([first, second]);
  const entries = [user("x")];
  const asked = client.request("append", { entries });
  await settled();
  entries.length = 0;
  first.die();
  await asked;
  const [{ params }] = second.heard.filter(({ method }) => method === "append");
  expect(params.entries).toHaveLength(1);
});

test("a signal that outlives its requests is left by them", async () => {
  const client = await scriptedClient([new ScriptedServer(answering)]);
  const { signal } = new AbortController();
  const added = vi.spyOn(signal, "addEventListener");
  const removed = vi.spyOn(signal, "removeEventListener");
  for (let i = 0; i < 3; i++) await client.request("get_state", {}, { signal });
  expect([added.mock.calls.length, removed.mock.calls.length]).toEqual([3, 3]);
});

test("a hook's answer that is no JSON fails the hook", async () => {
  const server = new ScriptedServer();
  await scriptedClient([server], { hooks: { session_before_fork: () => ({ cancel: 1n }) as never } });
  server.say({ id: 0, method: "session_before_fork", params: {} });
  await settled();
  expect(server.heard.at(-1)).toMatchObject({ id: 0, error: { message: expect.stringContaining("BigInt") } });
});

test("a hook's handler that reads after its server died fails, also before there is another", async () => {
  const first = new ScriptedServer();
  let read: Promise<unknown> | undefined;
  await scriptedClient([first, new ScriptedServer(answering)], {
    hooks: {
      session_before_fork: (_, { signal, request }) => {
        signal.addEventListener("abort", () => {
          read = Promise.resolve().then(() => request("get_state"));
          read.catch(() => {});
        });
        return new Promise(() => {});
      },
    },
  });
  first.say({ id: 0, method: "session_before_fork", params: {} });
  await settled();
  first.die();
  await settled();
  await expect(read).rejects.toMatchObject({ name: "connection_closed" });
});

test("closing does not wait for a hook, even in its handler", async () => {
  const server = new ScriptedServer(({ method }) => {
    if (method === "shutdown") server.die();
    return method === "shutdown" ? {} : undefined;
  });
  let closed: Promise<void> | undefined;
  const client = await scriptedClient([server], {
    hooks: {
      session_before_switch: async () => {
        closed = client.close();
        await closed;
      },
    },
  });
  const asked = client.request("new_session");
  server.say({ id: 0, method: "session_before_switch", params: {} });
  await settled();
  expect(server.heard.at(-1)).toMatchObject({ id: 0, error: { code: -32603 } });
  server.say({ id: 2, result: { cancelled: true, reason: "hook_failed" } });
  expect(await asked).toMatchObject({ cancelled: true });
  await closed;
});

test("a server that lives on after its shutdown is ended", async () => {
  stopTimers();
  const server = new ScriptedServer(answering);
  const client = await scriptedClient([server]);
  const closed = client.close();
  await settled();
  expect(server.killed).toBe(0);
  await vi.advanceTimersByTimeAsync(5_000);
  await closed;
  expect(server.killed).toBe(1);
});

test("a server that does not answer any more is ended when it is closed", async () => {
  stopTimers();
  const servers = [new ScriptedServer(), new ScriptedServer()];
  const client = await scriptedClient(servers);
  const asked = client.request("append", { entries: [user("x")] });
  const outcome = expect(asked).rejects.toMatchObject({ name: "outcome_unknown" });
  const closed = client.close();
  await vi.advanceTimersByTimeAsync(50_000);
  // A message in the meantime gives it more time.
  servers[0].say({ method: "session_tree", params: {} });
  await vi.advanceTimersByTimeAsync(50_000);
  expect(servers[0].killed).toBe(0);
  await vi.advanceTimersByTimeAsync(80_000);
  await closed;
  await outcome;
  expect(servers.map(({ killed }) => killed)).toEqual([1, 1]);
});

test("a server that was asked to shut down has not died: no other takes its place", async () => {
  const servers = [new ScriptedServer(answering), new ScriptedServer(answering)];
  const client = await scriptedClient(servers);
  await client.request("shutdown");
  servers[0].die();
  await settled();
  await expect(client.request("get_state")).rejects.toMatchObject({ name: "connection_closed" });
  expect(servers[1].heard).toEqual([]);
  await client.close();
});

test("a server that refuses to be introduced to is not left behind", async () => {
  stopTimers();
  const server = new ScriptedServer(refusing(-32602, "invalid_params"));
  await expect(scriptedClient([server])).rejects.toMatchObject({ name: "invalid_params" });
  await vi.advanceTimersByTimeAsync(5_000);
  expect(server.killed).toBe(1);
});

test("after a server was given up, no other is started when it ends", async () => {
  stopTimers();
  const state = { sessionId: "new", sessionFile: "/new.jsonl", persisted: false };
  const unpersisted: Script = ({ method }) => {
    if (method === "initialize") return { state };
    return method === "get_state" ? state : { entries: [{ type: "session_info", name: "n" }] };
  };
  const first = new ScriptedServer(unpersisted);
  const full = refusing(-32803, "storage_full");
  const second = new ScriptedServer((...heard) => (heard[0].method === "append" ? full : unpersisted)(...heard));
  const third = new ScriptedServer(unpersisted);
  const client = await scriptedClient([first, second, third]);
  first.die();
  await settled();
  await expect(client.request("get_state")).rejects.toMatchObject({ name: "connection_closed" });
  await vi.advanceTimersByTimeAsync(5_000);
  await client.close();
  expect([second.killed, third.heard]).toEqual([1, []]);
});

test("a branch that is sent again and does not find the leaf that it expects may have been done", async () => {
  const first = new ScriptedServer();
  const modified = refusing(-32001, "content_modified");
  const second = new ScriptedServer((...heard) => (heard[0].id === 3 ? undefined : modified(...heard)));
  const client = await scriptedClient([first, second]);
  const branch = () => client.request("branch", { entryId: "a", expectedLeafId: "b" });
  const asked = branch();
  await settled();
  first.die();
  await expect(asked).rejects.toMatchObject({ name: "outcome_unknown" });
  await expect(branch()).rejects.toMatchObject({ name: "content_modified" });
});

test("what a wrapper prints is not taken for a reply, and messages without params do no harm", async () => {
  const server = new ScriptedServer();
  const client = await scriptedClient([server]);
  const asked = client.request("get_state");
  await settled();
  server.say("starting the server ...", "[]", "null", '{"level":"info","id":2}');
  server.say({ method: "$/progress" }, { method: "$/cancelRequest" });
  server.say({ id: 2, result: STATE });
  expect(await asked).toEqual(STATE);
});

test("a reply that no string can hold fails its request, and what comes after it is read", async () => {
  const input = new PassThrough();
  const heard: unknown[] = [];
  new MessageStream(input, new PassThrough(), 100).onMessage((message) => heard.push(message));
  const long = `{"jsonrpc":"2.0","id":7,"result":"${"x".repeat(1_000)}"}\n`;
  for (const piece of [long.slice(0, 60), long.slice(60, 500), long.slice(500)]) input.write(piece);
  for (const byte of Buffer.from('{"jsonrpc":"2.0","id":8,"result":"é😀"}\n')) input.write(Uint8Array.of(byte));
  await settled();
  expect(heard).toMatchObject([
    { id: 7, error: { data: { name: "message_too_large" } } },
    { id: 8, result: "é😀" },
  ]);
});

test("events are not kept for an iterator that was returned or aborted before it was read", async () => {
  const server = new ScriptedServer();
  const client = await scriptedClient([server]);
  const controller = new AbortController();
  const returned = client.events(["session_tree"]);
  const aborted = client.events(["session_tree"], { signal: controller.signal });
  const waiting = client.events(["session_tree"]);
  const next = waiting.next();
  await returned.return?.();
  controller.abort();
  await waiting.return?.();
  server.say({ method: "session_tree", params: { seq: 1 } });
  await settled();
  expect(await Promise.all([returned.next(), aborted.next(), next])).toEqual(
    Array.from({ length: 3 }, () => ({ done: true, value: undefined })),
  );
});
