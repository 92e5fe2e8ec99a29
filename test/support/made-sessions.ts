/** Sessions that a server makes for a test, and how it goes from one to another. */

import { user } from "./drafts.ts";
import type { Json, Wire } from "./server.ts";

export interface MadeSession {
  readonly sessionId: string;
  readonly sessionFile: string;
  readonly entryIds: readonly string[];
  readonly leafId: string;
}

/** Makes a session with entries, or a text of the user's, the current one. */
export async function makeSession(server: Pick<Wire, "result">, ...entries: (Json | string)[]): Promise<MadeSession> {
  const { sessionId, sessionFile } = await server.result("new_session");
  const drafts = entries.map((entry) => (typeof entry === "string" ? user(entry) : entry));
  return { sessionId, sessionFile, ...(await server.result("append", { entries: drafts })) };
}

/** Makes sessions with one message each. */
export async function makeSessions(server: Pick<Wire, "result">, count: number): Promise<MadeSession[]> {
  const made: MadeSession[] = [];
  while (made.length < count) made.push(await makeSession(server, `of ${made.length}`));
  return made;
}

/** Opens sessions by their paths, one after the other. */
export async function openSessions(server: Pick<Wire, "result">, ...paths: string[]): Promise<void> {
  for (const sessionPath of paths) await server.result("open_session", { sessionPath });
}

/** Returns the files of the open sessions with an id. */
export async function filesOf(server: Pick<Wire, "result">, sessionId: string): Promise<string[]> {
  const { sessions } = await server.result("list_open_sessions");
  return sessions.filter((one: Json) => one.sessionId === sessionId).map(({ sessionFile }: Json) => sessionFile);
}
