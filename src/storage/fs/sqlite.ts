/**
 * The available SQLite: the one in Node, else the optional package with the same interface, else none. Only this file
 * imports it; the catalog and the locks call this file.
 */

import { createRequire } from "node:module";

/** The part of `node:sqlite` that we use. */
export interface Database {
  exec(sql: string): void;
  prepare(sql: string): Statement;
  close(): void;
}

export interface Statement {
  all(...values: unknown[]): unknown[];
  get(...values: unknown[]): unknown;
  run(...values: unknown[]): { changes: number | bigint; lastInsertRowid: number | bigint };
}

/** Opens a database. With `readOnly` it must exist. */
export type OpenDatabase = (path: string, readOnly?: boolean) => Database;

/** Loads the available SQLite; undefined without one. */
export function findSqlite(): OpenDatabase | undefined {
  const builtIn = (): unknown => quietly(() => process.getBuiltinModule?.("node:sqlite"));
  for (const load of [builtIn, () => createRequire(import.meta.url)(PACKAGE)])
    try {
      const found = load() as
        | { DatabaseSync?: new (path: string, options?: { readOnly: boolean }) => Database }
        | undefined;
      const { DatabaseSync } = found ?? {};
      if (!DatabaseSync) continue;
      new DatabaseSync(":memory:").close();
      return (path, readOnly) => (readOnly ? new DatabaseSync(path, { readOnly }) : new DatabaseSync(path));
    } catch {
      // Not in this Node, not installed, or not for this machine.
    }
  return undefined;
}

const PACKAGE = "@photostructure/sqlite";

/** Runs `load`, and suppresses the warning on stderr that SQLite is experimental. Other warnings pass. */
function quietly<T>(load: () => T): T {
  const { emitWarning } = process;
  process.emitWarning = ((warning: string | Error, ...rest: unknown[]) => {
    if (!String(warning).includes("SQLite")) (emitWarning as (...all: unknown[]) => void)(warning, ...rest);
  }) as typeof process.emitWarning;
  try {
    return load();
  } finally {
    process.emitWarning = emitWarning;
  }
}
