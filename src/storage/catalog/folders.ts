/** Finds the session files, and those that have changed since the last call. */

import { join, sep } from "node:path";
import type { UnreadFile } from "../../core/ports/catalog.ts";
import { KnownFolders, type ListFolder } from "../foreign/known-folders.ts";
import { ifAllowed } from "../foreign/places.ts";
import { pause } from "../fs/chunked-io.ts";
import { isContainerName } from "../fs/container-paths.ts";
import type { Disk, Named } from "../fs/disk.ts";
import { infoOrNull } from "../fs/files.ts";
import { entriesIfListed } from "../fs/folders.ts";
import { archiveFolder, isSessionName, type StoragePaths } from "../fs/paths.ts";
import type { FoundStamp } from "../fs/stamps.ts";
import { unlistedContainer } from "../v2/pointer.ts";
import type { CatalogOptions } from "./cached-rows.ts";
import { containerOfPointer, foundContainer } from "./containers.ts";

/** The result of `changes`, by path. Files that are in neither list have not changed. */
export interface FolderChanges {
  /** Files whose stamps must be compared. */
  readonly there: ReadonlyMap<string, FoundStamp>;
  readonly removed: readonly string[];
  /** Whether nothing changed since the last call: all sessions are as they were then. */
  readonly isSame?: boolean;
}

/** The sessions in a folder, as the last look found them. */
interface Folder {
  /** The path of what is in it, without the name: to join and normalize 100,000 paths takes 50 ms. */
  readonly prefix: string;
  readonly files: Set<string>;
  /** Names that can change without a notification of the watch: links, files with other hard links, containers. */
  readonly elsewhere: Set<string>;
  /** Names of files in whose place a container is: a rollback that was cut off has made one already. */
  readonly taken: Set<string>;
  /** Containers that are no sessions, with how each is. */
  readonly unlisted: Map<string, UnreadFile>;
}

/** Stamps read without a pause, which takes 4 ms. */
const SLICE = 250;

export class Folders {
  private readonly disk: Disk;
  private readonly paths: StoragePaths;
  private readonly known: KnownFolders;
  private folders = new Map<string, Folder>();

  constructor({ disk, paths, env, watchFrom }: CatalogOptions) {
    this.disk = disk;
    this.paths = paths;
    const options = { watchFrom, mostWatched: Number.POSITIVE_INFINITY, ignoresHidden: true };
    this.known = new KnownFolders(disk, () => env.now(), options);
  }

  async changes(): Promise<FolderChanges> {
    const { known } = this;
    const there = new Map<string, FoundStamp>();
    known.expect(this.count());
    if (!(await known.begin())) return { there, removed: [], isSame: true };
    const removed: string[] = [];
    const found = new Map<string, Folder>();
    for (const [path, isLink] of this.folderPaths((folder) => this.names(folder))) {
      const before = this.folders.get(path);
      const changed = before ? known.changedIn(path, isLink) : null;
      const folder = before && changed ? before : emptyFolder(path);
      if (before && changed) this.follow(folder, changed, there, removed);
      else await this.read(folder, this.names(path, isLink), there);
      if (folder.elsewhere.size > 0) known.noteUntold();
      found.set(path, folder);
    }
    for (const [path, { prefix, files }] of this.folders) {
      const now = found.get(path)?.files;
      if (now !== files) for (const name of files) if (!now?.has(name)) removed.push(prefix + name);
    }
    this.folders = found;
    return { there, removed };
  }

  /** Returns the containers that are no sessions. */
  unlisted(): UnreadFile[] {
    return [...this.folders.values()].flatMap(({ unlisted }) => [...unlisted.values()]);
  }

  close(): void {
    this.known.close();
    this.folders = new Map();
  }

  /** Returns the number of files; before they were looked at, no more than it takes to watch folders. */
  private count(): number {
    let count = 0;
    if (this.folders.size > 0) for (const { files } of this.folders.values()) count += files.size;
    else
      for (const [path] of this.folderPaths((folder) => entriesIfListed(this.disk, folder))) {
        if (this.known.isMany(count)) break;
        count += entriesIfListed(this.disk, path).filter(isOfSession).length;
      }
    return count;
  }

  /** Yields the paths of the folders, each with whether it is a link. */
  private *folderPaths(list: ListFolder): Generator<[path: string, isLink: boolean]> {
    const { flat, root } = this.paths;
    const archive = archiveFolder(this.paths);
    if (flat !== undefined) {
      yield [flat, false];
      yield [archive, false];
      return;
    }
    for (const above of [root as string, archive]) {
      const prefix = join(above, sep);
      for (const { name, kind } of list(above))
        if (!name.startsWith(".") && kind !== "file" && kind !== "other") yield [prefix + name, kind === "link"];
    }
  }

  private names(folder: string, isLink = false): readonly Named[] {
    try {
      return this.known.list(folder, isLink);
    } catch {
      // It may not be read: there is nothing to list until it may.
      this.known.noteUntold();
      return [];
    }
  }

  /** Reads the stamps of all files in a folder. */
  private async read(folder: Folder, names: readonly Named[], there: Map<string, FoundStamp>): Promise<void> {
    for (const entry of names) {
      if (!isOfSession(entry)) continue;
      if (entry.kind === "link") folder.elsewhere.add(entry.name);
      this.ask(folder, entry.name, there);
      if (there.size % SLICE === 0) await pause();
    }
    hideTaken(folder, there);
  }

  /** Reads the stamps of the files that changed in a folder, and of those whose changes no watch reports. */
  private follow(
    folder: Folder,
    changed: ReadonlySet<string>,
    there: Map<string, FoundStamp>,
    removed: string[],
  ): void {
    const { prefix, files, elsewhere, taken } = folder;
    if (changed.size === 0 && elsewhere.size === 0) return;
    taken.clear();
    for (const name of new Set([...Array.from(changed, (one) => containerOfPointer(one) ?? one), ...elsewhere])) {
      if (!isSessionName(name) && !isContainerName(name)) continue;
      const path = prefix + name;
      // It may have become a link.
      if (infoOrNull(this.disk, path, true)?.kind === "link") elsewhere.add(name);
      this.ask(folder, name, there);
      if (there.has(path) || !files.delete(name)) continue;
      elsewhere.delete(name);
      removed.push(path);
    }
    removed.push(...hideTaken(folder, there));
  }

  private ask(folder: Folder, name: string, there: Map<string, FoundStamp>): void {
    const { prefix, files, elsewhere, taken, unlisted } = folder;
    const path = prefix + name;
    if (isContainerName(name)) {
      const found = foundContainer(this.disk, path);
      const unread = found ? undefined : ifAllowed(() => unlistedContainer(this.disk, path));
      if (unread) unlisted.set(name, unread);
      else unlisted.delete(name);
      if (!found) return;
      files.add(name);
      elsewhere.add(name);
      there.set(path, found.stamp);
      if (found.source !== null) taken.add(found.source);
      return;
    }
    const info = infoOrNull(this.disk, path);
    if (info?.kind !== "file") return;
    files.add(name);
    if ((info.links ?? 1) > 1) elsewhere.add(name);
    const { device, inode, size, modified, changed = 0 } = info;
    there.set(path, { device, inode, size, modified, changed });
  }
}

function emptyFolder(path: string): Folder {
  const sets = { files: new Set<string>(), elsewhere: new Set<string>(), taken: new Set<string>() };
  return { prefix: join(path, sep), ...sets, unlisted: new Map() };
}

/** Whether an entry of a folder can be a session file or a container. */
function isOfSession({ name, kind }: Named): boolean {
  const isContainer = isContainerName(name);
  if (kind === "other" || kind === (isContainer ? "file" : "folder")) return false;
  return isContainer || isSessionName(name);
}
/** Leaves out the files in whose place containers are, and returns their paths. They are asked for each time. */
function hideTaken({ prefix, files, elsewhere, taken }: Folder, there: Map<string, FoundStamp>): string[] {
  const hidden = [...taken].filter((name) => files.delete(name));
  for (const name of hidden) {
    elsewhere.add(name);
    there.delete(prefix + name);
  }
  return hidden.map((name) => prefix + name);
}
