/** The names in folders that are looked at again and again: read anew when a folder has another stamp. */

import type { Disk, FileInfo, Named } from "../fs/disk.ts";
import { infoOrNull } from "../fs/files.ts";
import { entriesIn } from "../fs/folders.ts";
import { clockOf, isSameStamp, isYoung } from "../fs/stamps.ts";

/** Returns the entries of a folder; none when it is missing. Throws errno errors. */
export type ListFolder = (folder: string) => readonly Named[];

/** A stamp takes a quarter of the time of the names of a folder with a few files, as agents have one for each day. */
export function knownFolders(disk: Disk): ListFolder {
  const known = new Map<string, { readonly info: FileInfo; readonly entries: readonly Named[] }>();
  return (folder) => {
    const info = infoOrNull(disk, folder);
    if (info === null) return [];
    const before = known.get(folder);
    if (before && isSameStamp(before.info, info)) return before.entries;
    const entries = entriesIn(disk, folder);
    // A name may come in this moment under the same stamp.
    if (isYoung(info, clockOf(disk))) known.delete(folder);
    else known.set(folder, { info, entries });
    return entries;
  };
}
