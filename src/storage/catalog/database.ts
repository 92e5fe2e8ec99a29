/**
 * The catalog's SQLite file: a cache of the summaries and texts of session files. Everything in it is derived from
 * them, so a damaged catalog is deleted, and a missing one costs only time.
 */

import { readClock } from "../fs/clock.ts";
import type { Disk } from "../fs/disk.ts";
import { getInfo, isNameTaken, useAndClose } from "../fs/files.ts";
import type { Database, OpenDatabase, Statement } from "../fs/sqlite.ts";
import {
  CatalogDamaged,
  getDatabasePath,
  getTurnPath,
  listNumbers,
  mayBeOurs,
  removeDatabase,
} from "./database-files.ts";
import { computeChecksum, type RowTexts } from "./session-row.ts";
import { TEXT_SCHEMA, type TextKind, TextTable } from "./text-table.ts";
import { USAGE_SCHEMA, UsageTable } from "./usage-table.ts";

/** Version of the tables below, and of how sessions are read into them. A file of a newer version is left alone. */
export const CATALOG_SCHEMA_VERSION = 8;
/** Milliseconds to wait for a lock of another process. The wait blocks this process, so it is short, and repeated. */
const BUSY_MILLISECONDS = 20;
/** Milliseconds without a write of the process whose turn it is, after which others build, too: a person may have stopped it. */
const STALLED = 60_000;

const SCHEMA = `
CREATE TABLE files(
  id INTEGER PRIMARY KEY,
  path TEXT NOT NULL UNIQUE,
  head TEXT NOT NULL,
  record TEXT NOT NULL,
  sum INTEGER NOT NULL,
  talk TEXT NOT NULL DEFAULT '',
  tools TEXT NOT NULL DEFAULT '',
  calls TEXT NOT NULL DEFAULT ''
);
CREATE VIEW sessions AS
  SELECT path, head ->> 0 AS id, coalesce(head ->> 1, '') AS cwd, coalesce(head ->> 2, '') AS timestamp,
    head ->> 3 AS message_count, head ->> 4 AS last_modified_ms, head ->> 5 AS size_bytes, head ->> 6 AS name
  FROM files;${TEXT_SCHEMA}${USAGE_SCHEMA}PRAGMA user_version = ${CATALOG_SCHEMA_VERSION};
`;

/** A row as it is stored. */
export interface StoredRow extends Indexed, RowTexts {}

/** The index states of a file's texts, and the number of the file. */
export interface Indexed extends Readonly<Record<TextKind, string>> {
  readonly id: number;
  readonly path: string;
  readonly sum: number;
}
const INDEXED = "SELECT id, path, sum, talk, tools, calls FROM files";
class OtherVersion extends Error {}

export class CatalogFile {
  private readonly open: OpenDatabase;
  private readonly disk: Disk;
  private readonly db: Database;
  private readonly statements = new Map<string, Statement>();
  readonly usage = new UsageTable((text) => this.sql(text));
  private readonly path: string;
  private readonly inode: number;
  private version = -1;
  /** Undefined while this process does not build. */
  private turn: Database | undefined;
  /** The last version that was seen while another process builds, and when it was seen first. */
  private theirs = { version: -1, since: 0 };
  readonly texts = new TextTable((text) => this.sql(text));

  /** Opens the current file, or creates one. Throws the errors of SQLite and the disk. */
  static open(open: OpenDatabase, disk: Disk, folder: string, name: string): CatalogFile {
    disk.makeFolder(folder);
    const numbers = listNumbers(disk, folder, name).sort((a, b) => b - a);
    const damaged: number[] = [];
    for (const [i, number] of numbers.entries()) {
      const path = getDatabasePath(folder, name, number);
      // A file of a newer version belongs to a newer server.
      if (!mayBeOurs(disk, path, CATALOG_SCHEMA_VERSION)) continue;
      try {
        const file = new CatalogFile(open, disk, path);
        for (const older of numbers.slice(i + 1)) {
          const left = getDatabasePath(folder, name, older);
          if (mayBeOurs(disk, left, CATALOG_SCHEMA_VERSION) && isOutdated(open, left)) removeDatabase(disk, left);
        }
        return file;
      } catch (error) {
        // Locked for too long, or no room: this is temporary and no reason to rebuild.
        if (isPassing(error)) throw error;
        if (!(error instanceof OtherVersion)) damaged.push(number);
      }
    }
    const path = getDatabasePath(folder, name, (numbers[0] ?? -1) + 1);
    createEmpty(disk, path);
    const made = new CatalogFile(open, disk, path);
    for (const number of damaged) removeDatabase(disk, getDatabasePath(folder, name, number));
    return made;
  }

  private constructor(open: OpenDatabase, disk: Disk, path: string) {
    this.open = open;
    this.disk = disk;
    this.path = path;
    this.inode = disk.info(path).inode;
    this.db = open(path);
    try {
      this.db.exec(`PRAGMA busy_timeout = ${BUSY_MILLISECONDS}; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
        PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF; PRAGMA cache_size = -16384;
        PRAGMA wal_autocheckpoint = 4000`);
      if (versionOf(this.db) === 0)
        this.write(() => {
          // Another process may have created the tables first.
          if (versionOf(this.db) === 0) this.db.exec(SCHEMA);
        });
      if (versionOf(this.db) !== CATALOG_SCHEMA_VERSION) throw new OtherVersion("a catalog of another version");
    } catch (error) {
      this.db.close();
      throw error;
    }
  }

  /** True if the file still has its name. */
  get isThere(): boolean {
    return getInfo(this.disk, this.path)?.inode === this.inode;
  }

  /** Returns whether another process wrote since the last call of this function. */
  changedElsewhere(): boolean {
    const version = this.dataVersion();
    const changed = version !== this.version;
    this.version = version;
    return changed;
  }

  /** Returns whether another process wrote since the last call of `changedElsewhere`. */
  isChangedElsewhere(): boolean {
    return this.dataVersion() !== this.version;
  }

  private dataVersion(): number {
    return (this.sql("PRAGMA data_version").get() as { data_version: number }).data_version;
  }

  /** Returns whether this process is to build: one at a time reads and indexes many files, the others read what it writes. */
  mayBuild(): boolean {
    if (this.turn) return true;
    let turn: Database | undefined;
    try {
      createEmpty(this.disk, getTurnPath(this.path));
      turn = this.open(getTurnPath(this.path));
      // The lock ends with the process, and nothing is ever written.
      turn.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE");
      this.turn = turn;
      return true;
    } catch (error) {
      turn?.close();
      // Without such a file, each process builds.
      if (!isBusy(error)) return true;
    }
    const version = this.dataVersion();
    if (version !== this.theirs.version) this.theirs = { version, since: readClock() };
    return readClock() - this.theirs.since > STALLED;
  }

  /** Lets another process build. */
  endTurn(): void {
    this.turn?.close();
    this.turn = undefined;
  }

  close(): void {
    this.endTurn();
    this.statements.clear();
    try {
      // Closing does not checkpoint if statements are only freed at the end of the process.
      this.db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    } catch {
      // Another process is reading, or the file is damaged.
    }
    try {
      this.db.close();
    } catch {
      // It is closed, or too damaged to be closed.
    }
  }

  /** Removes the file because it is damaged: the next process that opens the catalog rebuilds it. */
  discard(): void {
    this.close();
    if (this.isThere) removeDatabase(this.disk, this.path);
  }

  // --- files ---------------------------------------------------------------------------------------------------

  /** Yields the index states of all files, `count` at a time. */
  *allIndexed(count: number): Generator<Indexed[]> {
    for (let last = -1; ; ) {
      const found = this.sql(`${INDEXED} WHERE id > ? ORDER BY id LIMIT ?`).all(last, count) as Indexed[];
      if (found.length === 0) return;
      yield found;
      last = found[found.length - 1].id;
    }
  }

  indexed(path: string): Indexed | undefined {
    return this.sql(`${INDEXED} WHERE path = ?`).get(path) as Indexed | undefined;
  }

  /** Records how far texts of a file are indexed. */
  putState(file: number, kind: TextKind, state: string): void {
    this.sql(`UPDATE files SET ${kind} = ? WHERE id = ?`).run(state, file);
  }

  /** Returns the row of a file, if it is as it was written. */
  row(path: string): StoredRow | undefined {
    const row = this.sql("SELECT * FROM files WHERE path = ?").get(path) as StoredRow | undefined;
    return row && row.sum === computeChecksum(row) ? row : undefined;
  }

  /** Yields the rows of all files, `count` at a time. Throws CatalogDamaged. */
  *allRows(count: number): Generator<StoredRow[]> {
    for (let last = -1; ; ) {
      const rows = this.sql("SELECT * FROM files WHERE id > ? ORDER BY id LIMIT ?").all(last, count) as StoredRow[];
      for (const row of rows)
        if (row.sum !== computeChecksum(row)) throw new CatalogDamaged("a row is not as it was written");
      if (rows.length === 0) return;
      yield rows;
      last = rows[rows.length - 1].id;
    }
  }

  /** Stores a row. Returns its number. */
  keep({ path, head, record, sum }: RowTexts & Pick<StoredRow, "sum">): number {
    const sql = `INSERT INTO files(path, head, record, sum) VALUES (?, ?, ?, ?) ON CONFLICT(path)
      DO UPDATE SET head = excluded.head, record = excluded.record, sum = excluded.sum RETURNING id`;
    return (this.sql(sql).get(path, head, record, sum) as { id: number }).id;
  }

  /** Changes the path of a file that is otherwise the same. Drops the row that had the new path. */
  move(from: string, to: string): void {
    this.drop(to);
    this.sql("UPDATE files SET path = ? WHERE path = ?").run(to, from);
  }

  drop(path: string): void {
    const row = this.indexed(path);
    if (!row) return;
    this.texts.drop(row.id);
    this.usage.drop(row.id);
    this.sql("DELETE FROM files WHERE id = ?").run(row.id);
  }

  // --- transactions --------------------------------------------------------------------------------------------

  /** Runs a write transaction: all of it or nothing, with no write of another process in between. */
  private write(run: () => void): void {
    this.db.exec("BEGIN IMMEDIATE");
    try {
      run();
      this.commit();
    } catch (error) {
      this.rollBack();
      throw error;
    }
  }

  /** Runs an asynchronous `run` in a transaction. Other processes cannot write until it ends, so it must be short. */
  async writing(run: () => Promise<void>): Promise<void> {
    this.db.exec("BEGIN IMMEDIATE");
    try {
      await run();
      this.commit();
    } catch (error) {
      this.rollBack();
      throw error;
    }
  }

  private commit(): void {
    this.db.exec("COMMIT");
    this.texts.forget(true);
  }

  private rollBack(): void {
    this.texts.forget(false);
    try {
      this.db.exec("ROLLBACK");
    } catch {
      // SQLite has already rolled back.
    }
  }

  /** Runs a read transaction: all reads see one consistent state, even if other processes write. */
  async reading<T>(run: () => Promise<T>): Promise<T> {
    this.db.exec("BEGIN");
    try {
      this.sql("SELECT 1 FROM files LIMIT 1").get();
      return await run();
    } finally {
      this.db.exec("COMMIT");
    }
  }

  private sql(text: string): Statement {
    let statement = this.statements.get(text);
    if (!statement) {
      statement = this.db.prepare(text);
      this.statements.set(text, statement);
    }
    return statement;
  }
}

/** Creates an empty file for SQLite, which gives the files next to it the same mode, unless another process was faster. */
function createEmpty(disk: Disk, path: string): void {
  try {
    disk.close(disk.create(path));
  } catch (error) {
    if (!isNameTaken(error)) throw error;
  }
}

const SHORT_READ = 522;
const BUSY = 5;

/** Returns whether another process has a lock. */
export function isBusy(error: unknown): boolean {
  return ((error as { errcode?: number }).errcode ?? 0) % 256 === BUSY;
}

/** BUSY, LOCKED, NOMEM, READONLY, INTERRUPT, IOERR, FULL, CANTOPEN. */
const PASSING: ReadonlySet<number> = new Set([5, 6, 7, 8, 9, 10, 13, 14]);

const PASSING_ERRNO: ReadonlySet<string | undefined> = new Set(
  "EACCES EROFS EPERM ENOSPC EDQUOT EMFILE ENFILE ENOTDIR ENOENT EIO".split(" "),
);

/** Returns whether an error is temporary and does not mean that the file is damaged. */
export function isPassing(error: unknown): boolean {
  if (error instanceof CatalogDamaged) return false;
  const { errcode, code } = error as { errcode?: number; code?: string };
  // The file is truncated.
  if (errcode === SHORT_READ) return false;
  if (typeof errcode === "number") return PASSING.has(errcode & 0xff);
  return PASSING_ERRNO.has(code);
}

function versionOf(db: Database): number {
  return (db.prepare("PRAGMA user_version").get() as { user_version: number }).user_version;
}

/** Returns whether a file was replaced by a newer one of ours or is damaged; false for a newer server's, or in use. */
function isOutdated(open: OpenDatabase, path: string): boolean {
  try {
    return useAndClose(open(path), (db) => versionOf(db) <= CATALOG_SCHEMA_VERSION);
  } catch (error) {
    return !isPassing(error);
  }
}
