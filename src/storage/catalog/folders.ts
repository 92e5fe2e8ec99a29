/** Finds the session files, and those that have changed since the last call. */

import { join, sep } from "node:path";
import type { UnreadFile } from "../../core/ports/catalog.ts";
import { pause } from "../fs/chunked-io.ts";
import { isContainerName } from "../fs/container-paths.ts";
import type { Disk } from "../fs/disk.ts";
import { findAllowed, getInfo } from "../fs/files.ts";
import { findStrangeFormat } from "../fs/formats.ts";
import { getArchiveFolder, isSessionFolder, isSessionName, type StoragePaths } from "../fs/paths.ts";
import { type FoundStamp, isSameFile, toFoundStamp } from "../fs/stamps.ts";
import { findUnlistedContainer } from "../v2/pointer.ts";
import type { CatalogOptions } from "./cached-rows.ts";
import { getContainerOfPointer, scanContainer, stampContainer } from "./containers.ts";
import type { FolderChanges, ListedFiles } from "./listed-files.ts";
import type { SessionRow } from "./session-row.ts";
import { type Scan, scanFile } from "./summary.ts";

interface Folder {
  readonly path: string;
  /** The path of its files, without the name: to join and normalize 100,000 paths takes 50 ms. */
  readonly prefix: string;
  /** True if the watch of the folder above reports a replacement of it: not for a link, whose target moves. */
  readonly isReported: boolean;
  device: number;
  inode: number;
  files: Set<string>;
  /** Names that can change without a notification of the watch: links, files with other hard links, containers. */
  elsewhere: Set<string>;
  /** Names of files that a container replaces: a rollback that was cut off has made one already. */
  taken: Set<string>;
  /** Names that the watch reported; null: the whole folder. */
  dirty: Set<string> | null;
  stop?: () => void;
}

/** Number of files below which `changes` reads all stamps, which takes 5 ms at most and depends on no watch. */
const WATCH_FROM = 500;
/** Notifications since the last full read, beyond which the system may have dropped some. */
const MAX_NOTIFICATIONS = 2000;
/** Milliseconds between full reads even with watches: files can be changed through memory maps or other names. */
const FULL_READ_AFTER = 60_000;
/** Milliseconds between looks at the paths of folders: no watch reports a mount over one. */
const LOOK_AFTER = 1000;
/** Stamps read without a pause, which takes 4 ms. */
const SLICE = 250;

export class Folders implements ListedFiles {
  readonly isForeign = false;
  private readonly options: CatalogOptions;
  private readonly disk: Disk;
  private readonly paths: StoragePaths;
  private folders = new Map<string, Folder>();
  /** Containers that are no sessions, by their paths, with how each is. */
  private readonly unlisted = new Map<string, UnreadFile>();
  /** Stop the watches of the folders above; undefined for one that could not be watched. */
  private stops: ((() => void) | undefined)[] = [];
  private rootDirty = true;
  private root = "";
  private watching = false;
  private watchable = true;
  private notifications = 0;
  private lastFullRead = Number.NEGATIVE_INFINITY;
  private lastLook = Number.NEGATIVE_INFINITY;

  constructor(options: CatalogOptions) {
    this.options = options;
    this.disk = options.disk;
    this.paths = options.paths;
  }

  async changes(): Promise<FolderChanges> {
    if (this.watching) {
      // Changes before this call are reported once the event loop has polled again, which takes two turns.
      await pause();
      await pause();
      const changes = this.checkNotified();
      if (changes) return changes;
    }
    return this.readAll();
  }

  scan(path: string, _stamp: FoundStamp, before: SessionRow | undefined, hasGrown: boolean): Scan | null {
    const { disk, options } = this;
    return isContainerName(path)
      ? scanContainer(disk, path, options.openLog, before?.facts.base)
      : scanFile(disk, path, hasGrown ? before?.facts.base : undefined);
  }

  listUnread(): Iterable<UnreadFile> {
    return this.unlisted.values();
  }

  describe(path: string): UnreadFile | undefined {
    return findAllowed(() => {
      const format = findStrangeFormat(this.disk, path);
      const text = format
        ? `${path} ${format.is}. Nothing is wrong with it. ${format.next}.`
        : `${path} is no session: it has no header, and no entry at its beginning. Restore it from a backup.`;
      return { path, text, isDamaged: !format };
    });
  }

  close(): void {
    this.stopWatching();
    this.folders = new Map();
  }

  private async readAll(): Promise<FolderChanges> {
    // A watch stays with its folder, even if that is moved.
    if (this.watching && this.rootIdentity() !== this.root) this.stopWatching();
    if (!this.watching && this.watchable) this.watchAhead();
    const before = this.folders;
    const there = new Map<string, FoundStamp>();
    this.unlisted.clear();
    this.notifications = 0;
    this.rootDirty = false;
    this.lastFullRead = this.options.env.now();
    for (const folder of before.values()) folder.dirty = new Set();
    const found = new Map<string, Folder>();
    let count = 0;
    for (const [path, isReported] of this.folderPaths()) {
      const folder = this.enter(path, isReported, before.get(path));
      if (!folder) continue;
      found.set(path, folder);
      const names = this.names(path);
      const isThere = new Set(names.filter(({ name }) => isContainerName(name)).map(({ name }) => name));
      for (const { name, kind } of names) {
        const named = getContainerOfPointer(name);
        if (named !== undefined && !isThere.has(named)) this.ask(folder, named, there);
        const isContainer = isContainerName(name);
        if (kind === "other" || kind === (isContainer ? "file" : "folder")) continue;
        if (!isContainer && !isSessionName(name)) continue;
        if (kind === "link") folder.elsewhere.add(name);
        if (++count % SLICE === 0) await pause();
        this.ask(folder, name, there);
      }
      hideTaken(folder, there);
    }
    const removed: string[] = [];
    for (const [path, known] of before) {
      const folder = found.get(path);
      if (!folder) known.stop?.();
      for (const name of known.files) if (!folder?.files.has(name)) removed.push(known.prefix + name);
      // Changes reported during this read are checked again.
      if (folder?.stop) folder.dirty = known.dirty;
    }
    this.folders = found;
    const { watchFrom = WATCH_FROM } = this.options;
    if (count >= watchFrom && !this.watching && this.watchable) {
      if (!this.startWatching()) return { there, removed };
      // The folders are read again after the watches started, so that no change is missed in between.
      const again = await this.readAll();
      const gone = removed.filter((path) => !again.there.has(path));
      return { there: again.there, removed: [...new Set([...gone, ...again.removed])] };
    }
    if (this.watching && !this.watchNew()) this.stopWatching();
    return { there, removed };
  }

  /** Yields the paths of the folders, each with whether the watch of the folder above reports changes of it. */
  private *folderPaths(): Generator<[path: string, isReported: boolean]> {
    const { flat, root } = this.paths;
    const archive = getArchiveFolder(this.paths);
    if (flat !== undefined) {
      yield [flat, false];
      yield [archive, false];
      return;
    }
    for (const above of [root as string, archive])
      for (const { name, kind } of this.names(above))
        if (kind !== "file" && kind !== "other" && isSessionFolder(this.disk, join(above, name)))
          yield [join(above, name), kind === "folder"];
  }

  private names(folder: string): { name: string; kind: string }[] {
    try {
      return this.disk.list?.(folder) ?? this.disk.names(folder).map((name) => ({ name, kind: "unknown" }));
    } catch {
      // It is missing or may not be read: there is nothing to list.
      return [];
    }
  }

  /** Returns a folder as it is now; undefined when it is not one. */
  private enter(path: string, isReported: boolean, before: Folder | undefined): Folder | undefined {
    const info = getInfo(this.disk, path);
    if (info?.kind !== "folder") return undefined;
    const { device, inode } = info;
    // The watch is kept if this is the same folder.
    const same = before !== undefined && isSameFile(before, info);
    if (!same) before?.stop?.();
    const stop = same ? before.stop : undefined;
    const sets = { files: new Set<string>(), elsewhere: new Set<string>(), taken: new Set<string>() };
    return { path, prefix: join(path, sep), isReported, device, inode, ...sets, dirty: new Set(), stop };
  }

  private ask(folder: Folder, name: string, there: Map<string, FoundStamp>): void {
    const path = folder.prefix + name;
    if (isContainerName(name)) {
      const found = stampContainer(this.disk, path);
      const unlisted = found ? undefined : findAllowed(() => findUnlistedContainer(this.disk, path));
      if (unlisted) this.unlisted.set(path, unlisted);
      else this.unlisted.delete(path);
      if (!found) return;
      folder.files.add(name);
      folder.elsewhere.add(name);
      there.set(path, found.stamp);
      if (found.source !== null) folder.taken.add(found.source);
      return;
    }
    const info = getInfo(this.disk, path);
    if (info?.kind !== "file") return;
    folder.files.add(name);
    if ((info.links ?? 1) > 1) folder.elsewhere.add(name);
    there.set(path, toFoundStamp(info));
  }

  /** Checks only the reported changes. Returns undefined when everything must be read. */
  private checkNotified(): FolderChanges | undefined {
    const isOld = this.options.env.now() - this.lastFullRead > FULL_READ_AFTER;
    if (this.rootDirty || isOld || this.notifications > MAX_NOTIFICATIONS) return undefined;
    if (this.rootIdentity() !== this.root) return undefined;
    if (!this.areSameFolders()) return undefined;
    const there = new Map<string, FoundStamp>();
    const removed: string[] = [];
    for (const folder of this.folders.values()) {
      if (folder.dirty?.size === 0 && folder.elsewhere.size === 0) continue;
      const names = new Set([...(folder.dirty ?? []), ...folder.elsewhere]);
      folder.dirty?.clear();
      folder.taken.clear();
      for (const name of names) {
        const path = folder.prefix + name;
        if (!isSessionName(name) && !isContainerName(name)) continue;
        // It may have become a link.
        if (getInfo(this.disk, path, true)?.kind === "link") folder.elsewhere.add(name);
        this.ask(folder, name, there);
        if (there.has(path) || !folder.files.delete(name)) continue;
        folder.elsewhere.delete(name);
        removed.push(path);
      }
      removed.push(...hideTaken(folder, there));
    }
    return { there, removed };
  }

  /** Returns whether the watched folders still have their paths, and the watches reported everything. */
  private areSameFolders(): boolean {
    const now = this.options.env.now();
    const isDue = !(Math.abs(now - this.lastLook) < LOOK_AFTER);
    if (isDue) this.lastLook = now;
    for (const folder of this.folders.values()) {
      if (folder.dirty === null) return false;
      if (folder.isReported && !isDue) continue;
      const info = getInfo(this.disk, folder.path);
      if (info?.kind !== "folder" || !isSameFile(info, folder)) return false;
    }
    return true;
  }

  private rootIdentity(): string {
    const { flat, root } = this.paths;
    return [flat ?? (root as string), getArchiveFolder(this.paths)]
      .map((path) => getInfo(this.disk, path))
      .map((info) => (info ? `${info.device} ${info.inode}` : ""))
      .join(" ");
  }

  /** Starts to watch before folders with much in them are read, which saves reading all stamps a second time. */
  private watchAhead(): void {
    const { watchFrom = WATCH_FROM } = this.options;
    const paths = [...this.folderPaths()];
    let count = 0;
    for (const [path] of paths) {
      count += this.names(path).filter(({ name }) => isSessionName(name) || isContainerName(name)).length;
      if (count >= watchFrom) break;
    }
    if (count < watchFrom) return;
    for (const [path, isReported] of paths) {
      const known = this.folders.get(path);
      const folder = this.enter(path, isReported, known);
      if (folder) this.folders.set(path, { ...folder, files: known?.files ?? folder.files });
    }
    this.startWatching();
  }

  private startWatching(): boolean {
    const { disk, paths } = this;
    this.watching = true;
    const archive = getArchiveFolder(paths);
    const above = paths.root === undefined ? [] : [paths.root, ...(getInfo(disk, archive) ? [archive] : [])];
    const dirty = (): void => {
      this.rootDirty = true;
    };
    this.stops = above.map((path) => disk.watch?.(path, dirty));
    if (!this.stops.includes(undefined) && this.watchNew()) return true;
    this.watchable = false;
    this.stopWatching();
    return false;
  }

  /** Watches every folder that is not watched yet. Returns false when one cannot be watched. */
  private watchNew(): boolean {
    this.root = this.rootIdentity();
    for (const folder of this.folders.values()) {
      if (folder.stop) continue;
      const { path } = folder;
      folder.stop = this.disk.watch?.(path, (name) => this.note(path, name));
      if (!folder.stop) return false;
      // The folder may have changed between the read and the start of the watch.
      folder.dirty = null;
    }
    return true;
  }

  private note(path: string, name: string | null): void {
    // Lock files and temporary files are created and removed all the time, and no session has such a name.
    if (name?.startsWith(".")) return;
    this.notifications++;
    const folder = this.folders.get(path);
    if (!folder) this.rootDirty = true;
    else if (name === null) folder.dirty = null;
    else folder.dirty?.add(getContainerOfPointer(name) ?? name);
  }

  private stopWatching(): void {
    for (const stop of this.stops.splice(0)) stop?.();
    for (const folder of this.folders.values()) {
      folder.stop?.();
      folder.stop = undefined;
    }
    this.watching = false;
  }
}

/** Leaves out the files that containers replace, and returns their paths. They are stamped each time. */
function hideTaken({ prefix, files, elsewhere, taken }: Folder, there: Map<string, FoundStamp>): string[] {
  const hidden = [...taken].filter((name) => files.delete(name));
  for (const name of hidden) {
    elsewhere.add(name);
    there.delete(prefix + name);
  }
  return hidden.map((name) => prefix + name);
}
