/**
 * Packs: stretches of consecutive lines of one session, each a row. What a tree needs of the lines, the spine, is in
 * columns of its own, so that it is read without them; the lines are compressed here, and the database only keeps them.
 */

import { promisify } from "node:util";
import { brotliCompress, brotliDecompress } from "node:zlib";
import { Failure } from "../../../core/failure.ts";
import { concat } from "../../../core/json/json.ts";
import type { FleetEnd } from "../../../core/ports/fleet.ts";
import { LF } from "../../../storage/log/lines.ts";
import { extendEnd } from "./ends.ts";

const compress = promisify(brotliCompress);
const decompress = promisify(brotliDecompress);

/** Approximate bytes of lines in a pack: one line of it is read in 2 ms. */
const PACK_BYTES = 512 << 10;
/** Lines in a pack, at most. */
const PACK_LINES = 4096;
/** Compression quality: 300 MB/s, because a caller waits. */
const QUALITY = 1;
/** Share of their length that lines must lose to be kept compressed. */
const WORTH = 0.05;

/** Numbers of the format's settings; the library loads no names for them. */
const PARAM = { quality: 1, sizeHint: 5 } as const;

const AS_IT_IS = 0;
const BROTLI = 1;

/** The part of a pack that is read without its lines. */
interface RowRange {
  /** Position of its first line. */
  readonly seq: number;
  readonly count: number;
  /** Ends of the lines within the joined bytes. */
  readonly ends: readonly number[];
  /** Heads as JSON, joined by line feeds, which no JSON of ours has. */
  readonly heads: string;
}

/** Lines as a pack has them. */
interface PackedLines {
  readonly codec: number;
  readonly ends: readonly number[];
  readonly lines: Uint8Array;
}

export interface Pack extends RowRange, PackedLines {
  /** The session's end after its last line. */
  readonly end: FleetEnd;
}

/** Returns the ends after the stretches into which lines are cut. */
export function computeStretches(before: FleetEnd, lines: readonly Uint8Array[]): FleetEnd[] {
  const ends: FleetEnd[] = [];
  let end = before;
  for (let first = 0; first < lines.length; ) {
    let past = first + 1;
    for (let bytes = lines[first].length; past < lines.length && past - first < PACK_LINES; past++) {
      bytes += lines[past].length;
      if (bytes > PACK_BYTES) break;
    }
    end = extendEnd(end, lines.slice(first, past));
    ends.push(end);
    first = past;
  }
  return ends;
}

/** Packs lines that follow an end, each up to the end of one of the stretches. */
export async function packLines(
  before: FleetEnd,
  lines: readonly Uint8Array[],
  heads: readonly string[],
  stretches: readonly FleetEnd[],
): Promise<Pack[]> {
  const firstOf = (n: number): number => (n === 0 ? before : stretches[n - 1]).entries;
  return Promise.all(
    stretches.map(async (end, n) => {
      const [from, past] = [firstOf(n) - before.entries, end.entries - before.entries];
      const own = lines.slice(from, past);
      const joined = joinedByFeeds(own);
      const ends: number[] = [];
      for (const line of own) ends.push((ends.length === 0 ? -1 : (ends.at(-1) as number)) + 1 + line.length);
      const row = { seq: firstOf(n), count: own.length, ends, heads: heads.slice(from, past).join("\n") };
      return { ...row, end, ...(await compressed(joined)) };
    }),
  );
}

/** Returns lines as a pack joins them. */
function joinedByFeeds(lines: readonly Uint8Array[]): Uint8Array {
  return concat(lines.flatMap((line, n) => (n === 0 ? [line] : [LF, line])));
}

async function compressed(joined: Uint8Array): Promise<Pick<Pack, "codec" | "lines">> {
  const params = { [PARAM.quality]: QUALITY, [PARAM.sizeHint]: joined.length };
  const small = await compress(joined, { params });
  const isWorth = small.length < joined.length * (1 - WORTH);
  return isWorth ? { codec: BROTLI, lines: small } : { codec: AS_IT_IS, lines: joined };
}

/** Returns the lines of a pack, as parts of one array. Throws storage_failed if they do not match it. */
export async function unpackLines({ codec, ends, lines }: PackedLines): Promise<Uint8Array[]> {
  const length = ends.at(-1) ?? 0;
  if (codec !== BROTLI && codec !== AS_IT_IS)
    throw unreadable(`The fleet has lines in a form (${codec}) that this program does not know. Use a newer one.`);
  const joined = codec === BROTLI ? await decompressed(lines, length) : lines;
  if (joined?.length !== length)
    throw unreadable("Lines of the fleet cannot be unpacked. fleet verify tells which session has them.");
  return ends.map((end, n) => joined.subarray(n === 0 ? 0 : ends[n - 1] + 1, end));
}

async function decompressed(lines: Uint8Array, length: number): Promise<Uint8Array | undefined> {
  try {
    // A pack with a wrong length must not grow without limit.
    return await decompress(lines, { maxOutputLength: Math.max(1, length) });
  } catch {
    return undefined;
  }
}

function unreadable(sentence: string): Failure {
  return new Failure("storage_failed", sentence, { fleet: true }, { retryable: false });
}

/** Returns the heads of a pack's lines, as JSON. */
export function parsePackHeads({ heads }: Pick<RowRange, "heads">): string[] {
  return heads.split("\n");
}

/** Rows and packs of a stretch: $1 tenant, $2 session, from position $3 up to $4. Its rows are RowRange. */
export const ROWS_AND_PACKS = `with s as (select generation from pi_fleet.session where tenant = $1 and id = $2)
  select p.seq, p.count, p.ends, p.heads from s
    join pi_fleet.pack p on p.tenant = $1 and p.session_id = $2 and p.generation = s.generation
    where p.seq < $4 and p.seq + p.count > $3
  union all select e.seq, 1, array[pg_catalog.octet_length(e.line)], e.head from s
    join pi_fleet.entry e on e.tenant = $1 and e.session_id = $2 and e.generation = s.generation
    where e.seq >= $3 and e.seq < $4
  order by seq`;

/**
 * Returns the heads between two positions, from a row with those of consecutive rows and packs. Returns undefined if some
 * are missing.
 */
export function parseHeads(
  { first, past, heads }: Readonly<Record<string, unknown>>,
  from: number,
  to: number,
): readonly string[] | undefined {
  const found = parsePackHeads({ heads: String(heads) });
  if (found.length !== Number(past) - Number(first) || Number(first) > from) return undefined;
  return found.slice(from - Number(first), to - Number(first));
}
