/** A disk whose paths we follow ourselves, part by part, instead of the system. */

import { dirname } from "node:path";
import { isErrno } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { type Disk, type FileInfo, makeFolders } from "./disk.ts";
import { useFile } from "./files.ts";
import { readDiskClock } from "./stamps.ts";

/** The subject of an operation when its path ends in a link: the link itself, its target, or its target as a folder. */
export type End = "itself" | "followed" | "folder";

/** A way to follow paths. */
export interface Way {
  /**
   * Runs an operation with another path to the same file, which is valid only while the operation runs. `plain`: that
   * path may end in a link, which the system must not follow.
   */
  use<T>(path: string, end: End, run: (path: string, plain: boolean) => T): T;
  realPath(path: string): string;
  /** Creates a folder that is not walked to, and those above it. Returns them, undefined for any other folder. */
  makeRoot?(path: string): string[] | undefined;
}

/** Returns the error for a link where no link is permitted. */
export function makeLinkError(path: string): Error {
  return Object.assign(new Error(`ELOOP: ${path} is a link`), { code: "ELOOP" });
}

/** Returns a disk on which `way` follows all paths. */
export function walkDisk(disk: Disk, way: Way): Disk {
  const { folders, inFolder, list, setMode, setModified, space, watch } = disk;

  const info = (path: string, ofLink?: boolean): FileInfo =>
    way.use(path, ofLink ? "itself" : "followed", (at, plain) => {
      const found = disk.info(at, plain || ofLink);
      if (found.kind === "link" && !ofLink) throw makeLinkError(path);
      return found;
    });

  const isThere = (path: string): boolean => {
    try {
      info(path);
      return true;
    } catch (error) {
      // A forbidden folder is not a missing one.
      if (error instanceof Failure || !isErrno(error)) throw error;
      return false;
    }
  };

  const makeOne = (path: string): void => {
    way.use(path, "itself", (at) => {
      if (folders) folders.make(at);
      else if (disk.makeFolder(at).length === 0)
        throw Object.assign(new Error("the name is taken"), { code: "EEXIST" });
    });
    way.use(dirname(path), "folder", (at) => disk.syncFolderNow(at));
  };

  return {
    openRead: (path, ofFile) => way.use(path, "followed", (at, plain) => disk.openRead(at, plain || ofFile)),
    openAppend: (path, ofFile) => way.use(path, "followed", (at, plain) => disk.openAppend(at, plain || ofFile)),
    create: (path) => way.use(path, "itself", (at) => disk.create(at)),
    close: (fd) => disk.close(fd),
    read: (fd, into, offset, length, position) => disk.read(fd, into, offset, length, position),
    write: (fd, bytes) => disk.write(fd, bytes),
    infoOf: (fd) => disk.infoOf(fd),
    info,
    truncate: (fd, size) => disk.truncate(fd, size),
    sync: (fd, offThread) => disk.sync(fd, offThread),
    syncNow: (fd) => disk.syncNow(fd),
    // `disk.syncFolder` opens the folder before it returns.
    syncFolder: async (path) => way.use(path, "folder", (at) => disk.syncFolder(at)),
    syncFolderNow: (path) => way.use(path, "folder", (at) => disk.syncFolderNow(at)),
    link: (path, name) => way.use(path, "itself", (from) => way.use(name, "itself", (to) => disk.link(from, to))),
    rename: (path, name) => way.use(path, "itself", (from) => way.use(name, "itself", (to) => disk.rename(from, to))),
    remove: (path) => way.use(path, "itself", (at) => disk.remove(at)),
    removeFolder: (path) => way.use(path, "itself", (at) => disk.removeFolder(at)),
    makeFolder(path) {
      let root: string[] | undefined;
      const isMade = (at: string): boolean => {
        if (isThere(at)) return true;
        root = way.makeRoot?.(at);
        return root !== undefined;
      };
      const made = makeFolders(path, isMade, makeOne);
      return root ? [...root, ...made] : made;
    },
    names: (folder) => way.use(folder, "folder", (at) => disk.names(at)),
    list: list && ((folder) => way.use(folder, "folder", (at) => list.call(disk, at))),
    watch: watch && ((folder, changed) => way.use(folder, "folder", (at) => watch.call(disk, at, changed))),
    setModified: setModified && ((fd, modified) => setModified.call(disk, fd, modified)),
    setMode: setMode && ((folder, mode) => way.use(folder, "folder", (at) => setMode.call(disk, at, mode))),
    inFolder:
      inFolder &&
      (<T>(folder: string, use: (path: string, disk: Disk) => T): T =>
        way.use(folder, "itself", (at) => inFolder.call(disk, at, use) as T)),
    space: space && ((folder) => way.use(folder, "folder", (at) => space.call(disk, at))),
    realPath: (path) => way.realPath(path),
    clock: () => readDiskClock(disk),
    copyMode(from, to) {
      way.use(from, "followed", (at, plain) => {
        if (!plain || !folders) disk.copyMode(at, to);
        else useFile(disk, disk.openRead(at, plain), (fd) => disk.copyMode(folders.path(fd), to));
      });
    },
  };
}
