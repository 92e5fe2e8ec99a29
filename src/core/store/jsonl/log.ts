/**
 * Sessions as JSONL files, Pi's format versions 1 to 3 (session-format reference). Opening scans line ends and the
 * heads of lines; bodies are read by offset when they are asked for. The file is shared with writers that know no
 * lock, so it is looked at before and after every write.
 */

import { dirname, join } from "node:path";
import type { Damage } from "../../damage.ts";
import { CURRENT_VERSION, type SessionHeader } from "../../entry.ts";
import { Failure } from "../../failure.ts";
import { bytesOf, concat, parse, sameBytes } from "../../json.ts";
import { MISSING } from "../../nodes.ts";
import { backupName, keepAside } from "../aside.ts";
import { Commits } from "../commits.ts";
import {
  closeQuietly,
  type Disk,
  exists,
  type FileInfo,
  isAbsent,
  keepAs,
  publishNew,
  readAll,
  removeQuietly,
  storageFailure,
  takeName,
  temporaryName,
  writeAll,
} from "../disk.ts";
import type { Lock, Locks } from "../lock.ts";
import { LooseFolders } from "../loose-folders.ts";
import { addHead } from "../memory.ts";
import type { Beginning, Change, FileStamp, Holder, Log, Mended, Store } from "../store.ts";
import { sweepStrays } from "../strays.ts";
import { WriterLock } from "../writer-lock.ts";
import {
  attachmentFolder,
  isUnchanged,
  JsonlReader,
  LF,
  notASession,
  type ReaderOptions,
  withMember,
} from "./reader.ts";
import { WrittenLines } from "./written.ts";

export type Durability = "sync" | "os";

export interface JsonlOptions extends ReaderOptions {
  readonly locks: Locks;
  readonly durability: Durability;
  /** Where a new session's file goes. */
  readonly fileFor: (header: SessionHeader) => string;
  /** Where bytes go that are taken out of a session file. */
  readonly quarantine: string;
}

/** Milliseconds for which a torn tail must have been still before it is cut (guarantee 7): its writer is gone then. */
const STILL = 2000;
/**
 * Bytes after which the medium is set to work on them while more are written: a copy of 245 MB lasts after 260 ms so, and
 * after 310 ms with one sync at its end.
 */
const SYNCED_EARLY = 1 << 25;
/** How often a file is looked at that has another time and the same size, a millisecond apart. */
const LOOKS = 20;
/** Nobody ever wakes who waits for it. */
const MOMENT = new Int32Array(new SharedArrayBuffer(4));
/** Damage that a repair takes out of the file. */
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
  /** Set between the creation of the file and its first commit. */
  private created: Uint8Array[] | null = null;
  /** Another program appended after entries of ours that are not durable yet. */
  private mixed = false;

  constructor(options: JsonlOptions, file: string, thorough = false) {
    super(options, file, thorough);
    this.options = options;
    this.lock = new WriterLock(options.locks);
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
      const { code } = error as NodeJS.ErrnoException;
      if (code === "ENOENT" || code === "ENOTDIR")
        throw new Failure("session_not_found", `There is no file at ${this.file}. list_sessions shows the sessions.`, {
          sessionPath: this.file,
        });
      if (code === "ENXIO") throw notASession(this.file, "it is not a regular file");
      throw storageFailure(error, "opening the session");
    }
    try {
      this.readFile(written);
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
    if (this.fd < 0 || this.closed) return { kind: "none" };
    const { seen } = this;
    let now: FileInfo;
    try {
      now = this.disk.info(this.file);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "ENOENT" || code === "ENOTDIR") return { kind: "gone" };
      throw storageFailure(error, "looking at the session file");
    }
    if (now.size === this.size && seen && now.modified !== seen.modified) now = this.lookAgain(now);
    if (seen && (now.device !== seen.device || now.inode !== seen.inode)) return { kind: "replaced" };
    if (now.size === this.size && now.modified === seen?.modified) return { kind: "none" };
    if (now.size <= this.size) return { kind: "replaced" };
    this.seen = now;
    return this.takeGrowth();
  }

  /**
   * A file is given its new time before its new size: whoever looks in the middle of an append sees the one without
   * the other for a moment.
   */
  private lookAgain(now: FileInfo): FileInfo {
    try {
      for (let looks = 0; looks < LOOKS && now.size === this.size; looks++) {
        Atomics.wait(MOMENT, 0, 0, 1);
        now = this.disk.info(this.file);
      }
    } catch {
      // It went away; the next look says so.
    }
    return now;
  }

  /** Takes in what stands after the part we know. A half-written line is withheld until it is whole. */
  private takeGrowth(): Change {
    const first = this.nodes.count;
    const from = this.torn >= 0 && !this.tornIsOurs ? this.torn : this.size;
    if (this.torn >= 0 && !this.tornIsOurs) {
      const index = this.damage.findIndex(({ kind, byteOffset }) => kind === "torn_tail" && byteOffset === this.torn);
      if (index >= 0) this.damage.splice(index, 1);
      this.torn = -1;
    }
    const known = this.damage.length;
    this.unterminated = false;
    this.scan(from);
    if (this.torn >= 0) this.damage.pop();
    for (const position of this.nodes.cutCycles())
      this.report("cycle", position, "parents form a cycle; it is cut here", true);
    if (this.durableCount < first) this.mixed = true;
    else {
      // What another program wrote is its own to make durable; we only say what we know of.
      this.durableCount = this.nodes.count;
      this.durableSize = this.size;
      this.durableUnterminated = this.unterminated;
    }
    if (this.nodes.count === first && this.damage.length === known) return { kind: "none" };
    return { kind: "grown", first };
  }

  // --- writing -------------------------------------------------------------------------------------------------

  append(lines: readonly Uint8Array[], options: { hold?: boolean } = {}): void {
    if (this.closed) throw new Failure("storage_failed", "The session is closed. Open it again.");
    if (this.readOnly) throw this.readOnly;
    if (!this.persisted && options.hold) {
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
    if (this.lock.isHeld || !this.persisted || !this.seen) return false;
    this.lock.take(this.seen);
    return true;
  }

  unlock(): void {
    if (this.lock.isHeld && this.durableCount === this.nodes.count) this.keepIndex();
    this.lock.release();
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
    if (this.rewrite) this.publishAnew();
    if (!this.writable) {
      const fd = this.disk.openAppend(this.file);
      closeQuietly(this.disk, this.fd);
      this.fd = fd;
      this.writable = true;
    }
    const seal = this.treatTail();
    const bytes = fileBytes(lines, seal);
    try {
      writeAll(this.disk, this.fd, bytes);
      this.seen = this.disk.infoOf(this.fd);
    } catch (error) {
      this.cutBack(this.size, bytes);
      throw error;
    }
    const first = this.size + (seal ? 1 : 0);
    if (this.seen.size !== this.size + bytes.length) {
      // Somebody wrote at the same time; where our lines came to stand is for the file to tell.
      this.takeGrowth();
      return;
    }
    let at = first;
    for (const line of lines) {
      this.added(line, at);
      at += line.length + 1;
    }
    this.lineCount += lines.length;
    this.size = at;
    this.unterminated = false;
  }

  /**
   * What a torn write left at the end is kept in our state folder and cut off, if whoever wrote it is gone; else a
   * line feed closes it. Answers whether the next write must begin with one.
   */
  private treatTail(): boolean {
    if (this.torn < 0) return this.unterminated;
    const start = this.torn;
    const still = this.tornIsOurs || this.env.now() - (this.seen?.modified ?? 0) >= STILL;
    if (!still) {
      this.torn = -1;
      return true;
    }
    const bytes = Buffer.allocUnsafe(this.size - start);
    readAll(this.disk, this.fd, bytes, start);
    const keptAt = keepAside(this.disk, this.options.quarantine, `${this.header.id}-${start}`, bytes);
    this.disk.truncate(this.fd, start);
    this.closeWindow();
    this.size = start;
    this.durableSize = Math.min(this.durableSize, start);
    this.durableUnterminated = this.unterminated;
    this.torn = -1;
    const index = this.damage.findIndex(
      ({ kind, byteOffset }) => byteOffset === start && (kind === "torn_tail" || kind === "incomplete_batch"),
    );
    if (index >= 0) this.damage[index] = { ...this.damage[index], keptAt };
    return this.unterminated;
  }

  /** The first append makes the file: header, what waited, and the new lines appear in one step. */
  private createFile(lines: readonly Uint8Array[]): void {
    const held = [...this.overrides.values()];
    const bytes = fileBytes([this.headerLine, ...held, ...lines], false);
    this.disk.makeFolder(dirname(this.file));
    sweepStrays(this.disk, dirname(this.file), this.env.now());
    let seen: FileInfo | undefined;
    let lock: Lock | undefined;
    try {
      this.fd = publishNew(this.disk, this.file, (fd) => {
        writeAll(this.disk, fd, bytes);
        this.syncBeforeNaming(fd);
        seen = this.disk.infoOf(fd);
        lock = this.lock.claim(seen);
      });
    } catch (error) {
      lock?.release();
      throw error;
    }
    this.writable = true;
    this.seen = seen;
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
  }

  /**
   * Publishes the file as version 3 beside the original and swaps the names; the original stays, with its bytes and
   * mode, under a backup name that no scanner takes for a session.
   */
  private publishAnew(backup = backupName(this.disk, this.file, `v${this.version}`)): void {
    const { disk, file } = this;
    const temporary = temporaryName(file);
    const fd = disk.create(temporary);
    const starts: number[] = [];
    let at = 0;
    let seen: FileInfo;
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
      seen = disk.infoOf(fd);
      lock = this.lock.claim(seen);
      keepAs(disk, file, backup);
      kept = true;
      this.checkUnchanged();
      disk.rename(temporary, file);
    } catch (error) {
      lock?.release();
      closeQuietly(disk, fd);
      removeQuietly(disk, temporary);
      if (kept) removeQuietly(disk, backup);
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
    this.header = parse(this.headerLine) as SessionHeader;
    this.looseFolders.add(dirname(file));
    this.lock.adopt(lock);
    this.seen = seen;
  }

  /** What a program that knows no lock wrote in the meantime would be left behind. */
  private checkUnchanged(): void {
    if (!this.seen) return;
    if (isUnchanged(this.disk.info(this.file), this.seen)) return;
    throw new Failure(
      "storage_failed",
      "Another program wrote to the session while it was published anew. Nothing was changed; ask again.",
      {},
      { retryable: true },
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
    // What open worked out in memory becomes what is written.
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
      // What was not written is not what the file says.
      for (const [position, line] of before)
        if (line) this.overrides.set(position, line);
        else this.overrides.delete(position);
      throw storageFailure(error, "publishing the repaired session");
    }
    // The file has none of it any more, whether or not the rest succeeds.
    this.damage.splice(0, this.damage.length, ...this.damage.filter(({ kind }) => !MENDED.has(kind)));
    if (damagedHeader) this.readOnly = null;
    this.makeNamesDurable();
    return backup;
  }

  /** What was published anew lasts only with its folder. */
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

  /** A name must never lead to bytes that a power loss can take away. */
  private syncBeforeNaming(fd: number): void {
    if (this.options.durability === "sync") this.disk.syncNow(fd);
  }

  /**
   * After a failed write of `attempted` the file is cut back to where it ended, if what stands behind that can only
   * be ours (guarantee 7); else the next append closes it with a line feed.
   */
  private cutBack(size: number, attempted: Uint8Array): void {
    try {
      const now = this.disk.infoOf(this.fd).size;
      const length = now - size;
      if (length > 0 && length <= attempted.length) {
        const written = Buffer.allocUnsafe(length);
        readAll(this.disk, this.fd, written, size);
        if (!sameBytes(written, attempted.subarray(0, length))) throw new Error("somebody else wrote there too");
      }
      if (length !== 0) this.disk.truncate(this.fd, size);
      this.seen = this.disk.infoOf(this.fd);
    } catch {
      this.torn = size;
      this.tornIsOurs = false;
      this.seen = undefined;
    }
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

  /** What is durable in a file that lost its name is lost with it. */
  private checkStillThere(): void {
    const { device, inode } = this.disk.info(this.file);
    if (device !== this.seen?.device || inode !== this.seen?.inode)
      throw new Failure("storage_failed", "Another program put another file in the session's place. Ask again.");
  }

  private markDurable(count: number, size: number): void {
    this.durableCount = count;
    this.durableSize = size;
    this.durableUnterminated = false;
    this.created = null;
    this.mixed = false;
  }

  rollBack(): void {
    if (this.durableCount >= this.nodes.count) return;
    if (this.mixed) {
      // Cutting our entries off would take those of the other program along; they stay, durable or not.
      this.markDurable(this.nodes.count, this.size);
      return;
    }
    this.commits.giveUp();
    this.forgetFrom(this.durableCount);
    if (!this.created) {
      const gone = Buffer.allocUnsafe(Math.max(0, this.size - this.durableSize));
      try {
        readAll(this.disk, this.fd, gone, this.durableSize);
      } catch {
        // Then it cannot be compared, and is sealed instead of cut.
      }
      this.size = this.durableSize;
      this.unterminated = this.durableUnterminated;
      this.cutBack(this.durableSize, gone);
      return;
    }
    this.lock.release();
    closeQuietly(this.disk, this.fd);
    this.fd = -1;
    this.writable = false;
    this.seen = undefined;
    removeQuietly(this.disk, this.file);
    for (const [position, line] of this.created.entries()) this.overrides.set(position, line);
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
      if (this.seen && isUnchanged(this.disk.infoOf(this.fd), this.seen)) takeBack(this.disk, this.file);
    } catch {
      // Then nobody knows whose it is by now.
    }
    closeQuietly(this.disk, this.fd);
    this.fd = -1;
  }
}

function openLog(options: JsonlOptions, file: string, thorough = false, written?: WrittenLines): JsonlLog {
  const log = new JsonlLog(options, file, thorough).open(written);
  if (!log.mayHideEntries) return log;
  log.close();
  return new JsonlLog(options, file, true).open();
}

/** What few bytes are put together in; no write begins within another. */
const scratch = Buffer.allocUnsafeSlow(1 << 16);

/**
 * Lines as they stand in a file, each with its line feed; `sealed`, they begin with one. Good until the next call.
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

/** Writes pieces to the end of a file and makes all of it last. When it throws, too, no sync is under way any more. */
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
    // A failure is told to one of them, and not to those after it.
    await Promise.all(syncs);
  } finally {
    await Promise.allSettled(syncs);
  }
}

/** Gives a new session the attachments of the one it comes from: second names of the same files, which never change. */
function shareAttachments(disk: Disk, source: string, target: string): void {
  for (const name of disk.names(source))
    if (/^[0-9a-f]{64}$/.test(name) && isAbsent(disk, join(target, name)))
      keepAs(disk, join(source, name), join(target, name));
}

/** Removes a session that was just published, with the attachments that it got. */
function takeBack(disk: Disk, file: string): void {
  removeQuietly(disk, file);
  dropAttachments(disk, file);
}

function dropAttachments(disk: Disk, file: string): void {
  const folder = attachmentFolder(file);
  try {
    if (!exists(disk, folder)) return;
    for (const name of disk.names(folder)) removeQuietly(disk, join(folder, name));
    disk.removeFolder(folder);
  } catch {
    // Without the session they are nobody's, and no scanner looks at them.
  }
}

export function jsonlStore(options: JsonlOptions): Store {
  return {
    name: "jsonl",
    create: (beginning) => new JsonlLog(options, beginning.file ?? options.fileFor(beginning.header)).begin(beginning),
    async publish(beginning, content) {
      const { disk } = options;
      const file = beginning.file ?? options.fileFor(beginning.header);
      let named = false;
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
          written.end(disk.infoOf(fd));
          takeName(disk, temporary, file);
          named = true;
        } catch (error) {
          removeQuietly(disk, temporary);
          throw error;
        } finally {
          closeQuietly(disk, fd);
        }
        if (options.durability === "sync") await disk.syncFolder(dirname(file));
        return openLog(options, file, false, written);
      } catch (error) {
        if (named) removeQuietly(disk, file);
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
