/** The context at a leaf: which entries yield a message, and which (seed 000; session-format reference, section 3). */

import { type Damage, makeEntryDamage } from "../format/damage.ts";
import { type Entry, setMembers } from "../format/entry.ts";
import { toShownText, wrapInTextBlock } from "../format/message.ts";
import {
  concat,
  findKnownValueEnd,
  findMember,
  findStringEnd,
  getElements,
  getMembers,
  holdsAt,
  type Member,
  parse,
  type Range,
  toBytes,
} from "../json/json.ts";
import { ROOT } from "../tree/nodes.ts";
import type { Boundary, Tree } from "../tree/tree.ts";
import { isUnknown } from "./models.ts";

/** Bodies by position, read on demand. */
export interface Bodies {
  line(position: number): Uint8Array;
  entry(position: number): Entry;
}

/** One message of the context and its source. */
export interface ContextItem {
  readonly position: number;
  /** The others come from a compaction: its summary, and the system message and the kept messages that it carries. */
  readonly kind: "message" | "summary" | "system" | "retained";
  /** Index among the kept messages that a compaction carries. */
  readonly index?: number;
  /** Position of the context edit that replaces its content. */
  readonly edit?: number;
}

/** The entries of a path that can matter to its context, whether or not they yield a message. */
export interface Span {
  /** The compaction in force, or {@link ROOT}. */
  readonly compaction: number;
  /** Entries before it that it keeps, system messages left out; oldest first. */
  readonly kept: readonly number[];
  /** Entries after it, or the whole path; oldest first. */
  readonly after: readonly number[];
  /** True if the compaction's kept entry is not on the path before it: more was kept instead (guarantee 1). */
  readonly misplacedBoundary: boolean;
}

export interface Context extends Span {
  /** Oldest first. */
  readonly items: readonly ContextItem[];
}

export function getContextSpan(tree: Tree, bodies: Bodies, leaf: number): Span {
  const { nodes } = tree;
  const compaction = tree.lastCompaction(leaf);
  const after = walkUp(tree, leaf, compaction);
  if (compaction === ROOT) return { compaction, kept: [], after, misplacedBoundary: false };
  const { first, misplaced } = findFirstKept(tree, bodies, compaction);
  const kept =
    first === compaction ? [] : walkUp(tree, nodes.parent(compaction), first < 0 ? ROOT : nodes.parent(first));
  const spoken = kept.filter((position) => nodes.role(position) !== "system");
  return { compaction, kept: spoken, after, misplacedBoundary: misplaced };
}

/** Returns the context at `leaf`. Costs as much as the returned entries, and those between that yield nothing. */
export function getContext(tree: Tree, bodies: Bodies, leaf: number): Context {
  const span = getContextSpan(tree, bodies, leaf);
  const { compaction, kept, after } = span;
  const edits = collectEdits(tree, bodies, kept, after);
  const items: ContextItem[] = [];
  if (compaction !== ROOT && !edits.get(compaction)?.leavesOut) {
    if (carriesSystemMessage(bodies, compaction)) items.push({ position: compaction, kind: "system" });
    items.push({ position: compaction, kind: "summary" });
    const { retained = 0 } = findFirstKept(tree, bodies, compaction);
    for (let index = 0; index < retained; index++) items.push({ position: compaction, kind: "retained", index });
  }
  for (const position of kept) pushItem(items, tree, bodies, position, edits);
  for (const position of after) pushItem(items, tree, bodies, position, edits);
  return { ...span, items };
}

function carriesSystemMessage(bodies: Bodies, compaction: number): boolean {
  const system = bodies.entry(compaction).systemMessage;
  return typeof system === "object" && system !== null;
}

/** Returns the positions below `end` down to `from`, oldest first; `end` itself is not among them. */
export function walkUp(tree: Tree, from: number, end: number): number[] {
  const walked: number[] = [];
  for (let at = from; at >= 0 && at !== end; at = tree.nodes.parent(at)) walked.push(at);
  return walked.reverse();
}

/**
 * Returns the first entry that a compaction keeps: the entry it names when that lies on the path before it, itself when
 * it keeps nothing. When the named entry is not there, everything since the previous compaction is kept: a reader is
 * better off with too much than with silently too little (reliability case C2).
 */
export function findFirstKept(tree: Tree, bodies: Bodies, compaction: number): Boundary {
  const known = tree.boundaries.get(compaction);
  if (known) return known;
  const boundary = findBoundary(tree, bodies, compaction);
  tree.boundaries.set(compaction, boundary);
  return boundary;
}

function findBoundary(tree: Tree, bodies: Bodies, compaction: number): Boundary {
  const { nodes } = tree;
  const { firstKeptEntryId: named, retainedTail } = bodies.entry(compaction);
  if (named === nodes.id(compaction)) return { first: compaction, misplaced: false };
  // Agents on Pi's core (0.81 to 0.86) copy the kept messages into the compaction, and name no entry.
  if (typeof named !== "string" && Array.isArray(retainedTail))
    return { first: compaction, misplaced: false, retained: retainedTail.filter(isMessage).length };
  const first = typeof named === "string" ? nodes.position(named) : -1;
  if (first >= 0 && first !== compaction && tree.isAncestor(first, compaction)) return { first, misplaced: false };
  const previous = tree.lastCompaction(nodes.parent(compaction));
  let oldest = compaction;
  for (let at = nodes.parent(compaction); at >= 0 && at !== previous; at = nodes.parent(at)) oldest = at;
  return { first: oldest, misplaced: true };
}

/** Returns the damage of a compaction whose first kept entry is not on the path before it. */
export function findBoundaryDamage(tree: Tree, bodies: Bodies, compaction: number): Damage | undefined {
  if (!findFirstKept(tree, bodies, compaction).misplaced) return undefined;
  const kept = toShownText(bodies.entry(compaction).firstKeptEntryId);
  const which =
    kept === ""
      ? "the compaction names no first kept entry"
      : `the first kept entry ${kept} is not on the path before the compaction`;
  return makeEntryDamage(tree.nodes.id(compaction), "invalid_boundary", `${which}; more is kept`);
}

function isMessage(value: unknown): boolean {
  return typeof (value as { role?: unknown } | null)?.role === "string";
}

/** Returns the places of the kept messages that a compaction's line carries. */
export function findRetainedMessages(line: Uint8Array): Range[] {
  const tail = findMember(getMembers(line) ?? [], "retainedTail");
  const all = (tail && getElements(line, tail.start, tail.end)) ?? [];
  return all.filter(({ start, end }) => isMessage(parse(line, start, end)));
}

/** The effect of a context edit on its target. */
export interface Edit {
  /** Position of the edit. */
  readonly position: number;
  readonly leavesOut: boolean;
}

/** Returns the latest edit of each target among the walked entries. */
export function collectEdits(tree: Tree, bodies: Bodies, ...walks: (readonly number[])[]): Map<number, Edit> {
  const edits = new Map<number, Edit>();
  if (!tree.hasEdits) return edits;
  for (const walk of walks)
    for (const position of walk) {
      if (!tree.nodes.isType(position, "context_edit")) continue;
      const { targetId, replacement } = bodies.entry(position);
      const target = typeof targetId === "string" ? tree.nodes.position(targetId) : -1;
      if (target < 0) continue;
      if (replacement === null) edits.set(target, { position, leavesOut: true });
      else if (typeof replacement === "object" && "content" in replacement)
        edits.set(target, { position, leavesOut: false });
    }
  return edits;
}

function pushItem(items: ContextItem[], tree: Tree, bodies: Bodies, position: number, edits: Map<number, Edit>): void {
  if (!yieldsMessage(tree, bodies, position)) return;
  const edit = edits.get(position);
  if (edit?.leavesOut) return;
  items.push(edit === undefined ? { position, kind: "message" } : { position, kind: "message", edit: edit.position });
}

/** Returns the messages that a part of a path yields by itself: edited, with its summaries, and with nothing cut. */
export function collectItems(tree: Tree, bodies: Bodies, positions: readonly number[]): ContextItem[] {
  const edits = collectEdits(tree, bodies, positions);
  const items: ContextItem[] = [];
  for (const position of positions) {
    if (tree.lastCompaction(position) !== position) pushItem(items, tree, bodies, position, edits);
    else if (!edits.get(position)?.leavesOut) items.push({ position, kind: "summary" });
  }
  return items;
}

/** Returns whether an entry yields a message unless it is cut or edited. */
export function yieldsMessage(tree: Tree, bodies: Bodies, position: number): boolean {
  const { nodes } = tree;
  const speaks = nodes.isType(position, "message") || nodes.isType(position, "custom_message");
  if (speaks) return !nodes.hasNoMessage(position);
  return nodes.isType(position, "branch_summary") && hasSummary(bodies.entry(position));
}

/** Returns whether an entry is too malformed to count: a compaction without a summary is not in force (case C14). */
export function isVoid(entry: Entry): boolean {
  if (entry.type === "branch_summary") return !hasSummary(entry);
  return entry.type === "compaction" && typeof entry.summary !== "string";
}

/** Returns whether a branch summary has text; without it, it yields nothing. */
function hasSummary(entry: Entry): boolean {
  return typeof entry.summary === "string" && entry.summary !== "";
}

/** Returns how many messages {@link getContext} would return. Reads only entries that it cannot count otherwise. */
export function countContextMessages(tree: Tree, bodies: Bodies, leaf: number): number {
  if (tree.hasEdits) return getContext(tree, bodies, leaf).items.length;
  const compaction = tree.lastCompaction(leaf);
  if (compaction === ROOT) return tree.yieldCount(leaf);
  const { first, retained = 0 } = findFirstKept(tree, bodies, compaction);
  const after = tree.yieldCount(leaf) - tree.yieldCount(compaction);
  const own = (carriesSystemMessage(bodies, compaction) ? 2 : 1) + retained;
  if (first === compaction) return own + after;
  const last = tree.nodes.parent(compaction);
  const before = tree.nodes.parent(first);
  const kept = tree.yieldCount(last) - tree.yieldCount(before);
  return own + kept - (tree.systemCount(last) - tree.systemCount(before)) + after;
}

export interface Model {
  readonly provider: string;
  readonly id: string;
}

/** Returns the model in force at a position: the nearest one that an entry of its path names. */
export function getModelAt(tree: Tree, bodies: Bodies, at: number): Model | null {
  for (let p = tree.lastModel(at); p >= 0; p = tree.lastModel(tree.nodes.parent(p))) {
    const { type, message, ...change } = bodies.entry(p);
    const named =
      type === "model_change" ? parseModelChange(change) : ((message ?? {}) as { provider?: unknown; model?: unknown });
    if (typeof named.provider !== "string" || typeof named.model !== "string") continue;
    const model = { provider: named.provider, id: named.model };
    if (!isUnknown(model)) return model;
  }
  return null;
}

/** Returns the model of a change. oh-my-pi writes both parts as one text, and has changes for other roles. */
export function parseModelChange({ provider, modelId, model, role = "default" }: Readonly<Record<string, unknown>>) {
  const slash = typeof model === "string" && modelId === undefined && role === "default" ? model.indexOf("/") : -1;
  if (slash <= 0) return { provider, model: modelId };
  return { provider: String(model).slice(0, slash), model: String(model).slice(slash + 1) };
}

/** Returns the thinking level in force at a position, if an entry of its path names one. */
export function getThinkingLevelAt(tree: Tree, bodies: Bodies, at: number): string | undefined {
  for (let p = tree.lastLevel(at); p >= 0; p = tree.lastLevel(tree.nodes.parent(p))) {
    const level = bodies.entry(p).thinkingLevel;
    if (typeof level === "string") return level;
  }
  return undefined;
}

/** Returns the JSON text of one message of the context, from its entry's bytes where possible; undefined if damaged. */
export function getMessageText(
  tree: Tree,
  bodies: Bodies,
  item: ContextItem,
  line: Uint8Array = bodies.line(item.position),
): Uint8Array | undefined {
  // A placeholder has nothing of the entry but its head.
  if (tree.nodes.hasNoMessage(item.position)) return undefined;
  if (item.kind === "message" && tree.nodes.isType(item.position, "message")) {
    const start = tree.nodes.messageStart(item.position);
    // A line that was changed since, in order to be published anew, may have it elsewhere.
    if (start > 0 && isMessageAt(line, start))
      return shownMessage(tree, bodies, item, line.subarray(start, line.length - 1));
  }
  if (item.kind === "retained") {
    const message = findRetainedMessages(line)[item.index ?? 0];
    return message && line.subarray(message.start, message.end);
  }
  const found = getMembers(line, 0, line.length, findKnownValueEnd) ?? [];
  const raw = (name: string): Uint8Array | undefined => {
    const member = findMember(found, name);
    return member && line.subarray(member.start, member.end);
  };
  /** Returns a message with these members of the entry. */
  const encoded = (role: string, names: readonly string[], content?: Uint8Array): Uint8Array => {
    const parts = names.map((name) => [name, name === "content" ? content : raw(name)] as const);
    const timestamp = milliseconds(line, findMember(found, "timestamp"));
    return objectText([["role", toBytes(`"${role}"`)], ...parts, ["timestamp", timestamp]]);
  };
  if (item.kind === "system") return raw("systemMessage");
  if (item.kind === "summary") return encoded("compactionSummary", ["summary", "tokensBefore"]);
  if (tree.nodes.isType(item.position, "branch_summary")) return encoded("branchSummary", ["summary", "fromId"]);
  if (tree.nodes.isType(item.position, "custom_message")) {
    const content = editedContent(bodies, item, "custom") ?? raw("content") ?? toBytes("[]");
    return encoded("custom", ["customType", "content", "display", "details"], content);
  }
  const message = findMember(found, "message");
  if (!message) return undefined;
  return shownMessage(tree, bodies, item, line.subarray(message.start, message.end));
}

function shownMessage(tree: Tree, bodies: Bodies, item: ContextItem, message: Uint8Array): Uint8Array {
  const role = tree.nodes.role(item.position);
  return withContent(message, role, EDITABLE.has(role) ? editedContent(bodies, item, role) : undefined);
}

const MESSAGE = toBytes('"message"');

/** Returns whether a value in a line is that of `message`. */
function isMessageAt(line: Uint8Array, start: number): boolean {
  let at = start - 1;
  while (line[at] === SPACE) at--;
  if (line[at] !== COLON) return false;
  at--;
  while (line[at] === SPACE) at--;
  return holdsAt(line, at + 1 - MESSAGE.length, MESSAGE);
}

/** Values for missing content; readers of these roles may rely on there being some. */
const MISSING_CONTENT: Readonly<Record<string, Uint8Array>> = {
  user: toBytes("[]"),
  assistant: toBytes("[]"),
  toolResult: toBytes("[]"),
  system: toBytes('""'),
};

/** Roles whose content a context edit replaces; messages of other roles it can only leave out. */
const EDITABLE = new Set(["user", "assistant", "toolResult", "custom"]);

function withContent(message: Uint8Array, role: string, edited: Uint8Array | undefined): Uint8Array {
  if (!edited && (!MISSING_CONTENT[role] || beginsWithContent(message, role))) return message;
  const content = findMember(getMembers(message) ?? [], "content");
  if (!edited && content && message[content.start] !== 0x6e) return message;
  return setMembers(message, { content: edited ?? MISSING_CONTENT[role] });
}

/** Returns whether a message shows its content after its role or, in a result, after the tool's name. */
function beginsWithContent(message: Uint8Array, role: string): boolean {
  let at = past(message, 0, BEGINNINGS[role]);
  if (role === "toolResult")
    for (const name of [RESULT_ID, RESULT_NAME]) {
      const value = past(message, at, name);
      at = message[value] === QUOTE ? past(message, findStringEnd(message, value, message.length), COMMA) : -1;
    }
  const value = past(message, at, CONTENT);
  return value > 0 && message[value] !== 0x6e;
}

/** Returns the position after these tokens and the white space behind each, or -1. */
function past(bytes: Uint8Array, from: number, tokens: readonly Uint8Array[]): number {
  let at = from;
  for (const token of tokens) {
    if (at < 0 || !holdsAt(bytes, at, token)) return -1;
    at += token.length;
    while (bytes[at] === SPACE) at++;
  }
  return at;
}

const SPACE = 0x20;
const QUOTE = 0x22;
const COLON = 0x3a;
const tokensOf = (...texts: string[]): readonly Uint8Array[] => texts.map(toBytes);
const COMMA = tokensOf(",");
const RESULT_ID = tokensOf('"toolCallId"', ":");
const RESULT_NAME = tokensOf('"toolName"', ":");
const CONTENT = tokensOf('"content"', ":");

const BEGINNINGS: Readonly<Record<string, readonly Uint8Array[]>> = Object.fromEntries(
  Object.keys(MISSING_CONTENT).map((role) => [role, tokensOf("{", '"role"', ":", `"${role}"`, ",")]),
);

/** Returns the content that an edit sets; a string becomes a text block for roles that have only blocks. */
function editedContent(bodies: Bodies, item: ContextItem, role: string): Uint8Array | undefined {
  if (item.edit === undefined) return undefined;
  const line = bodies.line(item.edit);
  const replacement = findMember(getMembers(line) ?? [], "replacement");
  const content = replacement && findMember(getMembers(line, replacement.start, replacement.end) ?? [], "content");
  // The edit was found to be damaged since: it then replaces nothing.
  if (!content) return undefined;
  const text = line.subarray(content.start, content.end);
  const blocks = (role === "assistant" || role === "toolResult") && text[0] === 0x22;
  return blocks ? wrapInTextBlock(text) : text;
}

function milliseconds(line: Uint8Array, timestamp: Member | undefined): Uint8Array {
  const value = timestamp ? parse(line, timestamp.start, timestamp.end) : undefined;
  const time = typeof value === "string" ? Date.parse(value) : Number.NaN;
  return toBytes(String(Number.isNaN(time) ? 0 : time));
}

function objectText(parts: readonly (readonly [string, Uint8Array | undefined])[]): Uint8Array {
  const text: Uint8Array[] = [];
  for (const [name, value] of parts) if (value) text.push(toBytes(`${text.length === 0 ? "{" : ","}"${name}":`), value);
  text.push(toBytes("}"));
  return concat(text);
}
