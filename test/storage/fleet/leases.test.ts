/**
 * The renewing of leases of a process that writes nothing, over a real PostgreSQL: which sessions it has, and which not.
 *
 * @module-tag system
 */

import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import type { SqlAnswer } from "../../../src/storage/fleet/connections.ts";
import { endAfter, NOTHING } from "../../../src/storage/fleet/ends.ts";
import { Database } from "../../support/database.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { type SqlFleet, sqlFleet } from "../../support/sql-fleet.ts";

const HEADER = Buffer.from('{"type":"session"}');
/** Milliseconds after which leases are renewed. */
const EVERY = 10_000;
const HOUR = 3_600_000;

describe("leases", needs(POSTGRESQL), () => {
  let server: Database;
  const open: SqlFleet[] = [];
  const connect = (name: string, lease = HOUR): SqlFleet => {
    const fleet = sqlFleet(server.url, name, { lease });
    open.push(fleet);
    return fleet;
  };
  /** Takes sessions for a process. Returns it with what renews its leases, and says what came of that. */
  const holding = async (
    name: string,
    ids: readonly string[],
  ): Promise<Pick<SqlFleet, "fleet"> & { renew: () => Promise<string> }> => {
    const { fleet, connections } = connect(name);
    for (const id of ids) expect(await fleet.take(id, 0, HEADER)).toMatchObject({ kind: "taken" });
    const run = connections.run.bind(connections);
    let asked: Promise<SqlAnswer>[] = [];
    connections.run = (question, sent) => {
      const answer = run(question, sent);
      asked.push(answer);
      return answer;
    };
    const renew = async (): Promise<string> => {
      asked = [];
      vi.advanceTimersByTime(EVERY);
      const [own, ...others] = await Promise.all(asked);
      expect(others).toEqual([]);
      return own.kind;
    };
    return { fleet, renew };
  };
  const runOut = (): string => server.sql("update pi_fleet.session set lease_until = clock_timestamp()");
  const leased = (): string =>
    server.sql("select string_agg(id, ' ' order by id) from pi_fleet.session where lease_until > clock_timestamp()");

  beforeAll(async () => {
    server = new Database();
    await server.start();
    // Who waits for a row is told so, and does not wait for ever.
    server.configure("set lock_timeout = 300");
  });
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    server.sql("truncate pi_fleet.session");
    return () => vi.useRealTimers();
  });
  afterAll(async () => {
    await Promise.all(open.map(({ fleet }) => fleet.close()));
    await server.close();
  });

  test("are renewed together, but for those of rows that are written to, whose turn is the next time", async () => {
    const { renew } = await holding("one", ["a", "b", "c"]);
    runOut();
    // Somebody writes to one row and goes on to another, which would wait for whoever waits for the first.
    server.sql("begin");
    server.sql("update pi_fleet.session set messages = 1 where id = 'b'");
    expect(await renew()).toBe("done");
    server.sql("update pi_fleet.session set messages = 1 where id = 'a'");
    expect(await renew()).toBe("done");
    server.sql("commit");
    expect(leased()).toBe("a c");
    expect(await renew()).toBe("done");
    expect(leased()).toBe("a b c");
  });

  test("that are renewed are known to be, so that nobody takes again what was silent, and others are not", async () => {
    const { renew, fleet } = await holding("one", ["a", "b", "c"]);
    const renewed = (): boolean[] => ["a", "b", "c", "d"].map((id) => fleet.renewedAgo(id) < HOUR);
    expect(renewed()).toEqual([false, false, false, false]);
    server.sql("begin");
    server.sql("update pi_fleet.session set messages = 1 where id = 'b'");
    server.sql("update pi_fleet.session set holder = 'two' where id = 'c'");
    expect(await renew()).toBe("done");
    server.sql("commit");
    expect(renewed()).toEqual([true, false, false, false]);
    // It is another taking, which was not heard of.
    await fleet.take("a", 0);
    expect(renewed()).toEqual([false, false, false, false]);
  });

  test("are worth nothing where the database lacks what it has said of the session, as one that was restored", async () => {
    const { renew, fleet } = await holding("one", ["a", "b"]);
    const lines = [Buffer.from('{"n":1}')];
    const facts = { counts: { messages: 0, modified: null, isPlain: true }, texts: [], spendings: [] };
    const heads = [JSON.stringify(["1", null, "message", "user"])];
    const batch = { epoch: 1, before: NOTHING, after: endAfter(NOTHING, lines), lines, heads, facts };
    for (const sessionId of ["a", "b"])
      expect(await fleet.append({ ...batch, sessionId })).toMatchObject({ kind: "committed" });
    server.sql(`update pi_fleet.session set entries = 0, bytes = 0, chain = decode('${NOTHING.chain}', 'hex')
      where id = 'a'`);
    expect(await renew()).toBe("done");
    expect(["a", "b"].map((id) => fleet.renewedAgo(id) < HOUR)).toEqual([false, true]);
  });

  test("of sessions that another process has taken are that one's, also when it lets go of them", async () => {
    const { renew } = await holding("one", ["a", "b"]);
    runOut();
    const other = connect("two", 3 * HOUR);
    const taking = await other.fleet.take("a", 0);
    const row = (): string =>
      server.sql(`select holder, epoch, lease_until > clock_timestamp() + interval '2 hours'
        from pi_fleet.session where id = 'a'`);
    expect(row()).toBe("two|2|t");
    expect(await renew()).toBe("done");
    expect(row()).toBe("two|2|t");
    expect(leased()).toBe("a b");
    await other.fleet.release("a", taking.kind === "taken" ? taking.epoch : 0);
    expect(await renew()).toBe("done");
    expect(row()).toBe("|2|");
    // An operator took it, and nobody has it.
    await other.keeper.takeAway("b");
    expect(await renew()).toBe("done");
    expect(leased()).toBe("");
  });

  test("of sessions that were let go of are not renewed, and nothing is asked where there are none", async () => {
    const { fleet, connections } = connect("three");
    const taking = await fleet.take("a", 0, HEADER);
    await fleet.release("a", taking.kind === "taken" ? taking.epoch : 0);
    const run = vi.spyOn(connections, "run");
    vi.advanceTimersByTime(EVERY);
    expect(run).not.toHaveBeenCalled();
    expect(leased()).toBe("");
  });

  test("that end while another process takes the session are no reason to refuse it", async () => {
    const [one, two] = [connect("four"), connect("five")];
    const taking = await one.fleet.take("a", 0, HEADER);
    const run = two.connections.run.bind(two.connections);
    const asked = vi.spyOn(two.connections, "run").mockImplementation(async (question, sent) => {
      // It was found held, and the holder is asked about.
      if (asked.mock.calls.length === 2) await one.fleet.release("a", taking.kind === "taken" ? taking.epoch : 0);
      return run(question, sent);
    });
    expect(await two.fleet.take("a", 0)).toMatchObject({ kind: "taken", epoch: 2 });
  });

  test("of a session that was begun on a server which was then lost begin it again, and do not say that it was deleted", async () => {
    const { fleet, connections } = connect("six");
    const run = connections.run.bind(connections);
    const asked = vi.spyOn(connections, "run").mockImplementation(async (question, sent) => {
      // It was found missing and begun, and is to be taken.
      if (asked.mock.calls.length === 4) server.sql("delete from pi_fleet.session where id = 'begun'");
      return run(question, sent);
    });
    expect(await fleet.take("begun", 0, HEADER)).toMatchObject({ kind: "taken", epoch: 1 });
    expect(asked.mock.calls.length).toBeGreaterThan(4);
  });
});
