/** Long output on a terminal goes to the pager, and to no other process. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { printPaged } from "../../src/cli/paging.ts";
import { startPager } from "../../src/cli/terminal/pager.ts";
import { sessionFile } from "../support/cases.ts";
import { chain } from "../support/lines.ts";
import { type Place, temporaryFolder, temporaryPlace } from "../support/server.ts";
import { SYSTEM } from "../support/tiers.ts";
import { type RunOptions, runHere } from "../support/verbs.ts";

/** A terminal whose pager records its input, and is left after so many pieces. */
function terminalWith(leftAfter = Number.POSITIVE_INFINITY, rows = 24) {
  const shown: string[] = [];
  let pagers = 0;
  const startPager = () => {
    pagers++;
    return { write: async (text: string) => shown.push(text) < leftAfter, end: async () => {} };
  };
  // A wider one shows times, too.
  return { terminal: { columns: 79, rows, startPager }, shown, pagers: () => pagers };
}

describe("the pager", () => {
  function ready(): Place {
    const place = temporaryPlace();
    sessionFile(place, chain(100), "s.jsonl");
    return place;
  }

  test("is for more lines than the terminal has, and shows all of them, of the help as well", async () => {
    const place = ready();
    const variables = { NO_COLOR: "1" };
    const plain = await runHere(place, ["tree", "s.jsonl"], { variables });
    const { terminal, pagers, shown } = terminalWith();
    const { stdout } = await runHere(place, ["tree", "s.jsonl"], { terminal, variables });
    expect([stdout, pagers(), shown.join("")]).toEqual(["", 1, plain.stdout]);
    const help = terminalWith();
    await runHere(place, ["help"], { terminal: help.terminal });
    expect([help.pagers(), help.shown.join("")]).toEqual([1, expect.stringContaining("About this program")]);
  });

  test.each<[what: string, args: string[], options?: RunOptions]>([
    ["where there is room", ["tree", "s.jsonl"], { terminal: { rows: 110 } }],
    ["with --no-pager", ["tree", "s.jsonl", "--no-pager"]],
    ["with --plain", ["tree", "s.jsonl", "--plain"]],
    ["with --json", ["tree", "s.jsonl", "--json"]],
    ["on a dumb terminal", ["tree", "s.jsonl"], { variables: { TERM: "dumb" } }],
    ["without a terminal", ["tree", "s.jsonl"], { terminal: { columns: undefined } }],
    ["for what fails", ["tree", "nowhere"]],
  ])("is not started %s", async (_what, args, options = {}) => {
    const { terminal, pagers } = terminalWith();
    const run = await runHere(ready(), args, { ...options, terminal: { ...terminal, ...options.terminal } });
    expect([pagers(), run.stdout.length > 100]).toEqual([0, args[1] !== "nowhere"]);
  });

  test("that is left early is given no more", async () => {
    let made = 0;
    function* lines(): Generator<string> {
      for (; ; made++) yield "x".repeat(1000);
    }
    const { shown, terminal } = terminalWith(3);
    await printPaged(lines(), { print: async () => true, rows: 24, columns: 80, start: terminal.startPager });
    expect(shown).toHaveLength(3);
    expect(made).toBeLessThan(300);
  });

  test("counts the rows that a long line takes, and the colours not", async () => {
    const { shown, terminal } = terminalWith();
    const print = vi.fn(async () => true);
    const where = { print, rows: 24, columns: 80, start: terminal.startPager };
    await printPaged(Array(23).fill(`\u001b[31m${"x".repeat(80)}\u001b[39m`), where);
    expect(shown).toEqual([]);
    await printPaged(["x".repeat(2000)], where);
    expect([shown.length, print.mock.calls.join("").split("\n").length]).toEqual([1, 24]);
  });
});

describe("the program of PAGER", SYSTEM, () => {
  /** Returns the input of the pager, and the output without it. */
  async function shownBy(pager: string | undefined, pieces: number, own?: string) {
    const file = join(temporaryFolder(), "shown");
    const print = vi.fn(async () => true);
    const PAGER = pager?.replace("FILE", `'${file}'`);
    const started = startPager({ PATH: process.env.PATH, ...(PAGER === undefined ? {} : { PAGER }) }, print, own);
    let written = 0;
    while (written < pieces && (await started?.write(`${written} ${"x".repeat(60_000)}\n`))) written++;
    await started?.end();
    const read = (): string => readFileSync(file, "utf8");
    return { started: started !== undefined, written, printed: print.mock.calls.join(""), read };
  }

  test("gets everything, and ends well when it is left early", async () => {
    const whole = await shownBy("cat >FILE", 20);
    expect([whole.written, whole.printed, whole.read().split("\n").length]).toEqual([20, "", 21]);
    const left = await shownBy("head -c 10 >FILE", 200);
    expect([left.written < 200, left.printed]).toEqual([true, ""]);
  });

  test.each(["no-such-pager 2>/dev/null", undefined])("that cannot be started costs no line: %s", async (pager) => {
    for (const pieces of [1, 20])
      expect((await shownBy(pager, pieces, "no-such-less")).printed.split("\n")).toHaveLength(pieces + 1);
  });

  test.each(["", "cat", " "])("is none when it is %j", async (pager) => {
    expect((await shownBy(pager, 1)).started).toBe(false);
  });
});
