/** Finds the session files of other agents, and reads their summaries for the catalog. */

import { type AgentPlace, filesIn } from "../foreign/places.ts";
import type { AgentSessions } from "../foreign/store.ts";
import { pause } from "../fs/chunked-io.ts";
import type { Disk } from "../fs/disk.ts";
import { infoOrNull } from "../fs/files.ts";
import type { FoundStamp } from "../fs/stamps.ts";
import type { FolderChanges } from "./folders.ts";
import { EMPTY, headerFacts, type Scan } from "./summary.ts";

/** Stamps read without a pause. */
const SLICE = 250;

/** The files in the places of agents. Every call looks at all of them: 1,000 stamps take 5 ms. */
export class AgentFiles {
  private readonly disk: Disk;
  private readonly places: readonly AgentPlace[];
  private known = new Set<string>();

  constructor(disk: Disk, places: readonly AgentPlace[]) {
    this.disk = disk;
    this.places = places;
  }

  async changes(): Promise<FolderChanges> {
    const there = new Map<string, FoundStamp>();
    let count = 0;
    for (const path of filesIn(this.disk, this.places)) {
      if (++count % SLICE === 0) await pause();
      const info = infoOrNull(this.disk, path, true);
      if (info?.kind !== "file") continue;
      const { device, inode, size, modified, changed = 0 } = info;
      there.set(path, { device, inode, size, modified, changed });
    }
    const removed = [...this.known].filter((path) => !there.has(path));
    this.known = new Set(there.keys());
    return { there, removed };
  }

  close(): void {}
}

/** Returns the summary of another agent's session; null for a file that is none. */
export function scanForeign({ store }: AgentSessions, path: string, { size }: FoundStamp): Scan | null {
  const found = store.survey(path);
  if (!found) return null;
  const { agent, header, facts } = found;
  const { entries, messages, name, first, activity } = facts;
  const known = { entries, messages, name, first, activity };
  const base = { ...EMPTY, ...headerFacts(header), ...known, id: header.id, reach: entries, plain: false, agent };
  return { base, now: base, size, grown: false };
}
