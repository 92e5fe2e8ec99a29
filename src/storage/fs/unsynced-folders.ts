/** Folders with names that are not on the medium yet. */

import type { Disk } from "./disk.ts";

export class UnsyncedFolders {
  private readonly disk: Disk;
  readonly folders = new Set<string>();

  constructor(disk: Disk) {
    this.disk = disk;
  }

  add(...folders: readonly string[]): void {
    for (const folder of folders) this.folders.add(folder);
  }

  clear(): void {
    // Clearing an empty set takes time too, and every append calls this.
    if (this.folders.size > 0) this.folders.clear();
  }

  /** Makes the names durable. A folder that is added meanwhile needs another sync and stays in the set. */
  async sync(): Promise<void> {
    const unsynced = [...this.folders];
    this.folders.clear();
    try {
      for (const folder of unsynced) await this.disk.syncFolder(folder);
    } catch (error) {
      this.add(...unsynced);
      throw error;
    }
  }

  /** Does the same, and blocks everything else meanwhile. */
  syncNow(): void {
    for (const folder of this.folders) this.disk.syncFolderNow(folder);
    this.folders.clear();
  }
}
