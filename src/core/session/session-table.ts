/** The sessions that a process has open, found by id and by file in a time that does not grow with those of others. */

import type { Stores } from "../ports/stores.ts";
import type { Session } from "./session.ts";

/** A session that was closed to make room. */
interface SuspendedSession {
  readonly file: string;
  /** The head of our host; null: the shared leaf. */
  readonly head: string | null;
  /** True if it was opened to be read only. */
  readonly isReader: boolean;
}

type TableStores = Pick<Stores, "exists" | "isSame" | "idIn" | "nameBehind">;

export class SessionTable {
  private readonly stores: TableStores;
  /** The current session; it may also be one of those that are kept open. */
  current: Session | null = null;
  /** Sessions that are kept open, each once, by the id that it had when it was opened, the least recently used first. */
  private readonly kept = new Map<string, Session>();
  private readonly suspended = new Map<string, SuspendedSession>();

  constructor(stores: TableStores) {
    this.stores = stores;
  }

  /** Every open session, the current one first, the others from the least recently used one on. */
  get all(): readonly Session[] {
    const others = [...this.kept.values()].filter((session) => session !== this.current);
    return this.current ? [this.current, ...others] : others;
  }

  get count(): number {
    return this.kept.size + (this.current && !this.isKept(this.current) ? 1 : 0);
  }

  /** Returns the open session with an id, which another program may have given it by putting another file in its place. */
  get(id: string): Session | undefined {
    if (id === this.current?.id) return this.current;
    const kept = this.kept.get(id);
    if (kept || this.suspended.has(id)) return kept;
    for (const session of this.kept.values()) if (session.id === id) return session;
    return undefined;
  }

  /** Returns whether this very session is open, and not another one of its file. */
  includes(session: Session): boolean {
    return session === this.current || this.keyOf(session) !== undefined;
  }

  /** Returns the key of this very session in the table: its id when it was added. */
  private keyOf(session: Session): string | undefined {
    if (this.kept.get(session.id) === session) return session.id;
    for (const [key, one] of this.kept) if (one === session) return key;
    return undefined;
  }

  /** Returns whether a session is open or was only closed to stay within the limit. */
  has(id: string): boolean {
    return this.get(id) !== undefined || this.suspended.has(id);
  }

  isKept(session: Session): boolean {
    return this.keyOf(session) !== undefined;
  }

  /** Keeps a session open from now on, under the id that it has. One that has the same id is found by its file then. */
  keep(session: Session): void {
    const { id } = session;
    this.suspended.delete(id);
    this.drop(session);
    const other = this.kept.get(id);
    if (other) {
      this.kept.delete(id);
      this.kept.set(`${id}\n${other.file}`, other);
    }
    this.kept.set(id, session);
  }

  /** Notes that a kept session is used now. */
  use(session: Session): void {
    const key = this.keyOf(session);
    if (key === undefined) return;
    this.kept.delete(key);
    this.kept.set(key, session);
  }

  makeCurrent(session: Session): void {
    this.current = session;
    this.suspended.delete(session.id);
  }

  forget(session: Session): void {
    this.drop(session);
    this.suspended.delete(session.id);
  }

  /** Notes that a session with a file is about to be closed for the limit, and the head of its host. */
  suspend(session: Session, as: SuspendedSession): void {
    this.drop(session);
    this.suspended.set(session.id, as);
  }

  forgetSuspended(id: string): void {
    this.suspended.delete(id);
  }

  private drop(session: Session): void {
    const key = this.keyOf(session);
    if (key !== undefined) this.kept.delete(key);
  }

  suspendedWith(id: string): SuspendedSession | undefined {
    return this.suspended.get(id);
  }

  /**
   * Returns the open session with a file, by any name of it. Its header and its name limit the sessions that may have
   * it, and only those are compared with it: to look at the file of each open session takes longer than to open one.
   * Nothing of a file is remembered, because another file gets its inode when it is gone.
   */
  at(file: string): Session | undefined {
    const named = this.all.find((session) => session.file === file);
    if (named) return named;
    const open = this.all.filter((session) => session.file !== null && session.log.persisted);
    if (open.length === 0 || !this.stores.exists(file)) return undefined;
    // Files of other agents, and those with a damaged header, do not have the id.
    const id = this.stores.idIn(file);
    const has = (session: Session): boolean => session.file !== null && this.stores.isSame(file, session.file);
    if (id === undefined) return open.find(has);
    const found = open.find((session) => session.id === id && has(session));
    if (found) return found;
    // A replaced session still has its old id here: for a link, only its name identifies it.
    const name = this.stores.nameBehind(file);
    return name === undefined ? undefined : open.find((session) => session.file?.endsWith(name) && has(session));
  }

  /** Returns the id of the session that is open with a file, or was only closed to make room. */
  idAt(file: string): string | undefined {
    return this.at(file)?.id ?? this.suspendedAt(file);
  }

  /** Returns the id of the session with a file that was closed to make room. */
  suspendedAt(file: string): string | undefined {
    for (const [id, resting] of this.suspended) if (resting.file === file) return id;
    const id = this.suspended.size > 0 ? this.stores.idIn(file) : undefined;
    const resting = id === undefined ? undefined : this.suspended.get(id);
    return resting && this.stores.isSame(file, resting.file) ? id : undefined;
  }
}
