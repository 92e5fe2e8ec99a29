/** Pi for one session of an editor: its process, and the running turn and its updates. */

import { type Failure, INVALID_PARAMS } from "../../../core/failure.ts";
import { type LooseMembers, toMembers } from "../../../core/format/loose.ts";
import { toStored } from "../../../core/format/message.ts";
import type { Session } from "../../../core/session/session.ts";
import type { FaceWire } from "../../../server/face.ts";
import type { AgentReply, AgentSession, ClientChannel, PromptBlock } from "../acp/agent.ts";
import { AcpError, REFUSED, toUnsentError } from "../acp/errors.ts";
import { SERVER_NAME } from "../acp/update-mapper.ts";
import { type AgentSetup, runInOrder } from "../behind/agent-server.ts";
import { type PiReply, parseMembers } from "../behind/lines.ts";
import type { MessageValue } from "../behind/messages.ts";
import type { AgentRoute } from "../behind/routes.ts";
import { type AgentClient, PiAgent } from "./pi-agent.ts";
import { askPerson, isDialog } from "./pi-dialogs.ts";
import type { ForwardedRequest } from "./pi-questions.ts";
import { type PiEvent, PiTurn } from "./pi-turn.ts";

/** Bytes of events that wait for the editor, above which Pi's output is not read. */
const FULL_AT = 1 << 20;
/** Open dialogs; more are cancelled. */
const MAX_DIALOGS = 256;
/** Milliseconds between checks whether a turn has begun, for an agent that does not report it. */
const POLL_INTERVAL = 250;

const PROMPT: AgentRoute = { onSession: true, works: true };

/** The running turn. */
interface LiveTurn {
  readonly turn: PiTurn;
  hasBegun: boolean;
  isCancelled: boolean;
  /** Ends the turn, with its failure if there is one. */
  readonly over: (failure?: Error) => void;
  readonly whenOver: Promise<Error | undefined>;
  isOver: boolean;
}

/** An event of Pi, queued for the editor. */
interface QueuedEvent {
  readonly event: PiEvent;
  readonly bytes: number;
}

export class PiSession implements AgentClient {
  private readonly wire: FaceWire;
  readonly sessionId: string;
  readonly agent: PiAgent;
  current: Session | null = null;
  /** The client of the session, also between turns. */
  channel: ClientChannel | undefined;
  /** Called with each new thinking level of Pi. */
  onLevel: (level: string) => Promise<void> = async () => {};
  private readonly queue: QueuedEvent[] = [];
  private queuedBytes = 0;
  private isSending = false;
  /** Resolves when all events of Pi so far were sent. */
  private sent: Promise<void> = Promise.resolve();
  private running: LiveTurn | undefined;
  private prompted: { readonly id: string; settle(reply: PiReply | Error): void } | undefined;
  private prompts = 0;
  /** True if Pi reports when it has settled. */
  private settles = false;
  /** Open dialogs, by the function that dismisses each. */
  private readonly dialogs = new Set<() => void>();

  constructor(sessionId: string, wire: FaceWire, options: AgentSetup) {
    this.wire = wire;
    this.sessionId = sessionId;
    this.agent = new PiAgent(options, wire, this);
  }

  get isAtWork(): boolean {
    return this.running !== undefined;
  }

  /** Runs work on the session in the order of its calls. Rejects with its error. */
  private inOrder<T>(work: () => Promise<T>): Promise<T> {
    const run = async (): Promise<T> => {
      this.current = this.wire.workspace.session(this.sessionId);
      return work();
    };
    return runInOrder(this.wire.dispatcher, run, this.sessionId);
  }

  /** Asks Pi a question, or changes a setting. Rejects when it does not answer. */
  question(command: string, params: LooseMembers = {}, onSession = false): Promise<PiReply> {
    return this.inOrder(() => this.agent.question(command, params, { onSession }));
  }

  state(): Promise<LooseMembers | undefined> {
    return this.inOrder(() => this.agent.state());
  }

  // --- a turn --------------------------------------------------------------------------------------------------

  async prompt(blocks: readonly PromptBlock[], { cwd, channel }: AgentSession): Promise<AgentReply> {
    const message = toPiPrompt(blocks);
    const running = startLiveTurn(new PiTurn(channel, cwd));
    this.running = running;
    this.channel = channel;
    try {
      const reply = await this.ask(message, running);
      if (reply && reply.success !== true)
        throw new AcpError(
          REFUSED,
          reply.error ||
            "The agent refused the prompt without a reason. Look at the agent's own messages, then send it again.",
        );
      if (reply?.data?.disposition === "handled") running.over();
      else if (reply && !running.hasBegun) void this.watchBeginning(running, reply);
      const failure = await running.whenOver;
      await this.sent;
      await running.turn.end();
      if (failure && !running.isCancelled) throw failure;
      return running.turn.reply(running.isCancelled);
    } finally {
      running.isOver = true;
      this.running = undefined;
      for (const dismiss of this.dialogs) dismiss();
    }
  }

  /** Sends a prompt. Returns the reply; undefined when the turn was cancelled before. */
  private async ask(message: LooseMembers, running: LiveTurn): Promise<PiReply | undefined> {
    const id = `${SERVER_NAME}-prompt-${++this.prompts}`;
    const line = Buffer.from(`${JSON.stringify({ id, type: "prompt", ...message })}\n`);
    const replied = new Promise<PiReply>((resolve, reject) => {
      this.prompted = { id, settle: (reply) => (reply instanceof Error ? reject(reply) : resolve(reply)) };
    });
    replied.catch(() => {});
    try {
      const isSent = await this.inOrder(async () => {
        if (running.isCancelled) return false;
        await this.agent.forward({ command: "prompt", idText: JSON.stringify(id), route: PROMPT, line });
        return true;
      }).catch((error) => {
        throw toUnsentError(error);
      });
      if (!isSent) {
        running.over();
        return undefined;
      }
      if (running.isCancelled) void this.agent.abort(() => running.isOver);
      // An extension may delay the prompt without limit; the turn may end before the reply.
      return await Promise.race([replied, running.whenOver.then(() => undefined)]);
    } finally {
      this.prompted = undefined;
    }
  }

  /** Checks whether a prompt has begun a turn: a command of an extension begins none, and old versions say nothing. */
  private async watchBeginning(running: LiveTurn, reply: PiReply): Promise<void> {
    if (typeof reply.data?.disposition === "string") return;
    for (let idle = 0; idle < 2; ) {
      await new Promise((resolve) => setTimeout(resolve, POLL_INTERVAL).unref());
      if (running.hasBegun || running.isOver || !this.agent.isRunning) return;
      const state = await this.state();
      idle = state && isIdle(state) ? idle + 1 : 0;
    }
    if (!running.hasBegun) running.over();
  }

  cancel(): void {
    const { running } = this;
    if (!running || running.isCancelled) return;
    running.isCancelled = true;
    for (const dismiss of this.dialogs) dismiss();
    if (this.agent.isRunning) void this.agent.abort(() => running.isOver);
  }

  /** Ends Pi and the running turn. */
  async end(): Promise<void> {
    this.cancel();
    await this.agent.end();
    this.running?.over();
  }

  // --- from Pi -------------------------------------------------------------------------------------------------

  passOn(line: Buffer): void {
    const event = parseMembers(line);
    if (event.type === "response") {
      const reply = event as PiReply;
      // Old versions leave the id out of a refusal.
      const isMeant = reply.id === this.prompted?.id || (reply.id === undefined && reply.command === "prompt");
      if (isMeant) this.prompted?.settle(reply);
      return;
    }
    if (event.type === "extension_ui_request") return this.asked(event, line.length);
    this.enqueue(event, line.length);
  }

  private enqueue(event: PiEvent, bytes: number): void {
    const before = this.queue.at(-1);
    // The last one of a tool's partial results counts.
    if (before && isLaterPart(before.event, event)) {
      this.queue[this.queue.length - 1] = { event, bytes };
      this.queuedBytes += bytes - before.bytes;
    } else {
      this.queue.push({ event, bytes });
      this.queuedBytes += bytes;
    }
    if (!this.isSending) this.sent = this.sendAll();
  }

  private async sendAll(): Promise<void> {
    this.isSending = true;
    for (let next = this.queue.shift(); next; next = this.queue.shift()) {
      this.queuedBytes -= next.bytes;
      // A client that has gone, or has closed the session, gets no updates.
      await this.sendEvent(next.event).catch(() => {});
      if (this.hasCapacity) this.agent.resume();
    }
    this.isSending = false;
  }

  private async sendEvent(event: PiEvent): Promise<void> {
    const { running } = this;
    const { type } = event;
    // Nearly all events are pieces of an answer.
    if (type === "message_update") return running?.turn.take(event);
    // Events before it belong to an earlier turn.
    if (running && /^(?:agent_start|turn_start|message_start)$/.test(String(type))) running.hasBegun = true;
    if (type === "thinking_level_changed") await this.onLevel(toStored(event.level));
    if (type === "agent_settled") this.settles = true;
    await this.sendEventNotice(event);
    // Between turns, the client is sent Pi's messages from the session.
    if (!running) return;
    try {
      await running.turn.take(event);
    } finally {
      if (type === "agent_settled" && running.hasBegun) running.over();
      else if (/^(?:agent_end|compaction_end|auto_retry_end)$/.test(String(type))) this.mayBeOver(event, running);
    }
  }

  /** Checks whether a turn is over, for an agent that may never report that it has settled. */
  private mayBeOver(event: PiEvent, running: LiveTurn): void {
    if (this.settles || event.willRetry !== undefined || !running.hasBegun) return;
    void this.state().then((state) => {
      // The events before the reply are sent now: another answer may have begun.
      if (state && isIdle(state) && this.queue.length === 0) running.over();
    });
  }

  /** Sends a notice about events other than messages. */
  private async sendEventNotice(event: PiEvent): Promise<void> {
    const { type, errorMessage, error } = event;
    const why = toStored(errorMessage) || toStored(error);
    if (type === "auto_retry_start") await this.sendNotice("warning", "The model failed, and is asked again", why);
    else if (type === "compaction_start") await this.sendNotice("info", "The conversation is being summarised");
    else if (type === "compaction_end" && why !== "") await this.sendNotice("error", "It could not be summarised", why);
    else if (type === "extension_error") await this.sendNotice("error", "An extension of the agent failed", why);
  }

  private async sendNotice(severity: string, title: string, description = ""): Promise<void> {
    const { channel } = this;
    if (!channel) return;
    const words = { severity, title, ...(description === "" ? {} : { description }) };
    await channel.update(
      channel.features.notices
        ? { sessionUpdate: "notice", ...words }
        : { sessionUpdate: "session_info_update", _meta: { [SERVER_NAME]: { notice: words } } },
    );
  }

  // --- dialogs of extensions -----------------------------------------------------------------------------------

  private asked(request: PiEvent, bytes: number): void {
    const { method, message } = request;
    if (isDialog(request))
      return void (this.dialogs.size < MAX_DIALOGS ? this.dialog(request) : this.answer(request, { cancelled: true }));
    if (method !== "notify") return;
    const severity = request.notifyType === "error" || request.notifyType === "warning" ? request.notifyType : "info";
    this.queuedBytes += bytes;
    void this.sendNotice(severity, toStored(message) || "The agent has something to say")
      .catch(() => {})
      .then(() => {
        this.queuedBytes -= bytes;
        if (this.hasCapacity) this.agent.resume();
      });
  }

  private async dialog(request: PiEvent): Promise<void> {
    const { channel, running } = this;
    let dismiss = (): void => {};
    const dismissed = new Promise<LooseMembers>((resolve) => {
      dismiss = () => resolve({ cancelled: true });
    });
    this.dialogs.add(dismiss);
    // The question is about the events before it.
    await this.sent;
    const { timeout } = request;
    // Pi continues after that.
    const late = typeof timeout === "number" ? setTimeout(dismiss, timeout) : undefined;
    late?.unref();
    if (!channel || running?.isCancelled) dismiss();
    else
      void askPerson(request, channel, running?.turn.callAtWork).then((answer) =>
        this.respond(request, answer, dismiss),
      );
    await dismissed.then((answer) => this.respond(request, answer, dismiss));
    clearTimeout(late);
  }

  /** Answers a dialog, once. */
  private respond(request: PiEvent, answer: LooseMembers, dismiss: () => void): void {
    if (!this.dialogs.delete(dismiss)) return;
    dismiss();
    this.answer(request, answer);
  }

  private answer({ id }: PiEvent, answer: LooseMembers): void {
    this.agent.send(Buffer.from(`${JSON.stringify({ type: "extension_ui_response", id, ...answer })}\n`));
  }

  // --- the client of the agent ---------------------------------------------------------------------------------

  get hasCapacity(): boolean {
    return this.queuedBytes < FULL_AT;
  }

  flush(): void {}

  inTurn(work: () => Promise<void>): Promise<void> {
    return runInOrder(this.wire.dispatcher, work, this.sessionId);
  }

  fail(_request: ForwardedRequest, failure: Failure): void {
    // If the agent has ended, `agentEnded` reports it.
    if (this.agent.isRunning) this.prompted?.settle(failure);
  }

  reportTurnEnd(message: MessageValue | undefined): void {
    this.running?.turn.markBroken(toMembers(message));
  }

  show(notice: string): void {
    // The request reports the agent's end.
    if (this.agent.isRunning) void this.sendNotice("warning", notice).catch(() => {});
  }

  agentEnded(failure: Failure): void {
    for (const dismiss of this.dialogs) dismiss();
    this.running?.over(failure);
  }
}

function startLiveTurn(turn: PiTurn): LiveTurn {
  let end: (failure?: Error) => void = () => {};
  const whenOver = new Promise<Error | undefined>((resolve) => {
    end = resolve;
  });
  return { turn, hasBegun: false, isCancelled: false, isOver: false, whenOver, over: end };
}

/** Returns whether an agent is idle, by its own state. */
function isIdle({ isStreaming, isCompacting, pendingMessageCount }: LooseMembers): boolean {
  return (
    isStreaming !== true &&
    isCompacting !== true &&
    !(typeof pendingMessageCount === "number" && pendingMessageCount > 0)
  );
}

function isLaterPart(before: PiEvent, { type, toolCallId }: PiEvent): boolean {
  return type === "tool_execution_update" && before.type === type && before.toolCallId === toolCallId;
}

// --- prompts of editors ---------------------------------------------------------------------------------------------

/** The params of Pi's `prompt`. */
interface PiPrompt extends LooseMembers {
  readonly message: string;
  readonly images?: readonly object[];
}

/** Returns the params of Pi's `prompt`. Throws INVALID_PARAMS for blocks that Pi does not take. */
function toPiPrompt(blocks: readonly PromptBlock[]): PiPrompt {
  const images: object[] = [];
  const attached: string[] = [];
  const words = blocks.map((block) => {
    const { type, text, data, mimeType, uri, name } = block;
    if (type === "text") return toStored(text);
    if (type === "image" && typeof data === "string" && typeof mimeType === "string") {
      images.push({ type, data, mimeType });
      return "";
    }
    if (type === "resource_link") return toReference(toStored(uri), toStored(name));
    const resource = toMembers(block.resource);
    const place = toReference(toStored(resource.uri), "");
    if (type === "resource" && typeof resource.text === "string") {
      attached.push(`\n\n<file path=${JSON.stringify(place)}>\n${resource.text}\n</file>`);
      return place;
    }
    if (type === "resource" && toStored(resource.mimeType).startsWith("image/")) {
      images.push({ type: "image", data: resource.blob, mimeType: resource.mimeType });
      return "";
    }
    // Pi can read the file.
    if (type === "resource" && toStored(resource.uri).startsWith("file://")) return place;
    const what = type === "resource" ? `a resource with data of the type ${String(resource.mimeType)}` : String(type);
    throw new AcpError(
      INVALID_PARAMS,
      `Pi takes text, pictures with their data, links, and resources that are texts, pictures or files; not ${what}.`,
    );
  });
  const message = words.join("") + attached.join("");
  if (message.trim() === "" && images.length === 0)
    throw new AcpError(INVALID_PARAMS, "The prompt is empty. Write something, and send it again.");
  return images.length === 0 ? { message } : { message, images };
}

/** Returns the text for a link: a file by its path. */
function toReference(uri: string, name: string): string {
  if (!uri.startsWith("file://")) return name === "" || name === uri ? uri : `[${name}](${uri})`;
  try {
    const { pathname, hash } = new URL(uri);
    return decodeURIComponent(pathname) + hash;
  } catch {
    return uri;
  }
}
