/**
 * Other agents' sessions that come to a fleet, over a real PostgreSQL.
 *
 * @module-tag system
 */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { addSidechains } from "../../support/foreign/claude.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import type { Json } from "../../support/server.ts";
import { fleetSuite } from "../fleet/support/sql-machines.ts";

describe("sessions of other agents in a fleet", needs(POSTGRESQL), () => {
  const suite = fleetSuite();

  test("sessions within another agent's file come to the fleet with it, and are known on another machine", async () => {
    const [one, two] = [await suite.machine(), await suite.machine()];
    const path = join(one.place.home, "7d5c2a10-0a5b-4c64-9c1a-3f1f6f0d8e11.jsonl");
    writeFileSync(path, addSidechains().writer.text);
    const { sessionId, subagents } = await one.wire.result("import_session", { path });
    const ids = [sessionId, ...subagents.map((within: Json) => within.sessionId)];
    expect(ids).toHaveLength(3);
    const { sessions } = await two.wire.result("list_sessions");
    expect(sessions.map((session: Json) => session.sessionId)).toEqual(expect.arrayContaining(ids));
    const again = await two.wire.result("import_session", { path });
    expect([again, ...again.subagents].map(({ outcome }: Json) => outcome)).toEqual(["known", "known", "known"]);
  });
});
