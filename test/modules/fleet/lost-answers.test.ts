/**
 * Changes whose answer is lost when they are done, in a real PostgreSQL: they are asked for again, and are neither made
 * twice nor taken for undone. Two tenants have the same done to them, one of them with answers that are lost.
 *
 * @module-tag system
 */

import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import type { FleetAttachment, FleetEnd, FleetFacts } from "../../../src/core/ports/fleet.ts";
import type { SessionDisposition } from "../../../src/core/ports/fleet-admin-queries.ts";
import { FleetPruning } from "../../../src/modules/fleet/admin/pruning.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { taken } from "./support/commits.ts";
import type { SqlFleet } from "./support/sql-fleet.ts";
import { batchOf, fleetSuite, HEADER, LOST, meddle } from "./support/sql-machines.ts";

const HOUR = 3_600_000;
/** Columns that are independent of the writer, the work and the time. */
const COLUMNS = {
  session: "id, header, generation, entries, chain, state, indexed, archived, holder, removed_at is null, emptied",
  entry: "session_id, generation, seq, line",
  said: "session_id, generation, seq, kind, nth, words",
  word: "word, unused_since is null",
  described: "session_id, facts",
  spent: "session_id, generation, quarter, provider, model, messages, cost",
  behind: "session_id",
  blob: "sha256, size, is_whole",
  blob_part: "sha256, part, bytes",
  attached: "session_id, generation, sha256",
};

const attachment = (content: string): FleetAttachment => {
  const bytes = Buffer.from(content);
  return { sha256: createHash("sha256").update(bytes).digest("hex"), read: () => bytes };
};

/** Returns facts of the entry at a position. */
function factsOf(position: number): FleetFacts {
  const said = { position, kind: "talk", nth: 0, role: "user", time: 7, words: ["common", `w${position}`], marks: [] };
  const numbers = [1, 0, 0, 0, 0, 0, 0, 5];
  return {
    counts: { messages: position + 1, modified: 7, isPlain: true },
    description: { cwd: "/", name: null, firstMessage: "common", parentSession: null, timestamp: null },
    texts: [said as FleetFacts["texts"][0]],
    spendings: [{ quarter: 1, provider: "p", model: "m", isInherited: false, numbers }],
  };
}

/** Loses the first answer to each repeatable change. `meanwhile`: a change of others at that time. */
function losing(one: SqlFleet, meanwhile: (text: string) => unknown = () => {}): string[] {
  const lost: string[] = [];
  let last: unknown;
  meddle(one, async (text, ask, _, question) => {
    const isAgain = question === last;
    last = question;
    const answer = await ask();
    if (isAgain || answer.kind !== "done" || !/\b(?:insert|update|delete)\b/.test(text)) return answer;
    lost.push(text);
    await meanwhile(text);
    return LOST;
  });
  return lost;
}

describe("changes whose answer is lost", needs(POSTGRESQL), () => {
  const suite = fleetSuite();
  const sql = (text: string): string => suite.sql(text);
  const connect = (tenant: string, name = "one") => suite.open(name, { url: `${suite.url}&tenant=${tenant}` });
  /** Begins a session with two entries. Returns its epoch. */
  const begun = async (one: SqlFleet, id: string): Promise<number> => {
    let { epoch, end } = await taken(one, id);
    for (const position of [0, 1]) {
      const batch = batchOf(id, epoch, end, [`{"n":${position}}`], factsOf(position));
      expect(await one.fleet.append(batch)).toMatchObject({ kind: "committed" });
      end = batch.after;
    }
    return epoch;
  };
  const deleted = async (one: SqlFleet, id: string): Promise<void> => {
    expect(await one.adminQueries.keep(id, await begun(one, id), { as: "deleted" })).toBe(true);
  };
  const pruned = ({ connections }: SqlFleet, tenant: string, rows = 0) =>
    new FleetPruning(connections, tenant).prune({ rows, idle: undefined });
  const stateOf = (tenant: string, id: string): string =>
    sql(`select state, holder from pi_fleet.session where tenant = '${tenant}' and id = '${id}'`);

  /** Does everything to the sessions of a tenant. Returns the answers. */
  async function everything(tenant: string, one: SqlFleet, changed: SqlFleet): Promise<unknown[]> {
    const { adminQueries, fleet } = changed;
    const outcomes: unknown[] = [];
    const description = factsOf(9).description as never;
    for (const [id, kept] of Object.entries({
      archived: { as: "there", archived: true },
      deleted: { as: "deleted" },
      pruned: { as: "deleted" },
      gone: { as: "gone" },
      changed: { as: "changed", archived: false, headerLine: Buffer.from("{}"), description },
    } satisfies Record<string, SessionDisposition>))
      outcomes.push(await adminQueries.keep(id, await begun(one, id), kept));
    sql(`update pi_fleet.session set deleted_at = '2020-01-01' where id = 'pruned' and tenant = '${tenant}'`);
    await pruned(changed, tenant, HOUR);
    const had = (await adminQueries.removedEnd("pruned")) as FleetEnd;
    expect(await adminQueries.beginAgain("pruned", HEADER, { ...had, entries: had.entries - 1 })).toBe(false);
    outcomes.push(await adminQueries.beginAgain("pruned", HEADER, had));
    for (const id of ["deleted", "deleted", "archived", "gone", "nobody's"])
      outcomes.push(await adminQueries.restore(id));
    const epoch = await begun(one, "facts");
    outcomes.push(await adminQueries.forgetFacts("facts", epoch));
    outcomes.push(await adminQueries.describe("facts", epoch, factsOf(0)));
    await begun(one, "taken");
    outcomes.push(await adminQueries.takeAway("taken"));
    const picture = attachment("a picture");
    for (const isDamaged of [false, true]) {
      if (isDamaged) sql(`update pi_fleet.blob_part set bytes = 'another' where tenant = '${tenant}'`);
      await fleet.attach("facts", [picture]);
      outcomes.push(String(await fleet.attachment(picture.sha256)));
    }
    return outcomes;
  }

  test("leave what they leave when no answer is lost", async () => {
    const plain = await everything("whole", connect("whole"), connect("whole"));
    const changed = connect("lost");
    const lost = losing(changed);
    expect(await everything("lost", connect("lost"), changed)).toEqual(plain);
    expect(lost.length).toBeGreaterThan(20);
    for (const [table, columns] of Object.entries(COLUMNS)) {
      const rows = (tenant: string): string =>
        sql(`select row(${columns}) from pi_fleet.${table} where tenant = '${tenant}' order by 1`);
      expect([table, rows("lost")]).toEqual([table, rows("whole")]);
    }
  });

  test("say that a session is back which somebody has taken since, and delete none anew that was deleted again", async () => {
    const [one, again, begins, other] = ["one", "one", "one", "another"].map((name) => connect("back", name));
    await deleted(one, "taken");
    losing(one, () => taken(other, "taken"));
    expect(await one.adminQueries.restore("taken")).toBe(true);
    expect(stateOf("back", "taken")).toBe("1|another");

    await deleted(other, "again");
    losing(again, async () => other.adminQueries.keep("again", (await taken(other, "again")).epoch, { as: "deleted" }));
    expect(await again.adminQueries.restore("again")).toBe(false);
    expect(stateOf("back", "again")).toBe("2|");

    await deleted(other, "begins");
    await pruned(other, "back");
    const had = (await begins.adminQueries.removedEnd("begins")) as FleetEnd;
    losing(begins, () => {
      sql("update pi_fleet.session set lease_until = now() where id = 'begins'");
      return other.adminQueries.beginAgain("begins", HEADER, had);
    });
    expect(await begins.adminQueries.beginAgain("begins", HEADER, had)).toBe(true);
    expect(stateOf("back", "begins")).toBe("0|another");
  });

  test.each(["deleted", "gone"] as const)("say that a session is %s whose rows were pruned since", async (as) => {
    const [one, other] = [connect("pruning"), connect("pruning", "another")];
    const epoch = await begun(one, as);
    losing(one, () => pruned(other, "pruning"));
    expect(await one.adminQueries.keep(as, epoch, { as })).toBe(true);
    expect(stateOf("pruning", as)).toBe("2|");
  });

  test("remove no attachment that somebody has given anew since", async () => {
    const [one, other] = [connect("given"), connect("given", "another")];
    const picture = attachment("another picture");
    await begun(one, "with");
    await one.fleet.attach("with", [picture]);
    sql("update pi_fleet.blob_part set bytes = 'a lie' where tenant = 'given'");
    const lost = losing(
      one,
      (text) => text.includes("delete from pi_fleet.blob_part") && other.fleet.attach("with", [picture]),
    );
    // This machine does not have it any more.
    await one.fleet.attach("with", [{ ...picture, read: () => null }]);
    expect(lost).toHaveLength(1);
    expect(String(await other.fleet.attachment(picture.sha256))).toBe("another picture");
  });
});
