/** A session of a fleet that is not on this machine is fetched whole when it is opened; what goes wrong leaves nothing. */

import { readdirSync } from "node:fs";
import { expect, test } from "vitest";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { assistant, user } from "../../support/drafts.ts";
import { failingDisk } from "../../support/failing.ts";
import { FleetTable, fleetOptions, MemoryFleet } from "../../support/fleet.ts";
import { HereLives, type HereLivesOptions } from "../../support/proof.ts";
import type { Json, Wire } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";

const STORES = ["jsonl", "v2"];
const MORE = Array.from({ length: 6 }, (_, n) => `more-${n}`);
const ALL = ["one", "two", ...MORE];
let seeds = 0;

/** A fleet whose lines come when the gate is open. */
class GatedFleet extends MemoryFleet {
  open: () => void = () => {};
  private readonly gate = new Promise<void>((resolve) => {
    this.open = resolve;
  });
  private began: () => void = () => {};
  /** Resolves when lines are asked for. */
  readonly asked = new Promise<void>((resolve) => {
    this.began = resolve;
  });

  override async *lines(sessionId: string, from: number, to: number): AsyncIterable<readonly Uint8Array[]> {
    this.began();
    await this.gate;
    yield* super.lines(sessionId, from, to);
  }
}

interface Machine {
  readonly wire: Wire;
  readonly lives: HereLives;
  readonly fleet: GatedFleet;
}

async function machine(
  table: FleetTable,
  args: readonly string[],
  more: Omit<HereLivesOptions, "fleet"> = {},
): Promise<Machine> {
  const fleet = new GatedFleet(table, `machine ${++seeds}`);
  fleet.leasesEnd = true;
  const lives = new HereLives({ seed: seeds, fleet: fleetOptions(fleet, { tries: 0 }), ...more });
  return { wire: await lives.start([...args]), lives, fleet };
}

/** A machine that lacks a session of another one. */
async function lacking(
  store = "jsonl",
  more: Omit<HereLivesOptions, "fleet"> = {},
): Promise<Machine & { sessionId: string; table: FleetTable }> {
  const table = new FleetTable();
  const one = await machine(table, ["--store", store]);
  await one.wire.result("append", { entries: [user("one", { id: "one" }), assistant("two", { id: "two" })] });
  await one.wire.result("append", { entries: MORE.map((id) => user("more", { id })) });
  const { sessionId } = await one.wire.result("get_state");
  await one.lives.end();
  table.leave();
  return { ...(await machine(table, ["--store", store], more)), sessionId, table };
}

/** Names of the files of sessions on a machine, of those that are not whole, too. */
function filesOf({ lives }: Machine): string[] {
  return readdirSync(lives.place.home, { recursive: true, withFileTypes: true })
    .filter((file) => file.isFile() && /sessions/.test(file.parentPath) && !file.parentPath.includes("state"))
    .map(({ name }) => name);
}

const idsOf = async ({ wire }: Machine, where: Json = {}): Promise<string[]> =>
  (await wire.result("get_entries", where)).entries.map(({ id }: Json) => id);

acrossTiers(
  test,
  STORES.flatMap((store) => ["switch_session", "open_session"].map((method) => ({ store, method }))),
)("a host that asks for it hears how much of the session is here ($store, $method)", async ({ store, method }) => {
  for (const isAsked of [true, false]) {
    const own = await lacking(store);
    own.fleet.open();
    const { sessionId, wire } = own;
    await wire.result(method, { sessionId, ...(isAsked ? { _meta: { progressToken: "mine" } } : {}) });
    const reports = wire.events.filter((event) => event.method === "$/progress").map(({ params }) => params);
    const { bytes } = (await own.fleet.look(sessionId))?.end ?? {};
    const done = reports.map(({ value }) => value.done);
    expect(reports.every(({ token, value }) => token === "mine" && value.total === bytes)).toBe(true);
    expect(done).toEqual([...done].sort((a, b) => a - b));
    expect([done.length > 1, done.at(-1)]).toEqual(isAsked ? [true, bytes] : [false, undefined]);
    expect(await idsOf(own, { sessionId })).toEqual(ALL);
    await wire.result("append", { sessionId, entries: [user("three", { id: "three" })] });
    expect(own.table.linesOf(sessionId)).toHaveLength(9);
    // It is here now.
    own.fleet.calls.length = 0;
    await wire.result("close_session", { sessionId });
    await wire.result(method, { sessionId, _meta: { progressToken: "again" } });
    expect(own.fleet.calls).not.toContain("lines");
    expect(wire.events.some(({ params }) => params?.token === "again")).toBe(false);
  }
});

test("what is asked after it waits for it, and nothing has the session's name before it is whole", async () => {
  const own = await lacking();
  const { wire, fleet, sessionId } = own;
  wire.send(
    { jsonrpc: "2.0", id: 101, method: "switch_session", params: { sessionId } },
    { jsonrpc: "2.0", id: 102, method: "get_entries" },
  );
  await fleet.asked;
  expect(filesOf(own).filter((name) => name.endsWith(".jsonl"))).toEqual([]);
  fleet.open();
  expect((await wire.reply(101)).result.sessionId).toBe(sessionId);
  expect((await wire.reply(102)).result.entries.map(({ id }: Json) => id)).toEqual(ALL);
  expect(filesOf(own)).toHaveLength(1);
});

acrossTiers(test, STORES)(
  "a database that goes away meanwhile leaves nothing here, and a later try succeeds (%s)",
  async (store) => {
    const own = await lacking(store);
    const { wire, fleet, sessionId } = own;
    fleet.open();
    let pieces = 0;
    // The first piece comes, and then no more.
    fleet.faultAt = (_, name) => (name === "lines" && pieces++ > 0 ? "before" : undefined);
    const { data } = await wire.failure("switch_session", { sessionId });
    expect(data).toMatchObject({ name: "storage_failed", retryable: true });
    expect(pieces).toBe(2);
    expect(filesOf(own)).toEqual([]);
    fleet.faultAt = () => undefined;
    await wire.result("switch_session", { sessionId });
    expect(await idsOf(own)).toEqual(ALL);
  },
);

test("a host that leaves meanwhile leaves all of it, or nothing", async () => {
  for (const isAway of [false, true]) {
    const own = await lacking();
    const { wire, fleet, lives, sessionId } = own;
    wire.send({ jsonrpc: "2.0", id: 101, method: "switch_session", params: { sessionId } });
    await fleet.asked;
    const ended = lives.end();
    if (isAway) fleet.faultAt = (_, name) => (name === "lines" ? "before" : undefined);
    fleet.open();
    await ended;
    expect(filesOf(own).map((name) => name.endsWith(`${sessionId}.jsonl`))).toEqual(isAway ? [] : [true]);
  }
});

test("lines that are not those of the session are not kept", async () => {
  const own = await lacking();
  const row = own.table.rows.get(own.sessionId);
  if (row) row.lines[0] = Uint8Array.from(row.lines[0], (byte) => (byte === 0x6f ? 0x30 : byte));
  own.fleet.open();
  const { data } = await own.wire.failure("switch_session", { sessionId: own.sessionId });
  expect(data).toMatchObject({ name: "storage_failed", retryable: false });
  expect(filesOf(own)).toEqual([]);
});

test("a session that is removed meanwhile is not opened, and leaves nothing", async () => {
  const own = await lacking();
  const { wire, fleet, sessionId } = own;
  wire.send({ jsonrpc: "2.0", id: 101, method: "switch_session", params: { sessionId } });
  await fleet.asked;
  own.table.rows.delete(sessionId);
  fleet.open();
  expect((await wire.reply(101)).error?.data.name).toBe("storage_failed");
  expect((await wire.failure("switch_session", { sessionId })).data.name).toBe("session_not_found");
  expect(filesOf(own)).toEqual([]);
});

test("a full disk fails it, leaves nothing, and it is tried again", async () => {
  let isFull = false;
  const { disk } = failingDisk((_, operation) => (isFull && operation === "write" ? "ENOSPC" : undefined));
  const own = await lacking("jsonl", { disk });
  isFull = true;
  own.fleet.open();
  expect((await own.wire.failure("switch_session", { sessionId: own.sessionId })).data.name).toBe("storage_full");
  expect(filesOf(own)).toEqual([]);
  isFull = false;
  await own.wire.result("switch_session", { sessionId: own.sessionId });
});

acrossTiers(test, STORES)(
  "two servers of a machine open the same session at once, and both have it (%s)",
  async (store) => {
    const one = await lacking(store);
    const two = await machine(one.table, ["--store", store], { place: one.lives.place, disk: realDisk });
    const both = [one, two].map(({ wire }) => wire.result("switch_session", { sessionId: one.sessionId }));
    await Promise.all([one.fleet.asked, two.fleet.asked]);
    one.fleet.open();
    two.fleet.open();
    await Promise.all(both);
    for (const own of [one, two]) expect(await idsOf(own)).toEqual(ALL);
  },
);
