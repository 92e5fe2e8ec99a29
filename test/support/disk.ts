/**
 * A disk in memory that fails as real ones do: at its k-th operation with an errno, by writing less than it was
 * given, by dying in the middle, or by losing at a power cut what was not synced.
 */

import { basename, dirname } from "node:path";
import type { Disk, FileInfo } from "../../src/core/store/disk.ts";

export type Fault =
  /** The operation does nothing and reports an error. */
  | { readonly kind: "fail"; readonly at: number; readonly errno: string }
  /** A write takes half of its bytes; the write after it finds no room. Other operations are left alone. */
  | { readonly kind: "short"; readonly at: number; readonly errno: string }
  /** Nothing works from this operation on; a write gets half of its bytes out before. */
  | { readonly kind: "die"; readonly at: number };

/** What a power cut leaves: names that were synced or all, content as it was synced, as it is, or zeroed behind. */
export interface PowerCut {
  readonly names: "synced" | "all";
  readonly content: "synced" | "all" | "zeroed";
}

export const POWER_CUTS: readonly PowerCut[] = [
  { names: "synced", content: "synced" },
  { names: "synced", content: "all" },
  { names: "synced", content: "zeroed" },
  { names: "all", content: "synced" },
  { names: "all", content: "zeroed" },
];

interface Inode {
  readonly number: number;
  bytes: Uint8Array;
  /** Content that survives a power cut. */
  synced: Uint8Array;
  modified: number;
  mode: number;
}

const DEVICE = 1;
const NOTHING = new Uint8Array(0);

export class FaultDisk implements Disk {
  /** Names of the operations since the fault was set, for messages and counts. */
  operations: string[] = [];
  /** Whether the fault has struck. */
  struck = false;
  /** The time of changes, which by default are long ago. */
  clock: (() => number) | undefined;
  private fault: Fault | undefined;
  private dead = false;
  private full: string | undefined;
  private inodes = 0;
  private ticks = 0;
  private nextDescriptor = 3;
  private readonly files = new Map<string, Inode>();
  private readonly syncedFiles = new Map<string, Inode>();
  private readonly folders = new Set<string>(["/"]);
  private readonly syncedFolders = new Set<string>(["/"]);
  private readonly descriptors = new Map<number, { inode: Inode | null; path: string; append: boolean }>();

  // --- what tests do to it -------------------------------------------------------------------------------------

  set(fault: Fault | undefined): void {
    this.operations = [];
    this.fault = fault;
    this.struck = false;
    this.full = undefined;
  }

  /** A file that stands there durably. */
  put(path: string, bytes: Uint8Array, mode = 0o600): void {
    for (let at = dirname(path); !this.folders.has(at); at = dirname(at)) {
      this.folders.add(at);
      this.syncedFolders.add(at);
    }
    const copy = Uint8Array.from(bytes);
    const inode = { number: ++this.inodes, bytes: copy, synced: copy, modified: this.tick(), mode };
    this.files.set(path, inode);
    this.syncedFiles.set(path, inode);
  }

  /** The present content of a file, or undefined. */
  content(path: string): Uint8Array | undefined {
    return this.files.get(path)?.bytes;
  }

  paths(): string[] {
    return [...this.files.keys()].sort();
  }

  get openCount(): number {
    return this.descriptors.size;
  }

  /** The disk as the next process finds it: with all that was written, or with what a power cut left of it. */
  after(cut: PowerCut = { names: "all", content: "all" }): FaultDisk {
    const next = new FaultDisk();
    next.inodes = this.inodes;
    next.ticks = this.ticks;
    const copies = new Map<Inode, Inode>();
    const copyOf = (inode: Inode): Inode => {
      let copy = copies.get(inode);
      if (!copy) {
        const bytes = remainder(inode, cut.content);
        copy = { ...inode, bytes, synced: bytes };
        copies.set(inode, copy);
      }
      return copy;
    };
    const folders = [...(cut.names === "all" ? this.folders : this.syncedFolders)];
    for (const folder of folders.sort((a, b) => a.length - b.length)) next.addFolder(folder);
    for (const [path, inode] of cut.names === "all" ? this.files : this.syncedFiles)
      if (next.folders.has(dirname(path))) {
        next.files.set(path, copyOf(inode));
        next.syncedFiles.set(path, copyOf(inode));
      }
    return next;
  }

  private addFolder(folder: string): void {
    // A folder is lost with the folder above it.
    if (folder !== "/" && !this.folders.has(dirname(folder))) return;
    this.folders.add(folder);
    this.syncedFolders.add(folder);
  }

  // --- the operations ------------------------------------------------------------------------------------------

  openRead(path: string): number {
    this.step("openRead");
    if (this.folders.has(path)) return this.describe(null, path, false);
    return this.describe(this.inodeOf(path), path, false);
  }

  openAppend(path: string): number {
    this.step("openAppend");
    if (this.folders.has(path)) throw errno("EISDIR");
    return this.describe(this.inodeOf(path), path, true);
  }

  create(path: string): number {
    this.step("create");
    this.demandFolder(path);
    if (this.files.has(path) || this.folders.has(path)) throw errno("EEXIST");
    const inode = { number: ++this.inodes, bytes: NOTHING, synced: NOTHING, modified: this.tick(), mode: 0o600 };
    this.files.set(path, inode);
    return this.describe(inode, path, true);
  }

  close(fd: number): void {
    // As on Linux, the descriptor is gone whatever the answer is.
    if (!this.descriptors.delete(fd)) throw errno("EBADF");
    this.step("close");
  }

  read(fd: number, into: Uint8Array, offset: number, length: number, position: number): number {
    this.step("read");
    const { bytes } = this.inodeAt(fd);
    const piece = bytes.subarray(position, position + length);
    into.set(piece, offset);
    return piece.length;
  }

  write(fd: number, bytes: Uint8Array): number {
    if (this.full !== undefined) {
      const code = this.full;
      this.full = undefined;
      throw errno(code);
    }
    const half = bytes.length >> 1;
    try {
      this.step("write");
    } catch (error) {
      if (this.fault?.kind === "die" && this.operations.length === this.fault.at)
        this.put_(fd, bytes.subarray(0, half));
      throw error;
    }
    if (this.fault?.kind === "short" && this.operations.length === this.fault.at) {
      this.struck = true;
      this.full = this.fault.errno;
      this.put_(fd, bytes.subarray(0, half));
      return half;
    }
    this.put_(fd, bytes);
    return bytes.length;
  }

  private put_(fd: number, bytes: Uint8Array): void {
    const opened = this.descriptors.get(fd);
    if (!opened?.append) throw errno("EBADF");
    const inode = this.inodeAt(fd);
    const all = new Uint8Array(inode.bytes.length + bytes.length);
    all.set(inode.bytes);
    all.set(bytes, inode.bytes.length);
    inode.bytes = all;
    inode.modified = this.tick();
  }

  infoOf(fd: number): FileInfo {
    this.step("infoOf");
    const opened = this.descriptors.get(fd);
    if (!opened) throw errno("EBADF");
    return opened.inode ? infoOf(opened.inode) : FOLDER;
  }

  info(path: string): FileInfo {
    this.step("info");
    return this.folders.has(path) ? FOLDER : infoOf(this.inodeOf(path));
  }

  truncate(fd: number, size: number): void {
    this.step("truncate");
    const inode = this.inodeAt(fd);
    if (!this.descriptors.get(fd)?.append) throw errno("EINVAL");
    inode.bytes = inode.bytes.slice(0, size);
    inode.modified = this.tick();
  }

  sync = async (fd: number): Promise<void> => this.syncNow(fd);

  syncNow(fd: number): void {
    this.step("sync");
    const inode = this.inodeAt(fd);
    inode.synced = inode.bytes;
  }

  async syncFolder(path: string): Promise<void> {
    this.step("syncFolder");
    if (!this.folders.has(path)) throw errno("ENOENT");
    for (const name of [...this.syncedFiles.keys()]) if (dirname(name) === path) this.syncedFiles.delete(name);
    for (const [name, inode] of this.files) if (dirname(name) === path) this.syncedFiles.set(name, inode);
    for (const folder of this.folders) if (dirname(folder) === path) this.syncedFolders.add(folder);
  }

  link(path: string, name: string): void {
    this.step("link");
    this.demandFolder(name);
    if (this.files.has(name)) throw errno("EEXIST");
    this.files.set(name, this.inodeOf(path));
  }

  rename(path: string, name: string): void {
    this.step("rename");
    this.demandFolder(name);
    const inode = this.inodeOf(path);
    this.files.delete(path);
    this.files.set(name, inode);
  }

  remove(path: string): void {
    this.step("remove");
    this.inodeOf(path);
    this.files.delete(path);
  }

  makeFolder(path: string): string[] {
    this.step("makeFolder");
    const missing: string[] = [];
    for (let at = path; !this.folders.has(at); at = dirname(at)) {
      if (this.files.has(at)) throw errno("ENOTDIR");
      missing.unshift(at);
    }
    for (const folder of missing) {
      this.folders.add(folder);
      this.syncedFolders.add(folder);
    }
    return missing;
  }

  names(folder: string): string[] {
    this.step("names");
    return [...this.files.keys(), ...this.folders]
      .filter((path) => path !== "/" && dirname(path) === folder)
      .map((path) => basename(path));
  }

  realPath(path: string): string {
    this.step("realPath");
    if (!this.folders.has(path)) this.inodeOf(path);
    return path;
  }

  copyMode(from: string, to: number): void {
    this.step("copyMode");
    this.inodeAt(to).mode = this.inodeOf(from).mode;
  }

  private tick(): number {
    return this.clock?.() ?? ++this.ticks;
  }

  private step(operation: string): void {
    if (this.dead) throw errno("EIO", "the machine is off");
    this.operations.push(operation);
    const { fault } = this;
    if (!fault || this.operations.length !== fault.at || fault.kind === "short") return;
    this.struck = true;
    if (fault.kind === "fail") throw errno(fault.errno, `${operation} fails`);
    this.dead = true;
    throw errno("EIO", `the machine dies at ${operation}`);
  }

  private describe(inode: Inode | null, path: string, append: boolean): number {
    this.descriptors.set(this.nextDescriptor, { inode, path, append });
    return this.nextDescriptor++;
  }

  private demandFolder(path: string): void {
    if (!this.folders.has(dirname(path))) throw errno("ENOENT");
  }

  private inodeOf(path: string): Inode {
    const inode = this.files.get(path);
    if (!inode) throw errno("ENOENT");
    return inode;
  }

  private inodeAt(fd: number): Inode {
    const opened = this.descriptors.get(fd);
    if (!opened) throw errno("EBADF");
    if (!opened.inode) throw errno("EISDIR");
    return opened.inode;
  }
}

const FOLDER: FileInfo = { kind: "folder", size: 0, modified: 0, device: DEVICE, inode: 0, mode: 0o700 };

function infoOf(inode: Inode): FileInfo {
  const { number, bytes, modified, mode } = inode;
  return { kind: "file", size: bytes.length, modified, device: DEVICE, inode: number, mode };
}

function remainder(inode: Inode, content: PowerCut["content"]): Uint8Array {
  if (content === "all") return inode.bytes;
  if (content === "synced" || inode.bytes.length <= inode.synced.length) return inode.synced;
  const zeroed = new Uint8Array(inode.bytes.length);
  zeroed.set(inode.synced);
  return zeroed;
}

function errno(code: string, message = code): Error {
  return Object.assign(new Error(`${code}: ${message}`), { code });
}
