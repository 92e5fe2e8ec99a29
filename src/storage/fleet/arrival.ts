/** The arrival of sessions: what other machines wrote comes to this one before it is read. */

import { Failure } from "../../core/failure.ts";
import { headerIn, headerOf, SESSION_ID } from "../../core/format/entry.ts";
import { concat } from "../../core/json/json.ts";
import type { Fleet, FleetSession } from "../../core/ports/fleet.ts";
import type { FleetCatalog } from "../../core/ports/fleet-catalog.ts";
import type { Beginning, Log, Store } from "../../core/ports/store.ts";
import { idInPath } from "../../core/search/listing.ts";
import { FileLog } from "../log/file-log.ts";
import { LF } from "../log/lines.ts";
import { fetchMissing } from "./attachments.ts";
import type { Outage } from "./outage.ts";

/** Ids that a failure names. */
const MOST_NAMED = 3;

/** The stores, as an arrival needs them. */
export interface ArrivalPlace {
  readonly fleet: Fleet;
  readonly catalog: FleetCatalog | undefined;
  /** See FleetOptions. */
  readonly outage?: Outage;
  /** Returns the path of a session that is here. Throws session_not_found and what the finding of sessions throws. */
  find(id: string): string;
  open(file: string): Log;
  /** Returns whether a session is at a path, or one that was there has moved. */
  holds(file: string): boolean;
  /** Stores for new sessions, the preferred one first, that do not tell the fleet. */
  readonly stores: readonly Store[];
}

/** Brings a session to where it is in the fleet, if it is there. Throws storage_failed where it cannot be had. */
export async function arrive(place: ArrivalPlace, where: { sessionPath?: string; sessionId?: string }): Promise<void> {
  const { sessionPath, sessionId = "" } = where;
  if (sessionPath !== undefined && !place.holds(sessionPath)) {
    // Lists name sessions that are not here by the path that their copy will have.
    const id = idInPath(sessionPath);
    if (SESSION_ID.test(id) && localFile(place, id) === undefined) await fetchWhole(place, id);
    return;
  }
  const file = sessionPath ?? localFile(place, sessionId);
  if (file !== undefined) await bringUpToDate(place, file);
  else await fetchWhole(place, await wholeId(place, sessionId));
}

/** Returns the id of the session of the fleet that is meant by the beginning of one. Throws ambiguous_id. */
async function wholeId({ catalog }: ArrivalPlace, beginning: string): Promise<string> {
  const ids = (await catalog?.idsBeginning(beginning, MOST_NAMED + 1)) ?? [];
  if (ids.includes(beginning) || ids.length === 0) return beginning;
  if (ids.length === 1) return ids[0];
  const named = ids.slice(0, MOST_NAMED).join(", ");
  const sentence = `Several session ids of the fleet begin with this: ${named}${ids.length > MOST_NAMED ? " and more" : ""}. Give more of it.`;
  throw new Failure("ambiguous_id", sentence, { sessionId: beginning, matches: ids.length });
}

/** Returns the path of a session that is here, or undefined where the fleet may have it. */
function localFile({ find }: ArrivalPlace, id: string): string | undefined {
  try {
    return find(id);
  } catch (error) {
    if (error instanceof Failure && error.name === "session_not_found" && SESSION_ID.test(id)) return undefined;
    throw error;
  }
}

/** Adds what a copy lacks. Where that cannot be, it is read as it is, and a write says why. */
async function bringUpToDate({ fleet, open, outage }: ArrivalPlace, file: string): Promise<void> {
  if (outage?.lasts) return;
  let log: Log | undefined;
  try {
    log = open(file);
    if (log instanceof FileLog) {
      await log.outside?.follow();
      await fetchMissing(fleet, log, log.header.id);
    }
  } catch (error) {
    // Whoever opens it next meets the same failure, if it is one of the file.
    if (!(error instanceof Failure)) throw error;
  } finally {
    log?.close();
  }
}

async function fetchWhole(place: ArrivalPlace, id: string): Promise<void> {
  const session = await place.fleet.look(id);
  const stored = session && headerIn(session.headerLine);
  if (!session || !stored) return;
  const { headerLine } = session;
  const log = await makeCopy(place, { headerLine, header: headerOf(stored) }, session);
  try {
    // The lines after the first come in pieces, so that none of them waits in memory.
    await log.outside?.follow();
    if (log.nodes.count < session.end.entries) throw incomplete(id);
    await fetchMissing(place.fleet, log, id);
    log.close();
  } catch (error) {
    log.discard();
    throw error;
  }
}

/** Makes a copy with the first lines, in a store that takes its id. */
async function makeCopy(place: ArrivalPlace, beginning: Beginning, { id, end }: FleetSession): Promise<FileLog> {
  let first: readonly Uint8Array[] = [];
  for await (const lines of place.fleet.lines(id, 0, Math.min(end.entries, 1))) first = [...first, ...lines];
  const content = first.length === 0 ? [] : [concat(first.flatMap((line) => [line, LF]))];
  let refusal: unknown;
  for (const store of place.stores)
    try {
      return (await store.publish(beginning, content)) as FileLog;
    } catch (error) {
      // A container takes only some ids.
      if (!(error instanceof Failure) || error.name !== "invalid_id") throw error;
      refusal = error;
    }
  throw refusal;
}

function incomplete(sessionId: string): Failure {
  return new Failure(
    "storage_failed",
    "What the fleet has of the session does not fit together. Nothing was kept here.",
    {
      ...{ fleet: true, sessionId },
    },
  );
}
