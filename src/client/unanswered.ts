/** The requests of a client, from their call to their reply. */

import { isAlone } from "./sending-again.ts";
import type { RequestOptions } from "./types.ts";

/** A request that has no reply yet. */
export interface Pending {
  readonly id: number;
  readonly name: string;
  readonly params: Readonly<Record<string, unknown>>;
  /** The message as JSON text: what the caller does to the params later makes no difference. */
  readonly text: string;
  readonly onProgress: RequestOptions["onProgress"];
  /** True if it is sent at once, ahead of others: one for a hook, or of the client itself. */
  readonly isUrgent: boolean;
  /** Entries that it may write. */
  readonly entryCount: number;
  resolve(result: unknown): void;
  reject(error: unknown): void;
  /** True if it was sent to a server that died. */
  isAgain: boolean;
  /** Number of servers that died when it was the next to be answered. */
  blame: number;
  isCancelled: boolean;
}

/**
 * Entries that may be unanswered at once. Keys are found again among the last 10,000 of a session; fewer are sent again
 * after a death, and a server is busy with far fewer.
 */
const MOST_UNANSWERED = 500;

/** The requests that were sent and not answered, in this order. What a request has to know of them is counted. */
export class Unanswered {
  private readonly byId = new Map<number, Pending>();
  private entries = 0;
  /** Number of requests that let none be sent after them. */
  private alone = 0;

  get size(): number {
    return this.byId.size;
  }

  get(id: number): Pending | undefined {
    return this.byId.get(id);
  }

  add(pending: Pending): void {
    this.byId.set(pending.id, pending);
    this.count(pending, 1);
  }

  delete(id: number): void {
    const pending = this.byId.get(id);
    if (pending && this.byId.delete(id)) this.count(pending, -1);
  }

  /** Returns all of them, and forgets them. */
  takeAll(): Pending[] {
    const all = [...this.byId.values()];
    for (const { id } of all) this.delete(id);
    return all;
  }

  /** Returns true if one more may be unanswered in addition, so that all could be sent again to another server. */
  hasCapacityFor({ entryCount }: Pending): boolean {
    return this.alone === 0 && this.entries + entryCount <= MOST_UNANSWERED;
  }

  private count({ name, isUrgent, entryCount }: Pending, by: 1 | -1): void {
    this.entries += by * entryCount;
    if (!isUrgent && isAlone(name)) this.alone += by;
  }
}

/** The requests that wait to be sent, in this order. */
export class Waiting {
  private items: Pending[] = [];
  /** Items before this one are gone. Taking one off a long array would move all others each time. */
  private head = 0;

  get first(): Pending | undefined {
    return this.items[this.head];
  }

  push(pending: Pending): void {
    this.items.push(pending);
  }

  /** Removes the first one. */
  shift(): void {
    this.head++;
    if (this.head < this.items.length / 2) return;
    this.items = this.items.slice(this.head);
    this.head = 0;
  }

  /** Puts requests before all others. */
  putFirst(pending: readonly Pending[]): void {
    this.items = [...pending, ...this.takeAll()];
  }

  /** Removes a request. Returns whether it was there. */
  remove(pending: Pending): boolean {
    const at = this.items.indexOf(pending, this.head);
    if (at >= 0) this.items.splice(at, 1);
    return at >= 0;
  }

  every(test: (pending: Pending) => boolean): boolean {
    return this.items.slice(this.head).every(test);
  }

  /** Returns all of them, and forgets them. */
  takeAll(): Pending[] {
    const all = this.items.slice(this.head);
    this.items = [];
    this.head = 0;
    return all;
  }
}
