/** Verbs that do the same with each of several sessions. */

import { type Asking, CommandFailed, type Given, type Result } from "./asking.ts";
import { type NamedSession, type Preferred, sessionNamed } from "./sessions.ts";
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

/** Returns the result for a single session. Of several, each has its result or its error, and none stops the others. */
export async function doEach(
  sessions: readonly NamedSession[],
  act: (session: NamedSession) => Promise<Result>,
): Promise<Result> {
  if (sessions.length === 1) return act(sessions[0]);
  const results: Result[] = [];
  for (const session of sessions)
    try {
      results.push(await act(session));
    } catch (error) {
      if (!(error instanceof CommandFailed)) throw error;
      results.push({ operand: session.operand, error: error.error, sentence: error.message });
    }
  return { results };
}

/** Returns the printing and the status of such a verb, from the lines about one session. */
export function printingEach(linesOf: (result: Result) => string[]): Required<Pick<Verb, "print" | "status">> {
  return {
    print: (result) =>
      (result.results ?? [result]).flatMap((one: Result) =>
        one.error ? [`${inert(one.operand)}: ${inert(one.sentence)}`] : linesOf(one),
      ),
    status: ({ results = [] }) => (results.some(({ error }: Result) => error) ? FAILURE : OK),
  };
}
