/** The database of a fleet as its operator asks it, with the notes of this machine. */

import { join } from "node:path";
import { Failure } from "../../core/failure.ts";
import { makeTimestamp } from "../../core/ports/env.ts";
import type { FleetDatabase } from "../../core/ports/fleet-database.ts";
import type { FleetPlace } from "../../storage/fleet-module.ts";
import { QUARANTINE_FOLDER } from "../../storage/fs/quarantine.ts";
import { openQuarantine } from "../../storage/quarantined-entries.ts";
import type { PostgresConnection } from "./connect.ts";
import { openKnownStore } from "./postgres/identity.ts";
import { makeAnsweringMetric, makeMachineMetrics, readDatabaseMetrics } from "./postgres/metrics.ts";
import { migrate, readSchemaVersion, requireTables } from "./postgres/migration.ts";
import { LEASE } from "./postgres/postgres.ts";
import { SCHEMA_VERSION } from "./postgres/schema.ts";
import { readFleetStatus } from "./postgres/status.ts";
import { resolveWholeId } from "./replica/arrival.ts";
import { JOURNAL_FOLDER, Journal } from "./replica/journal.ts";

export function makeFleetDatabase(
  { connections, catalog, adminQueries, pruning, shown, tenant, close }: PostgresConnection,
  { disk, env, stateFolder }: Pick<FleetPlace, "disk" | "env" | "stateFolder">,
): FleetDatabase {
  const journal = new Journal(disk, join(stateFolder, JOURNAL_FOLDER), () => makeTimestamp(env));
  return {
    ...{ shown, tenant },
    async status() {
      const found = await readFleetStatus(connections, tenant, await readSchemaVersion(connections));
      if (found.schemaVersion !== SCHEMA_VERSION) return found;
      const { named, idleSessions, idle, idleBytes, idleNamed, idleArchived, ...deleted } = await pruning.find({
        rows: 0,
      });
      return { ...found, deleted };
    },
    async metrics(now) {
      const kept = openQuarantine(disk, join(stateFolder, QUARANTINE_FOLDER)).list();
      const machine = makeMachineMetrics(journal.all(), kept.length, now);
      try {
        await requireTables(connections);
        const found = await readDatabaseMetrics(connections, LEASE);
        return { away: null, metrics: [makeAnsweringMetric(true), ...found, ...machine] };
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        return { away: error.message, metrics: [makeAnsweringMetric(false), ...machine] };
      }
    },
    async migrate(confirm) {
      const { known, remedy } = openKnownStore(disk, stateFolder, shown);
      const { store } = known();
      if (store !== undefined && (await readSchemaVersion(connections)) === 0) await confirm({ store, remedy });
      return migrate(connections);
    },
    requireTables: () => requireTables(connections),
    findPrunable: (ages) => pruning.find(ages),
    prune: (ages, progress) => pruning.prune(ages, progress),
    listPendingIds: () =>
      journal.all().flatMap(({ sessionId, sessionPath, from, unreadable }) => {
        if (unreadable !== undefined)
          throw new Failure(
            "storage_failed",
            `${sessionPath} says of a session that only this machine has some of its entries, and cannot be read (${unreadable}). Nothing was removed. fleet push says what to do with it.`,
            { sessionPath },
            { retryable: false },
          );
        return from === null ? [] : [sessionId];
      }),
    async takeAway(beginning) {
      await requireTables(connections);
      const sessionId = await resolveWholeId(catalog, beginning);
      return { sessionId, holder: await adminQueries.takeAway(sessionId) };
    },
    close,
  };
}
