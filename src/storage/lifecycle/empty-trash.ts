/** Removes the content of our trash for good. */

import { basename, join } from "node:path";
import { Failure } from "../../core/failure.ts";
import type { Progress } from "../../core/ports/catalog.ts";
import type { EmptiedTrash, Trashed } from "../../core/ports/lifecycle.ts";
import { exists } from "../fs/disk.ts";
import { guardErrno } from "../fs/files.ts";
import { getKind, listNames, removeAll } from "../fs/folders.ts";
import { getTrashFolder } from "../fs/paths.ts";
import { type LifecycleDeps, requireWritable } from "./exclusive.ts";
import { FOR_GOOD, makeOperation } from "./prune.ts";
import { runRecorded } from "./recorded.ts";
import { listTrashed } from "./trash.ts";

/** Ending of an item's name during its removal. */
const EMPTIED = ".emptied";

/** Removes items for good. Each loses its name first, so that no item is ever incomplete. */
export async function emptyTrash(
  deps: LifecycleDeps,
  before: number | undefined,
  progress?: Progress,
): Promise<EmptiedTrash> {
  requireWritable(deps);
  const trash = getTrashFolder(deps.paths);
  const items = listTrashed(deps).filter(({ deletedAt }) => before === undefined || Date.parse(deletedAt) < before);
  sweepEmptied(deps, trash);
  if (items.length === 0) return { operationId: null, removed: [], kept: [] };
  const kept: { item: Trashed; reason: string }[] = [];
  let operationId: string | null = null;
  const run = async ({ id }: { id: string }): Promise<Trashed[]> => {
    operationId = id;
    const removed: Trashed[] = [];
    for (const [done, item] of items.entries()) {
      try {
        await guardErrno("emptying the trash", () => emptyOne(deps, trash, item));
        removed.push(item);
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        kept.push({ item, reason: error.message });
      }
      progress?.(done + 1, items.length);
    }
    sweepEmptied(deps, trash);
    return removed;
  };
  const textOf = (count: number): string => `Removed ${count} ${count === 1 ? "item" : "items"} of the trash for good.`;
  const operation = makeOperation(trash, { text: textOf(items.length), final: FOR_GOOD });
  const removed = await runRecorded(deps, operation, run, (gone) =>
    gone.length === 0 ? null : { text: textOf(gone.length) },
  );
  return { operationId: removed.length === 0 ? null : operationId, removed, kept };
}

async function emptyOne({ disk }: LifecycleDeps, trash: string, { itemPath }: Trashed): Promise<void> {
  const name = join(trash, `.${basename(itemPath)}${EMPTIED}`);
  if (exists(disk, name)) removeAll(disk, name);
  disk.rename(itemPath, name);
  await disk.syncFolder(trash);
}

/** Removes the items without their names. Refusals of the disk are left to the next time. */
function sweepEmptied({ disk }: LifecycleDeps, trash: string): void {
  for (const name of listNames(disk, trash))
    if (name.startsWith(".") && name.endsWith(EMPTIED))
      try {
        if (getKind(disk, join(trash, name)) === "folder") removeAll(disk, join(trash, name));
      } catch {
        // It is no item any more, and only takes space.
      }
}
