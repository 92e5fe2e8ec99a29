/** Sessions with all that can belong to one: a file and what lies next to it, and containers of Session Store V2. */

import { basename, dirname, join } from "node:path";
import { expect } from "vitest";
import { encodePointer } from "../../src/storage/v2/documents.ts";
import { makePointer } from "../../src/storage/v2/pointer.ts";
import { append } from "./asking.ts";
import { user } from "./drafts.ts";
import { type Library, library, put, putSession, sessionId } from "./lifecycle.ts";
import { type HereServer, type Json, type Place, serveHere } from "./server.ts";

export interface Stored extends Library {
  readonly id: string;
  /** The path of the session file that it was, or would be. */
  readonly source: string;
}

/** Puts the n-th session, with all that can belong to a file, and returns its path. */
export function putWholeSession(place: Place, n = 1): string {
  const file = putSession(place, n);
  const getPath = (name: string): string => join(dirname(file), `${sessionId(n)}${name}`);
  for (const path of [
    ...[".v1.bak", ".damaged.bak.2", ".relocated.bak", `.blobs/${"0".repeat(64)}`, ".migrated"].map(
      (end) => file + end,
    ),
    ...[".v2/manifest.json", ".v2/segments/0000000000000001.seg", ".v2.staging/migrations/ledger.jsonl"].map(getPath),
    ...[".v2.rolled-back/manifest.json", ".v2.rolled-back.2/manifest.json"].map(getPath),
  ])
    put(path, `content of ${basename(path)} ${n}`);
  const back = { ...makePointer("0".repeat(64), sessionId(n)), active: "jsonl_v3", phase: "rollback" } as const;
  put(getPath(".store.json"), encodePointer({ ...back, source: basename(file) }));
  return file;
}

/** A session with two entries that was made in a store, closed. */
export async function makeIn(store: string, all = library(0)): Promise<Stored> {
  const maker = serveHere(["--store", store, "--events", "none"], { place: all.place });
  await append(maker, user("one"), user("two"));
  const { sessionFile: file, sessionId: id } = await maker.result("get_state");
  await maker.finish();
  return { ...all, file, id, source: file.replace(/\.v2$/, ".jsonl") };
}

/** A container that was made as one. */
export const makeContainer = (): Promise<Stored> => makeIn("v2");

/** A container that was a session file, with what belonged to that. */
export async function migrateOnce(): Promise<Stored> {
  const all = library();
  const source = all.file;
  put(`${source}.v1.bak`, "backup");
  const { sessionPath: file } = await all.server.result("migrate_session", { sessionPath: source, to: "v2" });
  return { ...all, file, id: sessionId(1), source };
}

/** One that was migrated, rolled back, and migrated again. */
export async function migrateTwice(): Promise<Stored> {
  const made = await migrateOnce();
  const { keptAt } = await made.server.result("rollback_migration", { sessionPath: made.source });
  expect(basename(keptAt)).toBe(`${made.id}.v2.rolled-back`);
  await made.server.result("migrate_session", { sessionPath: made.source, to: "v2" });
  return made;
}

/** The texts of a session that need not be open. */
export async function readTexts(server: HereServer, sessionPath: string): Promise<string[]> {
  const { content } = await server.result("export_session", { sessionPath, format: "training" });
  return JSON.parse(content).turns.map((turn: Json) => turn.content);
}
