/** The work on one export of Goose's. */

import {
  isObject,
  type JsonObject,
  makeImageBlock,
  makeOtherBlock,
  makeTextBlock,
  makeThinkingBlock,
  makeToolCallBlock,
  makeUserMessage,
  NO_TIME,
  NO_USAGE,
  type SourceUsage,
  toCount,
  toText,
  toTimestamp,
} from "../../../../core/foreign/messages.ts";
import { getApi } from "../apis.ts";
import { getOwnName } from "../file-name.ts";
import {
  type AboutSession,
  makeRawVerdict,
  type PendingEntries,
  type RecordVerdict,
  type SourceRecord,
  type Translation,
  type TranslationTools,
} from "../translator.ts";
import { type OpenAnswer, Turns } from "../turns.ts";

/** A message, as far as all of them have the same members. */
interface GooseMessage {
  readonly nativeId: string;
  readonly at: string;
  readonly content: readonly JsonObject[];
  readonly isForPerson: boolean;
  readonly isForModel: boolean;
  readonly metadata: JsonObject;
}

export class GooseTranslation implements Translation {
  private readonly tools: TranslationTools;
  private readonly turns: Turns;
  private session: JsonObject | undefined;
  private provider = "unknown";
  private model = "unknown";
  private time = NO_TIME;
  /** Names of the tools that were called, by the ids of the calls. */
  private readonly toolNames = new Map<string, string>();
  private readonly ids = new Map<string, number>();
  /** The native id of the answer that is being gathered. */
  private answerId = "";
  /** Numbers of messages, and of those that the model still sees: none is before a compaction. */
  private said = 0;
  private seen = 0;
  /** True if the last message was one that a compaction left. */
  private isInCompaction = false;
  /** A message that is hidden from all: the summary of an earlier compaction, if more of that comes after it. */
  private held: GooseMessage | null = null;

  constructor(tools: TranslationTools) {
    this.tools = tools;
    this.turns = new Turns(tools);
  }

  take(source: SourceRecord): RecordVerdict {
    const { value } = source;
    if (!isObject(value)) return makeRawVerdict("(no object)");
    const { role } = value;
    if (role === undefined && typeof value.working_dir === "string" && !this.session) return this.takeSession(value);
    if (role !== "user" && role !== "assistant") return makeRawVerdict("(unknown)");
    const content = Array.isArray(value.content) ? value.content.filter(isObject) : [];
    const metadata = isObject(value.metadata) ? value.metadata : {};
    this.time = toTimestamp(secondsIn(value.created), this.time);
    const nativeId = this.idOf(value, source);
    const isForPerson = metadata.userVisible !== false;
    const isForModel = metadata.agentVisible !== false;
    const message = { nativeId, at: this.time, content, isForPerson, isForModel, metadata };
    return this.takeMessage(message, role);
  }

  keep(source: SourceRecord, members?: JsonObject): void {
    this.release();
    this.turns.keep(source, this.time, members);
  }

  pending(): PendingEntries {
    const { held } = this;
    const { entries } = this.turns.pending();
    if (!held) return { entries, isPartial: false };
    const parentId = entries.at(-1)?.id ?? this.turns.tip;
    const { nativeId, at } = held;
    const id = this.tools.ids.entry(nativeId);
    const said = { type: "message", id, parentId, timestamp: at, members: makeUserMessage(givenIn(held), at) };
    return { entries: [...entries, said], isPartial: false };
  }

  about(): AboutSession {
    const { id, working_dir, created_at, parent_session_id } = this.session ?? {};
    // Older files are named after their sessions.
    return {
      nativeId: toText(id) ?? getOwnName(this.tools.name),
      nativeParentId: toText(parent_session_id),
      cwd: toText(working_dir),
      started: toTimestamp(created_at, "") || undefined,
    };
  }

  private takeSession(session: JsonObject): RecordVerdict {
    this.session = session;
    this.time = toTimestamp(session.created_at, NO_TIME);
    const { name, description, provider_name, model_config } = session;
    const title = (toText(name) || toText(description) || "").replace(/[\r\n]+/g, " ").trim();
    if (title !== "") this.turns.add("session_info", `${toText(session.id) ?? ""}/title`, this.time, { name: title });
    this.provider = toText(provider_name) ?? "unknown";
    this.model = (isObject(model_config) ? toText(model_config.model_name) : undefined) ?? "unknown";
    return { kind: "session", fidelity: "derived", warning: totalsIn(session) };
  }

  private takeMessage(message: GooseMessage, role: "user" | "assistant"): RecordVerdict {
    const { isForPerson, isForModel, content } = message;
    const isUser = role === "user";
    if (content.length > 0 && content.every((block) => isProgramNotice(block) || block.type === "error")) {
      // Only a person sees it, and it has no speaker.
      if (isUser || content.every(isProgramNotice)) return makeRawVerdict(`${role}/notice`);
    }
    const isFirst = this.said === 0;
    const isAllHidden = this.seen === 0 && !isFirst;
    this.said++;
    if (isForModel) this.seen++;
    if (!isForPerson) {
      const verdict = this.takeCompacted(message, isUser, isAllHidden);
      if (verdict) return verdict;
    }
    this.release();
    this.isInCompaction = false;
    if (!isForPerson && isForModel) return this.takeHidden(message, role);
    return isUser ? this.takeGiven(message) : this.takeSpoken(message);
  }

  /** Takes the content of a message of a person, or of tools. */
  private takeGiven(message: GooseMessage): RecordVerdict {
    const { nativeId, at, content } = message;
    const results = content.filter(({ type, id }) => type === "toolResponse" && typeof id === "string");
    for (const [n, block] of results.entries()) this.takeResult(n === 0 ? nativeId : `${nativeId}/${n}`, block, at);
    const said = givenIn(message);
    if (said.length > 0) this.turns.user(results.length > 0 ? `${nativeId}/text` : nativeId, said, at);
    const kind = results.length > 0 ? "user/toolResponse" : "user";
    if (results.length + said.length === content.length && content.length > 0) return { kind, fidelity: "preserved" };
    // Something in it is of a kind that is not known.
    return makeRawVerdict(kind);
  }

  private takeResult(nativeId: string, block: JsonObject, at: string): void {
    const toolCallId = String(block.id);
    const { content, isError, details } = getToolOutcome(block);
    const toolName = this.toolNames.get(toolCallId) ?? "";
    this.turns.result(nativeId, { toolCallId, toolName, content, isError, details, at });
  }

  private takeSpoken(message: GooseMessage): RecordVerdict {
    const { content, metadata } = message;
    const hasCalls = content.some(isCall);
    const kind = hasCalls ? "assistant/toolRequest" : "assistant";
    const blocks = content.map(toGooseBlock);
    const error = content.find(({ type }) => type === "error");
    const known = blocks.filter((block) => block !== undefined);
    if (known.length > 0 || error) {
      const answer = this.answerOf(message);
      answer.content.push(...known);
      if (error) {
        answer.stopReason = "error";
        answer.errorMessage = toText(error.message) ?? toText(error.kind) ?? "unknown";
      }
      answer.usage = parseGooseUsage(metadata.usage) ?? answer.usage;
    }
    for (const { type, id, name } of known) if (type === "toolCall") this.toolNames.set(String(id), String(name));
    // Otherwise something in it is of a kind that is not known.
    const isKnown = content.length > 0 && known.length + (error ? 1 : 0) === content.length;
    return isKnown ? { kind, fidelity: "preserved" } : makeRawVerdict(kind);
  }

  /** Returns the answer that a message is, or is a part of: Goose may write one in several pieces with one id. */
  private answerOf({ nativeId, at, metadata }: GooseMessage): OpenAnswer {
    const { current, hasResults } = this.turns;
    const [own] = nativeId.split("#");
    if (current && !hasResults && own !== "" && own === this.answerId) return current;
    this.answerId = own;
    const { provider: named, requestedModel, resolvedModel } = isObject(metadata.inference) ? metadata.inference : {};
    const provider = toText(named) ?? this.provider;
    const model = toText(resolvedModel) ?? toText(requestedModel) ?? this.model;
    return this.turns.begin({ nativeId, api: getApi(provider, model), provider, model, usage: NO_USAGE, at });
  }

  /** Takes a message that only the model sees. */
  private takeHidden({ nativeId, at, content }: GooseMessage, role: string): RecordVerdict {
    const blocks = content.map((block) => toPlainBlock(block) ?? makeOtherBlock(block));
    const members = { customType: `goose:${role}`, content: blocks, display: false };
    this.turns.add("custom_message", nativeId, at, members);
    return { kind: `${role}/agent-only`, fidelity: "preserved" };
  }

  // --- compactions ---------------------------------------------------------------------------------------------

  /**
   * Takes a message that a compaction left: the summary, for the model only, and one that asks the model to go on.
   * After the next compaction both are hidden from everyone. The last turn before a compaction, which is copied after
   * it, is hidden, too: so a message of that kind waits for the one after it.
   */
  private takeCompacted(message: GooseMessage, isUser: boolean, isAllHidden: boolean): RecordVerdict | undefined {
    const { nativeId, at, isForModel } = message;
    if (!isUser) {
      if (this.held) this.compact(this.held);
      else if (!this.isInCompaction) return undefined;
      this.held = null;
      const members = { customType: "goose:compacted", content: givenIn(message), display: false };
      this.turns.add("custom_message", nativeId, at, members);
      return { kind: "assistant/compacted", fidelity: "preserved" };
    }
    if (!isAllHidden) return undefined;
    this.release();
    if (isForModel) this.compact(message);
    else this.held = message;
    return { kind: "user/summary", fidelity: "derived" };
  }

  private compact(message: GooseMessage): void {
    const { nativeId, at } = message;
    const summary = givenIn(message).map(({ text }) => toText(text) ?? "");
    const firstKeptEntryId = this.tools.ids.entry(nativeId);
    this.turns.add("compaction", nativeId, at, { summary: summary.join("\n"), firstKeptEntryId, tokensBefore: 0 });
    this.isInCompaction = true;
  }

  /** Adds the message that waited at its place. */
  private release(): void {
    const { held } = this;
    this.held = null;
    if (held) this.turns.user(held.nativeId, givenIn(held), held.at);
  }

  // --- the rest ------------------------------------------------------------------------------------------------

  /** Returns the id of a message, which is the same one for pieces of an answer, and missing in older exports. */
  private idOf({ id, role, created, content }: JsonObject, { value }: SourceRecord): string {
    const own = toText(id) ?? "";
    // A hidden message may change later.
    const key = own === "" ? `#${JSON.stringify(isObject(value) ? [role, created, content] : value)}` : own;
    const nth = (this.ids.get(key) ?? 0) + 1;
    this.ids.set(key, nth);
    return nth === 1 ? key : `${key}#${nth}`;
  }
}

/** Returns the texts and pictures of a message. */
function givenIn({ content }: GooseMessage): JsonObject[] {
  return content.map(toPlainBlock).filter((block) => block !== undefined);
}

function secondsIn(created: unknown): unknown {
  return typeof created === "number" ? created * 1000 : created;
}

/** Returns the part of the totals that no message has; undefined if there is none. */
function totalsIn(session: JsonObject): string | undefined {
  const input = toCount(session.accumulated_input_tokens);
  const output = toCount(session.accumulated_output_tokens);
  const cost = toCount(session.accumulated_cost);
  if (input + output + cost === 0) return undefined;
  const dollars = cost === 0 ? "" : ` and ${cost} dollars`;
  return `The session took ${input} tokens of input, ${output} of output${dollars}; only what its messages say is counted.`;
}

// --- contents of messages as blocks and results ----------------------------------------------------------------------

/** Kinds of content that the program shows to a person, or asks one, and the model never sees. */
const PROGRAM_NOTICES = new Set([
  "toolConfirmationRequest",
  "actionRequired",
  "systemNotification",
  "conversationCompacted",
  "contextLengthExceeded",
  "summarizationRequested",
]);

function isProgramNotice({ type }: JsonObject): boolean {
  return PROGRAM_NOTICES.has(String(type));
}

/** Returns a text or a picture; undefined for anything else. */
function toPlainBlock(block: JsonObject): JsonObject | undefined {
  const { type, text, data, mimeType } = block;
  if (type === "text" && typeof text === "string") return makeTextBlock(text);
  if (type === "image") return makeImageBlock(data, mimeType);
  return undefined;
}

/** Returns a block of the model; undefined for any other. */
function toGooseBlock(block: JsonObject): JsonObject | undefined {
  const { type, thinking, signature, data, text } = block;
  if (type === "thinking") return makeThinkingBlock(toText(thinking) ?? "", toText(signature) || undefined);
  if (type === "reasoning" && typeof text === "string") return makeThinkingBlock(text);
  if (type === "redactedThinking") return { ...makeThinkingBlock("", toText(data) ?? ""), redacted: true };
  if (isCall(block)) return calledBlock(block);
  return toPlainBlock(block);
}

function isCall({ type, id }: JsonObject): boolean {
  return (type === "toolRequest" || type === "frontendToolRequest") && typeof id === "string";
}

function calledBlock({ id, toolCall, thoughtSignature }: JsonObject): JsonObject {
  const { value, error } = isObject(toolCall) ? toolCall : {};
  // A call that could not be read has its reason in place of its arguments.
  const { name, arguments: args } = isObject(value) ? value : {};
  const block = makeToolCallBlock(String(id), toText(name) ?? "unknown", isObject(value) ? args : { error });
  return typeof thoughtSignature === "string" ? { ...block, thoughtSignature } : block;
}

/** A tool's answer: the model's view of it, and the rest. */
interface ToolOutcome {
  readonly content: readonly JsonObject[];
  readonly isError: boolean;
  readonly details: JsonObject | undefined;
}

function getToolOutcome({ toolResult }: JsonObject): ToolOutcome {
  const { status, value, error, ...others } = isObject(toolResult) ? toolResult : {};
  if (status === "error" || error !== undefined) {
    const reason = typeof error === "string" ? error : JSON.stringify(error ?? null);
    return { content: [makeTextBlock(reason)], isError: true, details: undefined };
  }
  const { content, isError, ...more } = isObject(value) ? value : { content: value, isError: false };
  const blocks = Array.isArray(content) ? content.filter(isObject) : [];
  const shown: JsonObject[] = [];
  const rest: JsonObject[] = [];
  for (const block of blocks) {
    const plain = isForModel(block) ? toPlainBlock(block) : undefined;
    if (plain) shown.push(plain);
    else {
      rest.push(block);
      const text = isForModel(block) ? resourceText(block) : undefined;
      if (text !== undefined) shown.push(makeTextBlock(text));
    }
  }
  const details = { ...others, ...more, ...(rest.length > 0 ? { content: rest } : {}) };
  return { content: shown, isError: isError === true, details: Object.keys(details).length > 0 ? details : undefined };
}

/** Returns whether the model sees a block; some are for a person only. */
function isForModel({ annotations, audience }: JsonObject): boolean {
  const given = isObject(annotations) ? annotations.audience : audience;
  return !Array.isArray(given) || given.length === 0 || given.includes("assistant");
}

function resourceText({ type, resource, uri }: JsonObject): string | undefined {
  if (type === "resource_link") return toText(uri);
  if (type !== "resource" || !isObject(resource)) return undefined;
  return toText(resource.text) ?? toText(resource.uri);
}

/** Returns the tokens of a message; undefined if it gives none. */
function parseGooseUsage(usage: unknown): SourceUsage | undefined {
  if (!isObject(usage)) return undefined;
  const { inputTokens, outputTokens, totalTokens, cacheReadTokens, cacheWriteTokens, cost } = usage;
  const input = toCount(inputTokens);
  const output = toCount(outputTokens);
  const cacheRead = toCount(cacheReadTokens);
  const cacheWrite = toCount(cacheWriteTokens);
  // The total, if there is one, shows whether the input includes the cached tokens.
  const isAmong = totalTokens === undefined || totalTokens === input + output;
  const fresh = isAmong ? Math.max(0, input - cacheRead - cacheWrite) : input;
  return { input: fresh, output, cacheRead, cacheWrite, cost: toCount(cost) };
}
