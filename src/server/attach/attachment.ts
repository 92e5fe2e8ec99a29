/**
 * One session that another process holds and this one has joined. What writes is done there; what reads is read from
 * the session's own files, which have all that was acknowledged. When the holder is gone, this process takes the lock
 * or joins whoever has it, and asks again what was not answered, under the same keys.
 */

import type { Duplex } from "node:stream";
import { Failure } from "../../core/failure.ts";
import { bytesOf, knownValueEnd, members, valueAt } from "../../core/json/json.ts";
import { Raw } from "../../core/json/raw.ts";
import { ATTACH_PROTOCOL, type FoundHolder, type SharedHolder } from "../../core/ports/attach.ts";
import type { Session } from "../../core/session/session.ts";
import type { EventName } from "../../handlers/shared/events.ts";
import type { HookName } from "../../handlers/shared/hooks.ts";
import type { Call, Outcome } from "../connection/call.ts";
import { DescribedError, type ErrorDescription } from "../connection/dialect.ts";
import type { Hooks, Question } from "../connection/hooks.ts";
import { eventOf, type PendingEvent } from "../connection/host.ts";
import { lastOf } from "./guest.ts";
import { Pipe, type PipeMessage } from "./pipe.ts";
import { missedBy, NOWHERE, placeIn, placeOf, settle, type ToldPlace } from "./places.ts";
import { HOOKS } from "./words.ts";

/** Milliseconds without a word from the holder after which what it was asked fails: it may have been stopped. */
const ANSWERS_WITHIN = 30_000;
/** Milliseconds in which a holder must let us in. */
const LETS_IN_WITHIN = 1000;
/** Milliseconds for which a dead holder's place is fought for. */
const RECOVERS_WITHIN = 15_000;

export interface AttachmentOptions {
  readonly client: string;
  readonly durability: "sync" | "os";
  readonly hooks: Pick<Hooks, "has" | "ask">;
  readonly newKey: () => string;
  /** Finds the holder of the session. */
  readonly find: (session: Session) => FoundHolder<Duplex> | null;
  /** Sends events of a session to our host. */
  readonly passOn: (session: Session, events: PendingEvent[]) => void;
  /** Counts events that the holder of a session did not tell. */
  readonly missed: (session: Session, count: number) => void;
  /** Lets others join a session that this process holds now. Returns the epoch, if they can. */
  readonly tookOver: (session: Session) => number | undefined;
}

/** Events whose entries are remembered. */
const MAX_TOLD = 10_000;

/** A call that the holder is to run. */
interface PassedCall {
  readonly call: Call;
  /** Receives the events that it causes. */
  readonly events: PendingEvent[];
  /** Runs the call in this process, once it holds the session. */
  readonly here: (keyed: Call) => unknown;
  /** Ends the call at once: what the holder tells next comes after its reply. */
  readonly settle: (outcome: Outcome) => void;
}

/** A call that the holder has not answered. */
interface UnansweredCall extends PassedCall {
  readonly key: string;
  readonly params: readonly Uint8Array[];
}

export class Attachment {
  private readonly session: Session;
  private readonly options: AttachmentOptions;
  /** Called when the session is not joined any more. */
  private readonly ended: () => void;
  private pipe: Pipe | undefined;
  private holder: SharedHolder = { epoch: 0, client: "", pid: 0 };
  private place: ToldPlace = NOWHERE;
  /** The head at which the holder was told that our host stands. */
  private toldHead: string | null = null;
  /** Whether the holder told of something that was not read here yet. */
  private isBehind = false;
  private readonly asked = new Map<number, UnansweredCall>();
  private numbers = 0;
  /** Entries that our host was told of lately; where one of them is the last of an event, it has heard of that. */
  private readonly told = new Set<string>();
  private readonly questions = new Map<number, Question>();
  private heardAt = 0;
  private watch: NodeJS.Timeout | undefined;
  private isClosed = false;

  constructor(session: Session, options: AttachmentOptions, ended: () => void) {
    this.session = session;
    this.options = options;
    this.ended = ended;
  }

  // --- joining -------------------------------------------------------------------------------------------------

  /** Joins the holder that is announced now, unless that died. `known`: where our host was told of the last. Never rejects. */
  async connect(known?: ToldPlace): Promise<"joined" | "refused" | "nobody"> {
    const found = this.options.find(this.session);
    if (!found || found.announcement.epoch === this.holder.epoch) return "nobody";
    if (found.announcement.protocol !== ATTACH_PROTOCOL) return "refused";
    let stream: Duplex;
    try {
      stream = await found.connect();
    } catch {
      return "nobody";
    }
    return this.enter(stream, found.announcement.token, known);
  }

  private enter(stream: Duplex, token: string, known?: ToldPlace): Promise<"joined" | "refused" | "nobody"> {
    const { session, options } = this;
    return new Promise((resolve) => {
      let isIn = false;
      const settle = (outcome: "joined" | "refused" | "nobody"): void => {
        clearTimeout(late);
        isIn = outcome === "joined";
        if (isIn) this.pipe = pipe;
        if (isIn) session.holder = this.holder;
        else pipe.drop();
        resolve(outcome);
      };
      const pipe = new Pipe(
        stream,
        (message) => {
          if (isIn) return this.receive(message);
          const { attached } = message.value as { attached?: SharedHolder };
          if (!attached) return settle("refused");
          this.holder = attached;
          this.note(message);
          // A holder that knows of no heads would write at the shared leaf.
          if (this.place.head !== this.toldHead) return settle("refused");
          try {
            this.catchUp(known ?? this.placeHere(), { next: this.place, isFirst: known === undefined });
          } catch {
            return settle("refused");
          }
          settle("joined");
        },
        () => {
          if (!isIn) settle("nobody");
          else if (this.pipe === pipe) void this.recover();
        },
      );
      const late = setTimeout(() => settle("nobody"), LETS_IN_WITHIN);
      const { client, durability } = options;
      const attach = {
        token,
        protocol: ATTACH_PROTOCOL,
        sessionId: session.id,
        client,
        durability,
        hooks: this.hookNames(),
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
    const { heads, ownLeafId } = this.session;
    this.toldHead = heads.own;
    return heads.own === null ? null : { head: heads.own, leafId: ownLeafId };
  }

  /** Tells the holder where our host stands, if it does not know. */
  tellHead(): void {
    if (this.session.heads.own !== this.toldHead) this.pipe?.send(JSON.stringify({ stand: this.noteStand() }));
  }

  private hookNames(): string[] {
    return HOOKS.filter((name) => this.options.hooks.has(name));
  }

  tellHooks(): void {
    this.pipe?.send(JSON.stringify({ hooks: this.hookNames() }));
  }

  private end(): void {
    this.isClosed = true;
    clearInterval(this.watch);
    this.session.holder = undefined;
    this.ended();
  }

  close(): void {
    this.end();
    const { pipe } = this;
    this.pipe = undefined;
    pipe?.close();
    for (const question of this.questions.values()) question.cancel();
  }

  // --- asking --------------------------------------------------------------------------------------------------

  /** Has the holder run a call; after its death, whoever holds the session then, which may be this process. */
  pass(passed: PassedCall): void {
    const { call } = passed;
    const { idempotencyKey } = call.params as { idempotencyKey?: string };
    const key = idempotencyKey ?? this.options.newKey();
    const params = paramsText(call, idempotencyKey === undefined ? key : undefined);
    const asked = { ...passed, key, params };
    if (this.isClosed) {
      void runHere(asked);
      return;
    }
    const number = ++this.numbers;
    this.asked.set(number, asked);
    this.send(number);
  }

  /** Asks the holder not to run some calls any more. Their replies say whether it did. */
  cancel(isMeant: (call: Call) => boolean): void {
    for (const [number, { call }] of this.asked) if (isMeant(call)) this.pipe?.send(JSON.stringify({ cancel: number }));
  }

  private send(number: number): void {
    const { pipe } = this;
    const asked = this.asked.get(number);
    if (!pipe || !asked) return;
    this.tellHead();
    const head = `{"call":${number},"name":${JSON.stringify(asked.call.command.name)},"loose":true,"params":`;
    pipe.send(head, ...asked.params, "}");
    if (this.watch) return;
    this.heardAt = performance.now();
    this.watch = setInterval(() => this.requireWord(), ANSWERS_WITHIN / 6).unref();
  }

  /** Ends what waits for a holder that says nothing. It keeps the lock, so nobody may take its place. */
  private requireWord(): void {
    if (this.asked.size === 0) {
      clearInterval(this.watch);
      this.watch = undefined;
      return;
    }
    const { client, pid } = this.holder;
    // A holder that waits for its own host, where a model may be at work, says so.
    this.pipe?.send('{"ping":true}');
    if (this.questions.size > 0 || performance.now() - this.heardAt < ANSWERS_WITHIN) return;
    const seconds = ANSWERS_WITHIN / 1000;
    this.failAll(
      `${client} (process ${pid}) holds this session and has said nothing for ${seconds} s. It may be stopped; whether it did this is not known. Read the state, or send it again with the same idempotencyKey.`,
    );
  }

  private failAll(sentence: string): void {
    const unanswered = [...this.asked.values()];
    this.asked.clear();
    const { client, pid } = this.holder;
    for (const { settle } of unanswered)
      settle({ error: new Failure("outcome_unknown", sentence, { holder: { client, pid } }, { retryable: true }) });
  }

  // --- hearing -------------------------------------------------------------------------------------------------

  private receive(message: PipeMessage): void {
    this.heardAt = performance.now();
    this.note(message);
    const { reply, event, ask, withdraw, lost } = message.value;
    if (typeof reply === "number") this.receiveReply(reply, message.value);
    else if (typeof event === "string") this.receiveEvent(event as EventName, message);
    else if (typeof ask === "number") this.receiveQuestion(ask, message.value);
    else if (typeof withdraw === "number") this.questions.get(withdraw)?.cancel();
    else if (typeof lost === "number") this.options.missed(this.session, lost);
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

  private receiveReply(number: number, { result, error }: PipeMessage["value"]): void {
    const asked = this.asked.get(number);
    this.asked.delete(number);
    asked?.settle(error === undefined ? { result } : { error: new DescribedError(error as ErrorDescription) });
  }

  private receiveEvent(name: EventName, message: PipeMessage): void {
    // Another holder may tell once more of what the one before had told, or what was read here.
    if (!this.isNew(name, message.value.payload as PendingEvent["payload"])) return;
    const bytes = message.text("payload") ?? bytesOf("{}");
    // What is stored is passed on as it is.
    const payload = Object.fromEntries(
      (members(bytes) ?? []).map((member) => [member.name, Raw.of(bytes.subarray(member.start, member.end))]),
    );
    const leafId = this.isOwnPlace ? this.place.leafId : this.session.ownLeafId;
    const told = { name, sessionId: this.session.id, leafId, payload };
    const cause = this.asked.get(message.value.of as number);
    if (cause) cause.events.push(told);
    else this.options.passOn(this.session, [told]);
  }

  private isNew(name: EventName, payload: PendingEvent["payload"]): boolean {
    const lastId = lastOf(name, payload);
    if (lastId === undefined) return true;
    const isNew = !this.told.has(lastId);
    this.noteTold(lastId);
    return isNew;
  }

  private noteTold(id: string): void {
    this.told.add(id);
    if (this.told.size > MAX_TOLD) this.told.delete(this.told.values().next().value as string);
  }

  private receiveQuestion(number: number, { hook, payload }: PipeMessage["value"]): void {
    const question = this.options.hooks.ask(hook as HookName, (payload ?? {}) as Record<string, unknown>, () => {});
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
      session.refresh();
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
    for (const { events } of this.asked.values())
      if (events.length > 0) this.options.passOn(this.session, events.splice(0));
    const known = this.place;
    const until = performance.now() + RECOVERS_WITHIN;
    for (let wait = 1; !this.isClosed; wait = Math.min(2 * wait, 50)) {
      try {
        if (this.isHolder()) return await this.takeOver(known);
        if ((await this.connect(known)) === "joined") return this.goOn();
      } catch (error) {
        this.giveUp(error);
        return;
      }
      if (performance.now() >= until) break;
      await new Promise((resolve) => setTimeout(resolve, wait));
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
      // What comes after these calls is not asked here any more.
      this.close();
    }
    this.failAll(
      `The process that held this session ended before it answered, and the session cannot be had here${why}. Read the state and decide again.`,
    );
  }

  /** Goes on as the holder: what was not answered is run here, in its order. */
  private async takeOver(known: ToldPlace): Promise<void> {
    const { session, options } = this;
    this.catchUp(known);
    this.end();
    const epoch = options.tookOver(session) ?? this.holder.epoch + 1;
    this.tellOwner({ epoch, client: options.client, pid: process.pid }, true);
    const unanswered = [...this.asked.values()];
    this.asked.clear();
    for (const asked of unanswered) await runHere(asked);
  }

  /** Goes on with another holder: what was not answered is asked again. */
  private goOn(): void {
    this.tellOwner(this.holder, false);
    for (const number of this.asked.keys()) this.send(number);
  }

  private tellOwner(holder: SharedHolder, isSelf: boolean): void {
    const { session, options } = this;
    options.passOn(session, [eventOf(session, "session_owner_changed", { ...holder, isSelf })]);
  }

  /**
   * Reads what came since our host was told last, and tells it of that: all that there is, or what the next holder knew
   * when it let us in.
   */
  private catchUp(
    told: ToldPlace,
    { next, isFirst = false, isRead = false }: { next?: ToldPlace; isFirst?: boolean; isRead?: boolean } = {},
  ): void {
    const { session, asked, options } = this;
    const known = told.head === session.heads.own ? told : { ...placeOf(session), lastId: told.lastId };
    const before = session.log.nodes.count;
    if (!isRead) session.refresh();
    this.isBehind = false;
    const { nodes } = session.log;
    const keys = [...asked.values()].flatMap(({ key }) => session.repeated(key)?.ids ?? []);
    const own = new Set(keys.map((id) => nodes.position(id)));
    const first = known.lastId === null ? 0 : nodes.position(known.lastId) + 1;
    const past = next?.lastId ? nodes.position(next.lastId) + 1 : nodes.count;
    const end = past > 0 ? past : nodes.count;
    // By their ids, because those that were not acknowledged may be gone and others in their places.
    for (let position = end; isFirst && position < before; position++) this.noteTold(nodes.id(position));
    // A file in which the last known entry is not was replaced; the refresh has read it anew.
    const from = known.lastId === null || first > 0 ? first : end;
    const missed = missedBy(session, { from, end, own, isFirst }, known);
    for (const id of missed.entryIds) this.noteTold(id);
    const { events, place } = missed;
    const oldLeafId = place.leafId;
    // The holder may have told of a head that our host has left meanwhile.
    const now = next?.head === session.heads.own ? next : place;
    settle(session, now);
    const newLeafId = now.leafId;
    if (newLeafId !== oldLeafId) events.push(eventOf(session, "session_tree", { newLeafId, oldLeafId }));
    if (events.length > 0) options.passOn(session, events);
  }
}

/** Runs a call in this process, which holds the session now. */
async function runHere({ call, key, here, settle }: UnansweredCall): Promise<void> {
  const keyed = { ...call, params: { ...(call.params as object), idempotencyKey: key } };
  let outcome: Outcome;
  try {
    outcome = { result: await here(keyed) };
  } catch (error) {
    outcome = { error };
  }
  settle(outcome);
}

/** Returns the text of a call's params, in pieces; with a key, if they have none. */
function paramsText(call: Call, key: string | undefined): Uint8Array[] {
  const { bytes, range, toParams } = call.messageText();
  const found = valueAt(bytes, range, [...toParams], knownValueEnd);
  // The message may be part of an input buffer that is used again.
  const text = found ? Uint8Array.from(bytes.subarray(found.start, found.end)) : bytesOf("{}");
  if (key === undefined) return [text];
  const isEmpty = (members(text) ?? []).length === 0;
  return [bytesOf(`{"idempotencyKey":${JSON.stringify(key)}${isEmpty ? "" : ","}`), text.subarray(1)];
}
