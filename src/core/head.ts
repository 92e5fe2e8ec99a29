/** Reads the head of one entry line: type, id, parentId and role, from its bytes, without its body. */

import { bytesOf, memberOf, members, parse, skipSpace, stringEnd } from "./json.ts";
import {
  HEAD_BATCH,
  HEAD_MARKER,
  HEAD_NO_MESSAGE,
  type Head,
  KNOWN_TYPES,
  type Nodes,
  packId,
  ROLES,
  type Role,
} from "./nodes.ts";

/** `customType` of the entry that makes a leaf position last (session-format reference, section 5). */
export const LEAF_MARKER = "pi-session-server.leaf";

const TYPE_BYTES = KNOWN_TYPES.map((name) => bytesOf(`${name}"`));
const ROLE_BYTES = ROLES.map((name) => bytesOf(`${name}"`));
const OPENING = bytesOf('{"type":"');
const ID = bytesOf(',"id":"');
const PARENT = bytesOf(',"parentId":');
const TIMESTAMP = bytesOf(',"timestamp":"');
const BATCH = bytesOf(',"_batch":{');
const MESSAGE = bytesOf(',"message":{"role":"');
const MARKER = bytesOf(`,"customType":"${LEAF_MARKER}"`);
const MESSAGE_CODE = KNOWN_TYPES.indexOf("message");
const CUSTOM_CODE = KNOWN_TYPES.indexOf("custom");
const QUOTE = 0x22;

/** How many bytes of a line the quick reading may look at; a head that is longer is parsed. */
export const HEAD_BYTES = 512;

function startsWith(b: Uint8Array, at: number, end: number, text: Uint8Array): boolean {
  if (at + text.length > end) return false;
  for (let k = 0; k < text.length; k++) if (b[at + k] !== text[k]) return false;
  return true;
}

function codeOf(b: Uint8Array, at: number, end: number, names: readonly Uint8Array[]): number {
  for (let code = 0; code < names.length; code++)
    if (names[code].length > 1 && startsWith(b, at, end, names[code])) return code;
  return -1;
}

function packedAt(b: Uint8Array, at: number): number {
  let packed = 0;
  for (let i = at; i < at + 8; i++) {
    const c = b[i];
    let digit: number;
    if (c >= 0x30 && c <= 0x39) digit = c - 0x30;
    else if (c >= 0x61 && c <= 0x66) digit = c - 0x57;
    else return -1;
    packed = packed * 16 + digit;
  }
  return packed;
}

/**
 * One reader serves a whole scan: after a successful {@link read} or {@link parse} its fields are the head.
 */
export class HeadReader implements Head {
  packedId = -1;
  id = "";
  packedParent = -1;
  parentId: string | null = null;
  type = 0;
  role = 0;
  flags = 0;
  private readonly nodes: Nodes;

  constructor(nodes: Nodes) {
    this.nodes = nodes;
  }

  /**
   * The quick reading of `b[start, end)`, of which only the beginning need be the line: members in the usual
   * order, without white space, ids of eight hex digits. False when the line is anything else.
   */
  read(b: Uint8Array, start: number, end: number): boolean {
    if (!startsWith(b, start, end, OPENING)) return false;
    let at = start + OPENING.length;
    const type = codeOf(b, at, end, TYPE_BYTES);
    if (type < 0) return false;
    at += TYPE_BYTES[type].length;
    if (!startsWith(b, at, end, ID)) return false;
    at += ID.length;
    if (at + 9 > end || b[at + 8] !== QUOTE) return false;
    const packedId = packedAt(b, at);
    if (packedId < 0) return false;
    at += 9;
    if (!startsWith(b, at, end, PARENT)) return false;
    at += PARENT.length;
    let packedParent = -1;
    if (b[at] === QUOTE) {
      if (at + 10 > end || b[at + 9] !== QUOTE) return false;
      packedParent = packedAt(b, at + 1);
      if (packedParent < 0) return false;
      at += 10;
    } else if (b[at] === 0x6e && b[at + 3] === 0x6c && at + 4 < end) at += 4;
    else return false;
    if (!startsWith(b, at, end, TIMESTAMP)) return false;
    at = stringEnd(b, at + TIMESTAMP.length - 1, end);
    if (at < 0) return false;
    let flags = 0;
    if (startsWith(b, at, end, BATCH)) {
      flags = HEAD_BATCH;
      at = batchEnd(b, at + BATCH.length - 1, end);
      if (at < 0) return false;
    }
    let role = 0;
    if (type === MESSAGE_CODE) {
      if (!startsWith(b, at, end, MESSAGE)) return false;
      at += MESSAGE.length;
      role = codeOf(b, at, end, ROLE_BYTES);
      // Unknown, escaped, or cut off where the quick reading ends.
      if (role < 0) return false;
    } else if (type === CUSTOM_CODE) {
      if (at + MARKER.length > end) return false;
      if (startsWith(b, at, end, MARKER)) flags |= HEAD_MARKER;
    }
    this.packedId = packedId;
    this.id = "";
    this.packedParent = packedParent;
    this.parentId = null;
    this.type = type;
    this.role = role;
    this.flags = flags;
    return true;
  }

  /**
   * The thorough reading of a whole line: any member order and any ids. Answers what is wrong with the line, or
   * null; an entry without an id gets what `missingId` answers.
   */
  parse(b: Uint8Array, start: number, end: number, missingId: () => string): string | null {
    const found = members(b, start, end);
    if (!found) return "not a JSON object";
    const value = (name: string): unknown => {
      const member = memberOf(found, name);
      return member ? parse(b, member.start, member.end) : undefined;
    };
    const type = value("type");
    if (typeof type !== "string" || type === "") return "no type";
    let id = value("id");
    if (typeof id === "number") id = String(id);
    if (typeof id !== "string" || id === "") id = missingId();
    let parent = value("parentId");
    if (typeof parent === "number") parent = String(parent);
    const parentId = typeof parent === "string" && parent !== "" ? parent : null;
    let flags = 0;
    let role: Role | "" = "";
    if (type === "message") {
      const message = memberOf(found, "message");
      const inside = message ? members(b, message.start, message.end) : null;
      if (!inside) flags |= HEAD_NO_MESSAGE;
      else {
        const named = memberOf(inside, "role");
        role = roleOf(named ? parse(b, named.start, named.end) : undefined);
      }
    } else if (type === "custom" && value("customType") === LEAF_MARKER) flags |= HEAD_MARKER;
    if (memberOf(found, "_batch")) flags |= HEAD_BATCH;
    this.set(type, id as string, parentId, role, flags);
    return null;
  }

  /** The head of an entry that is at hand as a value; one without an id gets what `missingId` answers. */
  take(entry: Readonly<Record<string, unknown>>, missingId: () => string): void {
    const { type, id, parentId, message } = entry;
    const inside = type === "message" && typeof message === "object" && message !== null;
    this.set(
      typeof type === "string" ? type : "",
      typeof id === "string" && id !== "" ? id : missingId(),
      typeof parentId === "string" && parentId !== "" ? parentId : null,
      inside ? roleOf((message as { role?: unknown }).role) : "",
      type === "message" && !inside ? HEAD_NO_MESSAGE : 0,
    );
  }

  private set(type: string, id: string, parentId: string | null, role: Role | "", flags: number): void {
    this.packedId = packId(id);
    this.id = this.packedId < 0 ? id : "";
    this.packedParent = parentId === null ? -1 : packId(parentId);
    this.parentId = this.packedParent < 0 ? parentId : null;
    this.type = this.nodes.typeCode(type);
    this.role = ROLES.indexOf(role);
    this.flags = flags;
  }
}

export function roleOf(role: unknown): Role {
  if (role === "hookMessage") return "custom";
  return typeof role === "string" && role !== "" && ROLES.includes(role as Role) ? (role as Role) : "other";
}

/** Just past the flat object of strings and numbers at `at`, or -1. */
function batchEnd(b: Uint8Array, at: number, end: number): number {
  let i = skipSpace(b, at + 1, end);
  while (i < end && b[i] !== 0x7d) {
    if (b[i] === QUOTE) {
      i = stringEnd(b, i, end);
      if (i < 0) return -1;
    } else i++;
  }
  return i < end ? i + 1 : -1;
}
