/** Lists sessions as Pi does, by reading each file as the store reads it. */

import { join } from "node:path";
import type { Entry } from "../core/format/entry.ts";
import { parse } from "../core/json/json.ts";
import type { Log } from "../core/ports/store.ts";
import {
  absolutePath,
  defaultFolder,
  disk,
  isSessionIn,
  latestIn,
  readHeader,
  readingStores,
  sessionFolders,
  sessionsRoot,
} from "./here.ts";
import type { SessionInfo, SessionListProgress } from "./types.ts";

/** Number of sessions after which those read so far are handed out. */
const PARTIAL = 10;

/**
 * Returns the sessions of a working directory, the most recent first. A folder that is given may hold those of several.
 * Rejects with the signal's reason.
 */
export async function listSessions(
  cwd: string,
  sessionDir: string | undefined,
  onProgress: SessionListProgress | undefined,
  signal: AbortSignal | undefined,
): Promise<SessionInfo[]> {
  const fits = cwdFilter(cwd, sessionDir);
  const folder = sessionDir === undefined ? defaultFolder(cwd) : absolutePath(sessionDir);
  return readSessions([folder], fits, onProgress, signal);
}

/** Returns the sessions of every working directory, or all of one folder, the most recent first. */
export async function listAllSessions(
  sessionDir: string | undefined,
  onProgress: SessionListProgress | undefined,
  signal: AbortSignal | undefined,
): Promise<SessionInfo[]> {
  signal?.throwIfAborted();
  const folders =
    sessionDir === undefined ? sessionFolders({ root: sessionsRoot(), state: "" }, disk) : [absolutePath(sessionDir)];
  return readSessions([...folders], () => true, onProgress, signal);
}

/** Returns a folder's session that was changed last, of that working directory if one is given; null for none. */
export function findMostRecentSession(sessionDir: string, cwd?: string): string | null {
  const fits = cwd === undefined ? () => true : cwdFilter(cwd, sessionDir);
  try {
    return latestIn(disk, absolutePath(sessionDir), ({ id, cwd: own }) => typeof id === "string" && fits(own)) ?? null;
  } catch {
    // A folder that cannot be read has no session to offer.
    return null;
  }
}

/** Returns the file of the session with exactly that id. */
export function findSessionById(cwd: string, id: string, sessionDir: string | undefined): string | undefined {
  const fits = cwdFilter(cwd, sessionDir);
  const folder = sessionDir === undefined ? defaultFolder(cwd) : absolutePath(sessionDir);
  return sessionFiles(folder).find((file) => {
    const header = readHeader(disk, file);
    return header?.id === id && fits(header.cwd);
  });
}

/**
 * Returns a function that checks whether a header's cwd is the wanted one. Names of folders collide (`/a/b` and
 * `/a-b`), so the cwd is checked in the default folder too, where a session that names none counts as one of the
 * folder's.
 */
function cwdFilter(cwd: string, sessionDir: string | undefined): (own: unknown) => boolean {
  const wanted = absolutePath(cwd);
  const isDefault = sessionDir === undefined || absolutePath(sessionDir) === defaultFolder(cwd);
  return (own) => (typeof own === "string" && own !== "" ? absolutePath(own) === wanted : isDefault);
}

function sessionFiles(folder: string): string[] {
  try {
    return disk
      .names(folder)
      .filter((name) => isSession(folder, name))
      .sort()
      .reverse()
      .map((name) => join(folder, name));
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
  for (const [index, file] of files.entries()) {
    // A long listing yields to the rest of the process.
    await new Promise(setImmediate);
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

function readInfo(open: (file: string) => Log, file: string): SessionInfo | undefined {
  let log: Log;
  try {
    log = open(file);
  } catch {
    // Not a session, or removed since its folder was read.
    return undefined;
  }
  try {
    return infoOf(log, file);
  } catch {
    return undefined;
  } finally {
    log.close();
  }
}

function infoOf(log: Log, file: string): SessionInfo {
  const { nodes, header } = log;
  const telling: number[] = [];
  for (let p = 0; p < nodes.count; p++)
    if (nodes.isType(p, "message") || nodes.isType(p, "session_info")) telling.push(p);
  let name: string | undefined;
  let messageCount = 0;
  let active = 0;
  const texts: string[] = [];
  let firstMessage = "";
  for (const line of log.readMany(telling)) {
    const entry = parse(line) as Entry;
    if (entry.type === "session_info") {
      name = (typeof entry.name === "string" && entry.name.trim()) || undefined;
      continue;
    }
    messageCount++;
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
