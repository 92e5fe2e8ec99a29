/** The branches of a session as a reader wants them: each ends at the last entry of its conversation. */

import { findFirstKept } from "../context/context.ts";
import type { Session } from "../session/session.ts";
import { ROOT } from "../tree/nodes.ts";
import type { Tree } from "../tree/tree.ts";

interface Branch {
  /** The entry it ends with, or {@link ROOT}. */
  readonly end: number;
  /** True for the path to the leaf. */
  readonly active: boolean;
  /** The last entry that it has in common with a branch before it, or {@link ROOT}. */
  readonly from: number;
  /** Its entries after that one, oldest first. */
  readonly own: readonly number[];
}

/** Types of entries that make up a conversation; a label or a name alone is no branch. */
const CONVERSATION_TYPES = new Set(["message", "custom_message", "compaction", "branch_summary"]);

/** Returns the path to the leaf first, or its recent part, then with `all` the other branches in file order. */
export function getBranches(session: Session, extent: "all" | "path" | "recent"): Branch[] {
  const { tree } = session;
  if (extent === "recent") return [{ end: tree.leaf, active: true, from: ROOT, own: getRecentPath(session) }];
  const all = extent === "all";
  const visited = new Uint8Array(tree.nodes.count);
  const branches: Branch[] = [];
  for (const end of [tree.leaf, ...(all ? endsOf(tree) : [])]) {
    const active = branches.length === 0;
    const own: number[] = [];
    let at = end;
    for (; at >= 0 && !visited[at]; at = tree.nodes.parent(at)) {
      visited[at] = 1;
      own.push(at);
    }
    if (own.length > 0 || active) branches.push({ end, active, from: Math.max(at, ROOT), own: own.reverse() });
  }
  return branches;
}

/** Returns the path to the leaf from the first entry that the last compaction on it kept. */
export function getRecentPath(session: Session): number[] {
  const { tree } = session;
  const path = [...tree.path()];
  const compaction = path.findLast((position) => tree.nodes.isType(position, "compaction"));
  return compaction === undefined ? path : path.slice(path.indexOf(findFirstKept(tree, session, compaction).first));
}

/** Returns entries of the conversation that no other such entry continues, in file order. */
function endsOf(tree: Tree): number[] {
  const { nodes } = tree;
  const order = Int32Array.from({ length: nodes.count }, (_, position) => position);
  // A file may name a parent that comes later in it.
  if (nodes.forward.size > 0) order.sort((a, b) => tree.depth(a) - tree.depth(b));
  /** Nearest entry of the conversation on the path, itself included. */
  const nearest = new Int32Array(nodes.count);
  const goesOn = new Uint8Array(nodes.count);
  for (const position of order) {
    const parent = nodes.parent(position);
    const above = parent >= 0 ? nearest[parent] : ROOT;
    const isConversation = CONVERSATION_TYPES.has(nodes.type(position));
    if (isConversation && above >= 0) goesOn[above] = 1;
    nearest[position] = isConversation ? position : above;
  }
  const ends: number[] = [];
  for (let p = 0; p < nodes.count; p++) if (nearest[p] === p && !goesOn[p]) ends.push(p);
  return ends;
}
