/** Reads the head of one entry line: type, id, parentId and role, from its bytes, without its body. */

import { type FastPath, getFastPath, MAX_BYTES } from "../json/fast-path.ts";
import { decodeText, findMember, findStringEnd, getMembers, getMemberValue, skipSpace, toBytes } from "../json/json.ts";
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
} from "../tree/nodes.ts";
import { endsInHead, LineEnds } from "./line-ends.ts";
import { isObject } from "./loose.ts";

/** `customType` of the entry that makes a leaf position last (session-format reference, section 5). */
export const LEAF_MARKER = "pi-session-server.leaf";

/**
 * A text of four bytes or more as 32-bit words to compare with; the last word may overlap the one before. Compared byte
 * by byte, heads take twice as long, which is a quarter of opening a session of short entries.
 */
interface HeadWords {
  readonly length: number;
  readonly offsets: readonly number[];
  readonly words: Uint32Array;
}

function wordsOf(text: string): HeadWords {
  const bytes = toBytes(text);
  const { length } = bytes;
  const offsets = Array.from({ length: Math.ceil(length / 4) }, (_, n) => Math.min(4 * n, length - 4));
  const view = new DataView(bytes.buffer, bytes.byteOffset, length);
  return { length, offsets, words: Uint32Array.from(offsets, (offset) => view.getUint32(offset)) };
}

const TYPES = KNOWN_TYPES.map((name) => wordsOf(`${name}"`));
/** Roles without the first, which means that there is no role. */
const NAMED_ROLES = ROLES.slice(1).map((name) => wordsOf(`${name}"`));
const OPENING = wordsOf('{"type":"');
const ID = wordsOf(',"id":"');
const PARENT = wordsOf(',"parentId":');
const TIMESTAMP = wordsOf(',"timestamp":"');
const BATCH = wordsOf(',"_batch":{');
const MESSAGE = wordsOf(',"message":{"role":"');
const MARKER = wordsOf(`,"customType":"${LEAF_MARKER}"`);
const ROLE = wordsOf(',"role":');
const MARKER_VALUE = wordsOf(`"${LEAF_MARKER}"`);
const CUSTOM_TYPE = wordsOf(',"customType":"');
const MESSAGE_CODE = KNOWN_TYPES.indexOf("message");
const CUSTOM_CODE = KNOWN_TYPES.indexOf("custom");
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Bytes of a line that the fast path may read; a longer head is parsed. */
export const HEAD_BYTES = 512;

function startsWith(view: DataView, at: number, end: number, { length, offsets, words }: HeadWords): boolean {
  if (at + length > end) return false;
  for (let k = 0; k < words.length; k++) if (view.getUint32(at + offsets[k]) !== words[k]) return false;
  return true;
}

/** Returns the index of the name at `at`, or -1. */
function codeOf(view: DataView, at: number, end: number, names: readonly HeadWords[]): number {
  for (let code = 0; code < names.length; code++) if (startsWith(view, at, end, names[code])) return code;
  return -1;
}

/** Marks bytes that are not lower-case hex digits; no value of four bits has this bit. */
const NO_DIGIT = 0x10;
const DIGITS = Uint8Array.from({ length: 256 }, (_, c) => {
  const digit = "0123456789abcdef".indexOf(String.fromCharCode(c));
  return digit < 0 ? NO_DIGIT : digit;
});

/** Returns the value of the eight hex digits at `at`, or -1. A loop takes twice as long until V8 has compiled this. */
function packedAt(b: Uint8Array, at: number): number {
  const d0 = DIGITS[b[at]];
  const d1 = DIGITS[b[at + 1]];
  const d2 = DIGITS[b[at + 2]];
  const d3 = DIGITS[b[at + 3]];
  const d4 = DIGITS[b[at + 4]];
  const d5 = DIGITS[b[at + 5]];
  const d6 = DIGITS[b[at + 6]];
  const d7 = DIGITS[b[at + 7]];
  if ((d0 | d1 | d2 | d3 | d4 | d5 | d6 | d7) & NO_DIGIT) return -1;
  return ((d0 << 28) | (d1 << 24) | (d2 << 20) | (d3 << 16) | (d4 << 12) | (d5 << 8) | (d6 << 4) | d7) >>> 0;
}

/** Returns the value of the string of eight hex digits at `at`, or -1. */
function packedIdAt(b: Uint8Array, at: number): number {
  return b[at] === QUOTE && b[at + 9] === QUOTE ? packedAt(b, at + 1) : -1;
}

/** The part of a head that follows from the type and the body of an entry. */
export type BodyHead = Pick<Head, "type" | "role" | "flags">;

/** The head of an entry by value. */
export interface EntryHead {
  readonly type: string;
  readonly id: string;
  readonly parentId: string | null;
  readonly role: Role | "";
  readonly flags: number;
}

/** Codes of the types of the format, which are the same for all nodes. */
const TYPE_CODES: ReadonlyMap<string, number> = new Map(KNOWN_TYPES.map((name, code) => [name, code]));

/** Returns the head's part that follows from type and body; undefined for a type that the format does not have. */
export function getBodyHead(name: string, body: Readonly<Record<string, unknown>>): BodyHead | undefined {
  const type = TYPE_CODES.get(name);
  if (type === undefined) return undefined;
  if (type === CUSTOM_CODE) return { type, role: 0, flags: body.customType === LEAF_MARKER ? HEAD_MARKER : 0 };
  if (type !== MESSAGE_CODE) return { type, role: 0, flags: 0 };
  const { message } = body;
  if (!isObject(message)) return { type, role: 0, flags: HEAD_NO_MESSAGE };
  return { type, role: ROLES.indexOf(toRole((message as { role?: unknown }).role)), flags: 0 };
}

/** Mask of the role in the module's note of a line; its note of a root has more bits. */
const ROLE_BITS = 0xff;
/** Bytes from which on reading ahead pays for its start. */
const MANY_BYTES = 1 << 14;
/** The reader whose lines the module has noted. */
let noted: LinesAhead | undefined;

/** Lines whose heads the module reads in one call: a call takes as long as reading one head. */
class LinesAhead {
  readonly bytes: Uint8Array;
  readonly lines: Uint32Array;
  private readonly fast: FastPath;
  private readonly end: number;
  /** The offset of the noted lines, their number, and the number of the next. */
  private from = 0;
  private count = 0;
  private next = 0;

  constructor(fast: FastPath, bytes: Uint8Array, end: number) {
    this.fast = fast;
    this.bytes = bytes;
    this.end = end;
    this.lines = fast.lines;
  }

  /** Returns the place in `lines` of the line `bytes[start, past)`, which comes after those before; -1 if it is unusual. */
  at(start: number, past: number): number {
    const { lines, fast } = this;
    while (this.next < this.count && this.from + lines[4 * this.next] < past) this.next++;
    if (noted !== this || this.next === this.count) {
      const rest = this.bytes.subarray(start, Math.min(this.end, start + MAX_BYTES));
      fast.bytes.set(rest);
      this.count = fast.heads(rest.length);
      this.from = start;
      this.next = 0;
      noted = this;
    }
    const place = 4 * this.next;
    if (this.next === this.count || this.from + lines[place] !== past || lines[place + 3] === 0) return -1;
    return start === (place === 0 ? this.from : this.from + lines[place - 4] + 1) ? place : -1;
  }
}

/** Reads all heads of a scan: after a successful {@link readFast} or {@link readAny} its fields are the head. */
export class HeadReader implements Head {
  packedId = -1;
  id = "";
  packedParent = -1;
  parentId: string | null = null;
  type = 0;
  role = 0;
  flags = 0;
  private readonly nodes: Nodes;
  /** The bytes that were read last, and a view of them: most lines of a scan are in the same bytes. */
  private bytes: Uint8Array = new Uint8Array(0);
  private view = new DataView(this.bytes.buffer);
  private readonly ends = new LineEnds();
  /** The last id that is not of eight hex digits: most entries continue the one before them. */
  private lastId = "";
  /** Lines that were read ahead. */
  private ahead: LinesAhead | undefined;

  constructor(nodes: Nodes) {
    this.nodes = nodes;
  }

  /** Reads the lines in `b[0, end)` ahead, for as long as these bytes stay; undefined bytes end that. */
  readAhead(b?: Uint8Array, end = 0): void {
    const fast = b && end >= MANY_BYTES ? getFastPath() : null;
    this.ahead = b && fast ? new LinesAhead(fast, b, end) : undefined;
    noted = undefined;
  }

  /** Reads the head of one of the lines that were read ahead. Returns false for any other line. */
  private readFound(b: Uint8Array, start: number, past: number): boolean {
    const found = this.ahead?.bytes === b ? this.ahead.at(start, past) : -1;
    if (found < 0) return false;
    const { lines } = this.ahead as LinesAhead;
    this.packedId = lines[found + 1];
    this.id = "";
    this.packedParent = lines[found + 3] > ROLE_BITS ? -1 : lines[found + 2];
    this.parentId = null;
    this.type = MESSAGE_CODE;
    this.role = lines[found + 3] & ROLE_BITS;
    this.flags = 0;
    return true;
  }

  /**
   * Reads a head on the fast path: members in the usual order, without white space, ids of eight hex digits. `isWhole`:
   * `b[start, end)` is the whole line and not only its beginning. Returns false for any other line, and for one that
   * ends with a second value of a member of its head. Only a reader of the whole line sees such a value before the end.
   */
  readFast(b: Uint8Array, start: number, past: number, isWhole = true): boolean {
    if (this.ahead && isWhole && this.readFound(b, start, past)) return true;
    const view = this.viewOf(b);
    const end = Math.min(past, start + HEAD_BYTES);
    if (!startsWith(view, start, end, OPENING)) return false;
    let at = start + OPENING.length;
    const type = codeOf(view, at, end, TYPES);
    if (type < 0) return false;
    at += TYPES[type].length;
    if (!startsWith(view, at, end, ID)) return false;
    at += ID.length;
    if (at + 9 > end || b[at + 8] !== QUOTE) return false;
    const packedId = packedAt(b, at);
    if (packedId < 0) return false;
    at += 9;
    if (!startsWith(view, at, end, PARENT)) return false;
    at += PARENT.length;
    let packedParent = -1;
    if (b[at] === QUOTE) {
      if (at + 10 > end || b[at + 9] !== QUOTE) return false;
      packedParent = packedAt(b, at + 1);
      if (packedParent < 0) return false;
      at += 10;
    } else if (b[at] === 0x6e && b[at + 3] === 0x6c && at + 4 < end) at += 4;
    else return false;
    if (!startsWith(view, at, end, TIMESTAMP)) return false;
    at = findStringEnd(b, at + TIMESTAMP.length - 1, end);
    if (at < 0) return false;
    let flags = 0;
    if (startsWith(view, at, end, BATCH)) {
      flags = HEAD_BATCH;
      at = batchEnd(b, at + BATCH.length - 1, end);
      if (at < 0) return false;
    }
    let role = 0;
    if (type === MESSAGE_CODE) {
      if (!startsWith(view, at, end, MESSAGE)) return false;
      at += MESSAGE.length;
      role = 1 + codeOf(view, at, end, NAMED_ROLES);
      // Unknown, escaped, or cut off at the end of the fast path.
      if (role === 0) return false;
      // The closing quote was compared with the role.
      if (startsWith(view, at + NAMED_ROLES[role - 1].length, end, ROLE)) return false;
    } else if (type === CUSTOM_CODE) {
      if (at + MARKER.length > end || !startsWith(view, at, end, CUSTOM_TYPE)) return false;
      if (startsWith(view, at, end, MARKER)) flags |= HEAD_MARKER;
      const quote = plainEnd(b, at + CUSTOM_TYPE.length, end);
      if (quote < 0 || startsWith(view, quote + 1, end, CUSTOM_TYPE)) return false;
      at = quote + 1;
    }
    if (isWhole && endsInHead(b, at, past, type === MESSAGE_CODE)) return false;
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
   * Reads a head from the first {@link HEAD_BYTES} of a line and, with `isWhole`, the last ones, with members in any
   * order and spelling. Does not check the bytes between them. Returns false if they do not have the head, or the head
   * is a rare one.
   */
  readEnds(b: Uint8Array, start: number, end: number, isWhole: boolean): boolean {
    const { ends } = this;
    ends.readBeginning(b, start, Math.min(end, start + HEAD_BYTES));
    if (this.takeEnds(b, end)) return !isWhole || !ends.isRepeatedAtEnd(b, end);
    if (!isWhole) return false;
    ends.readEnd(b, Math.max(start, end - HEAD_BYTES), end);
    return this.takeEnds(b, end);
  }

  private takeEnds(b: Uint8Array, end: number): boolean {
    const view = this.viewOf(b);
    const { ends } = this;
    if (ends.type < 0 || ends.id < 0 || ends.parentId < 0) return false;
    const type = codeOf(view, ends.type + 1, end, TYPES);
    if (type < 0 || b[ends.type] !== QUOTE) return false;
    let role = 0;
    let flags = ends.isBatch ? HEAD_BATCH : 0;
    if (type === MESSAGE_CODE) {
      if (ends.role < 0 || b[ends.role] !== QUOTE) return false;
      role = 1 + codeOf(view, ends.role + 1, end, NAMED_ROLES);
      if (role === 0) return false;
    } else if (type === CUSTOM_CODE) {
      if (ends.customType < 0 || plainEnd(b, ends.customType + 1, end) < 0) return false;
      if (startsWith(view, ends.customType, end, MARKER_VALUE)) flags |= HEAD_MARKER;
    }
    const packedId = packedIdAt(b, ends.id);
    const id = packedId < 0 ? this.idAt(b, ends.id, end) : "";
    const isRoot = b[ends.parentId] === 0x6e;
    const packedParent = isRoot ? -1 : packedIdAt(b, ends.parentId);
    const parentId = isRoot || packedParent >= 0 ? null : this.idAt(b, ends.parentId, end);
    if ((packedId < 0 && id === "") || parentId === "") return false;
    if (packedId < 0) this.lastId = id;
    this.packedId = packedId;
    this.id = id;
    this.packedParent = packedParent;
    this.parentId = parentId;
    this.type = type;
    this.role = role;
    this.flags = flags;
    return true;
  }

  /** Returns the id at `at`; an empty text for one that has other bytes than usual. */
  private idAt(b: Uint8Array, at: number, end: number): string {
    const { lastId } = this;
    const { length } = lastId;
    let i = at + 1;
    while (i - at <= length && b[i] === lastId.charCodeAt(i - at - 1)) i++;
    if (i - at > length && b[i] === QUOTE && length > 0) return lastId;
    while (i < end && b[i] > 0x20 && b[i] < 0x7f && b[i] !== QUOTE && b[i] !== BACKSLASH) i++;
    return b[at] === QUOTE && i < end && b[i] === QUOTE ? decodeText(b, at + 1, i) : "";
  }

  private viewOf(b: Uint8Array): DataView {
    if (b !== this.bytes) {
      this.bytes = b;
      this.view = new DataView(b.buffer, b.byteOffset, b.byteLength);
    }
    return this.view;
  }

  /** Reads the head of any whole line; an entry without an id gets `missingId`. Returns the damage, or null. */
  readAny(b: Uint8Array, start: number, end: number, missingId: () => string): string | null {
    const found = getMembers(b, start, end);
    if (!found) return "not a JSON object";
    const type = getMemberValue(b, found, "type");
    if (typeof type !== "string" || type === "") return "no type";
    let id = getMemberValue(b, found, "id");
    if (typeof id === "number") id = String(id);
    if (typeof id !== "string" || id === "") id = missingId();
    let parent = getMemberValue(b, found, "parentId");
    if (typeof parent === "number") parent = String(parent);
    const parentId = typeof parent === "string" && parent !== "" ? parent : null;
    let flags = 0;
    let role: Role | "" = "";
    if (type === "message") {
      const message = findMember(found, "message");
      const inside = message ? getMembers(b, message.start, message.end) : null;
      if (inside) role = toRole(getMemberValue(b, inside, "role"));
      else flags |= HEAD_NO_MESSAGE;
    } else if (type === "custom" && getMemberValue(b, found, "customType") === LEAF_MARKER) flags |= HEAD_MARKER;
    if (findMember(found, "_batch")) flags |= HEAD_BATCH;
    this.set({ type, id: id as string, parentId, role, flags });
    return null;
  }

  /** Reads the head of an entry that is given as a value; one without an id gets one from `missingId`. */
  readValue(entry: Readonly<Record<string, unknown>>, missingId: () => string): void {
    const { type, id, parentId } = entry;
    const name = typeof type === "string" ? type : "";
    this.set({
      type: name,
      id: typeof id === "string" && id !== "" ? id : missingId(),
      parentId: typeof parentId === "string" && parentId !== "" ? parentId : null,
      role: "",
      flags: 0,
    });
    Object.assign(this, getBodyHead(name, entry));
  }

  private set({ type, id, parentId, role, flags }: EntryHead): void {
    this.packedId = packId(id);
    this.id = this.packedId < 0 ? id : "";
    this.packedParent = parentId === null ? -1 : packId(parentId);
    this.parentId = this.packedParent < 0 ? parentId : null;
    this.type = this.nodes.typeCode(type);
    this.role = ROLES.indexOf(role);
    this.flags = flags;
  }
}

export function toRole(role: unknown): Role {
  if (role === "hookMessage") return "custom";
  return typeof role === "string" && role !== "" && ROLES.includes(role as Role) ? (role as Role) : "other";
}

/** Returns the end of a string that continues at `at`; -1 if it has an escape, or does not end before `end`. */
function plainEnd(b: Uint8Array, at: number, end: number): number {
  let i = at;
  while (i < end && b[i] !== QUOTE && b[i] !== BACKSLASH) i++;
  return i < end && b[i] === QUOTE ? i : -1;
}

/** Returns the position just past the flat object of strings and numbers at `at`, or -1. */
function batchEnd(b: Uint8Array, at: number, end: number): number {
  let i = skipSpace(b, at + 1, end);
  while (i < end && b[i] !== 0x7d) {
    if (b[i] === QUOTE) {
      i = findStringEnd(b, i, end);
      if (i < 0) return -1;
    } else i++;
  }
  return i < end ? i + 1 : -1;
}

/** Adds the node of a line written by us, from its head if that is at hand. */
export function addHead(heads: HeadReader, nodes: Nodes, line: Uint8Array, head?: Head): number {
  if (head) return nodes.add(head);
  if (!heads.readFast(line, 0, line.length)) {
    const fault = heads.readAny(line, 0, line.length, () => {
      throw new TypeError("an entry to be written has an id");
    });
    if (fault !== null) throw new TypeError(`an entry to be written is well formed: ${fault}`);
  }
  return nodes.add(heads);
}
