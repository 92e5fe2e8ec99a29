/**
 * Marks the durable end of a container: writes checkpoints, and a manifest of the same state (session-store-v2
 * reference; seed 003).
 */

import { join } from "node:path";
import { bytesOf } from "../../core/json/json.ts";
import { timestamp } from "../../core/ports/env.ts";
import { checkpointFile, checkpointFolder, manifestFile, numbered, temporaryFolder } from "../fs/container-paths.ts";
import { closeQuietly, removeQuietly, renameExclusive, writeAll } from "../fs/disk.ts";
import type { Container } from "./container.ts";
import {
  CHECKPOINT_SCHEMA,
  type Checkpoint,
  type CheckpointReason,
  encodeCheckpoint,
  encodeManifest,
  type Manifest,
  readManifest,
  snapshotRef,
} from "./documents.ts";
import { EMPTY_TAIL, type Tail } from "./extents.ts";
import { checkpointSeqs, lastCheckpoint } from "./last-checkpoint.ts";
import { type Counted, ManifestCounters } from "./manifest.ts";
import type { Snapshots } from "./snapshots.ts";

/** Returns the checkpoint of the state that a manifest tells. */
export function checkpointOf(
  { head, integrity }: Manifest,
  seq: number,
  at: string,
  reason: CheckpointReason,
): Checkpoint {
  return {
    schema: CHECKPOINT_SCHEMA,
    checkpointSeq: seq,
    at,
    headEntrySeq: head.entrySeq,
    headEntryId: head.entryId,
    snapshotRef: snapshotRef(seq),
    compactedBeforeEntrySeq: 0,
    chainHash: integrity.chainHash,
    reason,
  };
}

export class Checkpoints {
  private readonly container: Container;
  private readonly snapshots: Snapshots;
  private readonly counters: ManifestCounters;
  /** Members of the manifest that are not computed; null until they are known. */
  counted: Counted | null = null;
  /** Whether the manifest on disk is not that of the durable state. */
  manifestDue = false;
  private known: { readonly seq: number; readonly tail: Tail } | null = null;

  constructor(container: Container, snapshots: Snapshots) {
    this.container = container;
    this.snapshots = snapshots;
    this.counters = new ManifestCounters(container.entries.nodes);
  }

  /** Whether a checkpoint is due since the last one that is known, or none is known. */
  get isDue(): boolean {
    return this.known === null || this.isFarFrom(this.known.tail);
  }

  isFarFrom(checkpointed: Tail): boolean {
    const { entries, bytes } = this.container.options.checkpointEvery;
    const { tail } = this.container.end.durable;
    return tail.entrySeq - checkpointed.entrySeq >= entries || tail.bytesTotal - checkpointed.bytesTotal >= bytes;
  }

  /**
   * Returns the end that the last valid checkpoint marks, and the highest number of any checkpoint: numbers of invalid
   * ones are not used again. Opening the container has checked that the checkpoint fits the entries.
   */
  last(): { seq: number; tail: Tail } {
    if (this.known) return this.known;
    const { disk, folder } = this.container;
    const [seq = 0] = checkpointSeqs(disk, folder);
    const entrySeq = lastCheckpoint(disk, folder)?.headEntrySeq ?? 0;
    const bytesTotal = this.snapshots.count === entrySeq ? this.bytesBefore(entrySeq) : 0;
    this.known = { seq, tail: { ...EMPTY_TAIL, entrySeq, bytesTotal } };
    return this.known;
  }

  /** Makes the next {@link last} look again, because other processes may have made checkpoints meanwhile. */
  forget(): void {
    this.known = null;
  }

  /** Returns the bytes of all frames before a position. */
  private bytesBefore(position: number): number {
    let bytes = 0;
    const { values } = this.container.extents.lengths;
    for (let p = 0; p < position; p++) bytes += values[p];
    return bytes;
  }

  /** Makes a checkpoint of the durable end, and writes a manifest of the same state (INV-004). */
  async make(reason: CheckpointReason): Promise<void> {
    const { container } = this;
    const { disk, options } = container;
    const { tail } = container.end.durable;
    const seq = this.last().seq + 1;
    const at = timestamp(options.env);
    const manifest = this.manifestNow(at);
    const text = encodeCheckpoint(checkpointOf(manifest, seq, at, reason));
    const mark = await this.writeSynced(`${numbered(seq, "json")}.tmp`, text);
    renameExclusive(disk, mark, checkpointFile(container.folder, seq));
    const path = await this.writeSynced("manifest.json.tmp", encodeManifest(manifest));
    disk.rename(path, manifestFile(container.folder));
    if (options.durability === "sync") {
      await disk.syncFolder(checkpointFolder(container.folder));
      await disk.syncFolder(container.folder);
    }
    this.known = { seq, tail };
    this.manifestDue = container.entries.nodes.count > container.state.durableCount;
  }

  private manifestNow(updatedAt: string): Manifest {
    const { disk, folder, header, end } = this.container;
    if (!this.counted) {
      const { sourceFormat = "native_v2", createdAt = updatedAt } = readManifest(disk, manifestFile(folder)) ?? {};
      this.counted = { sessionId: header.id, sourceFormat, createdAt };
    }
    return this.counters.manifest(end.durable.tail, { ...this.counted, updatedAt });
  }

  /**
   * Writes the manifest of the durable state before the lock is released. Best effort: the next opening works without
   * it.
   */
  publishManifestNow(): void {
    const { container } = this;
    const { disk, options } = container;
    try {
      // A container that was deleted or moved away meanwhile must not be created again.
      if (!container.hasItsHeader()) return;
      const text = encodeManifest(this.manifestNow(timestamp(options.env)));
      const { path, fd } = this.temporary("manifest.json.tmp", text);
      try {
        if (options.durability === "sync") disk.syncNow(fd);
      } finally {
        closeQuietly(disk, fd);
      }
      disk.rename(path, manifestFile(container.folder));
      this.manifestDue = false;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === undefined) throw error;
    }
  }

  private temporary(name: string, text: string): { path: string; fd: number } {
    const { disk, folder } = this.container;
    const path = join(temporaryFolder(folder), name);
    disk.makeFolder(temporaryFolder(folder));
    removeQuietly(disk, path);
    const fd = disk.create(path);
    try {
      writeAll(disk, fd, bytesOf(text));
    } catch (error) {
      closeQuietly(disk, fd);
      removeQuietly(disk, path);
      throw error;
    }
    return { path, fd };
  }

  /** Writes a temporary file, waits until it is on the medium, and returns its path. */
  private async writeSynced(name: string, text: string): Promise<string> {
    const { disk, options } = this.container;
    const { path, fd } = this.temporary(name, text);
    try {
      if (options.durability === "sync") await disk.sync(fd);
    } finally {
      closeQuietly(disk, fd);
    }
    return path;
  }
}
