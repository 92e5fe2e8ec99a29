/**
 * Translates one file of messages of Cline, or of a relative of it. The messages come one after the other, the results
 * of calls in the person's next one. Summarised or hidden messages are marked there and become a compaction here.
 */

import { isObject, type JsonObject, NO_TIME, toText, toTimestamp } from "../../../../core/foreign/messages.ts";
import { toBytes, toJsonText } from "../../../../core/json/json.ts";
import type {
  AboutSession,
  PendingEntries,
  RecordVerdict,
  SourceRecord,
  TranslatedEntry,
  Translation,
  TranslationTools,
} from "../translator.ts";
import { Turns } from "../turns.ts";
import {
  getMessageModel,
  haveMoreMembers,
  parseClineUsage,
  toClineBlocks,
  toResultBlocks,
  toSpokenBlocks,
  toThoughtBlock,
  translateGivenBlock,
} from "./blocks.ts";
import { detectClineHarness, parseEnvironment, parseTaskId, parseTaskTime, unwrapText } from "./harness.ts";

/** Members of a message whose content is in its entries, or in the compaction that it is marked for. */
const SAID = new Set(
  "role content id ts modelInfo metrics reasoning_details reasoning_content text summary encrypted_content".split(" "),
);
const MARKS = new Set(
  "condenseParent condenseId truncationParent truncationId isSummary isTruncationMarker".split(" "),
);
/** Types of entries that the model sees. */
const GIVEN = new Set(["message", "custom_message"]);
/** Kinds of messages that the program wrote in a person's place. */
const SYSTEM = new Set(["system", "status", "error"]);

/** The model's view of a list of messages, as the program stores it next to the list. */
interface SeenMessages {
  /** The first and the last of the messages that are left out. */
  readonly leftOut: readonly [number, number] | undefined;
  /** Texts in the place of those of blocks, by the numbers of messages and of their blocks. */
  readonly texts: ReadonlyMap<number, ReadonlyMap<number, string>>;
}

export class ClineTranslation implements Translation {
  private readonly tools: TranslationTools;
  private readonly turns: Turns;
  private time: string;
  private readonly copies = new Map<string, number>();
  private readonly toolNames = new Map<string, string>();
  /** True if the current answer has only a thought, which the next record continues. */
  private isThought = false;
  /** The text of the first message, which stays when those after it are hidden. */
  private task: string | undefined;
  private model: string | undefined;
  private seen: SeenMessages = { leftOut: undefined, texts: new Map() };
  /** The number of the message that is taken. */
  private index = -1;
  private isLeftOut = false;
  /** Entries of messages that are left out, and their calls. */
  private readonly leftOut: string[] = [];
  private readonly leftOutCalls = new Set<string>();
  /** Blocks of the message as the model sees them, if these differ. */
  private readonly seenBlocks = new Map<JsonObject, JsonObject>();
  private session: { own?: string; parent?: string; derived?: string; cwd?: string; started?: string } = {};

  constructor(tools: TranslationTools) {
    const emit = (entry: TranslatedEntry): void => {
      if (this.isLeftOut && GIVEN.has(entry.type)) this.leftOut.push(entry.id);
      tools.emit(entry);
    };
    this.time = parseTaskTime(tools.name) ?? NO_TIME;
    this.tools = { ...tools, emit };
    this.turns = new Turns(this.tools);
  }

  take(source: SourceRecord): RecordVerdict {
    const { value } = source;
    if (
      isObject(value) &&
      !("role" in value) &&
      ("conversationHistoryDeletedRange" in value || "contextHistory" in value)
    )
      return this.takeSeen(value);
    const [first, last] = this.seen.leftOut ?? [];
    this.index++;
    if (this.index === first) {
      this.turns.settle();
      this.isLeftOut = true;
    }
    const verdict = this.takeRecord(source, value);
    if (this.index === last) this.leaveOut();
    return verdict;
  }

  private takeRecord(source: SourceRecord, value: unknown): RecordVerdict {
    if (!isObject(value)) return this.keepRaw(source, "(no object)");
    const { role, ts } = value;
    if (role === undefined && value.content === undefined && value.type === undefined) return this.takeFacts(value);
    this.noteTime(toTimestamp(ts, ""));
    if (value.type === "reasoning" && toClineBlocks(value.content).length === 0) return this.takeThought(value);
    if (role === "assistant") return this.takeAnswer(value);
    if (role === "user") return this.takeGiven(value);
    return this.keepRaw(source, toText(role) ?? toText(value.type) ?? "(no role)");
  }

  keep(source: SourceRecord, members?: JsonObject): void {
    this.turns.keep(source, this.time, members);
  }

  pending(): PendingEntries {
    const { entries } = this.turns.pending();
    return { entries, isPartial: this.isThought && entries.length > 0 };
  }

  about(): AboutSession {
    const { own, parent, derived, cwd, started = parseTaskTime(this.tools.name) } = this.session;
    return { nativeId: own ?? parseTaskId(this.tools.name) ?? derived, nativeParentId: parent, cwd, started };
  }

  // --- the model's view ----------------------------------------------------------------------------------------

  private takeSeen({ conversationHistoryDeletedRange: range, contextHistory }: JsonObject): RecordVerdict {
    const texts = new Map<number, Map<number, string>>();
    for (const [index, changed] of pairsIn(contextHistory))
      for (const [block, changes] of pairsIn(Array.isArray(changed) ? changed[1] : undefined)) {
        const last = Array.isArray(changes) ? changes.at(-1) : undefined;
        const text = Array.isArray(last) && last[1] === "text" && Array.isArray(last[2]) ? last[2][0] : undefined;
        if (typeof text !== "string") continue;
        const known = texts.get(index) ?? new Map<number, string>();
        texts.set(index, known.set(block, text));
      }
    const leftOut = Array.isArray(range) ? ([Number(range[0]), Number(range[1])] as const) : undefined;
    this.seen = { leftOut, texts };
    return { kind: "(what the model sees)", fidelity: "derived" };
  }

  /** Returns the blocks of a message, and notes how the model sees them. */
  private blocksOf(message: JsonObject): readonly JsonObject[] {
    const blocks = toClineBlocks(message.content);
    this.seenBlocks.clear();
    const texts = this.isLeftOut ? undefined : this.seen.texts.get(this.index);
    for (const [n, text] of texts ?? []) if (blocks[n]) this.seenBlocks.set(blocks[n], withText(blocks[n], text));
    return blocks;
  }

  private leaveOut(): void {
    this.turns.settle();
    this.isLeftOut = false;
    for (const id of this.leftOut) this.edit(id, null);
  }

  private edit(targetId: string, replacement: null | { readonly content: unknown }): void {
    this.turns.note("context_edit", this.unique(`edit:${targetId}`), this.time, { targetId, replacement });
  }

  // --- messages ------------------------------------------------------------------------------------------------

  private takeAnswer(message: JsonObject): RecordVerdict {
    const { modelInfo, metrics } = message;
    const blocks = toSpokenBlocks(message);
    const { current } = this.turns;
    if (this.isThought && current && !this.turns.hasResults) {
      current.content.push(...blocks);
      current.usage = parseClineUsage(metrics);
    } else this.begin(message, blocks);
    this.isThought = false;
    for (const { type, id, name } of blocks) {
      if (type !== "toolCall") continue;
      this.toolNames.set(id as string, name as string);
      if (this.isLeftOut) this.leftOutCalls.add(id as string);
    }
    this.noteRest(message);
    const given = this.blocksOf(message);
    const answer = this.turns.current;
    if (this.seenBlocks.size > 0 && answer) {
      const seen = toSpokenBlocks({ ...message, content: given.map((block) => this.seenBlocks.get(block) ?? block) });
      this.edit(answer.id, { content: [...answer.content.slice(0, answer.content.length - blocks.length), ...seen] });
    }
    const isLess = isObject(modelInfo) && ("family" in modelInfo || "mode" in modelInfo);
    return {
      kind: "assistant",
      fidelity: isLess || haveMoreMembers(toClineBlocks(message.content)) ? "derived" : "preserved",
    };
  }

  /** Takes a thought that is a record of its own, before the message that it belongs to. */
  private takeThought(message: JsonObject): RecordVerdict {
    const thought = toThoughtBlock(message);
    const { current } = this.turns;
    if (this.isThought && current && !this.turns.hasResults) current.content.push(thought);
    else this.begin(message, [thought]);
    this.isThought = true;
    return { kind: "reasoning", fidelity: "preserved" };
  }

  private begin(message: JsonObject, blocks: readonly JsonObject[]): void {
    const answer = this.turns.begin({
      nativeId: this.nativeId(message),
      ...getMessageModel(message.modelInfo, this.model),
      usage: parseClineUsage(message.metrics),
      at: this.time,
    });
    answer.content.push(...blocks);
  }

  private takeGiven(message: JsonObject): RecordVerdict {
    const nativeId = this.nativeId(message);
    const blocks = this.blocksOf(message);
    for (const block of blocks)
      if (detectClineHarness(block) === "environment")
        this.noteEnvironment(toText(block.text) ?? "", message.ts === undefined);
    if (message.isSummary === true) return this.takeSummary(nativeId, message, blocks, "user/summary");
    if (message.isTruncationMarker === true) return this.takeTruncation(nativeId, message, blocks);
    const { metadata } = message;
    if (isObject(metadata) && metadata.kind === "compaction_summary")
      return this.takeSummary(nativeId, message, blocks, "user/compaction_summary");
    this.isThought = false;
    const results = blocks.filter(({ type }) => type === "tool_result");
    for (const [n, block] of results.entries()) this.takeResult(n === 0 ? nativeId : `${nativeId}/${n}`, block);
    const others = blocks.filter(({ type }) => type !== "tool_result");
    const id = results.length > 0 ? `${nativeId}/said` : nativeId;
    const isLess = this.takeSaid(id, message, others);
    if (blocks.length === 0) this.turns.user(nativeId, "", this.time);
    this.noteRest(message);
    const kind = results.length > 0 ? "user/tool_result" : "user";
    return { kind, fidelity: isLess || haveMoreMembers(blocks) ? "derived" : "preserved" };
  }

  private takeResult(nativeId: string, block: JsonObject): void {
    const toolCallId = toText(block.tool_use_id) ?? "";
    const id = this.turns.result(nativeId, {
      toolCallId,
      toolName: this.toolNames.get(toolCallId) ?? toText(block.name) ?? "",
      content: toResultBlocks(block.content),
      isError: block.is_error === true,
      at: this.time,
    });
    const seen = this.seenBlocks.get(block);
    // Its call is left out.
    if (!this.isLeftOut && this.leftOutCalls.has(toolCallId)) this.edit(id, null);
    else if (seen) this.edit(id, { content: toResultBlocks(seen.content) });
  }

  /** Adds the content of a message besides results. Returns whether entries change its form. */
  private takeSaid(nativeId: string, message: JsonObject, blocks: readonly JsonObject[]): boolean {
    const { metadata } = message;
    const isSystem = isObject(metadata) && SYSTEM.has(String(metadata.displayRole)) && metadata.kind !== "compaction";
    const kinds = blocks.map((block) => (isSystem ? "notice" : detectClineHarness(block)));
    // A tool's answer in text continues in the texts after its head.
    const isOutput = kinds.includes("tool-output");
    let isLess = false;
    let made = 0;
    let said: JsonObject[] = [];
    let seen: JsonObject[] = [];
    const add = (content: readonly JsonObject[], kind: string | undefined): void => {
      const id = this.addSaid(made === 0 ? nativeId : `${nativeId}/${made}`, content, kind);
      if (seen.some((block, n) => block !== content[n])) this.edit(id, { content: seen });
      made++;
      seen = [];
    };
    const flush = (): void => {
      if (said.length > 0) add(said, isOutput ? "tool-output" : undefined);
      said = [];
    };
    for (const [n, block] of blocks.entries()) {
      const kind = kinds[n];
      if (kind === "environment" || kind === "notice") {
        flush();
        const given = translateGivenBlock(block);
        seen.push(this.seenOf(block) ?? given);
        add([given], kind);
        continue;
      }
      const given = translateGivenBlock(block);
      const text = toText(given.text);
      const person = text === undefined || isOutput ? text : unwrapText(text);
      isLess ||= person !== text || block.type === "file";
      said.push(person === undefined ? given : { ...given, text: person });
      seen.push(this.seenOf(block) ?? said[said.length - 1]);
    }
    flush();
    return isLess;
  }

  private seenOf(block: JsonObject): JsonObject | undefined {
    const seen = this.seenBlocks.get(block);
    return seen && translateGivenBlock(seen);
  }

  private addSaid(nativeId: string, content: readonly JsonObject[], kind: string | undefined): string {
    if (kind === undefined) {
      this.task ??= textOfGiven(content);
      return this.turns.user(nativeId, content, this.time);
    }
    const customType = `${this.tools.agent}:${kind}`;
    return this.turns.add("custom_message", nativeId, this.time, {
      customType,
      content,
      display: kind !== "environment",
    });
  }

  // --- compactions ---------------------------------------------------------------------------------------------

  private takeSummary(
    nativeId: string,
    message: JsonObject,
    blocks: readonly JsonObject[],
    kind: string,
  ): RecordVerdict {
    const { metadata } = message;
    const facts = isObject(metadata) ? metadata : {};
    const summary = blocks.filter((block) => detectClineHarness(block) !== "environment").map(translateGivenBlock);
    const tokensBefore = typeof facts.tokensBefore === "number" ? facts.tokensBefore : 0;
    this.compact(nativeId, textOfGiven(summary), tokensBefore, isObject(metadata) ? metadata : undefined);
    return { kind, fidelity: "derived" };
  }

  /** Takes the mark behind messages that are hidden: of those before it, the first one alone is seen. */
  private takeTruncation(nativeId: string, message: JsonObject, blocks: readonly JsonObject[]): RecordVerdict {
    const marked = textOfGiven(blocks);
    const { truncationId } = message;
    const details = typeof truncationId === "string" ? { truncationId } : undefined;
    this.compact(nativeId, this.task === undefined ? marked : `${this.task}\n\n${marked}`, 0, details);
    return { kind: "user/truncation", fidelity: "derived" };
  }

  private compact(nativeId: string, summary: string, tokensBefore: number, details: JsonObject | undefined): void {
    this.isThought = false;
    const own = this.tools.ids.entry(nativeId);
    this.turns.add("compaction", nativeId, this.time, { summary, firstKeptEntryId: own, tokensBefore, details });
  }

  // --- about the session ---------------------------------------------------------------------------------------

  private takeFacts(facts: JsonObject): RecordVerdict {
    const { updated_at: _updated, system_prompt: prompt, messages: _messages, ...rest } = facts;
    const { sessionId, agent, origin } = rest;
    if (typeof sessionId === "string" && sessionId !== "") {
      this.session.own ??= sessionId;
      const parent = isObject(origin) ? toText(origin.parentThreadId) : undefined;
      const above = sessionId.indexOf("__");
      if (parent !== undefined) this.session.parent ??= parent;
      else if (agent !== "lead" && above > 0) this.session.parent ??= sessionId.slice(0, above);
    }
    const raw = toBytes(toJsonText(rest));
    this.turns.note("custom", this.unique("facts"), this.time, { customType: `import:${this.tools.agent}`, data: raw });
    if (typeof prompt === "string" && prompt !== "") {
      const data = { text: prompt };
      this.turns.note("custom", this.unique("prompt"), this.time, {
        customType: `${this.tools.agent}:system-prompt`,
        data,
      });
    }
    return { kind: "(session)", fidelity: "derived" };
  }

  /** Keeps members of a message that no entry has. */
  private noteRest(message: JsonObject): void {
    const names = Object.keys(message).filter((name) => !SAID.has(name) && !MARKS.has(name));
    if (names.length === 0) return;
    const data = Object.fromEntries(names.map((name) => [name, message[name]]));
    const raw = toBytes(toJsonText(data));
    const nativeId = this.unique(`rest:${this.tools.sha256(raw)}`);
    this.turns.note("custom", nativeId, this.time, { customType: `${this.tools.agent}:members`, data: raw });
  }

  private keepRaw(source: SourceRecord, kind: string): RecordVerdict {
    this.turns.keep(source, this.time);
    return { kind, fidelity: "preserved" };
  }

  /** `isOnlyTime`: true if the message has no other time, as in older files. */
  private noteEnvironment(text: string, isOnlyTime: boolean): void {
    const { cwd, model, at } = parseEnvironment(text);
    this.session.cwd ??= cwd;
    this.model = model ?? this.model;
    if (isOnlyTime) this.noteTime(toTimestamp(at, ""));
  }

  private noteTime(at: string): void {
    if (at === "") return;
    this.time = at;
    this.session.started ??= at;
  }

  /** Returns the id of a message: its own, or one that follows from its time, or from its content. */
  private nativeId(message: JsonObject): string {
    const { id, role, ts, content } = message;
    this.session.derived ??= beginningOf(message);
    const sum = (): string => this.tools.sha256(toBytes(toJsonText([role, content])));
    if (typeof id === "string" && id !== "") return this.unique(id);
    if (typeof ts === "number") return this.unique(`${String(role)}:${ts}`);
    return this.unique(`${String(role)}:${sum()}`);
  }

  private unique(nativeId: string): string {
    const nth = (this.copies.get(nativeId) ?? 0) + 1;
    this.copies.set(nativeId, nth);
    return nth === 1 ? nativeId : `${nativeId}#${nth}`;
  }
}

/** Returns the pairs of a number and a value that a list has. */
function pairsIn(list: unknown): [number, unknown][] {
  const pairs = Array.isArray(list) ? list.filter((pair) => Array.isArray(pair) && Number.isSafeInteger(pair[0])) : [];
  return pairs as [number, unknown][];
}

/** Returns a block with another text: its own, or the first of a result. */
function withText(block: JsonObject, text: string): JsonObject {
  const { type, content } = block;
  if (type !== "tool_result") return { ...block, text };
  if (!Array.isArray(content)) return { ...block, content: text };
  const first = content.findIndex((part) => isObject(part) && part.type === "text");
  return { ...block, content: content.map((part, n) => (n === first ? { ...part, text } : part)) };
}

/** Characters of a first text, and of the text around it, that identify a task without an id. Lists read no more. */
const FIRST_TEXT = 200;
const FIRST_DETAILS = 1000;

/** Returns an identity for a task whose file has no id: its time and its beginning. */
function beginningOf({ ts, content }: JsonObject): string {
  if (typeof ts === "number") return `first:${ts}`;
  const blocks = toClineBlocks(content);
  const texts = blocks.map(({ text }) => (toText(text) ?? "").slice(0, FIRST_DETAILS));
  const at = texts.map((text) => parseEnvironment(text).at).find((one) => one !== undefined);
  return `first:${at ?? ""}:${(texts[0] ?? "").slice(0, FIRST_TEXT)}`;
}

function textOfGiven(blocks: readonly JsonObject[]): string {
  return blocks.map(({ text }) => toText(text) ?? "").join("\n\n");
}
