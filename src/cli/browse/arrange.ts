/**
 * Makes the rows of the list from its sessions: forks under their originals except by size, and search hits next to
 * named sessions.
 */

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
function sessionOf({ sessionPath, sessionId, name, cwd, at }: BrowsedHit): BrowsedSession {
  return { sessionPath, sessionId, cwd: cwd ?? null, name: name ?? null, firstMessage: null, modified: at ?? null };
}

/**
 * Returns the sessions with forks below their originals, in the order of the list: a family stands where the first of
 * it would. Sessions may name each other as parents; each stands once nevertheless.
 */
function family(sessions: readonly BrowsedSession[]): ListRow[] {
  const byPath = new Map<string, BrowsedSession>();
  const byId = new Map<string, BrowsedSession>();
  for (const session of sessions) {
    byPath.set(session.sessionPath, session);
    byId.set(session.sessionId, session);
  }
  const parentOf = (session: BrowsedSession): BrowsedSession | undefined => {
    const { parentSession, forkedFrom } = session;
    if (typeof parentSession !== "string") return undefined;
    const parent = byPath.get(parentSession) ?? byId.get(forkedFrom?.sessionId ?? idIn(parentSession));
    return parent === session ? undefined : parent;
  };
  const children = new Map<BrowsedSession, BrowsedSession[]>();
  for (const session of sessions) {
    const parent = parentOf(session);
    if (!parent) continue;
    const there = children.get(parent);
    if (there) there.push(session);
    else children.set(parent, [session]);
  }
  const rows: ListRow[] = [];
  if (children.size === 0) return sessions.map(alone);
  const placed = new Set<BrowsedSession>();
  for (const session of sessions) {
    if (placed.has(session)) continue;
    const stack = [{ session: topOf(session, parentOf, placed), depth: 0 }];
    while (stack.length > 0) {
      const next = stack.pop() as { session: BrowsedSession; depth: number };
      if (placed.has(next.session)) continue;
      placed.add(next.session);
      rows.push({ ...next, hits: [] });
      const forks = children.get(next.session) ?? [];
      for (let i = forks.length - 1; i >= 0; i--) stack.push({ session: forks[i], depth: next.depth + 1 });
    }
  }
  return rows;
}

/** Returns the original that a session comes from over any number of forks, as far as it has no place yet. */
function topOf(
  session: BrowsedSession,
  parentOf: (session: BrowsedSession) => BrowsedSession | undefined,
  placed: ReadonlySet<BrowsedSession>,
): BrowsedSession {
  const seen = new Set<BrowsedSession>();
  let top = session;
  for (let above = parentOf(top); above && !seen.has(above) && !placed.has(above); above = parentOf(top)) {
    seen.add(top);
    top = above;
  }
  return top;
}

/** Returns the id that the name of a session file ends with. */
function idIn(path: string): string {
  const stem = (path.split(/[/\\]/).pop() ?? "").replace(/\.(?:jsonl|v2)$/, "");
  return stem.slice(stem.lastIndexOf("_") + 1);
}
