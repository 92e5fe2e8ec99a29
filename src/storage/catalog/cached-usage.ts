/** Keeps the usage of sessions up to their files, in memory and in the catalog's file. */

import { addTo } from "../../core/lists.ts";
import type { Listed, Progress } from "../../core/ports/catalog.ts";
import { assignHeirs, type CountedSession, countTakenOver } from "../../core/search/usage.ts";
import { pause } from "../fs/chunked-io.ts";
import { readClock } from "../fs/clock.ts";
import type { CachedRows, CatalogOptions } from "./cached-rows.ts";
import type { CatalogFile } from "./database.ts";
import type { SessionRow } from "./session-row.ts";
import { SLICE, visitInSlices } from "./slices.ts";
import { countUsage, getUsageState } from "./usage.ts";
import { ModelNames, readUsageRecord, type SessionUsage, writeUsageRecord } from "./usage-record.ts";
import type { StoredUsage } from "./usage-table.ts";

/** Sessions counted between writes of their usage. */
const SAVE_AFTER = 200;
/** Number of sessions from which on all stored usage is read at once. */
const MANY = 100;

/** A session whose usage is summed. */
export interface CountedRow {
  readonly listed: SessionRow;
  readonly usage: SessionUsage | undefined;
}

interface Known {
  readonly state: string;
  readonly usage: SessionUsage;
}

export class CachedUsage {
  readonly models = new ModelNames();
  private readonly options: CatalogOptions;
  private readonly kept: CachedRows;
  private readonly known = new Map<string, Known>();
  /** Usage of heirs, by the states of their families. */
  private readonly heirs = new Map<string, Map<string, SessionUsage>>();

  constructor(options: CatalogOptions, kept: CachedRows) {
    this.options = options;
    this.kept = kept;
  }

  forget(path: string): void {
    this.known.delete(path);
  }

  /** Returns the rows with their usage, except unreadable ones. */
  async complete(rows: readonly SessionRow[], progress: Progress | undefined): Promise<SessionRow[]> {
    if (rows.length === 0) return [];
    const isMissing = (row: SessionRow): boolean => this.known.get(row.path)?.state !== getUsageState(row);
    if (rows.some(isMissing)) await this.kept.with((file) => this.load(file, rows));
    const missing = rows.filter(isMissing);
    const step = Math.max(1, Math.ceil(missing.length / 100));
    const unsaved: SessionRow[] = [];
    let since = readClock();
    for (const [i, row] of missing.entries()) {
      if (this.count(row)) unsaved.push(row);
      if (progress && missing.length > 1 && ((i + 1) % step === 0 || i + 1 === missing.length))
        progress(i + 1, missing.length);
      if (unsaved.length >= SAVE_AFTER) await this.save(unsaved.splice(0));
      if (readClock() - since < SLICE) continue;
      await pause();
      since = readClock();
    }
    if (unsaved.length > 0) await this.save(unsaved);
    return rows.flatMap((row) => {
      const known = this.known.get(row.path);
      if (known?.state !== getUsageState(row)) return [];
      const { usage } = known;
      return [row.withUsage(usage)];
    });
  }

  /**
   * Returns the sessions, with forks as heirs if their original is gone and they have relatives. Their entries are
   * compared, and each counts once: in the session that made it or, if that is gone, in the fork that copied most.
   */
  async withHeirs(
    sessions: readonly CountedRow[],
    hasOriginal: (listed: Listed) => boolean,
  ): Promise<readonly CountedSession[]> {
    const families = new Map<string, SessionRow[]>();
    for (const { listed, usage } of sessions) if (usage && usage.first !== null) addTo(families, usage.first, listed);
    const heirs = new Map<string, SessionUsage>();
    for (const family of families.values()) {
      if (family.length === 1) continue;
      const orphans = family.filter(
        (row) => row.parentSession !== null && row.usage && countTakenOver(row.usage) > 0 && !hasOriginal(row),
      );
      if (orphans.length === 0) continue;
      const state = family.map((row) => `${row.path}\n${getUsageState(row)}`).join("\n");
      let counted = this.heirs.get(state);
      if (!counted) {
        counted = await this.countFamily(family, orphans);
        if (this.heirs.size >= MANY) this.heirs.clear();
        this.heirs.set(state, counted);
      }
      for (const [path, usage] of counted) heirs.set(path, usage);
    }
    const related = sessions.map(({ listed, usage }) => ({ listed, usage: heirs.get(listed.path) ?? usage }));
    return assignHeirs(related, (listed) => heirs.has(listed.path) || hasOriginal(listed));
  }

  /** Returns the usage of the orphans, as heirs, by path. Others have their turn after each session. */
  private async countFamily(
    family: readonly SessionRow[],
    orphans: readonly SessionRow[],
  ): Promise<Map<string, SessionUsage>> {
    const ids = new Set<unknown>();
    const heirs = new Map<string, SessionUsage>();
    const count = async (row: SessionRow, isHeir: boolean): Promise<SessionUsage> => {
      await pause();
      return countUsage(this.options, row, this.models, undefined, { ids, isHeir });
    };
    const most = orphans.toSorted((a, b) => countTakenOver(b.usage) - countTakenOver(a.usage));
    try {
      for (const row of family) await count(row, false);
      for (const row of most) heirs.set(row.path, await count(row, true));
    } catch {
      // One of them was removed or may not be read: the next call lists them anew.
    }
    return heirs;
  }

  private count(row: SessionRow): boolean {
    const { path } = row;
    try {
      const usage = countUsage(this.options, row, this.models, this.known.get(path)?.usage);
      this.known.set(path, { state: getUsageState(row), usage });
      return true;
    } catch {
      // It was removed or may not be read: the next call tries again, and this one names it.
      return false;
    }
  }

  /** Reads the usage in the catalog's file. Usage of an earlier state of a file is taken too: it can be continued. */
  private async load(file: CatalogFile, rows: readonly SessionRow[]): Promise<void> {
    const take = ({ path, state, record }: StoredUsage): void => {
      const usage = readUsageRecord(record, this.models);
      if (usage) this.known.set(path, { state, usage });
    };
    const fresh = rows.filter(({ path }) => !this.known.has(path));
    if (fresh.length < MANY)
      for (const { path } of fresh) {
        const stored = file.usage.of(path);
        if (stored) take(stored);
      }
    else {
      const wanted = new Set(fresh.map(({ path }) => path));
      for (const stored of file.usage.all(SAVE_AFTER)) {
        for (const one of stored) if (wanted.has(one.path)) take(one);
        await pause();
      }
    }
  }

  private async save(rows: readonly SessionRow[]): Promise<void> {
    await this.kept.with((file) =>
      this.kept.write(file, "rows", () =>
        visitInSlices(rows, ({ path }) => {
          const known = this.known.get(path);
          if (known) file.usage.put({ path, state: known.state, record: writeUsageRecord(known.usage, this.models) });
        }),
      ),
    );
  }
}
