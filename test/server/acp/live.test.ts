/** What others write to a session that an editor has, while it has it. */

import { appendFileSync } from "node:fs";
import { expect, test } from "vitest";
import { editorHere, editorWith, entryIdsOf, ours, type Update } from "../../support/acp.ts";
import { randomSession, requireShown, storedIn } from "../../support/acp-paths.ts";
import { assistant, toolCall, toolResult, user } from "../../support/drafts.ts";
import { SESSION } from "../../support/lines.ts";
import { forSeedsAsync } from "../../support/random.ts";
import { type Json, serveHere, spawnServer, stopTimers, temporaryPlace } from "../../support/server.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";

const CWD = "/home/me/project";

/** An editor, and another host of the same session: two servers, of which the editor's holds it. */
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

test("other hosts see which editor shares the session", async () => {
  const { other } = await sharedHere();
  await other.result("append", { entries: [user("Here.")] });
  const { clients } = await other.result("list_clients");
  expect(clients.map(({ name }: Json) => name)).toContain("test-editor");
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
    // The last entry may be told in several updates.
    await editor.result("session/list");
    expect(entryIdsOf(editor.take(SESSION))).toEqual(entries.map(({ id }) => id));
    const { updates } = await editor.load(SESSION, CWD);
    requireShown(entries, updates);
    await editor.server.finish();
  });
});
