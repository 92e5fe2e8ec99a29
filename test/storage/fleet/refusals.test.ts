/** What a real PostgreSQL refuses until somebody changes something: roles, databases, encodings, tables that are in use. */

import { describe, expect, onTestFinished, test } from "vitest";
import { addressOf } from "../../../src/storage/fleet/address.ts";
import { connectFleet } from "../../../src/storage/fleet/connect.ts";
import { loadDriver } from "../../../src/storage/fleet/driver.ts";
import { keepLong, SOON } from "../../../src/storage/fleet/keeping.ts";
import { SCHEMA_VERSION } from "../../../src/storage/fleet/schema.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL, urlOf } from "../../support/postgres.ts";
import { fleetSuite, instead } from "../../support/sql-machines.ts";
import { SWEEP, SYSTEM } from "../../support/tiers.ts";

describe("what a database refuses", { ...SYSTEM, ...needs(POSTGRESQL) }, () => {
  const suite = fleetSuite();
  const sql = (text: string): string => suite.sql(text);
  const asNobody = (url: string): string => url.replace("user=fleet", "user=nobody");

  test.each([
    [asNobody, "use a role that may connect"],
    [(url: string) => url.replace(/suite_\w+/, "missing"), "make that database"],
  ])("is no outage, and is told with what to do (%#)", async (wrong, remedy) => {
    const { fleet } = suite.open("one", { url: wrong(suite.url) });
    expect(await fleet.take("one", 0)).toEqual({ kind: "unfit", reason: expect.stringContaining(remedy) });
  });

  test("passes when the file with the address is another one: it is read for each new connection", async () => {
    const { url } = suite;
    let text = asNobody(url);
    const readFile = (): string => {
      if (text === "") throw new Error("it is not there");
      return text;
    };
    const place = { client: "test", processId: "1", since: "", readFile };
    const { fleet } = connectFleet("file:/run/secrets/fleet", place, true);
    expect(await fleet.take("file", 0)).toMatchObject({ kind: "unfit" });
    // One that cannot be read, or is of another tenant, leaves it as it was.
    for (const [other, kind] of [
      [url, "missing"],
      ["", "missing"],
      ["half of", "missing"],
      [`${url}&tenant=other`, "missing"],
      [asNobody(url), "unfit"],
    ]) {
      text = other;
      sql(`select pg_terminate_backend(pid) from pg_stat_activity
        where application_name = 'pi-session-server' and datname = current_database()`);
      await fleet.take("file", 0);
      expect([other, (await fleet.take("file", 0)).kind]).toEqual([other, kind]);
    }
    await fleet.close();
  });

  test.each(["SQL_ASCII", "LATIN1"])("tables in a database with the encoding %s are not made", async (encoding) => {
    const { server } = suite.database;
    const name = `${server.name}_${encoding.toLowerCase()}`;
    sql(`create database ${name} encoding '${encoding}' template template0`);
    onTestFinished(() => void sql(`drop database ${name} with (force)`));
    const url = urlOf(server.folder, name);
    const { fleet } = suite.open("one", { url });
    const message = expect.stringContaining(`the encoding ${encoding}`);
    await expect(fleet.migrate()).rejects.toMatchObject({ name: "storage_failed", retryable: false, message });
    expect(await fleet.schemaVersion()).toBe(0);
    const { status, stderr } = await suite.verb("migrate", undefined, url);
    expect([status, stderr]).toEqual([1, expect.stringContaining("encoding 'UTF8'")]);
  });

  /** Somebody who reads the tables in a transaction that lasts. */
  const reader = async () => {
    const { server: config } = addressOf(suite.url, () => "");
    const client = (await loadDriver())(config);
    await client.connect();
    onTestFinished(() => client.end());
    await client.query({ text: "begin" });
    await client.query({ text: "select from pi_fleet.entry, pi_fleet.pack, pi_fleet.session" });
    return client;
  };
  const kept = (): string =>
    sql(`select string_agg(attname::text || attcompression::text || attstorage::text, ' ' order by attname)
      from pg_attribute where attrelid in ('pi_fleet.entry'::regclass, 'pi_fleet.pack'::regclass)
      and attname in ('line', 'heads', 'ends', 'lines')`);

  // Without another limit, it waits for others for five seconds, as often as a statement is tried.
  for (const [title, isSoon, tier] of [
    ["a migration tells of columns that somebody uses, and changes those that are wrong when nobody does", true, {}],
    ["a migration has nobody wait for more than a moment who writes meanwhile", false, SWEEP],
  ] as const)
    test(title, tier, async () => {
      const { fleet, connections } = suite.connect();
      if (isSoon)
        instead(connections, "run", (run) => (question, sent) => {
          if (!("text" in question)) return run(question, sent);
          return run({ ...question, text: question.text.replace(SOON, "set local lock_timeout = '20ms'") }, sent);
        });
      const right = kept();
      const reading = await reader();
      expect(await fleet.migrate()).toEqual({ before: SCHEMA_VERSION, after: SCHEMA_VERSION, unkept: undefined });
      await reading.end();
      sql("alter table pi_fleet.pack alter heads set compression pglz, alter lines set storage extended");
      sql("alter table pi_fleet.entry alter line set compression pglz");
      const wrong = kept();
      const again = await reader();
      const migrated = isSoon ? fleet.migrate() : suite.verb("migrate");
      expect(await suite.connect().fleet.take("begun", 0, Buffer.from("{}"))).toMatchObject({ kind: "taken" });
      const told = expect.stringMatching(/not compressed.*run it again/s);
      expect(await migrated).toMatchObject(
        isSoon ? { unkept: expect.stringContaining("run it again") } : { status: 1, stdout: told },
      );
      expect(kept()).toBe(wrong);
      await again.end();
      expect(await fleet.migrate()).toMatchObject({ unkept: undefined });
      expect(kept()).toBe(right);
    });

  test("is not what the server goes on with that nobody waits for, of which the status tells", async () => {
    const { server } = suite.database;
    const told = async (): Promise<boolean> =>
      (await suite.verb("status")).stdout.includes("client_connection_check_interval");
    expect(await told()).toBe(true);
    server.configure("set client_connection_check_interval = '10s'");
    expect(await told()).toBe(false);
    server.configure("reset client_connection_check_interval");
  });
});

test.each([
  ["42703", undefined],
  ["42P01", undefined],
  ["42501", "test: refused"],
])(
  "a catalog that lacks what is asked about long columns is another engine's, and no failure (%s)",
  async (code, unkept) => {
    const run = async () => ({ kind: "failed", code, reason: "test: refused" }) as const;
    expect(await keepLong({ run })).toBe(unkept);
  },
);
