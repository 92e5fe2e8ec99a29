/** Replies that wait for their reader in a file: each is whole, or its request fails alone, and the server lives. */

import { readdirSync, readFileSync, truncateSync, unlinkSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { append } from "../support/asking.ts";
import { user } from "../support/drafts.ts";
import { failingDisk, type Stroke } from "../support/failing.ts";
import { bodyFile } from "../support/other-programs.ts";
import { call, type Framing, type Json, serveHere, temporaryPlace } from "../support/server.ts";
import { acrossTiers, SWEEP, SYSTEM } from "../support/tiers.ts";

const STORES = ["jsonl", "v2"] as const;

acrossTiers(describe, STORES)("a reply on %s that is not held in memory", (store) => {
  const TEXT = "x".repeat(1 << 18);
  const COUNT = 6;

  /** A host that reads nothing of the reply to `get_entries` yet, which is on its way. */
  async function stalled(framing: Framing) {
    const place = temporaryPlace();
    const server = serveHere(["--store", store, "--durability", "os"], { place, framing, heldReplyBytes: 1000 });
    for (let n = 0; n < COUNT; n++) await append(server, user(TEXT, { id: `0000000${n.toString(16)}` }));
    const { sessionFile } = await server.result("get_state");
    server.stall();
    server.ask("large", "get_entries");
    return { server, place, file: bodyFile(store, sessionFile) };
  }

  test.each([
    ["lines", "cut"],
    ["headers", "cut"],
    ["lines", "gone"],
  ] as const)("in %s is whole though its file is %s meanwhile, and the server lives", async (framing, state) => {
    const { server, place, file } = await stalled(framing);
    if (state === "cut") truncateSync(file, 100);
    else unlinkSync(file);
    server.ask("next", "get_messages");
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
    server.ask("again", "get_entries");
    server.ask("new", "new_session");
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
    server.send([call("a", "get_entries"), call("b", "get_entries", { types: ["label"] })]);
    const [a, b] = await server.next();
    expect(a.error.data.name).toBe("storage_full");
    expect(b.result.entries).toEqual([]);
    full = false;
    expect((await server.result("get_entries")).entries).toHaveLength(3);
  });
});

for (const [held, tier] of [
  [undefined, SYSTEM],
  [1000, SWEEP],
] as const)
  test(`what was received is kept though the reader is gone, with ${held} held bytes`, tier, async () => {
    const server = serveHere(["--durability", "os"], { heldReplyBytes: held });
    await append(server, user("x".repeat(6 << 20)));
    const { sessionFile } = await server.result("get_state");
    server.stall();
    server.send(
      call("a", "get_entries"),
      call("b", "get_entries"),
      call("c", "append", { entries: [user("the last")] }),
    );
    await new Promise(setImmediate);
    server.output.destroy(Object.assign(new Error("EPIPE: write"), { code: "EPIPE" }));
    expect(await server.done).toBe(1);
    expect(readFileSync(sessionFile, "utf8")).toContain("the last");
  });
