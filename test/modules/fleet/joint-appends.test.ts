/**
 * Appends that are sent together: which of them, what becomes of each, and that one statement of a real PostgreSQL, which
 * keeps it under a name where nothing stands between, leaves what commits one by one leave.
 *
 * @module-tag system
 */

import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import type { FleetBatch, FleetFacts, FleetOutcome, FleetText } from "../../../src/core/ports/fleet.ts";
import type { Connections, SqlAnswer, SqlQuestion } from "../../../src/modules/fleet/postgres/connections.ts";
import { NOTHING } from "../../../src/modules/fleet/postgres/ends.ts";
import { type JointAppend, JointAppends } from "../../../src/modules/fleet/postgres/joint-appends.ts";
import { PostgresFleet } from "../../../src/modules/fleet/postgres/postgres.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL, urlOf } from "../../support/postgres.ts";
import { forSeedsAsync, type Random, range } from "../../support/random.ts";
import { temporaryFolder } from "../../support/server.ts";
import { SWEEP, UNIT } from "../../support/tiers.ts";
import { batchOf, type Held, NO_FACTS, taken } from "./support/commits.ts";
import { DatabaseProxy } from "./support/database-proxy.ts";
import { linesInDatabase } from "./support/databases.ts";
import { PGBOUNCER } from "./support/pooler.ts";
import type { SqlFleet } from "./support/sql-fleet.ts";
import { fleetSuite } from "./support/sql-machines.ts";

const DONE: FleetOutcome = { kind: "committed", durability: "primary" };

const SERVER = "7/1";

const batchTo = (id: string, bytes = 10) => batchOf({ id, epoch: 1, end: NOTHING }, ["x".repeat(bytes)]);
const appendTo = (sessionId: string, bytes?: number, server = SERVER): JointAppend => ({
  ...{ batch: batchTo(sessionId, bytes), sessionId, server },
});

/** Appends whose statements the test answers one after the other. */
class Statements {
  readonly asked: string[][] = [];
  private readonly answers: ((outcomes: readonly FleetOutcome[] | Error) => void)[] = [];
  readonly joint = new JointAppends<JointAppend>((appends) => {
    this.asked.push(appends.map(({ sessionId }) => sessionId));
    return new Promise((resolve, reject) =>
      this.answers.push((outcomes) => (outcomes instanceof Error ? reject(outcomes) : resolve(outcomes))),
    );
  });

  async answer(n: number, outcomes: readonly FleetOutcome[] | Error = this.asked[n].map(() => DONE)): Promise<void> {
    this.answers[n](outcomes);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

describe("appends of one process", UNIT, () => {
  test("go at once while few are on their way, and then together, each with its own outcome", async () => {
    const all = new Statements();
    const outcomes = range(0, 6).map((n) => all.joint.append(appendTo(`${n}`)));
    expect(all.asked).toEqual([["0"], ["1"]]);
    await all.answer(1);
    expect(all.asked[2]).toEqual(["2", "3", "4", "5"]);
    await all.answer(2, [DONE, { kind: "refused" }, { kind: "unknown", reason: "lost" }, DONE]);
    await all.answer(0, [{ kind: "away", reason: "gone" }]);
    expect((await Promise.all(outcomes)).map(({ kind }) => kind)).toEqual([
      ...["away", "committed", "committed", "refused", "unknown", "committed"],
    ]);
  });

  test("of one session, of sessions of different servers and of many bytes are apart, and none is left waiting", async () => {
    const all = new Statements();
    const some = [
      ...[appendTo("a"), appendTo("b"), appendTo("c"), appendTo("c"), appendTo("d", 10, "7/2")],
      ...[appendTo("e", 300_000), appendTo("f"), appendTo("g")],
    ];
    const outcomes = some.map((append) => all.joint.append(append));
    for (let n = 0; n < 6; n++) await all.answer(n);
    expect(all.asked).toEqual([["a"], ["b"], ["c", "f", "g"], ["c"], ["d"], ["e"]]);
    expect(await Promise.all(outcomes)).toEqual(some.map(() => DONE));
  });

  test("that are to be alone are, wherever they wait", async () => {
    const all = new Statements();
    const alone = (id: string): JointAppend => ({ ...appendTo(id), isAlone: true });
    const some = [appendTo("a"), appendTo("b"), appendTo("c"), alone("d"), appendTo("e"), alone("f"), appendTo("g")];
    const outcomes = some.map((append) => all.joint.append(append));
    for (let n = 0; n < 5; n++) await all.answer(n);
    expect(all.asked).toEqual([["a"], ["b"], ["c", "e", "g"], ["d"], ["f"]]);
    expect(await Promise.all(outcomes)).toEqual(some.map(() => DONE));
  });

  test("are no more than a statement should have", async () => {
    const all = new Statements();
    const outcomes = range(0, 200).map((n) => all.joint.append(appendTo(`${n}`)));
    for (let n = 0; n < 6; n++) await all.answer(n);
    expect(all.asked.map(({ length }) => length)).toEqual([1, 1, 64, 64, 64, 6]);
    await Promise.all(outcomes);
  });

  test("fail together where their statement cannot be made, and the next ones go on", async () => {
    const all = new Statements();
    const [first, second] = ["a", "b"].map((id) => all.joint.append(appendTo(id)));
    const third = all.joint.append(appendTo("c"));
    const failing = expect(first).rejects.toThrow("too long");
    await all.answer(0, new Error("too long"));
    await failing;
    await all.answer(1);
    await all.answer(2);
    expect(await Promise.all([second, third])).toEqual([DONE, DONE]);
  });

  test("go to the server on which their sessions were taken, also where one of these is let go while it waits", async () => {
    const asked: unknown[] = [];
    const answers: ((answer: SqlAnswer) => void)[] = [];
    const by = { durability: "primary", version: "", place: { system: "7", timeline: 1 } } as const;
    const end = { ...NOTHING, epoch: 1, generation: 0, server: SERVER, state: 0 };
    const connections = {
      run: (question: SqlQuestion): Promise<SqlAnswer> => {
        const statement = typeof question === "function" ? question(by) : question;
        if (!statement.text.includes("pi_fleet.entry")) return Promise.resolve({ kind: "done", rows: [end], by });
        asked.push((statement as { server?: string }).server);
        return new Promise((resolve) => answers.push(resolve));
      },
      read: () => Promise.resolve([end]),
    } as unknown as Connections;
    const fleet = new PostgresFleet(connections, { id: "me", shown: { client: "test", pid: 1, since: "" } });
    const ids = ["one", "two", "a", "b"];
    for (const id of ids) await fleet.take(id, 0, Buffer.from("{}"));
    const appends = ids.map((id) => fleet.append(batchTo(id)));
    await expect.poll(() => asked.length).toBe(2);
    await fleet.release("a", 1);
    answers[0]({ kind: "unknown", reason: "test" });
    await expect.poll(() => asked.length).toBe(3);
    expect(asked).toEqual([SERVER, SERVER, SERVER]);
    // The one that is on its way, and the next one: with it all that wait are answered.
    const waiting = fleet.append(batchTo("one"));
    await new Promise(setImmediate);
    answers[2]({ kind: "away", reason: "test" });
    expect([await waiting, asked.length]).toEqual([{ kind: "away", reason: "test" }, 3]);
    answers[1]({ kind: "away", reason: "test" });
    expect((await Promise.all(appends)).map(({ kind }) => kind)).toEqual(["unknown", "away", "away", "away"]);
  });
});

/** Columns that are independent of the writer and the time. */
const COLUMNS = {
  session: "id, generation, entries, bytes, chain, epoch, state, indexed, messages, modified, is_plain",
  entry: "session_id, generation, seq, epoch, head, line",
  said: "session_id, generation, seq, kind, nth, role, at, words",
  word: "word, unused_since",
  described: "session_id, facts, cwd, parent_path, parent_id, created, name_sought, sought",
  spent:
    "session_id, generation, quarter, provider, model, inherited, messages, unpriced, input, output, cache_read, cache_write, total, cost",
  behind: "session_id, worker = ''",
};

/** Facts that the database does not take. */
const TOO_MANY: FleetFacts = { ...NO_FACTS, counts: { ...NO_FACTS.counts, messages: 2 ** 70 } };

/** Words that a statement might take for something else. */
const HOSTILE = [..."o'clock|$1|\\|n\u0000l|\ud800|café|\"|'); drop table|\u{1f600}".split("|"), "x".repeat(300)];

function factsOf(random: Random, at: number): FleetFacts {
  const some = (): string | null => (random.chance(0.3) ? null : random.pick(HOSTILE));
  const texts: FleetText[] = range(0, random.int(3)).map((nth) => ({
    ...{ position: at, kind: random.pick(["talk", "calls"] as const), nth, role: "user" },
    time: random.chance(0.2) ? null : random.int(1e9),
    words: [...new Set(range(0, random.int(5)).map(() => `w${random.int(30)}`))],
    marks: random.chance(0.3) ? ["tool\u00a7read"] : [],
  }));
  const description = { cwd: some(), name: some(), firstMessage: some(), parentSession: some(), timestamp: some() };
  const spending = {
    ...{ quarter: random.int(3), provider: some(), model: some(), isInherited: random.chance(0.5) },
    numbers: range(0, 8).map(() => random.int(100)),
  };
  const modified = random.chance(0.2) ? null : random.int(1e9);
  return {
    counts: { messages: random.int(100), modified, isPlain: random.chance(0.5) },
    ...(random.chance(0.5) ? { description } : {}),
    ...{ texts, spendings: random.chance(0.5) ? [spending] : [] },
    ...(random.chance(0.1) ? { areBehind: true } : {}),
  };
}

describe("commits to many sessions in PostgreSQL", needs(POSTGRESQL), () => keeps(false));

describe("commits to many sessions behind PgBouncer", { ...SWEEP, ...needs(POSTGRESQL, PGBOUNCER) }, () => keeps(true));

function keeps(isPooled: boolean): void {
  const suite = fleetSuite(undefined, { isPooled });
  const connect = (name: string, options: { most?: number } = {}, query = ""): SqlFleet =>
    suite.open(name, { url: `${suite.url}${query}`, ...options });
  const many = (one: SqlFleet, name: string, count: number): Promise<Held[]> =>
    Promise.all(range(0, count).map((n) => taken(one, `${name}-${n}`)));
  const appendAll = (one: SqlFleet, batches: readonly FleetBatch[]): Promise<FleetOutcome[]> =>
    Promise.all(batches.map((batch) => one.fleet.append(batch)));
  const transactions = (): number => Number(suite.sql("select count(distinct xmin::text) from pi_fleet.entry"));

  test("are few transactions, and those that somebody took or that the database refuses hold up no other", async () => {
    const one = connect("one");
    const held = await many(one, "s", 20);
    held[3].epoch--;
    held[5].end = { ...NOTHING, chain: "1".repeat(64) };
    held[7].end = { ...NOTHING, entries: 1 };
    await connect("two").fleet.take("s-9", 0);
    suite.sql("update pi_fleet.session set epoch = epoch + 1, holder = 'another' where id = 's-11'");
    suite.sql("update pi_fleet.session set state = 2 where id = 's-13'");
    const outcomes = await appendAll(
      one,
      held.map((session) => batchOf(session, [`{"of":"${session.id}"}`])),
    );
    const refused = new Set([3, 5, 7, 11, 13]);
    expect(outcomes).toEqual(range(0, 20).map((n) => (refused.has(n) ? { kind: "refused" } : DONE)));
    for (const [n, { id }] of held.entries())
      expect(linesInDatabase(suite, id)).toEqual(refused.has(n) ? [] : [`{"of":"${id}"}`]);
    expect(transactions()).toBeLessThan(5);

    // The statements of a refused batch are sent one by one.
    const next = await many(one, "t", 12);
    const batches = next.map((session) => batchOf(session, ["{}"]));
    batches[6] = batchOf(next[6], ["{}"], TOO_MANY);
    expect((await appendAll(one, batches)).map(({ kind }) => kind)).toEqual(
      range(0, 12).map((n) => (n === 6 ? "unfit" : "committed")),
    );
    for (const [n, { id }] of next.entries()) expect(linesInDatabase(suite, id)).toEqual(n === 6 ? [] : ["{}"]);
  });

  test("that the database refuses over and over cost the others no statement of their own after the first time", async () => {
    const one = connect("one");
    const held = await many(one, "p", 12);
    // One of them cannot even be made a statement of.
    const facts: FleetFacts[] = [];
    facts[4] = TOO_MANY;
    facts[6] = { ...NO_FACTS, counts: { ...NO_FACTS.counts, messages: 1n as unknown as number } };
    /** Returns the number of transactions of a round in which each session commits, and some are refused. */
    const round = async (poisoned: readonly number[]): Promise<number> => {
      suite.sql("truncate pi_fleet.entry");
      const batches = held.map((session, n) => batchOf(session, ["{}"], poisoned.includes(n) ? facts[n] : NO_FACTS));
      const outcomes = await appendAll(one, batches);
      expect(outcomes.map(({ kind }) => kind)).toEqual(
        range(0, 12).map((n) => (poisoned.includes(n) ? "unfit" : "committed")),
      );
      for (const [n, session] of held.entries()) if (!poisoned.includes(n)) session.end = batches[n].after;
      return transactions();
    };
    const rounds: number[] = [];
    // One that is taken at last goes with the others again.
    for (const poisoned of [[4, 6], [4, 6], [4, 6], [4, 6], [6], [6], [], []]) rounds.push(await round(poisoned));
    expect(rounds).toEqual([10, 3, 3, 3, 4, 3, 4, 3]);
  });

  test("may spend for models whose names are the same where the database keeps them", async () => {
    const one = connect("one");
    const [session] = await many(one, "models", 1);
    const models = ["m\0", "m ", "\ud800", "\ud801", null, ""];
    const spendings = models.map((model, n) => ({
      ...{ quarter: 1, provider: "p", model, isInherited: false },
      numbers: range(0, 8).map((place) => (place === 0 ? 10 ** n : 0)),
    }));
    const batch = batchOf(session, ["{}"], { ...NO_FACTS, spendings });
    expect(await one.fleet.append(batch)).toEqual(DONE);
    expect(suite.sql("select messages from pi_fleet.spent order by messages").split("\n")).toEqual([
      ...["11", "1100", "110000"],
    ]);
  });

  test("leave what commits one by one leave", () => forSeedsAsync(3, leavesTheSame));

  async function leavesTheSame(random: Random): Promise<void> {
    const { seed } = random;
    const ways = [connect(`together ${seed}`, {}, "&tenant=together"), connect(`apart ${seed}`, {}, "&tenant=apart")];
    const [together, apart] = await Promise.all(ways.map((way) => many(way, `o'ne \ud83d\ude00 ${seed}`, 9)));
    for (let round = 0; round < 4; round++) {
      const some = range(0, 9).filter(() => random.chance(0.8));
      const batches = some.map((n) => {
        const texts = range(0, 1 + random.int(3)).map(() => JSON.stringify({ n, round, said: random.pick(HOSTILE) }));
        const facts = factsOf(random, together[n].end.entries);
        // A writer that knows something else.
        const wrong = random.chance(0.1) ? { epoch: together[n].epoch - 1 } : {};
        return [together, apart].map((all) => ({ ...batchOf(all[n], texts, facts), ...wrong }));
      });
      const joint = await appendAll(
        ways[0],
        batches.map(([batch]) => batch),
      );
      const single: FleetOutcome[] = [];
      for (const [, batch] of batches) single.push(await ways[1].fleet.append(batch));
      expect(joint).toEqual(single);
      for (const [i, n] of some.entries())
        if (joint[i].kind === "committed") for (const all of [together, apart]) all[n].end = batches[i][0].after;
    }
    const rows = (tenant: string): string[] => {
      const all = Object.entries(COLUMNS).map(
        ([table, columns]) =>
          `select '${table} ' || row(${columns})::text from pi_fleet.${table} where tenant = '${tenant}'`,
      );
      return suite.sql(`${all.join(" union all ")} order by 1`).split("\n");
    };
    const found = rows("together");
    expect(found).toEqual(rows("apart"));
    for (const table of Object.keys(COLUMNS)) expect(found.join("\n")).toContain(`${table} (`);
  }

  test("over connections that end at any point are there once, or known to be missing", () =>
    forSeedsAsync(2, survivesCuts));

  async function survivesCuts(random: Random): Promise<void> {
    const proxy = new DatabaseProxy(
      (suite.pooler ?? suite.database.server).folder,
      join(temporaryFolder(), "proxy"),
      random,
    );
    await proxy.listen();
    const one = suite.open(`cut ${random.seed}`, { url: urlOf(proxy.folder, suite.database.server.name) });
    const held = await many(one, `cut-${random.seed}`, 6);
    const known = held.map((): string[] => []);
    let unknown = 0;
    await Promise.all(
      held.map(async (session, n) => {
        for (let k = 0; k < 6; k++) {
          proxy.share = 0.1;
          const line = JSON.stringify({ n, k });
          const batch = batchOf(session, [line]);
          const { kind } = await one.fleet.append(batch);
          if (kind === "unknown") unknown++;
          if (kind === "committed") session.end = batch.after;
          else {
            const again = await vi.waitFor(() => taken(one, session.id, session.epoch), {
              timeout: 10_000,
              interval: 1,
            });
            expect(kind === "unknown" ? [session.end, batch.after] : [session.end]).toContainEqual(again.end);
            Object.assign(session, again);
          }
          if (session.end.entries > known[n].length) known[n].push(line);
        }
      }),
    );
    expect([proxy.cuts > 0, unknown > 0]).toEqual([true, true]);
    proxy.share = 0;
    for (const [n, { id }] of held.entries()) expect(linesInDatabase(suite, id)).toEqual(known[n]);
    await proxy.close();
  }

  test("go on when the server keeps their statement no more, or cannot run it as it was", async () => {
    const one = connect("one", { most: 1 });
    const session = await taken(one, "kept");
    /** Appends, and expects that it is committed. */
    const append = async (why?: string): Promise<void> => {
      const batch = batchOf(session, [`{"n":${session.end.entries}}`]);
      expect(await one.fleet.append(batch), why).toEqual(DONE);
      session.end = batch.after;
    };
    const names = async (): Promise<number> => {
      const [row] = await one.connections.read({ text: "select count(*) as n from pg_prepared_statements" });
      return Number(row.n);
    };
    for (let n = 0; n < 8; n++) await append();
    expect(await names()).toBe(isPooled ? 0 : 1);
    for (const [table, befalls] of [
      ["entry", "add column later text"],
      ["entry", "drop column later"],
      ["session", "alter column holder type varchar"],
      ["session", "alter column holder type text"],
    ]) {
      suite.sql(`alter table pi_fleet.${table} ${befalls}`);
      await append(befalls);
    }
    expect(one.connections.fact?.isDirect).toBe(isPooled ? undefined : true);
    await one.connections.run({ text: "deallocate all" });
    await append();
    expect(await names()).toBe(0);
    await append();
    const other = connect("other", { most: 1 });
    const another = await taken(other, "discarded");
    for (let n = 0; n < 2; n++) {
      const batch = batchOf(another, ["{}"]);
      expect(await other.fleet.append(batch)).toEqual(DONE);
      another.end = batch.after;
      await other.connections.run({ text: "discard all" });
    }
    expect(linesInDatabase(suite, "kept")).toEqual(range(0, session.end.entries).map((n) => `{"n":${n}}`));
  });
}
