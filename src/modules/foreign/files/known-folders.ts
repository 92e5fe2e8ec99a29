/** Folders that lists look at again and again: the entries of one are read again when its stamp has changed. */

import type { Disk, FileInfo, Named } from "../../../storage/fs/disk.ts";
import { getInfo } from "../../../storage/fs/files.ts";
import { listFolder } from "../../../storage/fs/folders.ts";
import { isSameStamp, isYoung, readDiskClock } from "../../../storage/fs/stamps.ts";

/** Returns the entries of a folder; an empty list when it is missing. Throws errno errors. */
export type ListFolder = (folder: string) => readonly Named[];

export class KnownFolders {
  private readonly disk: Disk;
  private readonly known = new Map<string, { readonly info: FileInfo; readonly entries: readonly Named[] }>();
  /** The entries of the folders of this look, which is asked for some of them again. */
  private readonly seen = new Map<string, readonly Named[]>();

  constructor(disk: Disk) {
    this.disk = disk;
  }

  /** Begins a look. */
  begin(): void {
    this.seen.clear();
  }

  readonly list: ListFolder = (folder) => {
    const entries = this.seen.get(folder) ?? this.look(folder);
    this.seen.set(folder, entries);
    return entries;
  };

  private look(folder: string): readonly Named[] {
    const { disk, known } = this;
    const info = getInfo(disk, folder);
    const before = known.get(folder);
    if (info && before && isSameStamp(before.info, info)) return before.entries;
    known.delete(folder);
    if (info === null) return [];
    const entries = listFolder(disk, folder);
    // A name may be added in this moment under the same stamp.
    if (!isYoung(info, readDiskClock(disk))) known.set(folder, { info, entries });
    return entries;
  }
}
