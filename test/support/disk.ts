/**
 * A disk in memory that fails as real ones do: at its k-th operation with an errno, by a short write, by dying in the
 * middle, or by losing unsynced changes at a power cut.
 */

import { createHash } from "node:crypto";
import { basename, dirname } from "node:path";
import type { Disk, FileInfo } from "../../src/storage/fs/disk.ts";
import { isEvery } from "./random.ts";

export type Fault =
  /** The operation does nothing and reports an error. */
  | { readonly kind: "fail"; readonly at: number; readonly errno: string }
  /** A write takes half of its bytes; the write after it finds no room. Other operations are left alone. */
  | { readonly kind: "short"; readonly at: number; readonly errno: string }
  /** Nothing works from this operation on; a write gets half of its bytes out before. */
  | { readonly kind: "die"; readonly at: number };

/** The state after a power cut: names that were synced or all; content as it was synced, as it is, or zeroed behind. */
interface PowerCut {
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

/** Operations that change the disk for other processes. */
export const CHANGES: ReadonlySet<string> = new Set(
  "create write truncate link rename remove removeFolder makeFolder".split(" "),
);

/** Operations that change the disk as a death or a power cut may leave it. */
const LEFT_BEHIND: ReadonlySet<string> = new Set([...CHANGES, "copyMode", "sync", "syncFolder"]);

/**
 * Returns the operations, counted from 1, at which a fault of a kind shows something of its own; the disk has recorded
 * the same work without a fault. An error counts at each place of the sources that asks the disk, with its callers: the
 * first time and the last, which differ in the work done between them (`seen` knows places of other works, where one of
 * them is enough). A short write needs a write. A death leaves the same at every operation between two changes of the
 * disk, so one of those is enough; after the last change each counts, for the work may have been acknowledged there.
 */
export function faultPoints(kind: Fault["kind"], recorded: FaultDisk, seen?: Set<string>): number[] {
  const { operations, places = [] } = recorded;
  const all = operations.map((_, index) => index + 1);
  if (places.length !== operations.length) throw new Error("record() the work first");
  if (kind === "short") return all.filter((at) => operations[at - 1] === "write");
  if (isEvery()) return all;
  if (kind === "fail")
    return all.filter((at) => {
      const place = places[at - 1];
      if (seen?.has(place)) return false;
      seen?.add(place);
      return seen !== undefined || places.indexOf(place) === at - 1 || places.lastIndexOf(place) === at - 1;
    });
  const last = operations.findLastIndex((operation) => LEFT_BEHIND.has(operation));
  return all.filter(
    (at) => at === 1 || at > last + 1 || operations[at - 1] === "write" || LEFT_BEHIND.has(operations[at - 2]),
  );
}

/** A disk as the next process finds it. */
interface AfterCrash {
  readonly disk: FaultDisk;
  readonly cut: PowerCut | undefined;
}

interface Inode {
  readonly number: number;
  bytes: Uint8Array;
  /** The buffer that {@link bytes} begin, with spare bytes: lines are added without a copy of the file. */
  spare?: Uint8Array;
  /** Content that survives a power cut. */
  synced: Uint8Array;
  modified: number;
  changed: number;
  mode: number;
}

interface Folder {
  readonly number: number;
  readonly names: Map<string, Inode | Folder>;
  /** Number of changes of the names: a folder has another stamp after each. */
  modified: number;
  /** Names that survive a power cut. */
  synced: Map<string, Inode | Folder>;
}

function isFolder(node: Inode | Folder | undefined): node is Folder {
  return node !== undefined && "names" in node;
}

const DEVICE = 1;
const NOTHING = new Uint8Array(0);

export class FaultDisk implements Disk {
  /** Names of the operations since the fault was set, for messages and counts. */
  operations: string[] = [];
  /** True if the fault has struck. */
  struck = false;
  /** The time of changes, which by default are long ago. */
  clock: (() => number) | undefined;
  /** Number of changes of contents, names or modes that share one change time, as on kernels that count in 4 ms. */
  changesATick = 1;
  /** For each operation since {@link record} its name with {@link placeInSources}. */
  places: string[] | undefined;
  private fault: Fault | undefined;
  private dead = false;
  private full: string | undefined;
  private inodes = 0;
  private ticks = 0;
  private changes = 0;
  private nextDescriptor = 3;
  private readonly root: Folder = { number: 0, modified: 0, names: new Map(), synced: new Map() };
  private readonly descriptors = new Map<number, { inode: Inode | null; path: string; append: boolean }>();

  // --- what tests do to it -------------------------------------------------------------------------------------

  set(fault: Fault | undefined): void {
    this.operations = [];
    this.places = undefined;
    this.fault = fault;
    this.struck = false;
    this.full = undefined;
  }

  /** Begins to record the operations with their places in the sources, for {@link faultPoints}. */
  record(): void {
    this.set(undefined);
    this.places = [];
  }

  /** A file that stands there durably. */
  put(path: string, bytes: Uint8Array, mode = 0o600): void {
    const folder = this.addFolder(dirname(path));
    const copy = Uint8Array.from(bytes);
    const inode = { ...this.newInode(), bytes: copy, synced: copy, mode };
    folder.names.set(basename(path), inode);
    folder.modified++;
    folder.synced.set(basename(path), inode);
  }

  /** The present content of a file, or undefined. */
  content(path: string): Uint8Array | undefined {
    const node = this.nodeAt(path);
    return node && !isFolder(node) ? node.bytes : undefined;
  }

  /** Paths of all files. */
  paths(): string[] {
    const found: string[] = [];
    const walk = (path: string, node: Folder | Inode): void => {
      if (!isFolder(node)) found.push(path);
      else for (const [name, inner] of node.names) walk(`${path}/${name}`, inner);
    };
    walk("", this.root);
    return found.sort();
  }

  get openCount(): number {
    return this.descriptors.size;
  }

  /** The disk as the next process finds it: with all that was written, durably, or with what a power cut left of it. */
  after(cut: PowerCut = { names: "all", content: "all" }): FaultDisk {
    return this.copy(cut).disk;
  }

  /** The disk as the next process finds it after a death: all that was written is there, and a power cut may yet take it. */
  afterDeath(): FaultDisk {
    return this.copy().disk;
  }

  /**
   * Returns the disk as the next process finds it, after a death and after each power cut: each that differs from those
   * before it and from those that `seen` knows. `promised` is the test's own expectation, which counts as part of the
   * difference.
   */
  crashes(seen: Set<string> = new Set(), promised = ""): AfterCrash[] {
    return [undefined, ...POWER_CUTS].flatMap((cut) => {
      const disk = cut ? this.after(cut) : this.afterDeath();
      const mark = `${promised} ${disk.fingerprint()}`;
      if (seen.has(mark) && !isEvery()) return [];
      seen.add(mark);
      return [{ disk, cut }];
    });
  }

  /**
   * Returns the disk as the next process finds it, with everything and after the power cut that takes most; after each
   * cut in the long runs. For acknowledged work, which every cut has to leave whole.
   */
  lasting(): AfterCrash[] {
    const cuts = isEvery() ? POWER_CUTS : POWER_CUTS.slice(0, 1);
    return [undefined, ...cuts].map((cut) => ({ disk: this.after(cut), cut }));
  }

  /** A digest of names, contents, times and modes. */
  private fingerprint(): string {
    const digest = createHash("sha256");
    const walk = (folder: Folder): void => {
      for (const [name, node] of [...folder.names].sort(([a], [b]) => (a < b ? -1 : 1)))
        if (isFolder(node)) {
          digest.update(`${JSON.stringify(name)}{`);
          walk(node);
          digest.update("}");
        } else {
          const { number, bytes, synced, modified, changed, mode } = node;
          const isSynced = synced.length === bytes.length && folder.synced.get(name) === node;
          digest.update(JSON.stringify([name, number, bytes.length, modified, changed, mode, isSynced])).update(bytes);
        }
    };
    walk(this.root);
    return digest.digest("hex");
  }

  /** Returns the disk as it is now, with its open files. */
  snapshot(): FaultDisk {
    const { disk, copyOf } = this.copy({ names: "all", content: "all" });
    for (const [fd, { inode, ...opened }] of this.descriptors)
      disk.descriptors.set(fd, { ...opened, inode: inode && copyOf(inode) });
    disk.nextDescriptor = this.nextDescriptor;
    return disk;
  }

  /** Returns a durable copy of the disk after a power cut; without a cut, a copy that is as durable as the disk. */
  private copy(cut?: PowerCut): { disk: FaultDisk; copyOf: (inode: Inode) => Inode } {
    const next = new FaultDisk();
    const { inodes, ticks, changes, changesATick } = this;
    Object.assign(next, { inodes, ticks, changes, changesATick });
    const copies = new Map<Inode, Inode>();
    const copyOf = (inode: Inode): Inode => {
      let copy = copies.get(inode);
      if (!copy) {
        const bytes = cut ? remainder(inode, cut.content) : inode.bytes;
        copy = { ...inode, bytes, spare: undefined, synced: cut ? bytes : inode.synced };
        copies.set(inode, copy);
      }
      return copy;
    };
    const folders = new Map<Folder, Folder>();
    const nodeOf = (node: Inode | Folder): Inode | Folder => {
      if (!isFolder(node)) return copyOf(node);
      // A cut may leave both names of a folder that was moved, and then each has its own.
      let copy = cut ? undefined : folders.get(node);
      if (!copy) {
        copy = { number: node.number, modified: node.modified, names: new Map(), synced: new Map() };
        folders.set(node, copy);
        fill(node, copy);
      }
      return copy;
    };
    const fill = (from: Folder, to: Folder): void => {
      for (const [name, node] of cut?.names === "synced" ? from.synced : from.names) to.names.set(name, nodeOf(node));
      if (cut) for (const [name, node] of to.names) to.synced.set(name, node);
      else for (const [name, node] of from.synced) to.synced.set(name, nodeOf(node));
    };
    fill(this.root, next.root);
    return { disk: next, copyOf };
  }

  /** A folder that stands there durably, with those above it. */
  private addFolder(path: string): Folder {
    let at = this.root;
    for (const name of path.split("/").filter((part) => part !== "")) {
      let next = at.names.get(name);
      if (next === undefined) {
        next = { number: ++this.inodes, modified: 0, names: new Map(), synced: new Map() };
        at.names.set(name, next);
        at.modified++;
        at.synced.set(name, next);
      }
      if (!isFolder(next)) throw errno("ENOTDIR");
      at = next;
    }
    return at;
  }

  private nodeAt(path: string): Inode | Folder | undefined {
    let at: Inode | Folder | undefined = this.root;
    for (const name of partsOf(path)) at = isFolder(at) ? at.names.get(name) : undefined;
    return at;
  }

  // --- the operations ------------------------------------------------------------------------------------------

  openRead(path: string): number {
    this.step("openRead");
    const node = this.demand(path);
    return this.describe(isFolder(node) ? null : node, path, false);
  }

  openAppend(path: string): number {
    this.step("openAppend");
    const node = this.demand(path);
    if (isFolder(node)) throw errno("EISDIR");
    return this.describe(node, path, true);
  }

  create(path: string): number {
    this.step("create");
    const folder = this.folderOf(path);
    if (folder.names.has(basename(path))) throw errno("EEXIST");
    const inode = this.newInode();
    folder.names.set(basename(path), inode);
    folder.modified++;
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
    const half = bytes.subarray(0, bytes.length >> 1);
    try {
      this.step("write");
    } catch (error) {
      if (this.isStruckBy("die")) this.put_(fd, half);
      throw error;
    }
    if (this.fault?.kind === "short" && this.isStruckBy("short")) {
      this.struck = true;
      this.full = this.fault.errno;
      return this.put_(fd, half);
    }
    return this.put_(fd, bytes);
  }

  /** Returns whether a fault of this kind is that of the present operation. */
  private isStruckBy(kind: Fault["kind"]): boolean {
    return this.fault?.kind === kind && this.operations.length === this.fault.at;
  }

  private put_(fd: number, bytes: Uint8Array): number {
    const opened = this.descriptors.get(fd);
    if (!opened?.append) throw errno("EBADF");
    const inode = this.inodeAt(fd);
    const size = inode.bytes.length + bytes.length;
    if (inode.spare === undefined || inode.spare.length < size) {
      inode.spare = new Uint8Array(Math.max(size, 2 * inode.bytes.length));
      inode.spare.set(inode.bytes);
    }
    inode.spare.set(bytes, inode.bytes.length);
    inode.bytes = inode.spare.subarray(0, size);
    this.touch(inode);
    return bytes.length;
  }

  private touch(inode: Inode): void {
    inode.modified = this.tick();
    inode.changed = this.nextChange();
  }

  infoOf(fd: number): FileInfo {
    this.step("infoOf");
    const opened = this.descriptors.get(fd);
    if (!opened) throw errno("EBADF");
    return opened.inode ? infoOf(opened.inode) : folderInfo(this.demand(opened.path));
  }

  info(path: string): FileInfo {
    this.step("info");
    const node = this.demand(path);
    return isFolder(node) ? folderInfo(node) : infoOf(node);
  }

  truncate(fd: number, size: number): void {
    this.step("truncate");
    const inode = this.inodeAt(fd);
    if (!this.descriptors.get(fd)?.append) throw errno("EINVAL");
    inode.bytes = inode.bytes.slice(0, size);
    inode.spare = undefined;
    this.touch(inode);
  }

  sync = async (fd: number, _isOther?: boolean): Promise<void> => this.syncNow(fd);

  syncNow(fd: number): void {
    this.step("sync");
    const inode = this.inodeAt(fd);
    inode.synced = inode.bytes;
  }

  async syncFolder(path: string): Promise<void> {
    this.syncFolderNow(path);
  }

  syncFolderNow(path: string): void {
    this.step("syncFolder");
    const folder = this.nodeAt(path);
    if (!isFolder(folder)) throw errno("ENOENT");
    folder.synced = new Map(folder.names);
  }

  link(path: string, name: string): void {
    this.step("link");
    const folder = this.folderOf(name);
    if (folder.names.has(basename(name))) throw errno("EEXIST");
    const inode = this.fileAt(path);
    folder.names.set(basename(name), inode);
    folder.modified++;
    inode.changed = this.nextChange();
  }

  rename(path: string, name: string): void {
    this.step("rename");
    const folder = this.folderOf(name);
    const node = this.demand(path);
    const taken = folder.names.get(basename(name));
    if (isFolder(taken) && taken.names.size > 0) throw errno("ENOTEMPTY");
    if (taken !== undefined && isFolder(taken) !== isFolder(node)) throw errno(isFolder(node) ? "ENOTDIR" : "EISDIR");
    this.removeName(path);
    folder.names.set(basename(name), node);
    folder.modified++;
    if (!isFolder(node)) node.changed = this.nextChange();
  }

  remove(path: string): void {
    this.step("remove");
    this.fileAt(path).changed = this.nextChange();
    this.removeName(path);
  }

  private removeName(path: string): void {
    const folder = this.folderOf(path);
    folder.names.delete(basename(path));
    folder.modified++;
  }

  removeFolder(path: string): void {
    this.step("removeFolder");
    const node = this.demand(path);
    if (!isFolder(node)) throw errno("ENOTDIR");
    if (node.names.size > 0) throw errno("ENOTEMPTY");
    this.removeName(path);
  }

  makeFolder(path: string): string[] {
    const missing: string[] = [];
    for (let at = path; this.nodeAt(at) === undefined; at = dirname(at)) missing.unshift(at);
    try {
      this.step("makeFolder");
    } catch (error) {
      // The process that makes a folder syncs its name, and may die before that.
      if (this.isStruckBy("die") && missing.length > 0) {
        this.addFolder(missing[0]);
        this.folderOf(missing[0]).synced.delete(basename(missing[0]));
      }
      throw error;
    }
    this.addFolder(path);
    return missing;
  }

  names(folder: string): string[] {
    this.step("names");
    const node = this.nodeAt(folder);
    return isFolder(node) ? [...node.names.keys()] : [];
  }

  realPath(path: string): string {
    this.step("realPath");
    this.demand(path);
    return path;
  }

  copyMode(from: string, to: number): void {
    this.step("copyMode");
    const inode = this.inodeAt(to);
    inode.mode = this.fileAt(from).mode;
    inode.changed = this.nextChange();
  }

  private tick(): number {
    return this.clock?.() ?? ++this.ticks;
  }

  private nextChange(): number {
    return Math.floor(++this.changes / this.changesATick);
  }

  private newInode(): Inode {
    const times = { modified: this.tick(), changed: this.nextChange() };
    return { number: ++this.inodes, bytes: NOTHING, synced: NOTHING, ...times, mode: 0o600 };
  }

  private step(operation: string): void {
    if (this.dead) throw errno("EIO", "the machine is off");
    this.operations.push(operation);
    this.places?.push(`${operation} ${placeInSources()}`);
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

  /** Returns the folder that has the name of a path. */
  private folderOf(path: string): Folder {
    const folder = this.nodeAt(dirname(path));
    if (!isFolder(folder)) throw errno("ENOENT");
    return folder;
  }

  private demand(path: string): Inode | Folder {
    const node = this.nodeAt(path);
    if (node === undefined) throw errno("ENOENT");
    return node;
  }

  private fileAt(path: string): Inode {
    const node = this.demand(path);
    if (isFolder(node)) throw errno("EISDIR");
    return node;
  }

  private inodeAt(fd: number): Inode {
    const opened = this.descriptors.get(fd);
    if (!opened) throw errno("EBADF");
    if (!opened.inode) throw errno("EISDIR");
    return opened.inode;
  }
}

/** Returns the places of the sources that the present call comes from, innermost first. */
function placeInSources(): string {
  const { stackTraceLimit, prepareStackTrace } = Error;
  Error.stackTraceLimit = 100;
  // Traces are not read: looking each up in its source map took a tenth of the time of the tests of faults.
  Error.prepareStackTrace = (_error, sites) =>
    sites
      .filter((location) => location.getFileName()?.includes("/src/"))
      .map((location) => `${location.getFileName()}:${location.getLineNumber()}:${location.getColumnNumber()}`)
      .join("\n");
  const { stack = "" } = new Error();
  Error.prepareStackTrace = prepareStackTrace;
  Error.stackTraceLimit = stackTraceLimit;
  return stack;
}

/** Names in paths that were asked for; splitting them took a seventh of the time of the tests of faults. */
const parts = new Map<string, readonly string[]>();

function partsOf(path: string): readonly string[] {
  let names = parts.get(path);
  if (names === undefined) {
    names = path.split("/").filter((name) => name !== "" && name !== ".");
    if (parts.size > 10_000) parts.clear();
    parts.set(path, names);
  }
  return names;
}

function folderInfo(node: Folder | Inode): FileInfo {
  const modified = isFolder(node) ? node.modified : 0;
  return { kind: "folder", size: 0, modified, device: DEVICE, inode: node.number, mode: 0o700 };
}

function infoOf(inode: Inode): FileInfo {
  const { number, bytes, modified, changed, mode } = inode;
  return { kind: "file", size: bytes.length, modified, changed, device: DEVICE, inode: number, mode };
}

function remainder(inode: Inode, content: PowerCut["content"]): Uint8Array {
  if (content === "all") return inode.bytes;
  if (content === "synced" || inode.bytes.length <= inode.synced.length) return inode.synced;
  const zeroed = new Uint8Array(inode.bytes.length);
  zeroed.set(inode.synced);
  return zeroed;
}

/** Returns an error. Most are ENOENT, a hundred thousand times in a run, and their stack is not read. */
function errno(code: string, message = code): Error {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  const error = Object.assign(new Error(`${code}: ${message}`), { code });
  Error.stackTraceLimit = stackTraceLimit;
  return error;
}
