/** Usage over many sessions: the figures of each by quarter of an hour and model, and their sums as a caller asks. */

import type {
  Listed,
  ModelUsed,
  UsageGroup,
  UsageReport,
  UsageRequest,
  UsageRow,
  UsageSums,
} from "../ports/catalog.ts";
import { expired, packed, unpacked } from "./listing.ts";

/** Milliseconds of a quarter of an hour. All time zones differ by whole quarters, so that each has its days of them. */
const QUARTER = 900_000;
/** The first and the last time that has a day of four digits for the year, in any time zone. */
const FIRST_TIME = Date.UTC(1970, 0, 2);
const LAST_TIME = Date.UTC(9999, 11, 30);

/** The quarter of figures whose time is not known. */
export const NO_QUARTER = -1;

/** Returns the quarter of an hour that a time is in, counted from 1970. */
export function quarterOf(moment: number | null): number {
  return moment !== null && moment >= FIRST_TIME && moment <= LAST_TIME ? Math.floor(moment / QUARTER) : NO_QUARTER;
}

/** Returns when a quarter begins, in milliseconds. */
export function momentOfQuarter(quarter: number): number {
  return quarter * QUARTER;
}

/**
 * The places of the numbers in a row of figures. The rows of a session lie one after the other in one list of numbers:
 * 100,000 rows take 9 MB, and are summed in 10 ms.
 */
export const AT = {
  quarter: 0,
  /** The index of the model among all that are known. */
  model: 1,
  /** Whether it was taken over from the session that it was forked from: 0 or 1. */
  inherited: 2,
  /** Messages of the assistant. */
  messages: 3,
  /** Those with tokens whose cost is not known, and other entries with such usage. */
  unpriced: 4,
  input: 5,
  output: 6,
  cacheRead: 7,
  cacheWrite: 8,
  total: 9,
  cost: 10,
} as const;
/** Numbers of a row. */
export const ROW_LENGTH = 11;

/** A session whose usage is summed. */
export interface CountedSession {
  readonly listed: Listed;
  /** Lists of rows. */
  readonly figures: readonly (readonly number[])[];
}

/** Returns what a session cost itself, without what it took over. */
export function costOf(figures: readonly (readonly number[])[]): number {
  let cost = 0;
  for (const rows of figures)
    for (let at = 0; at < rows.length; at += ROW_LENGTH) if (rows[at + AT.inherited] === 0) cost += rows[at + AT.cost];
  return cost;
}

/** A row while it is summed. */
type Summed = { -readonly [K in keyof UsageRow]: UsageRow[K] };

/** Sums the usage of sessions by what the request names. */
export function usageOf(
  sessions: Iterable<CountedSession>,
  { groupBy, since, until, dayOf }: UsageRequest,
  models: readonly ModelUsed[],
): Pick<UsageReport, "rows" | "totals" | "unpricedModels"> {
  const first = since === undefined ? Number.NEGATIVE_INFINITY : Math.floor(since / QUARTER);
  const past = until === undefined ? Number.POSITIVE_INFINITY : Math.ceil(until / QUARTER);
  const isLimited = since !== undefined || until !== undefined;
  const by = new Set(groupBy);
  const days = new Numbering<string>();
  const dayOfQuarter = new Map<number, number>([[NO_QUARTER, days.of("")]]);
  const numberOfDay = (quarter: number): number => {
    let day = dayOfQuarter.get(quarter);
    if (day === undefined) {
      day = days.of(dayOf(quarter));
      dayOfQuarter.set(quarter, day);
    }
    return day;
  };
  const owners = new Numbering<string | null>();
  const ownerOf: Listed[] = [];
  const sums = new Map<number, Summed>();
  const totals = { ...noSums(), sessions: 0 };
  const unpriced = new Map<number, number>();
  for (const { listed, figures } of sessions) {
    const owner = by.has("session") ? owners.of(listed.path) : by.has("cwd") ? owners.of(listed.cwd) : 0;
    ownerOf[owner] ??= listed;
    let counts = false;
    for (const rows of figures)
      for (let at = 0; at < rows.length; at += ROW_LENGTH) {
        const quarter = rows[at];
        if (isLimited && (quarter === NO_QUARTER || quarter < first || quarter >= past)) continue;
        const model = rows[at + AT.model];
        const day = by.has("day") ? numberOfDay(quarter) : 0;
        // Exact: there are fewer than a million models, and fewer than four million days.
        const key = (owner * MANY_DAYS + day) * MANY_MODELS + (by.has("model") ? model : 0);
        let sum = sums.get(key);
        if (!sum) {
          sum = { ...noSums(), ...groupOf(by, ownerOf[owner], days.values[day], models[model]) };
          sums.set(key, sum);
        }
        addRow(sum, rows, at);
        addRow(totals, rows, at);
        counts = true;
        if (rows[at + AT.inherited] === 0 && rows[at + AT.unpriced] > 0)
          unpriced.set(model, (unpriced.get(model) ?? 0) + rows[at + AT.unpriced]);
      }
    if (counts) totals.sessions++;
  }
  const unpricedModels = Array.from(unpriced, ([model, messages]) => ({ ...models[model], messages }));
  return {
    rows: [...sums.values()].sort(compareRows),
    totals,
    unpricedModels: unpricedModels.sort((a, b) => b.messages - a.messages || compare(nameOf(a), nameOf(b))),
  };
}

const MANY_DAYS = 4_000_000;
/** Models that are told apart; further ones count as a model without a name. */
export const MANY_MODELS = 1000;

/** Numbers values in the order in which they are met. */
class Numbering<T> {
  readonly values: T[] = [];
  private readonly numbers = new Map<T, number>();
  of(value: T): number {
    let number = this.numbers.get(value);
    if (number === undefined) {
      number = this.values.push(value) - 1;
      this.numbers.set(value, number);
    }
    return number;
  }
}

function noSums() {
  const none = () => ({ messages: 0, tokens: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 }, cost: 0 });
  return { ...none(), unpricedMessages: 0, inherited: none() };
}

/** Returns the members that say what a row is about. */
function groupOf(by: ReadonlySet<UsageGroup>, listed: Listed, day: string, { provider, model }: ModelUsed) {
  return {
    ...(by.has("day") ? { day: day === "" ? null : day } : {}),
    ...(by.has("model") ? { provider, model } : {}),
    ...(by.has("cwd") || by.has("session") ? { cwd: listed.cwd } : {}),
    ...(by.has("session") ? { session: listed } : {}),
  };
}

function addRow(sums: UsageSums & { unpricedMessages: number }, rows: readonly number[], at: number): void {
  const isOwn = rows[at + AT.inherited] === 0;
  const sum: UsageSums["inherited"] = isOwn ? sums : sums.inherited;
  const { tokens } = sum;
  sum.messages += rows[at + AT.messages];
  tokens.input += rows[at + AT.input];
  tokens.output += rows[at + AT.output];
  tokens.cacheRead += rows[at + AT.cacheRead];
  tokens.cacheWrite += rows[at + AT.cacheWrite];
  tokens.total += rows[at + AT.total];
  sum.cost += rows[at + AT.cost];
  if (isOwn) sums.unpricedMessages += rows[at + AT.unpriced];
}

// --- order and pages -------------------------------------------------------------------------------------------------

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function nameOf({ provider = null, model = null }: Partial<ModelUsed>): string {
  return JSON.stringify([provider, model]);
}

/** The part of a row by which rows are ordered. */
type Place = Pick<UsageRow, "day" | "provider" | "model" | "cwd" | "cost"> & {
  readonly tokens: { readonly total: number };
  readonly session?: Pick<Listed, "path">;
};

/** Compares rows: the latest day first, on each day what cost most first, and of equal costs what took most tokens. */
function compareRows(a: Place, b: Place): number {
  return (
    compare(b.day ?? "", a.day ?? "") ||
    b.cost - a.cost ||
    b.tokens.total - a.tokens.total ||
    compare(identity(a), identity(b))
  );
}

/** Returns a text that tells rows of one day apart; in a cursor, members that a row lacks are null. */
function identity({ provider, model, cwd, session }: Place): string {
  return JSON.stringify([provider, model, cwd, session?.path]);
}

/** Returns the cursor of the page after a row. */
export function cursorAfterRow(row: UsageRow, groupBy: readonly UsageGroup[]): string {
  const { day, provider, model, cwd, session, cost, tokens } = row;
  return packed([groupBy.join(), day, provider, model, cwd, session?.path, cost, tokens.total]);
}

/** Returns the rows after a cursor, which stays where it is when rows before it come and go. Throws cursor_expired. */
export function rowsAfter(
  rows: readonly UsageRow[],
  cursor: string | undefined,
  groupBy: readonly UsageGroup[],
): readonly UsageRow[] {
  if (cursor === undefined) return rows;
  const [named, day, provider, model, cwd, path, cost, total] = unpacked(cursor);
  if (named !== groupBy.join() || typeof cost !== "number" || typeof total !== "number") throw expired(cursor);
  const place = { day, provider, model, cwd, session: { path }, cost, tokens: { total } } as Place;
  const from = rows.findIndex((row) => compareRows(row, place) > 0);
  return from < 0 ? [] : rows.slice(from);
}
