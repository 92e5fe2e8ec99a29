/** preview_session: the conversation around an entry, in short, of sessions that are open here, elsewhere or nowhere. */

import { readdirSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import { describe, expect, test } from "vitest";
import { fileOf, sessionFile } from "../support/cases.ts";
import { toolCall, toolResult, user } from "../support/drafts.ts";
import { assistantText, chain, entryText, fileText, headerText, id, userText } from "../support/lines.ts";
import { type Json, type Place, serveHere, spawnServer, temporaryPlace } from "../support/server.ts";
import { acrossTiers, SYSTEM } from "../support/tiers.ts";

/** A chain of ten, a branch of three beside its fourth, and the leaf at its ninth. */
const LINES = [
  ...chain(10),
  userText(id(20), id(3), "another way"),
  assistantText(id(21), id(20)),
  assistantText(id(22), id(20)),
  assistantText(id(23), id(22)),
];

async function session(place: Place): Promise<string> {
  const file = sessionFile(place, LINES);
  const server = serveHere(["--session", file, "--events", "none"], { place });
  await server.result("branch", { entryId: id(8) });
  await server.finish();
  return file;
}

const ids = ({ entries }: Json): string[] => entries.map((entry: Json) => entry.id);
const numbered = (...numbers: number[]): string[] => numbers.map(id);

describe("the path through an entry", () => {
  test("is that to the leaf, around it, and else the branch that was continued last", async () => {
    const place = temporaryPlace();
    const sessionPath = await session(place);
    const server = serveHere(["--no-session", "--events", "none"], { place });
    const around = async (params: object): Promise<string[]> =>
      ids(await server.result("preview_session", { sessionPath, ...params }));
    expect(await around({})).toEqual(numbered(0, 1, 2, 3, 4, 5, 6, 7, 8));
    expect(await around({ before: 2 })).toEqual(numbered(6, 7, 8));
    expect(await around({ entryId: id(5), before: 1, after: 2 })).toEqual(numbered(4, 5, 6, 7));
    expect(await around({ entryId: id(20), before: 1 })).toEqual(numbered(3, 20, 22, 23));
    expect(await around({ entryId: id(20), before: 0, after: 1 })).toEqual(numbered(20, 22));
    expect(await around({ entryId: id(9), before: 0 })).toEqual(numbered(9));
    expect((await server.failure("preview_session", { sessionPath, entryId: "nope" })).data.name).toBe(
      "entry_not_found",
    );
  });

  test("comes with counts, and before the first entry there is none", async () => {
    const place = temporaryPlace();
    const sessionPath = await session(place);
    const server = serveHere(["--session", sessionPath, "--events", "none"], { place });
    expect(await server.result("preview_session", { before: 1 })).toMatchObject({
      leafId: id(8),
      entriesBefore: 7,
      branchCount: 2,
      damageCount: 0,
      store: "jsonl",
    });
    await server.result("branch", { entryId: null });
    expect(await server.result("preview_session")).toMatchObject({ leafId: null, entries: [], entriesBefore: 0 });
  });
});

test("texts are cut, those of the named entry later; calls, failures and labels are told", async () => {
  const server = serveHere(["--no-session", "--events", "none"]);
  await server.result("append", {
    entries: [
      user("q".repeat(5000), { id: "a" }),
      toolCall("c1", { id: "b" }),
      toolResult("c1", "no", { id: "c" }),
      { type: "label", id: "l", targetId: "a", label: "start" },
    ],
  });
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
    await writer.result("append", { entries: [user("hello")] });
    const { sessionFile: sessionPath } = await writer.result("get_state");
    const before = contents(dirname(sessionPath));
    const reader = serveHere(["--no-session", "--events", "none"], { place });
    const seen = await reader.result("preview_session", { sessionPath });
    expect(seen).toMatchObject({
      entries: [{ role: "user", text: "hello" }],
      store,
      lockedBy: { pid: expect.any(Number) },
    });
    expect(contents(dirname(sessionPath))).toEqual(before);
    await writer.result("append", { entries: [user("again")] });
    await writer.finish();
    const later = await reader.result("preview_session", { sessionPath });
    expect(later.entries).toHaveLength(2);
    expect(later).not.toHaveProperty("lockedBy");
    expect((await reader.result("list_open_sessions")).sessions).toHaveLength(1);
  });
});

function contents(folder: string): Json {
  const names = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return names.map((entry) => [entry.name, readFileSync(`${entry.parentPath}/${entry.name}`, "latin1")]).sort();
}

test("damage is counted, and what is no session is told so", async () => {
  const place = temporaryPlace();
  const server = serveHere(["--no-session", "--events", "none"], { place });
  const damaged = fileOf(place, fileText(headerText(), ...chain(2), "garbage{", userText(id(2), id(1))));
  expect(await server.result("preview_session", { sessionPath: damaged })).toMatchObject({ damageCount: 1 });
  const sessionPath = fileOf(place, "nothing of the kind\n");
  expect((await server.failure("preview_session", { sessionPath })).data.name).toBe("not_a_session");
  const newer = fileOf(place, fileText(headerText({ version: 99 }), ...chain(1)));
  expect(await server.result("preview_session", { sessionPath: newer })).toMatchObject({
    readOnly: "unsupported_version",
  });
});

test("get_tree tells calls by their argument, and what failed", async () => {
  const place = temporaryPlace();
  const call = (name: string, args: unknown): object => ({ type: "toolCall", id: name, name, arguments: args });
  const message = (entryId: string, parentId: string | null, of: object): string =>
    entryText("message", entryId, parentId, { message: of });
  const file = sessionFile(place, [
    message("a", null, {
      role: "assistant",
      content: [call("bash", { timeout: 5, command: "npm test" }), call("edit", { path: "src/a.ts", new: "x" })],
    }),
    message("b", "a", { role: "toolResult", toolCallId: "bash", toolName: "bash", isError: true, content: [] }),
    message("c", "b", {
      role: "assistant",
      content: [{ type: "text", text: "So." }, call("run", { argv: ["ls", "-l"] })],
    }),
    message("d", "c", { role: "bashExecution", command: "false", output: "", exitCode: 1 }),
    message("e", "d", { role: "assistant", content: [call("odd", 7), call("none", {})] }),
  ]);
  const server = serveHere(["--session", file, "--events", "none"], { place });
  const { nodes } = await server.result("get_tree", { format: "flat" });
  const calls = [
    { name: "bash", argument: "npm test" },
    { name: "edit", argument: "src/a.ts" },
  ];
  expect(nodes[0]).toMatchObject({ preview: "[bash: npm test, edit: src/a.ts]", calls });
  expect(nodes[1]).toMatchObject({ toolName: "bash", isError: true });
  expect(nodes[2]).toMatchObject({ preview: "So.", calls: [{ name: "run", argument: "ls -l" }] });
  expect(nodes[3]).toMatchObject({ preview: "false", isError: true });
  expect(nodes[4]).toMatchObject({ preview: "[odd, none]" });
  expect(nodes[4]).not.toHaveProperty("isError");
});
