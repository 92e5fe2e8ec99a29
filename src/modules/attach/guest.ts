/** A process that joined a session of this server: its calls run among the local host's, and it receives events. */

import { Failure } from "../../core/failure.ts";
import { HEAD_NAME } from "../../core/format/entry.ts";
import { concat, toBytes } from "../../core/json/json.ts";
import { holdsRaw, toPlainText, toTextPieces } from "../../core/json/raw.ts";
import type { SharedClient } from "../../core/ports/attach.ts";
import type { Session } from "../../core/session/session.ts";
import { findCommand } from "../../handlers/shared/find.ts";
import type { HookAnswer, HookName } from "../../handlers/shared/hooks.ts";
import { isForHolder } from "../../handlers/shared/repetition.ts";
import type { Call, Outcome, Peer, Question, ReportedLeaves } from "../../server/connection/call.ts";
import { checkParams, describeError } from "../../server/connection/dialect.ts";
import type { PendingEvent } from "../../server/connection/events.ts";
import { PendingRequests } from "../../server/connection/pending-requests.ts";
import type { SharingServer } from "../../server/dispatch/sharing.ts";
import type { Pipe, PipeMessage } from "./pipe.ts";
import type { PresenceEvent } from "./reported-clients.ts";

/** Calls of one guest that may wait; beyond, its messages are not read. */
const MAX_WAITING = 1000;

/** Characters of a guest's texts that are repeated. */
const SHOWN = 500;

/** Pings to a guest before it counts as stopped. */
const PINGS = 6;

/** Decision for a guest that is gone. */
const GONE: HookAnswer = { cancelled: true, reason: "host_gone" };

/** Registry of a session's guests, as one guest uses it. */
export interface GuestRegistry {
  /** Returns the clients of a session, for a guest that missed events about them. */
  clientsOf(session: Session): readonly SharedClient[];
  /** Records a guest's description of itself. */
  introduce(guest: Guest, self: unknown): void;
  /** Milliseconds of silence after which a guest with an open question counts as stopped. */
  readonly answersWithin: number;
}

export class Guest implements Peer {
  readonly session: Session;
  client: SharedClient;
  private readonly holder: SharingServer;
  private readonly registry: GuestRegistry;
  private readonly pipe: Pipe;
  private hooksAsked: ReadonlySet<string>;
  private waiting = 0;
  /** True if reading is paused until the guest has read its output. */
  private isFull = false;
  /** Events dropped for it, and the session's position after them. */
  private missed: { count: number; lastId?: string; left?: ReportedLeaves } | undefined;
  private questions = 0;
  private readonly asked = new PendingRequests<number, HookAnswer>();
  isGone = false;
  private heardAt = 0;
  private watch: NodeJS.Timeout | undefined;
  /** True if it was silent during a question, and has been since. */
  private isSilent = false;
  /** Its head; null for the shared leaf. */
  private head: string | null = null;
  /** True if it said goodbye. */
  hasLeft = false;

  constructor(
    { holder, registry, pipe }: { holder: SharingServer; registry: GuestRegistry; pipe: Pipe },
    { session, client, hooks }: { session: Session; client: SharedClient; hooks: readonly string[] },
  ) {
    this.holder = holder;
    this.registry = registry;
    this.client = client;
    this.pipe = pipe;
    this.session = session;
    this.hooksAsked = new Set(hooks);
  }

  // --- what comes in -------------------------------------------------------------------------------------------

  receive(message: PipeMessage): void {
    this.heardAt = performance.now();
    this.isSilent = false;
    const { call, answer, hooks, cancel, ping, stand, self, bye } = message.value;
    if (ping === true) this.pipe.send('{"pong":true}');
    else if (typeof call === "number") this.receiveCall(call, message);
    else if (typeof answer === "number") this.receiveAnswer(answer, message.value);
    else if (Array.isArray(hooks)) this.hooksAsked = new Set(hooks.map(String));
    else if (typeof cancel === "number") this.holder.cancel(String(cancel), this);
    else if (stand !== undefined) {
      this.setHead(stand);
      this.pipe.send(`{"stood":true,${this.placeText()}}`);
    } else if (self !== undefined) this.registry.introduce(this, self);
    else if (bye === true) this.hasLeft = true;
    this.noteFull();
  }

  /**
   * Accepts messages during shutdown: answers, for which running calls still wait. The guest sends everything else to
   * the next holder.
   */
  receiveAtEnd(message: PipeMessage): void {
    const { answer, ping, pong, bye } = message.value;
    if (typeof answer === "number" || [ping, pong, bye].includes(true)) this.receive(message);
  }

  /** Pauses reading from a guest that does not read its answers. */
  private noteFull(): void {
    if (this.isFull || !this.pipe.isFull) return;
    this.isFull = true;
    this.pipe.pause();
    this.pipe.whenRead(() => {
      this.isFull = false;
      if (this.waiting < MAX_WAITING) this.pipe.resume();
    });
  }

  /** Moves it to the head in the message, or to the shared leaf. */
  setHead(position: unknown): void {
    const { head, leafId } = (position ?? {}) as { head?: unknown; leafId?: unknown };
    const { heads } = this.session;
    const name = typeof head === "string" && HEAD_NAME.test(head) ? head : null;
    if (name === this.head) return;
    if (name !== null) heads.enter(name, leafId === null || typeof leafId === "string" ? leafId : undefined);
    if (this.head !== null) heads.leave(this.head);
    this.head = name;
  }

  private receiveCall(number: number, message: PipeMessage): void {
    const { name, loose, consent } = message.value;
    const command = typeof name === "string" ? findCommand(name) : undefined;
    if (!command || !isForHolder({ command, params: message.value.params })) {
      const error = new Failure("session_locked", `The holder of this session does not do ${name} for others.`);
      return this.sendReply(number, { error });
    }
    const bytes = message.text("params") ?? toBytes("{}");
    const { params, fault } = checkParams(command, message.value.params, loose === true);
    const call: Call = {
      command,
      name: command.name,
      params,
      idText: String(number),
      messageText: () => ({ bytes, range: { start: 0, end: bytes.length }, toParams: [] }),
      fault,
      target: this.session,
      peer: this,
      head: this.head,
      needsConsent: consent === true,
    };
    if (++this.waiting === MAX_WAITING) this.pipe.pause();
    this.holder.submit(call);
  }

  private receiveAnswer(number: number, { result, error }: PipeMessage["value"]): void {
    if (error !== undefined) this.asked.reject(number, new Failure("cancelled"));
    else this.asked.resolve(number, (result ?? { cancelled: true }) as HookAnswer);
  }

  // --- what goes out -------------------------------------------------------------------------------------------

  /** Returns the guest's position as members of a message: the present one, or that after an event. */
  private placeText(left?: ReportedLeaves): string {
    const { head, session } = this;
    const { heads } = session;
    const leaves = left ? (left.leaves ?? new Map([[null, left.leafId]])) : undefined;
    const sharedLeafId = leaves ? leaves.get(null) : session.sharedLeafId;
    if (head === null) return `"leafId":${JSON.stringify(sharedLeafId)}`;
    const leafId = leaves?.has(head) ? leaves.get(head) : session.idOrNull(heads.leafOf(head));
    const place = { leafId, sharedLeafId, at: { head, lastId: heads.lastIdOf(head) } };
    return JSON.stringify(place).slice(1, -1);
  }

  noteAsked({ idText }: Call): void {
    this.pipe.send(`{"asks":${idText}}`);
  }

  reply({ idText }: Call, outcome: Outcome, left: ReportedLeaves | undefined): void {
    if (this.waiting-- === MAX_WAITING && !this.isFull) this.pipe.resume();
    // A server that ends runs nothing more: the guest sends the call to the next holder.
    if ("error" in outcome && outcome.error instanceof Failure && outcome.error.name === "shutting_down") return;
    this.sendReply(Number(idText), outcome, left);
  }

  private sendReply(number: number, outcome: Outcome, left?: ReportedLeaves): void {
    const head = `{"reply":${number}${left === undefined ? "" : `,${this.placeText(left)}`}`;
    if (!("error" in outcome)) return this.pipe.send(`${head},"result":`, serialize(outcome.result), "}");
    this.pipe.send(`${head},"error":${JSON.stringify(describeError(outcome.error))}}`);
  }

  /**
   * Sends an event, which the guest's call `by` may have caused. A guest that does not read receives only the number of
   * missed events and its position.
   */
  event(event: PendingEvent, by?: Call): void {
    const { name, payload } = event;
    const of = by?.idText === undefined ? "" : `,"of":${by.idText}`;
    if (this.isBehind) {
      const { count = 0, lastId } = this.missed ?? {};
      this.missed = { count: count + 1, lastId: getLastEntryId(name, payload) ?? lastId, left: event };
      return;
    }
    let text: string | Uint8Array;
    try {
      text = serialize(payload);
    } catch {
      // Stored entries in it cannot be read now; only the ids are sent.
      text = JSON.stringify({ ...payload, entries: undefined });
    }
    this.pipe.send(`{"event":${JSON.stringify(name)}${of},${this.placeText(event)},"payload":`, text, "}");
  }

  /**
   * Sends an event about a client. It goes out at once and without a position, because events of the last write may be
   * waiting.
   */
  presence({ name, payload }: PresenceEvent): void {
    if (!this.isBehind) this.pipe.send(JSON.stringify({ event: name, payload }));
  }

  /** True if it does not read: missed events are reported once it does. */
  private get isBehind(): boolean {
    if (this.missed) return true;
    if (!this.pipe.isFull) return false;
    this.missed = { count: 0 };
    this.pipe.whenRead(() => this.reportMissed());
    return true;
  }

  private reportMissed(): void {
    const { count, lastId, left } = this.missed as NonNullable<Guest["missed"]>;
    this.missed = undefined;
    const last = lastId === undefined ? "" : `"lastId":${JSON.stringify(lastId)},`;
    const clients = JSON.stringify(this.registry.clientsOf(this.session));
    this.pipe.send(`{"lost":${count},${last}${this.placeText(left)},"clients":${clients}}`);
  }

  /** Admits the guest; `lastId` is the last entry that is not reported to it. */
  welcome(holder: object, by: string, lastId: string | null): void {
    const { session, client, head } = this;
    // A leaf that is not durable may be undone without an event.
    const { leafId, sharedLeafId, lastId: headLastId } = session.heads.durable(head);
    const place = head === null ? { leafId } : { leafId, sharedLeafId, at: { head, lastId: headLastId } };
    const clients = this.registry.clientsOf(session);
    this.pipe.send(JSON.stringify({ attached: holder, self: client.id, by, lastId, clients, ...place }));
  }

  // --- hooks ---------------------------------------------------------------------------------------------------

  has(name: HookName): boolean {
    return this.hooksAsked.has(name) && !this.isGone && !this.isSilent;
  }

  ask(name: HookName, payload: Readonly<Record<string, unknown>>): Question {
    const number = ++this.questions;
    const { asked, pipe } = this;
    const said = asked.wait(number, name);
    const answer = said.then((decision) => (decision === GONE ? GONE : checkDecision(name, decision)));
    answer.catch(() => {});
    pipe.send(JSON.stringify({ ask: number, hook: name, payload }));
    if (this.isGone) asked.resolve(number, GONE);
    else this.checkSilence();
    return {
      answer,
      cancel() {
        pipe.send(JSON.stringify({ withdraw: number }));
        asked.reject(number, new Failure("cancelled"));
      },
    };
  }

  /** Pings the guest during a question: a stopped guest would block the caller forever. */
  private checkSilence(): void {
    if (this.watch) return;
    const { answersWithin } = this.registry;
    this.heardAt = performance.now();
    this.watch = setInterval(() => {
      // While reading from it is paused, its silence proves nothing.
      if (this.waiting >= MAX_WAITING) this.heardAt = performance.now();
      if (this.asked.ids.length === 0) this.endWatch();
      else if (performance.now() - this.heardAt < answersWithin) this.pipe.send('{"ping":true}');
      else this.answerForSilent();
    }, answersWithin / PINGS).unref();
  }

  private endWatch(): void {
    clearInterval(this.watch);
    this.watch = undefined;
  }

  /** Answers the questions of a silent guest as if it were gone. */
  private answerForSilent(): void {
    this.endWatch();
    this.isSilent = true;
    for (const number of this.asked.ids) this.pipe.send(JSON.stringify({ withdraw: number }));
    this.asked.resolveAll(GONE);
  }

  // --- the end -------------------------------------------------------------------------------------------------

  /** Notes that the guest is gone; its calls still run. */
  markGone(): void {
    this.isGone = true;
    this.endWatch();
    this.setHead(null);
    this.asked.resolveAll(GONE);
  }

  close(): void {
    this.markGone();
    this.pipe.send('{"bye":true}');
    this.pipe.close();
  }
}

/** Returns the decision from another process, checked, because its shape may be wrong. */
async function checkDecision(name: HookName, said: HookAnswer): Promise<HookAnswer> {
  const { decideOnAnswer: decisionOn, decideOnError: decisionOnError } = await import("../../handlers/shared/hooks.ts");
  if (said.cancelled === false) return decisionOn(name, said.answer);
  const { reason, message } = said;
  if (typeof reason !== "string" || (message !== undefined && typeof message !== "string"))
    return decisionOnError(name, new Error("no decision"));
  return { cancelled: true, reason: reason.slice(0, SHOWN), message: message?.slice(0, SHOWN) };
}

/** Returns the last entry in an event. */
export function getLastEntryId(name: string, payload: PendingEvent["payload"]): string | undefined {
  return name === "session_append" ? (payload.entryIds as string[]).at(-1) : undefined;
}

function serialize(value: unknown): string | Uint8Array {
  if (!holdsRaw(value)) return toPlainText(value);
  return concat([...toTextPieces(value)].map((piece) => (typeof piece === "string" ? toBytes(piece) : piece)));
}
