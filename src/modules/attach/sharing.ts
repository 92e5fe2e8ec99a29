/** Shares sessions between processes: the process with the lock lets the others join. */

import { Failure } from "../../core/failure.ts";
import type { Session } from "../../core/session/session.ts";
import type { PresentClient } from "../../handlers/shared/command.ts";
import type { HookAnswer, HookName } from "../../handlers/shared/hooks.ts";
import { isForHolder } from "../../handlers/shared/repetition.ts";
import type { SharingOptions } from "../../server/attach-module.ts";
import type { AskedHost, Call, Question } from "../../server/connection/call.ts";
import type { PendingEvent } from "../../server/connection/events.ts";
import type { Decision, Redirection } from "../../server/dispatch/gate.ts";
import type { Sharing, SharingServer } from "../../server/dispatch/sharing.ts";
import type { Attachments } from "./announcing.ts";
import type { Attachment } from "./attachment.ts";
import { Guest } from "./guest.ts";
import { Hosting } from "./hosting.ts";
import { Attaching } from "./joining.ts";
import { SHARED_HOOKS } from "./protocol.ts";

/** Default milliseconds of silence after which a process counts as stopped. */
const ANSWERS_WITHIN = 30_000;

interface SharingParts extends Pick<SharingOptions, "durability" | "holderTimeout"> {
  readonly server: SharingServer;
  readonly attachments: Attachments;
  /** Name of this server for others. */
  readonly client: string;
}

export class SessionSharing implements Sharing {
  private readonly hosting: Hosting;
  private readonly attaching: Attaching;
  private readonly server: SharingServer;
  /** Sessions to be checked after the replies of this turn are sent. */
  private planned: Set<Session> | "all" | undefined;
  private isClosed = false;

  constructor({
    server,
    attachments,
    client,
    durability,
    holderTimeout: answersWithin = ANSWERS_WITHIN,
  }: SharingParts) {
    const parts = { server, attachments, durability, answersWithin };
    const keys = { prefix: server.workspace.env.sessionId(), used: 0 };
    this.server = server;
    this.hosting = new Hosting(parts);
    this.attaching = new Attaching({ ...parts, client, keys, hosting: this.hosting });
  }

  // --- the gate of calls ---------------------------------------------------------------------------------------

  before(call: Call, session: Session | null): ReturnType<Sharing["before"]> {
    if (call.peer) return undefined;
    const attachment = this.attaching.of(session);
    const { needsHolder, showsClients } = call.command;
    if (!attachment) {
      if (!(needsHolder || showsClients) || !session || session.log.lock.holder === null) return undefined;
      return showsClients ? this.comeToHolder(session) : this.joined(session);
    }
    if (showsClients) return attachment.hear();
    if (isForHolder(call)) return attachment.redirection;
    const { effect } = call.command;
    // A write is refused once it is known that it was not answered before.
    if (effect === "read" || effect === "replace" || effect === "control") attachment.follow();
    return undefined;
  }

  findHolder(call: Call, session: Session): Decision {
    if (call.peer) return undefined;
    const attachment = this.attaching.of(session);
    if (!isForHolder(call)) {
      const { dryRun } = call.params as { dryRun?: boolean };
      if (attachment && dryRun !== true) throw makeHolderFailure(call, attachment);
      attachment?.follow();
      return undefined;
    }
    return attachment?.redirection ?? this.joined(session);
  }

  /** Joins the process that holds a session. One on another machine cannot be joined. */
  private joined(session: Session): Promise<Redirection | undefined> | undefined {
    if (session.log.lock.holder?.host !== undefined) return undefined;
    return this.attaching.join(session).then((joined) => joined?.redirection);
  }

  follow(session: Session): void {
    this.attaching.of(session)?.follow();
  }

  private async comeToHolder(session: Session): Promise<void> {
    await this.joined(session);
  }

  // --- upkeep --------------------------------------------------------------------------------------------------

  plan(written?: Session | null): void {
    const isFirst = this.planned === undefined;
    this.planned ??= new Set();
    if (!written) this.planned = "all";
    else if (this.planned !== "all") this.planned.add(written);
    if (!isFirst) return;
    setImmediate(() => {
      const { planned } = this;
      this.planned = undefined;
      this.sweep(planned === "all" ? undefined : planned);
    });
  }

  poll(sessions: readonly Session[]): void {
    this.hosting.renew(sessions);
    this.sweep(undefined, sessions);
  }

  /**
   * Opens entrances to sessions that this process holds, joins those that others hold, and leaves closed ones: some
   * sessions, or all. `joined`: sessions to join now if others hold them.
   */
  private sweep(some?: Iterable<Session>, joined = some): void {
    // A sweep planned by the last answered call may still come.
    if (this.isClosed) return;
    const { workspace } = this.server;
    if (some) this.hosting.sweep(some);
    else this.hosting.sweepAll();
    this.attaching.sweep((session) => workspace.isOpen(session));
    if (!this.server.canSendEvents) return;
    // Looking up a lock's holder reads the list of all sockets.
    for (const session of joined ?? workspace.sessions)
      if (workspace.isOpen(session) && !this.attaching.of(session) && session.log.lock.holder !== null)
        void this.attaching.join(session, false);
  }

  // --- clients -------------------------------------------------------------------------------------------------

  hasGuests(session: Session | null): boolean {
    return this.hosting.hasGuests(session);
  }

  getHooks(session: Session | null, call: Call): AskedHost {
    const isAlone = !this.hosting.hasGuests(session) && !this.hosting.whenBack(session) && !call.needsConsent;
    if (session === null || isAlone) return this.server.hooks;
    return new SharedHooks(call, session, this.server, this.hosting);
  }

  introduce(): void {
    this.attaching.introduce();
    this.hosting.introduceSelf();
  }

  clientsOf(session: Session): readonly PresentClient[] {
    const attachment = this.attaching.of(session);
    const self = this.server.presence.on(session);
    if (!attachment) {
      const [, ...guests] = this.hosting.clientsOf(session);
      return [
        { ...self, isHolder: session.hasLock, isSelf: true },
        ...guests.map((one) => ({ ...one, isHolder: false, isSelf: false })),
      ];
    }
    // The local host's own facts are fresher than the reported ones.
    const { others, holderId, selfId } = attachment.clients;
    const ofOthers = others.map((client) => ({ ...client, isHolder: client.id === holderId, isSelf: false }));
    return [{ ...self, id: selfId || self.id, isHolder: false, isSelf: true }, ...ofOthers];
  }

  alone<T>(session: Session, doing: string, run: () => T): T {
    return this.hosting.alone(session, doing, run);
  }

  report(session: Session | null, event: PendingEvent, by: Call | undefined): void {
    this.hosting.report(session, event, by);
  }

  // --- the end -------------------------------------------------------------------------------------------------

  stop(): void {
    this.hosting.stop();
  }

  hurry(): void {
    this.attaching.hurry();
  }

  close(): void {
    this.isClosed = true;
    this.hosting.close();
    this.attaching.close();
  }
}

function makeHolderFailure({ command }: Call, attachment: Attachment): Failure {
  const { client, pid, name } = attachment.holderFacts;
  const instead = command.instead === undefined ? "" : ` ${command.instead}`;
  return new Failure(
    "session_locked",
    `${command.name} must be run by ${name ?? client} (process ${pid}), which holds this session. Run it there, or close the session there and try again.${instead}`,
    { holder: { client, pid, name } },
    { retryable: false },
  );
}

// --- hooks of several hosts -----------------------------------------------------------------------------------------

class SharedHooks implements AskedHost {
  private readonly call: Call;
  private readonly session: Session;
  private readonly server: SharingServer;
  private readonly hosting: Hosting;
  private readonly caller: AskedHost;

  constructor(call: Call, session: Session, server: SharingServer, hosting: Hosting) {
    this.call = call;
    this.session = session;
    this.server = server;
    this.hosting = hosting;
    this.caller = call.peer ?? server.hooks;
  }

  has(name: HookName): boolean {
    const mayBeBack = SHARED_HOOKS.includes(name) && this.hosting.whenBack(this.session) !== undefined;
    return this.call.needsConsent || mayBeBack || this.nextFor(name, new Set()) !== undefined;
  }

  private nextFor(name: HookName, tried: ReadonlySet<AskedHost>): AskedHost | undefined {
    const { caller, server, hosting } = this;
    // All other hooks concern the caller's own sessions, so no other host is asked.
    const others = SHARED_HOOKS.includes(name) ? [server.hooks, ...hosting.guestsOf(this.session)] : [];
    return [caller, ...others].find((host) => !tried.has(host) && host.has(name));
  }

  ask(name: HookName, payload: Readonly<Record<string, unknown>>, onId: (id: string) => void): Question {
    const { call, session, server, hosting } = this;
    const { id, name: ofHost, pid } = call.peer?.client ?? server.presence.on(session);
    const tried = new Set<AskedHost>();
    let question: Question | undefined;
    let asked = this.caller;
    const answerOf = async (host: AskedHost): Promise<HookAnswer> => {
      tried.add(host);
      asked = host;
      call.peer?.noteAsked(call);
      question = host.ask(
        name,
        host === this.caller ? payload : { ...payload, client: { id, name: ofHost, pid } },
        onId,
      );
      const answer = await question.answer;
      // The call of a host that is gone needs no answer. If another host is gone, the next one is asked.
      const next = answer.reason === "host_gone" && host !== this.caller ? this.nextFor(name, tried) : undefined;
      return next ? answerOf(next) : answer;
    };
    const decide = async (): Promise<HookAnswer> => {
      if (!this.nextFor(name, tried)) await hosting.whenBack(session);
      const host = this.nextFor(name, tried);
      if (host) return answerOf(host);
      return call.needsConsent || hosting.isEnding ? { cancelled: true, reason: "host_gone" } : { cancelled: false };
    };
    const answer = decide();
    answer.catch(() => {});
    return {
      answer,
      cancel: () => question?.cancel(),
      asks: (peer) => (asked instanceof Guest ? asked : undefined) === peer,
    };
  }
}
