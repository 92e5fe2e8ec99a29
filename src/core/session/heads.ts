/**
 * SessionHeads: leaves of their own in addition to the shared one, by name. They are kept in the entries: each entry
 * that is written through a head names it, and the leaf of a head is its last entry, or the parent of that if it is a
 * leaf marker. So a head is as durable as its entries, and every process that opens the session finds it. A head
 * without entries is where the shared leaf was when the first client entered it, for as long as a client uses it.
 *
 * Our own host uses the shared leaf or a head, and each joined client another: `Session.at` gives the session at a head.
 */

import { Failure } from "../failure.ts";
import type { HeadMark } from "../format/entry.ts";
import { ROOT } from "../tree/nodes.ts";
import type { SessionEntries } from "./entries.ts";
import { type LeafTracker, UNSURE } from "./leaf.ts";

/** The place of a head: its leaf, UNSURE until it is found, and the last entry that was written through it, or ROOT. */
interface HeadPlace {
  readonly leaf: number;
  readonly last: number;
}

interface KnownHead {
  /** Undefined for a head that was retired. */
  now: HeadPlace | undefined;
  /** The place that a failed commit restores. */
  durable: HeadPlace | undefined;
  /** Number of clients that use it. */
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
  /** Names of the heads in use. */
  private readonly present = new Set<string>();
  /** Heads that were written through since the last commit. */
  private readonly unsettled = new Set<KnownHead>();
  /** Entries from `low` up to `high` were looked at: their heads are known. */
  private low: number;
  private high: number;
  /** The head of our own host; null for the shared leaf. */
  own: string | null = null;

  constructor(entries: SessionEntries, shared: LeafTracker) {
    this.entries = entries;
    this.shared = shared;
    this.low = this.high = entries.log.nodes.count;
  }

  /** True if our own host uses a head without entries. */
  get isUnwritten(): boolean {
    return this.own !== null && this.find(this.own)?.now?.last === ROOT;
  }

  /** Position of the leaf of a head, or of the shared leaf. */
  leafOf(name: string | null): number {
    const place = name === null ? undefined : this.find(name)?.now;
    // The entry of one through which nothing was written may have been undone.
    return place && place.leaf < this.entries.log.nodes.count ? place.leaf : this.shared.current;
  }

  /** Returns the ids of the leaves of all present clients, with the shared one; undefined if that is the only one. */
  leaves(): ReadonlyMap<string | null, string | null> | undefined {
    if (this.present.size === 0) return undefined;
    const idOf = (name: string | null): string | null => this.entries.idOrNull(this.leafOf(name));
    return new Map([null, ...this.present].map((name) => [name, idOf(name)]));
  }

  /** Returns the reported ids of a head or the shared leaf: a failed commit goes back to them. */
  durable(name: string | null): { leafId: string | null; sharedLeafId: string | null; lastId: string | null } {
    const { entries, shared } = this;
    const sharedLeafId = shared.durableId;
    const place = name === null ? undefined : this.find(name)?.durable;
    const leafId = place ? entries.idOrNull(place.leaf) : sharedLeafId;
    return { leafId, sharedLeafId, lastId: entries.idOrNull(place?.last ?? ROOT) };
  }

  // --- clients and their heads ---------------------------------------------------------------------------------

  /** Sets the head of our own host from now on; null for the shared leaf. */
  setOwn(name: string | null): void {
    if (name === this.own) return;
    if (name !== null) this.enter(name);
    if (this.own !== null) this.leave(this.own);
    this.own = name;
  }

  /** Notes one more client of a head. A head without entries is put where `leafId` says, or at the shared leaf. */
  enter(name: string, leafId?: string | null): void {
    const head = this.headOf(name);
    head.users++;
    this.present.add(name);
    if (head.now) return;
    const wanted = leafId === undefined || leafId === null ? ROOT : this.entries.find(leafId);
    const leaf = leafId === null || wanted >= 0 ? wanted : this.shared.current;
    this.put(head, { leaf, last: ROOT });
  }

  /** Notes one client less of a head. */
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

  // --- moves ---------------------------------------------------------------------------------------------------

  /**
   * Puts a head at a place without an entry of it, because nothing can be written, or because the holder of the session
   * says so; then `last` is the last entry that the holder wrote through the head.
   */
  place(name: string, leaf: number, last?: number): void {
    const head = this.headOf(name);
    this.put(head, { leaf, last: last ?? head.now?.last ?? ROOT });
  }

  /** Puts our own host's head where the holder says; the holder reports all that it writes. */
  follow(leaf: number, last: number): void {
    this.skipTo(this.entries.log.nodes.count);
    if (this.own !== null) this.place(this.own, leaf, last);
  }

  /** Returns the last entry of a head; null for none. */
  lastIdOf(name: string): string | null {
    return this.entries.idOrNull(this.find(name)?.now?.last ?? ROOT);
  }

  /** Applies entries that were just written, through a head or none; `alone`: no other writer appended between them. */
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

  /** Puts a head at its durable place, unless entries written through it before are not durable. */
  private put(head: KnownHead, place: HeadPlace | undefined): void {
    head.now = place;
    if (!this.unsettled.has(head)) head.durable = place;
  }

  private placeAfter(position: number, isRetired = false): HeadPlace {
    const { nodes } = this.entries.log;
    const leaf = nodes.isMarker(position) ? Math.max(nodes.parent(position), ROOT) : position;
    return { leaf, last: isRetired ? ROOT : position };
  }

  /** Returns a function for the end of a commit that begins now: it makes the present places durable. */
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

  // --- entries of other writers --------------------------------------------------------------------------------

  /**
   * Follows entries of other writers, if any head is in use. The holder of the session reports its own writes. Reads;
   * if that fails, it can be called with the same entries again.
   */
  advance(come: readonly number[]): void {
    if (this.present.size === 0) return;
    this.findUnsure();
    // In a log that replaced another, they are among the known ones.
    for (const position of come) {
      const mark = position < this.high ? this.entries.headOf(position) : undefined;
      if (mark && this.present.has(mark.name)) this.take(mark, position);
    }
    if (!this.shared.holder) this.lookOn();
  }

  /** Returns the facts of the present log that `replaced` needs. */
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

  /** Continues with another log. Reads nothing: the last entry of a head, if it is gone, is found on demand. */
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

  /** Finds the heads whose last entry is gone: the entries before it have their places, or the shared leaf. */
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

  // --- marks in the entries ------------------------------------------------------------------------------------

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

  /** Forgets the places of unused heads, rather than reading the entries of other writers. */
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

  /** Reads the entries before the known ones, the last one first, until that is enough. */
  private lookBack(isEnough: () => boolean): void {
    for (const [position, mark] of this.entries.backwards(this.low)) {
      if (mark && !this.known.has(mark.name)) this.take(mark, position);
      this.low = position;
      if (isEnough()) return;
    }
  }

  /** Applies an entry of a head that was found. */
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
