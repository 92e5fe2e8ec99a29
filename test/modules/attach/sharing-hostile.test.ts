/** Shared sessions whose holders die at the worst moment, stop, lie, are silent, or hear from those who do. */

import { readdirSync, readFileSync, renameSync, rmSync, statSync, truncateSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Duplex } from "node:stream";
import { describe, expect, test, vi } from "vitest";
import type { Entrance } from "../../../src/modules/attach/announcing.ts";
import { realDisk } from "../../../src/storage/fs/disk.ts";
import { isLock, type Locks, makeLock } from "../../../src/storage/locks/contract.ts";
import { makeLocks } from "../../../src/storage/locks/locks.ts";
import { expectNumbered, guestAt, heldAlone, paramsOf, STORES, sessionOf, TREE } from "../../support/hosts.ts";
import { put } from "../../support/lifecycle.ts";
import { chain, fileText, headerText } from "../../support/lines.ts";
import { type HereServer, type Json, serveHere, temporaryPlace } from "../../support/server.ts";
import {
  announced,
  held,
  QUIET,
  request,
  said,
  stopClocks,
  texts,
  turn,
  turns,
  two,
} from "../../support/shared-session.ts";
import { acrossTiers, SWEEP, SYSTEM } from "../../support/tiers.ts";
import { attachmentsWith, listFolder } from "./support/attaching.ts";
import { framed, guestOf, joined } from "./support/false-processes.ts";

/** Returns the entries in a server's events for its host. */
const appended = (server: HereServer): string[] =>
  paramsOf(server, "session_append").flatMap(({ entryIds }) => entryIds);

test("what a dead holder left outside the index can be read by those who join the next", SYSTEM, async () => {
  const { file, place, first: dead, second } = await two("v2", QUIET);
  await second.finish();
  const index = join(file, "index", readdirSync(join(file, "index"))[0]);
  const before = statSync(index).size;
  await dead.result("append", said("found"));
  await dead.finish();
  truncateSync(index, before);
  const next = serveHere(["--session", file, ...QUIET], { place });
  // It takes the lock and writes nothing.
  expect((await next.failure("append", { ...said("no"), expectedLeafId: null })).data.name).toBe("content_modified");
  await announced(file);
  const other = serveHere(["--session", file], { place });
  expect(await texts(other)).toEqual(["first", "second", "found"]);
  await other.result("append", said("joined"));
  expect(await texts(next)).toEqual(["first", "second", "found", "joined"]);
});

describe("a holder that was joined and says", () => {
  const message = (value: unknown): string => framed(JSON.stringify(value));
  const good = '{"reply":1,"result":{"entryIds":["x"],"leafId":"x"}}';

  const SAYINGS: [what: string, answer: string | Buffer][] = [
    ["bytes of no kind", Buffer.from(Array.from({ length: 3000 }, (_, n) => (n * 7919) % 256))],
    ["half a message", `Content-Length: 100\r\n\r\n{"reply":`],
    ["a message of 4 GB", `Content-Length: 4000000000\r\n\r\n{"reply":1`],
    ["a message without a length", "Content-Length: many\r\n\r\n{}"],
    ["no object", framed("7")],
    ["JSON that is none", framed('{"reply":1,')],
    ["a reply without a result", message({ reply: 1 })],
    ["a reply with an error that is none", message({ reply: 1, error: 5 })],
    ["a reply with an empty error", message({ reply: 1, error: {} })],
    ["replies to what was never asked", message({ reply: 99, result: {} }) + message({ reply: -1, error: {} })],
    ["a leaf that is no id", message({ event: "session_tree", leafId: 5, payload: { newLeafId: 5, oldLeafId: null } })],
    ["a leaf that nobody knows", message({ event: "session_tree", leafId: "no", payload: {} })],
    ["an event that there is not", message({ event: "nothing_such", payload: {} })],
    ["an event of other members", message({ event: "session_append", leafId: null, payload: { entryIds: 7 } })],
    ["an event without members", message({ event: "session_append", leafId: null })],
    ["a question that there is not", message({ ask: 1, hook: "nothing_such", payload: {} })],
    ["a question that nobody registered for", message({ ask: 1, hook: "session_before_tree", payload: {} })],
    ["a count that is none", message({ lost: -7, leafId: null }) + message({ lost: 0.5 }) + message({ lost: 1e300 })],
    ["that it lets in again and again", message({ attached: 7, leafId: 7 }).repeat(3)],
  ];
  const losesNothing = async (_: string, answer: string | Buffer): Promise<void> => {
    const { other, asked, end, leafId } = await joined({ answer });
    const write = other.request("append", said("once"));
    await asked("once");
    // Whatever was said is read before the end.
    await turns(20);
    await end();
    expect((await write).result.entryIds).toHaveLength(1);
    const { entries } = await other.result("get_entries");
    expect(entries.at(-1)).toMatchObject({ parentId: leafId, message: { content: "once" } });
    expect(entries.filter(({ message }: Json) => message?.content === "once")).toHaveLength(1);
    for (const { method, params } of other.events)
      expect([method, params.seq]).toEqual([expect.stringMatching(/^session_|^events_lost$/), expect.any(Number)]);
  };
  test.each(SAYINGS.filter((_, n) => n % 3 === 0))("%s loses nothing, and ends nobody", losesNothing);
  test.each(SAYINGS.filter((_, n) => n % 3 > 0))("%s loses nothing, and ends nobody", SWEEP, losesNothing);

  test("a reply twice is answered once", async () => {
    const { other, end } = await joined({ answer: framed(good) + framed(good) });
    other.send(request(1, "append", said("lied")), request(2, "get_state"));
    expect([(await other.reply(1)).result.entryIds, (await other.reply(2)).error]).toEqual([["x"], undefined]);
    await end();
    expect((await other.finish()).messages.filter(({ id }) => id === 1)).toEqual([]);
  });

  // Entries of the holder may be on their way to the disk, which gets two seconds.
  for (const [what, holder, tier] of [
    ["where it is, which nobody can read,", { place: { lastId: "nowhere" } }, SYSTEM],
    ["that it is nobody", { attached: 7 }, {}],
    ["that it has no number", { attached: { client: "x", pid: 1 } }, {}],
  ] as const)
    test(`${what} is not joined`, tier, async () => {
      const { other, lock } = await joined(holder);
      expect((await other.failure("append", said("no"))).data.name).toBe("session_locked");
      expect(await texts(other)).toEqual(await texts(lock));
    });

  test("a leaf that nobody can read moves no leaf", async () => {
    const { other, end, leafId, asked } = await joined({ place: { leafId: "nowhere" } });
    const write = other.request("append", said("joined"));
    await asked("joined");
    await end();
    const { entryIds } = (await write).result;
    expect((await other.result("get_entry", { entryId: entryIds[0] })).entry.parentId).toBe(leafId);
  });
});

test("a holder that says nothing for as long as is set is not robbed: what it was asked fails, and may be sent again", async () => {
  stopClocks("setInterval", "performance");
  const { other, asked, end } = await joined({ args: ["--holder-timeout", "3000"] });
  const once = { ...said("once"), idempotencyKey: "k" };
  other.send(request(1, "append", once), request(2, "get_state"), request(3, "list_heads"));
  await asked("once");
  await vi.advanceTimersByTimeAsync(4000);
  const { data, message } = (await other.reply(1)).error;
  expect(data).toMatchObject({ name: "outcome_unknown", retryable: true, holder: { pid: 1 } });
  expect(message).toContain("said nothing for 3 s");
  expect((await other.reply(2)).result.holder).toMatchObject({ pid: 1 });
  await vi.advanceTimersByTimeAsync(4000);
  // A read leaves nothing in doubt.
  expect((await other.reply(3)).error.data).toMatchObject({ name: "session_locked", retryable: true });
  expect(await texts(other)).toContain("held");
  const again = other.request("append", once);
  await end();
  expect((await again).result.entryIds).toHaveLength(1);
  expect((await texts(other)).filter((text) => text === "once")).toHaveLength(1);
});

test("who is told to end answers what a silent holder does not", async () => {
  const { other, asked, end } = await joined();
  stopClocks("setTimeout");
  other.send(request(1, "append", said("once")), request(2, "get_state"));
  await asked("once");
  other.stop();
  // The sender of the signal waits two seconds, and not for the holder.
  await vi.advanceTimersByTimeAsync(1500);
  expect((await other.reply(1)).error.data).toMatchObject({
    name: "outcome_unknown",
    retryable: true,
    holder: { pid: 1 },
  });
  expect((await other.reply(2)).result.entryCount).toBe(4);
  expect(await other.done).toBe(0);
  await end();
});

test("who asks a holder and does not read is not heard any more, and loses no answer", SYSTEM, async () => {
  const { file } = await held();
  const { socket, say, hear } = await guestOf(file);
  socket.pause();
  // Each is answered by a refusal that names it.
  const name = "x".repeat(100_000);
  for (let call = 1; call <= 150; call++) say({ call, name, params: {} });
  for (let still = 0, length = -1; still < 500; still++) {
    await turn();
    if (socket.writableLength !== length) still = 0;
    length = socket.writableLength;
  }
  expect(socket.writableLength).toBeGreaterThan(4_000_000);
  socket.resume();
  const replies = [...(await hear('"reply":150,')).matchAll(/"reply":(\d+),/g)].map(([, number]) => Number(number));
  expect(replies).toEqual(Array.from({ length: 150 }, (_, n) => n + 1));
});

describe("what a server promised holds for what it asks of a holder that did not:", () => {
  async function guest(...args: string[]): Promise<HereServer> {
    const { file, place } = await held();
    return serveHere(["--session", file, ...QUIET, ...args], { place });
  }

  test("--confine", async () => {
    const { file, place } = await held();
    const other = serveHere(["--session", file, ...QUIET, "--allow-path", place.home], { place });
    expect((await other.result("append", said("confined"))).entryIds).toHaveLength(1);
    expect((await other.result("get_state")).holder).toMatchObject({ pid: process.pid });
    const outside = put(join(temporaryPlace().home, "o.jsonl"), fileText(headerText({ id: "o" }), ...chain(3)));
    const merge = { from: "leaf", otherPath: outside, summary: "s" };
    // No holder reads another session for a guest, wherever that is.
    expect((await other.failure("merge_branch", merge)).data.name).toBe("session_locked");
    const exported = await other.failure("export_session", { format: "jsonl", outputPath: `${outside}.out` });
    expect(exported.data.name).toBe("path_outside_root");
  });

  test("--read-only", async () => {
    const other = await guest("--read-only");
    expect((await other.failure("append", said("no"))).data.name).toBe("read_only");
    expect(await other.result("get_state")).not.toHaveProperty("holder");
    expect((await texts(other)).at(-1)).toBe("held");
  });

  test("--hook-timeout", async () => {
    const other = await guest("--hook-timeout", "20");
    await other.result("initialize", TREE);
    await other.result("append", said("joined"));
    const { entries } = await other.result("get_entries");
    const moved = await other.result("branch", { entryId: entries[0].id });
    expect(moved).toMatchObject({ cancelled: true, reason: "hook_timeout" });
  });
});

test("who could not join a holder joins the next one at once", async () => {
  const { other, end, lock } = await joined({ attached: "nobody" });
  expect((await other.failure("append", said("no"))).data.name).toBe("session_locked");
  const { sessionFile } = await lock.result("get_state");
  await end();
  const next = serveHere(["--session", sessionFile, ...QUIET], { place: lock.place });
  await next.result("append", said("next"));
  await announced(sessionFile);
  expect((await other.result("append", said("joined"))).entryIds).toHaveLength(1);
  expect((await other.result("get_state")).holder).toMatchObject({ pid: process.pid });
});

acrossTiers(test, STORES)(
  "a server that took the lock of %s while a dying holder let it in is told of nothing twice",
  async (store) => {
    const { file, holder: lock, leafId, open } = await heldAlone(store);
    const streams: Duplex[] = [];
    let entrance: Entrance | null | undefined;
    const knocked = new Promise<void>((resolve) => {
      entrance = attachmentsWith().open(file, (stream) => {
        streams.push(stream.resume());
        resolve();
      });
    });
    const other = open([]);
    await other.result("initialize");
    // It knocks as soon as it is known that it hears.
    await knocked;
    await lock.finish();
    const { entryIds } = await other.result("append", said("mine"));
    const attached = { epoch: 1, client: "x", pid: 1 };
    for (const stream of streams) stream.end(framed(JSON.stringify({ attached, leafId, lastId: leafId })));
    await turns(50);
    entrance?.abandon();
    await other.result("append", said("more"));
    await other.result("get_state");
    expect(appended(other).filter((id) => id === entryIds[0])).toEqual(entryIds);
    expect((await other.result("list_clients")).clients).toHaveLength(1);
  },
);

acrossTiers(describe, STORES)("who holds a session of %s", (store) => {
  /** A server whose locks report, before they are released, the announcement next to the session at that time. */
  async function holding(args: string[] = []) {
    const { file, place, open } = sessionOf(store);
    const real = makeLocks({ disk: realDisk, stateFolder: place.home, client: "a holder", now: () => "" });
    const left: (string[] | null)[] = [];
    const locks: Locks = {
      ...real,
      acquire(key, at) {
        const lock = real.acquire(key, at);
        if (!isLock(lock)) return lock;
        return makeLock(() => {
          left.push(listFolder(dirname(file)));
          lock.release();
        }, lock);
      },
    };
    const server = open(args, { locks });
    await server.result("append", said("held"));
    await announced(file);
    return { server, left, file, open };
  }

  test.each([
    ["ends", (server) => server.finish()],
    ["goes to another session", (server) => server.result("new_session")],
    ["is told to end", (server) => server.result("shutdown").then(() => server.finish())],
  ] as [string, (server: HereServer) => Promise<unknown>][])(
    "says so no more when the lock is free for the next one: it %s",
    async (_, leave) => {
      const { server, left, file, open } = await holding();
      const guest = open();
      await guest.result("append", said("shared"));
      await leave(server);
      expect(left).toEqual([null]);
      await guest.result("append", said("alone"));
      expect((await announced(file)).pid).toBe(process.pid);
    },
  );

  test.runIf(store === "jsonl")("says so no more either where the file was overwritten before it goes", async () => {
    const { server, left, file } = await holding(QUIET);
    await server.result("append", said("cut off"));
    truncateSync(file, readFileSync(file, "utf8").indexOf("\n", 200) + 1);
    server.send(request(1, "append", said("found it")), request(2, "new_session"));
    expect((await server.reply(1)).error).toBeUndefined();
    expect((await server.reply(2)).error).toBeUndefined();
    expect([left, listFolder(dirname(file))]).toEqual([[null], null]);
    await server.finish();
  });

  test("is found again after somebody cleared the folder in which that is said", async () => {
    stopClocks("setInterval");
    const { server, file, open } = await holding();
    const guest = open();
    await guest.result("append", said("shared"));
    rmSync(join(dirname(file), ".pi-session-server"), { recursive: true });
    vi.advanceTimersByTime(10_000);
    await announced(file);
    const late = open();
    await late.result("append", said("late"));
    expect((await guest.result("list_clients")).clients).toHaveLength(3);
    await server.finish();
    await late.result("append", said("last"));
    expect(await texts(guest)).toEqual(["held", "shared", "late", "last"]);
  });
});

describe("a host is told once of an entry", () => {
  /** A server with the event of an entry from a false holder; another program has written the entry. */
  async function startOther() {
    const { other, lock, say, end, succeed } = await joined();
    await other.result("initialize");
    const write = async (text: string): Promise<string> => (await lock.result("append", said(text))).entryIds[0];
    const report = (...entryIds: string[]): void => {
      const entries = entryIds.map((id) => ({ id }));
      say({ event: "session_append", leafId: entryIds.at(-1), payload: { entryIds, origin: "peer", entries } });
    };
    const until = async (isSo: (state: Json) => boolean): Promise<void> => {
      while (!isSo(await other.result("get_state"))) await turn();
    };
    await until(({ holder }) => holder !== undefined);
    return { other, lock, write, report, heard: () => appended(other), end, succeed, until };
  }

  test("of which a holder told that dies while the file has another name", async () => {
    const { other, lock, write, report, heard, end, until } = await startOther();
    const { sessionFile } = await lock.result("get_state");
    const id = await write("told");
    report(id);
    // Its event has come, but it is not read here yet.
    await turns(50);
    renameSync(sessionFile, `${sessionFile}.away`);
    await end();
    await until(({ holder }) => holder === undefined);
    renameSync(`${sessionFile}.away`, sessionFile);
    const { entryIds } = await other.result("append", said("mine"));
    await other.result("get_state");
    expect(heard()).toEqual([id, ...entryIds]);
  });

  test("of which an event of the next holder tells with others", async () => {
    const { other, write, report, heard, succeed, until } = await startOther();
    const first = await write("one");
    report(first);
    await until(() => heard().length === 1);
    await succeed();
    const second = await write("two");
    report(first, second);
    await until(() => heard().length > 1);
    expect(heard()).toEqual([first, second]);
    expect(paramsOf(other, "session_append").at(-1)?.entries).toEqual([{ id: second }]);
  });
});

test("a payload of a holder ends no line, and takes the place of nothing that the server says", async () => {
  const payload = '{"newLeafId":"a",\n\r\n"oldLeafId":null,"seq":-1,"leafId":"no","sessionId":"no","type":"no"}';
  const { other, asked, end } = await joined({
    answer: framed(`{"event":"session_tree","leafId":null,"payload":${payload}}`),
  });
  const write = other.request("append", said("joined"));
  await asked("joined");
  await turns(20);
  await end();
  await write;
  const { params } = other.events.find(({ params: { newLeafId } }) => newLeafId === "a") as Json;
  expect(params).toMatchObject({ oldLeafId: null, leafId: null, sessionId: "s", seq: expect.any(Number) });
  expect([params.seq > 0, params.type]).toEqual([true, undefined]);
});

describe("a holder that lets in and leaves", () => {
  test("is joined once by its announcement, whatever number it gives itself", async () => {
    const { other, entered, end } = await joined({ leaves: true });
    await other.result("initialize");
    while (entered() === 0) await turn();
    await turns(200);
    expect(entered()).toBe(1);
    await end();
    expect((await other.result("append", said("free"))).entryIds).toHaveLength(1);
  });

  test("under new announcements is joined more and more slowly, and then given up", SYSTEM, async () => {
    const { other, entered, succeed, end } = await joined({ leaves: true });
    await other.result("initialize");
    while (entered() === 0) await turn();
    stopClocks("setTimeout", "performance");
    for (let now = 0; now < 18_000; now += 50) {
      const before = entered();
      await vi.advanceTimersByTimeAsync(50);
      await turns(10);
      if (entered() > before) succeed().catch(() => {});
    }
    expect(entered()).toBeLessThan(40);
    const write = other.request("append", said("no"));
    for (let now = 0; now < 20_000; now += 500) {
      await vi.advanceTimersByTimeAsync(500);
      await turns(10);
    }
    expect((await write).error.data.name).toMatch(/session_locked|outcome_unknown/);
    await end();
  });

  test("under new announcements is waited for no longer in all than --holder-timeout says", async () => {
    const { other, entered, succeed, end } = await joined({
      leaves: true,
      says: '{"ping":true}',
      args: ["--holder-timeout", "500"],
    });
    stopClocks("setTimeout", "setInterval", "performance");
    let answer: Json;
    void other.request("append", said("no")).then((reply) => {
      answer = reply;
    });
    let [now, seen] = [0, 0];
    for (; !answer && now < 2000; now += 50) {
      await turns(10);
      if (entered() > seen) succeed().catch(() => {});
      seen = entered();
      await vi.advanceTimersByTimeAsync(50);
    }
    expect(seen).toBeGreaterThan(2);
    // Each of them has said something, so that none counts as silent.
    expect(answer.error.message).toContain("It ended");
    expect(now).toBeLessThan(700);
    await end();
  });
});

/** Stops time, except in a test's own steps, in which sockets are read. */
function steppedTime(): (milliseconds: number) => Promise<void> {
  stopClocks("setInterval", "performance");
  return async (milliseconds) => {
    for (let passed = 0; passed < milliseconds; passed += 1000) {
      vi.advanceTimersByTime(1000);
      await turns(20);
    }
  };
}

test("a holder that waits for its host is not given up, however many calls wait for it", SYSTEM, async () => {
  const pass = steppedTime();
  const { file, holder, place } = await held();
  await holder.result("initialize", TREE);
  const { entries } = await holder.result("get_entries");
  const other = await guestAt(file, place);
  holder.ask(77, "branch", { entryId: entries[0].id });
  const question = await holder.next();
  // More than a holder is asked at once.
  const count = 600;
  other.send(...Array.from({ length: count }, (_, n) => request(`m${n}`, "append", said(`text ${n}`))));
  await pass(60_000);
  holder.answer(question.id, { cancel: true });
  for (let n = 0; n < count; n++) expect(await other.reply(`m${n}`)).toHaveProperty("result");
  expect((await texts(holder)).slice(-count)).toEqual(Array.from({ length: count }, (_, n) => `text ${n}`));
});

test("a holder that says nothing is given up, and what waited for it is not known", async () => {
  const { other, asked, end } = await joined();
  await other.result("get_state");
  const pass = steppedTime();
  other.send(...Array.from({ length: 600 }, (_, n) => request(`m${n}`, "append", said(`text ${n}`))));
  await asked("text 499");
  await pass(40_000);
  for (let n = 0; n < 600; n++)
    expect((await other.reply(`m${n}`)).error.data).toMatchObject({ name: "outcome_unknown", retryable: true });
  await end();
});

test("a call that the holder was not asked yet is cancelled without it", SYSTEM, async () => {
  const { other, asked, end, heard } = await joined();
  await other.result("get_state");
  other.send(...Array.from({ length: 502 }, (_, n) => request(`m${n}`, "append", said(`text ${n}.`))));
  await asked("text 499.");
  other.send({ jsonrpc: "2.0", method: "$/cancelRequest", params: { id: "m500" } });
  await turn();
  await end();
  expect((await other.reply("m499")).result.entryIds).toHaveLength(1);
  expect((await other.reply("m500")).error.data.name).toBe("cancelled");
  expect((await other.reply("m501")).result.entryIds).toHaveLength(1);
  expect(heard()).not.toContain("text 500.");
  expect(await texts(other)).not.toContain("text 500.");
});

test("a branch that was asked of a holder that died is not refused for its own doing", async () => {
  const { other, asked, end, succeed, say, leafId } = await joined();
  const [{ id }] = (await other.result("get_entries")).entries;
  const data = { name: "content_modified", leafId: id };
  const refused = { code: -32801, sentence: "no", name: "content_modified", data };
  const branch = async (number: number): Promise<Json> => {
    const moved = other.request("branch", { entryId: id, expectedLeafId: leafId });
    await asked('"branch"');
    if (number === 2) await succeed();
    await asked('"branch"');
    say({ reply: number, error: refused });
    return (await moved).error.data;
  };
  expect(await branch(1)).toMatchObject({ name: "content_modified" });
  expect(await branch(2)).toMatchObject({ name: "outcome_unknown", retryable: true, leafId: id });
  await end();
});

test("events that a holder gives up are counted in their place, and no number is missing", async () => {
  const { other, asked, end, say, leafId } = await joined();
  await other.result("get_state");
  const write = other.request("append", said("asked"));
  await asked("asked");
  const named = (n: number): Json => ({ event: "session_info_changed", leafId, payload: { name: `name ${n}` } });
  say(named(1), named(2), { lost: 5, leafId, lastId: leafId }, named(3));
  say({ reply: 1, leafId, result: { entryIds: ["x"], leafId } }, named(4), { lost: 1, leafId, lastId: leafId });
  await write;
  await other.result("get_state");
  expectNumbered(other);
  expect(paramsOf(other, "events_lost").map(({ from, to }) => to - from + 1)).toEqual([5, 1]);
  await end();
});

test("a server that takes the lock while it waits to be let in does not join itself", async () => {
  const { file, holder, open } = await heldAlone();
  stopClocks("setTimeout");
  const other = open();
  await other.result("initialize");
  // It looks for the holder's entrance again and again, now every 50 ms.
  for (let n = 0; n < 20; n++) {
    vi.advanceTimersByTime(5);
    await turns(5);
  }
  await holder.finish();
  await other.result("append", said("first"));
  await announced(file);
  vi.advanceTimersByTime(50);
  await turns(100);
  expect((await other.result("list_clients")).clients).toHaveLength(1);
  expect((await other.result("append", said("second"))).entryIds).toHaveLength(1);
});
