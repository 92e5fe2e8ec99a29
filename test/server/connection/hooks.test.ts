/** Asking the host before acting: consent, veto, silence, nonsense and death, in both dialects. */

import { readFileSync } from "node:fs";
import { dirname, extname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { assistant, user } from "../../support/drafts.ts";
import { copyTo } from "../../support/other-programs.ts";
import { call, type HereServer, type Json, serveHere } from "../../support/server.ts";

/** A host that registered for hooks and has three messages in its session. */
async function hostWith(hooks: Json[], args: string[] = []): Promise<{ server: HereServer; ids: string[] }> {
  const server = serveHere(["--events", "none", ...args]);
  await server.result("initialize", {
    capabilities: { hooks: hooks.map((hook) => (typeof hook === "string" ? { name: hook } : hook)) },
  });
  const { entryIds } = await server.result("append", { entries: [user("one"), assistant("two"), user("three")] });
  return { server, ids: entryIds };
}

async function question(server: HereServer): Promise<Json> {
  const message = await server.next();
  expect(message).toMatchObject({ jsonrpc: "2.0", method: expect.stringMatching(/^session_before_/) });
  return message;
}

/** Has a session besides the current one, which is it again where that is wanted. */
async function besides(server: HereServer, isCurrent = true): Promise<{ sessionId: string; sessionFile: string }> {
  const { sessionId, sessionFile } = await server.result("get_state");
  await server.result("new_session");
  await server.result("open_session", { sessionPath: sessionFile });
  if (isCurrent) await server.result("switch_session", { sessionPath: sessionFile });
  return { sessionId, sessionFile };
}

const ACTIONS: Readonly<Record<string, readonly [hook: string, params?: (ids: string[]) => object]>> = {
  fork: ["session_before_fork", (ids) => ({ entryId: ids[2] })],
  clone: ["session_before_fork"],
  new_session: ["session_before_switch"],
  branch: ["session_before_tree", (ids) => ({ entryId: ids[0], label: "x" })],
  compact: ["session_before_compact"],
};

/** A host that is asked before an action; `act` begins it and returns the question. */
async function hostAsked(method: string) {
  const [hook, params = () => ({})] = ACTIONS[method];
  const { server, ids } = await hostWith([hook]);
  const before = await server.result("get_state");
  const act = (id: string): Promise<Json> => {
    server.ask(id, method, params(ids));
    return question(server);
  };
  return { server, before, act };
}

test.each(Object.keys(ACTIONS))("a veto of %s, or a cancellation of it, leaves everything as it is", async (method) => {
  const { server, before, act } = await hostAsked(method);
  const bytes = readFileSync(before.sessionFile);
  server.answer((await act("x")).id, { cancel: true });
  expect(await server.reply("x")).toMatchObject({ result: { cancelled: true, reason: "hook" } });
  await act("y");
  server.send({ jsonrpc: "2.0", method: "$/cancelRequest", params: { id: "y" } });
  expect(await server.reply("y")).toMatchObject({ error: { code: -32800 } });
  expect(await server.result("get_state")).toEqual(before);
  expect(readFileSync(before.sessionFile).equals(bytes)).toBe(true);
});

test("a veto is not remembered for the request's key", async () => {
  const { server, ids } = await hostWith(["session_before_fork"]);
  for (const cancel of [true, false]) {
    server.ask(`${cancel}`, "fork", { entryId: ids[2], idempotencyKey: "k" });
    server.answer((await question(server)).id, { cancel });
    expect((await server.reply(`${cancel}`)).result.cancelled).toBe(cancel);
  }
});

test("a session that is closed while its host is asked is not made the current one", async () => {
  const { server } = await hostWith(["session_before_switch"]);
  const { sessionId, sessionFile } = await server.result("get_state");
  server.ask("n", "new_session");
  server.answer((await question(server)).id, {});
  const current = (await server.reply("n")).result.sessionId;
  await server.result("open_session", { sessionPath: sessionFile });
  for (const isClosed of [true, false]) {
    server.ask("s", "switch_session", { sessionPath: sessionFile });
    const { id } = await question(server);
    if (isClosed) await server.result("close_session", { sessionId });
    server.answer(id, {});
    const { result, error } = await server.reply("s");
    expect(error?.data.name).toBe(isClosed ? "session_not_found" : undefined);
    expect((await server.result("get_state")).sessionId).toBe(isClosed ? current : result.sessionId);
  }
  await server.result("append", { sessionId, entries: [user("four")] });
});

test("a switch waits for no question about another session, though it has the same id", async () => {
  const { server, ids } = await hostWith(["session_before_tree"]);
  const { sessionId, sessionFile } = await besides(server, false);
  const copy = join(dirname(sessionFile), `copy${extname(sessionFile)}`);
  copyTo(sessionFile, copy);
  server.ask("b", "branch", { sessionId, entryId: ids[0] });
  const { id } = await question(server);
  expect(await server.result("switch_session", { sessionPath: copy })).toMatchObject({ sessionFile: copy });
  server.answer(id, {});
  expect((await server.reply("b")).result).toMatchObject({ cancelled: false, leafId: ids[0] });
});

test("what waits for a session that is not the current one any more is overtaken by nothing that comes for it", async () => {
  const { server, ids } = await hostWith(["session_before_fork", "session_before_tree"]);
  const { sessionId } = await besides(server);
  server.ask("n", "clone");
  const { id } = await question(server);
  server.ask("w", "append", { entries: [user("of the next one", { id: "next" }), user("left")] });
  server.ask("b", "branch", { entryId: "next" });
  server.ask("1", "append", { sessionId, entries: [user("one more", { id: "one" })] });
  server.answer(id, {});
  const replies: Json[] = [];
  let asked = await server.next();
  for (; !asked.method; asked = await server.next()) replies.push(asked);
  server.ask("2", "append", { sessionId, entries: [user("two more", { id: "two" })] });
  replies.push(await server.reply("2"));
  server.answer(asked.id, { cancel: true });
  const left = ["n", "w", "b", "1", "2"].filter((one) => !replies.some((reply) => reply.id === one));
  for (const one of left) replies.push(await server.reply(one));
  expect(replies.filter(({ error }) => error)).toEqual([]);
  const parentOf = async (entryId: string): Promise<string> =>
    (await server.result("get_entry", { sessionId, entryId })).entry.parentId;
  expect([await parentOf("one"), await parentOf("two")]).toEqual([ids[2], "one"]);
});

test("what waits for a session that is left is answered after what leaves it", async () => {
  const { server } = await hostWith(["session_before_fork"]);
  const { sessionId } = await besides(server);
  server.ask("leaves", "clone");
  const { id } = await question(server);
  server.ask("reads", "get_state", { sessionId });
  server.ask("fails", "get_entry", { sessionId, entryId: "nothing" });
  server.ask("writes", "append", { sessionId, entries: [user("one more")] });
  server.answer(id, {});
  const order: Json[] = [];
  while (order.length < 4) order.push((await server.next()).id);
  expect(order).toEqual(["leaves", "reads", "fails", "writes"]);
});

test("what waits for a session that is left is overtaken by nothing, whenever that comes", async () => {
  const server = serveHere(["--events", "none"]);
  await server.result("append", { entries: [user("of the one that is left")] });
  const { sessionId, sessionFile } = await server.result("get_state");
  await server.result("new_session");
  await server.result("append", { entries: [user("of the next")] });
  const next = await server.result("get_state");
  await server.result("open_session", { sessionPath: sessionFile });
  for (let turns = 0; turns < 60; turns++) {
    await server.result("switch_session", { sessionPath: sessionFile });
    await server.result("open_session", { sessionPath: next.sessionFile });
    const add = (id: string): object => call(id, "append", { sessionId, entries: [user(id)] });
    server.send(call("leave", "switch_session", { sessionPath: next.sessionFile }), add("first"));
    // As from within the process, in any microtask of the switch.
    for (let turn = 0; turn < turns; turn++) await undefined;
    server.send(add("second"));
    const order: string[] = [];
    while (order.length < 3) order.push((await server.next()).id);
    expect(order, `${turns}`).toEqual(["leave", "first", "second"]);
  }
});

test("a read that takes its time is answered when it is done, also when the question is answered before", async () => {
  const { server, ids } = await hostWith(["session_before_tree"]);
  server.ask("branch", "branch", { entryId: ids[0] });
  const { id } = await question(server);
  server.ask("during", "verify_session", { _meta: { hook: id } });
  server.answer(id, {});
  server.ask("later", "get_state");
  const replies = (await server.take(3)).map((reply) => [reply.id, reply.result]);
  const moved = { leafId: ids[0] };
  expect(Object.fromEntries(replies)).toMatchObject({ branch: moved, during: { ok: true }, later: moved });
});

test("the tree hook may bring a summary and a label", async () => {
  const { server, ids } = await hostWith(["session_before_tree"]);
  server.ask("b", "branch", { entryId: ids[0] });
  const { id, params } = await question(server);
  expect(params.preparation).toMatchObject({ targetId: ids[0], oldLeafId: ids[2], commonAncestorId: ids[0] });
  expect(params.preparation.entriesToSummarize.map((entry: Json) => entry.id)).toEqual([ids[1], ids[2]]);
  server.answer(id, { summary: { summary: "left it", details: { n: 1 } }, label: "here" });
  const { summaryEntryId } = (await server.reply("b")).result;
  const { entry, label } = await server.result("get_entry", { entryId: summaryEntryId });
  expect(entry).toMatchObject({ type: "branch_summary", fromId: ids[2], summary: "left it", details: { n: 1 } });
  expect(label).toBe("here");
});

test("the tree hook is asked before an undo or a redo moves the leaf, and may refuse it", async () => {
  const { server, ids } = await hostWith(["session_before_tree"]);
  server.ask("b", "branch", { entryId: ids[0] });
  server.answer((await question(server)).id, {});
  await server.reply("b");
  const leaf = async (): Promise<string> => (await server.result("get_state")).leafId;
  for (const [method, from, to] of [
    ["undo", ids[0], ids[2]],
    ["redo", ids[2], ids[0]],
  ]) {
    server.ask("no", method);
    const { id, params } = await question(server);
    expect(params.preparation).toMatchObject({ targetId: to, oldLeafId: from, userWantsSummary: false });
    server.answer(id, { cancel: true });
    const refused = (await server.reply("no")).result;
    expect(refused).toMatchObject({ cancelled: true, reason: "hook", newOperationId: "" });
    expect(await leaf()).toBe(from);
    server.ask("yes", method);
    server.answer((await question(server)).id, {});
    expect((await server.reply("yes")).result.cancelled).toBeUndefined();
    expect(await leaf()).toBe(to);
  }
  // A name is set where the leaf is: to take it back is no move through the tree.
  await server.result("set_session_name", { name: "x" });
  expect((await server.result("undo")).kind).toBe("rename");
});

test("compact appends what the host's model wrote, which is asked with the instructions and the branch", async () => {
  const { server, ids } = await hostWith(["session_before_compact"]);
  const compaction = { summary: "all of it", firstKeptEntryId: ids[2], tokensBefore: 10 };
  server.ask("c", "compact", { customInstructions: "short" });
  const { id, params } = await question(server);
  expect(params).toMatchObject({ customInstructions: "short", preparation: { tokensBefore: expect.any(Number) } });
  expect(params.branchEntries.map((entry: Json) => entry.id)).toEqual(ids);
  server.answer(id, { compaction });
  expect((await server.reply("c")).result).toMatchObject({ cancelled: false, ...compaction });
  // A summary of nothing does not take the place of that one, and no host is asked for one.
  expect((await server.failure("compact")).data.name).toBe("nothing_to_compact");
  expect((await server.result("get_messages")).messages[0]).toMatchObject({ summary: "all of it" });
});

describe("no consent", () => {
  test.each<[what: string, given: Json, method: string, why: RegExp]>([
    ["an error", { error: { code: 1, message: "no idea" } }, "new_session", /session_before_switch.*no idea/],
    ["an error without words", { error: { code: 1, message: "" } }, "new_session", /session_before_switch/],
    ["a number", { result: 5 }, "new_session", /no object/],
    ["a list", { result: [] }, "new_session", /no object/],
    [
      "a misspelt member",
      { result: { canel: true } },
      "new_session",
      /_switch has canel.*: cancel\..*\{"cancel":true\}/,
    ],
    [
      "a member of another kind",
      { result: { cancel: "true" } },
      "new_session",
      /cancel must be a boolean, not a string/,
    ],
    ["another shape of a summary", { result: { summary: { text: "x" } } }, "branch", /session_before_tree/],
    [
      "another shape of a compaction",
      { result: { compaction: { summary: "x" } } },
      "compact",
      /session_before_compact/,
    ],
    ["a word of none", { result: { abort: true } }, "clone", /session_before_fork/],
  ])("is %s, and the result says why", async (_what, given, method, why) => {
    const { server, before, act } = await hostAsked(method);
    server.send({ jsonrpc: "2.0", id: (await act("x")).id, ...given });
    const { result } = await server.reply("x");
    expect(result).toMatchObject({ cancelled: true, reason: "hook_failed", message: expect.stringMatching(why) });
    expect(await server.result("get_state")).toEqual(before);
  });

  test("is not a member that the hook does not know, beside one that it knows", async () => {
    const { server, act } = await hostAsked("new_session");
    server.answer((await act("n")).id, { cancel: false, later: 1 });
    expect((await server.reply("n")).result).toMatchObject({ cancelled: false });
  });

  test.each([
    ["cancel", { cancelled: true, reason: "hook_timeout" }],
    ["continue", { cancelled: false }],
  ])("is silence, unless the host said otherwise: %s", async (onTimeout, result) => {
    const { server } = await hostWith([{ name: "session_before_switch", onTimeout }], ["--hook-timeout", "20"]);
    server.ask("n", "new_session");
    const { id } = await question(server);
    expect(await server.reply("n")).toMatchObject({ result });
    // The host learns that the question is over, and its late answer is nothing.
    const cancels = server.events.filter(({ method }) => method === "$/cancelRequest");
    expect(cancels.map(({ params }) => params)).toEqual([{ id }]);
    server.answer(id, { cancel: true });
    expect((await server.result("get_state")).entryCount).toBe(result.cancelled ? 3 : 0);
  });

  test("is the end of the host's input", async () => {
    const { server, act } = await hostAsked("new_session");
    await act("n");
    const { messages, status } = await server.finish();
    expect(messages.at(-1)).toMatchObject({ id: "n", result: { cancelled: true, reason: "host_gone" } });
    expect(status).toBe(0);
  });
});

test("in Pi's dialect the question is a line of its own kind", async () => {
  const server = serveHere(["--mode", "rpc"]);
  await server.command("initialize", { capabilities: { hooks: [{ name: "session_before_fork" }] } });
  const { data } = await server.command("append", { entries: [user("one")] });
  server.send({ id: "f", type: "fork", entryId: data.entryIds[0] });
  const asked = await server.next();
  expect(asked).toMatchObject({ type: "hook_request", hook: "session_before_fork", entryId: data.entryIds[0] });
  server.send({ id: "s", type: "get_state", hook: asked.id });
  expect(await server.next()).toMatchObject({ id: "s", data: { leafId: data.entryIds[0] } });
  server.send({ type: "hook_response", id: asked.id, cancel: true });
  expect(await server.next()).toMatchObject({ id: "f", success: true, data: { cancelled: true } });
  expect((await server.finish()).status).toBe(0);
});
