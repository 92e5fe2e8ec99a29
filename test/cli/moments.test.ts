/** Times as people write them on the command line. */

import { describe, expect, test } from "vitest";
import { momentIn, timeFlag, zoneOf } from "../../src/cli/moments.ts";

/** A Wednesday, 15:30 in Berlin. */
const NOW = Date.parse("2026-03-18T14:30:00Z");
const BERLIN = "Europe/Berlin";

function iso(text: string, zone = BERLIN, now = NOW): string | undefined {
  const moment = momentIn(text, now, zone);
  return moment === undefined ? undefined : new Date(moment).toISOString();
}

test.each([
  ["now", "2026-03-18T14:30:00.000Z"],
  ["90s", "2026-03-18T14:28:30.000Z"],
  ["5m", "2026-03-18T14:25:00.000Z"],
  ["3h", "2026-03-18T11:30:00.000Z"],
  ["3 hours ago", "2026-03-18T11:30:00.000Z"],
  ["2d", "2026-03-16T14:30:00.000Z"],
  ["2 days", "2026-03-16T14:30:00.000Z"],
  ["last 2 days", "2026-03-16T14:30:00.000Z"],
  ["an hour ago", "2026-03-18T13:30:00.000Z"],
  ["2w", "2026-03-04T14:30:00.000Z"],
  ["1mo", "2026-02-18T14:30:00.000Z"],
  ["1y", "2025-03-18T14:30:00.000Z"],
  ["today", "2026-03-17T23:00:00.000Z"],
  [" Yesterday ", "2026-03-16T23:00:00.000Z"],
  ["this week", "2026-03-15T23:00:00.000Z"],
  ["last week", "2026-03-08T23:00:00.000Z"],
  ["this month", "2026-02-28T23:00:00.000Z"],
  ["last month", "2026-01-31T23:00:00.000Z"],
  ["last year", "2024-12-31T23:00:00.000Z"],
  ["monday", "2026-03-15T23:00:00.000Z"],
  ["last Monday", "2026-03-15T23:00:00.000Z"],
  ["wednesday", "2026-03-17T23:00:00.000Z"],
  ["last wednesday", "2026-03-10T23:00:00.000Z"],
  ["fri", "2026-03-12T23:00:00.000Z"],
  ["march", "2026-02-28T23:00:00.000Z"],
  ["last march", "2025-02-28T23:00:00.000Z"],
  // It has not begun this year, and clocks there are ahead by two hours.
  ["april", "2025-03-31T22:00:00.000Z"],
  ["mar 14", "2026-03-13T23:00:00.000Z"],
  ["14 March", "2026-03-13T23:00:00.000Z"],
  ["march 19", "2025-03-18T23:00:00.000Z"],
  ["March 14th, 2025", "2025-03-13T23:00:00.000Z"],
  ["march 2024", "2024-02-29T23:00:00.000Z"],
  ["29 february", "2024-02-28T23:00:00.000Z"],
  ["2026", "2025-12-31T23:00:00.000Z"],
  ["2026-03", "2026-02-28T23:00:00.000Z"],
  ["2026-03-14", "2026-03-13T23:00:00.000Z"],
  ["2026-03-14T15:00", "2026-03-14T14:00:00.000Z"],
  ["2026-03-14 15:00:30", "2026-03-14T14:00:30.000Z"],
  ["2026-03-14T15:00:00Z", "2026-03-14T15:00:00.000Z"],
  ["2026-03-14T15:00:00.250+05:30", "2026-03-14T09:30:00.250Z"],
  ["09:15", "2026-03-18T08:15:00.000Z"],
])("%s", (text, expected) => expect(iso(text)).toBe(expected));

test.each([
  "",
  "whenever",
  "2",
  "2x",
  "yesterdays",
  "next week",
  "2026-13",
  "2026-02-30",
  "30 february",
  "ma",
  "march april",
  "march 3 4",
  "25:99",
  "constructor",
  "1 constructor",
  "-2d",
  "999999 years ago",
  "9".repeat(100_000),
])("%s is no time", (text) => expect(momentIn(text, NOW, BERLIN)).toBeUndefined());

describe("clocks that are changed", () => {
  test("a day has 23 or 25 hours, and one that begins without its midnight begins when it begins", () => {
    const after = Date.parse("2026-03-30T10:00:00Z");
    expect(iso("yesterday", BERLIN, after)).toBe("2026-03-28T23:00:00.000Z");
    expect(iso("today", BERLIN, after)).toBe("2026-03-29T22:00:00.000Z");
    // The hour that is not there, and the one that is there twice.
    expect(iso("2026-03-29T02:30", BERLIN)).toBe("2026-03-29T01:30:00.000Z");
    expect(iso("2025-10-26T02:30", BERLIN)).toBe("2025-10-26T00:30:00.000Z");
    expect(iso("2026-04-24", "Africa/Cairo")).toBe("2026-04-23T22:00:00.000Z");
  });

  test("zones far from Greenwich have days of their own", () => {
    expect(iso("today", "Pacific/Kiritimati")).toBe("2026-03-18T10:00:00.000Z");
    expect(iso("today", "Pacific/Pago_Pago")).toBe("2026-03-18T11:00:00.000Z");
    expect(iso("today", "Asia/Kathmandu")).toBe("2026-03-17T18:15:00.000Z");
  });

  test("a month ago is in the month before, however short", () =>
    expect(iso("1 month ago", "UTC", Date.parse("2026-03-31T12:00:00Z"))).toBe("2026-02-28T12:00:00.000Z"));
});

test("the zone is that of TZ if there is such a zone", () => {
  expect(zoneOf("Asia/Tokyo")).toBe("Asia/Tokyo");
  expect(zoneOf("No/Such")).toBe(zoneOf(undefined));
});

test("an option is asked for in the clock of the page, and refused in a sentence that names it", () => {
  const asking = { page: () => ({ now: NOW }) as never, variables: { TZ: "Asia/Tokyo" } };
  const flags = new Map([["--since", "today"]]);
  expect(timeFlag(flags, "--since", asking)).toBe("2026-03-17T15:00:00.000Z");
  expect(timeFlag(flags, "--until", asking)).toBeUndefined();
  expect(() => timeFlag(new Map([["--until", "soon"]]), "--until", asking)).toThrow(/^--until takes a time.*got soon/);
});
