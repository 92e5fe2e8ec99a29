/** Events, which the server sends on its own: numbered, and filtered as the host wishes. */

import { Raw } from "../../core/json/raw.ts";
import type { Session } from "../../core/session/session.ts";
import type { EventName, EventPayload, Replacement } from "../../handlers/shared/events.ts";
import type { ReportedLeaves } from "./call.ts";
import type { Dialect } from "./dialect.ts";
import type { OutgoingMessage } from "./output.ts";

/** An event as of the moment it happened; it gets its number when it is sent. */
export interface PendingEvent extends ReportedLeaves {
  readonly name: EventName;
  readonly sessionId: string;
  readonly payload: Readonly<Record<string, unknown>>;
}

export function makeEvent<N extends EventName>(session: Session, name: N, payload: EventPayload<N>): PendingEvent {
  const said = payload as PendingEvent["payload"];
  return { name, sessionId: session.id, leafId: session.ownLeafId, leaves: session.heads.leaves(), payload: said };
}

/** Returns whether an event reports changes by other programs or damage: any call that finds these reports them. */
export function isFoundEvent({ name, payload }: Pick<PendingEvent, "name" | "payload">): boolean {
  return name === "session_damage" || payload.origin === "foreign";
}

/** Returns the events about the replacement of a session: the old one's, and a function for the new one's. */
export function makeReplacementEvents(
  before: Session | null,
  next: Session,
  { reason, fork }: Replacement,
): readonly [left: PendingEvent[], arrived: () => PendingEvent[]] {
  const left = before ? [makeEvent(before, "session_shutdown", { reason, targetSessionFile: next.file })] : [];
  const arrived = (): PendingEvent[] => {
    const previousSessionFile = before?.file ?? null;
    const start = { reason, sessionFile: next.file, ...(before ? { previousSessionFile } : {}) };
    return [
      ...(fork ? [makeEvent(next, "session_fork", { ...fork, sessionFile: next.file, previousSessionFile })] : []),
      makeEvent(next, "session_start", start),
    ];
  };
  return [left, arrived];
}

export class Host {
  /** The number of the last event that was sent. */
  seq = 0;
  private subscribed: ReadonlySet<string> | "all";

  constructor(wanted: readonly string[] | "all") {
    this.subscribed = wanted === "all" ? "all" : new Set(wanted);
  }

  /** Limits events to these from now on. */
  subscribe(names: readonly string[]): void {
    this.subscribed = new Set(names);
  }

  /** Counts events that are not sent. Returns the numbers that they would have had. */
  skip(count: number): { from: number; to: number } {
    const from = this.seq + 1;
    this.seq += count;
    return { from, to: this.seq };
  }

  /**
   * Returns the message of an event, built by `made`, or undefined if the host does not want it. If stored entries
   * cannot be read, the message has the other members. Throws nothing: the event's cause has happened.
   */
  message(
    dialect: Dialect,
    event: PendingEvent,
    made: (pieces: Iterable<string | Uint8Array>) => OutgoingMessage,
  ): OutgoingMessage | undefined {
    if (this.subscribed !== "all" && !this.subscribed.has(event.name)) return undefined;
    const { sessionId, leafId } = event;
    const seq = this.seq + 1;
    const plain = Object.entries(event.payload).filter(([, value]) => !(value instanceof Raw));
    for (const payload of [event.payload, Object.fromEntries(plain)])
      try {
        const message = made(dialect.event(event.name, { sessionId, leafId, seq, ...payload }));
        this.seq = seq;
        return message;
      } catch {
        // The next try omits stored entries. A command that asks for these reports why they cannot be read.
      }
    return undefined;
  }
}
