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
import { fleetSuite, newSession } from "../../support/fleet-suite.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import type { HereLives } from "../../support/proof.ts";
import { Random, range } from "../../support/random.ts";
import type { Json, Wire } from "../../support/server.ts";
import { SWEEP } from "../../support/tiers.ts";

/** Bytes of a page. */
const PAGE = 8192;

describe("damage in a fleet", needs(POSTGRESQL), () => {
  const database = suiteServer();
  const { connect, fleets } = database;
  const { lives, verb, asked, empty, column } = fleetSuite(database);
  const sql = (text: string): string => database.server.sql(text);
  const wrongIn = async ({ place }: HereLives): Promise<unknown[]> =>
    (await asked(place, "verify")).faults.map(({ sessionId, fault }: Json) => [sessionId, fault]).sort();
  /** A machine that has made sessions of so many entries, of which a page holds a few, with lines in rows or in packs. */
  const madeIn = async (
    kind: string,
    ...counts: number[]
  ): Promise<{ machine: HereLives; wire: Wire; ids: string[] }> => {
    const random = new Random(1 + fleets.length);
    const machine = lives({ fleet: { ...connect(), ...(kind === "packs" ? { long: 0 } : {}) } });
    const wire = await machine.start();
    const ids: string[] = [];
    const noise = (): string =>
      range(0, 150)
        .map(() => random.int(1e9).toString(36))
        .join(" ");
    for (const count of counts) {
      ids.push(
        await newSession(
          wire,
          range(0, count).map((n) => (n % 2 ? assistant : user)(`text ${noise()}`)),
        ),
      );
      // Words of what is in packs come behind it, from who has the session open.
      await expect.poll(() => sql("select count(*) from pi_fleet.behind"), { timeout: 30_000 }).toBe("0");
    }
    const inRows = kind === "packs" ? 0 : counts.reduce((sum, count) => sum + count);
    expect(sql("select count(*) from pi_fleet.entry")).toBe(`${inRows}`);
    return { machine, wire, ids };
  };
  /** Writes nonsense over a page of a table, as a disk does. What is asked then goes by the indexes, as of larger tables. */
  const damage = async (table: string, page = 0): Promise<void> => {
    const { server } = database;
    const path = sql(`select pg_relation_filepath('pi_fleet.${table}')`);
    server.configure("set enable_seqscan = off");
    sql("checkpoint");
    await server.kill();
    writeSync(openSync(join(server.data, path), "r+"), Buffer.alloc(PAGE, 0xa5), 0, PAGE, page * PAGE);
    await server.start();
  };
  const exported = async ({ place }: HereLives, out: string) => {
    const { files, refused } = await asked(place, "export", out);
    const outcomes = files.map(({ sessionId, outcome }: Json) => [sessionId, outcome]).sort();
    return { files, outcomes, refused };
  };

  beforeEach(empty);

  test("of a page of lines is told of the session that has them, and every other one is read and written out", async () => {
    const { machine, ids } = await madeIn("rows", 12, 12, 12);
    const [first] = ids;
    const onPage = "select distinct session_id from pi_fleet.entry where ctid >= '(0,0)' and ctid < '(1,0)'";
    expect(column(onPage)).toEqual([first]);
    await damage("entry");
    expect(await wrongIn(machine)).toEqual([[first, "chain"]]);
    const { sessions, entries, copies } = await asked(machine.place, "verify");
    expect([sessions, entries, copies.length]).toEqual([3, 36, 3]);
    const out = join(machine.place.home, "out");
    const { outcomes, refused } = await exported(machine, out);
    expect([outcomes, refused]).toEqual([ids.map((id) => [id, id === first ? "refused" : "new"]).sort(), 1]);
    const names = readdirSync(out, { recursive: true, encoding: "utf8" });
    expect(names.filter((one) => one.endsWith(".jsonl"))).toHaveLength(2);
    expect(await asked(machine.place, "migrate")).toMatchObject({ indexed: 0, inUse: [], unreadable: [] });
    await machine.end();
  });

  test("of a page of sessions is told of those that have it, of none that can be read, and every other one is read and written out", async () => {
    const { machine, ids } = await madeIn("rows", ...range(0, 14).map(() => 2));
    const sorted = [...ids].sort();
    // Those that were begun and have no lines, which nothing else knows: between others, and behind all of them.
    const begun = [`${sorted[5]}-`, `${sorted[13]}-`];
    for (const id of begun)
      sql(`insert into pi_fleet.session (tenant, id, header, chain)
        select tenant, '${id}', header, '' from pi_fleet.session limit 1`);
    sql("update pi_fleet.session set changed_at = '2010-01-01', holder = null");
    // What the rows were before is nowhere any more, and a page has a few of them.
    const pages = (): string[] =>
      column("select distinct (ctid::text::point)[0] from pi_fleet.session where id like '%-'");
    // Where a page ends depends on the length of the rows: both of those are on one.
    for (let percent = 30; percent === 30 || pages().length > 1; percent += 2) {
      sql(`alter table pi_fleet.session set (fillfactor = ${percent})`);
      sql("vacuum (full, analyze) pi_fleet.session");
      sql("alter table pi_fleet.session reset (fillfactor)");
    }
    const page = Number(pages());
    const onPage = column(
      `select id from pi_fleet.session where (ctid::text::point)[0] = ${page} order by id collate "C"`,
    );
    const damaged = onPage.filter((one) => !begun.includes(one));
    const others = sorted.filter((one) => !damaged.includes(one));
    expect([damaged.length > 1, others.length > 1, others.includes(sorted[6])]).toEqual([true, true, true]);
    await damage("session", page);
    // Of those that nothing knows is told once, and of no other one that can be read.
    const unread = [...damaged, null];
    const { faults, sessions, copies } = await asked(machine.place, "verify");
    const wrong = faults.map(({ sessionId, fault }: Json) => [sessionId, fault]).sort();
    expect([wrong, sessions]).toEqual([unread.map((one) => [one, "chain"]).sort(), others.length]);
    const states = copies.map(({ sessionId, state }: Json) => [sessionId, state]).sort();
    expect(states).toEqual(others.map((one) => [one, "same"]).sort());
    const { status, stdout } = await verb(machine.place, "verify");
    expect([status, stdout]).toEqual([3, expect.stringMatching(/^the table of sessions: /m)]);
    const out = join(machine.place.home, "sessions");
    const { files, outcomes } = await exported(machine, out);
    const meant = [...others.map((one) => [one, "new"]), ...unread.map((one) => [one, "refused"])];
    expect(outcomes).toEqual(meant.sort());
    expect(files.find(({ sessionId }: Json) => sessionId === null).sessionPath).toBe(out);
    await machine.end();
  });

  test("of a page of packs is told of each session that has them", async () => {
    const { machine, ids } = await madeIn("packs", 12, 12);
    await damage("pack");
    expect(await wrongIn(machine)).toEqual(ids.map((id) => [id, "chain"]).sort());
    expect((await exported(machine, join(machine.place.home, "out"))).refused).toBe(2);
    await machine.end();
  });

  /** Changes of one session, and of which fault they are. `ID` is the session, `OTHER` another one. */
  const WRONG: readonly (readonly [fault: string, change: string])[] = [
    ["heads", "update pi_fleet.entry set head = 'x' where session_id = ID and seq = 1"],
    ["heads", "update pi_fleet.entry set head = '7' where session_id = ID and seq = 2"],
    [
      "heads",
      `update pi_fleet.entry e set head = o.head from pi_fleet.entry o
      where o.session_id = ID and o.seq = 0 and e.session_id = ID and e.seq = 1`,
    ],
    ["heads", "update pi_fleet.entry set head = replace(head, 'user', 'assistant') where session_id = ID"],
    ["facts", "update pi_fleet.described set facts = 'x' where session_id = ID"],
    ["facts", `update pi_fleet.described set facts = '{"name":7}' where session_id = ID`],
    ["facts", "delete from pi_fleet.described where session_id = ID"],
    [
      "header",
      "update pi_fleet.session s set header = o.header from pi_fleet.session o where o.id = OTHER and s.id = ID",
    ],
  ];
  const IN_PACKS = "update pi_fleet.pack set heads = replace(heads, 'user', 'assistant') where session_id = ID";

  /** Keeps what the tables have. Returns what brings it back. */
  const kept = (): (() => string) => {
    const tables = ["session", "entry", "pack", "described"];
    const all = (what: (table: string) => string): string => sql(tables.map(what).join(";"));
    all(
      (one) => `drop table if exists kept_${one}; create temporary table kept_${one} as select * from pi_fleet.${one}`,
    );
    return () => {
      sql(`truncate ${tables.map((table) => `pi_fleet.${table}`).join(", ")}`);
      return all((table) => `insert into pi_fleet.${table} select * from kept_${table}`);
    };
  };

  const besideIsTold = async (kind: string, wrong: typeof WRONG): Promise<void> => {
    const { machine, ids } = await madeIn(kind, 4, 3);
    sql("update pi_fleet.session set changed_at = '2010-01-01', holder = null");
    expect(await wrongIn(machine)).toEqual([]);
    const restore = kept();
    for (const [fault, how] of wrong) {
      const change = kind === "packs" && fault === "heads" ? IN_PACKS : how;
      sql(change.replaceAll("ID", `'${ids[0]}'`).replaceAll("OTHER", `'${ids[1]}'`));
      expect([change, await wrongIn(machine)]).toEqual([change, [[ids[0], fault]]]);
      const { status, stdout } = await verb(machine.place, "verify");
      expect([status, stdout]).toEqual([3, expect.stringContaining("1 fault in the database")]);
      if (fault === "facts") {
        expect(await asked(machine.place, "migrate")).toMatchObject({ indexed: 1 });
        expect(await wrongIn(machine)).toEqual([]);
      }
      restore();
    }
    await machine.end();
  };

  // The first of each kind of fault. Of what is kept in packs, heads are: the rest is where it is with rows.
  const REPRESENTATIVES = WRONG.filter(([fault], n) => n === WRONG.findIndex(([other]) => other === fault));

  test("of what is kept beside the lines is told, too, in rows", () => besideIsTold("rows", REPRESENTATIVES));
  test("of everything that is kept beside the lines is told, too, in rows", SWEEP, () => besideIsTold("rows", WRONG));
  test("of what is kept beside the lines is told, too, in packs", () => besideIsTold("packs", WRONG.slice(0, 1)));
  test("of everything that is kept beside the lines is told, too, in packs", SWEEP, () => besideIsTold("packs", WRONG));

  test("of facts and heads ends no list, no search and no preview of what goes", async () => {
    const { machine, wire, ids } = await madeIn("rows", 4, 3);
    sql("update pi_fleet.described set facts = 'x'");
    sql("update pi_fleet.entry set head = 'x' where seq < 2");
    await wire.result("new_session");
    const elsewhere = lives();
    const there = await elsewhere.start();
    const { sessions } = await there.result("list_sessions");
    expect(sessions.map(({ sessionId, id }: Json) => sessionId ?? id).sort()).toEqual([...ids].sort());
    const { hits } = await there.result("search_sessions", { query: "text" });
    const found = new Set(hits.map(({ entryId }: Json) => entryId));
    expect([hits.length, found.size, found.has("")]).toEqual([7, 7, false]);
    await wire.result("delete_session", { sessionId: ids[0] });
    sql("update pi_fleet.session set deleted_at = '2010-01-01' where state = 2");
    const { named } = await asked(machine.place, "prune");
    expect(named).toMatchObject([{ sessionId: ids[0], name: null }]);
    await Promise.all([machine.end(), elsewhere.end()]);
  });
});
