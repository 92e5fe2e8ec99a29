/** Data for a host's summary of the branch that is left. */

import { expect, test } from "vitest";
import { append, conversation, idsOf, nameOf } from "../support/asking.ts";
import { assistant, toolResult, user } from "../support/drafts.ts";
import { calls } from "../support/turns.ts";

test("what lies between the common ancestor and the leaf is left behind", async () => {
  const { server, ids } = await conversation(user("a"), assistant("b"));
  const writing = calls("d", { id: "1", name: "write", arguments: { path: "d.ts" } });
  const other = await append(server, user("c"), writing, toolResult("1", "e"));
  await server.result("branch", { entryId: ids[1] });
  const here = await append(server, user("f"), assistant("g"));
  const back = await server.result("prepare_branch_summary", { targetId: other[2] });
  expect(back).toMatchObject({ oldLeafId: here[1], commonAncestorId: ids[1], details: { modifiedFiles: [] } });
  expect([idsOf(back.entriesToSummarize), back.conversationText]).toEqual([here, "User: f\n\nAssistant: g"]);
  await server.result("branch", { entryId: other[2] });
  const forth = await server.result("prepare_branch_summary", { targetId: here[1] });
  expect(idsOf(forth.entriesToSummarize)).toEqual(other);
  expect(forth.details).toEqual({ readFiles: [], modifiedFiles: ["d.ts"] });
});

test("on the same path: up, all that follows the target is left; down, nothing", async () => {
  const { server, ids } = await conversation(user("a"), assistant("b"), user("c"));
  for (const [target, left] of [
    [0, ids.slice(1)],
    [-1, ids],
  ] as const) {
    const up = await server.result("prepare_branch_summary", { targetId: ids[target] ?? null });
    expect([up.commonAncestorId, idsOf(up.entriesToSummarize)]).toEqual([ids[target] ?? null, left]);
  }
  for (const entryId of [ids[0], null]) {
    await server.result("branch", { entryId });
    const down = await server.result("prepare_branch_summary", { targetId: ids[2] });
    const nothing = { oldLeafId: entryId, commonAncestorId: entryId, entriesToSummarize: [], conversationText: "" };
    expect(down).toMatchObject(nothing);
  }
  expect(await nameOf(server, "prepare_branch_summary", { targetId: "none" })).toBe("entry_not_found");
});

test("summaries that are left behind are told, with the files of branches", async () => {
  const { server, ids } = await conversation(user("a"), user("b"));
  const details = { readFiles: ["r.ts"], modifiedFiles: ["m.ts"] };
  await server.result("branch", { entryId: ids[0], summary: { summary: "went there", details } });
  const [firstKeptEntryId] = await append(server, user("c"));
  await server.result("compact_append", { summary: "so far", firstKeptEntryId, tokensBefore: 1 });
  const plan = await server.result("prepare_branch_summary", { targetId: ids[0] });
  expect(plan.details).toEqual(details);
  const texts = ["Summary of another branch: went there", "User: c", "Summary of what came before: so far"];
  expect(plan.conversationText.split("\n\n")).toEqual(texts);
});

test("its parts make a branch with a summary, which session_tree tells", async () => {
  const { server, ids } = await conversation(user("a"), calls("b", "1"), toolResult("1", "c"));
  const { oldLeafId, details } = await server.result("prepare_branch_summary", { targetId: ids[0] });
  const moved = await server.result("branch", { entryId: ids[0], summary: { summary: "s", details }, label: "back" });
  const { entry, label } = await server.result("get_entry", { entryId: moved.summaryEntryId });
  expect(entry).toMatchObject({ type: "branch_summary", parentId: ids[0], fromId: oldLeafId, summary: "s", details });
  expect(label).toBe("back");
  const tree = server.events.find(({ method }) => method === "session_tree");
  expect(tree.params).toMatchObject({ oldLeafId, newLeafId: moved.leafId, summaryEntry: { id: moved.summaryEntryId } });
});
