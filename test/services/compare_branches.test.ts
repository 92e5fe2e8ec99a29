/** Branches side by side: where they part, and what each said, did and cost. */

import { describe, expect, test } from "vitest";
import { append, conversation, idsOf, nameOf } from "../support/asking.ts";
import { serveLines, sessionFile } from "../support/cases.ts";
import { assistant, toolResult, user } from "../support/drafts.ts";
import { chain, headerText, id, SESSION, userText } from "../support/lines.ts";
import { type HereServer, type Json, serveHere, temporaryPlace } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";
import { calls, reporting } from "../support/turns.ts";

const OTHER = "01991f6e-2222-7c3e-b0a4-0242ac120003";

const call = (id: string, name: string, args: object): Json => ({ id, name, arguments: args });
const USAGE = { input: 10, output: 1, cacheRead: 0, cacheWrite: 0 };
const paid = (total: number): Json =>
  reporting(0, { provider: "anthropic", model: "sonnet", usage: { ...USAGE, cost: { total } } });
const texts = (branch: Json): string[] => branch.entries.map(({ text }: Json) => text);

/** A session with two branches after its first two entries; the leaf is the end of the second. */
async function twoBranches(store: string): Promise<{ server: HereServer; trunk: string[]; a: string[]; b: string[] }> {
  const server = serveHere(["--store", store, "--events", "none"]);
  const trunk = await append(server, user("Make it fast."), assistant("How?"));
  const failed = toolResult("1", "3 failed");
  failed.message.isError = true;
  const tried = calls("I will.", call("1", "bash", { command: "npm test" }), call("2", "edit", { path: "src/map.ts" }));
  const a = await append(server, user("Try a map."), tried, failed, toolResult("2", "done"), paid(2));
  await server.result("branch", { entryId: trunk[1] });
  const edited = calls("", call("3", "edit", { path: "src/list.ts" }));
  const b = await append(server, user("Try a list."), edited, toolResult("3", "ok"), paid(0.5));
  return { server, trunk, a, b };
}

acrossTiers(describe, ["jsonl", "v2"])("in the store %s", (store) => {
  test("each side tells what it said, called, touched and cost since the common ancestor", async () => {
    const { server, trunk, a, b } = await twoBranches(store);
    const found = await server.result("compare_branches", { a: a.at(-1), b: "leaf" });
    expect(found).toMatchObject({ commonAncestorId: trunk[1], commonEntryCount: 2 });
    expect(found.a).toMatchObject({
      ...{ entryId: a.at(-1), entryCount: 5, userMessages: 1, assistantMessages: 2 },
      ...{ toolCalls: 2, toolResults: 2, failedCalls: 1, tokens: { total: 11 }, cost: 2 },
      ...{ files: { readFiles: [], modifiedFiles: ["src/map.ts"] }, moreFiles: false, lastAnswer: { text: "." } },
      models: [
        { provider: "anthropic", id: "claude-sonnet-4-5", messages: 1 },
        { provider: "anthropic", id: "sonnet", messages: 1 },
      ],
    });
    expect(found.a.tools).toEqual([
      { name: "bash", count: 1, failures: 0 },
      { name: "edit", count: 1, failures: 0 },
      { name: "read", count: 0, failures: 1 },
    ]);
    expect(texts(found.a)).toEqual(["Try a map.", "I will.", "3 failed", "."]);
    const called = found.a.entries[1].calls.map(({ name, argument }: Json) => `${name} ${argument}`);
    expect(called).toEqual(["bash npm test", "edit src/map.ts"]);
    expect(found.a.entries[2]).toMatchObject({ role: "toolResult", isError: true, toolName: "read" });
    expect(found.a.durationMs).toBe(Date.parse(found.a.endedAt) - Date.parse(found.a.startedAt));
    const files = { modifiedFiles: ["src/list.ts"] };
    expect(found.b).toMatchObject({ entryId: b.at(-1), entryCount: 4, cost: 0.5, failedCalls: 0, files });
  });

  test("a fork is compared with its original by what it copied, labels aside", async () => {
    const { server, trunk, a } = await twoBranches(store);
    await server.result("set_label", { entryId: trunk[0], label: "start" });
    await server.result("branch", { entryId: a.at(-1) });
    const [again] = await append(server, user("And now?"));
    const { sessionFile: original, sessionId } = await server.result("get_state");
    const { sessionFile: fork } = await server.result("fork", { entryId: again });
    const [own] = await append(server, user("Another way."));
    const here = await server.result("compare_branches", { otherId: sessionId });
    expect(here).toMatchObject({ commonAncestorId: a.at(-1), commonEntryCount: 7 });
    expect([texts(here.a), texts(here.b)]).toEqual([["Another way."], ["And now?"]]);
    expect([here.a.sessionPath, here.b.sessionPath]).toEqual([fork, original]);
    const back = await server.result("compare_branches", { sessionPath: original, otherPath: fork, b: own });
    expect(back.commonAncestorId).toBe(a.at(-1));
    expect([texts(back.a), texts(back.b)]).toEqual([["And now?"], ["Another way."]]);
    expect((await server.result("list_open_sessions")).sessions).toHaveLength(1);
  });
});

describe("ends are named", () => {
  const lines = [...chain(3), userText("a0000009", id(1), "other"), userText("abcd1234", "a0000009", "end")];
  const named = (...more: string[]): HereServer => serveLines([...lines, ...more]).server;

  test("by an unambiguous beginning of the id, by label, and as leaf", async () => {
    const server = named();
    await server.result("set_label", { entryId: id(2), label: "first try" });
    for (const a of [id(2), "first try"]) {
      const found = await server.result("compare_branches", { a, b: "abcd" });
      expect([found.commonAncestorId, found.a.entryId, found.b.entryId]).toEqual([id(1), id(2), "abcd1234"]);
    }
    const { leafId } = await server.result("get_state");
    expect((await server.result("compare_branches", { a: id(2) })).b.entryId).toBe(leafId);
  });

  test("and a name for several, for none, or too short a one is refused with what there is", async () => {
    const server = named();
    const { data } = await server.failure("compare_branches", { a: "a000" });
    expect(data).toMatchObject({ name: "ambiguous_id", matches: [id(0), id(1), id(2), "a0000009"] });
    for (const a of ["abc", "nothing", ""])
      expect([-32002, -32602]).toContain((await server.failure("compare_branches", { a })).code);
    for (const n of [0, 1]) await server.result("set_label", { entryId: id(n), label: "same" });
    expect((await server.failure("compare_branches", { a: "same" })).data.matches).toEqual([id(0), id(1)]);
  });

  test("and labels that are given later take none of its time", async () => {
    const server = named();
    await server.result("branch", { entryId: "abcd1234" });
    await server.result("set_label", { entryId: "abcd1234", label: "long after" });
    const [leafId, before] = [(await server.result("get_state")).leafId, { b: id(2) }];
    const { a: labelled } = await server.result("compare_branches", { a: leafId, ...before });
    const { a: bare } = await server.result("compare_branches", { a: "abcd1234", ...before });
    expect(labelled).toMatchObject({
      entryCount: bare.entryCount + 1,
      durationMs: bare.durationMs,
      endedAt: bare.endedAt,
    });
  });

  test("an end on the path to the other has nothing of its own, and damage on a side is passed over", async () => {
    const server = named(
      userText("dddd0001", id(1)).replace("}}", ",}}"),
      userText("dddd0002", "dddd0001", "after it"),
    );
    const found = await server.result("compare_branches", { a: id(1), b: "abcd1234" });
    expect(found).toMatchObject({ commonAncestorId: id(1), a: { entryCount: 0, durationMs: 0, entries: [] } });
    expect(texts(found.b)).toEqual(["other", "end"]);
    expect(found.a).not.toHaveProperty("startedAt");
    const damaged = await server.result("compare_branches", { a: "dddd0002", b: id(2) });
    expect(texts(damaged.a)).toEqual(["after it"]);
  });
});

describe("long sides", () => {
  const long = (count: number): HereServer =>
    serveLines([...chain(count), userText("eeee0000", id(4), "elsewhere")]).server;

  test("are cut, and get_path goes on where they end", async () => {
    const server = long(20);
    const { a, b } = await server.result("compare_branches", { a: id(19), limit: 3 });
    expect(texts(a)).toEqual([5, 6, 7].map((n) => `say ${id(n)}`));
    expect([a.entryCount, a.userMessages, b.nextCursor]).toEqual([15, 15, undefined]);
    const { entries } = await server.result("get_path", { cursor: a.nextCursor });
    expect(idsOf(entries)).toEqual(Array.from({ length: 12 }, (_, n) => id(8 + n)));
    const none = await server.result("compare_branches", { a: id(19), limit: 0 });
    expect([none.a.entries, none.a.nextCursor, none.a.lastAnswer]).toEqual([[], `${id(19)}.5`, undefined]);
  });

  test("fit into the largest reply that the host takes", async () => {
    const server = long(200);
    await server.result("initialize", { maxReplyBytes: 4096 });
    const reply = await server.request("compare_branches", { a: id(199), limit: 1000 });
    expect(JSON.stringify(reply).length).toBeLessThanOrEqual(4096);
    const { a, b } = reply.result;
    expect([texts(b), a.entries.length > 5, a.entries.length < 50]).toEqual([["elsewhere"], true, true]);
    const { entries } = await server.result("get_path", { cursor: a.nextCursor, limit: 1 });
    expect(entries[0].id).toBe(id(5 + a.entries.length));
  });

  test("have bounded texts, calls and names", async () => {
    const { server, ids } = await conversation(user("x"));
    const many = Array.from({ length: 300 }, (_, n) => call(`${n}`, `t${n}`, { path: `p${n}` }));
    const reads = Array.from({ length: 1200 }, (_, n) => call(`r${n}`, "read", { path: `${n}.ts` }));
    await append(server, user("y".repeat(1 << 20)), calls("z", ...many), calls("", ...reads));
    const { b } = await server.result("compare_branches", { a: ids[0] });
    expect([b.entries[0].text.length, b.entries[1].calls.length, b.tools.length]).toEqual([240, 20, 200]);
    expect([b.toolCalls, b.files.readFiles.length, b.moreFiles]).toEqual([1500, 1000, true]);
  });
});

describe("other sessions", () => {
  const pair = (first: string[], second: string[], header: object = {}): { server: HereServer; otherPath: string } => {
    const place = temporaryPlace();
    const otherPath = sessionFile(place, second, "other.jsonl", headerText({ id: OTHER, ...header }));
    return { server: serveLines(first, { place }).server, otherPath };
  };
  const shouted = (lines: string[]): string[] => lines.map((line) => line.replace("say", "shout"));

  test("that never were one are not compared, even where ids are the same; each is named once", async () => {
    const { server, otherPath } = pair(chain(3), shouted(chain(3)));
    expect(await nameOf(server, "compare_branches", { otherPath })).toBe("unrelated_sessions");
    expect((await server.failure("compare_branches", { otherPath, otherId: OTHER })).code).toBe(-32602);
    expect(await nameOf(server, "compare_branches", { otherPath: `${otherPath}x` })).toBe("session_not_found");
  });

  test("whose writers count entries part where what they say differs", async () => {
    const { server, otherPath } = pair(chain(6), [...chain(3), ...shouted(chain(3, 3))]);
    const found = await server.result("compare_branches", { otherPath });
    expect(found).toMatchObject({ commonAncestorId: id(2), a: { entryCount: 3 }, b: { entryCount: 3 } });
  });

  test("that were forked before the first entry have nothing in common and are compared", async () => {
    const parentSession = `/x_${SESSION}.jsonl`;
    const { server, otherPath } = pair(chain(1), [userText("bbbb0001", null, "anew")], { parentSession });
    const found = await server.result("compare_branches", { otherPath });
    expect([found.commonAncestorId, texts(found.b)]).toEqual([null, ["anew"]]);
  });
});
