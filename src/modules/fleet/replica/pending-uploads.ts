/**
 * Pending uploads of one working copy: entries that were acknowledged during an outage and may not be in the fleet. They are
 * in the machine's journal; any process of the machine that has the lease may upload them, or add to them.
 */

import { toStorageFailure, toUncertainFailure } from "../../../core/errno.ts";
import { makeEntryDamage } from "../../../core/format/damage.ts";
import { parse } from "../../../core/json/json.ts";
import type { FleetEnd, JournaledSession } from "../../../core/ports/fleet.ts";
import type { ReplicatedLog } from "../../../storage/log/replica.ts";
import { readUploadLines } from "./batch.ts";
import { type Journal, mergeLines } from "./journal.ts";
import { isContentChanged } from "./reconcile.ts";
import { makeElsewhereFailure } from "./refusals.ts";

/** Why entries of a machine became a branch. */
const CAUSES = {
  away: "While the fleet's database was away, another machine wrote to this session, too.",
  lost: "The fleet's database lost entries that were acknowledged here, because an older state of it was restored or a standby promoted, and another machine wrote to this session since.",
  unsent:
    "Another program, or a process that ended before the fleet had its entries, wrote to the session's file here, and another machine wrote to this session, too.",
} as const;

export class PendingUploads {
  private readonly log: ReplicatedLog;
  private readonly journal: Journal;
  /** The journal's note as last read; undefined before that. */
  private known: JournaledSession | null | undefined;
  /** A note of entries that are pending for another fleet. */
  private elsewhere: JournaledSession | undefined;
  /** Number of entries up to which this process stored the pending ones in the journal. */
  private kept: number | undefined;
  /** Time of the last reported conflict. */
  private reportedAt: string | undefined;

  constructor(log: ReplicatedLog, journal: Journal) {
    this.log = log;
    this.journal = journal;
  }

  private get file(): string {
    return this.log.file ?? "";
  }

  /** Reads the journal again: other processes may have changed it. Throws storage_failed. */
  renew(): void {
    const { id } = this.log.header;
    this.known = this.journal.of(id, this.file);
    this.elsewhere = this.journal.findPendingElsewhere(id, this.file);
  }

  /** Throws storage_failed if entries of the copy are pending for another fleet: they would be mixed with this one's. */
  requireOurs(): void {
    if (this.elsewhere) throw makeElsewhereFailure(this.elsewhere, this.log.header.id);
  }

  /** The last read note; null if the journal cannot be read. */
  get journaled(): JournaledSession | null {
    try {
      if (this.known === undefined) this.renew();
    } catch {
      // A write reads it again.
    }
    return this.known ?? null;
  }

  /** The header of a session that the fleet never had, as it was when its first entry was acknowledged. */
  get headerLine(): Uint8Array | undefined {
    const { headerLine } = this.journaled ?? {};
    return headerLine === undefined ? undefined : Buffer.from(headerLine, "base64");
  }

  /** True if the fleet may lack acknowledged entries. */
  get hasEntries(): boolean {
    return this.journaled?.from != null;
  }

  /**
   * Returns whether there is something to upload or, with a host (`isHost`), to report. A read-only copy, such as one with a
   * damaged header, uploads nothing: it takes no lease.
   */
  isDue(isHost: boolean): boolean {
    const isReportedLater = this.isUnreported || (this.journaled?.lost !== undefined && !this.hasEntries);
    return (this.hasEntries && this.log.readOnly === null) || (isHost && isReportedLater);
  }

  /** True if a conflict was not reported yet. */
  get isUnreported(): boolean {
    return this.journaled?.isUntold === true && !this.wasReported;
  }

  private get wasReported(): boolean {
    return this.reportedAt !== undefined && this.journaled?.conflicts.at(-1)?.at === this.reportedAt;
  }

  /**
   * Stores the entries from `first` up to `count` until they are uploaded; the fleet surely has all up to `end`. Throws
   * storage_failed if they are not stored, and outcome_unknown if they may be all the same.
   */
  async begin(end: FleetEnd, first: number, count: number): Promise<void> {
    const { log, file, journal, kept } = this;
    const { id } = log.header;
    let undo = async (): Promise<void> => {};
    try {
      this.renew();
      const size = this.hasEntries ? journal.linesSize(id, file) : null;
      if (kept !== undefined && kept <= count && size !== null) {
        undo = () => journal.cutLines(id, file, size);
        await journal.addLines(id, file, readUploadLines(log, kept, count));
      } else {
        // Another process of the machine may have kept some, and the copy may lack them.
        const before = this.hasEntries ? journal.lines(id, file) : [];
        await journal.setLines(id, file, mergeLines(before, readUploadLines(log, Math.min(first, count), count)));
        undo = () => journal.setLines(id, file, before);
      }
      const headerLine = end.entries === 0 ? Buffer.from(log.headerLine).toString("base64") : undefined;
      this.known = await journal.begin(id, file, end, { headerLine });
      this.kept = count;
    } catch (error) {
      this.kept = undefined;
      try {
        await undo();
      } catch {
        throw toUncertainFailure(error);
      }
      throw toStorageFailure(error, "keeping what is acknowledged while the fleet is away");
    }
  }

  /** True if this process stored pending entries. */
  get isKept(): boolean {
    return this.kept !== undefined;
  }

  /**
   * Forgets which entries are stored, because the copy has lost some: they are compared with the copy before others are
   * stored.
   */
  forgetKept(): void {
    this.kept = undefined;
  }

  /** Returns the pending entries if the copy lacks some, as after damage to its file; else an empty list. */
  missingLines(): Uint8Array[] {
    const { log, file } = this;
    const { nodes } = log;
    const lines = this.hasEntries ? this.journal.lines(log.header.id, file) : [];
    return lines.some((line) => {
      const position = nodes.position(String((parse(line) as { id?: unknown }).id));
      return position < 0 || isContentChanged(log.read(position), line);
    })
      ? lines
      : [];
  }

  /** Records that the fleet has lost the entries after an end. */
  async beginAfterLoss(end: FleetEnd, lost: NonNullable<JournaledSession["lost"]>): Promise<void> {
    this.known = await this.journal.begin(this.log.header.id, this.file, end, { lost });
  }

  /** Reports, once, entries that the database had lost and has again. */
  async reportReturn(): Promise<void> {
    const { lost, ...known } = this.journaled ?? {};
    if (!lost || this.hasEntries) return;
    const { entries, lastEntryId, at } = lost;
    const sentence = `The fleet's database lacked the last ${entries} entries that were acknowledged here, until ${at}: an older state of it was restored, or a standby promoted. Nothing is lost: this machine gave them back.`;
    this.log.addDamage(makeEntryDamage(lastEntryId, "restored_entries", sentence));
    await this.journal.end(known as JournaledSession, this.wasReported);
    this.renew();
  }

  /** Records that the fleet has all of them. */
  async end(): Promise<void> {
    // A read-only log, as of an import, decides nothing about the pending entries of others.
    if (this.log.readOnly) return;
    try {
      this.renew();
      if (this.known?.from) await this.journal.end(this.known, this.wasReported);
      this.kept = undefined;
      this.renew();
    } catch {
      // The next process finds it out again.
    }
  }

  /** Reports once a branch that was made of pending entries. This process has the lease. */
  async reportConflict(): Promise<void> {
    const { journaled } = this;
    const conflict = journaled?.conflicts.at(-1);
    if (!journaled || !conflict || !this.isUnreported) return;
    this.reportedAt = conflict.at;
    const { entries, lastEntryId, renamed, names = [], reason = "away" } = conflict;
    const others = renamed === 0 ? "" : ` Of those, ${renamed} got another id, because others had given theirs.`;
    const isRepeated = names.length > renamed;
    const repeats = isRepeated ? " Others are there under another id, because they were repeated elsewhere." : "";
    const sentence = `${CAUSES[reason]} The ${entries} entries of this machine are a branch of the session, which ends with this entry.${others}${repeats}`;
    const damage = makeEntryDamage(lastEntryId, "diverged", sentence);
    this.log.addDamage(names.length === 0 ? damage : { ...damage, renamed: names });
    // If this process is killed before all is in the fleet, the next one reports it again.
    if (this.hasEntries) return;
    await this.journal.end(journaled, true);
    this.renew();
  }
}
