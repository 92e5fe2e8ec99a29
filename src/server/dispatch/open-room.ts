/** How many sessions a server keeps open: as many as memory and file handles allow, and always those used last. */

import { totalmem } from "node:os";
import type { Session } from "../../core/session/session.ts";

/** Sessions that any system has memory for, and those that it has handles for, too. */
const ALWAYS = 64;
const FEW = 4;
/** Sessions that no system lacks handles for, so that its limits are not asked for. */
const CALM = 16;
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

/** Limits of what the open sessions of a process take together. */
export interface Limits {
  /** Bytes of memory. */
  readonly bytes: number;
  /** File handles. */
  readonly handles: number;
}

export class OpenRoom {
  readonly lookedAt: number;
  private readonly always: number;
  private readonly ask: () => Limits;
  private limits: Limits | undefined;

  /**
   * `always`: the number of sessions, those used last, that stay open whatever memory they take. `lookedAt`: how many are looked
   * at each time for what others wrote; of those beyond, used longer ago, as many in turn.
   */
  constructor(always = ALWAYS, ask: () => Limits = limitsHere, lookedAt = LOOKED_AT) {
    this.lookedAt = lookedAt;
    this.always = always;
    this.ask = ask;
  }

  /** Whether there may be no room for so many sessions. */
  mayLack(count: number): boolean {
    if (count <= CALM) return false;
    this.limits ??= this.ask();
    return count * SESSION_HANDLES > this.limits.handles;
  }

  /** Returns the sessions that there is no room for. `sessions`: from the one used last on. */
  beyond(sessions: readonly Session[]): ReadonlySet<Session> {
    const found = new Set<Session>();
    if (sessions.length <= Math.min(this.always, CALM)) return found;
    this.limits ??= this.ask();
    let [bytes, handles] = [0, 0];
    for (const [index, session] of sessions.entries()) {
      bytes += SESSION_BYTES + session.log.nodes.count * ENTRY_BYTES;
      handles += SESSION_HANDLES;
      const isTooMuch = index >= this.always && bytes > this.limits.bytes;
      if (isTooMuch || (index >= FEW && handles > this.limits.handles)) found.add(session);
    }
    return found;
  }
}

/** Returns the limits of this process. Asking takes 7 ms. */
function limitsHere(): Limits {
  const limited = process.constrainedMemory?.() ?? 0;
  const memory = limited > 0 ? Math.min(limited, totalmem()) : totalmem();
  // The other half is for connections, the catalog and whatever else is open.
  return { bytes: Math.min(MOST_BYTES, memory / SHARE), handles: mostHandles() / 2 };
}

/** Node's report about a process, which is where it says its limits. */
interface NodeReport {
  /** Whether the names of connected machines are left out, which would be looked up. */
  excludeNetwork?: boolean;
  getReport(): { readonly userLimits?: { readonly open_files?: { readonly soft?: number | string } } };
}

/** Returns the number of files that this process may have open; Node has made it as high as the system lets it be. */
function mostHandles(): number {
  const report = process.report as NodeReport;
  const before = report.excludeNetwork;
  report.excludeNetwork = true;
  const { userLimits } = report.getReport();
  report.excludeNetwork = before;
  const most = Number(userLimits?.open_files?.soft);
  return Number.isFinite(most) ? most : Number.POSITIVE_INFINITY;
}
