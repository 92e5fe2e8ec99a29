/** The lock of one log: whether this process writes to its file, and who does if another one is at it. */

import { Failure } from "../../core/failure.ts";
import type { Holder, LockKind } from "../../core/ports/store.ts";
import { type FileKey, isLock, type Lock, type LockPlace, type Locks } from "./locks.ts";

export class WriterLock {
  private readonly locks: Locks;
  private readonly findPlace: (file: FileKey) => LockPlace | undefined;
  /** The place for an inode, found once: looking up what a name links to costs 0.01 ms. */
  private place: { readonly inode: number; readonly found: LockPlace | undefined } | undefined;
  private lock: Lock | undefined;
  private holder: Holder | null = null;

  /** `findPlace` returns where the lock lies that a file of the log carries. */
  constructor(locks: Locks, findPlace: (file: FileKey) => LockPlace | undefined = () => undefined) {
    this.locks = locks;
    this.findPlace = findPlace;
  }

  private placeOf(file: FileKey): LockPlace | undefined {
    const { inode } = file;
    if (this.place?.inode !== inode) this.place = { inode, found: this.findPlace(file) };
    return this.place.found;
  }

  get isHeld(): boolean {
    return this.lock !== undefined;
  }

  /** Which lock is held; null while none is. */
  get kind(): LockKind | null {
    return this.lock?.kind ?? null;
  }

  /** Whether the lock is held and came from a holder that died with it. */
  get heirOfDead(): boolean {
    return this.lock?.heirOfDead === true;
  }

  /** Looks who else is writing to a file. */
  look(file: FileKey): Holder | null {
    this.holder = this.locks.holder(file, this.placeOf(file));
    return this.holder;
  }

  /** Who else was writing when that was looked at or refused us the lock, unless they have gone since. */
  lockedBy(file: FileKey | undefined): Holder | null {
    return this.holder && file ? this.look(file) : this.holder;
  }

  /** Takes the lock of the log's file. Throws session_locked. */
  take(file: FileKey): void {
    this.adopt(this.claim(file));
  }

  /** The lock of a file that is to become the log's: while it has no name yet, nobody else can be its writer. */
  claim(file: FileKey, place: LockPlace | undefined = this.placeOf(file)): Lock {
    const taken = this.locks.take(file, place);
    if (isLock(taken)) return taken;
    this.holder = taken;
    throw new Failure(
      "session_locked",
      `${taken.client}${taken.pid > 0 ? ` (process ${taken.pid})` : ""} is writing to this session. Close it there, or clone it here.`,
      { holder: taken },
    );
  }

  /** Goes on with a claimed lock; one that was held is let go. */
  adopt(lock: Lock | undefined): void {
    this.release();
    this.lock = lock;
    this.holder = null;
  }

  /** Hands the lock over to the log that goes on with the same file. */
  handTo(next: WriterLock): void {
    if (!this.lock) return;
    next.adopt(this.lock);
    this.lock = undefined;
  }

  release(): void {
    this.lock?.release();
    this.lock = undefined;
  }
}
