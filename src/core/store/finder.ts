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
  expired,
  familyOf,
  type Hit,
  type Listed,
  type ListWish,
  type Order,
  type Progress,
  packed,
  parentsOf,
  type Relative,
  type SearchWish,
  unpacked,
} from "../finding.ts";
import { type LeafMemory, Session } from "../session.ts";
import { expressionOf, fold, holds, parseQuery, type Query, score, snippet } from "../terms.ts";
import {
  CatalogDamaged,
  CatalogFile,
  findSqlite,
  type Indexed,
  isPassing,
  type Kept,
  type Kind,
  type NewText,
  type Numbered,
  type OpenDatabase,
  sumOf,
  writeIndex,
} from "./catalog.ts";
import { closeQuietly, type Disk, storageFailure } from "./disk.ts";
import { type Figures, moment, scanFile } from "./figures.ts";
import { Folders, pause, type Stamp, sameStamp } from "./folders.ts";
import type { Places } from "./paths.ts";
import type { Log } from "./store.ts";
import { KIND_OF_ROLE, logTexts, readSaid, type Said, saidAt, scanTexts, tokensOf } from "./texts.ts";

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

/** A session file as we know it. */
interface Row {
  readonly stamp: Stamp;
  readonly base: Figures;
  readonly now: Figures;
  readonly size: number;
  /** Another one when the file was written anew: what is indexed of it counts no more. */
  readonly life: string;
  /** Nothing can have changed it since without changing its stamp. */
  readonly sure: boolean;
  readonly listed: Listed;
  readonly kept: Kept;
  readonly sum: string;
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
      const search = new Search(this, wish, query);
      await this.refresh(progress);
      const kinds = search.kinds;
      const found = await this.withFile(async (file) => {
        for (const kind of kinds) if (!(await this.index(file, kind, progress))) return undefined;
        return search.indexed(file);
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

  exportIndex(file: string): Promise<void> {
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
        writeIndex(
          this.sqlite,
          this.disk,
          file,
          [...this.rows.values()].map(({ kept }) => kept),
        );
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

  row(path: string): Row | undefined {
    return this.rows.get(path);
  }

  get world(): FinderOptions {
    return this.options;
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
        this.put(path, rowOf(path, stamp, moved.base, moved.now, moved.size, moved.life, true));
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
    this.put(path, rowOf(path, stamp, scan.base, scan.now, scan.size, life, sure));
  }

  private put(path: string, row: Row | undefined): void {
    if (row) this.rows.set(path, row);
    else if (!this.rows.delete(path)) return;
    this.ordered.clear();
    this.changed?.add(path);
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
  }

  /** Takes in what the catalog holds, at the first call and where another process wrote. */
  private async load(file: CatalogFile): Promise<void> {
    if (!file.changedElsewhere() && this.changed) return;
    this.indexed.clear();
    for (const { path, ...indexed } of file.files()) this.indexed.set(path, indexed);
    this.changed = undefined;
    if (this.looked) return;
    let count = 0;
    for (const { path, record } of file.records()) {
      const row = readRow(path, record);
      if (row && !this.rows.has(path)) this.rows.set(path, row);
      if (++count % ROWS_AT_ONCE === 0) await pause();
    }
    this.ordered.clear();
  }

  /** Writes what the catalog does not hold yet. */
  private async save(file: CatalogFile): Promise<void> {
    if (file.changedElsewhere()) {
      this.indexed.clear();
      for (const { path, ...indexed } of file.files()) this.indexed.set(path, indexed);
      this.changed = undefined;
    }
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
      const theirs = readRow(path, there);
      if (theirs && row.sure && theirs.size === row.size && sameStamp(theirs.stamp, row.stamp)) {
        this.rows.set(path, theirs);
        this.ordered.clear();
        return;
      }
    }
    const from = this.moved.get(path);
    if (from !== undefined && !this.rows.has(from)) file.move(from, path);
    file.keep(row.kept);
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

  /** Brings the index of texts up to the rows. False when others keep writing to the catalog. */
  private async index(file: CatalogFile, kind: Kind, progress: Progress | undefined): Promise<boolean> {
    const todo: string[] = [];
    for (const [path, row] of this.rows) if (this.indexed.get(path)?.[kind] !== stateOf(row)) todo.push(path);
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
        if (row && now && now[kind] !== stateOf(row)) todo.push(path);
      }
    };
    let size = 0;
    let rounds = 0;
    while (todo.length > 0 || batch.length > 0) {
      const path = todo.shift();
      const row = path === undefined ? undefined : this.rows.get(path);
      if (path !== undefined && row) {
        const known = file.indexed(path);
        if (!known) {
          // The row itself is not written yet, which another process has to do with; then it is looked for again.
          if (++rounds > total + FILES_AT_ONCE) return false;
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
      done = Math.max(done, total - todo.length);
      if (progress && total > 1 && done - told >= Math.max(1, total / 100)) {
        told = done;
        progress(done, total);
      }
      if (performance.now() - since < SLICE) continue;
      await pause();
      since = performance.now();
    }
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

  readLog<T>(path: string, read: (log: Log) => T): T {
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

/** How the index of a row's texts is called when it is complete. */
function stateOf({ life, now, base, size }: Row): string {
  return `${life} ${now.plain ? "p" : "l"} ${base.reach} ${size}`;
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

function rowOf(
  path: string,
  stamp: Stamp,
  base: Figures,
  now: Figures,
  size: number,
  life: string,
  sure: boolean,
): Row {
  const created = moment(now.timestamp);
  const listed: Listed = {
    path,
    id: now.id,
    cwd: now.cwd,
    name: now.name,
    parentSession: now.parentSession,
    created,
    modified: now.activity ?? created,
    messageCount: now.messages,
    firstMessage: now.first,
    sizeBytes: size,
    headerOnly: now.entries === 0,
    archived: false,
  };
  const kept: Kept = {
    path,
    session: now.id,
    cwd: now.cwd,
    timestamp: now.timestamp,
    messages: now.messages,
    modified: listed.modified === null ? null : Math.round(listed.modified),
    size,
    name: now.name,
    // What may have changed under the same stamp is not kept as if it were sure.
    record: JSON.stringify({
      stamp: sure ? stamp : { ...stamp, changed: -1 },
      base,
      now: same(base, now) ? undefined : now,
      size,
      life,
    }),
  };
  return { stamp, base, now, size, life, sure, listed, kept, sum: sumOf(kept) };
}

function same(a: Figures, b: Figures): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

function readRow(path: string, record: string): Row | undefined {
  try {
    const { stamp, base, now, size, life } = JSON.parse(record);
    return rowOf(path, stamp, base, now ?? base, size, life, true);
  } catch {
    return undefined;
  }
}

// --- searching -----------------------------------------------------------------------------------------------------

/** Hits of whole words among which the best come first; in more of them than this the latest do. */
const WINDOW = 100;
/** Texts asked for at a time. */
const TEXTS_AT_ONCE = 128;

interface Found extends Hit {
  readonly score: number;
  readonly number: number;
}

class Search {
  private readonly finder: Finder;
  private readonly wish: SearchWish;
  private readonly query: Query;
  private readonly sessions = new Map<string, Session | null>();
  private leafRecords: Set<string> | undefined;

  constructor(finder: Finder, wish: SearchWish, query: Query) {
    this.finder = finder;
    this.wish = wish;
    this.query = query;
  }

  get kinds(): readonly Kind[] {
    const { role, toolResults } = this.wish;
    if (role !== undefined) return [KIND_OF_ROLE[role] ?? "talk"];
    return toolResults ? ["talk", "tools"] : ["talk"];
  }

  private wants(role: string, time: number | null): boolean {
    const { since, until } = this.wish;
    if (this.wish.role !== undefined && role !== this.wish.role) return false;
    if (since !== undefined && !((time ?? Number.NaN) >= since)) return false;
    return until === undefined || (time ?? Number.NaN) <= until;
  }

  // --- by the index --------------------------------------------------------------------------------------------

  /**
   * Whole words first, then parts of words; newest first in windows, and the best first inside each. A cursor names
   * the window and the place in it, so that pages stay together when something is added.
   */
  async indexed(file: CatalogFile): Promise<{ hits: Hit[]; more: boolean }> {
    const { words, parts } = expressionOf(this.query, (part) => file.wordsWith(part));
    const rest = words === undefined ? parts : parts === undefined ? undefined : `(${parts}) NOT (${words})`;
    // Without parts every text may hold the terms, and those with the words are among them.
    const phases = words === undefined || parts === undefined ? [rest] : [words, rest];
    let { phase, top, after } = this.place(phases.length);
    const { limit } = this.wish;
    const hits: Found[] = [];
    while (phase < phases.length) {
      // Parts of words are many, and which of them fit best says little.
      const size = phase === 0 && words !== undefined ? Math.max(limit, WINDOW) : limit;
      const { found, end } = await this.window(file, phases[phase], phase, top, size);
      for (const hit of found) {
        if (after && compareFound(after, hit) >= 0) continue;
        if (hits.length === limit) return { hits: this.finish(hits), more: true };
        hits.push(hit);
      }
      after = undefined;
      if (end === undefined) {
        phase++;
        top = Number.MAX_SAFE_INTEGER;
      } else top = end;
    }
    return { hits: this.finish(hits), more: false };
  }

  private finish(hits: readonly Found[]): Hit[] {
    for (const session of this.sessions.values()) session?.close();
    return hits.map(({ score: _score, number: _number, ...hit }) => hit);
  }

  private place(phases: number): { phase: number; top: number; after?: { score: number; number: number } } {
    const { cursor } = this.wish;
    if (cursor === undefined) return { phase: 0, top: Number.MAX_SAFE_INTEGER };
    const [mode, phase, top, score, number] = unpacked(cursor);
    const numbers = [phase, top, score, number];
    if (mode !== "index" || numbers.some((n) => typeof n !== "number") || (phase as number) >= phases)
      throw expired(cursor);
    return { phase, top, after: { score, number } } as ReturnType<Search["place"]>;
  }

  /** Hits below a number, best first, and where the next window begins if there is one. */
  private async window(
    file: CatalogFile,
    expression: string | undefined,
    phase: number,
    top: number,
    size: number,
  ): Promise<{ found: Found[]; end: number | undefined }> {
    const { cwd, role, since, until } = this.wish;
    const found: Found[] = [];
    let below = top;
    let sliced = performance.now();
    for (;;) {
      const places = file.texts({
        kinds: this.kinds,
        expression,
        below,
        cwd,
        role,
        since,
        until,
        count: TEXTS_AT_ONCE,
      });
      for (const place of places) {
        below = place.id;
        this.take(place, phase, top, found);
        if (found.length >= size) return { found: found.sort(compareFound), end: below };
        if (performance.now() - sliced < SLICE) continue;
        await pause();
        sliced = performance.now();
      }
      if (places.length < TEXTS_AT_ONCE) return { found: found.sort(compareFound), end: undefined };
    }
  }

  private take(place: Numbered, phase: number, top: number, found: Found[]): void {
    const row = this.finder.row(place.path);
    const said = row && this.read(place);
    if (!row || !said) return;
    const folded = fold(said.text);
    if (!holds(folded, this.query)) return;
    const active = this.isActive(place.path, row, said.id);
    // An entry of a batch that was cut off was never there.
    if (active === undefined) return;
    const points = score(folded, this.query);
    found.push({
      path: place.path,
      sessionId: row.listed.id,
      entryId: said.id,
      role: place.role,
      snippet: snippet(said.text, this.query),
      onActivePath: active,
      cursor: packed(["index", phase, top, points, place.id]),
      score: points,
      number: place.id,
    });
  }

  /** What stands at a place of a file now. */
  private read(place: Numbered): { id: string; text: string } | undefined {
    if (place.entry !== null) {
      const session = this.session(place.path);
      const position = session?.log.nodes.position(place.entry) ?? -1;
      const said = session && position >= 0 ? saidAt(session.log, position) : undefined;
      return said && { id: place.entry, text: said.text };
    }
    const { disk } = this.finder.world;
    let fd: number;
    try {
      fd = disk.openRead(place.path);
    } catch {
      return undefined;
    }
    try {
      return readSaid(disk, fd, place);
    } catch {
      // The file was cut meanwhile; the next call looks again.
      return undefined;
    } finally {
      closeQuietly(disk, fd);
    }
  }

  /** Whether an entry is on the path to its session's leaf; undefined when the session does not have it. */
  private isActive(path: string, row: Row, id: string): boolean | undefined {
    const open = this.wish.isActive(path, id);
    if (open !== undefined) return open;
    if (row.now.plain && !row.now.batch && !this.hasLeafRecord(row.stamp)) return true;
    const session = this.session(path);
    const position = session?.log.nodes.position(id) ?? -1;
    if (!session || position < 0) return undefined;
    return session.tree.isAncestor(position, session.tree.leaf);
  }

  private hasLeafRecord({ device, inode }: Stamp): boolean {
    if (!this.leafRecords) {
      const { disk, places } = this.finder.world;
      try {
        this.leafRecords = new Set(disk.names(join(places.state, "leaves")));
      } catch {
        this.leafRecords = new Set();
      }
    }
    return this.leafRecords.has(`${device}-${inode}.json`);
  }

  private session(path: string): Session | null {
    let session = this.sessions.get(path);
    if (session === undefined) {
      const { openLog, env, leaves } = this.finder.world;
      try {
        session = new Session(openLog(path), env, leaves);
      } catch {
        session = null;
      }
      this.sessions.set(path, session);
    }
    return session;
  }

  // --- without one ---------------------------------------------------------------------------------------------

  /** The same hits by reading every file: the session that was active last first, and in it the last entry first. */
  async scanned(sessions: readonly Listed[]): Promise<{ hits: Hit[]; more: boolean }> {
    const { limit, cursor, cwd } = this.wish;
    const hits: Found[] = [];
    const after = cursor === undefined ? undefined : unpacked(cursor);
    if (after && (after[0] !== "scan" || typeof after[2] !== "string" || typeof after[3] !== "number"))
      throw expired(cursor as string);
    const compare = comparing("modified");
    for (const listed of sessions) {
      if (cwd !== undefined && listed.cwd !== cwd) continue;
      const place = after ? compare({ modified: after[1], path: after[2] } as Listed, listed) : -1;
      if (place > 0) continue;
      const found = this.scanOne(listed);
      for (let nth = found.length - 1; nth >= 0; nth--) {
        if (place === 0 && nth >= (after?.[3] as number)) continue;
        if (hits.length === limit) return { hits: this.finish(hits), more: true };
        hits.push({ ...found[nth], cursor: packed(["scan", listed.modified, listed.path, nth]) });
      }
      await pause();
    }
    return { hits: this.finish(hits), more: false };
  }

  private scanOne(listed: Listed): Found[] {
    const row = this.finder.row(listed.path);
    const found: Found[] = [];
    if (!row) return found;
    const look = ({ role, time, text }: Said, entryId: string | null): void => {
      if (!this.wants(role, time) || !holds(fold(text), this.query)) return;
      const active = entryId === null ? undefined : this.isActive(listed.path, row, entryId);
      if (entryId === null || active === undefined) return;
      const { path, id: sessionId } = listed;
      const shown = { path, sessionId, entryId, role, snippet: snippet(text, this.query), onActivePath: active };
      found.push({ ...shown, cursor: "", score: 0, number: 0 });
    };
    const wants = (role: string): boolean => this.kinds.includes(KIND_OF_ROLE[role]);
    try {
      if (row.now.plain) {
        const { disk } = this.finder.world;
        const possible = rough(this.query);
        const held: Said[] = [];
        scanTexts(
          disk,
          listed.path,
          0,
          row.size,
          (role, b, at, end) => wants(role) && possible(b, at, end),
          (said) => {
            if (holds(fold(said.text), this.query)) held.push(said);
            return true;
          },
        );
        if (held.length === 0) return found;
        const fd = disk.openRead(listed.path);
        try {
          for (const said of held) look(said, readSaid(disk, fd, said)?.id ?? null);
        } finally {
          closeQuietly(disk, fd);
        }
      } else
        this.finder.readLog(listed.path, (log) => {
          for (const said of logTexts(log, wants)) look(said, said.entry);
        });
    } catch {
      // It went away while it was read.
    }
    return found;
  }
}

/** A quick look at a line's bytes that never says no where the terms are there. */
function rough({ terms }: Query): (b: Uint8Array, at: number, end: number) => boolean {
  // What JSON may write in another way is not looked for.
  const sought = terms.map(({ text }) => text).filter((text) => /^[ !#-.0-[\]-~]+$/.test(text));
  if (sought.length === 0) return () => true;
  return (b, at, end) => {
    const line = Buffer.from(b.buffer, b.byteOffset + at, end - at).toString("latin1");
    // Escaped characters, and the two whose small letters are ASCII.
    if (line.includes("\\u") || line.includes("\xe2\x84\xaa") || line.includes("\xc4\xb0")) return true;
    const lower = line.toLowerCase();
    return sought.every((text) => lower.includes(text));
  };
}

function compareFound(a: { score: number; number: number }, b: { score: number; number: number }): number {
  return b.score - a.score || b.number - a.number;
}
