/** The connection to an agent of the Agent Client Protocol: requests and replies of both sides, and updates. */

import { Failure, INTERNAL } from "../../../core/failure.ts";
import { type LooseMembers, toMembers } from "../../../core/format/loose.ts";
import { toStored } from "../../../core/format/message.ts";
import { type AnswerLimit, PendingRequests } from "../../../server/connection/pending-requests.ts";
import { isJsonObject, parseDroppedMessage, parseMembers } from "../behind/lines.ts";
import { type AgentLaunch, AgentProcess, type AgentSink } from "../behind/process.ts";
import { AcpError } from "./errors.ts";

/** Bytes of waiting lines for the editor, or of unread answers for the agent, above which its output is not read. */
const FULL_AT = 4 << 20;
/** Unanswered requests of the agent; more are refused. */
const MOST_ASKED = 256;

/** The receiver of the agent's updates, requests and end. */
interface AcpHandler {
  /** Takes an update of one of its sessions. `bytes`: the length of its line. `meta`: the `_meta` next to it. */
  updated(agentSessionId: string, update: LooseMembers, bytes: number, meta?: unknown): void;
  /** Answers a request of the agent. Rejects with the error for the agent. `signal`: the agent has cancelled it. */
  asked(method: string, params: unknown, signal: AbortSignal): Promise<unknown>;
  /** Takes another notification. `bytes`: the length of its line. */
  noticed(method: string, params: unknown, bytes: number): void;
  /** Called when the agent has read its pending input. */
  drained(): void;
  ended(failure: Failure): void;
}

export class AcpConnection implements AgentSink {
  private readonly process: AgentProcess;
  private readonly handler: AcpHandler;
  private readonly launch: AgentLaunch;
  private readonly waiting = new PendingRequests<unknown, unknown>();
  private count = 0;
  private waitingBytes = 0;
  /** Unanswered requests of the agent by their ids as JSON text, and bytes of answers that it has not read. */
  private readonly asked = new Map<string, AbortController>();
  private answeredBytes = 0;
  hasEnded = false;

  constructor(launch: AgentLaunch, cwd: string, handler: AcpHandler) {
    this.launch = launch;
    this.handler = handler;
    this.process = new AgentProcess(launch, cwd, this);
  }

  /** True if the agent's pending input is so large that nothing more should be sent. */
  get isFull(): boolean {
    return this.process.isFull;
  }

  /**
   * Sends a request. Rejects with the agent's error, or with agent_failed. An agent that does not answer in time is
   * ended, except after a request that may take long.
   */
  async request(method: string, params: object, mayTakeLong = false): Promise<LooseMembers> {
    const { within } = this.launch;
    const expire = (): void => this.stopLate(`did not answer ${method}`);
    return toMembers(await this.ask(method, params, mayTakeLong ? undefined : { within, expire }));
  }

  /** Passes on a request of the client, which may take long. Returns the result as it came. */
  pass(method: string, params: unknown, signal: AbortSignal): Promise<unknown> {
    const requestId = this.count + 1;
    return forwardCancellation(this.ask(method, params), signal, () => this.notify(CANCEL, { requestId }));
  }

  private ask(method: string, params: unknown, limit?: AnswerLimit): Promise<unknown> {
    if (this.hasEnded) return Promise.reject(makeGoneFailure("has ended"));
    const id = ++this.count;
    const result = this.waiting.wait(id, method, limit);
    this.send({ id, method, params });
    return result;
  }

  notify(method: string, params: unknown): void {
    this.send({ method, params });
  }

  /** Sends a message, and returns its bytes. */
  private send(message: object): number {
    const line = Buffer.from(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
    this.process.send(line);
    return line.length;
  }

  /** Ends an agent that has not done something in time; `what`: as the beginning of the reason. */
  stopLate(what: string): void {
    this.process.stopLate(what);
  }

  end(): Promise<void> {
    return this.process.end();
  }

  /** Counts bytes that wait for the editor; negative when they were sent. */
  countHeldBytes(bytes: number): void {
    this.waitingBytes += bytes;
    this.resumeOutput();
  }

  /** True if nothing more should be read of the agent: an agent that does not read is ended after a while. */
  private get isHeld(): boolean {
    return this.waitingBytes >= FULL_AT || (this.answeredBytes > FULL_AT && this.isFull);
  }

  private resumeOutput(): void {
    if (!this.isHeld) this.process.resume();
  }

  // --- from the agent ------------------------------------------------------------------------------------------

  line(bytes: Buffer): void {
    const { id, method, params, result, error } = isJsonObject(bytes) ? parseMembers(bytes) : {};
    if (id !== undefined && method === undefined) return this.answered(id, result, error);
    if (id !== undefined) return void this.answer(id, toStored(method), params);
    const { sessionId, update, requestId, _meta } = toMembers(params);
    const isUpdate = method === "session/update";
    if (isUpdate && typeof toMembers(update).sessionUpdate === "string")
      return this.handler.updated(toStored(sessionId), toMembers(update), bytes.length, _meta);
    if (typeof method !== "string" || isUpdate) return this.reportStrayLine(bytes);
    if (method === CANCEL) this.asked.get(JSON.stringify(requestId))?.abort();
    else this.handler.noticed(method, params, bytes.length);
  }

  private reportStrayLine(bytes: Buffer): void {
    const text = bytes.toString("utf8").trim();
    if (text !== "") this.launch.complain(text);
  }

  private answered(id: unknown, result: unknown, error: unknown): void {
    if (error === undefined) this.waiting.resolve(id, result);
    else
      this.waiting.reject(
        id,
        AcpError.fromReply(
          error,
          INTERNAL,
          "The agent refused without a reason. Look at the agent's own messages, then try again.",
        ),
      );
  }

  private async answer(id: unknown, method: string, params: unknown): Promise<void> {
    const key = JSON.stringify(id);
    const controller = new AbortController();
    let outcome: object;
    try {
      if (this.asked.size >= MOST_ASKED)
        throw new Error(`${MOST_ASKED} requests of the agent wait for their answers already.`);
      this.asked.set(key, controller);
      outcome = { result: (await this.handler.asked(method, params, controller.signal)) ?? null };
    } catch (error) {
      outcome = { error: error instanceof AcpError ? error : { code: INTERNAL, message: (error as Error).message } };
    }
    if (this.asked.get(key) === controller) this.asked.delete(key);
    this.answeredBytes += this.send({ id, ...outcome });
    if (this.isHeld) this.process.pause();
  }

  tooLong(beginning: Buffer, sentence: string): void {
    this.launch.complain(sentence);
    const { idText, isReply } = parseDroppedMessage(beginning) ?? {};
    const { sessionId } = SESSION.exec(beginning.toString("utf8"))?.groups ?? {};
    // The answer would hide that a part of it is missing.
    const mark = { sessionUpdate: "agent_message_chunk", content: { type: "text", text: `[${sentence}]` } };
    if (idText === undefined && sessionId !== undefined) this.handler.updated(sessionId, mark, sentence.length);
    if (idText === undefined) return;
    const id: unknown = JSON.parse(idText);
    const error = { code: INTERNAL, message: sentence };
    if (isReply) this.answered(id, undefined, error);
    else this.send({ id, error });
  }

  through(): void {
    if (this.isHeld) this.process.pause();
  }

  drained(): void {
    this.answeredBytes = 0;
    this.resumeOutput();
    this.handler.drained();
  }

  ended(how: string): void {
    this.hasEnded = true;
    const failure = makeGoneFailure(how);
    this.waiting.rejectAll(failure);
    this.handler.ended(failure);
  }
}

/** The session of an update, as its line begins. */
const SESSION = /"method"\s*:\s*"session\/update".*?"sessionId"\s*:\s*"(?<sessionId>[^"\\]+)"/;

function makeGoneFailure(how: string): Failure {
  return new Failure("agent_failed", { what: `The agent ${how}.`, advice: "The next prompt starts it again." });
}

/** The notification by which either side cancels a request. */
export const CANCEL = "$/cancel_request";

/** Calls `cancel` if the one who asked cancels before there is a result. Returns the result. */
export function forwardCancellation<T>(result: Promise<T>, signal: AbortSignal, cancel: () => void): Promise<T> {
  if (signal.aborted) cancel();
  signal.addEventListener("abort", cancel);
  return result.finally(() => signal.removeEventListener("abort", cancel));
}
