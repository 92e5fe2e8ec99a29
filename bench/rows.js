// The rows of the table, and the sessions that they are measured on.

import { existsSync, mkdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import {
  appendRequest,
  copy,
  echo,
  forget,
  makeFileName,
  measureFirstReply,
  measureMemory,
  measurePipelined,
  measureRoundTrip,
  message,
  once,
  onSession,
  ours,
  oursAnew,
  parseAll,
  piOnSession,
  piState,
  piSwitchTo,
  run,
  runWith,
  standalone,
  state,
  switchTo,
  theirs,
} from "./asking.js";
import { makeId, writeSession } from "./generate.js";
import { counted, makeRequest } from "./measure.js";
import { home, million, options, quick } from "./options.js";

const size = (file) => `${Math.round(statSync(file).size / 1e6)} MB`;
/** As many entries as the name of a session says. */
const entriesOf = (file) => Number(/-(\d+)\.jsonl/.exec(file)[1]);
const files = new Map();
export function makeRowSession(shape, count) {
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

/** Goals, for a machine whose bare echo answers its first line within 60 ms. */
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

const UNITS = { ms: "ms", us: "us", ks: "k/s" };
const fileOf = (file) => (typeof file === "function" ? file() : file);

/** A task of bench/worker.js: by our library, and by Pi's. */
const byLibrary = (task, file, member) => ({
  unit: UNITS[member],
  more: member === "ks",
  ours: () => run(task, fileOf(file), member),
  pi: (pi) => run(task, fileOf(file), member, pi.library, pi.node),
});

/** Appends by a library to a session that has so many entries. */
const appends = (entries) => ({
  unit: "k/s",
  more: true,
  ours: () => appending(entries),
  pi: (pi) => appending(entries, pi.library, pi.node),
});

/** A measure of a server that has no session, next to an echo and to Pi. */
const ofServer = (measure, line = state, piLine = piState) => ({
  ours: () => measure(ours("--no-session"), line),
  against: ["bare echo", () => measure(echo(), line)],
  pi: (pi) => measure(theirs(pi, "--no-session"), piLine),
});

const first = (child, line) => measureFirstReply(child, line(0));

/** An opening of a session that no index is kept of. */
const openAnew = (file, what) => () => {
  forget();
  return switchTo(file, what);
};

/**
 * Each row: its name and unit, and how ours, the machine and Pi are measured. `more` is better where it says so.
 */
export function* makeRows() {
  yield {
    what: "spawn to first reply",
    unit: "ms",
    goal: modern ? "50 ms" : "95 ms",
    ...ofServer(first),
  };
  yield {
    what: "- where no machine code is kept",
    unit: "ms",
    goal: modern ? "60 ms" : "85 ms",
    ours: () => measureFirstReply(oursAnew("--no-session"), state(0)),
    against: ["bare echo", () => measureFirstReply(echo(), state(0))],
  };
  if (options.standalone !== undefined) {
    yield {
      what: "- of the program with Node in it",
      unit: "ms",
      goal: "echo + 12 ms",
      prepare: () => measureFirstReply(standalone("--no-session"), state(0)),
      ours: () => measureFirstReply(standalone("--no-session"), state(0)),
      against: ["bare echo", () => measureFirstReply(echo(), state(0))],
    };
    yield {
      what: "- - its memory",
      unit: "MB",
      ours: () => measureMemory(standalone("--no-session"), state(0), "VmRSS"),
      against: ["bare echo", () => measureMemory(echo(), state(0), "VmRSS")],
    };
    yield { what: "- - its size", unit: "MB", ours: async () => statSync(options.standalone).size / 1e6 };
  }
  yield { what: "get_state, round trip p50", unit: "us", goal: "1.1 x echo", ...ofServer(measureRoundTrip) };
  const large = quick ? 2000 : 100_000;
  const realistic = makeRowSession("realistic", large);
  yield {
    what: `get_state, round trip p50, ${counted(large)} entries`,
    unit: "us",
    goal: "1.1 x echo",
    ours: () => measureRoundTrip(ours("--session", realistic, "--read-only"), state),
    against: ["bare echo", () => measureRoundTrip(echo(), state)],
    pi: (pi) => measureRoundTrip(theirs(pi, "--session", realistic), piState),
  };
  for (const [dialect, line] of [
    ["", state],
    [", Pi's dialect", piState],
  ])
    yield {
      what: `get_state, 1,000 outstanding${dialect}`,
      unit: "k/s",
      goal: "400 k/s",
      more: true,
      ...ofServer(measurePipelined, line),
    };
  const left = [realistic];
  if (million) left.push(makeRowSession("lean", 1_000_000));
  for (const file of left)
    yield {
      what: `switching away from ${counted(entriesOf(file))} entries that were read first`,
      unit: "ms",
      goal: "5 ms",
      ours() {
        forget();
        const away = makeRequest(1, "switch_session", { sessionPath: makeRowSession("realistic", 1000) });
        return once(ours("--session", file), state(0), away);
      },
      against: ["from none", () => switchTo(makeRowSession("realistic", 1000))],
      pi: (pi) => piOnSession(pi, file, "switch_session", { sessionPath: makeRowSession("realistic", 1000) }),
    };
  const opened = [makeRowSession("realistic", 1000), realistic];
  if (million) opened.push(makeRowSession("lean", 1_000_000));
  for (const file of opened) {
    const entries = entriesOf(file);
    yield {
      what: `switch_session, ${counted(entries)} entries, ${size(file)}`,
      unit: "ms",
      goal: SIZE_GOALS[entries]?.open,
      ours: openAnew(file),
      against: parseAll(file),
      pi: (pi) => piSwitchTo(pi, file),
    };
    yield {
      what: `- its memory at most`,
      unit: "MB",
      goal: SIZE_GOALS[entries]?.memory,
      ours: openAnew(file, (_, child) => child.memory("VmHWM")),
      against: ["an idle echo", () => measureMemory(echo(), state(0), "VmHWM")],
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
  const branched = [makeRowSession("realistic", 1000), makeRowSession("lean", large)];
  if (million) branched.push(makeRowSession("lean", 1_000_000));
  for (const file of branched) {
    const entries = entriesOf(file);
    yield {
      what: `get_fork_messages, ${counted(entries)} entries`,
      unit: "ms",
      goal: { 1000: "0.5 ms", 100000: "15 ms", 1000000: "150 ms" }[entries],
      ours: () => onSession(file, "get_fork_messages"),
      against: ["a page of 1,000", () => onSession(file, "get_fork_messages", { limit: 1000 })],
      pi: (pi) => piOnSession(pi, file, "get_fork_messages"),
    };
    if (entries < 2000) continue;
    yield {
      what: `get_tree flat, ${counted(entries)} entries, first time`,
      unit: "ms",
      goal: { 100000: "150 ms", 1000000: "1500 ms" }[entries],
      ours: () => onSession(file, "get_tree"),
      against: ["nested", () => onSession(file, "get_tree", { format: "nested" })],
    };
    yield {
      what: "- its memory at most",
      unit: "MB",
      ours: () => onSession(file, "get_tree", {}, (_, child) => child.memory("VmHWM")),
    };
  }
  for (const [shape, count] of options.shapes ? UNUSUAL : []) {
    const file = makeRowSession(shape, quick ? Math.ceil(count / 100) : count);
    yield {
      what: `switch_session, ${shape}, ${size(file)}`,
      unit: "ms",
      ours: openAnew(file),
      against: parseAll(file),
      pi: (pi) => piSwitchTo(pi, file),
    };
  }
  const whole = makeRowSession("whole", quick ? 500 : 10_000);
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
      runWith(ours("--session", whole, "--read-only"), async (child) => {
        for (let n = 0; n < 3; n++) await child.ask([makeRequest(n, "get_tree", { limit: 1000 })]);
        return child.ask([makeRequest(9, "get_tree", { limit: 1000 })]);
      }),
    against: ["round trip", () => once(echo(), state(0), state(1))],
  };
  const last = makeId(large - 4 - ((large - 4) % 4));
  yield {
    what: `fork at the last message, ${size(realistic)}, durable`,
    unit: "ms",
    goal: "2.5 x range copy",
    ours: () => once(ours("--session", realistic), state(0), makeRequest(1, "fork", { entryId: last, position: "at" })),
    against: ["file copy, fdatasync", () => copy(realistic)],
    pi: (pi) => piOnSession(pi, realistic, "fork", { entryId: last }),
  };
  const little = makeRowSession("lean", 8);
  yield {
    what: "import, library",
    goal: "20 ms",
    ...byLibrary("import", little, "ms"),
  };
  yield {
    what: "- then open a small session",
    goal: "3 ms",
    ...byLibrary("open", little, "ms"),
  };
  const alone = ["write alone", () => run("append-raw", makeFileName(), "ks")];
  yield { what: "append, library, not durable", goal: "200 k/s", ...appends(0), against: alone };
  yield { what: `- at ${counted(large)} entries`, goal: "200 k/s", ...appends(large), against: alone };
  yield {
    what: "- first 1,000 of a process",
    goal: "110 k/s",
    ...byLibrary("append-first", makeFileName, "ks"),
    against: ["write, looked at before and after", () => run("append-checked", makeFileName(), "ks")],
  };
  yield {
    what: "branchWithSummary, library, p50",
    goal: "10 us",
    ...byLibrary("summaries", makeFileName, "us"),
  };
  for (const [count, goal] of [
    [1000, "4 ms"],
    [10_000, "20 ms"],
  ]) {
    const file = () => makeRowSession("uncompacted", count);
    yield {
      what: `createBranchedSession at the leaf, library, ${counted(count)} entries`,
      goal,
      ...byLibrary("branched", file, "ms"),
      against: ["file copy, fdatasync", () => copy(file())],
    };
  }
  const many = manySessions(quick ? 20 : 1000);
  yield { what: "list, library, again", goal: "15 ms", ...byLibrary("list-again", many, "ms") };
  yield {
    what: "continueRecent, library",
    goal: "5 ms",
    ...byLibrary("recent", many, "ms"),
  };
  yield { what: "- where no session is of the working directory", ...byLibrary("recent-none", many, "ms") };
  yield {
    what: "durable append over the wire, p50",
    unit: "us",
    goal: "200 us + round trip",
    ours: () => measureRoundTrip(ours("--session", makeFileName()), appendRequest),
    against: ["write, fdatasync", () => run("sync", makeFileName(), "us")],
  };
  const total = quick ? 500 : 20_000;
  yield {
    what: "durable appends, pipelined",
    unit: "k/s",
    goal: "60 k/s",
    more: true,
    ours: () =>
      runWith(ours("--session", makeFileName()), async (child) => {
        await child.ask([appendRequest("warm")]);
        return total / (await child.keepAsking(total, 1000, appendRequest));
      }),
    against: ["one fdatasync each", async () => 1000 / (await run("sync", makeFileName(), "us"))],
  };
  yield {
    what: "bytes on disk, realistic entries",
    unit: "MB",
    goal: "1.1 x payload",
    ours: () => written(makeRowSession("realistic", 1000)),
    against: ["payload", async () => statSync(makeRowSession("realistic", 1000)).size / 1e6],
  };
  yield {
    what: "memory of an idle server",
    unit: "MB",
    goal: "90 MB",
    ...ofServer((child, line) => measureMemory(child, line(0), "VmRSS")),
  };
}

async function appending(entries, from, runner) {
  const file = makeFileName();
  writeSession(file, Math.max(8, entries), "lean");
  const rate = await run("append", file, "ks", from, runner);
  rmSync(file, { force: true });
  return rate;
}

/** A session written entry by entry; answers the megabytes that came to be. */
async function written(from) {
  const file = makeFileName();
  const lines = readFileSync(from, "utf8").split("\n").slice(1, -1);
  const requests = lines.map((line, n) => {
    const { id, parentId, timestamp, ...entry } = JSON.parse(line);
    return makeRequest(n, "append", { entries: [entry.type === "compaction" ? message : entry] });
  });
  await runWith(ours("--session", file), (child) => child.ask(requests));
  return statSync(file).size / 1e6;
}
