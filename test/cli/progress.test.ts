/** A terminal during long work, and the effect of Ctrl+C. */

import { describe, expect, test, vi } from "vitest";
import { INTERRUPTED, InterruptedError, watchInterrupts } from "../../src/cli/interrupts.ts";
import { formatProgress, ProgressLine } from "../../src/cli/progress.ts";
import { getWidth } from "../../src/cli/terminal/text.ts";
import type { Wire } from "../../src/cli/wire.ts";
import { sessionFile } from "../support/cases.ts";
import { chain, TIME, userText } from "../support/lines.ts";
import { type Place, temporaryPlace } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";
import { type RunOptions, runHere, stored } from "../support/verbs.ts";

const LIST = { doing: "Reading sessions", isCounted: true };
const CHANGING = { isChanging: true, mayHaveChanged: true };
const WAITING = { isChanging: false, mayHaveChanged: false };
const CLEARED = "\r\u001b[K";

test("the text says what is done, of what, how fast, and how long it takes still", () => {
  const texts = [formatProgress(250, 1000, 2000, LIST, 80), formatProgress(5, 10, 3000, { doing: "Migrating" }, 80)];
  expect(texts).toEqual([
    "Reading sessions  [#####...............]  250 of 1,000  125/s  6 s left",
    "Migrating  [##########..........]  50%  3 s left",
  ]);
  expect(formatProgress(1, 1000, 60_000, LIST, 120)).toContain("1/min  17 h left");
  expect(formatProgress(0, 1000, 60_000, LIST, 120)).not.toContain("left");
  expect(formatProgress(0, 0, 0, LIST, 80)).not.toMatch(/NaN|Infinity/);
  for (const width of [4, 10, 20, 39, 79, 4000]) {
    const text = formatProgress(250, 1_000_000, 2000, LIST, width);
    expect(getWidth(text)).toBeLessThanOrEqual(width);
    if (width >= 20) expect(text).toContain("250 of 1,000,000");
  }
});

test("the line comes after a second, is not drawn more often than it is read, and goes away; a search counts bytes", () => {
  let now = 0;
  const written: string[] = [];
  const line = new ProgressLine({ columns: 100, now: () => now, write: (text) => written.push(text) });
  line.begin();
  for (; now < 1000; now += 10) line.report(now, 4000, "list_sessions");
  expect(written).toEqual([]);
  for (; now < 2000; now += 10) line.report(now, 4000, "list_sessions");
  expect(Math.abs(written.length - 10)).toBeLessThan(5);
  for (const text of written) expect([text[0], text.slice(1).split("\r").length]).toEqual(["\r", 1]);
  line.clear();
  line.clear();
  expect(written.at(-1)).toBe(CLEARED);
  // The next work has a second of its own.
  const { length } = written;
  line.begin();
  line.report(1, 2, "list_sessions");
  expect(written).toHaveLength(length);
  now += 2000;
  line.report(1_200_000, 48_000_000, "search_sessions");
  expect(written.at(-1)).toContain("Indexing sessions  [#...................]  1.2 MB of 48 MB");
});

/** A home with so many sessions that a list reports. */
function many(): Place {
  const place = temporaryPlace();
  for (let i = 0; i < 30; i++) stored(place, `s${i}`, [userText("a", null)]);
  return place;
}

/** A terminal at stderr, and a clock whose looks take so many milliseconds each. */
function slow(step = 100, terminal: RunOptions["terminal"] = {}): RunOptions {
  let now = Date.parse(TIME);
  return { now: () => (now += step), terminal: { errorColumns: 80, ...terminal } };
}

describe("a verb that takes long", () => {
  test("shows it on a terminal at stderr, takes it away, and prints the same", async () => {
    const quiet = await runHere(many(), ["list", "--paths"]);
    expect(quiet.stderr).toBe("");
    const { stdout, stderr } = await runHere(many(), ["list"], slow());
    expect(stdout.split("\n")).toHaveLength(quiet.stdout.split("\n").length + 1);
    expect(stderr).toMatch(/\rReading sessions {2}\[#*\.*\] {2}\d+ of 30 {2}\d+\/s {2}\d+ s left/);
    expect(stderr.endsWith(CLEARED)).toBe(true);
  });

  test.each<[what: string, args: string[], options: RunOptions]>([
    ["lines are read one by one", ["list"], { ...slow(), variables: { TERM: "dumb" } }],
    ["lines are plain", ["list", "--plain"], slow()],
    ["it takes less than a second", ["list"], { ...slow(), now: 0 }],
  ])("shows none where %s", async (_what, args, options) => {
    expect((await runHere(many(), args, options)).stderr).toBe("");
  });

  acrossTiers(test, [
    "Checking verify",
    "Exporting export out.jsonl",
    "Exporting export out.html",
    "Migrating migrate --apply",
    "Importing import",
  ])("shows how much of a long session is done: %s", async (words) => {
    const [doing, verb, ...more] = words.split(" ");
    const place = temporaryPlace();
    const file = sessionFile(place, chain(3000), "s.jsonl");
    // Some report after a MiB only, and this session has less.
    const { stderr, status } = await runHere(place, [verb, file, ...more], slow(2000));
    const found = stderr.matchAll(new RegExp(`${doing} {2}\\[#*\\.*\\] {2}(\\d+)%`, "g"));
    const shares = Array.from(found, ([, share]) => Number(share));
    expect([status, shares.length > 0, stderr.includes(CLEARED)]).toEqual([0, true, true]);
    expect(shares).toEqual([...shares].sort((a, b) => a - b));
    expect(shares.at(-1)).toBeLessThanOrEqual(100);
  });
});

describe("Ctrl+C", () => {
  /** A terminal at which a person presses it when some words come. */
  function pressing(words: string): { options: RunOptions; presses: () => number; written: string[] } {
    const written: string[] = [];
    let press = (): void => {};
    let presses = 0;
    const options = slow(100, {
      write: (text) => {
        written.push(text);
        if (text.includes(words) && presses++ === 0) press();
      },
      onInterrupt(handler) {
        press = handler;
        return () => {};
      },
    });
    return { options, presses: () => presses, written };
  }

  test("ends at once a verb that only reads, and leaves no line", async () => {
    const { options, written } = pressing("Reading");
    const { stdout, status } = await runHere(many(), ["list"], options);
    expect([stdout, status, written.at(-1)]).toEqual(["", INTERRUPTED, CLEARED]);
  });

  test("lets a migration end, and the session is whole", async () => {
    const place = temporaryPlace();
    const file = sessionFile(place, chain(500), "s.jsonl");
    const { options, presses } = pressing("Migrating");
    const { stdout, stderr, status } = await runHere(place, ["migrate", file, "--apply"], options);
    expect(presses()).toBeGreaterThan(0);
    expect(stderr).toContain("Work that has begun is being finished.");
    expect([stdout, status]).toEqual([expect.stringContaining("MIGRATED"), 0]);
    expect((await runHere(place, ["verify", file])).stdout).toBe("The session is sound.\n");
  });

  const BEGUN = "Work that has begun is being finished. Ctrl+C again ends it now.";

  test.each<[what: string, state: object | undefined, howToGoOn: string | undefined, outcomes: string[]]>([
    [
      "lets a change end whole, and ends it the second time",
      CHANGING,
      "It goes on.",
      [BEGUN, `${BEGUN} It goes on. (ended)`],
    ],
    ["says that nothing was changed before anything was", WAITING, "x", ["Nothing was changed. (ended)"]],
    ["says nothing about a verb that only reads", undefined, undefined, ["(ended)"]],
  ])("%s", async (_what, state, howToGoOn, outcomes) => {
    const cancelAll = vi.fn();
    const said: string[] = [];
    let press = (): void => {};
    const onInterrupt = (handler: () => void) => {
      press = handler;
      return () => {};
    };
    const wire = () => (state && { ...state, cancelAll }) as unknown as Wire;
    const interrupts = watchInterrupts({ onInterrupt, say: (sentence) => said.push(sentence), wire }, howToGoOn);
    interrupts.listen();
    interrupts.ended.catch((error) => said.push(error instanceof InterruptedError ? "(ended)" : "(failed)"));
    for (const outcome of outcomes) {
      press();
      await Promise.resolve();
      expect([said.join(" "), interrupts.isAsked]).toEqual([outcome, true]);
    }
    expect(cancelAll).toHaveBeenCalledTimes(outcomes.length - 1);
  });
});
