import { expect, test } from "vitest";
import { assistant, toolResult, user } from "../support/drafts.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";
import { calls } from "../support/turns.ts";

async function serverWith(...entries: Json[]): Promise<{ server: HereServer; ids: string[] }> {
  const server = serveHere(["--no-session"]);
  const { entryIds } = await server.result("append", { entries });
  return { server, ids: entryIds };
}

const idsOf = (entries: Json[]): string[] => entries.map(({ id }) => id);

test("what lies between the common ancestor and the leaf is left behind", async () => {
  const { server, ids } = await serverWith(user("a"), assistant("b"));
  const { entryIds: other } = await server.result("append", {
    entries: [user("c"), calls("d", { id: "1", name: "write", arguments: { path: "d.ts" } }), toolResult("1", "e")],
  });
  await server.result("branch", { entryId: ids[1] });
  const { entryIds: here } = await server.result("append", { entries: [user("f"), assistant("g")] });
  const back = await server.result("prepare_branch_summary", { targetId: other[2] });
  expect(back).toMatchObject({ oldLeafId: here[1], commonAncestorId: ids[1], details: { modifiedFiles: [] } });
  expect(idsOf(back.entriesToSummarize)).toEqual(here);
  expect(back.conversationText).toBe("User: f\n\nAssistant: g");
  await server.result("branch", { entryId: other[2] });
  const forth = await server.result("prepare_branch_summary", { targetId: here[1] });
  expect(idsOf(forth.entriesToSummarize)).toEqual(other);
  expect(forth.details).toEqual({ readFiles: [], modifiedFiles: ["d.ts"] });
});

test("on the same path: up, all that follows the target is left; down, nothing", async () => {
  const { server, ids } = await serverWith(user("a"), assistant("b"), user("c"));
  const up = await server.result("prepare_branch_summary", { targetId: ids[0] });
  expect(up.commonAncestorId).toBe(ids[0]);
  expect(idsOf(up.entriesToSummarize)).toEqual(ids.slice(1));
  await server.result("branch", { entryId: ids[0] });
  const down = await server.result("prepare_branch_summary", { targetId: ids[2] });
  expect(down).toMatchObject({ commonAncestorId: ids[0], entriesToSummarize: [], conversationText: "" });
});

test("before the first entry nothing is common", async () => {
  const { server, ids } = await serverWith(user("a"), assistant("b"));
  const plan = await server.result("prepare_branch_summary", { targetId: null });
  expect(plan.commonAncestorId).toBeNull();
  expect(idsOf(plan.entriesToSummarize)).toEqual(ids);
  await server.result("branch", { entryId: null });
  expect(await server.result("prepare_branch_summary", { targetId: ids[1] })).toMatchObject({
    oldLeafId: null,
    commonAncestorId: null,
    entriesToSummarize: [],
  });
});

test("summaries that are left behind are told, with the files of branches", async () => {
  const { server, ids } = await serverWith(user("a"), user("b"));
  const details = { readFiles: ["r.ts"], modifiedFiles: ["m.ts"] };
  await server.result("branch", { entryId: ids[0], summary: { summary: "went there", details } });
  const { entryIds } = await server.result("append", { entries: [user("c")] });
  await server.result("compact_append", { summary: "so far", firstKeptEntryId: entryIds[0], tokensBefore: 1 });
  const plan = await server.result("prepare_branch_summary", { targetId: ids[0] });
  expect(plan.details).toEqual(details);
  expect(plan.conversationText).toBe(
    "Summary of another branch: went there\n\nUser: c\n\nSummary of what came before: so far",
  );
});

test("its parts make a branch with a summary, which session_tree tells", async () => {
  const { server, ids } = await serverWith(user("a"), calls("b", "1"), toolResult("1", "c"));
  const { oldLeafId, details } = await server.result("prepare_branch_summary", { targetId: ids[0] });
  const moved = await server.result("branch", { entryId: ids[0], summary: { summary: "s", details }, label: "back" });
  const { entry, label } = await server.result("get_entry", { entryId: moved.summaryEntryId });
  expect(entry).toMatchObject({ type: "branch_summary", parentId: ids[0], fromId: oldLeafId, summary: "s", details });
  expect(label).toBe("back");
  const told = server.events.find(({ method }) => method === "session_tree");
  expect(told.params).toMatchObject({ oldLeafId, newLeafId: moved.leafId, summaryEntry: { id: moved.summaryEntryId } });
});

test("an unknown target is not found", async () => {
  const { server } = await serverWith(user("a"));
  expect((await server.failure("prepare_branch_summary", { targetId: "none" })).data.name).toBe("entry_not_found");
});
