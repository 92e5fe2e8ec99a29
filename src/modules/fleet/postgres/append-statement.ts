/**
 * The statement of commits: lines of one or several sessions, and the facts for lists and searches. It is atomic for
 * each session. It has only the parts that are needed, because a server that may not keep it plans it each time. Also the
 * statements of the parts of a long commit: their packs have a generation that no session has, a place of their own, so that
 * no reader asks for them, and the parts of a writer that lost its lease are never shown.
 */

import type { FleetBatch, FleetEnd, FleetPart, LateFacts } from "../../../core/ports/fleet.ts";
import type { SqlStatement } from "./driver.ts";
import { makeFactParts, type SentFacts, toStorableText } from "./fact-parts.ts";
import type { Pack } from "./pack.ts";
import { makeBeginsAgainCondition } from "./schema.ts";
import { makeIsServerCondition, WAITS_FOR } from "./server-fact.ts";
import { SqlValues } from "./sql-values.ts";

/** Milliseconds without a sign of life during which no other process adds the facts that one is adding. */
export const CLAIM = 30_000;

/** The process that appends. */
export interface Appender {
  readonly tenant: string;
  readonly lease: number;
  /** A promotion may forget a lease; another process then gets the same epoch. */
  readonly holder: string;
  /** The server that gave the leases. */
  readonly server: string | undefined;
  /** True if that server runs the statement when it is sent there; behind a pooler the statement checks it. */
  readonly isDirect?: boolean;
}

/** A commit as it is sent. */
export interface SentBatch {
  readonly batch: FleetBatch;
  readonly facts: SentFacts;
  /** Its packed lines, if it is stored in packs: such a commit has a statement of its own. */
  readonly packs?: readonly Pack[];
  /** Length of the session's lease from then on, in milliseconds. */
  readonly lease: number;
}

/**
 * Returns the statement that appends batches of different sessions, each if its epoch and end are the session's. Column
 * `done` of its row has the numbers of the appended ones, separated by commas.
 */
export function makeAppendStatement(sent: readonly SentBatch[], by: Appender): SqlStatement {
  const values = new SqlValues();
  const rows = sent.map((one, n) => sessionRow(one, n));
  const [{ batch, packs }] = sent;
  const put =
    batch.place !== undefined
      ? makeShowPart(values.add(getPlaceGeneration(batch.place)))
      : packs
        ? makePackPart(packs, values)
        : entryPart(sent, values);
  const held = `update pi_fleet.session s set entries = a.past, bytes = a.bytes, chain = pg_catalog.decode(a.chain, 'hex'), state = 1,
      deleted_at = null, removed_at = null, changed_at = clock_timestamp(),
      lease_until = clock_timestamp() + a.lease * interval '1 millisecond', messages = a.messages, modified = a.modified, is_plain = a.plain,
      indexed = case when s.indexed = a.entries and not a.behind then a.past else s.indexed end
    from pg_catalog.json_to_recordset(${values.add(JSON.stringify(rows))}::json) as a (n int, id text, epoch bigint,
      entries bigint, continued text, past bigint, bytes bigint, chain text, messages bigint,
      modified double precision, plain boolean, behind boolean, lease double precision)
    where s.tenant = ${values.add(by.tenant)} and s.id = a.id and s.epoch = a.epoch
      and s.holder = ${values.add(by.holder)} and s.state < 2 ${makeServerCondition(by, values)}
      and ${makeContinuesCondition("a.entries", "pg_catalog.decode(a.continued, 'hex')")}
    returning a.n, a.epoch, a.behind, s.tenant, s.id, s.generation`;
  const facts = makeFactParts(
    sent.map((one) => one.facts),
    values,
  );
  const isBehind = rows.some(({ behind }) => behind);
  const parts = [put, ...facts, ...(isBehind ? [behindPart(by.holder, values, "where held.behind")] : [])];
  const text = parts.map((part, n) => `, put_${n} as (${part})`).join("");
  const proof =
    batch.place === undefined ? "" : `, ${makePacksProof(batch.before, batch.stretches ?? [], values)} as proven`;
  const done = "(select pg_catalog.string_agg(n::text, ',') from held) as done";
  const statement = makeGuardedStatement(
    `with held as (${held})${text} select ${done}, ${WAITS_FOR}${proof}`,
    by,
    values,
  );
  return { ...statement, isRepeated: true };
}

function sessionRow({ batch, lease }: SentBatch, n: number) {
  const { sessionId, epoch, before, after, facts } = batch;
  const { messages, modified, isPlain } = facts.counts;
  return {
    ...{ n, id: toStorableText(sessionId), epoch, entries: before.entries, continued: before.chain },
    ...{ past: after.entries, bytes: after.bytes, chain: after.chain },
    ...{ messages, modified, plain: isPlain, behind: facts.areBehind === true, lease },
  };
}

/** Returns a statement that changes nothing except on the server that gave its writer the lease. */
function makeGuardedStatement(text: string, by: Appender, values: SqlValues): SqlStatement {
  return { text, values: values.all, ...(by.server === undefined ? {} : { server: by.server }) };
}

/** Returns the condition that lines continue a session `s`; one that begins again is empty. */
function makeContinuesCondition(entries: string, chain: string): string {
  return `(case when ${makeBeginsAgainCondition("s.")} then ${entries} = 0 else s.entries = ${entries} and s.chain = ${chain} end)`;
}

/** Returns the condition that the server gave the writer its lease; empty if the statement can reach no other. */
function makeServerCondition({ server, isDirect }: Appender, values: SqlValues): string {
  return server === undefined || isDirect ? "" : `and ${makeIsServerCondition(`${values.add(server)}::text`)}`;
}

function makeLeaseEnd(by: Appender, values: SqlValues): string {
  return `clock_timestamp() + ${values.add(by.lease)}::float8 * interval '1 millisecond'`;
}

/** Returns the part with a row for each line. */
function entryPart(sent: readonly SentBatch[], values: SqlValues): string {
  const rows: object[] = [];
  let start = 1;
  for (const [n, { batch }] of sent.entries())
    for (const [i, { length }] of batch.lines.entries()) {
      rows.push({ n, seq: batch.before.entries + i, start, length, head: batch.heads[i] });
      start += length;
    }
  const bytes = values.add(Buffer.concat(sent.flatMap(({ batch }) => batch.lines)));
  return `insert into pi_fleet.entry (tenant, session_id, generation, seq, epoch, head, line)
    select held.tenant, held.id, held.generation, part.seq, held.epoch, part.head,
      substring(${bytes}::bytea from part.start for part.length)
    from held join pg_catalog.json_to_recordset(${values.add(JSON.stringify(rows))}::json)
      as part (n int, seq bigint, start int, length int, head text) on part.n = held.n`;
}

/** Returns the part that records that facts of the held session are missing, which this process is about to add. */
function behindPart(worker: string, values: SqlValues, where = ""): string {
  return `insert into pi_fleet.behind (tenant, session_id, worker, until)
    select held.tenant, held.id, ${values.add(worker)}, clock_timestamp() + ${values.add(CLAIM)}::float8 * interval '1 millisecond'
    from held ${where} on conflict (tenant, session_id) do update set worker = excluded.worker, until = excluded.until`;
}

/** Returns the statement that adds late facts, unless another process has added them or has taken the session since. */
export function makeLateStatement(
  late: LateFacts,
  by: Pick<Appender, "tenant" | "holder">,
  facts: SentFacts,
): SqlStatement {
  const values = new SqlValues();
  const to = values.add(late.to);
  const held = `update pi_fleet.session set indexed = ${to}
    where tenant = ${values.add(by.tenant)} and id = ${values.add(late.sessionId)} and epoch = ${values.add(late.epoch)}
      and indexed = ${values.add(late.from)} and entries >= ${to} and state < 2
    returning 0 as n, tenant, id, generation, indexed, entries`;
  const done = `delete from pi_fleet.behind b using held
    where b.tenant = held.tenant and b.session_id = held.id and held.indexed = held.entries`;
  const more = behindPart(by.holder, values, "where held.indexed < held.entries");
  const parts = [...makeFactParts([facts], values), done, more];
  const text = parts.map((part, n) => `, put_${n} as (${part})`).join("");
  return { text: `with held as (${held})${text} select ${WAITS_FOR} from held`, values: values.all };
}

// --- parts of a long commit --------------------------------------------------------------------------------------------

/** Returns the statement that stores a part, if epoch and end are the session's; it returns a row if it was done. */
export function makePartStatement(part: FleetPart, by: Appender, packs: readonly Pack[] = []): SqlStatement {
  const values = new SqlValues();
  const held = heldBy(part, by, values);
  const put = makePackPart(packs, values, `${values.add(getPlaceGeneration(part.place))}::int`);
  return makeGuardedStatement(`with held as (${held}), put_0 as (${put}) select ${WAITS_FOR} from held`, by, values);
}

/** Returns the statement that removes parts that earlier, failed commits have left in other places. */
export function makeClearStatement(part: FleetPart, by: Appender): SqlStatement {
  const values = new SqlValues();
  const held = heldBy(part, by, values);
  const gone = `delete from pi_fleet.pack p using held where p.tenant = held.tenant and p.session_id = held.id
    and p.generation < 0 and p.generation <> ${values.add(getPlaceGeneration(part.place))}::int`;
  return makeGuardedStatement(`with held as (${held}), gone as (${gone}) select ${WAITS_FOR} from held`, by, values);
}

/**
 * Returns the query for the session of a part, if epoch and end are those of the writer: after a lost lease, or on another
 * server, nothing is changed. Another process that takes the lease waits until the statement has ended.
 */
function heldBy({ sessionId, epoch, before }: FleetPart, by: Appender, values: SqlValues): string {
  const lease = makeLeaseEnd(by, values);
  return `update pi_fleet.session s set lease_until = ${lease}
    where tenant = ${values.add(by.tenant)} and id = ${values.add(sessionId)} and epoch = ${values.add(epoch)}
      and holder = ${values.add(by.holder)} and state < 2 ${makeServerCondition(by, values)}
      and ${makeContinuesCondition(`${values.add(before.entries)}::bigint`, values.add(Buffer.from(before.chain, "hex")))}
    returning tenant, id, epoch`;
}

// --- packs: sent, or shown ---------------------------------------------------------------------------------------------

/** Returns the generation for the packs of a place: no session ever has it, so that the packs are invisible. */
function getPlaceGeneration(place: number): number {
  return -place;
}

/** A part is sent again if its answer was lost, and may be there already. */
const SENT_AGAIN = "on conflict (tenant, session_id, generation, seq) do update set epoch = excluded.epoch";

/** Returns the part that shows the packs of a place. Their lines stay in place on the server's disk. */
function makeShowPart(generation: string): string {
  return `update pi_fleet.pack p set generation = held.generation from held
    where p.tenant = held.tenant and p.session_id = held.id and p.generation = ${generation}
    returning p.seq + p.count as past, p.count, p.chain`;
}

/** Returns an expression that makes the statement fail unless exactly the intended packs were stored. */
function makePacksProof(before: FleetEnd, stretches: readonly FleetEnd[], values: SqlValues): string {
  const after = stretches.at(-1) ?? before;
  const isAll = `(select pg_catalog.sum(count) from put_0) = ${values.add(after.entries - before.entries)}::bigint`;
  const each = `(select count(*) from put_0 join rows from (
      pg_catalog.unnest(${values.add(stretches.map(({ entries }) => entries))}::bigint[]),
      pg_catalog.unnest(${values.add(stretches.map(({ chain }) => chain))}::text[])) as meant (past, chain)
    on meant.past = put_0.past and meant.chain = pg_catalog.encode(put_0.chain, 'hex'))`;
  return `1 / case when ${isAll} and ${each} = ${values.add(stretches.length)} then 1 else 0 end`;
}

/** Returns the part with a row for each pack. */
function makePackPart(packs: readonly Pack[], values: SqlValues, generation = "held.generation"): string {
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
    ["text", packs.map(({ end }) => end.chain)],
    ["text", packs.map(({ ends }) => `{${ends.join(",")}}`)],
    ["text", packs.map(({ heads }) => heads)],
    ["smallint", packs.map(({ codec }) => codec)],
  ];
  return `insert into pi_fleet.pack
      (tenant, session_id, generation, seq, count, epoch, chain, ends, heads, codec, lines)
    select held.tenant, held.id, ${generation}, p.seq, p.count, held.epoch, pg_catalog.decode(p.chain, 'hex'),
      p.ends::int[], p.heads, p.codec, substring(${bytes}::bytea from p.start for p.length)
    from held, rows from (${columns.map(([type, all]) => `pg_catalog.unnest(${values.add(all)}::${type}[])`).join(", ")})
      as p (start, length, seq, count, chain, ends, heads, codec)
    ${generation === "held.generation" ? "" : SENT_AGAIN} returning 1`;
}
