/**
 * Changes whose answer is lost when they are done, in a real PostgreSQL: they are asked for again, and are neither made
 * twice nor taken for undone. Two tenants have the same done to them, one of them with answers that are lost.
 *
 * @module-tag system
 */

import { createHash } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { FleetAttachment, FleetEnd, FleetFacts, Taking } from "../../../src/core/ports/fleet.ts";
import type { SqlQuestion } from "../../../src/storage/fleet/connections.ts";
import { endAfter } from "../../../src/storage/fleet/ends.ts";
import { FleetPruning } from "../../../src/storage/fleet/pruning.ts";
import { Database } from "../../support/database.ts";
import { user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import type { Json } from "../../support/server.ts";
import { type SqlFleet, sqlFleet } from "../../support/sql-fleet.ts";
import { acrossTiers } from "../../support/tiers.ts";

const HEADER = Buffer.from('{"type":"session"}');
const HOUR = 3_600_000;
/** Columns that are the same whoever has what done to it, and whenever. */
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

/** Has the first answer to each change be lost that may be asked for twice. `meanwhile`: what others do then. */
function losing({ connections }: SqlFleet, meanwhile: (text: string) => Promise<unknown> = async () => {}) {
  const run = connections.run.bind(connections);
  const lost: string[] = [];
  let last: SqlQuestion | undefined;
  connections.run = async (question, sent) => {
    const answer = await run(question, sent);
    const { text } = typeof question === "function" ? question({ durability: "primary", version: "" }) : question;
    const isAgain = question === last;
    last = question;
    if (isAgain || answer.kind !== "done" || !/\b(?:insert|update|delete)\b/.test(text)) return answer;
    lost.push(text);
    await meanwhile(text);
    return { kind: "unknown", reason: "test: the answer is lost" };
  };
  return lost;
}

describe("changes whose answer is lost", needs(POSTGRESQL), () => {
  let server: Database;
  const open: SqlFleet[] = [];
  const connect = (tenant: string, name = "one"): SqlFleet => {
    const fleet = sqlFleet(`${server.url}&tenant=${tenant}`, name);
    open.push(fleet);
    return fleet;
  };
  const taken = async ({ fleet }: SqlFleet, id: string): Promise<Extract<Taking, { kind: "taken" }>> => {
    const taking = await fleet.take(id, 0, HEADER);
    if (taking.kind !== "taken") throw new Error(`not taken: ${JSON.stringify(taking)}`);
    return taking;
  };
  /** Begins a session with two entries. Returns its epoch. */
  const begun = async (one: SqlFleet, id: string): Promise<number> => {
    const taking = await taken(one, id);
    let before = taking.end;
    for (const position of [0, 1]) {
      const lines = [Buffer.from(`{"n":${position}}`)];
      const after = endAfter(before, lines);
      const heads = [JSON.stringify([`${position}`, null, "message", "user"])];
      const batch = { sessionId: id, epoch: taking.epoch, before, after, lines, heads, facts: factsOf(position) };
      expect(await one.fleet.append(batch)).toMatchObject({ kind: "committed" });
      before = after;
    }
    return taking.epoch;
  };
  const deleted = async (one: SqlFleet, id: string): Promise<void> => {
    expect(await one.keeper.keep(id, await begun(one, id), { as: "deleted" })).toBe(true);
  };
  const pruned = ({ connections }: SqlFleet, tenant: string): Promise<object> =>
    new FleetPruning(connections, tenant).prune({ rows: 0, idle: undefined });
  const stateOf = (tenant: string, id: string): string =>
    server.sql(`select state, holder from pi_fleet.session where tenant = '${tenant}' and id = '${id}'`);

  beforeAll(async () => {
    server = new Database();
    await server.start();
  });
  afterAll(async () => {
    await Promise.all(open.map(({ fleet }) => fleet.close()));
    await server.close();
  });

  /** Does everything to the sessions of a tenant. Returns what it is told. */
  async function everything(tenant: string, one: SqlFleet, changed: SqlFleet): Promise<unknown[]> {
    const { keeper } = changed;
    const told: unknown[] = [];
    const tell = async (result: Promise<unknown>): Promise<void> => void told.push(await result);
    for (const [id, kept] of [
      ["archived", { as: "there", archived: true }],
      ["deleted", { as: "deleted" }],
      ["pruned", { as: "deleted" }],
      ["gone", { as: "gone" }],
      [
        "changed",
        { as: "changed", archived: false, headerLine: Buffer.from("{}"), description: factsOf(9).description as never },
      ],
    ] as const)
      await tell(keeper.keep(id, await begun(one, id), kept));
    server.sql(`update pi_fleet.session set deleted_at = '2020-01-01' where id = 'pruned' and tenant = '${tenant}'`);
    await new FleetPruning(changed.connections, tenant).prune({ rows: HOUR });
    const had = (await keeper.removedEnd("pruned")) as FleetEnd;
    expect(await keeper.beginAgain("pruned", HEADER, false, { ...had, entries: had.entries - 1 })).toBe(false);
    await tell(keeper.beginAgain("pruned", HEADER, false, had));
    for (const id of ["deleted", "deleted", "archived", "gone", "nobody's"]) await tell(keeper.restore(id, true));
    const epoch = await begun(one, "facts");
    await tell(keeper.forgetFacts("facts", epoch));
    for (const position of [0, 1])
      await tell(keeper.addFacts("facts", epoch, factsOf(position), position, position + 1));
    await tell(keeper.addFacts("facts", epoch, factsOf(2), 1, 2));
    await begun(one, "taken");
    await tell(keeper.takeAway("taken"));
    const picture = attachment("a picture");
    for (const state of ["", "where true"]) {
      if (state) server.sql(`update pi_fleet.blob_part set bytes = 'another' where tenant = '${tenant}'`);
      await changed.fleet.attach("facts", [picture]);
      await tell(changed.fleet.attachment(picture.sha256).then(String));
    }
    return told;
  }

  test("leave what they leave when no answer is lost", async () => {
    const plain = await everything("whole", connect("whole"), connect("whole"));
    const changed = connect("lost");
    const lost = losing(changed);
    expect(await everything("lost", connect("lost"), changed)).toEqual(plain);
    expect(lost.length).toBeGreaterThan(20);
    for (const [table, columns] of Object.entries(COLUMNS)) {
      const rows = (tenant: string): string =>
        server.sql(`select row(${columns}) from pi_fleet.${table} where tenant = '${tenant}' order by 1`);
      expect([table, rows("lost")]).toEqual([table, rows("whole")]);
    }
    expect(server.sql("select messages, cost from pi_fleet.spent where tenant = 'lost' and session_id = 'facts'")).toBe(
      "2|10",
    );
  });

  acrossTiers(test, ["jsonl", "v2"])(
    "that begin a session are found by the key of the repeated request, once (%s)",
    async (kind) => {
      const one = connect(`begun-${kind}`);
      const { connections } = one;
      const run = connections.run.bind(connections);
      let isAway = false;
      let lost = 0;
      connections.run = async (question, sent) => {
        if (isAway) return { kind: "away", reason: "test: it is away" };
        const answer = await run(question, sent);
        const { text } = typeof question === "function" ? question({ durability: "primary", version: "" }) : question;
        if (!text.includes("insert into pi_fleet.entry") || lost++ > 0) return answer;
        isAway = true;
        return { kind: "unknown", reason: "test: the answer is lost" };
      };
      const wire = await new HereLives({ fleet: one }).start(["--store", kind]);
      const request = { entries: [user("first")], idempotencyKey: "the key" };
      expect((await wire.failure("append", request)).data.name).toBe("outcome_unknown");
      expect((await wire.failure("append", request)).data.name).toBe("storage_failed");
      isAway = false;
      const { entryIds } = await wire.result("append", request);
      await wire.result("append", { entries: [user("second")] });
      const { sessionId } = await wire.result("get_state");
      const { entries } = await wire.result("get_entries");
      expect(entries.map(({ message }: Json) => message?.content)).toEqual(["first", "second"]);
      expect(entries[0].id).toBe(entryIds[0]);
      expect(
        server.sql(`select entries from pi_fleet.session where id = '${sessionId}' and tenant = 'begun-${kind}'`),
      ).toBe("2");
    },
  );

  test("say that a session is back which somebody has taken since, and delete none anew that was deleted again", async () => {
    const [one, other] = [connect("back"), connect("back", "another")];
    await deleted(one, "taken");
    losing(one, () => taken(other, "taken"));
    expect(await one.keeper.restore("taken", false)).toBe(true);
    expect(stateOf("back", "taken")).toBe("1|another");

    const again = connect("back");
    await deleted(other, "again");
    losing(again, async () => {
      await other.keeper.keep("again", (await taken(other, "again")).epoch, { as: "deleted" });
    });
    expect(await again.keeper.restore("again", false)).toBe(false);
    expect(stateOf("back", "again")).toBe("2|");

    const begins = connect("back");
    await deleted(other, "begins");
    await pruned(other, "back");
    const had = (await begins.keeper.removedEnd("begins")) as FleetEnd;
    losing(begins, () => {
      server.sql("update pi_fleet.session set lease_until = now() where id = 'begins'");
      return other.keeper.beginAgain("begins", HEADER, false, had);
    });
    expect(await begins.keeper.beginAgain("begins", HEADER, false, had)).toBe(true);
    expect(stateOf("back", "begins")).toBe("0|another");
  });

  test("say that a session is deleted whose rows were pruned since", async () => {
    const other = connect("pruning", "another");
    for (const as of ["deleted", "gone"] as const) {
      const one = connect("pruning");
      const epoch = await begun(one, as);
      losing(one, () => pruned(other, "pruning"));
      expect(await one.keeper.keep(as, epoch, { as })).toBe(true);
      expect(stateOf("pruning", as)).toBe("2|");
    }
  });

  test("remove no attachment that somebody has given anew since", async () => {
    const [one, other] = [connect("given"), connect("given", "another")];
    const picture = attachment("another picture");
    await begun(one, "with");
    await one.fleet.attach("with", [picture]);
    server.sql("update pi_fleet.blob_part set bytes = 'a lie' where tenant = 'given'");
    const lost = losing(one, (text) =>
      text.includes("delete from pi_fleet.blob_part") ? other.fleet.attach("with", [picture]) : Promise.resolve(),
    );
    // This machine does not have it any more.
    await one.fleet.attach("with", [{ ...picture, read: () => null }]);
    expect(lost).toHaveLength(1);
    expect(String(await other.fleet.attachment(picture.sha256))).toBe("another picture");
  });
});
