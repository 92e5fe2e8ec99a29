/** The tables of a fleet. A version is a list of statements that only add; none is changed after it was released. */

/** Statements of each version, from 1 on. */
const VERSIONS: readonly string[] = [
  `create table pi_fleet.session (
    tenant text not null,
    id text not null,
    generation int not null default 0,
    header bytea not null,
    entries bigint not null default 0,
    bytes bigint not null default 0,
    chain bytea not null,
    epoch bigint not null default 0,
    holder text,
    holder_name text,
    holder_host text,
    holder_since text,
    lease_until timestamptz,
    state smallint not null default 0,
    made_at timestamptz not null default clock_timestamp(),
    changed_at timestamptz not null default clock_timestamp(),
    primary key (tenant, id)
  ) with (fillfactor = 70);
  comment on column pi_fleet.session.state is '0 being filled, 1 there, 2 deleted';
  comment on column pi_fleet.session.chain is 'hash chain over the lines, as in Session Store V2';
  create table pi_fleet.entry (
    tenant text not null,
    session_id text not null,
    generation int not null,
    seq bigint not null,
    epoch bigint not null,
    head text not null,
    line bytea not null,
    primary key (tenant, session_id, generation, seq)
  );
  comment on column pi_fleet.entry.head is 'id, parent, type and role as JSON, whose escapes stand for what text cannot hold';`,
];

/** The version that this program reads and writes. */
export const SCHEMA_VERSION = VERSIONS.length;

/** Statement that returns the version of the tables; it fails where there are none. */
export const VERSION_QUERY = "select value from pi_fleet.meta where key = 'version'";

/** Returns the statements that bring tables from one version to the next. Sent together, they are one transaction. */
export function upgrade(from: number): string {
  const first = `create schema if not exists pi_fleet;
    create table if not exists pi_fleet.meta (key text primary key, value text not null);
    insert into pi_fleet.meta (key, value) values ('version', '0') on conflict (key) do nothing;
    insert into pi_fleet.meta (key, value) values ('store', gen_random_uuid()::text) on conflict (key) do nothing;`;
  // The row of the version is the lock: who comes second waits for it, and then fails at what is there already.
  return `${from === 0 ? first : ""}
    update pi_fleet.meta set value = '${from + 1}' where key = 'version' and value = '${from}';
    ${VERSIONS[from]}`;
}
