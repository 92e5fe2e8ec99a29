/**
 * Locates the parts of a session, and finds out which of them is the session: once settled, the pointer file decides
 * (INV-007).
 */

import { createHash } from "node:crypto";
import { basename, dirname, join } from "node:path";
import { isErrno } from "../../core/errno.ts";
import { describeUnchanged, Failure } from "../../core/failure.ts";
import type { SessionHeader } from "../../core/format/entry.ts";
import { toBytes } from "../../core/json/json.ts";
import type { UnreadFile } from "../../core/ports/catalog.ts";
import type { SessionLocation, Status } from "../../core/ports/migrations.ts";
import { readPieces } from "../fs/chunked-io.ts";
import {
  CONTAINER,
  FOLDERS,
  getPointerFile,
  headerFile,
  isContainerName,
  ledgerFile,
  manifestFile,
  POINTER,
  segmentFolder,
} from "../fs/container-paths.ts";
import { type Disk, exists, isAbsent, renameExclusive } from "../fs/disk.ts";
import {
  addNumber,
  findLastName,
  getInfo,
  guardErrno,
  putInPlace,
  putInPlaceNow,
  readBeginning,
  readIfPresent,
  useFile,
} from "../fs/files.ts";
import { beginsDatabase, readBegun, readHeader, type StoredHeader } from "../fs/header.ts";
import { makeFileName } from "../fs/paths.ts";
import { listBackups, nameBackup } from "../fs/quarantine.ts";
import { makeNoSessionFailure } from "../log/failures.ts";
import type { Durability } from "../log/write-state.ts";
import {
  encodePointer,
  isUuid,
  type MigrationEvent,
  type Pointer,
  readLedger,
  readManifest,
  readPointer,
} from "./documents.ts";
import { Malformed, readIfSound } from "./frame.ts";
import { findNewerPointer } from "./newer.ts";
import { isDatabase, readDatabaseId } from "./sqlite-v1.ts";
import type { StoreState } from "./states.ts";

/** Suffix of a session file's name once a container has taken its place. */
const FROZEN = ".migrated";

/** Returns the name of a session file once a container has taken its place. */
export function getFrozenName(source: string): string {
  return `${source}${FROZEN}`;
}

/** Returns the path of the session file that this path is the frozen copy of; null for any other path. */
export function getUnfrozenPath(path: string): string | null {
  return path.endsWith(FROZEN) && basename(path).length > FROZEN.length ? path.slice(0, -FROZEN.length) : null;
}

/** Returns whether the container at a path is a session. */
export function isActive(disk: Disk, container: string): boolean {
  return readActiveSource(disk, container) !== undefined;
}

/** Returns the name of the file that a container was migrated from, or null; undefined when it is not the session. */
export function readActiveSource(disk: Disk, container: string): string | null | undefined {
  const pointer = readContainerPointer(disk, container);
  if (pointer !== null) return isContainer(disk, container, pointer) ? pointer.source : undefined;
  const origin = readOrigin(disk, container);
  return typeof origin === "string" ? undefined : origin.source;
}

/**
 * Returns whether a container is the session by its pointer. Until the last step of a migration or rollback, which renames
 * the session file, its name decides: a program that knows no pointer continues with that file.
 */
export function isContainer(disk: Disk, container: string, pointer: Pointer): boolean {
  return pointer.active === "native_v2" && (pointer.phase === "completed" || !hasOwnFile(disk, container, pointer));
}

/** Returns whether the session file that a pointer names exists and is of its session. */
function hasOwnFile(disk: Disk, container: string, { source }: Pointer): boolean {
  if (source === null) return false;
  try {
    return readFileHeader(disk, join(dirname(container), source))?.id === basename(container, CONTAINER);
  } catch (error) {
    // It cannot be read, so it is no session.
    if (error instanceof Failure || isErrno(error)) return false;
    throw error;
  }
}

/**
 * Returns a sentence if a program that knows no pointer wrote to the session file of a container that is the session: its
 * entries are in that file alone.
 */
export function findStrayWrites(
  disk: Disk,
  container: string,
  { source, phase, snapshotId }: Pointer,
): string | undefined {
  if (source === null) return undefined;
  const file = join(dirname(container), source);
  const frozen = getFrozenName(file);
  if (exists(disk, file))
    return `${file} is there again, next to the container that took its place: a program that does not know the container wrote it, or a person put it back. What only that file has is not in the session. Close the session in that program and move the file away; it is kept as it is until then, and rollback_migration is refused`;
  const isChanged = phase === "cutover_commit" && exists(disk, frozen) && hashOf(disk, frozen) !== snapshotId;
  if (!isChanged) return undefined;
  return `${frozen} has more than the container: a program wrote to it while it was migrated. rollback_migration makes it the session, with everything in it`;
}

/**
 * Returns the paths of the session files that containers among these stand for: where a rollback or migration was cut
 * off, both are there, and they are one session.
 */
export function listMigratedSources(disk: Disk, containers: Iterable<string>): Set<string> {
  const found = new Set<string>();
  for (const container of containers)
    try {
      const source = readActiveSource(disk, container);
      if (typeof source === "string") found.add(join(dirname(container), source));
    } catch {
      // If it cannot be read, no file is known to be the same session.
    }
  return found;
}

/** Returns the pointer of a container; null when it is missing or malformed. */
export function readContainerPointer(disk: Disk, container: string): Pointer | null {
  return readIfSound(() => readPointer(disk, getPointerFile(container)));
}

/** The members of a container's pointer that its documents contain. */
interface Origin extends Pick<Pointer, "correlationId" | "source" | "sourceFormat"> {
  /** Hash of the manifest; null without a valid one. */
  readonly manifestHash: string | null;
}

/**
 * Returns the origin of a container whose pointer is missing or damaged, or a text that says why it is not a session. A
 * container that began in V2 is a session, because no session file was ever in its place. One whose ledger has a completed
 * migration is a session unless the migrated file is there again: after that, only a rollback makes another file the
 * session, and the ledger records it too. One whose ledger is lost is a session unless a session file with its id lies next
 * to it; for a database, only the files next to it decide. A process that died between publishing the container and
 * publishing the pointer leaves such a container, and so does a copy without the pointer.
 */
export function readOrigin(disk: Disk, container: string): Origin | string {
  const pointer = basename(getPointerFile(container));
  const lost = `its pointer file ${pointer} is missing or damaged`;
  const copyIt = `Copy ${pointer} from where the container came from`;
  if (!exists(disk, headerFile(container))) return "it has neither header nor pointer file";
  const manifest = readManifest(disk, manifestFile(container));
  const sessionId = basename(container, CONTAINER);
  if (manifest !== null && manifest.sessionId !== sessionId)
    return `${lost}, and it is that of the session ${manifest.sessionId}. Give it the name ${manifest.sessionId}${CONTAINER}`;
  const manifestHash = manifest?.integrity.manifestHash ?? null;
  const asNew = { manifestHash, correlationId: `new-${sessionId}`, source: null };
  if (manifest?.sourceFormat === "native_v2") return asNew;
  const last = lastMigration(disk, container);
  if (last === undefined) {
    const frozen = frozenOf(disk, container);
    if (manifest?.sourceFormat === "sqlite_v1") {
      if (frozen === undefined || exists(disk, join(dirname(container), frozen)))
        return `${lost}, and so is its ledger. Open the database that it was made from. If that is lost: ${copyIt.toLowerCase()}`;
      return { ...asNew, source: frozen, sourceFormat: "sqlite_v1" };
    }
    if (hasSessionFile(disk, dirname(container), sessionId))
      return `${lost}, and a session file with its id is next to it. Open that file. If it is not the newer one: ${copyIt.toLowerCase()}`;
    return { ...asNew, source: frozen ?? (manifest === null ? null : usualName(disk, container)) };
  }
  if (last.phase !== "completed" || last.outcome !== "ok")
    return `${lost}, and its ledger has no completed migration. Open the session file that it was made from. If that is lost: ${copyIt.toLowerCase()}`;
  const { correlationId, sourcePath, sourceFormat } = last;
  const source = basename(sourcePath);
  if (exists(disk, join(dirname(container), source)))
    return `${lost}, and ${source}, which it was migrated from, exists again. Open that file; or move it away to continue with the container`;
  return { manifestHash, correlationId, source, ...(sourceFormat === "sqlite_v1" ? { sourceFormat } : {}) };
}

/**
 * Returns the container as an unread file if it may have lost its pointer or its header, or if its pointer makes it the
 * session and it is gone, while the file that it was migrated from is there.
 */
export function findUnlistedContainer(disk: Disk, container: string): UnreadFile | undefined {
  const pointer = readContainerPointer(disk, container);
  const folder = resolveContainerFolder(disk, container);
  const isHere = exists(disk, headerFile(folder));
  if (isHere && pointer !== null) return undefined;
  const text = isHere ? withoutPointer(disk, container) : withoutHeader(disk, container, folder, pointer);
  return text === undefined ? undefined : { path: container, text: `${text}. It was left as it is.`, isDamaged: true };
}

function withoutPointer(disk: Disk, container: string): string | undefined {
  const origin = readOrigin(disk, container);
  if (typeof origin !== "string" || isLeftOver(disk, container)) return undefined;
  return `${container} is in no list, and it may have entries that no session has: ${origin}`;
}

function withoutHeader(disk: Disk, container: string, folder: string, pointer: Pointer | null): string | undefined {
  const id = basename(container, CONTAINER);
  if (pointer === null) {
    // A container that pi_agent_rust derives from a session file has neither header nor pointer.
    const isOurs = isUuid(id) && exists(disk, segmentFolder(folder)) && !exists(disk, fileOfDerived(container));
    if (!isOurs) return undefined;
  } else if (!isContainer(disk, container, pointer)) return undefined;
  const source = pointer?.source ? join(dirname(container), pointer.source) : undefined;
  const kept = source && [getFrozenName(source), source].find((file) => readFileHeader(disk, file)?.id === id);
  if (exists(disk, folder)) {
    const copy = kept === undefined ? "Copy it from where the container came from" : `Make it of the header of ${kept}`;
    return `${container} is in no list, because its header.jsonl is missing. ${copy}; or make an empty file of that name, and repair_session writes a header into it`;
  }
  if (kept === undefined) return undefined;
  return `${container} is missing, though ${basename(getPointerFile(container))} says that it is the session. Put it back; or rollback_migration makes ${kept} the session again, without what was appended after the migration`;
}

/** Returns the path of the session file that pi_agent_rust derives a container with this path from. */
function fileOfDerived(container: string): string {
  return join(dirname(container), `${basename(container, CONTAINER)}.jsonl`);
}

/** Returns the failure of a container that is not there, or not whole enough to be opened. */
export function makeNoContainerFailure(disk: Disk, container: string): Failure {
  const lost = guardErrno("looking for the session", () => findUnlistedContainer(disk, container));
  return lost === undefined
    ? makeNoSessionFailure(container)
    : new Failure("session_not_found", lost.text, { sessionPath: container });
}

/** Returns the name of the file whose frozen copy, next to a container, is of the container's session. */
function frozenOf(disk: Disk, container: string): string | undefined {
  const id = basename(container, CONTAINER);
  for (const name of disk.names(dirname(container))) {
    const file = getUnfrozenPath(name);
    if (file === null) continue;
    try {
      if (readFileHeader(disk, join(dirname(container), name))?.id === id) return file;
    } catch {
      // An unreadable file proves nothing.
    }
  }
  return undefined;
}

/** Returns Pi's name for the file of a container's session. */
function usualName(disk: Disk, container: string): string {
  return makeFileName({ ...readHeader(disk, container), id: basename(container, CONTAINER) } as SessionHeader);
}

/** Bytes at the start of a session file that are searched for its header's id. */
const HEADER_SEARCH_BYTES = 4096;

function hasSessionFile(disk: Disk, folder: string, id: string): boolean {
  const named = `"${id}"`;
  return disk.names(folder).some((name) => {
    if (!name.endsWith(".jsonl")) return false;
    if (name.includes(id)) return true;
    try {
      const start = readBeginning(disk, join(folder, name), HEADER_SEARCH_BYTES);
      return start !== null && Buffer.from(start).includes(named);
    } catch {
      // Whatever it is, it cannot be read as a session.
      return false;
    }
  });
}

/** Returns the last event of a migration or a rollback in a ledger; undefined when it has none or is damaged. */
function lastMigration(disk: Disk, container: string): MigrationEvent | undefined {
  const { events, fault } = readLedger(disk, ledgerFile(container));
  // Events of a repair have the same format on both sides.
  return fault ? undefined : events.findLast(({ sourceFormat, targetFormat }) => sourceFormat !== targetFormat);
}

/** Returns the name of the session file that a container was made from, or rolled back to, by its ledger. */
export function findFileInLedger(disk: Disk, container: string): string | undefined {
  const last = lastMigration(disk, container);
  if (last === undefined) return undefined;
  return basename(last.sourceFormat === "native_v2" ? last.targetPath : last.sourcePath);
}

/** Phases of a migration before it serves any caller: its container is only a copy of the session file. */
const UNSERVED: ReadonlySet<string> = new Set(["planned", "staging_copy", "integrity_check", "cutover_commit"]);

/** Returns whether a container is left from an interrupted migration, so that it is only a copy. */
export function isLeftOver(disk: Disk, container: string): boolean {
  const phase = lastMigration(disk, container)?.phase;
  return phase !== undefined && UNSERVED.has(phase);
}

/** Returns whether a container without a pointer is a session. */
export function isUnpointed(disk: Disk, container: string): boolean {
  return typeof readOrigin(disk, container) !== "string";
}

/** Returns the pointer that a container lacks; null when the container is not a session or has no manifest. */
export function makeMissingPointer(disk: Disk, container: string): Pointer | null {
  const origin = readOrigin(disk, container);
  if (typeof origin === "string" || origin.manifestHash === null) return null;
  const { manifestHash, source } = origin;
  const snapshotId = source === null ? null : hashOf(disk, join(dirname(container), getFrozenName(source)));
  return { ...makePointer(manifestHash, basename(container, CONTAINER)), ...origin, manifestHash, snapshotId };
}

/** Returns the SHA-256 of a file; null when it is missing. */
function hashOf(disk: Disk, file: string): string | null {
  return readIfPresent(() =>
    useFile(disk, disk.openRead(file), (fd) => {
      const sum = createHash("sha256");
      for (const piece of readPieces(disk, fd, 0, disk.infoOf(fd).size)) sum.update(piece);
      return sum.digest("hex");
    }),
  );
}

/** Returns the container of this session that replaced a session file, or null. */
export function findContainerOfFile(disk: Disk, file: string, sessionId: string | undefined): string | null {
  if (sessionId === undefined || !isUuid(sessionId)) return null;
  const container = join(dirname(file), `${sessionId}${CONTAINER}`);
  return guardErrno("opening the session", () =>
    readActiveSource(disk, container) === basename(file) ? container : null,
  );
}

/**
 * Returns the container that replaced a session file, if neither that file nor its frozen copy is there; else null. The id
 * is in the file's name, or one of the pointers in its folder names the file.
 */
function containerFor(disk: Disk, file: string): string | null {
  const [, named] = /_([0-9a-f-]{36})\.jsonl$/i.exec(basename(file)) ?? [];
  const found = findContainerOfFile(disk, file, named);
  if (found !== null) return found;
  let names: string[];
  try {
    names = disk.names(dirname(file));
  } catch (error) {
    if (!isErrno(error)) throw error;
    return null;
  }
  for (const name of names) {
    if (!name.endsWith(POINTER)) continue;
    const container = findContainerOfFile(disk, file, name.slice(0, -POINTER.length));
    if (container !== null) return container;
  }
  return null;
}

/** Returns the pointer of a session that begins in V2. */
export function makePointer(manifestHash: string, sessionId: string): Pointer {
  return {
    active: "native_v2",
    manifestHash,
    snapshotId: null,
    correlationId: `new-${sessionId}`,
    reason: null,
    phase: "completed",
    source: null,
  };
}

/** Publishes the pointer of a container, which makes the container the session. Throws EEXIST. */
export function publishPointer(disk: Disk, container: string, pointer: Pointer, durability: Durability): void {
  const sync = durability === "sync";
  putInPlaceNow(disk, getPointerFile(container), toBytes(encodePointer(pointer)), { replace: false, sync });
}

/** A part of a container that its next writer makes. */
interface MissingPart {
  readonly name: string;
  readonly isDamaged: boolean;
}

/** Returns the parts that a container lacks: folders that a copy left out because they were empty, and its pointer. */
export function listMissingParts(disk: Disk, container: string, folder = container): MissingPart[] {
  const names = new Set(disk.names(folder));
  const missing = FOLDERS.filter((name) => !names.has(name)).map((name) => ({ name: `${name}/`, isDamaged: false }));
  const pointer = getPointerFile(container);
  let isDamaged = false;
  try {
    if (readPointer(disk, pointer) !== null) return missing;
  } catch (error) {
    if (!(error instanceof Malformed)) throw error;
    isDamaged = true;
  }
  const origin = readOrigin(disk, container);
  if (typeof origin !== "string" && origin.manifestHash !== null) missing.push({ name: basename(pointer), isDamaged });
  return missing;
}

/** Creates the parts that a container lacks, and returns them. A new pointer's name is not durable yet. */
export function makeParts(disk: Disk, container: string, durability: Durability): MissingPart[] {
  const missing = listMissingParts(disk, container);
  for (const { name, isDamaged } of missing)
    if (name.endsWith("/")) disk.makeFolder(join(container, name));
    else {
      const pointer = makeMissingPointer(disk, container);
      if (!pointer) continue;
      const path = getPointerFile(container);
      if (isDamaged) disk.rename(path, nameBackup(disk, path, "damaged"));
      publishPointer(disk, container, pointer, durability);
    }
  return missing;
}

/** Returns the folder of a container, which after a repair, or its undo, that was cut off is its last backup. */
export function resolveContainerFolder(disk: Disk, file: string): string {
  if (exists(disk, file)) return file;
  return guardErrno("looking for the session", () => listBackups(disk, file).at(-1)?.path ?? file);
}

/**
 * Takes away the pointer of a session that began in V2 and whose container is missing; a damaged one stays as a backup. There
 * is no lock without a container: if another process has made the container meanwhile, the pointer gets its name back.
 */
export function dropOrphanPointer(disk: Disk, container: string): void {
  const isOrphan = (): boolean => isAbsent(disk, resolveContainerFolder(disk, container));
  if (!isOrphan()) return;
  const file = getPointerFile(container);
  let isDamaged = false;
  try {
    const pointer = readPointer(disk, file);
    if (pointer?.active !== "native_v2" || pointer.source !== null) return;
  } catch (error) {
    if (!(error instanceof Malformed)) throw error;
    isDamaged = true;
    if (getInfo(disk, file)?.kind !== "file" || findNewerPointer(disk, file) !== null) return;
  }
  const backup = nameBackup(disk, file, "damaged");
  disk.rename(file, backup);
  if (!isOrphan()) renameExclusive(disk, backup, file);
  else if (!isDamaged) disk.remove(backup);
}

/** Returns the parts of the session at a path, which may name its file or its container. Throws session_not_found. */
export function locateSessionFiles(disk: Disk, path: string): SessionLocation {
  return guardErrno("looking for the session", () => {
    const folder = dirname(path);
    if (isContainerName(path)) {
      const pointer = readPointerAt(disk, getPointerFile(path));
      return makeLocation(folder, basename(path, CONTAINER), pointer?.source ?? null);
    }
    // A file and its frozen copy are one session.
    const source = getUnfrozenPath(path) ?? path;
    for (const file of [source, getFrozenName(source)]) {
      const id = readFileHeader(disk, file)?.id;
      if (typeof id === "string") return makeLocation(folder, id, basename(source));
    }
    const container = containerFor(disk, source);
    if (container !== null) return makeLocation(folder, basename(container, CONTAINER), basename(source));
    throw makeNoSessionFailure(path);
  });
}

/**
 * Returns the header of a session file or of a database; undefined if it is missing. Throws the failures of
 * `readDatabaseId`.
 */
export function readFileHeader(disk: Disk, file: string): StoredHeader | undefined {
  const begun = readIfPresent(() => readBegun(disk, file));
  if (begun && beginsDatabase(begun.bytes)) return { id: readDatabaseId(disk, file), version: 3 };
  return begun?.header;
}

/**
 * Returns whether the container and the pointer at the location of a session file are those of another session with its id,
 * such as the original of this copied file.
 */
export function isOfAnother(
  disk: Disk,
  { container, pointer: path, source }: SessionLocation,
  pointer = readIfSound(() => readPointer(disk, path)),
): boolean {
  if (source === null) return false;
  const isAnother = (name: string | null | undefined): boolean => name !== basename(source);
  const isThere = (name: string | null | undefined): boolean =>
    typeof name === "string" && exists(disk, join(dirname(container), name));
  if (pointer !== null) return isAnother(pointer.source) && (pointer.active === "native_v2" || isThere(pointer.source));
  const origin = readOrigin(disk, container);
  if (typeof origin !== "string") return isAnother(origin.source);
  const named = findFileInLedger(disk, container);
  return isAnother(named) && isThere(named);
}

/**
 * Returns whether a container is a copy under another name: the container of its id is next to it, or its pointer names the
 * file of a session. A session may begin in a container of any name, whose pointer names no file.
 */
export function isRenamedCopy(disk: Disk, container: string): boolean {
  const id = readHeader(disk, container)?.id;
  if (typeof id !== "string" || id === basename(container, CONTAINER)) return false;
  const isNamed = guardErrno("looking for the session", () => readContainerPointer(disk, container))?.source !== null;
  return isNamed || exists(disk, join(dirname(container), `${id}${CONTAINER}`));
}

export function makeLocation(folder: string, sessionId: string, source: string | null): SessionLocation {
  const container = join(folder, `${sessionId}${CONTAINER}`);
  return {
    sessionId,
    container,
    staging: `${container}.staging`,
    pointer: getPointerFile(container),
    source: source === null ? null : join(folder, source),
  };
}

/** Returns the current path of a session that had this path before a migration or rollback; else the path itself. */
export function findCurrentPath(disk: Disk, path: string): string {
  if (isContainerName(path)) {
    const pointer = guardErrno("opening the session", () => readContainerPointer(disk, path));
    if (pointer === null || pointer.source === null || isContainer(disk, path, pointer)) return path;
    return join(dirname(path), pointer.source);
  }
  const found = readFileHeader(disk, path) ?? readFileHeader(disk, getFrozenName(path));
  if (found === undefined) return containerFor(disk, path) ?? path;
  return findContainerOfFile(disk, path, typeof found.id === "string" ? found.id : undefined) ?? path;
}

export function readPointerAt(disk: Disk, file: string): Pointer | null {
  try {
    return readPointer(disk, file);
  } catch (error) {
    if (!(error instanceof Malformed)) throw error;
    const newer = findNewerPointer(disk, file);
    if (newer !== null)
      throw new Failure(
        "unsupported_version",
        describeUnchanged(
          `The session has ${newer}, which is newer than this program knows.`,
          "Use a newer version of this program.",
        ),
      );
    throw new Failure(
      "corrupt",
      `The pointer file ${basename(file)} is damaged: ${error.message}. Restore it from a copy, or move it away: then the session file is the session if it exists, else the container is.`,
      {},
      { cause: error },
    );
  }
}

/** Returns how far the migration or rollback of a session has come. Changes nothing. Throws errno errors. */
export function readMigrationStatus(disk: Disk, path: string): Status {
  const location = locateSessionFiles(disk, path);
  if (isOfAnother(disk, location)) return neverMigrated(disk, location);
  const pointer = readPointerAt(disk, location.pointer);
  const ledger = [location.container, location.staging].map(ledgerFile).find((file) => exists(disk, file));
  const events = ledger === undefined ? [] : readLedger(disk, ledger).events;
  const status = {
    location,
    phase: pointer?.phase ?? null,
    snapshotId: pointer?.snapshotId ?? null,
    correlationId: pointer?.correlationId ?? events.at(-1)?.correlationId ?? null,
    reason: pointer?.reason ?? null,
    snapshotPath:
      location.source !== null && exists(disk, getFrozenName(location.source)) ? getFrozenName(location.source) : null,
    events,
  };
  const as = (active: Status["active"], state: StoreState, interrupted = false): Status => ({
    ...status,
    active,
    state,
    interrupted,
  });
  const isContainerThere = exists(disk, location.container);
  if (pointer === null && isUnpointed(disk, location.container)) return as("native_v2", "CLEAN");
  if (pointer === null) {
    const interrupted = isContainerThere || (events.length > 0 && events.at(-1)?.phase !== "failed");
    const active = location.source !== null && isDatabase(disk, location.source) ? "sqlite_v1" : "jsonl_v3";
    return as(active, interrupted ? "MIGRATION_STAGING" : "CLEAN", interrupted);
  }
  if (pointer.active !== "native_v2") {
    const back = as(pointer.active, "ROLLED_BACK", isContainerThere);
    if (isContainerThere) return back;
    // The container that was rolled back last has the ledger.
    const last = findLastName(disk, (n) => getRolledBackName(location, n));
    return { ...back, events: last === undefined ? [] : readLedger(disk, ledgerFile(last)).events };
  }
  if (!isContainer(disk, location.container, pointer))
    return as(
      pointer.sourceFormat ?? "jsonl_v3",
      pointer.phase === "rollback" ? "ROLLED_BACK" : "MIGRATION_STAGING",
      true,
    );
  if (pointer.phase !== "completed") return as("native_v2", "FAILED", true);
  const untouched =
    readManifest(disk, manifestFile(location.container))?.integrity.manifestHash === pointer.manifestHash;
  return as("native_v2", pointer.source !== null && untouched ? "MIGRATED" : "CLEAN");
}

/** Returns the status of a session file next to the container of another session with its id. */
function neverMigrated(disk: Disk, location: SessionLocation): Status {
  const active = isDatabase(disk, location.source as string) ? "sqlite_v1" : "jsonl_v3";
  return {
    location,
    active,
    state: "CLEAN",
    interrupted: false,
    phase: null,
    snapshotId: null,
    correlationId: null,
    reason: null,
    snapshotPath: null,
    events: [],
  };
}

export function getRolledBackName({ container }: SessionLocation, n: number): string {
  return addNumber(`${container}.rolled-back`, n);
}

/** Publishes a pointer in one step, durably. */
export async function putPointer(disk: Disk, file: string, pointer: Pointer): Promise<void> {
  await putInPlace(disk, file, toBytes(encodePointer(pointer)), { replace: true, sync: true });
  await disk.syncFolder(dirname(file));
}
