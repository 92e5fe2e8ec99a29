/** Processes that only pretend to share a session: a holder that lets others in, and a guest by hand. */

import { createConnection, type Socket } from "node:net";
import { dirname, join } from "node:path";
import type { Duplex } from "node:stream";
import { onTestFinished } from "vitest";
import type { Entrance } from "../../../../src/modules/attach/announcing.ts";
import { put } from "../../../support/lifecycle.ts";
import { chain, fileText, headerText } from "../../../support/lines.ts";
import { type Json, serveHere, temporaryPlace } from "../../../support/server.ts";
import { announced, QUIET, said, turn } from "../../../support/shared-session.ts";
import { attachmentsWith } from "./attaching.ts";

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
