/**
 * The disk for containers of Session Store V2. It follows no link from the container's folder on, even when another
 * program replaces one of the container's folders or files at any time. Above the container the system follows links.
 */

import { splitContainerPath } from "./container-paths.ts";
import type { Disk, OpenFolders } from "./disk.ts";
import { type End, makeLinkError, walkDisk } from "./walked-disk.ts";

/** Returns a disk on which no link leads out of a container; the same disk if that has no links. */
export function containDisk(disk: Disk): Disk {
  const { folders } = disk;
  if (!disk.list) return disk;
  const look: Use = (above, parts, end, run) => {
    requireFolders(disk, above, end === "folder" ? parts : parts.slice(0, -1));
    return run([above, ...parts].join("/"));
  };
  const use = folders ? walk(disk, folders) : look;
  const walked = walkDisk(disk, {
    use(path, end, run) {
      const container = splitContainerPath(path);
      return container ? use(container.above, container.parts, end, (at) => run(at, true)) : run(path, false);
    },
    realPath: (path) => disk.realPath(path),
    makeRoot: (path) => (splitContainerPath(path) ? undefined : disk.makeFolder(path)),
  });
  return {
    ...walked,
    info(path, plain) {
      const container = splitContainerPath(path);
      if (!container) return disk.info(path, plain);
      // Called four times before each append, it reads nothing: checking the folders costs half of opening them.
      requireFolders(disk, container.above, container.parts.slice(0, -1));
      return disk.info(path, true);
    },
    folders,
  };
}

/** Runs an operation with a path to a part of a container, which no link in the container leads away from. */
type Use = <T>(above: string, parts: readonly string[], end: End, run: (path: string) => T) => T;

/** Returns a way that opens each folder of a container from the one above it. */
function walk(disk: Disk, folders: OpenFolders): Use {
  const enter = (at: string): number => {
    try {
      return folders.open(at);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOTDIR" && disk.info(at, true).kind === "link")
        throw makeLinkError(at);
      throw error;
    }
  };
  return (above, parts, end, run) => {
    // The folder above may itself be a link.
    let fd = folders.open(`${above}/.`);
    try {
      for (const part of end === "folder" ? parts : parts.slice(0, -1)) {
        const next = enter(`${folders.path(fd)}/${part}`);
        disk.close(fd);
        fd = next;
      }
      return run(`${folders.path(fd)}/${end === "folder" ? "." : parts.at(-1)}`);
    } finally {
      disk.close(fd);
    }
  };
}

/** Throws ELOOP when one of the folders `parts` below `above` is a link. */
function requireFolders(disk: Disk, above: string, parts: readonly string[]): void {
  let at = above;
  for (const part of parts) {
    at = `${at}/${part}`;
    if (disk.info(at, true).kind === "link") throw makeLinkError(at);
  }
}
