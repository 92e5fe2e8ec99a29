/** The parts of a statement that add the facts of entries for lists and searches. */

import type { FleetDescription, FleetFacts, FleetSpending, FleetText } from "../../../core/ports/fleet.ts";
import { getIdInPath, parseTime } from "../../../core/search/listing.ts";
import { fold } from "../../../core/search/query.ts";
import type { SqlValues } from "./sql-values.ts";

/** Numbers of a spending, in the order of the statement. */
export const SUMS = ["messages", "unpriced", "input", "output", "cache_read", "cache_write", "total", "cost"] as const;

/** The beginning of facts, as JSON, before the working directory. */
const BEFORE_CWD = '{"cwd":';
const CWD_IN = (facts: string): string =>
  `pg_catalog.substring(${facts}, E'^[{]"cwd":("(?:[^"\\\\\\\\]|\\\\\\\\.)*"|null),')`;
/** Facts of a commit with the directory that the session has: its writer may not know yet that it was relocated. */
const FACTS_WHERE_IT_IS = `case when old.cwd is distinct from excluded.cwd
  then coalesce('${BEFORE_CWD}' || ${CWD_IN("old.facts")}
    || pg_catalog.substr(excluded.facts, pg_catalog.length('${BEFORE_CWD}' || ${CWD_IN("excluded.facts")}) + 1), excluded.facts)
  else excluded.facts end`;
const describedPart = (value: string, facts: string, cwd: string): string => `insert into pi_fleet.described as old
      (tenant, session_id, facts, cwd, parent_path, parent_id, created, name_sought, sought)
    select held.tenant, held.id, d.facts, d.cwd, d.parent_path, d.parent_id, d.created, d.name_sought, d.sought
    from held join pg_catalog.json_to_recordset(${value}::json) as d (n int, facts text, cwd text, parent_path text, parent_id text,
      created double precision, name_sought text, sought text) on d.n = held.n
    on conflict (tenant, session_id) do update set facts = ${facts}, cwd = ${cwd},
      parent_path = excluded.parent_path, parent_id = excluded.parent_id, created = excluded.created,
      name_sought = excluded.name_sought, sought = excluded.sought`;

/**
 * Parts that describe lines of sessions; each takes one value, a list as JSON whose rows name a session of `held` by its
 * number there (`n`).
 */
const FACTS = {
  described: (value: string): string => describedPart(value, FACTS_WHERE_IT_IS, "old.cwd"),
  placed: (value: string): string => describedPart(value, "excluded.facts", "excluded.cwd"),
  said: (value: string): string => `insert into pi_fleet.said
      (tenant, session_id, generation, seq, kind, nth, role, at, words)
    select held.tenant, held.id, held.generation, t.seq, t.kind, t.nth, t.role, coalesce(t.at, '-infinity'),
      t.words::tsvector
    from held join pg_catalog.json_to_recordset(${value}::json) as t (n int, seq bigint, kind text, nth int, role text,
      at double precision, words text) on t.n = held.n
    on conflict do nothing`,
  attached: (value: string): string => `insert into pi_fleet.attached (tenant, session_id, generation, sha256)
    select held.tenant, held.id, held.generation, a.sha256
    from held join pg_catalog.json_to_recordset(${value}::json) as a (n int, sha256 text) on a.n = held.n on conflict do nothing`,
  // Ordered, so that two processes never wait for each other.
  words: (value: string): string => `insert into pi_fleet.word (tenant, word)
    select held.tenant, w.word from held join pg_catalog.json_to_recordset(${value}::json) as w (n int, word text) on w.n = held.n
    order by w.word collate "C" on conflict do nothing`,
  // Only words that a removal of texts has marked are locked: all writers add the same words.
  wanted: (value: string): string => `update pi_fleet.word w set unused_since = null
    from held join pg_catalog.json_to_recordset(${value}::json) as u (n int, word text) on u.n = held.n
    where w.tenant = held.tenant and w.word = u.word and w.unused_since is not null`,
  spent: (value: string): string => `insert into pi_fleet.spent as old
      (tenant, session_id, generation, quarter, provider, model, inherited, ${SUMS.join(", ")})
    select held.tenant, held.id, held.generation, s.quarter, s.provider, s.model, s.inherited, ${SUMS.map((name) => `s.${name}`).join(", ")}
    from held join pg_catalog.json_to_recordset(${value}::json) as s (n int, quarter bigint, provider text, model text,
      inherited boolean, ${SUMS.map((name) => `${name} double precision`).join(", ")}) on s.n = held.n
    on conflict (tenant, session_id, generation, quarter, provider, model, inherited)
    do update set ${SUMS.map((name) => `${name} = old.${name} + excluded.${name}`).join(", ")}`,
} as const;

/** Facts of one session as they are sent; `words`: those that the fleet may lack. */
export interface SentFacts extends Partial<Pick<FleetFacts, "texts" | "spendings">> {
  readonly words?: readonly string[];
  /** See toDescriptionRow. That of a commit leaves the session in the directory that it has. */
  readonly described?: object;
  /** The same of a session that gets the directory in it. */
  readonly placed?: object;
  /** Digests of attachments that the lines name. */
  readonly attached?: readonly string[];
}

/** Returns the parts for the facts of the sessions of `held`, in the order of their numbers; a part without rows is missing. */
export function makeFactParts(sent: readonly SentFacts[], values: SqlValues): string[] {
  const rows = {
    described: rowsOf(sent, ({ described }) => (described ? [described] : [])),
    placed: rowsOf(sent, ({ placed }) => (placed ? [placed] : [])),
    said: rowsOf(sent, ({ texts = [] }) => texts.map(saidRow)),
    words: rowsOf(sent, ({ words = [] }) => words.map((word) => ({ word }))),
    spent: rowsOf(sent, ({ spendings = [] }) => spentRows(spendings)),
    attached: rowsOf(sent, ({ attached = [] }) => attached.map((sha256) => ({ sha256 }))),
  };
  return Object.entries(rows).flatMap(([name, all]) => {
    if (all.length === 0) return [];
    const given = values.add(JSON.stringify(all));
    const part = FACTS[name as keyof typeof rows](given);
    return name === "words" ? [part, FACTS.wanted(given)] : [part];
  });
}

/** Returns whether facts have texts or spendings. */
export function isFound({ texts, spendings }: Pick<FleetFacts, "texts" | "spendings">): boolean {
  return texts.length > 0 || spendings.length > 0;
}

/** Returns facts without the values that the database may refuse: unsearchable lines are better than none. */
export function dropSearchFacts<T extends Pick<FleetFacts, "texts" | "spendings">>(facts: T): T {
  return { ...facts, texts: [], spendings: [] };
}

/** A text for a session whose words were left out. No search matches its kind, and it is removed with the others. */
const LEFT_OUT = { position: -1, kind: "", nth: 0, role: "", time: null, words: [], marks: [] };

/** Returns facts without their texts; one row records that texts are missing. */
export function dropWords<T extends Pick<FleetFacts, "texts">>(facts: T): T {
  return facts.texts.length === 0 ? facts : { ...facts, texts: [LEFT_OUT as FleetText] };
}

/** Returns the condition that words of a session were left out, by a row of its texts. */
export function makeWordlessCondition(session: string): string {
  return `exists (select from pi_fleet.said l where l.tenant = ${session}.tenant and l.session_id = ${session}.id
    and l.generation = ${session}.generation and l.seq = ${LEFT_OUT.position})`;
}

function rowsOf(sent: readonly SentFacts[], of: (facts: SentFacts) => readonly object[]): object[] {
  return sent.flatMap((facts, n) => of(facts).map((row) => ({ n, ...row })));
}

/** Bytes of the longest name that a file can have: an index refuses ids of some thousands. */
const LONGEST_NAME = 255;

/** Returns the id of the session at a path; null if no file can have such a name. */
function parentIn(path: string): string | null {
  const id = toStorableText(getIdInPath(path));
  return Buffer.byteLength(id) > LONGEST_NAME ? null : id;
}

/** Returns a description as its part takes it. */
export function toDescriptionRow(id: string, description: FleetDescription): object {
  const { cwd, name, firstMessage, parentSession, timestamp, labels = [] } = description;
  return {
    facts: JSON.stringify(description),
    cwd: toStorableText(cwd),
    parent_path: toStorableText(parentSession),
    parent_id: parentSession ? parentIn(parentSession) : null,
    created: parseTime(timestamp),
    name_sought: name === null ? null : toStorableText(fold(name)),
    sought: toStorableText(fold([`${name ?? ""}\n${firstMessage ?? ""}\n${cwd ?? ""}\n${id}`, ...labels].join("\n"))),
  };
}

/** Parses a stored description; undefined if it is malformed, as in a row that was tampered with. */
export function parseDescription(facts: unknown): FleetDescription | undefined {
  if (typeof facts !== "string") return undefined;
  let value: unknown;
  try {
    value = JSON.parse(facts);
  } catch {
    return undefined;
  }
  if (typeof value !== "object" || value === null) return undefined;
  const { cwd, name, firstMessage, parentSession, timestamp } = value as Partial<FleetDescription>;
  const described = { cwd, name, firstMessage, parentSession, timestamp };
  const isText = (one: unknown): boolean => one === null || typeof one === "string";
  return Object.values(described).every(isText) ? (described as FleetDescription) : undefined;
}

function saidRow({ position, kind, nth, role, time, words, marks }: FleetText): object {
  const all = toStorableText([...words, ...marks].map((word) => `'${word}'`).join(" "));
  return { seq: position, kind, nth, role, at: time, words: all };
}

/** Returns a row for each key: models whose names are equal in a column are merged, because a part changes no row twice. */
function spentRows(spendings: readonly FleetSpending[]): object[] {
  const sums = new Map<string, number[]>();
  for (const { quarter, provider, model, isInherited, numbers } of spendings) {
    const key = JSON.stringify([quarter, toStorableText(provider ?? ""), toStorableText(model ?? ""), isInherited]);
    const sum = sums.get(key);
    sums.set(key, sum ? sum.map((number, n) => number + numbers[n]) : [...numbers]);
  }
  return [...sums].map(([key, numbers]) => {
    const [quarter, provider, model, inherited] = JSON.parse(key);
    return { quarter, provider, model, inherited, ...Object.fromEntries(SUMS.map((name, n) => [name, numbers[n]])) };
  });
}

/** Returns a string as a column of text can hold it: without NUL, and halves of surrogate pairs replaced. */
export function toStorableText<T extends string | null>(text: T): T {
  return (text === null ? null : Buffer.from(text).toString("utf8").replaceAll("\0", " ")) as T;
}
