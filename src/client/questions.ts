/** The hooks' questions of the server, and the answers of the handlers. */

import { named } from "./failure.ts";
import type { RpcMessage } from "./message-stream.ts";
import type { Hooks } from "./protocol.ts";
import type { ClientOptions, HookContext, HookHandler, RequestOptions } from "./types.ts";

type Answer = Pick<RpcMessage, "result" | "error">;

/** Asks the server while it waits for an answer. */
type ReadMeanwhile = (name: string, params: object, options: RequestOptions) => Promise<never>;

export class Questions {
  private readonly handlers: NonNullable<ClientOptions["hooks"]>;
  private readonly read: ReadMeanwhile;
  /** Those that are being answered, by the id of the question. */
  private readonly asked = new Map<number | string, AbortController>();
  private isClosed = false;

  constructor(handlers: ClientOptions["hooks"], read: ReadMeanwhile) {
    this.handlers = handlers ?? {};
    this.read = read;
  }

  get names(): string[] {
    return Object.keys(this.handlers);
  }

  /** Returns the handler's answer as JSON text; an error in its place when it throws, or is not waited for any more. */
  async answer(id: number | string, name: string, payload: unknown): Promise<string> {
    const controller = new AbortController();
    this.asked.set(id, controller);
    if (this.isClosed) controller.abort();
    try {
      return textOf(id, { result: (await this.handled(id, name, payload, controller.signal)) ?? {} });
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      return textOf(id, { error: { code: -32603, message } });
    } finally {
      if (this.asked.get(id) === controller) this.asked.delete(id);
    }
  }

  /** Notifies a handler that the server has stopped waiting for it. */
  withdraw(id: number | string | undefined): void {
    this.asked.get(id as number)?.abort();
  }

  withdrawAll(): void {
    for (const controller of this.asked.values()) controller.abort();
    this.asked.clear();
  }

  /** Answers all questions, now and later, with an error: the action is not done. */
  close(): void {
    this.isClosed = true;
    this.withdrawAll();
  }

  private handled(id: number | string, name: string, payload: unknown, signal: AbortSignal): Promise<unknown> {
    const handler = this.handlers[name as keyof Hooks] as HookHandler<keyof Hooks> | undefined;
    const request: HookContext["request"] = (read, ...[params, options]) => {
      const meta = { ...(params as { _meta?: object } | undefined)?._meta, hook: id };
      return named(read, this.read(read, { ...params, _meta: meta }, options ?? {})) as Promise<never>;
    };
    return new Promise((resolve, reject) => {
      if (!handler) throw new Error(`There is no handler for ${name}.`);
      const stop = (): void => reject(new Error("The host does not answer this any more."));
      if (signal.aborted) return stop();
      signal.addEventListener("abort", stop, { once: true });
      Promise.resolve(handler(payload as never, { signal, request })).then(resolve, reject);
    });
  }
}

function textOf(id: number | string, answer: Answer): string {
  return JSON.stringify({ jsonrpc: "2.0", id, ...answer });
}
