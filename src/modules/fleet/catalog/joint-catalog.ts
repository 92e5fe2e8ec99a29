/**
 * The catalog of a server with a fleet: sessions of the fleet, and those that only this machine has. If the fleet cannot be
 * asked, the result has the local sessions and the reason.
 */

import { Failure } from "../../../core/failure.ts";
import {
  type Catalog,
  type FoundHits,
  type Hit,
  type Listed,
  type Listing,
  type ListProgress,
  type ListRequest,
  type Order,
  OUR_AGENT,
  type Progress,
  type Relative,
  type SearchRequest,
  type SessionFamily,
  type UsageReport,
  type UsageRequest,
} from "../../../core/ports/catalog.ts";
import type { Env } from "../../../core/ports/env.ts";
import type { FleetCatalog, FleetCursor, FleetListed, FleetPresence } from "../../../core/ports/fleet-catalog.ts";
import {
  findFamily,
  findParents,
  getSortKey,
  packCursor,
  parseTime,
  toExpiredFailure,
  toUnknownIdFailure,
  unpackCursor,
} from "../../../core/search/listing.ts";
import { parseQuery } from "../../../core/search/query.ts";
import { AT, assignHeirs, type CountedSession, ROW_LENGTH, sumCost, sumUsage } from "../../../core/search/usage.ts";
import type { LocalCatalog } from "../../../storage/catalog/catalog.ts";
import { mergeHits, parseCursors } from "../../../storage/catalog/joint.ts";
import { deriveOriginalIds } from "../../../storage/catalog/originals.ts";
import { ModelNames } from "../../../storage/catalog/usage-record.ts";
import { toStorableText } from "../postgres/fact-parts.ts";
import { RemoteSearch } from "./remote-search.ts";

export interface FleetCatalogOptions {
  readonly there: FleetCatalog;
  /** The sessions of this machine and, if they are named, those of other agents. */
  readonly here: Catalog;
  /** The sessions of this machine. */
  readonly local: LocalCatalog;
  readonly sha256: Env["sha256"];
  /** Returns the future path of a session's copy, and its kind of store. */
  placeFor(session: FleetListed): Pick<Listed, "path" | "store">;
}

const WORDLESS =
  "the fleet has no words of what was written with --fleet-search off, which is found on machines that have its sessions";

/** Sessions of this machine by their ids. */
type Local = ReadonlyMap<string, Listed>;

export class JointFleetCatalog implements Catalog {
  private readonly options: FleetCatalogOptions;

  constructor(options: FleetCatalogOptions) {
    this.options = options;
  }

  // --- lists -------------------------------------------------------------------------------------------------------

  async list(request: ListRequest, progress?: ListProgress): Promise<Listing> {
    const { here, there } = this.options;
    const { cursor, most, agents, ...asked } = request;
    if (isAboutHere(request)) return here.list(request, progress);
    const mine = await here.list({ ...request, cursor: undefined, most: undefined }, progress);
    const order = request.sort ?? "modified";
    const after = cursor === undefined ? undefined : placeIn(cursor, order);
    return this.orHere<Listing>(
      async () => {
        const local = await this.local();
        const page = await there.list(asked, after, most === undefined ? undefined : most + 1);
        const compare = comparingIds(order);
        const own = (await this.ownOf(mine.found)).sort(compare);
        const rest = after ? own.filter((one) => compareToPlace(one, after, order) > 0) : own;
        const facts = new Map<Listed, FleetListed>();
        const theirs = page.sessions.map((session) => {
          const listed = this.listed(session, local);
          facts.set(listed, session);
          return listed;
        });
        const byId = new Map(page.sessions.map((session) => [session.id, session]));
        return {
          found: merged(theirs, rest, compare),
          total: page.total + own.length,
          notRead: mine.notRead ?? [],
          parentOf: (listed: Listed) => {
            const known = facts.get(listed);
            return known ? (known.parent ?? undefined) : mine.parentOf(listed);
          },
          shortId: (id: string) => longer(byId.get(id)?.shortId ?? "", mine.shortId(id)),
          cursorAfter: (listed: Listed) => cursorOf(listed, order),
          ...(order === "cost" ? { limited: await this.coming("usage") } : {}),
        };
      },
      () => here.list(request, progress),
    );
  }

  glance(cwd: string, limit: number): Promise<readonly Listed[]> {
    return this.options.here.glance(cwd, limit);
  }

  // --- searches ----------------------------------------------------------------------------------------------------

  async search(request: SearchRequest, progress?: Progress): Promise<FoundHits> {
    const { here, there } = this.options;
    if (isAboutHere(request)) return here.search(request, progress);
    const query = parseQuery(request.query) ?? (request.tools || request.file !== undefined ? [] : null);
    if (!query) return { hits: [], more: false };
    const [own, other] = parseCursors(request.cursor);
    return this.orHere<FoundHits>(
      async () => {
        const local = await this.local();
        const known = await there.known([...local.keys()]);
        const isBehind = (id: string): boolean => isLeftToFleet(local.get(id)?.messageCount ?? 0, known.get(id));
        const except = [...local.keys()].filter((id) => !isBehind(id));
        const toListed = (session: FleetListed): Listed => this.listed(session, local);
        const missing = Promise.all([this.coming("words"), there.isMissingWords(except)]);
        missing.catch(() => {});
        const mine = await this.searchHere({ ...request, cursor: own }, isBehind, progress);
        const found = await new RemoteSearch({ there, except, toListed }, request, query).page(other);
        const hits = mergeHits(mine.hits, found.hits, own, other).slice(0, request.limit);
        const left = mine.hits.length + found.hits.length - hits.length;
        const [coming, isMissingWords] = await missing;
        const limited = sentences(found.limited, coming, isMissingWords ? WORDLESS : undefined);
        return { hits, more: mine.more || found.more || left > 0, limited };
      },
      async () => {
        const found = await here.search({ ...request, cursor: own }, progress);
        return { ...found, hits: mergeHits(found.hits, [], own, other) };
      },
    );
  }

  /** Searches this machine, without sessions whose copy is old, or that are deleted. */
  private async searchHere(
    request: SearchRequest,
    isBehind: (id: string) => boolean,
    progress: Progress | undefined,
  ): Promise<FoundHits> {
    const hits: Hit[] = [];
    let more = true;
    for (let { cursor } = request; more && hits.length < request.limit; ) {
      const page = await this.options.here.search({ ...request, cursor }, progress);
      hits.push(...page.hits.filter(({ session, sessionId }) => session.agent !== undefined || !isBehind(sessionId)));
      more = page.more && page.hits.length > 0;
      cursor = page.hits.at(-1)?.cursor;
    }
    return { hits: hits.slice(0, request.limit), more: more || hits.length > request.limit };
  }

  // --- usage -------------------------------------------------------------------------------------------------------

  async usage(request: UsageRequest, progress?: Progress): Promise<UsageReport> {
    const { there, local } = this.options;
    if (request.here) return local.usage(request, progress);
    return this.orHere<UsageReport>(
      async () => {
        const { cwd, archived } = request;
        const counted = await local.counted(request, progress);
        const places = await this.local();
        const spent = await there.spent({ cwd, archived });
        const own = await this.ownOf([...places.values()]);
        const ownIds = new Set(own.map(({ id }) => id));
        const left = archived ? 0 : (await there.list({ cwd, archived: true, headerOnly: true }, undefined, 0)).total;
        const models = new ModelNames();
        const theirs = spent.map(({ session, spendings }) => {
          const rows: number[] = [];
          for (const { quarter, provider, model, isInherited, numbers } of spendings)
            rows.push(quarter, models.indexOf(provider, model), isInherited ? 1 : 0, ...numbers);
          return { listed: { ...this.listed(session, places), cost: sumCost(rows) }, usage: { rows, tail: [] } };
        });
        const countedHere = counted.sessions
          .filter(({ listed }) => ownIds.has(listed.id))
          .map(({ listed, usage }) => ({
            listed,
            usage: usage && {
              rows: renumbered(usage.rows, counted, models),
              tail: renumbered(usage.tail, counted, models),
            },
          }));
        const inherited = await this.withHeirs([...theirs, ...countedHere], places);
        const shortIds = new Map(spent.map(({ session }) => [session.id, session.shortId]));
        const mine = await local.list({ headerOnly: true, most: 0 });
        const ownArchived = archived ? [] : (await local.list({ cwd, archived: true, headerOnly: true })).found;
        return {
          ...sumUsage(inherited, request, models.all),
          incomplete: counted.incomplete.filter(({ listed }) => !listed || ownIds.has(listed.id)),
          limited: await this.coming("usage"),
          archivedLeftOut: left + ownArchived.filter(({ id }) => ownIds.has(id)).length,
          shortId: (id: string) => longer(shortIds.get(id) ?? "", mine.shortId(id)),
        };
      },
      () => local.usage(request, progress),
    );
  }

  /** Counts entries that forks inherited from missing originals in one of the forks. */
  private async withHeirs(sessions: readonly CountedSession[], local: Local): Promise<readonly CountedSession[]> {
    const { there, sha256 } = this.options;
    const parents = new Set(sessions.map(({ listed }) => listed.parentSession).filter((path) => path !== null));
    const idsOf = new Map(Array.from(parents, (path) => [path, deriveOriginalIds(path, sha256)]));
    const known = await there.known([...new Set([...idsOf.values()].flat())]);
    const begin = new Set([...local.keys(), ...sessions.map(({ listed }) => listed.id)].map((id) => id.slice(0, 8)));
    return assignHeirs(sessions, ({ parentSession }) =>
      // pi_agent_rust names files by the first eight characters.
      (idsOf.get(parentSession ?? "") ?? []).some(
        (id) => known.get(id)?.isDeleted === false || local.has(id) || begin.has(id),
      ),
    );
  }

  // --- families ----------------------------------------------------------------------------------------------------

  async family(of: { id: string; open?: Relative; here?: boolean }, progress?: Progress): Promise<SessionFamily> {
    const { here, there } = this.options;
    if (of.here) return here.family(of, progress);
    const mine = await here.family(of, progress).catch((error) => {
      if (error instanceof Failure && error.name === "session_not_found") return undefined;
      throw error;
    });
    return this.orHere<SessionFamily>(
      async () => {
        const local = await this.local();
        const theirs = (await there.relatives()).map((session) => this.listed(session, local));
        const known = new Set(theirs.map(({ id }) => id));
        const own = await this.ownOf([...local.values()].filter(({ id }) => !known.has(id)));
        const sessions: Relative[] = [...theirs, ...own];
        const { open } = of;
        if (open && !sessions.some(({ id }) => id === open.id)) sessions.push(open);
        let start = sessions.find(({ id }) => id === of.id);
        if (!start) {
          // A session without relatives.
          const alone = async (archived: boolean) => {
            const { sessions: found } = await there.list(
              { query: of.id, archived, headerOnly: true },
              undefined,
              undefined,
            );
            return found.find(({ id }) => id === of.id);
          };
          const only = (await alone(false)) ?? (await alone(true));
          if (!only) throw toUnknownIdFailure(of.id);
          start = this.listed(only, local);
          sessions.push(start);
        }
        const parents = findParents(sessions);
        const { root, members } = findFamily(sessions, parents, start);
        const nodes: Relative[] = [];
        for (const member of members) {
          const parent = parents.get(member);
          const seen = mine?.nodes.find(({ id }) => id === member.id)?.forkedAtEntryId;
          const forkedAtEntryId = seen ?? (parent && (await this.forkedAt(parent.id, member.id)));
          const { path, id, parentSession } = member;
          nodes.push({ path, id, parentSession, ...(forkedAtEntryId === undefined ? {} : { forkedAtEntryId }) });
        }
        return { root: root?.id ?? null, nodes };
      },
      async () => mine ?? here.family(of, progress),
    );
  }

  /** Returns the id of the last entry that a fork shares with its parent, as far as the fleet has both. */
  private async forkedAt(parent: string, child: string): Promise<string | undefined> {
    const [above, below] = [await this.options.there.heads(parent), await this.options.there.heads(child)];
    const ids = new Set(above.map(([id]) => id));
    const first = below.findIndex(([id]) => !ids.has(id));
    return below[(first < 0 ? below.length : first) - 1]?.[0];
  }

  exportIndex(file: string): Promise<number> {
    return this.options.here.exportIndex(file);
  }

  close(): void {
    this.options.here.close();
  }

  // --- both ---------------------------------------------------------------------------------------------------------

  /** Asks the fleet. If that fails, returns the local result, and why it is incomplete. */
  private async orHere<T extends object>(
    ask: () => Promise<T>,
    otherwise: () => Promise<T>,
  ): Promise<T & { limited?: string }> {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof Failure) || error.details.fleet !== true) throw error;
      return { ...(await otherwise()), limited: error.message };
    }
  }

  /** Returns a sentence if facts of some sessions are still missing. */
  private async coming(what: "words" | "usage"): Promise<string | undefined> {
    const behind = await this.options.there.behind();
    if (behind === 0) return undefined;
    const whose = behind === 1 ? "a session that was" : `${behind} sessions that were`;
    return `the ${what} of ${whose} brought into the fleet just now ${what === "words" ? "are" : "is"} not all there yet; ask again in a moment`;
  }

  /** Returns the sessions that the fleet neither has nor has deleted. Of a deleted one, this machine may have more. */
  private async ownOf(found: readonly Listed[]): Promise<Listed[]> {
    const known = await this.options.there.known(idsOf(found));
    return found.filter(({ agent, id, messageCount }) => {
      const there = known.get(id);
      return agent !== undefined || there === undefined || (there.isDeleted && !isLeftToFleet(messageCount, there));
    });
  }

  private async local(): Promise<Local> {
    const { local } = this.options;
    const [listed, archived] = [
      await local.list({ headerOnly: true }),
      await local.list({ archived: true, headerOnly: true }),
    ];
    return new Map([...archived.found, ...listed.found].map((one) => [one.id, one]));
  }

  /** Returns a session of the fleet as a list shows it: at its copy, if that is here. */
  private listed(session: FleetListed, local: Local): Listed {
    const { id, cwd, name, parentSession, timestamp, modified, messages, firstMessage, sizeBytes, entries } = session;
    const copy = local.get(id);
    return {
      ...(copy ? { path: copy.path, store: copy.store } : { ...this.options.placeFor(session), isRemote: true }),
      ...{
        id,
        cwd,
        name,
        parentSession,
        created: parseTime(timestamp),
        modified,
        messageCount: messages,
        firstMessage,
      },
      ...{ sizeBytes, headerOnly: entries === 0, archived: session.archived },
      ...(session.cost === undefined ? {} : { cost: session.cost }),
    };
  }
}

function sentences(...all: readonly (string | undefined)[]): string | undefined {
  return all.filter((one) => one !== undefined).join("; ") || undefined;
}

/** Returns whether a request is only about this machine, which has all files of other agents. */
function isAboutHere({ here, agents }: ListRequest | SearchRequest): boolean {
  return here === true || (agents !== undefined && !agents.includes(OUR_AGENT));
}

function idsOf(sessions: readonly Listed[]): string[] {
  return sessions.filter(({ agent }) => agent === undefined).map(({ id }) => id);
}

/** Returns whether the fleet's answer counts, not that of a local copy with so many messages. */
function isLeftToFleet(messages: number, there: FleetPresence | undefined): boolean {
  if (there === undefined) return false;
  return there.isDeleted ? messages <= there.messages : messages < there.messages;
}

function longer(a: string, b: string): string {
  return a.length > b.length ? a : b;
}

/** Returns rows of figures with the numbers of their models in a common list. */
function renumbered(
  rows: readonly number[],
  { models }: { readonly models: readonly { provider: string | null; model: string | null }[] },
  into: ModelNames,
): number[] {
  const copy = [...rows];
  for (let at = 0; at < copy.length; at += ROW_LENGTH) {
    const { provider, model } = models[copy[at + AT.model]];
    copy[at + AT.model] = into.indexOf(provider, model);
  }
  return copy;
}

// --- the order of a list: as the database sorts ------------------------------------------------------------------------

/** Returns the sort key of a session, as the database computes it. */
function sortedBy(listed: Listed, order: Order): number | string {
  const key = getSortKey(listed, order);
  return typeof key === "string" ? toStorableText(key) : key;
}

/** Returns how two keys are ordered, the first of a list first: names by their bytes. */
function compareKeys(a: number | string, b: number | string): number {
  if (typeof a === "string" && typeof b === "string") return Buffer.compare(Buffer.from(a), Buffer.from(b));
  return a === b ? 0 : a > b ? -1 : 1;
}

function compareToPlace(listed: Listed, { key, id }: FleetCursor, order: Order): number {
  return compareKeys(sortedBy(listed, order), key) || Buffer.compare(Buffer.from(id), Buffer.from(listed.id));
}

function comparingIds(order: Order): (a: Listed, b: Listed) => number {
  return (a, b) => compareToPlace(a, { key: sortedBy(b, order), id: b.id }, order);
}

function merged(a: readonly Listed[], b: readonly Listed[], compare: (a: Listed, b: Listed) => number): Listed[] {
  const all: Listed[] = [];
  let at = 0;
  for (const one of a) {
    while (at < b.length && compare(b[at], one) < 0) all.push(b[at++]);
    all.push(one);
  }
  return all.concat(b.slice(at));
}

function cursorOf(listed: Listed, order: Order): string {
  const key = sortedBy(listed, order);
  return packCursor(["fleet", order, key === Number.NEGATIVE_INFINITY ? null : key, listed.id]);
}

function placeIn(cursor: string, order: Order): FleetCursor {
  const [mode, named, key, id] = unpackCursor(cursor);
  const isKey = key === null || typeof key === (order === "name" ? "string" : "number");
  if (mode !== "fleet" || named !== order || typeof id !== "string" || !isKey) throw toExpiredFailure(cursor);
  return { key: (key as number | string | null) ?? Number.NEGATIVE_INFINITY, id };
}
