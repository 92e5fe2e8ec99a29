/** A server and its only host in one process: the requests of a verb go over the wire as those of any host do. */

import { PassThrough } from "node:stream";
import { parseText } from "../core/json/json.ts";
import { type Service, serve, type World } from "../server/main.ts";
import type { ServerSettings } from "../server/settings.ts";
import { CommandFailed, type EventCallback, type Result } from "./asking.ts";

/** A callback for progress: `done` of `total` of what a command does. */
export type ProgressCallback = (done: number, total: number, method: string) => void;

interface AskedCommand {
  readonly method: string;
  /** Whether it may change something. */
  readonly isChange: boolean;
  resolve(result: Result): void;
  reject(error: CommandFailed): void;
}

/** Commands that change nothing. */
const READS = /^(get|list|search|switch|open|close|verify|compare|prepare)_|^migration_status$/;

export class Wire {
  readonly service: Service;
  /** The latest result, and its text as it was on the wire. */
  last: { readonly result: Result; readonly text: string } | undefined;
  private readonly input = new PassThrough();
  private readonly output = new PassThrough();
  /** Called with each event. */
  told: EventCallback | undefined;
  /** Whether a command that may change something was sent. */
  mayHaveChanged = false;
  private readonly waiting = new Map<number, AskedCommand>();
  private readonly progress: ProgressCallback | undefined;
  private unread: string[] = [];
  private ids = 0;

  constructor(settings: ServerSettings, world: Omit<World, "input" | "output">, progress?: ProgressCallback) {
    this.progress = progress;
    this.service = serve(settings, { ...world, input: this.input, output: this.output });
    this.output.setEncoding("utf8").on("data", (text: string) => this.receive(text));
  }

  /** Sends a command and returns its result. Throws CommandFailed. */
  ask(method: string, params: Readonly<Record<string, unknown>> = {}): Promise<Result> {
    const id = ++this.ids;
    const _meta = this.progress ? { progressToken: id } : undefined;
    const isChange = !READS.test(method) && params.dryRun !== true;
    this.mayHaveChanged ||= isChange;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { method, isChange, resolve, reject });
      this.input.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params: { ...params, _meta } })}\n`);
    });
  }

  /** Whether a command runs that may change something. */
  get isChanging(): boolean {
    return [...this.waiting.values()].some(({ isChange }) => isChange);
  }

  /** Asks the server to give up what has not begun. */
  cancelAll(): void {
    for (const id of this.waiting.keys())
      this.input.write(`${JSON.stringify({ jsonrpc: "2.0", method: "$/cancelRequest", params: { id } })}\n`);
  }

  async end(): Promise<void> {
    this.input.end();
    await this.service.done;
  }

  private receive(text: string): void {
    // A long line comes in many pieces, which are joined only once.
    const lines = text.split("\n");
    if (lines.length === 1) {
      this.unread.push(text);
      return;
    }
    lines[0] = this.unread.join("") + lines[0];
    this.unread = [lines.pop() as string];
    for (const line of lines) this.receiveLine(line);
  }

  private tell(method: string, params: Result, line: string): void {
    if (!this.told) return;
    this.output.pause();
    void this.told(method, params, line).finally(() => this.output.resume());
  }

  private receiveLine(line: string): void {
    const { method, params, id, result, error } = parseText(line) as Result;
    if (method === "$/progress") {
      const { token, value } = params;
      return this.progress?.(value.done, value.total, this.waiting.get(token)?.method ?? "");
    }
    if (method !== undefined) return this.tell(method, params, line);
    const waiting = this.waiting.get(id);
    if (!waiting) return;
    this.waiting.delete(id);
    if (error) return waiting.reject(new CommandFailed(error));
    // Results are kept as they came, including numbers and the order of members.
    this.last = { result, text: line.slice(`{"jsonrpc":"2.0","id":${id},"result":`.length, -1) };
    waiting.resolve(result);
  }
}
