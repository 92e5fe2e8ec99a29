/**
 * The catalog of our sessions, joined with that of other agents' if a request names them. Each has its own file, so
 * that a request for our sessions never waits for the others to be read.
 */

import {
  type Catalog,
  type Hit,
  type Listed,
  type ListRequest,
  OUR_AGENT,
  type SearchRequest,
} from "../../core/ports/catalog.ts";
import { makeComparison, makeCursor, packCursor, toExpiredFailure, unpackCursor } from "../../core/search/listing.ts";

/** `theirs` makes the catalog of other agents' sessions, when it is first needed. */
export function joinCatalogs(ours: Catalog, makeTheirs: () => Catalog): Catalog {
  let made: Catalog | undefined;
  const theirs = (): Catalog => {
    made ??= makeTheirs();
    return made;
  };
  const wants = ({ agents }: ListRequest | SearchRequest) => ({
    ours: agents === undefined || agents.includes(OUR_AGENT),
    theirs: agents?.some((agent) => agent !== OUR_AGENT) ?? false,
  });
  return {
    async list(request, progress) {
      const wanted = wants(request);
      if (!wanted.theirs) return ours.list(request, progress);
      const listings = [
        ...(wanted.ours ? [await ours.list(request, progress)] : []),
        await theirs().list(request, progress),
      ];
      return {
        found: merged(
          listings.map(({ found }) => found),
          makeComparison(request.sort ?? "modified"),
        ),
        total: listings.reduce((sum, { total }) => sum + total, 0),
        notRead: listings.flatMap(({ notRead = [] }) => notRead),
        parentOf: (listed) => firstOf(listings, (listing) => listing.parentOf(listed)),
        shortId: (id) => longest(listings.map(({ shortId }) => shortId(id))),
        cursorAfter: (listed) => makeCursor(listed, request.sort ?? "modified"),
      };
    },
    async search(request, progress) {
      const wanted = wants(request);
      if (!wanted.theirs) return ours.search(request, progress);
      const [own, other] = parseCursors(request.cursor);
      const none = { hits: [], more: false };
      const mine = wanted.ours ? await ours.search({ ...request, cursor: own }, progress) : none;
      const found = await theirs().search({ ...request, cursor: other }, progress);
      const hits = mergeHits(mine.hits, found.hits, own, other).slice(0, request.limit);
      const left = mine.hits.length + found.hits.length - hits.length;
      return { hits, more: mine.more || found.more || left > 0, notRead: found.notRead };
    },
    usage: (request, progress) => ours.usage(request, progress),
    glance: (cwd, limit) => ours.glance(cwd, limit),
    family: (of, progress) => ours.family(of, progress),
    exportIndex: (file) => ours.exportIndex(file),
    close() {
      ours.close();
      made?.close();
    },
  };
}

/** Returns two ordered lists as one. */
function merged(lists: readonly (readonly Listed[])[], compare: (a: Listed, b: Listed) => number): readonly Listed[] {
  const [first, second] = lists;
  if (!second) return first;
  const all: Listed[] = [];
  let at = 0;
  for (const listed of first) {
    while (at < second.length && compare(second[at], listed) < 0) all.push(second[at++]);
    all.push(listed);
  }
  return all.concat(second.slice(at));
}

/** Returns the hits of both, the later ones first as far as each list's own order lets them. */
export function mergeHits(mine: readonly Hit[], found: readonly Hit[], own?: string, other?: string): Hit[] {
  const all: Hit[] = [];
  let cursors = [own, other];
  for (let i = 0, k = 0; i < mine.length || k < found.length; ) {
    const isMine = k >= found.length || (i < mine.length && (mine[i].at ?? 0) >= (found[k].at ?? 0));
    const hit = isMine ? mine[i++] : found[k++];
    cursors = isMine ? [hit.cursor, cursors[1]] : [cursors[0], hit.cursor];
    all.push({ ...hit, cursor: packCursor(["joint", cursors[0] ?? null, cursors[1] ?? null]) });
  }
  return all;
}

export function parseCursors(cursor: string | undefined): [string | undefined, string | undefined] {
  if (cursor === undefined) return [undefined, undefined];
  const [mode, ...both] = unpackCursor(cursor);
  const isCursor = (value: unknown): boolean => value === null || typeof value === "string";
  if (mode !== "joint" || both.length !== 2 || !both.every(isCursor)) throw toExpiredFailure(cursor);
  const [own, other] = both as (string | null)[];
  return [own ?? undefined, other ?? undefined];
}

function firstOf<T, R>(all: readonly T[], find: (one: T) => R | undefined): R | undefined {
  for (const one of all) {
    const found = find(one);
    if (found !== undefined) return found;
  }
  return undefined;
}

function longest(texts: readonly string[]): string {
  return texts.reduce((a, b) => (b.length > a.length ? b : a));
}
