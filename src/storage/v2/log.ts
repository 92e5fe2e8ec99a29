/**
 * The log of a session in a container. An append writes its frames at once; a commit fsyncs them, then writes and
 * fsyncs their index rows (session-store-v2 reference, section 0; seed 003, "Failure semantics"). Periodic checkpoints
 * bound what the next opening has to read.
 */

import { dirname, join } from "node:path";
import { isMissing, storageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import type { Damage } from "../../core/format/damage.ts";
import { CURRENT_VERSION, type SessionHeader, withMember } from "../../core/format/entry.ts";
import { addHead } from "../../core/format/head.ts";
import { bytesOf } from "../../core/json/json.ts";
import { timestamp } from "../../core/ports/env.ts";
import type { Beginning, Change, FileStamp, Holder, LockKind, Log, Mended } from "../../core/ports/store.ts";
import { MISSING, type Nodes } from "../../core/tree/nodes.ts";
import { headerFile, pointerFile, segmentFile, segmentFolder } from "../fs/container-paths.ts";
import { infoOrNull, isAbsent, removeQuietly } from "../fs/disk.ts";
import { backupName } from "../fs/quarantine.ts";
import { removeTree } from "../fs/staging.ts";
import { dropLock, lockInContainer } from "../locks/lock-paths.ts";
import { WriterLock } from "../locks/writer-lock.ts";
import { Commits } from "../log/group-commit.ts";
import { type NextFrame, nextFrame } from "./builder.ts";
import { Checkpoints } from "./checkpoints.ts";
import { Container, type SegmentedOptions } from "./container.ts";
import { type CreatedContainer, createContainer, demandFree } from "./create.ts";
import type { CheckpointReason } from "./documents.ts";
import { crcText, decodeRow, type IndexRow, payloadOf } from "./frame.ts";
import { IndexWriter } from "./index-writer.ts";
import { EMPTY_END, type Tail } from "./places.ts";
import { isActive, makeParts } from "./pointer.ts";
import { ContainerReader } from "./reader.ts";
import { MENDED, missingPartsOf, rebuild, recordRepair } from "./repair.ts";
import { SegmentWriter } from "./segment-writer.ts";
import type { Segment } from "./segments.ts";
import { Snapshots } from "./snapshots.ts";
import { isLegal, StateMachine, type StoreState } from "./states.ts";
import { StoredEntries } from "./stored-entries.ts";

/** The logs of one process with entries that are not durable yet, by their containers. */
export type Writers = Map<string, SegmentedLog>;

export class SegmentedLog implements Log {
  readonly store = "v2";
  readonly version = CURRENT_VERSION;
  readonly mayHideEntries = false;
  /** State of the store on its way from one durable state to the next (seed 003). */
  states: StateMachine;

  private readonly options: SegmentedOptions;
  private readonly writers: Writers;
  private readonly container: Container;
  private readonly stored: StoredEntries;
  private readonly snapshots: Snapshots;
  private readonly reader: ContainerReader;
  private readonly frames: SegmentWriter;
  private readonly index: IndexWriter;
  private readonly checkpoints: Checkpoints;
  private readonly lock: WriterLock;
  private readonly commits: Commits;
  /** Whether every part of the container that writing needs is there. */
  private hasParts = false;
  /** Lines that waited in memory before the container was created; null once it was committed. */
  private created: Uint8Array[] | null = null;
  private closed = false;

  constructor(options: SegmentedOptions, writers: Writers, file: string, folder?: string) {
    const container = new Container(options, file, folder);
    this.options = options;
    this.writers = writers;
    this.container = container;
    this.states = this.statesFrom("CLEAN");
    this.stored = new StoredEntries(container);
    this.snapshots = new Snapshots(container, options.spines);
    this.reader = new ContainerReader(container, this.stored, this.snapshots);
    this.frames = new SegmentWriter(container);
    this.index = new IndexWriter(container);
    this.checkpoints = new Checkpoints(container, this.snapshots);
    this.lock = new WriterLock(options.locks, () => lockInContainer(container.folder));
    this.commits = new Commits({
      makeDurable: (demandWanted) => this.makeDurable(demandWanted),
      rollBack: () => this.rollBack(),
      commit: () => this.commit(),
      ended: () => this.noteRest(),
    });
  }

  private statesFrom(state: StoreState): StateMachine {
    return new StateMachine(() => timestamp(this.options.env), state);
  }

  get state(): StoreState {
    return this.states.state;
  }

  get file(): string {
    return this.container.file;
  }

  get header(): SessionHeader {
    return this.container.header;
  }

  get headerLine(): Uint8Array {
    return this.container.headerLine;
  }

  get nodes(): Nodes {
    return this.container.entries.nodes;
  }

  get damage(): readonly Damage[] {
    return this.container.entries.damage;
  }

  get readOnly(): Failure | null {
    return this.container.readOnly;
  }

  get durableCount(): number {
    return this.container.end.durable.count;
  }

  get persisted(): boolean {
    return this.container.key !== undefined;
  }

  /** Stamp of the session's files; its size is that of all frames, because frames are what entries are. */
  get stamp(): FileStamp | null {
    const { disk, folder, key, end } = this.container;
    if (!key) return null;
    try {
      const last = Math.max(1, end.tail.segmentSeq);
      const { modified } = infoOrNull(disk, segmentFile(folder, last)) ?? key;
      return { device: key.device, inode: key.inode, size: end.tail.bytesTotal, modified };
    } catch (error) {
      throw storageFailure(error, "looking at the session");
    }
  }

  get lockedBy(): Holder | null {
    return this.lock.lockedBy(this.container.key);
  }

  get lockKind(): LockKind | null {
    return this.lock.kind;
  }

  // --- opening -------------------------------------------------------------------------------------------------

  begin(beginning: Beginning): this {
    this.container.header = beginning.header;
    this.container.headerLine = beginning.headerLine;
    return this;
  }

  /**
   * Opens the container. `held`: this process has its lock already. Throws session_not_found and what reading throws.
   */
  open(held = false): this {
    const { container } = this;
    try {
      this.reader.open((key) => !held && this.lock.look(key) !== null);
      container.confirmed = held;
    } catch (error) {
      this.close();
      if (isMissing(error))
        throw new Failure("session_not_found", `There is no session at ${this.file}. list_sessions shows those.`, {
          sessionPath: this.file,
        });
      throw storageFailure(error, "reading the session");
    }
    if (this.readOnly && this.readOnly.name !== "read_only") this.states = this.statesFrom("FAILED");
    container.end.markDurable(this.nodes.count);
    container.onRefused = () => {
      // A commit that runs still finishes what was appended before.
      if (!this.commits.isRunning) this.fail("entries are damaged or lost");
    };
    return this;
  }

  /** Whether the container must be opened again, because other processes may have written to it meanwhile. */
  get wasDisturbed(): boolean {
    const { confirmed, key } = this.container;
    return !confirmed && key !== undefined && this.reader.isDoubtful(this.lock.look(key) !== null);
  }

  /** Makes the session read-only and FAILED, until a migration or rollback that was cut off is finished. */
  awaitRollBack(reason: Failure): void {
    this.container.readOnly ??= reason;
    this.states = this.statesFrom("FAILED");
  }

  reopen(): Log {
    const log = openLog(this.options, this.writers, this.file, this.file, this.lock.isHeld);
    if (log.writerKey === this.writerKey) this.lock.handTo(log.lock);
    log.container.looseFolders.addAll(this.container.looseFolders);
    return log;
  }

  /**
   * Adds what other processes wrote. Without the lock, entries found after the index are a guess, because their writer
   * may be at work; the first refresh with the lock reads them again.
   */
  refresh(): Change {
    const { container, reader } = this;
    const { confirmed, key, end } = container;
    const { count } = this.nodes;
    const judging = this.lock.isHeld && !confirmed && !this.closed && key !== undefined;
    let change: Change;
    try {
      // Rows that this log is making durable need not be read back.
      if (this.index.isWriting && confirmed) return { kind: this.index.isOurs ? "none" : "replaced" };
      if (judging) change = reader.judgeAgain();
      else change = this.closed || !key ? { kind: "none" } : reader.refresh();
      if (change.kind === "replaced" && isAbsent(this.options.disk, headerFile(container.folder)))
        change = { kind: "gone" };
    } catch (error) {
      throw storageFailure(error, "looking at the session");
    }
    container.confirmed ||= judging && (change.kind === "none" || change.kind === "grown");
    if (change.kind === "grown" && this.durableCount === count) end.markDurable(this.nodes.count);
    return change;
  }

  // --- reading -------------------------------------------------------------------------------------------------

  length(position: number): number {
    return this.stored.length(position);
  }

  read(position: number): Uint8Array {
    return this.stored.read(position);
  }

  readMany(positions: ArrayLike<number>): Iterable<Uint8Array> {
    return this.stored.readMany(positions);
  }

  copy(positions: ArrayLike<number>): Iterable<Uint8Array> {
    return this.stored.copy(positions);
  }

  attachment(position: number, sha256: string, sizeBytes: number): string | null {
    return this.stored.attachment(position, sha256, sizeBytes);
  }

  // --- writing -------------------------------------------------------------------------------------------------

  append(lines: readonly Uint8Array[], options: { hold?: boolean } = {}): void {
    if (this.closed) throw new Failure("storage_failed", "The session is closed. Open it again.");
    if (this.readOnly) throw this.readOnly;
    if (!this.persisted && options.hold) return this.hold(lines);
    try {
      if (!this.persisted) this.create(lines);
      else this.appendFrames(lines);
      if (this.options.durability === "os") this.settleNow();
    } catch (error) {
      throw storageFailure(error, "appending to the session");
    }
  }

  /** Keeps lines in memory until the append that creates the container. */
  private hold(lines: readonly Uint8Array[]): void {
    const { disk, entries, end, file } = this.container;
    demandFree(disk, file);
    const first = this.nodes.count;
    this.addNodes(lines);
    for (const [i, line] of lines.entries()) entries.overrides.set(first + i, line);
    end.markDurable(this.nodes.count);
  }

  takeLock(): boolean {
    const { key } = this.container;
    if (this.lock.isHeld || !key) return false;
    this.lock.take(key);
    try {
      this.demandActive();
    } catch (error) {
      this.lock.release();
      throw storageFailure(error, "looking at the session");
    }
    this.container.confirmed = false;
    this.checkpoints.forget();
    this.hasParts = false;
    return true;
  }

  /** Creates what a copy of the container left out, before the first write under this lock. */
  private makeMissing(): void {
    if (this.hasParts) return;
    const { disk, file, folder, looseFolders } = this.container;
    try {
      const made = makeParts(disk, file, this.options.durability, folder);
      if (made.length > 0) looseFolders.add(dirname(file));
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
    if (isActive(this.options.disk, this.file)) return;
    throw new Failure(
      "session_not_found",
      `${this.file} is not the session any more: it was rolled back or deleted. list_sessions shows what is there now.`,
      { sessionPath: this.file },
    );
  }

  unlock(): void {
    if (!this.lock.isHeld) return;
    const isDurable = this.durableCount === this.nodes.count;
    if (this.checkpoints.manifestDue && isDurable) this.checkpoints.publishManifestNow();
    if (isDurable) this.container.noteBase();
    this.lock.release();
    this.container.confirmed = false;
  }

  private get writerKey(): string {
    const { key } = this.container;
    return `${key?.device}:${key?.inode}`;
  }

  /**
   * Adds what was written since, also by another log of this process. Throws storage_failed when the container changed
   * in another way, and `readOnly` when nothing may be written.
   */
  private catchUp(): void {
    const other = this.writers.get(this.writerKey);
    if (other && other !== this) other.settleNow();
    const change = this.refresh();
    if (change.kind !== "none" && change.kind !== "grown") throw this.container.changedByOthers();
    // Reading it may have found that nothing may be written.
    if (this.readOnly) throw this.readOnly;
  }

  /**
   * Adds the nodes of lines. Throws invalid_entry, having changed nothing, when an id is taken or a parent is missing.
   */
  private addNodes(lines: readonly Uint8Array[]): void {
    const { nodes, heads } = this.container.entries;
    const first = nodes.count;
    const { aliases } = nodes;
    for (const line of lines) {
      const position = addHead(heads.reader, nodes, line);
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
    const { entries, end } = this.container;
    const { nodes } = entries;
    const first = nodes.count;
    this.addNodes(lines);
    try {
      const frames: NextFrame[] = [];
      const now = timestamp(this.options.env);
      let { tail } = end;
      for (const [i, line] of lines.entries()) {
        const frame = nextFrame(tail, nodes, first + i, payloadOf(line), now, this.options.segmentBytes);
        frames.push(frame);
        tail = frame.tail;
      }
      this.frames.write(frames);
      for (const [i, { place, row }] of frames.entries()) {
        entries.places.set(first + i, place);
        entries.checked.set(first + i, 1);
        end.rows.push(row);
      }
      end.tail = tail;
    } catch (error) {
      nodes.truncate(first);
      throw error;
    }
    this.writers.set(this.writerKey, this);
    this.checkpoints.manifestDue = true;
    this.touch();
  }

  /** Moves to DIRTY, because something is not durable. While a commit runs, the commit moves the state on. */
  private touch(): void {
    if (!this.commits.isRunning && this.state !== "DIRTY") this.states.to("DIRTY", "entries were appended");
  }

  /** Repairs what a crash or a failed write left, before anything is written after it. */
  private mend(): void {
    const { end } = this.container;
    const rebuilt = end.replayed > 0 || end.indexFault !== null;
    this.makeMissing();
    this.frames.cutRemains();
    if (end.indexFault !== null) this.index.cutFault();
    if (!rebuilt) return;
    try {
      recordRepair(this.container, "index_corruption");
    } catch (error) {
      // A damaged ledger must not block appends; verifying the session reports it.
      if (!(error instanceof Failure)) throw error;
    }
    end.replayed = 0;
  }

  // --- the first append ----------------------------------------------------------------------------------------

  /** Creates the container with its header, the lines that waited, and the new ones. */
  private create(lines: readonly Uint8Array[]): void {
    const { container, checkpoints } = this;
    const { entries, end, file } = container;
    const { nodes, overrides } = entries;
    const first = nodes.count;
    const held = [...overrides.values()];
    this.addNodes(lines);
    let made: CreatedContainer;
    try {
      made = createContainer(container, [...held, ...lines], this.lock);
    } catch (error) {
      nodes.truncate(first);
      throw error;
    }
    const { builder, lock, key, seen } = made;
    this.lock.adopt(lock);
    container.key = key;
    container.confirmed = true;
    this.created = held;
    overrides.clear();
    container.looseFolders.add(segmentFolder(file), join(file, "index"), file, dirname(file));
    for (let position = 0; position < nodes.count; position++) {
      entries.places.set(position, builder.places.at(position));
      entries.checked.set(position, 1);
    }
    end.goTo(builder);
    end.seen = seen;
    const createdAt = builder.manifest?.createdAt ?? "";
    checkpoints.counted = { sessionId: this.header.id, sourceFormat: "native_v2", createdAt };
    checkpoints.manifestDue = false;
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
    const { container, index } = this;
    const { end, looseFolders } = container;
    const { count } = this.nodes;
    const { tail } = end;
    const rows = end.rows.length;
    await this.frames.sync();
    // This includes the names of new segments: no row may name a frame that a loss of power takes away (INV-003).
    await looseFolders.sync();
    demandWanted();
    this.demandFrames(tail);
    this.states.to("SEGMENT_SEALED", "the frames are on the medium");
    // Another log of this process may have made all of it durable meanwhile.
    if (this.durableCount < count) {
      const pending = end.rows.slice(0, rows);
      const bytes = index.write(pending);
      if (bytes.length > 0) await index.sync();
      await looseFolders.sync();
      demandWanted();
      if (this.durableCount < count) {
        index.accept(bytes, pending);
        this.markDurable(count, tail);
      }
    }
    this.states.to("INDEXED", "the index rows are on the medium");
    await this.checkpointIfDue();
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
  private demandFrames({ segmentSeq, segmentSize }: Tail): void {
    const { container } = this;
    const { disk, folder } = container;
    const isCut = segmentSeq > 0 && disk.info(segmentFile(folder, segmentSeq)).size < segmentSize;
    if (!isCut && container.hasItsHeader()) return;
    // The next refresh finds another session, or what is left of this one.
    container.end.seen = undefined;
    container.confirmed = false;
    throw new Failure(
      "storage_failed",
      isCut
        ? "Another program cut the session's files. Ask again."
        : "Another program put another session in this one's place. Ask again.",
    );
  }

  private markDurable(count: number, tail: Tail): void {
    this.container.end.markDurable(count, tail);
    this.created = null;
    if (count === this.nodes.count) this.writers.delete(this.writerKey);
  }

  /**
   * Makes everything durable synchronously: where durability means no more than surviving the death of the process, or
   * where another log waits.
   */
  private settleNow(): void {
    if (this.durableCount >= this.nodes.count) return;
    const { index } = this;
    const { end, looseFolders } = this.container;
    const { tail } = end;
    const sync = this.options.durability === "sync";
    try {
      this.frames.settleNow(sync, this.commits.isRunning);
      if (sync) looseFolders.syncNow();
      this.demandFrames(tail);
      if (!this.commits.isRunning) this.states.to("SEGMENT_SEALED", "the frames are written");
      const rows = [...end.rows];
      const bytes = index.write(rows);
      if (sync) {
        if (bytes.length > 0) index.syncNow();
        looseFolders.syncNow();
      } else looseFolders.clear();
      index.accept(bytes, rows);
      this.markDurable(this.nodes.count, tail);
      if (!this.commits.isRunning) this.states.to("INDEXED", "the index rows are written");
    } catch (error) {
      this.rollBack();
      throw error;
    }
  }

  rollBack(): void {
    const { nodes, durableCount } = this;
    if (durableCount >= nodes.count) return;
    this.commits.giveUp();
    const { entries, end } = this.container;
    const waiting = Math.max(0, durableCount - (nodes.count - end.rows.length));
    const given = end.rows.slice(waiting).map((row) => rowOf(row));
    entries.forgetFrom(durableCount);
    this.writers.delete(this.writerKey);
    if (this.state === "SEGMENT_SEALED") this.states.to("FAILED", "the index could not be written");
    if (this.created) this.unmake(this.created);
    else {
      end.rows.length = waiting;
      end.tail = end.durable.tail;
      this.index.cut();
      this.frames.cutTo(end.tail, (segment, start) => this.holdsFrames(given, segment, start));
    }
    if (this.state === "FAILED") this.states.to("DIRTY", "what was not durable is given up");
  }

  /** Whether a segment holds, from `start` on, the frames of these rows and nothing else. */
  private holdsFrames(rows: readonly IndexRow[], { seq, size }: Segment, start: number): boolean {
    let end = start;
    for (const { segmentSeq, byteOffset, byteLength, crc32c: crc } of rows) {
      if (segmentSeq !== seq) continue;
      if (byteOffset !== end || end + byteLength > size) return false;
      if (crcText(this.container.segments.crc(seq, byteOffset, byteLength)) !== crc) return false;
      end += byteLength;
    }
    return end === size;
  }

  /**
   * Removes the container of a session whose first entries did not become durable. Its earlier lines wait in memory
   * again.
   */
  private unmake(held: readonly Uint8Array[]): void {
    const { container } = this;
    const { disk, entries, end, file } = container;
    this.closeFiles();
    // Another program may have put its own container there.
    if (this.isOursStill) {
      removeQuietly(disk, pointerFile(file));
      removeTree(disk, file);
    }
    this.lock.release();
    container.key = undefined;
    container.confirmed = false;
    for (const [position, line] of held.entries()) entries.overrides.set(position, line);
    this.created = null;
    end.seen = undefined;
    end.rows = [];
    end.goTo(EMPTY_END);
    end.markDurable(this.durableCount);
    container.looseFolders.clear();
    this.checkpoints.manifestDue = false;
  }

  private get isOursStill(): boolean {
    try {
      return this.container.hasItsHeader(this.file);
    } catch {
      return false;
    }
  }

  // --- checkpoints ---------------------------------------------------------------------------------------------

  async checkpointNow(reason: "manual" | "pre_migration" = "manual"): Promise<number | null> {
    this.container.segments.demandOpen();
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
    return this.checkpoints.last().seq;
  }

  /** Makes a checkpoint, and extends the index snapshot. */
  private async checkpoint(reason: CheckpointReason): Promise<void> {
    await this.checkpoints.make(reason);
    this.states.to("CHECKPOINTED", "the checkpoint is on the medium");
    this.snapshots.grow();
  }

  /** Whether a commit has to make a checkpoint, although the append is durable already. */
  get isCheckpointDue(): boolean {
    if (this.options.durability === "sync" || this.state !== "INDEXED" || this.commits.isRunning || this.closed)
      return false;
    return this.checkpoints.isDue;
  }

  private async checkpointIfDue(): Promise<void> {
    try {
      if (this.checkpoints.isFarFrom(this.checkpoints.last().tail)) await this.checkpoint("periodic");
    } catch (error) {
      // The entries are durable without it; the next commit tries again.
      if ((error as NodeJS.ErrnoException).code === undefined) throw error;
    }
  }

  // --- repairing -----------------------------------------------------------------------------------------------

  get mendable(): readonly Damage[] {
    const missing = this.persisted ? missingPartsOf(this.container) : [];
    return [...this.damage.filter(({ kind }) => MENDED.has(kind)), ...missing];
  }

  /**
   * Rebuilds the container from what can be read and swaps the two. Returns the path under which the damaged one is
   * kept; null when there was nothing to repair.
   */
  repair(mended: Mended = new Map()): string | null {
    const { container } = this;
    const { disk, file, folder, entries, looseFolders } = container;
    if (this.mendable.length === 0 && mended.size === 0) {
      this.makeNamesDurable();
      return null;
    }
    if (this.readOnly && this.readOnly.name !== "corrupt") throw this.readOnly;
    this.takeLock();
    if (folder === file) this.confirmToRepair();
    this.makeMissing();
    if (this.mendable.length === 0 && mended.size === 0) {
      this.makeNamesDurable();
      return null;
    }
    const backup = folder === file ? backupName(disk, file, "damaged") : folder;
    this.fail(this.mendable.length > 0 ? "frames are damaged" : "messages lack what readers need");
    rebuild(container, this.linesMended(mended), backup);
    dropLock(disk, backup);
    this.closeFiles();
    container.folder = file;
    this.checkpoints.manifestDue = false;
    for (const state of ["DIRTY", "SEGMENT_SEALED", "INDEXED", "CHECKPOINTED"] as const)
      this.states.to(state, "the session was rebuilt");
    // The container no longer has this damage, whether or not the rest succeeds.
    const { damage } = entries;
    damage.splice(0, damage.length, ...damage.filter(({ kind }) => !MENDED.has(kind)));
    looseFolders.clear();
    looseFolders.add(dirname(file));
    this.makeNamesDurable();
    return backup;
  }

  /** Throws storage_failed when the container is no longer the one that was read. */
  private confirmToRepair(): void {
    const { kind } = this.refresh();
    if (kind === "replaced" || kind === "gone") throw this.container.changedByOthers();
  }

  /** Fsyncs the folders, without which the rebuilt container would not keep its name. */
  private makeNamesDurable(): void {
    if (this.options.durability !== "sync") return;
    try {
      this.container.looseFolders.syncNow();
    } catch (error) {
      // The container is whole; the next refresh reads it again.
      this.container.end.seen = undefined;
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
   * Yields the lines as they are written anew: a placeholder for a damaged one, without a parent that is missing, and
   * as `mended` says.
   */
  private *linesMended(mended: Mended): Generator<Uint8Array> {
    for (let position = 0; position < this.nodes.count; position++) {
      const stored = this.read(position);
      const isOrphan = this.nodes.parent(position) === MISSING;
      const line = isOrphan ? withMember(stored, "parentId", bytesOf("null")) : stored;
      yield mended.get(position)?.(line) ?? line;
    }
  }

  // --- the end -------------------------------------------------------------------------------------------------

  private closeFiles(): void {
    this.frames.close();
    this.index.close();
    this.container.segments.forgetAll();
  }

  close(): void {
    if (this.closed) return;
    this.unlock();
    if (this.durableCount === this.nodes.count) this.snapshots.keep();
    if (this.writers.get(this.writerKey) === this) this.writers.delete(this.writerKey);
    this.closeFiles();
    this.container.segments.close();
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
