/** The tree of one session: its nodes, its leaf, and running counts that make state cheap at any size. */

import {
  COUNTERS,
  Column,
  HEAD_MARKER,
  HEAD_NO_MESSAGE,
  KNOWN_TYPES,
  MISSING,
  type Nodes,
  ROLES,
  ROOT,
  type TreeCounters,
} from "./nodes.ts";

export interface Label {
  readonly label: string;
  /** Position of the label entry that set it. */
  readonly setBy: number;
}

export interface Boundary {
  /** The first entry that is kept; the compaction itself when nothing is. */
  readonly first: number;
  /** True if the entry that the compaction names is not where it has to be. */
  readonly misplaced: boolean;
  /** Number of kept messages that the compaction itself carries. */
  readonly retained?: number;
}

/** Facts about bodies that the tree needs; it reads everything else from the nodes. */
interface TreeFacts {
  /** Returns whether a compaction or a branch summary does not count, because it has no summary to show. */
  isVoid(position: number): boolean;
  /** Returns the position of the current leaf; by default, that of an empty tree. */
  leaf?(): number;
}

/** Effects of an entry, by its type, on the counters and inherited values along a path. */
const IS_MESSAGE = 1;
const YIELDS = 2;
const COMPACTS = 4;
const NAMES_MODEL = 8;
const NAMES_LEVEL = 16;
const EDITS = 32;
const CAN_BE_VOID = 64;
const DOES_BY_TYPE: Partial<Record<(typeof KNOWN_TYPES)[number], number>> = {
  message: IS_MESSAGE,
  custom_message: YIELDS,
  branch_summary: YIELDS | CAN_BE_VOID,
  compaction: COMPACTS | CAN_BE_VOID,
  model_change: NAMES_MODEL,
  thinking_level_change: NAMES_LEVEL,
  context_edit: EDITS,
};
/** Effects by the code of the type. */
const DOES = Uint8Array.from(KNOWN_TYPES, (type) => DOES_BY_TYPE[type] ?? 0);
const SYSTEM = ROLES.indexOf("system");
const ASSISTANT = ROLES.indexOf("assistant");
/** Room for entries that are appended next. */
const EXTRA_CAPACITY = 1024;

export class Tree {
  readonly nodes: Nodes;
  readonly labels = new Map<number, Label>();
  /** Entries with more than one child. */
  branchCount = 0;
  /** First kept entries of compactions, computed once for each: the entries on a path never change. */
  readonly boundaries = new Map<number, Boundary>();
  /** True if any entry changes the messages of others, so that counts need a walk. */
  hasEdits = false;

  private readonly facts: TreeFacts;
  private extended = 0;
  private hidden = 0;
  private depths!: Column<Int32Array>;
  private childCounts!: Column<Int32Array>;
  private yields!: Column<Int32Array>;
  private systems!: Column<Int32Array>;
  private compactions!: Column<Int32Array>;
  private models!: Column<Int32Array>;
  private levels!: Column<Int32Array>;
  private family: Family | undefined;

  constructor(nodes: Nodes, facts: TreeFacts) {
    this.nodes = nodes;
    this.facts = facts;
    const known = nodes.takeCounters();
    const order = nodes.forward.size > 0 ? parentsFirst(nodes) : undefined;
    if (known && !order) this.resume(known);
    else for (const name of COUNTERS) this[name] = new Column(new Int32Array(nodes.count + EXTRA_CAPACITY));
    this.extendRange(this.extended, nodes.count, order);
    nodes.currentCounters = () => this.counters();
  }

  /** Position of the current leaf, or {@link ROOT} before the first entry. */
  get leaf(): number {
    return this.facts.leaf?.() ?? ROOT;
  }

  /** Returns this tree with another leaf. */
  at(leaf: () => number): Tree {
    return Object.create(this, { leaf: { get: leaf } });
  }

  /** Returns the data computed from all nodes, for keeping it with them; null while some are not added. */
  private counters(): TreeCounters | null {
    const { nodes, extended: count, hidden, branchCount, hasEdits } = this;
    if (count !== nodes.count) return null;
    const columns = COUNTERS.map((name) => [name, this[name].values.subarray(0, count)]);
    return { count, hidden, branchCount, hasEdits, columns: Object.fromEntries(columns) };
  }

  /** Continues from the counts that were kept of the first nodes. */
  private resume({ count, hidden, branchCount, hasEdits, columns }: TreeCounters): void {
    this.extended = count;
    this.hidden = hidden;
    this.branchCount = branchCount;
    this.hasEdits = hasEdits;
    for (const name of COUNTERS) this[name] = new Column(columns[name]);
  }

  /** Adds the node at `position`, whose parent has been added before. */
  extend(position: number): void {
    this.extendRange(position, position + 1);
  }

  /**
   * Adds the nodes from `from` up to `past`, or those that `order` has there; each comes after its parent. It works on
   * bare columns: for a million entries it takes 20 ms, and 250 ms if each value were set by a call.
   */
  private extendRange(from: number, past: number, order?: Int32Array): void {
    const { parents, types, roles, flags } = this.nodes.columnsWithCapacity();
    // All have the same length.
    if (past > this.levels.values.length) for (const name of COUNTERS) this[name].reserve(past - 1);
    const { values: depths } = this.depths;
    const { values: childCounts } = this.childCounts;
    const { values: yields } = this.yields;
    const { values: systems } = this.systems;
    const { values: compactions } = this.compactions;
    const { values: models } = this.models;
    const { values: levels } = this.levels;
    for (let i = from; i < past; i++) {
      const p = order ? order[i] : i;
      const parent = parents[p];
      const does = types[p] < DOES.length ? DOES[types[p]] : 0;
      const isLegible = (flags[p] & HEAD_NO_MESSAGE) === 0;
      const isMessage = (does & IS_MESSAGE) !== 0 && isLegible;
      const isVoid = (does & CAN_BE_VOID) !== 0 && this.facts.isVoid(p);
      let depth = 0;
      let yielded = isMessage || ((does & YIELDS) !== 0 && isLegible && !isVoid) ? 1 : 0;
      let system = roles[p] === SYSTEM ? 1 : 0;
      let compaction = ROOT;
      let model = ROOT;
      let level = ROOT;
      if (parent >= 0) {
        depth = depths[parent] + 1;
        yielded += yields[parent];
        system += systems[parent];
        compaction = compactions[parent];
        model = models[parent];
        level = levels[parent];
      }
      if ((does & COMPACTS) !== 0 && !isVoid) compaction = p;
      if ((does & NAMES_MODEL) !== 0 || (isMessage && roles[p] === ASSISTANT)) model = p;
      if ((does & NAMES_LEVEL) !== 0) level = p;
      if ((does & EDITS) !== 0) this.hasEdits = true;
      depths[p] = depth;
      childCounts[p] = 0;
      yields[p] = yielded;
      systems[p] = system;
      compactions[p] = compaction;
      models[p] = model;
      levels[p] = level;
      if ((flags[p] & HEAD_MARKER) !== 0) {
        this.hidden++;
        this.family?.hide(p);
        continue;
      }
      // A visible node counts as its parent's child; a leaf marker that gets a child becomes visible itself.
      for (let at = p; ; ) {
        const above = parents[at];
        this.family?.add(at, above);
        if (above < 0) break;
        const before = childCounts[above]++;
        if (before === 1) this.branchCount++;
        if (before > 0 || (flags[above] & HEAD_MARKER) === 0) break;
        this.hidden--;
        this.family = undefined;
        at = above;
      }
    }
    this.extended += past - from;
  }

  /** Number of entries without the leaf markers that no entry continues. */
  get entryCount(): number {
    return this.extended - this.hidden;
  }

  /** Returns false for a leaf marker that no entry continues: it is no part of the conversation. */
  isVisible(position: number): boolean {
    return !this.nodes.isMarker(position) || this.childCounts.values[position] > 0;
  }

  /** Returns the number of ancestors. */
  depth(position: number): number {
    return this.depths.values[position];
  }

  childCount(position: number): number {
    return this.childCounts.values[position];
  }

  /** Yields children in file order; for {@link ROOT} the roots, entries with a missing parent included. */
  *children(position: number): Generator<number> {
    this.family ??= Family.of(this);
    yield* this.family.children(position);
  }

  /** Returns all visible entries, each before its children, and children in file order. */
  depthFirst(): Int32Array {
    this.family ??= Family.of(this);
    return this.family.depthFirst(this.nodes);
  }

  /** Returns the positions from the root (or the first known ancestor) down to `position`, inclusive. */
  path(position: number = this.leaf): Int32Array {
    if (position < 0) return new Int32Array(0);
    const path = new Int32Array(this.depths.values[position] + 1);
    let at = position;
    for (let i = path.length - 1; i >= 0; i--) {
      path[i] = at;
      at = this.nodes.parent(at);
    }
    return path;
  }

  isAncestor(ancestor: number, of: number): boolean {
    if (of < 0 || ancestor < 0) return false;
    let at = of;
    for (let steps = this.depths.values[of] - this.depths.values[ancestor]; steps > 0; steps--)
      at = this.nodes.parent(at);
    return at === ancestor;
  }

  /** Returns the deepest node that is an ancestor of both (or one of them), or {@link ROOT}. */
  commonAncestor(a: number, b: number): number {
    let x = a;
    let y = b;
    while (x !== y) {
      if (x < 0 || y < 0) return ROOT;
      if (this.depths.values[x] >= this.depths.values[y]) x = this.nodes.parent(x);
      else y = this.nodes.parent(y);
    }
    return x < 0 ? ROOT : x;
  }

  /** Returns how many entries from the root to `position` yield a message by themselves. */
  yieldCount(position: number): number {
    return position < 0 ? 0 : this.yields.values[position];
  }

  systemCount(position: number): number {
    return position < 0 ? 0 : this.systems.values[position];
  }

  /** Returns the nearest compaction on the path to `position`, itself included, or {@link ROOT}. */
  lastCompaction(position: number): number {
    return position < 0 ? ROOT : this.compactions.values[position];
  }

  /** Returns the nearest entry on the path that names a model. */
  lastModel(position: number): number {
    return position < 0 ? ROOT : this.models.values[position];
  }

  lastLevel(position: number): number {
    return position < 0 ? ROOT : this.levels.values[position];
  }
}

/** Returns all positions, parents first: in a file, a parent may come after its child. */
function parentsFirst(nodes: Nodes): Int32Array {
  const order = new Int32Array(nodes.count);
  const isPlaced = new Uint8Array(nodes.count);
  const waiting: number[] = [];
  let placed = 0;
  for (let p = 0; p < nodes.count; p++) {
    for (let at = p; at >= 0 && !isPlaced[at]; at = nodes.parent(at)) {
      isPlaced[at] = 1;
      waiting.push(at);
    }
    for (let at = waiting.pop(); at !== undefined; at = waiting.pop()) order[placed++] = at;
  }
  return order;
}

/** Lists of children, built on first use. The root's is at 0, that of each position one further. */
class Family {
  private first = new Column(new Int32Array(16));
  private last = new Column(new Int32Array(16));
  private next = new Column(new Int32Array(16));

  static of(tree: Tree): Family {
    const family = new Family();
    for (let p = ROOT; p < tree.nodes.count; p++) family.hide(p);
    for (let p = 0; p < tree.nodes.count; p++) if (tree.isVisible(p)) family.link(p, tree.nodes.parent(p));
    return family;
  }

  add(position: number, parent: number): void {
    this.hide(position);
    this.link(position, parent);
  }

  /** Adds a node that has no children and is in no list of children. */
  hide(position: number): void {
    this.first.set(position + 1, -1);
    this.last.set(position + 1, -1);
  }

  private link(position: number, parent: number): void {
    this.next.set(position, -1);
    const list = parent === MISSING ? 0 : parent + 1;
    const before = this.last.values[list];
    if (before < 0) this.first.set(list, position);
    else this.next.set(before, position);
    this.last.set(list, position);
  }

  depthFirst(nodes: Nodes): Int32Array {
    const found = new Int32Array(nodes.count);
    const { values: next } = this.next;
    const { values: first } = this.first;
    let count = 0;
    for (let at = first[0]; at >= 0; ) {
      found[count++] = at;
      if (first[at + 1] >= 0) {
        at = first[at + 1];
        continue;
      }
      while (at >= 0 && next[at] < 0) at = nodes.parent(at);
      if (at >= 0) at = next[at];
    }
    return found.subarray(0, count);
  }

  *children(position: number): Generator<number> {
    let at = this.first.values[position + 1];
    while (at >= 0) {
      yield at;
      at = this.next.values[at];
    }
  }
}
