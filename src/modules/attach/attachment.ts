/**
 * One session that another process holds and this process has joined. The holder runs writes; reads use the session's
 * own files, which contain everything acknowledged. When the holder is gone, this process takes the lock or joins the
 * next holder, and sends the unanswered calls again under the same keys.
 */

import type { Duplex } from "node:stream";
import { Failure } from "../../core/failure.ts";
import { isObject } from "../../core/format/loose.ts";
import { findKnownValueEnd, getElements, getMembers, toBytes, toOneLine } from "../../core/json/json.ts";
import { Raw } from "../../core/json/raw.ts";
import { type SharedClient, type SharedHolder, toSharedClient, toShownName } from "../../core/ports/attach.ts";
import type { Session } from "../../core/session/session.ts";
import { takeOver } from "../../core/session/writer.ts";
import { eventNames } from "../../handlers/shared/event-names.ts";
import type { EventName } from "../../handlers/shared/events.ts";
import type { HookName } from "../../handlers/shared/hooks.ts";
import type { Call, Question } from "../../server/connection/call.ts";
import { DescribedError, type ErrorDescription } from "../../server/connection/dialect.ts";
import { makeEvent, type PendingEvent } from "../../server/connection/events.ts";
import { type PassedCall, Redirection, type RemoteRunner } from "../../server/dispatch/gate.ts";
import type { Announcement } from "../../storage/locks/announcements.ts";
import { ATTACH_PROTOCOL, type FoundHolder } from "./announcing.ts";
import { AskedCalls, runLocally, serializeParams, settleCall } from "./asked-calls.ts";
import { getLastEntryId } from "./guest.ts";
import type { Hosting, HostingOptions } from "./hosting.ts";
import { Pipe, type PipeMessage } from "./pipe.ts";
import {
  type CatchUpOptions,
  catchUpSession,
  getPosition,
  moveLeaves,
  NO_POSITION,
  parsePosition,
  type ReportedPosition,
} from "./positions.ts";
import { SHARED_HOOKS } from "./protocol.ts";
import { type PresenceEvent, ReportedClients } from "./reported-clients.ts";

/** Milliseconds for a holder to admit this process, and to say what it has not reported yet. */
const ADMITS_WITHIN = 1000;
/** Event members that this server sets itself. */
const OWN_MEMBERS: ReadonlySet<string> = new Set(["type", "sessionId", "seq", "leafId"]);
/** Milliseconds to try to take over from a dead holder. */
const RECOVERS_WITHIN = 15_000;
/** Milliseconds after which a holder that admitted this process counts as stable. */
const STABLE_AFTER = 1000;

export interface AttachmentOptions extends HostingOptions {
  /** Lets others join the sessions that this process has taken over. */
  readonly hosting: Hosting;
  readonly client: string;
  /** The keys that this process has given to calls: the next one is the prefix with the next number. */
  readonly keys: { readonly prefix: string; used: number };
}

/** Returns the announced holder of a session; null if this process can join none. */
export function findHolder({ attachments }: AttachmentOptions, { file }: Session): FoundHolder | null {
  return file === null ? null : attachments.find(file);
}

export class Attachment implements RemoteRunner {
  /** Passes calls to the holder. */
  readonly redirection = new Redirection(this);
  private readonly session: Session;
  private readonly options: AttachmentOptions;
  /** Called when the session is left; `isGivenUp`: no holder admitted this process, or none was stable. */
  private readonly ended: (isGivenUp: boolean) => void;
  private pipe: Pipe | undefined;
  private holder: SharedHolder = { epoch: 0, client: "", pid: 0 };
  private place: ReportedPosition = NO_POSITION;
  /** The local host's head, as last sent to the holder. */
  private reportedHead: string | null = null;
  /** True if the holder reported something that was not read here yet. */
  private isBehind = false;
  private readonly asked = new AskedCalls();
  /** All clients of the session that the holder reported. */
  readonly clients = new ReportedClients();
  /** True if the holder said goodbye. */
  private hasLeft = false;
  private readonly questions = new Map<number, Question>();
  private heardAt = 0;
  private watch: NodeJS.Timeout | undefined;
  /** Called when the holder answers the pings, in their order. */
  private pongs: (() => void)[] = [];
  private isClosed = false;
  private joinedAt = 0;
  /** End of the takeover attempt, and the delay of the next one after a holder that was not stable. */
  private takeover = { until: 0, wait: 0 };

  constructor(session: Session, options: AttachmentOptions, ended: (isGivenUp: boolean) => void) {
    this.session = session;
    this.options = options;
    this.ended = ended;
  }

  // --- joining -------------------------------------------------------------------------------------------------

  /** Joins the announced holder, unless it died. `known`: the position at the previous holder. Never rejects. */
  async connect(known?: ReportedPosition): Promise<"joined" | "refused" | "nobody" | "dead"> {
    // A write may have taken the lock during the search, and the entrance is this process's own.
    const found = this.session.hasLock ? null : findHolder(this.options, this.session);
    if (!found || found.announcement.epoch === this.holder.epoch) return "nobody";
    if (found.announcement.protocol !== ATTACH_PROTOCOL) return "refused";
    let stream: Duplex;
    try {
      stream = await found.connect();
    } catch {
      return "dead";
    }
    return this.enter(stream, found.announcement, known);
  }

  private enter(
    stream: Duplex,
    { token, epoch }: Announcement,
    known?: ReportedPosition,
  ): Promise<"joined" | "refused" | "nobody"> {
    const { session, options } = this;
    return new Promise((resolve) => {
      let isIn = false;
      const settle = (outcome: "joined" | "refused" | "nobody"): void => {
        clearTimeout(late);
        isIn = outcome === "joined";
        if (isIn) {
          this.joinedAt = performance.now();
          this.pipe = pipe;
          pipe.trust();
          session.holder = this.holder;
        } else pipe.drop();
        resolve(outcome);
      };
      const pipe = new Pipe(
        stream,
        (message) => {
          if (isIn) return this.receive(message);
          // A write may have taken the lock in between: the sender has died, and its state was reported already.
          if (session.hasLock) return settle("nobody");
          const attached = parseHolder(message.value);
          if (!attached) return settle("refused");
          const { holder, place } = this;
          requireValidMessage(message.value);
          // The announced epoch identifies it, whatever epoch it sends.
          this.holder = { ...attached, epoch };
          this.notePosition(message);
          // A holder without heads would write at the shared leaf.
          if (this.place.head !== this.reportedHead) return settle("refused");
          try {
            if (this.catchUp(known ?? this.getPositionHere(), { next: this.place, isFirst: known === undefined })) {
              this.readClients(message, known === undefined);
              settle("joined");
              // The local host may have introduced itself in between.
              if (JSON.stringify(this.introduction()) !== JSON.stringify(introduced)) this.introduce();
              return;
            }
          } catch {
            return settle("refused");
          }
          // The files lack entries that the holder will not send.
          Object.assign(this, { holder, place });
          settle("nobody");
        },
        () => {
          if (!isIn) settle("nobody");
          else if (this.pipe === pipe) void this.recover();
        },
      );
      const late = setTimeout(() => settle("nobody"), Math.min(ADMITS_WITHIN, options.answersWithin));
      const introduced = this.introduction();
      const { client, durability } = options;
      const attach = {
        token,
        protocol: ATTACH_PROTOCOL,
        sessionId: session.id,
        client,
        durability,
        ...introduced,
        stand: this.recordHead(),
      };
      pipe.send(JSON.stringify({ attach }));
    });
  }

  /** Returns the session's position as read here and reported to the local host. */
  private getPositionHere(): ReportedPosition {
    return getPosition(this.session);
  }

  /** Records and returns the local host's head, for a message to the holder. */
  private recordHead(): object | null {
    const { heads } = this.session;
    this.reportedHead = heads.own;
    // The last position from the previous holder may not be read here yet.
    return heads.own === null ? null : { head: heads.own, leafId: this.reportedLeafId };
  }

  /** Sends the holder the local host's head if it changed. */
  sendHead(): void {
    if (this.session.heads.own !== this.reportedHead) this.pipe?.send(JSON.stringify({ stand: this.recordHead() }));
  }

  private introduction(): { hooks: string[]; self: SharedClient } {
    const { hooks, presence } = this.options.server;
    return { hooks: SHARED_HOOKS.filter((name) => hooks.has(name)), self: presence.on(this.session) };
  }

  /** Sends the holder the local host's description and hooks after it introduced itself. */
  introduce(): void {
    const { hooks, self } = this.introduction();
    this.pipe?.send(JSON.stringify({ hooks }));
    this.pipe?.send(JSON.stringify({ self }));
  }

  /** Copies the list of clients from a message. */
  private readClients({ value: { self, by, clients } }: PipeMessage, isFirst = false): void {
    if (typeof self === "string") this.clients.selfId = self;
    if (typeof by === "string") this.clients.holderId = by;
    if (Array.isArray(clients)) this.reportPresence(this.clients.renew(clients, isFirst));
  }

  private reportPresence(events: readonly PresenceEvent[]): void {
    const { session } = this;
    // The leaf is the last one reported to the local host, even if it is not read here yet.
    const leafId = this.reportedLeafId;
    const sent = events.map(({ name, payload }) => ({ ...makeEvent(session, name, payload), leafId }));
    if (sent.length > 0) this.options.server.passOn(session, sent);
  }

  private end(isGivenUp = false): void {
    this.isClosed = true;
    clearInterval(this.watch);
    this.session.holder = undefined;
    this.ended(isGivenUp);
  }

  close(isGivenUp = false): void {
    this.end(isGivenUp);
    const { pipe } = this;
    this.pipe = undefined;
    pipe?.send('{"bye":true}');
    pipe?.close();
    for (const question of this.questions.values()) question.cancel();
  }

  /** The holder, with the name of its host. */
  get holderFacts(): { client: string; pid: number; name: string | null } {
    const { client, pid } = this.holder;
    return { client: toShownName(client) ?? "another server", pid, name: this.clients.holder?.name ?? null };
  }

  // --- asking --------------------------------------------------------------------------------------------------

  /** Passes a call to the holder; after the holder's death, to the next one, which may be this process. */
  pass(passed: PassedCall): void {
    const { call } = passed;
    const { idempotencyKey } = call.params as { idempotencyKey?: string };
    const { keys } = this.options;
    const key = idempotencyKey ?? passed.key ?? `${keys.prefix}-${++keys.used}`;
    const params = serializeParams(call, idempotencyKey === undefined ? key : undefined);
    const asked = { ...passed, key, params, isRepeated: passed.key !== undefined };
    if (this.isClosed) {
      void runLocally(asked);
      return;
    }
    this.asked.add(asked);
    this.sendNext();
  }

  /** Asks the holder to cancel the matching calls. Their replies say whether it did. */
  cancel(isMeant: (call: Call) => boolean): void {
    this.asked.cancel(isMeant, (number) => this.pipe?.send(JSON.stringify({ cancel: number })));
  }

  /** Sends the calls that may be sent now. */
  private sendNext(): void {
    const { pipe, asked } = this;
    this.sendHead();
    for (let next = pipe && asked.next(); next; next = asked.next()) {
      const [number, { call, params }] = next;
      const consent = call.needsConsent ? `,"consent":true` : "";
      const head = `{"call":${number},"name":${JSON.stringify(call.command.name)},"loose":true${consent},"params":`;
      pipe?.send(head, ...params, "}");
    }
    if (this.watch || asked.size === 0) return;
    this.heardAt = performance.now();
    this.watch = setInterval(() => this.checkSilence(), this.options.answersWithin / 6).unref();
  }

  /** Fails waiting calls if the holder is silent. It keeps the lock, so no other process can take over. */
  private checkSilence(): void {
    if (this.asked.size === 0) {
      clearInterval(this.watch);
      this.watch = undefined;
      return;
    }
    const { answersWithin } = this.options;
    // A holder that waits for its own host, where a model may be at work, answers pings.
    this.ping();
    if (this.questions.size > 0 || performance.now() - this.heardAt < answersWithin) return;
    this.failAll(`It has said nothing for ${answersWithin / 1000} s, and may be stopped.`);
  }

  /** Fails all calls that the holder has not answered, and says why. */
  failAll(why: string): void {
    for (const { call, settle } of this.asked.takeAll())
      settle({ error: makeUnansweredFailure(call, this.holder, why) });
  }

  private ping(onPong: () => void = () => {}): void {
    this.pongs.push(onPong);
    this.pipe?.send('{"ping":true}');
  }

  /** Resolves when the holder has sent everything that it knows now, or has ended, or is silent. */
  hear(): Promise<void> {
    return new Promise((resolve) => {
      this.ping(resolve);
      setTimeout(resolve, Math.min(ADMITS_WITHIN, this.options.answersWithin)).unref();
    });
  }

  // --- hearing -------------------------------------------------------------------------------------------------

  private receive(message: PipeMessage): void {
    this.heardAt = performance.now();
    requireValidMessage(message.value);
    this.notePosition(message);
    const { reply, event, ask, asks, withdraw, lost, ping, pong, bye } = message.value;
    if (ping === true) this.pipe?.send('{"pong":true}');
    else if (pong === true) this.pongs.shift()?.();
    else if (typeof reply === "number") this.receiveReply(reply, message.value);
    else if (typeof event === "string" && isKnownEvent(event)) this.receiveEvent(event, message);
    else if (typeof ask === "number") this.receiveQuestion(ask, message.value);
    else if (typeof asks === "number") this.asked.noteConsent(asks);
    else if (typeof withdraw === "number") this.questions.get(withdraw)?.cancel();
    else if (typeof lost === "number") {
      this.options.server.missed(this.session, lost);
      this.readClients(message);
    } else if (bye === true) this.hasLeft = true;
  }

  private notePosition({ value }: PipeMessage): void {
    if (value.leafId === undefined) return;
    const last = getLastEntryId(String(value.event), value.payload as PendingEvent["payload"]) ?? this.place.lastId;
    this.place = parsePosition(value, last);
    this.isBehind = true;
  }

  /** True if the holder's last position is at the local host's present head. */
  private get isOwnPlace(): boolean {
    return this.place.head === this.session.heads.own;
  }

  /** The local host's leaf, as last reported. */
  private get reportedLeafId(): string | null {
    return this.isOwnPlace ? this.place.leafId : this.session.ownLeafId;
  }

  private receiveReply(number: number, { result, error }: PipeMessage["value"]): void {
    const asked = this.asked.takeAnswered(number);
    if (asked) {
      this.takeover.until = 0;
      settleCall(asked, error === undefined ? { result } : { error: new DescribedError(error as ErrorDescription) });
    }
    this.sendNext();
  }

  private receiveEvent(name: EventName, message: PipeMessage): void {
    if (name === "client_joined" || name === "client_left") {
      const news = this.clients.take(name, message.value.payload);
      return this.reportPresence(news ? [news] : []);
    }
    // Stored bytes are passed on unchanged, but must not end the line of the message.
    const bytes = toOneLine(message.text("payload") ?? toBytes("{}"));
    const payload: Record<string, unknown> = Object.fromEntries(
      (getMembers(bytes, 0, bytes.length, findKnownValueEnd) ?? [])
        .filter((member) => !OWN_MEMBERS.has(member.name))
        .map((member) => [member.name, Raw.of(bytes.subarray(member.start, member.end))]),
    );
    if (name === "session_append" && !this.keepNew(payload, message.value.payload)) return;
    if (payload.client) payload.client = parseClient(message.value.payload);
    const leafId = this.reportedLeafId;
    const sent = { name, sessionId: this.session.id, leafId, payload };
    const cause = this.asked.get(message.value.of);
    if (cause) cause.events.push(sent);
    else this.options.server.passOn(this.session, [sent]);
  }

  /**
   * Removes entries from an event that the local host knows from another holder or from reading. Returns whether any
   * are left.
   */
  private keepNew(payload: Record<string, unknown>, said: unknown): boolean {
    const { entryIds } = said as { entryIds: string[] };
    const isNew = entryIds.map((id) => this.session.externalChanges.markReported(id));
    if (isNew.every(Boolean)) return true;
    payload.entryIds = entryIds.filter((_, at) => isNew[at]);
    if (payload.entries instanceof Raw) {
      const bytes = payload.entries.bytes();
      const entries = (getElements(bytes, 0, bytes.length, findKnownValueEnd) ?? []).filter((_, at) => isNew[at]);
      payload.entries = entries.map(({ start, end }) => Raw.of(bytes.subarray(start, end)));
    }
    return isNew.includes(true);
  }

  private receiveQuestion(number: number, { hook, payload }: PipeMessage["value"]): void {
    if (!SHARED_HOOKS.includes(hook as HookName) || !this.options.server.hooks.has(hook as HookName)) {
      this.pipe?.send(JSON.stringify({ answer: number, error: "cancelled" }));
      return;
    }
    const { client, ...asked } = (payload ?? {}) as Record<string, unknown>;
    const by = client === undefined ? {} : { client: parseClient(payload) };
    const question = this.options.server.askForHolder(this.session, hook as HookName, { ...asked, ...by });
    this.questions.set(number, question);
    question.answer
      .then(
        (result) => ({ answer: number, result }),
        () => ({ answer: number, error: "cancelled" }),
      )
      .then((answer) => {
        this.questions.delete(number);
        this.pipe?.send(JSON.stringify(answer));
      });
  }

  // --- reading -------------------------------------------------------------------------------------------------

  /** Reads the session here up to the position that the holder reported. */
  follow(): void {
    if (!this.isBehind) return;
    const { session } = this;
    // The holder reports everything found now.
    try {
      session.externalChanges.readAlong();
    } catch (error) {
      // Entries read before stay known after the file is gone, as they do at the holder.
      if (error instanceof Failure && error.details.errno === "ENOENT") return;
      throw error;
    }
    this.isBehind = false;
    if (this.isOwnPlace) moveLeaves(session, this.place);
  }

  // --- the holder's end ----------------------------------------------------------------------------------------

  /** Takes the lock of the dead holder, or joins the next holder. */
  private async recover(): Promise<void> {
    this.pipe = undefined;
    for (const resolve of this.pongs.splice(0)) resolve();
    for (const question of this.questions.values()) question.cancel();
    this.reportPresence(this.clients.withoutHolder(this.hasLeft ? "left" : "died"));
    this.hasLeft = false;
    this.asked.startAgain();
    const { server } = this.options;
    for (const { events } of this.asked.all) if (events.length > 0) server.passOn(this.session, events.splice(0));
    const known = this.place;
    const now = performance.now();
    const { answersWithin } = this.options;
    // Limits following a series of holders that admit this process and leave: calls wait for all of them together no
    // longer than for one silent holder.
    const stableAfter = this.asked.size > 0 ? Math.max(STABLE_AFTER, answersWithin) : STABLE_AFTER;
    const isAgain = now - this.joinedAt < stableAfter && this.takeover.until > 0;
    if (!isAgain) this.takeover = { until: now + Math.min(RECOVERS_WITHIN, answersWithin), wait: 0 };
    const { until, wait: pause } = this.takeover;
    this.takeover.wait = Math.min(Math.max(1, 2 * pause), STABLE_AFTER);
    if (pause > 0) await sleep(Math.min(pause, Math.max(0, until - now)));
    for (let wait = 1; !this.isClosed; wait = Math.min(2 * wait, 50)) {
      try {
        if (takeOver(this.session)) return await this.beHolder(known);
        if (performance.now() >= until) break;
        if ((await this.connect(known)) === "joined") return this.goOn();
      } catch (error) {
        this.abandon(error);
        return;
      }
      await sleep(wait);
    }
    this.abandon(undefined);
  }

  private abandon(error: unknown): void {
    const why = error instanceof Error ? ` (${error.message})` : "";
    if (!this.isClosed) {
      try {
        // Later entries are reported by reading; entries read until now are reported here.
        this.catchUp(this.place, { isRead: true });
      } catch {
        // Nothing can be read.
      }
      this.reportPresence(this.clients.clear());
      // Later calls are not passed on by this attachment.
      this.close(true);
    }
    this.failAll(`It ended, and the session cannot be had here${why}.`);
  }

  /** Continues as the holder: runs the unanswered calls here, in order. */
  private async beHolder(known: ReportedPosition): Promise<void> {
    const { session, options } = this;
    this.catchUp(known);
    this.end();
    const epoch = options.hosting.begin(session, this.clients.others) ?? this.holder.epoch + 1;
    this.reportOwner({ epoch, client: options.client, pid: process.pid }, true);
    for (const asked of this.asked.takeAll()) await runLocally(asked);
  }

  /** Continues with another holder: sends the unanswered calls again. */
  private goOn(): void {
    this.reportOwner(this.holder, false);
    this.sendNext();
  }

  private reportOwner(holder: SharedHolder, isSelf: boolean): void {
    const { session, options } = this;
    options.server.passOn(session, [makeEvent(session, "session_owner_changed", { ...holder, isSelf })]);
  }

  /**
   * Reads the entries after the last report to the local host and reports them: all, or those up to the position at
   * which the next holder admitted this process. Returns false, with nothing reported, if these cannot be read yet.
   */
  private catchUp(reported: ReportedPosition, how: CatchUpOptions = {}): boolean {
    const { session, asked, options } = this;
    const keys = asked.all.map(({ key }) => key);
    const caught = catchUpSession(session, reported, keys, how);
    this.isBehind = false;
    if (!caught) return false;
    if (caught.place) this.place = caught.place;
    if (caught.events.length > 0) options.server.passOn(session, caught.events);
    return true;
  }
}

function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

type Value = PipeMessage["value"];

// --- messages of a holder, which may be faulty, or not a server of this kind -----------------------------------------

/** Returns the holder in its reply to `attach`; undefined if it refused. */
function parseHolder({ attached }: Value): SharedHolder | undefined {
  if (!isObject(attached)) return undefined;
  const { epoch, client, pid } = attached;
  if (!Number.isSafeInteger(epoch) || !Number.isSafeInteger(pid) || typeof client !== "string") return undefined;
  return { epoch: epoch as number, client, pid: pid as number };
}

/** Returns the client in a payload for the local host; without members if it is invalid. */
function parseClient(payload: unknown): Partial<SharedClient> {
  const { id, name, pid } = toSharedClient((payload as { client?: unknown } | null)?.client) ?? {};
  return { id, name, pid };
}

/** Returns the failure of a call that the holder has not answered, with the reason for giving up. */
function makeUnansweredFailure({ command }: Call, { client, pid }: SharedHolder, why: string): Failure {
  const sentence = `${client} (process ${pid}), which holds this session, has not answered. ${why}`;
  const details = { holder: { client, pid } };
  // A read changes nothing, so its outcome is not in doubt.
  if (command.effect === "read")
    return new Failure("session_locked", `${sentence} Ask again later.`, details, { retryable: true });
  const rest = "It is unknown whether it did this: read the state, or send it again with the same idempotencyKey.";
  return new Failure("outcome_unknown", `${sentence} ${rest}`, details, { retryable: true });
}

/** Throws SyntaxError for an invalid message. Unknown members and events belong to a newer version and are allowed. */
function requireValidMessage(value: Value): void {
  const { reply, event, lost, at, leafId = null, lastId = null, sharedLeafId = null } = value;
  const isValid =
    [leafId, lastId, sharedLeafId].every(isIdOrNull) &&
    (at === undefined || (isObject(at) && typeof at.head === "string" && isIdOrNull(at.lastId))) &&
    (reply === undefined || isReply(value)) &&
    (event === undefined || isEvent(value)) &&
    (lost === undefined || (Number.isSafeInteger(lost) && (lost as number) > 0));
  if (!isValid) throw new SyntaxError("no holder says that");
}

function isIdOrNull(id: unknown): boolean {
  return id === null || typeof id === "string";
}

function isReply({ reply, result, error }: Value): boolean {
  if (!Number.isSafeInteger(reply)) return false;
  if (error === undefined) return result !== undefined;
  if (!isObject(error) || !isObject(error.data)) return false;
  return Number.isSafeInteger(error.code) && typeof error.sentence === "string" && typeof error.name === "string";
}

function isEvent({ event, payload }: Value): boolean {
  if (typeof event !== "string" || !isObject(payload)) return false;
  const { entryIds } = payload;
  return event !== "session_append" || (Array.isArray(entryIds) && entryIds.every((id) => typeof id === "string"));
}

/** Returns whether this version knows an event. */
function isKnownEvent(event: string): event is EventName {
  return (eventNames as readonly string[]).includes(event);
}
