/**
 * The header of a copy is that of the fleet's session, or of the journal's: one that was damaged gets those bytes again with
 * the next write, and never takes their place.
 */

import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { decodeText } from "../../../src/core/json/json.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { FleetServer } from "./support/server.ts";

const DAMAGE: readonly (readonly [what: string, from: string, to: string])[] = [
  ["the name of its version", '"version":3', '"vershon":3'],
  ["an older version", '"version":3', '"version":2'],
  ["a newer version", '"version":3', '"version":7'],
  ["its type", '"type":"session"', '"type":"sessioo"'],
  ["another time", '"timestamp":"2', '"timestamp":"3'],
];

const headerFileOf = (sessionFile: string): string =>
  existsSync(join(sessionFile, "header.jsonl")) ? join(sessionFile, "header.jsonl") : sessionFile;
const headerIn = (file: string): string => readFileSync(file, "utf8").split("\n")[0];

/** Returns the headers of a session in its files and in their backups. */
function headersBeside(sessionFile: string): string[] {
  const folder = dirname(sessionFile);
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .map((name) => join(folder, name))
    .filter((path) => path.startsWith(sessionFile) && (/\.bak[.\d]*$/.test(path) || path.endsWith("/header.jsonl")))
    .flatMap((path) => {
      try {
        return [headerIn(path)];
      } catch {
        return [];
      }
    });
}

acrossTiers(
  test,
  ["jsonl", "v2"].flatMap((store) => DAMAGE.map((damage) => ({ store, damage }))),
)(
  "a copy whose header was damaged ($store, $damage) has the fleet's with the next write, and the other is kept",
  async ({ store, damage: [, from, to] }) => {
    const one = new FleetServer(["--store", store]);
    const { sessionId, sessionFile } = await one.make(["one", "two"]);
    const { table } = one.fleet;
    const meant = decodeText(table.rows.get(sessionId)?.headerLine as Uint8Array);
    const file = headerFileOf(sessionFile);
    const damaged = meant.replace(from, to);
    writeFileSync(file, readFileSync(file, "latin1").replace(from, to), "latin1");
    await one.start();
    await one.result("switch_session", { sessionId });
    await one.append("three");
    expect(await one.ids()).toEqual(["one", "two", "three"]);
    await one.end();
    expect(headerIn(headerFileOf(sessionFile))).toBe(meant);
    expect(headersBeside(sessionFile)).toContain(damaged);
    expect(one.inFleet(sessionId)).toEqual(["one", "two", "three"]);
    expect(decodeText(table.rows.get(sessionId)?.headerLine as Uint8Array)).toBe(meant);
    // Nothing is left to do.
    await one.start();
    await one.result("switch_session", { sessionId });
    await one.append("four");
    expect(headersBeside(sessionFile).filter((line) => line === damaged)).toHaveLength(1);
  },
);

acrossTiers(test, ["jsonl", "v2"])(
  "the header of a session that only this machine has is that of the journal, whatever became of the file's (%s)",
  async (store) => {
    const one = await new FleetServer(["--store", store], { isJournaled: true }).start();
    one.loses();
    const sessionId = await one.begin();
    const { sessionFile } = await one.state();
    const file = headerFileOf(sessionFile);
    const meant = headerIn(file);
    await one.end();
    writeFileSync(file, readFileSync(file, "latin1").replace('"version":3', '"vershon":3'), "latin1");
    one.heals();
    await one.start("--session-id", sessionId);
    await one.append("two");
    expect(one.inFleet(sessionId)).toEqual(["one", "two"]);
    expect(decodeText(one.fleet.table.rows.get(sessionId)?.headerLine as Uint8Array)).toBe(meant);
    expect(headerIn(headerFileOf(sessionFile))).toBe(meant);
  },
);
