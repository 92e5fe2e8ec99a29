/**
 * Settings that a role or a database has for other programs: the fleet writes and reads the same under all of them,
 * directly and behind a pooler, where a setting for later statements is impossible.
 *
 * @module-tag sweep
 */

import { beforeAll, describe, expect, test } from "vitest";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { suiteDatabase } from "./support/database.ts";
import { PGBOUNCER } from "./support/pooler.ts";
import { fleetSuite, play } from "./support/sql-machines.ts";

/** Text that a literal of SQL or of a `bytea` might take for something else. */
const ODD = String.raw`zebra\x0acrossing 'it''s' \\101 é☃ $1`;

/** One machine writes, short and long, and another reads, finds, sums, writes, deletes and removes. */
const USE = `one write ${ODD}; one fill ${ODD}; one pay 12345678 0.30000000000000004; one name ${ODD}
  one make removed; two lists removed,s; two pages removed s
  two shows = messageCount:44 cwd:cwd; two reads ${ODD}; two reads ${ODD} 39; two reads [removed] answer to removed
  two search_sessions zebra = hits.length:41 limited:undefined; two search_sessions rossin = hits.length:41
  two get_usage = totals.cost:0.30000000000000004 totals.tokens.input:12345678; two write from the other; one reads from the other
  two delete_session [removed]; two restore_session [removed]; two delete_session [removed]; one lists s
  two tells status = sessions:1 deleted.sessions:1; two tells prune --until now = idle:1
  two tells prune --older-than now --apply --yes = sessions:1 entries:2; row [removed] state = 2; two verify
  two tells verify = faults.length:0 sessions:1 entries:46
  two tells export {theirs}/out = files.length:1 files.0.outcome:new`;

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
    const suite = fleetSuite(suiteDatabase({ isEmpty: true }), { isPooled, keepsRows: true });
    beforeAll(() => void suite.sql(SHADOW));

    /** Has the database have settings for those who connect from now on. */
    const set = (...settings: string[]): void => {
      const { server } = suite.database;
      server.configure("reset all");
      for (const setting of settings) server.configure(`set ${setting}`);
      suite.pooler?.turn(server.folder);
    };
    /** Has it have no tables before that. */
    const begin = async (...settings: string[]): Promise<void> => {
      suite.sql("drop schema if exists pi_fleet cascade");
      set(...settings);
      expect(await suite.verb("migrate")).toMatchObject({ status: 0, stderr: "" });
    };

    test("a role that may only read reads, and hears what to do where it is to write", async () => {
      await begin();
      const { sessionId } = await suite.make(await suite.machine(), "text");
      set("default_transaction_read_only = on");
      const { fleet } = suite.open("reader");
      expect(await fleet.look(sessionId)).toMatchObject({ end: { entries: 2 } });
      const reason = expect.stringMatching(/may only read.*default_transaction_read_only = on.*set it to off/);
      expect(await fleet.take(sessionId, 0)).toEqual({ kind: "away", reason });
    });

    test.skipIf(isPooled)("limits of time that a role has are for other programs", async () => {
      await begin("statement_timeout = '300ms'", "default_transaction_isolation = serializable");
      const { connections } = suite.open("one");
      expect(await connections.run({ text: "select pg_sleep(0.6)" })).toMatchObject({ kind: "done" });
      const text = "select current_setting('transaction_isolation') as level";
      expect(await connections.read({ text })).toEqual([{ level: "read committed" }]);
    });

    test.each([...SETTINGS, "client_min_messages = notice"])(
      "what is written and read does not depend on %s",
      async (setting) => {
        await begin(setting);
        await play(suite, USE, { fleet: { ...suite.connect(), long: 4000, partBytes: 8000 } });
      },
    );
  });
