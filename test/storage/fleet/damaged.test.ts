/**
 * Sessions of a database whose pages are damaged, or whose rows were tampered with. Over a real PostgreSQL.
 *
 * @module-tag system
 */

import { openSync, readdirSync, writeSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { suiteServer } from "../../support/database.ts";
import { assistant, user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import { Random } from "../../support/random.ts";
import type { Json, Wire } from "../../support/server.ts";
import { SWEEP } from "../../support/tiers.ts";
import { type Run, runHere } from "../../support/verbs.ts";

/** Bytes of a page. */
const PAGE = 8192;

describe("damage in a fleet", needs(POSTGRESQL), () => {
  const database = suiteServer();
  const { connect, fleets } = database;
  const verb = (lives: HereLives, ...args: string[]): Promise<Run> =>
    runHere(lives.place, ["fleet", ...args], { variables: { PI_FLEET_URL: database.server.url } });
  const asked = async (lives: HereLives, ...args: string[]): Promise<Json> =>
    JSON.parse((await verb(lives, ...args, "--json")).stdout);
  const faults = async (lives: HereLives): Promise<unknown[]> =>
    (await asked(lives, "verify")).faults.map(({ sessionId, fault }: Json) => [sessionId, fault]).sort();
  /** A machine that has made sessions of so many entries, of which a page holds a few, with lines in rows or in packs. */
  const madeIn = async (kind: string, counts: number[]): Promise<{ lives: HereLives; wire: Wire; ids: string[] }> => {
    const random = new Random(1 + fleets.length);
    const fleet = { ...connect(), ...(kind === "packs" ? { long: 0 } : {}) };
    const lives = new HereLives({ fleet, seed: 1 + fleets.length });
    const wire = await lives.start();
    const ids: string[] = [];
    for (const count of counts) {
      await wire.result("new_session");
      const noise = (): string => Array.from({ length: 150 }, () => random.int(1e9).toString(36)).join(" ");
      const entries = Array.from({ length: count }, (_, n) => (n % 2 ? assistant : user)(`text ${noise()}`));
      await wire.result("append", { entries });
      ids.push((await wire.result("get_state")).sessionId);
      // Words of what is in packs come behind it, from who has the session open.
      await expect
        .poll(() => database.server.sql("select count(*) from pi_fleet.behind"), { timeout: 30_000 })
        .toBe("0");
    }
    const inRows = database.server.sql("select count(*) from pi_fleet.entry");
    expect(Number(inRows)).toBe(kind === "packs" ? 0 : counts.reduce((sum, count) => sum + count));
    return { lives, wire, ids };
  };
  const made = (...counts: number[]) => madeIn("rows", counts);
  /** Writes nonsense over a page of a table, as a disk does. */
  const damage = async (table: string, page = 0): Promise<void> => {
    const { server } = database;
    const path = server.sql(`select pg_relation_filepath('pi_fleet.${table}')`);
    server.sql("checkpoint");
    await server.kill();
    writeSync(openSync(join(server.data, path), "r+"), Buffer.alloc(PAGE, 0xa5), 0, PAGE, page * PAGE);
    await server.start();
  };

  beforeEach(() => {
    database.server.sql(
      "truncate pi_fleet.session, pi_fleet.entry, pi_fleet.pack, pi_fleet.behind, pi_fleet.described, pi_fleet.said",
    );
  });

  test("of a page of lines is told of the session that has them, and every other one is read and written out", async () => {
    // As of tables that are larger than those of a test.
    database.server.configure("set enable_seqscan = off");
    const { lives, ids } = await made(12, 12, 12);
    const damaged = database.server.sql(
      "select distinct session_id from pi_fleet.entry where ctid >= '(0,0)' and ctid < '(1,0)'",
    );
    expect(damaged).toBe(ids[0]);
    await damage("entry");
    expect(await faults(lives)).toEqual([[ids[0], "chain"]]);
    const { sessions, entries, copies } = await asked(lives, "verify");
    expect([sessions, entries, copies.length]).toEqual([3, 36, 3]);
    const out = join(lives.place.home, "out");
    const { files, refused } = await asked(lives, "export", out);
    expect(files.map(({ sessionId, outcome }: Json) => [sessionId, outcome]).sort()).toEqual(
      ids.map((id, n) => [id, n === 0 ? "refused" : "new"]).sort(),
    );
    expect(refused).toBe(1);
    expect(
      readdirSync(out, { recursive: true, encoding: "utf8" }).filter((one) => one.endsWith(".jsonl")),
    ).toHaveLength(2);
    expect(await asked(lives, "migrate")).toMatchObject({ indexed: 0, inUse: [], unreadable: [] });
    await lives.end();
  });

  test("of a page of sessions is told of those that have it, of none that can be read, and every other one is read and written out", async () => {
    database.server.configure("set enable_seqscan = off");
    const { lives, ids } = await made(...Array.from({ length: 14 }, () => 2));
    const sorted = [...ids].sort();
    // Those that were begun and have no lines, which nothing else knows: between others, and behind all of them.
    const begun = [`${sorted[5]}-`, `${sorted[13]}-`];
    for (const id of begun)
      database.server.sql(`insert into pi_fleet.session (tenant, id, header, chain)
        select tenant, '${id}', header, '' from pi_fleet.session limit 1`);
    database.server.sql("update pi_fleet.session set changed_at = '2010-01-01', holder = null");
    // What the rows were before is nowhere any more, and a page has a few of them.
    const pages = (): string[] =>
      database.server
        .sql(`select distinct (ctid::text::point)[0] from pi_fleet.session where id like '%-'`)
        .split("\n");
    // Where a page ends depends on the length of the rows: both of those are on one.
    for (let percent = 30; percent === 30 || pages().length > 1; percent += 2) {
      database.server.sql(`alter table pi_fleet.session set (fillfactor = ${percent})`);
      database.server.sql("vacuum (full, analyze) pi_fleet.session");
      database.server.sql("alter table pi_fleet.session reset (fillfactor)");
    }
    const page = Number(pages());
    const damaged = database.server
      .sql(`select id from pi_fleet.session where (ctid::text::point)[0] = ${page} order by id collate "C"`)
      .split("\n")
      .filter((one) => !begun.includes(one));
    const others = sorted.filter((one) => !damaged.includes(one));
    expect([damaged.length > 1, others.length > 1, others]).toEqual([true, true, expect.arrayContaining([sorted[6]])]);
    await damage("session", page);
    // Of those that nothing knows is told once, and of no other one that can be read.
    const unread = [...damaged, null];
    const { faults: found, sessions, copies } = await asked(lives, "verify");
    expect(found.map(({ sessionId, fault }: Json) => [sessionId, fault]).sort()).toEqual(
      unread.map((one) => [one, "chain"]).sort(),
    );
    expect(sessions).toBe(others.length);
    expect(copies.map(({ sessionId, state }: Json) => [sessionId, state]).sort()).toEqual(
      others.map((one) => [one, "same"]).sort(),
    );
    const told = await verb(lives, "verify");
    expect([told.status, told.stdout]).toEqual([3, expect.stringMatching(/^the table of sessions: /m)]);
    const out = join(lives.place.home, "sessions");
    const { files } = await asked(lives, "export", out);
    const of = (outcome: string) =>
      files
        .filter((one: Json) => one.outcome === outcome)
        .map(({ sessionId }: Json) => sessionId)
        .sort();
    expect([of("new"), of("refused")]).toEqual([others, unread]);
    expect(files.find(({ sessionId }: Json) => sessionId === null).sessionPath).toBe(out);
    await lives.end();
  });

  test("of a page of packs is told of each session that has them", async () => {
    database.server.configure("set enable_seqscan = off");
    const { lives, ids } = await madeIn("packs", [12, 12]);
    await damage("pack");
    expect(await faults(lives)).toEqual(ids.map((id) => [id, "chain"]).sort());
    expect((await asked(lives, "export", join(lives.place.home, "out"))).refused).toBe(2);
    await lives.end();
  });

  const WRONG: readonly (readonly [fault: string, sql: (ids: readonly string[]) => string])[] = [
    ["heads", ([id]) => `update pi_fleet.entry set head = 'x' where session_id = '${id}' and seq = 1`],
    ["heads", ([id]) => `update pi_fleet.entry set head = '7' where session_id = '${id}' and seq = 2`],
    [
      "heads",
      ([id]) =>
        `update pi_fleet.entry e set head = (select head from pi_fleet.entry o where o.session_id = '${id}' and o.seq = 0)
          where session_id = '${id}' and seq = 1`,
    ],
    [
      "heads",
      ([id]) => `update pi_fleet.entry set head = replace(head, 'user', 'assistant') where session_id = '${id}'`,
    ],
    ["facts", ([id]) => `update pi_fleet.described set facts = 'x' where session_id = '${id}'`],
    ["facts", ([id]) => `update pi_fleet.described set facts = '{"name":7}' where session_id = '${id}'`],
    ["facts", ([id]) => `delete from pi_fleet.described where session_id = '${id}'`],
    [
      "header",
      ([id, other]) =>
        `update pi_fleet.session set header = (select header from pi_fleet.session where id = '${other}')
          where id = '${id}'`,
    ],
  ];

  /** Keeps what the tables have. Returns what brings it back. */
  const kept = (): (() => string) => {
    const tables = ["session", "entry", "pack", "described"];
    const { server } = database;
    for (const table of tables)
      server.sql(`drop table if exists kept_${table};
        create temporary table kept_${table} as select * from pi_fleet.${table}`);
    return () =>
      server.sql(`truncate ${tables.map((table) => `pi_fleet.${table}`).join(", ")};
        ${tables.map((table) => `insert into pi_fleet.${table} select * from kept_${table};`).join("\n")}`);
  };

  const besideIsTold = async (kind: string, wrong: typeof WRONG): Promise<void> => {
    const { lives, ids } = await madeIn(kind, [4, 3]);
    database.server.sql("update pi_fleet.session set changed_at = '2010-01-01', holder = null");
    expect(await faults(lives)).toEqual([]);
    const restore = kept();
    for (const [fault, sql] of wrong) {
      const change = sql(ids);
      if (kind === "packs" && fault === "heads")
        database.server.sql(`update pi_fleet.pack set heads = replace(heads, 'user', 'assistant')
          where session_id = '${ids[0]}'`);
      else database.server.sql(change);
      expect([change, await faults(lives)]).toEqual([change, [[ids[0], fault]]]);
      const { status, stdout } = await verb(lives, "verify");
      expect([status, stdout]).toEqual([3, expect.stringContaining("1 fault in the database")]);
      if (fault === "facts") {
        expect(await asked(lives, "migrate")).toMatchObject({ indexed: 1 });
        expect(await faults(lives)).toEqual([]);
      }
      restore();
    }
    await lives.end();
  };

  // The first of each kind of fault.
  const REPRESENTATIVES = WRONG.filter(([fault], n) => n === WRONG.findIndex(([other]) => other === fault));

  test("of what is kept beside the lines is told, too, in rows", () => besideIsTold("rows", REPRESENTATIVES));

  test("of everything that is kept beside the lines is told, too, in rows", SWEEP, () => besideIsTold("rows", WRONG));

  // Of what is kept in packs, heads are: the rest is where it is with rows.
  test("of what is kept beside the lines is told, too, in packs", () => besideIsTold("packs", WRONG.slice(0, 1)));

  test("of everything that is kept beside the lines is told, too, in packs", SWEEP, () => besideIsTold("packs", WRONG));

  test("of facts and heads ends no list, no search and no preview of what goes", async () => {
    const { lives, wire, ids } = await made(4, 3);
    database.server.sql("update pi_fleet.described set facts = 'x'");
    database.server.sql("update pi_fleet.entry set head = 'x' where seq < 2");
    await wire.result("new_session");
    const elsewhere = new HereLives({ fleet: connect(), seed: 77 });
    const there = await elsewhere.start();
    const { sessions } = await there.result("list_sessions");
    expect(sessions.map(({ sessionId, id }: Json) => sessionId ?? id).sort()).toEqual([...ids].sort());
    const { hits } = await there.result("search_sessions", { query: "text" });
    expect(hits).toHaveLength(7);
    expect(new Set(hits.map(({ entryId }: Json) => entryId)).size).toBe(7);
    expect(hits.map(({ entryId }: Json) => entryId)).not.toContain("");
    await wire.result("delete_session", { sessionId: ids[0] });
    database.server.sql("update pi_fleet.session set deleted_at = '2010-01-01' where state = 2");
    const { named } = await asked(lives, "prune");
    expect(named).toMatchObject([{ sessionId: ids[0], name: null }]);
    await Promise.all([lives.end(), elsewhere.end()]);
  });
});
