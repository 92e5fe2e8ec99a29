/** The parts of a statement that store packs: sent, copied from another session, or shown. */

import type { FleetEnd } from "../../../core/ports/fleet.ts";
import type { Pack } from "./pack.ts";
import type { SqlValues } from "./sql-values.ts";

/** Returns the generation for the packs of a place: no session ever has it, so that the packs are invisible. */
export function getPlaceGeneration(place: number): number {
  return -place;
}

/** Returns the part that copies packs of another session, to another generation if needed. */
export function makeCopyPart(
  source: string,
  from: FleetEnd,
  after: FleetEnd,
  values: SqlValues,
  generation = "held.generation",
): string {
  return `insert into pi_fleet.pack
      (tenant, session_id, generation, seq, count, first_epoch, epoch, bytes, chain, ends, heads, codec, lines)
    select held.tenant, held.id, ${generation}, p.seq, p.count, held.epoch, held.epoch, p.bytes, p.chain, p.ends, p.heads,
      p.codec, p.lines
    from held join pi_fleet.session s on s.tenant = held.tenant and s.id = ${values.add(source)}
      join pi_fleet.pack p on p.tenant = s.tenant and p.session_id = s.id and p.generation = s.generation
    where p.seq >= ${values.add(from.entries)} and p.seq + p.count <= ${values.add(after.entries)}
    ${generation === "held.generation" ? "" : SENT_AGAIN} returning seq + count as past, count, chain`;
}

/** A part is sent again if its answer was lost, and may be there already. */
const SENT_AGAIN =
  "on conflict (tenant, session_id, generation, seq) do update set epoch = excluded.epoch, first_epoch = excluded.epoch";

/** Returns the part that shows the packs of a place. Their lines stay in place on the server's disk. */
export function makeShowPart(generation: string): string {
  return `update pi_fleet.pack p set generation = held.generation from held
    where p.tenant = held.tenant and p.session_id = held.id and p.generation = ${generation}
    returning p.seq + p.count as past, p.count, p.chain`;
}

/** Returns an expression that makes the statement fail unless exactly the intended packs were stored. */
export function makePacksProof(before: FleetEnd, stretches: readonly FleetEnd[], values: SqlValues): string {
  const after = stretches.at(-1) ?? before;
  const isAll = `(select pg_catalog.sum(count) from put_0) = ${values.add(after.entries - before.entries)}::bigint`;
  const each = `(select count(*) from put_0 join rows from (
      pg_catalog.unnest(${values.add(stretches.map(({ entries }) => entries))}::bigint[]),
      pg_catalog.unnest(${values.add(stretches.map(({ chain }) => chain))}::text[])) as meant (past, chain)
    on meant.past = put_0.past and meant.chain = pg_catalog.encode(put_0.chain, 'hex'))`;
  return `1 / case when ${isAll} and ${each} = ${values.add(stretches.length)} then 1 else 0 end`;
}

/** Returns the part with a row for each pack. */
export function makePackPart(packs: readonly Pack[], values: SqlValues, generation = "held.generation"): string {
  const starts: number[] = [];
  let start = 1;
  for (const { lines } of packs) {
    starts.push(start);
    start += lines.length;
  }
  const bytes = values.add(Buffer.concat(packs.map(({ lines }) => lines)));
  const columns: readonly (readonly [type: string, values: readonly unknown[]])[] = [
    ["int", starts],
    ["int", packs.map(({ lines }) => lines.length)],
    ["bigint", packs.map(({ seq }) => seq)],
    ["int", packs.map(({ count }) => count)],
    ["bigint", packs.map(({ end }) => end.bytes)],
    ["text", packs.map(({ end }) => end.chain)],
    ["text", packs.map(({ ends }) => `{${ends.join(",")}}`)],
    ["text", packs.map(({ heads }) => heads)],
    ["smallint", packs.map(({ codec }) => codec)],
  ];
  return `insert into pi_fleet.pack
      (tenant, session_id, generation, seq, count, first_epoch, epoch, bytes, chain, ends, heads, codec, lines)
    select held.tenant, held.id, ${generation}, p.seq, p.count, held.epoch, held.epoch, p.bytes, pg_catalog.decode(p.chain, 'hex'),
      p.ends::int[], p.heads, p.codec, substring(${bytes}::bytea from p.start for p.length)
    from held, rows from (${columns.map(([type, all]) => `pg_catalog.unnest(${values.add(all)}::${type}[])`).join(", ")})
      as p (start, length, seq, count, bytes, chain, ends, heads, codec)
    ${generation === "held.generation" ? "" : SENT_AGAIN} returning 1`;
}
