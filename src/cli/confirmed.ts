/** Asks before something is done that a person may regret. */

import { Failure } from "../core/failure.ts";
import { UsageError } from "./options.ts";
import type { VerbContext } from "./verb-context.ts";

/** Returns when the answer is yes. Throws UsageError with `alone` if no person can be asked, else cancelled. */
export async function requireYes(
  { confirm }: Pick<VerbContext, "confirm">,
  question: string,
  { alone, refused }: { readonly alone: string; readonly refused: string },
): Promise<void> {
  const answer = await confirm(question);
  if (answer === undefined) throw new UsageError(alone);
  if (!answer) throw new Failure("cancelled", refused);
}
