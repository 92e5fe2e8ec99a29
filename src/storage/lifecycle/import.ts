/** Imports sessions from elsewhere: byte for byte, once, and without replacing a session. */

import { dirname, join } from "node:path";
import { toUnfinishedFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { makeDraft, makeEntryLine, replaceMember, SESSION_ID, type SessionHeader } from "../../core/format/entry.ts";
import { LEAF_MARKER } from "../../core/format/node-reader.ts";
import { areSameBytes, concat, parse, toBytes } from "../../core/json/json.ts";
import type { Progress } from "../../core/ports/catalog.ts";
import { type Env, makeTimestamp } from "../../core/ports/env.ts";
import type { Imported } from "../../core/ports/lifecycle.ts";
import type { BegunOperation } from "../../core/ports/operations.ts";
import type { ForeignSource, Log } from "../../core/ports/store.ts";
import { DID } from "../../core/session/history.ts";
import type { TakenFromOriginal } from "../../core/session/stats.ts";
import { findTakenOver } from "../catalog/originals.ts";
import { copyFile, cutBack, hasSameBytes, pause, readPieces, readWholeLines } from "../fs/chunked-io.ts";
import { isContainerName } from "../fs/container-paths.ts";
import { type Disk, exists, type FileInfo, makeTemporaryName, removeQuietly, writeAll } from "../fs/disk.ts";
import {
  addNumber,
  findFreeName,
  getInfo,
  guardErrno,
  isNameTaken,
  putInPlace,
  readAt,
  useAndClose,
  useFile,
} from "../fs/files.ts";
import { listNames } from "../fs/folders.ts";
import type { HeaderPlace } from "../fs/header.ts";
import { getSessionFolder, makeFileName, toFolderName } from "../fs/paths.ts";
import { isSameFile } from "../fs/stamps.ts";
import { getAttachmentFolder } from "../log/attachments.ts";
import { LF } from "../log/lines.ts";
import { type LifecycleDeps, requireWritable, runExclusively } from "./exclusive.ts";
import { readHeaderLine } from "./header-lines.ts";
import { findBelongings } from "./move.ts";
import { getTitleFacts, runRecorded } from "./recorded.ts";
import { copySession } from "./relocate.ts";

const CONTINUING = "continuing the session";
const WHAT_CAME = "The part of the file that was read stays in the session.";
/** Lines read without a pause. */
const LINES = 500;
const BACKUP = /\.jsonl\.(migrated|\w+\.bak(\.\d+)?)$/;
/** Attempts of an import while another process imports the same session. */
const TRIES = 3;

/** A session file and the offset of its entries. */
interface ImportSource extends HeaderPlace {
  readonly path: string;
  readonly fd: number;
  /** Its facts at opening. */
  readonly info: FileInfo;
  readonly size: number;
  /** Offset of the entries after the header. */
  readonly body: number;
}

/** Relation of an existing session to one that is imported. */
type Relation = "has all" | "has its beginning" | "has some" | "other";

/** Imports one of our session files. `open` opens it. */
async function importSession(
  deps: LifecycleDeps,
  path: string,
  progress: Progress | undefined,
  group: string | undefined,
  open: (file: string) => Log = deps.open,
): Promise<Imported> {
  requireWritable(deps);
  return useAndClose(open(path), (log) =>
    guardErrno("importing the session", async () => {
      if (log.store !== "jsonl")
        throw new Failure(
          "not_a_session",
          "Only JSONL files can be imported. export_session makes one from a session in another store.",
          { sessionPath: path },
        );
      await readAllEntries(log, progress);
      for (let tries = 1; ; tries++)
        try {
          return await withSource(deps.disk, path, (source) => importSource(deps, log, source, progress, group));
        } catch (error) {
          // Another process was faster: its session is compared in the next attempt.
          if (!isNameTaken(error) || tries >= TRIES) throw error;
        }
    }),
  );
}

/** Reads every entry of a log, which finds damage that opening does not. */
export async function readAllEntries(log: Log, progress: Progress | undefined): Promise<void> {
  const { count } = log.nodes;
  for (let from = 0; from < count; from += LINES) {
    const positions = Int32Array.from({ length: Math.min(LINES, count - from) }, (_, i) => from + i);
    // Damage in a body is found when it is read.
    for (const _ of log.readMany(positions));
    progress?.(from + positions.length, 2 * count);
    await pause();
  }
}

/** Runs `use` with an open session file. Throws corrupt when its header is damaged. */
function withSource<T>(disk: Disk, path: string, use: (source: ImportSource) => T): T {
  return useFile(disk, disk.openRead(path), (fd) => {
    const info = disk.infoOf(fd);
    const { size } = info;
    const place = readHeaderLine(disk, fd, size, path);
    // The header is followed by a line feed, with or without a carriage return, or by nothing.
    const end = place.start + place.line.length;
    const feed = readAt(disk, fd, end, Math.min(2, size - end)).indexOf(0x0a);
    return use({ ...place, path, fd, info, size, body: end + feed + 1 });
  });
}

async function importSource(
  deps: LifecycleDeps,
  log: Log,
  source: ImportSource,
  progress: Progress | undefined,
  group: string | undefined,
): Promise<Imported> {
  const { disk } = deps;
  const { size } = source;
  const done = (at: number): void => progress?.(size + Math.min(at, size), 2 * size);
  const { id, cwd = null } = log.header;
  const facts = { cwd, entryCount: log.nodes.count, version: log.version, damage: [...log.damage] };
  const related: { readonly file: string; readonly relation: Relation }[] = [];
  for (const file of deps.withId(id)) {
    const relation = await relate(deps, log, source, file, done);
    related.push({ file, relation });
    if (relation === "has all") break;
  }
  // No copy is continued with entries that exist already.
  const known = related.find(({ relation }) => relation === "has all");
  const found = known ?? related.find(({ relation }) => relation !== "other");
  if (found) {
    const { file, relation } = found;
    if (relation !== "has all") await deps.requireFree?.(id);
    await copyAttachments(disk, source.path, file);
    try {
      if (relation === "has its beginning") await continueWith(deps, source, log, file);
      else if (relation === "has some") await addMissing(deps, log, file);
    } catch (error) {
      if (!(error instanceof Failure) || error.name !== "session_locked") throw error;
      throw new Failure(error.name, error.text, { ...error.details, sessionPath: file });
    }
    const session = { sessionId: id, sessionPath: file };
    if (relation === "has all") return { ...session, outcome: "known", ...facts };
    return { operationId: noteContinued(deps, log, session, group), ...session, outcome: "continued", ...facts };
  }
  const other = related[0]?.file;
  if (other === undefined) {
    const target = targetOf(deps, log.header);
    const session = { sessionId: id, sessionPath: target };
    const operationId = await asOperation(deps, log, session, group, async () => {
      await copyAttachments(disk, source.path, target);
      await copyFile(disk, source.path, target, false, done);
      await disk.syncFolder(dirname(target));
    });
    return { operationId, ...session, outcome: "new", ...facts };
  }
  // The same bytes always get the same id.
  const sessionId = await idFor(deps, id, source);
  const conflict = { sessionId, conflictsWith: other, ...facts };
  for (const file of deps.withId(sessionId))
    if ((await relate(deps, log, source, file, done)) === "has all")
      return { ...conflict, sessionPath: file, outcome: "known" };
  const target = targetOf(deps, { ...log.header, id: sessionId });
  const parent = log.header.branchedFrom === undefined ? "parentSession" : "branchedFrom";
  const withId = replaceMember(source.line, "id", toBytes(JSON.stringify(sessionId)));
  const line = replaceMember(withId, parent, toBytes(JSON.stringify(other)));
  const operationId = await asOperation(deps, log, { sessionId, sessionPath: target }, group, async () => {
    await copyAttachments(disk, source.path, target);
    const fill = (fd: number): Promise<void> => copySession(disk, [source.fd, fd], size, source, line, done);
    await putInPlace(disk, target, fill, { replace: false, sync: true });
    await disk.syncFolder(dirname(target));
  });
  return { operationId, ...conflict, sessionPath: target, outcome: "conflict" };
}

/** Runs an import that makes a session as an operation; its undo moves that session to the trash. Returns its id. */
async function asOperation(
  deps: LifecycleDeps,
  log: Log,
  session: Pick<Imported, "sessionId" | "sessionPath">,
  group: string | undefined,
  run: () => Promise<void>,
): Promise<string> {
  const { name, title } = getTitleFacts(log);
  const step = { do: "appear" as const, to: session.sessionPath };
  const operation = { kind: "import" as const, ...session, name, text: `${DID.import} ${title}.`, step, group };
  const make = ({ id }: BegunOperation): Promise<string> => run().then(() => id);
  return runRecorded(deps, operation, make, () => ({ step: { ...step, count: log.nodes.count } }));
}

/** Records an import that continued a session. Returns the operation's id. */
function noteContinued(
  { operations }: LifecycleDeps,
  log: Log,
  session: Pick<Imported, "sessionId" | "sessionPath">,
  group: string | undefined,
): string {
  const { name, title } = getTitleFacts(log);
  const id = operations.note({
    kind: "import",
    ...session,
    name,
    group,
    text: `Continued ${title} with entries of an imported file.`,
    final: "No entry is ever taken out of a session. Branch from the entry before those that came, or from any other.",
  });
  operations.flush();
  operations.settle([id]);
  return id;
}

/** Compares one of our session files with the source. Headers may differ: other programs rewrite them. */
async function relate(
  deps: LifecycleDeps,
  log: Log,
  source: ImportSource,
  file: string,
  done: (at: number) => void,
): Promise<Relation> {
  const { disk } = deps;
  // A container stores its entries in another form, so its bytes cannot be compared.
  const files = isContainerName(file) ? [] : [file];
  const backups = findBelongings(disk, file, log.header.id).filter((path) => BACKUP.test(path));
  const compare = async (there: ImportSource): Promise<Relation> => {
    const [wanted, present] = [source.size - source.body, there.size - there.body];
    const common = Math.min(wanted, present);
    if (!(await hasSameBytes(disk, [source.fd, source.body], [there.fd, there.body], common, done))) return "other";
    return wanted <= present ? "has all" : "has its beginning";
  };
  for (const path of [...files, ...backups])
    try {
      const relation = await withSource(disk, path, compare);
      // A backup is an older state of the session.
      if (relation === "has all") return relation;
      if (relation === "has its beginning" && path === file) return hasNoMore(deps, log, file) ? "has all" : relation;
    } catch (error) {
      // With a damaged header, the offset of its entries is unknown.
      if (!(error instanceof Failure) || error.name !== "corrupt") throw error;
    }
  // Entry by entry: a torn end or a rewritten file does not make it another session.
  return useAndClose(deps.open(file), (there) => {
    if (hasAllEntries(there, log)) return "has all";
    return hasAllEntries(log, there) ? "has some" : "other";
  });
}

/** Returns whether the source has only damage behind the entries of a session that it begins with. */
function hasNoMore(deps: LifecycleDeps, log: Log, file: string): boolean {
  return useAndClose(deps.open(file), (there) => there.nodes.count >= log.nodes.count && hasAllEntries(there, log));
}

/** Returns whether a log has every entry of another one, with the same bytes. */
export function hasAllEntries(log: Log, part: Log): boolean {
  for (let p = 0; p < part.nodes.count; p++) if (!holds(log, part, p)) return false;
  return true;
}

function holds(log: Log, part: Log, p: number): boolean {
  const position = log.nodes.position(part.nodes.id(p));
  if (position >= 0) return areSameBytes(part.read(p), log.read(position));
  return isDerived(log) && isDerived(part) && isPassing(part, p);
}

/** Returns whether a session was made from another agent's. */
function isDerived({ header }: Log): boolean {
  return header.importedFrom !== undefined;
}

/** Returns whether an entry only records the agent's progress: its leaf, or the beginning of an answer. */
function isPassing(log: Log, position: number): boolean {
  return log.nodes.isMarker(position) || (parse(log.read(position)) as { partial?: unknown }).partial === true;
}

/** Appends the missing entries to a session. Throws content_modified unless all its entries are in the source. */
async function addMissing(deps: LifecycleDeps, source: Log, file: string): Promise<void> {
  await runExclusively(deps, file, CONTINUING, async ({ log }) => {
    if (!hasAllEntries(source, log)) throw writtenMeanwhile();
    await appendMissing(source, log);
  });
}

/** Appends the missing entries of the source to a log. `hasCome`: some came by other means before. */
async function appendMissing(source: Log, log: Log, hasCome = false): Promise<void> {
  const lines: Uint8Array[] = [];
  for (let p = 0; p < source.nodes.count; p++) if (!holds(log, source, p)) lines.push(source.read(p));
  for (let i = 0; i < lines.length; i += LINES)
    try {
      log.append(lines.slice(i, i + LINES));
      await log.commit();
    } catch (error) {
      throw hasCome || i > 0 ? toUnfinishedFailure(error, CONTINUING, WHAT_CAME) : error;
    }
}

function writtenMeanwhile(): Failure {
  return new Failure("content_modified", "Another program wrote to the session meanwhile. Try again.");
}

/**
 * Appends the rest of the source to a session that has its beginning, all or nothing. If a program that ignores locks
 * appends during this, the log reads those entries, and gets the missing ones.
 */
async function continueWith(deps: LifecycleDeps, source: ImportSource, entries: Log, file: string): Promise<void> {
  const { disk } = deps;
  await runExclusively(deps, file, CONTINUING, async ({ log }) => {
    const { info, size, body } = await withSource(disk, file, async (found) => {
      const length = found.size - found.body;
      const still = await hasSameBytes(disk, [source.fd, source.body], [found.fd, found.body], length);
      if (!still) throw writtenMeanwhile();
      return found;
    });
    const from = source.body + size - body;
    if (await useFile(disk, disk.openAppend(file), (fd) => appendRest(disk, source, from, fd, { file, info }))) return;
    const { kind } = log.refresh();
    if (kind === "replaced" || kind === "gone") throw writtenMeanwhile();
    await appendMissing(entries, log, true);
  });
}

/**
 * Appends the source from an offset on to an open session file that was found so, in whole lines. Returns false if
 * another program appended, too, or replaced the file; it stops then. After a failure it removes its own lines, unless
 * others follow.
 */
async function appendRest(
  disk: Disk,
  source: ImportSource,
  from: number,
  target: number,
  { file, info }: { readonly file: string; readonly info: FileInfo },
): Promise<boolean> {
  const { size } = info;
  let end = size;
  const isAlone = (): boolean => {
    const now = getInfo(disk, file);
    return now !== null && isSameFile(now, info) && now.size === end;
  };
  try {
    for (const lines of readWholeLines(disk, source.fd, from, source.size)) {
      if (!isAlone()) break;
      writeAll(disk, target, lines);
      end += lines.length;
      await pause();
    }
    await disk.sync(target);
    return isAlone();
  } catch (error) {
    if (!(await cutBack(disk, [source.fd, from], target, size)))
      throw toUnfinishedFailure(error, CONTINUING, WHAT_CAME);
    throw error;
  }
}

/** Returns the path for an imported session. No member of its header becomes part of a path unchecked. */
function targetOf(deps: LifecycleDeps, { id, timestamp: since, cwd }: SessionHeader): string {
  const { disk, env, paths } = deps;
  const time = Date.parse(since ?? "");
  const at = Number.isFinite(time) ? new Date(time).toISOString() : makeTimestamp(env);
  const place = cwd ?? "";
  const usable = place !== "" && !place.includes("\0") && toBytes(toFolderName(place)).length <= MAX_NAME;
  const folder = getSessionFolder(paths, usable ? place : deps.cwd);
  const stem = toFileStem(env, id);
  disk.makeFolder(folder);
  const nameOf = (n: number): string => makeFileName({ type: "session", id: stem, timestamp: addNumber(at, n, "-") });
  return findFreeName(disk, (n) => join(folder, nameOf(n)));
}

/** Returns a session's id in the form used in file names: unchanged if possible, otherwise a hash. */
export function toFileStem(env: Env, id: string): string {
  return SESSION_ID.test(id) ? id : env.sha256(toBytes(id)).slice(0, 32);
}

/** Bytes of the longest name that file systems accept. */
const MAX_NAME = 255;

/** Copies the attachments of a session. They are named by their content, so that existing ones are the same. */
export async function copyAttachments(disk: Disk, from: string, to: string): Promise<void> {
  const names = listNames(disk, getAttachmentFolder(from)).filter((name) => /^[0-9a-f]{64}$/.test(name));
  if (names.length === 0) return;
  const folder = getAttachmentFolder(to);
  disk.makeFolder(folder);
  for (const name of names)
    if (!exists(disk, join(folder, name)))
      await copyFile(disk, join(getAttachmentFolder(from), name), join(folder, name), false);
  await disk.syncFolder(folder);
}

/** Returns a session id derived from an id and from content, as a UUID of version 8. */
async function idFor({ disk, env }: LifecycleDeps, id: string, { fd, size, body }: ImportSource): Promise<string> {
  let digest = env.sha256(toBytes(id));
  for (const piece of readPieces(disk, fd, body, size)) {
    digest = env.sha256(toBytes(digest + env.sha256(piece)));
    await pause();
  }
  const variant = "89ab"[Number.parseInt(digest[16], 16) & 3];
  return `${digest.slice(0, 8)}-${digest.slice(8, 12)}-8${digest.slice(13, 16)}-${variant}${digest.slice(17, 20)}-${digest.slice(20, 32)}`;
}

// --- sessions of other agents ---------------------------------------------------------------------------------------

/** Imports a session file of ours, or another agent's with the sessions within it. */
export function importAny(deps: LifecycleDeps, path: string, progress?: Progress, group?: string): Promise<Imported> {
  requireWritable(deps);
  const log = deps.openForeign(path);
  if (!log) return importSession(deps, path, progress, group);
  return useAndClose(log, async () => {
    const source = log.foreign as ForeignSource;
    const imported = await importForeign(deps, log, source, progress, group);
    const subagents: Imported[] = [];
    for (const within of source.inner()) {
      const inner = deps.openForeign(within);
      // Its agent has replaced the file in between.
      if (!inner) continue;
      const { sessionPath: parent, operationId } = imported;
      subagents.push(
        await useAndClose(inner, () =>
          importForeign(deps, inner, inner.foreign as ForeignSource, undefined, group ?? operationId, parent),
        ),
      );
    }
    return subagents.length === 0 ? imported : { ...imported, subagents };
  });
}

/** `parent`: the file of the imported session that made this one. */
async function importForeign(
  deps: LifecycleDeps,
  log: Log,
  source: ForeignSource,
  progress: Progress | undefined,
  group: string | undefined,
  parent?: string,
): Promise<Imported> {
  const { disk, paths } = deps;
  const parentSession = parent ?? log.header.parentSession;
  const staged = makeTemporaryName(join(paths.state, "foreign", "import"));
  try {
    await guardErrno("preparing the import", () => {
      const takenOver = parent === undefined ? takenOverBy(deps, log) : undefined;
      disk.makeFolder(join(paths.state, "foreign"));
      return useFile(disk, disk.create(staged), (fd) => fill(deps, { log, parentSession, takenOver }, fd));
    });
    const imported = await importSession(deps, staged, progress, group, (file) => deps.openStaged(file));
    return { ...imported, damage: log.damage, fidelity: source.fidelity() };
  } finally {
    removeQuietly(disk, staged);
  }
}

/** Writes a log as a session file of ours. A leaf that is not its last entry becomes a marker, as we write them. */
async function fill(
  { disk, env }: LifecycleDeps,
  {
    log,
    parentSession,
    takenOver,
  }: { log: Log; parentSession: string | undefined; takenOver: TakenFromOriginal | undefined },
  fd: number,
): Promise<void> {
  const { leafId, ...rest } = log.header;
  const importedFrom = takenOver ? { ...(rest.importedFrom as object), takenOver } : rest.importedFrom;
  const header = { ...rest, ...(parentSession === undefined ? {} : { parentSession }), importedFrom };
  writeAll(disk, fd, concat([toBytes(JSON.stringify(header)), LF]));
  const positions = Int32Array.from({ length: log.nodes.count }, (_, position) => position);
  for (const piece of log.copy(positions)) {
    writeAll(disk, fd, piece);
    await pause();
  }
  if (leafId === undefined) return;
  const parentId = leafId === "" ? null : leafId;
  const id = env.sha256(toBytes(`leaf ${parentId} ${log.nodes.count}`)).slice(0, 16);
  const timestamp = header.timestamp ?? new Date(env.now()).toISOString();
  const data = parentId === null ? { leafId: null } : undefined;
  const { rest: members } = makeDraft("custom", { customType: LEAF_MARKER, data });
  writeAll(disk, fd, concat([makeEntryLine({ type: "custom", id, parentId, timestamp, rest: members }), LF]));
}

/** Returns the entries that a fork copied, if its original's file still exists. */
function takenOverBy(deps: LifecycleDeps, log: Log): TakenFromOriginal | undefined {
  const { parentSession } = log.header;
  const original = parentSession === undefined ? undefined : opened(deps, parentSession);
  return original && useAndClose(original, () => findTakenOver(log, original));
}

/** Returns the session in another agent's file; undefined if it is gone, damaged or not permitted. */
function opened(deps: LifecycleDeps, file: string): Log | undefined {
  try {
    return deps.openForeign(file);
  } catch {
    return undefined;
  }
}
