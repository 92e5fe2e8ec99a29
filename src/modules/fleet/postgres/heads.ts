/**
 * Heads of entries as the fleet stores them with each line: JSON of id, parent, type, role and flags. Searches and families
 * use them without the lines. The flags are missing if the node has more than its line: if its parent is missing, or comes
 * later.
 */

import { type EntryHead, HeadReader } from "../../../core/format/node-reader.ts";
import { HEAD_SUMMARY, Nodes, ROLES, type Role, unpackId } from "../../../core/tree/nodes.ts";

/** Returns the head of an entry as it is stored. */
export function makeHeadText(nodes: Nodes, position: number): string {
  const parent = nodes.parent(position);
  const known = [nodes.id(position), parent < 0 ? null : nodes.id(parent), nodes.type(position), nodes.role(position)];
  const follows = nodes.parentIdOf(position) === null || (parent >= 0 && parent < position);
  const isLiteral = follows && !nodes.bridged.has(position) && !nodes.looksLikeAlias(position);
  return JSON.stringify(isLiteral ? [...known, nodes.headOf(position).flags] : known);
}

/** A head as it is stored. */
interface StoredHead extends Omit<EntryHead, "flags"> {
  /** Missing if the node follows only from the line. */
  readonly flags?: number;
}

/** Parses a stored head; undefined if it is malformed. */
export function parseStoredHead(text: string): StoredHead | undefined {
  let head: unknown;
  try {
    head = JSON.parse(text);
  } catch {
    return undefined;
  }
  const [id, parentId, type, role, flags] = Array.isArray(head) ? (head as unknown[]) : [];
  if (typeof id !== "string" || id === "" || typeof type !== "string" || type === "session") return undefined;
  if (!(parentId === null || typeof parentId === "string") || !ROLES.includes(role as Role)) return undefined;
  return { id, parentId, type, role: role as Role, ...(typeof flags === "number" ? { flags } : {}) };
}

/** Compares stored heads with the lines that they are of. */
export class HeadCheck {
  private readonly nodes = new Nodes();
  private readonly line = new HeadReader(this.nodes);

  /** Returns whether a head can be one of a line. Without flags, the node has more than the line. */
  fits(text: string, line: Uint8Array): boolean {
    const head = parseStoredHead(text);
    const own = this.line;
    if (!head) return false;
    if (!own.readFast(line, 0, line.length) && own.readAny(line, 0, line.length, () => "") !== null) return true;
    if (own.type !== this.nodes.typeCode(head.type)) return false;
    if (head.flags === undefined) return true;
    const id = own.packedId >= 0 ? unpackId(own.packedId) : own.id;
    const parentId = own.packedParent >= 0 ? unpackId(own.packedParent) : own.parentId;
    const isSame = head.id === id && head.parentId === parentId && head.role === ROLES[own.role];
    return isSame && (head.flags & ~HEAD_SUMMARY) === own.flags;
  }
}
