/**
 * A session in a container, live: every append writes its frames at once; a commit brings them onto the medium, then
 * their index rows (session-store-v2 reference, section 0; seed 003, "Failure semantics"). A checkpoint now and then
 * bounds what the next opening has to read.
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

/** Damage that a repair takes out of the session. */
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

/** Of one process: which log of a container has entries that are not durable yet. */
export type Writers = Map<string, SegmentedLog>;

export class SegmentedLog extends CheckpointWriter implements Log {
  readonly store = "v2";

  private readonly writers: Writers;
  private readonly lock: WriterLock;
  private readonly commits: Commits;
  /** What is known of the container was held against it since the lock is ours. */
  private confirmed = false;
  /** Nothing of the container that writing needs is missing. */
  private hasParts = false;
  private isOpen = false;
  /** Set between the creation of the container and its first commit: what waited in memory before. */
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

  /** The size is that of all frames, for these are what entries are. */
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

  /** Opens the container. `held`: its lock is this process's already. */
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

  /** Whether what was judged at the opening has to be judged again, for it was done while others wrote. */
  get wasDisturbed(): boolean {
    return !this.confirmed && this.key !== undefined && this.isDoubtful(this.lock.look(this.key) !== null);
  }

  /** The session was migrated, and nobody said yet that this went well: it is not written before that is settled. */
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
   * Without the lock, what was found after the index is a guess, for its writer may be at it; the first look with the
   * lock judges it anew.
   */
  override refresh(): Change {
    const count = this.nodes.count;
    // Rows of ours that are on their way to the medium need not be read back.
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
      { retryable: true },
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

  /** Makes what a copy of the container left out, before the first write since the lock is ours. */
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

  /** Whoever had the lock before may have made something else the session. */
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

  /** Takes in what came in between, also of another log of this process. */
  private catchUp(): void {
    const other = this.writers.get(this.writerKey);
    if (other && other !== this) other.settleNow();
    const change = this.refresh();
    if (change.kind !== "none" && change.kind !== "grown") throw this.changedByOthers();
    // Judging it may have found that nothing may be written.
    if (this.readOnly) throw this.readOnly;
  }

  /** Adds the nodes of lines. Throws invalid_entry, with everything as before, where an id or a parent is wrong. */
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

  /** There is something now that is not durable. While a commit runs, that is what moves the state on. */
  private touch(): void {
    if (!this.commits.isRunning && this.state !== "DIRTY") this.states.to("DIRTY", "entries were appended");
  }

  private known(position: number, frame: NextFrame): void {
    this.places.set(position, frame.place);
    this.checked.set(position, 1);
    this.rows.push(frame.row);
  }

  /** Puts in order what a crash or a failed write left, before anything is written behind it. */
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
      // A damaged ledger is no reason to refuse entries; whoever verifies the session hears of it.
      if (!(error instanceof Failure)) throw error;
    }
    this.replayed = 0;
  }

  /** Tells the ledger, which is on the medium when this returns. */
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

  /** Throws already_exists, invalid_entry. The container with its header, what waited, and the new lines appears in one step, then its pointer. */
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

  /** Where an append is durable at once, a commit has nothing to do but this. */
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
    // The names of new segments, too: no row may name a frame that a loss of power takes away (INV-003).
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
    // A commit that runs brings to its end what was appended before.
    if (this.isOpen && !this.commits.isRunning) this.fail("entries are damaged or lost");
  }

  /** What was appended while a commit ran is for the next. */
  private noteRest(): void {
    if (this.readOnly?.name === "corrupt") return this.fail("entries are damaged or lost");
    if (!this.closed && this.nodes.count > this.durableCount && this.state !== "DIRTY" && this.state !== "FAILED")
      this.states.to("DIRTY", "entries were appended meanwhile");
  }

  /** No row may name what is not there (INV-003); and what is durable in a container that lost its name is lost too. */
  private demandFrames(tail: Tail): void {
    const isCut =
      tail.segmentSeq > 0 && this.disk.info(segmentFile(this.folder, tail.segmentSeq)).size < tail.segmentSize;
    if (!isCut && this.hasItsHeader()) return;
    // The next look is at another session, or at what is left of this one.
    this.seen = undefined;
    this.confirmed = false;
    throw new Failure(
      "storage_failed",
      isCut
        ? "Another program cut the session's files. Ask again."
        : "Another program put another session in this one's place. Ask again.",
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

  /** Makes everything durable at once: where that means no more than the process's death, or another log waits. */
  private settleNow(): void {
    if (this.durableCount >= this.nodes.count) return;
    const { tail } = this;
    const sync = this.options.durability === "sync";
    try {
      for (const fd of this.sealed) if (sync) this.disk.syncNow(fd);
      // What a commit is about to bring onto the medium stays open for it.
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

  /** Whether a segment holds from a place on the frames of these rows, and nothing else. */
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

  /** Takes back the container of a session whose first entries did not become durable. */
  private unmake(held: readonly Uint8Array[]): void {
    this.closeFiles();
    // Another program may have put its own there.
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

  /** Where an append is durable at once, its commit is still what makes the checkpoint. */
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

  /** What a copy of the container left out. */
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

  /** Builds the container anew from what can be read and swaps the two; the damaged one stays under another name. */
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
    // The container has none of it any more, whether or not the rest succeeds.
    this.damage.splice(0, this.damage.length, ...this.damage.filter(({ kind }) => !MENDED.has(kind)));
    this.looseFolders.clear();
    this.looseFolders.add(dirname(file));
    this.makeNamesDurable();
    return backup;
  }

  /** Throws when what is to be written anew is not what is there any more. */
  private confirmToRepair(): void {
    const { kind } = this.refresh();
    if (kind === "replaced" || kind === "gone") throw this.changedByOthers();
  }

  /** What was put in its place lasts only with its folder. */
  private makeNamesDurable(): void {
    if (this.options.durability !== "sync") return;
    try {
      this.looseFolders.syncNow();
    } catch (error) {
      // What stands there is whole; the next look takes it in anew.
      this.seen = undefined;
      throw storageFailure(error, "making the repaired session durable");
    }
  }

  /** From a state that does not lead to FAILED, through DIRTY. */
  private fail(reason: string): void {
    if (this.state === "FAILED") return;
    if (!isLegal(this.state, "FAILED")) this.states.to("DIRTY", reason);
    this.states.to("FAILED", reason);
  }

  /** The line of an entry as it is written anew: what was damaged is replaced, and every parent is there. */
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

/** How often a container is judged that others write to all the while. */
const JUDGEMENTS = 100;

/** Opens the log of a container. `held`: its lock is this process's already. */
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

/** The row whose text this is. */
function rowOf(text: string): IndexRow {
  const bytes = bytesOf(text);
  return decodeRow(bytes, 0, bytes.length - 1);
}

/** A name must not be taken, by a container, its pointer, or what pi_agent_rust would take it for. Throws already_exists. */
export function demandFree(disk: Disk, file: string): void {
  dropStray(disk, file);
  for (const taken of [file, pointerFile(file), file.replace(/\.v2$/, ".jsonl")])
    if (exists(disk, taken))
      throw new Failure("already_exists", `There is something at ${taken} already. Choose another path.`, {
        sessionPath: taken,
      });
}

/** Gives a session the attachments of another: second names of the same files, which never change. */
export function shareAttachments(disk: Disk, from: string, to: string): void {
  const source = attachmentFolder(from);
  if (isAbsent(disk, source)) return;
  const target = join(to, BLOBS);
  disk.makeFolder(target);
  for (const name of disk.names(source))
    if (/^[0-9a-f]{64}$/.test(name) && !exists(disk, join(target, name)))
      disk.link(join(source, name), join(target, name));
}
