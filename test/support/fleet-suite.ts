/** What suites over a PostgreSQL do with its fleet: machines use it, people run its verbs, and tables are emptied. */

import { expect } from "vitest";
import { Outage } from "../../src/storage/fleet/outage.ts";
import type { SuiteDatabase, TestDatabase } from "./database.ts";
import { HereLives, type HereLivesOptions } from "./proof.ts";
import type { Json, Place, Wire } from "./server.ts";
import type { SqlFleet } from "./sql-fleet.ts";
import { type Run, runHere } from "./verbs.ts";

const TABLES = ["session", "entry", "pack", "behind", "described", "said", "word", "spent", "attached", "blob"];

export interface FleetSuite {
  /** Servers of a machine, each with a seed of its own. */
  lives(options?: HereLivesOptions): HereLives;
  /** Returns a connection of a machine that goes on while the database is away. */
  alone(): SqlFleet;
  verb(place: Place, ...args: string[]): Promise<Run>;
  /** Runs a verb, and returns what it says to programs. */
  asked(place: Place, ...args: string[]): Promise<Json>;
  empty(): void;
  /** Returns what a column has, one value a row. */
  column(sql: string): string[];
}

export function fleetSuite(database: SuiteDatabase<TestDatabase>): FleetSuite {
  const { connect, fleets } = database;
  const verb = (place: Place, ...args: string[]): Promise<Run> =>
    runHere(place, ["fleet", ...args], { variables: { PI_FLEET_URL: database.server.url }, hashes: true });
  return {
    lives(options = {}) {
      const fleet = "fleet" in options ? options.fleet : connect();
      return new HereLives({ seed: 1 + fleets.length, ...options, fleet });
    },
    alone() {
      const one = connect();
      return { ...one, outage: new Outage(one.fleet, 0, () => 0) };
    },
    verb,
    async asked(place, ...args) {
      const { stdout, stderr } = await verb(place, ...args, "--json");
      expect(stderr).toBe("");
      return JSON.parse(stdout);
    },
    empty: () => void database.server.sql(`truncate ${TABLES.map((table) => `pi_fleet.${table}`).join(", ")} cascade`),
    column: (sql) => database.server.sql(sql).split("\n").filter(Boolean),
  };
}

/** Begins a session with these entries. Returns its id. */
export async function newSession(wire: Wire, entries: readonly Json[], params: object = {}): Promise<string> {
  await wire.result("new_session", params);
  await wire.result("append", { entries });
  return (await wire.result("get_state")).sessionId;
}
