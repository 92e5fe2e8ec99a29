/** A session that was migrated or rolled back, named by the path that it had before: it is opened where it is now. */

import { existsSync, readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { SessionManager } from "../../src/library/manager.ts";
import { user } from "../support/drafts.ts";
import { contentsOf, listed, putSession, rootOf, serveLibrary } from "../support/lifecycle.ts";
import { type Place, serveHere, temporaryPlace } from "../support/server.ts";
import { SWEEP } from "../support/tiers.ts";

interface Moved {
  readonly place: Place;
  /** The old place, and the new one. */
  readonly old: string;
  readonly now: string;
}

async function migrated(name?: string): Promise<Moved> {
  const place = temporaryPlace();
  const old = putSession(place, 1, name === undefined ? {} : { name });
  const server = serveLibrary(place);
  const { sessionPath: now } = await server.result("migrate_session", { sessionPath: old });
  await server.finish();
  return { place, old, now };
}

/** A session that was migrated, whose frozen file was deleted. */
async function without(moved: Promise<Moved>): Promise<Moved> {
  rmSync(`${(await moved).old}.migrated`);
  return moved;
}

async function rolledBack(): Promise<Moved> {
  const { place, old, now } = await migrated();
  const server = serveLibrary(place);
  await server.result("rollback_migration", { sessionPath: now });
  await server.finish();
  return { place, old: now, now: old };
}

async function bornInV2(): Promise<Moved> {
  const place = temporaryPlace();
  const server = serveHere(["--store", "v2", "--events", "none"], { place });
  await server.result("append", { entries: [user("a"), user("b"), user("c")] });
  const { sessionFile: old } = await server.result("get_state");
  const { sessionPath: now } = await server.result("rollback_migration");
  await server.finish();
  return { place, old, now };
}

const WAYS: readonly [string, () => Promise<Moved>][] = [
  ["migrated", () => migrated()],
  ["migrated from a file with a name of its own", () => migrated("talk.jsonl")],
  ["migrated, its frozen file deleted", () => without(migrated())],
  ["migrated from a file with a name of its own, its frozen file deleted", () => without(migrated("talk.jsonl"))],
  ["rolled back", rolledBack],
  ["born in V2 and rolled back", bornInV2],
];

describe.each(WAYS)("a session that was %s", (_, make) => {
  // Each way to name a session asks the same place where it is.
  const further = make === WAYS[0][1] ? {} : SWEEP;

  test("is opened where it is by --session and --fork", further, async () => {
    const { place, old, now } = await make();
    const before = contentsOf(rootOf(place));
    const server = serveHere(["--session", old, "--events", "none"], { place });
    expect(await server.result("get_state")).toMatchObject({ sessionFile: now, entryCount: 3 });
    expect(contentsOf(rootOf(place))).toEqual(before);
    await server.result("append", { entries: [user("more")] });
    expect(existsSync(old)).toBe(false);
    await server.finish();
    const fork = serveHere(["--fork", old, "--events", "none"], { place });
    expect(await fork.result("get_state")).toMatchObject({ entryCount: 4 });
    await fork.finish();
  });

  test("is opened where it is by switch_session and open_session, once", async () => {
    const { place, old, now } = await make();
    const server = serveLibrary(place);
    const first = await server.result("open_session", { sessionPath: now });
    expect(await server.result("open_session", { sessionPath: old })).toMatchObject({ sessionId: first.sessionId });
    expect((await server.result("list_open_sessions")).sessions).toHaveLength(2);
    expect(await server.result("switch_session", { sessionPath: old })).toMatchObject({ sessionFile: now });
    expect((await server.result("list_open_sessions")).sessions).toHaveLength(1);
    await server.result("append", { entries: [user("more")] });
    expect(existsSync(old)).toBe(false);
    expect(await listed(server)).toEqual([first.sessionId]);
  });

  test("is opened where it is by SessionManager.open, setSessionFile and forkFrom", further, async () => {
    const { place, old, now } = await make();
    const names = readdirSync(dirname(now));
    const manager = SessionManager.open(old);
    expect([manager.getSessionFile(), manager.getEntries().length]).toEqual([now, 3]);
    manager.appendMessage({ role: "user", content: "more", timestamp: 1 });
    await manager.flush();
    const other = SessionManager.create(place.cwd, join(place.home, "others"));
    other.setSessionFile(old);
    expect([other.getSessionFile(), other.getEntries().length]).toEqual([now, 4]);
    const fork = SessionManager.forkFrom(old, place.cwd, join(place.home, "others"));
    expect(fork.getEntries().length).toBe(4);
    for (const one of [manager, other, fork]) one.close();
    expect(readdirSync(dirname(now))).toEqual(names);
  });
});
