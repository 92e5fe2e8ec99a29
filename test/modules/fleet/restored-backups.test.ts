/**
 * A machine whose database was put back to an earlier state: the missing lines are reported with numbers, and uploaded
 * again at once or when a session is opened. Over a real PostgreSQL.
 *
 * @module-tag system
 */

import { readFileSync, writeFileSync } from "node:fs";
import { beforeAll, describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import type { Json } from "../../support/server.ts";
import { fleetSuite, instead, newSession, play } from "./support/sql-machines.ts";

/** SQL functions that save and restore all tables of the fleet; leases have run out long before. */
const BACKUP = `create function each(what text) returns void language plpgsql as $$
    declare one text; begin
      for one in select tablename from pg_tables where schemaname = 'pi_fleet' and tablename <> 'meta'
        order by tablename <> 'session' loop execute replace(what, 'ONE', one); end loop;
    end $$;
  create function keep() returns void language sql as $$
    drop schema if exists kept cascade; create schema kept;
    select each('create table kept.ONE as table pi_fleet.ONE') $$;
  create function put_back() returns void language sql as $$
    select each('delete from pi_fleet.ONE'), each('insert into pi_fleet.ONE overriding system value select * from kept.ONE');
    update pi_fleet.session set holder = null, lease_until = null $$`;

/** SQL that says what users said in a session, in the order of its lines. */
const said = (name: string): string =>
  `select coalesce(string_agg(line #>> '{message, content}', ' ' order by seq), '-') from
    (select seq, convert_from(line, 'utf8')::jsonb as line from pi_fleet.entry where session_id = '{${name}}') as lines
    where line #>> '{message, role}' = 'user'`.replaceAll(/\s+/g, " ");

/** Two sessions whose beginning is in the backup, and one that came after it; each then misses two entries. */
const MADE = `one make second; db select keep(); one write [second] b1; one write [second] b2; one write a1; one write a2
  one make third; one end; one fleet verify = status:0 ~ has every entry that was acknowledged`;
const RESTORED = `${MADE}; db select put_back()`;
const ALL_BACK = `db ${said("s")} => text a1 a2; one fleet verify = status:0`;

const SCENES: Readonly<Record<string, string>> = {
  "is recognised exactly, by looking, which gives nothing back, and fleet restore gives all of it back": `
    ${RESTORED}; two write [second] others; one fleet verify = status:3 ~ 3 sessions lack entries in the database
    one tells verify = lacking.length:3 lacking.@s.entries:2 lacking.@second.entries:2 lacking.@third.entries:2
    one doctor = lacking:3; db ${said("s")} => text; db ${said("second")} => second others; db ${said("third")} => -
    one tells restore = sessions.@s.outcome:given sessions.@second.outcome:branched sessions.@third.outcome:given
    db ${said("second")} => second others b1 b2; db ${said("third")} => third; ${ALL_BACK}
    one tells restore = sessions.length:0; one start one; one switch_session [second]; one append b3
    one get_state [second] = diagnostics.length:1 diagnostics.0.kind:diverged
    one hears lost entries that were acknowledged here`,
  "gives a session back as it is opened, and says how many entries that were": `
    ${RESTORED}; one start one; one switch_session; until ${said("s")} => text a1 a2; one hears restored_entries
    one hears the last 2 entries; one switch_session [third]; until ${said("third")} => third; one end
    one fleet verify = status:3; one fleet restore = status:0; ${ALL_BACK}`,
  "is said also where the file of a session is gone, and nothing is begun in its place": `
    ${RESTORED}; one gone [third]; one tells restore = sessions.@third.outcome:refused ~ Its file is gone
    db ${said("s")} => text a1 a2; one fleet verify = status:3`,
  "is given back without the records of the machine, too, and sessions that are nowhere else are named": `
    ${RESTORED}; one forgets; one fleet verify = status:0 ~ as far as the records of this machine go
    one fleet restore = status:1 ~ on this machine alone. fleet import; db ${said("s")} => text a1 a2; db ${said("third")} => -
    one brings = status:0; db ${said("third")} => third; one fleet restore = status:0`,
  "that nobody can give back any more is said with the number, until a person removes the record": `
    ${RESTORED}; one reverts [third]; one tells restore = sessions.@third.outcome:refused ~ has 2 of the entries
    one fleet verify = status:3; one obeys; ${ALL_BACK}`,
  "is recognised of sessions that fleet import brought in, wherever their files are, and restore gives them back": `
    db select keep(); one imports; one fleet verify = status:0 ~ has every entry that was acknowledged
    db select put_back(); one fleet verify = status:3 ~ 2 sessions lack entries in the database
    one fleet restore = status:0 ~ 2 sessions were given; db select count(*) from pi_fleet.entry => 8
    one fleet verify = status:0 ~ has every entry that was acknowledged`,
  "where others wrote more than was lost, push and doctor know it, too": `
    ${RESTORED}; two write [second] x1; two write [second] x2; two write [second] x3; one doctor = lacking:3
    one tells push = sessions.@second.outcome:branched; db ${said("second")} => second x1 x2 x3 b1 b2; ${ALL_BACK}`,
};

describe("a restored backup of a fleet", needs(POSTGRESQL), () => {
  const suite = fleetSuite();
  const known = () => ({ ...suite.connect(), shown: suite.url });

  beforeAll(() => void suite.sql(BACKUP));

  test.each(Object.entries(SCENES))("%s", (_, script) => play(suite, script, { fleet: known() }));

  test.each([
    ["the database is away by then", undefined],
    ["the copy still has them", "select put_back()"],
  ])("is not called lost for good after an upload where %s", async (_, change) => {
    const { lives, wire, place } = await suite.machine({ fleet: known() });
    const sessionId = await newSession(wire, [user("a1")]);
    suite.sql("select keep()");
    await wire.result("append", { entries: [user("a2")] });
    await lives.end();
    suite.sql("select put_back()");
    const fleet = known();
    const again = suite.lives({ fleet, place });
    await again.start();
    const whole = said("s").replace("{s}", sessionId);
    instead(fleet.adminQueries, "rowsOf", (rowsOf) => async (...ids) => {
      if (suite.sql(whole) !== "a1 a2") return rowsOf(...ids);
      if (change === undefined) throw new Failure("storage_failed", "test: away", { fleet: true });
      suite.sql(change);
      return rowsOf(...ids);
    });
    const pushed = await again.getAdmin().push();
    const message = expect.stringMatching(/may still lack .* Run this again/);
    expect(pushed).toMatchObject([{ sessionId, outcome: "refused", message }]);
  });

  test("is known at another address of the store, and lacks nothing of what the host repeated elsewhere once the copy has that", async () => {
    const { lives, wire, place } = await suite.machine({ fleet: known() });
    // The machine meets the store.
    await suite.verb("verify", place);
    const sessionId = await newSession(wire, [user("a1")]);
    suite.sql("select keep()");
    const mine = { entries: [user("a2")], idempotencyKey: "k" };
    await wire.result("append", mine);
    await lives.end();
    suite.sql("select put_back()");
    expect((await suite.verb("verify", place, `${suite.url}&application_name=other`)).status).toBe(3);
    const other = await suite.machine();
    await other.wire.result("switch_session", { sessionId });
    await other.wire.result("append", mine);
    await other.lives.end();
    expect((await suite.runVerb("restore", place)).refused).toBe(0);
    expect((await suite.verb("verify", place)).status).toBe(0);
    expect(suite.sql(said("s").replace("{s}", sessionId))).toBe("a1 a2");
  });

  /** A machine whose disk lost what it had acknowledged after a backup, and another one that still has that. */
  async function makeLoss(appends: readonly Json[]) {
    const { lives, wire, place } = await suite.machine({ fleet: known() });
    const sessionId = await newSession(wire, [user("a1")]);
    const { sessionFile } = await wire.result("get_state");
    suite.sql("select keep()");
    for (const one of appends) await wire.result("append", one);
    await lives.end();
    writeFileSync(sessionFile, `${readFileSync(sessionFile, "utf8").split("\n").slice(0, 2).join("\n")}\n`);
    const other = await suite.machine({ fleet: known() });
    await other.wire.result("switch_session", { sessionId });
    await other.lives.end();
    suite.sql("select put_back()");
    const texts = () => suite.sql(said("s").replace("{s}", sessionId));
    const lacking = async () => (await suite.runVerb("verify", place)).lacking.map(({ entries }: Json) => entries);
    return { sessionId, place, other: other.place, texts, lacking };
  }

  const named = (id: string, text: string): Json => ({ entries: [{ ...user(text), id }] });

  async function append({ sessionId }: { sessionId: string }, ...appends: readonly Json[]): Promise<void> {
    const { lives, wire } = await suite.machine();
    await wire.result("switch_session", { sessionId });
    for (const one of appends) await wire.result("append", one);
    await lives.end();
  }

  test.each([[true], [false]])(
    "lacks nothing that another machine gave back with other parents (opened before: %s)",
    async (isOpened) => {
      const b = { ...named("b", "b1"), idempotencyKey: "k" };
      const loss = await makeLoss([b, named("c", "c1")]);
      const { sessionId, place, other, texts, lacking } = loss;
      await append(loss, { ...b, entries: [user("b1")] });
      if (isOpened) {
        const opened = suite.lives({ fleet: known(), place });
        const wire = await opened.start();
        await wire.result("switch_session", { sessionId });
        await wire.result("append", { entries: [user("later")] });
        await opened.end();
      }
      expect(await lacking()).toEqual([1]);
      expect((await suite.runVerb("restore", other)).refused).toBe(0);
      expect(texts().replace(" later", "")).toBe("a1 b1 c1");
      expect(await lacking()).toEqual([]);
      expect((await suite.runVerb("push", place)).refused).toBe(0);
    },
  );

  test.each([[true], [false]])(
    "lacks the entry whose id others have, whatever came after it, until recover adds that (opened before: %s)",
    async (isOpened) => {
      const loss = await makeLoss([named("b", "b1"), named("c", "c1")]);
      const { sessionId, place, other, texts, lacking } = loss;
      await append(loss, named("b", "others"));
      if (isOpened) {
        const opened = suite.lives({ fleet: known(), place });
        await (await opened.start()).result("switch_session", { sessionId });
        await opened.end();
      }
      expect(await lacking()).toEqual([2]);
      expect((await suite.runVerb("restore", other)).refused).toBe(0);
      expect([texts(), await lacking()]).toEqual(["a1 others c1", [1]]);
      const lives = suite.lives({ fleet: known(), place: other });
      const wire = await lives.start();
      await wire.result("switch_session", { sessionId });
      const { kept } = await wire.result("list_kept");
      await wire.result("recover_kept", { keptAt: kept[0].keptAt });
      expect([texts(), await lacking()]).toEqual(["a1 others c1 b1", []]);
    },
  );

  test("lacks exactly the entries that nobody has repeated elsewhere", async () => {
    const [b, c] = [named("b", "b1"), named("c", "c1")].map((one, n) => ({ ...one, idempotencyKey: `k${n}` }));
    const loss = await makeLoss([b, c]);
    const repeat = { entries: [user("c1")], idempotencyKey: "k1" };
    await append(loss, repeat);
    expect(await loss.lacking()).toEqual([1]);
    const again = suite.lives({ fleet: known(), place: loss.place });
    const wire = await again.start();
    await wire.result("switch_session", { sessionId: loss.sessionId });
    await wire.result("append", repeat);
    await again.end();
    expect(await loss.lacking()).toEqual([1]);
    await append(loss, { entries: [user("b1")], idempotencyKey: "k0" });
    expect(await loss.lacking()).toEqual([]);
  });
});
