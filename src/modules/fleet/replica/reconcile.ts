/**
 * Resolves a conflict between a copy and the fleet. The fleet's lines replace those of the copy after the last common line,
 * and entries that only the copy has continue the session as a branch. Only edited lines of entries that the fleet has go to
 * quarantine.
 */

import { describeUnchanged, Failure } from "../../../core/failure.ts";
import { areSameBytes, parse, trimLine } from "../../../core/json/json.ts";
import type { Fleet, FleetConflict, FleetEnd, JournaledSession } from "../../../core/ports/fleet.ts";
import type { Log } from "../../../core/ports/store.ts";
import { type BranchBase, findRepeats, makeBranch, makeLeafMarker } from "../../../core/session/added-branch.ts";
import { KEY_WINDOW } from "../../../core/session/entries.ts";
import type { ReplicatedLog } from "../../../storage/log/replica.ts";
import { isPlaceholder } from "../../../storage/quarantined-entries.ts";
import { sha256 } from "../../../storage/v2/frame.ts";
import { computeEnd, extendEnd, HELD_BYTES, isSameEnd, NOTHING } from "../postgres/ends.ts";
import { makeFileChangedFailure, makeIncompleteFailure } from "../postgres/failures.ts";
import { type AcknowledgedEnd, identifyLast } from "./acknowledged-ends.ts";
import { fetchNamed } from "./attachments.ts";
import { readUploadLines } from "./batch.ts";
import type { Journal } from "./journal.ts";
import { requireCount } from "./remote-entries.ts";

/** Maximum renamed entries that are listed for one conflict. */
const MOST_NAMED = 100;
/** Lines at the end that are compared first. */
const FIRST_BACK = 64;

/** A copy that differs from the fleet's session. */
interface DivergedCopy {
  readonly log: ReplicatedLog;
  readonly options: {
    readonly fleet: Fleet;
    readonly journal: Journal;
    /** Quarantines lines. Returns their path. */
    readonly quarantineEntries: (log: Log, lines: readonly Uint8Array[]) => string;
    /** See FleetOptions. */
    readonly heldBytes?: number;
  };
  readonly journaled: JournaledSession | null | undefined;
  readonly acknowledged: AcknowledgedEnd | undefined;
}

/** Returns the number of entries that hosts of this machine got an acknowledgement for and that are not before an end. */
export function countLostEntries(log: Log, acknowledged: AcknowledgedEnd | undefined, { entries }: FleetEnd): number {
  const { end } = acknowledged ?? {};
  if (!end || end.entries <= entries || end.entries > log.nodes.count) return 0;
  // In an edited file the entries cannot be identified.
  return isSameEnd(computeEnd(log, end.entries, NOTHING), end) ? end.entries - entries : 0;
}

/**
 * Resolves a conflict in favour of the fleet. A copy without a file stays as it is. So does one without a common line, which
 * is another session's, unless a host got an acknowledgement for its lines: then both have only the id in common. Returns
 * whether the copy is only a beginning now, because the rest is too long to be held. Throws read_only.
 */
export async function resolveConflict(copy: DivergedCopy, there: FleetEnd): Promise<boolean> {
  const { log, options, journaled, acknowledged } = copy;
  const { count } = log.nodes;
  const pendingNote = journaled?.from ? journaled : undefined;
  const isAnother = !pendingNote && countLostEntries(log, acknowledged, NOTHING) === 0;
  for (let back = FIRST_BACK; log.persisted; back *= 8) {
    const from = Math.max(0, Math.min(count, there.entries) - back);
    const parted = await findDivergence(copy, from, there, isAnother);
    if (parted === "changed") {
      // Another server was promoted, or a page is damaged.
      const now = await options.fleet.look(log.header.id);
      throw now && isSameEnd(now.end, there) ? makeIncompleteFailure(log.header.id) : makeFileChangedFailure(log.file);
    }
    if (parted) {
      const { common } = parted;
      const end = computeEnd(log, common, NOTHING);
      const isLost = countLostEntries(log, acknowledged, end) > 0;
      const cause = pendingNote
        ? pendingNote.lost && "lost"
        : acknowledged?.durability === "local"
          ? undefined
          : "lost";
      const reason = pendingNote || isLost ? cause : "unsent";
      const note = pendingNote ?? options.journal.noteOf(log.header.id, log.file ?? "", end);
      if (parted.theirs === "long") {
        // The rest is applied in pieces, and finally the journal's entries.
        const own = readUploadLines(log, common, count).filter((line) => !isPlaceholder(line));
        if (reason !== "unsent") await options.journal.keep(note, own);
        requireCount(log, count);
        replaceWithRemote(copy, reason === "unsent" ? own : [], common, []);
        return true;
      }
      const fetching = fetchNamed(options.fleet, log, parted.theirs);
      if (fetching) await fetching;
      requireCount(log, count);
      await branchOff(copy, note, reason, common, parted.theirs, there);
      return false;
    }
    if (from === 0) break;
  }
  throw makeRefusal(log);
}

/** The number of common lines of copy and fleet, and the fleet's lines after these. */
interface Divergence {
  readonly common: number;
  /** "long": too much to hold. */
  readonly theirs: readonly Uint8Array[] | "long";
}

/**
 * Returns the divergence after a position; null if there is no common line there, and "changed" if the fleet's lines do not
 * lead to its end. `isAnother`: a copy without any common line is another session's.
 */
async function findDivergence(
  { log, options }: DivergedCopy,
  from: number,
  there: FleetEnd,
  isAnother: boolean,
): Promise<Divergence | "changed" | null> {
  const { nodes, header } = log;
  const { fleet, heldBytes = HELD_BYTES } = options;
  let common = from;
  let end = computeEnd(log, from, NOTHING);
  let bytes = 0;
  const held: Uint8Array[] = [];
  // A copy whose first lines were edited or damaged has later ones of the session.
  let isOther = isAnother;
  for await (const lines of fleet.lines(header.id, from, there.entries)) {
    end = extendEnd(end, lines);
    for (const line of lines) {
      const isCommon = bytes === 0 && common < nodes.count && areSameBytes(trimLine(line), trimLine(log.read(common)));
      if (isCommon) common++;
      else if (common === from && from > 0) return null;
      else {
        isOther &&= common === from && !hasLine(log, line);
        bytes += line.length;
        if (bytes <= heldBytes) held.push(line);
        else held.length = 0;
      }
    }
  }
  if (!isSameEnd(end, there)) return from > 0 ? null : "changed";
  if (isOther && common === from) return null;
  return { common, theirs: bytes > heldBytes ? "long" : held };
}

/** Returns whether a copy has a line of the fleet, wherever it is. */
function hasLine(log: Log, line: Uint8Array): boolean {
  const position = log.nodes.position(idIn(line));
  return position >= 0 && areSameBytes(trimLine(line), trimLine(log.read(position)));
}

/** Makes a branch of the lines that the fleet lacks, after the lines that the fleet has. */
async function branchOff(
  copy: DivergedCopy,
  journaled: JournaledSession,
  reason: FleetConflict["reason"],
  common: number,
  theirs: readonly Uint8Array[],
  there: FleetEnd,
): Promise<void> {
  const { log, options, acknowledged } = copy;
  const base = { log, count: common, theirs };
  const found = readUploadLines(log, common, log.nodes.count);
  const acknowledgedLines = options.journal.lines(log.header.id, log.file ?? "");
  const pending = new Map(acknowledgedLines.map((line) => [idIn(line), line]));
  // The host has repeated some under their keys since, also before an earlier branch of them; a program has edited some that
  // the fleet has.
  const repeats = findRepeats(readUnseen(base, journaled), [...acknowledgedLines, ...found], log.header.id);
  const unrepeated = acknowledgedLines.filter((line) => !repeats.has(idIn(line)));
  // An earlier branch that the fleet lacks has them with other ids and parents.
  const branched = new Map(makeBranch(base, unrepeated, sha256, repeats).present.map((line) => [idIn(line), line]));
  const findAcknowledged = (line: Uint8Array): Uint8Array | undefined =>
    [pending, branched].map((known) => known.get(idIn(line))).find((one) => one && !isContentChanged(line, one));
  // Lines that were edited or damaged in the file have the bytes that were acknowledged.
  const own = found.map(
    (line) => findAcknowledged(line) ?? branched.get(idIn(line)) ?? pending.get(idIn(line)) ?? line,
  );
  // Pending entries are in the journal. Entries that the fleet has lost follow those that it still had.
  const isKnown = (line: Uint8Array, n: number): boolean =>
    reason === "unsent" ||
    (pending.size > 0 ? !pending.has(idIn(line)) : common + n < (journaled.from?.entries ?? common));
  const edited = findEdited(base, own.filter(isKnown));
  const left = own.filter((line) => !repeats.has(idIn(line)) && !edited.has(line) && !isPlaceholder(line));
  const branch = makeBranch(base, left, sha256, repeats);
  const { lines } = branch;
  const isAcknowledged = (line: Uint8Array): boolean => pending.has(idIn(line)) || branched.has(idIn(line));
  const isKept = (line: Uint8Array): boolean => edited.has(line) || (isAcknowledged(line) && !findAcknowledged(line));
  const kept = found.filter((line) => !isPlaceholder(line) && isKept(line));
  const present = listPresentIds(branch, repeats);
  if (lines.length === 0) {
    replaceWithRemote(copy, kept, common, theirs, present);
    // All that was acknowledged here is there, if under other ids.
    const line = theirs.at(-1) ?? (common > 0 ? log.read(common - 1) : undefined);
    if (acknowledged) {
      const { entries } = there;
      const { sessionId, sessionPath, server } = acknowledged;
      options.journal.ends.note({
        ...{ sessionId, sessionPath, server, ...(line && identifyLast(line, sessionId)) },
        ...{ durability: "primary", end: there, first: entries, had: entries },
      });
    }
    return;
  }
  // An earlier branch was recorded but never made; another is made now.
  const { conflicts, isUntold } = journaled;
  const last = conflicts.at(-1);
  const isMade = last === undefined || log.nodes.position(last.markerId ?? last.lastEntryId) >= 0;
  const before = isUntold && !isMade ? conflicts.slice(0, -1) : conflicts;
  const { count } = log.nodes;
  const marker = makeLeafMarker(base, branch, sha256);
  const conflict = describeConflict(branch, marker, present);
  await options.journal.diverged({ ...journaled, conflicts: before }, reason ? { ...conflict, reason } : conflict);
  requireCount(log, count);
  quarantineQuietly(copy, kept);
  // The leaf stays on the branch of the others.
  log.replaceFrom(common, [...theirs, ...lines, marker], { renamed: present });
}

/** Returns the present ids of entries that are there under others: renamed ones, and those that the host repeated elsewhere. */
function listPresentIds(
  { renamed }: ReturnType<typeof makeBranch>,
  repeats: ReadonlyMap<string, string>,
): ReadonlyMap<string, string> {
  return new Map([...renamed, ...repeats].filter(([from, to]) => from !== to));
}

function describeConflict(
  { entryIds, renamed }: ReturnType<typeof makeBranch>,
  marker: Uint8Array,
  present: ReadonlyMap<string, string>,
): Omit<FleetConflict, "at"> {
  const names = Array.from(present, ([from, to]) => ({ from, to })).slice(0, MOST_NAMED);
  const lastEntryId = entryIds[entryIds.length - 1];
  return { entries: entryIds.length, lastEntryId, markerId: idIn(marker), renamed: renamed.size, names };
}

/**
 * Adds pending entries to a copy that lacks some. The fleet is not known to have those after the first `first` of the copy:
 * edited or damaged ones get the acknowledged bytes, and missing ones their place.
 */
export async function addPendingEntries(
  { log, options, journaled }: DivergedCopy,
  pending: readonly Uint8Array[],
  first: number,
): Promise<void> {
  const { count } = log.nodes;
  const base = { log, count, theirs: [] };
  const repeats = findRepeats(readUnseen(base, journaled), pending, log.header.id);
  const isRenamed = (line: Uint8Array): boolean => {
    const id = idIn(line);
    const position = log.nodes.position(id);
    const isClash = position >= 0 && position < first && isContentChanged(log.read(position), line);
    return isClash || (repeats.get(id) ?? id) !== id;
  };
  // In a branch entries may have other ids and parents.
  if (journaled?.conflicts.length === 0 && !pending.some(isRenamed)) {
    const own = [...readLinesAfter(base, first)];
    const lacking = pending.filter((line) => {
      const position = log.nodes.position(idIn(line));
      return position < 0 || position >= first;
    });
    const lines = restoreLines(own, lacking);
    const isSame = (line: Uint8Array, n: number): boolean =>
      idIn(line) === idIn(lines[n]) && !isContentChanged(line, lines[n]);
    if (!own.every(isSame)) {
      const acknowledged = new Map(lacking.map((line) => [idIn(line), line]));
      const edited = own.filter((line) => isContentChanged(line, acknowledged.get(idIn(line))));
      const kept = edited.filter((line) => !isPlaceholder(line));
      return replaceWithRemote({ log, options }, kept, first, lines);
    }
  }
  const left = pending.filter((line) => !repeats.has(idIn(line)));
  const branch = makeBranch(base, left, sha256, repeats);
  if (branch.lines.length === 0) return;
  const { parentId } = parse(branch.lines[0]) as { parentId?: unknown };
  const isContinued = count === 0 || parentId === log.nodes.id(count - 1);
  if (isContinued) return log.applyRemote(branch.lines);
  const marker = makeLeafMarker(base, branch, sha256);
  if (journaled)
    await options.journal.diverged(journaled, describeConflict(branch, marker, listPresentIds(branch, repeats)));
  return log.applyRemote([...branch.lines, marker]);
}

/** Returns whether a copy lacks an entry that one of these lines continues. */
export function lacksParent({ nodes }: Log, lines: readonly Uint8Array[]): boolean {
  const ids = new Set(lines.map(idIn));
  return lines.some((line) => {
    const { parentId } = parse(line) as { parentId?: unknown };
    return typeof parentId === "string" && !ids.has(parentId) && nodes.position(parentId) < 0;
  });
}

/** Returns a copy's lines with the acknowledged ones in their bytes and order; others stay behind the line before them. */
function restoreLines(own: readonly Uint8Array[], acknowledged: readonly Uint8Array[]): readonly Uint8Array[] {
  const lines: Uint8Array[] = [];
  const ids = new Set(acknowledged.map(idIn));
  const left = new Map(acknowledged.map((line) => [idIn(line), line]));
  const placeUpTo = (last?: string): void => {
    for (const [id, line] of left) {
      left.delete(id);
      lines.push(line);
      if (id === last) return;
    }
  };
  for (const line of own) {
    const id = idIn(line);
    if (left.has(id)) placeUpTo(id);
    else if (!ids.has(id)) lines.push(line);
  }
  placeUpTo();
  return lines;
}

/** Returns the lines that another program has edited: the fleet has their entries with other bytes. */
function findEdited({ log, count, theirs }: BranchBase, own: readonly Uint8Array[]): ReadonlySet<unknown> {
  const known = new Map(theirs.map((line) => [idIn(line), line]));
  const lineOf = (id: string): Uint8Array | undefined => {
    const position = log.nodes.position(id);
    return known.get(id) ?? (position >= 0 && position < count ? log.read(position) : undefined);
  };
  return new Set(
    own.filter((line) => {
      const there = lineOf(idIn(line));
      return there !== undefined && !areSameBytes(trimLine(there), trimLine(line));
    }),
  );
}

/**
 * Yields the lines of a base that this machine may not have seen when it acknowledged its pending entries: those after the end
 * that the session had then. If an older state of the database was restored, that end is not in the base, and pending entries
 * are compared like requests that arrive now.
 */
function readUnseen(base: BranchBase, journaled: JournaledSession | null | undefined): Generator<Uint8Array> {
  const { log, count, theirs } = base;
  const from = journaled?.from ?? NOTHING;
  const isThere = from.entries <= count && isSameEnd(computeEnd(log, from.entries, NOTHING), from);
  return readLinesAfter(base, isThere ? from.entries : Math.max(0, count + theirs.length - KEY_WINDOW));
}

/** Yields the lines of a base, one by one: there may be more than are held. */
function* readLinesAfter({ log, count, theirs }: BranchBase, from: number): Generator<Uint8Array> {
  for (let position = from; position < count; position++) yield log.read(position);
  yield* theirs;
}

/** Returns whether a line differs in content from the acknowledged one. Another program may have written other spaces. */
export function isContentChanged(line: Uint8Array, acknowledged: Uint8Array | undefined): boolean {
  if (acknowledged === undefined || areSameBytes(trimLine(line), trimLine(acknowledged))) return false;
  return JSON.stringify(parse(line)) !== JSON.stringify(parse(acknowledged));
}

function idIn(line: Uint8Array): string {
  return String((parse(line) as { id?: unknown }).id);
}

/** Replaces the lines after the common ones by the fleet's, and quarantines some of them. */
function replaceWithRemote(
  { log, options }: Pick<DivergedCopy, "log" | "options">,
  kept: readonly Uint8Array[],
  common: number,
  theirs: readonly Uint8Array[],
  renamed?: ReadonlyMap<string, string>,
): void {
  quarantineQuietly({ log, options }, kept);
  log.replaceFrom(common, theirs, { renamed });
}

/** Quarantines lines. Never throws. */
function quarantineQuietly({ log, options }: Pick<DivergedCopy, "log" | "options">, kept: readonly Uint8Array[]): void {
  try {
    if (kept.length > 0) options.quarantineEntries(log, kept);
  } catch {
    // The whole copy is kept as a backup.
  }
}

function makeRefusal({ header, file }: ReplicatedLog): Failure {
  return new Failure(
    "read_only",
    describeUnchanged(
      `This file and the fleet have other entries under the same session id (${header.id}).`,
      "For the fleet's session, move the file away and open the session by its id. To continue this file, use clone.",
    ),
    { sessionId: header.id, sessionPath: file },
  );
}
