/** The contract between the dispatcher and the module that shares its sessions with other processes. */

import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import type { PresentClient } from "../../handlers/shared/command.ts";
import type { HookName } from "../../handlers/shared/hooks.ts";
import type { AskedHost, Call, Peer, Question } from "../connection/call.ts";
import type { PendingEvent } from "../connection/events.ts";
import type { Decision, Gate } from "./gate.ts";
import type { OwnPresence } from "./own-presence.ts";

export interface SharingStart {
  /** Returns whether another process that holds a session can be joined, as far as that is known before. */
  canJoin(sessionPath: string): boolean;
  /** Shares the sessions of a server from now on. */
  share(server: SharingServer): Sharing;
}

/**
 * The sessions of a server that it shares. As a gate, it passes writes to the holder of a session that this process has
 * joined, and reads up to what that holder reported before other calls.
 */
export interface Sharing extends Gate {
  /**
   * Finds the holder of a session that has refused a write of this process. Returns nothing if it cannot be joined, and
   * throws session_locked for a write that it does not run for others.
   */
  findHolder(call: Call, session: Session): Decision;
  /** Reads a session up to what its holder has reported, if this process has joined that. */
  follow(session: Session): void;
  hasGuests(session: Session | null): boolean;
  /** Returns the clients of a session, the local host first. */
  clientsOf(session: Session): readonly PresentClient[];
  /** Returns the hosts to ask before a call on a session acts. */
  getHooks(session: Session | null, call: Call): AskedHost;
  /** Runs an operation that replaces a session's files while it has no other client. Throws session_locked. */
  alone<T>(session: Session, doing: string, run: () => T): T;
  /** Sends the guests of a session an event that `by` caused, or the local host if that is undefined. */
  report(session: Session | null, event: PendingEvent, by: Call | undefined): void;
  /** Sends every other client the local host's present description and hooks. */
  introduce(): void;
  /** Opens, joins and leaves after the replies of this turn: a session that was written to, or all. */
  plan(written?: Session | null): void;
  /** Does that now, and makes sure that other processes find these sessions. */
  poll(sessions: readonly Session[]): void;
  /** Accepts no more calls, because this process is about to end. */
  stop(): void;
  /** Fails calls soon that other processes do not answer. */
  hurry(): void;
  /** Leaves all sessions, after they were closed here. */
  close(): void;
}

/** The server that shares its sessions. */
export interface SharingServer {
  readonly workspace: Workspace;
  /** The local host, as other processes see it. */
  readonly presence: OwnPresence;
  readonly hooks: AskedHost;
  /** True if events can be sent to the local host: its framing and dialect are known. */
  readonly canSendEvents: boolean;
  /** Runs a call of a guest in its turn. */
  submit(call: Call): void;
  commitPending(): void;
  /** Cancels a call of a guest if it has not run yet or waits for consent. */
  cancel(idText: string, peer: Peer): void;
  /** Sends the local host events of a session, in order with the replies about it. */
  passOn(session: Session, events: PendingEvent[]): void;
  /** Counts events that the holder of a session dropped. */
  missed(session: Session, count: number): void;
  /** Returns the last entry of a session that is reported to everyone, or null; events report the later ones. */
  lastReported(session: Session): string | null;
  /** Asks the local host on behalf of the holder of a session. */
  askForHolder(session: Session, name: HookName, payload: Readonly<Record<string, unknown>>): Question;
}
