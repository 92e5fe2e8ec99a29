/**
 * Packs in a real PostgreSQL: sessions of which some lines are packed read like others, whoever reads them.
 *
 * @module-tag system
 */

import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { textOf } from "../../../src/core/json/json.ts";
import type { FleetBatch, FleetEnd, FleetPart } from "../../../src/core/ports/fleet.ts";
import { endAfter, NOTHING } from "../../../src/storage/fleet/ends.ts";
import { finishFacts } from "../../../src/storage/fleet/late-facts.ts";
import { LateSweep } from "../../../src/storage/fleet/late-sweep.ts";
import { stretchesOf } from "../../../src/storage/fleet/pack.ts";
import { memoryStore } from "../../../src/storage/memory.ts";
import { Database, suiteServer, type TestDatabase } from "../../support/database.ts";
import { user } from "../../support/drafts.ts";
import { headerText, userText } from "../../support/lines.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import { forSeedsAsync } from "../../support/random.ts";
import { type SqlFleet, sqlFleet } from "../../support/sql-fleet.ts";
import { acrossTiers, SWEEP } from "../../support/tiers.ts";

/** Has commits of some KB be sent in parts, of a line of 2 KB or two each. */
const PARTS = { partBytes: 4096 };
const ODD = "odd \u0000 \ud800";

async function linesOf({ fleet }: SqlFleet, id: string, from: number, to: number): Promise<string[]> {
  const lines: string[] = [];
  for await (const some of fleet.lines(id, from, to)) lines.push(...some.map((line) => textOf(line)));
  return lines;
}

/** Has something happen in the middle of a long commit; with `again` it fails, and the host does it again after that. */
async function interrupted(
  server: TestDatabase,
  connect: (name: string) => SqlFleet,
  interrupt: (sessionId: string) => Promise<void>,
  again?: () => Promise<void>,
): Promise<void> {
  const one = connect("interrupted");
  const lives = new HereLives({ fleet: { ...one, ...PARTS }, seed: 5 });
  const wire = await lives.start();
  await wire.result("append", { entries: [user("begins")] });
  const { sessionId } = await wire.result("get_state");
  const entries = Array.from({ length: 24 }, (_, n) => user(`${n} ${"x ".repeat(1000)}`));
  const keepPart = one.fleet.keepPart.bind(one.fleet);
  let parts = 0;
  one.fleet.keepPart = async (part, given) => {
    if (++parts === 3) await interrupt(sessionId);
    return keepPart(part, given);
  };
  const params = { entries, idempotencyKey: "long" };
  if (again) {
    const error = await wire.failure("append", params);
    expect(error).toMatchObject({
      message: expect.stringContaining("Nothing was changed"),
      data: { name: "storage_failed" },
    });
    await again();
    expect(server.sql("select entries from pi_fleet.session")).toBe("1");
    expect(server.sql("select count(*) > 0 from pi_fleet.pack")).toBe("t");
  }
  const { entryIds } = await wire.result("append", params);
  expect(await wire.result("append", params)).toMatchObject({ entryIds });
  expect(server.sql("select count(*) from pi_fleet.pack where generation < 0")).toBe("0");
  const count = Number(server.sql("select entries from pi_fleet.session"));
  const lines = (await linesOf(one, sessionId, 0, count)).map((line) => JSON.parse(line));
  const ids = lines.map(({ id }) => id);
  expect(ids.slice(1)).toEqual(entryIds);
  expect(lines.slice(1).map(({ message }) => Number.parseInt(message.content, 10))).toEqual(entries.map((_, n) => n));
  await vi.waitFor(() => expect(server.sql("select entries - indexed from pi_fleet.session")).toBe("0"), {
    timeout: 30_000,
  });
  expect(server.sql("select count(*) from pi_fleet.said")).toBe(String(count));
  const { faults, copies } = await lives.care().verify();
  expect([faults, copies.map(({ state }) => state)]).toEqual([[], ["same"]]);
}

describe("packs in a PostgreSQL that is killed", { ...SWEEP, ...needs(POSTGRESQL) }, () => {
  const database = suiteServer();
  test("of a long commit in the middle of which the database is killed, what is acknowledged is there once, in its order", async () => {
    const { server, connect } = database;
    await interrupted(
      server,
      connect,
      () => server.kill(),
      () => server.start(),
    );
  });
});

describe("packs in PostgreSQL", needs(POSTGRESQL), () => {
  let server: Database;
  const open: SqlFleet[] = [];
  const connect = (name: string): SqlFleet => {
    const fleet = sqlFleet(server.url, name);
    open.push(fleet);
    return fleet;
  };
  const idOf = (n: number): string => (n % 7 === 3 ? `${ODD} ${n}` : `n${n}`);
  const lineOf = (n: number, text = `say ${n}`): string => userText(idOf(n), n === 0 ? null : idOf(n - 1), text);
  const batchOf = (
    id: string,
    epoch: number,
    before: FleetEnd,
    texts: readonly string[],
    isLong: boolean,
  ): FleetBatch => {
    const lines = texts.map((text) => Buffer.from(text));
    const heads = texts.map((text) => {
      const { id: entryId, parentId } = JSON.parse(text);
      return JSON.stringify([entryId, parentId, "message", "user"]);
    });
    const counts = { messages: before.entries + texts.length, modified: null, isPlain: true };
    const description = { cwd: null, name: null, firstMessage: null, parentSession: null, timestamp: null };
    const facts = { counts, description, texts: [], spendings: [], areBehind: isLong || before.entries > 0 };
    const about = { sessionId: id, epoch, before, after: endAfter(before, lines), lines, heads, facts };
    return isLong ? { ...about, stretches: stretchesOf(before, lines) } : about;
  };
  const taken = async ({ fleet }: SqlFleet, id: string): Promise<number> => {
    const taking = await fleet.take(id, 0, Buffer.from(headerText({ id })));
    if (taking.kind !== "taken") throw new Error(JSON.stringify(taking));
    return taking.epoch;
  };

  beforeAll(async () => {
    server = new Database();
    await server.start();
  });
  beforeEach(() => {
    server.sql("truncate pi_fleet.session, pi_fleet.entry, pi_fleet.pack, pi_fleet.behind, pi_fleet.said");
  });
  afterAll(async () => {
    await Promise.all(open.map(({ fleet }) => fleet.close()));
    await server.close();
  });

  acrossTiers(test, [2, 6])(
    "any stretch of a session of rows and packs is read as it was written, lines and heads (%i)",
    async (count) => {
      const one = connect("one");
      await forSeedsAsync(count, async (random) => {
        const id = `session ${random.int(1e9)}`;
        const epoch = await taken(one, id);
        let end = NOTHING;
        const all: string[] = [];
        for (let n = 1 + random.int(6); n > 0; n--) {
          const texts = Array.from({ length: 1 + random.int(30) }, (_, i) =>
            lineOf(all.length + i, "x".repeat(random.chance(0.1) ? random.int(900_000) : random.int(200))),
          );
          const batch = batchOf(id, epoch, end, texts, random.chance(0.6));
          expect(await one.fleet.append(batch)).toMatchObject({ kind: "committed" });
          expect(await one.fleet.append(batch), "a second time").toEqual({ kind: "refused" });
          end = batch.after;
          all.push(...texts);
        }
        expect(await linesOf(one, id, 0, all.length)).toEqual(all);
        for (let tries = 0; tries < 10; tries++) {
          const from = random.int(all.length);
          const to = from + random.int(all.length - from + 1);
          expect(await linesOf(one, id, from, to)).toEqual(all.slice(from, to));
          const ids: string[] = [];
          for await (const heads of one.fleet.heads(id, from, to))
            ids.push(...heads.map((head) => JSON.parse(head)[0]));
          expect(ids).toEqual(all.slice(from, to).map((text) => JSON.parse(text).id));
        }
        expect(await one.catalog.heads(id)).toHaveLength(all.length);
        expect(await one.keeper.checked(id)).toMatchObject({ rows: all.length, hasGap: false, epochsFall: false });
        await expect(linesOf(one, id, 0, all.length + 1)).rejects.toMatchObject({ name: "storage_failed" });
      });
    },
  );

  test.each(["rows", "packs"])(
    "of lines that become long, %s are fetched by their bytes, whatever the length of those before",
    async (kind) => {
      const one = connect(`by bytes ${kind}`);
      const epoch = await taken(one, kind);
      const LONG = 1 << 20;
      const long = (): string => randomBytes((LONG * 3) / 4).toString("base64");
      let end = NOTHING;
      const all: string[] = [];
      for (const [count, text] of [[64, () => "short"] as const, [6, long] as const, [100, () => "short"] as const]) {
        const texts = Array.from({ length: count }, (_, n) => lineOf(all.length + n, text()));
        const batch = batchOf(kind, epoch, end, texts, kind === "packs");
        expect((await one.fleet.append(batch)).kind).toBe("committed");
        end = batch.after;
        all.push(...texts);
      }
      const asking = vi.spyOn(one.connections, "run");
      for (const from of [0, 63, 68]) expect(await linesOf(one, kind, from, all.length)).toEqual(all.slice(from));
      for (const { value } of asking.mock.results) {
        const { rows } = await value;
        const values: unknown[] = rows.flatMap((row: object) => Object.values(row));
        const bytes = values.reduce((sum: number, one) => sum + (one instanceof Uint8Array ? one.length : 0), 0);
        // Two MB and the line that comes then, a third more where that is base64.
        expect(bytes).toBeLessThan(((2 << 20) + LONG + 1e5) * (4 / 3));
      }
    },
  );

  test("a pack that is missing, or twice there, is found", async () => {
    const one = connect("one");
    const epoch = await taken(one, "torn");
    const texts = Array.from({ length: 6 }, (_, n) => lineOf(n, "x".repeat(300_000)));
    await one.fleet.append(batchOf("torn", epoch, NOTHING, texts, true));
    const rowOf = () => one.keeper.checked("torn");
    expect(server.sql("select count(*) from pi_fleet.pack")).toBe("6");
    server.sql("delete from pi_fleet.pack where seq = 2");
    expect(await rowOf()).toMatchObject({ rows: 5, hasGap: true });
    await expect(linesOf(one, "torn", 0, 6)).rejects.toMatchObject({ name: "storage_failed" });
    const heads = one.fleet.heads("torn", 0, 6)[Symbol.asyncIterator]();
    await expect(heads.next()).rejects.toMatchObject({ name: "storage_failed" });
    server.sql("update pi_fleet.pack set count = 2 where seq = 4");
    expect(await rowOf()).toMatchObject({ rows: 6, hasGap: true });
  });

  test("what was said in packs is found, once its facts are there, which another process adds", async () => {
    const one = connect("one");
    const epoch = await taken(one, "said");
    const texts = Array.from({ length: 40 }, (_, n) => lineOf(n, `word${n} ${"x".repeat(20_000)}`));
    const batch = batchOf("said", epoch, NOTHING, texts, true);
    expect((await one.fleet.append(batch)).kind).toBe("committed");
    const after = batchOf("said", epoch, batch.after, [lineOf(40, "word40")], false);
    expect((await one.fleet.append(after)).kind).toBe("committed");
    const { sessions } = await one.catalog.list({}, undefined, undefined);
    expect(sessions).toMatchObject([{ id: "said", messages: 41 }]);
    expect(await one.catalog.behind()).toBe(1);
    const two = connect("two");
    expect(await two.keeper.claimBehind(), "while the first may be adding them").toBeNull();
    server.sql("update pi_fleet.behind set until = now()");
    const [claimed, other] = await Promise.all([two.keeper.claimBehind(), connect("three").keeper.claimBehind()]);
    expect([claimed, other].filter((one) => one !== null)).toHaveLength(1);
    const behind = claimed ?? other;
    if (!behind) throw new Error("not claimed");
    expect(behind).toMatchObject({ id: "said", indexed: 0, end: after.after });
    expect(await finishFacts({ fleet: two.fleet, memory: memoryStore() }, behind)).toBe(true);
    expect(await finishFacts({ fleet: two.fleet, memory: memoryStore() }, behind), "a second time").toBe(false);
    expect(await one.catalog.behind()).toBe(0);
    expect(server.sql("select count(*) from pi_fleet.behind")).toBe("0");
    expect(server.sql("select indexed || ' ' || entries from pi_fleet.session")).toBe("41 41");
    const found = await two.catalog.texts({
      ...{ kinds: new Map([["talk", undefined]]), words: [["word7", "word39", "word40"]], except: [], limit: 10 },
    });
    expect(found.map(({ position, line, entryId }) => [position, textOf(line), entryId]).sort()).toEqual(
      [7, 39, 40].map((n) => [n, n === 40 ? lineOf(40, "word40") : texts[n], idOf(n)]).sort(),
    );
  });

  test("facts of entries are not added twice, nor where the session was taken since", async () => {
    const [one, two] = [connect("one"), connect("two")];
    const epoch = await taken(one, "late");
    await one.fleet.append(batchOf("late", epoch, NOTHING, [lineOf(0), lineOf(1)], true));
    const late = { sessionId: "late", epoch, from: 0, to: 1, texts: [], spendings: [] };
    const outcomes = await Promise.all(Array.from({ length: 4 }, () => two.fleet.addFacts(late)));
    expect(outcomes.map(({ kind }) => kind).sort()).toEqual(["committed", "refused", "refused", "refused"]);
    expect((await two.fleet.addFacts({ ...late, from: 1, to: 3 })).kind, "entries that are not there").toBe("refused");
    const next = await taken(one, "late");
    expect((await two.fleet.addFacts({ ...late, from: 1, to: 2 })).kind).toBe("refused");
    expect((await two.fleet.addFacts({ ...late, from: 1, to: 2, epoch: next })).kind).toBe("committed");
  });

  test("a long commit is listed at once, and found when its words are there; until then a search says so", async () => {
    const one = connect("long");
    const words = ["first", "second", "third"];
    // A process that dies when the lines are there.
    const dying = {
      ...{ ...one, ...PARTS },
      fleet: Object.assign(Object.create(one.fleet), { addFacts: () => new Promise(() => {}) }),
    };
    const lives = new HereLives({ fleet: dying, seed: 1 });
    const wire = await lives.start();
    await wire.result("append", { entries: words.map((word) => user(`${word} ${"x ".repeat(1000)}`)) });
    const two = connect("searching");
    const reader = new HereLives({ fleet: two, seed: 2 });
    const other = await reader.start();
    expect((await other.result("list_sessions")).sessions).toMatchObject([{ messageCount: 3 }]);
    const before = await other.result("search_sessions", { query: "second" });
    expect(before).toMatchObject({ hits: [], limited: expect.stringMatching(/ask again/) });
    expect((await other.result("get_usage")).limited).toMatch(/ask again/);
    expect(server.sql("select count(*) from pi_fleet.entry")).toBe("0");
    await lives.kill();
    server.sql("update pi_fleet.behind set until = now()");
    const sweep = new LateSweep(() => reader.care().finishLate(), 0);
    onTestFinished(() => sweep.end());
    const found = await vi.waitFor(
      async () => {
        const reply = await other.result("search_sessions", { query: "second" });
        expect(reply.limited).toBeUndefined();
        return reply;
      },
      { timeout: 20_000, interval: 200 },
    );
    expect(found.hits).toHaveLength(1);
    const { sessionId } = found.hits[0];
    await other.result("switch_session", { sessionId });
    expect((await other.result("get_state")).messageCount).toBe(3);
  });

  test("a clone of a long session is copied by the database, without its lines, and one of a source that is gone is sent", async () => {
    const one = connect("cloning");
    const lives = new HereLives({ fleet: { ...one, ...PARTS }, seed: 3 });
    const wire = await lives.start();
    const texts = Array.from({ length: 8 }, (_, n) => `text${n} ${"x ".repeat(900)}`);
    await wire.result("append", { entries: texts.map((text) => user(text)) });
    const { sessionId: source } = await wire.result("get_state");
    await vi.waitFor(() => expect(server.sql("select count(*) from pi_fleet.behind")).toBe("0"), { timeout: 20_000 });
    const sent: (FleetBatch | FleetPart)[] = [];
    const append = one.fleet.append.bind(one.fleet);
    const keepPart = one.fleet.keepPart.bind(one.fleet);
    let before = (): void => {};
    one.fleet.append = (batch) => {
      before();
      sent.push(batch);
      return append(batch);
    };
    one.fleet.keepPart = (part, given) => {
      sent.push(part);
      return keepPart(part, given);
    };
    for (const isGone of [false, true]) {
      sent.length = 0;
      // Removed for good between the question and the copy.
      before = () => isGone && server.sql(`delete from pi_fleet.pack where session_id = '${source}' and seq = 4`);
      await wire.result("switch_session", { sessionId: source });
      await wire.result("clone");
      const { sessionId } = await wire.result("get_state");
      expect(sent[0]).toMatchObject({ source, lines: [] });
      expect(sent.reduce((sum, { lines }) => sum + lines.length, 0)).toBe(isGone ? 8 : 0);
      const lines = await linesOf(one, sessionId, 0, 8);
      expect(lines.map((line) => JSON.parse(line).message.content.slice(0, 5))).toEqual(
        texts.map((text) => text.slice(0, 5)),
      );
      const heads = await one.catalog.heads(sessionId);
      expect(heads.map(([id]) => id)).toEqual(lines.map((line) => JSON.parse(line).id));
      expect(await one.keeper.checked(sessionId)).toMatchObject({ rows: 8, hasGap: false, end: { entries: 8 } });
      const ends = server.sql(`select seq + count || ' ' || encode(chain, 'hex') from pi_fleet.pack
        where session_id = '${sessionId}' order by seq desc limit 1`);
      expect(ends).toBe(
        `8 ${
          endAfter(
            NOTHING,
            lines.map((line) => Buffer.from(line)),
          ).chain
        }`,
      );
    }
  });

  test("of a long commit in the middle of which another machine takes the session, what is acknowledged is there once, in its order", async () => {
    await interrupted(server, connect, async (sessionId) => {
      server.sql("update pi_fleet.session set lease_until = now()");
      const other = connect("other");
      const taking = await other.fleet.take(sessionId, 0);
      if (taking.kind !== "taken") throw new Error(JSON.stringify(taking));
      await other.fleet.release(sessionId, taking.epoch);
    });
  });

  test("a pack that is not what it says is found, whatever of it was changed", async () => {
    const one = connect("verified");
    const lives = new HereLives({ fleet: { ...one, ...PARTS }, seed: 4 });
    const wire = await lives.start();
    await wire.result("append", { entries: [1, 2, 3].map((n) => user(`${n} ${"x ".repeat(2000)}`)) });
    const faults = async () => (await lives.care().verify()).faults.map(({ fault }) => fault);
    expect(await faults()).toEqual([]);
    for (const [change, fault] of [
      ["chain = sha256(chain)", "chain"],
      ["ends = array[ends[1] - 1]", "chain"],
      ["lines = substring(lines from 2)", "chain"],
      ["epoch = epoch + 9", "epochs"],
      ["first_epoch = 0", "epochs"],
    ]) {
      server.sql("create table kept as select * from pi_fleet.pack");
      server.sql(`update pi_fleet.pack set ${change} where seq = 1`);
      expect([change, await faults()]).toEqual([change, [fault]]);
      server.sql("truncate pi_fleet.pack; insert into pi_fleet.pack select * from kept; drop table kept");
    }
  });
});
