/**
 * The long tests, in parts that add up: soak-figures.json records the work done, by commit.
 *
 *   npm run soak                      every suite in order, part by part, until all are done
 *   npm run soak -- --list            the suites, and how much of each is done at this commit
 *   npm run soak -- --part [suite]    the next part, of the suite or of the first that is not done; under nine minutes
 *   npm run soak -- --report          writes the figures of this commit into docs/figures.md
 *
 * `--commit <id>` means the figures of another commit. PI_TEST_SEED=<unit> with `--part <suite>` repeats one unit.
 */

import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const SUITES = JSON.parse(readFileSync(join(ROOT, "test/soak/suites.json"), "utf8"));
/** Seconds for the units of a part, estimated from those before; a start takes some, too. */
const PART_SECONDS = process.env.SOAK_SECONDS ?? "480";
/** After so many failures a suite shows nothing new. */
const ENOUGH_FAILURES = 10;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    list: { type: "boolean" },
    part: { type: "boolean" },
    report: { type: "boolean" },
    commit: { type: "string" },
    figures: { type: "string", default: join(ROOT, "soak-figures.json") },
    into: { type: "string", default: join(ROOT, "docs/figures.md") },
  },
});

const commit = values.commit ?? presentCommit();
const [named] = positionals;
if (named !== undefined && !(named in SUITES)) fail(`There is no suite ${named}: ${Object.keys(SUITES).join(", ")}.`);

if (values.list) for (const line of list()) console.log(line);
else if (values.report) report();
else if (values.part) {
  const suite = named ?? next();
  const isAlone = process.env.PI_TEST_SEED !== undefined;
  if (suite === undefined || !(isAlone || isOpen(suite)))
    console.log(`${suite ?? "Everything"} is done at ${commit}; --report writes it down.`);
  else process.exitCode = runPart(suite);
} else {
  const wanted = () => (named === undefined ? next() : isOpen(named) ? named : undefined);
  for (let suite = wanted(); suite !== undefined; suite = wanted()) if (runPart(suite) !== 0) process.exitCode = 1;
}

/** Returns the commit that is checked out, marked where files of the project were changed since. */
function presentCommit() {
  const git = (...args) => execFileSync("git", args, { cwd: ROOT, encoding: "utf8" }).trim();
  const changed = git("status", "--porcelain", "--", "src", "test", "scripts", "package-lock.json") !== "";
  return `${git("rev-parse", "--short=7", "HEAD")}${changed ? "+changes" : ""}`;
}

function read() {
  const all = existsSync(values.figures) ? JSON.parse(readFileSync(values.figures, "utf8")) : {};
  return all[commit] ?? {};
}

function doneOf(suite) {
  return read()[suite]?.figures[SUITES[suite].counts] ?? 0;
}

function isOpen(suite) {
  return doneOf(suite) < SUITES[suite].goal && (read()[suite]?.failures.length ?? 0) < ENOUGH_FAILURES;
}

function next() {
  return Object.keys(SUITES).find(isOpen);
}

function list() {
  return Object.entries(SUITES).map(([suite, { counts, goal }]) => {
    const failures = read()[suite]?.failures ?? [];
    const failedText = failures.length > 0 ? `, failed: units ${failures.map(({ unit }) => unit).join(", ")}` : "";
    return `${suite.padEnd(16)} ${doneOf(suite)} of ${goal} ${counts}${failedText}`;
  });
}

/** Runs units of a suite until its goal is reached or the time of a part is over; returns the exit status. */
function runPart(suite) {
  const before = JSON.stringify(read()[suite]);
  const vitest = join(dirname(createRequire(import.meta.url).resolve("vitest/package.json")), "vitest.mjs");
  const args = [vitest, "run", "--config", "vitest.soak.config.ts", `test/soak/${suite}.test.ts`];
  const env = { ...process.env, SOAK_FIGURES: values.figures, SOAK_COMMIT: commit, SOAK_SECONDS: PART_SECONDS };
  const { status } = spawnSync(process.execPath, args, { cwd: ROOT, stdio: "inherit", env });
  console.log(list()[Object.keys(SUITES).indexOf(suite)]);
  // A part that did not even begin would be begun for ever.
  if (JSON.stringify(read()[suite]) === before && process.env.PI_TEST_SEED === undefined) fail(`${suite} did not run.`);
  return status ?? 1;
}

function report() {
  const done = read();
  const suites = Object.keys(SUITES).filter((suite) => done[suite] !== undefined);
  const dates = suites.map((suite) => done[suite].date).sort();
  const nodes = [...new Set(suites.flatMap((suite) => done[suite].nodes))].sort();
  const rows = suites.map((suite) => {
    const { units, seconds, figures, failures } = done[suite];
    const { counts, goal } = SUITES[suite];
    const figureTexts = Object.entries(figures)
      .filter(([name]) => name !== counts)
      .map(([name, value]) => `${value.toLocaleString("en")} ${wordsOf(name)}`);
    const amount = `${doneOf(suite).toLocaleString("en")} of ${goal.toLocaleString("en")} ${wordsOf(counts)}`;
    const failed = failures.length === 0 ? "none" : failures.map(({ unit }) => unit).join(", ");
    return `| ${suite} | ${amount} | ${figureTexts.join(", ")} | 1 to ${units} | ${Math.ceil(seconds / 60)} min | ${failed} |`;
  });
  const missing = Object.keys(SUITES).filter((suite) => done[suite] === undefined);
  const table = [
    `At commit ${commit}, ${dates[0] ?? "no day"} to ${dates.at(-1) ?? "no day"}, Node ${nodes.join(", ") || "none"}.${
      missing.length > 0 ? ` Not run: ${missing.join(", ")}.` : ""
    }`,
    "",
    "| suite | done | figures | seeds | time | failed seeds |",
    "| --- | --- | --- | --- | --- | --- |",
    ...rows,
  ].join("\n");
  const text = readFileSync(values.into, "utf8");
  const marks = /(<!-- soak -->\n)[\s\S]*?(<!-- \/soak -->)/;
  if (!marks.test(text)) fail(`${values.into} has no place for the figures: <!-- soak --> and <!-- /soak -->.`);
  writeFileSync(
    values.into,
    text.replace(marks, (_all, begin, end) => `${begin}${table}\n${end}`),
  );
}

/** `withNamespaces` as a person says it. */
function wordsOf(name) {
  return name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

function fail(sentence) {
  console.error(sentence);
  process.exit(2);
}
