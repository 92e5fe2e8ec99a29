/**
 * Commits in parts in a real PostgreSQL: what of them is in its tables is seen by nobody before the last statement.
 *
 * @module-tag system
 */

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import type { FleetBatch, FleetEnd, FleetPart } from "../../../src/core/ports/fleet.ts";
import { NOTHING } from "../../../src/storage/fleet/ends.ts";
import { isolate, TENANTS } from "../../../src/storage/fleet/isolation.ts";
import { Outage } from "../../../src/storage/fleet/outage.ts";
import { stretchesOf } from "../../../src/storage/fleet/pack.ts";
import { Database, type TestDatabase } from "../../support/database.ts";
import { user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { PGBOUNCER, Pooler } from "../../support/pooler.ts";
import { POSTGRESQL, Postgres } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import { range } from "../../support/random.ts";
import type { Place } from "../../support/server.ts";
import { type SqlFleet, sqlFleet } from "../../support/sql-fleet.ts";
import { acrossTiers, SWEEP } from "../../support/tiers.ts";
import { runHere } from "../../support/verbs.ts";

const WHERE = ["in PostgreSQL", "of an isolated tenant in PostgreSQL", "in PostgreSQL behind PgBouncer"];

/** Returns what the tests of parts in one of these places need. */
const needsOf = (where: string) => (where.includes("PgBouncer") ? needs(POSTGRESQL, PGBOUNCER) : needs(POSTGRESQL));

const STORES = ["jsonl", "v2"] as const;

/** Returns how many messages the session files and the segments of a folder have. */
function linesBelow(folder: string): number {
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" });
  const files = names.filter((name) => /(?:^|\/)segments\/|^[^/]+\.jsonl$/.test(name));
  return files.reduce((sum, name) => sum + readFileSync(join(folder, name), "utf8").split('"role":').length - 1, 0);
}

const entries = (first: number, count: number) =>
  range(first, first + count).map((n) => user(`${n} ${"word ".repeat(500)}`));

/** Has one long commit of a fleet after the other end after its parts, until it goes on. */
function interrupt(one: SqlFleet): () => void {
  const append = one.fleet.append.bind(one.fleet);
  one.fleet.append = async (batch) => (batch.place === undefined ? append(batch) : { kind: "away", reason: "test" });
  return () => {
    one.fleet.append = append;
  };
}

/** Has the suite in which it is called have a database, and fleets that send commits of some KB in parts. */
function partsIn<Server extends TestDatabase>(where: string, make: () => Server) {
  let server: Server;
  let pooler: Pooler | undefined;
  const urlOf = (): string => {
    if (where.includes("tenant")) return `${server.url.replace("user=fleet", "user=alice")}&tenant=alice`;
    return pooler?.url ?? server.url;
  };
  const open: SqlFleet[] = [];
  const connect = (name: string): SqlFleet & { readonly partBytes: number } => {
    const fleet = { ...sqlFleet(urlOf(), name), partBytes: 4096 };
    open.push(fleet);
    return fleet;
  };
  beforeAll(async () => {
    server = make();
    await server.start();
    const owner = sqlFleet(server.url, "owner");
    open.push(owner);
    if (server instanceof Postgres) await owner.fleet.migrate();
    if (where.includes("tenant")) {
      await isolate(owner.connections);
      if (server instanceof Postgres) server.sql(`create role alice login in role ${TENANTS}`);
    }
    if (where.includes("PgBouncer")) {
      pooler = new Pooler({ database: server.name });
      await pooler.start(server.folder);
    }
  });
  beforeEach(() => {
    server.sql("truncate pi_fleet.session, pi_fleet.entry, pi_fleet.pack, pi_fleet.behind, pi_fleet.said");
  });
  afterAll(async () => {
    await Promise.all(open.map(({ fleet }) => fleet.close()));
    await pooler?.close();
    await server.close();
  });
  return {
    ...{ open, connect },
    get server() {
      return server;
    },
    unseen: (): number => Number(server.sql("select count(*) from pi_fleet.pack where generation < 0")),
    async prune(place: Place, ...args: string[]): Promise<string> {
      const { stdout, stderr } = await runHere(place, ["fleet", "prune", ...args], {
        variables: { PI_FLEET_URL: urlOf() },
      });
      expect(stderr).toBe("");
      return stdout;
    },
  };
}

acrossTiers(describe, WHERE)("parts %s", (where) => {
  describe("a database that is there", needsOf(where), () => {
    const database = partsIn(where, () => new Database());
    const { open, connect, unseen, prune } = database;
    const sql = (text: string): string => database.server.sql(text);

    acrossTiers(test, STORES)("what a commit has left that came to nothing is seen by nobody (%s)", async (kind) => {
      const one = connect(`left ${kind}`);
      const lives = new HereLives({ fleet: one, seed: 5 });
      const wire = await lives.start(["--store", kind]);
      await wire.result("append", { entries: entries(0, 6) });
      const { sessionId } = await wire.result("get_state");
      await vi.waitFor(() => expect(sql("select count(*) from pi_fleet.behind")).toBe("0"), { timeout: 20_000 });
      const seen = async () => {
        const away = new HereLives({ fleet: connect(`elsewhere ${open.length}`), seed: 10 + open.length });
        const other = await away.start(["--store", kind]);
        const listed = await other.result("list_sessions");
        const found = await other.result("search_sessions", { query: "word" });
        await other.result("switch_session", { sessionId });
        const { messages } = await other.result("get_messages");
        const stats = await other.result("get_session_stats");
        await other.result("clone");
        const { sessionId: cloned } = await other.result("get_state");
        await other.result("switch_session", { sessionId });
        await other.result("delete_session", { sessionId: cloned });
        const { faults } = await lives.care().verify();
        return [listed.sessions.length, found.hits.length, messages, stats.totalMessages, stats.tokens, faults];
      };
      const before = await seen();
      const goOn = interrupt(one);
      const params = { entries: entries(6, 6), idempotencyKey: "more" };
      expect((await wire.failure("append", params)).message).toContain("Nothing was changed");
      expect(unseen()).toBeGreaterThan(2);
      expect(await seen()).toEqual(before);
      expect(JSON.parse(await prune(lives.place, "--json"))).toMatchObject({ interrupted: 0 });
      sql("update pi_fleet.session set lease_until = now()");
      expect(await prune(lives.place)).toContain("parts of commits to 1 session");
      expect(await seen()).toEqual(before);
      goOn();
      // It took the session again, and sends everything to a place of its own.
      const { entryIds } = await wire.result("append", params);
      expect(await wire.result("append", params)).toMatchObject({ entryIds });
      expect(unseen()).toBe(0);
      expect(sql(`select entries from pi_fleet.session where id = '${sessionId}'`)).toBe("12");
      expect((await lives.care().verify()).faults).toEqual([]);
    });

    test("they go with a prune, and who wakes after it sends them anew", async () => {
      const one = connect("pruned");
      const lives = new HereLives({ fleet: one, seed: 5 });
      const wire = await lives.start();
      await wire.result("append", { entries: entries(0, 2) });
      const append = one.fleet.append.bind(one.fleet);
      const told: string[] = [];
      one.fleet.append = async (batch) => {
        // Stopped for longer than its lease, before the last statement.
        if (batch.place !== undefined && told.length === 0) {
          // The process lives: a renewal may come in between.
          for (let tries = 0; tries < 3 && unseen() > 0; tries++) {
            sql("update pi_fleet.session set lease_until = now()");
            told[0] = await prune(lives.place, "--apply", "--yes", "--json");
          }
          expect(unseen()).toBe(0);
        }
        return append(batch);
      };
      await wire.result("append", { entries: entries(2, 6) });
      expect(JSON.parse(told[0])).toMatchObject({ applied: true, interrupted: 1 });
      expect(sql("select entries from pi_fleet.session")).toBe("8");
      expect((await lives.care().verify()).faults).toEqual([]);
    });

    test("machines that open, follow, list and search in the middle of one see all of it after its end, and nothing before", async () => {
      const one = connect("writing");
      const lives = new HereLives({ fleet: one, seed: 5 });
      const wire = await lives.start();
      const other = await new HereLives({ fleet: connect("reading"), seed: 6 }).start();
      // A line of 30 KB is a part of its own.
      const texts = (first: number) => [...entries(first, 3), user("x".repeat(30_000)), ...entries(first + 3, 3)];
      let sessionId = "";
      const seen: unknown[] = [];
      const between = async (): Promise<void> => {
        const failed = await other.request("switch_session", { sessionId });
        const state = await other.result("get_state");
        const { sessions } = await other.result("list_sessions");
        const { hits } = await other.result("search_sessions", { query: "word" });
        seen.push([failed.error?.data.name ?? state.messageCount, sessions.length, hits.length > 0]);
      };
      const keepPart = one.fleet.keepPart.bind(one.fleet);
      one.fleet.keepPart = async (part, sent) => {
        const outcome = await keepPart(part, sent);
        sessionId = part.sessionId;
        await between();
        return outcome;
      };
      await wire.result("append", { entries: texts(0) });
      expect(new Set(seen.map((one) => JSON.stringify(one)))).toEqual(new Set(['["session_not_found",0,false]']));
      await vi.waitFor(() => expect(sql("select count(*) from pi_fleet.behind")).toBe("0"), { timeout: 20_000 });
      seen.length = 0;
      await between();
      expect(seen).toEqual([[7, 1, true]]);
      const before = seen.pop();
      await wire.result("append", { entries: texts(10) });
      expect(seen.length).toBeGreaterThan(4);
      for (const one of seen) expect(one).toEqual(before);
      // What others wrote is asked for beside everything else.
      await vi.waitFor(
        async () => {
          await between();
          expect(seen.at(-1)).toEqual([14, 1, true]);
        },
        { timeout: 20_000 },
      );
      expect((await lives.care().verify()).faults).toEqual([]);
    });

    // The sweep goes through every third statement after which it ends; parts.test.ts goes through all, in memory.
    acrossTiers(test, where === WHERE[0] ? [60, 3] : [3])(
      "what is long and was acknowledged without the database is given as a whole, whichever part is the last that arrives (in steps of %i)",
      async (step) => {
        for (const isBranched of [false, true])
          for (let at = 1, isOver = false; !isOver; at += step) {
            const name = `alone ${isBranched} ${at}`;
            const one = connect(name);
            let isAway = false;
            let left = Number.POSITIVE_INFINITY;
            const run = one.connections.run.bind(one.connections);
            one.connections.run = async (...given) =>
              isAway || --left < 0 ? { kind: "away", reason: "test: cut off" } : run(...given);
            const outage = new Outage(one.fleet, 0, () => performance.now());
            const lives = new HereLives({ fleet: { ...one, outage }, seed: 20 + open.length });
            const wire = await lives.start();
            await wire.result("append", { entries: entries(0, 1) });
            const { sessionId } = await wire.result("get_state");
            isAway = true;
            const params = { entries: entries(1, 6), idempotencyKey: "alone" };
            const { entryIds } = await wire.result("append", params);
            const { sessions } = await wire.result("list_sessions", { here: true });
            expect(sessions).toHaveLength(1);
            if (isBranched) {
              sql("update pi_fleet.session set lease_until = now()");
              const two = await new HereLives({ fleet: connect(`${name} other`), seed: 20 + open.length }).start();
              await two.result("switch_session", { sessionId });
              await two.result("append", { entries: [user("by another")] });
              await two.result("new_session");
              await two.result("get_state");
            }
            isAway = false;
            left = at;
            const count = (): number => Number(sql(`select entries from pi_fleet.session where id = '${sessionId}'`));
            const first = count();
            const pushed = await lives.care().push();
            isOver = left > 0;
            left = Number.POSITIVE_INFINITY;
            if (pushed.some(({ outcome }) => outcome === "refused"))
              expect([first, first + 6, first + 7]).toContain(count());
            await lives.care().push();
            await vi.waitFor(
              async () => {
                const again = await wire.result("append", params);
                expect(again).toMatchObject({ entryIds });
                expect(count()).toBeGreaterThanOrEqual(first + 6);
              },
              { timeout: 20_000, interval: 100 },
            );
            expect((await lives.care().verify()).faults).toEqual([]);
            sql(`update pi_fleet.session set lease_until = now()`);
            await lives.end();
          }
      },
    );

    test("a first push that came to nothing is nobody's session, and goes with its parts", async () => {
      const one = connect("first push");
      const lives = new HereLives({ fleet: one, seed: 5 });
      const wire = await lives.start();
      const goOn = interrupt(one);
      const params = { entries: entries(0, 6), idempotencyKey: "first" };
      expect((await wire.failure("append", params)).message).toContain("Nothing was changed");
      expect([sql("select state, entries from pi_fleet.session"), unseen() > 2]).toEqual(["0|0", true]);
      const other = await new HereLives({ fleet: connect("elsewhere"), seed: 6 }).start();
      expect((await other.result("list_sessions")).sessions).toEqual([]);
      sql("update pi_fleet.session set lease_until = now(), changed_at = now() - interval '40 days'");
      const pruned = await prune(lives.place, "--apply", "--yes", "--json");
      expect(JSON.parse(pruned)).toMatchObject({ interrupted: 1, unfinished: 1 });
      expect([sql("select count(*) from pi_fleet.session"), unseen()]).toEqual(["0", 0]);
      goOn();
      const { entryIds } = await wire.result("append", params);
      expect(entryIds).toHaveLength(6);
      expect(sql("select state, entries from pi_fleet.session")).toBe("1|6");
      expect((await lives.care().verify()).faults).toEqual([]);
    });

    test("the last statement shows what it names, whole and in its order, or fails; what comes late changes nothing", async () => {
      const [one, two] = [connect("one"), connect("two")];
      const header = Buffer.from('{"type":"session","id":"s"}');
      const taken = async ({ fleet }: SqlFleet) => {
        sql("update pi_fleet.session set lease_until = now()");
        const taking = await fleet.take("s", 0, header);
        if (taking.kind !== "taken") throw new Error(JSON.stringify(taking));
        return taking;
      };
      const texts = range(0, 6).map((n) => `{"n":${n}}`);
      const partOf = (epoch: number, place: number, from: FleetEnd, some: readonly string[]): FleetPart => {
        const lines = some.map((text) => Buffer.from(text));
        const heads = some.map((_, n) => JSON.stringify([String(from.entries + n), null, "message", "user"]));
        const stretches = stretchesOf(from, lines);
        return { sessionId: "s", epoch, before: NOTHING, place, from, lines, heads, stretches };
      };
      const last = (epoch: number, place: number, ...parts: readonly FleetPart[]): FleetBatch => {
        const stretches = parts.flatMap((part) => part.stretches);
        const facts = {
          counts: { messages: 0, modified: null, isPlain: true },
          texts: [],
          spendings: [],
          areBehind: true,
        };
        const about = { sessionId: "s", epoch, before: NOTHING, after: stretches.at(-1) ?? NOTHING, facts };
        return { ...about, lines: [], heads: [], stretches, place };
      };
      const committed = { kind: "committed" };
      const refused = { kind: "refused" };
      const { epoch } = await taken(one);
      const first = partOf(epoch, epoch, NOTHING, texts.slice(0, 3));
      const second = partOf(epoch, epoch, first.stretches[0], texts.slice(3));
      for (const part of [first, first, second]) expect(await one.fleet.keepPart(part)).toMatchObject(committed);
      const other = partOf(epoch, epoch, first.stretches[0], ["{}", "{}", "{}"]);
      for (const wrong of [last(epoch, epoch, first), last(epoch, epoch, first, other), last(epoch, epoch + 1, first)])
        expect(await one.fleet.append(wrong)).toEqual(refused);
      expect([sql("select state, entries from pi_fleet.session"), unseen()]).toEqual(["0|0", 2]);
      // Another one goes on, and what was on its way from the first arrives.
      const next = await taken(two);
      for (const part of [first, second]) expect(await one.fleet.keepPart(part)).toEqual(refused);
      expect(await one.fleet.append(last(epoch, epoch, first, second))).toEqual(refused);
      const theirs = partOf(next.epoch, next.epoch, NOTHING, texts);
      expect(await two.fleet.keepPart(theirs)).toMatchObject(committed);
      expect(unseen()).toBe(1);
      expect(await two.fleet.append(last(next.epoch, next.epoch, theirs))).toMatchObject(committed);
      expect([sql("select state, entries from pi_fleet.session"), unseen()]).toEqual(["1|6", 0]);
      const read: string[] = [];
      for await (const lines of one.fleet.lines("s", 0, 6))
        read.push(...lines.map((line) => Buffer.from(line).toString()));
      expect(read).toEqual(texts);
    });

    acrossTiers(describe, STORES)("of %s", (kind) =>
      test.each([
        ["short append", 1],
        ["long append", 6],
        ["clone", 0],
      ] as const)(
        "a %s that is repeated after its server was killed is answered when the fleet has it",
        async (what, count) => {
          const one = connect(`${kind} killed with a ${what}`);
          const lives = new HereLives({ fleet: one, seed: 40 + count });
          const wire = await lives.start(["--store", kind]);
          await wire.result("append", { entries: entries(0, 1) });
          const { sessionId, sessionFile } = await wire.result("get_state");
          const { append, keepPart } = one.fleet;
          // It is killed when the disk has the lines, and the database has not.
          let arrive = (): void => {};
          const isOnItsWay = new Promise<void>((resolve) => {
            arrive = resolve;
          });
          const never = (): Promise<never> => {
            arrive();
            return new Promise(() => {});
          };
          Object.assign(one.fleet, { append: never, keepPart: never });
          const isClone = count === 0;
          const [method, params] = isClone
            ? ["clone", { idempotencyKey: what }]
            : ["append", { sessionId, entries: entries(1, count), idempotencyKey: what }];
          void wire.request(method, params);
          await isOnItsWay;
          await vi.waitFor(() => expect(linesBelow(dirname(sessionFile))).toBe(isClone ? 2 : count + 1));
          await lives.kill();
          Object.assign(one.fleet, { append, keepPart });
          sql("update pi_fleet.session set lease_until = now()");
          const again = await lives.start(["--store", kind]);
          await again.result("switch_session", { sessionId });
          const run = one.connections.run;
          one.connections.run = async () => ({ kind: "away", reason: "test: away" });
          expect((await again.failure(method, params)).data).toMatchObject({ name: "storage_failed", retryable: true });
          one.connections.run = run;
          const { entryIds = [], sessionId: writtenId = sessionId } = await again.result(method, params);
          expect(entryIds).toHaveLength(count);
          expect(writtenId === sessionId).toBe(!isClone);
          const there = `select entries from pi_fleet.session where state = 1 and id = '${writtenId}'`;
          expect(sql(there)).toBe(String(count + 1));
          const { messages } = await again.result("get_messages");
          expect(messages).toHaveLength(count + 1);
          const { copies } = await lives.care().verify();
          expect(copies.map(({ state }) => state)).toEqual(isClone ? ["same", "same"] : ["same"]);
        },
      ),
    );
  });
});

describe.each(WHERE)("parts %s", SWEEP, (where) => {
  describe("a database that is killed", needsOf(where), () => {
    const database = partsIn(where, () => new Postgres());
    const { connect, unseen } = database;

    // A pooler waits for seconds before it connects again: what it may change is not on this side of the connection.
    const storesOfKills = where.includes("PgBouncer") ? STORES.slice(0, 1) : STORES;

    test.each(
      storesOfKills.flatMap((kind) => [
        [kind, "before a part", "insert into pi_fleet.pack", false] as const,
        [kind, "with the answer to a part", "insert into pi_fleet.pack", true] as const,
        [kind, "before the last statement", "update pi_fleet.pack", false] as const,
        [kind, "with the answer to the last statement", "update pi_fleet.pack", true] as const,
      ]),
    )(
      "of %s, a database that is killed %s of a long commit has all of it or nothing",
      async (kind, what, sign, isSent) => {
        const { server } = database;
        const one = connect(`${kind} killed ${what}`);
        const lives = new HereLives({ fleet: one, seed: 5 });
        const wire = await lives.start(["--store", kind]);
        await wire.result("append", { entries: entries(0, 1) });
        const { connections } = one;
        const run = connections.run.bind(connections);
        let left = sign.startsWith("insert") ? 3 : 1;
        connections.run = async (...given) => {
          const [question] = given;
          const { text } = typeof question === "function" ? question({ durability: "primary", version: "" }) : question;
          const isOurs = text.includes(sign) && --left === 0;
          if (isOurs && !isSent) await server.kill();
          const answer = await run(...given);
          if (!isOurs || !isSent) return answer;
          await server.kill();
          return { kind: "unknown", reason: "test: killed" };
        };
        const params = { entries: entries(1, 10), idempotencyKey: "long" };
        const error = await wire.failure("append", params);
        connections.run = run;
        await server.start();
        expect(left).toBe(0);
        expect(["1", "11"]).toContain(server.sql("select entries from pi_fleet.session"));
        if (error.data.name !== "outcome_unknown") {
          expect(error.message).toContain("Nothing was changed");
          expect(server.sql("select entries from pi_fleet.session")).toBe("1");
        }
        // A pooler waits before it connects again.
        const { entryIds } = await vi.waitFor(() => wire.result("append", params), { timeout: 20_000, interval: 100 });
        expect(await wire.result("append", params)).toMatchObject({ entryIds });
        expect(server.sql("select entries from pi_fleet.session")).toBe("11");
        expect([unseen(), (await lives.care().verify()).faults]).toEqual([0, []]);
      },
    );
  });
});
