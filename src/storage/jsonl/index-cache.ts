/**
 * Index cache: index snapshots of large JSONL sessions, kept in our state folder so that opening them again need not
 * scan them. A snapshot is derived and used only if the file bears it out: it must be the same file, with the same
 * times if it has not grown, and with the same bytes at both ends of the scanned part and at samples all over it. What
 * comes after that part is scanned as usual. Only sessions in which nothing was damaged, migrated or renamed have a
 * snapshot, so it holds all there is to know.
 */

import type { Env } from "../../core/ports/env.ts";
import type { Nodes } from "../../core/tree/nodes.ts";
import { type Disk, type FileInfo, readAll } from "../fs/disk.ts";
import { snapshotCache } from "../log/snapshot-cache.ts";

/** The facts that a reader has about a file whose lines it has scanned. */
export interface ScannedFile {
  readonly info: FileInfo;
  /** Bytes of the file that were scanned; the last of them is a line feed. */
  readonly size: number;
  readonly lines: number;
  /** Offset of each entry's line, and its length in bytes. */
  readonly starts: Float64Array;
  readonly lengths: Uint32Array;
}

export interface IndexCache {
  /** Fills the empty `nodes` from the snapshot of an open file. Returns null when there is none or it does not hold. */
  load(fd: number, info: FileInfo, nodes: Nodes): Omit<ScannedFile, "info"> | null;
  /** Saves a snapshot of a file, unless the file is small or has grown. Best effort: errors are ignored. */
  store(fd: number, nodes: Nodes, scanned: ScannedFile): void;
}

export interface IndexCacheOptions {
  readonly disk: Disk;
  readonly env: Env;
  readonly stateFolder: string;
  /** See SnapshotCache. */
  readonly minBytes?: number;
}

/** Bytes that are compared at each end of the scanned part; most samples in between; bytes of a sample. */
const EDGE = 4096;
const SAMPLES = 256;
const SAMPLE = 160;

interface SnapshotFacts {
  readonly device: number;
  readonly inode: number;
  readonly size: number;
  readonly modified: number;
  readonly changed: number | null;
  readonly lines: number;
  /** Offsets of the sampled entries. */
  readonly sampled: readonly number[];
  readonly hash: string;
}

export function indexCache(options: IndexCacheOptions): IndexCache {
  const { disk, env, stateFolder } = options;
  const snapshots = snapshotCache(disk, stateFolder, options.minBytes);

  /** Returns a hash of the bytes at both ends of the scanned part and at the samples. */
  const hashOf = (fd: number, size: number, sampled: readonly number[]): string => {
    const edge = Math.min(EDGE, size);
    const bytes = new Uint8Array(2 * edge + sampled.length * SAMPLE);
    readAll(disk, fd, bytes.subarray(0, edge), 0);
    readAll(disk, fd, bytes.subarray(edge, 2 * edge), size - edge);
    for (const [index, start] of sampled.entries()) {
      const at = 2 * edge + index * SAMPLE;
      // A sample includes the line feed before its line.
      const from = Math.max(0, start - 1);
      readAll(disk, fd, bytes.subarray(at, at + Math.min(SAMPLE, size - from)), from);
    }
    return env.sha256(bytes);
  };

  const isOf = (facts: SnapshotFacts, fd: number, info: FileInfo): boolean => {
    if (facts.device !== info.device || facts.inode !== info.inode || facts.size > info.size) return false;
    const untouched = facts.modified === info.modified && facts.changed === (info.changed ?? null);
    if (facts.size === info.size && !untouched) return false;
    return facts.hash === hashOf(fd, facts.size, facts.sampled);
  };

  return {
    load(fd, info, nodes) {
      if (info.size < snapshots.minBytes) return null;
      const snapshot = snapshots.load(info, nodes, (facts) => isOf(facts as SnapshotFacts, fd, info));
      if (!snapshot) return null;
      const { size, lines } = snapshot.facts as SnapshotFacts;
      const { starts, lengths } = snapshot.columns as { starts: Float64Array; lengths: Uint32Array };
      return { size, lines, starts, lengths };
    },

    store(fd, nodes, { info, size, lines, starts, lengths }) {
      if (size < snapshots.minBytes || info.size !== size) return;
      try {
        const { count } = nodes;
        const step = Math.max(1, count / SAMPLES);
        const sampled = Array.from({ length: Math.min(SAMPLES, count) }, (_, n) => starts[Math.floor(n * step)]);
        const facts: SnapshotFacts = {
          device: info.device,
          inode: info.inode,
          size,
          modified: info.modified,
          changed: info.changed ?? null,
          lines,
          sampled,
          hash: hashOf(fd, size, sampled),
        };
        snapshots.store(info, nodes, { columns: { starts, lengths }, facts });
      } catch {
        // The file cannot be read any more; its next opening reports that.
      }
    },
  };
}
