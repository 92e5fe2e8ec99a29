/**
 * Converts a turn of an ACP agent to messages of a session: chunks become blocks of one answer, tool calls are followed
 * by their results, and all other updates are kept raw. Blocks have what messages have no place for as `acp`.
 */

import { isObject, type LooseMembers, toMembers } from "../../../core/format/loose.ts";
import { toJsonText } from "../../../core/json/json.ts";
import type { MessageValue } from "../behind/messages.ts";
import type { Recorder } from "../behind/recorder.ts";

/** An entry to write: a message, or a custom one. */
export interface AcpDraft {
  readonly type: "message" | "custom";
  readonly rest: LooseMembers;
}

/** The author of answers, as in messages. */
export interface AcpSpeaker {
  readonly api: string;
  readonly provider: string;
  readonly model: string;
}

/** The end of a turn: the reply to the prompt, or an error. */
interface AcpTurnEnd {
  readonly stopReason?: unknown;
  readonly usage?: unknown;
  readonly errorMessage?: string;
}

interface SeenCall {
  readonly name: string;
  /** The merged updates of the call. */
  state: LooseMembers;
}

/** Characters of an answer, above which the rest becomes another one. */
const LONGEST = 8 << 20;
/** Limit of raw updates kept of a turn. */
const MAX_KEPT = 200;
/** Stop reasons of messages, by those of the protocol and our own. A message with any other has it as `acp`. */
const STOPS: Readonly<Record<string, string>> = {
  ...{ end_turn: "stop", max_tokens: "length", cancelled: "aborted" },
  ...{ error: "error", aborted: "aborted" },
};
/** Kinds of updates, by those of blocks. */
const CHUNKS: Readonly<Record<string, string>> = { text: "agent_message_chunk", thinking: "agent_thought_chunk" };
const ENDED = new Set(["completed", "failed"]);

/** Each method returns the entries that are complete, for the caller to write. */
export class AcpTurn implements Recorder<readonly unknown[], LooseMembers, AcpTurnEnd> {
  private readonly speaker: AcpSpeaker;
  private readonly now: () => number;
  /** Blocks of the pending answer. */
  private blocks: Record<string, unknown>[] = [];
  /** Pieces of the incoming text, joined when it ends: a long text is not copied with each piece. */
  private pieces: string[] = [];
  /** Characters of the pending answer. */
  private length = 0;
  private kind: "text" | "thinking" | undefined;
  /** The agent's id of the message that the text belongs to. */
  private messageId: string | undefined;
  private user: Record<string, unknown>[] = [];
  private readonly calls = new Map<string, SeenCall>();
  /** Ids of the calls in written answers that have no result. Their results precede the next answer. */
  private readonly open = new Set<string>();
  /** Entries that follow the pending answer: results of its calls, and permissions. */
  private held: AcpDraft[] = [];
  private readonly kept = new Map<string, LooseMembers>();
  private lost = 0;

  constructor(speaker: AcpSpeaker, now: () => number) {
    this.speaker = speaker;
    this.now = now;
  }

  begin(prompt: readonly unknown[]): AcpDraft[] {
    this.user = toUserBlocks(prompt);
    return this.endUser();
  }

  update(update: LooseMembers): AcpDraft[] {
    const { sessionUpdate } = update;
    if (sessionUpdate === "user_message_chunk") return this.heard(update);
    const before = this.user.length > 0 ? this.endUser() : [];
    if (sessionUpdate === "agent_message_chunk") return [...before, ...this.say("text", update)];
    if (sessionUpdate === "agent_thought_chunk") return [...before, ...this.say("thinking", update)];
    if (sessionUpdate === "tool_call" || sessionUpdate === "tool_call_update") return [...before, ...this.call(update)];
    this.keep(String(sessionUpdate), update);
    return before;
  }

  /** Takes a message of the user that the agent sends, such as one that it had queued. */
  private heard({ content }: LooseMembers): AcpDraft[] {
    const written = this.flush();
    this.user.push(...toUserBlocks([content]));
    return written;
  }

  private endUser(): AcpDraft[] {
    const { user } = this;
    this.user = [];
    return [makeMessageDraft({ role: "user", content: user, timestamp: this.now() })];
  }

  private say(kind: "text" | "thinking", { content, messageId }: LooseMembers): AcpDraft[] {
    const { type, text = "" } = toMembers(content);
    const before = this.messageId;
    if (typeof messageId === "string") this.messageId = messageId;
    const isOther = before !== undefined && before !== this.messageId && this.kind === kind;
    // Text after calls belongs to another answer.
    const written = (isOther && kind === "text") || this.hasCalls ? this.flush() : [];
    if (this.kind !== kind || isOther || type !== "text") this.endBlock();
    this.kind = kind;
    if (type === "text") this.pieces.push(String(text));
    else {
      const block = makeNamedBlock(content, this.blocks.length > 0);
      this.blocks.push(kind === "text" ? block : { type: kind, thinking: block.text, acp: content });
    }
    this.length += type === "text" ? String(text).length : toJsonText(content).length;
    return [...written, ...this.flushIfLong()];
  }

  private get hasCalls(): boolean {
    return this.blocks.some(({ type }) => type === "toolCall");
  }

  private endBlock(): void {
    const { kind, pieces } = this;
    if (kind && pieces.length > 0) this.blocks.push({ type: kind, [kind]: pieces.join("") });
    this.kind = undefined;
    this.pieces = [];
  }

  private call(update: LooseMembers): AcpDraft[] {
    const id = String(update.toolCallId);
    const { sessionUpdate, ...said } = update;
    let call = this.calls.get(id);
    if (!call && sessionUpdate === "tool_call_update") {
      // Its call has a result already.
      const kind = `${sessionUpdate} ${id}`;
      this.keep(kind, { ...this.kept.get(kind), ...update });
      return [];
    }
    if (!call) {
      this.endBlock();
      call = { name: String(said.name ?? said.title ?? "tool"), state: {} };
      this.calls.set(id, call);
      this.blocks.push({ type: "toolCall", id, name: call.name, arguments: {} });
    }
    call.state = { ...call.state, ...said };
    const made = this.blocks.findLast((block) => block.type === "toolCall" && block.id === id);
    if (made) Object.assign(made, describeCall(call.state));
    const { status } = call.state;
    // A running call ends the text before it.
    const written = status === "in_progress" || ENDED.has(String(status)) ? this.flush() : [];
    if (!ENDED.has(String(status))) return written;
    this.calls.delete(id);
    return [...written, ...this.answer(id, makeResultDraft(id, call, this.now()))];
  }

  /** Takes the result of a call. The last one of an answer makes place for the next answer. */
  private answer(id: string, result: AcpDraft): AcpDraft[] {
    if (!this.open.delete(id)) {
      this.held.push(result);
      return this.flushIfLong();
    }
    return [result, ...(this.open.size === 0 && (this.hasCalls || this.held.length > 0) ? this.flush() : [])];
  }

  /** Takes the permission that the client gave, or its failure, after the answer so far. */
  permit(request: LooseMembers, answer: { result?: unknown; error?: unknown }): AcpDraft[] {
    const data = { request, ...answer };
    this.held.push({ type: "custom", rest: { customType: "acp_permission", data } });
    return this.flush();
  }

  /** Returns the updates that no written entry has, each text and each call as one. */
  listUnwritten(): LooseMembers[] {
    const { kind, pieces, held } = this;
    const blocks = kind && pieces.length > 0 ? [...this.blocks, { type: kind, [kind]: pieces.join("") }] : this.blocks;
    const said = blocks.map(({ type, id, acp, ...rest }) =>
      type === "toolCall"
        ? { ...toMembers(acp), sessionUpdate: "tool_call", toolCallId: id }
        : { sessionUpdate: CHUNKS[String(type)], content: acp ?? { type: "text", text: rest[String(type)] } },
    );
    const results = held.map(({ rest }) => toMembers(toMembers(rest.message).details).acp).filter(isObject);
    const states = [...results, ...[...this.calls.values()].map(({ state }) => state)];
    const calls = states.map((state) => ({ ...state, sessionUpdate: "tool_call_update" }));
    return [...said, ...calls, ...this.kept.values()];
  }

  private keep(kind: string, update: LooseMembers): void {
    // The last update of each kind counts.
    if (this.kept.size >= MAX_KEPT && !this.kept.has(kind)) this.lost++;
    else this.kept.set(kind, update);
  }

  private flushIfLong(): AcpDraft[] {
    return this.length < LONGEST && this.held.length < MAX_KEPT ? [] : this.flush({}, true);
  }

  /**
   * Ends the pending answer. While a call of the answer before has no result, it goes on, unless it must end.
   * `more`: members of the last answer of a turn.
   */
  flush(more: LooseMembers = {}, mustEnd = false): AcpDraft[] {
    if (this.open.size > 0 && !mustEnd && this.blocks.length + this.pieces.length > 0) return [];
    this.endBlock();
    const { blocks, held } = this;
    const stopReason = this.hasCalls ? "toolUse" : "stop";
    this.blocks = [];
    this.held = [];
    this.length = 0;
    for (const { type, id } of blocks) if (type === "toolCall" && this.calls.has(String(id))) this.open.add(String(id));
    const user = this.user.length > 0 ? this.endUser() : [];
    if (blocks.length === 0 && more.errorMessage === undefined && more.acp === undefined) return [...user, ...held];
    const timestamp = this.now();
    const message = {
      role: "assistant",
      content: blocks,
      ...this.speaker,
      usage: toUsage(more.usage),
      stopReason,
      timestamp,
    };
    const { usage: _, ...rest } = more;
    return [...user, makeMessageDraft({ ...message, ...rest }), ...held];
  }

  end({ stopReason, usage, errorMessage }: AcpTurnEnd): AcpDraft[] {
    const named = STOPS[String(stopReason)];
    const last = {
      ...{ usage, stopReason: named ?? (errorMessage === undefined ? "stop" : "error") },
      ...(named !== undefined || stopReason === undefined ? {} : { acp: { stopReason } }),
      ...(errorMessage === undefined ? {} : { errorMessage }),
    };
    // Calls without a result have failed.
    const fail = ([id, { name, state }]: [string, SeenCall]): AcpDraft =>
      makeResultDraft(id, { name, state: { ...state, status: "failed" } }, this.now());
    const calls = [...this.calls];
    const before = calls.filter(([id]) => this.open.has(id)).map(fail);
    const pending = calls.filter(([id]) => !this.open.has(id)).map(fail);
    this.calls.clear();
    this.open.clear();
    const written = [...before, ...this.flush(last), ...pending];
    const updates = [...this.kept.values()];
    if (updates.length > 0 || this.lost > 0)
      written.push({ type: "custom", rest: { customType: "acp_updates", data: { updates, lost: this.lost } } });
    this.kept.clear();
    this.lost = 0;
    return written;
  }
}

function makeMessageDraft(message: MessageValue): AcpDraft {
  return { type: "message", rest: { message } };
}

/** Returns the block of a call: its arguments, and what else the client is shown of it before its result. */
function describeCall(state: LooseMembers): LooseMembers {
  const { toolCallId: _, status, content, rawOutput, rawInput, ...rest } = state;
  if (isObject(rawInput) && Object.keys(rawInput).length > 0) return { arguments: rawInput, acp: rest };
  if (rawInput === undefined) return { arguments: {}, acp: rest };
  return { arguments: isObject(rawInput) ? {} : { input: rawInput }, acp: { ...rest, rawInput } };
}

function makeResultDraft(toolCallId: string, { name, state }: SeenCall, timestamp: number): AcpDraft {
  const content = (Array.isArray(state.content) ? state.content : []).flatMap((part) =>
    toResultBlocks(toMembers(part)),
  );
  if (content.length === 0 && state.rawOutput !== undefined)
    content.push({
      type: "text",
      text: typeof state.rawOutput === "string" ? state.rawOutput : JSON.stringify(state.rawOutput),
    });
  const isError = state.status === "failed";
  return makeMessageDraft({
    role: "toolResult",
    toolCallId,
    toolName: name,
    content,
    isError,
    details: { acp: state },
    timestamp,
  });
}

function toResultBlocks({ type, content, path }: LooseMembers): Record<string, unknown>[] {
  // The change itself is in the details, and the content that messages do not have.
  if (type === "content") return toUserBlocks([content]).map(({ acp: _, ...block }) => block);
  if (type === "diff") return [{ type: "text", text: `Changed ${String(path)}` }];
  return [];
}

function toUsage(usage: unknown): LooseMembers {
  const number = (value: unknown): number => (typeof value === "number" ? value : 0);
  const { inputTokens, outputTokens, cachedReadTokens, cachedWriteTokens, totalTokens, thoughtTokens } =
    toMembers(usage);
  const cost = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 };
  const counts = { input: number(inputTokens), output: number(outputTokens) };
  return {
    ...counts,
    cacheRead: number(cachedReadTokens),
    cacheWrite: number(cachedWriteTokens),
    totalTokens: number(totalTokens) || counts.input + counts.output,
    ...(typeof thoughtTokens === "number" ? { thoughtTokens } : {}),
    cost,
  };
}

/** Converts content of the protocol to blocks of a user's message. */
function toUserBlocks(content: readonly unknown[]): Record<string, unknown>[] {
  return content.map((one, index) => {
    const { type, text, data, mimeType } = toMembers(one);
    if (type === "text") return { type, text: String(text ?? "") };
    if (type === "image" && typeof data === "string") return { type, data, mimeType };
    return makeNamedBlock(one, index > 0);
  });
}

/** Returns a text in place of a content that messages do not have. `isAfterOther`: texts are read without a gap. */
function makeNamedBlock(acp: unknown, isAfterOther: boolean): Record<string, unknown> {
  const { type, uri, name, resource } = toMembers(acp);
  const { uri: from, text } = toMembers(resource);
  const words =
    type === "resource_link"
      ? `[${String(name ?? uri)}](${String(uri)})`
      : type === "resource" && typeof text === "string"
        ? `${String(from)}:\n${text}`
        : `[${String(type)}]`;
  return { type: "text", text: `${isAfterOther ? " " : ""}${words}`, acp };
}
