/** Ids, parents and children of a container's frames, as the audit counts them: by position, in columns of its own. */

import { Column } from "../../core/tree/nodes.ts";

const NO_PARENT = -1;
/** The parent of a frame whose parent has not come yet; its id is in `awaited`. */
const AWAITED = -2;
/** Children are counted up to here: more than two are the same. */
const MANY = 3;

export class AuditedTree {
  readonly ids: string[] = [];
  /** Position of the last frame with an id. */
  private readonly positions = new Map<string, number>();
  private readonly parents = new Column(new Int32Array(16));
  private readonly childCounts = new Column(new Uint8Array(16));
  /** 1 for each frame that no later one continues. */
  private readonly heads = new Column(new Uint8Array(16));
  /** Ids of parents that had not come, by the position of the child, and the number of such children. */
  private readonly awaited = new Map<number, string>();
  private readonly earlyChildren = new Map<string, number>();
  /** The next frame with the same id, for each frame whose id came again. */
  private readonly repeated = new Map<number, number>();

  /** Returns the position of the last frame with an id, or -1. */
  positionOf(id: string): number {
    return this.positions.get(id) ?? -1;
  }

  /** Adds a frame; `before` is the last one with its id, or -1. Returns how many name its parent now, up to three. */
  add(id: string, parentId: string | null, before: number): number {
    const position = this.ids.length;
    const follows = before < 0 && parentId === this.ids[position - 1];
    this.ids.push(id);
    this.positions.set(id, position);
    this.heads.set(position, 1);
    this.childCounts.set(position, before < 0 ? (this.earlyChildren.get(id) ?? 0) : this.childCounts.values[before]);
    if (before >= 0) {
      this.heads.values[before] = 0;
      this.repeated.set(before, position);
    }
    if (parentId === null) {
      this.parents.set(position, NO_PARENT);
      return 0;
    }
    // Most frames continue the one before them.
    const parent = follows ? position - 1 : (this.positions.get(parentId) ?? AWAITED);
    this.parents.set(position, parent);
    if (parent === AWAITED) {
      this.awaited.set(position, parentId);
      const early = Math.min(MANY, (this.earlyChildren.get(parentId) ?? 0) + 1);
      this.earlyChildren.set(parentId, early);
      return early;
    }
    this.heads.values[parent] = 0;
    const children = Math.min(MANY, this.childCounts.values[parent] + 1);
    this.childCounts.values[parent] = children;
    return children;
  }

  /** Passes each frame whose parent is nowhere to `missing`, and one of each cycle to `cyclic`. */
  checkParents(missing: (position: number, parentId: string) => void, cyclic: (position: number) => void): void {
    const { length } = this.ids;
    const above = this.parents.values.slice(0, length);
    for (let position = 0; position < length; position++) {
      if (above[position] === AWAITED) {
        const parentId = this.awaited.get(position) as string;
        above[position] = this.positionOf(parentId);
        if (above[position] < 0) missing(position, parentId);
      } else if (this.repeated.size > 0)
        // The last frame with an id is the one that its children continue.
        for (let next = this.repeated.get(above[position]); next !== undefined; next = this.repeated.get(next))
          above[position] = next;
    }
    // 0: not visited, 1: on the present walk, 2: done.
    const seen = new Uint8Array(length);
    const way: number[] = [];
    for (let from = 0; from < length; from++) {
      let at = from;
      for (; at >= 0 && seen[at] === 0; at = above[at]) {
        seen[at] = 1;
        way.push(at);
      }
      if (at >= 0 && seen[at] === 1) cyclic(at);
      for (const step of way) seen[step] = 2;
      way.length = 0;
    }
  }

  /** Yields the frames that no other continues. */
  *branchHeads(): Generator<number> {
    for (let position = 0; position < this.ids.length; position++)
      if (this.heads.values[position] === 1) yield position;
  }
}
