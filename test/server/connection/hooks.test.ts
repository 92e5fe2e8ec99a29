/** Asking the host before acting: consent, veto, silence, nonsense and death, in both dialects. */

import { readFileSync } from "node:fs";
import { dirname, extname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { assistant, user } from "../../support/drafts.ts";
import { copyTo } from "../../support/other-programs.ts";
import { Random } from "../../support/random.ts";
import { type HereServer, type Json, serveHere } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";

const ALL = ["session_before_switch", "session_before_fork", "session_before_tree", "session_before_compact"];

/** A host that registered for hooks and has three messages in its session. */
async function hostWith(hooks: Json[], args: string[] = []): Promise<{ server: HereServer; ids: string[] }> {
  const server = serveHere(["--events", "none", ...args]);
  await server.result("initialize", {
    capabilities: { hooks: hooks.map((hook) => (typeof hook === "string" ? { name: hook } : hook)) },
  });
  const { entryIds } = await server.result("append", { entries: [user("one"), assistant("two"), user("three")] });
  return { server, ids: entryIds };
}

function ask(server: HereServer, id: string, method: string, params?: object): void {
  server.send({ jsonrpc: "2.0", id, method, params });
}

async function question(server: HereServer): Promise<Json> {
  const message = await server.next();
  expect(message).toMatchObject({ jsonrpc: "2.0", method: expect.stringMatching(/^session_before_/) });
  return message;
}

function answer(server: HereServer, id: Json, result: Json): void {
  server.send({ jsonrpc: "2.0", id, result });
}

describe("a veto", () => {
  test.each([
    ["fork", (ids: string[]) => ({ entryId: ids[2] }), "session_before_fork"],
    ["clone", () => ({}), "session_before_fork"],
    ["new_session", () => ({}), "session_before_switch"],
    ["branch", (ids: string[]) => ({ entryId: ids[0], label: "x" }), "session_before_tree"],
    ["compact", () => ({}), "session_before_compact"],
  ])("of %s leaves everything as it is", async (method, params, hook) => {
    const { server, ids } = await hostWith(ALL);
    const before = await server.result("get_state");
    const bytes = readFileSync(before.sessionFile);
    ask(server, "x", method, params(ids));
    const asked = await question(server);
    expect(asked.method).toBe(hook);
    answer(server, asked.id, { cancel: true });
    expect(await server.reply("x")).toMatchObject({ result: { cancelled: true, reason: "hook" } });
    expect(await server.result("get_state")).toEqual(before);
    expect(readFileSync(before.sessionFile).equals(bytes)).toBe(true);
  });

  test("is not remembered for the request's key", async () => {
    const { server, ids } = await hostWith(["session_before_fork"]);
    for (const cancel of [true, false]) {
      ask(server, `${cancel}`, "fork", { entryId: ids[2], idempotencyKey: "k" });
      answer(server, (await question(server)).id, { cancel });
      expect((await server.reply(`${cancel}`)).result.cancelled).toBe(cancel);
    }
  });
});

acrossTiers(test, ["jsonl", "v2"])(
  "a session that is closed while its host is asked is not made the current one (%s)",
  async (store) => {
    const { server } = await hostWith(["session_before_switch"], ["--store", store]);
    const { sessionId, sessionFile } = await server.result("get_state");
    ask(server, "n", "new_session");
    answer(server, (await question(server)).id, {});
    const current = (await server.reply("n")).result.sessionId;
    await server.result("open_session", { sessionPath: sessionFile });
    for (const isClosed of [true, false]) {
      ask(server, "s", "switch_session", { sessionPath: sessionFile });
      const { id } = await question(server);
      if (isClosed) await server.result("close_session", { sessionId });
      answer(server, id, {});
      const { result, error } = await server.reply("s");
      expect(error?.data.name).toBe(isClosed ? "session_not_found" : undefined);
      expect((await server.result("get_state")).sessionId).toBe(isClosed ? current : result.sessionId);
    }
    await server.result("append", { sessionId, entries: [user("four")] });
  },
);

acrossTiers(test, ["jsonl", "v2"])(
  "a switch waits for no question about another session, though it has the same id (%s)",
  async (store) => {
    const { server, ids } = await hostWith(["session_before_tree"], ["--store", store]);
    const { sessionId, sessionFile } = await server.result("get_state");
    await server.result("new_session");
    await server.result("open_session", { sessionPath: sessionFile });
    const copy = join(dirname(sessionFile), `copy${extname(sessionFile)}`);
    copyTo(sessionFile, copy);
    ask(server, "b", "branch", { sessionId, entryId: ids[0] });
    const { id } = await question(server);
    expect(await server.result("switch_session", { sessionPath: copy })).toMatchObject({ sessionFile: copy });
    answer(server, id, {});
    expect((await server.reply("b")).result).toMatchObject({ cancelled: false, leafId: ids[0] });
  },
);

acrossTiers(test, ["jsonl", "v2"])(
  "what waits for a session that is not the current one any more is overtaken by nothing that comes for it (%s)",
  async (store) => {
    const { server, ids } = await hostWith(["session_before_fork", "session_before_tree"], ["--store", store]);
    const { sessionId, sessionFile } = await server.result("get_state");
    await server.result("new_session");
    await server.result("open_session", { sessionPath: sessionFile });
    await server.result("switch_session", { sessionPath: sessionFile });
    ask(server, "n", "clone");
    const { id } = await question(server);
    ask(server, "w", "append", { entries: [user("of the next one", { id: "next" }), user("left")] });
    ask(server, "b", "branch", { entryId: "next" });
    ask(server, "1", "append", { sessionId, entries: [user("one more", { id: "one" })] });
    answer(server, id, {});
    const replies: Json[] = [];
    let asked = await server.next();
    for (; !asked.method; asked = await server.next()) replies.push(asked);
    ask(server, "2", "append", { sessionId, entries: [user("two more", { id: "two" })] });
    replies.push(await server.reply("2"));
    answer(server, asked.id, { cancel: true });
    const left = ["n", "w", "b", "1", "2"].filter((one) => !replies.some((reply) => reply.id === one));
    for (const one of left) replies.push(await server.reply(one));
    expect(replies.filter(({ error }) => error)).toEqual([]);
    const parentOf = async (entryId: string): Promise<string> =>
      (await server.result("get_entry", { sessionId, entryId })).entry.parentId;
    expect([await parentOf("one"), await parentOf("two")]).toEqual([ids[2], "one"]);
  },
);

acrossTiers(test, ["jsonl", "v2"])(
  "what waits for a session that is left is answered after what leaves it (%s)",
  async (store) => {
    const { server } = await hostWith(["session_before_fork"], ["--store", store]);
    const { sessionId, sessionFile } = await server.result("get_state");
    await server.result("new_session");
    await server.result("open_session", { sessionPath: sessionFile });
    await server.result("switch_session", { sessionPath: sessionFile });
    ask(server, "leaves", "clone");
    const { id } = await question(server);
    ask(server, "reads", "get_state", { sessionId });
    ask(server, "fails", "get_entry", { sessionId, entryId: "nothing" });
    ask(server, "writes", "append", { sessionId, entries: [user("one more")] });
    answer(server, id, {});
    const order: Json[] = [];
    while (order.length < 4) order.push((await server.next()).id);
    expect(order).toEqual(["leaves", "reads", "fails", "writes"]);
  },
);

acrossTiers(test, ["jsonl", "v2"])(
  "what waits for a session that is left is overtaken by nothing, whenever that comes (%s)",
  async (store) => {
    const server = serveHere(["--events", "none", "--store", store]);
    await server.result("append", { entries: [user("of the one that is left")] });
    const { sessionId, sessionFile } = await server.result("get_state");
    await server.result("new_session");
    await server.result("append", { entries: [user("of the next")] });
    const next = await server.result("get_state");
    await server.result("open_session", { sessionPath: sessionFile });
    for (let turns = 0; turns < 60; turns++) {
      await server.result("switch_session", { sessionPath: sessionFile });
      await server.result("open_session", { sessionPath: next.sessionFile });
      const add = (id: string): object => ({
        ...{ jsonrpc: "2.0", id, method: "append" },
        params: { sessionId, entries: [user(id)] },
      });
      const leave = {
        jsonrpc: "2.0",
        id: "leave",
        method: "switch_session",
        params: { sessionPath: next.sessionFile },
      };
      server.send(leave, add("first"));
      // As from within the process, in any microtask of the switch.
      for (let turn = 0; turn < turns; turn++) await undefined;
      server.send(add("second"));
      const order: string[] = [];
      while (order.length < 3) order.push((await server.next()).id);
      expect(order, `${turns}`).toEqual(["leave", "first", "second"]);
    }
  },
);

test("members that a hook does not know are ignored beside one that it knows", async () => {
  const { server } = await hostWith(["session_before_switch"]);
  ask(server, "n", "new_session");
  answer(server, (await question(server)).id, { cancel: false, later: 1 });
  expect((await server.reply("n")).result).toMatchObject({ cancelled: false });
});

test("later commands wait, reads that name the question see the state before", async () => {
  const { server, ids } = await hostWith(["session_before_tree"]);
  ask(server, "branch", "branch", { entryId: ids[0] });
  const { id } = await question(server);
  ask(server, "later", "get_state");
  ask(server, "during", "get_state", { _meta: { hook: id } });
  expect(await server.next()).toMatchObject({ id: "during", result: { leafId: ids[2] } });
  answer(server, id, {});
  expect(await server.next()).toMatchObject({ id: "branch", result: { cancelled: false, leafId: ids[0] } });
  expect(await server.next()).toMatchObject({ id: "later", result: { leafId: ids[0] } });
});

test("a read that takes its time is answered when it is done, also when the question is answered before", async () => {
  const { server, ids } = await hostWith(["session_before_tree"]);
  ask(server, "branch", "branch", { entryId: ids[0] });
  const { id } = await question(server);
  ask(server, "during", "verify_session", { _meta: { hook: id } });
  answer(server, id, {});
  ask(server, "later", "get_state");
  const replies = [await server.next(), await server.next(), await server.next()];
  expect(new Map(replies.map((reply) => [reply.id, reply.result]))).toEqual(
    new Map([
      ["branch", expect.objectContaining({ leafId: ids[0] })],
      ["during", expect.objectContaining({ ok: true })],
      ["later", expect.objectContaining({ leafId: ids[0] })],
    ]),
  );
});

test("the tree hook may bring a summary and a label", async () => {
  const { server, ids } = await hostWith(["session_before_tree"]);
  ask(server, "b", "branch", { entryId: ids[0] });
  const { id, params } = await question(server);
  expect(params.preparation).toMatchObject({ targetId: ids[0], oldLeafId: ids[2], commonAncestorId: ids[0] });
  expect(params.preparation.entriesToSummarize.map((entry: Json) => entry.id)).toEqual([ids[1], ids[2]]);
  answer(server, id, { summary: { summary: "left it", details: { n: 1 } }, label: "here" });
  const { summaryEntryId } = (await server.reply("b")).result;
  const { entry, label } = await server.result("get_entry", { entryId: summaryEntryId });
  expect(entry).toMatchObject({ type: "branch_summary", fromId: ids[2], summary: "left it", details: { n: 1 } });
  expect(label).toBe("here");
});

test("the tree hook is asked before an undo or a redo moves the leaf, and may refuse it", async () => {
  const { server, ids } = await hostWith(["session_before_tree"]);
  ask(server, "b", "branch", { entryId: ids[0] });
  answer(server, (await question(server)).id, {});
  await server.reply("b");
  const leaf = async (): Promise<string> => (await server.result("get_state")).leafId;
  for (const [method, from, to] of [
    ["undo", ids[0], ids[2]],
    ["redo", ids[2], ids[0]],
  ]) {
    ask(server, "no", method);
    const { id, params } = await question(server);
    expect(params.preparation).toMatchObject({ targetId: to, oldLeafId: from, userWantsSummary: false });
    answer(server, id, { cancel: true });
    const refused = (await server.reply("no")).result;
    expect(refused).toMatchObject({ cancelled: true, reason: "hook", newOperationId: "" });
    expect(await leaf()).toBe(from);
    ask(server, "yes", method);
    answer(server, (await question(server)).id, {});
    expect((await server.reply("yes")).result.cancelled).toBeUndefined();
    expect(await leaf()).toBe(to);
  }
  // A name is set where the leaf is: to take it back is no move through the tree.
  await server.result("set_session_name", { name: "x" });
  expect((await server.result("undo")).kind).toBe("rename");
});

test("compact appends what the host's model wrote", async () => {
  const { server, ids } = await hostWith(["session_before_compact"]);
  ask(server, "c", "compact", { customInstructions: "short" });
  const { id, params } = await question(server);
  expect(params).toMatchObject({ customInstructions: "short", preparation: { tokensBefore: expect.any(Number) } });
  expect(params.branchEntries.map((entry: Json) => entry.id)).toEqual(ids);
  const compaction = { summary: "all of it", firstKeptEntryId: ids[2], tokensBefore: 10 };
  answer(server, id, { compaction });
  expect((await server.reply("c")).result).toMatchObject({ cancelled: false, ...compaction });
  expect((await server.result("get_messages")).messages[0]).toMatchObject({ role: "compactionSummary" });
});

test("without the hook, compact says what to use", async () => {
  const { server } = await hostWith([]);
  expect((await server.failure("compact")).data.name).toBe("unsupported_command");
});

describe("no consent", () => {
  test.each([
    [
      "an error",
      (server: HereServer, id: Json) => server.send({ jsonrpc: "2.0", id, error: { code: 1, message: "" } }),
    ],
    ["a number", (server: HereServer, id: Json) => answer(server, id, 5)],
    ["a list", (server: HereServer, id: Json) => answer(server, id, [])],
  ])("is %s", async (_what, respond) => {
    const { server } = await hostWith(["session_before_switch"]);
    ask(server, "n", "new_session");
    respond(server, (await question(server)).id);
    expect((await server.reply("n")).result).toMatchObject({ cancelled: true, reason: "hook_failed" });
  });

  test.each<[string, Json, RegExp]>([
    ["a member that is misspelt", { canel: true }, /session_before_switch has canel.*: cancel\..*\{"cancel":true\}/],
    ["members of other programs", { result: {}, ok: true }, /has result/],
    ["a member of another kind", { cancel: "true" }, /cancel must be a boolean, not a string/],
    ["a list", [], /no object/],
    ["text", "cancel", /no object/],
  ])("is %s, and the result says why", async (_what, given, why) => {
    const { server } = await hostWith(["session_before_switch"]);
    ask(server, "n", "new_session");
    answer(server, (await question(server)).id, given);
    const { result } = await server.reply("n");
    expect(result).toMatchObject({ cancelled: true, reason: "hook_failed", message: expect.stringMatching(why) });
  });

  test.each([
    ["branch", "session_before_tree", (ids: string[]) => ({ entryId: ids[0] }), { summary: { text: "x" } }],
    ["compact", "session_before_compact", () => ({}), { compaction: { summary: "x" } }],
    ["fork", "session_before_fork", (ids: string[]) => ({ entryId: ids[2] }), { abort: true }],
    ["clone", "session_before_fork", () => ({}), { abort: true }],
  ])("to %s is an answer of another shape", async (method, hook, params, given) => {
    const { server, ids } = await hostWith([hook]);
    ask(server, "x", method, params(ids));
    answer(server, (await question(server)).id, given);
    const { result } = await server.reply("x");
    expect(result).toMatchObject({ cancelled: true, reason: "hook_failed", message: expect.stringContaining(hook) });
    expect((await server.result("get_state")).leafId).toBe(ids[2]);
  });

  test("is an error, whose sentence comes back", async () => {
    const { server } = await hostWith(["session_before_switch"]);
    ask(server, "n", "new_session");
    server.send({ jsonrpc: "2.0", id: (await question(server)).id, error: { code: 1, message: "no idea" } });
    expect((await server.reply("n")).result.message).toMatch(/session_before_switch.*no idea/);
  });

  test("is silence, unless the host said otherwise", async () => {
    for (const [onTimeout, cancelled] of [
      ["cancel", true],
      ["continue", false],
    ] as const) {
      const { server } = await hostWith([{ name: "session_before_switch", onTimeout }], ["--hook-timeout", "20"]);
      ask(server, "n", "new_session");
      const { id } = await question(server);
      expect((await server.reply("n")).result).toMatchObject({
        cancelled,
        ...(cancelled ? { reason: "hook_timeout" } : {}),
      });
      // The host is told that nobody waits any more, and its late answer is nothing.
      expect(server.events.filter(({ method }) => method === "$/cancelRequest")).toEqual([
        expect.objectContaining({ params: { id } }),
      ]);
      answer(server, id, { cancel: true });
      expect((await server.result("get_state")).entryCount).toBe(cancelled ? 3 : 0);
    }
  });

  test("is the end of the host's input", async () => {
    const { server } = await hostWith(["session_before_switch"]);
    ask(server, "n", "new_session");
    await question(server);
    const { messages, status } = await server.finish();
    expect(messages.at(-1)).toMatchObject({ id: "n", result: { cancelled: true, reason: "host_gone" } });
    expect(status).toBe(0);
  });
});

test("a command that waits for consent can be cancelled", async () => {
  const { server, ids } = await hostWith(["session_before_fork"]);
  ask(server, "f", "fork", { entryId: ids[2] });
  await question(server);
  server.send({ jsonrpc: "2.0", method: "$/cancelRequest", params: { id: "f" } });
  expect(await server.reply("f")).toMatchObject({ error: { code: -32800 } });
  expect((await server.result("get_state")).leafId).toBe(ids[2]);
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

acrossTiers(test, [100, 400])("%i questions, answered in every way, leave one state that agrees", async (count) => {
  const seed = Number(process.env.PI_TEST_SEED ?? 1);
  const random = new Random(seed);
  const { server, ids } = await hostWith(["session_before_tree"], ["--hook-timeout", "1"]);
  let leaf = ids[2];
  for (let n = 0; n < count; n++) {
    const target = ids[random.int(3)];
    ask(server, `${n}`, "branch", { entryId: target });
    if (target !== leaf) {
      const { id } = await question(server);
      const how = random.int(5);
      if (how === 0) answer(server, id, { cancel: true });
      else if (how === 1) answer(server, id, "nonsense");
      else if (how === 2) server.send({ jsonrpc: "2.0", id, error: { code: -1, message: "no" } });
      else if (how === 3) answer(server, id, {});
      // Otherwise nothing is said, and time decides.
    }
    const { cancelled } = (await server.reply(`${n}`)).result;
    if (!cancelled) leaf = target;
    if (n % 50 === 0) expect((await server.result("get_state")).leafId, `PI_TEST_SEED=${seed}, ${n}`).toBe(leaf);
  }
  expect((await server.result("get_state")).leafId, `PI_TEST_SEED=${seed}`).toBe(leaf);
});
