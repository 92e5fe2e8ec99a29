/** How the server keeps what is long. Columns are changed only where they are otherwise, and without holding others up. */

import type { SqlStatement } from "./driver.ts";
import type { ServerAnswer } from "./server-fact.ts";

/** A way to the database. */
interface StatementRunner {
  run(statement: SqlStatement): Promise<ServerAnswer>;
}

/**
 * Milliseconds within which a statement that changes or reads tables as a whole, or all rows of a session, is answered:
 * somebody waits for it who looks after the database.
 */
export const BULK_TIMEOUT = 600_000;

/**
 * The beginning of a transaction that changes tables. It waits a second for those who read them: whoever comes after it
 * waits behind it. Said in the transaction itself, it is nothing that a pooler could give to others.
 */
export const SOON = "set local lock_timeout = '1s'";

/** The SQLSTATE of a change that waited that long. */
const IN_USE = "55P03";

/** Returns why a change of tables was not made. */
export function explainUnchanged(answer: Exclude<ServerAnswer, { kind: "done" }>): string {
  if (answer.kind !== "failed" || answer.code !== IN_USE) return answer.reason;
  return "somebody has been using its tables for long, as a dump does; run it again when that is over";
}

/** SQLSTATEs for a catalog of another engine, which lacks a table or column: how it keeps what is long is its own matter. */
const NO_SUCH_CATALOG = new Set(["42P01", "42703"]);

/**
 * Columns that are long: LZ4 takes less than half of the time of the server's own compression, and what comes compressed
 * is not compressed again.
 */
const LONG = [
  { table: "entry", column: "line", set: "compression lz4", as: "compression", is: "l" },
  { table: "pack", column: "heads", set: "compression lz4", as: "compression", is: "l" },
  { table: "pack", column: "ends", set: "compression lz4", as: "compression", is: "l" },
  { table: "pack", column: "lines", set: "storage external", as: "storage", is: "e" },
] as const;

const COLUMNS = `select c.relname as "table", a.attname as "column", a.attcompression::text as compression,
    a.attstorage::text as storage,
    exists (select from pg_settings s where s.name = 'default_toast_compression' and 'lz4' = any(s.enumvals)) as has_lz4
  from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid
  where n.nspname = 'pi_fleet' and c.relname in ('entry', 'pack') and a.attnum > 0`;

/** Has the server keep what is long in the way that costs least. Returns why it does not, where a change was not made. */
export async function setColumnStorage(connections: StatementRunner): Promise<string | undefined> {
  const columns = await connections.run({ text: COLUMNS });
  if (columns.kind === "failed" && NO_SUCH_CATALOG.has(columns.code)) return undefined;
  if (columns.kind !== "done") return columns.reason;
  const wanted = LONG.filter(({ table, column, as, is }) =>
    columns.rows.some(
      (one) =>
        one.table === table && one.column === column && one[as] !== is && (as === "storage" || one.has_lz4 === true),
    ),
  );
  for (const table of new Set(wanted.map((one) => one.table))) {
    const changes = wanted.filter((one) => one.table === table).map(({ column, set }) => `alter ${column} set ${set}`);
    const text = `${SOON}; alter table pi_fleet.${table} ${changes.join(", ")}`;
    const answer = await connections.run({ text, within: BULK_TIMEOUT });
    if (answer.kind !== "done") return explainUnchanged(answer);
  }
  return undefined;
}
