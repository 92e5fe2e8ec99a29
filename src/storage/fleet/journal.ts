/**
 * The journal of a machine: which sessions have entries that were acknowledged while the fleet's database was away. Such
 * an entry is in the working copy, as all are. The journal says that a host was told of it, so that it gives way to
 * nothing. It is on the medium before the first of them is acknowledged, and goes when the fleet has them.
 */

import { dirname, join } from "node:path";
import { storageFailure } from "../../core/errno.ts";
import { bytesOf, parse } from "../../core/json/json.ts";
import type { FleetConflict, FleetEnd, JournaledSession } from "../../core/ports/fleet.ts";
import { type Disk, readWhole, removeQuietly } from "../fs/disk.ts";
import { ifPresent, replaceFile } from "../fs/files.ts";
import { namesIn } from "../fs/folders.ts";
import { sha256 } from "../v2/frame.ts";
import { NOTHING } from "./ends.ts";

/** Conflicts that are remembered of one session. */
const MOST_CONFLICTS = 10;
const NAME = /^[0-9a-f]{32}\.json$/;

/** The name of its folder in the state folder. */
export const JOURNAL_FOLDER = "fleet-journal";

export class Journal {
  private readonly disk: Disk;
  private readonly folder: string;
  private readonly now: () => string;
  /** Notes of what this process has acknowledged, whatever became of their files: only the fleet can say that it has it. */
  private readonly acknowledged = new Map<string, JournaledSession>();

  /** Whether the name of its folder is on the medium, as far as this process has seen to it. */
  private hasDurableFolder = false;

  /** Sessions that are given to the fleet beside everything else now, each with what ends then. It never rejects. */
  readonly giving = new Map<string, Promise<void>>();

  /** `now` returns the time in ISO 8601. */
  constructor(disk: Disk, folder: string, now: () => string) {
    this.disk = disk;
    this.folder = folder;
    this.now = now;
  }

  private fileOf(sessionId: string): string {
    // Ids are chosen by hosts, and names of files are not as free.
    return join(this.folder, `${sha256(sessionId).slice(0, 32)}.json`);
  }

  /** Returns what is known of a session; null for most. Throws storage_failed where the disk does not say. */
  of(sessionId: string): JournaledSession | null {
    return this.withOwn(this.read(this.fileOf(sessionId), sessionId), sessionId);
  }

  /** Returns what is known of a session, of which a note says something or nothing. */
  private withOwn(noted: JournaledSession | null, sessionId: string): JournaledSession | null {
    const own = this.acknowledged.get(sessionId);
    return noted?.from || !own ? noted : { ...own, ...noted, from: own.from };
  }

  private read(file: string, sessionId: string): JournaledSession | null {
    let bytes: Uint8Array | null;
    try {
      bytes = ifPresent(() => readWhole(this.disk, file));
    } catch (error) {
      throw storageFailure(error, "reading what was acknowledged while the fleet was away");
    }
    if (bytes === null) return null;
    const known = parsedRecord(bytes);
    // A record that cannot be read is of something that was acknowledged; nothing is lost by taking that for all of it.
    return known ?? { sessionId, sessionPath: "", since: this.now(), from: NOTHING, conflicts: [] };
  }

  /** Returns all sessions of which something is known. */
  all(): JournaledSession[] {
    const names = ifPresent(() => namesIn(this.disk, this.folder)) ?? [];
    const noted = names
      .filter((name) => NAME.test(name))
      .flatMap((name) => this.read(join(this.folder, name), "") ?? [])
      .filter(({ sessionId }) => sessionId !== "");
    const all = new Map([...this.acknowledged.values(), ...noted].map((known) => [known.sessionId, known]));
    return [...all.values()].map((known) => this.withOwn(known, known.sessionId) ?? known);
  }

  /** Notes, durably, that entries after `from` are acknowledged here and may not be in the fleet. */
  async begin(sessionId: string, sessionPath: string, from: FleetEnd): Promise<JournaledSession> {
    let known = this.read(this.fileOf(sessionId), sessionId);
    if (!known?.from)
      known = await this.write({ conflicts: [], ...known, sessionId, sessionPath, since: this.now(), from });
    this.acknowledged.set(sessionId, known);
    return known;
  }

  /** Notes, durably, that others wrote meanwhile, and that a branch is made of what was written here. */
  async diverged(known: JournaledSession, conflict: Omit<FleetConflict, "at">): Promise<void> {
    const conflicts = [...known.conflicts, { ...conflict, at: this.now() }].slice(-MOST_CONFLICTS);
    const noted = await this.write({ ...known, conflicts, isUntold: true });
    if (known.from) this.acknowledged.set(known.sessionId, noted);
  }

  /** Notes that the fleet has all of it, and whether somebody was told of the latest conflict. Where that fails, it is found out again. */
  async end({ isUntold, ...known }: JournaledSession, isTold: boolean): Promise<void> {
    this.acknowledged.delete(known.sessionId);
    try {
      if (known.conflicts.length === 0) removeQuietly(this.disk, this.fileOf(known.sessionId));
      else await this.write({ ...known, from: null, ...(isUntold && !isTold ? { isUntold } : {}) });
    } catch {
      // The next process that opens the session compares, and tries again.
    }
  }

  /** Notes that the fleet has what this process has acknowledged, unless a note says that more is owed. */
  paidByOthers(sessionId: string): void {
    if (!this.read(this.fileOf(sessionId), sessionId)?.from) this.acknowledged.delete(sessionId);
  }

  private async write(known: JournaledSession): Promise<JournaledSession> {
    try {
      this.disk.makeFolder(this.folder);
      if (!this.hasDurableFolder) await this.disk.syncFolder(dirname(this.folder));
      this.hasDurableFolder = true;
      await replaceFile(this.disk, this.fileOf(known.sessionId), bytesOf(JSON.stringify(known)), { sync: true });
      await this.disk.syncFolder(this.folder);
      return known;
    } catch (error) {
      throw storageFailure(error, "noting what is acknowledged while the fleet is away");
    }
  }
}

function parsedRecord(bytes: Uint8Array): JournaledSession | null {
  try {
    const known = parse(bytes) as Partial<JournaledSession> | null;
    const isOne = typeof known?.sessionId === "string" && Array.isArray(known.conflicts);
    return isOne ? (known as JournaledSession) : null;
  } catch {
    return null;
  }
}
