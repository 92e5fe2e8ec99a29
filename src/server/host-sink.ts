/** The output half of a connection: turns outcomes and events of the dispatcher into bytes for the host. */

import type { Writable } from "node:stream";
import { Failure } from "../core/failure.ts";
import { Raw } from "../core/json/raw.ts";
import { isSpooled, type Spool } from "../core/ports/spool.ts";
import type { Session } from "../core/session/session.ts";
import type { Introduction } from "../handlers/shared/command.ts";
import type { Call, Outcome } from "./connection/call.ts";
import type { Dialect, DialectName, Pieces } from "./connection/dialect.ts";
import { makeEvent, type PendingEvent } from "./connection/events.ts";
import { type FramingName, frames } from "./connection/framing.ts";
import { jsonrpcDialect } from "./connection/jsonrpc.ts";
import { chain, joinAsArray, type OutgoingMessage, Output, releaseSpooled } from "./connection/output.ts";
import { makeNotice } from "./connection/pi.ts";
import type { Prepared, Renewed, Sink } from "./dispatch/sink.ts";
import type { Face } from "./face.ts";

interface HostSinkOptions {
  readonly output: Writable;
  readonly events: readonly string[] | "all";
  readonly spool: Spool;
  /** Bytes of a reply, or of all waiting ones together, above which they are not held in memory. */
  readonly heldReplyBytes?: number;
  /** Called when the host reads again. */
  onCapacity(): void;
  /** Called when the host has requested the shutdown, and gets the reply. */
  onShutDown(how?: { atOnce: boolean }): void;
}

/** Bytes of a reply above which it waits in a file; below, memory is faster. */
const HELD_REPLY_BYTES = 64 << 20;
/** Bytes of a reply that is always held in memory. */
const SMALL_REPLY = 4096;
/** Limit of rebuilding a reply, after something in it was found to be unreadable. */
const MAX_RENEWALS = 16;

export class HostSink implements Sink {
  readonly output: Output;
  private readonly options: HostSinkOptions;
  /** The names of the events that the host wants. */
  private subscribed: ReadonlySet<string> | "all";
  /** The number of the last event that was sent. */
  lastSeq = 0;
  /** Undefined until the host's dialect is known. */
  dialect: Dialect | undefined;
  /** The conversation in place of the dialects; its own calls are in JSON-RPC. */
  face: Face | undefined;
  maxReplyBytes: number | undefined;
  private isFramed = false;
  /** Bytes in memory of replies that wait for others. */
  private ahead = 0;

  constructor(options: HostSinkOptions) {
    this.options = options;
    this.output = new Output(options.output, () => options.onCapacity());
    this.subscribed = options.events === "all" ? "all" : new Set(options.events);
  }

  /** Sends in the framing of the host, which is known now. */
  frameWith(name: FramingName): void {
    this.output.frameWith(frames[name]);
    this.isFramed = true;
  }

  get hasCapacity(): boolean {
    return this.output.hasCapacity;
  }

  get canSendEvents(): boolean {
    return this.dialect !== undefined && this.isFramed;
  }

  get dialectName(): DialectName {
    return this.current.name;
  }

  sizeOf(text: Uint8Array): number {
    return this.output.sizeOf([text]);
  }

  flush(): void {
    this.output.flush();
  }

  reply(call: Call, outcome: Outcome, renewed?: Renewed): void {
    if (call.answer) return call.answer(outcome);
    if (this.expectsReply(call)) this.output.send(this.replyTo(call, outcome, renewed));
  }

  send(prepared: Prepared): void {
    if (prepared.message) this.output.send(this.release(prepared));
  }

  show(notice: string): void {
    this.output.send(makeNotice(notice));
  }

  refuse(reply: Pieces): void {
    this.output.send(reply);
  }

  batch(replies: readonly Prepared[], refusals: readonly Pieces[]): void {
    const parts: OutgoingMessage[] = [...refusals];
    for (const prepared of replies) if (prepared.message) parts.push(this.release(prepared));
    if (parts.length > 0) this.output.send(joinAsArray(parts));
  }

  /** If stored entries of an event cannot be read, its message has the other members. */
  event(event: PendingEvent): void {
    if (this.face) return this.face.receiveEvent(event);
    const { name, sessionId, leafId } = event;
    if (this.subscribed !== "all" && !this.subscribed.has(name)) return;
    const seq = this.lastSeq + 1;
    const plain = Object.entries(event.payload).filter(([, value]) => !(value instanceof Raw));
    for (const payload of [event.payload, Object.fromEntries(plain)]) {
      let message: OutgoingMessage;
      try {
        message = this.gathered(this.current.event(name, { sessionId, leafId, seq, ...payload }));
      } catch {
        // The next try omits stored entries. A command that asks for these reports why they cannot be read.
        continue;
      }
      this.lastSeq = seq;
      return this.output.send(message);
    }
  }

  lostEvents(count: number, session: Session | null): void {
    if (this.face) return this.face.catchUpAll();
    if (!session) return;
    const from = this.lastSeq + 1;
    // They have the numbers that they would have had.
    this.lastSeq += count;
    this.event(makeEvent(session, "events_lost", { from, to: this.lastSeq }));
  }

  progress(token: string | number, done: number, total: number, more?: object): void {
    const [name, payload] =
      this.dialectName === "pi"
        ? ["progress", { token, done, total, ...more }]
        : ["$/progress", { token, value: { kind: "report", done, total, ...more } }];
    this.output.send([...this.current.event(name, payload)]);
  }

  introduce(introduction: Introduction): void {
    this.maxReplyBytes = introduction.maxReplyBytes;
    if (introduction.events) this.subscribed = new Set(introduction.events);
  }

  shutDown(how?: { atOnce: boolean }): void {
    this.options.onShutDown(how);
  }

  get current(): Dialect {
    return this.dialect ?? jsonrpcDialect;
  }

  /** Returns whether the host gets a reply. Notifications get one only in Pi's dialect, where the id is just echoed. */
  private expectsReply(call: Call): boolean {
    return call.idText !== undefined || this.dialectName !== "jsonrpc";
  }

  /**
   * Builds a reply before any byte of it is sent, so that a disk failure becomes an error reply. `usedBytes`: bytes
   * that its message has already. Throws nothing.
   */
  private replyTo(
    call: Call,
    outcome: Outcome,
    renewed?: Renewed,
    usedBytes?: number,
    memoryBytes?: number,
  ): OutgoingMessage {
    let counts = outcome;
    for (let renewals = 0; ; renewals++) {
      let message: OutgoingMessage;
      let failed: unknown;
      try {
        message = this.gathered(this.current.reply(call, counts), call, usedBytes, memoryBytes);
      } catch (error) {
        failed = error;
        message = [...this.current.reply(call, { error })];
      }
      const next = renewals < MAX_RENEWALS ? renewed?.(failed) : undefined;
      if (!next) return message;
      releaseSpooled(message);
      counts = next;
    }
  }

  /** Builds a reply that is sent later, when its session may be closed. Throws nothing. */
  prepare(call: Call, outcome: Outcome, usedBytes: number, renewed?: Renewed): Prepared {
    call.answer?.(outcome);
    if (call.answer || !this.expectsReply(call)) return { message: undefined, size: 0, memoryBytes: 0 };
    const { heldReplyBytes = HELD_REPLY_BYTES } = this.options;
    const message = this.replyTo(call, outcome, renewed, usedBytes, Math.max(SMALL_REPLY, heldReplyBytes - this.ahead));
    let memoryBytes = 0;
    for (const piece of message) if (!isSpooled(piece)) memoryBytes += piece.length;
    this.ahead += memoryBytes;
    return { message, memoryBytes, size: this.limitOf(call) === undefined ? 0 : this.output.sizeOf(message) };
  }

  /**
   * Returns the byte limit of a reply. The reply to `initialize`, which sets it and describes the server, has none, and that
   * to a change neither: the change is done, and an error would say that it is not.
   */
  private limitOf({ command }: Call): number | undefined {
    const changesNothing = command.effect === "read" || command.repeatable === true;
    return changesNothing && !command.introduces ? this.maxReplyBytes : undefined;
  }

  private release({ message, memoryBytes }: Prepared): OutgoingMessage {
    this.ahead -= memoryBytes;
    return message ?? [];
  }

  /**
   * Returns the pieces of a message; those of one over `memoryBytes` go to a file. Without that, a message that is in memory
   * already stays there at any size. Throws message_too_large if it is larger than the host allows, storage_full and
   * storage_failed if the file cannot be written, and any error from making the pieces.
   */
  private gathered(
    made: Iterable<string | Uint8Array>,
    call?: Call,
    usedBytes = 0,
    memoryBytes?: number,
  ): OutgoingMessage {
    const { output, options } = this;
    const limit = (call && this.limitOf(call)) ?? Number.POSITIVE_INFINITY;
    const requireFit = (size: number): void => {
      if (size + usedBytes <= limit) return;
      throw new Failure("message_too_large", tooLarge(call, limit), { size: size + usedBytes, limit });
    };
    const pieces: Pieces = [];
    let message: OutgoingMessage = pieces;
    if (memoryBytes === undefined && Array.isArray(made)) message = made;
    else {
      const most = memoryBytes ?? options.heldReplyBytes ?? HELD_REPLY_BYTES;
      const rest = made[Symbol.iterator]();
      let bytes = 0;
      for (let next = rest.next(); !next.done; next = rest.next()) {
        pieces.push(next.value);
        bytes += next.value.length;
        if (bytes <= most && bytes <= limit) continue;
        const all = chain(pieces, rest);
        if (bytes > limit) requireFit(output.sizeOf(all));
        message = [options.spool.store(output.inFrame(all))];
        break;
      }
    }
    if (limit === Number.POSITIVE_INFINITY) return message;
    try {
      requireFit(output.sizeOf(message));
    } catch (error) {
      releaseSpooled(message);
      throw error;
    }
    return message;
  }
}

/** Returns the sentence about a reply that is over the host's limit. */
function tooLarge(call: Call | undefined, limit: number): string {
  const { name = "", params: { shape = {} } = {} } = call?.command ?? {};
  const bare = "images" in shape ? 'Ask for it without pictures (images: "omit")' : undefined;
  const less = "limit" in shape ? "Ask for less with limit and cursor" : undefined;
  const none = "messages" in shape ? "Ask for it without messages (messages: false)" : undefined;
  const ways = [bare, less, none].filter(Boolean).join(". ");
  const how = ways === "" ? "It comes whole: raise the limit" : `${ways}, or raise it`;
  return `The reply to ${name} is over your maxReplyBytes of ${limit}. ${how} in initialize.`;
}
