/** The work on one export of opencode's. */

import {
  isObject,
  type JsonObject,
  makeImageBlock,
  makeTextBlock,
  makeThinkingBlock,
  makeToolCallBlock,
  makeUserMessage,
  NO_TIME,
  NO_USAGE,
  type SourceUsage,
  type ToolAnswer,
  toCount,
  toText,
  toTimestamp,
} from "../../../../core/foreign/messages.ts";
import { getApi } from "../apis.ts";
import { compactJson } from "../documents.ts";
import {
  type AboutSession,
  makeRawVerdict,
  type PendingEntries,
  type RecordVerdict,
  type SourceRecord,
  type TranslatedEntry,
  type Translation,
  type TranslationTools,
} from "../translator.ts";
import { Turns } from "../turns.ts";

/** A message whose parts are being read. */
interface OpenMessage {
  readonly id: string;
  /** The id of its next entry's source: the message, or the part after a split. */
  nativeId: string;
  readonly at: string;
  readonly info: JsonObject;
  readonly kind: "user" | "assistant" | "summary";
  /** Entries of a person's message, in order; the turn itself is the first, once there is something in it. */
  readonly items: { type: string; nativeId: string; at: string; members: JsonObject }[];
  readonly said: JsonObject[];
  /** The compaction that it asks for, or that it is the summary of. */
  compaction: {
    readonly id: string;
    readonly at: string;
    readonly part: JsonObject;
    readonly bytes: Uint8Array;
  } | null;
  summary: string;
  /** True if a step began or ended, so that the next part belongs to another answer. */
  isStepOver: boolean;
  hasSteps: boolean;
  /** True if a step gave its usage, so that the message's usage is the sum of these. */
  hasUsage: boolean;
  answers: number;
}

export class OpencodeTranslation implements Translation {
  private readonly tools: TranslationTools;
  private readonly turns: Turns;
  private session: JsonObject = {};
  private open: OpenMessage | null = null;
  /** A compaction that was asked for, until its summary is there. */
  private asked: OpenMessage["compaction"] = null;
  private readonly firsts = new Map<string, string>();
  private revert: { readonly messageId: string; readonly partId: string | undefined } | null = null;
  /** The entry before the reverted ones; undefined unless something was reverted. */
  private leaf: string | null | undefined;
  private model = "";
  private time = NO_TIME;

  constructor(tools: TranslationTools) {
    this.tools = tools;
    this.turns = new Turns(tools);
  }

  take(source: SourceRecord): RecordVerdict {
    const { value } = source;
    if (!isObject(value)) return makeRawVerdict("(no object)");
    const { role, type, messageID } = value;
    if (typeof role === "string") return this.takeMessage(source, value, role);
    if (typeof type === "string") return this.takePart(source, value, type);
    const isSession = toText(value.id) !== undefined && messageID === undefined && value.sessionID === undefined;
    if (isSession && this.session.id === undefined) return this.takeSession(value);
    const names = Object.keys(value);
    return makeRawVerdict(names.length === 1 ? names[0] : "(unknown)");
  }

  keep(source: SourceRecord, members = this.rawMembers(source)): void {
    const { open } = this;
    if (open?.kind !== "user") this.turns.keep(source, this.time, members);
    else this.put(open, {}, "custom", members);
  }

  pending(): PendingEntries {
    const { open } = this;
    const settled = this.turns.pending().entries;
    if (!open || open.kind === "assistant") {
      const isPartial = open !== null && !isObject(open.info.error) && !isOver(open.info);
      const pending = this.asked ? [this.askedItem(this.asked)] : [];
      return { entries: [...settled, ...this.chained(pending, settled)], isPartial };
    }
    const items = open.kind === "user" ? this.itemsOf(open) : [this.compactionItem(open)];
    if (open.kind === "user" && open.compaction) items.push(this.askedItem(open.compaction));
    return { entries: [...settled, ...this.chained(items, settled)], isPartial: false };
  }

  about(): AboutSession {
    const { id, parentID, directory, time } = this.session;
    // An export without private data has a note in place of the folder.
    const cwd = /^(?:\/|\\\\|[A-Za-z]:)/.test(toText(directory) ?? "") ? toText(directory) : undefined;
    const started = isObject(time) ? toTimestamp(time.created, "") || undefined : undefined;
    return { nativeId: toText(id), nativeParentId: toText(parentID), cwd, started, leafId: this.leaf };
  }

  private takeSession(value: JsonObject): RecordVerdict {
    this.session = value;
    const { title, time, revert } = value;
    this.time = toTimestamp(isObject(time) ? time.created : undefined, NO_TIME);
    const name = toText(title)
      ?.replace(/[\r\n]+/g, " ")
      .trim();
    if (name) this.turns.add("session_info", `${value.id}/title`, this.time, { name });
    if (isObject(revert) && typeof revert.messageID === "string")
      this.revert = { messageId: revert.messageID, partId: toText(revert.partID) };
    return { kind: "session", fidelity: "derived" };
  }

  private takeMessage(source: SourceRecord, info: JsonObject, role: string): RecordVerdict {
    this.close();
    const kind = `message/${role}`;
    const id = toText(info.id);
    if (id === undefined || (role !== "user" && role !== "assistant")) return makeRawVerdict(kind);
    this.time = toTimestamp(isObject(info.time) ? info.time.created : undefined, this.time);
    const isSummary = role === "assistant" && info.summary === true && isOver(info) && !isObject(info.error);
    const { asked } = this;
    if (isSummary) this.asked = null;
    else this.dropAsked();
    if (this.revert?.messageId === id && this.revert.partId === undefined) this.leaf = this.turns.tip;
    if (role === "user") this.noteModel(info, id);
    this.open = {
      id,
      nativeId: id,
      at: this.time,
      info,
      kind: isSummary ? "summary" : role,
      items: [],
      said: [],
      compaction: isSummary ? (asked ?? { id, at: this.time, part: {}, bytes: Uint8Array.from(source.bytes) }) : null,
      summary: "",
      isStepOver: false,
      hasSteps: false,
      hasUsage: false,
      answers: 0,
    };
    if (role === "assistant" && !isSummary && isObject(info.error)) this.answer(this.open, id);
    const { system, tools, format, summary } = info;
    const hasDiffs = isObject(summary) && Array.isArray(summary.diffs) && summary.diffs.length > 0;
    const says = [system, tools, format].some((one) => one !== undefined) || hasDiffs || isSummary;
    return { kind, fidelity: says ? "derived" : "preserved" };
  }

  private takePart(source: SourceRecord, part: JsonObject, type: string): RecordVerdict {
    const kind = `part/${type}`;
    const { open } = this;
    if (!open || (part.messageID !== undefined && part.messageID !== open.id)) return makeRawVerdict(kind);
    const { partId } = this.revert ?? {};
    if (partId !== undefined && partId === part.id) this.splitAt(open, `${partId}/rest`);
    if (open.kind === "user") return { kind, ...this.takeGiven(open, source, part, type) };
    if (open.kind === "summary") return { kind, ...this.takeSummary(open, source, part, type) };
    return { kind, ...this.takeSpoken(open, source, part, type) };
  }

  // --- a person's message --------------------------------------------------------------------------------------

  private takeGiven(open: OpenMessage, source: SourceRecord, part: JsonObject, type: string): PartVerdict {
    const text = toText(part.text);
    if (type === "text" && text !== undefined) {
      const content = [makeTextBlock(text)];
      if (part.ignored === true) this.put(open, part, "custom", { customType: "opencode:ignored", data: { text } });
      else if (part.synthetic === true)
        this.put(open, part, "custom_message", { customType: "opencode:synthetic", content, display: false });
      else open.said.push(content[0]);
      return { fidelity: "preserved" };
    }
    if (type === "subtask" && typeof part.prompt === "string") {
      const { id: _, sessionID: _s, messageID: _m, type: _t, ...details } = part;
      const content = [makeTextBlock(part.prompt)];
      this.put(open, part, "custom_message", { customType: "opencode:subtask", content, details, display: true });
      return { fidelity: "preserved" };
    }
    if (type === "compaction" && !open.compaction) {
      open.compaction = { id: open.id, at: open.at, part, bytes: Uint8Array.from(source.bytes) };
      return { fidelity: "derived" };
    }
    // The program stores the contents of a text file or a folder as a text of its own.
    if (type === "file" && part.mime !== "text/plain" && part.mime !== "application/x-directory") {
      const { block, isWhole } = toFileBlock(part);
      open.said.push(block);
      if (isWhole) return { fidelity: "preserved" };
    }
    this.put(open, part, "custom", this.rawMembers(source));
    return { fidelity: "preserved" };
  }

  private put(open: OpenMessage, { id }: JsonObject, type: string, members: JsonObject): void {
    const nativeId = toText(id) ?? `${open.nativeId}/${open.items.length}`;
    open.items.push({ type, nativeId, at: open.at, members });
  }

  // --- the model's message -------------------------------------------------------------------------------------

  private takeSpoken(open: OpenMessage, source: SourceRecord, part: JsonObject, type: string): PartVerdict {
    if (type === "step-start") {
      open.hasSteps = true;
      open.isStepOver = true;
      return { fidelity: "derived" };
    }
    if (type === "step-finish") {
      const answer = this.turns.current ?? this.answer(open, open.id);
      answer.usage = parseOpencodeUsage(part);
      if (part.reason === "length") answer.stopReason = "length";
      open.hasUsage = true;
      open.isStepOver = true;
      return { fidelity: "derived" };
    }
    const text = toText(part.text);
    if (type === "text" && text !== undefined) {
      this.answerFor(open, part).content.push(makeTextBlock(text));
      // The provider's own data about a text has no place here.
      return { fidelity: part.metadata === undefined ? "preserved" : "derived" };
    }
    if (type === "reasoning" && text !== undefined) this.answerFor(open, part).content.push(toOpencodeThought(part));
    else if (type === "tool") return this.takeTool(open, part);
    else {
      this.keepPart(source, part, open.at);
      return { fidelity: "preserved" };
    }
    return { fidelity: "preserved" };
  }

  private takeTool(open: OpenMessage, part: JsonObject): PartVerdict {
    this.answerFor(open, part, true).content.push(toCallBlock(part));
    const result = toToolResult(part, open.at);
    if (!result) return { fidelity: "derived" };
    this.turns.result(`${toText(part.id) ?? `${open.id}/${result.toolCallId}`}/result`, result);
    return { fidelity: part.metadata === undefined ? "preserved" : "derived" };
  }

  /** Returns the answer that a part belongs to: each step is one. */
  private answerFor(open: OpenMessage, part: JsonObject, isCall = false) {
    const { current } = this.turns;
    const isOther = open.isStepOver || (!open.hasSteps && !isCall && this.turns.hasResults);
    const isNew = current === null || open.answers === 0 || (isOther && (current.content.length > 0 || open.hasUsage));
    open.isStepOver = false;
    if (!isNew) return current;
    return this.answer(open, open.answers === 0 ? open.id : (toText(part.id) ?? `${open.id}/${open.answers}`));
  }

  private answer(open: OpenMessage, nativeId: string) {
    const { info, at } = open;
    const provider = toText(info.providerID) ?? "unknown";
    const model = toText(info.modelID) ?? "unknown";
    const { error } = info;
    const { current } = this.turns;
    if (open.answers > 0 && current && isObject(error)) {
      // Only the last answer of a message has failed.
      delete current.stopReason;
      delete current.errorMessage;
    }
    const usage = open.answers === 0 && !open.hasSteps ? parseOpencodeUsage(info) : NO_USAGE;
    const answer = this.turns.begin({ nativeId, api: getApi(provider, model), provider, model, usage, at });
    if (open.answers === 0) this.firsts.set(open.id, answer.id);
    open.answers++;
    if (isObject(error)) {
      answer.stopReason = error.name === "MessageAbortedError" ? "aborted" : "error";
      const { message } = isObject(error.data) ? error.data : {};
      answer.errorMessage = toText(message) ?? toText(error.name) ?? "unknown";
    }
    return answer;
  }

  // --- compactions ---------------------------------------------------------------------------------------------

  private takeSummary(open: OpenMessage, source: SourceRecord, part: JsonObject, type: string): PartVerdict {
    const text = toText(part.text);
    if (type === "text" && text !== undefined) {
      open.summary += open.summary === "" ? text : `\n${text}`;
      return { fidelity: "derived" };
    }
    if (type === "step-start" || type === "step-finish") return { fidelity: "derived" };
    this.keepPart(source, part, open.at);
    return { fidelity: "preserved" };
  }

  private compactionItem({ compaction, summary, info }: OpenMessage): MessageItem {
    const { id, at, part } = compaction as NonNullable<OpenMessage["compaction"]>;
    const { auto, overflow, tail_start_id } = part;
    const kept = typeof tail_start_id === "string" ? this.firsts.get(tail_start_id) : undefined;
    const { providerID, modelID, tokens, cost } = info;
    const members = {
      summary,
      firstKeptEntryId: kept ?? this.tools.ids.entry(id),
      tokensBefore: parseOpencodeUsage(info).input + (parseOpencodeUsage(info).cacheRead ?? 0),
      details: { auto, overflow, model: { providerID, modelID }, tokens, cost },
    };
    return { type: "compaction", nativeId: id, at, members };
  }

  private askedItem({ id, at, bytes }: NonNullable<OpenMessage["compaction"]>): MessageItem {
    return { type: "custom", nativeId: id, at, members: { customType: `import:${this.tools.agent}`, data: bytes } };
  }

  /** Keeps a compaction without a summary as the request for one. */
  private dropAsked(): void {
    const { asked } = this;
    this.asked = null;
    if (asked) this.emit(this.askedItem(asked));
  }

  // --- the end of a message ------------------------------------------------------------------------------------

  private close(): void {
    const { open } = this;
    this.open = null;
    if (!open) return;
    if (open.kind === "assistant") {
      if (open.answers === 0) this.emit(this.emptyItem(open));
      return;
    }
    if (open.kind === "summary") {
      this.emit(this.compactionItem(open));
      return;
    }
    this.emitGiven(open);
    if (open.compaction) this.asked = open.compaction;
  }

  private emitGiven(open: OpenMessage): void {
    const items = this.itemsOf(open);
    for (const item of items) this.emit(item);
    if (items.length > 0 && !this.firsts.has(open.id))
      this.firsts.set(open.id, this.tools.ids.entry(items[0].nativeId));
  }

  /** Returns the entries of a person's message. */
  private itemsOf(open: OpenMessage): MessageItem[] {
    const { said, items, nativeId, at, compaction } = open;
    if (said.length > 0) return [{ type: "message", nativeId, at, members: makeUserMessage([...said], at) }, ...items];
    return items.length > 0 || compaction ? items : [this.emptyItem(open)];
  }

  private emptyItem({ nativeId, at, info }: OpenMessage): MessageItem {
    return { type: "custom", nativeId, at, members: { customType: "opencode:empty", data: info } };
  }

  private emit({ type, nativeId, at, members }: MessageItem): string {
    return this.turns.add(type, nativeId, at, members);
  }

  /** Remembers the place before the first part that was reverted in a message. */
  private splitAt(open: OpenMessage, partId: string): void {
    if (open.said.length > 0 || open.items.length > 0) {
      this.emitGiven(open);
      open.nativeId = partId;
      open.said.length = 0;
      open.items.length = 0;
    }
    this.leaf = this.turns.tip;
    open.isStepOver = true;
  }

  // --- the rest ------------------------------------------------------------------------------------------------

  private noteModel({ model }: JsonObject, id: string): void {
    const { providerID, modelID } = isObject(model) ? model : {};
    if (typeof providerID !== "string" || typeof modelID !== "string") return;
    const now = `${providerID}/${modelID}`;
    if (now === this.model) return;
    this.model = now;
    this.turns.add("model_change", `${id}/model`, this.time, { provider: providerID, modelId: modelID });
  }

  /** Keeps a part of the model's as it is. */
  private keepPart(source: SourceRecord, { id }: JsonObject, at: string): void {
    const members = this.rawMembers(source);
    if (typeof id === "string") this.turns.note("custom", id, at, members);
    else this.turns.keep(source, at, members);
  }

  private rawMembers({ bytes }: SourceRecord): JsonObject {
    // An export formats the same part in another way than the database.
    return { customType: `import:${this.tools.agent}`, data: compactJson(bytes) };
  }

  /** Returns items as entries after others, or after the last that was emitted. */
  private chained(items: readonly MessageItem[], after: readonly TranslatedEntry[]): TranslatedEntry[] {
    if (items.length === 0) return [];
    let before = after.at(-1)?.id ?? this.turns.tip;
    return items.map(({ type, nativeId, at, members }) => {
      const entry = { type, id: this.tools.ids.entry(nativeId), parentId: before, timestamp: at, members };
      before = entry.id;
      return entry;
    });
  }
}

type MessageItem = OpenMessage["items"][number];
type PartVerdict = Omit<RecordVerdict, "kind">;

/** Returns whether the model has ended a message. */
function isOver({ finish, time }: JsonObject): boolean {
  return typeof finish === "string" || (isObject(time) && typeof time.completed === "number");
}

// --- parts as blocks and results -------------------------------------------------------------------------------------

/** Returns the tokens and the cost of a step, or of a whole message; thoughts are output that opencode counts apart. */
function parseOpencodeUsage({ tokens, cost }: JsonObject): SourceUsage {
  const { input, output, reasoning, cache } = isObject(tokens) ? tokens : {};
  const { read, write } = isObject(cache) ? cache : {};
  return {
    input: toCount(input),
    output: toCount(output) + toCount(reasoning),
    cacheRead: toCount(read),
    cacheWrite: toCount(write),
    cost: toCount(cost),
  };
}

/** Returns a thought with the data that its provider wants back, if that is named as a provider's. */
function toOpencodeThought({ text, metadata }: JsonObject): JsonObject {
  const thinking = toText(text) ?? "";
  const given = isObject(metadata) ? metadata : {};
  const { signature, redactedData } = isObject(given.anthropic) ? given.anthropic : {};
  const { reasoningEncryptedContent } = isObject(given.openai) ? given.openai : {};
  const opaque = toText(redactedData) ?? toText(reasoningEncryptedContent);
  if (thinking === "" && opaque !== undefined) return { ...makeThinkingBlock("", opaque), redacted: true };
  const block = makeThinkingBlock(thinking, toText(signature));
  return metadata === undefined || toText(signature) !== undefined ? block : { ...block, metadata };
}

/** Returns a file as a block, and whether that is all of it. */
function toFileBlock({ mime, url, filename }: JsonObject): { block: JsonObject; isWhole: boolean } {
  const type = toText(mime) ?? "";
  const at = toText(url) ?? "";
  const data = type.startsWith("image/") ? /^data:[^,]*;base64,([A-Za-z0-9+/=]+)$/.exec(at)?.[1] : undefined;
  const picture = makeImageBlock(data, type);
  if (picture) return { block: picture, isWhole: true };
  const name = toText(filename) ?? (at.startsWith("data:") ? "" : at);
  return {
    block: makeTextBlock(`[attached file: ${[name, type].filter((one) => one !== "").join(", ")}]`),
    isWhole: false,
  };
}

function toCallBlock(part: JsonObject): JsonObject {
  const state = isObject(part.state) ? part.state : {};
  const { input, raw } = state;
  const isCutOff = typeof raw === "string" && raw !== "" && isObject(input) && Object.keys(input).length === 0;
  const block = makeToolCallBlock(callIdOf(part), toText(part.tool) ?? "", isCutOff ? raw : input);
  const { google } = isObject(part.metadata) ? part.metadata : {};
  const { thoughtSignature } = isObject(google) ? google : {};
  return typeof thoughtSignature === "string" ? { ...block, thoughtSignature } : block;
}

function callIdOf({ callID, id }: JsonObject): string {
  return toText(callID) ?? toText(id) ?? "";
}

/** Returns the result of a tool part; undefined while the tool works. */
function toToolResult(part: JsonObject, otherwise: string): ToolAnswer | undefined {
  const { state } = part;
  if (!isObject(state)) return undefined;
  const { status, output, error, input: _, attachments, ...rest } = state;
  if (status !== "completed" && status !== "error") return undefined;
  const { end, start } = isObject(state.time) ? state.time : {};
  const files = Array.isArray(attachments) ? attachments.filter(isObject) : [];
  const said = status === "error" ? toText(error) : toText(output);
  const details = files.some((file) => !toFileBlock(file).isWhole) ? { ...rest, attachments } : rest;
  return {
    toolCallId: callIdOf(part),
    toolName: toText(part.tool) ?? "",
    content: [makeTextBlock(said ?? ""), ...files.map((file) => toFileBlock(file).block)],
    isError: status === "error",
    details,
    at: toTimestamp(end ?? start, otherwise),
  };
}
