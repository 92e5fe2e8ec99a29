/** Who shares a session: our own host as others are told of it, and the others as their holder tells of them. */

import { type SharedClient, sharedClientOf, shownName } from "../../core/ports/attach.ts";
import { type Env, timestamp } from "../../core/ports/env.ts";
import type { Session } from "../../core/session/session.ts";
import type { Introduction } from "../../handlers/shared/command.ts";

/** Clients of one session that are remembered; a holder that tells of more is not believed. */
const MOST_CLIENTS = 10_000;

/** A client that came, named itself, or left. */
export type PresenceEvent =
  | { readonly name: "client_joined"; readonly payload: { readonly client: SharedClient } }
  | { readonly name: "client_left"; readonly payload: { readonly client: SharedClient; readonly reason: LeaveReason } };

type LeaveReason = "left" | "died";

/** Our own host, on each session that it has open. */
export class OwnPresence {
  private readonly env: Env;
  private readonly since = new WeakMap<Session, string>();
  private id: string | undefined;
  private named: { name: string | null; version?: string } = { name: null };

  constructor(env: Env) {
    this.env = env;
  }

  /** Takes the name over that the host gave itself. */
  introduce({ client }: Introduction): void {
    const version = shownName(client?.version);
    if (client) this.named = { name: shownName(client.name), ...(version === null ? {} : { version }) };
  }

  /** Notes the time from which on a session can be shared. */
  note(session: Session): void {
    if (!this.since.has(session)) this.since.set(session, timestamp(this.env));
  }

  on(session: Session): SharedClient {
    this.id ??= this.env.sessionId();
    const since = this.since.get(session);
    return { id: this.id, ...this.named, pid: process.pid, ...(since === undefined ? {} : { since }) };
  }
}

/** The clients of a session that another process holds, as that tells of them. It may tell lies, but not grow us. */
export class ToldClients {
  private readonly known = new Map<string, SharedClient>();
  /** The ids of ourselves and of the holder. */
  selfId = "";
  holderId = "";

  get others(): readonly SharedClient[] {
    return [...this.known.values()].filter(({ id }) => id !== this.selfId);
  }

  get holder(): SharedClient | undefined {
    return this.known.get(this.holderId);
  }

  /** Takes the holder's list over. Returns what has changed since it was told last. */
  renew(given: unknown, isFirst = false): PresenceEvent[] {
    const list = Array.isArray(given) ? given.slice(0, MOST_CLIENTS).map(sharedClientOf) : [];
    const next = new Map(list.flatMap((client) => (client ? [[client.id, client]] : [])));
    const events: PresenceEvent[] = [];
    for (const client of this.known.values()) if (!next.has(client.id)) events.push(leaving(client, "died"));
    for (const client of next.values()) if (!isSame(client, this.known.get(client.id))) events.push(joining(client));
    this.known.clear();
    for (const [id, client] of next) this.known.set(id, client);
    return isFirst ? [] : events.filter(({ payload }) => payload.client.id !== this.selfId);
  }

  /** Takes one event of the holder over. Returns it, if it is news for our host. */
  take(name: unknown, payload: unknown): PresenceEvent | undefined {
    const { client: given, reason } = (payload ?? {}) as { client?: unknown; reason?: unknown };
    const client = sharedClientOf(given);
    if (!client) return undefined;
    const before = this.known.get(client.id);
    if (name === "client_left") {
      if (!this.known.delete(client.id) || client.id === this.selfId) return undefined;
      return leaving(before as SharedClient, reason === "left" ? "left" : "died");
    }
    if (isSame(client, before) || (this.known.size >= MOST_CLIENTS && !before)) return undefined;
    this.known.set(client.id, client);
    return client.id === this.selfId ? undefined : joining(client);
  }

  /** Notes that nobody is shared with any more. Returns the events about that. */
  clear(): PresenceEvent[] {
    const events = this.others.map((client) => leaving(client, "left"));
    this.known.clear();
    return events;
  }

  /** Notes that the holder is gone. Returns the event about that, if it was known. */
  withoutHolder(reason: LeaveReason): PresenceEvent[] {
    const holder = this.known.get(this.holderId);
    this.known.delete(this.holderId);
    this.holderId = "";
    return holder ? [leaving(holder, reason)] : [];
  }
}

export function joining(client: SharedClient): PresenceEvent {
  return { name: "client_joined", payload: { client } };
}

export function leaving(client: SharedClient, reason: LeaveReason): PresenceEvent {
  return { name: "client_left", payload: { client, reason } };
}

export function isSame(one: SharedClient, other: SharedClient | undefined): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
