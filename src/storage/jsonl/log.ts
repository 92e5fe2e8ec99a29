/**
 * The backend of sessions as JSONL files, Pi's format versions 1 to 3 (session-format reference). Opening scans line
 * ends and the heads of lines; bodies are read by offset when they are asked for. Programs that know no lock may write
 * to the same file, so it is checked before and after every write.
 */

import { dirname } from "node:path";
import { toStorageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import type { Damage } from "../../core/format/damage.ts";
import { CURRENT_VERSION, type SessionHeader, toReadableHeader } from "../../core/format/entry.ts";
import { parse } from "../../core/json/json.ts";
import type { Beginning, Change, FileStamp, Repairs } from "../../core/ports/store.ts";
import { type Head, unpackId } from "../../core/tree/nodes.ts";
import { closeQuietly, type Disk, exists, type FileInfo, removeIfSame, writeAll } from "../fs/disk.ts";
import { guardErrno, isNameTaken } from "../fs/files.ts";
import { nameBackup } from "../fs/quarantine.ts";
import { isSameFile, isSameStamp, isUnchanged } from "../fs/stamps.ts";
import { locateLock } from "../locks/lock-paths.ts";
import { dropAttachments } from "../log/attachments.ts";
import type { EntryReader } from "../log/entry-reader.ts";
import { makeChangedFailure, makeNotASessionFailure, makeOtherProgramFailure } from "../log/failures.ts";
import { type Backend, FileLog } from "../log/file-log.ts";
import { KnownEntries, type KnownHeads } from "../log/known-entries.ts";
import { type FileLogOptions, WriteState } from "../log/write-state.ts";
import { createFile, encodeFile, type Published, requireNewId, setRepairedLines, swapFile } from "./create-and-swap.ts";
import { FileIndex, type WrittenLines } from "./file-index.ts";
import { FileTail } from "./file-tail.ts";
import type { FileHeader } from "./header.ts";
import { OtherWriters } from "./other-writers.ts";
import { LineRecords } from "./records.ts";
import { LineScanner, type ScannedParts } from "./scan.ts";
import { FileEnd, SessionFile } from "./session-file.ts";

export interface JsonlOptions extends FileLogOptions {
  /** Returns the path of a new session's file. */
  readonly fileFor: (header: SessionHeader) => string;
  /** Bytes of a new file after which a sync begins during the write. */
  readonly syncedEarly?: number;
}

/** Most repetitions of an opening during which another program changed the file. */
const OPENINGS = 5;
const REPAIRABLE: ReadonlySet<Damage["kind"]> = new Set([
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

export class JsonlBackend implements Backend {
  readonly store = "jsonl";
  readonly repairable = REPAIRABLE;
  readonly path: string;
  readonly state: WriteState;
  readonly entries = new KnownEntries();
  readonly records: LineRecords;
  readonly reader: EntryReader;
  /** True if opening read one consistent state of the file. */
  isConsistent = true;
  private isGivenId = false;
  private readonly disk: Disk;
  private readonly options: JsonlOptions;
  private readonly file: SessionFile;
  private readonly end = new FileEnd();
  private readonly scanner: LineScanner;
  private readonly others: OtherWriters;
  private readonly index: FileIndex;
  private readonly tail: FileTail;

  constructor(options: JsonlOptions, path: string, thorough = false) {
    const { disk, env } = options;
    const { entries, end } = this;
    this.options = options;
    this.disk = disk;
    this.path = path;
    this.state = new WriteState(options, ({ inode }) => locateLock(disk, path, inode));
    this.file = new SessionFile(disk, path);
    this.records = new LineRecords(env, this.file, entries, end);
    this.reader = this.records.reader;
    const parts = { file: this.file, entries, records: this.records, end };
    this.scanner = new LineScanner(parts, env, thorough);
    this.others = new OtherWriters(env, parts, this.scanner, this.state);
    this.index = new FileIndex(parts, this.scanner, options.snapshots);
    this.tail = new FileTail(parts, this.others, options);
  }

  /** The header as it was read; there is one from `begin` or `open` on. */
  get stored(): FileHeader {
    return this.scanner.stored as FileHeader;
  }

  get persisted(): boolean {
    return this.file.isOpen;
  }

  get lockedFile(): FileInfo | undefined {
    return this.file.seen;
  }

  lockTarget(): FileInfo {
    return this.file.info();
  }

  get stamp(): FileStamp | null {
    if (!this.persisted) return null;
    const { device, inode, size, modified } = guardErrno("looking at the session file", () => this.file.info());
    return { device, inode, size, modified };
  }

  get mayHideEntries(): boolean {
    const isSeen = this.reader.isAmbiguous || this.entries.damage.some(({ kind }) => kind === "bad_body");
    return isSeen && !this.scanner.thorough;
  }

  /** True if every node follows from its line alone. */
  private get isLiteral(): boolean {
    const { damage, overrides, nodes } = this.entries;
    return damage.length === 0 && overrides.size === 0 && !this.reader.isAmbiguous && nodes.aliases === 0;
  }

  get isPlain(): boolean {
    const { seen } = this.file;
    if (!this.isLiteral || !this.persisted || !seen) return false;
    try {
      return isSameStamp(this.file.info(), seen);
    } catch {
      return false;
    }
  }

  // --- opening and closing -------------------------------------------------------------------------------------

  begin({ header, headerLine, isGivenId = false }: Beginning): void {
    this.isGivenId = isGivenId;
    this.scanner.stored = { header, headerLine, version: CURRENT_VERSION };
  }

  /** Opens the file. `written`: its index, if it was just written. */
  open(written?: WrittenLines): void {
    const { file, state } = this;
    file.open();
    try {
      // Nothing was read of a file that is as it was written.
      this.isConsistent = this.readFile(written) || this.records.isConsistent();
    } catch (error) {
      this.close();
      throw toStorageFailure(error, "reading the session");
    }
    state.durableCount = this.entries.nodes.count;
    this.end.noteDurable();
    if (!written) state.unsynced.addFound(dirname(this.path));
  }

  /** Returns whether all of the file is known from writing it. */
  private readFile(written?: WrittenLines): boolean {
    const { file, scanner, end, others, index } = this;
    const info = file.info();
    file.seen = info;
    if (info.kind !== "file") throw makeNotASessionFailure(this.path, "it is not a regular file");
    const from = scanner.thorough ? 0 : index.recall(info, written);
    scanner.scan(from);
    if (!scanner.stored && end.size === 0) throw makeNotASessionFailure(this.path, "it is empty", { format: "empty" });
    if (!scanner.stored) throw makeNotASessionFailure(this.path, "it has no header line");
    if (scanner.stored.readOnly) this.state.readOnly = scanner.stored.readOnly;
    bridgeGaps(this, scanner);
    // After the gaps: if a parent comes later in the file, a bridge may close a cycle, too.
    others.cutCycles();
    others.dropIncompleteBatch();
    // A file that has not grown since its snapshot was saved was checked before that.
    if (index.covered < end.size) checkTail(this);
    file.readEdges(end.known);
    return written !== undefined && from === end.size && index.covered === 0;
  }

  reopen(): FileLog {
    return openLog(this.options, this.path, this.scanner.thorough || this.mayHideEntries);
  }

  /** Saves the index of the file for the next opening, if it follows from the lines alone. */
  unlocking(isLast = false): void {
    const { end, state } = this;
    if (!this.persisted || state.durableCount !== this.entries.nodes.count || state.readOnly) return;
    if (this.isLiteral && !this.stored.isOutdated && !end.isUnterminated && end.torn < 0) this.index.keep(isLast);
  }

  close(): void {
    if (this.scanner.stored) this.unlocking(true);
    this.file.close();
  }

  discard(): void {
    const { file } = this;
    try {
      const now = file.info();
      if (file.seen && isUnchanged(now, file.seen)) {
        removeIfSame(this.disk, this.path, now);
        dropAttachments(this.disk, this.path);
      }
    } catch {
      // It may be the file of another program by now.
    }
    file.close();
  }

  // --- other writers -------------------------------------------------------------------------------------------

  refresh(): Change {
    return this.others.checkFile(false);
  }

  distrust(): void {
    this.file.seen = undefined;
  }

  confirm(): void {
    const isOutdated = this.stored.isOutdated === true;
    this.requireKnown(!isOutdated && this.end.torn < 0);
    if (isOutdated) this.republish(nameBackup(this.disk, this.path, `v${this.stored.version}`));
  }

  /** Makes sure, before a write, that the known content is that of the file. Throws storage_failed. */
  private requireKnown(appending = false): void {
    const { file, state } = this;
    const { seen } = file;
    if (state.isConfirmed && seen && isSameStamp(file.info(), seen)) return;
    const { kind } = this.others.checkFile(appending);
    if (kind !== "replaced" && kind !== "gone") return;
    state.isConfirmed = false;
    throw makeChangedFailure("file");
  }

  // --- writing -------------------------------------------------------------------------------------------------

  requireFreeName(): void {
    if (exists(this.disk, this.path)) throw this.nameTaken();
    if (this.isGivenId) requireNewId(this.disk, this.path, this.stored.header);
  }

  private nameTaken(): Failure {
    return new Failure(
      "already_exists",
      `Another program made a file at ${this.path} before this session had its first entry. switch_session opens that one, new_session begins another.`,
      { sessionPath: this.path },
    );
  }

  addUnwritten(lines: readonly Uint8Array[], heads?: KnownHeads): void {
    for (const [i, line] of lines.entries()) this.entries.overrides.set(this.add(line, heads?.[i], -1), line);
  }

  private add(line: Uint8Array, head: Head | undefined, start: number): number {
    const position = this.entries.add(line, head);
    this.records.addNode(position, start, line.length, 1);
    return position;
  }

  /** Records that the lines of unwritten entries lie from an offset on. Returns the offset after them. */
  private placeHeld(from: number, to: number, start: number): number {
    const { entries, records, reader } = this;
    let at = start;
    for (let position = from; position < to; position++) {
      records.starts.set(position, at);
      at += reader.length(position) + 1;
      entries.overrides.delete(position);
    }
    return at;
  }

  dropUnwritten(from: number): void {
    this.others.forgetFrom(from);
  }

  append(lines: readonly Uint8Array[], heads?: KnownHeads): void {
    let at = this.writeLines(lines);
    if (at === null) return this.others.findOwn(lines);
    for (let i = 0; i < lines.length; i++) {
      this.add(lines[i], heads?.[i], at);
      at += lines[i].length + 1;
    }
  }

  writeUnwritten(from: number, to: number): void {
    const { file, entries, end } = this;
    const { first, lines } = entries.unwrittenLines(from, to);
    if (lines.length > 0) {
      if (!file.seen || !isSameStamp(this.disk.info(this.path), file.seen)) throw makeChangedFailure("file");
      const start = this.writeLines(lines);
      if (start === null) throw makeChangedFailure("file");
      this.placeHeld(first, to, start);
    }
    this.markDurable(to, end.size);
  }

  /** Writes lines at the end. Returns the offset of the first; null if another program wrote at the same time. */
  private writeLines(lines: readonly Uint8Array[]): number | null {
    const { file, end } = this;
    file.openToWrite();
    const sealed = this.tail.seal(this.stored.header.id);
    const bytes = encodeFile(lines, sealed);
    const start = end.size;
    let now: FileInfo;
    try {
      writeAll(this.disk, file.fd, bytes);
      now = file.info();
    } catch (error) {
      this.tail.cutBack(start, bytes);
      throw error;
    }
    if (now.size !== start + bytes.length) return null;
    const written = lines.length + (sealed ? 1 : 0);
    end.setWhole(start + bytes.length, end.lines + written);
    file.wrote(now, end.size, bytes);
    if (this.state.isSynced) this.tail.notePending(start, bytes, written);
    return start + (sealed ? 1 : 0);
  }

  create(count: number): void {
    const { end, state } = this;
    const held = this.entries.unwrittenLines(0, count).lines;
    const { header, headerLine } = this.stored;
    const bytes = encodeFile([headerLine, ...held], false);
    let published: Published;
    try {
      published = createFile(this.options, state, this.path, bytes, this.isGivenId ? header : undefined);
    } catch (error) {
      throw isNameTaken(error) ? this.nameTaken() : error;
    }
    const { durableCount } = state;
    state.created = held.slice(0, durableCount);
    end.setWhole(this.placeHeld(0, count, headerLine.length + 1), count + 1);
    this.tail.forgetPending();
    if (state.isSynced) this.tail.notePending(0, bytes, count - durableCount);
    this.adopt(published);
  }

  /** Publishes the file as version 3. The original stays next to it, under a name that no scanner takes for a session. */
  private republish(backup: string): void {
    const { disk, entries, records, end, file, reader } = this;
    const { headerLine } = this.stored;
    const positions = Int32Array.from({ length: entries.nodes.count }, (_, position) => position);
    let published: Published;
    try {
      published = swapFile(disk, this.state, file, headerLine, reader.copy(positions), backup);
    } catch (error) {
      if (file.noteNames()) reader.doubt();
      throw error;
    }
    let size = headerLine.length + 1;
    for (const position of positions) {
      records.addNode(position, size, reader.length(position), entries.checked.values[position]);
      size += reader.length(position) + 1;
    }
    end.setWhole(size, positions.length + 1);
    end.setTorn(-1);
    end.noteDurable();
    this.scanner.stored = {
      header: toReadableHeader(parse(headerLine) as object),
      headerLine,
      version: CURRENT_VERSION,
    };
    this.tail.forgetPending();
    entries.overrides.clear();
    this.adopt(published);
  }

  /** Continues with a published file of ours, whose lines are all known. */
  private adopt({ fd, lock }: Published): void {
    const { file, state } = this;
    this.reader.closeWindow();
    file.adopt(fd);
    state.lock.adopt(lock);
    state.isConfirmed = true;
    file.noteOwn(this.end.size);
    this.file.readEdges(this.end.known);
  }

  // --- becoming durable ----------------------------------------------------------------------------------------

  async makeDurable(requireCurrent: () => void): Promise<void> {
    const { disk, file } = this;
    const { count } = this.entries.nodes;
    const { size } = this.end;
    await disk.sync(file.fd);
    await this.state.unsynced.sync();
    // Durable bytes in a file without its name are lost.
    if (!isSameFile(disk.info(this.path), file.seen ?? file.info()))
      throw makeOtherProgramFailure("replaced the session's file");
    requireCurrent();
    this.markDurable(count, size);
  }

  markAllDurable(): void {
    this.state.unsynced.clear();
    this.markDurable(this.entries.nodes.count, this.end.size);
  }

  settle(): void {
    const { isSynced, unsynced } = this.state;
    if (!isSynced) return;
    // Windows syncs only files that are open for writing.
    this.file.openToWrite();
    this.disk.syncNow(this.file.fd);
    unsynced.syncNow();
  }

  private markDurable(count: number, size: number): void {
    const { end, state } = this;
    state.durableCount = count;
    state.created = null;
    end.durable = { size, isUnterminated: false };
    end.isMixed = false;
    this.tail.forgetPending(size);
  }

  keepAll(): boolean {
    if (!this.end.isMixed && !this.tail.isFollowed) return false;
    // Cutting off our entries would remove those of the other program too. All stay, durable or not.
    this.markDurable(this.entries.nodes.count, this.end.size);
    return true;
  }

  rollBack(): boolean {
    const { end, state, file } = this;
    this.others.forgetFrom(state.durableCount);
    const isOurs = this.tail.abandonPending();
    if (state.created) {
      return this.unmake(state.created, isOurs);
    }
    Object.assign(end, end.durable);
    try {
      if (!isOurs) throw new Error("another program wrote there too");
      this.disk.truncate(file.fd, end.size);
    } catch {
      this.tail.abandonFrom(end.size);
      return file.isDeleted;
    }
    file.noteOwn(end.size);
    this.file.readEdges(this.end.known);
    return true;
  }

  /** Removes the file of a session whose first entries did not become durable, if it is still as we wrote it. */
  private unmake(held: readonly Uint8Array[], isOurs: boolean): boolean {
    const { file, state } = this;
    let isGone = false;
    try {
      isGone = isOurs && removeIfSame(this.disk, this.path, file.info());
    } catch {
      // It may be the file of another program by now.
    }
    isGone ||= file.isDeleted;
    state.lock.release();
    file.close();
    this.distrust();
    state.isConfirmed = false;
    this.end.size = 0;
    for (const [position, line] of held.entries()) this.entries.overrides.set(position, line);
    state.created = null;
    state.unsynced.clear();
    return isGone;
  }

  // --- repairing -----------------------------------------------------------------------------------------------

  private get hasDamagedHeader(): boolean {
    return this.entries.damage.some(({ kind }) => kind === "bad_header");
  }

  requireRepairable(): void {
    const { readOnly } = this.state;
    if (readOnly && (!this.hasDamagedHeader || this.options.readOnly)) throw readOnly;
  }

  confirmToRepair(): void {
    guardErrno("reading the session", () => this.requireKnown());
  }

  replaceFrom(count: number, lines: readonly Uint8Array[], headerLine = this.stored.headerLine): string {
    const { disk, file, path, state, reader } = this;
    this.requireKnown();
    const backup = nameBackup(disk, path, "damaged");
    const kept = reader.copy(Int32Array.from({ length: count }, (_, position) => position));
    const content = [...kept, encodeFile(lines, false)];
    const published = swapFile(disk, state, file, headerLine, content, backup);
    closeQuietly(disk, published.fd);
    published.lock.release();
    return backup;
  }

  rebuild(repairs: Repairs): string {
    const hadDamagedHeader = this.hasDamagedHeader;
    const revert = setRepairedLines(this.entries, this.reader, repairs);
    const backup = nameBackup(this.disk, this.path, "damaged");
    try {
      this.republish(backup);
    } catch (error) {
      revert();
      throw toStorageFailure(error, "publishing the repaired session");
    }
    if (hadDamagedHeader) this.state.readOnly = null;
    return backup;
  }
}

/** Opens the log of a file, again if another program changed it meanwhile or if damaged lines may hide entries. */
export function openLog(options: JsonlOptions, path: string, thorough = false, written?: WrittenLines): FileLog {
  const open = (known?: WrittenLines): JsonlBackend => {
    const backend = new JsonlBackend(options, path, thorough);
    backend.open(known);
    return backend;
  };
  let backend = open(written);
  for (let checks = 0; backend.mayHideEntries || (!backend.isConsistent && checks < OPENINGS); checks++) {
    thorough ||= backend.mayHideEntries;
    backend.close();
    backend = open();
  }
  return new FileLog(backend);
}

// --- gaps that damaged lines leave ----------------------------------------------------------------------------------

/** Length of the longest line whose body is checked at opening, in bytes. */
const CHECKED_LINE = 1 << 20;
/** Lines at the end of a file whose bodies are checked at opening (reliability cases, guarantee 6). */
const CHECKED_TAIL = 64;

type Checked = Pick<ScannedParts, "entries" | "records">;

/**
 * Gives a parent to entries whose own is not in the file: the nearest known entry above the lost parent, if the
 * parent's head was legible; or the entry before, if a line that could not be read lies between two stretches of one
 * chain. Anywhere else the path ends, because a guess could splice an abandoned branch into what the model sees
 * (guarantee 7). The entries around each gap are checked first: they may contain the lost parent.
 */
function bridgeGaps({ entries, records }: Checked, { lostParents, stored }: LineScanner): void {
  const { nodes, damage } = entries;
  const { starts, reader } = records;
  const lacking = [...nodes.lackingParent(stored?.header.id ?? "")];
  for (const [position] of lacking)
    checkEntries({ entries, records }, position - 1, Math.min(position + 2, nodes.count));
  const lost = damage.filter(({ kind }) => kind === "bad_line").map(({ byteOffset }) => byteOffset);
  for (const [position, parentId] of lacking) {
    const above = position - 1;
    const gap = lost.some((offset) => above >= 0 && offset > starts.values[above] && offset < starts.values[position]);
    const chained = above === 0 || (above > 0 && nodes.parent(above) === above - 1);
    const continued = position + 1 >= nodes.count || nodes.parent(position + 1) === position;
    const grandparent = knownAbove(parentId);
    const report = (reason: string): void =>
      reader.report("missing_parent", position, `the parent ${parentId} ${reason}`, true);
    if (grandparent >= 0 && grandparent < position) {
      report("was lost; its own parent takes its place");
      nodes.bridge(position, grandparent);
    } else if (gap && chained && continued) {
      report("was lost; the entry before takes its place");
      nodes.bridge(position, above);
    } else reader.reportOrphan(position, parentId, `the parent ${parentId} is not in the file; the path ends here`);
  }

  /** Returns the nearest known entry above one whose head alone was legible, or -1. */
  function knownAbove(id: string): number {
    for (const seen = new Set([id]); ; seen.add(id)) {
      const packed = lostParents.get(id) ?? -1;
      if (packed < 0) return -1;
      id = unpackId(packed);
      const position = nodes.position(id);
      if (position >= 0 || seen.has(id)) return position;
    }
  }
}

/** Checks the last entries of a file, where a crash leaves its damage. */
function checkTail(parts: Checked): void {
  const { count } = parts.entries.nodes;
  checkEntries(parts, count - CHECKED_TAIL, count);
}

function checkEntries({ records: { reader, lengths } }: Checked, from: number, past: number): void {
  const checked: number[] = [];
  for (let p = Math.max(0, from); p < past; p++) if (lengths.values[p] <= CHECKED_LINE) checked.push(p);
  // Reading finds the damage.
  for (const _ of reader.readMany(checked, true));
}
