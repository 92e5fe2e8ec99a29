/** The file operations we use. This is the only file that imports node:fs; tests pass a disk that fails. */

import * as fs from "node:fs";
import { basename, dirname, join } from "node:path";
import { isErrno, isMissing } from "../../core/errno.ts";
import { concat } from "../../core/json/json.ts";
import { quickSync } from "./adaptive-sync.ts";

export interface FileInfo {
  /** A link only where links are not followed. */
  readonly kind: "file" | "folder" | "link" | "other";
  readonly size: number;
  /** Milliseconds. */
  readonly modified: number;
  readonly device: number;
  readonly inode: number;
  /** Permission bits. */
  readonly mode: number;
  /** When content, name or permissions changed last, in milliseconds; nobody can set it back. Not every disk tells. */
  readonly changed?: number;
  /** Names the file has. */
  readonly links?: number;
  /** User id, where the system and the disk tell. */
  readonly owner?: number;
}

/** What stands in a folder under a name. */
export interface Named {
  readonly name: string;
  /** Itself, not what it may link to. */
  readonly kind: "file" | "folder" | "link" | "other";
}

/**
 * Folders that are held open, so that a path can begin in one: what the folder's own path means has no part in it, and
 * no link that comes there.
 */
export interface OpenFolders {
  /** Opens a folder to go on from it. Throws ENOTDIR for anything else, a link included. */
  open(path: string): number;
  /** What the paths begin with that go on from an open folder. */
  path(fd: number): string;
  /** Where an open folder lies now. */
  place(fd: number): string;
  /** Creates one folder, 0700. */
  make(path: string): void;
  /** Where a link leads, as it says. Throws EINVAL when the path is none. */
  readLink(path: string): string;
}

/**
 * Operations on files and folders, synchronous but for the two that wait for the medium. Errors are errno errors. With
 * `plain`, a link at the end of a path is not followed.
 */
export interface Disk {
  /**
   * Opens for reading. Never waits, whatever the path is (a FIFO opens and is told by {@link infoOf}). `plain`: throws
   * ELOOP for a link.
   */
  openRead(path: string, plain?: boolean): number;
  /** Opens an existing file for reading and for writing at its end. `plain`: throws ELOOP for a link. */
  openAppend(path: string, plain?: boolean): number;
  /** Creates a file that must not exist, 0600, for reading and for writing at its end. */
  create(path: string): number;
  close(fd: number): void;
  /** Bytes read, 0 at the end. */
  read(fd: number, into: Uint8Array, offset: number, length: number, position: number): number;
  /** Bytes written, which may be fewer than given. */
  write(fd: number, bytes: Uint8Array): number;
  infoOf(fd: number): FileInfo;
  /** Follows links. `plain`: tells of a link itself. */
  info(path: string, plain?: boolean): FileInfo;
  truncate(fd: number, size: number): void;
  /** Waits until the file's content is on the medium. */
  sync(fd: number): Promise<void>;
  /** The same, holding everything else up: for a file that gets its name next. */
  syncNow(fd: number): void;
  /** Waits until a folder's names are on the medium. */
  syncFolder(path: string): Promise<void>;
  /** The same, holding everything else up. */
  syncFolderNow(path: string): void;
  /** Gives a file a second name, which must not exist. */
  link(path: string, name: string): void;
  rename(path: string, name: string): void;
  remove(path: string): void;
  /** Removes an empty folder. */
  removeFolder(path: string): void;
  /**
   * Creates a folder and those above it that are missing, 0700, their names at once on the medium; answers the
   * folders created, topmost first.
   */
  makeFolder(path: string): string[];
  names(folder: string): string[];
  /** The same with kinds; a disk without it is asked name by name. */
  list?(folder: string): Named[];
  /**
   * Calls back with the name of whatever changes in a folder (null: look at all of it), for every change at the latest
   * when the event loop has polled once after it. Undefined where that cannot be promised. Answers how to stop.
   */
  watch?(folder: string, changed: (name: string | null) => void): (() => void) | undefined;
  realPath(path: string): string;
  /** Gives a file the permission bits and, where allowed, the owner of another. */
  copyMode(from: string, to: number): void;
  /** The clock that times of files come from, in milliseconds; by default the one of the system. */
  clock?: () => number;
  /** Undefined where the system has no paths that begin in an open folder. */
  readonly folders?: OpenFolders;
}

const { O_APPEND, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_RDWR } = fs.constants;
/** Linux, on every machine that Node runs on: a descriptor that only names, which needs no right to read the folder. */
const O_PATH = 0o10000000;
/** Where Linux has the open files of this process; `<descriptor>/<name>` there is what openat(2) opens. */
const DESCRIPTORS = "/proc/self/fd";

/** Null where there are none; undefined before that is known. */
let openFolders: OpenFolders | null | undefined;

function findOpenFolders(): OpenFolders | null {
  if (process.platform !== "linux") return null;
  const open = (path: string): number => fs.openSync(path, O_PATH | O_DIRECTORY | O_NOFOLLOW);
  const path = (fd: number): string => `${DESCRIPTORS}/${fd}`;
  const place = (fd: number): string => fs.readlinkSync(path(fd));
  const make = (at: string): void => {
    fs.mkdirSync(at, 0o700);
    // A umask may have taken bits away from the owner. A path that is changed meanwhile is no reason to follow it.
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
      // There may be no /proc, or one that is hidden from us.
      return place(fd) === "/" && fs.statSync(`${path(fd)}/.`).isDirectory()
        ? { open, path, place, make, readLink: (at) => fs.readlinkSync(at) }
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
    // A umask may have taken bits away from the owner.
    fs.fchmodSync(fd, 0o600);
    return fd;
  },
  close: (fd) => fs.closeSync(fd),
  read: (fd, into, offset, length, position) => fs.readSync(fd, into, offset, length, position),
  write: (fd, bytes) => fs.writeSync(fd, bytes),
  infoOf: (fd) => fileInfo(fs.fstatSync(fd)),
  info: (path, plain) => fileInfo(plain ? fs.lstatSync(path) : fs.statSync(path)),
  truncate: (fd, size) => fs.ftruncateSync(fd, size),
  sync: quickSync({
    atOnce: (fd) => fs.fdatasyncSync(fd),
    beside: (fd) => new Promise((resolve, reject) => fs.fdatasync(fd, (error) => (error ? reject(error) : resolve()))),
    now: () => performance.now(),
  }),
  syncNow: (fd) => fs.fdatasyncSync(fd),
  async syncFolder(path) {
    // Windows has no such thing.
    if (process.platform === "win32") return;
    // Opened at once: a path that begins in an open folder means it only as long as that is open.
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
  makeFolder(path) {
    const missing: string[] = [];
    for (let at = path; !fs.existsSync(at) && dirname(at) !== at; at = dirname(at)) missing.unshift(at);
    for (const folder of missing) {
      try {
        fs.mkdirSync(folder, 0o700);
        fs.chmodSync(folder, 0o700);
        syncFolderNow(dirname(folder));
      } catch (error) {
        // Another process may have made it in the meantime.
        if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      }
    }
    return missing;
  },
  names: (folder) => fs.readdirSync(folder),
  list: (folder) =>
    fs.readdirSync(folder, { withFileTypes: true }).map((entry) => ({ name: entry.name, kind: kindOf(entry) })),
  watch: watchFolder,
  // A third of what the other one costs, which asks for each folder above.
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
  get folders() {
    if (openFolders === undefined) openFolders = findOpenFolders();
    return openFolders ?? undefined;
  },
};

/** Windows has no such flag. */
function noFollow(plain: boolean | undefined): number {
  return plain ? (O_NOFOLLOW ?? 0) : 0;
}

function syncFolderNow(path: string): void {
  // Windows has no such thing.
  if (process.platform === "win32") return;
  const fd = fs.openSync(path, O_RDONLY);
  try {
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
}

function fileInfo(stats: fs.Stats): FileInfo {
  return {
    kind: kindOf(stats),
    size: stats.size,
    modified: stats.mtimeMs,
    device: stats.dev,
    inode: stats.ino,
    mode: stats.mode & 0o7777,
    changed: stats.ctimeMs,
    links: stats.nlink,
    owner: process.getuid ? stats.uid : undefined,
  };
}

function kindOf(entry: fs.Dirent | fs.Stats): Named["kind"] {
  if (entry.isFile()) return "file";
  if (entry.isDirectory()) return "folder";
  return entry.isSymbolicLink() ? "link" : "other";
}

/** File systems of Linux on which every change passes through this kernel: ext, XFS, Btrfs, tmpfs, F2FS, ZFS, bcachefs. */
const LOCAL_FILE_SYSTEMS = new Set([0xef53, 0x58465342, 0x9123683e, 0x01021994, 0xf2f52010, 0x2fc12fc1, 0xca451a4e]);

/** Only inotify tells of a change before the writer goes on; other systems tell later. */
function watchFolder(folder: string, changed: (name: string | null) => void): (() => void) | undefined {
  if (process.platform !== "linux") return undefined;
  try {
    if (!LOCAL_FILE_SYSTEMS.has(fs.statfsSync(folder).type)) return undefined;
    const watcher = fs.watch(folder, { persistent: false }, (_event, name) => changed(name));
    watcher.on("error", () => changed(null));
    return () => watcher.close();
  } catch {
    // Too many watches, or the folder went away.
    return undefined;
  }
}

/** Writes all of it, or throws. */
export function writeAll(disk: Disk, fd: number, bytes: Uint8Array): void {
  for (let written = 0; written < bytes.length; ) {
    const count = disk.write(fd, written === 0 ? bytes : bytes.subarray(written));
    if (count <= 0) throw Object.assign(new Error("nothing was written"), { code: "EIO" });
    written += count;
  }
}

/** Fills `into` from a file, or throws when the file ends before. */
export function readAll(disk: Disk, fd: number, into: Uint8Array, position: number): void {
  for (let read = 0; read < into.length; ) {
    const count = disk.read(fd, into, read, into.length - read, position + read);
    if (count <= 0) throw Object.assign(new Error("the file ended before its known end"), { code: "EIO" });
    read += count;
  }
}

/** Whether {@link readAll} failed because the file ended before what was to be read of it. */
export function isCutOff(error: unknown): boolean {
  return (error as Error).message.includes("known end");
}

/** Opens a file for reading. Throws EISDIR where something else has its path, as {@link isNoFile} tells. */
export function openFile(disk: Disk, path: string): number {
  const fd = disk.openRead(path);
  try {
    if (disk.infoOf(fd).kind === "file") return fd;
    throw Object.assign(new Error("it is no file"), { code: "EISDIR" });
  } catch (error) {
    closeQuietly(disk, fd);
    throw error;
  }
}

/** All of a small file. */
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

/** All of a file that has no size, as the system's own have none. */
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
/** Ten digits: processes of different pid namespaces have the same pid and meet in one folder. */
const salt = String(Math.floor(Math.random() * 1e10)).padStart(10, "0");

/** Returns `<pid>-<digits>`, which is in no name that another process, or another instance of this code, makes. */
export function uniqueSuffix(): string {
  return `${process.pid}-${salt}${++uniqueNames}`;
}

/** A name beside `path` that no session scanner takes for a session and that says whose it is. */
export function temporaryName(path: string): string {
  return join(dirname(path), `.${basename(path)}.${uniqueSuffix()}.tmp`);
}

/**
 * Writes a file beside its final name and gives it that name in one step, which fails when the name is taken
 * (EEXIST). Answers the open file. Nothing is left behind on a failure.
 */
export function publishNew(disk: Disk, path: string, fill: (fd: number) => void): number {
  const temporary = temporaryName(path);
  const fd = disk.create(temporary);
  try {
    fill(fd);
    takeName(disk, temporary, path);
  } catch (error) {
    closeQuietly(disk, fd);
    removeQuietly(disk, temporary);
    throw error;
  }
  return fd;
}

/** How file systems without hard links refuse them. */
const NO_LINKS = new Set(["EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK", "EACCES", "EXDEV"]);

/** Whether a link could not be made for what the file system is, and not for the names. */
export function refusesLinks(error: unknown): boolean {
  return isErrno(error) && NO_LINKS.has(error.code);
}

/** Gives a whole temporary file its name, which must not be taken (EEXIST). */
export function takeName(disk: Disk, temporary: string, path: string): void {
  try {
    disk.link(temporary, path);
  } catch (error) {
    if (!refusesLinks(error)) throw error;
    takeNameWithoutLinks(disk, temporary, path);
    return;
  }
  // From here on the file is there, and a second name of it that cannot be removed is no reason to say otherwise.
  removeQuietly(disk, temporary);
}

/**
 * Where there are no hard links, an empty file takes the name, which fails when it is taken, and is replaced by the
 * whole one. What is weaker: for a moment, and for good when we die in it, the empty file can be seen.
 */
function takeNameWithoutLinks(disk: Disk, temporary: string, path: string): void {
  const placeholder = disk.create(path);
  try {
    closeQuietly(disk, placeholder);
    disk.rename(temporary, path);
  } catch (error) {
    removeQuietly(disk, path);
    throw error;
  }
}

/**
 * Gives a file whose content stays as it is a second name, which must not be taken; where there are no hard links, a
 * copy that is on the medium gets it, with the permissions of the file.
 */
export function keepAs(disk: Disk, path: string, name: string): void {
  try {
    disk.link(path, name);
  } catch (error) {
    if (!refusesLinks(error)) throw error;
    const from = disk.openRead(path);
    try {
      const copy = publishNew(disk, name, (fd) => {
        disk.copyMode(path, fd);
        copyAll(disk, from, fd);
        disk.syncNow(fd);
      });
      closeQuietly(disk, copy);
    } finally {
      closeQuietly(disk, from);
    }
  }
}

function copyAll(disk: Disk, from: number, to: number): void {
  const piece = new Uint8Array(1 << 20);
  for (let at = 0; ; ) {
    const count = disk.read(from, piece, 0, piece.length, at);
    if (count <= 0) return;
    writeAll(disk, to, piece.subarray(0, count));
    at += count;
  }
}

export function exists(disk: Disk, path: string): boolean {
  try {
    disk.info(path);
    return true;
  } catch {
    return false;
  }
}

/** Whether nothing has a path. Throws when the disk does not tell. */
export function isAbsent(disk: Disk, path: string): boolean {
  try {
    disk.info(path);
    return false;
  } catch (error) {
    if (isMissing(error)) return true;
    throw error;
  }
}

export function removeQuietly(disk: Disk, path: string): void {
  try {
    disk.remove(path);
  } catch {
    // It may never have been there; a stray temporary file is recognised by its name and never listed.
  }
}

/** Removes a file if it is still the one that is meant: another program may have put its own there. */
export function removeIfSame(disk: Disk, path: string, meant: FileInfo): void {
  try {
    const { device, inode, size } = disk.info(path);
    if (device === meant.device && inode === meant.inode && size === meant.size) disk.remove(path);
  } catch {
    // It went away.
  }
}

/** For a file that was read only or whose content is synced by other means: closing it can lose nothing. */
export function closeQuietly(disk: Disk, fd: number): void {
  try {
    disk.close(fd);
  } catch {
    // The descriptor is gone whatever the answer is.
  }
}
