/**
 * Makes the rows of the list from its sessions: forks under their originals except by size, and search hits next to
 * named sessions.
 */

import { arrangeFamilies, getIdInPath } from "../../core/search/listing.ts";
import type { BrowsedHit, BrowsedSession, ListRow, ListState } from "./state.ts";

/** Returns the rows of a list. With words, sessions come by name first, then those with hits in their text. */
export function arrangeRows({ sessions, query, whole, found }: Omit<ListState, "rows">): ListRow[] {
  const inFamilies = query.sort === "modified" || query.sort === "created";
  if (query.words.trim() === "") return inFamilies ? family(sessions) : sessions.map(alone);
  const hits = hitsByPath(found && found.words === query.words ? found.hits : []);
  const rows: ListRow[] = sessions.map((session) => ({
    session,
    depth: 0,
    hits: hits.get(session.sessionPath) ?? [],
  }));
  const known = new Map<string, BrowsedSession>(whole.map((session) => [session.sessionPath, session]));
  const listed = new Set<string>(sessions.map(({ sessionPath }) => sessionPath));
  for (const [path, of] of hits) {
    if (listed.has(path)) continue;
    const session = known.get(path) ?? sessionOf(of[0]);
    if (!query.isNamed || session.name !== null) rows.push({ session, depth: 0, hits: of });
  }
  return rows;
}

function alone(session: BrowsedSession): ListRow {
  return { session, depth: 0, hits: [] };
}

function hitsByPath(hits: readonly BrowsedHit[]): Map<string, BrowsedHit[]> {
  const byPath = new Map<string, BrowsedHit[]>();
  for (const hit of hits) {
    const there = byPath.get(hit.sessionPath);
    if (there) there.push(hit);
    else byPath.set(hit.sessionPath, [hit]);
  }
  return byPath;
}

/** Returns a session that is known by a hit alone. */
function sessionOf({ sessionPath, sessionId, shortId, name, firstMessage, cwd, at }: BrowsedHit): BrowsedSession {
  const said = { name: name ?? null, firstMessage: firstMessage ?? null };
  return { sessionPath, sessionId, shortId, cwd: cwd ?? null, ...said, modified: at ?? null };
}

/** Returns the sessions with forks below their originals. */
function family(sessions: readonly BrowsedSession[]): ListRow[] {
  const byPath = new Map<string, BrowsedSession>();
  const byId = new Map<string, BrowsedSession>();
  for (const session of sessions) {
    byPath.set(session.sessionPath, session);
    byId.set(session.sessionId, session);
  }
  const rows = arrangeFamilies(sessions, (session) => {
    const { parentSession, forkedFrom } = session;
    if (typeof parentSession !== "string") return undefined;
    const parent = byPath.get(parentSession) ?? byId.get(forkedFrom?.sessionId ?? getIdInPath(parentSession));
    return parent === session ? undefined : parent;
  });
  return rows.map((row) => ({ ...row, hits: [] }));
}
