/**
 * The figures of a fleet: what is printed is what Prometheus reads, is about all tenants, and leaves out what a role may
 * not see. The status tells the same of sizes.
 *
 * @module-tag system
 */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connectFleet } from "../../../src/storage/fleet/connect.ts";
import { user } from "../../support/drafts.ts";
import { taken } from "../../support/fleet-commits.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL, Postgres } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import type { Place } from "../../support/server.ts";
import { batchOf, fleetSuite, LOST, meddle } from "../../support/sql-machines.ts";
import { runHere } from "../../support/verbs.ts";

/** A tenant with every character that a label's value has to escape. */
const HOSTILE = 'a"b\n\\n';
const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;
const SAMPLE =
  /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"\})? (-?\d+(?:\.\d+)?(?:e[+-]\d+)?)$/;

/** Reads the text format as its description says. Returns the values by name and label. Throws what breaks a rule. */
function figuresIn(text: string): Map<string, Map<string, number>> {
  const figures = new Map<string, Map<string, number>>();
  const helped = new Set<string>();
  const typed = new Set<string>();
  expect(text.endsWith("\n")).toBe(true);
  for (const line of text.slice(0, -1).split("\n")) {
    const [, kind, about, rest] = /^# (HELP|TYPE) (\S+) (.+)$/.exec(line) ?? [];
    if (kind !== undefined) {
      expect(about).toMatch(NAME);
      const known = kind === "HELP" ? helped : typed;
      expect([line, known.has(about), figures.has(about)]).toEqual([line, false, false]);
      if (kind === "TYPE") expect([line, rest]).toEqual([line, "gauge"]);
      known.add(about);
      continue;
    }
    const found = SAMPLE.exec(line);
    if (!found) throw new Error(`no sample: ${line}`);
    const [, name, , value = "", number] = found;
    expect([line, helped.has(name), typed.has(name)]).toEqual([line, true, true]);
    // All figures of a name are together.
    expect([line, [...figures.keys()].indexOf(name)]).toEqual([line, figures.has(name) ? figures.size - 1 : -1]);
    const label = value.replace(/\\(.)/g, (_, one: string) => (one === "n" ? "\n" : one));
    const known = figures.get(name) ?? new Map();
    expect([line, known.has(label)]).toEqual([line, false]);
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
    await third.keeper.keep("three", (await taken(third, "three")).epoch, { as: "deleted" });
    suite.sql("insert into pi_fleet.behind (tenant, session_id, until) values ('alice', 'three', now())");
    suite.sql("update pi_fleet.session set lease_until = now() where id = 'one'");
    for (const url of [suite.url, urlOf("alice")]) {
      const found = await figures(url);
      const of = (name: string): unknown => Object.fromEntries(found.get(`pi_fleet_${name}`) ?? []);
      expect(of("up")).toEqual({ "": 1 });
      expect(of("sessions")).toEqual({ "": 1, [HOSTILE]: 1, alice: 0 });
      expect(of("entries")).toEqual({ "": 1, [HOSTILE]: 2, alice: 0 });
      expect(of("line_bytes")).toEqual({ "": 4, [HOSTILE]: 8, alice: 0 });
      expect(of("held_sessions")).toEqual({ "": 0, [HOSTILE]: 1, alice: 0 });
      expect(of("deleted_sessions")).toEqual({ "": 0, [HOSTILE]: 0, alice: 1 });
      expect(of("behind_sessions")).toEqual({ "": 0, [HOSTILE]: 0, alice: 1 });
      const leases = of("oldest_lease_seconds");
      expect(leases).toMatchObject({ "": 0, alice: 0 });
      expect((leases as Record<string, number>)[HOSTILE]).toBeGreaterThan(0);
      expect((leases as Record<string, number>)[HOSTILE]).toBeLessThan(30);
      expect(of("replicated")).toEqual({ "": 0 });
      expect(of("standbys")).toEqual({ "": 0 });
      expect(found.get("pi_fleet_connections")?.get("")).toBeGreaterThan(0);
      expect(of("connections_limit")).toEqual({ "": Number(suite.sql("show max_connections")) });
      const sizes = found.get("pi_fleet_table_bytes") ?? new Map();
      const tables = suite.sql("select tablename from pg_tables where schemaname = 'pi_fleet' order by 1").split("\n");
      expect([...sizes.keys()]).toEqual(tables);
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
    for (const [n, sessionId] of ["a", "b"].entries()) {
      const note = {
        sessionId,
        sessionPath: `/nowhere/${sessionId}`,
        since,
        from: n === 0 ? from : null,
        conflicts: [],
      };
      writeFileSync(join(state, "fleet-journal", `${String(n).repeat(32)}.json`), JSON.stringify(note));
    }
    writeFileSync(join(state, "fleet-journal", `${"2".repeat(32)}.json`), "torn");
    const kept = ['{"type":"session","id":"a","version":3}', '{"type":"custom","id":"x","parentId":null}', ""];
    writeFileSync(join(state, "quarantine", "a.refused.bin"), kept.join("\n"));
    const variables = { PI_FLEET_URL: "postgres:///none?host=/nowhere&user=none" };
    const away = await runHere(place, ["fleet", "metrics"], { variables, now: Date.parse(since) + 7_200_000 });
    expect([away.status, away.stderr]).toEqual([1, expect.stringContaining("cannot be used")]);
    const there = await figures(suite.url, place);
    for (const [found, up] of [
      [figuresIn(away.stdout), 0],
      [there, 1],
    ] as const) {
      const of = (name: string): unknown => found.get(`pi_fleet_${name}`)?.get("");
      expect([of("up"), of("local_sessions"), of("local_unreadable_notes"), of("local_kept_files")]).toEqual([
        up,
        1,
        1,
        1,
      ]);
    }
    expect(figuresIn(away.stdout).get("pi_fleet_local_oldest_seconds")?.get("")).toBe(7200);
    const { metrics, away: reason } = await suite.told("metrics", place);
    expect([metrics[0].samples, reason]).toEqual([[{ labels: {}, value: 1 }], null]);
  });

  test("of sizes are in the status: of all tenants, or of the one that the URL names", async () => {
    await begin("", "one", "text");
    await begin(HOSTILE, "two", "text", "more");
    await begin("alice", "three", "x".repeat(100));
    const { tenants, largest, storedBytes } = await suite.told("status");
    const [one, two] = [
      { entries: 1, bytes: 4 },
      { entries: 2, bytes: 8 },
    ];
    const three = { entries: 1, bytes: 100 };
    const sizes = [
      { tenant: "alice", sessions: 1, ...three },
      { tenant: HOSTILE, sessions: 1, ...two },
      { tenant: "", sessions: 1, ...one },
    ];
    expect(tenants).toEqual(sizes);
    expect(largest).toEqual([
      { tenant: "alice", sessionId: "three", ...three },
      { tenant: HOSTILE, sessionId: "two", ...two },
      { tenant: "", sessionId: "one", ...one },
    ]);
    const all =
      "select sum(pg_total_relation_size(oid)) from pg_class where relkind = 'r' and relnamespace = 'pi_fleet'::regnamespace";
    expect(storedBytes).toBe(Number(suite.sql(all)));
    expect(await suite.told("status", undefined, urlOf("alice"))).toMatchObject({
      tenants: [sizes[0]],
      largest: [{ sessionId: "three" }],
    });
    const { stdout } = await suite.verb("status");
    expect(stdout).toContain("  three: 1 entry, 100 B, of the tenant alice\n  two: ");
    expect(stdout).toContain('Tenant a"b\\u000a\\n: 1 session with 2 entries, 8 B\n');
  });

  test("of one server are in its health", async () => {
    const machine = await suite.machine();
    const health = async () => (await machine.wire.result("get_health")).fleet;
    expect(await health()).toMatchObject({ commits: 0, unknown: 0, refusals: 0, takings: 0, waits: 0 });
    await machine.wire.result("append", { entries: [user("one")] });
    expect(await health()).toMatchObject({ commits: 1, unknown: 0, refusals: 0, takings: 1 });
    let isLost = false;
    const undo = meddle(machine.fleet, async (text, ask) => {
      if (isLost || !text.includes("with held as")) return undefined;
      isLost = true;
      await ask();
      return LOST;
    });
    await machine.wire.request("append", { entries: [user("two")] });
    undo();
    expect(await health()).toMatchObject({ commits: 1, unknown: 1, takings: 1 });
    await machine.wire.result("append", { entries: [user("three")] });
    expect(await health()).toMatchObject({ commits: 2, unknown: 1, refusals: 0, takings: 2 });
    suite.endLeases();
    await taken(suite.open("another"), (await machine.wire.result("get_state")).sessionId);
    expect((await machine.wire.failure("append", { entries: [user("four")] })).data.name).toBe("session_locked");
    expect(await health()).toMatchObject({ commits: 2, unknown: 1, refusals: 1, takings: 2 });
  });
});

test("a wait for a database that is away is counted", async () => {
  const place = { client: "one", processId: "one", since: "2026-01-24T16:22:26.831Z", readFile: () => "" };
  const { fleet, patience, elapsed } = connectFleet("postgres:///none?host=/nowhere&user=none", place, false);
  expect([await patience(0, elapsed()), await patience(9, elapsed() - 60_000)]).toEqual([true, false]);
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
      expect(
        ["standbys", "synchronous_standbys", "replicated"].map((name) => seen.get(`pi_fleet_${name}`)?.get("")),
      ).toEqual([1, 1, 1]);
      expect([...(seen.get("pi_fleet_standby_lag_bytes")?.values() ?? [])]).toEqual([expect.any(Number)]);
      const watched = async () => figuresIn((await verb("metrics", "watcher")).stdout);
      const before = await watched();
      expect([...before.keys()].join(" ")).not.toMatch(/standby/);
      // What commits wait for is no secret.
      expect(before.get("pi_fleet_replicated")?.get("")).toBe(1);
      primary.sql("grant pg_monitor to watcher");
      expect([...(await watched()).keys()].join(" ")).toMatch(/synchronous_standbys pi_fleet_standby_lag_bytes/);
    } finally {
      for (const server of servers) await server.close();
    }
  });
});
