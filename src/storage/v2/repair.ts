/** Rebuilds a container from what can be read of it, and records in its ledger what was repaired. */

import { join } from "node:path";
import { storageFailure } from "../../core/errno.ts";
import type { Damage } from "../../core/format/damage.ts";
import { timestamp } from "../../core/ports/env.ts";
import { BLOBS, headerFile, ledgerFile, manifestFile } from "../fs/container-paths.ts";
import { exists } from "../fs/disk.ts";
import { guarded } from "../fs/files.ts";
import { removeTree, stagingName } from "../fs/staging.ts";
import { shareLock } from "../locks/lock-paths.ts";
import { shareAttachments } from "../log/attachments.ts";
import { Builder } from "./builder.ts";
import type { Container } from "./container.ts";
import { type ErrorClass, readManifest } from "./documents.ts";
import { appendEventNow } from "./ledger.ts";
import { missingParts } from "./pointer.ts";

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

/** Returns what a copy of the container left out, as damage. */
export function missingPartsOf({ disk, file, folder }: Container): Damage[] {
  return guarded("looking at the session", () => missingParts(disk, file, folder)).map(({ name, isDamaged }) => ({
    kind: "bad_index",
    line: 0,
    byteOffset: 0,
    length: 0,
    reason: `${name} is ${isDamaged ? "damaged; the next write keeps it as *.damaged.bak and makes a new one" : "missing; the next write makes it"}`,
    salvaged: true,
  }));
}

/** Appends the event of a repair to the ledger in a folder, fsynced. `sourcePath`: where what was damaged is kept. */
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
    at: timestamp(options.env),
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

/** Builds a container of these lines, and puts it in the place of the damaged one, which is kept at `backup`. */
export function rebuild(container: Container, lines: Iterable<Uint8Array>, backup: string): void {
  const { disk, options, file, folder, header, headerLine } = container;
  const builder = new Builder(options, stagingName(file));
  try {
    builder.begin(container.headerFault === null ? headerFile(folder) : headerLine);
    for (const line of lines) builder.add(line);
    builder.finish(header, readManifest(disk, manifestFile(folder))?.sourceFormat ?? "native_v2", "recovery");
    builder.commitNow();
    builder.close();
    if (exists(disk, ledgerFile(folder))) disk.link(ledgerFile(folder), ledgerFile(builder.folder));
    recordRepair(container, "integrity_mismatch", builder.folder, backup);
    shareAttachments(disk, folder, join(builder.folder, BLOBS));
    shareLock(disk, folder, builder.folder);
    builder.syncFoldersNow();
    if (backup !== folder) disk.rename(folder, backup);
    try {
      disk.rename(builder.folder, file);
    } catch (error) {
      if (backup !== folder) disk.rename(backup, folder);
      throw error;
    }
  } catch (error) {
    builder.close();
    removeTree(disk, builder.folder);
    throw storageFailure(error, "rebuilding the session");
  }
}
