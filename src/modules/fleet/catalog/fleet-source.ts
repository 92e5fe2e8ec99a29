/** The sessions of a fleet, which this machine may have, too, as a source of catalogs. */

import { Failure } from "../../../core/failure.ts";
import type {
  FoundHits,
  Joining,
  Listed,
  Listing,
  ListProgress,
  ListRequest,
  Ordering,
  Overlap,
  OverlappingSource,
  Progress,
  Relative,
  SearchRequest,
  SessionFamily,
  SessionSource,
  UsageReport,
  UsageRequest,
} from "../../../core/ports/catalog.ts";
import { OUR_AGENT } from "../../../core/ports/catalog.ts";
import type { Env } from "../../../core/ports/env.ts";
import type { FleetCatalog, FleetListed } from "../../../core/ports/fleet-catalog.ts";
import {
  findFamily,
  findParents,
  getSortKey,
  makeCursor,
  parseTime,
  readCursor,
  toUnknownIdFailure,
} from "../../../core/search/listing.ts";
import { hasFilter } from "../../../core/search/parts.ts";
import { parseQuery } from "../../../core/search/query.ts";
import { AT, assignHeirs, type CountedSession, ROW_LENGTH, sumCost, sumUsage } from "../../../core/search/usage.ts";
import type { LocalCatalog } from "../../../storage/catalog/catalog.ts";
import { deriveOriginalIds } from "../../../storage/catalog/originals.ts";
import { ModelNames } from "../../../storage/catalog/usage-record.ts";
import { toStorableText } from "../postgres/fact-parts.ts";
import { RemoteSearch } from "./remote-search.ts";

export interface FleetSourceOptions {
  readonly there: FleetCatalog;
  /** The sessions of this machine. */
  readonly local: LocalCatalog;
  readonly sha256: Env["sha256"];
  /** Returns the future path of a session's copy, and its kind of store. */
  placeFor(session: FleetListed): Pick<Listed, "path" | "store">;
}

const WORDLESS =
  "the fleet has no words of what was written with --fleet-search off, which is found on machines that have its sessions";

/** The order of the database: texts by their bytes, and equal sessions by their ids. */
const BY_ID: Ordering = {
  mark: ["fleet"],
  getKey(listed, order) {
    const key = getSortKey(listed, order);
    return typeof key === "string" ? toStorableText(key) : key;
  },
  getTie: ({ id }) => id,
  compareTexts: (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)),
};

type Copies = Overlap["copies"];

export class FleetSource implements SessionSource, OverlappingSource {
  readonly overlapping = this;
  readonly ordering = BY_ID;
  private readonly options: FleetSourceOptions;

  constructor(options: FleetSourceOptions) {
    this.options = options;
  }

  /** This machine has all files of other agents. */
  isAsked({ here, agents }: Pick<ListRequest, "agents" | "here">): boolean {
    return here !== true && (agents === undefined || agents.includes(OUR_AGENT));
  }

  async findOverlap(of: "list" | "search"): Promise<Overlap> {
    const copies = await this.options.local.find();
    const known = await this.options.there.known([...copies.keys()]);
    const covered = new Set<string>();
    for (const [id, { messageCount }] of copies) {
      const there = known.get(id);
      if (!there) continue;
      // Of a session that was deleted, or of one that is sought, this machine may have more.
      const isCovered = there.isDeleted
        ? messageCount <= there.messages
        : of === "list" || messageCount < there.messages;
      if (isCovered) covered.add(id);
    }
    return { copies, covered };
  }

  explainOutage(error: unknown): string | undefined {
    return error instanceof Failure && error.details.fleet === true ? error.message : undefined;
  }

  close(): void {}

  // --- lists and searches ------------------------------------------------------------------------------------------

  async list(request: ListRequest, _progress?: ListProgress, joining?: Joining): Promise<Listing> {
    const { cursor, most, agents, ...asked } = request;
    const order = request.sort ?? "modified";
    const after = cursor === undefined ? undefined : readCursor(cursor, order, BY_ID);
    const { copies } = await (joining?.overlap?.() ?? this.findOverlap("list"));
    const { sessions, total } = await this.options.there.list(
      asked,
      after && { key: after.key, id: after.tie },
      most === undefined ? undefined : most + 1,
    );
    const byId = new Map(sessions.map((session) => [session.id, session]));
    return {
      found: sessions.map((session) => this.listed(session, copies)),
      total,
      parentOf: ({ id }) => byId.get(id)?.parent ?? undefined,
      shortId: (id) => byId.get(id)?.shortId ?? "",
      cursorAfter: (listed) => makeCursor(listed, order, BY_ID),
      ...(order === "cost" ? { limited: await this.coming("usage") } : {}),
    };
  }

  async search(request: SearchRequest, _progress?: Progress, joining?: Joining): Promise<FoundHits> {
    const { there } = this.options;
    const query = parseQuery(request.query) ?? (hasFilter(request) ? [] : null);
    if (!query) return { hits: [], more: false };
    const { copies, covered } = await (joining?.overlap?.() ?? this.findOverlap("search"));
    const except = [...copies.keys()].filter((id) => !covered.has(id));
    const toListed = (session: FleetListed): Listed => this.listed(session, copies);
    const missing = Promise.all([this.coming("words"), there.isMissingWords(except)]);
    missing.catch(() => {});
    const found = await new RemoteSearch({ there, except, toListed }, request, query).page(request.cursor);
    const [coming, isMissingWords] = await missing;
    return { ...found, limited: sentences(found.limited, coming, isMissingWords ? WORDLESS : undefined) };
  }

  // --- usage -------------------------------------------------------------------------------------------------------

  async usage(request: UsageRequest, progress?: Progress): Promise<UsageReport> {
    const { there, local } = this.options;
    const { cwd, archived } = request;
    const counted = await local.counted(request, progress);
    const { copies, covered } = await this.findOverlap("list");
    const isOwn = (id: string): boolean => copies.has(id) && !covered.has(id);
    const spent = await there.spent({ cwd, archived });
    const left = archived ? 0 : (await there.list({ cwd, archived: true, headerOnly: true }, undefined, 0)).total;
    const models = new ModelNames();
    const theirs = spent.map(({ session, spendings }) => {
      const rows: number[] = [];
      for (const { quarter, provider, model, isInherited, numbers } of spendings)
        rows.push(quarter, models.indexOf(provider, model), isInherited ? 1 : 0, ...numbers);
      return { listed: { ...this.listed(session, copies), cost: sumCost(rows) }, usage: { rows, tail: [] } };
    });
    const countedHere = counted.sessions
      .filter(({ listed }) => isOwn(listed.id))
      .map(({ listed, usage }) => ({
        listed,
        usage: usage && {
          rows: renumbered(usage.rows, counted, models),
          tail: renumbered(usage.tail, counted, models),
        },
      }));
    const inherited = await this.withHeirs([...theirs, ...countedHere], copies);
    const shortIds = new Map(spent.map(({ session }) => [session.id, session.shortId]));
    const mine = await local.list({ headerOnly: true, most: 0 });
    const ownArchived = archived ? [] : (await local.list({ cwd, archived: true, headerOnly: true })).found;
    return {
      ...sumUsage(inherited, request, models.all),
      incomplete: counted.incomplete.filter(({ listed }) => !listed || isOwn(listed.id)),
      limited: await this.coming("usage"),
      archivedLeftOut: left + ownArchived.filter(({ id }) => isOwn(id)).length,
      shortId: (id: string) => longer(shortIds.get(id) ?? "", mine.shortId(id)),
    };
  }

  /** Counts entries that forks inherited from missing originals in one of the forks. */
  private async withHeirs(sessions: readonly CountedSession[], local: Copies): Promise<readonly CountedSession[]> {
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
    const { local, there } = this.options;
    const mine = await local.family(of, progress).catch((error) => {
      if (error instanceof Failure && error.name === "session_not_found") return undefined;
      throw error;
    });
    const { copies, covered } = await this.findOverlap("list");
    const theirs = (await there.relatives()).map((session) => this.listed(session, copies));
    const known = new Set([...covered, ...theirs.map(({ id }) => id)]);
    const sessions: Relative[] = [...theirs, ...[...copies.values()].filter(({ id }) => !known.has(id))];
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
      start = this.listed(only, copies);
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
  }

  /** Returns the id of the last entry that a fork shares with its parent, as far as the fleet has both. */
  private async forkedAt(parent: string, child: string): Promise<string | undefined> {
    const [above, below] = [await this.options.there.heads(parent), await this.options.there.heads(child)];
    const ids = new Set(above.map(([id]) => id));
    const first = below.findIndex(([id]) => !ids.has(id));
    return below[(first < 0 ? below.length : first) - 1]?.[0];
  }

  /** Returns a sentence if facts of some sessions are still missing. */
  private async coming(what: "words" | "usage"): Promise<string | undefined> {
    const behind = await this.options.there.behind();
    if (behind === 0) return undefined;
    const whose = behind === 1 ? "a session that was" : `${behind} sessions that were`;
    return `the ${what} of ${whose} brought into the fleet just now ${what === "words" ? "are" : "is"} not all there yet; ask again in a moment`;
  }

  /** Returns a session of the fleet as a list shows it: at its copy, if that is here. */
  private listed(session: FleetListed, copies: Copies): Listed {
    const { id, cwd, name, parentSession, timestamp, modified, messages, firstMessage, sizeBytes, entries } = session;
    const copy = copies.get(id);
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
