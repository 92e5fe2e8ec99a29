/** Lets other processes join the sessions whose lock this process has. */

import type { Duplex } from "node:stream";
import { Failure } from "../../core/failure.ts";
import { type SharedClient, toSharedClient } from "../../core/ports/attach.ts";
import { makeTimestamp } from "../../core/ports/env.ts";
import type { Log } from "../../core/ports/store.ts";
import { runThen } from "../../core/run-then.ts";
import type { Session } from "../../core/session/session.ts";
import type { Call } from "../../server/connection/call.ts";
import { makeEvent, type PendingEvent } from "../../server/connection/events.ts";
import { isSharedEvent, toPeerEvent } from "../../server/connection/peer-events.ts";
import type { SharingServer } from "../../server/dispatch/sharing.ts";
import { ATTACH_PROTOCOL, type Attachments, type Entrance, isToken } from "./announcing.ts";
import { Guest, type GuestRegistry } from "./guest.ts";
import { Pipe, type PipeMessage } from "./pipe.ts";
import { isSameClient, makeJoinEvent, makeLeaveEvent, type PresenceEvent } from "./reported-clients.ts";

/** Milliseconds for a new connection to send its first message. */
const FIRST_WORD = 5000;
/** Milliseconds for clients of a former holder to join the next one. */
const RETURN_WITHIN = 3000;

/** An open entrance, with the log whose lock it represents. */
interface OpenEntrance {
  readonly entrance: Entrance;
  log: Log;
}

export interface HostingOptions {
  readonly attachments: Attachments;
  readonly server: SharingServer;
  readonly durability: "sync" | "os";
  /** Milliseconds of silence after which a process counts as stopped: a guest with an open question, or a holder. */
  readonly answersWithin: number;
}

/** Clients of the previous holder that have not joined this one yet. */
interface Awaited {
  readonly clients: Map<string, SharedClient>;
  readonly late: NodeJS.Timeout;
  /** Resolves when all are back, or are not awaited any more. */
  readonly back: Promise<void>;
  end(): void;
}

export class Hosting implements GuestRegistry {
  private readonly options: HostingOptions;
  private readonly entrances = new Map<Session, OpenEntrance>();
  private readonly joined = new Map<Session, Set<Guest>>();
  private readonly awaited = new Map<Session, Awaited>();
  /** Sessions that are closed to new guests. */
  private readonly closed = new Set<Session>();
  isEnding = false;

  constructor(options: HostingOptions) {
    this.options = options;
  }

  get answersWithin(): number {
    return this.options.answersWithin;
  }

  /** Opens an entrance for each given session that this process holds, and closes those of the other given sessions. */
  sweep(sessions: Iterable<Session>): void {
    for (const session of sessions) this.sweepOne(session);
    // Guests of released sessions find the new holder themselves.
    for (const session of this.shared) if (!this.entrances.has(session)) this.dismiss(session);
  }

  /** Does the same for all sessions. */
  sweepAll(): void {
    const { sessions } = this.options.server.workspace;
    this.sweep(new Set([...this.entrances.keys(), ...sessions]));
  }

  private sweepOne(session: Session): void {
    const open = this.entrances.get(session);
    const isOpen = this.options.server.workspace.isOpen(session);
    if (open && (!isOpen || !session.hasLock)) this.abandon(session, open);
    // A repaired or moved session continues in another file, together with its guests.
    else if (open && session.log !== open.log) {
      open.entrance.moved(session.file as string);
      open.log = session.log;
      this.leaveInTime(session, open);
    }
    if (!isOpen) return;
    this.options.server.presence.note(session);
    if (session.hasLock && !this.entrances.has(session)) this.open(session);
  }

  /** Sessions with guests or awaited clients. */
  private get shared(): ReadonlySet<Session> {
    return new Set([...this.joined.keys(), ...this.awaited.keys()]);
  }

  /** Makes sure that joining processes find the entrances to these sessions. */
  renew(sessions: Iterable<Session>): void {
    for (const session of sessions) this.entrances.get(session)?.entrance.renew();
  }

  /** Closes an entrance before its lock is released: another process may announce itself from then on. */
  private leaveInTime(session: Session, { entrance, log }: OpenEntrance): void {
    log.lock.beforeRelease(() => {
      this.entrances.delete(session);
      entrance.close();
    });
  }

  /** Drops an entrance to a session whose lock this process lacks or can no longer confirm. */
  private abandon(session: Session, { entrance, log }: OpenEntrance): void {
    this.entrances.delete(session);
    log.lock.beforeRelease(undefined);
    entrance.abandon();
  }

  private open(session: Session): void {
    const { attachments } = this.options;
    const { log } = session;
    try {
      // A guest must be able to read every entry that is not sent to it.
      log.settle();
    } catch {
      // The next commit meets the same obstacle and reports it; until then no process can join.
      return;
    }
    const entrance = attachments.open(session.file as string, (stream) => this.enter(session, entrance, stream));
    if (!entrance) return;
    const open = { entrance, log };
    this.entrances.set(session, open);
    this.leaveInTime(session, open);
  }

  private enter(session: Session, entrance: Entrance | null, stream: Duplex): void {
    let guest: Guest | undefined;
    const { log } = session;
    const pipe = new Pipe(
      stream,
      (message) => {
        clearTimeout(late);
        // The guest sends everything else to the next holder.
        if (this.isEnding) return guest ? guest.receiveAtEnd(message) : pipe.drop();
        if (guest) return guest.receive(message);
        // A process that found replaced files or a former holder connects again.
        const isOpen = entrance !== null && this.entrances.get(session)?.entrance === entrance;
        if (this.closed.has(session) || session.log !== log || !isOpen) return pipe.drop();
        const refused = this.refusal(session, entrance, message);
        if (refused === undefined) guest = this.admit(session, entrance, pipe, message);
        else {
          pipe.send(JSON.stringify({ refused }));
          pipe.close();
        }
      },
      () => {
        clearTimeout(late);
        if (guest) this.leave(guest);
      },
      // Calls that arrived together become durable together.
      () => this.options.server.commitPending(),
    );
    const late = setTimeout(() => pipe.drop(), FIRST_WORD).unref();
  }

  /** Returns the reason against admitting a process; undefined if it may join. */
  private refusal(session: Session, entrance: Entrance, { value }: PipeMessage): string | undefined {
    const { attach } = value;
    const request = typeof attach === "object" && attach !== null ? (attach as Readonly<Record<string, unknown>>) : {};
    if (!isToken(request.token, entrance.announcement)) return "The token is not that of the announcement.";
    if (request.protocol !== ATTACH_PROTOCOL) return `The holder speaks version ${ATTACH_PROTOCOL} of the protocol.`;
    if (request.sessionId !== session.id) return "The holder has another session here.";
    if (request.durability === "sync" && this.options.durability !== "sync")
      return "The holder does not wait for the medium (--durability os).";
    return undefined;
  }

  private admit(session: Session, { announcement }: Entrance, pipe: Pipe, { value }: PipeMessage): Guest {
    const { hooks, self, stand } = value.attach as { hooks?: unknown; self?: unknown; stand?: unknown };
    const { server } = this.options;
    const guest = new Guest(
      { holder: server, registry: this, pipe },
      { session, client: this.clientFrom(self, session), hooks: Array.isArray(hooks) ? hooks.map(String) : [] },
    );
    pipe.trust();
    guest.setHead(stand);
    const guests = this.joined.get(session) ?? new Set();
    this.joined.set(session, guests.add(guest));
    const isBack = this.takeAwaited(session, guest.client.id);
    const { epoch, client, pid } = announcement;
    guest.welcome({ epoch, client, pid }, server.presence.on(session).id, server.lastReported(session));
    if (!isBack) this.reportPresence(session, makeJoinEvent(guest.client));
    return guest;
  }

  private leave(guest: Guest): void {
    guest.markGone();
    const { session } = guest;
    const guests = this.joined.get(session);
    if (!guests?.delete(guest)) return;
    if (guests.size === 0) this.joined.delete(session);
    this.reportPresence(session, makeLeaveEvent(guest.client, guest.hasLeft ? "left" : "died"));
  }

  private dismiss(session: Session): void {
    const guests = this.joined.get(session) ?? [];
    this.joined.delete(session);
    this.forgetAwaited(session);
    for (const guest of guests) guest.close();
  }

  /**
   * Runs an operation that replaces a session's files. Other clients read the old ones, so the session must have none,
   * and new ones are dropped until the end and connect again. Throws session_locked.
   */
  alone<T>(session: Session, doing: string, run: () => T): T {
    const others = this.clientsOf(session).slice(1);
    if (others.length > 0) throw createSharedFailure(others, doing);
    this.closed.add(session);
    return runThen(run, () => {
      // From here on, new guests find the new files.
      this.sweepAll();
      this.closed.delete(session);
    });
  }

  // --- clients -------------------------------------------------------------------------------------------------

  /** Returns the clients of a session that this process holds or could hold: the local host, then the guests. */
  clientsOf(session: Session): readonly SharedClient[] {
    const guests = [...(this.joined.get(session) ?? [])].map(({ client }) => client);
    return [
      this.options.server.presence.on(session),
      ...guests,
      ...(this.awaited.get(session)?.clients.values() ?? []),
    ];
  }

  /** Returns the client that a guest describes, with an id that is not in use. */
  private clientFrom(self: unknown, session: Session): SharedClient {
    const { env } = this.options.server.workspace;
    const said = toSharedClient(self) ?? { id: env.sessionId(), name: null, pid: 0 };
    const guests = [...(this.joined.get(session) ?? [])];
    const isTaken =
      said.id === this.options.server.presence.on(session).id || guests.some(({ client }) => client.id === said.id);
    return { ...said, id: isTaken ? env.sessionId() : said.id, since: said.since ?? makeTimestamp(env) };
  }

  introduce(guest: Guest, self: unknown): void {
    const { id, since } = guest.client;
    const said = toSharedClient({ ...(self as object), id, since });
    if (!said || isSameClient(said, guest.client) || !this.joined.get(guest.session)?.has(guest)) return;
    guest.client = said;
    this.reportPresence(guest.session, makeJoinEvent(said));
  }

  /** Sends the guests the local host's present description. */
  introduceSelf(): void {
    for (const session of this.joined.keys())
      this.notifyGuests(session, makeJoinEvent(this.options.server.presence.on(session)));
  }

  /**
   * Lets others join a session that another process held until now, and waits for its other clients. Returns the epoch
   * of this hold; undefined if this process cannot be joined.
   */
  begin(session: Session, others: readonly SharedClient[]): number | undefined {
    this.sweepAll();
    this.await(session, others);
    return this.entrances.get(session)?.entrance.announcement.epoch;
  }

  private await(session: Session, clients: readonly SharedClient[]): void {
    this.forgetAwaited(session);
    if (!this.entrances.has(session)) {
      // Without an entrance they cannot come back.
      for (const client of clients) this.reportPresence(session, makeLeaveEvent(client, "left"));
      return;
    }
    if (clients.length === 0) return;
    const awaited = new Map(clients.map((client) => [client.id, client]));
    const late = setTimeout(() => {
      this.forgetAwaited(session);
      for (const client of awaited.values()) this.reportPresence(session, makeLeaveEvent(client, "died"));
    }, RETURN_WITHIN).unref();
    let end = (): void => {};
    const back = new Promise<void>((resolve) => {
      end = resolve;
    });
    this.awaited.set(session, { clients: awaited, late, back, end });
  }

  /** Resolves when the clients of the former holder are back or left; undefined if none is awaited. */
  whenBack(session: Session | null): Promise<void> | undefined {
    return session === null ? undefined : this.awaited.get(session)?.back;
  }

  private takeAwaited(session: Session, id: string): boolean {
    const awaited = this.awaited.get(session);
    const isBack = awaited?.clients.delete(id) ?? false;
    if (awaited?.clients.size === 0) this.forgetAwaited(session);
    return isBack;
  }

  private forgetAwaited(session: Session): void {
    const { late, end } = this.awaited.get(session) ?? {};
    clearTimeout(late);
    end?.();
    this.awaited.delete(session);
  }

  private reportPresence(session: Session, event: PresenceEvent): void {
    this.notifyGuests(session, event);
    const { workspace } = this.options.server;
    if (!workspace.isOpen(session)) return;
    this.options.server.passOn(session, [makeEvent(session, event.name, event.payload)]);
  }

  private notifyGuests(session: Session, event: PresenceEvent): void {
    for (const guest of this.guestsOf(session)) if (guest.client.id !== event.payload.client.id) guest.presence(event);
  }

  /** Returns whether other processes have joined a session. */
  hasGuests(session: Session | null): boolean {
    return session !== null && this.joined.has(session);
  }

  /** Returns the guests of a session in the order of their arrival. */
  guestsOf(session: Session): readonly Guest[] {
    return [...(this.joined.get(session) ?? [])];
  }

  /**
   * Sends the guests an event that `by` caused, or the local host if that is undefined. `of`: the session in whose
   * order it is sent. If its id is the event's, another session with the same id gets nothing.
   */
  report(of: Session | null, event: PendingEvent, by: Call | undefined): void {
    if (this.joined.size === 0 || !isSharedEvent(event)) return;
    for (const [session, guests] of this.joined) {
      if (session.id !== event.sessionId || (of?.id === session.id && of !== session)) continue;
      const cause = by && (by.peer?.client ?? this.options.server.presence.on(session));
      for (const guest of guests) {
        if (by?.peer === guest) guest.event(event, by);
        else guest.event(toPeerEvent(event, cause));
      }
    }
  }

  /** Accepts no more calls, because this process is about to end. */
  stop(): void {
    this.isEnding = true;
    for (const session of this.shared) this.forgetAwaited(session);
  }

  close(): void {
    for (const [session, open] of this.entrances) {
      if (session.hasLock) open.entrance.close();
      this.abandon(session, open);
    }
    for (const session of this.shared) this.dismiss(session);
  }
}

function createSharedFailure(others: readonly SharedClient[], doing: string): Failure {
  const [first, ...rest] = others.map(({ name, pid }) => `${name ?? "a client"} (process ${pid})`);
  const who =
    rest.length === 0 ? first : rest.length === 1 ? `${first} and ${rest[0]}` : `${first} and ${rest.length} others`;
  const share = rest.length === 0 ? "shares" : "share";
  return new Failure(
    "session_locked",
    `${who} ${share} this session, whose files ${doing} would replace. Close it there and try again.`,
    { clients: others.map(({ id, name, pid }) => ({ id, name, pid })) },
  );
}
