/** Searches texts by the catalog's index or, without one, by reading every file. */

import { basename, join } from "node:path";
import type { Hit, Listed, SearchRequest } from "../../core/ports/catalog.ts";
import { makeComparison, packCursor, toExpiredFailure, unpackCursor } from "../../core/search/listing.ts";
import { fold, type Query, score, toExpressions, toFts } from "../../core/search/query.ts";
import {
  findWords,
  getSpeakerShares,
  measureText,
  type RankedTerm,
  rankText,
  type TextMeasure,
  toRankedExpression,
  weighTerm,
} from "../../core/search/ranking.ts";
import { Session } from "../../core/session/session.ts";
import { pause } from "../fs/chunked-io.ts";
import { readClock } from "../fs/clock.ts";
import { useAndClose, useFile } from "../fs/files.ts";
import { matchFolder } from "../fs/folders.ts";
import type { FoundStamp } from "../fs/stamps.ts";
import type { CatalogOptions } from "./cached-rows.ts";
import type { CatalogFile } from "./database.ts";
import { getLineId, type IndexedText, readLogTexts, readTexts, readTextsAt, scanTexts } from "./documents.ts";
import type { Relations } from "./relations.ts";
import type { SessionRow } from "./session-row.ts";
import type { Matches, Numbered, TextKind } from "./text-table.ts";
import { WantedTexts } from "./wanted-texts.ts";

/** Milliseconds of work without a pause. */
const SLICE = 8;
/** Minimum number of hits of whole words in a window. The best come first within a window, the latest window first. */
const WINDOW = 100;
const TEXTS_AT_ONCE = 128;
/** Most sessions that are opened to find the hits that a fork copied: 2 ms each. */
const MOST_PARENTS = 50;
/** Characters of a word's part that is looked for where no word begins with it. */
const LEAST_PART = 4;
/** Texts of a ranked search that are read at once and put in order: the best by their words alone. */
const RANKED_WINDOW = 60;
/** Texts with a word that are looked for, of a word that is not in every few texts, and of one that is. */
const MOST_MATCHES = 100_000;
const SOME_MATCHES = 10_000;
const TOO_COMMON = 4;
/** Texts before and after one that belong to it. */
const NEAR = 2;
/** Characters of a text from which secrets are removed. */
const LONGEST_REDACTED = 1 << 14;

interface FoundText extends Omit<Hit, "session" | "shortId" | "inheritedFrom" | "score"> {
  readonly session: SessionRow;
  readonly score: number;
  readonly number: number;
}

/** The order of texts: the best first, of equal ones the latest. */
type OrderedText = Pick<FoundText, "score" | "at" | "number">;

/** A text with its rating, and its hit, which is made when it is needed; undefined if it is none. */
interface RatedText extends OrderedText {
  score: number;
  make(): FoundText | undefined;
}

/** Start of the next page. */
interface Paged {
  readonly phase: number;
  /** A number above those of all pages: texts that are added later are on no page. */
  readonly ceiling: number;
  readonly top?: number;
  readonly end?: number;
  readonly after?: OrderedText;
}

/** Start of the next page of a ranked search. `rank` and `id`: the text before its window, `after`: the hit before it. */
interface RankedPlace {
  readonly ceiling: number;
  readonly weights: readonly number[];
  readonly above?: { readonly rank: number; readonly id: number };
  readonly after?: OrderedText;
}

const NO_MATCHES: Matches = { ids: new Float64Array(), count: 0 };

export class Search {
  private readonly options: CatalogOptions;
  private readonly rows: ReadonlyMap<string, SessionRow>;
  private readonly request: SearchRequest;
  private readonly query: Query;
  private readonly wanted: WantedTexts;
  private readonly sessions = new Map<string, Session | null>();
  private leafRecords: Set<string> | undefined;

  private readonly relations: Relations;
  private parentsLeft = MOST_PARENTS;

  /** The working directories of sessions that match the request's; undefined if it names none. */
  private readonly cwds: readonly string[] | undefined;

  constructor(
    options: CatalogOptions,
    rows: ReadonlyMap<string, SessionRow>,
    relations: Relations,
    request: SearchRequest,
    query: Query,
  ) {
    this.options = options;
    this.rows = rows;
    this.relations = relations;
    this.request = request;
    this.query = query;
    this.wanted = new WantedTexts(request, query);
    const { cwd } = request;
    if (cwd === undefined) return;
    const isThere = matchFolder(options.disk, cwd);
    this.cwds = [...new Set([...rows.values()].map((row) => row.cwd ?? ""))].filter(isThere);
  }

  close(): void {
    for (const session of this.sessions.values()) session?.close();
  }

  get kinds(): readonly TextKind[] {
    return this.wanted.kinds;
  }

  /**
   * Returns whole words first, then parts of words; the latest windows first, and the best hits first inside each, of
   * equal ones the latest. A cursor names the window and the position in it, so that pages stay consistent when texts are
   * added or removed.
   */
  async indexed(file: CatalogFile): Promise<{ hits: Hit[]; more: boolean }> {
    const { words, parts } = toExpressions(this.query, (part) => file.texts.wordsWith(part));
    const rest = words === undefined ? parts : parts === undefined ? undefined : `(${parts}) NOT (${words})`;
    // Without an expression for parts every text may contain the terms, including those with the words.
    const marks = toFts(this.wanted.marks) || undefined;
    const withMarks = (found: string | undefined): string | undefined =>
      marks === undefined ? found : found === undefined ? marks : `${marks} AND (${found})`;
    const phases = (words === undefined || parts === undefined ? [rest] : [words, rest]).map(withMarks);
    const place = this.pageAtCursor(phases.length) ?? { phase: 0, ceiling: file.texts.ceiling() };
    const { ceiling } = place;
    let { phase, top = ceiling, end, after } = place;
    const { limit } = this.request;
    const kinds = this.wanted.rolesOfKinds;
    const hits: FoundText[] = [];
    while (phase < phases.length) {
      // Hits of parts of words are many, and their ranking means little.
      const size = phase === 0 && words !== undefined ? Math.max(limit, WINDOW) : limit;
      const window = await this.window(file, kinds, phases[phase], top, end, size);
      for (const hit of window.found) {
        if (after && compareFound(after, hit) >= 0) continue;
        if (hits.length === limit) return { hits: this.namedHits(hits), more: true };
        const cursor = packCursor(["index", phase, top, window.end, ceiling, hit.number, hit.score, hit.at]);
        hits.push({ ...hit, cursor });
      }
      after = undefined;
      end = undefined;
      top = window.end;
      if (top > 0) continue;
      phase++;
      top = ceiling;
    }
    return { hits: this.namedHits(hits), more: false };
  }

  private pageAtCursor(phases: number): Paged | undefined {
    const { cursor } = this.request;
    if (cursor === undefined) return undefined;
    const [mode, ...values] = unpackCursor(cursor);
    const [phase, top, end, ceiling, number, score, at] = values as number[];
    const isOurs = mode === "index" && values.length === 7 && typeof score === "number" && isTime(at);
    // Only the score of a text may have a fraction.
    const isPlace = [phase, top, end, ceiling, number].every((value) => Number.isSafeInteger(value) && value >= 0);
    if (!isOurs || !isPlace || phase >= phases) throw toExpiredFailure(cursor);
    return { phase, top, end, ceiling, after: { score, at, number } };
  }

  /** Returns the hits from `top` down to `end`, or `size` of them, best first, and the last number read, 0 at last. */
  private async window(
    file: CatalogFile,
    kinds: ReadonlyMap<TextKind, string | undefined>,
    expression: string | undefined,
    top: number,
    end: number | undefined,
    size: number,
  ): Promise<{ found: FoundText[]; end: number }> {
    const found: FoundText[] = [];
    const sorted = (at: number): { found: FoundText[]; end: number } => ({ found: found.sort(compareFound), end: at });
    let below = top;
    let sliced = readClock();
    for (;;) {
      const places = file.texts.find({
        ...this.request,
        cwds: this.cwds,
        kinds,
        expression,
        below,
        count: TEXTS_AT_ONCE,
      });
      for (const place of places) {
        if (end !== undefined && place.id < end) return sorted(end);
        below = place.id;
        this.addHit(place, found);
        if (end === undefined && found.length >= size) return sorted(below);
        if (readClock() - sliced < SLICE) continue;
        await pause();
        sliced = readClock();
      }
      if (places.length < TEXTS_AT_ONCE) return sorted(end ?? 0);
    }
  }

  private addHit(place: Numbered, found: FoundText[]): void {
    const hit = this.rated(place, (_text, folded) => score(folded, this.query))?.make();
    if (hit) found.push(hit);
  }

  /** Rates a text that fits. Its hit is made when it is needed, because that may remove secrets. */
  private rated(place: Numbered, rate: (text: string, folded: string) => number): RatedText | undefined {
    const row = this.rows.get(place.path);
    if (!row || !this.wanted.wants(place)) return undefined;
    const { id, text: stored } = this.read(place, row) ?? {};
    if (id === undefined || !stored) return undefined;
    const folded = fold(stored.text);
    if (!this.wanted.fits(stored, folded)) return undefined;
    const rated: RatedText = {
      score: rate(stored.text, folded),
      at: place.time,
      number: place.id,
      make: () => {
        const [text, left] = this.fitting(stored, folded, rate) ?? [];
        const hit = text && left !== undefined ? this.hitIn(row, id, text, left) : undefined;
        return hit && { ...hit, score: rated.score, number: place.id };
      },
    };
    return rated;
  }

  /** Returns a text that fits, as it is shown, and folded: without its secrets, if these are removed. */
  private fitting(
    stored: IndexedText,
    folded = fold(stored.text),
    rate?: (text: string, folded: string) => number,
  ): [text: IndexedText, folded: string] | undefined {
    if (!this.wanted.fits(stored, folded)) return undefined;
    const { redact } = this.request;
    if (!redact) return [stored, folded];
    const part = this.partOf(stored.text, folded);
    const shown = redact(part);
    if (shown === stored.text) return [stored, folded];
    const text = { ...stored, text: shown };
    const left = fold(shown);
    // A secret is not found by its own words, else a client could guess it part by part.
    const isPart = part.length < stored.text.length;
    const isFound = isPart
      ? this.query.length === 0 || this.query.some((term) => left.includes(term))
      : this.wanted.fits(text, left);
    return isFound && (rate?.(shown, left) ?? 1) > 0 ? [text, left] : undefined;
  }

  /** Returns a part of a long text around the first place of a term, without halves of words: secrets are removed from that. */
  private partOf(text: string, folded: string): string {
    if (text.length <= LONGEST_REDACTED) return text;
    const places = this.query.map((term) => folded.indexOf(term)).filter((at) => at >= 0);
    const at = Math.floor((Math.min(...places, folded.length) / folded.length) * text.length);
    const from = Math.max(0, Math.min(at, text.length) - LONGEST_REDACTED / 2);
    const part = text.slice(from, from + LONGEST_REDACTED);
    return part.replace(from > 0 ? /^\S{0,2048}/ : "", "").replace(/\S{0,2048}$/, "");
  }

  /** Returns the hit in an entry's text; undefined when the entry does not exist, as one of an interrupted batch. */
  private hitIn(row: SessionRow, entryId: string, found: IndexedText, folded: string) {
    const { path, id: sessionId } = row;
    const onActivePath = this.isActive(path, row, entryId);
    if (onActivePath === undefined) return undefined;
    return { path, sessionId, entryId, ...this.wanted.shown(found, folded), onActivePath, session: row, cursor: "" };
  }

  /**
   * Returns the texts with any of the terms, the best first. The index finds them by their words alone, a window of them is
   * read and put in order. A cursor has the weights of the terms, so that the order does not depend on later texts.
   */
  async ranked(
    file: CatalogFile,
    terms: readonly RankedTerm[],
  ): Promise<{ hits: Hit[]; more: boolean; begins: string }> {
    const kinds = this.wanted.rolesOfKinds;
    const given = this.rankedPlace(terms.length);
    const ceiling = given?.ceiling ?? file.texts.ceiling();
    const marks = toFts(this.wanted.marks);
    const match = (expression: string | undefined): Matches => {
      if (expression === undefined) return NO_MATCHES;
      const marked = marks === "" ? expression : `${marks} AND (${expression})`;
      const some = file.texts.match(kinds, marked, ceiling, SOME_MATCHES);
      const isCommon = some.count * TOO_COMMON > ceiling;
      return some.count <= SOME_MATCHES || isCommon ? some : file.texts.match(kinds, marked, ceiling, MOST_MATCHES);
    };
    const found = terms.map((term) => {
      const matches = match(toRankedExpression(term, (beginning) => file.texts.wordsFrom(beginning)));
      if (matches.count > 0 || term.stem.length < LEAST_PART) return matches;
      // No word is, or begins with it. One may have it within.
      return match(toExpressions([term.stem], (part) => file.texts.wordsWith(part)).parts);
    });
    const { cwds } = this;
    const paths = cwds && [...this.rows.values()].filter(({ cwd }) => cwds.includes(cwd ?? "")).map(({ path }) => path);
    const weights = given?.weights ?? found.map(({ count }, n) => weighTerm(count, ceiling, terms[n].share));
    const { limit } = this.request;
    const hits: FoundText[] = [];
    let { above, after } = given ?? {};
    const begins = packCursor(["ranked", ceiling, weights.join(" ")]);
    for (;;) {
      const places = file.texts.findBest({
        ...this.request,
        paths,
        kinds,
        terms: found.map(({ ids }, n) => ({ ids, weight: weights[n] })),
        shares: getSpeakerShares(),
        below: ceiling,
        above,
        count: RANKED_WINDOW,
      });
      const window = await this.scoredTexts(places, terms, weights);
      for (const rated of window) {
        if (after && compareFound(after, rated) >= 0) continue;
        if (hits.length === limit) return { hits: this.namedHits(hits, true), more: true, begins };
        const hit = rated.make();
        if (!hit) continue;
        const place = [above?.rank ?? null, above?.id ?? null, hit.score, hit.at, hit.number];
        hits.push({ ...hit, cursor: packCursor(["ranked", ceiling, weights.join(" "), ...place]) });
      }
      if (places.length < RANKED_WINDOW) return { hits: this.namedHits(hits, true), more: false, begins };
      after = undefined;
      above = places[places.length - 1];
    }
  }

  private rankedPlace(terms: number): RankedPlace | undefined {
    const { cursor } = this.request;
    if (cursor === undefined) return undefined;
    const [mode, ceiling, packed, rank = null, id = null, score = null, at = null, number = null] =
      unpackCursor(cursor);
    const weights = String(packed).split(" ").map(Number);
    const isPair = (a: unknown, b: unknown): boolean =>
      (a === null && b === null) || (typeof a === "number" && typeof b === "number");
    const isOurs =
      mode === "ranked" && Number.isSafeInteger(ceiling) && isPair(rank, id) && isPair(score, number) && isTime(at);
    if (!isOurs || weights.length !== terms || !weights.every((one) => one >= 0)) throw toExpiredFailure(cursor);
    return {
      ceiling: ceiling as number,
      weights,
      ...(rank === null ? {} : { above: { rank: rank as number, id: id as number } }),
      ...(score === null
        ? {}
        : { after: { score: score as number, at: at as number | null, number: number as number } }),
    };
  }

  private async scoredTexts(places: readonly Numbered[], terms: readonly RankedTerm[], weights: readonly number[]) {
    const found: { readonly rated: RatedText; readonly measure: TextMeasure; readonly place: Numbered }[] = [];
    const titles = new Map<string, number>();
    let sliced = readClock();
    for (const place of places) {
      const { role, kind } = place;
      const speaker = kind === "calls" ? "toolCall" : kind === "tools" ? "output" : role;
      let measure: TextMeasure | undefined;
      const rated = this.rated(place, (text, folded) => {
        measure = measureText(text, folded, terms, weights, speaker);
        return rankText(measure, weights);
      });
      if (rated && rated.score > 0 && measure) found.push({ rated, measure, place });
      if (readClock() - sliced < SLICE) continue;
      await pause();
      sliced = readClock();
    }
    // An answer leaves out words of its question, and both those of the session's title.
    for (const { rated, measure, place } of found) {
      const { path } = place;
      let around = titles.get(path) ?? findWords(this.titleOf(path), terms);
      titles.set(path, around);
      for (const one of found)
        if (one.place.path === path && Math.abs(one.rated.number - rated.number) <= NEAR) around |= one.measure.words;
      rated.score = rankText(measure, weights, around);
    }
    // A question and its answer are one hit: the answer.
    const byNumber = new Map(found.map((one) => [one.rated.number, one]));
    const answered = new Set<RatedText>();
    for (const { rated, place } of found) {
      const before = byNumber.get(place.id - 1);
      if (place.role !== "assistant" || before?.place.role !== "user" || before.place.path !== place.path) continue;
      if (place.kind !== before.place.kind) continue;
      answered.add(before.rated);
      rated.score = Math.max(rated.score, before.rated.score);
    }
    return found.flatMap(({ rated }) => (answered.has(rated) ? [] : rated)).sort(compareFound);
  }

  /** Returns the texts that say what a session is about. */
  private titleOf(path: string): string {
    const { name, firstMessage, cwd } = this.rows.get(path)?.listed ?? {};
    return [name, firstMessage, cwd && basename(cwd)].filter(Boolean).join("\n");
  }

  private read(place: Numbered, row: SessionRow): { id: string; text: IndexedText | undefined } | undefined {
    const wanted = { kinds: [place.kind], cwd: row.cwd };
    if (place.entry !== null) {
      const session = this.session(place.path);
      const position = session?.log.nodes.position(place.entry) ?? -1;
      if (!session || position < 0) return undefined;
      return { id: place.entry, text: readTextsAt(session.log, position, wanted).find(({ nth }) => nth === place.nth) };
    }
    const { disk } = this.options;
    try {
      const found = useFile(disk, disk.openRead(place.path), (fd) => readTexts(disk, fd, place, wanted));
      return found && { id: found.id, text: found.texts.find(({ nth }) => nth === place.nth) };
    } catch {
      // The file was removed or truncated in between; the next call reads it again.
      return undefined;
    }
  }

  /** Returns whether an entry is on the path to its session's leaf; undefined when the session does not have it. */
  private isActive(path: string, row: SessionRow, id: string): boolean | undefined {
    const open = this.request.isActive(path, id);
    if (open !== undefined) return open;
    if (row.plain && !row.batch && !this.hasLeafRecord(row.stamp)) return true;
    const session = this.session(path);
    const position = session?.log.nodes.position(id) ?? -1;
    if (!session || position < 0) return undefined;
    return session.tree.isAncestor(position, session.tree.leaf);
  }

  private hasLeafRecord({ device, inode }: FoundStamp): boolean {
    if (!this.leafRecords) {
      const { disk, paths } = this.options;
      try {
        this.leafRecords = new Set(disk.names(join(paths.state, "leaves")));
      } catch {
        this.leafRecords = new Set();
      }
    }
    return this.leafRecords.has(`${device}-${inode}.json`);
  }

  private session(path: string): Session | null {
    let session = this.sessions.get(path);
    if (session === undefined) {
      const { openLog, env, leaves } = this.options;
      try {
        session = new Session(openLog(path), env, leaves);
      } catch {
        session = null;
      }
      this.sessions.set(path, session);
    }
    return session;
  }

  /** Returns the same hits by reading all files: the most recently active session first, in it the last entry first. */
  async scanned(
    sessions: readonly Listed[],
    until = Number.POSITIVE_INFINITY,
  ): Promise<{ hits: Hit[]; more: boolean; behind?: number }> {
    const { limit, cursor } = this.request;
    // Nothing ranks the texts here.
    this.wanted.leastTerms = Math.ceil(this.query.length / 2);
    const hits: FoundText[] = [];
    let seen = 0;
    const after = cursor === undefined ? undefined : unpackCursor(cursor);
    if (after && (after[0] !== "scan" || typeof after[2] !== "string" || typeof after[3] !== "number"))
      throw toExpiredFailure(cursor as string);
    const compare = makeComparison("modified");
    for (const listed of sessions) {
      if (readClock() > until) return { hits: this.namedHits(hits), more: false, behind: sessions.length - seen };
      seen++;
      if (this.cwds && !this.cwds.includes(listed.cwd ?? "")) continue;
      const place = after ? compare({ modified: after[1], path: after[2] } as Listed, listed) : -1;
      if (place > 0) continue;
      const found = this.scanOne(listed);
      for (let nth = found.length - 1; nth >= 0; nth--) {
        if (place === 0 && nth >= (after?.[3] as number)) continue;
        if (hits.length === limit) return { hits: this.namedHits(hits), more: true };
        hits.push({ ...found[nth], cursor: packCursor(["scan", listed.modified, listed.path, nth]) });
      }
      await pause();
    }
    return { hits: this.namedHits(hits), more: false };
  }

  private scanOne(listed: Listed): FoundText[] {
    const row = this.rows.get(listed.path);
    const found: FoundText[] = [];
    if (!row) return found;
    const wanted = { kinds: this.kinds, cwd: row.cwd };
    const add = (text: IndexedText, entryId: string | null): void => {
      if (entryId === null || !this.wanted.wants(text)) return;
      const [shown, folded] = this.fitting(text) ?? [];
      const hit = shown && folded !== undefined ? this.hitIn(row, entryId, shown, folded) : undefined;
      if (hit) found.push({ ...hit, score: 0, number: 0 });
    };
    try {
      if (row.plain) {
        const { disk } = this.options;
        scanTexts(
          disk,
          listed.path,
          0,
          row.sizeBytes,
          wanted,
          rough(this.request.ranked ? [] : this.query),
          (texts, _past, entry, line) => {
            const id = getLineId(entry, line);
            for (const text of texts) add(text, id);
            return true;
          },
        );
      } else
        useAndClose(this.options.openLog(listed.path), (log) => {
          for (const texts of readLogTexts(log, wanted)) for (const text of texts) add(text, text.entry);
        });
    } catch {
      // It was removed while it was read.
    }
    return found;
  }

  private namedHits(found: readonly FoundText[], isRanked = false): Hit[] {
    return found.map(({ score, number: _number, session, ...hit }) => ({
      ...hit,
      ...(isRanked ? { score } : {}),
      session: session.listed,
      shortId: this.relations.shortId(hit.sessionId),
      inheritedFrom: this.originOf(session, hit)?.listed,
    }));
  }

  /** Returns the session that had an entry first, as far as those it was forked from are known. */
  private originOf(session: SessionRow, { entryId, at }: Pick<Hit, "entryId" | "at">): SessionRow | undefined {
    const seen = new Set<string>();
    let origin: SessionRow | undefined;
    for (let child = session; !seen.has(child.path); ) {
      seen.add(child.path);
      if (child.created === null || at === null || at > child.created) break;
      const parent = this.relations.parentOf(child);
      if (!parent || !this.has(parent.path, entryId)) break;
      origin = parent;
      child = parent;
    }
    return origin;
  }

  /** Returns whether a fork's original has an entry; false after the limit on opened sessions. */
  private has(path: string, entryId: string): boolean {
    if (!this.sessions.has(path) && --this.parentsLeft < 0) return false;
    return (this.session(path)?.log.nodes.position(entryId) ?? -1) >= 0;
  }
}

/** Returns a fast check of a line's bytes that is never false for a line that contains the terms. */
function rough(terms: Query): (line: Uint8Array) => boolean {
  // Terms that JSON may write in another way are not checked.
  const sought = terms.filter((text) => /^[ !#-.0-[\]-~]+$/.test(text));
  if (sought.length === 0) return () => true;
  return (bytes) => {
    const line = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
    // Escaped characters, and the two non-ASCII capitals whose lower-case letters are ASCII.
    if (line.includes("\\u") || line.includes("\xe2\x84\xaa") || line.includes("\xc4\xb0")) return true;
    const lower = line.toLowerCase();
    return sought.every((text) => lower.includes(text));
  };
}

function isTime(value: unknown): boolean {
  return value === null || typeof value === "number";
}

function compareFound(a: OrderedText, b: OrderedText): number {
  const early = Number.NEGATIVE_INFINITY;
  return b.score - a.score || (b.at ?? early) - (a.at ?? early) || b.number - a.number;
}
