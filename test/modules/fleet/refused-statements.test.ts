/**
 * Statements that the database refuses. A refusal of the process (a password, a right, a database or tables that are others
 * by now) says nothing about the database's sessions, so no whole session is changed on this machine alone. A refusal of a
 * value is about a session or lines that the database cannot hold: the commit fails, and this is no outage, and facts are
 * left out rather than keep lines away. Also refusals of a real PostgreSQL until someone changes its roles, databases,
 * encodings or tables.
 *
 * @module-tag system
 */

import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import type { LateFacts } from "../../../src/core/ports/fleet.ts";
import { connectFleet } from "../../../src/modules/fleet/connect.ts";
import type { SqlAnswer } from "../../../src/modules/fleet/postgres/connections.ts";
import { Outage } from "../../../src/modules/fleet/replica/outage.ts";
import { user } from "../../support/drafts.ts";
import { fileText, headerText, id, userText } from "../../support/lines.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL, urlOf } from "../../support/postgres.ts";
import { Random, range } from "../../support/random.ts";
import type { Json, Wire } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { AWAY, fleetSuite, meddle } from "./support/sql-machines.ts";

const OF_PROCESSES = ["28P01", "28000", "3D000", "42501", "3F000", "42P01", "42703", "refused"];
const OF_VALUES = ["22003", "23514", "54000", "unmade"];
/** Statements with lines, those with words, those that begin a session, and those that have to do with one. */
const LINES = /into pi_fleet\.(?:entry|pack)\b/;
const WORDS = /into pi_fleet\.said\b/;
const HEADERS = /into pi_fleet\.session\b/;
const SESSIONS = /pi_fleet\.session\b/;
const ALL = /(?:)/;
const LASTING = { name: "storage_failed", retryable: false };

const refusal = (code: string): SqlAnswer => ({ kind: "failed", code, reason: `test: ${code}` });

describe("what the database refuses", needs(POSTGRESQL), () => {
  const suite = fleetSuite();

  acrossTiers(describe, ["jsonl", "v2"])("with copies as %s", (kind) => {
    /** A machine with a file from elsewhere, and a function that changes the database's answers. */
    const machine = async ({ alone = false } = {}) => {
      const fleet = suite.connect();
      const outage = new Outage(fleet.fleet, 0, () => performance.now());
      const began = vi.spyOn(outage, "begin");
      const one = await suite.machine({
        fleet: { ...fleet, long: 4096, ...(alone ? { outage } : {}) },
        args: ["--store", kind],
      });
      const path = join(one.place.home, "carried.jsonl");
      writeFileSync(path, fileText(headerText(), userText(id(0), null)));
      let end = (): void => {};
      /** Has statements be answered so, from now on none but these. */
      const answer = (given: SqlAnswer, which = ALL, whose = ""): void => {
        end();
        end = meddle(fleet, (text, _, values) => (which.test(text) && values.includes(whose) ? given : undefined));
      };
      return { ...one, path, outage, began, answer, heal: () => end() };
    };
    const row = (sessionId: string): string => suite.row(sessionId, "state, archived");
    const append = (wire: Wire, text: string): Promise<Json> => wire.result("append", { entries: [user(text)] });
    const begun = async (wire: Wire, text: string): Promise<string> => {
      await wire.result("new_session");
      await append(wire, text);
      return (await wire.result("get_state")).sessionId;
    };
    const said = async (wire: Wire): Promise<string> =>
      (await wire.result("get_entries")).entries
        .map(({ message }: Json) => message?.content.slice(0, 9))
        .join(" ")
        .trim();

    test.each([...OF_PROCESSES.map((code) => [code, refusal(code)] as const), ["away", AWAY] as const])(
      "nothing is done on this machine alone, and the reason is told (%s)",
      async (code, given) => {
        const { wire, answer, heal, path, place, ...one } = await machine();
        const { sessionId, sessionFile: sessionPath } = await suite.make({ wire, place, ...one }, "one");
        const refuses = async (...requests: [string, Json][]): Promise<void> => {
          answer(given);
          for (const [method, params] of requests) {
            const { data, message } = await wire.failure(method, params);
            expect([method, data.name, data.retryable]).toEqual([method, "storage_failed", code === "away"]);
            expect(message, method).toContain("Nothing was changed");
            if (code === "away") continue;
            expect(message, method).toContain(`test: ${code}`);
            expect(message, method).not.toMatch(/cannot be reached|try again/);
          }
          heal();
        };
        await refuses(
          ["delete_session", { sessionPath }],
          ["delete_session", { sessionPath, permanent: true }],
          ["archive_session", { sessionPath }],
          ["relocate_session", { sessionPath, cwd: place.home }],
          ["import_session", { path }],
        );
        expect([existsSync(sessionPath), row(sessionId)]).toEqual([true, "1|f"]);
        const { movedTo } = await wire.result("archive_session", { sessionId });
        await refuses(["undo", {}], ["unarchive_session", { sessionPath: movedTo }]);
        expect([existsSync(sessionPath), existsSync(movedTo), row(sessionId)]).toEqual([false, true, "1|t"]);
        await wire.result("undo", {});
        await wire.result("delete_session", { sessionId });
        await refuses(["restore_session", { sessionId }], ["undo", {}]);
        expect([existsSync(sessionPath), row(sessionId)]).toEqual([false, "2|f"]);
        await wire.result("restore_session", { sessionId });
        expect([existsSync(sessionPath), row(sessionId)]).toEqual([true, "1|f"]);
      },
    );

    test.each([
      ["42501", refusal("42501"), false],
      ["54000", refusal("54000"), false],
      ["away", AWAY, true],
    ] as const)(
      "one whose file is back is told as such, with what the database says of it (%s)",
      async (name, given, retryable) => {
        const one = await machine();
        const { wire } = one;
        const { sessionId, sessionFile } = await suite.make(one, "one");
        for (const back of ["restore_session", "undo"]) {
          await wire.result("delete_session", { sessionId });
          one.answer(given, /set state = 1/);
          const { data, message } = await wire.failure(back, back === "undo" ? {} : { sessionId });
          expect(existsSync(sessionFile)).toBe(true);
          // An undo that is done is not repeated, but a restoration is.
          expect(data).toMatchObject({ name: "storage_failed", retryable: retryable && back !== "undo" });
          expect(message).toMatch(/(?:^|\. )Restored on this machine(?!.*Nothing was changed)/);
          if (!retryable) expect(message).toContain(`test: ${name}`);
          one.heal();
          await wire.result("restore_session", { sessionId });
          expect(suite.row(sessionId)).toBe("1");
        }
      },
    );

    test("an import that is here, and that the database refuses, is told without a word of nothing being changed", async () => {
      const { wire, answer, path } = await machine();
      answer(refusal("42501"), /into pi_fleet\.(?:entry|session)\b/);
      const { data, message } = await wire.failure("import_session", { path });
      expect(existsSync(data.sessionPath)).toBe(true);
      expect(message).toMatch(/(?:^|\. )It is on this machine now(?!.*Nothing was changed).*test: 42501/);
    });

    test("facts are left out where it does not take them, and not where it refuses the process", async () => {
      const { fleet, answer } = await machine();
      const text = { position: 0, kind: "talk", nth: 0, role: "user", time: null, words: ["one"], marks: [] } as const;
      const late: LateFacts = { sessionId: "late", epoch: 1, from: 0, to: 1, texts: [text], spendings: [] };
      for (const code of [...OF_PROCESSES, ...OF_VALUES]) {
        answer(refusal(code));
        const asked = vi.spyOn(fleet.connections, "run");
        expect((await fleet.fleet.addFacts(late)).kind).toBe("unfit");
        const times = OF_VALUES.includes(code) ? 2 : 1;
        expect([code, asked.mock.calls.length]).toEqual([code, times]);
        asked.mockRestore();
      }
    });

    test.each(OF_VALUES)("a session that it cannot have is a file like any other (%s)", async (code) => {
      const one = await machine();
      const { sessionId, sessionFile: sessionPath } = await suite.make(one, "one");
      one.answer(refusal(code), SESSIONS);
      const { movedTo } = await one.wire.result("archive_session", { sessionPath });
      expect([existsSync(movedTo), row(sessionId)]).toEqual([true, "1|f"]);
    });

    test.each(OF_VALUES)("values fail the commit alone that has them, and nobody is alone then (%s)", async (code) => {
      const { wire, answer, heal, began } = await machine({ alone: true });
      await begun(wire, "first");
      answer(refusal(code), LINES);
      for (const text of ["short", `long ${"x ".repeat(4096)}`]) {
        const { data, message } = await wire.failure("append", { entries: [user(text)] });
        expect([data, message]).toEqual([expect.objectContaining(LASTING), expect.stringContaining(`test: ${code}`)]);
        expect(await said(wire)).toBe("first");
      }
      expect(began).not.toHaveBeenCalled();
      heal();
      expect(await append(wire, "second")).not.toHaveProperty("durability");
      expect([await said(wire), suite.sql("select entries from pi_fleet.session")]).toEqual(["first second", "2"]);
    });

    test("values keep a session away that has them, and no other", async () => {
      const { wire, answer, heal, began, path } = await machine({ alone: true });
      answer(refusal("54000"), HEADERS);
      await wire.result("new_session");
      const { data } = await wire.failure("append", { entries: [user("first")] });
      expect(data).toMatchObject(LASTING);
      expect(data).not.toHaveProperty("keptAt");
      expect((await wire.result("list_kept")).kept).toEqual([]);
      expect((await wire.failure("import_session", { path })).data).toMatchObject(LASTING);
      expect(began).not.toHaveBeenCalled();
      heal();
      expect(await append(wire, "second")).not.toHaveProperty("durability");
      expect(await said(wire)).toBe("second");
    });

    test("values are left out of the facts of lines, which are there", async () => {
      const { wire, answer, heal } = await machine({ alone: true });
      await begun(wire, "first");
      answer(refusal("54000"), WORDS);
      await append(wire, "second");
      heal();
      await append(wire, "third");
      expect(await said(wire)).toBe("first second third");
      expect(suite.sql("select entries, indexed from pi_fleet.session")).toBe("3|3");
      const counts = ["first", "second", "third"].map((query) =>
        suite.sql(`select count(*) from pi_fleet.said where words @@ '${query}'`),
      );
      expect(counts).toEqual(["1", "0", "1"]);
    });

    test("are no names that a file cannot have: a session whose parent has one is listed", async () => {
      const { wire } = await machine();
      const random = new Random(3);
      const name = range(0, 6_000)
        .map(() => random.int(36).toString(36))
        .join("");
      await wire.result("new_session", { parentSession: `/sessions/${name}.jsonl` });
      await append(wire, "first");
      const { sessionId } = await wire.result("get_state");
      expect((await wire.result("list_sessions")).sessions).toMatchObject([{ sessionId }]);
      expect(suite.sql("select count(*) from pi_fleet.described")).toBe("1");
    });

    test("values keep no session behind, of a long commit or in a migration", async () => {
      const { wire, lives, fleet, answer } = await machine({ alone: true });
      answer(refusal("54000"), WORDS);
      await begun(wire, `long ${"x ".repeat(4096)}`);
      await expect.poll(() => fleet.catalog.behind(), { timeout: 30_000, interval: 20 }).toBe(0);
      const { hits, limited } = await wire.result("search_sessions", { query: "nothing" });
      expect([hits, limited]).toEqual([[], undefined]);
      await suite.leave(wire, await begun(wire, "of a migration"));
      suite.sql("update pi_fleet.session set indexed = 0");
      expect(await lives.getAdmin().index()).toEqual({ indexed: 2, inUse: [], unreadable: [] });
      expect(suite.sql("select count(*) from pi_fleet.session where indexed < entries")).toBe("0");
    });

    test("values stay here, where they were acknowledged alone, and keep no other session's here", async () => {
      const { wire, lives, answer, heal, outage, began } = await machine({ alone: true });
      const ids = [await begun(wire, "first"), await begun(wire, "first")];
      answer(AWAY);
      for (const sessionId of ids) {
        await wire.result("switch_session", { sessionId });
        expect(await append(wire, "alone")).toMatchObject({ durability: "local" });
      }
      await wire.result("new_session");
      answer(refusal("54000"), LINES, ids[0]);
      await expect.poll(() => outage.lasts, { timeout: 30_000, interval: 20 }).toBe(false);
      began.mockClear();
      const counts = (): string[] => ids.map((sessionId) => suite.row(sessionId, "entries"));
      const refused = (await lives.getAdmin().push()).find(({ sessionId }) => sessionId === ids[0]);
      expect(refused).toMatchObject({ outcome: "refused", message: expect.stringContaining("54000") });
      expect(counts()).toEqual(["1", "2"]);
      await begun(wire, "meanwhile");
      expect(await append(wire, "more")).not.toHaveProperty("durability");
      expect(began).not.toHaveBeenCalled();
      heal();
      await lives.getAdmin().push();
      expect(counts()).toEqual(["2", "2"]);
    });
  });
});

describe("what a database refuses until somebody changes something", needs(POSTGRESQL), () => {
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
    const one = suite.open("one", { url });
    const message = expect.stringContaining(`database is ${encoding};`);
    await expect(one.migrate()).rejects.toMatchObject({ name: "storage_failed", retryable: false, message });
    expect(await one.schemaVersion()).toBe(0);
    const { status, stderr } = await suite.verb("migrate", undefined, url);
    expect([status, stderr]).toEqual([1, expect.stringContaining("encoding 'UTF8'")]);
  });

  test("new tables keep long values in the cheapest way", () => {
    const kept = sql(`select string_agg(attname::text || attcompression::text || attstorage::text, ' ' order by attname)
      from pg_attribute where attrelid in ('pi_fleet.entry'::regclass, 'pi_fleet.pack'::regclass)
      and attname in ('line', 'heads', 'ends', 'lines')`);
    expect(kept).toBe("endslx headslx linelx linese");
  });

  test("is not what the server goes on with that nobody waits for, of which the status tells", async () => {
    const { server } = suite.database;
    const isReported = async (): Promise<boolean> =>
      (await suite.verb("status")).stdout.includes("client_connection_check_interval");
    expect(await isReported()).toBe(true);
    server.configure("set client_connection_check_interval = '10s'");
    expect(await isReported()).toBe(false);
    server.configure("reset client_connection_check_interval");
  });
});
