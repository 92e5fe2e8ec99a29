/** A store whose sessions are also in the fleet. */

import { join } from "node:path";
import { Failure } from "../../core/failure.ts";
import { toReadableHeader } from "../../core/format/entry.ts";
import { makeTimestamp } from "../../core/ports/env.ts";
import type { AdminQueries } from "../../core/ports/fleet-admin-queries.ts";
import type { FleetCatalog } from "../../core/ports/fleet-catalog.ts";
import type { Store } from "../../core/ports/store.ts";
import type { ConnectedFleet, FleetSessions, FleetStores, LocalSessions } from "../../storage/fleet-module.ts";
import { getKnownPath, isBelow } from "../../storage/fs/confined-disk.ts";
import { isContainerName } from "../../storage/fs/container-paths.ts";
import { exists } from "../../storage/fs/disk.ts";
import { getInfo, useAndClose } from "../../storage/fs/files.ts";
import { readHeader } from "../../storage/fs/header.ts";
import { getArchiveFolder, makeFilePath } from "../../storage/fs/paths.ts";
import { findLastBackup, QUARANTINE_FOLDER } from "../../storage/fs/quarantine.ts";
import { isInPlace, moveToPlace, trashIf } from "../../storage/lifecycle/bring.ts";
import type { FileLogOptions } from "../../storage/log/write-state.ts";
import { findCurrentFile } from "../../storage/opening.ts";
import { quarantineEntries, quarantineMissing, readEntries } from "../../storage/quarantined-entries.ts";
import { type AdminPlace, FleetAdminService } from "./admin/admin.ts";
import { listSessionFiles, writeOnce } from "./admin/admin-files.ts";
import { makeFleetLifeCycle } from "./admin/life-cycle.ts";
import { FleetSource } from "./catalog/fleet-source.ts";
import { makeLockedFailure } from "./postgres/failures.ts";
import { readNotedFleet } from "./postgres/identity.ts";
import { type ArrivalPlace, arrive, findCopyByPath } from "./replica/arrival.ts";
import { FleetReplica } from "./replica/fleet-replica.ts";
import { JOURNAL_FOLDER, Journal } from "./replica/journal.ts";
import type { FleetOptions } from "./replica/options.ts";
import type { Outage } from "./replica/outage.ts";
import { makeOtherTenantFailure } from "./replica/refusals.ts";
import { isUnreadable, moveToBackup, restoreBackup } from "./replica/unreadable-copies.ts";
import { BackgroundUploader, type UploadPlace } from "./replica/uploads.ts";
import type { WhereaboutsPlace } from "./replica/whereabouts.ts";

/** A fleet, and how it is asked. */
export interface FleetConnection extends Omit<FleetOptions, "quarantineEntries" | "journal">, ConnectedFleet {
  readonly outage?: Outage;
  readonly catalog?: FleetCatalog;
  readonly adminQueries?: AdminQueries;
  /** Address without password; identifies the fleet in the journal. */
  readonly shown?: string;
}

/** Returns the part of a fleet in stores. */
export function makeFleetStores(
  connection: FleetConnection,
  { disk, env, stateFolder, complain }: Parameters<ConnectedFleet["makeStores"]>[0],
): FleetStores {
  const { fleet, shown } = connection;
  const own = shown === undefined ? undefined : readNotedFleet(disk, stateFolder, shown);
  const options: FleetOptions = {
    ...connection,
    journal: new Journal(disk, join(stateFolder, JOURNAL_FOLDER), () => makeTimestamp(env), own, complain),
    quarantineEntries: (log, lines) => quarantineEntries(disk, join(stateFolder, QUARANTINE_FOLDER), log, lines),
  };
  return {
    withReplica: (given) => withReplica(given, options),
    publishThere: makeFleetStore,
    async requireFree(id) {
      const there = await fleet.look(id);
      if (there?.holder) throw makeLockedFailure(there.holder, id);
    },
    findOthers: (sessionId) => {
      const findTenant = options.journal.makeTenantFinder(sessionId);
      return (copy) => findTenant(copy) !== undefined;
    },
    requireOwn(id, path) {
      const tenant = options.journal.makeTenantFinder(id)({ id, path });
      if (tenant !== undefined) throw makeOtherTenantFailure(id, path, tenant);
    },
    join: (local) => joinFleet(connection, options, local),
  };
}

function joinFleet(
  { catalog, adminQueries }: FleetConnection,
  options: FleetOptions,
  local: LocalSessions,
): FleetSessions {
  const { fleet, journal, outage, quarantineEntries: keep } = options;
  const { lifecycle, openCopy, openForReading, find, placeFor, isOutside } = local;
  const { disk, locks, env, paths, allowed } = lifecycle;
  const archive = getArchiveFolder(paths);
  const files: WhereaboutsPlace = {
    ...{ fleet, adminQueries, journal },
    filesOf: lifecycle.withId,
    open: openCopy,
    isInPlace: (file, place) => isInPlace(lifecycle, file, place),
    bringTo: (file, place, isMeant) => moveToPlace(lifecycle, file, place, isMeant),
    moveToTrash: (file, isMeant) => trashIf(lifecycle, file, isMeant),
  };
  const arrival: ArrivalPlace = {
    ...{ ...files, catalog, outage, placeFor, find },
    stores: local.copies,
    storeAt: local.storeAt,
    headerAt(file) {
      const stored = readHeader(disk, file);
      return stored && toReadableHeader(stored);
    },
    holds: (file) => exists(disk, file) || findCurrentFile(disk, file) !== file,
    isListed: (file) => !isOutside(file),
    isUnreadable: (file) => exists(disk, file) && isUnreadable(file, openCopy),
    moveToBackup: (file, isStillSo = () => isUnreadable(file, openCopy)) =>
      moveToBackup({ disk, locks }, file, isStillSo),
    restoreBackup: (backup, file) => restoreBackup(disk, backup, file),
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
      if (found.length > 0) useAndClose(openCopy(file), (log) => quarantineMissing(log, found, keep));
    },
  };
  const bring = (sessionId: string, isOpen = false): Promise<void> =>
    arrive({ ...arrival, isOpen: () => isOpen }, { sessionId, isWhole: true });
  const uploads: UploadPlace = { journal, openCopy, find: lifecycle.find, arrive: bring };
  const uploader = new BackgroundUploader(uploads, options);
  const admin: AdminPlace | undefined = adminQueries && {
    ...{ ...uploads, fleet, adminQueries, arrive: bring, memory: local.memory },
    arriveAt: (sessionPath) => arrive({ ...arrival, isOpen: () => false }, { sessionPath }),
    options: { ...options, outage: undefined },
    local: local.catalog,
    open: openForReading,
    isOurs: local.isOurs,
    listSessionFiles: (folder, unreadable) => listSessionFiles(disk, allowed(folder), unreadable),
    sizeOf: (file) => (isContainerName(file) ? null : (getInfo(disk, file)?.size ?? null)),
    fileIn: (folder, header) => makeFilePath({ ...paths, flat: undefined, root: allowed(folder) }, header),
    write: (file, pieces) => writeOnce(disk, file, pieces, local.isDurable),
  };
  return {
    arrive: (where, isOpen, progress) => arrive({ ...arrival, isOpen }, where, progress),
    copyFor: (path) => findCopyByPath(arrival, path),
    uploadPending: (open) => uploader.renew(open),
    admin: admin && new FleetAdminService(admin),
    source:
      catalog &&
      new FleetSource({ there: catalog, local: local.catalog, placeFor, sha256: (bytes) => env.sha256(bytes) }),
    wrapLifeCycle: (own) =>
      adminQueries
        ? makeFleetLifeCycle(own, {
            ...{ ...files, adminQueries, placeFor, idsIn: local.idsIn, arrive: bring },
            idAt: local.idIn,
            isArchived: (file) => isBelow(getKnownPath(disk, archive), getKnownPath(disk, file)),
          })
        : own,
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
        await log.replica?.replicate(log.nodes.count);
        return log;
      } catch (error) {
        // The fleet may have it: a repeated request finds it by the key in the local file.
        const isUnknown = error instanceof Failure && error.name === "outcome_unknown";
        if (isUnknown) log.close();
        else log.discard();
        throw error;
      }
    },
  };
}
