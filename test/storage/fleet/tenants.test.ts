/**
 * Tenants of a fleet: what a hostile one learns and changes of another's sessions, with SQL of its own.
 *
 * @module-tag system
 */

import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { addressOf } from "../../../src/storage/fleet/address.ts";
import { type DatabaseClient, loadDriver } from "../../../src/storage/fleet/driver.ts";
import { isolate, TENANTS } from "../../../src/storage/fleet/isolation.ts";
import { taken } from "../../support/fleet-commits.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL, Postgres } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import { range } from "../../support/random.ts";
import { type SqlFleet, sqlFleet } from "../../support/sql-fleet.ts";
import { batchOf, linesOf } from "../../support/sql-machines.ts";
import { SWEEP } from "../../support/tiers.ts";
import { type Run, runHere } from "../../support/verbs.ts";

/** An id that both tenants have, before those that only the other one has, and one that nobody has. */
const [THEIRS, NOBODYS] = ["m-secret", "m-secrex"];
const TABLES = "session entry pack behind described said word spent blob blob_part attached".split(" ");
const ALL_TABLES = TABLES.map((table) => `pi_fleet.${table}`).join(", ");
/** The digest of a content that only one of them has, and one that nobody has. */
const [SECRET, NONE] = ["3", "4"].map((digit) => digit.repeat(64));
/** What only one of them has in a column, and what nobody has. */
const HAD = `${THEIRS}-3 xylophone3 ${SECRET}`.split(" ");
const NOT_HAD = `${NOBODYS}-3 nobodyhas3 ${NONE}`.split(" ");

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
  const verb = (words: string, role = "fleet", tenant?: string, { place } = new HereLives({})): Promise<Run> =>
    runHere(place, ["fleet", ...words.split(" ")], { variables: { PI_FLEET_URL: urlOf(role, tenant) } });
  const told = async (): Promise<string> => (await verb("status")).stdout;
  const begun = async (one: SqlFleet, id: string, text: string): Promise<void> => {
    const { epoch, end } = await taken(one, id);
    const said = {
      position: end.entries,
      kind: "talk",
      nth: 0,
      role: "user",
      time: 7,
      marks: [],
      words: [text],
    } as const;
    const spent = { quarter: 1, provider: "p", model: "m", isInherited: false, numbers: [1, 0, 0, 0, 0, 0, 0, 1] };
    const batch = batchOf(id, epoch, end, [text], {
      counts: { messages: 1, modified: 7, isPlain: true },
      description: { cwd: "/secret", name: "secret", firstMessage: text, parentSession: null, timestamp: null },
      texts: [said],
      spendings: [spent],
    });
    expect(await one.fleet.append(batch)).toMatchObject({ kind: "committed" });
  };
  const textOf = async (one: SqlFleet, id: string): Promise<string[]> =>
    linesOf(one, id, 0, (await one.fleet.look(id))?.end.entries ?? 0);
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
  const untouched = (): string[] =>
    TABLES.map((table) => server.sql(`select t from pi_fleet.${table} t where tenant = 'alice' order by t::text`));

  let alice: SqlFleet;
  let before: string[];

  beforeAll(async () => {
    // Leases that are renewed every ten seconds change rows by themselves.
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    server = new Postgres();
    await server.start();
    const owner = fleetOf("fleet");
    await owner.fleet.migrate();
    await begun(owner, "of-nobody-in-particular", "common");
    const named = fleetOf("fleet", "alice");
    for (const n of range(0, 30)) await begun(named, `${THEIRS}-${n}`, `xylophone${n}`);
    await named.fleet.attach(`${THEIRS}-3`, [{ sha256: SECRET, read: () => Buffer.from("a picture") }]);
    // Whatever the server has gathered about values.
    server.sql(`analyze ${ALL_TABLES}`);
    await isolate(owner.connections);
    for (const role of ["alice", "mallory"]) server.sql(`create role ${role} login in role ${TENANTS}`);
    server.sql(`analyze ${ALL_TABLES}`);
    alice = fleetOf("alice", "alice");
    await begun(alice, THEIRS, "xylophone");
    before = untouched();
    const { server: config } = addressOf(urlOf("mallory"), () => "");
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
    const { fleet, catalog, keeper } = own;
    expect(await fleet.look(THEIRS)).toBeNull();
    await begun(own, THEIRS, "mine");
    expect([await textOf(own, THEIRS), await textOf(alice, THEIRS)]).toEqual([["mine"], ["xylophone"]]);
    expect((await catalog.list({}, undefined, 10)).sessions.map(({ id }) => id)).toEqual([THEIRS]);
    expect((await alice.catalog.list({}, undefined, 100)).total).toBe(31);
    expect(await catalog.idsBeginning("m-", 10)).toEqual([THEIRS]);
    expect([...(await catalog.wordsWith(["xylo", "mine"])).values()]).toEqual([[], ["mine"]]);
    const status = { sessions: 1, entries: 1, held: 1, storedBytes: null, tenant: "mallory" };
    expect(await fleet.status()).toMatchObject(status);
    expect(await keeper.keep(THEIRS, (await taken(own, THEIRS)).epoch, { as: "gone" })).toBe(true);
    expect(untouched()).toEqual(before);
  });

  test.each([
    ["alice", "names the tenant alice"],
    [undefined, "names no tenant"],
  ])("with the address of the tenant %s are told which is theirs", async (tenant, sentence) => {
    const { fleet, catalog } = fleetOf("mallory", tenant);
    const theirs = "the role mallory has to do with the tenant mallory alone";
    const reason = expect.stringMatching(`${theirs}.*${sentence}.*tenant=mallory`);
    expect(await fleet.take(THEIRS, 0)).toEqual({ kind: "unfit", reason });
    const failed = { name: "storage_failed", retryable: false, message: reason };
    await expect(fleet.look(THEIRS)).rejects.toMatchObject(failed);
    await expect(catalog.list({}, undefined, 10)).rejects.toMatchObject({ name: "storage_failed" });
  });

  test("read nothing of each other, by whatever query", async () => {
    for (const table of TABLES) {
      expect(await rows(`select count(*)::int as n from pi_fleet.${table} where tenant = 'alice'`)).toEqual([{ n: 0 }]);
      const all = (await rows(`select tenant from pi_fleet.${table}`)) as { tenant: string }[];
      expect(all.length).toBeGreaterThanOrEqual(table === "session" ? 1 : 0);
      expect(all.filter(({ tenant }) => tenant !== "mallory")).toEqual([]);
    }
    // A function of theirs that tells what it is given.
    await rows(`create function pg_temp.tell(text) returns boolean language plpgsql cost 0.0000001
      as 'begin raise notice ''told %'', $1; return true; end'`);
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
    const hidden = (text: string): string => HAD.reduce((left, had, n) => left.replaceAll(had, NOT_HAD[n]), text);
    const planOf = async (query: string): Promise<string> => {
      const found = (await rows(`explain (analyze, timing off, summary off) ${query}`)) as object[];
      return hidden(found.map((row) => Object.values(row)[0]).join("\n"));
    };
    const [id, word, digest] = HAD;
    const columns = {
      ...{ "session.id": id, "entry.session_id": id, "described.session_id": id, "said.session_id": id },
      ...{ "word.word": word, "blob.sha256": digest, "blob_part.sha256": digest },
      ...{ "attached.session_id": id, "attached.sha256": digest },
    };
    for (const setting of ["enable_seqscan", "enable_indexscan", "enable_bitmapscan"]) {
      // Rows that a scan of the whole table leaves out are those of all others together.
      await rows("set enable_seqscan = off");
      await rows(`set ${setting} = off`);
      for (const [name, theirs] of Object.entries(columns))
        for (const tenant of ["", " and tenant = 'alice'", " and tenant in ('alice', 'mallory')"])
          for (const test of ["= '?'", `>= '?' and ${name.split(".")[1]} < 'z'`]) {
            const [table, column] = name.split(".");
            const query = `select from pi_fleet.${table} where ${column} ${test.replace("?", theirs)}${tenant}`;
            // Dead versions of their own rows are met once.
            await planOf(hidden(query));
            const plan = await planOf(query);
            expect(plan).toBe(await planOf(hidden(query)));
            // Their own rows are few.
            expect(plan).not.toMatch(/Rows Removed by Filter: \d\d/);
          }
      await rows("reset all");
    }
    const estimate = async (tenant: string): Promise<string> =>
      (await planOf(`select from pi_fleet.entry where tenant = '${tenant}'`)).replaceAll(tenant, "x");
    expect(await estimate("alice")).toBe(await estimate("nobody"));
  });

  test("learn from no refusal whether another has an id", async () => {
    const violated = /^42501 new row violates row-level security policy/;
    const insert = "insert into pi_fleet.session (tenant, id, header, chain) values ($1, $2, '', '')";
    await rows(insert, ["mallory", "bait"]);
    for (const id of [THEIRS, NOBODYS]) {
      for (const rest of ["", " on conflict do nothing", " on conflict (tenant, id) do update set epoch = 99"])
        expect(await rows(insert + rest, ["alice", id])).toMatch(violated);
      const moved = "update pi_fleet.session set tenant = 'alice', id = $1 where id = 'bait'";
      expect(await rows(moved, [id])).toMatch(violated);
    }
    expect(await rows("insert into pi_fleet.word values ('alice', 'xylophone')")).toMatch(/^42501/);
    // Neither what they name of their own, nor a part of it.
    expect(await fleetOf("mallory", "mallory").fleet.attachments(THEIRS)).toEqual([]);
    for (const sha256 of [SECRET, NONE])
      for (const values of [
        "attached values ('mallory', 'm-secret', 0, $1)",
        "blob_part values ('mallory', $1, 0, '')",
      ])
        expect(await rows(`insert into pi_fleet.${values}`, [sha256])).toMatch(/^23503/);
    const link = "(tenant text, id text, foreign key (tenant, id) references pi_fleet.session)";
    expect(await rows(`create table pg_temp.link ${link}`)).toMatch(/^(?:42501|42P16)/);
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
    const board = "insert into pi_fleet.session (tenant, id, header, chain) values (current_user, 'board', '', '')";
    expect(await rows(board)).toMatch(/^42501/);
    await rows("reset role");
    expect([untouched(), await textOf(alice, THEIRS)]).toEqual([before, ["xylophone"]]);
  });

  test("take no session from whoever has it of another, by the verb for that", async () => {
    const holders = (): string =>
      server.sql("select id, epoch, holder, state from pi_fleet.session where tenant = 'alice' order by id");
    const held = holders();
    expect(held).toContain("server of alice");
    const own = fleetOf("mallory", "mallory");
    await begun(own, `${THEIRS}-5`, "mine");
    const take = async (id: string, tenant?: string): Promise<string> => {
      const { stdout, stderr } = await verb(`take ${id}`, "mallory", tenant);
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
    server.sql(`select polname, polrelid::regclass, pg_get_expr(polqual, polrelid) from pg_policy order by 2;
      select relname, relacl, relrowsecurity from pg_class where relnamespace = 'pi_fleet'::regnamespace order by 1`);

  const OPENED = "of which one table is open, as after half a migration, are told so, and the next one mends it";
  for (const [change, tier] of [
    [
      `alter table pi_fleet.pack disable row level security; drop policy own on pi_fleet.pack;
        revoke all on pi_fleet.pack from ${TENANTS}`,
      {},
    ],
    [`revoke insert on pi_fleet.pack from ${TENANTS}`, {}],
    ["alter table pi_fleet.pack disable row level security", SWEEP],
    ["drop policy own on pi_fleet.pack", SWEEP],
    ["alter table pi_fleet.pack alter column heads set statistics 100", SWEEP],
  ] as const)
    test(`${OPENED}: ${change}`, tier, async () => {
      const { fleet } = fleetOf("fleet");
      const before = shape();
      const isWhole = { isIsolated: true, unguarded: [] };
      expect(await fleet.status()).toMatchObject(isWhole);
      server.sql(change);
      expect(await fleet.status()).toMatchObject({ isIsolated: false, unguarded: ["pack"] });
      const opened = await told();
      expect(opened).toMatch(/pack.*fleet migrate/);
      expect(opened).not.toContain("Each role sees only");
      expect(await fleet.migrate()).toMatchObject({ before: expect.any(Number) });
      expect([shape(), await fleet.status()]).toEqual([before, expect.objectContaining(isWhole)]);
      expect(await told()).toContain("Each role sees only");
    });

  // With words after it, and whether people are told of a tenant, too.
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
      ["alice", "Of the tenant alice:", `${THEIRS}-7`],
      [undefined, "those of tenants are not among them", "of-nobody-in-particular"],
    ])(`are told whose sessions it is about (fleet ${word}, tenant %s)`, tier, async (tenant, sentence, id) => {
      const lives = new HereLives({});
      const words = [word, ...(operand === "" ? [] : [operand === "id" ? id : lives.place.home])].join(" ");
      if (tenant !== undefined || !isQuiet)
        expect((await verb(words, "fleet", tenant, lives)).stdout).toContain(sentence);
      const { stdout } = await verb(`${words} --json`, "fleet", tenant, lives);
      expect(JSON.parse(stdout)).toMatchObject({ tenant: tenant ?? "" });
    });

  test("make no functions that others could run, nor schemas, and the status tells where they may", async () => {
    const { fleet } = fleetOf("fleet");
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

  test("are isolated once, however often, by the owner alone, who sees all of them", async () => {
    const once = shape();
    const { fleet } = fleetOf("fleet");
    await fleet.isolate();
    expect(shape()).toBe(once);
    await expect(fleetOf("mallory", "mallory").fleet.isolate()).rejects.toMatchObject({ name: "storage_failed" });
    expect(await fleet.status()).toMatchObject({ sessions: 1, tenant: "", isIsolated: true });
    expect(await fleetOf("fleet", "alice").fleet.status()).toMatchObject({ sessions: 31, tenant: "alice" });
    const { stdout } = await verb("isolate");
    expect(stdout).toContain(`create role NAME login password 'SECRET' in role ${TENANTS}`);
    expect(stdout).toContain("Each role sees only the tenant that has its name");
    const theirs = (await verb("status", "alice", "alice")).stdout;
    expect(theirs).toContain("Of the tenant alice:");
    expect(theirs).not.toContain("in the database");
  });
});
