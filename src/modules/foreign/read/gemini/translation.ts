/**
 * Translates one file of Gemini CLI. A record with the id of an earlier one replaces it, `$rewindTo` takes back the
 * message that it names and all after it, and `$set` with messages replaces the conversation from then on. The earlier
 * conversation is never lost: it stays as a branch.
 */

import {
  isObject,
  type JsonObject,
  makeAssistantMessage,
  makeToolResultMessage,
  makeUserMessage,
  NO_TIME,
  NO_USAGE,
  toCount,
  toText,
  toTimestamp,
} from "../../../../core/foreign/messages.ts";
import { toBytes, toJsonText } from "../../../../core/json/json.ts";
import { getFolderName } from "../file-name.ts";
import type {
  AboutSession,
  PendingEntries,
  RecordVerdict,
  SourceRecord,
  TranslatedEntry,
  Translation,
  TranslationTools,
} from "../translator.ts";
import { chainEntries } from "../turns.ts";
import {
  filterSpoken,
  isAcknowledgement,
  isSnapshot,
  joinGeminiText,
  markAnswer,
  markMessages,
  markUserMessage,
  noteResponse,
} from "./marks.ts";
import {
  type AnsweredCall,
  filterResponses,
  type GeminiResult,
  getGeminiCalls,
  isResponse,
  pairCallResults,
  parseGeminiResult,
  parseGeminiUsage,
  toGeminiBlocks,
  toGeminiParts,
  translateUserPart,
} from "./parts.ts";

type GeminiItem = Omit<TranslatedEntry, "parentId">;

/** The model's last message, which may still be written again. */
interface OpenTurn {
  readonly turn: GeminiTurn;
  readonly nativeId: string;
  record: JsonObject;
  at: string;
  /** The results of its calls, from later messages. */
  readonly results: Map<string, GeminiResult>;
  /** Entries that were written in between and come after the results. */
  readonly after: GeminiItem[];
}

/** Kinds of messages that a person sees and the model does not. */
const NOTICES = new Set(["info", "warning", "error"]);
/** Texts that no person wrote. */
const HARNESS: readonly (readonly [beginning: string, kind: string])[] = [
  ["<session_context>", "session-context"],
  ["<hook_context>", "hook-context"],
  ["<state_snapshot>", "snapshot"],
];
/** Number of turns between a message and the last one up to which another version of it becomes a branch. */
const MOST_LATER = 200;

export class GeminiTranslation implements Translation {
  private readonly tools: TranslationTools;
  private readonly path = new GeminiPath();
  /** Places of notices: a number of turns before them. */
  private readonly notices = new Map<string, number>();
  private open: OpenTurn | null = null;
  private end: string | null = null;
  private lastId: string | null = null;
  private time = NO_TIME;
  private readonly copies = new Map<string, number>();
  /** Records about the session that were kept, the last of each kind. */
  private readonly latest = new Map<string, string>();
  private title: string | undefined;
  /** Messages with counted tokens: a message that is repeated as a branch has them again. */
  private readonly counted = new Set<string>();
  private tokens = 0;
  private readonly session: { nativeId?: string; nativeParentId?: string; cwd?: string; started?: string } = {};

  constructor(tools: TranslationTools) {
    this.tools = tools;
  }

  take(source: SourceRecord): RecordVerdict {
    const { value } = source;
    if (!isObject(value)) return this.keepRaw(source, "(no object)");
    const { $rewindTo, $set, id, sessionId, projectHash } = value;
    if (typeof $rewindTo === "string") return this.rewind($rewindTo);
    if (typeof id === "string") return this.takeMessage(source, value, id);
    if (isObject($set)) return this.takeSet(source, $set);
    if (typeof sessionId === "string" || typeof projectHash === "string") return this.takeFacts(value);
    return this.keepRaw(source, toText(value.type) ?? "(no type)");
  }

  keep({ bytes }: SourceRecord, members: JsonObject): void {
    this.note(this.item("custom", `raw:${this.tools.sha256(bytes)}`, this.time, members));
  }

  pending(): PendingEntries {
    const { open } = this;
    if (!open) return { entries: [], isPartial: false };
    const entries = chainEntries(this.itemsOf(open, pairCallResults(open.record, open.results)), this.end);
    const isSaid = getGeminiCalls(open.record).length > 0 || joinGeminiText(toGeminiParts(open.record.content)) !== "";
    return { entries, isPartial: !isSaid && open.after.length === 0 };
  }

  about(): AboutSession {
    return { ...this.session, leafId: this.open || this.end === this.lastId ? undefined : this.end };
  }

  // --- entries -------------------------------------------------------------------------------------------------

  /** Returns an entry without its place. An entry with the id of an earlier one gets an id of its own. */
  private item(type: string, nativeId: string, timestamp: string, members: JsonObject): GeminiItem {
    return { type, id: this.tools.ids.entry(this.unique(nativeId)), timestamp, members };
  }

  private unique(nativeId: string): string {
    const nth = (this.copies.get(nativeId) ?? 0) + 1;
    this.copies.set(nativeId, nth);
    return nth === 1 ? nativeId : `${nativeId}#${nth}`;
  }

  private put(item: GeminiItem): string {
    this.settle();
    this.emit(item);
    return item.id;
  }

  /** Adds an entry outside the conversation, after the results of the open message. */
  private note(item: GeminiItem): void {
    if (this.open) this.open.after.push(item);
    else this.emit(item);
  }

  private emit(item: GeminiItem): void {
    const { type, id, timestamp, members } = item;
    this.tools.emit({ type, id, timestamp, members, parentId: this.end });
    this.end = id;
    this.lastId = id;
  }

  private goTo(id: string | null): void {
    this.settle();
    this.end = id;
  }

  private settle(): void {
    const { open } = this;
    if (!open) return;
    const answered = pairCallResults(open.record, open.results);
    const items = this.itemsOf(open, answered);
    this.open = null;
    for (const item of items) this.emit(item);
    open.turn.mark = markAnswer(open.record, answered, this.tools.sha256);
    const { tokens } = open.record;
    if (!isObject(tokens)) return;
    this.tokens = toCount(tokens.total);
    this.counted.add(open.turn.id);
  }

  /** Returns the entries of an open message: its own, the results of its calls, and what comes after. */
  private itemsOf(open: OpenTurn, answered: readonly AnsweredCall[]): GeminiItem[] {
    const { turn, record, at, after } = open;
    const calls = answered.map(({ call }) => call);
    const version = versionOf(open, calls);
    const content = toGeminiBlocks(record, calls);
    const answer = makeAssistantMessage({
      content,
      api: "google-generative-ai",
      provider: "google",
      model: toText(record.model) ?? "unknown",
      usage: this.counted.has(turn.id) ? NO_USAGE : parseGeminiUsage(record),
      stopReason: calls.length > 0 ? "toolUse" : "stop",
      at,
    });
    const made = new Map<string, number>();
    const items: GeminiItem[] = [{ type: "message", id: turn.first as string, timestamp: at, members: answer }];
    for (const { call, result } of answered) {
      if (!result) continue;
      const { content: given, isError, details } = result;
      const { id: toolCallId, name: toolName } = call;
      const timestamp = toTimestamp(call.record?.timestamp, at);
      const members = makeToolResultMessage({ content: given, isError, details, toolCallId, toolName, at: timestamp });
      const nth = (made.get(toolCallId) ?? 0) + 1;
      made.set(toolCallId, nth);
      const id = this.tools.ids.entry(`${version}/result/${toolCallId}${nth === 1 ? "" : `#${nth}`}`);
      items.push({ type: "message", id, timestamp, members });
    }
    return [...items, ...after];
  }

  private keepRaw({ bytes }: SourceRecord, kind: string): RecordVerdict {
    this.keepOnce(kind, bytes);
    return { kind, fidelity: "preserved" };
  }

  /** Keeps a record about the session, if it is not the last one of its kind once more. */
  private keepOnce(kind: string, bytes: Uint8Array): void {
    const sum = this.tools.sha256(bytes);
    if (this.latest.get(kind) === sum) return;
    this.latest.set(kind, sum);
    const members = { customType: `import:${this.tools.agent}`, data: new Uint8Array(bytes) };
    this.note(this.item("custom", `raw:${sum}`, this.time, members));
  }

  // --- the conversation ----------------------------------------------------------------------------------------

  private takeMessage(source: SourceRecord, record: JsonObject, id: string): RecordVerdict {
    const type = toText(record.type) ?? "(no type)";
    this.time = toTimestamp(record.timestamp, this.time);
    this.noteStart(record.timestamp);
    if (NOTICES.has(type)) {
      this.takeNotice(record, id, type);
      return { kind: type, fidelity: "preserved" };
    }
    if (type !== "user" && type !== "gemini") return this.keepRaw(source, type);
    const kind =
      type === "user" && filterResponses(toGeminiParts(record.content)).length > 0 ? "user/functionResponse" : type;
    const { open } = this;
    if (open?.turn.id === id && type === "gemini") {
      open.record = record;
      open.at = this.time;
      open.turn.first = this.tools.ids.entry(versionOf(open));
      return { kind: `${type} (replacing)`, fidelity: "preserved" };
    }
    const index = this.path.indexOf(id);
    if (index < 0) {
      this.say(record, id, this.time);
      return { kind, fidelity: "preserved" };
    }
    return this.replace(source, record, index);
  }

  /** Takes another version of a settled message: it becomes a branch at the earlier one's place. */
  private replace(source: SourceRecord, record: JsonObject, index: number): RecordVerdict {
    const kind = `${record.type} (replacing)`;
    const { turns } = this.path;
    this.settle();
    const { id, mark, before, first: old } = turns[index];
    if (markMessages([record], this.tools.sha256)[0] === mark) return { kind, fidelity: "preserved" };
    if (turns.length - index > MOST_LATER) {
      const warning = "A message long before the last one was replaced. Its new version is kept as it is.";
      return { ...this.keepRaw(source, kind), warning };
    }
    const later = turns.slice(index + 1);
    const tip = this.end;
    turns.length = index;
    this.goTo(before);
    this.say(record, id, this.time);
    if (later.length === 0) return { kind, fidelity: "preserved" };
    this.goTo(tip);
    turns.length = index;
    for (const turn of [{ id, mark, before, first: old }, ...later]) this.path.push(turn);
    const warning =
      "A message before the last one was replaced. Its new version is a branch, and the old one is continued.";
    return { kind, fidelity: "derived", warning };
  }

  private say(record: JsonObject, id: string, at: string): void {
    if (record.type === "gemini") this.sayAnswer(record, id, at);
    else if (filterResponses(toGeminiParts(record.content)).length > 0) this.sayResponses(record, id, at);
    else this.sayGiven(record, id, at);
  }

  private sayAnswer(record: JsonObject, id: string, at: string): void {
    this.settle();
    const nativeId = this.unique(id);
    const first = this.tools.ids.entry(versionOf({ nativeId, record }));
    const turn: GeminiTurn = { id, mark: "", before: this.end, first };
    this.path.push(turn);
    this.open = { turn, nativeId, record, at, results: new Map(), after: [] };
  }

  private sayGiven(record: JsonObject, id: string, at: string): void {
    this.settle();
    const { content, displayContent } = record;
    const before = this.end;
    const parts = toGeminiParts(content);
    const given = typeof content === "string" ? content : parts.map(translateUserPart);
    const begun = joinGeminiText(parts.slice(0, 1));
    const kind = HARNESS.find(([beginning]) => begun.startsWith(beginning))?.[1];
    if (kind === "session-context") this.session.cwd ??= folderIn(begun);
    const members =
      kind === undefined
        ? makeUserMessage(given, at)
        : { customType: `gemini:${kind}`, content: given, display: false };
    const first = this.put(this.item(kind === undefined ? "message" : "custom_message", id, at, members));
    this.path.push({ id, mark: markUserMessage(record, this.tools.sha256), before, first });
    if (displayContent === undefined || displayContent === null) return;
    const shown = { customType: "gemini:display", data: { displayContent } };
    this.put(this.item("custom", `${id}/display`, at, shown));
  }

  /** Takes the program's results of calls. They are written with the calls, too. */
  private sayResponses(record: JsonObject, id: string, at: string): void {
    const { open } = this;
    const parts = toGeminiParts(record.content);
    const calls = open ? getGeminiCalls(open.record) : [];
    const before = open ? open.turn.first : this.end;
    const made = new Set<unknown>(calls.map((call) => call.id));
    const orphans: JsonObject[] = [];
    for (const response of filterResponses(parts))
      if (open && made.has(response.id)) noteResponse(open.results, response);
      else orphans.push(response);
    const others = parts.filter((part) => !isResponse(part));
    const recorded = others.length === 0 ? [] : calls.flatMap((call) => toGeminiParts(call.record?.result));
    const known = new Set(recorded.map(toJsonText));
    const rest = others.filter((part) => !known.has(toJsonText(part)));
    let first: string | null = null;
    for (const [n, response] of orphans.entries()) {
      const toolCallId = toText(response.id) ?? "";
      const answer = { ...parseGeminiResult(response), toolCallId, toolName: toText(response.name) ?? "", at };
      const entry = this.put(this.item("message", `${id}/${n}`, at, makeToolResultMessage(answer)));
      first ??= entry;
    }
    if (rest.length > 0) {
      const members = { customType: "gemini:tool-content", content: rest.map(translateUserPart), display: true };
      first ??= this.put(this.item("custom_message", `${id}/rest`, at, members));
    }
    this.path.push({ id, mark: markUserMessage(record, this.tools.sha256), before, first });
  }

  private takeNotice(record: JsonObject, id: string, type: string): void {
    const { content, displayContent } = record;
    this.notices.set(id, this.path.turns.length);
    const parts = toGeminiParts(content);
    if (parts.every(({ text }) => typeof text === "string")) {
      const data = { content, displayContent };
      this.note(this.item("custom", id, this.time, { customType: `gemini:${type}`, data }));
      return;
    }
    // A tool's result that is no text goes to the model this way.
    const members = { customType: "gemini:tool-content", content: parts.map(translateUserPart), display: true };
    this.put(this.item("custom_message", id, this.time, members));
  }

  // --- going back ----------------------------------------------------------------------------------------------

  private rewind(id: string): RecordVerdict {
    const kind = "$rewindTo";
    this.settle();
    const index = this.path.indexOf(id);
    const place = index >= 0 ? index : this.notices.get(id);
    if (place !== undefined) {
      this.cutTo(place);
      return { kind, fidelity: "preserved" };
    }
    // Gemini CLI itself forgets all then.
    this.cutTo(0);
    const warning =
      "The user went back to a message that is not in the file. The next messages are a branch from the beginning.";
    return { kind, fidelity: "derived", warning };
  }

  /** Takes back all turns from one on: the next one continues the turn before it. */
  private cutTo(index: number): void {
    const { turns } = this.path;
    if (index >= turns.length) return;
    this.goTo(turns[index].before);
    turns.length = index;
  }

  /** Replaces the conversation by that of a list. */
  private setMessages(list: readonly JsonObject[]): void {
    this.settle();
    const marks = markMessages(list, this.tools.sha256);
    const same = this.path.beginsWith(marks);
    // The ids that they have now are the ones that later records name.
    for (let n = 0; n < same; n++) this.path.rename(n, list[n].id as string);
    const rest = list.slice(same);
    if (rest.length > 0 && isSnapshot(rest[0]) && same < this.path.turns.length)
      this.compact(rest, marks.slice(same), same);
    else {
      this.cutTo(same);
      for (const message of rest) this.sayListed(message);
    }
  }

  private sayListed(message: JsonObject): void {
    this.time = toTimestamp(message.timestamp, this.time);
    this.say(message, message.id as string, this.time);
  }

  /** Takes a summary with the kept part of the conversation after it. */
  private compact(list: readonly JsonObject[], marks: readonly string[], same: number): void {
    const [summary] = list;
    const from = isAcknowledgement(list[1]) ? 2 : 1;
    const kept = marks.slice(from);
    const at = toTimestamp(summary.timestamp, this.time);
    const start = this.path.placeOf(kept, same);
    const turns = start < 0 ? [] : this.path.turns.slice(start, start + kept.length);
    if (start >= 0) this.cutTo(start + kept.length);
    const nativeId = this.unique(summary.id as string);
    const id = this.tools.ids.entry(nativeId);
    const firstKeptEntryId = turns.find(({ first }) => first !== null)?.first ?? id;
    const text = joinGeminiText(toGeminiParts(summary.content));
    const members = { summary: text, firstKeptEntryId, tokensBefore: this.tokens };
    const before = this.end;
    this.put({ type: "compaction", id, timestamp: at, members });
    this.path.turns.length = same;
    for (const [n, message] of list.slice(0, from).entries())
      this.path.push({ id: message.id as string, mark: marks[n], before, first: id });
    if (start >= 0)
      for (const [n, turn] of turns.entries()) this.path.push({ ...turn, id: list[from + n].id as string });
    else for (const message of list.slice(from)) this.sayListed(message);
  }

  // --- about the session ---------------------------------------------------------------------------------------

  private takeFacts(record: JsonObject): RecordVerdict {
    const { sessionId, startTime, directories, kind, lastUpdated: _updated, summary, messages, ...more } = record;
    if (typeof sessionId === "string" && sessionId !== "") this.session.nativeId ??= sessionId;
    this.noteStart(startTime);
    if (kind === "subagent") this.noteSubagent(directories);
    // Whatever changes from one writing of a document to the next is left out.
    const facts = { sessionId, startTime, kind, directories, ...more };
    this.keepOnce("(session)", toBytes(toJsonText(facts)));
    this.name(summary);
    if (Array.isArray(messages)) this.setMessages(filterSpoken(messages));
    return { kind: "(session)", fidelity: "derived" };
  }

  /** Notes the facts of a subagent: its directory, and the session that began it, which gives its folder the name. */
  private noteSubagent(directories: unknown): void {
    const folder = getFolderName(this.tools.name);
    if (folder !== undefined && folder !== "chats") this.session.nativeParentId ??= folder;
    if (Array.isArray(directories)) this.session.cwd ??= toText(directories[0]);
  }

  private takeSet(source: SourceRecord, facts: JsonObject): RecordVerdict {
    const names = Object.keys(facts).filter((name) => name !== "lastUpdated");
    const kind = `$set ${names.length === 0 ? "lastUpdated" : names.join(", ")}`;
    if (names.length === 0) return { kind, fidelity: "dropped" };
    const { messages, summary, sessionId } = facts;
    if (typeof sessionId === "string" && sessionId !== "") this.session.nativeId ??= sessionId;
    const isList = Array.isArray(messages);
    if (isList) this.setMessages(filterSpoken(messages));
    this.name(summary);
    const others = names.filter((name) => !(name === "messages" && isList));
    const isSaid = others.every(
      (name) =>
        (name === "summary" && summary === this.title) || (name === "sessionId" && sessionId === this.session.nativeId),
    );
    if (!isSaid && !isList) this.keepOnce(kind, source.bytes);
    // A list has the messages with more than their first records have: signatures, and content as it was sent.
    return { kind, fidelity: isList ? "derived" : "preserved" };
  }

  private name(summary: unknown): void {
    if (typeof summary !== "string" || summary === "" || summary === this.title) return;
    this.title = summary;
    const name = summary.replace(/[\r\n]+/g, " ").trim();
    this.note(this.item("session_info", `summary:${summary}`, this.time, { name }));
  }

  private noteStart(value: unknown): void {
    if (this.session.started !== undefined) return;
    const at = toTimestamp(value, "");
    if (at === "") return;
    this.session.started = at;
    if (this.time === NO_TIME) this.time = at;
  }
}

/**
 * Returns an id of a message that is not complete. Gemini CLI writes it again when its calls are done. A session that
 * was imported earlier has another entry than the one with calls, and both can stay in one session.
 */
function versionOf(
  { nativeId, record }: Pick<OpenTurn, "nativeId" | "record">,
  calls = getGeminiCalls(record),
): string {
  return calls.length === 0 ? nativeId : `${nativeId}/calls/${calls.length}`;
}

/** Returns the first folder that a text about the session names. */
function folderIn(text: string): string | undefined {
  return /\*\*Workspace Directories:\*\*\n {2}- ([^\n]+)/.exec(text)?.[1];
}

// --- the conversation as it is now ----------------------------------------------------------------------------------

/** A message of the conversation. */
interface GeminiTurn {
  id: string;
  /** Its mark; empty while it is open. */
  mark: string;
  /** The entry that it continues. */
  readonly before: string | null;
  /** The first entry that was made of it. */
  first: string | null;
}

/** Turns after the kept ones among which a compaction looks for these. */
const REACH = 200;

class GeminiPath {
  readonly turns: GeminiTurn[] = [];
  private readonly places = new Map<string, number>();

  push(turn: GeminiTurn): void {
    this.places.set(turn.id, this.turns.length);
    this.turns.push(turn);
  }

  /** Returns the place of the message with an id; -1 if it is not in the conversation now. */
  indexOf(id: string): number {
    const index = this.places.get(id) ?? -1;
    return this.turns[index]?.id === id ? index : -1;
  }

  /** Gives a turn another id, which later records use. */
  rename(index: number, id: string): void {
    this.turns[index].id = id;
    this.places.set(id, index);
  }

  /** Returns how many turns at the beginning have these marks. */
  beginsWith(marks: readonly string[]): number {
    const most = Math.min(marks.length, this.turns.length);
    let same = 0;
    while (same < most && this.turns[same].mark === marks[same]) same++;
    return same;
  }

  /** Returns the index of consecutive turns with these marks; -1 if there are none. */
  placeOf(marks: readonly string[], from: number): number {
    const { turns } = this;
    if (marks.length === 0) return -1;
    const last = turns.length - marks.length;
    for (let at = last; at >= from && at > last - REACH; at--)
      if (marks.every((mark, n) => turns[at + n].mark === mark)) return at;
    return -1;
  }
}
