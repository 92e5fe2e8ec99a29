/**
 * A write that was refused with storage_failed is nowhere, whoever ran it, and whatever could be asked about it: what may be
 * there is unknown, and what is known to be there is acknowledged.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { describe, expect, test } from "vitest";
import { user } from "../../support/drafts.ts";
import { type HereServer, type Json, serveHere, temporaryPlace } from "../../support/server.ts";
import { QUIET, request, turn } from "../../support/shared-session.ts";
import { attachmentsWith } from "../attach/support/attaching.ts";
import { framed } from "../attach/support/false-processes.ts";
import { entriesOf, FleetServer } from "./support/server.ts";
import { FleetTable, fleetOptions, MemoryFleet } from "./support/table-fleet.ts";

const keyed = (key: string): Json => ({ entries: [user(key, { id: key })], idempotencyKey: key });
const unknown = expect.objectContaining({ name: "outcome_unknown", retryable: true });

describe.each(["jsonl", "v2"])("with a copy as %s", (store) => {
  test("a repeated request whose entries are in the copy is unknown while nobody can be asked whether others have them", async () => {
    const one = await new FleetServer(["--store", store]).start();
    const sessionId = await one.begin();
    await one.result("append", keyed("k"));
    const { sessionFile } = await one.state();
    await one.end();
    await one.start("--session", sessionFile);
    one.loses();
    expect(await one.refused("append", keyed("k"))).toEqual(unknown);
    one.heals();
    expect((await one.result("append", keyed("k"))).entryIds).toEqual(["k"]);
    expect(one.inFleet(sessionId)).toEqual(["one", "k"]);
  });

  test.each(["whose answer was lost", "that another machine ran"])(
    "a repeat of a request %s is unknown while nobody can be asked, and one without a key changed nothing",
    async (first) => {
      const one = await new FleetServer(["--store", store]).start();
      const sessionId = await one.begin();
      if (first === "whose answer was lost") {
        one.fleet.faultAt = (_, name) => (name === "append" ? "after" : "before");
        expect(await one.refused("append", keyed("k"))).toEqual(unknown);
      } else {
        const two = await new FleetServer(["--store", store], { table: one.fleet.table, leasesEnd: true }).start();
        await two.result("switch_session", { sessionId });
        await two.result("append", keyed("k"));
        await two.end();
        one.now += 60_000;
      }
      one.loses();
      const { message, data } = (await one.wire.request("append", keyed("k"))).error;
      expect(data).toEqual(unknown);
      expect(message).toMatch(
        /This request changed nothing; .* an earlier one with its idempotencyKey .* Send it again/,
      );
      expect(await one.refused("append", { entries: entriesOf("new") })).toMatchObject({ name: "storage_failed" });
      one.heals();
      expect((await one.result("append", keyed("k"))).entryIds).toEqual(["k"]);
      expect(one.inFleet(sessionId)).toEqual(["one", "k"]);
    },
  );

  test("a repeated request whose entries are there is acknowledged, though a write before it fails", async () => {
    const one = await new FleetServer(["--store", store]).start();
    const sessionId = await one.begin();
    await one.result("append", keyed("k"));
    one.fleet.faultAt = (_, name) => (name === "append" ? "before" : undefined);
    one.wire.send(request("new", "append", keyed("new")), request("again", "append", keyed("k")));
    expect((await one.wire.reply("new")).error.data.name).toBe("storage_failed");
    expect((await one.wire.reply("again")).result).toMatchObject({ entryIds: ["k"] });
    expect(one.inFleet(sessionId)).toEqual(["one", "k"]);
  });
});

describe("a request that a holder received which is gone now", () => {
  /** A server that joined a holder, which did what it was asked, and ended without an answer; the fleet is away since. */
  async function left(store: string, asks: (guest: HereServer) => void, count: number, isBehind = false) {
    const table = new FleetTable();
    const place = temporaryPlace();
    const file = join(place.home, `s.${store}`);
    const serve = (fleet: MemoryFleet, ...args: string[]): HereServer =>
      serveHere(["--session", file, "--store", store, ...QUIET, ...args], { place, fleet: fleetOptions(fleet) });
    const holder = serve(new MemoryFleet(table, "holder"), "--attach", "off");
    await holder.result("append", { entries: entriesOf("one") });
    const { sessionId } = await holder.result("get_state");
    const before = isBehind ? readFileSync(file) : undefined;
    const attached = framed(
      JSON.stringify({ attached: { epoch: 1, client: "x", pid: 1 }, leafId: "one", lastId: "one" }),
    );
    let heard = "";
    let stream: Duplex | undefined;
    const entrance = attachmentsWith().open(file, (next) => {
      stream = next;
      next.write(attached);
      next.on("data", (bytes) => {
        heard += bytes;
      });
    });
    const fleet = new MemoryFleet(table, "guest");
    const guest = serve(fleet);
    asks(guest);
    const calls = (): string[] => heard.match(/\{"call".*?\}(?=Content-Length|$)/g) ?? [];
    while (calls().length < count) await turn();
    for (const text of calls()) await holder.result("append", JSON.parse(text).params);
    entrance?.close();
    await holder.finish();
    table.leave();
    if (before) writeFileSync(file, before);
    fleet.faultAt = () => "before";
    stream?.destroy();
    const ids = () => table.linesOf(sessionId).map((line) => JSON.parse(line).id);
    return { guest, fleet, ids };
  }

  test.each([
    ["jsonl", "the copy has", false],
    ["v2", "the copy has", false],
    ["jsonl", "the copy lacks", true],
  ])("is unknown while the fleet is away (%s, %s what it did)", async (store, _, isBehind) => {
    const asks = (guest: HereServer): void =>
      guest.send(
        request(1, "append", { entries: entriesOf("plain") }),
        request(2, "append", keyed("k")),
        request(3, "append", { entries: entriesOf("last") }),
      );
    const { guest, fleet, ids } = await left(store, asks, 3, isBehind);
    for (const n of [1, 2, 3]) expect((await guest.reply(n)).error?.data).toEqual(unknown);
    fleet.faultAt = () => undefined;
    expect((await guest.result("append", keyed("k"))).entryIds).toEqual(["k"]);
    expect(ids()).toEqual(["one", "plain", "k", "last"]);
  });
});
