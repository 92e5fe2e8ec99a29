/** A session file as it is known: what it was like when it was read, and what it told. */

import type { Listed } from "../../core/ports/catalog.ts";
import { type Kept, sumOf } from "./database.ts";
import type { Stamp } from "./folders.ts";
import { type Figures, moment } from "./summary.ts";

export interface Row {
  readonly stamp: Stamp;
  /** When the session was changed last, in milliseconds. */
  readonly time: number;
  readonly base: Figures;
  readonly now: Figures;
  readonly size: number;
  /** Another one when the file was written anew: what is indexed of it counts no more. */
  readonly life: string;
  /** Nothing can have changed it since without changing its stamp. */
  readonly sure: boolean;
  readonly listed: Listed;
  /** Of what is kept of it. */
  readonly sum: string;
}

type Facts = Omit<Row, "listed" | "sum">;

export function rowOf(path: string, facts: Facts): Row {
  const row = { ...facts, listed: listedOf(path, facts) };
  return { ...row, sum: sumOf(keptOf(row)) };
}

function listedOf(path: string, { now, size }: Facts): Listed {
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

/** The row as the catalog keeps it. */
export function keptOf({ stamp, time, base, now, size, life, sure, listed }: Omit<Row, "sum">): Kept {
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
      // What may have changed under the same stamp is not kept as if it were sure.
      stamp: sure ? stamp : { ...stamp, changed: -1 },
      time,
      base,
      now: JSON.stringify(base) === JSON.stringify(now) ? undefined : now,
      size,
      life,
    }),
  };
}

/** A text as it comes back from SQLite; the record has it as it is. */
function storable<T extends string | null>(text: T): T {
  return (text === null ? null : Buffer.from(text).toString().replaceAll("\0", " ")) as T;
}

/** The row that was kept with this sum; undefined when it cannot be understood. */
export function readRow(path: string, record: string, sum: string): Row | undefined {
  try {
    const { stamp, time, base, now = base, size, life } = JSON.parse(record);
    // A server of before did not keep it.
    if (typeof time !== "number") return undefined;
    const facts = { stamp, time, base, now, size, life, sure: true };
    return { ...facts, listed: listedOf(path, facts), sum };
  } catch {
    return undefined;
  }
}

/** How the index of a row's texts is called when it is complete. */
export function stateOf({ life, now, base, size }: Row): string {
  return `${life} ${now.plain ? "p" : "l"} ${base.reach} ${size}`;
}
