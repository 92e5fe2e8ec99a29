/** Sessions that an id, or the beginning of one, may mean, with the facts that a person needs to recognise them. */

import { basename, join } from "node:path";
import { concat } from "../../core/json/json.ts";
import type { SeenFacts } from "../../core/ports/lifecycle.ts";
import type { Log } from "../../core/ports/store.ts";
import type { Candidate, Offered } from "../../core/ports/stores.ts";
import { formatTime, parseTime } from "../../core/search/listing.ts";
import { CONTAINER, isContainerName } from "../fs/container-paths.ts";
import type { Disk } from "../fs/disk.ts";
import { getInfo, readAt, useFile } from "../fs/files.ts";
import { parseIdInName, readHeader } from "../fs/header.ts";
import { isSessionName } from "../fs/paths.ts";
import { isActive, listMigratedSources } from "../v2/pointer.ts";
import { makeDiskWithBytes } from "../v2/sqlite-v1.ts";
import { scanContainer } from "./containers.ts";
import { getModified, type SessionSummary, scanFile } from "./summary.ts";

type CandidateFacts = Pick<SessionSummary, "name" | "first" | "cwd" | "timestamp" | "activity">;

/** Most sessions that are described: a person does not compare more. */
const MOST = 10;
/** Bytes up to which a file is read for its name: ten of them take 50 ms. */
const LARGEST = 8 << 20;
/** Bytes that are read at the beginning and the end of a longer one. */
const BEGINNING_BYTES = 4 << 20;
const END_BYTES = 1 << 20;
/** Characters of a first message. */
const BEGINNING = 100;

/** Returns the candidates among session files, the newest first. An unreadable one is described by its header. */
export function readCandidates(disk: Disk, files: readonly string[], openLog: (file: string) => Log): Candidate[] {
  return newestOf(disk, files)
    .slice(0, MOST)
    .flatMap((file) => candidateAt(disk, file, openLog) ?? []);
}

/** Most files whose times are read; for more, which take longer than a person waits for a key, the names decide. */
const MOST_TIMED = 2000;

/** Returns sessions by the names of their files, and reads only those that it describes. */
export function findOffered(
  disk: Disk,
  folders: Iterable<string>,
  beginning: string,
  most: number,
  openLog: (file: string) => Log,
): Offered {
  const ids: string[] = [];
  const files: string[] = [];
  for (const folder of folders)
    for (const name of disk.names(folder)) {
      if (!isSessionName(name) && !isContainerName(name)) continue;
      const id = isContainerName(name) ? name.slice(0, -CONTAINER.length) : parseIdInName(name);
      if (id !== undefined) ids.push(id);
      // The name may have only the beginning of the id, or none.
      if (id !== undefined && !id.startsWith(beginning) && !beginning.startsWith(id)) continue;
      if (isSessionName(name) || isActiveQuietly(disk, join(folder, name))) files.push(join(folder, name));
    }
  const sources = listMigratedSources(disk, files.filter(isContainerName));
  const found = newestOf(
    disk,
    files.filter((file) => !sources.has(file)),
  )
    .slice(0, most)
    .flatMap((file) => candidateAt(disk, file, openLog) ?? []);
  return {
    candidates: found.filter(({ sessionId }) => sessionId.startsWith(beginning)),
    ids: [...new Set(ids)].sort(),
  };
}

function newestOf(disk: Disk, files: readonly string[]): string[] {
  const isTimed = files.length <= MOST_TIMED;
  const byTime = files.map((file) => {
    return { file, name: basename(file), time: isTimed ? (getInfo(disk, file)?.modified ?? 0) : 0 };
  });
  // Names of files begin with the time, and ids, which name containers, are in its order, too.
  byTime.sort((a, b) => b.time - a.time || (a.name < b.name ? 1 : -1));
  return byTime.map(({ file }) => file);
}

function isActiveQuietly(disk: Disk, container: string): boolean {
  try {
    return isActive(disk, container);
  } catch {
    return false;
  }
}

function candidateAt(disk: Disk, file: string, openLog: (file: string) => Log): Candidate | undefined {
  const header = readHeader(disk, file);
  const text = (value: unknown): string | null => (typeof value === "string" ? value : null);
  if (typeof header?.id !== "string") return undefined;
  const facts: CandidateFacts = summaryAt(disk, file, openLog) ?? {
    name: null,
    first: null,
    cwd: text(header.cwd),
    timestamp: text(header.timestamp),
    activity: null,
  };
  return {
    sessionId: header.id,
    sessionPath: file,
    name: facts.name,
    firstMessage: facts.first?.slice(0, BEGINNING) ?? null,
    cwd: facts.cwd,
    modified: formatTime(facts.activity ?? parseTime(facts.timestamp)),
  };
}

/** Returns the facts of one session that show a person whether it was continued. */
export function readFactsAt(disk: Disk, file: string, openLog: (file: string) => Log): SeenFacts | undefined {
  const now = summaryAt(disk, file, openLog, Number.POSITIVE_INFINITY);
  return now && { modified: getModified(now), messageCount: now.messages };
}

function summaryAt(
  disk: Disk,
  file: string,
  openLog: (file: string) => Log,
  largest = LARGEST,
): SessionSummary | undefined {
  try {
    if (isContainerName(file)) return scanContainer(disk, file, openLog).now;
    const { size } = disk.info(file);
    if (size <= largest) return scanFile(disk, file)?.now;
    const { first, last } = endsOf(disk, file, size);
    const begun = scanFile(makeDiskWithBytes(disk, file, first), file)?.now;
    // The first message is not in the beginning: one with pictures may be longer than that.
    if (!begun || begun.first === null) return scanFile(disk, file)?.now;
    return scanFile(makeDiskWithBytes(disk, file, concat([first, last])), file)?.now;
  } catch {
    // It was removed in between, or may not be read.
    return undefined;
  }
}

/** Returns the first and the last whole lines of a file: they usually have the first message and the name. */
function endsOf(disk: Disk, file: string, size: number): { first: Uint8Array; last: Uint8Array } {
  return useFile(disk, disk.openRead(file), (fd) => {
    const first = readAt(disk, fd, 0, BEGINNING_BYTES);
    const last = readAt(disk, fd, size - END_BYTES, END_BYTES);
    return { first: first.subarray(0, first.lastIndexOf(0x0a) + 1), last: last.subarray(last.indexOf(0x0a) + 1) };
  });
}
