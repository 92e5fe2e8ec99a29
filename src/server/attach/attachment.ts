/**
 * One session that another process holds and this one has joined. What writes is done there; what reads is read from
 * the session's own files, which have all that was acknowledged. When the holder is gone, this process takes the lock
 * or joins whoever has it, and asks again what was not answered, under the same keys.
 */

import type { Duplex } from "node:stream";
import { Failure } from "../../core/failure.ts";
import { bytesOf, elements, knownValueEnd, members, oneLine } from "../../core/json/json.ts";
import { Raw } from "../../core/json/raw.ts";
import {
  type Announcement,
  ATTACH_PROTOCOL,
  type FoundHolder,
  type SharedClient,
  type SharedHolder,
  shownName,
} from "../../core/ports/attach.ts";
import type { Session } from "../../core/session/session.ts";
import type { EventName } from "../../handlers/shared/events.ts";
import type { HookName } from "../../handlers/shared/hooks.ts";
import type { Call } from "../connection/call.ts";
import { DescribedError, type ErrorDescription } from "../connection/dialect.ts";
import type { Hooks, Question } from "../connection/hooks.ts";
import { eventOf, type PendingEvent } from "../connection/host.ts";
import { AskedCalls, type PassedCall, paramsText, runHere, settleAsked } from "./asked-calls.ts";
import { lastOf } from "./guest.ts";
import { isHeld } from "./hosting.ts";
import { Pipe, type PipeMessage } from "./pipe.ts";
import { type CatchingUp, catchUp, NOWHERE, placeIn, placeOf, settle, type ToldPlace } from "./places.ts";
import { type PresenceEvent, ToldClients } from "./presence.ts";
import { clientIn, holderIn, isKnown, requireSound, unanswered } from "./told.ts";
import { HOOKS } from "./words.ts";

/** Milliseconds in which a holder must let us in. */
const LETS_IN_WITHIN = 1000;
/** Members of an event that this server says, whatever the holder does. */
const OURS: ReadonlySet<string> = new Set(["type", "sessionId", "seq", "leafId"]);
/** Milliseconds for which a dead holder's place is fought for. */
const RECOVERS_WITHIN = 15_000;
/** Milliseconds after which a holder that let us in counts as one that stays. */
const STAYS_AFTER = 1000;

export interface AttachmentOptions {
  readonly client: string;
  readonly durability: "sync" | "os";
  /** Milliseconds without a word from the holder after which what it was asked fails: it may have been stopped. */
  readonly answersWithin: number;
  readonly hooks: Pick<Hooks, "has">;
  /** Asks our host for the holder. */
  readonly ask: (session: Session, name: HookName, payload: Readonly<Record<string, unknown>>) => Question;
  readonly newKey: () => string;
  /** Returns milliseconds since the epoch. */
  readonly now: () => number;
  /** Finds the holder of the session. */
  readonly find: (session: Session) => FoundHolder<Duplex> | null;
  /** Sends events of a session to our host. */
  readonly passOn: (session: Session, events: PendingEvent[]) => void;
  /** Counts events that the holder of a session did not tell. */
  readonly missed: (session: Session, count: number) => void;
  /** Lets others join a session that this process holds now. Returns the epoch, if they can. */
  readonly tookOver: (session: Session, others: readonly SharedClient[]) => number | undefined;
  /** Our own host, as others are told of it. */
  readonly self: (session: Session) => SharedClient;
}

export class Attachment {
  private readonly session: Session;
  private readonly options: AttachmentOptions;
  /** Called when the session is not joined any more; `isGivenUp`: because no holder let us in or stayed. */
  private readonly ended: (isGivenUp: boolean) => void;
  private pipe: Pipe | undefined;
  private holder: SharedHolder = { epoch: 0, client: "", pid: 0 };
  private place: ToldPlace = NOWHERE;
  /** The head at which the holder was told that our host stands. */
  private toldHead: string | null = null;
  /** Whether the holder told of something that was not read here yet. */
  private isBehind = false;
  private readonly asked = new AskedCalls();
  /** Everybody who shares the session, as far as we were told. */
  readonly clients = new ToldClients();
  /** Whether the holder has said that it leaves. */
  private hasLeft = false;
  private readonly questions = new Map<number, Question>();
  private heardAt = 0;
  private watch: NodeJS.Timeout | undefined;
  private isClosed = false;
  private joinedAt = 0;
  /** Until when a place is fought for, and how long the next attempt waits after a holder that did not stay. */
  private fight = { until: 0, wait: 0 };

  constructor(session: Session, options: AttachmentOptions, ended: (isGivenUp: boolean) => void) {
    this.session = session;
    this.options = options;
    this.ended = ended;
  }

  // --- joining -------------------------------------------------------------------------------------------------

  /** Joins the holder that is announced now, unless that died. `known`: where our host was told of the last. Never rejects. */
  async connect(known?: ToldPlace): Promise<"joined" | "refused" | "nobody" | "dead"> {
    // A write may have taken the lock while we looked for who had it, and the entrance is our own.
    const found = isHeld(this.session) ? null : this.options.find(this.session);
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
    known?: ToldPlace,
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
          // A write may have taken the lock meanwhile: who lets us in has died, and what it knew is told of already.
          if (isHeld(session)) return settle("nobody");
          const attached = holderIn(message.value);
          if (!attached) return settle("refused");
          const { holder, place } = this;
          requireSound(message.value);
          // By its number in the announcement it is known again, whatever number it gives itself.
          this.holder = { ...attached, epoch };
          this.note(message);
          // A holder that knows of no heads would write at the shared leaf.
          if (this.place.head !== this.toldHead) return settle("refused");
          try {
            if (this.catchUp(known ?? this.placeHere(), { next: this.place, isFirst: known === undefined })) {
              this.meet(message, known === undefined);
              settle("joined");
              // Our host may have introduced itself meanwhile.
              if (JSON.stringify(this.introduction()) !== JSON.stringify(introduced)) this.introduce();
              return;
            }
          } catch {
            return settle("refused");
          }
          // What the holder will not tell of is not in the files yet.
          Object.assign(this, { holder, place });
          settle("nobody");
        },
        () => {
          if (!isIn) settle("nobody");
          else if (this.pipe === pipe) void this.recover();
        },
      );
      const late = setTimeout(() => settle("nobody"), Math.min(LETS_IN_WITHIN, options.answersWithin));
      const introduced = this.introduction();
      const { client, durability } = options;
      const attach = {
        token,
        protocol: ATTACH_PROTOCOL,
        sessionId: session.id,
        client,
        durability,
        ...introduced,
        stand: this.noteStand(),
      };
      pipe.send(JSON.stringify({ attach }));
    });
  }

  /** Returns where the session is, as far as it was read here and our host was told. */
  private placeHere(): ToldPlace {
    return placeOf(this.session);
  }

  /** Returns where our host stands, of which the holder is about to be told. */
  private noteStand(): object | null {
    const { heads } = this.session;
    this.toldHead = heads.own;
    // What the holder before told last may not be read here yet.
    return heads.own === null ? null : { head: heads.own, leafId: this.toldLeafId };
  }

  /** Tells the holder where our host stands, if it does not know. */
  tellHead(): void {
    if (this.session.heads.own !== this.toldHead) this.pipe?.send(JSON.stringify({ stand: this.noteStand() }));
  }

  private introduction(): { hooks: string[]; self: SharedClient } {
    const { hooks, self } = this.options;
    return { hooks: HOOKS.filter((name) => hooks.has(name)), self: self(this.session) };
  }

  /** Tells the holder who our host is and which hooks it wants to be asked, after it introduced itself. */
  introduce(): void {
    const { hooks, self } = this.introduction();
    this.pipe?.send(JSON.stringify({ hooks }));
    this.pipe?.send(JSON.stringify({ self }));
  }

  /** Takes over who is there. */
  private meet({ value: { self, by, clients } }: PipeMessage, isFirst = false): void {
    if (typeof self === "string") this.clients.selfId = self;
    if (typeof by === "string") this.clients.holderId = by;
    if (Array.isArray(clients)) this.tellPresence(this.clients.renew(clients, isFirst));
  }

  private tellPresence(events: readonly PresenceEvent[]): void {
    const { session } = this;
    // The leaf is where our host was told last, though that may not be read here yet.
    const leafId = this.toldLeafId;
    const told = events.map(({ name, payload }) => ({ ...eventOf(session, name, payload), leafId }));
    if (told.length > 0) this.options.passOn(session, told);
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
    return { client: shownName(client) ?? "another server", pid, name: this.clients.holder?.name ?? null };
  }

  // --- asking --------------------------------------------------------------------------------------------------

  /** Has the holder run a call; after its death, whoever holds the session then, which may be this process. */
  pass(passed: PassedCall): void {
    const { call } = passed;
    const { idempotencyKey } = call.params as { idempotencyKey?: string };
    const key = idempotencyKey ?? this.options.newKey();
    const params = paramsText(call, idempotencyKey === undefined ? key : undefined);
    const asked = { ...passed, key, params, isRepeated: false };
    if (this.isClosed) {
      void runHere(asked);
      return;
    }
    this.asked.add(asked);
    this.sendNext();
  }

  /** Asks the holder not to run some calls any more. Their replies say whether it did. */
  cancel(isMeant: (call: Call) => boolean): void {
    this.asked.cancel(isMeant, (number) => this.pipe?.send(JSON.stringify({ cancel: number })));
  }

  /** Sends what the holder may be asked now. */
  private sendNext(): void {
    const { pipe, asked } = this;
    this.tellHead();
    for (let next = pipe && asked.next(); next; next = asked.next()) {
      const [number, { call, params }] = next;
      const head = `{"call":${number},"name":${JSON.stringify(call.command.name)},"loose":true,"params":`;
      pipe?.send(head, ...params, "}");
    }
    if (this.watch || asked.size === 0) return;
    this.heardAt = performance.now();
    this.watch = setInterval(() => this.requireWord(), this.options.answersWithin / 6).unref();
  }

  /** Ends what waits for a holder that says nothing. It keeps the lock, so nobody may take its place. */
  private requireWord(): void {
    if (this.asked.size === 0) {
      clearInterval(this.watch);
      this.watch = undefined;
      return;
    }
    const { answersWithin } = this.options;
    // A holder that waits for its own host, where a model may be at work, says so.
    this.pipe?.send('{"ping":true}');
    if (this.questions.size > 0 || performance.now() - this.heardAt < answersWithin) return;
    this.failAll(`It has said nothing for ${answersWithin / 1000} s, and may be stopped.`);
  }

  /** Ends what waits for the holder, which has not answered for a reason. */
  failAll(why: string): void {
    for (const { call, settle } of this.asked.takeAll()) settle({ error: unanswered(call, this.holder, why) });
  }

  // --- hearing -------------------------------------------------------------------------------------------------

  private receive(message: PipeMessage): void {
    this.heardAt = performance.now();
    requireSound(message.value);
    this.note(message);
    const { reply, event, ask, withdraw, lost, ping, bye } = message.value;
    if (ping === true) this.pipe?.send('{"pong":true}');
    else if (typeof reply === "number") this.receiveReply(reply, message.value);
    else if (typeof event === "string" && isKnown(event)) this.receiveEvent(event, message);
    else if (typeof ask === "number") this.receiveQuestion(ask, message.value);
    else if (typeof withdraw === "number") this.questions.get(withdraw)?.cancel();
    else if (typeof lost === "number") {
      this.options.missed(this.session, lost);
      this.meet(message);
    } else if (bye === true) this.hasLeft = true;
  }

  private note({ value }: PipeMessage): void {
    if (value.leafId === undefined) return;
    const last = lastOf(String(value.event), value.payload as PendingEvent["payload"]) ?? this.place.lastId;
    this.place = placeIn(value, last);
    this.isBehind = true;
  }

  /** Whether the holder has told of the leaf that our host has now. */
  private get isOwnPlace(): boolean {
    return this.place.head === this.session.heads.own;
  }

  /** The leaf of our host, where it was told last. */
  private get toldLeafId(): string | null {
    return this.isOwnPlace ? this.place.leafId : this.session.ownLeafId;
  }

  private receiveReply(number: number, { result, error }: PipeMessage["value"]): void {
    const asked = this.asked.answered(number);
    if (asked) {
      this.fight.until = 0;
      settleAsked(asked, error === undefined ? { result } : { error: new DescribedError(error as ErrorDescription) });
    }
    this.sendNext();
  }

  private receiveEvent(name: EventName, message: PipeMessage): void {
    if (name === "client_joined" || name === "client_left") {
      const news = this.clients.take(name, message.value.payload);
      return this.tellPresence(news ? [news] : []);
    }
    // What is stored is passed on as it is, but ends no line of ours.
    const bytes = oneLine(message.text("payload") ?? bytesOf("{}"));
    const payload: Record<string, unknown> = Object.fromEntries(
      (members(bytes, 0, bytes.length, knownValueEnd) ?? [])
        .filter((member) => !OURS.has(member.name))
        .map((member) => [member.name, Raw.of(bytes.subarray(member.start, member.end))]),
    );
    if (name === "session_append" && !this.leaveNew(payload, message.value.payload)) return;
    if (payload.client) payload.client = clientIn(message.value.payload);
    const leafId = this.toldLeafId;
    const told = { name, sessionId: this.session.id, leafId, payload };
    const cause = this.asked.get(message.value.of);
    if (cause) cause.events.push(told);
    else this.options.passOn(this.session, [told]);
  }

  /**
   * Leaves of entries that the holder tells of those of which our host has not heard: another holder may have told of them,
   * or they were read here. Returns whether there are any.
   */
  private leaveNew(payload: Record<string, unknown>, said: unknown): boolean {
    const { entryIds } = said as { entryIds: string[] };
    const isNew = entryIds.map((id) => this.session.foreign.markReported(id));
    if (isNew.every(Boolean)) return true;
    payload.entryIds = entryIds.filter((_, at) => isNew[at]);
    if (payload.entries instanceof Raw) {
      const bytes = payload.entries.bytes();
      const entries = (elements(bytes, 0, bytes.length, knownValueEnd) ?? []).filter((_, at) => isNew[at]);
      payload.entries = entries.map(({ start, end }) => Raw.of(bytes.subarray(start, end)));
    }
    return isNew.includes(true);
  }

  private receiveQuestion(number: number, { hook, payload }: PipeMessage["value"]): void {
    if (!HOOKS.includes(hook as HookName) || !this.options.hooks.has(hook as HookName)) {
      this.pipe?.send(JSON.stringify({ answer: number, error: "cancelled" }));
      return;
    }
    const { client, ...asked } = (payload ?? {}) as Record<string, unknown>;
    const by = client === undefined ? {} : { client: clientIn(payload) };
    const question = this.options.ask(this.session, hook as HookName, { ...asked, ...by });
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

  /** Brings what is known of the session here to where the holder said that it is. */
  follow(): void {
    if (!this.isBehind) return;
    const { session } = this;
    // The holder tells of everything that is found now.
    try {
      session.foreign.readAlong();
    } catch (error) {
      // What was read before is still known when the file is gone, as it is to the holder.
      if (error instanceof Failure && error.details.errno === "ENOENT") return;
      throw error;
    }
    this.isBehind = false;
    if (this.isOwnPlace) settle(session, this.place);
  }

  // --- the holder's end ----------------------------------------------------------------------------------------

  /** Takes the dead holder's place, or joins whoever took it. */
  private async recover(): Promise<void> {
    this.pipe = undefined;
    for (const question of this.questions.values()) question.cancel();
    this.tellPresence(this.clients.withoutHolder(this.hasLeft ? "left" : "died"));
    this.hasLeft = false;
    this.asked.startAgain();
    for (const { events } of this.asked.all) if (events.length > 0) this.options.passOn(this.session, events.splice(0));
    const known = this.place;
    const now = performance.now();
    const { answersWithin } = this.options;
    // Holders that let us in and leave, again and again, are not followed without end: what they were asked waits for all of
    // them together no longer than for one that says nothing.
    const stays = this.asked.size > 0 ? Math.max(STAYS_AFTER, answersWithin) : STAYS_AFTER;
    const isAgain = now - this.joinedAt < stays && this.fight.until > 0;
    if (!isAgain) this.fight = { until: now + Math.min(RECOVERS_WITHIN, answersWithin), wait: 0 };
    const { until, wait: pause } = this.fight;
    this.fight.wait = Math.min(Math.max(1, 2 * pause), STAYS_AFTER);
    if (pause > 0) await sleep(Math.min(pause, Math.max(0, until - now)));
    for (let wait = 1; !this.isClosed; wait = Math.min(2 * wait, 50)) {
      try {
        if (this.isHolder()) return await this.takeOver(known);
        if (performance.now() >= until) break;
        if ((await this.connect(known)) === "joined") return this.goOn();
      } catch (error) {
        this.giveUp(error);
        return;
      }
      await sleep(wait);
    }
    this.giveUp(undefined);
  }

  private isHolder(): boolean {
    const { session } = this;
    return session.foreign.becomeWriter() || (session.log.lockKind ?? null) !== null;
  }

  private giveUp(error: unknown): void {
    const why = error instanceof Error ? ` (${error.message})` : "";
    if (!this.isClosed) {
      try {
        // From here on, our host is told of what is read; of what was read until now, it is told here.
        this.catchUp(this.place, { isRead: true });
      } catch {
        // Nothing can be read.
      }
      this.tellPresence(this.clients.clear());
      // What comes after these calls is not asked here any more.
      this.close(true);
    }
    this.failAll(`It ended, and the session cannot be had here${why}.`);
  }

  /** Goes on as the holder: what was not answered is run here, in its order. */
  private async takeOver(known: ToldPlace): Promise<void> {
    const { session, options } = this;
    session.foreign.readAlong();
    // What the dead holder wrote may be what we are about to answer for.
    session.log.settle?.();
    this.catchUp(known);
    this.end();
    const epoch = options.tookOver(session, this.clients.others) ?? this.holder.epoch + 1;
    this.tellOwner({ epoch, client: options.client, pid: process.pid }, true);
    for (const asked of this.asked.takeAll()) await runHere(asked);
  }

  /** Goes on with another holder: what was not answered is asked again. */
  private goOn(): void {
    this.tellOwner(this.holder, false);
    this.sendNext();
  }

  private tellOwner(holder: SharedHolder, isSelf: boolean): void {
    const { session, options } = this;
    options.passOn(session, [eventOf(session, "session_owner_changed", { ...holder, isSelf })]);
  }

  /**
   * Reads what came since our host was told last, and tells it of that: all that there is, or what the next holder knew
   * when it let us in. Returns false, having told nothing, if that cannot be read yet.
   */
  private catchUp(told: ToldPlace, wish: CatchingUp = {}): boolean {
    const { session, asked, options } = this;
    const keys = asked.all.map(({ key }) => key);
    const caught = catchUp(session, told, keys, wish);
    this.isBehind = false;
    if (!caught) return false;
    if (caught.place) this.place = caught.place;
    if (caught.events.length > 0) options.passOn(session, caught.events);
    return true;
  }
}

function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
