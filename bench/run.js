// `npm run bench`: what we take, as ratios to what the machine does at best, in one run; medians of several.
//
//   --quick                 small sizes, one run: shows that it works, not how fast
//   --runs <n>              runs of each measurement (5)
//   --rows <text>           only rows whose name contains it
//   --million               also sessions of a million entries
//   --shapes                also sessions of unusual shapes
//   --figures               also into docs/figures.md, the table of this Node, or that of growth
//   --readme                so, too, and six of its rows into README.md
//   --json                  figures with their spread, as JSON
//   --into <dir>            where docs/figures.md and README.md are (this folder)
//   --from <file>           instead of measuring: a file that --json wrote, for --figures and --readme
//   --pi                    also Pi, on the same files: installs 0.73.1, and 1.5.2 where Node is 22.19 or newer
//   --before <commit>       also an earlier build of ours, or a folder that has one
//   --node <program>        the Node that runs Pi 1.5.2
//   --pi073, --pi15 <dir>   packages of Pi that are there already
//   --standalone <file>     also the program with Node in it, which node scripts/package.js made
//   --growth                instead: the time of every command as sessions grow, and the exponent
//   --compare <a> <b>       instead: two files that --json wrote, or two commits, built and measured in turns
//   --program, --library    another build to measure: its dist/bin/pi-session-server.js and dist/lib/index.js

import { existsSync, readFileSync, rmSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join } from "node:path";
import { ours } from "./asking.js";
import { compare, getBuild, measureInTurns, readResults } from "./compare.js";
import { toFigures, writeFigures } from "./figures.js";
import { formatTable } from "./measure.js";
import { measureRows, warmUp } from "./measuring.js";
import { home, million, options, positionals, quick, runs } from "./options.js";
import { measureListing } from "./other-benches.js";
import { findPis } from "./pi.js";
import { makeRows } from "./rows.js";
import { measureScaling } from "./scaling.js";
import { makeUsualRows } from "./usual.js";
import { makeContainerRows } from "./v2.js";

function* allRows() {
  yield* makeUsualRows();
  yield* makeRows();
  yield* makeContainerRows();
}

function print(results) {
  const { how, head, rows: lines, lost } = toFigures(results);
  console.log([how, formatTable(head, lines), ...lost].join("\n\n"));
  if (options.figures || options.readme) writeFigures(results, options.into, { withReadme: options.readme });
}

/** Load of the machine before the measurement. */
const [load] = loadavg();
try {
  if (options.compare) {
    if (positionals.length !== 2) throw new Error("--compare takes two files or commits.");
    const [before, after] = positionals.every(existsSync)
      ? positionals.map(readResults)
      : measureInTurns(...positionals.map(getBuild));
    compare(before, after);
  } else if (options.from !== undefined) print(JSON.parse(readFileSync(options.from, "utf8")));
  else {
    const builds = options.before === undefined ? [] : [getBuild(options.before)];
    await warmUp(builds);
    const document = options.figures ? join(options.into, "docs/figures.md") : undefined;
    if (options.growth) await measureScaling({ ours, home, quick, million, json: options.json, runs, document });
    else {
      const pis = options.pi ? findPis({ node: options.node, pi: options.pi073, pi15: options.pi15 }, home) : [];
      const results = {
        node: process.version,
        processors: cpus().length,
        load,
        runs,
        rows: [...(await measureRows(allRows(), { builds, pis })), ...(await measureListing(pis))],
      };
      if (options.json) console.log(JSON.stringify(results, null, 2));
      else print(results);
    }
  }
} finally {
  rmSync(home, { recursive: true, force: true });
}
