/**
 * Versions 1 and 2 read as version 3, line by line and without touching the source (session-format reference,
 * section 1). Ids are derived from the lines themselves, so that they are the same at every opening.
 */

import { patchMembers } from "./entry.ts";
import { bytesOf, concat, memberOf, members, parse } from "./json.ts";

/** A header line raised to version 3. */
export function migrateHeader(line: Uint8Array): Uint8Array {
  const found = members(line) ?? [];
  if (memberOf(found, "version")) return patchMembers(line, { version: bytesOf("3") });
  const type = memberOf(found, "type");
  return type ? insert(line, type.end, ',"version":3') : line;
}

/** The id of a version 1 entry: the first hex digits of a hash over its line number and bytes, more on a collision. */
export function idOfLine(
  lineNumber: number,
  line: Uint8Array,
  sha256: (bytes: Uint8Array) => string,
  taken: (id: string) => boolean,
): string {
  const hash = sha256(concat([bytesOf(`${lineNumber}:`), line]));
  for (let digits = 8; digits < hash.length; digits++) if (!taken(hash.slice(0, digits))) return hash.slice(0, digits);
  return hash;
}

/** How many entries of the same bytes get an id of the usual length. */
const LEGACY_TRIES = 100;

/** The id of a version 3 entry that lacks one, as the Rust implementation gives it (reference, section 8.4). */
export function legacyIdOf(
  line: Uint8Array,
  sha256: (bytes: Uint8Array) => string,
  taken: (id: string) => boolean,
): string {
  const hashed = concat([bytesOf("pi.session.legacy-entry-id.v1\0"), line, new Uint8Array(4)]);
  for (let counter = 0; counter < LEGACY_TRIES; counter++) {
    hashed[hashed.length - 1] = counter;
    const id = sha256(hashed).slice(0, 8);
    if (!taken(id)) return id;
  }
  const hash = sha256(hashed);
  for (let n = 0; ; n++)
    if (!taken(`${hash.slice(0, 8)}-${n.toString(16)}`)) return `${hash.slice(0, 8)}-${n.toString(16)}`;
}

/** A version 1 entry with the id and parent it gets. `idAt` answers the id of a line, counting the header as 0. */
export function migrateV1(
  line: Uint8Array,
  id: string,
  parentId: string | null,
  idAt: (index: number) => string | undefined,
): Uint8Array {
  const found = members(line);
  const type = found && memberOf(found, "type");
  if (!found || !type) return line;
  const ids: Record<string, string> = { id: JSON.stringify(id), parentId: JSON.stringify(parentId) };
  let missing = "";
  const present: Record<string, Uint8Array> = {};
  for (const [name, text] of Object.entries(ids))
    if (memberOf(found, name)) present[name] = bytesOf(text);
    else missing += `,"${name}":${text}`;
  let migrated = patchMembers(insert(line, type.end, missing), present);
  if (parse(line, type.start, type.end) === "compaction") migrated = migrateBoundary(migrated, idAt);
  return migrateV2(migrated);
}

function migrateBoundary(line: Uint8Array, idAt: (index: number) => string | undefined): Uint8Array {
  const index = memberOf(members(line) ?? [], "firstKeptEntryIndex");
  if (!index) return line;
  const kept = idAt(Number(parse(line, index.start, index.end)));
  // The member is there in version 1 only; without a target it goes, as the TypeScript reader has it.
  return concat([
    line.subarray(0, index.nameStart),
    bytesOf(`"firstKeptEntryId":${JSON.stringify(kept ?? "")}`),
    line.subarray(index.end),
  ]);
}

/** A version 2 entry as version 3: the role `hookMessage` is called `custom`. */
export function migrateV2(line: Uint8Array): Uint8Array {
  const message = memberOf(members(line) ?? [], "message");
  if (!message) return line;
  const inside = members(line, message.start, message.end) ?? [];
  const role = memberOf(inside, "role");
  if (!role || parse(line, role.start, role.end) !== "hookMessage") return line;
  return concat([line.subarray(0, role.start), bytesOf('"custom"'), line.subarray(role.end)]);
}

function insert(line: Uint8Array, at: number, text: string): Uint8Array {
  return concat([line.subarray(0, at), bytesOf(text), line.subarray(at)]);
}
