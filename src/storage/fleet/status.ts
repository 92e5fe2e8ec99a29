/** The counts and sizes of a fleet, as `fleet status` tells them. */

import type { Connections } from "./connections.ts";
import { isolationOf, unguardedTables } from "./isolation.ts";

/** Counts and sizes of a fleet. */
export interface FleetStatus {
  readonly server: string;
  readonly durability: "replicated" | "primary";
  readonly schemaVersion: number;
  readonly sessions: number;
  readonly entries: number;
  readonly bytes: number;
  /** Sessions that a process has now. */
  readonly held: number;
  /** Bytes of the tables on the database's disk; null for a tenant, who would learn what others have. */
  readonly storedBytes: number | null;
  /** The tenant whose sessions these are; empty for the one without a name. */
  readonly tenant: string;
  /** Whether roles see only the tenant that has their name. */
  readonly isIsolated: boolean;
  /** Tables in which they see all tenants, or do nothing, although tenants are to be isolated. */
  readonly unguarded: readonly string[];
}

const STATUS = `select count(*) as sessions, coalesce(sum(entries), 0) as entries, coalesce(sum(bytes), 0) as bytes,
    count(*) filter (where holder is not null and lease_until > clock_timestamp()) as held,
    case when $2 then pg_total_relation_size('pi_fleet.entry') + pg_total_relation_size('pi_fleet.pack')
      + pg_total_relation_size('pi_fleet.session') end as stored
  from pi_fleet.session where tenant = $1 and state = 1`;

/** Returns counts and sizes; `schemaVersion`: 0 where there are no tables. Throws storage_failed. */
export async function statusOf(connections: Connections, tenant: string, schemaVersion: number): Promise<FleetStatus> {
  const { isIsolated, boundTo } = await isolationOf(connections);
  const unguarded = await unguardedTables(connections);
  const values = [tenant, boundTo === null];
  const [row] = schemaVersion === 0 ? [{}] : await connections.read({ text: STATUS, values });
  const { fact } = connections;
  const count = (name: string): number => Number((row as Record<string, unknown>)[name] ?? 0);
  return {
    server: `PostgreSQL ${fact?.version ?? ""}`.trim(),
    durability: fact?.durability ?? "primary",
    schemaVersion,
    ...{ sessions: count("sessions"), entries: count("entries"), bytes: count("bytes"), held: count("held") },
    storedBytes: boundTo === null ? count("stored") : null,
    ...{ tenant, isIsolated: isIsolated && unguarded.length === 0, unguarded },
  };
}
