/**
 * Quarantine of entries that a fleet refused or that were in conflict: files in the stores' quarantine folder, each with its
 * session's header.
 */

import { basename, join } from "node:path";
import { Failure } from "../core/failure.ts";
import { parseSessionHeader } from "../core/format/entry.ts";
import { getContentText, toPreview } from "../core/format/message.ts";
import { concat, parse, splitLines, tryParse } from "../core/json/json.ts";
import type { Quarantine, QuarantinedEntries } from "../core/ports/quarantined-entries.ts";
import type { Log } from "../core/ports/store.ts";
import { type Disk, readWhole, renameExclusive } from "./fs/disk.ts";
import { addNumber, findFreeName, getInfo, guardErrno, readIfPresent } from "./fs/files.ts";
import { listNames } from "./fs/folders.ts";
import { quarantine } from "./fs/quarantine.ts";
import { LF } from "./log/lines.ts";

/** Maximum bytes of a file; quarantined entries were in memory before. */
const MOST_BYTES = 1 << 30;
const NAME = /\.refused(?:-\d{1,9})?\.bin$/;

/** Keeps entries of a log. Returns their path. */
export function quarantineEntries(
  disk: Disk,
  folder: string,
  { header, headerLine }: Log,
  lines: readonly Uint8Array[],
): string {
  const name = `${header.id.replace(/[^A-Za-z0-9._-]/g, "_").slice(0, 128)}.refused`;
  const content = [headerLine, ...lines].flatMap((line) => [line, LF]);
  return quarantine(disk, folder, name, concat(content));
}

/** Returns the entries that can be read in a file, whatever else it has. */
export function readEntries(disk: Disk, file: string): Uint8Array[] {
  const { kind, size = 0 } = getInfo(disk, file) ?? {};
  const bytes = kind === "file" && size <= MOST_BYTES ? readWhole(disk, file) : new Uint8Array();
  return [...splitLines(bytes)].filter(isEntry);
}

/** Quarantines those of some entries that a log lacks. */
export function quarantineMissing(
  log: Log,
  entries: readonly Uint8Array[],
  keep: (log: Log, lines: readonly Uint8Array[]) => string,
): void {
  const lacking = new Map<string, Uint8Array>();
  for (const line of entries) {
    const { id } = parse(line) as { id: string };
    if (!isPlaceholder(line) && log.nodes.position(id) < 0) lacking.set(id, line);
  }
  if (lacking.size > 0) keep(log, [...lacking.values()]);
}

export function openQuarantine(disk: Disk, folder: string): Quarantine {
  const read = (keptAt: string): ReturnType<Quarantine["read"]> => {
    const isOne = keptAt === join(folder, basename(keptAt)) && NAME.test(keptAt);
    const isTooLarge = (getInfo(disk, keptAt)?.size ?? 0) > MOST_BYTES;
    const bytes =
      isOne && !isTooLarge
        ? guardErrno("reading kept entries", () => readIfPresent(() => readWhole(disk, keptAt)))
        : null;
    const [header, ...others] = bytes ? splitWholeLines(bytes) : [];
    const stored = header && parseSessionHeader(header);
    if (stored) {
      const lines = others.filter((line) => isEntry(line) && !isPlaceholder(line));
      const sessionId = String((stored as { id?: unknown }).id);
      return { sessionId, lines, damagedLines: others.length - lines.length };
    }
    throw new Failure(
      "not_a_session",
      "There are no kept entries at this path. list_kept shows those that there are.",
      {
        keptAt,
      },
    );
  };
  return {
    read,
    putAside(keptAt) {
      const stem = keptAt.replace(NAME, ".recovered");
      try {
        renameExclusive(
          disk,
          keptAt,
          findFreeName(disk, (n) => `${addNumber(stem, n, "-")}.bin`),
        );
      } catch {
        // It is offered again.
      }
    },
    list() {
      const names = guardErrno("looking for kept entries", () => readIfPresent(() => listNames(disk, folder))) ?? [];
      const found = names.filter((name) => NAME.test(name)).flatMap((name) => describeFile(join(folder, name)) ?? []);
      return found.sort((a, b) => b.since - a.since || (a.keptAt < b.keptAt ? -1 : 1));
    },
  };

  function describeFile(keptAt: string): QuarantinedEntries | undefined {
    try {
      const { sessionId, lines, damagedLines } = read(keptAt);
      const info = getInfo(disk, keptAt);
      const since = info?.modified ?? 0;
      const sizeBytes = info?.size ?? 0;
      return { keptAt, sessionId, entryCount: lines.length, damagedLines, sizeBytes, since, text: getFirstText(lines) };
    } catch (error) {
      if (error instanceof Failure) return undefined;
      throw error;
    }
  }
}

function splitWholeLines(bytes: Uint8Array): Uint8Array[] {
  // An incomplete last line was not written as a whole.
  return [...splitLines(bytes.subarray(0, bytes.lastIndexOf(0x0a) + 1))];
}

/** Returns whether a line is an entry as programs write them. Others would damage the session that they are appended to. */
export function isEntry(line: Uint8Array): boolean {
  const { id, type, parentId } = (tryParse(line) ?? {}) as Record<string, unknown>;
  const isNamed = typeof id === "string" && id !== "" && typeof type === "string" && type !== "session";
  return isNamed && (parentId === null || typeof parentId === "string");
}

/** Returns whether a line stands for one that cannot be read. */
export function isPlaceholder(line: Uint8Array): boolean {
  return (parse(line) as { damaged?: unknown }).damaged === true;
}

function getFirstText(lines: readonly Uint8Array[]): string | null {
  for (const line of lines) {
    const { message } = parse(line) as { message?: { content?: unknown } };
    if (message) return toPreview(getContentText(message.content));
  }
  return null;
}
