/**
 * Settings that a role or a database has for other programs: whatever they are, the fleet writes and reads the same, with
 * nothing in between and behind a pooler, where nobody can set something for the statements that follow.
 *
 * @module-tag sweep
 */

import { rmSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { Database } from "../../support/database.ts";
import { assistant, SPOKEN, user } from "../../support/drafts.ts";
import { batchOf, taken } from "../../support/fleet-commits.ts";
import { needs } from "../../support/needs.ts";
import { PGBOUNCER, Pooler } from "../../support/pooler.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import { type Json, temporaryFolder, type Wire } from "../../support/server.ts";
import { sqlFleet } from "../../support/sql-fleet.ts";
import { runHere } from "../../support/verbs.ts";

/** Text that a literal of SQL or of a `bytea` might take for something else. */
const ODD = String.raw`zebra\x0acrossing 'it''s' \\101 é☃ $1`;
const COSTLY = {
  ...SPOKEN,
  usage: { ...SPOKEN.usage, input: 12345678, cost: { ...SPOKEN.usage.cost, total: 0.1 + 0.2 } },
};

const SETTINGS = `standard_conforming_strings = off
  extra_float_digits = -15
  bytea_output = escape
  DateStyle = 'German, DMY'
  IntervalStyle = sql_standard
  TimeZone = 'Asia/Kathmandu'
  client_encoding = LATIN1
  lock_timeout = '2s'
  statement_timeout = '30s'
  default_transaction_isolation = serializable
  default_transaction_isolation = 'repeatable read'
  default_transaction_deferrable = on
  search_path = ''
  search_path = shadow, pg_catalog
  row_security = off
  array_nulls = off
  transform_null_equals = on
  xmloption = document
  default_text_search_config = 'pg_catalog.german'
  gin_fuzzy_search_limit = 1
  session_replication_role = replica
  quote_all_identifiers = on
  backslash_quote = off
  plan_cache_mode = force_generic_plan
  idle_session_timeout = '5s'`
  .split("\n")
  .map((line) => line.trim());

/** Functions that a statement could take for those of the server. */
const SHADOW = `create schema shadow;
  create function shadow.count(text) returns bigint language sql as 'select -1::bigint';
  create function shadow.lower(text) returns text language sql as 'select ''wrong''';
  create function shadow.sum(bigint) returns numeric language sql as 'select -1'`;

for (const isPooled of [false, true])
  describe(isPooled ? "behind a pooler" : "directly", needs(POSTGRESQL, PGBOUNCER), () => {
    const database = new Database({ isEmpty: true });
    beforeAll(async () => {
      await database.start();
      database.sql(SHADOW);
    });
    afterAll(() => database.close());

    /** Has the database have a setting, and no tables. Returns the address at which it has. */
    const begun = async (setting?: string): Promise<string> => {
      database.sql("drop schema if exists pi_fleet cascade");
      database.configure("reset all");
      if (setting) database.configure(`set ${setting}`);
      return poolerOr();
    };
    /** Returns an address whose connections to the server are new. */
    const poolerOr = async (): Promise<string> => {
      if (!isPooled) return database.url;
      const pooler = new Pooler({ size: 2, database: database.name });
      await pooler.start(database.folder);
      onTestFinished(() => pooler.close());
      return pooler.url;
    };

    test("a role that may only read reads, and hears what to do where it is to write", async () => {
      const writer = sqlFleet(await begun(), "writer");
      await writer.fleet.migrate();
      const { epoch, end } = await taken(writer, "s");
      const lines = ["{}"];
      expect(await writer.fleet.append(batchOf({ id: "s", epoch, end }, lines))).toMatchObject({ kind: "committed" });
      await writer.fleet.close();
      database.configure("set default_transaction_read_only = on");
      const reader = sqlFleet(await poolerOr(), "reader");
      onTestFinished(() => reader.fleet.close());
      expect(await reader.fleet.look("s")).toMatchObject({ end: { entries: 1 } });
      const reason = expect.stringMatching(/may only read.*default_transaction_read_only = on.*set it to off/);
      expect(await reader.fleet.take("s", 0)).toEqual({ kind: "away", reason });
    });

    test.skipIf(isPooled)("limits of time that a role has are for other programs", async () => {
      const url = await begun("statement_timeout = '300ms'");
      database.configure("set default_transaction_isolation = serializable");
      const { fleet, connections } = sqlFleet(url, "one");
      onTestFinished(() => fleet.close());
      expect(await connections.run({ text: "select pg_sleep(0.6)" })).toMatchObject({ kind: "done" });
      const text = "select current_setting('transaction_isolation') as level";
      expect(await connections.read({ text })).toEqual([{ level: "read committed" }]);
    });

    test("what is written and read does not depend on settings", { timeout: 600_000 }, async () => {
      const sql = (text: string): string => database.sql(text);
      const expected = await used(await begun(), sql);
      expect(expected.failed).toEqual([]);
      const differing: string[] = [];
      for (const setting of SETTINGS) {
        const said = await used(await begun(setting), sql);
        const names = Object.keys(expected).filter((name) => !isDeepStrictEqual(said[name], expected[name]));
        const text = (name: string): string => `${name}: ${JSON.stringify(said[name])?.slice(0, 500)}`;
        if (names.length > 0) differing.push(`${setting}: ${names.map(text).join("; ")}`);
      }
      expect(differing).toEqual([]);
    });
  });

/** Writes to a new fleet from one machine, and reads there from another one. Returns what was said. */
async function used(url: string, sql: (text: string) => string): Promise<Json> {
  const machine = async (seed: number, more = {}) => {
    const fleet = sqlFleet(url, `machine ${seed}`);
    onTestFinished(() => fleet.fleet.close());
    const lives = new HereLives({ fleet: { ...fleet, ...more }, seed });
    return { fleet, lives, place: lives.place, wire: undefined as unknown as Wire };
  };
  const failed: string[] = [];
  const said: Json = {};
  const names = new Map<string, string>();
  const shown = (value: unknown): unknown =>
    JSON.parse(
      [...names]
        .reduce((text, [id, name]) => text.replaceAll(id, name), JSON.stringify(value ?? null))
        .replaceAll(
          /"[^"]*(?:_s\d|pi-[\w-]+)[^"]*"|"\w+-\w+-\w+-\w+-\w+"|"\d{4}-\d\d-\d\dT[\d:.]+Z"|"[0-9a-f]{12}"/g,
          '"…"',
        ),
    );
  const note = async (name: string, run: () => Promise<unknown>): Promise<void> => {
    try {
      said[name] = shown(await run());
    } catch (error) {
      failed.push(`${name}: ${(error as Error).message}`);
    }
  };
  const [one, two] = [await machine(1, { long: 4000, partBytes: 8000 }), await machine(2)];
  const verb = (words: string) => async () => {
    const { stdout, stderr, status } = await runHere(one.place, ["fleet", ...words.split(" ")], {
      variables: { PI_FLEET_URL: url },
    });
    if (stderr !== "") throw new Error(stderr);
    return [status, words.endsWith("--json") ? JSON.parse(stdout) : stdout];
  };
  await note("migrate", verb("migrate --json"));
  one.wire = await one.lives.start();
  const make = async (name: string, ...entries: Json[]): Promise<void> => {
    await one.wire.result("new_session", { cwd: one.place.cwd });
    await one.wire.result("append", { entries });
    const { sessionId } = await one.wire.result("get_state");
    names.set(sessionId, name);
  };
  await note("short", () =>
    make("s1", user(ODD), { ...assistant("answer"), message: { ...assistant("a").message, ...COSTLY } }),
  );
  await note("second append", async () => (await one.wire.result("append", { entries: [user("again zebra")] })).length);
  await note("long", () =>
    make(
      "s2",
      ...Array.from({ length: 40 }, (_, n) => (n % 2 ? assistant(`${ODD} ${n} ${"x".repeat(300)}`) : user(`${n}`))),
    ),
  );
  await note("facts", async () => {
    await expect.poll(() => sql("select count(*) from pi_fleet.behind"), { timeout: 30_000 }).toBe("0");
  });
  await note("removed", () => make("s3", user("removed")));
  await one.wire.result("new_session");
  const idOf = (name: string): string => [...names].find(([, one]) => one === name)?.[0] ?? "none";
  two.wire = await two.lives.start();
  await note("list", () => two.wire.result("list_sessions", { cwd: one.place.cwd, sort: "cost" }));
  await note("list by name", () => two.wire.result("list_sessions", { cwd: one.place.cwd, sort: "name" }));
  await note("list in pages", async () => {
    const first = await two.wire.result("list_sessions", { cwd: one.place.cwd, limit: 1 });
    return two.wire.result("list_sessions", { cwd: one.place.cwd, limit: 5, cursor: first.nextCursor });
  });
  await note("search", () => two.wire.result("search_sessions", { query: "zebra", cwd: one.place.cwd, limit: 3 }));
  await note("search for a part", () =>
    two.wire.result("search_sessions", { query: "rossin", cwd: one.place.cwd, limit: 3 }),
  );
  await note("usage", () => two.wire.result("get_usage", { groupBy: ["day"], cwd: one.place.cwd }));
  for (const name of ["s1", "s2"])
    await note(`read ${name}`, async () => {
      await two.wire.result("switch_session", { sessionId: idOf(name) });
      return (await two.wire.result("get_entries")).entries.map(({ message }: Json) => message.content);
    });
  await note("write", async () => {
    await one.wire.result("new_session");
    await two.wire.result("switch_session", { sessionId: idOf("s1") });
    return (await two.wire.result("append", { entries: [user("from the other")] })).length;
  });
  await two.wire.result("new_session");
  // It lets go of the session beside everything else.
  await expect.poll(() => sql("select count(holder) from pi_fleet.session"), { timeout: 30_000 }).toBe("0");
  await note("delete", () => two.wire.result("delete_session", { sessionId: idOf("s3") }));
  await note("restore", () => two.wire.result("restore_session", { sessionId: idOf("s3") }));
  await note("delete again", () => two.wire.result("delete_session", { sessionId: idOf("s3") }));
  await note("status", async () => {
    const [status, { storedBytes, held, address, ...rest }] = (await verb("status --json")()) as [number, Json];
    return [status, storedBytes > 0, held < 2, address !== "", rest];
  });
  await note("idle", verb("prune --until now --json"));
  await note("prune", verb("prune --older-than now --apply --yes --json"));
  await note("verify", verb("verify --json"));
  const out = join(temporaryFolder(), "out");
  await note("export", verb(`export ${out} --json`));
  rmSync(out, { recursive: true, force: true });
  await Promise.all([one, two].map(({ lives }) => lives.end()));
  return { failed, ...said };
}
