/** The lanes of the open sessions: assigns calls to them, and waits for them to be idle. */

import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import type { Call } from "../connection/call.ts";
import { Lane } from "./lane.ts";

export class Lanes {
  readonly workspace: Workspace;
  /** The lane of the current session, of every call without a session, and of malformed messages. */
  readonly main = new Lane(null);
  /** The lane of commands that touch no session. */
  readonly sessionless = new Lane(null);
  /** The lanes of the other open sessions; two may have the same id. */
  private readonly ofOpen = new WeakMap<Session, Lane>();
  /** Lanes that may have work: the end of an input chunk need not check a thousand others. */
  private readonly active = new Set<Lane>();
  /** Lanes with calls moved from the main lane that have not run yet. */
  private readonly moved = new Set<Lane>();
  /** Continues with the calls of a lane that has become free. */
  readonly goOn: (lane: Lane) => void;
  private waiters: { readonly until: () => boolean; readonly resolve: () => void }[] = [];

  constructor(workspace: Workspace, goOn: (lane: Lane) => void) {
    this.workspace = workspace;
    this.goOn = goOn;
  }

  /** Yields the lanes that may have work. */
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
    // A session closed for capacity is a new object when it is open again.
    const next = workspace.openWith(sessionId);
    const isOurs = next !== undefined && next !== workspace.current && (ofOpen.get(next) ?? lane) === lane;
    if (isOurs) ofOpen.set(next, lane);
    lane.session = isOurs ? next : null;
    return lane.session;
  }

  /** Returns the session that a call is about when its turn in a lane comes; null for none, or for one that is not open. */
  getSession(lane: Lane, { command, params, target }: Call): Session | null {
    if (target !== undefined) return target;
    const session = this.sessionOf(lane);
    const { sessionId = session?.id } = (command.namesNext ? {} : params) as { sessionId?: string };
    // The main lane has the calls to sessions that are not open, too.
    return session?.id === sessionId ? session : null;
  }

  /** Returns the open session of a lane of its own; null for the main lane, which serves each current session. */
  ownerOf(lane: Lane): Session | null {
    return lane === this.main ? null : this.sessionOf(lane);
  }

  ofSession(session: Session): Lane {
    if (session === this.workspace.current) return this.main;
    const lane = this.laneOf(session) ?? new Lane(session.id);
    this.ofOpen.set(session, lane);
    // A call may come for a closed session, whose lane may have another owner by now.
    if (!session.isClosed) lane.session = session;
    this.use(lane);
    return lane;
  }

  /** Returns the lane of a session that is not current, if there is one: also one that waits for it to open again. */
  private laneOf(session: Session): Lane | undefined {
    const own = this.ofOpen.get(session);
    if (own) return own;
    return this.workspace.openWith(session.id) === session ? this.waitingFor(session.id) : undefined;
  }

  /** Returns a lane with work for a closed session, by its id. */
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
   * Returns whether a queued call belongs to another lane by now: its session was opened, or became or ceased to be the
   * current one.
   */
  isElsewhere(lane: Lane, call: Call): boolean {
    const { target, params } = call;
    if (lane === this.sessionless) return Boolean(target);
    // Calls that wait for a session stay with it, whichever session has its id since.
    const owner = target ? null : this.ownerOf(lane);
    if (owner && owner !== this.workspace.current) return false;
    const namesSession = Boolean(target) || typeof (params as { sessionId?: unknown } | null)?.sessionId === "string";
    return namesSession && this.ofCall(call) !== lane;
  }

  /**
   * Moves calls that wait in the main lane to their lanes, after the current session changed from `before`: later calls
   * cannot overtake them. `takeMoved` returns the lanes to run.
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

  /** Returns the lane of a call that leaves the main one. A call that waits for a session stays with that session. */
  private ofMoved(call: Call, before: Session | null): Lane {
    const { sessionId } = (call.params ?? {}) as { sessionId?: string };
    const isOfBefore = before && !call.target && sessionId === before.id && this.workspace.isOpen(before);
    return isOfBefore ? this.ofSession(before) : this.ofCall(call);
  }

  /** Returns the lanes with moved calls, once the call that replaced the session in the main lane is answered. */
  takeMoved(): readonly Lane[] {
    if (this.moved.size === 0 || this.main.running) return [];
    const moved = [...this.moved];
    this.moved.clear();
    return moved;
  }

  /** Returns the call with its present target; a call from a guest has it already. */
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
      // The path may be forbidden; the command reports that itself.
      return null;
    }
  }

  /** Returns the open session of a command, if its params do not name it. */
  private subjectOf({ about }: Call["command"], params: unknown): Session | null {
    try {
      const path = about?.(this.workspace, params as never);
      return path === undefined ? null : (this.workspace.openAt(path) ?? null);
    } catch {
      // The command reports it, in the order of the current session: an earlier call may make its subject.
      return this.workspace.current;
    }
  }

  /** Marks a lane as possibly having work, until it has none. */
  use(lane: Lane): void {
    if (lane !== this.main && lane !== this.sessionless) this.active.add(lane);
  }

  /** Skips an idle lane until it is used again. */
  passOver(lane: Lane): void {
    if (lane.isAtRest) this.active.delete(lane);
  }

  /** Waits until the lane of a session other than the current one, or of an id, has finished its work. */
  async finish(session: Session | string, commits: { commitAll(): void }): Promise<void> {
    const lane = typeof session === "string" ? this.waitingFor(session) : this.laneOf(session);
    while (lane && !lane.idle) {
      commits.commitAll();
      await this.when(() => lane.idle);
    }
  }

  /** Resolves when no lane has work. */
  idle(): Promise<void> {
    return this.when(() => [...this].every((lane) => lane.idle));
  }

  /** Resolves when a lane has finished something. */
  nextEnd(): Promise<void> {
    return new Promise((resolve) => this.waiters.push({ until: () => true, resolve }));
  }

  private when(until: () => boolean): Promise<void> {
    if (until()) return Promise.resolve();
    return new Promise((resolve) => this.waiters.push({ until, resolve }));
  }

  /** Wakes functions that wait for one lane, or all, to be idle. */
  wake(): void {
    const { waiters } = this;
    if (waiters.length === 0) return;
    this.waiters = waiters.filter(({ until }) => !until());
    for (const waiter of waiters) if (!this.waiters.includes(waiter)) waiter.resolve();
  }
}
