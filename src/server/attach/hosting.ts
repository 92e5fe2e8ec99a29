/** The holder's side: lets other processes join the sessions that this one has the lock of. */

import type { Duplex } from "node:stream";
import { Failure } from "../../core/failure.ts";
import {
  ATTACH_PROTOCOL,
  type Attachments,
  type Entrance,
  isToken,
  type SharedClient,
  sharedClientOf,
} from "../../core/ports/attach.ts";
import { timestamp } from "../../core/ports/env.ts";
import type { Log } from "../../core/ports/store.ts";
import type { Session } from "../../core/session/session.ts";
import type { Call } from "../connection/call.ts";
import type { PendingEvent } from "../connection/host.ts";
import { isShared, ofPeer } from "../connection/peer-events.ts";
import { Guest, type GuestHost, type GuestRoom } from "./guest.ts";
import { Pipe, type PipeMessage } from "./pipe.ts";
import { isSame, joining, leaving, type OwnPresence, type PresenceEvent } from "./presence.ts";

/** Milliseconds in which whoever connects must say what it wants. */
const FIRST_WORD = 5000;
/** Milliseconds in which those who shared a session with a holder that is gone come to the next one. */
const RETURN_WITHIN = 3000;

/** An open entrance, with the log whose lock it stands for. */
interface Open {
  readonly entrance: Entrance;
  log: Log;
}

interface HostingOptions {
  readonly attachments: Attachments<Duplex>;
  readonly host: HostingHost;
  readonly durability: "sync" | "os";
  readonly presence: OwnPresence;
  /** Milliseconds without a word after which a guest that is asked counts as stopped. */
  readonly answersWithin: number;
}

/** The dispatcher, as the holder's side needs it. */
export interface HostingHost extends GuestHost {
  /** Tells our own host of clients that came or went. */
  tellPresence(session: Session, events: readonly PresenceEvent[]): void;
}

/** Clients that shared a session with the holder before this one, and are not here yet. */
interface Awaited {
  readonly clients: Map<string, SharedClient>;
  readonly late: NodeJS.Timeout;
}

export class Hosting implements GuestRoom {
  private readonly options: HostingOptions;
  private readonly entrances = new Map<Session, Open>();
  private readonly joined = new Map<Session, Set<Guest>>();
  private readonly awaited = new Map<Session, Awaited>();
  /** Sessions that nobody may join now. */
  private readonly closed = new Set<Session>();
  private isEnding = false;

  constructor(options: HostingOptions) {
    this.options = options;
  }

  get answersWithin(): number {
    return this.options.answersWithin;
  }

  /** Opens an entrance for each of these sessions that we hold, and closes those of the others among them. */
  sweep(sessions: Iterable<Session>): void {
    for (const session of sessions) this.sweepOne(session);
    // Those who shared what was let go of meanwhile find out who has it now.
    for (const session of this.shared) if (!this.entrances.has(session)) this.dismiss(session);
  }

  /** Does the same for all sessions. */
  sweepAll(): void {
    const { sessions } = this.options.host.workspace;
    this.sweep(new Set([...this.entrances.keys(), ...sessions]));
  }

  private sweepOne(session: Session): void {
    const open = this.entrances.get(session);
    const isOpen = this.options.host.workspace.isOpen(session);
    if (open && (!isOpen || !isHeld(session))) this.abandon(session, open);
    // A session that was repaired or moved goes on in another file, and those who joined go on with it.
    else if (open && session.log !== open.log) {
      open.entrance.moved(session.file as string);
      open.log = session.log;
      this.leaveInTime(session, open);
    }
    if (!isOpen) return;
    this.options.presence.note(session);
    if (isHeld(session) && !this.entrances.has(session)) this.open(session);
  }

  /** Sessions that others have joined, or are expected to. */
  private get shared(): ReadonlySet<Session> {
    return new Set([...this.joined.keys(), ...this.awaited.keys()]);
  }

  /** Makes sure that those who want to join find the entrances to these sessions. */
  renew(sessions: Iterable<Session>): void {
    for (const session of sessions) this.entrances.get(session)?.entrance.renew();
  }

  /** Has an entrance closed before the lock is released: then others may announce themselves in its place. */
  private leaveInTime(session: Session, { entrance, log }: Open): void {
    log.beforeRelease?.(() => {
      this.entrances.delete(session);
      entrance.close();
    });
  }

  /** Forgets an entrance to a session whose lock we do not have, or cannot tell of any more. */
  private abandon(session: Session, { entrance, log }: Open): void {
    this.entrances.delete(session);
    log.beforeRelease?.(undefined);
    entrance.abandon();
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
        // Whoever holds the session next is asked again.
        if (this.isEnding) return guest ? guest.receiveAtEnd(message) : pipe.drop();
        if (guest) return guest.receive(message);
        // Who knows only files that are being replaced, or were, or a holder that let go of them, comes again.
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
      // What came together becomes durable together.
      () => this.options.host.commitPending(),
    );
    const late = setTimeout(() => pipe.drop(), FIRST_WORD).unref();
  }

  /** Returns why somebody may not join; undefined if he may. */
  private refusal(session: Session, entrance: Entrance, { value }: PipeMessage): string | undefined {
    const { attach } = value;
    const wish = typeof attach === "object" && attach !== null ? (attach as Readonly<Record<string, unknown>>) : {};
    if (!isToken(wish.token, entrance.announcement)) return "The token is not that of the announcement.";
    if (wish.protocol !== ATTACH_PROTOCOL) return `The holder speaks version ${ATTACH_PROTOCOL} of the protocol.`;
    if (wish.sessionId !== session.id) return "The holder has another session here.";
    if (wish.durability === "sync" && this.options.durability !== "sync")
      return "The holder does not wait for the medium (--durability os).";
    return undefined;
  }

  private admit(session: Session, { announcement }: Entrance, pipe: Pipe, { value }: PipeMessage): Guest {
    const { hooks, self, stand } = value.attach as { hooks?: unknown; self?: unknown; stand?: unknown };
    const { host, presence } = this.options;
    const guest = new Guest(
      { host, room: this, pipe },
      { session, client: this.clientFrom(self, session), hooks: Array.isArray(hooks) ? hooks.map(String) : [] },
    );
    pipe.trust();
    guest.stand(stand);
    const guests = this.joined.get(session) ?? new Set();
    this.joined.set(session, guests.add(guest));
    const isBack = this.takeAwaited(session, guest.client.id);
    const { epoch, client, pid } = announcement;
    guest.welcome({ epoch, client, pid }, presence.on(session).id, host.lastTold(session));
    if (!isBack) this.tellPresence(session, joining(guest.client));
    return guest;
  }

  private leave(guest: Guest): void {
    guest.gone();
    const { session } = guest;
    const guests = this.joined.get(session);
    if (!guests?.delete(guest)) return;
    if (guests.size === 0) this.joined.delete(session);
    this.tellPresence(session, leaving(guest.client, guest.hasLeft ? "left" : "died"));
  }

  private dismiss(session: Session): void {
    const guests = this.joined.get(session) ?? [];
    this.joined.delete(session);
    this.forgetAwaited(session);
    for (const guest of guests) guest.close();
  }

  /**
   * Runs what puts other files in the place of a session's. Those who share it read the old ones, so that nobody may
   * share it, or come meanwhile: whoever does tries again. Throws session_locked.
   */
  alone<T>(session: Session, doing: string, run: () => T): T {
    const others = this.clientsOf(session).slice(1);
    if (others.length > 0) throw sharedBy(others, doing);
    this.closed.add(session);
    const open = (): void => {
      // Those who come now find the new files.
      this.sweepAll();
      this.closed.delete(session);
    };
    let result: T;
    try {
      result = run();
    } catch (error) {
      open();
      throw error;
    }
    if (result instanceof Promise) return result.finally(open) as T;
    open();
    return result;
  }

  // --- who is there --------------------------------------------------------------------------------------------

  /** Returns the clients of a session that we hold or could hold: our own host, and those who joined. */
  clientsOf(session: Session): readonly SharedClient[] {
    const guests = [...(this.joined.get(session) ?? [])].map(({ client }) => client);
    return [this.options.presence.on(session), ...guests, ...(this.awaited.get(session)?.clients.values() ?? [])];
  }

  /** Returns the client that somebody says he is, with an id that no other has. */
  private clientFrom(self: unknown, session: Session): SharedClient {
    const { env } = this.options.host.workspace;
    const said = sharedClientOf(self) ?? { id: env.sessionId(), name: null, pid: 0 };
    const guests = [...(this.joined.get(session) ?? [])];
    const isTaken =
      said.id === this.options.presence.on(session).id || guests.some(({ client }) => client.id === said.id);
    return { ...said, id: isTaken ? env.sessionId() : said.id, since: said.since ?? timestamp(env) };
  }

  introduce(guest: Guest, self: unknown): void {
    const { id, since } = guest.client;
    const said = sharedClientOf({ ...(self as object), id, since });
    if (!said || isSame(said, guest.client) || !this.joined.get(guest.session)?.has(guest)) return;
    guest.client = said;
    this.tellPresence(guest.session, joining(said));
  }

  /** Tells those who joined what our own host calls itself now. */
  introduceSelf(): void {
    for (const session of this.joined.keys()) this.tellGuests(session, joining(this.options.presence.on(session)));
  }

  /** Waits for those who shared a session that another process held until now. */
  await(session: Session, clients: readonly SharedClient[]): void {
    this.forgetAwaited(session);
    if (!this.entrances.has(session)) {
      // Nobody can come back.
      for (const client of clients) this.tellPresence(session, leaving(client, "left"));
      return;
    }
    if (clients.length === 0) return;
    const late = setTimeout(() => {
      this.awaited.delete(session);
      for (const client of awaited.clients.values()) this.tellPresence(session, leaving(client, "died"));
    }, RETURN_WITHIN).unref();
    const awaited = { clients: new Map(clients.map((client) => [client.id, client])), late };
    this.awaited.set(session, awaited);
  }

  private takeAwaited(session: Session, id: string): boolean {
    const awaited = this.awaited.get(session);
    const isBack = awaited?.clients.delete(id) ?? false;
    if (awaited?.clients.size === 0) this.forgetAwaited(session);
    return isBack;
  }

  private forgetAwaited(session: Session): void {
    clearTimeout(this.awaited.get(session)?.late);
    this.awaited.delete(session);
  }

  private tellPresence(session: Session, event: PresenceEvent): void {
    this.tellGuests(session, event);
    this.options.host.tellPresence(session, [event]);
  }

  private tellGuests(session: Session, event: PresenceEvent): void {
    for (const guest of this.guestsOf(session)) if (guest.client.id !== event.payload.client.id) guest.presence(event);
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

  /** Returns those who joined a session, in the order in which they came. */
  guestsOf(session: Session): readonly Guest[] {
    return [...(this.joined.get(session) ?? [])];
  }

  /**
   * Tells those who joined of an event that `by` caused; our own host is `undefined`. `of`: the session in whose order it
   * is told. Where that has the event's id, another one with the same id has nothing to do with it.
   */
  tell(of: Session | null, event: PendingEvent, by: Call | undefined): void {
    if (this.joined.size === 0 || !isShared(event)) return;
    for (const [session, guests] of this.joined) {
      if (session.id !== event.sessionId || (of?.id === session.id && of !== session)) continue;
      const cause = by && (by.peer?.client ?? this.options.presence.on(session));
      for (const guest of guests) {
        if (by?.peer === guest) guest.event(event, by);
        else guest.event(ofPeer(event, cause));
      }
    }
  }

  /** Takes nothing in any more, because this process is about to end. */
  stop(): void {
    this.isEnding = true;
  }

  close(): void {
    for (const [session, open] of this.entrances) {
      if (isHeld(session)) open.entrance.close();
      this.abandon(session, open);
    }
    for (const session of this.shared) this.dismiss(session);
  }
}

function sharedBy(others: readonly SharedClient[], doing: string): Failure {
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

/** Returns whether this process has the lock of a session. */
export function isHeld(session: Session): boolean {
  const { log } = session;
  return log.lockKind !== null && log.lockKind !== undefined && session.file !== null;
}
