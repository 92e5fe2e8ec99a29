/** Several changes as one operation: undone and redone together, and what becomes of those that have changed since. */

import { appendFileSync, existsSync, renameSync } from "node:fs";
import { expect, test } from "vitest";
import { contentsOf, put, putSession, rootOf, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { entryText } from "../support/lines.ts";
import { type HereServer, type Json, type Place, serveHere, temporaryPlace } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";
import { runHere } from "../support/verbs.ts";

const IDS = [1, 2, 3].map((n) => sessionId(n));

/** A place with three sessions, the second in a container where that is wanted, and a server. */
async function place(store: "jsonl" | "v2" = "jsonl"): Promise<{ at: Place; server: HereServer; files: string[] }> {
  const at = temporaryPlace();
  const files = [1, 2, 3].map((n) => putSession(at, n));
  if (store === "v2") expect((await runHere(at, ["migrate", files[1], "--apply"])).status).toBe(0);
  return { at, server: serveLibrary(at), files };
}

async function failure(server: HereServer, method: string, params: object = {}): Promise<Json> {
  return (await server.request(method, params)).error;
}

/** Does the same to all sessions, as one operation. */
async function together(server: HereServer, method: string): Promise<Json[]> {
  const results: Json[] = [];
  for (const id of IDS) results.push(await server.result(method, { sessionId: id, group: results[0]?.operationId }));
  return results;
}

test.each([
  ["archive_session", "jsonl"],
  ["archive_session", "v2"],
  ["delete_session", "jsonl"],
  ["delete_session", "v2"],
] as const)("one undo takes all of it back, and one redo does it again (%s, %s)", async (method, store) => {
  const { at, server } = await place(store);
  const before = contentsOf(rootOf(at));
  const [first] = await together(server, method);
  const [row, ...rest] = (await server.result("list_operations", { grouped: true })).operations;
  const words = method === "archive_session" ? "Archived 3 sessions." : "Deleted 3 sessions.";
  expect(row).toMatchObject({ operationId: first.operationId, text: words, size: 3, undone: 0, canUndo: true });
  expect(rest.every((one: Json) => one.kind === "migrate")).toBe(true);
  const after = contentsOf(rootOf(at));

  const undone = await server.result("undo");
  expect([undone.text, undone.also.length, undone.refused]).toEqual([`Took back: ${words}`, 2, undefined]);
  expect(contentsOf(rootOf(at))).toEqual(before);
  const redone = await server.result("redo");
  expect([redone.text, redone.also.length]).toEqual([`Did again: ${words}`, 2]);
  expect(Object.keys(contentsOf(rootOf(at)))).toEqual(Object.keys(after));
  // By the id of the first, all of it again; and the redo of that by the id that the undo got.
  const again = await server.result("undo", { operationId: first.operationId });
  expect(again.also).toHaveLength(2);
  expect(contentsOf(rootOf(at))).toEqual(before);
  expect((await server.result("redo", { operationId: again.newOperationId })).also).toHaveLength(2);
});

test("what has changed since is left as it is, and named; the rest is taken back", async () => {
  const { at, server, files } = await place();
  await together(server, "archive_session");
  put(files[1], "something else\n");
  const undone = await server.result("undo");
  expect(undone.text).toBe("Took back 2 of 3: Archived 3 sessions.");
  expect(undone.refused).toEqual([
    expect.objectContaining({
      sessionId: IDS[1],
      failure: { name: "ground_moved", message: expect.stringContaining(files[1]) },
    }),
  ]);
  expect([files[0], files[2]].map((file) => existsSync(file))).toEqual([true, true]);
  const [, row] = (await server.result("list_operations", { grouped: true })).operations;
  expect([row.size, row.undone, row.canUndo]).toEqual([3, 2, true]);
  // The next undo is about the one that is left, and refuses as it would for it alone.
  expect((await failure(server, "undo")).data.name).toBe("ground_moved");
  const shown = await runHere(at, ["operations"]);
  expect(shown.stdout).toContain("(2 undone) Archived 3 sessions.");
});

test("one of them is taken back by its own id, and by its session", async () => {
  const { server, files } = await place();
  const [, second] = await together(server, "archive_session");
  expect((await server.result("undo", { operationId: second.operationId })).also).toBeUndefined();
  expect(files.map((file) => existsSync(file))).toEqual([false, true, false]);
  expect((await server.result("undo", { sessionId: IDS[2] })).also).toBeUndefined();
  expect(files.map((file) => existsSync(file))).toEqual([false, true, true]);
  expect((await server.result("undo")).also).toBeUndefined();
  expect(files.map((file) => existsSync(file))).toEqual([true, true, true]);
});

test("one that somebody brought back by other means is passed over, and so are all", async () => {
  const { server, files } = await place();
  for (const back of [1, 3]) {
    const moved = await together(server, "archive_session");
    for (const { movedTo, sessionPath } of moved.slice(0, back)) renameSync(movedTo, sessionPath);
    if (back === 1) expect(await server.result("undo")).toMatchObject({ also: [{}] });
    else expect((await failure(server, "undo")).data.name).toBe("operation_not_found");
    expect(files.map((file) => existsSync(file))).toEqual([true, true, true]);
  }
});

acrossTiers(test, ["jsonl", "v2"] as const)("what was continued since it was seen is not moved (%s)", async (store) => {
  const { server, files } = await place(store);
  const rows = (await server.result("list_sessions")).sessions;
  const seen = Object.fromEntries(
    rows.map(({ sessionId: id, modified, messageCount }: Json) => [id, { modified, messageCount }]),
  );
  const other = serveHere(["--no-session", "--events", "none"], { place: server.place });
  await other.result("open_session", { sessionId: IDS[1] });
  const message = { role: "user", content: "one more" };
  await other.result("append", { sessionId: IDS[1], entries: [{ type: "message", message }] });
  await other.finish();
  appendFileSync(files[0], `${entryText("message", "cafe0001", "a0000002", { message })}\n`);
  for (const method of ["archive_session", "delete_session"]) {
    for (const id of [IDS[0], IDS[1]])
      expect((await failure(server, method, { sessionId: id, expected: seen[id] })).data.name).toBe("content_modified");
    expect(
      (await server.result("list_operations", { grouped: true })).operations.filter(
        (one: Json) => one.kind !== "migrate",
      ),
    ).toEqual([]);
  }
  await server.result("archive_session", { sessionId: IDS[2], expected: seen[IDS[2]] });
  expect(existsSync(files[2])).toBe(false);
});
