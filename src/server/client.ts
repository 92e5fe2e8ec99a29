/**
 * A typed client: the commands of the table over a vscode-jsonrpc connection. Everything other than commands, events
 * and the end (hooks, cancellation, progress) goes through `connection`.
 */

import { spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import {
  createMessageConnection,
  type MessageConnection,
  StreamMessageReader,
  StreamMessageWriter,
} from "vscode-jsonrpc/node";
import type * as z from "zod";
import type { commonParams } from "../handlers/shared/command.ts";
import type { EventName, eventBase, events } from "../handlers/shared/events.ts";
import type { AnyCommand } from "../handlers/shared/table.ts";

export type CommandName = AnyCommand["name"];

type TypesOf<N extends CommandName> = NonNullable<Extract<AnyCommand, { readonly name: N }>["types"]>;

type Common = z.input<z.ZodObject<typeof commonParams>>;

/** Params of a command. Members that many commands take are optional for all, and refused where they mean nothing. */
export type ParamsOf<N extends CommandName> = string extends keyof TypesOf<N>["params"]
  ? Common
  : Omit<Common, keyof TypesOf<N>["params"]> & TypesOf<N>["params"];

export type ResultOf<N extends CommandName> = TypesOf<N>["result"];

export type EventOf<N extends EventName> = z.output<z.ZodObject<typeof eventBase>> &
  z.output<z.ZodObject<(typeof events)[N]["payload"]>>;

export interface Client {
  /** Rejects with vscode-jsonrpc's ResponseError, whose `data.name` says what failed, or when the connection ends. */
  request<N extends CommandName>(
    name: N,
    ...params: object extends ParamsOf<N> ? [params?: ParamsOf<N>] : [params: ParamsOf<N>]
  ): Promise<ResultOf<N>>;
  /** Calls the handler for every such event, and returns a function that unregisters it. One handler for each name. */
  onEvent<N extends EventName>(name: N, handler: (event: EventOf<N>) => void): () => void;
  /** Shuts the server down cleanly, and ends the connection with it. */
  close(): Promise<void>;
  readonly connection: MessageConnection;
}

/** Connects to a running server over its streams. */
export function connect(readable: Readable, writable: Writable): Client {
  const connection = createMessageConnection(new StreamMessageReader(readable), new StreamMessageWriter(writable));
  // Rejects the requests that will not get a reply any more.
  connection.onClose(() => connection.dispose());
  connection.listen();
  const client: Client = {
    connection,
    request: async (name, ...[params]) => connection.sendRequest(name, params ?? {}),
    onEvent(name, handler) {
      const registration = connection.onNotification(name, handler);
      return () => registration.dispose();
    },
    async close() {
      try {
        await client.request("shutdown");
        await connection.sendNotification("exit");
        connection.end();
        connection.dispose();
      } catch {
        // The server had ended before.
      }
    },
  };
  return client;
}

export interface SpawnOptions {
  /** Options of the command line. */
  readonly args?: readonly string[];
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
  /** Path of the program, if it is not where this package was built. */
  readonly program?: string;
}

export interface SpawnedClient extends Client {
  /** Exit status, or the signal that ended the process. */
  readonly exit: Promise<number | NodeJS.Signals>;
}

const PROGRAM = new URL("../../bin/pi-session-server.js", import.meta.url);

/** Starts a server and connects to it. `close` resolves when the process has ended. */
export function spawnServer(options: SpawnOptions = {}): SpawnedClient {
  const { args = [], cwd, env, program = fileURLToPath(PROGRAM) } = options;
  const child = spawn(process.execPath, [program, "--framing", "headers", "--dialect", "jsonrpc", ...args], {
    cwd,
    env,
    stdio: ["pipe", "pipe", "inherit"],
  });
  const exit = new Promise<number | NodeJS.Signals>((resolve, reject) => {
    child.on("error", reject);
    child.on("exit", (status, signal) => resolve(status ?? (signal as NodeJS.Signals)));
  });
  const client = connect(child.stdout, child.stdin);
  return {
    ...client,
    exit,
    async close() {
      await client.close();
      await exit;
    },
  };
}
