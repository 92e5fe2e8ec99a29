/** Sends a running turn of Pi to an editor: its events as updates, and its end. */

import { type LooseMembers, toBlocks, toMembers } from "../../../core/format/loose.ts";
import { toAmount, toStored } from "../../../core/format/message.ts";
import type { AgentReply, ClientChannel, EntryVisibility } from "../acp/agent.ts";
import { renderBlock, splitText } from "../acp/blocks.ts";
import {
  type AcpToolCall,
  makeAbandonedUpdate,
  makeCallUpdate,
  makeResultUpdate,
  toCallContent,
} from "../acp/call-updates.ts";
import { AcpError, REFUSED } from "../acp/errors.ts";
import { parsePlan } from "../acp/tools.ts";
import { type PathEntry, SERVER_NAME } from "../acp/update-mapper.ts";

export type PiEvent = LooseMembers;

interface LiveCall extends AcpToolCall {
  readonly id: string;
  isOver: boolean;
}

interface LiveResult {
  readonly call: LiveCall;
  readonly message: LooseMembers;
}

/** Events that add nothing to the session. */
const QUIET: ReadonlySet<string> = new Set(["agent_start", "turn_start", "message_start", "message_update"]);
const CHUNKS: Readonly<Record<string, string>> = { text: "agent_message_chunk", thinking: "agent_thought_chunk" };

export class PiTurn {
  private readonly channel: ClientChannel;
  private readonly cwd: string;
  /** Characters sent of each block of the answer. */
  private said = new Map<number, number>();
  private calls: LiveCall[] = [];
  /** Messages that the client was shown, with their number, by role, time and call. */
  private readonly shown = new Map<string, number>();
  /** Results of Pi that are not in the session yet, and those that are and must be sent. */
  private readonly results = new Map<string, LiveResult>();
  private readonly written: LiveResult[] = [];
  private open: LooseMembers | undefined;
  private hasPrompt = false;
  /** True if Pi may have written entries, except the prompt, that the client was not shown. */
  private hasNews = false;
  private last: LooseMembers = {};
  private hasUsage = false;
  private readonly usage = {
    inputTokens: 0,
    outputTokens: 0,
    cachedReadTokens: 0,
    cachedWriteTokens: 0,
    totalTokens: 0,
  };

  constructor(channel: ClientChannel, cwd: string) {
    this.channel = channel;
    this.cwd = cwd;
  }

  /** Sends an event. Calls must not overlap. */
  async take(event: PiEvent): Promise<void> {
    if (!this.isQuiet(event)) this.hasNews = true;
    switch (event.type) {
      case "message_start":
        return this.begin(toMembers(event.message));
      case "message_update":
        return this.piece(toMembers(event.assistantMessageEvent));
      case "message_end":
        return this.finish(toMembers(event.message));
      case "tool_execution_start": {
        const call = await this.getCall(toStored(event.toolCallId), toStored(event.toolName), event.args);
        return this.update({ sessionUpdate: "tool_call_update", toolCallId: call.toolCallId, status: "in_progress" });
      }
      case "tool_execution_update": {
        const call = this.known(event.toolCallId);
        const content = toCallContent(toMembers(event.partialResult).content);
        if (call) await this.update({ sessionUpdate: "tool_call_update", toolCallId: call.toolCallId, content });
        return;
      }
      case "tool_execution_end":
        // For the client it ends when its result is in the session, which comes next.
        return void (await this.getCall(toStored(event.toolCallId), toStored(event.toolName), event.args));
    }
  }

  /** Returns whether an event shows that Pi has written no more than the prompt. */
  private isQuiet({ type, message }: PiEvent): boolean {
    if (type === "message_end") return !this.hasPrompt && toMembers(message).role === "user";
    return QUIET.has(toStored(type));
  }

  /** Returns the client's id of the running call, if it is exactly one. */
  get callAtWork(): string | undefined {
    const open = this.calls.filter(({ isOver }) => !isOver);
    return open.length === 1 ? open[0].toolCallId : undefined;
  }

  private update(update: LooseMembers & { readonly sessionUpdate: string }): Promise<void> {
    return this.channel.update(update);
  }

  // --- answers -------------------------------------------------------------------------------------------------

  private async begin(message: LooseMembers): Promise<void> {
    if (message.role !== "assistant") return;
    // Earlier entries precede this message. Looking took 0.5 ms, which need not delay the first words of a turn.
    if (this.hasNews) await this.sendNewEntries();
    this.hasNews = false;
    // Pi continues after an error.
    if (this.last.stopReason === "error") await this.error(this.last);
    this.last = {};
    this.open = message;
    this.said = new Map();
  }

  private async error({ errorMessage }: LooseMembers): Promise<void> {
    const _meta = { [SERVER_NAME]: { kind: "error" } };
    for (const text of splitText(toStored(errorMessage)))
      await this.update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text }, _meta });
  }

  private async piece({ type, contentIndex, delta, toolCall }: LooseMembers): Promise<void> {
    if (type === "toolcall_end") return void (await this.announce(toMembers(toolCall)));
    if (typeof type !== "string" || !type.endsWith("_delta") || typeof delta !== "string") return;
    const kind = type.slice(0, -"_delta".length);
    if (Object.hasOwn(CHUNKS, kind)) await this.say(kind, Number(contentIndex), delta);
  }

  private async say(kind: string, index: number, text: string): Promise<void> {
    if (text === "") return;
    this.said.set(index, (this.said.get(index) ?? 0) + text.length);
    for (const piece of splitText(text))
      await this.update({ sessionUpdate: CHUNKS[kind], content: { type: "text", text: piece } });
  }

  private async finish(message: LooseMembers): Promise<void> {
    const { role } = message;
    if (role === "user") {
      // The first one is the person's prompt, possibly changed by Pi; others are sent from the session.
      if (!this.hasPrompt) this.mark(message);
      this.hasPrompt = true;
    } else if (role === "toolResult") {
      const call = this.calls.findLast(({ id }) => id === message.toolCallId);
      if (!call) return;
      this.mark(message);
      if (!call.isOver) this.results.set(makeKey(message), { call, message });
      await this.sendNewEntries();
    } else if (role === "assistant") {
      await this.rest(message);
      this.mark(message);
      this.open = undefined;
      this.last = message;
      this.count(toMembers(message.usage));
    }
  }

  /** Sends the rest of an answer, which did not come in pieces. */
  private async rest(message: LooseMembers): Promise<void> {
    for (const [index, block] of toBlocks(message.content).entries()) {
      const { type } = block;
      if (type === "toolCall") await this.announce(block);
      else if (type === "text" || type === "thinking") {
        const text = block.redacted === true ? "" : toStored(block[type]);
        await this.say(type, index, text.slice(this.said.get(index) ?? 0));
      } else if (type !== "redactedThinking")
        for (const { block: content } of renderBlock(block))
          await this.update({ sessionUpdate: "agent_message_chunk", content });
    }
  }

  private count(usage: LooseMembers): void {
    if (Object.keys(usage).length === 0) return;
    this.hasUsage = true;
    this.usage.inputTokens += toAmount(usage.input);
    this.usage.outputTokens += toAmount(usage.output);
    this.usage.cachedReadTokens += toAmount(usage.cacheRead);
    this.usage.cachedWriteTokens += toAmount(usage.cacheWrite);
    this.usage.totalTokens += toAmount(usage.totalTokens);
  }

  // --- calls ---------------------------------------------------------------------------------------------------

  private known(id: unknown): LiveCall | undefined {
    return this.calls.findLast((call) => call.id === id && !call.isOver);
  }

  private announce({ id, name, arguments: given }: LooseMembers): Promise<LiveCall> {
    return this.getCall(toStored(id), toStored(name), given);
  }

  /** Returns a call. Sends it if it is new. */
  private async getCall(id: string, name: string, given: unknown): Promise<LiveCall> {
    const known = this.known(id);
    if (known) return known;
    const call: LiveCall = { id, toolCallId: this.channel.claim(id), name, arguments: given, isOver: false };
    this.calls.push(call);
    await this.update(makeCallUpdate(call, this.cwd));
    const entries = parsePlan(name, given);
    if (entries) await this.update({ sessionUpdate: "plan", entries });
    return call;
  }

  // --- entries of the session ----------------------------------------------------------------------------------

  private mark(message: LooseMembers): void {
    const key = makeKey(message);
    this.shown.set(key, (this.shown.get(key) ?? 0) + 1);
  }

  /** Classifies an entry. Pi may write an entry after the event about it. */
  private classify({ entry }: PathEntry, isOver: boolean): EntryVisibility {
    if (entry.type !== "message") return "new";
    const message = toMembers(entry.message);
    const key = makeKey(message);
    const times = this.shown.get(key) ?? 0;
    if (times > 0) {
      this.shown.set(key, times - 1);
      const result = this.results.get(key);
      if (result) this.written.push(result);
      this.results.delete(key);
      return "shown";
    }
    const { role } = message;
    const isReported = role === "assistant" || role === "toolResult" || (role === "user" && !this.hasPrompt);
    return isReported && !isOver ? "soon" : "new";
  }

  /** Sends the new entries of the session, and the end of the calls whose results are among them. */
  private async sendNewEntries(isOver = false): Promise<void> {
    await this.channel.sendNewEntries((item) => this.classify(item, isOver), isOver);
    for (const { call, message } of this.written.splice(0)) {
      call.isOver = true;
      await this.update(makeResultUpdate(call, message, this.cwd));
    }
  }

  // --- the end -------------------------------------------------------------------------------------------------

  /** Marks the message that was written for a broken answer as shown. */
  markBroken(message: LooseMembers | undefined): void {
    if (message && this.open) this.mark(message);
    this.open = undefined;
  }

  /** Sends the pending updates at the end of the turn. */
  async end(): Promise<void> {
    await this.sendNewEntries();
    for (const call of this.calls) if (!call.isOver) await this.update(makeAbandonedUpdate(call.toolCallId));
    // A result that Pi wrote without an event comes after that, and counts.
    await this.sendNewEntries(true);
  }

  /** Returns the result of the request. Throws the model's failure. */
  reply(isCancelled: boolean): AgentReply {
    const { stopReason, errorMessage } = this.last;
    const usage = this.hasUsage ? { usage: this.usage } : {};
    if (isCancelled || stopReason === "aborted") return { stopReason: "cancelled", ...usage };
    if (stopReason === "error") {
      const why = toStored(errorMessage) || "it does not say why";
      throw new AcpError(REFUSED, `The model failed: ${why}`);
    }
    return { stopReason: stopReason === "length" ? "max_tokens" : "end_turn", ...usage };
  }
}

function makeKey({ role, timestamp, toolCallId }: LooseMembers): string {
  return JSON.stringify([role, timestamp, toolCallId]);
}
