// Measures the large, the many and the cold: a session of 10 GB, a line of 1 GB, 64 sessions in one server, 100,000
// small ones, and the first start of a morning, with none of it in the page cache.
//
//   node bench/scale.js                      prints the table; --figures also writes it into docs/figures.md
//     --parts <names>                        only these, with commas between: session, line, open, catalog, cold
//     --gigabytes 10 --line 1 --open 64 --sessions 100000 --entries 100000 --rounds 9
//     --home <dir>                           where files are made; the cold rows need a disk, not a file system in memory
//
// On Linux `dd` drops the pages of a file from the cache; elsewhere the cold rows are left out.
import { constants } from "node:buffer";
import {
  closeSync,
  copyFileSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  rmSync,
  statSync,
} from "node:fs";
import { cpus, loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { replaceFigures } from "./figures.js";
import { makeId, writeLongLine, writeSession } from "./generate.js";
import {
  Child,
  counted,
  dropPages,
  ECHO,
  formatNumber,
  formatTable,
  makeRequest,
  parseDefaults,
  program,
  runFresh,
  toFigure,
} from "./measure.js";

const root = fileURLToPath(new URL("..", import.meta.url));
const node = process.execPath;
const options = parseDefaults({
  ...{ gigabytes: 10, line: 1, open: 64, sessions: 100_000, entries: 100_000, rounds: 9 },
  ...{ parts: undefined, home: tmpdir(), figures: false },
});
if (options.figures && options.parts) throw new Error("--figures writes the whole table. Leave --parts out.");
const load = loadavg()[0];
const home = mkdtempSync(join(options.home, "pi-session-server-scale-"));
process.on("exit", () => rmSync(home, { recursive: true, force: true }));
const env = {
  PATH: process.env.PATH,
  HOME: home,
  XDG_CACHE_HOME: join(home, "cache"),
  PI_SESSION_SERVER_STATE_DIR: join(home, "state"),
};
const { rounds } = options;

/** Bytes of an entry of a realistic session. */
const ENTRY_BYTES = 2460;

const rows = [];

function add(what, value, goal = "", reference = "") {
  rows.push([what, value, goal, reference]);
  console.error(`${what}: ${value}`);
}

const ms = (took) => `${formatNumber(took)} ms`;
const mb = (megabytes) => `${formatNumber(megabytes)} MB`;

function serverBy(runner, ...given) {
  return new Child(runner, [program, "--framing", "lines", "--dialect", "jsonrpc", "--events", "none", ...given], env);
}

/** A server that has answered once. */
async function started(...given) {
  const child = serverBy(node, ...given);
  await child.result("get_state");
  return child;
}

async function opened(file) {
  const child = await started("--no-session");
  const { took } = await child.result("switch_session", { sessionPath: file });
  return { child, took };
}

async function session() {
  const count = Math.round((options.gigabytes * 1e9) / ENTRY_BYTES);
  const file = join(home, "large.jsonl");
  writeSession(file, count, "realistic");
  const bytes = statSync(file).size;
  const name = `a session of ${formatNumber(bytes / 1e9)} GB, ${counted(count)} entries`;
  let { child, took } = await opened(file);
  add(`${name}: opened`, ms(took), "", `${formatNumber(bytes / 1e3 / took)} MB/s`);
  add("- its first context", ms((await child.result("get_context")).took));
  add("- memory at most", mb(child.memory("VmHWM")));
  await child.end();
  ({ child, took } = await opened(file));
  add("- opened again", ms(took));
  add("- its first context", ms((await child.result("get_context")).took));
  const cursor = String(count - 100);
  const page = await child.result("get_entries", { cursor, limit: 100 });
  if (page.result?.entries.at(-1).id !== makeId(count - 1))
    throw new Error("the last page does not end with the last entry");
  add("- its last 100 entries", ms(page.took));
  const entry = { type: "message", message: { role: "user", content: "more" } };
  await child.result("append", { entries: [entry] });
  const appends = [];
  for (let n = 0; n < 100; n++) appends.push((await child.result("append", { entries: [entry] })).took);
  add("- a durable append to it, p50", ms(toFigure(appends).median));
  add("- memory at most", mb(child.memory("VmHWM")));
  await child.end();
  rmSync(file);
}

async function line() {
  const folder = join(home, ".pi", "agent", "sessions", "--long--");
  mkdirSync(folder, { recursive: true });
  const file = join(folder, "2026-01-01T00-00-00-000Z_bench-line.jsonl");
  const bytes = options.line * 1e9;
  const isText = bytes <= constants.MAX_STRING_LENGTH;
  writeLongLine(file, bytes);
  const { child, took } = await opened(file);
  add(
    `a line of ${formatNumber(bytes / 1e9)} GB${isText ? "" : ", which no string can hold"}: opened`,
    ms(took),
    "",
    `${formatNumber(bytes / 1e3 / took)} MB/s`,
  );
  const list = await child.result("list_sessions");
  if (list.result.total !== 1) throw new Error(`${list.result.total} sessions are listed`);
  add("- listed", ms(list.took));
  const page = await child.result("get_entries", { limit: 1 });
  if (page.result.entries[0].id !== makeId(0)) throw new Error("the page does not begin with the first entry");
  add("- a page before it", ms(page.took));
  const tree = await child.result("get_tree");
  if (tree.result.nodes[1].childCount !== 1) throw new Error("the tree lacks an entry");
  add("- the tree with its preview", ms(tree.took));
  add("- memory until then", mb(child.memory("VmHWM")));
  const whole = await child.ask([makeRequest(1, "get_entry", { entryId: makeId(1) })]);
  if (child.bytes < bytes) throw new Error("the entry was not sent whole");
  add("- sent whole", ms(whole), "", `${formatNumber(bytes / 1e3 / whole)} MB/s`);
  if (!isText) {
    await child.ask([makeRequest(2, "prepare_compaction")], { keep: true });
    if (!child.text.includes('"name":"message_too_large"')) throw new Error(`It said ${child.text.slice(0, 200)}`);
    add("- what needs it as one text", "message_too_large");
  }
  await child.end();
  rmSync(folder, { recursive: true });
}

async function open() {
  const count = options.open;
  const files = Array.from({ length: count }, (_, n) => {
    const file = join(home, `open-${n}.jsonl`);
    // Each has an id of its own, which contains its size.
    writeSession(file, 1000 + n, "realistic");
    return file;
  });
  const child = await started("--no-session");
  const before = child.memory("VmRSS");
  const openings = [];
  const ids = [];
  for (const sessionPath of files) {
    const { result, took } = await child.result("open_session", { sessionPath });
    openings.push(took);
    ids.push(result.sessionId);
  }
  add(`${count} sessions of 1,000 entries in one server: the opening of one`, ms(toFigure(openings).median));
  add("- memory for each, open", mb((child.memory("VmRSS") - before) / count), "", `an idle server ${mb(before)}`);
  const asked = async (method, params = {}) => {
    const took = [];
    for (let n = 0; n < 8 * count; n++)
      took.push((await child.result(method, { sessionId: ids[n % count], ...params })).took);
    return toFigure(took).median;
  };
  add("- get_state of one after the other, p50", ms(await asked("get_state")));
  add("- get_context of one after the other, p50", ms(await asked("get_context")));
  const entries = [{ type: "message", message: { role: "user", content: "more" } }];
  add("- a durable append to one after the other, p50", ms(await asked("append", { entries })));
  const from = performance.now();
  const all = Array.from({ length: 100 * count }, (_, n) =>
    makeRequest(n, "append", { sessionId: ids[n % count], entries }),
  );
  await child.ask(all);
  add("- durable appends to all of them, pipelined", `${formatNumber(all.length / (performance.now() - from))} k/s`);
  add("- memory at most", mb(child.memory("VmHWM")));
  await child.end();
  for (const file of files) rmSync(file);
}

/** The finder has a bench of its own. */
async function catalog() {
  const script = join(root, "bench/catalog.js");
  const args = [script, "--sessions", String(options.sessions), "--kilobytes", "6.5", "--rounds", "100", "--json"];
  const found = await runFresh(node, args, { ...env, TMPDIR: home });
  if (!found) throw new Error("bench/catalog.js has failed");
  add(
    `${counted(found.sessions)} sessions, ${found.megabytes} MB: first list`,
    ms(found.coldListSeconds * 1000),
    "5 s",
  );
  add("- a page of 50, p95", ms(found.listP95), "2 ms");
  add("- first search", ms(found.coldSearchSeconds * 1000), "10 s");
  add("- search for two words, p95", ms(found.searchP95), "20 ms");
  add("- found after an append elsewhere, p95", ms(found.searchAfterAppendP95));
  add("- first list of the next process", ms(found.warmFirstListMilliseconds));
  add("- memory at most", mb(found.peakMegabytes));
}

/** Drops the pages of files from the cache, once they are on the disk. */
function drop(files) {
  for (const file of files) {
    const fd = openSync(file, "r");
    fsyncSync(fd);
    closeSync(fd);
    dropPages(file);
  }
}

function filesBelow(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}

async function cold() {
  if (process.platform !== "linux") return;
  // Pages that a process has mapped are not dropped, and this one runs on Node.
  const runner = join(home, "node");
  copyFileSync(node, runner);
  const ours = () => [
    runner,
    ...filesBelow(join(root, "dist/bin")),
    ...filesBelow(env.XDG_CACHE_HOME),
    ...filesBelow(env.PI_SESSION_SERVER_STATE_DIR),
  ];
  const small = join(home, "small.jsonl");
  writeSession(small, 1000, "realistic");
  const large = join(home, "hundred.jsonl");
  const count = options.entries;
  writeSession(large, count, "realistic");
  const medians = async (measured) => {
    const took = [];
    for (let n = 0; n < rounds; n++) took.push(await measured(n));
    return toFigure(took).median;
  };
  const firstReply = async (files, make, text) => {
    drop(files);
    const child = make();
    await child.ask([text]);
    const took = performance.now() - child.began;
    await child.end();
    return took;
  };
  const asks = makeRequest(0, "get_state");
  const ourStart = (files) => firstReply(files, () => serverBy(runner, "--no-session"), asks);
  const echoStart = (files) => firstReply(files, () => new Child(runner, ["-e", ECHO], env), asks);
  await ourStart([]);
  const bare = async (files) => `bare echo ${ms(await medians(() => echoStart(files())))}`;
  add("spawn to first reply, all in the page cache", ms(await medians(() => ourStart([]))), "", await bare(() => []));
  add("- nothing of it in the page cache", ms(await medians(() => ourStart(ours()))), "", await bare(() => [runner]));
  for (const [name, file] of [
    ["1,000 entries", small],
    [`${counted(count)} entries`, large],
  ]) {
    const opening = async (isKept, isCold) => {
      if (!isKept) rmSync(join(env.PI_SESSION_SERVER_STATE_DIR, "spines"), { recursive: true, force: true });
      const child = await started("--no-session");
      if (isCold) drop([file, ...filesBelow(env.PI_SESSION_SERVER_STATE_DIR)]);
      const from = performance.now();
      await child.result("switch_session", { sessionPath: file });
      await child.result("get_context");
      const took = performance.now() - from;
      await child.end();
      return took;
    };
    const both = async (isKept) => [
      await medians(() => opening(isKept, true)),
      await medians(() => opening(isKept, false)),
    ];
    const [coldTook, warmTook] = await both(false);
    const bytes = formatNumber(statSync(file).size / 1e6);
    add(
      `switch_session and first context, ${name}, ${bytes} MB, cold`,
      ms(coldTook),
      "",
      `in the page cache ${ms(warmTook)}`,
    );
    const [coldAgain, warmAgain] = await both(true);
    add("- again, with its index cache, cold", ms(coldAgain), "", `in the page cache ${ms(warmAgain)}`);
  }
  rmSync(large);
  rmSync(small);
}

const parts = { session, line, open, catalog, cold };
const named = options.parts?.split(",") ?? Object.keys(parts);
const unknown = named.filter((name) => !(name in parts));
if (unknown.length > 0)
  throw new Error(`No such parts: ${unknown.join(", ")}. There are ${Object.keys(parts).join(", ")}.`);
for (const name of named) await parts[name]();

const how = `Node ${process.version}, ${cpus().length} processors, load ${load.toFixed(1)}; what is cold, median of ${rounds}`;
const head = ["what", "ours", "goal", "beside"];
console.log(`${how}\n\n${formatTable(head, rows)}`);
if (options.figures) replaceFigures(join(root, "docs/figures.md"), "figures of scale", { how, head, rows });
