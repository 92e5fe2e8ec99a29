/** One client connection: turns input bytes into calls, and outcomes and events into output bytes. */

import { isUtf8 } from "node:buffer";
import type { Readable, Writable } from "node:stream";
import { parseText } from "../core/json/json.ts";
import { isSpooled, type Spool } from "../core/ports/spool.ts";
import type { Session } from "../core/session/session.ts";
import type { Workspace } from "../core/session/workspace.ts";
import type { Introduction, ServerFacts } from "../handlers/shared/command.ts";
import { AcpBackend } from "../modules/agents/acp/acp-backend.ts";
import { type AcpConversation, type AcpFacts, startConversation } from "../modules/agents/acp/conversation.ts";
import type { AgentOptions } from "../modules/agents/behind/agent-server.ts";
import { PiBackend } from "../modules/agents/pi/pi-backend.ts";
import { PiForwarder } from "../modules/agents/pi/pi-forwarder.ts";
import { type Call, findIdText, type Outcome } from "./connection/call.ts";
import { detectDialect } from "./connection/detect.ts";
import {
  type Decoded,
  type Dialect,
  type DialectName,
  describeError,
  type Pieces,
  type Refusal,
} from "./connection/dialect.ts";
import { AutoDecoder, type Cut, type Decoder, frames } from "./connection/framing.ts";
import { gather } from "./connection/gathering.ts";
import { Hooks } from "./connection/hooks.ts";
import { Host, makeEvent, type PendingEvent } from "./connection/host.ts";
import { jsonrpcDialect } from "./connection/jsonrpc.ts";
import { explainBadHeader, explainNotJson, explainNotUtf8 } from "./connection/mistakes.ts";
import { joinAsArray, type OutgoingMessage, Output, releaseSpooled } from "./connection/output.ts";
import { makeNotice, piDialect } from "./connection/pi.ts";
import { type BatchItem, Dispatcher } from "./dispatch/dispatcher.ts";
import { OpenLimit } from "./dispatch/open-limit.ts";
import type { SharingStart } from "./dispatch/sharing.ts";
import type { Prepared, Renewed, Sink } from "./dispatch/sink.ts";
import type { ServerSettings } from "./settings.ts";

interface ConnectionOptions {
  readonly input: Readable;
  readonly output: Writable;
  readonly workspace: Workspace;
  readonly server: ServerFacts;
  readonly settings: ServerSettings;
  /** Bytes of a reply, or of all waiting ones together, above which they are not held in memory. */
  readonly heldReplyBytes?: number;
  /** The limit of open sessions; by default that of this process. */
  readonly room?: OpenLimit;
  readonly spool: Spool;
  /** Facts about the server for an editor that speaks the Agent Client Protocol. */
  readonly acp: AcpFacts;
  /** Shares sessions with other processes; undefined when they are not shared. */
  readonly sharing?: SharingStart;
  /** The agent behind this server, if there is one. */
  readonly agent?: AgentOptions;
  /** Returns whether the output can still have a reader; by default until it fails. */
  readonly isHeard?: () => boolean;
}

/** Milliseconds between polls of idle sessions for entries of other programs. */
const POLL_INTERVAL = 500;
/** Bytes of a reply above which it waits in a file; below, memory is faster. */
const HELD_REPLY_BYTES = 64 << 20;
/** Bytes of a reply that is always held in memory. */
const SMALL_REPLY = 4096;
/** Limit of rebuilding a reply, after something in it was found to be unreadable. */
const MAX_RENEWALS = 16;
/** Number of unfinished calls that stops reading. */
const MAX_PENDING = 10_000;

const DIALECTS: Record<DialectName, Dialect> = { jsonrpc: jsonrpcDialect, pi: piDialect };

export class Connection implements Sink {
  private readonly options: ConnectionOptions;
  private readonly output: Output;
  /** Bytes in memory of replies that wait for others. */
  private ahead = 0;
  private readonly host: Host;
  private readonly hooks: Hooks;
  private readonly dispatcher: Dispatcher;
  private readonly forwarder: PiForwarder | undefined;
  /** The agent behind a conversation with an editor. */
  private readonly backend: PiBackend | AcpBackend | undefined;
  private decoder: Decoder | AutoDecoder;
  private dialect: Dialect | undefined;
  /** The conversation with an editor, in place of the dialects; its own calls are in JSON-RPC. */
  private acp: AcpConversation | undefined;
  maxReplyBytes: number | undefined;
  private paused = false;
  private inputEnded = false;
  /** True if the host ended the input. When we end it, an unfinished message is not the host's mistake. */
  private isInputWhole = false;
  /** True if replies were left out, because the output has no reader. */
  isUnheard = false;
  private shutDownAsked: (() => void) | undefined;
  private finished: (() => void) | undefined;

  constructor(options: ConnectionOptions) {
    this.options = options;
    this.output = new Output(options.output, () => this.onCapacity());
    const { framing, dialect, events, maxMessageBytes, hookTimeout } = options.settings;
    this.host = new Host(events);
    this.decoder = new AutoDecoder(maxMessageBytes, framing === "auto" ? undefined : framing);
    if (framing !== "auto") this.output.frameWith(frames[framing]);
    this.hooks = new Hooks(
      (pieces) => {
        this.output.send(pieces);
        this.output.flush();
      },
      () => this.current,
      hookTimeout,
    );
    const { workspace, server, room: limit = new OpenLimit(), sharing } = options;
    this.dispatcher = new Dispatcher({ workspace, server, hooks: this.hooks, sink: this, limit }, sharing);
    if (options.agent && dialect === "acp") {
      const ends = { dispatcher: this.dispatcher, workspace: options.workspace, resumeInput: () => this.onCapacity() };
      const { agent, settings, acp } = options;
      const isPi = settings.agent?.protocol !== "acp";
      this.backend = isPi ? new PiBackend(ends, agent) : new AcpBackend(ends, agent, acp.version);
      this.dispatcher.addGate(this.backend);
    }
    if (dialect !== "auto") this.speak(dialect);
    if (options.agent && !this.backend) {
      const { output, dispatcher } = this;
      const reply = (call: Call, outcome: Outcome): void => this.reply(call, outcome);
      const ends = { output, dispatcher, workspace: options.workspace, reply, resumeInput: () => this.onCapacity() };
      this.forwarder = new PiForwarder(ends, options.agent);
      this.dispatcher.addGate(this.forwarder.agent);
    }
  }

  /** Serves until the input ends or {@link stop} is called, and all received calls are answered. */
  async serve(): Promise<void> {
    const { input } = this.options;
    if (this.options.settings.framing !== "auto" && this.dialect) {
      this.dispatcher.start();
      this.output.flush();
    }
    this.dispatcher.sharing?.plan();
    const following = setInterval(() => this.poll(), POLL_INTERVAL);
    following.unref();
    await new Promise<void>((resolve) => {
      this.finished = resolve;
      input.on("data", (chunk: Buffer) => this.receive(chunk));
      input.on("end", () => {
        this.isInputWhole = true;
        this.stop();
      });
      for (const ended of ["error", "close"]) input.on(ended, () => this.stop());
    });
    clearInterval(following);
    this.hooks.abandon();
    this.dispatcher.sharing?.stop();
    this.drainInput(true);
    this.acp?.abandon();
    const listening = setInterval(() => this.listen(), POLL_INTERVAL);
    this.listen();
    await this.answerRest();
    clearInterval(listening);
  }

  /** Abandons reads once the output has no reader: some take a minute. */
  private listen(): void {
    const isHeard = !this.output.isGone && this.options.isHeard?.() !== false;
    if (!isHeard && this.dispatcher.leaveReads()) this.isUnheard = true;
  }

  /** Answers all calls received before the end of the input. */
  private async answerRest(): Promise<void> {
    const agentsEnd = this.backend?.end();
    if (!this.canSendEvents && this.dispatcher.pending > 0) {
      // A host that never spoke gets its replies in a dialect of our choice.
      this.dialect = jsonrpcDialect;
      this.dispatcher.resume();
    }
    await agentsEnd;
    await this.acp?.idle();
    await this.dispatcher.idle();
    await this.forwarder?.agent.end();
    await this.dispatcher.idle();
    await this.output.drained();
  }

  /** Leaves the processes that share sessions with this one, after the sessions were closed here. */
  leaveOthers(): void {
    this.dispatcher.sharing?.close();
  }

  /** Polls for foreign writes, and evicts idle sessions. Nothing can be sent before the host's dialect is known. */
  private poll(): void {
    if (this.canSendEvents) this.dispatcher.poll();
    this.dispatcher.evictIdle();
  }

  /** Ends the input; `soon`: calls that other processes do not answer soon are answered without them. */
  stop(soon = false): void {
    this.inputEnded = true;
    this.finished?.();
    if (soon) this.dispatcher.sharing?.hurry();
  }

  /** Resolves when the host has requested the shutdown and has the reply. */
  shutDownRequested(): Promise<void> {
    return new Promise((resolve) => {
      this.shutDownAsked = () => {
        void this.dispatcher.idle().then(() => this.output.drained().then(resolve));
      };
    });
  }

  // --- input ---------------------------------------------------------------------------------------------------

  private receive(chunk: Buffer): void {
    if (this.inputEnded) return;
    if (this.decoder instanceof AutoDecoder) {
      const decoder = this.decoder.push(chunk);
      if (!decoder) return;
      this.fixFraming(decoder);
    } else this.decoder.push(chunk);
    this.drainInput(false);
  }

  private fixFraming(decoder: Decoder): void {
    this.decoder = decoder;
    this.output.frameWith(frames[decoder.name]);
  }

  /** Processes the received input, as long as the host reads the replies. */
  private drainInput(ended: boolean): void {
    if (this.decoder instanceof AutoDecoder) {
      if (!ended) return;
      const { framing } = this.options.settings;
      this.fixFraming(this.decoder.decide(framing === "auto" ? "lines" : framing));
    }
    const decoder = this.decoder as Decoder;
    for (;;) {
      // Received calls are answered even after the end of the input, whose size bounds the queue.
      if (!ended && !this.mayRead) return this.pause();
      const cut = decoder.next();
      if (!cut) break;
      this.receiveCut(cut);
    }
    if (ended && this.isInputWhole) {
      const cut = decoder.end();
      if (cut) this.receiveCut(cut);
    }
    this.dispatcher.commitPending();
  }

  private get mayRead(): boolean {
    if (this.forwarder?.agent.isFull || this.backend?.isFull) return false;
    // Output for a host that has sent nothing waits for its first message.
    if (this.acp?.isFull) return false;
    return this.output.hasCapacity && (this.dispatcher.pending < MAX_PENDING || !this.canSendEvents);
  }

  private pause(): void {
    this.dispatcher.commitPending();
    this.paused = true;
    this.options.input.pause();
    this.awaitCapacity();
  }

  /** Waits for capacity: full output calls back by itself, otherwise the end of the pending calls does. */
  private awaitCapacity(): void {
    const isFull = this.acp?.isFull || this.forwarder?.agent.isFull || this.backend?.isFull;
    if (this.output.hasCapacity && !isFull) void this.dispatcher.idle().then(() => this.onCapacity());
  }

  private onCapacity(): void {
    this.dispatcher.resume();
    this.acp?.wake();
    this.forwarder?.agent.resume();
    this.backend?.resume();
    if (!this.paused) return;
    if (!this.mayRead) return this.awaitCapacity();
    this.paused = false;
    this.drainInput(false);
    if (!this.paused && !this.inputEnded) this.options.input.resume();
  }

  private receiveCut(cut: Cut): void {
    if (cut.kind === "payload") return this.receivePayload(cut.bytes);
    if (cut.kind === "bad_header")
      return this.refuseInput({ kind: "parse", sentence: explainBadHeader(cut.reason, cut.beginning) });
    const { maxMessageBytes } = this.options.settings;
    const sentence = `The message is over the limit of ${maxMessageBytes} bytes. Send less at a time.`;
    this.refuseInput(
      { kind: "too_large", sentence, details: { size: cut.size, limit: maxMessageBytes } },
      findIdText(cut.bytes),
    );
  }

  private receivePayload(bytes: Buffer): void {
    const framing = this.decoder instanceof AutoDecoder ? "lines" : this.decoder.name;
    if (!isUtf8(bytes)) return this.refuseInput({ kind: "parse", sentence: explainNotUtf8(bytes, framing) });
    const text = bytes.toString("utf8");
    let value: unknown;
    try {
      value = parseText(text);
    } catch {
      return this.refuseInput({ kind: "parse", sentence: explainNotJson(text, framing) });
    }
    const spoken = this.dialect ? undefined : detectDialect(value);
    if (spoken) this.speak(spoken);
    if (this.acp) return this.acp.receive(value, bytes);
    if (this.current === piDialect && this.forwarder?.accept(value, bytes)) return;
    let decoded: Decoded;
    try {
      decoded = this.current.decode(value, bytes);
    } catch (error) {
      const { sentence, data } = describeError(error);
      return this.refuseInput({ kind: "bug", sentence, details: data });
    }
    this.receiveDecoded(decoded);
  }

  /** Selects a dialect. */
  private speak(name: DialectName | "acp"): void {
    this.dialect = DIALECTS[name === "acp" ? "jsonrpc" : name];
    const { output, dispatcher } = this;
    if (name !== "acp") return;
    const facts = this.backend ? { ...this.options.acp, agent: this.backend } : this.options.acp;
    this.acp = startConversation({ output, dispatcher, resumeInput: () => this.onCapacity() }, facts);
  }

  private refuseInput(refusal: Refusal, idText?: string): void {
    this.dispatcher.refuse(this.current.refuse(refusal, idText));
  }

  private receiveDecoded(decoded: Decoded): void {
    if (decoded.kind === "nothing") return;
    if (decoded.kind === "response") return this.hooks.receive(decoded.message);
    if (decoded.kind === "cancel") return this.dispatcher.cancel(decoded.idText);
    if (decoded.kind === "refusal") return this.dispatcher.refuse(decoded.reply);
    if (decoded.kind === "call") {
      const duplicate = this.duplicate(decoded);
      if (duplicate) return this.dispatcher.refuse(duplicate);
      return this.dispatcher.submit(decoded.call);
    }
    const seen = new Set<string>();
    const items = decoded.items.flatMap((item): BatchItem[] => {
      if (item.kind === "refusal") return [{ refusal: item.reply }];
      if (item.kind !== "call") return [];
      const refusal = this.duplicate(item, seen);
      return [refusal ? { refusal } : { call: item.call }];
    });
    this.dispatcher.submitBatch(items);
  }

  /** Returns the refusal of a call whose id is in use: the two replies would be ambiguous. */
  private duplicate(decoded: Decoded & { kind: "call" }, alsoSeen?: Set<string>): Pieces | undefined {
    const { idText } = decoded.call;
    if (idText === undefined || idText === "null" || this.dialectName !== "jsonrpc") return undefined;
    if (!this.dispatcher.inFlight(idText) && !alsoSeen?.has(idText)) {
      alsoSeen?.add(idText);
      return undefined;
    }
    const sentence = `The id ${idText} belongs to a request that is still being answered. Use another.`;
    return this.current.refuse({ kind: "duplicate_id", sentence }, idText);
  }

  // --- output --------------------------------------------------------------------------------------------------

  get hasCapacity(): boolean {
    return this.output.hasCapacity;
  }

  get canSendEvents(): boolean {
    return this.dialect !== undefined && !(this.decoder instanceof AutoDecoder);
  }

  get dialectName(): DialectName {
    return this.current.name;
  }

  get lastSeq(): number {
    return this.host.seq;
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
    // session_start cannot be sent before the first payload has decided the dialect.
    if (this.dialect) this.dispatcher.start();
    this.output.send(reply);
  }

  batch(replies: readonly Prepared[], refusals: readonly Pieces[]): void {
    if (this.dialect && replies.length === 0) this.dispatcher.start();
    const parts: OutgoingMessage[] = [...refusals];
    for (const prepared of replies) if (prepared.message) parts.push(this.release(prepared));
    if (parts.length > 0) this.output.send(joinAsArray(parts));
  }

  event(event: PendingEvent): void {
    if (this.acp) return this.acp.receiveEvent(event);
    const message = this.host.message(this.current, event, (pieces) => this.gathered(pieces));
    if (message) this.output.send(message);
  }

  lostEvents(count: number, session: Session | null): void {
    if (this.acp) return this.acp.catchUpAll();
    if (session) this.event(makeEvent(session, "events_lost", this.host.skip(count)));
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
    if (introduction.events) this.host.subscribe(introduction.events);
    if (introduction.hooks) this.hooks.register(introduction.hooks);
  }

  shutDown(how?: { atOnce: boolean }): void {
    if (how?.atOnce) void this.dispatcher.idle().then(() => this.stop());
    else this.shutDownAsked?.();
  }

  private get current(): Dialect {
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
      try {
        message = this.gathered(this.current.reply(call, counts), call, usedBytes, memoryBytes);
      } catch (error) {
        message = [...this.current.reply(call, { error })];
      }
      const next = renewals < MAX_RENEWALS ? renewed?.() : undefined;
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

  /** Returns the byte limit of a reply. The reply to `initialize`, which sets it and describes the server, has none. */
  private limitOf({ command }: Call): number | undefined {
    return command.introduces ? undefined : this.maxReplyBytes;
  }

  private release({ message, memoryBytes }: Prepared): OutgoingMessage {
    this.ahead -= memoryBytes;
    return message ?? [];
  }

  private gathered(
    made: Iterable<string | Uint8Array>,
    call?: Call,
    usedBytes = 0,
    memoryBytes?: number,
  ): OutgoingMessage {
    const limit = (call && this.limitOf(call)) ?? Number.POSITIVE_INFINITY;
    const most = memoryBytes ?? this.options.heldReplyBytes ?? HELD_REPLY_BYTES;
    const mayStayInMemory = memoryBytes === undefined;
    return gather(made, { call, limit, usedBytes, most, mayStayInMemory }, this.output, this.options.spool);
  }
}
