/** Commits to sessions of a fleet in a database, as their writers make them. */

import type { FleetBatch, FleetEnd, FleetFacts } from "../../../../src/core/ports/fleet.ts";
import { extendEnd } from "../../../../src/modules/fleet/postgres/ends.ts";
import type { SqlFleet } from "./sql-fleet.ts";

const HEADER = Buffer.from('{"type":"session"}');

export const NO_FACTS: FleetFacts = {
  counts: { messages: 0, modified: null, isPlain: true },
  texts: [],
  spendings: [],
};

/** A session as its writer knows it. */
export interface Held {
  readonly id: string;
  epoch: number;
  end: FleetEnd;
  readonly durability: string;
}

/** Has a process take a session. */
export async function taken({ fleet }: Pick<SqlFleet, "fleet">, id: string, above = 0): Promise<Held> {
  const taking = await fleet.take(id, above, HEADER);
  if (taking.kind !== "taken") throw new Error(`not taken: ${JSON.stringify(taking)}`);
  const { epoch, end, durability } = taking;
  return { id, epoch, end, durability };
}

export function batchOf(
  { id, epoch, end }: Omit<Held, "durability">,
  texts: readonly string[],
  facts = NO_FACTS,
): FleetBatch {
  const lines = texts.map((text) => Buffer.from(text));
  const heads = texts.map((_, n) => JSON.stringify([`${end.entries + n}\u0000\ud800`, null, "message", "user"]));
  return { sessionId: id, epoch, before: end, after: extendEnd(end, lines), lines, heads, facts };
}
