/**
 * The figures of a fleet for programs that watch it, over all tenants. They are asked from the database alone, and each
 * group of them in a statement of its own: a group that the role may not see, or that the engine does not have, is left out.
 */

import type { JournaledSession } from "../../../core/ports/fleet.ts";
import type { FleetMetric, FleetStatus, MetricSample } from "../../../core/ports/fleet-database.ts";
import type { Connections } from "./connections.ts";
import type { Rows, SqlStatement } from "./driver.ts";

/** Figures that one statement returns: a column each. A column without a value has no figure. */
interface MetricGroup {
  readonly text: string;
  readonly values?: readonly unknown[];
  /** The column that is the label of those in its row. */
  readonly label?: string;
  /** Columns, with the sentences about them. */
  readonly columns: Readonly<Record<string, string>>;
}

/** SQLSTATEs for a right that is missing, and for a function, table or column that an engine lacks. */
const NOT_SEEN = new Set(["42501", "42883", "42P01", "42703", "0A000"]);

export const HELD = "holder is not null and lease_until > pg_catalog.clock_timestamp()";
/** $1: duration of a lease in seconds. */
const SESSIONS = `select s.*, (select count(*) from pi_fleet.behind b where b.tenant = s.tenant) as behind_sessions
  from (select tenant, count(*) filter (where state = 1) as sessions,
      coalesce(pg_catalog.sum(entries) filter (where state = 1), 0) as entries,
      coalesce(pg_catalog.sum(bytes) filter (where state = 1), 0) as line_bytes,
      count(*) filter (where state < 2 and ${HELD}) as held_sessions,
      count(*) filter (where state = 2 and removed_at is null) as deleted_sessions,
      greatest(0, $1::float8 - extract(epoch from pg_catalog.min(lease_until) filter (where state < 2 and ${HELD})
        - pg_catalog.clock_timestamp())) as oldest_lease_seconds
    from pi_fleet.session group by tenant) s order by tenant`;

/** A role that may not see the activity of connections counts those of all users, also replication. */
const CONNECTIONS = `select pg_catalog.current_setting('max_connections') as connections_limit,
    (select count(*) from pg_catalog.pg_stat_activity where usesysid is not null and datid is not null
      and coalesce(backend_type, 'client backend') = 'client backend') as connections`;

/** A role that may see the number of standbys, but no details, gets no figures. */
const STANDBYS = `select case when is_seen then count end as standbys, case when is_seen then synchronous end as synchronous_standbys
  from (select count(*) as count, count(*) = pg_catalog.count(sync_state) as is_seen,
      count(*) filter (where sync_state in ('sync', 'quorum')) as synchronous
    from pg_catalog.pg_stat_replication where state is distinct from 'backup') r`;

/** Several standbys may have one name. */
const LAG = `select application_name as standby,
    greatest(0, pg_catalog.max(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), flush_lsn))) as standby_lag_bytes
  from pg_catalog.pg_stat_replication where flush_lsn is not null group by application_name order by application_name`;

/** The sizes of all tables of ours, with their indexes and long values. */
export const TABLE_SIZES = `select c.relname as "table", pg_catalog.pg_total_relation_size(c.oid) as table_bytes
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'pi_fleet' and c.relkind = 'r' order by c.relname`;

/** Returns the queries. `lease`: duration of a lease in milliseconds. */
function metricGroups(lease: number): readonly MetricGroup[] {
  return [
    {
      text: SESSIONS,
      values: [lease / 1000],
      label: "tenant",
      columns: {
        sessions: "Sessions that are not deleted.",
        entries: "Entries of these sessions.",
        line_bytes: "Bytes of the lines of these entries, before the database compresses them.",
        held_sessions: "Sessions that a server holds by a lease.",
        deleted_sessions: "Deleted sessions that can be restored until they are pruned.",
        behind_sessions: "Sessions whose words and usage are not all there yet.",
        oldest_lease_seconds: "Seconds since the oldest lease was given or renewed; 0 without one.",
      },
    },
    {
      text: TABLE_SIZES,
      label: "table",
      columns: { table_bytes: "Bytes of a table on the database's disk, with its indexes." },
    },
    {
      text: CONNECTIONS,
      columns: {
        connections: "Connections of clients to the database server.",
        connections_limit: "Connections that the server allows (max_connections).",
      },
    },
    {
      text: STANDBYS,
      columns: {
        standbys: "Standbys that are connected to the primary.",
        synchronous_standbys: "Standbys for which commits wait.",
      },
    },
    {
      text: LAG,
      label: "standby",
      columns: { standby_lag_bytes: "Bytes of the primary's log that a standby has not on its disk yet." },
    },
  ];
}

function metric(name: string, help: string, samples: readonly MetricSample[]): FleetMetric {
  return { name: `pi_fleet_${name}`, help, samples };
}

function single(name: string, help: string, value: number): FleetMetric {
  return metric(name, help, [{ labels: {}, value }]);
}

/** Returns whether the database answers, as a figure. */
export function makeAnsweringMetric(isAnswering: boolean): FleetMetric {
  return single(
    "up",
    "1 if the database answers and has the tables of this program, 0 otherwise.",
    Number(isAnswering),
  );
}

/** Returns the rows of a statement; null if the role may not see them, or the engine does not have them. Throws storage_failed. */
async function readIfSeen(connections: Connections, statement: SqlStatement): Promise<Rows["rows"] | null> {
  const answer = await connections.run(statement);
  if (answer.kind === "failed" && NOT_SEEN.has(answer.code)) return null;
  return answer.kind === "done" ? answer.rows : connections.read(statement);
}

/** Returns the numbers of standbys. Throws storage_failed. */
export async function readStandbys(connections: Connections): Promise<FleetStatus["standbys"]> {
  const [row] = (await readIfSeen(connections, { text: STANDBYS })) ?? [];
  if (row?.standbys == null) return null;
  return { all: Number(row.standbys), synchronous: Number(row.synchronous_standbys) };
}

/** Returns the figures of the database. Throws storage_failed. */
export async function readDatabaseMetrics(connections: Connections, lease: number): Promise<FleetMetric[]> {
  const found: FleetMetric[] = [];
  for (const { text, values, label, columns } of metricGroups(lease)) {
    const rows = await readIfSeen(connections, { text, values: [...(values ?? [])] });
    if (rows === null) continue;
    for (const [column, help] of Object.entries(columns)) {
      const samples = rows
        .filter((row) => row[column] !== null)
        .map((row) => ({
          labels: label === undefined ? {} : { [label]: String(row[label] ?? "") },
          value: Number(row[column]),
        }));
      if (samples.length > 0) found.push(metric(column, help, samples));
    }
  }
  const isReplicated = connections.fact?.durability === "replicated";
  const help = "1 if commits are on a second machine before they are acknowledged, 0 otherwise.";
  return [...found, single("replicated", help, Number(isReplicated))];
}

/** Returns the figures of this machine: its pending uploads, and its files in quarantine. */
export function makeMachineMetrics(notes: readonly JournaledSession[], keptFiles: number, now: number): FleetMetric[] {
  const pending = notes.filter(({ from, unreadable }) => from !== null && unreadable === undefined);
  const ages = pending.map(({ since }) => (now - Date.parse(since)) / 1000).filter((age) => age > 0);
  const unreadable = notes.filter((note) => note.unreadable !== undefined).length;
  return [
    single(
      "local_sessions",
      "Sessions with entries that only this machine has.",
      new Set(pending.map(({ sessionId }) => sessionId)).size,
    ),
    single(
      "local_oldest_seconds",
      "Seconds since the oldest of them got such entries; 0 without one.",
      Math.max(0, ...ages),
    ),
    single("local_unreadable_notes", "Notes about such sessions that cannot be read.", unreadable),
    single("local_kept_files", "Files of entries that the fleet refused and this machine keeps.", keptFiles),
  ];
}
