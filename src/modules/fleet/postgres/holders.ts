/** The owner of a session of a fleet, as the database stores it. */

import type { Holder } from "../../../core/ports/store.ts";

/** Columns of the owner. */
export const HOLDER = "holder_name, holder_host, holder_since";

/** Returns the owner of a session, from a row with these columns. */
export function parseHolderRow({ holder_name, holder_host, holder_since }: Readonly<Record<string, unknown>>): Holder {
  const client = String(holder_name ?? "another server");
  const host = String(holder_host ?? "another machine");
  return { client, pid: 0, since: String(holder_since ?? ""), host };
}
