/**
 * A session in a container, live: every append writes its frames at once; a commit brings them onto the medium, then
 * their index rows (session-store-v2 reference, section 0; seed 003, "Failure semantics"). A checkpoint now and then
 * bounds what the next opening has to read.
 */

import { dirname, join } from "node:path";
import type { Damage } from "../../damage.ts";
import type { SessionHeader } from "../../entry.ts";
import { type Env, timestamp } from "../../env.ts";
import { Failure } from "../../failure.ts";
import { bytesOf, concat } from "../../json.ts";
import { MISSING } from "../../nodes.ts";
import {
  closeQuietly,
  type Disk,
  exists,
  type FileInfo,
  isAbsent,
  publishNew,
  readAll,
  readWhole,
  removeQuietly,
  storageFailure,
  takeName,
  writeAll,
} from "../disk.ts";
import type { Durability } from "../jsonl/log.ts";
import { attachmentFolder, withMember } from "../jsonl/reader.ts";
import { isLock, type Lock, type Locks } from "../lock.ts";
import { addHead } from "../memory.ts";
import type { Beginning, FileStamp, Holder, Log } from "../store.ts";
import { isActive } from "./active.ts";
import { Builder, type NextFrame, nextFrame } from "./builder.ts";
import {
  CHECKPOINT_SCHEMA,
  type Checkpoint,
  type ErrorClass,
  encodeCheckpoint,
  encodeManifest,
  encodePointer,
  type Outcome,
  type Phase,
  type Pointer,
  parseCheckpoint,
  type Reason,
  readManifest,
  type SourceFormat,
  snapshotRef,
} from "./documents.ts";
import { crc32c, Malformed, payloadOf } from "./frame.ts";
import { appendEventNow } from "./ledger.ts";
import { type Counted, Tally } from "./manifest.ts";
import {
  BLOBS,
  checkpointFile,
  checkpointFolder,
  EMPTY_TAIL,
  headerFile,
  indexFile,
  ledgerFile,
  manifestFile,
  numbered,
  numberOf,
  pointerFile,
  segmentFile,
  segmentFolder,
  spineFile,
  type Tail,
  temporaryFolder,
} from "./places.ts";
import { SegmentedReader } from "./reader.ts";
import { encodeBlock, type Reach } from "./spine.ts";
import { isLegal, type State, StateMachine } from "./states.ts";
import { removeTree, stagingName } from "./tree.ts";

export interface SegmentedOptions {
  readonly disk: Disk;
  readonly env: Env;
  readonly locks: Locks;
  readonly durability: Durability;
  readonly readOnly?: boolean;
  /** Where bytes go that are taken out of a session. */
  readonly quarantine: string;
  /** Where a new session's container goes. */
  readonly containerFor: (header: SessionHeader) => string;
  /** Bytes beyond which a segment is not written. */
  readonly segmentBytes: number;
  /** A checkpoint is made when so much was appended since the last. */
  readonly checkpointEvery: { readonly entries: number; readonly bytes: number };
}

/** Damage that a repair takes out of the session. */
const MENDED: ReadonlySet<Damage["kind"]> = new Set([
  "bad_line",
  "bad_body",
  "bad_index",
  "torn_tail",
  "duplicate_id",
  "missing_parent",
  "cycle",
  "incomplete_batch",
]);

/** What is durable. */
interface Durable {
  readonly tail: Tail;
  readonly indexEnd: number;
  readonly lastRow: { readonly length: number; readonly crc: number };
}

/** Of one process: which log of a container has entries that are not durable yet. */
export type Writers = Map<string, SegmentedLog>;

export class SegmentedLog extends SegmentedReader implements Log {
  readonly store = "v2";
  durableCount = 0;
  /** Where the store is on its way from one durable state to the next (seed 003). */
  states: StateMachine;

  private readonly options: SegmentedOptions;
  private readonly writers: Writers;
  private lock: Lock | undefined;
  private holder: Holder | null = null;
  /** Another process may have written before the lock became ours, and left what its index does not hold. */
  private unsure = false;
  private durable: Durable = { tail: EMPTY_TAIL, indexEnd: 0, lastRow: { length: 0, crc: 0 } };
  private writer: { readonly segmentSeq: number; readonly fd: number } | null = null;
  /** Segments before the one that is written, which are not on the medium yet. */
  private sealed: number[] = [];
  private indexFd = -1;
  /** Folders that hold names which are not yet on the medium. */
  private looseFolders = new Set<string>();
  /** Set between the creation of the container and its first commit: what waited in memory before. */
  private created: Uint8Array[] | null = null;
  private committing: { readonly count: number; readonly done: Promise<void> } | null = null;
  private nextCommit: Promise<void> | null = null;
  /** Counts how often entries were given up. */
  private era = 0;
  private readonly tally = new Tally(this.nodes);
  private counted: Counted | null = null;
  /** The manifest is not that of the durable state. */
  private manifestDue = false;
  private lastCheckpoint: { readonly seq: number; readonly tail: Tail } | null = null;

  constructor(options: SegmentedOptions, writers: Writers, file: string, folder?: string) {
    super(options, file, folder);
    this.options = options;
    this.writers = writers;
    this.states = new StateMachine(() => timestamp(options.env));
  }

  get state(): State {
    return this.states.state;
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
    // Whoever held it may have gone since.
    if (this.holder && this.key) this.holder = this.options.locks.holder(this.key);
    return this.holder;
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
      this.readContainer((key) => {
        this.holder = held ? null : this.options.locks.holder(key);
        return this.holder !== null;
      });
    } catch (error) {
      this.close();
      const { code } = error as NodeJS.ErrnoException;
      if (code === "ENOENT" || code === "ENOTDIR")
        throw new Failure("session_not_found", `There is no session at ${this.file}. list_sessions shows those.`, {
          sessionPath: this.file,
        });
      throw storageFailure(error, "reading the session");
    }
    if (this.readOnly && this.readOnly.name !== "read_only")
      this.states = new StateMachine(() => timestamp(this.env), "FAILED");
    this.durableCount = this.nodes.count;
    this.durable = { tail: this.tail, indexEnd: this.indexEnd, lastRow: this.lastRow };
    this.unsure = this.holder !== null;
    return this;
  }

  /** The session was migrated, and nobody said yet that this went well: it is not written before that is settled. */
  awaitRollBack(phase: string): void {
    this.readOnly ??= new Failure(
      "migration_failed",
      `The migration of the session stands at ${phase}, so it can be read but not written. rollback_migration goes back, and migrate_session does that first.`,
    );
    this.states = new StateMachine(() => timestamp(this.env), "FAILED");
  }

  reopen(): Log {
    const log = new SegmentedLog(this.options, this.writers, this.file).open(this.lock !== undefined);
    // The lock goes over if the container is still the same one.
    if (this.lock && log.key?.inode === this.key?.inode && log.key?.device === this.key?.device) {
      log.lock = this.lock;
      log.holder = null;
      this.lock = undefined;
    }
    for (const folder of this.looseFolders) log.looseFolders.add(folder);
    return log;
  }

  override refresh(): ReturnType<SegmentedReader["refresh"]> {
    const count = this.nodes.count;
    const change = super.refresh();
    if (change.kind === "grown" && this.durableCount === count) {
      this.durableCount = this.nodes.count;
      this.durable = { tail: this.tail, indexEnd: this.indexEnd, lastRow: this.lastRow };
    }
    if (change.kind !== "none" || !this.unsure || !this.lock) return change;
    this.unsure = false;
    return this.hasMore() ? { kind: "replaced" } : change;
  }

  /** Whether there is more in the segments than this log knows of. */
  private hasMore(): boolean {
    const { segmentSeq, segmentSize } = this.tail;
    if (this.remains || this.created) return false;
    try {
      const last = this.segments().at(-1);
      return last !== undefined && (last.seq > segmentSeq || last.size > segmentSize);
    } catch (error) {
      throw storageFailure(error, "looking at the session");
    }
  }

  // --- writing -------------------------------------------------------------------------------------------------

  append(lines: readonly Uint8Array[], options: { hold?: boolean } = {}): void {
    if (this.closed) throw new Failure("storage_failed", "The session is closed. Open it again.");
    if (this.readOnly) throw this.readOnly;
    if (!this.persisted && options.hold) {
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
    if (this.lock || !this.key) return false;
    const lock = this.lockOf(this.key);
    try {
      this.demandActive();
    } catch (error) {
      lock.release();
      throw storageFailure(error, "looking at the session");
    }
    this.lock = lock;
    this.holder = null;
    this.unsure = true;
    return true;
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

  private lockOf(key: FileInfo): Lock {
    const taken = this.options.locks.take(key);
    if (!isLock(taken)) {
      this.holder = taken;
      throw new Failure(
        "session_locked",
        `${taken.client} (process ${taken.pid}) is writing to this session. Close it there, or clone it here.`,
        { holder: taken },
      );
    }
    return taken;
  }

  unlock(): void {
    if (!this.lock) return;
    if (this.manifestDue && this.durableCount === this.nodes.count) this.publishManifestNow();
    this.lock.release();
    this.lock = undefined;
  }

  private get writerKey(): string {
    return `${this.key?.device}:${this.key?.inode}`;
  }

  /** Takes in what came in between, also of another log of this process. */
  private catchUp(): void {
    const other = this.writers.get(this.writerKey);
    if (other && other !== this) other.settleNow();
    const change = this.refresh();
    if (change.kind === "none" || change.kind === "grown") return;
    throw new Failure("storage_failed", "Another program changed the session's files. Ask again.");
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
    if (!this.committing && this.state !== "DIRTY") this.states.to("DIRTY", "entries were appended");
  }

  private known(position: number, frame: NextFrame): void {
    this.places.set(position, frame.place);
    this.checked.set(position, 1);
    this.rows.push(frame.row);
  }

  /** Writes frames behind the tail, one write for each segment they come to stand in. */
  private writeFrames(frames: readonly NextFrame[]): void {
    const { disk } = this;
    try {
      for (let from = 0; from < frames.length; ) {
        let past = from + 1;
        while (past < frames.length && !frames[past].isNew) past++;
        const { place, isNew } = frames[from];
        const fd = this.writerOf(place.segmentSeq, isNew);
        if (!isNew && disk.infoOf(fd).size !== place.start)
          throw new Failure("storage_failed", "Another program wrote into the session's files. Ask again.");
        writeAll(disk, fd, concat(frames.slice(from, past).map(({ bytes }) => bytes)));
        from = past;
      }
    } catch (error) {
      if (!(error instanceof Failure)) this.cutTo(this.tail);
      throw error;
    }
  }

  private writerOf(segmentSeq: number, isNew: boolean): number {
    const { disk } = this;
    if (this.writer?.segmentSeq === segmentSeq) return this.writer.fd;
    const path = segmentFile(this.folder, segmentSeq);
    const fd = isNew ? disk.create(path) : disk.openAppend(path);
    if (this.writer) this.sealed.push(this.writer.fd);
    this.writer = { segmentSeq, fd };
    if (isNew) this.looseFolders.add(segmentFolder(this.folder));
    return fd;
  }

  /** Takes away what stands behind a tail, if that can be done; the next write tries again. */
  private cutTo(tail: Tail): void {
    const { disk } = this;
    this.remains = { segmentSeq: Math.max(1, tail.segmentSeq), start: tail.segmentSize, ours: true };
    try {
      if (this.writer && this.writer.segmentSeq > tail.segmentSeq) this.dropWriter();
      if (this.writer) {
        const { size } = disk.infoOf(this.writer.fd);
        if (size !== tail.segmentSize) disk.truncate(this.writer.fd, tail.segmentSize);
        this.removeSegmentsBehind(tail.segmentSeq);
        this.remains = null;
      } else this.cutRemains();
    } catch {
      // Then it remains.
    }
  }

  private dropWriter(): void {
    if (this.writer) closeQuietly(this.disk, this.writer.fd);
    this.writer = null;
  }

  private removeSegmentsBehind(segmentSeq: number): void {
    for (const { seq } of this.segments()) {
      if (seq <= segmentSeq) continue;
      this.forgetSegment(seq);
      this.disk.remove(segmentFile(this.folder, seq));
    }
  }

  /** Puts in order what a crash or a failed write left, before anything is written behind it. */
  private mend(): void {
    const rebuilt = this.replayed > 0 || this.indexFault !== null;
    if (this.remains) this.cutRemains();
    // A checkpoint of what is not there must not come to tell of what is written next.
    this.findLastCheckpoint();
    if (this.indexFault !== null) {
      this.openIndex();
      if (this.disk.infoOf(this.indexFd).size > this.indexEnd) this.disk.truncate(this.indexFd, this.indexEnd);
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

  private cutRemains(): void {
    const { disk, remains } = this;
    if (!remains) return;
    for (const { seq, size } of this.segments().reverse()) {
      if (seq < remains.segmentSeq) break;
      const start = seq === remains.segmentSeq ? remains.start : 0;
      if (size <= start && start > 0) continue;
      const path = segmentFile(this.folder, seq);
      if (!remains.ours && size > start) this.keepAside(seq, start, size);
      if (this.writer?.segmentSeq === seq && start === 0) this.dropWriter();
      this.forgetSegment(seq);
      if (start === 0) disk.remove(path);
      else {
        const fd = disk.openAppend(path);
        try {
          disk.truncate(fd, start);
        } finally {
          closeQuietly(disk, fd);
        }
      }
      this.looseFolders.add(segmentFolder(this.folder));
    }
    this.remains = null;
  }

  private keepAside(segmentSeq: number, start: number, size: number): void {
    const { disk } = this;
    const bytes = Buffer.allocUnsafe(size - start);
    readAll(disk, this.segmentFd(segmentSeq), bytes, start);
    const folder = this.options.quarantine;
    disk.makeFolder(folder);
    for (let n = 1; ; n++) {
      const name = `${this.header.id}-${segmentSeq}-${start}${n === 1 ? "" : `-${n}`}.bin`;
      const keptAt = join(folder, name);
      try {
        disk.close(publishNew(disk, keptAt, (fd) => writeAll(disk, fd, bytes)));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === "EEXIST") continue;
        throw error;
      }
      const index = this.damage.findIndex(({ kind, keptAt }) => kind === "torn_tail" && keptAt === undefined);
      if (index >= 0) this.damage[index] = { ...this.damage[index], keptAt };
      return;
    }
  }

  private openIndex(): void {
    if (this.indexFd >= 0) return;
    const path = indexFile(this.folder);
    try {
      this.indexFd = this.disk.openAppend(path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      this.indexFd = this.disk.create(path);
      this.looseFolders.add(join(this.folder, "index"));
    }
  }

  /** Tells the ledger, which is on the medium when this returns. */
  private recordEvent(
    phase: Phase,
    outcome: Outcome,
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
      // While it has no name yet, nobody else can be its writer.
      lock = this.lockOf(key);
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
    this.lock = lock;
    this.holder = null;
    this.unsure = false;
    this.created = held;
    this.overrides.clear();
    for (const folder of [segmentFolder(file), join(file, "index"), file, join(file, "..")])
      this.looseFolders.add(folder);
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
    const running = this.committing;
    if (!running) return this.makeDurable();
    if (running.count >= this.nodes.count) return running.done;
    // Whoever comes too late for the operation that runs shares the next; if it fails, it took their entries along.
    this.nextCommit ??= running.done
      .finally(() => {
        this.nextCommit = null;
      })
      .then(() => this.commit());
    return this.nextCommit;
  }

  /** Where an append is durable at once, a commit has nothing to do but this. */
  private async checkpointInPassing(): Promise<void> {
    if (!this.isCheckpointDue) return;
    const { count } = this.nodes;
    const done = this.checkpointIfDue().finally(() => {
      this.committing = null;
      if (!this.closed && this.nodes.count > count)
        this.states.through(["DIRTY", "SEGMENT_SEALED", "INDEXED"], "entries were appended meanwhile");
    });
    this.committing = { count, done };
    return done;
  }

  private makeDurable(): Promise<void> {
    const { count } = this.nodes;
    const { tail, era } = this;
    const rows = this.rows.length;
    const sync = async (): Promise<void> => {
      try {
        await this.syncFrames();
        this.demandEra(era);
        this.demandFrames(tail);
        this.states.to("SEGMENT_SEALED", "the frames are on the medium");
        // Another log of this process may have made all of it durable meanwhile.
        if (this.durableCount < count) {
          const pending = this.rows.slice(0, rows);
          const bytes = this.writeRows(pending);
          if (bytes.length > 0) await this.disk.sync(this.indexFd);
          await this.syncFolders();
          this.demandEra(era);
          if (this.durableCount < count) {
            this.indexed(bytes, pending);
            this.markDurable(count, tail);
          }
        }
        this.states.to("INDEXED", "the index rows are on the medium");
        await this.checkpointIfDue();
      } catch (error) {
        if (era === this.era) this.rollBack();
        throw storageFailure(error, "making the changes durable");
      } finally {
        this.committing = null;
        if (!this.closed && this.nodes.count > this.durableCount && this.state !== "DIRTY" && this.state !== "FAILED")
          this.states.to("DIRTY", "entries were appended meanwhile");
      }
    };
    const done = sync();
    this.committing = { count, done };
    return done;
  }

  /** Of the segments that are there now: while one becomes durable, an append may begin the next. */
  private async syncFrames(): Promise<void> {
    const sealed = [...this.sealed];
    const { writer } = this;
    for (const fd of writer ? [...sealed, writer.fd] : sealed) await this.disk.sync(fd);
    for (const fd of sealed) closeQuietly(this.disk, fd);
    this.sealed = this.sealed.filter((fd) => !sealed.includes(fd));
  }

  /** A name that comes into a folder while that becomes durable needs it once more. */
  private async syncFolders(): Promise<void> {
    const loose = [...this.looseFolders];
    this.looseFolders.clear();
    try {
      for (const folder of loose) await this.disk.syncFolder(folder);
    } catch (error) {
      for (const folder of loose) this.looseFolders.add(folder);
      throw error;
    }
  }

  private demandEra(era: number): void {
    if (era !== this.era) throw new Failure("storage_failed", "The changes were given up before they were durable.");
  }

  /** No row may name what is not there (INV-003); and what is durable in a container that lost its name is lost too. */
  private demandFrames(tail: Tail): void {
    const { device, inode } = this.disk.info(headerFile(this.folder));
    if (device !== this.key?.device || inode !== this.key?.inode)
      throw new Failure("storage_failed", "Another program put another session in this one's place. Ask again.");
    if (tail.segmentSeq > 0 && this.disk.info(segmentFile(this.folder, tail.segmentSeq)).size < tail.segmentSize)
      throw new Failure("storage_failed", "Another program cut the session's files. Ask again.");
  }

  /** Writes rows behind those that the index holds. */
  private writeRows(rows: readonly string[]): Uint8Array {
    const bytes = bytesOf(rows.join(""));
    if (bytes.length === 0) return bytes;
    this.openIndex();
    const { size } = this.disk.infoOf(this.indexFd);
    if (size !== this.indexEnd) this.disk.truncate(this.indexFd, this.indexEnd);
    writeAll(this.disk, this.indexFd, bytes);
    return bytes;
  }

  private indexed(bytes: Uint8Array, rows: readonly string[]): void {
    if (rows.length === 0) return;
    const seen = this.disk.infoOf(this.indexFd);
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
      if (!this.committing) for (const fd of this.sealed.splice(0)) closeQuietly(this.disk, fd);
      if (sync && this.writer) this.disk.syncNow(this.writer.fd);
      if (!this.committing) this.states.to("SEGMENT_SEALED", "the frames are written");
      const rows = [...this.rows];
      const bytes = this.writeRows(rows);
      if (sync) {
        if (bytes.length > 0) this.disk.syncNow(this.indexFd);
        for (const folder of this.looseFolders) this.disk.syncFolderNow(folder);
      }
      this.looseFolders.clear();
      this.indexed(bytes, rows);
      this.markDurable(this.nodes.count, tail);
      if (!this.committing) this.states.to("INDEXED", "the index rows are written");
    } catch (error) {
      this.rollBack();
      throw error;
    }
  }

  rollBack(): void {
    if (this.durableCount >= this.nodes.count) return;
    this.era++;
    const indexed = this.nodes.count - this.rows.length;
    this.forgetFrom(this.durableCount);
    this.writers.delete(this.writerKey);
    if (this.state === "SEGMENT_SEALED") this.states.to("FAILED", "the index could not be written");
    if (this.created) this.unmake(this.created);
    else {
      this.rows.length = Math.max(0, this.durableCount - indexed);
      this.tail = this.durable.tail;
      this.cutIndex();
      this.cutTo(this.tail);
    }
    if (this.state === "FAILED") this.states.to("DIRTY", "what was not durable is given up");
  }

  private cutIndex(): void {
    if (this.indexFd < 0) return;
    try {
      if (this.disk.infoOf(this.indexFd).size > this.indexEnd) this.disk.truncate(this.indexFd, this.indexEnd);
      this.seen = this.disk.infoOf(this.indexFd);
    } catch {
      this.indexFault = "it holds rows of entries that were given up";
    }
  }

  /** Takes back the container of a session whose first entries did not become durable. */
  private unmake(held: readonly Uint8Array[]): void {
    this.lock?.release();
    this.lock = undefined;
    this.closeFiles();
    this.key = undefined;
    this.seen = undefined;
    removeQuietly(this.disk, pointerFile(this.file));
    removeTree(this.disk, this.file);
    for (const [position, line] of held.entries()) this.overrides.set(position, line);
    this.created = null;
    this.rows = [];
    this.tail = EMPTY_TAIL;
    this.indexEnd = 0;
    this.looseFolders.clear();
    this.manifestDue = false;
    this.durable = { tail: EMPTY_TAIL, indexEnd: 0, lastRow: { length: 0, crc: 0 } };
  }

  // --- checkpoints ---------------------------------------------------------------------------------------------

  async checkpointNow(): Promise<number | null> {
    this.demandOpen();
    if (this.readOnly) throw this.readOnly;
    if (!this.persisted || this.nodes.count === 0) return null;
    try {
      this.takeLock();
      this.catchUp();
      await this.commit();
      if (this.state !== "INDEXED") {
        if (this.state !== "DIRTY") this.states.to("DIRTY", "a checkpoint was asked for");
        this.states.through(["SEGMENT_SEALED", "INDEXED"], "no frame was added");
      }
      await this.checkpoint("manual");
    } catch (error) {
      throw storageFailure(error, "making a checkpoint");
    }
    return this.findLastCheckpoint().seq;
  }

  /** Where an append is durable at once, its commit is still what makes the checkpoint. */
  get isCheckpointDue(): boolean {
    if (this.options.durability === "sync" || this.state !== "INDEXED" || this.committing || this.closed) return false;
    return this.lastCheckpoint === null || this.isFarFrom(this.lastCheckpoint.tail);
  }

  private isFarFrom(checkpointed: Tail): boolean {
    const { entries, bytes } = this.options.checkpointEvery;
    const { tail } = this.durable;
    return tail.entrySeq - checkpointed.entrySeq >= entries || tail.bytesTotal - checkpointed.bytesTotal >= bytes;
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

  /** The last checkpoint that fits what is there; any that tells of more is put out of the way. */
  private findLastCheckpoint(): { seq: number; tail: Tail } {
    if (this.lastCheckpoint) return this.lastCheckpoint;
    const seqs = this.disk
      .names(checkpointFolder(this.folder))
      .map((name) => numberOf(name, "json"))
      .filter((seq) => seq > 0)
      .sort((a, b) => b - a);
    let found: { seq: number; tail: Tail } = { seq: seqs[0] ?? 0, tail: EMPTY_TAIL };
    for (const seq of seqs) {
      const path = checkpointFile(this.folder, seq);
      const checkpoint = this.checkpointAt(path, seq);
      if (checkpoint !== null && this.agrees(checkpoint)) {
        const bytesTotal = this.spineCount === checkpoint.headEntrySeq ? this.bytesBefore(checkpoint.headEntrySeq) : 0;
        found = { seq: seqs[0], tail: { ...EMPTY_TAIL, entrySeq: checkpoint.headEntrySeq, bytesTotal } };
        break;
      }
      this.disk.rename(path, `${path}.bak`);
    }
    this.lastCheckpoint = found;
    return found;
  }

  /** Whether a checkpoint can be of this store (INV-004). */
  private agrees({ headEntrySeq, headEntryId, chainHash }: Checkpoint): boolean {
    const { tail } = this.durable;
    if (headEntrySeq > tail.entrySeq || this.nodes.id(headEntrySeq - 1) !== headEntryId) return false;
    return headEntrySeq < tail.entrySeq || chainHash === tail.chainHash;
  }

  private checkpointAt(path: string, seq: number): Checkpoint | null {
    try {
      return parseCheckpoint(readWhole(this.disk, path), seq);
    } catch (error) {
      if (error instanceof Malformed) return null;
      throw error;
    }
  }

  /** Bytes of all frames before a position. */
  private bytesBefore(position: number): number {
    let bytes = 0;
    const { values } = this.places.lengths;
    for (let p = 0; p < position; p++) bytes += values[p];
    return bytes;
  }

  /** Marks the durable end of the store, with a manifest of the same state (INV-004) and what the spine lacks. */
  private async checkpoint(reason: Reason): Promise<void> {
    const { durable, disk } = this;
    const seq = this.findLastCheckpoint().seq + 1;
    const at = timestamp(this.env);
    const { tail } = durable;
    const manifest = this.manifestNow(at);
    const checkpoint: Checkpoint = {
      schema: CHECKPOINT_SCHEMA,
      checkpointSeq: seq,
      at,
      headEntrySeq: manifest.head.entrySeq,
      headEntryId: manifest.head.entryId,
      snapshotRef: snapshotRef(seq),
      compactedBeforeEntrySeq: 0,
      chainHash: manifest.integrity.chainHash,
      reason,
    };
    const mark = this.temporary(`${numbered(seq, "json")}.tmp`, bytesOf(encodeCheckpoint(checkpoint)));
    await this.settleFile(mark.fd);
    takeName(disk, mark.path, checkpointFile(this.folder, seq));
    const text = this.temporary("manifest.json.tmp", bytesOf(encodeManifest(manifest)));
    await this.settleFile(text.fd);
    disk.rename(text.path, manifestFile(this.folder));
    if (this.options.durability === "sync") {
      await disk.syncFolder(checkpointFolder(this.folder));
      await disk.syncFolder(this.folder);
    }
    this.lastCheckpoint = { seq, tail };
    this.manifestDue = this.nodes.count > this.durableCount;
    this.states.to("CHECKPOINTED", "the checkpoint is on the medium");
    this.growSpine(durable);
  }

  private manifestNow(updatedAt: string): ReturnType<Tally["manifest"]> {
    if (!this.counted) {
      const before = readManifest(this.disk, manifestFile(this.folder));
      const sourceFormat: SourceFormat = before?.sourceFormat ?? "native_v2";
      this.counted = { sessionId: this.header.id, sourceFormat, createdAt: before?.createdAt ?? updatedAt };
    }
    return this.tally.manifest(this.durable.tail, { ...this.counted, updatedAt });
  }

  private temporary(name: string, bytes: Uint8Array): { path: string; fd: number } {
    const path = join(temporaryFolder(this.folder), name);
    this.disk.makeFolder(temporaryFolder(this.folder));
    removeQuietly(this.disk, path);
    const fd = this.disk.create(path);
    try {
      writeAll(this.disk, fd, bytes);
    } catch (error) {
      closeQuietly(this.disk, fd);
      removeQuietly(this.disk, path);
      throw error;
    }
    return { path, fd };
  }

  private async settleFile(fd: number): Promise<void> {
    try {
      if (this.options.durability === "sync") await this.disk.sync(fd);
    } finally {
      closeQuietly(this.disk, fd);
    }
  }

  /** On leaving: the manifest of the durable state. Without it the next opening works as well. */
  private publishManifestNow(): void {
    try {
      // What was deleted or moved away meanwhile is not begun anew.
      if (this.infoOrNull(headerFile(this.folder))?.inode !== this.key?.inode) return;
      const { path, fd } = this.temporary(
        "manifest.json.tmp",
        bytesOf(encodeManifest(this.manifestNow(timestamp(this.env)))),
      );
      try {
        if (this.options.durability === "sync") this.disk.syncNow(fd);
      } finally {
        closeQuietly(this.disk, fd);
      }
      this.disk.rename(path, manifestFile(this.folder));
      this.manifestDue = false;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === undefined) throw error;
    }
  }

  /** Adds to the spine what it lacks of the durable entries, if they are no more than their frames say. */
  private growSpine({ tail, indexEnd, lastRow }: Durable): void {
    const { disk, nodes } = this;
    if (nodes.aliases > 0 || nodes.missingParent.size > 0 || nodes.losses > 0 || lastRow.length === 0) return;
    const reach: Reach = { count: tail.entrySeq, tail, indexEnd, rowLength: lastRow.length, rowCrc: lastRow.crc };
    if (reach.count <= this.spineCount) return;
    for (const position of nodes.forward) if (nodes.parent(position) >= reach.count) return;
    const path = spineFile(this.folder);
    try {
      const fd = exists(disk, path) ? disk.openAppend(path) : disk.create(path);
      try {
        const { size } = disk.infoOf(fd);
        if (size < this.spineEnd) {
          this.spineEnd = 0;
          this.spineCount = 0;
        }
        if (size !== this.spineEnd) disk.truncate(fd, this.spineEnd);
        const block = encodeBlock(nodes, this.places, this.spineCount, reach);
        writeAll(disk, fd, block);
        this.spineEnd += block.length;
        this.spineCount = reach.count;
      } finally {
        closeQuietly(disk, fd);
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === undefined) throw error;
    }
  }

  // --- repairing -----------------------------------------------------------------------------------------------

  get mendable(): readonly Damage[] {
    return this.damage.filter(({ kind }) => MENDED.has(kind));
  }

  /** Builds the container anew from what can be read and swaps the two; the damaged one stays under another name. */
  repair(): string | null {
    if (this.mendable.length === 0) {
      this.makeNamesDurable();
      return null;
    }
    if (this.readOnly && this.readOnly.name !== "corrupt") throw this.readOnly;
    this.takeLock();
    const { disk, nodes, file } = this;
    const backup = this.folder === file ? backupName(disk, file) : this.folder;
    const builder = new Builder(this.options, stagingName(file));
    this.fail("frames are damaged");
    try {
      builder.beginWith(headerFile(this.folder));
      for (let position = 0; position < nodes.count; position++) builder.add(this.mended(position));
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
    this.closeFiles();
    this.folder = file;
    this.manifestDue = false;
    for (const state of ["DIRTY", "SEGMENT_SEALED", "INDEXED", "CHECKPOINTED"] as const)
      this.states.to(state, "the session was rebuilt");
    // The container has none of it any more, whether or not the rest succeeds.
    this.damage.splice(0, this.damage.length, ...this.damage.filter(({ kind }) => !MENDED.has(kind)));
    this.looseFolders = new Set([dirname(file)]);
    this.makeNamesDurable();
    return backup;
  }

  /** What was put in its place lasts only with its folder. */
  private makeNamesDurable(): void {
    if (this.options.durability !== "sync") return;
    try {
      for (const folder of this.looseFolders) this.disk.syncFolderNow(folder);
      this.looseFolders.clear();
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

  private closeFiles(): void {
    this.dropWriter();
    for (const fd of this.sealed) closeQuietly(this.disk, fd);
    this.sealed = [];
    if (this.indexFd >= 0) closeQuietly(this.disk, this.indexFd);
    this.indexFd = -1;
    this.closeSegments();
  }

  close(): void {
    if (this.closed) return;
    this.unlock();
    if (this.writers.get(this.writerKey) === this) this.writers.delete(this.writerKey);
    this.closeFiles();
    this.closed = true;
  }
}

function backupName(disk: Disk, file: string): string {
  for (let n = 1; ; n++) {
    const name = `${file}.damaged.bak${n === 1 ? "" : `.${n}`}`;
    if (!exists(disk, name)) return name;
  }
}

/** A name must not be taken, by a container, its pointer, or what pi_agent_rust would take it for. Throws already_exists. */
export function demandFree(disk: Disk, file: string): void {
  for (const taken of [file, pointerFile(file), file.replace(/\.v2$/, ".jsonl")])
    if (exists(disk, taken))
      throw new Failure("already_exists", `There is something at ${taken} already. Choose another path.`, {
        sessionPath: taken,
      });
}

/** The pointer of a session that begins in V2. */
export function newPointer(manifestHash: string, sessionId: string): Pointer {
  return {
    active: "native_v2",
    manifestHash,
    snapshotId: null,
    correlationId: `new-${sessionId}`,
    reason: null,
    phase: "completed",
    source: null,
  };
}

/** Makes a container the session: from the moment its pointer has its name. */
export function publishPointer(disk: Disk, container: string, pointer: Pointer, durability: Durability): void {
  const fd = publishNew(disk, pointerFile(container), (fd) => {
    writeAll(disk, fd, bytesOf(encodePointer(pointer)));
    if (durability === "sync") disk.syncNow(fd);
  });
  closeQuietly(disk, fd);
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
