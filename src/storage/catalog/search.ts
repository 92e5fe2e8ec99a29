/** Searches texts by the catalog's index or, without one, by reading every file. */

import { join } from "node:path";
import type { Hit, Listed, SearchRequest } from "../../core/ports/catalog.ts";
import { comparing, expired, packed, unpacked } from "../../core/search/listing.ts";
import { expressionOf, fold, holds, type Query, score, snippet } from "../../core/search/query.ts";
import { Session } from "../../core/session/session.ts";
import { pause } from "../fs/chunked-io.ts";
import { closing, withFile } from "../fs/files.ts";
import type { FoundStamp } from "../fs/stamps.ts";
import type { CatalogOptions, SessionRow } from "./cached-rows.ts";
import type { CatalogFile, Numbered, TextKind } from "./database.ts";
import { type IndexedText, idIn, KIND_OF_ROLE, logTexts, readText, scanTexts, textAt } from "./documents.ts";

/** Milliseconds of work without a pause. */
const SLICE = 8;
/** Minimum number of hits of whole words in a window. The best come first within a window, the latest window first. */
const WINDOW = 100;
const TEXTS_AT_ONCE = 128;

interface FoundTexts extends Hit {
  readonly score: number;
  readonly number: number;
}

/** Position at which the next page continues. */
interface Paged {
  readonly phase: number;
  /** A number above those of all pages: texts that are added later are on none. */
  readonly ceiling: number;
  readonly top?: number;
  readonly end?: number;
  readonly after?: { readonly score: number; readonly number: number };
}

export class Search {
  private readonly options: CatalogOptions;
  private readonly rows: ReadonlyMap<string, SessionRow>;
  private readonly request: SearchRequest;
  private readonly query: Query;
  private readonly sessions = new Map<string, Session | null>();
  private leafRecords: Set<string> | undefined;

  constructor(options: CatalogOptions, rows: ReadonlyMap<string, SessionRow>, request: SearchRequest, query: Query) {
    this.options = options;
    this.rows = rows;
    this.request = request;
    this.query = query;
  }

  close(): void {
    for (const session of this.sessions.values()) session?.close();
  }

  get kinds(): readonly TextKind[] {
    const { role, toolResults } = this.request;
    if (role !== undefined) return [KIND_OF_ROLE[role] ?? "talk"];
    return toolResults ? ["talk", "tools"] : ["talk"];
  }

  private wants(role: string, time: number | null): boolean {
    const { since, until } = this.request;
    if (this.request.role !== undefined && role !== this.request.role) return false;
    if (since !== undefined && !((time ?? Number.NaN) >= since)) return false;
    return until === undefined || (time ?? Number.NaN) <= until;
  }

  /**
   * Returns whole words first, then parts of words; the latest windows first, and the best hits first inside each. A
   * cursor names the window and the position in it, so that pages stay consistent when texts are added or removed.
   */
  async indexed(file: CatalogFile): Promise<{ hits: Hit[]; more: boolean }> {
    const { words, parts } = expressionOf(this.query, (part) => file.wordsWith(part));
    const rest = words === undefined ? parts : parts === undefined ? undefined : `(${parts}) NOT (${words})`;
    // Without an expression for parts every text may contain the terms, including those with the words.
    const phases = words === undefined || parts === undefined ? [rest] : [words, rest];
    const place = this.pageAtCursor(phases.length) ?? { phase: 0, ceiling: file.ceiling() };
    const { ceiling } = place;
    let { phase, top = ceiling, end, after } = place;
    const { limit } = this.request;
    const hits: FoundTexts[] = [];
    while (phase < phases.length) {
      // Hits of parts of words are many, and their ranking means little.
      const size = phase === 0 && words !== undefined ? Math.max(limit, WINDOW) : limit;
      const window = await this.window(file, phases[phase], top, end, size);
      for (const hit of window.found) {
        if (after && compareFound(after, hit) >= 0) continue;
        if (hits.length === limit) return { hits: withoutRank(hits), more: true };
        const cursor = packed(["index", phase, top, window.end, ceiling, hit.score, hit.number]);
        hits.push({ ...hit, cursor });
      }
      after = undefined;
      end = undefined;
      top = window.end;
      if (top > 0) continue;
      phase++;
      top = ceiling;
    }
    return { hits: withoutRank(hits), more: false };
  }

  private pageAtCursor(phases: number): Paged | undefined {
    const { cursor } = this.request;
    if (cursor === undefined) return undefined;
    const [mode, ...values] = unpacked(cursor);
    const isOurs = mode === "index" && values.length === 6 && values.every((value) => typeof value === "number");
    const [phase, top, end, ceiling, score, number] = values as number[];
    if (!isOurs || phase >= phases) throw expired(cursor);
    return { phase, top, end, ceiling, after: { score, number } };
  }

  /** Returns the hits from `top` down to `end`, or `size` of them, best first, and the last number read, 0 at last. */
  private async window(
    file: CatalogFile,
    expression: string | undefined,
    top: number,
    end: number | undefined,
    size: number,
  ): Promise<{ found: FoundTexts[]; end: number }> {
    const found: FoundTexts[] = [];
    const sorted = (at: number): { found: FoundTexts[]; end: number } => ({ found: found.sort(compareFound), end: at });
    let below = top;
    let sliced = performance.now();
    for (;;) {
      const places = file.texts({ ...this.request, kinds: this.kinds, expression, below, count: TEXTS_AT_ONCE });
      for (const place of places) {
        if (end !== undefined && place.id < end) return sorted(end);
        below = place.id;
        this.addHit(place, found);
        if (end === undefined && found.length >= size) return sorted(below);
        if (performance.now() - sliced < SLICE) continue;
        await pause();
        sliced = performance.now();
      }
      if (places.length < TEXTS_AT_ONCE) return sorted(end ?? 0);
    }
  }

  private addHit(place: Numbered, found: FoundTexts[]): void {
    const row = this.rows.get(place.path);
    const text = row && this.read(place);
    if (!row || !text) return;
    const folded = fold(text.text);
    if (!holds(folded, this.query)) return;
    const hit = this.hitIn(row, text.id, place.role, text.text);
    if (hit) found.push({ ...hit, score: score(folded, this.query), number: place.id });
  }

  /** Returns the hit in an entry's text; undefined when the entry does not exist, as one of an interrupted batch. */
  private hitIn(row: SessionRow, entryId: string, role: string, text: string): Hit | undefined {
    const { path, id: sessionId } = row.listed;
    const onActivePath = this.isActive(path, row, entryId);
    if (onActivePath === undefined) return undefined;
    return { path, sessionId, entryId, role, snippet: snippet(text, this.query), onActivePath, cursor: "" };
  }

  private read(place: Numbered): { id: string; text: string } | undefined {
    if (place.entry !== null) {
      const session = this.session(place.path);
      const position = session?.log.nodes.position(place.entry) ?? -1;
      const text = session && position >= 0 ? textAt(session.log, position) : undefined;
      return text && { id: place.entry, text: text.text };
    }
    const { disk } = this.options;
    try {
      return withFile(disk, disk.openRead(place.path), (fd) => readText(disk, fd, place));
    } catch {
      // The file was removed or truncated meanwhile; the next call reads it again.
      return undefined;
    }
  }

  /** Whether an entry is on the path to its session's leaf; undefined when the session does not have it. */
  private isActive(path: string, row: SessionRow, id: string): boolean | undefined {
    const open = this.request.isActive(path, id);
    if (open !== undefined) return open;
    if (row.now.plain && !row.now.batch && !this.hasLeafRecord(row.stamp)) return true;
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
  async scanned(sessions: readonly Listed[]): Promise<{ hits: Hit[]; more: boolean }> {
    const { limit, cursor, cwd } = this.request;
    const hits: FoundTexts[] = [];
    const after = cursor === undefined ? undefined : unpacked(cursor);
    if (after && (after[0] !== "scan" || typeof after[2] !== "string" || typeof after[3] !== "number"))
      throw expired(cursor as string);
    const compare = comparing("modified");
    for (const listed of sessions) {
      if (cwd !== undefined && listed.cwd !== cwd) continue;
      const place = after ? compare({ modified: after[1], path: after[2] } as Listed, listed) : -1;
      if (place > 0) continue;
      const found = this.scanOne(listed);
      for (let nth = found.length - 1; nth >= 0; nth--) {
        if (place === 0 && nth >= (after?.[3] as number)) continue;
        if (hits.length === limit) return { hits: withoutRank(hits), more: true };
        hits.push({ ...found[nth], cursor: packed(["scan", listed.modified, listed.path, nth]) });
      }
      await pause();
    }
    return { hits: withoutRank(hits), more: false };
  }

  private scanOne(listed: Listed): FoundTexts[] {
    const row = this.rows.get(listed.path);
    const found: FoundTexts[] = [];
    if (!row) return found;
    const wants = (role: string): boolean => this.kinds.includes(KIND_OF_ROLE[role]);
    const fits = ({ role, time, text }: IndexedText): boolean =>
      this.wants(role, time) && holds(fold(text), this.query);
    const add = ({ role, text }: IndexedText, entryId: string | null): void => {
      const hit = entryId === null ? undefined : this.hitIn(row, entryId, role, text);
      if (hit) found.push({ ...hit, score: 0, number: 0 });
    };
    try {
      if (row.now.plain) {
        const possible = rough(this.query);
        const accepts = (role: string, b: Uint8Array, at: number, end: number): boolean =>
          wants(role) && possible(b, at, end);
        scanTexts(this.options.disk, listed.path, 0, row.size, accepts, (text, _past, entry, line) => {
          if (fits(text)) add(text, idIn(entry, line));
          return true;
        });
      } else
        closing(this.options.openLog(listed.path), (log) => {
          for (const text of logTexts(log, wants)) if (fits(text)) add(text, text.entry);
        });
    } catch {
      // It was removed while it was read.
    }
    return found;
  }
}

function withoutRank(hits: readonly FoundTexts[]): Hit[] {
  return hits.map(({ score: _score, number: _number, ...hit }) => hit);
}

/** Returns a fast check of a line's bytes that is never false for a line that contains the terms. */
function rough(terms: Query): (b: Uint8Array, at: number, end: number) => boolean {
  // Terms that JSON may write in another way are not checked.
  const sought = terms.filter((text) => /^[ !#-.0-[\]-~]+$/.test(text));
  if (sought.length === 0) return () => true;
  return (b, at, end) => {
    const line = Buffer.from(b.buffer, b.byteOffset + at, end - at).toString("latin1");
    // Escaped characters, and the two non-ASCII capitals whose lower-case letters are ASCII.
    if (line.includes("\\u") || line.includes("\xe2\x84\xaa") || line.includes("\xc4\xb0")) return true;
    const lower = line.toLowerCase();
    return sought.every((text) => lower.includes(text));
  };
}

function compareFound(a: { score: number; number: number }, b: { score: number; number: number }): number {
  return b.score - a.score || b.number - a.number;
}
