/**
 * A primary and its standby: reports about commits that wait for it, and the work after its promotion; also behind a
 * pooler, which hands out a connection for each transaction: one client's facts may come from another connection, and even
 * another database, than the one that commits.
 *
 * @module-tag system
 */

import { rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { FleetBatch, FleetEnd } from "../../../src/core/ports/fleet.ts";
import { openKnownStore } from "../../../src/modules/fleet/postgres/identity.ts";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL, Postgres, socketFolder, urlOf } from "../../support/postgres.ts";
import { SWEEP } from "../../support/tiers.ts";
import { batchOf, type Held, taken, taken as takenBy } from "./support/commits.ts";
import { PGBOUNCER, Pooler } from "./support/pooler.ts";
import { type SqlFleet, sqlFleet } from "./support/sql-fleet.ts";
import { batchOf as batchFor } from "./support/sql-machines.ts";

describe("a primary with a standby", needs(POSTGRESQL), () => {
  let [primary, standby]: Postgres[] = [];
  let place: string;
  let state: string;
  const open: SqlFleet[] = [];

  /** Has the endpoint, which is a folder of sockets, lead to a server from now on. */
  const lead = (server: Postgres): void => {
    rmSync(place, { force: true });
    symlinkSync(server.folder, place);
  };
  /** A process of the machine. */
  const fleetOf = (name: string, user = "fleet", answerWithin = 60_000): SqlFleet => {
    const url = urlOf(place, "postgres").replace("user=fleet", `user=${user}`);
    const store = openKnownStore(realDisk, state, url);
    const fleet = sqlFleet(url, name, { answerWithin, store });
    open.push(fleet);
    return fleet;
  };
  const begun = async (one = fleetOf("one")): Promise<Held & { one: SqlFleet }> => ({
    ...(await taken(one, "one")),
    one,
  });
  const committed = (durability: string) => ({ kind: "committed", durability });

  beforeAll(async () => {
    primary = new Postgres(["synchronous_standby_names = '*'"]);
    standby = new Postgres();
    state = socketFolder("pi-end-");
    place = join(state, "endpoint");
    lead(primary);
    await primary.start();
    await standby.follow(primary, primary.folder);
    await standby.start();
  });
  afterAll(async () => {
    await Promise.all(open.map(({ fleet }) => fleet.close()));
    await Promise.all([primary.close(), standby.close()]);
    rmSync(state, { recursive: true, force: true });
  });

  test("what a commit has reached is said, and nothing that is not proven", async () => {
    const one = fleetOf("one");
    await one.migrate();
    const held = await taken(one, "one");
    expect(await one.fleet.append(batchOf(held, ['{"n":1}']))).toEqual(committed("replicated"));
    // A role that does not wait, and one without a warning.
    for (const [role, setting] of [
      ["hasty", "synchronous_commit = local"],
      ["deaf", "client_min_messages = error"],
    ]) {
      primary.sql(`create role ${role} login superuser`);
      primary.sql(`alter role ${role} set ${setting}`);
      const other = fleetOf("one", role);
      const again = await taken(other, "one", held.epoch);
      expect(again.durability).toBe("primary");
      expect(await other.fleet.append(batchOf(again, [`{"by":"${role}"}`]))).toMatchObject(committed("primary"));
    }
    // It stops being so for connections that are there already.
    for (const [names, durability] of [
      ["", "primary"],
      ["*", "replicated"],
    ]) {
      primary.configure(`set synchronous_standby_names = '${names}'`);
      await expect.poll(async () => (await taken(one, "one")).durability).toBe(durability);
    }
  });

  test("a commit that is cancelled while it waits for its standby is unknown, and asking tells", async () => {
    const { one, ...held } = await begun();
    standby.signal("SIGSTOP");
    const batch = batchOf(held, ['{"n":"cancelled"}']);
    const outcome = one.fleet.append(batch);
    const waiting = "select pid from pg_stat_activity where wait_event = 'SyncRep' limit 1";
    await expect.poll(() => primary.sql(waiting), { timeout: 10_000, interval: 20 }).not.toBe("");
    primary.sql(`select pg_cancel_backend((${waiting}))`);
    expect(await outcome).toMatchObject({
      kind: "unknown",
      reason: expect.stringContaining("synchronous replication"),
    });
    standby.signal("SIGCONT");
    const { epoch } = held;
    expect(await taken(one, "one", epoch)).toMatchObject({
      ...{ epoch: epoch + 1, end: batch.after, durability: "replicated" },
    });
  });

  test("a commit whose standby never answers is unknown, and why it waits is said", async () => {
    const { one, ...held } = await begun(fleetOf("one", "fleet", 1000));
    standby.signal("SIGSTOP");
    const outcome = await one.fleet.append(batchOf(held, ['{"n":"late"}']));
    standby.signal("SIGCONT");
    expect(outcome).toMatchObject({ kind: "unknown", reason: expect.stringContaining("synchronous_standby_names") });
  });

  test("after a promotion nothing is written before the session is taken anew, and the former primary is used by nobody", async () => {
    const { one, ...held } = await begun();
    const first = batchOf(held, ['{"n":"before"}']);
    expect(await one.fleet.append(first)).toMatchObject(committed("replicated"));
    const former = one.fleet.server;
    await primary.kill();
    await standby.promote();
    lead(standby);
    const next = batchOf({ ...held, end: first.after }, ['{"n":"after"}']);
    let outcome = await one.fleet.append(next);
    if (outcome.kind === "unknown") outcome = await one.fleet.append(next);
    expect(outcome).toEqual({ kind: "refused" });
    expect(one.fleet.server).not.toBe(former);
    const epoch = held.epoch + 1;
    expect(await taken(one, "one", held.epoch)).toMatchObject({ epoch, end: first.after, durability: "primary" });
    expect(await one.fleet.append({ ...next, epoch })).toEqual(committed("primary"));
    // The former primary comes back, would accept writes, and the endpoint leads there again.
    await primary.start();
    lead(primary);
    await standby.kill();
    const message = expect.stringContaining("this server is a former primary");
    for (const { fleet } of [one, fleetOf("started again")])
      await expect(fleet.look("one")).rejects.toMatchObject({ message });
    await standby.start();
    lead(standby);
    for (const { fleet } of [one, fleetOf("two")]) expect((await fleet.look("one"))?.end).toEqual(next.after);
  });
});

const ON_ONE = { kind: "committed", durability: "primary" };
const ON_TWO = { kind: "committed", durability: "replicated" };

describe("behind a pooler in transaction mode", { ...SWEEP, ...needs(POSTGRESQL, PGBOUNCER) }, () => {
  let [primary, standby]: Postgres[] = [];
  let pooler: Pooler;
  const open: SqlFleet[] = [];

  const fleetOf = (name: string): SqlFleet => {
    const fleet = sqlFleet(pooler.url, name, { answerWithin: 60_000 });
    open.push(fleet);
    return fleet;
  };
  const batchOf = (epoch: number, before: FleetEnd, text: string): FleetBatch => batchFor("one", epoch, before, [text]);
  const taken = (one: SqlFleet, above = 0) => takenBy(one, "one", above);
  const linesIn = (server: Postgres): string =>
    server.sql("select convert_from(line, 'utf8') from pi_fleet.entry order by seq");

  beforeAll(async () => {
    primary = new Postgres(["synchronous_standby_names = '*'"]);
    standby = new Postgres();
    await primary.start();
    await standby.follow(primary, primary.folder);
    await standby.start();
  });
  beforeEach(async () => {
    // All clients have the same connection to the server, with the settings that others left in it.
    pooler = new Pooler({ size: 1 });
    await pooler.start(primary.folder);
  });
  afterEach(async () => {
    await Promise.all(open.splice(0).map(({ fleet }) => fleet.close()));
    await pooler.close();
  });
  afterAll(() => Promise.all([primary.close(), standby.close()]));

  test("what a commit has reached is proven by the connection that commits, whatever others left in it", async () => {
    const one = fleetOf("one");
    const { fleet } = one;
    await one.migrate();
    const { epoch, end } = await taken(one);
    let batch = batchOf(epoch, end, '{"n":1}');
    expect(await fleet.append(batch)).toEqual(ON_TWO);
    for (const [setting, outcome] of [
      ["client_min_messages = error", ON_ONE],
      ["client_min_messages = warning", ON_TWO],
      ["synchronous_commit = local", ON_ONE],
      ["synchronous_commit = remote_write", ON_TWO],
    ] as const) {
      pooler.sql(`set ${setting}`);
      batch = batchOf(epoch, batch.after, JSON.stringify({ setting }));
      expect([setting, await fleet.append(batch)]).toEqual([setting, outcome]);
    }
    // A commit that a crash forgets does not count.
    pooler.sql("set synchronous_commit = off");
    const forgotten = batchOf(epoch, batch.after, '{"n":"forgotten"}');
    const reason = expect.stringContaining("synchronous_commit = off");
    expect(await fleet.append(forgotten)).toMatchObject({ kind: "unknown", reason });
    expect(await fleet.take("one", epoch)).toMatchObject({ kind: "away", reason });
    pooler.sql("set synchronous_commit = on");
    expect(await taken(one)).toMatchObject({ end: forgotten.after, durability: "replicated" });
  });

  test("a server that is promoted behind it is noticed, and nothing goes to it before the session is taken there", async () => {
    const [one, seen] = [fleetOf("one"), fleetOf("two")];
    const { epoch, end } = await taken(one);
    const first = batchOf(epoch, end, '{"n":"before"}');
    expect(await one.fleet.append(first)).toEqual(ON_TWO);
    const former = one.fleet.server;
    await seen.fleet.look("one");
    await standby.promote();
    pooler.turn(standby.folder);
    // The lines fit, and so do epoch and writer: only the server is another one.
    expect(await one.fleet.append(batchOf(epoch, first.after, '{"n":"after"}'))).toEqual({ kind: "refused" });
    expect((await seen.fleet.look("one"))?.end).toEqual(first.after);
    expect(seen.fleet.server).not.toBe(former);
    expect(await taken(one, epoch)).toMatchObject({ epoch: epoch + 1, durability: "primary" });
    expect(one.fleet.server).toBe(seen.fleet.server);
    expect(await one.fleet.append(batchOf(epoch + 1, first.after, '{"n":"after"}'))).toEqual(ON_ONE);
  });

  test("a former primary that it still leads to acknowledges nothing once the later one was seen", async () => {
    // It does not wait for the standby that it has lost.
    primary.configure("set synchronous_standby_names = ''");
    const one = fleetOf("one");
    const { fleet } = one;
    pooler.turn(standby.folder);
    const { epoch, end } = await taken(one);
    pooler.turn(primary.folder);
    const before = linesIn(primary);
    expect((await fleet.append(batchOf(epoch, end, '{"n":"lost"}'))).kind).not.toBe("committed");
    const reason = expect.stringContaining("this server is a former primary");
    for (const id of ["one", "none"]) expect(await fleet.take(id, epoch)).toMatchObject({ kind: "away", reason });
    await expect(fleet.look("one")).rejects.toMatchObject({ message: reason });
    expect(linesIn(primary)).toBe(before);
    pooler.turn(standby.folder);
    expect((await taken(one, epoch)).end).toEqual(end);
  });
});
