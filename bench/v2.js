// `node bench/v2.js`: Session Store V2 beside JSONL, on the same entries; medians of several runs.
//
//   --quick      small sizes, one run: shows that it works, not how fast
//   --runs <n>   runs of each measurement (5)
//   --million    also a session of a million entries
//   --json       figures with their spread, as JSON
//   --program    another build to measure: its dist/bin/pi-session-server.js
//
// Resume is the time from the start of a process to its answer to get_state; the first row is that of one without a
// session. A durable append is one request after the other, each answered when it is on the medium.
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { writeSession } from "./generate.js";
import { Child, figure, request } from "./measure.js";

const root = fileURLToPath(new URL("..", import.meta.url));
const { values: options } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    runs: { type: "string" },
    million: { type: "boolean", default: false },
    json: { type: "boolean", default: false },
    program: { type: "string", default: join(root, "dist/bin/pi-session-server.js") },
  },
});
const runs = Number(options.runs ?? (options.quick ? 1 : 5));
const program = resolve(options.program);
const home = mkdtempSync(join(tmpdir(), "pi-session-server-v2-"));
const env = { ...process.env, HOME: home, PI_SESSION_SERVER_STATE_DIR: join(home, "state"), NODE_OPTIONS: "" };
for (const name of ["PI_CODING_AGENT_DIR", "PI_CODING_AGENT_SESSION_DIR", "PI_SESSIONS_DIR"]) delete env[name];

const serve = (...args) => new Child(process.execPath, [program, "--events", "none", ...args], env);
const rows = [];

function row(name, unit, values) {
  const measured = figure(values);
  rows.push({ name, unit, ...measured });
  if (options.json) return;
  const digits = measured.median < 10 ? 2 : 0;
  const [median, low, high] = [measured.median, measured.low, measured.high].map((value) => value.toFixed(digits));
  console.log(`${name.padEnd(48)} ${median.padStart(9)} ${unit.padEnd(6)} (${low} to ${high})`);
}

async function end(child) {
  child.process.stdin.end();
  await child.gone;
}

/** A session file of the generator with an id that V2 takes. */
function makeSession(count, shape) {
  const file = join(home, `${shape}-${count}.jsonl`);
  writeSession(file, count, shape);
  const bytes = readFileSync(file);
  const past = bytes.indexOf(10);
  const header = JSON.parse(bytes.subarray(0, past).toString());
  header.id = `01991f6e-1f1d-7c3e-b0a4-${String(count).padStart(10, "0")}${shape === "lean" ? "aa" : "bb"}`;
  writeFileSync(file, Buffer.concat([Buffer.from(JSON.stringify(header)), bytes.subarray(past)]));
  return file;
}

/** Milliseconds from the start of a process to the state of a session. */
async function resume(...args) {
  const times = [];
  for (let n = 0; n < runs; n++) {
    const child = serve(...args);
    await child.ask([request("s", "get_state")]);
    times.push(performance.now() - child.began);
    await end(child);
  }
  return times;
}

async function migrate(file) {
  const child = serve("--no-session");
  const { result, took } = await child.result("migrate_session", { sessionPath: file });
  await end(child);
  return { container: result.sessionPath, took };
}

/** What is measured are servers that come after one that was used, whose machine code is kept two seconds after its start. */
async function warmUp() {
  const child = serve("--no-session");
  const { result } = await child.result("migrate_session", { sessionPath: makeSession(100, "lean") });
  await child.result("switch_session", { sessionPath: result.sessionPath });
  if (!options.quick) await new Promise((resolve) => setTimeout(resolve, 3000));
  await end(child);
}

/** Milliseconds of each of `count` appends that wait for one another. */
async function appends(path, count) {
  const child = serve("--session", path);
  await child.result("get_state");
  const times = [];
  for (let n = 0; n < count; n++) {
    const message = { role: "user", content: `append ${n} ${"x".repeat(200)}` };
    times.push((await child.result("append", { entries: [{ type: "message", message }] })).took);
  }
  await end(child);
  return times;
}

/** Bytes of all files of a container. */
function sizeOf(path) {
  if (!statSync(path).isDirectory()) return statSync(path).size;
  return readdirSync(path).reduce((sum, name) => sum + sizeOf(join(path, name)), 0);
}

if (!existsSync(program)) throw new Error(`There is no build at ${program}. npm run build makes one.`);
try {
  if (!options.json) console.log(`${cpus()[0].model}, ${cpus().length} cores, Node ${process.version}, ${runs} runs\n`);
  await warmUp();
  row("start without a session", "ms", await resume("--no-session"));
  const sizes = options.quick ? [1000] : [10_000, 100_000, ...(options.million ? [1_000_000] : [])];
  const medians = {};
  for (const count of sizes)
    for (const shape of ["lean", ...(count <= 100_000 ? ["realistic"] : [])]) {
      const file = makeSession(count, shape);
      const { size } = statSync(file);
      const name = `${count} entries, ${shape}`;
      row(`resume, JSONL, ${name}`, "ms", await resume("--session", file));
      const { container, took } = await migrate(file);
      const rates = [size / 1e6 / (took / 1000)];
      for (let n = 1; n < Math.min(runs, 3); n++) {
        rmSync(container, { recursive: true });
        rmSync(container.replace(/\.v2$/, ".store.json"));
        rmSync(`${file}.migrated`);
        rates.push(size / 1e6 / ((await migrate(makeSession(count, shape))).took / 1000));
      }
      row(`migration, ${name}`, "MB/s", rates);
      row(`bytes on the disk per payload byte, ${name}`, "", [sizeOf(container) / size]);
      row(`resume, V2, ${name}`, "ms", await resume("--session", container));
      const times = await appends(container, options.quick ? 20 : 200);
      row(`durable append, V2, ${name}`, "ms", times);
      if (shape === "lean") medians[count] = figure(times).median;
    }
  const small = makeSession(1001, "lean");
  const times = await appends((await migrate(small)).container, options.quick ? 20 : 200);
  row("durable append, V2, 1001 entries, lean", "ms", times);
  const large = sizes[sizes.length - 1];
  row(`durable append, ${large} entries to 1001`, "x", [medians[large] / figure(times).median]);
  if (options.json) console.log(JSON.stringify(rows));
} finally {
  rmSync(home, { recursive: true, force: true });
}
