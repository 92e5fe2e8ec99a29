/**
 * Long runs in units that add up: each has a number, which is also its seed, and its figures go to a file that the
 * next run goes on from. `scripts/soak.js` runs them part by part.
 */

import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { Random } from "./random.ts";

/** Results of a unit, in numbers that add up. */
export type Figures = Readonly<Record<string, number | undefined>>;

/** The results of a suite at one commit. */
interface Progress {
  /** Units that were run; the next has the number after this one. */
  units: number;
  seconds: number;
  /** Milliseconds of the longest unit. */
  longest: number;
  figures: Record<string, number>;
  failures: { unit: number; message: string }[];
  nodes: string[];
  date: string;
}

type Known = Record<string, Record<string, Progress>>;

const FILE = process.env.SOAK_FIGURES ?? "soak-figures.json";
const SUITES: Record<string, { counts: string; goal: number }> = JSON.parse(
  readFileSync(new URL("../soak/suites.json", import.meta.url), "utf8"),
);

function read(): Known {
  return existsSync(FILE) ? JSON.parse(readFileSync(FILE, "utf8")) : {};
}

function commit(): string {
  return process.env.SOAK_COMMIT ?? execFileSync("git", ["rev-parse", "--short", "HEAD"], { encoding: "utf8" }).trim();
}

/**
 * Runs the units of a suite that are still to be run, until its goal is reached or one more might not end within
 * `SOAK_SECONDS`. A unit
 * that fails is written down and fails the test; the next run goes on after it. `PI_TEST_SEED` runs one unit alone.
 */
export function soak(suite: string, unit: (random: Random, number: number) => Promise<Figures>): void {
  const { counts, goal } = SUITES[suite];
  const alone = process.env.PI_TEST_SEED;
  test(suite, async () => {
    if (alone !== undefined) {
      console.info(await unit(new Random(Number(alone)), Number(alone)));
      return;
    }
    const key = commit();
    const limit = Number(process.env.SOAK_SECONDS ?? Number.POSITIVE_INFINITY);
    const began = performance.now();
    for (;;) {
      const known = read();
      known[key] ??= {};
      known[key][suite] ??= { units: 0, seconds: 0, longest: 0, figures: {}, failures: [], nodes: [], date: "" };
      const progress = known[key][suite];
      const elapsed = (performance.now() - began) / 1000;
      // The first unit of a part runs in any case.
      if ((progress.figures[counts] ?? 0) >= goal || (elapsed > 1 && elapsed + progress.longest > limit)) break;
      const number = ++progress.units;
      const since = performance.now();
      let fault: unknown;
      try {
        for (const [name, value] of Object.entries(await unit(new Random(number), number)))
          progress.figures[name] = (progress.figures[name] ?? 0) + (value ?? 0);
      } catch (error) {
        fault = error;
        progress.failures.push({ unit: number, message: String((error as Error)?.message ?? error).slice(0, 2000) });
      }
      const took = Math.round((performance.now() - since) / 100) / 10;
      progress.seconds += took;
      progress.longest = Math.max(progress.longest, took);
      progress.date = new Date().toISOString().slice(0, 10);
      progress.nodes = [...new Set([...progress.nodes, process.version])];
      // In one step, so that an interruption in the middle loses one unit and no more.
      writeFileSync(`${FILE}.new`, `${JSON.stringify(known, null, 2)}\n`);
      renameSync(`${FILE}.new`, FILE);
      if (fault !== undefined) {
        if (fault instanceof Error) fault.message = `PI_TEST_SEED=${number}: ${fault.message}`;
        throw fault;
      }
    }
    expect(read()[key][suite].failures).toEqual([]);
  });
}
