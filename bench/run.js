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
//   --node <program>        the Node that runs Pi 1.5.2
//   --pi073, --pi15 <dir>   packages of Pi that are there already
//   --growth                instead: the time of every command as sessions grow, and the exponent
//   --compare <a> <b>       instead: two files that --json wrote, or two commits, built and measured in turns
//   --program, --library    another build to measure: its dist/bin/pi-session-server.js and dist/lib/index.js

import { existsSync, readFileSync, rmSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join } from "node:path";
import { ours, using } from "./asking.js";
import { buildOf, compare, inTurns, resultsOf } from "./compare.js";
import { figuresOf, writeFigures } from "./figures.js";
import { growth } from "./growth.js";
import { figure, request, table } from "./measure.js";
import { home, million, options, piRuns, positionals, quick, runs } from "./options.js";
import { listing, segmented } from "./other-benches.js";
import { findPis } from "./pi.js";
import { rows, session } from "./rows.js";

/**
 * A server keeps the machine code of what was asked of it, two seconds after its start. What is measured are those that
 * come after one that opened a session and read it, which is how users find them.
 */
async function warmUp() {
  const file = session("realistic", 1000);
  await using(ours("--no-session"), async (child) => {
    const asked = [
      ["get_state"],
      ["switch_session", { sessionPath: file }],
      ["get_messages"],
      ["get_tree", { limit: 100 }],
    ];
    await child.ask(asked.map(([method, params], id) => request(id, method, params)));
    if (!quick) await new Promise((resolve) => setTimeout(resolve, 3000));
  });
}

async function measure(pis) {
  const measured = [];
  for (const row of rows()) {
    if (!row.what.includes(options.rows)) continue;
    if (!options.json) process.stderr.write(`${row.what} ...\n`);
    const values = { ours: [], against: [], pis: pis.map(() => []) };
    await row.prepare?.();
    // In turn, so that a drift of the machine meets all of them.
    for (let n = 0; n < runs; n++) {
      values.ours.push(await row.ours());
      if (row.against) values.against.push(await row.against[1]());
      if (n < piRuns)
        for (const [index, pi] of pis.entries())
          values.pis[index].push(await Promise.resolve(row.pi?.(pi)).catch(() => undefined));
    }
    const known = (list) => (list.some((value) => value === undefined) || list.length === 0 ? undefined : figure(list));
    measured.push({
      what: row.what,
      unit: row.unit,
      goal: row.goal,
      more: row.more ?? false,
      ours: figure(values.ours),
      against: row.against && { what: row.against[0], ...known(values.against) },
      pis: Object.fromEntries(pis.map(({ name }, index) => [name, known(values.pis[index])])),
    });
  }
  return [...measured, ...(await segmented()), ...(await listing(pis))];
}

function print(results) {
  const { how, head, rows: lines } = figuresOf(results);
  console.log(`${how}\n`);
  console.log(table(head, lines));
  if (options.figures || options.readme) writeFigures(results, options.into, { withReadme: options.readme });
}

/** What the machine did before it was measured. */
const [load] = loadavg();
try {
  if (options.compare) {
    if (positionals.length !== 2) throw new Error("--compare takes two files or commits.");
    const [before, after] = positionals.every(existsSync)
      ? positionals.map(resultsOf)
      : inTurns(...positionals.map(buildOf));
    compare(before, after);
  } else if (options.from !== undefined) print(JSON.parse(readFileSync(options.from, "utf8")));
  else {
    await warmUp();
    const document = options.figures ? join(options.into, "docs/figures.md") : undefined;
    if (options.growth) await growth({ ours, home, quick, million, json: options.json, runs, document });
    else {
      const pis = options.pi ? findPis({ node: options.node, pi: options.pi073, pi15: options.pi15 }, home) : [];
      const results = { node: process.version, processors: cpus().length, load, runs, rows: await measure(pis) };
      if (options.json) console.log(JSON.stringify(results, null, 2));
      else print(results);
    }
  }
} finally {
  rmSync(home, { recursive: true, force: true });
}
