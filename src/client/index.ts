/**
 * The typed client of the session server: starts a server or takes the streams of one, and survives its death.
 *
 * @example
 * import { spawnServer } from "pi-session-server/client";
 *
 * await using server = await spawnServer({ args: ["--continue"] });
 * await server.request("append", { entries: [{ type: "message", message: { role: "user", content: "Hello" } }] });
 */

import type { Readable, Writable } from "node:stream";
import { Client, type ClientOptions } from "./client.ts";
import { Wire } from "./wire.ts";

export type {
  Arguments,
  Client,
  ClientOptions,
  HookContext,
  HookHandler,
  PagedCommand,
  Progress,
  RequestOptions,
  Restart,
  State,
} from "./client.ts";
export { RequestFailure, type RequestFailureName } from "./failure.ts";
export type { Commands, Events, FailureName, Hooks } from "./protocol.ts";
export { type SpawnedClient, type SpawnOptions, spawnServer } from "./spawn.ts";

/**
 * Connects to a server over its streams, as lines. When it ends, what was not answered fails: reads with
 * `connection_closed`, everything else with `outcome_unknown`. Throws RequestFailure when the server refuses.
 */
export function connect(input: Readable, output: Writable, options: ClientOptions = {}): Promise<Client> {
  const wire = new Wire(input, output);
  return new Client(options, null).start({ wire, gone: wire.ended.then(() => "The server closed its output.") });
}
