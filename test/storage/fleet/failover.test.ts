/**
 * A primary and its standby: what is said of commits that wait for it, and what goes on when it is promoted.
 *
 * @module-tag system
 */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { FleetBatch, FleetEnd, Taking } from "../../../src/core/ports/fleet.ts";
import { endAfter } from "../../../src/storage/fleet/ends.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL, Postgres } from "../../support/postgres.ts";
import { type SqlFleet, sqlFleet } from "../../support/sql-fleet.ts";

const HEADER = Buffer.from('{"type":"session"}');

describe("a primary with a standby", needs(POSTGRESQL), () => {
  let [primary, standby]: Postgres[] = [];
  const open: SqlFleet[] = [];

  const fleetOf = (name: string, user = "fleet", answerWithin = 60_000): SqlFleet => {
    const hosts = [primary, standby].map(({ folder }) => folder).join(",");
    const url = `postgres:///postgres?host=${encodeURIComponent(hosts)}&user=${user}`;
    const fleet = sqlFleet(url, name, { answerWithin });
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

  beforeAll(async () => {
    primary = new Postgres(["synchronous_standby_names = '*'"]);
    standby = new Postgres();
    await primary.start();
    await standby.follow(primary, primary.folder);
    await standby.start();
  });
  afterAll(async () => {
    await Promise.all(open.map(({ fleet }) => fleet.close()));
    await Promise.all([primary.close(), standby.close()]);
  });

  test("what a commit has reached is said, and nothing that is not proven", async () => {
    const one = fleetOf("one");
    await one.fleet.migrate();
    const { epoch, end } = await taken(one);
    const first = batchOf(epoch, end, '{"n":1}');
    expect(await one.fleet.append(first)).toEqual({ kind: "committed", durability: "replicated" });
    // A role that does not wait, and one that is told nothing of it.
    for (const [role, setting] of [
      ["hasty", "synchronous_commit = local"],
      ["deaf", "client_min_messages = error"],
    ]) {
      primary.sql(`create role ${role} login superuser`);
      primary.sql(`alter role ${role} set ${setting}`);
      const other = fleetOf("one", role);
      const taking = await taken(other, epoch);
      expect(taking.durability).toBe("primary");
      expect(await other.fleet.append(batchOf(taking.epoch, taking.end, `{"by":"${role}"}`))).toMatchObject({
        kind: "committed",
        durability: "primary",
      });
    }
    const durability = async (): Promise<string> => (await taken(one)).durability;
    // It stops being so for connections that are there already.
    primary.configure("set synchronous_standby_names = ''");
    await expect.poll(durability).toBe("primary");
    primary.configure("set synchronous_standby_names = '*'");
    await expect.poll(durability).toBe("replicated");
  });

  test("a commit that is cancelled while it waits for its standby is unknown, and asking tells", async () => {
    const one = fleetOf("one");
    const { epoch, end } = await taken(one);
    standby.signal("SIGSTOP");
    const batch = batchOf(epoch, end, '{"n":"cancelled"}');
    const outcome = one.fleet.append(batch);
    const waiting = "select pid from pg_stat_activity where wait_event = 'SyncRep' limit 1";
    await expect.poll(() => primary.sql(waiting), { timeout: 10_000, interval: 20 }).not.toBe("");
    primary.sql(`select pg_cancel_backend((${waiting}))`);
    expect(await outcome).toMatchObject({
      kind: "unknown",
      reason: expect.stringContaining("synchronous replication"),
    });
    standby.signal("SIGCONT");
    expect(await taken(one, epoch)).toMatchObject({ epoch: epoch + 1, end: batch.after, durability: "replicated" });
  });

  test("a commit whose standby never answers is unknown, and why it waits is said", async () => {
    const one = fleetOf("one", "fleet", 1000);
    const { epoch, end } = await taken(one);
    standby.signal("SIGSTOP");
    const outcome = await one.fleet.append(batchOf(epoch, end, '{"n":"late"}'));
    standby.signal("SIGCONT");
    expect(outcome).toMatchObject({ kind: "unknown", reason: expect.stringContaining("synchronous_standby_names") });
  });

  test("after a promotion nothing is written before the session is taken anew, and the former primary is left", async () => {
    const one = fleetOf("one");
    const { epoch, end } = await taken(one);
    const first = batchOf(epoch, end, '{"n":"before"}');
    expect(await one.fleet.append(first)).toMatchObject({ durability: "replicated" });
    const former = one.fleet.server;
    await primary.kill();
    await standby.promote();
    const next = batchOf(epoch, first.after, '{"n":"after"}');
    let outcome = await one.fleet.append(next);
    if (outcome.kind === "unknown") outcome = await one.fleet.append(next);
    expect(outcome).toEqual({ kind: "refused" });
    expect(one.fleet.server).not.toBe(former);
    const again = await taken(one, epoch);
    expect(again).toMatchObject({ epoch: epoch + 1, end: first.after, durability: "primary" });
    expect(await one.fleet.append({ ...next, epoch: again.epoch })).toEqual({
      kind: "committed",
      durability: "primary",
    });
    // The former one comes back, is listed first, and would take what is written.
    await primary.start();
    const two = fleetOf("two");
    expect((await two.fleet.look("one"))?.end).toEqual(next.after);
    await standby.kill();
    await expect(one.fleet.look("one")).rejects.toMatchObject({
      message: expect.stringContaining("before another server was promoted"),
    });
  });
});
