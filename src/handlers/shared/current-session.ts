/** Results that tell which session is open, or the current one. */

import * as z from "zod";
import type { Session } from "../../core/session/session.ts";
import type { CommandContext } from "./command.ts";
import { vetoReason } from "./hooks.ts";

export const replacement = {
  cancelled: z.boolean(),
  reason: vetoReason,
  sessionId: z.string(),
  sessionFile: z.string().nullable(),
};

type ReplacementResult = z.input<z.ZodObject<typeof replacement>>;

/** Returns the result when a session has become the current one. */
export function replacedBy({ id, file }: Session): ReplacementResult {
  return { cancelled: false, sessionId: id, sessionFile: file };
}

/** Returns the result of a vetoed replacement, which names the session that stays current. */
export function vetoed({ workspace: { current } }: CommandContext, reason: string | undefined): ReplacementResult {
  return { cancelled: true, reason, sessionId: current?.id ?? "", sessionFile: current?.file ?? null };
}

export const opened = {
  sessionId: z.string(),
  sessionFile: z.string().nullable(),
  leafId: z.string().nullable(),
  readOnly: z.boolean(),
};

export function openedAs({ id, file, leafId, log }: Session): z.input<z.ZodObject<typeof opened>> {
  return { sessionId: id, sessionFile: file, leafId, readOnly: log.readOnly !== null };
}
