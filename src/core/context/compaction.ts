/** Checks where a compaction may begin to keep, and prepares one by Pi's rules (protocol; reliability C1 to C3). */

import type { Entry } from "../format/entry.ts";
import { limitMembers } from "../json/few-members.ts";
import { parse } from "../json/json.ts";
import { ROOT, type Role } from "../tree/nodes.ts";
import type { Tree } from "../tree/tree.ts";
import {
  type Bodies,
  type ContextItem,
  collectItems,
  findFirstKept,
  getContext,
  getContextSpan,
  getMessageText,
  walkUp,
} from "./context.ts";
import { type Heads, separates } from "./pairing.ts";
import type { CompactionSettings } from "./settings.ts";
import { Files, type SummaryMessage, toParagraphs } from "./summariser-input.ts";
import { estimateTokens, getReportedTokens } from "./tokens.ts";

/** An entry that will be appended below the leaf of a path, and is in no tree yet. */
export interface Coming {
  readonly id: string | undefined;
  readonly role: Role;
  readonly entry: Entry;
}

/**
 * Checks a compaction that keeps the path to `leaf`, and the `coming` entries below it, from `first` on. Returns why it
 * is invalid with the nearest valid entries, or null. A coming entry's position is the number of nodes plus its index.
 */
export function findBoundaryFault(
  tree: Tree,
  bodies: Bodies,
  leaf: number,
  first: number,
  coming: readonly Coming[] = [],
): { reason: string; nearest: string[] } | null {
  const { nodes } = tree;
  const { count } = nodes;
  const isComing = first >= count && first < count + coming.length;
  if (!isComing && (first < 0 || leaf < 0 || !tree.isAncestor(first, leaf)))
    return {
      reason: "The first kept entry is not on the path to the current leaf. get_path lists the entries that are.",
      nearest: [],
    };
  const stored = tree.path(leaf);
  const path = coming.length === 0 ? stored : [...stored, ...coming.map((_, index) => count + index)];
  const at = isComing ? stored.length + first - count : tree.depth(first);
  const compaction = tree.lastCompaction(leaf);
  const shownFrom = compaction === ROOT ? 0 : tree.depth(findFirstKept(tree, bodies, compaction).first);
  const heads: Heads = {
    nodes: {
      role: (position) => (position < count ? nodes.role(position) : coming[position - count].role),
      hasNoMessage: (position) => position < count && nodes.hasNoMessage(position),
    },
  };
  const entries: Pick<Bodies, "entry"> = {
    entry: (position) => (position < count ? bodies.entry(position) : coming[position - count].entry),
  };
  // A call that an earlier compaction has cut away is not separated from its result by this one.
  const fails = (index: number): boolean => separates(heads, entries, path, index, index >= shownFrom ? shownFrom : 0);
  if (!fails(at)) return null;
  const idAt = (index: number): string[] => {
    const position = path[index];
    const id = position < count ? nodes.id(position) : coming[position - count].id;
    return id === undefined ? [] : [id];
  };
  const nearest: string[] = [];
  let before = at - 1;
  while (before >= 0 && fails(before)) before--;
  if (before >= 0) nearest.push(...idAt(before));
  let after = at + 1;
  while (after < path.length && fails(after)) after++;
  if (after < path.length) nearest.push(...idAt(after));
  return {
    reason: `Keeping from there separates a tool call from its result. Keep from ${nearest.join(" or ") || "nothing (null)"} instead.`,
    nearest,
  };
}

// --- preparing one -------------------------------------------------------------------------------------------------

export type CompactionPlan = ReturnType<typeof prepareCompaction>;

/**
 * Returns what a compaction at `leaf` would summarise and keep. The newest messages are kept up to `keepRecentTokens`;
 * the cut never falls between a call and its result. What an earlier compaction has summarised is not summarised again,
 * but its summary and its files are included.
 */
export function prepareCompaction(
  tree: Tree,
  bodies: Bodies,
  leaf: number,
  settings: CompactionSettings & { readonly contextWindow: number },
) {
  const { items } = getContext(tree, bodies, leaf);
  const { compaction, kept, after } = getContextSpan(tree, bodies, leaf);
  const stretch = new Stretch(tree, bodies, compaction === ROOT ? after : [...kept, compaction, ...after], items);
  const tokens = countContextTokens(tree, bodies, leaf, items);
  const isOver = tokens > settings.contextWindow - settings.reserveTokens;
  const previous = compaction === ROOT ? undefined : bodies.entry(compaction);
  // Right after a compaction, another one has nothing to add.
  const cut = leaf === compaction ? 0 : stretch.cut(settings.keepRecentTokens, isOver);
  const turnStart = stretch.turnStart(cut);
  const isSplitTurn = leaf !== compaction && turnStart >= 0;
  const history = stretch.items(0, isSplitTurn ? turnStart : cut);
  const turnPrefix = isSplitTurn ? stretch.items(turnStart, cut) : [];
  const files = new Files();
  if (previous) files.addSummary(previous);
  const lines = [...spoken(tree, bodies, history, files)];
  const turnMessages = [...spoken(tree, bodies, turnPrefix, files)];
  if (lines.length > 0 && turnMessages.length > 0) lines.push("(The turn that begins here goes on in what is kept.)");
  return {
    contextTokens: tokens,
    shouldCompact: settings.enabled && isOver && history.length + turnPrefix.length > 0,
    // ROOT when there is nothing to keep.
    firstKept: stretch.position(cut),
    history,
    // The summarised part of the turn that is kept from its middle on.
    turnPrefix,
    isSplitTurn,
    previousSummary: typeof previous?.summary === "string" ? previous.summary : undefined,
    files: files.lists(),
    conversationText: [...lines, ...turnMessages].join("\n\n"),
  };
}

/** Roles of messages that a kept range may begin with: any but a tool result, which belongs to its call. */
const BEGINNING = new Set(["user", "assistant", "custom", "bashExecution", "branchSummary", "compactionSummary"]);

/** The entries of a path that the context is made of, oldest first. */
class Stretch {
  private readonly tree: Tree;
  private readonly bodies: Bodies;
  private readonly positions: readonly number[];
  private readonly shown: ReadonlyMap<number, ContextItem>;
  /** The kept messages that the compaction in force carries. */
  private readonly retained: readonly ContextItem[];

  constructor(tree: Tree, bodies: Bodies, positions: readonly number[], items: readonly ContextItem[]) {
    this.tree = tree;
    this.bodies = bodies;
    this.positions = positions;
    this.shown = new Map(items.filter(({ kind }) => kind === "message").map((item) => [item.position, item]));
    this.retained = items.filter(({ kind }) => kind === "retained");
  }

  position(index: number): number {
    return this.positions[index] ?? ROOT;
  }

  items(from: number, past: number): ContextItem[] {
    const found: ContextItem[] = [];
    for (let i = from; i < past; i++) {
      const item = this.shown.get(this.positions[i]);
      if (this.positions[i] === this.retained[0]?.position) found.push(...this.retained);
      // System messages are left out: the compaction itself contains them, merged.
      if (item && this.roleAt(i) !== "system") found.push(item);
    }
    return found;
  }

  /** Returns the index of the first entry to keep; 0 when the budget holds all of them. */
  cut(keepRecentTokens: number, isOver: boolean): number {
    const places: number[] = [];
    for (let i = 0; i < this.positions.length; i++) if (this.mayBegin(i)) places.push(i);
    if (places.length === 0) return 0;
    const full = this.fullFrom(keepRecentTokens);
    // Results at the end may exceed the budget by themselves. Pi 0.73 then keeps everything, later versions keep from
    // the last call on; the latter helps when the context is over its limit.
    const last = isOver ? places[places.length - 1] : places[0];
    let cut = full < 0 ? places[0] : (places.find((place) => place >= full) ?? last);
    while (cut > 0 && (!this.mayBegin(cut) || separates(this.tree, this.bodies, this.positions, cut, 0))) cut--;
    // Entries before it that are no messages (a model change, a label, a note) belong to what follows.
    while (cut > 0 && !this.isMessage(cut - 1) && !this.tree.nodes.isType(this.positions[cut - 1], "compaction")) cut--;
    return cut;
  }

  /**
   * Returns the index of the oldest message with which the newest reach the budget, or -1. As in Pi, others do not
   * count.
   */
  private fullFrom(keepRecentTokens: number): number {
    let tokens = 0;
    for (let i = this.positions.length - 1; i >= 0; i--) {
      const item = this.isMessage(i) ? this.shown.get(this.positions[i]) : undefined;
      if (!item) continue;
      tokens += readMessage(this.tree, this.bodies, item)?.tokens() ?? 0;
      if (tokens >= keepRecentTokens) return i;
    }
    return -1;
  }

  /** Returns the index of the entry that began the turn that a cut falls into, or -1; a user message begins its own. */
  turnStart(cut: number): number {
    if (this.roleAt(cut) === "user") return -1;
    for (let i = cut; i >= 0; i--) {
      const role = this.roleAt(i);
      if (role === "user" || role === "bashExecution" || this.isNote(i)) return i;
    }
    return -1;
  }

  private mayBegin(index: number): boolean {
    return this.shown.has(this.positions[index]) && (BEGINNING.has(this.roleAt(index)) || this.isNote(index));
  }

  /** Returns whether an entry is no message by itself and still reaches the model as one of a user. */
  private isNote(index: number): boolean {
    const { nodes } = this.tree;
    const position = this.positions[index];
    return nodes.isType(position, "custom_message") || nodes.isType(position, "branch_summary");
  }

  private isMessage(index: number): boolean {
    return this.tree.nodes.isType(this.positions[index], "message");
  }

  private roleAt(index: number): string {
    return index < this.positions.length && this.isMessage(index) ? this.tree.nodes.role(this.positions[index]) : "";
  }
}

function* spoken(tree: Tree, bodies: Bodies, items: readonly ContextItem[], files: Files): Generator<string> {
  for (const item of items) {
    const read = readMessage(tree, bodies, item);
    if (read === undefined) continue;
    files.addMessage(read.message);
    yield* toParagraphs(read.message);
  }
}

/** Returns a message with only the first members of its objects, and the estimate of its tokens with all members. */
function readMessage(
  tree: Tree,
  bodies: Bodies,
  item: ContextItem,
): { message: SummaryMessage; tokens: () => number } | undefined {
  const text = getMessageText(tree, bodies, item);
  if (!text) return undefined;
  const read = limitMembers(text);
  const message = parse(read) as SummaryMessage;
  return { message, tokens: () => estimateTokens(message, text.length - read.length) };
}

/**
 * Returns the tokens of the context at `leaf`: those that the last assistant message reports, and estimates for what
 * came after it. Reports from before a compaction or a context edit are ignored: they were about another context.
 */
export function countContextTokens(tree: Tree, bodies: Bodies, leaf: number, items: readonly ContextItem[]): number {
  let depth = tree.lastCompaction(leaf) === ROOT ? -1 : tree.depth(tree.lastCompaction(leaf));
  if (tree.hasEdits)
    for (let at = leaf; at >= 0 && tree.depth(at) > depth; at = tree.nodes.parent(at))
      if (tree.nodes.isType(at, "context_edit")) depth = tree.depth(at);
  let tokens = 0;
  let isReported = false;
  for (let i = items.length - 1; i >= 0 && !isReported; i--) {
    const read = readMessage(tree, bodies, items[i]);
    const reported =
      items[i].kind === "message" && tree.depth(items[i].position) > depth ? getReportedTokens(read?.message) : 0;
    isReported = reported > 0;
    tokens += isReported ? reported : (read?.tokens() ?? 0);
  }
  return tokens;
}

// --- leaving a branch ----------------------------------------------------------------------------------------------

/** Returns the entries that the leaf leaves when it moves from `leaf` to `target`, oldest first. */
export function prepareBranchSummary(tree: Tree, bodies: Bodies, leaf: number, target: number) {
  const commonAncestor = tree.commonAncestor(leaf, target);
  const left = walkUp(tree, leaf, commonAncestor);
  const files = new Files();
  for (const position of left)
    if (tree.nodes.isType(position, "branch_summary")) files.addSummary(bodies.entry(position));
  const conversationText = [...spoken(tree, bodies, collectItems(tree, bodies, left), files)].join("\n\n");
  return { commonAncestor, left, files: files.lists(), conversationText };
}
