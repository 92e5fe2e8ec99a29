/** Our own questions to an agent that speaks Pi's dialect, and the requests of its host. */

import { Failure } from "../../../core/failure.ts";
import { PendingRequests } from "../../../server/connection/pending-requests.ts";
import type { PiReply } from "../behind/lines.ts";

/** The prefix of our ids, which neither hosts nor agents use. */
const ID_PREFIX = "pi-session-server";

export class PiQuestions {
  private readonly send: (line: string) => void;
  private readonly prefix: string;
  private readonly waiting = new PendingRequests<string, PiReply>();
  private count = 0;

  /** `nonce` makes the ids unique to this program. */
  constructor(nonce: string, send: (line: string) => void) {
    this.prefix = `${ID_PREFIX}-${nonce}-`;
    this.send = send;
  }

  /**
   * Asks a question. Rejects when the agent ends, and after `within` milliseconds, unless `endAgent` is called then in
   * place of that.
   */
  ask(
    command: string,
    params: Readonly<Record<string, unknown>>,
    within: number,
    endAgent?: () => void,
  ): Promise<PiReply> {
    const id = `${this.prefix}${++this.count}`;
    const expire = endAgent ?? ((): void => this.waiting.reject(id, makeTimeoutFailure(command, within)));
    const reply = this.waiting.wait(id, command, { within, expire });
    this.send(`${JSON.stringify({ id, type: command, ...params })}\n`);
    return reply;
  }

  /**
   * Takes a reply to a question of ours, however late. Returns whether it is one. Versions before 0.79.7 leave the id
   * out of the refusal of an unknown command: `isOurs` says that no host request has this command.
   */
  take(reply: PiReply, isOurs: boolean): boolean {
    let { id } = reply;
    if (id === undefined && reply.success === false && isOurs) id = this.waiting.findByName(reply.command);
    if (typeof id !== "string" || !id.startsWith(this.prefix)) return false;
    this.waiting.resolve(id, reply);
    return true;
  }

  /** Rejects all questions. */
  abandon(failure: Failure): void {
    this.waiting.rejectAll(failure);
  }
}

function makeTimeoutFailure(command: string, within: number): Failure {
  const sentence = `The agent did not answer ${command} within ${within} ms. Abort its work, or end it; the next prompt starts it again.`;
  return new Failure("agent_failed", sentence);
}

export interface ForwardedRequest {
  readonly command: string;
  /** JSON text of the id; undefined if the host sent none. */
  readonly idText: string | undefined;
}

/** Answered requests that are remembered. */
const MAX_DONE = 100;

/** The requests of the host that the agent has not answered. */
export class ForwardedRequests {
  private waiting: ForwardedRequest[] = [];
  /** The last answered ones. */
  private readonly done: ForwardedRequest[] = [];
  private watchers: (() => void)[] = [];

  add(request: ForwardedRequest): void {
    this.waiting.push(request);
  }

  /** Returns whether one of these commands is unanswered. */
  has(commands: ReadonlySet<string>): boolean {
    return this.waiting.some(({ command }) => commands.has(command));
  }

  /**
   * Takes a reply to the request with its id, or to the oldest of its command if it has none, as in the refusals of old
   * versions. Returns whether there is such a request. The agent may answer one twice: that it begins, and then that it
   * failed.
   */
  answered({ id, command }: PiReply): boolean {
    const idText = id === undefined ? undefined : JSON.stringify(id);
    // A large number has several notations.
    const hasId = (one: ForwardedRequest): boolean =>
      one.idText === idText || (typeof id === "number" && Number(one.idText) === id);
    const isMeant = (one: ForwardedRequest): boolean => hasId(one) && one.command === command;
    let at = this.waiting.findIndex(isMeant);
    if (at < 0) at = this.waiting.findIndex((one) => (id === undefined ? one.command === command : hasId(one)));
    if (at < 0) return this.done.some(isMeant);
    this.done.push(...this.waiting.splice(at, 1));
    if (this.done.length > MAX_DONE) this.done.shift();
    for (const wake of this.watchers.splice(0)) wake();
    return true;
  }

  /** Resolves to true when none of these commands is unanswered, and to false after `within` milliseconds. */
  async waitForAnswers(commands: ReadonlySet<string>, within: number): Promise<boolean> {
    const until = performance.now() + within;
    while (this.has(commands)) {
      const left = until - performance.now();
      if (left <= 0) return false;
      let timer: NodeJS.Timeout | undefined;
      await new Promise<void>((resolve) => {
        this.watchers.push(resolve);
        timer = setTimeout(resolve, left);
        timer.unref();
      });
      clearTimeout(timer);
    }
    return true;
  }

  /** Removes and returns the request with an id, as JSON text. */
  takeById(idText: string | undefined): ForwardedRequest | undefined {
    const at = idText === undefined ? -1 : this.waiting.findIndex((one) => one.idText === idText);
    return at < 0 ? undefined : this.waiting.splice(at, 1)[0];
  }

  /** Removes and returns all unanswered requests. */
  takeAll(): readonly ForwardedRequest[] {
    const { waiting } = this;
    this.waiting = [];
    for (const wake of this.watchers.splice(0)) wake();
    return waiting;
  }
}
