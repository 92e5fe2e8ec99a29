/**
 * Writes a path of a session as Codex's rollout files have it: response items, which the model sees again, and the
 * events from which Codex shows the conversation in turns.
 */

import { findFirstKept } from "../../../../core/context/context.ts";
import { isObject, type JsonObject, NO_TIME, toCount, toText, toTimestamp } from "../../../../core/foreign/messages.ts";
import { getContentText, toStored } from "../../../../core/format/message.ts";
import {
  type AgentFormat,
  type AgentFormatOptions,
  deriveUuid,
  dropEntry,
  Losses,
  type Outgoing,
  type OutgoingCall,
  type OutgoingEntry,
  type OutgoingResult,
  toSummaryText,
} from "../format.ts";
import { LOST_RESULT } from "../walk.ts";
import {
  findProvider,
  getHarnessKind,
  readCallTexts,
  toAnswerItems,
  toItems,
  toResultItem,
  toUserParts,
} from "./codex-items.ts";

/** Ids that the provider takes. */
const CALL_ID = /^[\x21-\x7b\x7d\x7e]{1,64}$/;
/** Bytes of entries that the line of a compaction has again at most. */
const MOST_KEPT = 64 << 20;

/** The items of an entry, as a compaction that keeps it writes them again. */
interface HeldItems {
  readonly position: number;
  /** The message that made the call which the item answers, or the entry itself. */
  readonly speaker: number;
  readonly items: readonly JsonObject[];
}

/** The model, and how much it is to think. */
interface TurnSettings {
  readonly model?: string | undefined;
  readonly effort?: string | undefined;
}

interface CodexUsage {
  readonly input_tokens: number;
  readonly cached_input_tokens: number;
  readonly cache_write_input_tokens: number;
  readonly output_tokens: number;
  readonly reasoning_output_tokens: number;
  readonly total_tokens: number;
}

export class CodexFormat implements AgentFormat {
  readonly agent = "codex";
  cursor: string | null = null;
  private readonly options: AgentFormatOptions;
  private readonly provider: string;
  /** True if the session is one of Codex. */
  private readonly isOwn: boolean;
  private turnId: string | undefined;
  private time: string;
  /** The number of the turn. It distinguishes the ids of turns that one entry begins. */
  private turns = 0;
  private readonly isKept: Uint8Array;
  private held: HeldItems[] = [];
  private settings: TurnSettings = {};
  private changesSettings = false;
  private total: CodexUsage = usageIn({});
  private last: CodexUsage | undefined;

  constructor(options: AgentFormatOptions) {
    this.options = options;
    const { header, nodes } = options.session.log;
    this.time = toTimestamp(header.timestamp, NO_TIME);
    const from = (header as JsonObject).importedFrom;
    this.isOwn = isObject(from) && from.agent === this.agent;
    this.isKept = new Uint8Array(nodes.count);
    this.provider = (this.isOwn ? findProvider(options.session, options.route.order) : undefined) ?? "openai";
    for (const position of options.route.order) if (nodes.isType(position, "compaction")) this.keep(position);
  }

  /** Returns the part of an id that Codex knows: ours may have the id of the item behind it. */
  callId(ownId: string): string | undefined {
    const [id] = ownId.split("|", 1);
    return CALL_ID.test(id) ? id : undefined;
  }

  newCallId(unique: string): string {
    return `call_${this.uuid(unique, "call").replaceAll("-", "").slice(0, 24)}`;
  }

  begin(): readonly JsonObject[] {
    const { session, sessionId } = this.options;
    const about = { id: sessionId, session_id: sessionId, timestamp: this.time, cwd: session.cwd };
    const program = { originator: "pi-session-server", cli_version: "0.0.0", source: "cli" };
    const meta = { ...about, ...program, model_provider: this.provider, history_mode: "legacy" };
    return [this.line("session_meta", meta, this.time)];
  }

  warnings(): readonly string[] {
    const { session, route } = this.options;
    const left = session.tree.entryCount - route.order.length;
    const sentences = this.changesSettings ? ["Codex goes on with the model and the effort of its own settings."] : [];
    if (left > 0)
      sentences.push(
        `${left} ${left === 1 ? "entry" : "entries"} on other branches are left out: a file of Codex's is one line.`,
      );
    return sentences;
  }

  end(): readonly JsonObject[] {
    const records = this.endTurn();
    const { name } = this.options.session;
    if (name) {
      const named = { type: "thread_name_updated", thread_id: this.options.sessionId, thread_name: name };
      records.push(this.event(named, this.time));
    }
    if (this.last) {
      const info = { total_token_usage: this.total, last_token_usage: this.last, model_context_window: null };
      records.push(this.event({ type: "token_count", info, rate_limits: null }, this.time));
    }
    return records;
  }

  entry(entry: OutgoingEntry, calls: readonly OutgoingCall[]): Outgoing {
    const { type } = entry.entry;
    if (type === "message") return this.message(entry, calls);
    if (type === "custom_message") return this.customMessage(entry);
    if (type === "compaction") return this.compaction(entry);
    if (type === "branch_summary") return this.branchSummary(entry);
    if (type === "custom") return this.custom(entry);
    if (type === "session_info") {
      const isName = entry.entry.name === this.options.session.name && entry.entry.name !== null;
      const sentence = "Codex keeps the names of threads elsewhere: give it there again.";
      return isName ? { records: [], fidelity: "derived", warning: sentence } : dropEntry();
    }
    if (type === "context_edit") return { records: [], fidelity: "derived" };
    if (type === "model_change") return this.settingsChange(entry, { model: toText(entry.entry.modelId) });
    if (type === "thinking_level_change")
      return this.settingsChange(entry, { effort: toText(entry.entry.thinkingLevel) });
    return dropEntry();
  }

  // --- models --------------------------------------------------------------------------------------------------

  private settingsChange({ at }: OutgoingEntry, changed: TurnSettings): Outgoing {
    if (Object.values(changed).includes(undefined)) return dropEntry();
    this.changesSettings = true;
    return { records: this.settingsOf(changed, at), fidelity: "derived" };
  }

  /**
   * Returns the record of the settings for the next items; an empty list if they are unchanged. It leaves out approvals
   * and the sandbox: Codex would take those for a person's choice, and keep them.
   */
  private settingsOf(changed: TurnSettings, at: string): JsonObject[] {
    const { model, effort } = this.settings;
    this.settings = { model, effort, ...changed };
    if (this.settings.model === model && this.settings.effort === effort) return [];
    const { cwd } = this.options.session;
    return [this.line("turn_context", { turn_id: this.turnId, cwd, ...this.settings }, at)];
  }

  // --- the conversation ----------------------------------------------------------------------------------------

  private message(entry: OutgoingEntry, calls: readonly OutgoingCall[]): Outgoing {
    const message = entry.message as JsonObject;
    const { role } = message;
    if (role === "assistant") return this.answer(entry, message, calls);
    if (role === "bashExecution") return this.bash(entry, message);
    if (role !== "user") return dropEntry(`Codex has no place for a message of the role ${String(role).slice(0, 40)}.`);
    const losses = new Losses();
    const parts = toUserParts(message.content, losses);
    if (parts.length === 0) return dropEntry("Nothing is left of it that Codex can have.");
    const records = [...this.endTurn(), ...this.beginTurn(entry)];
    const kinds = parts.map(({ type }) => (type === "input_text" ? "user.text" : "user.image"));
    const text = getContentText(message.content);
    const shown = { type: "user_message", message: text, images: [], local_images: [], text_elements: [] };
    return losses.outgoing([...records, ...this.given(entry, "user", parts, kinds), this.event(shown, entry.at)]);
  }

  private answer(entry: OutgoingEntry, message: JsonObject, calls: readonly OutgoingCall[]): Outgoing {
    const losses = new Losses();
    const { stopReason, usage } = message;
    const texts = calls.length === 0 ? [] : readCallTexts(entry.line);
    const items = toAnswerItems(message, calls, texts, this.isOwn, losses);
    const saysNothing = items.every(({ type }) => type === "reasoning");
    const error = toText(message.errorMessage);
    if (saysNothing && error === undefined)
      return dropEntry(items.length > 0 ? "It has thoughts only, which providers refuse." : undefined);
    const records = this.turnId === undefined ? this.beginTurn(entry) : [];
    const model = toText(message.model);
    if (model !== undefined) records.push(...this.settingsOf({ model }, entry.at));
    if (saysNothing) {
      losses.note();
      return losses.outgoing([...records, this.event({ type: "error", message: error }, entry.at)]);
    }
    if (error !== undefined || stopReason === "error" || stopReason === "length") losses.note();
    let part = 0;
    const own = items.map((item) =>
      item.type === "message" ? { ...item, id: `msg_${this.uuid(entry.id, `message${part++}`)}` } : item,
    );
    for (const item of own) {
      records.push(...this.items(entry.position, entry.position, [item], entry.at));
      if (item.type === "message")
        records.push(this.event({ type: "agent_message", message: textOf(item.content) }, entry.at));
    }
    records.push(this.spent(entry, usage));
    if (stopReason === "aborted")
      records.push(this.event({ type: "turn_aborted", turn_id: this.turnId, reason: "interrupted" }, entry.at));
    return losses.outgoing(records);
  }

  result({ call, speaker, result, lostAt }: OutgoingResult): Outgoing {
    const losses = new Losses();
    if (!result) {
      const { at } = lostAt as NonNullable<typeof lostAt>;
      const item = { type: "function_call_output", call_id: call.id, output: LOST_RESULT };
      return losses.outgoing(this.items(speaker, speaker, [item], at));
    }
    const message = result.message as JsonObject;
    if (message.details !== undefined) losses.note();
    const item = toResultItem(call.id, message, losses);
    return losses.outgoing(this.items(result.position, speaker, [item], result.at));
  }

  private customMessage(entry: OutgoingEntry): Outgoing {
    const losses = new Losses();
    const { customType, details } = entry.entry;
    const parts = toUserParts(entry.message?.content ?? entry.entry.content, losses);
    if (parts.length === 0) return dropEntry();
    const { role, kind, isKnown } = getHarnessKind(toStored(customType));
    if (!isKnown || details !== undefined) losses.note();
    const records = this.turnId === undefined ? this.beginTurn(entry) : [];
    return losses.outgoing([
      ...records,
      ...this.given(entry, role, parts, kind === undefined ? undefined : parts.map(() => kind)),
    ]);
  }

  private branchSummary(entry: OutgoingEntry): Outgoing {
    const summary = toStored(entry.entry.summary);
    if (summary === "") return dropEntry();
    const losses = new Losses();
    losses.note();
    const text = `A summary of another branch of this conversation:\n\n${summary}`;
    const records = this.turnId === undefined ? this.beginTurn(entry) : [];
    const parts = [{ type: "input_text", text }];
    return losses.outgoing([...records, ...this.given(entry, "user", parts, ["pi.branch_summary"])]);
  }

  /** Returns a command that a person ran as the text that Codex gives the model of one. */
  private bash(entry: OutgoingEntry, { command, output, exitCode, excludeFromContext }: JsonObject): Outgoing {
    if (excludeFromContext === true) return dropEntry("The model did not see it, and Codex has no place for it.");
    const losses = new Losses();
    losses.note();
    const result = `Exit code: ${typeof exitCode === "number" ? exitCode : 0}\nOutput:\n${toStored(output)}`;
    const text = `<user_shell_command>\n<command>\n${toStored(command)}\n</command>\n<result>\n${result}\n</result>\n</user_shell_command>`;
    const records = this.turnId === undefined ? this.beginTurn(entry) : [];
    const parts = [{ type: "input_text", text }];
    return losses.outgoing([...records, ...this.given(entry, "user", parts, ["pi.shell_command"])]);
  }

  /** Returns an item of Codex's that was kept as it is. */
  private custom(entry: OutgoingEntry): Outgoing {
    const { customType, data } = entry.entry;
    if (customType !== "import:codex" || !isObject(data) || data.type !== "response_item") return dropEntry();
    const [item] = toItems([data.payload]) ?? [];
    if (!item || /output$|^(?:message|reasoning)$|_call$/.test(item.type as string)) return dropEntry();
    return { records: this.items(entry.position, entry.position, [item], entry.at), fidelity: "preserved" };
  }

  // --- compactions ---------------------------------------------------------------------------------------------

  /** Notes the kept messages of a compaction, whose items its line repeats. */
  private keep(compaction: number): void {
    const { session, route } = this.options;
    const { first } = findFirstKept(session.tree, session, compaction);
    if (first === compaction) return;
    let size = 0;
    const kept: number[] = [];
    for (let at = route.before(compaction); at >= 0; at = route.before(at)) {
      size += session.log.length(at);
      kept.push(at);
      if (at === first) break;
    }
    if (size <= MOST_KEPT) for (const position of kept) this.isKept[position] = 1;
  }

  private compaction(entry: OutgoingEntry): Outgoing {
    const { entry: stored, position } = entry;
    const { summary, details } = stored;
    if (typeof summary !== "string") return dropEntry();
    const losses = new Losses();
    if (stored.systemMessage !== undefined) losses.note("The system message that it carries is left out.");
    const { session } = this.options;
    const { first } = findFirstKept(session.tree, session, position);
    const rest = isObject(details) ? details : {};
    const own = first === position && this.isOwn ? toItems(rest.replacement_history) : undefined;
    const turn = `turn${++this.turns}`;
    const content = own ? [] : [{ type: "input_text", text: toSummaryText(summary, losses) }];
    const said = { type: "message", id: `msg_${this.uuid(entry.id, "summary")}`, role: "user", content };
    const history = own ?? [said, ...this.keptItems(first, position, losses)];
    const turnId = this.uuid(entry.id, turn);
    return losses.outgoing([
      ...this.endTurn(),
      this.event({ type: "task_started", turn_id: turnId, model_context_window: null }, entry.at),
      this.line("compacted", { message: summary, replacement_history: history }, entry.at),
      this.event({ type: "context_compacted" }, entry.at),
      this.event({ type: "task_complete", turn_id: turnId, last_agent_message: null }, entry.at),
    ]);
  }

  /** Adds the items of the messages to the new history; Codex does not show them a second time. */
  carrying(compaction: readonly JsonObject[], carry: () => readonly JsonObject[]): readonly JsonObject[] {
    const { held, settings, changesSettings } = this;
    this.held = [];
    const items = carry().filter(({ type }) => type === "response_item");
    Object.assign(this, { held, settings, changesSettings, turnId: undefined });
    return compaction.map((record) => {
      const payload = record.payload as JsonObject;
      if (record.type !== "compacted" || items.length === 0) return record;
      const history = payload.replacement_history as readonly JsonObject[];
      return {
        ...record,
        payload: { ...payload, replacement_history: [...history, ...items.map((item) => item.payload)] },
      };
    });
  }

  private keptItems(first: number, compaction: number, losses: Losses): JsonObject[] {
    const { tree } = this.options.session;
    if (first === compaction) return [];
    if (this.isKept[first] === 0) {
      losses.note("It keeps more than 64 MB, which are left out of the context.");
      return [];
    }
    const from = tree.depth(first);
    const kept = this.held.filter(
      ({ position, speaker }) => tree.depth(position) >= from && tree.depth(speaker) >= from,
    );
    return kept.flatMap(({ items }) => items);
  }

  // --- records -------------------------------------------------------------------------------------------------

  private beginTurn({ id, at }: Pick<OutgoingEntry, "id" | "at">): JsonObject[] {
    this.turnId = this.uuid(id, `turn${++this.turns}`);
    this.time = at;
    return [this.event({ type: "task_started", turn_id: this.turnId, model_context_window: null }, at)];
  }

  private endTurn(): JsonObject[] {
    const { turnId } = this;
    this.turnId = undefined;
    if (turnId === undefined) return [];
    return [this.event({ type: "task_complete", turn_id: turnId, last_agent_message: null }, this.time)];
  }

  private given(
    entry: OutgoingEntry,
    role: string,
    content: readonly JsonObject[],
    kinds?: readonly string[],
  ): JsonObject[] {
    const kindMembers = kinds === undefined ? {} : { content_item_kinds: kinds };
    const about = { internal_chat_message_metadata_passthrough: { turn_id: this.turnId, ...kindMembers } };
    const item = { type: "message", id: `msg_${this.uuid(entry.id, "message")}`, role, content, ...about };
    return this.items(entry.position, entry.position, [item], entry.at);
  }

  private items(position: number, speaker: number, items: readonly JsonObject[], at: string): JsonObject[] {
    this.time = at;
    if (this.isKept[position] === 1 && this.isKept[speaker] === 1) this.held.push({ position, speaker, items });
    return items.map((item) => this.line("response_item", item, at));
  }

  private spent({ id, at }: OutgoingEntry, usage: unknown): JsonObject {
    const spent = usageIn(isObject(usage) ? usage : {});
    const { sessionId } = this.options;
    if (spent.total_tokens > 0) {
      this.last = spent;
      this.total = sumOf(this.total, spent);
    }
    const ids = { thread_id: sessionId, turn_id: this.turnId, session_id: sessionId, root_turn_id: this.turnId };
    const spentMembers = { response_id: `resp_${this.uuid(id, "response")}`, usage: spent };
    return this.line(
      "token_usage_record",
      { ...ids, ...spentMembers, turn_token_usage: spent, thread_token_usage: this.total },
      at,
    );
  }

  private event(payload: JsonObject, at: string): JsonObject {
    return this.line("event_msg", payload, at);
  }

  private line(type: string, payload: JsonObject, timestamp: string): JsonObject {
    return { timestamp, type, payload };
  }

  private uuid(id: string, part: string): string {
    return deriveUuid(this.options.sha256, this.agent, this.options.sessionId, id, part);
  }
}

/** Returns tokens as Codex counts them: the input includes tokens read from the cache. */
function usageIn({ input, output, cacheRead, cacheWrite }: JsonObject): CodexUsage {
  const usage = {
    input_tokens: toCount(input) + toCount(cacheRead),
    cached_input_tokens: toCount(cacheRead),
    cache_write_input_tokens: toCount(cacheWrite),
    output_tokens: toCount(output),
    reasoning_output_tokens: 0,
  };
  const whole = Object.fromEntries(
    Object.entries(usage).map(([name, count]) => [name, Math.min(Math.floor(count), MOST_TOKENS)]),
  );
  return { ...(whole as typeof usage), total_tokens: whole.input_tokens + whole.output_tokens };
}

/** Most tokens of one call: their sum stays a whole number that every reader accepts. */
const MOST_TOKENS = 1e12;

function sumOf(a: CodexUsage, b: CodexUsage): CodexUsage {
  return Object.fromEntries(
    Object.entries(a).map(([name, count]) => [name, Math.min(count + b[name as keyof CodexUsage], 1e15)]),
  ) as Record<keyof CodexUsage, number>;
}

function textOf(content: unknown): string {
  return Array.isArray(content) ? content.map((part) => (isObject(part) ? toStored(part.text) : "")).join("") : "";
}
