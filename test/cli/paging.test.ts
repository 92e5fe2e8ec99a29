/** Long output on a terminal goes to the pager, and to nobody else. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { printPaged } from "../../src/cli/paging.ts";
import { startPager } from "../../src/cli/terminal/pager.ts";
import { sessionFile } from "../support/cases.ts";
import { chain } from "../support/lines.ts";
import { temporaryFolder, temporaryPlace } from "../support/server.ts";
import { SYSTEM } from "../support/tiers.ts";
import { type RunOptions, runHere } from "../support/verbs.ts";

/** A terminal whose pager writes down what it is shown, and is left after so many pieces. */
function terminalWith(rows: number, leftAfter = Number.POSITIVE_INFINITY) {
  const shown: string[] = [];
  let pagers = 0;
  const terminal: RunOptions["terminal"] = {
    columns: 80,
    rows,
    startPager() {
      pagers++;
      return { write: async (text) => shown.push(text) < leftAfter, end: async () => {} };
    },
  };
  return { terminal, shown, pagers: () => pagers };
}

describe("the pager", () => {
  test("is for more lines than the terminal has, and shows all of them", async () => {
    const place = temporaryPlace();
    const file = sessionFile(place, chain(100), "s.jsonl");
    const plain = await runHere(place, ["tree", file], { variables: { NO_COLOR: "1" } });
    const long = terminalWith(24);
    const { stdout } = await runHere(place, ["tree", file], { terminal: long.terminal, variables: { NO_COLOR: "1" } });
    expect([stdout, long.pagers(), long.shown.join("")]).toEqual(["", 1, plain.stdout]);
    const short = terminalWith(110);
    await runHere(place, ["tree", file], { terminal: short.terminal });
    expect(short.pagers()).toBe(0);
  });

  test.each([
    [["--no-pager"], {}],
    [["--plain"], {}],
    [["--json"], {}],
    [[], { TERM: "dumb" }],
  ])("is not started with %j %j", async (flags, variables) => {
    const place = temporaryPlace();
    const file = sessionFile(place, chain(100), "s.jsonl");
    const { terminal, pagers } = terminalWith(24);
    const { stdout } = await runHere(place, ["tree", file, ...flags], { terminal, variables });
    expect(pagers()).toBe(0);
    expect(stdout.length).toBeGreaterThan(100);
  });

  test("is not started without a terminal, nor for what fails", async () => {
    const place = temporaryPlace();
    const file = sessionFile(place, chain(100), "s.jsonl");
    const { terminal, pagers } = terminalWith(24);
    await runHere(place, ["tree", file], { terminal: { ...terminal, columns: undefined } });
    await runHere(place, ["tree", "nowhere"], { terminal });
    expect(pagers()).toBe(0);
  });

  test("shows the help where it is long", async () => {
    const { terminal, pagers, shown } = terminalWith(24);
    await runHere(temporaryPlace(), ["help"], { terminal });
    expect([pagers(), shown.join("")]).toEqual([1, expect.stringContaining("About this program")]);
  });

  test("that is left early is given no more", async () => {
    let made = 0;
    function* lines(): Generator<string> {
      for (;;) {
        made++;
        yield "x".repeat(1000);
      }
    }
    const { shown, terminal } = terminalWith(24, 3);
    const start = () => terminal?.startPager?.();
    await printPaged(lines(), { print: async () => true, rows: 24, columns: 80, start });
    expect(shown).toHaveLength(3);
    expect(made).toBeLessThan(300);
  });

  test("counts the rows that a long line takes, and the colours not", async () => {
    const { shown, terminal } = terminalWith(24);
    let printed = "";
    const print = async (text: string): Promise<boolean> => {
      printed += text;
      return true;
    };
    const start = () => terminal?.startPager?.();
    const coloured = `\u001b[31m${"x".repeat(80)}\u001b[39m`;
    await printPaged(Array(23).fill(coloured), { print, rows: 24, columns: 80, start });
    expect(shown).toEqual([]);
    await printPaged(["x".repeat(2000)], { print, rows: 24, columns: 80, start });
    expect(shown).toHaveLength(1);
    expect(printed.split("\n")).toHaveLength(24);
  });
});

describe("the program of PAGER", SYSTEM, () => {
  /** What the program was given, and what was printed without it. */
  async function shownBy(pager: string | undefined, pieces: number, own?: string) {
    const file = join(temporaryFolder(), "shown");
    let printed = "";
    const started = startPager(
      { PATH: process.env.PATH, ...(pager === undefined ? {} : { PAGER: pager.replace("FILE", `'${file}'`) }) },
      async (text) => {
        printed += text;
        return true;
      },
      own,
    );
    let written = 0;
    while (written < pieces && (await started?.write(`${written} ${"x".repeat(60_000)}\n`))) written++;
    await started?.end();
    return { started: started !== undefined, written, printed, read: (): string => readFileSync(file, "utf8") };
  }

  test("gets everything", async () => {
    const { written, printed, read } = await shownBy("cat >FILE", 20);
    expect([written, printed]).toEqual([20, ""]);
    expect(read().split("\n")).toHaveLength(21);
  });

  test("ends well when it is left early", async () => {
    const { written, printed } = await shownBy("head -c 10 >FILE", 200);
    expect(written).toBeLessThan(200);
    expect(printed).toBe("");
  });

  test.each([["no-such-pager-at-all 2>/dev/null"], [undefined]])(
    "that cannot be started costs no line: %s",
    async (pager) => {
      for (const pieces of [1, 20]) {
        const { printed } = await shownBy(pager, pieces, "no-such-less");
        expect(printed.split("\n")).toHaveLength(pieces + 1);
      }
    },
  );

  test.each([[""], ["cat"], [" "]])("is none when it is %j", async (pager) => {
    expect((await shownBy(pager, 1)).started).toBe(false);
  });
});
