/** Files where sessions are kept that none can be read from: lists and doctor say of each how it is. */

import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { SQLITE } from "../support/foreign/databases.ts";
import { put, putSession, serveLibrary } from "../support/lifecycle.ts";
import { type Json, temporaryPlace } from "../support/server.ts";
import { runHere } from "../support/verbs.ts";

test("another agent's database that is none, or has other tables, is named with its exit status", async () => {
  const place = temporaryPlace();
  const file = put(join(place.home, ".local/share/opencode/opencode.db"), "no database at all, but some words");
  const goose = put(join(place.home, ".local/share/goose/sessions/sessions.db"), "");
  const database = SQLITE(goose);
  database.exec("CREATE TABLE sessions_v9 (id TEXT)");
  database.close();
  const list = await runHere(place, ["list", "--agents", "opencode"]);
  expect([list.status, list.stdout.replace(/\s+/g, " ")]).toEqual([
    3,
    expect.stringMatching(/is no SQLite database\./),
  ]);
  const unknown = await runHere(place, ["list", "--agents", "goose"]);
  expect([unknown.status, unknown.stdout.replace(/\s+/g, " ")]).toEqual([
    0,
    expect.stringMatching(/tables that this program does not know\. Nothing is wrong with it/),
  ]);
  const { notRead, ok } = await serveLibrary(place).result("get_health");
  expect(notRead.map(({ path, isDamaged }: Json) => [path, isDamaged])).toEqual([
    [file, true],
    [goose, false],
  ]);
  expect(ok).toBe(false);
  const doctor = await runHere(place, ["doctor"]);
  expect([doctor.status, doctor.stdout.replace(/\s+/g, " ")]).toEqual([3, expect.stringMatching(/opencode\.db has/)]);
  writeFileSync(file, "");
  expect((await serveLibrary(place).result("get_health")).ok).toBe(true);
});

test("a file of an unknown format among ours is named by a list of all, and by no other", async () => {
  const place = temporaryPlace();
  const folder = dirname(putSession(place, 1));
  const other = put(join(folder, "other.jsonl"), '{"kind":"x"}\n{"kind":"y"}\n');
  const server = serveLibrary(place);
  const { sessions, notRead } = await server.result("list_sessions");
  expect(sessions).toHaveLength(1);
  expect(notRead).toEqual([
    { path: other, text: expect.stringMatching(/of no agent that is known here\. Nothing is wrong/), isDamaged: false },
  ]);
  expect((await server.result("list_sessions", { cwd: place.cwd })).notRead).toBeUndefined();
});
