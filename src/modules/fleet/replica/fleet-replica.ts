/**
 * The replica of a log in the fleet: the common end of both, and whether this process may write there.
 *
 * The fleet decides what the session contains. This process knows its epoch, while it has the lease, and the common
 * end. After anything but a clear answer it drops the epoch: the next writer takes the lease again, and the end that
 * the fleet returns then shows the outcome of the lines.
 */

import { toStorageFailure } from "../../../core/errno.ts";
import { Failure, isAway } from "../../../core/failure.ts";
import type { FleetBatch, FleetEnd, FleetSession, LeaseResult } from "../../../core/ports/fleet.ts";
import type { Replica, ReplicaStatus } from "../../../core/ports/replica.ts";
import type { ReplicatedLog } from "../../../storage/log/replica.ts";
import { computeEnd, fetchLinesBetween, isSameEnd, NOTHING } from "../postgres/ends.ts";
import {
  makeAwayFailure,
  makeOvertakenFailure,
  makeTooSlowFailure,
  makeUnfitFailure,
  requireFailure,
  toLeaseFailure,
  toQuarantinedFailure,
  toUnaskedFailure,
  toUnconfirmedFailure,
} from "../postgres/failures.ts";
import { type AcknowledgedEnd, findEntries, hasEnd, identifyLast } from "./acknowledged-ends.ts";
import { fetchMissing } from "./attachments.ts";
import { isLong, prepareStep, readUploadLines } from "./batch.ts";
import { type CommitStep, type KeptParts, RunningCommit } from "./commit.ts";
import { CopyFacts } from "./facts.ts";
import { getSoundHeader, mendHeader } from "./headers.ts";
import { COMPARED_FIRST, KnownEnd } from "./known-end.ts";
import { LateWork } from "./late-facts.ts";
import { Lease } from "./lease.ts";
import type { FleetOptions } from "./options.ts";
import { Inquiry } from "./outage.ts";
import { PendingUploads } from "./pending-uploads.ts";
import { addPendingEntries, countLostEntries, lacksParent, resolveConflict } from "./reconcile.ts";
import { getLastingRefusal, makeBehindFailure, makeIdTakenFailure, RefusedLines } from "./refusals.ts";
import { applyRemoteEntries, refreshLocal, settleLocal } from "./remote-entries.ts";

/**
 * Maximum milliseconds between two looks when nothing has happened for long: a database has to bear those of thousands
 * of idle agents.
 */
const LONGEST_PAUSE = 180_000;

export class FleetReplica implements Replica, ReplicaStatus {
  private readonly log: ReplicatedLog;
  private readonly options: FleetOptions;
  private readonly facts: CopyFacts;
  /** The lease of this process, with its epoch. */
  private readonly lease: Lease;
  /** The common end of log and fleet, and the number of entries with facts in the fleet. */
  private readonly known: KnownEnd;
  /** Adds facts that the fleet lacks. */
  private readonly late: LateWork;
  /** Asks whether there is something to apply or to upload. */
  private readonly news: Inquiry;
  private readonly refusedLines: RefusedLines;
  /** Time of the last look that found entries of others. */
  private heard: number;
  private readying: Promise<void> | undefined;
  private isConfirming = false;
  /** True if the copy has the journal's entries, as far as the fleet has not answered. */
  private hasTakenIn = false;
  /** True if another file with the fleet's lines has replaced that of this log. */
  private isReplaced = false;
  /** Entries that this machine has acknowledged, and the fleet may lack. */
  private readonly pending: PendingUploads;
  /** The end up to which hosts of this machine got an acknowledgement. */
  private acknowledged: AcknowledgedEnd | undefined;
  /** The acknowledged end that this process recorded, hence an end of this very log. */
  private notedEnd = NOTHING;
  /** The commit that ran last. */
  private commit = new RunningCommit(0, 0, false);
  hasReplicated = false;
  /** True if the fleet may have the session, although its first commit failed here. */
  private isBegunInDoubt = false;

  constructor(log: ReplicatedLog, options: FleetOptions) {
    this.log = log;
    this.options = options;
    this.lease = new Lease(log.header.id, options);
    this.acknowledged = options.journal.ends.of(log.header.id);
    this.known = new KnownEnd(log, this.acknowledged?.had ?? 0);
    this.facts = new CopyFacts(log);
    this.pending = new PendingUploads(log, options.journal);
    this.late = new LateWork(log, options.fleet, () => this.known.lateStretch(this.lease));
    const { followedEvery, elapsed } = options;
    this.refusedLines = new RefusedLines(log, options);
    this.news = new Inquiry(followedEvery, elapsed, () => this.hasNews());
    this.heard = elapsed();
  }

  private get id(): string {
    return this.log.header.id;
  }

  get status(): ReplicaStatus {
    return this;
  }

  get durability(): ReplicaStatus["durability"] {
    // A process before this one may have gone on alone.
    return this.isBegun && this.pending.hasEntries ? "local" : this.known.durability;
  }

  get holder(): ReplicaStatus["holder"] {
    return this.lease.holder;
  }

  get refusal(): ReplicaStatus["refusal"] {
    return this.lease.refusal;
  }

  get changeCount(): number {
    return this.log.remoteChangeCount;
  }

  get renamed(): Replica["renamed"] {
    return this.log.renamed;
  }

  /** The common end of fleet and copy, as far as it is known. */
  get common(): FleetEnd {
    return this.known.now;
  }

  /** Records that the copy has the fleet's lines up to an end; they are not compared again. */
  private madeOf(end: FleetEnd): void {
    this.known.raise(end);
    this.lease.server = this.options.fleet.server;
  }

  /** True if this process works on without the fleet for now. */
  private get isAlone(): boolean {
    return this.options.outage?.lasts === true;
  }

  // --- before a write ------------------------------------------------------------------------------------------

  /** True if the fleet may have some of the session. */
  private get isBegun(): boolean {
    return this.log.persisted || this.isBegunInDoubt || this.known.had > 0 || this.pending.isKept;
  }

  ready(): Promise<void> | undefined {
    if (this.log.isDisturbed) this.lease.note("doubts");
    if (this.lease.isSure || !this.isBegun || this.log.readOnly) return undefined;
    // Nothing is written here during an upload.
    const given = this.options.journal.uploading.get(this.id);
    if (given) return given.then(() => this.ready());
    if (this.isAlone) {
      // The owner is unknown. If another machine wrote meanwhile, the entries of this one become a branch.
      this.lease.note("goesAlone");
      return this.takeInPending();
    }
    this.readying ??= this.becomeWriter(true)
      .catch(async (error) => {
        this.lease.note("doubts");
        const reported = await this.toReportedError(error);
        if (reported === null) return this.takeInPending();
        const refusal = toUnaskedFailure(requireFailure(reported));
        this.lease.refuse(refusal);
        // Others may write to what this process cannot.
        if (!refusal.retryable) this.lease.release();
      })
      .finally(() => {
        this.readying = undefined;
      });
    return this.readying;
  }

  /** `isHost`: a host reads the reports. */
  private async becomeWriter(isHost: boolean): Promise<void> {
    const { log } = this;
    this.lease.note("asks");
    // Entries that wait for a commit take the lease there.
    if (log.durableCount < log.nodes.count) return;
    try {
      log.lock.acquire();
    } catch (error) {
      // A writer meets the same failure itself; a caller that asks whether the fleet has all entries needs it.
      if (error instanceof Failure && !this.isConfirming) return;
      throw error;
    }
    this.pending.renew();
    this.acknowledged = this.options.journal.ends.of(this.id) ?? this.acknowledged;
    for (let tries = 0, since = this.options.elapsed(); ; tries++) {
      // A deleted session leaves a row: a missing one was lost with a server, or never came there.
      const taking = await this.take(this.pending.hasEntries || this.known.had > 0 || this.isConfirming);
      if (taking.kind === "taken") {
        // Until then the store may have been unknown, and its pending entries attributed to another fleet.
        this.pending.renew();
        log.writeBehind();
        if (log.isDisturbed) return this.makeFileAnew();
        if (!(await this.catchUp(taking.end))) return;
        this.commit.isOvertaken = false;
        await this.noteLoss();
        await this.addMissingPending();
        // Another file may have replaced this one; its own log uploads its entries.
        if (log.refresh().kind === "replaced") return;
        if (isHost) this.reportLoss();
        if (isHost) await this.pending.reportConflict();
        await this.uploadRest();
        if (this.known.entries === log.durableCount) this.known.durability ??= taking.durability;
        if (isHost) await this.pending.reportReturn();
        this.isReplaced ||= mendHeader(log, taking.headerLine);
        return;
      }
      if (taking.kind === "missing") return this.pending.renew();
      if (taking.kind !== "away") throw toLeaseFailure(taking, this.id);
      if (!(await this.options.patience(tries, since, false))) throw makeAwayFailure(taking.reason);
    }
  }

  /**
   * Opens the file anew after another program changed it, and brings it up to date before its log replaces this one: no
   * reader sees the session without the acknowledged entries. The other program's entries become a branch.
   */
  private async makeFileAnew(): Promise<void> {
    this.lease.note("doubts");
    const next = this.openAnew();
    // An unreadable file is fetched again before the write.
    if (!next) return this.log.markReplaced();
    try {
      await next.replica?.ready();
      next.lock.acquire();
      if (!this.isAlone && !next.isBehind) this.log.markReplaced();
    } finally {
      next.close();
    }
  }

  /**
   * Completes the file that has replaced that of this log, so that no reader sees the session without the acknowledged
   * entries. After a failure the next process that opens it does so; a caller that asks for all entries gets the failure.
   */
  private async completeFile(): Promise<void> {
    const next = this.openAnew();
    try {
      await next?.replica?.sync();
    } catch (error) {
      if (this.isConfirming) throw error;
      requireFailure(error);
    } finally {
      next?.close();
    }
  }

  /** Opens the file again. Returns undefined if it cannot be read, or is that of another session. */
  private openAnew(): ReplicatedLog | undefined {
    try {
      const next = this.log.reopen() as ReplicatedLog;
      if (next.header.id === this.id) return next;
      next.close();
      return undefined;
    } catch (error) {
      requireFailure(error);
      return undefined;
    }
  }

  /** Returns the error to report; null if work goes on because the database is unreachable. */
  private async toReportedError(error: unknown): Promise<unknown> {
    const { outage } = this.options;
    if (!outage || !isAway(error)) return error;
    return (await outage.begins()) ? null : error;
  }

  /** Acknowledges entries without the fleet. Others may take the session meanwhile. */
  private goOnAlone(count: number): Promise<void> {
    this.lease.note("doubts");
    return this.pending.begin(this.known.now, this.known.firstUnsent, count);
  }

  /**
   * Uploads entries that were acknowledged during an outage, entries that the fleet has lost, and those that a caller
   * is about to acknowledge. This process has the lease, and no commit waits.
   */
  private async uploadRest(): Promise<void> {
    const { pending, known, log } = this;
    const { hasEntries } = pending;
    const isLacking = hasEntries || this.isConfirming || known.entries < known.had;
    if (isLacking) await this.pushThrough(this.commitOf(log.durableCount));
    known.settle();
    if (!hasEntries) return;
    await pending.end();
    // They were noted when they were acknowledged.
    this.noteAcknowledged(log.durableCount, log.durableCount);
  }

  /** Notes durably that the fleet lacks entries that hosts of this machine got an acknowledgement for, if it does. */
  private async noteLoss(): Promise<void> {
    const { acknowledged, pending, known } = this;
    const lost = countLostEntries(this.log, acknowledged, known.now);
    if (!acknowledged || lost === 0 || pending.hasEntries) return;
    // The database never had these, and their note is gone.
    if (acknowledged.durability === "local") return pending.begin(known.now, known.entries, acknowledged.end.entries);
    const lastEntryId = this.log.nodes.id(acknowledged.end.entries - 1);
    await pending.beginAfterLoss(known.now, { entries: lost, lastEntryId, at: acknowledged.at });
  }

  /** Reports, once, entries that were acknowledged and are neither in the fleet nor in the copy. */
  private reportLoss(): void {
    const { acknowledged, pending, log, known, options } = this;
    if (!acknowledged || pending.hasEntries || hasEnd(log, acknowledged)) return;
    const { ends } = options.journal;
    const lost = ends.findLoss(this.id, findEntries(log));
    // Another machine added them to the fleet.
    if (lost.entries === 0) return this.noteAcknowledged(known.entries, known.entries);
    const count = `${lost.entries} of them${lost.isLeast ? " or more" : ""}`;
    const reason = `Entries that were acknowledged here until ${acknowledged.at} are neither in the fleet's database nor in the session's file, ${count}. list_kept has those that could be read, and a backup may have them. fleet verify names them until they are there or a person removes their record.`;
    log.addDamage({ kind: "lost_entries", line: 0, byteOffset: 0, length: 0, reason, salvaged: false });
    ends.keepLoss(acknowledged, lost);
    this.acknowledged = undefined;
  }

  /** Adds pending entries that the copy lacks because its file was damaged or removed. */
  private async addMissingPending(): Promise<void> {
    const { pending, log, options, known } = this;
    const { journaled } = pending;
    const lines = pending.missingLines();
    if (lines.length === 0) return;
    const { from } = journaled ?? {};
    // A damaged copy may lack lines before them.
    const { count } = log.nodes;
    const before = from && from.entries <= count && known.prefix(from) ? from.entries : 0;
    const first = Math.min(count, Math.max(known.entries, before));
    await addPendingEntries({ log, options, journaled, acknowledged: undefined }, lines, first);
    pending.renew();
  }

  async applyPending(): Promise<void> {
    const { pending, log } = this;
    pending.renew();
    // Without the lock this is a guess; they are read again under it.
    if (pending.missingLines().length === 0) return;
    const isNew = log.lock.acquire();
    try {
      const { kind } = log.refresh();
      // The log of another file adds them.
      if (kind === "replaced" || kind === "gone") return;
      // What they continue is in the fleet alone.
      if (lacksParent(log, pending.missingLines())) throw makeBehindFailure(log);
      await this.addMissingPending();
    } finally {
      if (isNew) log.lock.release();
    }
  }

  /** Does the same once, before this process goes on alone with the copy. A failure refuses its writes. */
  private takeInPending(): Promise<void> | undefined {
    const { log } = this;
    if (this.hasTakenIn || log.readOnly || log.durableCount < log.nodes.count) return undefined;
    this.hasTakenIn = true;
    return this.applyPending().catch((error) => {
      this.hasTakenIn = false;
      this.lease.refuse(requireFailure(error));
    });
  }

  /**
   * Notes that the host gets an acknowledgement for the first `count` entries, and had none for those after `first`. Never
   * throws.
   */
  private noteAcknowledged(count: number, first: number): void {
    const { log, known, options, id, lease } = this;
    if (log.file === null || this.isReplaced) return;
    // An imported file may have less than was acknowledged before.
    if (log.readOnly && this.acknowledged && this.acknowledged.end.entries >= count) return;
    const before = this.notedEnd.entries > known.entries && this.notedEnd.entries <= count ? this.notedEnd : known.now;
    let last: ReturnType<typeof identifyLast> = {};
    try {
      if (count > 0) last = identifyLast(log.read(count - 1), id);
      this.notedEnd = known.entries === count ? known.now : computeEnd(log, count, before);
    } catch {
      // The disk does not read them. An earlier end is known.
      return;
    }
    const { durability = "primary" } = this;
    const place = { sessionId: id, sessionPath: log.file, server: lease.server };
    const noted = { end: this.notedEnd, first, ...last, durability, had: known.had };
    this.acknowledged = options.journal.ends.note({ ...place, ...noted });
  }

  confirm(): Promise<void> | undefined {
    const { log, commit } = this;
    const isThere = this.known.entries >= log.durableCount && !commit.isOvertaken;
    if (!log.persisted || log.readOnly || isThere) return undefined;
    return this.confirmNow().then(
      () => {
        const { durableCount } = log;
        const first = Math.min(durableCount, this.acknowledged?.end.entries ?? 0);
        this.reportLoss();
        this.noteAcknowledged(durableCount, first);
      },
      (error) => {
        throw toUnconfirmedFailure(error);
      },
    );
  }

  private async confirmNow(isPatient = true): Promise<void> {
    this.pending.renew();
    // Pending entries are uploaded later. Not all are on the medium: another process may be about to write, or have
    // exited.
    if (this.isAlone || (this.options.outage && this.pending.hasEntries)) return this.confirmAlone();
    try {
      const { lease, known, log } = this;
      if (lease.isSure && known.isAhead) return await this.pushThrough(this.commitOf(log.durableCount), isPatient);
      const there = await this.options.fleet.look(this.id);
      if (there && this.isAllIn(there.end)) return this.madeOf(there.end);
      await this.readying;
      this.lease.note("doubts");
      this.isConfirming = true;
      await this.ready();
      if (this.isAlone) await this.confirmAlone();
      else if (this.lease.refusal) throw this.lease.refusal;
    } catch (error) {
      this.lease.note("doubts");
      const reported = await this.toReportedError(error);
      if (reported !== null) throw reported;
      await this.confirmAlone();
    } finally {
      this.isConfirming = false;
    }
  }

  /** Returns whether all entries of the copy are durable, and the same as those of the fleet. */
  private isAllIn(there: FleetEnd): boolean {
    const { log, known } = this;
    const isResting = log.durableCount === log.nodes.count && !this.readying;
    return isResting && there.entries === log.durableCount && known.prefix(there) !== null;
  }

  /** Acknowledges the entries of the file without the fleet: they are on the medium, and no process removes them. */
  private async confirmAlone(): Promise<void> {
    this.lease.note("goesAlone");
    settleLocal(this.log);
    return this.goOnAlone(this.log.durableCount);
  }

  /** Takes the session, and begins it in the fleet if `begins`, or if it is about to have its first entry. */
  private async take(begins = false): Promise<LeaseResult> {
    const { log, pending } = this;
    const headerLine = getSoundHeader(log, pending.headerLine);
    const taking = await this.lease.take(begins || log.nodes.count === 0 ? headerLine : undefined);
    if (taking.kind === "taken") this.known.indexed = taking.indexed;
    return taking;
  }

  /**
   * Applies the fleet's entries that the copy lacks. Entries that only the copy has are uploaded with the next commit.
   * Returns whether the log is still the session, and was not replaced.
   */
  private async catchUp(there: FleetEnd): Promise<boolean> {
    const { log, known } = this;
    this.pending.requireOurs();
    refreshLocal(log);
    const { count } = log.nodes;
    const takeIn = async (): Promise<FleetEnd | null> =>
      (await applyRemoteEntries(there, log, this.options, known.at(count))) ? there : null;
    const reached = there.entries <= count ? known.prefix(there) : await takeIn();
    if (reached === null) return this.resolveConflict(there);
    known.raise(reached);
    return true;
  }

  private async resolveConflict(there: FleetEnd): Promise<false> {
    const { log, options, pending, known } = this;
    const left = known.leftTo(there);
    if (left) throw left;
    this.acknowledged = options.journal.ends.of(this.id) ?? this.acknowledged;
    // From now on this log may have other lines than the session.
    this.late.end();
    try {
      const copy = { log, options, journaled: pending.journaled, acknowledged: this.acknowledged };
      const isPart = await resolveConflict(copy, there);
      this.isReplaced = true;
      if (isPart || this.isConfirming) await this.completeFile();
    } catch (error) {
      if (error instanceof Failure && error.name === "read_only") known.leave(there, error);
      throw error;
    }
    return false;
  }

  // --- while nothing is written --------------------------------------------------------------------------------

  follow(asked?: number): Promise<void> | undefined {
    if (!this.isBegun) return undefined;
    const { news, isAlone } = this;
    // When the database is back, it may be another one.
    if (isAlone) this.refusedLines.forget();
    if (this.lease.isOurs || isAlone) return this.uploadAgain();
    if (news.take()) {
      this.heard = this.options.elapsed();
      return this.syncNow(true, Number.POSITIVE_INFINITY).then(() => this.uploadAgain());
    }
    news.renew(this.pauseAfter(asked));
    return undefined;
  }

  /** Returns the milliseconds between two looks: a tenth of the time since the last write or, if known, the last request. */
  private pauseAfter(asked = Number.POSITIVE_INFINITY): number {
    const { options, known, pending, lease } = this;
    const quiet = Math.min(asked, options.elapsed() - Math.max(this.heard, lease.answered));
    // Entries that only this machine has do not wait.
    const isDue = pending.hasEntries || known.isAhead;
    return isDue ? options.followedEvery : Math.max(options.followedEvery, Math.min(LONGEST_PAUSE, quiet / 10));
  }

  private uploadAgain(): Promise<void> | undefined {
    return this.refusedLines.holds ? undefined : this.upload();
  }

  upload(): Promise<void> | undefined {
    const { known, pending, lease } = this;
    const mayNote = known.mayBePending && !pending.hasEntries;
    if (!known.isAhead || getLastingRefusal(lease.refusal) || (this.isAlone && !mayNote)) return undefined;
    return this.uploadOrNote(mayNote);
  }

  /** Never rejects: the next write reports a failure. Calls of the session wait meanwhile. */
  private async uploadOrNote(mayNote: boolean): Promise<void> {
    const { of } = this.refusedLines;
    try {
      await this.confirmNow(false);
    } catch (error) {
      if (!isAway(error)) this.refusedLines.note(error, of);
      else if (mayNote) await this.confirmAlone().catch(() => {});
    }
  }

  /** Returns the fleet's session, and the server that answered. */
  private async look(): Promise<{ there: FleetSession | null; server: string | undefined }> {
    const { fleet } = this.options;
    const there = await fleet.look(this.id);
    return { there, server: fleet.server };
  }

  private async hasNews(): Promise<boolean> {
    const { lease, pending, known, refusedLines } = this;
    const { epoch } = lease;
    const { there, server } = await this.look();
    if (epoch !== null && there?.epoch !== epoch) lease.letGo(epoch);
    const hadPending = pending.hasEntries;
    pending.renew();
    // Another process of this machine may have uploaded the entries that this one acknowledged.
    if (hadPending && !pending.hasEntries) known.durability = "primary";
    // The process that prevented a write may have exited.
    if (lease.holder && !lease.isSure) lease.noteHolder(there?.holder ?? null);
    const { holds } = refusedLines;
    // Its owner has to release it first.
    if (!holds && !there?.holder && (await known.isLostIn(there, this.options.fleet))) return true;
    if (there !== null && (await this.differsFrom(there, server))) return true;
    const isAhead = known.isAhead && !getLastingRefusal(lease.refusal, there);
    return !holds && !there?.holder && (pending.isDue(true) || isAhead) && !known.isLeftTo(there);
  }

  /** Returns whether the fleet differs from the copy. If not, records the server that was asked. */
  private async differsFrom({ end }: FleetSession, server: string | undefined, most?: number): Promise<boolean> {
    const { known, lease } = this;
    if (await known.differsFrom(end, most)) return true;
    if (isSameEnd(end, known.now)) lease.server ??= server;
    return false;
  }

  sync(most = COMPARED_FIRST): Promise<void> {
    return this.syncNow(false, most);
  }

  /** `isHost`: a host reads the reports. */
  private async syncNow(isHost: boolean, most: number): Promise<void> {
    const { log, pending, lease, known } = this;
    if (lease.isSure || !this.isBegun || log.durableCount < log.nodes.count) return;
    lease.note("doubts");
    const { there, server } = await this.look();
    pending.renew();
    lease.note("looks", there);
    const isDue = pending.isDue(isHost) && !known.isLeftTo(there);
    const isLost = await known.isLostIn(there, this.options.fleet);
    const differs = !isDue && there !== null && (await this.differsFrom(there, server, most));
    if (!isDue && !isLost && !differs) return;
    // A writer that started meanwhile finds it out, too.
    if (lease.isSure || log.durableCount < log.nodes.count) return;
    // The lock of a new session is held from its creation.
    const isNew = log.lock.acquire() || !log.persisted;
    try {
      // Another process of this machine may have acknowledged or uploaded entries until then.
      pending.renew();
      // Lost entries are uploaded again, unless others have written since.
      if ((pending.isDue(isHost) && !known.isLeftTo(there)) || (isLost && !differs)) await this.becomeWriter(isHost);
      else if (there && (await this.catchUp(there.end))) lease.server ??= server;
    } catch (error) {
      // The rest is done the next time, also for a reader.
      lease.note("doubts");
      this.refusedLines.note(error);
      throw error;
    } finally {
      if (isNew) log.lock.release();
    }
  }

  fetchAttachments(): Promise<void> {
    return fetchMissing(this.options.fleet, this.log, this.id);
  }

  // --- a commit ------------------------------------------------------------------------------------------------

  async replicate(count: number): Promise<void> {
    const { pending, log, known } = this;
    pending.requireOurs();
    const end = known.now;
    // Entries that were durable here before do not belong to it.
    const before = log.durableCount < count ? this.firstRefusable : end.entries;
    const commit = this.commitOf(count, before);
    this.commit = commit;
    try {
      if (this.isAlone) await this.goOnAlone(count);
      else {
        await this.pushThrough(commit);
        // The next owner applies the entries that the copy lacks.
        if (pending.hasEntries && pending.missingLines().length === 0) await pending.end();
        else if (pending.hasEntries) this.lease.note("doubts");
      }
      this.noteAcknowledged(count, before);
      this.hasReplicated = true;
    } catch (error) {
      this.lease.note("doubts");
      let failure = await this.toReportedError(error);
      if (failure === null)
        try {
          await this.goOnAlone(count);
          this.hasReplicated = true;
          return this.noteAcknowledged(count, before);
        } catch (refused) {
          failure = refused;
        }
      pending.forgetKept();
      failure = this.doubted(commit, failure);
      // The log is rolled back: the known end must be one of its lines.
      known.goBack(end);
      throw failure;
    }
  }

  private async pushThrough(commit: RunningCommit, isPatient = true): Promise<void> {
    const { elapsed, patience } = this.options;
    for (let waits = 0, since = elapsed(); this.known.entries < commit.count; ) {
      const reason = await this.advance(commit);
      if (reason === undefined) [waits, since] = [0, elapsed()];
      else if (!isPatient || !(await patience(waits++, since, commit.doubt !== undefined))) {
        const failure = makeAwayFailure(reason);
        throw this.lease.epoch === null ? toUnaskedFailure(failure) : failure;
      }
      if (commit.noteTry(this.known.now)) throw makeTooSlowFailure();
    }
    this.late.begin();
  }

  /** Returns a commit of the first `count` entries; `before` of them were there already. */
  private commitOf(count: number, before = this.known.entries): RunningCommit {
    const { log, options, known } = this;
    return new RunningCommit(before, count, isLong(log, known.entries, count, options));
  }

  private step(commit: RunningCommit, epoch: number, kept: KeptParts | undefined): CommitStep {
    const { log, facts, options } = this;
    const end = this.known.now;
    const from = { log, facts, isIndexed: this.known.indexed >= end.entries, partBytes: options.partBytes };
    return prepareStep(from, end, commit, epoch, kept);
  }

  /** Does the next step of a commit. Returns the reason why the fleet did not answer, or undefined when it did. */
  private async advance(commit: RunningCommit): Promise<string | undefined> {
    const { epoch } = this.lease;
    if (epoch === null) {
      const taking = await this.take(true);
      if (taking.kind === "away") return taking.reason;
      if (taking.kind === "unfit") throw makeUnfitFailure(taking.reason);
      const refusal = await this.findCommitted(taking, commit);
      if (refusal) throw this.refused(refusal, commit.count);
      return undefined;
    }
    const since = this.options.elapsed();
    const { fleet } = this.options;
    const step = commit.prepared(this.known.now, epoch) ?? this.step(commit, epoch, commit.keptAfter(this.known.now));
    const outcome = step.part
      ? await fleet.keepPart(step.part, () => {
          // While the database works on one part, the next is put together.
          const next = commit.prepare(step.kept, () => this.step(commit, epoch, step.kept));
          if (next?.part) fleet.prepare?.(next.part);
        })
      : await fleet.append(step.batch);
    if (outcome.kind === "away") return outcome.reason;
    if (outcome.kind === "unfit") throw makeUnfitFailure(outcome.reason);
    if (outcome.kind === "committed") {
      this.lease.answered = since;
      if (step.part) commit.keep(step.kept);
      else this.committed(step.batch, outcome.durability);
      return undefined;
    }
    this.lease.note("doubts");
    if (outcome.kind === "refused") {
      commit.beginAgain();
      return undefined;
    }
    // A part is invisible.
    if (!step.part) commit.doubt = outcome.reason;
    return outcome.reason;
  }

  private committed({ after, facts }: FleetBatch, durability: "replicated" | "primary"): void {
    this.known.raise(after);
    if (!facts.areBehind) this.known.indexed = after.entries;
    this.known.durability = durability;
    this.facts.committed(after);
  }

  /**
   * Finds out from the fleet's end which of the first `count` entries are there. None of our earlier statements has any
   * effect from now on, whichever process has the lease. Returns why the rest cannot follow, or null.
   */
  private async findCommitted(
    taking: Exclude<LeaseResult, { kind: "away" }>,
    commit: RunningCommit,
  ): Promise<Failure | null> {
    const { count } = commit;
    if (taking.kind !== "taken" && taking.kind !== "held") return toLeaseFailure(taking, this.id);
    const { end: there } = taking;
    const isAll = there.entries > count;
    const here = isAll ? this.known.at(count) : this.known.prefix(there);
    if (here === null || (isAll && (await fetchLinesBetween(this.options.fleet, this.id, here, there)) === null)) {
      commit.doubt = undefined;
      commit.isOvertaken = true;
      // None of it was ever here: it is another session, which got the id first.
      const isAnother = commit.first === 0 && this.known.had === 0;
      if (isAnother) this.lease.release();
      return isAnother ? makeIdTakenFailure(this.id) : makeOvertakenFailure(taking, this.id);
    }
    this.known.raise(here);
    // The lease has the durability of existing lines; it is unknown if another process has the lease.
    this.known.durability = taking.kind === "taken" ? taking.durability : "primary";
    commit.doubt = undefined;
    // Later entries are fetched before the next write.
    if (isAll) this.lease.note("doubts");
    return taking.kind === "held" && here.entries < count ? toLeaseFailure(taking, this.id) : null;
  }

  /**
   * Number of entries that stay if the fleet refuses the rest. A name that waits for the first append of a new session is
   * nowhere but in memory.
   */
  private get firstRefusable(): number {
    const { log, known, hasReplicated } = this;
    return Math.max(known.entries, log.persisted || hasReplicated ? log.durableCount : 0);
  }

  /** Returns the failure of a commit that the fleet refused, after its lines and those after it went to quarantine. */
  private refused(failure: Failure, count: number): Failure {
    const { log, options } = this;
    const first = this.firstRefusable;
    let hasOwn = false;
    // recover_kept leaves positions of the leaf out.
    for (let position = first; position < log.nodes.count; position++) hasOwn ||= !log.nodes.isMarker(position);
    if (first >= count || !hasOwn || failure.name === "already_exists") return toQuarantinedFailure(failure);
    return toQuarantinedFailure(failure, () =>
      options.quarantineEntries(log, readUploadLines(log, first, log.nodes.count)),
    );
  }

  toLostFailure(error: unknown): Failure {
    if (this.pending.isKept) this.commit.doubt ??= "it is away, and this machine keeps the change and uploads it later";
    this.pending.forgetKept();
    const failure = this.doubted(this.commit, toStorageFailure(error, "making the changes durable"));
    this.lease.note("doubts");
    this.known.goBack(NOTHING);
    return requireFailure(failure);
  }

  /** Returns the failure for callers that wait for a commit. */
  private doubted(commit: RunningCommit, error: unknown): unknown {
    const failure = commit.doubted(error, this.known.now);
    this.isBegunInDoubt ||= failure !== error;
    return failure;
  }

  /** Resolves when the facts of all uploaded entries are there, or are left to other processes. */
  factsAdded(): Promise<void> {
    return this.late.finish();
  }

  release(): void {
    this.options.journal.ends.retry();
    this.lease.release();
  }
}
