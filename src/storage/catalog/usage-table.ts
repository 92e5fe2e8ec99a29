/** The table of the catalog's file that keeps the usage of sessions. */

import type { Statement } from "../fs/sqlite.ts";
import { CatalogDamaged } from "./database-files.ts";
import { hash } from "./summary.ts";

export const USAGE_SCHEMA = `
CREATE TABLE usage(
  file INTEGER PRIMARY KEY,
  state TEXT NOT NULL,
  record TEXT NOT NULL,
  sum TEXT NOT NULL
);
`;

/** The usage of one file: the state of the file that was counted, and the record that restores the counts. */
export interface StoredUsage {
  readonly path: string;
  readonly state: string;
  readonly record: string;
}

/** A row of the table, with the path of its file. */
interface StoredRowOfUsage extends StoredUsage {
  readonly file: number;
  readonly sum: string;
}

export class UsageTable {
  private readonly sql: (text: string) => Statement;

  constructor(sql: (text: string) => Statement) {
    this.sql = sql;
  }

  /** Returns the usage of a file; undefined without a record. Throws CatalogDamaged. */
  of(path: string): StoredUsage | undefined {
    const found = this.sql(`${WITH_PATHS} WHERE f.path = ?`).get(path) as StoredRowOfUsage | undefined;
    return found && checked(found);
  }

  /** Yields the usage of all files, `count` at a time. Throws CatalogDamaged. */
  *all(count: number): Generator<StoredUsage[]> {
    for (let last = -1; ; ) {
      const sql = `${WITH_PATHS} WHERE u.file > ? ORDER BY u.file LIMIT ?`;
      const found = this.sql(sql).all(last, count) as StoredRowOfUsage[];
      if (found.length === 0) return;
      yield found.map(checked);
      last = found[found.length - 1].file;
    }
  }

  /** Stores the usage of a file that has a row. */
  put(usage: StoredUsage): void {
    const { path, state, record } = usage;
    const sql = "INSERT OR REPLACE INTO usage(file, state, record, sum) SELECT id, ?, ?, ? FROM files WHERE path = ?";
    this.sql(sql).run(state, record, sumOf(usage), path);
  }

  drop(file: number): void {
    this.sql("DELETE FROM usage WHERE file = ?").run(file);
  }
}

const WITH_PATHS = "SELECT u.file, u.state, u.record, u.sum, f.path FROM usage u JOIN files f ON f.id = u.file";

/** Returns the checksum of a row, which detects bytes that changed without SQLite. */
function sumOf({ state, record }: StoredUsage): string {
  return hash(`${state}\n${record}`);
}

function checked(found: StoredRowOfUsage): StoredUsage {
  if (found.sum !== sumOf(found)) throw new CatalogDamaged("a row of usage is not as it was written");
  return found;
}
