/**
 * Tenants of a fleet: the lists, searches, sums, attachments and verbs of one have nothing of another's sessions.
 *
 * @module-tag system
 */

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { SCHEMA_VERSION } from "../../../src/modules/fleet/postgres/schema.ts";
import { readFleetStatus } from "../../../src/modules/fleet/postgres/status.ts";
import { sha256 as digestOf } from "../../../src/storage/v2/frame.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import type { Json } from "../../support/server.ts";
import { SWEEP } from "../../support/tiers.ts";
import { taken } from "./support/commits.ts";
import type { SqlFleet } from "./support/sql-fleet.ts";
import { batchOf, fleetSuite, linesOf } from "./support/sql-machines.ts";

describe("tenants", needs(POSTGRESQL), () => {
  const suite = fleetSuite();
  const urlOf = (tenant: string): string => `${suite.url}${tenant && `&tenant=${tenant}`}`;
  const fleetOf = (tenant: string): SqlFleet => suite.open(`server of ${tenant}`, { url: urlOf(tenant) });
  const begun = async (one: SqlFleet, id: string, text: string): Promise<void> => {
    const { epoch, end } = await taken(one, id);
    expect(await one.fleet.append(batchOf(id, epoch, end, [text]))).toMatchObject({ kind: "committed" });
  };

  test("list, find, sum and open their own sessions alone", async () => {
    const machine = (tenant: string) => suite.machine({ fleet: fleetOf(tenant) });
    const all = await Promise.all(["", "alice", "bob"].map(machine));
    const made: Json[] = [];
    for (const [n, one] of all.entries()) made.push(await suite.make(one, ["xylophone", "xylem", "common"][n]));
    for (const [n, { wire }] of all.entries()) {
      const { sessionId } = made[n];
      const own = (found: Json[]): boolean[] => found.map((one) => one.sessionId === sessionId);
      expect(own((await wire.result("list_sessions")).sessions)).toEqual([true]);
      expect(own((await wire.result("search_sessions", { query: "xyl" })).hits)).toEqual(
        [[true, true], [true, true], []][n],
      );
      expect(own((await wire.result("get_usage", { groupBy: ["session"] })).rows)).toEqual([true]);
      for (const other of made.filter((one) => one.sessionId !== sessionId))
        expect((await wire.failure("switch_session", { sessionId: other.sessionId })).data.name).toBe(
          "session_not_found",
        );
    }
  });

  test("are refused the copies of each other in one home", async () => {
    const { place } = new HereLives({});
    const [alice, bob] = await Promise.all(
      ["alice", "bob"].map((tenant) => suite.machine({ fleet: { ...fleetOf(tenant), shown: urlOf(tenant) }, place })),
    );
    const { sessionId, sessionFile } = await suite.make(alice, "xylophone");
    const before = readFileSync(sessionFile, "utf8");
    const { wire } = bob;
    for (const here of [true, false])
      expect((await wire.result("list_sessions", here ? { here } : {})).sessions).toEqual([]);
    expect((await wire.result("search_sessions", { query: "xylophone" })).hits).toEqual([]);
    expect((await wire.result("get_usage", { groupBy: ["session"] })).rows).toEqual([]);
    for (const id of [sessionId, sessionId.slice(0, -1)])
      expect((await wire.failure("switch_session", { sessionId: id })).data.name).toBe("session_not_found");
    for (const method of ["switch_session", "delete_session"]) {
      const { data, message } = await wire.failure(method, { sessionPath: sessionFile });
      expect([data.name, message]).toEqual(["storage_failed", expect.stringContaining("tenant alice")]);
    }
    expect((await suite.runVerb("push", place, urlOf("bob"))).sessions).toEqual([]);
    expect(readFileSync(sessionFile, "utf8")).toBe(before);
    expect(suite.sql(`select count(*) from pi_fleet.session where tenant = 'bob' and id = '${sessionId}'`)).toBe("0");
    await suite.write(alice, sessionId, "more");
    expect((await alice.wire.result("list_sessions")).sessions).toMatchObject([{ sessionId }]);
  });

  test("may have the same id, and change nothing of each other", async () => {
    const [alice, bob] = ["alice", "bob"].map(fleetOf);
    await begun(alice, "same", "xylophone");
    const row = (): string =>
      suite.sql("select generation, entries, epoch, holder, state from pi_fleet.session where tenant = 'alice'");
    const before = row();
    expect(await bob.fleet.look("same")).toBeNull();
    await begun(bob, "same", "mine");
    expect([await linesOf(bob, "same", 0, 1), await linesOf(alice, "same", 0, 1)]).toEqual([["mine"], ["xylophone"]]);
    expect(await readFleetStatus(bob.connections, "bob", SCHEMA_VERSION)).toMatchObject({
      sessions: 1,
      entries: 1,
      held: 1,
      tenant: "bob",
    });
    expect(await bob.adminQueries.takeAway("same")).toMatchObject({ client: "server of bob" });
    expect(await bob.adminQueries.keep("same", (await taken(bob, "same")).epoch, { as: "gone" })).toBe(true);
    await expect(bob.adminQueries.takeAway("same")).rejects.toMatchObject({ name: "session_not_found" });
    expect(row()).toBe(before);
  });

  test("have no attachments of each other, also of the same content", async () => {
    const [alice, bob] = ["alice", "bob"].map(fleetOf);
    const picture = Buffer.from("a picture");
    const sha256 = digestOf(picture);
    for (const one of [alice, bob]) await begun(one, "same", "text");
    await alice.fleet.attach("same", [{ sha256, read: () => picture }]);
    expect([await bob.fleet.attachments("same"), await bob.fleet.attachment(sha256)]).toEqual([[], null]);
    await bob.fleet.attach("same", [{ sha256, read: () => picture }]);
    suite.sql("update pi_fleet.blob_part set bytes = 'another' where tenant = 'bob'");
    expect(await alice.fleet.attachment(sha256)).toEqual(picture);
  });

  // With words after it, and whether it also names a tenant to people.
  for (const [word, operand, isQuiet, tier] of [
    ["verify", "", false, {}],
    ["status", "", false, {}],
    ["take", "id", true, {}],
    ["export", "folder", false, SWEEP],
    ["migrate", "", false, SWEEP],
    ["prune", "", true, SWEEP],
    ["import", "folder", true, SWEEP],
    ["push", "", true, SWEEP],
  ] as const)
    test.each([
      ["alice", "Of the tenant alice:"],
      ["", "those of tenants are not among them"],
    ])(`are told whose sessions it is about (fleet ${word}, tenant "%s")`, tier, async (tenant, sentence) => {
      const { place } = new HereLives({});
      await begun(fleetOf(tenant), "an-id-of-one", "text");
      const words = [word, ...(operand === "" ? [] : [operand === "id" ? "an-id-of-one" : place.home])].join(" ");
      if (tenant !== "" || !isQuiet) expect((await suite.verb(words, place, urlOf(tenant))).stdout).toContain(sentence);
      expect(await suite.runVerb(words, place, urlOf(tenant))).toMatchObject({ tenant });
    });
});
