/** Verbs that do the same with each of several sessions. */

import type { Listed } from "../core/ports/catalog.ts";
import { momentText } from "../core/search/listing.ts";
import type { Preferred } from "../core/search/named.ts";
import { type Asking, CommandFailed, type Given, type Result } from "./asking.ts";
import { type NamedSession, sessionNamed } from "./sessions.ts";
import type { OutputStyle } from "./terminal/page.ts";
import { inert } from "./terminal/text.ts";
import { FAILURE, OK, type Verb } from "./verb.ts";

/** Finds the sessions of all operands, before anything is done with the first. Throws as `sessionNamed`. */
export async function allNamed(asking: Asking, { operands }: Given, preferred: Preferred): Promise<NamedSession[]> {
  const all = new Map<string, NamedSession>();
  for (const operand of new Set(operands)) {
    const session = await sessionNamed(asking, operand, preferred);
    all.set(JSON.stringify(session.params), session);
  }
  return [...all.values()];
}

/**
 * Returns the result for a single session. Of several, each has its result or its error, and none stops the others; what
 * is done to all of them is one operation, whose id is that of the first.
 */
export async function doEach(
  sessions: readonly NamedSession[],
  act: (session: NamedSession, group: string | undefined) => Promise<Result>,
): Promise<Result> {
  if (sessions.length === 1) return act(sessions[0], undefined);
  const results: Result[] = [];
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

/** Returns the facts that a list told of a session, as conditions of a move that a person decided on by them. */
export function asSeen({ modified, messageCount }: Pick<Listed, "modified" | "messageCount">) {
  return { modified: momentText(modified), messageCount };
}

/** Returns the printing and the status of such a verb, from the lines about one session. */
export function printingEach(
  linesOf: (result: Result, page: OutputStyle) => string[],
): Required<Pick<Verb, "print" | "status">> {
  return {
    print: (result, _given, page) =>
      (result.results ?? [result]).flatMap((one: Result) =>
        one.error ? [`${inert(one.operand)}: ${inert(one.sentence)}`] : linesOf(one, page),
      ),
    status: ({ results = [] }) => (results.some(({ error }: Result) => error) ? FAILURE : OK),
  };
}
