/** Asks the host before the server acts (protocol, section 5), by a vscode-jsonrpc connection over the same streams. */

import type { MessageConnection } from "vscode-jsonrpc/node";
import { Failure } from "../../core/failure.ts";
import type { HookAnswer, HookName, HookRegistration } from "../../handlers/shared/hooks.ts";
import type { AskedHost, Question } from "./call.ts";
import type { Dialect, HookMessage, Pieces } from "./dialect.ts";

/** Milliseconds that the host has for an answer; there is no limit where a model may be at work. */
const LIMITS: Readonly<Record<HookName, number | undefined>> = {
  session_before_switch: 30_000,
  session_before_fork: 30_000,
  session_before_tree: undefined,
  session_before_compact: undefined,
};

export class Hooks implements AskedHost {
  private registered = new Map<HookName, HookRegistration>();
  private readonly send: (pieces: Pieces) => void;
  private readonly dialect: () => Dialect;
  /** Milliseconds that override every limit, if given. */
  private readonly timeout: number | undefined;
  private connecting: Promise<MessageConnection> | undefined;
  private receiveNow: ((message: HookMessage) => void) | undefined;
  private readonly ids = new WeakMap<object, (id: string) => void>();
  private readonly waiting = new Set<() => void>();
  private hostGone = false;

  constructor(send: (pieces: Pieces) => void, dialect: () => Dialect, timeout: number | undefined) {
    this.send = send;
    this.dialect = dialect;
    this.timeout = timeout;
  }

  register(hooks: readonly HookRegistration[]): void {
    this.registered = new Map(hooks.map((hook) => [hook.name, hook]));
  }

  has(name: HookName): boolean {
    return this.registered.has(name) && !this.hostGone;
  }

  /** Receives the host's response to a request. A response that belongs to no request is ignored. */
  receive(message: HookMessage): void {
    this.receiveNow?.(message);
  }

  /** Cancels every open question, because the host can answer nothing any more. */
  abandon(): void {
    this.hostGone = true;
    for (const cancel of [...this.waiting]) cancel();
  }

  /** Asks the host. `onId` gets the request's id as JSON text as soon as it is known. */
  ask(name: HookName, payload: Readonly<Record<string, unknown>>, onId: (id: string) => void): Question {
    let stop: (answer: HookAnswer | Failure) => void = () => {};
    const stopped = new Promise<HookAnswer>((resolve, reject) => {
      stop = (answer) => (answer instanceof Failure ? reject(answer) : resolve(answer));
    });
    // A question may be cancelled before a caller waits for it.
    stopped.catch(() => {});
    const hostGone = (): void => stop({ cancelled: true, reason: "host_gone" });
    this.waiting.add(hostGone);
    if (this.hostGone) hostGone();
    const answer = this.exchange(name, payload, onId, stopped).finally(() => this.waiting.delete(hostGone));
    return { answer, cancel: () => stop(new Failure("cancelled")) };
  }

  private async exchange(
    name: HookName,
    payload: Readonly<Record<string, unknown>>,
    onId: (id: string) => void,
    stopped: Promise<HookAnswer>,
  ): Promise<HookAnswer> {
    const { CancellationTokenSource } = await import("vscode-jsonrpc/node");
    const { decideOnAnswer: decisionOn, decideOnError: decisionOnError } = await import(
      "../../handlers/shared/hooks.ts"
    );
    const connection = await this.connect();
    const cancellation = new CancellationTokenSource();
    const params = { ...payload };
    this.ids.set(params, onId);
    const limit = this.timeout ?? LIMITS[name];
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<HookAnswer>((resolve) => {
      if (limit === undefined) return;
      const goOn = this.registered.get(name)?.onTimeout === "continue";
      const answer = goOn ? { cancelled: false } : { cancelled: true, reason: "hook_timeout" };
      timer = setTimeout(() => resolve(answer), limit);
    });
    let isAnswered = false;
    const asked = connection
      .sendRequest(name, params, cancellation.token)
      // A host whose hook fails has not agreed.
      .then(
        (answer) => decisionOn(name, answer),
        (error: Error) => decisionOnError(name, error),
      )
      .finally(() => {
        isAnswered = true;
      });
    try {
      return await Promise.race([asked, late, stopped]);
    } finally {
      clearTimeout(timer);
      if (!isAnswered) cancellation.cancel();
    }
  }

  private connect(): Promise<MessageConnection> {
    this.connecting ??= this.makeConnection().catch((error) => {
      // The module may be readable the next time.
      this.connecting = undefined;
      throw error;
    });
    return this.connecting;
  }

  private async makeConnection(): Promise<MessageConnection> {
    const { AbstractMessageReader, AbstractMessageWriter, createMessageConnection } = await import(
      "vscode-jsonrpc/node"
    );
    const hooks = this;
    class Responses extends AbstractMessageReader {
      listen(callback: (message: HookMessage) => void): { dispose(): void } {
        hooks.receiveNow = callback;
        return { dispose: () => {} };
      }
    }
    class Requests extends AbstractMessageWriter {
      async write(message: HookMessage): Promise<void> {
        if (message.method !== undefined && message.id !== undefined && typeof message.params === "object")
          hooks.ids.get(message.params as object)?.(JSON.stringify(message.id));
        hooks.send(hooks.dialect().hook(message));
      }
      end(): void {}
    }
    const connection = createMessageConnection(new Responses() as never, new Requests() as never);
    connection.listen();
    return connection;
  }
}
