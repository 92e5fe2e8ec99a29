/** Commits that are sent in parts: all or nothing for everybody, whatever ends in the middle of one. */

import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import type { Failure } from "../../../src/core/failure.ts";
import { bytesOf } from "../../../src/core/json/json.ts";
import { isolate, TENANTS } from "../../../src/storage/fleet/isolation.ts";
import { finishFacts } from "../../../src/storage/fleet/late-facts.ts";
import { Outage } from "../../../src/storage/fleet/outage.ts";
import { memoryStore } from "../../../src/storage/memory.ts";
import { user } from "../../support/drafts.ts";
import { type FleetFault, type FleetTable, MemoryFleet } from "../../support/fleet.ts";
import { failed, found, line, lines, Machine, type MachineKind, written } from "../../support/fleet-machine.ts";
import { id, SESSION, userText } from "../../support/lines.ts";
import { POOLER, Pooler } from "../../support/pooler.ts";
import { POSTGRES, Postgres, WITH_POSTGRES } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import { range } from "../../support/random.ts";
import type { Place } from "../../support/server.ts";
import { textsOf } from "../../support/sessions.ts";
import { type SqlFleet, sqlFleet } from "../../support/sql-fleet.ts";
import { runHere } from "../../support/verbs.ts";

/** Two lines of about 150 bytes. */
const PART = { partBytes: 350 };
const FIRST = [0, 1];
const BIG = range(2, 9);

/** Fails whenever a number of lines is seen that is not one of those that it returns. */
function watch(table: FleetTable, ...counts: number[]): number[] {
  const changed = table.changed.bind(table);
  table.changed = () => {
    const { isThere, end } = table.rows.get(SESSION) ?? { isThere: false, end: { entries: 0 } };
    expect(counts).toContain(isThere ? end.entries : 0);
    changed();
  };
  return counts;
}

/** Returns lines with these numbers, each of which continues the one before, and the first another one. */
function chain(parent: number, ns: readonly number[]): string[] {
  return ns.map((n, at) => userText(id(n), id(ns[at - 1] ?? parent)));
}

async function factsFinished(table: FleetTable): Promise<void> {
  const row = table.rows.get(SESSION);
  if (!row || row.indexed === row.end.entries) return;
  await finishFacts({ fleet: new MemoryFleet(table, "sweep"), memory: memoryStore() }, { id: SESSION, ...row });
  expect(row.indexed).toBe(row.end.entries);
}

/** One long commit, at whose call of that number something fails, and the commit after it. Returns whether there was such a call. */
async function commitsOnce(
  kind: MachineKind,
  before: readonly number[],
  { fault, at, tries, isGone }: { fault: FleetFault; at: number; tries: number; isGone: boolean },
): Promise<boolean> {
  const machine = new Machine(kind, undefined, "one", { ...PART, tries });
  const { fleet } = machine;
  const log = machine.create();
  if (before.length > 0) await written(log, ...before);
  const more = range(before.length, before.length + BIG.length);
  const all = [...before, ...more].map(line);
  const counts = watch(fleet.table, 0, before.length, all.length);
  let calls = 0;
  fleet.faultAt = () => {
    const call = calls++;
    return call === at || (isGone && call > at) ? (call > at ? "before" : fault) : undefined;
  };
  let told: Failure | undefined;
  const since = fleet.calls.length;
  try {
    await written(log, ...more);
  } catch (error) {
    told = error as Failure;
  }
  const isStruck = calls > at;
  const what = `${fault} at ${fleet.calls[since + at]}: ${told?.name}`;
  if (told) expect(["storage_failed", "outcome_unknown"], what).toContain(told.name);
  if (told?.name === "storage_failed") {
    expect(told.message).toContain("Nothing was changed");
    expect(fleet.table.linesOf(SESSION), what).toEqual(before.map(line));
  }
  if (!told) expect(fleet.table.linesOf(SESSION), what).toEqual(all);
  fleet.faultAt = () => undefined;
  const now = await found(log);
  // A host repeats what it does not know, unless it finds it.
  if (now.nodes.position(id(more[0])) < 0) await written(now, ...more);
  expect([fleet.table.linesOf(SESSION), textsOf(now)], what).toEqual([all, all]);
  counts.push(all.length + 1);
  await written(now, all.length);
  expect(fleet.table.linesOf(SESSION), what).toEqual([...all, line(all.length)]);
  await factsFinished(fleet.table);
  fleet.table.check();
  now.close();
  return isStruck;
}

describe.each(["jsonl", "v2"] as const)("with a copy as %s", (kind) => {
  test.each([
    ["of a session that is there", FIRST],
    ["of a new session", []],
  ] as const)("a long commit %s is there as a whole or not at all, whatever call fails", async (_, before) => {
    for (const fault of ["before", "after", "late"] as const)
      for (const isGone of [false, true])
        for (const tries of [0, 3])
          for (let at = 0; await commitsOnce(kind, before, { fault, at, tries, isGone }); at++);
  });

  test("of one that is sent again after a part without an answer, the parts that are there stay", async () => {
    const machine = new Machine(kind, undefined, "one", { ...PART, tries: 3 });
    const log = machine.create();
    await written(log, ...FIRST);
    const sent = vi.spyOn(machine.fleet, "keepPart");
    let parts = 0;
    machine.fleet.faultAt = (_, name) => (name === "keepPart" && ++parts === 3 ? "after" : undefined);
    await written(log, ...BIG);
    expect(sent.mock.calls.map(([part]) => part.from.entries)).toEqual([2, 4, 6, 6, 8]);
    expect(new Set(sent.mock.calls.map(([part]) => part.place)).size).toBe(1);
  });

  test("a writer that wakes in the middle of one, after others wrote, shows nothing of it, and keeps its lines", async () => {
    for (const isBig of [false, true])
      for (const stopped of ["keepPart", "append"]) {
        const one = new Machine(kind, undefined, "one", PART);
        const log = one.create();
        await written(log, ...FIRST);
        const two = new Machine(kind, one.fleet.table, "two", PART);
        two.fleet.leasesEnd = true;
        await two.put(FIRST.map(line));
        const other = two.store.open(two.file);
        // It is stopped at its second part, or before the last statement.
        let isStopped = false;
        let parts = 0;
        const append = one.fleet.append.bind(one.fleet);
        const keepPart = one.fleet.keepPart.bind(one.fleet);
        const theirs = chain(1, isBig ? range(10, 15) : [10]);
        const stop = async (): Promise<void> => {
          if (isStopped) return;
          isStopped = true;
          await other.ready?.();
          other.append(theirs.map((text) => bytesOf(text)));
          await other.commit();
        };
        one.fleet.keepPart = async (part, sent) => {
          if (stopped === "keepPart" && ++parts === 2) await stop();
          return keepPart(part, sent);
        };
        one.fleet.append = async (batch, sent) => {
          await stop();
          return append(batch, sent);
        };
        await expect(written(log, ...BIG)).rejects.toEqual(failed("session_locked"));
        const now = [...FIRST.map(line), ...theirs];
        expect(one.fleet.table.linesOf(SESSION)).toEqual(now);
        expect(one.aside).toEqual(BIG.map(line));
        expect(textsOf(log).slice(0, 2)).toEqual(FIRST.map(line));
        // What others write after it, in parts or not, is what they wrote.
        const more = chain(10, range(20, 26));
        for (const texts of [more.slice(0, 5), more.slice(5)]) {
          other.append(texts.map((text) => bytesOf(text)));
          await other.commit();
        }
        const all = [...now, ...more];
        expect([one.fleet.table.linesOf(SESSION), textsOf(other)]).toEqual([all, all]);
        other.close();
        await factsFinished(one.fleet.table);
        one.fleet.table.check();
      }
  });

  test("a process that ends between two parts leaves a session without any, and the next one gives what its copy has", async () => {
    for (const ends of [1, 2, 3, 4, 5]) {
      const one = new Machine(kind, undefined, "one", PART);
      const log = one.create();
      await written(log, ...FIRST);
      let calls = 0;
      let isOver: () => void = () => {};
      const over = new Promise<void>((resolve) => {
        isOver = resolve;
      });
      // From then on it does nothing more.
      one.fleet.turns = () => {
        if (++calls < ends) return Promise.resolve();
        isOver();
        return new Promise(() => {});
      };
      log.append(lines(...BIG));
      log.commit().catch(() => {});
      await over;
      expect(one.fleet.table.linesOf(SESSION)).toEqual(FIRST.map(line));
      const again = new Machine(kind, one.fleet.table, "one again", { ...PART, disk: one.disk });
      again.fleet.leasesEnd = true;
      const next = await found(again.store.open(one.file));
      const here = textsOf(next).length;
      expect([FIRST.length, FIRST.length + BIG.length]).toContain(here);
      await written(next, 9);
      const all = [...FIRST, ...(here > FIRST.length ? BIG : []), 9].map(line);
      expect([one.fleet.table.linesOf(SESSION), textsOf(next)]).toEqual([all, all]);
      await factsFinished(one.fleet.table);
      one.fleet.table.check();
    }
  });

  test("what was acknowledged while the fleet was away, and is long, is given as a whole, whatever call fails", async () => {
    for (const fault of ["before", "after", "late"] as const)
      for (let at = 0, isStruck = true; isStruck; at++) {
        const machine = new Machine(kind, undefined, "one", { ...PART, isJournaled: true });
        const { fleet, journal } = machine;
        const log = machine.create();
        await written(log, ...FIRST);
        fleet.faultAt = () => "before";
        await written(log, ...BIG);
        expect(log.durability).toBe("local");
        const all = [...FIRST, ...BIG].map(line);
        watch(fleet.table, FIRST.length, all.length, all.length + 1);
        let calls = 0;
        fleet.faultAt = () => (calls++ === at ? fault : undefined);
        let now = await found(log);
        isStruck = calls > at;
        fleet.faultAt = () => undefined;
        now = await found(now);
        await written(now, 9);
        now = await found(now);
        expect([fleet.table.linesOf(SESSION), textsOf(now)]).toEqual([
          [...all, line(9)],
          [...all, line(9)],
        ]);
        expect([machine.aside, journal.of(SESSION)?.from ?? null]).toEqual([[], null]);
        await factsFinished(fleet.table);
        fleet.table.check();
        now.close();
      }
  });
});

describe
  .skipIf(!POSTGRES)
  .each([
    `parts in PostgreSQL${WITH_POSTGRES}`,
    ...(POSTGRES ? ["parts of an isolated tenant in PostgreSQL"] : []),
    ...(POOLER ? ["parts in PostgreSQL behind PgBouncer"] : []),
  ])("%s", (where) => {
  let server: Postgres;
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
  const entries = (first: number, count: number) =>
    range(first, first + count).map((n) => user(`${n} ${"word ".repeat(500)}`));
  const unseen = (): number => Number(server.sql("select count(*) from pi_fleet.pack where generation < 0"));
  const prune = async (place: Place, ...args: string[]) => {
    const { stdout, stderr } = await runHere(place, ["fleet", "prune", ...args], {
      variables: { PI_FLEET_URL: urlOf() },
    });
    expect(stderr).toBe("");
    return stdout;
  };
  /** Has the next long commit of a fleet end after its parts. */
  const interrupt = (one: SqlFleet): (() => void) => {
    const append = one.fleet.append.bind(one.fleet);
    one.fleet.append = async (batch, sent) =>
      batch.place === undefined ? append(batch, sent) : { kind: "away", reason: "test" };
    return () => {
      one.fleet.append = append;
    };
  };

  beforeAll(async () => {
    server = new Postgres();
    await server.start();
    const owner = sqlFleet(server.url, "owner");
    open.push(owner);
    await owner.fleet.migrate();
    if (where.includes("tenant")) {
      await isolate(owner.connections);
      server.sql(`create role alice login in role ${TENANTS}`);
    }
    if (where.includes("PgBouncer")) {
      pooler = new Pooler();
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

  test.each(["jsonl", "v2"])("what a commit has left that came to nothing is seen by nobody (%s)", async (kind) => {
    const one = connect(`left ${kind}`);
    const lives = new HereLives({ fleet: one, seed: 5 });
    const wire = await lives.start(["--store", kind]);
    await wire.result("append", { entries: entries(0, 6) });
    const { sessionId } = await wire.result("get_state");
    await vi.waitFor(() => expect(server.sql("select count(*) from pi_fleet.behind")).toBe("0"), { timeout: 20_000 });
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
    server.sql("update pi_fleet.session set lease_until = now()");
    expect(await prune(lives.place)).toContain("parts of commits to 1 session");
    expect(await seen()).toEqual(before);
    goOn();
    // It took the session again, and sends everything to a place of its own.
    const { entryIds } = await wire.result("append", params);
    expect(await wire.result("append", params)).toMatchObject({ entryIds });
    expect(unseen()).toBe(0);
    expect(server.sql(`select entries from pi_fleet.session where id = '${sessionId}'`)).toBe("12");
    expect((await lives.care().verify()).faults).toEqual([]);
  });

  test("they go with a prune, and who wakes after it sends them anew", async () => {
    const one = connect("pruned");
    const lives = new HereLives({ fleet: one, seed: 5 });
    const wire = await lives.start();
    await wire.result("append", { entries: entries(0, 2) });
    const append = one.fleet.append.bind(one.fleet);
    const told: string[] = [];
    one.fleet.append = async (batch, sent) => {
      // Stopped for longer than its lease, before the last statement.
      if (batch.place !== undefined && told.length === 0) {
        server.sql("update pi_fleet.session set lease_until = now()");
        told.push(await prune(lives.place, "--apply", "--yes", "--json"));
        expect(unseen()).toBe(0);
      }
      return append(batch, sent);
    };
    await wire.result("append", { entries: entries(2, 6) });
    expect(JSON.parse(told[0])).toMatchObject({ applied: true, interrupted: 1 });
    expect(server.sql("select entries from pi_fleet.session")).toBe("8");
    expect((await lives.care().verify()).faults).toEqual([]);
  });

  test.each([
    ["before a part", "insert into pi_fleet.pack", false],
    ["with the answer to a part", "insert into pi_fleet.pack", true],
    ["before the last statement", "update pi_fleet.pack", false],
    ["with the answer to the last statement", "update pi_fleet.pack", true],
  ])("a database that is killed %s of a long commit has all of it or nothing", async (what, sign, isSent) => {
    const one = connect(`killed ${what}`);
    const lives = new HereLives({ fleet: one, seed: 5 });
    const wire = await lives.start();
    await wire.result("append", { entries: entries(0, 1) });
    const { connections } = one;
    const run = connections.run.bind(connections);
    let left = sign.startsWith("insert") ? 3 : 1;
    connections.run = async (...given) => {
      const isOurs = "text" in given[0] && given[0].text.includes(sign) && --left === 0;
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
    const { entryIds } = await wire.result("append", params);
    expect(await wire.result("append", params)).toMatchObject({ entryIds });
    expect(server.sql("select entries from pi_fleet.session")).toBe("11");
    expect([unseen(), (await lives.care().verify()).faults]).toEqual([0, []]);
  });

  test("machines that open, follow, list and search in the middle of one see all of it after its end, and nothing before", async () => {
    const one = connect("writing");
    const lives = new HereLives({ fleet: one, seed: 5 });
    const wire = await lives.start();
    const other = await new HereLives({ fleet: connect("reading"), seed: 6 }).start();
    // A line of 3 MB is a part of its own.
    const texts = (first: number) => [...entries(first, 3), user("x".repeat(3_000_000)), ...entries(first + 3, 3)];
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
    await vi.waitFor(() => expect(server.sql("select count(*) from pi_fleet.behind")).toBe("0"), { timeout: 20_000 });
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

  test("what is long and was acknowledged without the database is given as a whole, whichever part is the last that arrives", async () => {
    for (const isBranched of [false, true])
      for (let at = 1, isOver = false; !isOver; at += 3) {
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
          server.sql("update pi_fleet.session set lease_until = now()");
          const two = await new HereLives({ fleet: connect(`${name} other`), seed: 20 + open.length }).start();
          await two.result("switch_session", { sessionId });
          await two.result("append", { entries: [user("by another")] });
          await two.result("new_session");
          await two.result("get_state");
        }
        isAway = false;
        left = at;
        const count = (): number =>
          Number(server.sql(`select entries from pi_fleet.session where id = '${sessionId}'`));
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
        server.sql(`update pi_fleet.session set lease_until = now()`);
        await lives.end();
      }
  });
});
