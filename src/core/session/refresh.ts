/** Changes by other programs to a stored session: finds and applies them, and keeps them until they are reported. */

import { describeUnchanged, Failure } from "../failure.ts";
import type { Damage } from "../format/damage.ts";
import type { Log } from "../ports/store.ts";
import type { SessionEntries } from "./entries.ts";
import type { SessionHeads } from "./heads.ts";
import type { LeafTracker } from "./leaf.ts";

/** Entries that are remembered as reported. */
const MOST_REPORTED = 10_000;

/** Changes by other programs that were found since they were last requested. */
export interface ExternalChange {
  readonly positions: readonly number[];
  /** Entries of this session that its file no longer holds. */
  readonly lost: number;
}

export class ExternalChanges {
  private readonly entries: SessionEntries;
  private readonly leaf: LeafTracker;
  private readonly heads: SessionHeads;
  /** Ids of entries that were not requested yet; positions change with the log. */
  private unreportedIds = new Set<string>();
  private unreportedLost = 0;
  /** Ids of other writers' entries that were reported last, whether found here or reported by another process. */
  private readonly reportedIds = new Set<string>();
  /** Number of items of the log's damage that were reported, and earlier items that are still to be reported. */
  private reportedDamage: number;
  private unreportedDamage: Damage[] = [];
  /** Ids of entries that the leaf and the heads have still to follow; undefined for none, also if reading failed. */
  private unfollowedIds: Set<string> | undefined;
  /** True if the leaf is to go where the file says, because it was there before the entries still to be followed. */
  private goesToFile = false;
  /** True if the leaf goes where the file says, if it was there before. */
  followsFile = false;
  /** True if the session released its lock; it takes it again with the next change. */
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
    this.unreportedIds.add(nodes.id(position));
  }

  /** Notes that an entry is reported. Returns false if it was reported before. */
  markReported(id: string): boolean {
    if (this.reportedIds.has(id)) return false;
    this.reportedIds.add(id);
    if (this.reportedIds.size > MOST_REPORTED)
      this.reportedIds.delete(this.reportedIds.values().next().value as string);
    return true;
  }

  /** Notes entries again whose report belonged to a failed change, as far as they still exist. */
  noteAgain(entryIds: readonly string[]): void {
    const { nodes } = this.entries.log;
    for (const id of entryIds) if (nodes.position(id) >= 0) this.note(nodes.position(id));
  }

  /**
   * Notes the entries that remained although their commit failed, as those of another program, because the next look at
   * the file does not find them any more. Returns whether there are any.
   */
  noteUncertain(): boolean {
    const { log } = this.entries;
    const first = log.takeFirstUncertain();
    for (let position = first ?? log.nodes.count; position < log.nodes.count; position++) this.note(position);
    return first !== undefined;
  }

  /** Returns the damage that was found since the last call, or since the session was opened. */
  freshDamage(): readonly Damage[] {
    const { damage } = this.entries.log;
    if (damage.length === this.reportedDamage && this.unreportedDamage.length === 0) return [];
    const fresh = [...this.unreportedDamage, ...damage.slice(this.reportedDamage)];
    this.reportedDamage = damage.length;
    this.unreportedDamage = [];
    return fresh;
  }

  /** Returns the changes since the last call; null for none. Throws storage_failed. */
  fresh(): ExternalChange | null {
    if (this.unreportedIds.size === 0 && this.unreportedLost === 0) return null;
    this.follow();
    const { log, tree } = this.entries;
    const known = Array.from(this.unreportedIds, (id) => log.nodes.position(id));
    const positions = known.filter((position) => position >= 0 && tree.isVisible(position));
    const unreported = positions.filter((position) => this.markReported(log.nodes.id(position)));
    const lost = this.unreportedLost;
    this.unreportedIds = new Set();
    this.unreportedLost = 0;
    return { positions: unreported, lost };
  }

  /** Applies changes that the session's holder reports itself. Throws the failures of Session.refresh. */
  readAlong(): void {
    this.checkForChanges();
    this.unreportedIds = new Set();
    this.unreportedLost = 0;
  }

  /** Moves to entries that the log got by itself since the last check, from other machines. Looks at no file. */
  followLog(): void {
    this.noteCome(this.entries.addFrom(this.entries.log.nodes.count), false);
    this.follow();
  }

  /** Implements Session.refresh. Returns whether there were changes. */
  checkForChanges(): boolean {
    const { log } = this.entries;
    // If another agent goes on in its own session, a reader at its old leaf wants to follow.
    const follows = (log.foreign !== null || this.followsFile) && this.leaf.mayBeLeft;
    const change = log.refresh();
    if (change.kind === "gone") throw makeMissingFailure();
    if (change.kind === "replaced" || (change.kind === "none" && log.mayHideEntries && this.leaf.isDurable)) {
      try {
        this.rebase(undefined, { follows });
      } catch (error) {
        throw error instanceof Failure && error.name === "session_not_found" ? makeMissingFailure() : error;
      }
      return true;
    }
    const positions = this.entries.addFrom(change.kind === "none" ? log.nodes.count : change.first);
    this.noteCome(positions, follows);
    this.follow();
    return positions.length > 0;
  }

  /** Notes new entries: they are to be reported, and followed. Reads nothing. */
  private noteCome(positions: readonly number[], follows: boolean): void {
    const { nodes } = this.entries.log;
    this.unfollowedIds ??= new Set();
    this.goesToFile ||= follows;
    for (const position of positions) {
      this.unreportedIds.add(nodes.id(position));
      this.unfollowedIds.add(nodes.id(position));
    }
  }

  /** Moves the leaf and the heads to the new entries. Reads; if that fails, the next call does it all. */
  follow(): void {
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

  /** Checks for changes as the only writer, if the lock can be had. */
  checkAsWriter(): void {
    const isTaken = this.becomeWriter();
    try {
      // The path may hold another file after the first check, with a lock of its own.
      if (this.checkForChanges() && this.becomeWriter()) this.checkForChanges();
    } catch (error) {
      // A process that brings a missing file back needs its lock.
      if (isTaken) this.entries.log.lock.release();
      throw error;
    }
  }

  /**
   * Takes the lock before a write, and then reads what other programs wrote before. Throws session_locked, and
   * session_not_found if another session is in the place of this one.
   */
  requireLock(): void {
    const { id } = this.entries.log.header;
    if (this.entries.log.lock.acquire()) this.checkForChanges();
    this.requireSession(id);
  }

  /** Throws session_not_found if the file is that of another session by now: a write to this one must not go there. */
  requireSession(sessionId: string): void {
    const { header, file: sessionPath } = this.entries.log;
    if (header.id === sessionId) return;
    const text = describeUnchanged(
      `Another program put another session at ${sessionPath} meanwhile.`,
      "list_sessions shows where each session is.",
    );
    throw new Failure("session_not_found", text, { sessionId, sessionPath });
  }

  /** Takes the lock if it can be had. Returns whether this call acquired it. */
  becomeWriter(): boolean {
    const { log } = this.entries;
    if (log.readOnly) return false;
    log.lock.renew();
    try {
      if (!log.lock.acquire()) return false;
    } catch (error) {
      if (error instanceof Failure) return false;
      throw error;
    }
    this.resting = false;
    return true;
  }

  /**
   * Continues with the log that replaced ours: its entries count, and the leaf stays if it is among them. Changes
   * nothing when that cannot be read. Throws content_modified while changes of ours are not durable. With `isRepair`,
   * the result of the repair reports the removed entries.
   *
   * After the switch to the other log, only the earlier one knows which entries were lost: they are counted before,
   * which reads nothing. Finding the leaf and the heads reads; if that fails, the next look finds them.
   */
  rebase(successor?: Log, { isRepair = false, follows = false }: { isRepair?: boolean; follows?: boolean } = {}): void {
    const oldId = this.leaf.foundId;
    const leafId = this.entries.log.replica?.renamed?.get(oldId ?? "") ?? oldId;
    if (!this.leaf.maySettle) {
      const sentence = "Another program rewrote the session. Try again to see the new one.";
      throw new Failure("content_modified", sentence, { leafId });
    }
    const before = this.entries.log;
    const kept = this.heads.kept();
    const next = successor ?? before.reopen();
    this.entries.replace(next);
    this.noteCome(positionsMissingIn(before, next), follows);
    const damaged = stillDamaged(before, next);
    const isThere = (id: string | undefined): boolean => id !== undefined && next.nodes.position(id) >= 0;
    for (const position of positionsMissingIn(next, before)) {
      const id = before.nodes.id(position);
      // It is reported again if it comes back.
      this.reportedIds.delete(id);
      if (!isRepair && !damaged.has(id) && !isThere(before.replica?.renamed?.get(id))) this.unreportedLost++;
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
    for (const old of this.unreportedDamage) known.delete(textOfDamage(old));
    const { damage } = this.entries.log;
    this.unreportedDamage = damage.filter((found) => !known.has(textOfDamage(found)));
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

/** Returns a text that is equal for the same damage, for comparing two lists of one file's damage. */
function textOfDamage({ kind, entryId, line, byteOffset, length, reason }: Damage): string {
  return JSON.stringify([kind, entryId, line, byteOffset, length, reason]);
}

function makeMissingFailure(): Failure {
  const sentence = "The session's file is missing. clone writes its known entries to a new session.";
  return new Failure("storage_failed", sentence, { errno: "ENOENT" }, { retryable: false });
}
