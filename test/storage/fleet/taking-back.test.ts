/**
 * Operations on whole sessions of a fleet that are taken back, that the fleet did not confirm, or that the disk refused in
 * the middle: what the fleet has then, and what finishes them. Ordinary tests, over a real PostgreSQL.
 */

import { appendFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { assistant, user } from "../../support/drafts.ts";
import { POSTGRES, WITH_POSTGRES } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import type { Json, Wire } from "../../support/server.ts";
import { suiteDatabase } from "../../support/sql-fleet.ts";

describe.skipIf(!POSTGRES).each(["jsonl", "v2"])(`taking back in a fleet, as %s${WITH_POSTGRES}`, (kind) => {
  const database = suiteDatabase();
  const machine = async () => {
    const fleet = database.connect();
    const lives = new HereLives({ fleet, seed: database.fleets.length });
    return { fleet, lives, wire: await lives.start(["--store", kind]) };
  };
  /** Two machines, and a session that the first has made and closed. */
  const pair = async () => {
    const [first, second] = [await machine(), await machine()];
    const { wire: one } = first;
    await one.result("new_session", { cwd: first.lives.place.cwd });
    await one.result("append", { entries: [user("one"), assistant("two")] });
    const { sessionId, sessionFile } = await one.result("get_state");
    await one.result("new_session");
    const home = first.lives.place.home as string;
    return { one, two: second.wire, fleet: first.fleet, home, sessionId, sessionPath: sessionFile as string };
  };
  const listed = async (wire: Wire, sessionId: string, params: Json = {}): Promise<Json | undefined> =>
    (await wire.result("list_sessions", params)).sessions.find((one: Json) => one.sessionId === sessionId);
  const stateOf = (sessionId: string): string =>
    database.server.sql(`select state from pi_fleet.session where id = '${sessionId}'`);

  test.runIf(kind === "jsonl")("the undo of a repair brings nothing back that another machine deleted", async () => {
    const { one, two, sessionId, sessionPath } = await pair();
    // What is between entries is not in the fleet.
    appendFileSync(sessionPath, "{damaged\n");
    await one.result("switch_session", { sessionPath });
    expect((await one.result("repair_session")).backupPath).not.toBeNull();
    await one.result("new_session");
    await two.result("delete_session", { sessionId });
    expect((await one.result("undo", { sessionPath })).kind).toBe("repair");
    expect(stateOf(sessionId)).toBe("2");
    expect(await listed(two, sessionId)).toBeUndefined();
  });
});
