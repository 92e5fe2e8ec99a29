/**
 * Answers of `fleet verify` and exports for sessions whose pages are damaged, whose rows were tampered with, which others
 * change meanwhile, or that cannot be read. Over a real PostgreSQL.
 *
 * @module-tag system
 */

import { randomBytes } from "node:crypto";
import { openSync, readdirSync, writeSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import type { SqlAnswer } from "../../../src/modules/fleet/postgres/connections.ts";
import { assistant, user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import type { HereLives } from "../../support/proof.ts";
import { range } from "../../support/random.ts";
import type { Json, Place, Wire } from "../../support/server.ts";
import { SWEEP } from "../../support/tiers.ts";
import { suiteServer } from "./support/database.ts";
import type { SqlFleet } from "./support/sql-fleet.ts";
import { AWAY, fleetSuite, meddle, newSession } from "./support/sql-machines.ts";

/** Bytes of a page. */
const PAGE = 8192;

describe("damage in a fleet", needs(POSTGRESQL), () => {
  const suite = fleetSuite(suiteServer());
  const sql = (text: string): string => suite.sql(text);
  const wrongIn = async ({ place }: HereLives): Promise<unknown[]> =>
    (await suite.runVerb("verify", place)).faults.map(({ sessionId, fault }: Json) => [sessionId, fault]).sort();
  /** A machine with sessions of so many entries, a few of them on each page, with lines in rows or in packs. */
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
      // Words of packs are indexed later, by the machine with the session open.
      await expect.poll(() => sql("select count(*) from pi_fleet.behind"), { timeout: 30_000 }).toBe("0");
    }
    const inRows = kind === "packs" ? 0 : counts.reduce((sum, count) => sum + count);
    expect(sql("select count(*) from pi_fleet.entry")).toBe(`${inRows}`);
    return { machine, wire, ids };
  };
  /** Writes nonsense over a page of a table, as a disk does. Queries then use the indexes, as in larger tables. */
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
    const { files, refused } = await suite.runVerb(`export ${out}`, place);
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
    const { sessions, entries, copies } = await suite.runVerb("verify", machine.place);
    expect([sessions, entries, copies.length]).toEqual([3, 36, 3]);
    const out = join(machine.place.home, "out");
    const { outcomes, refused } = await exported(machine, out);
    expect([outcomes, refused]).toEqual([ids.map((id) => [id, id === first ? "refused" : "new"]).sort(), 1]);
    const names = readdirSync(out, { recursive: true, encoding: "utf8" });
    expect(names.filter((one) => one.endsWith(".jsonl"))).toHaveLength(2);
    expect(await suite.runVerb("migrate", machine.place)).toMatchObject({ indexed: 0, inUse: [], unreadable: [] });
    await machine.end();
  });

  test("of a page of sessions is told of those that have it, of none that can be read, and every other one is read and written out", async () => {
    const { machine, ids } = await madeIn("rows", ...range(0, 14).map(() => 2));
    const sorted = [...ids].sort();
    // Those that were begun and have no lines, which nothing else knows: between others, and behind all of them.
    // The first of these is before one of the first rows, which are on other pages.
    const before = sorted.findIndex((_, n) => ids.slice(0, 4).includes(sorted[n + 1]));
    const begun = [`${sorted[before]}-`, `${sorted[13]}-`];
    for (const id of begun)
      sql(`insert into pi_fleet.session (tenant, id, header, chain)
        select tenant, '${id}', header, '' from pi_fleet.session limit 1`);
    sql("update pi_fleet.session set changed_at = '2010-01-01', holder = null");
    // Earlier versions of the rows are gone, and a page has a few rows.
    const pages = (): string[] =>
      suite.column("select distinct (ctid::text::point)[0] from pi_fleet.session where id like '%-'");
    // The end of a page depends on the length of the rows: both are on one page.
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
    expect([damaged.length > 1, others.length > 1, others.includes(sorted[before + 1])]).toEqual([true, true, true]);
    await damage("session", page);
    // Unreadable rows without a known session are reported once, and readable ones are not.
    const unread = [...damaged, null];
    const { faults, sessions, copies } = await suite.runVerb("verify", machine.place);
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

  /** Changes of one session, by the fault that they cause. `ID` is the session, `OTHER` another one. */
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
  const OF_PACKS = `chain: pack set ends = array[ends[1] - 1] where session_id = ID and seq = 2
    chain: pack set lines = substring(lines from 2) where session_id = ID and seq = 2
    epochs: pack set epoch = epoch + 9 where session_id = ID and seq = 0
    epochs: pack set epoch = 0 where session_id = ID and seq > 0
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
          expect(await suite.runVerb("migrate", machine.place)).toMatchObject({ indexed: 1 });
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
    const { named } = await suite.runVerb("prune", machine.place);
    expect(named).toMatchObject([{ sessionId: ids[0], name: null }]);
    await Promise.all([machine.end(), elsewhere.end()]);
  });
});

/** Calls that read a session. */
const READING = ["lines", "attachments"] as const;
const BROKEN: SqlAnswer = { kind: "unknown", reason: "missing chunk number 0 for toast value 16400" };
const TOO_LONG: SqlAnswer = { kind: "failed", code: "54000", reason: "invalid memory alloc request size" };
const FAILED = { name: "storage_failed" };

describe("the verifying of a fleet", needs(POSTGRESQL), () => {
  const suite = fleetSuite();
  let comeBack = (): void => {};
  /** Has the database be away for a process until it comes back. */
  const leaves = (one: SqlFleet): void => {
    comeBack = meddle(one, () => AWAY);
  };
  /** Makes sessions on a machine that ends then, with lines in packs if `long` is 0. Returns their ids. */
  const made = async (count: number, long?: number): Promise<{ place: Place; ids: string[] }> => {
    const { lives, wire, place } = await suite.machine({ fleet: { ...suite.connect(), long } });
    const ids: string[] = [];
    for (let n = 0; n < count; n++) {
      if (n > 0) await wire.result("new_session");
      await wire.result("append", { entries: [user("one"), assistant("two"), user("three")] });
      ids.push((await wire.result("get_state")).sessionId);
    }
    await lives.end();
    return { place, ids };
  };
  /** Returns a fleet in which something else happens before the first such call about a session. */
  const after = (one: SqlFleet, call: (typeof READING)[number], id: string, change: () => unknown): SqlFleet => {
    let isDone = false;
    const once = async (about: string): Promise<void> => {
      if (about !== id || isDone) return;
      isDone = true;
      await change();
    };
    const { fleet } = one;
    const own = fleet[call].bind(fleet) as (...given: unknown[]) => AsyncIterable<never>;
    const changed =
      call === "lines"
        ? async function* (about: string, ...given: unknown[]) {
            await once(about);
            yield* own(about, ...given);
          }
        : (about: string, ...given: unknown[]) => once(about).then(() => own(about, ...given));
    return { ...one, fleet: Object.assign(Object.create(fleet), { [call]: changed }) };
  };
  /** Has statements about the lines of a session not succeed, as long as there are such answers. */
  const refusing = (one: SqlFleet, id: string, answers: SqlAnswer[]): SqlFleet => {
    meddle(one, (text, _, values) =>
      text.includes("string_agg(line") && values.split(",")[1] === id ? answers.shift() : undefined,
    );
    return one;
  };
  /** Returns the fleet administration of a machine. */
  const openAdmin = async (fleet: SqlFleet, place?: Place) => (await suite.machine({ fleet, place })).lives.getAdmin();
  /** Returns the faults by session. */
  const faults = async (fleet: SqlFleet, place?: Place): Promise<string[]> =>
    (await (await openAdmin(fleet, place)).verify()).faults
      .map(({ sessionId, fault }) => `${sessionId} ${fault}`)
      .sort();
  const damage = (id: string): string =>
    suite.sql(`update pi_fleet.entry set line = sha256(line) where session_id = '${id}' and seq = 1`);

  test("what cannot be read for a moment is no fault, and a database that is away ends it", async () => {
    const { place, ids } = await made(2);
    expect(await faults(refusing(suite.connect(), ids[0], [BROKEN, BROKEN]), place)).toEqual([]);
    const dying = suite.connect();
    for (const call of READING) {
      const away = await openAdmin(
        after(dying, call, ids[0], () => leaves(dying)),
        place,
      );
      await expect(away.verify(), call).rejects.toMatchObject(FAILED);
      comeBack();
    }
  });

  test("a fault is told of what is there, or damaged: a database that is away when it is asked ends it", async () => {
    const { place, ids } = await made(2);
    // Nothing is asked after the last one.
    const last = [...ids].sort()[1];
    damage(last);
    const one = suite.connect();
    const { adminQueries } = one;
    const row = adminQueries.row.bind(adminQueries);
    const found = async () => faults(one, place);
    adminQueries.row = async () => {
      throw new Failure("storage_failed", "invalid page in block 0", { fleet: true }, { retryable: true });
    };
    expect(await found()).toEqual([`${last} chain`]);
    adminQueries.row = async () => null;
    expect(await found()).toEqual([]);
    const mistake = new TypeError("a mistake of ours");
    adminQueries.row = () => Promise.reject(mistake);
    await expect(found()).rejects.toBe(mistake);
    adminQueries.row = async (id) => {
      leaves(one);
      return row(id);
    };
    await expect(found()).rejects.toMatchObject(FAILED);
    comeBack();
  });

  /** Deletes a session on a machine with its copy. */
  const deletes = async (place: Place, params: object): Promise<void> => {
    const { lives, wire } = await suite.machine({ place });
    await wire.result("delete_session", params);
    await lives.end();
  };
  const prune = async (place: Place): Promise<number> => {
    suite.sql("update pi_fleet.session set deleted_at = '2010-01-01' where state = 2");
    return (await suite.runVerb("prune --apply --yes", place)).sessions;
  };

  test.each(
    [false, true].flatMap((isPruned) => READING.map((call) => [isPruned ? "and pruned" : "for good", call] as const)),
  )("a session that is deleted %s meanwhile is no fault (before its %s are read)", async (how, call) => {
    const { place, ids } = await made(2);
    const [sessionId] = ids;
    const change = async () => {
      await deletes(place, { sessionId, permanent: how === "for good" });
      if (how !== "for good") expect(await prune(place)).toBe(1);
    };
    expect(await faults(after(suite.connect(), call, sessionId, change))).toEqual([]);
  });

  test("what is wrong in a session that is taken meanwhile is a fault", async () => {
    const { place, ids } = await made(2);
    for (const id of ids) damage(id);
    const take = () => suite.sql(`update pi_fleet.session set epoch = epoch + 1 where id = '${ids[0]}'`);
    expect(await faults(after(suite.connect(), "lines", ids[0], take), place)).toEqual(
      ids.map((id) => `${id} chain`).sort(),
    );
  });

  test.each([TOO_LONG, BROKEN])(
    "a session that cannot be read is a fault of its own, and ends nothing (%o)",
    async (answer) => {
      const { place, ids } = await made(3);
      damage(ids[2]);
      const one = await openAdmin(refusing(suite.connect(), ids[0], Array(100).fill(answer)), place);
      const { faults, sessions, copies } = await one.verify();
      expect(faults.map(({ sessionId, fault }) => `${sessionId} ${fault}`).sort()).toEqual(
        [`${ids[0]} chain`, `${ids[2]} chain`].sort(),
      );
      expect([sessions, copies.length]).toEqual([3, 3]);
    },
  );

  test("a right that is taken away meanwhile ends it: of no session is said that it cannot be read", async () => {
    const { place } = await made(3);
    const one = suite.connect();
    const refused: SqlAnswer = { kind: "failed", code: "42501", reason: "permission denied for table session" };
    let asked = 0;
    meddle(one, (text) => {
      if (text.includes("cross join lateral")) asked++;
      return asked > 0 ? refused : undefined;
    });
    await expect((await openAdmin(one, place)).verify()).rejects.toMatchObject({ ...FAILED, retryable: false });
    expect(asked).toBe(1);
  });

  test.each(["rows", "packs"])(
    "deleted sessions are read until their rows are pruned, as they may be restored (%s)",
    async (kind) => {
      const { place, ids } = await made(3, kind === "packs" ? 0 : undefined);
      for (const sessionId of ids.slice(0, 2)) await deletes(place, { sessionId });
      const one = await openAdmin(suite.connect(), place);
      const found = async () => {
        const { faults, sessions, deleted, entries } = await one.verify();
        return [sessions, deleted, entries, faults.map(({ sessionId, fault }) => `${sessionId} ${fault}`)];
      };
      expect(await found()).toEqual([3, 2, 9, []]);
      // Damage of packs, or of rows.
      const change = kind === "packs" ? "pack set ends = array[ends[1] - 1]" : "entry set line = 'x'";
      suite.sql(`update pi_fleet.${change} where session_id = '${ids[0]}'`);
      suite.sql("update pi_fleet.session set indexed = 0 where state = 2");
      expect(await found()).toEqual([3, 2, 9, [`${ids[0]} chain`]]);
      const { status, stdout } = await suite.verb("verify");
      expect([status, stdout]).toEqual([3, expect.stringContaining("2 of them deleted")]);
      await prune(place);
      expect(await found()).toEqual([1, 0, 3, []]);
    },
  );
});
