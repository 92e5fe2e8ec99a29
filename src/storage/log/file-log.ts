/**
 * The log of a session on disk, whatever its backend: entries in memory until the session is created, the writer's
 * lock, group commit, the durable mark, the frame of a repair. A backend reads and writes the stored bytes.
 */

import {
  isErrno,
  isMissing,
  toNotUndoneFailure,
  toStorageFailure,
  toUncertainFailure,
  toUnfinishedFailure,
} from "../../core/errno.ts";
import { describeUnchanged, Failure } from "../../core/failure.ts";
import type { Damage } from "../../core/format/damage.ts";
import type { SessionHeader } from "../../core/format/entry.ts";
import type { Holder, LogLock } from "../../core/ports/lock.ts";
import type { Replica } from "../../core/ports/replica.ts";
import type { Change, EntryOutcome, FileStamp, Log, LogContainer, Repairs } from "../../core/ports/store.ts";
import { MAKING_DURABLE, toRepairedLostFailure } from "../../core/session/repair.ts";
import type { Nodes } from "../../core/tree/nodes.ts";
import type { FileInfo } from "../fs/disk.ts";
import { guardErrno } from "../fs/files.ts";
import type { AttachmentFolder } from "./attachments.ts";
import type { EntryReader } from "./entry-reader.ts";
import { GroupCommit } from "./group-commit.ts";
import type { KnownEntries, KnownHeads } from "./known-entries.ts";
import type { ReplacedParts, ReplicatedLog } from "./replica.ts";
import type { WriteState } from "./write-state.ts";

/** A kind of session on disk. Methods that touch the disk throw failures and errno errors. */
export interface Backend {
  readonly store: string;
  readonly path: string;
  /** The header, its line in the current format, and the format version of the stored bytes. */
  readonly stored: Pick<Log, "header" | "headerLine" | "version">;
  readonly entries: KnownEntries;
  readonly reader: EntryReader;
  readonly state: WriteState;
  /** True if the session was created. */
  readonly persisted: boolean;
  readonly stamp: FileStamp | null;
  /** The file that carries the lock, as it was last seen; set once the session was created. */
  readonly lockedFile: FileInfo | undefined;
  /** Kinds of damage that a repair removes. */
  readonly repairable: ReadonlySet<Damage["kind"]>;
  /** Parts of the session that are missing, as damage that a repair removes. */
  readonly missingParts?: readonly Damage[];
  /** See {@link Log}. */
  readonly mayHideEntries?: boolean;
  readonly isPlain?: boolean;
  readonly isCheckpointDue?: boolean;
  readonly states?: { readonly state: string };

  /** Opens the log that is in this one's place now. */
  reopen(): FileLog;
  refresh(): Change;
  /** Forgets the stamp, so that the next refresh compares. */
  distrust(): void;

  /** Returns the file that carries the lock as it is now, if that may be another one than was last seen. */
  lockTarget?(): FileInfo;
  /** Throws, after the lock was taken, if it must not be kept. */
  locked?(): void;
  /** Saves data for the next opening, before the lock is released; `isLast`: the log is closed then. */
  unlocking(isLast?: boolean): void;

  /** Throws already_exists if something has the path, or the id, of a session that is not created yet. */
  requireFreeName(): void;
  /** Adds entries in memory only. Unknown heads are read from the lines. */
  addUnwritten(lines: readonly Uint8Array[], heads?: KnownHeads): void;
  /** Creates the session with the first `count` entries, which are unwritten, in one step. */
  create(count: number): void;
  /**
   * Makes sure, before a write, that the known bytes are the stored ones. Adds entries of other writers. The lock is held.
   */
  confirm(): void;
  /** Writes lines at the end, after `confirm`, and adds their entries. The lock is held. */
  append(lines: readonly Uint8Array[], heads?: KnownHeads): void;
  /**
   * Appends the unwritten entries from a position up to another, and records that they are durable. Throws, and keeps the
   * unwritten ones in memory, if another program changed the stored bytes. The lock is held.
   */
  writeUnwritten(from: number, to: number): void;
  /** Removes the entries from a position on, which are unwritten. */
  dropUnwritten(from: number): void;

  /** Records that everything is durable, if that means to survive only the death of the process. */
  markAllDurable(): void;
  /**
   * Syncs the bytes appended until now and records that they are durable. After every wait and before it records that, it
   * calls `requireCurrent`, which throws if the entries were rolled back meanwhile.
   */
  makeDurable(requireCurrent: () => void): Promise<void>;
  /** See {@link Log}. Every entry is durable, as far as this process knows. */
  settle(): void;
  /** Called after each commit, successful or not. */
  committed?(): void;
  /** Commits although every entry is durable. */
  commitNothing?(): Promise<void>;
  /** Makes everything durable instead of removing it, if that cannot be removed alone. Returns whether it did. */
  keepAll?(): boolean;
  /** Removes entries that are not durable. Returns whether the files have none of them left. */
  rollBack(): boolean;

  /** Throws unless a damaged session may be repaired. */
  requireRepairable(): void;
  /** Makes sure, before a repair, that the known bytes are the stored ones. */
  confirmToRepair(): void;
  /** Publishes the session anew without its damage. Returns the path of the backup. */
  rebuild(repairs: Repairs): string;
  /**
   * Publishes the session anew with its first `count` entries and these lines, and another header if one is given. Returns the
   * path of the backup.
   */
  replaceFrom(count: number, lines: readonly Uint8Array[], headerLine?: Uint8Array): string;
  /** Marks the durable end. The lock is held. Returns the number of the checkpoint. */
  checkpointNow?(reason: "manual" | "pre_migration", commit: () => Promise<void>): Promise<number>;

  close(): void;
  /** Removes a session that was just published, unless another program changed it since. */
  discard?(): void;
}

export class FileLog implements ReplicatedLog {
  readonly store: string;
  readonly file: string;
  readonly nodes: Nodes;
  readonly damage: readonly Damage[];
  readonly foreign = null;
  readonly lock: LogLock;
  readonly container: LogContainer | null = null;
  readonly backend: Backend;
  readonly replica: Replica | null;
  /** True if another log replaced this one here. */
  private isReplaced = false;
  remoteChangeCount = 0;
  renamed: ReplicatedLog["renamed"];
  private readonly commits: GroupCommit;
  /** Entries before this position are certain, except the uncertain ones; found out while this process has the lock. */
  private certain = 0;
  private readonly uncertain = new UncertainEntries();
  /** The first unwritten entry: the files lack it and later ones. Only files of a copy do. */
  private unwrittenFrom: number | undefined;
  isDisturbed = false;
  /** Number of entries at which the disk is tried again after a refusal: twice as many as then. */
  private triedFrom = 0;

  constructor(backend: Backend) {
    this.backend = backend;
    this.store = backend.store;
    this.file = backend.path;
    this.nodes = backend.entries.nodes;
    this.damage = backend.entries.damage;
    const { lock } = backend.state;
    const findHolder = (): Holder | null => lock.lockedBy(backend.lockedFile) ?? this.replica?.status.holder ?? null;
    this.lock = {
      get isHeld() {
        return lock.isHeld;
      },
      get kind() {
        return lock.kind;
      },
      get holder() {
        return findHolder();
      },
      acquire: () => this.acquireLock(),
      release: () => this.unlock(),
      prepare: () => lock.prepare(),
      renew: () => this.renewLock(),
      beforeRelease: (run) => (lock.releasing = run),
    };
    const { states } = backend;
    if (states)
      this.container = {
        get state() {
          return states.state;
        },
        checkpoint: (reason = "manual") => this.checkpoint(reason),
      };
    this.commits = new GroupCommit({
      commit: () => this.commit(),
      makeDurable: (requireCurrent) => this.makeDurable(requireCurrent),
      committed: () => (this.replica ? this.committedThere() : backend.committed?.()),
      rollBack: (error) => this.rollBack(error),
    });
    backend.state.commits = this.commits;
    this.replica = backend.state.replica?.(this) ?? null;
  }

  get header(): SessionHeader {
    return this.backend.stored.header;
  }

  get headerLine(): Uint8Array {
    return this.backend.stored.headerLine;
  }

  get version(): number {
    return this.backend.stored.version;
  }

  get readOnly(): Failure | null {
    return this.backend.state.readOnly;
  }

  get persisted(): boolean {
    return this.backend.persisted;
  }

  get durableCount(): number {
    return this.backend.state.durableCount;
  }

  outcome(position: number): EntryOutcome {
    if (this.replica || !this.persisted || this.readOnly) return "certain";
    if (this.uncertain.has(position)) return "unknown";
    return position < this.certain ? "certain" : "uncertain";
  }

  get stamp(): FileStamp | null {
    return this.backend.stamp;
  }

  get mayHideEntries(): boolean {
    // Lines in memory are known.
    return this.unwrittenFrom === undefined && this.backend.mayHideEntries === true;
  }

  get isPlain(): boolean {
    return this.backend.isPlain === true;
  }

  get isCommitDue(): boolean {
    return this.commits.hasUnreportedFailure || (!this.replica && this.backend.isCheckpointDue === true);
  }

  // --- reading -------------------------------------------------------------------------------------------------

  length(position: number): number {
    return this.backend.reader.length(position);
  }

  read(position: number): Uint8Array {
    return this.backend.reader.read(position);
  }

  readMany(positions: ArrayLike<number>, passing?: boolean): Iterable<Uint8Array> {
    return this.backend.reader.readMany(positions, passing);
  }

  copy(positions: ArrayLike<number>, passing?: boolean): Iterable<Uint8Array> {
    return this.backend.reader.copy(positions, passing);
  }

  attachment(position: number, sha256: string, sizeBytes: number): string | null {
    return this.backend.reader.attachment(position, sha256, sizeBytes);
  }

  get attachments(): AttachmentFolder {
    return this.backend.reader.attachments;
  }

  // --- other writers -------------------------------------------------------------------------------------------

  refresh(): Change {
    if (this.isReplaced) return { kind: "replaced" };
    // Unwritten entries come before those of other writers.
    return this.unwrittenFrom === undefined ? this.backend.refresh() : { kind: "none" };
  }

  get isBehind(): boolean {
    return this.unwrittenFrom !== undefined && this.unwrittenFrom < this.durableCount;
  }

  markReplaced(): void {
    this.isReplaced = true;
  }

  reopen(): Log {
    const next = this.backend.reopen();
    const { lockedFile, state } = this.backend;
    const { lockedFile: other, state: nextState } = next.backend;
    nextState.unsynced.add(...state.unsynced.folders);
    if (other?.inode === lockedFile?.inode && other?.device === lockedFile?.device) state.lock.handTo(nextState.lock);
    return next;
  }

  private acquireLock(): boolean {
    const { refusal = null } = this.replica?.status ?? {};
    if (refusal) throw refusal;
    return this.lockHere();
  }

  /** Takes the session's lock on this machine, whether or not another machine has the lease. */
  private lockHere(): boolean {
    const { backend } = this;
    const { lock } = backend.state;
    if (lock.isHeld || !this.persisted) return false;
    guardErrno("locking the session", () => lock.acquire(backend.lockTarget?.() ?? (backend.lockedFile as FileInfo)));
    backend.state.isConfirmed = false;
    try {
      backend.locked?.();
    } catch (error) {
      lock.release();
      throw toStorageFailure(error, "looking at the session");
    }
    return true;
  }

  private renewLock(): void {
    const { lock, isCommitting, readOnly } = this.backend.state;
    const { lockedFile } = this.backend;
    // The lock stays the same until a commit ends.
    if (!lock.isHeld || !lockedFile || isCommitting || readOnly || this.durableCount < this.nodes.count) return;
    lock.keep(lockedFile);
    if (!lock.isHeld) this.backend.state.isConfirmed = false;
  }

  private unlock(isLast = false): void {
    const { backend } = this;
    if (backend.state.lock.isHeld || !this.persisted) this.writeBehind();
    if (backend.state.lock.isHeld && this.unwrittenFrom === undefined) backend.unlocking(isLast);
    backend.state.lock.release();
    backend.state.isConfirmed = false;
    this.replica?.release();
  }

  settle(): void {
    const { backend } = this;
    const { lock, isCommitting, readOnly } = backend.state;
    if (!lock.isHeld || isCommitting || readOnly || this.unwrittenFrom !== undefined) return;
    if (this.durableCount < this.nodes.count) return;
    guardErrno("making durable what another process wrote", () => backend.settle());
    this.certain = this.nodes.count;
  }

  // --- writing -------------------------------------------------------------------------------------------------

  append(lines: readonly Uint8Array[], { defer, heads }: { defer?: boolean; heads?: KnownHeads } = {}): void {
    const { backend, uncertain } = this;
    const { state } = backend;
    const { size } = uncertain;
    this.requireOpen();
    if (state.readOnly) throw state.readOnly;
    this.commits.requireKept();
    this.acquireLock();
    if (defer && !backend.persisted && this.unwrittenFrom === undefined) {
      backend.requireFreeName();
      backend.addUnwritten(lines, heads);
      state.durableCount = this.nodes.count;
      return;
    }
    if (this.replica && (lines.length > 0 || this.unwrittenFrom !== undefined)) return this.addUnwritten(lines, heads);
    try {
      this.write(lines, heads);
      if (state.isSynced) return;
      backend.markAllDurable();
      this.certain = this.nodes.count;
    } catch (error) {
      this.commits.markReported();
      throw uncertain.size > size ? toNotUndoneFailure(error) : toStorageFailure(error, "appending to the session");
    }
  }

  private write(lines: readonly Uint8Array[], heads?: KnownHeads): void {
    const { backend } = this;
    if (this.persisted) {
      backend.confirm();
      backend.append(lines, heads);
      return;
    }
    const { count } = this.nodes;
    backend.addUnwritten(lines, heads);
    try {
      backend.create(this.nodes.count);
    } catch (error) {
      backend.dropUnwritten(count);
      throw error;
    }
  }

  /** Adds lines that are written once they are durable in the other place. */
  private addUnwritten(lines: readonly Uint8Array[], heads?: KnownHeads): void {
    const { backend } = this;
    if (this.unwrittenFrom === undefined)
      guardErrno("appending to the session", () => (this.persisted ? backend.confirm() : backend.requireFreeName()));
    const { count } = this.nodes;
    backend.addUnwritten(lines, heads);
    this.unwrittenFrom ??= count;
  }

  writeBehind(): void {
    const { backend, unwrittenFrom, durableCount } = this;
    if (unwrittenFrom === undefined || !this.isBehind || this.isDisturbed) return;
    try {
      if (!this.persisted) {
        backend.create(durableCount);
        backend.state.unsynced.syncNow();
      }
      backend.writeUnwritten(unwrittenFrom, durableCount);
      this.unwrittenFrom = durableCount < this.nodes.count ? durableCount : undefined;
      this.triedFrom = 0;
    } catch (error) {
      // A disk error may pass. Any other error means that the files have changed.
      this.isDisturbed = this.persisted && (isMissing(error) || !isErrno(error));
      this.triedFrom = 2 * durableCount - unwrittenFrom;
    }
  }

  /** Throws storage_failed if the files lack entries of the log. */
  private requireWritten(): void {
    this.writeBehind();
    if (this.unwrittenFrom === undefined) return;
    const text = describeUnchanged("The session's file does not have all of its entries yet.");
    throw new Failure("storage_failed", text, { sessionPath: this.file });
  }

  private requireOpen(): void {
    if (this.backend.reader.isClosed) throw new Failure("storage_failed", "The session is closed. Open it again.");
  }

  async commit(): Promise<void> {
    this.commits.throwUnreported();
    if (this.durableCount >= this.nodes.count) return this.backend.commitNothing?.();
    this.requireOpen();
    return this.commits.join(this.nodes.count);
  }

  private async makeDurable(requireCurrent: () => void): Promise<void> {
    const { backend, replica } = this;
    const { count } = this.nodes;
    if (replica) return this.makeDurableThere(replica, count, requireCurrent);
    try {
      await backend.makeDurable(requireCurrent);
    } catch (error) {
      requireCurrent();
      if (!this.keepAll()) throw error;
      throw this.commits.keptAll(this.nodes.count, toNotUndoneFailure(error));
    }
    this.certain = count;
  }

  /** Makes the first `count` entries durable in the other place. The files get them after that. */
  private async makeDurableThere(replica: Replica, count: number, requireCurrent: () => void): Promise<void> {
    await replica.replicate(count);
    try {
      requireCurrent();
    } catch (error) {
      throw replica.toLostFailure(error);
    }
    this.backend.state.durableCount = count;
  }

  /** Writes the entries that are durable in the replica to the files. No caller waits for a checkpoint of a copy. */
  private committedThere(): void {
    if (this.durableCount >= this.triedFrom) this.writeBehind();
    if (this.unwrittenFrom === undefined && this.backend.isCheckpointDue)
      this.backend.commitNothing?.().catch(() => {});
  }

  replaceFrom(count: number, lines: readonly Uint8Array[], { renamed, headerLine }: ReplacedParts = {}): string {
    this.beginToBring();
    this.requireWritten();
    const doing = "putting the entries of other machines in place";
    const backup = guardErrno(doing, () => this.backend.replaceFrom(count, lines, headerLine));
    this.isReplaced = true;
    this.renamed = renamed;
    try {
      this.backend.state.unsynced.syncNow();
    } catch (error) {
      const isKept = `It is there all the same, and the former file is at ${backup}; a loss of power may bring that back.`;
      throw toUnfinishedFailure(error, doing, isKept, { backupPath: backup });
    }
    return backup;
  }

  addDamage(damage: Damage): void {
    this.backend.entries.damage.push(damage);
  }

  private beginToBring(): void {
    this.commits.requireKept();
    if (this.commits.isRunning || this.durableCount < this.nodes.count)
      throw new Failure("storage_failed", "Changes wait to become durable. Try again.");
    this.remoteChangeCount++;
  }

  applyRemote(lines: readonly Uint8Array[]): void {
    this.beginToBring();
    this.addUnwritten(lines);
    this.backend.state.durableCount = this.nodes.count;
    this.writeBehind();
  }

  rollBack(error?: unknown): unknown {
    if (error === undefined) this.commits.markReported();
    if (this.durableCount >= this.nodes.count) return error;
    const { count } = this.nodes;
    if (this.replica) return this.dropUnwritten(count, error);
    const isKept = this.keepAll();
    const failure = isKept || this.backend.rollBack() || !error ? error : toUncertainFailure(error);
    this.commits.invalidate(count, failure, isKept);
    return failure;
  }

  /** Removes entries that are neither durable in the replica nor written here. */
  private dropUnwritten(count: number, error: unknown): unknown {
    this.backend.dropUnwritten(this.durableCount);
    if (!this.isBehind) this.unwrittenFrom = undefined;
    this.commits.invalidate(count, error, false);
    return error;
  }

  /** Keeps entries that are not durable and cannot be removed. Returns whether it does. */
  private keepAll(): boolean {
    const { durableCount: from } = this;
    if (!this.backend.keepAll?.()) return false;
    this.uncertain.add(from, this.nodes.count);
    return true;
  }

  takeFirstUncertain(): number | undefined {
    return this.uncertain.takeFirst();
  }

  private async checkpoint(reason: "manual" | "pre_migration"): Promise<number | null> {
    this.requireOpen();
    if (this.readOnly) throw this.readOnly;
    if (!this.persisted || this.nodes.count === 0) return null;
    this.requireWritten();
    return guardErrno("making a checkpoint", async () => {
      this.acquireLock();
      return (await this.backend.checkpointNow?.(reason, () => this.commit())) ?? null;
    });
  }

  // --- repairing -----------------------------------------------------------------------------------------------

  get repairable(): readonly Damage[] {
    const { repairable, missingParts = [] } = this.backend;
    return [...this.damage.filter(({ kind }) => repairable.has(kind)), ...missingParts];
  }

  repair(repairs: Repairs = new Map()): string | null {
    const { backend } = this;
    const isNeeded = (): boolean => this.repairable.length > 0 || repairs.size > 0;
    let backup: string | null = null;
    if (isNeeded()) {
      this.requireWritten();
      backend.requireRepairable();
      this.acquireLock();
      backend.confirmToRepair();
    }
    if (isNeeded()) {
      backup = backend.rebuild(repairs);
      this.uncertain.forget();
      // The session has none of this damage any more, whether or not the rest succeeds.
      backend.entries.forgetDamage(backend.repairable);
    }
    if (!backend.state.isSynced) return backup;
    try {
      // A session that was published anew is durable only with its name.
      backend.state.unsynced.syncNow();
    } catch (error) {
      // The session is whole; the next refresh compares it again.
      backend.distrust();
      throw backup === null ? toStorageFailure(error, MAKING_DURABLE) : toRepairedLostFailure(error, backup);
    }
    return backup;
  }

  // --- the end -------------------------------------------------------------------------------------------------

  close(): void {
    const { backend } = this;
    if (backend.reader.isClosed) return;
    this.unlock(true);
    backend.close();
    backend.reader.isClosed = true;
  }

  discard(): void {
    const { backend } = this;
    if (!backend.discard || !this.persisted || this.replica?.status.hasReplicated) return this.close();
    try {
      this.lockHere();
    } catch {
      // It is another process's by now.
      return this.close();
    }
    backend.discard();
    backend.reader.isClosed = true;
    // The next process with the lock finds no session to write to.
    backend.state.lock.release();
    this.replica?.release();
  }
}

// --- entries that remained although their commit failed -------------------------------------------------------------

class UncertainEntries {
  private ranges: { readonly from: number; readonly to: number }[] = [];
  /** The first unreported one. */
  private firstUnreported: number | undefined;

  /** Notes those from a position up to another. */
  add(from: number, to: number): void {
    this.ranges.push({ from, to });
    this.firstUnreported ??= from;
  }

  has(position: number): boolean {
    return this.ranges.some(({ from, to }) => position >= from && position < to);
  }

  /** Returns the position of the first unreported entry, once. */
  takeFirst(): number | undefined {
    const { firstUnreported } = this;
    this.firstUnreported = undefined;
    return firstUnreported;
  }

  /** Number of times that entries stayed. */
  get size(): number {
    return this.ranges.length;
  }

  /** Forgets them, as in a file that was published anew. */
  forget(): void {
    this.ranges = [];
  }
}
