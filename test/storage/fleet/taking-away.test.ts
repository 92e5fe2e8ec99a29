/**
 * A session that is taken from a process that has it and lives, by the verb for that, over a real PostgreSQL.
 *
 * @module-tag system
 */

import { describe, expect, test } from "vitest";
import { user } from "../../support/drafts.ts";
import { taken } from "../../support/fleet-commits.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import type { Json } from "../../support/server.ts";
import { fleetSuite, LOST, type Machine, meddle, play } from "../../support/sql-machines.ts";
import { acrossTiers } from "../../support/tiers.ts";
import type { Run } from "../../support/verbs.ts";

describe("a session that is taken from its holder", needs(POSTGRESQL), () => {
  const suite = fleetSuite();
  const take = (id: string): Promise<Run> => suite.verb(`take ${id}`);
  const FROM_MACHINE = expect.stringMatching(/Taken from .* on host of machine/);
  const append = ({ wire }: Machine, text: string): Promise<Json> => wire.result("append", { entries: [user(text)] });
  const said = async ({ wire }: Machine): Promise<string[]> =>
    (await wire.result("get_entries")).entries.map(({ message }: Json) => message?.content).filter(Boolean);
  /** A machine that has a session, of which the database tells something. */
  const holding = async (kind = "jsonl") => {
    const one = await suite.machine({ args: ["--store", kind] });
    await append(one, "first");
    const { sessionId } = await one.wire.result("get_state");
    const row = (columns: string): string => suite.row(sessionId, columns);
    const letGo = (more = ""): string =>
      suite.sql(`update pi_fleet.session set ${more} holder = null, lease_until = null`);
    return { one, sessionId, row, letGo };
  };

  acrossTiers(test, ["jsonl", "v2"])(
    "is written to at once by another, and what its holder writes then is kept (%s)",
    async (kind) => {
      const { one, sessionId, row } = await holding(kind);
      const two = await suite.machine({ args: ["--store", kind] });
      await two.wire.result("switch_session", { sessionId });
      const early = await two.wire.failure("append", { entries: [user("too early")] });
      expect(early.data.name).toBe("session_locked");
      expect(await take(sessionId.slice(0, 13))).toMatchObject({ stderr: "", stdout: FROM_MACHINE });
      await append(two, "second");
      // Its holder is told, and has what it wrote for a branch.
      const { data } = await one.wire.failure("append", { entries: [user("third")] });
      expect(data).toMatchObject({ name: "session_locked", keptAt: expect.any(String) });
      expect(row("entries")).toBe("2");
      await suite.leave(two.wire, sessionId);
      const { keptAt } = data;
      expect((await one.wire.result("list_kept")).kept).toMatchObject([{ keptAt, sessionId }]);
      await one.wire.result("recover_kept", { keptAt });
      expect(await said(one)).toEqual(expect.arrayContaining(["first", "second", "third"]));
      expect(row("entries")).toMatch(/^[34]$/);
    },
  );

  test("goes on where it was, if nobody else wrote; and nothing is taken twice, or from nobody", () =>
    play(
      suite,
      `one switch_session; one append first; row epoch = 2; one fleet take {s} ~ Taken from .* on host of machine
      row epoch = 3; one fleet take {s} ~ Nobody has; row epoch = 3; one append second; row entries = 4; one leave
      one reads second; one fleet take no-such-session = status:1 stdout: ~ No session has the id no-such-session
      one fleet take ~ fleet take <id>; one delete_session; one fleet take {s} ~ No session has the id; row state = 2`,
    ));

  test.each([true, false])(
    "during a commit of its holder: what the database has is acknowledged, once (the commit is first: %s)",
    async (isCommitFirst) => {
      const { one, sessionId, row } = await holding();
      const two = await suite.machine();
      const epoch = Number(row("epoch"));
      // The transaction of this session sees one state of pg_stat_activity.
      const waiting = `select count(*) from pg_locks where not granted and pid in (select pid from pg_locks
        where database = (select oid from pg_database where datname = current_database()))`;
      // Both wait for the row, and get it in their order.
      suite.sql("begin");
      suite.sql(`select from pi_fleet.session where id = '${sessionId}' for update`);
      const steps = [() => append(one, "second"), () => take(sessionId)];
      if (!isCommitFirst) steps.reverse();
      const results: Promise<Json>[] = [];
      for (const step of steps) await suite.until(waiting, `${results.push(step())}`);
      suite.sql("commit");
      const all = await Promise.all(results);
      expect(all[isCommitFirst ? 1 : 0]).toMatchObject({ stderr: "", stdout: FROM_MACHINE });
      // Nobody else wrote: a commit that came second takes the session again.
      expect(row("entries, epoch, holder is null")).toBe(isCommitFirst ? `2|${epoch + 1}|t` : `2|${epoch + 2}|f`);
      expect(await said(one)).toEqual(["first", "second"]);
      if (!isCommitFirst) await suite.leave(one.wire, sessionId);
      await two.wire.result("switch_session", { sessionId });
      await append(two, "third");
      expect(await said(two)).toEqual(["first", "second", "third"]);
    },
  );

  test("somebody who takes it between what is asked and what is done loses it, and nobody is named who did not", async () => {
    const { one, sessionId, row, letGo } = await holding();
    const [operator, next] = [suite.open("an operator"), suite.open("a next")];
    const between: (() => unknown)[] = [];
    meddle(operator, async (text) => {
      if (text.includes("update pi_fleet.session")) await between.shift()?.();
    });
    const holder = (): string => row("case when holder is not null then holder_host end");
    const host = holder();
    // Its holder takes it anew, as its lease would end: it loses that, too.
    between.push(() => suite.sql("update pi_fleet.session set epoch = epoch + 1"));
    expect([await operator.keeper.takeAway(sessionId), holder()]).toEqual([expect.objectContaining({ host }), ""]);
    // It lets go of it, and another one takes it.
    await taken(next, sessionId);
    between.push(async () => {
      letGo();
      await append(one, "second");
    });
    expect([await operator.keeper.takeAway(sessionId), holder()]).toEqual([expect.objectContaining({ host }), ""]);
    // It lets go of it, and nobody does.
    await taken(next, sessionId);
    between.push(() => letGo("epoch = epoch + 1,"));
    expect(await operator.keeper.takeAway(sessionId)).toBeNull();
  });

  test("an answer that is lost neither hides who had it nor takes it from who has it since then", async () => {
    const { sessionId, row } = await holding();
    const [operator, next] = [suite.open("operator"), suite.open("next")];
    let lost = 0;
    meddle(operator, async (text, ask) => {
      if (!text.includes("update pi_fleet.session") || lost++ > 0) return;
      await ask();
      await taken(next, sessionId);
      return LOST;
    });
    const host = expect.stringContaining("machine");
    expect(await operator.keeper.takeAway(sessionId)).toMatchObject({ host });
    expect([lost, row("holder_host"), row("holder is null")]).toEqual([1, "host of next", "f"]);
  });
});
