/** Servers of several hosts on one session, and what each of them has heard. */

import { join } from "node:path";
import { expect } from "vitest";
import {
  type HereOptions,
  type HereServer,
  type Json,
  type Place,
  type SpawnedServer,
  serveHere,
  spawnServer,
  temporaryPlace,
} from "./server.ts";
import { QUIET, said, turn } from "./shared-session.ts";

export type Server = HereServer | SpawnedServer;

export const STORES = ["jsonl", "v2"] as const;

/** Capabilities of a host that wants to be asked before the leaf moves. */
export const TREE = { capabilities: { hooks: [{ name: "session_before_tree" }] } };

/** A clock so late that a holder has announced itself already, if it does that at all. */
export const LATER = { now: () => Date.UTC(2026, 1) };

/** Returns the path of a session of a store that is not there yet, and what starts servers on it. */
export function sessionOf(store: string, place = temporaryPlace()) {
  const file = join(place.home, `s.${store}`);
  const args = (more: readonly string[]) => ["--session", file, "--store", store, ...more];
  return {
    file,
    place,
    open: (more: readonly string[] = QUIET, options: HereOptions = {}) => serveHere(args(more), { place, ...options }),
    spawn: (more: readonly string[] = QUIET) => spawnServer(args(more), "lines", place),
  };
}

/** A session with a server that lets no other join, by default. */
export async function heldAlone(store = "jsonl", args: readonly string[] = ["--attach", "off"]) {
  const session = sessionOf(store);
  const holder = session.open([...QUIET, ...args]);
  const { leafId } = await holder.result("append", said("held"));
  return { ...session, holder, leafId: leafId as string };
}

/** Starts a server on a session whose host introduces itself so. */
export async function hostOf(file: string, place: Place, params: Json, args = QUIET): Promise<HereServer> {
  const server = serveHere(["--session", file, ...args], { place });
  await server.result("initialize", params);
  return server;
}

/** Starts a server whose host introduces itself so and writes to a session, so that the server has joined its holder. */
export async function guestAt(file: string, place: Place, params: Json = {}, args = QUIET): Promise<HereServer> {
  const server = await hostOf(file, place, params, args);
  await server.result("append", said("joined"));
  return server;
}

/** The params of the events of a name that a host has heard. */
export function paramsOf({ events }: Server, name: string): Json[] {
  return events.filter(({ method }) => method === name).map(({ params }) => params);
}

/** Waits for an event that fits, among those that came and those that come with replies; returns its params. */
export async function heard(server: Server, name: string, fits: (params: Json) => boolean = () => true): Promise<Json> {
  for (;;) {
    const found = paramsOf(server, name).find(fits);
    if (found) return found;
    await turn();
    await server.result("get_state");
  }
}

/** Returns the user texts on the path to a connection's leaf. */
export async function pathOf(server: Server): Promise<string[]> {
  const { messages } = await server.result("get_messages");
  return messages.map(({ content }: Json) => content);
}

/** Expects that the numbers of what a host has heard have no gap but those that were counted as lost. */
export function expectNumbered(server: Server): void {
  let expected = 1;
  for (const { method, params } of server.events.filter((message) => message.method !== undefined)) {
    if (method === "events_lost") {
      expect(params.from, JSON.stringify(params)).toBe(expected);
      expected = params.to + 1;
    }
    expect(params.seq, `${method} ${JSON.stringify(params)}`).toBe(expected++);
  }
}
