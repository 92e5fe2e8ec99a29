/** Facts about the sessions of a fleet: gathered by the machine that writes, and sent in the statement with its lines. */

import type { SessionHeader } from "../../../core/format/entry.ts";
import { tryParse } from "../../../core/json/json.ts";
import type { FleetDescription, FleetEnd, FleetFacts, FleetSpending, FleetText } from "../../../core/ports/fleet.ts";
import type { Log } from "../../../core/ports/store.ts";
import { getPathEnds } from "../../../core/search/named-files.ts";
import { fold, splitWords } from "../../../core/search/query.ts";
import { AT, ROW_LENGTH } from "../../../core/search/usage.ts";
import { mayCost } from "../../../core/session/stats.ts";
import { getTexts, type IndexedText } from "../../../storage/catalog/documents.ts";
import {
  EMPTY,
  getHeaderFacts,
  getModified,
  type SessionSummary,
  summariseLog,
} from "../../../storage/catalog/summary.ts";
import { toFileMark, toToolMark } from "../../../storage/catalog/text-index.ts";
import { UsageCounter } from "../../../storage/catalog/usage.ts";
import { ModelNames } from "../../../storage/catalog/usage-record.ts";
import { isSameEnd, NOTHING } from "../postgres/ends.ts";

/** Kinds of searchable texts. Outputs of tools are nine tenths of a session, and are searched locally. */
const KINDS = ["talk", "calls"] as const;
/** Bytes of the words of one text. The database refuses a text with 1 MB of them, and a letter may take four. */
const MOST_WORD_BYTES = 500_000;
/** Members; without any of them, the output of a tool has no texts of these kinds, and no usage. */
const SIGNS = ['"usage"', '"nestedCalls"', '"details"'];
/** Bytes beyond which a line is not looked into. */
const LONGEST_LINE = 64 << 20;

/** Ends that are sent, or about to be, at a time. */
const MOST_COMING = 2;

/** The facts of a session up to an end. */
interface KnownFacts {
  readonly end: FleetEnd;
  readonly summary: SessionSummary;
  readonly isPlain: boolean;
  /** True if all entries so far were inherited by the fork; undefined: see isAllInherited. */
  readonly begins: boolean | undefined;
  readonly description: FleetDescription | undefined;
}

/** The facts of one working copy. Those of the last commit are kept, so that only new entries are read. */
export class CopyFacts {
  private readonly log: Log;
  private known: KnownFacts | undefined;
  /** Facts at ends that were sent, or are about to be. */
  private readonly coming: KnownFacts[] = [];

  constructor(log: Log) {
    this.log = log;
  }

  /** Returns the facts of the entries between two ends; those behind without texts and spendings. */
  between(before: FleetEnd, after: FleetEnd, areBehind = false): FleetFacts {
    const { log } = this;
    const start = this.at(before) ?? this.knownAt(before);
    const past = after.entries;
    // Those of a commit in parts were gathered with these.
    const there = areBehind ? this.at(after) : undefined;
    const summary = there?.summary ?? summariseLog(log, start.summary, past);
    const isPlain = there?.isPlain ?? (start.isPlain && isOnePath(log, before.entries, past));
    const { cwd, name, first: firstMessage, parentSession, timestamp, messages } = summary;
    const labels = summary.labels && Object.values(summary.labels);
    const description = { cwd, name, firstMessage, parentSession, timestamp, ...(labels ? { labels } : {}) };
    const base = makeFactsBase(log.header);
    const found = areBehind
      ? { texts: [], spendings: [], begins: start.begins === false ? false : undefined }
      : extractFacts(log, base, start.begins ?? isAllInherited(log, base, before.entries), before.entries, past);
    if (this.coming.push({ end: after, summary, isPlain, begins: found.begins, description }) > MOST_COMING)
      this.coming.shift();
    const isKnown = start.description && JSON.stringify(start.description) === JSON.stringify(description);
    return {
      counts: { messages, modified: getModified(summary), isPlain },
      ...(isKnown ? {} : { description }),
      texts: found.texts,
      spendings: found.spendings,
      ...(areBehind ? { areBehind } : {}),
    };
  }

  private at(end: FleetEnd): KnownFacts | undefined {
    // The last result counts: an earlier one with the same end may be of other lines.
    const all = this.known ? [this.known, ...this.coming] : this.coming;
    return all.findLast((one) => isSameEnd(one.end, end));
  }

  /** Notes that the facts up to an end are in the fleet. */
  committed(end: FleetEnd): void {
    this.known = this.at(end);
  }

  /** Computes the facts at an end without kept facts. */
  private knownAt(end: FleetEnd): KnownFacts {
    const { log } = this;
    const { entries } = end;
    const summary = entries === 0 ? EMPTY : summariseLog(log, EMPTY, entries);
    const begins = isAllInherited(log, makeFactsBase(log.header), entries);
    const isPlain = isOnePath(log, 0, entries);
    return { end: entries === 0 ? NOTHING : end, summary, isPlain, begins, description: undefined };
  }
}

/** The part of a session's header that its texts and its usage depend on. */
export type FactsBase = Pick<SessionSummary, "id" | "cwd" | "parentSession" | "timestamp"> & {
  readonly importedFrom: unknown;
};

/** Returns that part of a header. */
export function makeFactsBase(header: SessionHeader): FactsBase {
  return { ...getHeaderFacts(header), id: header.id, importedFrom: header.importedFrom };
}

/** The entries of a session, or a stretch of them. */
export type FactsSource = Pick<Log, "nodes" | "length" | "read">;

/** Returns whether the first `count` entries of a session were all taken over from the one that it was forked from. */
export function isAllInherited(source: FactsSource, base: FactsBase, count: number): boolean {
  const counter = counterOf(base, base.parentSession !== null);
  const look = (position: number): void => {
    const entry = entryAt(source, position);
    if (entry) counter.add(entry, "", "");
  };
  // If the last entry is the fork's own, later ones are too; else the first own entry is searched.
  if (counter.begins && count > 0) look(count - 1);
  for (let position = 0; counter.begins && position < count; position++) look(position);
  return counter.begins;
}

/**
 * Returns the texts and the usage of entries, and whether later entries may still be inherited, as earlier ones are if
 * `begins`. `offset`: position of the first entry of the source in its session.
 */
export function extractFacts(
  source: FactsSource,
  base: FactsBase,
  begins: boolean,
  from: number,
  past: number,
  offset = 0,
): { texts: FleetText[]; spendings: FleetSpending[]; begins: boolean } {
  const { nodes } = source;
  const counter = counterOf(base, begins);
  const texts: FleetText[] = [];
  for (let position = from; position < past; position++) {
    const [type, role] = [nodes.type(position), nodes.role(position)];
    if (type !== "message" && !counter.begins && !mayCost(type, role)) continue;
    const entry = entryAt(source, position, role === "toolResult" && !counter.begins ? SIGNS : undefined);
    if (!entry) continue;
    counter.add(entry, type, role);
    const place = { start: position, length: 0, entry: null };
    for (const text of type === "message" ? getTexts(entry, role, { kinds: KINDS, cwd: base.cwd }, place) : [])
      texts.push(fleetText(text, offset + position));
  }
  return { texts, spendings: spendingsOf(counter), begins: counter.begins };
}

function counterOf(base: FactsBase, begins: boolean): UsageCounter {
  const counter = new UsageCounter({ ...EMPTY, ...base }, new ModelNames(), undefined);
  counter.begins = begins;
  return counter;
}

/** Returns an entry; undefined if it cannot be read, or its line has none of the signs. */
function entryAt(
  source: FactsSource,
  position: number,
  signs?: readonly string[],
): Readonly<Record<string, unknown>> | undefined {
  if (source.length(position) > LONGEST_LINE) return undefined;
  const line = source.read(position);
  if (signs && !signs.some((sign) => Buffer.from(line.buffer, line.byteOffset, line.length).includes(sign)))
    return undefined;
  const entry = tryParse(line);
  return typeof entry === "object" && entry !== null ? (entry as Record<string, unknown>) : undefined;
}

/** Returns whether each of some entries continues the one before. */
function isOnePath({ nodes }: Log, from: number, past: number): boolean {
  for (let position = from; position < past; position++) if (nodes.parent(position) !== position - 1) return false;
  return true;
}

function fleetText({ kind, nth, role, time, text, tool, files }: IndexedText, position: number): FleetText {
  const words = keptWords(text);
  const marks = new Set(tool === undefined ? [] : [toToolMark(tool)]);
  for (const file of files) for (const end of getPathEnds(file)) marks.add(toFileMark(end));
  return { position, kind: kind as FleetText["kind"], nth, role, time, words, marks: [...marks] };
}

/** Returns the words of a text, each once, up to the database's limit for a text. */
function keptWords(text: string): string[] {
  const words = new Set<string>();
  let bytes = 0;
  for (const word of splitWords(fold(text))) {
    if (words.has(word)) continue;
    bytes += Buffer.byteLength(word);
    if (bytes > MOST_WORD_BYTES) break;
    words.add(word);
  }
  return [...words];
}

function spendingsOf({ rows, models }: UsageCounter): FleetSpending[] {
  const spendings: FleetSpending[] = [];
  for (let at = 0; at < rows.length; at += ROW_LENGTH)
    spendings.push({
      quarter: rows[at + AT.quarter],
      ...models.all[rows[at + AT.model]],
      isInherited: rows[at + AT.inherited] === 1,
      numbers: rows.slice(at + AT.messages, at + ROW_LENGTH),
    });
  return spendings;
}
