/**
 * The end of a copy that says something else than the fleet. The fleet's lines take the place of what the copy has
 * after the last line that is in both. Lines that were acknowledged while the fleet was away continue it as a branch;
 * others, of a server that died or that a promoted database lacked, are kept aside.
 */

import { Failure } from "../../core/failure.ts";
import { payloadOf, sameBytes } from "../../core/json/json.ts";
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
  };
  readonly journaled: JournaledSession | null | undefined;
}

/**
 * Has a copy give way to what the fleet has. One that has no file yet is left alone. So is one without any common line,
 * which is of another session, unless a host was told of its lines: then both were given the same id, and have no more in
 * common than that. Throws read_only.
 */
export async function giveWay(copy: Differing, there: FleetEnd): Promise<void> {
  const { log, options, journaled } = copy;
  const { count } = log.nodes;
  const most = Math.min(count, there.entries);
  for (let back = FIRST_BACK; ; back *= 8) {
    const from = Math.max(0, most - back);
    const here = endIn(log, from, NOTHING);
    if (there.bytes - here.bytes > HELD_BYTES) throw refusal(log);
    const lines: Uint8Array[] = [];
    for await (const some of options.fleet.lines(log.header.id, from, there.entries)) lines.push(...some);
    let common = from;
    while (common < most && sameBytes(payloadOf(lines[common - from]), payloadOf(log.read(common)))) common++;
    const isSame = log.persisted && (common > from || (from === 0 && journaled?.from != null));
    if (isSame && isSameEnd(endAfter(here, lines), there)) {
      const theirs = lines.slice(common - from);
      const fetching = fetchNamed(options.fleet, log, theirs);
      if (fetching) await fetching;
      requireCount(log, count);
      if (journaled?.from) await branchOff(copy, journaled, common, theirs);
      else setAside(copy, common, theirs);
      return;
    }
    if (from === 0) throw refusal(log);
  }
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
  const isMade = (id: string | undefined): boolean => id === undefined || log.nodes.position(id) >= 0;
  const before = isUntold && !isMade(conflicts.at(-1)?.lastEntryId) ? conflicts.slice(0, -1) : conflicts;
  const names = Array.from(renamed, ([from, to]) => ({ from, to })).slice(0, MOST_NAMED);
  const { count } = log.nodes;
  const conflict = { entries: entryIds.length, lastEntryId, renamed: renamed.size, names };
  await options.journal.diverged({ ...journaled, conflicts: before }, conflict);
  requireCount(log, count);
  // Whoever opens it is where the others are.
  log.replaceFrom(common, [...theirs, ...lines, markerAfter(base, branch, sha256)], renamed);
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
