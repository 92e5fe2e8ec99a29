/** A session of a fleet that is not on this machine is fetched whole when it is opened; what goes wrong leaves nothing. */

import { readdirSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { failingDisk } from "../../support/failing.ts";
import type { HereLivesOptions } from "../../support/proof.ts";
import type { Json } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { entriesOf, FleetServer, idsOf } from "./support/server.ts";
import { FleetTable } from "./support/table-fleet.ts";

const ALL = ["one", ...Array.from({ length: 7 }, (_, n) => `more-${n}`)];

/** A machine that receives lines of the fleet when the gate is open. */
class Gated extends FleetServer {
  open: () => void = () => {};
  private readonly gate = new Promise<void>((resolve) => {
    this.open = resolve;
  });
  /** Resolves when lines are asked for. */
  readonly asked = new Promise<void>((resolve) => {
    this.fleet.turns = () => {
      if (this.fleet.calls.at(-1) !== "lines") return Promise.resolve();
      resolve();
      return this.gate;
    };
  });

  /** Names of the files of sessions, of those that are not whole, too. */
  get files(): string[] {
    return readdirSync(this.lives.place.home, { recursive: true, withFileTypes: true })
      .filter((file) => file.isFile() && /sessions/.test(file.parentPath) && !file.parentPath.includes("state"))
      .map(({ name }) => name);
  }

  /** Asks for a session, and waits until its lines are asked for. */
  async ask(sessionId: string, ...more: Json[]): Promise<void> {
    this.wire.send({ jsonrpc: "2.0", id: 101, method: "switch_session", params: { sessionId } }, ...more);
    await this.asked;
  }

  failure = (sessionId: string): Promise<Json> => this.refused("switch_session", { sessionId });
}

/** A machine that lacks a session of another one. */
async function lacking(store = "jsonl", more: Omit<HereLivesOptions, "fleet"> = {}) {
  const table = new FleetTable();
  const { sessionId } = await new FleetServer([], { table }).make(ALL);
  return Object.assign(await new Gated(["--store", store], { table, ...more }).start(), { sessionId, table });
}

test("what is asked after it waits for it, and nothing has the session's name before it is whole", async () => {
  const own = await lacking();
  await own.ask(own.sessionId, { jsonrpc: "2.0", id: 102, method: "get_entries" });
  expect(own.files.filter((name) => name.endsWith(".jsonl"))).toEqual([]);
  own.open();
  expect((await own.wire.reply(101)).result.sessionId).toBe(own.sessionId);
  expect(idsOf((await own.wire.reply(102)).result)).toEqual(ALL);
  expect(own.files).toHaveLength(1);
});

test.each([false, true])("a host that leaves meanwhile leaves all of it, or nothing (away: %s)", async (isAway) => {
  const own = await lacking();
  const { fleet, lives, sessionId } = own;
  await own.ask(sessionId);
  const ended = lives.end();
  if (isAway) fleet.faultAt = (_, name) => (name === "lines" ? "before" : undefined);
  own.open();
  await ended;
  expect(own.files.map((name) => name.endsWith(`${sessionId}.jsonl`))).toEqual(isAway ? [] : [true]);
});

test("a session that is removed meanwhile is not opened, and leaves nothing", async () => {
  const own = await lacking();
  await own.ask(own.sessionId);
  own.table.rows.delete(own.sessionId);
  own.open();
  expect((await own.wire.reply(101)).error?.data.name).toBe("storage_failed");
  expect(own.files).toEqual([]);
});

acrossTiers(describe, ["jsonl", "v2"])("with sessions as %s", (store) => {
  test.each(["switch_session", "open_session"])("a host hears how much is here, where it asks (%s)", async (method) => {
    for (const isAsked of [true, false]) {
      const own = await lacking(store);
      const { fleet, sessionId, wire } = own;
      own.open();
      await wire.result(method, { sessionId, ...(isAsked ? { _meta: { progressToken: "mine" } } : {}) });
      const reports = wire.events.filter((event) => event.method === "$/progress").map(({ params }) => params);
      const { bytes } = (await fleet.look(sessionId))?.end ?? {};
      const done = reports.map(({ value }) => value.done);
      expect(reports.every(({ token, value }) => token === "mine" && value.total === bytes)).toBe(true);
      expect(done).toEqual([...done].sort((a, b) => a - b));
      expect([done.length > 1, done.at(-1)]).toEqual(isAsked ? [true, bytes] : [false, undefined]);
      expect(await own.ids({ sessionId })).toEqual(ALL);
      await wire.result("append", { sessionId, entries: entriesOf("three") });
      expect(own.table.linesOf(sessionId)).toHaveLength(9);
      // It is here now.
      fleet.calls.length = 0;
      await wire.result("close_session", { sessionId });
      await wire.result(method, { sessionId, _meta: { progressToken: "again" } });
      expect(fleet.calls).not.toContain("lines");
      expect(wire.events.some(({ params }) => params?.token === "again")).toBe(false);
    }
  });

  test.each([
    ["lines of another", { name: "storage_failed", retryable: false }],
    ["no such session", { name: "session_not_found" }],
    ["no database", { name: "storage_failed", retryable: true }],
    ["a database that goes away", { name: "storage_failed", retryable: true }],
    ["a full disk", { name: "storage_full" }],
  ])("%s fails it and leaves nothing, and a later try succeeds", async (what, failure) => {
    let isWrong = true;
    const isFull = (operation: string): boolean => isWrong && what === "a full disk" && operation === "write";
    const { disk } = failingDisk((_, operation) => (isFull(operation) ? "ENOSPC" : undefined));
    const own = await lacking(store, { disk });
    const { sessionId, table } = own;
    const row = table.rows.get(sessionId) as { lines: Uint8Array[] };
    const [first] = row.lines;
    own.open();
    let pieces = 0;
    if (what === "lines of another") row.lines[0] = Uint8Array.from(first, (byte) => (byte === 0x6f ? 0x30 : byte));
    if (what === "no such session") table.rows.delete(sessionId);
    if (what === "no database") own.loses();
    if (what === "a database that goes away")
      own.fleet.faultAt = (_, name) => (name === "lines" && pieces++ > 0 ? "before" : undefined);
    expect(await own.failure(sessionId)).toMatchObject(failure);
    expect(own.files).toEqual([]);
    own.heals();
    isWrong = false;
    row.lines[0] = first;
    table.rows.set(sessionId, row as never);
    await own.result("switch_session", { sessionId });
    expect(await own.ids()).toEqual(ALL);
  });

  test("two servers of a machine open the same session at once, and both have it", async () => {
    const one = await lacking(store);
    const { table, lives } = one;
    const two = await new Gated(["--store", store], { table, place: lives.place, disk: realDisk }).start();
    const both = [one, two];
    const opened = both.map(({ wire }) => wire.result("switch_session", { sessionId: one.sessionId }));
    await Promise.all(both.map(({ asked }) => asked));
    for (const own of both) own.open();
    await Promise.all(opened);
    for (const own of both) expect(await own.ids()).toEqual(ALL);
  });
});

describe("two servers of a machine with a store each fetch the same session", () => {
  async function race(stores: readonly string[]) {
    const one = await lacking(stores[0]);
    const { table, lives, sessionId } = one;
    const two = await new Gated(["--store", stores[1]], { table, place: lives.place, disk: realDisk }).start();
    const both = [one, two];
    const opened = both.map(({ wire }) => wire.result("switch_session", { sessionId }));
    await Promise.all(both.map(({ asked }) => asked));
    /** Ids of the entries as a third server reads them. */
    const inThird = async () => {
      const third = await new FleetServer([], { table, place: lives.place }).start();
      await third.result("open_session", { sessionId });
      return third.ids({ sessionId });
    };
    return { one, two, both, opened, inThird };
  }
  const ORDERS = [
    ["jsonl", "v2"],
    ["v2", "jsonl"],
  ];

  test.each(ORDERS)("at once (%s, %s): one copy is left, and both have it", async (...stores) => {
    const { both, opened, inThird } = await race(stores);
    for (const own of both) own.open();
    await Promise.all(opened);
    for (const own of both) expect(await own.ids()).toEqual(ALL);
    expect(await inThird()).toEqual(ALL);
  });

  test.each(ORDERS.flatMap((stores) => [true, false].map((writes) => ({ stores, writes }))))(
    "one after the other ($stores, the first has written: $writes): the first one's is the session",
    async ({ stores, writes }) => {
      const { one, two, opened, inThird } = await race(stores);
      one.open();
      const { sessionFile } = await opened[0];
      if (writes) await one.append("next");
      two.open();
      expect((await opened[1]).sessionFile).toBe(sessionFile);
      await one.append("last");
      const all = [...ALL, ...(writes ? ["next"] : []), "last"];
      expect([await one.ids(), await inThird()]).toEqual([all, all]);
    },
  );
});
