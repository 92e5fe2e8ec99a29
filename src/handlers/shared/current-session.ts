/** What a vetoed replacement answers: the session that stays the current one. */

import type { Context } from "./command.ts";

export function whereItStays(context: Context): { sessionId: string; sessionFile: string | null } {
  const { current } = context.workspace;
  return { sessionId: current?.id ?? "", sessionFile: current?.file ?? null };
}
