/**
 * What a killed server leaves beside a session that it let others join: found, judged by the lock, removed.
 *
 * @module-tag system
 */

import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { beside } from "../support/attaching.ts";
import { putSession, rootOf, serveLibrary, sessionId } from "../support/lifecycle.ts";
import {
  type HereServer,
  type Json,
  type Place,
  type SpawnedServer,
  spawnServer,
  temporaryPlace,
} from "../support/server.ts";
import { announced, said } from "../support/shared-session.ts";
import { acrossTiers, UNIT } from "../support/tiers.ts";

async function list(server: HereServer, params: object = {}): Promise<Json[]> {
  return (await server.result("list_leftovers", params)).leftovers;
}

acrossTiers(describe, ["jsonl", "v2"] as const)("beside a session of %s", (store) => {
  interface Held {
    readonly place: Place;
    readonly session: string;
    readonly folder: string;
    readonly holder: SpawnedServer;
    /** Another server. */
    readonly server: HereServer;
  }

  /** A session with a holder in another process, and a server that goes through all sessions. */
  async function held(): Promise<Held> {
    const place = temporaryPlace();
    let session = putSession(place, 1, { cwd: place.cwd });
    const server = serveLibrary(place);
    if (store === "v2") {
      const { sessionPath } = await server.result("migrate_session", { sessionPath: session, dryRun: false });
      await server.result("prune_leftovers", { permanent: true });
      session = sessionPath;
    }
    const holder = spawnServer(["--session", session, "--events", "none"], "lines", place);
    await holder.result("append", said("held"));
    await announced(session);
    return { place, session, folder: dirname(session), holder, server };
  }

  async function killed(): Promise<Held> {
    const all = await held();
    all.holder.process.kill("SIGKILL");
    await all.holder.exit;
    return all;
  }

  test("what a killed server left is listed and told, and goes with the lock of the session", async () => {
    const { session, folder, server } = await killed();
    const found = await list(server);
    expect(found.map(({ path }) => basename(path)).sort()).toEqual(beside(folder));
    for (const one of found)
      expect(one).toMatchObject({
        kind: "announcement",
        sessionPath: session,
        sessionId: sessionId(1),
        keptBecause: null,
      });
    expect((await server.result("get_health")).leftovers).toMatchObject([{ kind: "announcement", count: 2 }]);
    const { operationId, removed, kept } = await server.result("prune_leftovers");
    expect([operationId, removed.length, kept]).toEqual([null, 2, []]);
    expect([beside(folder), await list(server)]).toEqual([null, []]);
    expect((await server.result("list_trash")).total).toBe(0);
    await server.result("open_session", { sessionPath: session });
    expect((await server.result("append", { sessionId: sessionId(1), ...said("goes on") })).entryIds).toHaveLength(1);
  });

  test("a holder that lives, here or elsewhere, keeps what it announced", async () => {
    const { session, folder, server, holder } = await held();
    const there = beside(folder) as string[];
    expect([await list(server), (await server.result("get_health")).leftovers]).toEqual([[], []]);
    const paths = there.map((name) => join(folder, ".pi-session-server", name));
    for (const { keptBecause, isNeeded } of await list(server, { paths }))
      expect([keptBecause, isNeeded]).toEqual([expect.stringMatching(/holds its session/), true]);
    expect((await server.result("prune_leftovers", { paths, force: true })).kept.length).toBe(2);
    expect(beside(folder)).toEqual(there);
    await holder.finish();
    await server.result("open_session", { sessionPath: session });
    await server.result("append", { sessionId: sessionId(1), ...said("ours") });
    await announced(session);
    const ours = beside(folder);
    expect((await server.result("prune_leftovers", { force: true })).removed).toEqual([]);
    expect([ours?.length, beside(folder)]).toEqual([2, ours]);
  });

  test("they go without a session, too, unless its holder lives", async () => {
    const { session, folder, server, holder } = await held();
    const moved = join(folder, "..", basename(session));
    renameSync(session, moved);
    const [before] = [await list(server)];
    // The lock of a session file is known by its inode alone; that of a container is in it.
    expect(before.length).toBe(store === "jsonl" ? 0 : 2);
    holder.process.kill("SIGKILL");
    await holder.exit;
    for (const one of await list(server)) expect(one).toMatchObject({ sessionPath: null, keptBecause: null });
    rmSync(moved, { recursive: true });
    expect((await server.result("prune_leftovers")).removed.length).toBe(2);
    expect(beside(folder)).toBeNull();
  });

  test("only what this user made for nobody else is taken for one", async () => {
    const { folder, server } = await killed();
    const within = join(folder, ".pi-session-server");
    const there = beside(folder) as string[];
    writeFileSync(join(within, "notes.json"), "mine", { mode: 0o600 });
    symlinkSync("notes.json", join(within, "7.json"));
    expect((await list(server)).length).toBe(2);
    chmodSync(within, 0o755);
    expect(await list(server)).toEqual([]);
    const path = join(within, there[0]);
    expect((await server.failure("prune_leftovers", { paths: [path] })).data.name).toBe("not_a_session");
    chmodSync(within, 0o700);
    expect((await server.result("prune_leftovers")).removed.length).toBe(2);
    expect(beside(folder)).toEqual(["7.json", "notes.json"]);
  });
});

test("the empty folder goes, also where nobody may change anything but by a command", UNIT, async () => {
  const place = temporaryPlace();
  const folder = dirname(putSession(place, 1));
  const within = join(folder, ".pi-session-server");
  mkdirSync(within, { mode: 0o700 });
  const reader = serveLibrary(place, ["--read-only"]);
  expect(await list(reader)).toMatchObject([{ path: within, kind: "announcement", sessionPath: null }]);
  expect((await reader.failure("prune_leftovers")).data.name).toBe("read_only");
  expect((await serveLibrary(place).result("prune_leftovers")).removed.length).toBe(1);
  expect([existsSync(within), readdirSync(rootOf(place)).length]).toEqual([false, 1]);
});

describe("in the user's folder for sockets, where a session's own has no room for them", () => {
  /** A session with a holder in another process, which is announced in XDG_RUNTIME_DIR. */
  async function held() {
    const usual = temporaryPlace();
    const runtime = join(usual.home, "runtime");
    mkdirSync(runtime, { mode: 0o700 });
    const place: Place = { ...usual, variables: { ...usual.variables, XDG_RUNTIME_DIR: runtime } };
    const within = join(runtime, "pi-session-server");
    const there = (): string[] => (existsSync(within) ? readdirSync(within).sort() : []);
    const hold = async (session: string): Promise<SpawnedServer> => {
      writeFileSync(join(dirname(session), ".pi-session-server"), "in the way");
      const holder = spawnServer(["--session", session, "--events", "none"], "lines", place);
      await holder.result("append", said("held"));
      while (there().length < 2) await holder.result("get_state");
      return holder;
    };
    const session = putSession(place, 1, { cwd: place.cwd });
    return { place, session, within, there, hold, holder: await hold(session), server: serveLibrary(place) };
  }

  async function killed() {
    const all = await held();
    all.holder.process.kill("SIGKILL");
    await all.holder.exit;
    return all;
  }

  test("what a killed server left is listed, told, and goes with the lock of the session", async () => {
    const { session, within, there, server } = await killed();
    const found = await list(server);
    expect(found.map(({ path }) => path).sort()).toEqual(there().map((name) => join(within, name)));
    for (const one of found)
      expect(one).toMatchObject({ kind: "announcement", sessionPath: session, sessionId: sessionId(1) });
    expect((await server.result("get_health")).leftovers).toMatchObject([{ kind: "announcement", count: 2 }]);
    expect((await server.result("prune_leftovers")).removed.length).toBe(2);
    expect([existsSync(within), await list(server)]).toEqual([false, []]);
  });

  test("a holder that lives keeps what it announced", async () => {
    const { within, there, server } = await held();
    const before = there();
    expect(await list(server)).toEqual([]);
    const paths = before.map((name) => join(within, name));
    for (const one of await list(server, { paths }))
      expect(one).toMatchObject({ keptBecause: expect.stringMatching(/holds its session/), isNeeded: true });
    expect((await server.result("prune_leftovers", { paths, force: true })).kept.length).toBe(2);
    expect(there()).toEqual(before);
  });

  test("it goes without its session, too, unless its holder lives", async () => {
    const { session, holder, there, server } = await held();
    renameSync(session, join(dirname(session), "..", "elsewhere.jsonl"));
    expect(await list(server)).toEqual([]);
    holder.process.kill("SIGKILL");
    await holder.exit;
    expect((await list(server)).map(({ sessionPath }) => sessionPath)).toEqual([null, null]);
    expect((await server.result("prune_leftovers")).removed.length).toBe(2);
    expect(there()).toEqual([]);
  });

  test("that of sessions elsewhere, or of folders that this server may not use, is left alone", async () => {
    const { place, there, within, hold, server } = await killed();
    const outside = join(place.home, "outside.jsonl");
    const other = await hold(outside);
    other.process.kill("SIGKILL");
    await other.exit;
    expect(there().length).toBe(4);
    expect((await list(server)).length).toBe(2);
    const confined = serveLibrary(place, ["--confine"]);
    expect(await list(confined)).toEqual([]);
    expect((await confined.failure("list_leftovers", { paths: [join(within, there()[0])] })).data.name).toBe(
      "path_outside_root",
    );
    writeFileSync(join(within, "notes.json"), "mine", { mode: 0o600 });
    expect((await server.failure("prune_leftovers", { paths: [join(within, "notes.json")] })).data.name).toBe(
      "not_a_session",
    );
    expect((await server.result("prune_leftovers")).removed.length).toBe(2);
    expect(there().length).toBe(3);
  });
});
