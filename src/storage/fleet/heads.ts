/**
 * Heads of entries as the fleet has them, with each line: JSON of id, parent, type, role and flags. They make the nodes
 * of a session without its lines. The flags are missing where a node says more than its line: where its parent is not
 * there, or comes later. Programs before this one wrote none.
 */

import { type EntryHead, HeadReader } from "../../core/format/head.ts";
import type { FleetHead } from "../../core/ports/fleet.ts";
import { Nodes, ROLES, type Role } from "../../core/tree/nodes.ts";

/** Returns the head of an entry as it is stored. */
export function headText(nodes: Nodes, position: number): string {
  const parent = nodes.parent(position);
  const known = [nodes.id(position), parent < 0 ? null : nodes.id(parent), nodes.type(position), nodes.role(position)];
  const follows = nodes.parentIdOf(position) === null || (parent >= 0 && parent < position);
  const isLiteral = follows && !nodes.bridged.has(position) && !nodes.looksLikeAlias(position);
  return JSON.stringify(isLiteral ? [...known, nodes.headOf(position).flags] : known);
}

/** Returns what a stored head says; undefined where only the line does. */
function headIn([id, parentId, type, role, flags]: FleetHead["head"]): EntryHead | undefined {
  if (typeof id !== "string" || id === "" || typeof type !== "string" || type === "session") return undefined;
  if (!(parentId === null || typeof parentId === "string") || !ROLES.includes(role as Role)) return undefined;
  return typeof flags === "number" ? { id, parentId, type, role: role as Role, flags } : undefined;
}

/** Nodes and lengths of lines that come piece by piece. */
export class Spine {
  readonly nodes = new Nodes();
  readonly lengths: Uint32Array;
  private readonly reader = new HeadReader(this.nodes);

  /** `count`: number of entries that come. */
  constructor(count: number) {
    this.lengths = new Uint32Array(count);
    this.nodes.expect(count);
  }

  /** Adds entries. Returns false where only their lines tell how they lie in the tree; they are not to be used then. */
  add(heads: readonly FleetHead[]): boolean {
    const { nodes, lengths, reader } = this;
    for (const { head, length } of heads) {
      const known = headIn(head);
      if (!known || nodes.count >= lengths.length) return false;
      reader.set(known);
      lengths[nodes.count] = length;
      nodes.add(reader);
    }
    return nodes.aliases === 0 && nodes.missingParent.size === 0;
  }

  get isWhole(): boolean {
    return this.nodes.count === this.lengths.length;
  }
}
