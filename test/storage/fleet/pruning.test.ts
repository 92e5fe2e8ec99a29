/**
 * The removal of what a fleet keeps of deleted sessions, by its verb, and what old copies and trashes do afterwards.
 *
 * @module-tag system
 */

import { describe, expect, test, vi } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import { isolate } from "../../../src/storage/fleet/isolation.ts";
import { Outage } from "../../../src/storage/fleet/outage.ts";
import { FleetPruning } from "../../../src/storage/fleet/pruning.ts";
import { assistant, user } from "../../support/drafts.ts";
import { AWAY, fleetSuite, instead, type Machine, meddle, play } from "../../support/fleet-suite.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import type { Json } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";

const TABLES = ["session", "entry", "described", "said", "word", "spent"];
const [LONG_AGO, DAY] = [40, 1];
const DAYS = 86_400_000;
const NONE = ["0", "0", "0", "0"];

/** What is restored is in the fleet with its lines, once. */
const IS_BACK = "three reads answer to text; three verify; one restore_session ! session_not_found";

const SCENES: Readonly<Record<string, string>> = {
  "a restore that was interrupted is finished by the same again": `
    one delete_session; one befalls unrestored; one restore_session ! storage_failed; one heals
    one restore_session; ${IS_BACK}`,
  "a restore that was interrupted is finished by the same again, after a prune, too": `
    one delete_session; one befalls unrestored; one restore_session ! storage_failed; one heals; one prune
    one restore_session; ${IS_BACK}`,
  "a restore on a machine that has nothing of the session, and was interrupted, is finished by the same again": `
    one delete_session; three befalls unseen; three restore_session ! storage_failed; three heals; three restore_session
    three reads answer to text; three restore_session [01991f6e-1f1d-7c3e-b0a4-0242ac120002] ! session_not_found`,
  "a trash that lacks a part of what the fleet had does not take its place": `
    one befalls unconfirmed; one delete_session ! storage_failed; one heals; two write later; two delete_session; two prune
    one restore_session ! storage_failed final ~ this file lacks; one holds text
    one restore_session ! storage_failed final ~ this file lacks; row state,length(header) = 2|0
    two restore_session; row entries = 3; one reads later; one verify`,
  "a restore whose lines do not come to the fleet says so, and the same again finishes it; a copy with less does not": `
    two reads text; one write later; one delete_session; one prune; one befalls ungiven
    one restore_session ! storage_failed ~ restore it again; one heals; one prune; two switch_session
    two append less ! session_not_found; two new_session; two restore_session ! any; two lists -
    one restore_session; row entries = 3; three reads later`,
  "what is deleted meanwhile has no lines to come back with": `
    two reads text; one write later; one delete_session; one prune; one befalls ungiven
    one restore_session ! storage_failed ~ restore it again; one heals; one prune; two delete_session
    one restore_session; row entries = 3; three reads later`,
};

describe("the pruning of a fleet", needs(POSTGRESQL), () => {
  const suite = fleetSuite();
  const sql = (text: string): string => suite.sql(text);
  const rowsOf = (sessionId: string): string[] =>
    ["entry", "described", "said", "spent"].map((table) =>
      sql(`select count(*) from pi_fleet.${table} where session_id = '${sessionId}'`),
    );
  const everything = (): string =>
    TABLES.map((table) => sql(`select t from pi_fleet.${table} t order by t::text`)).join("\n");
  const age = (sessionId: string, days: number): string =>
    sql(`update pi_fleet.session set deleted_at = now() - interval '${days} days' where id = '${sessionId}'`);
  const idleFor = (days: number, which = "true"): string =>
    sql(`update pi_fleet.session set changed_at = now() - interval '${days} days' where ${which}`);
  const make = async (one: Machine, text: string): Promise<string> => (await suite.make(one, text)).sessionId;
  const apply = (one: Machine, words = ""): Promise<Json> => suite.told(`prune${words} --apply --yes`, one.place);
  const seenBy = async ({ wire }: Machine): Promise<string[]> =>
    (await wire.result("list_sessions")).sessions.map(({ sessionId }: Json) => sessionId);
  const deleted = async (one: Machine, sessionId: string, days: number): Promise<void> => {
    await one.wire.result("delete_session", { sessionId });
    age(sessionId, days);
  };
  const prunes = (choice: Parameters<FleetPruning["prune"]>[0], fleet = suite.connect()) =>
    new FleetPruning(fleet.connections, "").prune(choice);

  acrossTiers(describe, ["jsonl", "v2"])("with copies as %s", (kind) => {
    const args = ["--store", kind];
    const machine = (fleet?: Machine["fleet"]): Promise<Machine> => suite.machine({ args, fleet });

    test.each(Object.entries(SCENES))("%s", (_, script) => play(suite, script, { args }));

    test("shows first, and removes rows of what was deleted long ago; its id stays taken, and a trash brings it back", async () => {
      const [one, two] = [await machine(), await machine()];
      const [old, recent, present] = [await make(one, "old"), await make(one, "recent"), await make(one, "present")];
      await suite.read(two, { sessionId: old });
      await deleted(one, old, LONG_AGO);
      await deleted(one, recent, DAY);
      const before = everything();
      const named = [{ sessionId: old, name: "old" }];
      expect(await suite.told("prune", one.place)).toMatchObject({ applied: false, sessions: 1, entries: 2, named });
      expect((await suite.verb("prune --apply", one.place)).stderr).toContain("use --yes");
      expect(everything()).toBe(before);
      const { stdout } = await suite.verb("prune --apply --yes", one.place);
      expect(stdout).toContain("Removed for good: 1 session with 2 entries");
      expect([rowsOf(old), suite.row(old, "state, length(header)")]).toEqual([NONE, "2|0"]);
      expect([rowsOf(recent)[0], rowsOf(present)[0]]).toEqual(["2", "2"]);
      const nothing = { sessions: 0, halfway: 0, unfinished: 0 };
      expect(await suite.told("prune", one.place)).toMatchObject(nothing);
      // A copy that was not asked for since.
      await two.wire.result("switch_session", { sessionId: old });
      const { data, message } = await two.wire.failure("append", { entries: [user("late")] });
      expect([data.name, message]).toEqual(["session_not_found", expect.stringContaining("deleted from the fleet")]);
      expect(rowsOf(old)[0]).toBe("0");
      await two.wire.result("new_session");
      for (const sessionId of [old, recent]) {
        await one.wire.result("restore_session", { sessionId });
        expect(await seenBy(two)).toContain(sessionId);
      }
      expect(await suite.read(await machine(), { sessionId: old })).toContain("answer to old");
      // The old copy goes on where it was.
      await suite.write(two, old, "later");
      expect((await suite.told("verify", one.place)).faults).toEqual([]);
    });

    test("deletes what nobody has written to for long, and any machine restores it, also one without a trash", async () => {
      const [one, two] = [await machine(), await machine()];
      const { wire, place } = one;
      const ids = { idle: "", named: "", archived: "", held: "", fresh: "" };
      for (const name of Object.keys(ids) as (keyof typeof ids)[]) ids[name] = await make(one, name);
      const { idle, named, archived, held, fresh } = ids;
      await wire.result("switch_session", { sessionId: named });
      await wire.result("set_session_name", { name: "keep me" });
      await wire.result("new_session");
      await wire.result("archive_session", { sessionId: archived });
      await suite.read(two, { sessionId: named });
      await wire.result("switch_session", { sessionId: held });
      await wire.result("append", { entries: [user("somebody is at work")] });
      idleFor(100, `id <> '${fresh}'`);
      const before = everything();
      for (const [options, found] of [
        [" --until 90d", { applied: false, sessions: 0, idle: 2, idleNamed: 1, idleArchived: 0 }],
        [" --until 90d --unnamed", { idle: 1 }],
        [" --until 90d --archived", { idle: 3, idleArchived: 1 }],
        [" --until 101d", { idle: 0 }],
      ] as const)
        expect(await suite.told(`prune${options}`, place), options).toMatchObject(found);
      const { idleSessions } = await suite.told("prune --until 90d", place);
      expect(idleSessions.map(({ sessionId }: Json) => sessionId).sort()).toEqual([idle, named].sort());
      expect((await suite.verb("prune --until 90d --apply", place)).stderr).toContain("use --yes");
      expect((await suite.verb("prune --unnamed", place)).stderr).toContain("goes with --until");
      const choice = { age: 90 * DAYS, archived: false, named: true, owed: [idle] };
      expect((await new FleetPruning(suite.connect().connections, "").find({ rows: 1e12, idle: choice })).idle).toBe(1);
      expect(everything()).toBe(before);
      // Not even then do rows go at once of what was deleted just now.
      const { stdout } = await suite.verb("prune --until 90d --older-than now --apply --yes", place);
      expect(stdout).toContain("Deleted: 2 sessions");
      expect(stdout).toContain(idle);
      expect([rowsOf(idle)[0], rowsOf(named)[0]]).toEqual(["2", "3"]);
      const there = sql("select id from pi_fleet.session where state = 1").split("\n");
      expect(Object.values(ids).filter((id) => there.includes(id))).toEqual([archived, held, fresh]);
      // Whoever has it open goes on, and so does whoever restores.
      await wire.result("append", { entries: [user("and goes on")] });
      await two.wire.result("switch_session", { sessionId: named });
      const { message } = await two.wire.failure("append", { entries: [user("late")] });
      expect(message).toContain("deleted from the fleet");
      await two.wire.result("new_session");
      await two.wire.result("restore_session", { sessionId: named });
      const three = await machine();
      const restored = await three.wire.result("restore_session", { sessionId: idle });
      expect(restored).toMatchObject({ sessionId: idle, movedTo: restored.sessionPath });
      expect((await three.wire.failure("restore_session", { sessionId: idle })).data.name).toBe("session_not_found");
      expect(await suite.read(three, { sessionId: idle })).toContain("answer to idle");
      for (const sessionId of [named, idle]) await suite.write(two, sessionId, "later");
      expect(await suite.told("prune --until 90d", place)).toMatchObject({ sessions: 0, idle: 0 });
      expect((await suite.told("verify", place)).faults).toEqual([]);
    });

    test("the trash has all that the fleet has, or nothing is deleted", async () => {
      const [one, two] = [await machine(), await machine()];
      const sessionId = await make(one, "one");
      await suite.read(two, { sessionId });
      await suite.write(one, sessionId, "later");
      // The copy cannot be brought up to date when it is looked for.
      for (let failing = 1; failing < 4; failing++) {
        let calls = 0;
        const end = instead(two.fleet.fleet, "look", (look) => async (id) => {
          if (id === sessionId && ++calls <= failing) throw new Failure("storage_failed", "test: away", { fleet: true });
          return look(id);
        });
        await two.wire.request("delete_session", { sessionId });
        end();
        await apply(two, " --older-than now");
        await two.wire.request("restore_session", { sessionId });
        expect(rowsOf(sessionId)[0], `${failing} calls`).toBe("3");
        expect(await seenBy(one)).toContain(sessionId);
      }
    });

    test("while a machine gives back what was pruned, no copy with less begins it, and no prune forgets it", async () => {
      const [one, two] = [await machine(), await machine()];
      const sessionId = await make(one, "one");
      await suite.read(two, { sessionId });
      await suite.write(one, sessionId, "later");
      await one.wire.result("delete_session", { sessionId });
      await apply(two, " --older-than now");
      let refusal: Json | undefined;
      instead(one.fleet.keeper, "beginAgain", (beginAgain) => async (...given) => {
        const isBegun = await beginAgain(...given);
        await apply(two, " --older-than now");
        await two.wire.result("switch_session", { sessionId });
        refusal = (await two.wire.request("append", { entries: [user("less")] })).error;
        await two.wire.result("new_session");
        return isBegun;
      });
      await one.wire.result("restore_session", { sessionId });
      expect([refusal?.data.name, rowsOf(sessionId)[0]]).toEqual(["session_locked", "3"]);
      expect(await suite.read(two, { sessionId })).toContain("later");
    });

    test("a sweep that goes on while a machine gives back what was pruned takes none of its parts", async () => {
      const one = await machine({ ...suite.connect(), partBytes: 4096 });
      const sessionId = await make(one, "word ".repeat(3000));
      await one.wire.result("delete_session", { sessionId });
      let goOn = (): void => {};
      const isLetGo = new Promise<void>((resolve) => {
        goOn = resolve;
      });
      const sweeping = suite.connect();
      let isStopped = false;
      meddle(sweeping, async (text) => {
        if (!text.includes("delete from pi_fleet.entry")) return;
        isStopped = true;
        await isLetGo;
      });
      const pruning = prunes({ rows: 0 }, sweeping);
      await vi.waitFor(() => expect(isStopped).toBe(true));
      const parts = (): number => Number(sql("select count(*) from pi_fleet.pack where generation < 0"));
      const seen: number[] = [];
      instead(one.fleet.fleet, "append", (append) => async (batch) => {
        if (batch.place !== undefined && seen.length === 0) {
          seen.push(parts());
          goOn();
          await pruning;
          seen.push(parts());
        }
        return append(batch);
      });
      await one.wire.result("restore_session", { sessionId });
      expect(seen[0]).toBeGreaterThan(1);
      expect([seen[1], parts()]).toEqual([seen[0], 0]);
      expect(await suite.read(await machine(), { sessionId })).toContain("answer to word");
    });

    test("a restore on a machine that goes on alone is not done before the fleet has the lines", async () => {
      const fleet = suite.connect();
      const script = `one delete_session; one prune; one befalls ungiven; one restore_session ! storage_failed; one heals
        one restore_session ! any`;
      await play(suite, script, { fleet: { ...fleet, outage: new Outage(fleet.fleet, 0, () => 0) }, args });
      await suite.until("select count(*) from pi_fleet.entry", "2");
    });

    test("an append that only the disk got before a server died is in the fleet when its repeat is acknowledged", async () => {
      const before = new HereLives({ seed: 1 });
      const params = { entries: [user("one"), assistant("answer")], idempotencyKey: "a key" };
      const dying = await before.start(args);
      await dying.result("append", params);
      const { sessionId } = await dying.result("get_state");
      await before.end();
      const { wire } = await suite.machine({ place: before.place, args });
      await wire.result("switch_session", { sessionId });
      await wire.result("append", params);
      expect(rowsOf(sessionId)[0]).toBe("2");
    });

    test("what only a machine has that was away is told to it, and is there after a restore", async () => {
      const fleet = suite.connect();
      const away = await machine({ ...fleet, outage: new Outage(fleet.fleet, 0, () => 0) });
      const other = await machine();
      const sessionId = await make(away, "one");
      const end = meddle(fleet, () => AWAY);
      await away.wire.result("switch_session", { sessionId });
      expect(await away.wire.result("append", { entries: [user("alone")] })).toMatchObject({ durability: "local" });
      await away.lives.end();
      suite.endLeases();
      await deleted(other, sessionId, LONG_AGO);
      await apply(other);
      end();
      const pushed = async () => (await suite.told("push", away.place)).sessions;
      const message = expect.stringContaining("was deleted from the fleet");
      expect(await pushed()).toMatchObject([{ outcome: "refused", message }]);
      await other.wire.result("restore_session", { sessionId });
      // Who restored it lets go of it beside everything else.
      await vi.waitFor(async () => expect(await pushed()).toMatchObject([{ outcome: "given" }]), { timeout: 20_000 });
      expect(await suite.read(other, { sessionId })).toContain("alone");
    });
  });

  acrossTiers(test, [16, 3])(
    "nothing is lost when it ends at any step, and the next one finishes it (each of %i)",
    async (stride) => {
      const one = await suite.machine();
      const all: { kept: string; gone: string }[] = [];
      let isWhole = false;
      for (let most = 1; !isWhole; most += stride) {
        const [kept, gone] = [await make(one, `kept ${most}`), await make(one, `gone ${most}`)];
        all.push({ kept, gone });
        for (const sessionId of [kept, gone]) await deleted(one, sessionId, LONG_AGO);
        const ending = suite.connect();
        let calls = 0;
        meddle(ending, () => (++calls > most ? AWAY : undefined));
        isWhole = await prunes({ rows: 30 * DAYS }, ending).then(
          () => true,
          () => false,
        );
        await one.wire.result("restore_session", { sessionId: kept });
        expect(rowsOf(kept)[1], `after ${most} calls`).toBe("1");
      }
      await apply(one);
      for (const { kept, gone } of all)
        expect([rowsOf(gone), rowsOf(kept)[0], rowsOf(kept)[2]]).toEqual([NONE, "2", "2"]);
      expect((await seenBy(one)).sort()).toEqual(all.map(({ kept }) => kept).sort());
      expect((await suite.told("verify", one.place)).faults).toEqual([]);
    },
  );

  describe.each(["it ends", "it is taken"])("of what nobody writes to, where %s", (befalls) => {
    acrossTiers(test, [5, 1])(
      "ends at any step, and races with whoever takes it: it is there, or can be restored (each of %i)",
      async (stride) => {
        const one = await suite.machine();
        const taker = suite.connect();
        const idle = { age: 90 * DAYS, archived: false, named: true, owed: [] };
        const ends = befalls === "it ends";
        const fates = new Set<string>();
        let made = 0;
        for (let [most, isWhole] = [1, false]; !isWhole; most += stride, made++) {
          const [old, unwritten] = [await make(one, `old ${most}`), await make(one, `unwritten ${most}`)];
          await deleted(one, old, LONG_AGO);
          idleFor(100, `id = '${unwritten}'`);
          const pruning = suite.connect();
          let [calls, fate] = [0, ""];
          meddle(pruning, async () => {
            if (++calls === most && !ends) fate = (await taker.fleet.take(unwritten, 0)).kind;
            return calls > most && ends ? AWAY : undefined;
          });
          const pruned = await prunes({ rows: 30 * DAYS, idle }, pruning).catch(() => null);
          isWhole = ends ? pruned !== null : calls < most;
          const isGone = suite.row(unwritten) === "2";
          if (ends) fate = isGone ? "deleted" : "there";
          else if (!isWhole) expect(isGone, `${most} ${fate}`).toBe(fate !== "taken");
          if (pruned) {
            const about = [pruned.idle, pruned.idleBytes > 0, pruned.idleSessions.map(({ sessionId }) => sessionId)];
            expect(about).toEqual(isGone ? [1, true, [unwritten]] : [0, false, []]);
          }
          fates.add(fate);
          expect(rowsOf(unwritten)[0], `${befalls} at ${most}`).toBe("2");
          if (isGone) await one.wire.result("restore_session", { sessionId: unwritten });
          sql("update pi_fleet.session set holder = null, lease_until = null, changed_at = now()");
        }
        expect([...fates].filter(Boolean).sort()).toEqual(["deleted", ends ? "there" : "taken"]);
        expect(sql("select count(*) from pi_fleet.session s where state = 1 and entries = 2")).toBe(`${made}`);
        expect((await suite.told("verify", one.place)).faults).toEqual([]);
      },
    );
  });

  test("passes by a session whose row somebody changes just now, and tells of what went alone", async () => {
    const one = await suite.machine();
    const [idle, busy] = [await make(one, "idle"), await make(one, "busy")];
    idleFor(100);
    sql("begin");
    sql(`update pi_fleet.session set messages = messages where id = '${busy}'`);
    const { stdout } = await suite.verb("prune --until 90d --apply --yes", one.place);
    const size = suite.row(idle, "bytes");
    sql("commit");
    expect(stdout).toContain(`Deleted: 1 session (${size} B)`);
    expect([stdout.includes(idle), stdout.includes(busy)]).toEqual([true, false]);
    expect(sql("select id from pi_fleet.session where state = 1")).toBe(busy);
  });

  test("two at once remove nothing of a session that began anew between them", async () => {
    const [one, two] = [await suite.machine(), await suite.machine({ args: ["--store", "v2"] })];
    const sessionId = await make(one, "one");
    await suite.read(two, { sessionId });
    await one.wire.result("delete_session", { sessionId });
    const slow = suite.connect();
    let isBegun = false;
    meddle(slow, async (text) => {
      if (isBegun || !text.includes("delete from pi_fleet.entry")) return;
      isBegun = true;
      await prunes({ rows: 0, ids: 0 });
      await suite.write(two, sessionId, "anew");
    });
    await prunes({ rows: 0 }, slow);
    expect([isBegun, suite.row(sessionId, "generation, entries"), rowsOf(sessionId)[0]]).toEqual([true, "0|3", "3"]);
  });

  test("a session that is deleted for good leaves its id, and its words for a day", async () => {
    const one = await suite.machine();
    const [sessionId, other] = [await make(one, "xylophone common"), await make(one, "common")];
    await one.wire.result("delete_session", { sessionId, permanent: true });
    expect([rowsOf(sessionId), suite.row(sessionId, "length(header)")]).toEqual([NONE, "0"]);
    const words = (which: string): string =>
      sql(`select string_agg(word, ' ' order by word) from pi_fleet.word where ${which}`);
    expect(words("unused_since is not null")).toBe("answer common to xylophone");
    expect(await apply(one)).toMatchObject({ words: 0 });
    sql("update pi_fleet.word set unused_since = unused_since - interval '2 days'");
    // A process that writes a word again wants it.
    await make(await suite.machine(), "to");
    expect(words("unused_since is not null")).toBe("common xylophone");
    expect(await apply(one)).toMatchObject({ words: 1 });
    expect([words("true"), words("unused_since is not null")]).toEqual(["answer common to", ""]);
    expect(await seenBy(one)).toContain(other);
  });

  test("ids are given up when that is asked for, and a copy begins such a session again", async () => {
    const [one, two] = [await suite.machine(), await suite.machine()];
    const sessionId = await make(one, "one");
    await suite.read(two, { sessionId });
    await deleted(one, sessionId, LONG_AGO);
    expect((await suite.verb("prune --forget-ids 1d", one.place)).status).toBe(2);
    await apply(one);
    expect(await suite.told("prune --forget-ids 60d", one.place)).toMatchObject({ ids: 0 });
    expect(await apply(one, " --forget-ids 35d")).toMatchObject({ ids: 1 });
    expect(suite.row(sessionId, "count(*)")).toBe("0");
    await suite.write(two, sessionId, "again");
    expect(await suite.read(one, { sessionId })).toContain("again");
  });

  test("a session that was begun and never finished goes when nobody has it, and whoever goes on begins it again", async () => {
    const one = await suite.machine();
    const [held, left] = [await make(one, "held"), await make(one, "left")];
    sql("update pi_fleet.session set state = 0, holder = null, changed_at = now() - interval '40 days'");
    sql(`update pi_fleet.session set holder = 'he', lease_until = now() + interval '1 minute' where id = '${held}'`);
    expect(await apply(one)).toMatchObject({ unfinished: 1 });
    expect(sql("select id from pi_fleet.session where state = 0")).toBe(held);
    expect([rowsOf(held)[0], rowsOf(left)[0]]).toEqual(["2", "0"]);
    await suite.write(one, left, "goes on");
    expect(rowsOf(left)[0]).toBe("3");
    expect((await suite.told("verify", one.place)).faults).toEqual([]);
  });

  test("is told by status, and takes its options alone", async () => {
    const one = await suite.machine();
    await one.wire.result("delete_session", { sessionId: await make(one, "one") });
    const deleted = { sessions: 1, entries: 2 };
    expect(await suite.told("status", one.place)).toMatchObject({ sessions: 0, deleted });
    expect((await suite.verb("status", one.place)).stdout).toContain("1 session is deleted and can be restored");
    expect((await suite.verb("status --apply", one.place)).stderr).toContain("--apply goes with fleet prune");
    expect((await suite.verb("prune --older-than soon", one.place)).status).toBe(2);
  });

  test("a tenant prunes what is its own", async () => {
    const one = await suite.machine();
    await one.wire.result("delete_session", { sessionId: await make(one, "of nobody") });
    await isolate(suite.connect().connections);
    const urlOf = (role: string): string => `${suite.url.replace("user=fleet", `user=${role}`)}&tenant=${role}`;
    for (const role of ["alice", "mallory"]) {
      const theirs = await suite.machine({ fleet: suite.open(role, { url: urlOf(role) }) });
      await theirs.wire.result("delete_session", { sessionId: await make(theirs, role) });
      await make(theirs, "stays");
    }
    sql("update pi_fleet.session set deleted_at = now() - interval '40 days' where state = 2");
    const pruned = (): Promise<Json> => suite.told("prune --apply --yes", undefined, urlOf("mallory"));
    expect(await pruned()).toMatchObject({ sessions: 1, entries: 2 });
    const left = "select string_agg(tenant || count, ' ' order by tenant) from (select tenant, count(*) from pi_fleet";
    expect(sql(`${left}.entry group by tenant) x`)).toBe("2 alice4 mallory2");
    sql("update pi_fleet.word set unused_since = now() - interval '2 days'");
    expect(await pruned()).toMatchObject({ words: 1 });
    const words = "select string_agg(word, ' ' order by word) from pi_fleet.word where";
    expect(sql(`${words} tenant = 'mallory'`)).toBe("answer stays to");
    // Those of the others stay as they are.
    expect(sql("select count(*) from pi_fleet.word where unused_since is not null")).toBe("8");
  });
});
