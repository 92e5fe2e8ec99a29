/** Finds the session files of other agents, and reads their summaries for the catalog. */

import { basename, extname } from "node:path";
import { toBytes } from "../../core/json/json.ts";
import type { ListRequest, UnreadFile } from "../../core/ports/catalog.ts";
import { getDatabaseInfo, listDatabaseSessions } from "../../modules/foreign/files/databases.ts";
import { makePathWithin } from "../../modules/foreign/files/gathered.ts";
import { KnownFolders } from "../../modules/foreign/files/known-folders.ts";
import { type AgentPlace, findAllowed, listFiles, listUnread } from "../../modules/foreign/files/places.ts";
import type { AgentSessions } from "../../modules/foreign/files/store.ts";
import { hashQuickly } from "../../modules/foreign/read/survey.ts";
import { pause } from "../fs/chunked-io.ts";
import type { Disk, FileInfo } from "../fs/disk.ts";
import { type FoundStamp, isSameStamp, isYoung, readDiskClock } from "../fs/stamps.ts";
import type { CatalogOptions } from "./cached-rows.ts";
import type { FolderChanges } from "./folders.ts";
import { EMPTY, getHeaderFacts, type Scan } from "./summary.ts";

/** Stamps read without a pause. */
const SLICE = 250;
const NOTHING: FolderChanges = { there: new Map(), removed: [], isSame: true };

/** The sessions of a database, as they were when it had a stamp. */
interface KnownDatabase {
  readonly info: FileInfo;
  readonly found: Map<string, FoundStamp>;
}

/** The sessions in the places of agents. */
export class AgentFiles {
  private readonly disk: Disk;
  private readonly places: readonly AgentPlace[];
  private known = new Set<string>();
  private readonly folders: KnownFolders;
  private readonly databases = new Map<string, KnownDatabase>();
  /** Files that no session can be read from, by the agents that were asked for, until something changes. */
  private readonly unread = new Map<string, UnreadFile[]>();

  constructor({ disk, env, watchFrom }: CatalogOptions, places: readonly AgentPlace[]) {
    this.disk = disk;
    this.places = places;
    this.folders = new KnownFolders(disk, () => env.now(), watchFrom);
  }

  async changes(): Promise<FolderChanges> {
    const { folders } = this;
    if (!(await folders.begin())) return NOTHING;
    this.unread.clear();
    const there = new Map<string, FoundStamp>();
    let count = 0;
    for (const place of this.places)
      for (const path of listFiles(this.disk, [place], folders.list)) {
        if (++count % SLICE === 0) await pause();
        const stamp = folders.stampOf(path);
        if (!stamp) continue;
        if (place.isDatabase) {
          // A database's file does not have new writes at first.
          folders.noteUnreported();
          for (const [session, of] of this.inDatabase(path)) there.set(session, of);
        } else if (!isMoved(place, path, there)) there.set(path, stamp);
      }
    const removed = [...this.known].filter((path) => !there.has(path));
    this.known = new Set(there.keys());
    return { there, removed };
  }

  /** Returns the databases, tasks and compressed rollouts that no session can be read from. */
  notRead({ agents = [] }: ListRequest): UnreadFile[] {
    const wanted = agents.join();
    const known = this.unread.get(wanted);
    if (known) return known;
    const places = this.places.filter(({ agent }) => agents.includes(agent));
    const found = listUnread(this.disk, places, this.folders.list);
    this.unread.set(wanted, found);
    return found;
  }

  close(): void {
    this.folders.close();
  }

  /** Returns the sessions in a database. It is read again when its stamp, or that of its log files, has changed. */
  private inDatabase(file: string): ReadonlyMap<string, FoundStamp> {
    const { disk, databases } = this;
    const info = findAllowed(() => getDatabaseInfo(disk, file) ?? undefined);
    const known = databases.get(file);
    if (!info || (known && isSameStamp(info, known.info))) return known?.found ?? new Map();
    const found = new Map<string, FoundStamp>();
    for (const [path, { id, size, changed }] of findAllowed(() => listDatabaseSessions(disk, file)) ?? []) {
      found.set(path, { device: info.device, inode: numberOf(id), size, modified: changed, changed });
    }
    // A change within this moment may keep the same stamp.
    if (isYoung(info, readDiskClock(disk))) databases.delete(file);
    else databases.set(file, { info, found });
    return found;
  }
}

/** Returns whether a session of an older version is in a database, too. */
function isMoved({ movedTo = [] }: AgentPlace, path: string, there: ReadonlyMap<string, unknown>): boolean {
  return movedTo.some((file) => there.has(makePathWithin(file, basename(path, extname(path)))));
}

/** Returns the stamps of the sessions within a file, which change with the file. */
export function listInnerStamps(path: string, stamp: FoundStamp, inner: readonly string[]): [string, FoundStamp][] {
  return inner.map((name) => {
    const within = makePathWithin(path, name);
    return [within, { ...stamp, inode: numberOf(within) }];
  });
}

/** Returns a number in place of a file's inode, for a session without its own file. */
function numberOf(id: string): number {
  return Number.parseInt(hashQuickly(toBytes(id)).slice(0, 12), 16);
}

/** Returns the summary of another agent's session; null for a file that is no session. */
export function scanForeign({ store }: AgentSessions, path: string, { size }: FoundStamp): Scan | null {
  const found = store.survey(path);
  if (!found) return null;
  const { agent, header, facts, isDamaged, inner } = found;
  const { entries, messages, name, first, activity } = facts;
  const known = { entries, messages, name, first, activity };
  const base = {
    ...EMPTY,
    ...getHeaderFacts(header),
    ...known,
    id: header.id,
    reach: entries,
    plain: false,
    agent,
    inner,
    ...(isDamaged ? { damaged: true as const } : {}),
  };
  return { base, now: base, size, grown: false };
}
