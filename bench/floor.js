// Rows of the bench whose goal is or was not reached, each in turn with a program that does only what the row cannot do
// without, on the same files and by the same measure: the system's calls, the hashes, the parse and the bytes. What each of
// them leaves out is said at the head of its file in bench/floors.
//
//   node bench/floor.js [--rows <text>] [--runs 5] [--large] [--write] [--quick] [--program, --library]
//
//   --rows      only rows whose name contains it
//   --large     also 1,000,000 entries and 100,000 sessions
//   --write     also into docs/figures.md
//   --quick     small sizes, one run: shows that it works, not how fast
//   --json      figures with their spread, as JSON
//   --program, --library    another build to measure: its dist/bin/pi-session-server.js and dist/lib/index.js
import { rmSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join } from "node:path";
import { replaceFigures, toFigures } from "./figures.js";
import { makeFloorRows as rowsOfOtherBenches } from "./floors/rows.js";
import { formatTable } from "./measure.js";
import { measureRows, warmUp } from "./measuring.js";
import { home, options, runs } from "./options.js";
import { makeRows } from "./rows.js";

/** The rows that have a floor, with it; a detail of the row before (`- ...`) has that row's name. */
function* floored() {
  let before = "";
  for (const { floor, prepare, ours, what, unit, goal, more } of makeRows()) {
    if (!what.startsWith("- ")) before = what;
    const name = what.startsWith("- ") ? `${before} ${what}` : what;
    if (floor) yield { what: name, unit, goal, more, prepare, ours, against: floor };
  }
  yield* rowsOfOtherBenches();
}

const [load] = loadavg();
try {
  if (options.write && options.rows !== "") throw new Error("--write writes the whole table. Leave --rows out.");
  await warmUp();
  const results = { node: process.version, processors: cpus().length, load, runs, rows: await measureRows(floored()) };
  const figures = { ...toFigures(results), head: ["what", "ours", "goal", "floor", "ratio"] };
  console.log(
    options.json ? JSON.stringify(results, null, 2) : `${figures.how}\n\n${formatTable(figures.head, figures.rows)}`,
  );
  if (options.write) replaceFigures(join(options.into, "docs/figures.md"), "figures of floors", figures);
} finally {
  rmSync(home, { recursive: true, force: true });
}
