/** Times as people write them: `2d`, `yesterday`, `last week`, `monday`, `march`, `2026-03`, or ISO 8601. */

import { UsageError } from "./options.ts";
import type { VerbContext } from "./verb.ts";

const SECOND = 1000;
const DAY = 86_400_000;
/** Units by their names: milliseconds of those of constant length, and months of the others. */
const UNITS = new Map(
  (
    [
      ["s sec second", SECOND, 0],
      ["m min minute", 60_000, 0],
      ["h hr hour", 3_600_000, 0],
      ["d day", DAY, 0],
      ["w wk week", 7 * DAY, 0],
      ["mo mon month", 0, 1],
      ["y yr year", 0, 12],
    ] as const
  ).flatMap(([names, length, months]) => names.split(" ").map((name) => [name, { length, months }] as const)),
);
/** Returns a unit by its name or the plural of it. */
const findUnit = (name = "") => UNITS.get(name) ?? UNITS.get(name.replace(/(?<=..)s$/, ""));

const WEEKDAYS = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
const MONTHS = "january february march april may june july august september october november december".split(" ");

/** A date of the calendar with a time of day; months and days beyond their ends count on. */
interface Calendar {
  readonly year: number;
  /** 0 to 11. */
  readonly month: number;
  readonly day: number;
  readonly hour?: number;
  readonly minute?: number;
  readonly second?: number;
}

/**
 * Returns the moment that a text names, in milliseconds since 1970; undefined when it names none. A day, week, month or
 * year is its beginning, and one without a year is the last that has begun. `zone` is an IANA name.
 */
export function parseMoment(text: string, now: number, zone: string): number | undefined {
  const words = text.trim().toLowerCase().replace(/,/g, " ").replace(/\s+/g, " ");
  if (words === "now") return now;
  const date = dateIn(words, calendarAt(now, zone), (calendar) => instantOf(calendar, zone) <= now);
  const moment = date ? instantOf(date, zone) : (agoIn(words, now, zone) ?? absoluteIn(text.trim()));
  return moment !== undefined && Math.abs(moment) <= 8.64e15 ? moment : undefined;
}

/** Returns the moment that an option names, in ISO 8601; undefined when it is not given. Throws UsageError. */
export function parseTimeFlag(
  flags: ReadonlyMap<string, string>,
  name: string,
  { page, variables }: Pick<VerbContext, "page" | "variables">,
): string | undefined {
  const text = flags.get(name);
  if (text === undefined) return undefined;
  const { now } = page(0);
  const moment = parseMoment(text, now, resolveTimeZone(variables.TZ));
  if (moment === undefined)
    throw new UsageError(
      `${name} takes a time, such as 2d, yesterday, "last week", monday, march, 2026-03 or 2026-03-14T15:00; it got ${text}.`,
    );
  if (name === "--since" && moment > now) throw new UsageError(`${name} takes a time in the past; ${text} is to come.`);
  return new Date(moment).toISOString();
}

/**
 * Returns the same for sessions or files that are to be moved or removed. Throws UsageError for `3m` as well: a person may
 * mean months.
 */
export function parseAgeFlag(
  flags: ReadonlyMap<string, string>,
  name: string,
  context: Pick<VerbContext, "page" | "variables">,
): string | undefined {
  const [, minutes] = /(\d+)\s*m(?: ago)?$/i.exec(flags.get(name)?.trim() ?? "") ?? [];
  if (minutes !== undefined)
    throw new UsageError(`${name} ${minutes}m is a time some minutes ago. For months give ${name} ${minutes}mo.`);
  return parseTimeFlag(flags, name, context);
}

/** Returns a zone that exists: the one that is named or, otherwise, that of the system. */
export function resolveTimeZone(name: string | undefined): string {
  const system = new Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!name) return system;
  try {
    return new Intl.DateTimeFormat("en", { timeZone: name.replace(/^:/, "") }).resolvedOptions().timeZone;
  } catch {
    return system;
  }
}

/** Returns the milliseconds of a duration: `30m`, `2 hours`, `1d`; undefined if it is none. */
export function parseDuration(text: string): number | undefined {
  const [, count, unit] = /^(\d{1,6}) ?([a-z]+)$/.exec(text.trim().toLowerCase()) ?? [];
  return Number(count) * (findUnit(unit)?.length ?? 0) || undefined;
}

const NUMBERS = "one two three four five six seven eight nine ten".split(" ");
const AGO = new RegExp(`^(?:(?:last|past|previous) )?(\\d{1,6}|an?|${NUMBERS.join("|")}) ?([a-z]+?)(?: ago)?$`);

/** Returns how long ago: `2d`, `3 hours ago`, `two weeks ago`, `1mo`. */
function agoIn(words: string, now: number, zone: string): number | undefined {
  const [, count, name] = AGO.exec(words) ?? [];
  const unit = findUnit(name);
  if (!unit) return undefined;
  const number = /\d/.test(count) ? Number(count) : Math.max(1, NUMBERS.indexOf(count) + 1);
  if (unit.length > 0) return now - number * unit.length;
  const there = calendarAt(now, zone);
  const month = there.month - number * unit.months;
  // A month ago on the 31st of March is the last of February.
  const last = new Date(Date.UTC(there.year, month + 1, 0)).getUTCDate();
  return instantOf({ ...there, month, day: Math.min(there.day, last) }, zone);
}

/** Returns a time that needs no clock to be known: ISO 8601 with its zone. */
function absoluteIn(text: string): number | undefined {
  if (!/^[+-]?\d{4,6}-\d\d-\d\d[T ].*(?:z|[+-]\d\d:?\d\d)$/i.test(text)) return undefined;
  const moment = Date.parse(text.replace(" ", "T"));
  return Number.isNaN(moment) ? undefined : moment;
}

type HasBegun = (calendar: Calendar) => boolean;

/** Returns the date that words name. */
function dateIn(words: string, today: Calendar, hasBegun: HasBegun): Calendar | undefined {
  const { year, month, day } = today;
  if (words === "today") return { year, month, day };
  if (words === "yesterday") return { year, month, day: day - 1 };
  return periodIn(words, today) ?? numbersIn(words, today) ?? namedDayIn(words, today, hasBegun);
}

/** Returns the beginning of `this week`, `last month` and the like. Weeks begin on Monday. */
function periodIn(words: string, { year, month, day }: Calendar): Calendar | undefined {
  const [, which, period] = /^(this|last|past|previous) (day|week|month|year)$/.exec(words) ?? [];
  if (period === undefined) return undefined;
  const back = which === "this" ? 0 : 1;
  if (period === "day") return { year, month, day: day - back };
  if (period === "week") return { year, month, day: day - ((weekdayOf({ year, month, day }) + 6) % 7) - 7 * back };
  if (period === "month") return { year, month: month - back, day: 1 };
  return { year: year - back, month: 0, day: 1 };
}

/** Returns a date, or a time of today, that is written in numbers. */
function numbersIn(words: string, today: Calendar): Calendar | undefined {
  const clock = /^(\d\d?):(\d\d)(?::(\d\d))?$/.exec(words);
  if (clock) return checked({ ...today, ...timeOf(clock[1], clock[2], clock[3]) });
  const iso = /^(\d{4})(?:-(\d\d?)(?:-(\d\d?)(?:[t ](\d\d?):(\d\d)(?::(\d\d)(?:\.\d+)?)?)?)?)?$/.exec(words);
  if (!iso) return undefined;
  const [, year, month = "1", day = "1", hour, minute, second] = iso;
  return checked({ year: Number(year), month: Number(month) - 1, day: Number(day), ...timeOf(hour, minute, second) });
}

function timeOf(hour = "0", minute = "0", second = "0") {
  return { hour: Number(hour), minute: Number(minute), second: Number(second) };
}

/** Returns a date that is in the calendar. */
function checked(date: Calendar): Calendar | undefined {
  const { year, month, day, hour = 0, minute = 0, second = 0 } = date;
  const there = new Date(utcOf({ year, month, day }));
  const isThere = there.getUTCMonth() === month && there.getUTCDate() === day;
  return isThere && hour < 25 && minute < 60 && second < 60 ? date : undefined;
}

/** Returns the day of `monday`, `last friday`, `march`, `14 march`, `mar 14 2025`: the last that has begun. */
function namedDayIn(words: string, today: Calendar, hasBegun: HasBegun): Calendar | undefined {
  const isBefore = /^(?:last|past|previous) /.test(words);
  const [first, ...rest] = (
    isBefore ? words.slice(words.indexOf(" ") + 1) : words.replace(/^(?:on|since|this) /, "")
  ).split(" ");
  const weekday = indexOf(WEEKDAYS, first);
  if (weekday >= 0 && rest.length === 0) {
    const back = (weekdayOf(today) - weekday + 7) % 7;
    const { year, month, day } = today;
    return { year, month, day: day - (back === 0 && isBefore ? 7 : back) };
  }
  const parts = [first, ...rest];
  const names = parts.filter((part) => /^[a-z]/.test(part));
  const numbers = parts.filter((part) => /^\d+(?:st|nd|rd|th)?$/.test(part)).map((part) => Number.parseInt(part, 10));
  const month = indexOf(MONTHS, names[0] ?? "");
  if (month < 0 || names.length !== 1 || names.length + numbers.length !== parts.length || numbers.length > 2)
    return undefined;
  const year = numbers.find((number) => number > 31);
  const day = numbers.find((number) => number <= 31) ?? 1;
  if (numbers.length === 2 && year === undefined) return undefined;
  if (year !== undefined) return checked({ year, month, day });
  const there = { year: today.year, month, day };
  const isNow = isBefore && month === today.month;
  // The 29th of February is not in every year.
  for (let back = isNow ? 1 : 0; back <= 8; back++) {
    const date = checked({ ...there, year: there.year - back });
    if (date && hasBegun(date)) return date;
  }
  return undefined;
}

/** Returns the index of a name, or of the only one that begins so, from three letters on; -1 for none. */
function indexOf(names: readonly string[], word: string): number {
  return word.length < 3 ? -1 : names.findIndex((name) => name.startsWith(word));
}

/** Returns the day of the week, 0 for Sunday. */
function weekdayOf({ year, month, day }: Calendar): number {
  return new Date(utcOf({ year, month, day })).getUTCDay();
}

/** Returns the moment at which clocks in UTC show a date. Years below 100 are literal. */
function utcOf({ year, month, day, hour = 0, minute = 0, second = 0 }: Calendar): number {
  const date = new Date(0);
  date.setUTCFullYear(year, month, day);
  date.setUTCHours(hour, minute, second);
  return date.getTime();
}

/** Returns the date and time that clocks in a zone show. */
function calendarAt(moment: number, zone: string): Required<Calendar> {
  const shown = new Date(moment + offsetAt(moment, zone));
  return {
    year: shown.getUTCFullYear(),
    month: shown.getUTCMonth(),
    day: shown.getUTCDate(),
    hour: shown.getUTCHours(),
    minute: shown.getUTCMinutes(),
    second: shown.getUTCSeconds(),
  };
}

/** Moments about which calendars agree: the years 1 to 9999, by UTC. */
const YEARS = { first: -62_135_596_800_000, past: 253_402_300_800_000 };

/** Returns by how much clocks in a zone are before those in UTC. */
function offsetAt(moment: number, zone: string): number {
  if (!(moment >= YEARS.first && moment < YEARS.past)) return 0;
  const format = new Intl.DateTimeFormat("en-u-ca-iso8601-nu-latn", {
    timeZone: zone,
    hourCycle: "h23",
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric",
    second: "numeric",
  });
  const shown: Record<string, number> = {};
  for (const { type, value } of format.formatToParts(moment)) shown[type] = Number(value);
  const { year, month, day, hour, minute, second } = shown;
  return utcOf({ year, month: month - 1, day, hour, minute, second }) - Math.floor(moment / SECOND) * SECOND;
}

/** Returns the moment at which clocks in a zone show a date: the first of two; a skipped one counts on from before the skip. */
function instantOf(date: Calendar, zone: string): number {
  const shown = utcOf(date);
  const [before, after] = [-DAY, DAY].map((away) => shown - offsetAt(shown + away, zone));
  const isShown = (moment: number): boolean => moment + offsetAt(moment, zone) === shown;
  return isShown(before) ? before : isShown(after) ? after : before;
}
