/** The results of a branch come to the leaf. */

import { describe, expect, test } from "vitest";
import { append, idsOf, nameOf, restarted, resultOfText } from "../support/asking.ts";
import { fileOf, linesIn, serveLines, sessionFile } from "../support/cases.ts";
import { assistant, toolResult, user } from "../support/drafts.ts";
import { chain, headerText, userText } from "../support/lines.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";
import { calls } from "../support/turns.ts";

const write = (id: string, path: string): Json => ({ id, name: "write", arguments: { path } });

acrossTiers(describe, ["jsonl", "v2"])("in the store %s", (store) => {
  async function ready(): Promise<{ server: HereServer; trunk: string[]; branch: string[]; here: string[] }> {
    const server = serveHere(["--store", store, "--events", "session_append,session_tree"]);
    const trunk = await append(server, user("a"), assistant("b"));
    const branch = await append(server, user("c"), calls("d", write("1", "d.ts")), toolResult("1", "e"));
    await server.result("branch", { entryId: trunk[1] });
    return { server, trunk, branch, here: await append(server, user("f"), assistant("g")) };
  }

  test("its summary is an entry after the leaf that the model sees, with where it is from", async () => {
    const { server, trunk, branch, here } = await ready();
    const prepared = await server.result("prepare_branch_summary", { fromId: branch[2] });
    const details = { modifiedFiles: ["d.ts"] };
    expect(prepared).toMatchObject({ oldLeafId: here[1], commonAncestorId: trunk[1], details });
    expect(idsOf(prepared.entriesToSummarize)).toEqual(branch);
    expect(prepared.conversationText).toMatch(/^User: c\n\nAssistant: d\n/);
    const summary = "d.ts is the way";
    const merged = await server.result("merge_branch", { from: branch[2].slice(0, 8), summary });
    const { entryId, leafId, ...provenance } = merged;
    expect(provenance).toMatchObject({ fromId: branch[2], commonAncestorId: trunk[1], entryCount: 3 });
    const { entry } = await server.result("get_entry", { entryId });
    expect(entry).toMatchObject({
      ...{ type: "branch_summary", parentId: here[1], fromId: branch[2], summary },
      details: { readFiles: [], ...details, merged: provenance },
    });
    expect([leafId, (await server.result("get_state")).leafId]).toEqual([entryId, entryId]);
    const { messages } = await server.result("get_messages");
    expect(messages.at(-1)).toMatchObject({ role: "branchSummary", summary, fromId: branch[2] });
    const events = server.events.filter(({ params }) => params.entryIds?.includes(entryId));
    expect(events.map(({ method }) => method)).toEqual(["session_append"]);
  });

  test("a branch is merged once; what came to it since is merged with it again", async () => {
    const { server, trunk, branch } = await ready();
    const first = await server.result("merge_branch", { from: branch[1], summary: "one" });
    for (const from of [branch[0], branch[1]]) {
      const { data } = await server.failure("merge_branch", { from, summary: "two" });
      expect(data).toMatchObject({ name: "nothing_to_merge", entryId: first.entryId });
    }
    expect(await server.result("merge_branch", { from: branch[2], summary: "two" })).toMatchObject({ entryCount: 3 });
    await server.result("branch", { entryId: trunk[1] });
    const elsewhere = await server.result("merge_branch", { from: branch[1], summary: "elsewhere" });
    expect(elsewhere).toMatchObject({ entryCount: 2 });
  });

  test("with a key, once, also by a server that comes later", async () => {
    const { server, branch } = await ready();
    const params = { from: branch[2], summary: "s", idempotencyKey: "k" };
    const first = await server.result("merge_branch", params);
    expect(await server.result("merge_branch", params)).toEqual(first);
    const later = await restarted(server);
    expect(await later.result("merge_branch", params)).toEqual(first);
    const other = { entryId: branch[0], summary: { summary: "t" }, idempotencyKey: "other" };
    expect((await later.result("branch", other)).summaryEntryId).toBeDefined();
    expect((await later.failure("merge_branch", { ...params, idempotencyKey: "other" })).code).toBe(-32602);
  });

  test("where the path has it already there is nothing to merge", async () => {
    const { server, trunk, branch, here } = await ready();
    const before = (await server.result("get_entries")).entries;
    const refused = (params: Json): Promise<string> => nameOf(server, "merge_branch", { summary: "s", ...params });
    for (const from of [trunk[0], here[0], here[1], "leaf"]) expect(await refused({ from })).toBe("nothing_to_merge");
    expect(await refused({ from: "none" })).toBe("entry_not_found");
    expect(await refused({ from: branch[2], expectedLeafId: trunk[0] })).toBe("content_modified");
    for (const summary of ["", " \n"]) expect(await refused({ from: branch[2], summary })).toBe("invalid_params");
    expect((await server.result("get_entries")).entries).toEqual(before);
  });

  test("a branch of another root has no common ancestor", async () => {
    const server = serveHere(["--store", store]);
    const branch = await append(server, user("a"), assistant("b"));
    await server.result("branch", { entryId: null });
    await append(server, user("c"));
    const merged = await server.result("merge_branch", { from: branch[1], summary: "s" });
    expect(merged).toMatchObject({ fromId: branch[1], commonAncestorId: null, entryCount: 2 });
    const { entry } = await server.result("get_entry", { entryId: merged.entryId });
    expect(entry.details.merged.commonAncestorId).toBeNull();
  });

  test("what a fork found comes to its original", async () => {
    const { server, trunk, here } = await ready();
    const { sessionFile: original } = await server.result("get_state");
    const { sessionFile: fork, sessionId } = await server.result("fork", { entryId: here[0] });
    const own = await append(server, user("h"), calls("i", write("2", "i.ts")));
    await server.result("switch_session", { sessionPath: original });
    const merged = await server.result("merge_branch", { otherPath: fork, from: "leaf", summary: "i.ts" });
    const from = { fromId: own[1], commonAncestorId: trunk[1], entryCount: 2, sessionId, sessionPath: fork };
    expect(merged).toMatchObject(from);
    const { entry } = await server.result("get_entry", { entryId: merged.entryId });
    expect(entry.details).toMatchObject({ modifiedFiles: ["i.ts"], merged: from });
    const again = { otherId: sessionId, from: own[0], summary: "s" };
    expect(await nameOf(server, "merge_branch", again)).toBe("nothing_to_merge");
    expect((await server.result("verify_session")).ok).toBe(true);
  });
});

test("details and usage of the host are stored as they were sent, with the provenance", async () => {
  const { server, file } = serveLines([...chain(2), userText("b0000000", "a0000000")]);
  const sent = '"details":{"n":1.50,"merged":7},"usage":{"input":1e2},"fromHook":true';
  const merged = await resultOfText(server, "merge_branch", `{"from":"a0000001","summary":"s",${sent}}`);
  expect(merged).toMatchObject({ entryCount: 1 });
  await server.finish();
  const line = linesIn(file).at(-1) as string;
  expect(line).toContain(`"details":{"n":1.50,"merged":{"fromId":"a0000001"`);
  expect(line).toContain(`"usage":{"input":1e2},"fromHook":true`);
});

test("a session that is none, or has nothing to do with it, is refused", async () => {
  const { server, file, place } = serveLines(chain(2));
  const alien = sessionFile(place, [userText("bbbb0000", null)], "b.jsonl", headerText({ id: "alien" }));
  const refused = (otherPath: string): Promise<string> =>
    nameOf(server, "merge_branch", { from: "leaf", summary: "s", otherPath });
  expect(await refused(alien)).toBe("unrelated_sessions");
  expect(await refused(fileOf(place, "x\n", "x.jsonl"))).toBe("not_a_session");
  expect(linesIn(file)).toHaveLength(3);
});
