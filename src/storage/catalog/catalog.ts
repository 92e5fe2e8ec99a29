/**
 * Finds sessions, and texts in them. The session files are authoritative and are checked on every call; results of
 * earlier scans are cached in memory and, with SQLite, in the catalog.
 */

import { toStorageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { isDerivedId } from "../../core/foreign/ids.ts";
import type {
  Catalog,
  FoundHits,
  Joining,
  Listed,
  Listing,
  ListProgress,
  ListRequest,
  ModelUsed,
  Progress,
  Relative,
  SearchRequest,
  SessionFamily,
  SessionSource,
  UnreadFile,
  UsageReport,
  UsageRequest,
} from "../../core/ports/catalog.ts";
import {
  BY_PATH,
  findFamily,
  findParents,
  makeCursor,
  makeFilter,
  toUnknownIdFailure,
} from "../../core/search/listing.ts";
import { hasFilter } from "../../core/search/parts.ts";
import { parseQuery } from "../../core/search/query.ts";
import { parseRankedQuery } from "../../core/search/ranking.ts";
import { sumUsage } from "../../core/search/usage.ts";
import { readTakenOver } from "../../core/session/stats.ts";
import { pause } from "../fs/chunked-io.ts";
import { readClock, readWork } from "../fs/clock.ts";
import { isContainerName } from "../fs/container-paths.ts";
import { useAndClose } from "../fs/files.ts";
import { matchFolder } from "../fs/folders.ts";
import { readHeader } from "../fs/header.ts";
import { findOtherArchives } from "../fs/other-archives.ts";
import { type FoundStamp, isSameFile, isSameStamp } from "../fs/stamps.ts";
import { getChangeTime } from "../v2/container-files.ts";
import { CachedRows, type CatalogOptions } from "./cached-rows.ts";
import { CachedUsage, type CountedRow } from "./cached-usage.ts";
import { type CatalogFile, isBusy } from "./database.ts";
import { Folders } from "./folders.ts";
import { glance } from "./glance.ts";
import { type FolderChanges, type ListedFiles, NO_CHANGES } from "./listed-files.ts";
import { Lists } from "./lists.ts";
import { deriveOriginalIds } from "./originals.ts";
import { Relations } from "./relations.ts";
import { Search } from "./search.ts";
import { type ScanProgress, SearchProgress } from "./search-progress.ts";
import { writeIndex } from "./session-index.ts";
import type { SessionRow } from "./session-row.ts";
import { filterInSlices, SLICE } from "./slices.ts";
import type { Scan } from "./summary.ts";
import { TextIndex } from "./text-index.ts";
import type { TextKind } from "./text-table.ts";

/** Milliseconds within which a file can change twice under one time stamp. */
const TICK = 50;
const CLOCKS_APART = 60_000;
/** Bytes up to which a file is read again when it may have changed under the same time stamp. */
const CHEAP = 4 << 20;
/** Number of changes from which on sorting again is faster than inserting each. */
const SORT_FROM = 1000;
/** Files scanned between writes of their rows to the catalog. */
const SAVE_AFTER = 200;
/** Attempts of a search to find the index complete. */
const TRIES = 20;
/** Milliseconds after the last list or search before texts are indexed ahead. */
const QUIET = 100;
/** Validity of stamps in milliseconds, for requests that limit their time: one answer makes several of them. */
const STAMPS_LAST = 50;
/** Milliseconds of work on texts in one go, however long that takes on a busy machine. */
const STINT = 50;
/** Milliseconds between two looks whether another process still builds. */
const OTHERS_BUILD = 400;
/** Files that every process reads at once, whichever builds: those that agents write to now. */
const FEW = 16;
/** Bytes that are read in any case, however little time a busy machine gives; a small file costs as much as one of some size. */
const LEAST_READ = 4 << 20;
const SMALL = 256 << 10;

const NEEDS_SQLITE =
  "An index needs SQLite. Use Node 22.5 or newer, or install the optional dependency @photostructure/sqlite.";

/** Sessions with their usage, before it is summed. */
interface CountedSessions extends Pick<UsageReport, "incomplete" | "archivedLeftOut"> {
  readonly sessions: readonly CountedRow[];
  readonly models: readonly ModelUsed[];
}

/** The catalog of the sessions on this machine. */
export interface LocalCatalog extends Catalog {
  list: SessionSource["list"];
  /** Returns all sessions by their ids, those of archived ones if no other has the id. */
  find(): Promise<ReadonlyMap<string, Listed>>;
  counted(request: UsageRequest, progress?: Progress): Promise<CountedSessions>;
}

export function makeCatalog(options: CatalogOptions): LocalCatalog {
  return new Finder(options);
}

class Finder implements LocalCatalog {
  private readonly options: CatalogOptions;
  private readonly files: ListedFiles;
  /** Files that are not sessions, with their stamps when that was found. */
  private readonly others = new Map<string, FoundStamp>();
  private readonly lists: Lists;
  private hasReadFolders = false;
  /** Paths of sessions within other agents' files. */
  private inner = new Set<string>();
  /** Settles when the last call in the queue has ended: only one call runs at a time. */
  private last: Promise<unknown> = Promise.resolve();

  private readonly kept: CachedRows;
  private readonly texts: TextIndex;
  private readonly spent: CachedUsage;
  private readonly relations: Relations;
  /** Files that are no sessions, by their paths, with how each is. */
  private readonly unread = new Map<string, UnreadFile>();
  /** Sessions that may not be read, or are too damaged to be. */
  private readonly unreadable = new Set<string>();
  /** The ids that the original of an imported fork may have, by the row that was made of the file. */
  private readonly originals = new WeakMap<Listed, readonly string[]>();
  /** The paths of {@link archivedTwice}, and the number of rows that they were found among, until a row changes. */
  private twice: { readonly size: number; readonly paths: ReadonlySet<string> } | undefined;
  /** Files that a refresh had no time for, with their stamps. */
  private waiting: ReadonlyMap<string, FoundStamp> = new Map();
  /** Kinds of texts that searches asked for, which are indexed ahead. */
  private readonly wantedKinds = new Set<TextKind>(["talk"]);
  private ahead: NodeJS.Timeout | undefined;
  private closed = false;
  /** Time of the last list or search. */
  private askedAt = 0;
  /** All files at the last change, where files can hold sessions within them: these stay while others wait to be read. */
  private holders = NO_CHANGES.there;
  /** Time of the last reading of stamps. */
  private stampedAt = Number.NEGATIVE_INFINITY;

  constructor(options: CatalogOptions) {
    this.options = options;
    this.files = options.files ?? new Folders(options);
    this.kept = new CachedRows(options, (path, row) => this.put(path, row));
    this.texts = new TextIndex(options, this.kept);
    this.spent = new CachedUsage(options, this.kept);
    this.lists = new Lists(this.kept.rows);
    this.relations = new Relations(this.kept.rows);
  }

  async list(
    request: ListRequest,
    progress?: ListProgress,
    { ordering, overlap }: Joining = { ordering: BY_PATH },
  ): Promise<Listing> {
    this.askedAt = readClock();
    const all = await this.inTurn(async () => {
      const isWanted = makeFilter(request, this.isDirectory(request));
      const report: ScanProgress | undefined =
        progress && ((done, total, read) => progress(done, total, read.filter(isWanted)));
      await this.refresh(report, endOf(request));
      const twice = request.archived ? this.archivedTwice() : NONE;
      const isOthers = this.findOthers();
      const fits = (listed: Listed): boolean => isWanted(listed) && !twice.has(listed.path) && !isOthers(listed);
      this.indexAhead();
      if (request.sort === "cost") await this.count(fits, progress && ((done, total) => progress(done, total, [])));
      await this.relations.prepare();
      return this.lists.fitting(request, fits, ordering);
    });
    // Another source is asked without this one being blocked.
    const { covered } = (!this.files.isForeign && (await overlap?.())) || { covered: NONE };
    const fitting = covered.size === 0 ? all : await filterInSlices(all, ({ id }) => !covered.has(id));
    const { relations } = this;
    return {
      found: await this.lists.page(fitting, request, ordering),
      total: fitting.length,
      totalBytes: fitting.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0),
      notRead: this.notRead(request),
      parentOf: (listed) => relations.parentOf(listed),
      shortId: (id) => relations.shortId(id),
      cursorAfter: (listed) => makeCursor(listed, request.sort ?? "modified", ordering),
      behind: this.waiting.size || undefined,
    };
  }

  find(): Promise<ReadonlyMap<string, Listed>> {
    return this.inTurn(async () => {
      await this.refresh();
      const twice = this.archivedTwice();
      const isOthers = this.findOthers();
      const found = new Map<string, Listed>();
      for (const row of this.kept.rows.values())
        if ((!row.archived || (!found.has(row.id) && !twice.has(row.path))) && !isOthers(row)) found.set(row.id, row);
      return found;
    });
  }

  /** Returns the files that are no sessions; an empty list for a list of only some sessions. */
  private notRead(request: ListRequest): UnreadFile[] {
    const { archived = false, cursor, cwd, parent, query, name, since, until } = request;
    if ([cursor, cwd, parent, query, name, since, until].some((one) => one !== undefined)) return [];
    const found = [...this.unread.values(), ...this.files.listUnread(request)].filter(
      ({ path }) => this.kept.isArchived(path) === archived,
    );
    return archived && !this.files.isForeign ? [...found, ...findOtherArchives(this.options)] : found;
  }

  async usage(request: UsageRequest, progress?: Progress): Promise<UsageReport> {
    const { sessions, models, ...rest } = await this.counted(request, progress);
    let own: ReadonlySet<string> | undefined;
    const hasOriginal = (listed: Listed): boolean => {
      if (this.relations.parentOf(listed)) return true;
      if (!isDerivedId(listed.id)) return false;
      // An imported fork names the other agent's file, which does not show whether the original was imported, too.
      own ??= new Set(Array.from(this.kept.rows.values(), ({ id, agent }) => (agent === undefined ? id : "")));
      return this.originalsOf(listed).some((id) => own?.has(id));
    };
    const inherited = await this.spent.withHeirs(sessions, hasOriginal);
    return { ...sumUsage(inherited, request, models), ...rest, shortId: (id) => this.relations.shortId(id) };
  }

  /** Returns the ids that the original of an imported fork may have, from its header or the name of its original. */
  private originalsOf(listed: Listed): readonly string[] {
    let ids = this.originals.get(listed);
    if (ids === undefined) {
      const { disk, env } = this.options;
      const from = readTakenOver(readHeader(disk, listed.path) ?? {});
      ids = from ? [from.session] : deriveOriginalIds(listed.parentSession ?? "", (bytes) => env.sha256(bytes));
      this.originals.set(listed, ids);
    }
    return ids;
  }

  /** Returns the sessions that a request is about, with their usage. */
  counted(request: UsageRequest, progress?: Progress): Promise<CountedSessions> {
    this.askedAt = readClock();
    return this.inTurn(async () => {
      await this.refresh(progress);
      const { cwd } = request;
      const isDirectory = this.isDirectory(request);
      const isThere = (listed: Listed): boolean => isDirectory === undefined || isDirectory(listed.cwd);
      const twice = this.archivedTwice();
      const isOthers = this.findOthers();
      const isAsked = (listed: Listed): boolean =>
        (request.archived || !listed.archived) && !twice.has(listed.path) && !isOthers(listed);
      const wanted = await this.count((listed) => isAsked(listed) && isThere(listed), progress);
      const lacking = wanted.filter(({ usage }) => usage?.damaged !== 0).map(toLacking);
      const unreadable = [...this.unreadable].map((path) => ({ path, listed: undefined, damagedLines: undefined }));
      const leftOut = request.archived
        ? []
        : await filterInSlices(
            this.kept.rows.values(),
            (listed) => listed.archived && !twice.has(listed.path) && isThere(listed) && !isOthers(listed),
          );
      return {
        sessions: wanted.map((row) => ({ listed: row, usage: row.usage })),
        models: this.spent.models.all,
        incomplete: [...(cwd === undefined ? unreadable : []), ...lacking],
        archivedLeftOut: leftOut.length,
      };
    });
  }

  /**
   * Returns the paths of archived sessions whose files have their former name still: archiving was cut off between the two,
   * so that they count as not archived.
   */
  private archivedTwice(): ReadonlySet<string> {
    const { size } = this.kept.rows;
    // Rows that another process stored are added without a change of any.
    if (this.twice?.size !== size) this.twice = { size, paths: this.findTwice() };
    return this.twice.paths;
  }

  private findTwice(): ReadonlySet<string> {
    const archived = new Map<string, string>();
    for (const { path, stamp, archived: isArchived } of this.kept.rows.values())
      if (isArchived) archived.set(`${stamp.device} ${stamp.inode}`, path);
    if (archived.size === 0) return NONE;
    const twice = new Set<string>();
    for (const { stamp, archived: isArchived } of this.kept.rows.values()) {
      const other = isArchived ? undefined : archived.get(`${stamp.device} ${stamp.inode}`);
      if (other !== undefined) twice.add(other);
    }
    return twice;
  }

  /** Returns a test for the working directory that a request names, by whatever path. */
  private isDirectory({ cwd }: { readonly cwd?: string }): ((cwd: string | null) => boolean) | undefined {
    return cwd === undefined ? undefined : matchFolder(this.options.disk, cwd);
  }

  /** Counts the usage of the sessions that fit, as far as it is not known, and returns their rows. */
  private async count(fits: (listed: Listed) => boolean, progress: Progress | undefined): Promise<SessionRow[]> {
    const wanted = (): SessionRow[] => [...this.kept.rows.values()].filter(fits);
    const missing = wanted().filter(({ usage }) => usage === undefined);
    const counted = await this.spent.complete(missing, progress);
    if (counted.length > SORT_FROM) this.expectMany();
    for (const row of counted) this.put(row.path, row);
    return wanted();
  }

  glance(cwd: string, limit: number): Promise<readonly Listed[]> {
    return glance(this.options, this.kept, cwd, limit);
  }

  search(request: SearchRequest, progress?: Progress): Promise<FoundHits> {
    this.askedAt = readClock();
    return this.inTurn(async () => {
      const terms = request.ranked ? parseRankedQuery(request.query) : null;
      const words = terms ? terms.map(({ stem }) => stem) : request.ranked ? null : parseQuery(request.query);
      const query = words ?? (hasFilter(request) ? [] : null);
      if (!query) return { hits: [], more: false };
      const all = progress && new SearchProgress(progress);
      const until = endOf(request);
      await this.refresh(all && ((_done, _total, _read, bytes) => all.read(bytes)), until);
      const rows = rowsOf(this.kept.rows, request, this.options.findOthers?.());
      // Words without a rank, such as those of a file alone, are found as by any search.
      const asked = terms ? request : { ...request, ranked: false };
      return useAndClose(new Search(this.options, rows, this.relations, asked, query), async (search) => {
        await this.relations.prepare();
        const find = (file: CatalogFile) => (terms ? search.ranked(file, terms) : search.indexed(file));
        const indexed = await this.kept.with(async (file) => {
          for (const kind of search.kinds) this.wantedKinds.add(kind);
          if (until === undefined) return this.searchIndex(file, search, all, find);
          const kinds = await this.indexUntil(file, search.kinds, until);
          const found = await file.reading(() => find(file));
          this.indexAhead();
          return { ...found, behind: this.waiting.size + kinds || undefined };
        });
        const found =
          indexed ??
          (await search.scanned(
            (await this.lists.order("modified")).filter(({ path }) => rows.has(path)),
            until,
          ));
        const isFirst = request.cursor === undefined && this.files.isForeign;
        return isFirst ? { ...found, notRead: this.notRead({ agents: request.agents }) } : found;
      });
    });
  }

  /** Indexes texts until a time, or waits for the process that does. Returns how many sessions have texts that are not indexed. */
  private async indexUntil(file: CatalogFile, kinds: readonly TextKind[], until: number): Promise<number> {
    const countMissing = async (): Promise<number> => {
      if (file.changedElsewhere()) await this.kept.readIndexed(file);
      let most = 0;
      for (const kind of kinds) most = Math.max(most, (await this.texts.missing(kind)).size);
      return most;
    };
    const most = await countMissing();
    if (most === 0) return most;
    const enough = readWork() + STINT;
    if (!file.mayBuild()) await new Promise((resolve) => setTimeout(resolve, until - readClock()));
    else
      for (const kind of kinds)
        try {
          // Each call brings the index a little further, however little time it has.
          while ((await this.texts.indexMore(file, kind, 0)) && (readClock() < until || readWork() < enough))
            await pause();
        } catch (error) {
          ignoreBusy(error);
        }
    return countMissing();
  }

  /** Returns the result of the index; undefined when other processes keep it from being complete. */
  private async searchIndex<Found>(
    file: CatalogFile,
    search: Search,
    progress: SearchProgress | undefined,
    find: (file: CatalogFile) => Promise<Found>,
  ): Promise<Found | undefined> {
    const { kinds } = search;
    for (let tries = 0; tries < TRIES; tries++) {
      for (const [n, kind] of kinds.entries()) {
        const report = progress?.indexing(kinds.length - n);
        if (!(await this.texts.complete(file, kind, report))) return undefined;
      }
      const found = await file.reading(async () => {
        if (file.changedElsewhere()) await this.kept.readIndexed(file);
        for (const kind of kinds) if ((await this.texts.missing(kind)).size > 0) return undefined;
        return find(file);
      });
      if (found) return found;
    }
    return undefined;
  }

  family(of: { id: string; open?: Relative }, progress?: Progress): Promise<SessionFamily> {
    return this.inTurn(async () => {
      await this.refresh(progress);
      const isOthers = this.findOthers();
      const sessions: Relative[] = (await this.lists.order("created"))
        .map(({ listed }) => listed)
        .filter((listed) => !isOthers(listed));
      const { open } = of;
      if (open && !sessions.some(({ path }) => path === open.path)) sessions.push(open);
      const start =
        sessions.find(({ path, id }) => id === of.id && path === (open?.path ?? path)) ??
        sessions.find(({ id }) => id === of.id);
      if (!start) throw toUnknownIdFailure(of.id);
      const parents = findParents(sessions);
      const { root, members } = findFamily(sessions, parents, start);
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

  private findOthers(): (listed: Listed) => boolean {
    return this.options.findOthers?.() ?? (() => false);
  }

  exportIndex(file: string): Promise<number> {
    return this.inTurn(async () => {
      await this.refresh();
      const sqlite = this.kept.sqliteThere;
      if (!sqlite) throw new Failure("storage_failed", NEEDS_SQLITE, {}, { retryable: false });
      try {
        // Agents do not list archived sessions.
        const isOthers = this.findOthers();
        const rows = [...this.kept.rows.values()].filter((row) => !row.archived && !isOthers(row));
        const { disk, isDurable = false } = this.options;
        await writeIndex(sqlite, disk, file, rows, isDurable);
        return rows.length;
      } catch (error) {
        throw toStorageFailure(error, "writing the index");
      }
    });
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.ahead);
    this.files.close();
    this.kept.close();
  }

  /** Indexes texts a little at a time while there are no requests, so that the first search finds them indexed. */
  private indexAhead(): void {
    if (!this.options.indexAhead) this.kept.endTurn();
    if (!this.options.indexAhead || this.ahead) return;
    const after = (delay: number): void => {
      this.ahead = setTimeout(step, delay).unref();
    };
    const step = async (): Promise<void> => {
      const quiet = this.askedAt + QUIET - readClock();
      if (quiet > 0) return after(quiet);
      let since = 0;
      const turn = this.inTurn(async () => {
        since = readWork();
        if (this.closed) return false;
        if (!(await this.mayBuild())) return "elsewhere";
        if (this.waiting.size > 0) {
          await this.refresh(undefined, readClock() + SLICE);
          return true;
        }
        return this.kept.with(async (file) => {
          if (file.changedElsewhere()) await this.kept.readIndexed(file);
          const { askedAt } = this;
          for (const kind of this.wantedKinds)
            while (await this.texts.indexMore(file, kind, 0)) {
              if (this.askedAt !== askedAt || readWork() - since > STINT) return true;
              await pause();
            }
          return false;
        });
      });
      // The next search meets the same error and reports it.
      const more = await turn.catch((error) => isBusy(error) && "elsewhere");
      this.ahead = undefined;
      if (this.closed || !more) return this.kept.endTurn();
      // Pauses as long as it worked: this process has other work to do.
      after(more === "elsewhere" ? OTHERS_BUILD + ((process.pid * 37) % OTHERS_BUILD) : readWork() - since);
    };
    after(QUIET);
  }

  /** Returns whether this process is to read many files; without a catalog's file each is. */
  private async mayBuild(): Promise<boolean> {
    return (await this.kept.with(async (file) => file.mayBuild())) ?? true;
  }

  private inTurn<T>(run: () => Promise<T>): Promise<T> {
    const result = this.last.then(run);
    this.last = result.catch(() => {});
    return result;
  }

  /** Returns the id of the last entry that a fork shares with its parent. */
  private forkedAt(parent: string, child: string): string | undefined {
    const { openLog } = this.options;
    try {
      return useAndClose(openLog(parent), ({ nodes: above }) =>
        useAndClose(openLog(child), ({ nodes: below }) => {
          let shared = 0;
          while (shared < below.count && above.position(below.id(shared)) >= 0) shared++;
          return shared === 0 ? undefined : below.id(shared - 1);
        }),
      );
    } catch {
      // One of them was removed or cannot be read: the family is returned without that entry.
      return undefined;
    }
  }

  /** Updates the rows to the result that a scan of every file would have. */
  private async refresh(progress?: ScanProgress, until?: number): Promise<void> {
    await this.kept.with((file) => this.kept.load(file, !this.hasReadFolders));
    const isJustRead = until !== undefined && readClock() - this.stampedAt < STAMPS_LAST;
    const changes = isJustRead ? NO_CHANGES : await this.files.changes();
    if (!isJustRead) this.stampedAt = readClock();
    if (!changes.isSame && this.files.stampInner) this.holders = changes.there;
    const { waiting } = this;
    if (!changes.isSame || waiting.size > 0) {
      this.waiting = new Map();
      const found = changes.isSame ? this.holders : changes.there;
      const there = waiting.size === 0 ? found : new Map([...waiting, ...found]);
      const gone = new Set(changes.removed);
      for (const path of gone)
        if (waiting.has(path) && !changes.there.has(path)) (there as Map<string, FoundStamp>).delete(path);
      await this.take({ there, removed: changes.removed }, progress, until);
    }
    await this.kept.with(async (file) => {
      // Rows can be written later: a process that cannot wait goes on with what it has.
      if (until === undefined) await this.kept.save(file);
      else if (this.kept.isUnsaved && file.mayBuild()) await this.kept.save(file).catch(ignoreBusy);
    });
  }

  private async take(
    { there: files, removed }: FolderChanges,
    progress: ScanProgress | undefined,
    until?: number,
  ): Promise<void> {
    const { rows } = this.kept;
    const within = this.innerOf(files);
    const there = within.size === 0 ? files : new Map([...files, ...within]);
    const vanished = new Map<string, SessionRow>();
    const forget = (path: string): void => {
      const row = rows.get(path);
      this.others.delete(path);
      this.unread.delete(path);
      this.unreadable.delete(path);
      if (!row) return;
      vanished.set(stampKey(row.stamp), row);
      this.put(path, undefined);
    };
    if (removed.length > SORT_FROM) this.expectMany();
    for (const path of removed) forget(path);
    for (const path of this.inner) if (!there.has(path)) forget(path);
    if (!this.hasReadFolders) {
      const gone = await filterInSlices(rows.keys(), (path) => !there.has(path));
      if (gone.length > SORT_FROM) this.expectMany();
      for (const path of gone) forget(path);
    }
    this.hasReadFolders = true;
    const changed = await this.changedAmong(there);
    if (changed.length > SORT_FROM) this.expectMany();
    await this.scan(changed, vanished, progress, until);
    await this.refreshInner(files);
  }

  /** Returns the files whose rows are missing, or have another stamp. */
  private changedAmong(there: ReadonlyMap<string, FoundStamp>): Promise<[string, FoundStamp][]> {
    const { rows } = this.kept;
    return filterInSlices(there, ([path, stamp]) => {
      const row = rows.get(path);
      const known = row ? (row.sure ? row.stamp : undefined) : this.others.get(path);
      return known === undefined || !isSameStamp(known, stamp);
    });
  }

  /** Returns the sessions within other agents' files, as far as the rows of these know them. */
  private innerOf(files: ReadonlyMap<string, FoundStamp>): Map<string, FoundStamp> {
    const found = new Map<string, FoundStamp>();
    if (!this.files.stampInner) return found;
    for (const [path, stamp] of files) {
      const { inner } = this.kept.rows.get(path) ?? {};
      if (inner) for (const [within, of] of this.files.stampInner(path, stamp, inner)) found.set(within, of);
    }
    return found;
  }

  /** Reads the sessions within files with new rows, and forgets those that no longer exist. */
  private async refreshInner(files: ReadonlyMap<string, FoundStamp>): Promise<void> {
    const inner = this.innerOf(files);
    for (const path of this.inner)
      if (!inner.has(path)) {
        this.put(path, undefined);
        this.others.delete(path);
        this.unreadable.delete(path);
      }
    this.inner = new Set(inner.keys());
    await this.scan(await this.changedAmong(inner), new Map(), undefined);
  }

  private async scan(
    changed: readonly [string, FoundStamp][],
    vanished: ReadonlyMap<string, SessionRow>,
    progress: ScanProgress | undefined,
    until?: number,
  ): Promise<void> {
    if (until !== undefined && changed.length > 0) {
      changed = (await this.kept.with((file) => this.kept.adoptWritten(file, changed))) ?? changed;
      changed = changed.toSorted(([, a], [, b]) => b.modified - a.modified);
      if (changed.length > FEW && !(await this.mayBuild())) {
        this.waiting = new Map(changed);
        return;
      }
    }
    const step = Math.max(1, Math.ceil(changed.length / 100));
    let size = 0;
    const bytes = { done: 0, total: changed.reduce((sum, [, { size }]) => sum + size, 0) };
    const read: Listed[] = [];
    let since = readClock();
    for (const [i, [path, stamp]] of changed.entries()) {
      if (until !== undefined && size >= LEAST_READ && readClock() >= until) {
        this.waiting = new Map(changed.slice(i));
        return;
      }
      size += Math.max(SMALL, stamp.size);
      const moved = vanished.get(stampKey(stamp));
      if (moved?.sure) {
        this.put(path, moved.movedTo(path, this.kept.isArchived(path), stamp));
        this.kept.noteMove(moved.path, path);
      } else this.scanOne(path, stamp);
      if (progress && changed.length > 1) {
        const row = this.kept.rows.get(path);
        if (row) read.push(row);
        bytes.done += stamp.size;
        if ((i + 1) % step === 0 || i + 1 === changed.length) progress(i + 1, changed.length, read.splice(0), bytes);
      }
      if (readClock() - since < SLICE) continue;
      // A long scan is worth saving even before it is finished.
      if (i % SAVE_AFTER === 0) await this.kept.with((file) => this.kept.save(file));
      await pause();
      since = readClock();
    }
  }

  private scanOne(path: string, stamp: FoundStamp): void {
    const { disk, env } = this.options;
    const before = this.kept.rows.get(path);
    const age = env.now() - stamp.changed;
    // A file's clock that is far ahead of ours cannot be compared with it.
    const sure = age >= TICK || age < -CLOCKS_APART;
    const same = before !== undefined && isSameFile(before.stamp, stamp);
    const grown =
      same &&
      (stamp.size > before.sizeBytes || (isSameStamp(before.stamp, stamp) && before.sizeBytes > CHEAP && !before.sure));
    let scan: Scan | null | undefined;
    try {
      scan = this.files.scan(path, stamp, same ? before : undefined, grown);
    } catch {
      // It was removed or may not be read: the next call tries again.
    }
    if (scan === undefined) this.unreadable.add(path);
    else this.unreadable.delete(path);
    this.unread.delete(path);
    if (!scan) {
      const strange = scan === null && stamp.size > 0 ? this.files.describe?.(path) : undefined;
      if (strange) this.unread.set(path, strange);
      this.put(path, undefined);
      if (scan === null && sure) this.others.set(path, stamp);
      return;
    }
    this.others.delete(path);
    const life = scan.grown && before ? before.life : `${stamp.device}.${stamp.inode}.${stamp.changed}`;
    const time = isContainerName(path) ? (getChangeTime(disk, path) ?? 0) : stamp.modified;
    const { base, now, size } = scan;
    this.put(path, this.kept.rowOf(path, { stamp, time, base, now, size, life, sure }));
  }

  /** Forgets the orders that `put` keeps up, before so many changes that sorting again is faster. */
  private expectMany(): void {
    this.lists.forget();
    this.relations.forget();
  }

  private put(path: string, row: SessionRow | undefined): void {
    const before = this.kept.rows.get(path);
    if (row) this.kept.rows.set(path, row);
    else if (!this.kept.rows.delete(path)) return;
    this.twice = undefined;
    this.lists.note(before, row);
    this.relations.note(before, row);
    if (!row) this.spent.forget(path);
    this.kept.note(path, row === undefined);
  }
}

const NONE: ReadonlySet<string> = new Set();

function ignoreBusy(error: unknown): void {
  if (!isBusy(error)) throw error;
}

/** Returns the time by which a request wants to be answered. */
function endOf({ within }: ListRequest | SearchRequest): number | undefined {
  return within === undefined ? undefined : readClock() + within;
}

/** Returns the rows of the agents that are asked for. */
function rowsOf(
  rows: ReadonlyMap<string, SessionRow>,
  { agents }: SearchRequest,
  isOthers?: (listed: Listed) => boolean,
): ReadonlyMap<string, SessionRow> {
  if (!agents && !isOthers) return rows;
  const isAsked = ({ agent }: SessionRow): boolean => agent === undefined || !agents || agents.includes(agent);
  return new Map([...rows].filter(([, row]) => isAsked(row) && !isOthers?.(row)));
}

function toLacking(row: SessionRow) {
  const { path, usage } = row;
  return { path, listed: row, damagedLines: usage?.damaged };
}

function stampKey({ device, inode, size, modified, changed }: FoundStamp): string {
  return `${device} ${inode} ${size} ${modified} ${changed}`;
}
