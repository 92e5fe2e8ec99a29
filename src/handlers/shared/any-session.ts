/** Sessions that a command looks at, whether or not they are open. */

import { BadParams, Failure } from "../../core/failure.ts";
import type { Where } from "../../core/ports/lifecycle.ts";
import { runThen } from "../../core/run-then.ts";
import { areRelated, type BranchEnd, comparePaths, type Parting } from "../../core/session/compare.ts";
import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import type { CommandContext } from "./command.ts";

/** Returns what `look` finds in the session that a command of `ofAny` is about; one that was opened for it is closed again. */
export function lookAt<T>(
  { target, workspace }: CommandContext,
  sessionPath: string | undefined,
  look: (session: Session) => T,
): T {
  return target ? look(target) : lookInto(workspace, workspace.open({ sessionPath }), look);
}

/** Does the same for a session that is named as `open_session` takes it. */
export async function lookIntoOther<T>(workspace: Workspace, where: Where, look: (session: Session) => T): Promise<T> {
  let session: Session;
  try {
    session = workspace.open(where);
  } catch (error) {
    session = workspace.open(await workspace.lookedUp(where, error));
  }
  return lookInto(workspace, session, look);
}

function lookInto<T>(workspace: Workspace, session: Session, look: (session: Session) => T): T {
  return runThen(
    () => look(session),
    () => workspace.release(session),
  );
}

/** Returns where the other of two sessions is, or undefined when none is named. Throws BadParams for two names. */
export function toOtherSession(sessionPath: string | undefined, sessionId: string | undefined): Where | undefined {
  if (sessionPath !== undefined && sessionId !== undefined)
    throw new BadParams([
      { path: "otherId", message: "names the other session a second time; give its path or its id" },
    ]);
  return sessionPath === undefined && sessionId === undefined ? undefined : { sessionPath, sessionId };
}

/** Returns where two branches part. Throws unrelated_sessions for those of sessions that never were one. */
export function findParting(a: BranchEnd, b: BranchEnd): Parting {
  const parting = comparePaths(a, b);
  if (parting.common.length > 0 || a.session === b.session || areRelated(a.session, b.session)) return parting;
  throw new Failure("unrelated_sessions");
}
