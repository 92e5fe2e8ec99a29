/**
 * What `fleet export` writes, and what it leaves alone. Over a real PostgreSQL.
 *
 * @module-tag system
 */

import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { FleetPruning } from "../../../src/storage/fleet/pruning.ts";
import { suiteDatabase } from "../../support/database.ts";
import { assistant, user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";

describe("the export of a fleet", needs(POSTGRESQL), () => {
  const database = suiteDatabase();
  const { connect } = database;
  const filesIn = (folder: string): string[] =>
    existsSync(folder)
      ? readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) =>
          statSync(join(folder, name)).isFile(),
        )
      : [];

  test("no session is held as a whole, and none has its name before it is whole", async () => {
    const one = connect();
    /** Called when all pieces before one are used. */
    let used = (_before: number): void => {};
    let read = 0;
    const fleet = Object.assign(Object.create(one.fleet), {
      async *lines(id: string, from: number, to: number) {
        let bytes = 0;
        for await (const lines of one.fleet.lines(id, from, to))
          for (const line of lines) {
            used(bytes);
            read++;
            yield [line];
            bytes += line.length + 1;
          }
      },
    });
    const lives = new HereLives({ fleet: { ...one, fleet } });
    const wire = await lives.start();
    const entries = Array.from({ length: 20 }, (_, n) =>
      n % 2 ? assistant(`${n}`) : user(`${n} ${"x".repeat(9000)}`),
    );
    await wire.result("append", { entries });
    const { sessionFile, sessionId } = await wire.result("get_state");
    const out = join(lives.place.home, "out");
    const sizes = (): number => filesIn(out).reduce((sum, name) => sum + statSync(join(out, name)).size, 0);
    used = (before) => {
      expect(filesIn(out).filter((name) => name.endsWith(".jsonl"))).toEqual([]);
      // The next piece is asked for while the one before it is written.
      expect(sizes()).toBeGreaterThanOrEqual(before - 20_000);
    };
    const exported = async () => {
      read = 0;
      const [file] = await lives.care().exportTo(out);
      return file;
    };
    database.server.sql(`update pi_fleet.entry set line = line || ' '::bytea where seq = 19`);
    database.server.sql(
      `update pi_fleet.entry set line = overlay(line placing 'Y'::bytea from 60 for 1) where seq = 19`,
    );
    expect(await exported()).toMatchObject({ sessionId, outcome: "refused" });
    expect(filesIn(out)).toEqual([]);
    database.server.sql(
      `update pi_fleet.entry set line = convert_to('${entryLine(sessionFile, 19)}', 'utf8') where seq = 19`,
    );
    const file = await exported();
    expect(file).toMatchObject({ sessionId, outcome: "new" });
    used = () => {};
    expect(readFileSync(file.sessionPath).equals(readFileSync(sessionFile))).toBe(true);
    expect(await exported()).toMatchObject({ outcome: "known" });
    for (const change of [
      (bytes: Buffer) => Buffer.concat([bytes, Buffer.from("\n")]),
      (bytes: Buffer) => bytes.subarray(0, -1),
      (bytes: Buffer) => Buffer.from(bytes.toString().replace("xxx", "yyy")),
    ]) {
      const changed = change(readFileSync(sessionFile));
      writeFileSync(file.sessionPath, changed);
      expect(await exported()).toMatchObject({ outcome: "refused", message: expect.stringMatching(/other bytes/) });
      expect(readFileSync(file.sessionPath).equals(changed)).toBe(true);
    }
    expect(read, "lines that are read after the first that differs").toBeLessThan(4);
    expect(filesIn(out)).toHaveLength(1);
  });

  test("a session that is deleted and pruned after its row was read is left out", async () => {
    const one = connect();
    const lives = new HereLives({ fleet: one, seed: 2 });
    const wire = await lives.start();
    database.server.sql("truncate pi_fleet.session, pi_fleet.entry, pi_fleet.pack");
    const ids: string[] = [];
    for (const text of ["stays", "goes"]) {
      await wire.result("new_session");
      await wire.result("append", { entries: [user(text), assistant("answer")] });
      ids.push((await wire.result("get_state")).sessionId);
    }
    await wire.result("new_session");
    const rows = one.keeper.rows.bind(one.keeper);
    one.keeper.rows = async function* () {
      const page = [];
      for await (const row of rows()) page.push(row);
      await wire.result("delete_session", { sessionId: ids[1] });
      await new FleetPruning(one.connections, "").prune({ rows: 0 });
      yield* page;
    };
    const files = await lives.care().exportTo(join(lives.place.home, "out"));
    expect(files).toMatchObject([{ sessionId: ids[0], outcome: "new" }]);
  });
});

/** Returns a line of a session file, after its header. */
function entryLine(file: string, n: number): string {
  return readFileSync(file, "utf8").split("\n")[n + 1].replaceAll("'", "''");
}
