/** Sessions that are not open: the params that name one in a command, and the result of moving it. */

import * as z from "zod";
import { Failure } from "../../core/failure.ts";
import type { MoveOptions, Purpose, Where } from "../../core/ports/lifecycle.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import { defineCommand } from "./command.ts";
import { readMoment, requireOneSession } from "./params.ts";

export const sessionChoice = {
  sessionPath: z.string().min(1).optional(),
  sessionId: z.string().min(1).optional().describe("or the session's full id"),
};

/** Params of a move that may be one of several, and that a person decided on after seeing a list. */
export const moveParams = {
  group: z
    .string()
    .regex(/^[0-9a-f]{12}$/)
    .optional()
    .describe("the operationId of the first of several such changes: undo takes all of them back as one"),
  expected: z
    .object({ modified: z.string().nullable(), messageCount: z.number().int() })
    .optional()
    .describe("fail with content_modified and move nothing unless list_sessions still returns these for the session"),
};

export const operationId = z.string().describe("for undo");

/** Parses the params of a move. Throws BadParams. */
export function toMoveOptions({ group, expected }: z.output<z.ZodObject<typeof moveParams>>): MoveOptions {
  if (!expected) return { group };
  const modified = readMoment("expected.modified", expected.modified ?? undefined) ?? null;
  return { group, seen: { modified, messageCount: expected.messageCount } };
}

export const movedResult = {
  sessionId: z.string(),
  sessionPath: z.string().describe("where the session was"),
  movedTo: z.string().describe("where it is now"),
};

export const MOVE_FAILURES = [
  "session_not_found",
  "ambiguous_id",
  "invalid_id",
  "path_outside_root",
  "not_a_session",
  "session_locked",
  "read_only",
  "already_exists",
  "storage_full",
  "storage_failed",
] as const;

/** Returns the file of a session that this process does not have open, which may come here first. Throws session_locked. */
export async function findClosedSession(workspace: Workspace, where: Where, purpose?: Purpose): Promise<string> {
  const file = await located(workspace, requireOneSession(where), purpose);
  const open = workspace.idAt(file);
  if (open === undefined) return file;
  throw makeOpenHereFailure(open, file);
}

/** Returns the failure of a change for which a session must not be open in this process. `parentSession`: where to go. */
export function makeOpenHereFailure(
  sessionId: string,
  sessionPath: string | undefined,
  parentSession?: string | null,
): Failure {
  const advice = parentSession
    ? `Go back to the original with switch_session, sessionPath ${parentSession}, and send this again.`
    : "close_session closes it, switch_session leaves it for another.";
  const details = { sessionId, sessionPath, ...(parentSession ? { parentSession } : {}) };
  return new Failure("session_locked", `The session is open in this server. ${advice}`, details, { retryable: false });
}

/** Returns where a session is; one of another agent by its id, too, so that the refusal to change it says whose it is. */
async function located(workspace: Workspace, where: Where, purpose?: Purpose): Promise<string> {
  try {
    await workspace.arrive(where);
    return workspace.stores.lifeCycle.locate(where, purpose);
  } catch (error) {
    return (await workspace.lookedUp(where, error)).sessionPath;
  }
}

/** Declares a command that moves a session into the archive or out of it. */
export function defineArchiving<const N extends string>(
  name: N,
  summary: string,
  move: "archive" | "unarchive",
  example: { readonly sessionId: string; readonly sessionPath: string; readonly movedTo: string },
) {
  return defineCommand({
    name,
    summary,
    effect: "server",
    movesFile: true,
    ofAny: true,
    params: { ...sessionChoice, ...moveParams },
    result: () => z.object({ operationId, ...movedResult }),
    failures: [...MOVE_FAILURES, "content_modified"],
    example: { params: { sessionId: example.sessionId }, result: { operationId: "3f2a9c1077de", ...example } },
    async run({ workspace }, { sessionPath, sessionId, ...wished }) {
      const file = await findClosedSession(workspace, { sessionPath, sessionId }, move);
      return workspace.stores.lifeCycle[move](file, toMoveOptions(wished));
    },
  });
}
