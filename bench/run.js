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
import { execFileSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
} from "node:fs";
import { cpus, loadavg, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { figuresOf, writeFigures } from "./figures.js";
import { idOf, writeSession } from "./generate.js";
import { growth } from "./growth.js";
import { Child, ECHO, figure, fresh, request, shown, table } from "./measure.js";
import { findPis, piRequest, serving } from "./pi.js";

const root = fileURLToPath(new URL("..", import.meta.url));
const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    quick: { type: "boolean", default: false },
    runs: { type: "string" },
    rows: { type: "string", default: "" },
    million: { type: "boolean", default: false },
    shapes: { type: "boolean", default: false },
    figures: { type: "boolean", default: false },
    readme: { type: "boolean", default: false },
    json: { type: "boolean", default: false },
    from: { type: "string" },
    into: { type: "string", default: root },
    pi: { type: "boolean", default: false },
    node: { type: "string" },
    pi073: { type: "string" },
    pi15: { type: "string" },
    growth: { type: "boolean", default: false },
    compare: { type: "boolean", default: false },
    program: { type: "string", default: join(root, "dist/bin/pi-session-server.js") },
    library: { type: "string", default: join(root, "dist/lib/index.js") },
  },
});
const { quick, million } = options;
const runs = Number(options.runs ?? (quick ? 1 : 5));
/** Pi takes seconds where we take milliseconds. */
const piRuns = Math.min(runs, 3);
const node = process.execPath;
const program = resolve(options.program);
const library = resolve(options.library);
const worker = fileURLToPath(new URL("worker.js", import.meta.url));

const home = mkdtempSync(join(tmpdir(), "pi-session-server-bench-"));
const env = {
  ...process.env,
  HOME: home,
  XDG_CACHE_HOME: join(home, "cache"),
  PI_SESSION_SERVER_STATE_DIR: join(home, "state"),
  NODE_OPTIONS: "",
};
for (const name of ["PI_CODING_AGENT_DIR", "PI_CODING_AGENT_SESSION_DIR", "PI_SESSIONS_DIR"]) delete env[name];

// --- what is asked ---------------------------------------------------------------------------------------------------

const ours = (...args) => new Child(node, [program, "--events", "none", ...args], env);
const echo = () => new Child(node, ["-e", ECHO], env);
const theirs = (pi, ...args) => new Child(pi.node, serving(pi, ...args), env);
const state = (id) => request(id, "get_state");
const piState = (id) => piRequest(id, "get_state");

let names = 0;
const newFile = () => join(home, `made-${++names}.jsonl`);

async function using(child, measure) {
  try {
    return await measure(child);
  } finally {
    await child.end();
  }
}

const firstReply = (child, line) =>
  using(child, async () => {
    await child.ask([line]);
    return performance.now() - child.began;
  });

const roundTrip = (child, line) =>
  using(child, async () => {
    const times = [];
    await child.ask([line("warm")]);
    const count = quick ? 200 : 10_000;
    for (let n = 0; n < count; n++) times.push(await child.ask([line(n)]));
    return figure(times.slice(count / 4)).median * 1000;
  });

const pipelined = (child, line) =>
  using(child, async () => {
    await child.ask([line("warm")]);
    const total = quick ? 5000 : 200_000;
    return total / (await child.keepAsking(total, 1000, line));
  });

/** One request after the first, in a fresh process. */
const once = (child, first, line, what = (took) => took) =>
  using(child, async () => {
    await child.ask([first]);
    return what(await child.ask([line]), child);
  });

/** Megabytes after the first reply. */
const memoryOf = (child, line, what) =>
  using(child, async () => {
    await child.ask([line]);
    return child.memory(what);
  });

const onSession = (file, method, params, what) =>
  once(ours("--session", file, "--read-only"), state(0), request(1, method, params), what);

const switchTo = (file, what) =>
  once(ours("--no-session"), state(0), request(1, "switch_session", { sessionPath: file }), what);

/** The same of Pi, whose refusal is no figure. */
const piOnce = (child, line) =>
  using(child, async () => {
    await child.ask([piState(0)]);
    const took = await child.ask([line], { keep: true });
    if (/"success":false/.test(child.text.slice(0, 4096))) throw new Error("Pi could not");
    return took;
  });

const piSwitchTo = (pi, file) =>
  piOnce(theirs(pi, "--no-session"), piRequest(1, "switch_session", { sessionPath: file }));

const piOnSession = (pi, file, type, params) => piOnce(theirs(pi, "--session", file), piRequest(1, type, params));

const run = async (task, file, member, from = library, runner = node) =>
  (await fresh(runner, ["--max-old-space-size=8192", worker, task, file, from], env))?.[member];

/** What is known of sessions from before is thrown away. */
function forget() {
  rmSync(join(home, "state", "spines"), { recursive: true, force: true });
}

const parseAll = (file) => ["full JSON.parse", () => run("parse", file, "ms")];
async function copy(file) {
  const ms = await run("copy", file, "ms");
  for (const name of readdirSync(home)) if (name.includes(".copy-")) unlinkSync(join(home, name));
  return ms;
}

const message = { type: "message", message: { role: "user", content: "x".repeat(700) } };
const appendRequest = (id) => request(id, "append", { entries: [message] });

// --- rows ------------------------------------------------------------------------------------------------------------

const size = (file) => `${Math.round(statSync(file).size / 1e6)} MB`;
const files = new Map();
function session(shape, count) {
  const key = `${shape}-${count}`;
  if (!files.has(key)) {
    const file = join(home, `${key}.jsonl`);
    writeSession(file, count, shape);
    files.set(key, file);
  }
  return files.get(key);
}

/** A folder of small sessions. */
function manySessions(count) {
  const folder = join(home, "many");
  if (!existsSync(folder)) {
    mkdirSync(folder);
    for (let n = 0; n < count; n++)
      writeSession(join(folder, `2026-01-01T00-00-00-000Z_${n}.jsonl`), 40, "lean", n + 1);
  }
  return folder;
}

const number = new Intl.NumberFormat("en");

/** What we want to reach: figures of a machine whose bare echo answers its first line within 60 ms. */
const SIZE_GOALS = {
  1000: { open: "7 ms" },
  100000: { open: "130 ms", memory: "110 MB", again: "10 ms", context: "12 ms" },
  1000000: { open: "800 ms", memory: "200 MB", context: "25 ms" },
};
const modern = Number(process.versions.node.split(".")[0]) >= 22;

/** Shapes of sessions that people reported, each with its entries (of `giant`: MiB in one line). */
const UNUSUAL = [
  ["giant", 64],
  ["custom", 250_000],
  ["images", 300],
  ["deep", 100_000],
  ["wide", 100_000],
  ["broken", 100_000],
];

/** Each row: its name and unit, and how ours, the machine and Pi are measured. `more` is better where it says so. */
function* rows() {
  yield {
    what: "spawn to first reply",
    unit: "ms",
    goal: modern ? "50 ms" : "95 ms",
    ours: () => firstReply(ours("--no-session"), state(0)),
    against: ["bare echo", () => firstReply(echo(), state(0))],
    pi: (pi) => firstReply(theirs(pi, "--no-session"), piState(0)),
  };
  yield {
    what: "get_state, round trip p50",
    unit: "us",
    goal: "1.1 x echo",
    ours: () => roundTrip(ours("--no-session"), state),
    against: ["bare echo", () => roundTrip(echo(), state)],
    pi: (pi) => roundTrip(theirs(pi, "--no-session"), piState),
  };
  const large = quick ? 2000 : 100_000;
  const realistic = session("realistic", large);
  yield {
    what: `get_state, round trip p50, ${number.format(large)} entries`,
    unit: "us",
    goal: "1.1 x echo",
    ours: () => roundTrip(ours("--session", realistic, "--read-only"), state),
    against: ["bare echo", () => roundTrip(echo(), state)],
    pi: (pi) => roundTrip(theirs(pi, "--session", realistic), piState),
  };
  yield {
    what: "get_state, 1,000 outstanding",
    unit: "k/s",
    goal: "250 k/s",
    more: true,
    ours: () => pipelined(ours("--no-session"), state),
    against: ["bare echo", () => pipelined(echo(), state)],
    pi: (pi) => pipelined(theirs(pi, "--no-session"), piState),
  };
  yield {
    what: "get_state, 1,000 outstanding, Pi's dialect",
    unit: "k/s",
    goal: "400 k/s",
    more: true,
    ours: () => pipelined(ours("--no-session"), piState),
    against: ["bare echo", () => pipelined(echo(), piState)],
    pi: (pi) => pipelined(theirs(pi, "--no-session"), piState),
  };
  yield {
    what: `switching away from ${number.format(large)} entries that were read first`,
    unit: "ms",
    goal: "5 ms",
    ours() {
      forget();
      const away = request(1, "switch_session", { sessionPath: session("realistic", 1000) });
      return once(ours("--session", realistic), state(0), away);
    },
    against: ["from none", () => switchTo(session("realistic", 1000))],
    pi: (pi) => piOnSession(pi, realistic, "switch_session", { sessionPath: session("realistic", 1000) }),
  };
  const opened = [session("realistic", 1000), realistic];
  if (million) opened.push(session("lean", 1_000_000));
  for (const file of opened) {
    const entries = /-(\d+)\.jsonl/.exec(file)[1];
    const name = `switch_session, ${number.format(entries)} entries, ${size(file)}`;
    let peak = [];
    yield {
      what: name,
      unit: "ms",
      goal: SIZE_GOALS[entries]?.open,
      ours() {
        forget();
        return switchTo(file, (took, child) => {
          peak.push(child.memory("VmHWM"));
          return took;
        });
      },
      against: parseAll(file),
      pi: (pi) => piSwitchTo(pi, file),
    };
    const measured = peak;
    peak = [];
    yield {
      what: `- its memory at most`,
      unit: "MB",
      goal: SIZE_GOALS[entries]?.memory,
      ours: async () => figure(measured).median,
      against: ["an idle echo", () => memoryOf(echo(), state(0), "VmHWM")],
      pi: (pi) => run("open", file, "mb", pi.library, pi.node),
    };
    if (statSync(file).size > 8e6)
      yield {
        what: `- again, with its index cache`,
        unit: "ms",
        goal: SIZE_GOALS[entries]?.again,
        prepare: () => switchTo(file),
        ours: () => switchTo(file),
        against: parseAll(file),
      };
    yield {
      what: `- its first context`,
      unit: "ms",
      goal: SIZE_GOALS[entries]?.context,
      ours: () => onSession(file, "get_messages"),
      against: ["round trip", () => once(echo(), state(0), state(1))],
      pi: (pi) => run("context", file, "ms", pi.library, pi.node),
    };
  }
  const branched = [session("realistic", 1000), session("lean", large)];
  if (million) branched.push(session("lean", 1_000_000));
  for (const file of branched) {
    const entries = Number(/-(\d+)\.jsonl/.exec(file)[1]);
    yield {
      what: `get_fork_messages, ${number.format(entries)} entries`,
      unit: "ms",
      goal: { 1000: "0.5 ms", 100000: "15 ms", 1000000: "150 ms" }[entries],
      ours: () => onSession(file, "get_fork_messages"),
      against: ["a page of 1,000", () => onSession(file, "get_fork_messages", { limit: 1000 })],
      pi: (pi) => piOnSession(pi, file, "get_fork_messages"),
    };
    if (entries < 2000) continue;
    const measured = [];
    yield {
      what: `get_tree flat, ${number.format(entries)} entries, first time`,
      unit: "ms",
      goal: { 100000: "150 ms", 1000000: "1500 ms" }[entries],
      ours: () =>
        onSession(file, "get_tree", {}, (took, child) => {
          measured.push(child.memory("VmHWM"));
          return took;
        }),
      against: ["nested", () => onSession(file, "get_tree", { format: "nested" })],
    };
    yield { what: "- its memory at most", unit: "MB", ours: async () => figure(measured).median };
  }
  for (const [shape, count] of options.shapes ? UNUSUAL : []) {
    const file = session(shape, quick ? Math.ceil(count / 100) : count);
    yield {
      what: `switch_session, ${shape}, ${size(file)}`,
      unit: "ms",
      ours() {
        forget();
        return switchTo(file);
      },
      against: parseAll(file),
      pi: (pi) => piSwitchTo(pi, file),
    };
  }
  const whole = session("whole", quick ? 500 : 10_000);
  yield {
    what: `get_messages, ${size(whole)}`,
    unit: "ms",
    goal: "45 ms",
    ours: () => onSession(whole, "get_messages"),
    against: parseAll(whole),
    pi: (pi) => piOnSession(pi, whole, "get_messages"),
  };
  yield {
    what: `get_entries, ${size(whole)}`,
    unit: "ms",
    ours: () => onSession(whole, "get_entries"),
    against: parseAll(whole),
    pi: (pi) => (pi.name.includes("1.5") ? piOnSession(pi, whole, "get_entries") : undefined),
  };
  yield {
    what: `get_tree nested, ${size(whole)}`,
    unit: "ms",
    goal: "70 ms",
    ours: () => onSession(whole, "get_tree", { format: "nested" }),
    against: parseAll(whole),
    pi: (pi) => (pi.name.includes("1.5") ? piOnSession(pi, whole, "get_tree") : undefined),
  };
  yield {
    what: "get_tree, a flat page of 1,000",
    unit: "ms",
    goal: "2 ms",
    ours: () =>
      using(ours("--session", whole, "--read-only"), async (child) => {
        for (let n = 0; n < 3; n++) await child.ask([request(n, "get_tree", { limit: 1000 })]);
        return child.ask([request(9, "get_tree", { limit: 1000 })]);
      }),
    against: ["round trip", () => once(echo(), state(0), state(1))],
  };
  const last = idOf(large - 4 - ((large - 4) % 4));
  yield {
    what: `fork at the last message, ${size(realistic)}, durable`,
    unit: "ms",
    goal: "2.5 x range copy",
    ours: () => once(ours("--session", realistic), state(0), request(1, "fork", { entryId: last, position: "at" })),
    against: ["file copy, fdatasync", () => copy(realistic)],
    pi: (pi) => piOnSession(pi, realistic, "fork", { entryId: last }),
  };
  const little = session("lean", 8);
  yield {
    what: "import, library",
    unit: "ms",
    goal: "20 ms",
    ours: () => run("import", little, "ms"),
    pi: (pi) => run("import", little, "ms", pi.library, pi.node),
  };
  yield {
    what: "- then open a small session",
    unit: "ms",
    goal: "3 ms",
    ours: () => run("open", little, "ms"),
    pi: (pi) => run("open", little, "ms", pi.library, pi.node),
  };
  yield {
    what: "append, library, not durable",
    unit: "k/s",
    goal: "200 k/s",
    more: true,
    ours: () => appending(0),
    against: ["write alone", () => run("append-raw", newFile(), "ks")],
    pi: (pi) => appending(0, pi.library, pi.node),
  };
  yield {
    what: `- at ${number.format(large)} entries`,
    unit: "k/s",
    goal: "200 k/s",
    more: true,
    ours: () => appending(large),
    against: ["write alone", () => run("append-raw", newFile(), "ks")],
    pi: (pi) => appending(large, pi.library, pi.node),
  };
  yield {
    what: "- first 1,000 of a process",
    unit: "k/s",
    goal: "110 k/s",
    more: true,
    ours: () => run("append-first", newFile(), "ks"),
    against: ["write, looked at before and after", () => run("append-checked", newFile(), "ks")],
    pi: (pi) => run("append-first", newFile(), "ks", pi.library, pi.node),
  };
  yield {
    what: "branchWithSummary, library, p50",
    unit: "us",
    goal: "10 us",
    ours: () => run("summaries", newFile(), "us"),
    pi: (pi) => run("summaries", newFile(), "us", pi.library, pi.node),
  };
  for (const [count, goal] of [
    [1000, "4 ms"],
    [10_000, "20 ms"],
  ])
    yield {
      what: `createBranchedSession at the leaf, library, ${number.format(count)} entries`,
      unit: "ms",
      goal,
      ours: () => run("branched", session("uncompacted", count), "ms"),
      against: ["file copy, fdatasync", () => copy(session("uncompacted", count))],
      pi: (pi) => run("branched", session("uncompacted", count), "ms", pi.library, pi.node),
    };
  const many = manySessions(quick ? 20 : 1000);
  yield {
    what: "list, library, again",
    unit: "ms",
    goal: "15 ms",
    ours: () => run("list-again", many, "ms"),
    pi: (pi) => run("list-again", many, "ms", pi.library, pi.node),
  };
  yield {
    what: "continueRecent, library",
    unit: "ms",
    goal: "5 ms",
    ours: () => run("recent", many, "ms"),
    pi: (pi) => run("recent", many, "ms", pi.library, pi.node),
  };
  yield {
    what: "- where no session is of the working directory",
    unit: "ms",
    ours: () => run("recent-none", many, "ms"),
    pi: (pi) => run("recent-none", many, "ms", pi.library, pi.node),
  };
  yield {
    what: "durable append over the wire, p50",
    unit: "us",
    goal: "200 us + round trip",
    ours: () => roundTrip(ours("--session", newFile()), appendRequest),
    against: ["write, fdatasync", () => run("sync", newFile(), "us")],
  };
  yield {
    what: "durable appends, pipelined",
    unit: "k/s",
    goal: "50 k/s",
    more: true,
    ours: () =>
      using(ours("--session", newFile()), async (child) => {
        await child.ask([appendRequest("warm")]);
        const total = quick ? 500 : 20_000;
        return total / (await child.keepAsking(total, 1000, appendRequest));
      }),
    against: ["one fdatasync each", async () => 1000 / (await run("sync", newFile(), "us"))],
  };
  yield {
    what: "bytes on disk, realistic entries",
    unit: "MB",
    goal: "1.1 x payload",
    ours: () => written(session("realistic", 1000)),
    against: ["payload", async () => statSync(session("realistic", 1000)).size / 1e6],
  };
  yield {
    what: "memory of an idle server",
    unit: "MB",
    goal: "90 MB",
    ours: () => memoryOf(ours("--no-session"), state(0), "VmRSS"),
    against: ["bare echo", () => memoryOf(echo(), state(0), "VmRSS")],
    pi: (pi) => memoryOf(theirs(pi, "--no-session"), piState(0), "VmRSS"),
  };
}

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

async function appending(entries, from, runner) {
  const file = newFile();
  writeSession(file, Math.max(8, entries), "lean");
  const rate = await run("append", file, "ks", from, runner);
  rmSync(file, { force: true });
  return rate;
}

/** A session written entry by entry; answers the megabytes that came to be. */
async function written(from) {
  const file = newFile();
  const lines = readFileSync(from, "utf8").split("\n").slice(1, -1);
  const requests = lines.map((line, n) => {
    const { id, parentId, timestamp, ...entry } = JSON.parse(line);
    return request(n, "append", { entries: [entry.type === "compaction" ? message : entry] });
  });
  await using(ours("--session", file), (child) => child.ask(requests));
  return statSync(file).size / 1e6;
}

/** The finder has a bench of its own. */
async function listing(pis) {
  if (options.rows !== "" && !"list search".includes(options.rows)) return [];
  const sessions = quick ? 20 : 1000;
  const script = fileURLToPath(new URL("catalog.js", import.meta.url));
  const size = ["--sessions", String(sessions), "--kilobytes", quick ? "50" : "550", "--rounds", quick ? "5" : "100"];
  const found = await fresh(node, [script, ...size, "--libraries", JSON.stringify(pis), "--json"], env);
  if (!found) return [];
  const one = (what, value, goal) => ({ what, unit: "ms", goal, ours: figure([value]) });
  const theirs = Object.entries(found.libraries ?? {}).map(([name, { ms }]) => [name, figure([ms])]);
  const first = `list ${number.format(sessions)} sessions, ${found.megabytes} MB, first time`;
  return [
    { ...one(first, found.coldListSeconds * 1000, "350 ms"), pis: Object.fromEntries(theirs) },
    one("- page of 50, p95", found.listP95, "10 ms"),
    one("- search for two words, p95", found.searchP95, "20 ms"),
    one("- usage, first time", found.firstUsageMilliseconds, ""),
    one("- usage, warm p95", found.usageP95, "50 ms"),
  ];
}

const SEGMENTED_GOALS = [
  ["migration", "100 MB/s"],
  ["payload byte, 10000 entries, realistic", "1.3"],
  ["payload byte, 100000 entries, realistic", "1.3"],
  ["entries to 1001", "1.2 x"],
  ["resume, V2, 1000000", "start + 40 ms"],
];

/** Session Store V2 has one, too. */
async function segmented() {
  if (options.rows !== "" && !"V2 resume migration".includes(options.rows)) return [];
  const script = fileURLToPath(new URL("v2.js", import.meta.url));
  const args = [script, "--json", "--runs", String(runs), "--program", program];
  const found = await fresh(node, [...args, ...(quick ? ["--quick"] : []), ...(million ? ["--million"] : [])], env);
  return (found ?? [])
    .filter(({ name }) => !name.includes("JSONL") && !name.includes("without"))
    .map(({ name, unit, ...ours }) => ({
      what: name.includes("V2") ? name : `V2, ${name}`,
      unit,
      goal: SEGMENTED_GOALS.find(([part]) => name.includes(part))?.[1],
      more: unit === "MB/s",
      ours,
    }));
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

// --- comparing -------------------------------------------------------------------------------------------------------

/** Turns in which two commits are measured one after the other, so that what the machine does meanwhile meets both. */
const TURNS = 5;

/** Builds a commit beside this one. Returns the options that measure it. */
function buildOf(commit) {
  const folder = join(home, commit.replace(/\W/g, "-"));
  mkdirSync(folder);
  const archive = execFileSync("git", ["archive", commit], { cwd: root, maxBuffer: 1 << 30 });
  execFileSync("tar", ["-x", "-C", folder], { input: archive });
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
  execFileSync(node, ["scripts/build.js"], { cwd: folder, stdio: "ignore" });
  return ["--program", join(folder, "dist/bin/pi-session-server.js"), "--library", join(folder, "dist/lib/index.js")];
}

/** The figures of two builds, each measured in every turn. */
function inTurns(...builds) {
  const turns = Math.min(TURNS, runs);
  const more = [...(quick ? ["--quick"] : []), "--runs", String(Math.ceil(runs / turns)), "--rows", options.rows];
  const found = builds.map(() => []);
  for (let turn = 0; turn < turns; turn++)
    for (const [index, build] of builds.entries()) {
      const args = [fileURLToPath(import.meta.url), "--json", ...more, ...build];
      found[index].push(JSON.parse(execFileSync(node, args, { encoding: "utf8", maxBuffer: 1 << 28 })));
    }
  return found.map(together);
}

/** The figures of several runs as those of one. */
function together(results) {
  const valuesOf = (what) => results.flatMap(({ rows }) => rows.find((row) => row.what === what)?.ours.values ?? []);
  const rows = results[0].rows.map((row) => ({ ...row, ours: figure(valuesOf(row.what)) }));
  return { ...results[0], load: Math.max(...results.map(({ load }) => load)), runs, rows };
}

const resultsOf = (file) => JSON.parse(readFileSync(file, "utf8"));

function compare(before, after) {
  const rowsOf = ({ rows: list }) => new Map(list.map((row) => [row.what, row]));
  const old = rowsOf(before);
  const lines = [];
  for (const [what, row] of rowsOf(after)) {
    const other = old.get(what);
    if (!other) continue;
    const ratio = row.ours.median / other.ours.median;
    const better = row.more ? ratio > 1 : ratio < 1;
    // Within what either of them varies by itself there is nothing to say.
    const apart = row.ours.runs > 1 && (row.ours.low > other.ours.high || row.ours.high < other.ours.low);
    lines.push([
      what,
      `${shown(other.ours.median)} ${row.unit}`,
      `${shown(row.ours.median)} ${row.unit}`,
      shown(ratio),
      apart ? (better ? "better" : "worse") : "",
    ]);
  }
  console.log(table(["what", "before", "after", "ratio", ""], lines));
}

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
      const rows = await measure(pis);
      const results = { node: process.version, processors: cpus().length, load: loadavg()[0], runs, rows };
      if (options.json) console.log(JSON.stringify(results, null, 2));
      else print(results);
    }
  }
} finally {
  rmSync(home, { recursive: true, force: true });
}
