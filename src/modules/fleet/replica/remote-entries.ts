/** Applies entries of other machines to a copy whose file other local programs may write to as well. */

import { makeEntryDamage } from "../../../core/format/damage.ts";
import type { Fleet, FleetEnd } from "../../../core/ports/fleet.ts";
import type { ReplicatedLog } from "../../../storage/log/replica.ts";
import { fetchLinesBetween } from "../postgres/ends.ts";
import { makeFileChangedFailure } from "../postgres/failures.ts";
import { fetchNamed } from "./attachments.ts";
import type { FleetOptions } from "./options.ts";

/** Reads the file again, where a failed commit may have left lines. This process has the lock. */
export function refreshLocal(log: ReplicatedLog): void {
  const { kind } = log.refresh();
  if (kind === "replaced" || kind === "gone") throw makeFileChangedFailure(log.file);
}

/** Becomes the local writer, and makes the file's entries durable: no process removes them from then on. */
export function settleLocal(log: ReplicatedLog): void {
  log.lock.acquire();
  refreshLocal(log);
  log.settle();
}

/** Throws storage_failed if a copy has other entries than the first `count` by now: another program wrote to its file. */
export function requireCount(log: ReplicatedLog, count: number): void {
  refreshLocal(log);
  if (log.nodes.count !== count) throw makeFileChangedFailure(log.file);
}

/**
 * Adds lines of the fleet, and their attachments, after the first `count`, unless there are more by now: no entry may be
 * there twice.
 */
async function applyLines(
  log: ReplicatedLog,
  fleet: Fleet,
  lines: readonly Uint8Array[],
  count: number,
): Promise<void> {
  const { persisted } = log;
  const fetching = persisted ? fetchNamed(fleet, log, lines) : undefined;
  if (fetching) await fetching;
  requireCount(log, count);
  log.applyRemote(lines);
  reportMissingParents(log, count);
  // A container that is not created yet has no place for them.
  if (!persisted) await fetchNamed(fleet, log, lines);
}

/** Reports entries from a position on whose parent is missing, as opening does. A cycle of parents is cut first. */
function reportMissingParents(log: ReplicatedLog, from: number): void {
  const { nodes } = log;
  for (const position of nodes.cutCycles())
    log.addDamage(makeEntryDamage(nodes.id(position), "cycle", "parents form a cycle; it is cut here"));
  for (const [position, parentId] of nodes.lackingParent(log.header.id)) {
    const reason = `the parent ${parentId} is not in the session; the path ends here`;
    if (position >= from) log.addDamage(makeEntryDamage(nodes.id(position), "missing_parent", reason));
  }
}

/**
 * Applies the fleet's entries up to an end, after the copy's end (`here`). Returns false if these lines do not lead there.
 * Throws storage_failed if another program wrote to the file meanwhile.
 */
export async function applyRemoteEntries(
  there: FleetEnd,
  log: ReplicatedLog,
  { fleet, heldBytes }: Pick<FleetOptions, "fleet" | "heldBytes">,
  here: FleetEnd,
): Promise<boolean> {
  const { id } = log.header;
  const more = await fetchLinesBetween(fleet, id, here, there, heldBytes);
  if (more === null) return false;
  if (more !== "long") await applyLines(log, fleet, more, here.entries);
  else
    for await (const lines of fleet.lines(id, here.entries, there.entries))
      await applyLines(log, fleet, [...lines], log.nodes.count);
  if (log.nodes.count !== there.entries) throw makeFileChangedFailure(log.file);
  return true;
}
