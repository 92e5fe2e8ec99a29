/** Rows: the stamp of a session file when it was read, and its summary. */

import type { Listed } from "../../core/ports/catalog.ts";
import { type CatalogRow, sumOf } from "./database.ts";
import type { FoundStamp } from "./folders.ts";
import { moment, type SessionSummary } from "./summary.ts";

export interface SessionRow {
  readonly stamp: FoundStamp;
  /** Time of the last change of the session, in milliseconds. */
  readonly time: number;
  readonly base: SessionSummary;
  readonly now: SessionSummary;
  readonly size: number;
  /** An id that changes when the file is rewritten, which invalidates its index. */
  readonly life: string;
  /** Whether the file cannot have changed since without a change of its stamp. */
  readonly sure: boolean;
  readonly listed: Listed;
  /** Checksum of its row in the catalog. */
  readonly sum: string;
}

type SessionFacts = Omit<SessionRow, "listed" | "sum">;

export function rowOf(path: string, facts: SessionFacts): SessionRow {
  const row = { ...facts, listed: listedOf(path, facts) };
  return { ...row, sum: sumOf(keptOf(row)) };
}

function listedOf(path: string, { now, size }: SessionFacts): Listed {
  const created = moment(now.timestamp);
  return {
    path,
    id: now.id,
    cwd: now.cwd,
    name: now.name,
    parentSession: now.parentSession,
    created,
    modified: now.activity ?? created,
    messageCount: now.messages,
    firstMessage: now.first,
    sizeBytes: size,
    headerOnly: now.entries === 0,
    archived: false,
  };
}

/** Returns the row as the catalog stores it. */
export function keptOf({ stamp, time, base, now, size, life, sure, listed }: Omit<SessionRow, "sum">): CatalogRow {
  const { path } = listed;
  return {
    path,
    session: storable(now.id),
    cwd: storable(now.cwd),
    timestamp: storable(now.timestamp),
    messages: now.messages,
    // pi_agent_rust compares it with the time of the file in whole milliseconds.
    modified: Math.floor(time),
    size,
    name: storable(now.name),
    record: JSON.stringify({
      // A file that may have changed under the same stamp is stored with a stamp that never matches.
      stamp: sure ? stamp : { ...stamp, changed: -1 },
      time,
      base,
      now: JSON.stringify(base) === JSON.stringify(now) ? undefined : now,
      size,
      life,
    }),
  };
}

/** Returns a text as SQLite would return it; the record has the original. */
function storable<T extends string | null>(text: T): T {
  return (text === null ? null : Buffer.from(text).toString().replaceAll("\0", " ")) as T;
}

/** Parses a row that was stored with this sum; undefined when it is not valid. */
export function readRow(path: string, record: string, sum: string): SessionRow | undefined {
  try {
    const { stamp, time, base, now = base, size, life } = JSON.parse(record);
    // Older servers did not store it.
    if (typeof time !== "number") return undefined;
    const facts = { stamp, time, base, now, size, life, sure: true };
    return { ...facts, listed: listedOf(path, facts), sum };
  } catch {
    return undefined;
  }
}

/** Returns the index state of a row whose texts are all indexed. */
export function stateOf({ life, now, base, size }: SessionRow): string {
  return `${life} ${now.plain ? "p" : "l"} ${base.reach} ${size}`;
}
