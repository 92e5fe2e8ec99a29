/** Sharing sessions between processes: whoever has the lock lets the others join. */

import type { Duplex } from "node:stream";
import type { Attachments } from "../../core/ports/attach.ts";
import type { Session } from "../../core/session/session.ts";
import type { Call } from "../connection/call.ts";
import type { Hooks } from "../connection/hooks.ts";
import type { PendingEvent } from "../connection/host.ts";
import { Attaching } from "./attaching.ts";
import type { Attachment } from "./attachment.ts";
import type { GuestHost } from "./guest.ts";
import { Hosting } from "./hosting.ts";
import { isDoneByHolder } from "./words.ts";

export interface SharingOptions {
  readonly attachments: Attachments<Duplex>;
  /** The name that we give ourselves. */
  readonly client: string;
  /** The event that an acknowledged change survives. */
  readonly durability: "sync" | "os";
}

/** The dispatcher, as sharing needs it. */
export interface SharingHost extends GuestHost {
  readonly hooks: Pick<Hooks, "has" | "ask">;
  /** Whether our host can be told of events: how it speaks is known. */
  readonly canTell: boolean;
  /** Sends events that the holder of a session told of, in their place among its answers. */
  passOn(session: Session, events: PendingEvent[]): void;
  /** Counts events that the holder of a session has given up telling. */
  missed(session: Session, count: number): void;
}

export class Sharing {
  readonly hosting: Hosting;
  readonly attaching: Attaching;
  private readonly host: SharingHost;
  private isPlanned = false;
  private isClosed = false;

  constructor({ attachments, client, durability }: SharingOptions, host: SharingHost) {
    const keys = host.workspace.env.sessionId();
    let keyed = 0;
    this.host = host;
    this.hosting = new Hosting({ attachments, durability, host });
    this.attaching = new Attaching({
      client,
      durability,
      hooks: host.hooks,
      newKey: () => `${keys}-${++keyed}`,
      find: ({ file }) => (file === null ? null : attachments.find(file)),
      passOn: (session, events) => host.passOn(session, events),
      missed: (session, count) => host.missed(session, count),
      tookOver: (session) => {
        this.sweep();
        return this.hosting.epochOf(session);
      },
    });
  }

  /** Follows what is open and held soon, once the replies of this turn are out. */
  plan(): void {
    if (this.isPlanned) return;
    this.isPlanned = true;
    setImmediate(() => {
      this.isPlanned = false;
      this.sweep();
    });
  }

  /** Opens entrances to the sessions that we hold, joins those that others hold, and leaves what is not open any more. */
  sweep(): void {
    // The work of a call that was answered last may be planned still.
    if (this.isClosed) return;
    const { sessions } = this.host.workspace;
    this.hosting.sweep();
    this.attaching.sweep(sessions);
    if (!this.host.canTell) return;
    // Asking who has a lock reads the list of all sockets.
    for (const session of sessions)
      if (!this.attaching.of(session) && session.log.lockedBy !== null) void this.attaching.join(session, false);
  }

  /** Returns the attachment by which a call on a session is passed on; undefined when it is run here. */
  ofCall({ command, params, fault, peer, target }: Call, session: Session | null): Attachment | undefined {
    if (peer || fault !== undefined || target === null || !isDoneByHolder(command, params)) return undefined;
    return this.attaching.of(session);
  }

  close(): void {
    this.isClosed = true;
    this.hosting.close();
    this.attaching.close();
  }
}
