/**
 * The catalog's SQLite file: a cache of the summaries and texts of session files. Everything in it is derived from
 * them, so a damaged catalog is deleted, and a missing one costs only time.
 */

import type { SearchRequest } from "../../core/ports/catalog.ts";
import { Lexicon, type Reading, tokensOf } from "../../core/search/query.ts";
import type { Disk } from "../fs/disk.ts";
import { closing, infoOrNull, isNameTaken } from "../fs/files.ts";
import type { Database, OpenDatabase, Statement } from "../fs/sqlite.ts";
import {
  breakSeal,
  CatalogDamaged,
  isUnsealed,
  mayBeOurs,
  numbersOf,
  pathOf,
  removeDatabase,
  seal,
} from "./database-files.ts";
import { hash, type SessionSummary } from "./summary.ts";
import { UsageTable } from "./usage-table.ts";

/** Version of the tables below. A file of a newer version is left alone. */
const SCHEMA_VERSION = 1;
/** Milliseconds to wait for a lock of another process. The wait blocks this process, so it is short, and repeated. */
const BUSY_MILLISECONDS = 20;
/** Words with a part, beyond which reading the texts is faster than asking for each word. */
const MAX_WORDS = 200;
/** Words with all trigrams of a part, beyond which they are not checked for the part itself. */
const MAX_CANDIDATES = 5000;
const REMEMBERED_WORDS = 200_000;
/** Bytes that FTS5 gathers in memory before it writes a part of an index: more than one transaction adds. */
const HASH_BYTES = 16 << 20;

const SCHEMA = `
CREATE TABLE files(
  id INTEGER PRIMARY KEY,
  path TEXT NOT NULL UNIQUE,
  session TEXT NOT NULL,
  cwd TEXT,
  timestamp TEXT,
  messages INTEGER NOT NULL,
  modified INTEGER,
  size INTEGER NOT NULL,
  name TEXT,
  archived INTEGER NOT NULL DEFAULT 0,
  record TEXT NOT NULL,
  sum TEXT NOT NULL,
  talk TEXT NOT NULL DEFAULT '',
  tools TEXT NOT NULL DEFAULT ''
);
CREATE VIEW sessions AS
  SELECT path, session AS id, coalesce(cwd, '') AS cwd, coalesce(timestamp, '') AS timestamp,
    messages AS message_count, coalesce(modified, 0) AS last_modified_ms, size AS size_bytes, name
  FROM files;
CREATE TABLE said(
  id INTEGER PRIMARY KEY,
  file INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  start INTEGER NOT NULL,
  length INTEGER NOT NULL,
  role TEXT NOT NULL,
  time REAL,
  entry TEXT,
  sum TEXT NOT NULL,
  text TEXT NOT NULL
);
CREATE INDEX said_in_file ON said(file, kind, start);
CREATE VIRTUAL TABLE talk_index USING fts5(t, content='', contentless_delete=1, detail=none, tokenize="ascii tokenchars '_'");
CREATE VIRTUAL TABLE tools_index USING fts5(t, content='', contentless_delete=1, detail=none, tokenize="ascii tokenchars '_'");
INSERT INTO talk_index(talk_index, rank) VALUES ('hashsize', ${HASH_BYTES});
INSERT INTO tools_index(tools_index, rank) VALUES ('hashsize', ${HASH_BYTES});
CREATE TABLE words(id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE);
CREATE VIRTUAL TABLE parts USING fts5(word, content='', detail=none, tokenize=trigram);
PRAGMA user_version = ${SCHEMA_VERSION};
`;

/** Kinds of text: what users and assistants say, searched by default, and the output of tools, on request. */
export type TextKind = "talk" | "tools";
const KINDS: readonly TextKind[] = ["talk", "tools"];

/** A row of the catalog: columns for scripts, and the record from which we restore ours. */
export interface CatalogRow extends Pick<SessionSummary, "cwd" | "timestamp" | "messages" | "name"> {
  readonly path: string;
  readonly session: string;
  /** Time of the last change of the session, in milliseconds. */
  readonly modified: number;
  readonly size: number;
  readonly record: string;
}

const COLUMNS = ["path", "session", "cwd", "timestamp", "messages", "modified", "size", "name", "record"] as const;
const KEEP = `INSERT INTO files(${COLUMNS.join()}, sum) VALUES (${COLUMNS.map(() => "?").join()}, ?)
  ON CONFLICT(path) DO UPDATE SET ${[...COLUMNS, "sum"].map((column) => `${column} = excluded.${column}`).join()}`;

/** A row as it is stored, with its number. The checksum is of the others, from when they were written. */
export interface StoredRow extends CatalogRow, Indexed {}

/** The index state of a file's texts, and the number of the file. */
export interface Indexed {
  readonly id: number;
  readonly path: string;
  readonly sum: string;
  readonly talk: string;
  readonly tools: string;
}

/** The place of one entry's text. */
export interface TextSpan {
  /** Offset in the session file; the entry's position when the line does not contain the entry's id. */
  readonly start: number;
  readonly length: number;
  readonly role: string;
  /** Milliseconds. */
  readonly time: number | null;
  /** The entry's id, when the line does not contain it. */
  readonly entry: string | null;
}

/** A place in the index. Texts that were added later have higher numbers. */
export interface Numbered extends TextSpan {
  readonly id: number;
  readonly path: string;
}

export interface NewText extends TextSpan {
  readonly folded: string;
}

interface Asked extends Pick<SearchRequest, "cwd" | "role" | "since" | "until"> {
  readonly kinds: readonly TextKind[];
  /** An FTS5 expression; undefined: any text. */
  readonly expression: string | undefined;
  /** The number below which texts are returned. */
  readonly below: number;
  readonly count: number;
}

class OtherVersion extends Error {}

export class CatalogFile {
  private readonly disk: Disk;
  private readonly db: Database;
  private readonly statements = new Map<string, Statement>();
  readonly usage = new UsageTable((text) => this.sql(text));
  private readonly path: string;
  private readonly inode: number;
  private version = -1;
  /** Words that are in the table already. */
  private readonly lexicon = new Lexicon();

  /** Opens the current file, or creates one. Throws the errors of SQLite and the disk. */
  static open(open: OpenDatabase, disk: Disk, folder: string, name: string): CatalogFile {
    disk.makeFolder(folder);
    const numbers = numbersOf(disk, folder, name).sort((a, b) => b - a);
    const damaged: number[] = [];
    for (const [i, number] of numbers.entries()) {
      const path = pathOf(folder, name, number);
      // A file of a newer version belongs to a newer server.
      if (!mayBeOurs(disk, path, SCHEMA_VERSION)) continue;
      try {
        const file = new CatalogFile(open, disk, path);
        for (const older of numbers.slice(i + 1)) {
          const left = pathOf(folder, name, older);
          if (mayBeOurs(disk, left, SCHEMA_VERSION) && isOutdated(open, left)) removeDatabase(disk, left);
        }
        return file;
      } catch (error) {
        // Locked for too long, or no room: this is temporary and no reason to rebuild.
        if (isPassing(error)) throw error;
        if (!(error instanceof OtherVersion)) damaged.push(number);
      }
    }
    const path = pathOf(folder, name, (numbers[0] ?? -1) + 1);
    try {
      // SQLite gives the files next to it the same mode.
      disk.close(disk.create(path));
    } catch (error) {
      // Another process was faster.
      if (!isNameTaken(error)) throw error;
    }
    const made = new CatalogFile(open, disk, path);
    for (const number of damaged) removeDatabase(disk, pathOf(folder, name, number));
    return made;
  }

  private constructor(open: OpenDatabase, disk: Disk, path: string) {
    this.disk = disk;
    this.path = path;
    this.inode = disk.info(path).inode;
    if (isUnsealed(disk, path)) throw new CatalogDamaged("something else wrote to it");
    breakSeal(disk, path);
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
      if (versionOf(this.db) !== SCHEMA_VERSION) throw new OtherVersion("a catalog of another version");
      if (!this.usage.isThere()) this.write(() => this.usage.create());
    } catch (error) {
      this.db.close();
      throw error;
    }
  }

  /** Whether the file still has its name. */
  get isThere(): boolean {
    return infoOrNull(this.disk, this.path)?.inode === this.inode;
  }

  /** Whether another process wrote since the last call. */
  changedElsewhere(): boolean {
    const { data_version: version } = this.sql("PRAGMA data_version").get() as { data_version: number };
    const changed = version !== this.version;
    this.version = version;
    return changed;
  }

  close(): void {
    this.statements.clear();
    try {
      // Closing does not checkpoint where statements are only freed at the end of the process.
      this.db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    } catch {
      // Another process is reading, or the file is damaged.
    }
    try {
      this.db.close();
    } catch {
      // It is closed, or too damaged to be closed.
      return;
    }
    if (this.isThere) seal(this.disk, this.path);
  }

  /** Removes the file because it is damaged: the next process that opens the catalog rebuilds it. */
  discard(): void {
    this.close();
    if (this.isThere) removeDatabase(this.disk, this.path);
  }

  // --- files ---------------------------------------------------------------------------------------------------

  allIndexed(): Indexed[] {
    return this.sql("SELECT id, path, sum, talk, tools FROM files").all() as Indexed[];
  }

  /** Returns the row of a file, if it is as it was written. */
  row(path: string): StoredRow | undefined {
    const row = this.sql("SELECT * FROM files WHERE path = ?").get(path) as StoredRow | undefined;
    return row && row.sum === sumOf(row) ? row : undefined;
  }

  /** Yields the rows of all files, `count` at a time. Throws CatalogDamaged. */
  *allRows(count: number): Generator<StoredRow[]> {
    for (let last = -1; ; ) {
      const rows = this.sql("SELECT * FROM files WHERE id > ? ORDER BY id LIMIT ?").all(last, count) as StoredRow[];
      for (const row of rows) if (row.sum !== sumOf(row)) throw new CatalogDamaged("a row is not as it was written");
      if (rows.length === 0) return;
      yield rows;
      last = rows[rows.length - 1].id;
    }
  }

  keep(kept: CatalogRow): void {
    this.sql(KEEP).run(...COLUMNS.map((column) => kept[column]), sumOf(kept));
  }

  /** Changes the path of a file that is otherwise the same. Drops the row that had the new path. */
  move(from: string, to: string): void {
    this.drop(to);
    this.sql("UPDATE files SET path = ? WHERE path = ?").run(to, from);
  }

  drop(path: string): void {
    const row = this.indexed(path);
    if (!row) return;
    for (const kind of KINDS) for (const { id } of this.textsFrom(row.id, kind, -1)) this.dropText(kind, id);
    this.usage.drop(row.id);
    this.sql("DELETE FROM files WHERE id = ?").run(row.id);
  }

  // --- texts ---------------------------------------------------------------------------------------------------

  indexed(path: string): Indexed | undefined {
    return this.sql("SELECT id, path, sum, talk, tools FROM files WHERE path = ?").get(path) as Indexed | undefined;
  }

  /** Replaces the texts of a file at and after an offset. */
  putTexts(file: number, kind: TextKind, from: number, texts: readonly NewText[], state: string): void {
    // A text that has not changed keeps its number, so that a client that pages through hits misses none.
    const there = new Map(this.textsFrom(file, kind, from).map(({ id, sum, text }) => [sum + text, id]));
    const added: (() => void)[] = [];
    for (const { folded, ...place } of texts) {
      const sum = sumOfSpan(place);
      const reading = this.lexicon.read(folded);
      if (!there.delete(sum + reading.sum)) added.push(() => this.addText(file, kind, place, sum, folded, reading));
      else this.addWords(reading.unseen);
    }
    for (const id of there.values()) this.dropText(kind, id);
    for (const add of added) add();
    this.sql(`UPDATE files SET ${kind} = ? WHERE id = ?`).run(state, file);
  }

  private addText(file: number, kind: TextKind, place: TextSpan, sum: string, folded: string, reading: Reading): void {
    const { start, length, role, time, entry } = place;
    const packed = entry === null ? null : JSON.stringify(entry);
    this.addWords(reading.unseen);
    const { lastInsertRowid: id } = this.sql(
      "INSERT INTO said(file, kind, start, length, role, time, entry, sum, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    ).run(file, KINDS.indexOf(kind), start, length, role, time, packed, sum, reading.sum);
    this.sql(`INSERT INTO ${kind}_index(rowid, t) VALUES (?, ?)`).run(id, tokensOf(folded, reading.longestRun));
  }

  private addWords(words: readonly string[]): void {
    for (const word of words) {
      const { changes, lastInsertRowid: id } = this.sql("INSERT OR IGNORE INTO words(word) VALUES (?)").run(word);
      if (Number(changes) > 0) this.sql("INSERT INTO parts(rowid, word) VALUES (?, ?)").run(id, word);
    }
  }

  /** Returns the words that contain a part; undefined when there are more than can be queried. */
  wordsWith(part: string): string[] | undefined {
    // Short parts have no trigrams.
    const isShort = part.length < 3;
    const most = isShort ? MAX_WORDS : MAX_CANDIDATES;
    const source = isShort
      ? "words w WHERE word LIKE ? ESCAPE '\\'"
      : "parts p CROSS JOIN words w ON w.id = p.rowid WHERE parts MATCH ?";
    const pattern = isShort ? `%${part.replaceAll("_", "\\_")}%` : trigramsOf(part);
    const rows = this.sql(`SELECT w.word FROM ${source} LIMIT ?`).all(pattern, most + 1) as { word: string }[];
    if (rows.length > most) return undefined;
    const words = rows.map(({ word }) => word).filter((word) => word.includes(part));
    return words.length > MAX_WORDS ? undefined : words;
  }

  private textsFrom(file: number, kind: TextKind, from: number): { id: number; sum: string; text: string }[] {
    const texts = this.sql("SELECT id, sum, text FROM said WHERE file = ? AND kind = ? AND start >= ?");
    return texts.all(file, KINDS.indexOf(kind), from) as { id: number; sum: string; text: string }[];
  }

  private dropText(kind: TextKind, id: number): void {
    this.sql(`DELETE FROM ${kind}_index WHERE rowid = ?`).run(id);
    this.sql("DELETE FROM said WHERE id = ?").run(id);
  }

  /** Returns a number above that of every text. */
  ceiling(): number {
    return (this.sql("SELECT coalesce(max(id), 0) + 1 AS ceiling FROM said").get() as { ceiling: number }).ceiling;
  }

  /** Returns the places of the texts that match a query, the latest first. Throws CatalogDamaged. */
  texts({ kinds, expression, below, cwd, role, since, until, count }: Asked): Numbered[] {
    const found = kinds.flatMap((kind) => {
      const limits = { "f.cwd = ?": cwd, "s.role = ?": role, "s.time >= ?": since, "s.time <= ?": until };
      const more = Object.entries(limits).filter(([, value]) => value !== undefined);
      // The index comes first in the join, so that the result has its order and nothing beyond the limit is read.
      const [source, id] =
        expression === undefined
          ? ["said s CROSS JOIN files f ON f.id = s.file WHERE s.kind = ?", "s.id"]
          : [
              `${kind}_index t CROSS JOIN said s ON s.id = t.rowid CROSS JOIN files f ON f.id = s.file WHERE ${kind}_index MATCH ?`,
              "t.rowid",
            ];
      return this.sql(
        `SELECT s.*, f.path FROM ${source} AND ${id} < ?${more.map(([condition]) => ` AND ${condition}`).join("")}
          ORDER BY ${id} DESC LIMIT ?`,
      ).all(expression ?? KINDS.indexOf(kind), below, ...more.map(([, value]) => value), count) as (Numbered & {
        sum: string;
      })[];
    });
    if (kinds.length > 1) found.sort((a, b) => b.id - a.id);
    return found.slice(0, count).map((row) => {
      const place = { ...row, entry: unpackedEntry(row.entry) };
      if (row.sum !== sumOfSpan(place)) throw new CatalogDamaged("a place is not as it was written");
      return place;
    });
  }

  // --- transactions --------------------------------------------------------------------------------------------

  /** Runs a write transaction: all of it or nothing, with no write of another process in between. */
  write(run: () => void): void {
    this.db.exec("BEGIN IMMEDIATE");
    try {
      run();
      this.db.exec("COMMIT");
      if (this.lexicon.count > REMEMBERED_WORDS) this.lexicon.clear();
    } catch (error) {
      this.lexicon.clear();
      try {
        this.db.exec("ROLLBACK");
      } catch {
        // SQLite has already rolled back.
      }
      throw error;
    }
  }

  /** Runs a read transaction: all reads see one consistent state, whatever other processes write meanwhile. */
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

/** Returns an expression for all trigrams of a part: the index stores no positions, so each is queried on its own. */
function trigramsOf(part: string): string {
  const found = Array.from({ length: part.length - 2 }, (_, i) => `"${part.slice(i, i + 3)}"`);
  return [...new Set(found)].join(" AND ");
}

/** Parses an entry's id. It is stored as JSON: ids may contain characters that SQLite does not return unchanged. */
function unpackedEntry(text: string | null): string | null {
  try {
    return text === null ? null : JSON.parse(text);
  } catch {
    throw new CatalogDamaged("an entry's id is not as it was written");
  }
}

function sumOfSpan({ start, length, role, time, entry }: TextSpan): string {
  return hash(JSON.stringify([start, length, role, time, entry]));
}

/** Returns the checksum of a row, which detects bytes that changed without SQLite. */
export function sumOf(row: CatalogRow): string {
  return hash(JSON.stringify(COLUMNS.map((column) => row[column])));
}

const SHORT_READ = 522;
/** BUSY, LOCKED, NOMEM, READONLY, INTERRUPT, IOERR, FULL, CANTOPEN. */
const PASSING: ReadonlySet<number> = new Set([5, 6, 7, 8, 9, 10, 13, 14]);

/** Whether an error is temporary and does not mean that the file is damaged. */
export function isPassing(error: unknown): boolean {
  if (error instanceof CatalogDamaged) return false;
  const { errcode, message } = error as { errcode?: number; message?: string };
  // The file is truncated.
  if (errcode === SHORT_READ) return false;
  if (typeof errcode === "number") return PASSING.has(errcode & 0xff);
  return /^(EACCES|EROFS|EPERM|ENOSPC|EDQUOT|EMFILE|ENFILE|ENOTDIR|ENOENT|EIO)\b/.test(message ?? "");
}

function versionOf(db: Database): number {
  return (db.prepare("PRAGMA user_version").get() as { user_version: number }).user_version;
}

/** Whether a newer file of ours has replaced a file, or it is damaged; false for one of a newer server, or in use. */
function isOutdated(open: OpenDatabase, path: string): boolean {
  try {
    return closing(open(path), (db) => versionOf(db) <= SCHEMA_VERSION);
  } catch (error) {
    return !isPassing(error);
  }
}
