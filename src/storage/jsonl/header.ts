/** The header line of a session file: as it is read, migrated, or made up for a damaged one. */

import { Failure } from "../../core/failure.ts";
import type { Damage } from "../../core/format/damage.ts";
import { CURRENT_VERSION, parseSessionHeader, type SessionHeader, toReadableHeader } from "../../core/format/entry.ts";
import { migrateHeader } from "../../core/format/older-versions.ts";
import { concat, getMembers, toBytes } from "../../core/json/json.ts";
import { parseIdInName } from "../fs/header.ts";

/** A header, and its consequences for the file. */
export interface FileHeader {
  readonly header: SessionHeader;
  /** The header's line in the current format. */
  readonly headerLine: Uint8Array;
  /** Format version of the file. */
  readonly version: number;
  /** True if the file must be published anew before anything is appended: an old version, or a header with a leaf. */
  readonly isOutdated?: boolean;
  /** Why the session cannot be written, and the damage that this is. */
  readOnly?: Failure;
  readonly damage?: Pick<Damage, "kind" | "reason" | "salvaged">;
}

/** Parses a header line. Returns null if it is no header. */
export function parseHeader(line: Uint8Array): FileHeader | null {
  const found = parseSessionHeader(line);
  if (found === null) return null;
  const header = toReadableHeader(found);
  const version = versionOf(found.version);
  if (version > CURRENT_VERSION || version < 1) {
    const which = version < 1 ? "no version that this program knows" : `newer than version ${CURRENT_VERSION}`;
    const reason = `format version ${JSON.stringify(found.version)}, which is ${which}`;
    return {
      header,
      headerLine: line,
      version: version < 1 ? CURRENT_VERSION : version,
      readOnly: new Failure(
        "unsupported_version",
        `The session has ${reason}. Nothing is wrong with it. It can be read as far as this version knows it, and not written; a newer version of this program reads all of it.`,
      ),
      damage: { kind: "newer_version", reason, salvaged: true },
    };
  }
  if (version < CURRENT_VERSION) {
    const current = { ...header, version: CURRENT_VERSION };
    return { header: current, headerLine: migrateHeader(line), version, isOutdated: true };
  }
  if (found.leafId === undefined) return { header, headerLine: line, version };
  return { header, headerLine: withoutMember(line, "leafId"), version, isOutdated: true };
}

/** Makes a header in place of a damaged one. The session can then be read, and repaired or cloned to be written. */
export function makeHeader(file: string, modified: number, sha256: (b: Uint8Array) => string): FileHeader {
  const id = parseIdInName(file) ?? `damaged-${sha256(toBytes(file)).slice(0, 16)}`;
  const timestamp = new Date(modified).toISOString();
  const header: SessionHeader = { type: "session", version: CURRENT_VERSION, id, timestamp, cwd: "" };
  return {
    header,
    headerLine: toBytes(JSON.stringify(header)),
    version: CURRENT_VERSION,
    readOnly: new Failure(
      "read_only",
      "The session's header is damaged, so it can be read but not written. repair_session gives it a new one, without the directory and the parent that nothing names any more; clone copies it.",
    ),
    damage: { kind: "bad_header", reason: "the file has no header", salvaged: false },
  };
}

/** Returns the version of a header: 1 if it has none, 0 if its value is not a version. */
function versionOf(version: unknown): number {
  if (version === undefined || version === null) return 1;
  const number = typeof version === "string" && /^\d+$/.test(version) ? Number(version) : version;
  return typeof number === "number" && Number.isInteger(number) && number > 0 ? number : 0;
}

function withoutMember(line: Uint8Array, name: string): Uint8Array {
  const found = getMembers(line) ?? [];
  const index = found.findIndex((member) => member.name === name);
  if (index < 0) return line;
  const from = index > 0 ? found[index - 1].end : found[index].nameStart;
  const to = index > 0 ? found[index].end : (found[index + 1]?.nameStart ?? found[index].end);
  return concat([line.subarray(0, from), line.subarray(to)]);
}
