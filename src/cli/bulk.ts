/** Verbs that do the same with each of several sessions. */

import type { Listed } from "../core/ports/catalog.ts";
import { formatTime } from "../core/search/listing.ts";
import type { Preferred } from "../core/search/named.ts";
import { findNamedSession, type NamedSession } from "./sessions.ts";
import type { OutputStyle } from "./terminal/page.ts";
import { show } from "./terminal/text.ts";
import { FAILURE, OK, type Verb } from "./verb.ts";
import { type CommandError, CommandFailed, type VerbArguments, type VerbContext } from "./verb-context.ts";

/** Finds the sessions of all operands, before anything is done with the first. Throws as `sessionNamed`. */
export async function findNamedSessions(
  asking: VerbContext,
  { operands }: VerbArguments,
  preferred: Preferred,
): Promise<NamedSession[]> {
  const all = new Map<string, NamedSession>();
  for (const operand of new Set(operands)) {
    const session = await findNamedSession(asking, operand, preferred);
    all.set(JSON.stringify(session.params), session);
  }
  return [...all.values()];
}

/** One of several sessions that failed unchanged, and why. */
export interface FailedOne {
  readonly operand: string;
  readonly error: CommandError;
  readonly sentence: string;
}

/** The result for a single session, or what became of each of several. */
export type EachResult<One> = One | { readonly results: readonly (One | FailedOne)[] };

/**
 * Returns the result for a single session. For several, each has its result or its error, and a failure does not stop
 * the others. The changes to all of them are one operation, whose id is that of the first.
 */
export async function doEach<Of extends { readonly operand: string }, One extends { readonly operationId?: string }>(
  sessions: readonly Of[],
  act: (session: Of, group: string | undefined) => Promise<One>,
): Promise<EachResult<One>> {
  if (sessions.length === 1) return act(sessions[0], undefined);
  const results: (One | FailedOne)[] = [];
  let group: string | undefined;
  for (const session of sessions)
    try {
      const result = await act(session, group);
      group ??= result.operationId;
      results.push(result);
    } catch (error) {
      if (!(error instanceof CommandFailed)) throw error;
      results.push({ operand: session.operand, error: error.error, sentence: error.message });
    }
  return { results };
}

/** Returns the facts about a session that a person saw in a list, as conditions of the move. */
export function expectUnchangedSince({ modified, messageCount }: Pick<Listed, "modified" | "messageCount">) {
  return { modified: formatTime(modified), messageCount };
}

/** Returns the printing and the status of such a verb, from the lines about one session. */
export function printEach<One extends object>(
  linesOf: (result: One, page: OutputStyle) => string[],
): Required<Pick<Verb<EachResult<One>>, "print" | "status">> {
  return {
    print: (result, _given, page) =>
      toResults(result).flatMap((one) =>
        isFailed(one) ? [show`${one.operand}: ${one.sentence}`] : linesOf(one, page),
      ),
    status: (result) => (toResults(result).some(isFailed) ? FAILURE : OK),
  };
}

/** Returns the results of all sessions, where the result of a single one stands alone. */
function toResults<One extends object>(result: EachResult<One>): readonly (One | FailedOne)[] {
  return "results" in result ? result.results : [result];
}

/** Returns true if the session failed unchanged. */
export function isFailed(one: object): one is FailedOne {
  return "error" in one;
}
