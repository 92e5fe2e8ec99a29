/** The server, as the contexts of its calls share it. */

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
import type { AskedHost } from "./call.ts";
import type { PendingEvent } from "./events.ts";

/** The receiver of reports from running calls. */
export interface CallSink extends HostFacts {
  readonly hasCapacity: boolean;
  /** Reports the progress of a command at once; not called while the host is behind. */
  progress(token: string | number, done: number, total: number, more?: object): void;
  flush(): void;
}

export interface Caller {
  readonly workspace: Workspace;
  readonly server: ServerFacts;
  readonly hooks: AskedHost;
  readonly sink: CallSink;
  readonly settings: ClientSettings;
  /** Returns the clients of a session. */
  clientsOf(session: Session): readonly PresentClient[];
  /** Runs an operation that replaces a session's files while the session has no other client. Throws session_locked. */
  alone<T>(session: Session, doing: string, run: () => T): T;
  /** Makes another session the current one, and adds the events about that to `events`. */
  replace(next: Session, replacement: Replacement, events: PendingEvent[]): Promise<void>;
  /** Sends the event of the session at start, if it is not out yet. */
  start(): void;
  introduce(introduction: Introduction): void;
  /** Ends the work: no new call runs. Returns false if it was ending already. */
  shutDown(how?: { atOnce: boolean }): boolean;
}
