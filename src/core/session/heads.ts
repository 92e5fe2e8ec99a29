/**
 * SessionHeads: leaves of their own beside the shared one, by name. They are kept in the entries: whatever is written through a
 * head says so, and the leaf of a head is its last entry, or the parent of that if it is a leaf marker. So a head is as
 * durable as its entries, and is found by whoever opens the session. A head through which nothing was written is where
 * the shared leaf was when it was first stood at, for as long as somebody stands there.
 *
 * Our own host stands at the shared leaf or at a head, and whoever joined us at another: each of their calls runs `at`
 * its own.
 */

import { Failure } from "../failure.ts";
import type { HeadMark } from "../format/entry.ts";
import { ROOT } from "../tree/nodes.ts";
import type { SessionEntries } from "./entries.ts";
import { type LeafTracker, UNSURE } from "./leaf.ts";

/** Where a head is: its leaf, UNSURE until it is found, and the last entry that was written through it, or ROOT. */
interface HeadPlace {
  readonly leaf: number;
  readonly last: number;
}

interface KnownHead {
  /** Undefined for a head that was retired. */
  now: HeadPlace | undefined;
  /** The place to which a failed commit puts it back. */
  durable: HeadPlace | undefined;
  /** The number of those who stand at it. */
  users: number;
}

/** A head in words that outlive its log; without a leaf, it was not found there yet. */
interface KeptHead {
  readonly leafId: string | null | undefined;
  readonly lastId: string | null;
  readonly users: number;
}

/** A head as lists have it. */
interface ListedHead extends HeadPlace {
  readonly name: string;
  readonly users: number;
}

export class SessionHeads {
  private readonly entries: SessionEntries;
  private readonly shared: LeafTracker;
  private readonly known = new Map<string, KnownHead>();
  /** Names of those at which anybody stands. */
  private readonly present = new Set<string>();
  /** SessionHeads that were written through since the last commit. */
  private readonly unsettled = new Set<KnownHead>();
  /** Entries from `low` up to `high` were looked at: their heads are known. */
  private low: number;
  private high: number;
  /** The head at which our own host stands; null for the shared leaf. */
  own: string | null = null;
  /** The head of the call that runs now. */
  private standing: string | null = null;

  constructor(entries: SessionEntries, shared: LeafTracker) {
    this.entries = entries;
    this.shared = shared;
    this.low = this.high = entries.log.nodes.count;
  }

  /** The head of whoever calls now; null for the shared leaf. */
  get name(): string | null {
    return this.standing;
  }

  /** Position of the leaf of whoever calls now. */
  get leaf(): number {
    return this.standing === null ? this.shared.current : this.leafOf(this.standing);
  }

  /** Whether our own host stands at a head through which nothing was written. */
  get isUnwritten(): boolean {
    return this.own !== null && this.find(this.own)?.now?.last === ROOT;
  }

  /** Position of the leaf of a head, or of the shared leaf. */
  leafOf(name: string | null): number {
    const place = name === null ? undefined : this.find(name)?.now;
    // The entry of one through which nothing was written may have been undone.
    return place && place.leaf < this.entries.log.nodes.count ? place.leaf : this.shared.current;
  }

  /** Returns the ids of the leaves of all who are here, with the shared one; undefined where that is the only one. */
  leaves(): ReadonlyMap<string | null, string | null> | undefined {
    if (this.present.size === 0) return undefined;
    const idOf = (name: string | null): string | null => this.entries.idOrNull(this.leafOf(name));
    return new Map([null, ...this.present].map((name) => [name, idOf(name)]));
  }

  /** Returns the ids that everybody was told of, for a head or the shared leaf: a failed commit goes back to them. */
  durable(name: string | null): { leafId: string | null; sharedLeafId: string | null; lastId: string | null } {
    const { entries, shared } = this;
    const sharedLeafId = shared.durableId;
    const place = name === null ? undefined : this.find(name)?.durable;
    const leafId = place ? entries.idOrNull(place.leaf) : sharedLeafId;
    return { leafId, sharedLeafId, lastId: entries.idOrNull(place?.last ?? ROOT) };
  }

  // --- who stands where ----------------------------------------------------------------------------------------

  /** Has our own host stand at a head from now on, or at the shared leaf. */
  stand(name: string | null): void {
    if (name === this.own) return;
    if (name !== null) this.enter(name);
    if (this.own !== null) this.leave(this.own);
    this.own = this.standing = name;
  }

  /** Notes that one more stands at a head. One without entries is put where `leafId` says, or at the shared leaf. */
  enter(name: string, leafId?: string | null): void {
    const head = this.headOf(name);
    head.users++;
    this.present.add(name);
    if (head.now) return;
    const wanted = leafId === undefined || leafId === null ? ROOT : this.entries.find(leafId);
    const leaf = leafId === null || wanted >= 0 ? wanted : this.shared.current;
    this.put(head, { leaf, last: ROOT });
  }

  /** Notes that one stands there no more. */
  leave(name: string): void {
    const head = this.known.get(name);
    if (!head || head.users === 0) return;
    head.users--;
    if (head.users > 0) return;
    this.present.delete(name);
    if (head.now?.leaf === UNSURE) this.known.delete(name);
    // It may have been retired: its older entries mean nothing.
    else if (head.now?.last === ROOT) this.put(head, undefined);
  }

  /** Runs something for whoever stands at a head, or at the shared leaf. */
  at<T>(name: string | null, run: () => T): T {
    const before = this.standing;
    this.standing = name;
    try {
      return run();
    } finally {
      this.standing = before;
    }
  }

  /** Goes on with a call that has waited; without a name, our own host's come next. */
  resume(name: string | null = this.own): void {
    this.standing = name;
  }

  // --- moves ---------------------------------------------------------------------------------------------------

  /**
   * Puts a head somewhere without an entry of it, because nothing can be written, or because the process says so that
   * writes here; then `last` is the last entry that it wrote through the head.
   */
  place(name: string, leaf: number, last?: number): void {
    const head = this.headOf(name);
    this.put(head, { leaf, last: last ?? head.now?.last ?? ROOT });
  }

  /** Puts our own host's head where the process says that writes here, which tells of all that it writes. */
  follow(leaf: number, last: number): void {
    this.skipTo(this.entries.log.nodes.count);
    if (this.own !== null) this.place(this.own, leaf, last);
  }

  /** Returns the last entry of a head; null for none. */
  lastIdOf(name: string): string | null {
    return this.entries.idOrNull(this.find(name)?.now?.last ?? ROOT);
  }

  /** Takes in entries that were just written, through a head or none; `alone`: nobody wrote between them. */
  wrote(first: number, past: number, name: string | null, alone: boolean, retired: boolean): void {
    if (!alone) this.lookOn();
    else if (this.high === first) this.high = past;
    else this.skipTo(past);
    if (name === null) return;
    const head = this.headOf(name);
    head.now = retired && head.users === 0 ? undefined : this.placeAfter(past - 1, retired);
    this.unsettled.add(head);
  }

  private headOf(name: string): KnownHead {
    const head = this.find(name) ?? { now: undefined, durable: undefined, users: 0 };
    this.known.set(name, head);
    return head;
  }

  /** Puts a head where it is durable, unless what was written through it before is not. */
  private put(head: KnownHead, place: HeadPlace | undefined): void {
    head.now = place;
    if (!this.unsettled.has(head)) head.durable = place;
  }

  private placeAfter(position: number, isRetired = false): HeadPlace {
    const { nodes } = this.entries.log;
    const leaf = nodes.isMarker(position) ? Math.max(nodes.parent(position), ROOT) : position;
    return { leaf, last: isRetired ? ROOT : position };
  }

  /** Returns what a commit that begins now does with the heads when it has succeeded. */
  settling(): () => void {
    if (this.unsettled.size === 0) return () => {};
    const places = [...this.unsettled].map((head) => [head, head.now] as const);
    return () => {
      for (const [head, now] of places) {
        head.durable = now;
        if (head.now === now) this.unsettled.delete(head);
      }
    };
  }

  /** Goes back to the durable places, after the log has gone back to its durable entries. */
  undone(): void {
    const { count } = this.entries.log.nodes;
    for (const head of this.unsettled) head.now = head.durable;
    this.unsettled.clear();
    this.high = Math.min(this.high, count);
    this.low = Math.min(this.low, this.high);
  }

  // --- what others wrote ---------------------------------------------------------------------------------------

  /**
   * Follows entries that others wrote, where anybody stands at a head. What the holder of the session writes, it tells.
   * Reads; where that fails, it can be called with the same ones again.
   */
  advance(come: readonly number[]): void {
    if (this.present.size === 0) return;
    this.findUnsure();
    // In a log that took the place of another, they lie among those that are known.
    for (const position of come) {
      const mark = position < this.high ? this.entries.headOf(position) : undefined;
      if (mark && this.present.has(mark.name)) this.take(mark, position);
    }
    if (!this.shared.holder) this.lookOn();
  }

  /** Returns what `replaced` needs of the log that is about to be replaced. */
  kept(): ReadonlyMap<string, KeptHead> {
    const { entries } = this;
    const kept = new Map<string, KeptHead>();
    for (const name of this.present) {
      const { now, users } = this.known.get(name) as KnownHead;
      const isUnsure = now?.leaf === UNSURE;
      const leafId = isUnsure ? undefined : now ? entries.idOrNull(now.leaf) : this.shared.foundId;
      kept.set(name, { leafId, lastId: entries.idOrNull(now?.last ?? ROOT), users });
    }
    return kept;
  }

  /** Continues with another log. Reads nothing: where the last entry of a head is gone, it is found when it is needed. */
  replaced(kept: ReadonlyMap<string, KeptHead>): void {
    const { nodes } = this.entries.log;
    this.known.clear();
    this.unsettled.clear();
    this.low = this.high = nodes.count;
    for (const [name, { leafId, lastId, users }] of kept) {
      const leaf = leafId === null ? ROOT : leafId === undefined ? UNSURE : nodes.position(leafId);
      const last = lastId === null ? ROOT : nodes.position(lastId);
      const isThere = (leafId === null || leaf >= 0) && (lastId === null || last >= 0);
      const place = isThere ? { leaf, last } : { leaf: UNSURE, last: ROOT };
      this.known.set(name, { now: place, durable: place, users });
    }
  }

  /** Finds the heads whose last entry is gone: the ones before it tell, or the shared leaf. */
  private findUnsure(): void {
    const unsure = new Map([...this.known].filter(([, { now }]) => now?.leaf === UNSURE));
    if (unsure.size === 0) return;
    const places = new Map<string, HeadPlace | undefined>();
    for (const [position, mark] of this.entries.backwards(this.entries.log.nodes.count)) {
      if (mark && unsure.has(mark.name) && !places.has(mark.name))
        places.set(mark.name, mark.isRetired ? undefined : this.placeAfter(position));
      if (places.size === unsure.size) break;
    }
    const { current } = this.shared;
    for (const [name, head] of unsure) head.now = head.durable = places.get(name) ?? { leaf: current, last: ROOT };
  }

  // --- what the entries say ------------------------------------------------------------------------------------

  /** Returns every head that was not retired, the one that was written through last first. */
  list(): ListedHead[] {
    this.lookOn();
    this.lookBack(() => false);
    const found: ListedHead[] = [];
    for (const [name, { now, users }] of this.known)
      if (now && (now.last !== ROOT || users > 0)) found.push({ name, users, leaf: this.leafOf(name), last: now.last });
    return found.sort((a, b) => b.last - a.last || (a.name < b.name ? -1 : 1));
  }

  /** Returns the head of that name, if there is one. Throws head_not_found. */
  require(name: string): ListedHead {
    const head = this.list().find((one) => one.name === name);
    if (head) return head;
    throw new Failure("head_not_found", undefined, { head: name });
  }

  private find(name: string): KnownHead | undefined {
    const known = this.known.get(name);
    if (known?.now?.leaf === UNSURE) this.findUnsure();
    if (known) return known;
    if (this.high < this.entries.log.nodes.count) this.lookOn();
    this.lookBack(() => this.known.has(name));
    return this.known.get(name);
  }

  /** Gives up what is known of heads where nobody stands, rather than read what others wrote. */
  private skipTo(past: number): void {
    for (const [name, head] of this.known) if (head.users === 0 && !this.unsettled.has(head)) this.known.delete(name);
    this.low = this.high = past;
  }

  /** Looks at the entries that came since. */
  private lookOn(): void {
    const { nodes } = this.entries.log;
    for (; this.high < nodes.count; this.high++) {
      const mark = this.entries.headOf(this.high);
      if (mark) this.take(mark, this.high);
    }
  }

  /** Looks at the entries before those that are known, the last one first, until that is enough. */
  private lookBack(isEnough: () => boolean): void {
    for (const [position, mark] of this.entries.backwards(this.low)) {
      if (mark && !this.known.has(mark.name)) this.take(mark, position);
      this.low = position;
      if (isEnough()) return;
    }
  }

  /** Takes in an entry of a head that was found. */
  private take({ name, isRetired }: HeadMark, position: number): void {
    const head = this.known.get(name) ?? { now: undefined, durable: undefined, users: 0 };
    this.known.set(name, head);
    const place = isRetired && head.users === 0 ? undefined : this.placeAfter(position, isRetired);
    if (position < this.entries.log.durableCount) this.put(head, place);
    else {
      head.now = place;
      this.unsettled.add(head);
    }
  }
}
