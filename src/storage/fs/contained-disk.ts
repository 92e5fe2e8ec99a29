/**
 * The disk for containers of Session Store V2. It follows no link from the container's folder on, even when another
 * program replaces one of the container's folders or files at any time. Above the container the system follows links.
 */

import { basename, dirname } from "node:path";
import { partsOfContainer } from "./container-paths.ts";
import type { Disk, OpenFolders } from "./disk.ts";
import { linkError, type Way, walkedDisk } from "./walked-disk.ts";

/** Returns a disk on which no link leads out of a container; the same disk when that has no links. */
export function containedDisk(disk: Disk): Disk {
  if (!disk.list) return disk;
  const walked = walkedDisk(disk, disk.folders ? walkWay(disk, disk.folders) : lookWay(disk));
  const of = (path: string): Disk => (partsOfContainer(path) ? walked : disk);
  const { watch, folders } = disk;
  return {
    openRead: (path, plain) => of(path).openRead(path, plain),
    openAppend: (path, plain) => of(path).openAppend(path, plain),
    create: (path) => of(path).create(path),
    close: (fd) => disk.close(fd),
    read: (fd, into, offset, length, position) => disk.read(fd, into, offset, length, position),
    write: (fd, bytes) => disk.write(fd, bytes),
    infoOf: (fd) => disk.infoOf(fd),
    info(path, plain) {
      const container = partsOfContainer(path);
      if (!container) return disk.info(path, plain);
      // This is called four times before each append, and reads nothing: checking the folders costs half as much as
      // opening them.
      demandFolders(disk, container.above, container.parts.slice(0, -1));
      return disk.info(path, true);
    },
    truncate: (fd, size) => disk.truncate(fd, size),
    sync: (fd) => disk.sync(fd),
    syncNow: (fd) => disk.syncNow(fd),
    syncFolder: (path) => of(path).syncFolder(path),
    syncFolderNow: (path) => of(path).syncFolderNow(path),
    link: (path, name) => (of(path) === walked ? walked : of(name)).link(path, name),
    rename: (path, name) => (of(path) === walked ? walked : of(name)).rename(path, name),
    remove: (path) => of(path).remove(path),
    removeFolder: (path) => of(path).removeFolder(path),
    makeFolder: (path) => of(path).makeFolder(path),
    names: (path) => of(path).names(path),
    list: (path) => of(path).list?.(path) ?? [],
    watch: watch && ((path, changed) => watch.call(disk, path, changed)),
    realPath: (path) => disk.realPath(path),
    copyMode: (from, to) => of(from).copyMode(from, to),
    folders,
  };
}

/** Opens each folder of a container from the one above it. */
function walkWay(disk: Disk, folders: OpenFolders): Way {
  const enter = (at: string): number => {
    try {
      return folders.open(at);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOTDIR" && disk.info(at, true).kind === "link")
        throw linkError(at);
      throw error;
    }
  };
  return {
    plain: true,
    use(path, end, run) {
      const { above, parts } = partsOf(path);
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
    },
    realPath: (path) => disk.realPath(path),
  };
}

/** Checks each folder before the path is used, on systems where folders cannot be held open. */
function lookWay(disk: Disk): Way {
  return {
    plain: true,
    use(path, end, run) {
      const { above, parts } = partsOf(path);
      demandFolders(disk, above, end === "folder" ? parts : parts.slice(0, -1));
      return run(path);
    },
    realPath: (path) => disk.realPath(path),
  };
}

/** Returns the parts of a path; outside of containers, only the last is ours to follow. */
function partsOf(path: string): { above: string; parts: string[] } {
  return partsOfContainer(path) ?? { above: dirname(path), parts: [basename(path)] };
}

/** Throws ELOOP when one of the folders `parts` below `above` is a link. */
function demandFolders(disk: Disk, above: string, parts: readonly string[]): void {
  let at = above;
  for (const part of parts) {
    at = `${at}/${part}`;
    if (disk.info(at, true).kind === "link") throw linkError(at);
  }
}
