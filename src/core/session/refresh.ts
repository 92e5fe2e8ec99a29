/** Changes that other programs make to a stored session: looked for, taken in, and kept until they are reported. */

import { Failure } from "../failure.ts";
import type { Damage } from "../format/damage.ts";
import type { Log } from "../ports/store.ts";
import type { SessionEntries } from "./entries.ts";
import type { SessionHeads } from "./heads.ts";
import type { LeafTracker } from "./leaf.ts";

/** Entries that are remembered as reported. */
const MOST_REPORTED = 10_000;

/** Changes by other programs that were found since they were last requested. */
export interface Foreign {
  readonly positions: readonly number[];
  /** Entries of this session that its file no longer holds. */
  readonly lost: number;
}

export class ForeignChanges {
  private readonly entries: SessionEntries;
  private readonly leaf: LeafTracker;
  private readonly heads: SessionHeads;
  /** Ids of entries that were not requested yet; positions change with the log. */
  private untoldIds = new Set<string>();
  private untoldLost = 0;
  /** Ids of entries of others that were reported last, whether they were found here or another process told of them. */
  private readonly reportedIds = new Set<string>();
  /** Number of items of the log's damage that were reported, and earlier items that are still to be reported. */
  private reportedDamage: number;
  private untoldDamage: Damage[] = [];
  /** Ids of entries that the leaf and the heads have still to follow; undefined for none, also where reading failed. */
  private unfollowedIds: Set<string> | undefined;
  /** Whether the leaf is to go where the file says, for it was there before what is still to be followed. */
  private goesToFile = false;
  /** Whether the leaf goes where the file says, if it was there before. */
  followsFile = false;
  /** Whether the session released its lock; it takes it again with the next change. */
  resting = false;

  constructor(entries: SessionEntries, leaf: LeafTracker, heads: SessionHeads) {
    this.entries = entries;
    this.leaf = leaf;
    this.heads = heads;
    this.reportedDamage = entries.log.damage.length;
  }

  note(position: number): void {
    const { nodes } = this.entries.log;
    if (nodes.isMarker(position)) return;
    this.reportedIds.delete(nodes.id(position));
    this.untoldIds.add(nodes.id(position));
  }

  /** Notes that an entry is reported. Returns false if it was reported before. */
  markReported(id: string): boolean {
    if (this.reportedIds.has(id)) return false;
    this.reportedIds.add(id);
    if (this.reportedIds.size > MOST_REPORTED)
      this.reportedIds.delete(this.reportedIds.values().next().value as string);
    return true;
  }

  /** Notes entries again that were to be told with a change that failed, as far as they are still there. */
  noteAgain(entryIds: readonly string[]): void {
    const { nodes } = this.entries.log;
    for (const id of entryIds) if (nodes.position(id) >= 0) this.note(nodes.position(id));
  }

  /**
   * Notes the entries that stayed though their commit failed, as those of another program, for the next look at the file does
   * not find them any more. Returns whether there are any.
   */
  noteStayed(): boolean {
    const { log } = this.entries;
    const first = log.takeStayed?.();
    for (let position = first ?? log.nodes.count; position < log.nodes.count; position++) this.note(position);
    return first !== undefined;
  }

  /** Returns the damage that was found since the last call, or since the session was opened. */
  freshDamage(): readonly Damage[] {
    const { damage } = this.entries.log;
    if (damage.length === this.reportedDamage && this.untoldDamage.length === 0) return [];
    const fresh = [...this.untoldDamage, ...damage.slice(this.reportedDamage)];
    this.reportedDamage = damage.length;
    this.untoldDamage = [];
    return fresh;
  }

  /** Returns what was found since the last call; null for nothing. Throws storage_failed. */
  fresh(): Foreign | null {
    if (this.untoldIds.size === 0 && this.untoldLost === 0) return null;
    this.follow();
    const { log, tree } = this.entries;
    const known = Array.from(this.untoldIds, (id) => log.nodes.position(id));
    const positions = known.filter((position) => position >= 0 && tree.isVisible(position));
    const untold = positions.filter((position) => this.markReported(log.nodes.id(position)));
    const lost = this.untoldLost;
    this.untoldIds = new Set();
    this.untoldLost = 0;
    return { positions: untold, lost };
  }

  /** Takes in changes that the session's holder reports itself. Throws the failures of Session.refresh. */
  readAlong(): void {
    this.checkForChanges();
    this.untoldIds = new Set();
    this.untoldLost = 0;
  }

  /** Does what Session.refresh says. Returns whether there was anything. */
  checkForChanges(): boolean {
    const { log } = this.entries;
    // Where another agent goes on, in its own session, is where a reader wants to be who was not elsewhere.
    const follows = (log.foreign !== undefined || this.followsFile) && this.leaf.mayBeLeft;
    const change = log.refresh();
    if (change.kind === "gone") {
      const sentence = "The session's file is missing. clone writes what is still known of it to a new session.";
      throw new Failure("storage_failed", sentence, { errno: "ENOENT" }, { retryable: false });
    }
    if (change.kind === "replaced" || (change.kind === "none" && log.mayHideEntries && this.leaf.isDurable)) {
      this.rebase(undefined, { follows });
      return true;
    }
    const positions = this.entries.addFrom(change.kind === "none" ? log.nodes.count : change.first);
    this.noteCome(positions, follows);
    this.follow();
    return positions.length > 0;
  }

  /** Notes entries that came: they are to be told, and followed. Reads nothing. */
  private noteCome(positions: readonly number[], follows: boolean): void {
    const { nodes } = this.entries.log;
    this.unfollowedIds ??= new Set();
    this.goesToFile ||= follows;
    for (const position of positions) {
      this.untoldIds.add(nodes.id(position));
      this.unfollowedIds.add(nodes.id(position));
    }
  }

  /** Moves the leaf and the heads to what came. Reads; where that fails, the next call has it all before it. */
  private follow(): void {
    if (!this.unfollowedIds) return;
    const { nodes } = this.entries.log;
    const known = Array.from(this.unfollowedIds, (id) => nodes.position(id));
    const positions = known.filter((position) => position >= 0).sort((a, b) => a - b);
    if (this.goesToFile) this.leaf.goToFile();
    else this.leaf.advance(positions);
    this.heads.advance(positions);
    this.unfollowedIds = undefined;
    this.goesToFile = false;
  }

  /** Takes the lock if it can be had. Returns whether this call acquired it. */
  becomeWriter(): boolean {
    const { log } = this.entries;
    if (log.readOnly) return false;
    log.renewLock?.();
    try {
      if (!log.acquireLock()) return false;
    } catch (error) {
      if (error instanceof Failure) return false;
      throw error;
    }
    this.resting = false;
    return true;
  }

  /**
   * Continues with the log that is now in the place of ours: its entries count, and the leaf stays if it is among them.
   * Changes nothing when that cannot be read. Throws content_modified while changes of ours are not durable. With
   * `isRepair`, the result of the repair reports what was removed.
   *
   * From the moment at which the other log counts, what is lost can be told by nothing but the one before: it is counted
   * first, which reads nothing. Finding the leaf and the heads reads; where that fails, the next look finds them.
   */
  rebase(successor?: Log, { isRepair = false, follows = false }: { isRepair?: boolean; follows?: boolean } = {}): void {
    const oldId = this.leaf.foundId;
    const leafId = this.entries.log.renamed?.get(oldId ?? "") ?? oldId;
    if (!this.leaf.maySettle) {
      const sentence = "Another program rewrote the session. Try again to see what is there now.";
      throw new Failure("content_modified", sentence, { leafId });
    }
    const before = this.entries.log;
    const kept = this.heads.kept();
    const next = successor ?? before.reopen();
    this.entries.replace(next);
    this.noteCome(positionsMissingIn(before, next), follows);
    const damaged = stillDamaged(before, next);
    for (const position of positionsMissingIn(next, before)) {
      const id = before.nodes.id(position);
      // It is reported again if it comes back.
      this.reportedIds.delete(id);
      if (!isRepair && !damaged.has(id)) this.untoldLost++;
    }
    this.noteDamageSince(before);
    this.heads.replaced(kept);
    try {
      this.leaf.open(leafId);
      this.follow();
    } finally {
      before.close();
    }
  }

  /** Makes sure that damage is reported that the log before this one did not know. */
  private noteDamageSince(before: Log): void {
    const known = new Set(before.damage.slice(0, this.reportedDamage).map(textOfDamage));
    for (const old of this.untoldDamage) known.delete(textOfDamage(old));
    const { damage } = this.entries.log;
    this.untoldDamage = damage.filter((found) => !known.has(textOfDamage(found)));
    this.reportedDamage = damage.length;
  }
}

function positionsMissingIn(other: Log, { nodes }: Log): number[] {
  const missing: number[] = [];
  for (let p = 0; p < nodes.count; p++) if (other.nodes.position(nodes.id(p)) < 0) missing.push(p);
  return missing;
}

/** Returns the ids of entries that are reported as damage of a log, and of the next one in the same place. */
function stillDamaged(before: Log, next: Log): Set<string> {
  const offsets = new Set(next.damage.map(({ byteOffset }) => byteOffset));
  const ids = new Set<string>();
  for (const { entryId, byteOffset } of before.damage)
    if (entryId !== undefined && offsets.has(byteOffset)) ids.add(entryId);
  return ids;
}

/** Returns a text that is equal for the same damage: two lists of one file's damage are compared by it. */
function textOfDamage({ kind, entryId, line, byteOffset, length, reason }: Damage): string {
  return JSON.stringify([kind, entryId, line, byteOffset, length, reason]);
}
