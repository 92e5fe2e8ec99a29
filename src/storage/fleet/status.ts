/** The counts and sizes of a fleet, as `fleet status` tells them. */

import type { Connections } from "./connections.ts";
import { PATIENCE } from "./keeping.ts";

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
  /** Bytes of the tables on the database's disk, for all tenants together. */
  readonly storedBytes: number;
  /** The tenant whose sessions these are; empty for the one without a name. */
  readonly tenant: string;
  /** Whether a statement ends for which nobody waits any more; null: the server does not say. */
  readonly endsAbandoned: boolean | null;
}

/** How often the server looks whether somebody waits for an answer; 0: never. */
const ABANDONED = "select pg_catalog.current_setting('client_connection_check_interval', true) as every";

const STATUS = `select count(*) as sessions, coalesce(pg_catalog.sum(entries), 0) as entries, coalesce(pg_catalog.sum(bytes), 0) as bytes,
    count(*) filter (where holder is not null and lease_until > clock_timestamp()) as held,
    pg_catalog.pg_total_relation_size('pi_fleet.entry') + pg_catalog.pg_total_relation_size('pi_fleet.pack')
      + pg_catalog.pg_total_relation_size('pi_fleet.session') as stored
  from pi_fleet.session where tenant = $1 and state = 1`;

/** Returns counts and sizes; `schemaVersion`: 0 where there are no tables. Throws storage_failed. */
export async function statusOf(connections: Connections, tenant: string, schemaVersion: number): Promise<FleetStatus> {
  const [abandoned] = await connections.read({ text: ABANDONED });
  const asked = { text: STATUS, values: [tenant], within: PATIENCE };
  const [row] = schemaVersion === 0 ? [{}] : await connections.read(asked);
  const { fact } = connections;
  const count = (name: string): number => Number((row as Record<string, unknown>)[name] ?? 0);
  return {
    server: `PostgreSQL ${fact?.version ?? ""}`.trim(),
    durability: fact?.durability ?? "primary",
    schemaVersion,
    ...{ sessions: count("sessions"), entries: count("entries"), bytes: count("bytes"), held: count("held") },
    ...{ storedBytes: count("stored"), tenant },
    endsAbandoned: typeof abandoned?.every === "string" ? abandoned.every !== "0" : null,
  };
}
