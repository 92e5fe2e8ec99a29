/** Servers as child processes. */

import { type ChildProcessByStdio, spawn } from "node:child_process";
import { createRequire } from "node:module";
import { resolve as resolvePath } from "node:path";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { Client } from "./client.ts";
import { noProgram } from "./failure.ts";
import { MessageStream } from "./message-stream.ts";
import { type ServerProcess, superviseProcess } from "./server-process.ts";
import type { ClientOptions } from "./types.ts";

export interface SpawnOptions extends ClientOptions {
  /** Options of the command line, such as `--session` with a path. */
  readonly args?: readonly string[];
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
  /** Path of the program, or a command with its first arguments; by default the server of this package. */
  readonly program?: string | readonly [command: string, ...args: string[]];
  /** Takes what the server writes to stderr; by default this process's stderr does. */
  readonly onStderr?: (text: string) => void;
  /**
   * True to start a server that dies again on the same session, with the unanswered requests; the default. Each write
   * has an idempotency key then. It cannot help sessions in memory (`--no-session`).
   */
  readonly survive?: boolean;
}

/** A client with a process at its other end. */
export interface SpawnedClient extends Client {
  /** Process id of the server; undefined after its end. */
  readonly pid: number | undefined;
}

const PROGRAM = new URL("../../bin/pi-session-server.js", import.meta.url);

/** Milliseconds before the second attempt to replace a server, doubled for each one after it. */
const PAUSE = 50;

/** Characters of stderr that are kept for the failure's message. */
const LAST_WORDS = 2_000;

/**
 * Starts a server and introduces itself. Throws RequestFailure when the server ends at once, with its stderr, or when
 * there is no such program, and any other error of starting a process.
 */
export async function spawnServer(options: SpawnOptions = {}): Promise<SpawnedClient> {
  const { args = [], survive = true } = options;
  let child: Child | undefined;
  const started = async (given: readonly string[]): Promise<ServerProcess> => {
    child = await spawned(options, given);
    return childsLife(child, options.onStderr ?? ((text) => process.stderr.write(text)));
  };
  const revive = async (given: readonly string[], deaths: number): Promise<ServerProcess> => {
    if (deaths > 1) await new Promise((resolve) => setTimeout(resolve, PAUSE << (deaths - 2)));
    return started(given);
  };
  const client = new Client(
    options,
    survive ? (sessions, deaths) => revive(sessions.argumentsAfter(args), deaths) : null,
  );
  Object.defineProperty(client, "pid", {
    get: () => (child?.exitCode === null && child.signalCode === null ? child.pid : undefined),
  });
  return (await client.start(await started(args))) as SpawnedClient;
}

type Child = ChildProcessByStdio<Writable, Readable, Readable>;

/** Starts a process. Throws when there is no such program. */
function spawned(
  { program = fileURLToPath(PROGRAM), cwd, env }: SpawnOptions,
  args: readonly string[],
): Promise<Child> {
  const [command, ...first] = typeof program === "string" ? [process.execPath, program] : program;
  if (typeof program === "string") {
    try {
      createRequire(import.meta.url).resolve(resolvePath(cwd ?? "", program));
    } catch (error) {
      return Promise.reject(noProgram(program, error));
    }
  }
  const fixed = ["--framing", "lines", "--dialect", "jsonrpc"];
  const child = spawn(command, [...first, ...fixed, ...args], { cwd, env, stdio: ["pipe", "pipe", "pipe"] });
  return new Promise((resolve, reject) => {
    child.once("error", (error: NodeJS.ErrnoException) => {
      // The same error is reported when there is no such folder to start it in.
      const place = cwd === undefined ? command : `${command}, or no folder ${cwd}`;
      reject(error.code === "ENOENT" ? noProgram(place, error) : error);
    });
    child.once("spawn", () => resolve(child));
  });
}

function childsLife(child: Child, onStderr: (text: string) => void): ServerProcess {
  const wire = new MessageStream(child.stdout, child.stdin);
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    said = (said + text).slice(-LAST_WORDS);
    onStderr(text);
  });
  const gone = new Promise<string>((resolve) => {
    child.once("close", (status, signal) => {
      const end = signal === null ? `The server ended with status ${status}.` : `The server was ended by ${signal}.`;
      resolve(said.trim() === "" ? end : `${end} It said: ${said.trim()}`);
    });
  });
  return superviseProcess(wire, gone, () => {
    child.kill("SIGKILL");
    // Its child processes may live on and hold them.
    child.stdout.destroy();
    child.stderr.destroy();
  });
}
