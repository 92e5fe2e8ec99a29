/** Times as people write them on the command line. */

import { expect, test } from "vitest";
import { parseMoment, parseTimeFlag, resolveTimeZone } from "../../src/cli/time-parser.ts";

/** A Wednesday, 15:30 in Berlin. */
const NOW = Date.parse("2026-03-18T14:30:00Z");
const BERLIN = "Europe/Berlin";

function iso(text: string, zone = BERLIN, now?: string): string | undefined {
  const moment = parseMoment(text, now === undefined ? NOW : Date.parse(now), zone);
  return moment === undefined ? undefined : new Date(moment).toISOString().replace(".000Z", "");
}

/** The text, and the moment in Greenwich. */
const MOMENTS = `
  now                           2026-03-18T14:30:00
  90s                           2026-03-18T14:28:30
  5m                            2026-03-18T14:25:00
  3h                            2026-03-18T11:30:00
  3 hours ago                   2026-03-18T11:30:00
  2d                            2026-03-16T14:30:00
  last 2 days                   2026-03-16T14:30:00
  an hour ago                   2026-03-18T13:30:00
  2w                            2026-03-04T14:30:00
  two weeks ago                 2026-03-04T14:30:00
  last ten days                 2026-03-08T14:30:00
  1mo                           2026-02-18T14:30:00
  1y                            2025-03-18T14:30:00
  today                         2026-03-17T23:00:00
  Yesterday                     2026-03-16T23:00:00
  this week                     2026-03-15T23:00:00
  last week                     2026-03-08T23:00:00
  this month                    2026-02-28T23:00:00
  last month                    2026-01-31T23:00:00
  last year                     2024-12-31T23:00:00
  last Monday                   2026-03-15T23:00:00
  wednesday                     2026-03-17T23:00:00
  last wednesday                2026-03-10T23:00:00
  fri                           2026-03-12T23:00:00
  march                         2026-02-28T23:00:00
  last march                    2025-02-28T23:00:00
  april                         2025-03-31T22:00:00
  mar 14                        2026-03-13T23:00:00
  14 March                      2026-03-13T23:00:00
  march 19                      2025-03-18T23:00:00
  March 14th, 2025              2025-03-13T23:00:00
  march 2024                    2024-02-29T23:00:00
  29 february                   2024-02-28T23:00:00
  2026                          2025-12-31T23:00:00
  2026-03                       2026-02-28T23:00:00
  2026-03-14                    2026-03-13T23:00:00
  2026-03-14T15:00              2026-03-14T14:00:00
  2026-03-14 15:00:30           2026-03-14T14:00:30
  2026-03-14T15:00:00Z          2026-03-14T15:00:00
  2026-03-14T15:00:00.250+05:30 2026-03-14T09:30:00.250Z
  09:15                         2026-03-18T08:15:00`;

test.each(
  MOMENTS.trim()
    .split("\n")
    .map((row) => row.trim().split(/ +(?=\S+$)/)),
)("%s", (text, expected) => expect(iso(text)).toBe(expected));

const NONE =
  "|whenever|2|2x|yesterdays|next week|2026-13|2026-02-30|30 february|ma|march april|march 3 4|25:99|constructor|" +
  "1 constructor|-2d|5ms|999999 years ago";

test.each([...NONE.split("|"), "9".repeat(100_000)])("%s is no time", (text) => expect(iso(text)).toBeUndefined());

test.each([
  // A day has 23 or 25 hours, and one that begins without its midnight begins when it begins.
  ["yesterday", BERLIN, "2026-03-28T23:00:00", "2026-03-30T10:00:00Z"],
  ["today", BERLIN, "2026-03-29T22:00:00", "2026-03-30T10:00:00Z"],
  ["2026-04-24", "Africa/Cairo", "2026-04-23T22:00:00"],
  // The hour that is not there, and the one that is there twice.
  ["2026-03-29T02:30", BERLIN, "2026-03-29T01:30:00"],
  ["2025-10-26T02:30", BERLIN, "2025-10-26T00:30:00"],
  ["today", "Pacific/Kiritimati", "2026-03-18T10:00:00"],
  ["today", "Asia/Kathmandu", "2026-03-17T18:15:00"],
  // In the month before, however short.
  [" Yesterday ", BERLIN, "2026-03-16T23:00:00"],
  ["1 month ago", "UTC", "2026-02-28T12:00:00", "2026-03-31T12:00:00Z"],
])("%s in %s is %s", (text, zone, expected, now?: string) => expect(iso(text, zone, now)).toBe(expected));

test("the zone is that of TZ if there is such a zone", () => {
  expect(resolveTimeZone("Asia/Tokyo")).toBe("Asia/Tokyo");
  expect(resolveTimeZone("No/Such")).toBe(resolveTimeZone(undefined));
});

test("an option is asked for in the clock of the page, and refused in a sentence that names it", () => {
  const asking = { page: () => ({ now: NOW }) as never, variables: { TZ: "Asia/Tokyo" } };
  const flags = new Map([["--since", "today"]]);
  expect(parseTimeFlag(flags, "--since", asking)).toBe("2026-03-17T15:00:00.000Z");
  expect(parseTimeFlag(flags, "--until", asking)).toBeUndefined();
  const later = new Map(["--since", "--until"].map((name) => [name, "2026-12-31"]));
  expect(parseTimeFlag(later, "--until", asking)).toBe("2026-12-30T15:00:00.000Z");
  expect(() => parseTimeFlag(later, "--since", asking)).toThrow(/^--since takes a time in the past; 2026-12-31 is/);
  expect(() => parseTimeFlag(new Map([["--until", "soon"]]), "--until", asking)).toThrow(
    /^--until takes a time.*got soon/,
  );
});
