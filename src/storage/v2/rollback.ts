/**
 * Rolls a session back from a container to a session file or database (seed 003, "Migration and rollback contract").
 * Each step is durable before the next.
 *
 * Pointer published with the phase `rollback` and its reason, the container still the session; the session file written
 * under another name, durable and verified; its own name given to it (the commit marker, because a program that knows no
 * pointer goes on with it from then on); pointer published with `jsonl_v3` or `sqlite_v1` active; ledger `rollback`; the
 * snapshot's second name removed, the container renamed to `<id>.v2.rolled-back`. After a crash before the marker the
 * same steps finish the rollback, because nothing is written to the container meanwhile. After a later crash the file is
 * the session, with whatever was written to it, and only the pointer and names remain to be changed.
 */

import { basename, dirname, join } from "node:path";
import { Failure } from "../../core/failure.ts";
import { concat, trimLine } from "../../core/json/json.ts";
import type { Migrated, TransitionOptions, Verification } from "../../core/ports/migrations.ts";
import type { Log } from "../../core/ports/store.ts";
import { claimName, copyBytes, copyLines, hashFile, linkOrCopy } from "../fs/chunked-io.ts";
import { BLOBS, headerFile, ledgerFile } from "../fs/container-paths.ts";
import { type Disk, exists, getInfoIfPresent, isAbsent, readWhole, removeIfSame, writeAll } from "../fs/disk.ts";
import { isNameTaken, useAndClose, useFile, writeTemporary } from "../fs/files.ts";
import { nameBackup } from "../fs/quarantine.ts";
import { isOneFile, isSameFile } from "../fs/stamps.ts";
import { getAttachmentFolder, listAttachments, shareAttachments } from "../log/attachments.ts";
import { keepLeaf } from "../log/leaf-store.ts";
import { LF } from "../log/lines.ts";
import { type Audit, audit } from "./audit.ts";
import { type Pointer, readLedger } from "./documents.ts";
import { extendChain, GENESIS, sha256 } from "./frame.ts";
import {
  ALL_VALID,
  chunkPositions,
  isVerified,
  type MigrationOptions,
  MigrationRun,
  makeMigrationFailure,
  makeOperatorFailure,
  makeRange,
  NONE_VALID,
  UNFINISHED,
} from "./migration-steps.ts";
import {
  getFrozenName,
  isContainer,
  locateSessionFiles,
  readFileHeader,
  readPointerAt,
  resolveContainerFolder,
} from "./pointer.ts";
import { writeDatabase } from "./sqlite-v1.ts";
import type { StoreState } from "./states.ts";

/**
 * Makes the session file active again: the snapshot byte for byte when nothing was appended since, else the snapshot
 * followed by the line of each later entry. A snapshot of version 1 or 2, or with a leaf in its header, cannot be
 * continued: then the header and every line are written as version 3. Without a snapshot they are written too. A
 * snapshot that differs from the file is kept as `<file>.v<version>.bak`. If the container is gone, the snapshot becomes the
 * session. Throws migration_failed when the session was not migrated, or when a cutover that was cut off has no file to go
 * back to; then the store is FAILED.
 */
export async function rollBack(
  options: MigrationOptions,
  path: string,
  request: TransitionOptions = {},
): Promise<Migrated> {
  const run = new MigrationRun(options, locateSessionFiles(options.disk, path), request);
  return run.runReported("rolling the migration back", "file", () => back(run));
}

async function back(run: MigrationRun): Promise<Migrated> {
  const { disk, location, request } = run;
  const pointer = run.pointer();
  if (pointer === null || (pointer.active !== "native_v2" && !exists(disk, location.container)))
    throw makeMigrationFailure("The session was not migrated, so there is nothing to roll back.");
  if (pointer.active !== "native_v2") {
    await finishRollback(run, pointer);
    return isBack(run, pointer);
  }
  const isLost = isGone(run) && fileBehind(run, pointer) !== undefined;
  if (pointer.phase !== "cutover_commit" && isContainer(disk, location.container, pointer) && !isLost)
    return restore(run, pointer, request.reason ?? pointer.reason ?? "rollback was asked for");
  await forceRollBack(run, request.reason ?? pointer.reason ?? (isLost ? "the container is missing" : UNFINISHED));
  return isBack(run, readPointerAt(disk, location.pointer) as Pointer);
}

/** Finishes an interrupted migration or rollback by its pointer. */
export async function finishInterrupted(run: MigrationRun): Promise<void> {
  const pointer = run.pointer();
  if (pointer === null || pointer.phase === "completed") return;
  if (pointer.active !== "native_v2") await finishRollback(run, pointer);
  else if (pointer.phase === "cutover_commit" || !isContainer(run.disk, run.location.container, pointer))
    await forceRollBack(run, pointer.reason ?? UNFINISHED);
  else if (pointer.phase === "rollback") await restore(run, pointer, pointer.reason ?? "rollback was asked for");
  else throw makeOperatorFailure(pointer);
  run.release();
}

/**
 * Rolls back a cutover that was not verified, or finishes a rollback whose file has its name: nothing was written to the
 * container since. `isHeld`: this has its locks.
 */
export async function forceRollBack(run: MigrationRun, reason: string, isHeld = false): Promise<void> {
  const { disk, location } = run;
  const pointer = readPointerAt(disk, location.pointer);
  if (pointer === null || pointer.active !== "native_v2") {
    if (!isHeld) throw endedMeanwhile();
    // The marker itself was not published.
    return run.abandon(makeMigrationFailure(reason), NONE_VALID);
  }
  const source = run.pathOf(pointer.source as string);
  if (!isHeld) {
    run.lockPaths(headerFile(location.container), source, getFrozenName(source));
    // The previous holder of the locks may have finished the migration.
    if (readPointerAt(disk, location.pointer)?.phase !== pointer.phase) throw endedMeanwhile();
    // A container that was missing may be there again.
    if (pointer.phase !== "cutover_commit" && isContainer(disk, location.container, pointer) && !isGone(run))
      throw endedMeanwhile();
  }
  const target = fileBehind(run, pointer);
  if (target === undefined) {
    // There is nothing to go back to until an operator restores it.
    const failed: Pointer = {
      ...pointer,
      phase: "failed",
      reason: `the rollback target ${basename(source)} is missing`,
    };
    await run.note(location.container, "failed", "fatal_error", NONE_VALID, { errorClass: "atomicity_violation" });
    await run.publish(failed);
    throw makeOperatorFailure(failed);
  }
  run.begin();
  if (target !== source) await nameAgain(disk, target, source);
  const after: Pointer = { ...pointer, active: run.format, phase: "rollback", reason };
  await run.publish(after);
  await finishRollback(run, after, { isHeld: true });
}

function isGone({ disk, location }: MigrationRun): boolean {
  return isAbsent(disk, resolveContainerFolder(disk, location.container));
}

/** Returns the file of the session that a container took the place of, under its own name or as the frozen copy. */
function fileBehind(run: MigrationRun, { source: name }: Pointer): string | undefined {
  if (name === null) return undefined;
  const source = run.pathOf(name);
  return [source, getFrozenName(source)].find((file) => readFileHeader(run.disk, file)?.id === run.location.sessionId);
}

function isBack(run: MigrationRun, { source, snapshotId, correlationId }: Pointer): Migrated {
  const sessionPath = run.pathOf(source as string);
  const entryCount = useAndClose(run.options.openFile(sessionPath, true), ({ nodes }) => nodes.count);
  const active = run.format;
  return run.done({ state: "ROLLED_BACK", active, sessionPath, entryCount, snapshotId, correlationId });
}

/**
 * Returns whether the snapshot is there, by its hash. One that was put back under the file's own name counts, and is
 * renamed. Throws migration_failed, having changed nothing, if another file has its name.
 */
async function findSnapshot(run: MigrationRun, { snapshotId, phase }: Pointer, source: string): Promise<boolean> {
  const { disk } = run;
  const snapshot = getFrozenName(source);
  run.lockPaths(snapshot, source);
  const isNamed = exists(disk, snapshot);
  if (isNamed && (await hashFile(disk, snapshot)) !== snapshotId)
    throw makeMigrationFailure(
      `${snapshot} is not the session file that was migrated: its SHA-256 differs. Nothing was changed. Put the original back, or move this file away: rollback_migration then writes the session file from the container.`,
      { snapshotPath: snapshot, snapshotId },
    );
  const found = getInfoIfPresent(disk, source);
  if (!isNamed) {
    if (!found || (await hashFile(disk, source)) !== snapshotId) return false;
    run.begin();
    await nameAgain(disk, source, snapshot).finally(() => {
      if (exists(disk, snapshot)) run.moved.push(`The snapshot is at ${snapshot}.`);
    });
  }
  // A process may have died with both names there. So does a later rollback that was cut off, which is continued.
  const isLeft = !isNamed || (phase !== "rollback" && found !== null && isOneFile(disk, source, snapshot));
  if (isLeft && found && isSameFile(disk.info(source), found)) {
    disk.remove(source);
    await disk.syncFolder(dirname(source));
  }
  return true;
}

async function restore(run: MigrationRun, pointer: Pointer, reason: string): Promise<Migrated> {
  const { options, location } = run;
  const named = pointer.source === null ? null : run.pathOf(pointer.source);
  const hasSnapshot = pointer.snapshotId !== null && named !== null && (await findSnapshot(run, pointer, named));
  return useAndClose(options.openContainer(location.container), async (log) => {
    if (log.readOnly?.name === "unsupported_version") throw log.readOnly;
    const before = hasSnapshot ? options.openFile(getFrozenName(named as string), true) : null;
    try {
      log.lock.acquire();
      const file = named ?? options.fileFor(log.header, dirname(location.container));
      const { nodes } = log;
      const later = makeRange(0, nodes.count).filter((p) => before !== null && before.nodes.position(nodes.id(p)) < 0);
      return await takeBack({ run, pointer, reason, log, before, later, file });
    } finally {
      before?.close();
    }
  });
}

/** The rollback of a verified container, which is locked. */
interface Rollback {
  readonly run: MigrationRun;
  readonly pointer: Pointer;
  readonly reason: string;
  readonly log: Log;
  /** The snapshot; null if it is missing. */
  readonly before: Log | null;
  /** Positions of the entries that the snapshot does not have. */
  readonly later: Int32Array;
  /** Path of the session file that is to become active. */
  readonly file: string;
}

async function takeBack(going: Rollback): Promise<Migrated> {
  const { run, pointer, reason, log, before, later, file } = going;
  const { disk, location, request } = run;
  const { leaves, openFile } = run.options;
  const found = await audit(disk, location.container, { progress: request.progress });
  // Damage to documents that hold no entries does not block the way back.
  const isKnown =
    log.nodes.count === found.counters.entriesTotal && !log.damage.some(({ kind }) => kind === "bad_header");
  const whole = found.hasAllEntries && isKnown;
  if ((before === null || later.length > 0 || isRehoused(going)) && !whole) {
    // Nothing was written to the container: it is the session as before, and can be repaired.
    if (pointer.phase === "rollback") await run.publish({ ...pointer, phase: "completed", reason: null });
    throw makeMigrationFailure(
      "Entries that no snapshot has are damaged. repair_session rebuilds the session; then roll back.",
    );
  }
  // Only where an attempt was cut off, a file in that place may be ours.
  if (pointer.phase !== "rollback" && !isAbsent(disk, file)) throw inTheWay(file);
  const machine = run.machine(stateBefore(pointer, found, whole && log.readOnly === null));
  if (machine.state === "CLEAN" || machine.state === "MIGRATED") {
    await log.container?.checkpoint("pre_migration");
    machine.through(["DIRTY", "SEGMENT_SEALED", "INDEXED", "CHECKPOINTED"], "a checkpoint before the rollback");
  }
  const correlationId = request.correlationId ?? pointer.correlationId;
  const intent: Pointer = { ...pointer, phase: "rollback", reason, correlationId, source: basename(file) };
  let verification = NONE_VALID;
  const check = async (written: string): Promise<void> => {
    // Other programs may write to the file, and migrate it anew, only when the rollback has ended.
    run.lockPaths(written);
    verification = await verify(going, written, found.chainHash, whole);
    if (!isVerified(verification))
      throw makeMigrationFailure(
        "The session file does not have what the store has. The store stays active; check the disk and roll back again.",
        { verification },
      );
    await keepLeaf(leaves, leaves?.recall(log), () => openFile(written, true));
  };
  try {
    await run.publish(intent);
    await putBack(going, check);
  } catch (error) {
    if (isContainer(disk, location.container, intent)) await withdraw(going);
    throw error;
  }
  const after: Pointer = { ...intent, active: run.format };
  await run.publish(after);
  log.close();
  await finishRollback(run, after, { verification, version: before?.version });
  machine.to("ROLLED_BACK", reason);
  return run.done({
    state: machine.state,
    transitions: machine.history,
    snapshotId: pointer.snapshotId,
    verification,
    entryCount: before === null ? found.counters.entriesTotal : before.nodes.count + later.length,
    correlationId,
    active: run.format,
    sessionPath: file,
    laterEntries: later.length,
    rebuilt: before === null,
  });
}

/** Undoes a rollback that failed before its marker, as far as the disk allows. */
async function withdraw({ run, pointer }: Rollback): Promise<void> {
  try {
    await run.publish(pointer);
  } catch {
    // Rolling back again continues from here, as the failure states.
  }
}

/** Returns whether the container was relocated: its header has another working directory than the snapshot. */
function isRehoused({ run, log, before }: Pick<Rollback, "run" | "log" | "before">): boolean {
  return run.format === "jsonl_v3" && before !== null && before.header.cwd !== log.header.cwd;
}

/**
 * Gives the session file its name, durably, when it is whole and `check` has found it so. Throws already_exists when
 * another file has the name.
 */
async function putBack(going: Rollback, check: (written: string) => Promise<void>): Promise<void> {
  const { run, before, later, file } = going;
  const { disk } = run;
  // Without hard links, an interrupted attempt leaves an empty file.
  const left = going.pointer.phase === "rollback" ? getInfoIfPresent(disk, file) : null;
  if (left?.size === 0) removeIfSame(disk, file, left);
  if (run.format === "jsonl_v3") await shareBack(going);
  if (before && later.length === 0 && !isRehoused(going)) {
    await check(getFrozenName(file));
    return nameAgain(disk, getFrozenName(file), file);
  }
  const name = async (temporary: string): Promise<void> => {
    await check(temporary);
    claimName(disk, temporary, file);
  };
  try {
    const write = run.format === "sqlite_v1" ? writeDatabaseBack : writeLines;
    await writeTemporary(disk, file, (fd, temporary) => write(going, fd, temporary), { sync: true }, name);
  } catch (error) {
    throw isNameTaken(error) ? inTheWay(file) : error;
  }
  await disk.syncFolder(dirname(file));
}

async function writeLines(going: Rollback, fd: number): Promise<void> {
  const { run, log, before, later, file } = going;
  const { disk } = run;
  // A leaf in the snapshot's header is not that of a session that was continued.
  const isUsable = before !== null && before.version >= 3 && before.header.leafId === undefined;
  const isContinued = isUsable && !isRehoused(going);
  if (isContinued) {
    disk.copyMode(getFrozenName(file), fd);
    await copyLines(disk, getFrozenName(file), fd);
  } else writeAll(disk, fd, concat([log.headerLine, LF]));
  for (const piece of log.copy(isContinued ? later : makeRange(0, log.nodes.count))) writeAll(disk, fd, piece);
}

/** Shares the attachments of the container with the session file, durably, before that gets its name. */
async function shareBack({ run, file }: Rollback): Promise<void> {
  const { disk, location } = run;
  const folder = getAttachmentFolder(file);
  shareAttachments(disk, location.container, folder);
  if (isAbsent(disk, folder)) return;
  await disk.syncFolder(folder);
  await disk.syncFolder(dirname(folder));
}

/** Returns whether the session file has every attachment of the container. A database has them inside. */
function hasAttachments({ run, file }: Rollback): boolean {
  if (run.format !== "jsonl_v3") return true;
  const [ours, theirs] = [run.location.container, file].map((path) =>
    listAttachments(run.disk, getAttachmentFolder(path)),
  );
  const there = new Set(theirs);
  return ours.every((name) => there.has(name));
}

/** Writes a copy of the snapshot with the later rows, or a new database. */
async function writeDatabaseBack({ run, log, before, file }: Rollback, fd: number, temporary: string): Promise<void> {
  const { disk, location } = run;
  if (before) {
    disk.copyMode(getFrozenName(file), fd);
    await useFile(disk, disk.openRead(getFrozenName(file)), (source) =>
      copyBytes(disk, source, fd, 0, disk.infoOf(source).size),
    );
  }
  const lines = log.readMany(makeRange(0, log.nodes.count));
  writeDatabase(disk, temporary, log, lines, before?.nodes.count ?? 0, blobsIn(disk, join(location.container, BLOBS)));
}

/** Reads the session file that is to become active as any other program would. */
function verify(going: Rollback, written: string, chainHash: string, whole: boolean): Promise<Verification> {
  const { run, log, later } = going;
  return useAndClose(run.options.openFile(written, true), async (there) => {
    const indexConsistent = there.repairable.length === 0 && hasAttachments(going);
    if (later.length === 0 && !whole) return { ...ALL_VALID, indexConsistent };
    const [ours, theirs] = [log.nodes, there.nodes];
    let chain = GENESIS;
    let isOrdered = theirs.count === ours.count;
    let position = 0;
    for await (const positions of chunkPositions(there))
      for (const line of there.readMany(positions)) {
        // The snapshot's lines may have white space around an entry; payloads have none.
        chain = extendChain(chain, sha256(trimLine(line)));
        isOrdered &&= theirs.id(position) === ours.id(position);
        position++;
      }
    return { entryCountMatch: isOrdered, hashChainMatch: chain === chainHash, indexConsistent };
  });
}

interface FinishOptions {
  readonly isHeld?: boolean;
  readonly verification?: Verification;
  /** Format version of the snapshot. */
  readonly version?: number;
}

/**
 * Finishes a rollback after its marker. `isHeld`: this has the locks. Throws session_locked, and migration_failed when another
 * process finished it: who has the lock of the session file may have migrated it anew since, and then the container is the
 * session.
 */
async function finishRollback(
  run: MigrationRun,
  { source: name, correlationId, phase }: Pointer,
  { isHeld = false, verification = ALL_VALID, version }: FinishOptions = {},
): Promise<void> {
  const { disk, location } = run;
  const source = run.pathOf(name as string);
  const snapshot = getFrozenName(source);
  if (!isHeld) {
    run.lockPaths(source, snapshot, headerFile(location.container));
    const now = readPointerAt(disk, location.pointer);
    if (!now || now.active === "native_v2" || now.phase !== phase || now.correlationId !== correlationId)
      throw endedMeanwhile();
  }
  run.begin();
  const isContainerThere = exists(disk, location.container);
  if (isContainerThere) {
    const { events } = readLedger(disk, ledgerFile(location.container));
    const isRecorded = events.some(
      (event) => event.phase === "rollback" && event.outcome === "ok" && event.correlationId === correlationId,
    );
    if (!isRecorded) await run.note(location.container, "rollback", "ok", verification, { correlationId });
  }
  if (exists(disk, snapshot)) {
    const isOne =
      isOneFile(disk, source, snapshot) || (await hashFile(disk, source)) === (await hashFile(disk, snapshot));
    if (isOne) disk.remove(snapshot);
    else {
      const stored = version ?? readFileHeader(disk, snapshot)?.version;
      disk.rename(snapshot, nameBackup(disk, source, `v${typeof stored === "number" ? stored : 1}`));
    }
    await disk.syncFolder(dirname(source));
  }
  if (!isContainerThere) return;
  run.moveContainerAway();
  await disk.syncFolder(dirname(location.container));
}

/** Returns the state of a store that is to be rolled back, derived from its pointer and files. */
function stateBefore(pointer: Pointer, found: Audit, isSound: boolean): StoreState {
  if (pointer.phase !== "completed" || !isSound) return "FAILED";
  const { entriesTotal } = found.counters;
  // A store without entries has nothing that a checkpoint could name.
  if (entriesTotal === 0) return "CHECKPOINTED";
  if (pointer.source !== null && found.manifest?.integrity.manifestHash === pointer.manifestHash) return "MIGRATED";
  return found.checkpoints.at(-1)?.headEntrySeq === entriesTotal ? "CHECKPOINTED" : "CLEAN";
}

function endedMeanwhile(): Failure {
  const text = {
    what: "Another process ended this migration or took it back.",
    state: "Nothing was changed here.",
    advice: "Try again.",
  };
  return makeMigrationFailure(text, {}, { retryable: true });
}

function inTheWay(file: string): Failure {
  return new Failure(
    "already_exists",
    `There is another file at ${file} already. Move it away, then roll back again.`,
    { sessionPath: file },
  );
}

/** Gives a file a second name durably. Throws already_exists. */
async function nameAgain(disk: Disk, file: string, name: string): Promise<void> {
  try {
    await linkOrCopy(disk, file, name);
  } catch (error) {
    throw isNameTaken(error) ? inTheWay(name) : error;
  }
  await disk.syncFolder(dirname(name));
}

/** Yields the attachments of a container, each with its SHA-256. */
function* blobsIn(disk: Disk, folder: string): Generator<[string, Uint8Array]> {
  for (const name of listAttachments(disk, folder)) yield [name, readWhole(disk, join(folder, name))];
}
