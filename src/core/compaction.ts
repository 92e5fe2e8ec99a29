/** Where a compaction may begin to keep (protocol, `compact_append`; reliability cases C2 and C3). */

import { ROOT } from "./nodes.ts";
import type { Tree } from "./tree.ts";

/** What is wrong with keeping the path to `leaf` from `first` on, and the nearest entries that would do; or null. */
export function boundaryFault(tree: Tree, leaf: number, first: number): { reason: string; nearest: string[] } | null {
  const { nodes } = tree;
  if (!tree.isAncestor(first, leaf))
    return {
      reason: "The first kept entry is not on the path to the current leaf. get_path lists the entries that are.",
      nearest: [],
    };
  const path = tree.path(leaf);
  const at = tree.depth(first);
  if (!splitsTurn(tree, path, at)) return null;
  const nearest: string[] = [];
  for (let i = at - 1; i >= 0; i--)
    if (!splitsTurn(tree, path, i)) {
      nearest.push(nodes.id(path[i]));
      break;
    }
  for (let i = at + 1; i < path.length; i++)
    if (!splitsTurn(tree, path, i)) {
      nearest.push(nodes.id(path[i]));
      break;
    }
  return {
    reason: `Keeping from there separates a tool call from its result. Keep from ${nearest.join(" or ") || "nothing (null)"} instead.`,
    nearest,
  };
}

/**
 * Whether a tool result at or after index `at` answers a call before it: results stand between the assistant
 * message that called and the next assistant message, so the first message of either role decides.
 */
function splitsTurn(tree: Tree, path: Int32Array, at: number): boolean {
  const { nodes } = tree;
  for (let i = at; i < path.length; i++) {
    const role = nodes.role(path[i]);
    if (role === "assistant") return false;
    if (role === "toolResult") return hasAssistantAbove(tree, path[at]);
  }
  return false;
}

function hasAssistantAbove(tree: Tree, position: number): boolean {
  for (let at = tree.nodes.parent(position); at !== ROOT && at >= 0; at = tree.nodes.parent(at)) {
    if (tree.nodes.role(at) === "assistant") return true;
    if (tree.nodes.isType(at, "compaction")) return false;
  }
  return false;
}
