/** Fleets in a PostgreSQL of the tests. */

import { readFileSync } from "node:fs";
import { parseAddress } from "../../../../src/modules/fleet/postgres/address.ts";
import { Connections } from "../../../../src/modules/fleet/postgres/connections.ts";
import { loadDriver } from "../../../../src/modules/fleet/postgres/driver.ts";
import type { KnownStore } from "../../../../src/modules/fleet/postgres/identity.ts";
import {
  type MigratedTables,
  migrate,
  readSchemaVersion,
  requireTables,
} from "../../../../src/modules/fleet/postgres/migration.ts";
import { PostgresFleet } from "../../../../src/modules/fleet/postgres/postgres.ts";
import { FleetProcesses } from "../../../../src/modules/fleet/postgres/processes.ts";
import { SqlAdminQueries } from "../../../../src/modules/fleet/postgres/sql-admin-queries.ts";
import { SqlCatalog } from "../../../../src/modules/fleet/postgres/sql-catalog.ts";
import type { FleetConnection } from "../../../../src/modules/fleet/store.ts";
import { realDisk } from "../../../../src/storage/fs/disk.ts";
import { fleetOptions } from "./table-fleet.ts";

/** A fleet as one process uses it. */
export interface SqlFleet extends FleetConnection {
  readonly fleet: PostgresFleet;
  readonly catalog: SqlCatalog;
  readonly adminQueries: SqlAdminQueries;
  readonly connections: Connections;
  migrate(): Promise<MigratedTables>;
  requireTables(): Promise<void>;
  schemaVersion(): Promise<number>;
}

export interface SqlFleetOptions {
  readonly store?: KnownStore;
  readonly answerWithin?: number;
  readonly most?: number;
  readonly lease?: number;
  /** True if it sends the words of texts. */
  readonly keepsWords?: boolean;
  /** The state folder of its machine; without one, it notes itself nowhere. */
  readonly stateFolder?: string;
}

/** Connects to a database for the process with this name. The caller closes it. */
export function sqlFleet(
  url: string,
  name: string,
  { answerWithin = 60_000, most = 4, lease = 30_000, keepsWords, store, stateFolder }: SqlFleetOptions = {},
): SqlFleet {
  const address = parseAddress(url, (path) => readFileSync(path, "utf8"));
  const connections = new Connections({
    ...{ address, driver: loadDriver, most, connectWithin: 60_000, answerWithin, store },
  });
  const since = "2026-01-24T16:22:26.831Z";
  const shown = { client: name, pid: 0, since, host: `host of ${name}` };
  const { tenant } = address;
  const place = stateFolder && { disk: realDisk, stateFolder, client: name, now: () => since };
  const processes = place ? new FleetProcesses(place) : undefined;
  const fleet = new PostgresFleet(connections, { id: name, shown, processes }, { lease, tenant, keepsWords });
  return {
    ...fleetOptions(fleet),
    fleet,
    catalog: new SqlCatalog(connections, tenant),
    adminQueries: new SqlAdminQueries(connections, name, tenant, lease, keepsWords),
    connections,
    migrate: () => migrate(connections),
    requireTables: () => requireTables(connections),
    schemaVersion: () => readSchemaVersion(connections),
  };
}
