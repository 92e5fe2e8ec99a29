/**
 * The end of a copy that says something else than the fleet. The fleet's lines take the place of what the copy has
 * after the last line that is in both. Lines that were acknowledged while the fleet was away continue it as a branch;
 * others, of a server that died or that a promoted database lacked, are kept aside.
 */

import { Failure } from "../../core/failure.ts";
import { parse, payloadOf, sameBytes } from "../../core/json/json.ts";
import type { Fleet, FleetEnd, JournaledSession } from "../../core/ports/fleet.ts";
import type { Log } from "../../core/ports/store.ts";
import { branchOf, markerAfter } from "../../core/session/added-branch.ts";
import type { CopiedLog } from "../log/outside.ts";
import { sha256 } from "../v2/frame.ts";
import { fetchNamed } from "./attachments.ts";
import { linesOf } from "./batch.ts";
import { endAfter, endIn, HELD_BYTES, isSameEnd, NOTHING } from "./ends.ts";
import type { Journal } from "./journal.ts";
import { requireCount } from "./taking-in.ts";

/** Entries with another id that are told of one conflict. */
const MOST_NAMED = 100;
/** Lines at the end that are compared first where copy and fleet differ. */
const FIRST_BACK = 64;

/** A copy, and what is known of its session. */
interface Differing {
  readonly log: CopiedLog;
  readonly options: {
    readonly fleet: Fleet;
    readonly journal: Journal;
    /** Keeps lines that gave way. Returns their path. */
    readonly keepAside: (log: Log, lines: readonly Uint8Array[]) => string;
    /** See FleetOptions. */
    readonly heldBytes?: number;
  };
  readonly journaled: JournaledSession | null | undefined;
}

/**
 * Has a copy give way to what the fleet has. One that has no file yet is left alone. So is one without any common line,
 * which is of another session, unless a host was told of its lines: then both were given the same id, and have no more in
 * common than that. Throws read_only.
 */
export async function giveWay(copy: Differing, there: FleetEnd): Promise<void> {
  const { log, options } = copy;
  const { count } = log.nodes;
  const owing = owingOf(copy);
  for (let back = FIRST_BACK; log.persisted; back *= 8) {
    const from = Math.max(0, Math.min(count, there.entries) - back);
    const parted = await partedAfter(copy, from, there);
    if (parted) {
      const { common } = parted;
      if (parted.theirs === "long" && owing) throw tooLong(log, there.bytes - endIn(log, common, NOTHING).bytes);
      // Where nobody was told of any line here, the copy is a beginning then, to which the rest comes in pieces.
      const theirs = parted.theirs === "long" ? [] : parted.theirs;
      const fetching = fetchNamed(options.fleet, log, theirs);
      if (fetching) await fetching;
      requireCount(log, count);
      if (owing) await branchOff(copy, owing, common, theirs);
      else setAside(copy, common, theirs);
      return;
    }
    if (from === 0) break;
  }
  throw refusal(log);
}

/**
 * Returns the note of what was acknowledged here, also of what is owed to another fleet: its lines are in this copy alone,
 * and are given to that one with the branch. Undefined where nobody was told of anything that may be lost.
 */
function owingOf({ log, options, journaled }: Differing): JournaledSession | undefined {
  if (journaled?.from) return journaled;
  const { header, file } = log;
  const other = options.journal.owedToOthers(header.id);
  if (!other) return undefined;
  const { since } = other;
  // To its own fleet nothing is owed.
  return { conflicts: [], ...journaled, sessionId: header.id, sessionPath: file ?? "", since, from: null };
}

/** The number of lines that a copy and the fleet have in common, and what the fleet has after these. */
interface Parted {
  readonly common: number;
  /** "long": too much to hold. */
  readonly theirs: readonly Uint8Array[] | "long";
}

/** Returns where they part after a position; null where they have no line in common there, or do not lead to an end. */
async function partedAfter(
  { log, options, journaled }: Differing,
  from: number,
  there: FleetEnd,
): Promise<Parted | null> {
  const { nodes, header } = log;
  const { fleet, heldBytes = HELD_BYTES } = options;
  const isAnother = from > 0 || journaled?.from == null;
  let common = from;
  let end = endIn(log, from, NOTHING);
  let bytes = 0;
  const held: Uint8Array[] = [];
  for await (const lines of fleet.lines(header.id, from, there.entries)) {
    end = endAfter(end, lines);
    for (const line of lines) {
      const isCommon = bytes === 0 && common < nodes.count && sameBytes(payloadOf(line), payloadOf(log.read(common)));
      if (isCommon) common++;
      else if (common === from && isAnother) return null;
      else {
        bytes += line.length;
        if (bytes <= heldBytes) held.push(line);
        else held.length = 0;
      }
    }
  }
  return isSameEnd(end, there) ? { common, theirs: bytes > heldBytes ? "long" : held } : null;
}

async function branchOff(
  { log, options }: Differing,
  journaled: JournaledSession,
  common: number,
  theirs: readonly Uint8Array[],
): Promise<void> {
  const base = { log, count: common, theirs };
  const branch = branchOf(base, linesOf(log, common, log.nodes.count), sha256);
  const { lines, entryIds, renamed } = branch;
  const lastEntryId = entryIds.at(-1);
  if (lastEntryId === undefined) {
    log.replaceFrom(common, theirs);
    return;
  }
  // A branch that came to nothing was noted, and another is made now.
  const { conflicts, isUntold } = journaled;
  const last = conflicts.at(-1);
  const isMade = last === undefined || log.nodes.position(last.markerId ?? last.lastEntryId) >= 0;
  const before = isUntold && !isMade ? conflicts.slice(0, -1) : conflicts;
  const names = Array.from(renamed, ([from, to]) => ({ from, to })).slice(0, MOST_NAMED);
  const { count } = log.nodes;
  const marker = markerAfter(base, branch, sha256);
  const { id: markerId } = parse(marker) as { id: string };
  const conflict = { entries: entryIds.length, lastEntryId, markerId, renamed: renamed.size, names };
  await options.journal.diverged({ ...journaled, conflicts: before }, conflict);
  requireCount(log, count);
  // Whoever opens it is where the others are.
  log.replaceFrom(common, [...theirs, ...lines, marker], renamed);
}

function setAside({ log, options }: Differing, common: number, theirs: readonly Uint8Array[]): void {
  try {
    options.keepAside(log, linesOf(log, common, log.nodes.count));
  } catch {
    // The whole copy is kept beside the session.
  }
  log.replaceFrom(common, theirs);
}

function refusal({ header, file }: CopiedLog): Failure {
  return new Failure(
    "read_only",
    `This file and the fleet have other entries under the same session id (${header.id}). Nothing was changed. Move the file away, and open the session by its id to get what the fleet has; clone continues in a copy of the file.`,
    { sessionId: header.id, sessionPath: file },
  );
}

/** Returns the failure of a copy whose lines were acknowledged, and cannot be put after so many bytes of others. */
function tooLong({ header, file }: CopiedLog, bytes: number): Failure {
  const megabytes = Math.round(bytes / (1 << 20));
  return new Failure(
    "read_only",
    `While the fleet's database was away, other machines wrote ${megabytes} MB to this session (${header.id}), too: more than a branch can be put after. Nothing was changed. clone continues what was written here as a session of its own; then move this file away, and open the session by its id to get what the others wrote.`,
    { sessionId: header.id, sessionPath: file },
  );
}
