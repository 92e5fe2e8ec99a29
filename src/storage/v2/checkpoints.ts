/** Marks the durable end of a container: writes checkpoints, and a manifest of the same state (seed 003). */

import { join } from "node:path";
import { isNoFile, toUnfinishedFailure } from "../../core/errno.ts";
import { toBytes } from "../../core/json/json.ts";
import { makeTimestamp } from "../../core/ports/env.ts";
import { Column, type Nodes } from "../../core/tree/nodes.ts";
import {
  checkpointFile,
  checkpointFolder,
  makeNumberedName,
  manifestFile,
  parseNumberedName,
  temporaryFolder,
} from "../fs/container-paths.ts";
import { closeQuietly, type Disk, readWhole, removeQuietly, renameExclusive, writeAll } from "../fs/disk.ts";
import { readIfFile, useFile } from "../fs/files.ts";
import type { Container } from "./container.ts";
import {
  CHECKPOINT_SCHEMA,
  type Checkpoint,
  type CheckpointReason,
  encodeCheckpoint,
  encodeManifest,
  getSnapshotRef,
  type Manifest,
  parseCheckpoint,
  readManifest,
  SOUND,
  sealManifest,
} from "./documents.ts";
import type { Tail } from "./extents.ts";
import { Malformed } from "./frame.ts";
import type { Snapshots } from "./snapshots.ts";

/** The highest number of a checkpoint, and the end that the last valid one marks. */
interface KnownCheckpoint {
  readonly seq: number;
  readonly tail: Pick<Tail, "entrySeq" | "bytesTotal">;
}

export function makeCheckpoint(
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
    snapshotRef: getSnapshotRef(seq),
    compactedBeforeEntrySeq: 0,
    chainHash: integrity.chainHash,
    reason,
  };
}

/** Returns the numbers of the checkpoints that are there, the last one first. */
function checkpointSeqs(disk: Disk, container: string): number[] {
  // A copy that leaves out empty folders has no such folder.
  const names = readIfFile(() => disk.names(checkpointFolder(container))) ?? [];
  return names
    .map((name) => parseNumberedName(name, "json"))
    .filter((seq) => seq > 0)
    .sort((a, b) => b - a);
}

/**
 * Returns the last valid checkpoint, or null. The data that it names was on the medium before it. A partial one is ignored
 * (seed 003, "Checkpoint failure").
 */
export function readLastCheckpoint(disk: Disk, container: string): Checkpoint | null {
  for (const seq of checkpointSeqs(disk, container))
    try {
      return parseCheckpoint(readWhole(disk, checkpointFile(container, seq)), seq);
    } catch (error) {
      if (!(error instanceof Malformed || isNoFile(error))) throw error;
    }
  return null;
}

/** Members of a manifest that cannot be computed from frames. */
type Counted = Pick<Manifest, "sessionId" | "sourceFormat" | "createdAt">;

/** Counters of a manifest, updated as entries become durable, so that writing one costs the same at any size. */
export class ManifestCounters {
  private readonly nodes: Nodes;
  private count = 0;
  private messages = 0;
  private compactions = 0;
  private branches = 0;
  /** Number of children of each node, as far as it matters: none, one, more. */
  private readonly children = new Column(new Uint8Array(16));

  constructor(nodes: Nodes) {
    this.nodes = nodes;
  }

  /** Returns the manifest of a store that ends at `tail`, whose entries are durable: counting them cannot be undone. */
  manifest(tail: Tail, values: Counted & { readonly updatedAt: string }): Manifest {
    const { nodes } = this;
    for (; this.count < tail.entrySeq; this.count++) {
      const position = this.count;
      this.children.set(position, this.children.values[position] ?? 0);
      if (nodes.isType(position, "message")) this.messages++;
      else if (nodes.isType(position, "compaction")) this.compactions++;
      const parent = nodes.parent(position);
      if (parent < 0) continue;
      const before = this.children.values[parent] ?? 0;
      if (before === 1) this.branches++;
      if (before < 2) this.children.set(parent, before + 1);
    }
    return sealManifest({
      ...values,
      head: {
        segmentSeq: tail.segmentSeq,
        entrySeq: tail.entrySeq,
        entryId: tail.entrySeq === 0 ? "" : nodes.id(tail.entrySeq - 1),
      },
      counters: {
        entriesTotal: tail.entrySeq,
        messagesTotal: this.messages,
        branchesTotal: this.branches,
        compactionsTotal: this.compactions,
        bytesTotal: tail.bytesTotal,
      },
      segmentCount: tail.segmentCount,
      chainHash: tail.chainHash,
      lastCrc32c: tail.lastCrc,
      invariants: { ...SOUND, parentLinksClosed: nodes.missingParent.size === 0 },
    });
  }
}

export class Checkpoints {
  private readonly container: Container;
  private readonly snapshots: Snapshots;
  private readonly counters: ManifestCounters;
  /** Members of the manifest that are not computed; null until they are known. */
  counted: Counted | null = null;
  /** True if the manifest on disk is not that of the durable state. */
  manifestDue = false;
  private known: KnownCheckpoint | null = null;

  constructor(container: Container, snapshots: Snapshots) {
    this.container = container;
    this.snapshots = snapshots;
    this.counters = new ManifestCounters(container.entries.nodes);
  }

  /** True if a checkpoint is due since the last known one, or none is known. */
  get isDue(): boolean {
    return this.known === null || this.isFarFrom(this.known.tail);
  }

  isFarFrom(checkpointed: KnownCheckpoint["tail"]): boolean {
    const { entries, bytes } = this.container.options.checkpointEvery;
    const { tail } = this.container.end.durable;
    return tail.entrySeq - checkpointed.entrySeq >= entries || tail.bytesTotal - checkpointed.bytesTotal >= bytes;
  }

  /**
   * Returns the end that the last valid checkpoint marks, and the highest number of any checkpoint: numbers of invalid
   * ones are not used again. Opening the container has checked that the checkpoint fits the entries.
   */
  last(): KnownCheckpoint {
    if (this.known) return this.known;
    const { disk, folder } = this.container;
    const [seq = 0] = checkpointSeqs(disk, folder);
    const entrySeq = readLastCheckpoint(disk, folder)?.headEntrySeq ?? 0;
    let bytesTotal = 0;
    if (this.snapshots.count === entrySeq)
      for (const length of this.container.extents.lengths.values.subarray(0, entrySeq)) bytesTotal += length;
    this.known = { seq, tail: { entrySeq, bytesTotal } };
    return this.known;
  }

  /** Makes the next {@link last} look again, because other processes may have made checkpoints meanwhile. */
  forget(): void {
    this.known = null;
  }

  /** Makes a checkpoint of the durable end, and writes a manifest of the same state (INV-004). */
  async make(reason: CheckpointReason): Promise<void> {
    const { container } = this;
    const { disk, options } = container;
    const { tail } = container.end.durable;
    const seq = this.last().seq + 1;
    const at = makeTimestamp(options.env);
    const manifest = this.manifestNow(at);
    const checkpoint = makeCheckpoint(manifest, seq, at, reason);
    const mark = await this.writeSynced(`${makeNumberedName(seq, "json")}.tmp`, encodeCheckpoint(checkpoint));
    // The name may be taken although this was refused.
    this.forget();
    renameExclusive(disk, mark, checkpointFile(container.folder, seq));
    this.known = { seq, tail };
    container.end.chains.set(tail.entrySeq, tail.chainHash);
    try {
      const path = await this.writeSynced("manifest.json.tmp", encodeManifest(manifest));
      disk.rename(path, manifestFile(container.folder));
      if (options.durability === "sync") {
        await disk.syncFolder(checkpointFolder(container.folder));
        await disk.syncFolder(container.folder);
      }
    } catch (error) {
      const sentences = `Checkpoint ${seq} is there, but it or the manifest of the same state may be lost with the power. The next one that is made gets the next number.`;
      throw toUnfinishedFailure(error, "making a checkpoint", sentences);
    }
    this.manifestDue = container.entries.nodes.count > container.state.durableCount;
  }

  private manifestNow(updatedAt: string): Manifest {
    const { disk, folder, header, end } = this.container;
    if (!this.counted) {
      const { sourceFormat = "native_v2", createdAt = updatedAt } = readManifest(disk, manifestFile(folder)) ?? {};
      this.counted = { sessionId: header.id, sourceFormat, createdAt };
    }
    const { sessionId, sourceFormat, createdAt } = this.counted;
    return this.counters.manifest(end.durable.tail, { sessionId, sourceFormat, createdAt, updatedAt });
  }

  /** Writes the manifest of the durable state, before the lock is released. Best effort: openings work without it. */
  publishManifestNow(): void {
    const { container } = this;
    const { disk, options } = container;
    try {
      // A container that was deleted or moved away meanwhile must not be created again.
      if (!container.hasItsHeader()) return;
      const text = encodeManifest(this.manifestNow(makeTimestamp(options.env)));
      const { path, fd } = this.temporary("manifest.json.tmp", text);
      useFile(disk, fd, () => options.durability === "sync" && disk.syncNow(fd));
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
      writeAll(disk, fd, toBytes(text));
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
    await useFile(disk, fd, async () => options.durability === "sync" && (await disk.sync(fd)));
    return path;
  }
}
