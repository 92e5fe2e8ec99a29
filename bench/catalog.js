// Time to find sessions: makes many of them, then asks the built program over its streams.
//
//   node bench/catalog.js --sessions 10000 [--kilobytes 100] [--rounds 200] [--json]
//
// `--libraries` names packages with Pi's SessionManager, as JSON: how long each takes to list the same sessions.
//
// Prints the cold build, the first count of usage, the 95th percentile of a page of 50, of usage by day, model,
// directory and session, and of a search for two words, and memory.
import { appendFileSync, mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseDefaults, runFresh } from "./measure.js";
import { computePercentile, Server } from "./server.js";
import { hex, makePath, makeSessions, random, word } from "./sessions.js";

const options = parseDefaults({
  sessions: 1000,
  kilobytes: 100,
  rounds: 200,
  json: false,
  libraries: "[]",
});

// --- sessions --------------------------------------------------------------------------------------------------------

const home = mkdtempSync(join(tmpdir(), "pi-session-server-bench-"));
process.on("exit", () => rmSync(home, { recursive: true, force: true }));
const { root, files, bytes } = makeSessions(home, options.sessions, options.kilobytes);

/** Size of the catalog with SQLite's files next to it. */
function catalogMegabytes() {
  const folder = join(home, "state", "catalog");
  return Math.round(readdirSync(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0) / 1e6);
}

const figures = { node: process.version, sessions: files.length, megabytes: Math.round(bytes / 1e6) };

/** A server that has answered once: how long a process takes to start is measured elsewhere. */
async function started() {
  const server = new Server(home);
  await server.ask("get_state", {});
  return server;
}

let server = await started();
const page = { limit: 50 };
const cold = await server.ask("list_sessions", { ...page, _meta: { progressToken: 1 } });
if (cold.result.total !== files.length) throw new Error(`${cold.result.total} of ${files.length} sessions are listed`);
figures.coldListSeconds = Number((cold.took / 1000).toFixed(2));
figures.progressNotifications = server.progress;

async function times(rounds, method, params) {
  const took = [];
  for (let i = 0; i < rounds; i++) took.push((await server.ask(method, params(i))).took);
  return took;
}

const lists = await times(options.rounds, "list_sessions", (i) => ({
  ...page,
  ...(i % 4 === 3 ? { cwd: "/home/me/project-7" } : {}),
}));
figures.listP50 = computePercentile(lists, 0.5);
figures.listP95 = computePercentile(lists, 0.95);

const first = await server.ask("search_sessions", { query: "two words", limit: 20, _meta: { progressToken: 2 } });
figures.coldSearchSeconds = Number((first.took / 1000).toFixed(2));
let hits = 0;
const searches = [];
for (let i = 0; i < options.rounds; i++) {
  // As a person would: words that occur, of any frequency.
  const { result, took } = await server.ask("search_sessions", { query: `${word()} ${word()}`, limit: 20 });
  hits += result.hits.length;
  searches.push(took);
}
figures.searchP50 = computePercentile(searches, 0.5);
figures.searchP95 = computePercentile(searches, 0.95);
figures.hitsPerSearch = Number((hits / options.rounds).toFixed(1));

const firstUsage = await server.ask("get_usage", { groupBy: ["day", "model"] });
figures.firstUsageMilliseconds = Number(firstUsage.took.toFixed(0));
if (firstUsage.result.totals.sessions !== files.length) throw new Error("the usage of some sessions is missing");
const since = new Date(Date.UTC(2025, 11, 1)).toISOString();
const questions = [
  { groupBy: ["day"] },
  { groupBy: ["model"] },
  { groupBy: ["cwd", "day"], since },
  { groupBy: ["session", "model"], limit: 50 },
];
const usages = await times(options.rounds, "get_usage", (i) => questions[i % questions.length]);
figures.usageP50 = computePercentile(usages, 0.5);
figures.usageP95 = computePercentile(usages, 0.95);
const dearest = await times(options.rounds, "list_sessions", () => ({ ...page, sort: "cost" }));
figures.listByCostP95 = computePercentile(dearest, 0.95);
const CALLS = { in: ["user", "assistant", "toolCall"], limit: 20 };
figures.catalogMegabytes = catalogMegabytes();
figures.firstCallsSeconds = Number(
  ((await server.ask("search_sessions", { query: "two words", ...CALLS })).took / 1000).toFixed(2),
);
figures.catalogWithCallsMegabytes = catalogMegabytes();
for (const [name, params] of [
  ["searchCalls", () => ({ query: `${word()} ${word()}`, ...CALLS })],
  ["searchTool", () => ({ query: word(), tool: "edit", in: ["toolCall"], limit: 20 })],
  ["searchFile", () => ({ file: makePath(), limit: 20 })],
]) {
  const took = await times(options.rounds, "search_sessions", params);
  figures[`${name}P50`] = computePercentile(took, 0.5);
  figures[`${name}P95`] = computePercentile(took, 0.95);
}

const appended = [];
for (let i = 0; i < 50; i++) {
  const session = files[Math.floor(random() * files.length)];
  const needle = `needle${hex(10)}`;
  const entry = {
    type: "message",
    id: hex(8),
    parentId: session.last,
    timestamp: new Date().toISOString(),
    message: { role: "user", content: needle },
  };
  session.last = entry.id;
  appendFileSync(session.file, `${JSON.stringify(entry)}\n`);
  const { result, took } = await server.ask("search_sessions", { query: needle });
  if (result.hits[0]?.entryId !== entry.id) throw new Error(`what was appended to ${session.file} is not found`);
  appended.push(took);
}
figures.searchAfterAppendP95 = computePercentile(appended, 0.95);
figures.peakMegabytes = server.memory();
await server.end();

for (const { name, node, library } of JSON.parse(options.libraries)) {
  const worker = fileURLToPath(new URL("worker.js", import.meta.url));
  const listed = await runFresh(node, [worker, "list", root, library], { PATH: process.env.PATH, HOME: home });
  figures.libraries ??= {};
  figures.libraries[name] = listed;
}

server = await started();
figures.warmFirstListMilliseconds = Number((await server.ask("list_sessions", page)).took.toFixed(0));
// As the verb asks: a process of its own, with what the one before kept.
figures.warmFirstUsageMilliseconds = Number((await server.ask("get_usage", { groupBy: ["day"] })).took.toFixed(0));
figures.warmMegabytes = server.memory();
await server.end();

if (options.json) console.log(JSON.stringify(figures));
else
  for (const [name, value] of Object.entries(figures))
    console.log(`${name.padEnd(28)} ${typeof value === "object" ? JSON.stringify(value) : value}`);
