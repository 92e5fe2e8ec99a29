/**
 * Tenants of a fleet: what a hostile one learns and changes of another's sessions, with SQL of its own.
 *
 * @module-tag system
 */

import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { FleetBatch, FleetEnd } from "../../../src/core/ports/fleet.ts";
import { addressOf } from "../../../src/storage/fleet/address.ts";
import { type DatabaseClient, loadDriver } from "../../../src/storage/fleet/driver.ts";
import { endAfter } from "../../../src/storage/fleet/ends.ts";
import { isolate, TENANTS } from "../../../src/storage/fleet/isolation.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL, Postgres } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import { type SqlFleet, sqlFleet } from "../../support/sql-fleet.ts";
import { SWEEP } from "../../support/tiers.ts";
import { runHere } from "../../support/verbs.ts";

const HEADER = Buffer.from('{"type":"session"}');
/** An id that both tenants have, before those that only the other one has, and one that nobody has. */
const [THEIRS, NOBODYS] = ["m-secret", "m-secrex"];
const TABLES = [
  "session",
  "entry",
  "pack",
  "behind",
  "described",
  "said",
  "word",
  "spent",
  "blob",
  "blob_part",
  "attached",
];
/** The digest of a content that only one of them has, and one that nobody has. */
const [SECRET, NONE] = ["3", "4"].map((digit) => digit.repeat(64));

describe("tenants", needs(POSTGRESQL), () => {
  let server: Postgres;
  let mallory: DatabaseClient;
  const notices: string[] = [];
  const open: SqlFleet[] = [];

  const urlOf = (role: string, tenant?: string): string =>
    `${server.url.replace("user=fleet", `user=${role}`)}${tenant === undefined ? "" : `&tenant=${tenant}`}`;
  const fleetOf = (role: string, tenant?: string): SqlFleet => {
    const fleet = sqlFleet(urlOf(role, tenant), `server of ${role}`, { lease: 3_600_000 });
    open.push(fleet);
    return fleet;
  };
  const batchOf = (sessionId: string, epoch: number, before: FleetEnd, text: string): FleetBatch => {
    const lines = [Buffer.from(text)];
    const description = { cwd: "/secret", name: "secret", firstMessage: text, parentSession: null, timestamp: null };
    const said = { position: before.entries, kind: "talk", nth: 0, role: "user", time: 7, marks: [] } as const;
    const spent = { quarter: 1, provider: "p", model: "m", isInherited: false, numbers: [1, 0, 0, 0, 0, 0, 0, 1] };
    const facts = {
      ...{ counts: { messages: 1, modified: 7, isPlain: true }, description },
      ...{ texts: [{ ...said, words: [text] }], spendings: [spent] },
    };
    const heads = [JSON.stringify([`${before.entries}`, null, "message", "user"])];
    return { sessionId, epoch, before, after: endAfter(before, lines), lines, heads, facts };
  };
  const begun = async ({ fleet }: SqlFleet, id: string, text: string): Promise<FleetBatch> => {
    const taking = await fleet.take(id, 0, HEADER);
    if (taking.kind !== "taken") throw new Error(`not taken: ${JSON.stringify(taking)}`);
    const batch = batchOf(id, taking.epoch, taking.end, text);
    expect(await fleet.append(batch)).toMatchObject({ kind: "committed" });
    return batch;
  };
  const textsOf = async ({ fleet }: SqlFleet, id: string): Promise<string[]> => {
    const texts: string[] = [];
    const count = (await fleet.look(id))?.end.entries ?? 0;
    for await (const lines of fleet.lines(id, 0, count))
      texts.push(...lines.map((line) => Buffer.from(line).toString()));
    return texts;
  };
  /** Returns the rows of the hostile tenant's SQL, or the state and text of its failure. */
  const rows = async (text: string, values: unknown[] = []): Promise<unknown> => {
    try {
      return (await mallory.query({ text, values })).rows;
    } catch (error) {
      const { code, message } = error as { code: string; message: string };
      return `${code} ${message}`;
    }
  };
  /** Returns all rows of the other tenant. */
  const untouched = (): string =>
    TABLES.map((table) => server.sql(`select t from pi_fleet.${table} t where tenant = 'alice' order by t::text`)).join(
      "\n",
    );

  let alice: SqlFleet;
  let before: string;

  beforeAll(async () => {
    // Leases that are renewed every ten seconds change rows by themselves.
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    server = new Postgres();
    await server.start();
    const owner = fleetOf("fleet");
    await owner.fleet.migrate();
    await begun(owner, "of-nobody-in-particular", "common");
    const named = fleetOf("fleet", "alice");
    for (let n = 0; n < 30; n++) await begun(named, `${THEIRS}-${n}`, `xylophone${n}`);
    await named.fleet.attach(`${THEIRS}-3`, [{ sha256: SECRET, read: () => Buffer.from("a picture") }]);
    // Whatever the server has gathered about values.
    server.sql(`analyze ${TABLES.map((table) => `pi_fleet.${table}`).join(", ")}`);
    await isolate(owner.connections);
    for (const role of ["alice", "mallory"]) server.sql(`create role ${role} login in role ${TENANTS}`);
    server.sql(`analyze ${TABLES.map((table) => `pi_fleet.${table}`).join(", ")}`);
    alice = fleetOf("alice", "alice");
    await begun(alice, THEIRS, "xylophone");
    before = untouched();
    const [config] = addressOf(urlOf("mallory"), () => "").servers;
    mallory = (await loadDriver())(config);
    mallory.on("notice", ({ message }) => notices.push(message ?? ""));
    await mallory.connect();
  });
  afterAll(async () => {
    vi.useRealTimers();
    await mallory?.end();
    await Promise.all(open.map(({ fleet }) => fleet.close()));
    await server.close();
  });

  test("work on their own sessions, of which two may have the same id", async () => {
    const own = fleetOf("mallory", "mallory");
    expect(await own.fleet.look(THEIRS)).toBeNull();
    await begun(own, THEIRS, "mine");
    expect(await textsOf(own, THEIRS)).toEqual(["mine"]);
    expect(await textsOf(alice, THEIRS)).toEqual(["xylophone"]);
    expect((await own.catalog.list({}, undefined, 10)).sessions.map(({ id }) => id)).toEqual([THEIRS]);
    expect((await alice.catalog.list({}, undefined, 100)).total).toBe(31);
    expect(await own.catalog.idsBeginning("m-", 10)).toEqual([THEIRS]);
    expect([...(await own.catalog.wordsWith(["xylo", "mine"])).values()]).toEqual([[], ["mine"]]);
    expect(await own.fleet.status()).toMatchObject({
      sessions: 1,
      entries: 1,
      held: 1,
      storedBytes: null,
      tenant: "mallory",
    });
    const taking = await own.fleet.take(THEIRS, 0);
    if (taking.kind !== "taken") throw new Error("not taken");
    expect(await own.keeper.keep(THEIRS, taking.epoch, { as: "gone" })).toBe(true);
    expect(untouched()).toBe(before);
  });

  test.each([
    ["alice", "names the tenant alice"],
    [undefined, "names no tenant"],
  ])("with the address of the tenant %s are told which is theirs", async (tenant, sentence) => {
    const wrong = fleetOf("mallory", tenant);
    const reason = expect.stringMatching(
      `the role mallory has to do with the tenant mallory alone.*${sentence}.*tenant=mallory`,
    );
    expect(await wrong.fleet.take(THEIRS, 0)).toEqual({ kind: "unfit", reason });
    await expect(wrong.fleet.look(THEIRS)).rejects.toMatchObject({
      ...{ name: "storage_failed", retryable: false, message: reason },
    });
    await expect(wrong.catalog.list({}, undefined, 10)).rejects.toMatchObject({ name: "storage_failed" });
  });

  test("read nothing of each other, by whatever query", async () => {
    for (const table of TABLES) {
      const own = table === "session" ? 1 : 0;
      expect(await rows(`select count(*)::int as n from pi_fleet.${table} where tenant = 'alice'`)).toEqual([{ n: 0 }]);
      const all = (await rows(`select tenant from pi_fleet.${table}`)) as { tenant: string }[];
      expect(all.length).toBeGreaterThanOrEqual(own);
      expect(all.filter(({ tenant }) => tenant !== "mallory")).toEqual([]);
    }
    // A function of theirs that tells what it is given.
    await rows(
      "create function pg_temp.tell(text) returns boolean language plpgsql cost 0.0000001 as 'begin raise notice ''told %'', $1; return true; end'",
    );
    await rows("select from pi_fleet.word where pg_temp.tell(word)");
    await rows("select from pi_fleet.session where pg_temp.tell(id) and tenant = 'alice'");
    expect(notices).toContain("told mine");
    expect(notices.filter((text) => text.includes("xylo") || text.includes(`${THEIRS}-`))).toEqual([]);
    expect(await rows("set row_security = off")).toEqual([]);
    expect(await rows("select from pi_fleet.session")).toMatch(/^42501/);
    await rows("reset row_security");
    expect(await rows("select 1 from pg_stats where schemaname = 'pi_fleet' and tablename <> 'meta'")).toEqual([]);
  });

  test("learn from no plan of a query, and no count in it, whether another has an id or a word", async () => {
    const planOf = async (query: string): Promise<string> => {
      const found = (await rows(`explain (analyze, timing off, summary off) ${query}`)) as object[];
      const text = found.map((row) => Object.values(row)[0]).join("\n");
      return text.replaceAll(THEIRS, NOBODYS).replaceAll(SECRET, NONE).replaceAll("xylophone3", "nobodyhas3");
    };
    const columns: readonly (readonly [string, string, string])[] = [
      ["session", "id", `${THEIRS}-3`],
      ["entry", "session_id", `${THEIRS}-3`],
      ["described", "session_id", `${THEIRS}-3`],
      ["said", "session_id", `${THEIRS}-3`],
      ["word", "word", "xylophone3"],
      ["blob", "sha256", SECRET],
      ["blob_part", "sha256", SECRET],
      ["attached", "session_id", `${THEIRS}-3`],
      ["attached", "sha256", SECRET],
    ];
    for (const setting of ["enable_seqscan", "enable_indexscan", "enable_bitmapscan"]) {
      // Rows that a scan of the whole table leaves out are those of all others together.
      await rows("set enable_seqscan = off");
      await rows(`set ${setting} = off`);
      for (const [table, column, theirs] of columns)
        for (const tenant of ["", " and tenant = 'alice'", " and tenant in ('alice', 'mallory')"]) {
          const nobodys = theirs.replace(THEIRS, NOBODYS).replace(SECRET, NONE).replace("xylophone3", "nobodyhas3");
          for (const [begins, ends] of [
            [" = ", ""],
            [" >= ", ` and ${column} < 'z'`],
          ]) {
            const of = (value: string): string =>
              `select from pi_fleet.${table} where ${column}${begins}'${value}'${ends}${tenant}`;
            // Dead versions of their own rows are met once.
            await planOf(of(nobodys));
            const plan = await planOf(of(theirs));
            expect(plan).toBe(await planOf(of(nobodys)));
            // Their own rows are few.
            expect(plan).not.toMatch(/Rows Removed by Filter: \d\d/);
          }
        }
      await rows("reset all");
    }
    const estimate = async (tenant: string): Promise<string> =>
      (await planOf(`select from pi_fleet.entry where tenant = '${tenant}'`)).replaceAll(tenant, "x");
    expect(await estimate("alice")).toBe(await estimate("nobody"));
  });

  test("learn from no refusal whether another has an id", async () => {
    const insert = `insert into pi_fleet.session (tenant, id, header, chain) values ($1, $2, '', '')`;
    for (const rest of ["", " on conflict do nothing", " on conflict (tenant, id) do update set epoch = 99"])
      for (const id of [THEIRS, NOBODYS])
        expect(await rows(insert + rest, ["alice", id])).toMatch(/^42501 new row violates row-level security policy/);
    await rows(insert, ["mallory", "bait"]);
    for (const id of [THEIRS, NOBODYS])
      expect(await rows("update pi_fleet.session set tenant = 'alice', id = $1 where id = 'bait'", [id])).toMatch(
        /^42501 new row violates row-level security policy/,
      );
    expect(await rows("insert into pi_fleet.word values ('alice', 'xylophone')")).toMatch(/^42501/);
    // Neither what they name of their own, nor a part of it.
    const own = await fleetOf("mallory", "mallory").fleet.attachments(THEIRS);
    expect(own).toEqual([]);
    for (const sha256 of [SECRET, NONE])
      for (const sql of [
        "insert into pi_fleet.attached values ('mallory', 'm-secret', 0, $1)",
        "insert into pi_fleet.blob_part values ('mallory', $1, 0, '')",
      ])
        expect(await rows(sql, [sha256])).toMatch(/^23503/);
    await rows("create temp table bait (tenant text, id text)");
    expect(
      await rows(
        "create table pg_temp.link (tenant text, id text, foreign key (tenant, id) references pi_fleet.session)",
      ),
    ).toMatch(/^(?:42501|42P16)/);
  });

  test("change, delete and take nothing of each other", async () => {
    for (const sql of [
      "update pi_fleet.session set epoch = epoch + 1, holder = 'me', lease_until = null where tenant = 'alice' returning 1",
      "update pi_fleet.session set state = 2 where id = 'm-secret' and tenant <> 'mallory' returning 1",
      "update pi_fleet.described set facts = '{}' where tenant = 'alice' returning 1",
      "update pi_fleet.spent set cost = 0 where tenant = 'alice' returning 1",
      "update pi_fleet.word set unused_since = null where tenant = 'alice' returning 1",
      ...TABLES.map((table) => `delete from pi_fleet.${table} where tenant = 'alice' returning 1`),
      "select 1 from pi_fleet.session where tenant = 'alice' for update",
    ])
      expect([sql, await rows(sql)]).toEqual([sql, []]);
    for (const sql of [
      "insert into pi_fleet.entry values ('alice', 'm-secret', 0, 1, 1, '', '')",
      "insert into pi_fleet.pack values ('alice', 'm-secret', 0, 1, 1, 1, 1, 0, '', '{0}', '', 0, '')",
      "insert into pi_fleet.behind values ('alice', 'm-secret', null, now())",
      "update pi_fleet.entry set line = ''",
      "truncate pi_fleet.entry",
      "update pi_fleet.meta set value = '99'",
      "alter table pi_fleet.session disable row level security",
      "drop policy own on pi_fleet.session",
      "create policy more on pi_fleet.session using (true)",
      "create trigger spy before insert on pi_fleet.entry for each row execute function suppress_redundant_updates_trigger()",
      "create table pi_fleet.more (a int)",
      "set role alice",
      "set role fleet",
      "set session authorization alice",
    ])
      expect([sql, await rows(sql)]).toEqual([sql, expect.stringMatching(/^42501/)]);
    // All tenants are members of one role, which has no rows.
    expect(await rows(`set role ${TENANTS}`)).toEqual([]);
    expect(await rows("select from pi_fleet.session")).toEqual([]);
    expect(
      await rows("insert into pi_fleet.session (tenant, id, header, chain) values (current_user, 'board', '', '')"),
    ).toMatch(/^42501/);
    await rows("reset role");
    expect(untouched()).toBe(before);
    expect(await textsOf(alice, THEIRS)).toEqual(["xylophone"]);
  });

  test("take no session from whoever has it of another, by the verb for that", async () => {
    const holders = (): string =>
      server.sql("select id, epoch, holder, state from pi_fleet.session where tenant = 'alice' order by id");
    const held = holders();
    expect(held).toContain("server of alice");
    const own = fleetOf("mallory", "mallory");
    await begun(own, `${THEIRS}-5`, "mine");
    const take = async (id: string, tenant?: string): Promise<string> => {
      const variables = { PI_FLEET_URL: urlOf("mallory", tenant) };
      const { stdout, stderr } = await runHere(new HereLives({}).place, ["fleet", "take", id], { variables });
      return stdout + stderr;
    };
    // Of ids that only another has it says what it says of those that nobody has.
    const saidOf = async (id: string): Promise<string> => (await take(id, "mallory")).replaceAll(id, "it");
    expect(await saidOf(`${THEIRS}-3`)).toContain("No session has the id it");
    expect(await saidOf(`${THEIRS}-3`)).toBe(await saidOf(`${NOBODYS}-3`));
    for (const tenant of ["alice", undefined])
      expect(await take(`${THEIRS}-3`, tenant)).toContain("the role mallory has to do with the tenant mallory alone");
    // An id that both have is their own.
    expect(await take(`${THEIRS}-5`, "mallory")).toContain("Taken from server of mallory");
    await expect(own.keeper.takeAway(`${THEIRS}-3`)).rejects.toMatchObject({ name: "session_not_found" });
    expect(holders()).toBe(held);
  });

  test("are isolated in every table that has rows of tenants", () => {
    const open = server.sql(`select string_agg(c.relname, ' ') from pg_class c
      join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant'
      where c.relnamespace = 'pi_fleet'::regnamespace and c.relkind = 'r'
        and not (c.relrowsecurity and exists (select from pg_policy p where p.polrelid = c.oid))`);
    expect(open).toBe("");
  });

  /** Returns how the tables are guarded. */
  const shape = (): string =>
    server.sql("select polname, polrelid::regclass, pg_get_expr(polqual, polrelid) from pg_policy order by 2") +
    server.sql(
      "select relname, relacl, relrowsecurity from pg_class where relnamespace = 'pi_fleet'::regnamespace order by 1",
    );

  /** Opens one table, as half a migration leaves it, and has the next one close it. */
  const isMended = async (change: string): Promise<void> => {
    const { fleet } = fleetOf("fleet");
    const told = async (): Promise<string> =>
      (await runHere(new HereLives({}).place, ["fleet", "status"], { variables: { PI_FLEET_URL: urlOf("fleet") } }))
        .stdout;
    const before = shape();
    expect(await fleet.status()).toMatchObject({ isIsolated: true, unguarded: [] });
    server.sql(change);
    expect(await fleet.status()).toMatchObject({ isIsolated: false, unguarded: ["pack"] });
    expect(await told()).toMatch(/pack.*fleet migrate/);
    expect(await told()).not.toContain("Each role sees only");
    expect(await fleet.migrate()).toMatchObject({ before: expect.any(Number) });
    expect(shape()).toBe(before);
    expect(await fleet.status()).toMatchObject({ isIsolated: true, unguarded: [] });
    expect(await told()).toContain("Each role sees only");
  };

  test.each([
    `alter table pi_fleet.pack disable row level security; drop policy own on pi_fleet.pack; revoke all on pi_fleet.pack from ${TENANTS}`,
    `revoke insert on pi_fleet.pack from ${TENANTS}`,
  ])("of which one table is open, as after half a migration, are told so, and the next one mends it: %s", isMended);

  test.each([
    "alter table pi_fleet.pack disable row level security",
    "drop policy own on pi_fleet.pack",
    "alter table pi_fleet.pack alter column heads set statistics 100",
  ])(
    "of which one table is open, as after half a migration, are told so, and the next one mends it: %s",
    SWEEP,
    isMended,
  );

  test("make no functions that others could run, nor schemas, and the status tells where they may", async () => {
    const { fleet } = fleetOf("fleet");
    const told = async (): Promise<string> =>
      (await runHere(new HereLives({}).place, ["fleet", "status"], { variables: { PI_FLEET_URL: urlOf("fleet") } }))
        .stdout;
    const trap = "create or replace function public.trap() returns int language sql as 'select 1'";
    // As databases have it that began as 14 or before.
    server.sql("grant create on schema public to public");
    expect(await rows(trap)).toEqual([]);
    server.sql("drop function public.trap()");
    expect(await fleet.status()).toMatchObject({ isIsolated: false, unguarded: [], making: ["public"] });
    expect(await told()).toMatch(/functions in schema public.*revoke create on schema public/);
    await fleet.migrate();
    expect(await rows(trap)).toMatch(/^42501/);
    expect(await fleet.status()).toMatchObject({ isIsolated: true, making: [] });
    server.sql(`grant create on database ${server.name} to ${TENANTS}`);
    expect(await fleet.status()).toMatchObject({ isIsolated: false, making: [null] });
    expect(await told()).toMatch(/schemas.*revoke create on database/);
    await fleet.isolate();
    expect(await fleet.status()).toMatchObject({ making: [null] });
    server.sql(`revoke create on database ${server.name} from ${TENANTS}`);
    expect(await told()).toContain("Each role sees only");
  });

  /** Has a verb say to which tenant it was applied. */
  const saysWhose = async (word: string): Promise<void> => {
    const { place } = new HereLives({});
    const operandOf = (tenant?: string): string[] => {
      if (word === "take") return [tenant === undefined ? "of-nobody-in-particular" : `${THEIRS}-7`];
      return word === "export" || word === "import" ? [place.home] : [];
    };
    for (const [tenant, sentence] of [
      ["alice", "Of the tenant alice:"],
      [undefined, "those of tenants are not among them"],
    ] as const) {
      const variables = { PI_FLEET_URL: urlOf("fleet", tenant) };
      const given = [word, ...operandOf(tenant)];
      if (tenant !== undefined || !["prune", "import", "push", "take"].includes(word)) {
        const { stdout } = await runHere(place, ["fleet", ...given], { variables });
        expect(stdout).toContain(sentence);
      }
      const told = await runHere(place, ["fleet", ...given, "--json"], { variables });
      expect(JSON.parse(told.stdout)).toMatchObject({ tenant: tenant ?? "" });
    }
  };

  test.each(["verify", "status", "take"])("are told whose sessions it is about (fleet %s)", saysWhose);

  test.each(["export", "migrate", "prune", "import", "push"])(
    "are told whose sessions it is about (fleet %s)",
    SWEEP,
    saysWhose,
  );

  test("are isolated once, however often, by the owner alone, who sees all of them", async () => {
    const once = shape();
    const { fleet } = fleetOf("fleet");
    await fleet.isolate();
    expect(shape()).toBe(once);
    await expect(fleetOf("mallory", "mallory").fleet.isolate()).rejects.toMatchObject({ name: "storage_failed" });
    expect(await fleet.status()).toMatchObject({ sessions: 1, tenant: "", isIsolated: true });
    expect(await fleetOf("fleet", "alice").fleet.status()).toMatchObject({ sessions: 31, tenant: "alice" });
    const variables = { PI_FLEET_URL: urlOf("fleet") };
    const { stdout } = await runHere(new HereLives({}).place, ["fleet", "isolate"], { variables });
    expect(stdout).toContain(`create role NAME login password 'SECRET' in role ${TENANTS}`);
    expect(stdout).toContain("Each role sees only the tenant that has its name");
    const told = await runHere(new HereLives({}).place, ["fleet", "status"], {
      variables: { PI_FLEET_URL: urlOf("alice", "alice") },
    });
    expect(told.stdout).toContain("Of the tenant alice:");
    expect(told.stdout).not.toContain("in the database");
  });
});
