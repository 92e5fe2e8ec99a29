/**
 * The log of a session in a container. An append writes its frames; a commit fsyncs them, then writes and fsyncs their index
 * rows (seed 003, "Failure semantics"). Periodic checkpoints bound the work of the next opening.
 */

import { dirname } from "node:path";
import { isMissing, toStorageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import type { Damage } from "../../core/format/damage.ts";
import { replaceMember } from "../../core/format/entry.ts";
import { toBytes, trimLine } from "../../core/json/json.ts";
import { makeTimestamp } from "../../core/ports/env.ts";
import type { Beginning, Change, FileStamp, Repairs } from "../../core/ports/store.ts";
import { MISSING } from "../../core/tree/nodes.ts";
import { getContainerFolders, getPointerFile, headerFile, segmentFile } from "../fs/container-paths.ts";
import { type FileInfo, getInfoIfPresent, isAbsent, removeQuietly } from "../fs/disk.ts";
import { guardErrno } from "../fs/files.ts";
import { nameNextBackup } from "../fs/quarantine.ts";
import { removeTree } from "../fs/staging.ts";
import { isSameStamp } from "../fs/stamps.ts";
import { dropLock } from "../locks/lock-paths.ts";
import type { EntryReader } from "../log/entry-reader.ts";
import { makeNoSessionFailure } from "../log/failures.ts";
import { type Backend, FileLog } from "../log/file-log.ts";
import type { KnownEntries, KnownHeads } from "../log/known-entries.ts";
import type { WriteState } from "../log/write-state.ts";
import { encodeNextFrame, type NextFrame } from "./builder.ts";
import { ContainerCommits, type Writers } from "./commits.ts";
import { Container, type SegmentedOptions } from "./container.ts";
import { createContainer, findMissingParts, REPAIRABLE, rebuild, recordRepair, requireFree } from "./create.ts";
import { findDocumentFaults } from "./document-faults.ts";
import { findNewerPart } from "./newer.ts";
import { isActive, makeParts } from "./pointer.ts";
import { ContainerReader } from "./reader.ts";
import { FrameRecords } from "./records.ts";
import { Snapshots } from "./snapshots.ts";
import type { StateMachine } from "./states.ts";

export class V2Backend implements Backend {
  readonly store = "v2";
  readonly repairable = REPAIRABLE;
  readonly path: string;
  readonly state: WriteState;
  readonly entries: KnownEntries;
  readonly reader: EntryReader;
  readonly stored: Container;
  readonly states: StateMachine;

  private readonly writers: Writers;
  private readonly container: Container;
  private readonly snapshots: Snapshots;
  private readonly opener: ContainerReader;
  private readonly commits: ContainerCommits;
  /** True if the container has every part that writing needs. */
  private hasParts = false;

  constructor(options: SegmentedOptions, writers: Writers, path: string, folder = path) {
    const container = new Container(options, path, folder, (records) => new FrameRecords(records));
    this.writers = writers;
    this.path = path;
    this.container = container;
    this.stored = container;
    this.state = container.state;
    this.entries = container.entries;
    this.reader = container.reader;
    this.snapshots = new Snapshots(container, options.snapshots);
    this.opener = new ContainerReader(container, this.snapshots);
    this.commits = new ContainerCommits(container, this.snapshots, writers);
    this.states = this.commits.states;
  }

  get persisted(): boolean {
    return this.container.key !== undefined;
  }

  get lockedFile(): FileInfo | undefined {
    return this.container.key;
  }

  /** Stamp of the session's files; its size is that of all frames, because frames contain the entries. */
  get stamp(): FileStamp | null {
    const { disk, folder, key, end } = this.container;
    if (!key) return null;
    try {
      const last = Math.max(1, end.tail.segmentSeq);
      const { modified } = getInfoIfPresent(disk, segmentFile(folder, last)) ?? key;
      return { device: key.device, inode: key.inode, size: end.tail.bytesTotal, modified };
    } catch (error) {
      throw toStorageFailure(error, "looking at the session");
    }
  }

  // --- opening -------------------------------------------------------------------------------------------------

  begin({ header, headerLine }: Beginning): void {
    this.container.header = header;
    this.container.headerLine = headerLine;
  }

  /** Opens the container. `held`: this process has its lock already. Throws session_not_found, and as reading does. */
  open(held = false): void {
    const { container, state } = this;
    try {
      this.opener.open((key) => !held && state.lock.findHolder(key) !== null);
      const newer = findNewerPart(container);
      if (newer !== null) container.leaveToNewer(newer);
      state.isConfirmed = held;
    } catch (error) {
      this.close();
      if (isMissing(error)) throw makeNoSessionFailure(this.path);
      throw toStorageFailure(error, "reading the session");
    }
    if (state.readOnly && state.readOnly.name !== "read_only") this.states.restartFailed();
    container.markDurable(this.entries.nodes.count);
    const { file, folder } = container;
    state.unsynced.addFound(...getContainerFolders(folder), dirname(file));
    container.onRefused = () => {
      // A running commit still finishes earlier appends.
      if (!state.isCommitting) this.states.fail("entries are damaged or lost");
    };
  }

  /** True if the container must be opened again, because other processes may have written to it meanwhile. */
  get wasDisturbed(): boolean {
    const { key, state } = this.container;
    return !state.isConfirmed && key !== undefined && this.opener.isDoubtful(state.lock.findHolder(key) !== null);
  }

  reopen(): FileLog {
    return openLog(this.container.options, this.writers, this.path, this.path, this.state.lock.isHeld);
  }

  /**
   * Adds the entries of other processes. Without the lock, entries found after the index are a guess, because their writer
   * may be at work; the first refresh with the lock reads them again.
   */
  refresh(): Change {
    const { container, opener, state } = this;
    const { key } = container;
    const { nodes } = this.entries;
    const { count } = nodes;
    const isOpen = !this.reader.isClosed && key !== undefined;
    const judging = state.lock.isHeld && !state.isConfirmed && isOpen;
    let change: Change;
    try {
      // Rows that this log is making durable need not be read back.
      if (this.commits.index.isWriting && state.isConfirmed)
        return { kind: this.commits.index.isOurs ? "none" : "replaced" };
      if (judging) change = opener.replayAgain();
      else change = isOpen ? opener.refresh() : { kind: "none" };
      if (change.kind === "replaced" && isAbsent(container.disk, headerFile(container.folder)))
        change = { kind: "gone" };
    } catch (error) {
      throw toStorageFailure(error, "looking at the session");
    }
    state.isConfirmed ||= judging && (change.kind === "none" || change.kind === "grown");
    if (change.kind === "grown" && state.durableCount === count) container.markDurable(nodes.count);
    return change;
  }

  distrust(): void {
    this.container.end.seen = undefined;
  }

  // --- writing -------------------------------------------------------------------------------------------------

  requireFreeName(): void {
    requireFree(this.container.disk, this.path);
  }

  addUnwritten(lines: readonly Uint8Array[], heads?: KnownHeads): void {
    const { entries } = this;
    const first = entries.nodes.count;
    this.addNodes(lines, heads);
    for (const [i, line] of lines.entries()) entries.overrides.set(first + i, line);
  }

  dropUnwritten(from: number): void {
    this.entries.forgetFrom(from);
  }

  /**
   * Throws session_not_found unless the container is still the session: it may have been rolled back or deleted. Throws
   * unsupported_version when a newer program has written to it.
   */
  locked(): void {
    if (!isActive(this.container.disk, this.path))
      throw new Failure(
        "session_not_found",
        `${this.path} is no longer the session: it was rolled back or deleted. list_sessions shows where it is now.`,
        { sessionPath: this.path },
      );
    const newer = findNewerPart(this.container);
    if (newer !== null) throw this.container.leaveToNewer(newer);
    this.commits.checkpoints.forget();
    this.hasParts = false;
  }

  unlocking(): void {
    if (!this.container.isDurable) return;
    // Frames that no row names may not be on the medium, and a manifest must not count them.
    const isNamed = this.container.end.rows.length === 0;
    if (isNamed && this.commits.checkpoints.manifestDue) this.commits.checkpoints.publishManifestNow();
    this.container.noteBase();
  }

  /** Creates the parts that a copy of the container left out, before the first write under this lock. */
  private makeMissing(): void {
    if (this.hasParts) return;
    const { container } = this;
    const { disk, file, options, state } = container;
    container.putInPlace();
    const made = guardErrno("making what the session lacks", () => makeParts(disk, file, options.durability));
    if (made.length > 0) state.unsynced.add(dirname(file));
    this.hasParts = true;
  }

  /**
   * Adds entries written since, also by another log of this process. Throws storage_failed if the container changed in
   * another way, and `readOnly` if nothing may be written.
   */
  confirm(): void {
    const other = this.writers.get(this.container.identity);
    if (other && other !== this.commits) other.markAllDurable();
    const change = this.refresh();
    if (change.kind !== "none" && change.kind !== "grown") throw this.container.changedByAnother();
    if (this.state.replica) this.commits.requireFrames();
    // Reading it may have found that nothing may be written.
    if (this.state.readOnly) throw this.state.readOnly;
  }

  /**
   * Adds the nodes of lines. Throws invalid_entry, with nothing changed, when an id is taken or a parent is missing; a
   * working copy takes lines without it, which are durable elsewhere as they are.
   */
  private addNodes(lines: readonly Uint8Array[], heads?: KnownHeads): void {
    const { nodes } = this.entries;
    const first = nodes.count;
    const { aliases } = nodes;
    const mayMissParents = this.state.replica !== undefined;
    for (const [i, line] of lines.entries()) {
      const position = this.entries.add(line, heads?.[i]);
      const fault =
        nodes.aliases > aliases
          ? "its id is taken"
          : nodes.parent(position) === MISSING && !mayMissParents
            ? `its parent ${nodes.missingParent.get(position)} is not an entry of the session`
            : null;
      if (fault === null) continue;
      const entryId = nodes.id(position);
      nodes.truncate(first);
      nodes.aliases = aliases;
      throw new Failure("invalid_entry", `The entry ${entryId} cannot be stored: ${fault}.`, { entryId });
    }
  }

  append(lines: readonly Uint8Array[], heads?: KnownHeads): void {
    const { nodes } = this.entries;
    const { count } = nodes;
    this.recoverEnd();
    this.addNodes(lines, heads);
    try {
      this.writeFrames(count, lines);
    } catch (error) {
      nodes.truncate(count);
      throw error;
    }
  }

  writeUnwritten(from: number, to: number): void {
    const { container, entries, commits } = this;
    const { indexFault, seen } = container.end;
    const index = container.indexInfo();
    if (indexFault === null && (!index || !seen || !isSameStamp(index, seen))) throw container.changedByAnother();
    this.recoverEnd();
    // Those whose frames were written before lack their rows.
    const { first, lines } = entries.unwrittenLines(from, to);
    this.writeFrames(first, lines);
    for (let position = first; position < to; position++) entries.overrides.delete(position);
    try {
      commits.writeRows(to);
    } catch (error) {
      if (this.states.state === "SEGMENT_SEALED") this.states.to("FAILED", "the index could not be written");
      throw error;
    }
  }

  /** Writes the frames of entries from a position on. Their rows are written when they are durable. */
  private writeFrames(first: number, lines: readonly Uint8Array[]): void {
    const { entries, extents, end, options } = this.container;
    const frames: NextFrame[] = [];
    const now = makeTimestamp(options.env);
    let { tail } = end;
    for (const [i, line] of lines.entries()) {
      const frame = encodeNextFrame(tail, entries.nodes, first + i, trimLine(line), now, options.segmentBytes);
      frames.push(frame);
      tail = frame.tail;
    }
    this.commits.frames.write(frames);
    for (const [i, { extent: place, row }] of frames.entries()) {
      extents.set(first + i, place);
      entries.checked.set(first + i, 1);
      end.rows.push(row);
    }
    end.tail = tail;
    this.commits.checkpoints.manifestDue = true;
    this.commits.noteWritten();
  }

  /** Repairs the end after a crash or a failed write, before anything is written after it. */
  private recoverEnd(): void {
    const { end } = this.container;
    const rebuilt = end.replayed > 0 || end.indexFault !== null;
    this.makeMissing();
    // Rows first: none may name a frame that is missing.
    this.commits.index.cutLeft();
    this.commits.frames.cutTornTail();
    if (!rebuilt) return;
    this.commits.frames.noteFound(end.base?.tail.segmentSeq ?? 1);
    recordRepair(this.container, "index_corruption");
    end.replayed = 0;
  }

  /**
   * Makes found entries durable. Frames get their rows: while this process is the writer, others read only frames with rows.
   */
  settle(): void {
    const { end } = this.container;
    const { isSynced, unsynced } = this.state;
    if (end.rows.length > 0 || end.indexFault !== null) {
      this.recoverEnd();
      this.commits.settle();
    } else if (isSynced) unsynced.syncNow();
  }

  // --- the first append ----------------------------------------------------------------------------------------

  create(count: number): void {
    const { container, state } = this;
    const { checkpoints } = this.commits;
    const { entries, extents, end, file } = container;
    const held = entries.unwrittenLines(0, count).lines;
    const { builder, manifest, lock, key, seenIndex } = createContainer(container, held);
    state.lock.adopt(lock);
    container.key = key;
    state.isConfirmed = true;
    state.created = held.slice(0, state.durableCount);
    state.unsynced.add(...getContainerFolders(file), dirname(file));
    for (let position = 0; position < count; position++) {
      entries.overrides.delete(position);
      extents.set(position, builder.extents.at(position));
      entries.checked.set(position, 1);
    }
    end.goTo(builder);
    end.seen = seenIndex;
    checkpoints.counted = manifest;
    checkpoints.manifestDue = false;
    this.commits.noteWritten();
  }

  // --- becoming durable ----------------------------------------------------------------------------------------

  makeDurable(requireCurrent: () => void): Promise<void> {
    return this.commits.makeDurable(requireCurrent);
  }

  markAllDurable(): void {
    this.commits.markAllDurable();
  }

  committed(): void {
    this.commits.committed();
  }

  commitNothing(): Promise<void> {
    return this.commits.checkpointInPassing();
  }

  keepAll(): boolean {
    return this.commits.keepAll();
  }

  rollBack(): boolean {
    return this.commits.rollBack();
  }

  get isCheckpointDue(): boolean {
    return this.commits.isCheckpointDue;
  }

  async checkpointNow(reason: "manual" | "pre_migration", commit: () => Promise<void>): Promise<number> {
    this.confirm();
    this.makeMissing();
    // Found entries count as durable without being on the medium, and nothing may name them before that.
    if (this.container.isDurable) this.settle();
    await commit();
    await this.commits.checkpointNow(reason);
    return this.commits.checkpoints.last().seq;
  }

  // --- repairing -----------------------------------------------------------------------------------------------

  get missingParts(): readonly Damage[] {
    const { container } = this;
    if (this.entries.isNewer) return [];
    return this.persisted ? [...findMissingParts(container), ...findDocumentFaults(container)] : [];
  }

  requireRepairable(): void {
    const { readOnly } = this.state;
    if (readOnly && readOnly.name !== "corrupt") throw readOnly;
  }

  confirmToRepair(): void {
    const { container } = this;
    if (container.folder === container.file) {
      const { kind } = this.refresh();
      if (kind === "replaced" || kind === "gone") throw container.changedByAnother();
    }
    this.makeMissing();
  }

  /** Rebuilds the container from its readable entries and swaps the two. */
  rebuild(repairs: Repairs): string {
    const isDamaged = this.entries.damage.some(({ kind }) => REPAIRABLE.has(kind));
    const reason = isDamaged ? "frames are damaged" : "messages lack what readers need";
    return this.rebuildOf(this.repairedLines(repairs), reason);
  }

  replaceFrom(count: number, lines: readonly Uint8Array[], headerLine?: Uint8Array): string {
    if (this.state.readOnly) {
      // Damaged frames refuse appends; the new container has none of them.
      this.requireRepairable();
      this.confirmToRepair();
    } else {
      this.confirm();
      this.makeMissing();
    }
    const { reader } = this;
    const content = function* (): Generator<Uint8Array> {
      for (let position = 0; position < count; position++) yield reader.read(position);
      yield* lines;
    };
    return this.rebuildOf(content(), "other machines wrote something else", headerLine);
  }

  /** Builds a container of these lines and swaps the two. Returns the path of the one before. */
  private rebuildOf(lines: Iterable<Uint8Array>, reason: string, headerLine?: Uint8Array): string {
    const { container, state } = this;
    const { disk, file } = container;
    const backup = guardErrno("looking for a name of the backup", () => nameNextBackup(disk, file, "damaged"));
    this.states.fail(reason);
    rebuild(container, lines, backup, headerLine);
    dropLock(disk, backup);
    this.commits.closeFiles();
    container.folder = file;
    this.commits.checkpoints.manifestDue = false;
    for (const name of ["DIRTY", "SEGMENT_SEALED", "INDEXED", "CHECKPOINTED"] as const)
      this.states.to(name, "the session was rebuilt");
    state.unsynced.clear();
    state.unsynced.add(dirname(file));
    return backup;
  }

  /** Yields the lines to write: a placeholder for a damaged one, without a missing parent, else as `repairs` returns. */
  private *repairedLines(repairs: Repairs): Generator<Uint8Array> {
    const { nodes } = this.entries;
    for (let position = 0; position < nodes.count; position++) {
      const stored = this.reader.read(position);
      const isOrphan = nodes.parent(position) === MISSING;
      const line = isOrphan ? replaceMember(stored, "parentId", toBytes("null")) : stored;
      yield repairs.get(position)?.(line) ?? line;
    }
  }

  // --- the end -------------------------------------------------------------------------------------------------

  close(): void {
    if (this.container.isDurable) this.snapshots.keep();
    const { identity } = this.container;
    if (this.writers.get(identity) === this.commits) this.writers.delete(identity);
    this.commits.closeFiles();
  }

  discard(): void {
    const { container, commits } = this;
    const { disk, file } = container;
    try {
      if (container.hasItsHeader(file) && this.refresh().kind === "none") {
        removeQuietly(disk, getPointerFile(file));
        removeTree(disk, file);
      }
    } catch {
      // It may be the container of another program by now.
    }
    commits.closeFiles();
  }
}

/** Most attempts to open a container that other processes keep writing to. */
const JUDGEMENTS = 100;

/**
 * Opens the log of a container. `held`: this process has its lock already. `unfinished`: why the session cannot be
 * written until a migration or rollback that was cut off is finished.
 */
export function openLog(
  options: SegmentedOptions,
  writers: Writers,
  file: string,
  folder: string,
  held = false,
  unfinished?: Failure,
): FileLog {
  for (let n = 1; ; n++) {
    const backend = new V2Backend(options, writers, file, folder);
    backend.open(held);
    if (n === JUDGEMENTS || !backend.wasDisturbed) {
      if (unfinished) {
        backend.state.readOnly ??= unfinished;
        backend.states.restartFailed();
      }
      return new FileLog(backend);
    }
    backend.close();
  }
}
