/** The counts and sizes of a fleet for `fleet status`. */

import type { FleetStatus } from "../../../core/ports/fleet-database.ts";
import { BULK_TIMEOUT, type Connections } from "./connections.ts";
import { parseDescription } from "./fact-parts.ts";
import { HELD, readStandbys, TABLE_SIZES } from "./metrics.ts";
import { HOLDER, parseHolderRow } from "./sql-values.ts";

/** Interval at which the server checks that the client is still connected; 0: never. */
const ABANDONED = "select pg_catalog.current_setting('client_connection_check_interval', true) as every";

const STATUS = `select count(*) as sessions, coalesce(pg_catalog.sum(entries), 0) as entries, coalesce(pg_catalog.sum(bytes), 0) as bytes,
    count(*) filter (where ${HELD}) as held,
    (select pg_catalog.sum(table_bytes) from (${TABLE_SIZES}) t) as stored
  from pi_fleet.session where tenant = $1 and state = 1`;
const WRITERS = `select id, ${HELD} as leased, ${HOLDER}, facts
  from pi_fleet.session s left join pi_fleet.described d on d.tenant = s.tenant and d.session_id = s.id
  where s.tenant = $1 and state = 1 and holder is not null order by leased desc, lease_until desc, id limit 50`;

/** $1: the tenant; empty: all of them. */
const OF_TENANT = "state = 1 and ($1 = '' or tenant = $1)";
const TENANTS = `select tenant, count(*) as sessions, pg_catalog.sum(entries) as entries, pg_catalog.sum(bytes) as bytes
  from pi_fleet.session where ${OF_TENANT} group by tenant order by 4 desc, tenant`;
const LARGEST = `select tenant, id, entries, bytes from pi_fleet.session where ${OF_TENANT}
  order by bytes desc, tenant, id limit 10`;

/** Returns counts and sizes; `schemaVersion`: 0 if tables are missing. Throws storage_failed. */
export async function readFleetStatus(
  connections: Connections,
  tenant: string,
  schemaVersion: number,
): Promise<FleetStatus> {
  const [abandoned] = await connections.read({ text: ABANDONED });
  const read = async (text: string) =>
    schemaVersion === 0 ? [] : connections.read({ text, values: [tenant], within: BULK_TIMEOUT });
  const [row = {}] = await read(STATUS);
  const { fact } = connections;
  const count = (name: string): number => Number((row as Record<string, unknown>)[name] ?? 0);
  return {
    server: `PostgreSQL ${fact?.version ?? ""}`.trim(),
    durability: fact?.durability ?? "primary",
    schemaVersion,
    ...{ sessions: count("sessions"), entries: count("entries"), bytes: count("bytes"), held: count("held") },
    ...{ storedBytes: count("stored"), tenant },
    tenants: (await read(TENANTS)).map((one) => ({
      ...{ tenant: String(one.tenant), sessions: Number(one.sessions) },
      ...{ entries: Number(one.entries), bytes: Number(one.bytes) },
    })),
    largest: (await read(LARGEST)).map((one) => ({
      ...{ tenant: String(one.tenant), sessionId: String(one.id) },
      ...{ entries: Number(one.entries), bytes: Number(one.bytes) },
    })),
    writers: (await read(WRITERS)).map(({ id, leased, facts, ...holder }) => {
      const { client, host = "", since } = parseHolderRow(holder);
      const { name = null, firstMessage = null } = parseDescription(facts) ?? {};
      return { ...{ sessionId: String(id), name: name ?? firstMessage }, leased: leased === true, client, host, since };
    }),
    standbys: await readStandbys(connections),
    endsAbandoned: typeof abandoned?.every === "string" ? abandoned.every !== "0" : null,
  };
}
