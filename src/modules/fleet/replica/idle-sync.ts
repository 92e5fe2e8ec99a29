/** Syncs an idle working copy in the background: applies the entries of others, and uploads those that the fleet lacks. */

import type { FleetEnd, FleetSession } from "../../../core/ports/fleet.ts";
import type { ReplicatedLog } from "../../../storage/log/replica.ts";
import { isSameEnd } from "../postgres/ends.ts";
import { COMPARED_FIRST, type KnownEnd } from "./known-end.ts";
import type { Lease } from "./lease.ts";
import type { FleetOptions } from "./options.ts";
import { Inquiry } from "./outage.ts";
import type { PendingUploads } from "./pending-uploads.ts";
import { getLastingRefusal, RefusedLines, uploadOrNote } from "./refusals.ts";

/**
 * Maximum milliseconds between two looks when nothing has happened for long: a database has to bear those of thousands
 * of idle agents.
 */
const LONGEST_PAUSE = 180_000;

/** A working copy, with the operations of its replica. */
interface CopyParts {
  readonly log: ReplicatedLog;
  readonly options: FleetOptions;
  readonly lease: Lease;
  readonly known: KnownEnd;
  readonly pending: PendingUploads;
  /** Returns whether this process works on without the fleet for now. */
  isAlone(): boolean;
  /** Returns whether the fleet may have some of the session. */
  isBegun(): boolean;
  /** Returns whether this process is about to become the writer. */
  isBecoming(): boolean;
  /** `isHost`: a host reads the reports. */
  becomeWriter(isHost: boolean): Promise<void>;
  /** Applies the fleet's entries up to an end. Returns whether the log is still the session. */
  catchUp(there: FleetEnd): Promise<boolean>;
  /** Uploads all local entries, and stops at the first missing answer. */
  uploadNow(): Promise<void>;
  /** Acknowledges the local entries without the fleet. */
  confirmAlone(): Promise<void>;
}

export class IdleSync {
  private readonly copy: CopyParts;
  /** Asks whether there is something to apply or to upload. */
  private readonly news: Inquiry;
  private readonly refused: RefusedLines;
  /** Time of the last look that found entries of others. */
  private heard: number;

  constructor(copy: CopyParts) {
    this.copy = copy;
    const { followedEvery, elapsed } = copy.options;
    this.heard = elapsed();
    this.refused = new RefusedLines(copy.log, copy.options);
    this.news = new Inquiry(followedEvery, elapsed, () => this.hasNews());
  }

  /** See Replica. */
  follow(asked?: number): Promise<void> | undefined {
    const { copy, news } = this;
    if (!copy.isBegun()) return undefined;
    const isAlone = copy.isAlone();
    // When the database is back, it may be another one.
    if (isAlone) this.refused.forget();
    if (copy.lease.isOurs || isAlone) return this.uploadAgain();
    if (news.take()) {
      this.heard = copy.options.elapsed();
      return this.sync(true).then(() => this.uploadAgain());
    }
    news.renew(this.pauseAfter(asked));
    return undefined;
  }

  /** Returns the milliseconds between two looks: a tenth of the time since the last write or, if known, the last request. */
  private pauseAfter(asked = Number.POSITIVE_INFINITY): number {
    const { options, known, pending, lease } = this.copy;
    const quiet = Math.min(asked, options.elapsed() - Math.max(this.heard, lease.answered));
    // Entries that only this machine has do not wait.
    const isDue = pending.hasEntries || known.isAhead;
    return isDue ? options.followedEvery : Math.max(options.followedEvery, Math.min(LONGEST_PAUSE, quiet / 10));
  }

  private uploadAgain(): Promise<void> | undefined {
    return this.refused.holds ? undefined : this.upload();
  }

  /** See Replica. */
  upload(): Promise<void> | undefined {
    const { copy, refused } = this;
    const { known, pending, lease } = copy;
    const isAlone = copy.isAlone();
    const mayNote = known.mayBePending && !pending.hasEntries;
    if (!known.isAhead || getLastingRefusal(lease.refusal) || (isAlone && !mayNote)) return undefined;
    // Calls of the session wait meanwhile.
    const note = async (): Promise<void> => (mayNote ? copy.confirmAlone() : undefined);
    const { of } = refused;
    return uploadOrNote({ upload: () => copy.uploadNow(), note, refused: (error) => refused.note(error, of) });
  }

  /** Returns the fleet's session, and the server that answered. */
  private async look(): Promise<{ there: FleetSession | null; server: string | undefined }> {
    const { fleet } = this.copy.options;
    const there = await fleet.look(this.copy.log.header.id);
    return { there, server: fleet.server };
  }

  private async hasNews(): Promise<boolean> {
    const { lease, pending, known } = this.copy;
    const { epoch } = lease;
    const { there, server } = await this.look();
    if (epoch !== null && there?.epoch !== epoch) lease.letGo(epoch);
    const hadPending = pending.hasEntries;
    pending.renew();
    // Another process of this machine may have uploaded the entries that this one acknowledged.
    if (hadPending && !pending.hasEntries) known.durability = "primary";
    // The process that prevented a write may have exited.
    if (lease.holder && !lease.isSure) lease.noteHolder(there?.holder ?? null);
    const { holds } = this.refused;
    // Its owner has to release it first.
    if (!holds && !there?.holder && (await known.isLostIn(there, this.copy.options.fleet))) return true;
    if (there !== null && (await this.differsFrom(there, server))) return true;
    const isAhead = known.isAhead && !getLastingRefusal(lease.refusal, there);
    return !holds && !there?.holder && (pending.isDue(true) || isAhead) && !known.isLeftTo(there);
  }

  /** Returns whether the fleet differs from the copy. If not, records the server that was asked. */
  private async differsFrom({ end }: FleetSession, server: string | undefined, most?: number): Promise<boolean> {
    const { known, lease } = this.copy;
    if (await known.differsFrom(end, most)) return true;
    if (isSameEnd(end, known.now)) lease.server ??= server;
    return false;
  }

  /** Returns whether all entries of the copy are durable, and the same as those of the fleet. */
  isAllIn(there: FleetEnd): boolean {
    const { copy } = this;
    const { log, known } = copy;
    const isResting = log.durableCount === log.nodes.count && !copy.isBecoming();
    return isResting && there.entries === log.durableCount && known.prefix(there) !== null;
  }

  /** See Replica. `isHost`: a host reads the reports. */
  async sync(isHost = false, most = isHost ? undefined : COMPARED_FIRST): Promise<void> {
    const { copy } = this;
    const { log, pending, lease, known } = copy;
    if (lease.isSure || !copy.isBegun() || log.durableCount < log.nodes.count) return;
    lease.note("doubts");
    const { there, server } = await this.look();
    pending.renew();
    lease.note("looks", there);
    const isDue = pending.isDue(isHost) && !known.isLeftTo(there);
    const isLost = await known.isLostIn(there, copy.options.fleet);
    const differs = !isDue && there !== null && (await this.differsFrom(there, server, most));
    if (!isDue && !isLost && !differs) return;
    // A writer that started meanwhile finds it out, too.
    if (lease.isSure || log.durableCount < log.nodes.count) return;
    // The lock of a new session is held from its creation.
    const isNew = log.acquireLock() || !log.persisted;
    try {
      // Another process of this machine may have acknowledged or uploaded entries until then.
      pending.renew();
      // Lost entries are uploaded again, unless others have written since.
      if ((pending.isDue(isHost) && !known.isLeftTo(there)) || (isLost && !differs)) await copy.becomeWriter(isHost);
      else if (there && (await copy.catchUp(there.end))) lease.server ??= server;
    } catch (error) {
      // The rest is done the next time, also for a reader.
      lease.note("doubts");
      this.refused.note(error);
      throw error;
    } finally {
      if (isNew) log.unlock();
    }
  }
}
