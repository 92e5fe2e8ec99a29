/**
 * The journal of a machine: the sessions with entries that were acknowledged during an outage of the fleet's database, and
 * these entries. They are on the medium before they are acknowledged, apart from the session's file, which may be damaged or
 * removed, and are removed when the fleet has them. Each note names the fleet and the file: a machine may use several
 * fleets, or several tenants of one, and have several copies of a session, each with entries that the others lack.
 */

import { dirname, join } from "node:path";
import { toStorageFailure } from "../../../core/errno.ts";
import { concat, parse, splitLines, toBytes } from "../../../core/json/json.ts";
import type { FleetConflict, FleetEnd, JournaledSession, NotedFleet } from "../../../core/ports/fleet.ts";
import { closeQuietly, type Disk, readWhole, removeQuietly, writeAll } from "../../../storage/fs/disk.ts";
import { getInfo, guardErrno, putInPlace, readIfPresent } from "../../../storage/fs/files.ts";
import { listNames } from "../../../storage/fs/folders.ts";
import { readHeader } from "../../../storage/fs/header.ts";
import { isOneFile } from "../../../storage/fs/stamps.ts";
import { LF } from "../../../storage/log/lines.ts";
import { isEntry } from "../../../storage/quarantined-entries.ts";
import { sha256 } from "../../../storage/v2/frame.ts";
import { NOTHING } from "../postgres/ends.ts";
import { isSameFleet } from "../postgres/identity.ts";
import { AcknowledgedEnds } from "./acknowledged-ends.ts";

/** Conflicts that are remembered of one session. */
const MOST_CONFLICTS = 10;
/** Digits of a name for the session, for the fleet, and for the file; notes of older programs have fewer. */
const OF_SESSION = 32;
const OF_FLEET = 16;
const OF_FILE = 16;
const NAME = new RegExp(`^[0-9a-f]{${OF_SESSION}}(?:-[0-9a-f]{${OF_FLEET}})?(?:\\.[0-9a-f]{${OF_FILE}})?\\.json$`);

/** A file name that identifies the file of the note. */
const NAMES_FILE = /\..*\./;

/** The name of its folder in the state folder. */
export const JOURNAL_FOLDER = "fleet-journal";
/** Folder of the acknowledged ends, next to it. */
const ENDS_FOLDER = "fleet-ends";

/** Returns the other tenant that alone has acknowledged a copy here; undefined for any other copy. */
export type TenantFinder = (copy: { readonly id: string; readonly path: string }) => string | undefined;

/** A note, and the name of its file. */
interface NamedNote {
  readonly name: string;
  readonly note: JournaledSession;
}

export class Journal {
  private readonly disk: Disk;
  private readonly folder: string;
  private readonly now: () => string;
  /** True if this process has synced the folder's name to the medium. */
  private hasDurableFolder = false;

  /** The ends that hosts of this machine got an acknowledgement for. */
  readonly ends: AcknowledgedEnds;

  /** Background uploads by session id. The promises never reject. */
  readonly uploading = new Map<string, Promise<void>>();

  /** The fleet of this process; without it, every note counts as its own. */
  private readonly own: NotedFleet | undefined;

  /** `now` returns the time in ISO 8601. `complain`: see AcknowledgedEnds. */
  constructor(disk: Disk, folder: string, now: () => string, own?: NotedFleet, complain?: (sentence: string) => void) {
    this.disk = disk;
    this.folder = folder;
    this.now = now;
    this.own = own;
    this.ends = new AcknowledgedEnds(disk, join(dirname(folder), ENDS_FOLDER), now, own, complain);
  }

  // --- names -----------------------------------------------------------------------------------------------------

  /** Returns the beginning of the names of this fleet's notes of a session. */
  private beginningOf(sessionId: string): string {
    const fleet = this.own ? `-${sha256(this.own.address).slice(0, OF_FLEET)}` : "";
    return `${getStem(sessionId)}${fleet}`;
  }

  /** Returns the name of a copy's note as this process writes it. */
  private nameOf(sessionId: string, file: string): string {
    return `${this.beginningOf(sessionId)}.${sha256(file).slice(0, OF_FILE)}.json`;
  }

  /** Throws an errno error if the disk cannot be read. */
  private names(): string[] {
    return listNames(this.disk, this.folder).filter((name) => NAME.test(name));
  }

  // --- reading ---------------------------------------------------------------------------------------------------

  /** Returns the note of the copy at a path; null for most. Throws storage_failed if the disk cannot be read. */
  of(sessionId: string, file: string): JournaledSession | null {
    const known = this.noted(sessionId, file);
    return known && { ...known, sessionPath: file };
  }

  private noted(sessionId: string, file: string): JournaledSession | null {
    return mergeNotes(this.ownNotes(sessionId, file).map(({ note }) => note));
  }

  /** Returns this fleet's notes of a copy: several if older ones have another name, or name no file. */
  private ownNotes(sessionId: string, file: string): NamedNote[] {
    const written = this.nameOf(sessionId, file);
    return this.notesOf(sessionId).flatMap(({ name, note, isOwn }) => {
      if (!isOwn) return [];
      const { unreadable, ...known } = note;
      if (unreadable === undefined) return this.isOf(note, file) ? [{ name, note }] : [];
      // It is about acknowledged entries; treating it as about all of them loses nothing.
      return name === written || !NAMES_FILE.test(name)
        ? [{ name, note: { ...known, sessionId, sessionPath: file } }]
        : [];
    });
  }

  /**
   * Returns whether a note is of the copy at a path. If its file is gone, or another session by now, as after a move,
   * the note is of any copy; else of its own file alone, because other copies may lack its pending entries.
   */
  isOf({ sessionId, sessionPath }: Pick<JournaledSession, "sessionId" | "sessionPath">, file: string): boolean {
    if (sessionPath === file || sessionPath === "") return true;
    try {
      if (
        !readIfPresent(() => this.disk.info(sessionPath)) ||
        readIfPresent(() => isOneFile(this.disk, sessionPath, file))
      )
        return true;
    } catch {
      return false;
    }
    const { id = sessionId } = readHeader(this.disk, sessionPath) ?? {};
    return id !== sessionId;
  }

  /**
   * Returns a function that names the other tenant of this store that alone has acknowledged a copy here; undefined for any
   * other copy. `sessionId`: it is asked about copies of this session only. Throws storage_failed.
   */
  makeTenantFinder(sessionId?: string): TenantFinder {
    const others = guardErrno("reading the tenants of sessions", () => this.ends.ofOtherTenants(sessionId));
    const ids = new Set(others.map((one) => one.sessionId));
    return ({ id, path }) => {
      const other = ids.has(id) ? others.find((one) => one.sessionId === id && this.isOf(one, path)) : undefined;
      const own = other && this.ends.of(id);
      return own && this.isOf(own, path) ? undefined : other?.fleet?.tenant;
    };
  }

  /** Returns the paths of the copies of a session with pending entries for this fleet: the given one, and others. */
  listPendingFiles(sessionId: string, file: string): string[] {
    const others = this.all().filter(
      (one) => one.sessionId === sessionId && one.from !== null && !this.isOf(one, file),
    );
    return [...(this.of(sessionId, file)?.from ? [file] : []), ...others.map(({ sessionPath }) => sessionPath)];
  }

  /**
   * Returns a note of entries pending for another fleet: of the copy at a path or, without one, also an unreadable note that
   * may be such. Throws storage_failed.
   */
  findPendingElsewhere(sessionId: string, file?: string): JournaledSession | undefined {
    const isMeant = (note: JournaledSession): boolean => file === undefined || this.isOf(note, file);
    return this.notesOf(sessionId).find(({ note, isOwn }) => !isOwn && note.from !== null && isMeant(note))?.note;
  }

  /** Returns the notes of a session, of any fleet. Throws storage_failed if the disk cannot be read. */
  private notesOf(sessionId: string): (NamedNote & { readonly isOwn: boolean })[] {
    const stem = getStem(sessionId);
    const own = this.beginningOf(sessionId);
    try {
      return this.names()
        .filter((name) => name.startsWith(stem))
        .flatMap((name) => {
          // The fleet of an unreadable note follows only from its name.
          const isNamedSo = name.startsWith(`${own}.`) || name === `${stem}.json`;
          const note = this.read(name, isNamedSo);
          return note ? [{ name, note, isOwn: note.unreadable === undefined ? this.isOwn(note) : isNamedSo }] : [];
        });
    } catch (error) {
      throw toStorageFailure(error, "reading what was acknowledged while the fleet was away");
    }
  }

  private isOwn({ fleet }: JournaledSession): boolean {
    return fleet === undefined || !this.own || isSameFleet(this.own, fleet);
  }

  /**
   * Reads a note; null if it is gone. A malformed one, and, unless it `throws`, one that the disk refuses, is unreadable.
   */
  private read(name: string, throws = false): JournaledSession | null {
    const file = join(this.folder, name);
    try {
      const bytes = readIfPresent(() => readWhole(this.disk, file));
      return bytes && (parseNote(bytes) ?? this.unreadable(file, "it is damaged"));
    } catch (error) {
      if (throws) throw error;
      return this.unreadable(file, (error as Error).message);
    }
  }

  private unreadable(file: string, reason: string): JournaledSession {
    return { sessionId: "", sessionPath: file, since: this.now(), from: NOTHING, conflicts: [], unreadable: reason };
  }

  /** Returns all notes, of any fleet, and unreadable ones as such. */
  private notes(): JournaledSession[] {
    try {
      return this.names().flatMap((name) => this.read(name) ?? []);
    } catch (error) {
      return [this.unreadable(this.folder, (error as Error).message)];
    }
  }

  /** Returns the notes of this fleet, merged by copy, and unreadable notes as such. */
  all(): JournaledSession[] {
    const notes = this.notes();
    const own = notes.filter((note) => note.unreadable === undefined && this.isOwn(note));
    const all = Array.from(new Set(own.map(getNoteKey)), (key) =>
      mergeNotes(own.filter((note) => getNoteKey(note) === key)),
    );
    return [...all.filter((one) => one !== null), ...notes.filter(({ unreadable }) => unreadable !== undefined)];
  }

  /** Returns the notes of entries pending for other fleets. */
  listElsewhere(): JournaledSession[] {
    return this.notes().filter((note) => note.unreadable === undefined && note.from !== null && !this.isOwn(note));
  }

  // --- writing ---------------------------------------------------------------------------------------------------

  /**
   * Records durably that entries after `from` are acknowledged here and may not be in the fleet, or that it has `lost` them.
   * With a header the session can be created again if its file is lost and the fleet never had it.
   */
  async begin(
    sessionId: string,
    sessionPath: string,
    from: FleetEnd,
    { lost, headerLine }: Pick<JournaledSession, "lost" | "headerLine"> = {},
  ): Promise<JournaledSession> {
    let known = this.noted(sessionId, sessionPath);
    if (!known?.from && lost) this.dropOrphans(sessionId, sessionPath);
    // A note follows its file.
    if (!known?.from || known.sessionPath !== sessionPath || lost) {
      const now = { since: this.now(), from };
      const { since, from: pending } = known?.from ? known : now;
      const header = headerLine === undefined ? {} : { headerLine };
      const next = { conflicts: [], ...known, ...header, sessionId, sessionPath, since, from: pending };
      known = await this.write(lost ? { ...next, lost } : next);
    }
    return known;
  }

  /** Removes lines that a killed process left of an earlier note, before a note begins that has no lines. */
  private dropOrphans(sessionId: string, sessionPath: string): void {
    removeQuietly(this.disk, this.linesFile(sessionId, sessionPath));
  }

  /** Returns an unwritten note that entries after `from` are in a file alone. */
  noteOf(sessionId: string, sessionPath: string, from: FleetEnd): JournaledSession {
    const { conflicts = [], isUntold } = this.noted(sessionId, sessionPath) ?? {};
    return { sessionId, sessionPath, since: this.now(), from, conflicts, ...(isUntold ? { isUntold } : {}) };
  }

  /** Records durably a conflict: the entries of this machine become a branch. */
  async diverged({ lost, ...known }: JournaledSession, conflict: Omit<FleetConflict, "at">): Promise<void> {
    if (!this.noted(known.sessionId, known.sessionPath)?.from) this.dropOrphans(known.sessionId, known.sessionPath);
    const conflicts = [...known.conflicts, { ...conflict, at: this.now() }].slice(-MOST_CONFLICTS);
    await this.write({ ...known, conflicts, isUntold: true });
  }

  /** Records that the fleet has all entries, and whether the last conflict was reported. A failure is found out again. */
  async end({ isUntold, ...known }: JournaledSession, wasReported: boolean): Promise<void> {
    try {
      if (known.conflicts.length === 0 && !known.lost) this.removeNotes(known);
      else {
        removeQuietly(this.disk, this.linesFile(known.sessionId, known.sessionPath));
        await this.write({ ...known, from: null, ...(isUntold && !wasReported ? { isUntold } : {}) });
      }
    } catch {
      // The next process that opens the session compares, and tries again.
    }
  }

  private removeNotes({ sessionId, sessionPath }: JournaledSession, but?: string): void {
    for (const { name } of this.ownNotes(sessionId, sessionPath))
      if (name !== but) for (const one of [getLinesName(name), name]) removeQuietly(this.disk, join(this.folder, one));
  }

  // --- entries ---------------------------------------------------------------------------------------------------

  /** Returns the pending lines of a copy that are kept apart from it. Throws storage_failed. */
  lines(sessionId: string, sessionPath: string): Uint8Array[] {
    const names = this.ownNotes(sessionId, sessionPath).map(({ name }) => name);
    return guardErrno("reading what was acknowledged while the fleet was away", () =>
      names.flatMap((name) => this.linesAt(name)),
    );
  }

  private linesAt(name: string): Uint8Array[] {
    const bytes = readIfPresent(() => readWhole(this.disk, join(this.folder, getLinesName(name))));
    // An incomplete last line was not written as a whole.
    return bytes ? [...splitLines(bytes.subarray(0, bytes.lastIndexOf(0x0a) + 1))].filter(isEntry) : [];
  }

  private linesFile(sessionId: string, sessionPath: string): string {
    return join(this.folder, getLinesName(this.nameOf(sessionId, sessionPath)));
  }

  /** Replaces the pending lines of a copy, durably. */
  async setLines(sessionId: string, sessionPath: string, lines: readonly Uint8Array[]): Promise<void> {
    const file = this.linesFile(sessionId, sessionPath);
    await this.prepareFolder();
    await putInPlace(this.disk, file, concat(lines.flatMap((line) => [line, LF])), { replace: true, sync: true });
    await this.disk.syncFolder(this.folder);
  }

  /** Stores a note, and adds these lines to the pending ones of its copy, durably. */
  async keep(note: JournaledSession, lines: readonly Uint8Array[]): Promise<void> {
    const { sessionId, sessionPath } = note;
    try {
      const before = this.lines(sessionId, sessionPath);
      await this.setLines(sessionId, sessionPath, mergeLines(before, lines));
    } catch (error) {
      throw toStorageFailure(error, "keeping what the fleet lacks");
    }
    await this.write(note);
  }

  /** Appends pending lines of a copy durably. After a failure, some may be there. */
  async addLines(sessionId: string, sessionPath: string, lines: readonly Uint8Array[]): Promise<void> {
    const { disk } = this;
    const fd = disk.openAppend(this.linesFile(sessionId, sessionPath));
    try {
      writeAll(disk, fd, concat(lines.flatMap((line) => [line, LF])));
      await disk.sync(fd);
    } finally {
      closeQuietly(disk, fd);
    }
  }

  /** Cuts the pending lines durably to so many bytes. */
  async cutLines(sessionId: string, sessionPath: string, bytes: number): Promise<void> {
    const { disk } = this;
    const fd = disk.openAppend(this.linesFile(sessionId, sessionPath));
    try {
      disk.truncate(fd, bytes);
      await disk.sync(fd);
    } finally {
      closeQuietly(disk, fd);
    }
  }

  /** Returns the size of the pending lines in bytes; null if another process has ended the note. */
  linesSize(sessionId: string, sessionPath: string): number | null {
    return getInfo(this.disk, this.linesFile(sessionId, sessionPath))?.size ?? null;
  }

  private async prepareFolder(): Promise<void> {
    this.disk.makeFolder(this.folder);
    if (!this.hasDurableFolder) await this.disk.syncFolder(dirname(this.folder));
    this.hasDurableFolder = true;
  }

  /** Copies the lines of a copy's other notes, as after a move, into those of the note with a name. */
  private async bringLines({ sessionId, sessionPath }: JournaledSession, to: string): Promise<void> {
    const others = this.ownNotes(sessionId, sessionPath).filter(({ name }) => name !== to);
    const lines = others.flatMap(({ name }) => this.linesAt(name));
    if (lines.length === 0) return;
    const content = concat([...lines, ...this.linesAt(to)].flatMap((line) => [line, LF]));
    await putInPlace(this.disk, join(this.folder, getLinesName(to)), content, { replace: true, sync: true });
  }

  private async write(given: JournaledSession): Promise<JournaledSession> {
    const { own } = this;
    const known = own ? { ...given, fleet: { ...own, store: own.store ?? given.fleet?.store } } : given;
    const name = this.nameOf(known.sessionId, known.sessionPath);
    try {
      await this.prepareFolder();
      await this.bringLines(known, name);
      await putInPlace(this.disk, join(this.folder, name), toBytes(JSON.stringify(known)), {
        replace: true,
        sync: true,
      });
      // The new note has their content.
      this.removeNotes(known, name);
      await this.disk.syncFolder(this.folder);
      return known;
    } catch (error) {
      throw toStorageFailure(error, "noting what is acknowledged while the fleet is away");
    }
  }
}

/** Returns lines, followed by others that are not among them. */
export function mergeLines(lines: readonly Uint8Array[], others: readonly Uint8Array[]): Uint8Array[] {
  const known = new Set(lines.map((line) => sha256(line)));
  return [...lines, ...others.filter((line) => !known.has(sha256(line)))];
}

/** Returns the name of the lines' file of a note. */
function getLinesName(note: string): string {
  return note.replace(/json$/, "lines");
}

function getStem(sessionId: string): string {
  // Ids are chosen by hosts, and names of files are not as free.
  return sha256(sessionId).slice(0, OF_SESSION);
}

/** Returns the key of a copy of a session. */
export function getNoteKey({ sessionId, sessionPath }: JournaledSession): string {
  return `${sessionId}\n${sessionPath}`;
}

/** Merges several notes of one copy. */
function mergeNotes(notes: readonly JournaledSession[]): JournaledSession | null {
  if (notes.length < 2) return notes[0] ?? null;
  // A process that was killed before it removed the others wrote the same content.
  const conflicts = new Map(
    notes.flatMap((note) => note.conflicts.map((one) => [`${one.at} ${one.lastEntryId}`, one])),
  );
  const pending = notes.find(({ from }) => from !== null) ?? notes[0];
  const isUntold = notes.some((note) => note.isUntold === true);
  return { ...pending, conflicts: [...conflicts.values()], ...(isUntold ? { isUntold } : {}) };
}

function parseNote(bytes: Uint8Array): JournaledSession | null {
  try {
    const known = parse(bytes) as Partial<JournaledSession> | null;
    if (!known?.sessionId || typeof known.sessionId !== "string" || !Array.isArray(known.conflicts)) return null;
    const isOne =
      (known.fleet === undefined || typeof known.fleet?.address === "string") &&
      known.conflicts.every((one: Partial<FleetConflict> | null) => typeof one?.lastEntryId === "string");
    return isOne ? (known as JournaledSession) : null;
  } catch {
    return null;
  }
}
