/**
 * A database that refuses the process: a password, a right, a database or tables that are others by now. Nothing is known of
 * what it has, so that nothing is done to a whole session on this machine alone; one that refuses a value has no such
 * session. Ordinary tests, over a real PostgreSQL whose refusals are made.
 *
 * @module-tag system
 */

import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { LateFacts } from "../../../src/core/ports/fleet.ts";
import type { SqlAnswer } from "../../../src/storage/fleet/connections.ts";
import type { ServerFact } from "../../../src/storage/fleet/server-fact.ts";
import { suiteDatabase } from "../../support/database.ts";
import { user } from "../../support/drafts.ts";
import { fileText, headerText, id, userText } from "../../support/lines.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import type { Json } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";

const CODES = ["28P01", "28000", "3D000", "42501", "3F000", "42P01", "42703", "refused"];
const VALUES = ["22003", "23514", "54000", "unmade"];
const UNMET: ServerFact = { durability: "primary", version: "" };
const away: SqlAnswer = { kind: "away", reason: "test: away" };
const refusal = (code: string): SqlAnswer => ({ kind: "failed", code, reason: `test: ${code}` });

describe("a database that refuses the process", needs(POSTGRESQL), () => {
  acrossTiers(describe, ["jsonl", "v2"])("with copies as %s", (kind) => {
    const suite = suiteDatabase();
    const { connect, fleets } = suite;

    /** A machine with a session that is closed, and what the database answers instead. */
    const machine = async () => {
      suite.server.sql("truncate pi_fleet.session, pi_fleet.entry, pi_fleet.pack, pi_fleet.described, pi_fleet.said");
      const fleet = connect();
      const { connections } = fleet;
      const run = connections.run.bind(connections);
      const asked: string[] = [];
      const database: { answer: (text: string) => SqlAnswer | undefined } = { answer: () => undefined };
      connections.run = async (question, sent) => {
        const { text } = typeof question === "function" ? question(connections.fact ?? UNMET) : question;
        asked.push(text);
        return database.answer(text) ?? run(question, sent);
      };
      const lives = new HereLives({ fleet, seed: fleets.length });
      const wire = await lives.start(["--store", kind]);
      await wire.result("append", { entries: [user("one")] });
      const { sessionId, sessionFile } = await wire.result("get_state");
      await wire.result("new_session");
      const row = (): string =>
        suite.server.sql(`select state, archived from pi_fleet.session where id = '${sessionId}'`);
      return { fleet, wire, database, asked, home: lives.place.home, sessionId, sessionFile, row };
    };

    test.each(CODES)("nothing is done on this machine alone, and the reason is told (%s)", async (code) => {
      const { wire, database, home, sessionId, sessionFile, row } = await machine();
      const path = join(home, "carried.jsonl");
      writeFileSync(path, "{}\n");
      const refuses = async (requests: readonly (readonly [string, Json])[]): Promise<void> => {
        database.answer = () => refusal(code);
        for (const [method, params] of requests) {
          const { data, message } = await wire.failure(method, params);
          expect([method, data]).toEqual([
            method,
            expect.objectContaining({ name: "storage_failed", retryable: false }),
          ]);
          expect([method, message]).toEqual([method, expect.stringContaining(`test: ${code}`)]);
          expect([method, message]).toEqual([method, expect.stringContaining("Nothing was changed")]);
          expect(message).not.toMatch(/cannot be reached|try again/);
        }
        database.answer = () => undefined;
      };
      const where = { sessionPath: sessionFile };
      await refuses([
        ["delete_session", where],
        ["delete_session", { ...where, permanent: true }],
        ["archive_session", where],
        ["relocate_session", { ...where, cwd: home }],
        ["import_session", { path }],
      ]);
      expect([existsSync(sessionFile), row()]).toEqual([true, "1|f"]);
      const { movedTo } = await wire.result("archive_session", { sessionId });
      await refuses([
        ["undo", {}],
        ["unarchive_session", { sessionPath: movedTo }],
      ]);
      expect([existsSync(sessionFile), existsSync(movedTo), row()]).toEqual([false, true, "1|t"]);
      await wire.result("undo", {});
      await wire.result("delete_session", { sessionId });
      await refuses([
        ["restore_session", { sessionId }],
        ["undo", {}],
      ]);
      expect([existsSync(sessionFile), row()]).toEqual([false, "2|f"]);
      await wire.result("restore_session", { sessionId });
      expect([existsSync(sessionFile), row()]).toEqual([true, "1|f"]);
    });

    test.each(VALUES)("what it cannot have is a file like any other (%s)", async (code) => {
      const { wire, database, sessionFile, row } = await machine();
      database.answer = (text) => (/pi_fleet\.session\b/.test(text) ? refusal(code) : undefined);
      const { movedTo } = await wire.result("archive_session", { sessionPath: sessionFile });
      expect([existsSync(movedTo), row()]).toEqual([true, "1|f"]);
    });

    test.each([
      ["42501", refusal("42501"), false],
      ["54000", refusal("54000"), false],
      ["away", away, true],
    ] as const)(
      "one whose file is back is told as such, with what the database says of it (%s)",
      async (name, answer, retryable) => {
        for (const back of ["restore_session", "undo"]) {
          const { wire, database, sessionId, sessionFile } = await machine();
          await wire.result("delete_session", { sessionId });
          database.answer = (text) => (text.includes("set state = 1") ? answer : undefined);
          const { data, message } = await wire.failure(back, back === "undo" ? {} : { sessionId });
          expect(existsSync(sessionFile)).toBe(true);
          // An undo that is done is not repeated, but a restoration is.
          expect(data).toMatchObject({ name: "storage_failed", retryable: retryable && back !== "undo" });
          expect(message).toMatch(/^It is back on this machine/);
          expect(message).not.toContain("Nothing was changed");
          if (!retryable) expect(message).toContain(`test: ${name}`);
          database.answer = () => undefined;
          await wire.result("restore_session", { sessionId });
          expect(suite.server.sql(`select state from pi_fleet.session where id = '${sessionId}'`)).toBe("1");
        }
      },
    );

    test("an import that is here, and that the database refuses, is told without a word of nothing being changed", async () => {
      const { wire, database, home } = await machine();
      const path = join(home, "carried.jsonl");
      writeFileSync(path, fileText(headerText(), userText(id(0), null)));
      database.answer = (text) => (/into pi_fleet\.(?:entry|session)\b/.test(text) ? refusal("42501") : undefined);
      const { data, message } = await wire.failure("import_session", { path });
      expect(existsSync(data.sessionPath)).toBe(true);
      expect(message).toMatch(/^It is on this machine now.*test: 42501/);
      expect(message).not.toContain("Nothing was changed");
    });

    test("facts are left out where it does not take them, and not where it refuses the process", async () => {
      const { fleet, database, asked } = await machine();
      const { keeper } = fleet;
      const text = { position: 0, kind: "talk", nth: 0, role: "user", time: null, words: ["one"], marks: [] } as const;
      const late: LateFacts = { sessionId: "late", epoch: 1, from: 0, to: 1, texts: [text], spendings: [] };
      const counts = { messages: 1, modified: null, isPlain: true };
      for (const [codes, times] of [
        [CODES, 1],
        [VALUES, 2],
      ] as const)
        for (const code of codes) {
          database.answer = () => refusal(code);
          asked.length = 0;
          expect((await fleet.fleet.addFacts(late)).kind).toBe("unfit");
          expect([code, asked.length]).toEqual([code, times]);
          asked.length = 0;
          await expect(keeper.addFacts("late", 1, { ...late, counts }, 0, 1)).rejects.toMatchObject({
            retryable: false,
          });
          expect([code, asked.length]).toEqual([code, times]);
        }
      database.answer = () => undefined;
    });
  });
});
