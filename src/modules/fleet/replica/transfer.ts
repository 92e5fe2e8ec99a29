/** The transfer of a whole session: its lines come in pieces into a file that gets its name when it has all of them. */

import { Failure } from "../../../core/failure.ts";
import { concat } from "../../../core/json/json.ts";
import type { Progress } from "../../../core/ports/catalog.ts";
import type { Fleet, FleetSession } from "../../../core/ports/fleet.ts";
import type { Beginning, Log, Store } from "../../../core/ports/store.ts";
import { LF } from "../../../storage/log/lines.ts";
import { extendEnd, isSameEnd, NOTHING } from "../postgres/ends.ts";
import { makeIncompleteFailure } from "../postgres/failures.ts";
import { isUnreadableLog } from "./unreadable-copies.ts";

/** The stores, as a transfer needs them. */
export interface TransferPlace {
  readonly fleet: Fleet;
  /** Stores for new sessions without their fleet, the preferred one first. */
  readonly stores: readonly Store[];
  open(file: string): Log;
  /** Returns the files here whose session has an id. */
  filesOf(sessionId: string): readonly string[];
}

/**
 * Makes a copy of a session, with its newest entries. Rejects with a failure, and leaves nothing, if its lines cannot be
 * read, do not match, or cannot be written. `progress` counts the bytes of the lines.
 */
export async function transfer(
  place: TransferPlace,
  session: FleetSession,
  beginning: Beginning,
  progress?: Progress,
): Promise<void> {
  const log = await copied(place, session, beginning, progress);
  try {
    await log.replica?.sync();
  } catch (error) {
    // It has all that there was, or another process has it, and both ask again.
    if (!(error instanceof Failure)) throw error;
  }
  log.close();
  if (log.nodes.count >= session.end.entries) return;
  const sentence = "Another process of this machine is bringing the session up to date. Try again.";
  throw new Failure("storage_failed", sentence, { sessionPath: log.file });
}

/** Makes a copy, or opens one that another process of this machine has made meanwhile. */
async function copied(
  place: TransferPlace,
  session: FleetSession,
  beginning: Beginning,
  progress: Progress | undefined,
): Promise<Log> {
  let refusal: unknown;
  // A server with another store gives its copy another name.
  const requireNew = (): void => {
    const [sessionPath] = beginning.file === undefined ? place.filesOf(session.id) : [];
    if (sessionPath !== undefined) throw new Failure("already_exists", undefined, { sessionPath });
  };
  for (const store of place.stores)
    try {
      const log = await store.publish({ ...beginning, requireNew }, fetchSessionLines(place.fleet, session, progress));
      await withAttachments(log);
      return log;
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      const made = error.name === "already_exists" ? openMade(place, session.id, error.details.sessionPath) : undefined;
      if (made) return made;
      if (error.name === "already_exists") throw makePlaceTakenFailure(session.id, String(error.details.sessionPath));
      // A container takes only some ids.
      if (error.name !== "invalid_id") throw error;
      refusal = error;
    }
  throw refusal;
}

/** Returns the failure of a copy that cannot be fetched, because the file with its name is of another session. */
function makePlaceTakenFailure(sessionId: string, sessionPath: string): Failure {
  return new Failure(
    "storage_failed",
    {
      what: `The file of another session is at ${sessionPath}, in the place of ${sessionId}.`,
      state: "Nothing was changed.",
      advice: "Move it away, and try again.",
    },
    { sessionPath },
    { retryable: false },
  );
}

/** Fetches the attachments of a new copy, which is discarded if that fails. */
async function withAttachments(log: Log): Promise<void> {
  try {
    await log.replica?.fetchAttachments();
  } catch (error) {
    log.discard();
    throw error;
  }
}

/** Opens the file with the name of a copy. Returns undefined if it is another session. */
function openMade(place: TransferPlace, id: string, file: unknown): Log | undefined {
  const log = place.open(String(file));
  // Without a header, the name alone identifies the session.
  if (log.header.id === id && !isUnreadableLog(log)) return log;
  log.close();
  return undefined;
}

/** Yields the lines of a session, each with its line feed. Throws storage_failed at the end if some are missing. */
export async function* fetchSessionLines(
  fleet: Fleet,
  { id, end: there }: Pick<FleetSession, "id" | "end">,
  progress?: Progress,
): AsyncGenerator<Uint8Array> {
  let end = NOTHING;
  for await (const lines of fleet.lines(id, 0, there.entries)) {
    end = extendEnd(end, lines);
    progress?.(end.bytes, there.bytes);
    yield concat(lines.flatMap((line) => [line, LF]));
  }
  if (!isSameEnd(end, there)) throw makeIncompleteFailure(id);
}
