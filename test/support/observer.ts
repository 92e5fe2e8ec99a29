/**
 * A spawned server and a host at its other end that takes nothing for granted: what a client that throws would hide
 * is noted, so that a run can go on and count.
 */

import { type ChildProcessByStdio, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { onTestFinished } from "vitest";
import { PROGRAM } from "./build.ts";
import { type Framing, frame, type Json, type Place, programEnvironment } from "./server.ts";

export type Dialect = "jsonrpc" | "pi";

interface WitnessOptions {
  readonly args: readonly string[];
  readonly place: Place;
  readonly framing?: Framing;
  readonly dialect?: Dialect;
  /** The Node that runs the server; the one that runs the tests by default. */
  readonly node?: string;
  /** A program with its arguments that starts the server, such as `unshare -n`. */
  readonly within?: readonly string[];
  /** Kills the server; without one the end of the test does. */
  readonly signal?: AbortSignal;
}

/** A reply, in both dialects. */
export interface Answer {
  readonly result?: Json;
  /** The failure: its name, and all that was said about it. */
  readonly failure?: { readonly name: string; readonly text: string; readonly data: Json };
  /** The frame's payload as it came. */
  readonly text: string;
  /** The number of events that came before it. */
  readonly heard: number;
}

/** An event of the server, numbered from 1 as it came. */
export interface Heard {
  readonly name: string;
  readonly params: Json;
  readonly text: string;
  readonly number: number;
}

interface Pending {
  readonly method: string;
  readonly settle: (answer: Answer | null) => void;
}

/** Milliseconds without a byte after which a server with pending replies counts as silent. Nothing is slow on purpose. */
const SILENCE = 30_000;
/** Number of the last frames that are kept for failure messages. */
const REMEMBERED = 20;

export class Witness {
  readonly process: ChildProcessByStdio<Writable, Readable, Readable>;
  /** Exit status, or the name of the signal it died of. */
  readonly exit: Promise<number | string>;
  /** Broken frames, replies without a request, and replies that overtook another. */
  readonly faults: string[] = [];
  /** Events of the server; tests take them out. */
  readonly events: Heard[] = [];
  /** The last frames, in order. */
  readonly frames: string[] = [];
  /** Requests that were never answered although the server was not killed. */
  unanswered = 0;
  /** True if the server ended before its input was closed. */
  died = false;
  stderr = "";
  private readonly framing: Framing;
  private readonly dialect: Dialect;
  private readonly pending = new Map<string, Pending>();
  /** Ids of the requests on the session, in the order of their replies. */
  private readonly lane: string[] = [];
  private unread: Buffer[] = [];
  private ordered: "nothing" | "end" | "kill" = "nothing";
  private watchdog: NodeJS.Timeout | undefined;
  private count = 0;
  private heard = 0;

  constructor({ args, place, framing, dialect, node, within = [], signal }: WitnessOptions) {
    this.framing = framing ?? "lines";
    this.dialect = dialect ?? "jsonrpc";
    const [command, ...rest] = [...within, node ?? process.execPath, PROGRAM, ...args];
    const child = spawn(command, [...rest, "--framing", this.framing, "--dialect", this.dialect], {
      cwd: place.cwd,
      env: programEnvironment(place),
      stdio: ["pipe", "pipe", "pipe"],
      signal,
      killSignal: "SIGKILL",
    });
    this.process = child;
    if (!signal) onTestFinished(() => void child.kill("SIGKILL"));
    child.stdout.on("data", (chunk: Buffer) => this.take(chunk));
    child.stderr.on("data", (chunk: Buffer) => {
      this.stderr = (this.stderr + chunk).slice(-4000);
    });
    // A server that ends while it is written to is one of the things that are looked for.
    child.stdin.on("error", () => {});
    child.on("error", (error) => {
      if (error.name !== "AbortError") this.faults.push(`cannot start: ${error.message}`);
    });
    this.exit = new Promise((resolve) =>
      child.on("close", (code, name) => {
        const status = code ?? name ?? "unknown";
        this.leave(status);
        resolve(status);
      }),
    );
  }

  /** The last words of a dead server: of a stack trace, the line with the error. */
  get reason(): string {
    return /^[\w ]+: .*$/m.exec(this.stderr)?.[0] ?? this.stderr.slice(-300);
  }

  get isGone(): boolean {
    return this.process.exitCode !== null || this.process.signalCode !== null;
  }

  /** Sends a request; null says that it was never answered. `apart` is for requests that wait for no session. */
  ask(method: string, params: object = {}): Promise<Answer | null> {
    return this.askAll([[method, params]])[0];
  }

  /** Sends requests in one write. */
  askAll(requests: readonly (readonly [method: string, params?: object])[], apart = false): Promise<Answer | null>[] {
    let text = "";
    const answers = requests.map(([method, params = {}]) => {
      const id = `w${++this.count}`;
      text += frame(
        this.framing,
        this.dialect === "pi" ? { id, type: method, ...params } : { jsonrpc: "2.0", id, method, params },
      );
      return new Promise<Answer | null>((settle) => {
        if (this.isGone) return settle(null);
        this.pending.set(id, { method, settle });
        if (!apart) this.lane.push(id);
      });
    });
    this.process.stdin.write(text);
    this.watch();
    return answers;
  }

  /** Closes the server's input; it answers pending requests first. */
  end(): Promise<number | string> {
    if (this.ordered === "nothing") this.ordered = "end";
    this.process.stdin.end();
    this.watch();
    return this.exit;
  }

  kill(): Promise<number | string> {
    this.ordered = "kill";
    this.process.kill("SIGKILL");
    return this.exit;
  }

  private watch(): void {
    clearTimeout(this.watchdog);
    if (this.pending.size === 0 && this.ordered === "nothing") return;
    // After a broken frame nothing more need come.
    const silence = this.faults.length > 0 ? SILENCE / 6 : SILENCE;
    this.watchdog = setTimeout(() => {
      const methods = [...this.pending.values()].map(({ method }) => method);
      this.faults.push(`silent for ${silence / 1000} s, owes ${methods.join(", ") || "its end"}: ${this.rest()}`);
      this.unanswered += this.pending.size;
      this.settleAll();
      void this.kill();
    }, SILENCE);
  }

  private leave(status: number | string): void {
    clearTimeout(this.watchdog);
    if (this.ordered === "nothing" || (this.ordered === "end" && status !== 0)) this.died = true;
    // Death may cut a frame off, nothing else.
    if (this.ordered !== "kill") {
      if (this.unread.length > 0) this.faults.push(`the output ends within a frame: ${this.rest()}`);
      this.unanswered += this.pending.size;
    }
    this.settleAll();
  }

  private settleAll(): void {
    const waiting = [...this.pending.values()];
    this.pending.clear();
    for (const { settle } of waiting) settle(null);
  }

  private rest(): string {
    return Buffer.concat(this.unread).toString("latin1").slice(0, 300);
  }

  private take(chunk: Buffer): void {
    this.unread.push(chunk);
    if (this.framing === "headers" || chunk.includes(0x0a)) {
      let bytes: Buffer = Buffer.concat(this.unread);
      for (let cut = this.cut(bytes); cut !== null; cut = this.cut(bytes)) {
        this.handle(bytes.subarray(cut.start, cut.end));
        bytes = bytes.subarray(cut.next);
      }
      this.unread = bytes.length > 0 ? [bytes] : [];
    }
    this.watch();
  }

  private cut(bytes: Buffer): { start: number; end: number; next: number } | null {
    if (this.framing === "lines") {
      const end = bytes.indexOf(0x0a);
      return end < 0 ? null : { start: 0, end, next: end + 1 };
    }
    const header = /^Content-Length: (\d+)\r\n\r\n/.exec(bytes.subarray(0, 40).toString("latin1"));
    if (!header && bytes.length < 40) return null;
    if (!header) {
      this.faults.push(`no header: ${bytes.subarray(0, 300).toString("latin1")}`);
      return { start: 0, end: 0, next: bytes.length };
    }
    const start = header[0].length;
    const end = start + Number(header[1]);
    return bytes.length < end ? null : { start, end, next: end };
  }

  private handle(payload: Buffer): void {
    if (payload.length === 0) return;
    const text = payload.toString("utf8");
    const fault = (what: string): void => void this.faults.push(`${what}: ${text.slice(0, 300)}`);
    let message: Json;
    try {
      message = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(payload));
    } catch {
      message = undefined;
    }
    if (typeof message !== "object" || message === null) return fault("not a whole message");
    if (message.id === undefined || typeof message.method === "string") {
      const { method, params, type, ...rest } = message;
      if (typeof (method ?? type) !== "string" || type === "response") fault("neither reply nor event");
      const event = { name: method ?? type, params: params ?? rest, text, number: ++this.heard };
      this.events.push(event);
      return this.remember(`event ${[event.name, ...kindsIn(event)].join(" ")}`);
    }
    const asked = this.pending.get(message.id);
    if (!asked) return fault("answers nothing that was asked, or a second time");
    this.pending.delete(message.id);
    // Replies leave in the order of the requests: one that was passed over does not come any more.
    const place = this.lane.indexOf(message.id);
    for (const id of this.lane.splice(0, place + 1).slice(0, -1)) {
      const passed = this.pending.get(id) as Pending;
      this.faults.push(`${passed.method} was not answered before the ${asked.method} behind it`);
      this.unanswered++;
      this.pending.delete(id);
      passed.settle(null);
    }
    const answer = this.answer(message, text);
    this.remember(`reply ${asked.method}${answer.failure ? ` ${answer.failure.name}` : ""}`);
    asked.settle(answer);
  }

  private remember(frame: string): void {
    this.frames.push(frame);
    if (this.frames.length > REMEMBERED) this.frames.shift();
  }

  private answer(message: Json, text: string): Answer {
    const { heard } = this;
    if (this.dialect === "pi") {
      if (message.success === true) return { result: message.data ?? {}, text, heard };
      return { failure: { name: message.code ?? "none", text: message.error, data: message }, text, heard };
    }
    const { error } = message;
    if (error === undefined) return { result: message.result, text, heard };
    const name = error.data?.name ?? String(error.code);
    return { failure: { name, text: error.message, data: error.data }, text, heard };
  }
}

/** Returns the kinds of damage, or the origin, in an event. */
export function kindsIn({ params }: Pick<Heard, "params">): string[] {
  const damage: Json[] = Array.isArray(params?.damage) ? params.damage : [];
  const origin = typeof params?.origin === "string" ? [params.origin] : [];
  return [...origin, ...damage.map(({ kind }) => String(kind))];
}
