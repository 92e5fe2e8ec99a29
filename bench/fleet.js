// Times of a fleet over a PostgreSQL on this machine, which it starts: sessions imported, listed and searched by a
// server that has none of them, and appends that are durable there, next to those of files alone.
//
//   node bench/fleet.js --sessions 1000 [--kilobytes 100] [--rounds 200] [--appends 500] [--json] [--write]
//   node bench/fleet.js --sessions 0 --cold 100000 [--colds 5]     time until a session of so many entries is usable
//
// --write puts a table into docs/figures.md. Needs a build, the package pg, and PostgreSQL's programs.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { endFleet, home, measureColdOpen, runFleet, startServer, url, writeTable } from "./fleet-here.js";
import { Child, ECHO, makeRequest, parseDefaults } from "./measure.js";
import { computePercentile } from "./server.js";
import { makeSessions, word } from "./sessions.js";

const options = parseDefaults({
  sessions: 1000,
  kilobytes: 100,
  rounds: 200,
  appends: 500,
  cold: 0,
  colds: 5,
  json: false,
  write: false,
});
const { root: made, files, bytes } = makeSessions(join(home, "made"), options.sessions, options.kilobytes);
const figures = { node: process.version, sessions: options.sessions, megabytes: Math.round(bytes / 1e6) };

async function manySessions() {
  const brought = runFleet("import", made);
  if (brought.result.refused > 0) throw new Error(JSON.stringify(brought.result.files.find(({ message }) => message)));
  figures.importMegabytesPerSecond = Number((bytes / 1e6 / brought.seconds).toFixed(1));
  const { storedBytes } = runFleet("status").result;
  figures.storedMegabytes = Math.round(storedBytes / 1e6);
  const verified = runFleet("verify");
  if (verified.result.faults.length > 0) throw new Error("what was brought in is not what there is");
  figures.verifyMegabytesPerSecond = Number((bytes / 1e6 / verified.seconds).toFixed(1));

  const server = startServer("empty");
  await server.ask("get_state", {});
  const first = await server.ask("list_sessions", { limit: 50 });
  if (first.result.total !== options.sessions) throw new Error(`${first.result.total} sessions are listed`);
  figures.firstListMilliseconds = Number(first.took.toFixed(1));
  const measured = async (name, method, paramsOf) => {
    const took = [];
    for (let i = 0; i < options.rounds; i++) took.push((await server.ask(method, paramsOf(i))).took);
    figures[`${name}P50`] = computePercentile(took, 0.5);
    figures[`${name}P95`] = computePercentile(took, 0.95);
  };
  await measured("list", "list_sessions", (i) => ({
    limit: 50,
    ...(i % 4 === 3 ? { cwd: "/home/me/project-7" } : {}),
  }));
  const searched = () => ({ query: `${word()} ${word()}`, limit: 20 });
  figures.firstSearchMilliseconds = Number((await server.ask("search_sessions", searched())).took.toFixed(1));
  await measured("search", "search_sessions", searched);
  await measured("usage", "get_usage", () => ({ groupBy: ["day"] }));
  await server.end();

  const lines = readFileSync(files.at(-1).file, "utf8").trimEnd().split("\n").slice(1);
  for (const [name, variables] of [
    ["append", { PI_FLEET_URL: url }],
    ["fileAppend", {}],
  ]) {
    const writer = startServer(name, [], variables);
    await writer.ask("get_state", {});
    const took = [];
    for (let i = 0; i < options.appends; i++) {
      const { type, message } = JSON.parse(lines[i % lines.length]);
      const reply = await writer.ask("append", { entries: [{ type, message }] });
      if (i >= 20) took.push(reply.took);
    }
    figures[`${name}P50`] = computePercentile(took, 0.5);
    figures[`${name}P99`] = computePercentile(took, 0.99);
    await writer.end();
  }
}

/** Notes how long the machine takes for a request that is only echoed: microseconds, p50. */
async function echoed() {
  const echo = new Child(process.execPath, ["-e", ECHO], process.env);
  const took = [];
  for (let n = 0; n < 5000; n++) took.push(await echo.ask([makeRequest(n, "get_state")]));
  await echo.end();
  figures.echo = Math.round(computePercentile(took.slice(1000), 0.5) * 1000);
}

try {
  await echoed();
  runFleet("migrate");
  if (options.sessions > 0) await manySessions();
  if (options.cold > 0) Object.assign(figures, await measureColdOpen(options.cold, options.colds));
} finally {
  await endFleet();
}

if (options.write) {
  const milliseconds = (name) => `${figures[`${name}P50`]} and ${figures[`${name}P95`] ?? figures[`${name}P99`]} ms`;
  const rows = [
    ["list, p50 and p95", milliseconds("list"), "20 ms"],
    ["search for two words, p50 and p95", milliseconds("search"), "20 ms"],
    ["- the first of a server", `${figures.firstSearchMilliseconds} ms`, ""],
    ["usage by day, p50 and p95", milliseconds("usage"), ""],
    ["first list of a server", `${figures.firstListMilliseconds} ms`, ""],
    ["append, p50 and p99", milliseconds("append"), "0.6 ms"],
    ["- without a fleet", milliseconds("fileAppend"), ""],
    ["- a request that is echoed", `${figures.echo} us`, ""],
    ["import, with words and usage", `${figures.importMegabytesPerSecond} MB/s`, ""],
    ["`fleet verify`", `${figures.verifyMegabytesPerSecond} MB/s`, ""],
  ];
  writeTable(
    "figures of many sessions",
    `${options.sessions} sessions of ${figures.megabytes} MB together, from a machine that has none of them; PostgreSQL there, too, with its own settings; \`node bench/fleet.js --write\``,
    rows,
  );
}
if (options.json) console.log(JSON.stringify(figures));
else for (const [name, value] of Object.entries(figures)) console.log(`${name.padEnd(28)} ${value}`);
