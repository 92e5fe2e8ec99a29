/** A server whose sessions are also in a fleet: what a host is told, and what a repeated request does. */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import * as z from "zod";
import { Failure } from "../../src/core/failure.ts";
import { declarations } from "../../src/handlers/shared/declarations.ts";
import { Outage } from "../../src/storage/fleet/outage.ts";
import type { FleetConnection } from "../../src/storage/fleet/store.ts";
import { assistant, user } from "../support/drafts.ts";
import { FleetTable, fleetOptions, MemoryFleet } from "../support/fleet.ts";
import { HereLives } from "../support/proof.ts";
import { type Json, temporaryFolder, temporaryPlace, type Wire } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";
import { runHere } from "../support/verbs.ts";

const STORES = ["jsonl", "v2"];

function request(id: number, method: string, params: Json = {}): Json {
  return { jsonrpc: "2.0", id, method, params };
}

/** Servers with different seeds make different ids. `isJournaled`: they go on while the fleet is away. */
async function started(
  store: string,
  fleet: MemoryFleet,
  seed = 1,
  isJournaled = false,
): Promise<{ lives: HereLives; wire: Wire }> {
  const outage = isJournaled ? new Outage(fleet, 0, () => 0) : undefined;
  const lives = new HereLives({ seed, fleet: fleetOptions(fleet, { tries: 0, outage }) });
  return { lives, wire: await lives.start(["--store", store]) };
}

const idsIn = (table: FleetTable, sessionId: string): string[] =>
  table.linesOf(sessionId).map((line) => JSON.parse(line).id);

acrossTiers(test, STORES)(
  "a commit that nobody knows of is told so, and the same request again has one effect (%s)",
  async (store) => {
    const fleet = new MemoryFleet();
    const { wire } = await started(store, fleet);
    const { sessionId } = await wire.result("get_state");
    await wire.result("append", { entries: [user("one", { id: "one" })] });
    for (const fault of ["after", "late"] as const) {
      const params = { entries: [user("two", { id: `two-${fault}` })], idempotencyKey: `key-${fault}` };
      fleet.faultAt = (_, name) => (name === "append" ? fault : "before");
      const { data } = await wire.failure("append", params);
      expect(data).toMatchObject({ name: "outcome_unknown", retryable: true });
      expect((await wire.result("get_entries")).entries.map(({ id }: Json) => id)).not.toContain(`two-${fault}`);
      // As long as the fleet is away, nothing is said about it.
      expect((await wire.failure("append", params)).data.name).toBe("storage_failed");
      fleet.faultAt = () => undefined;
      expect((await wire.result("append", params)).entryIds).toEqual([`two-${fault}`]);
      expect((await wire.result("append", params)).entryIds).toEqual([`two-${fault}`]);
    }
    expect(idsIn(fleet.table, sessionId)).toEqual(["one", "two-after", "two-late"]);
    expect((await wire.result("get_entries")).entries.map(({ id }: Json) => id)).toEqual([
      "one",
      "two-after",
      "two-late",
    ]);
    expect(
      wire.events.filter((event) => event.method === "session_append").map(({ params }) => params.entryIds),
    ).toEqual([["one"], ["two-after"], ["two-late"]]);
  },
);

acrossTiers(test, STORES)(
  "all that waits for a commit of which nobody knows is answered, and reads from before it (%s)",
  async (store) => {
    const fleet = new MemoryFleet();
    const { wire } = await started(store, fleet);
    await wire.result("append", { entries: [user("one", { id: "one" })] });
    const { sessionId, ...before } = await wire.result("get_state");
    fleet.faultAt = (_, name) => (name === "append" ? "after" : "before");
    wire.send(
      request(101, "append", { entries: [assistant("two", { id: "two" })] }),
      request(102, "get_state"),
      request(103, "append", { entries: [user("three", { id: "three" })] }),
      request(104, "get_entries"),
    );
    const replies = await wire.take(4);
    expect(replies.map(({ error }) => error?.data.name)).toEqual([
      "outcome_unknown",
      undefined,
      "outcome_unknown",
      undefined,
    ]);
    expect(replies[1].result).toEqual({ sessionId, ...before });
    expect(replies[3].result.entries.map(({ id }: Json) => id)).toEqual(["one"]);
    fleet.faultAt = () => undefined;
    // They were written together.
    await wire.result("append", { entries: [user("four", { id: "four" })] });
    expect(idsIn(fleet.table, sessionId)).toEqual(["one", "two", "three", "four"]);
  },
);

acrossTiers(test, STORES)("a session that another machine has is told so, with the machine (%s)", async (store) => {
  const table = new FleetTable();
  const { wire } = await started(store, new MemoryFleet(table, "one"));
  const { sessionId } = await wire.result("get_state");
  await wire.result("append", { entries: [user("one", { id: "one" })] });
  const other = new MemoryFleet(table, "two");
  other.leasesEnd = true;
  await other.take(sessionId);
  const { data } = await wire.failure("append", { entries: [user("two", { id: "two" })] });
  expect(data).toMatchObject({
    name: "session_locked",
    retryable: true,
    holder: { client: "two", host: "host of two" },
  });
  expect(data.keptAt).toMatch(/refused\.bin$/);
  expect(idsIn(table, sessionId)).toEqual(["one"]);
  expect((await wire.result("get_entries")).entries).toHaveLength(1);
});

acrossTiers(test, STORES)("what was refused is offered as a branch, byte for byte, and once (%s)", async (store) => {
  const table = new FleetTable();
  const fleet = new MemoryFleet(table, "one");
  const { wire, lives } = await started(store, fleet);
  const { sessionId } = await wire.result("get_state");
  await wire.result("append", { entries: [user("one", { id: "one" })] });
  const other = new MemoryFleet(table, "two");
  other.leasesEnd = true;
  const two = await started(store, other, 2);
  await two.wire.result("switch_session", { sessionId });
  await two.wire.result("append", { entries: [user("theirs", { id: "theirs" }), user("taken", { id: "taken" })] });
  const entries = [user("mine", { id: "mine" }), user("other", { id: "taken" }), user("last", { id: "last" })];
  const { data } = await wire.failure("append", { entries });
  expect(data.name).toBe("session_locked");
  await two.lives.end();
  const { kept } = await wire.result("list_kept");
  expect(kept).toEqual([expect.objectContaining({ keptAt: data.keptAt, sessionId, entryCount: 3, text: "mine" })]);
  // A path that is not one of those is not read.
  const { sessionFile } = await wire.result("get_state");
  for (const keptAt of [sessionFile, `${data.keptAt}/../../../etc/passwd`, "/etc/passwd"])
    expect((await wire.failure("recover_kept", { keptAt })).data.name).toBe("not_a_session");
  await wire.result("append", { entries: [user("on", { id: "on" })] });
  const recovered = await wire.result("recover_kept", { keptAt: data.keptAt });
  const renamed = recovered.renamed[0].to;
  expect(recovered).toMatchObject({ entryIds: ["mine", renamed, "last"], leafId: "on" });
  expect(recovered.renamed).toEqual([{ from: "taken", to: renamed }]);
  expect((await wire.result("recover_kept", { keptAt: data.keptAt })).entryIds).toEqual([]);
  expect(idsIn(table, sessionId).slice(0, 7)).toEqual(["one", "theirs", "taken", "on", "mine", renamed, "last"]);
  const path = async (entryId: string): Promise<string[]> =>
    (await wire.result("get_path", { entryId })).entries.map(({ id }: Json) => id);
  expect(await path("last")).toEqual(["one", "mine", renamed, "last"]);
  await wire.result("append", { entries: [user("further", { id: "further" })] });
  expect(await path("further")).toEqual(["one", "theirs", "taken", "on", "further"]);
  await lives.end();
  const again = await started(store, new MemoryFleet(table, "three"), 3);
  await again.wire.result("switch_session", { sessionId });
  expect((await again.wire.result("get_state")).leafId).toBe("further");
  const { stdout } = await runHere(lives.place, ["recover"]);
  expect(stdout).toContain(data.keptAt);
  expect((await runHere(lives.place, ["recover", data.keptAt], { hashes: true })).stdout).toContain(
    "has all of it already",
  );
  await again.wire.result("new_session");
  expect((await again.wire.failure("recover_kept", { keptAt: data.keptAt })).data.name).toBe("not_a_session");
  table.check();
});

acrossTiers(test, STORES)(
  "a fork is in the fleet before it is answered, and one that cannot be is not made (%s)",
  async (store) => {
    const fleet = new MemoryFleet();
    const { wire } = await started(store, fleet);
    await wire.result("append", {
      entries: [user("one", { id: "one" }), assistant("two"), user("three", { id: "three" })],
    });
    fleet.faultAt = () => "before";
    expect((await wire.failure("fork", { entryId: "three" })).data.name).toBe("storage_failed");
    fleet.faultAt = () => undefined;
    await wire.result("fork", { entryId: "three" });
    const { sessionId } = await wire.result("get_state");
    expect(fleet.table.linesOf(sessionId)).toHaveLength(2);
    expect((await wire.result("list_sessions")).sessions).toHaveLength(2);
    fleet.table.check();
  },
);

test.each(STORES.flatMap((store) => (["after", "late", "before"] as const).map((fault) => [store, fault] as const)))(
  "a fork or clone of which nobody knows whether the fleet has it is there once when it is asked for again (%s, %s)",
  async (store, fault) => {
    const fleet = new MemoryFleet();
    fleet.leasesEnd = true;
    const { lives, wire: first } = await started(store, fleet);
    let wire = first;
    await wire.result("append", { entries: [user("one", { id: "one" }), assistant("two"), user("three")] });
    const { sessionId, sessionFile } = await wire.result("get_state");
    const cases = [
      ["fork", { sessionId, entryId: "one", position: "at", idempotencyKey: "fork" }, 1],
      ["clone", { sessionId, idempotencyKey: "clone" }, 3],
    ] as const;
    const made = new Set([sessionId]);
    for (const isNew of [false, true])
      for (const [method, { idempotencyKey, ...params }, count] of cases) {
        const asked = { ...params, idempotencyKey: `${idempotencyKey} ${isNew}` };
        await wire.result("switch_session", { sessionPath: sessionFile });
        fleet.faultAt = (_, name) => (name === "append" ? fault : name === "take" ? undefined : "before");
        const { data } = await wire.failure(method, asked);
        expect(data.name).toBe(fault === "before" ? "storage_failed" : "outcome_unknown");
        fleet.faultAt = () => "before";
        expect((await wire.failure(method, asked)).data).toMatchObject({ name: "storage_failed", retryable: true });
        if (isNew) {
          await lives.kill();
          wire = await lives.start(["--store", store, "--session", sessionFile]);
        }
        fleet.faultAt = () => undefined;
        const { sessionId: id } = await wire.result(method, asked);
        expect(fleet.table.linesOf(id)).toHaveLength(count);
        expect(await wire.result(method, asked)).toMatchObject({ sessionId: id });
        made.add(id);
      }
    expect(made.size).toBe(5);
    const there = [...fleet.table.rows].filter(([, { isThere }]) => isThere).map(([id]) => id);
    expect(new Set(there)).toEqual(made);
    const { sessions } = await wire.result("list_sessions");
    expect(sessions.map(({ sessionId: id }: Json) => id).sort()).toEqual([...made].sort());
    fleet.table.check();
  },
);

acrossTiers(test, STORES)(
  "a fork that cannot be confirmed yet keeps nobody from it, wherever its source is (%s)",
  async (store) => {
    const fleet = new MemoryFleet();
    const { lives, wire } = await started(store, fleet);
    await wire.result("new_session", { cwd: temporaryFolder() });
    await wire.result("append", { entries: [user("one", { id: "one" }), assistant("two")] });
    const { sessionId } = await wire.result("get_state");
    await wire.result("new_session", { cwd: lives.place.cwd });
    await wire.result("open_session", { sessionId });
    const asked = { sessionId, entryId: "one", position: "at", idempotencyKey: "fork" };
    const append = fleet.append.bind(fleet);
    fleet.append = async () => ({ kind: "unknown", reason: "test: no answer" });
    for (let times = 0; times < 3; times++) {
      expect((await wire.failure("fork", asked)).data).toMatchObject({ retryable: true });
      const others = [...fleet.table.rows].filter(([id]) => id !== sessionId);
      expect(others.map(([, { holder }]) => holder)).toEqual([null]);
    }
    fleet.append = append;
    const { sessionId: id } = await wire.result("fork", asked);
    expect(fleet.table.linesOf(id)).toHaveLength(1);
    expect([...fleet.table.rows.keys()].sort()).toEqual([sessionId, id].sort());
    fleet.table.check();
  },
);

acrossTiers(test, STORES)(
  "a session is opened by its id on another machine, and again on the first (%s)",
  async (store) => {
    const table = new FleetTable();
    const one = await started(store, new MemoryFleet(table, "one"));
    const { sessionId } = await one.wire.result("get_state");
    await one.wire.result("append", { entries: [user("one", { id: "one" })] });
    const fleet = new MemoryFleet(table, "two");
    const two = await started(store, fleet, 2);
    expect(
      (await two.wire.failure("switch_session", { sessionId: "01991f6e-1f1d-7c3e-b0a4-000000000000" })).data.name,
    ).toBe("session_not_found");
    await two.wire.result("switch_session", { sessionId });
    expect((await two.wire.result("get_entries")).entries).toHaveLength(1);
    expect((await two.wire.failure("append", { entries: [user("no")] })).data.name).toBe("session_locked");
    // What the first one had not sent when it was killed is on its disk alone.
    const { sessionFile } = await one.wire.result("get_state");
    await one.lives.kill();
    fleet.leasesEnd = true;
    await two.wire.result("append", { entries: [user("two", { id: "two" })] });
    expect(idsIn(table, sessionId)).toEqual(["one", "two"]);
    await two.lives.end();
    const again = await one.lives.start(["--store", store, "--session", sessionId]);
    expect((await again.result("get_state")).sessionFile).toBe(sessionFile);
    expect((await again.result("get_entries")).entries.map(({ id }: Json) => id)).toEqual(["one", "two"]);
    await again.result("append", { entries: [user("three", { id: "three" })] });
    expect(idsIn(table, sessionId)).toEqual(["one", "two", "three"]);
    fleet.faultAt = () => "before";
  },
);

acrossTiers(test, STORES)(
  "while the fleet is away, each reply and event says that it is only here, until it is back (%s)",
  async (store) => {
    const fleet = new MemoryFleet();
    const { wire, lives } = await started(store, fleet, 1, true);
    const { sessionId } = await wire.result("get_state");
    expect(await wire.result("append", { entries: [user("one", { id: "one" })] })).not.toHaveProperty("durability");
    expect((await wire.result("get_state")).durability).toBe("replicated");
    fleet.faultAt = () => "before";
    const params = {
      entries: [user("two", { id: "two" }), assistant("three", { id: "three" })],
      idempotencyKey: "key",
    };
    expect(await wire.result("append", params)).toMatchObject({ entryIds: ["two", "three"], durability: "local" });
    expect(await wire.result("append", params)).toMatchObject({ entryIds: ["two", "three"], durability: "local" });
    expect(await wire.result("set_session_name", { name: "away" })).toMatchObject({ durability: "local" });
    expect(await wire.result("set_thinking_level", { level: "high" })).toBe(null);
    expect(wire.events.findLast(({ method }) => method === "session_append")?.params.durability).toBe("local");
    expect((await wire.result("get_state")).durability).toBe("local");
    await wire.result("fork", { entryId: "three", position: "at" });
    const fork = (await wire.result("get_state")).sessionId;
    expect(fleet.table.linesOf(fork)).toEqual([]);
    await wire.result("switch_session", { sessionId });
    fleet.faultAt = () => undefined;
    // The first that comes after it is back gives the fleet what it lacks.
    for (let n = 0; (await wire.result("get_state")).durability === "local"; n++) {
      expect(n).toBeLessThan(20);
      await wire.result("append", { entries: [user("after", { id: `after${n}` })] });
    }
    expect(idsIn(fleet.table, sessionId).slice(0, 3)).toEqual(["one", "two", "three"]);
    await wire.result("switch_session", { sessionId: fork });
    await wire.result("append", { entries: [user("in the fork")] });
    expect(fleet.table.linesOf(fork)).toHaveLength(4);
    const named = (name: string): Json[] =>
      wire.events.filter(({ method }) => method === name).map(({ params }) => params);
    expect(named("session_append").map(({ durability }) => durability)[1]).toBe("local");
    const changes = named("session_durability_changed").filter((event) => event.sessionId === sessionId);
    expect([changes[0], changes.at(-1)]).toMatchObject([{ durability: "local" }, { durability: "replicated" }]);
    await lives.end();
    expect(lives.said).toEqual([]);
    fleet.table.check();
  },
);

test("every change has a result that says where it is, but for one, and so in Pi's dialect", async () => {
  const changes = declarations.commands.filter(({ effect }) => effect === "write" || effect === "replace");
  const silent = changes.filter(({ result }) => !(result instanceof z.ZodObject && "durability" in result.shape));
  expect(silent.map(({ name }) => name)).toEqual(["set_thinking_level"]);
  expect(changes.flatMap(({ name, pi }) => (pi ? [name] : [])).sort()).toEqual([
    "new_session",
    "set_model",
    "set_session_name",
  ]);
  const fleet = new MemoryFleet();
  const lives = new HereLives({ fleet: fleetOptions(fleet, { outage: new Outage(fleet, 0, () => 0) }) });
  const wire = await lives.start(["--dialect", "pi"]);
  const said: Json[] = [];
  const until = async (isLast: (message: Json) => boolean): Promise<void> => {
    for (let last: Json = {}; !isLast(last); said.push(last)) [last] = await wire.take(1);
  };
  const appended = (): Json[] => said.filter(({ type }) => type === "session_append");
  wire.send({ id: "1", type: "append", entries: [user("one")] });
  await until(({ type }) => type === "session_append");
  fleet.faultAt = () => "before";
  wire.send({ id: "2", type: "append", entries: [user("two")] });
  wire.send({ id: "3", type: "set_session_name", name: "away" });
  wire.send({ id: "4", type: "set_thinking_level", level: "high" });
  await until(() => appended().length === 4);
  const reply = (id: string): Json => said.find((message) => message.id === id) as Json;
  expect(reply("2").data.durability).toBe("local");
  // As Pi has them.
  for (const id of ["3", "4"]) expect([reply(id).success, "data" in reply(id)]).toEqual([true, false]);
  expect(appended().map(({ durability }) => durability)).toEqual([undefined, "local", "local", "local"]);
});

acrossTiers(test, STORES)(
  "where another machine wrote meanwhile, what was written here is a branch, and all are told (%s)",
  async (store) => {
    const table = new FleetTable();
    const fleet = new MemoryFleet(table, "one");
    const { wire } = await started(store, fleet, 1, true);
    const { sessionId } = await wire.result("get_state");
    await wire.result("append", { entries: [user("one", { id: "one" })] });
    fleet.faultAt = () => "before";
    await wire.result("append", { entries: [user("mine", { id: "mine" })] });
    const other = new MemoryFleet(table, "two");
    other.leasesEnd = true;
    const two = await started(store, other, 2);
    await two.wire.result("switch_session", { sessionId });
    await two.wire.result("append", { entries: [user("theirs", { id: "theirs" })] });
    await two.lives.end();
    fleet.faultAt = () => undefined;
    for (let n = 0; !idsIn(table, sessionId).includes("mine"); n++) {
      expect(n).toBeLessThan(20);
      await wire.result("set_session_name", { name: `${n}` }).catch(() => {});
    }
    expect(idsIn(table, sessionId).slice(0, 3)).toEqual(["one", "theirs", "mine"]);
    const { diagnostics, leafId, branchCount } = await wire.result("get_state");
    expect(diagnostics).toEqual([expect.objectContaining({ kind: "diverged", salvaged: true })]);
    expect(branchCount).toBe(1);
    // This host goes on where it was.
    expect((await wire.result("get_path", { entryId: leafId })).entries.map(({ id }: Json) => id)).toContain("mine");
    const damage = wire.events
      .filter(({ method }) => method === "session_damage")
      .flatMap(({ params }) => params.damage);
    expect(damage).toEqual([expect.objectContaining({ kind: "diverged" })]);
    expect((await wire.result("verify_session", {})).ok).toBe(true);
    table.check();
  },
);

test("a session that a host has left is given to the fleet within seconds after that is back", async () => {
  const fleet = new MemoryFleet();
  const { wire } = await started("jsonl", fleet, 1, true);
  const { sessionId } = await wire.result("get_state");
  await wire.result("append", { entries: [user("one", { id: "one" })] });
  fleet.faultAt = () => "before";
  await wire.result("append", { entries: [user("two", { id: "two" })] });
  await wire.result("clone");
  const clone = (await wire.result("get_state")).sessionId;
  await wire.result("new_session");
  fleet.faultAt = () => undefined;
  const since = performance.now();
  while (idsIn(fleet.table, sessionId).length < 2 || fleet.table.linesOf(clone).length < 2) {
    expect(performance.now() - since).toBeLessThan(20_000);
    // Its timers have their turn.
    await new Promise(setImmediate);
  }
  expect(idsIn(fleet.table, sessionId)).toEqual(["one", "two"]);
});

test("a server that ends while the fleet is away says what only this machine has", async () => {
  const fleet = new MemoryFleet();
  const keeper = { rows: async function* () {} } as unknown as FleetConnection["keeper"];
  const lives = new HereLives({
    fleet: { ...fleetOptions(fleet, { outage: new Outage(fleet, 0, () => 0) }), keeper },
  });
  const wire = await lives.start();
  fleet.faultAt = () => "before";
  await wire.result("append", { entries: [user("one")] });
  await lives.end();
  expect(lives.said).toEqual([expect.stringContaining("fleet push")]);
});

acrossTiers(test, STORES)(
  "whole sessions are not moved while the fleet is away, and the words are those of the fleet (%s)",
  async (store) => {
    const fleet = new MemoryFleet();
    let isLost = false;
    const keeper = {
      keep: async () => !isLost,
      restore: async () => {
        if (isLost) throw new Failure("storage_failed", "test: the fleet is away", { fleet: true });
        return true;
      },
      rows: async function* () {},
    } as unknown as FleetConnection["keeper"];
    const lives = new HereLives({
      fleet: { ...fleetOptions(fleet, { outage: new Outage(fleet, 0, () => 0) }), keeper },
    });
    const wire = await lives.start(["--store", store]);
    const sessions: string[] = [];
    for (const isAway of [false, true]) {
      if (isAway) fleet.faultAt = () => "before";
      await wire.result("new_session");
      await wire.result("append", { entries: [user("one")] });
      sessions.push((await wire.result("get_state")).sessionId);
    }
    await wire.result("new_session");
    for (const method of ["archive_session", "delete_session"])
      for (const [sessionId, words] of [
        [sessions[0], "has the session as it is"],
        [sessions[1], "only this machine has"],
      ]) {
        const { message, data } = await wire.failure(method, { sessionId });
        expect([data.name, data.retryable, message]).toEqual(["storage_failed", true, expect.stringContaining(words)]);
      }
    fleet.faultAt = () => undefined;
    const [sessionId] = sessions;
    await wire.result("delete_session", { sessionId });
    isLost = true;
    expect((await wire.failure("restore_session", { sessionId })).message).toContain("It is back on this machine");
    isLost = false;
    await wire.result("delete_session", { sessionId });
    await wire.result("restore_session", { sessionId });
  },
);

test.each(["--read-only", "--no-session"])(
  "a server with %s says what is to be done about a session that only the fleet has",
  async (option) => {
    const sessionId = "01991f6e-1f1d-7c3e-b0a4-000000000000";
    for (const [url, words] of [
      ["postgres://db.example/agents", `with ${option === "--read-only" ? "" : "--read-only or "}${option}`],
      ["", "list_sessions"],
    ]) {
      const place = temporaryPlace();
      const lives = new HereLives({ place: { ...place, variables: { ...place.variables, PI_FLEET_URL: url } } });
      const wire = await lives.start([option]);
      const { message, data } = await wire.failure("open_session", { sessionId });
      expect([data.name, message]).toEqual(["session_not_found", expect.stringContaining(words)]);
      await lives.end();
    }
  },
);

test("a session that is nowhere here is not said to be missing while the fleet cannot be asked", async () => {
  const fleet = new MemoryFleet();
  const { wire } = await started("jsonl", fleet);
  fleet.faultAt = () => "before";
  const { data } = await wire.failure("open_session", { sessionId: "01991f6e-1f1d-7c3e-b0a4-000000000000" });
  expect(data.name).toBe("storage_failed");
});

test.each(
  STORES.flatMap((store) => [
    [store, "shared"],
    [store, "own"],
  ]),
)("a host whose entry gets another id in the branch stays at that entry (%s, %s leaf)", async (store, leaf) => {
  const table = new FleetTable();
  const fleet = new MemoryFleet(table, "one");
  const { wire } = await started(store, fleet, 1, true);
  const { sessionId } = await wire.result("get_state");
  await wire.result("append", { entries: [user("one", { id: "one" })] });
  await wire.result("switch_session", { sessionId, leaf });
  fleet.faultAt = () => "before";
  const mine = { entries: [user("mine", { id: "same" })], idempotencyKey: "mine" };
  expect((await wire.result("append", mine)).entryIds).toEqual(["same"]);
  const other = new MemoryFleet(table, "two");
  other.leasesEnd = true;
  const two = await started(store, other, 2);
  await two.wire.result("switch_session", { sessionId });
  await two.wire.result("append", { entries: [user("theirs", { id: "same" })] });
  await two.lives.end();
  fleet.faultAt = () => undefined;
  for (let n = 0; (await wire.result("get_state")).durability === "local"; n++) {
    expect(n).toBeLessThan(20);
    // Nothing is written: the leaf is still that entry when the branch is made.
    await wire.failure("append", { entries: [user("after")], expectedLeafId: "other" });
  }
  const { leafId, diagnostics } = await wire.result("get_state");
  // It is told by which id that is now, and a repeated request finds the same entry.
  expect(diagnostics[0]).toMatchObject({ kind: "diverged", renamed: [{ from: "same", to: leafId }] });
  const damage = wire.events.filter(({ method }) => method === "session_damage").flatMap(({ params }) => params.damage);
  expect(damage[0].renamed).toEqual(diagnostics[0].renamed);
  expect((await wire.result("append", mine)).entryIds).toEqual([leafId]);
  const texts = (await wire.result("get_messages")).messages.map(({ content }: Json) => content);
  expect([leafId === "same", texts.slice(0, 2)]).toEqual([false, ["one", "mine"]]);
  expect(diagnostics[0].reason).toContain("got another id");
});

acrossTiers(test, STORES)(
  "kept lines that are damaged are left out and counted, and hide nothing else (%s)",
  async (store) => {
    const { wire, lives } = await started(store, new MemoryFleet());
    const { sessionId } = await wire.result("get_state");
    await wire.result("append", { entries: [user("one", { id: "one" })] });
    const folder = join(lives.place.state, "quarantine");
    mkdirSync(folder, { recursive: true });
    const kept = (id: unknown, parentId: unknown): string =>
      JSON.stringify({
        type: "message",
        id,
        parentId,
        timestamp: "2026-01-24T16:22:26.831Z",
        ...user(String(id)),
      });
    const put = (name: string, ...lines: string[]): string => {
      const header = { type: "session", version: 3, id: sessionId, timestamp: "2026-01-24T16:22:26.831Z", cwd: "/" };
      const path = join(folder, `${name}.refused.bin`);
      writeFileSync(path, [JSON.stringify(header), ...lines, ""].join("\n"));
      return path;
    };
    const bad = [
      "null",
      "{not",
      "",
      "7",
      "[1]",
      '{"id":"no-type"}',
      kept(5, "one"),
      kept("number", 5),
      '{"type":"session","id":"s"}',
    ];
    put("all", ...bad);
    const some = put("some", kept("good", "one"), ...bad, kept("more", "good"));
    const { kept: listed } = await wire.result("list_kept");
    expect(listed.map(({ entryCount, damagedLines, text }: Json) => [entryCount, damagedLines, text]).sort()).toEqual([
      [0, bad.length, null],
      [2, bad.length, "good"],
    ]);
    expect(await wire.result("recover_kept", { keptAt: some })).toMatchObject({
      entryIds: ["good", "more"],
      damagedLines: bad.length,
    });
    // Parents are before their children: a circle of them is no branch.
    for (const [name, lines] of [
      ["self", [kept("x", "x")]],
      ["circle", [kept("x", "y"), kept("y", "x")]],
    ] as const) {
      const { data } = await wire.failure("recover_kept", { keptAt: put(name, ...lines) });
      expect(data.name, name).toBe("entry_not_found");
    }
    expect((await wire.result("get_entries")).entries.map(({ id }: Json) => id)).toEqual(["one", "good", "more"]);
    expect((await wire.result("verify_session")).damage).toEqual([]);
  },
);
