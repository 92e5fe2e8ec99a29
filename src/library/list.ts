/** Lists sessions as Pi does, by reading each file as the store reads it. */

import { join } from "node:path";
import type { Entry } from "../core/format/entry.ts";
import { parse } from "../core/json/json.ts";
import type { Log } from "../core/ports/store.ts";
import {
  absolutePath,
  defaultFolder,
  disk,
  env,
  folderOr,
  isContainerName,
  isSameStamp,
  isSessionIn,
  isYoung,
  latestIn,
  listSessionFolders,
  readDiskClock,
  readHeader,
  readingStores,
  type Stamp,
  storagePaths,
  useAndClose,
} from "./here.ts";
import type { SessionInfo, SessionListProgress } from "./types.ts";

/** Number of sessions in each part of a list. */
const PARTIAL = 10;
/** Milliseconds of listing before the rest of the process has a turn, which takes longer than a look at a file. */
const TURN = 4;

/** Rejects with the signal's reason. A folder that is given may hold the sessions of several working directories. */
export async function listSessions(
  cwd: string,
  sessionDir?: string,
  onProgress?: SessionListProgress,
  signal?: AbortSignal,
): Promise<SessionInfo[]> {
  const folder = folderOr(sessionDir, cwd);
  return readSessions([folder], cwdFilter(cwd, folder), onProgress, signal);
}

export function listAllSessions(onProgress?: SessionListProgress, signal?: AbortSignal): Promise<SessionInfo[]>;
export function listAllSessions(
  sessionDir?: string,
  onProgress?: SessionListProgress,
  signal?: AbortSignal,
): Promise<SessionInfo[]>;
export async function listAllSessions(
  ...given: (string | SessionListProgress | AbortSignal | undefined)[]
): Promise<SessionInfo[]> {
  const progress = given.find((value) => typeof value === "function");
  const signal = given.find((value) => value instanceof AbortSignal);
  signal?.throwIfAborted();
  const [sessionDir] = given;
  const folders =
    typeof sessionDir === "string" && sessionDir !== ""
      ? [absolutePath(sessionDir)]
      : [...listSessionFolders(storagePaths(), disk)];
  return readSessions(folders, () => true, progress, signal);
}

/** Returns a folder's session that was changed last, of that working directory if one is given; else null. */
export function findMostRecentSession(sessionDir: string, cwd?: string): string | null {
  const fits = cwd === undefined ? () => true : cwdFilter(cwd, absolutePath(sessionDir));
  try {
    return latestIn(disk, absolutePath(sessionDir), ({ id, cwd: own }) => typeof id === "string" && fits(own)) ?? null;
  } catch {
    // A folder that cannot be read has no session to offer.
    return null;
  }
}

export function findSessionById(cwd: string, id: string, sessionDir?: string): string | undefined {
  const folder = folderOr(sessionDir, cwd);
  const fits = cwdFilter(cwd, folder);
  return sessionFiles(folder).find((file) => {
    const header = readHeader(disk, file);
    return header?.id === id && fits(header.cwd);
  });
}

/**
 * Returns a function that checks whether a header's cwd is the wanted one. Names of folders collide (`/a/b` and
 * `/a-b`), so the cwd is checked in the default folder too. There a session without a cwd belongs to the folder.
 */
function cwdFilter(cwd: string, folder: string): (own: unknown) => boolean {
  const wanted = absolutePath(cwd);
  const isDefault = folder === defaultFolder(cwd);
  return (own) => (typeof own === "string" && own !== "" ? own === wanted || absolutePath(own) === wanted : isDefault);
}

function sessionFiles(folder: string): string[] {
  try {
    const names = disk.names(folder).filter((name) => isSession(folder, name));
    names.sort().reverse();
    // Joining thousands of names takes as long as looking at the files.
    const before = join(folder, "-").slice(0, -1);
    return names.map((name) => before + name);
  } catch {
    return [];
  }
}

function isSession(folder: string, name: string): boolean {
  try {
    return isSessionIn(disk, folder, name);
  } catch {
    // The file that shows whether a container is a session may be unreadable.
    return false;
  }
}

async function readSessions(
  folders: readonly string[],
  fits: (cwd: unknown) => boolean,
  onProgress: SessionListProgress | undefined,
  signal: AbortSignal | undefined,
): Promise<SessionInfo[]> {
  signal?.throwIfAborted();
  const files = folders.flatMap(sessionFiles);
  const open = readingStores();
  const found: SessionInfo[] = [];
  let began = Number.NEGATIVE_INFINITY;
  for (const [index, file] of files.entries()) {
    // A long listing yields to the rest of the process.
    if (env.now() - began >= TURN) {
      await new Promise(setImmediate);
      began = env.now();
    }
    signal?.throwIfAborted();
    const info = readInfo(open, file);
    if (info && fits(info.cwd)) found.push(info);
    const loaded = index + 1;
    const reportsAll = loaded === 1 || loaded % PARTIAL === 0 || loaded === files.length;
    onProgress?.(loaded, files.length, reportsAll ? byActivity([...found]) : undefined);
  }
  return byActivity(found);
}

function byActivity(sessions: SessionInfo[]): SessionInfo[] {
  return sessions.sort((a, b) => b.modified.getTime() - a.modified.getTime());
}

/**
 * Lists of files as they were read, with their stamps, for as long as a caller holds one: the texts of 1,000 sessions
 * are hundreds of megabytes. So a list takes 2 s the first time, and later as long as reading the stamps.
 */
const earlier = new Map<string, { readonly stamp: Stamp; readonly info: WeakRef<SessionInfo> }>();

function readInfo(open: (file: string) => Log, file: string): SessionInfo | undefined {
  try {
    // The stamp of a container's folder does not show changes in its files.
    const stamp = isContainerName(file) ? undefined : disk.info(file);
    const known = earlier.get(file);
    const same = stamp && known && isSameStamp(stamp, known.stamp) ? known.info.deref() : undefined;
    if (same) return same;
    const since = readDiskClock(disk);
    const info = useAndClose(open(file), (log) => infoOf(log, file));
    if (stamp && !isYoung(stamp, since)) earlier.set(file, { stamp, info: new WeakRef(info) });
    else earlier.delete(file);
    return info;
  } catch {
    // Not a session, not readable, or removed since its folder was read.
    earlier.delete(file);
    return undefined;
  }
}

function infoOf(log: Log, file: string): SessionInfo {
  const { nodes, header } = log;
  const positions: number[] = [];
  let messageCount = 0;
  for (let p = 0; p < nodes.count; p++) {
    const isMessage = nodes.isType(p, "message");
    if (isMessage) messageCount++;
    // Results of tools, which are most of a session, need not be read.
    const role = nodes.role(p);
    if (isMessage ? role === "user" || role === "assistant" : nodes.isType(p, "session_info")) positions.push(p);
  }
  let name: string | undefined;
  let active = 0;
  const texts: string[] = [];
  let firstMessage = "";
  for (const line of log.readMany(positions, true)) {
    const entry = parse(line) as Entry;
    if (entry.type === "session_info") {
      name = (typeof entry.name === "string" && entry.name.trim()) || undefined;
      continue;
    }
    const message = (entry.message ?? {}) as { role?: unknown; content?: unknown; timestamp?: unknown };
    if ((message.role !== "user" && message.role !== "assistant") || !("content" in message)) continue;
    const time = typeof message.timestamp === "number" ? message.timestamp : Date.parse(entry.timestamp);
    if (time > active) active = time;
    const text = spokenText(message.content);
    if (text === "") continue;
    texts.push(text);
    if (firstMessage === "" && message.role === "user") firstMessage = text;
  }
  const created = new Date(header.timestamp ?? Number.NaN);
  const begun = created.getTime();
  return {
    path: file,
    id: header.id,
    cwd: typeof header.cwd === "string" ? header.cwd : "",
    name,
    parentSessionPath: header.parentSession ?? header.branchedFrom,
    created,
    modified: new Date(active > 0 ? active : Number.isNaN(begun) ? (log.stamp?.modified ?? 0) : begun),
    messageCount,
    firstMessage: firstMessage || "(no messages)",
    allMessagesText: texts.join(" "),
  };
}

/** Returns the text of a message for searching, its blocks separated by spaces. */
function spokenText(content: unknown): string {
  if (typeof content === "string") return content;
  const blocks: ({ type?: unknown; text?: unknown } | null)[] = Array.isArray(content) ? content : [];
  const spoken = blocks.filter((block) => block?.type === "text" && typeof block.text === "string");
  return spoken.map((block) => block?.text).join(" ");
}
