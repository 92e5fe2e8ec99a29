/**
 * The typed client of the session server: starts a server or takes the streams of one, and survives its death.
 *
 * @example
 * import { spawnServer } from "pi-session-server/client";
 *
 * await using server = await spawnServer({ args: ["--continue"] });
 * await server.request("append", { entries: [{ type: "message", message: { role: "user", content: "Hello" } }] });
 */

/// <reference types="node" preserve="true" />

import type { Readable, Writable } from "node:stream";
import { Client } from "./client.ts";
import { MessageStream } from "./message-stream.ts";
import { superviseProcess } from "./server-process.ts";
import type { ClientOptions } from "./types.ts";

export type { Client } from "./client.ts";
export type { NamedEvent } from "./event-hub.ts";
export { RequestFailure, type RequestFailureName } from "./failure.ts";
export type { Block, Commands, Draft, Entry, Events, FailureName, Hooks, Message, OtherName } from "./protocol.ts";
export { type SpawnedClient, type SpawnOptions, spawnServer } from "./spawn.ts";
export type {
  Arguments,
  ClientOptions,
  HookContext,
  HookHandler,
  PagedCommand,
  ProgressReport,
  RequestOptions,
  Restart,
  State,
} from "./types.ts";

/**
 * Connects to a server over its streams, as lines. When it ends, pending requests fail: reads with `connection_closed`,
 * all others with `outcome_unknown`. Throws RequestFailure when the server refuses.
 */
export function connect(input: Readable, output: Writable, options: ClientOptions = {}): Promise<Client> {
  const wire = new MessageStream(input, output);
  const gone = wire.ended.then(() => "The server closed its output.");
  return new Client(options, null).start(superviseProcess(wire, gone, () => void input.destroy()));
}
