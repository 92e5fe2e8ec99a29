/**
 * Requests that a host repeats under their keys, on any machine: each is in the session once, whatever was lost, restored
 * and pending in between.
 */

import { rmSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { user } from "../../support/drafts.ts";
import type { Json } from "../../support/server.ts";
import { entriesOf, FleetServer } from "./support/server.ts";
import { FleetTable } from "./support/table-fleet.ts";

const request = (key: string, id: string): Json => ({ entries: [user(key, { id })], idempotencyKey: key });

/** Lets a machine find out what became of its session, without a write. */
const giveAll = (one: FleetServer): Promise<void> =>
  one.until(one.isGiven, () => one.refused("append", { entries: entriesOf("no"), expectedLeafId: "other" }));

describe.each(["jsonl", "v2"])("a request that a machine has pending (%s)", (store) => {
  const args = ["--store", store];

  /** A machine that has four entries from another, and one pending; the database is back at the first of them. */
  async function restored() {
    const table = Object.assign(new FleetTable(), { past: [] as FleetTable["past"] });
    const first = await new FleetServer(args, { table }).start();
    const sessionId = await first.begin();
    const backup = table.past?.length ?? 0;
    await first.append("two", "three");
    await first.end();
    const one = await new FleetServer(args, { table, isJournaled: true, leasesEnd: true }).start();
    await one.result("switch_session", { sessionId });
    await one.append("four");
    one.loses();
    expect(await one.result("append", request("k", "mine"))).toMatchObject({ durability: "local" });
    table.promote((table.past?.length ?? 0) - backup);
    table.leave();
    expect(one.inFleet(sessionId)).toEqual(["one"]);
    return { table, one, sessionId };
  }

  /** Has another machine repeat the request, and write. */
  async function repeatElsewhere(table: FleetTable, sessionId: string): Promise<void> {
    const two = await new FleetServer(args, { table, leasesEnd: true }).start();
    await two.result("switch_session", { sessionId });
    await two.result("append", request("k", "theirs"));
    await two.append("more");
    await two.end();
  }

  const messages = (table: FleetTable, sessionId: string): string[] =>
    table.linesOf(sessionId).flatMap((text) => {
      const { type, message } = JSON.parse(text);
      return type === "message" ? [message.content] : [];
    });

  test("is there once where the host repeated it elsewhere after an older state of the database was restored", async () => {
    const { table, one, sessionId } = await restored();
    await repeatElsewhere(table, sessionId);
    one.heals();
    await giveAll(one);
    expect(messages(table, sessionId)).toEqual(["one", "k", "more", "two", "three", "four"]);
    expect((await one.result("append", request("k", "again"))).entryIds).toEqual(["theirs"]);
  });

  test("is there once, too, where the copy was lost meanwhile", async () => {
    const { table, one, sessionId } = await restored();
    const { sessionFile } = await one.state();
    await repeatElsewhere(table, sessionId);
    await one.end();
    rmSync(sessionFile, { recursive: true });
    one.heals();
    await one.start("--session-id", sessionId);
    await giveAll(one);
    expect(messages(table, sessionId)).toEqual(["one", "k", "more"]);
    expect((await one.result("append", request("k", "again"))).entryIds).toEqual(["theirs"]);
  });
});
