/**
 * The removal of what a fleet keeps of deleted sessions, by its verb, and what old copies and trashes do afterwards.
 *
 * @module-tag system
 */

import { describe, expect, test, vi } from "vitest";
import { FleetPruning } from "../../../src/modules/fleet/admin/pruning.ts";
import { user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import type { Json } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { AWAY, fleetSuite, instead, type Machine, meddle, play } from "./support/sql-machines.ts";

const LONG_AGO = 40;
const EACH = "entry,described,said,spent";
const DAYS = 86_400_000;

/** SQL that counts the rows of a session of a scene. */
const rowsOf = (name: string, tables = "entry"): string => {
  const counts = tables
    .split(",")
    .map((table) => `(select count(*) from pi_fleet.${table} where session_id = '{${name}}')`);
  return `select ${counts.join(", ")}`;
};
/** SQL that makes a session's deletion long ago, or the last write to all others. */
const aged = (name: string, days: number): string =>
  `update pi_fleet.session set deleted_at = now() - interval '${days} days' where id = '{${name}}'`;
const idle = (not: string): string =>
  `update pi_fleet.session set changed_at = now() - interval '100 days' where id <> '${not}'`;

/** A restored session is in the fleet with its lines, once. */
const IS_BACK = "three reads answer to text; three verify; one restore_session ! session_not_found";
/** A deletion that finds no up-to-date copy, while the fleet cannot be asked so often. */
const deletesBlindly = (times: number): string => `
  two befalls unseen ${times}; two delete_session ! any; two heals; two prune; two restore_session ! any
  db ${rowsOf("s")} => 3; one lists s`;

const SCENES: Readonly<Record<string, string>> = {
  "shows first, and removes rows of what was deleted long ago; its id stays taken, and a trash brings it back": `
    one make recent; one make present; two switch_session; one delete_session; one delete_session [recent]
    db ${aged("s", LONG_AGO)}; db ${aged("recent", 1)}; remember; one fleet prune --apply ~ use --yes
    one tells prune = applied:false sessions:1 entries:2 named.length:1 named.0.sessionId:{s} named.0.name:text; same
    one fleet prune --apply --yes ~ Removed for good: 1 session with 2 entries; row state,length(header) = 2|0
    db ${rowsOf("s", EACH)} => 0|0|0|0; db ${rowsOf("recent")} => 2; db ${rowsOf("present")} => 2
    one tells prune = sessions:0 halfway:0 unfinished:0
    two append late ! session_not_found ~ deleted from the fleet; db ${rowsOf("s")} => 0; two new_session
    one restore_session; two lists present,s; one restore_session [recent]; two lists present,recent,s
    three reads answer to text; two write later; one verify`,
  "deletes what nobody has written to for long, and any machine restores it, also one without a trash": `
    one make named; one make archived; one make held; one make fresh; one name [named] keep; two switch_session [named]
    one archive_session [archived]; one switch_session [held]; one append at work; db ${idle("{fresh}")}; remember
    one tells prune --until 90d = applied:false sessions:0 idle:2 idleNamed:1 idleArchived:0 idleSessions.length:2
    one tells prune --until 90d --unnamed = idle:1 idleSessions.0.sessionId:{s}; one tells prune --until 101d = idle:0
    one tells prune --until 90d --archived = idle:3 idleArchived:1; one fleet prune --until 90d --apply ~ use --yes
    one fleet prune --unnamed ~ goes with --until; same
    one fleet prune --until 90d --older-than now --apply --yes ~ {s}[^]*Deleted: 2 sessions
    db ${rowsOf("s")} => 2; db ${rowsOf("named")} => 3; row state = 2; row [named] state = 2
    row [archived] state = 1; row [held] state = 1; row [fresh] state = 1; one append and goes on
    two append late ! session_not_found ~ deleted from the fleet; two new_session
    two restore_session [named]; three restore_session = sessionId:{s}; three restore_session ! session_not_found
    three reads answer to text; two write [named] later; two write later; one verify
    one tells prune --until 90d = sessions:0 idle:0`,
  "the trash has all that the fleet has, or nothing is deleted": `
    two reads text; one write later; ${[1, 2, 3].map(deletesBlindly).join(";")}`,
  "a restore that was interrupted is finished by the same again": `
    one delete_session; one befalls unrestored; one restore_session ! storage_failed; one heals
    one restore_session; ${IS_BACK}`,
  "a restore that was interrupted is finished by the same again, after a prune, too": `
    one delete_session; one befalls unrestored; one restore_session ! storage_failed; one heals; one prune
    one restore_session; ${IS_BACK}`,
  "a restore on a machine that has nothing of the session, and was interrupted, is finished by the same again": `
    one delete_session; three befalls unseen; three restore_session ! storage_failed; three restore_session
    three reads answer to text; three restore_session [01991f6e-1f1d-7c3e-b0a4-0242ac120002] ! session_not_found`,
  "a trash that lacks a part of what the fleet had does not take its place": `
    one befalls unconfirmed; one delete_session ! storage_failed; one heals; two write later; two delete_session; two prune
    one restore_session ! storage_failed final ~ the file here lacks; one lists -
    one restore_session ! storage_failed final ~ the file here lacks; row state,length(header) = 2|0
    two restore_session; row entries = 3; one reads later; one verify`,
  "a restore whose lines do not come to the fleet says so, and the same again finishes it; a copy with less does not": `
    two reads text; one write later; one delete_session; one prune; one befalls ungiven
    one restore_session ! storage_failed ~ Restore it again; one heals; one prune
    two switch_session ! session_not_found ~ was deleted; two restore_session ! any; db ${rowsOf("s")} => 0
    one restore_session; db ${rowsOf("s")} => 3; three reads later`,
  "what is deleted meanwhile has no lines to come back with": `
    two reads text; one write later; one delete_session; one prune; one befalls ungiven
    one restore_session ! storage_failed ~ Restore it again; one heals; one prune
    two delete_session ! session_not_found; one restore_session; db ${rowsOf("s")} => 3; three reads later`,
  "a session that was begun and never finished goes when nobody has it": `
    db insert into pi_fleet.session (tenant, id, header, chain) values ('', 'begun', '', ''), ('', 'held', '', '')
    db update pi_fleet.session set changed_at = now() - interval '40 days' where state = 0
    db update pi_fleet.session set holder = 'he', lease_until = now() + interval '1 minute' where id = 'held'
    one tells prune --apply --yes = unfinished:1; db select string_agg(id, ' ') from pi_fleet.session where state = 0 => held
    db ${rowsOf("s")} => 2`,
  "is told by status, and takes its options alone": `
    one delete_session; one tells status = sessions:0 deleted.sessions:1 deleted.entries:2
    one fleet status ~ 1 session is deleted and can be restored; one fleet status --apply ~ Unknown option --apply
    one fleet prune --older-than soon ~ --older-than; one fleet prune --older-than 3m --apply ~ give --older-than 3mo
    one fleet prune --until 3m --apply --yes = status:2 ~ give --until 3mo; row state = 2`,
  "passes by a session whose row somebody changes just now, and tells of what went alone": `
    one make busy; db ${idle("nobody")}; db begin; db update pi_fleet.session set messages = messages where id = '{busy}'
    one fleet prune --until 90d --apply --yes ~ {s}[^]*Deleted: 1 session \\(\\d+ B\\); db commit
    row state = 2; row [busy] state = 1`,
};

describe("the pruning of a fleet", needs(POSTGRESQL), () => {
  const suite = fleetSuite();
  const sql = (text: string): string => suite.sql(text);
  const rowsIn = (id: string, ...tables: string[]): string => sql(rowsOf("s", ...tables).replaceAll("{s}", id));
  const make = async (one: Machine, text: string): Promise<string> => (await suite.make(one, text)).sessionId;
  const apply = (one: Machine, words = ""): Promise<Json> => suite.runVerb(`prune${words} --apply --yes`, one.place);
  const seenBy = async ({ wire }: Machine): Promise<string[]> =>
    (await wire.result("list_sessions")).sessions.map(({ sessionId }: Json) => sessionId);
  const deleted = async ({ wire }: Machine, sessionId: string): Promise<void> => {
    await wire.result("delete_session", { sessionId });
    sql(aged("s", LONG_AGO).replace("{s}", sessionId));
  };
  const prunes = (choice: Parameters<FleetPruning["prune"]>[0], fleet = suite.connect()) =>
    new FleetPruning(fleet.connections, "").prune(choice);

  acrossTiers(describe, ["jsonl", "v2"])("with copies as %s", (kind) => {
    const args = ["--store", kind];
    const machine = (fleet?: Machine["fleet"]): Promise<Machine> => suite.machine({ args, fleet });

    test.each(Object.entries(SCENES))("%s", (_, script) => play(suite, script, { args }));

    test("while a machine gives back what was pruned, no copy with less begins it, and no prune forgets it", async () => {
      const [one, two] = [await machine(), await machine()];
      const sessionId = await make(one, "one");
      await suite.read(two, { sessionId });
      await suite.write(one, sessionId, "later");
      await two.wire.result("switch_session", { sessionId });
      await one.wire.result("delete_session", { sessionId });
      await apply(two, " --older-than now");
      let refusal: Json | undefined;
      instead(one.fleet.adminQueries, "beginAgain", (beginAgain) => async (...given) => {
        const isBegun = await beginAgain(...given);
        await apply(two, " --older-than now");
        refusal = (await two.wire.request("append", { entries: [user("less")] })).error;
        await two.wire.result("new_session");
        return isBegun;
      });
      await one.wire.result("restore_session", { sessionId });
      expect([refusal?.data.name, rowsIn(sessionId)]).toEqual(["session_locked", "3"]);
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
      const script = `one delete_session; one prune; one befalls ungiven; one restore_session ! storage_failed; one heals
        one restore_session ! any`;
      await play(suite, script, { fleet: suite.alone(), args });
      await suite.until("select count(*) from pi_fleet.entry", "2");
    });

    // A machine spares its own pending sessions. The restoring machine releases it in the background.
    test("what only a machine has that was away is told to it, and is there after a restore", () =>
      play(
        suite,
        `one befalls away; one switch_session; one append alone = durability:local; one end; one heals
        db update pi_fleet.session set lease_until = now(); db ${idle("nobody")}
        one tells prune --until 90d = idle:0; two tells prune --until 90d = idle:1
        two delete_session; db ${aged("s", LONG_AGO)}; two tells prune --apply --yes = sessions:1
        one tells push = sessions.length:1 sessions.0.outcome:refused; one fleet push ~ was deleted from the fleet
        two restore_session; until select count(holder) from pi_fleet.session => 0
        one tells push = sessions.length:1 sessions.0.outcome:given; two reads alone`,
        { fleet: suite.alone(), args },
      ));
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
        for (const sessionId of [kept, gone]) await deleted(one, sessionId);
        const ending = suite.connect();
        let calls = 0;
        meddle(ending, () => (++calls > most ? AWAY : undefined));
        isWhole = await prunes({ rows: 30 * DAYS }, ending).then(
          () => true,
          () => false,
        );
        await one.wire.result("restore_session", { sessionId: kept });
        expect(rowsIn(kept, "described"), `after ${most} calls`).toBe("1");
      }
      await apply(one);
      for (const { kept, gone } of all)
        expect([rowsIn(gone, EACH), rowsIn(kept, "entry,said")]).toEqual(["0|0|0|0", "2|2"]);
      expect((await seenBy(one)).sort()).toEqual(all.map(({ kept }) => kept).sort());
      expect((await suite.runVerb("verify", one.place)).faults).toEqual([]);
    },
  );

  describe.each(["it ends", "it is taken"])("of what nobody writes to, where %s", (befalls) => {
    acrossTiers(test, [5, 1])(
      "ends at any step, and races with whoever takes it: it is there, or can be restored (each of %i)",
      async (stride) => {
        const one = await suite.machine();
        const taker = suite.connect();
        const idle = { age: 90 * DAYS, archived: false, named: true, pendingIds: [] };
        const ends = befalls === "it ends";
        const fates = new Set<string>();
        let made = 0;
        // The last step is among them.
        for (let [most, isWhole] = [Math.max(1, stride - 1), false]; !isWhole; most += stride, made++) {
          const [old, unwritten] = [await make(one, `old ${most}`), await make(one, `unwritten ${most}`)];
          await deleted(one, old);
          sql(`update pi_fleet.session set changed_at = now() - interval '100 days' where id = '${unwritten}'`);
          const pruning = suite.connect();
          let [calls, ending] = [0, ""];
          meddle(pruning, async () => {
            if (++calls === most && !ends) ending = (await taker.fleet.take(unwritten, 0)).kind;
            return calls > most && ends ? AWAY : undefined;
          });
          const pruned = await prunes({ rows: 30 * DAYS, idle }, pruning).catch(() => null);
          isWhole = ends ? pruned !== null : calls < most;
          const isGone = suite.row(unwritten) === "2";
          if (ends) ending = isGone ? "deleted" : "there";
          else if (!isWhole) expect(isGone, `${most} ${ending}`).toBe(ending !== "taken");
          if (pruned) {
            const about = [pruned.idle, pruned.idleBytes > 0, pruned.idleSessions.map(({ sessionId }) => sessionId)];
            expect(about).toEqual(isGone ? [1, true, [unwritten]] : [0, false, []]);
          }
          fates.add(ending);
          expect(rowsIn(unwritten), `${befalls} at ${most}`).toBe("2");
          if (isGone) await one.wire.result("restore_session", { sessionId: unwritten });
          sql("update pi_fleet.session set holder = null, lease_until = null, changed_at = now()");
        }
        expect([...fates].filter(Boolean).sort()).toEqual(["deleted", ends ? "there" : "taken"]);
        expect(sql("select count(*) from pi_fleet.session s where state = 1 and entries = 2")).toBe(`${made}`);
        expect((await suite.runVerb("verify", one.place)).faults).toEqual([]);
      },
    );
  });

  test("two at once remove nothing of a session that began anew between them", async () => {
    const one = await suite.machine();
    const sessionId = await make(one, "one");
    await one.wire.result("delete_session", { sessionId });
    const slow = suite.connect();
    let isBegun = false;
    meddle(slow, async (text) => {
      if (isBegun || !text.includes("delete from pi_fleet.entry")) return;
      isBegun = true;
      await prunes({ rows: 0 });
      await one.wire.result("restore_session", { sessionId });
    });
    await prunes({ rows: 0 }, slow);
    expect([isBegun, suite.row(sessionId, "generation, entries"), rowsIn(sessionId)]).toEqual([true, "1|2", "2"]);
  });

  test("a session that is deleted for good leaves its id, and its words for a day", () => {
    const words = (which: string, all: string): string =>
      `db select coalesce(string_agg(word, ' ' order by word), '-') from pi_fleet.word where ${which} => ${all}`;
    // A process that writes a word again wants it.
    return play(
      suite,
      `one make common; one delete_session permanent; db ${rowsOf("s", EACH)} => 0|0|0|0; row length(header) = 0
      ${words("unused_since is not null", "answer text to")}; one tells prune --apply --yes = words:0
      db update pi_fleet.word set unused_since = unused_since - interval '2 days'
      two make to; ${words("unused_since is not null", "text")}; one tells prune --apply --yes = words:1
      ${words("true", "answer common to")}; ${words("unused_since is not null", "-")}; one lists common,to`,
    );
  });

  test("a tenant prunes what is its own", async () => {
    const one = await suite.machine();
    await one.wire.result("delete_session", { sessionId: await make(one, "of nobody") });
    const urlOf = (tenant: string): string => `${suite.url}&tenant=${tenant}`;
    for (const tenant of ["alice", "bob"]) {
      const theirs = await suite.machine({ fleet: suite.open(tenant, { url: urlOf(tenant) }) });
      await theirs.wire.result("delete_session", { sessionId: await make(theirs, tenant) });
      await make(theirs, "stays");
    }
    sql("update pi_fleet.session set deleted_at = now() - interval '40 days' where state = 2");
    const pruned = (): Promise<Json> => suite.runVerb("prune --apply --yes", undefined, urlOf("bob"));
    expect(await pruned()).toMatchObject({ sessions: 1, entries: 2 });
    const left = "select string_agg(tenant || count, ' ' order by tenant) from (select tenant, count(*) from pi_fleet";
    expect(sql(`${left}.entry group by tenant) x`)).toBe("2 alice4 bob2");
    sql("update pi_fleet.word set unused_since = now() - interval '2 days'");
    expect(await pruned()).toMatchObject({ words: 1 });
    const words = "select string_agg(word, ' ' order by word) from pi_fleet.word where";
    expect(sql(`${words} tenant = 'bob'`)).toBe("answer stays to");
    // Those of the others stay as they are.
    expect(sql("select count(*) from pi_fleet.word where unused_since is not null")).toBe("8");
  });
});
