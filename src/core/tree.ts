/** The tree of one session: its nodes, its leaf, and running figures that make state cheap at any size. */

import { Column, MISSING, type Nodes, ROOT } from "./nodes.ts";

export interface Label {
  readonly label: string;
  /** Position of the label entry that set it. */
  readonly setBy: number;
}

export interface Boundary {
  /** The first entry that is kept; the compaction itself when nothing is. */
  readonly first: number;
  /** The entry that the compaction names is not where it has to be. */
  readonly misplaced: boolean;
}

/** What the tree must know of bodies; everything else it reads from the nodes. */
export interface TreeFacts {
  /** A compaction that does not count, because it has no summary to show. */
  isVoid(position: number): boolean;
}

export class Tree {
  readonly nodes: Nodes;
  /** Position of the current leaf, or {@link ROOT} before the first entry. */
  leaf = ROOT;
  readonly labels = new Map<number, Label>();
  /** Entries with more than one child. */
  branchCount = 0;
  /** Where compactions keep from, worked out once for each: what is on a path never changes. */
  readonly boundaries = new Map<number, Boundary>();
  /** Whether any entry changes what others yield, so that counts need a walk. */
  hasEdits = false;

  private readonly facts: TreeFacts;
  private extended = 0;
  private hidden = 0;
  private depths = new Column(new Int32Array(16));
  private childCounts = new Column(new Uint32Array(16));
  private yields = new Column(new Int32Array(16));
  private systems = new Column(new Int32Array(16));
  private compactions = new Column(new Int32Array(16));
  private models = new Column(new Int32Array(16));
  private levels = new Column(new Int32Array(16));
  private family: Family | undefined;

  constructor(nodes: Nodes, facts: TreeFacts) {
    this.nodes = nodes;
    this.facts = facts;
    if (nodes.forward.size === 0) for (let p = 0; p < nodes.count; p++) this.extend(p);
    else this.extendParentsFirst();
  }

  /** Takes in the node at `position`, whose parent has been taken in before. */
  extend(position: number): void {
    const { nodes } = this;
    const parent = nodes.parent(position);
    const above = parent >= 0;
    this.depths.set(position, above ? this.depths.values[parent] + 1 : 0);
    this.childCounts.set(position, 0);
    const type = nodes.type(position);
    const role = nodes.role(position);
    const message = type === "message" && !nodes.lacksMessage(position);
    const yields = (message || type === "custom_message" || type === "branch_summary") && !this.facts.isVoid(position);
    this.yields.set(position, (above ? this.yields.values[parent] : 0) + (yields ? 1 : 0));
    this.systems.set(position, (above ? this.systems.values[parent] : 0) + (role === "system" ? 1 : 0));
    this.compactions.set(
      position,
      inherit(this.compactions, parent, type === "compaction" && !this.facts.isVoid(position), position),
    );
    this.models.set(
      position,
      inherit(this.models, parent, type === "model_change" || (message && role === "assistant"), position),
    );
    this.levels.set(position, inherit(this.levels, parent, type === "thinking_level_change", position));
    if (type === "context_edit") this.hasEdits = true;
    this.extended++;
    if (nodes.isMarker(position)) {
      this.hidden++;
      this.family?.hide(position);
    } else this.countChild(position);
  }

  /** A file may name a parent that stands later in it; then file order is not parents-first. */
  private extendParentsFirst(): void {
    const { nodes } = this;
    const done = new Uint8Array(nodes.count);
    const waiting: number[] = [];
    for (let p = 0; p < nodes.count; p++) {
      for (let at = p; at >= 0 && !done[at]; at = nodes.parent(at)) waiting.push(at);
      for (let at = waiting.pop(); at !== undefined; at = waiting.pop()) {
        if (done[at]) continue;
        done[at] = 1;
        this.extend(at);
      }
    }
  }

  /** Counts a visible node as its parent's child; a leaf marker that gets a child becomes visible itself. */
  private countChild(position: number): void {
    let at = position;
    for (;;) {
      this.family?.add(at, this.nodes.parent(at));
      const parent = this.nodes.parent(at);
      if (parent < 0) return;
      const before = this.childCounts.values[parent]++;
      if (before === 1) this.branchCount++;
      if (before > 0 || !this.nodes.isMarker(parent)) return;
      this.hidden--;
      this.family = undefined;
      at = parent;
    }
  }

  /** Entries without the leaf markers that nobody continued from. */
  get entryCount(): number {
    return this.extended - this.hidden;
  }

  /** False for a leaf marker that nobody continued from: it is no part of the conversation. */
  isVisible(position: number): boolean {
    return !this.nodes.isMarker(position) || this.childCounts.values[position] > 0;
  }

  /** Number of ancestors. */
  depth(position: number): number {
    return this.depths.values[position];
  }

  childCount(position: number): number {
    return this.childCounts.values[position];
  }

  /** Children in file order; of {@link ROOT} the roots, entries with a missing parent included. */
  *children(position: number): Generator<number> {
    this.family ??= Family.of(this);
    yield* this.family.children(position);
  }

  /** Positions from the root (or the end of what is known) down to `position`, inclusive. */
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

  /** The deepest node that is an ancestor of both (or one of them), or {@link ROOT}. */
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

  /** How many entries from the root to `position` yield a message by themselves. */
  yieldCount(position: number): number {
    return position < 0 ? 0 : this.yields.values[position];
  }

  systemCount(position: number): number {
    return position < 0 ? 0 : this.systems.values[position];
  }

  /** The nearest compaction on the path to `position`, itself included, or {@link ROOT}. */
  lastCompaction(position: number): number {
    return position < 0 ? ROOT : this.compactions.values[position];
  }

  /** The nearest entry on the path that names a model. */
  lastModel(position: number): number {
    return position < 0 ? ROOT : this.models.values[position];
  }

  lastLevel(position: number): number {
    return position < 0 ? ROOT : this.levels.values[position];
  }
}

function inherit(column: Column<Int32Array>, parent: number, own: boolean, position: number): number {
  if (own) return position;
  return parent >= 0 ? column.values[parent] : ROOT;
}

/** Lists of children, built when first asked for. */
class Family {
  private first = new Column(new Int32Array(16));
  private last = new Column(new Int32Array(16));
  private next = new Column(new Int32Array(16));
  private firstRoot = -1;
  private lastRoot = -1;

  static of(tree: Tree): Family {
    const family = new Family();
    for (let p = 0; p < tree.nodes.count; p++) {
      family.first.set(p, -1);
      family.last.set(p, -1);
    }
    for (let p = 0; p < tree.nodes.count; p++) if (tree.isVisible(p)) family.link(p, tree.nodes.parent(p));
    return family;
  }

  add(position: number, parent: number): void {
    this.hide(position);
    this.link(position, parent);
  }

  /** A node that has no children and is nobody's child. */
  hide(position: number): void {
    this.first.set(position, -1);
    this.last.set(position, -1);
  }

  private link(position: number, parent: number): void {
    this.next.set(position, -1);
    if (parent === ROOT || parent === MISSING) {
      if (this.lastRoot < 0) this.firstRoot = position;
      else this.next.set(this.lastRoot, position);
      this.lastRoot = position;
      return;
    }
    if (this.last.values[parent] < 0) this.first.set(parent, position);
    else this.next.set(this.last.values[parent], position);
    this.last.set(parent, position);
  }

  *children(position: number): Generator<number> {
    let at = position < 0 ? this.firstRoot : this.first.values[position];
    while (at >= 0) {
      yield at;
      at = this.next.values[at];
    }
  }
}
