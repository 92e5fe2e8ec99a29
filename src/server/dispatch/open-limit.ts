/** Limit of open sessions: the last used ones stay open, within the limits of memory and file handles. */

import { totalmem } from "node:os";
import { Failure } from "../../core/failure.ts";
import type { Session } from "../../core/session/session.ts";

/** Sessions for which any system has memory, and which stay open whatever handles they take. */
const ALWAYS = 64;
const FEW = 2;
/** Sessions for which few systems lack handles, so that the limits are not looked up. */
const CALM = 4;
/** Sessions checked at each poll. */
const LOOKED_AT = 64;
/** Bytes of memory for all sessions: some 1,700 of a few entries, or 400 of a thousand. */
const MOST_BYTES = 512 << 20;
/** Divisor of the machine's memory, for the same limit where there is less. */
const SHARE = 8;
/** Bytes of a session, and of each entry, as measured with 1,000 sessions of 2 entries and 500 of 1,000. */
const SESSION_BYTES = 300_000;
const ENTRY_BYTES = 1000;
/** Handles of a session being written: its files (one, or three on V2), its lock (two), and two sockets for guests. */
const SESSION_HANDLES = 7;
/** Handles that a change opens briefly: folders, the index, the catalog. */
const PASSING_HANDLES = 4;
/** Minimum handles of a server without sessions, with those that it opens briefly. */
const OWN_HANDLES = 32;
/** File limit above which open files are not counted. */
const MANY_FILES = 4096;

/** Limits for all open sessions of a process together. */
interface Limits {
  /** Bytes of memory. */
  readonly bytes: number;
  /** File handles. */
  readonly handles: number;
}

/** Numbers of files that this process has open and may open, where the system reports them. */
interface FileCounts {
  most(): number | undefined;
  count(): number;
}

export class OpenLimit {
  readonly lookedAt: number;
  private readonly always: number;
  private readonly ask: () => Limits;
  private readonly files: FileCounts | undefined;
  private known: Limits | undefined;
  /** Files that this process may open. */
  private most: number | undefined;

  /**
   * `always`: number of last used sessions that stay open whatever memory they take. `lookedAt`: number of sessions
   * checked at each poll for writes by others; of the remaining ones, as many in turn.
   */
  constructor(always = ALWAYS, ask?: () => Limits, lookedAt = LOOKED_AT, files?: FileCounts) {
    this.lookedAt = lookedAt;
    this.always = always;
    this.ask = ask ?? ((): Limits => findLimits(files?.most()));
    this.files = files;
  }

  private get limits(): Limits {
    this.known ??= this.ask();
    return this.known;
  }

  /** Returns whether this many sessions may exceed a limit. */
  mayExceed(count: number): boolean {
    return count > FEW && (count > CALM || this.known !== undefined) && count * SESSION_HANDLES > this.limits.handles;
  }

  /** Returns the sessions over the limit if `more` others are opened. `sessions`: the last used one first. */
  findSurplus(sessions: readonly Session[], more = 0): ReadonlySet<Session> {
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

  /** Throws storage_failed if this process may open too few more files for one more session. */
  requireHandles(): void {
    this.most ??= this.files?.most() ?? Number.POSITIVE_INFINITY;
    const { most } = this;
    if (most > MANY_FILES || (this.files?.count() ?? 0) + SESSION_HANDLES + PASSING_HANDLES <= most) return;
    const sentence = `The system lets this process have ${most} files open, which are too few to work with this session. Nothing was written. Close sessions that you do not need, or start the server with a higher limit (ulimit -n 1024), and try again.`;
    throw new Failure("storage_failed", sentence, { errno: "EMFILE", limit: most });
  }
}

/** Returns the limits of this process. */
function findLimits(most = readHandleLimit()): Limits {
  const limited = process.constrainedMemory?.() ?? 0;
  const memory = limited > 0 ? Math.min(limited, totalmem()) : totalmem();
  // The other half is for connections, the catalog and other files.
  const handles = Math.min(most / 2, most - OWN_HANDLES);
  return { bytes: Math.min(MOST_BYTES, memory / SHARE), handles };
}

/** Node's report about a process, which contains its limits. */
interface NodeReport {
  /** True if to leave out the names of connected machines, which need lookups. */
  excludeNetwork?: boolean;
  getReport(): { readonly userLimits?: { readonly open_files?: { readonly soft?: number | string } } };
}

/** Returns the number of files that this process may open, which Node has raised to the maximum. This takes 7 ms. */
function readHandleLimit(): number {
  const report = process.report as NodeReport;
  const before = report.excludeNetwork;
  report.excludeNetwork = true;
  const { userLimits } = report.getReport();
  report.excludeNetwork = before;
  const most = Number(userLimits?.open_files?.soft);
  return Number.isFinite(most) ? most : Number.POSITIVE_INFINITY;
}
