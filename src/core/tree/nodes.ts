/** The nodes of one session in file order, as columns: the facts of each entry that opening learns without its body. */

import { addTo } from "../lists.ts";

export const ROOT = -1;
/** The parent of a node whose parent id names no entry. The id is in {@link Nodes.missingParent}. */
export const MISSING = -2;

/** Entry types of the format (seeds 000, 001, 002, 004 and Pi 1.5); any other is interned when it is met. */
export const KNOWN_TYPES = [
  "message",
  "custom",
  "custom_message",
  "model_change",
  "thinking_level_change",
  "compaction",
  "branch_summary",
  "label",
  "session_info",
  "usage",
  "context_edit",
] as const;

type KnownType = (typeof KNOWN_TYPES)[number];

export const ROLES = [
  "",
  "user",
  "assistant",
  "toolResult",
  "system",
  "custom",
  "bashExecution",
  "branchSummary",
  "compactionSummary",
  "other",
] as const;
export type Role = (typeof ROLES)[number];

const NON_HEX_ID = 1;
export const HEAD_MARKER = 2;
export const HEAD_BATCH = 4;
export const HEAD_NO_MESSAGE = 8;
/** The summary of a compaction or a branch was checked, and counts. */
export const HEAD_SUMMARY = 16;
/** Most entries that the table of ids is sized for in advance: it takes memory also for those that never come. */
const MAX_EXPECTED = 1 << 20;

/** The head of an entry as codes: the facts of one line that the tree needs. */
export interface Head {
  /** The id as a number when it is eight lower-case hex digits, else -1 and `id` holds it. */
  readonly packedId: number;
  readonly id: string;
  /** The parent's id likewise; -1 and a `parentId` of null is a root. */
  readonly packedParent: number;
  readonly parentId: string | null;
  /** From {@link Nodes.typeCode}. */
  readonly type: number;
  /** Index into {@link ROLES}. */
  readonly role: number;
  /** Bits: HEAD_MARKER, HEAD_BATCH, HEAD_NO_MESSAGE, HEAD_SUMMARY. */
  readonly flags: number;
}

/** Returns an id of eight lower-case hex digits as a number, or -1 for any other id. */
export function packId(id: string): number {
  if (id.length !== 8) return -1;
  if (id !== lastId) {
    lastPacked = packedIn(id, 0);
    lastId = id;
  }
  return lastPacked;
}

/** The last id that was packed: an entry's id is looked up before the entry is added, or several times. */
let lastId = "";
let lastPacked = -1;

/** Returns the eight lower-case hex digits at a place of a text as a number, or -1 for other characters. */
function packedIn(text: string, at: number): number {
  let packed = 0;
  for (let i = at; i < at + 8; i++) {
    const c = text.charCodeAt(i);
    let digit: number;
    if (c >= 0x30 && c <= 0x39) digit = c - 0x30;
    else if (c >= 0x61 && c <= 0x66) digit = c - 0x57;
    else return -1;
    packed = packed * 16 + digit;
  }
  return packed;
}

const DIGITS = Array.from({ length: 256 }, (_, n) => n.toString(16).padStart(2, "0"));

export function unpackId(packed: number): string {
  return DIGITS[packed >>> 24] + DIGITS[(packed >>> 16) & 0xff] + DIGITS[(packed >>> 8) & 0xff] + DIGITS[packed & 0xff];
}

/** Least capacity of a column. Growing in small steps costs more than the memory: each step is two calls into V8. */
const MIN_CAPACITY = 1024;

function capacityFor(position: number): number {
  return Math.max(MIN_CAPACITY, Math.ceil((position + 16) * 1.5));
}

type Numbers = Uint8Array | Uint16Array | Uint32Array | Int32Array | Float64Array;

function grow<T extends Numbers>(column: T, capacity: number): T {
  const wider = new (column.constructor as new (length: number) => T)(capacity);
  wider.set(column as never);
  return wider;
}

/** A growing column of numbers. */
export class Column<T extends Numbers> {
  values: T;
  constructor(values: T) {
    this.values = values;
  }
  set(position: number, value: number): void {
    this.reserve(position)[position] = value;
  }
  /**
   * Returns the values, with room for one at a position. Storing through them takes a fifth of the time of `set`, which
   * meets every kind of column in one place; adding an entry sets fifteen.
   */
  reserve(position: number): T {
    if (position >= this.values.length) this.values = grow(this.values, capacityFor(position));
    return this.values;
  }
}

/** Data of nodes besides their columns of numbers: small, unless ids are not of eight hex digits. */
export interface NodesRest {
  readonly types: readonly string[];
  readonly aliases: number;
  readonly losses: number;
  readonly tabled: number;
  readonly oddPositions: readonly number[];
  readonly oddIds: readonly string[];
  readonly awaited: readonly (readonly [string, readonly number[]])[];
  readonly forward: readonly number[];
  readonly missingParent: readonly (readonly [number, string])[];
  readonly bridged: readonly number[];
  readonly figures?: Omit<TreeCounters, "columns"> | null;
}

/** Columns that a tree computes from nodes, with a number for each node. */
export const COUNTERS = ["depths", "childCounts", "yields", "systems", "compactions", "models", "levels"] as const;

/** Counts that a tree computes from its nodes, kept with them for the next opening. */
export interface TreeCounters {
  /** Number of nodes that were counted. */
  readonly count: number;
  readonly hidden: number;
  readonly branchCount: number;
  readonly hasEdits: boolean;
  readonly columns: Readonly<Record<(typeof COUNTERS)[number], Int32Array>>;
}

/** All data of nodes, for keeping it outside of the process. The columns may be longer than `count`. */
export interface NodesImage {
  readonly count: number;
  readonly ids: Uint32Array;
  readonly parents: Int32Array;
  readonly types: Uint16Array;
  readonly roles: Uint8Array;
  readonly flags: Uint8Array;
  readonly table: Uint32Array;
  readonly counterColumns: TreeCounters["columns"] | null;
  readonly rest: NodesRest;
}

export class Nodes {
  count = 0;
  /** Number of ids that were taken when their entry came, and became aliases. */
  aliases = 0;
  /** The columns have room for as many nodes as `ids` has, or more. */
  private ids: Uint32Array = new Uint32Array(16);
  private parents: Int32Array = new Int32Array(16);
  private types: Uint16Array = new Uint16Array(16);
  private roles: Uint8Array = new Uint8Array(16);
  private flags: Uint8Array = new Uint8Array(16);

  private readonly typeNames: string[] = [...KNOWN_TYPES];
  private readonly typeCodes = new Map<string, number>(KNOWN_TYPES.map((name, code) => [name, code]));
  private readonly nonHexIds = new Map<number, string>();
  private readonly nonHexPositions = new Map<string, number>();
  /** Open addressing over the packed ids: position + 1, 0 is free. */
  private table: Uint32Array = new Uint32Array(64);
  private tabled = 0;

  /** Children that were read before their parent, by the parent's id. */
  private readonly awaited = new Map<string, number[]>();
  /** Nodes whose parent comes later in the file, and nodes whose parent is missing. */
  readonly forward = new Set<number>();
  readonly missingParent = new Map<number, string>();
  /** Nodes whose parent is not the one that their bytes name. */
  readonly bridged = new Set<number>();

  /** Yields the nodes whose parent is missing. Some programs name the session itself as the parent of its first entry. */
  *lackingParent(sessionId: string): Generator<[position: number, parentId: string]> {
    for (const lacking of this.missingParent) if (lacking[1] !== sessionId) yield lacking;
  }

  /**
   * Adds a node and returns its position. A duplicate id becomes `<id>~2`, `<id>~3` and so on (protocol, section 4):
   * both entries stay reachable, and references go to the first.
   */
  add(head: Head): number {
    const position = this.count;
    if (position >= this.ids.length) this.growTo(position);
    let key = head.packedId;
    let name = head.id;
    let slot = -1;
    let isUsed: boolean;
    if (key >= 0) {
      if ((this.tabled + 1) * 2 > this.table.length) this.retable(this.table.length * 2);
      slot = this.slotOf(key);
      isUsed = this.table[slot] !== 0;
    } else isUsed = this.nonHexPositions.has(name);
    if (isUsed) {
      name = this.alias(key >= 0 ? unpackId(key) : name);
      key = -1;
      this.aliases++;
    }
    let parent = ROOT;
    if (head.packedParent >= 0) parent = this.parentFor(head.packedParent, position);
    else if (head.parentId !== null) parent = this.nonHexPositions.get(head.parentId) ?? MISSING;
    this.ids[position] = key >= 0 ? key : 0;
    this.parents[position] = parent;
    this.types[position] = head.type;
    this.roles[position] = head.role;
    this.flags[position] = key >= 0 ? head.flags : head.flags | NON_HEX_ID;
    this.count++;
    if (parent === MISSING) this.await(position, head.parentId ?? unpackId(head.packedParent));
    if (key >= 0) {
      this.table[slot] = position + 1;
      this.tabled++;
    } else {
      this.nonHexIds.set(position, name);
      this.nonHexPositions.set(name, position);
    }
    if (this.awaited.size > 0) this.resolveAwaited(key >= 0 ? unpackId(key) : name, position);
    return position;
  }

  /** Adds a node with the head of another's, whose line is the same, and returns its position. */
  addLike(other: Nodes, position: number): number {
    const head = other.headOf(position);
    if (head.type < KNOWN_TYPES.length) return this.add(head);
    return this.add({ ...head, type: this.typeCode(other.typeNames[head.type]) });
  }

  /** Returns the head that a node was added with, by the codes of these nodes. */
  headOf(position: number): Head {
    const { parents, types, roles, flags, ids } = this;
    const isNonHex = (flags[position] & NON_HEX_ID) !== 0;
    const parent = parents[position];
    const isParentPacked = parent >= 0 && (flags[parent] & NON_HEX_ID) === 0;
    const parentId = isParentPacked ? null : this.parentIdOf(position);
    return {
      packedId: isNonHex ? -1 : ids[position],
      id: isNonHex ? this.id(position) : "",
      packedParent: isParentPacked ? ids[parent] : packId(parentId ?? ""),
      parentId,
      type: types[position],
      role: roles[position],
      flags: flags[position] & (HEAD_MARKER | HEAD_BATCH | HEAD_NO_MESSAGE),
    };
  }

  /** Returns whether a head that was read again is that of a node. A bridged node's parent is not the one it names. */
  isHeadOf(position: number, head: Head): boolean {
    if (this.types[position] !== head.type) return false;
    const isNonHex = (this.flags[position] & NON_HEX_ID) !== 0;
    if (
      isNonHex
        ? this.id(position) !== (head.packedId >= 0 ? unpackId(head.packedId) : head.id)
        : this.ids[position] !== head.packedId
    )
      return false;
    if (this.bridged.has(position)) return true;
    const parent = this.parents[position];
    if (parent >= 0 && (this.flags[parent] & NON_HEX_ID) === 0) return this.ids[parent] === head.packedParent;
    const named = head.packedParent >= 0 ? unpackId(head.packedParent) : head.parentId;
    return named === this.parentIdOf(position);
  }

  /** Returns the id that a node names as its parent's, whether or not that exists; null for a root. */
  parentIdOf(position: number): string | null {
    const parent = this.parents[position];
    return parent >= 0 ? this.id(parent) : (this.missingParent.get(position) ?? null);
  }

  /** Returns the position of a parent, or {@link MISSING}. Most entries continue the one before them. */
  private parentFor(packed: number, position: number): number {
    const before = position - 1;
    if (before >= 0 && this.ids[before] === packed && (this.flags[before] & NON_HEX_ID) === 0) return before;
    const found = this.table[this.slotOf(packed)];
    return found === 0 ? MISSING : found - 1;
  }

  /** Reserves capacity for the expected number of nodes: growing step by step copies them again and again. */
  expect(count: number): void {
    if (count > this.ids.length) this.growTo(Math.ceil(count / 1.5));
    const size = 2 ** Math.ceil(Math.log2(2 * Math.min(count, MAX_EXPECTED)));
    if (size > this.table.length) this.retable(size);
  }

  private growTo(position: number): void {
    const capacity = capacityFor(position);
    this.ids = grow(this.ids, capacity);
    this.parents = grow(this.parents, capacity);
    this.types = grow(this.types, capacity);
    this.roles = grow(this.roles, capacity);
    this.flags = grow(this.flags, capacity);
  }

  private alias(id: string): string {
    for (let n = 2; ; n++) {
      const alias = `${id}~${n}`;
      if (this.position(alias) < 0) return alias;
    }
  }

  /** Returns whether a missing entry is named as a parent: added now, it would change the ancestors of others. */
  isAwaited(id: string): boolean {
    return this.awaited.size > 0 && this.awaited.has(id);
  }

  private await(position: number, parentId: string): void {
    this.forward.delete(position);
    this.parents[position] = MISSING;
    this.missingParent.set(position, parentId);
    addTo(this.awaited, parentId, position);
  }

  private stopWaiting(position: number, parentId: string): void {
    this.missingParent.delete(position);
    const left = this.awaited.get(parentId)?.filter((other) => other !== position) ?? [];
    if (left.length > 0) this.awaited.set(parentId, left);
    else this.awaited.delete(parentId);
  }

  private resolveAwaited(id: string, position: number): void {
    const waiting = this.awaited.get(id);
    if (!waiting) return;
    this.awaited.delete(id);
    for (const child of waiting) {
      this.missingParent.delete(child);
      this.parents[child] = position;
      this.forward.add(child);
    }
  }

  /** Gives a node with a missing parent another one, which comes before it. */
  bridge(position: number, parent: number): void {
    this.stopWaiting(position, this.missingParent.get(position) as string);
    this.parents[position] = parent;
    this.bridged.add(position);
  }

  /**
   * Cuts every cycle at one node, which becomes a node with a missing parent, and returns those nodes. The node cut is
   * the last in file order whose parent comes later, because parents are written first and one wrong link must not cost
   * another. Without such a node, it is the last node. Only links to a later node, or to itself, can close a cycle.
   */
  cutCycles(): number[] {
    if (this.forward.size === 0) return [];
    const cut: number[] = [];
    const state = new Uint8Array(this.count);
    for (const start of this.forward) {
      const walked: number[] = [];
      let at = start;
      while (at >= 0 && state[at] === 0) {
        state[at] = 1;
        walked.push(at);
        at = this.parent(at);
      }
      if (at >= 0 && state[at] === 1) {
        const cycle = walked.slice(walked.indexOf(at));
        let last = -1;
        for (const node of cycle) if (this.parents[node] > node) last = Math.max(last, node);
        if (last < 0) for (const node of cycle) last = Math.max(last, node);
        this.missingParent.set(last, this.id(this.parent(last)));
        this.parents[last] = MISSING;
        this.forward.delete(last);
        cut.push(last);
      }
      for (const position of walked) state[position] = 2;
    }
    return cut;
  }

  id(position: number): string {
    return this.flags[position] & NON_HEX_ID ? (this.nonHexIds.get(position) as string) : unpackId(this.ids[position]);
  }

  /** Returns the id as a number if it is eight lower-case hex digits, else -1. */
  packedId(position: number): number {
    return this.flags[position] & NON_HEX_ID ? -1 : this.ids[position];
  }

  /** Returns whether an id looks like the alias of an entry whose own id was taken. */
  looksLikeAlias(position: number): boolean {
    return (this.flags[position] & NON_HEX_ID) !== 0 && this.id(position).includes("~");
  }

  /** Returns the position of the entry with that id, or -1. */
  position(id: string): number {
    const packed = packId(id);
    return packed >= 0 ? this.table[this.slotOf(packed)] - 1 : (this.nonHexPositions.get(id) ?? -1);
  }

  /** Returns the position of the parent, {@link ROOT} or {@link MISSING}. */
  parent(position: number): number {
    return this.parents[position];
  }

  type(position: number): string {
    return this.typeNames[this.types[position]];
  }

  /** Returns the code of the type: for types of the format their index in {@link KNOWN_TYPES}. */
  code(position: number): number {
    return this.types[position];
  }

  isType(position: number, type: KnownType): boolean {
    return this.types[position] === KNOWN_TYPES.indexOf(type);
  }

  role(position: number): Role {
    return ROLES[this.roles[position]];
  }

  isMarker(position: number): boolean {
    return (this.flags[position] & HEAD_MARKER) !== 0;
  }

  isBatch(position: number): boolean {
    return (this.flags[position] & HEAD_BATCH) !== 0;
  }

  hasNoMessage(position: number): boolean {
    return (this.flags[position] & HEAD_NO_MESSAGE) !== 0;
  }

  /**
   * Starts of messages whose line is known to end with them and to have nothing that is replaced when it is sent (escapes
   * of surrogates, references to media in files), else 0. Readers of lines set it; no image has it.
   */
  private readonly messageStarts: Column<Uint16Array> = new Column(new Uint16Array(0));

  messageStart(position: number): number {
    return position < this.messageStarts.values.length ? this.messageStarts.values[position] : 0;
  }

  noteMessage(position: number, start: number): void {
    if (start > 0 && start <= 0xffff) this.messageStarts.set(position, start);
    else if (position < this.messageStarts.values.length) this.messageStarts.values[position] = 0;
  }

  /** Returns whether an entry's summary was checked and counts. */
  summarises(position: number): boolean {
    return (this.flags[position] & HEAD_SUMMARY) !== 0;
  }

  noteSummary(position: number): void {
    this.flags[position] |= HEAD_SUMMARY;
  }

  /** Returns the data that the tree of these nodes has computed from them. */
  currentCounters: () => TreeCounters | null = () => null;
  private keptCounters: TreeCounters | null = null;

  /** Returns the data that was computed from the first nodes and kept with them; null on later calls. */
  takeCounters(): TreeCounters | null {
    const kept = this.keptCounters;
    this.keptCounters = null;
    return kept;
  }

  /** Number of messages that turned out to be unreadable after their nodes were known. */
  losses = 0;

  /** Marks the message of a node as unreadable: it yields nothing any more. */
  lose(position: number): void {
    this.flags[position] = (this.flags[position] | HEAD_NO_MESSAGE) & ~HEAD_SUMMARY;
    this.losses++;
    this.keptCounters = null;
  }

  /** Number of times that nodes were forgotten: other nodes may have their positions since then. */
  cuts = 0;

  /** Forgets every node from `count` on, in the order of their addition. */
  truncate(count: number): void {
    this.cuts++;
    let packed = false;
    // A child that waited for one of them waits again.
    for (const child of [...this.forward])
      if (child < count && this.parents[child] >= count) this.await(child, this.id(this.parents[child]));
    for (let position = count; position < this.count; position++) {
      this.forward.delete(position);
      this.bridged.delete(position);
      const lost = this.missingParent.get(position);
      if (lost !== undefined) this.stopWaiting(position, lost);
      const id = this.nonHexIds.get(position);
      if (id === undefined) packed = true;
      else {
        this.nonHexIds.delete(position);
        this.nonHexPositions.delete(id);
      }
    }
    this.messageStarts.values.fill(0, count);
    this.count = count;
    if (this.keptCounters && this.keptCounters.count > count) this.keptCounters = null;
    if (packed) this.retable(this.table.length);
  }

  /** Returns views of the columns for walks over all nodes: codes of types and roles, HEAD flags. */
  columns(): Pick<NodesImage, "parents" | "types" | "roles" | "flags"> {
    const { count } = this;
    return {
      parents: this.parents.subarray(0, count),
      types: this.types.subarray(0, count),
      roles: this.roles.subarray(0, count),
      flags: this.flags.subarray(0, count),
    };
  }

  /** Returns the columns themselves, which go on after the nodes: making views takes longer than counting one entry. */
  columnsWithCapacity(): Pick<NodesImage, "parents" | "types" | "roles" | "flags"> {
    const { parents, types, roles, flags } = this;
    return { parents, types, roles, flags };
  }

  /** Returns a view of all data of the nodes as it is now. */
  image(): NodesImage {
    const { count } = this;
    const { columns = null, ...counters } = this.currentCounters() ?? {};
    return {
      count,
      ...this.columns(),
      counterColumns: columns,
      ids: this.ids.subarray(0, count),
      table: this.table,
      rest: {
        types: this.typeNames,
        aliases: this.aliases,
        losses: this.losses,
        tabled: this.tabled,
        oddPositions: [...this.nonHexIds.keys()],
        oddIds: [...this.nonHexIds.values()],
        awaited: [...this.awaited],
        forward: [...this.forward],
        missingParent: [...this.missingParent],
        bridged: [...this.bridged],
        figures: columns && (counters as Omit<TreeCounters, "columns">),
      },
    };
  }

  /** Takes over an image, and its columns, into empty nodes. Returns false if it was made with other known types. */
  adopt(image: NodesImage): boolean {
    const { rest } = image;
    if (KNOWN_TYPES.some((name, code) => rest.types[code] !== name)) return false;
    this.count = image.count;
    this.ids = image.ids;
    this.parents = image.parents;
    this.types = image.types;
    this.roles = image.roles;
    this.flags = image.flags;
    this.table = image.table;
    this.tabled = rest.tabled;
    for (const name of rest.types.slice(KNOWN_TYPES.length)) this.typeCode(name);
    this.aliases = rest.aliases;
    this.losses = rest.losses;
    for (const [index, position] of rest.oddPositions.entries()) {
      this.nonHexIds.set(position, rest.oddIds[index]);
      this.nonHexPositions.set(rest.oddIds[index], position);
    }
    for (const [id, waiting] of rest.awaited) this.awaited.set(id, [...waiting]);
    for (const position of rest.forward) this.forward.add(position);
    for (const [position, id] of rest.missingParent) this.missingParent.set(position, id);
    for (const position of rest.bridged) this.bridged.add(position);
    if (image.counterColumns && rest.figures) this.keptCounters = { ...rest.figures, columns: image.counterColumns };
    // An image may come without its table.
    if (image.table.length === 0) this.retable(2 ** Math.ceil(Math.log2(Math.max(64, 2 * (image.count + 1)))));
    return true;
  }

  typeCode(type: string): number {
    const known = this.typeCodes.get(type);
    if (known !== undefined) return known;
    const code = this.typeNames.length;
    // A file with tens of thousands of distinct types is damage, not a use: the last code serves them all.
    if (code === 0xffff) return code - 1;
    this.typeNames.push(type);
    this.typeCodes.set(type, code);
    return code;
  }

  /** Returns the slot of an id in the table, or the slot for it. */
  private slotOf(packed: number): number {
    const { table, ids } = this;
    const mask = table.length - 1;
    let slot = Math.imul(packed, 0x9e3779b1) & mask;
    for (let found = table[slot]; found !== 0 && ids[found - 1] !== packed; found = table[slot])
      slot = (slot + 1) & mask;
    return slot;
  }

  private retable(size: number): void {
    const { ids, flags, count } = this;
    const table = new Uint32Array(size);
    const mask = size - 1;
    let tabled = 0;
    for (let position = 0; position < count; position++) {
      if (flags[position] & NON_HEX_ID) continue;
      let slot = Math.imul(ids[position], 0x9e3779b1) & mask;
      while (table[slot] !== 0) slot = (slot + 1) & mask;
      table[slot] = position + 1;
      tabled++;
    }
    this.table = table;
    this.tabled = tabled;
  }
}
