/**
 * A commit that fails is undone as one: requests that wait for it fail, later ones are answered from the durable state,
 * memory equals the file, and the next change just works (architecture, "A failed commit").
 */

import { describe, expect, test } from "vitest";
import { toBytes } from "../../src/core/json/json.ts";
import type { Disk } from "../../src/storage/fs/disk.ts";
import { type Fault, FaultDisk, faultPoints } from "../support/disk.ts";
import { assistant, user } from "../support/drafts.ts";
import { STORES } from "../support/hosts.ts";
import { userText } from "../support/lines.ts";
import { type LockTable, locksOf } from "../support/locks.ts";
import { writeElsewhere } from "../support/other-programs.ts";
import { HereLives } from "../support/proof.ts";
import { FOLDER, idsIn, pipelineWithFault, runWithFault } from "../support/proof-faults.ts";
import { call, type Json, kinds, serveHere, type Wire } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

function eio(code = "EIO"): Error {
  return Object.assign(new Error("the medium fails"), { code });
}

/** A disk whose next sync fails, at once or when the test says so, or which is full in the middle of a write. */
class SyncFailingDisk extends FaultDisk {
  private left: "enough" | "half" | "none" = "enough";
  private failure: { wait: Promise<void>; errno: string } | undefined;
  private reach = (): void => {};
  /** True if all syncs fail. */
  isFailing = false;

  override sync = async (fd: number): Promise<void> => {
    const { failure } = this;
    if (this.isFailing) throw eio();
    if (!failure) return this.syncNow(fd);
    this.failure = undefined;
    this.reach();
    await failure.wait;
    throw eio(failure.errno);
  };

  override write(fd: number, bytes: Uint8Array): number {
    if (this.left === "enough") return super.write(fd, bytes);
    this.left = this.left === "half" ? "none" : "enough";
    if (this.left === "enough") throw eio("ENOSPC");
    return super.write(fd, bytes.subarray(0, bytes.length >> 1));
  }

  /** The next write takes half of its bytes and finds no room for the rest. */
  cutNextWrite(): void {
    this.left = "half";
  }

  failNextSync(errno = "EIO"): void {
    this.failure = { wait: Promise.resolve(), errno };
  }

  /** The next sync waits, and then fails: what resolves when it has begun, and what lets it fail. */
  holdNextSync(): { reached: Promise<void>; fail: () => void } {
    let fail = (): void => {};
    const wait = new Promise<void>((resolve) => {
      fail = resolve;
    });
    this.failure = { wait, errno: "EIO" };
    const reached = new Promise<void>((resolve) => {
      this.reach = resolve;
    });
    return { reached, fail };
  }
}

async function started(disk: FaultDisk, args: string[] = []): Promise<{ lives: HereLives; wire: Wire }> {
  const lives = new HereLives({ disk: disk as Disk });
  return { lives, wire: await lives.start(["--session-dir", FOLDER, ...args]) };
}

/** A server on a disk whose syncs can fail, and its session after one append. */
async function begun(args: string[] = [], first = said("one")) {
  const disk = new SyncFailingDisk();
  const { lives, wire } = await started(disk, args);
  const { entryIds } = await wire.result("append", first);
  const { sessionFile: file, sessionId } = await wire.result("get_state");
  return { disk, lives, wire, entryIds, sessionId, file: file as string };
}

const said = (id: string): Json => ({ entries: [user(id, { id })] });
const idsOf = ({ entries }: Json): string[] => entries.map(({ id }: Json) => id);
const inStore = (store: string): string[] => ["--store", store, "--events", "none"];

/** Returns the events of other programs' entries. */
const foreignIn = ({ events }: Wire): Json[] =>
  events.flatMap(({ method, params }) => (method === "session_append" && params.origin === "foreign" ? params : []));

/** Sends requests together; returns their replies in the order of the requests. */
async function replies(wire: Wire, ...requests: [method: string, params?: Json][]): Promise<Json[]> {
  wire.send(...requests.map(([method, params], n) => call(101 + n, method, params)));
  const byId = new Map((await wire.take(requests.length)).map((reply) => [reply.id, reply]));
  return requests.map((_, n) => byId.get(101 + n));
}

acrossTiers(test, STORES)(
  "what was done before is not done again by a repeat of its key behind a commit that fails (%s)",
  async (store) => {
    const { disk, wire, entryIds } = await begun(inStore(store), { entries: [user("one"), user("two")] });
    for (const label of ["first", "second"]) await wire.result("set_label", { entryId: entryIds[0], label });
    const undo = { idempotencyKey: "undo" };
    const { text } = await wire.result("undo", undo);
    disk.failNextSync();
    const [lost] = await replies(wire, ["append", said("lost")], ["undo", undo]);
    expect(lost.error.data.name).toBe("storage_failed");
    expect((await wire.result("undo", undo)).text).toBe(text);
    const { nodes } = await wire.result("get_tree");
    expect(nodes.flatMap(({ label }: Json) => label ?? [])).toEqual(["first"]);
  },
);

acrossTiers(test, STORES)(
  "a key that another server has written, and not answered, is not answered by a second one (%s)",
  async (store) => {
    const disk = new SyncFailingDisk();
    const table: LockTable = new Map();
    const serving = (client: string, ...args: string[]) =>
      serveHere(["--attach", "off", ...args], { disk, locks: locksOf(client, table) });
    const one = serving("one", "--store", store, "--session-dir", FOLDER);
    await one.result("append", said("before"));
    const { sessionFile } = await one.result("get_state");
    const params = { entries: [user("asked twice", { id: "asked" })], idempotencyKey: "k" };
    const { reached, fail } = disk.holdNextSync();
    one.send(call(101, "append", params));
    await reached;
    const two = serving("the other", "--session", sessionFile);
    expect((await two.failure("append", params)).data.name).toBe("session_locked");
    fail();
    expect((await one.reply(101)).error.data.name).toBe("storage_failed");
    expect((await one.finish()).status).toBe(0);
    expect((await two.result("append", params)).entryIds).toEqual(["asked"]);
    expect(idsIn(disk, sessionFile)).toEqual(["before", "asked"]);
  },
);

/** Gives what a program copied the same id under another name. */
function copyAll(disk: FaultDisk, from: string, to: string): void {
  for (const path of disk.paths())
    if (path.startsWith(FOLDER) && path.includes(from))
      disk.put(path.replace(from, to), disk.content(path) as Uint8Array);
}

acrossTiers(describe, STORES)("beside the current session (%s)", (store) => {
  test.each(["the current one", "another kept one"])(
    "a session whose id %s has, too, is told only of what became durable in it",
    async (first) => {
      const { disk, wire, file: one, sessionId } = await begun(inStore(store));
      await wire.result("new_session");
      const two = one.replace(/[^/]+(\.\w+)$/, "copy$1");
      const stem = (file: string) => (file.split("/").at(-1) as string).replace(/\.\w+$/, "");
      copyAll(disk, stem(one), stem(two));
      if (first === "the current one") await wire.result("switch_session", { sessionPath: one });
      for (const sessionPath of [one, two]) await wire.result("open_session", { sessionPath });
      for (const [sessionPath, other] of [
        [one, two],
        [two, one],
      ]) {
        const ids = idsIn(disk, sessionPath);
        disk.failNextSync();
        const lost = await wire.failure("set_session_name", { sessionPath, name: "lost" });
        expect(lost.data.name).toBe("storage_failed");
        expect(idsIn(disk, sessionPath)).toEqual(ids);
        await wire.result("set_session_name", { sessionPath, name: "kept" });
        for (const { disk: left } of disk.lasting()) expect(idsIn(left, sessionPath)).toHaveLength(ids.length + 1);
        expect((await wire.result("preview_session", { sessionPath: other })).sessionId).toBe(sessionId);
      }
    },
  );

  test("a write to a session that was the current one when it came, and is not when it is run, is durable when it is answered", async () => {
    const { disk, wire, file, sessionId } = await begun(inStore(store));
    const other = await wire.result("new_session");
    await wire.result("append", { entries: [user("of the other")] });
    const { sessionFile: sessionPath } = await wire.result("get_state");
    await wire.result("open_session", { sessionId });
    await wire.result("switch_session", { sessionId });
    const append = (id: string): [string, Json] => ["append", { sessionId, ...said(id) }];
    const [, two, state] = await replies(wire, ["switch_session", { sessionPath }], append("two"), ["get_state"]);
    expect([two.result.entryIds, state.result.sessionId]).toEqual([["two"], other.sessionId]);
    for (const { disk: left } of disk.lasting()) expect(idsIn(left, file)).toEqual(["one", "two"]);
    disk.failNextSync();
    await replies(wire, ["switch_session", { sessionId }], append("lost"));
    const ids = idsOf(await wire.result("get_entries"));
    for (const { disk: left } of disk.lasting()) expect(idsIn(left, file)).toEqual(ids);
  });

  test("a kept session is open still after a switch to it has failed", async () => {
    const { disk, wire, file: sessionFile, sessionId } = await begun(inStore(store));
    await wire.result("new_session");
    await wire.result("open_session", { sessionPath: sessionFile });
    await wire.result("append", { entries: [user("of the current one", { id: "first" }), user("left")] });
    // The present leaf is in no file: leaving it writes a marker.
    await wire.result("branch", { entryId: "first" });
    disk.failNextSync();
    expect((await wire.failure("switch_session", { sessionPath: sessionFile })).data.name).toBe("storage_failed");
    await wire.result("append", { sessionId, entries: [user("more")] });
    await wire.result("switch_session", { sessionPath: sessionFile });
    expect(await wire.result("get_state")).toMatchObject({ sessionId, entryCount: 2 });
  });
});

test("what stays because a program without locks wrote after it is not said to be undone, nor, later, to be durable", async () => {
  const { disk, wire, file } = await begun([], said("before"));
  const params = { entries: [user("stays", { id: "stays" })], idempotencyKey: "k" };
  const { reached, fail } = disk.holdNextSync();
  wire.send(call(101, "append", params));
  await reached;
  const fd = disk.openAppend(file);
  disk.write(fd, toBytes(`${userText("foreign", "stays")}\n`));
  disk.close(fd);
  fail();
  const { data, message } = (await wire.reply(101)).error;
  expect(data).toMatchObject({ name: "outcome_unknown", retryable: true, errno: "EIO" });
  expect(message).not.toContain("Nothing was changed");
  wire.events.splice(0);
  // A sync that succeeds after one that failed says nothing about what the first one was to write.
  for (let n = 0; n < 2; n++) {
    expect((await wire.failure("append", params)).data).toMatchObject({ name: "outcome_unknown", retryable: true });
    await wire.result("append", { entries: [user(`next ${n}`)], idempotencyKey: `next ${n}` });
  }
  expect(foreignIn(wire).flatMap(({ entryIds }) => entryIds)).toEqual(["stays", "foreign"]);
  const repeated = await wire.result("append", { entries: [user("next 1")], idempotencyKey: "next 1" });
  expect(repeated.entryIds).toHaveLength(1);
  expect(idsIn(disk, file).slice(0, 3)).toEqual(["before", "stays", "foreign"]);
});

// A container has no other writer next to the holder of its lock.
test("whenever another program writes while an append is made whose commit fails, its entry is told once", async () => {
  let looks = 1;
  for (let at = 0; at <= looks; at++) {
    const { disk, lives, wire, file } = await begun();
    wire.events.splice(0);
    let seen = 0;
    const meddle = (): void => {
      disk.isFailing = false;
      writeElsewhere("jsonl", file, "foreign", "one", disk);
      disk.isFailing = true;
    };
    for (const name of ["info", "infoOf", "write"] as const) {
      const usual = disk[name] as (...args: unknown[]) => unknown;
      const looking = (...args: unknown[]): unknown => {
        if (++seen === at) meddle();
        return usual.apply(disk, args);
      };
      Object.assign(disk, { [name]: looking });
    }
    disk.isFailing = true;
    const { error } = await wire.request("append", said("two"));
    expect(error, `look ${at}`).toBeDefined();
    if (at === 0) looks = seen;
    disk.isFailing = false;
    expect((await wire.result("append", said("three"))).entryIds).toEqual(["three"]);
    const foreign = foreignIn(wire);
    const ids: string[] = foreign.flatMap((params) => params.entryIds);
    const times = ids.filter((id) => id === "foreign").length;
    expect(times, `look ${at}`).toBe(at === 0 ? 0 : 1);
    const kept = error.data.name === "outcome_unknown" ? ["two"] : [];
    const known = idsOf(await wire.result("get_entries"));
    expect(new Set(known), `look ${at}`).toEqual(new Set(["one", "three", ...ids, ...kept]));
    for (const { leafId } of foreign) expect(known, `look ${at}`).toContain(leafId);
    await lives.kill();
  }
  expect(looks).toBeGreaterThan(1);
});

test.each([
  ["fork", { entryId: "lost", position: "at" }],
  ["clone", {}],
])("%s %j of a session beside the current one has no entry that was not durable", async (method, params) => {
  const { disk, wire, sessionId } = await begun();
  await wire.result("new_session");
  await wire.result("append", { entries: [user("other")] });
  await wire.result("open_session", { sessionId });
  disk.failNextSync();
  const [lost, copied] = await replies(
    wire,
    ["append", { sessionId, ...said("lost") }],
    [method, { sessionId, ...params }],
  );
  expect(lost.error.data.name).toBe("storage_failed");
  if (method === "fork") expect(copied.error.data.name).toBe("entry_not_found");
  else expect(idsOf(await wire.result("get_entries"))).toEqual(["one"]);
});

acrossTiers(describe, [
  { method: "new_session", params: {} },
  { method: "fork", params: { entryId: "two", position: "at" } },
  { method: "clone", params: {} },
])("$method", ({ method, params }) => {
  test.each(["fail", "short"] as const)("that fails at any operation (%s) leaves no session behind", async (kind) => {
    const prepared = async (disk: FaultDisk) => {
      const { lives, wire } = await started(disk);
      await wire.result("append", { entries: [user("one", { id: "one" }), user("two", { id: "two" })] });
      // So that it has something to write when it is left.
      await wire.result("branch", { entryId: "one" });
      return { lives, wire, file: (await wire.result("get_state")).sessionFile };
    };
    const whole = new FaultDisk();
    const unharmed = await prepared(whole);
    whole.record();
    await unharmed.wire.result(method, params);
    const points = faultPoints(kind, whole);
    expect(points.length).toBeGreaterThan(0);
    await unharmed.lives.kill();
    for (const at of points) {
      const disk = new FaultDisk();
      const { lives, wire, file } = await prepared(disk);
      disk.set({ kind, at, errno: "EIO" });
      const { error } = await wire.request(method, params);
      const operations = disk.operations.join(" ");
      expect(disk.struck, operations).toBe(true);
      const removal = disk.operations[at - 1] === "remove";
      disk.set(undefined);
      if (error) {
        expect(error.data.name, operations).toBe("storage_failed");
        const left = disk.paths().filter((path) => path.startsWith(FOLDER));
        if (!removal) expect(left, operations).toEqual([file]);
        expect(await wire.result("get_state"), operations).toMatchObject({ sessionFile: file, leafId: "one" });
        const { sessionId } = await wire.result(method, params);
        expect((await wire.result("get_state")).sessionId, operations).toBe(sessionId);
      }
      await lives.kill();
    }
  });
});

test("mutations that waited fail, reads behind them see the durable state, replies stay in order", async () => {
  const first = { entries: [user("one"), assistant("two"), user("three")] };
  const { disk, lives, wire, file, sessionId, entryIds } = await begun([], first);
  await wire.result("set_label", { entryId: entryIds[0], label: "kept" });
  await wire.result("set_session_name", { name: "kept" });
  const reads = ["get_state", "get_messages", "get_tree", "get_entries", "get_path"];
  const before: Json[] = [];
  for (const method of reads) before.push(await wire.result(method));
  const bytes = disk.content(file);
  const ids = idsIn(disk, file);
  wire.events.splice(0);
  disk.failNextSync();
  wire.send(
    call(101, "get_state"),
    call(102, "append", { ...said("lost"), idempotencyKey: "k" }),
    call(103, "set_session_name", { name: "lost" }),
    call(104, "set_label", { entryId: entryIds[1], label: "lost" }),
    call(105, "branch", { entryId: entryIds[0], idempotencyKey: "move" }),
    call(106, "append", { ...said("lost, too"), expectedLeafId: "never" }),
    call(107, "set_label", { entryId: entryIds[1], label: 5 }),
    call(108, "get_entry", { entryId: "nowhere" }),
    call(109, "fork", { entryId: "lost" }),
    ...reads.map((method, n) => call(110 + n, method)),
    // Commands that report sessions without being a read.
    call(115, "initialize"),
    call(116, "list_open_sessions"),
    call(117, "open_session", { sessionId }),
  );
  const messages = await wire.take(17);
  const [introduced, listed, opened] = messages.splice(14).map(({ result }) => result);
  expect([introduced.state, opened.leafId]).toEqual([before[0], before[0].leafId]);
  expect(listed.sessions.map(({ leafId }: Json) => leafId)).toEqual([before[0].leafId]);
  expect(kinds(messages)).toEqual(messages.map((_, index) => `#${101 + index}`));
  const failure = { code: -32803, data: { name: "storage_failed", retryable: true } };
  for (const { id, error } of messages.slice(1, 6)) expect(error, `${id}`).toMatchObject(failure);
  // Faults of a request itself are reported.
  const wrong = messages.slice(6, 9).map(({ error }) => error.data.name);
  expect(wrong).toEqual(["invalid_params", "entry_not_found", "entry_not_found"]);
  expect([messages[0], ...messages.slice(9)].map(({ result }) => result)).toEqual([before[0], ...before]);
  expect(disk.content(file)).toEqual(bytes);
  // The same request again is no repeat: the first one left nothing.
  const { entryIds: again, leafId } = await wire.result("append", { entries: [user("again")], idempotencyKey: "k" });
  expect(idsIn(disk, file)).toEqual([...ids, ...again]);
  expect(wire.events).toEqual([]);
  await wire.result("branch", { entryId: entryIds[0], idempotencyKey: "move" });
  expect((await wire.result("get_state")).leafId).toBe(entryIds[0]);
  await wire.result("branch", { entryId: leafId });
  await lives.kill();
  const next = await lives.start(["--session", file]);
  expect(await next.result("get_state")).toMatchObject({ leafId, entryCount: 6, sessionName: "kept" });
});

test("requests that came in while the commit was under way are undone with it, also those of a batch", async () => {
  const { disk, wire, file, entryIds } = await begun();
  const [leafId] = entryIds;
  const bytes = disk.content(file);
  const { reached, fail } = disk.holdNextSync();
  wire.ask(101, "append", said("a"));
  await reached;
  wire.send([call(102, "append", said("b")), call(103, "get_entries"), { id: 5 }], call(104, "get_entries"));
  for (let turns = 0; turns < 2; turns++) await new Promise(setImmediate);
  fail();
  const [a, [...batch], read] = await wire.take(3);
  expect([a.id, read.id, batch.length]).toEqual([101, 104, 3]);
  const [b, within] = [102, 103].map((id) => batch.find((reply: Json) => reply.id === id));
  for (const { error } of [a, b]) expect(error.data.name).toBe("storage_failed");
  for (const { result } of [within, read]) expect(result).toMatchObject({ leafId, entries: [{ id: leafId }] });
  expect(disk.content(file)).toEqual(bytes);
  await wire.result("append", said("c"));
  expect(idsIn(disk, file)).toEqual([leafId, "c"]);
});

test("the first append that fails leaves the session as new as it was, with what set it up", async () => {
  const disk = new SyncFailingDisk();
  const { lives, wire } = await started(disk, ["--provider", "openai", "--model", "m", "--thinking", "high"]);
  await wire.result("set_session_name", { name: "early" });
  const before = await wire.result("get_state");
  expect(before).toMatchObject({ persisted: false, entryCount: 3, sessionName: "early" });
  disk.failNextSync();
  const [one, state, two] = await replies(wire, ["append", said("one")], ["get_state"], ["append", said("two")]);
  expect([one.error.data.name, two.error.data.name]).toEqual(["storage_failed", "storage_failed"]);
  expect(state.result).toEqual(before);
  expect(disk.paths().filter((path) => path.startsWith(FOLDER))).toEqual([]);
  const { leafId } = await wire.result("append", { entries: [user("again")] });
  const after = await wire.result("get_state");
  expect(after).toMatchObject({ persisted: true, entryCount: 4, leafId });
  const path = await wire.result("get_path");
  const types = path.entries.map(({ type }: Json) => type).join(" ");
  expect(types).toBe("model_change thinking_level_change session_info message");
  expect(idsIn(disk, after.sessionFile)).toEqual(idsOf(path));
  await lives.kill();
  const next = await lives.start(["--session", after.sessionFile]);
  const model = { provider: "openai", id: "m" };
  const found = { model, thinkingLevel: "high", sessionName: "early", leafId };
  expect(await next.result("get_state")).toMatchObject(found);
});

test.each(["sync", "os"])(
  "a position that was answered survives an append for which there is no room, and a kill (%s)",
  async (durability) => {
    const two = { entries: [user("one"), user("two")] };
    const { disk, lives, wire, entryIds, file } = await begun(["--durability", durability], two);
    await wire.result("branch", { entryId: entryIds[0] });
    if (durability === "sync") disk.failNextSync("ENOSPC");
    else disk.cutNextWrite();
    const { data } = await wire.failure("append", said("lost"));
    expect(data).toMatchObject({ name: "storage_full", retryable: true });
    expect((await wire.result("get_state")).leafId).toBe(entryIds[0]);
    await lives.kill();
    const next = await lives.start(["--session", file]);
    expect((await next.result("get_state")).leafId).toBe(entryIds[0]);
  },
);

/** Some of the operations; soak has each of them fail, in every way. */
acrossTiers(describe, [
  { store: "jsonl", step: 97 },
  { store: "jsonl", step: 13 },
  { store: "v2", step: 41 },
] as const)("whichever operation fails, --store $store (every $step)", ({ store, step }) => {
  /** Faults of different kinds in turn; soak takes each of them at each operation. */
  function faultAt(at: number): Fault {
    if (at % 3 === 0) return { kind: "short", at, errno: "ENOSPC" };
    return { kind: "fail", at, errno: at % 3 === 1 ? "EIO" : "ENOSPC" };
  }

  test("memory equals the file, nothing answered is lost, and it works the next time", async () => {
    const operations = await runWithFault(undefined, store);
    expect(operations).toBeGreaterThan(100);
    for (let at = 1; at <= operations; at += step) await runWithFault(faultAt(at), store);
  });

  test("the same holds for requests that do not wait for each other", async () => {
    const operations = await pipelineWithFault(undefined, store);
    expect(operations).toBeGreaterThan(30);
    for (let at = 1; at <= operations; at += step) await pipelineWithFault(faultAt(at), store);
  });
});
