/**
 * A working copy while nobody writes to it: what others wrote is taken in, and what the fleet lacks is given to it, beside
 * everything else.
 */

import type { Failure } from "../../core/failure.ts";
import type { FleetEnd, FleetSession } from "../../core/ports/fleet.ts";
import type { Holder } from "../../core/ports/store.ts";
import type { ReplicatedLog } from "../log/replica.ts";
import { isSameEnd } from "./ends.ts";
import { Inquiry } from "./inquiry.ts";
import { COMPARED_FIRST, type KnownEnd } from "./known-end.ts";
import type { Lease } from "./lease.ts";
import type { FleetOptions } from "./options.ts";
import type { PendingUploads } from "./pending-uploads.ts";
import { getLastingRefusal, RefusedLines, uploadOrNote } from "./refusals.ts";

/**
 * Milliseconds after which others are looked for again, at most, where nothing has happened for long: a database has to bear
 * the looks of thousands of idle agents.
 */
const LONGEST_PAUSE = 180_000;

/** How a working copy stands to the fleet, as it was found last. */
export interface ReplicaStatus {
  /** Another process that writes to the session there. */
  holder: Holder | null;
  /** The reason why this process may not write. */
  refusal: Failure | null;
  /** Where the entries are that were committed last. */
  reached: "replicated" | "primary" | undefined;
}

/** A working copy, with what is done to it by who becomes its writer. */
interface CopyParts {
  readonly log: ReplicatedLog;
  readonly options: FleetOptions;
  readonly lease: Lease;
  readonly known: KnownEnd;
  readonly pending: PendingUploads;
  readonly status: ReplicaStatus;
  /** Whether this process goes on without the fleet for now. */
  isAlone(): boolean;
  /** Whether the fleet may have something of the session. */
  isBegun(): boolean;
  /** Whether this process is about to become the writer. */
  isBecoming(): boolean;
  /** `isHost`: somebody is told of what is found. */
  becomeWriter(isHost: boolean): Promise<void>;
  /** Adds what the fleet has up to an end. Returns whether the log is still the session. */
  catchUp(there: FleetEnd): Promise<boolean>;
  /** Gives the fleet all that is here, and gives up at the first answer that is missing. */
  uploadNow(): Promise<void>;
  /** Has what is here count without the fleet. */
  confirmAlone(): Promise<void>;
}

export class IdleSync {
  private readonly copy: CopyParts;
  /** Whether there is something to take in or to give. */
  private readonly news: Inquiry;
  private readonly refused: RefusedLines;
  /** When others had last written something that the copy lacked. */
  private heard: number;

  constructor(copy: CopyParts) {
    this.copy = copy;
    const { followedEvery, elapsed } = copy.options;
    this.heard = elapsed();
    this.refused = new RefusedLines(copy.log, copy.options);
    this.news = new Inquiry(followedEvery, elapsed, () => this.hasNews());
  }

  /** See Outside. */
  followNow(asked?: number): Promise<void> | undefined {
    const { copy, news } = this;
    if (!copy.isBegun()) return undefined;
    const isAlone = copy.isAlone();
    // When the database is back, it may be another one.
    if (isAlone) this.refused.forget();
    if (copy.lease.isOurs || isAlone) return this.uploadAgain();
    if (news.take()) {
      this.heard = copy.options.elapsed();
      return this.follow(true).then(() => this.uploadAgain());
    }
    news.renew(this.pauseAfter(asked));
    return undefined;
  }

  /** Returns the milliseconds between two looks: a tenth of the time for which nothing was written or, if that is known, asked. */
  private pauseAfter(asked = Number.POSITIVE_INFINITY): number {
    const { options, known, pending, lease } = this.copy;
    const quiet = Math.min(asked, options.elapsed() - Math.max(this.heard, lease.answered));
    // What only this machine has is not made to wait.
    const isDue = pending.hasEntries || known.isAhead;
    return isDue ? options.followedEvery : Math.max(options.followedEvery, Math.min(LONGEST_PAUSE, quiet / 10));
  }

  private uploadAgain(): Promise<void> | undefined {
    return this.refused.holds ? undefined : this.upload();
  }

  /** See Outside. */
  upload(): Promise<void> | undefined {
    const { copy, refused } = this;
    const { known, pending, status } = copy;
    const isAlone = copy.isAlone();
    const mayNote = known.mayBePending && !pending.hasEntries;
    if (!known.isAhead || getLastingRefusal(status.refusal) || (isAlone && !mayNote)) return undefined;
    // Calls of the session wait meanwhile.
    const note = async (): Promise<void> => (mayNote ? copy.confirmAlone() : undefined);
    const { of } = refused;
    return uploadOrNote({ upload: () => copy.uploadNow(), note, refused: (error) => refused.note(error, of) });
  }

  /** Returns what the fleet has, and the server that said so. */
  private async look(): Promise<{ there: FleetSession | null; server: string | undefined }> {
    const { fleet } = this.copy.options;
    const there = await fleet.look(this.copy.log.header.id);
    return { there, server: fleet.server };
  }

  private async hasNews(): Promise<boolean> {
    const { lease, pending, known, status } = this.copy;
    const { epoch } = lease;
    const { there, server } = await this.look();
    if (epoch !== null && there?.epoch !== epoch) lease.letGo(epoch);
    const hadPending = pending.hasEntries;
    pending.renew();
    // Another process of this machine may have given the fleet what this one has acknowledged.
    if (hadPending && !pending.hasEntries) status.reached = "primary";
    // Whoever was in the way of a write may have gone.
    if (status.holder && !lease.isSure) status.holder = there?.holder ?? null;
    const { holds } = this.refused;
    // Who has it has to let go of it first.
    if (!holds && !there?.holder && (await known.isLostIn(there, this.copy.options.fleet))) return true;
    if (there !== null && (await this.differsFrom(there, server))) return true;
    const isAhead = known.isAhead && !getLastingRefusal(status.refusal, there);
    return !holds && !there?.holder && (pending.isDue(true) || isAhead) && !known.isLeftTo(there);
  }

  /** Whether the fleet has something else than the copy. Where it has the same, the server that was asked has said so. */
  private async differsFrom({ end }: FleetSession, server: string | undefined, most?: number): Promise<boolean> {
    const { known, lease } = this.copy;
    if (await known.differsFrom(end, most)) return true;
    if (isSameEnd(end, known.now)) lease.server ??= server;
    return false;
  }

  /** Whether all that the copy has is durable, and the same as what the fleet has. */
  isAllIn(there: FleetEnd): boolean {
    const { copy } = this;
    const { log, known } = copy;
    const isResting = log.durableCount === log.nodes.count && !copy.isBecoming();
    return isResting && there.entries === log.durableCount && known.prefix(there) !== null;
  }

  /** See Outside. `most`: bytes of the copy that are compared, at most. */
  async follow(isHost = false, most = isHost ? undefined : COMPARED_FIRST): Promise<void> {
    const { copy } = this;
    const { log, pending, lease, known, status } = copy;
    if (lease.isSure || !copy.isBegun() || log.durableCount < log.nodes.count) return;
    lease.epoch = null;
    const { there, server } = await this.look();
    pending.renew();
    status.refusal = getLastingRefusal(status.refusal, there);
    const isDue = pending.isDue(isHost) && !known.isLeftTo(there);
    const isLost = await known.isLostIn(there, copy.options.fleet);
    const differs = !isDue && there !== null && (await this.differsFrom(there, server, most));
    if (!isDue && !isLost && !differs) return;
    // Somebody may write by now, who finds it out, too.
    if (lease.isSure || log.durableCount < log.nodes.count) return;
    // Whoever begins the session has its lock from then on.
    const isNew = log.acquireLock() || !log.persisted;
    try {
      // Another process of this machine may have acknowledged something until then, or have given it.
      pending.renew();
      // What is lost is given back, unless others have written since.
      if ((pending.isDue(isHost) && !known.isLeftTo(there)) || (isLost && !differs)) await copy.becomeWriter(isHost);
      else if (there && (await copy.catchUp(there.end))) lease.server ??= server;
    } catch (error) {
      // What is not done yet is done the next time, also by who only reads.
      lease.epoch = null;
      this.refused.note(error);
      throw error;
    } finally {
      if (isNew) log.unlock();
    }
  }
}
