/**
 * The packing of sessions that nobody has written to for long: rows of lines become packs, which take a quarter of the
 * room. The database itself compares each row with what was packed of it, in the transaction that removes it.
 */

import type { Fleet, FleetEnd } from "../../core/ports/fleet.ts";
import type { ColdSession, FleetKeeper } from "../../core/ports/fleet-keeper.ts";
import { sha256 } from "../v2/frame.ts";
import { endsAt } from "./ends.ts";
import { joinedByFeeds, packed, QUALITY, stretchesOf } from "./pack.ts";

/** Bytes of lines that are held until they are packed. */
const HELD_BYTES = 4 << 20;

interface PackingPlace {
  readonly fleet: Fleet;
  readonly keeper: FleetKeeper;
}

/** The outcome for one session: `damaged`, its lines are not those that were acknowledged; `in_use`, somebody took it. */
interface ColdOutcome {
  readonly outcome: "packed" | "damaged" | "in_use";
  /** Lines that are in packs now, their bytes, and what the packs have of these. */
  readonly lines: number;
  readonly bytes: number;
  readonly packedBytes: number;
}

/** The outcome for a session that is not packed because of its lines. */
export const DAMAGED: ColdOutcome = { outcome: "damaged", lines: 0, bytes: 0, packedBytes: 0 };
/** The outcome for one that has no rows to be packed. */
export const UNTOUCHED: ColdOutcome = { ...DAMAGED, outcome: "packed" };

/** Packs the rows of a session. What was packed before it is interrupted stays packed. */
export async function packSession(place: PackingPlace, session: ColdSession): Promise<ColdOutcome> {
  const { id, end, runs } = session;
  const sums = { lines: 0, bytes: 0, packedBytes: 0 };
  const starts = await endsAt(
    place.fleet,
    id,
    end,
    runs.map(({ from }) => from),
  );
  if (starts === null) return DAMAGED;
  for (const [n, { from, to }] of runs.entries()) {
    let before = starts[n];
    let held: Uint8Array[] = [];
    let bytes = 0;
    const put = async (): Promise<boolean> => {
      if (held.length === 0) return true;
      const stretches = stretchesOf(before, held);
      const first = before.entries;
      const heads = held.map(() => "");
      for (const pack of await packed(before, held, heads, stretches, QUALITY.small)) {
        const own = held.slice(pack.seq - first, pack.seq - first + pack.count);
        const joined = joinedByFeeds(own);
        if (!(await place.keeper.pack(session, pack, sha256(joined)))) return false;
        sums.lines += pack.count;
        sums.bytes += joined.length;
        sums.packedBytes += pack.lines.length;
      }
      before = stretches.at(-1) as FleetEnd;
      [held, bytes] = [[], 0];
      return true;
    };
    for await (const lines of place.fleet.lines(id, from, to))
      for (const line of lines) {
        held.push(line);
        bytes += line.length;
        if (bytes >= HELD_BYTES && !(await put())) return { outcome: "in_use", ...sums };
      }
    if (!(await put())) return { outcome: "in_use", ...sums };
  }
  return { outcome: "packed", ...sums };
}
