/**
 * Values that the database does not take: a commit of such lines fails, and is no outage, and facts are left out rather than
 * keep lines away. Ordinary tests, over a real PostgreSQL whose refusals are made.
 *
 * @module-tag system
 */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import type { SqlAnswer } from "../../../src/storage/fleet/connections.ts";
import { Outage } from "../../../src/storage/fleet/outage.ts";
import { suiteDatabase } from "../../support/database.ts";
import { user } from "../../support/drafts.ts";
import { fileText, headerText, id, userText } from "../../support/lines.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import { Random, range } from "../../support/random.ts";
import { type Json, temporaryFolder, type Wire } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";

const CODES = ["22003", "23514", "54000", "unmade"];
/** Statements with lines, those with words, and those that begin a session. */
const LINES = /into pi_fleet\.(?:entry|pack)\b/;
const WORDS = /into pi_fleet\.said\b/;
const HEADERS = /into pi_fleet\.session\b/;

describe("values that the database refuses", needs(POSTGRESQL), () => {
  acrossTiers(describe, ["jsonl", "v2"])("with copies as %s", (kind) => {
    const suite = suiteDatabase();
    const { connect, fleets } = suite;

    beforeEach(() => {
      suite.server.sql(
        "truncate pi_fleet.session, pi_fleet.entry, pi_fleet.pack, pi_fleet.behind, pi_fleet.described, pi_fleet.said",
      );
    });

    /** A machine that goes on alone while the database is away, and what the database answers instead. */
    const machine = async () => {
      const fleet = connect();
      const { connections } = fleet;
      const run = connections.run.bind(connections);
      const database: { answer: (text: string, values: string) => SqlAnswer | undefined } = { answer: () => undefined };
      connections.run = async (question, sent) => {
        const fact = connections.fact ?? { durability: "primary", version: "" };
        const { text, values } = typeof question === "function" ? question(fact) : question;
        return database.answer(text, String(values)) ?? run(question, sent);
      };
      const began: string[] = [];
      const outage = new Outage(fleet.fleet, 0, () => performance.now());
      const begin = outage.begin.bind(outage);
      outage.begin = () => {
        began.push("an outage");
        begin();
      };
      const lives = new HereLives({ fleet: { ...fleet, outage, long: 4096 }, seed: fleets.length });
      const wire = await lives.start(["--store", kind]);
      /** Has statements be refused. */
      const refuse = (code: string, which: RegExp, whose = ""): void => {
        database.answer = (text, values) =>
          which.test(text) && values.includes(whose) ? { kind: "failed", code, reason: `test: ${code}` } : undefined;
      };
      return { fleet, lives, wire, database, refuse, began, outage };
    };
    const begun = async (wire: Wire, text: string): Promise<string> => {
      await wire.result("new_session");
      await wire.result("append", { entries: [user(text)] });
      return (await wire.result("get_state")).sessionId;
    };
    const said = async (wire: Wire): Promise<string[]> =>
      (await wire.result("get_entries")).entries
        .map(({ message }: Json) => message?.content.slice(0, 9))
        .filter(Boolean);
    const hits = async (wire: Wire, query: string): Promise<unknown[]> => {
      const { hits: all, limited } = await wire.result("search_sessions", { query });
      return [all.length, limited];
    };

    test.each(CODES)("fail the commit alone that has them, and nobody is alone then (%s)", async (code) => {
      const { wire, refuse, database, began } = await machine();
      await begun(wire, "first");
      refuse(code, LINES);
      for (const text of ["short", `long ${"x ".repeat(4096)}`]) {
        const { data, message } = await wire.failure("append", { entries: [user(text)] });
        expect(data).toMatchObject({ name: "storage_failed", retryable: false });
        expect(message).toContain(`test: ${code}`);
        expect(await said(wire)).toEqual(["first"]);
      }
      expect(began).toEqual([]);
      database.answer = () => undefined;
      expect(await wire.result("append", { entries: [user("second")] })).not.toHaveProperty("durability");
      expect(await said(wire)).toEqual(["first", "second"]);
      expect(suite.server.sql("select entries from pi_fleet.session")).toBe("2");
    });

    test("keep a session away that has them, and no other", async () => {
      const { wire, refuse, database, began } = await machine();
      refuse("54000", HEADERS);
      await wire.result("new_session");
      const { data } = await wire.failure("append", { entries: [user("first")] });
      expect(data).toMatchObject({ name: "storage_failed", retryable: false });
      expect(data).not.toHaveProperty("keptAt");
      expect((await wire.result("list_kept")).kept).toEqual([]);
      const path = join(temporaryFolder(), "carried.jsonl");
      writeFileSync(path, fileText(headerText(), userText(id(0), null)));
      expect((await wire.failure("import_session", { path })).data).toMatchObject({
        name: "storage_failed",
        retryable: false,
      });
      expect(began).toEqual([]);
      database.answer = () => undefined;
      expect(await wire.result("append", { entries: [user("second")] })).not.toHaveProperty("durability");
      expect(await said(wire)).toEqual(["second"]);
    });

    test("are left out of the facts of lines, which are there", async () => {
      const { wire, refuse, database } = await machine();
      await begun(wire, "first");
      refuse("54000", WORDS);
      await wire.result("append", { entries: [user("second")] });
      database.answer = () => undefined;
      await wire.result("append", { entries: [user("third")] });
      expect(await said(wire)).toEqual(["first", "second", "third"]);
      expect(suite.server.sql("select entries, indexed from pi_fleet.session")).toBe("3|3");
      for (const [query, count] of [
        ["first", 1],
        ["second", 0],
        ["third", 1],
      ] as const)
        expect(suite.server.sql(`select count(*) from pi_fleet.said where words @@ '${query}'`)).toBe(`${count}`);
    });

    test("are no names that a file cannot have: a session whose parent has one is listed", async () => {
      const { wire } = await machine();
      const random = new Random(3);
      const name = range(0, 6_000)
        .map(() => random.int(36).toString(36))
        .join("");
      await wire.result("new_session", { parentSession: `/sessions/${name}.jsonl` });
      await wire.result("append", { entries: [user("first")] });
      const { sessionId } = await wire.result("get_state");
      expect((await wire.result("list_sessions")).sessions).toMatchObject([{ sessionId }]);
      expect(suite.server.sql("select count(*) from pi_fleet.described")).toBe("1");
    });

    test("keep no session behind, of a long commit or in a migration", async () => {
      const { wire, lives, fleet, refuse, database } = await machine();
      refuse("54000", WORDS);
      await begun(wire, `long ${"x ".repeat(4096)}`);
      await expect.poll(() => fleet.catalog.behind(), { timeout: 30_000, interval: 20 }).toBe(0);
      expect(await hits(wire, "nothing")).toEqual([0, undefined]);
      await begun(wire, "of a migration");
      await wire.result("new_session");
      const held = "select count(*) from pi_fleet.session where holder is not null";
      await expect.poll(() => suite.server.sql(held), { timeout: 30_000, interval: 20 }).toBe("0");
      suite.server.sql("update pi_fleet.session set indexed = 0");
      expect(await lives.care().index()).toEqual({ indexed: 2, inUse: [], unreadable: [] });
      expect(suite.server.sql("select count(*) from pi_fleet.session where indexed < entries")).toBe("0");
      database.answer = () => undefined;
    });

    test("stay here, where they were acknowledged alone, and keep no other session's here", async () => {
      const { wire, lives, refuse, database, outage, began } = await machine();
      const ids = [await begun(wire, "first"), await begun(wire, "first")];
      database.answer = () => ({ kind: "away", reason: "test: away" });
      for (const sessionId of ids) {
        await wire.result("switch_session", { sessionId });
        expect(await wire.result("append", { entries: [user("alone")] })).toMatchObject({ durability: "local" });
      }
      await wire.result("new_session");
      refuse("54000", LINES, ids[0]);
      await expect.poll(() => outage.lasts, { timeout: 30_000, interval: 20 }).toBe(false);
      began.length = 0;
      const entries = (id: string): string =>
        suite.server.sql(`select entries from pi_fleet.session where id = '${id}'`);
      const pushed = async (): Promise<Json> =>
        Object.fromEntries((await lives.care().push()).map((one) => [one.sessionId, one]));
      expect((await pushed())[ids[0]]).toMatchObject({ outcome: "refused", message: expect.stringContaining("54000") });
      expect(ids.map(entries)).toEqual(["1", "2"]);
      await begun(wire, "meanwhile");
      expect(await wire.result("append", { entries: [user("more")] })).not.toHaveProperty("durability");
      expect(began).toEqual([]);
      database.answer = () => undefined;
      await pushed();
      expect(ids.map(entries)).toEqual(["2", "2"]);
    });
  });
});
