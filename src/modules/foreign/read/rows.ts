/**
 * Sessions in tables: the contract between the readers of another agent's database and the descriptions of its tables.
 * A row, or a part of one, is a record, with the text that the agent's export would have; the agent's translator does
 * the rest.
 */

import type { Translator } from "./translator.ts";

/** A row of a table. Values of another type than a column should have count as missing. */
export interface SourceRow {
  /** The number that orders rows. */
  readonly number: number;
  readonly size: number;
  count(column: string): number | undefined;
  text(column: string): string | undefined;
  /** Returns the bytes of a text, or of a blob. */
  bytes(column: string): Uint8Array | undefined;
  value(column: string): null | number | string | Uint8Array;
}

export interface SourceTables {
  /** Returns the names of a table's columns; an empty list for a missing table. */
  columns(table: string): readonly string[];
  /** Yields the rows of a table, in no order with `wanted`: those with this text in a column. */
  rows(table: string, wanted?: { readonly column: string; readonly is: string }): Iterable<SourceRow>;
}

/** A session of a database, as far as a list needs it to see whether it changed. */
export interface StoredSession {
  /** The agent's own id of it. */
  readonly id: string;
  /** Bytes of its rows. */
  readonly size: number;
  /** Time of the last write to one of its rows, in milliseconds; 0 if rows do not have it. */
  readonly changed: number;
}

/** The tables of one agent, and how they are read. */
export interface TableFormat {
  readonly translator: Translator;
  /** True if a database has one session only, which the path of the database means. */
  readonly isOne?: boolean;
  recognises(tables: SourceTables): boolean;
  sessions(tables: SourceTables): StoredSession[];
  has(tables: SourceTables, id: string): boolean;
  /** Returns the records of a session in their order. */
  records(tables: SourceTables, id: string): Uint8Array[];
  /** Returns sentences about the facts that the records of a session leave out. */
  warnings?(tables: SourceTables, id: string): string[];
}

export function hasColumns(tables: SourceTables, table: string, ...columns: readonly string[]): boolean {
  const there = new Set(tables.columns(table));
  return columns.every((column) => there.has(column));
}

/** Returns whether one of these tables has a row with this text in a column. */
export function hasRow(tables: SourceTables, is: string, ...places: readonly (readonly [string, string])[]): boolean {
  return places.some(([table, column]) => {
    for (const _ of tables.rows(table, { column, is })) return true;
    return false;
  });
}

/** The sums of the rows of sessions. */
export class RowSums {
  private readonly sums = new Map<string, { size: number; changed: number }>();

  add(id: string | undefined, { size }: Pick<SourceRow, "size">, changed = 0): void {
    if (id === undefined) return;
    const sum = this.sums.get(id);
    if (!sum) this.sums.set(id, { size, changed });
    else {
      sum.size += size;
      sum.changed = Math.max(sum.changed, changed);
    }
  }

  of(ids: Iterable<string>): StoredSession[] {
    return Array.from(new Set(ids), (id) => ({ id, ...(this.sums.get(id) ?? { size: 0, changed: 0 }) }));
  }
}
