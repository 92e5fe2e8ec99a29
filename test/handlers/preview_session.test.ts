/** preview_session: the conversation around an entry, in short, of sessions that are open here, elsewhere or nowhere. */

import { dirname } from "node:path";
import { describe, expect, test } from "vitest";
import { append, conversation, idsOf, nameOf, restarted } from "../support/asking.ts";
import { fileOf, serveLines, sessionFile } from "../support/cases.ts";
import { toolCall, toolResult, user } from "../support/drafts.ts";
import { contentsOf } from "../support/lifecycle.ts";
import { assistantText, chain, entryText, fileText, headerText, id, userText } from "../support/lines.ts";
import { serveHere, spawnServer, temporaryPlace } from "../support/server.ts";
import { acrossTiers, SYSTEM } from "../support/tiers.ts";

const numbered = (...numbers: number[]): string[] => numbers.map(id);

test("the path through an entry is that to the leaf, around it, and else the branch that was continued last", async () => {
  // A chain of ten, a branch of three next to its fourth, and the leaf at its ninth.
  const branch = [assistantText(id(21), id(20)), assistantText(id(22), id(20)), assistantText(id(23), id(22))];
  const place = temporaryPlace();
  const sessionPath = sessionFile(place, [...chain(10), userText(id(20), id(3), "another way"), ...branch]);
  const first = serveHere(["--session", sessionPath, "--events", "none"], { place });
  await first.result("branch", { entryId: id(8) });
  await first.finish();
  const server = serveHere(["--no-session", "--events", "none"], { place });
  for (const [params, expected] of [
    [{}, numbered(0, 1, 2, 3, 4, 5, 6, 7, 8)],
    [{ before: 2 }, numbered(6, 7, 8)],
    [{ entryId: id(5), before: 1, after: 2 }, numbered(4, 5, 6, 7)],
    [{ entryId: id(20), before: 1 }, numbered(3, 20, 22, 23)],
    [{ entryId: id(20), before: 0, after: 1 }, numbered(20, 22)],
    [{ entryId: id(9), before: 0 }, numbered(9)],
  ])
    expect(idsOf((await server.result("preview_session", { sessionPath, ...params })).entries)).toEqual(expected);
  expect(await nameOf(server, "preview_session", { sessionPath, entryId: "nope" })).toBe("entry_not_found");
  // It comes with counts, and before the first entry it has none.
  const open = await restarted(server, [], sessionPath);
  const counts = { leafId: id(8), entriesBefore: 7, branchCount: 2, damageCount: 0, store: "jsonl" };
  expect(await open.result("preview_session", { before: 1 })).toMatchObject(counts);
  await open.result("branch", { entryId: null });
  expect(await open.result("preview_session")).toMatchObject({ leafId: null, entries: [], entriesBefore: 0 });
});

test("texts are cut, those of the named entry later; calls, failures and labels are told", async () => {
  const { server } = await conversation(
    user("q".repeat(5000), { id: "a" }),
    toolCall("c1", { id: "b" }),
    toolResult("c1", "no", { id: "c" }),
    { type: "label", id: "l", targetId: "a", label: "start" },
  );
  const { entries } = await server.result("preview_session", { characters: 10 });
  expect(entries[0]).toMatchObject({ id: "a", role: "user", text: "q".repeat(10), isCut: true, label: "start" });
  expect(entries[1].calls).toEqual([{ name: "read", argument: "a.txt" }]);
  expect(entries[2]).toMatchObject({ role: "toolResult", toolName: "read", text: "no" });
  const named = await server.result("preview_session", { characters: 10, entryId: "a" });
  expect(named.entries[0].text).toHaveLength(5000);
  expect(named.entries[0]).not.toHaveProperty("isCut");
});

describe("beside another process", SYSTEM, () => {
  acrossTiers(test, ["jsonl", "v2"])("nothing is written or held in %s, whoever has the session", async (store) => {
    const place = temporaryPlace();
    const writer = spawnServer(["--store", store, "--events", "none"], "lines", place);
    await append(writer, user("hello"));
    const { sessionFile: sessionPath } = await writer.result("get_state");
    const before = contentsOf(dirname(sessionPath));
    const reader = serveHere(["--no-session", "--events", "none"], { place });
    const seen = await reader.result("preview_session", { sessionPath });
    const lockedBy = { pid: writer.process.pid };
    expect(seen).toMatchObject({ entries: [{ role: "user", text: "hello" }], store, lockedBy });
    expect(contentsOf(dirname(sessionPath))).toEqual(before);
    await append(writer, user("again"));
    await writer.finish();
    const later = await reader.result("preview_session", { sessionPath });
    expect(later.entries).toHaveLength(2);
    expect(later).not.toHaveProperty("lockedBy");
    expect((await reader.result("list_open_sessions")).sessions).toHaveLength(1);
  });
});

test("damage is counted, and what is no session is told so", async () => {
  const place = temporaryPlace();
  const server = serveHere(["--no-session", "--events", "none"], { place });
  const of = (content: string): object => ({ sessionPath: fileOf(place, content) });
  const damaged = of(fileText(headerText(), ...chain(2), "garbage{", userText(id(2), id(1))));
  expect(await server.result("preview_session", damaged)).toMatchObject({ damageCount: 1 });
  expect(await nameOf(server, "preview_session", of("nothing of the kind\n"))).toBe("not_a_session");
  const newer = of(fileText(headerText({ version: 99 }), ...chain(1)));
  expect(await server.result("preview_session", newer)).toMatchObject({ readOnly: "unsupported_version" });
});

test("get_tree tells calls by their argument, and what failed", async () => {
  const call = (name: string, args: unknown): object => ({ type: "toolCall", id: name, name, arguments: args });
  const answer = (...content: object[]): object => ({ role: "assistant", content });
  const messages = [
    answer(call("bash", { timeout: 5, command: "npm test" }), call("edit", { path: "src/a.ts", new: "x" })),
    { role: "toolResult", toolCallId: "bash", toolName: "bash", isError: true, content: [] },
    answer({ type: "text", text: "So." }, call("run", { argv: ["ls", "-l"] })),
    { role: "bashExecution", command: "false", output: "", exitCode: 1 },
    answer(call("odd", 7), call("none", {})),
  ];
  const lines = messages.map((message, n) => entryText("message", id(n), n === 0 ? null : id(n - 1), { message }));
  const { nodes } = await serveLines(lines).server.result("get_tree", { format: "flat" });
  const calls = [
    { name: "bash", argument: "npm test" },
    { name: "edit", argument: "src/a.ts" },
  ];
  expect(nodes).toMatchObject([
    { preview: "[bash: npm test, edit: src/a.ts]", calls },
    { toolName: "bash", isError: true },
    { preview: "So.", calls: [{ name: "run", argument: "ls -l" }] },
    { preview: "false", isError: true },
    { preview: "[odd, none]" },
  ]);
  expect(nodes[4]).not.toHaveProperty("isError");
});
