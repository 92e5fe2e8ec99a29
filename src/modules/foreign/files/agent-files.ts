/** Finds the session files of other agents, and reads their summaries for the catalog. */

import { basename, extname } from "node:path";
import { toBytes } from "../../../core/json/json.ts";
import type { ListRequest, UnreadFile } from "../../../core/ports/catalog.ts";
import type { Env } from "../../../core/ports/env.ts";
import { type FolderChanges, type ListedFiles, NO_CHANGES } from "../../../storage/catalog/listed-files.ts";
import { EMPTY, getHeaderFacts, type Scan } from "../../../storage/catalog/summary.ts";
import { pause } from "../../../storage/fs/chunked-io.ts";
import type { Disk, FileInfo } from "../../../storage/fs/disk.ts";
import { findAllowed } from "../../../storage/fs/files.ts";
import { KnownFolders } from "../../../storage/fs/known-folders.ts";
import { type FoundStamp, isSameStamp, isYoung, readDiskClock } from "../../../storage/fs/stamps.ts";
import { hashQuickly } from "../read/survey.ts";
import { getDatabaseInfo, listDatabaseSessions } from "./databases.ts";
import { makePathWithin } from "./gathered.ts";
import { type AgentPlace, listFiles, listUnread } from "./places.ts";
import type { ForeignStore } from "./store.ts";

/** Stamps read without a pause. */
const SLICE = 250;

/** The sessions of a database, as they were when it had a stamp. */
interface KnownDatabase {
  readonly info: FileInfo;
  readonly found: Map<string, FoundStamp>;
}

interface AgentFilesOptions {
  readonly disk: Disk;
  readonly env: Pick<Env, "now">;
  readonly places: readonly AgentPlace[];
  readonly store: ForeignStore;
  readonly watchFrom: number | undefined;
}

/** The sessions in the places of agents. */
export class AgentFiles implements ListedFiles {
  readonly isForeign = true;
  private readonly disk: Disk;
  private readonly places: readonly AgentPlace[];
  private readonly store: ForeignStore;
  private known = new Set<string>();
  private readonly folders: KnownFolders;
  private readonly databases = new Map<string, KnownDatabase>();

  constructor({ disk, env, places, store, watchFrom }: AgentFilesOptions) {
    this.disk = disk;
    this.places = places;
    this.store = store;
    this.folders = new KnownFolders(disk, () => env.now(), watchFrom);
  }

  async changes(): Promise<FolderChanges> {
    const { folders } = this;
    if (!(await folders.begin())) return NO_CHANGES;
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
  listUnread({ agents = [] }: Pick<ListRequest, "agents">): UnreadFile[] {
    const places = this.places.filter(({ agent }) => agents.includes(agent));
    return listUnread(this.disk, places, this.folders.list);
  }

  /** The stamps of the sessions within a file change with the file. */
  stampInner(path: string, stamp: FoundStamp, names: readonly string[]): [string, FoundStamp][] {
    return names.map((name) => {
      const within = makePathWithin(path, name);
      return [within, { ...stamp, inode: numberOf(within) }];
    });
  }

  scan(path: string, { size }: FoundStamp): Scan | null {
    const found = this.store.survey(path);
    if (!found) return null;
    const { agent, header, facts, isDamaged, inner } = found;
    const { entries, messages, name, first, activity } = facts;
    const base = {
      ...EMPTY,
      ...getHeaderFacts(header),
      ...{ entries, messages, name, first, activity, agent, inner },
      id: header.id,
      reach: entries,
      plain: false,
      ...(isDamaged ? { damaged: true as const } : {}),
    };
    return { base, now: base, size, grown: false };
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

/** Returns a number in place of a file's inode, for a session without its own file. */
function numberOf(id: string): number {
  return Number.parseInt(hashQuickly(toBytes(id)).slice(0, 12), 16);
}
