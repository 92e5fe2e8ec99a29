/**
 * Writes a session as Claude Code's files have it: a tree of records with a `uuid`, each naming the one that it
 * continues, with the boundaries of compactions, and the leaf. Claude Code reads from the leaf up to the first
 * boundary, and the entries that this boundary keeps.
 */

import { findFirstKept } from "../../../../core/context/context.ts";
import { isObject, type JsonObject, toCount, toText } from "../../../../core/foreign/messages.ts";
import { getContentText, toNumber, toStored } from "../../../../core/format/message.ts";
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
import { getHarnessMembers, isFromClaude, toClaudeBlocks, toClaudeUserBlocks } from "./claude-blocks.ts";

/** The version whose files were studied. */
const VERSION = "2.1.270";

const STOP_REASONS: Readonly<Record<string, string>> = {
  stop: "end_turn",
  length: "max_tokens",
  toolUse: "tool_use",
};

/** Ids that the provider takes. */
const CALL_ID = /^[A-Za-z0-9_-]{1,64}$/;

/** Bits for the records of an entry: any record, a first one before the main one, a boundary. */
const WRITTEN = 1;
const IN_TWO = 2;
const BOUNDARY = 4;

export class ClaudeFormat implements AgentFormat {
  readonly agent = "claude";
  cursor: string | null = null;
  private readonly options: AgentFormatOptions;
  /** The bits above of each entry, by position. */
  private readonly written: Uint8Array;
  private readonly names: OutgoingEntry[] = [];
  /** True if the session is one of Claude Code, so that the Claude Code members of its entries are its own. */
  private readonly isOwn: boolean;
  private lastPrompt = "";

  constructor(options: AgentFormatOptions) {
    this.options = options;
    const { header, nodes } = options.session.log;
    this.written = new Uint8Array(nodes.count);
    const from = (header as JsonObject).importedFrom;
    this.isOwn = isObject(from) && from.agent === this.agent;
  }

  callId(ownId: string): string | undefined {
    return CALL_ID.test(ownId) ? ownId : undefined;
  }

  newCallId(unique: string): string {
    return `toolu_${this.uuid(unique, "call").replaceAll("-", "").slice(0, 24)}`;
  }

  begin(): readonly JsonObject[] {
    return [];
  }

  warnings(): readonly string[] {
    const sentence =
      "Nothing is written on the path to the leaf. Claude Code has no such place and continues the newest record.";
    return this.cursor === null && this.written.some((bits) => bits > 0) ? [sentence] : [];
  }

  end(): readonly JsonObject[] {
    const { sessionId } = this.options;
    const { name } = this.options.session;
    const names = this.names.sort((a, b) => a.position - b.position).map(({ entry }) => toText(entry.name) ?? "");
    // It may have been given on a branch that is left out.
    if (name !== null && names.at(-1) !== name) names.push(name);
    const records: JsonObject[] = names.map((customTitle) => ({ type: "custom-title", customTitle, sessionId }));
    const { cursor: leafUuid, lastPrompt } = this;
    if (leafUuid !== null) records.push({ type: "last-prompt", lastPrompt, leafUuid, explicit: true, sessionId });
    return records;
  }

  entry(entry: OutgoingEntry, calls: readonly OutgoingCall[]): Outgoing {
    const made = this.made(entry, calls);
    if (made.records.length > 0) this.written[entry.position] |= WRITTEN;
    return made;
  }

  private made(entry: OutgoingEntry, calls: readonly OutgoingCall[]): Outgoing {
    const { type } = entry.entry;
    if (type === "message") return this.message(entry, calls);
    if (type === "custom_message") return this.customMessage(entry);
    if (type === "compaction") return this.compaction(entry);
    if (type === "branch_summary") {
      const summary = toStored(entry.entry.summary);
      if (summary === "") return dropEntry();
      const losses = new Losses();
      losses.note();
      const content = `A summary of another branch of this conversation:\n\n${summary}`;
      return losses.outgoing([this.given(entry, { isMeta: true }, content)]);
    }
    if (type === "session_info") {
      this.names.push(entry);
      // It is written at the end: the last one counts.
      return { records: [], fidelity: typeof entry.entry.name === "string" ? "preserved" : "dropped" };
    }
    if (type === "custom") return this.custom(entry);
    if (type === "context_edit") return { records: [], fidelity: "derived" };
    return dropEntry();
  }

  // --- the conversation ----------------------------------------------------------------------------------------

  private message(entry: OutgoingEntry, calls: readonly OutgoingCall[]): Outgoing {
    const message = entry.message as JsonObject;
    const { role } = message;
    if (role === "assistant") return this.answer(entry, message, calls);
    if (role === "bashExecution") return this.bash(entry, message);
    if (role !== "user")
      return dropEntry(`Claude Code has no place for a message of the role ${String(role).slice(0, 40)}.`);
    const losses = new Losses();
    const content = toClaudeUserBlocks(message.content, losses);
    if (content.length === 0) return dropEntry("Nothing is left of it that Claude Code can have.");
    this.lastPrompt = getContentText(message.content).slice(0, 200);
    const isText = typeof message.content === "string";
    return losses.outgoing([this.given(entry, { origin: { kind: "human" } }, isText ? message.content : content)]);
  }

  private answer(entry: OutgoingEntry, message: JsonObject, calls: readonly OutgoingCall[]): Outgoing {
    const losses = new Losses();
    const { usage, stopReason, errorMessage, model } = message;
    const content: JsonObject[] = toClaudeBlocks(message, calls, losses);
    const saysNothing = content.every(({ type }) => type === "thinking" || type === "redacted_thinking");
    const reason = toText(errorMessage);
    const error = reason?.trim() === "" ? undefined : reason;
    if (saysNothing && (stopReason !== "error" || error === undefined)) {
      return dropEntry(content.length > 0 ? "It has thoughts only, which providers refuse." : undefined);
    }
    const isError = saysNothing;
    if (isError || error !== undefined || stopReason === "aborted" || stopReason === "error") losses.note();
    const spent = isObject(usage) ? usage : {};
    const cost = isObject(spent.cost) ? toCount(spent.cost.total) : 0;
    const record = this.node(entry, "assistant", "", {
      message: {
        id: `msg_${this.uuid(entry.id, "message").replaceAll("-", "").slice(0, 24)}`,
        type: "message",
        role: "assistant",
        model: isError ? "<synthetic>" : (toText(model) ?? "unknown"),
        content: isError ? [{ type: "text", text: error }] : content,
        stop_reason: STOP_REASONS[toStored(stopReason)] ?? "end_turn",
        stop_sequence: null,
        usage: {
          input_tokens: toCount(spent.input),
          cache_creation_input_tokens: toCount(spent.cacheWrite),
          cache_read_input_tokens: toCount(spent.cacheRead),
          output_tokens: toCount(spent.output),
        },
      },
      ...(cost > 0 ? { costUSD: cost } : {}),
      ...(isError ? { isApiErrorMessage: true } : {}),
    });
    return losses.outgoing([record]);
  }

  result({ call, result, lostAt }: OutgoingResult): Outgoing {
    const losses = new Losses();
    const members: JsonObject = { tool_use_id: call.id, type: "tool_result" };
    if (!result) {
      const { id, at, number } = lostAt as NonNullable<typeof lostAt>;
      const content = [{ ...members, content: LOST_RESULT, is_error: true }];
      const record = this.node({ id, at }, "user", `lost${number}`, { message: { role: "user", content } });
      return losses.outgoing([record]);
    }
    const message = result.message as JsonObject;
    const content = toClaudeUserBlocks(message.content, losses);
    const isError = message.isError === true;
    const { details } = message;
    const hasDetails = this.isOwn && isObject(details);
    if (details !== undefined && !hasDetails) losses.note();
    const block = { ...members, ...(content.length > 0 ? { content } : {}), ...(isError ? { is_error: true } : {}) };
    const record = this.node(result, "user", "", {
      message: { role: "user", content: [block] },
      ...(hasDetails ? { toolUseResult: details } : {}),
    });
    this.written[result.position] |= WRITTEN;
    return losses.outgoing([record]);
  }

  private customMessage(entry: OutgoingEntry): Outgoing {
    const losses = new Losses();
    const { customType, details } = entry.entry;
    const said = entry.message?.content ?? entry.entry.content;
    const content = toClaudeUserBlocks(said, losses);
    if (content.length === 0) return dropEntry();
    const { members, isKnown } = getHarnessMembers(toStored(customType), getContentText(content));
    if (!isKnown || details !== undefined) losses.note();
    return losses.outgoing([this.given(entry, members, typeof said === "string" ? said : content)]);
  }

  /** Returns a command that a person ran in Claude Code's form: the input and the output. */
  private bash(entry: OutgoingEntry, { command, output, exitCode, excludeFromContext }: JsonObject): Outgoing {
    const losses = new Losses();
    losses.note();
    const hidden = excludeFromContext === true ? { isVisibleInTranscriptOnly: true } : {};
    const failed = toNumber(exitCode) === 0 ? "" : `Exit code ${toNumber(exitCode)}`;
    const came = `<bash-stdout>${toStored(output)}</bash-stdout><bash-stderr>${failed}</bash-stderr>`;
    this.written[entry.position] |= IN_TWO;
    return losses.outgoing([
      this.given(entry, hidden, `<bash-input>${toStored(command)}</bash-input>`, "first"),
      this.given(entry, hidden, came),
    ]);
  }

  /** Returns a record of Claude Code's that was kept as it is, if it is a part of the conversation. */
  private custom(entry: OutgoingEntry): Outgoing {
    const { customType, data } = entry.entry;
    if (customType === "claude:transcript-only" && isObject(data)) {
      const losses = new Losses();
      const content = toClaudeUserBlocks(data.content, losses);
      if (content.length === 0) return dropEntry();
      const said = typeof data.content === "string" ? data.content : content;
      return losses.outgoing([this.given(entry, { isVisibleInTranscriptOnly: true }, said)]);
    }
    if (customType !== "import:claude" || !isFromClaude(data)) return dropEntry();
    const { type, parentUuid: _parent, uuid: _uuid, sessionId: _session, timestamp: _time, ...members } = data;
    return { records: [this.node(entry, type, "", members)], fidelity: "preserved" };
  }

  // --- compactions ---------------------------------------------------------------------------------------------

  private compaction(entry: OutgoingEntry): Outgoing {
    const { entry: stored, position } = entry;
    if (typeof stored.summary !== "string") return dropEntry();
    const losses = new Losses();
    if (stored.systemMessage !== undefined) losses.note("The system message that it carries is left out.");
    const { cursor } = this;
    const head = cursor === null ? undefined : this.firstKept(position, losses);
    const segment =
      head === undefined
        ? {}
        : { preservedSegment: { headUuid: head, anchorUuid: this.uuid(entry.id, ""), tailUuid: cursor } };
    const compactMetadata = { trigger: "manual", preTokens: toCount(stored.tokensBefore), ...segment };
    const about = { subtype: "compact_boundary", content: "Conversation compacted", level: "info", isMeta: false };
    this.cursor = null;
    const boundary = this.node(entry, "system", "first", { ...about, logicalParentUuid: cursor, compactMetadata });
    this.written[position] |= BOUNDARY;
    const marks = { isCompactSummary: true, isVisibleInTranscriptOnly: true };
    return losses.outgoing([boundary, this.given(entry, marks, toSummaryText(stored.summary, losses))]);
  }

  carrying(compaction: readonly JsonObject[], carry: () => readonly JsonObject[]): readonly JsonObject[] {
    return [...compaction, ...carry()];
  }

  /** Returns the uuid of the first record that a compaction keeps; undefined when it keeps none. */
  private firstKept(position: number, losses: Losses): string | undefined {
    const { session, route } = this.options;
    const { tree } = session;
    const { nodes } = session.log;
    const { first } = findFirstKept(tree, session, position);
    if (first === position) return undefined;
    let head: number | undefined;
    for (let at = route.before(position); at >= 0; at = route.before(at)) {
      if ((this.written[at] & BOUNDARY) !== 0) {
        losses.note("It keeps entries from before an earlier compaction, which Claude Code cannot.");
        break;
      }
      // A result whose call is not kept has no place in the context.
      if ((this.written[at] & WRITTEN) !== 0 && nodes.role(at) !== "toolResult") head = at;
      if (at === first) break;
    }
    if (head === undefined) return undefined;
    return this.uuid(nodes.id(head), (this.written[head] & IN_TWO) === 0 ? "" : "first");
  }

  // --- records -------------------------------------------------------------------------------------------------

  private given(entry: OutgoingEntry, members: JsonObject, content: unknown, part = ""): JsonObject {
    return this.node(entry, "user", part, { ...members, message: { role: "user", content } });
  }

  /** Returns a record that continues the one before it. */
  private node(
    { id, at }: Pick<OutgoingEntry, "id" | "at">,
    type: string,
    part: string,
    members: JsonObject,
  ): JsonObject {
    const { session, sessionId } = this.options;
    const uuid = this.uuid(id, part);
    const parentUuid = this.cursor;
    this.cursor = uuid;
    const about = {
      isSidechain: false,
      userType: "external",
      cwd: session.cwd,
      sessionId,
      version: VERSION,
      gitBranch: "",
    };
    // An answer without a message before it: without this record, it looks as if no record named a parent.
    const begins = parentUuid === null && type === "assistant" ? { logicalParentUuid: null } : {};
    return { parentUuid, ...begins, ...about, type, ...members, uuid, timestamp: at };
  }

  private uuid(id: string, part: string): string {
    return deriveUuid(this.options.sha256, this.agent, this.options.sessionId, id, part);
  }
}
