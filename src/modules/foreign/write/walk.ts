/**
 * Takes the entries of a session through the format of another agent, and counts the fidelity of each. Providers want
 * every call answered directly after it: later results are moved there, results without a call are left out, and a call
 * without a result gets one that says so.
 */

import { collectEdits, type Edit, getMessageText } from "../../../core/context/context.ts";
import { readCarriedTexts } from "../../../core/export/carried.ts";
import { isObject, type JsonObject, NO_TIME, toTimestamp } from "../../../core/foreign/messages.ts";
import { resolveAttachments } from "../../../core/format/attachments.ts";
import { getToolCalls, toStored } from "../../../core/format/message.ts";
import { replaceHalves } from "../../../core/json/halves.ts";
import { concat, parse, toBytes, toJsonText, tryParse } from "../../../core/json/json.ts";
import type { FidelityReport } from "../../../core/ports/fidelity.ts";
import type { Session } from "../../../core/session/session.ts";
import { Tally } from "../read/fidelity.ts";
import { type AgentFormat, dropEntry, type Outgoing, type OutgoingCall, type OutgoingEntry } from "./format.ts";
import type { Route } from "./route.ts";

/** Returns a record as a line. Some readers of lines cut them at U+2028 and U+2029, too. */
function toRecordLine(record: JsonObject): string {
  const text = replaceHalves(toJsonText(record));
  return `${text.replace(/[\u2028\u2029]/g, (c) => (c === "\u2028" ? "\\u2028" : "\\u2029"))}\n`;
}

/** The state after an entry, for the entries that continue it. */
interface Reached {
  readonly open: OpenCalls | undefined;
  readonly cursor: string | null;
  /** Number of entries still to come that continue it, and one more if it is the end of the path. */
  followers: number;
  /** True if others that are still to come have the same calls. */
  isShared: boolean;
  /** The place behind the results that were added for all calls that are open there, which further branches share. */
  closed?: string | null;
}

/** The sentence in place of a result that is missing. */
export const LOST_RESULT = "The session ended before this tool answered; whether it did its work is unknown.";

/** The types of entries whose messages have roles of their own. */
const ENTRY_OF_ROLE: Readonly<Record<string, string>> = { custom: "custom_message", branchSummary: "branch_summary" };

const SPEAKING = new Set(["message", "custom_message", "branch_summary", "compaction"]);

export class ExportWalk {
  private readonly session: Session;
  private readonly route: Route;
  private readonly format: AgentFormat;
  private readonly tally: Tally;
  private readonly edits: ReadonlyMap<number, Edit>;
  private readonly reached = new Map<number, Reached>();
  /** Results that were brought to their calls. */
  private readonly brought = new Set<number>();
  private readonly callIds = new Set<string>();
  private atLeaf: Reached | undefined;
  private time = NO_TIME;

  constructor(session: Session, route: Route, format: AgentFormat) {
    this.session = session;
    this.route = route;
    this.format = format;
    this.tally = new Tally(format.agent);
    this.edits = collectEdits(session.tree, session, [...session.tree.path(route.leaf)]);
  }

  /** Yields the lines of the file, each with its line feed. */
  *lines(): Generator<string> {
    const { format, route } = this;
    for (const record of format.begin()) yield toRecordLine(record);
    for (const position of route.order) for (const record of this.step(position)) yield toRecordLine(record);
    const { atLeaf } = this;
    format.cursor = atLeaf?.cursor ?? null;
    for (const record of this.close(atLeaf, undefined, route.leaf)) yield toRecordLine(record);
    for (const record of format.end()) yield toRecordLine(record);
    for (const sentence of format.warnings()) this.tally.warn(0, sentence);
  }

  /** Returns the fidelity of the entries, once all lines were taken. */
  report(): FidelityReport {
    return this.tally.report();
  }

  private step(position: number): readonly JsonObject[] {
    const { route, format } = this;
    const parent = route.before(position);
    const before = this.reached.get(parent);
    if (before && --before.followers === 0) this.reached.delete(parent);
    format.cursor = before?.cursor ?? null;
    const records: JsonObject[] = [];
    let open = before?.open;
    // Calls that several branches answer stay as they are.
    let isShared = before !== undefined && (before.isShared || before.followers > 0);
    if (before) before.isShared = isShared;
    if (this.brought.delete(position)) {
      // It is already behind its call.
    } else if (this.isResult(position)) {
      if (isShared) open = open?.copy();
      isShared = false;
      this.answer(records, position, open);
    } else if (this.speaks(position)) {
      records.push(...this.close(before, position, position));
      open = this.speak(records, position);
      isShared = false;
    } else
      this.note(
        position,
        records,
        this.outgoing(position, (entry) => format.entry(entry, [])),
      );
    const isLeaf = position === route.leaf;
    const followers = route.followers(position) + (isLeaf ? 1 : 0);
    const now: Reached = { open, cursor: format.cursor, followers, isShared };
    if (isLeaf) this.atLeaf = now;
    else if (followers === 0) records.push(...this.close(now, undefined, position));
    if (followers > 0) this.reached.set(position, now);
    return records;
  }

  private answer(records: JsonObject[], position: number, open: OpenCalls | undefined): void {
    const entry = this.read(position);
    const call = entry && open ? open.callOf(toStored(entry.message?.toolCallId)) : -1;
    const isLeftOut = this.edits.get(position)?.leavesOut === true;
    if (!entry || !open || call < 0 || isLeftOut) {
      this.note(position, records, dropEntry(isLeftOut ? LEFT_OUT : entry ? UNASKED : UNREADABLE));
      return;
    }
    this.note(position, records, this.resultOf(open, call, entry));
    open.answer(call);
  }

  private resultOf({ speaker, calls }: OpenCalls, call: number, result: OutgoingEntry): Outgoing {
    try {
      return this.format.result({ call: calls[call], speaker, result });
    } catch {
      return dropEntry(UNREADABLE);
    }
  }

  /**
   * Returns the results of the calls that are open before an entry, or at the end of a branch: the results after it, if
   * only these can be meant, and one for each unanswered call.
   */
  private close(reached: Reached | undefined, before: number | undefined, at: number): readonly JsonObject[] {
    const open = reached?.open;
    if (!reached || !open?.left) return [];
    const { format, route } = this;
    const records: JsonObject[] = [];
    const left = open.copy();
    for (let later = before ?? -1; later >= 0 && !this.isAnswer(later); later = route.next(later))
      if (this.isResult(later)) {
        this.answer(records, later, left);
        this.brought.add(later);
        if (left.left === 0) break;
      }
    const id = this.session.log.nodes.id(at);
    const lostAt = before === undefined ? `${id}/end` : id;
    if (left.left < open.left) records.push(...this.lost(left, lostAt));
    else if (reached.closed === undefined) {
      records.push(...this.lost(left, lostAt));
      reached.closed = format.cursor;
    } else format.cursor = reached.closed;
    return records;
  }

  /** Returns results for unanswered calls; `id` is of the place of these results. */
  private lost(open: OpenCalls, id: string): JsonObject[] {
    const records: JsonObject[] = [];
    let number = 0;
    const { speaker } = open;
    for (const [index, call] of open.calls.entries()) {
      if (open.isAnswered(index)) continue;
      const lostAt = { id, at: this.time, number: number++ };
      records.push(...this.format.result({ call, speaker, lostAt }).records);
      this.tally.warn(speaker + 1, `Its call of ${call.name || "a tool"} has no result; one that says so was added.`);
    }
    return records;
  }

  /** Adds an entry that is part of the conversation, and returns the calls that are open after it. */
  private speak(records: JsonObject[], position: number): OpenCalls | undefined {
    const { format } = this;
    const calls: OutgoingCall[] = [];
    const outgoing = this.outgoing(position, (entry) => {
      if (this.isAnswer(position)) calls.push(...this.callsIn(entry));
      return format.entry(entry, calls);
    });
    if (outgoing.records.length > 0 && this.session.log.nodes.isType(position, "compaction"))
      return this.addCompaction(records, position, outgoing);
    this.note(position, records, outgoing);
    if (calls.length === 0 || outgoing.records.length === 0) return undefined;
    return new OpenCalls(position, calls);
  }

  /** Adds a compaction with the messages that it carries, and returns the calls that are open after them. */
  private addCompaction(records: JsonObject[], position: number, compaction: Outgoing): OpenCalls | undefined {
    let open: OpenCalls | undefined;
    let { fidelity } = compaction;
    const warnings = new Set(compaction.warning === undefined ? [] : [compaction.warning]);
    // These calls replace those that they are copies of, and have their ids.
    const ids = new Set<string>();
    const carry = (): JsonObject[] => {
      const carried: JsonObject[] = [];
      for (const entry of this.carriedBy(position)) {
        const isResult = entry.message?.role === "toolResult";
        if (open && !isResult) {
          carried.push(...this.lost(open, entry.id));
          open = undefined;
        }
        const calls = entry.message?.role === "assistant" ? this.callsIn(entry, ids) : [];
        const outgoing = isResult ? this.carriedResult(entry, open) : this.format.entry(entry, calls);
        carried.push(...outgoing.records);
        if (calls.length > 0 && outgoing.records.length > 0) open = new OpenCalls(position, calls);
        if (outgoing.fidelity !== "preserved") fidelity = "derived";
        if (outgoing.warning !== undefined) warnings.add(outgoing.warning);
      }
      return carried;
    };
    const whole = this.format.carrying(compaction.records, carry);
    const warning = warnings.size === 0 ? {} : { warning: [...warnings].join(" ") };
    this.note(position, records, { records: whole, fidelity, ...warning });
    return open;
  }

  private carriedResult(entry: OutgoingEntry, open: OpenCalls | undefined): Outgoing {
    const call = open ? open.callOf(toStored(entry.message?.toolCallId)) : -1;
    if (!open || call < 0) return dropEntry(UNASKED);
    open.answer(call);
    return this.resultOf(open, call, entry);
  }

  /** Yields the messages that a compaction carries as entries. They are copies, whose usage was counted before. */
  private *carriedBy(position: number): Generator<OutgoingEntry> {
    const { session, time: at } = this;
    let index = 0;
    for (const text of readCarriedTexts(session, position)) {
      const { usage: _, ...message } = parse(text) as JsonObject;
      const type = ENTRY_OF_ROLE[toStored(message.role)] ?? "message";
      const line = concat([toBytes('{"message":'), text, toBytes("}")]);
      yield {
        position,
        id: `${session.log.nodes.id(position)}/kept${index++}`,
        at,
        entry: type === "message" ? { type, message } : { ...message, type },
        line,
        message,
      };
    }
  }

  private callsIn({ id, message }: OutgoingEntry, used = this.callIds): OutgoingCall[] {
    return getToolCalls(message?.content).map((call, index) => {
      let out = this.format.callId(call.id);
      if (out === undefined || used.has(out)) out = this.format.newCallId(`${id}/${index}`);
      used.add(out);
      this.callIds.add(out);
      return { id: out, ownId: call.id, name: call.name, arguments: call.arguments };
    });
  }

  private outgoing(position: number, make: (entry: OutgoingEntry) => Outgoing): Outgoing {
    if (this.edits.get(position)?.leavesOut) return dropEntry(LEFT_OUT);
    const entry = this.read(position);
    if (!entry) return dropEntry(UNREADABLE);
    try {
      const made = make(entry);
      if (!this.edits.has(position) || made.fidelity !== "preserved") return made;
      return { ...made, fidelity: "derived", warning: "Its content is the one that a context edit put in place." };
    } catch {
      return dropEntry(UNREADABLE);
    }
  }

  private note(position: number, records: JsonObject[], { fidelity, warning, records: made }: Outgoing): void {
    records.push(...made);
    this.tally.note(position + 1, {
      kind: this.kindOf(position),
      fidelity,
      ...(warning === undefined ? {} : { warning }),
    });
  }

  private kindOf(position: number): string {
    const { nodes } = this.session.log;
    const type = nodes.type(position);
    if (nodes.isMarker(position)) return "custom/leaf marker";
    const role = type === "message" ? nodes.role(position) : "";
    return role === "" ? type : `${type}/${role}`;
  }

  /** Returns an entry; undefined if nothing of it can be read. */
  private read(position: number): OutgoingEntry | undefined {
    const { session } = this;
    const { nodes } = session.log;
    const line = session.line(position);
    const entry = tryParse(line);
    if (!isObject(entry) || entry.damaged === true) return undefined;
    this.time = toTimestamp(entry.timestamp, this.time);
    const message = this.messageIn(position, entry, line);
    if (nodes.type(position) === "message" && !message) return undefined;
    return { position, id: nodes.id(position), at: this.time, entry, line, message };
  }

  private messageIn(position: number, entry: JsonObject, line: Uint8Array): JsonObject | undefined {
    const { session, edits } = this;
    const isMessage = session.log.nodes.isType(position, "message");
    const edit = edits.get(position);
    if (!isMessage && (!edit || !session.log.nodes.isType(position, "custom_message"))) return undefined;
    if (!edit && !holdsAttachment(entry.message)) return isObject(entry.message) ? entry.message : undefined;
    const item = { position, kind: "message" as const, ...(edit ? { edit: edit.position } : {}) };
    const text = getMessageText(session.tree, session, item, line);
    if (!text) return undefined;
    const whole = resolveAttachments(text, (sha256, size) => session.log.attachment(position, sha256, size));
    const message = parse(whole);
    return isObject(message) ? message : undefined;
  }

  private isAnswer(position: number): boolean {
    const { nodes } = this.session.log;
    return nodes.role(position) === "assistant" && !nodes.hasNoMessage(position);
  }

  private isResult(position: number): boolean {
    const { nodes } = this.session.log;
    return nodes.role(position) === "toolResult" && !nodes.hasNoMessage(position);
  }

  /** Returns whether an entry is part of the conversation, so that no later result can answer an earlier call. */
  private speaks(position: number): boolean {
    return SPEAKING.has(this.session.log.nodes.type(position));
  }
}

const UNASKED = "It answers no call that comes before it, so that providers would refuse it.";
const LEFT_OUT = "A context edit takes it out of the context.";
const UNREADABLE = "It is damaged, or nothing that can be understood.";

function mayRefer(data: unknown): boolean {
  return isObject(data) || (typeof data === "string" && data.startsWith("blob:"));
}

function holdsAttachment(message: unknown): boolean {
  const content = isObject(message) ? message.content : undefined;
  return Array.isArray(content) && content.some((block) => isObject(block) && mayRefer(block.data));
}

// --- calls without an answer ----------------------------------------------------------------------------------------

class OpenCalls {
  /** The position of the answer. */
  readonly speaker: number;
  readonly calls: readonly OutgoingCall[];
  /** Number of calls without a result. */
  left: number;
  private readonly answered: Uint8Array;
  /** Indexes of the calls of each id. */
  private readonly byId: ReadonlyMap<string, readonly number[]>;
  /** For each id, how many of its calls, the first ones, were answered at least. */
  private readonly passed: Map<string, number>;
  /** The index before which all calls were answered. */
  private first = 0;

  constructor(speaker: number, calls: readonly OutgoingCall[], before?: OpenCalls) {
    this.speaker = speaker;
    this.calls = calls;
    this.left = before?.left ?? calls.length;
    this.answered = before ? Uint8Array.from(before.answered) : new Uint8Array(calls.length);
    this.byId = before?.byId ?? indexesById(calls);
    this.passed = new Map(before?.passed);
    this.first = before?.first ?? 0;
  }

  /** Returns a copy for another branch, which may have other results. */
  copy(): OpenCalls {
    return new OpenCalls(this.speaker, this.calls, this);
  }

  isAnswered(call: number): boolean {
    return this.answered[call] === 1;
  }

  /** Returns the index of the call that a result with this id answers, or -1. Without an id, order decides. */
  callOf(ownId: string): number {
    if (ownId !== "") {
      const exact = this.next(ownId);
      return exact >= 0 ? exact : this.next("");
    }
    while (this.isAnswered(this.first)) this.first++;
    return this.first < this.calls.length ? this.first : -1;
  }

  answer(call: number): void {
    this.answered[call] = 1;
    this.left--;
  }

  /** Returns the first call of an id that has no result, or -1. */
  private next(ownId: string): number {
    const calls = this.byId.get(ownId) ?? [];
    let passed = this.passed.get(ownId) ?? 0;
    while (passed < calls.length && this.isAnswered(calls[passed])) passed++;
    this.passed.set(ownId, passed);
    return calls[passed] ?? -1;
  }
}

function indexesById(calls: readonly OutgoingCall[]): Map<string, number[]> {
  const indexes = new Map<string, number[]>();
  for (const [call, { ownId }] of calls.entries()) {
    const own = indexes.get(ownId);
    if (own) own.push(call);
    else indexes.set(ownId, [call]);
  }
  return indexes;
}
