/**
 * Translates the list that Cline or a relative of it shows of a task. It has the conversation without the calls as the
 * model made them. The messages themselves say more, if they exist.
 */

import {
  isObject,
  type JsonObject,
  makeImageBlock,
  makeTextBlock,
  makeThinkingBlock,
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
import { getMessageModel } from "./blocks.ts";
import { parseTaskId, parseTaskTime } from "./harness.ts";

/** Kinds of records with a person's messages. */
const GIVEN = new Set(["say/task", "say/user_feedback"]);
/** Kinds of records with the model's messages. */
const SPOKEN = new Set([
  "say/text",
  "say/reasoning",
  "say/completion_result",
  "ask/followup",
  "ask/plan_mode_respond",
  "ask/act_mode_respond",
]);

export class ScreenTranslation implements Translation {
  private readonly tools: TranslationTools;
  private readonly turns: Turns;
  private time: string;
  private readonly copies = new Map<string, number>();
  private isBegun = false;
  private isPartial = false;
  /** Tokens of requests without a shown answer so far. */
  private usage: SourceUsage = NO_USAGE;
  /** True if the model's next text begins another answer. */
  private isNext = true;
  private session: { first?: string; started?: string } = {};

  constructor(tools: TranslationTools) {
    this.tools = tools;
    this.time = parseTaskTime(tools.name) ?? NO_TIME;
    this.turns = new Turns(tools);
  }

  take({ value }: SourceRecord): RecordVerdict {
    const kind = isObject(value) ? kindOf(value) : undefined;
    if (!isObject(value) || kind === undefined) return makeRawVerdict("(no message)");
    this.noteTime(value.ts);
    this.isPartial = value.partial === true;
    const verdict = this.takeKnown(value, kind);
    this.isBegun = true;
    return verdict ?? makeRawVerdict(kind);
  }

  keep(source: SourceRecord, members?: JsonObject): void {
    this.turns.keep(source, this.time, members);
  }

  pending(): PendingEntries {
    const { entries } = this.turns.pending();
    return { entries, isPartial: this.isPartial && entries.length > 0 };
  }

  about(): AboutSession {
    const { first, started = parseTaskTime(this.tools.name) } = this.session;
    return { nativeId: parseTaskId(this.tools.name) ?? first, started };
  }

  /** Takes a record that an entry of a conversation is made of; returns nothing for any other. */
  private takeKnown(record: JsonObject, kind: string): RecordVerdict | undefined {
    if (GIVEN.has(kind) || (kind === "say/text" && !this.isBegun)) return this.takeGiven(record, kind);
    if (kind === "say/api_req_started") return this.takeRequest(record, kind);
    if (kind === "say/condense_context" && isObject(record.contextCondense))
      return this.takeSummary(record, kind, record.contextCondense);
    if (!SPOKEN.has(kind) || toText(record.text) === undefined || record.text === "") return undefined;
    return this.takeSpoken(record, kind);
  }

  private takeGiven(record: JsonObject, kind: string): RecordVerdict {
    const images = Array.isArray(record.images) ? record.images.map(pictureOf).filter((one) => one !== undefined) : [];
    const content = [makeTextBlock(toText(record.text) ?? ""), ...images];
    this.turns.user(this.nativeId(kind, record), content, this.time);
    this.isNext = true;
    return { kind, fidelity: hasMore(record) ? "derived" : "preserved" };
  }

  private takeSpoken(record: JsonObject, kind: string): RecordVerdict {
    const text = toText(record.text) ?? "";
    const { current } = this.turns;
    const answer =
      current && !this.isNext
        ? current
        : this.turns.begin({
            nativeId: this.nativeId(kind, record),
            ...getMessageModel(record.modelInfo, undefined),
            usage: this.usage,
            at: this.time,
          });
    if (this.isNext) this.usage = NO_USAGE;
    this.isNext = false;
    const thought = toText(record.reasoning);
    if (thought !== undefined && thought !== "") answer.content.push(makeThinkingBlock(thought));
    const asked = kind.startsWith("ask/") ? questionIn(text) : undefined;
    answer.content.push(kind === "say/reasoning" ? makeThinkingBlock(text) : makeTextBlock(asked ?? text));
    return { kind, fidelity: asked !== undefined || hasMore(record) ? "derived" : "preserved" };
  }

  private takeRequest(record: JsonObject, kind: string): RecordVerdict {
    const facts = objectIn(record.text) ?? {};
    const { usage } = this;
    this.usage = {
      input: usage.input + toCount(facts.tokensIn),
      output: usage.output + toCount(facts.tokensOut),
      cacheRead: (usage.cacheRead ?? 0) + toCount(facts.cacheReads),
      cacheWrite: (usage.cacheWrite ?? 0) + toCount(facts.cacheWrites),
      cost: (usage.cost ?? 0) + toCount(facts.cost),
    };
    this.isNext = true;
    return { kind, fidelity: "derived" };
  }

  private takeSummary(record: JsonObject, kind: string, condensed: JsonObject): RecordVerdict {
    const nativeId = this.nativeId(kind, record);
    this.turns.add("compaction", nativeId, this.time, {
      summary: toText(condensed.summary) ?? "",
      firstKeptEntryId: this.tools.ids.entry(nativeId),
      tokensBefore: toCount(condensed.prevContextTokens),
    });
    this.isNext = true;
    return { kind, fidelity: "derived" };
  }

  private noteTime(ts: unknown): void {
    const at = typeof ts === "number" ? toTimestamp(ts, "") : "";
    if (at === "") return;
    this.time = at;
    this.session.started ??= at;
    this.session.first ??= `task:${String(ts)}`;
  }

  private nativeId(kind: string, { ts }: JsonObject): string {
    const nativeId = `${kind}:${typeof ts === "number" ? ts : ""}`;
    const nth = (this.copies.get(nativeId) ?? 0) + 1;
    this.copies.set(nativeId, nth);
    return nth === 1 ? nativeId : `${nativeId}#${nth}`;
  }
}

function kindOf({ type, say, ask }: JsonObject): string | undefined {
  if (type === "say" && typeof say === "string") return `say/${say}`;
  return type === "ask" && typeof ask === "string" ? `ask/${ask}` : undefined;
}

/** Members whose content is in the entries of a record. */
const SHOWN = new Set(["ts", "type", "say", "ask", "text", "images", "reasoning", "partial", "modelInfo"]);

function hasMore(record: JsonObject): boolean {
  return Object.keys(record).some((name) => !SHOWN.has(name));
}

function pictureOf(image: unknown): JsonObject | undefined {
  const found = typeof image === "string" ? /^data:(image\/[\w.+-]+);base64,/.exec(image.slice(0, 100)) : null;
  return found ? makeImageBlock((image as string).slice(found[0].length), found[1]) : undefined;
}

/** Returns the question of a text that has it in an object. */
function questionIn(text: string): string | undefined {
  const { question, response } = objectIn(text) ?? {};
  return toText(question) ?? toText(response);
}

function objectIn(text: unknown): JsonObject | undefined {
  if (typeof text !== "string" || !text.startsWith("{")) return undefined;
  const value = tryParseText(text);
  return isObject(value) ? value : undefined;
}
