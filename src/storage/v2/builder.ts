/** Writes a new container, from its first frame on, in a folder that no session uses yet. */

import { isUtf8 } from "node:buffer";
import { join } from "node:path";
import { Failure } from "../../core/failure.ts";
import type { SessionHeader } from "../../core/format/entry.ts";
import { HeadReader } from "../../core/format/node-reader.ts";
import { concat, isJson, toBytes, trimLine } from "../../core/json/json.ts";
import { makeTimestamp } from "../../core/ports/env.ts";
import { Nodes } from "../../core/tree/nodes.ts";
import {
  BLOBS,
  checkpointFile,
  FOLDERS,
  headerFile,
  indexFile,
  indexSnapshotFile,
  manifestFile,
  segmentFile,
} from "../fs/container-paths.ts";
import { closeQuietly, writeAll } from "../fs/disk.ts";
import { makePlaceholder } from "../log/known-entries.ts";
import { CHUNK } from "../log/lines.ts";
import { ManifestCounters, makeCheckpoint } from "./checkpoints.ts";
import type { SegmentedOptions } from "./container.ts";
import { crc32c, formatCrc } from "./crc32c.ts";
import {
  type CheckpointReason,
  encodeCheckpoint,
  encodeManifest,
  type Manifest,
  type SourceFormat,
} from "./documents.ts";
import { advanceTail, EMPTY_END, EMPTY_TAIL, Extents, type FrameExtent, type StoreEnd, type Tail } from "./extents.ts";
import { encodeHead, encodeRow, FRAME_BYTES, getFrameLength, sha256, writeFrame } from "./frame.ts";
import { encodeBlock, getCoverage } from "./snapshots.ts";

type BuilderOptions = Pick<SegmentedOptions, "disk" | "env" | "durability" | "segmentBytes">;

/** A frame that is about to be written, and the end of the store after it. */
export interface NextFrame {
  readonly bytes: Uint8Array;
  readonly row: string;
  /** True if it begins a segment. */
  readonly isNew: boolean;
  readonly extent: FrameExtent;
  readonly tail: Tail;
}

/** Encodes the frame of an entry after a tail into a room. Throws invalid_entry when it is too large. */
export function encodeNextFrame(
  tail: Tail,
  nodes: Nodes,
  position: number,
  payload: Uint8Array,
  now: string,
  segmentBytes: number,
  allocate: (length: number) => Buffer = Buffer.allocUnsafe,
): NextFrame {
  const entryId = nodes.id(position);
  const entry = { entryId, parentEntryId: nodes.parentIdOf(position), entryType: nodes.type(position) };
  const entrySeq = tail.entrySeq + 1;
  let at = { segmentSeq: tail.segmentSeq, frameSeq: tail.frameSeq + 1, entrySeq };
  const payloadSha256 = sha256(payload);
  const payloadLength = payload.length;
  let head = encodeHead(at, entry, now, payloadSha256, payloadLength);
  let length = getFrameLength(head, payload);
  const isNew = tail.segmentSeq === 0 || (tail.segmentSize > 0 && tail.segmentSize + length > segmentBytes);
  if (isNew) {
    at = { segmentSeq: tail.segmentSeq + 1, frameSeq: 1, entrySeq };
    head = encodeHead(at, entry, now, payloadSha256, payloadLength);
    length = getFrameLength(head, payload);
  }
  const limit = Math.min(segmentBytes, FRAME_BYTES);
  if (length > limit)
    throw new Failure(
      "invalid_entry",
      `The entry ${entryId} takes ${length} bytes as a frame, and a segment holds ${limit}. Keep large content outside, or use a jsonl session.`,
      { entryId, bytes: length, limit },
    );
  const bytes = allocate(length);
  const payloadStart = writeFrame(bytes, head, payload);
  const crc = crc32c(bytes);
  const start = isNew ? 0 : tail.segmentSize;
  const { segmentSeq, frameSeq } = at;
  const row = {
    entrySeq,
    segmentSeq,
    frameSeq,
    entryId,
    byteOffset: start,
    byteLength: length,
    crc32c: formatCrc(crc),
  };
  return {
    bytes,
    isNew,
    row: encodeRow(row),
    extent: { segmentSeq, start, length, payloadStart, payloadLength, crc },
    tail: advanceTail(tail, at, payloadSha256, start, length, crc),
  };
}

/** Returns the placeholder with which reading replaces a line that is not JSON; null if its head is not legible either. */
function placeholderFor(line: Uint8Array): Uint8Array | null {
  const nodes = new Nodes();
  const heads = new HeadReader(nodes);
  if (!heads.readFast(line, 0, line.length, false)) return null;
  const position = nodes.add(heads);
  return makePlaceholder(nodes.type(position), nodes.id(position), nodes.parentIdOf(position));
}

export class Builder implements StoreEnd {
  readonly nodes = new Nodes();
  readonly extents = new Extents();
  tail: Tail = EMPTY_TAIL;
  indexEnd = 0;
  lastRow = EMPTY_END.lastRow;
  private readonly options: BuilderOptions;
  /** Folder of the new container. */
  readonly folder: string;
  private readonly heads = new HeadReader(this.nodes);
  private segment = -1;
  private index = -1;
  /** Memory that begins with the frames that are not written yet. */
  private frames = Buffer.allocUnsafe(CHUNK);
  private framesLength = 0;
  private now = "";
  /** Buffer that begins with their rows: a text of them all takes seven times as long to make and to encode. */
  private rows = Buffer.allocUnsafe(CHUNK);
  private rowsLength = 0;
  /** Start of the last row. */
  private lastRowStart = 0;
  /** Open files that are written but not fsynced. */
  private unsynced: number[] = [];
  /** Those that are being fsynced while more is added, and the end of that. */
  private settling: number[] = [];
  private background: Promise<void> = Promise.resolve();

  constructor(options: BuilderOptions, folder: string) {
    this.options = options;
    this.folder = folder;
  }

  /** Creates folders, header and an empty index. `header`: its line, or the path of the one whose identity it keeps. */
  begin(header: Uint8Array | string): void {
    const { folder } = this;
    const { disk } = this.options;
    for (const name of FOLDERS) disk.makeFolder(join(folder, name));
    if (typeof header === "string") disk.link(header, headerFile(folder));
    else this.write(headerFile(folder), concat([header, toBytes("\n")]));
    this.index = disk.create(indexFile(folder));
  }

  /**
   * Adds one entry, given its line without line feed, and returns its position. `checked`: the line is known to be
   * JSON. A line that is damaged after its head is replaced by a placeholder with that head. Throws corrupt when the
   * line holds no entry or its id is taken, invalid_entry when it is too large.
   */
  add(line: Uint8Array, checked = false): number {
    let payload = trimLine(line);
    if (!checked && (!isUtf8(payload) || !isJson(payload))) {
      const placeholder = placeholderFor(payload);
      if (!placeholder)
        throw new Failure("corrupt", "A line of the session is not an entry. repair_session removes it.");
      payload = placeholder;
    }
    const { nodes, heads } = this;
    if (!heads.readFast(payload, 0, payload.length)) {
      const fault = heads.readAny(payload, 0, payload.length, () => "");
      if (fault !== null || (heads.packedId < 0 && heads.id === ""))
        throw new Failure(
          "corrupt",
          `A line of the session is ${fault ?? "without an id"}. repair_session removes it.`,
        );
    }
    const { aliases } = nodes;
    const position = nodes.add(heads);
    if (nodes.aliases > aliases) {
      const id = nodes.id(position);
      throw new Failure(
        "corrupt",
        `The id ${id.slice(0, id.lastIndexOf("~"))} occurs twice. repair_session repairs it.`,
      );
    }
    // Frames that are written together share one time: reading the clock costs as much as a checksum.
    if (this.framesLength === 0) this.now = makeTimestamp(this.options.env);
    const frame = encodeNextFrame(
      this.tail,
      nodes,
      position,
      payload,
      this.now,
      this.options.segmentBytes,
      this.allocate,
    );
    if (frame.isNew) {
      this.flush();
      this.segment = this.options.disk.create(segmentFile(this.folder, frame.extent.segmentSeq));
      this.unsynced.push(this.segment);
      this.frames.set(frame.bytes);
    }
    this.extents.set(position, frame.extent);
    this.tail = frame.tail;
    this.framesLength += frame.bytes.length;
    this.addRow(frame.row);
    return position;
  }

  /** Returns the room after the frames that wait, which are written first when the next one does not fit. */
  private readonly allocate = (length: number): Buffer => {
    if (this.framesLength + length > this.frames.length) this.flush();
    if (length > this.frames.length) this.frames = Buffer.allocUnsafe(length);
    return this.frames.subarray(this.framesLength, this.framesLength + length);
  };

  private addRow(row: string): void {
    const most = 3 * row.length;
    if (this.rowsLength + most > this.rows.length) this.flush();
    if (most > this.rows.length) this.rows = Buffer.allocUnsafe(most);
    this.lastRowStart = this.rowsLength;
    this.rowsLength += this.rows.write(row, this.rowsLength);
  }

  private flush(): void {
    const { disk } = this.options;
    if (this.framesLength > 0) writeAll(disk, this.segment, this.frames.subarray(0, this.framesLength));
    if (this.rowsLength > 0) {
      const last = this.rows.subarray(this.lastRowStart, this.rowsLength);
      writeAll(disk, this.index, this.rows.subarray(0, this.rowsLength));
      this.indexEnd += this.rowsLength;
      this.lastRow = { length: last.length, crc: crc32c(last) };
    }
    this.rowsLength = 0;
    this.framesLength = 0;
  }

  /** True if full segments wait for {@link keepUp}. */
  get isBehind(): boolean {
    return this.unsynced.length > 2;
  }

  /**
   * Begins to fsync the full segments once earlier ones are on the medium: adding more need not wait meanwhile, and never
   * more than a few segments are missing on the medium.
   */
  async keepUp(): Promise<void> {
    await this.background;
    this.settling = this.unsynced.filter((fd) => fd !== this.segment);
    this.unsynced = [this.segment];
    this.background = this.settle(this.settling);
    // The next caller that waits for it gets the failure.
    this.background.catch(() => {});
  }

  /** Fsyncs files, if durability is "sync", and closes them, until {@link close} takes away those whose turn is to come. */
  private async settle(fds: number[]): Promise<void> {
    const { disk, durability } = this.options;
    try {
      for (let fd = fds.at(0); fd !== undefined; fd = fds.at(0)) {
        if (durability === "sync") await disk.sync(fd, true);
        closeQuietly(disk, fd);
        fds.shift();
      }
    } finally {
      for (const fd of fds.splice(0)) closeQuietly(disk, fd);
    }
  }

  /** Writes everything that was added so far, and fsyncs it if durability is "sync". */
  async commit(): Promise<void> {
    const written = this.written();
    await this.background;
    for (const fd of written) await this.options.disk.sync(fd, this.tail.bytesTotal > CHUNK);
    this.closeCommitted();
  }

  commitNow(): void {
    for (const fd of this.written()) this.options.disk.syncNow(fd);
    this.closeCommitted();
  }

  /** Writes everything that was added so far. Returns the files to fsync. */
  private written(): number[] {
    this.flush();
    return this.options.durability === "sync" ? [...this.unsynced, this.index] : [];
  }

  private closeCommitted(): void {
    for (const fd of this.unsynced) if (fd !== this.segment) closeQuietly(this.options.disk, fd);
    this.unsynced = this.segment >= 0 ? [this.segment] : [];
  }

  /** Writes the manifest and, with a reason, a first checkpoint and the index snapshot. Call `commit` after it. */
  finish(header: SessionHeader, sourceFormat: SourceFormat, reason?: CheckpointReason): Manifest {
    this.flush();
    const at = makeTimestamp(this.options.env);
    const counted = { sessionId: header.id, sourceFormat, createdAt: at, updatedAt: at };
    const manifest = new ManifestCounters(this.nodes).manifest(this.tail, counted);
    this.write(manifestFile(this.folder), toBytes(encodeManifest(manifest)));
    if (reason === undefined || this.nodes.count === 0) return manifest;
    const checkpoint = makeCheckpoint(manifest, 1, at, reason);
    this.write(checkpointFile(this.folder, 1), toBytes(encodeCheckpoint(checkpoint)));
    if (this.nodes.missingParent.size === 0)
      this.write(indexSnapshotFile(this.folder), encodeBlock(this.nodes, this.extents, 0, getCoverage(this)));
    return manifest;
  }

  private write(path: string, bytes: Uint8Array): void {
    const fd = this.options.disk.create(path);
    this.unsynced.push(fd);
    writeAll(this.options.disk, fd, bytes);
  }

  /** Fsyncs the folders, so that the names of all files are durable. */
  async syncFolders(): Promise<void> {
    for (const folder of this.folders()) await this.options.disk.syncFolder(folder);
  }

  syncFoldersNow(): void {
    for (const folder of this.folders()) this.options.disk.syncFolderNow(folder);
  }

  /** Returns the folders to fsync: all of them, with that of attachments if there is one; the container comes last. */
  private folders(): string[] {
    if (this.options.durability !== "sync") return [];
    const shared = this.options.disk.names(this.folder).filter((name) => name === BLOBS);
    return [...[...FOLDERS, ...shared].map((name) => join(this.folder, name)), this.folder];
  }

  /** Closes all files. The one that is being fsynced is closed after that: its number could be another file's meanwhile. */
  close(): void {
    const fds = new Set(
      [...this.unsynced, ...this.settling.splice(1), this.segment, this.index].filter((fd) => fd >= 0),
    );
    for (const fd of fds) closeQuietly(this.options.disk, fd);
    this.unsynced = [];
    this.segment = -1;
    this.index = -1;
  }
}
