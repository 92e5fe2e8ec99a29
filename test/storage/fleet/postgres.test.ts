/**
 * A fleet in a real PostgreSQL: what its statements do, also when connections and servers end in the middle, and where a
 * pooler has fewer connections than there are clients.
 *
 * @module-tag system
 */

import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { FleetBatch, FleetEnd } from "../../../src/core/ports/fleet.ts";
import { addressOf } from "../../../src/storage/fleet/address.ts";
import { Connections } from "../../../src/storage/fleet/connections.ts";
import { loadDriver } from "../../../src/storage/fleet/driver.ts";
import { endAfter, NOTHING } from "../../../src/storage/fleet/ends.ts";
import { PostgresFleet } from "../../../src/storage/fleet/postgres.ts";
import { SCHEMA_VERSION } from "../../../src/storage/fleet/schema.ts";
import { Database } from "../../support/database.ts";
import { needs } from "../../support/needs.ts";
import { PGBOUNCER, Pooler } from "../../support/pooler.ts";
import { POSTGRESQL, Postgres } from "../../support/postgres.ts";
import { SWEEP } from "../../support/tiers.ts";

const HEADER = Buffer.from('{"type":"session"}');

describe("a fleet in PostgreSQL", needs(POSTGRESQL), () => speaks(false));

describe("a fleet in PostgreSQL behind PgBouncer", { ...SWEEP, ...needs(POSTGRESQL, PGBOUNCER) }, () => speaks(true));

function speaks(isPooled: boolean): void {
  let server: Database;
  let pooler: Pooler | undefined;
  const fleets: PostgresFleet[] = [];

  const fleetOf = (name: string, url = (pooler ?? server).url, answerWithin = 60_000): PostgresFleet => {
    const address = addressOf(url, (path) => readFileSync(path, "utf8"));
    const connections = new Connections({
      ...{ address, driver: loadDriver, most: 4, connectWithin: 60_000, answerWithin },
    });
    const shown = { client: name, pid: 0, since: "2026-01-24T16:22:26.831Z", host: `host of ${name}` };
    const fleet = new PostgresFleet(connections, { id: name, shown });
    fleets.push(fleet);
    return fleet;
  };
  const batchOf = (sessionId: string, epoch: number, before: FleetEnd, ...texts: string[]): FleetBatch => {
    const lines = texts.map((text) => Buffer.from(text));
    const heads = texts.map((_, n) => JSON.stringify([`${before.entries + n}`, null, "message", "user"]));
    const facts = { counts: { messages: 0, modified: null, isPlain: true }, texts: [], spendings: [] };
    return { sessionId, epoch, before, after: endAfter(before, lines), lines, heads, facts };
  };
  const taken = async (fleet: PostgresFleet, sessionId: string): Promise<number> => {
    const taking = await fleet.take(sessionId, 0, HEADER);
    if (taking.kind !== "taken") throw new Error(`not taken: ${JSON.stringify(taking)}`);
    return taking.epoch;
  };
  const linesOf = async (fleet: PostgresFleet, sessionId: string, from: number, to: number): Promise<string[]> => {
    const texts: string[] = [];
    for await (const lines of fleet.lines(sessionId, from, to))
      for (const line of lines) texts.push(Buffer.from(line).toString("utf8"));
    return texts;
  };

  beforeAll(async () => {
    server = new Database({ isEmpty: true });
    await server.start();
    pooler = isPooled ? new Pooler({ size: 2, database: server.name }) : undefined;
    await pooler?.start(server.folder);
  });
  afterAll(async () => {
    await Promise.all(fleets.map((fleet) => fleet.close()));
    await pooler?.close();
    await server.close();
  });

  test("says what to do before its tables are there, and makes them once, whoever comes first", async () => {
    const fleet = fleetOf("one");
    expect(await fleet.schemaVersion()).toBe(0);
    await expect(fleet.requireTables()).rejects.toMatchObject({ message: expect.stringContaining("fleet migrate") });
    const outcomes = await Promise.all([fleet.migrate(), fleetOf("two").migrate(), fleetOf("three").migrate()]);
    expect(new Set(outcomes.map(({ after }) => after))).toEqual(new Set([SCHEMA_VERSION]));
    await fleet.requireTables();
    expect(await fleet.migrate()).toEqual({ before: SCHEMA_VERSION, after: SCHEMA_VERSION });
    for (const [version, remedy] of [
      [99, "newer pi-session-server"],
      [SCHEMA_VERSION - 1, "another database"],
    ]) {
      server.sql(`update pi_fleet.meta set value = '${version}' where key = 'version'`);
      const refused = { name: "unsupported_version", message: expect.stringContaining(`${remedy}`) };
      await expect(fleet.requireTables()).rejects.toMatchObject(refused);
      await expect(fleet.migrate()).rejects.toMatchObject(refused);
    }
    server.sql(`update pi_fleet.meta set value = '${SCHEMA_VERSION}' where key = 'version'`);
  });

  test("what the tests ask themselves fails with the reason, and does not stay failed", () => {
    expect(() => server.sql("select 1; select nothing")).toThrow(/"nothing" does not exist/);
    expect(server.sql("select 1, null, 'two\nlines'; select 3")).toBe("1||two\nlines\n3");
  });

  test("appends lines as they are, and gives them back", async () => {
    const fleet = fleetOf("one");
    expect(await fleet.take("bytes", 0)).toEqual({ kind: "missing" });
    const epoch = await taken(fleet, "bytes");
    expect(await fleet.look("bytes")).toBeNull();
    const texts = [
      '{"a":"\\u0000 \\ud800 \u{1f600}"}',
      "{}",
      `{"b":"${"x".repeat(3 << 20)}"}`,
      ' { "c" : 1 }\t',
      "'; drop table",
    ];
    const first = batchOf("bytes", epoch, NOTHING, ...texts.slice(0, 2));
    expect(await fleet.append(first)).toEqual({ kind: "committed", durability: "primary" });
    const second = batchOf("bytes", epoch, first.after, ...texts.slice(2));
    expect(await fleet.append(second)).toMatchObject({ kind: "committed" });
    expect(await linesOf(fleet, "bytes", 0, 5)).toEqual(texts);
    expect(await linesOf(fleet, "bytes", 2, 4)).toEqual(texts.slice(2, 4));
    expect(await fleet.look("bytes")).toMatchObject({ end: second.after, epoch, holder: null });
    expect(await fleetOf("two").look("bytes")).toMatchObject({ end: second.after, epoch, holder: { client: "one" } });
    await expect(linesOf(fleet, "bytes", 0, 6)).rejects.toMatchObject({ name: "storage_failed" });
    const some = await fleet.linesAt("bytes", [0, 2, 4]);
    expect(some.map((line) => Buffer.from(line).toString("utf8"))).toEqual([texts[0], texts[2], texts[4]]);
    await expect(fleet.linesAt("bytes", [4, 5])).rejects.toMatchObject({ name: "storage_failed" });
    const heads = [];
    for await (const piece of fleet.heads("bytes", 1, 5)) heads.push(piece);
    const text = [...first.heads, ...second.heads].slice(1).join("\n");
    expect(heads).toEqual([{ text, lengths: texts.slice(1).map((line) => Buffer.byteLength(line)) }]);
    await expect(fleet.heads("bytes", 0, 6)[Symbol.asyncIterator]().next()).rejects.toMatchObject({
      name: "storage_failed",
    });
  });

  test("refuses another epoch, number or chain, and the same lines again", async () => {
    const fleet = fleetOf("one");
    const old = await taken(fleet, "fenced");
    const epoch = await taken(fleet, "fenced");
    expect(epoch).toBe(old + 1);
    expect(await fleet.append(batchOf("fenced", old, NOTHING, "{}"))).toEqual({ kind: "refused" });
    const batch = batchOf("fenced", epoch, NOTHING, "{}");
    expect(await fleet.append({ ...batch, before: { ...NOTHING, chain: "1".repeat(64) } })).toEqual({
      kind: "refused",
    });
    expect(await fleet.append({ ...batch, before: { ...NOTHING, entries: 1 } })).toEqual({ kind: "refused" });
    expect((await fleet.append(batch)).kind).toBe("committed");
    expect(await fleet.append(batch)).toEqual({ kind: "refused" });
    expect(await linesOf(fleet, "fenced", 0, 1)).toEqual(["{}"]);
    const above = await fleet.take("fenced", 40);
    expect(above).toMatchObject({ kind: "taken", epoch: 41, end: batch.after });
  });

  test("lets nobody take what another has, until that lets go or its lease has run out", async () => {
    const [one, two] = [fleetOf("one"), fleetOf("two")];
    const epoch = await taken(one, "held");
    expect(await two.take("held", 0)).toMatchObject({ kind: "held", holder: { client: "one", host: "host of one" } });
    await one.release("held", epoch - 1);
    expect((await two.take("held", 0)).kind).toBe("held");
    await one.release("held", epoch);
    expect(await two.take("held", 0)).toMatchObject({ kind: "taken", epoch: epoch + 1 });
    server.sql("update pi_fleet.session set lease_until = clock_timestamp() where id = 'held'");
    expect(await one.take("held", 0)).toMatchObject({ kind: "taken", epoch: epoch + 2 });
    server.sql("update pi_fleet.session set state = 2 where id = 'held'");
    expect(await one.take("held", 0, HEADER)).toEqual({ kind: "deleted" });
    expect(await one.append(batchOf("held", epoch + 2, NOTHING, "{}"))).toEqual({ kind: "refused" });
  });

  test("of many who append at once, one is committed and the others are refused", async () => {
    const fleet = fleetOf("one");
    const epoch = await taken(fleet, "race");
    const outcomes = await Promise.all(
      Array.from({ length: 8 }, (_, n) => fleet.append(batchOf("race", epoch, NOTHING, `{"n":${n}}`))),
    );
    expect(outcomes.map(({ kind }) => kind).sort()).toEqual(["committed", ...Array(7).fill("refused")]);
    const many = await Promise.all(Array.from({ length: 8 }, () => fleet.take("race", 0)));
    expect(new Set(many.map((taking) => taking.kind === "taken" && taking.epoch)).size).toBe(8);
  });

  test("waits for a statement of the same session when it is asked what became of it", async () => {
    const fleet = fleetOf("one");
    const epoch = await taken(fleet, "slow");
    server.sql(
      "create or replace function pi_fleet.dawdle() returns trigger language plpgsql as 'begin perform pg_sleep(0.3); return new; end'",
    );
    server.sql(
      "create trigger dawdle before insert on pi_fleet.entry for each row when (new.session_id = 'slow') execute function pi_fleet.dawdle()",
    );
    const batch = batchOf("slow", epoch, NOTHING, "{}");
    const slow = fleetOf("one", undefined, 100);
    await slow.schemaVersion();
    const late = slow.append(batch);
    const outcome = await late;
    expect(outcome.kind).toBe("unknown");
    const taking = await fleet.take("slow", epoch);
    expect(taking).toMatchObject({ kind: "taken", epoch: epoch + 1 });
    const { end } = taking as { end: FleetEnd };
    // Either it was done before the session was taken, or it never is.
    expect([NOTHING, batch.after]).toContainEqual(end);
    expect((await fleet.look("slow"))?.end ?? NOTHING).toEqual(end);
    server.sql("drop trigger dawdle on pi_fleet.entry");
  });

  test("a connection that was ended by the server makes an append unknown, and the next one is another", async () => {
    const fleet = fleetOf("one");
    const epoch = await taken(fleet, "ended");
    server.sql(
      "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pi-session-server' and datname = current_database()",
    );
    const batch = batchOf("ended", epoch, NOTHING, "{}");
    let outcome = await fleet.append(batch);
    // A pooler had several.
    for (let tries = 0; tries < 4 && outcome.kind === "unknown"; tries++) outcome = await fleet.append(batch);
    expect(outcome.kind).toBe("committed");
  });

  test("a database that forgets is not used", async () => {
    server.configure("set synchronous_commit = off");
    pooler?.turn(server.folder);
    const outcome = await fleetOf("one").take("forgetful", 0, HEADER);
    expect(outcome).toMatchObject({ kind: "away", reason: expect.stringContaining("synchronous_commit = off") });
    server.configure("reset synchronous_commit");
    pooler?.turn(server.folder);
  });

  test("a server that is killed and comes back has all that was acknowledged", async () => {
    const own = new Postgres();
    onTestFinished(() => own.close());
    await own.start();
    const between = isPooled ? new Pooler({ size: 2 }) : undefined;
    onTestFinished(() => between?.close());
    await between?.start(own.folder);
    const fleet = fleetOf("one", (between ?? own).url);
    onTestFinished(() => fleet.close());
    await fleet.migrate();
    const epoch = await taken(fleet, "killed");
    let end = NOTHING;
    for (let n = 0; n < 20; n++) {
      const batch = batchOf("killed", epoch, end, `{"n":${n}}`);
      expect((await fleet.append(batch)).kind).toBe("committed");
      end = batch.after;
    }
    await own.kill();
    expect((await fleet.append(batchOf("killed", epoch, end, "{}"))).kind).toMatch(/away|unknown/);
    await own.start();
    // The pooler tells of each connection that it has lost, to whoever asks next.
    const takes = async (): Promise<string> => (await fleet.take("killed", epoch)).kind;
    await expect.poll(takes, { timeout: 10_000, interval: 20 }).toBe("taken");
    expect((await fleet.look("killed"))?.end).toEqual(end);
    expect(await linesOf(fleet, "killed", 0, 20)).toHaveLength(20);
    expect(await fleet.status()).toMatchObject({ durability: "primary", schemaVersion: SCHEMA_VERSION });
  });
}
