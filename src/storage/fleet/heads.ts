/**
 * Heads of entries as the fleet has them, with each line: JSON of id, parent, type, role and flags. They make the nodes
 * of a session without its lines. The flags are missing where a node says more than its line: where its parent is not
 * there, or comes later.
 */

import { isVoid } from "../../core/context/context.ts";
import type { Entry } from "../../core/format/entry.ts";
import { type EntryHead, HeadReader } from "../../core/format/head.ts";
import { parse } from "../../core/json/json.ts";
import type { FleetHeads } from "../../core/ports/fleet.ts";
import { HEAD_SUMMARY, type Head, Nodes, packedIn, ROLES, type Role, unpackId } from "../../core/tree/nodes.ts";

/** Returns the head of an entry as it is stored. */
export function headText(nodes: Nodes, position: number, line: Uint8Array): string {
  const parent = nodes.parent(position);
  const type = nodes.type(position);
  const known = [nodes.id(position), parent < 0 ? null : nodes.id(parent), type, nodes.role(position)];
  const follows = nodes.parentIdOf(position) === null || (parent >= 0 && parent < position);
  const isLiteral = follows && !nodes.bridged.has(position) && !nodes.looksLikeAlias(position);
  const isSummary = type === "compaction" || type === "branch_summary";
  const summary = isSummary && !isVoid(parse(line) as Entry) ? HEAD_SUMMARY : 0;
  return JSON.stringify(isLiteral ? [...known, nodes.headOf(position).flags | summary] : known);
}

/** The part of a head after its ids, as codes. A session has few that differ. */
type RestOfHead = Pick<Head, "type" | "role" | "flags">;

/** Characters of an id that is packed. */
const PACKED = 8;

/** Nodes and lengths of lines that come piece by piece. */
export class Spine {
  readonly nodes = new Nodes();
  readonly lengths: Uint32Array;
  private readonly reader = new HeadReader(this.nodes);
  private readonly rests = new Map<string, RestOfHead | undefined>();

  /** `count`: number of entries that come. */
  constructor(count: number) {
    this.lengths = new Uint32Array(count);
    this.nodes.expect(count);
  }

  get isWhole(): boolean {
    return this.nodes.count === this.lengths.length;
  }

  /** Adds entries. Returns false where only their lines tell how they lie in the tree; they are not to be used then. */
  add({ text, lengths }: FleetHeads): boolean {
    const { nodes } = this;
    if (nodes.count + lengths.length > this.lengths.length) return false;
    this.lengths.set(lengths, nodes.count);
    let at = 0;
    for (let n = 0; n < lengths.length; n++) {
      const feed = text.indexOf("\n", at);
      const end = feed < 0 ? text.length : feed;
      const head = this.packed(text, at, end) ?? this.parsed(text.slice(at, end));
      if (!head) return false;
      nodes.add(head);
      if (nodes.aliases > 0 || nodes.missingParent.size > 0) return false;
      at = end + 1;
    }
    return true;
  }

  /** Reads a head whose ids are packed. Parsing each as JSON takes five times as long. */
  private packed(text: string, at: number, end: number): Head | undefined {
    const quote = at + 2 + PACKED;
    const packedId = packedIn(text, at + 2);
    if (packedId < 0 || !text.startsWith('["', at)) return undefined;
    let packedParent = -1;
    let rest = quote + '",null'.length;
    if (text.startsWith('","', quote)) {
      rest = quote + 3 + PACKED + 1;
      packedParent = packedIn(text, quote + 3);
      if (packedParent < 0 || text[rest - 1] !== '"') return undefined;
    } else if (!text.startsWith('",null', quote)) return undefined;
    const known = this.restOf(text.slice(rest, end));
    return known && { packedId, id: "", packedParent, parentId: null, ...known };
  }

  private restOf(text: string): RestOfHead | undefined {
    if (this.rests.has(text)) return this.rests.get(text);
    const head = this.parsed(`["00000000",null${text}`);
    const rest = head && { type: head.type, role: head.role, flags: head.flags };
    this.rests.set(text, rest);
    return rest;
  }

  private parsed(text: string): Head | undefined {
    const head = headIn(text);
    if (head) this.reader.set(head);
    return head && this.reader;
  }
}

/** A head as it is stored. */
interface StoredHead extends Omit<EntryHead, "flags"> {
  /** Missing where only the line says all that a node needs. */
  readonly flags?: number;
}

/** Returns a stored head; undefined for what is none. */
export function storedHead(text: string): StoredHead | undefined {
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

/** Returns what a stored head says; undefined where only the line does. */
function headIn(text: string): EntryHead | undefined {
  const head = storedHead(text);
  return head?.flags === undefined ? undefined : { ...head, flags: head.flags };
}

/** Compares stored heads with the lines that they are of. */
export class HeadCheck {
  private readonly nodes = new Nodes();
  private readonly line = new HeadReader(this.nodes);

  /** Returns whether a head can be one of a line. Where it has no flags, its node says more than the line. */
  fits(text: string, line: Uint8Array): boolean {
    const head = storedHead(text);
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
