/** The updates of a session for an editor, on every store: each entry of the path, once, in order, also of others. */

import { appendFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { editorHere, entryIdsOf, ours } from "../../support/acp.ts";
import { pathTo, randomSession, requireLoaded, requireShown, storedIn } from "../../support/acp-paths.ts";
import { entryText, headerText, SESSION } from "../../support/lines.ts";
import { forSeedsAsync } from "../../support/random.ts";
import { type Json, serveHere, stopTimers, temporaryPlace } from "../../support/server.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";

const STORES = ["jsonl", "v2"] as const;
const CWD = "/home/me/project";

acrossTiers(describe, STORES)("on %s", (store) => {
  acrossTiers(test, [1, 4])("each entry is shown, once, in order, of %i sessions", async (count) => {
    await forSeedsAsync(count, async (random) => {
      const place = temporaryPlace();
      const { text, entries } = randomSession(random, 1 + random.int(120));
      await storedIn(place, store, text);
      const skills = random.chance(0.5) ? { compaction: {}, notices: {} } : {};
      const editor = await editorHere([], { place }, skills);
      const { leafId } = ours(await editor.result("session/resume", { sessionId: SESSION, cwd: CWD }));
      const path = pathTo(entries, leafId);
      await requireLoaded(editor, SESSION, CWD, path);
      // From each place that a client may hold, the rest is what comes after it.
      const held = random.int(path.length);
      const since = { _meta: { "pi-session-server": { since: path[held].id } } };
      const rest = await editor.load(SESSION, CWD, since);
      const begun = await editor.load(SESSION, CWD);
      const after = new Set(path.slice(held + 1).map(({ id }) => id));
      const isAfter = (update: Json): boolean => after.has(ours(update)?.entryId);
      expect(rest.updates.filter(isAfter)).toEqual(begun.updates.filter(isAfter));
      expect(rest.updates.filter((update) => update.messageId !== undefined && !isAfter(update))).toEqual([]);
      await editor.server.finish();
    });
  });
});

/** The lines of a path of these messages. */
function linesOf(...messages: Json[]): string {
  const ids = messages.map((_, n) => `0000000${n}`);
  const lines = messages.map((message, n) => entryText("message", ids[n], ids[n - 1] ?? null, { message }));
  return `${[headerText(), ...lines].join("\n")}\n`;
}

async function shownOf(...messages: Json[]): Promise<Json[]> {
  const place = temporaryPlace();
  await storedIn(place, "jsonl", linesOf(...messages));
  const editor = await editorHere([], { place });
  return (await editor.load(SESSION, CWD)).updates;
}

const called = (...calls: Json[]): Json => ({
  role: "assistant",
  content: calls.map(([id, name, given]) => ({ type: "toolCall", id, name, arguments: given })),
});
const result = (toolCallId: string, text: string, more: object = {}): Json => ({
  ...{ role: "toolResult", toolCallId, toolName: "x", content: [{ type: "text", text }], isError: false },
  ...more,
});

test("a change is shown as one, at its place, with absolute paths", async () => {
  const edits = [
    { oldText: "a", newText: "b" },
    { oldText: "c", newText: "d" },
  ];
  const updates = await shownOf(
    called(["1", "edit", { path: "src/a.ts", edits }], ["2", "read", { path: "../up.ts", offset: 7 }]),
    result("1", "Edited."),
    result("2", "text"),
  );
  const [edit, read] = updates.filter(({ sessionUpdate }) => sessionUpdate === "tool_call");
  expect(edit).toMatchObject({ kind: "edit", title: "edit src/a.ts", locations: [{ path: `${CWD}/src/a.ts` }] });
  expect(read).toMatchObject({ kind: "read", locations: [{ path: "/home/me/up.ts", line: 7 }] });
  const done = updates.find(({ toolCallId, status }) => toolCallId === "1" && status === "completed");
  expect(done?.content).toEqual([
    ...edits.map((edit) => ({ type: "diff", path: `${CWD}/src/a.ts`, ...edit })),
    { type: "content", content: { type: "text", text: "Edited." } },
  ]);
});

test("of an agent of the protocol, what a client cannot take is left out", async () => {
  const broken = [7, {}, { type: "link" }, { type: "resource", resource: {} }, { type: "audio", data: 1 }];
  const words = broken.map((acp, n) => ({ type: "text", text: `${n}`, acp }));
  const terminal = { type: "terminal", terminalId: "t" };
  const text = { type: "content", content: { type: "text", text: "whole" } };
  const wrong = { title: 1, kind: "own", status: "own", locations: [7, { path: "/a", line: -1 }], _meta: 1 };
  const call = { ...called(["1", "read", {}]).content[0], acp: wrong };
  const content = [terminal, ...broken.map((content) => ({ type: "content", content })), { type: "diff" }, text];
  const updates = await shownOf(
    { role: "user", content: words },
    { role: "assistant", content: [...words, call] },
    result("1", "", { details: { acp: { ...wrong, content } } }),
  );
  expect(updates.flatMap(({ content }) => content?.text ?? []).join("")).toBe("0123401234");
  const [made, done] = updates.filter(({ toolCallId }) => toolCallId === "1");
  expect(made).toMatchObject({ title: "read", status: "pending", locations: [{ path: "/a" }] });
  expect(done).toMatchObject({ status: "completed", content: [text] });
});

test("a plan is shown as one", async () => {
  const first = { content: "first", status: "completed", priority: "high" };
  const todos = [first, { content: "then" }];
  const updates = await shownOf(called(["1", "TodoWrite", { todos }]), result("1", "ok"));
  const then = { content: "then", status: "pending", priority: "medium" };
  expect(updates.find(({ sessionUpdate }) => sessionUpdate === "plan")?.entries).toEqual([first, then]);
});

test("calls without a result have failed, and results without a call are over", async () => {
  const updates = await shownOf(
    called(["1", "bash", { command: "sleep" }], ["2", "bash", { command: "ls" }]),
    result("2", "a.txt"),
    result("9", "of nobody", { isError: true }),
    { role: "user", content: "Go on." },
    called(["3", "bash", { command: "pwd" }]),
  );
  const last = new Map(updates.flatMap(({ toolCallId, status }) => (toolCallId ? [[toolCallId, status]] : [])));
  expect(Object.fromEntries(last)).toEqual({ 1: "failed", 2: "completed", "00000002": "failed", 3: "failed" });
});

test("a text that is long comes in pieces, of which none cuts a character", async () => {
  const text = "x😀".repeat(100_000);
  const updates = (await shownOf({ role: "user", content: text })).filter(({ content }) => content);
  expect(updates.length).toBeGreaterThan(1);
  expect(updates.map(({ content }) => content.text).join("")).toBe(text);
  for (const { content } of updates) expect(content.text.isWellFormed()).toBe(true);
});

test("what no client takes is cut, and says so", SYSTEM, async () => {
  const large = "x".repeat(9 << 20);
  const updates = await shownOf(
    called(["1", "write", { path: "a.txt", content: large }]),
    result("1", large, { details: { large } }),
    { role: "user", content: [{ type: "image", data: large, mimeType: "image/png" }] },
  );
  for (const update of updates) expect(JSON.stringify(update).length).toBeLessThan(1 << 20);
  const cut = updates.filter((update) => ours(update)?.cutFrom > 9 << 20);
  const kinds = cut.map(({ sessionUpdate }) => sessionUpdate).join(" ");
  expect(kinds).toBe("tool_call tool_call_update user_message_chunk");
  expect(cut[1].content.map(({ content }: Json) => content.text.slice(-30))).toEqual([
    expect.stringContaining("too large"),
    expect.stringContaining("[cut here]"),
  ]);
});

test("values that are nested beyond what a stack holds are shown", async () => {
  const deep = 20_000;
  const place = temporaryPlace();
  const text = linesOf(called(["1", "bash", { command: "x", deep: "HERE" }]), { role: "user", content: "after" });
  await storedIn(place, "jsonl", text.replace('"HERE"', `${"[".repeat(deep)}${"]".repeat(deep)}`));
  const server = serveHere(["--dialect", "acp"], { place });
  await server.result("initialize", { protocolVersion: 1 });
  await server.result("session/load", { sessionId: SESSION, cwd: CWD, mcpServers: [] });
  const said = server.events.flatMap(({ params }) => params?.update.content?.text ?? []);
  expect(said).toContain("after");
});

test("usage is told with the window of the model, and what the path has cost", async () => {
  const usage = { input: 900, output: 100, cacheRead: 0, cacheWrite: 0, totalTokens: 1000, cost: { total: 0.5 } };
  const said = { role: "assistant", provider: "anthropic", model: "claude-sonnet-4-5", usage, stopReason: "stop" };
  const answer = (text: string): Json => ({ ...said, content: [{ type: "text", text }] });
  const asked = ["Hello", "Bye"].map((content) => ({ role: "user", content }));
  const updates = await shownOf(asked[0], answer("Hi."), asked[1], answer("Bye."));
  const shown = { used: 1000, size: 200_000, cost: { amount: 1, currency: "USD" } };
  expect(updates.findLast(({ sessionUpdate }) => sessionUpdate === "usage_update")).toMatchObject(shown);
});

test("what is around damage is shown", async () => {
  const place = temporaryPlace();
  const text = linesOf(...["one", "two", "three"].map((content) => ({ role: "user", content })));
  await storedIn(place, "jsonl", text.replace('"two"', '"\u0001wo"'));
  const { updates } = await (await editorHere([], { place })).load(SESSION, CWD);
  expect(updates.flatMap(({ content }) => content?.text ?? [])).toEqual(expect.arrayContaining(["one", "three"]));
});

acrossTiers(test, [1, 2])("what a program without locks appends is shown once, in order (%i)", async (count) => {
  stopTimers();
  await forSeedsAsync(count, async (random) => {
    const place = temporaryPlace();
    const { text, entries } = randomSession(random, 60, 0);
    const lines = text.split("\n");
    const begun = 2 + random.int(20);
    const path = await storedIn(place, "jsonl", `${lines.slice(0, begun).join("\n")}\n`);
    const editor = await editorHere([], { place });
    await editor.result("session/load", { sessionId: SESSION, cwd: CWD, mcpServers: [] });
    for (let at = begun; at < lines.length - 1; ) {
      const past = Math.min(at + 10 + random.int(30), lines.length - 1);
      appendFileSync(path, `${lines.slice(at, past).join("\n")}\n`);
      at = past;
      await editor.until((update) => ours(update)?.entryId === entries[at - 2].id);
    }
    // The last entry may come in several updates.
    await editor.result("session/list");
    expect(entryIdsOf(editor.take(SESSION))).toEqual(entries.map(({ id }) => id));
    const { updates } = await editor.load(SESSION, CWD);
    requireShown(entries, updates);
    await editor.server.finish();
  });
});
