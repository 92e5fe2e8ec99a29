/** Rows in the catalog's file: opened when it is first needed, taken in, written, and given up when it is damaged. */

import { join } from "node:path";
import type { Env } from "../../core/ports/env.ts";
import { pause } from "../fs/chunked-io.ts";
import type { Disk } from "../fs/disk.ts";
import type { Places } from "../fs/paths.ts";
import { findSqlite, type OpenDatabase } from "../fs/sqlite.ts";
import { CatalogDamaged, CatalogFile, type Indexed, isPassing } from "./database.ts";
import { sameStamp } from "./folders.ts";
import { keptOf, type Row, readRow } from "./rows.ts";

export interface KeptRowsOptions {
  readonly disk: Disk;
  readonly env: Env;
  readonly places: Places;
  /** Which SQLite there is; looked for when it is first needed. */
  readonly sqlite?: () => OpenDatabase | undefined;
}

/** The rows as the owner knows them. */
export interface Known {
  readonly rows: ReadonlyMap<string, Row>;
  /** What the catalog holds is as good, and is kept instead. */
  adopt(path: string, row: Row): void;
}

/** Rows written in one transaction, and read without a pause. */
const ROWS_AT_ONCE = 200;
/** How often a catalog that turns out damaged is begun anew before this process goes without. */
const MOST_DAMAGE = 3;
/** Milliseconds after which a catalog that could not be opened is tried again. */
const TRY_AGAIN_AFTER = 5000;
/** Milliseconds for which a transaction waits for other processes: for what can be written later, and for what cannot. */
const PATIENCE = { rows: 300, texts: 10_000 };

export class KeptRows {
  /** What the catalog's file holds, as far as we know. */
  readonly indexed = new Map<string, Indexed>();

  private readonly options: KeptRowsOptions;
  private readonly known: Known;
  private readonly onReadAnew: () => void;
  private sqlite: OpenDatabase | undefined | null;
  private file: CatalogFile | undefined;
  private damages = 0;
  private tryAgainAt = Number.NEGATIVE_INFINITY;
  /** Paths whose rows are to be written, moved or dropped; undefined: compare all. */
  private changed: Set<string> | undefined;
  private readonly moves = new Map<string, string>();

  /** `onReadAnew` is called when what is indexed may be anything again. */
  constructor(options: KeptRowsOptions, known: Known, onReadAnew: () => void) {
    this.options = options;
    this.known = known;
    this.onReadAnew = onReadAnew;
  }

  get sqliteThere(): OpenDatabase | null {
    this.sqlite ??= (this.options.sqlite ?? findSqlite)() ?? null;
    return this.sqlite;
  }

  /**
   * Runs something on the catalog's file, opening it before. Undefined where there is none, and when it fails: then
   * the answer comes from the session files.
   */
  async with<T>(run: (file: CatalogFile) => Promise<T>): Promise<T | undefined> {
    const { env, places, disk } = this.options;
    if (this.sqlite === null || this.damages >= MOST_DAMAGE) return undefined;
    try {
      if (this.file && !this.file.isThere) this.leave();
      if (!this.file) {
        if (env.now() < this.tryAgainAt) return undefined;
        const sqlite = this.sqliteThere;
        if (!sqlite) return undefined;
        const root = places.flat ?? (places.root as string);
        const name = env.sha256(Buffer.from(root)).slice(0, 16);
        this.file = CatalogFile.open(sqlite, disk, join(places.state, "catalog"), name);
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
    this.onReadAnew();
  }

  /** A row is another one, or gone. */
  note(path: string, gone: boolean): void {
    this.changed?.add(path);
    if (gone) this.moves.delete(path);
  }

  noteMove(from: string, to: string): void {
    this.moves.set(to, from);
  }

  /** Looks for what another process wrote; `take` is given each row at the first call, when it answers so. */
  async load(file: CatalogFile, take: ((path: string, row: Row) => void) | undefined): Promise<void> {
    if (!file.changedElsewhere() && this.changed) return;
    this.readIndexed(file);
    if (!take) return;
    for (const records of file.records(ROWS_AT_ONCE)) {
      for (const { path, record, sum } of records) {
        const row = readRow(path, record, sum);
        if (row) take(path, row);
      }
      await pause();
    }
  }

  readIndexed(file: CatalogFile): void {
    this.forget();
    for (const { path, ...indexed } of file.files()) this.indexed.set(path, indexed);
  }

  /** Writes what the catalog does not hold yet. */
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
      // Another process found out the same in its own way: both are right, and one of them is kept.
      const theirs = readRow(path, there.record, there.sum);
      if (theirs && row.sure && theirs.size === row.size && sameStamp(theirs.stamp, row.stamp)) {
        this.known.adopt(path, theirs);
        return;
      }
    }
    const from = this.moves.get(path);
    if (from !== undefined && !rows.has(from)) file.move(from, path);
    file.keep(keptOf(row));
  }

  /** A transaction that waits for its turn among processes without holding this one up. */
  async write(file: CatalogFile, what: keyof typeof PATIENCE, run: () => void): Promise<void> {
    const until = performance.now() + PATIENCE[what];
    for (let tries = 1; ; tries++)
      try {
        file.write(run);
        return;
      } catch (error) {
        const { errcode } = error as { errcode?: number };
        if ((errcode ?? 0) % 256 !== BUSY || performance.now() >= until) throw error;
        // Not in step with the others that wait.
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
    // What the SQLite library throws of its own.
    /sqlite|database|statement/i.test(String(error))
  );
}
