/** Sessions that are asked for by an id of the host's own: where the fleet has one, that is meant, on every machine. */

import { describe, expect, test } from "vitest";
import { user } from "../../support/drafts.ts";
import { FleetTable, fleetOptions, MemoryFleet } from "../../support/fleet.ts";
import { HereLives } from "../../support/proof.ts";
import type { Json, Place, Wire } from "../../support/server.ts";

const ID = "01a207fe-a9e0-7627-b723-b2b3affbbe10";
let seeds = 0;

const idsOf = async (wire: Wire): Promise<string[]> =>
  (await wire.result("get_entries")).entries.map(({ id }: Json) => id);
const append = (wire: Wire, id: string): Promise<Json> => wire.result("append", { entries: [user(id, { id })] });

describe.each(["jsonl", "v2"])("with copies as %s", (store) => {
  /** Starts a server of a machine. */
  const started = async (table: FleetTable, args: string[], place?: Place, kind = store) => {
    const fleet = new MemoryFleet(table, `machine ${++seeds}`);
    const lives = new HereLives({ seed: seeds, fleet: fleetOptions(fleet), ...(place ? { place } : {}) });
    return { fleet, lives, wire: await lives.start(["--store", kind, ...args]) };
  };
  /** Makes a session with an entry on a machine that ends then. */
  const made = async (table: FleetTable) => {
    const one = await started(table, ["--session-id", ID]);
    await append(one.wire, "one");
    await one.lives.end();
    return one;
  };

  test.each([
    ["--session-id goes on with the session that the fleet has, here and elsewhere", ["--session-id", ID]],
    ["--continue brings the copy up to date", ["--continue"]],
  ])("%s", async (_, args) => {
    const table = new FleetTable();
    const one = await made(table);
    const two = await started(table, ["--session-id", ID]);
    expect(await idsOf(two.wire)).toEqual(["one"]);
    await append(two.wire, "two");
    await two.lives.end();
    // On a machine that has a copy, which is behind, too.
    const again = await started(table, args, one.lives.place);
    expect(await idsOf(again.wire)).toEqual(["one", "two"]);
    // The beginning of an id is another one.
    const other = await started(table, ["--session-id", ID.slice(0, 8)], undefined, "jsonl");
    expect(await idsOf(other.wire)).toEqual([]);
    table.check();
  });

  test("new_session with the id of one of the fleet says at the first write how to go on", async () => {
    const table = new FleetTable();
    await made(table);
    const { wire } = await started(table, []);
    await wire.result("new_session", { newSessionId: ID });
    for (let tries = 0; tries < 2; tries++) {
      const { data } = await wire.failure("append", { entries: [user("mine")] });
      expect(data).toMatchObject({ name: "already_exists", retryable: false, sessionId: ID });
      expect([data.keptAt, table.rows.get(ID)?.holder]).toEqual([undefined, null]);
    }
    await wire.result("new_session");
    await wire.result("switch_session", { sessionId: ID });
    expect(await idsOf(wire)).toEqual(["one"]);
    await append(wire, "two");
    expect(table.linesOf(ID)).toHaveLength(2);
  });

  test("--fork whose --name cannot be written is let go, and the failure says where the fork is", async () => {
    const table = new FleetTable();
    const { fleet, lives } = await made(table);
    const own = fleet.append.bind(fleet);
    let appends = 0;
    fleet.append = async (batch) =>
      ++appends > 1 ? { kind: "unfit", reason: "a value", isOfValue: false } : own(batch);
    const wire = await lives.start(["--store", store, "--fork", ID, "--name", "named"]);
    await wire.failure("get_state");
    const fork = [...table.rows.keys()].find((id) => id !== ID) as string;
    expect(lives.said.join()).toMatch(/^(?!.*Nothing was changed).*is there all the same/s);
    expect(table.rows.get(fork)?.holder).toBe(null);
    fleet.append = own;
    await wire.result("switch_session", { sessionId: fork });
    await append(wire, "two");
    await lives.end();
    expect(table.linesOf(fork)).toHaveLength(2);
    table.check();
  });
});

test("--session-id begins no session where the fleet cannot be asked whether it has one", async () => {
  const fleet = new MemoryFleet();
  fleet.faultAt = () => "before";
  const lives = new HereLives({ fleet: fleetOptions(fleet) });
  const wire = await lives.start(["--session-id", ID]);
  expect((await wire.failure("get_entries")).data.name).toBe("storage_failed");
  expect(lives.said.join()).toContain("fleet");
});
