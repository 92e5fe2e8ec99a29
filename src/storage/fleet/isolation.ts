/**
 * The isolation of tenants: a role of the database that is not the owner of the tables has to do with the rows of the tenant
 * that has its name, and with no others. The server looks at the name of the role alone, so that it works through poolers.
 */

import { Failure } from "../../core/failure.ts";
import { ServerRefusal } from "./failures.ts";
import { keepLong, PATIENCE, SOON, type StatementRunner, whyUnchanged } from "./keeping.ts";
import type { AskServer } from "./server-fact.ts";

/** The role that those of tenants are members of. */
export const TENANTS = "pi_fleet_tenant";

/** Rights of tenants on the tables that have rows of tenants: those that the statements of a fleet need. */
const RIGHTS: Readonly<Record<string, string>> = {
  session: "select, insert, update, delete",
  entry: "select, insert, delete",
  pack: "select, insert, update, delete",
  behind: "select, insert, update, delete",
  described: "select, insert, update, delete",
  said: "select, insert, delete",
  word: "select, insert, update, delete",
  spent: "select, insert, update, delete",
  blob: "select, insert, update, delete",
  blob_part: "select, insert, delete",
  attached: "select, insert, delete",
};

/**
 * The rows of a role. With the collation of the column the server looks them up by the beginning of each key, and so sees no
 * others: it would tell in the plan of a query how many rows it left out. Members may become the role that they share.
 */
const OWN = `tenant = (current_user::text collate "default") and tenant <> '${TENANTS}'`;

/** Columns of the tables, and whether the server has gathered which values they have. */
const COLUMNS = `select c.relname as "table", a.attname as "column", pg_catalog.format_type(a.atttypid, a.atttypmod) as type,
    exists (select from pg_stats s where s.schemaname = n.nspname and s.tablename = c.relname
      and s.attname = a.attname) as gathered
  from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid
  where n.nspname = 'pi_fleet' and c.relkind = 'r' and c.relname = any($1::text[]) and a.attnum > 0
    and not a.attisdropped
  order by c.relname, a.attnum`;

const STATE = `select current_user::text as role, c.relrowsecurity as isolated, pg_catalog.row_security_active(c.oid) as bound
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'pi_fleet' and c.relname = 'session'`;

/** Tables that are not as they are isolated: in all of them the server keeps tenants apart, or in none. */
const UNGUARDED = `select c.relname as "table"
  from rows from (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) as own (name, rights)
    join pg_namespace n on n.nspname = 'pi_fleet' join pg_class c on c.relnamespace = n.oid and c.relname = own.name
    left join pg_roles r on r.rolname = '${TENANTS}'
  where not c.relrowsecurity or r.oid is null
    or not exists (select from pg_policy p where p.polrelid = c.oid and p.polname = 'own')
    or exists (select from pg_catalog.string_to_table(own.rights, ', ') as x
      where not pg_catalog.has_table_privilege(r.oid, c.oid, x))
    or exists (select from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
      and a.attstattarget is distinct from 0)
  order by c.relname`;

/**
 * Places in which tenants may make functions and operators that a program finds by their names alone, each with whether this
 * role may forbid it: schemas, and the database, which has none. Our statements name the schema of each function.
 */
const MAKING = `select n.nspname as schema, pg_catalog.pg_has_role(n.nspowner, 'usage') as ours
  from pg_roles r cross join pg_namespace n
  where r.rolname = '${TENANTS}' and (n.nspname = 'public' or n.nspname = any(pg_catalog.current_schemas(false)))
    and pg_catalog.has_schema_privilege(r.oid, n.oid, 'create')
  union all select null, false from pg_roles r join pg_database d on d.datname = pg_catalog.current_database()
  where r.rolname = '${TENANTS}' and pg_catalog.has_database_privilege(r.oid, d.oid, 'create')`;

/** The places where tenants are not kept apart although they are to be. */
export interface TenantGaps {
  /** Tables in which they see all tenants, or do nothing, as of a migration that ended before it was done. */
  readonly unguarded: readonly string[];
  /** Schemas in which they may make what others could run; null: the database, in which they may make schemas. */
  readonly making: readonly (string | null)[];
  /** Whether isolating them mends something of it. */
  readonly canBeMended: boolean;
}

/**
 * Isolates tenants from each other; again, it changes nothing. Returns what {@link keepLong} does. Throws storage_failed.
 */
export async function isolate(connections: StatementRunner): Promise<string | undefined> {
  const { rows: roles } = await run(connections, "select 1 from pg_roles where rolname = $1", [TENANTS]);
  if (roles.length === 0) {
    const made = await connections.run({ text: `create role ${TENANTS} nologin` });
    // Another process may have made it.
    if (made.kind !== "done" && !(made.kind === "failed" && made.code === "42710"))
      throw refused(`${made.reason}; have somebody who may make roles run: create role ${TENANTS} nologin`);
  }
  const { rows: columns } = await run(connections, COLUMNS, [Object.keys(RIGHTS)]);
  await run(connections, `${SOON}; ${statements(columns)}`, undefined);
  const { making, canBeMended } = await gapsOf(connections);
  // Databases that began as 14 or before let everybody make functions there.
  if (canBeMended && making.includes("public")) await run(connections, "revoke create on schema public from public");
  // With the statistics of a column its compression was given up, too.
  return keepLong(connections);
}

/** Returns the statements. Sent together, they are one transaction. */
function statements(columns: readonly Readonly<Record<string, unknown>>[]): string {
  const alone = Object.entries(RIGHTS).map(([table, rights]) => {
    const own = columns.filter((one) => one.table === table);
    // Plans of queries tell how frequent a value is that somebody asks for, whoever has it. Only a change of type forgets that.
    const forgotten = own
      .filter(({ gathered }) => gathered)
      .map(({ column, type }) => `alter column ${column} type ${type}`);
    const unasked = own.map(({ column }) => `alter column ${column} set statistics 0`);
    const name = `pi_fleet.${table}`;
    return `drop policy if exists own on ${name};
      ${forgotten.length > 0 ? `alter table ${name} ${forgotten.join(", ")};` : ""}
      alter table ${name} ${unasked.join(", ")};
      alter table ${name} enable row level security;
      create policy own on ${name} using (${OWN}) with check (${OWN});
      grant ${rights} on ${name} to ${TENANTS};`;
  });
  return `revoke all on schema pi_fleet from public;
    revoke all on all tables in schema pi_fleet from public, ${TENANTS};
    grant usage on schema pi_fleet to ${TENANTS};
    grant select on pi_fleet.meta to ${TENANTS};
    ${alone.join("\n")}`;
}

async function run(connections: StatementRunner, text: string, values?: readonly unknown[]) {
  const answer = await connections.run({ text, values, within: PATIENCE });
  if (answer.kind === "done") return answer;
  throw refused(whyUnchanged(answer));
}

function refused(reason: string): Failure {
  return new Failure("storage_failed", `The tenants of the fleet cannot be isolated (${reason}).`, { fleet: true });
}

/** Returns whether tenants are isolated, and the one that this role is bound to. */
export async function isolationOf(
  connections: StatementRunner,
): Promise<{ isIsolated: boolean; boundTo: string | null }> {
  return stateOf((statement) => connections.run(statement));
}

/** Returns where tenants that are isolated are not kept apart. */
export async function tenantGaps(connections: StatementRunner): Promise<TenantGaps> {
  if ((await isolationOf(connections)).isIsolated) return gapsOf(connections);
  return { unguarded: [], making: [], canBeMended: false };
}

async function gapsOf(connections: StatementRunner): Promise<TenantGaps> {
  const open = await run(connections, UNGUARDED, [Object.keys(RIGHTS), Object.values(RIGHTS)]);
  const made = await run(connections, MAKING);
  const unguarded = open.rows.map(({ table }) => String(table));
  const making = made.rows.map(({ schema }) => (schema === null ? null : String(schema)));
  const isOurs = made.rows.some(({ schema, ours }) => schema === "public" && ours === true);
  return { unguarded, making, canBeMended: unguarded.length > 0 || isOurs };
}

async function stateOf(ask: AskServer): Promise<{ isIsolated: boolean; boundTo: string | null }> {
  const answer = await ask({ text: STATE });
  // An engine without such policies.
  const { role, isolated, bound } = (answer.kind === "done" && answer.rows[0]) || {};
  return { isIsolated: isolated === true, boundTo: bound === true ? String(role) : null };
}

/** Throws unless the role of a connection has to do with the tenant of its address. */
export async function requireTenant(ask: AskServer, tenant: string): Promise<void> {
  const { boundTo } = await stateOf(ask);
  if (boundTo === null || boundTo === tenant) return;
  const named = tenant === "" ? "names no tenant" : `names the tenant ${tenant}`;
  throw new ServerRefusal(
    `the role ${boundTo} has to do with the tenant ${boundTo} alone, and the address ${named}; write tenant=${encodeURIComponent(boundTo)} in its query`,
  );
}
