/** Which sessions other agents have open now, as far as they say it on this machine. */

import { basename, dirname, join, sep } from "node:path";
import { parse } from "../../core/json/json.ts";
import type { Holder } from "../../core/ports/store.ts";
import type { Disk } from "../fs/disk.ts";
import { beginningOf, infoOrNull } from "../fs/files.ts";
import { entriesIn } from "../fs/folders.ts";
import { isSameProcess } from "../fs/processes.ts";
import { type AgentPlace, ifAllowed } from "./places.ts";

/** Bytes of an agent's note about a process, which has a few hundred. */
const LONGEST_NOTE = 1 << 16;

/** Returns the processes that have sessions open, by the paths of these. */
export function liveHolders(disk: Disk, places: readonly AgentPlace[], paths: readonly string[]): Map<string, Holder> {
  const found = new Map<string, Holder>();
  for (const { folder, registry } of places) {
    const within = paths.filter((path) => registry !== undefined && path.startsWith(`${folder}${sep}`));
    if (registry === undefined || within.length === 0) continue;
    const holders = notesIn(disk, registry);
    for (const path of within) {
      // A subagent runs in the process of the session whose folder it is in.
      const names = [basename(path, ".jsonl"), ...path.slice(folder.length).split(/[/\\]/)];
      const holder = names.map((name) => holders.get(name)).find((one) => one !== undefined);
      if (holder) found.set(path, holder);
    }
  }
  return found;
}

/** Returns the live processes of the notes in a folder, by the agent's own ids of their sessions. */
function notesIn(disk: Disk, folder: string): Map<string, Holder> {
  const holders = new Map<string, Holder>();
  for (const { name, kind } of ifAllowed(() => entriesIn(disk, folder)) ?? []) {
    if (kind !== "file" || !name.endsWith(".json")) continue;
    const file = join(folder, name);
    const note = ifAllowed(() => noteIn(disk, file));
    if (note) holders.set(note.sessionId, { client: basename(dirname(folder)).replace(/^\./, ""), ...note.holder });
  }
  return holders;
}

function noteIn(disk: Disk, file: string) {
  const bytes = beginningOf(disk, file, LONGEST_NOTE);
  let note: unknown;
  try {
    note = bytes && parse(bytes);
  } catch {
    // It is being written.
  }
  const { pid, sessionId } = (note ?? {}) as { readonly pid?: unknown; readonly sessionId?: unknown };
  if (typeof sessionId !== "string" || !isSameProcess(disk, pid, undefined)) return undefined;
  const since = new Date(infoOrNull(disk, file)?.modified ?? 0).toISOString();
  return { sessionId, holder: { pid: pid as number, since } };
}
