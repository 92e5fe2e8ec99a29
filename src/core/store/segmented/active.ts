/** Whether a container is the session, which the pointer file beside it says (INV-007). */

import { basename, dirname, join } from "node:path";
import { type Disk, exists, storageFailure } from "../disk.ts";
import { isUuid, type Pointer, readPointer } from "./documents.ts";
import { Malformed } from "./frame.ts";
import { CONTAINER, pointerFile } from "./places.ts";

/** Whether the container at a path is a session: its pointer says so, and what it came from is still there. */
export function isActive(disk: Disk, container: string): boolean {
  try {
    const pointer = readPointer(disk, pointerFile(container));
    return pointer !== null && pointer.active === "native_v2" && hasSnapshot(disk, container, pointer);
  } catch (error) {
    if (error instanceof Malformed) return false;
    throw error;
  }
}

/** The container that took the place of a session file, which is that of this session; null when none did. */
export function containerOf(disk: Disk, file: string, sessionId: string | undefined): string | null {
  if (sessionId === undefined || !isUuid(sessionId)) return null;
  const container = join(dirname(file), `${sessionId}${CONTAINER}`);
  try {
    const pointer = readPointer(disk, pointerFile(container));
    return pointer?.active === "native_v2" && pointer.source === basename(file) ? container : null;
  } catch (error) {
    if (error instanceof Malformed) return null;
    throw storageFailure(error, "opening the session");
  }
}

/** A session that was migrated needs the file that it came from, which may still wait to be frozen. */
export function hasSnapshot(disk: Disk, container: string, { source, phase }: Pointer): boolean {
  if (source === null) return true;
  const file = join(dirname(container), source);
  return exists(disk, `${file}.migrated`) || (phase === "cutover_commit" && exists(disk, file));
}
