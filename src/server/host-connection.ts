/** One client connection: turns input bytes into calls of the dispatcher, or into messages of a face. */

import { isUtf8 } from "node:buffer";
import type { Readable, Writable } from "node:stream";
import { toMembers } from "../core/format/loose.ts";
import { parseText } from "../core/json/json.ts";
import type { Spool } from "../core/ports/spool.ts";
import type { Workspace } from "../core/session/workspace.ts";
import type { ServerFacts } from "../handlers/shared/command.ts";
import type { PiBehind, PiWire } from "./agents-module.ts";
import { findIdText } from "./connection/call.ts";
import {
  type Decoded,
  type Dialect,
  type DialectName,
  describeError,
  type FaceName,
  type Pieces,
  type Refusal,
} from "./connection/dialect.ts";
import { AutoDecoder, type Cut, type Decoder, frames } from "./connection/framing.ts";
import { Hooks } from "./connection/hooks.ts";
import { jsonrpcDialect } from "./connection/jsonrpc.ts";
import { explainBadHeader, explainNotJson, explainNotUtf8 } from "./connection/mistakes.ts";
import { piDialect } from "./connection/pi.ts";
import { type BatchItem, Dispatcher } from "./dispatch/dispatcher.ts";
import { OpenLimit } from "./dispatch/open-limit.ts";
import type { SharingStart } from "./dispatch/sharing.ts";
import type { Face, Faces, FaceWire } from "./face.ts";
import { HostSink } from "./host-sink.ts";
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
  /** The conversations that may take the wire over. */
  readonly faces: Faces;
  /** Shares sessions with other processes; undefined when they are not shared. */
  readonly sharing?: SharingStart;
  /** Puts Pi behind this server, if it has Pi there. */
  readonly startPi?: (wire: PiWire) => PiBehind;
  /** Returns whether the output can still have a reader; by default until it fails. */
  readonly isHeard?: () => boolean;
}

/** Milliseconds between polls of idle sessions for entries of other programs. */
const POLL_INTERVAL = 500;
/** Number of unfinished calls that stops reading. */
const MAX_PENDING = 10_000;

const NO_FACE: Readonly<Record<string, string>> = {
  acp: "This build has no agents. It does not speak the Agent Client Protocol.",
  mcp: "This build has no recall. It does not speak the Model Context Protocol.",
};

const DIALECTS: Readonly<Record<string, Dialect | undefined>> = { jsonrpc: jsonrpcDialect, pi: piDialect };

export class Connection {
  private readonly options: ConnectionOptions;
  private readonly sink: HostSink;
  private readonly hooks: Hooks;
  private readonly dispatcher: Dispatcher;
  /** Pi behind a host that speaks Pi's dialect. */
  private readonly pi: PiBehind | undefined;
  private decoder: Decoder | AutoDecoder;
  private paused = false;
  private inputEnded = false;
  /** True if the host ended the input. When we end it, an unfinished message is not the host's mistake. */
  private isInputWhole = false;
  private hasLeftReads = false;
  private shutDownAsked: (() => void) | undefined;
  private finished: (() => void) | undefined;

  constructor(options: ConnectionOptions) {
    this.options = options;
    const { framing, dialect, events, maxMessageBytes, hookTimeout } = options.settings;
    this.sink = new HostSink({
      output: options.output,
      events,
      spool: options.spool,
      heldReplyBytes: options.heldReplyBytes,
      onCapacity: () => this.onCapacity(),
      onShutDown: (how) => {
        if (how?.atOnce) void this.dispatcher.idle().then(() => this.stop());
        else this.shutDownAsked?.();
      },
    });
    this.decoder = new AutoDecoder(maxMessageBytes, framing === "auto" ? undefined : framing);
    if (framing !== "auto") this.sink.output.frameWith(frames[framing]);
    this.hooks = new Hooks(
      (pieces) => {
        this.sink.output.send(pieces);
        this.sink.flush();
      },
      () => this.sink.current,
      hookTimeout,
    );
    const { workspace, server, room: limit = new OpenLimit(), sharing } = options;
    this.dispatcher = new Dispatcher({ workspace, server, hooks: this.hooks, sink: this.sink, limit }, sharing);
    if (dialect !== "auto") this.speak(dialect);
    this.pi = options.startPi?.({ ...this.wire, reply: (call, outcome) => this.sink.reply(call, outcome) });
  }

  private get wire(): FaceWire {
    const { workspace } = this.options;
    return { output: this.sink.output, dispatcher: this.dispatcher, workspace, resumeInput: () => this.onCapacity() };
  }

  /** The conversation that has taken the wire over, if one has. */
  private get face(): Face | undefined {
    return this.sink.face;
  }

  /** Serves until the input ends or {@link stop} is called, and all received calls are answered. */
  async serve(): Promise<void> {
    const { input } = this.options;
    if (this.options.settings.framing !== "auto" && this.sink.dialect) {
      this.dispatcher.start();
      this.sink.flush();
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
    this.face?.abandon();
    const listening = setInterval(() => this.listen(), POLL_INTERVAL);
    this.listen();
    await this.answerRest();
    clearInterval(listening);
  }

  /** Abandons reads once the output has no reader: some take a minute. */
  private listen(): void {
    const isHeard = !this.sink.output.isGone && this.options.isHeard?.() !== false;
    if (!isHeard && this.dispatcher.leaveReads()) this.hasLeftReads = true;
  }

  /** True if replies were left out, because the output has no reader. */
  get isUnheard(): boolean {
    return this.hasLeftReads || this.sink.output.hasDropped;
  }

  /** Answers all calls received before the end of the input. */
  private async answerRest(): Promise<void> {
    const facesEnd = this.face?.end();
    if (!this.sink.canSendEvents && this.dispatcher.pending > 0) {
      // A host that never spoke gets its replies in a dialect of our choice.
      this.sink.dialect = jsonrpcDialect;
      this.dispatcher.resume();
    }
    await facesEnd;
    await this.dispatcher.idle();
    await this.pi?.end();
    await this.dispatcher.idle();
    await this.sink.output.drained();
  }

  /** Leaves the processes that share sessions with this one, after the sessions were closed here. */
  leaveOthers(): void {
    this.dispatcher.sharing?.close();
  }

  /** Polls for foreign writes, and evicts idle sessions. Nothing can be sent before the host's dialect is known. */
  private poll(): void {
    if (this.sink.canSendEvents) this.dispatcher.poll();
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
        void this.dispatcher.idle().then(() => this.sink.output.drained().then(resolve));
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
    this.sink.frameWith(decoder.name);
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
    if (this.isBehindFull) return false;
    // Output for a host that has sent nothing waits for its first message.
    return this.sink.hasCapacity && (this.dispatcher.pending < MAX_PENDING || !this.sink.canSendEvents);
  }

  /** True if the conversation, or the agent behind, takes nothing more for now. */
  private get isBehindFull(): boolean {
    return this.face?.isFull === true || this.pi?.isFull === true;
  }

  private pause(): void {
    this.dispatcher.commitPending();
    this.paused = true;
    this.options.input.pause();
    this.awaitCapacity();
  }

  /** Waits for capacity: full output calls back by itself, otherwise the end of the pending calls does. */
  private awaitCapacity(): void {
    if (this.sink.hasCapacity && !this.isBehindFull) void this.dispatcher.idle().then(() => this.onCapacity());
  }

  private onCapacity(): void {
    this.dispatcher.resume();
    this.face?.resume();
    this.pi?.resume();
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
    const spoken = this.sink.dialect ? undefined : detectDialect(value);
    if (spoken && !this.speak(spoken))
      return this.refuseInput({ kind: "method", sentence: NO_FACE[spoken] }, findIdText(bytes));
    if (this.face) return this.face.receive(value, bytes);
    if (this.sink.current === piDialect && this.pi?.accept(value, bytes)) return;
    let decoded: Decoded;
    try {
      decoded = this.sink.current.decode(value, bytes);
    } catch (error) {
      const { sentence, data } = describeError(error);
      return this.refuseInput({ kind: "bug", sentence, details: data });
    }
    this.receiveDecoded(decoded);
  }

  /** Selects a dialect. Returns false if this build has no face that speaks it. */
  private speak(name: DialectName | FaceName): boolean {
    const startFace = this.options.faces[name as FaceName];
    // The calls of a face are in JSON-RPC.
    const dialect = startFace ? jsonrpcDialect : DIALECTS[name];
    if (!dialect) return false;
    this.sink.dialect = dialect;
    this.sink.face = startFace?.(this.wire);
    return true;
  }

  private refuseInput(refusal: Refusal, idText?: string): void {
    if (this.face?.refuseInput) return this.face.refuseInput(refusal, idText);
    this.dispatcher.refuse(this.sink.current.refuse(refusal, idText));
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
    if (idText === undefined || idText === "null" || this.sink.dialectName !== "jsonrpc") return undefined;
    if (!this.dispatcher.inFlight(idText) && !alsoSeen?.has(idText)) {
      alsoSeen?.add(idText);
      return undefined;
    }
    const sentence = `The id ${idText} belongs to a request that is still being answered. Use another.`;
    return this.sink.current.refuse({ kind: "duplicate_id", sentence }, idText);
  }
}

// --- the dialect of a first message ---------------------------------------------------------------------------------

/** Returns the dialect of a first message; undefined if it is unknown. */
function detectDialect(value: unknown): DialectName | FaceName | undefined {
  if (Array.isArray(value))
    return value.some(
      (item) => !Array.isArray(item) && detectDialect(item) !== undefined && detectDialect(item) !== "pi",
    )
      ? "jsonrpc"
      : undefined;
  if (typeof value !== "object" || value === null) return undefined;
  const { method, params, type } = value as { method?: unknown; params?: unknown; type?: unknown };
  if (method === "server/discover" || isOfModel(method, params)) return "mcp";
  if (method === "initialize" && isOfEditor(params)) return "acp";
  if ("jsonrpc" in value || "method" in value) return "jsonrpc";
  return typeof type === "string" ? "pi" : undefined;
}

/** Returns whether params are of the Model Context Protocol, whose versions are dates or drafts. */
function isOfModel(method: unknown, params: unknown): boolean {
  const { protocolVersion, _meta } = toMembers(params);
  if (method === "initialize") return /^\d{4}-|^DRAFT-/.test(String(protocolVersion));
  return "io.modelcontextprotocol/protocolVersion" in toMembers(_meta);
}

/** Returns whether params of initialize are those of the Agent Client Protocol: other dialects lack the member. */
function isOfEditor(params: unknown): boolean {
  return "clientCapabilities" in toMembers(params);
}
