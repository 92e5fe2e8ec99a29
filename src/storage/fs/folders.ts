/** Folders: the names in them, their removal, and which of them have names that are not on the medium yet. */

import { basename, dirname, isAbsolute, join, normalize } from "node:path";
import { isErrno, isMissing } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import type { Disk, FileInfo, Named } from "./disk.ts";
import { getInfo } from "./files.ts";
import { isSameFile } from "./stamps.ts";

/** Returns the entries of a folder; none when it is missing. Links are links where the disk can list kinds. */
export function listFolder(disk: Disk, folder: string): Named[] {
  try {
    if (disk.list) return disk.list(folder);
    return disk.names(folder).map((name) => ({ name, kind: disk.info(join(folder, name)).kind }));
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

/** Returns the entries of a folder; none when it is missing or the disk refuses to list it. */
export function listFolderIfAllowed(disk: Disk, folder: string): Named[] {
  try {
    return listFolder(disk, folder);
  } catch (error) {
    if (!isErrno(error)) throw error;
    return [];
  }
}

/**
 * Returns a test for the paths of a folder, through any links that lead to it. A missing folder is compared by its
 * path. A stored path that is not absolute is compared as text alone.
 */
export function matchFolder(disk: Disk, folder: string): (path: string | null) => boolean {
  // A slash or a dot at the end changes nothing.
  const plain = (path: string): string => normalize(`${path}/.`).replace(/(?<=.)\/$/, "");
  const wanted = plain(folder);
  const found = getInfo(disk, folder);
  const isSame = (path: string): boolean => {
    if (path !== "" && plain(path) === wanted) return true;
    const other = found === null || !isAbsolute(path) ? null : getInfo(disk, path);
    return other !== null && isSameFile(other, found as FileInfo);
  };
  const known = new Map<string, boolean>();
  return (path) => {
    if (path === null) return false;
    const is = known.get(path) ?? isSame(path);
    known.set(path, is);
    return is;
  };
}

/** Returns the sorted names in a folder; none when the folder is missing. */
export function listNames(disk: Disk, folder: string): string[] {
  return listFolder(disk, folder)
    .map(({ name }) => name)
    .sort();
}

/** Returns the kind of a path itself, not that of a link's target; undefined when nothing has the path. */
export function getKind(disk: Disk, path: string): Named["kind"] | undefined {
  return listFolder(disk, dirname(path)).find(({ name }) => name === basename(path))?.kind;
}

/** Removes a file or a folder with its content, and follows no link. `attempt` may ignore what the disk refuses. */
export function removeAll(
  disk: Disk,
  path: string,
  kind = getKind(disk, path),
  attempt: (step: () => void) => void = (step) => step(),
): void {
  if (kind !== "folder") {
    attempt(() => disk.remove(path));
    return;
  }
  attempt(() => {
    for (const entry of listFolder(disk, path)) removeAll(disk, join(path, entry.name), entry.kind, attempt);
  });
  attempt(() => disk.removeFolder(path));
}

/** Codes for a folder that may not be opened, or lies where folders are not synced. */
const UNSYNCABLE: ReadonlySet<unknown> = new Set(["EACCES", "EPERM", "EINVAL", "ENOSYS", "ENOTSUP", "EOPNOTSUPP"]);

function mayBeSynced(error: unknown): boolean {
  if (error instanceof Failure && error.name === "path_outside_root") return false;
  return !UNSYNCABLE.has(((error ?? {}) as { code?: unknown }).code);
}

/**
 * Makes a folder, and returns the lowest one that already existed: its maker may have been killed before its name was
 * on the medium.
 */
export function makeFolderIn(disk: Disk, folder: string): string {
  const [made] = disk.makeFolder(folder);
  return dirname(made === undefined ? folder : dirname(made));
}

/** Folders with names that are not on the medium yet. */
export class UnsyncedFolders {
  private readonly disk: Disk;
  readonly folders = new Set<string>();
  /**
   * Folders of found files, whose maker may have been killed before the name was on the medium. If the sync fails, the
   * name counts as it always was.
   */
  private readonly found = new Set<string>();

  constructor(disk: Disk) {
    this.disk = disk;
  }

  add(...folders: readonly string[]): void {
    for (const folder of folders) this.folders.add(folder);
  }

  addFound(...folders: readonly string[]): void {
    for (const folder of folders) this.found.add(folder);
  }

  clear(): void {
    // Clearing an empty set takes time too, and every append calls this.
    if (this.folders.size > 0) this.folders.clear();
    if (this.found.size > 0) this.found.clear();
  }

  /** Makes the names durable. A folder that is added meanwhile needs another sync and stays in the set. */
  async sync(): Promise<void> {
    const unsynced = [...this.folders];
    const found = [...this.found].filter((folder) => !this.folders.has(folder));
    this.clear();
    try {
      for (const folder of unsynced) await this.disk.syncFolder(folder);
      for (const folder of found)
        try {
          await this.disk.syncFolder(folder);
        } catch (error) {
          if (mayBeSynced(error)) throw error;
        }
    } catch (error) {
      this.add(...unsynced);
      this.addFound(...found);
      throw error;
    }
  }

  /** Does the same, blocking everything else. */
  syncNow(): void {
    for (const folder of this.folders) this.disk.syncFolderNow(folder);
    for (const folder of this.found)
      try {
        if (!this.folders.has(folder)) this.disk.syncFolderNow(folder);
      } catch (error) {
        if (mayBeSynced(error)) throw error;
      }
    this.clear();
  }
}
