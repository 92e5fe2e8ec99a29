/**
 * Finds sessions and what was said in them: the truth is in the session files, which are looked at on every call; what
 * was found out before is kept in memory and, where there is SQLite, in the catalog.
 */

import { join } from "node:path";
import type { Env } from "../env.ts";
import { Failure } from "../failure.ts";
import {
  type Catalog,
  chosen,
  comparing,
  familyOf,
  type Hit,
  type Listed,
  type ListWish,
  type Order,
  type Progress,
  parentsOf,
  type Relative,
  type SearchWish,
} from "../finding.ts";
import type { LeafMemory } from "../session.ts";
import { parseQuery } from "../terms.ts";
import {
  CatalogDamaged,
  CatalogFile,
  findSqlite,
  type Indexed,
  isPassing,
  type Kind,
  type NewText,
  type OpenDatabase,
  writeIndex,
} from "./catalog.ts";
import { type Disk, storageFailure } from "./disk.ts";
import { scanFile } from "./figures.ts";
import { Folders, pause, type Stamp, sameStamp } from "./folders.ts";
import type { Places } from "./paths.ts";
import { keptOf, type Row, readRow, rowOf, stateOf } from "./rows.ts";
import { Search } from "./search.ts";
import type { Log } from "./store.ts";
import { KIND_OF_ROLE, logTexts, type Said, scanTexts, tokensOf } from "./texts.ts";

export interface FinderOptions {
  readonly disk: Disk;
  readonly env: Env;
  readonly places: Places;
  readonly leaves: LeafMemory;
  /** Opens a session file for reading. */
  readonly openLog: (file: string) => Log;
  /** Which SQLite there is; looked for when it is first needed. */
  readonly sqlite?: () => OpenDatabase | undefined;
  /** Files from which on folders are watched instead of asked about. */
  readonly watchFrom?: number;
}

/** Milliseconds within which a file can change twice under one time stamp. */
const TICK = 50;
const CLOCKS_APART = 60_000;
/** A file up to this size is read again when that may have happened. */
const CHEAP = 4 << 20;
/** Milliseconds without a pause. */
const SLICE = 8;
/** Rows written in one transaction. */
const ROWS_AT_ONCE = 200;
/** Characters of tokens written in one transaction, and files whose texts are. */
const TOKENS_AT_ONCE = 1 << 20;
const FILES_AT_ONCE = 100;
/** Times a search looks for a moment in which the index is complete. */
const TRIES = 20;
/** Turns beyond one for each file. */
const MOST_AGAIN = 100_000;
/** How often a catalog that turns out damaged is begun anew before this process goes without. */
const MOST_DAMAGE = 3;
/** Milliseconds after which a catalog that could not be opened is tried again. */
const TRY_AGAIN_AFTER = 5000;
/** Milliseconds for which a transaction waits for other processes: for what can be written later, and for what cannot. */
const PATIENCE = { rows: 300, texts: 10_000 };

export function makeCatalog(options: FinderOptions): Catalog {
  return new Finder(options);
}

class Finder implements Catalog {
  private readonly options: FinderOptions;
  private readonly disk: Disk;
  private readonly folders: Folders;
  private readonly rows = new Map<string, Row>();
  /** Files that are no sessions, as they were when that was found. */
  private readonly others = new Map<string, Stamp>();
  private readonly ordered = new Map<Order, Listed[]>();
  /** Whether the folders have been looked at. */
  private looked = false;
  /** One call works at a time. */
  private last: Promise<unknown> = Promise.resolve();

  private sqlite: OpenDatabase | undefined | null;
  private file: CatalogFile | undefined;
  private damages = 0;
  private tryAgainAt = Number.NEGATIVE_INFINITY;
  /** What the catalog's file holds, as far as we know. */
  private indexed = new Map<string, Indexed>();
  /** Paths whose rows are to be written, moved or dropped; undefined: compare all. */
  private changed: Set<string> | undefined;
  private moved = new Map<string, string>();
  /** Paths whose texts may not be indexed as they are; a kind that is missing: all. */
  private stale = new Map<Kind, Set<string>>();

  constructor(options: FinderOptions) {
    this.options = options;
    this.disk = options.disk;
    this.folders = new Folders(options.disk, options.places, () => options.env.now(), options.watchFrom);
  }

  list(wish: ListWish, progress?: Progress): Promise<{ found: Listed[]; total: number }> {
    return this.inTurn(async () => {
      await this.refresh(progress);
      return chosen(this.order(wish.sort ?? "modified"), wish);
    });
  }

  search(wish: SearchWish, progress?: Progress): Promise<{ hits: Hit[]; more: boolean }> {
    return this.inTurn(async () => {
      const query = parseQuery(wish.query);
      if (!query) return { hits: [], more: false };
      const search = new Search({ ...this.options, rows: this.rows }, wish, query);
      await this.refresh(progress);
      const kinds = search.kinds;
      const found = await this.withFile(async (file) => {
        for (let tries = 0; tries < TRIES; tries++) {
          for (const kind of kinds) if (!(await this.index(file, kind, progress))) return undefined;
          const found = await file.reading(async () => {
            if (file.changedElsewhere()) this.readIndexed(file);
            return kinds.some((kind) => this.unindexed(kind).length > 0) ? undefined : search.indexed(file);
          });
          if (found) return found;
        }
        return undefined;
      });
      return found ?? search.scanned(this.order("modified"));
    });
  }

  family(
    of: { id: string; beside?: Relative },
    progress?: Progress,
  ): Promise<{ root: string | null; nodes: Relative[] }> {
    return this.inTurn(async () => {
      await this.refresh(progress);
      const sessions: Relative[] = this.order("created").map(({ path, id, parentSession }) => ({
        path,
        id,
        parentSession,
      }));
      const { beside } = of;
      if (beside && !sessions.some(({ path }) => path === beside.path)) sessions.push(beside);
      const start =
        sessions.find(({ path, id }) => id === of.id && path === (beside?.path ?? path)) ??
        sessions.find(({ id }) => id === of.id);
      if (!start)
        throw new Failure(
          "session_not_found",
          `No session has the id ${of.id}. list_sessions shows those that exist.`,
          {
            sessionId: of.id,
          },
        );
      const parents = parentsOf(sessions);
      const { root, members } = familyOf(sessions, parents, start);
      const nodes: Relative[] = [];
      for (const member of members) {
        const parent = parents.get(member);
        const forkedAtEntryId = parent && this.forkedAt(parent.path, member.path);
        nodes.push(forkedAtEntryId === undefined ? member : { ...member, forkedAtEntryId });
        await pause();
      }
      return { root: root?.id ?? null, nodes };
    });
  }

  exportIndex(file: string): Promise<number> {
    return this.inTurn(async () => {
      await this.refresh();
      this.sqlite ??= (this.options.sqlite ?? findSqlite)() ?? null;
      if (!this.sqlite)
        throw new Failure(
          "storage_failed",
          "An index needs SQLite. Use Node 22.5 or newer, or install the optional dependency @photostructure/sqlite.",
          {},
          { retryable: false },
        );
      try {
        writeIndex(this.sqlite, this.disk, file, [...this.rows.values()].map(keptOf));
        return this.rows.size;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw storageFailure(error, "writing the index");
        throw new Failure("already_exists", `There is a file at ${file} already. Choose another path.`, { path: file });
      }
    });
  }

  close(): void {
    this.folders.close();
    this.file?.close();
    this.file = undefined;
  }

  private inTurn<T>(run: () => Promise<T>): Promise<T> {
    const result = this.last.then(run);
    this.last = result.catch(() => {});
    return result;
  }

  private order(order: Order): Listed[] {
    let ordered = this.ordered.get(order);
    if (!ordered) {
      ordered = [...this.rows.values()].map(({ listed }) => listed).sort(comparing(order));
      this.ordered.set(order, ordered);
    }
    return ordered;
  }

  /** The last entry that a fork took over from its parent. */
  private forkedAt(parent: string, child: string): string | undefined {
    const logs: Log[] = [];
    try {
      for (const path of [parent, child]) logs.push(this.options.openLog(path));
      const [above, below] = logs.map(({ nodes }) => nodes);
      let shared = 0;
      while (shared < below.count && above.position(below.id(shared)) >= 0) shared++;
      return shared === 0 ? undefined : below.id(shared - 1);
    } catch {
      // One of them went away, or cannot be read: the family is told without it.
      return undefined;
    } finally {
      for (const log of logs) log.close();
    }
  }

  // --- what the files tell -------------------------------------------------------------------------------------

  /** Afterwards the rows are what a scan of every file would give. */
  private async refresh(progress?: Progress): Promise<void> {
    await this.withFile((file) => this.load(file));
    const { there, gone } = await this.folders.look();
    const vanished = new Map<string, Row>();
    const forget = (path: string): void => {
      const row = this.rows.get(path);
      this.others.delete(path);
      if (!row) return;
      vanished.set(keyOf(row.stamp), row);
      this.put(path, undefined);
    };
    for (const path of gone) forget(path);
    if (!this.looked) for (const path of [...this.rows.keys()]) if (!there.has(path)) forget(path);
    this.looked = true;
    const changed: [string, Stamp][] = [];
    for (const [path, stamp] of there) {
      const row = this.rows.get(path);
      const known = row ? (row.sure ? row.stamp : undefined) : this.others.get(path);
      if (known === undefined || !sameStamp(known, stamp)) changed.push([path, stamp]);
    }
    await this.scan(changed, vanished, progress);
    await this.withFile((file) => this.save(file));
  }

  private async scan(
    changed: readonly [string, Stamp][],
    vanished: ReadonlyMap<string, Row>,
    progress: Progress | undefined,
  ): Promise<void> {
    const step = Math.max(1, Math.ceil(changed.length / 100));
    let since = performance.now();
    for (const [i, [path, stamp]] of changed.entries()) {
      const moved = vanished.get(keyOf(stamp));
      if (moved?.sure) {
        this.put(path, rowOf(path, { ...moved, stamp }));
        this.moved.set(path, moved.listed.path);
      } else this.scanOne(path, stamp);
      if (progress && changed.length > 1 && ((i + 1) % step === 0 || i + 1 === changed.length))
        progress(i + 1, changed.length);
      if (performance.now() - since < SLICE) continue;
      // A long build is worth keeping even if it is not finished.
      if (i % ROWS_AT_ONCE === 0) await this.withFile((file) => this.save(file));
      await pause();
      since = performance.now();
    }
  }

  private scanOne(path: string, stamp: Stamp): void {
    const before = this.rows.get(path);
    const { now } = this.options.env;
    const age = now() - stamp.changed;
    // Where the file's clock is far ahead of ours, they say nothing about each other.
    const sure = age >= TICK || age < -CLOCKS_APART;
    const same = before !== undefined && before.stamp.inode === stamp.inode && before.stamp.device === stamp.device;
    const grown =
      same && (stamp.size > before.size || (sameStamp(before.stamp, stamp) && before.size > CHEAP && !before.sure));
    let scan: ReturnType<typeof scanFile>;
    try {
      scan = scanFile(this.disk, path, grown ? before.base : undefined);
    } catch {
      // It went away, or may not be read: the next look asks again.
      this.put(path, undefined);
      return;
    }
    if (!scan) {
      this.put(path, undefined);
      if (sure) this.others.set(path, stamp);
      return;
    }
    this.others.delete(path);
    const life = scan.grown && before ? before.life : `${stamp.device}.${stamp.inode}.${stamp.changed}`;
    this.put(path, rowOf(path, { stamp, base: scan.base, now: scan.now, size: scan.size, life, sure }));
  }

  private put(path: string, row: Row | undefined): void {
    if (row) this.rows.set(path, row);
    else if (!this.rows.delete(path)) return;
    this.ordered.clear();
    this.changed?.add(path);
    for (const paths of this.stale.values()) paths.add(path);
    if (!row) this.moved.delete(path);
  }

  // --- what is kept --------------------------------------------------------------------------------------------

  /**
   * Runs something on the catalog's file, opening it before. Undefined where there is none, and when it fails: then
   * the answer comes from the session files.
   */
  private async withFile<T>(run: (file: CatalogFile) => Promise<T>): Promise<T | undefined> {
    const { env, places } = this.options;
    if (this.sqlite === null || this.damages >= MOST_DAMAGE) return undefined;
    try {
      if (this.file && !this.file.isThere) this.leaveFile();
      if (!this.file) {
        if (env.now() < this.tryAgainAt) return undefined;
        this.sqlite ??= (this.options.sqlite ?? findSqlite)() ?? null;
        if (!this.sqlite) return undefined;
        const root = places.flat ?? (places.root as string);
        const name = env.sha256(Buffer.from(root)).slice(0, 16);
        this.file = CatalogFile.open(this.sqlite, this.disk, join(places.state, "catalog"), name);
        this.changed = undefined;
      }
      return await run(this.file);
    } catch (error) {
      if (!isStorageError(error)) throw error;
      const file = this.file;
      this.leaveFile();
      if (isPassing(error)) this.tryAgainAt = env.now() + TRY_AGAIN_AFTER;
      else {
        this.damages++;
        file?.discard();
      }
      return undefined;
    }
  }

  private leaveFile(): void {
    this.file?.close();
    this.file = undefined;
    this.changed = undefined;
    this.indexed.clear();
    this.stale.clear();
  }

  /** Takes in what the catalog holds, at the first call and where another process wrote. */
  private async load(file: CatalogFile): Promise<void> {
    if (!file.changedElsewhere() && this.changed) return;
    this.readIndexed(file);
    if (this.looked) return;
    let count = 0;
    for (const { path, record, sum } of file.records()) {
      const row = readRow(path, record, sum);
      if (row && !this.rows.has(path)) this.rows.set(path, row);
      if (++count % ROWS_AT_ONCE === 0) await pause();
    }
    this.ordered.clear();
  }

  private readIndexed(file: CatalogFile): void {
    this.indexed.clear();
    for (const { path, ...indexed } of file.files()) this.indexed.set(path, indexed);
    this.changed = undefined;
    this.stale.clear();
  }

  /** Writes what the catalog does not hold yet. */
  private async save(file: CatalogFile): Promise<void> {
    if (file.changedElsewhere()) this.readIndexed(file);
    const among = this.changed ?? new Set([...this.rows.keys(), ...this.indexed.keys()]);
    const differing = [...among].filter((path) => this.rows.get(path)?.sum !== this.indexed.get(path)?.sum);
    for (let i = 0; i < differing.length; i += ROWS_AT_ONCE) {
      const paths = differing.slice(i, i + ROWS_AT_ONCE);
      await this.write(file, PATIENCE.rows, () => {
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
    this.moved.clear();
  }

  private saveOne(file: CatalogFile, path: string): void {
    const row = this.rows.get(path);
    if (!row) {
      file.drop(path);
      return;
    }
    const there = file.record(path);
    if (there !== undefined) {
      // Another process found out the same in its own way: both are right, and one of them is kept.
      const theirs = readRow(path, there.record, there.sum);
      if (theirs && row.sure && theirs.size === row.size && sameStamp(theirs.stamp, row.stamp)) {
        this.put(path, theirs);
        return;
      }
    }
    const from = this.moved.get(path);
    if (from !== undefined && !this.rows.has(from)) file.move(from, path);
    file.keep(keptOf(row));
  }

  /** A transaction that waits for its turn among processes without holding this one up. */
  private async write(file: CatalogFile, patience: number, run: () => void): Promise<void> {
    const until = performance.now() + patience;
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

  // --- what is indexed -----------------------------------------------------------------------------------------

  private unindexed(kind: Kind): string[] {
    const paths: string[] = [];
    for (const path of this.stale.get(kind) ?? this.rows.keys()) {
      const row = this.rows.get(path);
      if (row && this.indexed.get(path)?.[kind] !== stateOf(row)) paths.push(path);
    }
    return paths;
  }

  /** Brings the index of texts up to the rows. False when others keep writing to the catalog. */
  private async index(file: CatalogFile, kind: Kind, progress: Progress | undefined): Promise<boolean> {
    const todo = this.unindexed(kind);
    // Processes that do this at the same time begin in different places and so share the work.
    if (todo.length > FILES_AT_ONCE) todo.push(...todo.splice(0, (process.pid * 7919) % todo.length));
    const total = todo.length;
    let done = 0;
    let told = 0;
    let since = performance.now();
    let batch: Indexing[] = [];
    const flush = async (): Promise<void> => {
      if (batch.length === 0) return;
      const making = batch;
      batch = [];
      await this.write(file, PATIENCE.texts, () => {
        for (const one of making) {
          const there = file.indexed(one.path);
          // Another process was faster.
          if (there?.id !== one.known.id || there[kind] !== one.known[kind]) continue;
          file.putTexts(one.known.id, kind, one.from, one.texts, one.state);
        }
      });
      for (const { path } of making) {
        const now = file.indexed(path);
        if (now) this.indexed.set(path, now);
        const row = this.rows.get(path);
        if (row && now && now[kind] !== stateOf(row)) {
          todo.push(path);
          again++;
        }
      }
    };
    let size = 0;
    let again = 0;
    while (todo.length > 0 || batch.length > 0) {
      const path = todo.shift();
      const row = path === undefined ? undefined : this.rows.get(path);
      if (path !== undefined && row) {
        const known = file.indexed(path);
        if (!known) {
          // The row itself is not written yet, which another process has to do with; then it is looked for again.
          if (++again > total + MOST_AGAIN) return false;
          this.changed?.add(path);
          await this.save(file);
          if (file.indexed(path)) todo.push(path);
          continue;
        }
        if (known[kind] === stateOf(row)) this.indexed.set(path, known);
        else {
          const indexing = this.textsOf(path, row, kind, known);
          if (indexing) {
            batch.push(indexing);
            size += indexing.size;
          } else this.indexed.set(path, { ...known, [kind]: stateOf(row) });
        }
      }
      if (size >= TOKENS_AT_ONCE || batch.length >= FILES_AT_ONCE || todo.length === 0) {
        await flush();
        size = 0;
      }
      // Very long sessions take many turns; what takes more is a quarrel between processes.
      if (again > total + MOST_AGAIN) return false;
      done = Math.max(done, total - todo.length);
      if (progress && total > 1 && done - told >= Math.max(1, total / 100)) {
        told = done;
        progress(done, total);
      }
      if (performance.now() - since < SLICE) continue;
      await pause();
      since = performance.now();
    }
    this.stale.set(kind, new Set());
    return true;
  }

  /** The rows of the index that a file needs; undefined when it cannot be read now. */
  private textsOf(path: string, row: Row, kind: Kind, known: Indexed): Indexing | undefined {
    const [life, plain, reach] = known[kind].split(" ");
    const goesOn = row.now.plain && life === row.life && plain === "p";
    const from = goesOn ? Math.min(Number(reach), row.base.reach) : -1;
    const texts: NewText[] = [];
    let size = 0;
    const take = (said: Said): void => {
      const text = tokensOf(said);
      texts.push(text);
      size += text.tokens.length;
    };
    let state = stateOf(row);
    try {
      if (row.now.plain)
        scanTexts(
          this.disk,
          path,
          Math.max(0, from),
          row.size,
          (role) => KIND_OF_ROLE[role] === kind,
          (said, lineEnd) => {
            take(said);
            if (size < TOKENS_AT_ONCE) return true;
            // The rest of a very long session is another turn's work.
            state = `${row.life} p ${lineEnd} part`;
            return false;
          },
        );
      else
        this.readLog(path, (log) => {
          for (const said of logTexts(log, (role) => KIND_OF_ROLE[role] === kind)) take(said);
        });
    } catch {
      // It is gone or may not be read; the next look at the folders finds that out.
      return undefined;
    }
    return { path, known, from, texts, state, size };
  }

  private readLog<T>(path: string, read: (log: Log) => T): T {
    const log = this.options.openLog(path);
    try {
      return read(log);
    } finally {
      log.close();
    }
  }
}

const BUSY = 5;

interface Indexing {
  readonly path: string;
  readonly known: Indexed;
  /** What is indexed from this offset on is replaced. */
  readonly from: number;
  readonly texts: readonly NewText[];
  readonly state: string;
  readonly size: number;
}

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

function keyOf({ device, inode, size, modified, changed }: Stamp): string {
  return `${device} ${inode} ${size} ${modified} ${changed}`;
}
