/** Hooks of a session that several hosts share: whose command it is is asked, else one of those that registered. */

import type { SharedClient } from "../../core/ports/attach.ts";
import type { HookAnswer, HookName } from "../../handlers/shared/hooks.ts";
import type { Hooks, Question } from "../connection/hooks.ts";
import { Guest } from "./guest.ts";
import { HOOKS } from "./words.ts";

export type AskedHost = Pick<Hooks, "has" | "ask">;

export class SharedHooks implements AskedHost {
  private readonly caller: AskedHost;
  /** The caller, as others are told of it. */
  private readonly client: object;
  /** Returns all hosts of the session in the order in which they are asked: the holder's, and those who joined. */
  private readonly hosts: () => readonly AskedHost[];

  constructor(caller: AskedHost, { id, name, pid }: SharedClient, hosts: () => readonly AskedHost[]) {
    this.caller = caller;
    this.client = { id, name, pid };
    this.hosts = hosts;
  }

  has(name: HookName): boolean {
    return this.nextFor(name, new Set()) !== undefined;
  }

  private nextFor(name: HookName, tried: ReadonlySet<AskedHost>): AskedHost | undefined {
    // The others are about what a host has open, which nobody else has a say in.
    const candidates = HOOKS.includes(name) ? [this.caller, ...this.hosts()] : [this.caller];
    return candidates.find((host) => !tried.has(host) && host.has(name));
  }

  ask(name: HookName, payload: Readonly<Record<string, unknown>>, onId: (id: string) => void): Question {
    const tried = new Set<AskedHost>();
    let question: Question | undefined;
    let asked = this.caller;
    const answerOf = async (host: AskedHost): Promise<HookAnswer> => {
      tried.add(host);
      asked = host;
      question = host.ask(name, host === this.caller ? payload : { ...payload, client: this.client }, onId);
      const answer = await question.answer;
      // Nobody waits for the command of a host that is gone. In the place of another, the next one is asked.
      const next = answer.reason === "host_gone" && host !== this.caller ? this.nextFor(name, tried) : undefined;
      return next ? answerOf(next) : answer;
    };
    const answer = answerOf(this.nextFor(name, tried) ?? this.caller);
    answer.catch(() => {});
    return {
      answer,
      cancel: () => question?.cancel(),
      asks: (peer) => (asked instanceof Guest ? asked : undefined) === peer,
    };
  }
}
