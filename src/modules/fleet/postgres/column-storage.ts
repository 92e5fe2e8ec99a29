/** How the server stores long columns. Columns are changed only if they differ, and without blocking others. */

import type { SqlStatement } from "./driver.ts";
import type { ServerAnswer } from "./server-fact.ts";

/** A way to the database. */
interface StatementRunner {
  run(statement: SqlStatement): Promise<ServerAnswer>;
}

/**
 * Timeout in milliseconds of statements that change or read whole tables, or all rows of a session: an administrator
 * waits for them.
 */
export const BULK_TIMEOUT = 600_000;

/**
 * The beginning of a transaction that changes tables. It waits at most a second for readers, because later readers
 * queue behind it. The setting is local to the transaction, so that a pooler cannot pass it on.
 */
export const SOON = "set local lock_timeout = '1s'";

/** The SQLSTATE of a change that waited that long. */
const IN_USE = "55P03";

/** Returns why a change of tables was not made. */
export function explainUnchanged(answer: Exclude<ServerAnswer, { kind: "done" }>): string {
  if (answer.kind !== "failed" || answer.code !== IN_USE) return answer.reason;
  return "another process has been using its tables for long, as a dump does; run it again when that is over";
}

/** SQLSTATEs for a catalog of another engine without such a table or column; its storage is left alone. */
const NO_SUCH_CATALOG = new Set(["42P01", "42703"]);

/**
 * Storage of long columns. LZ4 takes less than half of the time of PostgreSQL's own compression. pack.lines may have Brotli
 * already, and is not compressed again.
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

/** Sets the cheapest storage for long columns. Returns the reason if a change was not made. */
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
