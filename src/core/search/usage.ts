/** Usage over many sessions: the figures of each by quarter of an hour and model, and their sums as a caller asks. */

import type { Listed, ModelUsed, UsageGroup, UsageReport, UsageRequest, UsageRow } from "../ports/catalog.ts";
import { packCursor, toExpiredFailure, unpackCursor } from "./listing.ts";

/** Milliseconds of a quarter of an hour. All time zones differ by whole quarters, so that each has its days of them. */
const QUARTER = 900_000;
const DAY = 86_400_000;
/** The first and the last time that has a day of four digits for the year, in any time zone. */
const FIRST_TIME = Date.UTC(1970, 0, 2);
const LAST_TIME = Date.UTC(9999, 11, 30);

/** The quarter of figures whose time is not known. */
export const NO_QUARTER = -1;

/** Returns the quarter of an hour that a time is in, counted from 1970. */
export function toQuarter(moment: number | null): number {
  return moment !== null && moment >= FIRST_TIME && moment <= LAST_TIME ? Math.floor(moment / QUARTER) : NO_QUARTER;
}

/** Returns when a quarter begins, in milliseconds. */
export function quarterToTime(quarter: number): number {
  return quarter * QUARTER;
}

/**
 * The places of the numbers in a row of figures. The rows of a session are adjacent in one list of numbers: 100,000
 * rows take 9 MB, and are summed in 10 ms.
 */
export const AT = {
  quarter: 0,
  /** The index of the model among all that are known. */
  model: 1,
  /** 1 if it was copied from the session's original, else 0. */
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
  /** Lists of rows; undefined when it cannot be read. */
  readonly usage?: { readonly rows: readonly number[]; readonly tail: readonly number[] };
}

/**
 * Returns the cost of a session itself, without that of entries copied from its original; undefined if it is not known of any
 * of its tokens.
 */
export function sumCost(...figures: readonly (readonly number[])[]): number | undefined {
  let [cost, unpriced] = [0, 0];
  for (const rows of figures)
    for (let at = 0; at < rows.length; at += ROW_LENGTH) {
      if (rows[at + AT.inherited] !== 0) continue;
      cost += rows[at + AT.cost];
      unpriced += rows[at + AT.unpriced];
    }
  return cost === 0 && unpriced > 0 ? undefined : cost;
}

/**
 * Returns sessions with the usage that forks copied from a missing original counted once: in the fork that copied most.
 * `hasOriginal`: returns whether a fork's original exists.
 */
export function assignHeirs(
  sessions: readonly CountedSession[],
  hasOriginal: (listed: Listed) => boolean,
): readonly CountedSession[] {
  const heirs = new Map<string, { readonly path: string; readonly tokens: number }>();
  for (const { listed, usage } of sessions) {
    if (listed.parentSession === null || !usage) continue;
    const tokens = countTakenOver(usage);
    if (tokens === 0 || hasOriginal(listed)) continue;
    if (tokens > (heirs.get(listed.parentSession)?.tokens ?? 0))
      heirs.set(listed.parentSession, { path: listed.path, tokens });
  }
  if (heirs.size === 0) return sessions;
  return sessions.map(({ listed, usage }) => {
    const isHeir = usage && heirs.get(listed.parentSession ?? "")?.path === listed.path;
    return isHeir ? { listed, usage: { rows: asOwn(usage.rows), tail: asOwn(usage.tail) } } : { listed, usage };
  });
}

/** Returns how many tokens, and messages without any, a session took over. */
export function countTakenOver(usage: CountedSession["usage"]): number {
  let tokens = 0;
  for (const list of usage ? [usage.rows, usage.tail] : [])
    for (let at = 0; at < list.length; at += ROW_LENGTH)
      if (list[at + AT.inherited] !== 0) tokens += list[at + AT.total] + list[at + AT.messages];
  return tokens;
}

function asOwn(rows: readonly number[]): number[] {
  return rows.map((value, i) => (i % ROW_LENGTH === AT.inherited ? 0 : value));
}

/** Summed numbers of a session's own entries, and then of those that it copied. */
const SUMMED = ROW_LENGTH - AT.messages;
const COST = AT.cost - AT.messages;
const TOTAL = AT.total - AT.messages;
const UNPRICED = AT.unpriced - AT.messages;
/** Limits on distinct days and models; there are fewer days, and further models count as one without a name. */
const MANY_DAYS = 4_000_000;
export const MANY_MODELS = 1000;
/** The day of figures whose time is not known. */
const NO_DAY = -1;

/** Sums the usage of sessions by the properties of the request. */
export function sumUsage(
  sessions: Iterable<CountedSession>,
  { groupBy, since, until, dayOf }: UsageRequest,
  models: readonly ModelUsed[],
): Pick<UsageReport, "rows" | "totals" | "unpricedModels"> {
  const first = since === undefined ? Number.NEGATIVE_INFINITY : Math.floor(since / QUARTER);
  const past = until === undefined ? Number.POSITIVE_INFINITY : Math.ceil(until / QUARTER);
  const isLimited = since !== undefined || until !== undefined;
  const groups = new Groups(groupBy, models, dayOf);
  const totals = new Float64Array(2 * SUMMED);
  const unpriced = new Map<number, number>();
  let count = 0;
  for (const { listed, usage } of sessions) {
    if (!usage) continue;
    const owner = groups.ownerOf(listed);
    let counts = false;
    for (const rows of [usage.rows, usage.tail])
      for (let at = 0; at < rows.length; at += ROW_LENGTH) {
        const quarter = rows[at];
        if (isLimited && (quarter === NO_QUARTER || quarter < first || quarter >= past)) continue;
        groups.add(owner, rows, at);
        addNumbers(totals, 0, rows, at);
        counts = true;
        const lacking = rows[at + AT.inherited] === 0 ? rows[at + AT.unpriced] : 0;
        if (lacking > 0) unpriced.set(rows[at + AT.model], (unpriced.get(rows[at + AT.model]) ?? 0) + lacking);
      }
    if (counts) count++;
  }
  const unpricedModels = Array.from(unpriced, ([model, messages]) => ({ ...models[model], messages }));
  return {
    rows: groups.sorted(),
    totals: { ...sumsAt(totals, 0), sessions: count },
    unpricedModels: unpricedModels.sort((a, b) => b.messages - a.messages || compare(nameOf(a), nameOf(b))),
  };
}

function addNumbers(sums: Float64Array, base: number, rows: readonly number[], at: number): void {
  const to = base + (rows[at + AT.inherited] === 0 ? 0 : SUMMED);
  for (let i = 0; i < SUMMED; i++) sums[to + i] += rows[at + AT.messages + i];
}

function sumsAt(sums: Float64Array, base: number) {
  return { ...spentAt(sums, base), unpricedMessages: sums[base + UNPRICED], inherited: spentAt(sums, base + SUMMED) };
}

function spentAt(sums: Float64Array, base: number) {
  const [messages, , input, output, cacheRead, cacheWrite, total, cost] = sums.subarray(base, base + SUMMED);
  return { messages, tokens: { input, output, cacheRead, cacheWrite, total }, cost };
}

/** Returns the Monday of the week of a day, both counted from 1970, which began on a Thursday. */
function toMonday(day: number): number {
  return day === NO_DAY ? NO_DAY : day - ((day + 3) % 7);
}

/** Returns the first day of the month of a day, both counted from 1970. */
function toFirst(day: number): number {
  return day === NO_DAY ? NO_DAY : day + 1 - new Date(day * DAY).getUTCDate();
}

function toDate(day: number): string | null {
  return day === NO_DAY ? null : new Date(day * DAY).toISOString().slice(0, 10);
}

/** The groups of one request. Their sums are in one list of numbers, and rows are made only of those that are read. */
class Groups {
  private readonly by: ReadonlySet<UsageGroup>;
  private readonly models: readonly ModelUsed[];
  private readonly dayOf: UsageRequest["dayOf"];
  /** Sessions, or one session of each working directory, by group. */
  private readonly ownerNumbers = new Map<string | null, number>();
  private readonly owners: Listed[] = [];
  private readonly numbers = new Map<number, number>();
  private readonly keys: { readonly owner: number; readonly day: number; readonly model: number }[] = [];
  private sums = new Float64Array(64 * 2 * SUMMED);

  constructor(groupBy: readonly UsageGroup[], models: readonly ModelUsed[], dayOf: UsageRequest["dayOf"]) {
    this.by = new Set(groupBy);
    this.models = models;
    this.dayOf = dayOf;
  }

  ownerOf(listed: Listed): number {
    if (!this.by.has("session") && !this.by.has("cwd")) return 0;
    const name = this.by.has("session") ? listed.path : listed.cwd;
    let owner = this.ownerNumbers.get(name);
    if (owner === undefined) {
      owner = this.owners.push(listed) - 1;
      this.ownerNumbers.set(name, owner);
    }
    return owner;
  }

  add(owner: number, rows: readonly number[], at: number): void {
    const quarter = rows[at];
    const day = this.dayFor(quarter);
    const model = this.by.has("model") ? rows[at + AT.model] : 0;
    // Exact: whole numbers are up to 9e15, which is two million owners.
    const key = (owner * MANY_DAYS + day + 1) * MANY_MODELS + model;
    let group = this.numbers.get(key);
    if (group === undefined) {
      group = this.keys.push({ owner, day, model }) - 1;
      this.numbers.set(key, group);
      if (this.keys.length * 2 * SUMMED > this.sums.length) {
        const wider = new Float64Array(2 * this.sums.length);
        wider.set(this.sums);
        this.sums = wider;
      }
    }
    addNumbers(this.sums, group * 2 * SUMMED, rows, at);
  }

  /** Returns the day that a quarter counts for: that of its week is the Monday, that of its month the first. */
  private dayFor(quarter: number): number {
    const { by } = this;
    if (!by.has("day") && !by.has("week") && !by.has("month")) return 0;
    if (quarter === NO_QUARTER) return NO_DAY;
    const day = this.dayOf(quarter);
    return by.has("day") ? day : by.has("week") ? toMonday(day) : toFirst(day);
  }

  /** Returns the rows, the latest day first, on each day the highest cost first, and then the most tokens. */
  sorted(): UsageReport["rows"] {
    const { keys, sums } = this;
    const order = Array.from(keys, (_, group) => group).sort((a, b) => {
      const [left, right] = [a * 2 * SUMMED, b * 2 * SUMMED];
      return (
        keys[b].day - keys[a].day ||
        sums[right + COST] - sums[left + COST] ||
        sums[right + TOTAL] - sums[left + TOTAL] ||
        compareRows(this.row(a), this.row(b))
      );
    });
    return { count: order.length, row: (index) => this.row(order[index]) };
  }

  private row(group: number): UsageRow {
    const { by } = this;
    const { owner, day, model } = this.keys[group];
    const listed = this.owners[owner];
    return {
      ...(by.has("day") ? { day: toDate(day) } : {}),
      ...(by.has("week") ? { week: toDate(toMonday(day)) } : {}),
      ...(by.has("month") ? { month: toDate(day)?.slice(0, 7) ?? null } : {}),
      ...(by.has("model") ? this.models[model] : {}),
      ...(by.has("cwd") || by.has("session") ? { cwd: listed.cwd } : {}),
      ...(by.has("session") ? { session: listed } : {}),
      ...sumsAt(this.sums, group * 2 * SUMMED),
    };
  }
}

// --- pages -----------------------------------------------------------------------------------------------------------

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function nameOf({ provider, model }: ModelUsed): string {
  return JSON.stringify([provider, model]);
}

/** The part of a row that orders rows. */
type Place = Pick<UsageRow, "day" | "week" | "month" | "provider" | "model" | "cwd" | "cost"> & {
  readonly tokens: { readonly total: number };
  readonly session?: Pick<Listed, "path">;
};

function compareRows(a: Place, b: Place): number {
  return (
    compare(b.day ?? b.week ?? b.month ?? "", a.day ?? a.week ?? a.month ?? "") ||
    b.cost - a.cost ||
    b.tokens.total - a.tokens.total ||
    compare(identity(a), identity(b))
  );
}

/** Returns a text that distinguishes rows of one day; in a cursor, members that a row lacks are null. */
function identity({ provider, model, cwd, session }: Place): string {
  return JSON.stringify([provider, model, cwd, session?.path]);
}

/** Returns the cursor of the page after a row. */
export function makeRowCursor(row: UsageRow, groupBy: readonly UsageGroup[]): string {
  const { month, week = month, day = week, provider, model, cwd, session, cost, tokens } = row;
  return packCursor([groupBy.join(), day, provider, model, cwd, session?.path, cost, tokens.total]);
}

/** Returns the index of the first row after a cursor, in a list that may have changed. Throws cursor_expired. */
export function findIndexAfter(
  rows: UsageReport["rows"],
  cursor: string | undefined,
  groupBy: readonly UsageGroup[],
): number {
  if (cursor === undefined) return 0;
  const [named, day, provider, model, cwd, path, cost, total] = unpackCursor(cursor);
  if (named !== groupBy.join() || typeof cost !== "number" || typeof total !== "number") throw toExpiredFailure(cursor);
  const place = { day, provider, model, cwd, session: { path }, cost, tokens: { total } } as Place;
  let low = 0;
  for (let high = rows.count; low < high; ) {
    const middle = (low + high) >> 1;
    if (compareRows(rows.row(middle), place) > 0) high = middle;
    else low = middle + 1;
  }
  return low;
}
