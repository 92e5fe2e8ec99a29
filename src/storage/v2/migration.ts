/**
 * Migrates a session from a JSONL file or a database into a container (seed 003, "Migration and rollback contract").
 *
 * The pointer file decides which store is the session; during a migration or a rollback the name of the session file does,
 * which other programs use (`isContainer` of pointer.ts). These are the steps; each is durable before the next.
 *
 * Ledger `planned`; frames, rows and documents under `<id>.v2.staging`, `staging_copy`; all of it read back,
 * `integrity_check`; staging renamed to `<id>.v2`, `cutover_commit`; pointer published with that phase; the session file
 * renamed to `<file>.migrated` (the commit marker) and compared with the bytes that were read; `completed`; pointer
 * published as completed. After a crash before the marker the session file is active, and the next migration starts again.
 * After a crash between the marker and the end the store is FAILED: nothing may be written to it, and the next migration or
 * rollback rolls it back. That loses nothing, because nothing was served from it.
 */

import { basename, dirname, join } from "node:path";
import { Failure } from "../../core/failure.ts";
import type { Progress } from "../../core/ports/catalog.ts";
import type {
  Migrated,
  Migrations,
  Obstacle,
  Plan,
  SessionLocation,
  TransitionOptions,
  Verification,
} from "../../core/ports/migrations.ts";
import type { Log } from "../../core/ports/store.ts";
import { hashFile } from "../fs/chunked-io.ts";
import { BLOBS, headerFile, ledgerFile, manifestFile } from "../fs/container-paths.ts";
import { exists, type FileInfo } from "../fs/disk.ts";
import { guardErrno, useAndClose } from "../fs/files.ts";
import { isUnchanged } from "../fs/stamps.ts";
import { shareAttachments } from "../log/attachments.ts";
import { keepLeaf } from "../log/leaf-store.ts";
import { audit } from "./audit.ts";
import { Builder } from "./builder.ts";
import { isUuid, type Manifest, type Pointer, readManifest } from "./documents.ts";
import { SEGMENT_BYTES } from "./frame.ts";
import {
  chunkPositions,
  isVerified,
  type MigrationOptions,
  MigrationRun,
  makeMigrationFailure,
  NONE_VALID,
  UNFINISHED,
} from "./migration-steps.ts";
import {
  findCurrentPath,
  getFrozenName,
  isOfAnother,
  locateSessionFiles,
  makeLocation,
  makeNoContainerFailure,
  readMigrationStatus,
  readPointerAt,
  resolveContainerFolder,
} from "./pointer.ts";
import { finishInterrupted, forceRollBack, rollBack } from "./rollback.ts";
import { extractBlobs, isDatabase, requireMerged } from "./sqlite-v1.ts";

/** Most bytes that a frame has besides its payload, with ids of the usual length. */
const FRAME_OVERHEAD = 1024;
/** Most obstacles that are reported. */
const MAX_OBSTACLES = 100;

/** Makes the port. `allowed` returns the absolute path of a host's, or throws path_outside_root. */
export function makeMigrations(
  options: MigrationOptions,
  allowed: (path: string) => string,
  /** Returns the path, too. Throws for a file that is not ours. */
  ours: (path: string) => string,
  readOnly: boolean,
): Migrations {
  const { disk } = options;
  const writable = (path: string): string => {
    if (readOnly) throw new Failure("read_only");
    return ours(path);
  };
  return {
    plan: (path, progress) => planMigration(options, ours(path), progress),
    migrate: async (path, request) => migrate(options, writable(path), request),
    rollBack: async (path, request) => rollBack(options, writable(path), request),
    status: (path) => guardErrno("looking at the migration", () => readMigrationStatus(disk, ours(path))),
    currentPathOf: (path) => guardErrno("looking for the session", () => findCurrentPath(disk, allowed(path))),
    audit: (container, progress) =>
      guardErrno("reading the session", async () => audit(disk, allowed(container), { progress })),
  };
}

/** Returns the plan of a session file's migration, and the obstacles to it. Reads all of it, writes nothing. */
export async function planMigration(options: MigrationOptions, file: string, progress?: Progress): Promise<Plan> {
  return useAndClose(options.openFile(file, true), (log) =>
    guardErrno("reading the session", () => planOf(options, log, file, true, progress)),
  );
}

/** Does the same for an open log. With `reading`, every body is read, which finds more damage. */
async function planOf(
  options: MigrationOptions,
  log: Log,
  file: string,
  reading: boolean,
  progress?: Progress,
): Promise<Plan> {
  const { disk, segmentBytes = SEGMENT_BYTES } = options;
  const { nodes, header } = log;
  const location = makeLocation(dirname(file), header.id, basename(file));
  const obstacles: Obstacle[] = [];
  const add = (kind: string, reason: string, entryId?: string): void => {
    if (obstacles.length < MAX_OBSTACLES)
      obstacles.push({ kind, reason, ...(entryId === undefined ? {} : { entryId }) });
  };
  if (log.readOnly && log.readOnly.name !== "read_only") add(log.readOnly.name, log.readOnly.message);
  const isAnother = isOfAnother(disk, location);
  if (isAnother) add("already_exists", takenBy(location));
  if (!isUuid(header.id))
    add("invalid_id", `the session id ${header.id} is not a UUID; clone makes a session with one`);
  // With a pointer, a rollback that was cut off left this, and it is finished first.
  if (exists(disk, getFrozenName(file)) && (isAnother || readPointerAt(disk, location.pointer) === null))
    add("already_exists", `${basename(file)}.migrated exists; move it away`);
  if (exists(disk, location.container) && !exists(disk, headerFile(location.container)))
    add("already_exists", `${basename(location.container)} exists and is not a container of a session; move it away`);
  for await (const positions of chunkPositions(log)) {
    for (const p of positions)
      if (log.length(p) + FRAME_OVERHEAD > segmentBytes)
        add("too_large", `the line has ${log.length(p)} bytes, and a segment holds ${segmentBytes}`, nodes.id(p));
      else if (reading) log.read(p);
    progress?.(positions[positions.length - 1] + 1, nodes.count);
  }
  for (const { kind, reason, entryId } of log.repairable) add(kind, reason, entryId);
  for (const { kind, entryId } of log.damage)
    if (kind === "parent_is_call")
      add(kind, "its parent is a tool call, and in a container parents are entries", entryId);
  for (const [p, parentId] of nodes.missingParent)
    if (parentId === header.id)
      add("missing_parent", "its parent is the session itself, and in a container parents are entries", nodes.id(p));
  return { location, entryCount: nodes.count, bytes: disk.info(file).size, version: log.version, obstacles };
}

function takenBy({ container, sessionId }: SessionLocation): string {
  return `${basename(container)} belongs to another session with the id ${sessionId}, and this file is a copy of it. Delete one of them; or import the copy: if it has other entries, it becomes a session with an id of its own`;
}

/**
 * Migrates a session file, after finishing an earlier attempt. Throws migration_failed with the obstacles, session_locked,
 * storage failures; then the file is as before and active, unless the failure states otherwise.
 */
export async function migrate(
  options: MigrationOptions,
  path: string,
  request: TransitionOptions = {},
): Promise<Migrated> {
  const run = new MigrationRun(options, locateSessionFiles(options.disk, path), request);
  return run.runReported("migrating the session", "container", () => forward(run));
}

async function forward(run: MigrationRun): Promise<Migrated> {
  const { options, disk, location } = run;
  await finishInterrupted(run);
  const pointer = run.pointer();
  if (pointer?.active === "native_v2") return isThere(run, pointer);
  const { source } = location;
  if (source !== null && isDatabase(disk, source)) {
    run.format = "sqlite_v1";
    run.lockPaths(source);
  }
  if (source === null)
    throw new Failure("session_not_found", `There is no session file for ${location.container}.`, {
      sessionPath: location.container,
    });
  return useAndClose(options.openFile(source), async (log) => {
    requireNoObstacles((await planOf(options, log, source, false)).obstacles);
    // The log of a database is a copy of its rows, and the database is locked already.
    if (run.format === "jsonl_v3") log.lock.acquire();
    return copy({ run, log, source, stamp: run.disk.info(source), verification: NONE_VALID });
  });
}

/** Returns the result for a session that is in a container already. */
function isThere(run: MigrationRun, { snapshotId, correlationId }: Pointer): Migrated {
  const { container } = run.location;
  if (!exists(run.disk, headerFile(resolveContainerFolder(run.disk, container))))
    throw makeNoContainerFailure(run.disk, container);
  const entryCount = readManifest(run.disk, manifestFile(container))?.counters.entriesTotal ?? 0;
  const active = "native_v2";
  return run.done({ active, sessionPath: container, entryCount, snapshotId, migrationId: null, correlationId });
}

/** A migration that is under way. */
interface Going {
  readonly run: MigrationRun;
  readonly log: Log;
  readonly source: string;
  /** The source when it was locked. */
  readonly stamp: FileInfo;
  /** Results of the checks of the new container, as far as they were done. */
  verification: Verification;
}

async function copy(going: Going): Promise<Migrated> {
  const { run, log, source } = going;
  const { disk, location, options } = run;
  // The recorded leaf, else that of the header; an empty id is the place before the first entry.
  const recorded = options.leaves?.recall(log);
  const inHeader = log.header.leafId === "" ? null : log.header.leafId;
  const leafId = recorded === undefined ? inHeader : recorded;
  const machine = run.machine("CLEAN");
  machine.to("MIGRATION_STAGING", "the container is being built");
  let staged: Pick<Pointer, "manifestHash" | "snapshotId">;
  try {
    staged = await stage(going);
  } catch (error) {
    machine.to("ROLLED_BACK", "the migration was given up");
    await run.abandon(error, going.verification);
    throw error;
  }
  const { verification } = going;
  const marker: Pointer = {
    active: "native_v2",
    ...staged,
    correlationId: run.correlationId,
    reason: null,
    phase: "cutover_commit",
    source: basename(source),
    ...(run.format === "sqlite_v1" ? { sourceFormat: run.format } : {}),
  };
  try {
    await run.publish(marker);
    const frozen = getFrozenName(source);
    disk.rename(source, frozen);
    await disk.syncFolder(dirname(source));
    const isFrozen =
      isUnchanged(disk.info(frozen), going.stamp) || (await hashFile(disk, frozen)) === staged.snapshotId;
    if (!isFrozen) throw changedMeanwhile();
    await run.note(location.container, "completed", "ok", verification);
    await run.publish({ ...marker, phase: "completed" });
  } catch (error) {
    // After the marker only going back is allowed (seed 003, "Migration cutover failure").
    machine.to("FAILED", UNFINISHED);
    await forceRollBack(run, `the cutover failed: ${(error as Error).message}`, true).catch((refusal) => {
      // An operator must act. If the disk refuses, the next migration or rollback goes back, as the failure states.
      if (refusal instanceof Failure) throw refusal;
    });
    throw error;
  }
  machine.to("MIGRATED", "the container is the session");
  await keepLeaf(options.leaves, leafId, () => options.openContainer(location.container, true));
  return run.done({
    state: machine.state,
    transitions: machine.history,
    snapshotId: staged.snapshotId,
    verification,
    entryCount: log.nodes.count,
    active: "native_v2",
    sessionPath: location.container,
  });
}

/** Builds the container, reads it back and renames it, which does not make it the session yet. */
async function stage(going: Going): Promise<Pick<Pointer, "manifestHash" | "snapshotId">> {
  const { run, log, source, stamp } = going;
  const { disk, location } = run;
  // Building, reading back and hashing the source go over its bytes once each.
  const total = 3 * Math.max(1, stamp.size);
  const report = (part: number, done: number): void =>
    run.request.progress?.(part * stamp.size + Math.min(done, stamp.size), total);
  run.clearName();
  run.clearStaging();
  disk.makeFolder(dirname(ledgerFile(location.staging)));
  await disk.syncFolder(dirname(location.staging));
  await run.note(location.staging, "planned", "ok", NONE_VALID);
  const { env, segmentBytes = SEGMENT_BYTES } = run.options;
  const builder = new Builder({ disk, env, durability: "sync", segmentBytes }, location.staging);
  const { manifestHash, chainHash, found } = await useAndClose(builder, async () => {
    const integrity = await build(going, builder, (done) => report(0, done));
    // Written data is read back while the medium stores it. Neither is left running when the other fails.
    const [durable, read] = await Promise.allSettled([
      builder.commit().then(() => builder.syncFolders()),
      audit(disk, location.staging, { staging: true, progress: (done) => report(1, done) }),
    ]);
    if (durable.status === "rejected") throw durable.reason;
    await run.note(location.staging, "staging_copy", "ok", NONE_VALID);
    if (read.status === "rejected") throw read.reason;
    return { ...integrity, found: read.value };
  });
  const verification = {
    entryCountMatch: found.counters.entriesTotal === log.nodes.count,
    hashChainMatch: found.chainHash === chainHash,
    indexConsistent: found.ok && found.manifest?.integrity.manifestHash === manifestHash,
  };
  going.verification = verification;
  if (!isVerified(verification))
    throw makeMigrationFailure(
      `The written container is not as it should be: ${found.findings[0]?.reason ?? "entries are missing"}. The session is unchanged; check the disk and migrate again.`,
      { verification },
    );
  const snapshotId = await hashFile(disk, source, (done) => report(2, done));
  await run.note(location.staging, "integrity_check", "ok", verification);
  requireUnchanged(going);
  disk.rename(location.staging, location.container);
  await disk.syncFolder(dirname(location.container));
  await run.note(location.container, "cutover_commit", "ok", verification);
  requireUnchanged(going);
  return { manifestHash, snapshotId };
}

/** Writes everything of the container that the builder has a place for; not all of it is on the medium then. */
async function build(
  { run, log, source }: Going,
  builder: Builder,
  progress: (bytes: number) => void,
): Promise<Manifest["integrity"]> {
  const { disk } = run.options;
  const { staging } = run.location;
  try {
    builder.begin(log.headerLine);
    let bytes = 0;
    for await (const positions of chunkPositions(log, run.options.pauseBytes)) {
      for (const line of log.readMany(positions)) {
        const position = builder.add(line, true);
        if (builder.nodes.id(position) !== log.nodes.id(position))
          throw makeMigrationFailure("The order of the entries changed. Migrate again.");
        bytes += line.length + 1;
      }
      progress(bytes);
      if (builder.isBehind) await builder.keepUp();
    }
    // Reading the bodies may have found damage.
    requireNoObstacles(log.repairable.map(({ kind, reason, entryId }) => ({ kind, reason, entryId })));
    const { integrity } = builder.finish(log.header, run.format, "post_migration");
    if (run.format === "sqlite_v1") extractBlobs(disk, source, join(staging, BLOBS));
    else shareAttachments(disk, source, join(staging, BLOBS));
    return integrity;
  } catch (error) {
    if (error instanceof Failure && (error.name === "corrupt" || error.name === "invalid_entry"))
      throw makeMigrationFailure({ ...error.text, state: "Nothing was changed." }, error.details, { cause: error });
    throw error;
  }
}

/** Throws migration_failed when another program changed the session file since it was opened. */
function requireUnchanged({ run, log, source, stamp }: Going): void {
  if (run.format === "sqlite_v1") requireMerged(run.disk, source);
  if (log.refresh().kind !== "none" || !isUnchanged(run.disk.info(source), stamp)) throw changedMeanwhile();
}

function requireNoObstacles(obstacles: readonly Obstacle[]): void {
  if (obstacles.length === 0) return;
  const named = obstacles
    .slice(0, 3)
    .map(({ reason, entryId }) => (entryId === undefined ? reason : `${entryId}: ${reason}`));
  const more = obstacles.length > 3 ? ` and ${obstacles.length - 3} more` : "";
  throw makeMigrationFailure(
    `The session cannot be migrated as it is: ${named.join("; ")}${more}. repair_session repairs what it can.`,
    { obstacles },
  );
}

function changedMeanwhile(): Failure {
  return makeMigrationFailure(
    "Another program wrote to the session file while it was migrated. The file is as that program left it; migrate again.",
    {},
    { retryable: true },
  );
}
