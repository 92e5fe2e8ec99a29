/** The holder's side: lets other processes join the sessions that this one has the lock of. */

import type { Duplex } from "node:stream";
import { ATTACH_PROTOCOL, type Attachments, type Entrance, isToken } from "../../core/ports/attach.ts";
import type { Log } from "../../core/ports/store.ts";
import type { Session } from "../../core/session/session.ts";
import type { Call } from "../connection/call.ts";
import type { PendingEvent } from "../connection/host.ts";
import { isShared, ofPeer } from "../connection/peer-events.ts";
import { Guest, type GuestHost } from "./guest.ts";
import { Pipe, type PipeMessage } from "./pipe.ts";

/** Milliseconds in which whoever connects must say what it wants. */
const FIRST_WORD = 5000;

/** An open entrance, with the log whose lock it stands for. */
interface Open {
  readonly entrance: Entrance;
  log: Log;
}

export interface HostingOptions {
  readonly attachments: Attachments<Duplex>;
  readonly host: GuestHost;
  readonly durability: "sync" | "os";
}

export class Hosting {
  private readonly options: HostingOptions;
  private readonly entrances = new Map<Session, Open>();
  private readonly joined = new Map<Session, Set<Guest>>();
  private isEnding = false;

  constructor(options: HostingOptions) {
    this.options = options;
  }

  /** Opens an entrance for each session that we hold, and closes those of the others. */
  sweep(): void {
    const { sessions } = this.options.host.workspace;
    for (const [session, open] of this.entrances) {
      if (sessions.includes(session) && isHeld(session)) {
        // A session that was repaired or moved goes on in another file, and those who joined go on with it.
        if (session.log !== open.log) open.entrance.moved(session.file as string);
        open.log = session.log;
        continue;
      }
      this.entrances.delete(session);
      open.entrance.close();
      this.dismiss(session);
    }
    for (const session of sessions) if (isHeld(session) && !this.entrances.has(session)) this.open(session);
  }

  private open(session: Session): void {
    const { attachments } = this.options;
    const { log } = session;
    try {
      // Who joins must be able to read everything that he is not told of.
      log.settle?.();
    } catch {
      // The next commit meets the same obstacle and reports it; until then nobody can join.
      return;
    }
    const entrance = attachments.open(session.file as string, (stream) => this.enter(session, entrance, stream));
    if (entrance) this.entrances.set(session, { entrance, log });
  }

  private enter(session: Session, entrance: Entrance | null, stream: Duplex): void {
    let guest: Guest | undefined;
    const pipe = new Pipe(
      stream,
      (message) => {
        clearTimeout(late);
        // Whoever holds the session next is asked again.
        if (this.isEnding) return;
        if (guest) return guest.receive(message);
        const refused = this.refusal(session, entrance, message);
        if (refused === undefined) guest = this.admit(session, entrance as Entrance, pipe, message);
        else {
          pipe.send(JSON.stringify({ refused }));
          pipe.close();
        }
      },
      () => {
        clearTimeout(late);
        if (guest) this.leave(guest);
      },
      // What came together becomes durable together.
      () => this.options.host.commitPending(),
    );
    const late = setTimeout(() => pipe.drop(), FIRST_WORD).unref();
  }

  /** Returns why somebody may not join; undefined if he may. */
  private refusal(session: Session, entrance: Entrance | null, { value }: PipeMessage): string | undefined {
    const { attach } = value;
    const wish = typeof attach === "object" && attach !== null ? (attach as Readonly<Record<string, unknown>>) : {};
    if (!entrance || !isToken(wish.token, entrance.announcement)) return "The token is not that of the announcement.";
    if (wish.protocol !== ATTACH_PROTOCOL) return `The holder speaks version ${ATTACH_PROTOCOL} of the protocol.`;
    if (wish.sessionId !== session.id || !this.entrances.has(session)) return "The holder has another session here.";
    if (wish.durability === "sync" && this.options.durability !== "sync")
      return "The holder does not wait for the medium (--durability os).";
    return undefined;
  }

  private admit(session: Session, { announcement }: Entrance, pipe: Pipe, { value }: PipeMessage): Guest {
    const { hooks } = value.attach as { hooks?: unknown };
    const guest = new Guest(this.options.host, pipe, session, Array.isArray(hooks) ? hooks.map(String) : []);
    const guests = this.joined.get(session) ?? new Set();
    this.joined.set(session, guests.add(guest));
    const { epoch, client, pid } = announcement;
    guest.welcome({ epoch, client, pid }, this.options.host.lastTold(session));
    return guest;
  }

  private leave(guest: Guest): void {
    guest.gone();
    const guests = this.joined.get(guest.session);
    guests?.delete(guest);
    if (guests?.size === 0) this.joined.delete(guest.session);
  }

  private dismiss(session: Session): void {
    const guests = this.joined.get(session) ?? [];
    this.joined.delete(session);
    for (const guest of guests) guest.close();
  }

  /** Returns the number of this holder of a session; undefined when nobody can join it. */
  epochOf(session: Session): number | undefined {
    return this.entrances.get(session)?.entrance.announcement.epoch;
  }

  /** Whether other processes have joined any session. */
  get isShared(): boolean {
    return this.joined.size > 0;
  }

  /** Whether other processes have joined a session. */
  hasGuests(session: Session | null): boolean {
    return session !== null && this.joined.has(session);
  }

  /** Tells those who joined of an event that `by` caused; our own host is `undefined`. */
  tell(event: PendingEvent, by: Call | undefined): void {
    if (this.joined.size === 0 || !isShared(event)) return;
    for (const [session, guests] of this.joined)
      if (session.id === event.sessionId)
        for (const guest of guests) {
          if (by?.peer === guest) guest.event(event, by);
          else guest.event(ofPeer(event));
        }
  }

  /** Takes nothing in any more, because this process is about to end. */
  stop(): void {
    this.isEnding = true;
  }

  close(): void {
    for (const { entrance } of this.entrances.values()) entrance.close();
    this.entrances.clear();
    for (const session of [...this.joined.keys()]) this.dismiss(session);
  }
}

function isHeld(session: Session): boolean {
  const { log } = session;
  return log.lockKind !== null && log.lockKind !== undefined && session.file !== null;
}
