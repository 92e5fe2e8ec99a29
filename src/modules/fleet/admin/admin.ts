/** Administration of a fleet: checks its content, and imports and exports sessions as files. */

import { join } from "node:path";
import { toStorageFailure } from "../../../core/errno.ts";
import { Failure, isAway } from "../../../core/failure.ts";
import { parseSessionHeader, type SessionHeader, toReadableHeader } from "../../../core/format/entry.ts";
import type { Listed, Progress } from "../../../core/ports/catalog.ts";
import type { Fleet, FleetDescription, FleetTally, JournaledSession } from "../../../core/ports/fleet.ts";
import type {
  CheckedCopy,
  FleetAdmin,
  FleetFault,
  FleetFile,
  FleetIndexed,
  FleetPushed,
  FleetVerified,
  SessionLoss,
} from "../../../core/ports/fleet-admin.ts";
import type { AdminQueries, CheckedRow, FleetRow, OnUnreadable } from "../../../core/ports/fleet-admin-queries.ts";
import type { Beginning, Log, Store } from "../../../core/ports/store.ts";
import { getIdInPath } from "../../../core/search/listing.ts";
import type { LocalCatalog } from "../../../storage/catalog/catalog.ts";
import { isContainerName } from "../../../storage/fs/container-paths.ts";
import { useAndClose } from "../../../storage/fs/files.ts";
import { getAttachmentFolder } from "../../../storage/log/attachments.ts";
import { LF } from "../../../storage/log/lines.ts";
import type { ReplicatedLog } from "../../../storage/log/replica.ts";
import { computeEnd, extendEnd, fetchEnd, isSameEnd, NOTHING } from "../postgres/ends.ts";
import { dropWords, parseDescription } from "../postgres/fact-parts.ts";
import { makeAwayFailure, requireFailure } from "../postgres/failures.ts";
import {
  type AcknowledgedEnd,
  countStillLost,
  FoundEntries,
  findEntries,
  hasEnd,
  hashLine,
  type LostCount,
  type RecordedEnd,
} from "../replica/acknowledged-ends.ts";
import { fetchAttachments, uploadMissingAttachments } from "../replica/attachments.ts";
import { readUploadLines as linesIn } from "../replica/batch.ts";
import { CopyFacts } from "../replica/facts.ts";
import { FleetReplica } from "../replica/fleet-replica.ts";
import { isDamagedHeader } from "../replica/headers.ts";
import { finishFacts, sweepLateFacts } from "../replica/late-facts.ts";
import type { FleetOptions } from "../replica/options.ts";
import { fetchSessionLines } from "../replica/transfer.ts";
import {
  identifyFleet,
  listPendingElsewhere,
  listPendingUploads,
  toRefusedUpload,
  type UploadPlace,
  uploadSession,
} from "../replica/uploads.ts";
import type { WrittenOnce } from "./admin-files.ts";
import { explainUnreadableRow, FleetVerification, hasLines, readIfUndamaged } from "./verification.ts";

/** Default of FleetAdminService.index. */
const INDEXED_AT_ONCE = 8 << 20;

/** The sentence about a copy that was uploaded and whose entries the database may lack all the same. */
const MAY_LACK =
  "The database may still lack entries that were acknowledged here: its connection was lost, or others changed it meanwhile. Run this again.";

const NONE: LostCount = { entries: 0, isLeast: false };
const UNKNOWN = { entries: null, isLeast: false } as const;

/** Digests that a message names, at most. */
const MOST_NAMED = 3;

/** Milliseconds until the lease of an exited process has expired, and between two attempts until then. */
const LEASE_ENDS = 35_000;
const ASKED_AGAIN = 1000;

/** Files that are imported at the same time: while one waits for the database, another is read. */
const AT_ONCE = 4;

export interface AdminPlace {
  readonly fleet: Fleet;
  readonly adminQueries: AdminQueries;
  /** Options of the working copies that are imported. */
  readonly options: Omit<FleetOptions, "quarantineEntries">;
  /** Opens a session as a working copy. */
  openCopy(file: string): Log;
  /** Returns the path of a session that is here. Throws session_not_found. */
  find(id: string): string;
  /** Brings a session here, if the fleet has it. */
  arrive(id: string): Promise<void>;
  /** Brings the session at a path up to date. */
  arriveAt(file: string): Promise<void>;
  readonly local: LocalCatalog;
  /** Opens a session for reading, without its fleet. */
  open(file: string): Log;
  isOurs(log: Log): log is ReplicatedLog;
  /** Yields the paths of session files and containers in a folder and its subfolders, and reports unreadable folders. */
  listSessionFiles(folder: string, unreadable: (folder: string, error: unknown) => void): Iterable<string>;
  /** Returns the bytes of a session file; null for a container. */
  sizeOf(file: string): number | null;
  /** Returns the path below a folder that a session file has there by its header. */
  fileIn(folder: string, header: SessionHeader): string;
  /** Writes a file that gets its name when it is complete, or compares it with an existing one. */
  write(file: string, pieces: Iterable<Uint8Array> | AsyncIterable<Uint8Array>): Promise<WrittenOnce>;
  /** A store in memory, whose logs can release their lines. */
  readonly memory: { create(beginning: Beginning): Log & { forget(): void } } & Store;
}

export class FleetAdminService implements FleetAdmin {
  private readonly place: AdminPlace;
  private readonly uploads: UploadPlace;

  constructor(place: AdminPlace) {
    this.place = place;
    this.uploads = { ...place, journal: place.options.journal };
  }

  // --- verify ------------------------------------------------------------------------------------------------------

  async verify(progress?: Progress): Promise<FleetVerified> {
    const { fleet, adminQueries } = this.place;
    // At a new address the store is unknown until the first answer.
    await identifyFleet(fleet);
    const left = new Map((await this.listed()).map((one) => [one.id, one]));
    const faults: FleetFault[] = [];
    const copies: CheckedCopy[] = [];
    const sums = { sessions: 0, deleted: 0, entries: 0, bytes: 0 };
    const verifying = new FleetVerification(fleet, adminQueries);
    const unreadIds = new Set<string | null>();
    const unread: OnUnreadable = (sessionId) => {
      unreadIds.add(sessionId);
      if (sessionId !== null) left.delete(sessionId);
      faults.push({ sessionId, fault: "chain", message: explainUnreadableRow(sessionId) });
    };
    for await (const row of adminQueries.rows(unread)) {
      // Its lines are not complete yet.
      if (row.state === "filling") continue;
      const copy = left.get(row.id);
      left.delete(row.id);
      if (hasLines(row)) {
        sums.sessions++;
        if (row.state === "deleted") sums.deleted++;
        sums.entries += row.end.entries;
        sums.bytes += row.end.bytes;
        faults.push(...(await verifying.faultsOf(row)));
      }
      if (copy) copies.push(await this.checkCopy(copy, row));
      progress?.(sums.sessions, sums.sessions + left.size);
    }
    const elsewhere = this.place.options.journal.ends.idsElsewhere();
    for (const copy of left.values()) if (!elsewhere.has(copy.id)) copies.push(this.describeLocal(copy));
    const lacking = (await this.listLosses()).filter(({ sessionId }) => !unreadIds.has(sessionId));
    return { ...sums, faults, copies, lacking, journal: this.place.options.journal.all() };
  }

  /** Returns the sessions on this machine, those in the archive last. */
  private async listed(): Promise<readonly Listed[]> {
    const { local } = this.place;
    const listed = await local.list({ headerOnly: true });
    return [...listed.found, ...(await local.list({ archived: true, headerOnly: true })).found];
  }

  async listLosses(): Promise<SessionLoss[]> {
    const { fleet } = this.place;
    // At a new address the store is unknown until the first answer.
    await identifyFleet(fleet);
    const ends = this.place.options.journal.ends.all();
    if (ends.length === 0) return [];
    const rows = new Map(
      (await this.place.adminQueries.rowsOf(ends.map(({ sessionId }) => sessionId))).map((row) => [row.id, row]),
    );
    const lacking: SessionLoss[] = [];
    for (const one of ends) {
      const row = rows.get(one.sessionId);
      // If its rows are damaged, it is unknown.
      const lost = (await readIfUndamaged(fleet, () => this.countLost(one, row))) ?? UNKNOWN;
      if (lost.entries !== 0) lacking.push(toSessionLoss(one, lost));
    }
    return lacking;
  }

  private describeLoss({ entries, isLeast, at, record }: SessionLoss): string {
    const some = entries === null ? "some" : `${isLeast ? "at least " : ""}${entries}`;
    return `Neither the database nor the copy here has ${some} of the entries that were acknowledged here until ${at}. If no other machine and no backup has them, they are lost; remove ${record} to have this said no more.`;
  }

  /** Returns how many entries before an acknowledged end the fleet lacks. */
  private async countLost(recorded: RecordedEnd, row?: FleetRow): Promise<LostCount> {
    const { sessionId, sessionPath, end, lost, record } = recorded;
    const { fleet } = this.place;
    const { ends } = this.place.options.journal;
    if (!row || row.state === "filling") return { entries: end.entries, isLeast: false };
    if (row.state === "deleted" || isSameEnd(row.end, end)) return NONE;
    if (lost === undefined && (await this.hasInPlace(ends.endsOf(sessionId, record), row))) return NONE;
    const found = new FoundEntries(sessionId);
    let reached = NOTHING;
    for await (const lines of fleet.lines(sessionId, 0, row.end.entries)) {
      for (const line of lines) found.add(line);
      reached = extendEnd(reached, lines.slice(0, Math.max(0, end.entries - reached.entries)));
    }
    if (isSameEnd(reached, end)) return NONE;
    if (lost !== undefined) return countStillLost(recorded, found);
    const log = this.openQuietly(sessionPath);
    try {
      const isOne = log?.header.id === sessionId && log.nodes.count >= end.entries;
      if (!log || !isOne || !isSameEnd(computeEnd(log, end.entries, NOTHING), end))
        return ends.findLoss(sessionId, found, record);
      return { entries: linesIn(log, 0, end.entries).filter((line) => !found.hasLine(line)).length, isLeast: false };
    } finally {
      log?.close();
    }
  }

  /** Returns whether the last lines of recorded commits are at their places in the fleet. */
  private async hasInPlace(ends: readonly AcknowledgedEnd[], row: FleetRow): Promise<boolean> {
    // Earlier commits than an end without entries of its own may be at other places.
    const past = 1 + ends.findIndex(({ end, first }) => first === end.entries);
    const known = past === 0 ? ends : ends.slice(0, past);
    const lasts = new Map(known.toReversed().map(({ end, last }) => [end.entries, last]));
    const [from, to] = [Math.max(0, Math.min(...lasts.keys()) - 1), Math.max(...lasts.keys())];
    if (to > row.end.entries) return false;
    let at = from;
    for await (const lines of this.place.fleet.lines(row.id, from, to))
      for (const line of lines) {
        at++;
        if (lasts.has(at) && hashLine(line) !== lasts.get(at)) return false;
      }
    return true;
  }

  private async checkCopy({ path, id }: Listed, row: FleetRow): Promise<CheckedCopy> {
    const answer = { sessionId: id, sessionPath: path, fleetEntries: row.end.entries };
    const log = this.openQuietly(path);
    if (!log) return { ...answer, state: "unreadable", entries: 0 };
    try {
      const { count } = log.nodes;
      const of = (state: CheckedCopy["state"]): CheckedCopy => ({ ...answer, state, entries: count });
      if (row.state === "deleted") return of("deleted");
      const common = Math.min(count, row.end.entries);
      const here = computeEnd(log, common, NOTHING);
      const there =
        common === row.end.entries
          ? row.end
          : await readIfUndamaged(this.place.fleet, () => fetchEnd(this.place.fleet, id, common));
      // Damage in the database has its own report.
      if (there && !isSameEnd(here, there)) return of("different");
      if (isDamagedHeader(log, row.headerLine)) return of("different");
      return of(count === row.end.entries ? "same" : count < row.end.entries ? "behind" : "ahead");
    } finally {
      log.close();
    }
  }

  private describeLocal({ path, id }: Listed): CheckedCopy {
    const log = this.openQuietly(path);
    const entries = log?.nodes.count ?? 0;
    log?.close();
    return { sessionId: id, sessionPath: path, state: log ? "only_here" : "unreadable", entries, fleetEntries: 0 };
  }

  private openQuietly(path: string): Log | undefined {
    try {
      return this.place.open(path);
    } catch (error) {
      if (error instanceof Failure) return undefined;
      throw error;
    }
  }

  // --- pending uploads ------------------------------------------------------------------------------------------------

  async whyAway(): Promise<string | null> {
    try {
      await this.place.fleet.look("");
      return null;
    } catch (error) {
      return requireFailure(error).message;
    }
  }

  get tally(): FleetTally {
    return this.place.fleet.tally;
  }

  listPending(): JournaledSession[] {
    return listPendingUploads(this.uploads);
  }

  async push(withNew: boolean, progress?: Progress): Promise<FleetPushed[]> {
    // If the database does not answer, each session is refused with the reason.
    await identifyFleet(this.place.fleet);
    const pending = listPendingUploads(this.uploads);
    const wait = { left: LEASE_ENDS };
    const pushed = await runUntilReleased(
      pending.map((known) => () => uploadSession(this.uploads, known)),
      wait,
      progress,
    );
    pushed.push(...listPendingElsewhere(this.uploads));
    let lacking: SessionLoss[];
    let copies: CheckedCopy[];
    try {
      lacking = await this.listLosses();
      copies = await this.copiesWithMore();
    } catch (error) {
      // It is unknown whether entries are left: the database refused those of the pushed sessions, too.
      if (isAway(error) && pushed.some(({ outcome }) => outcome === "refused")) return pushed;
      throw error;
    }
    const isRefused = (id: string): boolean =>
      pushed.some(({ sessionId, outcome }) => sessionId === id && outcome === "refused");
    const losses = new Map(lacking.filter((one) => !isRefused(one.sessionId)).map((one) => [one.sessionId, one]));
    const tasks = copies.flatMap((copy) => {
      const { sessionId, state } = copy;
      if (isRefused(sessionId)) return [];
      const isLoss = losses.delete(sessionId);
      const isAsFile = state === "only_here" || state === "ahead";
      if (!isLoss && (state === "only_here" || state === "unreadable"))
        return withNew ? [async () => refuseLocal(copy)] : [];
      return [() => (isAsFile ? this.importCopy(copy) : uploadSession(this.uploads, copy))];
    });
    for (const one of losses.values()) tasks.push(() => uploadSession(this.uploads, one));
    const given = await runUntilReleased(tasks, wait);
    const still = lacking.length > 0 ? await this.listLosses().catch(requireFailure) : [];
    for (const one of given) {
      const isKnown = !(still instanceof Failure);
      const lost = (isKnown ? still : lacking).find(({ sessionId }) => sessionId === one.sessionId);
      const message = lost && (isKnown && !this.isInCopy(lost) ? this.describeLoss(lost) : MAY_LACK);
      pushed.push(message && one.outcome !== "refused" ? { ...one, outcome: "refused", message } : one);
    }
    return pushed;
  }

  /** Returns whether a copy has the last entry of those that the database lacks. */
  private isInCopy({ sessionPath, record, at }: SessionLoss): boolean {
    const end = this.place.options.journal.ends.all().find((one) => one.record === record && one.at === at);
    const log = this.openQuietly(sessionPath);
    try {
      return end !== undefined && log !== undefined && (hasEnd(log, end) || findEntries(log).has(end));
    } finally {
      log?.close();
    }
  }

  /** Returns the copies on this machine that have entries which the database lacks, or may have. */
  private async copiesWithMore(): Promise<CheckedCopy[]> {
    const listed = await this.listed();
    const rows = new Map(
      (await this.place.adminQueries.rowsOf(listed.map(({ id }) => id))).map((row) => [row.id, row]),
    );
    const { ends } = this.place.options.journal;
    const elsewhere = ends.idsElsewhere();
    const found: CheckedCopy[] = [];
    for (const copy of listed) {
      const row = rows.get(copy.id);
      if (!row || row.state === "filling") {
        if (!elsewhere.has(copy.id) && !(await this.fetchNamed(copy))) found.push(this.describeLocal(copy));
        continue;
      }
      const end = ends.of(copy.id);
      if (row.state === "deleted") continue;
      // A copy that ends with the acknowledged line has nothing more than the database, if that has it in its place.
      const isWhole = end !== undefined && this.endsSo(copy, end) && (await this.hasInPlace([end], row));
      if (!isWhole) found.push(await this.checkCopy(copy, row));
    }
    const states = new Set<CheckedCopy["state"]>(["only_here", "ahead", "different"]);
    return found.filter(({ state, entries }) => state === "unreadable" || (states.has(state) && entries > 0));
  }

  /** Fetches the session that a container is named after, if the id in its header is another. Returns whether it came. */
  private async fetchNamed({ path, id }: Listed): Promise<boolean> {
    const named = getIdInPath(path);
    if (!isContainerName(path) || named === id) return false;
    await this.place.arriveAt(path).catch(requireFailure);
    const log = this.openQuietly(path);
    log?.close();
    return log?.header.id === named;
  }

  private endsSo({ path }: Listed, end: AcknowledgedEnd): boolean {
    if (end.last === undefined) return false;
    const log = this.openQuietly(path);
    try {
      return log?.nodes.count === end.end.entries && log.damage.length === 0 && hasEnd(log, end);
    } finally {
      log?.close();
    }
  }

  /** Uploads a copy that continues the session of the fleet; after a conflict its entries become a branch. */
  private async importCopy(copy: CheckedCopy): Promise<FleetPushed> {
    const { sessionId, sessionPath } = copy;
    try {
      const { message } = await useAndClose(this.place.open(sessionPath), (log) => this.importLog(log, sessionPath));
      return { sessionId, sessionPath, outcome: "given", ...(message === undefined ? {} : { message }) };
    } catch (error) {
      if (error instanceof Failure && error.name === "content_modified") return uploadSession(this.uploads, copy);
      return toRefusedUpload(error, sessionId, sessionPath);
    }
  }

  // --- import ------------------------------------------------------------------------------------------------------

  async importFolder(folder: string, progress?: Progress): Promise<FleetFile[]> {
    const unreadable: FleetFile[] = [];
    const sessions = this.place.listSessionFiles(folder, (path, error) => {
      const { message } = toStorageFailure(error, "reading the folder");
      unreadable.push({ sessionPath: path, sessionId: null, outcome: "refused", entries: 0, message });
    });
    const files = [...sessions].sort();
    const brought: FleetFile[] = [];
    const left = files.entries();
    let done = 0;
    const bring = async (): Promise<void> => {
      for (const [n, file] of left) {
        brought[n] = await this.importFile(file);
        progress?.(++done, files.length);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, bring));
    await this.place.adminQueries.settle();
    return [...unreadable, ...brought];
  }

  private async importFile(file: string): Promise<FleetFile> {
    let log: Log | undefined;
    const refused = (message: string): FleetFile => ({
      ...{ sessionPath: file, sessionId: log?.header.id ?? null, outcome: "refused", entries: 0, message },
    });
    try {
      log = this.place.open(file);
      return await this.importLog(log, file);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      if (error.name === "content_modified" || error.name === "already_exists")
        return refused(
          "The fleet has a session with this id that goes on differently. clone makes one with another id of the file.",
        );
      return refused(error.message);
    } finally {
      log?.close();
    }
  }

  /** Uploads the entries that the fleet lacks. Throws the reason if that is not possible. */
  private async importLog(log: Log, file: string): Promise<FleetFile> {
    if (!this.place.isOurs(log))
      throw new Failure("unsupported_version", "It is not a session of ours; import makes one of it.");
    if (log.version !== 3)
      throw new Failure(
        "unsupported_version",
        `It is of version ${log.version}; open it once, which brings it to the present one, and try again.`,
      );
    const { header } = log;
    const { count } = log.nodes;
    const before = await this.place.fleet.look(header.id);
    if (count === 0 && !before)
      throw new Failure("unsupported_version", "It has no entries yet. The first one brings it to the fleet.");
    let end = NOTHING;
    const copy = new FleetReplica(log, { ...this.place.options, quarantineEntries: () => "" });
    try {
      await copy.replicate(count);
      end = copy.common;
      await uploadMissingAttachments(this.place.fleet, log, header.id);
      await copy.factsAdded();
    } finally {
      copy.release();
    }
    const outcome = !before ? "new" : before.end.entries < count ? "continued" : "known";
    const size = this.place.sizeOf(file);
    const { bytes, entries } = computeEnd(log, count, end);
    const isWhole = size === null || size === log.headerLine.length + 1 + bytes + entries;
    const message = "Spaces, empty lines or damage between its entries are not in the fleet.";
    return { sessionPath: file, sessionId: header.id, outcome, entries: count, ...(isWhole ? {} : { message }) };
  }

  // --- export ------------------------------------------------------------------------------------------------------

  async exportTo(folder: string, progress?: Progress): Promise<FleetFile[]> {
    const written: FleetFile[] = [];
    const unread: OnUnreadable = (sessionId) => {
      const sessionPath = sessionId === null ? folder : makeFallbackPath(folder, sessionId);
      written.push({
        sessionPath,
        sessionId,
        entries: 0,
        outcome: "refused",
        message: explainUnreadableRow(sessionId),
      });
    };
    for await (const row of this.place.adminQueries.rows(unread)) {
      if (row.state !== "there") continue;
      const file = await this.exportOne(folder, row);
      if (file) written.push(file);
      progress?.(written.length, written.length);
    }
    return written;
  }

  /** Writes a session. Returns null for one that was deleted since its row was read. */
  private async exportOne(folder: string, row: FleetRow): Promise<FleetFile | null> {
    const { id, headerLine, end } = row;
    const stored = parseSessionHeader(headerLine);
    const sessionPath = stored ? this.place.fileIn(folder, toReadableHeader(stored)) : makeFallbackPath(folder, id);
    const answer = { sessionPath, sessionId: id, entries: end.entries };
    try {
      const missing: string[] = [];
      const outcome = await this.place.write(sessionPath, this.readExport(sessionPath, row, missing));
      if (outcome === "taken")
        return {
          ...answer,
          outcome: "refused",
          message: "A file with other bytes is at this path. Export to an empty folder.",
        };
      if (missing.length === 0) return { ...answer, outcome };
      return { ...answer, outcome, missingAttachments: missing, message: describeMissing(missing) };
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      const now = await this.place.adminQueries.row(id).catch(() => row);
      return now?.state === "there" ? { ...answer, outcome: "refused", message: error.message } : null;
    }
  }

  /**
   * Yields the bytes of a session, and writes its attachments before it ends, so that they are there before its file. Adds
   * those that cannot be to `missing`.
   */
  private async *readExport(sessionPath: string, row: FleetRow, missing: string[]): AsyncGenerator<Uint8Array> {
    const { fleet } = this.place;
    yield row.headerLine;
    yield LF;
    yield* fetchSessionLines(fleet, row);
    for await (const [sha256, content] of fetchAttachments(fleet, row.id)) {
      const path = join(getAttachmentFolder(sessionPath), sha256);
      if (!content || (await this.place.write(path, [content])) === "taken") missing.push(sha256);
    }
  }

  // --- index -------------------------------------------------------------------------------------------------------

  /** `atOnce`: bytes of lines whose facts are sent together. */
  async index(progress?: Progress, atOnce = INDEXED_AT_ONCE): Promise<FleetIndexed> {
    const { fleet, adminQueries } = this.place;
    const lacking: { readonly row: FleetRow; readonly keepsWords: boolean }[] = [];
    const inUse: string[] = [];
    const unreadable: string[] = [];
    for await (const row of adminQueries.rows()) {
      if (row.state !== "there") continue;
      const checked = await readIfUndamaged(fleet, async () => [await adminQueries.checked(row.id)]);
      const [now = null] = checked ?? [];
      if (isMissingFacts(now)) lacking.push({ row, keepsWords: !now?.isWordless || now.isMissingWords });
      // A session that has its facts needs none, whatever the state of its lines.
      else if (checked === null && row.indexed !== row.end.entries) unreadable.push(row.id);
    }
    let indexed = 0;
    for (const [n, { row, keepsWords }] of lacking.entries()) {
      const isIndexed = await readIfUndamaged(fleet, () => this.indexOne(row, keepsWords, atOnce));
      if (isIndexed) indexed++;
      else (isIndexed === null ? unreadable : inUse).push(row.id);
      progress?.(n + 1, lacking.length);
    }
    if (indexed > 0) await this.place.adminQueries.settle();
    return { indexed, inUse, unreadable };
  }

  startSweep(first?: number): () => void {
    return sweepLateFacts(() => this.finishLate(), first);
  }

  async finishLate(): Promise<boolean> {
    const session = await this.place.adminQueries.claimBehind();
    if (session) await finishFacts(this.place, session);
    return session !== null;
  }

  /**
   * Gathers the facts of a session anew, with its words unless these were left out by choice. Returns false if another process
   * has it, null if its header cannot be read.
   */
  private async indexOne({ id, headerLine }: FleetRow, keepsWords: boolean, atOnce: number): Promise<boolean | null> {
    const { fleet, adminQueries, memory } = this.place;
    const stored = parseSessionHeader(headerLine);
    if (!stored) return null;
    const taking = await fleet.take(id, 0);
    if (taking.kind !== "taken") return false;
    const { epoch, end } = taking;
    try {
      if (!(await adminQueries.forgetFacts(id, epoch))) return false;
      const log = memory.create({ headerLine, header: toReadableHeader(stored) });
      const facts = new CopyFacts(log);
      let before = NOTHING;
      let bytes = 0;
      let description: FleetDescription | undefined;
      for await (const lines of fleet.lines(id, 0, end.entries)) {
        log.append(lines);
        bytes += lines.reduce((sum, { length }) => sum + length, 0);
        if (bytes < atOnce && log.nodes.count < end.entries) continue;
        bytes = 0;
        const after = computeEnd(log, log.nodes.count, before);
        const { counts, texts, spendings, ...found } = facts.between(before, after);
        facts.committed(after);
        description = found.description ?? description;
        const [from, to] = [before.entries, after.entries];
        const late = { sessionId: id, epoch, from, to, texts, spendings };
        const outcome = await fleet.addFacts(keepsWords ? late : dropWords(late));
        if (outcome.kind === "refused") return false;
        // What was added without an answer is gathered anew by the next run.
        if (outcome.kind !== "committed") throw makeAwayFailure(outcome.reason);
        if (to === end.entries && !(await adminQueries.describe(id, epoch, { counts, description }))) return false;
        before = after;
        log.forget();
      }
      return true;
    } finally {
      await fleet.release(id, epoch);
    }
  }
}

/**
 * Runs tasks, and repeats those whose session another process has, until the lease of an exited process has expired. `wait`:
 * milliseconds that are left for that.
 */
async function runUntilReleased(
  tasks: readonly (() => Promise<FleetPushed>)[],
  wait: { left: number },
  progress?: Progress,
): Promise<FleetPushed[]> {
  const done: FleetPushed[] = [];
  for (const task of tasks) {
    done.push(await task());
    progress?.(done.length, tasks.length);
  }
  for (; wait.left > 0 && done.some(({ isHeld }) => isHeld); wait.left -= ASKED_AGAIN) {
    await new Promise((resolve) => setTimeout(resolve, ASKED_AGAIN));
    for (const [n, { isHeld }] of done.entries()) if (isHeld) done[n] = await tasks[n]();
  }
  return done;
}

/** Returns the refusal of a copy that is here alone, or may be. */
function refuseLocal({ sessionId, sessionPath, state }: CheckedCopy): FleetPushed {
  const message =
    state === "unreadable"
      ? "Its file cannot be read, and it is unknown whether it has entries that the database lacks. verify with its path says more."
      : "The database does not have this session, which is on this machine alone. fleet import with its folder brings it there, unless it is another tenant's.";
  return { sessionId, sessionPath, outcome: "refused", message };
}

function toSessionLoss(of: RecordedEnd, { entries, isLeast }: LostCount | typeof UNKNOWN): SessionLoss {
  const { sessionId, sessionPath, at, record } = of;
  return { sessionId, sessionPath, entries, ...(isLeast ? { isLeast } : {}), at, record };
}

/** Returns the path of a session whose header gives none. */
function makeFallbackPath(folder: string, id: string): string {
  return join(folder, `${encodeURIComponent(id)}.jsonl`);
}

/** Returns whether facts of a session are missing, or cannot be read, and its lines are there to gather them from. */
function isMissingFacts(row: CheckedRow | null): boolean {
  if (!row || row.rows !== row.end.entries || row.rows === 0) return false;
  return row.indexed !== row.rows || row.isMissingWords || !parseDescription(row.facts);
}

/** Returns the sentence about attachments missing from an export. */
function describeMissing(missing: readonly string[]): string {
  const some = missing.slice(0, MOST_NAMED).join(", ");
  const more = missing.length > MOST_NAMED ? ` and ${missing.length - MOST_NAMED} more` : "";
  return `It lacks attachments (${missing.length}): the fleet has them not or damaged, which fleet import mends from a folder with a whole copy, or their paths have other files. ${some}${more}`;
}
