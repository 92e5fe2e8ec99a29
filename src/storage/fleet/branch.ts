/**
 * Lines that continue a session as a branch, because others wrote to it meanwhile. Entries name their parents, so lines
 * that are written after others stay the branch that they are. Only an id that was given twice is changed, and a marker
 * at the end leaves the leaf where the others have it.
 */

import { draftOf, headMarkIn, newLine, patchMembers } from "../../core/format/entry.ts";
import { LEAF_MARKER } from "../../core/format/head.ts";
import { bytesOf, parse, sameBytes } from "../../core/json/json.ts";
import type { Log } from "../../core/ports/store.ts";
import { payloadOf, sha256 } from "../v2/frame.ts";

/** Members of an entry that name another. */
const REFERENCES = ["parentId", "targetId", "firstKeptEntryId", "fromId"] as const;
/** Digits of a new id, at first. */
const ID_DIGITS = 8;

type EntryMembers = Readonly<Record<string, unknown>>;

export interface AddedBranch {
  /** The lines to append, and a marker of the leaf where there are any. */
  readonly lines: readonly Uint8Array[];
  /** Ids of its entries, in order. */
  readonly entryIds: readonly string[];
  /** New ids of entries whose own were given to others, by the old ones. */
  readonly renamed: ReadonlyMap<string, string>;
}

/**
 * Returns the branch that lines make in a session that has the first `count` entries of a log, and then `theirs`. What is
 * there already is left out.
 */
export function branchOf(
  log: Log,
  count: number,
  theirs: readonly Uint8Array[],
  own: readonly Uint8Array[],
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
  let timestamp = "";
  for (const stored of own) {
    const members = membersOf(stored);
    const line = withNames(stored, members, renamed);
    let id = idOf(members);
    let kept = line;
    for (let digits = ID_DIGITS; ; digits++) {
      const there = lineWith(id);
      // The same line again: a part of the branch was brought before.
      if (there && sameBytes(payloadOf(there), payloadOf(kept))) break;
      if (!there) {
        added.set(id, kept);
        lines.push(kept);
        entryIds.push(id);
        break;
      }
      // The same for the same line, so that who is interrupted and begins again does the same.
      id = sha256(payloadOf(stored)).slice(0, digits);
      renamed.set(idOf(members), id);
      kept = patchMembers(line, { id: bytesOf(JSON.stringify(id)) });
    }
    if (typeof members.timestamp === "string") timestamp = members.timestamp;
  }
  if (lines.length > 0) lines.push(markerOf(leafOf(log, count, theirs), timestamp, lines, lineWith));
  return { lines, entryIds, renamed };
}

/** Returns a line in which entries are named as they are now. */
function withNames(line: Uint8Array, members: EntryMembers, renamed: ReadonlyMap<string, string>): Uint8Array {
  const values: Record<string, Uint8Array> = {};
  for (const name of REFERENCES) {
    const now = renamed.get(String(members[name]));
    if (now !== undefined) values[name] = bytesOf(JSON.stringify(now));
  }
  return Object.keys(values).length === 0 ? line : patchMembers(line, values);
}

/** Returns the line of a marker that says where the leaf is. */
function markerOf(
  leafId: string | null,
  timestamp: string,
  lines: readonly Uint8Array[],
  lineWith: (id: string) => Uint8Array | undefined,
): Uint8Array {
  const seed = sha256(payloadOf(lines[lines.length - 1]));
  let digits = ID_DIGITS;
  while (lineWith(seed.slice(-digits))) digits++;
  const draft = draftOf("custom", { customType: LEAF_MARKER, data: leafId === null ? { leafId } : undefined });
  return newLine(draft, seed.slice(-digits), leafId, timestamp || new Date(0).toISOString()).line;
}

/** Returns the leaf that an opening finds in these entries (session-format reference, section 5); null for the root. */
function leafOf(log: Log, count: number, theirs: readonly Uint8Array[]): string | null {
  const metadata: EntryMembers[] = [];
  let leaf: string | null = null;
  for (let at = count + theirs.length - 1; at >= 0; at--) {
    const line = at < count ? log.read(at) : theirs[at - count];
    if (headMarkIn(line, log.header.id)) continue;
    const members = membersOf(line);
    const isMarker = members.type === "custom" && members.customType === LEAF_MARKER;
    if (members.type !== "label" && members.type !== "session_info") {
      leaf = isMarker ? parentOf(members) : idOf(members);
      break;
    }
    metadata.push(members);
  }
  // Labels and names move the leaf where they continue the conversation.
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
