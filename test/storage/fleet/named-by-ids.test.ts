/** Sessions that are asked for by an id of the host's own: where the fleet has one, that is meant, on every machine. */

import { describe, expect, test } from "vitest";
import { user } from "../../support/drafts.ts";
import { FleetServer } from "../../support/fleet-server.ts";

const ID = "01a207fe-a9e0-7627-b723-b2b3affbbe10";

describe.each(["jsonl", "v2"])("with copies as %s", (store) => {
  /** A machine that has made a session, and ended, and the next one of its fleet. */
  const machines = async () => {
    const one = new FleetServer(["--store", store]);
    await one.make(["one"], "--session-id", ID);
    const { table } = one.fleet;
    return { one, table, two: new FleetServer(["--store", store], { table }) };
  };

  test.each([
    ["--session-id goes on with the session that the fleet has, here and elsewhere", ["--session-id", ID]],
    ["--continue brings the copy up to date", ["--continue"]],
  ])("%s", async (_, args) => {
    const { one, two, table } = await machines();
    await two.start("--session-id", ID);
    expect(await two.ids()).toEqual(["one"]);
    await two.append("two");
    await two.end();
    // On a machine that has a copy, which is behind, too.
    await one.start(...args);
    expect(await one.ids()).toEqual(["one", "two"]);
    // The beginning of an id is another one.
    const other = await new FleetServer([], { table }).start("--session-id", ID.slice(0, 8));
    expect(await other.ids()).toEqual([]);
    table.check();
  });

  test("new_session with the id of one of the fleet says at the first write how to go on", async () => {
    const { two, table } = await machines();
    await two.start();
    await two.result("new_session", { newSessionId: ID });
    for (let tries = 0; tries < 2; tries++) {
      const data = await two.refused("append", { entries: [user("mine")] });
      expect(data).toMatchObject({ name: "already_exists", retryable: false, sessionId: ID });
      expect([data.keptAt, table.rows.get(ID)?.holder]).toEqual([undefined, null]);
    }
    await two.result("new_session");
    await two.result("switch_session", { sessionId: ID });
    expect(await two.ids()).toEqual(["one"]);
    await two.append("two");
    expect(two.inFleet(ID)).toEqual(["one", "two"]);
  });

  test("--fork whose --name cannot be written is let go, and the failure says where the fork is", async () => {
    const { one, table } = await machines();
    const { fleet, lives } = one;
    const own = fleet.append.bind(fleet);
    let appends = 0;
    const unfit = { kind: "unfit", reason: "a value", isOfValue: false } as const;
    fleet.append = async (batch) => (++appends > 1 ? unfit : own(batch));
    const { wire } = await one.start("--fork", ID, "--name", "named");
    await wire.failure("get_state");
    const fork = [...table.rows.keys()].find((id) => id !== ID) as string;
    expect(lives.said.join()).toMatch(/^(?!.*Nothing was changed).*is there all the same/s);
    expect(table.rows.get(fork)?.holder).toBe(null);
    fleet.append = own;
    await one.result("switch_session", { sessionId: fork });
    await one.append("two");
    await lives.end();
    expect(table.linesOf(fork)).toHaveLength(2);
    table.check();
  });
});

test("--session-id begins no session where the fleet cannot be asked whether it has one", async () => {
  const one = new FleetServer();
  one.loses();
  await one.start("--session-id", ID);
  expect((await one.refused("get_entries")).name).toBe("storage_failed");
  expect(one.lives.said.join()).toContain("fleet");
});
