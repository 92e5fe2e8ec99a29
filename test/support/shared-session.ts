/** Servers that share a session in this process, for tests of the events that each gets. */

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { onTestFinished, vi } from "vitest";
import { put } from "./lifecycle.ts";
import { chain, fileText, headerText } from "./lines.ts";
import { call, type HereServer, type Json, type SpawnedServer, serveHere, temporaryPlace } from "./server.ts";

export const QUIET = ["--events", "none"];

export function said(text: string): Json {
  return { entries: [{ type: "message", message: { role: "user", content: text } }] };
}

/** A session of three entries in a file, and a server that holds it. */
export async function held(args: string[] = QUIET, place = temporaryPlace()) {
  const text = fileText(headerText({ id: "shared", cwd: place.cwd }), ...chain(3));
  const file = put(join(place.home, "shared.jsonl"), text);
  const holder = serveHere(["--session", file, ...args], { place });
  await holder.result("append", said("held"));
  await announced(file);
  return { file, holder, place };
}

/** Two servers on a new session of a store; the first holds it. Their hosts have names if any are given. */
export async function two(store: string, args: string[] = [], names: string[] = []) {
  const place = temporaryPlace();
  const file = join(place.home, `two.${store}`);
  const begin = async (text: string, name: string | undefined, ...more: string[]): Promise<HereServer> => {
    const server = serveHere(["--session", file, ...more, ...args], { place });
    if (name !== undefined) await server.result("initialize", { clientInfo: { name, version: "1.0" } });
    await server.result("append", said(text));
    return server;
  };
  const first = await begin("first", names[0], "--store", store);
  return { first, second: await begin("second", names[1]), file, place };
}

/** Lets the event loop go round: replies within this process come without that. */
export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

export async function turns(count: number): Promise<void> {
  for (let n = 0; n < count; n++) await turn();
}

/** Lets these clocks go only where the test says so, until it is over. */
export function stopClocks(...clocks: ("setTimeout" | "setInterval" | "performance")[]): void {
  const toFake = clocks.flatMap((name) => (name === "performance" ? [name] : [name, name.replace("set", "clear")]));
  vi.useFakeTimers({ toFake: toFake as "setTimeout"[] });
  onTestFinished(() => void vi.useRealTimers());
}

/** Waits until a session is announced, which comes after the first reply. */
export async function announced(file: string): Promise<Json> {
  const folder = join(dirname(file), ".pi-session-server");
  for (let tries = 0; tries < 1000; tries++) {
    await turn();
    try {
      const name = readdirSync(folder).find((one) => one.endsWith(".json"));
      const socket = readdirSync(folder).find((one) => one.endsWith(".sock"));
      if (name !== undefined) return { ...JSON.parse(readFileSync(join(folder, name), "utf8")), socket };
    } catch {
      // It is not there yet.
    }
  }
  throw new Error(`${file} is not announced`);
}

export const request = (id: unknown, method: string, params: Json = {}): Json => call(id, method, params);

/** Returns the server's output up to a reply: ids of replies, and names of events and requests. */
export async function order(server: HereServer, last: unknown): Promise<Json[]> {
  const said: Json[] = [];
  for (;;) {
    const message = await server.next();
    said.push(Array.isArray(message) ? message.map(({ id }) => id) : (message.method ?? message.id));
    if (message.id === last && !("method" in message)) return said;
  }
}

/** The contents of what users say, in file order. */
export async function texts(server: HereServer | SpawnedServer): Promise<string[]> {
  const { entries } = await server.result("get_entries");
  return entries.filter(({ message }: Json) => message?.role === "user").map(({ message }: Json) => message.content);
}
