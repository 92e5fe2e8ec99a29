/**
 * Rows: the stamps of session files when they were read, and their summaries. The catalog's file keeps them: it is
 * opened when it is first needed, and discarded when damaged.
 */

import { sep } from "node:path";
import type { Listed } from "../../core/ports/catalog.ts";
import type { Env } from "../../core/ports/env.ts";
import type { Log } from "../../core/ports/store.ts";
import type { LeafMemory } from "../../core/ports/stores.ts";
import { pause } from "../fs/chunked-io.ts";
import { readClock } from "../fs/clock.ts";
import type { Disk } from "../fs/disk.ts";
import { getArchiveFolder, type StoragePaths } from "../fs/paths.ts";
import { findSqlite, type OpenDatabase } from "../fs/sqlite.ts";
import { type FoundStamp, isSameStamp } from "../fs/stamps.ts";
import { CatalogFile, type Indexed, isBusy, isPassing, type StoredRow } from "./database.ts";
import { CatalogDamaged, getDatabasePlace } from "./database-files.ts";
import type { ListedFiles } from "./listed-files.ts";
import { type SessionFacts, SessionRow } from "./session-row.ts";
import { filterInSlices, visitInSlices } from "./slices.ts";
import type { TextKind } from "./text-table.ts";

/** Rows written in one transaction, which blocks other processes for 50 ms, and read without a pause. */
const ROWS_AT_ONCE = { written: 1000, read: 500 };
/** Number of damaged catalogs after which this process works without one. */
const MAX_DAMAGE = 3;
/** Milliseconds after which opening a catalog is tried again. */
const TRY_AGAIN_AFTER = 5000;
/** Milliseconds that a transaction waits for other processes. Rows can be written later, texts for a search cannot. */
const PATIENCE = { rows: 300, texts: 10_000 };

/** Everything that the parts of the catalog need from around it. */
export interface CatalogOptions {
  readonly disk: Disk;
  readonly env: Env;
  readonly paths: StoragePaths;
  readonly leaves: LeafMemory;
  /** Opens a session file or container for reading. */
  readonly openLog: (file: string) => Log;
  /** Returns the available SQLite. It is called when SQLite is first needed. */
  readonly sqlite?: () => OpenDatabase | undefined;
  /** Number of files from which on folders are watched instead of read on every call. */
  readonly watchFrom?: number;
  /** True to index texts after a list, before the first search. */
  readonly indexAhead?: boolean;
  /** The files that are listed; by default the session files in the folders of `paths`. */
  readonly files?: ListedFiles;
  /** Returns a function that is true for sessions here that belong to others, and are not listed. */
  readonly findOthers?: () => (listed: Listed) => boolean;
  /** True if an index for scripts is durable when `exportIndex` resolves. */
  readonly isDurable?: boolean;
}

export class CachedRows {
  readonly rows = new Map<string, SessionRow>();
  /** Paths whose texts may not be indexed in their current state; for a missing kind all must be compared. */
  readonly stale = new Map<TextKind, Set<string>>();
  /** Index states in the catalog's file, as last read. */
  readonly indexed = new Map<string, Indexed>();

  private readonly options: CatalogOptions;
  /** Replaces a row by the equivalent one in the catalog. */
  private readonly adopt: (path: string, row: SessionRow) => void;
  private sqlite: OpenDatabase | undefined | null;
  private file: CatalogFile | undefined;
  private damages = 0;
  private tryAgainAt = Number.NEGATIVE_INFINITY;
  /** Paths whose rows must be written, moved or dropped; undefined: compare all. */
  private changed: Set<string> | undefined;
  private readonly moves = new Map<string, string>();
  /** Prefix of the paths of archived sessions. */
  private readonly archive: string;

  constructor(options: CatalogOptions, adopt: (path: string, row: SessionRow) => void) {
    this.options = options;
    this.adopt = adopt;
    this.archive = `${getArchiveFolder(options.paths)}${sep}`;
  }

  rowOf(path: string, facts: SessionFacts): SessionRow {
    return SessionRow.of(path, this.isArchived(path), facts);
  }

  /** True if rows may differ from those in the catalog. */
  get isUnsaved(): boolean {
    return this.changed?.size !== 0;
  }

  isArchived(path: string): boolean {
    return path.startsWith(this.archive);
  }

  private readRow(stored: StoredRow): SessionRow | undefined {
    return SessionRow.stored(stored, this.isArchived(stored.path), stored.sum);
  }

  /** Returns a session as the catalog has it; undefined when it is not known with this stamp. */
  stored(file: CatalogFile, path: string, stamp: FoundStamp): Listed | undefined {
    const there = file.row(path);
    const row = there && this.readRow(there);
    return row && isSameStamp(row.stamp, stamp) ? row.listed : undefined;
  }

  get sqliteThere(): OpenDatabase | null {
    this.sqlite ??= (this.options.sqlite ?? findSqlite)() ?? null;
    return this.sqlite;
  }

  /** Runs `run` on the catalog's file. Returns undefined without one: then callers read the session files instead. */
  async with<T>(run: (file: CatalogFile) => Promise<T>): Promise<T | undefined> {
    const { env, paths, disk } = this.options;
    if (this.sqlite === null || this.damages >= MAX_DAMAGE) return undefined;
    let used: CatalogFile | undefined;
    try {
      if (this.file && !this.file.isThere) this.leave();
      if (!this.file) {
        if (env.now() < this.tryAgainAt) return undefined;
        const sqlite = this.sqliteThere;
        if (!sqlite) return undefined;
        const { folder, name } = getDatabasePlace(paths, env);
        this.file = CatalogFile.open(sqlite, disk, folder, name);
        this.changed = undefined;
      }
      used = this.file;
      return await run(used);
    } catch (error) {
      if (!isStorageError(error)) throw error;
      // Another call may have closed the file in between and opened the present one.
      if (this.file !== used) return undefined;
      this.leave();
      if (isPassing(error)) this.tryAgainAt = env.now() + TRY_AGAIN_AFTER;
      else {
        this.damages++;
        used?.discard();
      }
      return undefined;
    }
  }

  /** Lets another process build. */
  endTurn(): void {
    this.file?.endTurn();
  }

  close(): void {
    this.file?.close();
    this.file = undefined;
  }

  private leave(): void {
    this.close();
    this.forget();
  }

  private forget(): void {
    this.changed = undefined;
    this.indexed.clear();
    this.stale.clear();
  }

  /** Records that a row was replaced or removed. */
  note(path: string, removed: boolean): void {
    this.changed?.add(path);
    for (const paths of this.stale.values()) paths.add(path);
    if (removed) this.moves.delete(path);
  }

  noteMove(from: string, to: string): void {
    this.moves.set(to, from);
  }

  /** Reads the index states if another process wrote, and with `andRows` the rows that are not known yet. */
  async load(file: CatalogFile, andRows: boolean): Promise<void> {
    const isNew = file.changedElsewhere();
    if (!andRows) return isNew ? this.readIndexed(file) : undefined;
    if (!isNew && this.changed) return;
    this.forget();
    const differing = new Set(this.rows.keys());
    for (const stored of file.allRows(ROWS_AT_ONCE.read)) {
      for (const one of stored) {
        const { id, path, sum, talk, tools, calls } = one;
        const row = this.readRow(one);
        // One text in place of two that are the same, mostly.
        this.indexed.set(path, { id, path, sum, talk: talk === row?.state ? row.state : talk, tools, calls });
        if (row && !this.rows.has(path)) this.rows.set(path, row);
        else differing.add(path);
      }
      await pause();
    }
    this.changed = differing;
  }

  async readIndexed(file: CatalogFile): Promise<void> {
    this.forget();
    for (const found of file.allIndexed(ROWS_AT_ONCE.read)) {
      for (const indexed of found) this.indexed.set(indexed.path, indexed);
      await pause();
    }
  }

  /** Writes rows that differ from the catalog. */
  async save(file: CatalogFile): Promise<void> {
    const { rows } = this;
    if (file.changedElsewhere()) await this.readIndexed(file);
    const among = this.changed ?? new Set([...rows.keys(), ...this.indexed.keys()]);
    const differing = await filterInSlices(among, (path) => rows.get(path)?.sum !== this.indexed.get(path)?.sum);
    for (let i = 0; i < differing.length; i += ROWS_AT_ONCE.written) {
      const numbers = new Map<string, number | undefined>();
      await this.write(file, "rows", async () => {
        const isKnown = !file.isChangedElsewhere();
        await visitInSlices(differing.slice(i, i + ROWS_AT_ONCE.written), (path) => {
          numbers.set(path, this.saveOne(file, path, isKnown));
        });
      });
      for (const [path, id] of numbers) this.noteSaved(file, path, id);
    }
    this.changed = new Set();
    this.moves.clear();
  }

  /** Takes over the rows that other processes wrote of files with these stamps. Returns the other files. */
  adoptWritten(file: CatalogFile, of: readonly [string, FoundStamp][]): Promise<[string, FoundStamp][]> {
    return filterInSlices(of, ([path, stamp]) => {
      const there = file.row(path);
      const row = there && this.readRow(there);
      if (!row?.sure || !isSameStamp(row.stamp, stamp)) return true;
      this.adopt(path, row);
      return false;
    });
  }

  /** Writes one row. Returns its number if it is new; `isKnown`: no other process wrote since the states were read. */
  private saveOne(file: CatalogFile, path: string, isKnown: boolean): number | undefined {
    const row = this.rows.get(path);
    if (!row) {
      file.drop(path);
      return undefined;
    }
    const from = this.moves.get(path);
    const isNew = isKnown && from === undefined && !this.indexed.has(path);
    const there = isNew ? undefined : file.row(path);
    const theirs = there && this.readRow(there);
    // Another process scanned the same file: both rows are correct, and its row is kept.
    if (theirs && row.sure && theirs.sizeBytes === row.sizeBytes && isSameStamp(theirs.stamp, row.stamp)) {
      this.adopt(path, theirs);
      return undefined;
    }
    if (from !== undefined && !this.rows.has(from)) file.move(from, path);
    const id = file.keep(row);
    return isNew ? id : undefined;
  }

  /** Records the index states of a written row: a new one has none. */
  private noteSaved(file: CatalogFile, path: string, id: number | undefined): void {
    const row = this.rows.get(path);
    const indexed = id === undefined || !row ? file.indexed(path) : { id, path, sum: row.sum, ...NOT_INDEXED };
    if (indexed) this.indexed.set(path, indexed);
    else this.indexed.delete(path);
  }

  /** Runs a transaction. Waits for other processes without blocking this one. */
  async write(
    file: CatalogFile,
    what: keyof typeof PATIENCE,
    run: () => Promise<void>,
    patience: number = PATIENCE[what],
  ): Promise<void> {
    const until = readClock() + patience;
    for (let tries = 1; ; tries++)
      try {
        return await file.writing(run);
      } catch (error) {
        if (!isBusy(error) || readClock() >= until) throw error;
        // The delay differs between processes, so that they do not retry in step.
        await new Promise((resolve) => setTimeout(resolve, 1 + ((tries * process.pid) % 17)));
      }
  }
}

const NOT_INDEXED: Readonly<Record<TextKind, string>> = { talk: "", tools: "", calls: "" };

/** Returns whether an error is one of the file: those of the disk and of SQLite have codes, bugs have none. */
function isStorageError(error: unknown): boolean {
  return error instanceof CatalogDamaged || typeof (error as { code?: unknown }).code === "string";
}
