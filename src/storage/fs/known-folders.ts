/**
 * Folders that lists look at again and again, and the stamps of their files. With many files, the folders are watched,
 * and only reported ones are looked at: of 1,000 files in 200 folders, that saves 8 ms of a page.
 *
 * A look asks for folders before it asks for the files and the folders in them.
 */

import { basename, dirname, join, sep } from "node:path";
import { pause } from "./chunked-io.ts";
import type { Disk, FileInfo, Named } from "./disk.ts";
import { getInfo } from "./files.ts";
import { listFolder } from "./folders.ts";
import { type FoundStamp, isSameFile, isSameStamp, isYoung, readDiskClock, toFoundStamp } from "./stamps.ts";

/** Returns the entries of a folder; an empty list when it is missing. Throws errno errors. */
export type ListFolder = (folder: string) => readonly Named[];

/** Number of files from which on folders are watched: below, all stamps take 3 ms at most. */
const WATCH_FROM = 500;
/** Names of lock files, of their notes, and of temporary files. */
const OURS = /^\.(?:pi-session-\d+\.(?:lock|holder)|.+\.tmp)$/;
/** Most watched folders: each takes 0.3 ms once, and a part of the system's limit for all programs. */
const MOST_WATCHED = 1000;
/** Notifications since all was looked at, beyond which the system may have dropped some. */
const MAX_NOTIFICATIONS = 2000;
/** Milliseconds until all is looked at: a file can change through a map, or through a name that it got later. */
const ALL_AFTER = 60_000;

interface FolderWatch {
  /** Names that were reported; null: anything in the folder. */
  dirty: Set<string> | null;
  stop: () => void;
}

interface KnownFolder {
  readonly info: FileInfo;
  entries: readonly Named[];
  /** Stamps of its files, as far as a watch reports their changes. */
  readonly stamps: Map<string, FoundStamp>;
  readonly watch: FolderWatch | undefined;
}

export class KnownFolders {
  private readonly disk: Disk;
  private readonly now: () => number;
  private readonly watchFrom: number;
  private readonly known = new Map<string, KnownFolder>();
  /** Folders whose replacement no watch above them reports, with their last state; null for a missing one. */
  private readonly tops = new Map<string, FileInfo | null>();
  private isWatching = false;
  private isWatchable = true;
  private watches = 0;
  private notifications = 0;
  private hasNews = false;
  /** True if something was found that no watch reports. */
  private hasUnreported = false;
  private lookedAtAll = 0;
  /** The entries of the folders of this look, which is asked for some of them again. */
  private readonly seen = new Map<string, readonly Named[]>();
  /** The folders of this look in which no watch reported anything. */
  private readonly same = new Set<string>();
  /** True if this look is at everything, whatever watches report. */
  private isForAll = true;
  private files = 0;

  constructor(disk: Disk, now: () => number, watchFrom = WATCH_FROM) {
    this.disk = disk;
    this.now = now;
    this.watchFrom = watchFrom;
  }

  /** Begins a look. Returns false if nothing can have changed since the last one. */
  async begin(): Promise<boolean> {
    const now = this.now();
    this.isWatching ||= this.isWatchable && this.files >= this.watchFrom;
    if (this.isWatching) {
      // Changes before this call are reported once the event loop has polled again, which takes two turns.
      await pause();
      await pause();
    }
    const isOld = now - this.lookedAtAll > ALL_AFTER || now < this.lookedAtAll;
    this.isForAll = isOld || this.notifications > MAX_NOTIFICATIONS;
    if (this.isWatching && !this.isForAll && !this.hasNews && !this.hasUnreported && this.areTopsSame()) return false;
    if (this.isForAll) {
      this.notifications = 0;
      this.lookedAtAll = now;
    }
    this.hasNews = false;
    this.hasUnreported = false;
    this.tops.clear();
    this.seen.clear();
    this.same.clear();
    this.files = 0;
    return true;
  }

  close(): void {
    for (const { watch } of this.known.values()) watch?.stop();
    this.known.clear();
    this.seen.clear();
  }

  /** Notes that this look depends on something else than the folders that were asked for. */
  noteUnreported(): void {
    this.hasUnreported = true;
  }

  readonly list: ListFolder = (folder) => {
    const entries = this.seen.get(folder) ?? this.look(folder);
    this.seen.set(folder, entries);
    return entries;
  };

  private look(folder: string): readonly Named[] {
    const { disk, known, isForAll } = this;
    const before = known.get(folder);
    const above = known.get(dirname(folder))?.watch;
    const isReported = above?.dirty?.size === 0 && !isForAll;
    if (before?.watch && isReported && before.watch.dirty?.size === 0) return this.unchanged(folder, before);
    const info = before?.watch && isReported ? before.info : getInfo(disk, folder);
    if (!isReported) this.tops.set(folder, info);
    if (before && (info === null || !isSameFile(before.info, info))) this.forget(folder);
    if (info === null) return [];
    const same = known.get(folder);
    return same?.watch ? this.watched(folder, same, same.watch) : this.listed(folder, info, same);
  }

  /** Returns the stamp of a file in a folder of this look; undefined for anything else. Follows no link. */
  stampOf(path: string): FoundStamp | undefined {
    const folder = this.known.get(dirname(path));
    const name = basename(path);
    this.files++;
    const stamp = folder?.stamps.get(name);
    if (stamp) return stamp;
    const info = getInfo(this.disk, path, true);
    if (info?.kind !== "file") return undefined;
    const found = toFoundStamp(info);
    // A write by another name of the file is reported to the folder of that name.
    if (folder?.watch && (info.links ?? 1) === 1) folder.stamps.set(name, found);
    else this.hasUnreported = true;
    return found;
  }

  private unchanged(folder: string, { entries }: KnownFolder): readonly Named[] {
    this.same.add(folder);
    return entries;
  }

  /** Returns whether a folder of this look has no change since the last one, which noted the stamps of `count` files. */
  isSame(folder: string, count: number): boolean {
    return this.same.has(folder) && this.known.get(folder)?.stamps.size === count;
  }

  /** Returns the entries of a folder that is watched. */
  private watched(folder: string, known: KnownFolder, watch: FolderWatch): readonly Named[] {
    const { dirty } = watch;
    if (this.isForAll) known.stamps.clear();
    else if (dirty?.size === 0) return this.unchanged(folder, known);
    // Reports from here on are for the next look.
    watch.dirty = new Set();
    if (dirty) for (const name of dirty) known.stamps.delete(name);
    else known.stamps.clear();
    // A folder below may be another one of the same name.
    for (const name of dirty ?? known.entries.map((entry) => entry.name)) this.forget(join(folder, name));
    try {
      known.entries = listFolder(this.disk, folder);
    } catch (error) {
      watch.dirty = null;
      throw error;
    }
    return known.entries;
  }

  /** Returns the entries of a folder that is not watched, or was not so far. */
  private listed(folder: string, info: FileInfo, before: KnownFolder | undefined): readonly Named[] {
    const { disk, known } = this;
    // Names added from here on are reported.
    const watch = this.isWatching ? this.watchOf(folder, info) : undefined;
    if (!watch) this.hasUnreported = true;
    if (!watch && before && isSameStamp(before.info, info)) return before.entries;
    known.delete(folder);
    const entries = listFolder(disk, folder);
    // A name may be added in this moment under the same stamp.
    if (watch || !isYoung(info, readDiskClock(disk))) known.set(folder, { info, entries, stamps: new Map(), watch });
    return entries;
  }

  private watchOf(folder: string, info: FileInfo): FolderWatch | undefined {
    const { disk } = this;
    if (!this.isWatchable || this.watches >= MOST_WATCHED) return undefined;
    const watch: FolderWatch = { dirty: new Set(), stop: () => {} };
    const stop = disk.watch?.(folder, (name) => {
      // Our lock files and temporary files are created and removed all the time.
      if (name !== null && OURS.test(name)) return;
      this.notifications++;
      this.hasNews = true;
      if (name === null) watch.dirty = null;
      else watch.dirty?.add(name);
    });
    const now = getInfo(disk, folder);
    if (stop && now && isSameFile(now, info)) {
      this.watches++;
      watch.stop = () => {
        this.watches--;
        stop();
      };
      return watch;
    }
    stop?.();
    // The system's limit is reached, or this disk has no watches: it is not tried again.
    if (!stop) this.isWatchable = false;
    return undefined;
  }

  private forget(folder: string): void {
    const within = folder + sep;
    for (const [path, { watch }] of this.known) {
      if (path !== folder && !path.startsWith(within)) continue;
      watch?.stop();
      this.known.delete(path);
    }
  }

  private areTopsSame(): boolean {
    for (const [folder, before] of this.tops) {
      const info = getInfo(this.disk, folder);
      if (info === null ? before !== null : before === null || !isSameFile(info, before)) return false;
    }
    return true;
  }
}
