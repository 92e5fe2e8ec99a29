/** Sessions that are asked for by an id of the host's own: where the fleet has one, that is meant, on every machine. */

import { expect, test } from "vitest";
import { user } from "../../support/drafts.ts";
import { FleetTable, fleetOptions, MemoryFleet } from "../../support/fleet.ts";
import { HereLives } from "../../support/proof.ts";
import type { Json, Place, Wire } from "../../support/server.ts";

const STORES = ["jsonl", "v2"];
const ID = "01a207fe-a9e0-7627-b723-b2b3affbbe10";
let seeds = 0;

async function started(fleet: MemoryFleet, args: string[], place?: Place): Promise<{ lives: HereLives; wire: Wire }> {
  const lives = new HereLives({ seed: ++seeds, fleet: fleetOptions(fleet), ...(place ? { place } : {}) });
  return { lives, wire: await lives.start(args) };
}

const idsOf = async (wire: Wire): Promise<string[]> =>
  (await wire.result("get_entries")).entries.map(({ id }: Json) => id);

test.each(STORES)(
  "--session-id goes on with the session that the fleet has, here and elsewhere (%s)",
  async (store) => {
    const table = new FleetTable();
    const args = ["--store", store, "--session-id", ID];
    const one = await started(new MemoryFleet(table, "one"), args);
    await one.wire.result("append", { entries: [user("one", { id: "one" })] });
    await one.lives.end();
    const two = await started(new MemoryFleet(table, "two"), args);
    expect(await idsOf(two.wire)).toEqual(["one"]);
    await two.wire.result("append", { entries: [user("two", { id: "two" })] });
    await two.lives.end();
    // On a machine that has a copy, which is behind, too.
    const again = await started(new MemoryFleet(table, "three"), args, one.lives.place);
    expect(await idsOf(again.wire)).toEqual(["one", "two"]);
    // The beginning of an id is another one.
    const other = await started(new MemoryFleet(table, "four"), ["--session-id", ID.slice(0, 8)]);
    expect(await idsOf(other.wire)).toEqual([]);
    table.check();
  },
);

test("--session-id begins no session where the fleet cannot be asked whether it has one", async () => {
  const fleet = new MemoryFleet();
  fleet.faultAt = () => "before";
  const { lives, wire } = await started(fleet, ["--session-id", ID]);
  expect((await wire.failure("get_entries")).data.name).toBe("storage_failed");
  expect(lives.said.join()).toContain("fleet");
});

test.each(STORES)(
  "new_session with the id of one of the fleet says at the first write how to go on (%s)",
  async (store) => {
    const table = new FleetTable();
    const one = await started(new MemoryFleet(table, "one"), ["--store", store, "--session-id", ID]);
    await one.wire.result("append", { entries: [user("one", { id: "one" })] });
    await one.lives.end();
    const { wire } = await started(new MemoryFleet(table, "two"), ["--store", store]);
    await wire.result("new_session", { newSessionId: ID });
    for (let tries = 0; tries < 2; tries++) {
      const { data } = await wire.failure("append", { entries: [user("mine")] });
      expect(data).toMatchObject({ name: "already_exists", retryable: false, sessionId: ID });
      expect(data.keptAt).toBe(undefined);
      expect(table.rows.get(ID)?.holder).toBe(null);
    }
    await wire.result("new_session");
    await wire.result("switch_session", { sessionId: ID });
    expect(await idsOf(wire)).toEqual(["one"]);
    await wire.result("append", { entries: [user("two", { id: "two" })] });
    expect(table.linesOf(ID)).toHaveLength(2);
  },
);

test.each(STORES)("--continue brings the copy up to date (%s)", async (store) => {
  const table = new FleetTable();
  const one = await started(new MemoryFleet(table, "one"), ["--store", store]);
  await one.wire.result("append", { entries: [user("one", { id: "one" })] });
  const { sessionId } = await one.wire.result("get_state");
  await one.lives.end();
  const two = await started(new MemoryFleet(table, "two"), ["--store", store, "--session", sessionId]);
  await two.wire.result("append", { entries: [user("two", { id: "two" })] });
  await two.lives.end();
  const again = await started(new MemoryFleet(table, "three"), ["--store", store, "--continue"], one.lives.place);
  expect(await idsOf(again.wire)).toEqual(["one", "two"]);
});

test.each(STORES)(
  "--fork whose --name cannot be written is let go, and the failure says where the fork is (%s)",
  async (store) => {
    const table = new FleetTable();
    const fleet = new MemoryFleet(table, "one");
    const one = await started(fleet, ["--store", store, "--session-id", ID]);
    await one.wire.result("append", { entries: [user("one")] });
    await one.lives.end();
    const append = fleet.append.bind(fleet);
    let appends = 0;
    fleet.append = async (batch) =>
      ++appends > 1 ? { kind: "unfit", reason: "a value", isOfValue: false } : append(batch);
    const wire = await one.lives.start(["--store", store, "--fork", ID, "--name", "named"]);
    await wire.failure("get_state");
    const fork = [...table.rows.keys()].find((id) => id !== ID) as string;
    expect(one.lives.said.join()).toContain("is there all the same");
    expect(one.lives.said.join()).not.toContain("Nothing was changed");
    expect(table.rows.get(fork)?.holder).toBe(null);
    fleet.append = append;
    await wire.result("switch_session", { sessionId: fork });
    await wire.result("append", { entries: [user("two")] });
    await one.lives.end();
    expect(table.linesOf(fork)).toHaveLength(2);
    table.check();
  },
);
