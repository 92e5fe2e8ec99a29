/** The lanes of the open sessions: which call belongs to which, and when they are idle. */

import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import type { Call } from "../connection/call.ts";
import { Lane } from "./lane.ts";

export class Lanes {
  private readonly workspace: Workspace;
  /** The lane of the current session, of every call without a session, and of malformed messages. */
  readonly main = new Lane(null);
  /** The lane of commands that touch no session. */
  readonly sessionless = new Lane(null);
  /** The lanes of the other open sessions, of which two may have the same id. */
  private readonly ofOpen = new WeakMap<Session, Lane>();
  /** Those in which something may be under way: what is done after each chunk of input need not look at a thousand others. */
  private readonly active = new Set<Lane>();
  /** Those to which calls of the main lane were moved that are not run yet. */
  private readonly moved = new Set<Lane>();
  private waiters: { readonly until: () => boolean; readonly resolve: () => void }[] = [];

  constructor(workspace: Workspace) {
    this.workspace = workspace;
  }

  /** Yields the lanes in which something may be under way. */
  *[Symbol.iterator](): Generator<Lane> {
    yield this.main;
    yield this.sessionless;
    yield* this.active;
  }

  get pending(): number {
    let pending = this.main.pending + this.sessionless.pending;
    for (const lane of this.active) pending += lane.pending;
    return pending;
  }

  sessionOf(lane: Lane): Session | null {
    if (lane === this.sessionless) return null;
    const { workspace, ofOpen } = this;
    const { sessionId, session } = lane;
    if (sessionId === null) return workspace.current;
    if (session && workspace.isOpen(session)) return session;
    // One that was closed to make room is another one when it is open again.
    const next = workspace.openWith(sessionId);
    const isOurs = next !== undefined && next !== workspace.current && (ofOpen.get(next) ?? lane) === lane;
    if (isOurs) ofOpen.set(next, lane);
    lane.session = isOurs ? next : null;
    return lane.session;
  }

  /** Returns the session of a lane of its own, if it is open; null for the lane that sessions have in turn, as they are current. */
  ownerOf(lane: Lane): Session | null {
    return lane === this.main ? null : this.sessionOf(lane);
  }

  ofSession(session: Session): Lane {
    if (session === this.workspace.current) return this.main;
    const lane = this.laneOf(session) ?? new Lane(session.id);
    this.ofOpen.set(session, lane);
    // A call may come for one that is closed: its lane may be another one's by now.
    if (!session.isClosed) lane.session = session;
    this.use(lane);
    return lane;
  }

  /** Returns the lane of a session beside the current one, if there is one: also where it waits for it to be open again. */
  private laneOf(session: Session): Lane | undefined {
    const own = this.ofOpen.get(session);
    if (own) return own;
    return this.workspace.openWith(session.id) === session ? this.waitingFor(session.id) : undefined;
  }

  /** Returns the lane in which something is under way for a session that is not open, by its id. */
  private waitingFor(id: string): Lane | undefined {
    for (const lane of this.active)
      if (lane.sessionId === id && !(lane.session && this.workspace.isOpen(lane.session))) return lane;
    return undefined;
  }

  ofCall({ command, params, target }: Call): Lane {
    if (target === null || (!target && command.effect === "server")) return this.sessionless;
    if (command.effect === "replace") return this.main;
    if (target) return this.ofSession(target);
    const { sessionId } = (params ?? {}) as { sessionId?: string };
    if (sessionId === undefined) return this.main;
    const session = this.workspace.openWith(sessionId);
    if (session) return this.ofSession(session);
    const waiting = this.waitingFor(sessionId);
    if (waiting || !this.workspace.has(sessionId)) return waiting ?? this.main;
    const lane = new Lane(sessionId);
    this.use(lane);
    return lane;
  }

  /**
   * Returns whether a queued call belongs to another lane by now: the session that it names was opened meanwhile, or became
   * the current one, or is not that any more.
   */
  isElsewhere(lane: Lane, call: Call): boolean {
    const { target, params } = call;
    if (lane === this.sessionless) return Boolean(target);
    // What waits for a session stays with it, whichever has its id meanwhile.
    const owner = target ? null : this.ownerOf(lane);
    if (owner && owner !== this.workspace.current) return false;
    const namesSession = Boolean(target) || typeof (params as { sessionId?: unknown } | null)?.sessionId === "string";
    return namesSession && this.ofCall(call) !== lane;
  }

  /**
   * Gives what waits in the main lane to the lanes that it belongs to, now that another session is the current one than
   * `before`: nothing that comes later overtakes it. `takeMoved` says when it is run.
   */
  moveFrom(before: Session | null): void {
    const { main } = this;
    for (const { call: named, batch } of main.calls.splice(0)) {
      const call = this.resolved(named);
      const lane = this.isElsewhere(main, call) ? this.ofMoved(call, before) : main;
      lane.calls.push({ call, batch });
      if (lane !== main) this.moved.add(lane);
    }
  }

  /** Returns the lane of a call that leaves the main one. What waits for a session stays with it, whoever has its id, too. */
  private ofMoved(call: Call, before: Session | null): Lane {
    const { sessionId } = (call.params ?? {}) as { sessionId?: string };
    const isOfBefore = before && !call.target && sessionId === before.id && this.workspace.isOpen(before);
    return isOfBefore ? this.ofSession(before) : this.ofCall(call);
  }

  /** Returns the lanes with calls that were moved there, once what replaced the session in the main lane is answered. */
  takeMoved(): readonly Lane[] {
    if (this.moved.size === 0 || this.main.running) return [];
    const moved = [...this.moved];
    this.moved.clear();
    return moved;
  }

  /** Returns the call with its target as it is now; what another process passes on names it already. */
  resolved(call: Call): Call {
    return call.command.ofAny && !call.peer ? { ...call, target: this.targetOf(call) } : call;
  }

  private targetOf({ command, params, fault }: Call): Session | null | undefined {
    if (command.about) return fault === undefined ? this.subjectOf(command, params) : null;
    const { sessionPath, sessionId } = (params ?? {}) as { sessionPath?: unknown; sessionId?: unknown };
    if (typeof sessionPath !== "string") {
      if (command.effect !== "server" || typeof sessionId !== "string") return undefined;
      return this.workspace.openWith(sessionId) ?? null;
    }
    try {
      return this.workspace.openAt(sessionPath) ?? null;
    } catch {
      // The path may not be accessed, which the command reports itself.
      return null;
    }
  }

  /** Returns the open session that a command is about, though its params do not name it. */
  private subjectOf({ about }: Call["command"], params: unknown): Session | null {
    try {
      const path = about?.(this.workspace, params as never);
      return path === undefined ? null : (this.workspace.openAt(path) ?? null);
    } catch {
      // The command reports it, in the order of the current session: what comes before it may be what it is about.
      return this.workspace.current;
    }
  }

  /** Looks at a lane from now on, until nothing is under way in it. */
  use(lane: Lane): void {
    if (lane !== this.main && lane !== this.sessionless) this.active.add(lane);
  }

  /** Passes over a lane in which nothing is under way, until it is used again. */
  passOver(lane: Lane): void {
    if (lane.isAtRest) this.active.delete(lane);
  }

  /** Waits until what is under way in the lane of a session beside the current one, or of an id, is finished. */
  async finish(session: Session | string, commitPending: () => void): Promise<void> {
    const lane = typeof session === "string" ? this.waitingFor(session) : this.laneOf(session);
    while (lane && !lane.idle) {
      commitPending();
      await this.when(() => lane.idle);
    }
  }

  /** Resolves when nothing is under way in any lane. */
  idle(): Promise<void> {
    return this.when(() => [...this].every((lane) => lane.idle));
  }

  /** Resolves when something has ended in a lane. */
  nextEnd(): Promise<void> {
    return new Promise((resolve) => this.waiters.push({ until: () => true, resolve }));
  }

  private when(until: () => boolean): Promise<void> {
    if (until()) return Promise.resolve();
    return new Promise((resolve) => this.waiters.push({ until, resolve }));
  }

  /** Wakes those who wait for a lane, or for all, to be idle. */
  wake(): void {
    const { waiters } = this;
    if (waiters.length === 0) return;
    this.waiters = waiters.filter(({ until }) => !until());
    for (const waiter of waiters) if (!this.waiters.includes(waiter)) waiter.resolve();
  }
}
