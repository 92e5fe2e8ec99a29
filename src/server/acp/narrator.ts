/** Tells the entries of a path, one after the other, as the updates that a client shows. */

import { pairUp } from "../../core/context/pairing.ts";
import { blocksOf, type LooseMembers, membersOf, textMember } from "../../core/format/loose.ts";
import { amountOf, preview, shownText, stringOf } from "../../core/format/message.ts";
import { usageIn } from "../../core/session/stats.ts";
import { shownBlocks } from "./blocks.ts";
import { callUpdate, contentsOf, givenUpUpdate, resultUpdate, textContent } from "./call-updates.ts";
import { kindOf, planOf, titleOf } from "./tools.ts";

/** The name of what is ours in `_meta`. */
export const OURS = "pi-session-server";

/** An entry of a path, parsed. */
export interface PathEntry {
  readonly id: string;
  readonly parentId: string | null;
  readonly entry: LooseMembers;
  /** How many entries continue its parent. */
  readonly siblings: number;
}

/** The `update` of a `session/update`. */
export interface AcpUpdate extends LooseMembers {
  readonly sessionUpdate: string;
}

/** Kinds of updates that a client has asked for. */
export interface ClientSkills {
  readonly compaction: boolean;
  readonly notices: boolean;
  /** Whether it shows forms that ask for a text. */
  readonly forms: boolean;
}

/** A call of the last answer on the path. */
interface OpenCall {
  /** As the entry has it. */
  readonly id: string;
  readonly toolCallId: string;
  readonly name: string;
  readonly arguments: unknown;
  /** Of the entry that it is in. */
  readonly ids: LooseMembers;
  isAnswered: boolean;
  isGivenUp: boolean;
}

/** A result that may answer one of several calls, which those that come after it tell. */
interface WaitingResult {
  readonly item: PathEntry;
  readonly message: LooseMembers;
}

export class Narrator {
  private readonly cwd: string;
  private readonly skills: ClientSkills;
  /** The calls of the last answer. Their results are before the next one. */
  private calls: OpenCall[] = [];
  private waiting: WaitingResult[] = [];
  /** Ids of calls that the client was told of: those of a session need not differ, and a client's must. */
  private readonly used = new Set<string>();
  /** Ids of calls that were told of and are not in the session yet. */
  private claimed: { readonly wanted: string; readonly id: string }[] = [];
  /** The cost of the entries that were told, in dollars. */
  cost = 0;

  constructor(cwd: string, skills: ClientSkills) {
    this.cwd = cwd;
    this.skills = skills;
  }

  /** Yields the updates about an entry, at least one, each with the ids of the entry. */
  *updatesOf(item: PathEntry): Generator<AcpUpdate> {
    const facts = { ...idsOf(item), ...factsOf(item) };
    yield* this.before(item);
    let isFirst = true;
    for (const update of this.told(item)) {
      yield withOurs(update, isFirst ? facts : idsOf(item));
      isFirst = false;
    }
    if (isFirst) yield withOurs({ sessionUpdate: "session_info_update" }, facts);
  }

  /** Yields what is left to say of an entry that the client was shown while it came: its ids and facts. */
  *factsAbout(item: PathEntry): Generator<AcpUpdate> {
    yield* this.before(item);
    for (const _ of this.told(item));
    yield withOurs({ sessionUpdate: "session_info_update" }, { ...idsOf(item), ...factsOf(item) });
  }

  /** Counts an entry, and yields what was left to say before it. */
  private *before(item: PathEntry): Generator<AcpUpdate> {
    this.cost += amountOf(membersOf(membersOf(usageIn(item.entry)).cost).total);
    if (!speaks(item)) return;
    // Whatever comes now is after the results of the answer before.
    yield* this.rest(false);
    this.calls = [];
  }

  /** Forgets ids of calls that were told of and never came into the session. */
  forgetClaims(): void {
    this.claimed = [];
  }

  /** Returns the id of a call that is told before it is in the session, by the id that its agent gave it. */
  claim(wanted: string): string {
    let id = wanted;
    for (let n = 2; id === "" || this.used.has(id); n++) id = `${wanted}~${n}`;
    this.used.add(id);
    this.claimed.push({ wanted, id });
    return id;
  }

  /**
   * Yields what is left to say where the path ends for now. Calls that nobody works on any more count as failed, because
   * clients show others as running.
   */
  *rest(isWorkedOn: boolean): Generator<AcpUpdate> {
    yield* this.waitingResults();
    if (!isWorkedOn) yield* this.givenUp();
  }

  private *told(item: PathEntry): Generator<AcpUpdate> {
    const { entry, id } = item;
    const summary = textMember(entry, "summary") ?? "";
    if (entry.damaged === true && entry.message === undefined)
      return yield* spoken(id, "[This part of the conversation is damaged and cannot be read.]", { kind: "damaged" });
    switch (entry.type) {
      case "message":
        return yield* this.message(item, membersOf(entry.message));
      case "custom_message":
        return yield* this.custom(id, entry);
      case "compaction":
        return yield* this.compaction(id, summary);
      case "branch_summary":
        return yield* spoken(id, `Summary of another branch:\n\n${summary}`, { kind: "branch_summary" });
      case "session_info":
        yield { sessionUpdate: "session_info_update", title: textMember(entry, "name") ?? null };
    }
  }

  private *message(item: PathEntry, message: LooseMembers): Generator<AcpUpdate> {
    const { id } = item;
    switch (message.role) {
      case "user":
        return yield* chunks("user_message_chunk", id, message.content);
      case "assistant":
        return yield* this.answer(item, message);
      case "toolResult":
        return yield* this.result(item, message);
      case "bashExecution":
        return yield* ran(id, message);
      case "custom":
        return yield* this.custom(id, message);
      case "compactionSummary":
        return yield* this.compaction(id, stringOf(message.summary));
      case "branchSummary":
        return yield* spoken(id, `Summary of another branch:\n\n${stringOf(message.summary)}`, {
          kind: "branch_summary",
        });
      case "system":
        return;
      default:
        yield* chunks("agent_message_chunk", id, message.content);
    }
  }

  private *custom(id: string, message: LooseMembers): Generator<AcpUpdate> {
    if (message.display !== false) yield* chunks("agent_message_chunk", id, message.content);
  }

  private *compaction(id: string, summary: string): Generator<AcpUpdate> {
    if (this.skills.compaction) {
      const blocks = [...shownBlocks(summary)].map(({ block }) => block);
      yield { sessionUpdate: "compaction_update", compactionId: id, status: "completed", summary: blocks };
    } else
      yield* spoken(id, `The model sees a summary of the conversation up to here:\n\n${summary}`, {
        kind: "compaction",
      });
  }

  private *answer(item: PathEntry, message: LooseMembers): Generator<AcpUpdate> {
    const { id } = item;
    for (const block of blocksOf(message.content)) {
      if (block.type === "toolCall") yield* this.call(item, block);
      else if (block.type === "thinking") {
        const content = { type: "text", text: stringOf(block.thinking) };
        yield* chunks("agent_thought_chunk", id, block.redacted === true ? [] : [content]);
      } else if (block.type !== "redactedThinking") yield* chunks("agent_message_chunk", id, [block]);
    }
    const error = stringOf(message.errorMessage);
    if (error !== "") yield* spoken(id, error, { kind: "error" });
  }

  private *call(item: PathEntry, block: LooseMembers): Generator<AcpUpdate> {
    const name = stringOf(block.name);
    const given = block.arguments;
    const call = {
      id: stringOf(block.id),
      toolCallId: this.freshId(stringOf(block.id), `${item.id}/${this.calls.length}`),
      name,
      arguments: given,
      ids: idsOf(item),
      isAnswered: false,
      isGivenUp: false,
    };
    this.calls.push(call);
    yield callUpdate(call, this.cwd);
    const entries = planOf(name, given);
    if (entries) yield { sessionUpdate: "plan", entries };
  }

  private *result(item: PathEntry, message: LooseMembers): Generator<AcpUpdate> {
    const id = stringOf(message.toolCallId);
    const exact = id === "" ? undefined : this.calls.find((call) => !call.isAnswered && call.id === id);
    if (exact) return yield this.answered(exact, message);
    const open = this.calls.filter(({ isAnswered }) => !isAnswered);
    if (open.length > 0 && (id === "" || open.some((call) => call.id === ""))) {
      this.waiting.push({ item, message });
      return;
    }
    yield this.lone(item.id, message);
  }

  /** Yields the results that name no call, each of the call that is left for it. */
  private *waitingResults(): Generator<AcpUpdate> {
    const { waiting } = this;
    if (waiting.length === 0) return;
    this.waiting = [];
    const open = this.calls.filter(({ isAnswered }) => !isAnswered);
    const answers = pairUp(
      open,
      waiting.map(({ message }) => stringOf(message.toolCallId)),
    );
    for (const [index, { item, message }] of waiting.entries()) {
      const call = open[answers[index]];
      yield withOurs(call ? this.answered(call, message) : this.lone(item.id, message), idsOf(item));
    }
  }

  private *givenUp(): Generator<AcpUpdate> {
    for (const call of this.calls) {
      if (call.isAnswered || call.isGivenUp) continue;
      call.isGivenUp = true;
      yield withOurs(givenUpUpdate(call.toolCallId), { ...call.ids, kind: "no_result" });
    }
  }

  private answered(call: OpenCall, message: LooseMembers): AcpUpdate {
    call.isAnswered = true;
    return resultUpdate(call, message, this.cwd);
  }

  /** Returns a result whose call is not on the path, as a call that is over. */
  private lone(entryId: string, message: LooseMembers): AcpUpdate {
    const name = stringOf(message.toolName);
    return {
      sessionUpdate: "tool_call",
      toolCallId: this.freshId("", entryId),
      title: titleOf(name, undefined),
      ...(name === "" ? {} : { name }),
      kind: kindOf(name),
      status: message.isError === true ? "failed" : "completed",
      content: contentsOf(message.content),
      ...(message.details === undefined ? {} : { rawOutput: message.details }),
    };
  }

  /** Returns an id that no other call has: the wanted one, or else one that the entry gives. */
  private freshId(wanted: string, otherwise: string): string {
    const at = this.claimed.findIndex((call) => call.wanted === wanted);
    if (at >= 0) return this.claimed.splice(at, 1)[0].id;
    let id = wanted === "" ? otherwise : wanted;
    for (let n = 0; this.used.has(id); n++) id = n === 0 ? otherwise : `${otherwise}/${n}`;
    this.used.add(id);
    return id;
  }
}

/** Yields a user's command and its output as a call that is over. */
function* ran(id: string, message: LooseMembers): Generator<AcpUpdate> {
  const command = stringOf(message.command);
  const output = stringOf(message.output);
  const { exitCode, cancelled, truncated, fullOutputPath, excludeFromContext } = message;
  const hasFailed = cancelled === true || (typeof exitCode === "number" && exitCode !== 0);
  yield {
    sessionUpdate: "tool_call",
    toolCallId: id,
    title: preview(command, 200) || "command",
    kind: "execute",
    status: hasFailed ? "failed" : "completed",
    content: output === "" ? [] : [textContent(output)],
    rawInput: { command },
    rawOutput: { exitCode, cancelled, truncated, fullOutputPath, excludeFromContext },
  };
}

/** Yields the blocks of a content as chunks of one message. */
function* chunks(sessionUpdate: string, messageId: string, content: unknown): Generator<AcpUpdate> {
  for (const { block, unknown } of shownBlocks(content)) {
    const update = { sessionUpdate, messageId, content: block };
    yield unknown ? withOurs(update, { block: unknown }) : update;
  }
}

/** Yields what is no answer of the model and yet to be read, marked as such. */
function* spoken(messageId: string, text: string, mark: LooseMembers): Generator<AcpUpdate> {
  for (const { block } of shownBlocks(text))
    yield withOurs({ sessionUpdate: "agent_message_chunk", messageId, content: block }, mark);
}

/** Returns an update with these among our members of its `_meta`. */
export function withOurs(update: AcpUpdate, ours: LooseMembers): AcpUpdate {
  const before = membersOf(membersOf(update._meta)[OURS]);
  return { ...update, _meta: { [OURS]: { ...ours, ...before } } };
}

/** Whether an entry is an answer of the model, with which the results of the one before end. */
function speaks({ entry }: PathEntry): boolean {
  return entry.type === "message" && membersOf(entry.message).role === "assistant";
}

function idsOf({ id, parentId }: PathEntry): { entryId: string; parentId: string | null } {
  return { entryId: id, parentId };
}

/** Members of entries, and of messages, that clients may want and that the protocol has no place for. */
const ENTRY_FACTS = ["type", "timestamp", "customType", "targetId", "label", "provider", "modelId", "thinkingLevel"];
const MESSAGE_FACTS = ["role", "customType", "provider", "model", "stopReason", "usage"];

/** Returns the facts of an entry that its updates do not show. */
function factsOf({ entry, siblings }: PathEntry): LooseMembers {
  const facts: Record<string, unknown> = {};
  const message = membersOf(entry.message);
  for (const [names, members] of [
    [ENTRY_FACTS, entry],
    [MESSAGE_FACTS, message],
  ] as const)
    for (const name of names) if (isSmall(members[name])) facts[name] = members[name];
  if (siblings > 1) facts.siblings = siblings;
  return facts;
}

/** Whether a value is one that may be repeated beside each message. */
function isSmall(value: unknown): boolean {
  if (value === undefined || value === null) return false;
  return typeof value === "object" ? shownText(value).length < 2048 : typeof value !== "string" || value.length < 512;
}
