/**
 * The conversation of an agent whose records come one after the other: an answer of the model, the results of its
 * calls, the next turn. An answer may be written in several records, and stays pending with its results until another
 * message comes. A return to an earlier turn begins a branch there.
 */

import {
  type JsonObject,
  type ModelAnswer,
  makeAssistantMessage,
  makeToolResultMessage,
  makeUserMessage,
  type ToolAnswer,
} from "../../../core/foreign/messages.ts";
import { compactJson } from "./documents.ts";
import type { PendingEntries, SourceRecord, TranslatedEntry, TranslationTools } from "./translator.ts";

/** An entry without its place in the tree. */
interface TurnItem {
  readonly type: string;
  readonly id: string;
  readonly timestamp: string;
  readonly members: JsonObject;
}

/** An answer that is being gathered; its facts may change until it is settled. */
export interface OpenAnswer extends Omit<ModelAnswer, "content" | "stopReason" | "usage" | "errorMessage"> {
  readonly id: string;
  readonly content: JsonObject[];
  usage: ModelAnswer["usage"];
  /** Missing: it depends on the calls. As long as it is missing, further blocks are expected until results come. */
  stopReason?: ModelAnswer["stopReason"];
  errorMessage?: string;
}

export class Turns {
  private readonly tools: TranslationTools;
  private answer: OpenAnswer | null = null;
  /** The calls among the first blocks of the answer, and how many blocks that are: each is looked at once. */
  private readonly calls = new Set<unknown>();
  private looked = 0;
  private readonly results: TurnItem[] = [];
  /** Entries that were written in between and come after the results. */
  private readonly after: TurnItem[] = [];
  private end: string | null = null;
  private readonly copies = new Map<string, number>();

  constructor(tools: TranslationTools) {
    this.tools = tools;
  }

  /** The answer that is being gathered, if one is. */
  get current(): OpenAnswer | null {
    return this.answer;
  }

  /** True if results of the current answer came already, so that further blocks belong to the next one. */
  get hasResults(): boolean {
    return this.results.length > 0;
  }

  /** The entry that the next one continues. */
  get tip(): string | null {
    this.settle();
    return this.end;
  }

  /** Begins an answer. Its blocks are added to its content one by one. */
  begin(answer: Omit<OpenAnswer, "id" | "content"> & { readonly nativeId: string }): OpenAnswer {
    this.settle();
    // Taking an object apart and together again takes as long as the id.
    this.answer = Object.assign(answer, { id: this.tools.ids.entry(answer.nativeId), content: [] });
    return this.answer;
  }

  /** Adds a tool's answer, to the current answer if that has asked for it. */
  result(nativeId: string, answer: ToolAnswer): string {
    const { toolCallId, at } = answer;
    const item = this.item("message", nativeId, at, makeToolResultMessage(answer));
    if (this.asks(toolCallId)) this.results.push(item);
    else this.put(item);
    return item.id;
  }

  private asks(id: string): boolean {
    const content = this.answer?.content ?? [];
    for (; this.looked < content.length; this.looked++) {
      const block = content[this.looked];
      if (block.type === "toolCall") this.calls.add(block.id);
    }
    return this.calls.has(id);
  }

  /** Adds a person's turn. */
  user(nativeId: string, content: unknown, at: string): string {
    return this.put(this.item("message", nativeId, at, makeUserMessage(content, at)));
  }

  /** Adds an entry that ends the current answer. */
  add(type: string, nativeId: string, at: string, members: JsonObject): string {
    return this.put(this.item(type, nativeId, at, members));
  }

  /** Adds an entry outside the conversation, which the model does not see: it does not end the current answer. */
  note(type: string, nativeId: string, at: string, members: JsonObject): void {
    const item = this.item(type, nativeId, at, members);
    if (this.answer) this.after.push(item);
    else this.put(item);
  }

  /**
   * Keeps a record as it is, or with other members. White space between its parts does not count: an export formats the
   * same record in another way than a database.
   */
  keep(record: SourceRecord, at: string, given?: JsonObject): void {
    const bytes = isLaidOut(record.bytes) ? compactJson(record.bytes) : new Uint8Array(record.bytes);
    const members = given ?? { customType: `import:${this.tools.agent}`, data: bytes };
    const sum = this.tools.sha256(bytes);
    const nth = (this.copies.get(sum) ?? 0) + 1;
    this.copies.set(sum, nth);
    this.note("custom", `raw:${sum}:${nth}`, at, members);
  }

  /** Goes back: the next item continues an entry, or is a root. The entries after it stay as a branch. */
  goTo(id: string | null): void {
    this.settle();
    this.end = id;
  }

  /** Emits the pending entries. */
  settle(): void {
    const { entries } = this.pending();
    this.answer = null;
    this.calls.clear();
    this.looked = 0;
    this.results.length = 0;
    this.after.length = 0;
    for (const entry of entries) this.emit(entry);
  }

  pending(): PendingEntries {
    const { answer } = this;
    if (!answer) return { entries: [], isPartial: false };
    const { id, at, content, usage, api, provider, model, errorMessage } = answer;
    const stopReason = answer.stopReason ?? (content.some(({ type }) => type === "toolCall") ? "toolUse" : "stop");
    const about = { api, provider, model, usage, stopReason, errorMessage, at };
    const members = makeAssistantMessage({ content: [...content], ...about });
    const message: TurnItem = { type: "message", id, timestamp: at, members };
    const entries = chainEntries([message, ...this.results, ...this.after], this.end);
    return { entries, isPartial: answer.stopReason === undefined && this.results.length === 0 };
  }

  private item(type: string, nativeId: string, timestamp: string, members: JsonObject): TurnItem {
    return { type, id: this.tools.ids.entry(nativeId), timestamp, members };
  }

  private put(item: TurnItem): string {
    this.settle();
    const { type, id, timestamp, members } = item;
    this.emit({ type, id, timestamp, members, parentId: this.end });
    return id;
  }

  private emit(entry: TranslatedEntry): void {
    this.tools.emit(entry);
    this.end = entry.id;
  }
}

/** Returns items as entries, each continuing the one before. */
export function chainEntries(items: readonly TurnItem[], parentId: string | null): TranslatedEntry[] {
  let before = parentId;
  return items.map(({ type, id, timestamp, members }) => {
    const entry = { type, id, parentId: before, timestamp, members };
    before = id;
    return entry;
  });
}

/** Returns whether a record has white space between its parts, as its first parts show: nearly all lines have none. */
function isLaidOut(bytes: Uint8Array): boolean {
  const colon = bytes.indexOf(0x3a);
  return bytes[0] <= 0x20 || bytes[1] <= 0x20 || (colon >= 0 && bytes[colon + 1] <= 0x20);
}
