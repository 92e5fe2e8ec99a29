/** What was refused is no operation, and records that somebody forged reach nothing that is not theirs. */

import { rmSync } from "node:fs";
import { expect, test } from "vitest";
import { put, putSession, serveLibrary, sessionId } from "../support/lifecycle.ts";
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
