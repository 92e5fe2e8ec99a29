/**
 * A session of another agent as a read-only log. Its entries are derived from the agent's own file when it is opened,
 * and followed while the agent writes. Pending entries, which the agent may still extend, are shown when the file is
 * opened; if they then come otherwise, everything known of the session is invalid.
 */

import { toStorageFailure } from "../../../core/errno.ts";
import { Failure } from "../../../core/failure.ts";
import type { SessionHeader } from "../../../core/format/entry.ts";
import { addHead, HeadReader } from "../../../core/format/node-reader.ts";
import { areSameBytes, toBytes } from "../../../core/json/json.ts";
import { type LogLock, NO_LOCK } from "../../../core/ports/lock.ts";
import type { Change, FileStamp, ForeignSource, Log } from "../../../core/ports/store.ts";
import { Nodes } from "../../../core/tree/nodes.ts";
import { type FileInfo, getInfoIfPresent } from "../../../storage/fs/disk.ts";
import { getInfo, guardErrno, useFile } from "../../../storage/fs/files.ts";
import { isSameFile, isSameStamp, isYoung, readDiskClock } from "../../../storage/fs/stamps.ts";
import { makeNotASessionFailure } from "../../../storage/log/failures.ts";
import type { Translator } from "../read/translator.ts";
import type { CachedLines, CachedSession, DerivationCache } from "./derivation-cache.ts";
import { Derived, type DerivedOptions, makeForeignHeader } from "./derived.ts";
import { DerivedLines } from "./derived-lines.ts";
import { makePathWithin } from "./gathered.ts";

/** Milliseconds after the agent's last write in which an unfinished answer is expected to go on. */
const GOING_ON = 5000;

interface ForeignOptions extends DerivedOptions {
  /** Folder for derived files. */
  readonly folder: string;
  /** Sessions that were derived before. */
  readonly kept: DerivationCache;
  /** True if it is cached when it is closed. */
  readonly keeps: boolean;
  /** Returns the file of the session with an agent's own id, found from that of another one. */
  readonly parentOf: (file: string, nativeId: string) => string | undefined;
}

/** Returns the failure of a change to a session of another agent's. */
export function readOnlyOf({ agent, title }: Translator): Failure {
  const sentence = `This session is ${title}'s own file, which is only read. fork, clone or import_session makes it yours.`;
  return new Failure("read_only", sentence, { agent });
}

export class ForeignLog implements Log {
  readonly store = "foreign";
  readonly file: string;
  /** Its leaf moves with the agent's. */
  header: SessionHeader;
  headerLine: Uint8Array;
  readonly version = 3;
  readonly nodes = new Nodes();
  readonly readOnly: Failure;
  readonly persisted = true;
  readonly mayHideEntries = false;
  readonly repairable = [];
  readonly lock: LogLock;
  readonly foreign: ForeignSource;
  private readonly options: ForeignOptions;
  private readonly heads = new HeadReader(this.nodes);
  private readonly lines: DerivedLines;
  /** Undefined as long as all knowledge comes from the cache. */
  private derived: Derived | undefined;
  private readonly kept: CachedSession | null;
  private seen: FileInfo;
  /** True if all of the file was read at once, when any later change was sure to give it another stamp. */
  private isSure = false;
  /** The last entries, if they waited when they were shown, and how many of them came as they were shown. */
  private shown: readonly Uint8Array[] = [];
  private confirmed = 0;
  /** True if lines are pending that are not shown, because the agent is in the middle of them. */
  private holdsBack = false;
  /** True if a shown entry has changed. */
  private isReplaced = false;
  private readonly parentSession: string | undefined;
  private isClosed = false;

  constructor(options: ForeignOptions) {
    const { disk, env, file, folder, translator } = options;
    this.options = options;
    this.file = file;
    this.lines = new DerivedLines(disk, folder, () => env.now());
    const { agent, title } = translator;
    this.readOnly = readOnlyOf(translator);
    this.lock = { ...NO_LOCK, acquire: () => this.append() };
    this.foreign = {
      agent,
      title,
      fidelity: () => this.known.fidelity,
      inner: () => (this.known.about.inner ?? []).map((name) => makePathWithin(file, name)),
    };
    try {
      let kept = null as (CachedSession & CachedLines) | null;
      const from = readDiskClock(disk);
      this.seen = this.reading((fd, info) => {
        kept = options.gathered ? null : options.kept.open(file, info, this.nodes);
        if (!kept) this.derived = this.derive(fd);
        this.isSure = !isYoung(info, from);
        return info;
      });
      this.kept = kept;
      if (kept) this.showKept(kept);
      else this.show(true);
      const { about } = this.known;
      const parentId = about.nativeParentId;
      this.parentSession =
        options.gathered?.parent ?? (parentId === undefined ? undefined : options.parentOf(file, parentId));
      const made = makeForeignHeader(options, about, this.parentSession);
      this.header = made.header;
      this.headerLine = made.line;
    } catch (error) {
      this.lines.close();
      throw error;
    }
  }

  get damage() {
    return this.known.damage;
  }

  /** Returns the facts that the entries do not have. */
  private get known(): Omit<CachedSession, "settled"> {
    const { derived } = this;
    if (!derived) return this.kept as CachedSession;
    return { about: derived.about(), fidelity: derived.fidelity(), damage: derived.damage };
  }

  get durableCount(): number {
    return this.nodes.count;
  }

  get stamp(): FileStamp {
    return this.seen;
  }

  length(position: number): number {
    return this.lines.length(position);
  }

  read(position: number): Uint8Array {
    this.requireOpen();
    return this.lines.read(position);
  }

  private requireOpen(): void {
    if (this.isClosed) throw new Failure("storage_failed", "The session is closed. Open it again.");
  }

  *readMany(positions: ArrayLike<number>): Iterable<Uint8Array> {
    for (let i = 0; i < positions.length; i++) yield this.read(positions[i]);
  }

  copy(positions: ArrayLike<number>): Iterable<Uint8Array> {
    this.requireOpen();
    return this.lines.copy(positions);
  }

  attachment(): null {
    return null;
  }

  refresh(): Change {
    if (this.isReplaced) return { kind: "replaced" };
    const { disk, gathered } = this.options;
    const info = guardErrno("looking at the session file", () =>
      gathered ? gathered.info() : getInfoIfPresent(disk, this.file),
    );
    if (info === null) return { kind: "gone" };
    if (isSameStamp(info, this.seen) && !isYoung(this.seen, readDiskClock(disk)) && !this.holdsBack)
      return { kind: "none" };
    const first = this.nodes.count;
    const isThere = this.reading((fd, now) => {
      if (!this.derived?.isFollowed) return this.readAnew(fd, now);
      if (!isSameFile(now, this.seen) || !this.derived.isContinuedBy(fd, now)) return false;
      this.derived.read(fd);
      if (this.derived.isOvertaken) return false;
      this.seen = now;
      // Only the edges of the earlier part were looked at again.
      this.isSure = false;
      return this.show();
    });
    if (!isThere) this.isReplaced = true;
    if (this.isReplaced) return { kind: "replaced" };
    const made = makeForeignHeader(this.options, this.known.about, this.parentSession);
    // The session stays the one that was opened, even if its records say otherwise later.
    this.header = { ...made.header, id: this.header.id };
    this.headerLine = toBytes(JSON.stringify(this.header));
    return this.nodes.count > first ? { kind: "grown", first } : { kind: "none" };
  }

  reopen(): Log {
    return new ForeignLog(this.options);
  }

  get isCommitDue() {
    return false;
  }

  get isPlain() {
    return false;
  }

  get replica() {
    return null;
  }

  get container() {
    return null;
  }

  outcome(): "certain" {
    return "certain";
  }

  takeFirstUncertain(): undefined {}

  settle(): void {}

  discard(): void {
    this.close();
  }

  append(): never {
    throw this.readOnly;
  }

  async commit(): Promise<void> {}

  rollBack(): void {}

  repair(): null {
    return null;
  }

  close(): void {
    if (!this.isClosed) this.keep();
    this.isClosed = true;
    this.lines.close();
  }

  /** Caches the derived entries for the next opening, if the file is sure to be as it was read. */
  private keep(): void {
    const { derived, seen, lines, nodes, options, isSure } = this;
    const { disk, gathered, kept, keeps } = options;
    if (!keeps || !derived || derived.hasOthers || gathered || this.isReplaced || this.holdsBack) return;
    const now = getInfo(disk, this.file);
    if (!isSure || !now || !isSameStamp(now, seen)) return;
    const settled = lines.count - (this.shown.length - this.confirmed);
    const known = { ...this.known, settled };
    kept.keep(
      this.file,
      seen,
      { count: lines.count, size: lines.size, starts: lines.places, copy: (at) => lines.copy(at) },
      nodes,
      known,
    );
  }

  private showKept(kept: CachedSession & CachedLines): void {
    const { count } = this.nodes;
    this.lines.adopt(kept, count);
    this.shown = Array.from({ length: count - kept.settled }, (_, n) => this.lines.read(kept.settled + n));
  }

  /** Reads all of the file. */
  private derive(fd: number): Derived {
    const derived = new Derived(this.options, { line: (line) => this.keepSettled(line) });
    derived.read(fd);
    return derived;
  }

  /** Takes a settled line: a new entry, or one that was shown while it was pending. */
  private keepSettled(line: Uint8Array): void {
    if (this.confirmed === this.shown.length) this.add(line);
    else if (areSameBytes(line, this.shown[this.confirmed])) this.confirmed++;
    else this.isReplaced = true;
  }

  /** Shows the pending entries. Returns false when they differ from those shown before. */
  private show(isOpening = false): boolean {
    if (this.isReplaced) return false;
    const { lines, isPartial } = (this.derived as Derived).waiting();
    const before = this.shown.slice(this.confirmed);
    const age = readDiskClock(this.options.disk) - this.seen.modified;
    this.holdsBack = isPartial && !isOpening && before.length === 0 && age < GOING_ON;
    if (this.holdsBack) {
      this.shown = [];
      this.confirmed = 0;
      return true;
    }
    if (before.some((line, at) => lines[at] === undefined || !areSameBytes(line, lines[at]))) return false;
    for (const line of lines.slice(before.length)) this.add(line);
    this.shown = lines;
    this.confirmed = 0;
    return true;
  }

  /**
   * Reads a document that was written anew, or the cached entries before it grew. Returns false unless it has all known
   * entries, and then others.
   */
  private readAnew(fd: number, now: FileInfo): boolean {
    if (isSameStamp(now, this.seen)) return true;
    const from = readDiskClock(this.options.disk);
    let at = 0;
    let isSame = true;
    const come: Uint8Array[] = [];
    const compare = (line: Uint8Array): void => {
      if (at >= this.nodes.count) come.push(line);
      else if (isSame) isSame = areSameBytes(line, this.lines.read(at));
      at++;
    };
    let take = compare;
    const derived = new Derived(this.options, { line: (line) => take(line) });
    derived.read(fd);
    const { isFollowed } = derived;
    if (!isFollowed) for (const line of derived.waiting().lines) compare(line);
    const { count } = this.nodes;
    if (!isSame || (!isFollowed && at < count)) return false;
    const rest = Array.from({ length: Math.max(0, count - at) }, (_, n) => this.lines.read(at + n));
    for (const line of come) this.add(line);
    this.derived = derived;
    this.seen = now;
    this.isSure = !isYoung(now, from);
    if (!isFollowed) return true;
    // From here on, only the new part is read.
    take = (line) => this.keepSettled(line);
    this.shown = rest;
    this.confirmed = 0;
    return this.show();
  }

  private add(line: Uint8Array): void {
    addHead(this.heads, this.nodes, line);
    this.lines.add(line);
  }

  /** Runs `use` with the open file, and its last stamp; gathered sessions have no descriptor. */
  private reading<T>(use: (fd: number, info: FileInfo) => T): T {
    const { disk, gathered } = this.options;
    try {
      if (gathered) {
        const info = gathered.info();
        if (!info) throw makeNotASessionFailure(this.file, "it is gone");
        return use(-1, info);
      }
      return useFile(disk, disk.openRead(this.file), (fd) => {
        const info = disk.infoOf(fd);
        if (info.kind !== "file") throw makeNotASessionFailure(this.file, "it is not a regular file");
        return use(fd, info);
      });
    } catch (error) {
      throw toStorageFailure(error, "reading the session");
    }
  }
}
