/** The header line of a session file: as it is read, migrated, or made up for a damaged one. */

import { basename, dirname, isAbsolute, join } from "node:path";
import { Failure } from "../../core/failure.ts";
import type { Damage } from "../../core/format/damage.ts";
import {
  CURRENT_VERSION,
  parseSessionHeader,
  SESSION_ID,
  type SessionHeader,
  toReadableHeader,
} from "../../core/format/entry.ts";
import { migrateHeader } from "../../core/format/older-versions.ts";
import { concat, getMembers, toBytes, tryParseText } from "../../core/json/json.ts";
import type { Env } from "../../core/ports/env.ts";
import type { Disk } from "../fs/disk.ts";
import { listNames } from "../fs/folders.ts";
import { parseIdInName, readHeader } from "../fs/header.ts";
import { isSessionName, toFolderName } from "../fs/paths.ts";
import type { SessionFile } from "./session-file.ts";

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

/**
 * Makes a header in place of a damaged one, of the facts that its line, the file's name and the file's folder still have. The
 * session can then be read, and repaired or cloned to be written.
 */
export function makeHeader({ disk, path, seen }: SessionFile, line: Uint8Array, sha256: Env["sha256"]): FileHeader {
  const read = readRemains(line);
  const name = basename(path);
  const named = GIVEN_NAME.exec(name);
  const fromName = { id: named?.[2], timestamp: named?.[1].replace(/T(..)-(..)-(..)-/, "T$1:$2:$3.") };
  const fromFolder = read.cwd === undefined ? findDirectory(disk, dirname(path)) : undefined;
  const id = fromName.id ?? read.id ?? parseIdInName(path) ?? `damaged-${sha256(toBytes(path)).slice(0, 16)}`;
  const header: SessionHeader = {
    type: "session",
    version: CURRENT_VERSION,
    id,
    timestamp: read.timestamp ?? fromName.timestamp ?? new Date(seen?.modified ?? 0).toISOString(),
    cwd: read.cwd ?? fromFolder ?? "",
    ...(read.parentSession === undefined ? {} : { parentSession: read.parentSession }),
  };
  const sources = [
    ["id", id === fromName.id ? NAME : id === read.id ? LINE : OTHER],
    ["timestamp", read.timestamp ? LINE : fromName.timestamp ? NAME : OTHER],
    ["cwd", read.cwd ? LINE : fromFolder ? "from the other sessions of its folder" : LOST],
    ["parentSession", read.parentSession ? LINE : LOST],
  ];
  const origins = [...new Set(sources.map(([, from]) => from))].map((from) => {
    const members = sources.filter((source) => source[1] === from).map(([member]) => member);
    return `${members.join(", ")} ${from}`;
  });
  return {
    header,
    headerLine: toBytes(JSON.stringify(header)),
    version: CURRENT_VERSION,
    readOnly: new Failure(
      "read_only",
      `The session's header is damaged, so it can be read but not written. repair_session gives it a new one: ${origins.join("; ")}. clone copies it.`,
    ),
    damage: {
      kind: "bad_header",
      reason: `the file has no header; a new one has ${origins.join("; ")}`,
      salvaged: false,
    },
  };
}

/** The name of a session file as we give it: the time, then the id. */
const GIVEN_NAME = /^(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z)_([^_]+)\.jsonl$/;
/** Where a member of a new header comes from. */
const LINE = "from the damaged line";
const NAME = "from the file's name";
const OTHER = "made up";
const LOST = "not found";
/** Bytes of a damaged line that are looked through. */
const LONGEST_HEADER = 65_536;

/** Returns the members that are legible in a damaged header's line. An entry's line has none of a header. */
function readRemains(line: Uint8Array): Partial<Record<"id" | "timestamp" | "cwd" | "parentSession", string>> {
  // Bytes that are no UTF-8 become U+FFFD.
  const text = Buffer.from(line.subarray(0, LONGEST_HEADER)).toString();
  // No member of a header is an object, so that another record begins at the next brace.
  const next = text.indexOf("{", 1);
  const own = next < 0 ? text : text.slice(0, next);
  if (own.includes('"parentId"')) return {};
  const find = (name: string, isValid: (value: string) => boolean): string | undefined => {
    const [, written] = new RegExp(`"${name}"\\s*:\\s*("(?:[^"\\\\]|\\\\.)+")`).exec(own) ?? [];
    const value = written === undefined ? undefined : (tryParseText(written) as string | undefined);
    return value !== undefined && !value.includes("\ufffd") && isValid(value) ? value : undefined;
  };
  return {
    id: find("id", (value) => SESSION_ID.test(value)),
    timestamp: find("timestamp", (value) => /^\d{4}-\d\d-\d\dT/.test(value) && !Number.isNaN(Date.parse(value))),
    cwd: find("cwd", isAbsolute),
    parentSession: find("parentSession", () => true),
  };
}

/** Returns the directory that all other sessions of a folder have, if the folder is the one of that directory. */
function findDirectory(disk: Disk, folder: string): string | undefined {
  const found = new Set<string>();
  try {
    for (const name of listNames(disk, folder).filter(isSessionName)) {
      const cwd = readHeader(disk, join(folder, name))?.cwd;
      if (typeof cwd === "string" && toFolderName(cwd) === basename(folder)) found.add(cwd);
      if (found.size > 1) return undefined;
    }
  } catch {
    // The folder cannot be listed.
  }
  return [...found][0];
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
