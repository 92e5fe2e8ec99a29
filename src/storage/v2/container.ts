/** A container as one log knows it: identity, segments, entries and end. Each part of the log does one thing to it. */

import { basename, dirname } from "node:path";
import { Failure } from "../../core/failure.ts";
import { CURRENT_VERSION, parseSessionHeader, type SessionHeader, toReadableHeader } from "../../core/format/entry.ts";
import { toBytes } from "../../core/json/json.ts";
import { CONTAINER, getContainerFolders, headerFile, indexFile, segmentFolder } from "../fs/container-paths.ts";
import { type Disk, type FileInfo, getInfoIfPresent, readWhole } from "../fs/disk.ts";
import { guardErrno, readAt, readIfPresent, useFile } from "../fs/files.ts";
import { isSameFile } from "../fs/stamps.ts";
import { locateLockInContainer } from "../locks/lock-paths.ts";
import { EntryReader, type EntrySource } from "../log/entry-reader.ts";
import { makeChangedFailure, makeNotASessionFailure } from "../log/failures.ts";
import { KnownEntries } from "../log/known-entries.ts";
import { type FileLogOptions, WriteState } from "../log/write-state.ts";
import { isUuid } from "./documents.ts";
import { ContainerEnd, Extents, type Tail } from "./extents.ts";
import { Segments } from "./segments.ts";

/** Bytes of the largest header that is read; a usual one has a few hundred. */
const HEADER_BYTES = 1 << 20;
/** Length of a frame beyond which its bytes are not checked at opening. */
export const CHECKED_LINE = 1 << 20;

export interface SegmentedOptions extends FileLogOptions {
  /** Returns the path of a new session's container. */
  readonly containerFor: (header: SessionHeader) => string;
  /** Largest size of a segment in bytes. */
  readonly segmentBytes: number;
  /** Amounts appended since the last checkpoint; either makes the next one due. */
  readonly checkpointEvery: { readonly entries: number; readonly bytes: number };
}

export class Container {
  readonly options: SegmentedOptions;
  readonly disk: Disk;
  readonly file: string;
  /** Folder of the container; it is not `file` after a repair that was cut off. */
  folder: string;
  header!: SessionHeader;
  headerLine!: Uint8Array;
  readonly version = CURRENT_VERSION;
  /** Reason why a container with a damaged header must not be written; null for a sound one. */
  headerFault: Failure | null = null;
  /** The header file, whose device and inode identify the container. */
  key: FileInfo | undefined;
  /** Called when entries turn out to be damaged or lost. */
  onRefused: () => void = () => {};
  readonly state: WriteState;
  readonly entries = new KnownEntries();
  readonly extents = new Extents();
  readonly end = new ContainerEnd();
  readonly segments: Segments;
  readonly reader: EntryReader;

  /** `recordsOf` returns the records that the frames of a container are. */
  constructor(
    options: SegmentedOptions,
    file: string,
    folder: string,
    recordsOf: (container: Container) => EntrySource,
  ) {
    const { disk } = options;
    this.options = options;
    this.disk = disk;
    this.file = file;
    this.folder = folder;
    this.state = new WriteState(options, () => locateLockInContainer(this.folder));
    this.segments = new Segments(disk, this, () => this.reader.doubt());
    this.reader = new EntryReader(disk, options.env, this.entries, recordsOf(this));
  }

  /** Throws not_a_session when a file or folder of entries is a link. Any other part that is one counts as missing. */
  requireNoLinks(): void {
    if (!this.disk.list) return;
    const [index, segments] = [dirname(indexFile(this.folder)), segmentFolder(this.folder)];
    const needed = new Set([headerFile(this.folder), index, segments].map((path) => basename(path)));
    for (const folder of [this.folder, segments, index])
      for (const { name, kind } of readIfPresent(() => this.disk.list?.(folder)) ?? [])
        if (kind === "link" && (folder !== this.folder || needed.has(name)))
          throw makeNotASessionFailure(this.file, `${name} in it is a link`);
  }

  readHeader(): void {
    useFile(this.disk, this.disk.openRead(headerFile(this.folder)), (fd) => {
      const info = this.disk.infoOf(fd);
      this.key = info;
      if (info.kind !== "file" || info.size > HEADER_BYTES) return this.makeHeader(info);
      const bytes = readAt(this.disk, fd, 0, info.size);
      const end = bytes.indexOf(0x0a);
      const line = bytes.subarray(0, end < 0 ? bytes.length : end);
      const header = parseSessionHeader(line);
      if (header === null) return this.makeHeader(info);
      this.header = toReadableHeader(header);
      this.headerLine = line;
    });
  }

  /** Makes up a header for one that is damaged: the session can be read, and repaired or cloned to be written. */
  private makeHeader({ size, modified }: FileInfo): void {
    const id = basename(this.file, CONTAINER);
    if (!isUuid(id)) throw makeNotASessionFailure(this.file, "its header is not one of a session");
    const timestamp = new Date(modified).toISOString();
    this.header = { type: "session", version: CURRENT_VERSION, id, timestamp, cwd: "" };
    this.headerLine = toBytes(JSON.stringify(this.header));
    this.headerFault = new Failure(
      "corrupt",
      "The session's header is damaged, so it can be read but not written. repair_session gives it a new one; clone copies it.",
    );
    this.entries.report("bad_header", 0, size, "header.jsonl is not a header with type session and an id", true);
  }

  /**
   * Forgets the damage that was found, and refuses writes, because a newer program wrote the container. Returns the failure.
   */
  leaveToNewer(part: string): Failure {
    const reason = `${part}, which is newer than this program knows`;
    this.entries.replaceDamage([]);
    this.entries.isNewer = true;
    this.entries.report("newer_version", 0, 0, reason, true);
    const failure = new Failure(
      "unsupported_version",
      `The session has ${reason}. Nothing is wrong with it. It can be read as far as this version knows it, and not written; a newer version of this program reads all of it.`,
    );
    this.state.readOnly = failure;
    return failure;
  }

  /** Takes the first step back of a repair, or of its undo, that was cut off between its two. */
  putInPlace(): void {
    const { disk, file, state } = this;
    if (this.folder === file) return;
    guardErrno("putting the session in its place", () => disk.rename(this.folder, file));
    this.folder = file;
    // The unsynced folders had other paths.
    state.unsynced.clear();
    state.unsynced.add(...getContainerFolders(file), dirname(file));
  }

  /**
   * Returns whether the header is still the one that was read. The inode of a removed file is used again, and another
   * program may write the file anew in place, so its bytes decide when its times have changed.
   */
  hasItsHeader(folder = this.folder): boolean {
    const { disk, key } = this;
    const path = headerFile(folder);
    const now = getInfoIfPresent(disk, path);
    if (!now || !key || !isSameFile(now, key) || now.kind !== key.kind || now.size !== key.size) return false;
    if (now.changed === key.changed && now.modified === key.modified) return true;
    if (now.kind === "file" && this.headerFault === null) {
      const line = readWhole(disk, path).subarray(0, this.headerLine.length);
      if (Buffer.compare(line, this.headerLine) !== 0) return false;
    }
    this.key = now;
    return true;
  }

  /** Text that no other container of this machine has. */
  get identity(): string {
    return `${this.key?.device}:${this.key?.inode}`;
  }

  /** Returns the stamp of the index as its name has it now; null when it is missing. */
  indexInfo(): FileInfo | null {
    return getInfoIfPresent(this.disk, indexFile(this.folder));
  }

  /** Throws storage_failed unless a file that we write still has its name, and ends where it must. */
  requireEnd(path: string, fd: number, end: number): FileInfo {
    const info = this.disk.infoOf(fd);
    const named = getInfoIfPresent(this.disk, path);
    if (info.size !== end || !named || !isSameFile(info, named)) throw this.changedByAnother();
    return info;
  }

  /** Returns the failure for files that another program changed. The next refresh compares them. */
  changedByAnother(): Failure {
    this.state.isConfirmed = false;
    return makeChangedFailure("files");
  }

  refuseWrites(): void {
    this.state.readOnly = new Failure(
      "corrupt",
      "Entries of the session are damaged or lost, so it can be read but not written. repair_session rebuilds it from the whole entries and keeps the rest next to it; clone copies what is whole.",
    );
    this.onRefused();
  }

  /** Does the same unless writes are refused already. */
  refuseWritesOnce(): void {
    if (!this.state.readOnly) this.refuseWrites();
  }

  /** Returns the checksum of the bytes at an entry's place as they are. Throws errno errors. */
  crcAt(position: number): number {
    const { segmentSeq, start, length } = this.extents.at(position);
    return this.segments.crc(segmentSeq, start, length);
  }

  /** Returns the same of the last of `count` entries; null when its bytes cannot be read, or are very many. */
  lastFrameOf(count: number): number | null {
    if (count === 0 || this.extents.lengths.values[count - 1] > CHECKED_LINE) return null;
    try {
      return this.crcAt(count - 1);
    } catch {
      return null;
    }
  }

  get isDurable(): boolean {
    return this.state.durableCount >= this.entries.nodes.count;
  }

  /** Records that the first `count` entries are durable; they end at `tail`. */
  markDurable(count: number, tail: Tail = this.end.tail): void {
    this.state.durableCount = count;
    const { indexEnd, lastRow } = this.end;
    this.end.durable = { tail, indexEnd, lastRow };
  }

  /** Returns a function that restores the present entries from a position on, the end, and all damage. */
  image(from: number): () => void {
    const { entries, extents, state } = this;
    const { nodes, damage, overrides, placeholders } = entries;
    const { aliases } = nodes;
    const { readOnly } = state;
    const known = Array.from({ length: nodes.count - from }, (_, i) => ({
      head: nodes.headOf(from + i),
      place: extents.at(from + i),
    }));
    const reported = [...damage];
    const maps = [overrides, placeholders].map((lines) => ({ lines, entries: [...lines] }));
    const restoreEnd = this.end.image();
    return () => {
      entries.forgetFrom(from);
      for (const { head, place } of known) extents.set(nodes.add(head), place);
      nodes.aliases = aliases;
      this.reader.doubt();
      for (const { lines, entries } of maps) for (const [position, line] of entries) lines.set(position, line);
      entries.replaceDamage(reported);
      state.readOnly = readOnly;
      restoreEnd();
    };
  }

  /** Records the part that need not be examined again, if the index names every known entry. */
  noteBase(): void {
    const { entries, end } = this;
    const { count, aliases } = entries.nodes;
    const { tail, indexEnd, lastRow } = end;
    const isNamed = end.rows.length === 0;
    end.base = isNamed ? { count, aliases, tail, indexEnd, lastRow, lastFrame: this.lastFrameOf(count) } : null;
  }
}
