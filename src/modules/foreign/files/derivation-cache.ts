/**
 * Caches the entries derived from large files of other agents in our state folder, so that opening them again
 * translates nothing: 100 MB take a twentieth of the time. A cache file is valid for one stamp of the agent's file and
 * for one build of this program. It is made anew if either changed, or if it is damaged.
 *
 * Layout: the lines of the entries; an index snapshot (`log/snapshot-cache.ts`) with their offsets and the facts below;
 * the offset of that snapshot, 8 bytes. A cache file is complete before it has its name.
 */

import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { crc32 } from "node:zlib";
import type { Damage } from "../../../core/format/damage.ts";
import { toBytes } from "../../../core/json/json.ts";
import type { Env } from "../../../core/ports/env.ts";
import type { FidelityReport } from "../../../core/ports/fidelity.ts";
import { Nodes } from "../../../core/tree/nodes.ts";
import { closeQuietly, type Disk, readWhole, realDisk, removeQuietly, writeAll } from "../../../storage/fs/disk.ts";
import { getInfo, putInPlaceNow, readAt, useFile } from "../../../storage/fs/files.ts";
import { listNames } from "../../../storage/fs/folders.ts";
import type { Stamp } from "../../../storage/fs/stamps.ts";
import { readIndexSnapshot, writeIndexSnapshot } from "../../../storage/log/snapshot-cache.ts";
import type { AboutSession } from "../read/translator.ts";

/** Bytes of an agent's file from which on a cache pays: less is translated in a tenth of a second. */
const WORTH_KEEPING = 4 << 20;
/** Bytes that are kept of one session, and of all. */
const MOST = 256 << 20;
const MOST_OF_ALL = 512 << 20;
const ENDING = ".kept";
/** Bytes of one read. */
const PIECE = 1 << 20;
const TRAILER = 8;

/** The facts of a session that are not in its lines. */
export interface CachedSession {
  readonly about: AboutSession;
  readonly fidelity: FidelityReport;
  readonly damage: readonly Damage[];
  /** Entries that were settled; those after them waited. */
  readonly settled: number;
}

interface KeptFacts extends CachedSession {
  readonly build: string;
  readonly file: string;
  readonly stamp: readonly (number | undefined)[];
  readonly crc: number;
}

/** Lines of a kept session, in an open file. */
export interface CachedLines {
  readonly fd: number;
  /** Start of each line, and the end of the last one; there may be spare elements after it. */
  readonly starts: Float64Array;
}

/** The lines that are kept, as they are now. */
interface LinesToKeep {
  readonly count: number;
  readonly size: number;
  readonly starts: Float64Array;
  copy(positions: ArrayLike<number>): Iterable<Uint8Array>;
}

/** Set by the build: a hash of the sources. */
declare const SOURCES: string | undefined;

/** This program, which decides the result; null if neither the build nor a file of it identifies it. */
let build: string | null | undefined;

function buildOf(): string | null {
  if (build !== undefined) return build;
  try {
    const sources = typeof SOURCES === "string" ? SOURCES : crc32(readWhole(realDisk, fileURLToPath(import.meta.url)));
    build = `${process.version} ${sources}`;
  } catch {
    build = null;
  }
  return build;
}

export class DerivationCache {
  private readonly disk: Disk;
  private readonly folder: string;
  private readonly sha256: Env["sha256"];
  private readonly worthKeeping: number;

  constructor(disk: Disk, folder: string, sha256: Env["sha256"], worthKeeping = WORTH_KEEPING) {
    this.disk = disk;
    this.folder = folder;
    this.sha256 = sha256;
    this.worthKeeping = worthKeeping;
  }

  private pathOf(file: string): string {
    return join(this.folder, `${this.sha256(toBytes(file)).slice(0, 32)}${ENDING}`);
  }

  /** Reads the cache of a file with this stamp into the empty `nodes`; null without a valid one. Never throws. */
  open(file: string, stamp: Stamp, nodes: Nodes): (CachedSession & CachedLines) | null {
    if (stamp.size < this.worthKeeping || buildOf() === null) return null;
    const { disk } = this;
    let fd: number;
    try {
      fd = disk.openRead(this.pathOf(file), true);
    } catch {
      return null;
    }
    try {
      const from = this.snapshotIn(fd);
      const wanted = (facts: unknown): boolean => {
        const { build, file: of, stamp: at, crc } = facts as KeptFacts;
        const isOf = build === buildOf() && of === file && String(at) === String(partsOf(stamp));
        return isOf && crc === this.sumOf(fd, from);
      };
      const found = readIndexSnapshot(disk, fd, nodes, from, wanted);
      const starts = found?.columns.starts;
      if (found && starts instanceof Float64Array) return { ...(found.facts as KeptFacts), fd, starts };
    } catch {
      // It is made anew.
    }
    closeQuietly(disk, fd);
    return null;
  }

  /** Caches the entries derived from a file with this stamp. Never throws: they can be derived again. */
  keep(file: string, stamp: Stamp, lines: LinesToKeep, nodes: Nodes, session: CachedSession): void {
    const build = buildOf();
    if (build === null || stamp.size < this.worthKeeping || lines.size > MOST) return;
    const { disk } = this;
    const path = this.pathOf(file);
    try {
      disk.makeFolder(dirname(path));
      const fill = (fd: number): void => {
        let crc = 0;
        let from = 0;
        for (const piece of lines.copy(Array.from({ length: lines.count }, (_, position) => position))) {
          crc = crc32(piece, crc);
          writeAll(disk, fd, piece);
          from += piece.length;
        }
        const facts: KeptFacts = { ...session, build, file, stamp: partsOf(stamp), crc };
        writeIndexSnapshot(disk, fd, nodes, { columns: { starts: lines.starts }, facts });
        const trailer = new DataView(new ArrayBuffer(TRAILER));
        trailer.setFloat64(0, from, true);
        writeAll(disk, fd, new Uint8Array(trailer.buffer));
      };
      putInPlaceNow(disk, path, fill, { replace: true, sync: false });
      this.bound();
    } catch {
      // A full disk, or one that is only read.
    }
  }

  /** Removes those whose own file is gone, which may have gone for a reason, and the first made when there is too much. */
  private bound(): void {
    const { disk, folder } = this;
    const kept = listNames(disk, folder)
      .filter((name) => name.endsWith(ENDING))
      .map((name) => ({ path: join(folder, name), info: getInfo(disk, join(folder, name), true) }))
      .sort((a, b) => (b.info?.modified ?? 0) - (a.info?.modified ?? 0));
    let size = 0;
    for (const { path, info } of kept) {
      size += info?.size ?? 0;
      if (size > MOST_OF_ALL || this.isOfNone(path)) removeQuietly(disk, path);
    }
  }

  /** Returns whether a cache file belongs to a missing file, or is damaged. */
  private isOfNone(path: string): boolean {
    const { disk } = this;
    let file: string | undefined;
    const note = (facts: unknown): boolean => {
      file = (facts as KeptFacts).file;
      return false;
    };
    try {
      useFile(disk, disk.openRead(path, true), (fd) =>
        readIndexSnapshot(disk, fd, new Nodes(), this.snapshotIn(fd), note),
      );
    } catch {
      return true;
    }
    return file === undefined || getInfo(disk, file) === null;
  }

  /** Returns the start of the index snapshot in a cache file. */
  private snapshotIn(fd: number): number {
    const { disk } = this;
    const trailer = Uint8Array.from(readAt(disk, fd, disk.infoOf(fd).size - TRAILER, TRAILER));
    return new DataView(trailer.buffer).getFloat64(0, true);
  }

  private sumOf(fd: number, end: number): number {
    let crc = 0;
    for (let at = 0; at < end; at += PIECE) crc = crc32(readAt(this.disk, fd, at, Math.min(PIECE, end - at)), crc);
    return crc;
  }
}

function partsOf({ device, inode, size, modified, changed }: Stamp): (number | undefined)[] {
  return [device, inode, size, modified, changed];
}
