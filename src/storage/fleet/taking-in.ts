/** The taking in of what others wrote, into a copy whose file other programs of this machine may write to, too. */

import type { Fleet } from "../../core/ports/fleet.ts";
import type { CopiedLog } from "../log/outside.ts";
import { fetchNamed } from "./attachments.ts";
import { unsettled } from "./failures.ts";

/** Takes in what is in the file, of which a commit that failed may have left something. This process has the lock. */
export function lookHere(log: CopiedLog): void {
  const { kind } = log.refresh();
  if (kind === "replaced" || kind === "gone") throw unsettled(log.file);
}

/** Throws storage_failed where a copy has other entries than the first `count` by now: another program wrote to its file. */
export function requireCount(log: CopiedLog, count: number): void {
  lookHere(log);
  if (log.nodes.count !== count) throw unsettled(log.file);
}

/**
 * Adds lines of the fleet, and the attachments that they name, after the first `count`, unless there are more by now:
 * nothing is to be there twice.
 */
export async function takeIn(log: CopiedLog, fleet: Fleet, lines: readonly Uint8Array[], count: number): Promise<void> {
  const { persisted } = log;
  const fetching = persisted ? fetchNamed(fleet, log, lines) : undefined;
  if (fetching) await fetching;
  requireCount(log, count);
  await log.takeIn(lines);
  // A container that is not created yet has no place for them.
  if (!persisted) await fetchNamed(fleet, log, lines);
}
