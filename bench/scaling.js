// Growth of the time of every command with the session: each on the same kind of session at several sizes, in one
// process per size, and the exponent that fits: 0 is flat, 1 linear.
import { copyFileSync, rmSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join } from "node:path";
import { replaceFigures } from "./figures.js";
import { makeId, writeSession } from "./generate.js";
import { formatNumber, formatTable, makeRequest, toFigure } from "./measure.js";

/** A time below this is mostly the round trip, and fits nothing. */
const FLOOR = 0.5;

/**
 * Params by command, from facts of the session: `last` is the id of its last user message, `path` its file. A command
 * that takes a limit is asked for all and for a page.
 */
const ASKED = [
  ["get_state"],
  ["get_messages"],
  ["get_messages", { limit: 100 }],
  ["get_context"],
  ["get_entries"],
  ["get_entries", { limit: 100 }],
  ["get_entry", ({ last }) => ({ entryId: last })],
  ["get_path"],
  ["get_path", { limit: 100 }],
  ["get_tree", { limit: 100 }],
  ["get_tree", { format: "nested" }],
  ["get_fork_messages"],
  ["get_last_assistant_text"],
  ["get_session_stats"],
  ["prepare_compaction"],
  ["prepare_branch_summary", ({ first }) => ({ targetId: first })],
  ["verify_session"],
  ["export_session", ({ out }) => ({ format: "markdown", outputPath: out, overwrite: true })],
  ["export_html", ({ out }) => ({ outputPath: out, overwrite: true })],
  ["migrate_session", { dryRun: true }],
  ["list_open_sessions"],
  ["append", { entries: [{ type: "message", message: { role: "user", content: "more" } }] }],
  ["set_label", ({ last }) => ({ entryId: last, label: "here" })],
  ["set_session_name", { name: "a name" }],
  ["set_model", { provider: "anthropic", modelId: "sonnet" }],
  ["set_thinking_level", { level: "high" }],
  ["edit_context", ({ last }) => ({ targetId: last, replacement: null })],
  ["branch", ({ last }) => ({ entryId: last })],
  ["compact_append", ({ last }) => ({ summary: "so far", firstKeptEntryId: last, tokensBefore: 1 })],
  ["switch_session", ({ path }) => ({ sessionPath: path })],
  ["clone"],
  ["fork", ({ last }) => ({ entryId: last, position: "at" })],
];

/** Commands that run once at each size, because they leave or change the session. */
const ONCE = new Set(["switch_session", "clone", "fork", "edit_context", "compact_append"]);

function nameOf([method, params]) {
  const said = typeof params === "object" ? ["limit", "format"].filter((name) => name in params) : [];
  return [method, ...said.map((name) => `${name} ${params[name]}`)].join(", ");
}

async function timesAt(count, { ours, home, runs, quick }) {
  const file = join(home, `growth-${count}.jsonl`);
  writeSession(file, count, "uncompacted");
  const times = new Map();
  const facts = { first: makeId(0), last: makeId(count - 4 - ((count - 4) % 4)), path: file, out: `${file}.out` };
  const copy = `${file}.copy.jsonl`;
  copyFileSync(file, copy);
  let child;
  const open = async (path) => {
    await child?.end();
    child = ours("--session", path);
    await child.ask([makeRequest(0, "get_state")]);
  };
  await open(copy);
  let dirty = false;
  for (const asked of ASKED) {
    const [method, params = {}] = asked;
    // A quick run shows that each is answered, which needs no session as it was, nor a process of its own.
    if (ONCE.has(method) && dirty && !quick) {
      rmSync(copy);
      copyFileSync(file, copy);
      await open(copy);
    }
    const given = typeof params === "function" ? params(facts) : params;
    const taken = [];
    for (let n = 0; n < (ONCE.has(method) ? 1 : Math.min(runs, 3)); n++) {
      try {
        taken.push((await child.result(method, given)).took);
      } catch (error) {
        if (/method_not_found/.test(error.message)) break;
        throw error;
      }
    }
    dirty ||= ONCE.has(method);
    if (taken.length > 0) times.set(nameOf(asked), toFigure(taken).median);
  }
  const { result } = await child.result("initialize", { clientInfo: { name: "bench" } }).catch(() => ({ result: {} }));
  await child.end();
  rmSync(file);
  rmSync(copy);
  rmSync(facts.out, { force: true });
  return { times, commands: result.capabilities?.commands ?? [] };
}

/** Slope of log time over log size, of times that are more than a round trip; undefined where there are too few. */
export function fitExponent(sizes, times) {
  const points = sizes
    .map((size, index) => [Math.log(size), times[index]])
    .filter(([, time]) => time > FLOOR)
    .map(([x, time]) => [x, Math.log(time)]);
  if (points.length < 2) return 0;
  const mean = (axis) => points.reduce((sum, point) => sum + point[axis], 0) / points.length;
  const [x, y] = [mean(0), mean(1)];
  const over = points.reduce((sum, point) => sum + (point[0] - x) * (point[1] - y), 0);
  const under = points.reduce((sum, point) => sum + (point[0] - x) ** 2, 0);
  return over / under;
}

export async function measureScaling(options) {
  const sizes = options.quick ? [100, 400] : [1000, 10_000, 100_000, ...(options.million ? [1_000_000] : [])];
  const load = loadavg()[0];
  const bySize = [];
  for (const size of sizes) bySize.push(await timesAt(size, options));
  const commands = ASKED.map(nameOf).filter((name) => bySize.some(({ times }) => times.has(name)));
  const rows = commands.map((name) => {
    const times = bySize.map(({ times: all }) => all.get(name));
    return { command: name, milliseconds: times, exponent: fitExponent(sizes, times) };
  });
  if (options.json) {
    console.log(JSON.stringify({ node: process.version, sizes, rows }, null, 2));
    return;
  }
  const lines = rows.map(({ command, milliseconds, exponent: fitted }) => [
    command,
    ...milliseconds.map(formatNumber),
    milliseconds.every((time) => !(time > FLOOR)) ? "flat" : fitted.toFixed(2),
  ]);
  const asked = new Set(ASKED.map(([method]) => method));
  const others = bySize[0].commands.filter((name) => !asked.has(name));
  const how = `Node ${process.version}, ${cpus().length} processors, load ${load.toFixed(1)} before, milliseconds by entries`;
  const head = ["command", ...sizes.map((size) => new Intl.NumberFormat("en").format(size)), "exponent"];
  console.log(`${how}\n\n${formatTable(head, lines)}`);
  if (options.document) replaceFigures(options.document, "figures of growth", { how, head, rows: lines });
  if (others.length > 0) console.log(`\nNot of one session's size, or not measured: ${others.join(", ")}.`);
}
