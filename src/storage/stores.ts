/** Puts the backends together, and chooses the one that opens a given path. */

import { basename, dirname, join } from "node:path";
import { Failure } from "../core/failure.ts";
import { findAgentSessions } from "../core/foreign/named.ts";
import { SESSION_ID, type SessionHeader } from "../core/format/entry.ts";
import type { Env } from "../core/ports/env.ts";
import type { SessionRoot } from "../core/ports/health.ts";
import type { Log } from "../core/ports/store.ts";
import type { Candidate, Stores } from "../core/ports/stores.ts";
import { toUnknownIdFailure } from "../core/search/listing.ts";
import { findOurSessions, requireOneSession } from "../core/search/named.ts";
import type { CatalogOptions } from "./catalog/cached-rows.ts";
import { findOffered, readCandidates, readFactsAt } from "./catalog/candidates.ts";
import { makeCatalog } from "./catalog/catalog.ts";
import { joinSources, makeForeignSource } from "./catalog/merge.ts";
import type { ConnectedFleet, FleetSessions, PlacedSession } from "./fleet-module.ts";
import type { ForeignModule } from "./foreign-module.ts";
import { pause } from "./fs/chunked-io.ts";
import { type Confines, getKnownPath, isBelow } from "./fs/confined-disk.ts";
import { CONTAINER, isContainerName } from "./fs/container-paths.ts";
import { type Disk, exists } from "./fs/disk.ts";
import { getInfo, guardErrno } from "./fs/files.ts";
import { matchFolder } from "./fs/folders.ts";
import { readHeader, type StoredHeader } from "./fs/header.ts";
import {
  getArchiveFolder,
  getSessionFolder,
  isSessionName,
  listAllFolders,
  listArchivedFolders,
  listSessionFolders,
  makeContainerPath,
  makeFileName,
  makeFilePath,
  type StoragePaths,
  toAbsolutePath,
  type Variables,
} from "./fs/paths.ts";
import { isSameFile } from "./fs/stamps.ts";
import { makeHealth } from "./health/health.ts";
import type { JsonlOptions } from "./jsonl/log.ts";
import { makeJsonlStore } from "./jsonl/store.ts";
import { findLatest, isSessionIn } from "./latest.ts";
import { type LifecycleDeps, makeReadOnlyFailure, resolveLink } from "./lifecycle/exclusive.ts";
import { toFileStem } from "./lifecycle/import.ts";
import { makeLifeCycle } from "./lifecycle/lifecycle.ts";
import { makeOperationLog } from "./lifecycle/operation-log.ts";
import { readStoredBytes, writeOutput } from "./lifecycle/output-file.ts";
import { recordMigrations } from "./lifecycle/recorded-migrations.ts";
import type { Locks } from "./locks/locks.ts";
import { FileLog } from "./log/file-log.ts";
import { makeSnapshotCache } from "./log/snapshot-cache.ts";
import { makeMemoryStore } from "./memory.ts";
import { findCurrentFile, MIGRATED, makeOpenings, type OpeningOptions } from "./opening.ts";
import { openQuarantine } from "./quarantined-entries.ts";
import { isUuid } from "./v2/documents.ts";
import { makeMigrations } from "./v2/migration.ts";
import { isDatabase, makeDiskWithBytes, readDatabaseLines } from "./v2/sqlite-v1.ts";
import { makeSegmentedStore } from "./v2/store.ts";
import { makeWhenUsed, once } from "./when-used.ts";

interface StoresOptions extends OpeningOptions {
  readonly env: Env;
  readonly locks: Locks;
  /** Folders that agents search for sessions, whether or not ours are there. */
  readonly roots?: readonly SessionRoot[];
  /** Missing in a build without other agents' sessions. */
  readonly foreign?: ForeignModule | undefined;
  /** The environment, which names the folders of other agents. */
  readonly variables?: Variables;
  /** The home of the person as whom the server runs. */
  readonly home?: string;
  readonly readOnly?: boolean;
  /** Without it, deleted sessions go to our own trash. */
  readonly desktopTrash?: LifecycleDeps["desktopTrash"];
  /** True if other users may write in our state folder, so that files in it may be opened only through the disk. */
  readonly sharedState?: boolean;
  /** Called with the sentence of a change that is done, and whose record the disk refuses. */
  readonly onUnrecorded?: (text: string) => void;
  /** Reports to a person, without a request, what the disk refuses to a fleet. */
  readonly complain?: (sentence: string) => void;
  /** Runs work that no caller waits for; without it, nothing is postponed. */
  readonly later?: (work: () => void) => void;
  /** The database that has the sessions, too. */
  readonly fleet?: ConnectedFleet;
  /** True if there is a fleet that is not asked, because nothing may be fetched. */
  readonly leavesFleet?: boolean;
}

export function makeStores(options: StoresOptions): Stores {
  const { disk, env, paths, cwd, durability, readOnly = false } = options;
  const snapshots = makeSnapshotCache(disk, paths.state, undefined, options.later);
  const refusal = readOnly ? makeReadOnlyFailure() : undefined;
  const common = { ...options, readOnly: refusal, snapshots, quarantine: join(paths.state, "quarantine") };
  const files: JsonlOptions = { ...common, fileFor: (header) => makeFilePath(paths, header) };
  const fleet = readOnly
    ? undefined
    : options.fleet?.makeStores({ disk, env, stateFolder: paths.state, complain: options.complain });
  const containers = { ...common, containerFor: (header: SessionHeader) => makeContainerPath(paths, header) };
  const copies = {
    jsonl: makeJsonlStore(fleet?.withReplica(files) ?? files),
    v2: once(() => makeSegmentedStore(fleet?.withReplica(containers) ?? containers)),
  };
  const jsonl = fleet?.publishThere(copies.jsonl) ?? copies.jsonl;
  const v2 = once(() => fleet?.publishThere(copies.v2()) ?? copies.v2());
  const memory = makeMemoryStore();
  const foreign = once(() =>
    options.foreign?.openAgentSessions({ disk, env, stateFolder: paths.state, variables: options.variables ?? {} }),
  );
  const named = fleet ? { copyFor: (path: string) => joined?.copyFor(path), requireOwn: fleet.requireOwn } : {};
  const opening = makeOpenings({ ...options, ...named, refusal }, { jsonl, memory, v2, foreign });
  const { stores, allowed, pathOf, openLog, openOwn } = opening;
  const { leaves } = stores;
  /**
   * Returns whether sessions made from this one are placed in its folder, as both Pis do: when it lies neither below the
   * session folders nor in our state folder (archive, trash), and no single folder is configured for all sessions.
   */
  const isOutside = (file: string): boolean => {
    if (options.kind === "memory" || paths.flat !== undefined) return false;
    const folder = getKnownPath(disk, dirname(file));
    return [paths.root as string, paths.state].every((above) => !isBelow(getKnownPath(disk, above), folder));
  };
  /** Opens a session file, or a database of pi_agent_rust as if it were a session file. */
  const openSource = (file: string, asReader?: boolean): Log => {
    if (!isDatabase(disk, file)) return jsonl.open(file, asReader);
    const shown = makeDiskWithBytes(disk, file, readDatabaseLines(disk, file));
    return makeJsonlStore({ ...files, disk: shown, snapshots: undefined }).open(file, true);
  };
  const openForReading = (file: string): Log => openLog(file, true);
  const ours = (path: string): string => {
    const file = pathOf(resolveLink(disk, allowed(path)));
    // A database of pi_agent_rust can be migrated.
    const refusal = foreign()?.refusal(file, MIGRATED);
    if (refusal) throw refusal;
    return file;
  };
  const folders = {
    listed: () => listSessionFolders(paths, disk),
    archived: () => listArchivedFolders(paths, disk),
    both: () => listAllFolders(paths, disk),
  };
  /** Returns false if another tenant of the fleet has the session of a file. */
  const isOwn = (file: string): boolean => {
    const id = fleet && readId(disk, file);
    return id === undefined || !fleet?.findOthers(id)({ id, path: file });
  };
  const findAnywhere = (id: string): string => findById(disk, [folders.both()], id, openForReading, false, isOwn);
  const isDurable = durability === "sync";
  const operations = makeOperationLog({ ...options, stateFolder: paths.state, isDurable });
  const lifeCycleDeps: LifecycleDeps = {
    ...options,
    leaves,
    operations,
    readOnly,
    open: (file) => openOwn(pathOf(file)),
    factsAt: (file) => readFactsAt(disk, file, openForReading),
    openStaged: (file) => jsonl.open(file, true),
    openForeign: (file) => foreign()?.open(pathOf(file), { asReader: true }),
    absolute: (path) => toAbsolutePath(path, cwd),
    allowed,
    pathOf,
    find: findAnywhere,
    requireFree: fleet?.requireFree,
    withId: (id) =>
      guardErrno("looking for sessions with the id", () => {
        const { exact } = filesOf(disk, listAllFolders(paths, disk), toFileStem(env, id));
        const found = exact.filter((file) => (readId(disk, file) ?? id) === id && isOwn(file));
        return found.length < 2 ? found : [...new Set(found.map((file) => findCurrentFile(disk, file)))];
      }),
  };
  const catalog: CatalogOptions = {
    ...options,
    leaves,
    openLog: openForReading,
    indexAhead: true,
    findOthers: fleet?.findOthers,
    isDurable,
    // SQLite opens its files by their paths.
    ...(options.sharedState ? { sqlite: () => undefined } : {}),
  };
  const local = makeWhenUsed(() => makeCatalog(catalog), ["close"]);
  const placeFor = ({ id, cwd, timestamp }: PlacedSession): { path: string; store: "v2" | "jsonl" } =>
    // A container takes only some ids.
    options.kind === "v2" && isUuid(id)
      ? { path: makeContainerPath(paths, { id, cwd }), store: "v2" }
      : {
          path: files.fileFor({ id, cwd: cwd ?? undefined, timestamp: timestamp ?? undefined } as SessionHeader),
          store: "jsonl",
        };
  const find = (id: string, isWhole?: boolean): string =>
    findById(disk, [folders.listed(), folders.archived()], id, openForReading, isWhole, isOwn);
  const idIn = (file: string): string | undefined => (exists(disk, file) ? readId(disk, file) : undefined);
  const idsIn = (file: string): string[] => {
    const log = lifeCycleDeps.openForeign(file);
    try {
      const id = log ? log.header.id : idIn(file);
      return id === undefined ? [] : [id, ...(log?.foreign?.inner().flatMap(idsIn) ?? [])];
    } finally {
      log?.close();
    }
  };
  const joined: FleetSessions | undefined = fleet?.join({
    ...{
      lifecycle: lifeCycleDeps,
      catalog: local,
      memory,
      isDurable,
      find,
      placeFor,
      isOutside,
      openForReading,
      idIn,
      idsIn,
    },
    copies: options.kind === "v2" ? [copies.v2(), copies.jsonl] : [copies.jsonl],
    storeAt: (file) => (isContainerName(file) ? copies.v2() : copies.jsonl),
    openCopy: (file) => openOwn(allowed(file)),
    isOurs: (log): log is FileLog => log instanceof FileLog,
  });
  const theirs = makeWhenUsed(
    () =>
      makeCatalog({
        ...catalog,
        paths: { root: join(paths.state, "agents"), state: paths.state },
        files: foreign()?.listFiles(),
      }),
    ["close"],
  );
  const all = makeWhenUsed(() => {
    const others = [options.foreign && makeForeignSource(theirs), joined?.source];
    return joinSources(
      local,
      others.filter((source) => source !== undefined),
    );
  }, ["close"]);
  return {
    ...stores,
    names: ["jsonl", "v2", "memory"],
    absolute: opening.pathAsGiven,
    arrive: joined?.arrive,
    uploadPending: joined?.uploadPending,
    kept: makeWhenUsed(() => openQuarantine(disk, common.quarantine)),
    fleet: joined?.admin,
    idIn,
    isSame: (a, b) => a === b || isSameQuietly(disk, a, b),
    nameBehind(path) {
      const real = getKnownPath(disk, path);
      return real === path ? undefined : basename(real);
    },
    find(id, isWhole) {
      try {
        return find(id, isWhole);
      } catch (error) {
        const isMissing = error instanceof Failure && error.name === "session_not_found";
        throw options.leavesFleet && isMissing ? makeNotFetchedFailure(id) : error;
      }
    },
    async lookUp(word, by) {
      const ours = by === "name" ? await findOurSessions(all, word, "listed", "wholeName") : [];
      const found = ours.length > 0 ? ours : await findAgentSessions(all, word, { by, sha256: env.sha256 });
      if (found.length === 0) return undefined;
      const { id, path, isRemote } = requireOneSession(found, word);
      if (!isRemote) return path;
      await joined?.arrive({ sessionId: id, isWhole: true }, () => false);
      return find(id, true);
    },
    withId: (id) => (options.kind === "memory" ? [] : lifeCycleDeps.withId(id)),
    findOf(cwd, id) {
      if (options.kind === "memory") return undefined;
      const archive = getArchiveFolder(paths);
      const archived = paths.flat === undefined ? { ...paths, root: archive } : { ...paths, flat: archive };
      const places = [paths, archived].map((of) =>
        [getSessionFolder(of, cwd)].filter((folder) => exists(disk, folder)),
      );
      const isDirectory = matchFolder(disk, cwd);
      const isOf = (file: string): boolean => {
        const own = readHeader(disk, file)?.cwd;
        return typeof own === "string" && isDirectory(own);
      };
      try {
        return findById(disk, places, id, openForReading, true, (file) => isOf(file) && isOwn(file));
      } catch (error) {
        if (error instanceof Failure && error.name === "session_not_found") return undefined;
        throw error;
      }
    },
    offered: (beginning, most, which = "listed") =>
      findOffered(disk, folders[which](), beginning, most, openForReading),
    writeOutput: (file, pieces, taken, attachmentsOf) =>
      writeOutput(disk, allowed(file), pieces, taken, attachmentsOf, isDurable),
    home: options.home,
    bytesOf: (log) => readStoredBytes(disk, log),
    // Folder names collide, so only the header shows which working directory a session belongs to.
    latest(wanted, isTop = false) {
      const isDirectory = matchFolder(disk, wanted);
      const isFork = ({ parentSession, branchedFrom }: StoredHeader): boolean =>
        [parentSession, branchedFrom].some((parent) => typeof parent === "string" && parent !== "");
      const isOf = (header: StoredHeader): boolean =>
        typeof header.cwd === "string" && isDirectory(header.cwd) && !(isTop && isFork(header));
      return findLatest(disk, getSessionFolder(paths, wanted), (header, file) => isOf(header) && isOwn(file));
    },
    nextTo(file, header) {
      if (!isOutside(file)) return undefined;
      try {
        return allowed(join(dirname(file), options.kind === "v2" ? `${header.id}${CONTAINER}` : makeFileName(header)));
      } catch {
        // A confined server opens files in folders that it may not write to.
        return undefined;
      }
    },
    made(key, of) {
      if ("id" in of) return lifeCycleDeps.withId(of.id).find((file) => readHeader(disk, file)?.idempotencyKey === key);
      if ("cwd" in of) return madeWith(disk, getSessionFolder(paths, of.cwd), key);
      return isOutside(of.nextTo) ? madeWith(disk, dirname(of.nextTo), key) : undefined;
    },
    pause,
    settle: () => snapshots.settle(),
    operations,
    lifeCycle: makeWhenUsed(() => {
      const own = makeLifeCycle(lifeCycleDeps);
      return joined?.wrapLifeCycle(own) ?? own;
    }),
    migrations: makeWhenUsed(() =>
      recordMigrations(
        lifeCycleDeps,
        makeMigrations(
          {
            ...options,
            openFile: openSource,
            openContainer: v2().open,
            fileFor: (header, folder) => join(folder, makeFileName(header)),
            leaves,
          },
          allowed,
          ours,
          readOnly,
        ),
      ),
    ),
    catalog: all,
    health: makeWhenUsed(() => {
      const health = makeHealth({
        ...catalog,
        locks: options.locks,
        lifecycle: lifeCycleDeps,
        roots: options.roots ?? [],
        listUnread: () => foreign()?.listUnread() ?? [],
      });
      return {
        ...health,
        holders(sessionPaths) {
          const files = [...sessionPaths];
          return new Map([...health.holders(files), ...(foreign()?.findHolders(files) ?? [])]);
        },
      };
    }),
  };
}

/** Returns the failure for a session that only the fleet may have, while nothing may be fetched. */
function makeNotFetchedFailure(sessionId: string): Failure {
  return new Failure(
    "session_not_found",
    `No session on this machine has the id ${sessionId}. A server with --read-only or --no-session fetches none from the fleet. Open it once with a server without these options; then this one shows it, too.`,
    { sessionId },
  );
}

/** Returns the folders that a confined server may access. */
export function getConfines(paths: StoragePaths, allowed: readonly string[]): Confines {
  const sessions = [paths.flat, paths.root].filter((folder) => folder !== undefined);
  return { given: [...sessions, getArchiveFolder(paths), ...allowed], own: [paths.state] };
}

function isSameQuietly(disk: Disk, a: string, b: string): boolean {
  const [one, other] = [getInfo(disk, a), getInfo(disk, b)];
  return one !== null && other !== null && isSameFile(one, other);
}

/**
 * Returns the file of the session with an id, or else, unless `isWhole`, of the only one whose id begins with it, in the
 * first of the places that has any, of those that fit. Throws invalid_id, session_not_found, ambiguous_id.
 */
function findById(
  disk: Disk,
  places: readonly Iterable<string>[],
  id: string,
  openForReading: (file: string) => Log,
  isWhole = false,
  fits: (file: string) => boolean = () => true,
): string {
  if (!SESSION_ID.test(id)) throw new Failure("invalid_id", undefined, { sessionId: id });
  const there = places.map((folders) => {
    const { exact, prefixed } = filesOf(disk, folders, id);
    return { exact: exact.filter(fits), prefixed: prefixed.filter(fits) };
  });
  const exact = there.find(({ exact }) => exact.length > 0)?.exact;
  const prefixed = isWhole ? undefined : there.find(({ prefixed }) => prefixed.length > 0)?.prefixed;
  let found = exact ?? prefixed ?? [];
  // During a migration or rollback, or after an interrupted one, a session has a file and a container.
  if (found.length > 1) found = [...new Set(found.map((file) => findCurrentFile(disk, file)))];
  if (found.length === 0) throw toUnknownIdFailure(id);
  // An interrupted move leaves two names of one session.
  if (found.every((file) => isSameQuietly(disk, file, found[0]))) return found[0];
  const isOneId = exact !== undefined || new Set(found.map((file) => readId(disk, file))).size === 1;
  throw ambiguousId(disk, id, found, isOneId, readCandidates(disk, found, openForReading));
}

/** Ids or paths that a failure lists at most. */
const MOST_LISTED = 3;

/** Returns the failure that lists some of the sessions that an id, or the beginning of one, may mean. */
function ambiguousId(
  disk: Disk,
  id: string,
  files: readonly string[],
  isWhole: boolean,
  candidates: readonly Candidate[],
): Failure {
  const details = { sessionId: id, matches: files.length, candidates };
  const some = [...files].sort().slice(0, MOST_LISTED);
  const named = isWhole ? some : [...new Set(some.map((file) => readId(disk, file)))];
  const list = named.filter((name) => isWhole || SESSION_ID.test(name ?? "")).join(", ");
  const more = files.length > MOST_LISTED ? ` and ${files.length - MOST_LISTED} more` : "";
  if (list === "") return new Failure("ambiguous_id", undefined, details);
  const sentence = isWhole
    ? `Several sessions have one id: ${list}${more}. Name the one you mean by its path.`
    : `Several session ids begin with this: ${list}${more}. Give more of it.`;
  return new Failure("ambiguous_id", sentence, details);
}

/** Returns the session files with an id, and those with an id that begins with it. */
function filesOf(disk: Disk, folders: Iterable<string>, id: string): { exact: string[]; prefixed: string[] } {
  const exact: string[] = [];
  const prefixed: string[] = [];
  for (const folder of folders)
    for (const name of disk.names(folder)) {
      if (!isSessionIn(disk, folder, name)) continue;
      const file = join(folder, name);
      // Files written by us or by the TypeScript Pi have their id in the name; other files only in the header.
      const [, named = ""] = /^\d{4}-\d\d-\d\dT[^_]*_(.+)\.jsonl$/.exec(name) ?? [];
      // In names, `_` also replaces characters that no name may have.
      const isUnsure =
        named === id ? id.includes("_") : named.startsWith(id) || id.startsWith(named) || !SESSION_ID.test(named);
      const isNamed = named === id || name === `${id}${CONTAINER}`;
      const found = isUnsure ? (readId(disk, file) ?? (isNamed ? id : undefined)) : named;
      if (found === id) exact.push(file);
      else if (found?.startsWith(id)) prefixed.push(file);
    }
  return { exact, prefixed };
}

function readId(disk: Disk, file: string): string | undefined {
  const id = readHeader(disk, file)?.id;
  return typeof id === "string" ? id : undefined;
}

/** Number of newest files to search for the one that an earlier attempt of a repeated request created. */
const YOUNGEST = 200;

/** Returns the session in a folder whose header has an idempotency key. File names begin with the time of creation. */
function madeWith(disk: Disk, folder: string, key: string): string | undefined {
  if (!exists(disk, folder)) return undefined;
  const names = disk.names(folder).sort().reverse();
  // Names of containers begin with the id, and ids are ordered by time too.
  const youngest = [
    ...names.filter(isSessionName).slice(0, YOUNGEST),
    ...names.filter(isContainerName).slice(0, YOUNGEST),
  ].filter((name) => isSessionIn(disk, folder, name));
  return youngest.map((name) => join(folder, name)).find((file) => readHeader(disk, file)?.idempotencyKey === key);
}
