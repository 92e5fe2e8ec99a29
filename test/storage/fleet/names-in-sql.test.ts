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
import { assistant, user } from "../../support/drafts.ts";
import { taken } from "../../support/fleet-commits.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { fleetSuite } from "../../support/sql-machines.ts";
import { acrossTiers } from "../../support/tiers.ts";

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

/** Returns the body of a function that nobody is to run, which counts how often one was. */
const BODY = `'language plpgsql as $f$begin raise exception ''hostile %'', nextval(''public.met''); end$f$'`;
const FUNCTIONS =
  "unnest,array_to_string,encode,decode,octet_length,sum,max,min,json_agg,array_agg,lag,left,length," +
  "pg_total_relation_size,sha256,starts_with,current_setting,tsvector_to_array,count";

/** For every two types for which the server has no operator, one of theirs; and functions of one and of two types. */
const hostile = (types: string): string => `do $do$
  declare types text[] := '{${types}}'; names text[] := '{${FUNCTIONS}}'; body text := ${BODY};
    one text; two text; name text; sign text;
  begin
    foreach one in array types loop
      foreach name in array names loop
        execute format('create function public.%s(%s) returns text %s', name, one, body);
      end loop;
      foreach two in array types loop
        foreach name in array names loop
          execute format('create function public.%s(%s, %s) returns text %s', name, one, two, body);
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
  end $do$`;

describe("the names in statements", needs(POSTGRESQL), () => {
  const suite = fleetSuite();
  const sql = (text: string): string => suite.sql(text);

  test("of functions that are given something have their schema", () => {
    const known = new Set(sql("select distinct proname from pg_proc where pronargs > 0").split("\n"));
    const texts = readdirSync(FOLDER).flatMap((file) => textsIn(file).map((text) => ({ file, text })));
    const open = texts.flatMap(({ file, text }) =>
      // What is given nothing is that of the server, which is looked through first.
      Array.from(text.matchAll(/(?<![\w.$])([a-z_0-9]+)\((?!\)|\*\))/g))
        .filter(({ 1: name, index }) => known.has(name) && !SYNTAX.test(text.slice(index)))
        .map(({ 1: name, index }) => `${file}: ${name} in ${text.slice(index, index + 60)}`),
    );
    expect(open).toEqual([]);
  });

  acrossTiers(test, [
    // Those of columns, and more.
    "text,bytea,int4,int8,float8,bool,timestamptz,text[]",
    "text,bytea,int2,int4,int8,float8,bool,timestamptz,interval,json,name,text[],int4[],int8[],tsvector",
  ])("are not those of somebody who may make functions and operators beside them (of %s)", async (types) => {
    const trudy = `trudy_of_${suite.database.server.name}`;
    sql(`grant create on schema public to public; create role ${trudy} login; grant ${trudy} to fleet`);
    sql(`create sequence public.met; grant all on sequence public.met to ${trudy}`);
    sql(`set role ${trudy}; set search_path = pg_catalog; ${hostile(types)}; reset role; reset search_path`);
    const operators = sql("select count(*) from pg_operator where oprnamespace = 'public'::regnamespace");
    expect(Number(operators)).toBeGreaterThan(100);
    // They are what a statement means that does not say more.
    expect(() => sql("select unnest(array['a'::text])")).toThrow(/hostile 1/);
    expect(() => sql("select 1.5::float8 + 1")).toThrow(/hostile 2/);

    const [one, two] = [await suite.machine(), await suite.machine()];
    const { wire } = one;
    await wire.result("append", { entries: [user("one fish"), assistant("two fish")] });
    await wire.result("append", { entries: [user(`long ${"xy ".repeat(100_000)}`)] });
    const { sessionId } = await wire.result("get_state");
    // The words of a long entry come after it is acknowledged, from who has the session open.
    const indexed = (): Promise<void> => suite.until("select count(*) from pi_fleet.behind", "0");
    await indexed();
    await wire.result("clone");
    await indexed();
    await wire.result("set_session_name", { name: "red fish" });
    const there = two.wire;
    for (const sort of ["modified", "created", "name", "size", "cost"])
      expect((await there.result("list_sessions", { sort, query: "fish" })).limited).toBeUndefined();
    for (const query of ["fish", "fis", '"one fish"'])
      expect((await there.result("search_sessions", { query })).hits).not.toEqual([]);
    for (const [method, params] of [
      ["get_usage", { groupBy: ["session"] }],
      ["get_session_family", { sessionId }],
    ] as const)
      expect((await there.result(method, params)).limited).toBeUndefined();
    await there.result("open_session", { sessionId });
    await there.request("archive_session", { sessionId });
    await Promise.all([one.lives.end(), two.lives.end()]);
    sql("update pi_fleet.session set changed_at = '2010-01-01'");
    await suite.told("migrate", one.place);
    expect((await suite.told("verify", one.place)).faults).toEqual([]);
    await suite.told("status", one.place);
    const own = suite.connect();
    const { fleet, keeper } = own;
    const picture = Buffer.from("a picture");
    const sha256 = digestOf(picture);
    await fleet.attach(sessionId, [{ sha256, read: () => picture }]);
    expect([await fleet.attachments(sessionId), await fleet.attachment(sha256)]).toEqual([[sha256], picture]);
    await taken(own, sessionId);
    await keeper.takeAway(sessionId);
    expect(await keeper.keep(sessionId, (await taken(own, sessionId)).epoch, { as: "deleted" })).toBe(true);
    expect(await keeper.restore(sessionId, false)).toBe(true);
    const pruning = new FleetPruning(own.connections, "");
    await pruning.prune({ rows: 0, ids: 0, idle: { age: 0, archived: true, named: true, owed: [] } });
    await pruning.prune({ rows: 0, ids: 0 });
    await suite.told("isolate", one.place);
    // None was run since, whatever became of the statement.
    expect(sql("select last_value from public.met")).toBe("2");
    expect(sql(`select has_schema_privilege('${trudy}', 'public', 'create')`)).toBe("f");
  });
});
