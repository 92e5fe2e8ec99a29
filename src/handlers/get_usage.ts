import * as z from "zod";
import { BadParams } from "../core/failure.ts";
import { toPreview } from "../core/format/message.ts";
import { toBytes } from "../core/json/json.ts";
import type { LackingSession, UsageReport, UsageRow } from "../core/ports/catalog.ts";
import { findIndexAfter, makeRowCursor, quarterToTime } from "../core/search/usage.ts";
import { defineCommand } from "./shared/command.ts";
import { tokens } from "./shared/counts.ts";
import { hereParam, limited } from "./shared/fleet.ts";
import { findPageEnd } from "./shared/page.ts";
import { readMoment } from "./shared/params.ts";
import { cursor, exampleId, limit, nextCursor, wantedDirectory } from "./shared/shapes.ts";

const spent = {
  messages: z.number().int().describe("of the assistant"),
  tokens,
  cost: z.number(),
};

const sums = {
  ...spent,
  inherited: z
    .object(spent)
    .describe(
      "of entries that forks took over; they count in the session where they were made, and nowhere else; where that is gone, in the fork that took over most",
    ),
  unpricedMessages: z.number().int().describe("messages with tokens whose cost is not known or 0"),
};

const model = { provider: z.string().nullable(), model: z.string().nullable() };

/** Sessions that are named as incomplete at most. */
const MAX_INCOMPLETE = 100;

export default defineCommand({
  name: "get_usage",
  summary:
    "Sums tokens and cost over all sessions, by day, week or month, model, working directory and session: the latest day first, then " +
    "the most expensive ones. The first call reads all sessions, later ones only changed sessions. Changes nothing.",
  effect: "server",
  repeatable: true,
  params: {
    groupBy: z
      .array(z.enum(["day", "week", "month", "model", "cwd", "session"]))
      .max(6)
      .optional()
      .describe('by what to sum; ["day"] by default, and with none of them one row for everything'),
    since: z.string().optional().describe("only usage from then on, ISO 8601, to a quarter of an hour"),
    until: z.string().optional().describe("only usage before then, likewise"),
    timeZone: z
      .string()
      .optional()
      .describe("the time zone of the days, such as Europe/Berlin; by default that of the server's machine"),
    cwd: wantedDirectory,
    archived: z.boolean().optional().describe("archived sessions, too"),
    here: hereParam,
    cursor,
    limit,
  },
  result: () =>
    z.object({
      rows: z.array(
        z.object({
          day: z.string().nullable().optional().describe("year, month and day; null where no time is known"),
          week: z.string().nullable().optional().describe("the day of its Monday; null where no time is known"),
          month: z.string().nullable().optional().describe("year and month of that day; null where no time is known"),
          provider: z.string().nullable().optional(),
          model: z.string().nullable().optional().describe("null where no model is named"),
          cwd: z.string().nullable().optional(),
          sessionPath: z.string().optional(),
          sessionId: z.string().optional(),
          shortId: z.string().optional().describe("as list_sessions has it"),
          name: z.string().nullable().optional(),
          firstMessage: z.string().nullable().optional().describe("its first 100 characters"),
          archived: z.boolean().optional(),
          ...sums,
        }),
      ),
      total: z.number().int().describe("rows on all pages"),
      totals: z.object({ ...sums, sessions: z.number().int() }).describe("over the rows of all pages"),
      unpricedModels: z.array(z.object({ ...model, messages: z.number().int() })).describe("those of unpricedMessages"),
      incomplete: z
        .array(
          z.object({
            sessionPath: z.string(),
            sessionId: z.string().optional(),
            shortId: z.string().optional(),
            name: z.string().nullable().optional(),
            damagedLines: z.number().int().optional().describe("lines that cannot be read; absent when nothing can"),
          }),
        )
        .describe(`sessions whose figures may lack something; at most ${MAX_INCOMPLETE} are named`),
      incompleteCount: z.number().int(),
      archivedLeftOut: z.number().int().describe("archived sessions that do not count because `archived` is not set"),
      nextCursor,
      limited,
    }),
  failures: ["cursor_expired"],
  example: {
    params: { groupBy: ["day", "model"], since: "2026-01-24T00:00:00Z", limit: 1 },
    result: {
      rows: [
        {
          day: "2026-01-24",
          provider: "anthropic",
          model: "claude-sonnet-4-5",
          messages: 2,
          tokens: { input: 65, output: 17, cacheRead: 0, cacheWrite: 0, total: 82 },
          cost: 0.00045,
          inherited: none(),
          unpricedMessages: 0,
        },
      ],
      total: 1,
      totals: {
        messages: 2,
        tokens: { input: 65, output: 17, cacheRead: 0, cacheWrite: 0, total: 82 },
        cost: 0.00045,
        inherited: none(),
        unpricedMessages: 0,
        sessions: 1,
      },
      unpricedModels: [],
      incomplete: [
        {
          sessionPath: "/home/me/.pi/agent/sessions/--home-me-app--/2026-01-24T16-22-26-831Z_01991f6e.jsonl",
          sessionId: exampleId,
          shortId: "01991f6e",
          name: null,
          damagedLines: 1,
        },
      ],
      incompleteCount: 1,
      archivedLeftOut: 0,
    },
  },
  async run(context, params) {
    const { since, until, cwd, archived, cursor, limit, timeZone, here } = params;
    const groupBy = [...new Set(params.groupBy ?? ["day" as const])].sort();
    const wanted = {
      here,
      groupBy,
      cwd,
      archived,
      since: readMoment("since", since),
      until: readMoment("until", until),
      dayOf: makeDayCounter(timeZone),
    };
    const report = await context.workspace.stores.catalog.usage(wanted, context.progress);
    const { count } = report.rows;
    const from = findIndexAfter(report.rows, cursor, groupBy);
    const length = Math.min(limit ?? count, count - from);
    const found = Array.from({ length }, (_, i) => report.rows.row(from + i));
    const rows = found.map((row) => toRow(row, report));
    const past = findPageEnd(context, limit, length, 0, (i) => toBytes(JSON.stringify(rows[i])));
    const { totals, unpricedModels, incomplete, archivedLeftOut, limited } = report;
    return {
      rows: rows.slice(0, past),
      total: count,
      totals,
      unpricedModels,
      incomplete: incomplete.slice(0, MAX_INCOMPLETE).map((one) => toIncomplete(one, report)),
      incompleteCount: incomplete.length,
      archivedLeftOut,
      nextCursor: from + past < count ? makeRowCursor(found[past - 1], groupBy) : undefined,
      limited,
    };
  },
});

function none() {
  return { messages: 0, tokens: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 }, cost: 0 };
}

/** Characters of a first message that help to know a session again. */
const FIRST_MESSAGE = 100;

function toRow({ session, ...row }: UsageRow, { shortId }: UsageReport) {
  if (!session) return row;
  const { path, id, name, firstMessage, archived } = session;
  return {
    sessionPath: path,
    sessionId: id,
    shortId: shortId(id),
    name,
    firstMessage: firstMessage === null ? null : toPreview(firstMessage, FIRST_MESSAGE),
    archived,
    ...row,
  };
}

function toIncomplete({ path, listed, damagedLines }: LackingSession, { shortId }: UsageReport) {
  const known = listed && { sessionId: listed.id, shortId: shortId(listed.id), name: listed.name };
  return { sessionPath: path, ...known, damagedLines };
}

// --- days ------------------------------------------------------------------------------------------------------------

/** The days of quarters of an hour in one time zone, kept from one request to the next: a year takes 20 ms to make. */
let keptDays: { readonly zone: string; readonly days: Map<number, number> } | undefined;

/** Quarters that are kept: those of 30 years. */
const MAX_KEPT = 1 << 20;

/**
 * Returns a function from a quarter of an hour to its day, both counted from 1970. Throws BadParams when there is no
 * such time zone.
 */
function makeDayCounter(timeZone: string | undefined): (quarter: number) => number {
  const format = formatIn(timeZone);
  const { timeZone: zone } = format.resolvedOptions();
  if (keptDays?.zone !== zone || keptDays.days.size > MAX_KEPT) keptDays = { zone, days: new Map() };
  const { days } = keptDays;
  return (quarter) => {
    let day = days.get(quarter);
    if (day === undefined) {
      const moment = quarterToTime(quarter);
      day = timeZone === undefined ? dayHere(new Date(moment)) : dayThere(format, moment);
      days.set(quarter, day);
    }
    return day;
  };
}

function formatIn(timeZone: string | undefined): Intl.DateTimeFormat {
  try {
    return new Intl.DateTimeFormat("en-US", { timeZone, year: "numeric", month: "2-digit", day: "2-digit" });
  } catch {
    throw new BadParams([{ path: "timeZone", message: "must be the name of a time zone, such as Europe/Berlin" }]);
  }
}

/** Returns the day by the zone of this machine. It takes a tenth of the time of a format. */
function dayHere(date: Date): number {
  return dayOf(date.getFullYear(), date.getMonth(), date.getDate());
}

function dayThere(format: Intl.DateTimeFormat, moment: number): number {
  const parts = Object.fromEntries(format.formatToParts(moment).map(({ type, value }) => [type, Number(value)]));
  return dayOf(parts.year, parts.month - 1, parts.day);
}

function dayOf(year: number, month: number, day: number): number {
  return Date.UTC(year, month, day) / 86_400_000;
}
