/** Creates the container of a new session: it appears in one step, then its pointer. */

import { join } from "node:path";
import { Failure } from "../../core/failure.ts";
import { headerFile, indexFile, pointerFile } from "../fs/container-paths.ts";
import { type Disk, exists, type FileInfo, removeQuietly } from "../fs/disk.ts";
import { removeTree, stagingName } from "../fs/staging.ts";
import { lockInContainer } from "../locks/lock-paths.ts";
import type { Lock } from "../locks/locks.ts";
import { Builder } from "./builder.ts";
import type { Container } from "./container.ts";
import type { Manifest } from "./documents.ts";
import { dropOrphanPointer, newPointer, publishPointer } from "./pointer.ts";

/** Creates a container with these lines, and claims its lock. Throws already_exists, invalid_entry, leaving nothing. */
export function createContainer(
  { disk, options, file, header, headerLine, state }: Container,
  lines: readonly Uint8Array[],
): { builder: Builder; manifest: Manifest; lock: Lock; key: FileInfo; seenIndex: FileInfo } {
  const builder = new Builder(options, stagingName(file));
  let renamed = false;
  let lock: Lock | undefined;
  try {
    requireFree(disk, file);
    disk.makeFolder(join(file, ".."));
    builder.begin(headerLine);
    for (const line of lines) builder.add(line);
    const manifest = builder.finish(header, "native_v2");
    builder.commitNow();
    builder.close();
    const key = disk.info(headerFile(builder.folder));
    lock = state.lock.claim(key, lockInContainer(builder.folder));
    disk.rename(builder.folder, file);
    renamed = true;
    publishPointer(disk, file, newPointer(manifest.integrity.manifestHash, header.id), options.durability);
    return { builder, manifest, lock, key, seenIndex: disk.info(indexFile(file)) };
  } catch (error) {
    builder.close();
    lock?.release();
    if (renamed) removeQuietly(disk, pointerFile(file));
    removeTree(disk, renamed ? file : builder.folder);
    throw error;
  }
}

/**
 * Throws already_exists when the name is taken by a container, by its pointer, or by a session file that pi_agent_rust
 * would take the container to belong to. Removes a stray pointer first.
 */
export function requireFree(disk: Disk, file: string): void {
  dropOrphanPointer(disk, file);
  for (const taken of [file, pointerFile(file), file.replace(/\.v2$/, ".jsonl")])
    if (exists(disk, taken))
      throw new Failure("already_exists", `Something exists at ${taken} already. Choose another path.`, {
        sessionPath: taken,
      });
}
