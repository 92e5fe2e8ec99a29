/**
 * The statement of a commit: lines, and the facts by which their session is found, all or none. It has only the parts
 * that a batch needs, because the server plans it each time.
 */

import type { FleetBatch, FleetDescription, FleetSpending, FleetText } from "../../core/ports/fleet.ts";
import { idInPath, momentOf } from "../../core/search/listing.ts";
import { fold } from "../../core/search/query.ts";
import type { SqlStatement } from "./driver.ts";
import { isServer, WAITS_FOR } from "./server-fact.ts";

const HELD = (isThere: string): string => `update pi_fleet.session
    set entries = $6, bytes = $7, chain = $8, state = case when $9 then state else 1 end,
      lease_until = clock_timestamp() + $10 * interval '1 millisecond', changed_at = clock_timestamp(),
      messages = $15, modified = $16, is_plain = $17, indexed = case when indexed = $4 then $6 else indexed end
    where tenant = $1 and id = $2 and epoch = $3 and holder = $18 and entries = $4 and chain = $5 and state < 2
      and ${isThere}
    returning tenant, id, generation`;

const PUT = `insert into pi_fleet.entry (tenant, session_id, generation, seq, epoch, head, line)
    select held.tenant, held.id, held.generation, $4 + part.n - 1, $3, part.head,
      substring($11::bytea from part.start for part.length)
    from held, unnest($12::int[], $13::int[], $14::text[]) with ordinality as part (start, length, head, n)`;

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

/** Returns the parts for some values, of which the first is the parameter with this number, and the values. */
export function factParts(facts: FactValues, first: number): { parts: string[]; values: unknown[] } {
  const wanted = Object.entries(facts).filter(([, value]) => value !== undefined);
  const part = (name: keyof typeof FACTS, n: number): string => `put_${name} as (${FACTS[name](`$${first + n}`)})`;
  return {
    parts: wanted.flatMap(([name], n) =>
      name === "words" ? [part(name, n), part("wanted", n)] : part(name as keyof typeof FACTS, n),
    ),
    values: wanted.map(([, value]) => value),
  };
}

/** Number of the parameter after those that every commit has. */
const FIRST_FACT = 20;

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
export function appendStatement(batch: FleetBatch, by: Appender, facts: FactValues): SqlStatement {
  const { tenant, lease, holder, server } = by;
  const { sessionId, epoch, before, after, lines, heads, isPart } = batch;
  const { messages, modified, isPlain } = batch.facts.counts;
  const starts: number[] = [];
  let start = 1;
  for (const line of lines) {
    starts.push(start);
    start += line.length;
  }
  const { parts, values } = factParts(facts, FIRST_FACT);
  const held = HELD(server === undefined ? "$19::text is null" : isServer("$19::text"));
  const text = ["held as (", held, "), put as (", PUT, ")", ...parts.map((part) => `, ${part}`)].join("");
  return {
    text: `with ${text} select ${WAITS_FOR} from held`,
    values: [
      ...[tenant, sessionId, epoch, before.entries, Buffer.from(before.chain, "hex")],
      ...[after.entries, after.bytes, Buffer.from(after.chain, "hex"), isPart, lease, Buffer.concat(lines)],
      ...[starts, lines.map(({ length }) => length), heads, messages, modified, isPlain, holder],
      server ?? null,
      ...values,
    ],
    server,
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
export function saidValue(texts: readonly FleetText[]): string | undefined {
  if (texts.length === 0) return undefined;
  return JSON.stringify(
    texts.map(({ position, kind, nth, role, time, words, marks }) => ({
      ...{ seq: position, kind, nth, role, at: time },
      words: storable([...words, ...marks].map((word) => `'${word}'`).join(" ")),
    })),
  );
}

/** Returns spendings as their part takes them; undefined without any. */
export function spentValue(spendings: readonly FleetSpending[]): string | undefined {
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
