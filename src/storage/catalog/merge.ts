/** Joins sources of sessions to one catalog. A request waits only for the sources that it is about. */

import {
  type Catalog,
  type FoundHits,
  type Hit,
  type Joining,
  type Listed,
  type Listing,
  type ListProgress,
  type ListRequest,
  OUR_AGENT,
  type Overlap,
  type Progress,
  type SearchRequest,
  type SessionSource,
} from "../../core/ports/catalog.ts";
import {
  BY_PATH,
  makeComparison,
  makeCursor,
  packCursor,
  toExpiredFailure,
  unpackCursor,
} from "../../core/search/listing.ts";
import type { LocalCatalog } from "./catalog.ts";

/** Returns the sessions of other agents as a source. */
export function makeForeignSource(theirs: LocalCatalog): SessionSource {
  return sourceOf(theirs, ({ agents }) => agents?.some((agent) => agent !== OUR_AGENT) ?? false);
}

function sourceOf(catalog: LocalCatalog, isAsked: SessionSource["isAsked"]): SessionSource {
  return {
    isAsked,
    list: (...of) => catalog.list(...of),
    search: (request, progress) => catalog.search(request, progress),
    close: () => catalog.close(),
  };
}

/** Joins the sessions of this machine with those of other sources. */
export function joinSources(ours: LocalCatalog, others: readonly SessionSource[]): Catalog {
  const isOurs: SessionSource["isAsked"] = ({ agents = [] }) => agents.length === 0 || agents.includes(OUR_AGENT);
  const sources = [sourceOf(ours, isOurs), ...others];
  const askedBy: (of: Parameters<SessionSource["isAsked"]>[0]) => SessionSource[] = (of) =>
    sources.filter((source) => source.isAsked(of));
  return {
    list: (request, progress) => ask(askedBy(request), (present) => listAll(present, request, progress)),
    search(request, progress) {
      const asked = askedBy(request);
      return ask(asked, (present) => searchAll(asked, present, request, progress));
    },
    usage: (request, progress) =>
      ask(askedBy({ here: request.here }), (present) => (getOverlapping(present) ?? ours).usage(request, progress)),
    family: (of, progress) =>
      ask(askedBy({ here: of.here }), (present) => (getOverlapping(present) ?? ours).family(of, progress)),
    glance: (cwd, limit) => ours.glance(cwd, limit),
    exportIndex: (file) => ours.exportIndex(file),
    close() {
      for (const source of sources) source.close();
    },
  };
}

function getOverlapping(sources: readonly SessionSource[]) {
  return sources.find(({ overlapping }) => overlapping)?.overlapping;
}

/** Asks sources. If the overlapping one cannot be asked now, returns the answer of the others, with the reason. */
async function ask<T extends { readonly limited?: string }>(
  sources: readonly SessionSource[],
  run: (present: readonly SessionSource[]) => Promise<T>,
): Promise<T> {
  try {
    return await run(sources);
  } catch (error) {
    const limited = getOverlapping(sources)?.explainOutage(error);
    if (limited === undefined) throw error;
    return { ...(await run(sources.filter(({ overlapping }) => !overlapping))), limited };
  }
}

function joiningOf(sources: readonly SessionSource[], of: "list" | "search"): Joining {
  const overlapping = getOverlapping(sources);
  if (!overlapping) return { ordering: BY_PATH };
  let found: Promise<Overlap> | undefined;
  const overlap = (): Promise<Overlap> => {
    found ??= overlapping.findOverlap(of);
    return found;
  };
  return { ordering: overlapping.ordering, overlap };
}

async function listAll(
  sources: readonly SessionSource[],
  request: ListRequest,
  progress: ListProgress | undefined,
): Promise<Listing> {
  const joining = joiningOf(sources, "list");
  const order = request.sort ?? "modified";
  const listings: Listing[] = [];
  const part = shareTime(request, sources.length);
  for (const source of sources) listings.push(await source.list(part, progress, joining));
  if (listings.length === 1) return listings[0];
  const compare = makeComparison(order, joining.ordering);
  // The overlapping source knows the parents of its sessions, and no other does.
  const first = listings.findIndex((_, n) => sources[n].overlapping);
  const own = new Set(listings[first]?.found);
  return {
    found: listings.reduce<readonly Listed[]>((all, { found }) => mergeLists(all, found, compare), []),
    total: listings.reduce((sum, { total }) => sum + total, 0),
    totalBytes: listings.reduce<number | undefined>(
      (sum, { totalBytes }) => (sum === undefined || totalBytes === undefined ? undefined : sum + totalBytes),
      0,
    ),
    notRead: listings.flatMap(({ notRead = [] }) => notRead),
    parentOf: (listed) =>
      own.has(listed)
        ? listings[first].parentOf(listed)
        : listings.map((listing) => listing.parentOf(listed)).find((parent) => parent !== undefined),
    shortId: (id) => listings.map(({ shortId }) => shortId(id)).reduce((a, b) => (b.length > a.length ? b : a), ""),
    cursorAfter: (listed) => makeCursor(listed, order, joining.ordering),
    limited: listings.find(({ limited }) => limited !== undefined)?.limited,
    behind: sumBehind(listings),
  };
}

/** Returns a request whose time so many sources can use up one after the other. */
function shareTime<R extends { readonly within?: number }>(request: R, count: number): R {
  return request.within === undefined ? request : { ...request, within: Math.ceil(request.within / count) };
}

function sumBehind(of: readonly { readonly behind?: number }[]): number | undefined {
  return of.reduce((sum, { behind = 0 }) => sum + behind, 0) || undefined;
}

function mergeLists(
  first: readonly Listed[],
  second: readonly Listed[],
  compare: (a: Listed, b: Listed) => number,
): readonly Listed[] {
  const all: Listed[] = [];
  let at = 0;
  for (const listed of first) {
    while (at < second.length && compare(second[at], listed) < 0) all.push(second[at++]);
    all.push(listed);
  }
  return all.concat(second.slice(at));
}

const NO_HITS: FoundHits = { hits: [], more: false };

/** `asked`: the sources that cursors are about, whether or not they are present. */
async function searchAll(
  asked: readonly SessionSource[],
  present: readonly SessionSource[],
  request: SearchRequest,
  progress: Progress | undefined,
): Promise<FoundHits> {
  if (asked.length === 1) return asked[0].search(request, progress);
  const cursors = parseCursors(request.cursor, asked.length);
  const joining = joiningOf(present, "search");
  const { covered } = (await joining.overlap?.()) ?? { covered: new Set<string>() };
  const pages: FoundHits[] = [];
  for (const [n, source] of asked.entries()) {
    const part = shareTime({ ...request, cursor: cursors[n] }, present.length);
    if (!present.includes(source)) pages.push(NO_HITS);
    else if (source.overlapping) pages.push(await source.search(part, progress, joining));
    else pages.push(await searchUncovered(source, part, covered, progress));
  }
  const found = pages.map(({ hits }) => hits);
  // A page of ranked hits goes on where each source began, so that later texts change no order.
  const begun = cursors.map((cursor, n) => cursor ?? pages[n].begins);
  const hits = mergeHits(found, begun).slice(0, request.limit);
  const isRanked = pages.some(({ begins }) => begins !== undefined);
  const isCut = found.flat().length > hits.length;
  return {
    hits,
    more: isCut || pages.some(({ more }) => more),
    notRead: pages.find(({ notRead }) => notRead)?.notRead,
    limited: pages.find(({ limited }) => limited !== undefined)?.limited,
    behind: sumBehind(pages),
    ...(isRanked ? { begins: packCursor(["joint", ...pages.map(({ begins }) => begins ?? null)]) } : {}),
  };
}

/** Searches a source without the sessions that another source answers for. */
async function searchUncovered(
  source: SessionSource,
  request: SearchRequest,
  covered: ReadonlySet<string>,
  progress: Progress | undefined,
): Promise<FoundHits> {
  const first = await source.search(request, progress);
  const hits: Hit[] = [];
  let page = first;
  for (;;) {
    hits.push(...page.hits.filter(({ session }) => session.agent !== undefined || !covered.has(session.id)));
    const cursor = page.hits.at(-1)?.cursor;
    const more = page.more && cursor !== undefined;
    if (!more || hits.length >= request.limit)
      return { ...first, hits: hits.slice(0, request.limit), more: more || hits.length > request.limit };
    page = await source.search({ ...request, cursor }, progress);
  }
}

/** Returns the hits of all sources, the later ones first, or if they are ranked the better ones, as far as the order of each source lets them. */
function mergeHits(found: readonly (readonly Hit[])[], begun: readonly (string | undefined)[]): Hit[] {
  const all: Hit[] = [];
  const cursors = begun.map((cursor) => cursor ?? null);
  const next = found.map(() => 0);
  const compare = (a: Hit, b: Hit): number => (b.score ?? 0) - (a.score ?? 0) || (b.at ?? 0) - (a.at ?? 0);
  for (;;) {
    const left = [...found.keys()].filter((n) => next[n] < found[n].length);
    if (left.length === 0) return all;
    const latest = left.reduce((a, b) => (compare(found[a][next[a]], found[b][next[b]]) > 0 ? b : a));
    const hit = found[latest][next[latest]++];
    cursors[latest] = hit.cursor;
    all.push({ ...hit, cursor: packCursor(["joint", ...cursors]) });
  }
}

function parseCursors(cursor: string | undefined, count: number): (string | undefined)[] {
  if (cursor === undefined) return Array.from({ length: count }, () => undefined);
  const [mode, ...all] = unpackCursor(cursor);
  const isCursor = (value: unknown): boolean => value === null || typeof value === "string";
  if (mode !== "joint" || all.length !== count || !all.every(isCursor)) throw toExpiredFailure(cursor);
  return all.map((one) => (one as string | null) ?? undefined);
}
