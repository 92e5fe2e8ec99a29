/** Results that name the open or the current session. */

import * as z from "zod";
import type { Session } from "../../core/session/session.ts";
import type { CommandContext } from "./command.ts";
import { type HookAnswer, veto } from "./hooks.ts";
import { exampleId, optionalName } from "./shapes.ts";

/** The param that names a session to open. */
export const wantedId = optionalName.describe(
  "or the session's id, or an unambiguous beginning of it; of another agent's, one of 4 characters or more",
);

export const replacement = {
  cancelled: z.boolean(),
  ...veto,
  sessionId: z.string(),
  sessionFile: z.string().nullable(),
};

type ReplacementResult = z.input<z.ZodObject<typeof replacement>>;

export const forkedExample = {
  cancelled: false,
  sessionId: exampleId,
  sessionFile: `/home/me/sessions/2026-01-24T16-22-26-831Z_${exampleId}.jsonl`,
};

export function toReplacement({ id, file }: Session): ReplacementResult {
  return { cancelled: false, sessionId: id, sessionFile: file };
}

/** Returns the result of a vetoed replacement, which names the session that stays current. */
export function toVetoed(
  { workspace: { current } }: CommandContext,
  { reason, message }: HookAnswer,
): ReplacementResult {
  return { cancelled: true, reason, message, sessionId: current?.id ?? "", sessionFile: current?.file ?? null };
}

export const openedResult = {
  sessionId: z.string(),
  sessionFile: z.string().nullable(),
  leafId: z.string().nullable(),
  head: z.string().optional().describe("the head of this connection there"),
  readOnly: z.boolean(),
};

export const openedExample = {
  sessionId: exampleId,
  sessionFile: "/home/me/sessions/old.jsonl",
  leafId: "c3d4e5f6",
  readOnly: true,
};

export function toOpened({ id, file, ownLeafId, heads, log }: Session): z.input<z.ZodObject<typeof openedResult>> {
  const head = heads.own === null ? {} : { head: heads.own };
  return { sessionId: id, sessionFile: file, leafId: ownLeafId, ...head, readOnly: log.readOnly !== null };
}
