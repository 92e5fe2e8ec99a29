/**
 * Finds faults in the ids and parents of a file's entries while a list reads it: damage that no line shows alone. If
 * each entry continues the one before it, nothing is looked up, which would take a tenth of a scan. Only ids of eight
 * hex digits are checked, as Pi makes them.
 */

import { type Head, ROLES } from "../../core/tree/nodes.ts";

const TOOL_RESULT = ROLES.indexOf("toolResult");
const ROOT = -1;
/** Replaces the id 00000000, because 0 is an empty slot. */
const ZERO = 0x5bd1e995;

/** The ids of entries and those of their parents, one after the other. They serve all scans, which run in turn. */
let links = new Int32Array(1 << 11);

export class Links {
  private count = 0;
  private isKnown = true;
  private last = ROOT;
  /** Parents that are not the entry before, with whether an entry needs them: that of a result may be a tool's call. */
  private readonly others = new Map<number, boolean>();

  add(head: Head): void {
    if (!this.isKnown) return;
    const { packedId, packedParent } = head;
    this.isKnown = packedId >= 0 && (packedParent >= 0 || head.parentId === null);
    if (!this.isKnown) return;
    const parent = packedParent >= 0 ? packedParent | 0 || ZERO : ROOT;
    if (packedParent >= 0 && packedParent !== this.last)
      this.others.set(parent, head.role !== TOOL_RESULT || this.others.get(parent) === true);
    this.last = packedId;
    const at = 2 * this.count++;
    if (at === links.length) {
      const longer = new Int32Array(2 * at);
      longer.set(links);
      links = longer;
    }
    links[at] = packedId | 0 || ZERO;
    links[at + 1] = parent;
  }

  /** Returns whether a parent is missing, parents form a circle, or, in a file with branches, an id occurs twice. */
  get areBroken(): boolean {
    if (!this.isKnown || this.others.size === 0) return false;
    const table = new ParentTable(this.count);
    for (let i = 0; i < this.count; i++) if (!table.put(links[2 * i], links[2 * i + 1])) return true;
    let walk = 0;
    for (const [parent, isNeeded] of this.others)
      if (table.parentOf(parent) === undefined ? isNeeded : !table.leadsToEnd(parent, ++walk)) return true;
    return false;
  }
}

/** Parents by ids. */
class ParentTable {
  private readonly pairs: Int32Array;
  /** By pair: the walk that passed it, 0 for none. */
  private readonly walks: Int32Array;
  private readonly mask: number;

  constructor(count: number) {
    const slots = 2 ** (33 - Math.clz32(count));
    this.pairs = new Int32Array(2 * slots);
    this.walks = new Int32Array(slots);
    this.mask = 2 * slots - 2;
  }

  /** Returns whether the id is a new one. */
  put(id: number, parent: number): boolean {
    const slot = this.slotOf(id);
    if (this.pairs[slot] !== 0) return false;
    this.pairs[slot] = id;
    this.pairs[slot + 1] = parent;
    return true;
  }

  parentOf(id: number): number | undefined {
    const slot = this.slotOf(id);
    return this.pairs[slot] === 0 ? undefined : this.pairs[slot + 1];
  }

  /** Returns whether parents lead from an entry to a root or out of the table. Walks are numbered from 1. */
  leadsToEnd(first: number, walk: number): boolean {
    for (let id = first; id !== ROOT; ) {
      const slot = this.slotOf(id);
      if (this.pairs[slot] === 0) return true;
      const pair = slot >> 1;
      // The places of an earlier walk led to an end.
      if (this.walks[pair] !== 0) return this.walks[pair] !== walk;
      this.walks[pair] = walk;
      id = this.pairs[slot + 1];
    }
    return true;
  }

  /** Returns the place of an id, or the empty one for it. */
  private slotOf(id: number): number {
    const { pairs, mask } = this;
    let slot = (id << 1) & mask;
    while (pairs[slot] !== 0 && pairs[slot] !== id) slot = (slot + 2) & mask;
    return slot;
  }
}
