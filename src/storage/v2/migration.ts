/**
 * Migrates a session from a JSONL file or a database into a container (seed 003, "Migration and rollback contract").
 *
 * The pointer file alone says which store is the session, and the one rename that publishes it changes that. These are
 * the steps; each is durable before the next.
 *
 * Ledger `planned`; frames, rows and documents under `<id>.v2.staging`, `staging_copy`; all of it read back,
 * `integrity_check`; staging renamed to `<id>.v2`, `cutover_commit`; pointer published with that phase (the commit
 * marker); the session file renamed to `<file>.migrated` and compared with what was read; `completed`; pointer
 * published as completed. After a crash before the marker the session file is active, and the next migration starts
 * again. After a crash between the marker and the end the store is FAILED: nothing may be written to it, and the next
 * migration or rollback rolls it back. That loses nothing, because nothing was served from it.
 */

import { basename, dirname, join } from "node:path";
import { Failure } from "../../core/failure.ts";
import type { Migrated, Obstacle, Wishes } from "../../core/ports/migrations.ts";
import type { Log } from "../../core/ports/store.ts";
import { hashOf } from "../fs/chunked-io.ts";
import { BLOBS, ledgerFile, manifestFile } from "../fs/container-paths.ts";
import { exists, type FileInfo } from "../fs/disk.ts";
import { closing, guarded } from "../fs/files.ts";
import { isUnchanged } from "../fs/stamps.ts";
import { shareAttachments } from "../log/attachments.ts";
import { keepLeaf } from "../log/leaf-store.ts";
import { audit } from "./audit.ts";
import { Builder } from "./builder.ts";
import { type Pointer, readManifest } from "./documents.ts";
import { SEGMENT_BYTES } from "./frame.ts";
import { type MigrationOptions, planOf, stretchesOf } from "./migration-plan.ts";
import { holds, MigrationRun, migrationFailed, NONE_VALID, UNFINISHED } from "./migration-steps.ts";
import { snapshotOf } from "./pointer.ts";
import { finishInterrupted, forceBack } from "./rollback.ts";
import { locationOf, pointerAt, putPointer } from "./session-location.ts";
import { extractBlobs, isDatabase, requireMerged } from "./sqlite-v1.ts";

/**
 * Migrates a session file, after finishing what an earlier attempt left. Throws migration_failed with the obstacles,
 * session_locked, storage failures; then the session file is as before and active, unless the failure says that the
 * store is FAILED and an operator must act.
 */
export async function migrate(options: MigrationOptions, path: string, wishes: Wishes = {}): Promise<Migrated> {
  const run = new MigrationRun(options, locationOf(options.disk, path), wishes);
  return guarded("migrating the session", () => forward(run)).finally(() => run.release());
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
  return closing(options.openFile(source), async (log) => {
    requireNoObstacles((await planOf(options, log, source, false)).obstacles);
    // The log of a database is a copy of what was read, and the database is locked already.
    if (run.format === "jsonl_v3") log.acquireLock();
    return new Migration(run, log, source).copy();
  });
}

/** Returns the result for a session that is in a container already. */
function isThere(run: MigrationRun, { snapshotId, correlationId }: Pointer): Migrated {
  const { container } = run.location;
  const entryCount = readManifest(run.disk, manifestFile(container))?.counters.entriesTotal ?? 0;
  const active = "native_v2";
  return run.done({ active, sessionPath: container, entryCount, snapshotId, migrationId: null, correlationId });
}

class Migration {
  private readonly run: MigrationRun;
  private readonly log: Log;
  private readonly source: string;
  /** The source when it was locked. */
  private readonly stamp: FileInfo;
  private manifestHash = "";
  private snapshotId = "";
  private verification = NONE_VALID;

  constructor(run: MigrationRun, log: Log, source: string) {
    this.run = run;
    this.log = log;
    this.source = source;
    this.stamp = run.disk.info(source);
  }

  async copy(): Promise<Migrated> {
    const { run, log, source } = this;
    const { disk, location, options } = run;
    const leafId = this.leaf();
    const machine = run.machine("CLEAN");
    machine.to("MIGRATION_STAGING", "the container is being built");
    try {
      await this.stage();
    } catch (error) {
      machine.to("ROLLED_BACK", "the migration was given up");
      await run.giveUp(error, this.verification);
      throw error;
    }
    const { manifestHash, snapshotId, verification } = this;
    const marker: Pointer = {
      active: "native_v2",
      manifestHash,
      snapshotId,
      correlationId: run.correlationId,
      reason: null,
      phase: "cutover_commit",
      source: basename(source),
      ...(run.format === "sqlite_v1" ? { sourceFormat: run.format } : {}),
    };
    try {
      await putPointer(disk, location.pointer, marker);
      disk.rename(source, snapshotOf(source));
      await disk.syncFolder(dirname(source));
      await this.requireFrozen(snapshotOf(source), snapshotId);
      await run.note(location.container, "completed", "ok", verification);
      await putPointer(disk, location.pointer, { ...marker, phase: "completed" });
    } catch (error) {
      // After the marker only going back is allowed (seed 003, "Migration cutover failure").
      machine.to("FAILED", UNFINISHED);
      await this.undo(`the cutover failed: ${(error as Error).message}`);
      throw error;
    }
    machine.to("MIGRATED", "the container is the session");
    await keepLeaf(options.leaves, leafId, () => options.openContainer(location.container, true));
    return run.done({
      state: machine.state,
      transitions: machine.history,
      snapshotId,
      verification,
      entryCount: log.nodes.count,
      active: "native_v2",
      sessionPath: location.container,
    });
  }

  /** Builds the container, reads it back and gives it its name, which does not make it the session yet. */
  private async stage(): Promise<void> {
    const { run, source, stamp } = this;
    const { disk, location } = run;
    // Building, reading back and hashing the source go over its bytes once each.
    const total = 3 * Math.max(1, stamp.size);
    const report = (part: number, done: number): void =>
      run.wishes.progress?.(part * stamp.size + Math.min(done, stamp.size), total);
    await this.prepareStaging();
    await run.note(location.staging, "planned", "ok", NONE_VALID);
    const { manifestHash, chainHash, count } = await this.build((done) => report(0, done));
    this.manifestHash = manifestHash;
    await run.note(location.staging, "staging_copy", "ok", NONE_VALID);
    const found = await audit(disk, location.staging, { staging: true, progress: (done) => report(1, done) });
    const verification = {
      entryCountMatch: found.counters.entriesTotal === count,
      hashChainMatch: found.chainHash === chainHash,
      indexConsistent: found.ok && found.manifest?.integrity.manifestHash === manifestHash,
    };
    this.verification = verification;
    if (!holds(verification))
      throw migrationFailed(
        `The written container is not as it should be: ${found.findings[0]?.reason ?? "entries are missing"}. The session is unchanged; check the disk and migrate again.`,
        { verification },
      );
    this.snapshotId = await hashOf(disk, source, (done) => report(2, done));
    await run.note(location.staging, "integrity_check", "ok", verification);
    this.requireUnchanged();
    disk.rename(location.staging, location.container);
    await disk.syncFolder(dirname(location.container));
    await run.note(location.container, "cutover_commit", "ok", verification);
    this.requireUnchanged();
  }

  /**
   * Returns the leaf that the entries of the session file do not determine: the recorded one, else that of the header;
   * undefined for neither. Null is the place before the first entry.
   */
  private leaf(): string | null | undefined {
    const recorded = this.run.options.leaves?.recall(this.log);
    const { leafId } = this.log.header;
    return recorded !== undefined ? recorded : leafId === "" ? null : leafId;
  }

  /**
   * Rolls back at once, if the disk allows it; else the next migration or rollback does. Throws when an operator must
   * act.
   */
  private async undo(reason: string): Promise<void> {
    const { run } = this;
    try {
      await forceBack(run, pointerAt(run.disk, run.location.pointer), reason, true);
    } catch (error) {
      if (error instanceof Failure) throw error;
    }
  }

  /** Makes an empty staging folder, which keeps the ledger of earlier attempts. */
  private async prepareStaging(): Promise<void> {
    const { disk, location } = this.run;
    // A crash before the marker left this; it is not a session and becomes the staging folder again.
    if (exists(disk, location.container))
      disk.rename(location.container, exists(disk, location.staging) ? this.run.freeName() : location.staging);
    this.run.clearStaging();
    disk.makeFolder(dirname(ledgerFile(location.staging)));
    await disk.syncFolder(dirname(location.staging));
  }

  private async build(
    progress: (bytes: number) => void,
  ): Promise<{ manifestHash: string; chainHash: string; count: number }> {
    const { run, log, source } = this;
    const { disk, env, segmentBytes = SEGMENT_BYTES } = run.options;
    const { staging } = run.location;
    const builder = new Builder({ disk, env, durability: "sync", segmentBytes }, staging);
    try {
      builder.begin(log.headerLine);
      let bytes = 0;
      for await (const positions of stretchesOf(log)) {
        for (const line of log.readMany(positions)) {
          const position = builder.add(line, true);
          if (builder.nodes.id(position) !== log.nodes.id(position))
            throw migrationFailed("The order of the entries changed. Migrate again.");
          bytes += line.length + 1;
        }
        progress(bytes);
        if (builder.isBehind) await builder.commit();
      }
      // Reading the bodies may have found damage.
      requireNoObstacles(log.repairable.map(({ kind, reason, entryId }) => ({ kind, reason, entryId })));
      const manifest = builder.finish(log.header, run.format, "post_migration");
      await builder.commit();
      builder.close();
      if (run.format === "sqlite_v1") extractBlobs(disk, source, join(staging, BLOBS));
      else shareAttachments(disk, source, join(staging, BLOBS));
      await builder.syncFolders();
      const { manifestHash } = manifest.integrity;
      return { manifestHash, chainHash: builder.tail.chainHash, count: log.nodes.count };
    } catch (error) {
      builder.close();
      if (error instanceof Failure && (error.name === "corrupt" || error.name === "invalid_entry"))
        throw migrationFailed(`${error.message} Nothing was changed.`, error.details, { cause: error });
      throw error;
    }
  }

  /** Throws migration_failed when another program changed the session file since it was opened. */
  private requireUnchanged(): void {
    const { run, log, source, stamp } = this;
    if (run.format === "sqlite_v1") requireMerged(run.disk, source);
    if (log.refresh().kind === "none" && isUnchanged(run.disk.info(source), stamp)) return;
    throw changedMeanwhile();
  }

  private async requireFrozen(snapshot: string, snapshotId: string): Promise<void> {
    const { disk } = this.run;
    if (isUnchanged(disk.info(snapshot), this.stamp)) return;
    if ((await hashOf(disk, snapshot)) !== snapshotId) throw changedMeanwhile();
  }
}

function requireNoObstacles(obstacles: readonly Obstacle[]): void {
  if (obstacles.length === 0) return;
  const named = obstacles
    .slice(0, 3)
    .map(({ reason, entryId }) => (entryId === undefined ? reason : `${entryId}: ${reason}`));
  const more = obstacles.length > 3 ? ` and ${obstacles.length - 3} more` : "";
  throw migrationFailed(
    `The session cannot be migrated as it is: ${named.join("; ")}${more}. repair_session repairs what it can; nothing was changed.`,
    { obstacles },
  );
}

function changedMeanwhile(): Failure {
  return migrationFailed(
    "Another program wrote to the session file while it was migrated. The file is as that program left it; migrate again.",
    {},
    { retryable: true },
  );
}
