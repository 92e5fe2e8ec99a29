/** Labels and names: the last one holds, and they are entries like any other. */

import { expect, test } from "vitest";
import { append, restarted } from "../support/asking.ts";
import { assistant, user } from "../support/drafts.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";

async function session(): Promise<HereServer> {
  const server = serveHere(["--events", "none"]);
  await append(server, user("one", { id: "a" }), assistant("two", { id: "b" }));
  return server;
}

async function labels(server: HereServer): Promise<Json> {
  const { nodes } = await server.result("get_tree");
  return Object.fromEntries(nodes.flatMap(({ id, label }: Json) => (label === undefined ? [] : [[id, label]])));
}

test("a label is an entry at the leaf, and the leaf, and no message; it may be on a label", async () => {
  const server = await session();
  const seen = await server.result("get_messages");
  const { entryId } = await server.result("set_label", { entryId: "a", label: "start" });
  const { entries, leafId } = await server.result("get_entries", { since: "b" });
  expect(entries).toMatchObject([{ type: "label", id: entryId, parentId: "b", targetId: "a", label: "start" }]);
  expect([leafId, await labels(server)]).toEqual([entryId, { a: "start" }]);
  const { tree } = await server.result("get_tree", { format: "nested" });
  expect(tree).toMatchObject([{ entry: { id: "a" }, label: "start", labelTimestamp: entries[0].timestamp }]);
  expect(tree[0].children[0].children[0].entry.id).toBe(entryId);
  await server.result("set_label", { entryId, label: "on a label" });
  expect(await labels(server)).toEqual({ a: "start", [entryId]: "on a label" });
  expect(await server.result("get_messages")).toEqual(seen);
});

test("a label holds until the next, and is cleared by null, an empty one or none", async () => {
  const server = await session();
  // The last one stands for undefined from a JavaScript host.
  const given = ["one", "two", null, "three", "", "four", undefined];
  for (const label of given) {
    await server.result("set_label", { entryId: "a", label });
    expect(await labels(server)).toEqual(label ? { a: label } : {});
  }
  const { entries } = await server.result("get_entries", { types: ["label"] });
  expect(entries.map(({ label }: Json) => label)).toEqual(given.map((label) => label || undefined));
  const odd = `é 😀\n\u2028${"x".repeat(100_000)}`;
  await server.result("set_label", { entryId: "b", label: odd });
  expect(await labels(await restarted(server))).toEqual({ b: odd });
});

test.each([
  ["Refactor auth", "Refactor auth"],
  ["two\r\n\r\nlines\n", "two lines"],
  ["  room  ", "room"],
  ["é 😀", "é 😀"],
])("a name is on one line: %j", async (name, expected) => {
  const server = serveHere(["--no-session", "--events", "session_info_changed"]);
  const { entryId } = await server.result("set_session_name", { name });
  expect(await server.result("get_state")).toMatchObject({ sessionName: expected, leafId: entryId });
  expect(server.events).toMatchObject([{ params: { name: expected } }]);
  expect((await server.result("get_entries")).entries).toMatchObject([{ type: "session_info", name: expected }]);
});
