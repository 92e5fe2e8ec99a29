/**
 * The statement of a commit: lines, and the facts by which their session is found, all or none. It has only the parts
 * that a batch needs, because the server plans it each time.
 */

import type {
  FleetBatch,
  FleetDescription,
  FleetEnd,
  FleetFacts,
  FleetSpending,
  FleetText,
  LateFacts,
} from "../../core/ports/fleet.ts";
import { idInPath, momentOf } from "../../core/search/listing.ts";
import { fold } from "../../core/search/query.ts";
import type { SqlStatement } from "./driver.ts";
import type { Pack } from "./pack.ts";
import { isServer, WAITS_FOR } from "./server-fact.ts";
import { SqlValues } from "./sql-values.ts";

/** Milliseconds for which nobody else adds the facts that a process is adding, after it was heard of. */
export const CLAIM = 30_000;

/** Numbers of a spending, in the order in which they are sent. */
export const SUMS = ["messages", "unpriced", "input", "output", "cache_read", "cache_write", "total", "cost"] as const;

/** Parts that describe a session's lines; each takes one value, and names what it belongs to as `held`. */
export const FACTS = {
  described: (value: string): string => `insert into pi_fleet.described
      (tenant, session_id, facts, cwd, parent_path, parent_id, created, name_sought, sought)
    select held.tenant, held.id, d.facts, d.cwd, d.parent_path, d.parent_id, d.created, d.name_sought, d.sought
    from held, json_to_record(${value}::json) as d (facts text, cwd text, parent_path text, parent_id text,
      created double precision, name_sought text, sought text)
    on conflict (tenant, session_id) do update set facts = excluded.facts, cwd = excluded.cwd,
      parent_path = excluded.parent_path, parent_id = excluded.parent_id, created = excluded.created,
      name_sought = excluded.name_sought, sought = excluded.sought`,
  said: (value: string): string => `insert into pi_fleet.said
      (tenant, session_id, generation, seq, kind, nth, role, at, words)
    select held.tenant, held.id, held.generation, t.seq, t.kind, t.nth, t.role, coalesce(t.at, '-infinity'),
      t.words::tsvector
    from held, json_to_recordset(${value}::json) as t (seq bigint, kind text, nth int, role text,
      at double precision, words text)
    on conflict do nothing`,
  attached: (value: string): string => `insert into pi_fleet.attached (tenant, session_id, generation, sha256)
    select held.tenant, held.id, held.generation, a from held, unnest(${value}::text[]) as a on conflict do nothing`,
  words: (value: string): string => `insert into pi_fleet.word (tenant, word)
    select held.tenant, w from held, unnest(${value}::text[]) as w on conflict do nothing`,
  // Only those that a removal of texts has noted are locked: everybody else writes the same words.
  wanted: (value: string): string => `update pi_fleet.word w set unused_since = null from held
    where w.tenant = held.tenant and w.word = any(${value}::text[]) and w.unused_since is not null`,
  spent: (value: string): string => `insert into pi_fleet.spent as old
      (tenant, session_id, generation, quarter, provider, model, inherited, ${SUMS.join(", ")})
    select held.tenant, held.id, held.generation, s.quarter, s.provider, s.model, s.inherited, ${SUMS.map((name) => `s.${name}`).join(", ")}
    from held, json_to_recordset(${value}::json) as s (quarter bigint, provider text, model text, inherited boolean,
      ${SUMS.map((name) => `${name} double precision`).join(", ")})
    on conflict (tenant, session_id, generation, quarter, provider, model, inherited)
    do update set ${SUMS.map((name) => `${name} = old.${name} + excluded.${name}`).join(", ")}`,
} as const;

/** Facts as the parts take them; a part that a batch does not need is missing. */
export type FactValues = Partial<Record<Exclude<keyof typeof FACTS, "wanted">, unknown>>;

/** Returns the parts for some values. */
export function factParts(facts: FactValues, values: SqlValues): string[] {
  const wanted = Object.entries(facts).filter(([, value]) => value !== undefined);
  return wanted.flatMap(([name, value]) => {
    const given = values.add(value);
    const part = FACTS[name as keyof typeof FACTS](given);
    return name === "words" ? [part, FACTS.wanted(given)] : [part];
  });
}

/** The process that appends. */
export interface Appender {
  readonly tenant: string;
  readonly lease: number;
  /** A promotion may forget a taking, and then another process is given the same epoch. */
  readonly holder: string;
  /** The server on which the session was taken. Behind a pooler the statement itself finds out where it is run. */
  readonly server: string | undefined;
}

/** Returns the statement that appends a batch, if epoch and end are those of the session; a row says that it was done. */
export function appendStatement(
  batch: FleetBatch,
  by: Appender,
  facts: FactValues,
  packs?: readonly Pack[],
): SqlStatement {
  const { before, after } = batch;
  const { messages, modified, isPlain } = batch.facts.counts;
  const values = new SqlValues();
  const entries = values.add(before.entries);
  const epoch = values.add(batch.epoch);
  const lease = leaseFor(by, values);
  const set = [
    `entries = ${values.add(after.entries)}, bytes = ${values.add(after.bytes)}`,
    `chain = ${values.add(Buffer.from(after.chain, "hex"))}`,
    `state = 1, lease_until = ${lease}, changed_at = clock_timestamp()`,
    `messages = ${values.add(messages)}, modified = ${values.add(modified)}, is_plain = ${values.add(isPlain)}`,
    ...(batch.facts.areBehind
      ? []
      : [`indexed = case when indexed = ${entries} then ${values.add(after.entries)} else indexed end`]),
  ];
  const held = `update pi_fleet.session set ${set.join(", ")}
    where ${heldAt(batch, by, { entries, epoch }, values)}
    returning tenant, id, generation`;
  const put =
    batch.place !== undefined
      ? showPart(values.add(placeOf(batch.place)))
      : batch.source !== undefined
        ? copyPart(batch.source, before, after, epoch, values)
        : packs
          ? packPart(packs, epoch, values)
          : entryPart(batch, epoch, entries, values);
  const parts = [put, ...factParts(facts, values)];
  if (batch.facts.areBehind) parts.push(behindPart(by.holder, values));
  const text = parts.map((part, n) => `, put_${n} as (${part})`).join("");
  const isProven = batch.source !== undefined || batch.place !== undefined;
  const proof = isProven ? `, ${packsProof(before, batch.stretches ?? [], values)} as proven` : "";
  return statementOf(`with held as (${held})${text} select ${WAITS_FOR}${proof} from held`, by, values);
}

/** Returns a statement that changes nothing on another server than the one on which its writer took the session. */
export function statementOf(text: string, by: Appender, values: SqlValues): SqlStatement {
  return { text, values: values.all, ...(by.server === undefined ? {} : { server: by.server }) };
}

/** Returns the condition that a session is as its writer knows it: one who lost it, or another server, changes nothing. */
export function heldAt(
  { sessionId, before }: Pick<FleetBatch, "sessionId" | "before">,
  by: Appender,
  { entries, epoch }: { readonly entries: string; readonly epoch: string },
  values: SqlValues,
): string {
  return `tenant = ${values.add(by.tenant)} and id = ${values.add(sessionId)} and epoch = ${epoch}
      and holder = ${values.add(by.holder)} and entries = ${entries}
      and chain = ${values.add(Buffer.from(before.chain, "hex"))} and state < 2
      ${by.server === undefined ? "" : `and ${isServer(`${values.add(by.server)}::text`)}`}`;
}

export function leaseFor(by: Appender, values: SqlValues): string {
  return `clock_timestamp() + ${values.add(by.lease)} * interval '1 millisecond'`;
}

/** Returns the generation that the packs of a place have: none that a session ever has, so that nobody reads them. */
export function placeOf(place: number): number {
  return -place;
}

/** Returns the part that copies packs of another session, to a generation other than that of the held one if need be. */
export function copyPart(
  source: string,
  from: FleetEnd,
  after: FleetEnd,
  epoch: string,
  values: SqlValues,
  generation = "held.generation",
): string {
  return `insert into pi_fleet.pack
      (tenant, session_id, generation, seq, count, first_epoch, epoch, bytes, chain, ends, heads, codec, lines)
    select held.tenant, held.id, ${generation}, p.seq, p.count, ${epoch}, ${epoch}, p.bytes, p.chain, p.ends, p.heads,
      p.codec, p.lines
    from held join pi_fleet.session s on s.tenant = held.tenant and s.id = ${values.add(source)}
      join pi_fleet.pack p on p.tenant = s.tenant and p.session_id = s.id and p.generation = s.generation
    where p.seq >= ${values.add(from.entries)} and p.seq + p.count <= ${values.add(after.entries)}
    ${generation === "held.generation" ? "" : SENT_AGAIN} returning seq + count as past, count, chain`;
}

/** A part whose answer was lost is sent again, and is what is there already. */
const SENT_AGAIN = "on conflict (tenant, session_id, generation, seq) do update set epoch = excluded.epoch";

/** Returns the part that shows the packs of a place. Their lines stay where they are on the server's disk. */
function showPart(generation: string): string {
  return `update pi_fleet.pack p set generation = held.generation from held
    where p.tenant = held.tenant and p.session_id = held.id and p.generation = ${generation}
    returning p.seq + p.count as past, p.count, p.chain`;
}

/** Returns what fails, and the statement with it, unless the packs that were put there are those that are meant. */
export function packsProof(before: FleetEnd, stretches: readonly FleetEnd[], values: SqlValues): string {
  const after = stretches.at(-1) ?? before;
  const isAll = `(select sum(count) from put_0) = ${values.add(after.entries - before.entries)}::bigint`;
  const each = `(select count(*) from put_0 join unnest(${values.add(stretches.map(({ entries }) => entries))}::bigint[],
      ${values.add(stretches.map(({ chain }) => chain))}::text[]) as meant (past, chain)
    on meant.past = put_0.past and meant.chain = encode(put_0.chain, 'hex'))`;
  return `1 / case when ${isAll} and ${each} = ${values.add(stretches.length)} then 1 else 0 end`;
}

/** Returns the part with a row for each line. */
function entryPart({ lines, heads }: FleetBatch, epoch: string, entries: string, values: SqlValues): string {
  const starts: number[] = [];
  let start = 1;
  for (const line of lines) {
    starts.push(start);
    start += line.length;
  }
  const bytes = values.add(Buffer.concat(lines));
  const each = [starts, lines.map(({ length }) => length), heads].map((value) => values.add(value));
  return `insert into pi_fleet.entry (tenant, session_id, generation, seq, epoch, head, line)
    select held.tenant, held.id, held.generation, ${entries} + part.n - 1, ${epoch}, part.head,
      substring(${bytes}::bytea from part.start for part.length)
    from held, unnest(${each[0]}::int[], ${each[1]}::int[], ${each[2]}::text[])
      with ordinality as part (start, length, head, n)`;
}

/** Returns the part with a row for each pack. */
export function packPart(
  packs: readonly Pack[],
  epoch: string,
  values: SqlValues,
  generation = "held.generation",
): string {
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
    select held.tenant, held.id, ${generation}, p.seq, p.count, ${epoch}, ${epoch}, p.bytes, decode(p.chain, 'hex'),
      p.ends::int[], p.heads, p.codec, substring(${bytes}::bytea from p.start for p.length)
    from held, unnest(${columns.map(([type, all]) => `${values.add(all)}::${type}[]`).join(", ")})
      as p (start, length, seq, count, bytes, chain, ends, heads, codec)
    ${generation === "held.generation" ? "" : SENT_AGAIN} returning 1`;
}

/** Returns the part that notes that facts of the held session are missing, which this process is about to add. */
function behindPart(worker: string, values: SqlValues, where = ""): string {
  return `insert into pi_fleet.behind (tenant, session_id, worker, until)
    select held.tenant, held.id, ${values.add(worker)}, clock_timestamp() + ${values.add(CLAIM)} * interval '1 millisecond'
    from held ${where} on conflict (tenant, session_id) do update set worker = excluded.worker, until = excluded.until`;
}

/** Returns the statement that adds late facts, if nobody has added them or taken the session since. */
export function lateStatement(
  late: LateFacts,
  by: Pick<Appender, "tenant" | "holder">,
  facts: FactValues,
): SqlStatement {
  const values = new SqlValues();
  const to = values.add(late.to);
  const held = `update pi_fleet.session set indexed = ${to}
    where tenant = ${values.add(by.tenant)} and id = ${values.add(late.sessionId)} and epoch = ${values.add(late.epoch)}
      and indexed = ${values.add(late.from)} and entries >= ${to} and state < 2
    returning tenant, id, generation, indexed, entries`;
  const done = `delete from pi_fleet.behind b using held
    where b.tenant = held.tenant and b.session_id = held.id and held.indexed = held.entries`;
  const more = behindPart(by.holder, values, "where held.indexed < held.entries");
  const parts = [...factParts(facts, values), done, more];
  const text = parts.map((part, n) => `, put_${n} as (${part})`).join("");
  return { text: `with held as (${held})${text} select ${WAITS_FOR} from held`, values: values.all };
}

/** Returns facts as their parts take them; `words`: those that the fleet may lack. */
export function factValues(
  { texts, spendings }: Pick<FleetFacts, "texts" | "spendings">,
  words: readonly string[],
  described?: string,
): FactValues {
  return {
    described,
    said: saidValue(texts),
    words: words.length === 0 ? undefined : words,
    spent: spentValue(spendings),
  };
}

/** Returns a description as its part takes it. */
export function describedValue(id: string, description: FleetDescription): string {
  const { cwd, name, firstMessage, parentSession, timestamp } = description;
  return JSON.stringify({
    facts: JSON.stringify(description),
    cwd: storable(cwd),
    parent_path: storable(parentSession),
    parent_id: parentSession ? storable(idInPath(parentSession)) : null,
    created: momentOf(timestamp),
    name_sought: name === null ? null : storable(fold(name)),
    sought: storable(fold(`${name ?? ""}\n${firstMessage ?? ""}\n${cwd ?? ""}\n${id}`)),
  });
}

/** Returns texts as their part takes them; undefined without any. */
function saidValue(texts: readonly FleetText[]): string | undefined {
  if (texts.length === 0) return undefined;
  return JSON.stringify(
    texts.map(({ position, kind, nth, role, time, words, marks }) => ({
      ...{ seq: position, kind, nth, role, at: time },
      words: storable([...words, ...marks].map((word) => `'${word}'`).join(" ")),
    })),
  );
}

/** Returns spendings as their part takes them; undefined without any. */
function spentValue(spendings: readonly FleetSpending[]): string | undefined {
  if (spendings.length === 0) return undefined;
  return JSON.stringify(
    spendings.map(({ quarter, provider, model, isInherited, numbers }) => ({
      quarter,
      provider: storable(provider ?? ""),
      model: storable(model ?? ""),
      inherited: isInherited,
      ...Object.fromEntries(SUMS.map((name, n) => [name, numbers[n]])),
    })),
  );
}

/** Returns a string as a column of text can hold it: without NUL, and halves of surrogate pairs replaced. */
export function storable<T extends string | null>(text: T): T {
  return (text === null ? null : Buffer.from(text).toString("utf8").replaceAll("\0", " ")) as T;
}
