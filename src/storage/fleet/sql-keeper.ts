/** The keeping of whole sessions of a fleet in PostgreSQL; one statement a call. */

import type { FleetEnd, FleetFacts } from "../../core/ports/fleet.ts";
import type { FleetKeeper, FleetRow, Kept } from "../../core/ports/fleet-keeper.ts";
import { describedValue, type FactValues, factParts, saidValue, spentValue, storable } from "./append-statement.ts";
import type { Connections } from "./connections.ts";
import { endOf, NOTHING } from "./ends.ts";
import { NOTED_WORDS, SESSION_ROWS } from "./schema.ts";
import { serverColumn } from "./server-fact.ts";

/** Sessions whose rows are looked at together. */
const ROWS_AT_ONCE = 50;
const STATES = ["filling", "there", "deleted"] as const;

/** Changes a session that the caller, $4, has in epoch $3, and names it `held`. */
const HELD = (set: string): string => `update pi_fleet.session set ${set}
  where tenant = $1 and id = $2 and epoch = $3 and holder = $4 and state < 2 returning tenant, id, generation`;
const LET_GO = "epoch = epoch + 1, holder = null, lease_until = null, changed_at = clock_timestamp()";

/** Of such a session only this row is left, and nothing that was in the others. */
const NO_ROWS = `removed_at = clock_timestamp(), header = '', generation = generation + 1, emptied = generation + 1`;

/** Removes the rows of the held session from a table. */
const REMOVED = (table: string): string => `gone_${table} as (delete from pi_fleet.${table} t using held
  where t.tenant = held.tenant and t.session_id = held.id${table === "said" ? " returning t.words" : ""})`;

export class SqlKeeper implements FleetKeeper {
  private readonly connections: Connections;
  private readonly holder: string;
  private readonly tenant: string;

  /** `holder`: the process that takes what it changes. */
  constructor(connections: Connections, holder: string, tenant: string) {
    this.connections = connections;
    this.holder = holder;
    this.tenant = tenant;
  }

  /** Runs a change that begins with `held`. Returns whether it was made. */
  private async change(held: string, parts: readonly string[], values: readonly unknown[]): Promise<boolean> {
    const rest = parts.map((part) => `, ${part}`).join("");
    const rows = await this.connections.read((fact) => ({
      text: `with held as (${held})${rest} select ${serverColumn(fact)} from held`,
      values,
    }));
    return rows.length > 0;
  }

  async keep(sessionId: string, epoch: number, kept: Kept): Promise<boolean> {
    if (await this.keepOnce(sessionId, epoch, kept)) return true;
    // An answer that was lost is asked for again, and then finds what it did: nobody else took the session, and it was let go.
    const [row] = await this.connections.read({
      text: `select state, archived from pi_fleet.session
        where tenant = $1 and id = $2 and epoch = $3 and holder is null`,
      values: [this.tenant, storable(sessionId), epoch + 1],
    });
    if (!row) return false;
    if (kept.as === "deleted" || kept.as === "gone") return row.state === 2;
    return row.state === 1 && row.archived === (kept.as === "there" && kept.archived);
  }

  private keepOnce(sessionId: string, epoch: number, kept: Kept): Promise<boolean> {
    const whose = [this.tenant, storable(sessionId), epoch, this.holder];
    if (kept.as === "there") return this.change(HELD(`archived = $5, ${LET_GO}`), [], [...whose, kept.archived]);
    const deleted = `state = 2, deleted_at = clock_timestamp(), ${LET_GO}`;
    if (kept.as === "deleted") return this.change(HELD(deleted), [], whose);
    if (kept.as === "gone")
      return this.change(
        HELD(`${deleted}, ${NO_ROWS}`),
        [...["described", ...SESSION_ROWS].map(REMOVED), `noted as (${NOTED_WORDS("$1", "gone_said")})`],
        whose,
      );
    const described = describedValue(sessionId, kept.description);
    const { parts, values } = factParts({ described }, 6);
    return this.change(HELD(`header = $5, archived = false, ${LET_GO}`), parts, [
      ...whose,
      Buffer.from(kept.headerLine),
      ...values,
    ]);
  }

  async restore(sessionId: string, archived: boolean): Promise<boolean> {
    const held = `update pi_fleet.session s set state = 1, deleted_at = null, archived = $3, ${LET_GO}
      where tenant = $1 and id = $2 and state = 2 and removed_at is null and (entries = 0 or exists (
        select from pi_fleet.entry e
        where e.tenant = s.tenant and e.session_id = s.id and e.generation = s.generation)) returning id`;
    return this.change(held, [], [this.tenant, storable(sessionId), archived]);
  }

  async removedEnd(sessionId: string): Promise<FleetEnd | null> {
    const [row] = await this.connections.read({
      text: `select entries, bytes, chain from pi_fleet.session
        where tenant = $1 and id = $2 and state = 2 and removed_at is not null`,
      values: [this.tenant, storable(sessionId)],
    });
    return row ? endOf(row) : null;
  }

  async beginAgain(sessionId: string, headerLine: Uint8Array, archived: boolean): Promise<boolean> {
    const held = `update pi_fleet.session set state = 0, deleted_at = null, removed_at = null, archived = $3, header = $4,
        entries = 0, bytes = 0, chain = $5, indexed = 0, messages = 0, ${LET_GO}
      where tenant = $1 and id = $2 and (state = 2 and removed_at is not null or state = 0 and entries = 0 and holder is null)
      returning id`;
    const nothing = Buffer.from(NOTHING.chain, "hex");
    return this.change(held, [], [...[this.tenant, storable(sessionId), archived, Buffer.from(headerLine)], nothing]);
  }

  async *rows(): AsyncIterable<FleetRow> {
    for (let after = ""; ; ) {
      const rows = await this.connections.read({
        text: `select s.id, s.header, s.entries, s.bytes, s.chain, s.state, s.indexed, s.epoch, e.*
          from (select * from pi_fleet.session where tenant = $1 and id collate "C" > $2
            order by id collate "C" limit ${ROWS_AT_ONCE}) s
          cross join lateral (select count(*) as rows, min(seq) as first, max(seq) as last, max(epoch) as highest,
              coalesce(bool_or(epoch < before), false) as falls
            from (select seq, epoch, lag(epoch) over (order by seq) as before from pi_fleet.entry
              where tenant = s.tenant and session_id = s.id and generation = s.generation) x) e
          order by s.id collate "C"`,
        values: [this.tenant, after],
      });
      for (const row of rows) {
        const count = Number(row.rows);
        yield {
          id: String(row.id),
          headerLine: row.header as Uint8Array,
          end: endOf(row),
          state: STATES[Number(row.state)],
          indexed: Number(row.indexed),
          rows: count,
          hasGap: count > 0 && (Number(row.first) !== 0 || Number(row.last) !== count - 1),
          highestEpoch: Number(row.highest ?? 0),
          epochsFall: row.falls === true,
          epoch: Number(row.epoch),
        };
        after = String(row.id);
      }
      if (rows.length < ROWS_AT_ONCE) return;
    }
  }

  forgetFacts(sessionId: string, epoch: number): Promise<boolean> {
    const held = HELD("indexed = 0");
    return this.change(held, ["said", "spent"].map(REMOVED), [this.tenant, storable(sessionId), epoch, this.holder]);
  }

  addFacts(sessionId: string, epoch: number, facts: FleetFacts, indexed: number): Promise<boolean> {
    const { counts, description, texts, spendings } = facts;
    const words = [...new Set(texts.flatMap((text) => text.words))].filter((word) => /^[a-z0-9_]+$/.test(word)).sort();
    const values: FactValues = {
      described: description && describedValue(sessionId, description),
      said: saidValue(texts),
      words: words.length === 0 ? undefined : words,
      spent: spentValue(spendings),
    };
    const sent = factParts(values, 9);
    const held = HELD("messages = $5, modified = $6, is_plain = $7, indexed = $8");
    const { messages, modified, isPlain } = counts;
    const whose = [this.tenant, storable(sessionId), epoch, this.holder];
    return this.change(held, sent.parts, [...whose, messages, modified, isPlain, indexed, ...sent.values]);
  }

  async settle(): Promise<void> {
    const tables = ["session", "entry", "described", "said", "word", "spent"].map((table) => `pi_fleet.${table}`);
    // A role that may not do this has a server that does it by itself a minute later.
    await this.connections.run({ text: `analyze ${tables.join(", ")}` });
  }
}
