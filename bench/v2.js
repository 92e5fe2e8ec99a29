// `node bench/v2.js`: Session Store V2 next to JSONL, on the same entries; medians of several runs.
//
//   --quick      small sizes, one run: shows that it works, not how fast
//   --runs <n>   runs of each measurement (5)
//   --million    also a session of a million entries
//   --json       figures with their spread, as JSON
//   --program    another build to measure: its dist/bin/pi-session-server.js
//
// Resume is the time from the start of a process to its answer to get_state; the first row is a server without a
// session. A durable append is one request after the other, each answered when it is on the medium.
import { existsSync, rmSync, statSync } from "node:fs";
import { cpus } from "node:os";
import { measureFirstReply, ours, runWith, state } from "./asking.js";
import { makeSession, measureSize, migrate } from "./containers.js";
import { toFigure } from "./measure.js";
import { home, million, options, program, quick, runs } from "./options.js";

const rows = [];

function row(name, unit, values) {
  const measured = toFigure(values);
  rows.push({ name, unit, ...measured });
  if (options.json) return;
  const digits = measured.median < 10 ? 2 : 0;
  const [median, low, high] = [measured.median, measured.low, measured.high].map((value) => value.toFixed(digits));
  console.log(`${name.padEnd(48)} ${median.padStart(9)} ${unit.padEnd(6)} (${low} to ${high})`);
}

/** Milliseconds from the start of a process to the state of a session. */
async function resume(...args) {
  const times = [];
  for (let n = 0; n < runs; n++) times.push(await measureFirstReply(ours(...args), state("s")));
  return times;
}

/** Servers are measured after another one was used, because that keeps its machine code two seconds after its start. */
const warmUp = () =>
  runWith(ours("--no-session"), async (child) => {
    const { result } = await child.result("migrate_session", { sessionPath: makeSession(100, "lean") });
    await child.result("switch_session", { sessionPath: result.sessionPath });
    if (!quick) await new Promise((resolve) => setTimeout(resolve, 3000));
  });

/** Milliseconds of each of `count` appends that wait for one another. */
const appends = (path, count) =>
  runWith(ours("--session", path), async (child) => {
    await child.result("get_state");
    const times = [];
    for (let n = 0; n < count; n++) {
      const message = { role: "user", content: `append ${n} ${"x".repeat(200)}` };
      times.push((await child.result("append", { entries: [{ type: "message", message }] })).took);
    }
    return times;
  });

if (!existsSync(program)) throw new Error(`There is no build at ${program}. npm run build makes one.`);
try {
  if (!options.json) console.log(`${cpus()[0].model}, ${cpus().length} cores, Node ${process.version}, ${runs} runs\n`);
  await warmUp();
  row("start without a session", "ms", await resume("--no-session"));
  const sizes = quick ? [1000] : [10_000, 100_000, ...(million ? [1_000_000] : [])];
  const medians = {};
  for (const count of sizes)
    for (const shape of ["lean", ...(count <= 100_000 ? ["realistic"] : [])]) {
      const file = makeSession(count, shape);
      const { size } = statSync(file);
      const name = `${count} entries, ${shape}`;
      row(`resume, JSONL, ${name}`, "ms", await resume("--session", file));
      let container;
      const rates = [];
      for (let n = 0; n < Math.min(runs, 3); n++) {
        const made = await migrate(makeSession(count, shape));
        container = made.container;
        rates.push(size / 1e6 / (made.took / 1000));
      }
      row(`migration, ${name}`, "MB/s", rates);
      row(`bytes on the disk per payload byte, ${name}`, "", [measureSize(container) / size]);
      row(`resume, V2, ${name}`, "ms", await resume("--session", container));
      const times = await appends(container, quick ? 20 : 200);
      row(`durable append, V2, ${name}`, "ms", times);
      if (shape === "lean") medians[count] = toFigure(times).median;
    }
  const small = makeSession(1001, "lean");
  const times = await appends((await migrate(small)).container, quick ? 20 : 200);
  row("durable append, V2, 1001 entries, lean", "ms", times);
  const large = sizes[sizes.length - 1];
  row(`durable append, ${large} entries to 1001`, "x", [medians[large] / toFigure(times).median]);
  if (options.json) console.log(JSON.stringify(rows));
} finally {
  rmSync(home, { recursive: true, force: true });
}
