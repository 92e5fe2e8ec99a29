/** A store whose sessions are also in the fleet. */

import { join } from "node:path";
import { Failure } from "../../core/failure.ts";
import type { SessionSource } from "../../core/ports/catalog.ts";
import type { AdminQueries } from "../../core/ports/fleet-admin-queries.ts";
import type { FleetCatalog } from "../../core/ports/fleet-catalog.ts";
import type { LifeCycle } from "../../core/ports/lifecycle.ts";
import type { Store } from "../../core/ports/store.ts";
import type { Stores } from "../../core/ports/stores.ts";
import type { Disk } from "../../storage/fs/disk.ts";
import { useAndClose } from "../../storage/fs/files.ts";
import { findLastBackup } from "../../storage/fs/quarantine.ts";
import { FileLog } from "../../storage/log/file-log.ts";
import type { FileLogOptions } from "../../storage/log/write-state.ts";
import { type AdminPlace, FleetAdminService } from "./admin/admin.ts";
import { type LifeCyclePlace, makeFleetLifeCycle } from "./admin/life-cycle.ts";
import { FleetSource, type FleetSourceOptions } from "./catalog/fleet-source.ts";
import { makeLockedFailure } from "./postgres/failures.ts";
import { readNotedFleet } from "./postgres/identity.ts";
import { type ArrivalPlace, arrive, findCopyByPath } from "./replica/arrival.ts";
import { FleetReplica } from "./replica/fleet-replica.ts";
import { JOURNAL_FOLDER, Journal } from "./replica/journal.ts";
import type { FleetOptions } from "./replica/options.ts";
import { quarantineEntries, quarantineMissing, readEntries } from "./replica/quarantined-entries.ts";
import { BackgroundUploader, type UploadPlace } from "./replica/uploads.ts";

/** A fleet, and how it is asked. */
export interface FleetConnection extends Omit<FleetOptions, "quarantineEntries" | "journal"> {
  readonly catalog?: FleetCatalog;
  readonly adminQueries?: AdminQueries;
  /** Address without password; identifies the fleet in the journal. */
  readonly shown?: string;
}

/** The part of a fleet in the stores of one server. */
export interface FleetStores {
  withReplica<T extends FileLogOptions>(options: T): T;
  store(store: Store): Store;
  /** Throws session_locked if another machine writes to a session. */
  readonly requireFree?: (id: string) => Promise<void>;
  /** Returns operations on whole sessions that are applied to the fleet, too. */
  lifeCycle(own: LifeCycle, place: Omit<LifeCyclePlace, "fleet" | "adminQueries" | "journal">): LifeCycle;
  /** Returns the administration of the fleet, if it has admin queries. */
  admin(place: Omit<AdminPlace, "fleet" | "adminQueries" | "options">): Pick<Stores, "fleet">;
  /** Returns the background uploader. */
  uploader(place: Omit<UploadPlace, "journal">): Pick<Stores, "uploadPending">;
  /** Returns the source of its sessions for lists; undefined if it cannot be asked for them. */
  source(of: Omit<FleetSourceOptions, "there">): SessionSource | undefined;
  /** Returns the functions that fetch sessions of other machines, if possible. */
  arrivals(
    place: Omit<
      ArrivalPlace,
      | "fleet"
      | "adminQueries"
      | "journal"
      | "catalog"
      | "outage"
      | "isOpen"
      | "acknowledged"
      | "salvage"
      | "readEntries"
    >,
  ): {
    arrive?: Stores["arrive"];
    /** See {@link findCopyByPath}. */
    copyFor?(path: string): string | undefined;
  };
}

/** Places for quarantined entries and for pending uploads. */
interface FleetPlaces {
  readonly disk: Disk;
  readonly stateFolder: string;
  readonly quarantine: string;
  /** Returns the time in ISO 8601. */
  readonly now: () => string;
}

/** Returns the part of a fleet in stores. */
export function makeFleetStores(connection: FleetConnection, places: FleetPlaces): FleetStores {
  const { disk, stateFolder, now } = places;
  const quarantine: FleetOptions["quarantineEntries"] = (log, lines) =>
    quarantineEntries(disk, places.quarantine, log, lines);
  const { fleet, catalog, adminQueries, outage, shown } = connection;
  const own = shown === undefined ? undefined : readNotedFleet(disk, stateFolder, shown);
  const journal = new Journal(disk, join(stateFolder, JOURNAL_FOLDER), now, own);
  return {
    withReplica: (options) => withReplica(options, { ...connection, quarantineEntries: quarantine, journal }),
    store: makeFleetStore,
    async requireFree(id) {
      const there = await fleet.look(id);
      if (there?.holder) throw makeLockedFailure(there.holder);
    },
    arrivals(own) {
      const place: ArrivalPlace = {
        ...{ ...own, fleet, adminQueries, journal, catalog, outage },
        acknowledged: (of) =>
          "sessionId" in of
            ? journal.ends.of(of.sessionId)
            : journal.ends
                .all()
                .filter(({ sessionPath }) => sessionPath === of.sessionPath)
                .sort((a, b) => (a.at < b.at ? 1 : -1))[0],
        readEntries: (file, most) => readEntries(disk, file).slice(0, most),
        salvage(file, lines) {
          const backup = findLastBackup(disk, file, "spoilt");
          const found = [...(backup === undefined ? [] : readEntries(disk, backup)), ...lines];
          if (found.length > 0) useAndClose(own.open(file), (log) => quarantineMissing(log, found, quarantine));
        },
      };
      return {
        copyFor: (path) => findCopyByPath(place, path),
        arrive: (where, isOpen, progress) => arrive({ ...place, isOpen }, where, progress),
      };
    },
    lifeCycle: (own, place) =>
      adminQueries ? makeFleetLifeCycle(own, { ...place, fleet, adminQueries, journal }) : own,
    admin: (place) =>
      adminQueries
        ? {
            fleet: new FleetAdminService({
              ...place,
              fleet,
              adminQueries,
              options: { ...connection, journal, outage: undefined },
            }),
          }
        : {},
    uploader(place) {
      const uploader = new BackgroundUploader({ ...place, journal }, connection);
      return { uploadPending: (open) => uploader.renew(open) };
    },
    source: (of) => catalog && new FleetSource({ ...of, there: catalog }),
  };
}

/** Returns the options of a backend whose logs are working copies of sessions of a fleet. */
export function withReplica<T extends FileLogOptions>(options: T, fleet: FleetOptions): T {
  // New files are synced, so that a loss of power leaves no empty ones.
  return { ...options, durability: "sync", replica: (log) => new FleetReplica(log, fleet) };
}

/** Returns a store that publishes a session in the fleet before it is announced. */
export function makeFleetStore(store: Store): Store {
  return {
    ...store,
    // A fleet is waited for.
    publishNow: undefined,
    async publish(beginning, content) {
      const log = await store.publish(beginning, content);
      try {
        if (log instanceof FileLog) {
          await log.replica?.replicate(log.nodes.count);
          // The fleet has it, or its entries are pending: from here on, no failure removes it locally.
          log.backend.discard = undefined;
        }
        return log;
      } catch (error) {
        // The fleet may have it: a repeated request finds it by the key in the local file.
        const isUnknown = error instanceof Failure && error.name === "outcome_unknown";
        if (log.discard && !isUnknown) log.discard();
        else log.close();
        throw error;
      }
    },
  };
}
