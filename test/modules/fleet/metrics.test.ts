/**
 * The figures of a fleet: Prometheus can read the output, which is about all tenants, and leaves out figures that a role
 * may not see. The status has the same sizes.
 *
 * @module-tag system
 */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connectFleet } from "../../../src/modules/fleet/connect.ts";
import { user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL, Postgres } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import type { Place } from "../../support/server.ts";
import { runHere } from "../../support/verbs.ts";
import { taken } from "./support/commits.ts";
import { batchOf, fleetSuite, LOST, meddle } from "./support/sql-machines.ts";

/** A tenant with every character that a label's value has to escape. */
const HOSTILE = 'a"b\n\\n';
const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;
const SAMPLE =
  /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"\})? (-?\d+(?:\.\d+)?(?:e[+-]\d+)?)$/;

/** Reads the text format as its description says. Returns the values by name and label. Fails where it breaks a rule. */
function figuresIn(text: string): Map<string, Map<string, number>> {
  const figures = new Map<string, Map<string, number>>();
  const comments = { HELP: new Set<string>(), TYPE: new Set<string>() };
  expect(text.endsWith("\n")).toBe(true);
  for (const line of text.slice(0, -1).split("\n")) {
    const [, kind, about, rest] = /^# (HELP|TYPE) (\S+) (.+)$/.exec(line) ?? [];
    if (kind !== undefined) {
      const known = comments[kind as keyof typeof comments];
      const isNew = NAME.test(about) && !known.has(about) && !figures.has(about);
      expect([line, isNew, kind === "HELP" || rest === "gauge"]).toEqual([line, true, true]);
      known.add(about);
      continue;
    }
    const [, name, , value = "", number] = SAMPLE.exec(line) ?? [];
    // All figures of a name are together.
    const isNext = !figures.has(name) || [...figures.keys()].at(-1) === name;
    const label = value.replace(/\\(.)/g, (_, one: string) => (one === "n" ? "\n" : one));
    const known = figures.get(name) ?? new Map();
    const isKnown = [comments.HELP.has(name), comments.TYPE.has(name), isNext, known.has(label)];
    expect([line, ...isKnown]).toEqual([line, true, true, true, false]);
    figures.set(name, known.set(label, Number(number)));
  }
  return figures;
}

describe("figures", needs(POSTGRESQL), () => {
  const suite = fleetSuite();
  const watcher = `watcher_${process.pid}`;
  const urlOf = (tenant: string): string => `${suite.url}${tenant && `&tenant=${encodeURIComponent(tenant)}`}`;
  const begin = async (tenant: string, id: string, ...texts: string[]) => {
    const one = suite.open(`server of ${id}`, { url: urlOf(tenant) });
    const { epoch, end } = await taken(one, id);
    await one.fleet.append(batchOf(id, epoch, end, texts));
    return one;
  };
  const figures = async (url = suite.url, place?: Place) => {
    const { status, stdout, stderr } = await suite.verb("metrics", place, url);
    expect([stderr, status]).toEqual(["", 0]);
    return figuresIn(stdout);
  };

  beforeAll(() => {
    suite.sql(`create role ${watcher} login`);
    suite.sql(`grant usage on schema pi_fleet to ${watcher}`);
    suite.sql(`grant select on pi_fleet.meta, pi_fleet.session, pi_fleet.behind to ${watcher}`);
  });
  afterAll(() => {
    suite.sql(`drop owned by ${watcher}; drop role ${watcher}`);
  });

  test("are those of all tenants, whichever the URL names, whatever the names have", async () => {
    await begin("", "one", "text");
    await begin(HOSTILE, "two", "text", "more");
    const third = await begin("alice", "three", "text");
    await third.adminQueries.keep("three", (await taken(third, "three")).epoch, { as: "deleted" });
    suite.sql("insert into pi_fleet.behind (tenant, session_id, until) values ('alice', 'three', now())");
    suite.sql("update pi_fleet.session set lease_until = now() where id = 'one'");
    const tenants: Readonly<Record<string, readonly [none: number, hostile: number, alice: number]>> = {
      ...{ sessions: [1, 1, 0], entries: [1, 2, 0], line_bytes: [4, 8, 0], held_sessions: [0, 1, 0] },
      ...{ deleted_sessions: [0, 0, 1], behind_sessions: [0, 0, 1] },
    };
    for (const url of [suite.url, urlOf("alice")]) {
      const found = await figures(url);
      const of = (name: string) => found.get(`pi_fleet_${name}`) ?? new Map<string, number>();
      for (const [name, [none, hostile, alice]] of Object.entries(tenants))
        expect([name, Object.fromEntries(of(name))]).toEqual([name, { "": none, [HOSTILE]: hostile, alice }]);
      const lease = of("oldest_lease_seconds");
      expect([lease.get(""), lease.get("alice")]).toEqual([0, 0]);
      expect(lease.get(HOSTILE)).toBeGreaterThan(0);
      expect(lease.get(HOSTILE)).toBeLessThan(30);
      const one = ["up", "replicated", "standbys", "connections_limit"].map((name) => of(name).get(""));
      expect(one).toEqual([1, 0, 0, Number(suite.sql("show max_connections"))]);
      expect(of("connections").get("")).toBeGreaterThan(0);
      const tables = suite.column("select tablename from pg_tables where schemaname = 'pi_fleet' order by 1");
      expect([...of("table_bytes").keys()]).toEqual(tables);
    }
  });

  test("leave out what a role may not see, and have the rest", async () => {
    await begin("", "one", "text");
    const url = suite.url.replace(/user=\w+/, `user=${watcher}`);
    const names = async (): Promise<string[]> => [...(await figures(url)).keys()].map((name) => name.slice(9));
    const all = await names();
    expect(all).toEqual(expect.arrayContaining(["sessions", "connections", "standbys", "table_bytes"]));
    const views = "pg_catalog.pg_stat_replication, pg_catalog.pg_stat_activity";
    suite.sql(`revoke select on ${views} from public`);
    try {
      const hidden = ["connections", "connections_limit", "standbys", "synchronous_standbys"];
      expect(await names()).toEqual(all.filter((name) => !hidden.includes(name)));
      suite.sql(`revoke select on pi_fleet.behind from ${watcher}`);
      expect(await names()).not.toContain("sessions");
    } finally {
      suite.sql(`grant select on ${views} to public; grant select on pi_fleet.behind to ${watcher}`);
    }
  });

  test("of this machine are there while the database is away, which is said", async () => {
    const { place } = new HereLives({});
    const state = String(place.variables.PI_SESSION_SERVER_STATE_DIR);
    for (const folder of ["fleet-journal", "quarantine"]) mkdirSync(join(state, folder), { recursive: true });
    const from = { entries: 0, bytes: 0, chain: "00" };
    const since = new Date(Date.now() - 3_600_000).toISOString();
    const noteOf = (sessionId: string, pending: object | null): string =>
      JSON.stringify({ sessionId, sessionPath: `/nowhere/${sessionId}`, since, from: pending, conflicts: [] });
    for (const [n, note] of [noteOf("a", from), noteOf("b", null), "torn"].entries())
      writeFileSync(join(state, "fleet-journal", `${String(n).repeat(32)}.json`), note);
    const kept = ['{"type":"session","id":"a","version":3}', '{"type":"custom","id":"x","parentId":null}', ""];
    writeFileSync(join(state, "quarantine", "a.refused.bin"), kept.join("\n"));
    const variables = { PI_FLEET_URL: "postgres:///none?host=/nowhere&user=none" };
    const away = await runHere(place, ["fleet", "metrics"], { variables, now: Date.parse(since) + 7_200_000 });
    expect([away.status, away.stderr]).toEqual([1, expect.stringContaining("cannot be used")]);
    const there = await figures(suite.url, place);
    for (const [found, up] of [[figuresIn(away.stdout), 0] as const, [there, 1] as const]) {
      const names = ["up", "local_sessions", "local_unreadable_notes", "local_kept_files"];
      expect(names.map((name) => found.get(`pi_fleet_${name}`)?.get(""))).toEqual([up, 1, 1, 1]);
    }
    expect(figuresIn(away.stdout).get("pi_fleet_local_oldest_seconds")?.get("")).toBe(7200);
    const { metrics, away: reason } = await suite.runVerb("metrics", place);
    expect([metrics[0].samples, reason]).toEqual([[{ labels: {}, value: 1 }], null]);
  });

  test("of sizes are in the status: of all tenants, or of the one that the URL names", async () => {
    await begin("", "one", "text");
    await begin(HOSTILE, "two", "text", "more");
    await begin("alice", "three", "x".repeat(100));
    const { tenants, largest, storedBytes } = await suite.runVerb("status");
    const sizes = [
      ["alice", "three", { entries: 1, bytes: 100 }],
      [HOSTILE, "two", { entries: 2, bytes: 8 }],
      ["", "one", { entries: 1, bytes: 4 }],
    ] as const;
    expect(tenants).toEqual(sizes.map(([tenant, , size]) => ({ tenant, sessions: 1, ...size })));
    expect(largest).toEqual(sizes.map(([tenant, sessionId, size]) => ({ tenant, sessionId, ...size })));
    const all =
      "select sum(pg_total_relation_size(oid)) from pg_class where relkind = 'r' and relnamespace = 'pi_fleet'::regnamespace";
    expect(storedBytes).toBe(Number(suite.sql(all)));
    const ofAlice = await suite.runVerb("status", undefined, urlOf("alice"));
    expect(ofAlice).toMatchObject({ tenants: [{ tenant: "alice", bytes: 100 }], largest: [{ sessionId: "three" }] });
    const { stdout } = await suite.verb("status");
    expect(stdout).toContain("  three: 1 entry, 100 B, of the tenant alice\n  two: ");
    expect(stdout).toContain('Tenant a"b\\u000a\\n: 1 session with 2 entries, 8 B\n');
  });

  test("of one server are in its health", async () => {
    const machine = await suite.machine();
    const append = (text: string) => machine.wire.request("append", { entries: [user(text)] });
    const expectHealth = async (commits: number, unknown: number, refusals: number, takings: number) =>
      expect((await machine.wire.result("get_health")).fleet).toMatchObject({ commits, unknown, refusals, takings });
    await expectHealth(0, 0, 0, 0);
    await append("one");
    await expectHealth(1, 0, 0, 1);
    let isLost = false;
    const undo = meddle(machine.fleet, async (text, ask) => {
      if (isLost || !text.includes("with held as")) return undefined;
      isLost = true;
      await ask();
      return LOST;
    });
    await append("two");
    undo();
    await expectHealth(1, 1, 0, 1);
    await append("three");
    await expectHealth(2, 1, 0, 2);
    suite.endLeases();
    await taken(suite.open("another"), (await machine.wire.result("get_state")).sessionId);
    expect((await append("four")).error.data.name).toBe("session_locked");
    await expectHealth(2, 1, 1, 2);
  });
});

test("a wait for a database that is away is counted", async () => {
  const place = { client: "one", processId: "one", since: "2026-01-24T16:22:26.831Z", readFile: () => "" };
  const { fleet, patience, elapsed } = connectFleet("postgres:///none?host=/nowhere&user=none", place, false);
  expect([await patience(0, elapsed(), false), await patience(9, elapsed() - 60_000, false)]).toEqual([true, false]);
  expect(fleet.tally).toMatchObject({ waits: 1 });
});

describe("figures of replication", needs(POSTGRESQL), () => {
  test("are there for a role that may see standbys, and for no other", async () => {
    const servers = [new Postgres(), new Postgres()];
    const [primary, standby] = servers;
    try {
      await primary.start();
      const { place } = new HereLives({});
      const verb = async (word: string, role: string) => {
        const variables = { PI_FLEET_URL: primary.url.replace("user=fleet", `user=${role}`) };
        return runHere(place, ["fleet", word], { variables });
      };
      expect((await verb("migrate", "fleet")).status).toBe(0);
      primary.sql(
        "create role watcher login; grant usage on schema pi_fleet to watcher; grant select on pi_fleet.meta to watcher",
      );
      await standby.follow(primary, primary.folder);
      await standby.start();
      primary.configure("set synchronous_standby_names = '*'");
      await expect
        .poll(() => primary.sql("select count(*) from pg_stat_replication where sync_state = 'sync'"))
        .toBe("1");
      const seen = figuresIn((await verb("metrics", "fleet")).stdout);
      const names = ["standbys", "synchronous_standbys", "replicated"];
      expect(names.map((name) => seen.get(`pi_fleet_${name}`)?.get(""))).toEqual([1, 1, 1]);
      expect([...(seen.get("pi_fleet_standby_lag_bytes")?.values() ?? [])]).toEqual([expect.any(Number)]);
      const watched = async () => figuresIn((await verb("metrics", "watcher")).stdout);
      const before = await watched();
      expect([...before.keys()].join(" ")).not.toMatch(/standby/);
      // The durability of commits is no secret.
      expect(before.get("pi_fleet_replicated")?.get("")).toBe(1);
      primary.sql("grant pg_monitor to watcher");
      expect([...(await watched()).keys()].join(" ")).toMatch(/synchronous_standbys pi_fleet_standby_lag_bytes/);
    } finally {
      for (const server of servers) await server.close();
    }
  });
});
