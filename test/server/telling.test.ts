/** What is told of stored entries is told whole, or the request that asked for it fails alone; the server lives. */

import { appendFileSync, readdirSync, truncateSync, unlinkSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { realDisk } from "../../src/core/store/disk.ts";
import { noLocks } from "../../src/core/store/lock.ts";
import { segmentedStore } from "../../src/core/store/segmented/store.ts";
import { assistant, user } from "../support/drafts.ts";
import { testEnv } from "../support/env.ts";
import { failingDisk, type Stroke } from "../support/failing.ts";
import { type Framing, type HereServer, type Json, serveHere, temporaryPlace } from "../support/server.ts";

const STORES = ["jsonl", "v2"] as const;
type StoreName = (typeof STORES)[number];

function append(server: HereServer, ...entries: Json[]): Promise<Json> {
  return server.request("append", { entries });
}

/** What holds the bytes of the entries. */
function bodyFile(store: StoreName, sessionFile: string): string {
  return store === "jsonl" ? sessionFile : `${sessionFile}/segments/0000000000000001.seg`;
}

/** Appends an entry as another program does. */
function writeElsewhere(store: StoreName, file: string, id: string, parentId: string): void {
  const { type, ...rest } = user("from elsewhere", {}) as Json;
  const line = JSON.stringify({ type, id, parentId, timestamp: "2026-01-24T16:22:26.831Z", ...rest });
  if (store === "jsonl") return appendFileSync(file, `${line}\n`);
  const log = segmentedStore({
    disk: realDisk,
    env: testEnv(9),
    locks: noLocks,
    durability: "os",
    quarantine: "/nowhere",
    containerFor: () => file,
  }).open(file);
  log.append([Buffer.from(line)]);
  log.close();
}

describe.each(STORES)("entries of another program on %s that cannot be read", (store) => {
  test("are told by their ids, or the write that looked for them fails, and is answered", async () => {
    const outcomes = new Set<string>();
    for (let at = 1, isStruck = true; isStruck; at++) {
      let strikes = false;
      let count = 0;
      const strike = (_count: number, operation: string): Stroke | undefined =>
        strikes && operation === "read" && ++count === at ? "EIO" : undefined;
      const server = serveHere(["--store", store], { disk: failingDisk(strike).disk });
      await append(server, user("a", { id: "aaaaaaaa" }), assistant("b", { id: "bbbbbbbb" }));
      const { sessionFile } = await server.result("get_state");
      writeElsewhere(store, sessionFile, "ffffffff", "bbbbbbbb");
      strikes = true;
      const { error } = await append(server, user("c"));
      strikes = false;
      isStruck = count >= at;
      const { messages } = await server.finish();
      const told = [...server.events, ...messages].find(({ params }) => params?.origin === "foreign")?.params;
      if (error) expect(error.data.name).toBe("storage_failed");
      else expect(told).toMatchObject({ entryIds: ["ffffffff"] });
      outcomes.add(error ? "refused" : told.entries ? "told whole" : "told by ids");
    }
    expect([...outcomes].sort()).toEqual(["refused", "told by ids", "told whole"]);
  });
});

describe.each(STORES)("a reply on %s that is not held in memory", (store) => {
  const TEXT = "x".repeat(1 << 20);
  const COUNT = 6;

  /** A host that reads nothing of the reply to `get_entries` yet, which is on its way. */
  async function stalled(framing: Framing) {
    const place = temporaryPlace();
    const server = serveHere(["--store", store, "--durability", "os"], { place, framing, heldReplyBytes: 1000 });
    for (let n = 0; n < COUNT; n++) await append(server, user(TEXT, { id: `0000000${n.toString(16)}` }));
    const { sessionFile } = await server.result("get_state");
    server.stall();
    server.send({ jsonrpc: "2.0", id: "large", method: "get_entries" });
    return { server, place, file: bodyFile(store, sessionFile) };
  }

  test.each([
    ["lines", "cut"],
    ["headers", "cut"],
    ["lines", "gone"],
  ] as const)("in %s is whole though its file is %s meanwhile, and the server lives", async (framing, fate) => {
    const { server, place, file } = await stalled(framing);
    if (fate === "cut") truncateSync(file, 100);
    else unlinkSync(file);
    server.send({ jsonrpc: "2.0", id: "next", method: "get_messages" });
    server.resume();
    const { result } = await server.reply("large");
    expect(result.entries.map(({ message }: Json) => message.content === TEXT)).toEqual(Array(COUNT).fill(true));
    const next = await server.reply("next");
    expect(next.result ?? next.error.data).toMatchObject(next.result ? {} : { name: "storage_failed" });
    expect(await server.result("list_open_sessions")).toBeDefined();
    expect(readdirSync(place.state).filter((name) => name.includes("reply"))).toEqual([]);
  });

  test("is whole though its session is left meanwhile", async () => {
    const { server } = await stalled("lines");
    server.send({ jsonrpc: "2.0", id: "again", method: "get_entries" });
    server.send({ jsonrpc: "2.0", id: "new", method: "new_session" });
    server.resume();
    for (const id of ["large", "again"]) expect((await server.reply(id)).result.entries).toHaveLength(COUNT);
    expect((await server.reply("new")).result.cancelled).toBe(false);
  });

  test("is refused alone when there is no room for it, in a batch too", async () => {
    let full = false;
    const strike = (_count: number, operation: string): Stroke | undefined =>
      full && operation === "write" ? "ENOSPC" : undefined;
    const server = serveHere(["--store", store], { heldReplyBytes: 1000, disk: failingDisk(strike).disk });
    for (let n = 0; n < 3; n++) await append(server, user("y".repeat(5000)));
    full = true;
    expect((await server.failure("get_entries")).data.name).toBe("storage_full");
    server.send([
      { jsonrpc: "2.0", id: "a", method: "get_entries" },
      { jsonrpc: "2.0", id: "b", method: "get_entries", params: { types: ["label"] } },
    ]);
    const [a, b] = await server.next();
    expect(a.error.data.name).toBe("storage_full");
    expect(b.result.entries).toEqual([]);
    full = false;
    expect((await server.result("get_entries")).entries).toHaveLength(3);
  });
});
