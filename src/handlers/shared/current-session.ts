/** The members of a vetoed replacement's result that name the session that stays current. */

import type { CommandContext } from "./command.ts";

export function whereItStays(context: CommandContext): { sessionId: string; sessionFile: string | null } {
  const { current } = context.workspace;
  return { sessionId: current?.id ?? "", sessionFile: current?.file ?? null };
}
