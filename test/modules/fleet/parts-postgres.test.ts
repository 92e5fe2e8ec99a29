/**
 * Commits in parts in a real PostgreSQL: their rows are invisible before the last statement.
 *
 * @module-tag system
 */

import { describe, expect, test, vi } from "vitest";
import type { FleetBatch, FleetEnd, FleetPart } from "../../../src/core/ports/fleet.ts";
import { NOTHING } from "../../../src/modules/fleet/postgres/ends.ts";
import { computeStretches } from "../../../src/modules/fleet/postgres/pack.ts";
import { user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { range } from "../../support/random.ts";
import { acrossTiers, SWEEP } from "../../support/tiers.ts";
import { taken } from "./support/commits.ts";
import { suiteServer, type TestDatabase } from "./support/database.ts";
import { PGBOUNCER } from "./support/pooler.ts";
import type { SqlFleet } from "./support/sql-fleet.ts";
import { batchOf, type FleetSuite, fleetSuite, instead, linesOf, meddle } from "./support/sql-machines.ts";

const WHERE = ["in PostgreSQL", "in PostgreSQL behind PgBouncer"];
const STORES = ["jsonl", "v2"] as const;
const SLOWLY = { timeout: 20_000, interval: 100 };

const isPooled = (where: string): boolean => where.includes("PgBouncer");
/** Returns what the tests of parts in one of these places need. */
const needsOf = (where: string) => (isPooled(where) ? needs(POSTGRESQL, PGBOUNCER) : needs(POSTGRESQL));

const entries = (first: number, count: number) =>
  range(first, first + count).map((n) => user(`${n} ${"word ".repeat(500)}`));

/** Has one long commit of a fleet after the other end after its parts, until it goes on. */
const interrupt = ({ fleet }: SqlFleet): (() => void) =>
  instead(
    fleet,
    "append",
    (append) => async (batch) => (batch.place === undefined ? append(batch) : { kind: "away", reason: "test" }),
  );

/** Returns the queries of a suite, and its machines, whose long commits are in parts. */
function partsIn<Server extends TestDatabase>(suite: FleetSuite<Server>) {
  return {
    suite,
    isIndexed: (): Promise<void> => suite.until("select count(*) from pi_fleet.behind", "0"),
    sql: (text: string): string => suite.sql(text),
    unseen: (): number => Number(suite.sql("select count(*) from pi_fleet.pack where generation < 0")),
    count: (): string => suite.sql("select string_agg(entries::text, ' ') from pi_fleet.session where state = 1"),
    machine: (kind = "jsonl") =>
      suite.machine({ fleet: { ...suite.connect(), partBytes: 4096 }, args: ["--store", kind] }),
  };
}

acrossTiers(describe, WHERE)("parts %s", (where) => {
  describe("a database that is there", needsOf(where), () => {
    const { suite, sql, unseen, count, machine, isIndexed } = partsIn(
      fleetSuite(undefined, { isPooled: isPooled(where) }),
    );

    acrossTiers(test, STORES)("what a commit has left that came to nothing is seen by nobody (%s)", async (kind) => {
      const { wire, lives, fleet, place } = await machine(kind);
      await wire.result("append", { entries: entries(0, 6) });
      const { sessionId } = await wire.result("get_state");
      await isIndexed();
      const seen = async () => {
        const { wire: other } = await machine(kind);
        const listed = await other.result("list_sessions");
        const found = await other.result("search_sessions", { query: "word" });
        await other.result("switch_session", { sessionId });
        const { messages } = await other.result("get_messages");
        const stats = await other.result("get_session_stats");
        await other.result("clone");
        const { sessionId: cloned } = await other.result("get_state");
        await other.result("switch_session", { sessionId });
        await other.result("delete_session", { sessionId: cloned });
        const { faults } = await lives.getAdmin().verify();
        return [listed.sessions.length, found.hits.length, messages, stats.totalMessages, stats.tokens, faults];
      };
      const before = await seen();
      const goOn = interrupt(fleet);
      const params = { entries: entries(6, 6), idempotencyKey: "more" };
      expect((await wire.failure("append", params)).message).toContain("Nothing was changed");
      expect(unseen()).toBeGreaterThan(2);
      expect(await seen()).toEqual(before);
      expect(await suite.runVerb("prune", place)).toMatchObject({ interrupted: 0 });
      suite.endLeases();
      expect((await suite.verb("prune", place)).stdout).toContain("parts of commits to 1 session");
      expect(await seen()).toEqual(before);
      goOn();
      // It took the session again, and sends everything to a place of its own.
      const { entryIds } = await wire.result("append", params);
      expect(await wire.result("append", params)).toMatchObject({ entryIds });
      expect([unseen(), suite.row(sessionId, "entries")]).toEqual([0, "12"]);
      expect((await lives.getAdmin().verify()).faults).toEqual([]);
    });

    test("they go with a prune, and who wakes after it sends them anew", async () => {
      const { wire, lives, fleet, place } = await machine();
      await wire.result("append", { entries: entries(0, 2) });
      let failure: unknown;
      instead(fleet.fleet, "append", (append) => async (batch) => {
        // Stopped for longer than its lease, before the last statement.
        if (batch.place !== undefined && failure === undefined) {
          // The process lives: a renewal may come in between.
          for (let tries = 0; tries < 3 && unseen() > 0; tries++) {
            suite.endLeases();
            failure = await suite.runVerb("prune --apply --yes", place);
          }
          expect(unseen()).toBe(0);
        }
        return append(batch);
      });
      await wire.result("append", { entries: entries(2, 6) });
      expect(failure).toMatchObject({ applied: true, interrupted: 1 });
      expect([count(), (await lives.getAdmin().verify()).faults]).toEqual(["8", []]);
    });

    test("a first push that came to nothing is nobody's session, and goes with its parts", async () => {
      const { wire, lives, fleet, place } = await machine();
      const goOn = interrupt(fleet);
      const params = { entries: entries(0, 6), idempotencyKey: "first" };
      expect((await wire.failure("append", params)).message).toContain("Nothing was changed");
      expect([sql("select state, entries from pi_fleet.session"), unseen() > 2]).toEqual(["0|0", true]);
      expect((await (await machine()).wire.result("list_sessions")).sessions).toEqual([]);
      sql("update pi_fleet.session set lease_until = now(), changed_at = now() - interval '40 days'");
      expect(await suite.runVerb("prune --apply --yes", place)).toMatchObject({ interrupted: 1, unfinished: 1 });
      expect([sql("select count(*) from pi_fleet.session"), unseen()]).toEqual(["0", 0]);
      goOn();
      expect((await wire.result("append", params)).entryIds).toHaveLength(6);
      expect([count(), (await lives.getAdmin().verify()).faults]).toEqual(["6", []]);
    });

    test("parts that are sent again after the session was taken again belong to the later turn", async () => {
      const { lives } = await machine();
      const { fleet } = suite.connect();
      const { epoch } = await taken({ fleet }, "s");
      const { lines, heads } = batchOf("s", epoch, NOTHING, ["{}", "[]"]);
      const [first] = computeStretches(NOTHING, lines.slice(0, 1));
      const [last] = computeStretches(first, lines.slice(1));
      const about = { sessionId: "s", before: NOTHING, place: epoch };
      const parts = [
        { ...about, from: NOTHING, lines: lines.slice(0, 1), heads: heads.slice(0, 1), stretches: [first] },
        { ...about, from: first, lines: lines.slice(1), heads: heads.slice(1), stretches: [last] },
      ];
      for (const part of parts) await fleet.keepPart({ ...part, epoch });
      const later = (await taken({ fleet }, "s")).epoch;
      expect(later).toBeGreaterThan(epoch);
      for (const part of parts) await fleet.keepPart({ ...part, epoch: later });
      const shown = { ...batchOf("s", later, NOTHING, [], { areBehind: true }), after: last, stretches: [first, last] };
      expect(await fleet.append({ ...shown, place: epoch })).toMatchObject({ kind: "committed" });
      // This suite stores neither header nor facts.
      const { faults } = await lives.getAdmin().verify();
      expect(faults.map(({ fault }) => fault)).toEqual(["header", "facts"]);
    });

    test("the last statement shows what it names, whole and in its order, or fails; what comes late changes nothing", async () => {
      const [one, two] = [suite.connect(), suite.connect()];
      const texts = range(0, 6).map((n) => `{"n":${n}}`);
      const partOf = (epoch: number, from: FleetEnd, some: readonly string[]): FleetPart => {
        const { lines, heads } = batchOf("s", epoch, from, some);
        const stretches = computeStretches(from, lines);
        return { sessionId: "s", epoch, before: NOTHING, place: epoch, from, lines, heads, stretches };
      };
      const last = (epoch: number, place: number, ...parts: readonly FleetPart[]): FleetBatch => {
        const stretches = parts.flatMap((part) => part.stretches);
        const after = stretches.at(-1) ?? NOTHING;
        return { ...batchOf("s", epoch, NOTHING, [], { areBehind: true }), after, stretches, place };
      };
      const committed = { kind: "committed" };
      const refused = { kind: "refused" };
      const { epoch } = await taken(one, "s");
      const first = partOf(epoch, NOTHING, texts.slice(0, 3));
      const second = partOf(epoch, first.stretches[0], texts.slice(3));
      for (const part of [first, first, second]) expect(await one.fleet.keepPart(part)).toMatchObject(committed);
      const other = partOf(epoch, first.stretches[0], ["{}", "{}", "{}"]);
      for (const wrong of [last(epoch, epoch, first), last(epoch, epoch, first, other), last(epoch, epoch + 1, first)])
        expect(await one.fleet.append(wrong)).toEqual(refused);
      expect([sql("select state, entries from pi_fleet.session"), unseen()]).toEqual(["0|0", 2]);
      // Another machine goes on, and the requests of the first that are on their way arrive.
      suite.endLeases();
      const next = (await taken(two, "s")).epoch;
      for (const part of [first, second]) expect(await one.fleet.keepPart(part)).toEqual(refused);
      expect(await one.fleet.append(last(epoch, epoch, first, second))).toEqual(refused);
      const theirs = partOf(next, NOTHING, texts);
      expect(await two.fleet.keepPart(theirs)).toMatchObject(committed);
      expect(unseen()).toBe(1);
      expect(await two.fleet.append(last(next, next, theirs))).toMatchObject(committed);
      expect([count(), unseen(), await linesOf(one, "s", 0, 6)]).toEqual(["6", 0, texts]);
    });
  });
});

describe.each(WHERE)("parts %s", SWEEP, (where) => {
  describe("a database that is killed", needsOf(where), () => {
    const { suite, unseen, count, machine } = partsIn(fleetSuite(suiteServer(), { isPooled: isPooled(where) }));

    // A pooler waits for seconds before it connects again; it cannot change anything on this side of the connection.
    const storesOfKills = isPooled(where) ? STORES.slice(0, 1) : STORES;

    test.each(
      storesOfKills.flatMap((kind) => [
        [kind, "before a part", "insert into pi_fleet.pack", false] as const,
        [kind, "with the answer to a part", "insert into pi_fleet.pack", true] as const,
        [kind, "before the last statement", "update pi_fleet.pack", false] as const,
        [kind, "with the answer to the last statement", "update pi_fleet.pack", true] as const,
      ]),
    )(
      "of %s, a database that is killed %s of a long commit has all of it or nothing",
      async (kind, _, sign, isSent) => {
        const { server } = suite.database;
        const { wire, lives, fleet } = await machine(kind);
        await wire.result("append", { entries: entries(0, 1) });
        let left = sign.startsWith("insert") ? 3 : 1;
        const end = meddle(fleet, async (text, ask) => {
          if (!text.includes(sign) || --left !== 0) return;
          if (isSent) await ask();
          await server.kill();
          return isSent ? { kind: "unknown", reason: "test: killed" } : undefined;
        });
        const params = { entries: entries(1, 10), idempotencyKey: "long" };
        const error = await wire.failure("append", params);
        end();
        await server.start();
        expect(left).toBe(0);
        const isUnknown = error.data.name === "outcome_unknown";
        expect(isUnknown ? ["1", "11"] : ["1"]).toContain(count());
        if (!isUnknown) expect(error.message).toContain("Nothing was changed");
        // A pooler waits before it connects again.
        const { entryIds } = await vi.waitFor(() => wire.result("append", params), SLOWLY);
        expect(await wire.result("append", params)).toMatchObject({ entryIds });
        expect([count(), unseen(), (await lives.getAdmin().verify()).faults]).toEqual(["11", 0, []]);
      },
    );
  });
});
