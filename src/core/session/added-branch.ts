/**
 * Lines that continue a session as a branch, because other programs wrote to it in between. Entries name their parents,
 * so lines that are written after others stay the same branch. Only a duplicate id is changed.
 */

import { Failure } from "../failure.ts";
import { type Batch, makeDraft, makeNewLine, makeNewPlace, patchMembers, readHeadMark } from "../format/entry.ts";
import { LEAF_MARKER } from "../format/node-reader.ts";
import {
  areSameBytes,
  concat,
  findKnownValueEnd,
  getMembers,
  getMemberValue,
  type Member,
  parse,
  toBytes,
  trimLine,
} from "../json/json.ts";
import type { Env } from "../ports/env.ts";
import type { Log } from "../ports/store.ts";
import type { Session } from "./session.ts";

/** Members of an entry that name another. */
const REFERENCES = ["parentId", "targetId", "firstKeptEntryId", "fromId"] as const;
/** Digits of a new id. */
const ID_DIGITS = 8;

type EntryMembers = Readonly<Record<string, unknown>>;

interface AddedBranch {
  readonly lines: readonly Uint8Array[];
  /** Ids of its entries, in order. */
  readonly entryIds: readonly string[];
  /** New ids of entries whose own were given to others, by the old ones. */
  readonly renamed: ReadonlyMap<string, string>;
  /** Its lines, and those of them that were there before, in order. */
  readonly present: readonly Uint8Array[];
}

/** The entries that a branch is added to: the first `count` of a log, and then `theirs`. */
export interface BranchBase {
  readonly log: Log;
  readonly count: number;
  readonly theirs: readonly Uint8Array[];
}

/** A branch, and the ids of lines that were left out because the session has their entries with other bytes. */
interface RecoveredBranch extends AddedBranch {
  readonly edited: readonly string[];
}

/**
 * Appends lines of another copy of a session to it as a branch. The leaf stays. `wanted`: ids of entries that are appended,
 * under others, although the session has them with other bytes. Throws entry_not_found if they continue an entry that is not
 * here, and the failures of Session.append.
 */
export function addBranch(
  session: Session,
  own: readonly Uint8Array[],
  wanted: ReadonlySet<string> = new Set(),
): RecoveredBranch {
  const { log, env } = session;
  if (log.readOnly) throw log.readOnly;
  session.externalChanges.requireLock();
  const base = { log: session.log, count: session.log.nodes.count, theirs: [] };
  const sha256: Env["sha256"] = (bytes) => env.sha256(bytes);
  const repeats = repeatsIn(session, own);
  const edited: string[] = [];
  const isLeftOut = (line: Uint8Array): boolean => {
    const members = membersOf(line);
    const id = idOf(members);
    if (repeats.has(id)) return true;
    const twin = findTwin(session, line, members);
    if (twin !== "edited" || wanted.has(id)) return twin === "same";
    // An earlier request may have named it.
    if (makeBranch(base, [line], sha256, repeats).lines.length > 0) edited.push(id);
    return true;
  };
  const unrepeated = own.filter((line) => !isLeftOut(line));
  // A marker moves the leaf of the entries after it.
  const left = unrepeated.every((line) => membersOf(line).customType === LEAF_MARKER) ? [] : unrepeated;
  const branch = makeBranch(base, left, sha256, repeats);
  const ids = new Set<string>();
  for (const [n, line] of branch.lines.entries()) {
    const parentId = parentOf(membersOf(line));
    const isKnown = parentId === null || ids.has(parentId) || base.log.nodes.position(parentId) >= 0;
    ids.add(branch.entryIds[n]);
    if (isKnown) continue;
    const sentence = `These entries continue ${parentId}, which this session does not have here; nothing was appended. If they are of another session, whose file was in this one's place, and that session has them, remove the kept file.`;
    throw new Failure("entry_not_found", sentence, { entryId: parentId });
  }
  if (branch.lines.length === 0) return { ...branch, edited };
  const marker = makeLeafMarker(base, branch, sha256, session.sharedLeafId);
  session.write({ lines: [...branch.lines, marker], ids: branch.entryIds }, { isBranch: true });
  return { ...branch, edited };
}

/**
 * Returns whether a session has the entry of a line under its id, perhaps with another parent, or edited: an edit keeps the
 * parent and the time. Returns undefined if it has another entry with this id, or none.
 */
function findTwin({ log, id: sessionId, env }: Session, line: Uint8Array, members: EntryMembers) {
  const position = log.nodes.position(idOf(members));
  if (position < 0) return undefined;
  const there = log.read(position);
  const [own, known] = [line, there].map((one) => identifyEntry(one, sessionId, (bytes) => env.sha256(bytes)).content);
  if (own === known) return "same";
  const { parentId, timestamp } = membersOf(there);
  return parentId === members.parentId && timestamp === members.timestamp ? "edited" : undefined;
}

/** Returns the ids of entries that the host has written again under their idempotency keys, with their present ids. */
function repeatsIn(session: Session, own: readonly Uint8Array[]): ReadonlyMap<string, string> {
  const { nodes } = session.log;
  return repeatsOf(own, session.id, {
    idsOf: (key) => session.repeated(key)?.ids ?? [],
    typeOf: (id) => nodes.type(nodes.position(id)),
  });
}

/** Returns the same for entries that are there as lines. */
export function findRepeats(
  theirs: Iterable<Uint8Array>,
  own: readonly Uint8Array[],
  sessionId: string,
): ReadonlyMap<string, string> {
  if (!own.some((line) => keyedIn(membersOf(line), sessionId))) return new Map();
  const idsByKey = new Map<string, string[]>();
  const types = new Map<string, unknown>();
  const there = new Map<string, EntryMembers>();
  for (const line of theirs) {
    const members = membersOf(line);
    const { key, index = -1 } = keyedIn(members, sessionId) ?? {};
    if (key === undefined) continue;
    const ids = idsByKey.get(key) ?? [];
    ids[index] = idOf(members);
    idsByKey.set(key, ids);
    types.set(idOf(members), members.type);
    there.set(idOf(members), members);
  }
  // An edit keeps the parent and the time of an entry. A repeat has its own, also where the host chose the id.
  const unedited = own.filter((line) => {
    const members = membersOf(line);
    const known = there.get(idOf(members));
    const isSame = known?.parentId === members.parentId && known?.timestamp === members.timestamp;
    return !isSame || JSON.stringify(known) === JSON.stringify(members);
  });
  return repeatsOf(unedited, sessionId, { idsOf: (key) => idsByKey.get(key) ?? [], typeOf: (id) => types.get(id) });
}

/** The entries that a session has under a key. */
interface KeyedEntries {
  idsOf(key: string): readonly string[];
  typeOf(id: string): unknown;
}

function repeatsOf(
  own: readonly Uint8Array[],
  sessionId: string,
  { idsOf, typeOf }: KeyedEntries,
): ReadonlyMap<string, string> {
  const repeats = new Map<string, string>();
  for (const line of own) {
    const members = membersOf(line);
    const batch = keyedIn(members, sessionId);
    if (!batch) continue;
    const ids = idsOf(batch.key);
    const id = ids[batch.index ?? -1];
    // Another command may have used the key.
    const isRepeat = ids.length === batch.count && id !== undefined;
    if (isRepeat && typeOf(id) === members.type) repeats.set(idOf(members), id);
  }
  return repeats;
}

/** Returns the idempotency key of a stored entry of a session, and its place among those of the key. */
function keyedIn(members: EntryMembers, sessionId: string): (Partial<Batch> & { key: string }) | undefined {
  const batch = members._batch as Partial<Batch> | null | undefined;
  const { key } = batch ?? {};
  return batch?.session === sessionId && typeof key === "string" ? { ...batch, key } : undefined;
}

/** Digests that identify an entry wherever it is. */
export interface EntryIdentity {
  /** The line without ids: the same in a branch, whose entries may have other ids and parents. */
  readonly content: string;
  /** The idempotency key and the place among its entries: the same for a repeat. Missing without a key. */
  readonly repeat?: string;
}

/** Returns the identity of an entry of a session. */
export function identifyEntry(line: Uint8Array, sessionId: string, sha256: Env["sha256"]): EntryIdentity {
  const stored = trimLine(line);
  // A second look at the members takes as long as all the rest.
  const found = getMembers(stored, 0, stored.length, findKnownValueEnd) ?? [];
  const content = sha256(omitValues(stored, found, NAMES));
  const [type, _batch] = ["type", "_batch"].map((name) => getMemberValue(stored, found, name));
  const { key, index, count } = keyedIn({ _batch }, sessionId) ?? {};
  return key === undefined
    ? { content }
    : { content, repeat: sha256(toBytes(JSON.stringify([key, index, count, type]))) };
}

const NAMES: ReadonlySet<string> = new Set(["id", ...REFERENCES]);

/** Returns a line without the values of some members. */
function omitValues(line: Uint8Array, found: readonly Member[], names: ReadonlySet<string>): Uint8Array {
  const parts: Uint8Array[] = [];
  let copied = 0;
  for (const { name, start, end } of found) {
    if (!names.has(name)) continue;
    parts.push(line.subarray(copied, start));
    copied = end;
  }
  return concat([...parts, line.subarray(copied)]);
}

/** Returns the branch that lines make. Existing ones are left out. `names`: entries that exist under another id. */
export function makeBranch(
  { log, count, theirs }: BranchBase,
  own: readonly Uint8Array[],
  sha256: Env["sha256"],
  names: ReadonlyMap<string, string> = new Map(),
): AddedBranch {
  const added = new Map(theirs.map((line) => [idOf(membersOf(line)), line]));
  const lineWith = (id: string): Uint8Array | undefined => {
    const known = added.get(id);
    if (known) return known;
    const position = log.nodes.position(id);
    return position >= 0 && position < count ? log.read(position) : undefined;
  };
  const renamed = new Map<string, string>();
  const lines: Uint8Array[] = [];
  const entryIds: string[] = [];
  const present: Uint8Array[] = [];
  for (const stored of own) {
    const members = membersOf(stored);
    const line = withNames(stored, members, (id) => renamed.get(id) ?? names.get(id));
    let id = idOf(members);
    let kept = line;
    for (let n = 1; ; n++) {
      const there = lineWith(id);
      // The same line again: a part of the branch was brought before.
      if (there && areSameBytes(trimLine(there), trimLine(kept))) break;
      if (!there) {
        added.set(id, kept);
        lines.push(kept);
        entryIds.push(id);
        break;
      }
      // The same for the same line, so that a repeated run after an interruption has the same result.
      id = newId(sha256(trimLine(stored)), n);
      renamed.set(idOf(members), id);
      kept = patchMembers(line, { id: toBytes(JSON.stringify(id)) });
    }
    present.push(kept);
  }
  return { lines, entryIds, renamed, present };
}

/** Returns the n-th id to try. */
function newId(seed: string, n: number): string {
  return `${seed.slice(0, ID_DIGITS)}${n === 1 ? "" : `-${n}`}`;
}

/** Returns a line with the present ids of the entries that it names. */
function withNames(line: Uint8Array, members: EntryMembers, nameOf: (id: string) => string | undefined): Uint8Array {
  const values: Record<string, Uint8Array> = {};
  for (const name of REFERENCES) {
    const now = nameOf(String(members[name]));
    if (now !== undefined) values[name] = toBytes(JSON.stringify(now));
  }
  return Object.keys(values).length === 0 ? line : patchMembers(line, values);
}

/** Returns a line to write after a branch, which restores the leaf. The same for the same branch. */
export function makeLeafMarker(
  base: BranchBase,
  { lines }: AddedBranch,
  sha256: Env["sha256"],
  leafId = leafOf(base),
): Uint8Array {
  const last = lines[lines.length - 1];
  // Machines that add the same branch at different leaves give their markers different ids.
  const seed = sha256(toBytes(`${leafId} ${sha256(trimLine(last))}`));
  let n = 1;
  const taken = new Set([...base.theirs, ...lines].map((line) => idOf(membersOf(line))));
  const isTaken = (id: string): boolean => taken.has(id) || base.log.nodes.position(id) >= 0;
  while (isTaken(newId(seed, n))) n++;
  const { timestamp } = membersOf(last);
  const time = typeof timestamp === "string" ? timestamp : new Date(0).toISOString();
  const draft = makeDraft("custom", { customType: LEAF_MARKER, data: leafId === null ? { leafId } : undefined });
  return makeNewLine(draft, makeNewPlace(newId(seed, n), leafId, time)).line;
}

/** Returns the leaf that an opening finds in these entries (session-format reference, section 5); null for the root. */
function leafOf({ log, count, theirs }: BranchBase): string | null {
  const metadata: EntryMembers[] = [];
  let leaf: string | null = null;
  for (let at = count + theirs.length - 1; at >= 0; at--) {
    const line = at < count ? log.read(at) : theirs[at - count];
    if (readHeadMark(line, log.header.id)) continue;
    const members = membersOf(line);
    const isMarker = members.type === "custom" && members.customType === LEAF_MARKER;
    if (members.type !== "label" && members.type !== "session_info") {
      leaf = isMarker ? parentOf(members) : idOf(members);
      break;
    }
    metadata.push(members);
  }
  // Labels and names move the leaf if they continue the conversation.
  for (const members of metadata.reverse()) if (parentOf(members) === leaf) leaf = idOf(members);
  return leaf;
}

function membersOf(line: Uint8Array): EntryMembers {
  return parse(line) as EntryMembers;
}

function idOf({ id }: EntryMembers): string {
  return String(id);
}

function parentOf({ parentId }: EntryMembers): string | null {
  return typeof parentId === "string" ? parentId : null;
}
