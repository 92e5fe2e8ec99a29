/**
 * A session's entries as rows, so that a thousand branches stay readable. One child of each entry continues in its
 * parent's column: the one on the path to the leaf, else the one that most comes after. Only the others are indented,
 * so a row is indented by at most the logarithm of the number of entries, however many branches there are above it.
 * Nothing is recursive, because sessions are as deep as they are long.
 */

import { SETTING_TYPES } from "../../core/session/compare.ts";
import type { FlatNode } from "../entries.ts";

export const FILTERS = ["default", "no tools", "user", "labelled", "all"] as const;
export type Filter = (typeof FILTERS)[number];

const NONE = -1;

/** Least length of a line of entries that is folded into one row. */
const LINEAR = 4;

/** Returns true if an entry is about the session and no part of the conversation. */
export function isSetting({ type }: Pick<FlatNode, "type">): boolean {
  return SETTING_TYPES.has(type);
}

function passes(node: FlatNode, filter: Filter): boolean {
  const { role, label, calls, preview } = node;
  if (filter === "all") return true;
  if (label !== undefined) return true;
  if (filter === "labelled") return false;
  if (filter === "user") return role === "user";
  if (isSetting(node)) return false;
  if (filter === "default") return true;
  if (role === "toolResult" || role === "bashExecution") return false;
  return calls === undefined || !String(preview ?? "").startsWith("[");
}

/** The entries and their parents and children; {@link Branches} selects the ones to show. */
class Forest {
  readonly nodes: readonly FlatNode[];
  readonly indices = new Map<string, number>();
  /** Index of the parent of each node; -1 for none. */
  readonly parents: Int32Array;
  /** Nodes with parents before their children, and siblings in file order. */
  readonly order: Int32Array;

  constructor(nodes: readonly FlatNode[]) {
    this.nodes = nodes;
    const size = nodes.length;
    for (let i = 0; i < size; i++) this.indices.set(nodes[i].id, i);
    this.parents = Int32Array.from(
      nodes,
      ({ parentId }) => (parentId === null ? undefined : this.indices.get(parentId)) ?? NONE,
    );
    const { first, next } = childrenOf(this.parents, Int32Array.from(nodes.keys()));
    // Entries that name each other as parents are never reached.
    this.order = Int32Array.from(depthFirst(first, next));
  }
}

/** Returns lists of children by linked nodes, in the given order of the nodes; the roots' list is the last. */
function childrenOf(parents: Int32Array, nodes: Int32Array): { first: Int32Array; next: Int32Array } {
  const size = parents.length;
  const first = new Int32Array(size + 1).fill(NONE);
  const next = new Int32Array(size).fill(NONE);
  // Built backwards, because each child is put at the front of its list.
  for (let i = nodes.length - 1; i >= 0; i--) {
    const node = nodes[i];
    const parent = parents[node] === NONE ? size : parents[node];
    next[node] = first[parent];
    first[parent] = node;
  }
  return { first, next };
}

function* depthFirst(first: Int32Array, next: Int32Array): Generator<number> {
  const stack: number[] = [];
  for (let at = first[first.length - 1]; at !== NONE; at = next[at]) stack.push(at);
  stack.reverse();
  while (stack.length > 0) {
    const node = stack.pop() as number;
    yield node;
    const from = stack.length;
    for (let child = first[node]; child !== NONE; child = next[child]) stack.push(child);
    for (let a = from, b = stack.length - 1; a < b; a++, b--) [stack[a], stack[b]] = [stack[b], stack[a]];
  }
}

/** The folded rows: lines of entries unless they are opened, branches if they are closed. */
export interface Folds {
  readonly isFolding: boolean;
  readonly opened: ReadonlySet<string>;
  readonly closed: ReadonlySet<string>;
}

export const UNFOLDED: Folds = { isFolding: false, opened: new Set(), closed: new Set() };
export const FOLDED: Folds = { ...UNFOLDED, isFolding: true };

/** The rows of one filter, one leaf and some folds. It does not change; others are made of it. */
export class Branches {
  readonly leafId: string | null;
  readonly filter: Filter;
  readonly folds: Folds;
  /** Row of the leaf, or of the nearest shown entry above it; -1 if there is none. */
  readonly leafRow: number;
  /** True if that row is the leaf, stands for it, or only entries about the session come between. */
  readonly isLeafShown: boolean;
  private readonly forest: Forest;
  /** Node of each row, or the first of those that it stands for. */
  private readonly shown: Int32Array;
  /** Entries that a row represents in addition to its own; negative for a whole branch. */
  private readonly counts: Int32Array;
  private readonly levels: Int32Array;
  /** 1 if a row is the first of its branch. */
  private readonly heads: Uint8Array;
  /** Row of each node; of one that is not shown, the row that stands for it, or that of its parent. */
  private readonly rowOf: Int32Array;
  private readonly active: Uint8Array;
  /** 1 if the conversation continues after a node in several ways. */
  private readonly points: Uint8Array;
  /** 1 if a node belongs to a line that was opened. */
  private readonly spread: Uint8Array;
  /** Places of the nodes in the order of the forest, made when they are first needed. */
  private places: Int32Array | undefined;

  constructor(
    nodes: readonly FlatNode[] | Forest,
    leafId: string | null,
    filter: Filter = "default",
    folds: Folds = UNFOLDED,
  ) {
    const forest = nodes instanceof Forest ? nodes : new Forest(nodes);
    this.forest = forest;
    this.leafId = leafId;
    this.filter = filter;
    this.folds = folds;
    const { order, parents } = forest;
    const size = order.length;
    this.active = new Uint8Array(size);
    const leaf = leafId === null ? NONE : (forest.indices.get(leafId) ?? NONE);
    for (let at = leaf; at !== NONE && this.active[at] === 0; at = parents[at]) this.active[at] = 1;
    const above = this.above(filter);
    const kept = order.filter((node) => above[node] !== node);
    const upper = Int32Array.from(above, (node, i) => (node === i ? NONE : node));
    const { first, next } = childrenOf(upper, kept);
    const mains = this.mains(first, next, kept, upper);
    this.points = Uint8Array.from({ length: size }, (_, node) =>
      first[node] !== NONE && next[first[node]] !== NONE ? 1 : 0,
    );
    this.shown = new Int32Array(kept.length);
    this.counts = new Int32Array(kept.length);
    this.levels = new Int32Array(kept.length);
    this.heads = new Uint8Array(kept.length);
    this.rowOf = new Int32Array(size).fill(NONE);
    this.spread = new Uint8Array(size);
    const rows = this.lay(first, next, mains);
    this.shown = this.shown.subarray(0, rows);
    let last = leaf;
    while (last !== NONE && this.rowOf[last] === NONE && isSetting(forest.nodes[last])) last = parents[last];
    this.isLeafShown = last !== NONE && this.rowOf[last] !== NONE;
    for (const node of order) {
      const parent = parents[node];
      if (this.rowOf[node] === NONE && parent !== NONE) this.rowOf[node] = this.rowOf[parent];
    }
    this.leafRow = leaf === NONE ? NONE : this.rowOf[leaf];
  }

  /**
   * Returns for each node the nearest one above it that passes, -1 for none; a node that does not pass itself has
   * itself there.
   */
  private above(filter: Filter): Int32Array {
    const { nodes, order, parents } = this.forest;
    const nearest = new Int32Array(nodes.length).fill(NONE);
    const above = new Int32Array(nodes.length);
    for (const node of order) {
      const parent = parents[node];
      const up = parent === NONE ? NONE : nearest[parent];
      const isIn = passes(nodes[node], filter);
      nearest[node] = isIn ? node : up;
      above[node] = isIn ? up : node;
    }
    return above;
  }

  /** Returns the child of each node that continues in its column; -1 for none. */
  private mains(first: Int32Array, next: Int32Array, kept: Int32Array, upper: Int32Array): Int32Array {
    const sizes = new Int32Array(upper.length).fill(1);
    for (let i = kept.length - 1; i >= 0; i--) {
      const parent = upper[kept[i]];
      if (parent !== NONE) sizes[parent] += sizes[kept[i]];
    }
    const mains = new Int32Array(upper.length).fill(NONE);
    for (const node of kept) {
      let best = first[node];
      for (let child = best; child !== NONE; child = next[child])
        if (this.active[child] > this.active[best]) best = child;
        else if (this.active[child] === this.active[best] && sizes[child] >= sizes[best]) best = child;
      mains[node] = best;
    }
    return mains;
  }

  /** Puts the nodes into rows; returns how many. */
  private lay(first: Int32Array, next: Int32Array, mains: Int32Array): number {
    const { forest, folds } = this;
    // Nodes that wait for a row, with their level, twice; the last bit is set for the first of a branch.
    const stack: number[] = [];
    const roots: number[] = [];
    for (let at = first[forest.nodes.length]; at !== NONE; at = next[at]) roots.push(at);
    for (const root of roots.reverse()) stack.push(root, 0);
    let rows = 0;
    while (stack.length > 0) {
      const place = stack.pop() as number;
      const node = stack.pop() as number;
      const row = rows++;
      this.put(row, node, place >> 1, place & 1);
      if (folds.closed.has(forest.nodes[node].id) && (place & 1) === 1) {
        this.counts[row] = -this.hide(node, row, first, next);
        continue;
      }
      const last = this.endOfLine(node, place & 1, first, mains);
      if (last !== node) this.counts[row] = this.fold(node, last, row, mains);
      const main = mains[last];
      if (main === NONE) continue;
      stack.push(main, place & ~1);
      const siblings: number[] = [];
      for (let child = first[last]; child !== NONE; child = next[child]) if (child !== main) siblings.push(child);
      for (const sibling of siblings.reverse()) stack.push(sibling, (((place >> 1) + 1) << 1) | 1);
    }
    return rows;
  }

  private put(row: number, node: number, level: number, head: number): void {
    this.shown[row] = node;
    this.levels[row] = level;
    this.heads[row] = head;
    this.rowOf[node] = row;
  }

  /** Hides all that comes after a node; returns how much that is. */
  private hide(node: number, row: number, first: Int32Array, next: Int32Array): number {
    const stack = [node];
    let count = NONE;
    while (stack.length > 0) {
      const at = stack.pop() as number;
      this.rowOf[at] = row;
      count++;
      for (let child = first[at]; child !== NONE; child = next[child]) stack.push(child);
    }
    return count;
  }

  /** Returns the last node of the foldable line that begins with a node; the node itself if there is no such line. */
  private endOfLine(node: number, head: number, first: Int32Array, mains: Int32Array): number {
    const { folds, spread } = this;
    if (!folds.isFolding || head === 1 || spread[node] === 1) return node;
    const line: number[] = [];
    for (let at = node; at !== NONE && this.isPlain(at, first); at = mains[at]) line.push(at);
    if (line.length < LINEAR) return node;
    if (!folds.opened.has(this.forest.nodes[node].id)) return line[line.length - 1];
    for (const at of line) spread[at] = 1;
    return node;
  }

  /** Returns true if an entry may be folded into a line: no question, label, leaf, branch or end. */
  private isPlain(node: number, first: Int32Array): boolean {
    const { role, label, id } = this.forest.nodes[node];
    if (role === "user" || label !== undefined || id === this.leafId) return false;
    return first[node] !== NONE && this.points[node] === 0;
  }

  private fold(from: number, to: number, row: number, mains: Int32Array): number {
    let count = 0;
    for (let at = from; ; at = mains[at]) {
      this.rowOf[at] = row;
      if (at === to) return count + 1;
      count++;
    }
  }

  get rows(): number {
    return this.shown.length;
  }

  get nodes(): readonly FlatNode[] {
    return this.forest.nodes;
  }

  node(row: number): FlatNode {
    return this.forest.nodes[this.shown[row]];
  }

  level(row: number): number {
    return this.levels[row];
  }

  isHead(row: number): boolean {
    return this.heads[row] === 1;
  }

  /** Returns true if the conversation continues at a row: see {@link isLeafShown}. */
  hasLeaf(row: number): boolean {
    return this.isLeafShown && row === this.leafRow;
  }

  /** Returns true if the conversation continues after the entry in several ways. */
  isPoint(row: number): boolean {
    return this.points[this.shown[row]] === 1;
  }

  /** Returns true if an entry is on the path to the leaf. */
  isActive(row: number): boolean {
    return this.active[this.shown[row]] === 1;
  }

  /** The entries of a line that a row stands for; 0 for a row that stands for itself. */
  lineLength(row: number): number {
    return Math.max(0, this.counts[row]);
  }

  /** The entries of a folded branch that are hidden behind a row. */
  hiddenBehind(row: number): number {
    return Math.max(0, -this.counts[row]);
  }

  /** The row of an entry, or what stands for it; -1 where nothing does. */
  row(id: string): number {
    const node = this.forest.indices.get(id);
    return node === undefined ? NONE : this.rowOf[node];
  }

  /** Returns the entries that a row stands for, itself first. */
  *entries(row: number): Generator<FlatNode> {
    const { nodes, order } = this.forest;
    if (this.counts[row] <= 0) return yield this.node(row);
    // The nodes of a line are shown in the order of the forest, as far as they pass.
    let left = this.counts[row];
    const from = this.place(this.shown[row]);
    for (let i = from; i < order.length && left > 0; i++) {
      if (this.rowOf[order[i]] !== row || !passes(nodes[order[i]], this.filter)) continue;
      left--;
      yield nodes[order[i]];
    }
  }

  private place(node: number): number {
    const { order } = this.forest;
    if (!this.places) {
      this.places = new Int32Array(order.length);
      for (let i = 0; i < order.length; i++) this.places[order[i]] = i;
    }
    return this.places[node];
  }

  /** Returns the first row of the branch that a row belongs to; of the first column, the first row. */
  headOf(row: number): number {
    const level = this.levels[row];
    let at = row;
    while (at > 0 && !(this.heads[at] === 1 && this.levels[at] === level)) at--;
    return at;
  }

  /** Returns the same entries with another leaf, filter or folds. */
  with(change: { leafId?: string | null; filter?: Filter; folds?: Folds }): Branches {
    const { leafId, filter, folds } = { leafId: this.leafId, filter: this.filter, folds: this.folds, ...change };
    return new Branches(this.forest, leafId, filter, folds);
  }

  /** Returns the branches with the label of one entry set, or cleared. */
  labelled(id: string, label: string | undefined): Branches {
    const nodes = this.nodes.map((node) => (node.id === id ? { ...node, label } : node));
    return new Branches(nodes, this.leafId, this.filter, this.folds);
  }

  /**
   * Returns the id of the next entry that `holds` accepts, wrapping around; undefined if there is none. Folded ones
   * count.
   */
  find(from: number, step: 1 | -1, holds: (node: FlatNode) => boolean): string | undefined {
    const { nodes, order } = this.forest;
    const size = order.length;
    const start = size === 0 || from < 0 || from >= this.rows ? 0 : this.place(this.shown[from]);
    for (let i = 1; i <= size; i++) {
      const node = order[(start + step * i + 2 * size) % size];
      if (passes(nodes[node], this.filter) && holds(nodes[node])) return nodes[node].id;
    }
    return undefined;
  }

  /** Returns the rows with an entry among them: opens the folds that hide it. */
  revealing(id: string): Branches {
    const row = this.row(id);
    // An entry that does not pass the filter has no row of its own.
    if (row < 0 || this.node(row).id === id || this.counts[row] === 0) return this;
    const head = this.node(row).id;
    const opened = new Set(this.folds.opened).add(head);
    const closed = new Set(this.folds.closed);
    closed.delete(head);
    // A branch within a closed one may be closed too.
    return this.with({ folds: { ...this.folds, opened, closed } }).revealing(id);
  }
}
