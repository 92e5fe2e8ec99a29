/** What the server says on its own: events, numbered and filtered as the host wishes. */

import type { Session } from "../core/session.ts";
import type { EventName, EventPayload } from "../handlers/events.ts";
import type { Dialect, Pieces } from "./dialect.ts";

/** An event as it stands at the moment it happened; its number comes when it is sent. */
export interface ToldEvent {
  readonly name: EventName;
  readonly sessionId: string;
  readonly leafId: string | null;
  readonly payload: Readonly<Record<string, unknown>>;
}

export function eventOf<N extends EventName>(session: Session, name: N, payload: EventPayload<N>): ToldEvent {
  return { name, sessionId: session.id, leafId: session.leafId, payload };
}

export class Host {
  private seq = 0;
  private wanted: ReadonlySet<string> | "all";

  constructor(wanted: readonly string[] | "all") {
    this.wanted = wanted === "all" ? "all" : new Set(wanted);
  }

  /** Only these events from now on. */
  want(names: readonly string[]): void {
    this.wanted = new Set(names);
  }

  /** The message of an event, or undefined when the host does not want it. */
  message(dialect: Dialect, event: ToldEvent): Pieces | undefined {
    if (this.wanted !== "all" && !this.wanted.has(event.name)) return undefined;
    const { sessionId, leafId } = event;
    return dialect.event(event.name, { sessionId, leafId, seq: ++this.seq, ...event.payload });
  }
}
