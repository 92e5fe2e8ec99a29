/**
 * A fleet in a real PostgreSQL: what its statements do, also when connections and servers end in the middle, and where a
 * pooler has fewer connections than there are clients.
 *
 * @module-tag system
 */

import { describe, expect, onTestFinished, test } from "vitest";
import type { FleetBatch, FleetEnd } from "../../../src/core/ports/fleet.ts";
import { NOTHING } from "../../../src/modules/fleet/postgres/ends.ts";
import { SCHEMA_VERSION } from "../../../src/modules/fleet/postgres/schema.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL, Postgres } from "../../support/postgres.ts";
import { range } from "../../support/random.ts";
import { SWEEP } from "../../support/tiers.ts";
import { taken } from "./support/commits.ts";
import { suiteDatabase } from "./support/database.ts";
import { PGBOUNCER, Pooler } from "./support/pooler.ts";
import { batchOf as batchFor, fleetSuite, HEADER, linesOf } from "./support/sql-machines.ts";

const REFUSED = { kind: "refused" };

describe("a fleet in PostgreSQL", needs(POSTGRESQL), () => speaks(false));

describe("a fleet in PostgreSQL behind PgBouncer", { ...SWEEP, ...needs(POSTGRESQL, PGBOUNCER) }, () => speaks(true));

function speaks(isPooled: boolean): void {
  const suite = fleetSuite(suiteDatabase({ isEmpty: true }), { isPooled, keepsRows: true });
  const connect = (name: string, url = suite.url, answerWithin?: number) => suite.open(name, { url, answerWithin });
  const sql = (text: string): string => suite.sql(text);
  const batchOf = (id: string, epoch: number, before: FleetEnd, ...texts: string[]): FleetBatch =>
    batchFor(id, epoch, before, texts);

  test("says what to do before its tables are there, and makes them once, whoever comes first", async () => {
    const fleets = ["one", "two", "three"].map((name) => connect(name));
    const [fleet] = fleets;
    expect(await fleet.schemaVersion()).toBe(0);
    await expect(fleet.requireTables()).rejects.toMatchObject({ message: expect.stringContaining("fleet migrate") });
    const outcomes = await Promise.all(fleets.map((one) => one.migrate()));
    expect(new Set(outcomes.map(({ after }) => after))).toEqual(new Set([SCHEMA_VERSION]));
    // One of them made the tables.
    expect(outcomes.map(({ before }) => before).sort()).toEqual([0, SCHEMA_VERSION, SCHEMA_VERSION]);
    await fleet.requireTables();
    expect(await fleet.migrate()).toEqual({ before: SCHEMA_VERSION, after: SCHEMA_VERSION });
    const be = (version: number) => sql(`update pi_fleet.meta set value = '${version}' where key = 'version'`);
    for (const [version, remedy] of [
      [99, "newer pi-session-server"],
      [SCHEMA_VERSION - 2, "another database"],
    ] as const) {
      be(version);
      const refused = { name: "unsupported_version", message: expect.stringContaining(remedy) };
      await expect(fleet.requireTables()).rejects.toMatchObject(refused);
      await expect(fleet.migrate()).rejects.toMatchObject(refused);
    }
    be(SCHEMA_VERSION);
  });

  test("upgrades tables of the version before, once, whoever comes first", async () => {
    const fleets = ["one", "two", "three"].map((name) => connect(name));
    sql(`alter table pi_fleet.pack add column first_epoch bigint not null default 0,
      add column bytes bigint not null default 0;
      update pi_fleet.meta set value = '4' where key = 'version'`);
    const refused = {
      name: "unsupported_version",
      message: expect.stringMatching(/Stop the servers.* fleet migrate$/),
    };
    await expect(fleets[0].requireTables()).rejects.toMatchObject(refused);
    const outcomes = await Promise.all(fleets.map((one) => one.migrate()));
    expect(new Set(outcomes.map(({ after }) => after))).toEqual(new Set([SCHEMA_VERSION]));
    expect(
      sql(
        "select count(*) from information_schema.columns where table_name = 'pack' and column_name in ('first_epoch', 'bytes')",
      ),
    ).toBe("0");
  });

  test("appends lines as they are, and gives them back", async () => {
    const one = connect("one");
    const { fleet } = one;
    expect(await fleet.take("bytes", 0)).toEqual({ kind: "missing" });
    const { epoch } = await taken(one, "bytes");
    expect(await fleet.look("bytes")).toBeNull();
    const long = `{"b":"${"x".repeat(3 << 20)}"}`;
    const texts = ['{"a":"\\u0000 \\ud800 \u{1f600}"}', "{}", long, ' { "c" : 1 }\t', "'; drop table"];
    const first = batchOf("bytes", epoch, NOTHING, ...texts.slice(0, 2));
    const second = batchOf("bytes", epoch, first.after, ...texts.slice(2));
    for (const batch of [first, second])
      expect(await fleet.append(batch)).toEqual({ kind: "committed", durability: "primary" });
    expect(await linesOf(one, "bytes", 0, 5)).toEqual(texts);
    expect(await linesOf(one, "bytes", 2, 4)).toEqual(texts.slice(2, 4));
    const there = { end: second.after, epoch };
    expect(await fleet.look("bytes")).toMatchObject({ ...there, holder: null });
    expect(await connect("two").fleet.look("bytes")).toMatchObject({ ...there, holder: { client: "one" } });
    const heads = [];
    for await (const piece of fleet.heads("bytes", 1, 5)) heads.push(piece);
    expect(heads).toEqual([[...first.heads, ...second.heads].slice(1)]);
    const failed = { name: "storage_failed" };
    await expect(linesOf(one, "bytes", 0, 6)).rejects.toMatchObject(failed);
    await expect(fleet.heads("bytes", 0, 6)[Symbol.asyncIterator]().next()).rejects.toMatchObject(failed);
  });

  test("refuses another epoch, number or chain, and the same lines again", async () => {
    const one = connect("one");
    const { fleet } = one;
    const { epoch: old } = await taken(one, "fenced");
    const { epoch } = await taken(one, "fenced");
    expect(epoch).toBe(old + 1);
    const batch = batchOf("fenced", epoch, NOTHING, "{}");
    for (const other of [
      { epoch: old },
      ...[{ chain: "1".repeat(64) }, { entries: 1 }].map((end) => ({ before: { ...NOTHING, ...end } })),
    ])
      expect(await fleet.append({ ...batch, ...other })).toEqual(REFUSED);
    expect((await fleet.append(batch)).kind).toBe("committed");
    expect(await fleet.append(batch)).toEqual(REFUSED);
    expect(await linesOf(one, "fenced", 0, 1)).toEqual(["{}"]);
    expect(await taken(one, "fenced", 40)).toMatchObject({ epoch: 41, end: batch.after });
  });

  test("lets nobody take what another has, until that lets go or its lease has run out", async () => {
    const [one, two] = [connect("one"), connect("two")];
    const { epoch } = await taken(one, "held");
    const holder = { client: "one", host: "host of one" };
    expect(await two.fleet.take("held", 0)).toMatchObject({ kind: "held", holder });
    await one.fleet.release("held", epoch - 1);
    expect((await two.fleet.take("held", 0)).kind).toBe("held");
    await one.fleet.release("held", epoch);
    expect((await taken(two, "held")).epoch).toBe(epoch + 1);
    sql("update pi_fleet.session set lease_until = clock_timestamp() where id = 'held'");
    expect((await taken(one, "held")).epoch).toBe(epoch + 2);
    sql("update pi_fleet.session set state = 2 where id = 'held'");
    expect(await one.fleet.take("held", 0, HEADER)).toEqual({ kind: "deleted" });
    expect(await one.fleet.append(batchOf("held", epoch + 2, NOTHING, "{}"))).toEqual(REFUSED);
  });

  test("of many who append at once, one is committed and the others are refused", async () => {
    const one = connect("one");
    const { epoch } = await taken(one, "race");
    const outcomes = await Promise.all(
      range(0, 8).map((n) => one.fleet.append(batchOf("race", epoch, NOTHING, `{"n":${n}}`))),
    );
    expect(outcomes.map(({ kind }) => kind).sort()).toEqual(["committed", ...Array(7).fill("refused")]);
    const many = await Promise.all(range(0, 8).map(() => taken(one, "race")));
    expect(new Set(many.map((taking) => taking.epoch)).size).toBe(8);
  });

  test("waits for a statement of the same session when it is asked what became of it", async () => {
    const one = connect("one");
    const { epoch } = await taken(one, "slow");
    sql(`create or replace function pi_fleet.dawdle() returns trigger language plpgsql
        as 'begin perform pg_sleep(0.3); return new; end';
      create trigger dawdle before insert on pi_fleet.entry
        for each row when (new.session_id = 'slow') execute function pi_fleet.dawdle()`);
    const batch = batchOf("slow", epoch, NOTHING, "{}");
    const { fleet: slow, schemaVersion } = connect("one", undefined, 100);
    await schemaVersion();
    expect((await slow.append(batch)).kind).toBe("unknown");
    const { end, epoch: next } = await taken(one, "slow", epoch);
    expect(next).toBe(epoch + 1);
    // Either it was done before the session was taken, or it never is.
    expect([NOTHING, batch.after]).toContainEqual(end);
    expect((await one.fleet.look("slow"))?.end ?? NOTHING).toEqual(end);
    sql("drop trigger dawdle on pi_fleet.entry");
  });

  test("a connection that was ended by the server makes an append unknown, and the next one is another", async () => {
    const one = connect("one");
    const { epoch } = await taken(one, "ended");
    sql(`select pg_terminate_backend(pid) from pg_stat_activity
      where application_name = 'pi-session-server' and datname = current_database()`);
    const batch = batchOf("ended", epoch, NOTHING, "{}");
    let outcome = await one.fleet.append(batch);
    // A pooler had several.
    for (let tries = 0; tries < 4 && outcome.kind === "unknown"; tries++) outcome = await one.fleet.append(batch);
    expect(outcome.kind).toBe("committed");
  });

  test("a database that forgets is not used", async () => {
    const { server } = suite.database;
    server.configure("set synchronous_commit = off");
    suite.pooler?.turn(server.folder);
    const reason = expect.stringContaining("synchronous_commit = off");
    expect(await connect("one").fleet.take("forgetful", 0, HEADER)).toMatchObject({ kind: "away", reason });
    server.configure("reset synchronous_commit");
    suite.pooler?.turn(server.folder);
  });

  test("a server that is killed and comes back has all that was acknowledged", async () => {
    const own = new Postgres();
    onTestFinished(() => own.close());
    await own.start();
    const between = isPooled ? new Pooler({ size: 2 }) : undefined;
    onTestFinished(() => between?.close());
    await between?.start(own.folder);
    const one = connect("one", (between ?? own).url);
    const { fleet } = one;
    onTestFinished(() => fleet.close());
    await one.migrate();
    const { epoch } = await taken(one, "killed");
    let end = NOTHING;
    for (let n = 0; n < 20; n++) {
      const batch = batchOf("killed", epoch, end, `{"n":${n}}`);
      expect((await fleet.append(batch)).kind).toBe("committed");
      end = batch.after;
    }
    await own.kill();
    expect((await fleet.append(batchOf("killed", epoch, end, "{}"))).kind).toMatch(/away|unknown/);
    await own.start();
    // The pooler reports each connection that it has lost to the next client.
    const takes = async (): Promise<string> => (await fleet.take("killed", epoch)).kind;
    await expect.poll(takes, { timeout: 10_000, interval: 20 }).toBe("taken");
    expect((await fleet.look("killed"))?.end).toEqual(end);
    expect(await linesOf(one, "killed", 0, 20)).toHaveLength(20);
    expect([one.connections.fact?.durability, await one.schemaVersion()]).toEqual(["primary", SCHEMA_VERSION]);
  });
}
