/** How many sessions a server keeps open: as many as memory and file handles allow, and always those used last. */

import { totalmem } from "node:os";
import { Failure } from "../../core/failure.ts";
import type { Session } from "../../core/session/session.ts";

/** Sessions that any system has memory for, and those that stay open whatever handles they take. */
const ALWAYS = 64;
const FEW = 2;
/** Sessions that few systems lack handles for, so that the limits are not asked for. */
const CALM = 4;
/** Sessions that are looked at each time. */
const LOOKED_AT = 64;
/** Bytes of memory that all may take: some 1,700 sessions of a few entries, or 400 of a thousand. */
const MOST_BYTES = 512 << 20;
/** The part of the memory that they may take where there is less. */
const SHARE = 8;
/** Bytes of a session, and of each entry, as measured with 1,000 sessions of 2 entries and 500 of 1,000. */
const SESSION_BYTES = 300_000;
const ENTRY_BYTES = 1000;
/** Handles of a session that is written to: its files (one, or three on V2), its lock (two), and two sockets by which others join. */
const SESSION_HANDLES = 7;
/** Handles that a change opens for a moment: folders, the index, the catalog. */
const PASSING_HANDLES = 4;
/** Handles of a server without sessions, and of what it opens for a moment, at least. */
const OWN_HANDLES = 32;
/** A limit of files beyond which nobody counts those that are open. */
const MANY_FILES = 4096;

/** Limits of what the open sessions of a process take together. */
interface Limits {
  /** Bytes of memory. */
  readonly bytes: number;
  /** File handles. */
  readonly handles: number;
}

/** Counts of the files that this process has open and may have open, where the system says them. */
interface FileCounts {
  most(): number | undefined;
  count(): number;
}

export class OpenRoom {
  readonly lookedAt: number;
  private readonly always: number;
  private readonly ask: () => Limits;
  private readonly files: FileCounts | undefined;
  private known: Limits | undefined;
  /** Files that this process may have open. */
  private most: number | undefined;

  /**
   * `always`: the number of sessions, those used last, that stay open whatever memory they take. `lookedAt`: how many are looked
   * at each time for what others wrote; of those beyond, used longer ago, as many in turn.
   */
  constructor(always = ALWAYS, ask?: () => Limits, lookedAt = LOOKED_AT, files?: FileCounts) {
    this.lookedAt = lookedAt;
    this.always = always;
    this.ask = ask ?? ((): Limits => limitsHere(files?.most()));
    this.files = files;
  }

  private get limits(): Limits {
    this.known ??= this.ask();
    return this.known;
  }

  /** Whether there may be no room for so many sessions. */
  mayLack(count: number): boolean {
    return count > FEW && (count > CALM || this.known !== undefined) && count * SESSION_HANDLES > this.limits.handles;
  }

  /** Returns the sessions that there is no room for beside `more` others. `sessions`: from the one used last on. */
  beyond(sessions: readonly Session[], more = 0): ReadonlySet<Session> {
    const found = new Set<Session>();
    if (sessions.length + more <= Math.min(this.always, CALM)) return found;
    let [bytes, handles] = [0, more * SESSION_HANDLES];
    for (const [index, session] of sessions.entries()) {
      bytes += SESSION_BYTES + session.log.nodes.count * ENTRY_BYTES;
      handles += SESSION_HANDLES;
      const isTooMuch = index >= this.always && bytes > this.limits.bytes;
      if (isTooMuch || (index + more >= FEW && handles > this.limits.handles)) found.add(session);
    }
    return found;
  }

  /** Throws storage_failed where this process may open too few more files to work with one more session. */
  requireHandles(): void {
    this.most ??= this.files?.most() ?? Number.POSITIVE_INFINITY;
    const { most } = this;
    if (most > MANY_FILES || (this.files?.count() ?? 0) + SESSION_HANDLES + PASSING_HANDLES <= most) return;
    const sentence = `The system lets this process have ${most} files open, which are too few to work with this session. Nothing was written. Close sessions that you do not need, or start the server with a higher limit (ulimit -n 1024), and try again.`;
    throw new Failure("storage_failed", sentence, { errno: "EMFILE", limit: most });
  }
}

/** Returns the limits of this process. */
function limitsHere(most = mostHandles()): Limits {
  const limited = process.constrainedMemory?.() ?? 0;
  const memory = limited > 0 ? Math.min(limited, totalmem()) : totalmem();
  // The other half is for connections, the catalog and whatever else is open.
  const handles = Math.min(most / 2, most - OWN_HANDLES);
  return { bytes: Math.min(MOST_BYTES, memory / SHARE), handles };
}

/** Node's report about a process, which is where it says its limits. */
interface NodeReport {
  /** Whether the names of connected machines are left out, which would be looked up. */
  excludeNetwork?: boolean;
  getReport(): { readonly userLimits?: { readonly open_files?: { readonly soft?: number | string } } };
}

/** Returns the number of files that this process may have open; Node has made it as high as the system lets it be. Asking takes 7 ms. */
function mostHandles(): number {
  const report = process.report as NodeReport;
  const before = report.excludeNetwork;
  report.excludeNetwork = true;
  const { userLimits } = report.getReport();
  report.excludeNetwork = before;
  const most = Number(userLimits?.open_files?.soft);
  return Number.isFinite(most) ? most : Number.POSITIVE_INFINITY;
}
