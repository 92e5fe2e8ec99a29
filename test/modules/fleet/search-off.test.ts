/**
 * A fleet that gets no words (`--fleet-search off`): lists and sums are complete, and searches find sessions on the
 * machine with their files. Searches elsewhere report the missing ones, until a migration with search on gathers their words.
 *
 * @module-tag system
 */

import { describe, expect, test } from "vitest";
import { connectFleet } from "../../../src/modules/fleet/connect.ts";
import { AddressError } from "../../../src/storage/fleet-module.ts";
import { assistant, user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import { type Json, temporaryPlace, type Wire } from "../../support/server.ts";
import { runHere } from "../../support/verbs.ts";
import { fleetSuite } from "./support/sql-machines.ts";

describe("without words in the fleet", needs(POSTGRESQL), () => {
  const suite = fleetSuite();
  const search = async ({ wire }: { wire: Wire }, query = "zebra") => {
    const { hits, limited } = await wire.result("search_sessions", { query });
    return [hits.length, limited];
  };
  const kept = (): string =>
    suite.sql("select count(*), (select count(*) from pi_fleet.word) from pi_fleet.said where words <> ''");
  const migrated = async (search: string): Promise<Json> => {
    const variables = { PI_FLEET_URL: suite.url, PI_FLEET_SEARCH: search };
    return JSON.parse((await runHere(temporaryPlace(), ["fleet", "migrate", "--json"], { variables })).stdout);
  };
  const LACKING = expect.stringContaining("--fleet-search off");

  test("sessions are found here, not elsewhere, where that is said, and everywhere after a migration that says so", async () => {
    const one = await suite.machine({ fleet: { ...suite.open("one", { keepsWords: false }), long: 2000 } });
    await suite.make(one, "zebra");
    // A long one, whose facts follow its lines.
    const long = "stripes ".repeat(400);
    await one.wire.result("append", { entries: [user(`zebra ${long}`), assistant(`zebra ${long}`)] });
    await suite.until("select count(*) from pi_fleet.behind", "0");
    await suite.leave(one.wire, (await one.wire.result("get_state")).sessionId);
    const two = await suite.machine();
    await suite.make(two, "zebra in words");
    expect(kept()).not.toBe("0|0");
    expect(await search(one)).toEqual([6, undefined]);
    const three = await suite.machine();
    expect(await search(three)).toEqual([2, LACKING]);
    expect((await three.wire.result("list_sessions", {})).total).toBe(3);
    expect((await three.wire.result("get_usage", { groupBy: [] })).totals.messages).toBe(3);
    expect(await suite.runVerb("verify")).toMatchObject({ faults: [] });
    // A migration keeps what was chosen, also where it gathers everything else anew.
    expect(await migrated("off")).toMatchObject({ indexed: 0 });
    expect(await suite.runVerb("migrate")).toMatchObject({ indexed: 0 });
    suite.sql("update pi_fleet.session set indexed = 0");
    expect(await suite.runVerb("migrate")).toMatchObject({ indexed: 3 });
    expect(await search(three)).toEqual([2, LACKING]);
    expect(await suite.runVerb("verify")).toMatchObject({ faults: [] });
    expect(await migrated("on")).toMatchObject({ indexed: 2, inUse: [] });
    expect(await search(three)).toEqual([6, undefined]);
    expect((await three.wire.result("get_usage", { groupBy: [] })).totals.messages).toBe(3);
    expect(await migrated("on")).toMatchObject({ indexed: 0 });
  });

  test("what is written after a migration is missed again, and nothing is noted where nothing is said", async () => {
    const one = await suite.machine({ fleet: suite.open("four", { keepsWords: false }) });
    await one.wire.result("append", { entries: [{ type: "custom", customType: "note", data: {} }] });
    expect(suite.sql("select count(*) from pi_fleet.said")).toBe("0");
    await one.wire.result("append", { entries: [user("zebra"), assistant("one")] });
    await one.wire.result("append", { entries: [user("zebra"), assistant("two")] });
    // One row says it, however much is written.
    expect(suite.sql("select count(*), min(words::text) from pi_fleet.said")).toBe("1|");
    const { sessionId } = await one.wire.result("get_state");
    await suite.leave(one.wire, sessionId);
    await migrated("on");
    await suite.write(one, sessionId, "zebra again");
    const two = await suite.machine();
    expect(await search(two)).toEqual([2, LACKING]);
    // It goes with the session.
    await two.wire.result("delete_session", { sessionId, permanent: true });
    expect(await search(two)).toEqual([0, undefined]);
  });

  test.each([
    [["--fleet-search", "off"], undefined, "1|0"],
    [["--fleet-search", "on"], "off", "1|1"],
    [[], "off", "1|0"],
    [[], undefined, "1|1"],
    [[], "", "1|1"],
  ])("is what %j and PI_FLEET_SEARCH=%s mean", async (args, search, texts) => {
    const place = temporaryPlace();
    const variables = {
      ...place.variables,
      PI_FLEET_URL: suite.url,
      ...(search !== undefined && { PI_FLEET_SEARCH: search }),
    };
    const wire = await new HereLives({ place: { ...place, variables } }).start(args);
    await wire.result("append", { entries: [user("zebra")] });
    expect(suite.sql("select count(*), count(*) filter (where words <> '') from pi_fleet.said")).toBe(texts);
  });

  test("is on or off, and nothing else is taken for it", async () => {
    const variables = { PI_FLEET_URL: suite.url, PI_FLEET_SEARCH: "no" };
    const { stderr } = await runHere(new HereLives({}).place, ["fleet", "status"], { variables });
    expect(stderr).toMatch(/PI_FLEET_SEARCH.*on or off/);
    const place = { client: "test", processId: "1", since: "", readFile: () => "", search: "Off" };
    expect(() => connectFleet("postgres://db.example/a", place, false)).toThrow(AddressError);
  });
});
