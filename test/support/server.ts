/** A server under test and the host at its other end: the built program as a process, or `serve()` in this one. */

import { type ChildProcessByStdio, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough, type Readable, type Writable } from "node:stream";
import { text as textOf } from "node:stream/consumers";
import { onTestFinished, vi } from "vitest";
import { parseArguments } from "../../src/cli/options.ts";
import { FAILURES } from "../../src/core/failure.ts";
import type { Env } from "../../src/core/ports/env.ts";
import { findCommand } from "../../src/handlers/shared/find.ts";
import { serve, type World } from "../../src/server/main.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { KEPT_CODE, PROGRAM } from "./build.ts";

// biome-ignore lint/suspicious/noExplicitAny: what comes from the wire is looked at, member by member, by the tests
export type Json = any;

export type Framing = "lines" | "headers";

/** As it was before a test stopped the clock. */
const nextTurn = setImmediate;

/** Folders of one test's own: nothing of the person who runs the tests is read or written. */
export interface Place {
  readonly home: string;
  readonly state: string;
  /** Working directory of the server. */
  readonly cwd: string;
  readonly variables: Readonly<Record<string, string>>;
}

export function temporaryPlace(): Place {
  const home = temporaryFolder();
  const cwd = join(home, "project");
  const state = join(home, "state");
  mkdirSync(cwd);
  return { home, state, cwd, variables: { HOME: home, PI_SESSION_SERVER_STATE_DIR: state } };
}

export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "pi-session-server-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** The environment of a program that is spawned. Only the code that is kept of it is everybody's: it starts sooner. */
export function programEnvironment(place: Place): NodeJS.ProcessEnv {
  return { PATH: process.env.PATH, XDG_CACHE_HOME: KEPT_CODE, ...place.variables };
}

export function frame(framing: Framing, ...messages: unknown[]): string {
  return messages
    .map((message) => (typeof message === "string" ? message : JSON.stringify(message)))
    .map((text) => (framing === "lines" ? `${text}\n` : `Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`))
    .join("");
}

/** A request in JSON-RPC. */
export function call(id: unknown, method: string, params?: unknown): Json {
  return { jsonrpc: "2.0", id, method, ...(params === undefined ? {} : { params }) };
}

/** Failures that any command may end with, as protocol.md says. */
const OF_ANY = new Set([
  ...["cancelled", "shutting_down", "message_too_large", "storage_full", "storage_failed", "path_outside_root"],
  // From the opening of a session at the start.
  ...["not_a_session", "ambiguous_id", "invalid_id"],
]);

/** Throws unless a change ends with a failure that it declares. */
function requireDeclared(method: string, error: Json): void {
  const command = findCommand(method);
  const name = error?.data?.name;
  if (!(name in FAILURES) || OF_ANY.has(name) || !command || !["write", "replace", "close"].includes(command.effect))
    return;
  if (!command.failures.includes(name)) throw new Error(`${method} does not declare ${name}: ${error.message}`);
}

/** The host's end of a connection. Frames are cut here by other code than the server's. */
export class Wire {
  readonly framing: Framing;
  /** Events that the server sent while a reply was awaited. */
  readonly events: Json[] = [];
  readonly input: Writable;
  readonly output: Readable;
  private readonly received: Json[] = [];
  private unread: Buffer = Buffer.alloc(0);
  /** Chunks behind {@link unread} that do not end a frame yet. */
  private more: Buffer[] = [];
  private over = false;
  private wake: (() => void) | undefined;
  private ids = 0;

  constructor(input: Writable, output: Readable, framing: Framing) {
    this.input = input;
    this.output = output;
    this.framing = framing;
    const end = (): void => {
      this.over = true;
      this.wake?.();
    };
    output.on("data", (chunk: Buffer) => {
      this.more.push(chunk);
      if (framing === "lines" && !chunk.includes("\n")) return;
      this.cut();
      this.wake?.();
    });
    output.on("end", end).on("close", end).on("error", end);
    // A server that ends while we write is what some tests are about.
    input.on("error", () => {});
  }

  /** Sends bytes as they are. */
  write(bytes: string | Uint8Array): void {
    this.input.write(bytes);
  }

  /** Sends messages in one write; a string is sent as the payload it is. */
  send(...messages: unknown[]): void {
    this.input.write(frame(this.framing, ...messages));
  }

  /** Sends a JSON-RPC request and waits for nothing. */
  ask(id: unknown, method: string, params?: unknown): void {
    this.send(call(id, method, params));
  }

  /** Answers a question that the server asked in JSON-RPC. */
  answer(id: unknown, result: unknown): void {
    this.send({ jsonrpc: "2.0", id, result });
  }

  /** Closes the server's input. */
  end(): void {
    this.input.end();
  }

  /** The next message of any kind. */
  async next(): Promise<Json> {
    for (;;) {
      if (this.received.length > 0) return this.received.shift();
      if (this.over) throw new Error(`the server ended its output; unread: ${this.unread.toString().slice(0, 200)}`);
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
    }
  }

  async take(count: number): Promise<Json[]> {
    const messages: Json[] = [];
    while (messages.length < count) messages.push(await this.next());
    return messages;
  }

  /** Everything up to the end of the output. */
  async rest(): Promise<Json[]> {
    while (!this.over)
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
    this.cut();
    if (this.unread.length > 0) throw new Error(`not a frame: ${this.unread.toString().slice(0, 200)}`);
    return this.received.splice(0);
  }

  /** The reply to a JSON-RPC request; what the server says before it goes to {@link events}. */
  async request(method: string, params?: unknown): Promise<Json> {
    const id = ++this.ids;
    // A server in this process answers at once. A loop of requests would keep timers from running, and with them the
    // time limit of the test.
    if (id % 500 === 0) await new Promise(nextTurn);
    this.ask(id, method, params);
    const reply = await this.reply(id);
    requireDeclared(method, reply.error);
    return reply;
  }

  /** The result of a JSON-RPC request that is expected to succeed. */
  async result(method: string, params?: unknown): Promise<Json> {
    const { result, error } = await this.request(method, params);
    if (error) throw new Error(`${method}: ${JSON.stringify(error)}`);
    return result;
  }

  /** The error of a JSON-RPC request that is expected to fail. */
  async failure(method: string, params?: unknown): Promise<Json> {
    const { result, error } = await this.request(method, params);
    if (!error) throw new Error(`${method} succeeded: ${JSON.stringify(result)}`);
    return error;
  }

  /** The reply to a command in Pi's dialect. */
  async command(type: string, params: object = {}): Promise<Json> {
    const id = `req:${++this.ids}`;
    this.send({ id, type, ...params });
    return this.reply(id);
  }

  /** The reply with an id; sessions answer side by side, so it may have come before another that was waited for. */
  async reply(id: unknown): Promise<Json> {
    const early = this.events.findIndex((message) => message.id === id && !("method" in message));
    if (early >= 0) return this.events.splice(early, 1)[0];
    for (;;) {
      const message = await this.next();
      if (message.id === id && !("method" in message)) return message;
      this.events.push(message);
    }
  }

  /** Stops reading. */
  stall(): void {
    this.output.pause();
  }

  resume(): void {
    this.output.resume();
  }

  private cut(): void {
    this.unread = Buffer.concat([this.unread, ...this.more.splice(0)]);
    for (;;) {
      const { unread } = this;
      let start = 0;
      let end: number;
      if (this.framing === "lines") end = unread.indexOf("\n");
      else {
        const header = /^Content-Length: (\d+)\r\n\r\n/.exec(unread.subarray(0, 64).toString("latin1"));
        start = header?.[0].length ?? 0;
        end = header && unread.length >= start + Number(header[1]) ? start + Number(header[1]) : -1;
      }
      if (end < 0) return;
      this.received.push(JSON.parse(unread.subarray(start, end).toString("utf8")));
      this.unread = unread.subarray(this.framing === "lines" ? end + 1 : end);
    }
  }
}

export class SpawnedServer extends Wire {
  readonly process: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly place: Place;
  /** Exit status, or the name of the signal it died of. */
  readonly exit: Promise<number | string>;
  stderr = "";

  constructor(process: SpawnedServer["process"], framing: Framing, place: Place) {
    super(process.stdin, process.stdout, framing);
    this.process = process;
    this.place = place;
    process.stderr.on("data", (chunk: Buffer) => {
      this.stderr += chunk;
    });
    this.exit = new Promise((resolve) => process.on("close", (code, signal) => resolve(code ?? signal ?? "unknown")));
  }

  /** Ends the input and waits for the end. Returns the remaining messages and the exit status. */
  async finish(): Promise<{ messages: Json[]; status: number | string }> {
    this.end();
    const messages = await this.rest();
    return { messages, status: await this.exit };
  }
}

/** Starts the built program; `handles`: with so many files open at most. */
export function spawnServer(
  args: string[] = [],
  framing: Framing = "lines",
  place = temporaryPlace(),
  handles?: number,
): SpawnedServer {
  const words = [process.execPath, PROGRAM, ...args];
  const limited = ["sh", "-c", `ulimit -n ${handles} && exec "$@"`, "sh", ...words];
  return spawnCommand(handles === undefined ? words : limited, framing, place);
}

/** Starts a command as a server, which is killed at the end of the test. */
export function spawnCommand(
  [command, ...args]: readonly string[],
  framing: Framing = "lines",
  place = temporaryPlace(),
  env = programEnvironment(place),
): SpawnedServer {
  const child = spawn(command, args, { cwd: place.cwd, env, stdio: ["pipe", "pipe", "pipe"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  return new SpawnedServer(child, framing, place);
}

/** Runs the built program on an input: everything it says, as it says it. */
export async function runProgram(
  input: string | Uint8Array,
  args: string[],
  place = temporaryPlace(),
): Promise<{ stdout: string; stderr: string; status: number | string }> {
  const child = spawn(process.execPath, [PROGRAM, ...args], { cwd: place.cwd, env: programEnvironment(place) });
  // It may end before it has read everything.
  child.stdin.on("error", () => {}).end(input);
  const status = new Promise<number | string>((resolve) =>
    child.on("close", (code, signal) => resolve(code ?? signal ?? "unknown")),
  );
  const [stdout, stderr] = await Promise.all([textOf(child.stdout), textOf(child.stderr)]);
  return { stdout, stderr, status: await status };
}

/** Parts of the world to take the place of the usual ones, and of the counted ones (`env`). */
export interface HereOptions extends Partial<Omit<World, "input" | "output" | "env">> {
  readonly framing?: Framing;
  readonly place?: Place;
  readonly env?: Partial<Env>;
}

export class HereServer extends Wire {
  declare readonly place: Place;
  /** Exit status. */
  declare readonly done: Promise<number>;
  /** Lines on stderr, for a person. */
  declare readonly said: readonly string[];
  declare readonly stop: () => void;

  constructor({ input, output, ...rest }: ReturnType<typeof startHere>, framing: Framing) {
    super(input, output, framing);
    Object.assign(this, rest);
  }

  /** Ends the input and waits for the end. Returns the remaining messages and the exit status. */
  async finish(): Promise<{ messages: Json[]; status: number }> {
    this.end();
    const messages = await this.rest();
    return { messages, status: await this.done };
  }
}

/** Lets no timer of this process run out until the test is over: what comes nevertheless has not waited for one. */
export function stopTimers(): void {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval"] });
  onTestFinished(() => void vi.useRealTimers());
}

/** Serves in this process, with ids that count and a clock that ticks once per look. */
export function serveHere(args: string[] = [], options: HereOptions = {}): HereServer {
  return new HereServer(startHere(args, options), options.framing ?? "lines");
}

/** Serves an input in this process: everything said, as it is said. */
export async function serveInput(
  input: string | Uint8Array,
  args: string[],
  place = temporaryPlace(),
): Promise<{ stdout: string; stderr: string; status: number }> {
  const server = startHere(args, { place });
  const said = textOf(server.output);
  server.input.end(input);
  const [status, stdout] = [await server.done, await said];
  return { stdout, stderr: server.said.map((sentence) => `pi-session-server: ${sentence}\n`).join(""), status };
}

function startHere(args: string[], { framing: _, place = temporaryPlace(), env, ...world }: HereOptions) {
  const input = new PassThrough();
  const output = new PassThrough();
  const said: string[] = [];
  const service = serve(parseArguments(args), {
    input,
    output,
    env: { ...countingEnv(), ...env },
    variables: place.variables,
    cwd: place.cwd,
    version: "0.0.0-test",
    printError: (sentence) => said.push(sentence),
    settingsFile: () => undefined,
    ...world,
    disk: world.disk ?? realDisk,
  });
  const done = service.done.finally(() => output.end());
  onTestFinished(async () => {
    input.end();
    output.resume();
    await done;
  });
  return { input, output, place, said, done, stop: () => service.stop() };
}

let sessions = 0;

export function countingEnv(): Env {
  let now = Date.UTC(2026, 0, 24, 16, 22, 26, 831);
  let entries = 0;
  return {
    now: () => now++,
    sessionId: () => `01991f6e-0000-7000-8000-${String(++sessions).padStart(12, "0")}`,
    entryId: () => (0xe0000000 + ++entries).toString(16),
    sha256: (bytes) => createHash("sha256").update(bytes).digest("hex"),
  };
}

/** The kinds of messages, for tests of their order: `#id` for a reply, the name for an event. */
export function kinds(messages: readonly Json[]): string[] {
  return messages.map((message) => {
    if (Array.isArray(message)) return `[${kinds(message).join(" ")}]`;
    if (message.type === "response") return `#${message.id}`;
    return message.method ?? message.type ?? `#${message.id}`;
  });
}
