/** The lock of one log: records whether this process may write to its file, and which other process may. */

import { Failure } from "../../core/failure.ts";
import type { Holder, LockKind } from "../../core/ports/lock.ts";
import { readClock } from "../fs/clock.ts";
import { type FileKey, isLock, type Lock, type LockLocation, type Locks } from "./locks.ts";

/** Milliseconds for which a refusal proves a holder: it may have exited since. */
const REFUSAL_COUNTS = 1000;
/** Milliseconds for which a look at the lock's file is valid: one takes 8 us on a busy machine. */
const LOOK_COUNTS = 20;

export class WriterLock {
  private readonly locks: Locks;
  private readonly findLocation: (file: FileKey) => LockLocation | undefined;
  /** The location for an inode, cached: resolving the links of a name costs 0.01 ms. */
  private location: { readonly inode: number; readonly found: LockLocation | undefined } | undefined;
  private lock: Lock | undefined;
  /** The other writer found last; undefined before the first search. */
  private holder: Holder | null | undefined;
  /** Time of the last refusal; undefined before one. The clock is loaded with its first use, in a millisecond. */
  private refusedAt: number | undefined;
  private lookedAt = Number.NEGATIVE_INFINITY;
  /** Called before the lock is released. */
  releasing: (() => void) | undefined;

  /** `findLocation` returns the location of the lock that a file of the log carries. */
  constructor(locks: Locks, findLocation: (file: FileKey) => LockLocation | undefined = () => undefined) {
    this.locks = locks;
    this.findLocation = findLocation;
  }

  private locationOf(file: FileKey): LockLocation | undefined {
    const { inode } = file;
    if (this.location?.inode !== inode) this.location = { inode, found: this.findLocation(file) };
    return this.location.found;
  }

  get isHeld(): boolean {
    return this.lock !== undefined;
  }

  /** The kind of the lock that is held; null while none is. */
  get kind(): LockKind | null {
    return this.lock?.kind ?? null;
  }

  /** True if the lock is held and came from a holder that died with it. */
  get previousHolderDied(): boolean {
    return this.lock?.previousHolderDied === true;
  }

  /** Finds out which other process is writing to a file. */
  findHolder(file: FileKey): Holder | null {
    const { refusedAt } = this;
    const wasRefused = refusedAt !== undefined && readClock() - refusedAt < REFUSAL_COUNTS;
    this.holder = this.locks.holder(file, this.locationOf(file), wasRefused);
    return this.holder;
  }

  /** Returns the other writer found by the first call or by a refused lock, unless it has released the lock since. */
  lockedBy(file: FileKey | undefined): Holder | null {
    return this.holder !== null && file ? this.findHolder(file) : (this.holder ?? null);
  }

  /** Loads what `acquire` needs. */
  prepare(): void {
    this.locks.prepare?.();
  }

  /** Takes the lock of the log's file. Throws session_locked. */
  acquire(file: FileKey): void {
    this.adopt(this.claim(file));
  }

  /** Takes the lock of a file to become the log's. A file without a name has no other writer. Throws session_locked. */
  claim(file: FileKey, place: LockLocation | undefined = this.locationOf(file)): Lock {
    const acquired = this.locks.acquire(file, place);
    if (isLock(acquired)) return acquired;
    this.holder = acquired;
    this.refusedAt = readClock();
    throw new Failure(
      "session_locked",
      `${acquired.client}${acquired.pid > 0 ? ` (process ${acquired.pid})` : ""} is writing to this session. Close it there, or clone it here.`,
      { holder: acquired },
    );
  }

  /** Makes a claimed lock the log's. Releases the lock that was held before. */
  adopt(lock: Lock | undefined): void {
    this.release();
    this.lock = lock;
    this.holder = null;
    this.refusedAt = undefined;
  }

  /** Makes sure that the held lock of a file excludes others, and releases it if another process has it by now. */
  keep(file: FileKey): void {
    const now = readClock();
    if (!this.lock || now - this.lookedAt < LOOK_COUNTS) return;
    this.lookedAt = now;
    if (this.lock.renew?.(() => this.findLocation(file)) !== false) return;
    this.release();
    this.refusedAt = now;
    this.findHolder(file);
  }

  /** Hands the lock over to the log that continues with the same file. */
  handTo(next: WriterLock): void {
    if (!this.lock) return;
    next.adopt(this.lock);
    // The function to call before the release moves along with the lock.
    next.releasing = this.releasing;
    this.releasing = undefined;
    this.lock = undefined;
  }

  release(): void {
    if (!this.lock) return;
    this.releasing?.();
    this.lock.release();
    this.lock = undefined;
  }
}
