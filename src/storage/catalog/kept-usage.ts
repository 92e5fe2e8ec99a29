/** Keeps the usage of sessions up to their files, in memory and in the catalog's file. */

import type { LackingSession, Progress } from "../../core/ports/catalog.ts";
import { pause } from "../fs/chunked-io.ts";
import type { CachedRows, CatalogOptions, SessionRow } from "./cached-rows.ts";
import type { CatalogFile } from "./database.ts";
import { countUsage, ModelNames, readUsage, type SessionUsage, usageRecord, usageState } from "./usage.ts";
import type { StoredUsage } from "./usage-table.ts";

/** Milliseconds of work without a pause. */
const SLICE = 8;
/** Sessions counted between writes of their usage. */
const SAVE_AFTER = 200;
/** Number of sessions from which on all stored usage is read at once. */
const MANY = 100;

interface Known {
  readonly state: string;
  readonly usage: SessionUsage;
}

export class KeptUsage {
  readonly models = new ModelNames();
  private readonly options: CatalogOptions;
  private readonly kept: CachedRows;
  private readonly known = new Map<string, Known>();

  constructor(options: CatalogOptions, kept: CachedRows) {
    this.options = options;
    this.kept = kept;
  }

  /** Returns the figures of a session; undefined when it could not be read as it is now. */
  figuresOf(row: SessionRow): SessionUsage | undefined {
    const known = this.known.get(row.listed.path);
    return known?.state === usageState(row) ? known.usage : undefined;
  }

  /** Returns how a session's figures may lack something; undefined when they do not. */
  lackOf(row: SessionRow): LackingSession | undefined {
    const damagedLines = this.figuresOf(row)?.damaged;
    return damagedLines === 0 ? undefined : { path: row.listed.path, listed: row.listed, damagedLines };
  }

  forget(path: string): void {
    this.known.delete(path);
  }

  /** Counts the usage of sessions, as far as it is not known. */
  async complete(rows: readonly SessionRow[], progress: Progress | undefined): Promise<void> {
    const isMissing = (row: SessionRow): boolean => this.figuresOf(row) === undefined;
    const unknown = rows.filter(isMissing);
    if (unknown.length === 0) return;
    await this.kept.with((file) => this.load(file, unknown));
    const missing = unknown.filter(isMissing);
    const step = Math.max(1, Math.ceil(missing.length / 100));
    const unsaved: SessionRow[] = [];
    let since = performance.now();
    for (const [i, row] of missing.entries()) {
      if (this.count(row)) unsaved.push(row);
      if (progress && missing.length > 1 && ((i + 1) % step === 0 || i + 1 === missing.length))
        progress(i + 1, missing.length);
      if (unsaved.length >= SAVE_AFTER) await this.save(unsaved.splice(0));
      if (performance.now() - since < SLICE) continue;
      await pause();
      since = performance.now();
    }
    if (unsaved.length > 0) await this.save(unsaved);
  }

  private count(row: SessionRow): boolean {
    const { path } = row.listed;
    try {
      const usage = countUsage(this.options, row, this.models, this.known.get(path)?.usage);
      this.known.set(path, { state: usageState(row), usage });
      return true;
    } catch {
      // It was removed or may not be read: the next call tries again, and this one names it.
      return false;
    }
  }

  /** Reads what the catalog's file has. Usage of an earlier state of a file is taken too: it can be continued. */
  private async load(file: CatalogFile, rows: readonly SessionRow[]): Promise<void> {
    const take = ({ path, state, record }: StoredUsage): void => {
      const usage = readUsage(record, this.models);
      if (usage) this.known.set(path, { state, usage });
    };
    const fresh = rows.filter(({ listed }) => !this.known.has(listed.path));
    if (fresh.length < MANY)
      for (const { listed } of fresh) {
        const stored = file.usage.of(listed.path);
        if (stored) take(stored);
      }
    else {
      const wanted = new Set(fresh.map(({ listed }) => listed.path));
      for (const stored of file.usage.all(SAVE_AFTER)) {
        for (const one of stored) if (wanted.has(one.path)) take(one);
        await pause();
      }
    }
  }

  private async save(rows: readonly SessionRow[]): Promise<void> {
    await this.kept.with((file) =>
      this.kept.write(file, "rows", () => {
        for (const { listed } of rows) {
          const { path } = listed;
          const known = this.known.get(path);
          if (known) file.usage.put({ path, state: known.state, record: usageRecord(known.usage, this.models) });
        }
      }),
    );
  }
}
