/** The work on one file of Claude Code's. */

import {
  isObject,
  type JsonObject,
  makeToolResultMessage,
  makeUserMessage,
  NO_TIME,
  NO_USAGE,
  toText,
  toTimestamp,
} from "../../../../core/foreign/messages.ts";
import { toBytes } from "../../../../core/json/json.ts";
import { getOwnName } from "../file-name.ts";
import {
  type AboutSession,
  makeRawVerdict,
  type PendingEntries,
  type RecordVerdict,
  type SourceRecord,
  type Translation,
  type TranslationTools,
} from "../translator.ts";
import { chainEntries } from "../turns.ts";
import {
  detectClaudeHarness,
  getClaudeBlocks,
  joinTextBlocks,
  translateAnswerBlock,
  translateUserBlock,
} from "./blocks.ts";
import { ClaudeFacts, ClaudeLeaf, Titles } from "./facts.ts";
import { EarlyRecords, type WaitingRecord } from "./order.ts";
import { getChainName, getRecordUuid, type Sidechain, Sidechains, SPOKEN } from "./side-chains.ts";
import {
  type AnswerStep,
  type CompactBoundary,
  findKeptEntry,
  getAnsweredCalls,
  getStepItems,
  makeCompactionItem,
  parseBoundary,
  parseClaudeUsage,
  type RecordPlace,
  type StepItem,
} from "./step.ts";

/** A record that continues another, as far as all of them have the same members. */
interface NodeRecord {
  readonly source: SourceRecord;
  readonly record: JsonObject;
  readonly uuid: string;
  readonly at: string;
}

/** Side chains that lists and imports know of one file: a hostile file may have as many as it has records. */
const MOST_CHAINS = 1000;

export class ClaudeTranslation implements Translation {
  private readonly tools: TranslationTools;
  private readonly places = new Map<string, RecordPlace>();
  /** Bytes of the record with a uuid: another length means another record, an equal one a repeated record. */
  private readonly lengths = new Map<string, number>();
  /** The last entry of each record with results. */
  private readonly resultEnds = new Map<string, string>();
  private readonly root: RecordPlace = { first: null, end: null, parent: null, calls: false };
  /** The place of the last record of the conversation. Records about the session come after it. */
  private last = this.root;
  private step: AnswerStep | null = null;
  private boundary: CompactBoundary | null = null;
  /** Names of the tools that were called, by the ids of the calls. */
  private readonly toolNames = new Map<string, string>();
  /** API messages whose usage was counted. */
  private readonly counted = new Set<string>();
  private readonly titles = new Titles();
  /** Records about the session that were kept, the last of each type. */
  private readonly latest = new Map<string, string>();
  private readonly copies = new Map<string, number>();
  private readonly leaf = new ClaudeLeaf(this.places);
  private lastId: string | null = null;
  private time = NO_TIME;
  private readonly facts = new ClaudeFacts();
  /** True if records name the one that they continue; undefined until that is known. */
  private namesParents: boolean | undefined;
  private readonly chains: Sidechains;
  private readonly chainNames: string[] = [];
  /** Takes the records of side chains, only to report their fidelity. */
  private sidechain: ClaudeTranslation | undefined;
  /** The name of the subagent, in a file of one. */
  private agentName: string | undefined;

  private readonly early: EarlyRecords;

  /** `isAgents`: see {@link Sidechains}. */
  constructor(tools: TranslationTools, isAgents?: boolean) {
    this.tools = tools;
    this.chains = new Sidechains(tools.name, isAgents);
    this.early = new EarlyRecords(tools);
  }

  private get isAgents(): boolean {
    return this.chains.isAgents === true;
  }

  take(source: SourceRecord): RecordVerdict {
    const record = source.value;
    if (!isObject(record)) return makeRawVerdict("(no object)");
    const type = toText(record.type) ?? "(no type)";
    this.facts.note(record);
    const uuid = getRecordUuid(source, record, type);
    if (uuid === undefined) return this.takeMetadata(source, record, type);
    const chain = this.chains.of(source);
    if (chain) return this.takeSidechainRecord(source, record, chain);
    if (this.isAgents) this.agentName ??= getChainName(record, uuid, source.number);
    const length = source.bytes.length;
    if (this.places.has(uuid) && this.lengths.get(uuid) === length) return { kind: type, fidelity: "preserved" };
    if (this.early.hold(source, record, uuid, (parent) => this.isKnown(parent))) {
      const first = this.early.openCircle(uuid);
      if (!first) return { kind: type, fidelity: "preserved" };
      this.takeHeld([first, ...this.early.after(first.uuid)]);
      const warning = "It and records before it continue each other, in a circle. The first of them begins it.";
      return { kind: type, fidelity: "preserved", warning };
    }
    try {
      return this.takeSpoken(source, record, uuid, type);
    } finally {
      this.takeHeld(this.early.after(uuid));
    }
  }

  private takeHeld(held: Iterable<WaitingRecord>): void {
    for (const one of held)
      try {
        this.takeSpoken(one.source, one.record, one.uuid, one.type);
      } catch {
        this.keep(one.source);
      }
  }

  private takeSpoken(source: SourceRecord, record: JsonObject, uuid: string, type: string): RecordVerdict {
    const { length } = source.bytes;
    this.time = toTimestamp(record.timestamp, this.time);
    const node: NodeRecord = { source, record, uuid, at: this.time };
    const again = this.places.has(uuid)
      ? `${type} has the uuid of an earlier record and is another version of it.`
      : undefined;
    const verdict = this.takeNode(node, type);
    this.lengths.set(uuid, length);
    if (SPOKEN.has(type)) this.leaf.note(uuid, node.at);
    return again === undefined || verdict.warning !== undefined ? verdict : { ...verdict, warning: again };
  }

  keep(source: SourceRecord, members = this.rawMembers(source)): void {
    this.add(this.rawItem(source, members));
  }

  pending(): PendingEntries {
    const { step, boundary } = this;
    const entries = step ? chainEntries(getStepItems(step), step.place.parent?.end ?? null) : [];
    if (boundary) {
      const items = [boundary.raw, ...boundary.after.map(({ item }) => item)];
      return { entries: chainEntries(items, boundary.parent.end), isPartial: true };
    }
    return { entries, isPartial: step !== null && step.stopReason === null && step.results.length === 0 };
  }

  about(): AboutSession {
    const { agentName, chainNames } = this;
    const waiting = this.pending().entries;
    const lastId = waiting.at(-1)?.id ?? this.lastId;
    const leaf = this.leaf.place;
    const leafId = leaf !== null && leaf === this.step?.place ? lastId : leaf?.end;
    return {
      ...this.facts.about(getOwnName(this.tools.name), agentName),
      leafId: leaf === null || leafId === lastId ? undefined : (leafId ?? null),
      inner: chainNames.length === 0 ? undefined : [...chainNames],
    };
  }

  /**
   * Leaves a record to the session of its side chain. An entry marks the beginning of that session, and the report has
   * the fidelity of the record there.
   */
  private takeSidechainRecord(source: SourceRecord, record: JsonObject, { name, isNew }: Sidechain): RecordVerdict {
    const { tools } = this;
    const isKnown = !isNew || this.chainNames.length < MOST_CHAINS;
    if (isNew) {
      if (isKnown) this.chainNames.push(name);
      const at = toTimestamp(record.timestamp, this.time);
      const id = tools.ids.entry(`sidechain:${name}`);
      this.add({ type: "custom", id, timestamp: at, members: { customType: "claude:sidechain", data: { id: name } } });
    }
    if (tools.isSurvey) return { kind: "sidechain", fidelity: "preserved" };
    const ids = { entry: (nativeId: string): string => nativeId };
    this.sidechain ??= new ClaudeTranslation({ ...tools, ids, emit: () => {} }, true);
    const value = isNew ? { ...record, parentUuid: null } : record;
    const verdict = this.sidechain.take({ ...source, value });
    const many = `The file has more than ${MOST_CHAINS} side chains. Open this one and those after it by their paths.`;
    return { ...verdict, kind: `sidechain/${verdict.kind}`, warning: isKnown ? verdict.warning : many };
  }

  isOvertaken(): boolean {
    return this.early.isOvertaken;
  }

  /** True if a record is known that others continue. */
  private isKnown(uuid: string): boolean {
    const { boundary, places } = this;
    const isFirst = this.isAgents && places.size === 0;
    return (
      isFirst ||
      places.has(uuid) ||
      uuid === boundary?.uuid ||
      boundary?.after.some((one) => one.uuid === uuid) === true
    );
  }

  // --- the tree ------------------------------------------------------------------------------------------------

  private takeNode(node: NodeRecord, type: string): RecordVerdict {
    const { record } = node;
    if (type === "assistant" && isObject(record.message)) return this.takeAnswer(node, record.message);
    if (type === "user" && isObject(record.message)) return this.takeGiven(node, record.message);
    if (type === "system" && record.subtype === "compact_boundary") return this.takeBoundary(node);
    const kind = typeof record.subtype === "string" ? `${type}/${record.subtype}` : type;
    const item = this.rawItem(node.source, this.rawMembers(node.source), node.uuid);
    if (this.boundary) {
      this.boundary.after.push({ uuid: node.uuid, item });
      return { kind, fidelity: "preserved" };
    }
    const parent = this.parentOf(node);
    if (this.step && parent.place === this.step.place) {
      this.places.set(node.uuid, this.step.place);
      this.step.after.push(item);
      return { kind, fidelity: "preserved" };
    }
    this.put(node, parent.place, [item]);
    return { kind, fidelity: "preserved", ...parent.warning };
  }

  /** Returns the place that a record continues. One whose parent is not there continues the last before it. */
  private parentOf({ record }: NodeRecord, isReply = false): { place: RecordPlace; warning: { warning?: string } } {
    const { parentUuid, logicalParentUuid } = record;
    if (parentUuid === null) {
      // In a file whose records have no parents, no record is a reply: programs wrote such files.
      const isOfChain = logicalParentUuid === undefined;
      if (isReply && isOfChain && this.last !== this.root) this.namesParents ??= false;
      if (this.namesParents !== false || !isOfChain) return { place: this.root, warning: {} };
      return { place: this.last, warning: {} };
    }
    // The oldest versions, and programs that write such files, name no session.
    if (parentUuid === undefined) return { place: this.last, warning: {} };
    this.namesParents ??= true;
    const place = typeof parentUuid === "string" ? this.places.get(parentUuid) : undefined;
    // A side chain may begin with a record that continues one of the session.
    if (place || (this.isAgents && this.places.size === 0)) return { place: place ?? this.root, warning: {} };
    const warning =
      "The record before it is not in the file, or comes after it. It continues the one that is written before it.";
    return { place: this.last, warning: { warning } };
  }

  /** Emits entries for a record, and remembers its place. */
  private put({ uuid, record }: NodeRecord, parent: RecordPlace, items: readonly StepItem[]): void {
    this.settle();
    const answers = parent.calls ? getAnsweredCalls(items) : undefined;
    const isAgain = answers?.some((id) => parent.answered?.has(id)) === true;
    const after = this.resultEnds.get(toText(record.parentUuid) ?? "") ?? parent.first;
    const entries = chainEntries(items, isAgain ? after : parent.end);
    for (const entry of entries) this.tools.emit(entry);
    const end = entries.at(-1)?.id ?? parent.end;
    this.lastId = end ?? this.lastId;
    if (answers && end !== null) this.resultEnds.set(uuid, end);
    if (answers && !isAgain) {
      parent.end = end;
      parent.answered ??= new Set();
      for (const id of answers) parent.answered.add(id);
      this.places.set(uuid, parent);
      this.last = parent;
      return;
    }
    // Further results of a branch come behind its own.
    const branch = isAgain ? { calls: true, answered: new Set(answers) } : { calls: false };
    const place: RecordPlace = { first: entries[0]?.id ?? parent.first, end, parent, ...branch };
    this.places.set(uuid, place);
    this.last = place;
  }

  /** Adds an entry outside the conversation behind the last written one. */
  private add(item: StepItem): void {
    if (this.step) {
      this.step.after.push(item);
      return;
    }
    const { last } = this;
    this.tools.emit({ ...item, parentId: last.end });
    last.end = item.id;
    this.lastId = item.id;
  }

  /** Emits the pending entries. */
  private settle(): void {
    const { step, boundary } = this;
    this.step = null;
    this.boundary = null;
    if (step) {
      for (const entry of chainEntries(getStepItems(step), step.place.parent?.end ?? null)) {
        this.tools.emit(entry);
        step.place.end = entry.id;
        this.lastId = entry.id;
      }
      if (step.messageId !== undefined) this.counted.add(step.messageId);
    }
    if (boundary) this.putCompaction(boundary, "", null);
  }

  // --- the conversation ----------------------------------------------------------------------------------------

  private takeAnswer(node: NodeRecord, message: JsonObject): RecordVerdict {
    const { record, uuid, at } = node;
    const kind = "assistant";
    const messageId = toText(message.id);
    const blocks = getClaudeBlocks(message.content);
    let warning: { warning?: string } = {};
    if (!this.step || messageId === undefined || this.step.messageId !== messageId || this.places.has(uuid)) {
      const parent = this.parentOf(node, true);
      warning = parent.warning;
      this.settle();
      const isNew = messageId === undefined || !this.counted.has(messageId);
      const first = this.tools.ids.entry(this.places.has(uuid) ? `${uuid}#${node.source.bytes.length}` : uuid);
      const isError = record.isApiErrorMessage === true;
      this.step = {
        place: { first, end: first, parent: parent.place, calls: false },
        messageId,
        model: toText(message.model) ?? "unknown",
        at,
        content: [],
        callIds: new Set(),
        usage: isNew ? parseClaudeUsage(message, record) : NO_USAGE,
        stopReason: null,
        error: isError ? joinTextBlocks(blocks) : undefined,
        results: [],
        after: [],
      };
    } else if (!this.counted.has(messageId)) this.step.usage = parseClaudeUsage(message, record);
    const { step } = this;
    for (const block of blocks) {
      step.content.push(translateAnswerBlock(block));
      if (block.type !== "tool_use" || typeof block.id !== "string") continue;
      step.callIds.add(block.id);
      step.place.calls = true;
      this.toolNames.set(block.id, toText(block.name) ?? "");
    }
    step.stopReason = toText(message.stop_reason) ?? step.stopReason;
    this.places.set(uuid, step.place);
    this.last = step.place;
    return { kind, fidelity: "preserved", ...warning };
  }

  private takeGiven(node: NodeRecord, message: JsonObject): RecordVerdict {
    const { record, uuid, at } = node;
    const blocks = getClaudeBlocks(message.content);
    const results = blocks.filter(({ type }) => type === "tool_result");
    if (record.isCompactSummary === true) return this.takeSummary(node, joinTextBlocks(blocks));
    const rest = blocks.filter(({ type }) => type !== "tool_result");
    const items: StepItem[] = results.map((block, index) => this.resultItem(node, block, index));
    const said = this.saidItem(node, message, rest, results.length > 0);
    const kind =
      results.length > 0 ? "user/tool_result" : said?.kind === "user" ? "user" : `user/${said?.kind ?? "empty"}`;
    const { step } = this;
    if (
      step &&
      results.some(({ tool_use_id }) => step.callIds.has(toText(tool_use_id) ?? "")) &&
      !results.some(({ tool_use_id }) => step.place.answered?.has(toText(tool_use_id) ?? "")) &&
      !this.places.has(uuid)
    ) {
      step.results.push(...items);
      this.resultEnds.set(uuid, items[items.length - 1].id);
      step.place.answered ??= new Set();
      for (const { tool_use_id } of results) step.place.answered.add(toText(tool_use_id) ?? "");
      if (said) step.after.push(said.item);
      this.places.set(uuid, step.place);
      this.last = step.place;
      return { kind, fidelity: "preserved" };
    }
    const { place, warning } = this.parentOf(node, results.length > 0);
    if (said) items.push(said.item);
    if (items.length === 0) items.push(this.item("message", uuid, at, makeUserMessage("", at)));
    this.put(node, place, items);
    return { kind, fidelity: "preserved", ...warning };
  }

  private resultItem({ record, uuid, at }: NodeRecord, block: JsonObject, index: number): StepItem {
    const toolCallId = toText(block.tool_use_id) ?? "";
    const details = index === 0 ? record.toolUseResult : undefined;
    const message = makeToolResultMessage({
      toolCallId,
      toolName: this.toolNames.get(toolCallId) ?? "",
      content: getClaudeBlocks(block.content).map(translateUserBlock),
      isError: block.is_error === true,
      details: typeof details === "string" ? undefined : details,
      at,
    });
    return this.item("message", index === 0 ? uuid : `${uuid}/${index}`, at, message);
  }

  /** Returns the item of a record's content besides results: a person's turn, or the program's text in its place. */
  private saidItem(node: NodeRecord, message: JsonObject, blocks: readonly JsonObject[], hasResults: boolean) {
    const { record, uuid, at } = node;
    if (blocks.length === 0) return undefined;
    const nativeId = hasResults ? `${uuid}/text` : uuid;
    const isText = typeof message.content === "string";
    const content = isText ? message.content : blocks.map(translateUserBlock);
    const harness = detectClaudeHarness(record, joinTextBlocks(blocks));
    if (!harness) return { kind: "user", item: this.item("message", nativeId, at, makeUserMessage(content, at)) };
    const { kind, isShown, isSeenByModel } = harness;
    const customType = `claude:${kind}`;
    const item = isSeenByModel
      ? this.item("custom_message", nativeId, at, { customType, content, display: isShown })
      : this.item("custom", nativeId, at, { customType, data: { content } });
    return { kind, item };
  }

  // --- compactions ---------------------------------------------------------------------------------------------

  private takeBoundary(node: NodeRecord): RecordVerdict {
    this.settle();
    const { source, record, uuid } = node;
    const logical = toText(record.logicalParentUuid);
    const named = logical === undefined ? undefined : this.places.get(logical);
    const parent = named ?? this.parentOf(node).place;
    const raw = this.rawItem(source, this.rawMembers(source));
    this.boundary = {
      ...parseBoundary(record),
      uuid,
      at: node.at,
      parent: parent === this.root ? this.last : parent,
      raw,
      after: [],
    };
    this.leaf.noteCompaction();
    const lost = logical !== undefined && !named;
    const warning =
      "The record that was compacted last is not in the file. The compaction continues the entries before it.";
    return { kind: "system/compact_boundary", fidelity: "derived", warning: lost ? warning : undefined };
  }

  private takeSummary(node: NodeRecord, summary: string): RecordVerdict {
    const kind = "user/compact_summary";
    const { boundary } = this;
    this.boundary = null;
    this.settle();
    if (boundary) this.putCompaction(boundary, summary, node.uuid);
    else {
      const { place } = this.parentOf(node);
      const { uuid, at, source } = node;
      const parent = place === this.root ? this.last : place;
      const raw = this.rawItem(source, this.rawMembers(source));
      this.putCompaction(
        { uuid, at, parent, kept: [], tokensBefore: 0, details: undefined, raw, after: [] },
        summary,
        null,
      );
    }
    return { kind, fidelity: "derived" };
  }

  private putCompaction(boundary: CompactBoundary, summary: string, summaryUuid: string | null): void {
    const { uuid, parent } = boundary;
    const id = this.tools.ids.entry(uuid);
    const kept = findKeptEntry(boundary, this.places) ?? id;
    this.tools.emit({ ...makeCompactionItem(boundary, id, summary, kept), parentId: parent.end });
    const place: RecordPlace = { first: id, end: id, parent, calls: false };
    for (const { uuid: other, item } of boundary.after) {
      this.tools.emit({ ...item, parentId: place.end });
      place.end = item.id;
      this.places.set(other, place);
    }
    this.places.set(uuid, place);
    if (summaryUuid !== null) this.places.set(summaryUuid, place);
    this.last = place;
    this.lastId = place.end;
    this.leaf.noteCompaction(boundary.at, place);
  }

  private takeMetadata(source: SourceRecord, record: JsonObject, type: string): RecordVerdict {
    if (type === "last-prompt") this.leaf.noteNamed(record);
    const title = this.titles.take(type, record, (uuid) => this.places.has(uuid));
    if (title !== undefined) {
      if (title !== null) this.add(this.rawItem(source, { name: title }, undefined, "session_info"));
      return { kind: type, fidelity: title === null ? "preserved" : "derived" };
    }
    // Most of these are written again and again as they are.
    const sum = this.tools.sha256(source.bytes);
    if (this.latest.get(type) === sum) return { kind: type, fidelity: "preserved" };
    this.latest.set(type, sum);
    return makeRawVerdict(type);
  }

  private rawMembers({ bytes }: SourceRecord): JsonObject {
    return { customType: "import:claude", data: new Uint8Array(bytes) };
  }

  /** Returns an entry for a record as it is. Records that are written several times get an id for each time. */
  private rawItem({ bytes }: SourceRecord, members: JsonObject, uuid?: string, type = "custom"): StepItem {
    if (uuid !== undefined && !this.places.has(uuid)) return this.item(type, uuid, this.time, members);
    const sum = this.tools.sha256(bytes);
    const nth = (this.copies.get(sum) ?? 0) + 1;
    this.copies.set(sum, nth);
    return { type, id: this.tools.ids.entry(`raw:${sum}:${nth}`), timestamp: this.time, members };
  }

  /** Returns an item for a record; another version of a record that was there gets an id of its own. */
  private item(type: string, nativeId: string, timestamp: string, members: JsonObject): StepItem {
    const [uuid] = nativeId.split("/");
    const id = this.places.has(uuid) ? `${nativeId}#${this.tools.sha256(toBytes(JSON.stringify(members)))}` : nativeId;
    return { type, id: this.tools.ids.entry(id), timestamp, members };
  }
}
