/** A server and its only host in one process: the requests of a verb go over the wire as those of any host do. */

import { constants } from "node:buffer";
import { PassThrough } from "node:stream";
import { parseText } from "../core/json/json.ts";
import { type Service, serve, type World } from "../server/main.ts";
import type { ServerSettings } from "../server/settings.ts";
import { type AnyResult, CommandFailed, type EventCallback } from "./verb-context.ts";

/** A callback for progress: `done` of `total` of what a command does. */
type ProgressCallback = (done: number, total: number, method: string) => void;

interface AskedCommand {
  readonly method: string;
  /** True if it may change something. */
  readonly isChange: boolean;
  resolve(result: AnyResult): void;
  reject(error: CommandFailed): void;
}

/** Characters of a reply that is too long to be held, which are kept of it: its id is among the first. */
const BEGINNING = 100;

/** Commands that change nothing. */
const READS = /^(get|list|search|switch|open|close|verify|compare|prepare)_|^migration_status$/;

export class Wire {
  readonly service: Service;
  /** The latest result, and its text as it was on the wire. */
  last: { readonly result: AnyResult; readonly text: string } | undefined;
  private readonly input = new PassThrough();
  private readonly output = new PassThrough();
  /** Called with each event. */
  callback: EventCallback | undefined;
  /** True if a command that may change something was sent. */
  mayHaveChanged = false;
  private readonly waiting = new Map<number, AskedCommand>();
  private readonly progress: ProgressCallback | undefined;
  private unread: string[] = [];
  /** Characters of the line that has begun. */
  private length = 0;
  private readonly longest: number;
  private ids = 0;
  private hasEnded = false;

  /** `longest`: characters of a reply; a longer one does not fit into a string. */
  constructor(
    settings: ServerSettings,
    world: Omit<World, "input" | "output" | "isHeard">,
    progress?: ProgressCallback,
    longest = constants.MAX_STRING_LENGTH,
  ) {
    this.progress = progress;
    this.longest = longest;
    const isHeard = (): boolean => !this.hasEnded;
    this.service = serve(settings, { ...world, input: this.input, output: this.output, isHeard });
    this.output.setEncoding("utf8").on("data", (text: string) => this.receive(text));
  }

  /** Sends a command and returns its result. Throws CommandFailed. */
  ask(method: string, params: Readonly<Record<string, unknown>> = {}): Promise<AnyResult> {
    const id = ++this.ids;
    const _meta = this.progress ? { progressToken: id } : undefined;
    const isChange = !READS.test(method) && params.dryRun !== true;
    this.mayHaveChanged ||= isChange;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { method, isChange, resolve, reject });
      this.input.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params: { ...params, _meta } })}\n`);
    });
  }

  /** True while a command runs that may change something. */
  get isChanging(): boolean {
    return [...this.waiting.values()].some(({ isChange }) => isChange);
  }

  /** Asks the server to cancel the requests that have not begun. */
  cancelAll(): void {
    for (const id of this.waiting.keys())
      this.input.write(`${JSON.stringify({ jsonrpc: "2.0", method: "$/cancelRequest", params: { id } })}\n`);
  }

  /** Ends the server; what only reads is not waited for. */
  async end(): Promise<void> {
    this.hasEnded = true;
    this.input.end();
    await this.service.done;
  }

  private receive(text: string): void {
    const rest = text.split("\n");
    const begun = rest.pop() as string;
    for (const end of rest) {
      this.keep(end);
      const line = this.unread.join("");
      const isWhole = this.length <= this.longest;
      this.unread = [];
      this.length = 0;
      if (isWhole) this.receiveLine(line);
      else this.refuse(line);
    }
    this.keep(begun);
  }

  /** Adds to the line that has begun. A long one comes in many pieces, which are joined only once. */
  private keep(piece: string): void {
    this.length += piece.length;
    if (this.length <= this.longest) this.unread.push(piece);
    else this.unread = [(this.unread.find((one) => one !== "") ?? piece).slice(0, BEGINNING)];
  }

  /** Answers a command whose reply exceeds Node's maximum string length. */
  private refuse(beginning: string): void {
    const [, id] = /^\{"jsonrpc":"2\.0","id":(\d+),/.exec(beginning) ?? [];
    const waiting = this.waiting.get(Number(id));
    if (!waiting) return;
    this.waiting.delete(Number(id));
    const message =
      "The reply exceeds Node's maximum string length. Ask for a part of it, or export the session with the format jsonl, which has it as it is stored.";
    waiting.reject(new CommandFailed({ code: -32803, message, data: { name: "message_too_large", retryable: false } }));
  }

  private notify(method: string, params: AnyResult, line: string): void {
    if (!this.callback) return;
    this.output.pause();
    void this.callback(method, params, line).finally(() => this.output.resume());
  }

  private receiveLine(line: string): void {
    const { method, params, id, result, error } = parseText(line) as AnyResult;
    if (method === "$/progress") {
      const { token, value } = params;
      return this.progress?.(value.done, value.total, this.waiting.get(token)?.method ?? "");
    }
    if (method !== undefined) return this.notify(method, params, line);
    const waiting = this.waiting.get(id);
    if (!waiting) return;
    this.waiting.delete(id);
    if (error) return waiting.reject(new CommandFailed(error));
    // Results are kept as they came, including numbers and the order of members.
    this.last = { result, text: line.slice(`{"jsonrpc":"2.0","id":${id},"result":`.length, -1) };
    waiting.resolve(result);
  }
}
