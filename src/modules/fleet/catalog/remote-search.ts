/** Searches the sessions of a fleet that are not on this machine: its words are asked for, and its lines then read. */

import { tryParse } from "../../../core/json/json.ts";
import type { FoundHits, Hit, Listed, SearchRequest } from "../../../core/ports/catalog.ts";
import type { FleetCatalog, FleetListed, FoundCandidate, TextCursor } from "../../../core/ports/fleet-catalog.ts";
import { packCursor, toExpiredFailure, unpackCursor } from "../../../core/search/listing.ts";
import { fold, getAskedParts, type Query, type Sought, toSought } from "../../../core/search/query.ts";
import { getTexts } from "../../../storage/catalog/documents.ts";
import { WantedTexts } from "../../../storage/catalog/wanted-texts.ts";

/** Texts that are read for one page, at most: words that stand together, or parts without a word, are not indexed. */
const MOST_READ = 5000;
const READ_AT_ONCE = 200;
const WITHOUT_OUTPUT = "the output of tools is searched only in sessions that are on this machine";
const TOO_MANY = `of the sessions that are not on this machine, ${MOST_READ} texts were looked through; give another word`;

type FoundHit = Omit<Hit, "inheritedFrom" | "shortId"> & { readonly candidate: FoundCandidate };

/** Words that are asked for one after the other: whole ones first, then those that hold the terms inside. */
interface Phase {
  readonly words: Sought;
  readonly without?: Sought;
}

interface RemotePlace {
  readonly there: FleetCatalog;
  /** Sessions that are searched here. */
  readonly except: readonly string[];
  toListed(session: FleetListed): Listed;
}

export class RemoteSearch {
  private readonly place: RemotePlace;
  private readonly request: SearchRequest;
  private readonly query: Query;
  private readonly wanted: WantedTexts;
  /** The words that hold the parts of words of the query. */
  private holding: ReturnType<RemoteSearch["wordsHolding"]> = Promise.resolve(undefined);
  /** Ids of the entries on the path to the leaf, by session. */
  private readonly paths = new Map<string, Promise<ReadonlySet<string>>>();

  constructor(place: RemotePlace, request: SearchRequest, query: Query) {
    this.place = place;
    this.request = request;
    this.query = query;
    this.wanted = new WantedTexts(request, query);
  }

  /** Returns the hits after a cursor, the latest first. */
  async page(cursor: string | undefined): Promise<FoundHits> {
    const { limit } = this.request;
    const kinds = new Map([...this.wanted.rolesOfKinds].filter(([kind]) => kind !== "tools"));
    let limited = this.wanted.kinds.includes("tools") ? WITHOUT_OUTPUT : undefined;
    if (kinds.size === 0) return { hits: [], more: false, limited };
    let { number, after } = placeIn(cursor);
    // Most searches need both: while whole words are looked for, the words that hold parts of them are, too.
    this.holding = this.wordsHolding();
    this.holding.catch(() => {});
    const found: FoundHit[] = [];
    let read = 0;
    for (; number < 2; number++, after = undefined) {
      const phase = await this.phase(number);
      while (phase) {
        const count = Math.min(READ_AT_ONCE, limit - found.length + 1);
        const { cwd, since, until } = this.request;
        const asked = { kinds, ...phase, cwd, since, until, except: this.place.except, after, limit: count };
        const candidates = await this.place.there.texts(asked);
        for (const candidate of candidates) {
          const hit = await this.hitIn(candidate, number);
          after = candidate;
          if (!hit) continue;
          if (found.length === limit) return { hits: await this.withOrigins(found), more: true, limited };
          found.push(hit);
        }
        if (candidates.length < count) break;
        read += candidates.length;
        if (read < MOST_READ) continue;
        limited ??= TOO_MANY;
        return { hits: await this.withOrigins(found), more: false, limited };
      }
    }
    return { hits: await this.withOrigins(found), more: false, limited };
  }

  /** Returns the phases of the query to the fleet; undefined if a phase adds nothing. */
  private async phase(number: number): Promise<Phase | undefined> {
    const { query } = this;
    const { marks } = this.wanted;
    const whole = toSought(query, () => undefined).words;
    if (number === 0) return whole && { words: [...marks, ...whole] };
    if (getAskedParts(query).length === 0 && whole) return undefined;
    const known = await this.holding;
    const parts = toSought(query, (part) => known?.get(part)).parts ?? [];
    // No word holds a term but the term itself.
    if (whole && JSON.stringify(parts) === JSON.stringify(whole)) return undefined;
    return { words: [...marks, ...parts], ...(whole ? { without: whole } : {}) };
  }

  private async wordsHolding(): Promise<ReadonlyMap<string, readonly string[]> | undefined> {
    const asked = getAskedParts(this.query);
    return asked.length === 0 ? undefined : this.place.there.wordsWith(asked);
  }

  private async hitIn(candidate: FoundCandidate, phase: number): Promise<FoundHit | undefined> {
    const { position, kind, nth, role, line, entryId, session: facts } = candidate;
    const place = { start: position, length: 0, entry: entryId };
    const texts = getTexts(tryParse(line), role, { kinds: [kind], cwd: facts.cwd }, place);
    const text = texts.find((one) => one.nth === nth);
    if (!text || !this.wanted.wants(text)) return undefined;
    const folded = fold(text.text);
    if (!this.wanted.fits(text, folded)) return undefined;
    const session = this.place.toListed(facts);
    const { path } = session;
    const isOpenOnPath = this.request.isActive(path, entryId);
    const onActivePath = isOpenOnPath ?? (facts.isPlain || (await this.pathOf(facts.id)).has(entryId));
    const cursor = cursorOf(phase, candidate);
    return {
      ...{ path, sessionId: facts.id, entryId, ...this.wanted.shown(text, folded), onActivePath },
      ...{ session, cursor, candidate },
    };
  }

  /** Returns the entries on the path to the last one. */
  private pathOf(sessionId: string): Promise<ReadonlySet<string>> {
    const known = this.paths.get(sessionId);
    if (known) return known;
    const path = this.place.there.heads(sessionId).then((heads) => {
      const parents = new Map(heads);
      const ids = new Set<string>();
      let at = heads.at(-1)?.[0];
      while (at !== undefined && !ids.has(at)) {
        ids.add(at);
        at = parents.get(at) ?? undefined;
      }
      return ids;
    });
    this.paths.set(sessionId, path);
    return path;
  }

  private async withOrigins(found: readonly FoundHit[]): Promise<Hit[]> {
    const forked = found.filter(({ at, candidate }) => at !== null && candidate.session.parentSession !== null);
    const asked = forked.map(({ sessionId, entryId, at, candidate: { kind, nth } }) => ({
      ...{ sessionId, entryId, kind, nth, time: at as number },
    }));
    const origins = asked.length === 0 ? [] : await this.place.there.origins(asked);
    const byHit = new Map(forked.map((hit, n) => [hit, origins[n]]));
    return found.map((hit) => {
      const { candidate, ...rest } = hit;
      const origin = byHit.get(hit);
      return {
        ...rest,
        shortId: candidate.session.shortId,
        inheritedFrom: origin ? this.place.toListed(origin) : undefined,
      };
    });
  }
}

function cursorOf(phase: number, { time, sessionId, position, kind, nth }: TextCursor): string {
  return packCursor(["remote", phase, time, sessionId, position, kind, nth]);
}

function placeIn(cursor: string | undefined): { number: number; after: TextCursor | undefined } {
  if (cursor === undefined) return { number: 0, after: undefined };
  const [mode, number, time, sessionId, position, kind, nth] = unpackCursor(cursor);
  const isPlace =
    mode === "remote" &&
    (number === 0 || number === 1) &&
    (time === null || typeof time === "number") &&
    typeof sessionId === "string" &&
    typeof kind === "string" &&
    Number.isSafeInteger(position) &&
    Number.isSafeInteger(nth);
  if (!isPlace) throw toExpiredFailure(cursor);
  return { number, after: { time, sessionId, position: position as number, kind, nth: nth as number } };
}
