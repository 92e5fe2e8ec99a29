/**
 * Packs: packed lines come out unchanged; sessions with packed lines read like others in a real PostgreSQL, for every
 * reader.
 *
 * @module-tag system
 */

import { randomBytes } from "node:crypto";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { decodeText } from "../../../src/core/json/json.ts";
import type { FleetBatch, FleetEnd } from "../../../src/core/ports/fleet.ts";
import { extendEnd, NOTHING } from "../../../src/modules/fleet/postgres/ends.ts";
import { computeStretches, packLines, parsePackHeads, unpackLines } from "../../../src/modules/fleet/postgres/pack.ts";
import { finishFacts } from "../../../src/modules/fleet/replica/late-facts.ts";
import { makeMemoryStore } from "../../../src/storage/memory.ts";
import { user } from "../../support/drafts.ts";
import { headerText, userText } from "../../support/lines.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { forSeedsAsync, type Random, range } from "../../support/random.ts";
import { acrossTiers, UNIT } from "../../support/tiers.ts";
import { taken } from "./support/commits.ts";
import type { SqlFleet } from "./support/sql-fleet.ts";
import { fleetSuite, linesOf, batchOf as plainBatch } from "./support/sql-machines.ts";

function randomLine(random: Random): Buffer {
  const kind = random.int(8);
  if (kind === 0) return Buffer.alloc(0);
  if (kind === 1) return Buffer.from(Array.from({ length: random.int(40_000) }, () => random.int(256)));
  if (kind === 2) return Buffer.from(`{"a":"\\u0000\\ud800 ${"ä".repeat(random.int(50))}"}`);
  return Buffer.from(`{"text":"${"word ".repeat(random.int(kind === 4 ? 60_000 : 200))}"}`);
}

describe("packs in memory", UNIT, () => {
  acrossTiers(test, [3, 10])("lines and heads come out of packs as they went in (%i)", async (count) => {
    await forSeedsAsync(count, async (random) => {
      const lines = Array.from({ length: 1 + random.int(40) }, () => randomLine(random));
      const heads = lines.map((_, n) => JSON.stringify([`id ${n}\n\u0000\ud800`, null, "message", "user"]));
      const before = extendEnd(NOTHING, [Buffer.from("{}")]);
      const stretches = computeStretches(before, lines);
      expect(stretches.at(-1)).toEqual(extendEnd(before, lines));
      const packs = await packLines(before, lines, heads, stretches);
      expect(packs.map(({ seq, count }) => seq + count)).toEqual(stretches.map(({ entries }) => entries));
      expect(packs.map(({ end }) => end)).toEqual(stretches);
      const read = (await Promise.all(packs.map((pack) => unpackLines(pack)))).flat();
      expect(read.map((line) => Buffer.from(line).toString("latin1"))).toEqual(lines.map((l) => l.toString("latin1")));
      expect(packs.flatMap(parsePackHeads)).toEqual(heads);
    });
  });

  test("a pack has some thousand lines at most, and a long line is alone", () => {
    const short = Array.from({ length: 10_000 }, () => Buffer.from("{}"));
    expect(computeStretches(NOTHING, short).map(({ entries }) => entries)).toEqual([4096, 8192, 10_000]);
    const long = [Buffer.from("{}"), Buffer.alloc(3 << 20, "x"), Buffer.from("{}")];
    expect(computeStretches(NOTHING, long).map(({ entries }) => entries)).toEqual([1, 2, 3]);
  });

  test("a pack that was changed is refused, and one that says too little is not unpacked beyond that", async () => {
    const lines = [Buffer.from(`{"a":"${"x".repeat(5000)}"}`), Buffer.from("{}")];
    const [pack] = await packLines(NOTHING, lines, ["[]", "[]"], computeStretches(NOTHING, lines));
    const message = expect.stringContaining("a form (7) that this program does not know");
    for (const [change, expected] of [
      [{ ends: [10, 20] }, {}],
      [{ ends: [...pack.ends, 9000] }, {}],
      [{ lines: pack.lines.subarray(1) }, {}],
      [{ codec: 7 }, { message }],
    ]) {
      const failed = { name: "storage_failed", retryable: false, ...expected };
      await expect(unpackLines({ ...pack, ...change })).rejects.toMatchObject(failed);
    }
  });
});

const COMMITTED = { kind: "committed" };
const FAILED = { name: "storage_failed" };
const idOf = (n: number): string => (n % 7 === 3 ? `odd \u0000 \ud800 ${n}` : `n${n}`);
const lineOf = (n: number, text = `say ${n}`): string => userText(idOf(n), n === 0 ? null : idOf(n - 1), text);

function batchOf(id: string, epoch: number, before: FleetEnd, texts: readonly string[], isLong: boolean): FleetBatch {
  const counts = { messages: before.entries + texts.length, modified: null, isPlain: true };
  const description = { cwd: null, name: null, firstMessage: null, parentSession: null, timestamp: null };
  const batch = plainBatch(id, epoch, before, texts, { counts, description, areBehind: isLong || before.entries > 0 });
  const heads = texts.map((text) => {
    const { id: entryId, parentId } = JSON.parse(text);
    return JSON.stringify([entryId, parentId, "message", "user"]);
  });
  return { ...batch, heads, ...(isLong ? { stretches: computeStretches(before, batch.lines) } : {}) };
}

describe("packs in PostgreSQL", needs(POSTGRESQL), () => {
  const suite = fleetSuite();
  const sql = (text: string): string => suite.sql(text);
  /** Has commits of some KB be sent in parts, of a line of 2 KB or two each. */
  const inParts = (): SqlFleet & { partBytes: number } => ({ ...suite.connect(), partBytes: 4096 });
  /** Begins a session with commits of lines. Returns what appends more. */
  const begun = async (one: SqlFleet, id: string) => {
    await one.fleet.take(id, 0, Buffer.from(headerText({ id })));
    const { epoch } = await taken(one, id);
    let end = NOTHING;
    const all: string[] = [];
    const append = async (texts: readonly string[], isLong: boolean): Promise<FleetBatch> => {
      const batch = batchOf(id, epoch, end, texts, isLong);
      expect(await one.fleet.append(batch)).toMatchObject(COMMITTED);
      end = batch.after;
      all.push(...texts);
      return batch;
    };
    return { epoch, all, append };
  };

  acrossTiers(test, [2, 6])(
    "any stretch of a session of rows and packs is read as it was written, lines and heads (%i)",
    async (count) => {
      const one = suite.connect();
      await forSeedsAsync(count, async (random) => {
        const id = `session ${random.int(1e9)}`;
        const { all, append } = await begun(one, id);
        for (let n = 1 + random.int(6); n > 0; n--) {
          const texts = range(all.length, all.length + 1 + random.int(30)).map((at) =>
            lineOf(at, "x".repeat(random.chance(0.1) ? random.int(900_000) : random.int(200))),
          );
          const batch = await append(texts, random.chance(0.6));
          expect(await one.fleet.append(batch), "a second time").toEqual({ kind: "refused" });
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
        expect(await one.adminQueries.checked(id)).toMatchObject({
          rows: all.length,
          hasGap: false,
          epochsFall: false,
        });
        await expect(linesOf(one, id, 0, all.length + 1)).rejects.toMatchObject(FAILED);
      });
    },
  );

  test.each(["rows", "packs"])(
    "of lines that become long, %s are fetched by their bytes, whatever the length of those before",
    async (kind) => {
      const one = suite.connect();
      const { all, append } = await begun(one, kind);
      const LONG = 1 << 20;
      const long = (): string => randomBytes((LONG * 3) / 4).toString("base64");
      for (const [count, text] of [[64, () => "short"] as const, [6, long] as const, [100, () => "short"] as const])
        await append(
          range(all.length, all.length + count).map((n) => lineOf(n, text())),
          kind === "packs",
        );
      const asking = vi.spyOn(one.connections, "run");
      for (const from of [0, 63, 68]) expect(await linesOf(one, kind, from, all.length)).toEqual(all.slice(from));
      for (const { value } of asking.mock.results) {
        const values: unknown[] = (await value).rows.flatMap((row: object) => Object.values(row));
        const bytes = values.reduce((sum: number, one) => sum + (one instanceof Uint8Array ? one.length : 0), 0);
        // Two MB and the line that comes then, a third more where that is base64.
        expect(bytes).toBeLessThan(((2 << 20) + LONG + 1e5) * (4 / 3));
      }
    },
  );

  test("over a pack that is missing nobody reads", async () => {
    const one = suite.connect();
    const { append } = await begun(one, "torn");
    await append(
      range(0, 6).map((n) => lineOf(n, "x".repeat(300_000))),
      true,
    );
    sql("delete from pi_fleet.pack where seq = 2");
    await expect(linesOf(one, "torn", 0, 6)).rejects.toMatchObject(FAILED);
    const heads = one.fleet.heads("torn", 0, 6)[Symbol.asyncIterator]();
    await expect(heads.next()).rejects.toMatchObject(FAILED);
  });

  test("what was said in packs is found, once its facts are there, which another process adds", async () => {
    const [one, two, three] = [suite.connect(), suite.connect(), suite.connect()];
    const { all, append } = await begun(one, "said");
    await append(
      range(0, 40).map((n) => lineOf(n, `word${n} ${"x".repeat(20_000)}`)),
      true,
    );
    const { after } = await append([lineOf(40, "word40")], false);
    const { sessions } = await one.catalog.list({}, undefined, undefined);
    expect(sessions).toMatchObject([{ id: "said", messages: 41 }]);
    expect(await one.catalog.behind()).toBe(1);
    expect(await two.adminQueries.claimBehind(), "while the first may be adding them").toBeNull();
    sql("update pi_fleet.behind set until = now()");
    const claims = await Promise.all([two, three].map(({ adminQueries }) => adminQueries.claimBehind()));
    const [behind, ...more] = claims.filter((one) => one !== null);
    expect([behind, more]).toEqual([expect.objectContaining({ id: "said", indexed: 0, end: after }), []]);
    const place = { fleet: two.fleet, memory: makeMemoryStore() };
    expect(await finishFacts(place, behind)).toBe(true);
    expect(await finishFacts(place, behind), "a second time").toBe(false);
    expect([await one.catalog.behind(), sql("select count(*) from pi_fleet.behind")]).toEqual([0, "0"]);
    expect(suite.row("said", "indexed, entries")).toBe("41|41");
    const kinds = new Map([["talk" as const, undefined]]);
    const words = [["word7", "word39", "word40"]];
    const found = await two.catalog.texts({ kinds, words, except: [], limit: 10 });
    expect(found.map(({ position, line, entryId }) => [position, decodeText(line), entryId]).sort()).toEqual(
      [7, 39, 40].map((n) => [n, all[n], idOf(n)]).sort(),
    );
  });

  test("facts of entries are not added twice, nor where the session was taken since", async () => {
    const [one, two] = [suite.connect(), suite.connect()];
    const { epoch, append } = await begun(one, "late");
    await append([lineOf(0), lineOf(1)], true);
    const added = async (more: object): Promise<string> =>
      (await two.fleet.addFacts({ sessionId: "late", epoch, from: 0, to: 1, texts: [], spendings: [], ...more })).kind;
    const outcomes = await Promise.all([0, 1, 2, 3].map(() => added({})));
    expect(outcomes.sort()).toEqual(["committed", "refused", "refused", "refused"]);
    expect(await added({ from: 1, to: 3 }), "entries that are not there").toBe("refused");
    const next = (await taken(one, "late")).epoch;
    expect(await added({ from: 1, to: 2 })).toBe("refused");
    expect(await added({ from: 1, to: 2, epoch: next })).toBe("committed");
  });

  test("a long commit is listed at once, and found when its words are there; until then a search says so", async () => {
    const one = inParts();
    // A process that dies when the lines are there.
    const fleet = Object.assign(Object.create(one.fleet), { addFacts: () => new Promise(() => {}) });
    const { lives, wire } = await suite.machine({ fleet: { ...one, fleet } });
    const texts = ["first", "second", "third"].map((word) => `${word} ${"x ".repeat(1000)}`);
    await wire.result("append", { entries: texts.map((text) => user(text)) });
    const { wire: other, lives: searching } = await suite.machine();
    expect((await other.result("list_sessions")).sessions).toMatchObject([{ messageCount: 3 }]);
    const limited = expect.stringMatching(/ask again/);
    expect(await other.result("search_sessions", { query: "second" })).toMatchObject({ hits: [], limited });
    expect(await other.result("get_usage")).toMatchObject({ limited });
    expect(sql("select count(*) from pi_fleet.entry")).toBe("0");
    await lives.kill();
    sql("update pi_fleet.behind set until = now()");
    onTestFinished(searching.getAdmin().startSweep(0));
    const found = (): Promise<{ hits: { sessionId: string }[]; limited?: string }> =>
      other.result("search_sessions", { query: "second" });
    await vi.waitFor(async () => expect((await found()).limited).toBeUndefined(), { timeout: 20_000, interval: 200 });
    const { hits } = await found();
    expect(hits).toHaveLength(1);
    await other.result("switch_session", { sessionId: hits[0].sessionId });
    expect((await other.result("get_state")).messageCount).toBe(3);
  });
});
