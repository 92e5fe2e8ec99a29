/**
 * A machine whose database was put back to an earlier state: what it lacks is said with numbers, and given back at once or
 * when a session is opened. Over a real PostgreSQL.
 *
 * @module-tag system
 */

import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { assistant, user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import type { Json, Place, Wire } from "../../support/server.ts";
import { fleetSuite, newSession } from "../../support/sql-machines.ts";
import { runHere } from "../../support/verbs.ts";

describe("a restored backup of a fleet", needs(POSTGRESQL), () => {
  const suite = fleetSuite();
  const sql = (text: string): string => suite.sql(text);
  const ALL = "select tablename from pg_tables where schemaname = 'pi_fleet' and tablename <> 'meta'";
  const tables = (): string[] => suite.column(ALL);
  const keepBackup = (): void => {
    sql("drop schema if exists kept cascade; create schema kept");
    for (const table of tables()) sql(`create table kept.${table} as table pi_fleet.${table}`);
  };
  const restoreBackup = (): void => {
    sql("truncate pi_fleet.session cascade");
    for (const table of new Set(["session", ...tables()]))
      sql(
        `delete from pi_fleet.${table}; insert into pi_fleet.${table} overriding system value select * from kept.${table}`,
      );
    // Leases have run out long before.
    sql("update pi_fleet.session set holder = null, lease_until = null");
  };
  const saying = (text: string): Json => ({ entries: [user(text), assistant("ok")] });
  const say = (wire: Wire, text: string): Promise<Json> => wire.result("append", saying(text));
  const textsOf = (id: string): string[] =>
    suite
      .column(`select convert_from(line, 'UTF8') from pi_fleet.entry where session_id = '${id}' order by seq`)
      .map((line) => JSON.parse(line))
      .filter(({ message }) => message?.role === "user")
      .map(({ message }) => message.content.at(-1).text ?? message.content);
  const begun = (place?: Place) => suite.lives({ place, fleet: { ...suite.connect(), shown: suite.url } });
  /** A machine with two sessions of which the backup has the beginning, and one that came after it; the backup is back. */
  const restored = async () => {
    const machine = begun();
    const { place } = machine;
    const wire = await machine.start();
    const first = await newSession(wire, [user("a1"), assistant("ok")]);
    const second = await newSession(wire, [user("b1"), assistant("ok")]);
    keepBackup();
    await say(wire, "b2");
    await wire.result("switch_session", { sessionId: first });
    await say(wire, "a2");
    const third = await newSession(wire, [user("c1"), assistant("ok")]);
    const thirdFile: string = (await wire.result("get_state")).sessionFile;
    await machine.end();
    const sound = await suite.verb("verify", place);
    expect([sound.status, sound.stdout]).toEqual([0, expect.stringContaining("has what was acknowledged")]);
    restoreBackup();
    /** Has a verb say what it has done, or found, of each session. */
    const outcomes = async (verb: "restore" | "push"): Promise<Map<string, Json>> =>
      new Map((await suite.told(verb, place)).sessions.map((session: Json) => [session.sessionId, session]));
    const texts = () => [first, second, third].map(textsOf);
    return { place, first, second, third, thirdFile, outcomes, texts };
  };
  const expectVerified = async (place: Place, status: 0 | 3): Promise<string> => {
    const run = await suite.verb("verify", place);
    expect(run.status).toBe(status);
    return run.stdout;
  };
  /** Has another machine go on with a session. */
  const goOn = async (sessionId: string, ...requests: Json[]): Promise<void> => {
    const other = suite.lives();
    const there = await other.start();
    await there.result("switch_session", { sessionId });
    for (const request of requests) await there.result("append", request);
    await other.end();
  };
  const doctor = async (place: Place, ...words: string[]): Promise<string> =>
    (await runHere(place, ["doctor", ...words], { variables: { PI_FLEET_URL: suite.url }, hashes: true })).stdout;

  test("is recognised exactly: verify ends with 3, doctor and get_health say it, and restore gives all of it back", async () => {
    const { place, first, second, third, outcomes, texts } = await restored();
    await goOn(second, saying("others"));
    const about = "3 sessions lack entries in the database that were acknowledged here";
    expect(await expectVerified(place, 3)).toContain(about);
    const { lacking } = await suite.told("verify", place);
    const lost = lacking.map(({ sessionId, entries }: Json) => [sessionId, entries]);
    expect(new Map(lost)).toEqual(new Map([first, second, third].map((id) => [id, 2])));
    expect(await doctor(place)).toContain("it has lost entries of 3 sessions that were acknowledged here");
    // Nothing was given back by looking.
    expect(texts()).toEqual([["a1"], ["b1", "others"], []]);
    const given = await outcomes("restore");
    expect([first, second, third].map((id) => given.get(id)?.outcome)).toEqual(["given", "branched", "given"]);
    expect(texts()).toEqual([["a1", "a2"], ["b1", "others", "b2"], ["c1"]]);
    await expectVerified(place, 0);
    expect((await outcomes("restore")).size).toBe(0);
    // The host hears of the branch when it opens the session.
    const later = begun(place);
    const wire = await later.start(["--session", second]);
    await wire.result("append", { entries: [user("b3")] });
    const reason = expect.stringContaining("lost entries that were acknowledged here");
    expect((await wire.result("get_state")).diagnostics).toMatchObject([{ kind: "diverged", reason }]);
    await later.end();
  });

  test("gives a session back as it is opened, and says how many entries that were", async () => {
    const { place, first, third } = await restored();
    const later = begun(place);
    const wire = await later.start(["--session", first]);
    const soon = { timeout: 20_000 };
    await expect.poll(() => textsOf(first), soon).toEqual(["a1", "a2"]);
    const diagnostics = async (): Promise<Json> => (await wire.result("get_state")).diagnostics;
    const reason = expect.stringContaining("the last 2 entries");
    await expect.poll(diagnostics, soon).toMatchObject([{ kind: "restored_entries", reason }]);
    await wire.result("switch_session", { sessionId: third });
    await expect.poll(() => textsOf(third), soon).toEqual(["c1"]);
    await later.end();
    // The one that nobody opened is left.
    await expectVerified(place, 3);
    expect((await suite.verb("restore", place)).status).toBe(0);
    await expectVerified(place, 0);
  });

  test("is said also where the file of a session is gone, and nothing is begun in its place", async () => {
    const { place, first, third, thirdFile, outcomes } = await restored();
    rmSync(thirdFile);
    const message = expect.stringContaining("Its file is gone");
    expect((await outcomes("restore")).get(third)).toMatchObject({ outcome: "refused", message });
    expect(textsOf(first)).toEqual(["a1", "a2"]);
    await expectVerified(place, 3);
  });

  test("that nobody can give back any more is said with the number, until a person removes the record", async () => {
    const { place, third, thirdFile, outcomes } = await restored();
    // The machine was put back to an earlier state, too.
    writeFileSync(thirdFile, `${readFileSync(thirdFile, "utf8").split("\n")[0]}\n`);
    const { outcome, message } = (await outcomes("restore")).get(third);
    expect([outcome, message]).toEqual(["refused", expect.stringContaining("has 2 of the entries")]);
    await expectVerified(place, 3);
    rmSync(/remove (\S+) to/.exec(message)?.[1] as string);
    await expectVerified(place, 0);
  });

  test("where others wrote more than was lost, push and doctor know it, too", async () => {
    const { place, second, outcomes } = await restored();
    await goOn(second, ...["x1", "x2", "x3"].map(saying));
    expect(JSON.parse(await doctor(place, "--json")).fleet.lacking).toBe(3);
    sql("update pi_fleet.session set holder = null, lease_until = null");
    expect((await outcomes("push")).get(second)).toMatchObject({ outcome: "branched" });
    expect(textsOf(second)).toEqual(["b1", "x1", "x2", "x3", "b2"]);
    await expectVerified(place, 0);
  });

  test.each([false, true])(
    "is known at another address of the store, and lacks nothing of what the host repeated elsewhere once the copy has that (repeated: %s)",
    async (isRepeated) => {
      const machine = begun();
      const { place } = machine;
      // The machine meets the store.
      await suite.verb("verify", place);
      const wire = await machine.start();
      const first = await newSession(wire, [user("a1"), assistant("ok")]);
      keepBackup();
      const mine = { entries: [user("a2")], idempotencyKey: "k" };
      await wire.result("append", mine);
      await machine.end();
      restoreBackup();
      if (isRepeated) {
        await goOn(first, mine);
        expect((await suite.told("restore", place)).refused).toBe(0);
        await expectVerified(place, 0);
        expect(textsOf(first)).toEqual(["a1", "a2"]);
      } else expect((await suite.verb("verify", place, `${suite.url}&application_name=other`)).status).toBe(3);
    },
  );
});
