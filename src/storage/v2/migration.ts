/**
 * Migrates a session from a JSONL file or a database into a container, and rolls it back (seed 003, "Migration and
 * rollback contract").
 *
 * The pointer file alone says which store is the session, and the one rename that publishes it changes that. These are
 * the steps; each is durable before the next.
 *
 * Migration: ledger `planned`; frames, rows and documents under `<id>.v2.staging`, `staging_copy`; all of it read back,
 * `integrity_check`; staging renamed to `<id>.v2`, `cutover_commit`; pointer published with that phase (the commit
 * marker); the session file renamed to `<file>.migrated` and compared with what was read; `completed`; pointer
 * published as completed. After a crash before the marker the session file is active, and the next migration starts
 * again. After a crash between the marker and the end the store is FAILED: nothing may be written to it, and the next
 * migration or rollback rolls it back. That loses nothing, because nothing was served from it.
 *
 * Rollback: pointer published with the phase `rollback` and its reason, the container still active; the session file
 * put in its place, durable and verified; pointer published with `jsonl_v3` or `sqlite_v1` active (the commit marker);
 * ledger `rollback`; the snapshot's second name removed, the container renamed to `<id>.v2.rolled-back`. After a crash
 * before the marker the same steps finish the rollback, because nothing is written to the container meanwhile. After a
 * later crash only names remain to be removed or changed.
 */

import { basename, dirname, join } from "node:path";
import { storageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { concat } from "../../core/json/json.ts";
import { timestamp } from "../../core/ports/env.ts";
import type { Migrated, Obstacle, Site, Verification, Wishes } from "../../core/ports/migrations.ts";
import type { Log } from "../../core/ports/store.ts";
import { beginsWith, copyFile, hashOf, pause, piecesOf } from "../fs/chunked-io.ts";
import { BLOBS, headerFile, ledgerFile, manifestFile } from "../fs/container-paths.ts";
import {
  closeQuietly,
  type Disk,
  exists,
  type FileInfo,
  isAbsent,
  readWhole,
  removeQuietly,
  takeName,
  temporaryName,
  writeAll,
} from "../fs/disk.ts";
import { removeTree } from "../fs/staging.ts";
import { isUnchanged } from "../fs/stamps.ts";
import { lockBeside, lockInContainer } from "../locks/lock-paths.ts";
import { isLock, type Lock } from "../locks/locks.ts";
import { shareAttachments } from "../log/attachments.ts";
import { LF } from "../log/lines.ts";
import { type Audit, audit } from "./audit.ts";
import { Builder } from "./builder.ts";
import {
  type ErrorClass,
  type EventOutcome,
  isCorrelationId,
  type Phase,
  type Pointer,
  readManifest,
  type SourceFormat,
} from "./documents.ts";
import { chained, GENESIS, payloadOf, SEGMENT_BYTES, sha256 } from "./frame.ts";
import { appendEvent, readLedger } from "./ledger.ts";
import type { MigrationOptions } from "./migration-plan.ts";
import { planOf, stretch } from "./migration-plan.ts";
import { asideName, headerAt, pointerAt, putPointer, siteOf, versionIn } from "./migration-site.ts";
import { missingPointer, snapshotOf } from "./pointer.ts";
import { demandSettled, isDatabase, takeBlobs, writeDatabase } from "./sqlite-v1.ts";
import { StateMachine, type StoreState, type Transition } from "./states.ts";

const ALL_HOLD: Verification = { entryCountMatch: true, hashChainMatch: true, indexConsistent: true };
const NONE_HOLD: Verification = { entryCountMatch: false, hashChainMatch: false, indexConsistent: false };

/**
 * Migrates a session file, after finishing what an earlier attempt left. Throws migration_failed with the obstacles,
 * session_locked, storage failures; then the session file is as before and active, unless the failure says that the
 * store is FAILED and an operator must act.
 */
export async function migrate(options: MigrationOptions, path: string, wishes: Wishes = {}): Promise<Migrated> {
  return new Migration(options, siteOf(options.disk, path), wishes).forward();
}

/**
 * Makes the session file active again: the snapshot byte for byte when nothing was appended since, else the snapshot
 * followed by the line of each later entry. A snapshot of version 1 or 2, or with a leaf in its header, cannot be
 * continued: then the header and every line are written as version 3. Without a snapshot they are written too. A
 * snapshot that differs from the file is kept as `<file>.v<version>.bak`. Throws migration_failed when the session was
 * not migrated, or when a cutover that was cut off has no file to go back to; then the store is FAILED.
 */
export async function rollBack(options: MigrationOptions, path: string, wishes: Wishes = {}): Promise<Migrated> {
  return new Migration(options, siteOf(options.disk, path), wishes).back();
}

class Migration {
  private readonly options: MigrationOptions;
  private readonly disk: Disk;
  private site: Site;
  private readonly wishes: Wishes;
  private readonly migrationId: string;
  private readonly correlationId: string;
  private readonly machine: (from: StoreState) => StateMachine;
  private readonly locks: Lock[] = [];
  /** Format of the session outside of the container. */
  private format: "jsonl_v3" | "sqlite_v1" = "jsonl_v3";

  constructor(options: MigrationOptions, site: Site, wishes: Wishes) {
    this.options = options;
    this.disk = options.disk;
    this.site = site;
    this.wishes = wishes;
    this.migrationId = options.env.sessionId();
    this.correlationId = wishes.correlationId ?? `migration-${this.migrationId}`;
    if (!isCorrelationId(this.correlationId))
      throw new Failure(
        "migration_failed",
        "A correlation id has 8 to 128 letters, digits, dots, colons, underscores and hyphens.",
      );
    this.machine = (from) => new StateMachine(() => timestamp(options.env), from);
  }

  // --- there ---------------------------------------------------------------------------------------------------

  async forward(): Promise<Migrated> {
    try {
      await this.settle();
      const pointer = this.pointer();
      if (pointer?.active === "native_v2") return this.isThere(pointer);
      const { source } = this.site;
      if (source !== null && isDatabase(this.disk, source)) {
        this.format = "sqlite_v1";
        this.hold(source);
      }
      if (source === null)
        throw new Failure("session_not_found", `There is no session file for ${this.site.container}.`, {
          sessionPath: this.site.container,
        });
      const log = this.options.openFile(source);
      try {
        return await this.copy(log, source);
      } finally {
        log.close();
      }
    } catch (error) {
      throw storageFailure(error, "migrating the session");
    } finally {
      this.release();
    }
  }

  /** Returns the result for a session that is in a container already. */
  private isThere(pointer: Pointer): Migrated {
    const manifest = readManifest(this.disk, manifestFile(this.site.container));
    return {
      ...this.done("CLEAN", [], pointer.snapshotId, ALL_HOLD, manifest?.counters.entriesTotal ?? 0),
      migrationId: null,
      correlationId: pointer.correlationId,
      active: "native_v2",
      sessionPath: this.site.container,
    };
  }

  private done(
    state: StoreState,
    transitions: readonly Transition[],
    snapshotId: string | null,
    verification: Verification,
    entryCount: number,
  ): Omit<Migrated, "sessionPath" | "active"> {
    const { site, migrationId, correlationId } = this;
    return {
      site,
      migrationId,
      correlationId,
      state,
      transitions,
      snapshotId,
      verification,
      entryCount,
      laterEntries: 0,
      rebuilt: false,
      keptAt: null,
    };
  }

  private async copy(log: Log, source: string): Promise<Migrated> {
    const { disk, site } = this;
    const { progress } = this.wishes;
    const before = await planOf(this.options, log, source, false);
    this.demandNone(before.obstacles);
    // The log of a database is a copy of what was read, and the database is locked already.
    if (this.format === "jsonl_v3") log.takeLock();
    const stamp = disk.info(source);
    const leafId = this.leafOf(log);
    // Building, reading back and hashing the source go over its bytes once each.
    const total = 3 * Math.max(1, stamp.size);
    const tell = (part: number, done: number): void =>
      progress?.(part * stamp.size + Math.min(done, stamp.size), total);
    const machine = this.machine("CLEAN");
    machine.to("MIGRATION_STAGING", "the container is being built");
    let verification = NONE_HOLD;
    let manifestHash: string;
    let snapshotId: string;
    try {
      await this.prepareStaging();
      await this.note(site.staging, "planned", "ok", NONE_HOLD);
      const { manifest, chainHash, ids } = await this.build(log, source, (done) => tell(0, done));
      manifestHash = manifest;
      await this.note(site.staging, "staging_copy", "ok", NONE_HOLD);
      const found = await audit(disk, site.staging, { staging: true, progress: (done) => tell(1, done) });
      verification = {
        entryCountMatch: found.counters.entriesTotal === ids,
        hashChainMatch: found.chainHash === chainHash,
        indexConsistent: found.ok && found.manifest?.integrity.manifestHash === manifestHash,
      };
      if (!holds(verification))
        throw new Failure(
          "migration_failed",
          `The written container is not as it should be: ${found.findings[0]?.reason ?? "entries are missing"}. The session is unchanged; check the disk and migrate again.`,
          { verification },
        );
      snapshotId = await hashOf(disk, source, (done) => tell(2, done));
      await this.note(site.staging, "integrity_check", "ok", verification);
      this.demandUnchanged(log, source, stamp);
      disk.rename(site.staging, site.container);
      await disk.syncFolder(dirname(site.container));
      await this.note(site.container, "cutover_commit", "ok", verification);
      this.demandUnchanged(log, source, stamp);
    } catch (error) {
      machine.to("ROLLED_BACK", "the migration was given up");
      await this.giveUp(error, verification);
      throw error;
    }
    const marker: Pointer = {
      active: "native_v2",
      manifestHash,
      snapshotId,
      correlationId: this.correlationId,
      reason: null,
      phase: "cutover_commit",
      source: basename(source),
      ...(this.format === "sqlite_v1" ? { sourceFormat: this.format } : {}),
    };
    try {
      await putPointer(disk, site.pointer, marker);
      disk.rename(source, snapshotOf(source));
      await disk.syncFolder(dirname(source));
      await this.demandFrozen(snapshotOf(source), stamp, snapshotId);
      await this.note(site.container, "completed", "ok", verification);
      await putPointer(disk, site.pointer, { ...marker, phase: "completed" });
    } catch (error) {
      // After the marker only going back is allowed (seed 003, "Migration cutover failure").
      machine.to("FAILED", "the cutover was not brought to its end");
      await this.undo(`the cutover failed: ${(error as Error).message}`);
      throw error;
    }
    machine.to("MIGRATED", "the container is the session");
    await this.keepLeaf(leafId, () => this.options.openContainer(site.container, true));
    const { nodes } = log;
    return {
      ...this.done(machine.state, machine.history, snapshotId, verification, nodes.count),
      active: "native_v2",
      sessionPath: site.container,
    };
  }

  /**
   * Rolls back at once, if the disk allows it; else the next migration or rollback does. Throws when an operator must
   * act.
   */
  private async undo(reason: string): Promise<void> {
    try {
      await this.force(pointerAt(this.disk, this.site.pointer), reason, true);
    } catch (error) {
      if (error instanceof Failure) throw error;
    }
  }

  private demandNone(obstacles: readonly Obstacle[]): void {
    if (obstacles.length === 0) return;
    const named = obstacles
      .slice(0, 3)
      .map(({ reason, entryId }) => (entryId === undefined ? reason : `${entryId}: ${reason}`));
    const more = obstacles.length > 3 ? ` and ${obstacles.length - 3} more` : "";
    throw new Failure(
      "migration_failed",
      `The session cannot be migrated as it is: ${named.join("; ")}${more}. repair_session repairs what it can; nothing was changed.`,
      { obstacles },
    );
  }

  /** Makes an empty staging folder, which keeps the ledger of earlier attempts. */
  private async prepareStaging(): Promise<void> {
    const { disk, site } = this;
    if (exists(disk, site.container)) {
      // A crash before the marker left this; it is not a session and becomes the staging folder again.
      if (exists(disk, site.staging)) disk.rename(site.container, this.freeAside());
      else disk.rename(site.container, site.staging);
    }
    this.clearStaging();
    disk.makeFolder(dirname(ledgerFile(site.staging)));
    await disk.syncFolder(dirname(site.staging));
  }

  private clearStaging(): void {
    const { disk, site } = this;
    if (!exists(disk, site.staging)) return;
    for (const name of disk.names(site.staging))
      if (name !== "migrations") {
        const path = join(site.staging, name);
        if (disk.info(path).kind === "folder") removeTree(disk, path);
        else disk.remove(path);
      }
  }

  private async build(
    log: Log,
    source: string,
    progress: (bytes: number) => void,
  ): Promise<{ manifest: string; chainHash: string; ids: number }> {
    const { disk, env, segmentBytes = SEGMENT_BYTES } = this.options;
    const { site } = this;
    const builder = new Builder({ disk, env, durability: "sync", segmentBytes }, site.staging);
    try {
      builder.begin(log.headerLine);
      const { count } = log.nodes;
      let bytes = 0;
      for (let first = 0; first < count; ) {
        const past = stretch(log, first);
        for (const line of log.readMany(range(first, past))) {
          const position = builder.add(line, true);
          if (builder.nodes.id(position) !== log.nodes.id(position))
            throw new Failure("migration_failed", "The order of the entries changed. Migrate again.");
          bytes += line.length + 1;
        }
        first = past;
        progress(bytes);
        if (builder.isBehind) await builder.settle();
        else await pause();
      }
      // Reading the bodies may have found damage.
      this.demandNone(log.mendable.map(({ kind, reason, entryId }) => ({ kind, reason, entryId })));
      const manifest = builder.finish(log.header, this.format, "post_migration");
      await builder.settle();
      builder.close();
      if (this.format === "sqlite_v1") takeBlobs(disk, source, join(site.staging, BLOBS));
      else shareAttachments(disk, source, join(site.staging, BLOBS));
      await builder.syncFolders();
      return { manifest: manifest.integrity.manifestHash, chainHash: builder.tail.chainHash, ids: count };
    } catch (error) {
      builder.close();
      if (error instanceof Failure && (error.name === "corrupt" || error.name === "invalid_entry"))
        throw new Failure("migration_failed", `${error.message} Nothing was changed.`, error.details, { cause: error });
      throw error;
    }
  }

  /** Throws migration_failed when another program changed the session file since `stamp`. */
  private demandUnchanged(log: Log, source: string, stamp: FileInfo): void {
    if (this.format === "sqlite_v1") demandSettled(this.disk, source);
    if (log.refresh().kind === "none" && isUnchanged(this.disk.info(source), stamp)) return;
    throw changedMeanwhile();
  }

  private async demandFrozen(snapshot: string, stamp: FileInfo, snapshotId: string): Promise<void> {
    if (isUnchanged(this.disk.info(snapshot), stamp)) return;
    if ((await hashOf(this.disk, snapshot)) !== snapshotId) throw changedMeanwhile();
  }

  /**
   * Removes what was built, because nothing was published. Its ledger says why, and the session file stays as it is.
   */
  private async giveUp(error: unknown, verification: Verification): Promise<void> {
    const { disk, site } = this;
    try {
      if (exists(disk, site.container) && !exists(disk, site.staging)) disk.rename(site.container, site.staging);
      if (!exists(disk, ledgerFile(site.staging))) {
        removeTree(disk, site.staging);
        return;
      }
      await this.note(site.staging, "failed", "recoverable_error", verification, classOf(error));
      this.clearStaging();
    } catch {
      // The disk refuses this too; the next migration finds the staging folder and starts again.
    }
  }

  // --- and back ------------------------------------------------------------------------------------------------

  async back(): Promise<Migrated> {
    const { disk } = this;
    try {
      const pointer = this.pointer();
      if (pointer === null || (pointer.active !== "native_v2" && !exists(disk, this.site.container)))
        throw new Failure("migration_failed", "The session was not migrated, so there is nothing to roll back.");
      if (pointer.active !== "native_v2") {
        const keptAt = await this.tidy(pointer);
        return this.isBack(pointer, keptAt);
      }
      if (pointer.phase === "cutover_commit") {
        await this.force(pointer, this.wishes.reason ?? "the cutover was not brought to its end");
        return this.isBack(pointerAt(disk, this.site.pointer) as Pointer, null);
      }
      return await this.restore(pointer, this.wishes.reason ?? pointer.reason ?? "rollback was asked for");
    } catch (error) {
      throw storageFailure(error, "rolling the migration back");
    } finally {
      this.release();
    }
  }

  /** Returns the pointer as it is now; one that is missing is derived from the container's documents. */
  private pointer(): Pointer | null {
    const { disk, site } = this;
    const pointer = pointerAt(disk, site.pointer) ?? missingPointer(disk, site.container);
    this.format = pointer?.sourceFormat ?? this.format;
    return pointer;
  }

  private isBack(pointer: Pointer, keptAt: string | null): Migrated {
    const source = join(dirname(this.site.container), pointer.source as string);
    const log = this.options.openFile(source, true);
    try {
      return {
        ...this.done("ROLLED_BACK", [], pointer.snapshotId, ALL_HOLD, log.nodes.count),
        correlationId: pointer.correlationId,
        active: this.format,
        sessionPath: source,
        keptAt,
      };
    } finally {
      log.close();
    }
  }

  /** Finishes an interrupted migration or rollback as its pointer says. */
  private async settle(): Promise<void> {
    const pointer = this.pointer();
    if (pointer === null || pointer.phase === "completed") return;
    if (pointer.active !== "native_v2") await this.tidy(pointer);
    else if (pointer.phase === "cutover_commit") await this.force(pointer, "the cutover was not brought to its end");
    else if (pointer.phase === "rollback") await this.restore(pointer, pointer.reason ?? "rollback was asked for");
    else throw operatorNeeded(pointer);
    this.release();
  }

  /**
   * Rolls back a cutover that was not verified. Nothing was written to the container since. `holding`: its locks are
   * held already.
   */
  private async force(pointer: Pointer | null, reason: string, holding = false): Promise<void> {
    const { disk, site } = this;
    // The marker itself was not published.
    if (pointer === null || pointer.active !== "native_v2") {
      await this.giveUp(new Failure("migration_failed", reason), NONE_HOLD);
      return;
    }
    const source = join(dirname(site.container), pointer.source as string);
    if (!holding) this.hold(headerFile(site.container), source, snapshotOf(source));
    const target = [source, snapshotOf(source)].find((file) => headerAt(disk, file)?.id === site.sessionId);
    if (target === undefined) {
      throw operatorNeeded(await this.fail(pointer, `the rollback target ${basename(source)} is missing`));
    }
    if (target !== source) await giveName(disk, target, source);
    const after: Pointer = { ...pointer, active: this.format, phase: "rollback", reason };
    await putPointer(disk, site.pointer, after);
    await this.tidy(after);
  }

  /**
   * Whether the snapshot is there, by its hash. One that was put back under the file's own name counts, and is renamed.
   * Throws migration_failed, having changed nothing, when another file has its name.
   */
  private async findSnapshot({ snapshotId }: Pointer, source: string): Promise<boolean> {
    const { disk } = this;
    const snapshot = snapshotOf(source);
    this.hold(snapshot, source);
    if (exists(disk, snapshot)) {
      if ((await hashOf(disk, snapshot)) === snapshotId) return true;
      throw new Failure(
        "migration_failed",
        `${snapshot} is not the session file that was migrated: its SHA-256 is another. Put the original back; or move this file away, and rolling back writes the session file from the container.`,
        { snapshotPath: snapshot, snapshotId },
      );
    }
    if (!exists(disk, source) || (await hashOf(disk, source)) !== snapshotId) return false;
    disk.rename(source, snapshot);
    await disk.syncFolder(dirname(source));
    return true;
  }

  private async restore(pointer: Pointer, reason: string): Promise<Migrated> {
    const { disk, site } = this;
    const began = pointer.snapshotId === null;
    const named = pointer.source === null ? null : join(dirname(site.container), pointer.source);
    const hasSnapshot = !began && named !== null && (await this.findSnapshot(pointer, named));
    const log = this.options.openContainer(site.container);
    const before = hasSnapshot && named !== null ? this.options.openFile(snapshotOf(named), true) : null;
    try {
      log.takeLock();
      const found = await audit(disk, site.container, { progress: this.wishes.progress });
      const whole = Object.entries(found.invariants).every(([id, holds]) => holds || id === "INV-007");
      const later = laterThan(log, before);
      const isSound = whole && log.mendable.length === 0;
      if ((before === null || later.length > 0) && !isSound) {
        // Nothing was written to the container: it is the session as before, and can be repaired.
        if (pointer.phase === "rollback")
          await putPointer(disk, site.pointer, { ...pointer, phase: "completed", reason: null });
        throw new Failure(
          "migration_failed",
          "Entries that no snapshot has are damaged. repair_session rebuilds the session; then roll back.",
        );
      }
      const machine = this.machine(stateBefore(pointer, found, isSound));
      if (machine.state === "CLEAN" || machine.state === "MIGRATED") {
        await log.checkpointNow?.("pre_migration");
        machine.through(["DIRTY", "SEGMENT_SEALED", "INDEXED", "CHECKPOINTED"], "a checkpoint of what is rolled back");
      }
      const file = named ?? this.options.fileFor(log.header, dirname(site.container));
      const intent: Pointer = {
        ...pointer,
        phase: "rollback",
        reason,
        correlationId:
          this.wishes.correlationId ?? (pointer.phase === "rollback" ? pointer.correlationId : this.correlationId),
        source: basename(file),
      };
      const isThere = exists(disk, file);
      let verification: Verification;
      try {
        await putPointer(disk, site.pointer, intent);
        await this.putBack(log, before, later, file, before === null || pointer.phase === "rollback");
        verification = await this.verifyBack(file, log, found.chainHash, whole, later.length);
        if (!holds(verification))
          throw new Failure(
            "migration_failed",
            "The session file does not have what the store has. The store stays active; check the disk and roll back again.",
            { verification },
          );
      } catch (error) {
        await this.withdraw(pointer, isThere ? null : file);
        throw error;
      }
      const after: Pointer = { ...intent, active: this.format };
      await putPointer(disk, site.pointer, after);
      await this.keepLeaf(this.options.leaves?.recall(log), () => this.options.openFile(file, true));
      log.close();
      const keptAt = await this.tidy(after, verification, before?.version);
      machine.to("ROLLED_BACK", reason);
      const count = before === null ? found.counters.entriesTotal : before.nodes.count + later.length;
      return {
        ...this.done(machine.state, machine.history, pointer.snapshotId, verification, count),
        correlationId: after.correlationId,
        active: this.format,
        sessionPath: file,
        laterEntries: later.length,
        rebuilt: before === null,
        keptAt,
      };
    } finally {
      log.close();
      before?.close();
    }
  }

  /** Undoes a rollback that failed before its marker, as far as the disk allows. */
  private async withdraw(pointer: Pointer, made: string | null): Promise<void> {
    try {
      if (made !== null && exists(this.disk, made)) this.disk.remove(made);
      await putPointer(this.disk, this.site.pointer, pointer);
    } catch {
      // Rolling back again goes on from here.
    }
  }

  /**
   * Puts the session file in its place, durably. `again`: a file in that place may be from an attempt that was cut off.
   * Throws already_exists when another file is there.
   */
  private async putBack(log: Log, before: Log | null, later: Int32Array, file: string, again: boolean): Promise<void> {
    const { disk } = this;
    const snapshot = snapshotOf(file);
    const isStanding = exists(disk, file);
    if (isStanding && !again) throw inTheWay(file);
    if (before && later.length === 0) {
      if (isStanding) {
        if ((await hashOf(disk, file)) === (await hashOf(disk, snapshot))) return;
        throw inTheWay(file);
      }
      await giveName(disk, snapshot, file);
      return;
    }
    if (this.format === "sqlite_v1") {
      if (isStanding && again && (await this.holdsAllOf(log, file))) return;
      if (isStanding) throw inTheWay(file);
      await this.putDatabaseBack(log, before, file);
      return;
    }
    const temporary = temporaryName(file);
    const fd = disk.create(temporary);
    try {
      // A leaf in the snapshot's header is not that of a session that was continued.
      if (before && before.version >= 3 && before.header.leafId === undefined) {
        disk.copyMode(snapshot, fd);
        await copyLines(disk, snapshot, fd);
        for (const piece of log.copy(later)) writeAll(disk, fd, piece);
      } else {
        writeAll(disk, fd, concat([log.headerLine, LF]));
        for (const piece of log.copy(range(0, log.nodes.count))) writeAll(disk, fd, piece);
      }
      await disk.sync(fd);
      if (isStanding) {
        if (!(await beginsWith(disk, temporary, file))) throw inTheWay(file);
        disk.rename(temporary, file);
      } else takeName(disk, temporary, file);
    } catch (error) {
      removeQuietly(disk, temporary);
      throw error;
    } finally {
      closeQuietly(disk, fd);
    }
    await disk.syncFolder(dirname(file));
  }

  /** Whether a session file has the entries of a log and no others. */
  private async holdsAllOf(log: Log, file: string): Promise<boolean> {
    const back = this.options.openFile(file, true);
    try {
      const { count } = log.nodes;
      if (back.nodes.count !== count) return false;
      for (let first = 0; first < count; ) {
        const past = stretch(log, first);
        for (let p = first; p < past; p++) if (Buffer.compare(back.read(p), log.read(p)) !== 0) return false;
        first = past;
        await pause();
      }
      return true;
    } finally {
      back.close();
    }
  }

  /** Writes a copy of the snapshot with the later rows, or a new database. It is complete before it gets its name. */
  private async putDatabaseBack(log: Log, before: Log | null, file: string): Promise<void> {
    const { disk, site } = this;
    const temporary = temporaryName(file);
    try {
      if (before) await copyFile(disk, snapshotOf(file), temporary, true);
      else closeQuietly(disk, disk.create(temporary));
      writeDatabase(disk, temporary, {
        id: log.header.id,
        headerLine: log.headerLine,
        lines: log.readMany(range(0, log.nodes.count)),
        has: before?.nodes.count ?? 0,
        blobs: blobsIn(disk, join(site.container, BLOBS)),
      });
      takeName(disk, temporary, file);
    } catch (error) {
      removeQuietly(disk, temporary);
      throw error;
    }
    await disk.syncFolder(dirname(file));
  }

  /** Reads the session file that is to become active as any other program would. */
  private async verifyBack(
    file: string,
    log: Log,
    chainHash: string,
    whole: boolean,
    later: number,
  ): Promise<Verification> {
    const back = this.options.openFile(file, true);
    try {
      if (later === 0 && !whole) return { ...ALL_HOLD, indexConsistent: back.mendable.length === 0 };
      const { nodes } = back;
      let chain = GENESIS;
      let ordered = nodes.count === log.nodes.count;
      for (let first = 0; first < nodes.count; ) {
        const past = stretch(back, first);
        let position = first;
        for (const line of back.readMany(range(first, past))) {
          // The snapshot's lines may have white space around an entry; payloads have none.
          chain = chained(chain, sha256(payloadOf(line)));
          ordered &&= nodes.id(position) === log.nodes.id(position);
          position++;
        }
        first = past;
        await pause();
      }
      return {
        entryCountMatch: ordered,
        hashChainMatch: chain === chainHash,
        indexConsistent: back.mendable.length === 0,
      };
    } finally {
      back.close();
    }
  }

  /**
   * Finishes a rollback after its marker: appends the event and removes names that are no longer needed. Returns where
   * the container is kept; null when it was moved before.
   */
  private async tidy(pointer: Pointer, verification = ALL_HOLD, version?: number): Promise<string | null> {
    const { disk, site } = this;
    const source = join(dirname(site.container), pointer.source as string);
    const snapshot = snapshotOf(source);
    let keptAt: string | null = null;
    if (exists(disk, site.container)) {
      const { events } = readLedger(disk, ledgerFile(site.container));
      const isTold = events.some(
        ({ phase, outcome, correlationId }) =>
          phase === "rollback" && outcome === "ok" && correlationId === pointer.correlationId,
      );
      if (!isTold) await this.note(site.container, "rollback", "ok", verification, undefined, pointer.correlationId);
    }
    if (exists(disk, snapshot)) {
      const [a, b] = [disk.info(source), disk.info(snapshot)];
      const isOne = a.device === b.device && a.inode === b.inode;
      if (isOne || (await hashOf(disk, source)) === (await hashOf(disk, snapshot))) disk.remove(snapshot);
      else disk.rename(snapshot, freeName(disk, `${source}.v${version ?? versionIn(disk, snapshot)}.bak`));
      await disk.syncFolder(dirname(source));
    }
    if (exists(disk, site.container)) {
      keptAt = this.freeAside();
      disk.rename(site.container, keptAt);
      await disk.syncFolder(dirname(site.container));
    }
    return keptAt;
  }

  private freeAside(): string {
    for (let n = 1; ; n++) if (!exists(this.disk, asideName(this.site, n))) return asideName(this.site, n);
  }

  /**
   * Marks the store as FAILED: there is nothing to roll back to until an operator restores it. Returns the new pointer.
   */
  private async fail(pointer: Pointer, reason: string): Promise<Pointer> {
    const failed: Pointer = { ...pointer, phase: "failed", reason };
    await this.note(this.site.container, "failed", "fatal_error", NONE_HOLD, "atomicity_violation");
    await putPointer(this.disk, this.site.pointer, failed);
    return failed;
  }

  // --- common --------------------------------------------------------------------------------------------------

  /**
   * Returns the leaf that the entries of a session file do not determine: the recorded one, else that of the header;
   * undefined for neither. Null is the place before the first entry.
   */
  private leafOf(log: Log): string | null | undefined {
    const recorded = this.options.leaves?.recall(log);
    return recorded !== undefined ? recorded : log.header.leafId === "" ? null : log.header.leafId;
  }

  /** Records, for the session in its new place, a leaf that its bytes do not determine. */
  private async keepLeaf(leafId: string | null | undefined, open: () => Log): Promise<void> {
    if (leafId === undefined) return;
    try {
      const log = open();
      await this.options.leaves?.record(log, leafId).finally(() => log.close());
    } catch {
      // The session is in its place; without a record, its bytes determine the leaf.
    }
  }

  private async note(
    container: string,
    phase: Phase,
    outcome: EventOutcome,
    verification: Verification,
    errorClass?: ErrorClass,
    correlationId = this.correlationId,
  ): Promise<void> {
    const { site, migrationId } = this;
    const isBack = phase === "rollback";
    const file = site.source === null ? `${site.sessionId}.jsonl` : basename(site.source);
    const formats: [SourceFormat, SourceFormat] = isBack ? ["native_v2", this.format] : [this.format, "native_v2"];
    const names = isBack ? [basename(site.container), file] : [file, basename(site.container)];
    await appendEvent(this.disk, ledgerFile(container), {
      migrationId,
      phase,
      at: timestamp(this.options.env),
      sourcePath: names[0],
      targetPath: names[1],
      sourceFormat: formats[0],
      targetFormat: formats[1],
      verification,
      outcome,
      ...(errorClass === undefined ? {} : { errorClass }),
      correlationId,
    });
  }

  /** Takes the writer's locks of the files at these paths, as far as they exist. Throws session_locked. */
  private hold(...paths: string[]): void {
    const held = new Set<string>();
    for (const path of paths) {
      if (!exists(this.disk, path)) continue;
      const info = this.disk.info(path);
      const key = `${info.device}:${info.inode}`;
      if (held.has(key)) continue;
      held.add(key);
      const isContainer = path === headerFile(this.site.container);
      const place = isContainer ? lockInContainer(this.site.container) : lockBeside(this.disk, path, info.inode);
      const taken = this.options.locks.take(info, place);
      if (!isLock(taken))
        throw new Failure(
          "session_locked",
          `${taken.client} (process ${taken.pid}) is writing to this session. Close it there, then try again.`,
          { holder: taken },
        );
      this.locks.push(taken);
    }
  }

  private release(): void {
    for (const lock of this.locks.splice(0)) lock.release();
  }
}

/** Returns the state of a store that is to be rolled back, derived from its pointer and files. */
function stateBefore(pointer: Pointer, found: Audit, isSound: boolean): StoreState {
  if (pointer.phase !== "completed" || !isSound) return "FAILED";
  const { entriesTotal } = found.counters;
  // A store without entries has nothing that a checkpoint could name.
  if (entriesTotal === 0) return "CHECKPOINTED";
  if (pointer.source !== null && found.manifest?.integrity.manifestHash === pointer.manifestHash) return "MIGRATED";
  return found.checkpoints.at(-1)?.headEntrySeq === entriesTotal ? "CHECKPOINTED" : "CLEAN";
}

function holds({ entryCountMatch, hashChainMatch, indexConsistent }: Verification): boolean {
  return entryCountMatch && hashChainMatch && indexConsistent;
}

function operatorNeeded({ reason, source }: Pointer): Failure {
  return new Failure(
    "migration_failed",
    `The store is FAILED: ${reason ?? "the migration did not end"}. Put ${source}.migrated back, then use rollback_migration (pi-session-server rollback); if the file is lost, the same command writes it from the container. Until then the session can only be read.`,
    { state: "FAILED", operatorAction: "restore the rollback target, or roll back without it" },
  );
}

function changedMeanwhile(): Failure {
  return new Failure(
    "migration_failed",
    "Another program wrote to the session file while it was migrated. The file is as that program left it; migrate again.",
    {},
    { retryable: true },
  );
}

function inTheWay(file: string): Failure {
  return new Failure(
    "already_exists",
    `There is another file at ${file} already. Move it away, then roll back again.`,
    { sessionPath: file },
  );
}

function classOf(error: unknown): ErrorClass {
  if (!(error instanceof Failure)) return "io_failure";
  if (error.name === "storage_failed" || error.name === "storage_full") return "io_failure";
  return error.retryable ? "atomicity_violation" : "integrity_mismatch";
}

function range(first: number, past: number): Int32Array {
  return Int32Array.from({ length: past - first }, (_, i) => first + i);
}

/** Returns the positions of the entries that the earlier log does not have. */
function laterThan(log: Log, before: Log | null): Int32Array {
  if (!before) return new Int32Array(0);
  const later: number[] = [];
  for (let p = 0; p < log.nodes.count; p++) if (before.nodes.position(log.nodes.id(p)) < 0) later.push(p);
  return Int32Array.from(later);
}

/** Copies a file's bytes, and a line feed when the last line lacks it. */
async function copyLines(disk: Disk, from: string, to: number): Promise<void> {
  const fd = disk.openRead(from);
  try {
    let last = 0x0a;
    for (const piece of piecesOf(disk, fd, 0, disk.infoOf(fd).size)) {
      writeAll(disk, to, piece);
      last = piece[piece.length - 1];
      await pause();
    }
    if (last !== 0x0a) writeAll(disk, to, LF);
  } finally {
    closeQuietly(disk, fd);
  }
}

/** Gives a file a second name durably, or makes a copy where links are not possible. Throws already_exists. */
async function giveName(disk: Disk, file: string, name: string): Promise<void> {
  try {
    disk.link(file, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") throw inTheWay(name);
    await copyFile(disk, file, name, true);
  }
  await disk.syncFolder(dirname(name));
}

/** Yields the attachments of a container, each with its SHA-256. */
function* blobsIn(disk: Disk, folder: string): Generator<[string, Uint8Array]> {
  if (isAbsent(disk, folder)) return;
  for (const name of disk.names(folder))
    if (/^[0-9a-f]{64}$/.test(name)) yield [name, readWhole(disk, join(folder, name))];
}

function freeName(disk: Disk, name: string): string {
  for (let n = 1; ; n++) {
    const candidate = n === 1 ? name : `${name}.${n}`;
    if (!exists(disk, candidate)) return candidate;
  }
}
