/** Writes a new container, from its first frame on, in a folder that no session uses yet. */

import { isUtf8 } from "node:buffer";
import { join } from "node:path";
import { Failure } from "../../core/failure.ts";
import type { SessionHeader } from "../../core/format/entry.ts";
import { HeadReader } from "../../core/format/head.ts";
import { bytesOf, concat, isJson, payloadOf } from "../../core/json/json.ts";
import { timestamp } from "../../core/ports/env.ts";
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
import { placeholder } from "../log/known-entries.ts";
import { CHUNK } from "../log/lines.ts";
import { checkpointOf, ManifestCounters } from "./checkpoints.ts";
import type { SegmentedOptions } from "./container.ts";
import {
  type CheckpointReason,
  encodeCheckpoint,
  encodeManifest,
  type Manifest,
  type SourceFormat,
} from "./documents.ts";
import { EMPTY_END, EMPTY_TAIL, Extents, type FrameExtent, type StoreEnd, type Tail, tailAfter } from "./extents.ts";
import { crc32c, crcText, encodeHead, encodeRow, FRAME_BYTES, frameBytes, sha256, writeFrame } from "./frame.ts";
import { coverageOf, encodeBlock } from "./snapshots.ts";

type BuilderOptions = Pick<SegmentedOptions, "disk" | "env" | "durability" | "segmentBytes">;

/** A frame that is about to be written, and the end of the store after it. */
export interface NextFrame {
  readonly bytes: Uint8Array;
  readonly row: string;
  /** Whether it begins a segment. */
  readonly isNew: boolean;
  readonly extent: FrameExtent;
  readonly tail: Tail;
}

/** Encodes the frame of an entry after a tail into what `room` returns. Throws invalid_entry when it is too large. */
export function nextFrame(
  tail: Tail,
  nodes: Nodes,
  position: number,
  payload: Uint8Array,
  now: string,
  segmentBytes: number,
  room: (length: number) => Buffer = Buffer.allocUnsafe,
): NextFrame {
  const entryId = nodes.id(position);
  const entry = { entryId, parentEntryId: nodes.parentIdOf(position), entryType: nodes.type(position) };
  const entrySeq = tail.entrySeq + 1;
  let at = { segmentSeq: tail.segmentSeq, frameSeq: tail.frameSeq + 1, entrySeq };
  const payloadSha256 = sha256(payload);
  const payloadLength = payload.length;
  let head = encodeHead(at, entry, now, payloadSha256, payloadLength);
  let length = frameBytes(head, payload);
  const isNew = tail.segmentSeq === 0 || (tail.segmentSize > 0 && tail.segmentSize + length > segmentBytes);
  if (isNew) {
    at = { segmentSeq: tail.segmentSeq + 1, frameSeq: 1, entrySeq };
    head = encodeHead(at, entry, now, payloadSha256, payloadLength);
    length = frameBytes(head, payload);
  }
  const limit = Math.min(segmentBytes, FRAME_BYTES);
  if (length > limit)
    throw new Failure(
      "invalid_entry",
      `The entry ${entryId} takes ${length} bytes as a frame, and a segment holds ${limit}. Keep large content outside, or use a jsonl session.`,
      { entryId, bytes: length, limit },
    );
  const bytes = room(length);
  const payloadStart = writeFrame(bytes, head, payload);
  const crc = crc32c(bytes);
  const start = isNew ? 0 : tail.segmentSize;
  const { segmentSeq, frameSeq } = at;
  const row = { entrySeq, segmentSeq, frameSeq, entryId, byteOffset: start, byteLength: length, crc32c: crcText(crc) };
  return {
    bytes,
    isNew,
    row: encodeRow(row),
    extent: { segmentSeq, start, length, payloadStart, payloadLength, crc },
    tail: tailAfter(tail, at, payloadSha256, start, length, crc),
  };
}

/** Returns the placeholder that reading gives for a line that is not JSON; null when its head is not legible either. */
function placeholderFor(line: Uint8Array): Uint8Array | null {
  const nodes = new Nodes();
  const heads = new HeadReader(nodes);
  if (!heads.readFast(line, 0, line.length)) return null;
  const position = nodes.add(heads);
  return placeholder(nodes.type(position), nodes.id(position), nodes.parentIdOf(position));
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
  /** Buffer that begins with the frames that are not written yet. */
  private frames = Buffer.allocUnsafe(CHUNK);
  private framesLength = 0;
  private now = "";
  private rows: string[] = [];
  /** Open files that are written but not fsynced. */
  private unsynced: number[] = [];

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
    else this.write(headerFile(folder), concat([header, bytesOf("\n")]));
    this.index = disk.create(indexFile(folder));
  }

  /**
   * Adds one entry, given its line without line feed, and returns its position. `checked`: the line is known to be
   * JSON. A line that is damaged after its head is replaced by a placeholder with that head. Throws corrupt when the
   * line holds no entry or its id is taken, invalid_entry when it is too large.
   */
  add(line: Uint8Array, checked = false): number {
    let payload = payloadOf(line);
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
    if (this.framesLength === 0) this.now = timestamp(this.options.env);
    const frame = nextFrame(this.tail, nodes, position, payload, this.now, this.options.segmentBytes, this.room);
    if (frame.isNew) {
      this.flush();
      this.segment = this.options.disk.create(segmentFile(this.folder, frame.extent.segmentSeq));
      this.unsynced.push(this.segment);
      this.frames.set(frame.bytes);
    }
    this.extents.set(position, frame.extent);
    this.tail = frame.tail;
    this.framesLength += frame.bytes.length;
    this.rows.push(frame.row);
    return position;
  }

  /** Returns room for the next frame after those that wait, which are written first when it does not fit. */
  private readonly room = (length: number): Buffer => {
    if (this.framesLength + length > this.frames.length) this.flush();
    if (length > this.frames.length) this.frames = Buffer.allocUnsafe(length);
    return this.frames.subarray(this.framesLength, this.framesLength + length);
  };

  private flush(): void {
    const { disk } = this.options;
    if (this.framesLength > 0) writeAll(disk, this.segment, this.frames.subarray(0, this.framesLength));
    if (this.rows.length > 0) {
      const last = bytesOf(this.rows[this.rows.length - 1]);
      const bytes = bytesOf(this.rows.join(""));
      writeAll(disk, this.index, bytes);
      this.indexEnd += bytes.length;
      this.lastRow = { length: last.length, crc: crc32c(last) };
    }
    this.rows = [];
    this.framesLength = 0;
  }

  /** Whether a whole segment waits for {@link commit}. */
  get isBehind(): boolean {
    return this.unsynced.length > 2;
  }

  /** Writes everything that was added so far, and fsyncs it if durability is "sync". */
  async commit(): Promise<void> {
    for (const fd of this.written()) await this.options.disk.sync(fd);
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
    const at = timestamp(this.options.env);
    const counted = { sessionId: header.id, sourceFormat, createdAt: at, updatedAt: at };
    const manifest = new ManifestCounters(this.nodes).manifest(this.tail, counted);
    this.write(manifestFile(this.folder), bytesOf(encodeManifest(manifest)));
    if (reason === undefined || this.nodes.count === 0) return manifest;
    const checkpoint = checkpointOf(manifest, 1, at, reason);
    this.write(checkpointFile(this.folder, 1), bytesOf(encodeCheckpoint(checkpoint)));
    if (this.nodes.missingParent.size === 0)
      this.write(indexSnapshotFile(this.folder), encodeBlock(this.nodes, this.extents, 0, coverageOf(this)));
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

  close(): void {
    const fds = new Set([...this.unsynced, this.segment, this.index].filter((fd) => fd >= 0));
    for (const fd of fds) closeQuietly(this.options.disk, fd);
    this.unsynced = [];
    this.segment = -1;
    this.index = -1;
  }
}
