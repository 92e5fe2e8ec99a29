/** The work on one file of Codex's. */

import {
  isObject,
  type JsonObject,
  makeImageBlock,
  makeOtherBlock,
  makeTextBlock,
  makeThinkingBlock,
  makeToolCallBlock,
  NO_TIME,
  NO_USAGE,
  type SourceUsage,
  toCount,
  toText,
  toTimestamp,
} from "../../../../core/foreign/messages.ts";
import { tryParseText } from "../../../../core/json/json.ts";
import {
  type AboutSession,
  makeRawVerdict,
  type PendingEntries,
  type RecordVerdict,
  type SourceRecord,
  type Translation,
  type TranslationTools,
} from "../translator.ts";
import { Turns } from "../turns.ts";

/** Texts of the conversation that an event may repeat. */
const REMEMBERED = 20;
/** Events that only repeat response items or other records. */
const ECHOES = new Set(["user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content"]);
const ECHOED_ITEMS = new Set(["UserMessage", "AgentMessage", "Reasoning"]);
const ENDS_OF_TURNS = new Set(["task_complete", "turn_complete", "turn_aborted"]);

export class CodexTranslation implements Translation {
  private readonly tools: TranslationTools;
  private readonly turns: Turns;
  private time = NO_TIME;
  private meta: JsonObject | undefined;
  private provider = "openai";
  private model = "unknown";
  private level: string | undefined;
  private readonly toolNames = new Map<string, string>();
  /** Parent entry of each user turn; rollbacks count user turns. */
  private readonly starts: (string | null)[] = [];
  private readonly said: string[] = [];
  /** The items of the line so far, each by its name and its entry. A compaction names the ones that it keeps. */
  private line: { readonly key: string; readonly entryId: string }[] = [];
  private spent = "";
  private marked: string | null = null;
  /** True if the next record is the first of its own file, after those of the file that it continues. */
  private isInherited = false;
  private readonly copies = new Map<string, number>();

  constructor(tools: TranslationTools) {
    this.tools = tools;
    this.turns = new Turns(tools);
  }

  take(source: SourceRecord): RecordVerdict {
    const record = source.value;
    if (!isObject(record)) return makeRawVerdict("(no object)");
    const type = toText(record.type) ?? "(no type)";
    this.time = toTimestamp(record.timestamp, this.time);
    const { payload } = record;
    if (!isObject(payload)) return makeRawVerdict(type);
    if (type === "response_item") return this.takeItem(source, payload);
    if (type === "event_msg") return this.takeEvent(source, payload);
    if (type === "session_meta") return this.takeMeta(payload);
    if (type === "turn_context") return this.takeContext(source, payload);
    if (type === "compacted") return this.takeCompaction(source, payload);
    if (type === "token_usage_record") return this.takeRecordedUsage(payload);
    return makeRawVerdict(type);
  }

  keep(source: SourceRecord, members?: JsonObject): void {
    this.turns.keep(source, this.time, members);
  }

  mark(): void {
    this.marked = this.turns.tip;
    this.isInherited = true;
  }

  back(): void {
    this.line = [];
    this.turns.goTo(this.marked);
    this.isInherited = true;
  }

  pending(): PendingEntries {
    return this.turns.pending();
  }

  about(): AboutSession {
    const { id, timestamp, cwd, forked_from_id: forked, parent_thread_id: parent } = this.meta ?? {};
    const nativeId = toText(id);
    const parentId = toText(forked) ?? toText(parent);
    return {
      nativeId,
      nativeParentId: parentId === nativeId ? undefined : parentId,
      cwd: toText(cwd) || undefined,
      started: toTimestamp(timestamp, "") || undefined,
    };
  }

  // --- about the session ---------------------------------------------------------------------------------------

  private takeMeta(payload: JsonObject): RecordVerdict {
    // A copied fork has its own first, and then those of the sessions that it was copied from. One that continues
    // another file has its own last.
    if (!this.meta || this.isInherited) this.meta = payload;
    this.isInherited = false;
    this.provider = toText(payload.model_provider) ?? this.provider;
    return makeRawVerdict("session_meta");
  }

  private takeContext(source: SourceRecord, payload: JsonObject): RecordVerdict {
    const model = toText(payload.model);
    const level = toText(payload.effort);
    if (model !== undefined && model !== this.model) {
      this.model = model;
      const members = { provider: this.provider, modelId: model };
      this.turns.note("model_change", this.nativeId(source, "model"), this.time, members);
    }
    if (level !== undefined && level !== this.level) {
      this.level = level;
      this.turns.note("thinking_level_change", this.nativeId(source, "level"), this.time, { thinkingLevel: level });
    }
    return makeRawVerdict("turn_context");
  }

  // --- the conversation ----------------------------------------------------------------------------------------

  private takeItem(source: SourceRecord, item: JsonObject): RecordVerdict {
    // The oldest versions give only the role of a message.
    const type = item.type ?? (typeof item.role === "string" ? "message" : undefined);
    const kind = `response_item/${toText(type) ?? "(no type)"}`;
    if (type === "message") return this.takeMessage(source, item);
    if (type === "reasoning") {
      const thought = toCodexThought(item);
      this.speak(source, item, [thought]);
      this.remember(toText(thought.thinking) ?? "");
      return { kind, fidelity: "preserved" };
    }
    const call = parseCodexCall(item);
    if (call) {
      this.speak(source, item, [makeToolCallBlock(call.id, call.name, call.args)]);
      this.toolNames.set(call.id, call.name);
      return { kind, fidelity: "preserved" };
    }
    const output = parseCodexOutput(item);
    if (!output) return makeRawVerdict(kind);
    const { callId: toolCallId, content, hasFailed } = output;
    const toolName = this.toolNames.get(toolCallId) ?? "";
    const answer = { toolCallId, toolName, content, isError: hasFailed, at: this.time };
    this.note(item, this.turns.result(this.nativeId(source), answer));
    return { kind, fidelity: "preserved" };
  }

  /** Adds blocks to the answer that an item is a part of. */
  private speak(source: SourceRecord, item: JsonObject, blocks: readonly JsonObject[]): void {
    const answer = this.answer(source);
    answer.content.push(...blocks);
    this.note(item, answer.id);
  }

  private note(item: JsonObject, entryId: string): void {
    this.line.push({ key: itemKey(item), entryId });
  }

  private takeMessage(source: SourceRecord, item: JsonObject): RecordVerdict {
    const { role, content } = item;
    const blocks = toCodexBlocks(content);
    const text = joinBlockTexts(blocks);
    this.remember(text);
    if (role === "assistant") {
      this.speak(source, item, blocks);
      return { kind: "response_item/message/assistant", fidelity: "preserved" };
    }
    const harness = role === "user" ? detectHarnessKind(item, text) : (toText(role) ?? "unknown").slice(0, 40);
    if (harness === undefined) {
      this.starts.push(this.turns.tip);
      this.note(item, this.turns.user(this.nativeId(source), blocks, this.time));
      return { kind: "response_item/message/user", fidelity: "preserved" };
    }
    const members = { customType: `codex:${harness}`, content: blocks, display: false };
    this.note(item, this.turns.add("custom_message", this.nativeId(source), this.time, members));
    return { kind: `response_item/message/${harness}`, fidelity: "preserved" };
  }

  /** Returns the answer that a part belongs to: the current one, unless that is complete. */
  private answer(source: SourceRecord) {
    const { current, hasResults } = this.turns;
    if (current && current.stopReason === undefined && !hasResults) return current;
    return this.turns.begin({
      nativeId: this.nativeId(source),
      api: "openai-responses",
      provider: this.provider,
      model: this.model,
      usage: NO_USAGE,
      at: this.time,
    });
  }

  private takeCompaction(source: SourceRecord, payload: JsonObject): RecordVerdict {
    const { message, replacement_history: history, ...rest } = payload;
    const items = Array.isArray(history) ? history.filter(isObject) : [];
    const nativeId = this.nativeId(source);
    const summary = toText(message) ?? "";
    const encrypted = items.some(({ type }) => type === "compaction" || type === "context_compaction");
    const kept = this.keptOf(
      items.filter((item) => item.type !== "message" || joinPartTexts(item.content) !== summary),
    );
    this.turns.add("compaction", nativeId, this.time, {
      summary: summary === "" && encrypted ? "(Only Codex's provider can read the summary.)" : summary,
      firstKeptEntryId: kept ?? this.tools.ids.entry(nativeId),
      tokensBefore: 0,
      details: { ...rest, replacement_history: history },
    });
    if (kept !== undefined) return { kind: "compacted", fidelity: "preserved" };
    // The model sees these again after the compaction.
    for (const [n, item] of items.entries()) {
      const text = joinPartTexts(item.content);
      if (item.type !== "message" || item.role !== "user" || text === "" || text === summary) continue;
      const members = { customType: "codex:kept", content: toCodexBlocks(item.content), display: false };
      this.turns.add("custom_message", `${nativeId}/${n}`, this.time, members);
    }
    return { kind: "compacted", fidelity: "preserved" };
  }

  /** Returns the first kept entry, if the given items are exactly the end of the line. */
  private keptOf(items: readonly JsonObject[]): string | undefined {
    const from = this.line.length - items.length;
    const isEnd =
      items.length > 0 && from >= 0 && items.every((item, n) => isSameItem(itemKey(item), this.line[from + n].key));
    // No entry equals an answer that is kept only in part.
    const isWhole = isEnd && this.line[from - 1]?.entryId !== this.line[from].entryId;
    return isWhole ? this.line[from].entryId : undefined;
  }

  // --- events --------------------------------------------------------------------------------------------------

  private takeEvent(source: SourceRecord, payload: JsonObject): RecordVerdict {
    const name = toText(payload.type) ?? "(no type)";
    const kind = `event_msg/${name}`;
    if (ECHOES.has(name)) {
      const text = (toText(payload.message) ?? toText(payload.text) ?? "").trim();
      return this.isSaid(text) ? { kind, fidelity: "preserved" } : makeRawVerdict(kind);
    }
    if (name === "item_completed" && isObject(payload.item)) {
      const { type, content, summary_text: summary } = payload.item;
      const text = Array.isArray(summary) ? summary.join("\n\n") : joinPartTexts(content);
      const isEcho = ECHOED_ITEMS.has(toText(type) ?? "") && this.isSaid(text.trim());
      const itemKind = `${kind}/${toText(type) ?? "(no type)"}`;
      return isEcho ? { kind: itemKind, fidelity: "preserved" } : makeRawVerdict(itemKind);
    }
    if (name === "token_count") return this.takeUsage(payload, kind);
    if (name === "thread_rolled_back") {
      this.rollBack(toCount(payload.num_turns));
      return makeRawVerdict(kind);
    }
    if (name === "thread_name_updated" && typeof payload.thread_name === "string") {
      const members = { name: payload.thread_name };
      this.turns.note("session_info", this.nativeId(source), this.time, members);
      return { kind, fidelity: "derived" };
    }
    if (ENDS_OF_TURNS.has(name)) this.complete(name === "turn_aborted");
    return makeRawVerdict(kind);
  }

  /** True if a response item had a text. An event whose text no item had is kept. */
  private isSaid(text: string): boolean {
    return text === "" || this.said.some((said) => said.includes(text));
  }

  /** Takes the usage of one call of the model, which comes directly after its items. */
  private takeRecordedUsage({ usage }: JsonObject): RecordVerdict {
    const { current } = this.turns;
    if (!isObject(usage) || !current || current.usage !== NO_USAGE) return makeRawVerdict("token_usage_record");
    current.usage = usageIn(usage);
    this.complete(false);
    return { kind: "token_usage_record", fidelity: "derived" };
  }

  /** Takes the usage of a call of the model; Codex repeats an already counted one from time to time. */
  private takeUsage({ info }: JsonObject, kind: string): RecordVerdict {
    const last = isObject(info) ? info.last_token_usage : undefined;
    const total = isObject(info) ? JSON.stringify(info.total_token_usage) : "";
    if (!isObject(last) || total === this.spent) return makeRawVerdict(kind);
    this.spent = total;
    const { current } = this.turns;
    if (current && current.usage === NO_USAGE) {
      current.usage = usageIn(last);
      this.complete(false);
      return { kind, fidelity: "derived" };
    }
    // It was counted by a record before, or belongs to a call without an answer.
    return makeRawVerdict(kind);
  }

  /** Notes that the current answer is whole. */
  private complete(isAborted: boolean): void {
    const { current } = this.turns;
    if (!current || current.stopReason !== undefined) return;
    const calls = current.content.some(({ type }) => type === "toolCall");
    current.stopReason = isAborted ? "aborted" : calls ? "toolUse" : "stop";
  }

  /** Goes back to before the last turns. They stay as a branch. */
  private rollBack(turns: number): void {
    const count = Math.min(turns, this.starts.length);
    if (count === 0) return;
    const [start] = this.starts.splice(this.starts.length - count);
    this.line = [];
    this.turns.goTo(start);
  }

  private remember(text: string): void {
    if (text === "") return;
    this.said.push(text);
    if (this.said.length > REMEMBERED) this.said.shift();
  }

  /** Returns an id made from a record's content: forks have copies of records at other places, with other times. */
  private nativeId({ bytes }: SourceRecord, part = ""): string {
    const at = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).indexOf('"payload":');
    const sum = `${part}${this.tools.sha256(bytes.subarray(Math.max(at, 0)))}`;
    const nth = (this.copies.get(sum) ?? 0) + 1;
    this.copies.set(sum, nth);
    return `${sum}:${nth}`;
  }
}

/** Returns the name of an item: its id, else that of its call; "" if it has neither. */
function itemKey({ type, id, call_id: call }: JsonObject): string {
  const own = toText(id);
  if (own !== undefined && own !== "") return own;
  return typeof call === "string" && call !== "" ? `${toText(type)} ${call}` : "";
}

function isSameItem(key: string, other: string): boolean {
  return key !== "" && key === other;
}

/** Returns the usage of one call of the model. Codex's input includes the tokens read from the cache. */
function usageIn(usage: JsonObject): SourceUsage {
  const cached = toCount(usage.cached_input_tokens);
  return {
    input: Math.max(0, toCount(usage.input_tokens) - cached),
    output: toCount(usage.output_tokens),
    cacheRead: cached,
    cacheWrite: toCount(usage.cache_write_input_tokens),
  };
}

// --- response items as parts of messages -----------------------------------------------------------------------------

/** Returns the blocks of a message or of a tool's output: text, or a list of parts. */
function toCodexBlocks(content: unknown): JsonObject[] {
  if (typeof content === "string") return content === "" ? [] : [makeTextBlock(content)];
  if (!Array.isArray(content))
    return isObject(content) ? toCodexBlocks(content.content ?? JSON.stringify(content)) : [];
  return content.filter(isObject).map((part) => {
    const { text, image_url: url } = part;
    if (typeof text === "string") return makeTextBlock(text);
    const [, mimeType, data] = /^data:([\w/+.-]{1,100});base64,(.*)$/s.exec(toText(url) ?? "") ?? [];
    return makeImageBlock(data, mimeType) ?? makeOtherBlock(part);
  });
}

function joinPartTexts(content: unknown): string {
  return joinBlockTexts(toCodexBlocks(content));
}

function joinBlockTexts(blocks: readonly JsonObject[]): string {
  return blocks.map(({ text }) => toText(text) ?? "").join("");
}

/** Returns a thought. With encrypted content it is kept as it is, because only its provider can read that. */
function toCodexThought(item: JsonObject): JsonObject {
  const parts = [item.summary, item.content].flatMap((list) => (Array.isArray(list) ? list.filter(isObject) : []));
  const text = parts.map((part) => toText(part.text) ?? "").join("\n\n");
  return makeThinkingBlock(text, typeof item.encrypted_content === "string" ? JSON.stringify(item) : undefined);
}

/** A call of a tool, as one of the items that are calls has it. */
interface CodexCall {
  readonly id: string;
  readonly name: string;
  readonly args: unknown;
}

/** Returns the call that an item is; undefined for any other item. */
function parseCodexCall(item: JsonObject): CodexCall | undefined {
  const { type, name, namespace } = item;
  const id = toText(item.call_id) ?? toText(item.id) ?? "";
  const full = [toText(namespace), toText(name)].filter((part) => part !== undefined && part !== "").join(".");
  if (type === "function_call") return { id, name: full, args: argumentsIn(item.arguments) };
  if (type === "custom_tool_call") return { id, name: full, args: { input: toText(item.input) ?? "" } };
  if (type === "local_shell_call") return { id, name: "local_shell", args: isObject(item.action) ? item.action : {} };
  if (type === "tool_search_call") return { id, name: "tool_search", args: argumentsIn(item.arguments) };
  return undefined;
}

/** A tool's answer. */
interface CodexOutput {
  readonly callId: string;
  readonly content: JsonObject[];
  readonly hasFailed: boolean;
}

/** Returns the tool's answer that an item is; undefined for any other item. */
function parseCodexOutput(item: JsonObject): CodexOutput | undefined {
  const { type } = item;
  if (typeof type !== "string" || !type.endsWith("_output")) return undefined;
  const { output = item.tools } = item;
  const content = Array.isArray(output) || typeof output === "string" ? output : JSON.stringify(output ?? "");
  const blocks = toCodexBlocks(content);
  const status = item.success === undefined ? findExitCode(toText(blocks[0]?.text) ?? "") : 0;
  return { callId: toText(item.call_id) ?? "", content: blocks, hasFailed: item.success === false || status !== 0 };
}

/** Lines of Codex's head before the output of a command. */
const HEAD_LINES = 6;
/** Characters of an output of Codex's oldest form that are parsed. */
const MOST_PARSED = 1 << 20;

/**
 * Returns the exit code of a command by what Codex writes around its output: a head up to `Output:`, or in old versions
 * JSON with it in `metadata`. Without one, returns 0.
 */
function findExitCode(text: string): number {
  if (text.startsWith("{") && text.length <= MOST_PARSED) {
    const value = argumentsIn(text);
    const code = isObject(value) && isObject(value.metadata) ? value.metadata.exit_code : 0;
    return typeof code === "number" ? code : 0;
  }
  const lines = text.slice(0, 1000).split("\n", HEAD_LINES);
  const end = lines.findIndex((line) => line.startsWith("Output:"));
  for (const line of lines.slice(0, end < 0 ? HEAD_LINES : end)) {
    const [, code] = /^(?:Exit code: |Process exited with code )(-?\d+)$/.exec(line.trimEnd()) ?? [];
    if (code !== undefined) return Number(code);
  }
  return 0;
}

/** Returns the value of arguments, which are JSON text. A text that is no JSON stays as it is. */
function argumentsIn(text: unknown): unknown {
  const value = typeof text === "string" ? tryParseText(text) : undefined;
  return value === undefined ? text : value;
}

/** Beginnings of texts in the user's place that no person wrote. */
const BEGINNINGS: readonly (readonly [beginning: string, kind: string])[] = [
  ["<environment_context>", "environment"],
  ["<turn_aborted>", "turn-aborted"],
  ["# AGENTS.md", "instructions"],
  ["<user_instructions>", "instructions"],
  ["<INSTRUCTIONS>", "instructions"],
  ["<permissions instructions>", "permissions"],
  ["<app-context>", "app-context"],
  ["<skill>", "skill"],
  ["<subagent_notification>", "subagent-notification"],
  ["<user_shell_command>", "shell-command"],
];

/** Returns the kind of a message in the user's place that no person wrote. */
function detectHarnessKind(item: JsonObject, text: string): string | undefined {
  const about = item.internal_chat_message_metadata_passthrough;
  const kinds = isObject(about) ? about.content_item_kinds : undefined;
  const named = Array.isArray(kinds) ? kinds.filter((kind) => typeof kind === "string" && kind.includes(".")) : [];
  if (named.some((kind) => kind.startsWith("user."))) return undefined;
  if (Array.isArray(kinds) && named.length > 0 && named.length === kinds.length)
    return (
      (kinds[0] as string)
        .split(".")[1]
        .replace(/[^a-z]+/gi, "-")
        .slice(0, 40) || "harness"
    );
  const begun = text.trimStart();
  return BEGINNINGS.find(([beginning]) => begun.startsWith(beginning))?.[1];
}
