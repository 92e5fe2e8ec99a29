/** Facts about the sessions of a fleet: gathered by the machine that writes, and sent in the statement with its lines. */

import type { FleetDescription, FleetEnd, FleetFacts, FleetSpending, FleetText } from "../../core/ports/fleet.ts";
import type { Log } from "../../core/ports/store.ts";
import { endsOf } from "../../core/search/named-files.ts";
import { fold, wordsOf } from "../../core/search/query.ts";
import { AT, ROW_LENGTH } from "../../core/search/usage.ts";
import { mayCost } from "../../core/session/stats.ts";
import { type IndexedText, textsOf } from "../catalog/documents.ts";
import { EMPTY, modifiedAt, parsed, type SessionSummary, summaryOfLog } from "../catalog/summary.ts";
import { fileMark, toolMark } from "../catalog/text-index.ts";
import { UsageCounter } from "../catalog/usage.ts";
import { ModelNames } from "../catalog/usage-record.ts";
import { isSameEnd, NOTHING } from "./ends.ts";

/** Kinds of texts that are found. Outputs of tools are nine tenths of a session, and are searched where they are. */
const KINDS = ["talk", "calls"] as const;
/** Letters of the words of one text. What the database makes of them has to stay below 1 MB. */
const MOST_LETTERS = 500_000;
/** Members without one of which the output of a tool has no texts of these kinds, and no usage. */
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
  /** Whether all entries so far were taken over from the session that it was forked from. */
  readonly begins: boolean;
  readonly description: FleetDescription | undefined;
}

/** The facts of one working copy. What was committed last is kept, so that only what is new has to be read. */
export class CopyFacts {
  private readonly log: Log;
  private known: KnownFacts | undefined;
  /** Facts at ends that were sent, or are about to be. */
  private readonly coming: KnownFacts[] = [];

  constructor(log: Log) {
    this.log = log;
  }

  /** Returns the facts of the entries between two ends. */
  between(before: FleetEnd, after: FleetEnd): FleetFacts {
    const { log } = this;
    const start = this.at(before) ?? this.knownAt(before);
    const past = after.entries;
    const summary = summaryOfLog(log, start.summary, past);
    const isPlain = start.isPlain && isOnePath(log, before.entries, past);
    const { cwd, name, first: firstMessage, parentSession, timestamp, messages } = summary;
    const description = { cwd, name, firstMessage, parentSession, timestamp };
    const counter = new UsageCounter(summary, new ModelNames(), undefined);
    counter.begins = start.begins;
    const texts = this.read(before.entries, past, summary, counter);
    if (this.coming.push({ end: after, summary, isPlain, begins: counter.begins, description }) > MOST_COMING)
      this.coming.shift();
    const isKnown = start.description && JSON.stringify(start.description) === JSON.stringify(description);
    return {
      counts: { messages, modified: modifiedAt(summary), isPlain },
      ...(isKnown ? {} : { description }),
      texts,
      spendings: spendingsOf(counter),
    };
  }

  private at(end: FleetEnd): KnownFacts | undefined {
    // What was returned last counts: what came before it to the same end may have been of other lines in between.
    const all = this.known ? [this.known, ...this.coming] : this.coming;
    return all.findLast((one) => isSameEnd(one.end, end));
  }

  /** Notes that the facts up to an end are in the fleet. */
  committed(end: FleetEnd): void {
    this.known = this.at(end);
  }

  /** Returns what is known at an end about which nothing was kept. */
  private knownAt(end: FleetEnd): KnownFacts {
    const { log } = this;
    const { entries } = end;
    const summary = entries === 0 ? EMPTY : summaryOfLog(log, EMPTY, entries);
    const counter = new UsageCounter(summaryOfLog(log, EMPTY, 0), new ModelNames(), undefined);
    // Where the last entry is its own, so is what follows; else all are looked at, up to the first that is.
    if (counter.begins && entries > 0) this.look(entries - 1, counter);
    for (let position = 0; counter.begins && position < entries; position++) this.look(position, counter);
    const isPlain = isOnePath(log, 0, entries);
    return { end: entries === 0 ? NOTHING : end, summary, isPlain, begins: counter.begins, description: undefined };
  }

  private look(position: number, counter: UsageCounter): void {
    const entry = this.entryAt(position);
    if (entry) counter.add(entry, "", "");
  }

  /** Passes entries to the counter. Returns their texts. */
  private read(from: number, past: number, { cwd }: SessionSummary, counter: UsageCounter): FleetText[] {
    const { nodes } = this.log;
    const texts: FleetText[] = [];
    for (let position = from; position < past; position++) {
      const [type, role] = [nodes.type(position), nodes.role(position)];
      if (type !== "message" && !counter.begins && !mayCost(type, role)) continue;
      const entry = this.entryAt(position, role === "toolResult" && !counter.begins ? SIGNS : undefined);
      if (!entry) continue;
      counter.add(entry, type, role);
      const place = { start: position, length: 0, entry: null };
      for (const text of type === "message" ? textsOf(entry, role, { kinds: KINDS, cwd }, place) : [])
        texts.push(fleetText(text, position));
    }
    return texts;
  }

  /** Returns an entry; undefined where it cannot be read, or its line has none of the signs. */
  private entryAt(position: number, signs?: readonly string[]): Readonly<Record<string, unknown>> | undefined {
    const { log } = this;
    if (log.length(position) > LONGEST_LINE) return undefined;
    const line = log.read(position);
    if (signs && !signs.some((sign) => Buffer.from(line.buffer, line.byteOffset, line.length).includes(sign)))
      return undefined;
    const entry = parsed(line);
    return typeof entry === "object" && entry !== null ? (entry as Record<string, unknown>) : undefined;
  }
}

/** Whether each of some entries continues the one before. */
function isOnePath({ nodes }: Log, from: number, past: number): boolean {
  for (let position = from; position < past; position++) if (nodes.parent(position) !== position - 1) return false;
  return true;
}

function fleetText({ kind, nth, role, time, text, tool, files }: IndexedText, position: number): FleetText {
  const words = [...wordsOf(fold(text), MOST_LETTERS)];
  const marks = new Set(tool === undefined ? [] : [toolMark(tool)]);
  for (const file of files) for (const end of endsOf(file)) marks.add(fileMark(end));
  return { position, kind: kind as FleetText["kind"], nth, role, time, words, marks: [...marks] };
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
