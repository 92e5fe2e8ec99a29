/** Labels and names: the last one holds, and they are entries like any other. */

import { describe, expect, test } from "vitest";
import { assistant, user } from "../support/drafts.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";

async function session(): Promise<HereServer> {
  const server = serveHere(["--events", "none"]);
  await server.result("append", { entries: [user("one", { id: "a" }), assistant("two", { id: "b" })] });
  return server;
}

async function labels(server: HereServer): Promise<Json> {
  const { nodes } = await server.result("get_tree");
  return Object.fromEntries(
    nodes.filter(({ label }: Json) => label !== undefined).map(({ id, label }: Json) => [id, label]),
  );
}

describe("a label", () => {
  test("is an entry at the leaf, and the leaf", async () => {
    const server = await session();
    const { entryId } = await server.result("set_label", { entryId: "a", label: "start" });
    const { entries, leafId } = await server.result("get_entries", { since: "b" });
    expect(entries).toMatchObject([{ type: "label", id: entryId, parentId: "b", targetId: "a", label: "start" }]);
    expect(leafId).toBe(entryId);
    expect(await labels(server)).toEqual({ a: "start" });
  });

  test("holds until the next, and is cleared by null, an empty one or none", async () => {
    const server = await session();
    for (const [label, expected] of [
      ["one", { a: "one" }],
      ["two", { a: "two" }],
      [null, {}],
      ["three", { a: "three" }],
      ["", {}],
      ["four", { a: "four" }],
      // What a JavaScript host sends of undefined.
      [undefined, {}],
    ] as const) {
      await server.result("set_label", { entryId: "a", label });
      expect(await labels(server)).toEqual(expected);
    }
    const { entries } = await server.result("get_entries", { types: ["label"] });
    expect(entries.map((entry: Json) => ("label" in entry ? entry.label : "cleared"))).toEqual([
      "one",
      "two",
      "cleared",
      "three",
      "cleared",
      "four",
      "cleared",
    ]);
    const { sessionFile } = await server.result("get_state");
    await server.result("set_label", { entryId: "b", label: "é 😀\n\u2028" });
    await server.finish();
    const later = serveHere(["--session", sessionFile, "--events", "none"], { place: server.place });
    expect(await labels(later)).toEqual({ b: "é 😀\n\u2028" });
  });

  test("is told in the nested tree with the time it was set", async () => {
    const server = await session();
    const { entryId } = await server.result("set_label", { entryId: "a", label: "start" });
    const { tree } = await server.result("get_tree", { format: "nested" });
    const { entries } = await server.result("get_entries", { since: "b" });
    expect(tree).toMatchObject([{ entry: { id: "a" }, label: "start", labelTimestamp: entries[0].timestamp }]);
    expect(tree[0].children[0].children[0].entry.id).toBe(entryId);
  });

  test("may be on a label, and does not come into what the model sees", async () => {
    const server = await session();
    const seen = await server.result("get_messages");
    const { entryId } = await server.result("set_label", { entryId: "a", label: "start" });
    await server.result("set_label", { entryId, label: "on a label" });
    expect(await labels(server)).toEqual({ a: "start", [entryId]: "on a label" });
    expect(await server.result("get_messages")).toEqual(seen);
  });

  test("of an entry that is not there is refused", async () => {
    const server = await session();
    expect(await server.failure("set_label", { entryId: "nope", label: "x" })).toMatchObject({
      code: -32002,
      data: { name: "entry_not_found", entryId: "nope" },
    });
    expect((await server.result("get_state")).entryCount).toBe(2);
  });
});

describe("a name", () => {
  test.each([
    ["Refactor auth", "Refactor auth"],
    ["two\nlines", "two lines"],
    ["two\r\n\r\nlines\n", "two lines"],
    ["  room  ", "room"],
    ["é 😀", "é 😀"],
  ])("is on one line: %j", async (name, expected) => {
    const server = serveHere(["--no-session", "--events", "session_info_changed"]);
    const { entryId } = await server.result("set_session_name", { name });
    expect(await server.result("get_state")).toMatchObject({ sessionName: expected, leafId: entryId });
    expect(server.events).toMatchObject([{ params: { name: expected } }]);
    expect((await server.result("get_entries")).entries).toMatchObject([{ type: "session_info", name: expected }]);
  });

  test.each(["", " ", "\n", "\t\r\n"])("that says nothing is refused: %j", async (name) => {
    const server = serveHere(["--no-session", "--events", "none"]);
    expect(await server.failure("set_session_name", { name })).toMatchObject({
      code: -32602,
      data: { issues: [{ path: "name" }] },
    });
    expect(await server.result("get_state")).toMatchObject({ sessionName: null, entryCount: 0 });
  });

  test("holds until the next, whatever branch it was given on", async () => {
    const server = await session();
    await server.result("set_session_name", { name: "first" });
    await server.result("branch", { entryId: "a" });
    await server.result("set_session_name", { name: "second" });
    await server.result("branch", { entryId: "b" });
    expect((await server.result("get_state")).sessionName).toBe("second");
    const { sessionFile } = await server.result("get_state");
    await server.finish();
    const later = serveHere(["--session", sessionFile, "--events", "none"], { place: server.place });
    expect(await later.result("get_state")).toMatchObject({ sessionName: "second", leafId: "b" });
  });
});
