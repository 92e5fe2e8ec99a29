/** Servers that share a session in this process, for tests of the events that each gets. */

import { readdirSync, readFileSync } from "node:fs";
import { createConnection, type Socket } from "node:net";
import { dirname, join } from "node:path";
import type { Duplex } from "node:stream";
import { onTestFinished, vi } from "vitest";
import type { Entrance } from "../../src/core/ports/attach.ts";
import { attachmentsWith } from "./attaching.ts";
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

/** A message as the processes that share a session frame it. */
export const framed = (text: string): string => `Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`;

/** The welcome of a fake holder. */
export interface FalseHolder {
  /** Answers each call with these bytes; by default with silence until it ends. */
  readonly answer?: string | Uint8Array;
  /** A false place of the session, in its welcome. */
  readonly place?: Json;
  readonly attached?: unknown;
  /** True if it lets in and then leaves. */
  readonly leaves?: boolean;
  /** Text that it sends before it leaves. */
  readonly says?: string;
  /** Options of the server that joins. */
  readonly args?: readonly string[];
}

/** A server that joined a fake holder, which lets everyone in, while a third process has the lock. */
export async function joined({
  answer,
  place: announced,
  attached = HOLDER,
  leaves = false,
  says = "",
  args = [],
}: FalseHolder = {}) {
  const place = temporaryPlace();
  const file = put(join(place.home, "s.jsonl"), fileText(headerText({ id: "s", cwd: place.cwd }), ...chain(3)));
  const lock = serveHere(["--session", file, ...QUIET, "--attach", "off"], { place });
  await lock.result("append", said("held"));
  const { leafId } = await lock.result("get_state");
  const welcome = framed(JSON.stringify({ attached, leafId, lastId: leafId, ...announced }));
  const streams: Duplex[] = [];
  let heard = "";
  let entered = 0;
  const open = (): Entrance | null =>
    attachmentsWith().open(file, (stream) => {
      streams.push(stream);
      entered++;
      if (leaves) return void stream.end(welcome + (says && framed(says)));
      stream.write(welcome);
      stream.on("data", (bytes: Buffer) => {
        heard += bytes;
        if (answer !== undefined && bytes.includes('"call"')) stream.write(answer);
      });
    });
  let entrance = open();
  const leave = (): void => {
    for (const stream of streams.splice(0)) stream.destroy();
  };
  const end = async (): Promise<void> => {
    entrance?.close();
    await lock.finish();
    leave();
  };
  /** Another holder takes the place of the first, which still has the lock. */
  const succeed = async (): Promise<void> => {
    entrance?.close();
    entrance = open();
    heard = "";
    leave();
    while (streams.length === 0) await turn();
  };
  const asked = async (text: string): Promise<void> => {
    while (!heard.includes(text)) await turn();
  };
  const say = (...messages: Json[]): void => {
    for (const message of messages) streams.at(-1)?.write(framed(JSON.stringify(message)));
  };
  const other = serveHere(["--session", file, ...args], { place });
  return { other, lock, leafId, asked, end, succeed, say, heard: () => heard, entered: () => entered };
}

const HOLDER = { epoch: 1, client: "x", pid: 1 };

/** Connects to an announced holder. */
export function knock(announcement: Json, file: string): Promise<Socket> {
  const socket = createConnection(join(dirname(file), ".pi-session-server", announcement.socket));
  return new Promise((resolve, reject) => socket.once("connect", () => resolve(socket)).once("error", reject));
}

export function sendTo(socket: Socket, message: Json): void {
  socket.write(framed(JSON.stringify(message)));
}

/** The hello that a holder expects from a server that joins its session, without the token. */
export const HELLO = { protocol: 1, sessionId: "shared", client: "a stranger", durability: "os", hooks: [] };

/** A fake server that a holder has let in. */
export interface Guest {
  readonly socket: Socket;
  say(...messages: Json[]): void;
  /** Waits until it has heard a text. Returns everything that it has heard. */
  hear(text: string): Promise<string>;
}

/** Joins the holder of a file's session by hand. */
export async function guestOf(file: string, more: Json = {}): Promise<Guest> {
  const announcement = await announced(file);
  const socket = await knock(announcement, file);
  onTestFinished(() => void socket.destroy());
  let heard = "";
  socket.on("data", (bytes: Buffer) => {
    heard += bytes;
  });
  const guest: Guest = {
    socket,
    say: (...messages) => {
      for (const message of messages) sendTo(socket, message);
    },
    async hear(text) {
      while (!heard.includes(text)) await turn();
      return heard;
    },
  };
  guest.say({ attach: { ...HELLO, token: announcement.token, ...more } });
  await guest.hear('"attached"');
  return guest;
}
