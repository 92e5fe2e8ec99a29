/** What a branch found comes to the leaf. */

import { describe, expect, test } from "vitest";
import { fileOf, linesIn, sessionFile } from "../support/cases.ts";
import { assistant, toolResult, user } from "../support/drafts.ts";
import { chain, headerText } from "../support/lines.ts";
import { type HereServer, type Json, serveHere, temporaryPlace } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";
import { calls } from "../support/turns.ts";

const write = (id: string, path: string): Json => ({ id, name: "write", arguments: { path } });

async function append(server: HereServer, ...entries: Json[]): Promise<string[]> {
  return (await server.result("append", { entries })).entryIds;
}

const failureOf = async (server: HereServer, params: Json): Promise<string> =>
  (await server.failure("merge_branch", params)).data.name;

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
    expect(prepared).toMatchObject({
      oldLeafId: here[1],
      commonAncestorId: trunk[1],
      details: { modifiedFiles: ["d.ts"] },
    });
    expect(prepared.entriesToSummarize.map((entry: Json) => entry.id)).toEqual(branch);
    expect(prepared.conversationText).toMatch(/^User: c\n\nAssistant: d\n/);
    const merged = await server.result("merge_branch", { from: branch[2].slice(0, 8), summary: "d.ts is the way" });
    expect(merged).toMatchObject({ fromId: branch[2], commonAncestorId: trunk[1], entryCount: 3 });
    const { entry } = await server.result("get_entry", { entryId: merged.entryId });
    const { entryId, leafId, ...provenance } = merged;
    expect(entry).toMatchObject({
      type: "branch_summary",
      parentId: here[1],
      fromId: branch[2],
      summary: "d.ts is the way",
      details: { readFiles: [], modifiedFiles: ["d.ts"], merged: provenance },
    });
    expect((await server.result("get_state")).leafId).toBe(entryId);
    const { messages } = await server.result("get_messages");
    expect(messages.at(-1)).toMatchObject({ role: "branchSummary", summary: "d.ts is the way", fromId: branch[2] });
    expect(leafId).toBe(entryId);
    const told = server.events.filter(({ params }) => params.entryIds?.includes(entryId));
    expect(told.map(({ method }) => method)).toEqual(["session_append"]);
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
    expect(await server.result("merge_branch", { from: branch[1], summary: "elsewhere" })).toMatchObject({
      entryCount: 2,
    });
  });

  test("with a key, once, also by a server that comes later", async () => {
    const { server, branch } = await ready();
    const params = { from: branch[2], summary: "s", idempotencyKey: "k" };
    const first = await server.result("merge_branch", params);
    expect(await server.result("merge_branch", params)).toEqual(first);
    const { sessionFile } = await server.result("get_state");
    await server.finish();
    const later = serveHere(["--session", sessionFile, "--events", "none"], { place: server.place });
    expect(await later.result("merge_branch", params)).toEqual(first);
    const { summaryEntryId } = await later.result("branch", {
      entryId: branch[0],
      summary: { summary: "t" },
      idempotencyKey: "other",
    });
    expect(summaryEntryId).toBeDefined();
    expect((await later.failure("merge_branch", { ...params, idempotencyKey: "other" })).code).toBe(-32602);
  });

  test("where the path has it already there is nothing to merge", async () => {
    const { server, trunk, branch, here } = await ready();
    const before = (await server.result("get_entries")).entries;
    for (const from of [trunk[0], here[0], here[1], "leaf"])
      expect(await failureOf(server, { from, summary: "s" }), from).toBe("nothing_to_merge");
    expect(await failureOf(server, { from: "none", summary: "s" })).toBe("entry_not_found");
    expect(await failureOf(server, { from: branch[2], summary: "s", expectedLeafId: trunk[0] })).toBe(
      "content_modified",
    );
    for (const summary of ["", " \n"])
      expect((await server.failure("merge_branch", { from: branch[2], summary })).code).toBe(-32602);
    expect((await server.result("get_entries")).entries).toEqual(before);
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
    expect(await failureOf(server, { otherId: sessionId, from: own[0], summary: "s" })).toBe("nothing_to_merge");
    expect((await server.result("verify_session")).ok).toBe(true);
  });
});

test("details and usage of the host are stored as they were sent, with the provenance", async () => {
  const place = temporaryPlace();
  const file = sessionFile(place, [...chain(2), chain(2, 5)[0].replace(/"parentId":"[^"]*"/, '"parentId":"a0000000"')]);
  const server = serveHere(["--session", file, "--events", "none"], { place });
  server.write(
    `{"jsonrpc":"2.0","id":1,"method":"merge_branch","params":{"from":"a0000001","summary":"s","details":{"n":1.50,"merged":7},"usage":{"input":1e2},"fromHook":true}}\n`,
  );
  expect((await server.reply(1)).result).toMatchObject({ entryCount: 1 });
  await server.finish();
  const line = linesIn(file).at(-1) as string;
  expect(line).toContain(`"details":{"n":1.50,"merged":{"fromId":"a0000001"`);
  expect(line).toContain(`"usage":{"input":1e2},"fromHook":true`);
});

test("a session that is none, or has nothing to do with it, is refused", async () => {
  const place = temporaryPlace();
  const file = sessionFile(place, chain(2));
  const alien = sessionFile(
    place,
    [chain(1)[0].replaceAll("a0000000", "bbbb0000")],
    "b.jsonl",
    headerText({ id: "alien" }),
  );
  const server = serveHere(["--session", file, "--events", "none"], { place });
  const params = { from: "leaf", summary: "s" };
  expect(await failureOf(server, { ...params, otherPath: alien })).toBe("unrelated_sessions");
  expect(await failureOf(server, { ...params, otherPath: fileOf(place, "x\n", "x.jsonl") })).toBe("not_a_session");
  expect(linesIn(file)).toHaveLength(3);
});
