/**
 * The names in the statements of a fleet: none means what somebody else has made in a schema that the server looks through.
 * A function of theirs that fits its arguments exactly comes before one of the server that takes any type, and would be run
 * with the rights of whoever asks.
 *
 * @module-tag system
 */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { parseAst } from "vitest/node";
import { FleetPruning } from "../../../src/storage/fleet/pruning.ts";
import { sha256 as digestOf } from "../../../src/storage/v2/frame.ts";
import { suiteDatabase } from "../../support/database.ts";
import { assistant, user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import type { Json } from "../../support/server.ts";
import { acrossTiers } from "../../support/tiers.ts";
import { runHere } from "../../support/verbs.ts";

const FOLDER = fileURLToPath(new URL("../../../src/storage/fleet/", import.meta.url));
/** What the language itself gives a meaning, whatever has the name. */
const SYNTAX = /^(?:position|substring)\([^()]*(?:\([^()]*\)[^()]*)*\b(?:in|from)\b|^extract\(/;

/** Returns the texts of a source: strings, and templates with `$` where something is put in. */
function textsIn(file: string): string[] {
  const found: string[] = [];
  JSON.stringify(parseAst(readFileSync(join(FOLDER, file), "utf8"), { lang: "ts" }), (_, node) => {
    if (node?.type === "Literal" && typeof node.value === "string") found.push(node.value);
    if (node?.type === "TemplateLiteral")
      found.push(node.quasis.map(({ value }: { value: { cooked: string } }) => value.cooked).join("$"));
    return typeof node === "bigint" ? null : node;
  });
  return found;
}

describe("the names in statements", needs(POSTGRESQL), () => {
  const database = suiteDatabase();
  const { connect } = database;

  test("of functions that are given something have their schema", () => {
    const names = database.server.sql("select distinct proname from pg_proc where pronargs > 0").split("\n");
    const known = new Set(names);
    const open = readdirSync(FOLDER)
      .filter((file) => file.endsWith(".ts"))
      .flatMap((file) =>
        textsIn(file).flatMap((text) =>
          // What is given nothing is that of the server, which is looked through first.
          Array.from(text.matchAll(/(?<![\w.$])([a-z_0-9]+)\((?!\)|\*\))/g))
            .filter(({ 1: name, index }) => known.has(name) && !SYNTAX.test(text.slice(index)))
            .map(({ 1: name, index }) => `${file}: ${name} in ${text.slice(index, index + 60)}`),
        ),
      );
    expect(open).toEqual([]);
  });

  acrossTiers(test, [
    // Those of columns, and more.
    "text,bytea,int4,int8,float8,bool,timestamptz,text[]",
    "text,bytea,int2,int4,int8,float8,bool,timestamptz,interval,json,name,text[],int4[],int8[],tsvector",
  ])("are not those of somebody who may make functions and operators beside them (of %s)", async (types) => {
    const { server } = database;
    const trudy = `trudy_of_${server.name}`;
    server.sql(`grant create on schema public to public; create role ${trudy} login; grant ${trudy} to fleet`);
    // For every two types for which the server has no operator, one of theirs; and functions of one and of two types.
    server.sql(`create sequence public.met; grant all on sequence public.met to ${trudy}`);
    server.sql(`set role ${trudy}; set search_path = pg_catalog; do $do$
      declare
        types text[] := '{${types}}';
        names text[] := '{unnest,array_to_string,encode,decode,octet_length,sum,max,min,json_agg,array_agg,lag,left,length,
          pg_total_relation_size,sha256,starts_with,current_setting,tsvector_to_array,count}';
        body text := 'language plpgsql as $f$begin
          raise exception ''hostile %'', nextval(''public.met''); end$f$';
        one text; two text; name text; sign text;
      begin
        foreach one in array types loop
          foreach name in array names loop
            execute format('create function public.%s(%s) returns %s %s', name, one, 'text', body);
          end loop;
          foreach two in array types loop
            foreach name in array names loop
              execute format('create function public.%s(%s, %s) returns %s %s', name, one, two, 'text', body);
            end loop;
            execute format('create function public.hostile(%s, %s) returns bool %s', one, two, body);
            foreach sign in array '{+,-,*,/,=,<>,<,>,<=,>=,||,~~}'::text[] loop
              if not exists (select from pg_operator o where o.oprname = sign::name and o.oprleft = one::regtype
                  and o.oprright = two::regtype) then
                execute format('create operator public.%s (function = public.hostile, leftarg = %s, rightarg = %s)',
                  sign, one, two);
              end if;
            end loop;
          end loop;
        end loop;
      end $do$; reset role; reset search_path`);
    expect(
      Number(server.sql("select count(*) from pg_operator where oprnamespace = 'public'::regnamespace")),
    ).toBeGreaterThan(100);
    // They are what a statement means that does not say more.
    expect(() => server.sql("select unnest(array['a'::text])")).toThrow(/hostile 1/);
    expect(() => server.sql("select 1.5::float8 + 1")).toThrow(/hostile 2/);
    /** Returns how often one was run, whatever has become of the statement. */
    const met = (): string => server.sql("select last_value from public.met");

    const fleet = connect();
    const lives = new HereLives({ fleet, seed: 3 });
    const wire = await lives.start();
    const verb = async (...args: string[]): Promise<Json> => {
      const variables = { PI_FLEET_URL: server.url };
      const { stdout, stderr } = await runHere(lives.place, ["fleet", ...args, "--json"], { variables });
      expect([args, stderr]).toEqual([args, ""]);
      return JSON.parse(stdout);
    };
    await wire.result("append", { entries: [user("one fish"), assistant("two fish")] });
    await wire.result("append", { entries: [user(`long ${"xy ".repeat(100_000)}`)] });
    const { sessionId } = await wire.result("get_state");
    // The words of a long entry come after it is acknowledged, from who has the session open.
    const indexed = async (): Promise<void> => {
      const behind = (): string => server.sql("select count(*) from pi_fleet.behind");
      await expect.poll(behind, { timeout: 30_000, interval: 20 }).toBe("0");
    };
    await indexed();
    await wire.result("clone");
    await indexed();
    await wire.result("set_session_name", { name: "red fish" });
    const elsewhere = new HereLives({ fleet: connect(), seed: 4 });
    const there = await elsewhere.start();
    for (const sort of ["modified", "created", "name", "size", "cost"])
      expect((await there.result("list_sessions", { sort, query: "fish" })).limited).toBeUndefined();
    for (const query of ["fish", "fis", '"one fish"']) {
      const { hits } = await there.result("search_sessions", { query });
      expect(hits.length).toBeGreaterThan(0);
    }
    expect((await there.result("get_usage", { groupBy: ["session"] })).limited).toBeUndefined();
    expect((await there.result("get_session_family", { sessionId })).limited).toBeUndefined();
    await there.result("open_session", { sessionId });
    await there.result("archive_session", { sessionId }).catch(() => {});
    await Promise.all([lives.end(), elsewhere.end()]);
    server.sql("update pi_fleet.session set changed_at = '2010-01-01'");
    await verb("migrate");
    expect((await verb("verify")).faults).toEqual([]);
    await verb("status");
    const one = connect();
    const picture = Buffer.from("a picture");
    const sha256 = digestOf(picture);
    await one.fleet.attach(sessionId, [{ sha256, read: () => picture }]);
    expect(await one.fleet.attachments(sessionId)).toEqual([sha256]);
    expect(await one.fleet.attachment(sha256)).toEqual(picture);
    await one.fleet.take(sessionId, 0);
    await one.keeper.takeAway(sessionId);
    const taking = await one.fleet.take(sessionId, 0);
    if (taking.kind !== "taken") throw new Error("not taken");
    expect(await one.keeper.keep(sessionId, taking.epoch, { as: "deleted" })).toBe(true);
    expect(await one.keeper.restore(sessionId, false)).toBe(true);
    const pruning = new FleetPruning(one.connections, "");
    await pruning.prune({ rows: 0, ids: 0, idle: { age: 0, archived: true, named: true, owed: [] } });
    await pruning.prune({ rows: 0, ids: 0 });
    await verb("isolate");
    expect(met()).toBe("2");
    expect(server.sql(`select has_schema_privilege('${trudy}', 'public', 'create')`)).toBe("f");
  });
});
