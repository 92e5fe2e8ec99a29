/**
 * A primary and its standby: what is said of commits that wait for it, and what goes on when it is promoted.
 *
 * @module-tag system
 */

import { rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { notedStore } from "../../../src/storage/fleet/identity.ts";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { batchOf, type Held, taken } from "../../support/fleet-commits.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL, Postgres, socketFolder, urlOf } from "../../support/postgres.ts";
import { type SqlFleet, sqlFleet } from "../../support/sql-fleet.ts";

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
    const store = notedStore(realDisk, state, url);
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
    await one.fleet.migrate();
    const held = await taken(one, "one");
    expect(await one.fleet.append(batchOf(held, ['{"n":1}']))).toEqual(committed("replicated"));
    // A role that does not wait, and one that is told nothing of it.
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
    // The former one comes back, would take what is written, and the endpoint leads there again.
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
