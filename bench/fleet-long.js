// Times of a fleet with long sessions and with many writers, over a PostgreSQL on this machine, which it starts.
//
//   node bench/fleet-long.js [--entries 100000] [--sessions 100] [--writers 64] [--small 1000] [--seconds 5]
//                            [--only push,sessions,append,writers] [--write]
//
// --write puts the table into docs/figures.md. Needs a build, the package pg, and PostgreSQL's programs.
import { statSync } from "node:fs";
import { join } from "node:path";
import { endFleet, home, measureColdMachines, runFleet, startServer, url, writeTable } from "./fleet-here.js";
import { writeSession } from "./generate.js";
import { parseDefaults } from "./measure.js";
import { computePercentile } from "./server.js";
import { makeSessions } from "./sessions.js";

const options = parseDefaults({
  ...{ entries: 100_000, sessions: 100, writers: 64, small: 1000, seconds: 5 },
  ...{ only: "", write: false },
});
const wanted = (part) => options.only === "" || options.only.split(",").includes(part);
const { default: pg } = await import("pg");
const client = new pg.Client(url);
await client.connect();
const sql = async (text) => (await client.query(text)).rows[0];
const rows = [];
const add = (what, value, goal = "") => {
  rows.push([what, value, goal]);
  console.log(what.padEnd(60), value, goal && `(goal ${goal})`);
};
const seconds = (milliseconds) => `${(milliseconds / 1000).toFixed(1)} s`;
const megabytes = (bytes) => `${Math.round(bytes / 1e6)} MB`;
const perSecond = (bytes, milliseconds) => `${(bytes / 1e3 / milliseconds).toFixed(1)} MB/s`;

const size = async (...tables) =>
  Number((await sql(`select ${tables.map((name) => `pg_total_relation_size('${name}')`).join(" + ")} as bytes`)).bytes);
const entryOf = (content) => ({ type: "message", message: { role: "user", content } });
const entryNumber = (n) => entryOf(`say ${n} of what is to be done next`);
/** Milliseconds of an append to a session of a server. */
const appended = async (one, n, where = {}) => (await one.ask("append", { ...where, entries: [entryNumber(n)] })).took;

/** Milliseconds of a durable insert of as many bytes as the line of an append has: what database and driver take alone. */
async function inserted(connection, n) {
  const { message } = entryNumber(n);
  const line = JSON.stringify({
    type: "message",
    id: "01991f6e",
    parentId: "01991f6d",
    timestamp: new Date(),
    message,
  });
  const from = performance.now();
  await connection.query({ name: "bare", text: "insert into bare values ($1)", values: [Buffer.from(line)] });
  return performance.now() - from;
}

/** A long session that a fleet lacks: its first write gives it all of it. */
async function push() {
  const file = join(home, "long.jsonl");
  writeSession(file, options.entries);
  const bytes = statSync(file).size;
  const what = `${options.entries.toLocaleString("en")} entries, ${megabytes(bytes)}`;
  const writer = startServer("long", ["--session", file]);
  await writer.ask("get_state", {});
  const { took } = await writer.ask("append", { entries: [entryOf("one more")] });
  add(`push of one session, ${what}, until it is acknowledged`, perSecond(bytes, took), "60 MB/s");
  const after = [];
  const from = performance.now();
  while (Number((await sql("select count(*) as n from pi_fleet.behind")).n) > 0)
    after.push((await writer.ask("append", { entries: [entryOf("meanwhile")] })).took);
  if (after.length > 0) {
    add("- words and usage behind it, all there after", seconds(performance.now() - from));
    add(
      "- appends meanwhile, p50 and p99",
      `${computePercentile(after, 0.5)} and ${computePercentile(after, 0.99)} ms`,
    );
  }
  const { result } = await writer.ask("get_state", {});
  await writer.end();
  add(
    "- stored: lines, and words and usage",
    `${megabytes(await size("pi_fleet.pack", "pi_fleet.entry"))}, ${megabytes(await size("pi_fleet.said", "pi_fleet.word", "pi_fleet.spent"))}`,
  );
  const reader = startServer("cold");
  await reader.ask("get_state", {});
  await reader.ask("switch_session", { sessionId: result.sessionId });
  const { result: there } = await reader.ask("get_state", {});
  if (there.messageCount !== result.messageCount) throw new Error("the copy is not what was pushed");
  add("clone of it there, until it is acknowledged", seconds((await reader.ask("clone", {})).took));
  await reader.end();
  const { sessionId } = result;
  const cold = await measureColdMachines(sessionId, 3);
  const fetched = [seconds(cold.coldOpenMilliseconds), perSecond(bytes, cold.coldOpenMilliseconds)];
  add("cold open of it on another machine, until it is open", fetched.join(", "), "60 MB/s");
  add("- until its first context", seconds(cold.coldContextMilliseconds));
  add("- the same with the server's start", seconds(cold.coldContextWithStartMilliseconds));
}

/** As many bytes in many sessions. */
async function sessions() {
  const { root, bytes } = makeSessions(join(home, "made"), options.sessions, 1000);
  const from = performance.now();
  const { refused } = runFleet("import", root).result;
  if (refused > 0) throw new Error("not everything was brought in");
  add(
    `import of ${options.sessions} sessions, ${megabytes(bytes)}, with their words`,
    perSecond(bytes, performance.now() - from),
  );
}

async function append() {
  const writer = startServer("append");
  await writer.ask("get_state", {});
  const ours = [];
  for (let round = 0; round < 4; round++) ours.push(await oneAfterAnother((n) => appended(writer, n)));
  await writer.end();
  add("append of one entry, p50 and p99, of the first 1,000", ours[0]);
  add("- after 3,000, whose code is compiled", ours[3], "0.6 ms");
  add("- an insert of its line, by the driver alone", await oneAfterAnother((n) => inserted(client, n)));
}

async function oneAfterAnother(run) {
  const took = [];
  for (let n = 0; n < 1000; n++) {
    const milliseconds = await run(n);
    if (n >= 100) took.push(milliseconds);
  }
  return `${computePercentile(took, 0.5)} and ${computePercentile(took, 0.99)} ms`;
}

async function writers() {
  const all = [];
  for (let n = 0; n < options.writers; n++) {
    const one = startServer(`writer-${n}`);
    await one.ask("get_state", {});
    await one.ask("append", { entries: [entryOf("begins")] });
    all.push(one);
  }
  const ids = [];
  for (const one of all) ids.push((await one.ask("get_state", {})).result.sessionId);
  const apart = await atOnce(all.map((one) => (n) => appended(one, n)));
  // One after the other: what a server lets go of at its end has a moment, which all of them together take longer than.
  for (const one of all) await one.end();
  add(`${options.writers} servers that append at once`, `${apart.rate} commits/s`);
  add("- p50 and p99 of an append", apart.times);
  const clients = all.map(() => new pg.Client(url));
  for (const one of clients) await one.connect();
  const alone = await atOnce(clients.map((one) => (n) => inserted(one, n)));
  await Promise.all(clients.map((one) => one.end()));
  add("- inserts of their lines, by as many connections of one driver", `${alone.rate} commits/s`);
  const few = startServer("many");
  await openIn(few, ids);
  await together(few, ids, `one server with ${options.writers} sessions, an append outstanding in each`);
  await few.end();
  const small = makeSessions(join(home, "small"), options.small, 2);
  runFleet("import", small.root);
  const smallIds = small.files.map(({ id }) => id);
  const many = startServer("more");
  await openIn(many, smallIds);
  await together(
    many,
    smallIds,
    `one server with ${options.small} sessions, appends outstanding in ${options.writers}`,
  );
  await many.end();
}

/** Opens sessions in a server, which has them from then on. */
async function openIn(one, ids) {
  for (const sessionId of ids) {
    await one.ask("open_session", { sessionId });
    await appended(one, 0, { sessionId });
  }
}

/** Has writers append to sessions of one server, each to another one after the other. */
async function together(one, ids, what) {
  const share = ids.length / options.writers;
  const runs = Array.from({ length: options.writers }, (_, writer) => {
    const own = ids.slice(Math.floor(writer * share), Math.floor((writer + 1) * share));
    return (n) => appended(one, n, { sessionId: own[n % own.length] });
  });
  const first = await atOnce(runs);
  add(`${what}, first ${options.seconds} s`, `${first.rate} commits/s`);
  add("- p50 and p99 of an append", first.times);
  await atOnce(runs);
  const { rate, times } = await atOnce(runs);
  add(`- after ${2 * options.seconds} s, whose code is compiled`, `${rate} commits/s`, "5,000");
  add("- p50 and p99 of an append", times);
}

/** Runs things over and over, each as soon as it has its answer. */
async function atOnce(runs) {
  const took = [];
  const until = performance.now() + options.seconds * 1000;
  await Promise.all(
    runs.map(async (run) => {
      for (let n = 0; performance.now() < until; n++) took.push(await run(n));
    }),
  );
  const times = `${computePercentile(took, 0.5)} and ${computePercentile(took, 0.99)} ms`;
  return { rate: Math.round(took.length / options.seconds), times };
}

try {
  runFleet("migrate");
  await client.query("create table bare (line bytea)");
  for (const [name, part] of Object.entries({ push, sessions, append, writers })) if (wanted(name)) await part();
} finally {
  await client.end();
  await endFleet();
}
if (options.write)
  writeTable(
    "figures of the fleet",
    "PostgreSQL on the same machine with its own settings, one run; `node bench/fleet-long.js --write`",
    rows,
  );
