/**
 * A pooler between servers and database, which hands out a connection for each transaction: what one client sees of it
 * may have been said by another connection, and even by another database, than the one that commits.
 *
 * @module-tag system
 */

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { FleetBatch, FleetEnd, Taking } from "../../../src/core/ports/fleet.ts";
import { endAfter } from "../../../src/storage/fleet/ends.ts";
import { isolate } from "../../../src/storage/fleet/isolation.ts";
import { copying, fleetStore } from "../../../src/storage/fleet/store.ts";
import type { FileLogOptions } from "../../../src/storage/log/write-state.ts";
import { Database } from "../../support/database.ts";
import { FaultDisk } from "../../support/disk.ts";
import { fleetOptions } from "../../support/fleet.ts";
import { needs } from "../../support/needs.ts";
import { PGBOUNCER, Pooler } from "../../support/pooler.ts";
import { POSTGRESQL, Postgres } from "../../support/postgres.ts";
import { type SqlFleet, sqlFleet } from "../../support/sql-fleet.ts";
import { SWEEP } from "../../support/tiers.ts";
import { keepsTheContract } from "../contract.ts";
import { harnessOn as jsonlOn } from "../jsonl/harness.ts";
import { harnessOn as containersOn } from "../v2/harness.ts";

const HEADER = Buffer.from('{"type":"session"}');

describe("behind a pooler in transaction mode", { ...SWEEP, ...needs(POSTGRESQL, PGBOUNCER) }, () => {
  let [primary, standby]: Postgres[] = [];
  let pooler: Pooler;
  const open: SqlFleet[] = [];

  const fleetOf = (name: string): SqlFleet => {
    const fleet = sqlFleet(pooler.url, name, { answerWithin: 60_000 });
    open.push(fleet);
    return fleet;
  };
  const batchOf = (epoch: number, before: FleetEnd, text: string): FleetBatch => {
    const lines = [Buffer.from(text)];
    const facts = { counts: { messages: 0, modified: null, isPlain: true }, texts: [], spendings: [] };
    const heads = [JSON.stringify([`${before.entries}`, null, "message", "user"])];
    return { sessionId: "one", epoch, before, after: endAfter(before, lines), lines, heads, facts };
  };
  const taken = async ({ fleet }: SqlFleet, above = 0): Promise<Taking & { kind: "taken" }> => {
    const taking = await fleet.take("one", above, HEADER);
    if (taking.kind !== "taken") throw new Error(`not taken: ${JSON.stringify(taking)}`);
    return taking;
  };
  const linesIn = (server: Postgres): string[] =>
    server.sql("select convert_from(line, 'utf8') from pi_fleet.entry order by seq").split("\n");

  beforeAll(async () => {
    primary = new Postgres(["synchronous_standby_names = '*'"]);
    standby = new Postgres();
    await primary.start();
    await standby.follow(primary, primary.folder);
    await standby.start();
  });
  beforeEach(async () => {
    // Everybody has the same connection to the server, and what others left behind in it.
    pooler = new Pooler({ size: 1 });
    await pooler.start(primary.folder);
  });
  afterEach(async () => {
    await Promise.all(open.splice(0).map(({ fleet }) => fleet.close()));
    await pooler.close();
  });
  afterAll(async () => {
    await Promise.all([primary.close(), standby.close()]);
  });

  test("what a commit has reached is proven by the connection that commits, whatever others left in it", async () => {
    const one = fleetOf("one");
    await one.fleet.migrate();
    const { epoch, end } = await taken(one);
    let batch = batchOf(epoch, end, '{"n":1}');
    expect(await one.fleet.append(batch)).toEqual({ kind: "committed", durability: "replicated" });
    for (const [setting, isProven] of [
      ["client_min_messages = error", false],
      ["client_min_messages = warning", true],
      ["synchronous_commit = local", false],
      ["synchronous_commit = remote_write", true],
    ] as const) {
      pooler.sql(`set ${setting}`);
      batch = batchOf(epoch, batch.after, JSON.stringify({ setting }));
      const durability = isProven ? "replicated" : "primary";
      expect([setting, await one.fleet.append(batch)]).toEqual([setting, { kind: "committed", durability }]);
    }
    // A commit that a crash forgets is none.
    pooler.sql("set synchronous_commit = off");
    const forgotten = batchOf(epoch, batch.after, '{"n":"forgotten"}');
    expect(await one.fleet.append(forgotten)).toMatchObject({
      kind: "unknown",
      reason: expect.stringContaining("synchronous_commit = off"),
    });
    expect(await one.fleet.take("one", epoch)).toMatchObject({
      kind: "away",
      reason: expect.stringContaining("synchronous_commit = off"),
    });
    pooler.sql("set synchronous_commit = on");
    expect(await taken(one)).toMatchObject({ end: forgotten.after, durability: "replicated" });
  });

  test("the warning of a commit that was cancelled while it waited comes through", async () => {
    const one = fleetOf("one");
    const { epoch, end } = await taken(one);
    standby.signal("SIGSTOP");
    const batch = batchOf(epoch, end, '{"n":"cancelled"}');
    const outcome = one.fleet.append(batch);
    const waiting = "select pid from pg_stat_activity where wait_event = 'SyncRep' limit 1";
    await expect.poll(() => primary.sql(waiting), { timeout: 10_000, interval: 20 }).not.toBe("");
    primary.sql(`select pg_cancel_backend((${waiting}))`);
    expect(await outcome).toMatchObject({ kind: "unknown" });
    standby.signal("SIGCONT");
    expect(await taken(one, epoch)).toMatchObject({ end: batch.after, durability: "replicated" });
  });

  test("a server that is promoted behind it is noticed, and nothing goes to it before the session is taken there", async () => {
    const one = fleetOf("one");
    const { epoch, end } = await taken(one);
    const first = batchOf(epoch, end, '{"n":"before"}');
    expect(await one.fleet.append(first)).toMatchObject({ durability: "replicated" });
    const former = one.fleet.server;
    const seen = fleetOf("two");
    await seen.fleet.look("one");
    await standby.promote();
    pooler.turn(standby.folder);
    // The lines fit, and so do epoch and writer: only the server is another one.
    expect(await one.fleet.append(batchOf(epoch, first.after, '{"n":"after"}'))).toEqual({ kind: "refused" });
    expect((await seen.fleet.look("one"))?.end).toEqual(first.after);
    expect(seen.fleet.server).not.toBe(former);
    const again = await taken(one, epoch);
    expect(again).toMatchObject({ epoch: epoch + 1, durability: "primary" });
    expect(one.fleet.server).toBe(seen.fleet.server);
    const next = batchOf(again.epoch, first.after, '{"n":"after"}');
    expect(await one.fleet.append(next)).toEqual({ kind: "committed", durability: "primary" });
  });

  test("a former primary that it still leads to acknowledges nothing once the later one was seen", async () => {
    // It does not wait for the standby that it has lost.
    primary.configure("set synchronous_standby_names = ''");
    const one = fleetOf("one");
    pooler.turn(standby.folder);
    const { epoch, end } = await taken(one);
    pooler.turn(primary.folder);
    const before = linesIn(primary);
    const refused = await one.fleet.append(batchOf(epoch, end, '{"n":"lost"}'));
    expect(refused.kind).not.toBe("committed");
    const reason = expect.stringContaining("before another server was promoted");
    expect(await one.fleet.take("one", epoch)).toMatchObject({ kind: "away", reason });
    expect(await one.fleet.take("none", 0)).toMatchObject({ kind: "away", reason });
    await expect(one.fleet.look("one")).rejects.toMatchObject({ message: reason });
    expect(linesIn(primary)).toEqual(before);
    pooler.turn(standby.folder);
    expect((await taken(one, epoch)).end).toEqual(end);
  });
});

/** Connections of all clients to the server. */
const FEW = 2;

/** A database of isolated tenants, and a pooler before it. */
interface Pooled {
  readonly server: Database;
  readonly pooler: Pooler;
}

/** Has the suite in which it is called have a database behind a pooler. Returns it as it is once the tests begin. */
function pooledDatabase(): () => Pooled | undefined {
  let pooled: Pooled | undefined;
  beforeAll(async () => {
    const server = new Database();
    await server.start();
    const pooler = new Pooler({ size: FEW, roles: ["fleet", "alice", "mallory"], database: server.name });
    await pooler.start(server.folder);
    const owner = sqlFleet(pooler.url, "owner");
    await isolate(owner.connections);
    await owner.fleet.close();
    pooled = { server, pooler };
  });
  afterAll(async () => {
    await pooled?.pooler.close();
    await pooled?.server.close();
  });
  return () => pooled;
}

describe("the contract of logs behind a pooler", { ...SWEEP, ...needs(POSTGRESQL, PGBOUNCER) }, () => {
  const pooled = pooledDatabase();
  let made = 0;

  for (const [name, harnessOn] of [
    ["jsonl", jsonlOn],
    ["v2", containersOn],
  ] as const)
    keepsTheContract(`a fleet over ${name}`, () => {
      const disk = new FaultDisk();
      disk.makeFolder("/root/sessions");
      const tenant = `test ${made++}`;
      const { pooler } = pooled() ?? {};
      const fleet = pooler && sqlFleet(`${pooler.url}&tenant=${tenant}`, tenant);
      const ours = <T extends FileLogOptions>(options: T): T =>
        fleet ? copying(options, fleetOptions(fleet.fleet)) : options;
      const harness = harnessOn(disk, "/root", { faults: disk }, () => void fleet?.fleet.close(), ours);
      return { ...harness, store: fleetStore(harness.store), isCopied: true };
    });
});

describe("tenants behind a pooler", needs(POSTGRESQL, PGBOUNCER), () => {
  const pooled = pooledDatabase();

  test("have to do with what is theirs, whose connection it ever was before", async () => {
    const { server, pooler } = pooled() as Pooled;
    const of = (role: string, tenant: string): SqlFleet =>
      sqlFleet(`${pooler.url.replace("user=fleet", `user=${role}`)}&tenant=${tenant}`, role);
    const both = [of("alice", "alice"), of("mallory", "mallory")];
    await Promise.all(both.map(({ fleet }) => fleet.take("same id", 0, HEADER)));
    expect(server.sql("select tenant from pi_fleet.session where id = 'same id' order by tenant").split("\n")).toEqual([
      "alice",
      "mallory",
    ]);
    const other = of("mallory", "alice");
    expect(await other.fleet.take("same id", 0)).toMatchObject({
      kind: "unfit",
      reason: expect.stringContaining("has to do with the tenant mallory alone"),
    });
    await Promise.all([...both, other].map(({ fleet }) => fleet.close()));
  });
});
