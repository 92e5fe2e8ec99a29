/**
 * Uploads of pending entries: by `fleet push` at once, and by a server in the background, for copies that it does not have
 * open for writing. Open copies upload their own.
 */

import { Failure } from "../../../core/failure.ts";
import type { Fleet, JournaledSession } from "../../../core/ports/fleet.ts";
import type { FleetPushed } from "../../../core/ports/fleet-admin.ts";
import type { Log } from "../../../core/ports/store.ts";
import { useAndClose } from "../../../storage/fs/files.ts";
import { getNoteKey, type Journal } from "./journal.ts";
import type { FleetOptions } from "./options.ts";
import { LONGEST_WAIT } from "./refusals.ts";
import { isUnreadableLog } from "./unreadable-copies.ts";

/** Maximum milliseconds between two attempts of an upload that needs a person's action. */
const LONGEST_LEFT = 3_600_000;

/** The sentence if nothing failed, and the note is still there. */
const STILL_PENDING =
  "The upload may be complete, but the note of pending entries is still there: others changed the session meanwhile, or the disk did not remove it. Push again.";

export interface UploadPlace {
  readonly journal: Journal;
  /** Opens a session as a working copy. */
  openCopy(file: string): Log;
  /** Returns the path of a session that is here. Throws session_not_found. */
  find(id: string): string;
  /** Brings a session here, if the fleet has it. */
  arrive?(id: string): Promise<void>;
}

type UploadedSession = Pick<JournaledSession, "sessionId" | "sessionPath" | "unreadable">;

/** Returns the sessions with pending entries for this fleet, and unreadable notes. */
export function listPendingUploads({ journal }: UploadPlace): JournaledSession[] {
  return journal.all().filter(({ from }) => from !== null);
}

/** Asks a fleet for its store, if it answers: at a new address, its pending entries are unknown until then. */
export async function identifyFleet(fleet: Pick<Fleet, "look">): Promise<void> {
  await fleet.look("").catch(() => {});
}

/** Returns the refusals of entries that are pending for other fleets. */
export function listPendingElsewhere({ journal }: UploadPlace): FleetPushed[] {
  return journal.listElsewhere().map(({ sessionId, sessionPath, fleet }) => {
    const message = `It has entries waiting for another fleet (${fleet?.address}), which only this machine has. Run fleet push with that address.`;
    return { sessionId, sessionPath, outcome: "refused", message };
  });
}

/** Uploads the entries of a session that only this machine has: pending ones, and those that the fleet has lost. */
export async function uploadSession(place: UploadPlace, known: UploadedSession): Promise<FleetPushed> {
  const { sessionId, sessionPath, unreadable } = known;
  if (unreadable !== undefined) {
    const message = `This note says which session has entries that only this machine has, and cannot be read (${unreadable}). Open the sessions that were written to while the fleet's database was away: that uploads their entries. Then remove the note.`;
    return { sessionId, sessionPath, outcome: "refused", message };
  }
  try {
    return await uploadCopy(place, known);
  } catch (error) {
    return toRefusedUpload(error, sessionId, sessionPath);
  }
}

/** Returns the refusal that a failure means. Throws any other error. */
export function toRefusedUpload(error: unknown, sessionId: string, sessionPath: string): FleetPushed {
  if (!(error instanceof Failure)) throw error;
  const isHeld = error.name === "session_locked";
  return { sessionId, sessionPath, outcome: "refused", message: error.message, ...(isHeld ? { isHeld } : {}) };
}

/** Uploads the entries of a session. Throws the reason if that is not possible. */
async function uploadCopy(place: UploadPlace, known: UploadedSession): Promise<FleetPushed> {
  const { journal, openCopy } = place;
  const { sessionId } = known;
  const sessionPath = await findCopy(place, known);
  const before = journal.of(sessionId, sessionPath)?.conflicts.length ?? 0;
  await useAndClose(openCopy(sessionPath), async (log) => {
    if (log.readOnly) throw log.readOnly;
    await log.replica?.sync(Number.POSITIVE_INFINITY);
    requireNoRefusal(log);
  });
  await uploadFrom(place, sessionId, sessionPath);
  const now = journal.of(sessionId, sessionPath);
  if (now?.from) return { sessionId, sessionPath, outcome: "refused", message: STILL_PENDING };
  return { sessionId, sessionPath, outcome: (now?.conflicts.length ?? 0) > before ? "branched" : "given" };
}

/** Throws the reason why this process may not write to the session there. */
function requireNoRefusal({ replica }: Log): void {
  const { refusal = null } = replica?.status ?? {};
  if (refusal) throw refusal;
}

/** Uploads the pending entries of the copy at a path. Throws the reason if that is not possible. */
export async function uploadFrom(
  place: Pick<UploadPlace, "journal" | "openCopy">,
  id: string,
  file: string,
): Promise<void> {
  // The first time may put another file in the place of the copy, with a branch.
  for (let times = 0; times < 2 && place.journal.of(id, file)?.from; times++)
    await useAndClose(place.openCopy(file), async (log) => {
      if (log.foreign) return;
      // Such as a damaged header: its own reason has advice.
      if (log.readOnly) throw log.readOnly;
      await log.replica?.sync();
      requireNoRefusal(log);
    });
}

/**
 * Returns the path of a session: the recorded one, or, as after a move, the listed one. Fetches a session without a file.
 */
async function findCopy(
  { find, openCopy, arrive }: UploadPlace,
  { sessionId, sessionPath }: UploadedSession,
): Promise<string> {
  // Another copy may lack the pending entries of this one.
  if (readIdAt(openCopy, sessionPath) === sessionId) return sessionPath;
  for (let isFetched = !arrive; ; isFetched = true) {
    const found = findQuietly(find, sessionId);
    if (found !== undefined && (isFetched || readIdAt(openCopy, found) === sessionId)) return found;
    if (isFetched)
      throw new Failure(
        "session_not_found",
        "Its file is gone, and the database does not have the session. The entries that only this machine has cannot be given without the file: put it back, and run this again.",
        { sessionId, sessionPath },
      );
    await arrive?.(sessionId);
  }
}

/** Returns the path of a session; undefined if there is none. */
function findQuietly(find: UploadPlace["find"], sessionId: string): string | undefined {
  try {
    return find(sessionId);
  } catch (error) {
    if (error instanceof Failure && error.name === "session_not_found") return undefined;
    throw error;
  }
}

/** Returns the id of the session at a path; undefined if it cannot be read as it was. */
function readIdAt(open: (file: string) => Log, file: string): string | undefined {
  try {
    return useAndClose(open(file), (log) => (isUnreadableLog(log) ? undefined : log.header.id));
  } catch (error) {
    if (error instanceof Failure) return undefined;
    throw error;
  }
}

/** Background uploads of a server: one session after the other, refused ones at growing intervals. */
export class BackgroundUploader {
  private readonly place: UploadPlace;
  private readonly options: Pick<FleetOptions, "elapsed" | "followedEvery" | "outage">;
  private isBusy = false;
  /** True if the journal is checked as soon as possible. */
  private isDue = false;
  private asked: number;
  private wait: number;
  /** Copies that were refused, each with when it is tried again, and how long that was waited for. */
  private readonly refused = new Map<string, { readonly at: number; readonly wait: number }>();

  constructor(place: UploadPlace, options: Pick<FleetOptions, "elapsed" | "followedEvery" | "outage">) {
    this.place = place;
    this.options = options;
    this.wait = options.followedEvery;
    // A process with a single question gets its answer first.
    this.asked = options.elapsed();
  }

  /** Begins with the next session, when it is time. `open`: returns the logs that are open here. */
  renew(open: () => readonly Log[]): void {
    const { elapsed, followedEvery, outage } = this.options;
    if (outage?.lasts) {
      this.isDue = true;
      this.wait = followedEvery;
      this.refused.clear();
      return;
    }
    if (this.isBusy || !(this.isDue || elapsed() - this.asked >= this.wait)) return;
    this.isDue = false;
    this.asked = elapsed();
    const next = this.next(open());
    if (!next) {
      this.wait = Math.min(LONGEST_WAIT, 2 * this.wait);
      return;
    }
    this.isBusy = true;
    const { uploading } = this.place.journal;
    const given = this.uploadQuietly(next).finally(() => {
      uploading.delete(next.sessionId);
      this.isBusy = false;
    });
    uploading.set(next.sessionId, given);
  }

  private next(open: readonly Log[]): JournaledSession | undefined {
    const now = this.options.elapsed();
    return listPendingUploads(this.place).find(
      (one) =>
        one.unreadable === undefined &&
        (this.refused.get(getNoteKey(one))?.at ?? now) <= now &&
        !open.some((log) => this.isLeftTo(log, one)),
    );
  }

  /**
   * Returns whether a note is left to an open log: its own copy, which uploads by itself, or another copy of the session
   * that is written to, whose writes would be refused if this process took the lease. A copy that is open for reading only
   * uploads nothing and has no writes, so it does not delay the upload.
   */
  private isLeftTo(log: Log, known: JournaledSession): boolean {
    if (log.header.id !== known.sessionId || log.readOnly !== null || log.file === null) return false;
    return log.lock.isHeld || this.place.journal.isOf(known, log.file);
  }

  private async uploadQuietly(known: JournaledSession): Promise<void> {
    const key = getNoteKey(known);
    const { elapsed, followedEvery } = this.options;
    let isGiven = false;
    let longest = LONGEST_WAIT;
    try {
      isGiven = (await uploadCopy(this.place, known)).outcome !== "refused";
    } catch (error) {
      // Opening the session fails in the same way.
      if (error instanceof Failure && error.name === "read_only") longest = LONGEST_LEFT;
    }
    this.isDue = true;
    if (isGiven) this.refused.delete(key);
    else {
      const wait = Math.min(longest, 2 * (this.refused.get(key)?.wait ?? followedEvery));
      this.refused.set(key, { at: elapsed() + wait, wait });
    }
  }
}
