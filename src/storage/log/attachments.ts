/** Attachments of sessions: files named by their SHA-256 that never change (session-format reference, section 8.6). */

import { join } from "node:path";
import { keepAs } from "../fs/chunked-io.ts";
import { type Disk, exists, isAbsent, removeQuietly } from "../fs/disk.ts";

/** Returns the folder where pi_agent_rust keeps the attachments of a session file; a container has its own inside. */
export function attachmentFolder(file: string): string {
  return file.endsWith(".v2") ? join(file, "blobs") : `${file}.blobs`;
}

/** Makes a folder with the attachments of a session, if it has any: second names of the same files. */
export function shareAttachments(disk: Disk, from: string, folder: string): void {
  const source = attachmentFolder(from);
  if (isAbsent(disk, source)) return;
  disk.makeFolder(folder);
  for (const name of disk.names(source))
    if (/^[0-9a-f]{64}$/.test(name) && isAbsent(disk, join(folder, name)))
      keepAs(disk, join(source, name), join(folder, name));
}

/** Removes the attachments of a session that was removed. Best effort. */
export function dropAttachments(disk: Disk, file: string): void {
  const folder = attachmentFolder(file);
  try {
    if (!exists(disk, folder)) return;
    for (const name of disk.names(folder)) removeQuietly(disk, join(folder, name));
    disk.removeFolder(folder);
  } catch {
    // Without the session nothing uses them, and no scanner reads them.
  }
}
