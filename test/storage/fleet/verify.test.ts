/**
 * What `fleet verify` says of sessions that others change meanwhile, or that cannot be read. Over a real PostgreSQL.
 *
 * @module-tag system
 */

import { beforeEach, describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { Connections, type SqlAnswer } from "../../../src/storage/fleet/connections.ts";
import {
  type Database,
  type SuiteDatabase,
  suiteDatabase,
  suiteServer,
  type TestDatabase,
} from "../../support/database.ts";
import { assistant, user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL, type Postgres } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import type { Json, Place, Wire } from "../../support/server.ts";
import type { SqlFleet } from "../../support/sql-fleet.ts";
import { SWEEP } from "../../support/tiers.ts";
import { runHere } from "../../support/verbs.ts";

/** Calls by which a session is read. */
const READING = ["stretches", "lines", "attachments"] as const;

/** How a database goes away, and comes back. */
interface Way<Server extends TestDatabase> {
  leave(database: SuiteDatabase<Server>, one: SqlFleet): Promise<void>;
  comeBack(database: SuiteDatabase<Server>, one: SqlFleet): Promise<void>;
}

const AWAY: Way<Database> = {
  async leave(_, { connections }) {
    connections.run = async () => ({ kind: "away", reason: "test: away" });
  },
  async comeBack(_, { connections }) {
    connections.run = Connections.prototype.run;
  },
};
const KILLED: Way<Postgres> = {
  leave: ({ server }) => server.kill(),
  comeBack: ({ server }) => server.start(),
};

const BROKEN: SqlAnswer = { kind: "unknown", reason: "missing chunk number 0 for toast value 16400" };

function machinesOf<Server extends TestDatabase>(database: SuiteDatabase<Server>) {
  const { connect, fleets } = database;
  /** A machine that runs. */
  const machine = async (
    fleet: SqlFleet & { long?: number },
    place?: Place,
  ): Promise<{ lives: HereLives; wire: Wire }> => {
    const lives = new HereLives({ fleet, place, seed: 1 + fleets.length });
    return { lives, wire: await lives.start() };
  };
  /** Makes sessions on a machine that ends then, with lines in packs if `long` is 0. Returns their ids. */
  const made = async (count: number, long?: number): Promise<{ place: Place; ids: string[] }> => {
    const { lives, wire } = await machine({ ...connect(), long });
    const ids: string[] = [];
    for (let n = 0; n < count; n++) {
      if (n > 0) await wire.result("new_session");
      await wire.result("append", { entries: [user("one"), assistant("two"), user("three")] });
      ids.push((await wire.result("get_state")).sessionId);
    }
    await lives.end();
    return { place: lives.place, ids };
  };
  /** Returns a fleet of which the first such call about a session comes after something else. */
  const after = (
    one: SqlFleet,
    call: (typeof READING)[number],
    id: string,
    change: () => Promise<unknown>,
  ): SqlFleet => {
    let isDone = false;
    const once = async (about: string): Promise<void> => {
      if (about !== id || isDone) return;
      isDone = true;
      await change();
    };
    const { fleet } = one;
    const changed = Object.assign(Object.create(fleet), {
      async *lines(about: string, from: number, to: number) {
        await once(about);
        yield* fleet.lines(about, from, to);
      },
      async stretches(about: string) {
        await once(about);
        return fleet.stretches(about);
      },
      async attachments(about: string) {
        await once(about);
        return fleet.attachments(about);
      },
    });
    for (const other of READING) if (other !== call) delete changed[other];
    return { ...one, fleet: changed };
  };
  /** Has statements about the lines of a session not succeed, as long as there are such answers. */
  const refusing = (one: SqlFleet, id: string, answers: readonly SqlAnswer[]): SqlFleet => {
    const left = [...answers];
    const { connections } = one;
    const run = connections.run.bind(connections);
    connections.run = async (question, sent) => {
      const statement = typeof question === "function" ? undefined : question;
      const isAboutLines = statement?.text.includes("string_agg(line") && statement.values?.[1] === id;
      return (isAboutLines ? left.shift() : undefined) ?? run(question, sent);
    };
    return one;
  };
  return { machine, made, after, refusing };
}

/** Tests in which the database goes away. */
function keepsFromDatabasesThatAreAway<Server extends TestDatabase>(
  database: SuiteDatabase<Server>,
  way: Way<Server>,
): void {
  const { connect } = database;
  const { machine, made, after, refusing } = machinesOf(database);

  test("what cannot be read for a moment is no fault, and a database that is away ends it", async () => {
    const { place, ids } = await made(2);
    const { lives } = await machine(refusing(connect(), ids[0], [BROKEN, BROKEN]), place);
    expect((await lives.care().verify()).faults).toEqual([]);
    const dying = connect();
    for (const call of READING) {
      const away = await machine(
        after(dying, call, ids[0], () => way.leave(database, dying)),
        place,
      );
      await expect(away.lives.care().verify(), call).rejects.toMatchObject({ name: "storage_failed" });
      await way.comeBack(database, dying);
    }
  });

  test("a fault is told of what is there, or damaged: a database that is away when it is asked ends it", async () => {
    const { place, ids } = await made(2);
    // Nothing is asked after the last one.
    const last = [...ids].sort()[1];
    database.server.sql(`update pi_fleet.entry set line = 'x' where session_id = '${last}' and seq = 1`);
    const one = connect();
    const { lives } = await machine(one, place);
    const row = one.keeper.row.bind(one.keeper);
    const found = async () => (await lives.care().verify()).faults.map(({ sessionId, fault }) => [sessionId, fault]);
    one.keeper.row = async () => {
      throw new Failure("storage_failed", "invalid page in block 0", { fleet: true }, { retryable: true });
    };
    expect(await found()).toEqual([[last, "chain"]]);
    one.keeper.row = async () => null;
    expect(await found()).toEqual([]);
    const mistake = new TypeError("a mistake of ours");
    one.keeper.row = () => Promise.reject(mistake);
    await expect(found()).rejects.toBe(mistake);
    one.keeper.row = async (id) => {
      await way.leave(database, one);
      return row(id);
    };
    await expect(found()).rejects.toMatchObject({ name: "storage_failed" });
    await way.comeBack(database, one);
  });
}

describe("the verifying of a fleet whose database is killed", { ...SWEEP, ...needs(POSTGRESQL) }, () => {
  keepsFromDatabasesThatAreAway(suiteServer(), KILLED);
});

describe("the verifying of a fleet", needs(POSTGRESQL), () => {
  const database = suiteDatabase();
  const { connect } = database;
  const { machine, made, after, refusing } = machinesOf(database);
  const verb = async (place: Place, ...args: string[]): Promise<Json> =>
    JSON.parse(
      (await runHere(place, ["fleet", ...args, "--json"], { variables: { PI_FLEET_URL: database.server.url } })).stdout,
    );
  const CHANGES: Readonly<Record<string, (place: Place, sessionId: string) => Promise<unknown>>> = {
    async "deleted for good"(place, sessionId) {
      const { lives, wire } = await machine(connect(), place);
      await wire.result("delete_session", { sessionId, permanent: true });
      await lives.end();
    },
    async "deleted, and its rows are pruned"(place, sessionId) {
      const { lives, wire } = await machine(connect(), place);
      await wire.result("delete_session", { sessionId });
      await lives.end();
      database.server.sql("update pi_fleet.session set deleted_at = '2010-01-01' where state = 2");
      expect((await verb(place, "prune", "--apply", "--yes")).sessions).toBe(1);
    },
  };

  beforeEach(() => {
    database.server.sql(
      "truncate pi_fleet.session, pi_fleet.entry, pi_fleet.pack, pi_fleet.behind, pi_fleet.described, pi_fleet.said",
    );
  });

  test.each(Object.keys(CHANGES).flatMap((what) => READING.map((call) => [what, call] as const)))(
    "a session that is %s meanwhile is no fault (before its %s are read)",
    async (what, call) => {
      const { place, ids } = await made(2);
      const [id] = ids;
      const { lives } = await machine(after(connect(), call, id, () => CHANGES[what](place, id)));
      expect((await lives.care().verify()).faults).toEqual([]);
    },
  );

  test("what is wrong in a session that is taken meanwhile is a fault", async () => {
    const { place, ids } = await made(2);
    for (const id of ids)
      database.server.sql(`update pi_fleet.entry set line = sha256(line) where session_id = '${id}' and seq = 1`);
    const taken = (): Promise<unknown> =>
      Promise.resolve(database.server.sql(`update pi_fleet.session set epoch = epoch + 1 where id = '${ids[0]}'`));
    const { lives } = await machine(after(connect(), "lines", ids[0], taken), place);
    const { faults } = await lives.care().verify();
    expect(faults.map(({ sessionId, fault }) => [sessionId, fault]).sort()).toEqual(
      ids.map((id) => [id, "chain"]).sort(),
    );
  });

  const many = (answer: SqlAnswer): SqlAnswer[] => Array.from({ length: 100 }, () => answer);
  const TOO_LONG: SqlAnswer = { kind: "failed", code: "54000", reason: "invalid memory alloc request size" };

  test.each([TOO_LONG, BROKEN])(
    "a session that cannot be read is a fault of its own, and ends nothing (%o)",
    async (answer) => {
      const { place, ids } = await made(3);
      database.server.sql(`update pi_fleet.entry set line = 'x' where session_id = '${ids[2]}' and seq = 1`);
      const { lives } = await machine(refusing(connect(), ids[0], many(answer)), place);
      const { faults, sessions, copies } = await lives.care().verify();
      expect(faults.map(({ sessionId, fault }) => [sessionId, fault]).sort()).toEqual(
        [
          [ids[0], "chain"],
          [ids[2], "chain"],
        ].sort(),
      );
      expect([sessions, copies.length]).toEqual([3, 3]);
    },
  );

  test("a right that is taken away meanwhile ends it: of no session is said that it cannot be read", async () => {
    const { place } = await made(3);
    const one = connect();
    const run = one.connections.run.bind(one.connections);
    const refused: SqlAnswer = { kind: "failed", code: "42501", reason: "permission denied for table session" };
    let asked = 0;
    one.connections.run = async (question, sent) => {
      const { text } = typeof question === "function" ? { text: "" } : question;
      if (text.includes("cross join lateral")) asked++;
      return asked > 0 ? refused : run(question, sent);
    };
    const { lives } = await machine(one, place);
    await expect(lives.care().verify()).rejects.toMatchObject({ name: "storage_failed", retryable: false });
    expect(asked).toBe(1);
  });

  keepsFromDatabasesThatAreAway(database, AWAY);

  test.each(["rows", "packs"])(
    "deleted sessions are read until their rows are pruned, as they may be restored (%s)",
    async (kind) => {
      const { place, ids } = await made(3, kind === "packs" ? 0 : undefined);
      const first = await machine(connect(), place);
      for (const sessionId of ids.slice(0, 2)) await first.wire.result("delete_session", { sessionId });
      await first.lives.end();
      const { lives } = await machine(connect(), place);
      const found = async () => {
        const { faults, sessions, deleted, entries } = await lives.care().verify();
        return [sessions, deleted, entries, faults.map(({ sessionId, fault }) => [sessionId, fault])];
      };
      expect(await found()).toEqual([3, 2, 9, []]);
      // Damage that only the stretches of packs tell of, or the lines.
      const damage = kind === "packs" ? "pack set chain = sha256(chain)" : "entry set line = 'x'";
      database.server.sql(`update pi_fleet.${damage} where session_id = '${ids[0]}'`);
      database.server.sql("update pi_fleet.session set indexed = 0 where state = 2");
      expect(await found()).toEqual([3, 2, 9, [[ids[0], "chain"]]]);
      const verdict = await runHere(place, ["fleet", "verify"], { variables: { PI_FLEET_URL: database.server.url } });
      expect([verdict.status, verdict.stdout]).toEqual([3, expect.stringContaining("2 of them deleted")]);
      database.server.sql("update pi_fleet.session set deleted_at = '2010-01-01' where state = 2");
      await verb(place, "prune", "--apply", "--yes");
      expect(await found()).toEqual([1, 0, 3, []]);
    },
  );
});
