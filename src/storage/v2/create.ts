/** Makes the container of a new session, and rebuilds a damaged one from its readable entries. */

import { dirname, join } from "node:path";
import { toStorageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { type Damage, makeDamage } from "../../core/format/damage.ts";
import { makeTimestamp } from "../../core/ports/env.ts";
import { BLOBS, getPointerFile, headerFile, indexFile, ledgerFile, manifestFile } from "../fs/container-paths.ts";
import { type Disk, exists, type FileInfo, removeQuietly } from "../fs/disk.ts";
import { guardErrno } from "../fs/files.ts";
import { makeFolderIn } from "../fs/folders.ts";
import { swapFolders } from "../fs/quarantine.ts";
import { makeStagingName, removeTree } from "../fs/staging.ts";
import { isUnchanged } from "../fs/stamps.ts";
import { linkLock, locateLockInContainer } from "../locks/lock-paths.ts";
import { type Lock, runIfLocked } from "../locks/locks.ts";
import { shareAttachments } from "../log/attachments.ts";
import type { FileLogOptions } from "../log/write-state.ts";
import { Builder } from "./builder.ts";
import type { Container } from "./container.ts";
import { appendEventNow, type ErrorClass, type Manifest, readManifest } from "./documents.ts";
import { dropOrphanPointer, listMissingParts, makePointer, publishPointer } from "./pointer.ts";

/** Creates a container with these lines, and claims its lock. Throws already_exists, invalid_entry, leaving nothing. */
export function createContainer(
  { disk, options, file, header, headerLine, state }: Container,
  lines: readonly Uint8Array[],
): { builder: Builder; manifest: Manifest; lock: Lock; key: FileInfo; seenIndex: FileInfo } {
  const builder = new Builder(options, makeStagingName(file));
  let renamed = false;
  let lock: Lock | undefined;
  try {
    requireFree(disk, file);
    state.unsynced.addFound(makeFolderIn(disk, dirname(file)));
    builder.begin(headerLine);
    for (const line of lines) builder.add(line);
    const manifest = builder.finish(header, "native_v2");
    builder.commitNow();
    builder.close();
    const key = disk.info(headerFile(builder.folder));
    lock = state.lock.claim(key, locateLockInContainer(builder.folder));
    nameContainer(disk, builder.folder, file);
    renamed = true;
    publishPointer(disk, file, makePointer(manifest.integrity.manifestHash, header.id), options.durability);
    return { builder, manifest, lock, key, seenIndex: disk.info(indexFile(file)) };
  } catch (error) {
    builder.close();
    if (renamed) removeQuietly(disk, getPointerFile(file));
    removeTree(disk, renamed ? file : builder.folder);
    // The next process with the lock finds nothing to write to.
    lock?.release();
    throw error;
  }
}

/**
 * Removes a published container because a later step failed, unless it is in use: another process has its lock, or its index
 * is not as it was `seen`.
 */
export function unpublish({ disk, locks }: Pick<FileLogOptions, "disk" | "locks">, file: string, seen: FileInfo): void {
  const find = (): FileInfo => disk.info(headerFile(file));
  runIfLocked(locks, find, locateLockInContainer(file), () => {
    if (!isUnchanged(disk.info(indexFile(file)), seen)) return;
    removeQuietly(disk, getPointerFile(file));
    removeTree(disk, file);
  });
}

/**
 * Throws already_exists when the name is taken by a container, by its pointer, or by a session file that pi_agent_rust
 * would take the container to belong to. Removes a stray pointer first.
 */
export function requireFree(disk: Disk, file: string): void {
  dropOrphanPointer(disk, file);
  for (const taken of [file, getPointerFile(file), file.replace(/\.v2$/, ".jsonl")])
    if (exists(disk, taken))
      throw new Failure("already_exists", `Something exists at ${taken} already. Choose another path.`, {
        sessionPath: taken,
      });
}

/** Gives a container its name. Throws already_exists if another process has made one with that name meanwhile. */
export function nameContainer(disk: Disk, folder: string, file: string): void {
  try {
    disk.rename(folder, file);
  } catch (error) {
    requireFree(disk, file);
    throw error;
  }
}

/** Kinds of damage that a repair removes. */
export const REPAIRABLE: ReadonlySet<Damage["kind"]> = new Set([
  "bad_header",
  "bad_line",
  "bad_body",
  "bad_index",
  "torn_tail",
  "duplicate_id",
  "missing_parent",
  "cycle",
  "incomplete_batch",
  "lost_entries",
]);

/** Returns the parts that a copy of the container left out, as damage. */
export function findMissingParts({ disk, file, folder }: Container): Damage[] {
  return guardErrno("looking at the session", () => listMissingParts(disk, file, folder)).map(({ name, isDamaged }) => {
    const next = isDamaged
      ? "damaged; the next write keeps it as *.damaged.bak and makes a new one"
      : "missing; the next write makes it";
    return makeDamage("bad_index", `${name} is ${next}`, true);
  });
}

/** Appends the event of a repair to the ledger in a folder, fsynced. `sourcePath`: path of the damaged original. */
export function recordRepair(
  container: Container,
  errorClass: ErrorClass,
  folder = container.folder,
  sourcePath = container.file,
): void {
  const { disk, options, file } = container;
  const migrationId = options.env.sessionId();
  const isNew = appendEventNow(disk, ledgerFile(folder), {
    migrationId,
    phase: "integrity_check",
    at: makeTimestamp(options.env),
    sourcePath,
    targetPath: file,
    sourceFormat: "native_v2",
    targetFormat: "native_v2",
    verification: { entryCountMatch: true, hashChainMatch: true, indexConsistent: true },
    outcome: "recoverable_error",
    errorClass,
    correlationId: `recovery-${migrationId}`,
  });
  if (isNew) container.state.unsynced.add(join(folder, "migrations"));
}

const REBUILDING = "rebuilding the session";

/**
 * Builds a container of these lines, and of another header if one is given, and puts it in the place of the damaged one, which
 * is kept at `backup`.
 */
export function rebuild(
  container: Container,
  lines: Iterable<Uint8Array>,
  backup: string,
  headerLine?: Uint8Array,
): void {
  const { disk, options, file, folder, header } = container;
  const builder = new Builder(options, makeStagingName(file));
  try {
    builder.begin(headerLine ?? (container.headerFault === null ? headerFile(folder) : container.headerLine));
    for (const line of lines) builder.add(line);
    builder.finish(header, readManifest(disk, manifestFile(folder))?.sourceFormat ?? "native_v2", "recovery");
    builder.commitNow();
    builder.close();
    if (exists(disk, ledgerFile(folder))) disk.link(ledgerFile(folder), ledgerFile(builder.folder));
    recordRepair(container, "integrity_mismatch", builder.folder, backup);
    shareAttachments(disk, folder, join(builder.folder, BLOBS));
    linkLock(disk, folder, builder.folder);
    builder.syncFoldersNow();
    swapFolders(disk, builder.folder, file, backup, REBUILDING);
  } catch (error) {
    builder.close();
    removeTree(disk, builder.folder);
    throw toStorageFailure(error, REBUILDING);
  }
}
