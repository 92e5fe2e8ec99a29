/**
 * Plans which entries a fork copies and what changes in them (seed 001 "/fork"; session-format reference, section 4).
 * Labels are left out of the path, the entries after them are linked past them, and labels of kept entries are written
 * again at the end. Everything else is copied byte for byte.
 */

import { patchMembers } from "../format/entry.ts";
import { toBytes } from "../json/json.ts";
import { KNOWN_TYPES, ROOT } from "../tree/nodes.ts";
import type { Tree } from "../tree/tree.ts";

const LABEL = KNOWN_TYPES.indexOf("label");
const COMPACTION = KNOWN_TYPES.indexOf("compaction");

export interface ForkPlan {
  readonly positions: Int32Array;
  readonly patches: ReadonlyMap<number, Patch>;
  /** Labels to write after the copied entries, oldest first. */
  readonly labels: readonly { readonly targetId: string; readonly label: string; readonly setBy: number }[];
}

interface Patch {
  readonly id?: string;
  readonly parentId?: string | null;
  readonly firstKeptEntryId?: string;
}

/** Returns the plan for a session that ends at `end` ({@link ROOT}: no entries). Reads only compactions. */
export function planFork(tree: Tree, end: number, firstKept: (compaction: number) => string | undefined): ForkPlan {
  const { nodes } = tree;
  const path = tree.path(end);
  const kept = new Int32Array(path.length);
  const patches = new Map<number, Patch>();
  let count = 0;
  let relink = false;
  for (const position of path) {
    const code = nodes.code(position);
    if (code === LABEL) {
      relink = true;
      continue;
    }
    const above = count > 0 ? kept[count - 1] : ROOT;
    // A parent that is not in the new file would be a dangling reference.
    relink ||= nodes.bridged.has(position) || (above === ROOT && nodes.parent(position) !== ROOT);
    const isAlias = nodes.looksLikeAlias(position);
    if (relink || isAlias || code === COMPACTION) {
      const patch: { -readonly [K in keyof Patch]: Patch[K] } = {};
      if (relink) patch.parentId = above === ROOT ? null : nodes.id(above);
      if (isAlias) patch.id = nodes.id(position);
      if (code === COMPACTION) {
        const dropped = nodes.position(firstKept(position) ?? "");
        if (dropped >= 0 && nodes.code(dropped) === LABEL && tree.isAncestor(dropped, position))
          patch.firstKeptEntryId = nodes.id(nextKept(tree, dropped, position));
      }
      if (Object.keys(patch).length > 0) patches.set(position, patch);
    }
    relink = false;
    kept[count++] = position;
  }
  const positions = kept.subarray(0, count);
  return { positions, patches, labels: labelsOf(tree, positions) };
}

/** Returns the plan for a session that holds all entries of another, labels included. */
export function planCopy({ nodes }: Tree): ForkPlan {
  const positions = Int32Array.from({ length: nodes.count }, (_, position) => position);
  const patches = new Map<number, Patch>();
  for (const position of nodes.bridged) patches.set(position, { parentId: nodes.id(nodes.parent(position)) });
  return { positions, patches, labels: [] };
}

/** Returns the first entry after a label on the way down to `end` that is not a label. */
function nextKept(tree: Tree, label: number, end: number): number {
  let next = end;
  for (let at = end; at >= 0 && at !== label; at = tree.nodes.parent(at))
    if (!tree.nodes.isType(at, "label")) next = at;
  return next;
}

function labelsOf(tree: Tree, kept: Int32Array): ForkPlan["labels"] {
  const labels: { targetId: string; label: string; setBy: number }[] = [];
  if (tree.labels.size === 0) return labels;
  const isKept = new Uint8Array(tree.nodes.count);
  for (const position of kept) isKept[position] = 1;
  for (const [target, { label, setBy }] of tree.labels)
    if (isKept[target]) labels.push({ targetId: tree.nodes.id(target), label, setBy });
  return labels.sort((a, b) => a.setBy - b.setBy);
}

/** Returns the line with a patch applied: only the bytes of the patched values change. */
export function patchLine(line: Uint8Array, patch: Patch): Uint8Array {
  const values: Record<string, Uint8Array> = {};
  for (const [name, value] of Object.entries(patch)) values[name] = toBytes(JSON.stringify(value));
  return patchMembers(line, values);
}
