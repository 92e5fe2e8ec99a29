/**
 * Queries on whole sessions of a fleet in PostgreSQL; one statement a call, and another one after a lost answer, to find out
 * whether the change was made.
 */

import { Failure } from "../../../core/failure.ts";
import type { FleetEnd, FleetFacts } from "../../../core/ports/fleet.ts";
import type {
  AdminQueries,
  BehindSession,
  CheckedRow,
  DeletedSession,
  FleetRow,
  OnUnreadable,
  SessionDisposition,
} from "../../../core/ports/fleet-admin-queries.ts";
import type { Holder } from "../../../core/ports/lock.ts";
import { toUnknownIdFailure } from "../../../core/search/listing.ts";
import { CLAIM } from "./append-statement.ts";
import { BULK_TIMEOUT, type Connections, toSqlFailure } from "./connections.ts";
import type { SqlStatement } from "./driver.ts";
import { parseEnd } from "./ends.ts";
import {
  makeFactParts,
  makeWordlessCondition,
  parseDescription,
  toDescriptionRow,
  toStorableText,
} from "./fact-parts.ts";
import { makeBeginsAgainCondition, makeNotedWordsStatement, SESSION_ROWS } from "./schema.ts";
import { makeServerColumn } from "./server-fact.ts";
import { HOLDER, makeTimeColumn, parseHolderRow, type SqlRow, SqlValues } from "./sql-values.ts";

/** Sessions that are found together. */
const ROWS_AT_ONCE = 50;
/** Maximum attempts to take away a session whose owner takes it again meanwhile. */
const MOST_TAKINGS = 5;
const STATES = ["filling", "there", "deleted"] as const;

/** Changes a session that the caller, $4, has in epoch $3, and names it `held`. */
const HELD = (set: string, more = ""): string => `update pi_fleet.session set ${set}
  where tenant = $1 and id = $2 and epoch = $3 and holder = $4 and state < 2 ${more}
  returning 0 as n, tenant, id, generation, indexed, entries`;
/** Tables with rows of a session, besides its own. */
const ROWS = [...SESSION_ROWS, "described", "behind"];
/** Returns the name of a part of a change. */
const PART = (n: number): string => `part_${n}`;
/** Ends a lease; a former owner has an old epoch from then on. */
export const LET_GO = "epoch = epoch + 1, holder = null, lease_until = null, changed_at = clock_timestamp()";

/** Only the session's row stays; all other rows are invisible. */
const NO_ROWS = `removed_at = clock_timestamp(), header = '', generation = generation + 1, emptied = generation + 1`;

/** A session that was deleted and has no lines any more, also one that begins again, or one that was begun and got none. */
const WITHOUT_ROWS = `(state = 2 and (removed_at is not null or entries = 0)
  or ${makeBeginsAgainCondition()} or state = 0 and entries = 0)`;

/** Removes the rows of the held session from a table. */
const REMOVED = (table: string): string => `delete from pi_fleet.${table} t using held
  where t.tenant = held.tenant and t.session_id = held.id${table === "said" ? " returning t.words" : ""}`;

/** SQLSTATEs of rows and files that cannot be read. */
const OF_DAMAGE = /^(?:XX|58)/;
/** Finds the next id that lists know, or will, without the rows of sessions. */
const NEXT_KNOWN = `select session_id as id from (select tenant, session_id from pi_fleet.described
    union all select tenant, session_id from pi_fleet.behind) k
  where tenant = $1 and session_id collate "C" > $2 order by session_id collate "C" limit 1`;

/** Columns of a session `s`, as in FleetRow. */
const OWN = `s.id, s.header, s.entries, s.bytes, s.chain, s.indexed, s.epoch, s.removed_at is not null as removed,
  case when ${makeBeginsAgainCondition("s.")} then 2 else s.state end as state`;

/** Finds session $2 with the state of its other rows. */
const CHECKED = `select ${OWN}, e.*,
    exists (select from pi_fleet.behind b where b.tenant = $1 and b.session_id = s.id) as behind,
    (select facts from pi_fleet.described d where d.tenant = $1 and d.session_id = s.id) as facts, ${makeWordlessCondition("s")} as wordless
  from (select * from pi_fleet.session where tenant = $1 and id = $2) s
  cross join lateral (select coalesce(pg_catalog.sum(count), 0) as rows, pg_catalog.min(seq) as first, pg_catalog.max(seq + count) as past,
      pg_catalog.max(epoch) as highest, coalesce(pg_catalog.bool_or(epoch < before), false) as falls,
      coalesce(pg_catalog.bool_or(seq <> past_before), false) as torn
    from (select seq, count, epoch, pg_catalog.lag(epoch) over (order by seq) as before,
        pg_catalog.lag(seq + count) over (order by seq) as past_before
      from (select seq, 1 as count, epoch from pi_fleet.entry
          where tenant = s.tenant and session_id = s.id and generation = s.generation
        union all select seq, count, epoch from pi_fleet.pack
          where tenant = s.tenant and session_id = s.id and generation = s.generation) u) x) e`;

export class SqlAdminQueries implements AdminQueries {
  private readonly connections: Connections;
  private readonly holder: string;
  private readonly tenant: string;
  private readonly lease: number;
  private readonly gathersWords: boolean;

  /**
   * `holder`: the process that takes the sessions it changes. `lease`: milliseconds during which no other process may take
   * them. `gathersWords`: whether it reports words as missing that were left out by choice.
   */
  constructor(connections: Connections, holder: string, tenant: string, lease: number, gathersWords = false) {
    this.connections = connections;
    this.holder = holder;
    this.tenant = tenant;
    this.lease = lease;
    this.gathersWords = gathersWords;
  }

  /** Runs a change that begins with `held`. Returns whether it was made. */
  private async change(held: string, parts: readonly string[], { all }: SqlValues): Promise<boolean> {
    const rest = parts.map((part, n) => `, ${PART(n)} as (${part})`).join("");
    const rows = await this.connections.read((fact) => ({
      text: `with held as (${held})${rest} select ${makeServerColumn(fact)} from held`,
      values: all,
    }));
    return rows.length > 0;
  }

  /** Returns the values that identify a session of this process in an epoch: $1 to $4. */
  private whose(sessionId: string, epoch: number): SqlValues {
    return new SqlValues(this.tenant, toStorableText(sessionId), epoch, this.holder);
  }

  /** Returns whether a session is in the state that a change makes: a change whose answer was lost may have happened. */
  private async is(sessionId: string, condition: string, ...values: readonly unknown[]): Promise<boolean> {
    const text = `select from pi_fleet.session where tenant = $1 and id = $2 and ${condition}`;
    return (
      (await this.connections.read({ text, values: [this.tenant, toStorableText(sessionId), ...values] })).length > 0
    );
  }

  async keep(sessionId: string, epoch: number, kept: SessionDisposition): Promise<boolean> {
    if (await this.keepOnce(sessionId, epoch, kept)) return true;
    // Its rows may have been pruned since.
    const isDeleted = "epoch >= $3 and state = 2";
    if (kept.as === "deleted") return this.is(sessionId, isDeleted, epoch + 1);
    if (kept.as === "gone") return this.is(sessionId, `${isDeleted} and removed_at is not null`, epoch + 1);
    // No other process has taken the session, and it was released.
    const ours = "epoch = $3 and holder is null";
    return this.is(sessionId, `${ours} and state = 1 and archived = $4`, epoch + 1, kept.archived);
  }

  private keepOnce(sessionId: string, epoch: number, kept: SessionDisposition): Promise<boolean> {
    const values = this.whose(sessionId, epoch);
    const deleted = `state = 2, deleted_at = clock_timestamp(), ${LET_GO}`;
    if (kept.as === "deleted") return this.change(HELD(deleted), [], values);
    const noted = makeNotedWordsStatement("$1", PART(ROWS.indexOf("said")));
    if (kept.as === "gone") return this.change(HELD(`${deleted}, ${NO_ROWS}`), [...ROWS.map(REMOVED), noted], values);
    const archived = `archived = ${values.add(kept.archived)}, ${LET_GO}`;
    if (kept.as === "there") return this.change(HELD(archived), [], values);
    const held = HELD(`header = ${values.add(Buffer.from(kept.headerLine))}, ${archived}`);
    return this.change(
      held,
      makeFactParts([{ placed: toDescriptionRow(sessionId, kept.description) }], values),
      values,
    );
  }

  async takeAway(sessionId: string): Promise<Holder | null> {
    const values = [this.tenant, toStorableText(sessionId)];
    /** The owner before an answer was lost. */
    let had: Readonly<Record<string, unknown>> | undefined;
    for (let tries = 0; tries < MOST_TAKINGS; tries++) {
      const [found] = await this.connections.read((fact) => ({
        text: `select ${makeServerColumn(fact)}, epoch, holder, ${HOLDER}, lease_until > clock_timestamp() as is_held
          from pi_fleet.session where tenant = $1 and id = $2 and state < 2`,
        values,
      }));
      const row = found?.is_held === true ? found : undefined;
      // The present owner took it later, and keeps it.
      if (had && had.holder !== row?.holder) return parseHolderRow(had);
      if (!found) throw toUnknownIdFailure(sessionId);
      if (!row) return null;
      // In the epoch that was read: a later owner keeps the session.
      const answer = await this.connections.run({
        text: `update pi_fleet.session set epoch = epoch + 1, holder = null, lease_until = null
          where tenant = $1 and id = $2 and state < 2 and epoch = $3 returning 1`,
        values: [...values, row.epoch],
      });
      if (answer.kind === "failed" || answer.kind === "away") throw toSqlFailure(answer);
      if (answer.kind === "done" && answer.rows.length > 0) return parseHolderRow(row);
      had = answer.kind === "unknown" ? row : undefined;
    }
    const sentence = "Others took the session each time before it could be taken from them. Try again.";
    throw new Failure("storage_failed", sentence, { fleet: true });
  }

  async deleted(most: number): Promise<readonly DeletedSession[]> {
    const rows = await this.connections.read({
      text: `select s.id, s.header, s.bytes, s.messages, ${makeTimeColumn("s.deleted_at")} as deleted_at, d.facts
        from pi_fleet.session s left join pi_fleet.described d on d.tenant = s.tenant and d.session_id = s.id
        where s.tenant = $1 and s.state = 2 and s.removed_at is null and s.entries > 0
        order by s.deleted_at desc limit $2`,
      values: [this.tenant, most],
    });
    return rows.map((row) => {
      const { name = null, firstMessage = null } = parseDescription(row.facts) ?? {};
      const deletedAt = new Date(Number(row.deleted_at)).toISOString();
      const numbers = { bytes: Number(row.bytes), messages: Number(row.messages) };
      return { id: String(row.id), headerLine: row.header as Uint8Array, deletedAt, ...numbers, name, firstMessage };
    });
  }

  async deletedIdsBeginning(beginning: string, most: number): Promise<readonly string[]> {
    const rows = await this.connections.read({
      text: `select id from pi_fleet.session where tenant = $1 and state = 2 and removed_at is null
        and id collate "C" >= $2 and pg_catalog.starts_with(id, $2) order by id collate "C" limit $3`,
      values: [this.tenant, toStorableText(beginning), most],
    });
    return rows.map(({ id }) => String(id));
  }

  async restore(sessionId: string): Promise<boolean> {
    const has = (table: string): string => `exists (select from pi_fleet.${table} e
      where e.tenant = s.tenant and e.session_id = s.id and e.generation = s.generation)`;
    const values = new SqlValues(this.tenant, toStorableText(sessionId));
    const [row] = await this.connections.read({
      text: `select epoch from pi_fleet.session s where tenant = $1 and id = $2 and state = 2 and removed_at is null
        and (${has("entry")} or ${has("pack")})`,
      values: values.all,
    });
    if (!row) return false;
    // In the epoch that was read: after a lost answer, a repetition undoes no later deletion.
    const held = `update pi_fleet.session set state = 1, deleted_at = null, ${LET_GO}
      where tenant = $1 and id = $2 and state = 2 and epoch = ${values.add(row.epoch)} returning id`;
    return (await this.change(held, [], values)) || this.is(sessionId, "state < 2");
  }

  async removedEnd(sessionId: string): Promise<FleetEnd | null> {
    const [row] = await this.connections.read({
      text: `select entries, bytes, chain from pi_fleet.session
        where tenant = $1 and id = $2 and ${WITHOUT_ROWS}`,
      values: [this.tenant, toStorableText(sessionId)],
    });
    return row ? parseEnd(row) : null;
  }

  async beginAgain(sessionId: string, headerLine: Uint8Array, had: FleetEnd): Promise<boolean> {
    const values = new SqlValues(this.tenant, toStorableText(sessionId));
    // Until its lines are here it keeps the end that it had, and when it was deleted; one without lines is begun.
    const held = `update pi_fleet.session set state = 0, deleted_at = case when entries > 0 then deleted_at end,
        removed_at = case when entries > 0 then removed_at end,
        header = ${values.add(Buffer.from(headerLine))}, indexed = 0, messages = 0, epoch = epoch + 1,
        holder = ${values.add(this.holder)}, holder_name = null, holder_host = null,
        lease_until = clock_timestamp() + ${values.add(this.lease)}::float8 * interval '1 millisecond',
        changed_at = clock_timestamp()
      where tenant = $1 and id = $2 and ${WITHOUT_ROWS} and (holder is null or lease_until <= clock_timestamp())
        and entries = ${values.add(had.entries)} and chain = ${values.add(Buffer.from(had.chain, "hex"))}
      returning id`;
    // If the answer was lost, the session has begun, here or by another process.
    return (await this.change(held, [], values)) || this.is(sessionId, "state < 2");
  }

  async *rows(unread?: OnUnreadable): AsyncIterable<FleetRow> {
    for await (const row of this.paged(OWN, "true", unread)) yield ownRow(row);
  }

  async rowsOf(sessionIds: readonly string[]): Promise<FleetRow[]> {
    const text = `select ${OWN} from pi_fleet.session s where tenant = $1 and id = any($2)`;
    return (await this.connections.read({ text, values: [this.tenant, sessionIds] })).map(ownRow);
  }

  /**
   * Yields columns of the sessions `s` that meet a condition, by id; `more`: its values, from $3 on. If a row cannot be
   * read, those before it are read one by one, and reading continues after it, with the next id that lists know. If that can
   * be read, or is missing, the damaged row is of a session that lists do not know.
   */
  private async *paged(columns: string, condition: string, unread?: OnUnreadable, ...more: readonly unknown[]) {
    const found = (which: string, id: string) => ({
      text: `select ${columns} from pi_fleet.session s where tenant = $1 and id collate "C" ${which} and ${condition}
          order by id collate "C" limit ${most}`,
      values: [this.tenant, id, ...more],
    });
    let most = ROWS_AT_ONCE;
    let areOthersReported = false;
    for (let after = ""; ; ) {
      const rows = await (unread ? this.undamaged(found("> $2", after)) : this.connections.read(found("> $2", after)));
      if (rows) {
        yield* rows;
        if (rows.length < most) return;
        after = String(rows[rows.length - 1].id);
        most = Math.min(2 * most, ROWS_AT_ONCE);
      } else if (most > 1) most = 1;
      else {
        const [next] = await this.connections.read({ text: NEXT_KNOWN, values: [this.tenant, after] });
        const known = next ? await this.undamaged(found("= $2", String(next.id))) : [];
        if (!known) unread?.(String(next.id));
        else if (!areOthersReported) {
          areOthersReported = true;
          unread?.(null);
        }
        if (!next) return;
        after = String(next.id);
        yield* known ?? [];
      }
    }
  }

  /** Returns rows; null if some of their data is damaged. */
  private async undamaged(statement: SqlStatement): Promise<readonly SqlRow[] | null> {
    const answer = await this.connections.run(statement);
    if (answer.kind === "done") return answer.rows;
    const isDamaged = answer.kind !== "away" && OF_DAMAGE.test(answer.code ?? "");
    return isDamaged ? null : this.connections.read(statement);
  }

  private async one(text: string, sessionId: string, ...more: readonly unknown[]): Promise<SqlRow | undefined> {
    const values = [this.tenant, toStorableText(sessionId), ...more];
    return (await this.connections.read({ text, values, within: BULK_TIMEOUT }))[0];
  }

  async row(sessionId: string): Promise<FleetRow | null> {
    const row = await this.one(`select ${OWN} from pi_fleet.session s where tenant = $1 and id = $2`, sessionId);
    return row ? ownRow(row) : null;
  }

  async checked(sessionId: string): Promise<CheckedRow | null> {
    const row = await this.one(CHECKED, sessionId);
    const isWordless = row?.wordless === true;
    return row ? { ...checkedRow(row), isWordless, isMissingWords: this.gathersWords && isWordless } : null;
  }

  forgetFacts(sessionId: string, epoch: number): Promise<boolean> {
    return this.change(HELD("indexed = 0"), ["said", "spent"].map(REMOVED), this.whose(sessionId, epoch));
  }

  describe(
    sessionId: string,
    epoch: number,
    { counts, description }: Pick<FleetFacts, "counts" | "description">,
  ): Promise<boolean> {
    const values = this.whose(sessionId, epoch);
    const { messages, modified, isPlain } = counts;
    const set = `messages = ${values.add(messages)}, modified = ${values.add(modified)}, is_plain = ${values.add(isPlain)}`;
    const placed = description && toDescriptionRow(sessionId, description);
    return this.change(HELD(set), makeFactParts([{ placed }], values), values);
  }

  async claimBehind(): Promise<BehindSession | null> {
    const [row] = await this.connections.read({
      text: `update pi_fleet.behind b set worker = $2, until = clock_timestamp() + $3::float8 * interval '1 millisecond'
        from pi_fleet.session s
        where b.tenant = $1 and s.tenant = $1 and s.id = b.session_id and b.session_id = (
          select o.session_id from pi_fleet.behind o join pi_fleet.session t on t.tenant = $1 and t.id = o.session_id
          where o.tenant = $1 and o.until <= clock_timestamp() and t.state = 1 and t.indexed < t.entries
          order by o.until limit 1 for update of o skip locked)
        returning s.id, s.header, s.entries, s.bytes, s.chain, s.epoch, s.indexed, ${makeWordlessCondition("s")} as wordless`,
      values: [this.tenant, this.holder, CLAIM],
    });
    if (!row) return null;
    return {
      id: String(row.id),
      headerLine: row.header as Uint8Array,
      end: parseEnd(row),
      epoch: Number(row.epoch),
      indexed: Number(row.indexed),
      isWordless: row.wordless === true,
    };
  }

  async settle(): Promise<void> {
    const tables = ["session", "word", ...ROWS].map((table) => `pi_fleet.${table}`);
    // A role that may not do this has a server that does it by itself a minute later.
    await this.connections.run({ text: `analyze ${tables.join(", ")}`, within: BULK_TIMEOUT });
  }
}

function ownRow(row: SqlRow): FleetRow {
  return {
    id: String(row.id),
    headerLine: row.header as Uint8Array,
    end: parseEnd(row),
    state: STATES[Number(row.state)],
    isRemoved: row.removed === true,
    indexed: Number(row.indexed),
    epoch: Number(row.epoch),
  };
}

function checkedRow(row: SqlRow): Omit<CheckedRow, "isWordless" | "isMissingWords"> {
  const count = Number(row.rows);
  return {
    ...ownRow(row),
    isBehind: row.behind === true,
    facts: typeof row.facts === "string" ? row.facts : null,
    rows: count,
    hasGap: count > 0 && (Number(row.first) !== 0 || Number(row.past) !== count || row.torn === true),
    highestEpoch: Number(row.highest ?? 0),
    epochsFall: row.falls === true,
  };
}
