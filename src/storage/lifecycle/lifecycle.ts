/** Puts the lifecycle operations of sessions together. */

import type { LifeCycle } from "../../core/ports/lifecycle.ts";
import { guarded } from "../fs/files.ts";
import { archiveSession, unarchiveSession } from "./archive.ts";
import { holding, type Keeping, locate } from "./exclusive.ts";
import { importSession } from "./import.ts";
import { relocateSession } from "./relocate.ts";
import { deleteSession, restoreSession } from "./trash.ts";

export function makeLifeCycle(keeping: Keeping): LifeCycle {
  return {
    locate: (where, purpose) => guarded("looking for the session", () => locate(keeping, where, purpose)),
    delete: (file, permanent) =>
      holding(keeping, file, "deleting the session", (held) => deleteSession(keeping, held, permanent)),
    restore: (where) => guarded("restoring the session", () => restoreSession(keeping, where)),
    archive: (file) => holding(keeping, file, "archiving the session", (held) => archiveSession(keeping, held)),
    unarchive: (file) => holding(keeping, file, "bringing the session back", (held) => unarchiveSession(keeping, held)),
    relocate: (file, cwd, allowMissing = false) =>
      holding(keeping, file, "relocating the session", (held) => relocateSession(keeping, held, cwd, allowMissing)),
    import: (path, progress) => importSession(keeping, path, progress),
  };
}
