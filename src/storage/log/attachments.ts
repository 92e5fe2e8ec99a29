/** Attachments of sessions: files named by their SHA-256 that never change (session-format reference, section 8.6). */

import { join } from "node:path";
import { toStorageFailure } from "../../core/errno.ts";
import type { Env } from "../../core/ports/env.ts";
import { keepAs } from "../fs/chunked-io.ts";
import { type Disk, exists, isAbsent, readWhole, removeQuietly } from "../fs/disk.ts";
import { putInPlace, readIfFile, readIfPresent } from "../fs/files.ts";
import { listNames } from "../fs/folders.ts";

const DIGEST = /^[0-9a-f]{64}$/;

/** The attachments of one session. */
export class AttachmentFolder {
  private readonly disk: Disk;
  private readonly env: Pick<Env, "sha256">;
  private readonly folder: string;

  constructor(disk: Disk, env: Pick<Env, "sha256">, folder: string) {
    this.disk = disk;
    this.env = env;
    this.folder = folder;
  }

  /** Returns the digests in its files' names. */
  names(): string[] {
    return listAttachments(this.disk, this.folder);
  }

  has(sha256: string): boolean {
    return exists(this.disk, join(this.folder, sha256));
  }

  /** Returns the bytes of an attachment; null if it is missing, or does not match its name. Throws storage_failed. */
  read(sha256: string): Uint8Array | null {
    try {
      const bytes = readIfFile(() => readWhole(this.disk, join(this.folder, sha256)));
      return bytes && this.env.sha256(bytes) === sha256 ? bytes : null;
    } catch (error) {
      throw toStorageFailure(error, "reading an attachment");
    }
  }

  /** Does the same; returns null also if the disk refuses: a reader uses the rest. */
  find(sha256: string): Uint8Array | null {
    try {
      return this.read(sha256);
    } catch {
      return null;
    }
  }

  /**
   * Stores an attachment durably. Returns false, and stores nothing, if the bytes do not match the digest. Throws
   * storage_failed.
   */
  async keep(sha256: string, bytes: Uint8Array): Promise<boolean> {
    if (this.env.sha256(bytes) !== sha256) return false;
    try {
      this.disk.makeFolder(this.folder);
      await putInPlace(this.disk, join(this.folder, sha256), bytes, { replace: true, sync: true });
      await this.disk.syncFolder(this.folder);
      return true;
    } catch (error) {
      throw toStorageFailure(error, "keeping an attachment");
    }
  }
}

/** Returns the digests in the names of a folder's attachments; none if it is missing. */
export function listAttachments(disk: Disk, folder: string): string[] {
  return (readIfPresent(() => listNames(disk, folder)) ?? []).filter((name) => DIGEST.test(name));
}

/** Returns the folder where pi_agent_rust keeps the attachments of a session file; a container has its own inside. */
export function getAttachmentFolder(file: string): string {
  return file.endsWith(".v2") ? join(file, "blobs") : `${file}.blobs`;
}

/** Makes a folder with the attachments of a session, if it has any: second names of the same files. */
export function shareAttachments(disk: Disk, from: string, folder: string): void {
  const source = getAttachmentFolder(from);
  if (isAbsent(disk, source)) return;
  disk.makeFolder(folder);
  for (const name of disk.names(source))
    if (DIGEST.test(name) && isAbsent(disk, join(folder, name))) keepAs(disk, join(source, name), join(folder, name));
}

/** Removes the attachments of a session that was removed. Best effort. */
export function dropAttachments(disk: Disk, file: string): void {
  const folder = getAttachmentFolder(file);
  try {
    if (!exists(disk, folder)) return;
    for (const name of disk.names(folder)) removeQuietly(disk, join(folder, name));
    disk.removeFolder(folder);
  } catch {
    // Without the session nothing uses them, and no scanner reads them.
  }
}
