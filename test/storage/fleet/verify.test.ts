/**
 * What `fleet verify` says of sessions that others change meanwhile, or that cannot be read. Over a real PostgreSQL.
 *
 * @module-tag system
 */

import { describe, expect, test } from "vitest";
import { Failure } from "../../../src/core/failure.ts";
import type { SqlAnswer } from "../../../src/storage/fleet/connections.ts";
import { assistant, user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import type { Place } from "../../support/server.ts";
import type { SqlFleet } from "../../support/sql-fleet.ts";
import { AWAY, fleetSuite, meddle } from "../../support/sql-machines.ts";

/** Calls by which a session is read. */
const READING = ["stretches", "lines", "attachments"] as const;
const BROKEN: SqlAnswer = { kind: "unknown", reason: "missing chunk number 0 for toast value 16400" };
const TOO_LONG: SqlAnswer = { kind: "failed", code: "54000", reason: "invalid memory alloc request size" };
const FAILED = { name: "storage_failed" };

describe("the verifying of a fleet", needs(POSTGRESQL), () => {
  const suite = fleetSuite();
  let comeBack = (): void => {};
  /** Has the database be away for a process until it comes back. */
  const leaves = (one: SqlFleet): void => {
    comeBack = meddle(one, () => AWAY);
  };
  /** Makes sessions on a machine that ends then, with lines in packs if `long` is 0. Returns their ids. */
  const made = async (count: number, long?: number): Promise<{ place: Place; ids: string[] }> => {
    const { lives, wire, place } = await suite.machine({ fleet: { ...suite.connect(), long } });
    const ids: string[] = [];
    for (let n = 0; n < count; n++) {
      if (n > 0) await wire.result("new_session");
      await wire.result("append", { entries: [user("one"), assistant("two"), user("three")] });
      ids.push((await wire.result("get_state")).sessionId);
    }
    await lives.end();
    return { place, ids };
  };
  /** Returns a fleet of which the first such call about a session comes after something else. */
  const after = (one: SqlFleet, call: (typeof READING)[number], id: string, change: () => unknown): SqlFleet => {
    let isDone = false;
    const once = async (about: string): Promise<void> => {
      if (about !== id || isDone) return;
      isDone = true;
      await change();
    };
    const { fleet } = one;
    const own = fleet[call].bind(fleet) as (...given: unknown[]) => AsyncIterable<never>;
    const changed =
      call === "lines"
        ? async function* (about: string, ...given: unknown[]) {
            await once(about);
            yield* own(about, ...given);
          }
        : (about: string, ...given: unknown[]) => once(about).then(() => own(about, ...given));
    return { ...one, fleet: Object.assign(Object.create(fleet), { [call]: changed }) };
  };
  /** Has statements about the lines of a session not succeed, as long as there are such answers. */
  const refusing = (one: SqlFleet, id: string, answers: SqlAnswer[]): SqlFleet => {
    meddle(one, (text, _, values) =>
      text.includes("string_agg(line") && values.split(",")[1] === id ? answers.shift() : undefined,
    );
    return one;
  };
  /** Returns the care of a machine. */
  const care = async (fleet: SqlFleet, place?: Place) => (await suite.machine({ fleet, place })).lives.care();
  /** Returns what is wrong, by session. */
  const faults = async (fleet: SqlFleet, place?: Place): Promise<string[]> =>
    (await (await care(fleet, place)).verify()).faults.map(({ sessionId, fault }) => `${sessionId} ${fault}`).sort();
  const damage = (id: string): string =>
    suite.sql(`update pi_fleet.entry set line = sha256(line) where session_id = '${id}' and seq = 1`);

  test("what cannot be read for a moment is no fault, and a database that is away ends it", async () => {
    const { place, ids } = await made(2);
    expect(await faults(refusing(suite.connect(), ids[0], [BROKEN, BROKEN]), place)).toEqual([]);
    const dying = suite.connect();
    for (const call of READING) {
      const away = await care(
        after(dying, call, ids[0], () => leaves(dying)),
        place,
      );
      await expect(away.verify(), call).rejects.toMatchObject(FAILED);
      comeBack();
    }
  });

  test("a fault is told of what is there, or damaged: a database that is away when it is asked ends it", async () => {
    const { place, ids } = await made(2);
    // Nothing is asked after the last one.
    const last = [...ids].sort()[1];
    damage(last);
    const one = suite.connect();
    const { keeper } = one;
    const row = keeper.row.bind(keeper);
    const found = async () => faults(one, place);
    keeper.row = async () => {
      throw new Failure("storage_failed", "invalid page in block 0", { fleet: true }, { retryable: true });
    };
    expect(await found()).toEqual([`${last} chain`]);
    keeper.row = async () => null;
    expect(await found()).toEqual([]);
    const mistake = new TypeError("a mistake of ours");
    keeper.row = () => Promise.reject(mistake);
    await expect(found()).rejects.toBe(mistake);
    keeper.row = async (id) => {
      leaves(one);
      return row(id);
    };
    await expect(found()).rejects.toMatchObject(FAILED);
    comeBack();
  });

  /** Deletes a session on a machine with its copy. */
  const deletes = async (place: Place, params: object): Promise<void> => {
    const { lives, wire } = await suite.machine({ place });
    await wire.result("delete_session", params);
    await lives.end();
  };
  const prune = async (place: Place): Promise<number> => {
    suite.sql("update pi_fleet.session set deleted_at = '2010-01-01' where state = 2");
    return (await suite.told("prune --apply --yes", place)).sessions;
  };

  test.each(
    [false, true].flatMap((isPruned) => READING.map((call) => [isPruned ? "and pruned" : "for good", call] as const)),
  )("a session that is deleted %s meanwhile is no fault (before its %s are read)", async (how, call) => {
    const { place, ids } = await made(2);
    const [sessionId] = ids;
    const change = async () => {
      await deletes(place, { sessionId, permanent: how === "for good" });
      if (how !== "for good") expect(await prune(place)).toBe(1);
    };
    expect(await faults(after(suite.connect(), call, sessionId, change))).toEqual([]);
  });

  test("what is wrong in a session that is taken meanwhile is a fault", async () => {
    const { place, ids } = await made(2);
    for (const id of ids) damage(id);
    const take = () => suite.sql(`update pi_fleet.session set epoch = epoch + 1 where id = '${ids[0]}'`);
    expect(await faults(after(suite.connect(), "lines", ids[0], take), place)).toEqual(
      ids.map((id) => `${id} chain`).sort(),
    );
  });

  test.each([TOO_LONG, BROKEN])(
    "a session that cannot be read is a fault of its own, and ends nothing (%o)",
    async (answer) => {
      const { place, ids } = await made(3);
      damage(ids[2]);
      const one = await care(refusing(suite.connect(), ids[0], Array(100).fill(answer)), place);
      const { faults, sessions, copies } = await one.verify();
      expect(faults.map(({ sessionId, fault }) => `${sessionId} ${fault}`).sort()).toEqual(
        [`${ids[0]} chain`, `${ids[2]} chain`].sort(),
      );
      expect([sessions, copies.length]).toEqual([3, 3]);
    },
  );

  test("a right that is taken away meanwhile ends it: of no session is said that it cannot be read", async () => {
    const { place } = await made(3);
    const one = suite.connect();
    const refused: SqlAnswer = { kind: "failed", code: "42501", reason: "permission denied for table session" };
    let asked = 0;
    meddle(one, (text) => {
      if (text.includes("cross join lateral")) asked++;
      return asked > 0 ? refused : undefined;
    });
    await expect((await care(one, place)).verify()).rejects.toMatchObject({ ...FAILED, retryable: false });
    expect(asked).toBe(1);
  });

  test.each(["rows", "packs"])(
    "deleted sessions are read until their rows are pruned, as they may be restored (%s)",
    async (kind) => {
      const { place, ids } = await made(3, kind === "packs" ? 0 : undefined);
      for (const sessionId of ids.slice(0, 2)) await deletes(place, { sessionId });
      const one = await care(suite.connect(), place);
      const found = async () => {
        const { faults, sessions, deleted, entries } = await one.verify();
        return [sessions, deleted, entries, faults.map(({ sessionId, fault }) => `${sessionId} ${fault}`)];
      };
      expect(await found()).toEqual([3, 2, 9, []]);
      // Damage that only the stretches of packs tell of, or the lines.
      const change = kind === "packs" ? "pack set chain = sha256(chain)" : "entry set line = 'x'";
      suite.sql(`update pi_fleet.${change} where session_id = '${ids[0]}'`);
      suite.sql("update pi_fleet.session set indexed = 0 where state = 2");
      expect(await found()).toEqual([3, 2, 9, [`${ids[0]} chain`]]);
      const { status, stdout } = await suite.verb("verify");
      expect([status, stdout]).toEqual([3, expect.stringContaining("2 of them deleted")]);
      await prune(place);
      expect(await found()).toEqual([1, 0, 3, []]);
    },
  );
});
