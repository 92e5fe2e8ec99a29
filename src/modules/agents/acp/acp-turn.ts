/**
 * Converts a turn of an ACP agent to messages of a session: chunks become blocks of one answer, tool calls are followed
 * by their results, and all other updates are kept raw.
 */

import { isObject, type LooseMembers, toMembers } from "../../../core/format/loose.ts";
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
/** Stop reasons of messages, by those of the protocol and our own. */
const STOPS: Readonly<Record<string, string>> = {
  ...{ end_turn: "stop", max_tokens: "length", max_turn_requests: "stop", refusal: "stop", cancelled: "aborted" },
  ...{ error: "error", aborted: "aborted" },
};
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
  private user: Record<string, unknown>[] = [];
  private readonly calls = new Map<string, SeenCall>();
  private readonly kept = new Map<string, LooseMembers>();
  private lost = 0;

  constructor(speaker: AcpSpeaker, now: () => number) {
    this.speaker = speaker;
    this.now = now;
  }

  /** Begins a turn with a prompt, whose parts that messages lack are kept whole. */
  begin(prompt: readonly unknown[]): AcpDraft[] {
    const { blocks, isWhole } = toUserBlocks(prompt);
    const message = makeMessageDraft({ role: "user", content: blocks, timestamp: this.now() });
    const whole: AcpDraft = { type: "custom", rest: { customType: "acp_prompt", data: { prompt } } };
    return [...this.flush("stop"), message, ...(isWhole ? [] : [whole])];
  }

  update(update: LooseMembers): AcpDraft[] {
    const { sessionUpdate, content } = update;
    if (sessionUpdate === "user_message_chunk") return this.heard(update);
    const before = this.user.length > 0 ? this.endUser() : [];
    if (sessionUpdate === "agent_message_chunk" && toMembers(content).type === "text")
      return [...before, ...this.say("text", String(toMembers(content).text ?? ""))];
    if (sessionUpdate === "agent_thought_chunk" && toMembers(content).type === "text")
      return [...before, ...this.say("thinking", String(toMembers(content).text ?? ""))];
    if (sessionUpdate === "tool_call" || sessionUpdate === "tool_call_update") return [...before, ...this.call(update)];
    this.keep(String(sessionUpdate), update);
    return before;
  }

  /** Takes a message of the user that the agent sends, such as one that it had queued. */
  private heard({ content }: LooseMembers): AcpDraft[] {
    const written = this.flush("stop");
    this.user.push(...toUserBlocks([content]).blocks);
    return written;
  }

  private endUser(): AcpDraft[] {
    const { user } = this;
    this.user = [];
    return [makeMessageDraft({ role: "user", content: user, timestamp: this.now() })];
  }

  private say(kind: "text" | "thinking", text: string): AcpDraft[] {
    // Text after calls belongs to another answer.
    const written = this.blocks.some(({ type }) => type === "toolCall") ? this.flush("toolUse") : [];
    if (this.kind !== kind) this.endBlock();
    this.kind = kind;
    this.pieces.push(text);
    this.length += text.length;
    return this.length < LONGEST ? written : [...written, ...this.flush("stop")];
  }

  private endBlock(): void {
    const { kind, pieces } = this;
    if (kind && pieces.length > 0) this.blocks.push({ type: kind, [kind]: pieces.join("") });
    this.kind = undefined;
    this.pieces = [];
  }

  private call(update: LooseMembers): AcpDraft[] {
    const id = String(update.toolCallId);
    const { sessionUpdate: _, ...said } = update;
    let call = this.calls.get(id);
    if (!call) {
      this.endBlock();
      call = { name: String(said.name ?? said.title ?? "tool"), state: {} };
      this.calls.set(id, call);
      this.blocks.push({ type: "toolCall", id, name: call.name, arguments: {} });
    }
    call.state = { ...call.state, ...said };
    const made = this.blocks.find((block) => block.type === "toolCall" && block.id === id);
    if (made) made.arguments = getArguments(call.state);
    const { status } = call.state;
    // A running call ends the text before it.
    const written = status === "in_progress" || ENDED.has(String(status)) ? this.flush("toolUse") : [];
    if (!ENDED.has(String(status))) return written;
    this.calls.delete(id);
    return [...written, makeResultDraft(id, call, this.now())];
  }

  private keep(kind: string, update: LooseMembers): void {
    // The last update of each kind counts.
    if (this.kept.size >= MAX_KEPT && !this.kept.has(kind)) this.lost++;
    else this.kept.set(kind, update);
  }

  /** Ends the pending answer, with its stop reason. */
  private flush(stopReason: string, more: LooseMembers = {}): AcpDraft[] {
    this.endBlock();
    const { blocks } = this;
    this.blocks = [];
    this.length = 0;
    const user = this.user.length > 0 ? this.endUser() : [];
    if (blocks.length === 0 && more.errorMessage === undefined) return user;
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
    return [...user, makeMessageDraft({ ...message, ...rest })];
  }

  end({ stopReason, usage, errorMessage }: AcpTurnEnd): AcpDraft[] {
    const named = STOPS[String(stopReason)];
    const reason = named ?? (errorMessage === undefined ? "stop" : "error");
    const written = this.flush(reason, { usage, ...(errorMessage === undefined ? {} : { errorMessage }) });
    // Calls without a result have failed.
    for (const [id, call] of this.calls)
      written.push(makeResultDraft(id, { ...call, state: { ...call.state, status: "failed" } }, this.now()));
    this.calls.clear();
    const updates = [...this.kept.values()];
    if (updates.length > 0 || this.lost > 0)
      written.push({ type: "custom", rest: { customType: "acp_updates", data: { updates, lost: this.lost } } });
    this.kept.clear();
    this.lost = 0;
    return written;
  }
}

/** Returns the draft about a request for a permission, and its answer. */
export function makePermissionDraft(request: LooseMembers, answer: { result?: unknown; error?: unknown }): AcpDraft {
  return { type: "custom", rest: { customType: "acp_permission", data: { request, ...answer } } };
}

function makeMessageDraft(message: MessageValue): AcpDraft {
  return { type: "message", rest: { message } };
}

function getArguments({ rawInput, title, locations }: LooseMembers): LooseMembers {
  if (isObject(rawInput)) return rawInput;
  return {
    title,
    ...(rawInput === undefined ? {} : { input: rawInput }),
    ...(locations === undefined ? {} : { locations }),
  };
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
  if (type === "content") return toUserBlocks([content]).blocks;
  // The change itself is in the details.
  if (type === "diff") return [{ type: "text", text: `Changed ${String(path)}` }];
  return [];
}

function toUsage(usage: unknown): LooseMembers {
  const number = (value: unknown): number => (typeof value === "number" ? value : 0);
  const { inputTokens, outputTokens, cachedReadTokens, cachedWriteTokens, totalTokens } = toMembers(usage);
  const cost = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 };
  const counts = { input: number(inputTokens), output: number(outputTokens) };
  return {
    ...counts,
    cacheRead: number(cachedReadTokens),
    cacheWrite: number(cachedWriteTokens),
    totalTokens: number(totalTokens) || counts.input + counts.output,
    cost,
  };
}

/** Converts content of the protocol to blocks of a user's message. `isWhole`: whether nothing was lost. */
function toUserBlocks(content: readonly unknown[]): { blocks: Record<string, unknown>[]; isWhole: boolean } {
  let isWhole = true;
  const blocks = content.map((one): Record<string, unknown> => {
    const { type, text, data, mimeType, uri, name, resource } = toMembers(one);
    if (type === "text") return { type: "text", text: String(text ?? "") };
    if (type === "image" && typeof data === "string") return { type: "image", data, mimeType };
    isWhole = false;
    if (type === "resource_link") return { type: "text", text: `[${String(name ?? uri)}](${String(uri)})` };
    const { uri: from, text: embedded } = toMembers(resource);
    if (type === "resource" && typeof embedded === "string")
      return { type: "text", text: `${String(from)}:\n${embedded}` };
    return { type: "text", text: `[${String(type)}]` };
  });
  return { blocks, isWhole };
}
