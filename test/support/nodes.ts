/** Nodes and trees from ids and parents, without any log. */

import { HeadReader } from "../../src/core/format/node-reader.ts";
import { toBytes } from "../../src/core/json/json.ts";
import { Nodes } from "../../src/core/tree/nodes.ts";
import { Tree } from "../../src/core/tree/tree.ts";

interface Grown {
  readonly nodes: Nodes;
  /** Adds the node of an entry and answers its position. */
  add(entry: { id: string; parentId: string | null; type?: string; [member: string]: unknown }): number;
}

export function grown(): Grown {
  const nodes = new Nodes();
  const heads = new HeadReader(nodes);
  return {
    nodes,
    add({ type = "custom", ...entry }) {
      const line = toBytes(JSON.stringify({ type, ...entry }));
      const fault = heads.readAny(line, 0, line.length, () => "made");
      if (fault !== null) throw new Error(fault);
      return nodes.add(heads);
    },
  };
}

export function treeOf(nodes: Nodes): Tree {
  return new Tree(nodes, { isVoid: () => false });
}
