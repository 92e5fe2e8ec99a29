/** Appending entries: where they go, what is refused, and that their bytes are stored as they were sent. */

import { readFileSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { describe, expect, test } from "vitest";
import { assistant, user } from "../support/drafts.ts";
import { frame, type HereServer, type Json, serveHere } from "../support/server.ts";

function quiet(args: string[] = ["--no-session"]): HereServer {
  return serveHere([...args, "--events", "none"]);
}

test("entries continue the leaf, each the one before", async () => {
  const server = quiet();
  const { entryIds } = await server.result("append", { entries: [user("a"), assistant("b"), user("c")] });
  const next = await server.result("append", { entries: [assistant("d")] });
  const { entries, leafId } = await server.result("get_entries");
  expect(entries.map(({ id }: Json) => id)).toEqual([...entryIds, ...next.entryIds]);
  expect(entries.map(({ parentId }: Json) => parentId)).toEqual([null, ...entryIds]);
  expect(next.leafId).toBe(leafId);
  expect(leafId).toBe(next.entryIds[0]);
  for (const entry of entries) expect(new Date(entry.timestamp).toISOString()).toBe(entry.timestamp);
});

test("an id, a parent and a timestamp may be given", async () => {
  const server = quiet();
  await server.result("append", { entries: [user("a", { id: "a" }), assistant("b", { id: "b" })] });
  const timestamp = "2020-01-01T00:00:00.000Z";
  expect(
    await server.result("append", { entries: [user("c", { id: "c", parentId: "a", timestamp }), user("d")] }),
  ).toEqual({
    entryIds: ["c", expect.any(String)],
    leafId: expect.any(String),
  });
  const { entries } = await server.result("get_entries", { since: "b" });
  expect(entries).toMatchObject([{ id: "c", parentId: "a", timestamp }, { parentId: "c" }]);
  expect((await server.result("get_state")).branchCount).toBe(1);
});

test("a parent may be an entry of the same call, or null for another root", async () => {
  const server = quiet();
  await server.result("append", {
    entries: [
      user("a", { id: "a" }),
      user("b", { id: "b" }),
      user("c", { id: "c", parentId: "a" }),
      user("d", { id: "d", parentId: null }),
    ],
  });
  const { nodes } = await server.result("get_tree");
  expect(nodes.map(({ id, parentId }: Json) => [id, parentId])).toEqual([
    ["a", null],
    ["b", "a"],
    ["c", "a"],
    ["d", null],
  ]);
  expect(await server.result("get_messages")).toEqual({ messages: [{ role: "user", content: "d" }] });
});

describe("session_tree tells that the branch changed", () => {
  test.each<[string, Json, boolean]>([
    ["not when the leaf is continued", {}, false],
    ["not when the leaf is named", { parentId: "b" }, false],
    ["when another entry is", { parentId: "a" }, true],
    ["when null is", { parentId: null }, true],
  ])("%s", async (_what, more, tells) => {
    const server = serveHere(["--no-session", "--events", "session_tree"]);
    await server.result("append", { entries: [user("a", { id: "a" }), assistant("b", { id: "b" })] });
    await server.result("append", { entries: [user("c", { id: "c", ...more })] });
    const { messages } = await server.finish();
    expect(messages.map(({ params }) => params)).toEqual(
      tells ? [expect.objectContaining({ newLeafId: "c", oldLeafId: "b", leafId: "c" })] : [],
    );
  });
});

describe("nothing is written when one of the entries is refused", () => {
  test.each<[string, Json, Json]>([
    [
      "an unknown parent",
      user("x", { parentId: "nope" }),
      { code: -32002, data: { name: "entry_not_found", entryId: "nope" } },
    ],
    ["an id that is taken", user("x", { id: "a" }), { code: -32803, data: { name: "invalid_entry", entryId: "a" } }],
    ["an id of the same call", user("x", { id: "fine" }), { code: -32803, data: { name: "invalid_entry" } }],
    ["an empty id", user("x", { id: "" }), { code: -32803, data: { name: "invalid_entry" } }],
    ["an id with other characters", user("x", { id: "a~2" }), { code: -32803, data: { name: "invalid_entry" } }],
    ["an id that is a path", user("x", { id: "../a" }), { code: -32803, data: { name: "invalid_entry" } }],
    ["an id that is too long", user("x", { id: "i".repeat(129) }), { code: -32803, data: { name: "invalid_entry" } }],
    ["an id that is a number", user("x", { id: 5 }), { code: -32602, data: { issues: [{ path: "entries.1.id" }] } }],
    [
      "a parent that is a number",
      user("x", { parentId: 5 }),
      { code: -32602, data: { issues: [{ path: "entries.1.parentId" }] } },
    ],
    ["a header", { type: "session", id: "s" }, { code: -32602, data: { issues: [{ path: "entries.1.type" }] } }],
    ["an empty type", { type: "" }, { code: -32602, data: { issues: [{ path: "entries.1.type" }] } }],
    [
      "a message without role",
      { type: "message", message: {} },
      { code: -32602, data: { issues: [{ path: "entries.1.message.role" }] } },
    ],
    [
      "a label without target",
      { type: "label", label: "x" },
      { code: -32602, data: { issues: [{ path: "entries.1.targetId" }] } },
    ],
    ["no object", 5, { code: -32602, data: { issues: [{ path: "entries.1" }] } }],
  ])("%s", async (_what, draft, error) => {
    const server = quiet([]);
    await server.result("append", { entries: [user("a", { id: "a" })] });
    const { sessionFile } = await server.result("get_state");
    const before = readFileSync(sessionFile, "utf8");
    expect(await server.failure("append", { entries: [user("fine", { id: "fine" }), draft] })).toMatchObject(error);
    expect(await server.result("get_state")).toMatchObject({ entryCount: 1, leafId: "a" });
    expect(readFileSync(sessionFile, "utf8")).toBe(before);
  });
});

test("types and roles are any, those that JavaScript gives a meaning too", async () => {
  const server = quiet();
  const names = ["unheard_of", "constructor", "__proto__", "toString", "hasOwnProperty", "é 😀", "x".repeat(1000)];
  for (const name of names) {
    await server.result("append", { entries: [{ type: name }] });
    await server.result("append", { entries: [{ type: "message", message: { role: name, content: name } }] });
  }
  const { entries } = await server.result("get_entries", { types: names });
  expect(entries.map(({ type }: Json) => type)).toEqual(names);
  const { messages } = await server.result("get_messages");
  expect(messages.map(({ role }: Json) => role)).toEqual(names);
  expect(
    (await server.result("get_tree")).nodes.filter(({ role }: Json) => role).map(({ role }: Json) => role),
  ).toEqual(names);
});

describe("the bytes that were sent", () => {
  const MEMBERS =
    '"customType":"x","data":{"big":9007199254740993,"far":1e400,"minus":-0,"one":1.0,"e":1E+2,"esc":"\\u0041\\/é\\u2028😀","a":1,"a":2},"of a later version":[ 1 ,\t2 ]';

  test("are stored as they are, with the base members before them", async () => {
    const server = quiet([]);
    server.send(
      `{"jsonrpc":"2.0","id":"raw","method":"append","params":{"entries":[{ "id":"raw",${MEMBERS} , "type":"custom"}]}}`,
    );
    expect((await server.reply("raw")).result.entryIds).toEqual(["raw"]);
    const { sessionFile } = await server.result("get_state");
    const [header, line, end] = readFileSync(sessionFile, "utf8").split("\n");
    expect(JSON.parse(header)).toMatchObject({ type: "session", version: 3 });
    expect(line).toMatch(/^\{"type":"custom","id":"raw","parentId":null,"timestamp":"[^"]+",/);
    expect(line.endsWith(`,${MEMBERS}}`)).toBe(true);
    expect(end).toBe("");
  });

  test("come back as they are, also after the next start, in a fork and in a clone", async () => {
    const server = quiet([]);
    server.send(
      `{"jsonrpc":"2.0","id":"raw","method":"append","params":{"entries":[{"type":"unheard_of","id":"raw",${MEMBERS}}]}}`,
    );
    await server.reply("raw");
    const { sessionFile } = await server.result("get_state");
    const [, line] = readFileSync(sessionFile, "utf8").split("\n");
    for (const method of ["fork", "clone"]) {
      const copy = await server.result(method, method === "fork" ? { entryId: "raw", position: "at" } : {});
      expect(readFileSync(copy.sessionFile, "utf8").split("\n")[1], method).toBe(line);
    }
    await server.finish();
    const later = serveHere(["--session", sessionFile, "--events", "none"], { place: server.place });
    const chunks: Buffer[] = [];
    later.output.on("data", (chunk: Buffer) => chunks.push(chunk));
    await later.result("get_entries");
    expect(Buffer.concat(chunks).toString()).toContain(`"entries":[${line}]`);
  });

  test("become one line when they were several", async () => {
    const server = serveHere(["--events", "none"], { framing: "headers" });
    const pretty = JSON.stringify(
      {
        jsonrpc: "2.0",
        id: "p",
        method: "append",
        params: { entries: [user("two\nlines", { id: "p", more: { deep: [1] } })] },
      },
      null,
      "\r\n  ",
    );
    server.write(frame("headers", pretty));
    await server.reply("p");
    const { sessionFile } = await server.result("get_state");
    const lines = readFileSync(sessionFile, "utf8").split("\n");
    expect(lines).toHaveLength(3);
    expect(JSON.parse(lines[1])).toMatchObject({ id: "p", more: { deep: [1] }, message: { content: "two\nlines" } });
  });

  test("never bring marks of our own with them", async () => {
    const server = quiet([]);
    await server.result("append", { entries: [user("x", { id: "x", _batch: { session: "s", index: 5, count: 9 } })] });
    expect((await server.result("get_entries")).entries[0]).not.toHaveProperty("_batch");
  });
});

test("the file is made with the first entry, for its owner alone", async () => {
  const server = quiet([]);
  const { sessionFile } = await server.result("get_state");
  expect(() => statSync(dirname(sessionFile))).toThrow("ENOENT");
  await server.result("append", { entries: [user("a")] });
  expect(statSync(sessionFile).mode & 0o777).toBe(0o600);
  expect(statSync(dirname(sessionFile)).mode & 0o777).toBe(0o700);
});

test("a session that is open for reading only refuses, and says what to do", async () => {
  const writer = quiet([]);
  await writer.result("append", { entries: [user("a", { id: "a" })] });
  const { sessionFile } = await writer.result("get_state");
  await writer.finish();
  const before = readFileSync(sessionFile, "utf8");
  const reader = serveHere(["--session", sessionFile, "--read-only", "--events", "none"], { place: writer.place });
  expect((await reader.result("get_state")).readOnly).toBe(true);
  for (const [method, params] of [
    ["append", { entries: [user("b")] }],
    ["set_label", { entryId: "a", label: "x" }],
    ["set_session_name", { name: "x" }],
    ["compact_append", { summary: "s", firstKeptEntryId: null, tokensBefore: 1 }],
  ] as const)
    expect(await reader.failure(method, params)).toMatchObject({
      code: -32803,
      message: expect.stringMatching(/\w/),
      data: { name: "read_only" },
    });
  await reader.finish();
  expect(readFileSync(sessionFile, "utf8")).toBe(before);
});

test("10,000 entries may come at once, more may not", async () => {
  const server = quiet();
  const entries = Array.from({ length: 10_000 }, (_, i) => user(`${i}`));
  expect((await server.result("append", { entries })).entryIds).toHaveLength(10_000);
  expect(await server.failure("append", { entries: [...entries, user("one more")] })).toMatchObject({
    code: -32602,
    data: { issues: [{ path: "entries" }] },
  });
  expect((await server.result("get_state")).entryCount).toBe(10_000);
});
