/** Whoever calls: our own host, or a process that joined one of our sessions. */

import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import type {
  ClientSettings,
  HostFacts,
  Introduction,
  PresentClient,
  ServerFacts,
} from "../../handlers/shared/command.ts";
import type { Replacement } from "../../handlers/shared/events.ts";
import type { Peer } from "./call.ts";
import type { Hooks } from "./hooks.ts";
import type { PendingEvent } from "./host.ts";

/** The receiver of what a call says while it runs. */
export interface CallSink extends HostFacts {
  readonly hasRoom: boolean;
  /** Reports at once how far a command is; not called while the host does not keep up. */
  progress(token: string | number, done: number, total: number, more?: object): void;
  flush(): void;
}

/** Whoever calls, as the contexts of its calls share it. */
export interface Caller {
  readonly workspace: Workspace;
  readonly server: ServerFacts;
  readonly hooks: Pick<Hooks, "has" | "ask">;
  readonly sink: CallSink;
  readonly settings: ClientSettings;
  /** Returns the clients of a session. */
  clientsOf(session: Session): readonly PresentClient[];
  /** Runs what replaces a session's files while nobody shares it. Throws session_locked. */
  alone<T>(session: Session, doing: string, run: () => T): T;
  /** Makes another session the current one, and adds the events about that to `events`. */
  replace(next: Session, replacement: Replacement, events: PendingEvent[]): Promise<void>;
  /** Sends the event of the session at start, if it is not out yet. */
  start(): void;
  introduce(wishes: Introduction): void;
  /** Ends the work: nothing new is run. Returns whether it was not ending before. */
  shutDown(how?: { atOnce: boolean }): boolean;
}

/** A process that joined one of our sessions, as its calls see it. */
export type CallingPeer = Peer & Caller;
