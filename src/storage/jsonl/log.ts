/**
 * Sessions as JSONL files, Pi's format versions 1 to 3 (session-format reference). Opening scans line ends and the
 * heads of lines; bodies are read by offset when they are asked for. Programs that know no lock may write to the same
 * file, so it is checked before and after every write.
 */

import { dirname, join } from "node:path";
import { crc32 } from "node:zlib";
import { isMissing, isNoFile, storageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import type { Damage } from "../../core/format/damage.ts";
import { CURRENT_VERSION, headerOf, type SessionHeader } from "../../core/format/entry.ts";
import { addHead } from "../../core/format/head.ts";
import { bytesOf, concat, parse, sameBytes } from "../../core/json/json.ts";
import type { Beginning, Change, FileStamp, Holder, LockKind, Log, Mended, Store } from "../../core/ports/store.ts";
import { MISSING, unpackId } from "../../core/tree/nodes.ts";
import {
  closeQuietly,
  type Disk,
  exists,
  type FileInfo,
  isAbsent,
  keepAs,
  publishNew,
  readAll,
  removeIfSame,
  removeQuietly,
  takeName,
  temporaryName,
  writeAll,
} from "../fs/disk.ts";
import { backupName, keepAside } from "../fs/quarantine.ts";
import { isSameFile, isSameStamp, isUnchanged } from "../fs/stamps.ts";
import { sweepStrays } from "../fs/temporary-files.ts";
import { LooseFolders } from "../fs/unsynced-folders.ts";
import { lockBeside, lockInFolder } from "../locks/lock-paths.ts";
import type { Lock, Locks } from "../locks/locks.ts";
import { WriterLock } from "../locks/writer-lock.ts";
import { Commits } from "../log/group-commit.ts";
import { attachmentFolder, JsonlReader, type JsonlReaderOptions, LF, notASession, withMember } from "./reader.ts";
import { WrittenLines } from "./written-lines.ts";

export type Durability = "sync" | "os";

export interface JsonlOptions extends JsonlReaderOptions {
  readonly locks: Locks;
  readonly durability: Durability;
  /** Returns the path of a new session's file. */
  readonly fileFor: (header: SessionHeader) => string;
  /** Folder for bytes that are taken out of a session file. */
  readonly quarantine: string;
}

/**
 * Milliseconds without a change after which the writer of a torn tail is taken to be dead and the tail is cut off
 * (guarantee 7).
 */
const STILL = 2000;
/**
 * Bytes after which a sync is started while more are written: a copy of 245 MB is durable after 260 ms with this, and
 * after 310 ms with one sync at its end.
 */
const SYNCED_EARLY = 1 << 25;
const NO_CHANGE: Change = { kind: "none" };

/**
 * Most repetitions of a check: of the size of a file that has a new time, a millisecond apart, and of new lines that
 * changed while they were read.
 */
const LOOKS = 20;
/** Most repetitions of an opening during which another program changed the file. */
const OPENINGS = 5;
/** Never notified: `Atomics.wait` on it is a synchronous sleep. */
const MOMENT = new Int32Array(new SharedArrayBuffer(4));
/** Kinds of damage that a repair removes from the file. */
const MENDED: ReadonlySet<Damage["kind"]> = new Set([
  "bad_line",
  "bad_body",
  "bad_header",
  "torn_tail",
  "extra_header",
  "duplicate_id",
  "missing_id",
  "missing_parent",
  "cycle",
  "incomplete_batch",
]);

/** A write that is not durable yet. Its bytes are cut off only if the checksum proves that they are still ours. */
interface Written {
  readonly start: number;
  readonly length: number;
  readonly lines: number;
  readonly crc: number;
}

class JsonlLog extends JsonlReader implements Log {
  readonly store = "jsonl";
  durableCount = 0;

  private readonly options: JsonlOptions;
  private readonly lock: WriterLock;
  private readonly commits: Commits;
  private readonly looseFolders: LooseFolders;
  private writable = false;
  private durableSize = 0;
  private durableUnterminated = false;
  /** Lines that were held until the file was created; set from then to the first commit. */
  private created: Uint8Array[] | null = null;
  /** Whether another program appended after entries of ours that are not durable yet. */
  private mixed = false;
  private pending: Written[] = [];
  /** Whether what is known of the file was compared with it since the lock was taken. */
  private confirmed = false;
  /**
   * Whether the file had changed without growing when entries were appended to it: the next check that is not for an
   * append returns "replaced".
   */
  private suspected = false;

  constructor(options: JsonlOptions, file: string, thorough = false) {
    super(options, file, thorough);
    this.options = options;
    this.lock = new WriterLock(options.locks, ({ inode }) => lockBeside(options.disk, this.file, inode));
    this.looseFolders = new LooseFolders(options.disk);
    this.commits = new Commits({
      makeDurable: (demandWanted) => this.makeDurable(demandWanted),
      rollBack: () => this.rollBack(),
      commit: () => this.commit(),
    });
  }

  get persisted(): boolean {
    return this.fd >= 0;
  }

  get stamp(): FileStamp | null {
    if (this.fd < 0) return null;
    try {
      const { device, inode, size, modified } = this.disk.infoOf(this.fd);
      return { device, inode, size, modified };
    } catch (error) {
      throw storageFailure(error, "looking at the session file");
    }
  }

  get lockedBy(): Holder | null {
    return this.lock.lockedBy(this.seen);
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

  open(written?: WrittenLines): this {
    try {
      this.fd = this.disk.openRead(this.file);
    } catch (error) {
      if (isMissing(error))
        throw new Failure("session_not_found", `There is no file at ${this.file}. list_sessions shows the sessions.`, {
          sessionPath: this.file,
        });
      if (isNoFile(error)) throw notASession(this.file, "it is not a regular file");
      throw storageFailure(error, "opening the session");
    }
    try {
      this.readFile(written);
      this.isMixed = !this.isOfOneMoment();
      if (this.seen) this.lock.look(this.seen);
    } catch (error) {
      this.close();
      throw storageFailure(error, "reading the session");
    }
    this.durableCount = this.nodes.count;
    this.durableSize = this.size;
    this.durableUnterminated = this.unterminated;
    return this;
  }

  reopen(): Log {
    const log = openLog(this.options, this.file, this.thorough || this.mayHideEntries);
    log.looseFolders.addAll(this.looseFolders);
    if (log.seen?.inode === this.seen?.inode && log.seen?.device === this.seen?.device) this.lock.handTo(log.lock);
    return log;
  }

  // --- other writers -------------------------------------------------------------------------------------------

  refresh(): Change {
    return this.look(false);
  }

  /**
   * Checks what other programs did to the file. With `appending`, the caller will only write after what is there,
   * whatever that is.
   */
  private look(appending: boolean): Change {
    if (this.fd < 0 || this.closed) return { kind: "none" };
    let now: FileInfo;
    try {
      now = this.disk.info(this.file);
    } catch (error) {
      if (isMissing(error)) return { kind: "gone" };
      throw storageFailure(error, "looking at the session file");
    }
    try {
      return this.compare(now, appending);
    } catch (error) {
      throw storageFailure(error, "looking at the session file");
    }
  }

  /**
   * Compares what is known of the file with its content. Without the lock, what was found after the known part is
   * provisional, because its writer may still be at work; the first check with the lock judges it again.
   */
  private compare(found: FileInfo, appending: boolean): Change {
    const { seen, size } = this;
    const judging = this.lock.isHeld && !this.confirmed;
    const isMoved = !seen || !isSameStamp(found, seen);
    if (this.suspected && !appending) return { kind: "replaced" };
    if (!isMoved && !judging) return { kind: "none" };
    const wasWhole = seen?.size === size && this.torn < 0;
    const now = isMoved && wasWhole && found.size === size ? this.lookAgain(found) : found;
    if (!isSameFile(now, seen ?? this.disk.infoOf(this.fd))) return { kind: "replaced" };
    if (now.size < this.knownEnd || !this.isThere()) return { kind: "replaced" };
    // Changed, but of the same size: something was overwritten, or an append is under way.
    if (isMoved && wasWhole && now.size === size) {
      if (!appending) return { kind: "replaced" };
      this.suspected = true;
    }
    const change = now.size > size || this.torn >= 0 ? this.takeGrowth(judging) : NO_CHANGE;
    if (isMoved) {
      this.seen = now;
      this.doubt();
    }
    this.confirmed ||= judging;
    return change;
  }

  /**
   * Checks a file again until its size has changed. A file gets its new time before its new size, so a check during an
   * append may see only the new time.
   */
  private lookAgain(now: FileInfo): FileInfo {
    try {
      for (let looks = 0; looks < LOOKS && now.size === this.size; looks++) {
        Atomics.wait(MOMENT, 0, 0, 1);
        now = this.disk.info(this.file);
      }
    } catch {
      // It was removed; the next check reports that.
    }
    return now;
  }

  /**
   * Adds the entries after the known part. A line or batch at the end that is not complete is read again by the next
   * check, and is reported as damage only once its writer is known to be dead.
   */
  private takeGrowth(judging: boolean): Change {
    const first = this.nodes.count;
    const { unterminated, lineCount } = this;
    let known = 0;
    for (let looks = 0; ; looks++) {
      const from = this.forgetTail();
      known = this.damage.length;
      let isTrue = false;
      this.unterminated = false;
      this.isGrowing = true;
      try {
        this.scan(from);
        if (this.size === from) this.unterminated = unterminated;
        this.dropIncompleteBatch();
        this.readEdges();
        isTrue = this.lock.isHeld || looks === LOOKS || this.holdsNodes(first, from);
      } finally {
        this.isGrowing = false;
        if (!isTrue) {
          // Restores the state from before the check.
          this.forgetFrom(first);
          this.damage.length = known;
          Object.assign(this, { unterminated, lineCount, size: from, torn: from, seen: undefined });
        }
      }
      if (isTrue) break;
    }
    if (this.torn >= 0 && !(judging && this.isWriterGone)) this.forgetTailDamage(known);
    for (const position of this.nodes.cutCycles())
      this.report("cycle", position, "parents form a cycle; it is cut here", true);
    if (this.durableCount < first) this.mixed = true;
    else {
      // Other programs make their own entries durable; here these count as durable once they are known.
      this.durableCount = this.nodes.count;
      this.durableSize = this.size;
      this.durableUnterminated = this.unterminated;
    }
    if (this.nodes.count === first && this.damage.length === known) return NO_CHANGE;
    return { kind: "grown", first };
  }

  // --- writing -------------------------------------------------------------------------------------------------

  append(lines: readonly Uint8Array[], options: { hold?: boolean } = {}): void {
    if (this.closed) throw new Failure("storage_failed", "The session is closed. Open it again.");
    if (this.readOnly) throw this.readOnly;
    if (!this.persisted && options.hold) {
      if (exists(this.disk, this.file)) throw this.nameTaken();
      for (const line of lines) this.overrides.set(this.added(line, -1), line);
      this.durableCount = this.nodes.count;
      return;
    }
    try {
      if (!this.persisted) this.createFile(lines);
      else this.appendLines(lines);
    } catch (error) {
      throw storageFailure(error, "appending to the session");
    }
    if (this.options.durability === "sync") return;
    this.looseFolders.clear();
    this.markDurable(this.nodes.count, this.size);
  }

  takeLock(): boolean {
    if (this.lock.isHeld || !this.persisted) return false;
    try {
      this.lock.take(this.disk.infoOf(this.fd));
    } catch (error) {
      throw storageFailure(error, "locking the session");
    }
    this.confirmed = false;
    return true;
  }

  unlock(): void {
    if (this.lock.isHeld && this.durableCount === this.nodes.count) this.keepIndex();
    this.lock.release();
    this.confirmed = false;
  }

  /** Makes sure, before a write, that what is known of the file is what is there. Throws storage_failed. */
  private confirm(appending = false): void {
    const { seen } = this;
    if (this.confirmed && seen && isSameStamp(this.disk.infoOf(this.fd), seen)) return;
    const { kind } = this.look(appending);
    if (kind !== "replaced" && kind !== "gone") return;
    this.confirmed = false;
    throw changedByOthers();
  }

  /** Records the stamp that our own write gave to the file, unless another program wrote too. */
  private noteOwn(): void {
    this.seen = undefined;
    try {
      const now = this.disk.infoOf(this.fd);
      if (now.size === this.size) this.seen = now;
    } catch {
      // The next check compares.
    }
  }

  private added(line: Uint8Array, start: number): number {
    const position = addHead(this.heads, this.nodes, line);
    this.starts.room(position)[position] = start;
    this.lengths.room(position)[position] = line.length;
    this.checked.room(position)[position] = 1;
    return position;
  }

  private appendLines(lines: readonly Uint8Array[]): void {
    this.takeLock();
    this.confirm(!this.rewrite && this.torn < 0);
    if (this.rewrite) this.publishAnew();
    if (!this.writable) this.openToWrite();
    const seal = this.treatTail();
    const bytes = fileBytes(lines, seal);
    const start = this.size;
    let now: FileInfo;
    try {
      writeAll(this.disk, this.fd, bytes);
      now = this.disk.infoOf(this.fd);
    } catch (error) {
      this.cutBack(start, bytes);
      throw error;
    }
    if (now.size !== start + bytes.length) {
      this.findOwn(lines);
      return;
    }
    let at = start + (seal ? 1 : 0);
    for (const line of lines) {
      this.added(line, at);
      at += line.length + 1;
    }
    this.lineCount += lines.length;
    this.size = at;
    this.unterminated = false;
    this.seen = now;
    this.noteLast(bytes);
    if (this.options.durability === "sync")
      this.pending.push({ start, length: bytes.length, lines: lines.length, crc: crc32(bytes) });
  }

  /**
   * Finds our lines in the file after another program wrote at the same time: only the file shows where they are.
   * Throws storage_failed if one was spoiled.
   */
  private findOwn(lines: readonly Uint8Array[]): void {
    const { durableCount, durableSize, durableUnterminated } = this;
    this.seen = undefined;
    this.takeGrowth(false);
    // Our lines are not on the medium yet.
    this.mixed = true;
    Object.assign(this, { durableCount, durableSize, durableUnterminated });
    const { heads, nodes } = this;
    for (const line of lines) {
      const fault = heads.parse(line, 0, line.length, () => "");
      const id = heads.packedId >= 0 ? unpackId(heads.packedId) : heads.id;
      if (fault === null && nodes.position(id) >= 0) continue;
      throw new Failure(
        "storage_failed",
        "Another program wrote into the session's file at the same moment, so that an entry was spoiled. get_entries shows what is there.",
        {},
        { byOthers: true },
      );
    }
  }

  /** Opens the file for writing. Throws storage_failed if its name belongs to another file now. */
  private openToWrite(): void {
    const fd = this.disk.openAppend(this.file);
    let isSame = false;
    try {
      isSame = isSameFile(this.disk.infoOf(fd), this.disk.infoOf(this.fd));
    } finally {
      closeQuietly(this.disk, isSame ? this.fd : fd);
    }
    if (!isSame) throw changedByOthers();
    this.fd = fd;
    this.writable = true;
  }

  /**
   * Moves what a torn write left at the end to quarantine, if its writer is dead: a server of ours that died with the
   * lock, or a program that wrote nothing for `STILL` milliseconds. Otherwise the next write closes it with a line
   * feed. Returns whether the next write must begin with one.
   */
  private treatTail(): boolean {
    if (this.torn < 0) return this.unterminated;
    const start = this.torn;
    if (!this.isWriterGone) {
      this.torn = -1;
      return true;
    }
    const bytes = Buffer.allocUnsafe(this.size - start);
    readAll(this.disk, this.fd, bytes, start);
    const keptAt = keepAside(this.disk, this.options.quarantine, `${this.header.id}-${start}`, bytes);
    // While the stamp is the same, these are the bytes that were judged. Otherwise their writer is still at work.
    if (!this.seen || !isSameStamp(this.disk.infoOf(this.fd), this.seen)) {
      this.torn = -1;
      return true;
    }
    this.disk.truncate(this.fd, start);
    this.closeWindow();
    this.size = start;
    this.noteOwn();
    this.durableSize = Math.min(this.durableSize, start);
    this.durableUnterminated = this.unterminated;
    this.torn = -1;
    const index = this.damage.findIndex(
      ({ kind, byteOffset }) => byteOffset === start && (kind === "torn_tail" || kind === "incomplete_batch"),
    );
    if (index >= 0) this.damage[index] = { ...this.damage[index], keptAt };
    return this.unterminated;
  }

  /** Whether no program will continue the torn write at the end. Only the lock holder can tell. */
  private get isWriterGone(): boolean {
    if (this.tornIsOurs || this.lock.heirOfDead) return true;
    const now = this.env.now();
    return now - (this.seen?.modified ?? now) >= STILL;
  }

  /**
   * Creates the file at the first append: the header, the lines that were held and the new lines appear in one step.
   */
  private createFile(lines: readonly Uint8Array[]): void {
    const held = [...this.overrides.values()];
    const bytes = fileBytes([this.headerLine, ...held, ...lines], false);
    this.disk.makeFolder(dirname(this.file));
    sweepStrays(this.disk, dirname(this.file), this.env.now());
    let lock: Lock | undefined;
    try {
      this.fd = publishNew(this.disk, this.file, (fd) => {
        writeAll(this.disk, fd, bytes);
        this.syncBeforeNaming(fd);
        const info = this.disk.infoOf(fd);
        lock = this.lock.claim(info, lockInFolder(dirname(this.file), info.inode));
      });
    } catch (error) {
      lock?.release();
      throw (error as NodeJS.ErrnoException).code === "EEXIST" ? this.nameTaken() : error;
    }
    this.writable = true;
    this.confirmed = true;
    this.lock.adopt(lock);
    this.looseFolders.add(dirname(this.file));
    this.created = held;
    this.overrides.clear();
    let at = this.headerLine.length + 1;
    for (const [position, line] of held.entries()) {
      this.starts.set(position, at);
      at += line.length + 1;
    }
    for (const line of lines) {
      this.added(line, at);
      at += line.length + 1;
    }
    this.lineCount = this.nodes.count + 1;
    this.size = at;
    this.pending = [{ start: 0, length: at, lines: lines.length, crc: crc32(bytes) }];
    this.noteOwn();
    this.readEdges();
  }

  /** Records the stamp after a second name of the file was added and removed, which changes only the change time. */
  private noteNames(): void {
    try {
      const now = this.disk.infoOf(this.fd);
      if (!this.seen || !isUnchanged(now, this.seen)) return;
      this.seen = now;
      this.doubt();
    } catch {
      // The next check compares.
    }
  }

  private nameTaken(): Failure {
    return new Failure(
      "already_exists",
      `Another program made a file at ${this.file} before this session had its first entry. switch_session opens that one, new_session begins another.`,
      { sessionPath: this.file },
    );
  }

  /**
   * Publishes the file as version 3 beside the original and swaps the names. The original keeps its bytes and mode,
   * under a backup name that no scanner takes for a session.
   */
  private publishAnew(backup = backupName(this.disk, this.file, `v${this.version}`)): void {
    const { disk, file } = this;
    const temporary = temporaryName(file);
    const fd = disk.create(temporary);
    const starts: number[] = [];
    let at = 0;
    let lock: Lock | undefined;
    let kept = false;
    try {
      disk.copyMode(file, fd);
      writeAll(disk, fd, concat([this.headerLine, LF]));
      at = this.headerLine.length + 1;
      const all = Int32Array.from({ length: this.nodes.count }, (_, position) => position);
      for (const position of all) {
        starts.push(at);
        at += this.length(position) + 1;
      }
      for (const piece of this.copy(all)) writeAll(disk, fd, piece);
      this.syncBeforeNaming(fd);
      const info = disk.infoOf(fd);
      lock = this.lock.claim(info, lockInFolder(dirname(this.file), info.inode));
      this.checkUnchanged(isSameStamp);
      keepAs(disk, file, backup);
      kept = true;
      // A second name changes the change time.
      this.checkUnchanged(isUnchanged);
      disk.rename(temporary, file);
    } catch (error) {
      lock?.release();
      closeQuietly(disk, fd);
      removeQuietly(disk, temporary);
      if (kept) {
        removeQuietly(disk, backup);
        this.noteNames();
      }
      throw error;
    }
    closeQuietly(disk, this.fd);
    this.fd = fd;
    this.writable = true;
    for (const [position, start] of starts.entries()) {
      this.starts.set(position, start);
      this.lengths.set(position, this.length(position));
    }
    this.overrides.clear();
    this.closeWindow();
    this.size = at;
    this.durableSize = at;
    this.torn = -1;
    this.unterminated = false;
    this.durableUnterminated = false;
    this.rewrite = false;
    this.version = CURRENT_VERSION;
    this.header = headerOf(parse(this.headerLine) as object);
    this.looseFolders.add(dirname(file));
    this.lock.adopt(lock);
    this.confirmed = true;
    this.pending = [];
    this.noteOwn();
    this.readEdges();
  }

  /**
   * Throws storage_failed if a program that knows no lock wrote in the meantime: its entries would not be in the new
   * file.
   */
  private checkUnchanged(isSame: (now: FileInfo, seen: FileInfo) => boolean): void {
    if (this.seen && isSame(this.disk.info(this.file), this.seen)) return;
    throw new Failure(
      "storage_failed",
      "Another program wrote to the session while it was published anew. Nothing was changed; ask again.",
      {},
      { byOthers: true },
    );
  }

  get mendable(): readonly Damage[] {
    return this.damage.filter(({ kind }) => MENDED.has(kind));
  }

  repair(mended: Mended = new Map()): string | null {
    if (this.mendable.length === 0 && mended.size === 0) {
      this.makeNamesDurable();
      return null;
    }
    const readOnly = this.readOnly;
    const damagedHeader = this.damage.some(({ kind }) => kind === "bad_header");
    if (readOnly && (!damagedHeader || this.options.readOnly)) throw readOnly;
    this.takeLock();
    try {
      this.confirm();
    } catch (error) {
      throw storageFailure(error, "reading the session");
    }
    // Writes the parents that opening worked out in memory, for entries whose own is missing or was cut off.
    for (let position = 0; position < this.nodes.count; position++) {
      const parent = this.nodes.parent(position);
      const bridged = this.damage.some(
        ({ kind, entryId }) => kind === "missing_parent" && entryId === this.nodes.id(position),
      );
      if (parent !== MISSING && !bridged) continue;
      const parentId = parent < 0 ? null : this.nodes.id(parent);
      const line = withMember(this.read(position), "parentId", bytesOf(JSON.stringify(parentId)));
      this.overrides.set(position, line);
    }
    for (let position = 0; position < this.nodes.count; position++) this.read(position);
    for (const [position, line] of this.standIns) this.overrides.set(position, line);
    const before = Array.from(mended.keys(), (position) => [position, this.overrides.get(position)] as const);
    for (const [position, mend] of mended) this.overrides.set(position, mend(this.read(position)));
    const backup = backupName(this.disk, this.file, "damaged");
    try {
      this.publishAnew(backup);
    } catch (error) {
      // The new lines were not written, so the file still has the old ones.
      for (const [position, line] of before)
        if (line) this.overrides.set(position, line);
        else this.overrides.delete(position);
      throw storageFailure(error, "publishing the repaired session");
    }
    // The file has none of this damage any more, whether or not the rest succeeds.
    this.damage.splice(0, this.damage.length, ...this.damage.filter(({ kind }) => !MENDED.has(kind)));
    if (damagedHeader) this.readOnly = null;
    this.makeNamesDurable();
    return backup;
  }

  /**
   * Syncs the folders of new names: a file that was published anew is durable only with its name. Throws
   * storage_failed.
   */
  private makeNamesDurable(): void {
    if (this.options.durability !== "sync") return;
    try {
      this.looseFolders.syncNow();
    } catch (error) {
      // The file is whole; the next check compares it again.
      this.seen = undefined;
      throw storageFailure(error, "making the repaired session durable");
    }
  }

  /** Syncs a file before it gets its name: a name must never lead to bytes that a power loss can take away. */
  private syncBeforeNaming(fd: number): void {
    if (this.options.durability === "sync") this.disk.syncNow(fd);
  }

  /**
   * Cuts the file back to `size` after a failed write of `attempted`, if what comes after that can only be ours
   * (guarantee 7). Otherwise the next check judges that part again.
   */
  private cutBack(size: number, attempted: Uint8Array): void {
    try {
      const now = this.disk.infoOf(this.fd).size;
      const length = now - size;
      if (length > attempted.length) throw new Error("somebody else wrote there too");
      if (length > 0) {
        const written = Buffer.allocUnsafe(length);
        readAll(this.disk, this.fd, written, size);
        if (!sameBytes(written, attempted.subarray(0, length))) throw new Error("somebody else wrote there too");
      }
      if (length !== 0) this.disk.truncate(this.fd, size);
      this.seen = this.disk.infoOf(this.fd);
    } catch {
      this.giveUpFrom(size);
    }
  }

  /** Leaves everything from this offset on to the next check to judge. */
  private giveUpFrom(size: number): void {
    this.torn = size;
    this.tornIsOurs = false;
    this.seen = undefined;
    this.readEdges();
  }

  async commit(): Promise<void> {
    if (this.durableCount >= this.nodes.count) return;
    if (this.closed) throw new Failure("storage_failed", "The session is closed. Open it again.");
    return this.commits.join(this.nodes.count);
  }

  private async makeDurable(demandWanted: () => void): Promise<void> {
    const { count } = this.nodes;
    const { size } = this;
    await this.disk.sync(this.fd);
    await this.looseFolders.sync();
    this.checkStillThere();
    demandWanted();
    this.markDurable(count, size);
  }

  /** Throws storage_failed if another file has the name now: what is durable in a file without its name is lost. */
  private checkStillThere(): void {
    if (!isSameFile(this.disk.info(this.file), this.disk.infoOf(this.fd)))
      throw new Failure(
        "storage_failed",
        "Another program put another file in the session's place. Ask again.",
        {},
        { byOthers: true },
      );
  }

  private markDurable(count: number, size: number): void {
    this.durableCount = count;
    this.durableSize = size;
    this.durableUnterminated = false;
    this.created = null;
    this.mixed = false;
    if (this.pending.length > 0) this.pending = this.pending.filter(({ start }) => start >= size);
  }

  /** Whether the bytes that are not durable are as we wrote them, and nothing comes after them. */
  private isPendingOurs(): boolean {
    try {
      if (this.disk.infoOf(this.fd).size !== this.size) return false;
      return this.pending.every(({ start, length, crc }) => {
        const bytes = Buffer.allocUnsafe(length);
        readAll(this.disk, this.fd, bytes, start);
        return crc32(bytes) === crc;
      });
    } catch {
      return false;
    }
  }

  rollBack(): void {
    if (this.durableCount >= this.nodes.count) return;
    if (this.mixed) {
      // Cutting off our entries would remove those of the other program too. All stay, durable or not.
      this.markDurable(this.nodes.count, this.size);
      return;
    }
    this.commits.giveUp();
    this.forgetFrom(this.durableCount);
    const isOurs = this.isPendingOurs();
    for (const { lines } of this.pending) this.lineCount -= lines;
    this.pending = [];
    if (this.created) {
      this.unmake(this.created, isOurs);
      return;
    }
    this.size = this.durableSize;
    this.unterminated = this.durableUnterminated;
    try {
      if (!isOurs) throw new Error("somebody else wrote there too");
      this.disk.truncate(this.fd, this.durableSize);
    } catch {
      this.giveUpFrom(this.durableSize);
      return;
    }
    this.noteOwn();
    this.readEdges();
  }

  /** Removes the file of a session whose first entries did not become durable, if it is still as we wrote it. */
  private unmake(held: readonly Uint8Array[], isOurs: boolean): void {
    try {
      if (isOurs) removeIfSame(this.disk, this.file, this.disk.infoOf(this.fd));
    } catch {
      // It may be the file of another program by now.
    }
    this.lock.release();
    closeQuietly(this.disk, this.fd);
    this.fd = -1;
    this.writable = false;
    this.confirmed = false;
    this.seen = undefined;
    this.size = 0;
    for (const [position, line] of held.entries()) this.overrides.set(position, line);
    this.created = null;
    this.looseFolders.clear();
  }

  close(): void {
    if (this.fd >= 0 && this.durableCount === this.nodes.count) this.keepIndex();
    this.lock.release();
    if (this.fd >= 0) closeQuietly(this.disk, this.fd);
    this.fd = -1;
    this.closed = true;
  }

  discard(): void {
    this.closed = true;
    this.lock.release();
    if (this.fd < 0) return;
    try {
      const now = this.disk.infoOf(this.fd);
      if (this.seen && isUnchanged(now, this.seen)) takeBack(this.disk, this.file, now);
    } catch {
      // It may be the file of another program by now.
    }
    closeQuietly(this.disk, this.fd);
    this.fd = -1;
  }
}

function changedByOthers(): Failure {
  return new Failure(
    "storage_failed",
    "Another program changed the session's file meanwhile. Nothing was written; ask again.",
    {},
    { byOthers: true },
  );
}

function openLog(options: JsonlOptions, file: string, thorough = false, written?: WrittenLines): JsonlLog {
  let log = new JsonlLog(options, file, thorough).open(written);
  for (let looks = 0; log.mayHideEntries || (log.isMixed && looks < OPENINGS); looks++) {
    thorough ||= log.mayHideEntries;
    log.close();
    log = new JsonlLog(options, file, thorough).open();
  }
  return log;
}

/** Buffer in which small writes are put together; no write begins within another. */
const scratch = Buffer.allocUnsafeSlow(1 << 16);

/**
 * Returns lines as they lie in a file, each with its line feed; with `sealed`, a line feed comes before them. Valid
 * until the next call.
 */
function fileBytes(lines: readonly Uint8Array[], sealed: boolean): Uint8Array {
  let length = sealed ? 1 : 0;
  for (const line of lines) length += line.length + 1;
  const bytes = length <= scratch.length ? scratch.subarray(0, length) : Buffer.allocUnsafe(length);
  let at = 0;
  if (sealed) bytes[at++] = 0x0a;
  for (const line of lines) {
    bytes.set(line, at);
    at += line.length;
    bytes[at++] = 0x0a;
  }
  return bytes;
}

/**
 * Writes pieces to the end of a file and, with durability `sync`, makes all of it durable. When it settles, even with
 * an error, no sync is running any more.
 */
async function write(disk: Disk, fd: number, pieces: Iterable<Uint8Array>, durability: Durability): Promise<void> {
  const syncs: Promise<void>[] = [];
  let loose = 0;
  try {
    for (const piece of pieces) {
      writeAll(disk, fd, piece);
      loose += piece.length;
      if (loose < SYNCED_EARLY || durability !== "sync") continue;
      syncs.push(disk.sync(fd));
      loose = 0;
    }
    if (durability === "sync") syncs.push(disk.sync(fd));
    // The system reports a failure to one of these syncs and not to those after it.
    await Promise.all(syncs);
  } finally {
    await Promise.allSettled(syncs);
  }
}

/** Gives a new session the attachments of its source: second names of the same files, which never change. */
function shareAttachments(disk: Disk, source: string, target: string): void {
  for (const name of disk.names(source))
    if (/^[0-9a-f]{64}$/.test(name) && isAbsent(disk, join(target, name)))
      keepAs(disk, join(source, name), join(target, name));
}

/** Removes a session that was just published, with its attachments. */
function takeBack(disk: Disk, file: string, published: FileInfo): void {
  removeIfSame(disk, file, published);
  dropAttachments(disk, file);
}

function dropAttachments(disk: Disk, file: string): void {
  const folder = attachmentFolder(file);
  try {
    if (!exists(disk, folder)) return;
    for (const name of disk.names(folder)) removeQuietly(disk, join(folder, name));
    disk.removeFolder(folder);
  } catch {
    // Without the session nothing uses them, and no scanner reads them.
  }
}

export function jsonlStore(options: JsonlOptions): Store {
  return {
    name: "jsonl",
    create: (beginning) => new JsonlLog(options, beginning.file ?? options.fileFor(beginning.header)).begin(beginning),
    async publish(beginning, content) {
      const { disk } = options;
      const file = beginning.file ?? options.fileFor(beginning.header);
      let named: FileInfo | undefined;
      /** The folder that was made for attachments. */
      let made: string | undefined;
      try {
        disk.makeFolder(dirname(file));
        sweepStrays(disk, dirname(file), options.env.now());
        const source = beginning.attachmentsOf === undefined ? undefined : attachmentFolder(beginning.attachmentsOf);
        if (source !== undefined && !isAbsent(disk, source)) {
          const target = attachmentFolder(file);
          made = disk.makeFolder(target).at(-1);
          shareAttachments(disk, source, target);
          if (options.durability === "sync") await disk.syncFolder(target);
        }
        const temporary = temporaryName(file);
        const fd = disk.create(temporary);
        const written = new WrittenLines(beginning.headerLine);
        try {
          writeAll(disk, fd, concat([beginning.headerLine, LF]));
          await write(disk, fd, written.follow(content), options.durability);
          const whole = disk.infoOf(fd);
          written.end(whole);
          takeName(disk, temporary, file);
          named = whole;
        } catch (error) {
          removeQuietly(disk, temporary);
          throw error;
        } finally {
          closeQuietly(disk, fd);
        }
        if (options.durability === "sync") await disk.syncFolder(dirname(file));
        return openLog(options, file, false, written);
      } catch (error) {
        if (named) removeIfSame(disk, file, named);
        if (made !== undefined) dropAttachments(disk, file);
        if (!named && (error as NodeJS.ErrnoException).code === "EEXIST")
          throw new Failure("already_exists", `There is a file at ${file} already. Choose another path.`, {
            sessionPath: file,
          });
        throw storageFailure(error, "writing the new session");
      }
    },
    open: (file, readOnly) => openLog(readOnly ? { ...options, readOnly } : options, file),
  };
}
