/** The tree of a session as its page knows it, without the document: parents and children, and the entries in a list. */

import type { RowKind, RowMore, RowTuple } from "../row.ts";

/** An entry of the tree. */
export interface TreeRow {
  readonly id: string;
  readonly position: number;
  /** The position of the parent, or NONE. */
  readonly above: number;
  readonly kind: RowKind;
  readonly text: string;
  readonly time: number;
  readonly more: RowMore;
}

export const NONE = -1;

const NOTHING: RowMore = {};

export type FilterName = "talk" | "tools" | "user" | "labels" | "all";

/** A line of the list: an entry, or a stretch of them that is folded. */
export interface ListLine {
  /** The entry, or the first of the stretch. */
  readonly at: number;
  /** The entries of the stretch; none if it is no stretch, or stands open. */
  readonly folded?: readonly number[];
  /** True if it heads a stretch that is open. */
  readonly opened?: true;
  readonly level: number;
  /** The levels that have a branch continuing next to this line, as bits. */
  readonly rails: number;
  /** True if a branch begins here. */
  readonly begins: boolean;
}

/** Levels that have a rail of their own. */
export const DEEPEST = 12;

/** Least entries without a fork that make a stretch. */
const STRETCH = 2;

/** Kinds that say nothing. */
export const SETTING_TYPES: ReadonlySet<RowKind> = new Set(["l", "n", "m", "t", "o"]);

export class TreeModel {
  rows: TreeRow[] = [];
  /** For each row its parent, the child that continues its branch, and its children. */
  parents = new Int32Array(0);
  heirs = new Int32Array(0);
  children: number[][] = [];
  leaf = NONE;
  roots: readonly number[] = [];
  private last = NONE;
  private readonly byId = new Map<string, number>();
  private readonly byPosition = new Map<number, number>();

  /** Adds rows; known ones replace their older versions. Returns their indexes. */
  take(tuples: readonly RowTuple[]): number[] {
    return tuples.map(([id, given, parent, kind, text, time, more = NOTHING]) => {
      const known = this.byId.get(id);
      const position = given >= 0 ? given : known === undefined ? this.last + 1 : this.rows[known].position;
      const above = typeof parent === "string" ? this.positionOf(parent) : parent === 0 ? NONE : position - parent;
      const index = known ?? this.rows.length;
      this.rows[index] = { id, position, above, kind, text, time, more };
      this.byId.set(id, index);
      this.byPosition.set(position, index);
      this.last = Math.max(this.last, position);
      return index;
    });
  }

  private positionOf(id: string): number {
    return this.rows[this.find(id)]?.position ?? NONE;
  }

  find(id: string): number {
    return this.byId.get(id) ?? NONE;
  }

  /** Computes parents and children, once rows were added. */
  join(leafId: string): void {
    const { rows } = this;
    this.parents = Int32Array.from(rows, ({ above }) => this.byPosition.get(above) ?? NONE);
    this.children = rows.map(() => []);
    const order = [...rows.keys()].sort((a, b) => rows[a].position - rows[b].position);
    for (const index of order) if (this.parents[index] >= 0) this.children[this.parents[index]].push(index);
    this.roots = order.filter((index) => this.parents[index] < 0);
    this.leaf = this.find(leafId);
    this.choose();
  }

  /** Finds for each entry the child that continues its branch: towards the leaf, else the latest. */
  private choose(): void {
    const { rows, parents, children } = this;
    this.heirs = new Int32Array(rows.length).fill(NONE);
    const last = Int32Array.from(rows, ({ kind, position }) => (kind === "l" || kind === "n" ? -1 : position));
    for (const index of this.downwards().reverse()) {
      for (const child of children[index]) {
        const heir = this.heirs[index];
        if (heir < 0 || last[child] >= last[heir]) this.heirs[index] = child;
      }
      const heir = this.heirs[index];
      if (heir >= 0) last[index] = Math.max(last[index], last[heir]);
    }
    for (let at = this.leaf; at >= 0 && parents[at] >= 0; at = parents[at]) this.heirs[parents[at]] = at;
  }

  /** Returns the rows, each after its parent. */
  private downwards(): number[] {
    const found = [...this.roots];
    for (let next = 0; next < found.length; next++) for (const child of this.children[found[next]]) found.push(child);
    return found;
  }

  /** Returns the rows from the root to one of them. */
  path(end: number): number[] {
    const path: number[] = [];
    for (let at = end; at >= 0 && path.length <= this.rows.length; at = this.parents[at]) path.push(at);
    return path.reverse();
  }

  /** Returns the end of the branch that a row is on. */
  tip(from: number): number {
    let at = from;
    while (this.heirs[at] >= 0) at = this.heirs[at];
    return at;
  }

  /** Returns true if a filter shows a row; labelled ones show in all but one. */
  private passes(filter: FilterName, { kind, more }: TreeRow): boolean {
    if (filter === "user") return kind === "u";
    if (filter === "all" || more.l !== undefined) return true;
    if (filter === "labels" || SETTING_TYPES.has(kind)) return false;
    return filter === "talk" || (kind !== "r" && (kind !== "a" || more.c === undefined));
  }

  /**
   * Returns the lines of the list. `found`: only these rows, whatever the filter; `end`: the end of the shown path;
   * `opened`: stretches that stand open, by their first entries.
   */
  lines(filter: FilterName, end: number, opened: ReadonlySet<number>, found?: ReadonlySet<number>): ListLine[] {
    const lines: ListLine[] = [];
    /** The stretch that may be folded, and where it begins. */
    let run: ListLine[] = [];
    const endRun = (): void => {
      const isStretch = run.length >= STRETCH;
      if (isStretch && !opened.has(run[0].at)) lines.push({ ...run[0], folded: run.map(({ at }) => at) });
      else for (const line of run) lines.push(isStretch && line === run[0] ? { ...line, opened: true } : line);
      run = [];
    };
    /** Levels of branches that have shown nothing yet. */
    const unseen = new Set<number>();
    for (const given of this.walk()) {
      const { at, level } = given;
      if (given.begins) unseen.add(level);
      if (found ? !found.has(at) : !this.passes(filter, this.rows[at])) continue;
      const line = { ...given, begins: unseen.delete(level) };
      const { begins } = line;
      if (begins || (run.length > 0 && run[0].level !== level)) endRun();
      const isStep = !found && filter === "talk" && at !== end && this.isStep(at);
      if (isStep) {
        run.push(line);
        continue;
      }
      endRun();
      lines.push(line);
    }
    endRun();
    return lines;
  }

  /** Returns whether a row is a step within a turn: nothing that a reader looks for in the tree. */
  private isStep(at: number): boolean {
    const { kind, more } = this.rows[at];
    if (more.l !== undefined || at === this.leaf || this.children[at].length > 1) return false;
    return kind === "r" || (kind === "a" && more.c !== undefined);
  }

  /** Yields all rows as lines: each branch in a column, those that leave it before it goes on. */
  private *walk(): Generator<ListLine> {
    const roots = this.roots;
    const main = this.leaf >= 0 ? this.path(this.leaf)[0] : roots[0];
    const waiting: ListLine[] = roots
      .filter((root) => root !== main)
      .reverse()
      .map((at) => ({ at, level: 0, rails: 0, begins: true }));
    if (main !== undefined) waiting.push({ at: main, level: 0, rails: 0, begins: true });
    for (let line = waiting.pop(); line; line = waiting.pop()) {
      yield line;
      const { at, level, rails } = line;
      const heir = this.heirs[at];
      if (heir >= 0) waiting.push({ at: heir, level, rails, begins: false });
      if (this.children[at].length < 2) continue;
      const others = this.children[at].filter((child) => child !== heir);
      const isDeep = level + 1 >= DEEPEST;
      for (let index = others.length - 1; index >= 0; index--) {
        const goesOn = heir >= 0 || index < others.length - 1;
        waiting.push({
          at: others[index],
          level: isDeep ? level : level + 1,
          rails: goesOn && !isDeep ? rails | (1 << level) : rails,
          begins: true,
        });
      }
    }
  }
}
