// Time for an agent to recall: makes many sessions, then asks the built program over the Model Context Protocol.
//
//   node bench/recall.js --sessions 1000 --kilobytes 551 [--rounds 200] [--pause 150] [--json] [--home <dir>]
//
// `--pause`: milliseconds between two calls, as between those of an agent. `--home`: a folder whose sessions stay there
// for the next run. Prints the time to the first answer, percentiles of `find` and of the other tools, bytes, and memory.
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { parseDefaults, readMemory } from "./measure.js";
import { computePercentile, Server } from "./server.js";
import { makeSessions, word } from "./sessions.js";

const options = parseDefaults({ sessions: 1000, kilobytes: 551, rounds: 200, pause: 150, json: false, home: "" });
const home = options.home || mkdtempSync(join(tmpdir(), "pi-session-server-bench-"));
if (!options.home) process.on("exit", () => rmSync(home, { recursive: true, force: true }));
if (!existsSync(join(home, ".pi"))) {
  mkdirSync(home, { recursive: true });
  makeSessions(home, options.sessions, options.kilobytes);
}
const _meta = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientCapabilities": {},
};
const pause = () => new Promise((resolve) => setTimeout(resolve, options.pause));

/** Megabytes now. */
const memoryOf = ({ process: { pid } }) => Math.round(readMemory(pid, "VmRSS") / 1024);

async function started() {
  const from = performance.now();
  const server = new Server(home, { given: ["--read-only", "--attach", "off"], dialect: "mcp" });
  await server.ask("server/discover", { _meta });
  return { server, took: performance.now() - from };
}

async function call(server, name, args) {
  const { result, took } = await server.ask("tools/call", { name, arguments: args, _meta });
  if (result.isError) throw new Error(result.content[0].text);
  return { text: result.content[0].text, took };
}

const figures = { sessions: options.sessions, load: loadavg()[0] };
const { server: first } = await started();
const cold = performance.now();
let partial = 0;
while ((await call(first, "find", { query: "two words" })).text.split("\n")[0].includes("partial")) {
  partial++;
  await pause();
}
figures.coldSeconds = Number(((performance.now() - cold) / 1000).toFixed(1));
figures.coldCalls = partial + 1;
await first.end();

const starts = [];
for (let n = 0; n < 10; n++) {
  const { server, took } = await started();
  starts.push(took);
  await server.end();
}
figures.discoverP50 = computePercentile(starts, 0.5);
figures.discoverP95 = computePercentile(starts, 0.95);

const { server } = await started();
figures.idleMegabytes = memoryOf(server);
figures.firstFind = Number((await call(server, "find", { query: `${word()} ${word()}` })).took.toFixed(1));
const questions = {
  find: () => ["find", { query: `${word()} ${word()} ${word()}` }],
  findHere: () => ["find", { query: `${word()} ${word()}`, project: "/home/me/project-7" }],
  findAll: () => ["find", { query: `${word()} ${word()}`, in: "all" }],
  recent: () => ["recent", {}],
};
for (const [name, make] of Object.entries(questions)) {
  const took = [];
  const sizes = [];
  for (let n = 0; n < options.rounds; n++) {
    await pause();
    const answer = await call(server, ...make());
    took.push(answer.took);
    sizes.push(Buffer.byteLength(answer.text));
  }
  // The first ones are not warm.
  const warm = took.slice(Math.min(20, options.rounds - 1));
  figures[`${name}P50`] = computePercentile(warm, 0.5);
  figures[`${name}P95`] = computePercentile(warm, 0.95);
  figures[`${name}Bytes`] = computePercentile(sizes, 0.5);
}
figures.megabytesAfter = memoryOf(server);
figures.peakMegabytes = server.memory();
await server.end();

if (options.json) console.log(JSON.stringify(figures));
else for (const [name, value] of Object.entries(figures)) console.log(`${name.padEnd(20)} ${value}`);
