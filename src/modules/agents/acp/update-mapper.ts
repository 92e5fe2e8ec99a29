/** Maps the entries of a path, one after the other, to updates for the client. */

import { pairUp } from "../../../core/context/pairing.ts";
import { findTextMember, isObject, type LooseMembers, toBlocks, toMembers } from "../../../core/format/loose.ts";
import { getContentText, toAmount, toPreview, toShownText, toStored } from "../../../core/format/message.ts";
import { getEntryUsage } from "../../../core/session/stats.ts";
import { renderBlocks } from "./blocks.ts";
import {
  type AcpToolCall,
  makeAbandonedUpdate,
  makeCallUpdate,
  makeResultUpdate,
  pickCallMembers,
  toTextContent,
} from "./call-updates.ts";
import { parsePlan, toPlanEntries } from "./tools.ts";

/** The name of this server, and of our member in `_meta`. */
export const SERVER_NAME = "pi-session-server";

/** An entry of a path, parsed. */
export interface PathEntry {
  readonly id: string;
  readonly parentId: string | null;
  readonly entry: LooseMembers;
  /** Number of entries with the same parent. */
  readonly siblings: number;
}

/** The `update` of a `session/update`. */
export interface AcpUpdate extends LooseMembers {
  readonly sessionUpdate: string;
}

/** Optional features that the client has declared. */
export interface ClientFeatures {
  readonly compaction: boolean;
  readonly notices: boolean;
  /** True if it shows forms, which request a text. */
  readonly forms: boolean;
}

/** A tool call of the last answer on the path. */
interface OpenCall extends AcpToolCall {
  /** The id in the entry. */
  readonly id: string;
  /** The ids of its entry. */
  readonly ids: LooseMembers;
  isAnswered: boolean;
  isAbandoned: boolean;
}

/** A result that may belong to one of several calls, until later results decide. */
interface PendingResult {
  readonly item: PathEntry;
  readonly message: LooseMembers;
}

export class UpdateMapper {
  private readonly cwd: string;
  private readonly features: ClientFeatures;
  /** The calls of the last answer. Their results precede the next answer. */
  private calls: OpenCall[] = [];
  private pendingResults: PendingResult[] = [];
  /** Ids of calls that were sent to the client. They may repeat in a session, but not at the client. */
  private readonly used = new Set<string>();
  /** The client's ids of calls, by those in the session; of calls with the same one, the last. */
  private readonly clientIds = new Map<string, string>();
  /** Ids of calls that were sent and are not in the session yet. */
  private claimed: { readonly wanted: string; readonly id: string }[] = [];
  /** The cost of the mapped entries, in dollars. */
  cost = 0;
  /** The beginning of the first message of the user. */
  firstSaid = "";
  /** True if the agent of the last answer has said how full its context was. */
  hasUsage = false;

  constructor(cwd: string, features: ClientFeatures) {
    this.cwd = cwd;
    this.features = features;
  }

  /** Yields the updates about an entry, at least one, each with the ids of the entry. */
  *mapEntry(item: PathEntry): Generator<AcpUpdate> {
    const facts = { ...pickIds(item), ...pickFacts(item) };
    yield* this.before(item);
    let isFirst = true;
    for (const update of this.contentUpdates(item)) {
      yield addMeta(update, isFirst ? facts : pickIds(item));
      isFirst = false;
    }
    if (isFirst) yield addMeta({ sessionUpdate: "session_info_update" }, facts);
  }

  /** Yields the ids and facts of an entry that the client was shown while it came. */
  *mapShownEntry(item: PathEntry): Generator<AcpUpdate> {
    yield* this.before(item);
    for (const _ of this.contentUpdates(item));
    yield addMeta({ sessionUpdate: "session_info_update" }, { ...pickIds(item), ...pickFacts(item) });
  }

  /** Counts an entry, and yields the pending updates before it. */
  private *before(item: PathEntry): Generator<AcpUpdate> {
    this.cost += toAmount(toMembers(toMembers(getEntryUsage(item.entry)).cost).total);
    if (!isAnswer(item)) return;
    this.hasUsage = false;
    // The results of the answer before are complete.
    yield* this.flush(false);
    this.calls = [];
  }

  /** Forgets ids of calls that were sent and never came into the session. */
  forgetClaims(): void {
    this.claimed = [];
  }

  /** Returns the client's id of a call that is sent before it is in the session, from its agent's id. */
  claim(wanted: string): string {
    let id = wanted;
    for (let n = 2; id === "" || this.used.has(id); n++) id = `${wanted}~${n}`;
    this.used.add(id);
    this.claimed.push({ wanted, id });
    return id;
  }

  /**
   * Yields the pending updates at the current end of the path. Calls without a result count as failed if the session is
   * not active, because clients would show them as running.
   */
  *flush(isActive: boolean): Generator<AcpUpdate> {
    yield* this.flushPendingResults();
    if (!isActive) yield* this.abandonedCalls();
  }

  private *contentUpdates(item: PathEntry): Generator<AcpUpdate> {
    const { entry, id } = item;
    const summary = findTextMember(entry, "summary") ?? "";
    if (entry.damaged === true && entry.message === undefined)
      return yield* textUpdates(id, "[This part of the conversation is damaged and cannot be read.]", {
        kind: "damaged",
      });
    switch (entry.type) {
      case "message":
        return yield* this.message(item, toMembers(entry.message));
      case "custom_message":
        return yield* this.custom(id, entry);
      case "compaction":
        return yield* this.compaction(id, summary);
      case "branch_summary":
        return yield* textUpdates(id, `Summary of another branch:\n\n${summary}`, { kind: "branch_summary" });
      case "custom":
        return yield* entry.customType === "acp_updates" ? this.kept(toMembers(entry.data).updates) : [];
      case "session_info":
        yield { sessionUpdate: "session_info_update", title: findTextMember(entry, "name") ?? null };
    }
  }

  private *message(item: PathEntry, message: LooseMembers): Generator<AcpUpdate> {
    const { id } = item;
    switch (message.role) {
      case "user":
        this.firstSaid ||= toPreview(getContentText(message.content));
        return yield* chunks("user_message_chunk", id, message.content);
      case "assistant":
        return yield* this.answer(item, message);
      case "toolResult":
        return yield* this.result(item, message);
      case "bashExecution":
        return yield* bashUpdates(id, message);
      case "custom":
        return yield* this.custom(id, message);
      case "compactionSummary":
        return yield* this.compaction(id, toStored(message.summary));
      case "branchSummary":
        return yield* textUpdates(id, `Summary of another branch:\n\n${toStored(message.summary)}`, {
          kind: "branch_summary",
        });
      case "system":
        return;
      default:
        yield* chunks("agent_message_chunk", id, message.content);
    }
  }

  /** Yields the updates that an agent of the protocol sent and that messages have no place for. */
  private *kept(updates: unknown): Generator<AcpUpdate> {
    for (const update of Array.isArray(updates) ? updates.map(toMembers) : []) {
      const { sessionUpdate, entries, used, size, cost, toolCallId } = update;
      if (sessionUpdate === "plan" && Array.isArray(entries)) yield { sessionUpdate, entries: toPlanEntries(entries) };
      if (sessionUpdate === "usage_update" && isCount(used) && isCount(size)) {
        this.hasUsage = true;
        const { amount, currency } = toMembers(cost);
        const isCost = typeof amount === "number" && typeof currency === "string";
        yield { sessionUpdate, used, size, ...(isCost ? { cost } : {}) };
      }
      if (sessionUpdate === "tool_call_update" && typeof toolCallId === "string")
        yield { ...pickCallMembers(update), sessionUpdate, toolCallId: this.clientIds.get(toolCallId) ?? toolCallId };
    }
  }

  private *custom(id: string, message: LooseMembers): Generator<AcpUpdate> {
    if (message.display !== false) yield* chunks("agent_message_chunk", id, message.content);
  }

  private *compaction(id: string, summary: string): Generator<AcpUpdate> {
    if (this.features.compaction) {
      const blocks = [...renderBlocks(summary)].map(({ block }) => block);
      yield { sessionUpdate: "compaction_update", compactionId: id, status: "completed", summary: blocks };
    } else
      yield* textUpdates(id, `The model sees a summary of the conversation up to here:\n\n${summary}`, {
        kind: "compaction",
      });
  }

  private *answer(item: PathEntry, message: LooseMembers): Generator<AcpUpdate> {
    const { id } = item;
    for (const block of toBlocks(message.content)) {
      if (block.type === "toolCall") yield* this.call(item, block);
      else if (block.type === "thinking") {
        const content = { type: "text", text: toStored(block.thinking), acp: block.acp };
        yield* chunks("agent_thought_chunk", id, block.redacted === true ? [] : [content]);
      } else if (block.type !== "redactedThinking") yield* chunks("agent_message_chunk", id, [block]);
    }
    const error = toStored(message.errorMessage);
    if (error !== "") yield* textUpdates(id, error, { kind: "error" });
  }

  private *call(item: PathEntry, block: LooseMembers): Generator<AcpUpdate> {
    const name = toStored(block.name);
    const given = block.arguments;
    const call = {
      id: toStored(block.id),
      toolCallId: this.freshId(toStored(block.id), `${item.id}/${this.calls.length}`),
      name,
      arguments: given,
      acp: isObject(block.acp) ? block.acp : undefined,
      ids: pickIds(item),
      isAnswered: false,
      isAbandoned: false,
    };
    this.calls.push(call);
    yield makeCallUpdate(call, this.cwd);
    const entries = parsePlan(name, given);
    // The agent has sent its plan.
    if (entries && !call.acp) yield { sessionUpdate: "plan", entries };
  }

  private *result(item: PathEntry, message: LooseMembers): Generator<AcpUpdate> {
    const id = toStored(message.toolCallId);
    const exact = id === "" ? undefined : this.calls.find((call) => !call.isAnswered && call.id === id);
    if (exact) return yield this.answered(exact, message);
    const open = this.calls.filter(({ isAnswered }) => !isAnswered);
    if (open.length > 0 && (id === "" || open.some((call) => call.id === ""))) {
      this.pendingResults.push({ item, message });
      return;
    }
    yield this.orphanResult(item.id, message);
  }

  /** Yields the results that name no call, each matched to an unanswered call. */
  private *flushPendingResults(): Generator<AcpUpdate> {
    const { pendingResults: waiting } = this;
    if (waiting.length === 0) return;
    this.pendingResults = [];
    const open = this.calls.filter(({ isAnswered }) => !isAnswered);
    const answers = pairUp(
      open,
      waiting.map(({ message }) => toStored(message.toolCallId)),
    );
    for (const [index, { item, message }] of waiting.entries()) {
      const call = open[answers[index]];
      yield addMeta(call ? this.answered(call, message) : this.orphanResult(item.id, message), pickIds(item));
    }
  }

  private *abandonedCalls(): Generator<AcpUpdate> {
    for (const call of this.calls) {
      if (call.isAnswered || call.isAbandoned) continue;
      call.isAbandoned = true;
      yield addMeta(makeAbandonedUpdate(call.toolCallId), { ...call.ids, kind: "no_result" });
    }
  }

  private answered(call: OpenCall, message: LooseMembers): AcpUpdate {
    call.isAnswered = true;
    return makeResultUpdate(call, message, this.cwd);
  }

  /** Returns a result whose call is not on the path, as a completed call. */
  private orphanResult(entryId: string, message: LooseMembers): AcpUpdate {
    const call = { toolCallId: this.freshId("", entryId), name: toStored(message.toolName), arguments: undefined };
    const made = makeCallUpdate(call, this.cwd);
    return { ...made, ...makeResultUpdate(call, message, this.cwd), sessionUpdate: made.sessionUpdate };
  }

  /** Returns an unused id for a call: the wanted one, or else one derived from the entry. */
  private freshId(wanted: string, otherwise: string): string {
    const at = this.claimed.findIndex((call) => call.wanted === wanted);
    if (at >= 0) return this.claimed.splice(at, 1)[0].id;
    const id = this.unusedId(wanted, otherwise);
    this.used.add(id);
    if (wanted !== "") this.clientIds.set(wanted, id);
    return id;
  }

  private unusedId(wanted: string, otherwise: string): string {
    let id = wanted === "" ? otherwise : wanted;
    for (let n = 0; this.used.has(id); n++) id = n === 0 ? otherwise : `${otherwise}/${n}`;
    return id;
  }
}

/** Yields a user's command and its output as a completed call. */
function* bashUpdates(id: string, message: LooseMembers): Generator<AcpUpdate> {
  const command = toStored(message.command);
  const output = toStored(message.output);
  const { exitCode, cancelled, truncated, fullOutputPath, excludeFromContext } = message;
  const hasFailed = cancelled === true || (typeof exitCode === "number" && exitCode !== 0);
  yield {
    sessionUpdate: "tool_call",
    toolCallId: id,
    title: toPreview(command, 200) || "command",
    kind: "execute",
    status: hasFailed ? "failed" : "completed",
    content: output === "" ? [] : [toTextContent(output)],
    rawInput: { command },
    rawOutput: { exitCode, cancelled, truncated, fullOutputPath, excludeFromContext },
  };
}

/** Yields the blocks of a content as chunks of one message. */
function* chunks(sessionUpdate: string, messageId: string, content: unknown): Generator<AcpUpdate> {
  for (const { block, unknown } of renderBlocks(content)) {
    const update = { sessionUpdate, messageId, content: block };
    yield unknown ? addMeta(update, { block: unknown }) : update;
  }
}

/** Yields a text that is not an answer of the model, marked in `_meta`. */
function* textUpdates(messageId: string, text: string, mark: LooseMembers): Generator<AcpUpdate> {
  for (const { block } of renderBlocks(text))
    yield addMeta({ sessionUpdate: "agent_message_chunk", messageId, content: block }, mark);
}

/** Returns an update with members added to ours in `_meta`. */
export function addMeta(update: AcpUpdate, ours: LooseMembers): AcpUpdate {
  const before = toMembers(toMembers(update._meta)[SERVER_NAME]);
  return { ...update, _meta: { ...toMembers(update._meta), [SERVER_NAME]: { ...ours, ...before } } };
}

/** Returns whether an entry is an answer of the model. It ends the results of the answer before. */
function isAnswer({ entry }: PathEntry): boolean {
  return entry.type === "message" && toMembers(entry.message).role === "assistant";
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0;
}

function pickIds({ id, parentId }: PathEntry): { entryId: string; parentId: string | null } {
  return { entryId: id, parentId };
}

/** Members of entries and messages that clients may need and that the protocol has no place for. */
const ENTRY_FACTS = ["type", "timestamp", "customType", "targetId", "label", "provider", "modelId", "thinkingLevel"];
const MESSAGE_FACTS = ["role", "customType", "provider", "model", "stopReason", "usage"];

/** Returns the facts of an entry that its updates do not show. */
function pickFacts({ entry, siblings }: PathEntry): LooseMembers {
  const facts: Record<string, unknown> = {};
  const message = toMembers(entry.message);
  for (const [names, members] of [
    [ENTRY_FACTS, entry],
    [MESSAGE_FACTS, message],
  ] as const)
    for (const name of names) if (isSmall(members[name])) facts[name] = members[name];
  if (siblings > 1) facts.siblings = siblings;
  return facts;
}

/** Returns whether a value is small enough to repeat with each message. */
function isSmall(value: unknown): boolean {
  if (value === undefined || value === null) return false;
  return typeof value === "object" ? toShownText(value).length < 2048 : typeof value !== "string" || value.length < 512;
}
