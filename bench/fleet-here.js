// What the benches of the fleet share: a PostgreSQL on this machine, folders that stand for machines, a verb, and the time
// until a long session is usable on a machine that has nothing of it: until it is open, and until its first context. Its
// server is started before, as a container's is; `with start` counts from that.
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { cpus, loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { endDatabase, startDatabase } from "../scripts/database.js";
import { replaceFigures } from "./figures.js";
import { writeSession } from "./generate.js";
import { program } from "./measure.js";
import { computePercentile, Server } from "./server.js";

const [load] = loadavg();
export const home = mkdtempSync(join(tmpdir(), "pi-session-server-bench-"));
const place = mkdtempSync(join(process.env.BENCH_DATABASE ?? tmpdir(), "pi-session-server-database-"));
const database = await startDatabase(place);
export const url = `postgres:///postgres?host=${encodeURIComponent(place)}&user=fleet`;

function makeMachine(name) {
  const folder = join(home, name);
  mkdirSync(folder, { recursive: true });
  return folder;
}

/** Starts a server on a machine of its own, with the fleet's database unless `variables` say otherwise. */
export const startServer = (name, given = [], variables = { PI_FLEET_URL: url }) =>
  new Server(makeMachine(name), { given, variables });

/** Runs `fleet` with these words. Returns its result, and the seconds that it took. */
export function runFleet(...words) {
  const folder = makeMachine("verbs");
  const env = {
    PATH: process.env.PATH,
    HOME: folder,
    PI_SESSION_SERVER_STATE_DIR: join(folder, "state"),
    PI_FLEET_URL: url,
  };
  const from = performance.now();
  const options = { env, encoding: "utf8", maxBuffer: 1 << 28 };
  const text = execFileSync(process.execPath, [program, "fleet", ...words, "--json"], options);
  return { result: JSON.parse(text), seconds: (performance.now() - from) / 1000 };
}

export const endFleet = () => endDatabase(database);

process.on("exit", () => {
  database.kill("SIGKILL");
  for (const folder of [place, home]) rmSync(folder, { recursive: true, force: true });
});

/** Writes a table into docs/figures.md. */
export function writeTable(place, more, rows) {
  const how = `Node ${process.version}, ${cpus().length} processors for all of it, load ${load.toFixed(1)} before, ${more}`;
  const document = fileURLToPath(new URL("../docs/figures.md", import.meta.url));
  replaceFigures(document, place, { how, head: ["what", "measured", "goal"], rows });
}

/** Returns the figures of a session with so many entries. */
export async function measureColdOpen(entries, rounds) {
  const folder = makeMachine("long");
  const file = join(folder, "long.jsonl");
  writeSession(file, entries);
  const bytes = statSync(file).size;
  runFleet("import", folder);
  const figures = await measureColdMachines(`bench-realistic-${entries}`, rounds);
  const coldMegabytesPerSecond = Math.round(bytes / 1e3 / figures.coldOpenMilliseconds);
  return { coldMegabytes: Math.round(bytes / 1e6), coldMegabytesPerSecond, ...figures };
}

/** Returns the figures of machines that open a session which is there, medians of `rounds`. */
export async function measureColdMachines(sessionId, rounds) {
  const took = { open: [], context: [], peak: [], started: [] };
  for (let round = 0; round < rounds; round++) {
    const server = startServer(`cold-${round}`);
    await server.ask("get_state", {});
    const from = performance.now();
    await server.ask("switch_session", { sessionId });
    took.open.push(performance.now() - from);
    const { result } = await server.ask("get_context", {});
    took.context.push(performance.now() - from);
    if (!(result.messages?.length > 0)) throw new Error("there is no context");
    took.peak.push(server.memory());
    await server.end();
    const start = performance.now();
    const started = startServer(`started-${round}`, ["--session", sessionId]);
    await started.ask("get_context", {});
    took.started.push(performance.now() - start);
    await started.end();
  }
  const figure = (times) => Math.round(computePercentile(times, 0.5));
  return {
    coldOpenMilliseconds: figure(took.open),
    coldContextMilliseconds: figure(took.context),
    coldContextWithStartMilliseconds: figure(took.started),
    coldPeakMegabytes: figure(took.peak),
  };
}
