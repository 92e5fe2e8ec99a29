/** get_session_family: forks across files. */

import { renameSync, unlinkSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { assistant, user } from "../support/drafts.ts";
import { chain, put as putEntries } from "../support/searching.ts";
import { type Json, type Place, serveHere, temporaryPlace } from "../support/server.ts";

function put(place: Place, id: string, parentSession?: string): string {
  return putEntries(place, id, chain(user("x")), parentSession === undefined ? {} : { parentSession });
}

const tree = ({ nodes }: Json): string[] => nodes.map(({ sessionId }: Json) => sessionId).sort();

test("forks and clones of forks, from any of them, with the entry they part at", async () => {
  const place = temporaryPlace();
  const server = serveHere(["--events", "none"], { place });
  const texts = ["one", "two", "three"];
  const { entryIds } = await server.result("append", {
    entries: texts.flatMap((text) => [user(text), assistant(`re ${text}`)]),
  });
  const root = await server.result("get_state");
  const fork = await server.result("fork", { entryId: entryIds[4] });
  await server.result("append", { entries: [user("other")] });
  const clone = await server.result("clone");
  await server.result("switch_session", { sessionId: root.sessionId });
  const early = await server.result("fork", { entryId: entryIds[0] });
  const unrelated = await server.result("new_session");
  await server.result("append", { entries: [user("alone")] });
  const lastOfFork = (await server.result("search_sessions", { query: "other" })).hits.find(
    ({ sessionId }: Json) => sessionId === fork.sessionId,
  ).entryId;
  for (const sessionId of [root, fork, clone, early].map((session) => session.sessionId)) {
    const family = await server.result("get_session_family", { sessionId });
    expect(family.root).toBe(root.sessionId);
    expect(family.nodes[0]).toEqual({ sessionPath: root.sessionFile, sessionId: root.sessionId, parentSession: null });
    const byId = Object.fromEntries(family.nodes.map((node: Json) => [node.sessionId, node]));
    expect(Object.keys(byId).sort()).toEqual([root, fork, clone, early].map((session) => session.sessionId).sort());
    expect(byId[fork.sessionId]).toMatchObject({ parentSession: root.sessionFile, forkedAtEntryId: entryIds[3] });
    expect(byId[clone.sessionId]).toMatchObject({ parentSession: fork.sessionFile, forkedAtEntryId: lastOfFork });
    expect(byId[early.sessionId]).not.toHaveProperty("forkedAtEntryId");
  }
  expect(tree(await server.result("get_session_family"))).toEqual([unrelated.sessionId]);
  expect((await server.failure("get_session_family", { sessionId: "none" })).data.name).toBe("session_not_found");
});

test("parents that were moved are found by their id, also as pi_agent_rust names files", async () => {
  const place = temporaryPlace();
  const parent = put(place, "01991f6e-1f1d-7c3e-b0a4-0242ac120002");
  put(place, "child", parent);
  put(place, "rust", "/elsewhere/2026-01-24T16-22-26.831Z_01991f6e.jsonl");
  put(place, "under_score", "/elsewhere/2026-01-24T16-22-26-831Z_child.jsonl");
  put(place, "grandchild", "/elsewhere/2026-01-24T16-22-26-831Z_under_score.jsonl");
  renameSync(parent, parent.replace("2026-01", "2030-01"));
  const server = serveHere(["--no-session", "--events", "none"], { place });
  const family = await server.result("get_session_family", { sessionId: "grandchild" });
  expect(family.root).toBe("01991f6e-1f1d-7c3e-b0a4-0242ac120002");
  expect(tree(family)).toEqual([family.root, "child", "grandchild", "rust", "under_score"]);
});

test("forks of a session that is gone stay a family; cycles and odd parents end", async () => {
  const place = temporaryPlace();
  const gone = put(place, "gone");
  put(place, "one", gone);
  put(place, "two", gone);
  unlinkSync(gone);
  put(place, "self", join(gone, "..", "2026-01-24T16-22-26-831Z_self.jsonl"));
  put(place, "x", join(gone, "..", "2026-01-24T16-22-26-831Z_y.jsonl"));
  put(place, "y", join(gone, "..", "2026-01-24T16-22-26-831Z_x.jsonl"));
  put(place, "empty", "");
  put(place, "relative", "../somewhere.jsonl");
  const server = serveHere(["--no-session", "--events", "none"], { place });
  const family = async (sessionId: string): Promise<Json> => server.result("get_session_family", { sessionId });
  expect(await family("two")).toMatchObject({ root: null });
  const families = { two: "one two", self: "self", x: "x y", empty: "empty", relative: "relative" };
  for (const [id, all] of Object.entries(families)) expect(tree(await family(id)).join(" ")).toBe(all);
});
