/** The file operations that we use. Only this file imports node:fs; tests pass a disk that fails. */

import * as fs from "node:fs";
import { basename, dirname, join } from "node:path";
import { isErrno, isMissing } from "../../core/errno.ts";
import { concat } from "../../core/json/json.ts";
import { makeAdaptiveSync } from "./adaptive-sync.ts";
import { readClock } from "./clock.ts";

export interface FileInfo {
  /** `link` only where links are not followed. */
  readonly kind: "file" | "folder" | "link" | "other";
  readonly size: number;
  /** Milliseconds. */
  readonly modified: number;
  readonly device: number;
  readonly inode: number;
  /** Permission bits. */
  readonly mode: number;
  /** Last change of content, name or permissions, in milliseconds; no program can set it back. Not on every disk. */
  readonly changed?: number;
  /** Number of names the file has. */
  readonly links?: number;
  /** User id, where the system and the disk have one. */
  readonly owner?: number;
}

/** A name in a folder, with the kind of file it names. */
export interface Named {
  readonly name: string;
  /** Its own kind, not that of a link's target. */
  readonly kind: "file" | "folder" | "link" | "other";
}

/** Folders that are held open, so that a path can begin in one and no link in its own path redirects it later. */
export interface OpenFolders {
  /** Opens a folder as the beginning of paths. Throws ENOTDIR for anything else, including a link. */
  open(path: string): number;
  /** Returns the prefix of paths that begin in an open folder. */
  path(fd: number): string;
  /** Returns the current path of an open folder. */
  pathOf(fd: number): string;
  /** Creates one folder with mode 0700. */
  make(path: string): void;
  /** Returns the target of a link as it is stored. Throws EINVAL when the path is not a link. */
  readLink(path: string): string;
}

/**
 * Operations on files and folders; two wait for the medium. Errors are errno errors. `plain`: a last link is not
 * followed.
 */
export interface Disk {
  /** Opens for reading. Never waits, even for a FIFO, whose kind {@link infoOf} shows. `plain`: ELOOP for a link. */
  openRead(path: string, plain?: boolean): number;
  /** Opens an existing file for reading and for writing at its end. `plain`: throws ELOOP for a link. */
  openAppend(path: string, plain?: boolean): number;
  /** Creates a file with mode 0600, which must not exist, for reading and for writing at its end. */
  create(path: string): number;
  close(fd: number): void;
  /** Returns the number of bytes read, 0 at the end. */
  read(fd: number, into: Uint8Array, offset: number, length: number, position: number): number;
  /** Returns the number of bytes written, which may be fewer than given. */
  write(fd: number, bytes: Uint8Array): number;
  infoOf(fd: number): FileInfo;
  /** Follows links. `plain`: describes the link itself. */
  info(path: string, plain?: boolean): FileInfo;
  truncate(fd: number, size: number): void;
  /** Waits until the file's content is on the medium. `offThread`: on another thread, even if the medium is quick. */
  sync(fd: number, offThread?: boolean): Promise<void>;
  /** Does the same, blocking everything else: for a file that gets its name next. */
  syncNow(fd: number): void;
  /** Waits until a folder's names are on the medium. */
  syncFolder(path: string): Promise<void>;
  /** Does the same, blocking everything else. */
  syncFolderNow(path: string): void;
  /** Gives a file a second name, which must not exist. */
  link(path: string, name: string): void;
  rename(path: string, name: string): void;
  remove(path: string): void;
  /** Removes an empty folder. */
  removeFolder(path: string): void;
  /** Creates a folder and those missing above it with mode 0700, syncs their names, and returns them, topmost first. */
  makeFolder(path: string): string[];
  names(folder: string): string[];
  /** Returns the names with their kinds; on a disk without it, callers get the kind of each name from `info`. */
  list?(folder: string): Named[];
  /**
   * Calls `changed` with the name of each change in a folder (null: any name), at the latest when the event loop has
   * polled once after the change. Returns a function that stops it, or undefined if the disk cannot guarantee that.
   */
  watch?(folder: string, changed: (name: string | null) => void): (() => void) | undefined;
  realPath(path: string): string;
  /** Gives an open file the permission bits of another and, where permitted, its owner. */
  copyMode(from: string, to: number): void;
  /** Sets the modification time of an open file, in milliseconds; only its owner may. Missing on a disk that cannot. */
  setModified?(fd: number, modified: number): void;
  /** Sets the permission bits of a folder, in {@link inFolder} of anything; missing on a disk that cannot. */
  setMode?(path: string, mode: number): void;
  /** Returns the bytes of a folder's file system, and how many of them this user may still write; missing if unknown. */
  space?(folder: string): { free: number; total: number };
  /** Returns the time of the clock that stamps files, in milliseconds; the system's clock by default. */
  clock?: () => number;
  /**
   * Runs `use` with a path to a folder that means the same folder until it returns, even if the folder is renamed, and
   * with a disk for paths that begin there. The path is short where the system can have one: a socket's has 108 bytes
   * at most. Throws ENOTDIR for a link; `<folder>/.` follows it. Missing on a disk without sockets.
   */
  inFolder?<T>(folder: string, use: (path: string, disk: Disk) => T): T;
  /** Undefined where the system has no paths that begin in an open folder. */
  readonly folders?: OpenFolders;
}

const { O_APPEND, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_RDWR } = fs.constants;
const { S_IFMT, S_IFREG } = fs.constants;
/** The flag's value in Linux wherever Node runs. The descriptor only names the folder: no right to read it is needed. */
const O_PATH = 0o10000000;
/** Folder of this process's open files on Linux; `<descriptor>/<name>` in it opens the file that openat(2) would. */
const DESCRIPTORS = "/proc/self/fd";

/** Null if the system has none; undefined before the check. */
let openFolders: OpenFolders | null | undefined;

function findOpenFolders(): OpenFolders | null {
  if (process.platform !== "linux") return null;
  const open = (path: string): number => fs.openSync(path, O_PATH | O_DIRECTORY | O_NOFOLLOW);
  const path = (fd: number): string => `${DESCRIPTORS}/${fd}`;
  const place = (fd: number): string => fs.readlinkSync(path(fd));
  const make = (at: string): void => {
    fs.mkdirSync(at, 0o700);
    // A umask may have removed bits of the owner. Set through the open folder: its path may be replaced meanwhile.
    const fd = open(at);
    try {
      if ((fs.fstatSync(fd).mode & 0o777) !== 0o700) fs.chmodSync(path(fd), 0o700);
    } finally {
      fs.closeSync(fd);
    }
  };
  try {
    const fd = open("/");
    try {
      // /proc may be missing or hidden from us.
      return place(fd) === "/" && fs.statSync(`${path(fd)}/.`).isDirectory()
        ? { open, path, pathOf: place, make, readLink: (at) => fs.readlinkSync(at) }
        : null;
    } finally {
      fs.closeSync(fd);
    }
  } catch {
    return null;
  }
}

export const realDisk: Disk = {
  openRead: (path, plain) => fs.openSync(path, O_RDONLY | (O_NONBLOCK ?? 0) | noFollow(plain)),
  openAppend: (path, plain) => fs.openSync(path, O_RDWR | O_APPEND | (O_NONBLOCK ?? 0) | noFollow(plain)),
  create(path) {
    const fd = fs.openSync(path, O_RDWR | O_APPEND | O_CREAT | O_EXCL, 0o600);
    try {
      // A umask may have removed bits of the owner.
      fs.fchmodSync(fd, 0o600);
      return fd;
    } catch (error) {
      closeQuietly(realDisk, fd);
      removeQuietly(realDisk, path);
      throw error;
    }
  },
  close: (fd) => fs.closeSync(fd),
  read: (fd, into, offset, length, position) => fs.readSync(fd, into, offset, length, position),
  write: (fd, bytes) => fs.writeSync(fd, bytes),
  infoOf: (fd) => fileInfo(fs.fstatSync(fd)),
  info: (path, plain) => fileInfo(plain ? fs.lstatSync(path) : fs.statSync(path)),
  truncate: (fd, size) => fs.ftruncateSync(fd, size),
  ...makeAdaptiveSync({
    atOnce: (fd) => fs.fdatasyncSync(fd),
    inBackground: (fd) =>
      new Promise((resolve, reject) => fs.fdatasync(fd, (error) => (error ? reject(error) : resolve()))),
    now: readClock,
  }),
  async syncFolder(path) {
    // Windows cannot sync a folder.
    if (process.platform === "win32") return;
    // Opened synchronously: a path that begins in an open folder is valid only while that folder is open.
    const fd = fs.openSync(path, O_RDONLY);
    try {
      await new Promise<void>((resolve, reject) => fs.fsync(fd, (error) => (error ? reject(error) : resolve())));
    } finally {
      fs.closeSync(fd);
    }
  },
  syncFolderNow,
  link: (path, name) => fs.linkSync(path, name),
  rename: (path, name) => fs.renameSync(path, name),
  remove: (path) => fs.unlinkSync(path),
  removeFolder: (path) => fs.rmdirSync(path),
  makeFolder: (path) =>
    makeFolders(path, fs.existsSync, (folder) => {
      fs.mkdirSync(folder, 0o700);
      fs.chmodSync(folder, 0o700);
      syncFolderNow(dirname(folder));
    }),
  names: (folder) => fs.readdirSync(folder),
  list: (folder) =>
    fs.readdirSync(folder, { withFileTypes: true }).map((entry) => ({ name: entry.name, kind: kindOf(entry) })),
  watch: watchFolder,
  // Takes a third of the time of `fs.realpathSync`, which resolves each folder above.
  realPath: (path) => fs.realpathSync.native(path),
  copyMode(from, to) {
    const { mode, uid, gid } = fs.statSync(from);
    fs.fchmodSync(to, mode & 0o777);
    try {
      fs.fchownSync(to, uid, gid);
    } catch {
      // Only root may give files away; the mode is what protects the content.
    }
  },
  setModified: (fd, modified) => fs.futimesSync(fd, modified / 1000, modified / 1000),
  setMode: (path, mode) => fs.chmodSync(path, mode),
  space(folder) {
    const { bavail, blocks, bsize } = fs.statfsSync(folder);
    return { free: bavail * bsize, total: blocks * bsize };
  },
  inFolder(folder, use) {
    const { folders } = realDisk;
    if (!folders) {
      if (!fs.lstatSync(folder).isDirectory()) throw Object.assign(new Error("it is no folder"), { code: "ENOTDIR" });
      return use(folder, realDisk);
    }
    const fd = folders.open(folder);
    try {
      return use(folders.path(fd), realDisk);
    } finally {
      fs.closeSync(fd);
    }
  },
  get folders() {
    if (openFolders === undefined) openFolders = findOpenFolders();
    return openFolders ?? undefined;
  },
};

/** Returns the flag that does not follow links. Windows has none. */
function noFollow(plain: boolean | undefined): number {
  return plain ? (O_NOFOLLOW ?? 0) : 0;
}

function syncFolderNow(path: string): void {
  // Windows cannot sync a folder.
  if (process.platform === "win32") return;
  const fd = fs.openSync(path, O_RDONLY);
  try {
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
}

/** Makes the folders of a path that are missing, one by one. Returns those that `make` made, topmost first. */
export function makeFolders(
  path: string,
  isThere: (folder: string) => boolean,
  make: (folder: string) => void,
): string[] {
  const missing: string[] = [];
  for (let at = path; !isThere(at) && dirname(at) !== at; at = dirname(at)) missing.unshift(at);
  return missing.filter((folder) => {
    try {
      make(folder);
      return true;
    } catch (error) {
      // Another process may have created it meanwhile.
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      return false;
    }
  });
}

/** Checked once: `process` is a getter, which two looks at a file in each append would call. */
const HAS_OWNERS = process.getuid !== undefined;

function fileInfo(stats: fs.Stats): FileInfo {
  return {
    kind: (stats.mode & S_IFMT) === S_IFREG ? "file" : kindOf(stats),
    size: stats.size,
    modified: stats.mtimeMs,
    device: stats.dev,
    inode: stats.ino,
    mode: stats.mode & 0o7777,
    changed: stats.ctimeMs,
    links: stats.nlink,
    owner: HAS_OWNERS ? stats.uid : undefined,
  };
}

function kindOf(entry: fs.Dirent | fs.Stats): Named["kind"] {
  if (entry.isFile()) return "file";
  if (entry.isDirectory()) return "folder";
  return entry.isSymbolicLink() ? "link" : "other";
}

/** File systems of Linux whose changes all pass this kernel: ext, XFS, Btrfs, tmpfs, F2FS, ZFS, bcachefs. */
const LOCAL_FILE_SYSTEMS = new Set([0xef53, 0x58465342, 0x9123683e, 0x01021994, 0xf2f52010, 0x2fc12fc1, 0xca451a4e]);

/** Watches a folder on Linux only: inotify notifies before the writer continues, other systems notify later. */
function watchFolder(folder: string, changed: (name: string | null) => void): (() => void) | undefined {
  if (process.platform !== "linux") return undefined;
  try {
    if (!LOCAL_FILE_SYSTEMS.has(fs.statfsSync(folder).type)) return undefined;
    const watcher = fs.watch(folder, { persistent: false }, (_event, name) => changed(name));
    watcher.on("error", () => changed(null));
    return () => watcher.close();
  } catch {
    // Too many watches, or the folder was removed.
    return undefined;
  }
}

/** Writes all bytes, or throws. */
export function writeAll(disk: Disk, fd: number, bytes: Uint8Array): void {
  for (let written = 0; written < bytes.length; ) {
    const count = disk.write(fd, written === 0 ? bytes : bytes.subarray(written));
    if (count <= 0) throw Object.assign(new Error("nothing was written"), { code: "EIO" });
    written += count;
  }
}

class CutOff extends Error {
  readonly code = "EIO";
}

/** Fills `into` from a file. Throws EIO when the file ends too early. */
export function readAll(disk: Disk, fd: number, into: Uint8Array, position: number): void {
  for (let read = 0; read < into.length; ) {
    const count = disk.read(fd, into, read, into.length - read, position + read);
    if (count <= 0) throw new CutOff("the file ended before its known end");
    read += count;
  }
}

/** Returns whether {@link readAll} failed because the file ended too early. */
export function isCutOff(error: unknown): boolean {
  return error instanceof CutOff;
}

/** Opens a file for reading. Throws EISDIR, which `isNoFile` recognizes, when something else has its path. */
export function openFile(disk: Disk, path: string): number {
  const fd = disk.openRead(path);
  try {
    if (disk.infoOf(fd).kind === "file") return fd;
    throw Object.assign(new Error("it is not a file"), { code: "EISDIR" });
  } catch (error) {
    closeQuietly(disk, fd);
    throw error;
  }
}

/** Returns the content of a small file. */
export function readWhole(disk: Disk, path: string): Uint8Array {
  const fd = disk.openRead(path);
  try {
    const bytes = new Uint8Array(disk.infoOf(fd).size);
    readAll(disk, fd, bytes, 0);
    return bytes;
  } finally {
    disk.close(fd);
  }
}

/** Returns the content of a file that reports no size, such as those in /proc. */
export function readUnsized(disk: Disk, path: string): Uint8Array {
  const fd = disk.openRead(path);
  try {
    const pieces: Uint8Array[] = [];
    for (let length = 0; ; ) {
      const piece = new Uint8Array(1 << 16);
      const count = disk.read(fd, piece, 0, piece.length, length);
      if (count <= 0) return concat(pieces);
      pieces.push(piece.subarray(0, count));
      length += count;
    }
  } finally {
    disk.close(fd);
  }
}

let uniqueNames = 0;
/** Ten random digits: processes of different pid namespaces may have the same pid and use the same folder. */
const salt = String(Math.floor(Math.random() * 1e10)).padStart(10, "0");

/** Returns `<pid>-<digits>`, which no other process and no other instance of this code uses in a name. */
export function makeUniqueSuffix(): string {
  return `${process.pid}-${salt}${++uniqueNames}`;
}

/** Returns a name in the folder of `path` that no session scanner recognizes as a session and that contains our pid. */
export function makeTemporaryName(path: string): string {
  return join(dirname(path), `.${basename(path)}.${makeUniqueSuffix()}.tmp`);
}

/**
 * Writes a temporary file in the same folder and gives it the name `path` in one step. Returns the open file. Throws
 * EEXIST when the name is taken, unless `name` gives it. A failure leaves no file.
 */
export function publishNew(
  disk: Disk,
  path: string,
  fill: (fd: number) => void,
  name = (temporary: string): void => renameExclusive(disk, temporary, path),
): number {
  const temporary = makeTemporaryName(path);
  const fd = disk.create(temporary);
  try {
    fill(fd);
    name(temporary);
  } catch (error) {
    closeQuietly(disk, fd);
    removeQuietly(disk, temporary);
    throw error;
  }
  return fd;
}

/** Error codes of file systems without hard links when one is requested. */
const NO_LINKS = new Set(["EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK", "EACCES", "EXDEV"]);

/** Returns whether a link failed because of the file system and not because of the names. */
export function refusesLinks(error: unknown): boolean {
  return isErrno(error) && NO_LINKS.has(error.code);
}

/**
 * Gives a complete temporary file its final name. Throws EEXIST if the name is taken. Without hard links, an empty file
 * with the name is replaced, which is weaker: it is visible for a short time, and stays if we die then.
 */
export function renameExclusive(disk: Disk, temporary: string, path: string): void {
  try {
    disk.link(temporary, path);
  } catch (error) {
    if (!refusesLinks(error)) throw error;
    closeQuietly(disk, disk.create(path));
    try {
      disk.rename(temporary, path);
    } catch (refused) {
      removeQuietly(disk, path);
      throw refused;
    }
    return;
  }
  // The file exists from here on. If its temporary name cannot be removed, that is not a failure.
  removeQuietly(disk, temporary);
}

export function exists(disk: Disk, path: string): boolean {
  try {
    disk.info(path);
    return true;
  } catch {
    return false;
  }
}

/** Returns the result of {@link Disk.info}, or null if nothing has this path. */
export function getInfoIfPresent(disk: Disk, path: string): FileInfo | null {
  try {
    return disk.info(path);
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}

/** Returns whether nothing has this path. Throws if the disk refuses to look. */
export function isAbsent(disk: Disk, path: string): boolean {
  return getInfoIfPresent(disk, path) === null;
}

export function removeQuietly(disk: Disk, path: string): void {
  try {
    disk.remove(path);
  } catch {
    // It may be missing already; an orphan temporary file is recognized by its name and never listed.
  }
}

/** Removes a file if it is still `meant`: another program may have replaced it. Returns whether it did. */
export function removeIfSame(disk: Disk, path: string, meant: FileInfo): boolean {
  try {
    const { device, inode, size } = disk.info(path);
    if (device !== meant.device || inode !== meant.inode || size !== meant.size) return false;
    disk.remove(path);
    return true;
  } catch {
    return false;
  }
}

/** Closes a file that was only read, or whose content is already synced: closing it can lose nothing. */
export function closeQuietly(disk: Disk, fd: number): void {
  try {
    disk.close(fd);
  } catch {
    // The descriptor is closed even if the system reports an error.
  }
}

/**
 * Returns whether a pipe or socket that we write to has another end. A socket without one refuses even an empty write,
 * and a pipe cannot be opened once more. If the system does not say, it has one.
 */
export function hasReader(fd: number): boolean {
  try {
    fs.writeSync(fd, Buffer.alloc(0));
    if (!fs.fstatSync(fd).isFIFO()) return true;
    fs.closeSync(fs.openSync(`/proc/self/fd/${fd}`, fs.constants.O_WRONLY | fs.constants.O_NONBLOCK));
  } catch (error) {
    return !isErrno(error) || (error.code !== "EPIPE" && error.code !== "ENXIO");
  }
  return true;
}
