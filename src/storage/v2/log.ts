/**
 * The log of a session in a container. An append writes its frames at once; a commit fsyncs them, then writes and
 * fsyncs their index rows (session-store-v2 reference, section 0; seed 003, "Failure semantics"). Periodic checkpoints
 * bound what the next opening has to read.
 */

import { dirname, join } from "node:path";
import { isMissing, storageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import type { Damage } from "../../core/format/damage.ts";
import { addHead } from "../../core/format/head.ts";
import { bytesOf } from "../../core/json/json.ts";
import { timestamp } from "../../core/ports/env.ts";
import type { Beginning, Change, FileStamp, Holder, LockKind, Log, Mended } from "../../core/ports/store.ts";
import { MISSING } from "../../core/tree/nodes.ts";
import {
  BLOBS,
  headerFile,
  indexFile,
  ledgerFile,
  manifestFile,
  pointerFile,
  segmentFile,
  segmentFolder,
} from "../fs/container-paths.ts";
import { closeQuietly, type Disk, exists, isAbsent, readAll, removeQuietly } from "../fs/disk.ts";
import { backupName } from "../fs/quarantine.ts";
import { removeTree, stagingName } from "../fs/staging.ts";
import { isSameFile, isSameStamp } from "../fs/stamps.ts";
import { attachmentFolder, withMember } from "../jsonl/reader.ts";
import { dropLock, lockInContainer, shareLock } from "../locks/lock-paths.ts";
import type { Lock } from "../locks/locks.ts";
import { WriterLock } from "../locks/writer-lock.ts";
import { Commits } from "../log/group-commit.ts";
import { Builder, type NextFrame, nextFrame } from "./builder.ts";
import { CheckpointWriter } from "./checkpoints.ts";
import { type ErrorClass, type EventOutcome, type Phase, readManifest } from "./documents.ts";
import { crc32c, crcText, decodeRow, type IndexRow, payloadOf } from "./frame.ts";
import { appendEventNow } from "./ledger.ts";
import { EMPTY_TAIL, type Tail } from "./places.ts";
import { dropStray, isActive, makeParts, missingParts, newPointer, publishPointer } from "./pointer.ts";
import type { Segment } from "./reader.ts";
import { isLegal, StateMachine } from "./states.ts";
import type { SegmentedOptions } from "./writer.ts";

/** Kinds of damage that a repair removes. */
const MENDED: ReadonlySet<Damage["kind"]> = new Set([
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

/** The logs of one process with entries that are not durable yet, by their containers. */
export type Writers = Map<string, SegmentedLog>;

export class SegmentedLog extends CheckpointWriter implements Log {
  readonly store = "v2";

  private readonly writers: Writers;
  private readonly lock: WriterLock;
  private readonly commits: Commits;
  /** Whether what is known was compared with the container since this log took the lock. */
  private confirmed = false;
  /** Whether every part of the container that writing needs is there. */
  private hasParts = false;
  private isOpen = false;
  /** Lines that waited in memory before the container was created; null once it was committed. */
  private created: Uint8Array[] | null = null;

  constructor(options: SegmentedOptions, writers: Writers, file: string, folder?: string) {
    super(options, file, folder);
    this.writers = writers;
    this.lock = new WriterLock(options.locks, () => lockInContainer(this.folder));
    this.commits = new Commits({
      makeDurable: (demandWanted) => this.makeDurable(demandWanted),
      rollBack: () => this.rollBack(),
      commit: () => this.commit(),
      ended: () => this.noteRest(),
    });
  }

  get persisted(): boolean {
    return this.key !== undefined;
  }

  /** Stamp of the session's files; its size is that of all frames, because frames are what entries are. */
  get stamp(): FileStamp | null {
    if (!this.key) return null;
    try {
      const last = Math.max(1, this.tail.segmentSeq);
      const { modified } = this.infoOrNull(segmentFile(this.folder, last)) ?? this.key;
      return { device: this.key.device, inode: this.key.inode, size: this.tail.bytesTotal, modified };
    } catch (error) {
      throw storageFailure(error, "looking at the session");
    }
  }

  get lockedBy(): Holder | null {
    return this.lock.lockedBy(this.key);
  }

  get lockKind(): LockKind | null {
    return this.lock.kind;
  }

  // --- opening -------------------------------------------------------------------------------------------------

  begin(beginning: Beginning): this {
    this.header = beginning.header;
    this.headerLine = beginning.headerLine;
    return this;
  }

  /**
   * Opens the container. `held`: this process has its lock already. Throws session_not_found and what reading throws.
   */
  open(held = false): this {
    try {
      this.readContainer((key) => !held && this.lock.look(key) !== null);
      this.confirmed = held;
    } catch (error) {
      this.close();
      if (isMissing(error))
        throw new Failure("session_not_found", `There is no session at ${this.file}. list_sessions shows those.`, {
          sessionPath: this.file,
        });
      throw storageFailure(error, "reading the session");
    }
    if (this.readOnly && this.readOnly.name !== "read_only")
      this.states = new StateMachine(() => timestamp(this.env), "FAILED");
    this.durableCount = this.nodes.count;
    this.durable = { tail: this.tail, indexEnd: this.indexEnd, lastRow: this.lastRow };
    this.isOpen = true;
    return this;
  }

  /** Whether the container must be opened again, because other processes may have written to it meanwhile. */
  get wasDisturbed(): boolean {
    return !this.confirmed && this.key !== undefined && this.isDoubtful(this.lock.look(this.key) !== null);
  }

  /** Makes the session read-only and FAILED, until a migration or rollback that was cut off is finished. */
  awaitRollBack(reason: Failure): void {
    this.readOnly ??= reason;
    this.states = new StateMachine(() => timestamp(this.env), "FAILED");
  }

  reopen(): Log {
    const log = openLog(this.options, this.writers, this.file, this.file, this.lock.isHeld);
    if (log.key?.inode === this.key?.inode && log.key?.device === this.key?.device) this.lock.handTo(log.lock);
    log.looseFolders.addAll(this.looseFolders);
    return log;
  }

  /**
   * Adds what other processes wrote. Without the lock, entries found after the index are a guess, because their writer
   * may be at work; the first refresh with the lock reads them again.
   */
  override refresh(): Change {
    const count = this.nodes.count;
    // Rows that this log is making durable need not be read back.
    if (this.attempted.length > 0 && this.confirmed) return this.isIndexOurs ? { kind: "none" } : { kind: "replaced" };
    const judging = this.lock.isHeld && !this.confirmed && !this.closed && this.key !== undefined;
    let change: Change;
    try {
      change = judging ? this.judgeAgain() : super.refresh();
    } catch (error) {
      throw storageFailure(error, "looking at the session");
    }
    if (change.kind === "replaced" && !this.exists) change = { kind: "gone" };
    this.confirmed ||= judging && (change.kind === "none" || change.kind === "grown");
    if (change.kind === "grown" && this.durableCount === count) {
      this.durableCount = this.nodes.count;
      this.durable = { tail: this.tail, indexEnd: this.indexEnd, lastRow: this.lastRow };
    }
    return change;
  }

  private get isIndexOurs(): boolean {
    try {
      const { seen } = this;
      const now = this.infoOrNull(indexFile(this.folder));
      return (
        now !== null &&
        seen !== undefined &&
        isSameFile(now, seen) &&
        now.size === this.indexEnd + this.attempted.length
      );
    } catch (error) {
      throw storageFailure(error, "looking at the session");
    }
  }

  private get exists(): boolean {
    try {
      return this.infoOrNull(headerFile(this.folder)) !== null;
    } catch (error) {
      throw storageFailure(error, "looking at the session");
    }
  }

  protected changedByOthers(): Failure {
    this.confirmed = false;
    return new Failure(
      "storage_failed",
      "Another program changed the session's files meanwhile. Nothing was written; ask again.",
      {},
      { byOthers: true },
    );
  }

  // --- writing -------------------------------------------------------------------------------------------------

  append(lines: readonly Uint8Array[], options: { hold?: boolean } = {}): void {
    if (this.closed) throw new Failure("storage_failed", "The session is closed. Open it again.");
    if (this.readOnly) throw this.readOnly;
    if (!this.persisted && options.hold) {
      demandFree(this.disk, this.file);
      const first = this.nodes.count;
      this.addNodes(lines);
      for (const [i, line] of lines.entries()) this.overrides.set(first + i, line);
      this.durableCount = this.nodes.count;
      return;
    }
    try {
      if (!this.persisted) this.createContainer(lines);
      else this.appendFrames(lines);
      if (this.options.durability === "os") this.settleNow();
    } catch (error) {
      throw storageFailure(error, "appending to the session");
    }
  }

  takeLock(): boolean {
    if (this.lock.isHeld || !this.key) return false;
    this.lock.take(this.key);
    try {
      this.demandActive();
    } catch (error) {
      this.lock.release();
      throw storageFailure(error, "looking at the session");
    }
    this.confirmed = false;
    this.lastCheckpoint = null;
    this.hasParts = false;
    return true;
  }

  /** Creates what a copy of the container left out, before the first write under this lock. */
  private makeMissing(): void {
    if (this.hasParts) return;
    try {
      const made = makeParts(this.disk, this.file, this.options.durability, this.folder);
      if (made.length > 0) this.looseFolders.add(dirname(this.file));
      this.hasParts = true;
    } catch (error) {
      throw storageFailure(error, "making what the session lacks");
    }
  }

  /**
   * Throws session_not_found unless the container is still the session: a previous lock holder may have rolled it back
   * or deleted it.
   */
  private demandActive(): void {
    if (isActive(this.disk, this.file)) return;
    throw new Failure(
      "session_not_found",
      `${this.file} is not the session any more: it was rolled back or deleted. list_sessions shows what is there now.`,
      { sessionPath: this.file },
    );
  }

  unlock(): void {
    if (!this.lock.isHeld) return;
    if (this.manifestDue && this.durableCount === this.nodes.count) this.publishManifestNow();
    if (this.durableCount === this.nodes.count) this.noteBase();
    this.lock.release();
    this.confirmed = false;
  }

  private get writerKey(): string {
    return `${this.key?.device}:${this.key?.inode}`;
  }

  /**
   * Adds what was written since, also by another log of this process. Throws storage_failed when the container changed
   * in another way, and `readOnly` when nothing may be written.
   */
  private catchUp(): void {
    const other = this.writers.get(this.writerKey);
    if (other && other !== this) other.settleNow();
    const change = this.refresh();
    if (change.kind !== "none" && change.kind !== "grown") throw this.changedByOthers();
    // Reading it may have found that nothing may be written.
    if (this.readOnly) throw this.readOnly;
  }

  /**
   * Adds the nodes of lines. Throws invalid_entry, having changed nothing, when an id is taken or a parent is missing.
   */
  private addNodes(lines: readonly Uint8Array[]): void {
    const { nodes } = this;
    const first = nodes.count;
    const { aliases } = nodes;
    for (const line of lines) {
      const position = addHead(this.heads, nodes, line);
      const fault =
        nodes.aliases > aliases
          ? "its id is taken"
          : nodes.parent(position) === MISSING
            ? `its parent ${nodes.missingParent.get(position)} is no entry of the session`
            : null;
      if (fault === null) continue;
      const entryId = nodes.id(position);
      nodes.truncate(first);
      nodes.aliases = aliases;
      throw new Failure("invalid_entry", `The entry ${entryId} cannot be stored: ${fault}.`, { entryId });
    }
  }

  private appendFrames(lines: readonly Uint8Array[]): void {
    this.takeLock();
    this.catchUp();
    this.mend();
    const { nodes, tail } = this;
    const first = nodes.count;
    this.addNodes(lines);
    try {
      const frames: NextFrame[] = [];
      const now = timestamp(this.env);
      let end = tail;
      for (const [i, line] of lines.entries()) {
        const frame = nextFrame(end, nodes, first + i, payloadOf(line), now, this.options.segmentBytes);
        frames.push(frame);
        end = frame.tail;
      }
      this.writeFrames(frames);
      for (const [i, frame] of frames.entries()) this.known(first + i, frame);
      this.tail = end;
    } catch (error) {
      nodes.truncate(first);
      throw error;
    }
    this.writers.set(this.writerKey, this);
    this.manifestDue = true;
    this.touch();
  }

  /** Moves to DIRTY, because something is not durable. While a commit runs, the commit moves the state on. */
  private touch(): void {
    if (!this.commits.isRunning && this.state !== "DIRTY") this.states.to("DIRTY", "entries were appended");
  }

  private known(position: number, frame: NextFrame): void {
    this.places.set(position, frame.place);
    this.checked.set(position, 1);
    this.rows.push(frame.row);
  }

  /** Repairs what a crash or a failed write left, before anything is written after it. */
  private mend(): void {
    const rebuilt = this.replayed > 0 || this.indexFault !== null;
    this.makeMissing();
    if (this.remains) this.cutRemains();
    if (this.indexFault !== null) {
      const { seen } = this;
      this.openIndex();
      const now = this.disk.infoOf(this.indexFd);
      if (now.size > this.indexEnd) {
        if (!seen || !isSameStamp(now, seen)) throw this.changedByOthers();
        this.disk.truncate(this.indexFd, this.indexEnd);
      }
      this.seen = this.disk.infoOf(this.indexFd);
      this.indexFault = null;
    }
    if (!rebuilt) return;
    try {
      this.recordEvent("integrity_check", "recoverable_error", "index_corruption");
    } catch (error) {
      // A damaged ledger must not block appends; verifying the session reports it.
      if (!(error instanceof Failure)) throw error;
    }
    this.replayed = 0;
  }

  /** Appends an event to the ledger, which is fsynced when this returns. */
  private recordEvent(
    phase: Phase,
    outcome: EventOutcome,
    errorClass: ErrorClass | undefined,
    folder = this.folder,
    sourcePath = this.file,
  ): void {
    const migrationId = this.env.sessionId();
    const isNew = appendEventNow(this.disk, ledgerFile(folder), {
      migrationId,
      phase,
      at: timestamp(this.env),
      sourcePath,
      targetPath: this.file,
      sourceFormat: "native_v2",
      targetFormat: "native_v2",
      verification: { entryCountMatch: true, hashChainMatch: true, indexConsistent: true },
      outcome,
      ...(errorClass === undefined ? {} : { errorClass }),
      correlationId: `recovery-${migrationId}`,
    });
    if (isNew) this.looseFolders.add(join(folder, "migrations"));
  }

  // --- the first append ----------------------------------------------------------------------------------------

  /**
   * Creates the container with its header, the lines that waited, and the new ones. It appears in one step, then its
   * pointer. Throws already_exists, invalid_entry.
   */
  private createContainer(lines: readonly Uint8Array[]): void {
    const { disk, nodes, file } = this;
    const first = nodes.count;
    const held = [...this.overrides.values()];
    const builder = new Builder(this.options, stagingName(file));
    let renamed = false;
    let lock: Lock | undefined;
    this.addNodes(lines);
    try {
      demandFree(disk, file);
      disk.makeFolder(join(file, ".."));
      builder.begin(this.headerLine);
      for (const line of [...held, ...lines]) builder.add(line);
      const manifest = builder.finish(this.header, "native_v2");
      builder.settleNow();
      builder.close();
      const key = disk.info(headerFile(builder.folder));
      lock = this.lock.claim(key, lockInContainer(builder.folder));
      disk.rename(builder.folder, file);
      renamed = true;
      publishPointer(disk, file, newPointer(manifest.integrity.manifestHash, this.header.id), this.options.durability);
      this.key = key;
      this.seen = disk.info(indexFile(file));
    } catch (error) {
      builder.close();
      lock?.release();
      this.key = undefined;
      nodes.truncate(first);
      if (renamed) removeQuietly(disk, pointerFile(file));
      removeTree(disk, renamed ? file : builder.folder);
      throw error;
    }
    this.lock.adopt(lock);
    this.confirmed = true;
    this.created = held;
    this.overrides.clear();
    this.looseFolders.add(segmentFolder(file), join(file, "index"), file, join(file, ".."));
    for (let position = 0; position < nodes.count; position++) {
      this.places.copy(builder.places, position);
      this.checked.set(position, 1);
    }
    this.tail = builder.tail;
    this.indexEnd = builder.indexEnd;
    this.lastRow = builder.lastRow;
    this.counted = {
      sessionId: this.header.id,
      sourceFormat: "native_v2",
      createdAt: builder.manifest?.createdAt ?? "",
    };
    this.manifestDue = false;
    this.writers.set(this.writerKey, this);
    this.touch();
  }

  // --- becoming durable ----------------------------------------------------------------------------------------

  async commit(): Promise<void> {
    if (this.durableCount >= this.nodes.count) return this.checkpointInPassing();
    if (this.closed) throw new Failure("storage_failed", "The session is closed. Open it again.");
    return this.commits.join(this.nodes.count);
  }

  /** Makes a checkpoint if one is due. Where an append is durable at once, this is all that a commit has to do. */
  private async checkpointInPassing(): Promise<void> {
    if (!this.isCheckpointDue) return;
    const { count } = this.nodes;
    return this.commits.run(
      count,
      () => this.checkpointIfDue(),
      () => {
        if (!this.closed && this.nodes.count > count)
          this.states.through(["DIRTY", "SEGMENT_SEALED", "INDEXED"], "entries were appended meanwhile");
      },
    );
  }

  private async makeDurable(demandWanted: () => void): Promise<void> {
    const { count } = this.nodes;
    const { tail } = this;
    const rows = this.rows.length;
    await this.syncFrames();
    // This includes the names of new segments: no row may name a frame that a loss of power takes away (INV-003).
    await this.looseFolders.sync();
    demandWanted();
    this.demandFrames(tail);
    this.states.to("SEGMENT_SEALED", "the frames are on the medium");
    // Another log of this process may have made all of it durable meanwhile.
    if (this.durableCount < count) {
      const pending = this.rows.slice(0, rows);
      const bytes = this.writeRows(pending);
      if (bytes.length > 0) await this.disk.sync(this.indexFd);
      await this.looseFolders.sync();
      demandWanted();
      if (this.durableCount < count) {
        this.indexed(bytes, pending);
        this.markDurable(count, tail);
      }
    }
    this.states.to("INDEXED", "the index rows are on the medium");
    await this.checkpointIfDue();
  }

  protected override refuseWrites(): void {
    super.refuseWrites();
    // A commit that runs still finishes what was appended before.
    if (this.isOpen && !this.commits.isRunning) this.fail("entries are damaged or lost");
  }

  /** Moves the state on after a commit: entries that were appended while it ran are for the next. */
  private noteRest(): void {
    if (this.readOnly?.name === "corrupt") return this.fail("entries are damaged or lost");
    if (!this.closed && this.nodes.count > this.durableCount && this.state !== "DIRTY" && this.state !== "FAILED")
      this.states.to("DIRTY", "entries were appended meanwhile");
  }

  /**
   * Throws storage_failed unless the frames are there and the container has its name. No row may name a missing frame
   * (INV-003), and what is durable in a container that lost its name is lost too.
   */
  private demandFrames(tail: Tail): void {
    const isCut =
      tail.segmentSeq > 0 && this.disk.info(segmentFile(this.folder, tail.segmentSeq)).size < tail.segmentSize;
    if (!isCut && this.hasItsHeader()) return;
    // The next refresh finds another session, or what is left of this one.
    this.seen = undefined;
    this.confirmed = false;
    throw new Failure(
      "storage_failed",
      isCut
        ? "Another program cut the session's files. Ask again."
        : "Another program put another session in this one's place. Ask again.",
      {},
      { byOthers: true },
    );
  }

  private indexed(bytes: Uint8Array, rows: readonly string[]): void {
    if (rows.length === 0) return;
    const seen = this.demandIndexEnd(this.indexEnd + bytes.length);
    this.attempted = bytes.subarray(0, 0);
    this.rows.splice(0, rows.length);
    this.indexEnd += bytes.length;
    const last = bytesOf(rows[rows.length - 1]);
    this.lastRow = { length: last.length, crc: crc32c(last) };
    this.seen = seen;
  }

  private markDurable(count: number, tail: Tail): void {
    this.durableCount = count;
    this.durable = { tail, indexEnd: this.indexEnd, lastRow: this.lastRow };
    this.created = null;
    if (count === this.nodes.count) this.writers.delete(this.writerKey);
  }

  /**
   * Makes everything durable synchronously: where durability means no more than surviving the death of the process, or
   * where another log waits.
   */
  private settleNow(): void {
    if (this.durableCount >= this.nodes.count) return;
    const { tail } = this;
    const sync = this.options.durability === "sync";
    try {
      for (const fd of this.sealed) if (sync) this.disk.syncNow(fd);
      // A commit that runs still has to fsync these files.
      if (!this.commits.isRunning) for (const fd of this.sealed.splice(0)) closeQuietly(this.disk, fd);
      if (sync && this.writer) this.disk.syncNow(this.writer.fd);
      if (sync) this.looseFolders.syncNow();
      this.demandFrames(tail);
      if (!this.commits.isRunning) this.states.to("SEGMENT_SEALED", "the frames are written");
      const rows = [...this.rows];
      const bytes = this.writeRows(rows);
      if (sync) {
        if (bytes.length > 0) this.disk.syncNow(this.indexFd);
        this.looseFolders.syncNow();
      } else this.looseFolders.clear();
      this.indexed(bytes, rows);
      this.markDurable(this.nodes.count, tail);
      if (!this.commits.isRunning) this.states.to("INDEXED", "the index rows are written");
    } catch (error) {
      this.rollBack();
      throw error;
    }
  }

  rollBack(): void {
    if (this.durableCount >= this.nodes.count) return;
    this.commits.giveUp();
    const indexed = this.nodes.count - this.rows.length;
    const given = this.rows.slice(Math.max(0, this.durableCount - indexed)).map((row) => rowOf(row));
    this.forgetFrom(this.durableCount);
    this.writers.delete(this.writerKey);
    if (this.state === "SEGMENT_SEALED") this.states.to("FAILED", "the index could not be written");
    if (this.created) this.unmake(this.created);
    else {
      this.rows.length = Math.max(0, this.durableCount - indexed);
      this.tail = this.durable.tail;
      this.cutIndex();
      this.cutTo(this.tail, (segment, start) => this.holdsFrames(given, segment, start));
    }
    if (this.state === "FAILED") this.states.to("DIRTY", "what was not durable is given up");
  }

  /** Whether a segment holds, from `start` on, the frames of these rows and nothing else. */
  private holdsFrames(rows: readonly IndexRow[], { seq, size }: Segment, start: number): boolean {
    let end = start;
    for (const { segmentSeq, byteOffset, byteLength, crc32c: crc } of rows) {
      if (segmentSeq !== seq) continue;
      if (byteOffset !== end || end + byteLength > size) return false;
      const frame = Buffer.allocUnsafe(byteLength);
      readAll(this.disk, this.segmentFd(seq), frame, byteOffset);
      if (crcText(crc32c(frame)) !== crc) return false;
      end += byteLength;
    }
    return end === size;
  }

  /**
   * Removes the container of a session whose first entries did not become durable. Its earlier lines wait in memory
   * again.
   */
  private unmake(held: readonly Uint8Array[]): void {
    this.closeFiles();
    // Another program may have put its own container there.
    if (this.isOursStill) {
      removeQuietly(this.disk, pointerFile(this.file));
      removeTree(this.disk, this.file);
    }
    this.lock.release();
    this.key = undefined;
    this.seen = undefined;
    this.confirmed = false;
    for (const [position, line] of held.entries()) this.overrides.set(position, line);
    this.created = null;
    this.rows = [];
    this.tail = EMPTY_TAIL;
    this.indexEnd = 0;
    this.looseFolders.clear();
    this.manifestDue = false;
    this.durable = { tail: EMPTY_TAIL, indexEnd: 0, lastRow: { length: 0, crc: 0 } };
  }

  private get isOursStill(): boolean {
    try {
      return this.hasItsHeader(this.file);
    } catch {
      return false;
    }
  }

  // --- checkpoints ---------------------------------------------------------------------------------------------

  async checkpointNow(reason: "manual" | "pre_migration" = "manual"): Promise<number | null> {
    this.demandOpen();
    if (this.readOnly) throw this.readOnly;
    if (!this.persisted || this.nodes.count === 0) return null;
    try {
      this.takeLock();
      this.catchUp();
      this.makeMissing();
      await this.commit();
      if (this.state !== "INDEXED") {
        if (this.state !== "DIRTY") this.states.to("DIRTY", "a checkpoint was asked for");
        this.states.through(["SEGMENT_SEALED", "INDEXED"], "no frame was added");
      }
      await this.checkpoint(reason);
    } catch (error) {
      throw storageFailure(error, "making a checkpoint");
    }
    return this.findLastCheckpoint().seq;
  }

  /** Whether a commit has to make a checkpoint, although the append is durable already. */
  get isCheckpointDue(): boolean {
    if (this.options.durability === "sync" || this.state !== "INDEXED" || this.commits.isRunning || this.closed)
      return false;
    return this.lastCheckpoint === null || this.isFarFrom(this.lastCheckpoint.tail);
  }

  private async checkpointIfDue(): Promise<void> {
    try {
      if (!this.isFarFrom(this.findLastCheckpoint().tail)) return;
      await this.checkpoint("periodic");
    } catch (error) {
      // The entries are durable without it; the next commit tries again.
      if ((error as NodeJS.ErrnoException).code === undefined) throw error;
    }
  }

  // --- repairing -----------------------------------------------------------------------------------------------

  get mendable(): readonly Damage[] {
    return [...this.damage.filter(({ kind }) => MENDED.has(kind)), ...this.missing()];
  }

  /** Returns what a copy of the container left out, as damage. */
  private missing(): Damage[] {
    if (!this.persisted) return [];
    try {
      return missingParts(this.disk, this.file, this.folder).map(({ name, isDamaged }) => ({
        kind: "bad_index",
        line: 0,
        byteOffset: 0,
        length: 0,
        reason: `${name} is ${isDamaged ? "damaged; the next write keeps it as *.damaged.bak and makes a new one" : "missing; the next write makes it"}`,
        salvaged: true,
      }));
    } catch (error) {
      throw storageFailure(error, "looking at the session");
    }
  }

  /**
   * Rebuilds the container from what can be read and swaps the two. Returns the path under which the damaged one is
   * kept; null when there was nothing to repair.
   */
  repair(mended: Mended = new Map()): string | null {
    if (this.mendable.length === 0 && mended.size === 0) {
      this.makeNamesDurable();
      return null;
    }
    if (this.readOnly && this.readOnly.name !== "corrupt") throw this.readOnly;
    this.takeLock();
    if (this.folder === this.file) this.confirmToRepair();
    this.makeMissing();
    if (this.mendable.length === 0 && mended.size === 0) {
      this.makeNamesDurable();
      return null;
    }
    const { disk, nodes, file } = this;
    const backup = this.folder === file ? backupName(disk, file, "damaged") : this.folder;
    const builder = new Builder(this.options, stagingName(file));
    this.fail(this.mendable.length > 0 ? "frames are damaged" : "messages lack what readers need");
    try {
      if (this.hasHeader) builder.beginWith(headerFile(this.folder));
      else builder.begin(this.headerLine);
      for (let position = 0; position < nodes.count; position++) {
        const line = this.mended(position);
        builder.add(mended.get(position)?.(line) ?? line);
      }
      builder.finish(
        this.header,
        readManifest(disk, manifestFile(this.folder))?.sourceFormat ?? "native_v2",
        "recovery",
      );
      builder.settleNow();
      builder.close();
      if (exists(disk, ledgerFile(this.folder))) disk.link(ledgerFile(this.folder), ledgerFile(builder.folder));
      this.recordEvent("integrity_check", "recoverable_error", "integrity_mismatch", builder.folder, backup);
      shareAttachments(disk, this.folder, builder.folder);
      shareLock(disk, this.folder, builder.folder);
      builder.syncFoldersNow();
      if (backup !== this.folder) disk.rename(this.folder, backup);
      try {
        disk.rename(builder.folder, file);
      } catch (error) {
        if (backup !== this.folder) disk.rename(backup, this.folder);
        throw error;
      }
    } catch (error) {
      builder.close();
      removeTree(disk, builder.folder);
      throw storageFailure(error, "rebuilding the session");
    }
    dropLock(disk, backup);
    this.closeFiles();
    this.folder = file;
    this.manifestDue = false;
    for (const state of ["DIRTY", "SEGMENT_SEALED", "INDEXED", "CHECKPOINTED"] as const)
      this.states.to(state, "the session was rebuilt");
    // The container no longer has this damage, whether or not the rest succeeds.
    this.damage.splice(0, this.damage.length, ...this.damage.filter(({ kind }) => !MENDED.has(kind)));
    this.looseFolders.clear();
    this.looseFolders.add(dirname(file));
    this.makeNamesDurable();
    return backup;
  }

  /** Throws storage_failed when the container is no longer the one that was read. */
  private confirmToRepair(): void {
    const { kind } = this.refresh();
    if (kind === "replaced" || kind === "gone") throw this.changedByOthers();
  }

  /** Fsyncs the folders, without which the rebuilt container would not keep its name. */
  private makeNamesDurable(): void {
    if (this.options.durability !== "sync") return;
    try {
      this.looseFolders.syncNow();
    } catch (error) {
      // The container is whole; the next refresh reads it again.
      this.seen = undefined;
      throw storageFailure(error, "making the repaired session durable");
    }
  }

  /** Moves to FAILED, through DIRTY where there is no direct transition. */
  private fail(reason: string): void {
    if (this.state === "FAILED") return;
    if (!isLegal(this.state, "FAILED")) this.states.to("DIRTY", reason);
    this.states.to("FAILED", reason);
  }

  /**
   * Returns an entry's line as it is written anew: a placeholder for a damaged one, and without a parent that is
   * missing.
   */
  private mended(position: number): Uint8Array {
    const line = this.read(position);
    if (this.nodes.parent(position) !== MISSING) return line;
    return withMember(line, "parentId", bytesOf("null"));
  }

  // --- the end -------------------------------------------------------------------------------------------------

  close(): void {
    if (this.closed) return;
    this.unlock();
    if (this.durableCount === this.nodes.count) this.keepSpine();
    if (this.writers.get(this.writerKey) === this) this.writers.delete(this.writerKey);
    this.closeFiles();
    this.closed = true;
  }
}

/** Most attempts to open a container that other processes keep writing to. */
const JUDGEMENTS = 100;

/** Opens the log of a container. `held`: this process has its lock already. */
export function openLog(
  options: SegmentedOptions,
  writers: Writers,
  file: string,
  folder: string,
  held = false,
): SegmentedLog {
  for (let n = 1; ; n++) {
    const log = new SegmentedLog(options, writers, file, folder).open(held);
    if (n === JUDGEMENTS || !log.wasDisturbed) return log;
    log.close();
  }
}

/** Parses the text of a row. */
function rowOf(text: string): IndexRow {
  const bytes = bytesOf(text);
  return decodeRow(bytes, 0, bytes.length - 1);
}

/**
 * Throws already_exists when the name is taken by a container, by its pointer, or by a session file that pi_agent_rust
 * would take the container to belong to. Removes a stray pointer first.
 */
export function demandFree(disk: Disk, file: string): void {
  dropStray(disk, file);
  for (const taken of [file, pointerFile(file), file.replace(/\.v2$/, ".jsonl")])
    if (exists(disk, taken))
      throw new Failure("already_exists", `There is something at ${taken} already. Choose another path.`, {
        sessionPath: taken,
      });
}

/** Links the attachments of one session into another: they are files that never change. */
export function shareAttachments(disk: Disk, from: string, to: string): void {
  const source = attachmentFolder(from);
  if (isAbsent(disk, source)) return;
  const target = join(to, BLOBS);
  disk.makeFolder(target);
  for (const name of disk.names(source))
    if (/^[0-9a-f]{64}$/.test(name) && !exists(disk, join(target, name)))
      disk.link(join(source, name), join(target, name));
}
