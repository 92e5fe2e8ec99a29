/** Shares sessions between processes: the process with the lock lets the others join. */

import type { Duplex } from "node:stream";
import { Failure } from "../../core/failure.ts";
import type { Attachments } from "../../core/ports/attach.ts";
import type { Session } from "../../core/session/session.ts";
import type { PresentClient } from "../../handlers/shared/command.ts";
import type { HookName } from "../../handlers/shared/hooks.ts";
import { isForHolder } from "../../handlers/shared/repetition.ts";
import type { Call } from "../../server/connection/call.ts";
import type { Hooks, Question } from "../../server/connection/hooks.ts";
import type { PendingEvent } from "../../server/connection/host.ts";
import { Attaching } from "./attaching.ts";
import type { Attachment } from "./attachment.ts";
import { Guest } from "./guest.ts";
import { Hosting, type HostingHost, isHeld } from "./hosting.ts";
import type { OwnPresence } from "./presence.ts";
import { type AskedHost, SharedHooks } from "./shared-hooks.ts";

/** Default milliseconds of silence after which a process counts as stopped. */
const ANSWERS_WITHIN = 30_000;

export interface SharingOptions {
  readonly attachments: Attachments<Duplex>;
  /** Name of this server for others. */
  readonly client: string;
  /** The event that an acknowledged change survives. */
  readonly durability: "sync" | "os";
  /** Milliseconds of silence after which waiting for a process ends, if not the default. */
  readonly holderTimeout?: number;
}

/** Parts of the dispatcher that sharing uses. */
interface SharingHost extends HostingHost {
  /** Description of the local host for others. */
  readonly presence: OwnPresence;
  readonly hooks: Pick<Hooks, "has" | "ask">;
  /** True if events can be sent to the local host: its framing and dialect are known. */
  readonly canSendEvents: boolean;
  /** Sends events reported by the holder of a session, in order with its answers. */
  passOn(session: Session, events: PendingEvent[]): void;
  /** Asks the local host on behalf of the holder of a session. */
  askForHolder(session: Session, name: HookName, payload: Readonly<Record<string, unknown>>): Question;
  /** Counts events that the holder of a session dropped. */
  missed(session: Session, count: number): void;
}

export class Sharing {
  readonly hosting: Hosting;
  readonly attaching: Attaching;
  private readonly host: SharingHost;
  /** Sessions to be checked after the replies of this turn are sent. */
  private planned: Set<Session> | "all" | undefined;
  private isClosed = false;

  constructor({ attachments, client, durability, holderTimeout = ANSWERS_WITHIN }: SharingOptions, host: SharingHost) {
    const { presence } = host;
    const keys = host.workspace.env.sessionId();
    let keyed = 0;
    this.host = host;
    this.hosting = new Hosting({ attachments, durability, host, presence, answersWithin: holderTimeout });
    this.attaching = new Attaching({
      client,
      durability,
      answersWithin: holderTimeout,
      hooks: host.hooks,
      newKey: () => `${keys}-${++keyed}`,
      now: () => host.workspace.env.now(),
      ask: (session, name, payload) => host.askForHolder(session, name, payload),
      find: ({ file }) => (file === null ? null : attachments.find(file)),
      passOn: (session, events) => host.passOn(session, events),
      missed: (session, count) => host.missed(session, count),
      self: (session) => presence.on(session),
      tookOver: (session, others) => {
        this.sweep();
        this.hosting.await(session, others);
        return this.hosting.epochOf(session);
      },
    });
  }

  /** Plans a sweep after the replies of this turn: of a session that was written to, or of all. */
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

  /**
   * Opens entrances to sessions that this process holds, joins those that others hold, and leaves closed ones: some
   * sessions, or all. `joined`: sessions to join now if others hold them.
   */
  sweep(some?: Iterable<Session>, joined = some): void {
    // A sweep planned by the last answered call may still come.
    if (this.isClosed) return;
    const { workspace } = this.host;
    if (some) this.hosting.sweep(some);
    else this.hosting.sweepAll();
    this.attaching.sweep((session) => workspace.isOpen(session));
    if (!this.host.canSendEvents) return;
    // Looking up a lock's holder reads the list of all sockets.
    for (const session of joined ?? workspace.sessions)
      if (workspace.isOpen(session) && !this.attaching.of(session) && session.log.lockedBy !== null)
        void this.attaching.join(session, false);
  }

  /** Returns the attachment through which a call is passed on; undefined if it runs here. */
  findAttachment(call: Call, session: Session | null): Attachment | undefined {
    if (call.peer || call.fault !== undefined || call.target === null || !isForHolder(call)) return undefined;
    return this.attaching.of(session);
  }

  /** Throws session_locked for a call that only the holder of a joined session could run, and that is not passed on. */
  requireLocal(call: Call, session: Session): void {
    const { command, params, peer } = call;
    const attachment = peer ? undefined : this.attaching.of(session);
    const { dryRun } = params as { dryRun?: boolean };
    if (!attachment || dryRun === true || isForHolder(call)) return;
    const { client, pid, name } = attachment.holderFacts;
    const who = `${name ?? client} (process ${pid})`;
    const instead = command.instead === undefined ? "" : ` ${command.instead}`;
    throw new Failure(
      "session_locked",
      `${command.name} must be run by ${who}, which holds this session. Run it there, or close the session there and try again.${instead}`,
      { holder: { client, pid, name } },
    );
  }

  /** Returns the hosts to ask before a call on a session acts. */
  getHooks(session: Session | null, caller: AskedHost): AskedHost {
    if (session === null || !this.hosting.hasGuests(session)) return caller;
    const client = caller instanceof Guest ? caller.client : this.host.presence.on(session);
    return new SharedHooks(caller, client, () => [this.host.hooks, ...this.hosting.guestsOf(session)]);
  }

  /** Sends every other client of a shared session the local host's description and its hooks. */
  introduce(): void {
    this.attaching.introduce();
    this.hosting.introduceSelf();
  }

  /** Returns the clients of a session. */
  clientsOf(session: Session): readonly PresentClient[] {
    const attachment = this.attaching.of(session);
    const self = this.host.presence.on(session);
    if (!attachment) {
      const isHolder = isHeld(session);
      const [, ...guests] = this.hosting.clientsOf(session);
      return [
        { ...self, isHolder, isSelf: true },
        ...guests.map((one) => ({ ...one, isHolder: false, isSelf: false })),
      ];
    }
    // The local host's own facts are fresher than the reported ones.
    const { others, holderId, selfId } = attachment.clients;
    const ofOthers = others.map((client) => ({ ...client, isHolder: client.id === holderId, isSelf: false }));
    return [{ ...self, id: selfId || self.id, isHolder: false, isSelf: true }, ...ofOthers];
  }

  close(): void {
    this.isClosed = true;
    this.hosting.close();
    this.attaching.close();
  }
}
