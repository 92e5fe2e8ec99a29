/** Compares two branches: the end of their common part, and the messages, work and cost of each since then. */

import { Files, type SummaryMessage } from "../context/summariser-input.ts";
import type { Entry } from "../format/entry.ts";
import {
  findMainArgument,
  getContentText,
  getToolCalls,
  type ToolCall,
  toPreview,
  toStored,
} from "../format/message.ts";
import { limitMembers } from "../json/few-members.ts";
import { parseAbridged, toJsonText } from "../json/json.ts";
import { ROOT } from "../tree/nodes.ts";
import type { Session } from "./session.ts";
import { addUsage, countMessage, getEntryUsage, makeCounts, mayCost } from "./stats.ts";

/** The last entry of a branch, in its session; ROOT for the place before the first entry. */
export interface BranchEnd {
  readonly session: Session;
  readonly position: number;
}

// --- where they part -----------------------------------------------------------------------------------------------

/** Two branches as positions in their sessions: the common part, by the first session, and then the rest of each. */
export interface Parting {
  readonly common: Int32Array;
  readonly a: Int32Array;
  readonly b: Int32Array;
}

/** Returns the place at which two branches part. In two sessions, the entries that a fork has copied are common. */
export function comparePaths(a: BranchEnd, b: BranchEnd): Parting {
  const left = a.session.tree.path(a.position);
  const right = b.session.tree.path(b.position);
  const isOne = a.session === b.session;
  const [past, pastRight] = isOne ? samePart(left, right) : copiedPart(a.session, left, b.session, right);
  return { common: left.subarray(0, past), a: left.subarray(past), b: right.subarray(pastRight) };
}

/** Returns the end of the common beginning of two paths of one tree in each of them. */
function samePart(a: Int32Array, b: Int32Array): [number, number] {
  let past = 0;
  while (past < a.length && past < b.length && a[past] === b[past]) past++;
  return [past, past];
}

/**
 * Returns the end of the common beginning of two paths in each of them, by the ids of their entries, which copies keep.
 * A fork has no labels of its original, and others of its own. Writers that count their entries give equal ids to
 * entries after a fork too, so the search is for the last entries that are equal.
 */
function copiedPart(one: Session, a: Int32Array, other: Session, b: Int32Array): [number, number] {
  // Depths of entries that both have, in each path.
  const inOne = new Int32Array(b.length);
  const inOther = new Int32Array(b.length);
  let count = 0;
  for (let i = 0; i < b.length; i++) {
    const position = one.find(other.log.nodes.id(b[i]));
    const depth = position < 0 ? -1 : one.tree.depth(position);
    if (depth >= 0 && a[depth] === position) {
      inOne[count] = depth;
      inOther[count++] = i;
    } else if (!other.log.nodes.isType(b[i], "label")) break;
  }
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isCopy(one.entry(a[inOne[middle]]), other.entry(b[inOther[middle]]))) low = middle + 1;
    else high = middle;
  }
  return low === 0 ? [0, 0] : [inOne[low - 1] + 1, inOther[low - 1] + 1];
}

/** Returns whether two entries with one id are the same one, as far as a fork leaves it as it is. */
function isCopy(one: Entry, other: Entry): boolean {
  if (one.damaged === true || other.damaged === true) return one.type === other.type;
  const text = (entry: Entry): string => toJsonText({ ...entry, parentId: null, firstKeptEntryId: null });
  return text(one) === text(other);
}

/** Returns whether one session is the other's original, or both have the same one, by the names in their headers. */
export function areRelated(one: Session, other: Session): boolean {
  const isFrom = (fork: Session, { id, file }: Session): boolean => {
    const { parentSession } = fork;
    return parentSession !== null && (parentSession === file || parentSession.includes(id));
  };
  const isSibling = one.parentSession !== null && one.parentSession === other.parentSession;
  return one.id === other.id || isSibling || isFrom(one, other) || isFrom(other, one);
}

// --- the work of each branch ---------------------------------------------------------------------------------------

/** Bytes of an entry beyond which its texts are cut at `SEEN` bytes before parsing: no outline shows more of them. */
const LONG = 1 << 14;
const SEEN = 4096;
/** Characters of a text that an outline shows, and of the argument of a call. */
const TEXT = 240;
const ARGUMENT = 120;
/** Calls of one message that an outline shows. */
const MOST_CALLS = 20;
/** Limits on names of tools and models, and on files of each kind, in an outline: a reader has no use for more. */
const MOST_NAMES = 200;
const MOST_FILES = 1000;
/** Entries about the session, which are no part of the conversation. */
export const SETTING_TYPES = new Set([
  "label",
  "session_info",
  "model_change",
  "thinking_level_change",
  "custom",
  "context_edit",
]);
/** Returns the id of the last entry up to a position that trees show by default; null if they show none. */
export function getShownId({ log: { nodes }, tree }: Session, position: number): string | null {
  const isHidden = (at: number): boolean => SETTING_TYPES.has(nodes.type(at)) && !tree.labels.has(at);
  let at = position;
  while (at >= 0 && isHidden(at)) at = nodes.parent(at);
  return at >= 0 ? nodes.id(at) : null;
}

/** Characters of a name that are kept. */
const NAME = 200;

/** An entry with text for people. */
interface Said {
  readonly entryId: string;
  readonly type: string;
  readonly role?: string;
  readonly at?: string;
  readonly text: string;
  readonly calls?: readonly { readonly name: string; readonly argument: string }[];
  /** The tool of a result. */
  readonly toolName?: string;
  /** Only results of failures are shown. */
  readonly isError?: true;
}

export type Outline = ReturnType<typeof makeOutline>;

/** Returns a summary of the entries at these positions of a path, and the first `most` with text for people. */
export function makeOutline(session: Session, positions: Int32Array, most: number) {
  const { nodes } = session.log;
  const counts = makeCounts();
  const files = new Files(MOST_FILES);
  const tools = new ToolCounts();
  const models = new Map<string, { provider: string; id: string; messages: number }>();
  const said: Said[] = [];
  const times: string[] = [];
  /** For each entry that is shown, how many of the positions were looked at then. */
  const pasts: number[] = [];
  let last: { readonly entryId: string; readonly entry: Entry } | undefined;
  let isWhole = true;
  let index = 0;
  for (const line of session.log.readMany(positions, true)) {
    const position = positions[index++];
    const type = nodes.type(position);
    const role = nodes.role(position);
    const entry = entryIn(line);
    const { message } = entry;
    if (!SETTING_TYPES.has(type) && isTime(entry.timestamp)) times[times.length === 0 ? 0 : 1] = entry.timestamp;
    if (type === "message" && !nodes.hasNoMessage(position)) countMessage(counts, role);
    if (mayCost(type, role)) addUsage(counts, getEntryUsage(entry));
    if (type === "branch_summary" || type === "compaction") files.addSummary(entry);
    if (isObject(message)) {
      files.addMessage(message);
      tools.add(message);
      if (role === "assistant") countModel(models, message);
    }
    if (role === "assistant" && getContentText((message as SummaryMessage | undefined)?.content) !== "")
      last = { entryId: nodes.id(position), entry };
    const one = isWhole ? saidBy(nodes.id(position), entry) : undefined;
    if (!one) continue;
    isWhole = said.length < most;
    if (!isWhole) continue;
    said.push(one);
    pasts.push(index);
  }
  const [startedAt, endedAt = startedAt] = times;
  return {
    counts: { ...counts, toolCalls: tools.calls },
    files: files.lists(),
    areMoreFiles: files.areMore,
    tools: tools.list(),
    failedCalls: tools.failures,
    models: [...models.values()].sort((a, b) => b.messages - a.messages),
    startedAt,
    endedAt,
    durationMs: times.length === 0 ? 0 : Math.max(0, Date.parse(endedAt) - Date.parse(startedAt)),
    said,
    pasts,
    isWhole,
    last: last && saidBy(last.entryId, last.entry),
  };
}

function entryIn(line: Uint8Array): Entry {
  return parseAbridged(limitMembers(line), SEEN, LONG) as Entry;
}

function isObject(value: unknown): value is SummaryMessage {
  return typeof value === "object" && value !== null;
}

function isTime(value: unknown): value is string {
  return typeof value === "string" && !Number.isNaN(Date.parse(value));
}

/** Counts calls and failures by the names of tools. */
class ToolCounts {
  calls = 0;
  failures = 0;
  private readonly byName = new Map<string, { name: string; count: number; failures: number }>();
  /** Calls of the last message that made some: results that do not name their tool answer one of them. */
  private asked: readonly ToolCall[] = [];

  add({ role, content, isError, toolName, toolCallId }: SummaryMessage): void {
    if (role === "assistant") {
      this.asked = getToolCalls(content);
      this.calls += this.asked.length;
      for (const { name } of this.asked) this.count(name, 1, 0);
    } else if (role === "toolResult" && isError === true) {
      this.failures++;
      this.count(toStored(toolName) || (this.asked.find(({ id }) => id === toolCallId)?.name ?? ""), 0, 1);
    }
  }

  private count(name: string, calls: number, failures: number): void {
    const key = name.slice(0, NAME);
    const known = this.byName.get(key) ?? { name: key, count: 0, failures: 0 };
    if (this.byName.size < MOST_NAMES) this.byName.set(key, known);
    known.count += calls;
    known.failures += failures;
  }

  /** Returns the tools, the one that was called most first. */
  list(): { name: string; count: number; failures: number }[] {
    return [...this.byName.values()].sort((a, b) => b.count - a.count || (a.name < b.name ? -1 : 1));
  }
}

function countModel(
  models: Map<string, { provider: string; id: string; messages: number }>,
  message: SummaryMessage,
): void {
  const provider = toStored(message.provider).slice(0, NAME);
  const id = toStored(message.model).slice(0, NAME);
  if (id === "") return;
  const key = JSON.stringify([provider, id]);
  const known = models.get(key) ?? { provider, id, messages: 0 };
  if (models.size < MOST_NAMES) models.set(key, known);
  known.messages++;
}

/** Returns the text of an entry; undefined if it has none for people, as the output of tools that did not fail. */
function saidBy(entryId: string, entry: Entry): Said | undefined {
  const at = isTime(entry.timestamp) ? entry.timestamp : undefined;
  const { type } = entry;
  const message = type === "message" && isObject(entry.message) ? entry.message : undefined;
  if (!message) {
    const text = textOf(entry);
    return text === undefined ? undefined : { entryId, type, at, text: toPreview(text, TEXT) };
  }
  const role = toStored(message.role);
  const head = { entryId, type, role, at };
  if (role === "toolResult") {
    if (message.isError !== true) return undefined;
    const toolName = toPreview(toStored(message.toolName), NAME);
    return { ...head, text: toPreview(getContentText(message.content), TEXT), toolName, isError: true };
  }
  const calls = role === "assistant" ? getToolCalls(message.content).slice(0, MOST_CALLS).map(shownCall) : [];
  const text = toPreview(
    getContentText(message.content) || toStored(message.command) || toStored(message.summary),
    TEXT,
  );
  const failed = toPreview(toStored(message.errorMessage), TEXT);
  return { ...head, text: text || failed, ...(calls.length > 0 ? { calls } : {}) };
}

function textOf({ type, summary, content, provider, modelId }: Entry): string | undefined {
  if (type === "compaction" || type === "branch_summary") return toStored(summary);
  if (type === "custom_message") return getContentText(content);
  return type === "model_change" ? `${toStored(provider)}/${toStored(modelId)}` : undefined;
}

function shownCall({ name, arguments: args }: ToolCall): { name: string; argument: string } {
  return { name: toPreview(name, NAME), argument: toPreview(findMainArgument(args), ARGUMENT) };
}

// --- merging ---------------------------------------------------------------------------------------------------------

/** The provenance of a merge: the branch that it describes, and how much of it. */
export interface Merged {
  readonly fromId: string;
  readonly commonAncestorId: string | null;
  readonly entryCount: number;
  readonly startedAt?: string;
  readonly endedAt?: string;
  /** The session of the branch, if it is another one. */
  readonly sessionId?: string;
  readonly sessionPath?: string;
}

/** Returns the provenance in the details of a branch summary that merged a branch; undefined for any other entry. */
export function readMerged({ type, details }: Entry): Merged | undefined {
  const merged = type === "branch_summary" && isObject(details) ? details.merged : undefined;
  return isMerged(merged) ? merged : undefined;
}

function isMerged(value: unknown): value is Merged {
  return isObject(value) && typeof value.fromId === "string";
}

/**
 * Returns the entry of a path, after its beginning, that already merged all of a branch; ROOT if no entry did.
 * `isWithin` returns whether the branch ends at an entry of this id, or before it.
 */
export function findMerge(
  session: Session,
  path: Int32Array,
  sessionId: string,
  isWithin: (fromId: string) => boolean,
): number {
  for (const position of path) {
    if (!session.log.nodes.isType(position, "branch_summary")) continue;
    const merged = readMerged(session.entry(position));
    if (merged && (merged.sessionId ?? session.id) === sessionId && isWithin(merged.fromId)) return position;
  }
  return ROOT;
}
