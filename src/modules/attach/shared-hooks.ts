/** Hooks of a session that several hosts share: asks the caller's host first, then the registered ones. */

import type { SharedClient } from "../../core/ports/attach.ts";
import type { HookAnswer, HookName } from "../../handlers/shared/hooks.ts";
import type { AskedHost, Question } from "../../server/connection/call.ts";
import { Guest } from "./guest.ts";
import { SHARED_HOOKS } from "./protocol.ts";

export class SharedHooks implements AskedHost {
  private readonly caller: AskedHost;
  /** Description of the caller for the other hosts. */
  private readonly client: object;
  /** Returns all hosts of the session in the order of asking: the holder's, then the guests. */
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
    // All other hooks concern the caller's own sessions, so no other host is asked.
    const candidates = SHARED_HOOKS.includes(name) ? [this.caller, ...this.hosts()] : [this.caller];
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
      // The call of a host that is gone needs no answer. If another host is gone, the next one is asked.
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
