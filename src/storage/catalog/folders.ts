/** Which session files there are, and which of them changed since the last look. */

import { join } from "node:path";
import type { FileStamp } from "../../core/ports/store.ts";
import { pause } from "../fs/chunked-io.ts";
import type { Disk, FileInfo } from "../fs/disk.ts";
import { archiveFolder, isSessionName, type Places } from "../fs/paths.ts";
import { containerOfPointer, isContainerName, stampOfContainer } from "./containers.ts";

/** Equal stamps mean an unchanged file. */
export interface Stamp extends FileStamp {
  readonly changed: number;
}

export function stampOf(info: FileInfo): Stamp {
  const { device, inode, size, modified, changed = 0 } = info;
  return { device, inode, size, modified, changed };
}

export function sameStamp(a: Stamp, b: Stamp): boolean {
  return (
    a.size === b.size &&
    a.modified === b.modified &&
    a.changed === b.changed &&
    a.inode === b.inode &&
    a.device === b.device
  );
}

/** What a look found, by path. Whatever is not in it is as it was. */
export interface Look {
  /** Files whose stamp is to be compared. */
  readonly there: ReadonlyMap<string, Stamp>;
  readonly gone: readonly string[];
}

interface Folder {
  readonly path: string;
  device: number;
  inode: number;
  files: Set<string>;
  /** What can change without the folder's watch telling: links, files with other names elsewhere, containers. */
  elsewhere: Set<string>;
  /** Names that the watch told of; null: the whole folder. */
  dirty: Set<string> | null;
  stop?: () => void;
}

/** Below this many files each look asks about every one of them, which takes 5 ms at most and trusts nothing. */
const WATCH_FROM = 500;
/** Changes told since the last look at everything beyond which the system may have dropped some. */
const MOST_TOLD = 2000;
/** Milliseconds after which everything is looked at even so: files can be changed through memory or other names. */
const LOOK_AT_ALL_AFTER = 60_000;
/** Files asked about without a pause. */
const SLICE = 1000;

export class Folders {
  private readonly disk: Disk;
  private readonly places: Places;
  private readonly now: () => number;
  private readonly watchFrom: number;
  private folders = new Map<string, Folder>();
  private stopRoot: (() => void) | undefined;
  private rootDirty = true;
  private root = "";
  private watching = false;
  private watchable = true;
  private told = 0;
  private lookedAtAll = Number.NEGATIVE_INFINITY;

  constructor(disk: Disk, places: Places, now: () => number, watchFrom = WATCH_FROM) {
    this.disk = disk;
    this.places = places;
    this.now = now;
    this.watchFrom = watchFrom;
  }

  async look(): Promise<Look> {
    if (this.watching) {
      // What happened before this call has been told when the loop has polled once more, which takes two turns.
      await pause();
      await pause();
      const look = this.lookAtTold();
      if (look) return look;
    }
    return this.lookAtAll();
  }

  close(): void {
    this.stopWatching();
    this.folders = new Map();
  }

  // --- everything ----------------------------------------------------------------------------------------------

  private async lookAtAll(): Promise<Look> {
    // A watch stays with the folder it was made for, wherever that is moved.
    if (this.watching && this.rootIdentity() !== this.root) this.stopWatching();
    const before = this.folders;
    const there = new Map<string, Stamp>();
    this.told = 0;
    this.rootDirty = false;
    this.lookedAtAll = this.now();
    for (const folder of before.values()) folder.dirty = new Set();
    const found = new Map<string, Folder>();
    let count = 0;
    for (const path of this.folderPaths()) {
      const folder = this.enter(path, before.get(path));
      if (!folder) continue;
      found.set(path, folder);
      for (const name of this.read(folder)) {
        if (++count % SLICE === 0) await pause();
        this.ask(folder, name, there);
      }
    }
    const gone: string[] = [];
    for (const [path, folder] of before) {
      if (found.has(path)) continue;
      folder.stop?.();
      for (const name of folder.files) gone.push(join(path, name));
    }
    for (const folder of found.values()) {
      const known = before.get(folder.path);
      this.noteGone(folder, known, there, gone);
      // What was told while we looked is looked at again.
      if (known && folder.stop) folder.dirty = known.dirty;
    }
    this.folders = found;
    if (count >= this.watchFrom && !this.watching && this.watchable) {
      // Watches come before the look that they complete.
      if (this.startWatching()) return this.lookAgain(gone);
    } else if (this.watching && !this.watchNew()) this.stopWatching();
    return { there, gone };
  }

  private async lookAgain(gone: string[]): Promise<Look> {
    const look = await this.lookAtAll();
    const back = look.there;
    return { there: back, gone: [...new Set([...gone.filter((path) => !back.has(path)), ...look.gone])] };
  }

  private *folderPaths(): Generator<string> {
    const { flat, root } = this.places;
    const archive = archiveFolder(this.places);
    if (flat !== undefined) {
      yield flat;
      yield archive;
      return;
    }
    for (const above of [root as string, archive])
      for (const { name, kind } of this.names(above))
        if (!name.startsWith(".") && kind !== "file" && kind !== "other") yield join(above, name);
  }

  private names(folder: string): { name: string; kind: string }[] {
    try {
      return this.disk.list?.(folder) ?? this.disk.names(folder).map((name) => ({ name, kind: "unknown" }));
    } catch {
      // It is not there, or nobody may look into it: there is nothing to list.
      return [];
    }
  }

  /** The folder as it is now; undefined when it is none. */
  private enter(path: string, before: Folder | undefined): Folder | undefined {
    const info = infoOf(this.disk, path);
    if (info?.kind !== "folder") return undefined;
    const { device, inode } = info;
    const same = before !== undefined && before.device === device && before.inode === inode;
    if (before && !same) before.stop?.();
    return {
      path,
      device,
      inode,
      files: new Set(),
      elsewhere: new Set(),
      dirty: new Set(),
      // A watch stays: it tells of whatever folder has the path here.
      stop: same ? before.stop : undefined,
    };
  }

  private read(folder: Folder): string[] {
    const names: string[] = [];
    for (const { name, kind } of this.names(folder.path)) {
      const fits = isContainerName(name)
        ? kind !== "file" && kind !== "other"
        : isSessionName(name) && kind !== "folder" && kind !== "other";
      if (!fits) continue;
      names.push(name);
      if (kind === "link") folder.elsewhere.add(name);
    }
    return names;
  }

  private ask(folder: Folder, name: string, there: Map<string, Stamp>): void {
    const path = join(folder.path, name);
    if (isContainerName(name)) {
      const stamp = stampOfContainer(this.disk, path);
      if (!stamp) return;
      folder.files.add(name);
      folder.elsewhere.add(name);
      there.set(path, stamp);
      return;
    }
    const info = infoOf(this.disk, path);
    if (info?.kind !== "file") return;
    folder.files.add(name);
    if ((info.links ?? 1) > 1) folder.elsewhere.add(name);
    there.set(path, stampOf(info));
  }

  private noteGone(
    folder: Folder,
    before: Folder | undefined,
    there: ReadonlyMap<string, Stamp>,
    gone: string[],
  ): void {
    for (const name of before?.files ?? []) {
      const path = join(folder.path, name);
      if (!there.has(path) && !folder.files.has(name)) gone.push(path);
    }
  }

  // --- only what was told --------------------------------------------------------------------------------------

  /** Undefined when everything has to be looked at. */
  private lookAtTold(): Look | undefined {
    if (this.rootDirty || this.told > MOST_TOLD || this.now() - this.lookedAtAll > LOOK_AT_ALL_AFTER) return undefined;
    if (this.rootIdentity() !== this.root) return undefined;
    for (const folder of this.folders.values()) {
      const info = infoOf(this.disk, folder.path);
      if (info?.kind !== "folder" || info.inode !== folder.inode || info.device !== folder.device) return undefined;
      if (folder.dirty === null) return undefined;
    }
    const there = new Map<string, Stamp>();
    const gone: string[] = [];
    for (const folder of this.folders.values()) {
      const names = new Set([...(folder.dirty ?? []), ...folder.elsewhere]);
      folder.dirty?.clear();
      for (const name of names) {
        const path = join(folder.path, name);
        const known = folder.files.has(name);
        if (!isSessionName(name) && !isContainerName(name)) continue;
        // A link may have come in the place of a file.
        if (
          !known &&
          isSessionName(name) &&
          this.disk.list?.(folder.path).find((entry) => entry.name === name)?.kind === "link"
        )
          folder.elsewhere.add(name);
        this.ask(folder, name, there);
        if (there.has(path) || !known) continue;
        folder.files.delete(name);
        folder.elsewhere.delete(name);
        gone.push(path);
      }
    }
    return { there, gone };
  }

  private rootIdentity(): string {
    const { flat, root } = this.places;
    return [flat ?? (root as string), archiveFolder(this.places)]
      .map((path) => infoOf(this.disk, path))
      .map((info) => (info ? `${info.device} ${info.inode}` : ""))
      .join(" ");
  }

  private startWatching(): boolean {
    const { disk, places } = this;
    this.watching = true;
    const dirty = (): void => {
      this.rootDirty = true;
    };
    if (places.root !== undefined) {
      const archive = archiveFolder(places);
      const stopRoot = disk.watch?.(places.root, dirty);
      const stopArchive = infoOf(disk, archive) ? disk.watch?.(archive, dirty) : () => {};
      if (stopRoot && stopArchive)
        this.stopRoot = () => {
          stopRoot();
          stopArchive();
        };
      else (stopRoot ?? stopArchive)?.();
    }
    if ((places.root === undefined || this.stopRoot) && this.watchNew()) return true;
    this.watchable = false;
    this.stopWatching();
    return false;
  }

  /** Watches every folder that is not watched yet; false when that cannot be done. */
  private watchNew(): boolean {
    this.root = this.rootIdentity();
    for (const folder of this.folders.values()) {
      if (folder.stop) continue;
      const { path } = folder;
      folder.stop = this.disk.watch?.(path, (name) => this.note(path, name));
      if (!folder.stop) return false;
      // Something may have changed between the look and the watch.
      folder.dirty = null;
    }
    return true;
  }

  private note(path: string, name: string | null): void {
    // Locks and temporary files come and go all the time, and no session has such a name.
    if (name?.startsWith(".")) return;
    this.told++;
    const folder = this.folders.get(path);
    if (!folder) this.rootDirty = true;
    else if (name === null) folder.dirty = null;
    else folder.dirty?.add(containerOfPointer(name) ?? name);
  }

  private stopWatching(): void {
    this.stopRoot?.();
    this.stopRoot = undefined;
    for (const folder of this.folders.values()) {
      folder.stop?.();
      folder.stop = undefined;
    }
    this.watching = false;
  }
}

export function infoOf(disk: Disk, path: string): FileInfo | undefined {
  try {
    return disk.info(path);
  } catch {
    return undefined;
  }
}
