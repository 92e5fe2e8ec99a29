/** The typed client against the built server and over any streams. */

import { PassThrough } from "node:stream";
import { expect, expectTypeOf, onTestFinished, test } from "vitest";
import type * as z from "zod";
import type * as api from "../../src/client/index.ts";
import { connect, RequestFailure, spawnServer } from "../../src/client/index.ts";
import type { entryTypes, messageRoles } from "../../src/core/format/schemas.ts";
import { PROGRAM } from "../support/build.ts";
import { assistant, user } from "../support/drafts.ts";
import { programEnvironment, serveHere, temporaryPlace } from "../support/server.ts";
import { SYSTEM } from "../support/tiers.ts";

type Commands = api.Commands;
type SpawnOptions = api.SpawnOptions;

async function spawned(options: SpawnOptions = {}): Promise<api.SpawnedClient> {
  const place = temporaryPlace();
  const common = { program: PROGRAM, cwd: place.cwd, env: programEnvironment(place), onStderr: () => {} };
  const client = await spawnServer({ ...common, ...options });
  onTestFinished(() => client.close());
  return client;
}

/** A client of a server in this process, for what does not depend on how that was started. */
async function connected(options: Pick<SpawnOptions, "hooks"> = {}, ...args: string[]): Promise<api.Client> {
  const server = serveHere(["--no-session", ...args]);
  server.output.removeAllListeners("data");
  const client = await connect(server.output, server.input, options);
  onTestFinished(() => client.close());
  return client;
}

test("asks and is answered, hears events, and ends the server; then nothing is done any more", SYSTEM, async () => {
  const client = await spawned({ args: ["--no-session"] });
  expect(client.state).toMatchObject({ store: "memory", leafId: null });
  const events: unknown[] = [];
  const stop = client.on("session_append", ({ entryIds, leafId }) => events.push([entryIds, leafId]));
  client.on("session_append", ({ origin }) => events.push(origin));
  const { entryIds } = await client.request("append", {
    entries: [user("one", { id: "a" }), assistant("two", { id: "b" })],
  });
  expect(entryIds).toEqual(["a", "b"]);
  await client.request("get_state");
  stop();
  await client.request("set_session_name", { name: "n", expectedLeafId: "b" });
  expect((await client.request("get_state")).sessionName).toBe("n");
  expect(events).toEqual([[["a", "b"], "b"], "self", "self"]);
  await Promise.all([client.close(), client.close()]);
  await client.close();
  expect(client.pid).toBeUndefined();
  await expect(client.request("get_state")).rejects.toMatchObject({ name: "connection_closed" });
});

test("a failure has the protocol's name, code and data, says which command failed, and its stack who asked", async () => {
  const client = await connected({
    hooks: { session_before_switch: (_, { request }) => request("get_entry", { entryId: "none" }) as Promise<never> },
  });
  // @ts-expect-error there is no such command
  await expect(client.request("no_such")).rejects.toMatchObject({ name: "method_not_found", code: -32601 });
  const asksForNothing = async (): Promise<unknown> => await client.request("branch", { entryId: "none" });
  const failure = (await asksForNothing().catch((error) => error)) as RequestFailure;
  expect(failure).toBeInstanceOf(RequestFailure);
  const expected = { name: "entry_not_found", code: -32002, retryable: false, data: { entryId: "none" } };
  expect(failure).toMatchObject({ ...expected, command: "branch", message: expect.stringMatching(/^branch: /) });
  expect(failure.stack).toMatch(/asksForNothing(?:.|\n)*client\.test\.ts/);
  const paged = client.pages("get_entries", { cursor: "none" }).next();
  const message = expect.stringMatching(/^get_entries: /);
  await expect(paged).rejects.toMatchObject({ command: "get_entries", message });
  await client.close();
  const late = client.request("get_state");
  await expect(late).rejects.toMatchObject({ name: "connection_closed", command: "get_state" });
});

test("a server that cannot start, or a program that is not there, is told by what it said", SYSTEM, async () => {
  await expect(spawned({ args: ["--no-such-option"] })).rejects.toThrow(
    /ended with status 2\. It said: .*no-such-option/s,
  );
  for (const program of ["/no/such/program.js", ["/no/such/program"]] as const) {
    const failure = await spawned({ program }).catch((error) => error);
    expect(failure).toBeInstanceOf(RequestFailure);
    expect(failure.name).toBe("connection_closed");
    expect(failure.message).toMatch(/^There is no program at \/no\/such\/program/);
  }
  await expect(spawned({ cwd: "/no/such/folder", program: [process.execPath] })).rejects.toThrow(
    /or no folder \/no\/such\/folder\./,
  );
});

test("hooks are handlers; they may read meanwhile, and an error in one stops the action", async () => {
  const seen: unknown[] = [];
  const client = await connected({
    hooks: {
      session_before_fork: async ({ entryId, position }, { request }) => {
        const { messages } = await request("get_messages");
        seen.push([entryId, position, messages.length]);
        return { cancel: entryId === "a" };
      },
      session_before_switch: () => {
        throw new Error("not now");
      },
      session_before_tree: () => {},
    },
  });
  await client.request("append", { entries: [user("one", { id: "a" }), user("two", { id: "b" })] });
  const refused = { cancelled: true, reason: "hook" };
  expect(await client.request("fork", { entryId: "a", position: "at" })).toMatchObject(refused);
  expect(await client.request("new_session")).toMatchObject({ cancelled: true, reason: "hook_failed" });
  expect(await client.request("branch", { entryId: "a" })).toMatchObject({ cancelled: false, leafId: "a" });
  expect(await client.request("fork", { entryId: "b" })).toMatchObject({ cancelled: false, text: "two" });
  expect(seen).toEqual([
    ["a", "at", 2],
    ["b", "before", 1],
  ]);
});

test("a hook's handler is told when the server does not wait any more", async () => {
  let caught: unknown;
  const waits: SpawnOptions["hooks"] = {
    session_before_switch: (_, { signal }) =>
      new Promise((resolve) => {
        signal.addEventListener("abort", () => {
          caught = signal.aborted;
          resolve({});
        });
      }),
  };
  const client = await connected({ hooks: waits }, "--hook-timeout", "20");
  expect(await client.request("new_session")).toMatchObject({ cancelled: true, reason: "hook_timeout" });
  await client.request("get_state");
  expect(caught).toBe(true);
});

test("a signal withdraws what has not begun, and says nothing of what has", async () => {
  const client = await connected({
    hooks: { session_before_switch: (_, { request }) => request("get_state").then(() => ({ cancel: true })) },
  });
  const before = AbortSignal.abort();
  await expect(client.request("get_state", {}, { signal: before })).rejects.toMatchObject({ name: "cancelled" });
  const controller = new AbortController();
  const asking = client.request("new_session");
  const waiting = client.request("append", { entries: [user("x")] }, { signal: controller.signal });
  controller.abort();
  await expect(waiting).rejects.toMatchObject({ name: "cancelled", retryable: true });
  expect(await asking).toMatchObject({ cancelled: true });
  expect((await client.request("get_messages")).messages).toEqual([]);
  const done = new AbortController();
  await client.request("append", { entries: [user("y")] }, { signal: done.signal });
  done.abort();
  expect((await client.request("get_messages")).messages).toHaveLength(1);
});

test("a request that is withdrawn when the server has begun it fails, and says so where it was done", async () => {
  const client = await connected();
  const withdrawn = <T>(request: (signal: AbortSignal) => Promise<T>): Promise<T> => {
    const controller = new AbortController();
    const answer = request(controller.signal);
    controller.abort();
    return answer;
  };
  await client.request("append", { entries: [user("x")] });
  const verifying = withdrawn((signal) => client.request("verify_session", {}, { signal }));
  await expect(verifying).rejects.toMatchObject({ name: "cancelled" });
  await client.request("get_state");
  const appending = withdrawn((signal) => client.request("append", { entries: [user("y")] }, { signal }));
  const message = expect.stringContaining("append was done");
  await expect(appending).rejects.toMatchObject({ name: "outcome_unknown", message });
  expect((await client.request("get_messages")).messages).toHaveLength(2);
});

test("progress comes to a callback", SYSTEM, async () => {
  const place = temporaryPlace();
  const client = await spawned({ cwd: place.cwd, env: programEnvironment(place) });
  for (let i = 0; i < 3; i++) {
    await client.request("append", { entries: [user(`${i}`)] });
    await client.request("new_session");
  }
  const reports: { done: number; total: number }[] = [];
  const { sessions } = await client.request("list_sessions", {}, { onProgress: (report) => reports.push(report) });
  expect(sessions).toHaveLength(3);
  expect(reports.at(-1)).toEqual({ done: 3, total: 3 });
});

test("pages come one after the other, each entry once", async () => {
  const client = await connected();
  const ids = Array.from({ length: 25 }, (_, i) => `n${i}`);
  await client.request("append", { entries: ids.map((id) => user(id, { id })) });
  const pages: string[][] = [];
  for await (const { entries } of client.pages("get_entries", { limit: 10 })) pages.push(entries.map(({ id }) => id));
  expect(pages.map((page) => page.length)).toEqual([10, 10, 5]);
  expect(pages.flat()).toEqual(ids);
});

test("events come from an iterator, from its making on, and it ends with the server or by a signal", async () => {
  const client = await connected();
  const heard = client.events(["session_append", "session_tree"]);
  const controller = new AbortController();
  const others = client.events(["session_start"], { signal: controller.signal });
  await client.request("append", { entries: [user("one", { id: "a" }), user("two", { id: "b" })] });
  await client.request("branch", { entryId: "a" });
  expect([await heard.next(), await heard.next()]).toMatchObject([
    { value: { name: "session_append", params: { entryIds: ["a", "b"] } } },
    { value: { name: "session_tree", params: { oldLeafId: "b", newLeafId: "a" } } },
  ]);
  const waiting = others.next();
  controller.abort();
  expect(await waiting).toEqual({ done: true, value: undefined });
  await client.request("append", { entries: [user("three", { id: "c" })] });
  await client.close();
  const rest: string[] = [];
  for await (const { name } of heard) rest.push(name);
  expect(rest).toContain("session_append");
});

test("speaks over any streams, and fails what nobody will answer", async () => {
  const server = serveHere(["--no-session"], { framing: "lines" });
  server.output.removeAllListeners("data");
  const client = await connect(server.output, server.input);
  expect((await client.request("get_tree", { format: "flat" })).nodes).toEqual([]);
  await client.close();
  expect(await server.done).toBe(0);

  const output = new PassThrough();
  const sent: string[] = [];
  const input = new PassThrough();
  input.on("data", (chunk: Buffer) => sent.push(chunk.toString()));
  const connecting = connect(output, input);
  output.write('{"jsonrpc":"2.0","id":1,"result":{"state":null}}\n');
  const alone = await connecting;
  const [read, write] = [alone.request("get_state"), alone.request("append", { entries: [user("x")] })];
  const outcomes = Promise.allSettled([read, write]);
  // Half of a reply, and no key: it will not be sent again.
  output.end('{"jsonrpc":"2.0","id":2,"resu');
  const reasons = ["connection_closed", "outcome_unknown"].map((name) => ({ reason: { name } }));
  expect(await outcomes).toMatchObject(reasons);
  expect(sent.join("")).not.toContain("idempotencyKey");
});

test("knows the params and results of all commands, events and hooks", async () => {
  expectTypeOf<Commands["append"]["result"]["entryIds"]>().toEqualTypeOf<string[]>();
  expectTypeOf<Commands["fork"]["params"]["expectedLeafId"]>().toEqualTypeOf<string | null | undefined>();
  expectTypeOf<Commands["prompt"]["result"]>().toEqualTypeOf<never>();
  expectTypeOf<api.Events["session_tree"]["oldLeafId"]>().toEqualTypeOf<string | null>();
  expectTypeOf<api.Hooks["session_before_fork"]["payload"]["position"]>().toEqualTypeOf<"before" | "at">();
  const client = await connected();
  // @ts-expect-error a member of a wrong type
  await expect(client.request("set_label", { entryId: 5, label: null })).rejects.toThrow("Invalid params");
  // @ts-expect-error a member is missing
  await expect(client.request("fork")).rejects.toThrow("Invalid params");
  // @ts-expect-error this command has no pages
  expect(() => client.pages("get_state")).not.toThrow();
});

// Types of entries and messages are written by hand, next to the schemas that the server checks by.

/** The names of a schema's members, without its catch-all. */
type Listed<T extends z.ZodObject> = keyof T["shape"];

type EntryOf<Type> = Extract<api.Entry, { type: Type }>;
type DraftOf<Type> = Extract<api.Draft, { type: Type }>;
type MessageOf<Role> = Extract<api.Message, { role: Role }>;

test("every type of entry and every role is listed, with all its members", () => {
  expectTypeOf<Exclude<api.Entry["type"], api.OtherName>>().toEqualTypeOf<keyof typeof entryTypes>();
  type Lacking = {
    [T in keyof typeof entryTypes]: Exclude<Listed<(typeof entryTypes)[T]>, keyof EntryOf<T>>;
  }[keyof typeof entryTypes];
  expectTypeOf<Lacking>().toEqualTypeOf<never>();
  expectTypeOf<Exclude<keyof typeof messageRoles, api.Message["role"]>>().toEqualTypeOf<never>();
  type LackingOfMessages = {
    [R in keyof typeof messageRoles]: Exclude<Listed<(typeof messageRoles)[R]>, keyof MessageOf<R>>;
  }[keyof typeof messageRoles];
  expectTypeOf<LackingOfMessages>().toEqualTypeOf<never>();
});

test("what they take, the server takes", () => {
  type Refused = {
    [T in keyof typeof entryTypes]: DraftOf<T> extends z.input<(typeof entryTypes)[T]> ? never : T;
  }[keyof typeof entryTypes];
  expectTypeOf<Refused>().toEqualTypeOf<never>();
  type RefusedMessages = {
    [R in keyof typeof messageRoles]: MessageOf<R> extends z.input<(typeof messageRoles)[R]> ? never : R;
  }[keyof typeof messageRoles];
  expectTypeOf<RefusedMessages>().toEqualTypeOf<never>();
});
