/** The sessions that a process has open, found by id and by file in a time that does not grow with those of others. */

import type { Log } from "../ports/store.ts";
import type { Stores } from "../ports/stores.ts";
import type { Session } from "./session.ts";

/** A session that was closed to make room. */
export interface SuspendedSession {
  readonly file: string;
  /** The head at which our host stood; null: at the shared leaf. */
  readonly head: string | null;
  /** What all names of its file had in common. */
  readonly identity: string | undefined;
}

export class OpenSessions {
  private readonly stores: Pick<Stores, "identityOf">;
  /** The current session; it may also be one of those that are kept open. */
  current: Session | null = null;
  /** Sessions that are kept open, by id, the least recently used first. */
  private readonly kept = new Map<string, Session>();
  private readonly suspended = new Map<string, SuspendedSession>();
  /** Identities of the files of logs, which go with a log: where a file is replaced, its session gets another one. */
  private readonly identities = new WeakMap<Log, string>();

  constructor(stores: Pick<Stores, "identityOf">) {
    this.stores = stores;
  }

  /** Every open session, the current one first, the others from the least recently used one on. */
  get all(): readonly Session[] {
    const others = [...this.kept.values()].filter((session) => session !== this.current);
    return this.current ? [this.current, ...others] : others;
  }

  /** Returns the open session with an id. */
  get(id: string): Session | undefined {
    return id === this.current?.id ? this.current : this.kept.get(id);
  }

  /** Whether this very session is open, and not another one of its file. */
  includes(session: Session): boolean {
    if (session === this.current || this.kept.get(session.id) === session) return true;
    // Another program may have put a file with another id in the place of one.
    for (const one of this.kept.values()) if (one === session) return true;
    return false;
  }

  /** Whether a session is open or was only closed to make room. */
  has(id: string): boolean {
    return this.get(id) !== undefined || this.suspended.has(id);
  }

  isKept(session: Session): boolean {
    return this.kept.get(session.id) === session;
  }

  /** Keeps a session open from now on. */
  keep(session: Session): void {
    this.kept.set(session.id, session);
    this.suspended.delete(session.id);
  }

  /** Notes that a kept session is used now. */
  use(session: Session): void {
    if (!this.kept.delete(session.id)) return;
    this.kept.set(session.id, session);
  }

  makeCurrent(session: Session): void {
    this.current = session;
    this.suspended.delete(session.id);
  }

  forget(session: Session): void {
    this.kept.delete(session.id);
    this.suspended.delete(session.id);
  }

  /** Notes that a session with a file is about to be closed to make room, and where its host stands. */
  suspend(session: Session, file: string, head: string | null): void {
    this.suspended.set(session.id, { file, head, identity: this.identityOf(session.log, file) });
    this.kept.delete(session.id);
  }

  suspendedWith(id: string): SuspendedSession | undefined {
    return this.suspended.get(id);
  }

  /** Returns the open session with a file, by any name of it. */
  at(file: string): Session | undefined {
    return this.named(file) ?? this.identified(this.stores.identityOf(file));
  }

  /** Returns the id of the session that is open with a file, or was only closed to make room. */
  idAt(file: string): string | undefined {
    const open = this.at(file);
    if (open) return open.id;
    const wanted = this.suspended.size > 0 ? this.stores.identityOf(file) : undefined;
    for (const [id, { file: name, identity }] of this.suspended)
      if (name === file || (identity !== undefined && identity === wanted)) return id;
    return undefined;
  }

  private named(file: string): Session | undefined {
    if (this.current?.file === file) return this.current;
    for (const session of this.kept.values()) if (session.file === file) return session;
    return undefined;
  }

  private identified(identity: string | undefined): Session | undefined {
    if (identity === undefined) return undefined;
    return this.all.find(({ log }) => log.file !== null && this.identityOf(log, log.file) === identity);
  }

  /** A file that is not there yet is asked for again; what is there keeps its identity as long as its log is the same. */
  private identityOf(log: Log, file: string): string | undefined {
    const known = this.identities.get(log);
    if (known !== undefined) return known;
    const identity = this.stores.identityOf(file);
    if (identity !== undefined) this.identities.set(log, identity);
    return identity;
  }
}
