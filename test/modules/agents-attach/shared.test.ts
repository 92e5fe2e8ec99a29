/** Editors that share a session with other hosts. */

import { appendFileSync } from "node:fs";
import { expect, test } from "vitest";
import { editorHere, editorWith, ours, type Update } from "../../support/acp.ts";
import { acpLike, until } from "../../support/agents.ts";
import { HERE } from "../../support/agents-here.ts";
import { assistant, toolCall, toolResult, user } from "../../support/drafts.ts";
import { type Json, serveHere, spawnServer } from "../../support/server.ts";
import { SYSTEM } from "../../support/tiers.ts";

/** An editor, and another host of the same session: two servers; the editor's holds it. */
async function shared() {
  const { place, id: sessionId, editor } = await editorWith();
  await editor.load(sessionId);
  await editor.result("session/set_title", { sessionId, title: "Ours" });
  return { place, editor, sessionId, args: ["--session", sessionId] };
}

/** An editor that shares its session with a host in this process. */
async function sharedHere() {
  const { place, args, ...rest } = await shared();
  return { ...rest, other: serveHere(args, { place }) };
}

test("what another host of a shared session appends is shown, calls with their results", async () => {
  const { editor, other, sessionId } = await sharedHere();
  await other.result("append", { entries: [user("Another."), toolCall("1")] });
  const call = await editor.until(({ sessionUpdate }) => sessionUpdate === "tool_call");
  expect(call).toMatchObject({ toolCallId: "1", status: "pending" });
  await other.result("append", { entries: [toolResult("1", "green"), assistant("Green.")] });
  expect(await editor.until(({ toolCallId }) => toolCallId === "1")).toMatchObject({ status: "completed" });
  expect(await editor.heard("Green.")).toMatchObject({ sessionUpdate: "agent_message_chunk" });
  await other.result("set_session_name", { name: "Theirs" });
  expect(await editor.until(({ title }) => title === "Theirs")).toBeDefined();
  // All of it, once.
  const idsIn = (updates: readonly Update[]): string[] => updates.flatMap((update) => ours(update)?.entryId ?? []);
  const live = idsIn(editor.take(sessionId));
  expect(idsIn((await editor.load(sessionId)).updates).slice(-live.length)).toEqual(live);
});

test("a call without a result has failed, unless another host may still be at work", SYSTEM, async () => {
  const { place, editor, sessionId, args } = await shared();
  const other = spawnServer(args, "lines", place);
  await other.result("append", { entries: [toolCall("1")] });
  const stateOf = async (): Promise<string> =>
    (await editor.load(sessionId)).updates.findLast(({ toolCallId }) => toolCallId === "1")?.status;
  expect(await stateOf()).toBe("pending");
  await other.finish();
  await editor.result("session/set_title", { sessionId, title: "Alone" });
  expect(await stateOf()).toBe("failed");
});

test("where another host leaves the branch that the editor shows, it is told where", async () => {
  const { editor, other, sessionId } = await sharedHere();
  const { messages } = await other.result("get_fork_messages");
  const [{ entryId }] = messages;
  await other.result("branch", { entryId });
  const left = await editor.until((update) => ours(update)?.after !== undefined);
  expect(ours(left)).toMatchObject({ after: entryId, leafId: entryId });
  await other.result("append", { entries: [assistant("Red.")] });
  const next = await editor.heard("Red.");
  expect(ours(next)).toMatchObject({ parentId: entryId, siblings: 2 });
  expect(editor.take(sessionId).filter(({ content }) => content?.text === "Blue.")).toEqual([]);
});

test("what another program writes during an agent's turn is reported to the other hosts", async () => {
  const agent = ["--agent", acpLike(), "--agent-protocol", "acp"];
  const editor = await editorHere(agent, { agentLaunch: HERE });
  const { sessionId } = await editor.make();
  await editor.turn(sessionId, "one");
  const other = serveHere(["--session", sessionId], { place: editor.server.place });
  await other.result("append", { entries: [user("Here.")] });
  const { sessionFile } = await other.result("get_state");
  const turn = editor.begins(sessionId, "chunks 100000 every 5");
  await editor.heard("1 ");
  const custom = {
    type: "custom",
    id: "0badcafe",
    parentId: null,
    timestamp: "2026-01-01T00:00:00.000Z",
    customType: "x",
  };
  appendFileSync(sessionFile, `${JSON.stringify(custom)}\n`);
  editor.cancel(sessionId);
  expect(await editor.end(turn)).toBe("cancelled");
  const { entries } = await other.result("get_entries");
  const ids: string[] = entries.map(({ id }: Json) => id);
  const last = await until(other, ({ params }) => params?.entryIds?.includes(ids.at(-1)));
  const reported = [...other.events, last].flatMap(({ params }) => params?.entryIds ?? []);
  expect(reported).toEqual(ids.slice(-reported.length));
  expect(reported).toContain("0badcafe");
});

test("other hosts cannot write during an agent's turn, and hear that they can later", async () => {
  const agent = ["--agent", acpLike(), "--agent-protocol", "acp"];
  const editor = await editorHere(agent, { agentLaunch: HERE });
  const { sessionId } = await editor.make();
  await editor.turn(sessionId, "one");
  const other = serveHere(["--session", sessionId], { place: editor.server.place });
  const turn = editor.begins(sessionId, "chunks 100000 every 5");
  await editor.heard("1 ");
  const { code, message, data } = await other.failure("set_session_name", { name: "x" });
  expect([code, data]).toEqual([-32803, expect.objectContaining({ name: "session_locked", retryable: true })]);
  expect(message).toContain("The agent is at work in this session");
  editor.cancel(sessionId);
  await editor.end(turn);
  await other.result("set_session_name", { name: "x" });
});

test("other hosts see which editor shares the session", async () => {
  const { other } = await sharedHere();
  await other.result("append", { entries: [user("Here.")] });
  const { clients } = await other.result("list_clients");
  expect(clients.map(({ name }: Json) => name)).toContain("test-editor");
});
