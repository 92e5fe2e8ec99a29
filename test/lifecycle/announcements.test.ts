/**
 * The rest of a killed server next to a session that it let others join: found, judged by the lock, removed.
 *
 * @module-tag system
 */

import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { nameOf } from "../support/asking.ts";
import { library, one, putSession, rootOf, serveLibrary } from "../support/lifecycle.ts";
import {
  type HereServer,
  type Json,
  type Place,
  type SpawnedServer,
  spawnServer,
  temporaryPlace,
} from "../support/server.ts";
import { announced, said, turn } from "../support/shared-session.ts";
import { SWEEP, SYSTEM, UNIT } from "../support/tiers.ts";
import { playVerbs } from "../support/verbs.ts";

async function list(server: HereServer, params: object = {}): Promise<Json[]> {
  return (await server.result("list_leftovers", params)).leftovers;
}

const prune = (server: HereServer, params: object = {}): Promise<Json> => server.result("prune_leftovers", params);

interface Held {
  readonly session: string;
  /** The folder of announcements. */
  readonly within: string;
  readonly holder: SpawnedServer;
  /** Another server, that goes through all sessions. */
  readonly server: HereServer;
  readonly place: Place;
}

/** The names of the announcements; a folder that is gone has none. */
const there = (within: string): string[] => (existsSync(within) ? readdirSync(within).sort() : []);

/** A session on a store with a holder in another process, which is announced next to it. */
async function held(store: "jsonl" | "v2"): Promise<Held> {
  const place = temporaryPlace();
  let session = putSession(place, 1, { cwd: place.cwd });
  const server = serveLibrary(place);
  if (store === "v2") {
    ({ sessionPath: session } = await server.result("migrate_session", { sessionPath: session }));
    await prune(server, { permanent: true });
  }
  const within = join(dirname(session), ".pi-session-server");
  const holder = spawnServer(["--session", session, "--events", "none"], "lines", place);
  await holder.result("append", said("held"));
  await announced(session);
  while (there(within).length < 2) await holder.result("get_state");
  return { session, within, holder, server, place };
}

async function kill(holder: SpawnedServer): Promise<void> {
  holder.process.kill("SIGKILL");
  await holder.exit;
}

for (const [where, tier] of [
  ["jsonl", SYSTEM],
  ["v2", SWEEP],
] as const)
  describe(`next to a session (${where})`, tier, () => {
    test("what a killed server left is listed and told, and goes with the lock of the session", async () => {
      const { session: sessionPath, within, holder, server, place } = await held(where);
      await kill(holder);
      await playVerbs(place)("$ prune :: B\\. --apply removes 2 announcements of killed servers for good");
      const found = await list(server);
      expect(found.map(({ path }) => path).sort()).toEqual(there(within).map((name) => join(within, name)));
      const about = { kind: "announcement", sessionPath, ...one, keptBecause: null };
      expect(found).toMatchObject([about, about]);
      expect((await server.result("get_health")).leftovers).toMatchObject([{ kind: "announcement", count: 2 }]);
      const { operationId, removed, kept } = await prune(server);
      expect([operationId, removed.length, kept]).toEqual([null, 2, []]);
      expect([existsSync(within), await list(server)]).toEqual([false, []]);
      expect((await server.result("list_trash")).total).toBe(0);
      await server.result("open_session", { sessionPath });
      expect((await server.result("append", { ...one, ...said("goes on") })).entryIds).toHaveLength(1);
    });

    test("a holder that lives, here or elsewhere, keeps what it announced", async () => {
      const { session: sessionPath, within, server, holder } = await held(where);
      const before = there(within);
      expect([await list(server), (await server.result("get_health")).leftovers]).toEqual([[], []]);
      const paths = before.map((name) => join(within, name));
      const because = { keptBecause: expect.stringMatching(/holds its session/), isNeeded: true };
      expect(await list(server, { paths })).toMatchObject([because, because]);
      expect((await prune(server, { paths, force: true })).kept.length).toBe(2);
      expect(there(within)).toEqual(before);
      await holder.finish();
      await server.result("open_session", { sessionPath });
      await server.result("append", { ...one, ...said("ours") });
      while (there(within).length < 2) await turn();
      const ours = there(within);
      expect([(await prune(server, { force: true })).removed, there(within)]).toEqual([[], ours]);
    });

    test("they go without a session, too, unless its holder lives", async () => {
      const { session, within, server, holder } = await held(where);
      const moved = join(dirname(session), "..", basename(session));
      renameSync(session, moved);
      // The lock of a session file is known by its inode alone; that of a container is in it.
      expect((await list(server)).length).toBe(where === "v2" ? 2 : 0);
      await kill(holder);
      const nobody = { sessionPath: null, keptBecause: null };
      expect(await list(server)).toMatchObject([nobody, nobody]);
      rmSync(moved, { recursive: true });
      expect([(await prune(server)).removed.length, there(within)]).toEqual([2, []]);
    });
  });

for (const [where, tier] of [
  ["jsonl", SYSTEM],
  ["v2", SWEEP],
] as const)
  test(`only what this user made for nobody else is taken for one (${where})`, tier, async () => {
    const { within, server, holder } = await held(where);
    await kill(holder);
    const paths = there(within).map((name) => join(within, name));
    writeFileSync(join(within, "notes.json"), "mine", { mode: 0o600 });
    symlinkSync("notes.json", join(within, "7.json"));
    expect((await list(server)).length).toBe(2);
    chmodSync(within, 0o755);
    expect(await list(server)).toEqual([]);
    expect(await nameOf(server, "prune_leftovers", { paths: paths.slice(0, 1) })).toBe("not_a_session");
    chmodSync(within, 0o700);
    expect([(await prune(server)).removed.length, there(within)]).toEqual([2, ["7.json", "notes.json"]]);
  });

test("the empty folder goes, also where nobody may change anything but by a command", UNIT, async () => {
  const { place, server, file } = library(1, ["--read-only"]);
  const within = join(dirname(file), ".pi-session-server");
  mkdirSync(within, { mode: 0o700 });
  expect(await list(server)).toMatchObject([{ path: within, kind: "announcement", sessionPath: null }]);
  expect(await nameOf(server, "prune_leftovers")).toBe("read_only");
  expect((await prune(serveLibrary(place))).removed.length).toBe(1);
  expect([existsSync(within), readdirSync(rootOf(place)).length]).toEqual([false, 1]);
});
