/** Locates the parts of a session that is, was or will be in Store V2, and finds out which of them is the session. */

import { basename, dirname, join } from "node:path";
import { isMissing } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { bytesOf } from "../../core/json/json.ts";
import type { SessionLocation, Status } from "../../core/ports/migrations.ts";
import { CONTAINER, isContainerName, ledgerFile, manifestFile, pointerFile } from "../fs/container-paths.ts";
import { type Disk, exists } from "../fs/disk.ts";
import { guarded, lastName, nth, replaceFile } from "../fs/files.ts";
import { headerBytes, headerOfBytes, type StoredHeader } from "../fs/header.ts";
import { noSession } from "../log/failures.ts";
import { encodePointer, type Pointer, readManifest, readPointer } from "./documents.ts";
import { Malformed } from "./frame.ts";
import { readLedger } from "./ledger.ts";
import { containerFor, containerOf, fileReplacing, frozenFrom, isUnpointed, snapshotOf } from "./pointer.ts";
import { beginsDatabase, idIn, isDatabase } from "./sqlite-v1.ts";
import type { StoreState } from "./states.ts";

/** Returns the parts of the session at a path, which may name its file or its container. Throws session_not_found. */
export function locationOf(disk: Disk, path: string): SessionLocation {
  return guarded("looking for the session", () => {
    const folder = dirname(path);
    if (isContainerName(path)) {
      const pointer = pointerAt(disk, pointerFile(path));
      return locationIn(folder, basename(path, CONTAINER), pointer?.source ?? null);
    }
    // A file and its frozen copy are one session.
    const source = frozenFrom(path) ?? path;
    for (const file of [source, snapshotOf(source)]) {
      const id = headerAt(disk, file)?.id;
      if (typeof id === "string") return locationIn(folder, id, basename(source));
    }
    const container = containerFor(disk, source);
    if (container !== null) return locationIn(folder, basename(container, CONTAINER), basename(source));
    throw noSession(path);
  });
}

/** Returns the header of a session file or of a database; undefined when there is none. Throws what `idIn` throws. */
export function headerAt(disk: Disk, file: string): StoredHeader | undefined {
  try {
    const bytes = headerBytes(disk, file);
    if (bytes && beginsDatabase(bytes)) return { id: idIn(disk, file), version: 3 };
    return bytes ? headerOfBytes(bytes) : undefined;
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

export function locationIn(folder: string, sessionId: string, source: string | null): SessionLocation {
  const container = join(folder, `${sessionId}${CONTAINER}`);
  return {
    sessionId,
    container,
    staging: `${container}.staging`,
    pointer: pointerFile(container),
    source: source === null ? null : join(folder, source),
  };
}

/** Returns the current path of a session that had this path before a migration or rollback; else the path itself. */
export function currentPathOf(disk: Disk, path: string): string {
  if (isContainerName(path)) return fileReplacing(disk, path) ?? path;
  const found = headerAt(disk, path) ?? headerAt(disk, snapshotOf(path));
  if (found === undefined) return containerFor(disk, path) ?? path;
  return containerOf(disk, path, typeof found.id === "string" ? found.id : undefined) ?? path;
}

export function pointerAt(disk: Disk, file: string): Pointer | null {
  try {
    return readPointer(disk, file);
  } catch (error) {
    if (!(error instanceof Malformed)) throw error;
    throw new Failure(
      "corrupt",
      `The pointer file ${basename(file)} is damaged: ${error.message}. Restore it from a copy, or move it away: then the session file is the session if it exists, else the container is.`,
      {},
      { cause: error },
    );
  }
}

/** Returns how far the migration or rollback of a session has come. Changes nothing. Throws errno errors. */
export function status(disk: Disk, path: string): Status {
  const location = locationOf(disk, path);
  const pointer = pointerAt(disk, location.pointer);
  const ledger = [location.container, location.staging].map(ledgerFile).find((file) => exists(disk, file));
  const events = ledger === undefined ? [] : readLedger(disk, ledger).events;
  const status = {
    location,
    phase: pointer?.phase ?? null,
    snapshotId: pointer?.snapshotId ?? null,
    correlationId: pointer?.correlationId ?? events.at(-1)?.correlationId ?? null,
    reason: pointer?.reason ?? null,
    snapshotPath:
      location.source !== null && exists(disk, snapshotOf(location.source)) ? snapshotOf(location.source) : null,
    events,
  };
  const as = (active: Status["active"], state: StoreState, interrupted = false): Status => ({
    ...status,
    active,
    state,
    interrupted,
  });
  const isContainerThere = exists(disk, location.container);
  if (pointer === null && isUnpointed(disk, location.container)) return as("native_v2", "CLEAN");
  if (pointer === null) {
    const interrupted = isContainerThere || (events.length > 0 && events.at(-1)?.phase !== "failed");
    const active = location.source !== null && isDatabase(disk, location.source) ? "sqlite_v1" : "jsonl_v3";
    return as(active, interrupted ? "MIGRATION_STAGING" : "CLEAN", interrupted);
  }
  if (pointer.active !== "native_v2") {
    const back = as(pointer.active, "ROLLED_BACK", isContainerThere);
    if (isContainerThere) return back;
    // The container that was rolled back last has the ledger.
    const last = lastName(disk, (n) => rolledBackName(location, n));
    return { ...back, events: last === undefined ? [] : readLedger(disk, ledgerFile(last)).events };
  }
  if (pointer.phase !== "completed") return as("native_v2", "FAILED", true);
  const untouched =
    readManifest(disk, manifestFile(location.container))?.integrity.manifestHash === pointer.manifestHash;
  return as("native_v2", pointer.source !== null && untouched ? "MIGRATED" : "CLEAN");
}

export function rolledBackName({ container }: SessionLocation, n: number): string {
  return nth(`${container}.rolled-back`, n);
}

/** Publishes a pointer in one step, durably. */
export async function putPointer(disk: Disk, file: string, pointer: Pointer): Promise<void> {
  await replaceFile(disk, file, bytesOf(encodePointer(pointer)), { sync: true });
  await disk.syncFolder(dirname(file));
}
