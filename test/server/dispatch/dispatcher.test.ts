/** The order of things: effects, replies and events, and the times of acknowledgements. */

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { assistant, user } from "../../support/drafts.ts";
import { gatedDisk } from "../../support/gated-disk.ts";
import { type Json, kinds, serveHere, temporaryPlace } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";

let ids = 0;

/** Lets everything come that comes without waiting for the medium. */
async function turns(): Promise<void> {
  for (let n = 0; n < 10; n++) await new Promise((resolve) => setImmediate(resolve));
}

function call(method: string, params?: object): Json {
  return { jsonrpc: "2.0", id: ++ids, method, ...(params ? { params } : {}) };
}

function append(...drafts: Json[]): Json {
  return call("append", { entries: drafts });
}

/** Sends all in one write and gives the kinds of what comes back, ids counted from 1. */
async function conversation(args: string[], ...messages: Json[]): Promise<{ order: string[]; messages: Json[] }> {
  const server = serveHere(args);
  const first = ids - messages.flat().filter(({ id }) => id !== undefined).length;
  server.send(...messages);
  const received = (await server.finish()).messages;
  const order = kinds(received).map((kind) => kind.replace(/#(\d+)/g, (_all, id) => `#${Number(id) - first}`));
  return { order, messages: received };
}

describe.each([
  ["on disk", []],
  ["in memory", ["--no-session"]],
])("%s, events", (_where, args) => {
  test("follow the reply of their command, before the next reply", async () => {
    const { order, messages } = await conversation(
      args,
      append(user("a", { id: "a" }), assistant("b", { id: "b" })),
      call("get_state"),
      call("branch", { entryId: "a" }),
      call("branch", { entryId: "a" }),
      call("branch", { entryId: null, label: "x", summary: { summary: "left" } }),
      append(user("c", { parentId: "b" })),
      call("compact_append", { summary: "s", firstKeptEntryId: null, tokensBefore: 1 }),
      call("set_session_name", { name: "n" }),
      call("set_label", { entryId: "a", label: "l" }),
      // A failed command has no events.
      append(user("d", { id: "d" }), user("e", { id: "a" })),
      ...["branch", "fork"].map((method) => call(method, { entryId: "nope" })),
      call("switch_session", { sessionPath: "nope.jsonl" }),
      // Events of a notification come in the place of its reply.
      { jsonrpc: "2.0", method: "append", params: { entries: [user("x")] } },
      call("get_state"),
      call("shutdown"),
    );
    expect(order.join(" ").replaceAll("session_", "")).toBe(
      "start #1 append #2 #3 tree #4 #5 append tree #6 append tree #7 append compact #8 append info_changed #9 append " +
        "#10 #11 #12 #13 append #14 #15 shutdown",
    );
    const events = messages.filter(({ method }) => method);
    // They are numbered without a gap, and carry session and leaf.
    expect(events.map(({ params }) => params.seq)).toEqual(events.map((_, index) => index + 1));
    for (const { params } of events) {
      expect(params.sessionId).toMatch(/^[0-9a-f-]{36}$/);
      expect(params.leafId === null || typeof params.leafId === "string").toBe(true);
    }
    expect(events.at(-1).params.reason).toBe("quit");
  });

  test("of a replacement tell the end of the old session, then the beginning of the new", async () => {
    const { order, messages } = await conversation(
      args,
      append(user("a", { id: "a" }), assistant("b", { id: "b" })),
      call("new_session"),
      append(user("c", { id: "c" })),
      call("fork", { entryId: "c" }),
      append(user("d", { id: "d" })),
      call("clone"),
      call("get_state"),
    );
    expect(order.join(" ").replaceAll("session_", "")).toBe(
      "start #1 append #2 shutdown start #3 append #4 shutdown fork start #5 append #6 shutdown fork start #7",
    );
    const of = (name: string): Json[] => messages.filter(({ method }) => method === name).map(({ params }) => params);
    const [start, fresh, forked, cloned] = of("session_start");
    const [leftFirst, leftFresh, leftFork] = of("session_shutdown");
    const [fork, clone] = of("session_fork");
    expect(leftFirst).toMatchObject({ sessionId: start.sessionId, leafId: "b", reason: "new" });
    expect(fresh).toMatchObject({ leafId: null, reason: "new", previousSessionFile: start.sessionFile });
    expect(leftFresh).toMatchObject({ sessionId: fresh.sessionId, leafId: "c", reason: "fork" });
    expect(fork).toMatchObject({ sessionId: forked.sessionId, leafId: null, entryId: "c", position: "before" });
    expect(forked).toMatchObject({ leafId: null, reason: "fork", previousSessionFile: fresh.sessionFile });
    expect(leftFork).toMatchObject({ sessionId: forked.sessionId, leafId: "d", reason: "fork" });
    expect(clone).toMatchObject({ sessionId: cloned.sessionId, leafId: "d", entryId: "d", position: "at" });
    const files = [fresh, forked, cloned].map(({ sessionFile }) => sessionFile);
    expect([leftFirst, leftFresh, leftFork].map(({ targetSessionFile }) => targetSessionFile)).toEqual(files);
    expect([fork, clone].map(({ sessionFile }) => sessionFile)).toEqual(files.slice(1));
    expect([fork, clone].map(({ previousSessionFile }) => previousSessionFile)).toEqual(files.slice(0, 2));
    expect(new Set([start, fresh, forked, cloned].map(({ sessionId }) => sessionId)).size).toBe(4);
    expect(messages.at(-1).result).toMatchObject({ sessionId: cloned.sessionId, leafId: "d" });
  });
});

describe("the wish for events", () => {
  const all = ["session_append", "session_info_changed"];

  test.each<[string, string[], Json | undefined, string[]]>([
    ["all by default", [], undefined, ["session_start", ...all]],
    ["all", ["--events", "all"], undefined, ["session_start", ...all]],
    ["none", ["--events", "none"], undefined, []],
    ["some", ["--events", "session_info_changed,session_tree"], undefined, ["session_info_changed"]],
    ["some, at initialize", [], { events: ["session_append"] }, ["session_append"]],
    ["none, at initialize", [], { events: [] }, []],
    ["others at initialize than at the start", ["--events", "none"], { events: all }, all],
    ["nothing said at initialize", ["--events", "session_append"], {}, ["session_append"]],
  ])("%s", async (_what, args, capabilities, expected) => {
    const { order, messages } = await conversation(
      ["--no-session", ...args],
      ...(capabilities ? [call("initialize", { capabilities })] : []),
      call("set_session_name", { name: "n" }),
    );
    expect(order.filter((kind) => !kind.startsWith("#"))).toEqual(expected);
    const events = messages.filter(({ method }) => method);
    expect(events.map(({ params }) => params.seq)).toEqual(expected.map((_, index) => index + 1));
  });
});

test("initialize may come when it likes, or never, is answered once, and names the version spoken", async () => {
  const server = serveHere(["--no-session", "--events", "none"]);
  await server.result("append", { entries: [user("x")] });
  const data = { name: "unsupported_version", protocolVersion: 1 };
  expect((await server.failure("initialize", { protocolVersion: 99 })).data).toMatchObject(data);
  const state = { protocolVersion: 1, serverInfo: { name: "pi-session-server" }, state: { entryCount: 1 } };
  expect(await server.result("initialize", { protocolVersion: 1, clientInfo: { name: "x" } })).toMatchObject(state);
  expect(await server.failure("initialize")).toMatchObject({ code: -32600 });
});

/** The ids of the entries in a session file. */
function idsIn(file: string): string[] {
  const lines = readFileSync(file, "utf8").trimEnd().split("\n").slice(1);
  return lines.map((line) => JSON.parse(line).id);
}

describe("what is acknowledged", () => {
  test("is durable, and appends of one write share the wait", async () => {
    const { disk, waits } = gatedDisk();
    const server = serveHere(["--events", "none"], { disk });
    server.send(append(user("a")), append(user("b", { id: "b" })), call("get_state"));
    const gate = await waits();
    // All three wait for it: the read would report an undecided state.
    server.send(call("get_state"));
    let answered = false;
    const first = server.next().then((reply) => {
      answered = true;
      return reply;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(answered).toBe(false);
    gate.pass();
    expect((await first).result.entryIds).toHaveLength(1);
    expect(await server.take(3)).toMatchObject([
      { result: { entryIds: ["b"] } },
      { result: { entryCount: 2 } },
      { result: { entryCount: 2 } },
    ]);
  });

  acrossTiers(test, ["jsonl", "v2"])("is all that a commit made durable on %s: the next may fail", async (store) => {
    const { disk, waits } = gatedDisk();
    const place = temporaryPlace();
    const plain = serveHere(["--store", store], { place });
    await plain.result("append", { entries: [user("a", { id: "a" }), user("b", { id: "b" })] });
    const { sessionFile } = await plain.result("get_state");
    await plain.finish();
    const server = serveHere(["--session", sessionFile, "--events", "none"], { place, disk });
    const replies = new Map<unknown, Json>();
    const reading = (async () => {
      while (replies.size < 4) {
        const reply = await server.next();
        replies.set(reply.id, reply);
      }
    })();
    const [moved, first, second, state] = [
      call("branch", { entryId: "a" }),
      append(user("c", { id: "c" })),
      append(user("d", { id: "d" })),
      call("get_state"),
    ];
    server.send(moved);
    const recording = await waits();
    server.send(first);
    await turns();
    recording.pass();
    const gate = await waits();
    server.send(second, state);
    await turns();
    gate.pass();
    // Everything of the commit that the move waits for is let through, and nothing of the one after it.
    for (let ended = false; !ended; ) {
      const next = await Promise.race([waits(), reading.then(() => undefined)]);
      await turns();
      if (!replies.has(moved.id)) next?.pass();
      else next?.fail("EIO");
      ended = next === undefined;
    }
    expect(replies.get(second.id).error.data.name).toBe("storage_failed");
    expect(replies.get(first.id).result).toMatchObject({ entryIds: ["c"], leafId: "c" });
    expect(replies.get(state.id).result).toMatchObject({ leafId: "c", entryCount: 3 });
    expect(replies.get(moved.id).result.leafId).toBe("a");
  });

  test("is decided for all of the old session before another one takes its place", async () => {
    const { disk, waits } = gatedDisk();
    const server = serveHere(["--events", "none"], { disk });
    server.send(append(user("a", { id: "a" })), call("get_state"));
    const first = await waits();
    // The wait for the first is under way when these come.
    server.send(append(user("b", { id: "b" })), call("new_session"), call("get_state"));
    await new Promise((resolve) => setImmediate(resolve));
    first.pass();
    const [a, { result: old }] = await server.take(2);
    expect(a.result).toMatchObject({ leafId: "a" });
    (await waits()).fail("EIO");
    expect((await server.next()).error.data.name).toBe("storage_failed");
    const fresh = (await server.next()).result;
    expect((await server.next()).result).toMatchObject({ sessionId: fresh.sessionId, entryCount: 0 });
    expect(fresh.sessionId).not.toBe(old.sessionId);
    expect(idsIn(old.sessionFile)).toEqual(["a"]);
  });
});

test("a read tells of every write before it and of none behind it", async () => {
  const server = serveHere(["--events", "none"]);
  const READS = "get_state get_entries get_messages get_tree nested get_fork_messages get_last_assistant_text".split(
    " ",
  );
  const reads = (): Json[] =>
    READS.map((name) => (name === "nested" ? call("get_tree", { format: name }) : call(name)));
  server.send(append(user("a", { id: "a" }), assistant("first", { id: "b" })));
  await server.next();
  server.send(...reads());
  const alone = (await server.take(READS.length)).map(({ result }) => result);
  // The same reads with writes behind them in the same chunk, which are not durable yet when they run.
  server.send(
    call("set_label", { entryId: "a", label: "before" }),
    ...reads(),
    append(user("c", { id: "c", parentId: "b" }), assistant("second", { id: "d" })),
    call("set_label", { entryId: "a", label: "after" }),
    call("set_session_name", { name: "later" }),
    ...reads(),
  );
  const replies = (await server.take(2 * READS.length + 4)).map(({ result }) => result);
  const label = replies[0].entryId;
  const [state, entries, messages, flat, nested, forks, text] = replies.slice(1);
  expect(state).toMatchObject({ entryCount: 3, leafId: label, sessionName: null });
  expect(entries.entries.map(({ id }: Json) => id)).toEqual(["a", "b", label]);
  expect([messages, forks, text]).toEqual([alone[2], alone[5], { text: "first" }]);
  expect(flat.nodes.map(({ id, label }: Json) => `${id} ${label}`)).toEqual([
    ...["a before", "b undefined", `${label} undefined`],
  ]);
  const inner = [{ entry: { id: "b" }, children: [{ entry: { id: label }, children: [] }] }];
  expect(nested).toMatchObject({ leafId: label, tree: [{ entry: { id: "a" }, label: "before", children: inner }] });
  const last = replies.slice(-READS.length);
  expect(last[0]).toMatchObject({ entryCount: 7, sessionName: "later" });
  expect(last[4].tree[0]).toMatchObject({ label: "after" });
  expect(last[6]).toEqual({ text: "second" });
});

test("a cancellation takes a command out of the queue that was not run yet, and says so", async () => {
  const { disk, waits } = gatedDisk();
  const server = serveHere(["--events", "none"], { disk });
  const append1 = append(user("a", { id: "a" }));
  // It waits for the append to be durable, and what comes behind it waits for it.
  const replace = call("new_session");
  const append2 = append(user("b", { id: "b" }));
  const read = call("get_state");
  // Those that mean nothing are ignored.
  const none = [undefined, {}, { id: {} }, [1], { id: "nobody" }];
  const cancels = [{ id: append2.id }, { id: append1.id }, ...none].map((params) => ({
    ...{ jsonrpc: "2.0", method: "$/cancelRequest", params },
  }));
  server.send(append1, replace, append2, read, ...cancels);
  (await waits()).pass();
  const [first, second, ...others] = await server.take(4);
  expect(first).toMatchObject({ id: append1.id, result: { leafId: "a" } });
  expect(second).toMatchObject({ id: replace.id, result: { cancelled: false } });
  const of = ({ id }: Json): Json => others.find((reply) => reply.id === id);
  expect(of(append2).error).toMatchObject({ code: -32800, data: { name: "cancelled", retryable: true } });
  expect(of(read).result).toMatchObject({ entryCount: 0 });
});

test("the idempotencyKey of a command that failed is free again", async () => {
  const server = serveHere(["--events", "none"]);
  const params = { idempotencyKey: "k" };
  await server.failure("append", { ...params, entries: [user("a", { parentId: "nope" })] });
  expect((await server.result("append", { ...params, entries: [user("a", { id: "a" })] })).leafId).toBe("a");
});

test("expectedLeafId that is not the leaf changes nothing and tells the leaf", async () => {
  const server = serveHere(["--events", "none"]);
  await server.result("append", { entries: [user("a", { id: "a" }), assistant("b", { id: "b" })] });
  const { sessionFile, sessionId } = await server.result("get_state");
  const before = readFileSync(sessionFile, "utf8");
  for (const [method, params] of [
    ["append", { entries: [user("x")] }],
    ["branch", { entryId: null }],
    ["set_label", { entryId: "a", label: "x" }],
    ["fork", { entryId: "a" }],
    ["new_session", {}],
    ["switch_session", { sessionPath: sessionFile }],
  ] as const)
    for (const expectedLeafId of ["a", "nope", null])
      expect(await server.failure(method, { ...params, expectedLeafId }), method).toMatchObject({
        code: -32801,
        data: { name: "content_modified", leafId: "b" },
      });
  expect(await server.result("get_state")).toMatchObject({ sessionId, leafId: "b", entryCount: 2 });
  expect(readFileSync(sessionFile, "utf8")).toBe(before);
  expect((await server.result("append", { entries: [user("c", { id: "c" })], expectedLeafId: "b" })).leafId).toBe("c");
  await server.result("branch", { entryId: null, expectedLeafId: "c" });
  expect((await server.result("append", { entries: [user("d", { id: "d" })], expectedLeafId: null })).leafId).toBe("d");
});
