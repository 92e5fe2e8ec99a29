/** Empty session files: no session can be read from one, so the trash takes it as a leftover. */

import { basename, dirname } from "node:path";
import { describeUnchanged, Failure } from "../../core/failure.ts";
import type { Deleted, MoveOptions } from "../../core/ports/lifecycle.ts";
import type { Disk } from "../fs/disk.ts";
import { getInfo, guardErrno } from "../fs/files.ts";
import { parseIdInName } from "../fs/header.ts";
import { locateLock } from "../locks/lock-paths.ts";
import { isLock } from "../locks/locks.ts";
import { type LifecycleDeps, requireWritable } from "./exclusive.ts";
import { FOR_GOOD, makeOperation } from "./prune.ts";
import { runRecorded } from "./recorded.ts";
import { moveToPruned } from "./trash.ts";
import { getLeftoverPath } from "./trash-items.ts";

const ENDING = ".jsonl";

/** Returns whether a path has an empty file with the name of a session's. */
export function isEmptyFile(disk: Disk, path: string): boolean {
  const info = path.endsWith(ENDING) ? getInfo(disk, path, true) : null;
  return info?.kind === "file" && info.size === 0;
}

/** Moves an empty file to our trash, or removes it for good. Throws session_locked, content_modified. */
export async function deleteEmptyFile(
  deps: LifecycleDeps,
  file: string,
  permanent: boolean,
  { group }: MoveOptions,
): Promise<Deleted> {
  requireWritable(deps);
  const { disk } = deps;
  return guardErrno("deleting the file", async () => {
    const info = disk.info(file);
    // A server that is about to write the header has the lock.
    const lock = deps.locks.acquire(info, locateLock(disk, file, info.inode));
    if (!isLock(lock))
      throw new Failure("session_locked", `${lock.client} (process ${lock.pid}) is writing to this file.`, {
        holder: lock,
      });
    try {
      requireEmpty(disk, file);
      return await remove(deps, file, permanent, group);
    } finally {
      lock.release();
    }
  });
}

function requireEmpty(disk: Disk, file: string): void {
  if (!isEmptyFile(disk, file))
    throw new Failure("content_modified", describeUnchanged("Another program wrote to the file meanwhile."));
}

async function remove(
  deps: LifecycleDeps,
  file: string,
  permanent: boolean,
  group: string | undefined,
): Promise<Deleted> {
  const { disk } = deps;
  const sessionId = parseIdInName(file) ?? basename(file, ENDING);
  const text = `Deleted the empty file ${basename(file)}${permanent ? " for good" : ""}.`;
  const step = { do: "prune" as const, files: [file] };
  const operation = { ...makeOperation(file, permanent ? { text, final: FOR_GOOD } : { text, step }), group };
  return runRecorded<Deleted>(
    deps,
    operation,
    async (begun) => {
      const deleted = { operationId: begun.id, sessionId, sessionPath: file };
      if (permanent) {
        // The record took a while, and programs without our lock may have written since.
        requireEmpty(disk, file);
        disk.remove(file);
        await disk.syncFolder(dirname(file));
        return { ...deleted, trash: "none" };
      }
      const item = await moveToPruned(deps, [file], begun);
      const movedTo = getLeftoverPath({ item, record: { sessionId: "", path: file, deletedAt: "", files: [file] } }, 0);
      return { ...deleted, movedTo, trash: "own" };
    },
    ({ movedTo }) => (movedTo === undefined ? {} : { step: { ...step, item: dirname(movedTo) } }),
  );
}
