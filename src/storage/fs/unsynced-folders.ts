/** Folders that hold names which are not yet on the medium. */

import type { Disk } from "./disk.ts";

export class LooseFolders {
  private readonly disk: Disk;
  private readonly folders = new Set<string>();

  constructor(disk: Disk) {
    this.disk = disk;
  }

  add(...folders: readonly string[]): void {
    for (const folder of folders) this.folders.add(folder);
  }

  addAll(others: LooseFolders): void {
    this.add(...others.folders);
  }

  clear(): void {
    // An empty set takes its time as well, and every append comes here.
    if (this.folders.size > 0) this.folders.clear();
  }

  /** A name that comes into a folder while that becomes durable needs it once more. */
  async sync(): Promise<void> {
    const loose = [...this.folders];
    this.folders.clear();
    try {
      for (const folder of loose) await this.disk.syncFolder(folder);
    } catch (error) {
      this.add(...loose);
      throw error;
    }
  }

  /** The same, holding everything else up. */
  syncNow(): void {
    for (const folder of this.folders) this.disk.syncFolderNow(folder);
    this.folders.clear();
  }
}
