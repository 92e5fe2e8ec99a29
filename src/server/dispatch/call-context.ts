/** The server, as one running call uses it. */

import { findKnownValueEnd, findValue } from "../../core/json/json.ts";
import { type Maker, makeKeyedId } from "../../core/session/keyed-request.ts";
import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import type {
  ClientSettings,
  CommandContext,
  HostFacts,
  Introduction,
  PresentClient,
  Report,
  ServerFacts,
} from "../../handlers/shared/command.ts";
import type { EventName, EventPayload, Replacement } from "../../handlers/shared/events.ts";
import type { HookAnswer, HookName } from "../../handlers/shared/hooks.ts";
import type { AskedHost, Call } from "../connection/call.ts";
import type { Caller } from "../connection/caller.ts";
import { isFoundEvent, makeEvent, type PendingEvent } from "../connection/events.ts";
import type { Lane } from "./lane.ts";
import type { Lanes } from "./lanes.ts";
import type { Sharing } from "./sharing.ts";

/** The host of a process that has joined: that process limits and orders its output itself. */
const GUEST_FACTS: HostFacts = {
  dialectName: "jsonrpc",
  maxReplyBytes: undefined,
  lastSeq: 0,
  sizeOf: (text) => text.length,
};

/** Makes the contexts of calls. */
export class CallContexts {
  readonly lanes: Lanes;
  readonly sharing: Sharing | undefined;
  private readonly host: Caller;

  constructor(host: Caller, lanes: Lanes, sharing: Sharing | undefined) {
    this.host = host;
    this.lanes = lanes;
    this.sharing = sharing;
  }

  make(lane: Lane, call: Call, events: PendingEvent[] = []): CallContext {
    return new CallContext(this, this.host, lane, call, events);
  }
}

export class CallContext implements CommandContext {
  readonly workspace: Workspace;
  readonly server: ServerFacts;
  readonly settings: ClientSettings;
  readonly host: HostFacts;
  private readonly caller: Caller;
  private readonly call: Call;
  private readonly events: PendingEvent[];
  private readonly contexts: CallContexts;
  private readonly lane: Lane;
  /** The session at the head of the guest that calls. */
  private readonly guestSession: Session | undefined;
  /** The session named by the call. Another one may get the same id while a host is asked. */
  private named: Session | null;

  constructor(contexts: CallContexts, caller: Caller, lane: Lane, call: Call, events: PendingEvent[]) {
    this.workspace = caller.workspace;
    this.server = caller.server;
    this.settings = caller.settings;
    this.host = call.peer ? GUEST_FACTS : caller.sink;
    this.contexts = contexts;
    this.caller = caller;
    this.lane = lane;
    this.call = call;
    this.events = events;
    this.guestSession = call.peer && call.target?.at(call.head ?? null);
    this.named = contexts.lanes.ownerOf(lane);
    if (this.named) caller.workspace.use(this.named);
  }

  get session(): Session {
    const { command, params, target } = this.call;
    if (this.guestSession) return this.guestSession;
    if (target) return target;
    const { sessionId } = command.namesNext ? {} : (params as { sessionId?: string });
    if (sessionId === undefined) return this.workspace.session();
    this.named ??= this.workspace.session(sessionId);
    return this.named;
  }

  get target(): Session | null {
    return this.call.target === null ? null : this.session;
  }

  get key(): string | undefined {
    return (this.call.params as { idempotencyKey?: string }).idempotencyKey;
  }

  get keyedId(): string | undefined {
    const { key, call, workspace } = this;
    const { cwd, sessionId, newSessionId } = call.params as { cwd?: string; sessionId?: string; newSessionId?: string };
    if (newSessionId !== undefined || key === undefined) return newSessionId;
    const command = call.command.name as Maker;
    const of = command === "new_session" ? (cwd ?? workspace.cwd) : (sessionId ?? workspace.current?.id);
    return of === undefined ? undefined : makeKeyedId(workspace.env, command, of, key);
  }

  text(...path: (string | number)[]): Uint8Array | undefined {
    const { bytes, range, toParams } = this.call.messageText();
    const found = findValue(bytes, range, [...toParams, ...path], findKnownValueEnd);
    return found && bytes.subarray(found.start, found.end);
  }

  notify<N extends EventName>(name: N, payload: EventPayload<N>): void {
    const { session } = this;
    const { head } = session;
    const isOfNoHead = head === null || isFoundEvent({ name, payload: payload as PendingEvent["payload"] });
    this.events.push(makeEvent(session, name, isOfNoHead ? payload : { ...payload, head }));
  }

  /** The hosts whose consent the call may need. */
  private get hooks(): AskedHost {
    const { lanes, sharing } = this.contexts;
    return sharing?.getHooks(lanes.sessionOf(this.lane), this.call) ?? this.caller.hooks;
  }

  asks(hook: HookName): boolean {
    return this.hooks.has(hook);
  }

  async ask(hook: HookName, payload: Readonly<Record<string, unknown>>): Promise<HookAnswer> {
    const { leafId } = this.session;
    // The calls of the asking and the asked host wait; in an unshared session, all calls wait.
    const question = this.lane.questionTo(this.hooks, hook, payload);
    const answer = this.lane.ask(this.call, question, this.contexts.lanes);
    try {
      return await answer;
    } finally {
      // Other hosts may have written during the question, and the move was prepared for the old leaf.
      if (hook === "session_before_tree") this.session.guard(leafId, true);
    }
  }

  replace(next: Session, replacement: Replacement): Promise<void> {
    return this.caller.replace(next, replacement, this.events);
  }

  get progress(): Report | undefined {
    const { _meta } = this.call.params as { _meta?: { progressToken?: string | number } };
    const token = _meta?.progressToken;
    if (token === undefined || this.call.peer) return undefined;
    const { sink } = this.caller;
    return (done, total, more) => {
      if (!sink.hasCapacity) return;
      this.caller.start();
      sink.progress(token, done, total, more);
      sink.flush();
    };
  }

  clientsOf(session: Session): readonly PresentClient[] {
    return this.caller.clientsOf(session);
  }

  alone<T>(session: Session, run: () => T): T {
    return this.caller.alone(session, this.call.command.name, run);
  }

  introduce(introduction: Introduction): void {
    this.caller.introduce(introduction);
  }

  shutDown(how?: { atOnce: boolean }): void {
    const { current } = this.workspace;
    const event = current && makeEvent(current, "session_shutdown", { reason: "quit" });
    if (this.caller.shutDown(how) && event) this.events.push(event);
  }
}
