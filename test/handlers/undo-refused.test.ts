/** What was refused is no operation, and records that somebody forged reach nothing that is not theirs. */

import { appendFileSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { contentsOf, put, putSession, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { chain, fileText, headerText } from "../support/lines.ts";
import { type HereServer, type Json, temporaryPlace } from "../support/server.ts";

const one = { sessionId: sessionId(1) };

async function operations(server: HereServer): Promise<Json[]> {
  return (await server.result("list_operations")).operations;
}

test("a rollback of what was never migrated is no operation, and undo migrates nothing", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const server = serveLibrary(place);
  expect((await server.failure("rollback_migration", { sessionPath: file })).data.name).toBe("migration_failed");
  expect(await operations(server)).toEqual([]);
  expect((await server.failure("undo")).data.name).toBe("operation_not_found");
  await server.result("migrate_session", { sessionPath: file });
  await server.result("migrate_session", { sessionPath: file });
  expect((await operations(server)).map(({ kind }) => kind)).toEqual(["migrate"]);
});

test("an undo that was refused did not happen, though something is where the session was", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const server = serveLibrary(place);
  const { movedTo } = await server.result("archive_session", one);
  const [{ operationId }] = await operations(server);
  rmSync(movedTo);
  put(file, fileText(headerText({ id: sessionId(7) }), ...chain(1)));
  expect((await server.failure("undo", { operationId })).data.name).toBe("ground_moved");
  expect((await operations(server)).map(({ kind, undoneBy }) => [kind, undoneBy])).toEqual([["archive", undefined]]);
});

test("records and items that were forged move nothing that is no session and not left over of one", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const other = putSession(place, 2);
  const key = put(join(place.home, "key"), "secret");
  const item = join(place.state, "trash", "item");
  mkdirSync(join(place.state, "operations"), { recursive: true });
  const record = { sessionId: "", path: `${place.home}/start`, deletedAt: "2026-01-24T16:22:26.831Z" };
  put(join(item, "record.json"), JSON.stringify({ ...record, files: [record.path] }));
  put(join(item, "1-start"), "planted");
  const steps = [
    { do: "swap", path: file, inode: 1, other },
    { do: "swap", path: file, inode: 1, other: key },
    { do: "unprune", files: [key] },
    { do: "unprune", files: [file] },
    { do: "prune", files: [record.path], item },
  ];
  for (const [n, step] of steps.entries()) {
    const forged = {
      id: `${n}fffffffffff`,
      at: record.deletedAt,
      kind: "repair",
      stage: "done",
      name: null,
      text: "x",
    };
    const line = { ...forged, sessionId: sessionId(1), sessionPath: file, step };
    appendFileSync(join(place.state, "operations", "1.jsonl"), `\n${JSON.stringify(line)}\n`);
  }
  const before = contentsOf(place.home);
  const server = serveLibrary(place);
  for (const n of steps.keys())
    expect((await server.failure("undo", { operationId: `${n}fff` })).data.name).toBe("ground_moved");
  const after = contentsOf(place.home);
  for (const path of Object.keys(before).filter((path) => !path.includes("operations")))
    expect(after[path], path).toBe(before[path]);
});
