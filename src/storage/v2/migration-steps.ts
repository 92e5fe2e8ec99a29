/** The shared steps of migrations and rollbacks: the ledger, locks, names, and the state after a failure. */

import { basename, dirname, join } from "node:path";
import { toStorageFailure, toUnfinishedFailure } from "../../core/errno.ts";
import { describeUnchanged, Failure, type FailureText } from "../../core/failure.ts";
import type { SessionHeader } from "../../core/format/entry.ts";
import { type Env, makeTimestamp } from "../../core/ports/env.ts";
import type { Migrated, SessionLocation, TransitionOptions, Verification } from "../../core/ports/migrations.ts";
import type { Log } from "../../core/ports/store.ts";
import type { LeafMemory } from "../../core/ports/stores.ts";
import { pause } from "../fs/chunked-io.ts";
import { headerFile, ledgerFile } from "../fs/container-paths.ts";
import { type Disk, exists } from "../fs/disk.ts";
import { findFreeName } from "../fs/files.ts";
import { listFolder } from "../fs/folders.ts";
import { readHeader } from "../fs/header.ts";
import { removeTree } from "../fs/staging.ts";
import { getFileKey, isLock, type Lock, type Locks } from "../locks/contract.ts";
import { locateLock, locateLockInContainer } from "../locks/lock-paths.ts";
import {
  appendEvent,
  CORRELATION,
  type ErrorClass,
  encodePointer,
  type MigrationEvent,
  type Pointer,
  type SourceFormat,
} from "./documents.ts";
import {
  getRolledBackName,
  isContainer,
  isLeftOver,
  isOfAnother,
  isRenamedCopy,
  makeMissingPointer,
  putPointer,
  readPointerAt,
} from "./pointer.ts";
import { StateMachine, type StoreState } from "./states.ts";

export interface MigrationOptions {
  readonly disk: Disk;
  readonly env: Env;
  readonly locks: Locks;
  /** Largest size of a segment in bytes. */
  readonly segmentBytes?: number;
  /** Most bytes that are handled without a pause. */
  readonly pauseBytes?: number;
  /** Opens a session file, or a database as if it were a read-only session file. */
  readonly openFile: (file: string, readOnly?: boolean) => Log;
  /** Opens a container that its pointer calls active. */
  readonly openContainer: (container: string, readOnly?: boolean) => Log;
  /** Returns the path of the session file for a session that began in V2, in the folder of its container. */
  readonly fileFor: (header: SessionHeader, folder: string) => string;
  /** Leaf positions that the stored bytes do not contain; they move with the session. */
  readonly leaves?: LeafMemory;
}

/** Most entries and bytes that are handled without a pause. */
const PAUSE_ENTRIES = 4096;
const PAUSE_BYTES = 4 << 20;

export const ALL_VALID: Verification = { entryCountMatch: true, hashChainMatch: true, indexConsistent: true };
export const NONE_VALID: Verification = { entryCountMatch: false, hashChainMatch: false, indexConsistent: false };
/** The default reason. */
export const UNFINISHED = "the cutover was not brought to its end";

export function isVerified({ entryCountMatch, hashChainMatch, indexConsistent }: Verification): boolean {
  return entryCountMatch && hashChainMatch && indexConsistent;
}

/** Returns the failure of a migration or rollback. */
export function makeMigrationFailure(
  said: string | FailureText,
  details: Failure["details"] = {},
  options: { cause?: unknown; retryable?: boolean } = {},
): Failure {
  return new Failure("migration_failed", said, details, options);
}

/** Returns the failure for a store that is FAILED. */
export function makeOperatorFailure({ reason, source }: Pointer): Failure {
  return makeMigrationFailure(
    `The store is FAILED: ${reason ?? "the migration did not end"}. Put ${source}.migrated back, then use rollback_migration (pi-session-server rollback); if the file is lost, the same command writes it from the container. Until then the session can only be read.`,
    { state: "FAILED", operatorAction: "restore the rollback target, or roll back without it" },
  );
}

/** Throws migration_failed for a copy of a container under another name: its pointer names the files of the original. */
function requireOwnName(disk: Disk, { container }: SessionLocation): void {
  if (!isRenamedCopy(disk, container)) return;
  const own = `${readHeader(disk, container)?.id}`;
  throw makeMigrationFailure(
    describeUnchanged(
      `${basename(container)} is a copy of the container of the session ${own}, and its pointer names the files of that one.`,
      "Export the copy to get a session file of it.",
    ),
  );
}

/** One migration or rollback of one session. */
export class MigrationRun {
  readonly options: MigrationOptions;
  readonly disk: Disk;
  readonly location: SessionLocation;
  readonly request: TransitionOptions;
  readonly migrationId: string;
  readonly correlationId: string;
  /** Format of the session outside of the container. */
  format: "jsonl_v3" | "sqlite_v1" = "jsonl_v3";
  /** The present path of a container that is no longer the session; null if it was not moved. */
  keptAt: string | null = null;
  /** Sentences about renamed files, for a failure of the rest. */
  readonly moved: string[] = [];
  /** True if names or the pointer may have changed since they were read. */
  private hasBegun = false;
  /** The pointer as it was found first; undefined before that. */
  private found: Pointer | null | undefined;
  /** Locks that this has, by the key of their files. */
  private readonly locks = new Map<string, Lock>();

  constructor(options: MigrationOptions, location: SessionLocation, request: TransitionOptions) {
    this.options = options;
    this.disk = options.disk;
    this.location = location;
    this.request = request;
    this.migrationId = options.env.sessionId();
    this.correlationId = request.correlationId ?? `migration-${this.migrationId}`;
    if (!CORRELATION.test(this.correlationId))
      throw makeMigrationFailure(
        "A correlation id has 8 to 128 letters, digits, dots, colons, underscores and hyphens.",
      );
  }

  machine(from: StoreState): StateMachine {
    return new StateMachine(() => makeTimestamp(this.options.env), from);
  }

  /** Returns a path in the folder of the session. */
  pathOf(name: string): string {
    return join(dirname(this.location.container), name);
  }

  /**
   * Returns the session's pointer as it is now; one that is missing is derived from the container's documents. That of
   * another session with its id does not count. Throws migration_failed for a copy of a container.
   */
  pointer(): Pointer | null {
    const { disk, location } = this;
    const stored = readPointerAt(disk, location.pointer);
    if (isOfAnother(disk, location, stored)) return null;
    requireOwnName(disk, location);
    const pointer = stored ?? makeMissingPointer(disk, location.container);
    this.format = pointer?.sourceFormat ?? this.format;
    if (this.found === undefined) this.found = pointer;
    return pointer;
  }

  /** Records that from here on names or the pointer may be other than they were found. */
  begin(): void {
    this.hasBegun = true;
  }

  /** Publishes the pointer in one step, durably. */
  publish(pointer: Pointer): Promise<void> {
    this.begin();
    return putPointer(this.disk, this.location.pointer, pointer);
  }

  /** Runs a migration to `wanted`, or a rollback; its failure describes the state. Releases the locks. */
  async runReported<T>(doing: string, wanted: "container" | "file", go: () => Promise<T>): Promise<T> {
    try {
      return await go();
    } catch (error) {
      // The failure of a FAILED store describes it already.
      const isReported = error instanceof Failure && error.details.state === "FAILED";
      const { settledAs, sentence = null } = this.hasBegun && !isReported ? this.describeState() : {};
      const sentences = [sentence, ...this.moved].filter((one) => one !== null);
      if (sentences.length === 0) throw toStorageFailure(error, doing);
      throw toUnfinishedFailure(error, doing, sentences.join(" "), {}, settledAs === wanted);
    } finally {
      this.release();
    }
  }

  /** Returns which store is the session by now, with a sentence about changed or unsettled parts. */
  private describeState(): { readonly sentence: string | null; readonly settledAs?: "container" | "file" } {
    const { disk, location, found = null } = this;
    const { container } = location;
    let now: Pointer | null;
    try {
      now = readPointerAt(disk, location.pointer);
    } catch {
      return {
        sentence: "Where the session can only be read now, rollback_migration makes its file the session again.",
      };
    }
    const isSame = now === null || (found !== null && encodePointer(now) === encodePointer(found));
    if (now !== null && isContainer(disk, container, now)) {
      if (now.phase !== "completed")
        return { sentence: "The session can only be read until rollback_migration makes its file the session again." };
      return { sentence: isSame ? null : `The session is ${container}.`, settledAs: "container" };
    }
    const file = now?.source ? this.pathOf(now.source) : location.source;
    if (now !== null && exists(disk, container))
      return { sentence: `The session is ${file} again; rollback_migration once more puts the rest in order.` };
    return { sentence: isSame ? null : `The session is ${file}.`, settledAs: "file" };
  }

  /** Returns the result of an operation without changes except those in `more`. */
  done(more: Partial<Migrated> & Pick<Migrated, "active" | "sessionPath" | "entryCount">): Migrated {
    const { location, migrationId, correlationId } = this;
    return {
      location,
      migrationId,
      correlationId,
      state: "CLEAN",
      transitions: [],
      snapshotId: null,
      verification: ALL_VALID,
      laterEntries: 0,
      rebuilt: false,
      keptAt: this.keptAt,
      ...more,
    };
  }

  /** Appends an event to the ledger of a container. */
  async note(
    container: string,
    phase: MigrationEvent["phase"],
    outcome: MigrationEvent["outcome"],
    verification: Verification,
    more: { errorClass?: ErrorClass; correlationId?: string } = {},
  ): Promise<void> {
    const { location, migrationId, correlationId } = this;
    const file = location.source === null ? `${location.sessionId}.jsonl` : basename(location.source);
    const ends: [path: string, format: SourceFormat][] = [
      [file, this.format],
      [basename(location.container), "native_v2"],
    ];
    const [source, target] = phase === "rollback" ? ends.reverse() : ends;
    await appendEvent(this.disk, ledgerFile(container), {
      migrationId,
      phase,
      at: makeTimestamp(this.options.env),
      sourcePath: source[0],
      targetPath: target[0],
      sourceFormat: source[1],
      targetFormat: target[1],
      verification,
      outcome,
      correlationId,
      ...more,
    });
  }

  /** Takes the writer's locks of the files at these paths, as far as they exist. Throws session_locked. */
  lockPaths(...paths: string[]): void {
    const { disk, location } = this;
    for (const path of paths) {
      if (!exists(disk, path)) continue;
      const info = disk.info(path);
      if (this.locks.has(getFileKey(info))) continue;
      const isContainer = path === headerFile(location.container);
      const place = isContainer ? locateLockInContainer(location.container) : locateLock(disk, path, info.inode);
      const taken = this.options.locks.acquire(info, place);
      if (!isLock(taken))
        throw new Failure(
          "session_locked",
          `${taken.client} (process ${taken.pid}) is writing to this session. Close it there, then try again.`,
          { holder: taken },
        );
      this.locks.set(getFileKey(info), taken);
    }
  }

  release(): void {
    for (const lock of this.locks.values()) lock.release();
    this.locks.clear();
  }

  /** Removes the new container, because nothing was published. Its ledger has the reason, and the session file stays. */
  async abandon(error: unknown, verification: Verification): Promise<void> {
    const { disk, location } = this;
    try {
      if (isLeftOver(disk, location.container) && !exists(disk, location.staging))
        disk.rename(location.container, location.staging);
      if (!exists(disk, ledgerFile(location.staging))) {
        removeTree(disk, location.staging);
        return;
      }
      await this.note(location.staging, "failed", "recoverable_error", verification, { errorClass: classOf(error) });
      this.clearStaging();
    } catch {
      // The disk refuses this too; the next migration finds the staging folder and starts again.
    }
  }

  /**
   * Makes the name of the container free. What a migration left that was cut off becomes the staging folder again. Any
   * other container may hold entries that nothing else has (its pointer was lost, and an old session file put back): it
   * is kept as one that was rolled back. Throws session_locked.
   */
  clearName(): void {
    const { disk, location } = this;
    if (!exists(disk, location.container)) return;
    const isStaging = isLeftOver(disk, location.container) && !exists(disk, location.staging);
    if (isStaging) return disk.rename(location.container, location.staging);
    this.lockPaths(headerFile(location.container));
    this.moveContainerAway();
  }

  /** Removes everything in the staging folder but the ledger. */
  clearStaging(): void {
    const { disk, location } = this;
    for (const { name, kind } of listFolder(disk, location.staging)) {
      const path = join(location.staging, name);
      if (name === "migrations") continue;
      if (kind === "folder") removeTree(disk, path);
      else disk.remove(path);
    }
  }

  /** Gives the container, which is not the session any more, a free name. */
  moveContainerAway(): void {
    const { disk, location } = this;
    const keptAt = findFreeName(disk, (n) => getRolledBackName(location, n));
    this.begin();
    disk.rename(location.container, keptAt);
    this.keptAt = keptAt;
    this.moved.push(`A container that is not the session is kept at ${keptAt}.`);
  }
}

function classOf(error: unknown): ErrorClass {
  if (!(error instanceof Failure)) return "io_failure";
  if (error.name === "storage_failed" || error.name === "storage_full") return "io_failure";
  return error.retryable ? "atomicity_violation" : "integrity_mismatch";
}

/** Yields the positions of a log's entries, as many at a time as are handled without a pause. */
export async function* chunkPositions(log: Log, pauseBytes = PAUSE_BYTES): AsyncGenerator<Int32Array> {
  for (let first = 0; first < log.nodes.count; ) {
    let past = first;
    for (let bytes = 0; past < log.nodes.count && bytes < pauseBytes && past - first < PAUSE_ENTRIES; past++)
      bytes += log.length(past);
    yield makeRange(first, past);
    first = past;
    await pause();
  }
}

/** Returns the positions from `first` to before `past`. */
export function makeRange(first: number, past: number): Int32Array {
  return Int32Array.from({ length: past - first }, (_, i) => first + i);
}
