/** Sharing a session over the wire: who may join whom, and what the other end may do wrong. */

import { once } from "node:events";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createConnection } from "node:net";
import { dirname, join } from "node:path";
import type { Duplex } from "node:stream";
import { describe, expect, type TestOptions, test, vi } from "vitest";
import { commonParams } from "../../../src/handlers/shared/command.ts";
import { commandTable } from "../../../src/handlers/shared/table.ts";
import type { Entrance } from "../../../src/modules/attach/announcing.ts";
import { guestAt, heldAlone, LATER, paramsOf, STORES, sessionOf, TREE } from "../../support/hosts.ts";
import { PID_NAMESPACES, spawnElsewhere } from "../../support/namespaces.ts";
import { needs } from "../../support/needs.ts";
import { type Json, serveHere, temporaryPlace } from "../../support/server.ts";
import {
  announced,
  held,
  order,
  QUIET,
  request,
  said,
  stopClocks,
  texts,
  turn,
  turns,
  two,
} from "../../support/shared-session.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";
import { attachmentsWith } from "./support/attaching.ts";
import { framed, guestOf, HELLO, joined, knock, sendTo } from "./support/false-processes.ts";

acrossTiers(describe, STORES)("a session of %s that two hosts share", (store) => {
  test("has one leaf, and each reads what it wrote", async () => {
    const { first, second } = await two(store);
    const { entryIds } = await second.result("append", said("third"));
    expect((await second.result("get_state")).leafId).toBe(entryIds[0]);
    expect((await first.result("get_state")).leafId).toBe(entryIds[0]);
    const { entries } = await first.result("get_entries");
    await second.result("branch", { entryId: entries[0].id });
    expect((await first.result("get_state")).leafId).toBe(entries[0].id);
    const here = await first.result("append", said("fourth"));
    const state = await second.result("append", said("fifth"));
    expect((await first.result("get_entry", { entryId: state.entryIds[0] })).entry.parentId).toBe(here.entryIds[0]);
    expect((await second.result("get_state")).holder).toMatchObject({ pid: process.pid });
    expect(await second.result("get_state")).not.toHaveProperty("lockedBy");
  });

  test("refuses what expects another leaf, and repeats what has a key, wherever it is asked", async () => {
    const { first, second } = await two(store);
    const { leafId } = await first.result("get_state");
    const { entryIds } = await first.result("append", { ...said("third"), idempotencyKey: "k" });
    const { data } = await second.failure("append", { ...said("late"), expectedLeafId: leafId });
    expect(data).toMatchObject({ name: "content_modified", leafId: entryIds[0] });
    expect((await second.result("append", { ...said("third"), idempotencyKey: "k" })).entryIds).toEqual(entryIds);
    expect((await second.failure("append", { entries: [] })).code).toBe(-32602);
    expect(await texts(second)).toEqual(["first", "second", "third"]);
  });

  test("tells of what a host did after the reply to that, or after the whole array", async () => {
    const { first, file, place } = await two(store);
    const second = serveHere(["--session", file], { place });
    await second.result("get_entries");
    // The first call joins the holder, the others are passed.
    second.send(request(11, "append", said("a")), request(12, "append", said("b")), request(13, "get_state"));
    expect(await order(second, 13)).toEqual([11, "session_append", 12, "session_append", 13]);
    const batch = [request(14, "append", said("c")), request(15, "get_state"), request(16, "append", said("d"))];
    second.send(batch, request(17, "get_state"));
    expect(await order(second, 17)).toEqual([[14, 15, 16], "session_append", "session_append", 17]);
    second.send(request(18, "append", said("e")), request(19, "new_session"), request(20, "append", said("new")));
    second.send(request(21, "get_state"));
    const events = ["session_shutdown", "session_start"];
    expect(await order(second, 21)).toEqual([18, "session_append", 19, ...events, 20, "session_append", 21]);
    expect(await texts(first)).toEqual(["first", "second", "a", "b", "c", "d", "e"]);
  });

  test("goes on with the other when its holder goes to another session", async () => {
    const { first, second } = await two(store);
    const waiting = first.result("new_session");
    const ids = [1, 2, 3];
    for (const n of ids) second.ask(`m${n}`, "append", said(`meanwhile ${n}`));
    await waiting;
    for (const n of ids) expect(await second.reply(`m${n}`)).toHaveProperty("result");
    expect(await texts(second)).toEqual(["first", "second", "meanwhile 1", "meanwhile 2", "meanwhile 3"]);
    expect(await second.result("get_state")).not.toHaveProperty("holder");
    expect(paramsOf(second, "session_owner_changed")).toHaveLength(1);
  });
});

/** The commands that change the session that their `sessionId` names; new_session changes none. */
const OF_NAMED = commandTable.filter(
  ({ name, effect, params }) =>
    params.shape.sessionId === commonParams.sessionId && effect !== "read" && name !== "new_session",
);

describe("in a server that has joined the holder of its current session, a session that is not open is not found", () => {
  test.each(["jsonrpc", "pi"])("by any command that changes one, in the dialect %s", async (dialect) => {
    const { file, place } = await held();
    const server = serveHere(["--session", file, ...QUIET, "--dialect", dialect], { place });
    const ask = async (name: string, params: Json): Promise<Json> => {
      if (dialect === "jsonrpc") return (await server.request(name, params)).error?.data.name;
      server.send({ id: name, type: name, ...params });
      return (await server.next()).code;
    };
    await ask("append", said("joined"));
    const before = readFileSync(file, "utf8");
    for (const { name, example } of OF_NAMED)
      expect(await ask(name, { ...(example.params as Json), sessionId: "not-open" }), name).toBe("session_not_found");
    expect(readFileSync(file, "utf8")).toBe(before);
  });
});

test("a fork of a session whose holder was joined, and which is not the current one, has what was acknowledged", async () => {
  const { file, place } = await held();
  const server = serveHere(["--session", join(place.home, "own.jsonl"), ...QUIET], { place });
  const { sessionId } = await server.result("open_session", { sessionPath: file });
  await server.result("append", { ...said("joined"), sessionId });
  const { leafId: entryId } = await server.result("append", { ...said("last"), sessionId });
  await server.result("fork", { sessionId, entryId, position: "at" });
  expect((await texts(server)).slice(-2)).toEqual(["joined", "last"]);
});

test("a hook is asked of the host whose command causes it, and the call can be cancelled meanwhile", async () => {
  const { file, holder, place } = await held();
  await holder.result("initialize", TREE);
  const other = await guestAt(file, place, TREE);
  const { leafId } = await other.result("get_state");
  const [{ id: entryId }] = (await other.result("get_entries")).entries;
  other.ask(76, "branch", { entryId });
  const { id, method, params } = await other.next();
  expect([method, params.preparation.targetId]).toEqual(["session_before_tree", entryId]);
  other.answer(id, { cancel: true });
  expect((await other.reply(76)).result).toMatchObject({ cancelled: true });
  other.send(request(77, "branch", { entryId }), request(78, "append", said("next")));
  expect((await other.next()).method).toBe("session_before_tree");
  other.send({ jsonrpc: "2.0", method: "$/cancelRequest", params: { id: 77 } });
  expect((await other.reply(77)).error.data.name).toBe("cancelled");
  const { entryIds } = (await other.reply(78)).result;
  expect((await holder.result("get_entry", { entryId: entryIds[0] })).entry.parentId).toBe(leafId);
  expect(paramsOf(holder, "session_before_tree")).toEqual([]);
});

test("what was read of a session whose file is gone can be read by all who share it", async () => {
  const { file, holder, place } = await held();
  const other = await guestAt(file, place);
  rmSync(file);
  for (const server of [holder, other]) {
    expect((await server.failure("append", said("lost"))).data.name).toBe("storage_failed");
    expect(await texts(server)).toContain("held");
  }
  expect(await other.result("shutdown")).toBeNull();
});

test("who leaves is gone, also when it leaves at once", async () => {
  const { file, holder, place } = await held();
  const connections = (): number => process.getActiveResourcesInfo().filter((name) => name === "PipeWrap").length;
  const before = connections();
  for (let n = 0; n < 5; n++) {
    const other = serveHere(["--session", file, ...QUIET], { place });
    await other.result("append", said(`from ${n}`));
    await other.finish();
  }
  for (let turns = 0; turns < 1000 && connections() > before; turns++) await turn();
  expect(connections()).toBe(before);
  expect(await texts(holder)).toContain("from 4");
});

describe("a server joins nobody", () => {
  for (const [what, ofHolder, own, options] of [
    ["that lets nobody join", ["--attach", "off"], [], SYSTEM],
    ["if it is to be alone", [], ["--attach", "off"], {}],
    ["that promises less than it does itself", ["--durability", "os"], ["--durability", "sync"], {}],
    ["that speaks another protocol", [], [], {}],
  ] as [string, string[], string[], TestOptions][])
    test(what, options, async () => {
      const { file, holder, open } = await heldAlone("jsonl", ofHolder);
      if (!ofHolder.includes("off")) {
        const { socket: _, ...announcement } = await announced(file);
        const folder = join(dirname(file), ".pi-session-server");
        const name = readdirSync(folder).find((one) => one.endsWith(".json")) as string;
        const changed = what.includes("protocol") ? { ...announcement, protocol: 2 } : announcement;
        writeFileSync(join(folder, name), JSON.stringify(changed), { mode: 0o600 });
      }
      const other = open([...QUIET, ...own], { env: LATER });
      expect((await other.failure("append", said("not"))).data.name).toBe("session_locked");
      expect((await other.result("get_state")).lockedBy).toMatchObject({ pid: process.pid });
      expect((await holder.result("append", said("still"))).entryIds).toHaveLength(1);
    });

  test("that says nonsense, or nothing for long", SYSTEM, async () => {
    const { file, holder, open } = await heldAlone();
    const answers = ["Content-Length: 2\r\n\r\n{}", "HTTP/1.1 200 OK\r\n\r\n", 'Content-Length: 9\r\n\r\n{"a":nope'];
    for (const answer of answers) {
      const entrance = attachmentsWith().open(file, (stream) => stream.write(answer));
      const other = open(QUIET, { env: LATER });
      expect((await other.failure("append", said("not"))).data.name, answer).toBe("session_locked");
      entrance?.close();
    }
    expect(await texts(holder)).toContain("held");
  });
});

describe("a holder that was joined", () => {
  test("is succeeded by who asked it: everything is done there in its order, though the host is asked meanwhile", async () => {
    const { other, asked, end } = await joined();
    await other.result("initialize", { capabilities: { hooks: [{ name: "session_before_compact" }] } });
    const { entries } = await other.result("get_entries");
    other.send(request(11, "append", said("one")), request(12, "compact"), request(13, "append", said("two")));
    await asked("two");
    await end();
    let question = await other.next();
    while (question.method !== "session_before_compact") question = await other.next();
    // This one comes after the requests to the dead one.
    other.send(request(14, "append", said("three")), request(15, "get_state"));
    await turn();
    const compaction = { summary: "s", firstKeptEntryId: entries.at(-1).id, tokensBefore: 1 };
    other.answer(question.id, { cancel: false, compaction });
    const own = ["session_append", "session_compact"];
    expect(await order(other, 15)).toEqual([12, ...own, 13, own[0], 14, own[0], 15]);
    expect((await texts(other)).slice(-4)).toEqual(["held", "one", "two", "three"]);
  });

  test("is succeeded by who asked it, though that was told to end", async () => {
    const { other, asked, end } = await joined();
    const { sessionId, sessionFile } = await other.result("get_state");
    await other.result("new_session");
    await other.result("open_session", { sessionPath: sessionFile });
    // It joins soon after.
    await turns(10);
    other.ask(11, "append", { ...said("one"), sessionId });
    await asked("one");
    expect(await other.result("shutdown")).toBeNull();
    await end();
    expect((await other.reply(11)).result.entryIds).toHaveLength(1);
  });
});

describe("at the socket of a holder", () => {
  test.each([
    ["without the token", (token: string) => ({ attach: { ...HELLO, token: `${token.slice(0, -1)}.` } })],
    ["with another protocol", (token: string) => ({ attach: { ...HELLO, token, protocol: 2 } })],
    ["for another session", (token: string) => ({ attach: { ...HELLO, token, sessionId: "other" } })],
    ["with a call before it was let in", () => ({ call: 1, name: "append", params: said("no") })],
    ["with no object", () => [1]],
    ["with more than 256 KiB", (token: string) => ({ attach: { ...HELLO, token, more: "x".repeat(300_000) } })],
  ])("nobody is let in %s", async (_, hello) => {
    const { file, holder } = await held();
    const announcement = await announced(file);
    const socket = await knock(announcement, file);
    sendTo(socket, hello(announcement.token));
    let heard = "";
    for await (const piece of socket) heard += piece;
    expect(heard).not.toContain("attached");
    expect((await texts(holder)).at(-1)).toBe("held");
    expect((await holder.result("append", said("goes on"))).entryIds).toHaveLength(1);
  });

  test("who is refused is let go, even if he keeps talking", async () => {
    const { file } = await held();
    const announcement = await announced(file);
    const path = join(dirname(file), ".pi-session-server", announcement.socket);
    const socket = createConnection({ path, allowHalfOpen: true });
    socket.resume();
    const refused = once(socket, "error");
    sendTo(socket, { attach: { ...HELLO, token: "wrong" } });
    const talking = setInterval(() => socket.write("more"), 1);
    expect((await refused)[0]).toMatchObject({ code: expect.stringMatching(/^(?:EPIPE|ECONNRESET)$/) });
    clearInterval(talking);
  });

  test("who is in may write entries and nothing else", async () => {
    const { file, holder } = await held();
    const { say, hear } = await guestOf(file);
    for (const [call, name] of ["delete_session", "get_messages", "export_session", "shutdown", "nothing", 7].entries())
      say({ call, name, params: { sessionPath: file } });
    say({ call: 6, name: "append", params: { entries: "none" } });
    // A host that has shown the token may send more than a stranger.
    const long = "let in".padEnd(300_000, ".");
    say({ call: 7, name: "append", params: said(long), loose: true });
    const heard = await hear('"reply":7');
    const codes = [...heard.matchAll(/"reply":\d,"error":\{"code":(-\d+)/g)].map(([, code]) => code);
    expect(codes).toEqual([...Array(6).fill("-32803"), "-32602"]);
    expect((await texts(holder)).at(-1)).toBe(long);
  });

  test.each([false, true])(
    "who is in hears that the holder lives, though that waits for its host, and is served then (beside the current: %s)",
    async (isShared) => {
      const { file, holder } = await held();
      await holder.result("initialize", TREE);
      const of = isShared ? { sessionId: "shared" } : {};
      if (isShared) {
        await holder.result("new_session");
        await holder.result("open_session", { sessionPath: file });
        await holder.result("append", { ...of, ...said("held again") });
      }
      const { entries } = await holder.result("get_entries", of);
      holder.ask(77, "branch", { ...of, entryId: entries[0].id });
      const { id } = await holder.next();
      const { say, hear } = await guestOf(file);
      say({ call: 1, name: "set_session_name", params: { name: "by a guest" }, loose: true }, { ping: true });
      expect(await hear('"pong":true')).not.toContain('"reply"');
      holder.answer(id, {});
      expect(await hear('"reply":1')).not.toContain('"error"');
      expect((await holder.reply(77)).result).toMatchObject({ leafId: entries[0].id });
      if (isShared) await holder.result("switch_session", of);
      expect((await holder.result("get_state")).sessionName).toBe("by a guest");
    },
  );

  test("who does not read loses events, never replies, and is told how many", SYSTEM, async () => {
    const { file, holder } = await held();
    const { socket, say, hear } = await guestOf(file);
    socket.pause();
    const summary = "s".repeat(400_000);
    const [{ id }] = (await holder.result("get_entries")).entries;
    for (let n = 0; n < 24; n++) {
      await holder.result("compact_append", { summary, firstKeptEntryId: id, tokensBefore: 1 });
      await turn();
    }
    say({ call: 1, name: "append", params: said("asked"), loose: true });
    socket.resume();
    await hear('"reply":1,');
    const heard = await hear('"lost":');
    const lost = [...heard.matchAll(/\{"lost":(\d+),/g)].reduce((sum, [, count]) => sum + Number(count), 0);
    const events = [...heard.matchAll(/\{"event":"session_(?:append|compact)"/g)].length;
    expect(lost).toBeGreaterThan(0);
    expect(lost + events).toBeGreaterThanOrEqual(2 * 24);
    expect(await texts(holder)).toContain("asked");
  });
});

describe("servers with nothing in common but the session's folder", { ...SYSTEM, ...needs(PID_NAMESPACES) }, () => {
  acrossTiers(test, STORES)("share it (%s)", async (store) => {
    const { file, spawn } = sessionOf(store);
    const first = spawn();
    await first.result("append", said("here"));
    const far = spawnElsewhere(["--session", file, ...QUIET], { apart: "network and pids", place: temporaryPlace() });
    expect((await far.result("append", said("far"))).entryIds).toHaveLength(1);
    await first.result("append", said("here again"));
    expect(await texts(far)).toEqual(["here", "far", "here again"]);
    first.process.kill("SIGKILL");
    await far.result("append", said("far alone"));
    expect(await texts(far)).toEqual(["here", "far", "here again", "far alone"]);
  });
});

/** Lets time pass, in the timers and for what happens meanwhile. */
async function pass(milliseconds: number): Promise<void> {
  for (let n = 0; n < milliseconds; n += 10) {
    vi.advanceTimersByTime(10);
    await turn();
  }
}

/** A session with a holder that cannot be joined, and, once it is opened, an entrance that lets in those who `may`. */
async function heldBehind(store: string, may: () => boolean = () => true) {
  const { file, holder: maker, leafId, open: openServer } = await heldAlone(store);
  stopClocks("setTimeout", "performance");
  const asked: Duplex[] = [];
  const open = () =>
    attachmentsWith().open(file, (stream) => {
      stream.on("data", (bytes) => String(bytes).includes("for you") && asked.push(stream));
      const attached = { epoch: 1, client: "x", pid: 1 };
      if (may()) stream.write(framed(JSON.stringify({ attached, leafId, lastId: leafId })));
    });
  /** Waits until it was asked, and ends without an answer. */
  const end = async (entrance: Entrance | null): Promise<void> => {
    while (asked.length === 0) await turn();
    vi.useRealTimers();
    entrance?.close();
    await maker.finish();
    for (const stream of asked) stream.destroy();
  };
  return { openServer, open, end };
}

acrossTiers(test, STORES)(
  "a holder of %s that was stopped when it was asked is joined soon after it goes on",
  async (store) => {
    let isStopped = true;
    const { openServer, open, end } = await heldBehind(store, () => !isStopped);
    const entrance = open();
    const other = openServer(QUIET, { env: LATER });
    other.send(request(1, "append", said("not")));
    await pass(1500);
    expect((await other.reply(1)).error.data.name).toBe("session_locked");
    isStopped = false;
    await pass(1000);
    other.send(request(2, "append", said("for you")));
    await end(entrance);
    expect((await other.reply(2)).result.entryIds).toHaveLength(1);
  },
);

acrossTiers(test, STORES)(
  "a holder that has just taken the lock is waited for while it makes the session (%s)",
  async (store) => {
    const { openServer, open, end } = await heldBehind(store);
    const other = openServer();
    other.send(request(1, "append", said("for you")));
    await pass(1000);
    const entrance = open();
    await pass(500);
    await end(entrance);
    expect((await other.reply(1)).result.entryIds).toHaveLength(1);
    expect(await texts(other)).toEqual(["held", "for you"]);
  },
);
