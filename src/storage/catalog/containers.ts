/** Finds containers of Session Store V2 that are sessions, and reads their stamps and summaries for the catalog. */

import type { Log } from "../../core/ports/store.ts";
import { CONTAINER, getPointerFile, indexFile, POINTER } from "../fs/container-paths.ts";
import type { Disk, FileInfo } from "../fs/disk.ts";
import { useAndClose } from "../fs/files.ts";
import type { FoundStamp } from "../fs/stamps.ts";
import { listContainerFiles } from "../v2/container-files.ts";
import { readActiveSource } from "../v2/pointer.ts";
import { type Scan, type SessionSummary, summariseLog } from "./summary.ts";

/** Returns the name of the container that a pointer file belongs to; undefined for any other name. */
export function getContainerOfPointer(name: string): string | undefined {
  return name.endsWith(POINTER) ? `${name.slice(0, -POINTER.length)}${CONTAINER}` : undefined;
}

/** A container that is a session, with the name of the file that it was migrated from. */
interface FoundContainer {
  readonly stamp: FoundStamp;
  readonly source: string | null;
}

/**
 * Returns a stamp of all files that an append, a move or a rollback changes, with the device and inode of the header
 * file. Returns undefined when there is no session: a container that pi_agent_rust derives from a session file has
 * neither header nor pointer, and one that is being built has no pointer yet.
 */
export function stampContainer(disk: Disk, path: string): FoundContainer | undefined {
  try {
    const source = readActiveSource(disk, path);
    if (source === undefined) return undefined;
    const files = listContainerFiles(disk, path, getPointerFile(path), indexFile(path));
    const [{ device, inode }] = files;
    const sum = (of: (info: FileInfo) => number): number => files.reduce((total, info) => total + of(info), 0);
    const stamp = {
      device,
      inode,
      size: sum(({ size }) => size),
      // Only compared, never read as a time.
      modified: sum(({ inode, modified }) => modified + (inode % 1024)),
      changed: Math.max(...files.map(({ changed = 0 }) => changed)),
    };
    return { stamp, source };
  } catch {
    // It was removed, or may not be read.
    return undefined;
  }
}

/** Returns the size of the files with the session's entries, and its summary. Throws as opening it does. */
export function scanContainer(disk: Disk, path: string, openLog: (path: string) => Log, known?: SessionSummary): Scan {
  return useAndClose(openLog(path), (log) => {
    const { count } = log.nodes;
    const grown = known !== undefined && known.reach <= count && markOf(log, known.reach) === known.mark;
    const summary = summariseLog(log, grown ? known : undefined);
    const base = { ...summary, reach: count, mark: markOf(log, count) };
    const size = listContainerFiles(disk, path).reduce((sum, info) => sum + info.size, 0);
    return { base, now: base, size, grown };
  });
}

function markOf(log: Log, count: number): string {
  return count === 0 ? "" : log.nodes.id(count - 1);
}
