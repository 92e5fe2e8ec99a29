/** The sessions that a server in this process has open, after it looked after them. Timers are stopped. */

import { vi } from "vitest";
import type { HereServer, Json } from "./server.ts";

/** Milliseconds after which a server looks at its open sessions. */
export const LOOKS_EVERY = 500;

/** Has the server look after its sessions until none with an id or file is open. */
export async function closedAfterALook(server: HereServer, idOrFile: string): Promise<void> {
  vi.advanceTimersByTime(LOOKS_EVERY);
  await vi.waitUntil(async () => {
    const { sessions } = await server.result("list_open_sessions");
    return sessions.every((open: Json) => open.sessionId !== idOrFile && open.sessionFile !== idOrFile);
  });
}
