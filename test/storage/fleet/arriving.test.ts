/**
 * Long sessions of a fleet are open while they are on their way here: what is answered meanwhile is what is answered
 * afterwards, whatever else waits, and what goes wrong leaves nothing.
 */

import { readdirSync } from "node:fs";
import { expect, onTestFinished, test, vi } from "vitest";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { assistant, toolCall, toolResult, user } from "../../support/drafts.ts";
import { failingDisk } from "../../support/failing.ts";
import { FleetTable, fleetOptions, MemoryFleet } from "../../support/fleet.ts";
import { HereLives, type HereLivesOptions } from "../../support/proof.ts";
import { forSeedsAsync, type Random } from "../../support/random.ts";
import type { Json, Wire } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";

const STORES = ["jsonl", "v2"];
/** Returns the stores with so many random sessions of each, the first of them also with a few. */
const sessions = (few: number, many: number): { store: string; count: number }[] => [
  { store: "jsonl", count: few },
  ...STORES.map((store) => ({ store, count: many })),
];
let seeds = 0;

/** A fleet whose lines come when the gate is open; those that are asked for by their positions come at once. */
class GatedFleet extends MemoryFleet {
  private opened: () => void = () => {};
  private readonly gate = new Promise<void>((resolve) => {
    this.opened = resolve;
  });

  private began: () => void = () => {};
  /** Resolves when all lines are asked for. */
  readonly asked = new Promise<void>((resolve) => {
    this.began = resolve;
  });

  open(): void {
    this.opened();
  }

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

/** A machine for which every session is a long one. */
async function machine(
  table: FleetTable,
  args: readonly string[] = [],
  {
    fleet = new GatedFleet(table, `machine ${seeds}`),
    ...more
  }: Omit<HereLivesOptions, "fleet"> & { fleet?: GatedFleet } = {},
): Promise<Machine> {
  fleet.leasesEnd = true;
  const lives = new HereLives({ seed: ++seeds, fleet: { ...fleetOptions(fleet), longFrom: 0 }, ...more });
  return { wire: await lives.start([...args]), lives, fleet };
}

/** Files of sessions on a machine, of those that are not whole, too. */
function filesOf({ lives }: Machine): string[] {
  const all = readdirSync(lives.place.home, { recursive: true, withFileTypes: true });
  return all
    .filter((file) => file.isFile() && /sessions/.test(file.parentPath) && !file.parentPath.includes("state"))
    .map(({ name }) => name);
}

/** Makes a session of random entries, with the server of another machine. Returns its id. */
async function made(table: FleetTable, random: Random, store: string, steps = 40): Promise<string> {
  const { wire, fleet, lives } = await machine(table, ["--store", store]);
  fleet.open();
  const ids: string[] = [];
  const add = async (method: string, params: Json): Promise<void> => {
    const { entryIds = [], entryId } = await wire.result(method, params);
    ids.push(...entryIds, ...(typeof entryId === "string" ? [entryId] : []));
  };
  await add("append", { entries: [user("one"), assistant("two")] });
  const acts: (() => Promise<unknown>)[] = [
    () => add("append", { entries: [user(`say ${random.int(1000)}`)], idempotencyKey: `key-${ids.length}` }),
    () => add("append", { entries: [assistant("x".repeat(random.int(3000)))] }),
    () => add("append", { entries: [toolCall(`call-${ids.length}`)] }),
    () => add("append", { entries: [toolCall("answered"), toolResult("answered", "done")] }),
    () => add("append", { entries: [{ type: "custom", customType: "tick", data: { n: random.int(9) } }] }),
    () => wire.result("branch", { entryId: random.pick(ids) }),
    () => wire.result("set_label", { entryId: random.pick(ids), label: `label ${random.int(5)}` }),
    () => wire.result("set_session_name", { name: `name ${random.int(5)}` }),
    () => wire.result("set_model", { provider: "anthropic", modelId: `model-${random.int(3)}` }),
    () => wire.result("set_thinking_level", { level: random.pick(["low", "high"]) }),
    () => wire.request("compact_append", { summary: "in short", firstKeptEntryId: random.pick(ids), tokensBefore: 9 }),
  ];
  for (let n = 0; n < steps; n++) await random.pick(acts)();
  const { sessionId } = await wire.result("get_state");
  // A position that the entries do not give is written when the session is left.
  await wire.result("new_session");
  await lives.end();
  table.leave();
  return sessionId;
}

/** What may be asked of a session that is on its way. */
function questions(random: Random, ids: readonly string[]): [string, Json][] {
  const entryId = random.pick(ids);
  return [
    ["get_state", {}],
    ["get_context", {}],
    ["get_context", { leafId: entryId }],
    ["get_messages", {}],
    ["get_entries", {}],
    ["get_entries", { limit: 3 }],
    ["get_entry", { entryId }],
    ["get_path", {}],
    ["get_path", { leafId: entryId }],
    ["get_tree", {}],
    ["get_session_stats", {}],
    ["get_fork_messages", {}],
    ["get_last_assistant_text", {}],
    ["list_heads", {}],
    ["prepare_compaction", {}],
    ["get_entry", { entryId: "nowhere" }],
  ];
}

/** Returns an answer as text, without what only an opening says: whether a newer conversation is on another branch. */
const answer = ({ result, error }: Json): string =>
  JSON.stringify(result ?? error, (key, value) =>
    key === "diagnostics" ? value.filter(({ kind }: Json) => kind !== "newer_branch") : value,
  );

acrossTiers(test, sessions(1, 6))(
  "what is answered of a session that is on its way is what is answered when it is here ($store, $count)",
  async ({ store, count }) => {
    let early = 0;
    await forSeedsAsync(count, async (random) => {
      const table = new FleetTable();
      const sessionId = await made(table, random, store);
      const ids = table.linesOf(sessionId).map((line) => JSON.parse(line).id);
      const two = await machine(table, ["--store", store]);
      await two.wire.result("switch_session", { sessionId });
      const asked = questions(random, ids).sort(() => random.int(3) - 1);
      const before: string[] = [];
      for (const [method, params] of asked) before.push(answer(await two.wire.request(method, params)));
      early += two.fleet.calls.filter((name) => name === "linesAt").length;
      expect(two.fleet.calls).not.toContain("lines");
      two.fleet.open();
      // A change waits until all of it is here.
      await two.wire.result("get_session_family");
      const after: string[] = [];
      for (const [method, params] of asked) after.push(answer(await two.wire.request(method, params)));
      expect(before).toEqual(after);
      expect(two.fleet.calls).toContain("lines");
      expect(two.wire.events.filter(({ method }) => method === "session_append" || method === "session_tree")).toEqual(
        [],
      );
    });
    expect(early).toBeGreaterThan(count);
  },
);

acrossTiers(test, STORES)(
  "a session whose heads are damaged in the fleet is opened when all its lines are here (%s)",
  async (store) => {
    await forSeedsAsync(3, async (random) => {
      const table = new FleetTable();
      const sessionId = await made(table, random, store, 10);
      const found: Json[] = [];
      for (const isDamaged of [false, true]) {
        const row = table.rows.get(sessionId);
        if (row && isDamaged) row.heads = row.heads.map((head) => head.replace(`"assistant"`, `"user"`));
        const { wire, fleet } = await machine(table, ["--store", store]);
        fleet.open();
        await wire.result("switch_session", { sessionId });
        found.push(await wire.result("get_entries"));
      }
      expect(found[1]).toEqual(found[0]);
    });
  },
);

acrossTiers(test, [1, 3])(
  "Pi's dialect has the same answers before and after, and so has a start with the session (%i)",
  async (count) => {
    await forSeedsAsync(count, async (random) => {
      const table = new FleetTable();
      const sessionId = await made(table, random, "jsonl");
      const two = await machine(table, ["--dialect", "pi", "--session", sessionId]);
      const types = ["get_state", "get_messages", "get_session_stats", "get_fork_messages", "get_last_assistant_text"];
      const ask = async (): Promise<string[]> => {
        const replies: string[] = [];
        for (const type of types) {
          const { data, success } = await two.wire.command(type);
          replies.push(JSON.stringify({ data, success }));
        }
        return replies;
      };
      const before = await ask();
      expect(two.fleet.calls).not.toContain("lines");
      two.fleet.open();
      await two.wire.command("set_session_name", { name: "other" });
      await two.wire.command("set_session_name", { name: JSON.parse(before[0]).data.sessionName ?? "" });
      const after = await ask();
      expect(after.slice(1, 2)).toEqual(before.slice(1, 2));
      expect(after.slice(3)).toEqual(before.slice(3));
    });
  },
);

const MORE = Array.from({ length: 6 }, (_, n) => `more-${n}`);
const ALL = ["one", "two", ...MORE];

/** A machine with a session that is on its way. */
async function arriving(
  store = "jsonl",
  more: Parameters<typeof machine>[2] = {},
): Promise<Machine & { sessionId: string; table: FleetTable }> {
  const table = new FleetTable();
  const one = await machine(table, ["--store", store]);
  await one.wire.result("append", { entries: [user("one", { id: "one" }), assistant("two", { id: "two" })] });
  await one.wire.result("append", { entries: MORE.map((id) => user("more", { id })) });
  const { sessionId } = await one.wire.result("get_state");
  await one.lives.end();
  table.leave();
  const two = await machine(table, ["--store", store], more);
  await two.wire.result("switch_session", { sessionId });
  return { ...two, sessionId, table };
}

const request = (id: number, method: string, params: Json = {}): Json => ({ jsonrpc: "2.0", id, method, params });

acrossTiers(test, STORES)(
  "a write waits for the whole, and what comes after it waits in its order (%s)",
  async (store) => {
    const { wire, fleet, table, sessionId } = await arriving(store);
    wire.send(
      request(101, "get_entries"),
      request(102, "append", { entries: [user("three", { id: "three" })] }),
      request(103, "get_entries"),
    );
    const first = await wire.reply(101);
    expect(first.result.entries.map(({ id }: Json) => id)).toEqual(ALL);
    expect(table.linesOf(sessionId)).toHaveLength(8);
    fleet.open();
    const [second, third] = [await wire.reply(102), await wire.reply(103)];
    expect(second.result.entryIds).toEqual(["three"]);
    expect(third.result.entries.map(({ id }: Json) => id)).toEqual([...ALL, "three"]);
    expect(table.linesOf(sessionId)).toHaveLength(9);
  },
);

test("a write that waits can be cancelled, and is not done", async () => {
  const { wire, fleet, table, sessionId } = await arriving();
  wire.send(request(101, "append", { entries: [user("three")] }), {
    jsonrpc: "2.0",
    method: "$/cancelRequest",
    params: { id: 101 },
  });
  await fleet.asked;
  fleet.open();
  expect((await wire.reply(101)).error?.data.name).toBe("cancelled");
  expect(table.linesOf(sessionId)).toHaveLength(8);
});

acrossTiers(test, STORES)(
  "a database that goes away meanwhile leaves nothing here, and a later try succeeds (%s)",
  async (store) => {
    const own = await arriving(store);
    const { wire, fleet } = own;
    fleet.open();
    let pieces = 0;
    // The first piece comes, and then no more.
    fleet.faultAt = (_, name) => (name === "lines" && pieces++ === 0 ? undefined : "before");
    const { data } = await wire.failure("append", { entries: [user("three")] });
    expect(data).toMatchObject({ name: "storage_failed", retryable: true });
    expect((await wire.result("get_state")).entryCount).toBe(8);
    expect(filesOf(own)).toEqual([]);
    fleet.faultAt = () => undefined;
    await wire.result("append", { entries: [user("three")] });
    expect((await wire.result("get_state")).entryCount).toBe(9);
  },
);

test("lines that are not those of the session are not kept", async () => {
  const own = await arriving();
  const row = own.table.rows.get(own.sessionId);
  if (row) row.lines[0] = Uint8Array.from(row.lines[0], (byte) => (byte === 0x6f ? 0x30 : byte));
  own.fleet.open();
  expect((await own.wire.failure("append", { entries: [user("three")] })).data.name).toBe("storage_failed");
  expect(filesOf(own)).toEqual([]);
});

test("a session that is removed meanwhile cannot be written to, and leaves nothing", async () => {
  const own = await arriving();
  own.table.rows.delete(own.sessionId);
  own.fleet.open();
  expect((await own.wire.failure("append", { entries: [user("three")] })).data.name).toBe("storage_failed");
  expect((await own.wire.failure("append", { entries: [user("three")] })).data.name).toBe("session_not_found");
  expect(filesOf(own)).toEqual([]);
});

test.each(["close_session", "new_session", "shutdown", "the end"])(
  "%s in the middle of it ends the arrival, and leaves nothing",
  async (method) => {
    vi.useFakeTimers({ toFake: ["setInterval"] });
    onTestFinished(() => void vi.useRealTimers());
    const own = await arriving();
    const { wire, fleet, lives, sessionId } = own;
    await wire.result("get_context");
    // The rest comes while nothing is asked.
    vi.advanceTimersByTime(500);
    await fleet.asked;
    expect(filesOf(own)).toHaveLength(1);
    if (method !== "the end") await wire.result(method, method === "close_session" ? { sessionId } : {});
    await lives.end();
    expect(filesOf(own)).toEqual([]);
  },
);

test("a full disk fails what waits, leaves nothing, and is tried again", async () => {
  let isFull = false;
  const { disk } = failingDisk((_, operation) => (isFull && operation === "write" ? "ENOSPC" : undefined));
  const own = await arriving("jsonl", { disk });
  isFull = true;
  own.fleet.open();
  expect((await own.wire.failure("append", { entries: [user("three")] })).data.name).toBe("storage_full");
  expect(filesOf(own)).toEqual([]);
  isFull = false;
  await own.wire.result("append", { entries: [user("three")] });
});

acrossTiers(test, STORES)(
  "two servers of a machine open the same session at once, and both have it (%s)",
  async (store) => {
    const one = await arriving(store);
    const fleet = new GatedFleet(one.table, "the other");
    const two = await machine(one.table, ["--store", store], { place: one.lives.place, fleet, disk: realDisk });
    await two.wire.result("switch_session", { sessionId: one.sessionId });
    const both = [one, two].map(({ wire }) => wire.result("get_session_family"));
    one.fleet.open();
    fleet.open();
    await Promise.all(both);
    for (const { wire } of [one, two]) {
      expect((await wire.result("get_entries")).entries.map(({ id }: Json) => id)).toEqual(ALL);
    }
  },
);

test("what another machine adds meanwhile is told of when the session is here", async () => {
  const { wire, fleet, table, sessionId } = await arriving();
  const three = await machine(table);
  three.fleet.open();
  await three.wire.result("switch_session", { sessionId });
  await three.wire.result("append", { entries: [user("theirs", { id: "theirs" })] });
  expect((await wire.result("get_entries")).entries).toHaveLength(8);
  fleet.open();
  await wire.result("get_session_family");
  await wire.result("append", { entries: [user("ours", { id: "ours" })] });
  await wire.result("get_state");
  const told = wire.events.filter(({ method }) => method === "session_append").map(({ params }) => params.entryIds);
  expect(told).toEqual([["theirs"], ["ours"]]);
});

// --- while the host is asked -----------------------------------------------------------------------------------

/** Reads that need lines which are not here, or all of them. */
const READS: readonly [string, Json][] = [
  ["export_session", { format: "jsonl" }],
  ["compare_branches", { a: "one", b: "two" }],
  ["get_entries", {}],
  ["get_state", {}],
];

/** Has the host be asked whether it agrees to leave a session that is on its way, by the request 101. Returns the question. */
async function asked({
  wire,
}: Machine): Promise<{ id: number; during(id: number, method: string, params?: Json): Json }> {
  await wire.result("initialize", { capabilities: { hooks: [{ name: "session_before_switch" }] } });
  wire.send(request(101, "new_session"));
  let message = await wire.next();
  while (message.method !== "session_before_switch") message = await wire.next();
  const { id } = message;
  return { id, during: (n, method, params) => request(n, method, { ...params, _meta: { hook: id } }) };
}

const isReply = (message: Json): boolean => !("method" in message);

acrossTiers(test, STORES)("reads of a host that is asked are answered before it answers (%s)", async (store) => {
  const own = await arriving(store);
  const { wire, fleet, sessionId } = own;
  const { id, during } = await asked(own);
  wire.send(...READS.map(([method, params], n) => during(102 + n, method, params)), request(110, "get_state"));
  await fleet.asked;
  fleet.open();
  for (const [n] of READS.entries()) expect((await wire.reply(102 + n)).result).toBeDefined();
  wire.send({ jsonrpc: "2.0", id, result: {} });
  expect((await wire.reply(101)).result.cancelled).toBe(false);
  expect((await wire.reply(110)).result.sessionId).not.toBe(sessionId);
});

acrossTiers(test, sessions(4, 25))(
  "of reads while the host is asked each is answered once, whatever becomes of them ($store, $count)",
  async ({ store, count }) => {
    await forSeedsAsync(count, async (random) => {
      const own = await arriving(store);
      const { wire, fleet, sessionId, lives } = own;
      const { id, during } = await asked(own);
      if (random.chance(0.5)) fleet.faultAt = (_, name) => (name === "lines" ? "before" : undefined);
      const asks: Json[] = [];
      for (let left = 1 + random.int(4); left > 0; left--) asks.push(during(101 + left, ...random.pick(READS)));
      const cancel = { jsonrpc: "2.0", method: "$/cancelRequest", params: { id: 102 + random.int(asks.length) } };
      const most = random.int(2) * 30;
      const steps = [
        () => fleet.open(),
        () => wire.send({ jsonrpc: "2.0", id, result: { cancel: random.chance(0.5) } }),
        () => wire.send(cancel),
        () => wire.send(request(201, "get_state"), request(202, "get_session_family"), request(203, "list_heads")),
      ];
      wire.send(...asks);
      while (steps.length > 0) {
        steps.splice(random.int(steps.length), 1)[0]();
        for (let turns = random.int(most + 1); turns > 0; turns--) await new Promise(setImmediate);
      }
      wire.end();
      const replies = [...wire.events, ...(await wire.rest())].filter(isReply);
      const ids = replies.map((reply) => reply.id).sort();
      expect(ids).toEqual([101, ...asks.map((one) => one.id), 201, 202, 203].sort());
      for (const { id: n, result, error } of replies)
        if (n < 200 && n > 101 && result?.sessionId) expect(result.sessionId).toBe(sessionId);
        else if (error) expect(["storage_failed", "cancelled"]).toContain(error.data.name);
      const order = replies.map((reply) => reply.id).filter((n) => n === 101 || n > 200);
      expect(order).toEqual([101, 201, 202, 203]);
      await lives.end();
    });
  },
);
