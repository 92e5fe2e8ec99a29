/** Puts the lifecycle operations of sessions together. */

import { join } from "node:path";
import { storageFailure } from "../../core/errno.ts";
import type { LifeCycle } from "../../core/ports/lifecycle.ts";
import { archivedFolders, archiveFolder, sessionFolders } from "../fs/paths.ts";
import { archiveSession, unarchiveSession } from "./archive.ts";
import { holding, type Keeping, locate } from "./exclusive.ts";
import { importSession, stemOf } from "./import.ts";
import { relocateSession } from "./relocate.ts";
import { deleteSession, restoreSession } from "./trash.ts";

export interface LifeOptions extends Omit<Keeping, "trash" | "archive" | "find" | "withId" | "keepLeaf"> {
  find(id: string, folders: Iterable<string>): string;
  /** Returns the session files that have an id in their name, or in their header if the name has none. */
  named(id: string, folders: Iterable<string>): string[];
  /** Returns the id in a file's header; undefined when that cannot be read. */
  idIn(file: string): string | undefined;
}

export function makeLifeCycle(options: LifeOptions): LifeCycle {
  const { disk, places, leaves } = options;
  function* everywhere(): Generator<string> {
    yield* sessionFolders(places, disk);
    yield* archivedFolders(places, disk);
  }
  const keeping: Keeping = {
    ...options,
    trash: join(places.state, "trash"),
    archive: archiveFolder(places),
    find: (id) => options.find(id, everywhere()),
    withId(id) {
      const named = options.named(stemOf(options.env, id), everywhere());
      return named.filter((file) => (options.idIn(file) ?? id) === id);
    },
    async keepLeaf(file, leafId) {
      try {
        const log = options.open(file);
        await leaves.record(log, leafId).finally(() => log.close());
      } catch {
        // The session is in its new place; its leaf is the one in the file.
      }
    },
  };
  return {
    locate(where, purpose) {
      try {
        return locate(keeping, where, purpose);
      } catch (error) {
        throw storageFailure(error, "looking for the session");
      }
    },
    delete: (file, permanent) =>
      holding(keeping, file, "deleting the session", (held) => deleteSession(keeping, held, permanent)),
    async restore(where) {
      try {
        return await restoreSession(keeping, where);
      } catch (error) {
        throw storageFailure(error, "restoring the session");
      }
    },
    archive: (file) => holding(keeping, file, "archiving the session", (held) => archiveSession(keeping, held)),
    unarchive: (file) => holding(keeping, file, "bringing the session back", (held) => unarchiveSession(keeping, held)),
    relocate: (file, cwd, allowMissing = false) =>
      holding(keeping, file, "relocating the session", (held) => relocateSession(keeping, held, cwd, allowMissing)),
    import: (path, progress) => importSession(keeping, path, progress),
  };
}
