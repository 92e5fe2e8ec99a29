/** Quarantine and backups: keep the bytes that a repair removes from a session, so that nothing is lost. */

import { basename, dirname, join } from "node:path";
import { toUnfinishedFailure } from "../../core/errno.ts";
import type { Disk } from "./disk.ts";
import { addNumber, findFreeName, findLastName, isNameTaken, putInPlaceNow } from "./files.ts";
import { listNames, UnsyncedFolders } from "./folders.ts";

/** The name of its folder in the state folder. */
export const QUARANTINE_FOLDER = "quarantine";
/** The end of the name of such a backup, and its number. */
const BACKUP = /^\.(?:damaged|repaired)\.bak(?:\.(\d{1,9}))?$/;

/**
 * Writes bytes to `<name>.bin` in a folder, or `<name>-2.bin` and so on if that is taken. Returns the path. `sync`:
 * they are on the medium under that name before the caller removes the original.
 */
export function quarantine(disk: Disk, folder: string, name: string, bytes: Uint8Array, sync = true): string {
  disk.makeFolder(folder);
  for (let n = 1; ; n++) {
    const path = join(folder, `${addNumber(name, n, "-")}.bin`);
    try {
      putInPlaceNow(disk, path, bytes, { replace: false, sync });
    } catch (error) {
      if (!isNameTaken(error)) throw error;
      continue;
    }
    if (sync) {
      const unsynced = new UnsyncedFolders(disk);
      unsynced.add(folder);
      unsynced.addFound(dirname(folder));
      unsynced.syncNow();
    }
    return path;
  }
}

/** A backup of a session, by its name. */
interface FoundBackup {
  readonly path: string;
  readonly n: number;
}

/** Returns the backups of a session by repairs and their undo, the newest last. */
export function listBackups(disk: Disk, file: string): FoundBackup[] {
  const name = basename(file);
  return listNames(disk, dirname(file))
    .flatMap((other) => {
      const found = other.startsWith(name) ? BACKUP.exec(other.slice(name.length)) : null;
      return found ? [{ path: join(dirname(file), other), n: Number(found[1] ?? 1) }] : [];
    })
    .sort((a, b) => a.n - b.n);
}

/**
 * Returns a name for the backup of a container whose number is above those of all its backups. After a swap of folders
 * that was interrupted between its two steps, when nothing has the container's name, the last backup is the container.
 */
export function nameNextBackup(disk: Disk, container: string, kind: "damaged" | "repaired"): string {
  return addNumber(`${container}.${kind}.bak`, (listBackups(disk, container).at(-1)?.n ?? 0) + 1);
}

/** Returns a free name for the backup of a session, `<file>.<kind>.bak` or numbered, which no scanner recognizes. */
export function nameBackup(disk: Disk, file: string, kind: string): string {
  return findFreeName(disk, (n) => addNumber(`${file}.${kind}.bak`, n));
}

/** Returns the latest backup of a kind that a session has; undefined without one. */
export function findLastBackup(disk: Disk, file: string, kind: string): string | undefined {
  return findLastName(disk, (n) => addNumber(`${file}.${kind}.bak`, n));
}

/**
 * Replaces a container by another, and keeps the old one at `backup`. A refusal leaves all as it was. If the disk
 * refuses that, too, the failure says where the session is: opening it finds it there ({@link nameNextBackup}).
 */
export function swapFolders(disk: Disk, from: string, file: string, backup: string, doing: string): void {
  disk.rename(file, backup);
  try {
    disk.rename(from, file);
  } catch (error) {
    try {
      disk.rename(backup, file);
    } catch {
      const state = `The session is at ${backup} now. Close it and open it again: the server finds it there, and the next write renames it back.`;
      throw toUnfinishedFailure(error, doing, state);
    }
    throw error;
  }
}
