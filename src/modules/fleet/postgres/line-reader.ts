/** Reads the lines of a session from the database: those in rows of their own and those in packs. */

import { Failure } from "../../../core/failure.ts";
import type { Connections } from "./connections.ts";
import { AS_BYTES } from "./driver.ts";
import { unpackLines } from "./pack.ts";

/** Bytes of lines that are fetched together, without the last line or pack. */
const FETCH_BYTES = 2 << 20;
/** Rows that are looked at for that, at first and at most. */
const FIRST_FETCH = 64;
const MOST_FETCHED = 8192;
/** Packs that are fetched together, at most. */
const PACKS_AT_ONCE = 4;

/** Returns the bytes of the rows before each one; their lengths are known without them. */
const BEFORE = (length: string): string =>
  `coalesce(pg_catalog.sum(${length}) over (order by seq rows between unbounded preceding and 1 preceding), 0) as before`;

/**
 * The lines from position $3 on and before $4: the packs from the one with the first line on, or the rows before the next
 * pack, of positions before $5. The driver reads results as UTF-8; lines are, packs are not.
 */
const LINES = `with s as (select generation from pi_fleet.session where tenant = $1 and id = $2),
  c as (select p.seq from s cross join lateral (select seq, count from pi_fleet.pack
      where tenant = $1 and session_id = $2 and generation = s.generation and seq <= $3 order by seq desc limit 1) p
    where p.seq + p.count > $3)
  select p.seq, p.seq::text as at, pg_catalog.array_to_string(p.ends, ',') as ends, p.codec::text as codec,
      pg_catalog.encode(p.lines, 'base64') as packed, null as lines, null as count from s cross join c
    cross join lateral (select y.*, ${BEFORE("ends[count]")} from (select * from pi_fleet.pack x
      where x.tenant = $1 and x.session_id = $2 and x.generation = s.generation and x.seq >= c.seq and x.seq < $4
      order by x.seq limit ${PACKS_AT_ONCE}) y) p
    where p.before < ${FETCH_BYTES}
  union all select pg_catalog.min(e.seq), pg_catalog.min(e.seq)::text, null, null, null, pg_catalog.string_agg(line, pg_catalog.decode('0a', 'hex') order by e.seq),
      case when pg_catalog.max(e.seq) - pg_catalog.min(e.seq) + 1 = count(*) then count(*)::text end
    from (select e.seq, e.line, ${BEFORE("pg_catalog.octet_length(e.line)")}
      from s join pi_fleet.entry e on e.tenant = $1 and e.session_id = $2 and e.generation = s.generation
      where e.seq >= $3 and e.seq < least($5::bigint, $4::bigint, (select pg_catalog.min(seq) from pi_fleet.pack
        where tenant = $1 and session_id = $2 and generation = s.generation and seq > $3)) and not exists (select from c)) e
    where e.before < ${FETCH_BYTES}
    having count(*) > 0
  order by seq`;

/** Lines, and the position after the last of them. */
interface LinesPiece {
  readonly lines: readonly Uint8Array[];
  readonly past: number;
}

type ReadRow = Readonly<Record<string, unknown>>;

export class LineReader {
  private readonly connections: Connections;
  private readonly tenant: string;
  private readonly sessionId: string;
  private readonly to: number;
  private size = FIRST_FETCH;

  /** `to`: the position before which it ends. */
  constructor(connections: Connections, tenant: string, sessionId: string, to: number) {
    this.connections = connections;
    this.tenant = tenant;
    this.sessionId = sessionId;
    this.to = to;
  }

  /** Returns the next lines, at least one. Throws storage_failed. */
  async after(from: number): Promise<LinesPiece> {
    const { tenant, sessionId, to } = this;
    const values = [tenant, sessionId, from, to, from + this.size];
    const rows = await this.connections.read({ text: LINES, values, ...AS_BYTES });
    const lines: Uint8Array[] = [];
    for (const row of rows) {
      const own = await this.linesOf(row);
      const first = Number(String(row.at));
      // Lines after a gap need another query.
      if (first > from + lines.length) break;
      for (const line of own.slice(Math.max(0, from - first), to - first)) lines.push(line);
    }
    if (lines.length === 0) throw makeMissingLinesFailure(sessionId);
    return { lines, past: from + lines.length };
  }

  private async linesOf({ ends, codec, packed, lines, count }: ReadRow): Promise<readonly Uint8Array[]> {
    if (packed) {
      const own = String(ends).split(",").map(Number);
      return unpackLines({ ends: own, codec: Number(String(codec)), lines: Buffer.from(String(packed), "base64") });
    }
    if (!count) throw makeMissingLinesFailure(this.sessionId);
    const bytes = lines as Uint8Array;
    const found = split(bytes, Number(String(count)));
    if (found.length !== Number(String(count))) throw makeMissingLinesFailure(this.sessionId);
    const mean = bytes.length / found.length;
    this.size = Math.max(1, Math.min(MOST_FETCHED, Math.round(FETCH_BYTES / Math.max(1, mean))));
    return found;
  }
}

export function makeMissingLinesFailure(sessionId: string): Failure {
  return new Failure(
    "storage_failed",
    `The fleet lacks entries of ${sessionId} that it says it has. fleet verify tells more.`,
    { fleet: true, sessionId },
    { retryable: false },
  );
}

/** Splits joined lines. */
function split(joined: Uint8Array, count: number): Uint8Array[] {
  const lines: Uint8Array[] = [];
  let start = 0;
  while (lines.length < count) {
    const end = joined.indexOf(0x0a, start);
    lines.push(joined.subarray(start, end < 0 ? joined.length : end));
    if (end < 0) break;
    start = end + 1;
  }
  return lines;
}
