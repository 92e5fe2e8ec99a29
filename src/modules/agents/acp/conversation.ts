/** The conversation with an editor in the Agent Client Protocol: requests of both sides, replies, updates. */

import { Failure, INVALID_REQUEST, NO_SUCH_METHOD } from "../../../core/failure.ts";
import { isObject, type LooseMembers, toMembers } from "../../../core/format/loose.ts";
import { replaceHalves } from "../../../core/json/halves.ts";
import { toJsonText } from "../../../core/json/json.ts";
import type { EditorFacts } from "../../../server/agents-module.ts";
import { getIdText } from "../../../server/connection/call.ts";
import type { PendingEvent } from "../../../server/connection/events.ts";
import { PendingRequests } from "../../../server/connection/pending-requests.ts";
import type { Dispatcher } from "../../../server/dispatch/dispatcher.ts";
import type { Face, FaceWire } from "../../../server/face.ts";
import { CANCEL, forwardCancellation } from "./acp-connection.ts";
import type { AgentBackend } from "./agent.ts";
import { ClientSession, type SessionJob } from "./client-session.ts";
import { AcpError, CANCELLED, REFUSED, toErrorText } from "./errors.ts";
import type { AcpRequest, ConversationAccess } from "./method.ts";
import { methods } from "./methods.ts";
import { sendNewEntries } from "./replay.ts";
import { passRequest } from "./turns.ts";
import { type AcpUpdate, addMeta, type ClientFeatures } from "./update-mapper.ts";

interface AcpFacts extends EditorFacts {
  /** The agent that runs turns, if there is one. */
  readonly agent: AgentBackend | undefined;
}

/**
 * Milliseconds without an update before the next one is sent at once. With 0.5 ms, a flood of chunks took 12 us each
 * instead of 7, because many were sent alone.
 */
const PAUSE = 20;
const GONE = "The client has gone.";
/** Requests answered at a time; more input is not read until one has its reply. */
const MAX_REQUESTS = 256;
/** Events that can add entries to a session. */
const NEWS: ReadonlySet<string> = new Set([
  "session_append",
  "session_tree",
  "session_compact",
  "session_info_changed",
]);

/** A request that has no reply yet. */
interface OngoingRequest {
  readonly controller: AbortController;
  /** The session of a prompt; undefined for other requests. */
  readonly turnOf: unknown;
  isTurnCancelled: boolean;
  /** Work to do after the reply. */
  readonly afterwards: (() => void)[];
}

export class AcpConversation implements Face, ConversationAccess {
  readonly dispatcher: Dispatcher;
  readonly facts: AcpFacts;
  private readonly wire: FaceWire;
  /** The sessions that the client has open, or that a job works on, by id. */
  private readonly sessions = new Map<string, ClientSession>();
  private readonly requests = new Map<string, OngoingRequest>();
  /** Called when there may be capacity, or a job was stopped. */
  private waiters: (() => void)[] = [];
  /** Unanswered requests to the client, by their ids. */
  private readonly asked = new PendingRequests<unknown, unknown>();
  private asks = 0;
  /** True if the client's input has ended. */
  isOver = false;
  /** Requests that are being answered, and jobs that send new entries. */
  private readonly pending = new Set<Promise<void>>();
  private isFlushing = false;
  /** Time of the last sent updates, in milliseconds. */
  private flushedAt = 0;
  /** Resolves with the answer to `initialize`, which precedes all others. */
  private introduction: Promise<unknown> | undefined;
  introduced: ClientFeatures | undefined;

  constructor(wire: FaceWire, facts: AcpFacts) {
    this.wire = wire;
    this.facts = facts;
    this.dispatcher = wire.dispatcher;
  }

  get isFull(): boolean {
    return this.hasMostRequests || this.facts.agent?.isFull === true;
  }

  private get hasMostRequests(): boolean {
    return this.requests.size >= MAX_REQUESTS;
  }

  // --- input ---------------------------------------------------------------------------------------------------

  receive(value: unknown, bytes: Buffer): void {
    if (!isObject(value))
      return this.refuse("null", new AcpError(INVALID_REQUEST, "A message is one JSON object a line, and no batch."));
    const { jsonrpc, id, method, params } = value;
    const isLegal = id === null || typeof id === "string" || typeof id === "number";
    const idText = isLegal ? getIdText(id, bytes, { start: 0, end: bytes.length }) : "null";
    if (jsonrpc !== "2.0")
      return this.refuse(idText, new AcpError(INVALID_REQUEST, 'The member jsonrpc must be the string "2.0".'));
    if (method === undefined && ("result" in value || "error" in value)) return this.answered(id, value);
    if (id !== undefined && !isLegal)
      return this.refuse("null", new AcpError(INVALID_REQUEST, "An id is a string, a number or null."));
    if (typeof method !== "string")
      return this.refuse(idText, new AcpError(INVALID_REQUEST, "The member method must be a string."));
    if (id === undefined) return this.notice(method, params);
    this.begin(idText, method, params);
  }

  // --- requests of ours ----------------------------------------------------------------------------------------

  askClient(method: string, params: unknown, signal?: AbortSignal): Promise<unknown> {
    if (this.isOver) return Promise.reject(new AcpError(CANCELLED, GONE));
    const id = `ask ${++this.asks}`;
    const answer = this.asked.wait(id, method);
    const say = (message: object): void => {
      this.send(toJsonText({ jsonrpc: "2.0", ...message }));
      this.wire.output.flush();
    };
    say({ id, method, params });
    if (!signal) return answer;
    return forwardCancellation(answer, signal, () => say({ method: CANCEL, params: { requestId: id } }));
  }

  async notifyClient(method: string, params: unknown): Promise<void> {
    await this.sendUpdate(
      () => toJsonText({ jsonrpc: "2.0", method, params }),
      () => false,
    );
  }

  /** Resolves a request of ours. An unknown id is ignored. */
  private answered(id: unknown, { result, error }: LooseMembers): void {
    if (error === undefined) this.asked.resolve(id, result);
    else this.asked.reject(id, AcpError.fromReply(error, REFUSED, "The client refused."));
  }

  abandon(): void {
    this.isOver = true;
    this.asked.rejectAll(new AcpError(CANCELLED, GONE));
    for (const { id, isInTurn } of this.sessions.values()) if (isInTurn) this.facts.agent?.cancel(id);
  }

  /** Unknown ones go to the agent, or are ignored, as the protocol requires. */
  notice(method: string, params: unknown): void {
    const { requestId, sessionId } = toMembers(params);
    if (method === CANCEL) {
      this.requests.get(JSON.stringify(requestId))?.controller.abort();
      this.wake();
    } else if (method === "session/cancel") {
      if (typeof sessionId !== "string") return;
      // The agent may not have the turn yet.
      for (const request of this.requests.values()) if (request.turnOf === sessionId) request.isTurnCancelled = true;
      this.facts.agent?.cancel(sessionId);
    } else this.facts.agent?.passNotice?.(method, params);
  }

  private begin(idText: string, method: string, params: unknown): void {
    if (this.requests.has(idText)) {
      const sentence = `The id ${idText} belongs to a request that is still being answered. Use another.`;
      return this.refuse(idText, new AcpError(INVALID_REQUEST, sentence));
    }
    const turnOf = method === "session/prompt" ? toMembers(params).sessionId : undefined;
    // The first words of the turn are sent at once.
    if (turnOf !== undefined) this.flushedAt = 0;
    const controller = new AbortController();
    const ongoing: OngoingRequest = { controller, turnOf, isTurnCancelled: false, afterwards: [] };
    this.requests.set(idText, ongoing);
    const ended = this.run(method, params, ongoing)
      .then(
        (result) => `"result":${toJsonText(result)}`,
        (error) => `"error":${toErrorText(this.asCancelled(ongoing, error))}`,
      )
      .then((outcome) => {
        const wasFull = this.hasMostRequests;
        this.requests.delete(idText);
        this.send(`{"jsonrpc":"2.0","id":${idText},${outcome}}`);
        this.wire.output.flush();
        if (outcome.startsWith('"result"')) for (const work of ongoing.afterwards) work();
        if (wasFull) this.wire.resumeInput();
      });
    this.track(ended);
    if (method === "initialize") this.introduction ??= ended;
  }

  private async run(method: string, params: unknown, ongoing: OngoingRequest): Promise<unknown> {
    const { signal } = ongoing.controller;
    const known = Object.hasOwn(methods, method) ? methods[method] : undefined;
    const { agent } = this.facts;
    const pass = agent?.pass?.bind(agent);
    if (!known && !pass) throw new AcpError(NO_SUCH_METHOD, `This server has no method ${method.slice(0, 200)}.`);
    if (!this.introduced && method !== "initialize")
      throw new AcpError(INVALID_REQUEST, "Send initialize first: it says what both sides can do.");
    if (known && (Array.isArray(params) || (typeof params !== "object" && params !== undefined)))
      throw new AcpError(INVALID_REQUEST, "The member params must be an object.");
    if (method !== "initialize") await this.introduction;
    if (!known) return (pass && (await passRequest(this, pass, method, params, signal))) ?? null;
    const request: AcpRequest = {
      params,
      isCancelled: () => signal.aborted,
      isTurnCancelled: () => ongoing.isTurnCancelled,
      afterwards: (work) => void ongoing.afterwards.push(work),
    };
    return known(this, request);
  }

  private asCancelled({ controller }: OngoingRequest, error: unknown): unknown {
    const { name } = error as { name?: unknown };
    return controller.signal.aborted && name === "cancelled"
      ? new AcpError(CANCELLED, "The request was cancelled.")
      : error;
  }

  // --- sessions ------------------------------------------------------------------------------------------------

  get features(): ClientFeatures {
    return this.introduced ?? { compaction: false, notices: false, forms: false };
  }

  find(id: string): ClientSession | undefined {
    return this.sessions.get(id);
  }

  inOrder<T>(id: string, job: SessionJob<T>): Promise<T> {
    const session = this.sessions.get(id) ?? new ClientSession(id);
    this.sessions.set(id, session);
    return session.run(job).finally(() => {
      // The job that just ended still counts.
      if (session.jobs <= 1 && !session.position && this.sessions.get(id) === session) this.sessions.delete(id);
    });
  }

  receiveEvent({ name, sessionId }: PendingEvent): void {
    const session = this.sessions.get(sessionId);
    if (session && NEWS.has(name)) this.queueCatchUp(session);
  }

  catchUpAll(): void {
    for (const session of this.sessions.values()) this.queueCatchUp(session);
  }

  queueCatchUp(session: ClientSession): void {
    // New entries are sent at the end of a turn in any case.
    if (session.isCatchUpQueued || session.isInTurn) return;
    session.isCatchUpQueued = true;
    const sent = this.inOrder(session.id, (_, isStopped) => {
      session.isCatchUpQueued = false;
      return sendNewEntries(this, session, isStopped);
    });
    // If it fails, the next load reports the reason.
    this.track(sent.catch(() => {}).then(() => this.wire.output.flush()));
  }

  // --- output --------------------------------------------------------------------------------------------------

  private send(text: string): void {
    this.wire.output.send([replaceHalves(text)]);
  }

  update(sessionId: string, update: AcpUpdate, isStopped: () => boolean, _meta?: unknown): Promise<void> {
    const toText = (): string =>
      `{"jsonrpc":"2.0","method":"session/update","params":${encodeUpdate({ sessionId, _meta }, update)}}`;
    return this.sendUpdate(toText, isStopped);
  }

  /** Sends a notification when the client has capacity. */
  private async sendUpdate(toText: () => string, isStopped: () => boolean): Promise<void> {
    while (!this.wire.output.hasCapacity && !isStopped()) {
      this.wire.output.flush();
      if (this.wire.output.hasCapacity) break;
      await new Promise<void>((resolve) => this.waiters.push(resolve));
    }
    if (this.wire.output.isGone) throw new Failure("cancelled");
    if (isStopped()) return;
    this.send(toText());
    this.flushSoon();
  }

  /** Sends the first update after a pause at once, because a person waits for it, and those that follow together. */
  private flushSoon(): void {
    if (this.isFlushing) return;
    const now = performance.now();
    const isAfterPause = now - this.flushedAt > PAUSE;
    this.flushedAt = now;
    if (isAfterPause) return this.wire.output.flush();
    this.isFlushing = true;
    setImmediate(() => {
      this.isFlushing = false;
      this.flushedAt = performance.now();
      this.wire.output.flush();
    });
  }

  private refuse(idText: string, error: AcpError): void {
    this.send(`{"jsonrpc":"2.0","id":${idText},"error":${toErrorText(error)}}`);
    this.wire.output.flush();
  }

  /** Wakes the updates that wait for the client to read, or for their job to stop. */
  wake(): void {
    for (const wake of this.waiters.splice(0)) wake();
  }

  resume(): void {
    this.wake();
    this.facts.agent?.resume();
  }

  async end(): Promise<void> {
    await this.facts.agent?.end();
    while (this.pending.size > 0) await Promise.all(this.pending);
  }

  private track(work: Promise<void>): void {
    this.pending.add(work);
    void work.then(() => this.pending.delete(work));
  }
}

// --- updates too large for clients ----------------------------------------------------------------------------------

/** Characters of the longest update that is sent whole. */
const LONGEST_UPDATE = 8 << 20;
/** Characters kept of a text. */
const LONGEST_REST = 1 << 16;

/** Returns the params of an update as JSON text, within the limit of clients. `around`: its other members. */
function encodeUpdate(around: { readonly sessionId: string; readonly _meta: unknown }, update: AcpUpdate): string {
  const text = toJsonText({ ...around, update });
  if (text.length <= LONGEST_UPDATE) return text;
  return toJsonText({ sessionId: around.sessionId, update: cut(update, text.length) });
}

/** Returns an update without its large members. `_meta` has its size, `_pi-session-server/entries` all of it. */
function cut(update: AcpUpdate, length: number): AcpUpdate {
  const { rawInput: _input, rawOutput: _output, entries: _entries, content, summary, ...rest } = update;
  const members: Record<string, unknown> = {};
  if (Array.isArray(content)) members.content = content.slice(0, 16).map(cutContent);
  else if (content !== undefined) members.content = cutBlock(content);
  if (Array.isArray(summary)) members.summary = summary.slice(0, 16).map(cutBlock);
  if (update.sessionUpdate === "plan") members.entries = [];
  return addMeta({ ...rest, ...members, sessionUpdate: update.sessionUpdate }, { cutFrom: length });
}

function cutContent(part: unknown): object {
  const { type, content } = toMembers(part);
  const words = { type: "text", text: "[a change that is too large to be shown]" };
  return { type: "content", content: type === "content" ? cutBlock(content) : words };
}

function cutBlock(block: unknown): object {
  const { type, text } = toMembers(block);
  if (type !== "text" || typeof text !== "string")
    return { type: "text", text: `[${String(type)} that is too large to be shown]` };
  return text.length <= LONGEST_REST ? { type, text } : { type, text: `${text.slice(0, LONGEST_REST)}\n[cut here]` };
}
