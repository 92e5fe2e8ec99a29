/** Checks of params that no schema makes. */

import { BadParams } from "../../core/failure.ts";
import type { Where } from "../../core/ports/lifecycle.ts";
import { parseTime } from "../../core/search/listing.ts";

/** Throws BadParams unless exactly one of the two is given. */
export function requireOneSession({ sessionPath, sessionId }: Where): Where {
  if ((sessionPath === undefined) === (sessionId === undefined))
    throw new BadParams([{ path: "sessionPath", message: "give either sessionPath or sessionId" }]);
  return { sessionPath, sessionId };
}

/** Returns the time that a param names, in milliseconds. Throws BadParams. */
export function readMoment(path: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const moment = parseTime(text);
  if (moment === null) throw new BadParams([{ path, message: "must be a time, such as 2026-01-24T16:22:26Z" }]);
  return moment;
}
