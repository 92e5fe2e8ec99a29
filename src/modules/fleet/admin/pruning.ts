/**
 * Removal of unneeded rows: sessions that were deleted long ago, sessions that were begun and never finished, and words that
 * no text has. Each step is one transaction of bounded size, and the next prune finishes an interrupted one.
 *
 * A session whose rows are removed gets the next generation first. From then on its rows are invisible and cannot be
 * restored, and the session's row keeps its id taken.
 */

import type { Progress } from "../../../core/ports/catalog.ts";
import type { FoundPrunable, IdleChoice, PrunedFleet, PruningAges } from "../../../core/ports/fleet-database.ts";
import { BULK_TIMEOUT, type Connections } from "../postgres/connections.ts";
import { parseDescription } from "../postgres/fact-parts.ts";
import { makeNotedWordsStatement, SESSION_ROWS } from "../postgres/schema.ts";
import { LET_GO } from "../postgres/sql-admin-queries.ts";
import { makeTimeColumn } from "../postgres/sql-values.ts";

/** Sessions that one transaction marks, or whose rows are looked for together. */
const SESSIONS_AT_ONCE = 100;
/** Rows that one transaction removes. */
const ROWS_AT_ONCE = 1000;
/** Attachments, or sessions with parts of commits, whose long rows one transaction removes. */
const LONG_AT_ONCE = 10;
/** Sessions that a preview names. */
const MOST_NAMED = 50;
/** Hours for which an unused word stays, longer than processes remember words. */
const UNUSED_HOURS = 24;

/** The sessions that statements found, and sums of them. */
interface GoneSessions {
  readonly ids: ReadonlySet<string>;
  readonly entries: number;
  readonly bytes: number;
  readonly named: number;
  readonly archived: number;
}

const NOTHING_GONE: GoneSessions = { ids: new Set(), entries: 0, bytes: 0, named: 0, archived: 0 };

const AGE = (parameter: string): string => `clock_timestamp() - ${parameter}::float8 * interval '1 millisecond'`;
const UNUSED = `unused_since < clock_timestamp() - interval '${UNUSED_HOURS} hours'`;
/** An attachment that a commit is about to name was touched just now. */
const ORPHANED = `b.tenant = $1 and b.touched_at < clock_timestamp() - interval '${UNUSED_HOURS} hours'
  and not exists (select from pi_fleet.attached a where a.tenant = $1 and a.sha256 = b.sha256)`;
/** A session without an owner that has packs in a generation of no session. */
const INTERRUPTED = `s.tenant = $1 and (s.lease_until is null or s.lease_until <= clock_timestamp())
  and s.id in (select session_id from pi_fleet.pack where tenant = $1 and generation < 0)`;
const DELETED = "tenant = $1 and state = 2 and removed_at is null";
const UNFINISHED = `tenant = $1 and state = 0 and deleted_at is null
  and (lease_until is null or lease_until <= clock_timestamp())`;

/** Parameters: $2 age, $3 archived ones, $4 named ones, $5 ids that stay. */
const IDLE = `s.tenant = $1 and s.state = 1 and s.changed_at < ${AGE("$2")} and ($3::boolean or not s.archived)
  and (s.lease_until is null or s.lease_until <= clock_timestamp()) and s.id <> all($5::text[])
  and ($4::boolean or not exists (select from pi_fleet.described d
    where d.tenant = $1 and d.session_id = s.id and d.name_sought is not null))`;

/** Those that were written to first, each with the sums of all. */
const IDLE_FOUND = `select s.id, s.entries, s.bytes, ${makeTimeColumn("s.changed_at")} as changed_at, d.facts, count(*) over () as all_of_them,
    pg_catalog.sum(s.bytes) over () as all_bytes, pg_catalog.count(d.name_sought) over () as all_named,
    count(*) filter (where s.archived) over () as all_archived
  from pi_fleet.session s left join pi_fleet.described d on d.tenant = s.tenant and d.session_id = s.id
  where ${IDLE} order by s.changed_at, s.id limit ${MOST_NAMED}`;

/** A process that takes one at this moment comes first, or finds it deleted. */
const DELETE_IDLE = `with due as (
    select id from pi_fleet.session s where ${IDLE} order by s.changed_at limit ${SESSIONS_AT_ONCE} for update skip locked)
  , held as (
    update pi_fleet.session s set state = 2, deleted_at = clock_timestamp(), ${LET_GO}
    from due where s.tenant = $1 and s.id = due.id returning s.tenant, s.id, s.bytes, s.archived)
  select pg_catalog.array_agg(h.id) as ids, pg_catalog.sum(h.bytes) as bytes, pg_catalog.count(d.name_sought) as named,
    count(*) filter (where h.archived) as archived
  from held h left join pi_fleet.described d on d.tenant = h.tenant and d.session_id = h.id`;

const FOUND = `select
    count(*) filter (where ${DELETED} and deleted_at < ${AGE("$2")}) as sessions,
    coalesce(pg_catalog.sum(entries) filter (where ${DELETED} and deleted_at < ${AGE("$2")}), 0) as entries,
    coalesce(pg_catalog.sum(bytes) filter (where ${DELETED} and deleted_at < ${AGE("$2")}), 0) as bytes,
    count(*) filter (where ${UNFINISHED} and changed_at < ${AGE("$2")}) as unfinished,
    (select count(*) from pi_fleet.session where tenant = $1 and generation > emptied) as halfway,
    (select count(*) from pi_fleet.session s where ${INTERRUPTED}) as interrupted,
    (select count(*) from pi_fleet.word where tenant = $1 and ${UNUSED}) as words,
    (select count(*) from pi_fleet.blob b where ${ORPHANED}) as attachments
  from pi_fleet.session where tenant = $1 and state <> 1`;

const NAMED = `select s.id, s.entries, s.bytes, ${makeTimeColumn("s.deleted_at")} as deleted_at, d.facts
  from pi_fleet.session s left join pi_fleet.described d on d.tenant = s.tenant and d.session_id = s.id
  where s.tenant = $1 and s.state = 2 and s.removed_at is null and s.deleted_at < ${AGE("$2")}
  order by s.deleted_at limit ${MOST_NAMED}`;

/** Rows of earlier generations are invisible, and a session that came back meanwhile is excluded. */
const MARK_DELETED = `with due as (
    select id from pi_fleet.session where ${DELETED} and deleted_at < ${AGE("$2")}
    order by deleted_at limit ${SESSIONS_AT_ONCE} for update skip locked)
  , held as (
    update pi_fleet.session s set removed_at = clock_timestamp(), generation = generation + 1, header = '', epoch = epoch + 1
    from due where s.tenant = $1 and s.id = due.id and s.state = 2 and s.removed_at is null
    returning s.tenant, s.id, s.entries, s.bytes)
  , nameless as (
    delete from pi_fleet.described d using held where d.tenant = held.tenant and d.session_id = held.id)
  , settled as (
    delete from pi_fleet.behind b using held where b.tenant = held.tenant and b.session_id = held.id)
  select pg_catalog.array_agg(id) as ids, pg_catalog.sum(entries) as entries, pg_catalog.sum(bytes) as bytes from held`;

/** A process that continues such a commit is refused, and sends its parts again. */
const DROP_PARTS = `with due as (
    select id from pi_fleet.session s where ${INTERRUPTED} limit ${LONG_AT_ONCE} for update skip locked)
  , gone as (delete from pi_fleet.pack p using due where p.tenant = $1 and p.session_id = due.id and p.generation < 0)
  select count(*) as sessions from due`;

/** A process that continues one begins it again. It has no entries: the first ones make it visible. */
const DROP_UNFINISHED = `with due as (
    select id from pi_fleet.session where ${UNFINISHED} and changed_at < ${AGE("$2")} and entries = 0
      and generation = emptied
    limit ${SESSIONS_AT_ONCE} for update skip locked)
  , gone as (delete from pi_fleet.session s using due where s.tenant = $1 and s.id = due.id returning s.id)
  , nameless as (delete from pi_fleet.described d using gone where d.tenant = $1 and d.session_id = gone.id)
  select count(*) as sessions from gone`;

const HALFWAY = `select id, generation from pi_fleet.session where tenant = $1 and generation > emptied and id > $2
  order by id limit ${SESSIONS_AT_ONCE}`;

const EMPTIED = `update pi_fleet.session set emptied = generation where tenant = $1 and id = $2 and generation = $3`;

/**
 * Returns the statement that removes some rows of a session's earlier generations from a table. The session's row gives its
 * generation: the session may have begun anew since it was found. Such rows never change. Packs below generation 0 are parts
 * of commits, also of one that restores the session just now, and are removed by DROP_PARTS.
 */
function removal(table: (typeof SESSION_ROWS)[number]): string {
  // Words of texts that go may be in no other text.
  const [returned, noted] =
    table === "said" ? ["words", `, noted as (${makeNotedWordsStatement("$1", "gone")})`] : ["1", ""];
  return `with gone as (delete from pi_fleet.${table} where ctid = any(array(
      select ctid from pi_fleet.${table} where tenant = $1 and session_id = $2 and generation >= 0
        and generation < least($3, (select generation from pi_fleet.session where tenant = $1 and id = $2)) limit ${ROWS_AT_ONCE}))
      returning ${returned})
    ${noted} select count(*) as rows from gone`;
}

/**
 * Judges words that may be in no text any more: those that are in one are wanted again. The server looks up each in the
 * index, which is fast for the rare ones that most are.
 */
const CHECK_WORDS = `with batch as (
    select word from pi_fleet.word where tenant = $1 and word > $2 and ${UNUSED} order by word limit ${ROWS_AT_ONCE})
  , judged as materialized (select batch.word, exists (select from pi_fleet.said s
      where s.tenant = $1 and s.words @@ ('''' || batch.word || '''')::tsquery) as used from batch)
  , wanted as (update pi_fleet.word w set unused_since = null from judged j
      where w.tenant = $1 and w.word = j.word and j.used)
  , gone as (delete from pi_fleet.word w using judged j where w.tenant = $1 and w.word = j.word and not j.used
      and w.unused_since is not null returning 1)
  select (select pg_catalog.max(word) from batch) as last, (select count(*) from gone) as rows`;

const DROP_BLOBS = `with due as (select b.sha256 from pi_fleet.blob b where ${ORPHANED} order by b.sha256 limit ${LONG_AT_ONCE} for update skip locked)
  , gone as (delete from pi_fleet.blob b using due where b.tenant = $1 and b.sha256 = due.sha256 returning 1)
  select count(*) as sessions from gone`;

export class FleetPruning {
  private readonly connections: Connections;
  private readonly tenant: string;

  constructor(connections: Connections, tenant: string) {
    this.connections = connections;
    this.tenant = tenant;
  }

  private async row(text: string, ...values: readonly unknown[]): Promise<Readonly<Record<string, unknown>>> {
    const [row] = await this.connections.read({ text, values: [this.tenant, ...values], within: BULK_TIMEOUT });
    return row ?? {};
  }

  /** Returns the removable data, with the sessions that were deleted, or written to, first. Throws storage_failed. */
  async find({ rows, idle }: PruningAges): Promise<FoundPrunable> {
    const found = await this.row(FOUND, rows);
    const named = await this.connections.read({ text: NAMED, values: [this.tenant, rows] });
    const unwritten = idle
      ? await this.connections.read({ text: IDLE_FOUND, values: [this.tenant, ...valuesOf(idle)] })
      : [];
    const [sums = {}] = unwritten;
    return {
      ...{ sessions: Number(found.sessions), entries: Number(found.entries), bytes: Number(found.bytes) },
      ...{ unfinished: Number(found.unfinished), halfway: Number(found.halfway) },
      ...{ interrupted: Number(found.interrupted), words: Number(found.words), attachments: Number(found.attachments) },
      ...{ idle: Number(sums.all_of_them ?? 0), idleBytes: Number(sums.all_bytes ?? 0) },
      ...{ idleNamed: Number(sums.all_named ?? 0), idleArchived: Number(sums.all_archived ?? 0) },
      idleSessions: unwritten.map(({ id, entries, bytes, changed_at, facts }) => ({
        sessionId: String(id),
        name: nameIn(facts),
        changedAt: new Date(Number(changed_at)).toISOString(),
        entries: Number(entries),
        bytes: Number(bytes),
      })),
      named: named.map(({ id, entries, bytes, deleted_at, facts }) => ({
        sessionId: String(id),
        name: nameIn(facts),
        deletedAt: new Date(Number(deleted_at)).toISOString(),
        entries: Number(entries),
        bytes: Number(bytes),
      })),
    };
  }

  /**
   * Removes what `find` reports. Rows whose removal got no answer are not counted. Throws storage_failed; the next prune
   * removes the rest.
   */
  async prune({ rows, idle }: PruningAges, progress?: Progress): Promise<PrunedFleet> {
    const before = await this.find({ rows, idle });
    const marked = await this.gone(MARK_DELETED, rows);
    const interrupted = await this.repeat(DROP_PARTS);
    const [swept, removed] = await this.sweep(before.halfway + marked.ids.size, progress);
    const unfinished = await this.repeat(DROP_UNFINISHED, rows);
    const words = await this.dropWords();
    const attachments = await this.repeat(DROP_BLOBS);
    // At last, so that rows of these do not go at once.
    const deleted = idle ? await this.gone(DELETE_IDLE, ...valuesOf(idle)) : NOTHING_GONE;
    return {
      ...{ sessions: marked.ids.size, entries: marked.entries, bytes: marked.bytes },
      ...{ unfinished, halfway: swept, interrupted, words, attachments, rows: removed },
      ...{ idle: deleted.ids.size, idleBytes: deleted.bytes },
      ...{ idleNamed: deleted.named, idleArchived: deleted.archived },
      named: before.named.filter(({ sessionId }) => marked.ids.has(sessionId)),
      idleSessions: before.idleSessions.filter(({ sessionId }) => deleted.ids.has(sessionId)),
    };
  }

  /** Runs a statement until it finds no more sessions. Returns their ids, and the sums of its results. */
  private async gone(text: string, ...values: readonly unknown[]): Promise<GoneSessions> {
    const { ids, ...sums } = { ...NOTHING_GONE, ids: new Set<string>() };
    for (;;) {
      const row = await this.row(text, ...values);
      if (!row.ids) return { ids, ...sums };
      for (const id of row.ids as string[]) ids.add(id);
      for (const name of Object.keys(sums) as (keyof typeof sums)[]) sums[name] += Number(row[name] ?? 0);
    }
  }

  /** Runs a statement until it finds nothing more. Returns the total. */
  private async repeat(text: string, ...values: readonly unknown[]): Promise<number> {
    for (let all = 0; ; ) {
      const count = Number((await this.row(text, ...values)).sessions);
      all += count;
      if (count === 0) return all;
    }
  }

  /** Removes invisible rows. Returns the numbers of sessions and of rows. */
  private async sweep(expected: number, progress?: Progress): Promise<[number, number]> {
    let [sessions, rows] = [0, 0];
    for (let after = ""; ; ) {
      const found = await this.connections.read({ text: HALFWAY, values: [this.tenant, after] });
      for (const { id, generation } of found) {
        for (const table of SESSION_ROWS)
          for (let count = ROWS_AT_ONCE; count === ROWS_AT_ONCE; rows += count)
            count = Number((await this.row(removal(table), id, generation)).rows);
        await this.connections.read({ text: EMPTIED, values: [this.tenant, id, generation] });
        after = String(id);
        progress?.(++sessions, Math.max(sessions, expected));
      }
      if (found.length === 0) return [sessions, rows];
    }
  }

  private async dropWords(): Promise<number> {
    let rows = 0;
    for (let after: unknown = ""; after !== null; ) {
      const { last, rows: count } = await this.row(CHECK_WORDS, after);
      rows += Number(count);
      after = last ?? null;
    }
    return rows;
  }
}

function valuesOf({ age, archived, named, pendingIds }: IdleChoice): unknown[] {
  return [age, archived, named, pendingIds];
}

function nameIn(facts: unknown): string | null {
  const { name, firstMessage } = parseDescription(facts) ?? {};
  return name ?? firstMessage ?? null;
}
