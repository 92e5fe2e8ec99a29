/** Clients of a session as reported by its holder, and the events about them. */

import { type SharedClient, toSharedClient } from "../../core/ports/attach.ts";

/** Most clients remembered for a session; a longer list is cut. */
const MOST_CLIENTS = 10_000;

/** A client joined, changed its name, or left. */
export type PresenceEvent =
  | { readonly name: "client_joined"; readonly payload: { readonly client: SharedClient } }
  | { readonly name: "client_left"; readonly payload: { readonly client: SharedClient; readonly reason: LeaveReason } };

type LeaveReason = "left" | "died";

/** The clients of a session as reported by its holder. Reports may be false, so their number is limited. */
export class ReportedClients {
  private readonly known = new Map<string, SharedClient>();
  /** The ids of the local host and of the holder. */
  selfId = "";
  holderId = "";

  get others(): readonly SharedClient[] {
    return [...this.known.values()].filter(({ id }) => id !== this.selfId);
  }

  get holder(): SharedClient | undefined {
    return this.known.get(this.holderId);
  }

  /** Stores the holder's list. Returns the changes since the last report. */
  renew(given: unknown, isFirst = false): PresenceEvent[] {
    const list = Array.isArray(given) ? given.slice(0, MOST_CLIENTS).map(toSharedClient) : [];
    const next = new Map(list.flatMap((client) => (client ? [[client.id, client]] : [])));
    const events: PresenceEvent[] = [];
    for (const client of this.known.values()) if (!next.has(client.id)) events.push(makeLeaveEvent(client, "died"));
    for (const client of next.values())
      if (!isSameClient(client, this.known.get(client.id))) events.push(makeJoinEvent(client));
    this.known.clear();
    for (const [id, client] of next) this.known.set(id, client);
    return isFirst ? [] : events.filter(({ payload }) => payload.client.id !== this.selfId);
  }

  /** Stores one event of the holder. Returns it if it is new to the local host. */
  take(name: unknown, payload: unknown): PresenceEvent | undefined {
    const { client: given, reason } = (payload ?? {}) as { client?: unknown; reason?: unknown };
    const client = toSharedClient(given);
    if (!client) return undefined;
    const before = this.known.get(client.id);
    if (name === "client_left") {
      if (!this.known.delete(client.id) || client.id === this.selfId) return undefined;
      return makeLeaveEvent(before as SharedClient, reason === "left" ? "left" : "died");
    }
    if (isSameClient(client, before) || (this.known.size >= MOST_CLIENTS && !before)) return undefined;
    this.known.set(client.id, client);
    return client.id === this.selfId ? undefined : makeJoinEvent(client);
  }

  /** Removes all clients, because the session is no longer shared. Returns the events about that. */
  clear(): PresenceEvent[] {
    const events = this.others.map((client) => makeLeaveEvent(client, "left"));
    this.known.clear();
    return events;
  }

  /** Removes the holder. Returns the event about that if the holder was known. */
  withoutHolder(reason: LeaveReason): PresenceEvent[] {
    const holder = this.known.get(this.holderId);
    this.known.delete(this.holderId);
    this.holderId = "";
    return holder ? [makeLeaveEvent(holder, reason)] : [];
  }
}

export function makeJoinEvent(client: SharedClient): PresenceEvent {
  return { name: "client_joined", payload: { client } };
}

export function makeLeaveEvent(client: SharedClient, reason: LeaveReason): PresenceEvent {
  return { name: "client_left", payload: { client, reason } };
}

export function isSameClient(one: SharedClient, other: SharedClient | undefined): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
