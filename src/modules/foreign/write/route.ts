/** The order of a session's entries in another agent's file: each after the one that it continues. */

import { ROOT } from "../../../core/tree/nodes.ts";
import type { Tree } from "../../../core/tree/tree.ts";

/** The entries that are written, in their order. */
export interface Route {
  readonly order: Int32Array;
  /** The entry that the other agent continues, or {@link ROOT}. */
  readonly leaf: number;
  /** Returns the entry that one continues, or {@link ROOT}. */
  before(position: number): number;
  /** Returns how many entries of the route continue one; for {@link ROOT}, how many are roots. */
  followers(position: number): number;
  /** Returns the entry that alone continues one, or {@link ROOT}. */
  next(position: number): number;
}

export function makePathRoute(tree: Tree, leaf: number): Route {
  const order = tree.path(leaf);
  const depthOf = (position: number): number => tree.depth(position);
  return {
    order,
    leaf,
    before: (position) => Math.max(tree.nodes.parent(position), ROOT),
    followers: (position) => (position === leaf ? 0 : 1),
    next: (position) => (position === leaf ? ROOT : (order[position < 0 ? 0 : depthOf(position) + 1] ?? ROOT)),
  };
}

/** Returns the whole tree. Among siblings, the entry on the path to the leaf comes last, with all after it. */
export function makeTreeRoute(tree: Tree, leaf: number): Route {
  const { nodes } = tree;
  const isOnPath = new Uint8Array(nodes.count);
  for (const position of tree.path(leaf)) isOnPath[position] = 1;
  const order: number[] = [];
  const waiting: number[] = [];
  const wait = (position: number): void => {
    const children = [...tree.children(position)];
    const main = children.find((child) => isOnPath[child] === 1);
    if (main !== undefined) waiting.push(main);
    for (const child of children.reverse()) if (child !== main) waiting.push(child);
  };
  wait(ROOT);
  for (let at = waiting.pop(); at !== undefined; at = waiting.pop()) {
    order.push(at);
    wait(at);
  }
  const followers = (position: number): number =>
    position < 0 ? [...tree.children(ROOT)].length : tree.childCount(position);
  return {
    order: Int32Array.from(order),
    leaf,
    before: (position) => Math.max(nodes.parent(position), ROOT),
    followers,
    next: (position) => (followers(position) === 1 ? (tree.children(position).next().value ?? ROOT) : ROOT),
  };
}
