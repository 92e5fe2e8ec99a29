/** Several changes as one operation: undone and redone together, and what becomes of those that have changed since. */

import { appendFileSync, existsSync, renameSync } from "node:fs";
import { expect, test } from "vitest";
import { nameOf } from "../support/asking.ts";
import { user } from "../support/drafts.ts";
import { type Library, library, put, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { userText } from "../support/lines.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";
import { runHere } from "../support/verbs.ts";

const IDS = [1, 2, 3].map((n) => sessionId(n));

/** A place with three sessions, the second in a container where that is wanted, and a server. */
async function three(store: "jsonl" | "v2" = "jsonl"): Promise<Library & { there: () => boolean[] }> {
  const all = library(3);
  if (store === "v2") expect((await runHere(all.place, ["migrate", all.files[1], "--apply"])).status).toBe(0);
  return { ...all, server: serveLibrary(all.place), there: () => all.files.map((file) => existsSync(file)) };
}

/** Does the same to all sessions, as one operation. */
async function together(server: HereServer, method: string): Promise<Json[]> {
  const results: Json[] = [];
  for (const id of IDS) results.push(await server.result(method, { sessionId: id, group: results[0]?.operationId }));
  return results;
}

const grouped = async (server: HereServer): Promise<Json[]> =>
  (await server.result("list_operations", { grouped: true })).operations;

test.each([
  ["archive_session", "jsonl"],
  ["archive_session", "v2"],
  ["delete_session", "jsonl"],
  ["delete_session", "v2"],
] as const)("one undo takes all of it back, and one redo does it again (%s, %s)", async (method, store) => {
  const { server, contents } = await three(store);
  const before = contents();
  const [{ operationId }] = await together(server, method);
  const [row, ...rest] = await grouped(server);
  const words = method === "archive_session" ? "Archived 3 sessions." : "Deleted 3 sessions.";
  expect(row).toMatchObject({ operationId, text: words, size: 3, undone: 0, canUndo: true });
  expect(rest.every(({ kind }) => kind === "migrate")).toBe(true);
  const after = Object.keys(contents());

  const undone = await server.result("undo");
  expect([undone.text, undone.also.length, undone.refused]).toEqual([`Took back: ${words}`, 2, undefined]);
  expect(contents()).toEqual(before);
  const redone = await server.result("redo");
  expect([redone.text, redone.also.length]).toEqual([`Did again: ${words}`, 2]);
  expect(Object.keys(contents())).toEqual(after);
  // By the id of the first, all of it again; and the redo of that by the id that the undo got.
  const again = await server.result("undo", { operationId });
  expect([again.also.length, contents()]).toEqual([2, before]);
  expect((await server.result("redo", { operationId: again.newOperationId })).also).toHaveLength(2);
});

test("what has changed since is left as it is, and named; the rest is taken back", async () => {
  const { place, server, files, there } = await three();
  await together(server, "archive_session");
  put(files[1], "something else\n");
  const { text, refused } = await server.result("undo");
  expect(text).toBe("Took back 2 of 3: Archived 3 sessions.");
  const failure = { name: "ground_moved", message: expect.stringContaining(files[1]) };
  expect(refused).toEqual([expect.objectContaining({ sessionId: IDS[1], failure })]);
  expect(there()).toEqual([true, true, true]);
  const [, row] = await grouped(server);
  expect([row.size, row.undone, row.canUndo]).toEqual([3, 2, true]);
  // The next undo is about the one that is left, and refuses as it would for it alone.
  expect(await nameOf(server, "undo")).toBe("ground_moved");
  expect((await runHere(place, ["operations"])).stdout).toContain("(2 undone) Archived 3 sessions.");
});

test("one of them is taken back by its own id, and by its session", async () => {
  const { server, there } = await three();
  const [, { operationId }] = await together(server, "archive_session");
  for (const [params, expected] of [
    [{ operationId }, [false, true, false]],
    [{ sessionId: IDS[2] }, [false, true, true]],
    [{}, [true, true, true]],
  ]) {
    expect((await server.result("undo", params)).also).toBeUndefined();
    expect(there()).toEqual(expected);
  }
});

test("one that somebody brought back by other means is passed over, and so are all", async () => {
  const { server, there } = await three();
  for (const back of [1, 3]) {
    const moved = await together(server, "archive_session");
    for (const { movedTo, sessionPath } of moved.slice(0, back)) renameSync(movedTo, sessionPath);
    if (back === 1) expect(await server.result("undo")).toMatchObject({ also: [{}] });
    else expect(await nameOf(server, "undo")).toBe("operation_not_found");
    expect(there()).toEqual([true, true, true]);
  }
});

acrossTiers(test, ["jsonl", "v2"] as const)("what was continued since it was seen is not moved (%s)", async (store) => {
  const { place, server, files } = await three(store);
  const rows = (await server.result("list_sessions")).sessions;
  const seen = Object.fromEntries(
    rows.map(({ sessionId: id, modified, messageCount }: Json) => [id, { modified, messageCount }]),
  );
  const other = serveHere(["--no-session", "--events", "none"], { place });
  await other.result("open_session", { sessionId: IDS[1] });
  await other.result("append", { sessionId: IDS[1], entries: [user("one more")] });
  await other.finish();
  appendFileSync(files[0], `${userText("cafe0001", "a0000002", "one more")}\n`);
  for (const method of ["archive_session", "delete_session"])
    for (const id of [IDS[0], IDS[1]])
      expect(await nameOf(server, method, { sessionId: id, expected: seen[id] })).toBe("content_modified");
  expect((await grouped(server)).filter(({ kind }) => kind !== "migrate")).toEqual([]);
  await server.result("archive_session", { sessionId: IDS[2], expected: seen[IDS[2]] });
  expect(existsSync(files[2])).toBe(false);
});
