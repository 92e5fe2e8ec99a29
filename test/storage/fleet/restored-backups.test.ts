/**
 * A machine whose database was put back to an earlier state: what it lacks is said with numbers, and given back at once or
 * when a session is opened. Over a real PostgreSQL.
 *
 * @module-tag system
 */

import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { beforeEach, describe, expect, test } from "vitest";
import { suiteServer } from "../../support/database.ts";
import { assistant, user } from "../../support/drafts.ts";
import { fleetSuite, newSession } from "../../support/fleet-suite.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import type { Json, Place, Wire } from "../../support/server.ts";
import { runHere } from "../../support/verbs.ts";

describe("a restored backup of a fleet", needs(POSTGRESQL), () => {
  const database = suiteServer();
  const { lives, verb, asked, empty, column } = fleetSuite(database);
  const sql = (text: string): string => database.server.sql(text);
  const tables = (): string[] =>
    column("select tablename from pg_tables where schemaname = 'pi_fleet' and tablename <> 'meta'");
  const keepBackup = (): void => {
    sql("drop schema if exists kept cascade; create schema kept");
    for (const table of tables()) sql(`create table kept.${table} as table pi_fleet.${table}`);
  };
  const restoreBackup = (): void => {
    sql(
      `truncate ${tables()
        .map((table) => `pi_fleet.${table}`)
        .join(", ")} cascade`,
    );
    for (const table of ["session", ...tables().filter((one) => one !== "session")])
      sql(`insert into pi_fleet.${table} overriding system value select * from kept.${table}`);
    // Leases have run out long before.
    sql("update pi_fleet.session set holder = null, lease_until = null");
  };
  const say = (wire: Wire, text: string): Promise<Json> =>
    wire.result("append", { entries: [user(text), assistant("ok")] });
  const textsOf = (id: string): string[] =>
    column(`select convert_from(line, 'UTF8') from pi_fleet.entry where session_id = '${id}' order by seq`)
      .map((line) => JSON.parse(line))
      .filter(({ message }) => message?.role === "user")
      .map(({ message }) => message.content.at(-1).text ?? message.content);
  const begun = (place?: Place) => lives({ place, fleet: { ...database.connect(), shown: database.server.url } });
  /** A machine with two sessions of which the backup has the beginning, and one that came after it. */
  const made = async () => {
    const machine = begun();
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
    return { place: machine.place, first, second, third, thirdFile };
  };

  beforeEach(empty);

  test("is recognised exactly: verify ends with 3, doctor and get_health say it, and restore gives all of it back", async () => {
    const { place, first, second, third } = await made();
    const sound = await verb(place, "verify");
    expect([sound.status, sound.stdout]).toEqual([0, expect.stringContaining("has what was acknowledged")]);
    restoreBackup();
    // Another machine goes on with one of them meanwhile.
    const other = lives();
    const there = await other.start();
    await there.result("switch_session", { sessionId: second });
    await say(there, "others");
    await other.end();
    const verified = await verb(place, "verify");
    expect(verified.status).toBe(3);
    expect(verified.stdout).toContain("3 sessions lack entries in the database that were acknowledged here");
    const { lacking } = await asked(place, "verify");
    expect(lacking.map(({ sessionId, entries }: Json) => [sessionId, entries]).sort()).toEqual(
      [
        [first, 2],
        [second, 2],
        [third, 2],
      ].sort(),
    );
    const doctor = await runHere(place, ["doctor"], { variables: { PI_FLEET_URL: database.server.url }, hashes: true });
    expect(doctor.stdout).toContain("it has lost entries of 3 sessions that were acknowledged here");
    // Nothing was given back by looking.
    expect([textsOf(first), textsOf(second), textsOf(third)]).toEqual([["a1"], ["b1", "others"], []]);
    const restored = await asked(place, "restore");
    expect(restored.sessions.map(({ sessionId, outcome }: Json) => [sessionId, outcome]).sort()).toEqual(
      [
        [first, "given"],
        [second, "branched"],
        [third, "given"],
      ].sort(),
    );
    expect([textsOf(first), textsOf(second), textsOf(third)]).toEqual([["a1", "a2"], ["b1", "others", "b2"], ["c1"]]);
    const again = await verb(place, "verify");
    expect([again.status, (await asked(place, "restore")).sessions]).toEqual([0, []]);
    // The host hears of the branch when it opens the session.
    const later = begun(place);
    const wire = await later.start(["--session", second]);
    await wire.result("append", { entries: [user("b3")] });
    const { diagnostics } = await wire.result("get_state");
    expect(diagnostics).toMatchObject([
      { kind: "diverged", reason: expect.stringContaining("lost entries that were acknowledged here") },
    ]);
    await later.end();
  });

  test("gives a session back as it is opened, and says how many entries that were", async () => {
    const { place, first, third } = await made();
    const later = begun(place);
    restoreBackup();
    const wire = await later.start(["--session", first]);
    await expect.poll(() => textsOf(first), { timeout: 20_000 }).toEqual(["a1", "a2"]);
    const diagnostics = async (): Promise<Json> => (await wire.result("get_state")).diagnostics;
    await expect
      .poll(diagnostics, { timeout: 20_000 })
      .toMatchObject([{ kind: "restored_entries", reason: expect.stringContaining("the last 2 entries") }]);
    await wire.result("switch_session", { sessionId: third });
    await expect.poll(() => textsOf(third), { timeout: 20_000 }).toEqual(["c1"]);
    await later.end();
    // The one that nobody opened is left.
    expect((await verb(place, "verify")).status).toBe(3);
    expect((await verb(place, "restore")).status).toBe(0);
    expect((await verb(place, "verify")).status).toBe(0);
  });

  test("is said also where the file of a session is gone, and nothing is begun in its place", async () => {
    const { place, first, third, thirdFile } = await made();
    restoreBackup();
    rmSync(thirdFile);
    const { sessions } = await asked(place, "restore");
    expect(sessions.find(({ sessionId }: Json) => sessionId === third)).toMatchObject({
      outcome: "refused",
      message: expect.stringContaining("Its file is gone"),
    });
    expect([textsOf(first), (await verb(place, "verify")).status]).toEqual([["a1", "a2"], 3]);
  });

  test("that nobody can give back any more is said with the number, until a person removes the record", async () => {
    const { place, third, thirdFile } = await made();
    // The machine was put back to an earlier state, too.
    const begun = readFileSync(thirdFile, "utf8").split("\n")[0];
    restoreBackup();
    writeFileSync(thirdFile, `${begun}\n`);
    const { sessions } = await asked(place, "restore");
    const { outcome, message } = sessions.find(({ sessionId }: Json) => sessionId === third);
    expect([outcome, message]).toEqual(["refused", expect.stringContaining("has 2 of the entries")]);
    expect((await verb(place, "verify")).status).toBe(3);
    rmSync(/remove (\S+) to/.exec(message)?.[1] as string);
    expect((await verb(place, "verify")).status).toBe(0);
  });

  test("where others wrote more than was lost, push and doctor know it, too", async () => {
    const { place, second } = await made();
    restoreBackup();
    const there = await lives().start();
    await there.result("switch_session", { sessionId: second });
    for (const text of ["x1", "x2", "x3"]) await say(there, text);
    await there.result("shutdown");
    const doctor = await runHere(place, ["doctor", "--json"], {
      variables: { PI_FLEET_URL: database.server.url },
      hashes: true,
    });
    expect(JSON.parse(doctor.stdout).fleet.lacking).toBe(3);
    sql("update pi_fleet.session set holder = null, lease_until = null");
    const { sessions } = await asked(place, "push");
    expect(sessions.find(({ sessionId }: Json) => sessionId === second)).toMatchObject({ outcome: "branched" });
    expect(textsOf(second)).toEqual(["b1", "x1", "x2", "x3", "b2"]);
    expect((await verb(place, "verify")).status).toBe(0);
  });

  test("what the host repeated under its key elsewhere lacks nothing once the copy has that", async () => {
    const machine = begun();
    const wire = await machine.start();
    const first = await newSession(wire, [user("a1"), assistant("ok")]);
    keepBackup();
    const mine = { entries: [user("a2")], idempotencyKey: "k" };
    await wire.result("append", mine);
    await machine.end();
    restoreBackup();
    const other = lives();
    const there = await other.start();
    await there.result("switch_session", { sessionId: first });
    await there.result("append", mine);
    await other.end();
    expect((await asked(machine.place, "restore")).refused).toBe(0);
    expect([(await verb(machine.place, "verify")).status, textsOf(first)]).toEqual([0, ["a1", "a2"]]);
  });

  test("is known at another address of the store, too", async () => {
    const machine = begun();
    const { place } = machine;
    // The machine meets the store.
    await verb(place, "verify");
    const wire = await machine.start();
    await newSession(wire, [user("a1")]);
    keepBackup();
    await say(wire, "a2");
    await machine.end();
    restoreBackup();
    const run = await runHere(place, ["fleet", "verify"], {
      variables: { PI_FLEET_URL: `${database.server.url}&application_name=other` },
      hashes: true,
    });
    expect(run.status).toBe(3);
  });
});
