/**
 * Reads versions 1 and 2 as version 3, line by line and without touching the source (session-format reference, section
 * 1). Ids are derived from the lines themselves, so that they are the same at every opening.
 */

import { concat, findMember, getMembers, getMemberValue, parse, toBytes } from "../json/json.ts";
import { replaceMember } from "./entry.ts";

/** Returns a header line raised to version 3. */
export function migrateHeader(line: Uint8Array): Uint8Array {
  return replaceMember(line, "version", toBytes("3"));
}

type Sha256 = (bytes: Uint8Array) => string;
type IsUsed = (id: string) => boolean;

/** Returns the id of a version 1 entry: the first digits of a hash over its line number and bytes, more on a collision. */
export function deriveLineId(lineNumber: number, line: Uint8Array, sha256: Sha256, isUsed: IsUsed): string {
  const hash = sha256(concat([toBytes(`${lineNumber}:`), line]));
  for (let digits = 8; digits < hash.length; digits++) if (!isUsed(hash.slice(0, digits))) return hash.slice(0, digits);
  return hash;
}

/** Attempts to give entries with the same bytes an id of the usual length. */
const LEGACY_TRIES = 100;

/** Returns the id of a version 3 entry that lacks one, as the Rust implementation gives it (reference, section 8.4). */
export function deriveLegacyId(line: Uint8Array, sha256: Sha256, isUsed: IsUsed): string {
  const hashed = concat([toBytes("pi.session.legacy-entry-id.v1\0"), line, new Uint8Array(4)]);
  for (let counter = 0; counter < LEGACY_TRIES; counter++) {
    hashed[hashed.length - 1] = counter;
    const id = sha256(hashed).slice(0, 8);
    if (!isUsed(id)) return id;
  }
  const hash = sha256(hashed);
  for (let n = 0; ; n++) {
    const id = `${hash.slice(0, 8)}-${n.toString(16)}`;
    if (!isUsed(id)) return id;
  }
}

/** The entries before one of version 1. */
interface Earlier {
  /** Returns an id for the entry. */
  makeId(): string;
  /** The id of the entry before; null before the first. */
  readonly lastId: string | null;
  /** Returns the id of a line; the header is line 0. */
  idAt(index: number): string | undefined;
}

/**
 * Raises an entry of version 1 to version 3, and returns it with its id. Its parent is the entry before it. No entry of
 * version 1 has an id or a parent: one that has them, of a later version under a header that lost its own, keeps them.
 */
export function migrateV1(line: Uint8Array, earlier: Earlier): { readonly line: Uint8Array; readonly id: string } {
  const found = getMembers(line) ?? [];
  const own = getMemberValue(line, found, "id");
  const id = typeof own === "string" && own !== "" ? own : earlier.makeId();
  const parent = getMemberValue(line, found, "parentId");
  const type = findMember(found, "type");
  if (!type) return { line, id };
  let migrated = line;
  // Missing members are added after the type: the parent first, so that it follows the id.
  if (own !== id || (parent !== null && typeof parent !== "string"))
    migrated = replaceMember(migrated, "parentId", toBytes(JSON.stringify(earlier.lastId)));
  if (own !== id) migrated = replaceMember(migrated, "id", toBytes(JSON.stringify(id)));
  if (parse(line, type.start, type.end) === "compaction") migrated = migrateBoundary(migrated, earlier.idAt);
  return { line: migrateV2(migrated), id };
}

function migrateBoundary(line: Uint8Array, idAt: (index: number) => string | undefined): Uint8Array {
  const index = findMember(getMembers(line) ?? [], "firstKeptEntryIndex");
  if (!index) return line;
  const kept = idAt(Number(parse(line, index.start, index.end)));
  // Only version 1 has this member. Without a target the id is empty.
  return replaced(line, index.nameStart, index.end, `"firstKeptEntryId":${JSON.stringify(kept ?? "")}`);
}

/** Raises an entry of version 2 to version 3: the role `hookMessage` is renamed to `custom`. */
export function migrateV2(line: Uint8Array): Uint8Array {
  const message = findMember(getMembers(line) ?? [], "message");
  const role = message && findMember(getMembers(line, message.start, message.end) ?? [], "role");
  if (!role || parse(line, role.start, role.end) !== "hookMessage") return line;
  return replaced(line, role.start, role.end, '"custom"');
}

function replaced(line: Uint8Array, start: number, end: number, text: string): Uint8Array {
  return concat([line.subarray(0, start), toBytes(text), line.subarray(end)]);
}
