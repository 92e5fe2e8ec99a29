/**
 * Marks the durable end of a container: writes checkpoints, a manifest of the same state, and the index snapshot that
 * lets the next opening skip what lies before (session-store-v2 reference; seed 003).
 */

import { join } from "node:path";
import { bytesOf } from "../../core/json/json.ts";
import { timestamp } from "../../core/ports/env.ts";
import {
  checkpointFile,
  checkpointFolder,
  manifestFile,
  numbered,
  spineFile,
  temporaryFolder,
} from "../fs/container-paths.ts";
import { closeQuietly, exists, removeQuietly, takeName, writeAll } from "../fs/disk.ts";
import {
  CHECKPOINT_SCHEMA,
  type Checkpoint,
  type CheckpointReason,
  encodeCheckpoint,
  encodeManifest,
  readManifest,
  type SourceFormat,
  snapshotRef,
} from "./documents.ts";
import { checkpointSeqs, lastCheckpoint } from "./last-checkpoint.ts";
import { type Counted, Tally } from "./manifest.ts";
import { EMPTY_TAIL, type Tail } from "./places.ts";
import { encodeBlock, type Reach } from "./snapshot.ts";
import { StateMachine, type StoreState } from "./states.ts";
import { SegmentedWriter } from "./writer.ts";

/** The durable end of a container. */
export interface Durable {
  readonly tail: Tail;
  readonly indexEnd: number;
  readonly lastRow: { readonly length: number; readonly crc: number };
}

export abstract class CheckpointWriter extends SegmentedWriter {
  durableCount = 0;
  /** State of the store on its way from one durable state to the next (seed 003). */
  states = new StateMachine(() => timestamp(this.env));

  protected durable: Durable = { tail: EMPTY_TAIL, indexEnd: 0, lastRow: { length: 0, crc: 0 } };
  protected counted: Counted | null = null;
  /** Whether the manifest on disk is not that of the durable state. */
  protected manifestDue = false;
  protected lastCheckpoint: { readonly seq: number; readonly tail: Tail } | null = null;
  private readonly tally = new Tally(this.nodes);

  get state(): StoreState {
    return this.states.state;
  }

  protected isFarFrom(checkpointed: Tail): boolean {
    const { entries, bytes } = this.options.checkpointEvery;
    const { tail } = this.durable;
    return tail.entrySeq - checkpointed.entrySeq >= entries || tail.bytesTotal - checkpointed.bytesTotal >= bytes;
  }

  /**
   * Returns the end that the last valid checkpoint marks, and the highest number of any checkpoint: numbers of invalid
   * ones are not used again. Opening the container has checked that the checkpoint fits the entries.
   */
  protected findLastCheckpoint(): { seq: number; tail: Tail } {
    if (this.lastCheckpoint) return this.lastCheckpoint;
    const [last = 0] = checkpointSeqs(this.disk, this.folder);
    const headEntrySeq = lastCheckpoint(this.disk, this.folder)?.headEntrySeq ?? 0;
    const bytesTotal = this.spineCount === headEntrySeq ? this.bytesBefore(headEntrySeq) : 0;
    this.lastCheckpoint = { seq: last, tail: { ...EMPTY_TAIL, entrySeq: headEntrySeq, bytesTotal } };
    return this.lastCheckpoint;
  }

  /** Returns the bytes of all frames before a position. */
  private bytesBefore(position: number): number {
    let bytes = 0;
    const { values } = this.places.lengths;
    for (let p = 0; p < position; p++) bytes += values[p];
    return bytes;
  }

  /**
   * Makes a checkpoint of the durable end, writes a manifest of the same state (INV-004), and extends the index
   * snapshot.
   */
  protected async checkpoint(reason: CheckpointReason): Promise<void> {
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

  /**
   * Writes the manifest of the durable state before the lock is released. Best effort: the next opening works without
   * it.
   */
  protected publishManifestNow(): void {
    try {
      // A container that was deleted or moved away meanwhile must not be created again.
      if (!this.hasItsHeader()) return;
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

  /**
   * Adds the durable entries that the index snapshot lacks, if the tree says no more than their frames do. Best effort.
   */
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
}
