/** Scripted servers at the other end of the typed client. */

import { PassThrough } from "node:stream";
import { Client } from "../../src/client/client.ts";
import { MessageStream } from "../../src/client/message-stream.ts";
import { type ServerProcess, superviseProcess } from "../../src/client/server-process.ts";
import type { ClientOptions } from "../../src/client/types.ts";
import type { Json } from "./server.ts";

/** Returns the result of a request, or undefined when there is no answer. */
export type Script = (request: Json, server: ScriptedServer) => unknown;

/** The state of a session on disk, as far as the client looks at it. */
export const STATE = { sessionId: "s", sessionFile: "/s.jsonl", persisted: true };

export class ScriptedServer {
  readonly life: ServerProcess;
  /** All messages that came. */
  readonly heard: Json[] = [];
  killed = 0;
  private readonly toClient = new PassThrough();
  private resolveGone: (lastWords: string) => void = () => {};

  constructor(script: Script = () => undefined) {
    const fromClient = new PassThrough();
    fromClient.setEncoding("utf8").on("data", (text: string) => {
      for (const line of text.split("\n").filter((part) => part !== "")) this.hear(JSON.parse(line), script);
    });
    const gone = new Promise<string>((resolve) => {
      this.resolveGone = resolve;
    });
    this.life = superviseProcess(new MessageStream(this.toClient, fromClient), gone, () => {
      this.killed++;
      this.die();
    });
  }

  /** Sends messages in one piece; a string is sent as it is. */
  say(...messages: unknown[]): void {
    const lines = messages.map((message) =>
      typeof message === "string" ? message : JSON.stringify({ jsonrpc: "2.0", ...(message as object) }),
    );
    this.toClient.write(lines.map((line) => `${line}\n`).join(""));
  }

  /** Ends, after its last words. */
  die(): void {
    this.toClient.end();
    this.resolveGone("It died.");
  }

  private hear(message: Json, script: Script): void {
    this.heard.push(message);
    if (message.method === undefined || message.id === undefined) return;
    const result = script(message, this) ?? (message.method === "initialize" ? { state: STATE } : undefined);
    if (result !== undefined) this.say({ id: message.id, result });
  }
}

/** Connects to the first of these servers; each takes the place of the one before when that died. */
export function scriptedClient(servers: readonly ScriptedServer[], options: ClientOptions = {}): Promise<Client> {
  const [first, ...others] = servers.map(({ life }) => life);
  const revive = (): Promise<ServerProcess> | null => {
    const next = others.shift();
    return next ? Promise.resolve(next) : null;
  };
  return new Client(options, revive).start(first);
}

/** Resolves when the client has processed everything sent and its consequences. */
export async function settled(): Promise<void> {
  for (let i = 0; i < 20; i++) await new Promise(setImmediate);
}
