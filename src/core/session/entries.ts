/** The entries of a session as they are known now: the log, the tree over it, and the facts that some entries give. */

import { isVoid } from "../context/context.ts";
import { type Batch, type Entry, type HeadMark, readHeadMark } from "../format/entry.ts";
import { parse } from "../json/json.ts";
import type { Log } from "../ports/store.ts";
import { KNOWN_TYPES, type Nodes } from "../tree/nodes.ts";
import { Tree } from "../tree/tree.ts";

/** Entries at the end that are searched for a repeated idempotency key (protocol, `append`). */
export const KEY_WINDOW = 10_000;
/** Entries that are looked at together for the heads that wrote them, at most; at first it is one. */
const MAX_LOOK = 4096;

export interface KeyedAppend {
  readonly ids: string[];
  readonly leafId: string | null;
}

export class SessionEntries {
  log: Log;
  private treeNow!: Tree;
  private readonly leaf: () => number;
  /** True if the tree is invalid and must be rebuilt before its next use. */
  private treeIsDue = false;
  /** Display name: the last one set in file order, as Pi has it; null when none or emptied. */
  name: string | null = null;
  private voids = new Set<number>();
  private results = new Map<string, { readonly key: number; readonly value: unknown }>();
  private seenLosses = 0;
  /** Number of entries in the tree and in the facts; the log may be ahead after a failed read. */
  private addedCount = 0;
  /** Number of entries at opening; later ones may belong to a turn that is still going on. */
  openedWith: number;

  /** Reads the log. `leaf` returns the position that the tree gives as its leaf. */
  constructor(log: Log, leaf: () => number) {
    this.log = log;
    this.leaf = leaf;
    this.openedWith = log.nodes.count;
    this.read();
  }

  /** Throws storage_failed while the tree must be rebuilt and cannot be. */
  get tree(): Tree {
    if (this.treeIsDue) this.read();
    return this.treeNow;
  }

  entry(position: number): Entry {
    return parse(this.log.read(position)) as Entry;
  }

  idOrNull(position: number): string | null {
    return position < 0 ? null : this.log.nodes.id(position);
  }

  /** Returns the position of an entry that the host can see, or -1. */
  find(entryId: string): number {
    const position = this.log.nodes.position(entryId);
    return position >= 0 && this.tree.isVisible(position) ? position : -1;
  }

  /** Returns the mark of the head that wrote an entry; undefined for the shared leaf. Reads entries of batches. */
  headOf(position: number): HeadMark | undefined {
    const { header, nodes } = this.log;
    return nodes.isBatch(position) ? readHeadMark(this.log.read(position), header.id) : undefined;
  }

  /** Yields the entries before `past` with their marks of heads, the last one first. Reads them one by one. */
  *backwards(past: number): Generator<readonly [number, HeadMark | undefined]> {
    const { header, nodes } = this.log;
    for (let end = past, size = 1; end > 0; size = Math.min(2 * size, MAX_LOOK)) {
      const first = Math.max(0, end - size);
      const batched: number[] = [];
      for (let p = first; p < end; p++) if (nodes.isBatch(p)) batched.push(p);
      const marks = new Map<number, HeadMark | undefined>();
      let next = 0;
      for (const line of this.log.readMany(batched, true)) marks.set(batched[next++], readHeadMark(line, header.id));
      for (let p = end - 1; p >= first; p--) yield [p, marks.get(p)];
      end = first;
    }
  }

  get areDurable(): boolean {
    const { durableCount, nodes, isCommitDue } = this.log;
    return durableCount >= nodes.count && !isCommitDue;
  }

  /**
   * Returns the result of that name for a key: the latest one if it was for this key too, else a new one. Results are
   * kept for as long as the tree is the same, because a path never changes. `make` gets the latest one.
   */
  once<T>(name: string, key: number, make: (tree: Tree, latest: T | undefined) => T): T {
    const { tree } = this;
    const known = this.results.get(name) as { readonly key: number; readonly value: T } | undefined;
    if (known?.key === key) return known.value;
    const value = make(tree, known?.value);
    this.results.set(name, { key, value });
    return value;
  }

  /** Continues with another log. Changes nothing when that cannot be read, but closes it. */
  replace(next: Log): void {
    try {
      this.read(next);
    } catch (error) {
      next.close();
      throw error;
    }
    this.openedWith = Math.min(this.openedWith, next.nodes.count);
  }

  /** Rebuilds the tree. If that fails, the next use of the tree tries again. */
  renew(): void {
    this.treeIsDue = true;
    this.read();
  }

  /** Rebuilds the tree after a failure. If the same cause makes this fail too, the next use of the tree does it first. */
  renewAfterFailure(): void {
    try {
      this.renew();
    } catch {
      // It is due.
    }
  }

  /** Rebuilds the tree after newly found unreadable messages. Returns whether it did. */
  rebuildAfterLosses(): boolean {
    if (this.log.nodes.losses === this.seenLosses) return false;
    this.renew();
    return true;
  }

  /** Adds an entry to the tree; `line` is missing if another program may have written it. */
  add(position: number, line?: Uint8Array): void {
    const { nodes } = this.log;
    // Its key was used, too.
    if (!line && nodes.isBatch(position)) this.results.delete("keys");
    if (LOADED_TYPES.includes(nodes.code(position))) {
      const entry = line ? (parse(line) as Entry) : this.entry(position);
      noteVoid(nodes, this.voids, position, entry);
      this.treeNow.extend(position);
      this.applyFacts(position, entry);
    } else this.treeNow.extend(position);
    this.addedCount = position + 1;
  }

  /** Adds the entries of other writers from `first` on, and those that were left out before. Returns all of them. */
  addFrom(first: number): number[] {
    const { nodes } = this.log;
    const start = Math.min(this.addedCount, first);
    if (start === nodes.count) return [];
    if (nodes.forward.size > 0) this.renew();
    else for (let position = this.addedCount; position < nodes.count; position++) this.add(position);
    return Array.from({ length: nodes.count - start }, (_, n) => start + n);
  }

  /** Builds the tree and the facts that the entries give. Changes nothing when one cannot be read. */
  private read(log = this.log): void {
    const { nodes } = log;
    const { losses } = nodes;
    // Summaries that were checked before need not be read again.
    const loaded = findLoadedPositions(nodes).filter((position) => !nodes.summarises(position));
    const voids = new Set<number>();
    const bodies: [number, Entry][] = [];
    let i = 0;
    for (const line of log.readMany(loaded)) {
      const entry = parse(line) as Entry;
      const position = loaded[i++];
      noteVoid(nodes, voids, position, entry);
      bodies.push([position, entry]);
    }
    this.treeNow = new Tree(nodes, { isVoid: (position) => voids.has(position), leaf: this.leaf });
    this.log = log;
    this.voids = voids;
    this.addedCount = nodes.count;
    this.seenLosses = losses;
    this.treeIsDue = false;
    this.results = new Map();
    this.name = null;
    for (const [position, entry] of bodies) this.applyFacts(position, entry);
  }

  /** Returns the appends with an idempotency key, by the key: it survives a restart, because it is in the entries. */
  keyedAppends(): Map<string, KeyedAppend> {
    const { header, nodes } = this.log;
    const keyed = new Map<string, KeyedAppend>();
    const from = Math.max(0, nodes.count - KEY_WINDOW);
    const batched = Array.from({ length: nodes.count - from }, (_, i) => from + i).filter((p) => nodes.isBatch(p));
    let ids: string[] = [];
    let next = 0;
    for (const line of this.log.readMany(batched, true)) {
      const p = batched[next++];
      const batch = (parse(line) as Entry)._batch as Partial<Batch> | null;
      if (batch?.session !== header.id || typeof batch.key !== "string") continue;
      if (batch.index === 0) ids = [];
      ids.push(nodes.id(p));
      // The rest of a torn batch was never acknowledged, wherever it is.
      if (ids.length === batch.count && batch.index === batch.count - 1)
        keyed.set(batch.key, { ids, leafId: nodes.id(p) });
    }
    return keyed;
  }

  private applyFacts(position: number, entry: Entry): void {
    if (entry.type === "session_info") {
      const name = typeof entry.name === "string" ? entry.name.trim() : "";
      this.name = name === "" ? null : name;
    } else if (entry.type === "label" && typeof entry.targetId === "string") {
      const target = this.log.nodes.position(entry.targetId);
      if (target < 0) return;
      if (typeof entry.label === "string" && entry.label !== "")
        this.treeNow.labels.set(target, { label: entry.label, setBy: position });
      else this.treeNow.labels.delete(target);
    }
  }
}

function noteVoid(nodes: Nodes, voids: Set<number>, position: number, entry: Entry): void {
  if (isVoid(entry)) voids.add(position);
  else if (entry.type === "compaction" || entry.type === "branch_summary") nodes.noteSummary(position);
}

/** Codes of the entry types whose bodies the tree needs from the start; all of them are small and few. */
const LOADED_TYPES = (["session_info", "label", "branch_summary", "compaction"] as const).map((type) =>
  KNOWN_TYPES.indexOf(type),
);

/** Returns the entries of these types in file order. Ten times faster than checking each entry. */
function findLoadedPositions(nodes: Nodes): number[] {
  const { types } = nodes.columns();
  const found: number[] = [];
  for (const code of LOADED_TYPES)
    for (let p = types.indexOf(code); p >= 0; p = types.indexOf(code, p + 1)) found.push(p);
  return found.sort((a, b) => a - b);
}
