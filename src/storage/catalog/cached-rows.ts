/**
 * Rows: the stamps of session files when they were read, and their summaries. The catalog's file keeps them: it is
 * opened when it is first needed, and discarded when damaged.
 */

import { sep } from "node:path";
import type { Listed } from "../../core/ports/catalog.ts";
import type { Env } from "../../core/ports/env.ts";
import type { Log } from "../../core/ports/store.ts";
import type { LeafMemory } from "../../core/ports/stores.ts";
import { momentOf } from "../../core/search/listing.ts";
import type { AgentSessions } from "../foreign/store.ts";
import { pause } from "../fs/chunked-io.ts";
import { isContainerName } from "../fs/container-paths.ts";
import type { Disk } from "../fs/disk.ts";
import { archiveFolder, type StoragePaths } from "../fs/paths.ts";
import { findSqlite, type OpenDatabase } from "../fs/sqlite.ts";
import { type FoundStamp, isSameStamp } from "../fs/stamps.ts";
import { CatalogFile, type CatalogRow, type Indexed, isPassing, type StoredRow, sumOf } from "./database.ts";
import { CatalogDamaged, placeOf } from "./database-files.ts";
import { modifiedAt, type SessionSummary } from "./summary.ts";
import type { TextKind } from "./text-table.ts";
import type { SessionUsage } from "./usage-record.ts";

/** Rows written in one transaction, and read without a pause. */
const ROWS_AT_ONCE = 200;
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
  /** Whether texts are indexed after a list, before the first search. */
  readonly indexAhead?: boolean;
  /** Other agents' sessions, which this catalog has in the place of ours. */
  readonly agents?: AgentSessions;
  /** Whether an index that is written for scripts is durable when `exportIndex` resolves. */
  readonly isDurable?: boolean;
}

/** A session file as it was read. */
export interface SessionRow {
  readonly stamp: FoundStamp;
  /** Time of the last change of the session, in milliseconds. */
  readonly time: number;
  readonly base: SessionSummary;
  readonly now: SessionSummary;
  readonly size: number;
  /** An id that changes when the file is rewritten, which invalidates its index. */
  readonly life: string;
  /** Whether the file cannot have changed since without a change of its stamp. */
  readonly sure: boolean;
  readonly listed: Listed;
  /** Its usage, once that is counted. */
  readonly usage?: SessionUsage;
  /** Checksum of its row in the catalog. */
  readonly sum: string;
}

type SessionFacts = Omit<SessionRow, "listed" | "sum">;

/** Returns the row as the catalog stores it. */
export function keptOf({ stamp, time, base, now, size, life, sure, listed }: Omit<SessionRow, "sum">): CatalogRow {
  const { path } = listed;
  return {
    path,
    session: storable(now.id),
    cwd: storable(now.cwd),
    timestamp: storable(now.timestamp),
    messages: now.messages,
    // pi_agent_rust compares it with the time of the file in whole milliseconds.
    modified: Math.floor(time),
    size,
    name: storable(now.name),
    record: JSON.stringify({
      // A file that may have changed under the same stamp is stored with a stamp that never matches.
      stamp: sure ? stamp : { ...stamp, changed: -1 },
      time,
      base,
      now: JSON.stringify(base) === JSON.stringify(now) ? undefined : now,
      size,
      life,
    }),
  };
}

/** Returns a text as SQLite would return it; the record has the original. */
function storable<T extends string | null>(text: T): T {
  return (text === null ? null : Buffer.from(text).toString().replaceAll("\0", " ")) as T;
}

/** Returns the index state of a row whose texts are all indexed. */
export function stateOf({ life, now, base, size }: SessionRow): string {
  return `${life} ${now.plain ? "p" : "l"} ${base.reach} ${size}`;
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
    this.archive = `${archiveFolder(options.paths)}${sep}`;
  }

  rowOf(path: string, facts: SessionFacts): SessionRow {
    const row = { ...facts, listed: this.listedOf(path, facts) };
    return { ...row, sum: sumOf(keptOf(row)) };
  }

  /** Parses a row that was stored with this sum; undefined when it is not valid. */
  private readRow({ path, record, sum }: StoredRow): SessionRow | undefined {
    try {
      const { stamp, time, base, now = base, size, life } = JSON.parse(record);
      // Older servers did not store it.
      if (typeof time !== "number") return undefined;
      const facts = { stamp, time, base, now, size, life, sure: true };
      return { ...facts, listed: this.listedOf(path, facts), sum };
    } catch {
      return undefined;
    }
  }

  /** Returns a session as the catalog has it; undefined when it is not known with this stamp. */
  stored(file: CatalogFile, path: string, stamp: FoundStamp): Listed | undefined {
    const there = file.row(path);
    const row = there && this.readRow(there);
    return row && isSameStamp(row.stamp, stamp) ? row.listed : undefined;
  }

  private listedOf(path: string, { now, size, usage }: SessionFacts): Listed {
    return {
      path,
      id: now.id,
      cwd: now.cwd,
      name: now.name,
      parentSession: now.parentSession,
      created: momentOf(now.timestamp),
      modified: modifiedAt(now),
      messageCount: now.messages,
      firstMessage: now.first,
      sizeBytes: size,
      headerOnly: now.entries === 0,
      archived: path.startsWith(this.archive),
      store: now.agent !== undefined ? "foreign" : isContainerName(path) ? "v2" : "jsonl",
      agent: now.agent,
      cost: usage?.cost,
    };
  }

  get sqliteThere(): OpenDatabase | null {
    this.sqlite ??= (this.options.sqlite ?? findSqlite)() ?? null;
    return this.sqlite;
  }

  /** Runs `run` on the catalog's file. Returns undefined without one: then callers read the session files instead. */
  async with<T>(run: (file: CatalogFile) => Promise<T>): Promise<T | undefined> {
    const { env, paths, disk } = this.options;
    if (this.sqlite === null || this.damages >= MAX_DAMAGE) return undefined;
    try {
      if (this.file && !this.file.isThere) this.leave();
      if (!this.file) {
        if (env.now() < this.tryAgainAt) return undefined;
        const sqlite = this.sqliteThere;
        if (!sqlite) return undefined;
        const { folder, name } = placeOf(paths, env);
        this.file = CatalogFile.open(sqlite, disk, folder, name);
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
    if (!file.changedElsewhere() && this.changed) return;
    if (!andRows) return this.readIndexed(file);
    this.forget();
    for (const stored of file.allRows(ROWS_AT_ONCE)) {
      for (const one of stored) {
        const { id, path, sum, talk, tools, calls } = one;
        this.indexed.set(path, { id, path, sum, talk, tools, calls });
        const row = this.readRow(one);
        if (row && !this.rows.has(one.path)) this.rows.set(one.path, row);
      }
      await pause();
    }
  }

  readIndexed(file: CatalogFile): void {
    this.forget();
    for (const indexed of file.allIndexed()) this.indexed.set(indexed.path, indexed);
  }

  /** Writes rows that differ from the catalog. */
  async save(file: CatalogFile): Promise<void> {
    const { rows } = this;
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
    const row = this.rows.get(path);
    if (!row) return file.drop(path);
    const there = file.row(path);
    const theirs = there && this.readRow(there);
    // Another process scanned the same file: both rows are correct, and its row is kept.
    if (theirs && row.sure && theirs.size === row.size && isSameStamp(theirs.stamp, row.stamp))
      return this.adopt(path, theirs);
    const from = this.moves.get(path);
    if (from !== undefined && !this.rows.has(from)) file.move(from, path);
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
