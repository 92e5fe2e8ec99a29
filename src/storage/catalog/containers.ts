/** What the catalog needs to know of Session Store V2 containers: which folders are such sessions, and what they tell. */

import { join } from "node:path";
import type { FileStamp, Log } from "../../core/ports/store.ts";
import {
  CONTAINER,
  headerFile,
  indexFile,
  isContainerName,
  pointerFile,
  segmentFolder,
} from "../fs/container-paths.ts";
import { type Disk, exists, type FileInfo } from "../fs/disk.ts";
import { isActive } from "../v2/pointer.ts";
import { type Figures, figuresOfLog, type Scan } from "./summary.ts";

export { isContainerName };

const POINTER = ".store.json";

/** The name of the container that a file beside it speaks of; undefined for any other name. */
export function containerOfPointer(name: string): string | undefined {
  return name.endsWith(POINTER) ? `${name.slice(0, -POINTER.length)}${CONTAINER}` : undefined;
}

/**
 * A stamp of everything that an append, a move or a rollback changes; the header's file stands for the container.
 * Undefined when no session stands there: what pi_agent_rust derives from a session file has neither header nor
 * pointer, and what is being made has no pointer yet.
 */
export function stampOfContainer(disk: Disk, path: string): (FileStamp & { changed: number }) | undefined {
  try {
    if (!isActive(disk, path)) return undefined;
    const header = disk.info(headerFile(path));
    const files = [header, ...segmentsOf(disk, path)];
    for (const part of [pointerFile(path), indexFile(path)]) {
      const info = infoOrNull(disk, part);
      if (info) files.push(info);
    }
    const sum = (of: (info: FileInfo) => number): number => files.reduce((total, info) => total + of(info), 0);
    return {
      device: header.device,
      inode: header.inode,
      size: sum(({ size }) => size),
      // Only compared, never read as a time.
      modified: sum(({ inode, modified }) => modified + (inode % 1024)),
      changed: Math.max(...files.map(({ changed = 0 }) => changed)),
    };
  } catch {
    // It went away, or may not be read.
    return undefined;
  }
}

/**
 * Returns when a session was changed last, in milliseconds; undefined when nothing is there. Of a container, the files
 * that hold the session count: checkpoints, manifest and index are also written by closing it.
 */
export function changeTime(disk: Disk, path: string): number | undefined {
  try {
    if (!isContainerName(path)) return disk.info(path).modified;
    const pointer = infoOrNull(disk, pointerFile(path));
    const files = [disk.info(headerFile(path)), ...(pointer ? [pointer] : []), ...segmentsOf(disk, path)];
    return Math.max(...files.map(({ modified }) => modified));
  } catch {
    // It went away, or may not be read.
    return undefined;
  }
}

/** Bytes of the files that hold the session's entries, and its figures. Throws what opening it throws. */
export function scanContainer(
  disk: Disk,
  path: string,
  openLog: (path: string) => Log,
  known?: Figures,
): Scan & { grown: boolean } {
  const log = openLog(path);
  try {
    const { count } = log.nodes;
    const grown = known !== undefined && known.reach <= count && markOf(log, known.reach) === known.mark;
    const figures = figuresOfLog(log, grown ? known : undefined);
    const base = { ...figures, reach: count, mark: markOf(log, count) };
    const size = [disk.info(headerFile(path)), ...segmentsOf(disk, path)].reduce((sum, info) => sum + info.size, 0);
    return { base, now: base, size, grown };
  } finally {
    log.close();
  }
}

function markOf(log: Log, count: number): string {
  return count === 0 ? "" : log.nodes.id(count - 1);
}

function segmentsOf(disk: Disk, path: string): FileInfo[] {
  const folder = segmentFolder(path);
  // A copy of a session without entries may have left it out.
  if (!exists(disk, folder)) return [];
  return disk
    .names(folder)
    .filter((name) => name.endsWith(".seg"))
    .map((name) => disk.info(join(folder, name)));
}

function infoOrNull(disk: Disk, path: string): FileInfo | null {
  try {
    return disk.info(path);
  } catch {
    return null;
  }
}
