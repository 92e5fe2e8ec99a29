/**
 * Sessions of a database whose pages are damaged, or whose rows were tampered with. Over a real PostgreSQL.
 *
 * @module-tag system
 */

import { randomBytes } from "node:crypto";
import { openSync, readdirSync, writeSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { suiteServer } from "../../support/database.ts";
import { assistant, user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import type { HereLives } from "../../support/proof.ts";
import { range } from "../../support/random.ts";
import type { Json, Wire } from "../../support/server.ts";
import { fleetSuite, newSession } from "../../support/sql-machines.ts";
import { SWEEP } from "../../support/tiers.ts";

/** Bytes of a page. */
const PAGE = 8192;

describe("damage in a fleet", needs(POSTGRESQL), () => {
  const suite = fleetSuite(suiteServer());
  const sql = (text: string): string => suite.sql(text);
  const wrongIn = async ({ place }: HereLives): Promise<unknown[]> =>
    (await suite.told("verify", place)).faults.map(({ sessionId, fault }: Json) => [sessionId, fault]).sort();
  /** A machine that has made sessions of so many entries, of which a page holds a few, with lines in rows or in packs. */
  const madeIn = async (
    kind: string,
    ...counts: number[]
  ): Promise<{ machine: HereLives; wire: Wire; ids: string[] }> => {
    const machine = suite.lives({ fleet: { ...suite.connect(), ...(kind === "packs" ? { long: 0 } : {}) } });
    const wire = await machine.start();
    const ids: string[] = [];
    for (const count of counts) {
      const drafts = range(0, count).map((n) =>
        (n % 2 ? assistant : user)(`text ${randomBytes(600).toString("base64")}`),
      );
      // Commits of one line are in rows, however long.
      const cut = kind === "packs" ? 2 : count;
      ids.push(await newSession(wire, drafts.slice(0, cut)));
      if (cut < count) await wire.result("append", { entries: drafts.slice(cut) });
      // Words of what is in packs come behind it, from who has the session open.
      await expect.poll(() => sql("select count(*) from pi_fleet.behind"), { timeout: 30_000 }).toBe("0");
    }
    const inRows = kind === "packs" ? 0 : counts.reduce((sum, count) => sum + count);
    expect(sql("select count(*) from pi_fleet.entry")).toBe(`${inRows}`);
    return { machine, wire, ids };
  };
  /** Writes nonsense over a page of a table, as a disk does. What is asked then goes by the indexes, as of larger tables. */
  const damage = async (table: string, page = 0): Promise<void> => {
    const { server } = suite.database;
    const path = sql(`select pg_relation_filepath('pi_fleet.${table}')`);
    server.configure("set enable_seqscan = off");
    sql("checkpoint");
    await server.kill();
    writeSync(openSync(join(server.data, path), "r+"), Buffer.alloc(PAGE, 0xa5), 0, PAGE, page * PAGE);
    await server.start();
  };
  const exported = async ({ place }: HereLives, out: string) => {
    const { files, refused } = await suite.told(`export ${out}`, place);
    const outcomes = files.map(({ sessionId, outcome }: Json) => [sessionId, outcome]).sort();
    return { files, outcomes, refused };
  };

  test("of a page of lines is told of the session that has them, and every other one is read and written out", async () => {
    const { machine, ids } = await madeIn("rows", 12, 12, 12);
    const [first] = ids;
    const onPage = "select distinct session_id from pi_fleet.entry where ctid >= '(0,0)' and ctid < '(1,0)'";
    expect(suite.column(onPage)).toEqual([first]);
    await damage("entry");
    expect(await wrongIn(machine)).toEqual([[first, "chain"]]);
    const { sessions, entries, copies } = await suite.told("verify", machine.place);
    expect([sessions, entries, copies.length]).toEqual([3, 36, 3]);
    const out = join(machine.place.home, "out");
    const { outcomes, refused } = await exported(machine, out);
    expect([outcomes, refused]).toEqual([ids.map((id) => [id, id === first ? "refused" : "new"]).sort(), 1]);
    const names = readdirSync(out, { recursive: true, encoding: "utf8" });
    expect(names.filter((one) => one.endsWith(".jsonl"))).toHaveLength(2);
    expect(await suite.told("migrate", machine.place)).toMatchObject({ indexed: 0, inUse: [], unreadable: [] });
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
      suite.column("select distinct (ctid::text::point)[0] from pi_fleet.session where id like '%-'");
    // Where a page ends depends on the length of the rows: both of those are on one.
    for (let percent = 30; percent === 30 || pages().length > 1; percent += 2) {
      sql(`alter table pi_fleet.session set (fillfactor = ${percent})`);
      sql("vacuum (full, analyze) pi_fleet.session");
      sql("alter table pi_fleet.session reset (fillfactor)");
    }
    const page = Number(pages());
    const onPage = suite.column(
      `select id from pi_fleet.session where (ctid::text::point)[0] = ${page} order by id collate "C"`,
    );
    const damaged = onPage.filter((one) => !begun.includes(one));
    const others = sorted.filter((one) => !damaged.includes(one));
    expect([damaged.length > 1, others.length > 1, others.includes(sorted[6])]).toEqual([true, true, true]);
    await damage("session", page);
    // Of those that nothing knows is told once, and of no other one that can be read.
    const unread = [...damaged, null];
    const { faults, sessions, copies } = await suite.told("verify", machine.place);
    const wrong = faults.map(({ sessionId, fault }: Json) => [sessionId, fault]).sort();
    expect([wrong, sessions]).toEqual([unread.map((one) => [one, "chain"]).sort(), others.length]);
    const states = copies.map(({ sessionId, state }: Json) => [sessionId, state]).sort();
    expect(states).toEqual(others.map((one) => [one, "same"]).sort());
    const { status, stdout } = await suite.verb("verify", machine.place);
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
  const OF_ROWS = `chain: entry set line = replace(encode(line, 'escape'), 'text', 'TEXT')::bytea where session_id = ID
    missing_rows: delete from pi_fleet.entry where session_id = ID and seq = 1
    epochs: entry set epoch = epoch + 9 where session_id = ID and seq = 0
    unindexed: session set indexed = 0 where id = ID
    heads: entry set head = 'x' where session_id = ID and seq = 1
    facts: described set facts = 'x' where session_id = ID
    header: session s set header = o.header from pi_fleet.session o where o.id = OTHER and s.id = ID`;
  const OF_MORE_ROWS = `heads: entry set head = '7' where session_id = ID and seq = 2
    heads: entry e set head = o.head from pi_fleet.entry o where o.session_id = ID and o.seq = 0 and e.session_id = ID and e.seq = 1
    heads: entry set head = replace(head, 'user', 'assistant') where session_id = ID
    facts: described set facts = '{"name":7}' where session_id = ID
    facts: delete from pi_fleet.described where session_id = ID`;
  const OF_PACKS = `chain: pack set chain = sha256(chain) where session_id = ID and seq = 2
    chain: pack set ends = array[ends[1] - 1] where session_id = ID and seq = 2
    chain: pack set lines = substring(lines from 2) where session_id = ID and seq = 2
    epochs: pack set epoch = epoch + 9 where session_id = ID and seq = 0
    epochs: pack set first_epoch = 0 where session_id = ID and seq > 0
    missing_rows: pack set count = 3 where session_id = ID and seq = 0
    missing_rows: pack set seq = 7 where session_id = ID and seq = 2
    heads: pack set heads = replace(heads, 'user', 'assistant') where session_id = ID`;

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

  for (const [what, kind, changes, tier] of [
    ["the lines and what is kept beside them, in rows", "rows", OF_ROWS, {}],
    ["everything that is kept beside the lines, in rows", "rows", OF_MORE_ROWS, SWEEP],
    ["packs", "packs", OF_PACKS, {}],
  ] as const)
    test(`of ${what} is told`, tier, async () => {
      const { machine, ids } = await madeIn(kind, 4, 4);
      sql("update pi_fleet.session set changed_at = '2010-01-01', holder = null");
      expect(await wrongIn(machine)).toEqual([]);
      const restore = kept();
      for (const [, fault, change] of changes.matchAll(/(\w+): (.*)/g)) {
        sql(
          `${/^delete/.test(change) ? "" : "update pi_fleet."}${change.replaceAll("ID", `'${ids[0]}'`).replaceAll("OTHER", `'${ids[1]}'`)}`,
        );
        expect([change, await wrongIn(machine)]).toEqual([change, [[ids[0], fault]]]);
        if (fault === "facts") {
          expect(await suite.told("migrate", machine.place)).toMatchObject({ indexed: 1 });
          expect(await wrongIn(machine)).toEqual([]);
        } else {
          const { status, stdout } = await suite.verb("verify", machine.place);
          expect([status, stdout]).toEqual([3, expect.stringContaining("1 fault in the database")]);
        }
        restore();
      }
      await machine.end();
    });

  test("of facts and heads ends no list, no search and no preview of what goes", async () => {
    const { machine, wire, ids } = await madeIn("rows", 4, 3);
    sql("update pi_fleet.described set facts = 'x'");
    sql("update pi_fleet.entry set head = 'x' where seq < 2");
    await wire.result("new_session");
    const elsewhere = suite.lives();
    const there = await elsewhere.start();
    const { sessions } = await there.result("list_sessions");
    expect(sessions.map(({ sessionId, id }: Json) => sessionId ?? id).sort()).toEqual([...ids].sort());
    const { hits } = await there.result("search_sessions", { query: "text" });
    const found = new Set(hits.map(({ entryId }: Json) => entryId));
    expect([hits.length, found.size, found.has("")]).toEqual([7, 7, false]);
    await wire.result("delete_session", { sessionId: ids[0] });
    sql("update pi_fleet.session set deleted_at = '2010-01-01' where state = 2");
    const { named } = await suite.told("prune", machine.place);
    expect(named).toMatchObject([{ sessionId: ids[0], name: null }]);
    await Promise.all([machine.end(), elsewhere.end()]);
  });
});
