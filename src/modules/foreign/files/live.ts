/** Finds the sessions that other agents have open now, as far as they show it on this machine. */

import { basename, dirname, join, sep } from "node:path";
import { tryParse } from "../../../core/json/json.ts";
import type { Holder } from "../../../core/ports/lock.ts";
import type { Disk, FileInfo } from "../../../storage/fs/disk.ts";
import { findAllowed, getInfo, readBeginning } from "../../../storage/fs/files.ts";
import { listFolder } from "../../../storage/fs/folders.ts";
import { isSameProcess } from "../../../storage/fs/processes.ts";
import type { AgentPlace } from "./places.ts";

/** Bytes of an agent's note about a process, which has a few hundred. */
const LONGEST_NOTE = 1 << 16;

/** Returns the processes that have sessions open, by the paths of these. */
export function findLiveHolders(
  disk: Disk,
  places: readonly AgentPlace[],
  paths: readonly string[],
): Map<string, Holder> {
  const found = new Map<string, Holder>();
  const unnoted = new Map<string, string>();
  for (const { agent, folder, registry, isDatabase } of places) {
    // A process with an open database has some session of it open.
    if (isDatabase) continue;
    const within = paths.filter((path) => path.startsWith(`${folder}${sep}`));
    if (within.length === 0) continue;
    if (registry === undefined) {
      for (const path of within) unnoted.set(path, agent);
      continue;
    }
    const holders = notesIn(disk, registry);
    for (const path of within) {
      // A subagent runs in the process of the session whose folder it is in.
      const names = path
        .slice(folder.length)
        .split(/[/\\]/)
        .map((name) => basename(name, ".jsonl"));
      const holder = names.map((name) => holders.get(name)).find((one) => one !== undefined);
      if (holder) found.set(path, holder);
    }
  }
  for (const [path, holder] of openElsewhere(disk, unnoted)) found.set(path, holder);
  return found;
}

/** Folder of the processes on Linux; `<pid>/fd/<number>` in it is a file that one has open. */
const PROCESSES = "/proc";

/**
 * Returns the processes of this user that have session files open, by the paths of these, if the system reports that.
 * Agents without process notes may close a file between two writes: a file that no process has open proves nothing.
 */
function openElsewhere(disk: Disk, agents: ReadonlyMap<string, string>): Map<string, Holder> {
  const found = new Map<string, Holder>();
  const wanted = new Map<string, { readonly path: string; readonly info: FileInfo }>();
  for (const path of agents.keys()) {
    const info = getInfo(disk, path);
    if (info?.kind === "file") wanted.set(keyOf(info), { path, info });
  }
  if (wanted.size === 0 || process.platform !== "linux") return found;
  for (const pid of findAllowed(() => disk.names(PROCESSES)) ?? []) {
    if (!/^\d+$/.test(pid) || Number(pid) === process.pid) continue;
    const folder = join(PROCESSES, pid, "fd");
    for (const fd of findAllowed(() => disk.names(folder)) ?? []) {
      const info = getInfo(disk, join(folder, fd));
      const known = info?.kind === "file" ? wanted.get(keyOf(info)) : undefined;
      if (!known) continue;
      const since = new Date(known.info.modified).toISOString();
      found.set(known.path, { pid: Number(pid), client: agents.get(known.path) as string, since });
    }
  }
  return found;
}

function keyOf({ device, inode }: FileInfo): string {
  return `${device}.${inode}`;
}

/** Returns the live processes of the notes in a folder, by the agent's own ids of their sessions. */
function notesIn(disk: Disk, folder: string): Map<string, Holder> {
  const holders = new Map<string, Holder>();
  for (const { name, kind } of findAllowed(() => listFolder(disk, folder)) ?? []) {
    if (kind !== "file" || !name.endsWith(".json")) continue;
    const file = join(folder, name);
    const note = findAllowed(() => noteIn(disk, file));
    if (note) holders.set(note.sessionId, { client: basename(dirname(folder)).replace(/^\./, ""), ...note.holder });
  }
  return holders;
}

function noteIn(disk: Disk, file: string) {
  const bytes = readBeginning(disk, file, LONGEST_NOTE);
  // It may be being written.
  const note = bytes && tryParse(bytes);
  const { pid, sessionId } = (note ?? {}) as { readonly pid?: unknown; readonly sessionId?: unknown };
  if (typeof sessionId !== "string" || !isSameProcess(disk, pid, undefined)) return undefined;
  const since = new Date(getInfo(disk, file)?.modified ?? 0).toISOString();
  return { sessionId, holder: { pid: pid as number, since } };
}
