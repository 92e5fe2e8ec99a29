/** Text for a person about the other process that writes to a session. */

import { show } from "./terminal/text.ts";

/** Returns the program and the process that hold a session. */
export function formatLockOwner({ client, pid }: { readonly client: string; readonly pid: number }): string {
  return show`${client}${pid > 0 ? ` (process ${pid})` : ""}`;
}
