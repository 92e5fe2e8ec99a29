/** What a terminal shows of long work, and what Ctrl+C does meanwhile. */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { INTERRUPTED, InterruptedError, watchInterrupts } from "../../src/cli/interrupts.ts";
import { ProgressLine, progressText } from "../../src/cli/progress.ts";
import { widthOf } from "../../src/cli/terminal/text.ts";
import type { Wire } from "../../src/cli/wire.ts";
import { folderName } from "../../src/storage/fs/paths.ts";
import { sessionFile } from "../support/cases.ts";
import { chain, fileText, headerText, TIME, userText } from "../support/lines.ts";
import { type Place, temporaryPlace } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";
import { runHere } from "../support/verbs.ts";

const LIST = { doing: "Reading sessions", isCounted: true };

describe("the text", () => {
  test("says what is done, of what, how fast, and how long it takes still", () => {
    expect(progressText(250, 1000, 2000, LIST, 80)).toBe(
      "Reading sessions  [#####...............]  250 of 1,000  125/s  6 s left",
    );
    expect(progressText(5, 10, 3000, { doing: "Migrating" }, 80)).toBe(
      "Migrating  [##########..........]  50%  3 s left",
    );
    expect(progressText(1, 1000, 60_000, LIST, 120)).toContain("1/min  17 h left");
    expect(progressText(0, 1000, 60_000, LIST, 120)).not.toContain("left");
    expect(progressText(0, 0, 0, LIST, 80)).not.toMatch(/NaN|Infinity/);
  });

  test.each([4, 10, 20, 39, 79, 4000])("fits %i columns", (width) => {
    const text = progressText(250, 1_000_000, 2000, LIST, width);
    expect(widthOf(text)).toBeLessThanOrEqual(width);
    if (width >= 20) expect(text).toContain("250 of 1,000,000");
  });
});

test("the line comes after a second, is not drawn more often than it is read, and goes away", () => {
  let now = 0;
  const written: string[] = [];
  const line = new ProgressLine({ columns: 80, now: () => now, write: (text) => written.push(text) });
  line.begin();
  for (; now < 1000; now += 10) line.report(now, 4000, "list_sessions");
  expect(written).toEqual([]);
  for (; now < 2000; now += 10) line.report(now, 4000, "list_sessions");
  expect(written.length).toBeGreaterThan(5);
  expect(written.length).toBeLessThan(15);
  for (const text of written) expect([text[0], text.slice(1).split("\r").length]).toEqual(["\r", 1]);
  line.clear();
  line.clear();
  expect(written.at(-1)).toBe("\r\u001b[K");
  // The next work has a second of its own.
  const { length } = written;
  line.begin();
  line.report(1, 2, "list_sessions");
  expect(written).toHaveLength(length);
});

/** A home with so many sessions that a list reports, and a clock in which each look takes so many milliseconds. */
function many(): Place {
  const place = temporaryPlace();
  const folder = join(place.home, ".pi/agent/sessions", folderName("/home/me/app"));
  mkdirSync(folder, { recursive: true });
  for (let i = 0; i < 30; i++)
    writeFileSync(join(folder, `x_s${i}.jsonl`), fileText(headerText({ id: `s${i}` }), userText("a", null)));
  return place;
}

function slowClock(step = 100): () => number {
  let now = Date.parse(TIME);
  return () => (now += step);
}

describe("a verb that takes long", () => {
  test("shows it on a terminal at stderr, takes it away, and prints the same", async () => {
    const quiet = await runHere(many(), ["list", "--paths"]);
    expect(quiet.stderr).toBe("");
    const { stdout, stderr } = await runHere(many(), ["list"], { now: slowClock(), terminal: { errorColumns: 80 } });
    expect(stdout.split("\n")).toHaveLength(quiet.stdout.split("\n").length + 1);
    expect(stderr).toMatch(/\rReading sessions {2}\[#*\.*\] {2}\d+ of 30 {2}\d+\/s {2}\d+ s left/);
    expect(stderr.endsWith("\r\u001b[K")).toBe(true);
  });

  test.each([
    [["list"], { TERM: "dumb" }],
    [["list", "--plain"], {}],
  ])("shows none where lines are read one by one: %j", async (args, variables) => {
    const { stderr } = await runHere(many(), args, { now: slowClock(), variables, terminal: { errorColumns: 80 } });
    expect(stderr).toBe("");
  });

  acrossTiers(test, [
    { args: ["verify"], doing: "Checking" },
    { args: ["export", "out.jsonl"], doing: "Exporting" },
    { args: ["export", "out.html"], doing: "Exporting" },
    { args: ["migrate", "--apply"], doing: "Migrating" },
    { args: ["import"], doing: "Importing" },
  ])("shows how much of a long session is done: $args", async ({ args: [verb, ...more], doing }) => {
    const place = temporaryPlace();
    const file = sessionFile(place, chain(3000), "s.jsonl");
    // Some report after a MiB only, of which this session has less.
    const run = { now: slowClock(2000), terminal: { errorColumns: 80 } };
    const { stderr, status } = await runHere(place, [verb, file, ...more], run);
    const shares = Array.from(stderr.matchAll(new RegExp(`${doing} {2}\\[#*\\.*\\] {2}(\\d+)%`, "g")), ([, share]) =>
      Number(share),
    );
    expect(status).toBe(0);
    expect(shares.length).toBeGreaterThan(0);
    expect(shares).toEqual([...shares].sort((a, b) => a - b));
    expect(shares.at(-1)).toBeLessThanOrEqual(100);
    expect(stderr.endsWith("\r\u001b[K")).toBe(true);
  });

  test("that takes less than a second shows none", async () => {
    const { stderr } = await runHere(many(), ["list"], { now: 0, terminal: { errorColumns: 80 } });
    expect(stderr).toBe("");
  });

  test("ends at once by Ctrl+C when it only reads, and leaves no line", async () => {
    const place = many();
    const written: string[] = [];
    let interrupt = (): void => {};
    const { stdout, status } = await runHere(place, ["list"], {
      now: slowClock(),
      terminal: {
        errorColumns: 80,
        write: (text) => {
          written.push(text);
          // As soon as there is something to interrupt.
          if (text.includes("Reading")) interrupt();
        },
        onInterrupt(handler) {
          interrupt = handler;
          return () => {
            interrupt = () => {};
          };
        },
      },
    });
    expect([stdout, status]).toEqual(["", INTERRUPTED]);
    expect(written.at(-1)).toBe("\r\u001b[K");
  });
});

describe("Ctrl+C", () => {
  const wireWith = (state: { isChanging: boolean; mayHaveChanged: boolean }) => {
    const wire = { ...state, cancelled: 0, cancelAll: () => void wire.cancelled++ };
    return wire;
  };

  function watched(wire: ReturnType<typeof wireWith> | undefined, howToGoOn?: string) {
    const said: string[] = [];
    let press = (): void => {};
    const interrupts = watchInterrupts(
      {
        onInterrupt(handler) {
          press = handler;
          return () => {};
        },
        say: (sentence) => said.push(sentence),
        wire: () => wire as unknown as Wire,
      },
      howToGoOn,
    );
    interrupts.listen();
    let hasEnded = false;
    interrupts.ended.catch((error) => {
      hasEnded = error instanceof InterruptedError;
    });
    const ended = async (): Promise<boolean> => {
      await Promise.resolve();
      return hasEnded;
    };
    return { said, press: () => press(), hasEnded: ended, interrupts };
  }

  test("lets a change end whole first, and ends it the second time with how to go on", async () => {
    const wire = wireWith({ isChanging: true, mayHaveChanged: true });
    const { said, press, hasEnded, interrupts } = watched(wire, "migrate goes on.");
    press();
    expect([wire.cancelled, await hasEnded(), interrupts.isAsked]).toEqual([1, false, true]);
    expect(said).toEqual(["What has begun is being finished. Ctrl+C again ends it now."]);
    press();
    expect([said.at(-1), await hasEnded()]).toEqual(["migrate goes on.", true]);
  });

  test("says that nothing was changed before anything was", async () => {
    const { said, press, hasEnded } = watched(wireWith({ isChanging: false, mayHaveChanged: false }), "x");
    press();
    expect([said, await hasEnded()]).toEqual([["Nothing was changed."], true]);
  });

  test("says nothing about a verb that only reads", async () => {
    const { said, press, hasEnded } = watched(undefined);
    press();
    expect([said, await hasEnded()]).toEqual([[], true]);
  });

  test("during a migration lets it end, and the session is whole", async () => {
    const place = temporaryPlace();
    const file = sessionFile(place, chain(500), "s.jsonl");
    let press = (): void => {};
    let presses = 0;
    const { stdout, stderr, status } = await runHere(place, ["migrate", file, "--apply"], {
      now: slowClock(),
      terminal: {
        errorColumns: 80,
        write: (text) => {
          if (text.includes("Migrating") && presses++ === 0) press();
        },
        onInterrupt(handler) {
          press = handler;
          return () => {};
        },
      },
    });
    expect(presses).toBeGreaterThan(0);
    expect(stderr).toContain("What has begun is being finished.");
    expect([stdout, status]).toEqual([expect.stringContaining("MIGRATED"), 0]);
    expect((await runHere(place, ["verify", file])).stdout).toBe("The session is sound.\n");
  });
});

test("a search counts bytes", () => {
  const line: string[] = [];
  let now = 0;
  const shown = new ProgressLine({ columns: 100, write: (text) => line.push(text), now: () => now });
  shown.begin();
  now = 2000;
  shown.report(1_200_000, 48_000_000, "search_sessions");
  expect(line.join("")).toContain("Indexing sessions  [#...................]  1.2 MB of 48 MB");
});
