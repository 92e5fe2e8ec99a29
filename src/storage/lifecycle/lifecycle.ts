/** Puts the lifecycle operations of sessions together. */

import type { LifeCycle } from "../../core/ports/lifecycle.ts";
import { guarded } from "../fs/files.ts";
import { archiveSession, unarchiveSession } from "./archive.ts";
import { exclusively, type LifecycleDeps, locate } from "./exclusive.ts";
import { importSession } from "./import.ts";
import { relocateSession } from "./relocate.ts";
import { deleteSession, restoreSession } from "./trash.ts";

export function makeLifeCycle(deps: LifecycleDeps): LifeCycle {
  return {
    locate: (where, purpose) => guarded("looking for the session", () => locate(deps, where, purpose)),
    delete: (file, permanent) =>
      exclusively(deps, file, "deleting the session", (locked) => deleteSession(deps, locked, permanent)),
    restore: (where) => guarded("restoring the session", () => restoreSession(deps, where)),
    archive: (file) => exclusively(deps, file, "archiving the session", (locked) => archiveSession(deps, locked)),
    unarchive: (file) =>
      exclusively(deps, file, "bringing the session back", (locked) => unarchiveSession(deps, locked)),
    relocate: (file, cwd, allowMissing = false) =>
      exclusively(deps, file, "relocating the session", (locked) => relocateSession(deps, locked, cwd, allowMissing)),
    import: (path, progress) => importSession(deps, path, progress),
  };
}
