/** The work on one log of Copilot CLI's events. */

import {
  isObject,
  type JsonObject,
  makeImageBlock,
  makeTextBlock,
  makeThinkingBlock,
  makeToolCallBlock,
  NO_TIME,
  type SourceUsage,
  toCount,
  toText,
  toTimestamp,
} from "../../../../core/foreign/messages.ts";
import { tryParseText } from "../../../../core/json/json.ts";
import { getApi } from "../apis.ts";
import { getFolderName, getOwnName } from "../file-name.ts";
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

const PROVIDER = "github-copilot";

/** An event, as far as all of them have the same members. */
interface CopilotEvent {
  readonly nativeId: string;
  readonly at: string;
  readonly data: JsonObject;
}

type TakeEvent = (event: CopilotEvent) => Omit<RecordVerdict, "kind">;

/** The verdict on an event that is kept as it is. */
const RAW: ReturnType<TakeEvent> = { fidelity: "preserved", isRaw: true };

/** Events that only mark a beginning or an end. */
const MARKS = new Set(["assistant.turn_start", "assistant.turn_end"]);

export class CopilotTranslation implements Translation {
  private readonly tools: TranslationTools;
  private readonly turns: Turns;
  private readonly takers: Readonly<Record<string, TakeEvent>>;
  private session: { id?: string; parent?: string; cwd?: string; started?: string } = {};
  private model = "unknown";
  private time = NO_TIME;
  /** The call of the API that the current answer is of. */
  private apiCall: string | undefined;
  /** True if more pieces of that answer are to come. */
  private isPartial = false;
  private reasoning = "";
  /** The usage of calls of the API without an answer so far. */
  private readonly usages = new Map<string, JsonObject>();
  private readonly toolNames = new Map<string, string>();
  private readonly assets = new Map<string, JsonObject>();
  /** The entry before each message of a person's. */
  private readonly places = new Map<string, string | null>();
  /** Bytes of each event: an event with a known id is a repeated one if its length is equal. */
  private readonly lengths = new Map<string, number>();

  constructor(tools: TranslationTools) {
    this.tools = tools;
    this.turns = new Turns(tools);
    this.takers = {
      "session.start": (event) => this.takeStart(event),
      "session.resume": (event) => this.takeStart(event),
      "session.model_change": (event) => this.takeModel(event),
      "session.title_changed": (event) => this.takeTitle(event),
      "session.compaction_complete": (event) => this.takeCompaction(event),
      "session.context_cleared": () => this.takeCleared(),
      "session.snapshot_rewind": (event) => this.takeRewind(event),
      "session.binary_asset": (event) => this.takeAsset(event),
      "user.message": (event) => this.takeUser(event),
      "system.notification": (event) => this.takeNotification(event),
      "assistant.reasoning": (event) => this.takeReasoning(event),
      "assistant.message": (event) => this.takeAnswer(event),
      "assistant.usage": (event) => this.takeUsage(event),
      "session.usage_record": (event) => this.takeUsageRecord(event),
      "tool.execution_start": (event) => this.takeToolStart(event),
      "tool.execution_complete": (event) => this.takeToolEnd(event),
    };
  }

  take(source: SourceRecord): RecordVerdict {
    const { value } = source;
    if (!isObject(value)) return makeRawVerdict("(no object)");
    const kind = toText(value.type) ?? "(no type)";
    this.time = toTimestamp(value.timestamp, this.time);
    if (!isObject(value.data)) return makeRawVerdict(kind);
    const { data } = value;
    // A subagent's work is not part of the conversation that started it.
    if (typeof value.agentId === "string" || typeof data.parentToolCallId === "string")
      return makeRawVerdict(`subagent/${kind}`);
    if (MARKS.has(kind)) return { kind, fidelity: "dropped" };
    const taker = Object.hasOwn(this.takers, kind) ? this.takers[kind] : undefined;
    // A later event repeats the whole content of a transient one.
    if (!taker && value.ephemeral === true) return { kind, fidelity: "dropped" };
    if (!taker) return makeRawVerdict(kind);
    const nativeId = toText(value.id) ?? `line:${source.number}`;
    const before = this.lengths.get(nativeId);
    if (before === source.bytes.length) return { kind, fidelity: "preserved" };
    if (before !== undefined) {
      const warning = "The event has the id of an earlier one that says something else. It is kept as it is.";
      return { ...makeRawVerdict(kind), warning };
    }
    this.lengths.set(nativeId, source.bytes.length);
    return { kind, ...taker({ nativeId, at: this.time, data }) };
  }

  keep(source: SourceRecord, members?: JsonObject): void {
    this.turns.keep(source, this.time, members);
  }

  pending(): PendingEntries {
    return { ...this.turns.pending(), isPartial: this.isPartial && this.turns.current !== null };
  }

  about(): AboutSession {
    const { id = this.idByPlace(), parent, cwd, started } = this.session;
    return { nativeId: id, nativeParentId: parent, cwd, started };
  }

  /** Returns the id of a session whose file does not have it: its folder's name, or that of an older file itself. */
  private idByPlace(): string | undefined {
    const { name } = this.tools;
    return getOwnName(name) === "events" ? getFolderName(name) : getOwnName(name);
  }

  // --- about the session ---------------------------------------------------------------------------------------

  private takeStart({ at, data }: CopilotEvent): ReturnType<TakeEvent> {
    const { sessionId, startTime, context, selectedModel, detachedFromSpawningParentSessionId: parent } = data;
    const { session } = this;
    if (typeof sessionId === "string" && sessionId !== "") session.id ??= sessionId;
    if (typeof parent === "string" && parent !== "") session.parent ??= parent;
    if (isObject(context) && typeof context.cwd === "string") session.cwd ??= context.cwd;
    const started = toTimestamp(startTime, at);
    if (started !== NO_TIME) session.started ??= started;
    if (typeof selectedModel === "string") this.model = selectedModel;
    return RAW;
  }

  private takeModel({ nativeId, at, data }: CopilotEvent): ReturnType<TakeEvent> {
    const { newModel, previousModel: _, ...more } = data;
    if (typeof newModel !== "string") return RAW;
    this.model = newModel;
    this.turns.note("model_change", nativeId, at, { provider: PROVIDER, modelId: newModel });
    return { fidelity: Object.keys(more).length === 0 ? "preserved" : "derived" };
  }

  private takeTitle({ nativeId, at, data }: CopilotEvent): ReturnType<TakeEvent> {
    const name = toText(data.title)
      ?.replace(/[\r\n]+/g, " ")
      .trim();
    if (!name) return RAW;
    this.turns.note("session_info", nativeId, at, { name });
    return { fidelity: "preserved" };
  }

  private takeAsset({ data }: CopilotEvent): ReturnType<TakeEvent> {
    const { assetId } = data;
    if (typeof assetId === "string" && String(data.mimeType).startsWith("image/")) this.assets.set(assetId, data);
    return RAW;
  }

  // --- the conversation ----------------------------------------------------------------------------------------

  private takeUser({ nativeId, at, data }: CopilotEvent): ReturnType<TakeEvent> {
    const { content, transformedContent, attachments } = data;
    if (typeof content !== "string") return RAW;
    this.reasoning = "";
    const given = Array.isArray(attachments) ? attachments.filter(isObject) : [];
    const pictures = given.map((one) => resolvePicture(one, this.assets)).filter((one) => one !== undefined);
    const blocks = [...(content === "" ? [] : [makeTextBlock(content)]), ...pictures];
    const by = getMessageSource(data);
    this.places.set(nativeId, this.turns.tip);
    if (by !== undefined)
      this.turns.add("custom_message", nativeId, at, { customType: `copilot:${by}`, content: blocks, display: false });
    else this.turns.user(nativeId, blocks, at);
    // The program adds to the person's text: the date, hints, and the contents of attached files.
    const isMore = typeof transformedContent === "string" && transformedContent !== content;
    return isMore || pictures.length < given.length ? RAW : { fidelity: "preserved" };
  }

  private takeNotification({ nativeId, at, data }: CopilotEvent): ReturnType<TakeEvent> {
    const { content, kind } = data;
    if (typeof content !== "string") return RAW;
    const members = { customType: "copilot:notification", content: [makeTextBlock(content)], details: { kind } };
    this.turns.add("custom_message", nativeId, at, { ...members, display: true });
    return { fidelity: "preserved" };
  }

  private takeReasoning({ data }: CopilotEvent): ReturnType<TakeEvent> {
    this.reasoning = toText(data.content) ?? "";
    return RAW;
  }

  private takeAnswer({ nativeId, at, data }: CopilotEvent): ReturnType<TakeEvent> {
    const { apiCallId, chunkIndex, chunkCount, outputTokens } = data;
    this.isPartial = toCount(chunkIndex) + 1 < toCount(chunkCount);
    const model = toText(data.model) ?? this.model;
    const call = toText(apiCallId);
    const { current, hasResults } = this.turns;
    const isMore = current !== null && !hasResults && call !== undefined && call === this.apiCall;
    const usage = { input: 0, output: toCount(outputTokens) };
    const begun = { nativeId, api: getApi(PROVIDER, model), provider: PROVIDER, model, usage, at };
    const answer = isMore && toCount(chunkIndex) > 0 ? current : this.turns.begin(begun);
    const record = call === undefined ? undefined : this.usages.get(call);
    if (record) this.useRecord(answer, record);
    else if (answer === current)
      answer.usage = { ...current.usage, output: Math.max(current.usage.output, usage.output) };
    this.apiCall = call;
    const blocks = toCopilotBlocks(data, this.reasoning);
    this.reasoning = "";
    answer.content.push(...blocks);
    for (const { type, id, name } of blocks) if (type === "toolCall") this.toolNames.set(String(id), String(name));
    return { fidelity: "preserved" };
  }

  private takeUsage({ data }: CopilotEvent): ReturnType<TakeEvent> {
    const { current } = this.turns;
    const call = toText(data.apiCallId);
    if (!current || (call !== undefined && this.apiCall !== undefined && call !== this.apiCall)) return RAW;
    this.useRecord(current, data);
    return { fidelity: "derived" };
  }

  /** Takes the usage of a call of the API, which comes before its answer. */
  private takeUsageRecord({ data }: CopilotEvent): ReturnType<TakeEvent> {
    const { usage } = data;
    const call = isObject(usage) ? toText(usage.apiCallId) : undefined;
    if (!isObject(usage) || call === undefined) return RAW;
    const { current } = this.turns;
    if (current && call === this.apiCall) this.useRecord(current, usage);
    else this.usages.set(call, usage);
    return { fidelity: "derived" };
  }

  private useRecord(answer: OpenAnswer, usage: JsonObject): void {
    answer.usage = parseEventUsage(usage);
    if (usage.finishReason === "length") answer.stopReason = "length";
    this.usages.delete(String(usage.apiCallId));
  }

  private takeToolStart({ data }: CopilotEvent): ReturnType<TakeEvent> {
    const { toolCallId } = data;
    // That record has the calls of the answer.
    return typeof toolCallId === "string" && this.toolNames.has(toolCallId) ? { fidelity: "preserved" } : RAW;
  }

  private takeToolEnd({ nativeId, at, data }: CopilotEvent): ReturnType<TakeEvent> {
    const toolCallId = toText(data.toolCallId) ?? "";
    const toolName = this.toolNames.get(toolCallId);
    if (toolName === undefined) return RAW;
    this.turns.result(nativeId, { toolCallId, toolName, ...parseToolOutcome(data, this.assets), at });
    return { fidelity: "preserved" };
  }

  // --- the tree ------------------------------------------------------------------------------------------------

  private takeCompaction({ nativeId, at, data }: CopilotEvent): ReturnType<TakeEvent> {
    const { success, summaryContent, preCompactionTokens, ...details } = data;
    if (success !== true || typeof summaryContent !== "string") return RAW;
    const firstKeptEntryId = this.tools.ids.entry(nativeId);
    const members = { summary: summaryContent, firstKeptEntryId, tokensBefore: toCount(preCompactionTokens), details };
    this.turns.add("compaction", nativeId, at, members);
    return { fidelity: "derived" };
  }

  private takeCleared(): ReturnType<TakeEvent> {
    this.turns.goTo(null);
    return RAW;
  }

  /** Goes back to the place before an event, if it and the entries after it are still in the file. */
  private takeRewind({ data }: CopilotEvent): ReturnType<TakeEvent> {
    const place = typeof data.upToEventId === "string" ? this.places.get(data.upToEventId) : undefined;
    if (place !== undefined) this.turns.goTo(place);
    return RAW;
  }
}

// --- contents of events ---------------------------------------------------------------------------------------------

/** Pictures and other bytes that an event has once and others name, by their id. */
type Assets = ReadonlyMap<string, JsonObject>;

/** Returns the blocks of an answer. `reasoning`: the model's thought from an earlier event. */
function toCopilotBlocks(data: JsonObject, reasoning: string): JsonObject[] {
  const { content, toolRequests } = data;
  const blocks: JsonObject[] = [];
  const thought = thoughtOf(data, reasoning);
  if (thought) blocks.push(thought);
  if (typeof content === "string" && content !== "") blocks.push(makeTextBlock(content));
  const requests = Array.isArray(toolRequests) ? toolRequests.filter(isObject) : [];
  for (const { toolCallId, name, arguments: args } of requests)
    blocks.push(makeToolCallBlock(toText(toolCallId) ?? "", toText(name) ?? "", argumentsOf(args)));
  return blocks;
}

function thoughtOf(
  { reasoningText, reasoningOpaque, encryptedContent }: JsonObject,
  reasoning: string,
): JsonObject | undefined {
  const text = toText(reasoningText) ?? reasoning;
  const opaque = toText(reasoningOpaque) ?? toText(encryptedContent);
  if (text === "") return opaque === undefined ? undefined : { ...makeThinkingBlock("", opaque), redacted: true };
  const signed = makeThinkingBlock(text, toText(reasoningOpaque));
  return typeof encryptedContent === "string" ? { ...signed, encryptedContent } : signed;
}

/** Returns arguments as the object that they are, even if they are written as a text. */
function argumentsOf(args: unknown): unknown {
  const value = typeof args === "string" ? tryParseText(args) : undefined;
  return isObject(value) ? value : args;
}

/** Returns the model's view of a tool's result, and the rest of the event. */
function parseToolOutcome(data: JsonObject, assets: Assets) {
  const { result, error, success, toolCallId: _, ...more } = data;
  const isError = success === false;
  const given = isObject(result) ? result : {};
  const { content, binaryResultsForLlm, ...rest } = given;
  const binaries = Array.isArray(binaryResultsForLlm) ? binaryResultsForLlm.filter(isObject) : [];
  const pictures = binaries.map((one) => resolvePicture(one, assets)).filter((one) => one !== undefined);
  const others = pictures.length < binaries.length ? { binaryResultsForLlm } : {};
  const reason = isObject(error) ? toText(error.message) : toText(error);
  // The model saw a result of any other form as it is.
  const said = toText(content) ?? toText(result) ?? reason ?? (result === undefined ? "" : JSON.stringify(result));
  const details = { ...more, ...rest, ...others, ...(error === undefined ? {} : { error }) };
  return { content: [makeTextBlock(said), ...pictures], isError, details };
}

/** Returns a picture that an event has or names; undefined for anything else. */
function resolvePicture({ data, mimeType, assetId }: JsonObject, assets: Assets): JsonObject | undefined {
  const asset = typeof assetId === "string" ? assets.get(assetId) : undefined;
  const type = toText(mimeType) ?? toText(asset?.mimeType) ?? "";
  const bytes = toText(data) ?? toText(asset?.data);
  return type.startsWith("image/") ? makeImageBlock(bytes, type) : undefined;
}

function parseEventUsage(data: JsonObject): SourceUsage {
  const cacheRead = toCount(data.cacheReadTokens);
  const cacheWrite = toCount(data.cacheWriteTokens);
  return {
    input: Math.max(0, toCount(data.inputTokens) - cacheRead - cacheWrite),
    output: toCount(data.outputTokens),
    cacheRead,
    cacheWrite,
  };
}

/** Returns the writer of a user's message that no person wrote, as a word. */
function getMessageSource({ source, isAutopilotContinuation }: JsonObject): string | undefined {
  if (isAutopilotContinuation === true) return "autopilot";
  if (typeof source !== "string" || source === "" || source === "user") return undefined;
  const word = source.toLowerCase().replace(/[^a-z].*$/s, "");
  return word === "" ? "program" : word;
}
