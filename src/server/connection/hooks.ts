/** Asks the host before the server acts (protocol, section 5), over the same streams. */

import { Failure } from "../../core/failure.ts";
import { toMembers } from "../../core/format/loose.ts";
import { toStored } from "../../core/format/message.ts";
import type { HookAnswer, HookName, HookRegistration } from "../../handlers/shared/hooks.ts";
import type { AskedHost, Question } from "./call.ts";
import type { Dialect, HookMessage, Pieces } from "./dialect.ts";
import { PendingRequests } from "./pending-requests.ts";

/** Milliseconds that the host has for an answer; there is no limit where a model may be at work. */
const LIMITS: Readonly<Record<HookName, number | undefined>> = {
  session_before_switch: 30_000,
  session_before_fork: 30_000,
  session_before_tree: undefined,
  session_before_compact: undefined,
};

/** The end of the wait for an answer: the host's response, or the decision without one. */
type HookOutcome = { readonly response: HookMessage } | { readonly decision: HookAnswer };

const HOST_GONE: HookOutcome = { decision: { cancelled: true, reason: "host_gone" } };

export class Hooks implements AskedHost {
  private registered = new Map<HookName, HookRegistration>();
  private readonly send: (pieces: Pieces) => void;
  private readonly dialect: () => Dialect;
  /** Milliseconds that override every limit, if given. */
  private readonly timeout: number | undefined;
  private readonly waiting = new PendingRequests<unknown, HookOutcome>();
  private count = 0;
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
  receive(response: HookMessage): void {
    this.waiting.resolve(response.id, { response });
  }

  /** Cancels every open question, because the host can answer nothing any more. */
  abandon(): void {
    this.hostGone = true;
    this.waiting.resolveAll(HOST_GONE);
  }

  /** Asks the host. `onId` gets the request's id as JSON text as soon as it is known. */
  ask(name: HookName, payload: Readonly<Record<string, unknown>>, onId: (id: string) => void): Question {
    const id = this.count++;
    const outcome = this.waiting.wait(id, name);
    // A question may be cancelled before a caller waits for it.
    outcome.catch(() => {});
    if (this.hostGone) this.waiting.resolve(id, HOST_GONE);
    const send = (): void => {
      onId(JSON.stringify(id));
      this.say({ jsonrpc: "2.0", id, method: name, params: { ...payload } });
    };
    return {
      answer: this.exchange(id, name, send, outcome),
      cancel: () => this.waiting.reject(id, new Failure("cancelled")),
    };
  }

  private async exchange(
    id: number,
    name: HookName,
    send: () => void,
    outcome: Promise<HookOutcome>,
  ): Promise<HookAnswer> {
    const { decideOnAnswer, decideOnError } = await import("../../handlers/shared/hooks.ts");
    send();
    const limit = this.timeout ?? LIMITS[name];
    const goOn = this.registered.get(name)?.onTimeout === "continue";
    const decision = goOn ? { cancelled: false } : { cancelled: true, reason: "hook_timeout" };
    const timer = limit === undefined ? undefined : setTimeout(() => this.waiting.resolve(id, { decision }), limit);
    let isAnswered = false;
    try {
      const ended = await outcome;
      if ("decision" in ended) return ended.decision;
      isAnswered = true;
      const { result, error } = ended.response;
      if (!error && result !== undefined) return decideOnAnswer(name, result);
      // A host whose hook fails has not agreed.
      return decideOnError(name, new Error(toStored(toMembers(error).message)));
    } finally {
      clearTimeout(timer);
      if (!isAnswered) this.say({ jsonrpc: "2.0", method: "$/cancelRequest", params: { id } });
    }
  }

  private say(message: HookMessage): void {
    this.send(this.dialect().hook(message));
  }
}
