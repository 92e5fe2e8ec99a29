/**
 * A session that is taken from a process that has it and lives, by the verb for that, over a real PostgreSQL.
 *
 * @module-tag system
 */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Database } from "../../support/database.ts";
import { user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import type { Json, Wire } from "../../support/server.ts";
import { type SqlFleet, sqlFleet } from "../../support/sql-fleet.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { type Run, runHere } from "../../support/verbs.ts";

describe("a session that is taken from its holder", needs(POSTGRESQL), () => {
  let server: Database;
  const fleets: SqlFleet[] = [];
  const machine = async (kind: string): Promise<Wire> => {
    const fleet = sqlFleet(server.url, `machine ${fleets.length}`);
    fleets.push(fleet);
    return new HereLives({ fleet, seed: fleets.length }).start(["--store", kind]);
  };
  const take = (...words: string[]): Promise<Run> =>
    runHere(new HereLives({}).place, ["fleet", "take", ...words], { variables: { PI_FLEET_URL: server.url } });
  const said = async (wire: Wire): Promise<string[]> =>
    (await wire.result("get_entries")).entries.map(({ message }: Json) => message?.content).filter(Boolean);

  /** Leaves a session, and waits until its server has let go of it, which comes beside everything else. */
  const leave = async (wire: Wire, sessionId: string): Promise<void> => {
    await wire.result("new_session");
    const isFree = `select holder is null from pi_fleet.session where id = '${sessionId}'`;
    await expect.poll(() => server.sql(isFree), { timeout: 30_000, interval: 20 }).toBe("t");
  };

  beforeAll(async () => {
    server = new Database();
    await server.start();
  });
  afterAll(async () => {
    await Promise.all(fleets.map(({ fleet }) => fleet.close()));
    await server.close();
  });

  acrossTiers(test, ["jsonl", "v2"])(
    "is written to at once by another, and what its holder writes then is kept (%s)",
    async (kind) => {
      const [one, two] = [await machine(kind), await machine(kind)];
      await one.result("append", { entries: [user("first")] });
      const { sessionId } = await one.result("get_state");
      await two.result("switch_session", { sessionId });
      expect((await two.failure("append", { entries: [user("too early")] })).data.name).toBe("session_locked");
      const taken = await take(sessionId.slice(0, 13));
      expect(taken.stderr).toBe("");
      expect(taken.stdout).toMatch(/Taken from .* on host of machine/);
      await two.result("append", { entries: [user("second")] });
      // Its holder is told, and has what it wrote for a branch.
      const refused = await one.failure("append", { entries: [user("third")] });
      expect(refused.data).toMatchObject({ name: "session_locked", keptAt: expect.any(String) });
      expect(server.sql(`select entries from pi_fleet.session where id = '${sessionId}'`)).toBe("2");
      await leave(two, sessionId);
      expect((await one.result("list_kept")).kept).toMatchObject([{ keptAt: refused.data.keptAt, sessionId }]);
      await one.result("recover_kept", { keptAt: refused.data.keptAt });
      expect(await said(one)).toEqual(expect.arrayContaining(["first", "second", "third"]));
      expect(server.sql(`select entries from pi_fleet.session where id = '${sessionId}'`)).toMatch(/^[34]$/);
    },
  );

  test("goes on where it was, if nobody else wrote; and nothing is taken twice, or from nobody", async () => {
    const one = await machine("jsonl");
    await one.result("append", { entries: [user("first")] });
    const { sessionId } = await one.result("get_state");
    const epoch = (): number => Number(server.sql(`select epoch from pi_fleet.session where id = '${sessionId}'`));
    const before = epoch();
    await take(sessionId);
    expect(epoch()).toBe(before + 1);
    expect((await take(sessionId)).stdout).toContain("Nobody has");
    expect(epoch()).toBe(before + 1);
    await one.result("append", { entries: [user("second")] });
    expect(await said(one)).toEqual(["first", "second"]);
    expect(server.sql(`select entries from pi_fleet.session where id = '${sessionId}'`)).toBe("2");
    const unknown = await take("no-such-session");
    expect([unknown.status, unknown.stdout]).toEqual([1, ""]);
    expect(unknown.stderr).toContain("No session has the id no-such-session");
    expect((await take()).stderr).toContain("fleet take <id>");
    await leave(one, sessionId);
    await one.result("delete_session", { sessionId });
    expect((await take(sessionId)).stderr).toContain("No session has the id");
    expect(server.sql(`select state from pi_fleet.session where id = '${sessionId}'`)).toBe("2");
  });

  test.each([true, false])(
    "during a commit of its holder: what the database has is acknowledged, once (the commit is first: %s)",
    async (isCommitFirst) => {
      const [one, two] = [await machine("jsonl"), await machine("jsonl")];
      await one.result("append", { entries: [user("first")] });
      const { sessionId } = await one.result("get_state");
      const state = (): string =>
        server.sql(`select entries, epoch, holder is null from pi_fleet.session where id = '${sessionId}'`);
      const epoch = Number(state().split("|")[1]);
      // The transaction of this session sees one state of pg_stat_activity.
      const waiting = `select count(*) from pg_locks where not granted and pid in (select pid from pg_locks
        where database = (select oid from pg_database where datname = current_database()))`;
      const areWaiting = (count: number): Promise<void> =>
        expect.poll(() => server.sql(waiting), { timeout: 30_000, interval: 20 }).toBe(`${count}`);
      // Both wait for the row, and get it in their order.
      server.sql("begin");
      server.sql(`select from pi_fleet.session where id = '${sessionId}' for update`);
      const steps = [() => one.result("append", { entries: [user("second")] }), () => take(sessionId)];
      if (!isCommitFirst) steps.reverse();
      const results: Promise<Run | Json>[] = [];
      for (const step of steps) {
        results.push(step());
        await areWaiting(results.length);
      }
      server.sql("commit");
      const all = await Promise.all(results);
      if (!isCommitFirst) all.reverse();
      expect(all[1]).toMatchObject({ stderr: "", stdout: expect.stringMatching(/Taken from .* on host of machine/) });
      // Nobody else wrote: a commit that came second takes the session again.
      expect(state()).toBe(isCommitFirst ? `2|${epoch + 1}|t` : `2|${epoch + 2}|f`);
      expect(await said(one)).toEqual(["first", "second"]);
      if (!isCommitFirst) await leave(one, sessionId);
      await two.result("switch_session", { sessionId });
      await two.result("append", { entries: [user("third")] });
      expect(await said(two)).toEqual(["first", "second", "third"]);
    },
  );

  test("somebody who takes it between what is asked and what is done loses it, and nobody is named who did not", async () => {
    const one = await machine("jsonl");
    await one.result("append", { entries: [user("first")] });
    const { sessionId } = await one.result("get_state");
    const [operator, next] = ["an operator", "a next"].map((name) => sqlFleet(server.url, name));
    fleets.push(operator, next);
    const { connections, keeper } = operator;
    const run = connections.run.bind(connections);
    const between: (() => Promise<unknown>)[] = [];
    connections.run = async (question) => {
      const { text } = typeof question === "function" ? question({ durability: "primary", version: "" }) : question;
      if (text.includes("update pi_fleet.session")) await between.shift()?.();
      return run(question);
    };
    const holder = (): string =>
      server.sql(
        `select coalesce(holder_host, '') from pi_fleet.session where id = '${sessionId}' and holder is not null`,
      );
    const has = async (): Promise<string> => holder().replace("host of ", "");
    // Its holder takes it anew, as its lease would end: it loses that, too.
    const [who, epoch] = [await has(), server.sql(`select holder from pi_fleet.session where id = '${sessionId}'`)];
    between.push(async () => server.sql(`update pi_fleet.session set epoch = epoch + 1 where holder = '${epoch}'`));
    expect(await keeper.takeAway(sessionId)).toMatchObject({ host: `host of ${who}` });
    expect(holder()).toBe("");
    // It lets go of it, and another one takes it.
    expect(await next.fleet.take(sessionId, 0)).toMatchObject({ kind: "taken" });
    between.push(async () => {
      server.sql(`update pi_fleet.session set holder = null, lease_until = null where id = '${sessionId}'`);
      expect(await one.result("append", { entries: [user("second")] })).toBeDefined();
    });
    expect(await keeper.takeAway(sessionId)).toMatchObject({ host: `host of ${who}` });
    expect(holder()).toBe("");
    // It lets go of it, and nobody does.
    expect(await next.fleet.take(sessionId, 0)).toMatchObject({ kind: "taken" });
    between.push(async () =>
      server.sql(
        `update pi_fleet.session set epoch = epoch + 1, holder = null, lease_until = null where id = '${sessionId}'`,
      ),
    );
    expect(await keeper.takeAway(sessionId)).toBeNull();
  });

  test("an answer that is lost neither hides who had it nor takes it from who has it since then", async () => {
    const one = await machine("jsonl");
    await one.result("append", { entries: [user("first")] });
    const { sessionId } = await one.result("get_state");
    const [operator, next] = ["operator", "next"].map((name) => sqlFleet(server.url, name));
    fleets.push(operator, next);
    const { connections, keeper } = operator;
    const run = connections.run.bind(connections);
    let lost = 0;
    connections.run = async (question) => {
      const answer = await run(question);
      const { text } = typeof question === "function" ? question({ durability: "primary", version: "" }) : question;
      if (!text.includes("update pi_fleet.session") || lost++ > 0) return answer;
      expect(await next.fleet.take(sessionId, 0)).toMatchObject({ kind: "taken" });
      return { kind: "unknown", reason: "test: the answer is lost" };
    };
    expect(await keeper.takeAway(sessionId)).toMatchObject({ host: expect.stringContaining("machine") });
    expect(lost).toBe(1);
    expect(
      server.sql(`select holder_host from pi_fleet.session where id = '${sessionId}' and holder is not null`),
    ).toBe("host of next");
  });
});
