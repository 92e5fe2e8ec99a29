/** Finds the session files, and those that have changed since the last call. */

import { join } from "node:path";
import type { UnreadFile } from "../../core/ports/catalog.ts";
import { pause } from "../fs/chunked-io.ts";
import { isContainerName } from "../fs/container-paths.ts";
import type { Disk, Named } from "../fs/disk.ts";
import { findAllowed, getInfo } from "../fs/files.ts";
import { listFolder } from "../fs/folders.ts";
import { findStrangeFormat } from "../fs/formats.ts";
import { KnownFolders } from "../fs/known-folders.ts";
import { getArchiveFolder, isSessionFolder, isSessionName, type StoragePaths } from "../fs/paths.ts";
import { type FoundStamp, toFoundStamp } from "../fs/stamps.ts";
import { findUnlistedContainer } from "../v2/pointer.ts";
import type { CatalogOptions } from "./cached-rows.ts";
import { getContainerOfPointer, scanContainer, stampContainer } from "./containers.ts";
import { type FolderChanges, type ListedFiles, NO_CHANGES } from "./listed-files.ts";
import type { SessionRow } from "./session-row.ts";
import { type Scan, scanFile } from "./summary.ts";

/** A folder as it was at the last look. */
interface SeenFolder {
  /** The paths of its sessions. */
  readonly paths: ReadonlySet<string>;
  /** Number of files and containers that were looked at. */
  readonly count: number;
}

/** Stamps read without a pause, which takes 4 ms. */
const SLICE = 250;

export class Folders implements ListedFiles {
  readonly isForeign = false;
  private readonly options: CatalogOptions;
  private readonly disk: Disk;
  private readonly paths: StoragePaths;
  private readonly folders: KnownFolders;
  private seen = new Map<string, SeenFolder>();
  /** Containers that are no sessions, by their paths, with how each is. */
  private readonly unlisted = new Map<string, UnreadFile>();

  constructor(options: CatalogOptions) {
    this.options = options;
    this.disk = options.disk;
    this.paths = options.paths;
    this.folders = new KnownFolders(options.disk, () => options.env.now(), options.watchFrom);
  }

  async changes(): Promise<FolderChanges> {
    if (!(await this.folders.begin())) return NO_CHANGES;
    this.unlisted.clear();
    const there = new Map<string, FoundStamp>();
    const seen = new Map<string, SeenFolder>();
    let looked = 0;
    for (const { folder, isLink } of this.sessionFolders()) {
      const names = this.names(folder, isLink);
      const before = this.seen.get(folder);
      if (before && this.folders.isSame(folder, before.count)) {
        seen.set(folder, before);
        continue;
      }
      const paths = new Set<string>();
      let count = 0;
      const containers = new Set(names.flatMap(({ name }) => getContainerOfPointer(name) ?? []));
      const taken: string[] = [];
      for (const { name, kind } of names) {
        if (++looked % SLICE === 0) await pause();
        if (isContainerName(name)) {
          if (kind === "folder" || kind === "link") containers.add(name);
          continue;
        }
        if (!isSessionName(name) || kind === "folder" || kind === "other") continue;
        const path = join(folder, name);
        count++;
        const stamp = kind === "link" || isLink ? this.stampBehind(path) : this.folders.stampOf(path);
        if (!stamp) continue;
        there.set(path, stamp);
        paths.add(path);
      }
      for (const name of containers) {
        const path = join(folder, name);
        taken.push(...this.addContainer(path, there));
        if (there.has(path)) paths.add(path);
      }
      // During a rollback that was cut off, a container and the file that it replaces are both there.
      for (const path of taken.map((name) => join(folder, name))) {
        there.delete(path);
        paths.delete(path);
      }
      seen.set(folder, { paths, count: count + containers.size });
    }
    const removed: string[] = [];
    for (const [folder, before] of this.seen) {
      const now = seen.get(folder);
      if (now !== before) for (const path of before.paths) if (!now?.paths.has(path)) removed.push(path);
    }
    this.seen = seen;
    return { there, removed };
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
        : `${path} is no session: it has no header, and no entry at its beginning. Restore it from a backup, or move it elsewhere.`;
      return { path, text, isDamaged: !format };
    });
  }

  close(): void {
    this.folders.close();
  }

  private *sessionFolders(): Generator<{ readonly folder: string; readonly isLink: boolean }> {
    const { flat, root } = this.paths;
    const archive = getArchiveFolder(this.paths);
    if (flat !== undefined) {
      yield { folder: flat, isLink: false };
      yield { folder: archive, isLink: false };
      return;
    }
    for (const above of [root as string, archive])
      for (const { name, kind } of this.names(above, false))
        if (kind !== "file" && kind !== "other" && isSessionFolder(this.disk, join(above, name)))
          yield { folder: join(above, name), isLink: kind === "link" };
  }

  /** Returns the entries of a folder. No watch reports that a link leads to another one. */
  private names(folder: string, isLink: boolean): readonly Named[] {
    if (isLink) this.folders.noteUnreported();
    try {
      return isLink ? listFolder(this.disk, folder) : this.folders.list(folder);
    } catch {
      // It may not be read: there is nothing to list.
      return [];
    }
  }

  /** Returns the stamp of a file whose changes no watch reports: of one behind a link. */
  private stampBehind(path: string): FoundStamp | undefined {
    this.folders.noteUnreported();
    const info = getInfo(this.disk, path);
    return info?.kind === "file" ? toFoundStamp(info) : undefined;
  }

  /** Adds a container that is a session. Returns the name of the file that it replaces, if there is one. */
  private addContainer(path: string, there: Map<string, FoundStamp>): string[] {
    this.folders.noteUnreported();
    const found = stampContainer(this.disk, path);
    if (found) {
      there.set(path, found.stamp);
      return found.source === null ? [] : [found.source];
    }
    const unlisted = findAllowed(() => findUnlistedContainer(this.disk, path));
    if (unlisted) this.unlisted.set(path, unlisted);
    return [];
  }
}
