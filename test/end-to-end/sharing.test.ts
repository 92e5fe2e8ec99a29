/** Sharing a session over the wire: who may join whom, and what the other end may do wrong. */

import { once } from "node:events";
import { rmSync } from "node:fs";
import { createConnection, type Socket } from "node:net";
import { dirname, join } from "node:path";
import type { Duplex } from "node:stream";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import type { Entrance } from "../../src/core/ports/attach.ts";
import { attachmentsWith } from "../support/attaching.ts";
import { PID_NAMESPACES, spawnElsewhere } from "../support/elsewhere.ts";
import { put } from "../support/lifecycle.ts";
import { chain, fileText, headerText } from "../support/lines.ts";
import { needs } from "../support/needs.ts";
import { type HereServer, serveHere, spawnServer, temporaryPlace } from "../support/server.ts";
import {
  announced,
  framed,
  held,
  joined,
  knock,
  order,
  QUIET,
  request,
  said,
  sendTo,
  texts,
  turn,
  WISH,
} from "../support/shared-session.ts";
import { acrossTiers, SYSTEM } from "../support/tiers.ts";

const STORES = ["jsonl", "v2"] as const;

acrossTiers(describe, STORES)("a session of %s that two hosts share", (store) => {
  async function two(): Promise<{ first: HereServer; second: HereServer }> {
    const place = temporaryPlace();
    const file = join(place.home, store === "v2" ? "two.v2" : "two.jsonl");
    const first = serveHere(["--session", file, "--store", store], { place });
    await first.result("append", said("first"));
    const second = serveHere(["--session", file], { place });
    await second.result("append", said("second"));
    return { first, second };
  }

  test("has one leaf, and each reads what it wrote", async () => {
    const { first, second } = await two();
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

  test("tells both of everything, and whose it is", async () => {
    const { first, second } = await two();
    await first.result("append", said("third"));
    await second.result("set_session_name", { name: "ours" });
    await Promise.all([first.result("get_state"), second.result("get_state")]);
    const told = (server: HereServer): string[] =>
      server.events
        .filter(({ method }) => method === "session_append" || method === "session_info_changed")
        .map(({ params }) => params.origin ?? params.name);
    await second.result("append", said("fourth"));
    await first.result("append", said("fifth"));
    await Promise.all([first.result("get_state"), second.result("get_state")]);
    expect(told(first).slice(0, 6)).toEqual(["self", "peer", "self", "peer", "ours", "peer"]);
    expect(
      told(second)
        .filter((origin) => origin !== "foreign")
        .slice(0, 5),
    ).toEqual(["self", "peer", "self", "ours", "self"]);
  });

  test("refuses what expects another leaf, and repeats what has a key, wherever it is asked", async () => {
    const { first, second } = await two();
    const { leafId } = await first.result("get_state");
    const { entryIds } = await first.result("append", { ...said("third"), idempotencyKey: "k" });
    expect((await second.failure("append", { ...said("late"), expectedLeafId: leafId })).data).toMatchObject({
      name: "content_modified",
      leafId: entryIds[0],
    });
    expect((await second.result("append", { ...said("third"), idempotencyKey: "k" })).entryIds).toEqual(entryIds);
    expect((await second.failure("append", { entries: [] })).code).toBe(-32602);
    expect(await texts(second)).toEqual(["first", "second", "third"]);
  });

  test("tells of what a host did after the reply to that, or after the whole array", async () => {
    const place = temporaryPlace();
    const file = join(place.home, store === "v2" ? "two.v2" : "two.jsonl");
    const first = serveHere(["--session", file, "--store", store], { place });
    await first.result("append", said("first"));
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
    expect(await texts(first)).toEqual(["first", "a", "b", "c", "d", "e"]);
  });

  test("goes on with the other when its holder leaves in order", async () => {
    const { first, second } = await two();
    await first.finish();
    expect(await second.result("append", said("third"))).toHaveProperty("leafId");
    expect(await texts(second)).toEqual(["first", "second", "third"]);
    expect(await second.result("get_state")).not.toHaveProperty("holder");
    expect(second.events.map(({ method }) => method)).toContain("session_owner_changed");
  });

  test("and with the other, too, when the holder goes to another session", async () => {
    const { first, second } = await two();
    const waiting = first.result("new_session");
    const ids = [1, 2, 3];
    for (const n of ids) second.send({ jsonrpc: "2.0", id: `m${n}`, method: "append", params: said(`meanwhile ${n}`) });
    await waiting;
    for (const n of ids) expect(await second.reply(`m${n}`)).toHaveProperty("result");
    expect(await texts(second)).toEqual(["first", "second", "meanwhile 1", "meanwhile 2", "meanwhile 3"]);
  });
});

test("clients of Pi share a session as others do", async () => {
  const place = temporaryPlace();
  const file = put(join(place.home, "pi.jsonl"), fileText(headerText({ id: "pi", cwd: place.cwd }), ...chain(3)));
  const [first, second] = [1, 2].map(() => serveHere(["--mode", "rpc", "--session", file], { place }));
  expect(await first.command("set_session_name", { name: "one" })).toMatchObject({ success: true });
  expect(await second.command("set_session_name", { name: "two" })).toMatchObject({ success: true });
  expect((await second.command("get_state")).data.sessionName).toBe("two");
  expect(await first.command("append", said("Hi."))).toMatchObject({ success: true });
  expect((await first.command("get_state")).data).toMatchObject({ sessionName: "two", messageCount: 4 });
});

test("a hook is asked of the host whose command causes it", async () => {
  const { file, holder, place } = await held();
  await holder.result("initialize", { capabilities: { hooks: [{ name: "session_before_tree" }] } });
  const other = serveHere(["--session", file, ...QUIET], { place });
  await other.result("initialize", { capabilities: { hooks: [{ name: "session_before_tree" }] } });
  await other.result("append", said("joined"));
  const { entries } = await other.result("get_entries");
  other.send({ jsonrpc: "2.0", id: 77, method: "branch", params: { entryId: entries[0].id } });
  const question = await other.next();
  expect(question).toMatchObject({
    method: "session_before_tree",
    params: { preparation: { targetId: entries[0].id } },
  });
  other.send({ jsonrpc: "2.0", id: question.id, result: { cancel: true } });
  expect((await other.reply(77)).result).toMatchObject({ cancelled: true });
  expect(holder.events.filter(({ method }) => method === "session_before_tree")).toEqual([]);
});

test("a call that was passed to the holder can be cancelled while the host is asked", async () => {
  const { file, holder, place } = await held();
  const other = serveHere(["--session", file, ...QUIET], { place });
  await other.result("initialize", { capabilities: { hooks: [{ name: "session_before_tree" }] } });
  const { leafId } = await other.result("append", said("joined"));
  const { entries } = await other.result("get_entries");
  other.send(request(77, "branch", { entryId: entries[0].id }), request(78, "append", said("next")));
  expect((await other.next()).method).toBe("session_before_tree");
  other.send({ jsonrpc: "2.0", method: "$/cancelRequest", params: { id: 77 } });
  expect((await other.reply(77)).error.data.name).toBe("cancelled");
  const { entryIds } = (await other.reply(78)).result;
  expect((await holder.result("get_entry", { entryId: entryIds[0] })).entry.parentId).toBe(leafId);
});

test("what was read of a session whose file is gone can be read by all who share it", async () => {
  const { file, holder, place } = await held();
  const other = serveHere(["--session", file, ...QUIET], { place });
  await other.result("append", said("joined"));
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

/** The clock of somebody who comes so late that a holder has announced itself by then, if it does that at all. */
const LATER = { now: () => Date.UTC(2026, 1) };

describe("a server joins nobody", () => {
  const staysAlone = async (_: string, ofHolder: string[], own: string[]): Promise<void> => {
    const place = temporaryPlace();
    const file = put(join(place.home, "s.jsonl"), fileText(headerText({ id: "s", cwd: place.cwd }), ...chain(3)));
    const holder = serveHere(["--session", file, ...QUIET, ...ofHolder], { place });
    await holder.result("append", said("held"));
    if (!ofHolder.includes("off")) await announced(file);
    const other = serveHere(["--session", file, ...QUIET, ...own], { place, env: LATER });
    expect((await other.failure("append", said("not"))).data.name).toBe("session_locked");
    expect((await other.result("get_state")).lockedBy).toMatchObject({ pid: process.pid });
    expect((await holder.result("append", said("still"))).entryIds).toHaveLength(1);
  };

  test.each<[string, string[], string[]]>([["that lets nobody join", ["--attach", "off"], []]])(
    "%s",
    SYSTEM,
    staysAlone,
  );

  test.each<[string, string[], string[]]>([
    ["if it is to be alone", [], ["--attach", "off"]],
    ["that promises less than it does itself", ["--durability", "os"], ["--durability", "sync"]],
  ])("%s", staysAlone);

  test("that says nonsense, or nothing for long", SYSTEM, async () => {
    const place = temporaryPlace();
    const file = put(join(place.home, "s.jsonl"), fileText(headerText({ id: "s", cwd: place.cwd }), ...chain(3)));
    const holder = serveHere(["--session", file, ...QUIET, "--attach", "off"], { place });
    await holder.result("append", said("held"));
    const answers = ["Content-Length: 2\r\n\r\n{}", "HTTP/1.1 200 OK\r\n\r\n", 'Content-Length: 9\r\n\r\n{"a":nope'];
    for (const answer of answers) {
      const entrance = attachmentsWith().open(file, (stream) => stream.write(answer));
      const other = serveHere(["--session", file, ...QUIET], { place, env: LATER });
      expect((await other.failure("append", said("not"))).data.name, answer).toBe("session_locked");
      entrance?.close();
    }
    expect(await texts(holder)).toContain("held");
  });
});

describe("a holder that was joined", () => {
  test("and then says nonsense loses nothing that it acknowledged", async () => {
    const tree = framed('{"event":"session_tree","leafId":"none"}');
    const { other, asked, end } = await joined({ answer: framed('{"reply":99,"result":{}}') + tree + framed("[]") });
    const write = other.request("append", said("once"));
    await asked("once");
    await end();
    expect((await write).result.entryIds).toHaveLength(1);
    expect((await texts(other)).filter((text) => text === "once")).toEqual(["once"]);
  });

  test("is succeeded by who asked it: everything is done there in its order, though the host is asked meanwhile", async () => {
    const { other, asked, end } = await joined();
    await other.result("initialize", { capabilities: { hooks: [{ name: "session_before_compact" }] } });
    const { entries } = await other.result("get_entries");
    other.send(request(11, "append", said("one")), request(12, "compact"), request(13, "append", said("two")));
    await asked("two");
    await end();
    const question = await (async () => {
      for (;;) {
        const message = await other.next();
        if (message.method === "session_before_compact") return message;
      }
    })();
    // This one comes after what was asked of the dead.
    other.send(request(14, "append", said("three")), request(15, "get_state"));
    await turn();
    const compaction = { summary: "s", firstKeptEntryId: entries.at(-1).id, tokensBefore: 1 };
    other.send({ jsonrpc: "2.0", id: question.id, result: { cancel: false, compaction } });
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
    for (let turns = 0; turns < 10; turns++) await turn();
    other.send(request(11, "append", { ...said("one"), sessionId }));
    await asked("one");
    expect(await other.result("shutdown")).toBeNull();
    await end();
    expect((await other.reply(11)).result.entryIds).toHaveLength(1);
  });
});

describe("at the socket of a holder", () => {
  async function answer(socket: Socket): Promise<string> {
    let text = "";
    for await (const piece of socket) text += piece;
    return text;
  }

  test.each([
    ["without the token", (token: string) => ({ attach: { ...WISH, token: `${token.slice(0, -1)}.` } })],
    ["with another protocol", (token: string) => ({ attach: { ...WISH, token, protocol: 2 } })],
    ["for another session", (token: string) => ({ attach: { ...WISH, token, sessionId: "other" } })],
    ["with a call before it was let in", () => ({ call: 1, name: "append", params: said("no") })],
    ["with no object", () => [1]],
  ])("nobody is let in %s", async (_, wish) => {
    const { file, holder } = await held();
    const announcement = await announced(file);
    const socket = await knock(announcement, file);
    sendTo(socket, wish(announcement.token));
    expect(await answer(socket)).not.toContain("attached");
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
    sendTo(socket, { attach: { ...WISH, token: "wrong" } });
    const talking = setInterval(() => socket.write("more"), 1);
    expect((await refused)[0]).toMatchObject({ code: expect.stringMatching(/^(?:EPIPE|ECONNRESET)$/) });
    clearInterval(talking);
  });

  test("who is in may write entries and nothing else", async () => {
    const { file, holder } = await held();
    const announcement = await announced(file);
    const socket = await knock(announcement, file);
    sendTo(socket, { attach: { ...WISH, token: announcement.token } });
    for (const [call, name] of ["delete_session", "get_messages", "export_session", "shutdown", "nothing", 7].entries())
      sendTo(socket, { call, name, params: { sessionPath: file } });
    sendTo(socket, { call: 6, name: "append", params: { entries: "none" } });
    sendTo(socket, { call: 7, name: "append", params: said("let in"), loose: true });
    let heard = "";
    for await (const piece of socket) {
      heard += piece;
      if (heard.includes('"reply":7')) break;
    }
    expect([...heard.matchAll(/"reply":\d,"error":\{"code":(-\d+)/g)].map(([, code]) => code)).toEqual([
      ...Array(6).fill("-32803"),
      "-32602",
    ]);
    expect((await texts(holder)).at(-1)).toBe("let in");
  });

  test("who is in hears that the holder lives, though it waits for its own host", async () => {
    const { file, holder } = await held();
    await holder.result("initialize", { capabilities: { hooks: [{ name: "session_before_tree" }] } });
    const { entries } = await holder.result("get_entries");
    holder.send(request(77, "branch", { entryId: entries[0].id }));
    const question = await holder.next();
    const announcement = await announced(file);
    const socket = await knock(announcement, file);
    sendTo(socket, { attach: { ...WISH, token: announcement.token } });
    sendTo(socket, { call: 1, name: "append", params: said("waits"), loose: true });
    sendTo(socket, { ping: true });
    let heard = "";
    for await (const piece of socket) {
      heard += piece;
      if (heard.includes('"pong":true')) break;
    }
    expect(heard).not.toContain('"reply"');
    holder.send({ jsonrpc: "2.0", id: question.id, result: { cancel: false } });
    expect((await holder.reply(77)).result).toMatchObject({ leafId: entries[0].id });
  });

  test("what a guest asks while the holder waits for its own host is done there", async () => {
    const { file, holder } = await held();
    await holder.result("initialize", { capabilities: { hooks: [{ name: "session_before_tree" }] } });
    await holder.result("new_session");
    await holder.result("open_session", { sessionPath: file });
    await holder.result("append", { sessionId: "shared", ...said("held again") });
    const { entries } = await holder.result("get_entries", { sessionId: "shared" });
    holder.send(request(77, "branch", { sessionId: "shared", entryId: entries[0].id }));
    const { id } = await holder.next();
    const announcement = await announced(file);
    const socket = await knock(announcement, file);
    sendTo(socket, { attach: { ...WISH, token: announcement.token } });
    sendTo(socket, { call: 1, name: "set_session_name", params: { name: "by a guest" }, loose: true });
    sendTo(socket, { ping: true });
    let heard = "";
    for await (const piece of socket.iterator({ destroyOnReturn: false })) {
      heard += piece;
      if (heard.includes('"pong":true')) break;
    }
    expect(heard).not.toContain('"reply"');
    holder.send({ jsonrpc: "2.0", id, result: {} });
    for await (const piece of socket) {
      heard += piece;
      if (heard.includes('"reply":1')) break;
    }
    expect(heard).not.toContain('"error"');
    expect((await holder.result("get_session_stats", { sessionId: "shared" })).sessionId).toBe("shared");
    await holder.result("switch_session", { sessionId: "shared" });
    expect((await holder.result("get_state")).sessionName).toBe("by a guest");
  });

  test("who does not read loses events, never replies, and is told how many", SYSTEM, async () => {
    const { file, holder } = await held();
    const announcement = await announced(file);
    const socket = await knock(announcement, file);
    sendTo(socket, { attach: { ...WISH, token: announcement.token } });
    await once(socket, "readable");
    const summary = "s".repeat(400_000);
    const { entries } = await holder.result("get_entries");
    for (let n = 0; n < 24; n++) {
      await holder.result("compact_append", { summary, firstKeptEntryId: entries[0].id, tokensBefore: 1 });
      await turn();
    }
    sendTo(socket, { call: 1, name: "append", params: said("asked"), loose: true });
    const pieces: string[] = [];
    for await (const piece of socket) {
      pieces.push(`${piece}`);
      if (pieces.slice(-2).join("").includes('"lost":')) break;
    }
    const heard = pieces.join("");
    expect(heard).toContain('"reply":1,');
    const lost = [...heard.matchAll(/\{"lost":(\d+),/g)].reduce((sum, [, count]) => sum + Number(count), 0);
    const told = [...heard.matchAll(/\{"event":"session_(?:append|compact)"/g)].length;
    expect(lost).toBeGreaterThan(0);
    expect(lost + told).toBeGreaterThanOrEqual(2 * 24);
    expect(await texts(holder)).toContain("asked");
  });
});

describe("servers with nothing in common but the session's folder", { ...SYSTEM, ...needs(PID_NAMESPACES) }, () => {
  acrossTiers(test, STORES)("share it (%s)", async (store) => {
    const place = temporaryPlace();
    const file = join(place.home, store === "v2" ? "far.v2" : "far.jsonl");
    const first = spawnServer(["--session", file, "--store", store, ...QUIET], "lines", place);
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

/** A session that somebody holds whom nobody can join, and, once it is opened, an entrance that lets in those who `may`. */
async function heldBehind(store: string, may: () => boolean = () => true) {
  const place = temporaryPlace();
  const file = join(place.home, `s.${store}`);
  const maker = serveHere(["--session", file, "--store", store, ...QUIET, "--attach", "off"], { place });
  const { entryIds } = await maker.result("append", said("made"));
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  onTestFinished(() => void vi.useRealTimers());
  const asked: Duplex[] = [];
  const open = () =>
    attachmentsWith().open(file, (stream) => {
      stream.on("data", (bytes) => String(bytes).includes("for you") && asked.push(stream));
      const attached = { epoch: 1, client: "x", pid: 1 };
      if (may()) stream.write(framed(JSON.stringify({ attached, leafId: entryIds[0], lastId: entryIds[0] })));
    });
  /** Waits until it was asked, and ends without an answer. */
  const end = async (entrance: Entrance | null): Promise<void> => {
    while (asked.length === 0) await turn();
    vi.useRealTimers();
    entrance?.close();
    await maker.finish();
    for (const stream of asked) stream.destroy();
  };
  return { place, file, open, end };
}

acrossTiers(test, STORES)(
  "a holder of %s that was stopped when it was asked is joined soon after it goes on",
  async (store) => {
    let isStopped = true;
    const { place, file, open, end } = await heldBehind(store, () => !isStopped);
    const entrance = open();
    const other = serveHere(["--session", file, ...QUIET], { place, env: LATER });
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
    const { place, file, open, end } = await heldBehind(store);
    const other = serveHere(["--session", file, ...QUIET], { place });
    other.send(request(1, "append", said("for you")));
    await pass(1000);
    const entrance = open();
    await pass(500);
    await end(entrance);
    expect((await other.reply(1)).result.entryIds).toHaveLength(1);
    expect(await texts(other)).toEqual(["made", "for you"]);
  },
);
