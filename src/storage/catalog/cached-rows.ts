/** Rows in the catalog's file: opens it when it is first needed, loads and saves rows, and discards it when damaged. */

import { join } from "node:path";
import { pause } from "../fs/chunked-io.ts";
import { findSqlite, type OpenDatabase } from "../fs/sqlite.ts";
import { isSameStamp } from "../fs/stamps.ts";
import { CatalogDamaged, CatalogFile, type Indexed, isPassing } from "./database.ts";
import type { CatalogOptions } from "./options.ts";
import { keptOf, readRow, type SessionRow } from "./rows.ts";

/** The current rows, which the owner keeps in memory. */
export interface Known {
  readonly rows: ReadonlyMap<string, SessionRow>;
  /** Replaces a row by the equivalent one in the catalog. */
  adopt(path: string, row: SessionRow): void;
}

/** Rows written in one transaction, and read without a pause. */
const ROWS_AT_ONCE = 200;
/** Number of damaged catalogs after which this process works without one. */
const MAX_DAMAGE = 3;
/** Milliseconds after which opening a catalog is tried again. */
const TRY_AGAIN_AFTER = 5000;
/** Milliseconds that a transaction waits for other processes. Rows can be written later, texts for a search cannot. */
const PATIENCE = { rows: 300, texts: 10_000 };

export class CachedRows {
  /** Index states in the catalog's file, as last read. */
  readonly indexed = new Map<string, Indexed>();

  private readonly options: CatalogOptions;
  private readonly known: Known;
  private readonly onReread: () => void;
  private sqlite: OpenDatabase | undefined | null;
  private file: CatalogFile | undefined;
  private damages = 0;
  private tryAgainAt = Number.NEGATIVE_INFINITY;
  /** Paths whose rows must be written, moved or dropped; undefined: compare all. */
  private changed: Set<string> | undefined;
  private readonly moves = new Map<string, string>();

  /** `onReread` is called when the known index states are no longer valid. */
  constructor(options: CatalogOptions, known: Known, onReread: () => void) {
    this.options = options;
    this.known = known;
    this.onReread = onReread;
  }

  get sqliteThere(): OpenDatabase | null {
    this.sqlite ??= (this.options.sqlite ?? findSqlite)() ?? null;
    return this.sqlite;
  }

  /**
   * Runs `run` on the catalog's file, which it opens if needed. Returns undefined when there is none or storage fails:
   * then callers read the session files instead.
   */
  async with<T>(run: (file: CatalogFile) => Promise<T>): Promise<T | undefined> {
    const { env, paths, disk } = this.options;
    if (this.sqlite === null || this.damages >= MAX_DAMAGE) return undefined;
    try {
      if (this.file && !this.file.isThere) this.leave();
      if (!this.file) {
        if (env.now() < this.tryAgainAt) return undefined;
        const sqlite = this.sqliteThere;
        if (!sqlite) return undefined;
        const root = paths.flat ?? (paths.root as string);
        const name = env.sha256(Buffer.from(root)).slice(0, 16);
        this.file = CatalogFile.open(sqlite, disk, join(paths.state, "catalog"), name);
        this.changed = undefined;
      }
      return await run(this.file);
    } catch (error) {
      if (!isStorageError(error)) throw error;
      const file = this.file;
      this.leave();
      if (isPassing(error)) this.tryAgainAt = env.now() + TRY_AGAIN_AFTER;
      else {
        this.damages++;
        file?.discard();
      }
      return undefined;
    }
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
    this.onReread();
  }

  /** Records that a row was replaced or removed. */
  note(path: string, removed: boolean): void {
    this.changed?.add(path);
    if (removed) this.moves.delete(path);
  }

  noteMove(from: string, to: string): void {
    this.moves.set(to, from);
  }

  /** Reads the index states if another process wrote. Passes each row to `onRow`, if given. */
  async load(file: CatalogFile, onRow: ((path: string, row: SessionRow) => void) | undefined): Promise<void> {
    if (!file.changedElsewhere() && this.changed) return;
    this.readIndexed(file);
    if (!onRow) return;
    for (const records of file.records(ROWS_AT_ONCE)) {
      for (const { path, record, sum } of records) {
        const row = readRow(path, record, sum);
        if (row) onRow(path, row);
      }
      await pause();
    }
  }

  readIndexed(file: CatalogFile): void {
    this.forget();
    for (const { path, ...indexed } of file.files()) this.indexed.set(path, indexed);
  }

  /** Writes rows that differ from the catalog. */
  async save(file: CatalogFile): Promise<void> {
    const { rows } = this.known;
    if (file.changedElsewhere()) this.readIndexed(file);
    const among = this.changed ?? new Set([...rows.keys(), ...this.indexed.keys()]);
    const differing = [...among].filter((path) => rows.get(path)?.sum !== this.indexed.get(path)?.sum);
    for (let i = 0; i < differing.length; i += ROWS_AT_ONCE) {
      const paths = differing.slice(i, i + ROWS_AT_ONCE);
      await this.write(file, "rows", () => {
        for (const path of paths) this.saveOne(file, path);
      });
      for (const path of paths) {
        const indexed = file.indexed(path);
        if (indexed) this.indexed.set(path, indexed);
        else this.indexed.delete(path);
      }
      if (i > 0) await pause();
    }
    this.changed = new Set();
    this.moves.clear();
  }

  private saveOne(file: CatalogFile, path: string): void {
    const { rows } = this.known;
    const row = rows.get(path);
    if (!row) {
      file.drop(path);
      return;
    }
    const there = file.record(path);
    if (there !== undefined) {
      // Another process scanned the same file: both rows are correct, and its row is kept.
      const theirs = readRow(path, there.record, there.sum);
      if (theirs && row.sure && theirs.size === row.size && isSameStamp(theirs.stamp, row.stamp)) {
        this.known.adopt(path, theirs);
        return;
      }
    }
    const from = this.moves.get(path);
    if (from !== undefined && !rows.has(from)) file.move(from, path);
    file.keep(keptOf(row));
  }

  /** Runs a transaction. Waits for other processes without blocking this one. */
  async write(file: CatalogFile, what: keyof typeof PATIENCE, run: () => void): Promise<void> {
    const until = performance.now() + PATIENCE[what];
    for (let tries = 1; ; tries++)
      try {
        file.write(run);
        return;
      } catch (error) {
        const { errcode } = error as { errcode?: number };
        if ((errcode ?? 0) % 256 !== BUSY || performance.now() >= until) throw error;
        // The delay differs between processes, so that they do not retry in step.
        await new Promise((resolve) => setTimeout(resolve, 1 + ((tries * process.pid) % 17)));
      }
  }
}

const BUSY = 5;

function isStorageError(error: unknown): boolean {
  const { code, errcode } = error as { code?: unknown; errcode?: unknown };
  return (
    error instanceof CatalogDamaged ||
    errcode !== undefined ||
    typeof code === "string" ||
    // Errors that the SQLite library throws itself.
    /sqlite|database|statement/i.test(String(error))
  );
}
